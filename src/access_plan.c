/*-------------------------------------------------------------------------
 *
 * access_plan.c
 *		Puts the visibility test into every scan of a collection.
 *
 * The planner plans as if there were no TTL, and when it is done we visit each
 * node of the finished plan.  A scan of a collection, or of a partition of
 * one, gets the test as its first qual; it is then part of what the scan
 * returns, for whoever is above.  That is why it works the same for joins on
 * either side, sub-queries, set operations, inlined functions, parallel plans,
 * rechecks of rows that changed (EvalPlanQual), and why plans keep their shape
 * and their indexes.
 *
 * Doing it earlier leaks: quals added to the query miss functions that are
 * inlined later, quals added to base relations are lost under UNION ALL, and
 * security quals keep jsonb indexes from being used.
 *
 * Index-only scans read the index, not the table, so the test needs _ts and
 * _ttl in the index.  access_paths.c sees to it that the planner takes no
 * other; one that comes all the same is an error, as is any scan that we do
 * not know how to filter: never a leak.
 *
 * A cached plan has to be made anew when the table becomes a collection or
 * stops being one.  The label invalidates the table; for a partition, the root
 * is added to what the plan depends on, and the test function too.  Settings
 * are not in the plan: the test reads them when it is executed.
 *
 * Parallel plans, of any query, also get the parameter that carries the
 * instant to the workers (access_instant.c): functions that the workers call
 * may read collections.
 *
 * If another hook plans a query with our help and hands the result through us
 * again, the test is there already and is left alone.
 *
 * Foreign keys are validated (ADD, VALIDATE) against the parents on disk,
 * because a restore must not fail on a parent that has expired; children that
 * have expired need no parent.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "nodes/plannodes.h"
#include "optimizer/optimizer.h"
#include "optimizer/planner.h"
#include "parser/parse_func.h"
#include "parser/parsetree.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

#include "ttl_docs.h"

#define TEST_FUNCTION "is_live"

/* What the walk over a plan needs to know */
typedef struct PlanWalk
{
	PlannedStmt *stmt;
	bool		has_collections;
	Oid			test;			/* OID of the test function, when needed */
	int			instant_param;	/* -1 if the plan is not parallel */
} PlanWalk;

static planner_hook_type next_planner_hook = NULL;
static bool validating_foreign_key = false;

static PlannedStmt *plan_query(Query *parse, const char *query_string,
							   int cursorOptions, ParamListInfo boundParams);
static bool has_collections(const PlannedStmt *stmt);
static int	add_instant_param(PlannedStmt *stmt);
static void visit(Plan *plan, PlanWalk *walk);
static void visit_list(List *plans, PlanWalk *walk);
static bool scanned_collection(Index scanrelid, PlanWalk *walk,
							   Collection *collection, RangeTblEntry **rte);
static void filter_table_scan(Scan *scan, PlanWalk *walk);
static void filter_index_only_scan(IndexOnlyScan *scan, PlanWalk *walk);
static void refuse_scan(Index scanrelid, Bitmapset *relids, PlanWalk *walk);
static void add_test(Plan *plan, const Collection *collection,
					 Index varno, AttrNumber ts, AttrNumber ttl, PlanWalk *walk);
static bool has_test(const Plan *plan, const PlanWalk *walk);
static Oid	find_test_function(void);

void
ttl_docs_plan_init(void)
{
	next_planner_hook = planner_hook;
	planner_hook = plan_query;
}

/* The guard says when ALTER TABLE may check a foreign key. */
void
ttl_docs_set_validating_foreign_key(bool validating)
{
	validating_foreign_key = validating;
}

bool
ttl_docs_validating_foreign_key(void)
{
	return validating_foreign_key;
}

static PlannedStmt *
plan_query(Query *parse, const char *query_string, int cursorOptions,
		   ParamListInfo boundParams)
{
	PlannedStmt *stmt;
	PlanWalk	walk;
	ListCell   *lc;

	if (next_planner_hook)
		stmt = next_planner_hook(parse, query_string, cursorOptions, boundParams);
	else
		stmt = standard_planner(parse, query_string, cursorOptions, boundParams);

	walk.stmt = stmt;
	walk.test = InvalidOid;
	walk.has_collections = has_collections(stmt);
	if (!walk.has_collections && !stmt->parallelModeNeeded)
		return stmt;
	walk.instant_param = stmt->parallelModeNeeded ? add_instant_param(stmt) : -1;

	visit(stmt->planTree, &walk);
	foreach(lc, stmt->subplans)
		visit(lfirst(lc), &walk);	/* may be NULL */
	return stmt;
}

