/*-------------------------------------------------------------------------
 *
 * rival.c
 *		Changes plans, and refuses commands, as other extensions do, so that a test sees how ttl_docs
 *		handles such plans.
 *
 * rival.planner		on: does not call the planner hooks of other libraries, like
 *						Citus for a local shard.
 * rival.index_only		on: adds core's index paths after the hooks of other libraries
 *						have run, and removes all other paths, as pg_hint_plan can.
 * rival.custom_scan	"over": puts a custom scan above the ordinary one, like
 *						TimescaleDB's SkipScan.  "alone": uses a custom scan that
 *						would read the table itself.
 * rival.check_snapshots	on: an error if the snapshot of an INSERT, UPDATE or DELETE is still
 *						registered after it.  Core asserts the opposite before it runs a rule.
 * rival.refuse_truncate	on: an object access hook refuses to truncate tables, as a
 *						security policy can.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/objectaccess.h"
#include "executor/executor.h"
#include "fmgr.h"
#include "nodes/extensible.h"
#include "optimizer/pathnode.h"
#include "optimizer/paths.h"
#include "optimizer/planner.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/snapshot.h"

#include "../../src/compat.h"

PG_MODULE_MAGIC;

void		_PG_init(void);

typedef enum CustomKind
{
	CUSTOM_OFF,
	CUSTOM_OVER,
	CUSTOM_ALONE
} CustomKind;

static const struct config_enum_entry custom_kinds[] = {
	{"off", CUSTOM_OFF, false},
	{"over", CUSTOM_OVER, false},
	{"alone", CUSTOM_ALONE, false},
	{NULL, 0, false}
};

static bool plans_alone = false;
static bool wants_index_only = false;
static bool checks_snapshots = false;
static bool refuses_truncate = false;
static int	custom_kind = CUSTOM_OFF;
static planner_hook_type next_planner_hook = NULL;
static set_rel_pathlist_hook_type next_set_rel_pathlist_hook = NULL;
static ExecutorEnd_hook_type next_ExecutorEnd_hook = NULL;
static object_access_hook_type next_object_access_hook = NULL;

static PlannedStmt *plan_alone(COMPAT_PLANNER_PARAMS);
static void change_paths(PlannerInfo *root, RelOptInfo *rel, Index rti,
						 RangeTblEntry *rte);
static void end_query(QueryDesc *queryDesc);
static void refuse_truncate(ObjectAccessType access, Oid classId, Oid objectId,
							int subId, void *arg);
static Path *path_by_itself(RelOptInfo *rel);
static Plan *plan_custom_path(PlannerInfo *root, RelOptInfo *rel,
							  CustomPath *best_path, List *tlist, List *clauses,
							  List *custom_plans);
static Node *create_scan_state(CustomScan *cscan);
static void begin_scan(CustomScanState *node, EState *estate, int eflags);
static TupleTableSlot *exec_scan(CustomScanState *node);
static void end_scan(CustomScanState *node);
static void rescan(CustomScanState *node);

static const CustomPathMethods path_methods = {
	.CustomName = "Rival",
	.PlanCustomPath = plan_custom_path,
};
static const CustomScanMethods scan_methods = {
	.CustomName = "Rival",
	.CreateCustomScanState = create_scan_state,
};
static const CustomExecMethods exec_methods = {
	.CustomName = "Rival",
	.BeginCustomScan = begin_scan,
	.ExecCustomScan = exec_scan,
	.EndCustomScan = end_scan,
	.ReScanCustomScan = rescan,
};

void
_PG_init(void)
{
	DefineCustomBoolVariable("rival.planner", "Plans without other hooks.", NULL,
							 &plans_alone, false, PGC_USERSET, 0, NULL, NULL, NULL);
	DefineCustomBoolVariable("rival.index_only", "Offers index-only scans.", NULL,
							 &wants_index_only, false, PGC_USERSET, 0, NULL, NULL,
							 NULL);
	DefineCustomEnumVariable("rival.custom_scan", "Adds custom scans.", NULL,
							 &custom_kind, CUSTOM_OFF, custom_kinds, PGC_USERSET, 0,
							 NULL, NULL, NULL);
	DefineCustomBoolVariable("rival.check_snapshots", "Checks the snapshots of queries.",
							 NULL, &checks_snapshots, false, PGC_USERSET, 0, NULL, NULL,
							 NULL);
	DefineCustomBoolVariable("rival.refuse_truncate", "Refuses to truncate tables.", NULL,
							 &refuses_truncate, false, PGC_SIGHUP, 0, NULL, NULL,
							 NULL);
	next_planner_hook = planner_hook;
	planner_hook = plan_alone;
	next_set_rel_pathlist_hook = set_rel_pathlist_hook;
	set_rel_pathlist_hook = change_paths;
	next_ExecutorEnd_hook = ExecutorEnd_hook;
	ExecutorEnd_hook = end_query;
	next_object_access_hook = object_access_hook;
	object_access_hook = refuse_truncate;
	RegisterCustomScanMethods(&scan_methods);
}

static PlannedStmt *
plan_alone(COMPAT_PLANNER_PARAMS)
{
	if (next_planner_hook && !plans_alone)
		return next_planner_hook(COMPAT_PLANNER_ARGS);
	return standard_planner(COMPAT_PLANNER_ARGS);
}

static void
end_query(QueryDesc *queryDesc)
{
	if (next_ExecutorEnd_hook)
		next_ExecutorEnd_hook(queryDesc);
	else
		standard_ExecutorEnd(queryDesc);
	/* the query itself registers its snapshot once until it is freed */
	if (checks_snapshots && queryDesc->operation != CMD_SELECT &&
		queryDesc->snapshot->regd_count != 1)
		elog(ERROR, "the snapshot of a query is registered %u times",
			 queryDesc->snapshot->regd_count);
}

