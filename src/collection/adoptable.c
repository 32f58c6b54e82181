/*-------------------------------------------------------------------------
 *
 * adoptable.c
 *		Which tables can be collections.
 *
 * adopt(), SECURITY LABEL and ATTACH PARTITION call these checks.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/catalog.h"
#include "catalog/partition.h"
#include "catalog/pg_am.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "commands/defrem.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "collection/collection_internal.h"

static void require_suitable_citus_table(Relation rel);
static void require_no_inheritance(Relation rel);
static void require_suitable_partitions(Relation rel);

/*
 * Raises an error unless this kind of table can be a collection.  Does not
 * check the columns, except those of a partition key.
 */
void
ttl_docs_require_adoptable(Relation rel)
{
	char		relkind = rel->rd_rel->relkind;

	if (IsCatalogRelation(rel) || IsToastRelation(rel))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("system catalog \"%s\" cannot be a collection",
						RelationGetRelationName(rel))));
	if (relkind != RELKIND_RELATION && relkind != RELKIND_PARTITIONED_TABLE)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("\"%s\" cannot be a collection",
						RelationGetRelationName(rel)),
				 errdetail_relkind_not_supported(relkind),
				 errhint("Only plain and partitioned tables can be collections.")));
	if (rel->rd_rel->relpersistence == RELPERSISTENCE_TEMP)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("temporary table \"%s\" cannot be a collection",
						RelationGetRelationName(rel)),
				 errhint("Use a plain or an unlogged table.")));
	ttl_docs_require_heap(rel);
	require_suitable_citus_table(rel);
	require_no_inheritance(rel);
	require_suitable_partitions(rel);
}

/*
 * Raises an error unless the rows are in a heap.  Other table access methods,
 * such as columnar, cannot delete or lock single rows.
 */
void
ttl_docs_require_heap(Relation rel)
{
	if (rel->rd_rel->relkind == RELKIND_RELATION &&
		rel->rd_rel->relam != HEAP_TABLE_AM_OID)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("table \"%s\" cannot be part of a collection because its access method is \"%s\"",
						RelationGetRelationName(rel), get_am_name(rel->rd_rel->relam)),
				 errdetail("The purge deletes single rows, and other access methods than \"heap\" may not support that."),
				 errhint("Use a table with the access method \"heap\".")));
}

/*
 * Raises an error if the table is a shard of Citus: its settings are those of
 * the distributed table.
 */
void
ttl_docs_refuse_shard(Oid relid)
{
	int64		shard;
	Oid			shell = ttl_docs_shell_of_shard(relid, &shard);

	if (OidIsValid(shell))
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("\"%s\" is a shard of the distributed table \"%s\"",
						get_rel_name(relid), get_rel_name(shell)),
				 errhint("Call the function for \"%s\".", get_rel_name(shell))));
}

/*
 * Raises an error if Citus keeps several copies of each row, because each
 * copy would have its own _ts.  Also refuses a shard.
 */
static void
require_suitable_citus_table(Relation rel)
{
	Oid			relid = RelationGetRelid(rel);
	CitusKind	kind = ttl_docs_citus_kind(relid);

	if (kind == CITUS_REPLICATED)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("replicated Citus table \"%s\" cannot be a collection",
						RelationGetRelationName(rel)),
				 errdetail("Citus stores several copies of each row of a reference table, or of a table with citus.shard_replication_factor > 1. Each copy would get its own \"%s\", and would expire at another time.",
						   TTL_DOCS_TS_COLUMN),
				 errhint("Use a distributed table with one copy of each row.")));
	if (kind == CITUS_SHELL)
		ttl_docs_require_supported_citus();
	if (!ttl_docs_label_comes_from_citus())
		ttl_docs_refuse_shard(relid);
}

/* Raises an error: Citus manages a partitioned table or a partition, not both. */
void
ttl_docs_report_mixed_partition(Oid parent, Oid child)
{
	ereport(ERROR,
			(errcode(ERRCODE_WRONG_OBJECT_TYPE),
			 errmsg("\"%s\" cannot be a partition of the collection \"%s\" because Citus manages only one of them",
					get_rel_name(child), get_rel_name(parent)),
			 errhint("Make both plain tables with undistribute_table(), or distribute \"%s\" with its partitions.",
					 get_rel_name(parent))));
}

/*
 * Raises an error if the table is a partition or takes part in inheritance.
 * Inheritance children do not inherit the trigger and the purge index.
 */
