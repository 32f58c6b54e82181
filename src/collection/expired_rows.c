/*-------------------------------------------------------------------------
 *
 * expired_rows.c
 *		Finds the expired rows of a table, for release().
 *
 * release() locks everybody out, so a scan of a large table takes too long.
 * The purge index leads to the expired rows:
 *
 * - A btree: we read the slots that can contain an expired document, and judge
 *   each row.  If everything expired has been purged, there are no rows in
 *   these slots.
 * - BRIN: we read the ranges of blocks that can contain such slots.
 *
 * A document must not come back because the index does not lead to it.  All
 * rows that our trigger has stamped have the right slot.  Slots are rounded
 * up, by at most the largest slot width, so we also read the slots that end
 * after the bounds.  A row without a slot never expires.
 *
 * We read the whole table in three cases, because rows can have wrong slots,
 * or none:
 * 1. The table has no valid purge index.
 * 2. The table has no trigger, because "pg_restore -t" does not restore it.  Or the
 *	  trigger was disabled while the server ran without the library.
 * 3. A restore brought the label.  Rows may have been written after the
 *	  restore of the label and before that of the trigger.
 *
 * Nothing is read if no document can be expired, because TTL is off and there
 * are no floors.
 *
 * A btree also leads to rows that have been purged, until VACUUM removes their
 * entries.  To fetch them all takes as long as a scan.  So release() reads the
 * index once before it takes its lock.  Core then marks entries as dead whose
 * rows nobody can see any more, and the second time it skips them.
 *
 * We use the latest snapshot, so an index that core calls unusable for older
 * snapshots (indcheckxmin) is right here.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/relscan.h"
#include "access/table.h"
#include "access/tableam.h"
#include "executor/tuptable.h"
#include "miscadmin.h"
#include "nodes/tidbitmap.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "collection/collection_internal.h"

/* Where to look for expired rows */
typedef enum ExpiredSource
{
	SOURCE_NOTHING,				/* no row is expired */
	SOURCE_TABLE,
	SOURCE_BTREE,
	SOURCE_BRIN
} ExpiredSource;

struct ExpiredRows
{
	const Collection *collection;
	ExpiryBounds bounds;
	int64		last_slots[RANGE_COUNT];	/* the last slot of each range that can
											 * contain an expired row; NO_SLOT = none */
	Snapshot	snapshot;
	TupleTableSlot *row;
	ExpiredSource source;
	TableScanDesc table_scan;	/* of the table, or of a block */
	Relation	index;
	IndexScanDesc index_scan;
	SlotRange	range;			/* that index_scan reads */
	TIDBitmap  *bitmap;			/* the blocks that can contain an expired row */
	compat_TBMIterator *blocks;
};

static void mark_purged_rows(Relation rel, const Collection *collection);
static Oid	find_index(Relation rel, const Collection *collection);
static int64 last_slot(const ExpiryBounds *bounds, SlotRange range);
static void begin_btree(ExpiredRows *expired, Relation rel);
static void begin_range(ExpiredRows *expired);
static void begin_brin(ExpiredRows *expired, Relation rel);
static bool next_row(ExpiredRows *expired);
static bool next_row_of_btree(ExpiredRows *expired);
static bool next_row_of_brin(ExpiredRows *expired);

/*
 * Makes core mark the index entries of purged rows as dead, for a collection that
 * nobody has locked yet.  The table may be gone, or may not be a collection.
 */
void
ttl_docs_mark_purged_rows(Oid relid)
{
	List	   *tables = ttl_docs_collection_tables(relid);
	ListCell   *lc;

	foreach(lc, tables)
	{
		Relation	rel = try_table_open(lfirst_oid(lc), AccessShareLock);
		Collection	collection;

		if (rel == NULL)
			continue;
		if (ttl_docs_lookup_collection(lfirst_oid(lc), &collection) &&
			collection.settings.indexing == INDEXING_CONSISTENT)
			mark_purged_rows(rel, &collection);
		table_close(rel, AccessShareLock);
	}
	list_free(tables);
}

static void
mark_purged_rows(Relation rel, const Collection *collection)
{
	ExpiredRows *expired = ttl_docs_begin_expired_rows(rel, collection);

	if (expired->source == SOURCE_BTREE)
		while (next_row(expired))
			CHECK_FOR_INTERRUPTS();
	ttl_docs_end_expired_rows(expired);
}

/* Begins to find the rows of a table that are expired now. */
ExpiredRows *
ttl_docs_begin_expired_rows(Relation rel, const Collection *collection)
{
	ExpiredRows *expired = palloc0(sizeof(ExpiredRows));
	Oid			index;

	expired->collection = collection;
	expired->bounds = ttl_docs_bounds(&collection->settings, ttl_docs_clock());
	expired->snapshot = RegisterSnapshot(GetLatestSnapshot());
	expired->row = table_slot_create(rel, NULL);
	if (expired->bounds.written == DT_NOBEGIN && expired->bounds.due == DT_NOBEGIN)
		return expired;
	index = find_index(rel, collection);
	if (!OidIsValid(index))
	{
		expired->source = SOURCE_TABLE;
		expired->table_scan = compat_table_beginscan(rel, expired->snapshot);
		return expired;
	}
	for (SlotRange range = 0; range < RANGE_COUNT; range++)
		expired->last_slots[range] = last_slot(&expired->bounds, range);
	expired->index = index_open(index, AccessShareLock);
	if (collection->settings.indexing == INDEXING_LAZY)
		begin_brin(expired, rel);
	else
		begin_btree(expired, rel);
	return expired;
}

