/*-------------------------------------------------------------------------
 *
 * adopt.c
 *		CALL adopt_concurrently(): a table becomes a collection while others
 *		use it.
 *
 * These are the steps.  Each commits, and none holds a lock for long.
 *
 * 1. Check everything that adopt() checks, without strong locks.
 * 2. Under a brief ACCESS EXCLUSIVE lock: create the trigger, add the system
 *	  columns with constant defaults, and write the label.  From now on the table
 *	  is a collection.  TTL is off, and the label has "adopting": the _ts of
 *	  rows that are not filled yet.  The trigger stamps what others write.
 * 3. Fill rows that need other values (fill.c).
 * 4. Build the purge index (build_index.c).
 * 5. Under a brief SHARE ROW EXCLUSIVE lock: check that no table and no index is
 *	  missing, and write the label again, without "adopting" and with the
 *	  DefaultTTL.  TTL is on now.  If something is missing, go back to step 3.
 *
 * Interruption.  After an error or a crash, the label tells how far we are, and
 * with which arguments.  The next call begins at step 3, and release() undoes
 * step 2.  Partly filled tables need no notes: a row shows by its _ts whether it
 * is filled.
 *
 * Others can change everything between two steps, except what change_lock.c
 * keeps them from changing.  So each step looks the table and its label up
 * again, and checks that the caller still owns the table.
 *
 * Partitions.  A partition that others create meanwhile has our trigger from
 * its first row on.  ATTACH PARTITION brings rows, possibly those of a
 * partition that was detached before it was filled.  So step 5 requires under
 * its lock that each partition was filled by this call.
 *
 * The _ts of unfilled rows is the time of step 2.  If the adoption takes
 * longer than the DefaultTTL, documents that nobody has written meanwhile are
 * expired at its end.  The purge is held then (collection/grace.c).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/table.h"
#include "access/transam.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "pgtime.h"
#include "storage/bufmgr.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "online/online_internal.h"

PG_FUNCTION_INFO_V1(ttl_docs_adopt_concurrently);

/* between checks whether DETACH PARTITION CONCURRENTLY has ended, in milliseconds */
#define DETACH_PAUSE		200

/* A call of adopt_concurrently() */
typedef struct Adoption
{
	Oid			relid;
	const char *doc_column;		/* as the caller named it; NULL = not named */
	const char *last_modified;	/* NULL = none */
	CollectionSettings settings;	/* of the label in step 2 */
	MemoryContext context;		/* survives commits */
	FillResult	filled;
	List	   *filled_tables;	/* OIDs */
	bool		is_complete;	/* has step 5 succeeded? */
	char	   *context_message;	/* for errors; NULL = nothing has begun */
} Adoption;

static CollectionSettings settings_to_reach(FunctionCallInfo fcinfo);
static void adopt(Adoption *adoption);
static void begin_adoption(Adoption *adoption);
static void check_table(Adoption *adoption, Relation rel);
static void refuse_citus_table(Relation rel);
static void refuse_system_columns(Relation rel);
static void choose_columns(Adoption *adoption, Relation rel);
static void choose_time_zone(Adoption *adoption, Relation rel);
static void require_replica_identity(Relation rel);
static void create_pieces(void *arg, BriefLock *lock);
static void continue_adoption(Adoption *adoption, const CollectionSettings *settings);
static void create_lost_trigger(void *arg, BriefLock *lock);
static void has_begun(Adoption *adoption);
static void add_context(void *arg);
static CollectionSettings require_adopting(const Adoption *adoption);
static void fill_tables(Adoption *adoption);
static List *unfilled_tables(const Adoption *adoption);
static int64 count_blocks(List *tables);
static void wait_for_detach(Adoption *adoption);
static void turn_on(void *arg, BriefLock *lock);
static CollectionSettings final_settings(const CollectionSettings *settings);

/*
 * adopt_concurrently(collection regclass, default_ttl integer, doc_column name,
 *					  last_modified name, indexing text)
 */
