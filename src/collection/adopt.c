/*-------------------------------------------------------------------------
 *
 * adopt.c
 *		adopt(): an existing table becomes a collection.
 *
 * All existing documents get the same _ts, the time of the adoption.  adopt()
 * adds the system columns with constants as their defaults.  Core keeps such
 * constants in the catalog, and writes no row.
 *
 * The table is rewritten only if rows need different values: if a document has
 * its own ttl, if last_modified is the name of a column with the first _ts, or if
 * the table already has a column _ts, but not the other two.
 * Filling the new columns with an UPDATE would store every row twice.  So adopt()
 * fills them with ALTER COLUMN TYPE ... USING, which rewrites the table once.
 * online/adopt.c does this while others use the table.
 *
 * adopt() creates the trigger first and writes the label last.  Before the
 * label exists, ttl_docs neither filters the table nor guards it against DDL.
 * An event trigger that fires in between could write to the table; our
 * trigger refuses such a write.
 *
 * Locks: ACCESS EXCLUSIVE on the table and its partitions until the
 * transaction ends, because adopt() runs ALTER TABLE.
 *
 * Rights: only the owner of the table or a superuser may call adopt().  This
 * is checked before the lock is taken.  The function and its DDL run as the
 * caller.  A superuser may adopt a table of any user, so steps that can run
 * code of users run as the owner of the table (core/owner.c).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_type.h"
#include "commands/event_trigger.h"
#include "commands/tablecmds.h"
#include "commands/trigger.h"
#include "executor/tuptable.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

#include "collection/collection_internal.h"

PG_FUNCTION_INFO_V1(ttl_docs_adopt);
PG_FUNCTION_INFO_V1(ttl_docs_first_ts_tz);
PG_FUNCTION_INFO_V1(ttl_docs_first_ts);

/* Which system columns a table has before it is adopted */
typedef struct PresentColumns
{
	bool		ts;
	bool		ttl;
	bool		slot;
} PresentColumns;

static void lock_for_adoption(Oid relid, CollectionSettings *settings);
static PresentColumns find_present_columns(Relation rel);
static bool must_rewrite(Relation rel, const char *last_modified,
						 PresentColumns present, bool has_own_ttl);
static void notice_rewrite(Relation rel, const char *last_modified, bool has_own_ttl);
static bool all_triggers_fire(Oid relid);
static void complete_collection(Oid relid, const CollectionSettings *settings);
static void recompute_tree(Oid relid, const CollectionSettings *settings);
static char *first_stamp_expression(Relation rel, const char *last_modified,
									bool has_ts, TimestampTz clock);
static char *constant_stamp(TimestampTz clock);
static void add_system_columns(Oid relid, const CollectionSettings *settings,
							   TimestampTz clock, PresentColumns present);
static void rewrite_system_columns(Oid relid, const CollectionSettings *settings,
								   const char *stamp, PresentColumns present);
static void complete_ts_column(Oid relid, const CollectionSettings *settings,
							   bool was_present);
static void require_not_null(Oid relid);
static void set_not_null_as_owner(Oid relid);

/*
 * adopt(collection regclass, default_ttl integer, doc_column name,
 *		 last_modified name, indexing text)
 */
Datum
ttl_docs_adopt(PG_FUNCTION_ARGS)
{
	CollectionSettings settings;
	bool		on;
	int32		default_ttl;

	ttl_docs_require_writable(fcinfo);
	if (PG_ARGISNULL(0) || PG_ARGISNULL(4))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("collection and indexing cannot be null")));
	on = ttl_docs_default_ttl_arg(fcinfo, 1, &default_ttl);
	settings = ttl_docs_new_settings(on, default_ttl,
									 text_to_cstring(PG_GETARG_TEXT_PP(4)));
	ttl_docs_adopt_table(PG_GETARG_OID(0), &settings,
						 PG_ARGISNULL(2) ? NULL : NameStr(*PG_GETARG_NAME(2)),
						 PG_ARGISNULL(3) ? NULL : NameStr(*PG_GETARG_NAME(3)));
	ttl_docs_warn_of_replication(PG_GETARG_OID(0));
	PG_RETURN_VOID();
}

