/*-------------------------------------------------------------------------
 *
 * keys.c
 *		Frees the keys of a new row that expired documents hold.
 *
 * Before a row is inserted, we search each unique and exclusion constraint of
 * its table for conflicts.  We search exactly as core does a moment later:
 * with the same operators, predicates, expressions and rules for NULL.  We
 * also search indexes that are still being built, if new rows must not
 * violate them (indisready, not yet indisvalid).  We delete the expired
 * documents that we find (core/delete_expired.c).  We leave live documents
 * alone: core finds them, and handles the conflict as usual.
 *
 * Another transaction may be writing the same key.  Core would wait for this
 * transaction, so we wait, too.  Then we search again: the transaction may
 * have freed the key and taken it, or it may have rolled back and left the
 * expired document to us.  Deferrable constraints do not wait for concurrent
 * inserts.  For a deferrable constraint, we wait only for a transaction that
 * deletes an expired document.
 *
 * For an UPDATE, we search only the constraints whose columns the UPDATE
 * changes.  Stored generated columns have no values yet in a BEFORE trigger.
 * If a constraint needs these values, we compute them in a scratch copy of
 * the row.
 *
 * Two kinds of writes need no search, and these are most writes:
 * - an UPDATE that changes no indexed column;
 * - any write while maybe_expired.c knows that no document is expired.
 * They do not even open the indexes.
 *
 * COPY FROM writes many rows.  For each batch, it first learns which keys expired
 * documents hold, and then searches only for these keys (expired_keys.c).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/relscan.h"
#include "access/stratnum.h"
#include "access/table.h"
#include "access/tableam.h"
#include "catalog/index.h"
#include "executor/executor.h"
#include "executor/nodeModifyTable.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "storage/lmgr.h"
#include "utils/datum.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "write/write_internal.h"

/*
 * Reading an expired document takes about a tenth of the time of a search for
 * the key of a row.  So it pays to read this number for each row of a batch.
 */
#define EXPIRED_PER_ROW	4

/* A unique or exclusion constraint */
typedef struct KeyIndex
{
	Oid			indexid;
	IndexInfo  *info;
	const Oid  *operators;		/* define a conflict, one for each key column */
	const Oid  *procs;			/* functions of these operators */
	const uint16 *strategies;	/* strategy numbers of these operators */
	bool		is_immediate;	/* not deferrable, so waits for inserts */
	Bitmapset  *columns;		/* table columns that the constraint uses,
								 * offset by
								 * FirstLowInvalidHeapAttributeNumber */
	bool		needs_generated;	/* uses a stored generated column */
	KeySet	   *expired;		/* keys that expired documents hold; NULL = not
								 * known */
} KeyIndex;

/* Frees keys in the constraints of a table, during one query */
typedef struct KeyProbe
{
	const Collection *collection;
	MemoryContext context;		/* lives as long as the query */
	List	   *indexes;		/* of KeyIndex */
	EState	   *estate;
	TupleTableSlot *row;		/* row to be written; NULL between searches */
	TupleTableSlot *scratch;	/* holds the trigger's tuple, and its generated
								 * columns if they were computed */
	TupleTableSlot *found_row;	/* row that an index scan has found */
	void		(*before_delete) (void *arg);	/* NULL = no callback */
	void	   *before_delete_arg;
	ResultRelInfo *relinfo;		/* for generated columns; NULL until needed */
	bool		has_sets;		/* make_key_sets() was called */
	bool		lacks_expired;	/* the sets could not be filled: do not try again */
	TimestampTz sets_until;		/* until then, the sets of keys are complete */
} KeyProbe;

/* The values of a row in the key columns of an index */
typedef struct Key
{
	Datum		values[INDEX_MAX_KEYS];
	bool		isnull[INDEX_MAX_KEYS];
} Key;

static bool must_free_keys(DocumentWriter *writer, Relation rel);
static void make_key_sets(KeyProbe *probe);
static bool read_expired_keys(KeyProbe *probe, Relation rel, TimestampTz clock,
							  int limit);
