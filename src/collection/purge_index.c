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

static Oid	find_purge_index(Relation rel, IndexingMode indexing, Oid excluded,
							 bool is_valid);
static bool is_purge_index(Relation rel, Oid indexid, IndexingMode indexing,
						   bool is_valid);
static Node *index_predicate(Relation index);
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
	indexes = RelationGetIndexList(rel);
	foreach(lc, indexes)
	{
		if (lfirst_oid(lc) != excluded &&
			is_purge_index(rel, lfirst_oid(lc), indexing, is_valid))
		{
			found = lfirst_oid(lc);
			break;
		}
	}
	list_free(indexes);
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

/* Drops all purge indexes for a mode. */
void
ttl_docs_drop_purge_index(Oid relid, IndexingMode indexing)
{
	for (;;)
	{
		Relation	rel = table_open(relid, AccessShareLock);
		Oid			index = ttl_docs_purge_index(rel, indexing);

		table_close(rel, NoLock);
		if (!OidIsValid(index))
			break;
		ttl_docs_run_ddl("DROP INDEX %s", ttl_docs_quoted_name(index));
	}
}
