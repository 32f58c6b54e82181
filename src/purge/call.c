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
 * call_nodes.c purges distributed tables of Citus.
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

static List *collections_of_caller(void);
static void require_no_hold(Oid root);
static void require_no_block(Oid shell);
static void purge_collection(PurgeCall *call, Oid root);
static void purge_table(PurgeCall *call, Oid relid, Oid root,
						const PassPosition *continues_at, PurgeResult *result);
static void add_result(PurgeCall *call, TablePass *pass, PurgeResult *result);
static void update_undeletable(const TablePass *pass);

/*
 * CALL purge(collection regclass)
 */
Datum
ttl_docs_purge_procedure(PG_FUNCTION_ARGS)
{
	PurgeCall	call;
	MemoryContext caller;
	List	   *roots;
	ListCell   *lc;

	ttl_docs_begin_purge_call(fcinfo, &call);
	caller = MemoryContextSwitchTo(call.context);
	if (PG_ARGISNULL(0))
		roots = collections_of_caller();
	else
	{
		require_no_hold(PG_GETARG_OID(0));
		roots = list_make1_oid(PG_GETARG_OID(0));
	}
	MemoryContextSwitchTo(caller);
	if (!call.commits)
		foreach(lc, roots)
			require_no_block(lfirst_oid(lc));

	/*
	 * The procedure that calls us may have deferred constraints.  This commit
	 * checks them, so that later transactions contain only work of the purge.
	 */
	if (call.commits)
		SPI_commit();
	foreach(lc, roots)
	{
		if (ttl_docs_is_shell(lfirst_oid(lc)))
			ttl_docs_purge_on_all_nodes(&call, lfirst_oid(lc));
		else
			purge_collection(&call, lfirst_oid(lc));
	}
	if (!call.has_reported)
		ereport(NOTICE, (errmsg("there was nothing to purge")));
	ttl_docs_end_purge_call(&call);
	PG_RETURN_VOID();
}

/* Begins a call of a procedure that purges. */
void
ttl_docs_begin_purge_call(FunctionCallInfo fcinfo, PurgeCall *call)
{
	bool		atomic = fcinfo->context == NULL ||
		!IsA(fcinfo->context, CallContext) ||
		((CallContext *) fcinfo->context)->atomic;

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
	memset(call, 0, sizeof(*call));
	call->commits = !atomic;
	call->instant = ttl_docs_clock();
	call->next_progress = ttl_docs_elapsed() + PROGRESS_PERIOD;
	call->deadline = PG_INT64_MAX;
	call->context = AllocSetContextCreate(atomic ? CurrentMemoryContext : PortalContext,
										  "ttl_docs purge", ALLOCSET_DEFAULT_SIZES);
}

void
ttl_docs_end_purge_call(PurgeCall *call)
{
	MemoryContextDelete(call->context);
	SPI_finish();
}

/*
 * All collections that the caller may purge, in the order of their OIDs, so that
 * all calls lock them in the same order.  Shards of Citus are purged with their
 * distributed table.
 */
static List *
collections_of_caller(void)
{
	List	   *all = ttl_docs_all_collections();
	List	   *owned = NIL;
	ListCell   *lc;

	foreach(lc, all)
	{
		Oid			root = lfirst_oid(lc);
		Collection	collection;

		if (ttl_docs_is_shard(root) && ttl_docs_lookup_collection(root, &collection) &&
			collection.settings.citus)
			continue;
		if (compat_table_ownercheck(root, GetUserId()))
			owned = lappend_oid(owned, root);
	}
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

/*
 * Raises an error if a distributed table is to be purged in a transaction block.  The
 * sessions on other nodes commit by themselves.
 */
static void
require_no_block(Oid shell)
{
	if (!ttl_docs_is_shell(shell))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
			 errmsg("cannot purge the distributed collection \"%s\" inside a transaction block",
					get_rel_name(shell)),
			 errdetail("The other nodes of Citus would purge it in transactions of their own."),
			 errhint("Run CALL ttl_docs.purge(%s) as a statement of its own, without BEGIN.",
					 ttl_docs_quoted_literal(shell))));
}