/* The arguments are those that ttl_docs_default_ttl_arg() returned. */
CollectionSettings
ttl_docs_new_settings(bool on, int32 default_ttl, const char *indexing)
{
	CollectionSettings settings;

	memset(&settings, 0, sizeof(settings));
	settings.on = on;
	settings.default_ttl = default_ttl;
	settings.indexing = ttl_docs_parse_indexing(indexing);
	settings.written_floor = DT_NOBEGIN;
	settings.due_floor = DT_NOBEGIN;
	settings.grace_until = DT_NOBEGIN;
	settings.adopting = DT_NOBEGIN;
	if (on && settings.indexing == INDEXING_NONE)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("a DefaultTTL needs a purge index, but indexing is \"none\""),
				 errhint("Use indexing \"consistent\" or \"lazy\", or leave the DefaultTTL off.")));
	return settings;
}

/*
 * Makes a table a collection.  doc_column may be NULL if the table has only
 * one jsonb column; last_modified may be NULL.
 */
void
ttl_docs_adopt_table(Oid relid, CollectionSettings *settings,
					 const char *doc_column, const char *last_modified)
{
	TimestampTz clock = ttl_docs_clock();
	Relation	rel;
	PresentColumns present;
	Collection	collection;
	NewlyExpired expired = {.is_complete = true};
	char	   *stamp;
	bool		has_own_ttl;
	bool		rewrites;

	lock_for_adoption(relid, settings);
	if (ttl_docs_lookup_collection(relid, &collection) && collection.root == relid)
		ttl_docs_require_adopted(relid, &collection.settings, "adopt");
	/* repairs a collection whose child tables lack triggers */
	if (ttl_docs_update_triggers_of_children(relid) && all_triggers_fire(relid))
		return;
	if (ttl_docs_lookup_collection(relid, &collection) && collection.root == relid &&
		!all_triggers_fire(relid))
	{
		complete_collection(relid, &collection.settings);
		return;
	}
	rel = relation_open(relid, NoLock);
	ttl_docs_require_new_collection(rel);
	ttl_docs_choose_doc_column(rel, doc_column, &settings->doc_column);
	present = find_present_columns(rel);
	stamp = first_stamp_expression(rel, last_modified, present.ts, clock);
	has_own_ttl = ttl_docs_has_rows_with_ttl(rel, NameStr(settings->doc_column));
	if (settings->on && has_own_ttl)
		ttl_docs_refuse_invalid_ttl(relid, NameStr(settings->doc_column),
									psprintf("%s.document_ttl(%s) OPERATOR(pg_catalog.=) %d",
											 TTL_DOCS_SCHEMA,
											 quote_identifier(NameStr(settings->doc_column)),
											 TTL_INVALID));
	if (!present.ts && last_modified == NULL)
		ttl_docs_refuse_lossy_replication(rel);

	rewrites = must_rewrite(rel, last_modified, present, has_own_ttl);
	if (rewrites)
		notice_rewrite(rel, last_modified, has_own_ttl);
	relation_close(rel, NoLock);

	ttl_docs_create_trigger(relid, settings->citus);
	if (rewrites)
		rewrite_system_columns(relid, settings, stamp, present);
	else
		add_system_columns(relid, settings, clock, present);
	/* on Citus, each node recomputes its shards when the label arrives */
	if ((present.ttl || present.slot) && !settings->citus)
		recompute_tree(relid, settings);
	ttl_docs_create_purge_index(relid, settings->indexing);

	if (doc_column == NULL)
		ttl_docs_warn_of_chosen_column(relid, NameStr(settings->doc_column));
	expired.count = ttl_docs_warn_on_adopt(relid, settings, has_own_ttl,
										   present.ts || last_modified != NULL);
	ttl_docs_begin_grace(relid, settings, &expired);

	settings->origin_database = MyDatabaseId;
	settings->origin_relation = relid;
	ttl_docs_write_label(relid, settings);
}

