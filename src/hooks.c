/*-------------------------------------------------------------------------
 *
 * hooks.c
 *		Every hook and callback that ttl_docs installs, and the order in which
 *		the parts get their turn.
 *
 * Each hook calls the one that was there before it.  There is one exception:
 * COPY FROM of many rows runs only if no other library has a ProcessUtility
 * hook behind ours, because it takes the place of standard_ProcessUtility().
 *
 * A utility command passes the parts in this order:
 *
 *	1. purge/commands.c keeps workers out of a database that the command wants
 *	   for itself.
 *	2. write/copy_from.c refuses COPY FROM into a collection without a trigger.
 *	3. access/copy_to.c turns COPY collection TO into COPY of a query.
 *	4. access/instant.c gives the command its instant.
 *	5. collection/ddl_notes.c refuses what can be refused before the command,
 *	   and begins to take notes.
 *	6. The command runs: by write/copy_from.c, if it can, else by the hook
 *	   behind ours or by core.
 *	7. collection/ddl_review.c reads the notes, and may refuse the command.
 *	8. access/instant.c and purge/commands.c act on a command that succeeded.
 *
 * On ERROR at any point, the parts that had begun end, the last one first: notes
 * are freed, the running query is what it was before, and workers may enter the
 * database again.  All other effects are undone with the transaction.
 *
 * A query passes access/instant.c at its start, run and finish.  PG_FINALLY in
 * there restores the running query on ERROR; a memory context callback takes the
 * query out of the list of live queries.
 *
 * At the end of a transaction, on ERROR too, the parts get their turn from top to
 * bottom: the purge is told what was committed, plans of the document functions
 * are freed, the instant and the changes of settings are forgotten.  No part may
 * raise an error there.  FATAL ends the process; what it shares is atomic, or put
 * right by the exit callback of purge/worker.c.
 *
 * Parallel workers have the hooks too, because the library is preloaded.  On a
 * standby nothing is written, and reading needs nothing else.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/objectaccess.h"
#include "executor/executor.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "optimizer/paths.h"
#include "optimizer/plancat.h"
#include "optimizer/planner.h"
#include "parser/analyze.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "tcop/utility.h"
#include "utils/inval.h"

#include "access/access.h"
#include "collection/collection.h"
#include "document/document.h"
#include "purge/purge.h"
#include "write/write.h"

static shmem_request_hook_type next_shmem_request = NULL;
static shmem_startup_hook_type next_shmem_startup = NULL;
static post_parse_analyze_hook_type next_post_parse_analyze = NULL;
static planner_hook_type next_planner = NULL;
static get_relation_info_hook_type next_get_relation_info = NULL;
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
static void analyzed(ParseState *pstate, Query *query, JumbleState *jstate);
static PlannedStmt *plan(Query *parse, const char *query_string,
						 int cursorOptions, ParamListInfo boundParams);
static void relation_info(PlannerInfo *root, Oid relid, bool inhparent,
						  RelOptInfo *rel);
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
static void transaction_ends(XactEvent event, void *arg);
static void subtransaction_ends(SubXactEvent event, SubTransactionId mySubid,
								SubTransactionId parentSubid, void *arg);

/* Puts a hook of ours in front of the one that is there. */
#define INSTALL(hook, next, ours) \
	((next) = (hook), (hook) = (ours))

void
ttl_docs_hooks_init(void)
{
	INSTALL(shmem_request_hook, next_shmem_request, request_shmem);
	INSTALL(shmem_startup_hook, next_shmem_startup, startup_shmem);
	INSTALL(post_parse_analyze_hook, next_post_parse_analyze, analyzed);
	INSTALL(planner_hook, next_planner, plan);
	INSTALL(get_relation_info_hook, next_get_relation_info, relation_info);
	INSTALL(set_rel_pathlist_hook, next_set_rel_pathlist, rel_pathlist);
	INSTALL(ExecutorStart_hook, next_ExecutorStart, executor_start);
	INSTALL(ExecutorRun_hook, next_ExecutorRun, executor_run);
	INSTALL(ExecutorFinish_hook, next_ExecutorFinish, executor_finish);
	INSTALL(ProcessUtility_hook, next_ProcessUtility, process_utility);
	INSTALL(object_access_hook, next_object_access, object_access);
	INSTALL(needs_fmgr_hook, next_needs_fmgr, needs_fmgr);
	INSTALL(fmgr_hook, next_fmgr, call_function);
	CacheRegisterRelcacheCallback(relation_invalidated, (Datum) 0);
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
	LWLockRelease(AddinShmemInitLock);
}

/* ---- Planning ---- */

static void
analyzed(ParseState *pstate, Query *query, JumbleState *jstate)
{
	if (next_post_parse_analyze)
		next_post_parse_analyze(pstate, query, jstate);
	ttl_docs_note_transaction_snapshot();
}

