/*-------------------------------------------------------------------------
 *
 * purge_index.c
 *		Recognises, builds and drops the purge index of a table.
 *
 * We recognise the purge index by its definition, not by its name: an index
 * on _slot alone, with the access method of the indexing mode.  So users can
 * rename it, reindex it concurrently, or replace it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/relation.h"
#include "access/table.h"
#include "catalog/pg_am.h"
#include "catalog/pg_class.h"
#include "catalog/pg_index.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_opfamily.h"
#include "catalog/pg_trigger.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"

#include "collection/collection_internal.h"

static Oid	find_purge_index(Relation rel, IndexingMode indexing, Oid excluded,
							 bool is_valid);
static List *list_all_indexes(Relation rel);
static bool is_purge_index(Relation rel, Oid indexid, IndexingMode indexing,
						   bool is_valid);
static Node *index_predicate(Relation index);
static void drop_purge_indexes(Oid root, IndexingMode indexing, bool valid);
static bool is_slot_not_null(Node *predicate, AttrNumber slot);

/* Returns a valid purge index of the table for the mode, or InvalidOid. */
Oid
ttl_docs_purge_index(Relation rel, IndexingMode indexing)
{
	return ttl_docs_other_purge_index(rel, indexing, InvalidOid);
}

/* Returns a valid purge index other than "excluded", or InvalidOid. */
Oid
ttl_docs_other_purge_index(Relation rel, IndexingMode indexing, Oid excluded)
{
	return find_purge_index(rel, indexing, excluded, true);
}

/*
 * Returns a purge index that is not valid, or InvalidOid.  A concurrent build
 * that has failed leaves one behind.  The index of a partitioned table is not
 * valid as long as a partition has no index that is attached to it.
 */
Oid
ttl_docs_invalid_purge_index(Relation rel, IndexingMode indexing)
{
	return find_purge_index(rel, indexing, InvalidOid, false);
}

static Oid
find_purge_index(Relation rel, IndexingMode indexing, Oid excluded, bool is_valid)
{
	List	   *indexes;
	ListCell   *lc;
	Oid			found = InvalidOid;

	if (indexing == INDEXING_NONE)
		return InvalidOid;
	indexes = is_valid ? RelationGetIndexList(rel) : list_all_indexes(rel);
	foreach(lc, indexes)
	{
		if (lfirst_oid(lc) == excluded ||
			!is_purge_index(rel, lfirst_oid(lc), indexing, is_valid))
			continue;
		found = lfirst_oid(lc);
		/* for a partition, the index that belongs to the index of its parent */
		if (!rel->rd_rel->relispartition || get_rel_relispartition(found))
			break;
	}
	list_free(indexes);
	return found;
}

/*
 * Lists all indexes of a table.  Core's list leaves out indexes that DROP INDEX
 * CONCURRENTLY has begun to drop, and did not finish.
 */
static List *
list_all_indexes(Relation rel)
{
	Relation	indexes = table_open(IndexRelationId, AccessShareLock);
	List	   *found = NIL;
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;

	ScanKeyInit(&key, Anum_pg_index_indrelid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(RelationGetRelid(rel)));
	scan = systable_beginscan(indexes, IndexIndrelidIndexId, true, NULL, 1, &key);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
		found = lappend_oid(found, ((Form_pg_index) GETSTRUCT(tuple))->indexrelid);
	systable_endscan(scan);
	table_close(indexes, AccessShareLock);
	return found;
}

static bool
is_purge_index(Relation rel, Oid indexid, IndexingMode indexing, bool is_valid)
{
	/* DROP INDEX or REINDEX CONCURRENTLY may have dropped it by now */
	Relation	index = try_relation_open(indexid, AccessShareLock);
	AttrNumber	slot;
	bool		result;

	if (index == NULL)
		return false;
	slot = get_attnum(RelationGetRelid(rel), TTL_DOCS_SLOT_COLUMN);
	result = slot != InvalidAttrNumber &&
		index->rd_index->indisvalid == is_valid &&
		index->rd_index->indnatts == 1 &&
		index->rd_index->indkey.values[0] == slot &&
		!index->rd_index->indisunique &&
		index->rd_rel->relam == (indexing == INDEXING_LAZY ?
								 BRIN_AM_OID : BTREE_AM_OID);

	/* ascending, because the purge reads the earliest slots first */
	if (result && indexing == INDEXING_CONSISTENT &&
		index->rd_rel->relkind == RELKIND_INDEX)
		result = index->rd_indoption[0] == 0 &&
			index->rd_opfamily[0] == INTEGER_BTREE_FAM_OID;

	/* a partial index must contain every document that can expire */
	if (result)
	{
		Node	   *predicate = index_predicate(index);

		result = predicate == NULL ||
			(indexing == INDEXING_CONSISTENT && is_slot_not_null(predicate, slot));
	}
	relation_close(index, AccessShareLock);
	return result;
}

/*
 * Returns the predicate of an index as it is stored.  We do not use core's
 * RelationGetIndexPredicate(): it evaluates constant parts of the predicate,
 * and so can run functions of the owner.  A purge worker has more rights than
 * the owner, and must not run these functions.
 */
