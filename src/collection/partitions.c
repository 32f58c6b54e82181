/*-------------------------------------------------------------------------
 *
 * partitions.c
 *		Lists the tables of a collection: its root and all partitions.
 *
 * Core's lists leave out partitions that are being detached concurrently.
 * These partitions belong to the collection until the command ends, so some
 * callers need them.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/partition.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"

#include "collection/collection_internal.h"

/*
 * Returns a table and its partitions of all levels, including those that are
 * being detached concurrently.  Locks the partitions, but not the table
 * itself.
 */
List *
ttl_docs_partition_tree(Oid relid, LOCKMODE lockmode)
{
	List	   *tables = list_make1_oid(relid);

	for (int i = 0; i < list_length(tables); i++)
		tables = list_concat(tables,
							 find_inheritance_children_extended(list_nth_oid(tables, i),
																false, lockmode,
																NULL, NULL));
	return tables;
}

/*
 * Returns the OIDs of the tables that hold the documents of a collection.  A
 * shell of Citus holds none.
 */
List *
ttl_docs_collection_tables(Oid root)
{
	List	   *members;
	List	   *tables = NIL;
	ListCell   *lc;

	if (ttl_docs_is_shell(root))
		return NIL;
	members = find_all_inheritors(root, NoLock, NULL);
	foreach(lc, members)
		if (get_rel_relkind(lfirst_oid(lc)) == RELKIND_RELATION)
			tables = lappend_oid(tables, lfirst_oid(lc));
	list_free(members);
	return tables;
}

/*
 * Returns a partition that is being detached concurrently, or InvalidOid.  It
 * belongs to the collection until the command ends.
 */
Oid
ttl_docs_pending_partition(Oid relid)
{
	List	   *tables;
	List	   *attached;
	Oid			found = InvalidOid;
	ListCell   *lc;

	/*
	 * Core's list leaves such a partition out only if the active snapshot sees that
	 * it is being detached.  The caller's snapshot can be older: the caller may have
	 * waited for the lock of the table.
	 */
	PushActiveSnapshot(GetLatestSnapshot());
	tables = ttl_docs_partition_tree(relid, NoLock);
	attached = find_all_inheritors(relid, NoLock, NULL);
	PopActiveSnapshot();
	foreach(lc, tables)
		if (!list_member_oid(attached, lfirst_oid(lc)))
			found = lfirst_oid(lc);
	list_free(tables);
	list_free(attached);
	return found;
}

/*
 * Raises an error if a partition is being detached concurrently.  Commands on
 * the root do not reach such a partition, so we could not change all tables
 * of the collection.
 */
void
ttl_docs_require_no_pending_detach(Oid relid)
{
	Oid			partition = ttl_docs_pending_partition(relid);
	Oid			parent;

	if (!OidIsValid(partition))
		return;
	parent = get_partition_parent(partition, true);
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("partition \"%s\" of \"%s\" is being detached concurrently",
					get_rel_name(partition), get_rel_name(parent)),
			 errhint("Run ALTER TABLE %s DETACH PARTITION %s FINALIZE first.",
					 ttl_docs_quoted_name(parent),
					 ttl_docs_quoted_name(partition))));
}