Datum
ttl_docs_adopt_concurrently(PG_FUNCTION_ARGS)
{
	Adoption   *adoption;
	MemoryContext context;
	MemoryContext caller;
	ErrorContextCallback errcallback;

	ttl_docs_require_writable(fcinfo);
	ttl_docs_require_client_call(fcinfo, "In a transaction, use SELECT ttl_docs.adopt() instead, which locks the table.");
	if (PG_ARGISNULL(0) || PG_ARGISNULL(4))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("collection and indexing cannot be null")));

	context = AllocSetContextCreate(PortalContext, "ttl_docs adoption",
									ALLOCSET_DEFAULT_SIZES);
	caller = MemoryContextSwitchTo(context);
	adoption = palloc0(sizeof(Adoption));
	adoption->context = context;
	adoption->relid = PG_GETARG_OID(0);
	adoption->settings = settings_to_reach(fcinfo);
	if (!PG_ARGISNULL(2))
		adoption->doc_column = pstrdup(NameStr(*PG_GETARG_NAME(2)));
	if (!PG_ARGISNULL(3))
		adoption->last_modified = pstrdup(NameStr(*PG_GETARG_NAME(3)));

	errcallback.callback = add_context;
	errcallback.arg = adoption;
	errcallback.previous = error_context_stack;
	error_context_stack = &errcallback;
	adopt(adoption);
	error_context_stack = errcallback.previous;

	MemoryContextSwitchTo(caller);
	MemoryContextDelete(context);
	PG_RETURN_VOID();
}

/* The settings that the caller wants, in the form that they have in step 2. */
static CollectionSettings
settings_to_reach(FunctionCallInfo fcinfo)
{
	int32		default_ttl;
	bool		on = ttl_docs_default_ttl_arg(fcinfo, 1, &default_ttl);
	CollectionSettings settings = ttl_docs_new_settings(on, default_ttl,
														text_to_cstring(PG_GETARG_TEXT_PP(4)));

	settings.target_on = on;
	settings.target_ttl = default_ttl;
	settings.on = false;
	settings.default_ttl = TTL_NEVER;
	return settings;
}

/* Says in each error what is missing, once the adoption has begun. */
static void
add_context(void *arg)
{
	const Adoption *adoption = arg;

	if (adoption->context_message != NULL)
		errcontext("%s", adoption->context_message);
}

/* All steps, while other sessions cannot change the settings. */
static void
adopt(Adoption *adoption)
{
	Oid			relid = adoption->relid;

	/* end the transaction in which the arguments were computed */
	ttl_docs_commit_step();
	relation_close(ttl_docs_open_owned(relid, AccessShareLock), AccessShareLock);
	ttl_docs_begin_concurrent_change(relid);
	ttl_docs_begin_progress(CHANGE_ADOPT, relid);
	adoption->filled.first_xid = ReadNextTransactionId();
	PG_TRY();
	{
		begin_adoption(adoption);
		while (!adoption->is_complete)
		{
			fill_tables(adoption);
			(void) require_adopting(adoption);
			ttl_docs_build_purge_index(relid, adoption->settings.indexing);
			ttl_docs_set_phase(PHASE_SWITCH);
			wait_for_detach(adoption);
			ttl_docs_do_briefly(turn_on, adoption, relid);
		}
	}
	PG_FINALLY();
	{
		ttl_docs_end_progress();
	}
	PG_END_TRY();
	adoption->context_message = NULL;
	ttl_docs_end_concurrent_change(relid);
	ttl_docs_warn_on_concurrent_adopt(relid, &adoption->settings,
									  adoption->filled.with_ttl,
									  adoption->filled.example,
									  adoption->filled.example_ttl);
}

/* ---- Steps 1 and 2: the table becomes a collection ---- */

