/*-------------------------------------------------------------------------
 *
 * new_row.c
 *		The new row of an INSERT or UPDATE, as the row trigger sees it: reads
 *		its columns, and sets its system columns.
 *
 * If possible, we overwrite the system columns where they are in the tuple,
 * and return the same tuple.  A trigger that returns another tuple makes core
 * copy that tuple and read its columns again.  We may overwrite the tuple if a
 * slot owns it: core materializes the slot before it calls BEFORE ROW
 * triggers, so the memory belongs to the slot alone.
 *
 * The size of the tuple stays the same.  So each system column must be NULL
 * before and after, or not NULL before and after.  This is why _slot has a
 * default (collection/column_defaults.c), although its value is never used.
 * In the other cases, we form a new tuple:
 * - An INSERT of a document that has its own ttl, or that never expires.  An
 *   UPDATE that changes whether it has one.
 * - The slot does not hold a tuple but an array of values, and core has formed
 *   a tuple only for the triggers.  This is so for most rows that are routed to
 *   a partition, and for logical replication.
 * - The tuple was stored before the system columns were added, and is inserted
 *   into the same table again.  Then the columns are not in the tuple.
 * - The system columns are in another order, as in a table that had them
 *   before it was adopted.
 *
 * We find the place of a column as core finds it, by reading all columns before
 * it.  So the slot keeps the values, and core need not read them again.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "executor/tuptable.h"
#include "utils/rel.h"

#include "write/write_internal.h"

static bool owns_tuple(const TupleTableSlot *slot, HeapTuple tuple);
static char *find_place(const NewRow *row, AttrNumber attno, Size size);
static void overwrite(NewRow *row, AttrNumber attno, char *place,
					  Datum value, const void *bytes, Size size);

/*
 * Makes a NewRow for the tuple of a trigger.  "slot" is the slot in which core
 * keeps the row, or NULL.
 */
void
ttl_docs_begin_row(NewRow *row, const Collection *collection, HeapTuple tuple,
				   TupleTableSlot *slot)
{
	row->tuple = tuple;
	row->slot = NULL;
	if (!owns_tuple(slot, tuple) ||
		HeapTupleHeaderGetNatts(tuple->t_data) < collection->slot ||
		collection->ts > collection->ttl || collection->ttl > collection->slot)
		return;
	row->slot = slot;
	/* read from the start: an earlier reader may have gone beyond our columns */
	slot->tts_nvalid = 0;
	((HeapTupleTableSlot *) slot)->off = 0;
	row->ts = find_place(row, collection->ts, sizeof(int64));
	row->ttl = find_place(row, collection->ttl, sizeof(int32));
	row->purge_slot = find_place(row, collection->slot, sizeof(int64));
}

/* Does the slot hold this tuple, in memory of its own? */
static bool
owns_tuple(const TupleTableSlot *slot, HeapTuple tuple)
{
	return slot != NULL && TTS_SHOULDFREE(slot) &&
		(TTS_IS_HEAPTUPLE(slot) || TTS_IS_BUFFERTUPLE(slot)) &&
		((const HeapTupleTableSlot *) slot)->tuple == tuple;
}

/* Where the tuple has the value of a column of this size; NULL if it is NULL. */
static char *
find_place(const NewRow *row, AttrNumber attno, Size size)
{
	TupleTableSlot *slot = row->slot;

	slot_getsomeattrs(slot, attno);
	if (slot->tts_isnull[attno - 1])
		return NULL;
	/* the slot remembers where the last column that it has read ends */
	return (char *) row->tuple->t_data + row->tuple->t_data->t_hoff +
		((HeapTupleTableSlot *) slot)->off - size;
}

/* Reads a column of the row. */
Datum
ttl_docs_row_value(const NewRow *row, Relation rel, AttrNumber attno, bool *isnull)
{
	return row->slot != NULL ? slot_getattr(row->slot, attno, isnull) :
		heap_getattr(row->tuple, attno, RelationGetDescr(rel), isnull);
}

/* Returns the row with its system columns set. */
HeapTuple
ttl_docs_set_system_columns(NewRow *row, Relation rel, const Collection *collection,
							const Stamp *stamp, int64 slot)
{
	int			columns[3] = {collection->ts, collection->ttl, collection->slot};
	Datum		values[3] = {TimestampTzGetDatum(stamp->ts),
		Int32GetDatum(stamp->ttl), Int64GetDatum(slot)};
	bool		nulls[3] = {false, stamp->inherits, slot == NO_SLOT};

	if (row->slot == NULL || row->ts == NULL || (row->ttl == NULL) != nulls[1] ||
		(row->purge_slot == NULL) != nulls[2])
		return heap_modify_tuple_by_cols(row->tuple, RelationGetDescr(rel), 3,
										 columns, values, nulls);
	overwrite(row, columns[0], row->ts, values[0], &stamp->ts, sizeof(stamp->ts));
	if (!nulls[1])
		overwrite(row, columns[1], row->ttl, values[1], &stamp->ttl, sizeof(stamp->ttl));
	if (!nulls[2])
		overwrite(row, columns[2], row->purge_slot, values[2], &slot, sizeof(slot));
	return row->tuple;
}

/* Overwrites a column in the tuple, and the value that the slot has read. */
static void
overwrite(NewRow *row, AttrNumber attno, char *place, Datum value,
		  const void *bytes, Size size)
{
	memcpy(place, bytes, size);
	/* where the type is passed by reference, the slot points to these bytes */
	if (TupleDescAttr(row->slot->tts_tupleDescriptor, attno - 1)->attbyval)
		row->slot->tts_values[attno - 1] = value;
}
