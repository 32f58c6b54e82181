/*-------------------------------------------------------------------------
 *
 * plan.c
 *		Puts the visibility test into every scan of a collection.
 *
 * The planner plans as if there were no TTL.  We then visit each node of the
 * finished plan.  Each scan of a collection, or of a partition of one, gets
 * the visibility test as its first qual.  The nodes above the scan see only
 * the rows that pass the test.  So the test works in the same way for joins
 * on either side, sub-queries, set operations, inlined functions, parallel
 * plans and rechecks of changed rows (EvalPlanQual).  Plans keep their shape
 * and their indexes.
 *
 * Adding the test earlier does not work:
 *
 * - quals that are added to the query miss functions that are inlined later;
 * - quals that are added to base relations are lost under UNION ALL;
 * - security quals prevent the use of jsonb indexes.
 *
 * Index-only scans read the index, not the table, so the index must contain
 * _ts and _ttl for the test.  paths.c keeps the planner from using any
 * other index-only scan.  If another extension adds one, we replace it with an
 * index scan.  If we cannot filter a scan, we raise an error, so that no
 * expired document is returned.
 *
 * A cached plan must be replanned when a table becomes a collection or stops
 * being one.  A change of the label invalidates the table.  For a partition,
 * we add the root to the relations that the plan depends on.  The plan also
 * depends on the test function.  Settings are not in the plan: the test reads
 * them when it is executed.
 *
 * Two kinds of plans get the parameter that carries the instant to parallel
 * workers (instant.c): plans that read a collection, and parallel plans with
 * a function or operator that is not core's and so may read a collection.
 *
 * If another planner hook passes us a plan that we have already filtered, we
 * do not add the test again.
 *
 * ON CONFLICT DO UPDATE gets the row from an index, without a scan.  The row
 * can expire after our trigger has checked it.  The trigger for the UPDATE
 * then raises a serialization failure.  But if the WHERE of ON CONFLICT skips
 * the UPDATE, this trigger does not fire, and the new document would be lost
 * silently.  So we put the same check first in the WHERE.  ON CONFLICT DO SELECT
 * (PostgreSQL 19) has no trigger.  It can wait for the lock of the row, and then
 * evaluates its WHERE.  So it gets the check also if it has no WHERE.
 *
 * Plans that bypass the planner hook.  Another extension may call
 * standard_planner() itself, and execute the plan.  So ExecutorStart looks
 * for plans that read a collection and lack our mark, and filters a copy of
 * the plan (instant.c calls ttl_docs_prepare_plan()).  It uses a copy because
 * the plan may belong to a cache.  The mark follows the parameter that
 * carries the instant.  No expression of a query can have the type of the
 * mark.
 *
 * To recognise the test, we compare the whole node, not only its function:
 * every user may call is_live() in a query, with other arguments.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "nodes/plannodes.h"
#include "parser/parse_func.h"
#include "parser/parsetree.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

#include "access/access_internal.h"

/* These functions take _ts, _ttl and the collection */
#define TEST_FUNCTION			"is_live"
#define PARENT_TEST_FUNCTION	"is_live_parent"
#define UPSERT_TEST_FUNCTION	"require_live"

/* State of the walk over a plan */
typedef struct PlanWalk
{
	PlannedStmt *stmt;
	bool		has_collections;
	bool		validates_foreign_key;	/* looks like core's validation */
	int			instant_param;
	Bitmapset  *filtered;		/* range table entries that have the test,
								 * below the current custom scan */
} PlanWalk;

static bool scans_collection(const PlannedStmt *stmt);
static void require_parent_triggers(const PlannedStmt *stmt);
static void require_visible_collections(const PlannedStmt *stmt, Snapshot snapshot);
static int	add_instant_param(PlannedStmt *stmt);
static Plan *visit(Plan *plan, PlanWalk *walk);
static void visit_list(List *plans, PlanWalk *walk);
static bool scanned_collection(Index scanrelid, PlanWalk *walk,
							   Collection *collection, RangeTblEntry **rte);
