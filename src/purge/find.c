/*-------------------------------------------------------------------------
 *
 * find.c
 *		Finds what is expired through the purge index, and nothing else.
 *
 * A btree is read from where the last look ended up to the slot that has just
 * expired, without a look at the table: the entries are the candidates.  They
 * are merged from the two ranges of the index in the order of their due time.
 * Slots are rounded up, so their rows have expired if they are still what they
 * were.  Below a floor that no longer moves, the slot of the floor itself is
 * read too; what is live there is found out when it is judged (batch.c).
 *
 * Positions.  Documents are written into slots that have yet to expire, so the
 * next look begins after the last slot, and dead entries that an old snapshot
 * keeps are never read again.  Only a look that ends within a slot goes back to
 * the beginning of that slot, and passes over the entries before its position:
 * entries of the same slot are in the order of their rows.  A document that
 * comes into a slot that is over all the same (a stamp that the clock did not
 * give, or a session that was held up) is told of when it is committed, and
 * takes the position back to its slot.  A position does not hold when settings,
 * index or the direction of time change.
 *
 * A BRIN index gives ranges of blocks.  Their rows are read and judged at once,
 * because most of them are none of our business.  It has no order and cannot
 * tell what is due next.
 *
 * A look at a btree never sleeps, because its scans keep a page pinned, for which VACUUM
 * would have to wait.  Like a batch it takes a limited time, and the worker pauses after
 * it.  A look at a BRIN index may read the table for longer, and rests between blocks,
 * when it has no page pinned.
 *
 * The caller has a transaction, an active snapshot and a lock on the table.
 *
 * Looks also tell when the first document that is still live expires, as far as the
 * index shows it (earliest.c): by the first entries of a btree, or by the
 * rows of the blocks that a look at a BRIN index has to read anyway.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/relscan.h"
#include "access/tableam.h"
#include "executor/tuptable.h"
#include "miscadmin.h"
#include "nodes/tidbitmap.h"
#include "storage/bufmgr.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "purge/purge_internal.h"

/* no ttl is shorter, so within it a clock that goes back does not matter */
#define CLOCK_TOLERANCE	USECS_PER_SEC
/* how long a look may take, and how often it looks at the time */
#define LOOK_TIME		(USECS_PER_SEC / 2)
#define ENTRIES_PER_LOOK	4096
/* how far a backlog is counted beyond the candidates */
#define COUNT_LIMIT		2000000
/* work_mem of a bitmap, in bytes; beyond it, it knows blocks only, as BRIN does */
#define BITMAP_MEMORY	4194304L
#define BLOCKS_AT_ONCE	128

/* One of the two ranges of a btree while it is read */
typedef struct RangeScan
{
	IndexScanDesc scan;
	PurgePosition from;
	int64		upper;			/* the last slot that may be expired */
	bool		has_entry;		/* the next one: */
	PurgePosition entry;
	TimestampTz due;			/* of that */
	int64		entries;		/* that were read */
} RangeScan;

static void find_in_btree(Relation rel, Relation index,
						  const Collection *collection,
						  const PurgeProgress *progress, TimestampTz clock,
						  int max, bool count, Candidates *found);
static void begin_range(RangeScan *range, SlotRange which, Relation rel,
						Relation index, const PurgeProgress *progress,
						int32 default_ttl);
static void next_entry(RangeScan *range, int32 default_ttl);
static RangeScan *earlier_range(RangeScan *ranges);
static bool time_is_up(int64 deadline, int64 entries);
static void find_in_brin(Relation rel, Relation index,
						 const Collection *collection,
						 const PurgeProgress *progress, TimestampTz clock,
						 TimestampTz ahead, int max, Candidates *found);
static TIDBitmap *expired_blocks(Relation index, const CollectionSettings *settings,
								 TimestampTz clock);
static void find_in_blocks(Relation rel, const Collection *collection,
						   TimestampTz clock, BlockNumber first,
						   BlockNumber last, int *room, Candidates *found);