static void
refuse_truncate(ObjectAccessType access, Oid classId, Oid objectId, int subId,
				void *arg)
{
	if (next_object_access_hook)
		next_object_access_hook(access, classId, objectId, subId, arg);
	if (access == OAT_TRUNCATE && refuses_truncate)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("rival refuses to truncate \"%s\"", get_rel_name(objectId))));
}

static void
change_paths(PlannerInfo *root, RelOptInfo *rel, Index rti, RangeTblEntry *rte)
{
	if (next_set_rel_pathlist_hook)
		next_set_rel_pathlist_hook(root, rel, rti, rte);
	if (rte->rtekind != RTE_RELATION || rte->inh || rel->pathlist == NIL)
		return;
	if (wants_index_only)
	{
		List	   *others = rel->pathlist;

		rel->pathlist = NIL;
		rel->partial_pathlist = NIL;
		create_index_paths(root, rel);
		if (rel->pathlist == NIL)
			rel->pathlist = others;
	}
	if (custom_kind != CUSTOM_OFF)
	{
		CustomPath *path = makeNode(CustomPath);

		path->path.pathtype = T_CustomScan;
		path->path.parent = rel;
		path->path.pathtarget = rel->reltarget;
		path->methods = &path_methods;
		if (custom_kind == CUSTOM_OVER)
			path->custom_paths = list_make1(path_by_itself(rel));
		rel->pathlist = list_make1(path);
		rel->partial_pathlist = NIL;
	}
}

/* Returns a path that does not depend on other tables. */
static Path *
path_by_itself(RelOptInfo *rel)
{
	ListCell   *lc;

	foreach(lc, rel->pathlist)
		if (((Path *) lfirst(lc))->param_info == NULL)
			return lfirst(lc);
	elog(ERROR, "there is no path without parameters");
}

static Plan *
plan_custom_path(PlannerInfo *root, RelOptInfo *rel, CustomPath *best_path,
				 List *tlist, List *clauses, List *custom_plans)
{
	CustomScan *scan = makeNode(CustomScan);

	(void) root;
	(void) clauses;
	scan->scan.plan.targetlist = tlist;
	scan->custom_plans = custom_plans;
	scan->custom_relids = bms_copy(best_path->path.parent->relids);
	scan->methods = &scan_methods;
	if (custom_plans == NIL)
		scan->scan.scanrelid = rel->relid;
	else
		scan->custom_scan_tlist = copyObject(((Plan *) linitial(custom_plans))->targetlist);
	return &scan->scan.plan;
}

static Node *
create_scan_state(CustomScan *cscan)
{
	CustomScanState *state = makeNode(CustomScanState);

	(void) cscan;
	state->methods = &exec_methods;
	return (Node *) state;
}

static void
begin_scan(CustomScanState *node, EState *estate, int eflags)
{
	Plan	   *child = linitial(((CustomScan *) node->ss.ps.plan)->custom_plans);

	node->custom_ps = list_make1(ExecInitNode(child, estate, eflags));
}

static TupleTableSlot *
exec_scan(CustomScanState *node)
{
	TupleTableSlot *row = ExecProcNode(linitial(node->custom_ps));
	ExprContext *econtext = node->ss.ps.ps_ExprContext;

	if (TupIsNull(row))
		return NULL;
	ResetExprContext(econtext);
	econtext->ecxt_scantuple = ExecCopySlot(node->ss.ss_ScanTupleSlot, row);
	return node->ss.ps.ps_ProjInfo != NULL ?
		ExecProject(node->ss.ps.ps_ProjInfo) : econtext->ecxt_scantuple;
}

static void
end_scan(CustomScanState *node)
{
	ExecEndNode(linitial(node->custom_ps));
}

static void
rescan(CustomScanState *node)
{
	ExecReScan(linitial(node->custom_ps));
}
