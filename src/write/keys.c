/*-------------------------------------------------------------------------
 *
 * keys.c
 *		Frees the keys of a new row that expired documents hold.
 *
 * Before a row goes in, each unique and exclusion constraint of its table is
 * probed as core will probe it a moment later: same operators, predicates,
 * expressions and rules for NULL, also for indexes that are being built and
 * must not be violated (indisready, not yet indisvalid).  What is found and
 * expired is deleted on the spot (core/delete_expired.c); what is live is left for
 * core to find, and to deal with as it always does.
 *
 * Another transaction may be at the same key.  Core would wait for it, so we
 * do, and look again: it may have freed the key and taken it, or rolled back
 * and left the expired document to us.  Deferrable constraints do not wait for
 * another new row, and neither do we for them; an expired document that another
 * transaction is about to free is waited for all the same.
 *
 * An UPDATE is probed for the constraints whose columns it changes.  Values of
 * stored generated columns are not there yet in a BEFORE trigger; they are
 * computed into a scratch row where a constraint needs one.
 *
 * Most writes need no probe, and do not even look at the indexes: an UPDATE
 * that changes no indexed column, and any write while maybe_expired.c knows that
 * nothing is expired.
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

/* A unique or exclusion constraint */
typedef struct KeyIndex
{
	Oid			indexid;
	IndexInfo  *info;
	const Oid  *procs;			/* the operators that conflict */
	const uint16 *strategies;
	bool		waits;			/* core waits for others at this key */
	Bitmapset  *columns;		/* table columns that it depends on, offset by
								 * FirstLowInvalidHeapAttributeNumber */
	bool		needs_generated;	/* one of them is generated and stored */
} KeyIndex;

/* All of them for a table, for the duration of a query */
struct KeyProbe
{
	Collection	collection;
	MemoryContext context;		/* lives as long as the query */
	bool		is_open;		/* the rest is there only when first needed */
	List	   *indexes;
	EState	   *estate;
	TupleTableSlot *row;		/* the one to be written: the caller's, or */
	TupleTableSlot *scratch;	/* a tuple of the trigger's, which may get its
								 * generated columns here */
	TupleTableSlot *found_row;
	void		(*before_delete) (void *arg);
	void	   *before_delete_arg;
	ResultRelInfo *relinfo;		/* for generated columns */
};

/* The key that a new row has in an index */
typedef struct Key
{
	Datum		values[INDEX_MAX_KEYS];
	bool		isnull[INDEX_MAX_KEYS];
} Key;

static void open_probe(KeyProbe *probe, Relation rel);
static KeyIndex *make_key_index(Relation rel, Relation index);
static Bitmapset *columns_of(const IndexInfo *info);
static bool changes_indexed_column(Relation rel, AttrNumber slot,
								   HeapTuple newtuple, HeapTuple oldtuple);
static bool changes_key(const KeyIndex *key, Relation rel, HeapTuple newtuple,
						HeapTuple oldtuple);
static bool changes_column(AttrNumber attno, TupleDesc tupdesc,
						   HeapTuple newtuple, HeapTuple oldtuple);
static void compute_generated(KeyProbe *probe, Relation rel, TupleTableSlot *slot);
static void free_affected(KeyProbe *probe, Relation rel, TupleTableSlot *row,
						  List *indexes, ItemPointer self);
static void free_key(KeyProbe *probe, Relation rel, KeyIndex *index,
					 ItemPointer self);
static bool form_key(KeyProbe *probe, KeyIndex *index, Key *key);
static bool find_expired(KeyProbe *probe, Relation rel, Relation indexrel,
						 KeyIndex *index, const Key *key, ItemPointer self,
						 List **found);
static bool matches(Relation indexrel, const KeyIndex *index, const Key *existing,
					const Key *key);
static bool wait_for_other(const SnapshotData *dirty, Relation rel,
						   ItemPointer tid, const KeyIndex *index);

/*
 * Prepares for probing a table, in the current memory context, which has to
 * live as long as the query that writes to it.
 */
KeyProbe *
ttl_docs_key_probe(const Collection *collection)
{
	KeyProbe   *probe = palloc0(sizeof(KeyProbe));

	probe->collection = *collection;
	probe->context = CurrentMemoryContext;
	return probe;
}

/*
 * Collects the constraints of the table.  Their locks are kept, as those of an
 * INSERT are.  Rows have a descriptor of their own: a reference to that of the
 * table would have to be given back when the query ends, which nobody tells us.
 */