static void
require_no_inheritance(Relation rel)
{
	Oid			relid = RelationGetRelid(rel);

	if (rel->rd_rel->relispartition)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("partition \"%s\" cannot be a collection by itself",
						RelationGetRelationName(rel)),
				 errhint("Adopt the partitioned table that it belongs to.")));
	if (has_superclass(relid))
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("inheritance child \"%s\" cannot be a collection",
						RelationGetRelationName(rel)),
				 errhint("Use ALTER TABLE ... NO INHERIT, or a partitioned table.")));
	if (rel->rd_rel->relkind == RELKIND_RELATION &&
		find_inheritance_children(relid, NoLock) != NIL)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("inheritance parent \"%s\" cannot be a collection",
						RelationGetRelationName(rel)),
				 errhint("Use a partitioned table instead of inheritance.")));
}

/*
 * Raises an error if a partition cannot be part of a collection.  A foreign
 * table cannot, because its server would neither filter nor stamp documents.
 */
static void
require_suitable_partitions(Relation rel)
{
	List	   *tables;
	ListCell   *lc;

	if (rel->rd_rel->relkind != RELKIND_PARTITIONED_TABLE)
		return;
	tables = find_all_inheritors(RelationGetRelid(rel), AccessShareLock, NULL);
	foreach(lc, tables)
	{
		Relation	part = table_open(lfirst_oid(lc), NoLock);

		if (part->rd_rel->relkind == RELKIND_FOREIGN_TABLE)
			ereport(ERROR,
					(errcode(ERRCODE_WRONG_OBJECT_TYPE),
					 errmsg("\"%s\" cannot be a collection: its partition \"%s\" is a foreign table",
							RelationGetRelationName(rel),
							RelationGetRelationName(part)),
					 errhint("Detach the foreign table first with ALTER TABLE ... DETACH PARTITION.")));
		ttl_docs_require_heap(part);
		if (ttl_docs_citus_kind(RelationGetRelid(part)) !=
			ttl_docs_citus_kind(RelationGetRelid(rel)))
			ttl_docs_report_mixed_partition(RelationGetRelid(rel), RelationGetRelid(part));
		ttl_docs_refuse_system_column_in_key(part);
		table_close(part, NoLock);
	}
	list_free(tables);
}

/*
 * Raises an error if the partition key uses a system column.  A write can
 * change the system columns, so they cannot decide where a row belongs.
 */
void
ttl_docs_refuse_system_column_in_key(Relation rel)
{
	static const char *const names[] = {
		TTL_DOCS_TS_COLUMN, TTL_DOCS_TTL_COLUMN, TTL_DOCS_SLOT_COLUMN
	};

	if (rel->rd_rel->relkind != RELKIND_PARTITIONED_TABLE)
		return;
	for (size_t i = 0; i < lengthof(names); i++)
	{
		AttrNumber	attno = get_attnum(RelationGetRelid(rel), names[i]);
		Bitmapset  *columns;

		if (attno == InvalidAttrNumber)
			continue;
		columns = bms_make_singleton(attno - FirstLowInvalidHeapAttributeNumber);
		if (has_partition_attrs(rel, columns, NULL))
			ereport(ERROR,
					(errcode(ERRCODE_WRONG_OBJECT_TYPE),
					 errmsg("the system column \"%s\" of a collection cannot be part of the partition key of \"%s\"",
							names[i], RelationGetRelationName(rel)),
					 errdetail("A write can change the system columns."),
					 errhint("Partition the table by another column.")));
	}
}

/*
 * Returns the number of a system column, or InvalidAttrNumber if the table
 * has no column of that name.  Raises an error if the column has another
 * type, or is generated or an identity column.
 */
AttrNumber
ttl_docs_find_system_column(Relation rel, const char *name, Oid type)
{
	Oid			relid = RelationGetRelid(rel);
	AttrNumber	attno = get_attnum(relid, name);
	Form_pg_attribute att;

	if (attno == InvalidAttrNumber)
		return InvalidAttrNumber;
	att = TupleDescAttr(RelationGetDescr(rel), attno - 1);
	if (att->atttypid != type || att->attgenerated || att->attidentity)
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("column \"%s\" of table \"%s\" conflicts with a ttl_docs system column",
						name, RelationGetRelationName(rel)),
				 att->attgenerated ?
				 errdetail("The column is a generated column of type %s, but the system column is a plain column of type %s.",
						   format_type_be(att->atttypid), format_type_be(type)) :
				 att->attidentity ?
				 errdetail("The column is an identity column of type %s, but the system column is a plain column of type %s.",
						   format_type_be(att->atttypid), format_type_be(type)) :
				 errdetail("The column is of type %s, but the system column is of type %s.",
						   format_type_be(att->atttypid), format_type_be(type)),
				 errhint("Rename the column with ALTER TABLE ... RENAME COLUMN.")));
	return attno;
}
