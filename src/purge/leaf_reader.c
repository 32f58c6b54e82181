/*-------------------------------------------------------------------------
 *
 * leaf_reader.c
 *		Reads a btree from the middle of a slot.
 *
 * A scan key names a slot, so an index scan begins at the start of a slot.  If a
 * slot has more documents than a search takes, each later search would read the
 * slot again up to its position.  The cost would grow with the square of the number
 * of documents: four million more entries to read for a million documents, and four
 * hundred million for ten million documents.  So a position also names the leaf page
 * that has its entry.  A later search reads this page, and then the pages to its right.
 *
 * The page is only a hint.  Until the next search, the page can be split, emptied,
 * deleted, and even become another page of the index.  Splits move entries to the
 * right only.  So it is enough to check that the page is a leaf whose first entry is
 * not behind the position: then no entry at or behind the position is to the left
 * of it.  If this is not so, the search uses an index scan.
 *
 * Concurrency is as in an index scan: we copy the entries and the link to the right
 * under one share lock, so a split of the page after that moves only entries that we
 * have.  Deleted pages keep their link, and the caller's snapshot keeps them from
 * being reused while we read.  We hold no pin between pages.  VACUUM can remove a
 * row whose entry we have copied, but this is so for every candidate: a batch fetches
 * the row again, and judges it (batch.c).
 *
 * In a SERIALIZABLE transaction we take the predicate lock of each page that we read, at
 * the same moment as an index scan does: before we copy its entries, and while the page
 * cannot be split.  The pages to the left of the position are not read again.  If an
 * earlier search of the same transaction has read them, their locks last as long as the
 * transaction, even if a step is rolled back.  If another transaction has read them, this
 * one depends on nothing there.
 *
 * On ERROR, the resource owner releases the page.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/nbtree.h"
#include "access/relscan.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/bufmgr.h"
#include "storage/predicate.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "purge/pass_internal.h"

struct LeafReader
{
	Relation	index;
	PurgePosition from;			/* skip the entries before it */
	BlockNumber right;			/* next page; P_NONE = there is none */
	int			count;			/* number of entries of the page */
	int			current;		/* number of those that were returned or skipped */
	PurgePosition entries[MaxTIDsPerBTreePage];
};

static bool has_page(LeafReader *reader, BlockNumber block, bool is_first);
static bool is_leaf(Page page);
static bool begins_late(LeafReader *reader, Page page);
static void copy_entries(LeafReader *reader, Page page, BlockNumber block);
static bool slot_of_entry(LeafReader *reader, IndexTuple entry, int64 *slot);

/* The leaf page from which an index scan has read its current entry. */
BlockNumber
ttl_docs_leaf_of_scan(struct IndexScanDescData *scan)
{
	return ((BTScanOpaque) scan->opaque)->currPos.currPage;
}

/* Begins to read at a position.  Returns NULL if an index scan must be used. */
LeafReader *
ttl_docs_begin_leaf(Relation index, const PurgePosition *from)
{
	LeafReader *reader;

	if (from->leaf == P_NONE || from->leaf >= RelationGetNumberOfBlocks(index))
		return NULL;
	reader = palloc(sizeof(LeafReader));
	reader->index = index;
	reader->from = *from;
	if (has_page(reader, from->leaf, true))
		return reader;
	pfree(reader);
	return NULL;
}

/*
 * Reads the next entry, which can be behind the range of the caller.  Returns false
 * at the end of the slots.
 */
bool
ttl_docs_next_in_leaf(LeafReader *reader, PurgePosition *entry)
{
	for (;;)
	{
		while (reader->current < reader->count)
		{
			*entry = reader->entries[reader->current++];
			pgstat_count_index_tuples(reader->index, 1);
			if (ttl_docs_compare_positions(entry, &reader->from) >= 0)
				return true;
		}
		CHECK_FOR_INTERRUPTS();
		if (reader->right == P_NONE)
			return false;
		(void) has_page(reader, reader->right, false);
	}
}

