/*-------------------------------------------------------------------------
 *
 * find.c
 *		Searches the purge index for candidates.
 *
 * A btree is read from the position of progress.c up to the last slot that can have
 * expired.  The entries themselves are the candidates; the search does not read the
 * table.  It merges the two ranges of the index in the order of due times.  Slots
 * are rounded up, so the documents of these entries have expired, unless they were
 * written again since.  Floors are an exception: the slot that contains a floor is
 * read as well, and some of its documents are live.  The batch judges each of them
 * (batch.c).
 *
 * A search that ends within a slot keeps the position of the next entry.  Entries of
 * a slot are in the order of their rows.  The next search begins at the page that has
 * the entry (leaf_reader.c).  If it cannot, it reads the slot again from its
 * beginning, and skips the entries before the position.
 *
 * A BRIN index gives ranges of blocks.  Their rows are read and judged at once,
 * because most of them are live.  BRIN has no order, and does not show the next due
 * time.
 *
 * The search also finds out when the first live document expires, as far as the index
 * shows it (earliest.c): from the first entries of a btree, or from the rows of the
 * blocks that BRIN makes it read.
 *
 * The time of a search is limited.  A search of a btree never sleeps, because its
 * scans pin a page that VACUUM may have to wait for.  If the search has read many
 * entries, the worker pauses as after a batch.  A search by BRIN reads the table, and
 * rests between groups of blocks, when it has no page pinned.
 *
 * The caller has a transaction, an active snapshot and an open target.
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

#include "purge/pass_internal.h"

/* time limit of a search */
#define SEARCH_TIME		(USECS_PER_SEC / 2)
/* number of entries after which a search checks its time limit */
#define ENTRIES_PER_CHECK	4096
/* maximum number of entries to count beyond the candidates */
#define COUNT_LIMIT		2000000
#define BLOCKS_AT_ONCE	128

/* A scan of one of the two ranges of a btree */
typedef struct RangeScan
{
	SlotRange	which;
	IndexScanDesc scan;			/* NULL if leaf is set */
	LeafReader *leaf;			/* NULL if scan is set */
	PurgePosition from;			/* where it began */
	int64		upper;			/* the last slot that can have expired */
	bool		has_entry;		/* false at the end of the range */
	PurgePosition entry;		/* the next entry */
	TimestampTz due;			/* when the next entry is due */
	int64		entries;		/* number of entries read */
} RangeScan;

static void find_in_btree(Relation rel, Relation index,
						  const Collection *collection,
						  const PurgeProgress *progress, TimestampTz clock,
						  int max, bool count, Candidates *found);
static void take_candidates(RangeScan *ranges, int max, Candidates *found);
static void add_candidate(Candidates *found, int64 slot, ItemPointer tid);
static int64 count_entries(RangeScan *ranges, int32 default_ttl);
static void begin_range(RangeScan *range, SlotRange which, Relation rel,
						Relation index, const PurgeProgress *progress,
						int32 default_ttl);
static void next_entry(RangeScan *range, int32 default_ttl);
static bool next_in_scan(RangeScan *range);
static bool next_in_leaf(RangeScan *range);
static void end_range(RangeScan *range);
static RangeScan *earlier_range(RangeScan *ranges);
static bool time_is_up(int64 deadline, int64 entries);
static void find_in_brin(Relation rel, Relation index,
						 const Collection *collection,
						 const PurgeProgress *progress, TimestampTz clock,
						 TimestampTz ahead, int max, Candidates *found);
static void find_in_blocks(Relation rel, const Collection *collection,
						   TimestampTz clock, const ItemPointerData *from,
						   BlockNumber first, BlockNumber last, int *room,
						   Candidates *found);

/*
 * Finds about max candidates from the position in progress, or as many as the time
 * allows, and optionally counts how many more there are.  In a lazy collection, the
 * search also reads the blocks in which a document may expire up to the time "ahead",
 * to find the earliest expiry of the live documents.  The items are allocated in the
 * current memory context.
 */