/* Makes the table a collection, or continues an adoption that was interrupted. */
static void
begin_adoption(Adoption *adoption)
{
	Oid			relid = adoption->relid;
	Relation	rel = ttl_docs_open_owned(relid, AccessShareLock);
	Collection	collection;

	ttl_docs_lock_tree(relid, AccessShareLock);
	if (ttl_docs_lookup_collection(relid, &collection) && collection.root == relid &&
		collection.settings.adopting != DT_NOBEGIN)
	{
		table_close(rel, AccessShareLock);
		continue_adoption(adoption, &collection.settings);
		return;
	}
	check_table(adoption, rel);
	if (adoption->doc_column == NULL)
		ttl_docs_warn_of_chosen_column(relid, NameStr(adoption->settings.doc_column));
	ttl_docs_warn_of_replication(relid);
	ttl_docs_notice_published_rows(rel);
	table_close(rel, AccessShareLock);
	ttl_docs_do_briefly(create_pieces, adoption, relid);
	has_begun(adoption);
}

/*
 * Raises an error if the table cannot be adopted.  Chooses the columns.  The
 * caller has locked the table and its partitions.
 */
static void
check_table(Adoption *adoption, Relation rel)
{
	ttl_docs_require_heap(rel);
	refuse_citus_table(rel);
	ttl_docs_require_new_collection(rel);
	ttl_docs_require_no_pending_detach(RelationGetRelid(rel));
	choose_columns(adoption, rel);
	refuse_system_columns(rel);
	ttl_docs_refuse_lossy_replication(rel);
	require_replica_identity(rel);
}

static void
refuse_citus_table(Relation rel)
{
	ttl_docs_refuse_shard(RelationGetRelid(rel));
	if (!ttl_docs_is_shell(RelationGetRelid(rel)))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("cannot adopt the Citus table \"%s\" concurrently",
					RelationGetRelationName(rel)),
			 errdetail("Its rows are on several nodes, and each node would commit by itself."),
			 errhint("Adopt the table before you distribute it, or use SELECT ttl_docs.adopt(), which locks the table.")));
}

/*
 * Raises an error if the table has a system column already.  Its rows would
 * have to keep their stamps, so their _ts could not tell whether they are filled.
 */
static void
refuse_system_columns(Relation rel)
{
	static const char *const names[] = {
		TTL_DOCS_TS_COLUMN, TTL_DOCS_TTL_COLUMN, TTL_DOCS_SLOT_COLUMN
	};

	for (size_t i = 0; i < lengthof(names); i++)
		if (get_attnum(RelationGetRelid(rel), names[i]) != InvalidAttrNumber)
			ereport(ERROR,
					(errcode(ERRCODE_DUPLICATE_COLUMN),
					 errmsg("cannot adopt \"%s\" concurrently because it already has a column \"%s\"",
							RelationGetRelationName(rel), names[i]),
					 errhint("Drop the column. Or use SELECT ttl_docs.adopt(), which keeps its values, but locks the table.")));
}

static void
choose_columns(Adoption *adoption, Relation rel)
{
	ttl_docs_choose_doc_column(rel, adoption->doc_column, &adoption->settings.doc_column);
	if (adoption->last_modified == NULL)
		return;
	ttl_docs_require_last_modified(rel, adoption->last_modified);
	namestrcpy(&adoption->settings.last_modified, adoption->last_modified);
	choose_time_zone(adoption, rel);
}

/*
 * The time zone for a last_modified without time zone: that of this session,
 * also if another session continues the adoption.
 */
static void
choose_time_zone(Adoption *adoption, Relation rel)
{
	AttrNumber	attno = get_attnum(RelationGetRelid(rel), adoption->last_modified);
	const char *name = pg_get_timezone_name(session_timezone);

	if (getBaseType(get_atttype(RelationGetRelid(rel), attno)) != TIMESTAMPOID)
		name = "UTC";
	if (strlen(name) >= NAMEDATALEN)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("the TimeZone of this session is too long to be stored: %s", name),
				 errhint("Use the name of a time zone, for example SET TimeZone = 'Europe/Berlin'.")));
	namestrcpy(&adoption->settings.time_zone, name);
}

/*
 * Raises an error if a table of the collection is published, but its UPDATEs
 * could not be sent.
 */