int
ttl_docs_compare_positions(const PurgePosition *a, const PurgePosition *b)
{
	if (a->slot != b->slot)
		return a->slot < b->slot ? -1 : 1;
	return ItemPointerCompare(unconstify(ItemPointerData *, &a->tid),
							  unconstify(ItemPointerData *, &b->tid));
}

/* Begins anew, under what is now. */
void
ttl_docs_reset_progress(PurgeProgress *progress, Relation index,
						const Collection *collection, TimestampTz clock)
{
	memset(progress, 0, sizeof(*progress));
	progress->is_set = true;
	progress->root = collection->root;
	progress->settings = collection->settings;
	progress->index = RelationGetRelid(index);
	progress->index_file = index->rd_rel->relfilenode;
	progress->clock = clock;
	for (SlotRange range = 0; range < RANGE_COUNT; range++)
		progress->next[range].slot = NO_SLOT;
	progress->revisit_at = DT_NOEND;
}

/* Does what was recorded still hold? */
bool
ttl_docs_progress_holds(const PurgeProgress *progress, Relation index,
						const Collection *collection, TimestampTz clock)
{
	const CollectionSettings *now = &collection->settings;
	const CollectionSettings *then = &progress->settings;

	return progress->is_set &&
		progress->index == RelationGetRelid(index) &&
		progress->index_file == index->rd_rel->relfilenode &&
		progress->root == collection->root &&
		progress->clock <= clock + CLOCK_TOLERANCE &&
		then->on == now->on && then->default_ttl == now->default_ttl &&
		then->indexing == now->indexing &&
		then->written_floor == now->written_floor &&
		then->due_floor == now->due_floor;
}

/* Something was written into a slot that was due then: begins there again. */
void
ttl_docs_rewind_progress(PurgeProgress *progress, TimestampTz due)
{
	for (SlotRange range = 0; range < RANGE_COUNT; range++)
	{
		int64		slot = ttl_docs_slot_at(range, due, progress->settings.default_ttl);

		/* within a slot, too: rows may come before the position */
		if (slot <= progress->next[range].slot)
		{
			progress->next[range].slot = slot;
			ItemPointerSet(&progress->next[range].tid, 0, 0);
		}
	}
}

/*
 * Finds up to about max candidates from where progress says, as many as there is
 * time for, and counts how many more there are.  In a lazy collection, it reads all
 * blocks in which something may expire up to the time ahead, to learn the earliest
 * expiry of the live documents.  The items are allocated in the current memory
 * context.
 */
void
ttl_docs_find_candidates(Relation rel, Relation index,
						 const Collection *collection,
						 const PurgeProgress *progress, TimestampTz clock,
						 TimestampTz ahead, int max, bool count, Candidates *found)
{
	memset(found, 0, sizeof(*found));
	found->backlog = -1;
	found->next_due = DT_NOEND;
	found->first_live = DT_NOEND;
	found->default_ttl = collection->settings.default_ttl;
	if (collection->settings.indexing == INDEXING_LAZY)
		find_in_brin(rel, index, collection, progress, clock, Max(clock, ahead),
					 max, found);
	else
		find_in_btree(rel, index, collection, progress, clock, max, count, found);
}

