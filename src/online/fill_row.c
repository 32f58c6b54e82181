/*-------------------------------------------------------------------------
 *
 * fill_row.c
 *		Writes the system columns of one row that is not filled yet.
 *
 * fill.c reads the rows of a batch and passes them to this file, as the owner of the
 * table and in a restricted context.
 *
 * Which values.  A row is not filled yet if its _ts is the constant "adopting" of the
 * label, and its _ttl is not the ttl of its document.  It gets the ttl of its document,
 * the _ts of the column "last_modified", if there is one, and the slot that follows from
 * both.  A row that needs no other values is not written, and so stays as it is.
 *
 * Replacing.  We replace a row without firing any trigger, and never wait for another
 * session:
 *
 * 1. If another session has updated or deleted the row, it is done: our trigger has
 *    stamped its new version.
 * 2. If another session has locked the row, we try to lock it, too.  For example, a
 *    foreign key check locks the row, but does not mind an update that keeps the key.
 * 3. If that would mean waiting, the row is busy, and is left for another round.
 *
 * Stored generated columns keep their values, unless they depend on a system column.
 * Keys of documents do not change, so no foreign key is concerned.
 *
 * ERROR rolls back the batch.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/tableam.h"
#include "access/transam.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "executor/nodeModifyTable.h"
#include "optimizer/optimizer.h"
#include "storage/bufmgr.h"
#include "utils/builtins.h"
#include "utils/datetime.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "online/online_internal.h"

static void find_last_modified(RowFiller *filler);
static bool depends_on_system_column(Relation rel, const Collection *collection);
static bool has_system_column(const Bitmapset *columns, const Collection *collection);
static FillOutcome fill(RowFiller *filler);
static bool is_first_time(const RowFiller *filler, bool is_written);
static void note_ttl(const RowFiller *filler, const Stamp *stamp, Datum doc);
static TimestampTz first_ts(const RowFiller *filler, HeapTuple tuple);
static FillOutcome replace_row(RowFiller *filler, HeapTuple tuple);
static TM_Result update_row(RowFiller *filler, bool wait,
							compat_UpdateIndexes *update_indexes);
static bool lock_row(RowFiller *filler, TM_Result *result);
pg_noreturn static void report_invalid_ttl(const RowFiller *filler, JsonbValue *found);

/* Begins a batch of rows; the caller has set the fields that it gives. */
void
ttl_docs_begin_filling(RowFiller *filler)
{
	Bitmapset  *key_columns = RelationGetIndexAttrBitmap(filler->rel, INDEX_ATTR_BITMAP_KEY);

	find_last_modified(filler);
	filler->computes_generated = depends_on_system_column(filler->rel, &filler->collection);
	filler->changes_key = has_system_column(key_columns, &filler->collection);
	filler->estate = CreateExecutorState();
	filler->relinfo = makeNode(ResultRelInfo);
	InitResultRelInfo(filler->relinfo, filler->rel, 1, NULL, 0);
	ExecOpenIndices(filler->relinfo, false);
	filler->row = table_slot_create(filler->rel, NULL);
	filler->new_row = MakeSingleTupleTableSlot(RelationGetDescr(filler->rel),
											  &TTSOpsHeapTuple);
	filler->snapshot = RegisterSnapshot(GetLatestSnapshot());
	PushActiveSnapshot(filler->snapshot);
}

void
ttl_docs_end_filling(RowFiller *filler)
{
	PopActiveSnapshot();
	UnregisterSnapshot(filler->snapshot);
	ExecCloseIndices(filler->relinfo);
	ExecDropSingleTupleTableSlot(filler->row);
	ExecDropSingleTupleTableSlot(filler->new_row);
	FreeExecutorState(filler->estate);
}

static void
find_last_modified(RowFiller *filler)
{
	const CollectionSettings *settings = &filler->collection.settings;
	Oid			relid = RelationGetRelid(filler->rel);
	Oid			type;

	if (NameStr(settings->last_modified)[0] == '\0')
		return;
	filler->last_modified = get_attnum(relid, NameStr(settings->last_modified));
	type = filler->last_modified > 0 ?
		getBaseType(get_atttype(relid, filler->last_modified)) : InvalidOid;
	if (type != TIMESTAMPTZOID && type != TIMESTAMPOID)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_COLUMN),
				 errmsg("column \"%s\" of table \"%s\" is missing or does not contain timestamps",
						NameStr(settings->last_modified),
						RelationGetRelationName(filler->rel)),
				 errhint("Restore the column, or release the table: SELECT ttl_docs.release(%s).",
						 ttl_docs_quoted_literal(filler->collection.root))));
	filler->is_timestamptz = type == TIMESTAMPTZOID;
	filler->time_zone = pg_tzset(NameStr(settings->time_zone));
	if (filler->time_zone == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("time zone \"%s\" not recognized", NameStr(settings->time_zone)),
				 errhint("The adoption began with this TimeZone. Install the time zone data of this server.")));
}