static void
open_probe(KeyProbe *probe, Relation rel)
{
	MemoryContext caller = MemoryContextSwitchTo(probe->context);
	List	   *indexes = RelationGetIndexList(rel);
	ListCell   *lc;

	probe->is_open = true;
	foreach(lc, indexes)
	{
		Relation	index = index_open(lfirst_oid(lc), RowExclusiveLock);

		if ((index->rd_index->indisunique || index->rd_index->indisexclusion) &&
			index->rd_index->indisready)
			probe->indexes = lappend(probe->indexes, make_key_index(rel, index));
		index_close(index, NoLock);
	}
	list_free(indexes);
	if (probe->indexes != NIL)
	{
		TupleDesc	tupdesc = CreateTupleDescCopyConstr(RelationGetDescr(rel));

		probe->estate = CreateExecutorState();
		probe->scratch = MakeTupleTableSlot(tupdesc, &TTSOpsHeapTuple);
		probe->found_row = MakeTupleTableSlot(tupdesc, table_slot_callbacks(rel));
	}
	MemoryContextSwitchTo(caller);
}

static KeyIndex *
make_key_index(Relation rel, Relation index)
{
	KeyIndex   *key = palloc0(sizeof(KeyIndex));
	TupleDesc	tupdesc = RelationGetDescr(rel);
	int			member = -1;

	key->indexid = RelationGetRelid(index);
	key->info = BuildIndexInfo(index);
	if (key->info->ii_ExclusionOps != NULL)
	{
		key->procs = key->info->ii_ExclusionProcs;
		key->strategies = key->info->ii_ExclusionStrats;
	}
	else
	{
		BuildSpeculativeIndexInfo(index, key->info);
		key->procs = key->info->ii_UniqueProcs;
		key->strategies = key->info->ii_UniqueStrats;
	}
	key->waits = index->rd_index->indimmediate;
	key->columns = columns_of(key->info);
	while ((member = bms_next_member(key->columns, member)) >= 0)
	{
		AttrNumber	attno = member + FirstLowInvalidHeapAttributeNumber;

		/* a whole-row reference depends on all of them */
		if (attno == 0 ||
			TupleDescAttr(tupdesc, attno - 1)->attgenerated != '\0')
			key->needs_generated = tupdesc->constr != NULL &&
				tupdesc->constr->has_generated_stored;
	}
	return key;
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
 * Deletes the expired documents that hold a key of the new row, which is written
 * at that time.  For an UPDATE, oldtuple is the row that it replaces.
 */
void
ttl_docs_free_keys(KeyProbe *probe, Relation rel, HeapTuple newtuple,
				   HeapTuple oldtuple, TimestampTz clock)
{
	List	   *affected = NIL;
	bool		needs_generated = false;
	ListCell   *lc;

	if ((oldtuple != NULL &&
		 !changes_indexed_column(rel, probe->collection.slot, newtuple, oldtuple)) ||
		!ttl_docs_maybe_expired(rel, &probe->collection, clock))
		return;

	if (!probe->is_open)
		open_probe(probe, rel);
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
	free_affected(probe, rel, probe->scratch, affected,
				  oldtuple != NULL ? &oldtuple->t_self : NULL);
	ExecClearTuple(probe->scratch);
	list_free(affected);
}

/*
 * Need the keys of rows that are inserted at that time be freed?  If not, not for
 * the next rows either, as long as they follow at once.
 */
bool
ttl_docs_must_free_keys(KeyProbe *probe, Relation rel, TimestampTz clock)
{
	if (!ttl_docs_maybe_expired(rel, &probe->collection, clock))
		return false;
	if (!probe->is_open)
		open_probe(probe, rel);
	return probe->indexes != NIL;
}

/*
 * Frees those of a row that has its generated columns already.  before_delete is
 * called whenever there is something to free.
 */
void
ttl_docs_free_keys_of(KeyProbe *probe, Relation rel, TupleTableSlot *row,
					  void (*before_delete) (void *), void *arg)
{
	probe->before_delete = before_delete;
	probe->before_delete_arg = arg;
	free_affected(probe, rel, row, probe->indexes, NULL);
}

/* Frees the keys that the row has in these indexes; self is not in its way. */
static void
free_affected(KeyProbe *probe, Relation rel, TupleTableSlot *row, List *indexes,
			  ItemPointer self)
{
	ListCell   *lc;

	probe->row = row;
	foreach(lc, indexes)
		free_key(probe, rel, lfirst(lc), self);
	probe->row = NULL;
	ResetPerTupleExprContext(probe->estate);
}

/*
 * Does an UPDATE change a column of any index but the purge index?  Generated
 * columns are computed from others later, so with them the answer is yes.
 */
static bool
changes_indexed_column(Relation rel, AttrNumber slot, HeapTuple newtuple,
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
			(attno != slot &&
			 changes_column(attno, tupdesc, newtuple, oldtuple));
	}
	bms_free(columns);
	return changes;
}