/*
 * Locks the table and its partitions, on all nodes if Citus manages the table.
 * Sets settings->citus.
 */
static void
lock_for_adoption(Oid relid, CollectionSettings *settings)
{
	/* locks are taken on all nodes first; the checks before need no lock */
	Relation	rel = ttl_docs_open_owned(relid, AccessShareLock);

	ttl_docs_refuse_concurrent_change(relid);
	ttl_docs_require_heap(rel);
	ttl_docs_refuse_shard(relid);
	settings->citus = ttl_docs_is_shell(relid);
	if (settings->citus && rel->rd_rel->relowner != GetUserId())
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("only the owner of the distributed table \"%s\" can adopt it",
						RelationGetRelationName(rel)),
				 errdetail("adopt() reads the table as its owner, and Citus would use other connections for that."),
				 errhint("Run SET ROLE %s first.",
						 quote_identifier(GetUserNameFromId(rel->rd_rel->relowner, false)))));
	table_close(rel, AccessShareLock);
	if (settings->citus)
		ttl_docs_lock_on_all_nodes(relid, AccessExclusiveLock);
	table_close(ttl_docs_open_owned(relid, AccessExclusiveLock), NoLock);
	ttl_docs_lock_tree(relid, AccessExclusiveLock);
	ttl_docs_require_no_pending_detach(relid);
}

/* Raises an error if the table is a collection, or cannot become one. */
void
ttl_docs_require_new_collection(Relation rel)
{
	Oid			relid = RelationGetRelid(rel);
	Collection	collection;

	if (ttl_docs_lookup_collection(relid, &collection))
		ereport(ERROR,
				(errcode(ERRCODE_DUPLICATE_OBJECT),
				 collection.root == relid ?
				 errmsg("table \"%s\" is already a collection",
						RelationGetRelationName(rel)) :
				 errmsg("table \"%s\" is a partition of the collection \"%s\"",
						RelationGetRelationName(rel),
						get_rel_name(collection.root)),
				 errhint("To change the settings of \"%s\", call ttl_docs.set_default_ttl() or ttl_docs.set_indexing().",
						 get_rel_name(collection.root))));
	ttl_docs_require_adoptable(rel);
	ttl_docs_require_last_trigger(rel);
	if (OidIsValid(get_trigger_oid(relid, TTL_DOCS_TRIGGER, true)) &&
		!ttl_docs_has_trigger(relid))
		ereport(ERROR,
				(errcode(ERRCODE_DUPLICATE_OBJECT),
				 errmsg("trigger \"%s\" of table \"%s\" is not a ttl_docs trigger",
						TTL_DOCS_TRIGGER, RelationGetRelationName(rel)),
				 errdetail("ttl_docs uses this name for its own trigger."),
				 errhint("Rename the trigger with ALTER TRIGGER ... RENAME TO.")));
}

static PresentColumns
find_present_columns(Relation rel)
{
	PresentColumns present;

	present.ts = ttl_docs_find_system_column(rel, TTL_DOCS_TS_COLUMN, TIMESTAMPTZOID);
	present.ttl = ttl_docs_find_system_column(rel, TTL_DOCS_TTL_COLUMN, INT4OID);
	present.slot = ttl_docs_find_system_column(rel, TTL_DOCS_SLOT_COLUMN, INT8OID);
	return present;
}

/*
 * Do rows need different values in a new column?  Where a column is there
 * already, recompute_tree() writes its values.
 */
static bool
must_rewrite(Relation rel, const char *last_modified, PresentColumns present,
			 bool has_own_ttl)
{
	if (present.ttl && present.slot)
		return false;
	return has_own_ttl ||
		((last_modified != NULL || present.ts) && ttl_docs_exists_as_owner(rel, "true"));
}

