/*-------------------------------------------------------------------------
 *
 * purge_index.c
 *		Recognises, builds and drops the purge index of a table.
 *
 * We recognise the purge index by its definition, not by its name: an index
 * on _slot alone, with the access method of the indexing mode.  So users can
 * rename it, reindex it concurrently, or replace it.
 *
 * A btree has entries for all rows.  Documents that never expire have NULL in
 * _slot, and their entries are at the far end, behind the slots.  So the ends
 * of the index show whether every document of the table has expired.  Older
 * collections, and tables whose owner has created such an index, have a partial
 * index "WHERE _slot IS NOT NULL".  The purge finds expired documents with it,
 * but it does not show whether there are others.  set_indexing() replaces it.
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
							 PurgeIndexForm form);
static List *list_all_indexes(Relation rel);
static bool has_form(Relation rel, Oid indexid, IndexingMode indexing,
					 PurgeIndexForm form);
static bool has_definition(Relation index, AttrNumber slot, IndexingMode indexing);
static Node *index_predicate(Relation index);
static bool is_slot_not_null(Node *predicate, AttrNumber slot);
static void drop_purge_indexes(Oid root, IndexingMode indexing, PurgeIndexForm form);

/*
 * Returns a valid purge index of the table for the mode, or InvalidOid.  If
 * there are several, returns one that has entries for all rows.
 */
Oid
ttl_docs_purge_index(Relation rel, IndexingMode indexing)
{
	return ttl_docs_other_purge_index(rel, indexing, InvalidOid);
}

/* Returns a valid purge index other than "excluded", or InvalidOid. */
Oid
ttl_docs_other_purge_index(Relation rel, IndexingMode indexing, Oid excluded)
{
	Oid			found = find_purge_index(rel, indexing, excluded, INDEX_WHOLE);

	return OidIsValid(found) ? found :
		find_purge_index(rel, indexing, excluded, INDEX_PARTIAL);
}

/*
 * Returns a valid purge index that has entries for all rows, or InvalidOid.
 * This includes documents that never expire.
 */
Oid
ttl_docs_whole_purge_index(Relation rel, IndexingMode indexing)
{
	return find_purge_index(rel, indexing, InvalidOid, INDEX_WHOLE);
}

