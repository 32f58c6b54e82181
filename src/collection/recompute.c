/*-------------------------------------------------------------------------
 *
 * recompute.c
 *		Recomputes _ttl and _slot of rows that our trigger has not seen.
 *
 * A table can bring such rows when it is attached as a partition, or when it
 * had columns of these names before it was adopted.  Both columns follow from
 * the document and _ts.  Rows that already have the right values are not
 * written.  If _ts is -infinity, the default on Citus tables, the row has no
 * stamp yet, and gets the clock.
 *
 * We replace the rows here instead of running an UPDATE.  For the user no
 * document changes, so triggers, rules, policies and constraints do not
 * apply.  Their code must not run either: users do not expect ATTACH PARTITION
 * or adopt() to run it.  We evaluate only index expressions and generated
 * columns, as the owner of the table and in a restricted context, as when core
 * builds an index.
 *
 * The caller holds ACCESS EXCLUSIVE, so no other session changes the rows.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "commands/trigger.h"
#include "executor/executor.h"
#include "executor/nodeModifyTable.h"
#include "miscadmin.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "collection/collection_internal.h"

static void recompute_rows(Relation rel, const Collection *collection);
static HeapTuple recomputed_row(Relation rel, const Collection *collection,
								HeapTuple tuple);
static void replace_row(ResultRelInfo *relinfo, EState *estate, Snapshot snapshot,
						ItemPointer tid, HeapTuple tuple);

/* Recomputes the rows of one table, without its partitions. */
void
ttl_docs_recompute_rows(Oid relid, const Collection *collection)
{
	Relation	rel = table_open(relid, NoLock);
	OwnerSwitch before;

	if (rel->rd_rel->relkind == RELKIND_RELATION)
	{
		ttl_docs_become_owner(rel, &before);
		recompute_rows(rel, collection);
		ttl_docs_become_caller(&before);
	}
	table_close(rel, NoLock);
	CommandCounterIncrement();
}

static void
recompute_rows(Relation rel, const Collection *collection)
{
	bool		in_use = rel->rd_refcnt > 1 ||
		AfterTriggerPendingOnRel(RelationGetRelid(rel));
	EState	   *estate = CreateExecutorState();
	ResultRelInfo *relinfo = makeNode(ResultRelInfo);
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	TableScanDesc scan = compat_table_beginscan(rel, snapshot);
	MemoryContext caller = CurrentMemoryContext;

	InitResultRelInfo(relinfo, rel, 1, NULL, 0);
	ExecOpenIndices(relinfo, false);
	while (table_scan_getnextslot(scan, ForwardScanDirection, slot))
	{
		HeapTuple	tuple;

		CHECK_FOR_INTERRUPTS();
		MemoryContextSwitchTo(GetPerTupleMemoryContext(estate));
		tuple = recomputed_row(rel, collection, ExecCopySlotHeapTuple(slot));
		/* a pending trigger or a cursor may still need the old version */
		if (tuple != NULL && in_use)
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_IN_USE),
					 errmsg("cannot compute the system columns of \"%s\" because this session still uses it",
							RelationGetRelationName(rel)),
					 errhint("Close cursors on the table, and run SET CONSTRAINTS ALL IMMEDIATE or COMMIT first.")));
		if (tuple != NULL)
			replace_row(relinfo, estate, snapshot, &slot->tts_tid, tuple);
		MemoryContextSwitchTo(caller);
		ResetPerTupleExprContext(estate);
	}
	ExecCloseIndices(relinfo);
	table_endscan(scan);
	UnregisterSnapshot(snapshot);
	ExecDropSingleTupleTableSlot(slot);
	FreeExecutorState(estate);
}

/* Returns the row with the right _ttl and _slot; NULL if nothing changes. */
static HeapTuple
recomputed_row(Relation rel, const Collection *collection, HeapTuple tuple)
{
	TupleDesc	tupdesc = RelationGetDescr(rel);
	Stamp		old = ttl_docs_tuple_stamp(collection, tuple, tupdesc);
	Stamp		stamp = old;
	JsonbValue	found;
	bool		isnull;
	bool		slot_isnull;
	Datum		doc = heap_getattr(tuple, collection->doc, tupdesc, &isnull);
	Datum		slot = heap_getattr(tuple, collection->slot, tupdesc, &slot_isnull);
	int64		old_slot = slot_isnull ? NO_SLOT : DatumGetInt64(slot);
	int64		new_slot;
	int			columns[3] = {collection->ttl, collection->slot, collection->ts};
	Datum		values[3];
	bool		nulls[3] = {false};

	if (TIMESTAMP_IS_NOBEGIN(old.ts))
		stamp.ts = ttl_docs_clock();
	ttl_docs_read_ttl(doc, isnull, &stamp, &found);
	new_slot = ttl_docs_slot_under(&collection->settings, &stamp);
	/* a slot that was computed under another DefaultTTL is right too */
	if (stamp.inherits && new_slot != NO_SLOT && ttl_docs_may_be_slot(&stamp, old_slot))
		new_slot = old_slot;
	if (stamp.inherits == old.inherits && stamp.ttl == old.ttl && new_slot == old_slot &&
		stamp.ts == old.ts)
		return NULL;
	values[0] = Int32GetDatum(stamp.ttl);
	nulls[0] = stamp.inherits;
	values[1] = Int64GetDatum(new_slot);
	nulls[1] = new_slot == NO_SLOT;
	/* _ts only if it was not set: it may be NULL */
	values[2] = TimestampTzGetDatum(stamp.ts);
	return heap_modify_tuple_by_cols(tuple, tupdesc, stamp.ts == old.ts ? 2 : 3,
									 columns, values, nulls);
}

/* Replaces the row at tid, and adds index entries. */
static void
replace_row(ResultRelInfo *relinfo, EState *estate, Snapshot snapshot,
			ItemPointer tid, HeapTuple tuple)
{
	Relation	rel = relinfo->ri_RelationDesc;
	TupleTableSlot *slot = MakeSingleTupleTableSlot(RelationGetDescr(rel),
													&TTSOpsHeapTuple);
	compat_UpdateIndexes update_indexes;

	ExecStoreHeapTuple(tuple, slot, false);
	if (RelationGetDescr(rel)->constr != NULL &&
		RelationGetDescr(rel)->constr->has_generated_stored)
		ExecComputeStoredGenerated(relinfo, estate, slot, CMD_INSERT);
	simple_table_tuple_update(rel, tid, slot, snapshot, &update_indexes);
	if (relinfo->ri_NumIndices > 0 && compat_any_index(update_indexes))
		list_free(compat_ExecInsertIndexTuples(relinfo, slot, estate,
											   update_indexes));
	ExecDropSingleTupleTableSlot(slot);
}