static void
find_in_btree(Relation rel, Relation index, const Collection *collection,
			  const PurgeProgress *progress, TimestampTz clock, int max,
			  bool count, Candidates *found)
{
	const CollectionSettings *settings = &collection->settings;
	RangeScan	ranges[RANGE_COUNT];
	RangeScan  *range;
	int			room = Min(max, 1024);
	int64		more = 0;
	int64		deadline;

	for (SlotRange which = 0; which < RANGE_COUNT; which++)
	{
		ranges[which].upper = ttl_docs_last_expired_slot(settings, which, clock);
		begin_range(&ranges[which], which, rel, index, progress,
					settings->default_ttl);
	}

	found->items = palloc(room * sizeof(Candidate));
	deadline = ttl_docs_elapsed() + LOOK_TIME;
	while (found->count < max && !time_is_up(deadline, found->count + 1) &&
		   (range = earlier_range(ranges)) != NULL)
	{
		Candidate  *item;

		if (found->count == room)
		{
			room = Min(room * 2, max);
			found->items = repalloc(found->items, room * sizeof(Candidate));
		}
		item = &found->items[found->count++];
		item->slot = range->entry.slot;
		item->tid = range->entry.tid;
		item->fate = CANDIDATE_OPEN;
		next_entry(range, settings->default_ttl);
	}
	found->is_complete = earlier_range(ranges) == NULL;
	for (SlotRange which = 0; which < RANGE_COUNT; which++)
	{
		range = &ranges[which];
		if (range->has_entry && range->entry.slot <= range->upper)
		{
			found->end[which] = range->entry;
			continue;
		}
		found->end[which].slot = Max(range->from.slot, range->upper + 1);
		ItemPointerSet(&found->end[which].tid, 0, 0);
	}
	deadline = ttl_docs_elapsed() + ttl_docs_pace_time();
	while (count && more < COUNT_LIMIT && !time_is_up(deadline, more + 1) &&
		   (range = earlier_range(ranges)) != NULL)
	{
		more++;
		next_entry(range, settings->default_ttl);
	}
	if (count || found->is_complete)
		found->backlog = found->count + more;
	found->has_counted_all = earlier_range(ranges) == NULL;
	for (SlotRange which = 0; which < RANGE_COUNT; which++)
	{
		range = &ranges[which];
		if (range->has_entry && range->entry.slot > range->upper && settings->on)
			found->next_due = Min(found->next_due, range->due);
		found->has_read_many |= ranges[which].entries >= ENTRIES_PER_LOOK;
		index_endscan(ranges[which].scan);
	}
}

/* Is it time to come to an end?  Looks at the time now and then only. */
static bool
time_is_up(int64 deadline, int64 entries)
{
	return entries % ENTRIES_PER_LOOK == 0 && ttl_docs_elapsed() >= deadline;
}

/* Starts to read a range where progress says. */
static void
begin_range(RangeScan *range, SlotRange which, Relation rel, Relation index,
			const PurgeProgress *progress, int32 default_ttl)
{
	ScanKeyData keys[2];

	range->entries = 0;
	range->from = progress->next[which];
	ttl_docs_slot_scan_keys(keys, which, range->from.slot, SLOT_INVALID - 1);
	range->scan = compat_index_beginscan(rel, index, GetActiveSnapshot(),
										 lengthof(keys));
	range->scan->xs_want_itup = true;
	index_rescan(range->scan, keys, lengthof(keys), NULL, 0);
	next_entry(range, default_ttl);
}

/* Moves on to the next entry of a range. */
static void
next_entry(RangeScan *range, int32 default_ttl)
{
	ItemPointer tid;
	bool		isnull;

	do
	{
		CHECK_FOR_INTERRUPTS();
		tid = index_getnext_tid(range->scan, ForwardScanDirection);
		range->has_entry = tid != NULL;
		if (tid == NULL)
			return;
		range->entries++;
		range->entry.slot = DatumGetInt64(index_getattr(range->scan->xs_itup, 1,
														range->scan->xs_itupdesc,
														&isnull));
		range->entry.tid = *tid;
	} while (range->entry.slot == range->from.slot &&
			 ItemPointerCompare(&range->entry.tid, &range->from.tid) < 0);
	range->due = ttl_docs_slot_due(range->entry.slot, default_ttl);
}

/* The range whose next entry is to be taken next; NULL if none is expired. */
static RangeScan *
earlier_range(RangeScan *ranges)
{
	RangeScan  *earlier = NULL;

	for (SlotRange which = 0; which < RANGE_COUNT; which++)
	{
		RangeScan  *range = &ranges[which];

		if (range->has_entry && range->entry.slot <= range->upper &&
			(earlier == NULL || range->due < earlier->due))
			earlier = range;
	}
	return earlier;
}

