/*-------------------------------------------------------------------------
 *
 * build_index.c
 *		Builds the purge index of a collection, while others use the tables.
 *
 * A plain table gets its index with CREATE INDEX CONCURRENTLY, which needs no
 * lock that keeps readers or writers out.  Core has no such command for a
 * partitioned table.  So we do these steps:
 *
 * 1. CREATE INDEX ON ONLY for each partitioned table, from top to bottom.  The
 *	  index is not valid yet.
 * 2. CREATE INDEX CONCURRENTLY for each partition with rows.
 * 3. ALTER INDEX ... ATTACH PARTITION for each partition.  The index of the
 *	  root becomes valid with the last one.
 *
 * If the last partition without an attached index is detached or dropped in
 * between, core leaves the index of its parent invalid.  Then we make it valid.
 *
 * Steps 1 and 3 need strong locks, but are quick (brief_lock.c).  If a partition
 * is created or attached after step 1, core builds its index.
 * Partitions that are detached or dropped meanwhile do not matter.  We repeat
 * the steps until the root has a valid index.
 *
 * A build that failed leaves an index that is not valid.  It is dropped first,
 * concurrently.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/indexing.h"
#include "catalog/partition.h"
#include "catalog/pg_class.h"
#include "catalog/pg_index.h"
#include "catalog/pg_inherits.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "online/online_internal.h"

/* An index to create or to attach */
typedef struct IndexStep
{
	Oid			relid;			/* the table */
	IndexingMode indexing;
	Oid			parent;			/* the partitioned table; or InvalidOid */
	Oid			parent_index;	/* to attach to; or InvalidOid */
} IndexStep;

static void build_part(Oid relid, Oid parent, IndexingMode indexing);
static void build_on_table(Oid relid, IndexingMode indexing);
static void create_on_only(void *arg, BriefLock *lock);
static void attach(void *arg, BriefLock *lock);
static void make_valid(void *arg, BriefLock *lock);
static bool is_whole(Oid relid, Oid index, IndexingMode indexing);
static List *partitions_of(Oid relid);
static Oid	any_purge_index(Oid relid, IndexingMode indexing);

/* Builds what is missing of the purge index of a collection. */
void
ttl_docs_build_purge_index(Oid root, IndexingMode indexing)
{
	if (indexing == INDEXING_NONE)
		return;
	while (get_rel_name(root) != NULL && !ttl_docs_has_built_purge_index(root, indexing))
	{
		CHECK_FOR_INTERRUPTS();
		ttl_docs_set_phase(PHASE_INDEX);
		build_part(root, InvalidOid, indexing);
	}
}

/* Does the table have a valid purge index, partitions included? */
bool
ttl_docs_has_built_purge_index(Oid root, IndexingMode indexing)
{
	return indexing == INDEXING_NONE ||
		OidIsValid(ttl_docs_table_purge_index(root, indexing, INDEX_WHOLE));
}

/*
 * Builds the index of a table and its partitions, and attaches it to that of
 * its parent, if it has one.
 */
static void
build_part(Oid relid, Oid parent, IndexingMode indexing)
{
	IndexStep	step = {.relid = relid, .indexing = indexing, .parent = parent};
	ListCell   *lc;

	if (OidIsValid(parent) && !list_member_oid(partitions_of(parent), relid))
		return;
	if (get_rel_relkind(relid) == RELKIND_PARTITIONED_TABLE)
	{
		List	   *children;

		ttl_docs_do_briefly(create_on_only, &step, relid);
		children = partitions_of(relid);
		foreach(lc, children)
			build_part(lfirst_oid(lc), relid, indexing);
		list_free(children);
		if (!OidIsValid(ttl_docs_table_purge_index(relid, indexing, INDEX_WHOLE)))
			ttl_docs_do_briefly(make_valid, &step, relid);
	}
	else if (get_rel_relkind(relid) == RELKIND_RELATION)
		build_on_table(relid, indexing);
	if (!OidIsValid(parent))
		return;
	step.parent_index = any_purge_index(parent, indexing);
	if (OidIsValid(step.parent_index))
		ttl_docs_do_briefly(attach, &step, relid);
}

