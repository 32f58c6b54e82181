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
 * Parallel plans also get the parameter that carries the instant to the
 * workers (access_instant.c), also those that read no collection themselves but
 * contain a function or operator that is not core's.
 *
 * If another hook plans a query with our help and hands the result through us
 * again, the test is there already and is left alone.
 *
 * ON CONFLICT DO UPDATE does not scan: it gets the row from the index.  If that
 * expires after our trigger has looked for it, the update's trigger raises a
 * serialization failure; but a WHERE could skip the update, and lose the new
 * document without a word.  So the WHERE begins with the same check.
 *
 * Foreign keys are validated (ADD, VALIDATE) against the parents on disk,
 * because a restore must not fail on a parent that has expired; children that
 * have expired need no parent.  Core does it by a query, in which the parents
 * get a test of their own, which lets all of them pass if, when it is executed,
 * it is ALTER TABLE itself that executes it.  Functions that users have run in
 * an ALTER TABLE are kept out by the look of that query, and by that.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "nodes/plannodes.h"
#include "optimizer/planner.h"
#include "parser/parse_func.h"
#include "parser/parsetree.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/reltrigger.h"
#include "utils/syscache.h"

#include "ttl_docs.h"

/* All take _ts, _ttl and the collection */
#define TEST_FUNCTION			"is_live"
#define PARENT_TEST_FUNCTION	"is_live_parent"
#define UPSERT_TEST_FUNCTION	"require_live"

/* What the walk over a plan needs to know */
typedef struct PlanWalk
{
	PlannedStmt *stmt;
	bool		has_collections;
	bool		validates_foreign_key;	/* looks like core's query for that */
	int			instant_param;	/* -1 if the plan is not parallel */
} PlanWalk;

static planner_hook_type next_planner_hook = NULL;
static ForeignKeyValidation validation = {false, NULL};

static PlannedStmt *plan_query(Query *parse, const char *query_string,
							   int cursorOptions, ParamListInfo boundParams);
static bool has_collections(const PlannedStmt *stmt);
static int	add_instant_param(PlannedStmt *stmt);
static void visit(Plan *plan, PlanWalk *walk);
static void visit_list(List *plans, PlanWalk *walk);
static bool scanned_collection(Index scanrelid, PlanWalk *walk,
							   Collection *collection, RangeTblEntry **rte);
static void filter_table_scan(Scan *scan, PlanWalk *walk);
static const char *scan_test(const RangeTblEntry *rte, const PlanWalk *walk);
static void filter_index_only_scan(IndexOnlyScan *scan, PlanWalk *walk);
static void refuse_scan(Index scanrelid, Bitmapset *relids, PlanWalk *walk);
static void require_triggers(ModifyTable *modify, PlanWalk *walk);
static bool has_write_trigger(Oid relid);
static void filter_upsert(ModifyTable *modify, PlanWalk *walk);
static List *add_test(List *quals, const char *function, Oid collection,
					  Index varno, AttrNumber ts, AttrNumber ttl, PlanWalk *walk);
static Oid	find_test_function(const char *name);
static bool is_foreign_key_query(const Query *parse);
static bool has_foreign_element(Node *node, void *context);

void
ttl_docs_plan_init(void)
{
	next_planner_hook = planner_hook;
	planner_hook = plan_query;
}

/*
 * The guard says whether a command that begins may validate a foreign key.
 * What was so far goes to *outer, to be restored when the command is through.
 */
void
ttl_docs_begin_validation(bool possible, ForeignKeyValidation *outer)
{
	*outer = validation;
	validation.possible = possible;
	validation.running = ttl_docs_running_query();
}

/* The command itself is through; what follows is ours. */
void
ttl_docs_stop_validation(void)
{
	validation.possible = false;
}

void
ttl_docs_end_validation(const ForeignKeyValidation *outer)
{
	validation = *outer;
}

bool
ttl_docs_may_validate(void)
{
	return validation.possible;
}

/* Is ALTER TABLE itself at work, and not a query that it runs? */
bool
ttl_docs_alter_table_runs(void)
{
	return validation.possible && ttl_docs_running_query() == validation.running;
}