/* Returns the index that leads to all expired rows, or InvalidOid. */
static Oid
find_index(Relation rel, const Collection *collection)
{
	if (!ttl_docs_has_right_slots(RelationGetRelid(rel), collection))
		return InvalidOid;
	return ttl_docs_purge_index(rel, collection->settings.indexing);
}

/*
 * Has our trigger, or adopt(), computed the slots of all rows?  A restore may have
 * written rows before it created the trigger.
 */
bool
ttl_docs_has_right_slots(Oid relid, const Collection *collection)
{
	return !ttl_docs_was_restored(collection->root, &collection->settings) &&
		ttl_docs_trigger_always_fires(relid);
}

/* The last slot of a range that can contain an expired row, or NO_SLOT. */
static int64
last_slot(const ExpiryBounds *bounds, SlotRange range)
{
	ExpiryBounds none = {DT_NOBEGIN, DT_NOBEGIN};
	int64		first;
	int64		last;

	return ttl_docs_slots_between(&none, bounds, range, &first, &last) ? last : NO_SLOT;
}

static void
begin_btree(ExpiredRows *expired, Relation rel)
{
	expired->source = SOURCE_BTREE;
	expired->index_scan = compat_index_beginscan(rel, expired->index,
												 expired->snapshot, 2);
	expired->range = 0;
	begin_range(expired);
}

/* Begins to read the current range, or the next one that has slots to read. */
static void
begin_range(ExpiredRows *expired)
{
	ScanKeyData keys[2];

	while (expired->range < RANGE_COUNT && expired->last_slots[expired->range] == NO_SLOT)
		expired->range++;
	if (expired->range == RANGE_COUNT)
		return;
	ttl_docs_slot_scan_keys(keys, expired->range, NO_SLOT,
							expired->last_slots[expired->range]);
	index_rescan(expired->index_scan, keys, lengthof(keys), NULL, 0);
}

static void
begin_brin(ExpiredRows *expired, Relation rel)
{
	ItemPointerData none;

	expired->source = SOURCE_BRIN;
	expired->bitmap = ttl_docs_lazy_blocks(expired->index, expired->last_slots);
	expired->blocks = compat_tbm_begin(expired->bitmap);
	/* offsets begin with 1, so this range has no rows */
	ItemPointerSet(&none, 0, 0);
	expired->table_scan = compat_table_beginscan_tidrange(rel, expired->snapshot, &none, &none);
}

/* Returns the next expired row, or NULL if there is none. */
TupleTableSlot *
ttl_docs_next_expired_row(ExpiredRows *expired)
{
	while (next_row(expired))
	{
		CHECK_FOR_INTERRUPTS();
		if (ttl_docs_row_is_expired(&expired->bounds, expired->collection, expired->row))
			return expired->row;
	}
	return NULL;
}

/* Moves to the next row that may be expired. */
static bool
next_row(ExpiredRows *expired)
{
	switch (expired->source)
	{
		case SOURCE_NOTHING:
			break;
		case SOURCE_TABLE:
			return table_scan_getnextslot(expired->table_scan, ForwardScanDirection,
										  expired->row);
		case SOURCE_BTREE:
			return next_row_of_btree(expired);
		case SOURCE_BRIN:
			return next_row_of_brin(expired);
	}
	return false;
}

static bool
next_row_of_btree(ExpiredRows *expired)
{
	while (expired->range < RANGE_COUNT)
	{
		if (index_getnext_slot(expired->index_scan, ForwardScanDirection, expired->row))
			return true;
		expired->range++;
		begin_range(expired);
	}
	return false;
}

static bool
next_row_of_brin(ExpiredRows *expired)
{
	BlockNumber block = InvalidBlockNumber;

	while (!table_scan_getnextslot_tidrange(expired->table_scan, ForwardScanDirection,
											expired->row))
	{
		ItemPointerData min;
		ItemPointerData max;

		CHECK_FOR_INTERRUPTS();
		if (!compat_tbm_next(expired->blocks, &block))
			return false;
		ItemPointerSet(&min, block, 0);
		ItemPointerSet(&max, block, MaxOffsetNumber);
		table_rescan_tidrange(expired->table_scan, &min, &max);
	}
	return true;
}

void
ttl_docs_end_expired_rows(ExpiredRows *expired)
{
	if (expired->blocks != NULL)
		compat_tbm_end(expired->blocks);
	if (expired->bitmap != NULL)
		tbm_free(expired->bitmap);
	if (expired->table_scan != NULL)
		table_endscan(expired->table_scan);
	if (expired->index_scan != NULL)
		index_endscan(expired->index_scan);
	if (expired->index != NULL)
		index_close(expired->index, AccessShareLock);
	ExecDropSingleTupleTableSlot(expired->row);
	UnregisterSnapshot(expired->snapshot);
}