static void add_expired_keys(void *arg);
static bool may_be_held(const KeyProbe *probe, const KeyIndex *index, const Key *key);
static KeyProbe *make_key_probe(const DocumentWriter *writer, Relation rel);
static KeyIndex *make_key_index(Relation rel, Relation indexrel);
static Bitmapset *columns_of(const IndexInfo *info);
static bool changes_indexed_column(Relation rel, AttrNumber slot_column,
								   HeapTuple newtuple, HeapTuple oldtuple);
static bool changes_key(const KeyIndex *index, Relation rel, HeapTuple newtuple,
						HeapTuple oldtuple);
static bool changes_column(AttrNumber attno, TupleDesc tupdesc,
						   HeapTuple newtuple, HeapTuple oldtuple);
static void compute_generated(KeyProbe *probe, Relation rel, TupleTableSlot *row);
static void free_keys_in(KeyProbe *probe, Relation rel, TupleTableSlot *row,
						 List *indexes, ItemPointer replaced);
static void free_key(KeyProbe *probe, Relation rel, KeyIndex *index,
					 ItemPointer replaced);
static bool form_key(KeyProbe *probe, KeyIndex *index, TupleTableSlot *row, Key *key);
static bool find_expired(KeyProbe *probe, Relation rel, Relation indexrel,
						 KeyIndex *index, const Key *key, ItemPointer replaced,
						 List **found);
static bool keys_conflict(Relation indexrel, const KeyIndex *index,
						  const Key *existing, const Key *key);
static void wait_for_writer(const SnapshotData *dirty, Relation rel,
							ItemPointer tid, const KeyIndex *index);

/*
 * Collects the constraints of the table.  The locks on the indexes are held
 * until the transaction ends, as INSERT holds them.  The slots have their own
 * copy of the tuple descriptor.  A reference to the table's descriptor would
 * have to be released at the end of the query, and nobody calls us then.
 */
static KeyProbe *
make_key_probe(const DocumentWriter *writer, Relation rel)
{
	MemoryContext caller = MemoryContextSwitchTo(writer->context);
	KeyProbe   *probe = palloc0(sizeof(KeyProbe));
	List	   *indexes = RelationGetIndexList(rel);
	ListCell   *lc;

	probe->collection = &writer->collection;
	probe->context = writer->context;
	probe->sets_until = DT_NOBEGIN;
	foreach(lc, indexes)
	{
		Relation	indexrel = index_open(lfirst_oid(lc), RowExclusiveLock);
		Form_pg_index form = indexrel->rd_index;

		if ((form->indisunique || form->indisexclusion) && form->indisready)
			probe->indexes = lappend(probe->indexes, make_key_index(rel, indexrel));
		index_close(indexrel, NoLock);
	}
	list_free(indexes);
	if (probe->indexes != NIL)
	{
		TupleDesc	tupdesc = CreateTupleDescCopyConstr(RelationGetDescr(rel));

		probe->estate = CreateExecutorState();
		probe->scratch = compat_MakeTupleTableSlot(tupdesc, &TTSOpsHeapTuple);
		probe->found_row = compat_MakeTupleTableSlot(tupdesc, table_slot_callbacks(rel));
	}
	MemoryContextSwitchTo(caller);
	return probe;
}

static KeyIndex *
make_key_index(Relation rel, Relation indexrel)
{
	KeyIndex   *index = palloc0(sizeof(KeyIndex));
	TupleDesc	tupdesc = RelationGetDescr(rel);
	int			member = -1;

	index->indexid = RelationGetRelid(indexrel);
	index->info = BuildIndexInfo(indexrel);
	if (index->info->ii_ExclusionOps != NULL)
	{
		index->operators = index->info->ii_ExclusionOps;
		index->procs = index->info->ii_ExclusionProcs;
		index->strategies = index->info->ii_ExclusionStrats;
	}
	else
	{
		BuildSpeculativeIndexInfo(indexrel, index->info);
		index->operators = index->info->ii_UniqueOps;
		index->procs = index->info->ii_UniqueProcs;
		index->strategies = index->info->ii_UniqueStrats;
	}
	index->is_immediate = indexrel->rd_index->indimmediate;
	index->columns = columns_of(index->info);
	while ((member = bms_next_member(index->columns, member)) >= 0)
	{
		AttrNumber	attno = member + FirstLowInvalidHeapAttributeNumber;

		/* 0 is a whole-row reference, which uses all columns */
		if (attno == 0 ||
			TupleDescAttr(tupdesc, attno - 1)->attgenerated != '\0')
			index->needs_generated = tupdesc->constr != NULL &&
				tupdesc->constr->has_generated_stored;
	}
	return index;
}

