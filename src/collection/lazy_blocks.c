/*-------------------------------------------------------------------------
 *
 * lazy_blocks.c
 *		Finds the blocks of a lazy collection that can contain expired documents.
 *
 * The purge index of a lazy collection is BRIN.  It knows the first and the last slot
 * of each range of blocks, and gives the blocks in which a slot can be.  A document that
 * never expires has no slot, but its block can be in the result because of others.
 * Blocks that are not summarized are always in the result.
 *
 * The result keeps blocks and not rows, as BRIN does, so it is small: one bit for each
 * block, and if these need more than BITMAP_MEMORY, some blocks too many.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/relscan.h"
#include "nodes/tidbitmap.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "collection/collection.h"

/* maximum memory of the result, in bytes */
#define BITMAP_MEMORY	4194304L

/*
 * Returns the blocks that can contain a document in a slot up to the last one of each
 * range; NO_SLOT = the range does not matter.  The caller frees the result.
 */
TIDBitmap *
ttl_docs_lazy_blocks(Relation index, const int64 *last_slots)
{
	TIDBitmap  *blocks = tbm_create(BITMAP_MEMORY, NULL);

	for (SlotRange range = 0; range < RANGE_COUNT; range++)
	{
		ScanKeyData keys[2];
		IndexScanDesc scan;

		if (last_slots[range] == NO_SLOT)
			continue;
		ttl_docs_slot_scan_keys(keys, range, NO_SLOT, last_slots[range]);
		/* a real snapshot would make a serializable transaction lock the index */
		scan = compat_index_beginscan_bitmap(index, SnapshotAny, lengthof(keys));
		index_rescan(scan, keys, lengthof(keys), NULL, 0);
		index_getbitmap(scan, blocks);
		index_endscan(scan);
	}
	return blocks;
}