/* Does an UPDATE change a column that the constraint depends on? */
static bool
changes_key(const KeyIndex *key, Relation rel, HeapTuple newtuple,
			HeapTuple oldtuple)
{
	TupleDesc	tupdesc = RelationGetDescr(rel);
	int			member = -1;

	if (key->needs_generated)
		return true;
	while ((member = bms_next_member(key->columns, member)) >= 0)
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
 * Fills in the stored generated columns of a scratch copy of the row: all of
 * them, as core does for every write to a table that has our trigger.
 */
static void
compute_generated(KeyProbe *probe, Relation rel, TupleTableSlot *slot)
{
	if (probe->relinfo == NULL)
	{
		MemoryContext caller = MemoryContextSwitchTo(probe->context);

		probe->relinfo = makeNode(ResultRelInfo);
		InitResultRelInfo(probe->relinfo, rel, 1, NULL, 0);
		MemoryContextSwitchTo(caller);
	}
	ExecComputeStoredGenerated(probe->relinfo, probe->estate, slot, CMD_INSERT);
}

/* Frees the key of the row in one index. */
static void
free_key(KeyProbe *probe, Relation rel, KeyIndex *index, ItemPointer self)
{
	Relation	indexrel;
	Key			key;
	bool		again;

	if (!form_key(probe, index, &key))
		return;
	indexrel = index_open(index->indexid, NoLock);
	do
	{
		List	   *found = NIL;
		ListCell   *lc;

		CHECK_FOR_INTERRUPTS();
		again = find_expired(probe, rel, indexrel, index, &key, self, &found);
		if (again)
			continue;
		if (found != NIL && probe->before_delete != NULL)
			probe->before_delete(probe->before_delete_arg);
		foreach(lc, found)
			again |= ttl_docs_delete_expired(rel, &probe->collection, lfirst(lc),
											 ttl_docs_writing_command()) == DELETE_CHANGED;
		list_free_deep(found);
	} while (again);
	index_close(indexrel, NoLock);
}

/*
 * Computes the key of the row; false if the constraint does not apply to it,
 * because of its predicate or of a NULL.
 */
static bool
form_key(KeyProbe *probe, KeyIndex *index, Key *key)
{
	IndexInfo  *info = index->info;
	ExprContext *econtext = GetPerTupleExprContext(probe->estate);
	MemoryContext caller = MemoryContextSwitchTo(probe->context);
	bool		applies = true;

	econtext->ecxt_scantuple = probe->row;
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
	FormIndexDatum(info, probe->row, probe->estate, key->values, key->isnull);
	for (int i = 0; i < info->ii_NumIndexKeyAttrs && !info->ii_NullsNotDistinct; i++)
		if (key->isnull[i])
			return false;
	return true;
}

/*
 * Collects the expired documents that conflict with a key.  Returns true if it
 * had to wait for another transaction, and the search has to begin anew.
 */
static bool
find_expired(KeyProbe *probe, Relation rel, Relation indexrel, KeyIndex *index,
			 const Key *key, ItemPointer self, List **found)
{
	int			nkeys = index->info->ii_NumIndexKeyAttrs;
	ExpiryBounds bounds = ttl_docs_bounds(&probe->collection.settings,
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

		if (self != NULL && ItemPointerEquals(self, &row->tts_tid))
			continue;
		if (scan->xs_recheck)
		{
			FormIndexDatum(index->info, row, probe->estate, existing.values,
						   existing.isnull);
			if (!matches(indexrel, index, &existing, key))
				continue;
		}
		expired = ttl_docs_row_is_expired(&bounds, &probe->collection, row);
		if (TransactionIdIsValid(dirty.xmin) || TransactionIdIsValid(dirty.xmax))
		{
			if (!index->waits && (TransactionIdIsValid(dirty.xmin) || !expired))
				continue;
			/* not while we are in the index */
			index_endscan(scan);
			scan = NULL;
			waited = wait_for_other(&dirty, rel, &row->tts_tid, index);
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

/* For a lossy index: do the two keys conflict indeed? */
static bool
matches(Relation indexrel, const KeyIndex *index, const Key *existing,
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

/* Waits for the transaction that is at a row of the same key. */
static bool
wait_for_other(const SnapshotData *dirty, Relation rel, ItemPointer tid,
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
	return true;
}