static void
find_in_brin(Relation rel, Relation index, const Collection *collection,
			 const PurgeProgress *progress, TimestampTz clock,
			 TimestampTz ahead, int max, Candidates *found)
{
	TIDBitmap  *bitmap = expired_blocks(index, &collection->settings, ahead);
	compat_TBMIterator *iterator = compat_tbm_begin(bitmap);
	BlockNumber nblocks = RelationGetNumberOfBlocks(rel);
	BlockNumber first = InvalidBlockNumber; /* of the run at hand */
	BlockNumber last = InvalidBlockNumber;
	BlockNumber block = InvalidBlockNumber;
	int			room = 0;
	int64		rested = ttl_docs_elapsed();
	int64		deadline = rested + LOOK_TIME;

	found->by_row = true;
	found->is_complete = true;
	while (compat_tbm_next(iterator, &block))
	{
		if (block < progress->next_block || block >= nblocks)
			continue;
		if (first != InvalidBlockNumber &&
			(block != last + 1 || block - first >= BLOCKS_AT_ONCE))
		{
			find_in_blocks(rel, collection, clock, first, last, &room, found);
			ttl_docs_pace_rest(&rested);
			if (found->count >= max || time_is_up(deadline, 0))
			{
				found->is_complete = false;
				found->end_block = block;
				first = InvalidBlockNumber;
				break;
			}
			first = InvalidBlockNumber;
		}
		if (first == InvalidBlockNumber)
			first = block;
		last = block;
	}
	if (first != InvalidBlockNumber)
		find_in_blocks(rel, collection, clock, first, last, &room, found);
	compat_tbm_end(iterator);
	tbm_free(bitmap);
	found->backlog = found->count;
}

/* The blocks whose summaries do not rule out an expired document. */
static TIDBitmap *
expired_blocks(Relation index, const CollectionSettings *settings,
			   TimestampTz clock)
{
	TIDBitmap  *bitmap = tbm_create(BITMAP_MEMORY, NULL);

	for (SlotRange range = 0; range < RANGE_COUNT; range++)
	{
		int64		upper = ttl_docs_last_expired_slot(settings, range, clock);
		ScanKeyData keys[2];
		IndexScanDesc scan;

		if (upper == NO_SLOT)
			continue;
		ttl_docs_slot_scan_keys(keys, range, NO_SLOT, upper);
		/* with a real snapshot, a serializable transaction would lock the index */
		scan = compat_index_beginscan_bitmap(index, SnapshotAny, lengthof(keys));
		index_rescan(scan, keys, lengthof(keys), NULL, 0);
		index_getbitmap(scan, bitmap);
		index_endscan(scan);
	}
	return bitmap;
}

/*
 * Adds the expired rows of some blocks, also those not committed yet, and notes when
 * the first of the others expires.
 */
static void
find_in_blocks(Relation rel, const Collection *collection, TimestampTz clock,
			   BlockNumber first, BlockNumber last, int *room, Candidates *found)
{
	ExpiryBounds bounds = ttl_docs_bounds(&collection->settings, clock);
	TupleTableSlot *row = table_slot_create(rel, NULL);
	SnapshotData dirty;
	TableScanDesc scan;
	ItemPointerData min;
	ItemPointerData max;

	InitDirtySnapshot(dirty);
	ItemPointerSet(&min, first, 0);
	ItemPointerSet(&max, last, MaxOffsetNumber);
	scan = table_beginscan_tidrange(rel, &dirty, &min, &max);
	while (table_scan_getnextslot_tidrange(scan, ForwardScanDirection, row))
	{
		Candidate  *item;

		CHECK_FOR_INTERRUPTS();
		if (!ttl_docs_row_is_expired(&bounds, collection, row))
		{
			Stamp		stamp = ttl_docs_row_stamp(collection, row);

			found->first_live = Min(found->first_live,
									ttl_docs_expired_from(&collection->settings, &stamp));
			continue;
		}
		if (found->count == *room)
		{
			*room = Max(*room * 2, 1024);
			found->items = found->items == NULL ?
				palloc(*room * sizeof(Candidate)) :
				repalloc(found->items, *room * sizeof(Candidate));
		}
		item = &found->items[found->count++];
		item->slot = NO_SLOT;
		item->tid = row->tts_tid;
		item->fate = CANDIDATE_OPEN;
	}
	table_endscan(scan);
	ExecDropSingleTupleTableSlot(row);
}
