/*-------------------------------------------------------------------------
 *
 * fill.c
 *		Fills the system columns of existing rows, while others use the table.
 *
 * When adopt_concurrently() adds the system columns, all rows get the same _ts,
 * the constant "adopting" of the label, and the _slot that follows from it.
 * Core keeps such constants in the catalog and writes no row.  Rows that need
 * other values are written here: if a document has its own ttl, or if a column
 * "last_modified" has its first _ts.
 *
 * Which rows.  A row is not filled yet if its _ts is that constant and its _ttl
 * is not the ttl of its document.  All rows that others write after the columns were added have another _ts, because
 * our trigger stamps them.  So it is enough to read the blocks that the table
 * had when the fill began, in any order, once or many times.  A row that needs
 * no other values is not written, and so stays as it is.
 *
 * A batch is a transaction of a few milliseconds, which reads some blocks with
 * a new snapshot.  A row that another session has locked is "busy", and is left
 * for another round over its block.  A row that another session has updated or
 * deleted meanwhile is done: our trigger has stamped its new version.  So we
 * never wait for a row, and others wait for ours for the length of a batch.
 *
 * We replace rows without firing any trigger.  We do so as the owner, in a
 * restricted context, because index expressions can call functions of users.
 * Stored generated columns keep their values, unless they depend on a system
 * column.  Keys of documents do not change, so no foreign key is concerned.
 *
 * After each tenth of the blocks, VACUUM makes the space of old versions
 * available, so that the table grows little.
 *
 * On ERROR, the batches that were committed stay.  The next call reads all
 * blocks again, and writes what is missing.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/relation.h"
#include "access/relscan.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/transam.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "executor/nodeModifyTable.h"
#include "miscadmin.h"
#include "optimizer/optimizer.h"
#include "pgtime.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/datetime.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "online/online_internal.h"

/* how long a batch works, in microseconds */
#define BATCH_TIME			INT64CONST(20000)
/* maximum number of blocks that a batch reads */
#define BATCH_BLOCKS		1024
/* a smaller table is not vacuumed in between */
#define MIN_VACUUMED_BLOCKS	1000
#define VACUUMS				10
/* nor is one of which fewer rows were written than one in so many blocks */
#define MAX_BLOCKS_PER_ROW	10
/* between rounds over busy rows, in milliseconds */
#define FIRST_BUSY_PAUSE	50
#define LONGEST_BUSY_PAUSE	1000

/* The fill of one table */
typedef struct Fill
{
	Oid			relid;
	Oid			root;
	Oid			file;			/* its relfilenode when the fill began */
	BlockNumber total;			/* number of blocks to read */
	FillResult *result;
	MemoryContext context;		/* survives commits */
	bool		is_retry;		/* reads blocks that were read before */
	BlockNumber resumed_at;		/* the last batch ended within this block */
	List	   *busy_blocks;	/* block numbers, as integers */
	int64		busy_rows;
	int64		unvacuumed;		/* rows written since the last VACUUM */
} Fill;

/* How a batch, or a whole fill, ends */
typedef enum FillEnd
{
	FILL_DONE,
	FILL_GONE,					/* the table is gone, or not part of the adoption */
	FILL_REWRITTEN				/* the table has a new file, such as after CLUSTER */
} FillEnd;

/* A batch, within its transaction */
typedef struct Batch
{
	Relation	rel;
	Collection	collection;
	AttrNumber	last_modified;	/* InvalidAttrNumber if there is none */
	bool		is_timestamptz; /* the type of last_modified */
	pg_tz	   *time_zone;		/* for a last_modified without time zone */
	EState	   *estate;
	ResultRelInfo *relinfo;
	Snapshot	snapshot;
	TupleTableSlot *row;
	TupleTableSlot *new_row;
	bool		computes_generated; /* does a generated column depend on ours? */
	bool		changes_key;	/* has a unique index a system column? */
	int64		written;
	int64		busy;
	BlockNumber stopped_at;		/* the first block that was not read */
} Batch;

/* What became of a row */
typedef enum FillOutcome
{
	ROW_IS_RIGHT,				/* needs no other values */
	ROW_WRITTEN,
	ROW_GONE,					/* another session has changed or deleted it */
	ROW_BUSY
} FillOutcome;