static Bitmapset *
columns_of(const IndexInfo *info)
{
	Bitmapset  *columns = NULL;

	for (int i = 0; i < info->ii_NumIndexKeyAttrs; i++)
		if (info->ii_IndexAttrNumbers[i] != 0)
			columns = bms_add_member(columns, info->ii_IndexAttrNumbers[i] -
									 FirstLowInvalidHeapAttributeNumber);
	pull_varattnos((Node *) info->ii_Expressions, 1, &columns);
	pull_varattnos((Node *) info->ii_Predicate, 1, &columns);
	return columns;
}

/*
 * Deletes the expired documents that hold a key of the new row.  oldtuple is
 * the row that an UPDATE replaces, or NULL for an INSERT.
 */
void
ttl_docs_free_keys(DocumentWriter *writer, Relation rel, HeapTuple newtuple,
				   HeapTuple oldtuple)
{
	KeyProbe   *probe;
	List	   *affected = NIL;
	bool		needs_generated = false;
	ListCell   *lc;

	if ((oldtuple != NULL &&
		 !changes_indexed_column(rel, writer->collection.slot, newtuple, oldtuple)) ||
		!must_free_keys(writer, rel))
		return;

	probe = writer->keys;
	foreach(lc, probe->indexes)
	{
		KeyIndex   *index = lfirst(lc);

		if (oldtuple != NULL && !changes_key(index, rel, newtuple, oldtuple))
			continue;
		affected = lappend(affected, index);
		needs_generated |= index->needs_generated;
	}
	if (affected == NIL)
		return;

	ExecStoreHeapTuple(newtuple, probe->scratch, false);
	if (needs_generated)
		compute_generated(probe, rel, probe->scratch);
	free_keys_in(probe, rel, probe->scratch, affected,
				 oldtuple != NULL ? &oldtuple->t_self : NULL);
	ExecClearTuple(probe->scratch);
	list_free(affected);
}

/* Must the keys of rows that are written now be freed? */
static bool
must_free_keys(DocumentWriter *writer, Relation rel)
{
	if (!ttl_docs_maybe_expired(rel, &writer->collection, writer->clock))
		return false;
	if (writer->keys == NULL)
		writer->keys = make_key_probe(writer, rel);
	return writer->keys->indexes != NIL;
}

/*
 * The same for a batch of rows, which the caller inserts immediately.  Learns
 * which keys expired documents hold, unless that takes longer than to search for
 * the key of each row.
 */
bool
ttl_docs_must_free_keys_of_batch(DocumentWriter *writer, Relation rel, int nrows)
{
	KeyProbe   *probe;

	if (!must_free_keys(writer, rel))
		return false;
	probe = writer->keys;
	if (probe->indexes != NIL && !probe->lacks_expired)
		probe->lacks_expired = !read_expired_keys(probe, rel, writer->clock,
												  nrows * EXPIRED_PER_ROW);
	return true;
}

/* Makes a set of keys for each constraint whose keys can be hashed. */
static void
make_key_sets(KeyProbe *probe)
{
	MemoryContext caller = MemoryContextSwitchTo(probe->context);
	ListCell   *lc;

	foreach(lc, probe->indexes)
	{
		KeyIndex   *index = lfirst(lc);
		Relation	indexrel = index_open(index->indexid, NoLock);

		index->expired = ttl_docs_make_key_set(indexrel, index->operators);
		index_close(indexrel, NoLock);
	}
	probe->has_sets = true;
	MemoryContextSwitchTo(caller);
}

