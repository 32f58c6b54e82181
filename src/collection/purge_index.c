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
 * collections, and tables whose owner has declared it so, have a partial index
 * "WHERE _slot IS NOT NULL".  It serves to find expired documents, but it does
 * not show whether there are others.  set_indexing() replaces it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

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
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"

#include "collection/collection_internal.h"

/* Which rows have an entry in an index? */
typedef enum IndexedRows
{
	ROWS_NOT_ENOUGH,			/* it is not a purge index */
	ROWS_WITH_SLOT,				/* those that can expire */
	ROWS_ALL
} IndexedRows;

static Oid	find_index(Relation rel, IndexingMode indexing, Oid excluded,
					   IndexedRows rows);
static IndexedRows indexed_rows(Relation rel, Oid indexid, IndexingMode indexing);
static bool has_definition(Relation index, AttrNumber slot, IndexingMode indexing);
static Node *index_predicate(Relation index);
static bool is_slot_not_null(Node *predicate, AttrNumber slot);
static bool has_index(Oid relid, IndexingMode indexing, IndexedRows rows);
static void create_index(Oid relid, IndexingMode indexing);
static void drop_indexes(Oid relid, IndexingMode indexing, IndexedRows rows);

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
	Oid			found = find_index(rel, indexing, excluded, ROWS_ALL);

	return OidIsValid(found) ? found :
		find_index(rel, indexing, excluded, ROWS_WITH_SLOT);
}

/*
 * Returns a valid purge index that has entries for all rows, or InvalidOid.
 * This includes documents that never expire.
 */
Oid
ttl_docs_whole_purge_index(Relation rel, IndexingMode indexing)
{
	return find_index(rel, indexing, InvalidOid, ROWS_ALL);
}

/* Returns a valid purge index with entries for exactly these rows. */
static Oid
find_index(Relation rel, IndexingMode indexing, Oid excluded, IndexedRows rows)
{
	List	   *indexes;
	ListCell   *lc;
	Oid			found = InvalidOid;

	if (indexing == INDEXING_NONE)
		return InvalidOid;
	indexes = RelationGetIndexList(rel);
	foreach(lc, indexes)
	{
		if (lfirst_oid(lc) != excluded &&
			indexed_rows(rel, lfirst_oid(lc), indexing) == rows)
		{
			found = lfirst_oid(lc);
			break;
		}
	}
	list_free(indexes);
	return found;
}

static IndexedRows
indexed_rows(Relation rel, Oid indexid, IndexingMode indexing)
{
	/* DROP INDEX or REINDEX CONCURRENTLY may have dropped it by now */
	Relation	index = try_relation_open(indexid, AccessShareLock);
	AttrNumber	slot;
	IndexedRows rows = ROWS_NOT_ENOUGH;

	if (index == NULL)
		return ROWS_NOT_ENOUGH;
	slot = get_attnum(RelationGetRelid(rel), TTL_DOCS_SLOT_COLUMN);
	if (slot != InvalidAttrNumber && has_definition(index, slot, indexing))
	{
		Node	   *predicate = index_predicate(index);

		if (predicate == NULL)
			rows = ROWS_ALL;
		else if (indexing == INDEXING_CONSISTENT && is_slot_not_null(predicate, slot))
			rows = ROWS_WITH_SLOT;
	}
	relation_close(index, AccessShareLock);
	return rows;
}

/* Is the index, apart from its predicate, a valid purge index for the mode? */
static bool
has_definition(Relation index, AttrNumber slot, IndexingMode indexing)
{
	Form_pg_index form = index->rd_index;

	if (!form->indisvalid || form->indisunique || form->indnatts != 1 ||
		form->indkey.values[0] != slot)
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
	if (!has_index(relid, indexing, ROWS_ALL) &&
		!has_index(relid, indexing, ROWS_WITH_SLOT))
		create_index(relid, indexing);
}

/*
 * Builds the purge index for a mode, unless the table already has one that has
 * entries for all rows.
 */
void
ttl_docs_create_whole_purge_index(Oid relid, IndexingMode indexing)
{
	if (!has_index(relid, indexing, ROWS_ALL))
		create_index(relid, indexing);
}

static bool
has_index(Oid relid, IndexingMode indexing, IndexedRows rows)
{
	Relation	rel = table_open(relid, AccessShareLock);
	Oid			index = find_index(rel, indexing, InvalidOid, rows);

	table_close(rel, NoLock);
	return OidIsValid(index);
}

static void
create_index(Oid relid, IndexingMode indexing)
{
	if (indexing == INDEXING_NONE)
		return;
	ttl_docs_run_ddl("CREATE INDEX ON %s USING %s (%s)", ttl_docs_quoted_name(relid),
					 indexing == INDEXING_LAZY ? "brin" : "btree",
					 TTL_DOCS_SLOT_COLUMN);
}

/* Drops all purge indexes for a mode. */
void
ttl_docs_drop_purge_index(Oid relid, IndexingMode indexing)
{
	drop_indexes(relid, indexing, ROWS_ALL);
	drop_indexes(relid, indexing, ROWS_WITH_SLOT);
}

/* Drops the purge indexes for a mode that do not have entries for all rows. */
void
ttl_docs_drop_partial_purge_index(Oid relid, IndexingMode indexing)
{
	drop_indexes(relid, indexing, ROWS_WITH_SLOT);
}

static void
drop_indexes(Oid relid, IndexingMode indexing, IndexedRows rows)
{
	for (;;)
	{
		Relation	rel = table_open(relid, AccessShareLock);
		Oid			index = find_index(rel, indexing, InvalidOid, rows);

		table_close(rel, NoLock);
		if (!OidIsValid(index))
			break;
		ttl_docs_run_ddl("DROP INDEX %s", ttl_docs_quoted_name(index));
	}
}