/* Does the plan touch a collection at all?  Most do not. */
static bool
has_collections(const PlannedStmt *stmt)
{
	ListCell   *lc;
	Collection	collection;

	foreach(lc, stmt->relationOids)
		if (ttl_docs_collection(lfirst_oid(lc), &collection))
			return true;
	return false;
}

/* The parameter for the instant of a parallel plan, added once. */
static int
add_instant_param(PlannedStmt *stmt)
{
	if (list_length(stmt->paramExecTypes) == 0 ||
		llast_oid(stmt->paramExecTypes) != INSTANT_PARAM_TYPE)
		stmt->paramExecTypes = lappend_oid(stmt->paramExecTypes, INSTANT_PARAM_TYPE);
	return list_length(stmt->paramExecTypes) - 1;
}

/* Visits a plan node and those below it. */
static void
visit(Plan *plan, PlanWalk *walk)
{
	if (plan == NULL)
		return;
	check_stack_depth();

	switch (nodeTag(plan))
	{
		case T_SeqScan:
		case T_SampleScan:
		case T_IndexScan:
		case T_BitmapHeapScan:
		case T_TidScan:
		case T_TidRangeScan:
			filter_table_scan((Scan *) plan, walk);
			break;
		case T_IndexOnlyScan:
			filter_index_only_scan((IndexOnlyScan *) plan, walk);
			break;
		case T_ForeignScan:
			refuse_scan(((Scan *) plan)->scanrelid,
						((ForeignScan *) plan)->fs_relids, walk);
			break;
		case T_CustomScan:
			refuse_scan(((Scan *) plan)->scanrelid,
						((CustomScan *) plan)->custom_relids, walk);
			visit_list(((CustomScan *) plan)->custom_plans, walk);
			break;
		case T_Append:
			visit_list(((Append *) plan)->appendplans, walk);
			break;
		case T_MergeAppend:
			visit_list(((MergeAppend *) plan)->mergeplans, walk);
			break;
		case T_SubqueryScan:
			visit(((SubqueryScan *) plan)->subplan, walk);
			break;
		case T_Gather:
			((Gather *) plan)->initParam =
				bms_add_member(((Gather *) plan)->initParam, walk->instant_param);
			break;
		case T_GatherMerge:
			((GatherMerge *) plan)->initParam =
				bms_add_member(((GatherMerge *) plan)->initParam, walk->instant_param);
			break;
		case T_BitmapAnd:
		case T_BitmapOr:
		case T_BitmapIndexScan:
			/* the heap scan above them has the test */
		case T_FunctionScan:
		case T_ValuesScan:
		case T_TableFuncScan:
		case T_CteScan:
		case T_NamedTuplestoreScan:
		case T_WorkTableScan:
			/* no table of their own */
		case T_Result:
		case T_ProjectSet:
		case T_ModifyTable:
		case T_RecursiveUnion:
		case T_NestLoop:
		case T_MergeJoin:
		case T_HashJoin:
		case T_Material:
		case T_Memoize:
		case T_Sort:
		case T_IncrementalSort:
		case T_Group:
		case T_Agg:
		case T_WindowAgg:
		case T_Unique:
		case T_Hash:
		case T_SetOp:
		case T_LockRows:
		case T_Limit:
			/* just what is below them */
			break;
		default:
			if (walk->has_collections)
				ereport(ERROR,
						(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						 errmsg("ttl_docs cannot filter expired documents in a plan with a node of type %d",
								(int) nodeTag(plan))));
			break;
	}

	visit(plan->lefttree, walk);
	visit(plan->righttree, walk);
}

static void
visit_list(List *plans, PlanWalk *walk)
{
	ListCell   *lc;

	foreach(lc, plans)
		visit(lfirst(lc), walk);
}

/* Is what a node scans a collection whose expired documents it must skip? */
static bool
scanned_collection(Index scanrelid, PlanWalk *walk, Collection *collection,
				   RangeTblEntry **rte)
{
	if (!walk->has_collections || scanrelid == 0)
		return false;
	*rte = rt_fetch(scanrelid, walk->stmt->rtable);
	if ((*rte)->rtekind != RTE_RELATION ||
		!ttl_docs_collection((*rte)->relid, collection))
		return false;
	if (collection->ts <= 0 || collection->ttl <= 0)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_COLUMN),
				 errmsg("the collection \"%s\" has lost its system columns",
						get_rel_name((*rte)->relid))));
	/* core's query for a foreign key calls the parent "pk" */
	if (validating_foreign_key && (*rte)->alias != NULL &&
		strcmp((*rte)->alias->aliasname, "pk") == 0)
		return false;
	return true;
}