static void
purge_collection(PurgeCall *call, Oid root)
{
	PurgeResult result = {0};
	MemoryContext caller = MemoryContextSwitchTo(call->context);
	char	   *name = get_rel_name(root);
	List	   *tables;

	/* another session may have dropped it since the last commit */
	tables = name != NULL && compat_table_ownercheck(root, GetUserId()) ?
		ttl_docs_collection_tables(root) : NIL;
	MemoryContextSwitchTo(caller);
	ttl_docs_purge_tables_now(call, root, tables, NULL, &result);
	if (tables != NIL)
		ttl_docs_report_purge(call, root, name, &result);
}

/*
 * Purges tables of a collection, one after the other, until the deadline.  If
 * continues_at is not NULL, begins at that position of the first table.
 */
void
ttl_docs_purge_tables_now(PurgeCall *call, Oid root, List *tables,
						  const PassPosition *continues_at, PurgeResult *result)
{
	ListCell   *lc;

	foreach(lc, tables)
	{
		/* the caller must own a partition, because its triggers run as its owner */
		if (compat_table_ownercheck(lfirst_oid(lc), GetUserId()))
			purge_table(call, lfirst_oid(lc), root, continues_at, result);
		else
			result->found_others = true;
		if (result->has_stopped)
			break;
		continues_at = NULL;
	}
}

static void
purge_table(PurgeCall *call, Oid relid, Oid root, const PassPosition *continues_at,
			PurgeResult *result)
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
	pass.continues_at = continues_at;
	ttl_docs_begin_pass(&pass);
	while (ttl_docs_step_pass(&pass))
	{
		CHECK_FOR_INTERRUPTS();
		if (call->commits && pass.was_batch)
			SPI_commit();
		if (ttl_docs_elapsed() >= call->deadline)
		{
			result->has_stopped = true;
			break;
		}
		if (ttl_docs_is_time_for_progress(call))
			ereport(NOTICE,
					(errmsg("purging %s: %lld documents so far", pass.target.name,
							(long long) pass.total_deleted)));
	}
	if (call->commits)
		SPI_commit();

	add_result(call, &pass, result);
	MemoryContextDelete(pass.context);
}

/* Is it time for a progress message? */
bool
ttl_docs_is_time_for_progress(PurgeCall *call)
{
	if (ttl_docs_elapsed() < call->next_progress)
		return false;
	call->next_progress = ttl_docs_elapsed() + PROGRESS_PERIOD;
	return true;
}

static void
add_result(PurgeCall *call, TablePass *pass, PurgeResult *result)
{
	if (!pass->has_ended)
	{
		ttl_docs_save_positions(pass);
		ttl_docs_get_position(&pass->progress, &result->stopped_at);
		result->stopped_at.relid = pass->target.relid;
	}
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
 * Stores the number of undeletable documents in shared memory.  A pass that continues
 * that of another session adds to its number.  If the call has deleted documents,
 * those that workers remember as undeletable or busy may be among them.  So the
 * workers forget them, and search from the start.
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
	if (pass->continues_at != NULL)
		table->undeletable += pass->progress.left.undeletable;
	else
		table->undeletable = Max(pass->progress.left.undeletable - table->quarantined,
								 0);
	LWLockRelease(ttl_docs_purge_shared->lock);
	if (must_restart)
	{
		ttl_docs_restart_purge_of(table);
		/* and have a worker do so soon after the commit */
		ttl_docs_announce_change(table->root);
	}
}

/* Reports the result for a collection to the caller. */
void
ttl_docs_report_purge(PurgeCall *call, Oid root, const char *name,
					  const PurgeResult *result)
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
				 result->error_node != NULL ?
				 errhint("The error was raised on node %s of Citus.", result->error_node) : 0,
				 result->error.context[0] != '\0' ?
				 errcontext("%s", result->error.context) : 0));
}