static FillEnd fill_all_blocks(Fill *fill);
static bool begin_fill(Fill *fill);
static void pause_for_others(void);
static FillEnd fill_blocks(Fill *fill, BlockNumber from, BlockNumber count,
						   BlockNumber *next);
static FillEnd begin_batch(Fill *fill, Batch *batch);
static void require_owner(Oid relid);
static void open_rows(Batch *batch);
static void find_last_modified(Batch *batch);
static bool depends_on_system_column(Relation rel, const Collection *collection);
static bool has_system_column(const Bitmapset *columns, const Collection *collection);
static void read_blocks(Fill *fill, Batch *batch, BlockNumber from, BlockNumber count);
static void note_busy_block(Fill *fill, BlockNumber block);
static FillOutcome fill_row(Fill *fill, Batch *batch);
static bool is_first_time(const Fill *fill, const Batch *batch, bool is_written);
static void note_ttl(FillResult *result, const Stamp *stamp, Datum doc,
					 MemoryContext context);
static TimestampTz first_ts(const Batch *batch, HeapTuple tuple);
static FillOutcome replace_row(Batch *batch, HeapTuple tuple);
static TM_Result update_row(Batch *batch, bool wait, compat_UpdateIndexes *update_indexes);
static bool lock_row(Batch *batch, TM_Result *result);
static void end_batch(Batch *batch);
static FillEnd retry_busy_rows(Fill *fill);
static FillEnd fill_listed_blocks(Fill *fill, List *blocks);
static void vacuum_table(Fill *fill);
pg_noreturn static void report_invalid_ttl(const Batch *batch, JsonbValue *found);

/*
 * Fills all rows of a table without partitions.  Returns false if the table is
 * gone, or was detached.  The current memory context must survive commits.
 */
bool
ttl_docs_fill_table(Oid relid, Oid root, FillResult *result)
{
	Fill		fill = {.relid = relid, .root = root, .result = result};
	int64		with_ttl = result->with_ttl;
	FillEnd		end;

	fill.context = CurrentMemoryContext;
	do
	{
		result->with_ttl = with_ttl;
		end = fill_all_blocks(&fill);
	} while (end == FILL_REWRITTEN);
	return end == FILL_DONE;
}

static FillEnd
fill_all_blocks(Fill *fill)
{
	BlockNumber block = 0;
	BlockNumber vacuum_at;

	if (!begin_fill(fill))
		return FILL_GONE;
	vacuum_at = Max(fill->total / VACUUMS, 1);
	while (block < fill->total)
	{
		BlockNumber next;
		FillEnd		end;

		ttl_docs_set_phase(PHASE_FILL);
		end = fill_blocks(fill, block, Min(BATCH_BLOCKS, fill->total - block), &next);
		if (end != FILL_DONE)
			return end;
		ttl_docs_add_progress(next - block, 0);
		ttl_docs_notice_progress(fill->root);
		block = next;
		if (block >= vacuum_at)
		{
			vacuum_table(fill);
			vacuum_at += Max(fill->total / VACUUMS, 1);
		}
		if (block < fill->total)
			pause_for_others();
	}
	return retry_busy_rows(fill);
}

/*
 * Begins at the first block.  All rows that are not filled are in the blocks
 * that the table has now.  A rewrite of the table moves them, so we remember
 * its file.
 */
static bool
begin_fill(Fill *fill)
{
	Relation	rel = try_table_open(fill->relid, AccessShareLock);

	if (rel == NULL)
		return false;
	fill->total = RelationGetNumberOfBlocks(rel);
	fill->file = rel->rd_rel->relfilenode;
	table_close(rel, AccessShareLock);
	fill->busy_blocks = NIL;
	fill->busy_rows = 0;
	fill->is_retry = false;
	fill->resumed_at = InvalidBlockNumber;
	return true;
}

static void
pause_for_others(void)
{
	if (ttl_docs_adopt_pause > 0 && ttl_docs_is_server_busy())
		ttl_docs_pause(ttl_docs_adopt_pause);
}

/*
 * Fills rows of a range of blocks in one transaction.  Sets *next to the block
 * where the next batch begins.
 */