static PlannedStmt *
plan_query(Query *parse, const char *query_string, int cursorOptions,
		   ParamListInfo boundParams)
{
	PlannedStmt *stmt;
	PlanWalk	walk;
	ListCell   *lc;

	/* the planner scribbles on its input */
	walk.validates_foreign_key = validation.possible &&
		is_foreign_key_query(parse);
	if (next_planner_hook)
		stmt = next_planner_hook(parse, query_string, cursorOptions, boundParams);
	else
		stmt = standard_planner(parse, query_string, cursorOptions, boundParams);

	walk.stmt = stmt;
	walk.has_collections = has_collections(stmt);
	/* functions that workers call may read collections; core's do not */
	if (!walk.has_collections &&
		!(stmt->parallelModeNeeded && stmt->invalItems != NIL))
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
		case T_ModifyTable:
			require_triggers((ModifyTable *) plan, walk);
			filter_upsert((ModifyTable *) plan, walk);
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
						 errmsg("ttl_docs cannot filter expired documents in this plan"),
						 errdetail("It has a node of the unknown type %d, from another extension.",
								   (int) nodeTag(plan)),
						 errhint("Turn off what that extension does to queries on collections.")));
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
						get_rel_name((*rte)->relid)),
				 errhint("Live documents cannot be told from expired ones any more. Restore the table from a backup.")));
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
	scan->plan.qual = add_test(scan->plan.qual, scan_test(rte, walk),
							   collection.root, scan->scanrelid,
							   collection.ts, collection.ttl, walk);
}

/* Which test the scan of a table gets. */
static const char *
scan_test(const RangeTblEntry *rte, const PlanWalk *walk)
{
	return walk->validates_foreign_key &&
		strcmp(rte->eref->aliasname, "pk") == 0 ?
		PARENT_TEST_FUNCTION : TEST_FUNCTION;
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
	scan->scan.plan.qual = add_test(scan->scan.plan.qual, scan_test(rte, walk),
									collection.root, INDEX_VAR, ts, ttl, walk);
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
							get_rel_name(rte->relid)),
					 errhint("Turn off what adds such scans for collections.")));
	}
	bms_free(relids);
}

/*
 * Without its trigger a collection would store documents that are not stamped.
 * "pg_restore -t" leaves such a table, and a restore fills one.
 */
static void
require_triggers(ModifyTable *modify, PlanWalk *walk)
{
	Collection	collection;
	RangeTblEntry *rte;
	ListCell   *lc;

	foreach(lc, modify->resultRelations)
	{
		if (scanned_collection(lfirst_int(lc), walk, &collection, &rte) &&
			!has_write_trigger(rte->relid) && !ttl_docs_acts_for_backup(collection.root))
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("the collection \"%s\" has lost its trigger", get_rel_name(rte->relid)),
					 errdetail("A restore of a table without its triggers leaves it so."),
					 errhint("Call ttl_docs.adopt(), which makes it complete again.")));
	}
}

/* By name, from the relation cache: this is on the way of every write. */
static bool
has_write_trigger(Oid relid)
{
	Relation	rel = table_open(relid, NoLock);
	TriggerDesc *triggers = rel->trigdesc;
	bool		found = false;

	for (int i = 0; triggers != NULL && i < triggers->numtriggers && !found; i++)
		found = strcmp(triggers->triggers[i].tgname, TTL_DOCS_TRIGGER) == 0;
	table_close(rel, NoLock);
	return found;
}

/* ON CONFLICT DO UPDATE ... WHERE: see above. */
static void
filter_upsert(ModifyTable *modify, PlanWalk *walk)
{
	Collection	collection;
	RangeTblEntry *rte;
	Index		target;

	if (modify->onConflictAction != ONCONFLICT_UPDATE ||
		modify->onConflictWhere == NULL)
		return;
	target = linitial_int(modify->resultRelations);
	if (scanned_collection(target, walk, &collection, &rte))
		modify->onConflictWhere = (Node *)
			add_test((List *) modify->onConflictWhere, UPSERT_TEST_FUNCTION,
					 collection.root, target, collection.ts, collection.ttl, walk);
}