/* Does a stored generated column of the table use a system column? */
static bool
depends_on_system_column(Relation rel, const Collection *collection)
{
	TupleConstr *constr = RelationGetDescr(rel)->constr;
	Bitmapset  *used = NULL;

	if (constr == NULL || !constr->has_generated_stored)
		return false;
	for (int i = 0; i < constr->num_defval; i++)
	{
		Form_pg_attribute att = TupleDescAttr(RelationGetDescr(rel),
											  constr->defval[i].adnum - 1);

		if (att->attgenerated)
			pull_varattnos(stringToNode(constr->defval[i].adbin), 1, &used);
	}
	return has_system_column(used, collection);
}

/* Is a system column in a set of columns? */
static bool
has_system_column(const Bitmapset *columns, const Collection *collection)
{
	return bms_is_member(collection->ts - FirstLowInvalidHeapAttributeNumber, columns) ||
		bms_is_member(collection->ttl - FirstLowInvalidHeapAttributeNumber, columns) ||
		bms_is_member(collection->slot - FirstLowInvalidHeapAttributeNumber, columns);
}

/* Fills the current row, if it needs other values. */
FillOutcome
ttl_docs_fill_row(RowFiller *filler)
{
	MemoryContext caller = MemoryContextSwitchTo(GetPerTupleMemoryContext(filler->estate));
	FillOutcome outcome = fill(filler);

	MemoryContextSwitchTo(caller);
	ResetPerTupleExprContext(filler->estate);
	return outcome;
}

static FillOutcome
fill(RowFiller *filler)
{
	const Collection *collection = &filler->collection;
	TupleDesc	tupdesc = RelationGetDescr(filler->rel);
	Stamp		old = ttl_docs_row_stamp(collection, filler->row);
	Stamp		stamp = old;
	JsonbValue	found;
	Datum		doc;
	bool		isnull;
	HeapTuple	tuple;
	int64		slot;
	int			columns[3] = {collection->ts, collection->ttl, collection->slot};
	Datum		values[3];
	bool		nulls[3] = {false};
	bool		is_filled = old.ts != collection->settings.adopting;

	if (is_filled && old.inherits)
		return ROW_IS_RIGHT;
	doc = slot_getattr(filler->row, collection->doc, &isnull);
	ttl_docs_read_ttl(doc, isnull, &stamp, &found);
	if (!stamp.inherits && stamp.ttl == TTL_INVALID && collection->settings.target_on)
		report_invalid_ttl(filler, &found);
	if (!stamp.inherits && is_first_time(filler, is_filled || !old.inherits))
		note_ttl(filler, &stamp, doc);
	if (is_filled)
		return ROW_IS_RIGHT;
	tuple = ExecFetchSlotHeapTuple(filler->row, false, NULL);
	stamp.ts = first_ts(filler, tuple);
	if (stamp.ts == old.ts && stamp.inherits == old.inherits && stamp.ttl == old.ttl)
		return ROW_IS_RIGHT;
	slot = ttl_docs_slot_under(&collection->settings, &stamp);
	values[0] = TimestampTzGetDatum(stamp.ts);
	values[1] = Int32GetDatum(stamp.ttl);
	nulls[1] = stamp.inherits;
	values[2] = Int64GetDatum(slot);
	nulls[2] = slot == NO_SLOT;
	return replace_row(filler, heap_modify_tuple_by_cols(tuple, tupdesc, 3, columns,
														values, nulls));
}

/*
 * Has this call not counted the document of the current row before?  It reads
 * rows again that it or another session has written since it began, and blocks
 * with busy rows.  Without last_modified, a row that was filled keeps its _ts, so
 * it counts as written if it has a _ttl.
 */
static bool
is_first_time(const RowFiller *filler, bool is_written)
{
	HeapTuple	tuple = ExecFetchSlotHeapTuple(filler->row, false, NULL);

	if (filler->is_retry)
		return false;
	return !is_written ||
		(ItemPointerGetBlockNumber(&filler->row->tts_tid) != filler->resumed_at &&
		 TransactionIdPrecedes(HeapTupleHeaderGetXmin(tuple->t_data),
							   filler->result->first_xid));
}