static FillEnd
fill_blocks(Fill *fill, BlockNumber from, BlockNumber count, BlockNumber *next)
{
	Batch		batch;
	MemoryContext context = AllocSetContextCreate(fill->context, "ttl_docs batch",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(context);
	OwnerSwitch before;
	FillEnd		end = begin_batch(fill, &batch);

	if (end == FILL_DONE)
	{
		ttl_docs_become_owner(batch.rel, &before);
		open_rows(&batch);
		read_blocks(fill, &batch, from, count);
		*next = batch.stopped_at;
		end_batch(&batch);
		ttl_docs_become_caller(&before);
		table_close(batch.rel, NoLock);
		/* the commit of the last step makes all others durable */
		(void) set_config_option("synchronous_commit", "off", PGC_USERSET, PGC_S_SESSION,
								 GUC_ACTION_LOCAL, true, 0, false);
	}
	ttl_docs_commit_step();
	MemoryContextSwitchTo(caller);
	MemoryContextDelete(context);
	if (end != FILL_DONE)
		return end;
	fill->result->written += batch.written;
	fill->unvacuumed += batch.written;
	ttl_docs_add_progress(0, batch.written);
	return FILL_DONE;
}

/* Opens the table, and looks up everything that others may have changed. */
static FillEnd
begin_batch(Fill *fill, Batch *batch)
{
	memset(batch, 0, sizeof(*batch));
	batch->rel = try_table_open(fill->relid, RowExclusiveLock);
	if (batch->rel == NULL)
		return FILL_GONE;
	if (!ttl_docs_lookup_collection(fill->relid, &batch->collection) ||
		batch->collection.root != fill->root ||
		batch->collection.settings.adopting == DT_NOBEGIN)
	{
		table_close(batch->rel, RowExclusiveLock);
		return FILL_GONE;
	}
	if (batch->rel->rd_rel->relfilenode != fill->file)
	{
		table_close(batch->rel, RowExclusiveLock);
		return FILL_REWRITTEN;
	}
	/* the caller may not own them any more; only the rights matter, so lock nothing */
	require_owner(fill->root);
	require_owner(fill->relid);
	CheckCmdReplicaIdentity(batch->rel, CMD_UPDATE);
	find_last_modified(batch);
	batch->computes_generated = depends_on_system_column(batch->rel, &batch->collection);
	batch->changes_key =
		has_system_column(RelationGetIndexAttrBitmap(batch->rel, INDEX_ATTR_BITMAP_KEY),
						  &batch->collection);
	return FILL_DONE;
}

static void
require_owner(Oid relid)
{
	char	   *name = get_rel_name(relid);

	if (name == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("relation with OID %u does not exist", relid)));
	if (!compat_table_ownercheck(relid, GetUserId()))
		aclcheck_error(ACLCHECK_NOT_OWNER, OBJECT_TABLE, name);
}

static void
open_rows(Batch *batch)
{
	batch->estate = CreateExecutorState();
	batch->relinfo = makeNode(ResultRelInfo);
	InitResultRelInfo(batch->relinfo, batch->rel, 1, NULL, 0);
	ExecOpenIndices(batch->relinfo, false);
	batch->row = table_slot_create(batch->rel, NULL);
	batch->new_row = MakeSingleTupleTableSlot(RelationGetDescr(batch->rel),
											  &TTSOpsHeapTuple);
	batch->snapshot = RegisterSnapshot(GetLatestSnapshot());
	PushActiveSnapshot(batch->snapshot);
}

static void
find_last_modified(Batch *batch)
{
	const CollectionSettings *settings = &batch->collection.settings;
	Oid			relid = RelationGetRelid(batch->rel);
	Oid			type;

	if (NameStr(settings->last_modified)[0] == '\0')
		return;
	batch->last_modified = get_attnum(relid, NameStr(settings->last_modified));
	type = batch->last_modified > 0 ?
		getBaseType(get_atttype(relid, batch->last_modified)) : InvalidOid;
	if (type != TIMESTAMPTZOID && type != TIMESTAMPOID)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_COLUMN),
				 errmsg("column \"%s\" of table \"%s\" is missing or does not contain timestamps",
						NameStr(settings->last_modified),
						RelationGetRelationName(batch->rel)),
				 errhint("Restore the column, or release the table: SELECT ttl_docs.release(%s).",
						 ttl_docs_quoted_literal(batch->collection.root))));
	batch->is_timestamptz = type == TIMESTAMPTZOID;
	batch->time_zone = pg_tzset(NameStr(settings->time_zone));
	if (batch->time_zone == NULL)
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

