/*-------------------------------------------------------------------------
 *
 * maybe_expired.c
 *		Can any document of a table be expired?  If not, a write need not
 *		search for expired documents that hold its keys.
 *
 * Shared memory has the earliest expiry of each table (purge/earliest.c).
 * Before that time, no document of the table is expired.  If the earliest
 * expiry is unknown or has passed, a session scans the first entries of the
 * purge index, and can raise the earliest expiry.  All sessions together scan
 * a table at most every half second.  These scans matter for tables that no
 * worker visits.
 *
 * The scan reads only the index.  To read the rows, it would have to load
 * blocks that nobody else needs.  So the scan also finds the entries of dead
 * rows, until VACUUM removes them, and these entries can keep the earliest
 * expiry too early.  A worker's pass continues behind such entries, and then
 * raises the earliest expiry.  A BRIN index has no first entry.  With a BRIN
 * index, a session raises the earliest expiry only if the table is empty.
 *
 * Two kinds of transactions do not scan:
 * 1. a transaction that has changed collections or their settings;
 * 2. a transaction that gave the table a new file (TRUNCATE, ALTER TABLE),
 *    because a rollback restores the old file.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/relscan.h"
#include "storage/bufmgr.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "write/write_internal.h"

static bool can_scan(Relation rel, const Collection *collection);
static TimestampTz first_expiry(Relation rel, const Collection *collection);
static TimestampTz first_expiry_in_range(Relation rel, Relation index,
										 SlotRange range,
										 const CollectionSettings *settings);

/* Can a document of this table or partition be expired at this time? */
bool
ttl_docs_maybe_expired(Relation rel, const Collection *collection, TimestampTz clock)
{
	const CollectionSettings *settings = &collection->settings;
	Oid			relid = RelationGetRelid(rel);
	EarliestScan scan;

	if (!settings->on && settings->written_floor == DT_NOBEGIN &&
		settings->due_floor == DT_NOBEGIN)
		return false;
	if (ttl_docs_earliest_expiry(relid, collection->root) > clock)
		return false;
	if (!can_scan(rel, collection) ||
		!ttl_docs_begin_session_scan(&scan, relid, collection->root))
		return true;
	ttl_docs_end_scan(&scan, first_expiry(rel, collection));
	return ttl_docs_earliest_expiry(relid, collection->root) <= clock;
}

static bool
can_scan(Relation rel, const Collection *collection)
{
	return !ttl_docs_changed_collections() && !compat_has_new_file(rel) &&
		(collection->settings.indexing == INDEXING_CONSISTENT ||
		 RelationGetNumberOfBlocks(rel) == 0);
}

/*
 * Returns a time before which no document of the table expires.  Returns
 * DT_NOBEGIN if there is no purge index, or if a floor may cover a document.
 */
static TimestampTz
first_expiry(Relation rel, const Collection *collection)
{
	const CollectionSettings *settings = &collection->settings;
	TimestampTz expiry = DT_NOEND;
	Relation	index;
	Oid			indexid;

	if (RelationGetNumberOfBlocks(rel) == 0)
		return DT_NOEND;
	indexid = ttl_docs_purge_index(rel, settings->indexing);
	if (!OidIsValid(indexid))
		return DT_NOBEGIN;
	index = index_open(indexid, AccessShareLock);
	for (SlotRange range = 0; range < RANGE_COUNT; range++)
		expiry = Min(expiry, first_expiry_in_range(rel, index, range, settings));
	index_close(index, AccessShareLock);
	return expiry;
}

/* Does the same as first_expiry(), for one range of the purge index. */
static TimestampTz
first_expiry_in_range(Relation rel, Relation index, SlotRange range,
					  const CollectionSettings *settings)
{
	ScanKeyData keys[2];
	IndexScanDesc scan;
	TimestampTz expiry = DT_NOEND;

	ttl_docs_slot_scan_keys(keys, range, NO_SLOT, SLOT_INVALID - 1);
	/* in SERIALIZABLE, an MVCC snapshot would take predicate locks */
	scan = compat_index_beginscan(rel, index, SnapshotAny, lengthof(keys));
	scan->xs_want_itup = true;
	index_rescan(scan, keys, lengthof(keys), NULL, 0);
	if (index_getnext_tid(scan, ForwardScanDirection) != NULL)
	{
		bool		isnull;
		int64		slot = DatumGetInt64(index_getattr(scan->xs_itup, 1,
													   scan->xs_itupdesc, &isnull));

		if (ttl_docs_floor_may_cover(settings, slot))
			expiry = DT_NOBEGIN;
		else if (settings->on)
			expiry = ttl_docs_earliest_in_slot(ttl_docs_slot_due(slot,
																 settings->default_ttl));
	}
	index_endscan(scan);
	return expiry;
}