static Oid
find_purge_index(Relation rel, IndexingMode indexing, Oid excluded, PurgeIndexForm form)
{
	List	   *indexes;
	ListCell   *lc;
	Oid			found = InvalidOid;

	if (indexing == INDEXING_NONE)
		return InvalidOid;
	indexes = form == INDEX_INVALID ? list_all_indexes(rel) : RelationGetIndexList(rel);
	foreach(lc, indexes)
	{
		if (lfirst_oid(lc) == excluded ||
			!has_form(rel, lfirst_oid(lc), indexing, form))
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

/* Is the index a purge index for the mode, of this form? */
static bool
has_form(Relation rel, Oid indexid, IndexingMode indexing, PurgeIndexForm form)
{
	/* DROP INDEX or REINDEX CONCURRENTLY may have dropped it by now */
	Relation	index = try_relation_open(indexid, AccessShareLock);
	AttrNumber	slot;
	bool		result = false;

	if (index == NULL)
		return false;
	slot = get_attnum(RelationGetRelid(rel), TTL_DOCS_SLOT_COLUMN);
	if (slot != InvalidAttrNumber && has_definition(index, slot, indexing) &&
		index->rd_index->indisvalid == (form != INDEX_INVALID))
	{
		Node	   *predicate = index_predicate(index);

		/* a partial index must contain every document that can expire */
		result = form == INDEX_PARTIAL ?
			predicate != NULL && indexing == INDEXING_CONSISTENT &&
			is_slot_not_null(predicate, slot) :
			predicate == NULL;
	}
	relation_close(index, AccessShareLock);
	return result;
}

/* Is it, apart from its predicate, defined as a purge index for the mode? */
static bool
has_definition(Relation index, AttrNumber slot, IndexingMode indexing)
{
	Form_pg_index form = index->rd_index;

	if (form->indisunique || form->indnatts != 1 || form->indkey.values[0] != slot)
		return false;
	if (indexing == INDEXING_LAZY)
		return index->rd_rel->relam == BRIN_AM_OID;

	/* ascending, nulls last: the purge reads the earliest slots first */
	return index->rd_rel->relam == BTREE_AM_OID &&
		(index->rd_rel->relkind != RELKIND_INDEX ||
		 (index->rd_indoption[0] == 0 &&
		  index->rd_opfamily[0] == INTEGER_BTREE_FAM_OID));
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
	if (!OidIsValid(ttl_docs_table_purge_index(relid, indexing, INDEX_PARTIAL)))
		ttl_docs_create_whole_purge_index(relid, indexing);
}

/*
 * Builds the purge index for a mode, unless the table already has one that has
 * entries for all rows.
 */
void
ttl_docs_create_whole_purge_index(Oid relid, IndexingMode indexing)
{
	if (indexing != INDEXING_NONE &&
		!OidIsValid(ttl_docs_table_purge_index(relid, indexing, INDEX_WHOLE)))
		ttl_docs_run_ddl("CREATE INDEX ON %s %s", ttl_docs_quoted_name(relid),
						 ttl_docs_purge_index_definition(indexing));
}

/* The part of CREATE INDEX after the name of the table */
const char *
ttl_docs_purge_index_definition(IndexingMode indexing)
{
	return indexing == INDEXING_LAZY ?
		"USING brin (" TTL_DOCS_SLOT_COLUMN ")" : "USING btree (" TTL_DOCS_SLOT_COLUMN ")";
}

/*
 * Drops all purge indexes of a collection except those that have entries for
 * all rows and are for a mode.
 */
void
ttl_docs_drop_other_purge_indexes(Oid root, IndexingMode kept)
{
	for (IndexingMode mode = 0; mode < INDEXING_NONE; mode++)
	{
		/* an index that is not valid can have valid ones of partitions */
		drop_purge_indexes(root, mode, INDEX_INVALID);
		drop_purge_indexes(root, mode, INDEX_PARTIAL);
		if (mode != kept)
			drop_purge_indexes(root, mode, INDEX_WHOLE);
	}
}

/*
 * Drops the purge indexes for a mode that are not valid.  Nobody is building
 * them: the caller holds ACCESS EXCLUSIVE.
 */
void
ttl_docs_drop_invalid_purge_indexes(Oid root, IndexingMode indexing)
{
	drop_purge_indexes(root, indexing, INDEX_INVALID);
}

/*
 * Drops the purge indexes of one form for a mode.  The index of a partitioned
 * table takes the indexes of its partitions along, so it goes first.  A
 * concurrent change that did not finish leaves indexes of partitions that have
 * no parent.
 */
static void
drop_purge_indexes(Oid root, IndexingMode indexing, PurgeIndexForm form)
{
	List	   *tables = ttl_docs_partition_tree(root, NoLock);
	ListCell   *lc;

	foreach(lc, tables)
	{
		Oid			index;

		while (OidIsValid(index = ttl_docs_table_purge_index(lfirst_oid(lc), indexing,
															  form)))
			ttl_docs_run_ddl("DROP INDEX %s", ttl_docs_quoted_name(index));
	}
	list_free(tables);
}

/*
 * Returns a purge index of a table that has a form, or InvalidOid.  The table
 * may be gone.
 */
Oid
ttl_docs_table_purge_index(Oid relid, IndexingMode indexing, PurgeIndexForm form)
{
	Relation	rel = try_table_open(relid, AccessShareLock);
	Oid			index;

	if (rel == NULL)
		return InvalidOid;
	index = find_purge_index(rel, indexing, InvalidOid, form);
	table_close(rel, AccessShareLock);
	return index;
}

/*
 * Returns the names of the indexes that a change from one mode to another
 * replaces, in all tables of a collection.  If the mode stays, these are the
 * indexes that do not have entries for all rows.
 */
List *
ttl_docs_replaced_purge_indexes(Oid root, IndexingMode before, IndexingMode after)
{
	List	   *tables = ttl_docs_partition_tree(root, NoLock);
	List	   *names = NIL;
	ListCell   *lc;

	foreach(lc, tables)
	{
		Oid			index = before == after ? InvalidOid :
			ttl_docs_table_purge_index(lfirst_oid(lc), before, INDEX_WHOLE);
		TableIndexName *item;

		if (!OidIsValid(index))
			index = ttl_docs_table_purge_index(lfirst_oid(lc), before, INDEX_PARTIAL);
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
		Oid			index = ttl_docs_table_purge_index(item->relid, indexing, INDEX_WHOLE);

		if (OidIsValid(index) && strcmp(get_rel_name(index), NameStr(item->name)) != 0)
			ttl_docs_run_ddl("ALTER INDEX %s RENAME TO %s", ttl_docs_quoted_name(index),
							 quote_identifier(NameStr(item->name)));
	}
}