/*
 * Reads blocks until the time of the batch is over, and fills their rows.  A
 * batch ends at the end of a block, or after a row that it has written: the
 * next batch reads that block again, and finds the row filled.
 */
static void
read_blocks(Fill *fill, Batch *batch, BlockNumber from, BlockNumber count)
{
	int64		until = ttl_docs_elapsed() + BATCH_TIME;
	MemoryContext caller = CurrentMemoryContext;
	TableScanDesc scan = table_beginscan_strat(batch->rel, batch->snapshot, 0, NULL,
											   true, false);
	BlockNumber block = from;

	/* another session may have truncated the end of the table */
	batch->stopped_at = from + count;
	count = RelationGetNumberOfBlocks(batch->rel) > from ?
		Min(count, RelationGetNumberOfBlocks(batch->rel) - from) : 0;
	if (count > 0)
		heap_setscanlimits(scan, from, count);
	while (count > 0 && table_scan_getnextslot(scan, ForwardScanDirection, batch->row))
	{
		BlockNumber current = ItemPointerGetBlockNumber(&batch->row->tts_tid);
		FillOutcome outcome;

		CHECK_FOR_INTERRUPTS();
		if (current != block && ttl_docs_elapsed() >= until)
		{
			batch->stopped_at = current;
			break;
		}
		block = current;
		MemoryContextSwitchTo(GetPerTupleMemoryContext(batch->estate));
		outcome = fill_row(fill, batch);
		MemoryContextSwitchTo(caller);
		ResetPerTupleExprContext(batch->estate);
		if (outcome == ROW_WRITTEN)
		{
			batch->written++;
			if (ttl_docs_elapsed() >= until)
			{
				batch->stopped_at = fill->resumed_at = current;
				break;
			}
		}
		else if (outcome == ROW_BUSY)
		{
			fill->busy_rows++;
			note_busy_block(fill, block);
		}
	}
	table_endscan(scan);
}

static void
note_busy_block(Fill *fill, BlockNumber block)
{
	MemoryContext caller = MemoryContextSwitchTo(fill->context);

	if (fill->busy_blocks == NIL || llast_int(fill->busy_blocks) != (int) block)
		fill->busy_blocks = lappend_int(fill->busy_blocks, (int) block);
	MemoryContextSwitchTo(caller);
}

/* Fills the current row, if it needs other values. */
static FillOutcome
fill_row(Fill *fill, Batch *batch)
{
	const Collection *collection = &batch->collection;
	TupleDesc	tupdesc = RelationGetDescr(batch->rel);
	Stamp		old = ttl_docs_row_stamp(collection, batch->row);
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
	doc = slot_getattr(batch->row, collection->doc, &isnull);
	ttl_docs_read_ttl(doc, isnull, &stamp, &found);
	if (!stamp.inherits && stamp.ttl == TTL_INVALID && collection->settings.target_on)
		report_invalid_ttl(batch, &found);
	if (!stamp.inherits && is_first_time(fill, batch, is_filled || !old.inherits))
		note_ttl(fill->result, &stamp, doc, fill->context);
	if (is_filled)
		return ROW_IS_RIGHT;
	tuple = ExecFetchSlotHeapTuple(batch->row, false, NULL);
	stamp.ts = first_ts(batch, tuple);
	if (stamp.ts == old.ts && stamp.inherits == old.inherits && stamp.ttl == old.ttl)
		return ROW_IS_RIGHT;
	slot = ttl_docs_slot_under(&collection->settings, &stamp);
	values[0] = TimestampTzGetDatum(stamp.ts);
	values[1] = Int32GetDatum(stamp.ttl);
	nulls[1] = stamp.inherits;
	values[2] = Int64GetDatum(slot);
	nulls[2] = slot == NO_SLOT;
	return replace_row(batch, heap_modify_tuple_by_cols(tuple, tupdesc, 3, columns,
														values, nulls));
}

/*
 * Has this call not counted the document of the current row before?  It reads
 * rows again that it or another session has written since it began, and blocks
 * with busy rows.  Without last_modified, a row that was filled keeps its _ts, so
 * it counts as written if it has a _ttl.
 */