/* Makes function(_ts, _ttl, collection) the first of some quals. */
static List *
add_test(List *quals, const char *function, Oid collection, Index varno,
		 AttrNumber ts, AttrNumber ttl, PlanWalk *walk)
{
	Oid			funcid = find_test_function(function);
	PlanInvalItem *item;
	FuncExpr   *test;

	if (quals != NIL && IsA(linitial(quals), FuncExpr) &&
		linitial_node(FuncExpr, quals)->funcid == funcid)
		return quals;			/* it has passed us before */

	test = makeFuncExpr(funcid, BOOLOID,
						list_make3(makeVar(varno, ts, TIMESTAMPTZOID, -1,
										   InvalidOid, 0),
								   makeVar(varno, ttl, INT4OID, -1,
										   InvalidOid, 0),
								   makeConst(REGCLASSOID, -1, InvalidOid,
											 sizeof(Oid),
											 ObjectIdGetDatum(collection),
											 false, true)),
						InvalidOid, InvalidOid, COERCE_EXPLICIT_CALL);
	item = makeNode(PlanInvalItem);
	item->cacheId = PROCOID;
	item->hashValue = GetSysCacheHashValue1(PROCOID, ObjectIdGetDatum(funcid));
	walk->stmt->invalItems = lappend(walk->stmt->invalItems, item);
	walk->stmt->relationOids = list_append_unique_oid(walk->stmt->relationOids,
													  collection);
	return lcons(test, quals);
}

static Oid
find_test_function(const char *name)
{
	Oid			types[] = {TIMESTAMPTZOID, INT4OID, REGCLASSOID};
	Oid			function;

	function = LookupFuncName(list_make2(makeString(TTL_DOCS_INTERNAL),
										 makeString(pstrdup(name))),
							  lengthof(types), types, true);
	if (!OidIsValid(function))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_FUNCTION),
				 errmsg("function %s.%s is missing", TTL_DOCS_INTERNAL, name),
				 errdetail("Without it, expired documents cannot be hidden."),
				 errhint("The table is a collection of the extension \"%s\", which is not in this database: use CREATE EXTENSION.",
						 TTL_DOCS_EXTENSION)));
	return function;
}

/*
 * Does this look like core's query for the children without a parent, "SELECT
 * fk.x FROM ONLY child fk LEFT JOIN ONLY parent pk ON ... WHERE pk.y IS NULL"?
 * What it may say of parents is whether there is one: it returns columns of
 * the child, and calls nothing but operators and casts.
 */
static bool
is_foreign_key_query(const Query *parse)
{
	RangeTblEntry *fk;
	RangeTblEntry *pk;
	ListCell   *lc;

	if (parse->commandType != CMD_SELECT || parse->hasSubLinks ||
		parse->hasAggs || parse->hasTargetSRFs || parse->cteList != NIL ||
		parse->groupClause != NIL || parse->sortClause != NIL ||
		list_length(parse->rtable) != 3 ||
		list_length(parse->jointree->fromlist) != 1)
		return false;
	fk = rt_fetch(1, parse->rtable);
	pk = rt_fetch(2, parse->rtable);
	if (fk->rtekind != RTE_RELATION || pk->rtekind != RTE_RELATION ||
		rt_fetch(3, parse->rtable)->rtekind != RTE_JOIN ||
		rt_fetch(3, parse->rtable)->jointype != JOIN_LEFT ||
		strcmp(fk->eref->aliasname, "fk") != 0 ||
		strcmp(pk->eref->aliasname, "pk") != 0)
		return false;
	foreach(lc, parse->targetList)
	{
		Var		   *column = (Var *) lfirst_node(TargetEntry, lc)->expr;

		if (!IsA(column, Var) || column->varno != 1)
			return false;
	}
	return !has_foreign_element((Node *) parse->jointree, NULL);
}

/* Walks the conditions; true stops it at what core's query does not have. */
static bool
has_foreign_element(Node *node, void *context)
{
	if (node == NULL)
		return false;
	switch (nodeTag(node))
	{
		case T_List:
		case T_FromExpr:
		case T_JoinExpr:
		case T_RangeTblRef:
		case T_Var:
		case T_OpExpr:
		case T_BoolExpr:
		case T_NullTest:
		case T_RelabelType:
		case T_CollateExpr:
			break;
		case T_FuncExpr:
			if (((FuncExpr *) node)->funcformat == COERCE_EXPLICIT_CALL)
				return true;
			break;
		default:
			return true;
	}
	return expression_tree_walker(node, has_foreign_element, context);
}
