/*-------------------------------------------------------------------------
 *
 * hooks.c
 *		Installs every hook and callback of ttl_docs, and calls the parts in
 *		the right order.
 *
 * Each of our hooks calls the hook that was installed before it (the next
 * hook).  If there is none, the hook calls core's standard function, with one
 * exception: ttl_docs_run_copy_from() runs COPY FROM in place of
 * standard_ProcessUtility().  It also does so if the only next hook is that of
 * Citus.
 *
 * A utility command takes these steps.  Before them, core/guard.c refuses SET by
 * untrusted code during a delete as the owner of a table.
 *
 *	1. purge/database_commands.c keeps workers out of a database that the command needs
 *	   for itself.
 *	2. write/copy_from.c refuses COPY FROM if a collection has no trigger.
 *	3. access/copy_to.c turns COPY collection TO into COPY (query) TO.
 *	4. access/instant.c chooses the instant of the command.
 *	5. citus/convert.c prepares collections that Citus may convert in the command.
 *	6. collection/ddl_notes.c raises an error if it can refuse the command
 *	   already.  Otherwise it begins to record what the command does.
 *	7. The command runs: in write/copy_from.c if it is COPY FROM and there is no next
 *	   hook but that of Citus, otherwise in the next hook or in core.
 *	8. collection/ddl_review.c reads the recorded notes, and may refuse the
 *	   command.
 *	9. citus/follow.c follows the label of a Citus table, and citus/convert.c
 *	   completes conversions.
 *	10. If the command succeeds, access/instant.c and purge/database_commands.c finish
 *	   their work for it.
 *
 * On ERROR in any step, the steps that have begun are ended in reverse order:
 * the notes are freed, the previous running query is restored, and workers
 * may enter the database again.  The rollback undoes all other effects.
 *
 * We call access/instant.c when a query is planned, starts, runs and finishes,
 * and when core's hook for functions reports a call.  On ERROR, PG_FINALLY in
 * instant.c restores the previous running query, and a memory context callback
 * removes the query from the list of live queries.
 *
 * At the end of a transaction, also after ERROR, the parts are called from
 * top to bottom:
 *
 *	1. The purge is notified of committed changes.
 *	2. Stale plans of the document functions are freed.
 *	3. The instant and the settings that this transaction used are forgotten.
 *	4. The record of changed settings is forgotten.
 *
 * No part may raise an error in these steps.  Before PREPARE TRANSACTION, the
 * purge is also called, and may raise an error.  Before a commit, access/held_instant.c
 * releases the snapshots that it holds.
 *
 * On FATAL, the process ends.  The values that it leaves in shared memory are
 * atomic, or the exit callbacks of the purge processes clean them up.
 *
 * Parallel workers have the hooks, too, because the library is preloaded.  On
 * a standby, ttl_docs writes nothing, and queries need no writes.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/objectaccess.h"
#include "executor/executor.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "optimizer/pathnode.h"
#include "optimizer/paths.h"
#include "optimizer/plancat.h"
#include "optimizer/planner.h"
#include "parser/analyze.h"
#include "parser/parsetree.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "tcop/utility.h"
#include "utils/fmgroids.h"
#include "utils/inval.h"
#include "utils/syscache.h"

#include "access/access.h"
#include "citus/actions.h"
#include "collection/collection.h"
#include "document/document.h"
#include "online/online.h"
#include "purge/purge.h"
#include "write/write.h"

int			ttl_docs_end_turns = 0;

static shmem_request_hook_type next_shmem_request = NULL;
static shmem_startup_hook_type next_shmem_startup = NULL;
static post_parse_analyze_hook_type next_post_parse_analyze = NULL;
static planner_hook_type next_planner = NULL;
static compat_indexes_hook_type next_indexes = NULL;
static set_rel_pathlist_hook_type next_set_rel_pathlist = NULL;
static ExecutorStart_hook_type next_ExecutorStart = NULL;
static ExecutorRun_hook_type next_ExecutorRun = NULL;
static ExecutorFinish_hook_type next_ExecutorFinish = NULL;
static ProcessUtility_hook_type next_ProcessUtility = NULL;
static object_access_hook_type next_object_access = NULL;
static needs_fmgr_hook_type next_needs_fmgr = NULL;
static fmgr_hook_type next_fmgr = NULL;

static void request_shmem(void);
static void startup_shmem(void);
static void analyzed(ParseState *pstate, Query *query, COMPAT_JUMBLE_STATE *jstate);
static PlannedStmt *plan(COMPAT_PLANNER_PARAMS);
static void indexes_are_known(COMPAT_INDEXES_PARAMS);
static void rel_pathlist(PlannerInfo *root, RelOptInfo *rel, Index rti,
						 RangeTblEntry *rte);
static void executor_start(QueryDesc *queryDesc, int eflags);
static void executor_run(COMPAT_RUN_PARAMS);
static void executor_finish(QueryDesc *queryDesc);
static void process_utility(PlannedStmt *pstmt, const char *queryString,
							bool readOnlyTree, ProcessUtilityContext context,
							ParamListInfo params, QueryEnvironment *queryEnv,
							DestReceiver *dest, QueryCompletion *qc);
static void object_access(ObjectAccessType access, Oid classId, Oid objectId,
						  int subId, void *arg);
static bool needs_fmgr(Oid function);
static void call_function(FmgrHookEventType event, FmgrInfo *flinfo,
						  Datum *private_data);
static void relation_invalidated(Datum arg, Oid relid);
static void object_invalidated(Datum arg, int cacheid, uint32 hashvalue);
static void transaction_ends(XactEvent event, void *arg);
static void subtransaction_ends(SubXactEvent event, SubTransactionId mySubid,
								SubTransactionId parentSubid, void *arg);

/* Installs our hook, and keeps the previous hook as the next one. */
#define INSTALL(hook, next, ours) \
	((next) = (hook), (hook) = (ours))

