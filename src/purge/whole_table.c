/*-------------------------------------------------------------------------
 *
 * whole_table.c
 *		Finds out from the ends of the purge index whether every document of a table
 *		has expired.  Does not read the table.
 *
 * The purge index has an entry for each row version (collection/purge_index.c).  A
 * document is not certainly expired only if its entry is in one of three places:
 *
 * 1. At the far end, with NULL as its slot: the document never expires.
 * 2. In the range of documents with their own ttl, after the last slot that has ended.
 * 3. The same in the range of inheriting documents.
 *
 * Each place is probed with one scan of the index.  Any entry whose row is not dead for
 * everybody ends the probe: the answer is then no.  So rows that are not committed, rows
 * whose deletion an old snapshot does not see, and rows of prepared transactions count as
 * documents.  All versions in a HOT chain have the same slot.
 *
 * Entries of dead rows remain until VACUUM removes them.  A probe skips them, and makes
 * the index skip them the next time.  If there are very many, the answer is no.
 *
 * The answer is only as good as the index and the column _slot.  Only the write trigger
 * and COPY FROM set _slot, and they compute it from _ts and _ttl.  This is also true in a
 * restore into an existing collection, and under session_replication_role = replica
 * (write/stamp.c): a slot that replication brings is kept only if it is right.  A slot is
 * rounded up, so it never ends before the document expires.  adopt() and ATTACH PARTITION
 * check the slots of existing rows (collection/recompute.c).  A restored collection is
 * not truncated (truncatable.c).  The index itself is trusted: a corrupt index can lack
 * entries.  amcheck finds that.
 *
 * BRIN is not used.  Its summaries never shrink, and it knows nothing about the blocks
 * that are not summarized, which are usually the last ones.  Before PostgreSQL 15.3,
 * a summary could also forget the NULLs of its blocks, and with them the documents that
 * never expire.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/relscan.h"
#include "access/tableam.h"
#include "miscadmin.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "purge/pass_internal.h"

/* maximum number of dead entries to skip */
#define MAX_DEAD_ENTRIES	1000

typedef struct EndProbe
{
	Relation	rel;
	Relation	index;
	TupleTableSlot *row;
	SnapshotData snapshot;
	int			left;			/* number of dead entries that may be skipped;
								 * negative if there were more */
	int64		slot;			/* of the last entry */
} EndProbe;

static void begin_probe(EndProbe *probe, const PurgeTarget *target);
static void end_probe(EndProbe *probe);
static bool has_endless(EndProbe *probe);
static bool has_live(EndProbe *probe, const ExpiryBounds *bounds, SlotRange range);
static TimestampTz last_due(EndProbe *probe, SlotRange range, int32 default_ttl);
static bool has_entry(EndProbe *probe, ScanKey keys, int nkeys);

/*
 * Had every document of the table expired at this time?  False also if the index
 * cannot tell.  The purge index has entries for all rows.
 */
bool
ttl_docs_all_are_expired(const PurgeTarget *target, TimestampTz instant)
{
	ExpiryBounds bounds = ttl_docs_bounds(&target->collection.settings, instant);
	EndProbe	probe;
	bool		result;

	begin_probe(&probe, target);
	result = !has_endless(&probe) && !has_live(&probe, &bounds, RANGE_OWN) &&
		!has_live(&probe, &bounds, RANGE_INHERITING);
	end_probe(&probe);
	return result;
}

/* A time at which every document has expired; DT_NOEND if it is unknown. */
TimestampTz
ttl_docs_last_expiry(const PurgeTarget *target)
{
	int32		default_ttl = target->collection.settings.default_ttl;
	TimestampTz last = DT_NOEND;
	EndProbe	probe;

	begin_probe(&probe, target);
	if (!has_endless(&probe))
		last = Max(last_due(&probe, RANGE_OWN, default_ttl),
				   last_due(&probe, RANGE_INHERITING, default_ttl));
	end_probe(&probe);
	return last;
}

static void
begin_probe(EndProbe *probe, const PurgeTarget *target)
{
	probe->rel = target->rel;
	probe->index = index_open(target->index, AccessShareLock);
	probe->row = table_slot_create(target->rel, NULL);
	probe->left = MAX_DEAD_ENTRIES;
	InitNonVacuumableSnapshot(probe->snapshot, GlobalVisTestFor(target->rel));
}

static void
end_probe(EndProbe *probe)
{
	ExecDropSingleTupleTableSlot(probe->row);
	index_close(probe->index, AccessShareLock);
}

/* May there be a document that never expires? */
static bool
has_endless(EndProbe *probe)
{
	ScanKeyData key;

	ScanKeyEntryInitialize(&key, SK_ISNULL | SK_SEARCHNULL, 1, InvalidStrategy,
						   InvalidOid, InvalidOid, InvalidOid, (Datum) 0);
	return has_entry(probe, &key, 1);
}

/* May there be a live document in this range? */
static bool
has_live(EndProbe *probe, const ExpiryBounds *bounds, SlotRange range)
{
	ScanKeyData keys[2];

	ttl_docs_slot_scan_keys(keys, range, ttl_docs_first_live_slot(bounds, range),
							SLOT_INVALID);
	return has_entry(probe, keys, lengthof(keys));
}

/* When the last document of a range expires, at the latest. */
static TimestampTz
last_due(EndProbe *probe, SlotRange range, int32 default_ttl)
{
	ScanKeyData keys[2];

	ttl_docs_slot_scan_keys(keys, range, NO_SLOT, SLOT_INVALID);
	if (!has_entry(probe, keys, lengthof(keys)))
		return DT_NOBEGIN;
	return probe->left < 0 ? DT_NOEND : ttl_docs_slot_due(probe->slot, default_ttl);
}

/*
 * Is there an entry whose row is not dead, or are there too many dead ones?  Sets
 * probe->slot to the slot of the last entry.
 */
static bool
has_entry(EndProbe *probe, ScanKey keys, int nkeys)
{
	IndexScanDesc scan = compat_index_beginscan(probe->rel, probe->index,
												&probe->snapshot, nkeys);
	bool		found = false;
	bool		isnull;

	scan->xs_want_itup = true;
	index_rescan(scan, keys, nkeys, NULL, 0);
	while (!found && index_getnext_tid(scan, BackwardScanDirection) != NULL)
	{
		CHECK_FOR_INTERRUPTS();
		found = index_fetch_heap(scan, probe->row) || --probe->left < 0;
		probe->slot = DatumGetInt64(index_getattr(scan->xs_itup, 1, scan->xs_itupdesc,
												  &isnull));
	}
	ExecClearTuple(probe->row);
	index_endscan(scan);
	return found;
}
