/*-------------------------------------------------------------------------
 *
 * call.c
 *		CALL purge().
 *
 * CALL purge() runs passes in the session of its caller, who owns the collections
 * or is a superuser.  It deletes all documents that had expired when it began, and
 * tries undeletable documents again.  It uses the session's clock.  It makes no
 * pauses, because its caller waits for it.  It waits for locks on the table, but
 * not for locks on documents.
 *
 * Each step is a subtransaction, so that an error rolls back one batch only.  If
 * the caller has no transaction block, each batch is committed.  Inside a block,
 * all batches belong to the transaction of the block.  Triggers run as in a worker:
 * as the owner, in a restricted context, and none of them deferred.  Constraints
 * that the caller has deferred stay deferred.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#include "purge/purge_internal.h"

PG_FUNCTION_INFO_V1(ttl_docs_purge_procedure);

/* interval of progress messages */
#define PROGRESS_PERIOD		(5 * USECS_PER_SEC)

/* time limit of a batch, in microseconds */
#define CALL_BATCH_TIME		INT64CONST(100000)

/* A CALL purge() */
typedef struct PurgeCall
{
	bool		commits;		/* commits each batch */
	TimestampTz instant;		/* when it began */
	MemoryContext context;		/* survives commits */
	bool		has_reported;	/* has sent a message about a collection */
	int64		next_progress;	/* elapsed time of the next progress message */
} PurgeCall;

/* The result for all tables of a collection */
typedef struct PurgeResult
{
	int64		deleted;
	int64		undeletable;
	bool		found_busy;		/* other sessions use expired documents */
	bool		found_others;	/* there are partitions of other owners */
	bool		has_error;
	PurgeError	error;			/* the last error */
	PurgeState	state;			/* a hold, PURGE_NO_INDEX or PURGE_IDLE */
	char	   *detail;			/* the code that blocks the purge, or NULL */
} PurgeResult;

static List *collections_of_caller(void);
static void require_no_hold(Oid root);
static void purge_collection(PurgeCall *call, Oid root);
static void purge_table(PurgeCall *call, Oid relid, Oid root,
						PurgeResult *result);
static void add_result(PurgeCall *call, const TablePass *pass,
					   PurgeResult *result);
static void update_undeletable(const TablePass *pass);
static void report_result(PurgeCall *call, Oid root, const char *name,
						const PurgeResult *result);

/*
 * CALL purge(collection regclass)
 */
Datum
ttl_docs_purge_procedure(PG_FUNCTION_ARGS)
{
	bool		atomic = fcinfo->context == NULL ||
		!IsA(fcinfo->context, CallContext) ||
		((CallContext *) fcinfo->context)->atomic;
	PurgeCall	call = {0};
	MemoryContext caller;
	List	   *roots;
	ListCell   *lc;

	ttl_docs_require_preload();
	PreventCommandDuringRecovery("CALL ttl_docs.purge()");
	PreventCommandIfReadOnly("CALL ttl_docs.purge()");
	if (ttl_docs_is_purging())
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("cannot purge within a purge"),
				 errhint("Do not call ttl_docs.purge() in a trigger that fires on DELETE.")));
	/* unlike a query, CALL does not process invalidations by itself */
	AcceptInvalidationMessages();
	SPI_connect_ext(atomic ? 0 : SPI_OPT_NONATOMIC);
	call.commits = !atomic;
	call.instant = ttl_docs_clock();
	call.next_progress = ttl_docs_elapsed() + PROGRESS_PERIOD;
	call.context = AllocSetContextCreate(atomic ? CurrentMemoryContext : PortalContext,
										 "ttl_docs purge", ALLOCSET_DEFAULT_SIZES);

	caller = MemoryContextSwitchTo(call.context);
	if (PG_ARGISNULL(0))
		roots = collections_of_caller();
	else
	{
		require_no_hold(PG_GETARG_OID(0));
		roots = list_make1_oid(PG_GETARG_OID(0));
	}
	MemoryContextSwitchTo(caller);

	/*
	 * The procedure that calls us may have deferred constraints.  This commit
	 * checks them, so that later transactions contain only work of the purge.
	 */
	if (call.commits)
		SPI_commit();
	foreach(lc, roots)
		purge_collection(&call, lfirst_oid(lc));
	if (!call.has_reported)
		ereport(NOTICE, (errmsg("there was nothing to purge")));
	MemoryContextDelete(call.context);
	SPI_finish();
	PG_RETURN_VOID();
}