void
ttl_docs_hooks_init(void)
{
	ttl_docs_find_citus_library();
	INSTALL(shmem_request_hook, next_shmem_request, request_shmem);
	INSTALL(shmem_startup_hook, next_shmem_startup, startup_shmem);
	INSTALL(post_parse_analyze_hook, next_post_parse_analyze, analyzed);
	INSTALL(planner_hook, next_planner, plan);
	INSTALL(compat_indexes_hook, next_indexes, indexes_are_known);
	INSTALL(set_rel_pathlist_hook, next_set_rel_pathlist, rel_pathlist);
	INSTALL(ExecutorStart_hook, next_ExecutorStart, executor_start);
	INSTALL(ExecutorRun_hook, next_ExecutorRun, executor_run);
	INSTALL(ExecutorFinish_hook, next_ExecutorFinish, executor_finish);
	INSTALL(ProcessUtility_hook, next_ProcessUtility, process_utility);
	INSTALL(object_access_hook, next_object_access, object_access);
	INSTALL(needs_fmgr_hook, next_needs_fmgr, needs_fmgr);
	INSTALL(fmgr_hook, next_fmgr, call_function);
	CacheRegisterRelcacheCallback(relation_invalidated, (Datum) 0);
	CacheRegisterSyscacheCallback(PROCOID, object_invalidated, (Datum) 0);
	CacheRegisterSyscacheCallback(AUTHOID, object_invalidated, (Datum) 0);
	CacheRegisterSyscacheCallback(AUTHMEMROLEMEM, object_invalidated, (Datum) 0);
	/* the owner of a database is a member of pg_database_owner */
	CacheRegisterSyscacheCallback(DATABASEOID, object_invalidated, (Datum) 0);
	CacheRegisterSyscacheCallback(SUBSCRIPTIONRELMAP, object_invalidated, (Datum) 0);
	RegisterXactCallback(transaction_ends, NULL);
	RegisterSubXactCallback(subtransaction_ends, NULL);
}

/* ---- Shared memory ---- */

static void
request_shmem(void)
{
	if (next_shmem_request)
		next_shmem_request();
	RequestAddinShmemSpace(ttl_docs_snapshot_shmem_size());
	RequestAddinShmemSpace(ttl_docs_earliest_shmem_size());
	RequestAddinShmemSpace(ttl_docs_purge_shmem_size());
	RequestAddinShmemSpace(ttl_docs_progress_shmem_size());
	RequestAddinShmemSpace(ttl_docs_open_instants_shmem_size());
	ttl_docs_purge_shmem_request();
}

static void
startup_shmem(void)
{
	if (next_shmem_startup)
		next_shmem_startup();
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	ttl_docs_snapshot_shmem_init();
	ttl_docs_earliest_shmem_init();
	ttl_docs_purge_shmem_init();
	ttl_docs_progress_shmem_init();
	ttl_docs_open_instants_shmem_init();
	LWLockRelease(AddinShmemInitLock);
}

/* ---- Planning ---- */

static void
analyzed(ParseState *pstate, Query *query, COMPAT_JUMBLE_STATE *jstate)
{
	if (next_post_parse_analyze)
		next_post_parse_analyze(pstate, query, jstate);
	/* the transaction may get its snapshot long before the query starts */
	if (IsolationUsesXactSnapshot())
		ttl_docs_note_transaction_snapshot();
}