/* A scan that reads the rows of a table. */
static void
filter_table_scan(Scan *scan, PlanWalk *walk)
{
	Collection	collection;
	RangeTblEntry *rte;

	if (!scanned_collection(scan->scanrelid, walk, &collection, &rte))
		return;
	add_test(&scan->plan, &collection, scan->scanrelid, collection.ts,
			 collection.ttl, walk);
}

/* A scan that reads an index, and has only the columns in there. */
static void
filter_index_only_scan(IndexOnlyScan *scan, PlanWalk *walk)
{
	Collection	collection;
	RangeTblEntry *rte;
	AttrNumber	ts = InvalidAttrNumber;
	AttrNumber	ttl = InvalidAttrNumber;
	ListCell   *lc;

	if (!scanned_collection(scan->scan.scanrelid, walk, &collection, &rte))
		return;
	foreach(lc, scan->indextlist)
	{
		TargetEntry *column = lfirst_node(TargetEntry, lc);

		if (column->resjunk || !IsA(column->expr, Var))
			continue;			/* the index cannot give this one back */
		if (((Var *) column->expr)->varattno == collection.ts)
			ts = column->resno;
		else if (((Var *) column->expr)->varattno == collection.ttl)
			ttl = column->resno;
	}
	if (ts == InvalidAttrNumber || ttl == InvalidAttrNumber)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("ttl_docs cannot filter expired documents of \"%s\" in an index-only scan of \"%s\"",
						get_rel_name(rte->relid), get_rel_name(scan->indexid)),
				 errhint("Another extension chose that scan. SET enable_indexonlyscan = off avoids it.")));
	add_test(&scan->scan.plan, &collection, INDEX_VAR, ts, ttl, walk);
}

/* A scan whose rows come from somewhere that we cannot look into. */
static void
refuse_scan(Index scanrelid, Bitmapset *relids, PlanWalk *walk)
{
	Collection	collection;
	RangeTblEntry *rte;
	int			relid = -1;

	relids = bms_copy(relids);
	if (scanrelid > 0)
		relids = bms_add_member(relids, scanrelid);
	while ((relid = bms_next_member(relids, relid)) > 0)
	{
		/* outer joins are members too, without a range table entry of ours */
		if (relid > list_length(walk->stmt->rtable))
			break;
		if (scanned_collection(relid, walk, &collection, &rte))
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("ttl_docs cannot filter expired documents of \"%s\" in a foreign or custom scan",
							get_rel_name(rte->relid))));
	}
	bms_free(relids);
}

/* Makes is_live(_ts, _ttl, collection) the first qual of a node. */
static void
add_test(Plan *plan, const Collection *collection, Index varno,
		 AttrNumber ts, AttrNumber ttl, PlanWalk *walk)
{
	Expr	   *test;

	if (!OidIsValid(walk->test))
	{
		PlanInvalItem *item = makeNode(PlanInvalItem);

		walk->test = find_test_function();
		item->cacheId = PROCOID;
		item->hashValue = GetSysCacheHashValue1(PROCOID,
												ObjectIdGetDatum(walk->test));
		walk->stmt->invalItems = lappend(walk->stmt->invalItems, item);
	}
	if (has_test(plan, walk))
		return;

	test = (Expr *) makeFuncExpr(walk->test, BOOLOID,
								 list_make3(makeVar(varno, ts, TIMESTAMPTZOID,
													-1, InvalidOid, 0),
											makeVar(varno, ttl, INT4OID,
													-1, InvalidOid, 0),
											makeConst(REGCLASSOID, -1, InvalidOid,
													  sizeof(Oid),
													  ObjectIdGetDatum(collection->root),
													  false, true)),
								 InvalidOid, InvalidOid, COERCE_EXPLICIT_CALL);
	plan->qual = lcons(test, plan->qual);
	walk->stmt->relationOids = list_append_unique_oid(walk->stmt->relationOids,
													  collection->root);
}

static bool
has_test(const Plan *plan, const PlanWalk *walk)
{
	return plan->qual != NIL && IsA(linitial(plan->qual), FuncExpr) &&
		linitial_node(FuncExpr, plan->qual)->funcid == walk->test;
}

static Oid
find_test_function(void)
{
	Oid			types[] = {TIMESTAMPTZOID, INT4OID, REGCLASSOID};
	Oid			test = LookupFuncName(list_make2(makeString(TTL_DOCS_SCHEMA),
												 makeString(TEST_FUNCTION)),
									  lengthof(types), types, true);

	if (!OidIsValid(test))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_FUNCTION),
				 errmsg("function %s.%s is missing", TTL_DOCS_SCHEMA, TEST_FUNCTION),
				 errdetail("Without it, expired documents cannot be hidden."),
				 errhint("Is the extension \"%s\" installed in this database, in its own schema?",
						 TTL_DOCS_EXTENSION)));
	return test;
}