/* Fills the sets of keys; false if that is not possible, or takes too long. */
static bool
read_expired_keys(KeyProbe *probe, Relation rel, TimestampTz clock, int limit)
{
	ListCell   *lc;
	bool		complete;

	if (!probe->has_sets)
		make_key_sets(probe);
	foreach(lc, probe->indexes)
	{
		KeyIndex   *index = lfirst(lc);

		if (index->expired != NULL)
			ttl_docs_empty_key_set(index->expired);
	}
	complete = ttl_docs_visit_expired_rows(rel, probe->collection, clock, limit,
										   probe->found_row, &probe->sets_until,
										   add_expired_keys, probe);
	if (!complete)
		probe->sets_until = DT_NOBEGIN;
	foreach(lc, probe->indexes)
	{
		KeyIndex   *index = lfirst(lc);

		if (index->expired != NULL)
			ttl_docs_complete_key_set(index->expired);
	}
	return complete;
}

/* Adds the keys of the row that was found to the sets. */
static void
add_expired_keys(void *arg)
{
	KeyProbe   *probe = arg;
	ListCell   *lc;

	foreach(lc, probe->indexes)
	{
		KeyIndex   *index = lfirst(lc);
		Key			key;

		if (index->expired != NULL && form_key(probe, index, probe->found_row, &key))
			ttl_docs_add_key(index->expired, key.values, key.isnull);
	}
	ResetPerTupleExprContext(probe->estate);
}

/* False if certainly no expired document holds the key. */
static bool
may_be_held(const KeyProbe *probe, const KeyIndex *index, const Key *key)
{
	return index->expired == NULL || ttl_docs_clock() >= probe->sets_until ||
		ttl_docs_may_have_key(index->expired, key->values, key->isnull);
}

/*
 * Frees the keys of a new row whose generated columns are already computed.
 * Calls before_delete before it deletes expired documents.
 */
void
ttl_docs_free_keys_of_row(DocumentWriter *writer, Relation rel, TupleTableSlot *row,
						  void (*before_delete) (void *), void *arg)
{
	KeyProbe   *probe = writer->keys;

	probe->before_delete = before_delete;
	probe->before_delete_arg = arg;
	free_keys_in(probe, rel, row, probe->indexes, NULL);
}

/*
 * Frees the keys that the row has in these indexes.  "replaced" is the row
 * that an UPDATE replaces, or NULL.  The replaced row is not a conflict.
 */
static void
free_keys_in(KeyProbe *probe, Relation rel, TupleTableSlot *row, List *indexes,
			 ItemPointer replaced)
{
	ListCell   *lc;

	probe->row = row;
	foreach(lc, indexes)
		free_key(probe, rel, lfirst(lc), replaced);
	probe->row = NULL;
	ResetPerTupleExprContext(probe->estate);
}

/*
 * Does an UPDATE change a column of any index except the purge index?  Stored
 * generated columns are computed later.  If the table has one, the answer is
 * yes.
 */
static bool
changes_indexed_column(Relation rel, AttrNumber slot_column, HeapTuple newtuple,
					   HeapTuple oldtuple)
{
	TupleDesc	tupdesc = RelationGetDescr(rel);
	Bitmapset  *columns;
	int			member = -1;
	bool		changes = false;

	if (tupdesc->constr != NULL && tupdesc->constr->has_generated_stored)
		return true;
	columns = RelationGetIndexAttrBitmap(rel, COMPAT_INDEXED_COLUMNS);
	while (!changes && (member = bms_next_member(columns, member)) >= 0)
	{
		AttrNumber	attno = member + FirstLowInvalidHeapAttributeNumber;

		changes = attno <= 0 ||
			(attno != slot_column &&
			 changes_column(attno, tupdesc, newtuple, oldtuple));
	}
	bms_free(columns);
	return changes;
}