/* Counts a document with its own ttl, and keeps an excerpt of the first. */
static void
note_ttl(const RowFiller *filler, const Stamp *stamp, Datum doc)
{
	FillResult *result = filler->result;

	result->with_ttl++;
	if (result->example != NULL)
		return;
	result->example_ttl = stamp->ttl;
	result->example = MemoryContextStrdup(filler->context,
										  ttl_docs_json_excerpt(DatumGetJsonbP(doc)));
}

/*
 * The first _ts of a row that is not filled yet: the value of last_modified, or
 * the time at which the adoption began if there is none.
 */
static TimestampTz
first_ts(const RowFiller *filler, HeapTuple tuple)
{
	TimestampTz adopted = filler->collection.settings.adopting;
	Datum		value;
	bool		isnull;
	struct pg_tm tm;
	fsec_t		fsec;
	TimestampTz result;
	int			tz;

	if (filler->last_modified == InvalidAttrNumber)
		return adopted;
	value = heap_getattr(tuple, filler->last_modified, RelationGetDescr(filler->rel), &isnull);
	if (isnull || TIMESTAMP_NOT_FINITE(DatumGetTimestamp(value)))
		return adopted;
	if (filler->is_timestamptz)
		return DatumGetTimestampTz(value);
	if (timestamp2tm(DatumGetTimestamp(value), NULL, &tm, &fsec, NULL, NULL) != 0)
		return adopted;
	tz = DetermineTimeZoneOffset(&tm, filler->time_zone);
	if (tm2timestamp(&tm, fsec, &tz, &result) != 0)
		return adopted;
	return result;
}

/* Replaces the current row, unless another session uses it. */
static FillOutcome
replace_row(RowFiller *filler, HeapTuple tuple)
{
	compat_UpdateIndexes update_indexes;
	TM_Result	result;

	ExecStoreHeapTuple(tuple, filler->new_row, false);
	if (filler->computes_generated)
		ExecComputeStoredGenerated(filler->relinfo, filler->estate, filler->new_row,
								   CMD_INSERT);
	result = update_row(filler, false, &update_indexes);
	/* somebody has locked the row, possibly in a way that does not matter */
	if (result == TM_BeingModified && lock_row(filler, &result))
		result = update_row(filler, true, &update_indexes);
	if (result == TM_Ok && filler->relinfo->ri_NumIndices > 0 &&
		compat_any_index(update_indexes))
		list_free(compat_ExecInsertIndexTuples(filler->relinfo, filler->new_row,
											   filler->estate, update_indexes));
	ExecClearTuple(filler->new_row);
	switch (result)
	{
		case TM_Ok:
			return ROW_WRITTEN;
		case TM_BeingModified:
		case TM_WouldBlock:
			return ROW_BUSY;
		default:
			return ROW_GONE;
	}
}

static TM_Result
update_row(RowFiller *filler, bool wait, compat_UpdateIndexes *update_indexes)
{
	TM_FailureData failure;
	LockTupleMode lockmode;

	return compat_table_tuple_update(filler->rel, &filler->row->tts_tid, filler->new_row,
									 GetCurrentCommandId(true), filler->snapshot, wait,
									 &failure, &lockmode, update_indexes);
}

/*
 * Locks the current row, unless that would mean waiting.  The lock must be as strong as
 * that of the update, which would wait otherwise.
 */
static bool
lock_row(RowFiller *filler, TM_Result *result)
{
	TupleTableSlot *locked = table_slot_create(filler->rel, NULL);
	TM_FailureData failure;

	*result = table_tuple_lock(filler->rel, &filler->row->tts_tid, filler->snapshot,
							   locked, GetCurrentCommandId(true),
							   filler->changes_key ? LockTupleExclusive : LockTupleNoKeyExclusive,
							   LockWaitSkip, 0, &failure);
	ExecDropSingleTupleTableSlot(locked);
	return *result == TM_Ok;
}

static void
report_invalid_ttl(const RowFiller *filler, JsonbValue *found)
{
	const Collection *collection = &filler->collection;
	JsonbValue	copy = *found;

	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("a document of \"%s\" has an invalid \"ttl\": %s",
					RelationGetRelationName(filler->rel),
					ttl_docs_json_excerpt(JsonbValueToJsonb(&copy))),
			 errdetail("TTL is still off, so nothing expires. New documents with an invalid ttl are refused."),
			 errhint("A ttl is an integer from 1 to %d, -1, or null. To find the documents with an invalid ttl: SELECT * FROM %s WHERE ttl_docs.document_ttl(%s) = 0. Correct them, and continue: %s.",
					 TTL_MAX, ttl_docs_quoted_name(collection->root),
					 quote_identifier(NameStr(collection->settings.doc_column)),
					 ttl_docs_adoption_command(collection->root, &collection->settings))));
}