/*
 * Reads a page.  Returns false if it is the first page, and does not lead to the
 * position.
 */
static bool
has_page(LeafReader *reader, BlockNumber block, bool is_first)
{
	Buffer		buffer = ReadBuffer(reader->index, block);
	Page		page = BufferGetPage(buffer);
	bool		is_usable;

	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	is_usable = is_leaf(page) && (!is_first || !begins_late(reader, page));
	if (is_usable)
	{
		PredicateLockPage(reader->index, block, GetActiveSnapshot());
		copy_entries(reader, page, block);
	}
	else if (!is_first)
	{
		if (PageIsNew(page) ||
			PageGetSpecialSize(page) != MAXALIGN(sizeof(BTPageOpaqueData)))
			ereport(ERROR,
					(errcode(ERRCODE_INDEX_CORRUPTED),
					 errmsg("index \"%s\" contains an unexpected page at block %u",
							RelationGetRelationName(reader->index), block),
					 errhint("Please REINDEX it.")));
		/* a page that was deleted, or is about to be: it is empty */
		reader->count = reader->current = 0;
		reader->right = BTPageGetOpaque(page)->btpo_next;
	}
	UnlockReleaseBuffer(buffer);
	return is_usable;
}

/* Is this a leaf page in use? */
static bool
is_leaf(Page page)
{
	return !PageIsNew(page) &&
		PageGetSpecialSize(page) == MAXALIGN(sizeof(BTPageOpaqueData)) &&
		P_ISLEAF(BTPageGetOpaque(page)) && !P_IGNORE(BTPageGetOpaque(page)) &&
		!P_ISMETA(BTPageGetOpaque(page));
}

/* Is the first entry of the page behind the position, or is the page empty? */
static bool
begins_late(LeafReader *reader, Page page)
{
	OffsetNumber first = P_FIRSTDATAKEY(BTPageGetOpaque(page));
	PurgePosition position = {0};
	IndexTuple	entry;

	if (first > PageGetMaxOffsetNumber(page))
		return true;
	entry = (IndexTuple) PageGetItem(page, PageGetItemId(page, first));
	if (!slot_of_entry(reader, entry, &position.slot))
		return true;
	position.tid = *BTreeTupleGetHeapTID(entry);
	return ttl_docs_compare_positions(&position, &reader->from) > 0;
}

/* Copies the entries of a page, without those that are known to be dead. */
static void
copy_entries(LeafReader *reader, Page page, BlockNumber block)
{
	OffsetNumber last = PageGetMaxOffsetNumber(page);

	reader->count = reader->current = 0;
	reader->right = BTPageGetOpaque(page)->btpo_next;
	for (OffsetNumber number = P_FIRSTDATAKEY(BTPageGetOpaque(page)); number <= last;
		 number = OffsetNumberNext(number))
	{
		ItemId		item = PageGetItemId(page, number);
		IndexTuple	entry = (IndexTuple) PageGetItem(page, item);
		int			rows = BTreeTupleIsPosting(entry) ? BTreeTupleGetNPosting(entry) : 1;
		int64		slot;

		if (ItemIdIsDead(item))
			continue;
		if (!slot_of_entry(reader, entry, &slot))
		{
			/* documents that never expire are at the end */
			reader->right = P_NONE;
			break;
		}
		for (int i = 0; i < rows; i++)
		{
			PurgePosition *copy = &reader->entries[reader->count++];

			copy->slot = slot;
			copy->tid = BTreeTupleIsPosting(entry) ?
				*BTreeTupleGetPostingN(entry, i) : entry->t_tid;
			copy->leaf = block;
		}
	}
}

/* Gets the slot of an entry; false if it is NULL. */
static bool
slot_of_entry(LeafReader *reader, IndexTuple entry, int64 *slot)
{
	bool		isnull;
	Datum		value = index_getattr(entry, 1, RelationGetDescr(reader->index), &isnull);

	*slot = isnull ? NO_SLOT : DatumGetInt64(value);
	return !isnull;
}