static bool
is_first_time(const Fill *fill, const Batch *batch, bool is_written)
{
	HeapTuple	tuple = ExecFetchSlotHeapTuple(batch->row, false, NULL);

	if (fill->is_retry)
		return false;
	return !is_written ||
		(ItemPointerGetBlockNumber(&batch->row->tts_tid) != fill->resumed_at &&
		 TransactionIdPrecedes(HeapTupleHeaderGetXmin(tuple->t_data),
							   fill->result->first_xid));
}

/* Counts a document with its own ttl, and keeps an excerpt of the first. */
static void
note_ttl(FillResult *result, const Stamp *stamp, Datum doc, MemoryContext context)
{
	result->with_ttl++;
	if (result->example != NULL)
		return;
	result->example_ttl = stamp->ttl;
	result->example = MemoryContextStrdup(context,
										  ttl_docs_json_excerpt(DatumGetJsonbP(doc)));
}

/*
 * The first _ts of a row that is not filled yet: the value of last_modified, or
 * the time at which the adoption began if there is none.
 */
static TimestampTz
first_ts(const Batch *batch, HeapTuple tuple)
{
	TimestampTz adopted = batch->collection.settings.adopting;
	Datum		value;
	bool		isnull;
	struct pg_tm tm;
	fsec_t		fsec;
	TimestampTz result;
	int			tz;

	if (batch->last_modified == InvalidAttrNumber)
		return adopted;
	value = heap_getattr(tuple, batch->last_modified, RelationGetDescr(batch->rel), &isnull);
	if (isnull || TIMESTAMP_NOT_FINITE(DatumGetTimestamp(value)))
		return adopted;
	if (batch->is_timestamptz)
		return DatumGetTimestampTz(value);
	if (timestamp2tm(DatumGetTimestamp(value), NULL, &tm, &fsec, NULL, NULL) != 0)
		return adopted;
	tz = DetermineTimeZoneOffset(&tm, batch->time_zone);
	if (tm2timestamp(&tm, fsec, &tz, &result) != 0)
		return adopted;
	return result;
}