static void
notice_rewrite(Relation rel, const char *last_modified, bool has_own_ttl)
{
	ereport(NOTICE,
			(errmsg("adopt() rewrites table \"%s\", and no other session can use it meanwhile",
					RelationGetRelationName(rel)),
			 last_modified != NULL ?
			 errdetail("Each row gets a value from column \"%s\".", last_modified) :
			 has_own_ttl ? errdetail("Documents have a \"ttl\".") :
			 errdetail("Rows have different values of \"%s\".", TTL_DOCS_TS_COLUMN),
			 errhint("To adopt a large table while others use it, cancel, and run CALL ttl_docs.adopt_concurrently() with the same arguments.")));
}

/* Does our trigger fire for each row that is written to the table or a partition? */
static bool
all_triggers_fire(Oid relid)
{
	List	   *tables = find_all_inheritors(relid, NoLock, NULL);
	ListCell   *lc;
	bool		result = true;

	foreach(lc, tables)
		result &= ttl_docs_trigger_always_fires(lfirst_oid(lc));
	list_free(tables);
	return result;
}

/*
 * Creates the pieces that a restore did not bring: "pg_restore -t" restores
 * the label, but neither the trigger nor the purge index.  Enables the trigger if it
 * was disabled while the server ran without the library.  The label stays as it is,
 * with its settings and floors.
 */
static void
complete_collection(Oid relid, const CollectionSettings *settings)
{
	if (!settings->citus)
		recompute_tree(relid, settings);
	ttl_docs_create_trigger(relid, settings->citus);
	ttl_docs_create_purge_index(relid, settings->indexing);
}

/*
 * Recomputes _ttl and _slot of the rows of a table and its partitions, for a
 * table that had these columns before.  Each partition has its own column
 * numbers.
 */
static void
recompute_tree(Oid relid, const CollectionSettings *settings)
{
	List	   *tables = find_all_inheritors(relid, NoLock, NULL);
	ListCell   *lc;

	foreach(lc, tables)
	{
		Oid			member = lfirst_oid(lc);
		Collection	collection;

		collection.root = relid;
		collection.settings = *settings;
		ttl_docs_find_columns(member, &collection);
		ttl_docs_recompute_rows(member, &collection);
	}
	list_free(tables);
}

/* Returns an SQL expression for the first _ts of each existing document. */
static char *
first_stamp_expression(Relation rel, const char *last_modified, bool has_ts,
					   TimestampTz clock)
{
	if (last_modified == NULL)
		return has_ts ? pstrdup(TTL_DOCS_TS_COLUMN) : constant_stamp(clock);

	if (has_ts)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("cannot use last_modified for table \"%s\" because it already has a column \"%s\"",
						RelationGetRelationName(rel), TTL_DOCS_TS_COLUMN),
				 errhint("To keep the values of \"%s\", leave last_modified out. To use last_modified, drop \"%s\" first.",
						 TTL_DOCS_TS_COLUMN, TTL_DOCS_TS_COLUMN)));
	ttl_docs_require_last_modified(rel, last_modified);
	return psprintf("%s.first_ts(%s, " INT64_FORMAT ")", TTL_DOCS_INTERNAL,
					quote_identifier(last_modified), (int64) clock);
}

/* An SQL expression for a time, whatever DateStyle and TimeZone are */
static char *
constant_stamp(TimestampTz clock)
{
	return psprintf("%s.first_ts(NULL::pg_catalog.timestamptz, " INT64_FORMAT ")",
					TTL_DOCS_INTERNAL, (int64) clock);
}

/*
 * Adds the missing system columns, with the same values for all rows.  No row
 * is written.
 */