void
ttl_docs_find_candidates(const PurgeTarget *target, const PurgeProgress *progress,
						 TimestampTz clock, TimestampTz ahead, int max, bool count,
						 Candidates *found)
{
	const CollectionSettings *settings = &target->collection.settings;
	Relation	index = index_open(target->index, AccessShareLock);

	memset(found, 0, sizeof(*found));
	found->backlog = -1;
	found->next_due = DT_NOEND;
	found->first_live = DT_NOEND;
	found->default_ttl = settings->default_ttl;
	if (settings->indexing == INDEXING_LAZY)
		find_in_brin(target->rel, index, &target->collection, progress, clock,
					 Max(clock, ahead), max, found);
	else
		find_in_btree(target->rel, index, &target->collection, progress, clock, max,
					  count, found);
	index_close(index, AccessShareLock);
}

static void
find_in_btree(Relation rel, Relation index, const Collection *collection,
			  const PurgeProgress *progress, TimestampTz clock, int max,
			  bool count, Candidates *found)
{
	const CollectionSettings *settings = &collection->settings;
	RangeScan	ranges[RANGE_COUNT];
	int64		more = 0;

	for (SlotRange which = 0; which < RANGE_COUNT; which++)
	{
		ranges[which].upper = ttl_docs_last_expired_slot(settings, which, clock);
		begin_range(&ranges[which], which, rel, index, progress,
					settings->default_ttl);
	}
	take_candidates(ranges, max, found);
	if (count)
		more = count_entries(ranges, settings->default_ttl);
	if (count || found->is_complete)
		found->backlog = found->count + more;
	found->has_counted_all = earlier_range(ranges) == NULL;
	for (SlotRange which = 0; which < RANGE_COUNT; which++)
	{
		RangeScan  *range = &ranges[which];

		if (range->has_entry && range->entry.slot > range->upper && settings->on)
			found->next_due = Min(found->next_due, range->due);
		found->has_read_many |= range->entries >= ENTRIES_PER_CHECK;
		end_range(range);
	}
}

/* Takes candidates from both ranges, and records where the next search begins. */
static void
take_candidates(RangeScan *ranges, int max, Candidates *found)
{
	int64		deadline = ttl_docs_elapsed() + SEARCH_TIME;
	int			room = Min(max, 1024);
	RangeScan  *range;

	found->items = palloc(room * sizeof(Candidate));
	while (found->count < max && !time_is_up(deadline, found->count + 1) &&
		   (range = earlier_range(ranges)) != NULL)
	{
		if (found->count == room)
		{
			room = Min(room * 2, max);
			found->items = repalloc(found->items, room * sizeof(Candidate));
		}
		add_candidate(found, range->entry.slot, &range->entry.tid);
		next_entry(range, found->default_ttl);
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
		found->end[which].leaf = 0;
	}
}

/* Adds a candidate; there is room for it. */
static void
add_candidate(Candidates *found, int64 slot, ItemPointer tid)
{
	Candidate  *item = &found->items[found->count++];

	item->slot = slot;
	item->tid = *tid;
	ItemPointerSetInvalid(&item->row);
	item->fate = CANDIDATE_GONE;
	item->is_blamed = false;
}

/* Counts the other entries that have expired, within limits. */
static int64
count_entries(RangeScan *ranges, int32 default_ttl)
{
	int64		deadline = ttl_docs_elapsed() + ttl_docs_pace_time();
	int64		count = 0;
	RangeScan  *range;

	while (count < COUNT_LIMIT && !time_is_up(deadline, count + 1) &&
		   (range = earlier_range(ranges)) != NULL)
	{
		count++;
		next_entry(range, default_ttl);
	}
	return count;
}

/* Has the time limit passed?  Checks the time once for ENTRIES_PER_CHECK entries. */
static bool
time_is_up(int64 deadline, int64 entries)
{
	return entries % ENTRIES_PER_CHECK == 0 && ttl_docs_elapsed() >= deadline;
}

/* Begins to read a range at the position in progress. */
static void
begin_range(RangeScan *range, SlotRange which, Relation rel, Relation index,
			const PurgeProgress *progress, int32 default_ttl)
{
	ScanKeyData keys[2];

	range->which = which;
	range->entries = 0;
	range->from = progress->next[which];
	range->scan = NULL;
	range->leaf = ttl_docs_begin_leaf(index, &range->from);
	if (range->leaf != NULL)
	{
		next_entry(range, default_ttl);
		return;
	}
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
	range->has_entry = range->leaf != NULL ? next_in_leaf(range) : next_in_scan(range);
	if (range->has_entry)
		range->due = ttl_docs_slot_due(range->entry.slot, default_ttl);
}