/* Does an UPDATE change a column that the constraint depends on? */
static bool
changes_key(const KeyIndex *index, Relation rel, HeapTuple newtuple,
			HeapTuple oldtuple)
{
	TupleDesc	tupdesc = RelationGetDescr(rel);
	int			member = -1;

	if (index->needs_generated)
		return true;
	while ((member = bms_next_member(index->columns, member)) >= 0)
	{
		AttrNumber	attno = member + FirstLowInvalidHeapAttributeNumber;

		if (attno <= 0 || changes_column(attno, tupdesc, newtuple, oldtuple))
			return true;
	}
	return false;
}

static bool
changes_column(AttrNumber attno, TupleDesc tupdesc, HeapTuple newtuple,
			   HeapTuple oldtuple)
{
	Form_pg_attribute att = TupleDescAttr(tupdesc, attno - 1);
	bool		new_isnull;
	bool		old_isnull;
	Datum		new_value = heap_getattr(newtuple, attno, tupdesc, &new_isnull);
	Datum		old_value = heap_getattr(oldtuple, attno, tupdesc, &old_isnull);

	if (new_isnull || old_isnull)
		return new_isnull != old_isnull;
	return !datumIsEqual(new_value, old_value, att->attbyval, att->attlen);
}

/*
 * Computes all stored generated columns in a scratch copy of the row, as core
 * does for every write to a table that has our trigger.
 */
static void
compute_generated(KeyProbe *probe, Relation rel, TupleTableSlot *row)
{
	if (probe->relinfo == NULL)
	{
		MemoryContext caller = MemoryContextSwitchTo(probe->context);

		probe->relinfo = makeNode(ResultRelInfo);
		InitResultRelInfo(probe->relinfo, rel, 1, NULL, 0);
		MemoryContextSwitchTo(caller);
	}
	ExecComputeStoredGenerated(probe->relinfo, probe->estate, row, CMD_INSERT);
}

/*
 * Frees the key of the row in one index.  Searches again after a wait, and if
 * another session changed an expired document before we could delete it.
 */
static void
free_key(KeyProbe *probe, Relation rel, KeyIndex *index, ItemPointer replaced)
{
	Relation	indexrel;
	Key			key;
	bool		again;

	if (!form_key(probe, index, probe->row, &key) || !may_be_held(probe, index, &key))
		return;
	indexrel = index_open(index->indexid, NoLock);
	do
	{
		List	   *found = NIL;
		ListCell   *lc;

		CHECK_FOR_INTERRUPTS();
		again = find_expired(probe, rel, indexrel, index, &key, replaced, &found);
		if (again)
			continue;
		if (found != NIL && probe->before_delete != NULL)
			probe->before_delete(probe->before_delete_arg);
		foreach(lc, found)
			again |= ttl_docs_delete_expired(rel, probe->collection, lfirst(lc),
											 ttl_docs_writing_command()) == DELETE_CHANGED;
		list_free_deep(found);
	} while (again);
	index_close(indexrel, NoLock);
}

/*
 * Computes the key of the row.  Returns false if the constraint does not
 * apply to the row, because of the predicate or because a key column is NULL.
 */
static bool
form_key(KeyProbe *probe, KeyIndex *index, TupleTableSlot *row, Key *key)
{
	IndexInfo  *info = index->info;
	ExprContext *econtext = GetPerTupleExprContext(probe->estate);
	MemoryContext caller = MemoryContextSwitchTo(probe->context);
	bool		applies = true;

	econtext->ecxt_scantuple = row;
	if (info->ii_Predicate != NIL)
	{
		if (info->ii_PredicateState == NULL)
			info->ii_PredicateState = ExecPrepareQual(info->ii_Predicate,
													  probe->estate);
		applies = ExecQual(info->ii_PredicateState, econtext);
	}
	MemoryContextSwitchTo(caller);
	if (!applies)
		return false;
	FormIndexDatum(info, row, probe->estate, key->values, key->isnull);
	for (int i = 0; i < info->ii_NumIndexKeyAttrs && !info->ii_NullsNotDistinct; i++)
		if (key->isnull[i])
			return false;
	return true;
}