static void
add_system_columns(Oid relid, const CollectionSettings *settings, TimestampTz clock,
				   PresentColumns present)
{
	char	   *table = ttl_docs_quoted_name(relid);
	Stamp		stamp = {.ts = clock, .inherits = true};
	StringInfoData add;

	initStringInfo(&add);
	if (!present.ts)
		appendStringInfo(&add, ", ADD COLUMN %s pg_catalog.timestamptz NOT NULL DEFAULT %s",
						 TTL_DOCS_TS_COLUMN, constant_stamp(clock));
	if (!present.ttl)
		appendStringInfo(&add, ", ADD COLUMN %s pg_catalog.int4", TTL_DOCS_TTL_COLUMN);
	if (!present.slot)
		appendStringInfo(&add, ", ADD COLUMN %s pg_catalog.int8 DEFAULT " INT64_FORMAT,
						 TTL_DOCS_SLOT_COLUMN,
						 ttl_docs_slot_under(settings, &stamp));
	if (add.len > 0)
		ttl_docs_run_ddl("ALTER TABLE %s %s", table, add.data + 2);
	complete_ts_column(relid, settings, present.ts);
	ttl_docs_comment_on_columns(relid);
}

/*
 * The same for a table that has none of the columns, with "clock" as _ts of all
 * rows.
 */
void
ttl_docs_add_constant_columns(Oid relid, const CollectionSettings *settings,
							  TimestampTz clock)
{
	PresentColumns present = {false};

	add_system_columns(relid, settings, clock, present);
}

/*
 * Adds the missing system columns and fills them in one rewrite of the table:
 * ALTER COLUMN TYPE ... USING can compute a value from other columns of the
 * row.
 */
static void
rewrite_system_columns(Oid relid, const CollectionSettings *settings,
					   const char *stamp, PresentColumns present)
{
	char	   *table = ttl_docs_quoted_name(relid);
	const char *doc = quote_identifier(NameStr(settings->doc_column));
	StringInfoData add;
	StringInfoData fill;

	initStringInfo(&add);
	initStringInfo(&fill);
	if (!present.ts)
	{
		/* a placeholder, so that the column can be NOT NULL from the start */
		appendStringInfo(&add, ", ADD COLUMN %s pg_catalog.timestamptz NOT NULL DEFAULT pg_catalog.to_timestamp(0)",
						 TTL_DOCS_TS_COLUMN);
		appendStringInfo(&fill, ", ALTER COLUMN %s TYPE pg_catalog.timestamptz USING %s",
						 TTL_DOCS_TS_COLUMN, stamp);
	}
	if (!present.ttl)
	{
		appendStringInfo(&add, ", ADD COLUMN %s pg_catalog.int4", TTL_DOCS_TTL_COLUMN);
		appendStringInfo(&fill, ", ALTER COLUMN %s TYPE pg_catalog.int4 USING %s.document_ttl(%s)",
						 TTL_DOCS_TTL_COLUMN, TTL_DOCS_SCHEMA, doc);
	}
	if (!present.slot)
	{
		appendStringInfo(&add, ", ADD COLUMN %s pg_catalog.int8", TTL_DOCS_SLOT_COLUMN);
		appendStringInfo(&fill, ", ALTER COLUMN %s TYPE pg_catalog.int8 USING %s.slot(%s, %s.document_ttl(%s), %d)",
						 TTL_DOCS_SLOT_COLUMN, TTL_DOCS_INTERNAL, stamp,
						 TTL_DOCS_SCHEMA, doc, settings->default_ttl);
	}
	ttl_docs_run_ddl("ALTER TABLE %s %s", table, add.data + 2);
	ttl_docs_run_ddl("ALTER TABLE %s %s", table, fill.data + 2);
	complete_ts_column(relid, settings, present.ts);
	ttl_docs_comment_on_columns(relid);
}

/* Sets the defaults of the columns, and makes a _ts that was there NOT NULL. */
static void
complete_ts_column(Oid relid, const CollectionSettings *settings, bool was_present)
{
	ttl_docs_set_column_defaults(relid, settings->citus);
	if (was_present && settings->citus)
		require_not_null(relid);
	else if (was_present)
		set_not_null_as_owner(relid);
}