/* Builds the index of a table without partitions. */
static void
build_on_table(Oid relid, IndexingMode indexing)
{
	Oid			failed;

	while (OidIsValid(failed = ttl_docs_table_purge_index(relid, indexing, INDEX_INVALID)))
		ttl_docs_run_committing(psprintf("DROP INDEX CONCURRENTLY IF EXISTS %s",
										 ttl_docs_quoted_name(failed)));
	if (OidIsValid(ttl_docs_table_purge_index(relid, indexing, INDEX_WHOLE)))
		return;
	ttl_docs_notice_old_transactions(relid);
	/* the table may have been dropped */
	if (get_rel_name(relid) == NULL)
		return;
	ttl_docs_run_committing(psprintf("CREATE INDEX CONCURRENTLY ON %s %s",
									 ttl_docs_quoted_name(relid),
									 ttl_docs_purge_index_definition(indexing)));
}

/* Creates the index of a partitioned table, but not those of its partitions. */
static void
create_on_only(void *arg, BriefLock *lock)
{
	IndexStep  *step = arg;

	ttl_docs_limit_lock_wait(lock);
	if (!OidIsValid(any_purge_index(step->relid, step->indexing)) &&
		get_rel_name(step->relid) != NULL)
		ttl_docs_run_ddl("CREATE INDEX ON ONLY %s %s", ttl_docs_quoted_name(step->relid),
						 ttl_docs_purge_index_definition(step->indexing));
}

/* Attaches the index of a partition, unless core has done so, or it is detached. */
static void
attach(void *arg, BriefLock *lock)
{
	IndexStep  *step = arg;
	Oid			index;

	/* keeps the table from being detached */
	LockRelationOid(step->relid, AccessShareLock);
	index = any_purge_index(step->relid, step->indexing);
	if (!OidIsValid(index) || get_rel_relispartition(index) ||
		!list_member_oid(partitions_of(step->parent), step->relid) ||
		get_rel_name(step->parent_index) == NULL)
		return;
	ttl_docs_limit_lock_wait(lock);
	ttl_docs_run_ddl("ALTER INDEX %s ATTACH PARTITION %s",
					 ttl_docs_quoted_name(step->parent_index),
					 ttl_docs_quoted_name(index));
}

/*
 * Makes the index of a partitioned table valid if each partition has an index
 * that is attached to it.  Core does so when an index is attached, but not
 * when the last partition without an index is detached or dropped.
 */
static void
make_valid(void *arg, BriefLock *lock)
{
	IndexStep  *step = arg;
	Oid			index;
	Relation	catalog;
	HeapTuple	tuple;

	/* keeps partitions from being attached and detached */
	ttl_docs_limit_lock_wait(lock);
	LockRelationOid(step->relid, ShareUpdateExclusiveLock);
	index = ttl_docs_table_purge_index(step->relid, step->indexing, INDEX_INVALID);
	if (!OidIsValid(index) ||
		OidIsValid(ttl_docs_table_purge_index(step->relid, step->indexing, INDEX_WHOLE)) ||
		!is_whole(step->relid, index, step->indexing))
		return;
	/* ALTER INDEX ... ATTACH PARTITION writes the same row under this lock */
	ttl_docs_limit_lock_wait(lock);
	LockRelationOid(index, ShareUpdateExclusiveLock);
	catalog = table_open(IndexRelationId, RowExclusiveLock);
	tuple = SearchSysCacheCopy1(INDEXRELID, ObjectIdGetDatum(index));
	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for index %u", index);
	((Form_pg_index) GETSTRUCT(tuple))->indisvalid = true;
	CatalogTupleUpdate(catalog, &tuple->t_self, tuple);
	heap_freetuple(tuple);
	CacheInvalidateRelcacheByRelid(step->relid);
	table_close(catalog, RowExclusiveLock);
}

/* Has each partition a valid index that is attached to this one? */
static bool
is_whole(Oid relid, Oid index, IndexingMode indexing)
{
	List	   *children = partitions_of(relid);
	ListCell   *lc;

	foreach(lc, children)
	{
		Oid			part = ttl_docs_table_purge_index(lfirst_oid(lc), indexing, INDEX_WHOLE);

		if (!OidIsValid(part) || !get_rel_relispartition(part) ||
			get_partition_parent(part, true) != index)
			return false;
	}
	return true;
}

/* The partitions of a table, without those that are being detached */
static List *
partitions_of(Oid relid)
{
	/* without a snapshot, core's list has them, too */
	bool		pushed = ttl_docs_push_snapshot();
	List	   *children = find_inheritance_children(relid, NoLock);

	if (pushed)
		PopActiveSnapshot();
	return children;
}

/* Returns a purge index of the table, a valid one if possible. */
static Oid
any_purge_index(Oid relid, IndexingMode indexing)
{
	Oid			index = ttl_docs_table_purge_index(relid, indexing, INDEX_WHOLE);

	return OidIsValid(index) ? index :
		ttl_docs_table_purge_index(relid, indexing, INDEX_INVALID);
}