static void filter_table_scan(Scan *scan, PlanWalk *walk);
static const char *scan_test(const RangeTblEntry *rte, const PlanWalk *walk);
static Plan *filter_index_only_scan(IndexOnlyScan *scan, PlanWalk *walk);
static IndexScan *read_table_instead(IndexOnlyScan *scan);
static Node *index_columns_to_table(Node *node, void *indextlist);
static void visit_custom_scan(CustomScan *scan, PlanWalk *walk);
static void refuse_unfiltered(Index scanrelid, Bitmapset *relids,
							  Bitmapset *filtered, PlanWalk *walk);
static bool is_filtered(Index rti, const Collection *collection,
						const RangeTblEntry *rte, Bitmapset *filtered,
						PlanWalk *walk);
static void require_triggers(ModifyTable *modify, PlanWalk *walk);
static void filter_upsert(ModifyTable *modify, PlanWalk *walk);
static List *add_test(List *quals, const char *function, Oid collection,
					  Index varno, AttrNumber ts, AttrNumber ttl, PlanWalk *walk);
static Oid	find_test_function(const char *name);

/*
 * Filters a plan that has bypassed the planner hook, before it is executed.
 * The copy of the plan is in the current memory context, in which core's
 * callers of ExecutorStart have made the QueryDesc.
 */
void
ttl_docs_prepare_plan(QueryDesc *queryDesc)
{
	PlannedStmt *stmt = queryDesc->plannedstmt;

	if (COMPAT_CORE_PROBES_PARENTS && compat_has_targets(stmt))
		require_parent_triggers(stmt);
	if (!scans_collection(stmt))
		return;

	/*
	 * The settings must not be older than the snapshot, so process
	 * invalidations now.  Taking a lock does this, too, but not if the
	 * transaction already holds the lock, and a cached plan may need no other
	 * lock.
	 */
	AcceptInvalidationMessages();
	require_visible_collections(stmt, queryDesc->snapshot);
	if (ttl_docs_instant_param(stmt) >= 0)
		return;
	stmt = copyObject(stmt);
	ttl_docs_filter_plan(stmt, false);
	queryDesc->plannedstmt = stmt;
}

/*
 * Refuses a write to a child table that lacks a trigger.  DELETE does not check
 * foreign keys.  This is not done in the planner: a plan for a partitioned table
 * stays valid when a partition changes.
 */
static void
require_parent_triggers(const PlannedStmt *stmt)
{
	if (stmt->commandType == CMD_DELETE && !stmt->hasModifyingCTE)
		return;
	for (int rti = 1; rti <= list_length(stmt->rtable); rti++)
		if (compat_is_target(stmt, rti))
			ttl_docs_require_parent_triggers(rt_fetch(rti, stmt->rtable)->relid);
}

/*
 * Refuses a table that became part of a collection after the snapshot was
 * taken.  The query could miss live documents: if the table was rewritten, it
 * is empty for the snapshot; and the table may have had other settings
 * before.  A backup is not refused.  It reads the rows that ALTER TABLE
 * leaves for its snapshot, as it does for any other table.
 */
static void
require_visible_collections(const PlannedStmt *stmt, Snapshot snapshot)
{
	ModifyTable *modify = (ModifyTable *) stmt->planTree;
	Index		rti = 0;
	ListCell   *lc;

	foreach(lc, stmt->rtable)
	{
		RangeTblEntry *rte = lfirst_node(RangeTblEntry, lc);
		Collection	collection;

		rti++;
		/* INSERT does not read its target */
		if (rte->rtekind != RTE_RELATION ||
			!ttl_docs_is_collection(rte->relid) ||
			(stmt->commandType == CMD_INSERT && IsA(modify, ModifyTable) &&
			 list_member_int(modify->resultRelations, rti)) ||
			ttl_docs_is_seen_by(rte->relid, snapshot))
			continue;
		if (ttl_docs_lookup_collection(rte->relid, &collection) &&
			!ttl_docs_acts_for_backup(collection.root))
			ttl_docs_report_later_collection(rte->relid);
	}
}