static void
require_replica_identity(Relation rel)
{
	List	   *tables = find_all_inheritors(RelationGetRelid(rel), NoLock, NULL);
	ListCell   *lc;

	foreach(lc, tables)
	{
		Relation	member = table_open(lfirst_oid(lc), NoLock);

		if (member->rd_rel->relkind == RELKIND_RELATION)
			CheckCmdReplicaIdentity(member, CMD_UPDATE);
		table_close(member, NoLock);
	}
	list_free(tables);
}

/* Step 2 */
static void
create_pieces(void *arg, BriefLock *lock)
{
	Adoption   *adoption = arg;
	CollectionSettings *settings = &adoption->settings;
	Oid			relid = adoption->relid;
	Relation	rel;

	ttl_docs_lock_tree_briefly(relid, AccessExclusiveLock, lock);
	rel = ttl_docs_open_owned(relid, NoLock);
	check_table(adoption, rel);
	table_close(rel, NoLock);

	settings->adopting = ttl_docs_clock();
	settings->origin_database = MyDatabaseId;
	settings->origin_relation = relid;
	ttl_docs_create_trigger(relid, false);
	ttl_docs_add_constant_columns(relid, settings, settings->adopting);
	ttl_docs_write_label(relid, settings);
}

/* Checks that the arguments are those of the first call, and goes on there. */
static void
continue_adoption(Adoption *adoption, const CollectionSettings *settings)
{
	const CollectionSettings *wanted = &adoption->settings;
	const char *last_modified = adoption->last_modified != NULL ? adoption->last_modified : "";

	if (wanted->target_on != settings->target_on ||
		wanted->target_ttl != settings->target_ttl ||
		wanted->indexing != settings->indexing ||
		(adoption->doc_column != NULL &&
		 strcmp(adoption->doc_column, NameStr(settings->doc_column)) != 0) ||
		strcmp(last_modified, NameStr(settings->last_modified)) != 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("the adoption of \"%s\" began with other arguments",
						get_rel_name(adoption->relid)),
				 errhint("To continue it: %s. To begin again with other arguments, first run SELECT ttl_docs.release(%s).",
						 ttl_docs_adoption_command(adoption->relid, settings),
						 ttl_docs_quoted_literal(adoption->relid))));
	adoption->settings = *settings;
	ereport(NOTICE,
			(errmsg("continuing the adoption of \"%s\"", get_rel_name(adoption->relid))));
	/* "pg_restore -t" restores the label, but not the trigger */
	if (!ttl_docs_has_trigger(adoption->relid))
		ttl_docs_do_briefly(create_lost_trigger, adoption, adoption->relid);
	has_begun(adoption);
}

static void
create_lost_trigger(void *arg, BriefLock *lock)
{
	Adoption   *adoption = arg;

	ttl_docs_lock_tree_briefly(adoption->relid, AccessExclusiveLock, lock);
	(void) require_adopting(adoption);
	ttl_docs_create_trigger(adoption->relid, false);
}

/* From now on, an error leaves a collection that is not completely adopted. */
static void
has_begun(Adoption *adoption)
{
	MemoryContext caller = MemoryContextSwitchTo(adoption->context);

	adoption->context_message =
		psprintf("adoption of table \"%s\", which is usable but not complete; to continue: %s",
				 get_rel_name(adoption->relid),
				 ttl_docs_adoption_command(adoption->relid, &adoption->settings));
	MemoryContextSwitchTo(caller);
}

/*
 * Returns the current settings.  Raises an error if the table, or the caller's
 * right to adopt it, is gone.
 */
static CollectionSettings
require_adopting(const Adoption *adoption)
{
	Oid			relid = adoption->relid;
	Collection	collection;

	relation_close(ttl_docs_open_owned(relid, AccessShareLock), AccessShareLock);
	if (!ttl_docs_lookup_collection(relid, &collection) || collection.root != relid ||
		collection.settings.adopting != adoption->settings.adopting)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("table \"%s\" is not being adopted any more", get_rel_name(relid)),
				 errdetail("Another session has changed its label.")));
	return collection.settings;
}

/* ---- Step 3: rows ---- */

/*
 * Fills all tables of the collection that this call has not filled.  The
 * current memory context is that of the adoption, which survives commits.
 */