/* Replaces the current row, unless another session uses it. */
static FillOutcome
replace_row(Batch *batch, HeapTuple tuple)
{
	compat_UpdateIndexes update_indexes;
	TM_Result	result;

	ExecStoreHeapTuple(tuple, batch->new_row, false);
	if (batch->computes_generated)
		ExecComputeStoredGenerated(batch->relinfo, batch->estate, batch->new_row,
								   CMD_INSERT);
	result = update_row(batch, false, &update_indexes);
	/* somebody has locked the row, possibly in a way that does not matter */
	if (result == TM_BeingModified && lock_row(batch, &result))
		result = update_row(batch, true, &update_indexes);
	if (result == TM_Ok && batch->relinfo->ri_NumIndices > 0 &&
		compat_any_index(update_indexes))
		list_free(compat_ExecInsertIndexTuples(batch->relinfo, batch->new_row,
											   batch->estate, update_indexes));
	ExecClearTuple(batch->new_row);
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
update_row(Batch *batch, bool wait, compat_UpdateIndexes *update_indexes)
{
	TM_FailureData failure;
	LockTupleMode lockmode;

	return compat_table_tuple_update(batch->rel, &batch->row->tts_tid, batch->new_row,
									 GetCurrentCommandId(true), batch->snapshot, wait,
									 &failure, &lockmode, update_indexes);
}

/*
 * Locks the current row, unless that would mean waiting.  For example, a
 * foreign key check of another session locks the row, too, but does not mind an
 * update that keeps the key.  The lock must be as strong as that of the update,
 * which would wait otherwise.
 */
static bool
lock_row(Batch *batch, TM_Result *result)
{
	TupleTableSlot *locked = table_slot_create(batch->rel, NULL);
	TM_FailureData failure;

	*result = table_tuple_lock(batch->rel, &batch->row->tts_tid, batch->snapshot,
							   locked, GetCurrentCommandId(true),
							   batch->changes_key ? LockTupleExclusive : LockTupleNoKeyExclusive,
							   LockWaitSkip, 0, &failure);
	ExecDropSingleTupleTableSlot(locked);
	return *result == TM_Ok;
}

static void
end_batch(Batch *batch)
{
	PopActiveSnapshot();
	UnregisterSnapshot(batch->snapshot);
	ExecCloseIndices(batch->relinfo);
	ExecDropSingleTupleTableSlot(batch->row);
	ExecDropSingleTupleTableSlot(batch->new_row);
	FreeExecutorState(batch->estate);
}

/* Reads blocks with busy rows again, until none is left. */
static FillEnd
retry_busy_rows(Fill *fill)
{
	int64		began = ttl_docs_elapsed();
	int			pause = FIRST_BUSY_PAUSE;
	bool		has_noticed = false;

	fill->is_retry = true;
	while (fill->busy_blocks != NIL)
	{
		List	   *blocks = fill->busy_blocks;
		FillEnd		end;

		ttl_docs_set_phase(PHASE_BUSY);
		ttl_docs_set_busy(fill->busy_rows);
		if (!has_noticed && ttl_docs_elapsed() - began >= NOTICE_AFTER)
		{
			ttl_docs_notice_lock_holders(fill->relid);
			has_noticed = true;
		}
		ttl_docs_pause(pause);
		pause = Min(pause * 2, LONGEST_BUSY_PAUSE);
		fill->busy_blocks = NIL;
		fill->busy_rows = 0;
		end = fill_listed_blocks(fill, blocks);
		if (end != FILL_DONE)
			return end;
		list_free(blocks);
	}
	ttl_docs_set_busy(0);
	return FILL_DONE;
}

/*
 * Fills blocks of an ascending list.  A batch takes as many adjacent blocks as
 * its time allows.  It can end within a block, after a row that it has written;
 * then the next batch reads the rest of that block.
 */
static FillEnd
fill_listed_blocks(Fill *fill, List *blocks)
{
	int			done = 0;

	while (done < list_length(blocks))
	{
		BlockNumber from = (BlockNumber) list_nth_int(blocks, done);
		BlockNumber count = 1;
		BlockNumber next;
		FillEnd		end;

		while (count < BATCH_BLOCKS && done + (int) count < list_length(blocks) &&
			   (BlockNumber) list_nth_int(blocks, done + count) == from + count)
			count++;
		end = fill_blocks(fill, from, count, &next);
		if (end != FILL_DONE)
			return end;
		done += next - from;
	}
	return FILL_DONE;
}

/*
 * Makes the space of old versions available for new ones.  Does nothing if few
 * rows were written, or if autovacuum is at work.  Does not give disk space
 * back at the end of the table, because that needs a strong lock.  Old versions
 * of documents that are stored out of line are the same as the new ones, so the
 * TOAST table needs nothing.
 */
static void
vacuum_table(Fill *fill)
{
	if (fill->total < MIN_VACUUMED_BLOCKS ||
		fill->unvacuumed < fill->total / VACUUMS / MAX_BLOCKS_PER_ROW)
		return;
	fill->unvacuumed = 0;
	/* without this test, VACUUM would give a warning */
	if (!ConditionalLockRelationOid(fill->relid, ShareUpdateExclusiveLock))
		return;
	if (get_rel_name(fill->relid) == NULL)
		return;
	ttl_docs_set_phase(PHASE_VACUUM);
	ttl_docs_run_committing(psprintf("VACUUM (TRUNCATE FALSE, PROCESS_TOAST FALSE, SKIP_LOCKED) %s",
									 ttl_docs_quoted_name(fill->relid)));
}

static void
report_invalid_ttl(const Batch *batch, JsonbValue *found)
{
	const Collection *collection = &batch->collection;
	JsonbValue	copy = *found;

	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("a document of \"%s\" has an invalid \"ttl\": %s",
					RelationGetRelationName(batch->rel),
					ttl_docs_json_excerpt(JsonbValueToJsonb(&copy))),
			 errdetail("TTL is still off, so nothing expires. New documents with an invalid ttl are refused."),
			 errhint("A ttl is an integer from 1 to %d, -1, or null. To find the documents with an invalid ttl: SELECT * FROM %s WHERE ttl_docs.document_ttl(%s) = 0. Correct them, and continue: %s.",
					 TTL_MAX, ttl_docs_quoted_name(collection->root),
					 quote_identifier(NameStr(collection->settings.doc_column)),
					 ttl_docs_adoption_command(collection->root, &collection->settings))));
}