/* Puts the test into all scans of collections in a finished plan. */
void
ttl_docs_filter_plan(PlannedStmt *stmt, bool validates_foreign_key)
{
	PlanWalk	walk = {0};
	ListCell   *lc;

	walk.stmt = stmt;
	walk.has_collections = scans_collection(stmt);
	walk.validates_foreign_key = validates_foreign_key;
	/* workers may call functions that read collections; core's do not */
	if (!walk.has_collections &&
		!(stmt->parallelModeNeeded && stmt->invalItems != NIL))
		return;
	walk.instant_param = add_instant_param(stmt);

	stmt->planTree = visit(stmt->planTree, &walk);
	foreach(lc, stmt->subplans)
		lfirst(lc) = visit(lfirst(lc), &walk);	/* may be NULL */
}

/*
 * Does the plan use a collection?  Every scan refers to the range table, so
 * we look there.  This function runs for every query, so it must be cheap for
 * other tables.
 */
static bool
scans_collection(const PlannedStmt *stmt)
{
	ListCell   *lc;

	foreach(lc, stmt->rtable)
	{
		RangeTblEntry *rte = lfirst_node(RangeTblEntry, lc);

		if (rte->rtekind == RTE_RELATION && ttl_docs_is_collection(rte->relid))
			return true;
	}
	return false;
}

/*
 * The parameter that carries the instant to parallel workers, or -1 if the
 * plan has none.  Our mark follows the parameter.  The type of the mark cannot
 * occur in a query.
 */
int
ttl_docs_instant_param(const PlannedStmt *stmt)
{
	for (int i = list_length(stmt->paramExecTypes) - 1; i > 0; i--)
		if (list_nth_oid(stmt->paramExecTypes, i) == PLAN_MARK_TYPE)
			return i - 1;
	return -1;
}

/* Adds the parameter for the instant and our mark, unless they are there. */
static int
add_instant_param(PlannedStmt *stmt)
{
	if (ttl_docs_instant_param(stmt) < 0)
		stmt->paramExecTypes = lappend_oid(lappend_oid(stmt->paramExecTypes,
													   INSTANT_PARAM_TYPE),
										   PLAN_MARK_TYPE);
	return ttl_docs_instant_param(stmt);
}

/* Visits a plan node and the nodes below it; returns its replacement. */
static Plan *
visit(Plan *plan, PlanWalk *walk)
{
	if (plan == NULL)
		return NULL;
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
			plan = filter_index_only_scan((IndexOnlyScan *) plan, walk);
			break;
		case T_ForeignScan:
			refuse_unfiltered(((Scan *) plan)->scanrelid,
							  ((ForeignScan *) plan)->fs_relids, NULL, walk);
			break;
		case T_CustomScan:
			visit_custom_scan((CustomScan *) plan, walk);
			return plan;
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
			((SubqueryScan *) plan)->subplan =
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
			/* the heap scan above has the test */
		case T_FunctionScan:
		case T_ValuesScan:
		case T_TableFuncScan:
		case T_CteScan:
		case T_NamedTuplestoreScan:
		case T_WorkTableScan:
			/* these scan no table */
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
			/* these only process rows of the nodes below */
			break;
		default:
			if (walk->has_collections)
				ereport(ERROR,
						(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						 errmsg("ttl_docs cannot filter expired documents in this plan"),
						 errdetail("The plan contains a node of unknown type %d.",
								   (int) nodeTag(plan)),
						 errhint("Disable the scan types of other extensions for queries on collections.")));
			break;
	}

	plan->lefttree = visit(plan->lefttree, walk);
	plan->righttree = visit(plan->righttree, walk);
	return plan;
}

static void
visit_list(List *plans, PlanWalk *walk)
{
	ListCell   *lc;

	foreach(lc, plans)
		lfirst(lc) = visit(lfirst(lc), walk);
}

/* Does a node scan a collection, so that it must skip expired documents? */
static bool
scanned_collection(Index scanrelid, PlanWalk *walk, Collection *collection,
				   RangeTblEntry **rte)
{
	if (!walk->has_collections || scanrelid == 0)
		return false;
	*rte = rt_fetch(scanrelid, walk->stmt->rtable);
	if ((*rte)->rtekind != RTE_RELATION ||
		!ttl_docs_lookup_collection((*rte)->relid, collection))
		return false;
	if (collection->ts <= 0 || collection->ttl <= 0)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_COLUMN),
				 errmsg("collection \"%s\" has lost its system columns",
						get_rel_name((*rte)->relid)),
				 errdetail("Without these columns, ttl_docs cannot distinguish live documents from expired ones."),
				 errhint("Restore the table from a backup.")));
	return true;
}