/*
 * All collections that the caller may purge, in the order of their OIDs, so that
 * all calls lock them in the same order.
 */
static List *
collections_of_caller(void)
{
	List	   *all = ttl_docs_all_collections();
	List	   *owned = NIL;
	ListCell   *lc;

	foreach(lc, all)
		if (compat_table_ownercheck(lfirst_oid(lc), GetUserId()))
			owned = lappend_oid(owned, lfirst_oid(lc));
	list_sort(owned, list_oid_cmp);
	return owned;
}

/* Raises an error if the collection that the caller has named is held. */
static void
require_no_hold(Oid root)
{
	Collection	collection;
	Relation	rel = ttl_docs_open_collection(root, AccessShareLock, &collection);
	SettingsHold hold = ttl_docs_settings_hold(root, &collection.settings);

	if (hold != HOLD_NONE)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the purge of \"%s\" is held: %s",
						RelationGetRelationName(rel), ttl_docs_settings_hold_name(hold)),
				 errhint("%s", ttl_docs_purge_state_hint(ttl_docs_state_of_hold(hold), root))));
	table_close(rel, NoLock);
}

/* Purges the tables of a collection, one after the other. */
static void
purge_collection(PurgeCall *call, Oid root)
{
	PurgeResult result = {0};
	MemoryContext caller = MemoryContextSwitchTo(call->context);
	char	   *name = get_rel_name(root);
	List	   *tables;
	ListCell   *lc;

	/* another session may have dropped it since the last commit */
	tables = name != NULL && compat_table_ownercheck(root, GetUserId()) ?
		ttl_docs_collection_tables(root) : NIL;
	MemoryContextSwitchTo(caller);
	foreach(lc, tables)
	{
		/* the caller must own a partition, because its triggers run as its owner */
		if (compat_table_ownercheck(lfirst_oid(lc), GetUserId()))
			purge_table(call, lfirst_oid(lc), root, &result);
		else
			result.found_others = true;
	}
	if (tables != NIL)
		report_result(call, root, name, &result);
}

static void
purge_table(PurgeCall *call, Oid relid, Oid root, PurgeResult *result)
{
	TablePass	pass = {0};

	pass.context = AllocSetContextCreate(call->context, "ttl_docs pass",
										 ALLOCSET_DEFAULT_SIZES);
	pass.target.relid = relid;
	pass.target.table = ttl_docs_purge_table(relid, root);
	pass.target.waits = true;
	pass.target.context = pass.context;
	pass.run = ttl_docs_run_in_subtransaction;
	pass.foreground = true;
	pass.in_block = !call->commits;
	pass.instant = call->instant;
	pass.announced_due = DT_NOBEGIN;
	pass.time_limit = CALL_BATCH_TIME;
	pass.row_limit = ttl_docs_purge_batch_size;
	ttl_docs_begin_pass(&pass);
	while (ttl_docs_step_pass(&pass))
	{
		CHECK_FOR_INTERRUPTS();
		if (call->commits && pass.was_batch)
			SPI_commit();
		if (ttl_docs_elapsed() < call->next_progress)
			continue;
		call->next_progress = ttl_docs_elapsed() + PROGRESS_PERIOD;
		ereport(NOTICE,
				(errmsg("purging %s: %lld documents so far", pass.target.name,
						(long long) pass.total_deleted)));
	}
	if (call->commits)
		SPI_commit();

	add_result(call, &pass, result);
	MemoryContextDelete(pass.context);
}