static void
fill_tables(Adoption *adoption)
{
	List	   *tables;
	ListCell   *lc;

	for (;;)
	{
		CHECK_FOR_INTERRUPTS();
		(void) require_adopting(adoption);
		tables = unfilled_tables(adoption);
		if (tables == NIL)
			break;
		ttl_docs_set_phase(PHASE_FILL);
		ttl_docs_set_blocks(count_blocks(tables));
		/* a table that is gone is not in the next list */
		foreach(lc, tables)
			if (ttl_docs_fill_table(lfirst_oid(lc), adoption->relid, &adoption->filled))
				adoption->filled_tables = lappend_oid(adoption->filled_tables,
													  lfirst_oid(lc));
		list_free(tables);
	}
}

static List *
unfilled_tables(const Adoption *adoption)
{
	List	   *tables = ttl_docs_collection_tables(adoption->relid);
	List	   *unfilled = list_difference_oid(tables, adoption->filled_tables);

	list_free(tables);
	return unfilled;
}

static int64
count_blocks(List *tables)
{
	int64		blocks = 0;
	ListCell   *lc;

	foreach(lc, tables)
	{
		Relation	rel = try_table_open(lfirst_oid(lc), AccessShareLock);

		if (rel == NULL)
			continue;
		blocks += RelationGetNumberOfBlocks(rel);
		table_close(rel, AccessShareLock);
	}
	return blocks;
}

/* ---- Step 5: TTL is turned on ---- */

/*
 * Waits until no partition is being detached concurrently.  DETACH PARTITION
 * CONCURRENTLY waits for old transactions.  If it was interrupted, somebody
 * has to complete it.
 */
static void
wait_for_detach(Adoption *adoption)
{
	int64		began = ttl_docs_elapsed();
	bool		has_noticed = false;

	for (;;)
	{
		Oid			partition = ttl_docs_pending_partition(adoption->relid);

		if (!OidIsValid(partition))
			break;
		if (!has_noticed && ttl_docs_elapsed() - began >= NOTICE_AFTER)
		{
			ereport(NOTICE,
					(errmsg("waiting until partition \"%s\" is detached",
							get_rel_name(partition)),
					 errdetail("Other sessions do not wait."),
					 errhint("If DETACH PARTITION CONCURRENTLY was interrupted, run ALTER TABLE ... DETACH PARTITION ... FINALIZE.")));
			has_noticed = true;
		}
		ttl_docs_commit_step();
		ttl_docs_pause(DETACH_PAUSE);
	}
}

/*
 * Step 5.  Counts documents that will be expired before it takes the strong
 * lock, because that can take some time.
 */
static void
turn_on(void *arg, BriefLock *lock)
{
	Adoption   *adoption = arg;
	Oid			relid = adoption->relid;
	CollectionSettings before = require_adopting(adoption);
	CollectionSettings after = final_settings(&before);
	NewlyExpired expired;

	ttl_docs_lock_tree(relid, AccessShareLock);
	expired = ttl_docs_count_newly_expired(relid, &before, &after);
	ttl_docs_lock_tree_briefly(relid, ShareRowExclusiveLock, lock);
	before = require_adopting(adoption);
	if (OidIsValid(ttl_docs_pending_partition(relid)) ||
		unfilled_tables(adoption) != NIL ||
		!ttl_docs_has_built_purge_index(relid, before.indexing))
		return;
	after = final_settings(&before);
	ttl_docs_begin_grace(relid, &after, &expired);
	ttl_docs_write_label(relid, &after);
	adoption->is_complete = true;
}

static CollectionSettings
final_settings(const CollectionSettings *settings)
{
	CollectionSettings final = *settings;

	final.on = settings->target_on;
	final.default_ttl = settings->target_ttl;
	final.adopting = DT_NOBEGIN;
	final.target_on = false;
	final.target_ttl = TTL_NEVER;
	memset(&final.last_modified, 0, sizeof(NameData));
	memset(&final.time_zone, 0, sizeof(NameData));
	return final;
}
