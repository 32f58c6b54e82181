/*-------------------------------------------------------------------------
 *
 * paths.c
 *		Keeps the planner from index-only scans that cannot be filtered.
 *
 * An index-only scan can apply the visibility test only if the index returns
 * _ts and _ttl.  For the other indexes of a collection, there are two steps:
 *
 * 1. When the planner collects the indexes, we mark their columns as not
 *    returnable.  This is enough for every query that needs a column.
 * 2. count(*) needs no column, so the planner may still use an index-only
 *    scan of any index.  We look for such paths when the paths of a table are
 *    complete.  By then, they may have displaced the paths that would be best
 *    without them.  So we create all paths of the table again, and add _ts
 *    and _ttl to the columns that the query needs.  The planner then uses no
 *    index-only scan that lacks them.
 *
 * Custom paths that other extensions have already added are kept.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "nodes/makefuncs.h"
#include "nodes/pathnodes.h"
#include "optimizer/cost.h"
#include "optimizer/pathnode.h"
#include "optimizer/paths.h"

#include "access/access_internal.h"

static bool covers_test(const IndexOptInfo *index, const Collection *collection);
static bool has_blind_path(List *paths, const Collection *collection);
static void make_paths_again(PlannerInfo *root, RelOptInfo *rel,
							 const Collection *collection);

/* Step 1: the planner has collected the indexes of a table. */
void
ttl_docs_forbid_blind_index_only(Oid relid, RelOptInfo *rel)
{
	Collection	collection;
	ListCell   *lc;

	if (rel->indexlist == NIL || !ttl_docs_lookup_collection(relid, &collection))
		return;
	foreach(lc, rel->indexlist)
	{
		IndexOptInfo *index = lfirst_node(IndexOptInfo, lc);

		/* partitioned indexes have no canreturn; they are never scanned */
		if (index->canreturn != NULL && !covers_test(index, &collection))
			memset(index->canreturn, false, sizeof(bool) * index->ncolumns);
	}
}

/* Step 2: the paths of a table are complete. */
void
ttl_docs_replace_paths(PlannerInfo *root, RelOptInfo *rel, RangeTblEntry *rte)
{
	Collection	collection;

	if (rte->rtekind == RTE_RELATION && rel->indexlist != NIL &&
		ttl_docs_lookup_collection(rte->relid, &collection) &&
		(has_blind_path(rel->pathlist, &collection) ||
		 has_blind_path(rel->partial_pathlist, &collection)))
		make_paths_again(root, rel, &collection);
}

/* Does the index return _ts and _ttl, which the test needs? */
static bool
covers_test(const IndexOptInfo *index, const Collection *collection)
{
	bool		ts = false;
	bool		ttl = false;

	for (int i = 0; i < index->ncolumns; i++)
	{
		if (!index->canreturn[i])
			continue;
		ts |= index->indexkeys[i] == collection->ts;
		ttl |= index->indexkeys[i] == collection->ttl;
	}
	return ts && ttl;
}

/* Is there an index-only path whose index does not return _ts and _ttl? */
static bool
has_blind_path(List *paths, const Collection *collection)
{
	ListCell   *lc;

	foreach(lc, paths)
	{
		Path	   *path = lfirst(lc);

		if (path->pathtype == T_IndexOnlyScan && IsA(path, IndexPath) &&
			!covers_test(((IndexPath *) path)->indexinfo, collection))
			return true;
	}
	return false;
}

/*
 * Creates the paths of a plain table as core does, but as if the query needed
 * _ts and _ttl.  We add the two columns only while core creates the index
 * paths: the columns that the scan returns do not change.
 */
static void
make_paths_again(PlannerInfo *root, RelOptInfo *rel, const Collection *collection)
{
	List	   *needed = rel->reltarget->exprs;
	Var		   *ts = makeVar(rel->relid, collection->ts, TIMESTAMPTZOID, -1,
							 InvalidOid, 0);
	Var		   *ttl = makeVar(rel->relid, collection->ttl, INT4OID, -1,
							  InvalidOid, 0);

	List	   *before = rel->pathlist;
	List	   *partial_before = rel->partial_pathlist;
	ListCell   *lc;

	rel->pathlist = NIL;
	rel->partial_pathlist = NIL;
	foreach(lc, before)
		if (IsA(lfirst(lc), CustomPath))
			add_path(rel, lfirst(lc));
	foreach(lc, partial_before)
		if (IsA(lfirst(lc), CustomPath))
			add_partial_path(rel, lfirst(lc));
	add_path(rel, create_seqscan_path(root, rel, rel->lateral_relids, 0));
	if (rel->consider_parallel && rel->lateral_relids == NULL)
	{
		int			workers = compute_parallel_worker(rel, rel->pages, -1,
													  max_parallel_workers_per_gather);

		if (workers > 0)
			add_partial_path(rel, create_seqscan_path(root, rel, NULL, workers));
	}

	rel->reltarget->exprs = lappend(lappend(list_copy(needed), ts), ttl);
	create_index_paths(root, rel);
	rel->reltarget->exprs = needed;

	(void) create_tidscan_paths(root, rel);
}