static void
add_result(PurgeCall *call, const TablePass *pass, PurgeResult *result)
{
	result->deleted += pass->total_deleted;
	result->undeletable += pass->total_undeletable;
	result->found_busy |= pass->found_busy || pass->table_is_busy;
	if (pass->has_error)
	{
		result->has_error = true;
		result->error = pass->error;
	}
	if (PURGE_IS_HOLD(pass->state) || pass->state == PURGE_NO_INDEX)
	{
		result->state = pass->state;
		result->detail = pass->target.detail != NULL ?
			MemoryContextStrdup(call->context, pass->target.detail) : NULL;
	}
	if (pass->target.table != NULL && !pass->table_is_busy &&
		(pass->state == PURGE_IDLE || pass->state == PURGE_WAITING))
		update_undeletable(pass);
}

/*
 * Stores the number of undeletable documents in shared memory.  If the call has
 * deleted documents, those that workers remember as undeletable or busy may be among
 * them.  So the workers forget them, and search from the start.
 */
static void
update_undeletable(const TablePass *pass)
{
	PurgeTable *table = pass->target.table;
	bool		must_restart;

	LWLockAcquire(ttl_docs_purge_shared->lock, LW_EXCLUSIVE);
	must_restart = pass->total_deleted > 0 &&
		(table->quarantined > 0 || ttl_docs_has_left(&table->progress));
	if (must_restart)
		ttl_docs_unquarantine_all(table);
	table->undeletable = Max(pass->progress.left.undeletable - table->quarantined, 0);
	LWLockRelease(ttl_docs_purge_shared->lock);
	if (must_restart)
	{
		ttl_docs_restart_purge_of(table);
		/* and have a worker do so soon after the commit */
		ttl_docs_announce_change(table->root);
	}
}

/* Reports the result for a collection to the caller. */
static void
report_result(PurgeCall *call, Oid root, const char *name, const PurgeResult *result)
{
	const ShownError *error = &result->error.shown;

	call->has_reported |= result->deleted > 0 || result->found_busy ||
		result->found_others ||
		result->state != PURGE_IDLE || result->has_error;
	if (result->deleted > 0)
		ereport(NOTICE,
				(errmsg_plural("purged %lld document of \"%s\"",
							   "purged %lld documents of \"%s\"",
							   (unsigned long) result->deleted,
							   (long long) result->deleted, name)));
	if (result->found_busy)
		ereport(NOTICE,
				(errmsg("expired documents of \"%s\" are in use by other sessions and were not purged",
						name)));
	if (result->found_others)
		ereport(NOTICE,
				(errmsg("partitions of \"%s\" that you do not own are left to the background workers",
						name)));
	if (result->state != PURGE_IDLE)
		ereport(WARNING,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the purge of \"%s\" is held: %s", name,
						ttl_docs_purge_state_name(result->state)),
				 result->detail != NULL ? errdetail("Blocked by %s.", result->detail) : 0,
				 errhint("%s", ttl_docs_purge_state_hint(result->state, root))));
	if (result->has_error)
		ereport(WARNING,
				(errcode(error->sqlstate),
				 result->undeletable > 0 ?
				 errmsg_plural("%lld document of \"%s\" could not be purged",
							   "%lld documents of \"%s\" could not be purged",
							   (unsigned long) result->undeletable,
							   (long long) result->undeletable, name) :
				 errmsg("\"%s\" could not be purged", name),
				 error->detail[0] == '\0' ?
				 errdetail("The last error was: %s", error->message) :
				 errdetail("The last error was: %s\nIts detail was: %s",
						   error->message, error->detail),
				 result->error.context[0] != '\0' ?
				 errcontext("%s", result->error.context) : 0));
}