static PlannedStmt *
plan(COMPAT_PLANNER_PARAMS)
{
	/* test now: the planner modifies its input */
	bool		validates = ttl_docs_validation_may_run &&
		ttl_docs_looks_like_validation(parse);
	planner_hook_type planner = next_planner ? next_planner : standard_planner;
	PlannedStmt *volatile stmt;

	if (parse->commandType == CMD_INSERT && !row_security)
		ttl_docs_refuse_distributed_restore(rt_fetch(parse->resultRelation, parse->rtable)->relid);
	ttl_docs_begin_planning();
	PG_TRY();
	{
		stmt = planner(COMPAT_PLANNER_ARGS);
	}
	PG_FINALLY();
	{
		ttl_docs_end_planning();
	}
	PG_END_TRY();
	ttl_docs_filter_plan(stmt, validates);
	return stmt;
}

static void
indexes_are_known(COMPAT_INDEXES_PARAMS)
{
	if (next_indexes)
		next_indexes(COMPAT_INDEXES_ARGS);
	ttl_docs_forbid_blind_index_only(COMPAT_INDEXES_RELID, rel);
}

static void
rel_pathlist(PlannerInfo *root, RelOptInfo *rel, Index rti, RangeTblEntry *rte)
{
	/* our paths first, so that other extensions can add theirs */
	ttl_docs_replace_paths(root, rel, rte);
	if (next_set_rel_pathlist)
		next_set_rel_pathlist(root, rel, rti, rte);
}

/* ---- Execution ---- */

static void
executor_start(QueryDesc *queryDesc, int eflags)
{
	if (IsolationUsesXactSnapshot())
		ttl_docs_hand_over_instant(queryDesc->plannedstmt);
	ttl_docs_start_query(queryDesc, eflags, next_ExecutorStart ?
						 next_ExecutorStart : standard_ExecutorStart);
	/* queries that a purge causes must not defer triggers */
	if (ttl_docs_is_purging())
		ttl_docs_fire_at_once(queryDesc->estate);
}

static void
executor_run(COMPAT_RUN_PARAMS)
{
	ttl_docs_run_query(COMPAT_RUN_ARGS,
					   next_ExecutorRun ? next_ExecutorRun : standard_ExecutorRun);
}

static void
executor_finish(QueryDesc *queryDesc)
{
	ttl_docs_finish_query(queryDesc, next_ExecutorFinish ?
						  next_ExecutorFinish : standard_ExecutorFinish);
}

/* Runs a utility command, in the steps that the header of this file lists. */
static void
process_utility(PlannedStmt *pstmt, const char *queryString, bool readOnlyTree,
				ProcessUtilityContext context, ParamListInfo params,
				QueryEnvironment *queryEnv, DestReceiver *dest, QueryCompletion *qc)
{
	PlannedStmt *volatile command = pstmt;
	volatile bool concerns_purge = false;
	volatile bool has_instant = false;
	volatile bool takes_notes = false;
	List	   *volatile converted = NIL;
	volatile bool is_label = false;
	volatile Oid outer_label = InvalidOid;
	Oid			sent;

	if (ttl_docs_guard != NULL && IsA(pstmt->utilityStmt, VariableSetStmt))
		ttl_docs_refuse_guarded_setting();
	concerns_purge = ttl_docs_begin_purge_command(pstmt->utilityStmt);
	PG_TRY();
	{
		if (concerns_purge)
			ttl_docs_keep_workers_out();
		ttl_docs_refuse_copy_without_trigger(pstmt->utilityStmt);
		command = ttl_docs_copy_as_query(pstmt);
		ttl_docs_begin_utility(command->utilityStmt, context);
		has_instant = true;
		converted = ttl_docs_begin_conversion_by(command->utilityStmt);
		if (converted != NIL)
			ttl_docs_conversions++;
		if (IsA(command->utilityStmt, SecLabelStmt))
		{
			outer_label = ttl_docs_exchange_sent_label(InvalidOid);
			is_label = true;
		}
		takes_notes = ttl_docs_begin_notes(command->utilityStmt, context);

		if (!(IsA(command->utilityStmt, CopyStmt) &&
			  (next_ProcessUtility == NULL || ttl_docs_is_next_to_citus()) &&
			  ttl_docs_run_copy_from(command->utilityStmt, queryString, qc)))
		{
			if (next_ProcessUtility)
				next_ProcessUtility(command, queryString,
									readOnlyTree && command == pstmt, context, params,
									queryEnv, dest, qc);
			else
				standard_ProcessUtility(command, queryString,
										readOnlyTree && command == pstmt, context,
										params, queryEnv, dest, qc);
		}

		if (takes_notes)
		{
			ttl_docs_stop_validation();
			ttl_docs_review_notes();
		}
		sent = is_label ? ttl_docs_exchange_sent_label(InvalidOid) : InvalidOid;
		if (OidIsValid(sent))
			ttl_docs_follow_label(sent);
		if (converted != NIL)
			ttl_docs_end_conversion(converted, command->utilityStmt);
		ttl_docs_refuse_conversion_after_script(command->utilityStmt);
		ttl_docs_utility_has_run();
		if (concerns_purge)
			ttl_docs_purge_command_has_run(pstmt->utilityStmt);
	}
	PG_FINALLY();
	{
		if (is_label)
			(void) ttl_docs_exchange_sent_label(outer_label);
		if (takes_notes)
			ttl_docs_end_notes();
		if (converted != NIL)
			ttl_docs_conversions--;
		if (has_instant)
			ttl_docs_end_utility();
		if (concerns_purge)
			ttl_docs_end_purge_command();
	}
	PG_END_TRY();
}