/*
 * Raises an error if the column _ts of a shell can be NULL.  We do not run SET
 * NOT NULL there: on the other nodes, it would run functions that the owner
 * chose, as the caller (see set_not_null_as_owner()).
 */
static void
require_not_null(Oid relid)
{
	Relation	rel = table_open(relid, NoLock);
	AttrNumber	ts = get_attnum(relid, TTL_DOCS_TS_COLUMN);

	if (!TupleDescAttr(RelationGetDescr(rel), ts - 1)->attnotnull)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("column \"%s\" of Citus table \"%s\" must be NOT NULL",
						TTL_DOCS_TS_COLUMN, RelationGetRelationName(rel)),
				 errhint("As the owner of the table, run ALTER TABLE %s ALTER COLUMN %s SET NOT NULL.",
						 ttl_docs_quoted_name(relid), TTL_DOCS_TS_COLUMN)));
	table_close(rel, NoLock);
}

/*
 * Makes an existing column _ts NOT NULL, as the owner of the table.
 *
 * To avoid a scan, core checks whether CHECK constraints already exclude
 * nulls.  The check evaluates the constant parts of the constraints, so it can
 * run functions that the owner chose.  These functions must not run as a
 * caller with more rights than the owner.
 *
 * We do not run ALTER TABLE as SQL, because the owner may lack USAGE on the
 * schema.
 */
static void
set_not_null_as_owner(Oid relid)
{
	Relation	rel = table_open(relid, NoLock);
	AlterTableStmt *stmt = makeNode(AlterTableStmt);
	AlterTableCmd *cmd = makeNode(AlterTableCmd);
	OwnerSwitch before;

	cmd->subtype = AT_SetNotNull;
	cmd->name = TTL_DOCS_TS_COLUMN;
	stmt->cmds = list_make1(cmd);
	stmt->objtype = OBJECT_TABLE;

	ttl_docs_become_owner(rel, &before);
	table_close(rel, NoLock);
	/* core requires these calls if the command fires event triggers */
	EventTriggerAlterTableStart((Node *) stmt);
	AlterTableInternal(relid, stmt->cmds, true);
	EventTriggerAlterTableEnd();
	CommandCounterIncrement();
	ttl_docs_become_caller(&before);
}

/* Returns the argument "adopted" of first_ts(), a bigint, as a timestamptz. */
static Datum
adopted_arg(FunctionCallInfo fcinfo)
{
	if (PG_ARGISNULL(1))
		PG_RETURN_NULL();
	PG_RETURN_TIMESTAMPTZ((TimestampTz) PG_GETARG_INT64(1));
}

/*
 * first_ts(last_modified timestamptz, adopted bigint): the first _ts of a
 * document that existed when its table was adopted.  "adopted" is the time of
 * the adoption in microseconds.  The result is "adopted" if last_modified is
 * null or not finite, and last_modified otherwise.
 */
Datum
ttl_docs_first_ts_tz(PG_FUNCTION_ARGS)
{
	if (PG_ARGISNULL(0) || TIMESTAMP_NOT_FINITE(PG_GETARG_TIMESTAMPTZ(0)))
		return adopted_arg(fcinfo);
	PG_RETURN_TIMESTAMPTZ(PG_GETARG_TIMESTAMPTZ(0));
}

/*
 * first_ts(last_modified timestamp, adopted bigint): the same for a timestamp
 * without time zone, in the time zone of the session that calls adopt().
 */
Datum
ttl_docs_first_ts(PG_FUNCTION_ARGS)
{
	if (PG_ARGISNULL(0) || TIMESTAMP_NOT_FINITE(PG_GETARG_TIMESTAMP(0)))
		return adopted_arg(fcinfo);
	PG_RETURN_TIMESTAMPTZ(compat_timestamp_to_tz(PG_GETARG_TIMESTAMP(0)));
}