/* Adds the test to a scan that reads the rows of a table. */
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
	walk->filtered = bms_add_member(walk->filtered, scan->scanrelid);
}

/* The test function for the scan of a table. */
static const char *
scan_test(const RangeTblEntry *rte, const PlanWalk *walk)
{
	return walk->validates_foreign_key &&
		ttl_docs_is_validated_parent(rte) ?
		PARENT_TEST_FUNCTION : TEST_FUNCTION;
}

/*
 * An index-only scan has only the columns of its index.  If _ts or _ttl is
 * missing, another extension has added the path after paths.c had checked the
 * paths.  We then replace the scan with one that reads the table.
 */
static Plan *
filter_index_only_scan(IndexOnlyScan *scan, PlanWalk *walk)
{
	Collection	collection;
	RangeTblEntry *rte;
	AttrNumber	ts = InvalidAttrNumber;
	AttrNumber	ttl = InvalidAttrNumber;
	ListCell   *lc;

	if (!scanned_collection(scan->scan.scanrelid, walk, &collection, &rte))
		return &scan->scan.plan;
	foreach(lc, scan->indextlist)
	{
		TargetEntry *column = lfirst_node(TargetEntry, lc);

		if (column->resjunk || !IsA(column->expr, Var))
			continue;			/* not returned by the index, or no column */
		if (((Var *) column->expr)->varattno == collection.ts)
			ts = column->resno;
		else if (((Var *) column->expr)->varattno == collection.ttl)
			ttl = column->resno;
	}
	if (ts == InvalidAttrNumber || ttl == InvalidAttrNumber)
	{
		IndexScan  *instead = read_table_instead(scan);

		filter_table_scan(&instead->scan, walk);
		return &instead->scan.plan;
	}
	scan->scan.plan.qual = add_test(scan->scan.plan.qual, scan_test(rte, walk),
									collection.root, INDEX_VAR, ts, ttl, walk);
	walk->filtered = bms_add_member(walk->filtered, scan->scan.scanrelid);
	return &scan->scan.plan;
}

/* Makes an index scan that returns the same rows as an index-only scan. */
static IndexScan *
read_table_instead(IndexOnlyScan *scan)
{
	IndexScan  *instead = makeNode(IndexScan);
	Plan	   *plan = &instead->scan.plan;

	/* the node lacks information that ordering operators need */
	if (scan->indexorderby != NIL)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("ttl_docs cannot filter expired documents in an index-only scan of \"%s\"",
						get_rel_name(scan->indexid)),
				 errdetail("Another extension chose this scan."),
				 errhint("To avoid this scan: SET enable_indexonlyscan = off.")));
	instead->scan = scan->scan;
	instead->scan.plan.type = T_IndexScan;
	instead->indexid = scan->indexid;
	instead->indexqual = scan->indexqual;
	instead->indexorderdir = scan->indexorderdir;
	instead->indexqualorig = (List *)
		index_columns_to_table((Node *) scan->recheckqual, scan->indextlist);
	plan->targetlist = (List *)
		index_columns_to_table((Node *) plan->targetlist, scan->indextlist);
	plan->qual = (List *)
		index_columns_to_table((Node *) plan->qual, scan->indextlist);
	return instead;
}

/* Replaces references to index columns with the columns of the table. */
static Node *
index_columns_to_table(Node *node, void *indextlist)
{
	if (node == NULL)
		return NULL;
	if (IsA(node, Var) && ((Var *) node)->varno == INDEX_VAR)
		return (Node *) copyObject(list_nth_node(TargetEntry, (List *) indextlist,
												 ((Var *) node)->varattno - 1)->expr);
	return expression_tree_mutator(node, index_columns_to_table, indextlist);
}

/*
 * Visits a scan of another extension.  The scan is fine if it only selects
 * rows of scans below it, because those scans have the test.
 */