static Node *
index_predicate(Relation index)
{
	HeapTuple	tuple = SearchSysCache1(INDEXRELID,
										ObjectIdGetDatum(RelationGetRelid(index)));
	Node	   *predicate = NULL;
	Datum		text_form;
	bool		isnull;

	if (!HeapTupleIsValid(tuple))
		return NULL;
	text_form = SysCacheGetAttr(INDEXRELID, tuple, Anum_pg_index_indpred, &isnull);
	if (!isnull)
		predicate = stringToNode(TextDatumGetCString(text_form));
	ReleaseSysCache(tuple);
	return predicate;
}

/* Is the predicate exactly "_slot IS NOT NULL"? */
static bool
is_slot_not_null(Node *predicate, AttrNumber slot)
{
	NullTest   *test = (NullTest *) predicate;

	return IsA(predicate, NullTest) &&
		test->nulltesttype == IS_NOT_NULL && IsA(test->arg, Var) &&
		((Var *) test->arg)->varattno == slot;
}

/* Builds the purge index for a mode, unless the table already has one. */
void
ttl_docs_create_purge_index(Oid relid, IndexingMode indexing)
{
	Relation	rel = table_open(relid, AccessShareLock);
	bool		exists = OidIsValid(ttl_docs_purge_index(rel, indexing));

	table_close(rel, NoLock);
	if (exists || indexing == INDEXING_NONE)
		return;
	ttl_docs_run_ddl("CREATE INDEX ON %s %s", ttl_docs_quoted_name(relid),
					 ttl_docs_purge_index_definition(indexing));
}

/* The part of CREATE INDEX after the name of the table */
const char *
ttl_docs_purge_index_definition(IndexingMode indexing)
{
	return indexing == INDEXING_LAZY ?
		"USING brin (" TTL_DOCS_SLOT_COLUMN ")" :
		"USING btree (" TTL_DOCS_SLOT_COLUMN ") WHERE " TTL_DOCS_SLOT_COLUMN " IS NOT NULL";
}

/* Drops all purge indexes of a collection except those for a mode. */
void
ttl_docs_drop_other_purge_indexes(Oid root, IndexingMode kept)
{
	for (IndexingMode mode = 0; mode < INDEXING_NONE; mode++)
	{
		/* an index that is not valid can have valid ones of partitions */
		drop_purge_indexes(root, mode, false);
		if (mode != kept)
			drop_purge_indexes(root, mode, true);
	}
}

/*
 * Drops the purge indexes for a mode that are not valid.  Nobody is building
 * them: the caller holds ACCESS EXCLUSIVE.
 */
void
ttl_docs_drop_invalid_purge_indexes(Oid root, IndexingMode indexing)
{
	drop_purge_indexes(root, indexing, false);
}

/*
 * Drops the valid or the invalid purge indexes for a mode.  The index of a
 * partitioned table takes the indexes of its partitions along, so it goes
 * first.  A concurrent change that did not finish leaves indexes of partitions
 * that have no parent.
 */
static void
drop_purge_indexes(Oid root, IndexingMode indexing, bool valid)
{
	List	   *tables = ttl_docs_partition_tree(root, NoLock);
	ListCell   *lc;

	foreach(lc, tables)
	{
		Oid			index;

		while (OidIsValid(index = ttl_docs_table_purge_index(lfirst_oid(lc), indexing,
															  valid)))
			ttl_docs_run_ddl("DROP INDEX %s", ttl_docs_quoted_name(index));
	}
	list_free(tables);
}

/*
 * Returns a valid or invalid purge index of a table, or InvalidOid.  The table
 * may be gone.
 */
Oid
ttl_docs_table_purge_index(Oid relid, IndexingMode indexing, bool valid)
{
	Relation	rel = try_table_open(relid, AccessShareLock);
	Oid			index;

	if (rel == NULL)
		return InvalidOid;
	index = find_purge_index(rel, indexing, InvalidOid, valid);
	table_close(rel, AccessShareLock);
	return index;
}

/* Returns the names of the purge indexes of all tables of a collection. */
List *
ttl_docs_purge_index_names(Oid root, IndexingMode indexing)
{
	List	   *tables = ttl_docs_partition_tree(root, NoLock);
	List	   *names = NIL;
	ListCell   *lc;

	foreach(lc, tables)
	{
		Oid			index = ttl_docs_table_purge_index(lfirst_oid(lc), indexing, true);
		TableIndexName *item;

		if (!OidIsValid(index))
			continue;
		item = palloc(sizeof(TableIndexName));
		item->relid = lfirst_oid(lc);
		item->index = index;
		namestrcpy(&item->name, get_rel_name(index));
		names = lappend(names, item);
	}
	list_free(tables);
	return names;
}

/* Gives these names to the purge indexes for a mode. */
void
ttl_docs_rename_purge_indexes(List *names, IndexingMode indexing)
{
	ListCell   *lc;

	foreach(lc, names)
	{
		TableIndexName *item = lfirst(lc);
		Oid			index = ttl_docs_table_purge_index(item->relid, indexing, true);

		if (OidIsValid(index) && strcmp(get_rel_name(index), NameStr(item->name)) != 0)
			ttl_docs_run_ddl("ALTER INDEX %s RENAME TO %s", ttl_docs_quoted_name(index),
							 quote_identifier(NameStr(item->name)));
	}
}