/*
 * Collects the expired documents that conflict with a key.  Returns true if
 * it has waited for another transaction: then the caller must search again.
 */
static bool
find_expired(KeyProbe *probe, Relation rel, Relation indexrel, KeyIndex *index,
			 const Key *key, ItemPointer replaced, List **found)
{
	int			nkeys = index->info->ii_NumIndexKeyAttrs;
	ExpiryBounds bounds = ttl_docs_bounds(&probe->collection->settings,
										  ttl_docs_clock());
	ExprContext *econtext = GetPerTupleExprContext(probe->estate);
	TupleTableSlot *row = probe->found_row;
	ScanKeyData scankeys[INDEX_MAX_KEYS];
	SnapshotData dirty;
	IndexScanDesc scan;
	bool		waited = false;

	for (int i = 0; i < nkeys; i++)
		ScanKeyEntryInitialize(&scankeys[i],
							   key->isnull[i] ? SK_ISNULL | SK_SEARCHNULL : 0,
							   i + 1, index->strategies[i], InvalidOid,
							   indexrel->rd_indcollation[i], index->procs[i],
							   key->values[i]);
	InitDirtySnapshot(dirty);
	econtext->ecxt_scantuple = row;
	scan = compat_index_beginscan(rel, indexrel, &dirty, nkeys);
	index_rescan(scan, scankeys, nkeys, NULL, 0);
	while (!waited && index_getnext_slot(scan, ForwardScanDirection, row))
	{
		Key			existing;
		bool		expired;

		if (replaced != NULL && ItemPointerEquals(replaced, &row->tts_tid))
			continue;
		if (scan->xs_recheck)
		{
			FormIndexDatum(index->info, row, probe->estate, existing.values,
						   existing.isnull);
			if (!keys_conflict(indexrel, index, &existing, key))
				continue;
		}
		expired = ttl_docs_row_is_expired(&bounds, probe->collection, row);
		if (TransactionIdIsValid(dirty.xmin) || TransactionIdIsValid(dirty.xmax))
		{
			if (!index->is_immediate &&
				(TransactionIdIsValid(dirty.xmin) || !expired))
				continue;
			/* end the scan first: it can hold a pin on an index page */
			index_endscan(scan);
			scan = NULL;
			wait_for_writer(&dirty, rel, &row->tts_tid, index);
			waited = true;
			break;
		}
		if (expired)
		{
			ItemPointer tid = palloc(sizeof(ItemPointerData));

			ItemPointerCopy(&row->tts_tid, tid);
			*found = lappend(*found, tid);
		}
	}
	if (scan != NULL)
		index_endscan(scan);
	econtext->ecxt_scantuple = probe->row;
	ExecClearTuple(row);
	return waited;
}

/* Do two keys really conflict?  A lossy index can return rows that do not. */
static bool
keys_conflict(Relation indexrel, const KeyIndex *index, const Key *existing,
			  const Key *key)
{
	for (int i = 0; i < index->info->ii_NumIndexKeyAttrs; i++)
	{
		if (existing->isnull[i] || key->isnull[i])
		{
			if (existing->isnull[i] != key->isnull[i])
				return false;
			continue;
		}
		if (!DatumGetBool(OidFunctionCall2Coll(index->procs[i],
											   indexrel->rd_indcollation[i],
											   existing->values[i],
											   key->values[i])))
			return false;
	}
	return true;
}

/* Waits for the transaction that writes the same key. */
static void
wait_for_writer(const SnapshotData *dirty, Relation rel, ItemPointer tid,
				const KeyIndex *index)
{
	TransactionId other = TransactionIdIsValid(dirty->xmin) ?
		dirty->xmin : dirty->xmax;

	if (dirty->speculativeToken != 0)
		SpeculativeInsertionWait(dirty->xmin, dirty->speculativeToken);
	else
		XactLockTableWait(other, rel, tid,
						  index->info->ii_ExclusionOps != NULL ?
						  XLTW_RecheckExclusionConstr : XLTW_InsertIndex);
}