static void
visit_custom_scan(CustomScan *scan, PlanWalk *walk)
{
	Bitmapset  *outside = walk->filtered;
	Plan	   *plan = &scan->scan.plan;

	walk->filtered = NULL;
	visit_list(scan->custom_plans, walk);
	plan->lefttree = visit(plan->lefttree, walk);
	plan->righttree = visit(plan->righttree, walk);
	refuse_unfiltered(scan->scan.scanrelid, scan->custom_relids, walk->filtered,
					  walk);
	walk->filtered = bms_join(walk->filtered, outside);
}

/*
 * Refuses a foreign or custom scan that returns rows of a collection, unless
 * scans below it filter these rows.
 */
static void
refuse_unfiltered(Index scanrelid, Bitmapset *relids, Bitmapset *filtered,
				  PlanWalk *walk)
{
	Collection	collection;
	RangeTblEntry *rte;
	int			relid = -1;

	relids = bms_copy(relids);
	if (scanrelid > 0)
		relids = bms_add_member(relids, scanrelid);
	while ((relid = bms_next_member(relids, relid)) > 0)
	{
		/* members beyond the range table are outer joins, not tables */
		if (relid > list_length(walk->stmt->rtable))
			break;
		if (scanned_collection(relid, walk, &collection, &rte) &&
			!is_filtered(relid, &collection, rte, filtered, walk))
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("ttl_docs cannot filter expired documents of \"%s\" in a foreign or custom scan",
							get_rel_name(rte->relid)),
					 errhint("Disable the scan types of other extensions for queries on collections.")));
	}
	bms_free(relids);
}

/*
 * Do scans filter the rows of a range table entry?  For a partitioned table,
 * it is enough that scans of its partitions do.
 */
static bool
is_filtered(Index rti, const Collection *collection, const RangeTblEntry *rte,
			Bitmapset *filtered, PlanWalk *walk)
{
	int			other = -1;

	if (bms_is_member(rti, filtered))
		return true;
	while (rte->relkind == RELKIND_PARTITIONED_TABLE &&
		   (other = bms_next_member(filtered, other)) > 0)
	{
		Collection	scanned;

		if (ttl_docs_lookup_collection(rt_fetch(other, walk->stmt->rtable)->relid, &scanned) &&
			scanned.root == collection->root)
			return true;
	}
	return false;
}

/*
 * Raises an error if a collection has no trigger, because documents would be
 * stored without stamps.  "pg_restore -t" creates such a table; a restore may
 * fill it.
 */
static void
require_triggers(ModifyTable *modify, PlanWalk *walk)
{
	Collection	collection;
	RangeTblEntry *rte;
	ListCell   *lc;

	foreach(lc, modify->resultRelations)
	{
		if (scanned_collection(lfirst_int(lc), walk, &collection, &rte))
			ttl_docs_require_trigger(rte->relid, &collection);
	}
}

/* Puts the check into the WHERE of ON CONFLICT; see the header. */
static void
filter_upsert(ModifyTable *modify, PlanWalk *walk)
{
	Collection	collection;
	RangeTblEntry *rte;
	Index		target;

	if ((modify->onConflictAction != ONCONFLICT_UPDATE ||
		 modify->onConflictWhere == NULL) && !compat_selects_on_conflict(modify))
		return;
	target = linitial_int(modify->resultRelations);
	if (scanned_collection(target, walk, &collection, &rte))
		modify->onConflictWhere = (Node *)
			add_test((List *) modify->onConflictWhere, UPSERT_TEST_FUNCTION,
					 collection.root, target, collection.ts, collection.ttl, walk);
}

/* Puts function(_ts, _ttl, collection) in front of the quals. */
static List *
add_test(List *quals, const char *function, Oid collection, Index varno,
		 AttrNumber ts, AttrNumber ttl, PlanWalk *walk)
{
	Oid			funcid = find_test_function(function);
	PlanInvalItem *item;
	FuncExpr   *test;

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
	if (quals != NIL && equal(linitial(quals), test))
		return quals;			/* this plan was filtered before */
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
				 errmsg("function %s.%s does not exist", TTL_DOCS_INTERNAL, name),
				 errdetail("ttl_docs needs this function to hide the expired documents of a collection."),
				 errhint("If the extension is not installed in this database, run CREATE EXTENSION %s.",
						 TTL_DOCS_EXTENSION)));
	return function;
}