static bool
next_in_scan(RangeScan *range)
{
	ItemPointer tid;
	bool		isnull;

	do
	{
		CHECK_FOR_INTERRUPTS();
		tid = index_getnext_tid(range->scan, ForwardScanDirection);
		if (tid == NULL)
			return false;
		range->entries++;
		range->entry.slot = DatumGetInt64(index_getattr(range->scan->xs_itup, 1,
														range->scan->xs_itupdesc,
														&isnull));
		range->entry.tid = *tid;
	} while (ttl_docs_compare_positions(&range->entry, &range->from) < 0);
	range->entry.leaf = ttl_docs_leaf_of_scan(range->scan);
	return true;
}

/* An index scan ends with the range, but the pages of the index do not. */
static bool
next_in_leaf(RangeScan *range)
{
	range->entries++;
	return ttl_docs_next_in_leaf(range->leaf, &range->entry) &&
		ttl_docs_slot_range(range->entry.slot) == range->which &&
		range->entry.slot < SLOT_INVALID;
}

static void
end_range(RangeScan *range)
{
	if (range->scan != NULL)
		index_endscan(range->scan);
	else
		pfree(range->leaf);
}

/* The range whose next entry is due first; NULL if no entry has expired. */
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
	int64		last_slots[RANGE_COUNT];
	TIDBitmap  *bitmap;
	compat_TBMIterator *iterator;
	BlockNumber nblocks = RelationGetNumberOfBlocks(rel);
	BlockNumber first = InvalidBlockNumber; /* of adjacent blocks to read */
	BlockNumber last = InvalidBlockNumber;
	BlockNumber block = InvalidBlockNumber;
	int			room = 0;
	int64		rested = ttl_docs_elapsed();
	int64		deadline = rested + SEARCH_TIME;

	for (SlotRange range = 0; range < RANGE_COUNT; range++)
		last_slots[range] = ttl_docs_last_expired_slot(&collection->settings, range, ahead);
	bitmap = ttl_docs_lazy_blocks(index, last_slots);
	iterator = compat_tbm_begin(bitmap);
	found->by_row = true;
	found->is_complete = true;
	while (compat_tbm_next(iterator, &block))
	{
		if (block < progress->next_block || block >= nblocks)
			continue;
		if (first != InvalidBlockNumber &&
			(block != last + 1 || block - first >= BLOCKS_AT_ONCE))
		{
			find_in_blocks(rel, collection, clock, &progress->next_row, first, last,
						   &room, found);
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
		find_in_blocks(rel, collection, clock, &progress->next_row, first, last,
						   &room, found);
	compat_tbm_end(iterator);
	tbm_free(bitmap);
	found->backlog = found->count;
}

/*
 * Adds the expired rows of some blocks, including uncommitted ones, and finds out when
 * the first of the other rows expires.
 */
static void
find_in_blocks(Relation rel, const Collection *collection, TimestampTz clock,
			   const ItemPointerData *from, BlockNumber first, BlockNumber last,
			   int *room, Candidates *found)
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
	scan = compat_table_beginscan_tidrange(rel, &dirty, &min, &max);
	while (table_scan_getnextslot_tidrange(scan, ForwardScanDirection, row))
	{
		CHECK_FOR_INTERRUPTS();
		if (!ttl_docs_row_is_expired(&bounds, collection, row))
		{
			Stamp		stamp = ttl_docs_row_stamp(collection, row);

			found->first_live = Min(found->first_live,
									ttl_docs_expired_from(&collection->settings, &stamp));
			continue;
		}
		if (ItemPointerIsValid(from) &&
			ItemPointerCompare(&row->tts_tid,
							   unconstify(ItemPointerData *, from)) < 0)
			continue;
		if (found->count == *room)
		{
			*room = Max(*room * 2, 1024);
			found->items = found->items == NULL ?
				palloc(*room * sizeof(Candidate)) :
				repalloc(found->items, *room * sizeof(Candidate));
		}
		add_candidate(found, NO_SLOT, &row->tts_tid);
	}
	table_endscan(scan);
	ExecDropSingleTupleTableSlot(row);
}