static PlannedStmt *
plan(Query *parse, const char *query_string, int cursorOptions,
	 ParamListInfo boundParams)
{
	/* the planner scribbles on its input */
	bool		validates = ttl_docs_looks_like_validation(parse);
	planner_hook_type planner = next_planner ? next_planner : standard_planner;
	PlannedStmt *stmt = planner(parse, query_string, cursorOptions, boundParams);

	ttl_docs_filter_plan(stmt, validates);
	return stmt;
}

static void
relation_info(PlannerInfo *root, Oid relid, bool inhparent, RelOptInfo *rel)
{
	if (next_get_relation_info)
		next_get_relation_info(root, relid, inhparent, rel);
	ttl_docs_forbid_blind_index_only(relid, rel);
}

static void
rel_pathlist(PlannerInfo *root, RelOptInfo *rel, Index rti, RangeTblEntry *rte)
{
	/* first, so that paths of other extensions are added to ours */
	ttl_docs_replace_paths(root, rel, rte);
	if (next_set_rel_pathlist)
		next_set_rel_pathlist(root, rel, rti, rte);
}

/* ---- Execution ---- */

static void
executor_start(QueryDesc *queryDesc, int eflags)
{
	ttl_docs_start_query(queryDesc, eflags, next_ExecutorStart ?
						 next_ExecutorStart : standard_ExecutorStart);
	/* a query that a purge has caused must not leave triggers for later */
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

/* Runs a utility command; the header of this file has the steps. */
static void
process_utility(PlannedStmt *pstmt, const char *queryString, bool readOnlyTree,
				ProcessUtilityContext context, ParamListInfo params,
				QueryEnvironment *queryEnv, DestReceiver *dest, QueryCompletion *qc)
{
	ProcessUtility_hook_type run = next_ProcessUtility ?
		next_ProcessUtility : standard_ProcessUtility;
	PlannedStmt *volatile command = pstmt;
	volatile bool concerns_purge = false;
	volatile bool has_instant = false;
	volatile bool takes_notes = false;

	concerns_purge = ttl_docs_begin_purge_command(pstmt->utilityStmt);
	PG_TRY();
	{
		if (concerns_purge)
			ttl_docs_keep_workers_out();
		ttl_docs_refuse_copy_without_trigger(pstmt->utilityStmt);
		command = ttl_docs_copy_as_query(pstmt);
		ttl_docs_begin_utility(command->utilityStmt, context);
		has_instant = true;
		takes_notes = ttl_docs_begin_notes(command->utilityStmt, context);

		if (next_ProcessUtility ||
			!ttl_docs_copy_many_rows(command->utilityStmt, queryString, qc))
			run(command, queryString, readOnlyTree && command == pstmt, context,
				params, queryEnv, dest, qc);

		if (takes_notes)
		{
			ttl_docs_stop_validation();
			ttl_docs_review_notes();
		}
		ttl_docs_utility_has_run();
		if (concerns_purge)
			ttl_docs_purge_command_has_run(pstmt->utilityStmt);
	}
	PG_FINALLY();
	{
		if (takes_notes)
			ttl_docs_end_notes();
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
	if (access == OAT_FUNCTION_EXECUTE)
		ttl_docs_note_function(objectId);
	else
		ttl_docs_note_object_access(access, classId, objectId, subId, arg);
}

static bool
needs_fmgr(Oid function)
{
	return (next_needs_fmgr && next_needs_fmgr(function)) ||
		ttl_docs_is_citus_converter(function);
}

static void
call_function(FmgrHookEventType event, FmgrInfo *flinfo, Datum *private_data)
{
	if (next_fmgr)
		next_fmgr(event, flinfo, private_data);
	if (event == FHET_START)
		ttl_docs_refuse_citus_call(flinfo);
}

/* ---- Caches and transactions ---- */

/* A relation was invalidated; InvalidOid stands for all. */
static void
relation_invalidated(Datum arg, Oid relid)
{
	(void) arg;
	ttl_docs_forget_table_settings(relid);
	ttl_docs_forget_document_table(relid);
}

static void
transaction_ends(XactEvent event, void *arg)
{
	(void) arg;
	ttl_docs_tell_purge(event);
	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
		case XACT_EVENT_PRE_PREPARE:
		case XACT_EVENT_PARALLEL_PRE_COMMIT:
			return;
		case XACT_EVENT_COMMIT:
		case XACT_EVENT_PREPARE:
		case XACT_EVENT_ABORT:
			ttl_docs_free_stale_plans();
			break;
		default:
			break;
	}
	ttl_docs_forget_transaction();
	ttl_docs_forget_changes();
}

static void
subtransaction_ends(SubXactEvent event, SubTransactionId mySubid,
					SubTransactionId parentSubid, void *arg)
{
	(void) arg;
	ttl_docs_follow_subtransaction(event, mySubid, parentSubid);
	if (event == SUBXACT_EVENT_ABORT_SUB)
		ttl_docs_note_transaction_snapshot();
}