/* ---- Objects and functions ---- */

static void
object_access(ObjectAccessType access, Oid classId, Oid objectId, int subId,
			  void *arg)
{
	if (next_object_access)
		next_object_access(access, classId, objectId, subId, arg);
	switch (access)
	{
		case OAT_FUNCTION_EXECUTE:
			if (ttl_docs_guard != NULL && objectId == F_SET_CONFIG)
				ttl_docs_refuse_guarded_setting();
			if (IsolationUsesXactSnapshot() || objectId == F_PG_EXPORT_SNAPSHOT)
				ttl_docs_note_function(objectId);
			break;
		case OAT_POST_CREATE:
		case OAT_POST_ALTER:
			if (ttl_docs_guard != NULL)
				ttl_docs_refuse_guarded_change(classId, objectId,
											   access == OAT_POST_ALTER ? arg : NULL);
			pg_fallthrough;
		case OAT_DROP:
			ttl_docs_note_object_access(access, classId, objectId, subId, arg);
			break;
		default:
			break;
	}
}

static bool
needs_fmgr(Oid function)
{
	return (next_needs_fmgr && next_needs_fmgr(function)) ||
		ttl_docs_is_citus_function(function) || ttl_docs_function_may_query(function);
}

static void
call_function(FmgrHookEventType event, FmgrInfo *flinfo, Datum *private_data)
{
	if (event == FHET_START)
		ttl_docs_note_snapshot();
	ttl_docs_intercept_call(event, flinfo, private_data, next_fmgr);
}

/* ---- Caches and transactions ---- */

/* A relation was invalidated; InvalidOid means all relations. */
static void
relation_invalidated(Datum arg, Oid relid)
{
	(void) arg;
	ttl_docs_forget_table_settings(relid);
	ttl_docs_forget_document_table(relid);
	ttl_docs_forget_complete_children(relid);
	ttl_docs_purge_catalog_changed();
}

/* A function, role or subscription was invalidated. */
static void
object_invalidated(Datum arg, int cacheid, uint32 hashvalue)
{
	(void) arg;
	(void) cacheid;
	(void) hashvalue;
	ttl_docs_purge_catalog_changed();
}

static void
transaction_ends(XactEvent event, void *arg)
{
	(void) arg;
	if (ttl_docs_end_turns & TURN_OF_PURGE)
		ttl_docs_announce_at_end(event);
	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
		case XACT_EVENT_PRE_PREPARE:
		case XACT_EVENT_PARALLEL_PRE_COMMIT:
			ttl_docs_end_held_instants();
			return;
		case XACT_EVENT_COMMIT:
		case XACT_EVENT_PREPARE:
		case XACT_EVENT_ABORT:
			if (ttl_docs_end_turns & TURN_OF_DOCUMENT)
				ttl_docs_end_document_transaction();
			break;
		default:
			break;
	}
	ttl_docs_forget_transaction();
	if (ttl_docs_end_turns & TURN_OF_CITUS)
	{
		ttl_docs_forget_lock();
		ttl_docs_forget_hand_over();
	}
	ttl_docs_end_turns = 0;
}

static void
subtransaction_ends(SubXactEvent event, SubTransactionId mySubid,
					SubTransactionId parentSubid, void *arg)
{
	(void) arg;
	if (ttl_docs_end_turns & TURN_OF_PURGE)
		ttl_docs_follow_subtransaction(event, mySubid, parentSubid);
	if (event == SUBXACT_EVENT_ABORT_SUB)
	{
		ttl_docs_note_transaction_snapshot();
		ttl_docs_forget_lock();
		ttl_docs_hand_over_again();
	}
}
