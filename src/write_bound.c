/*-------------------------------------------------------------------------
 *
 * write_bound.c
 *		Knows, for a lazy collection, a time before which none of its documents
 *		expires.
 *
 * A BRIN index has no first entry, so it cannot be asked whether anything is
 * expired (write_quiet.c does that with a btree).  Instead, each table of a lazy
 * collection has a bound in shared memory: no document in it expires before that.
 * As long as it is ahead of the clock, writes need not look for expired documents
 * that hold their keys.
 *
 * Whoever writes a document lowers the bound to its time of expiry: once when it
 * is written, and once before the commit.  So it holds for all that is committed;
 * what a transaction has written itself, it knows besides.
 * (A document that its writer takes away again, or that is deleted, leaves the
 * bound lower than it need be, which costs a look.)
 *
 * A look raises it, from when it is not known or was reached: by reading the blocks
 * whose summaries do not rule out that something expires soon, if they are few.  It
 * reads everything that VACUUM would have to keep, whether it is committed or
 * not.  Meanwhile others write, so what they lower is gathered: the look empties
 * that first, then reads, and then the bound becomes the earlier of what it has
 * found and what was gathered.  A document is in the table before its writer
 * lowers the bound for the second time; so either the look has read it, or that
 * second time comes after the look has begun.
 *
 * Settings decide when a document expires.  A change of them forgets the bound as
 * it is made, and those who could look are kept out by its lock until it is
 * committed; whoever has made it does not look before that.
 *
 * The bound is part of the table's entry of the purge, under its lock
 * (purge_shmem.c).  It is looked up each time, because entries may go.  Nothing is
 * undone on error: a bound that is too low is right, and a look that ended in an
 * error has changed nothing.  After a crash, nothing is known.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "executor/tuptable.h"
#include "miscadmin.h"
#include "nodes/tidbitmap.h"
#include "storage/bufmgr.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "purge.h"

/* how many blocks a look reads, and how long the next one has to wait */
#define MAX_BLOCKS		64
#define LOOK_INTERVAL	(10 * USECS_PER_SEC)
/* how far a look at some of the blocks is ahead */
#define HORIZON			(60 * 60 * USECS_PER_SEC)

/* What this transaction has written: the first to expire of each table */
typedef struct OwnExpiry
{
	Oid			relid;
	TimestampTz expiry;
} OwnExpiry;
static OwnExpiry *own = NULL;	/* grows, and is kept */
static int	nown = 0;
static int	max_own = 0;

static void lower_before_commit(XactEvent event, void *arg);
static TimestampTz own_expiry(Oid relid);
static void lower_bound(Oid relid, TimestampTz expiry);
static bool is_ahead(Oid relid, TimestampTz clock);
static bool begin_look(Oid relid, uint64 *look);
static void end_look(Oid relid, uint64 look, TimestampTz found);
static bool first_expiry(Relation rel, const Collection *collection,
						 TimestampTz clock, TimestampTz *expiry);
static bool first_expiry_by_index(Relation rel, const Collection *collection,
								  TimestampTz clock, TimestampTz *expiry);
static TimestampTz first_expiry_in(Relation rel, const Collection *collection,
								   BlockNumber first, BlockNumber last);

void
ttl_docs_bound_init(void)
{
	RegisterXactCallback(lower_before_commit, NULL);
}

/* This transaction writes a document that expires then. */
void
ttl_docs_note_expiry(Oid relid, TimestampTz expiry)
{
	int			i = 0;

	while (i < nown && own[i].relid != relid)
		i++;
	if (i < nown && own[i].expiry <= expiry)
		return;
	if (i == max_own)
	{
		int			max = Max(max_own * 2, 16);

		own = own == NULL ?
			MemoryContextAlloc(TopMemoryContext, max * sizeof(OwnExpiry)) :
			repalloc(own, max * sizeof(OwnExpiry));
		max_own = max;
	}
	nown = Max(nown, i + 1);
	own[i].relid = relid;
	own[i].expiry = expiry;
	lower_bound(relid, expiry);
}

static TimestampTz
own_expiry(Oid relid)
{
	for (int i = 0; i < nown; i++)
		if (own[i].relid == relid)
			return own[i].expiry;
	return DT_NOEND;
}

static void
lower_before_commit(XactEvent event, void *arg)
{
	(void) arg;
	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
		case XACT_EVENT_PRE_PREPARE:
			for (int i = 0; i < nown; i++)
				lower_bound(own[i].relid, own[i].expiry);
			break;
		case XACT_EVENT_COMMIT:
		case XACT_EVENT_PREPARE:
		case XACT_EVENT_ABORT:
			nown = 0;
			break;
		default:
			break;
	}
}

/* Is it certain that no document of this very table is expired at that time? */
bool
ttl_docs_is_before_bound(Relation rel, const Collection *collection,
						 TimestampTz clock)
{
	Oid			relid = RelationGetRelid(rel);
	uint64		look;
	TimestampTz expiry;

	if (ttl_docs_changed_collections() ||
		own_expiry(relid) <= clock)
		return false;
	if (is_ahead(relid, clock))
		return true;
	if (ttl_docs_purge_table(relid, collection->root) == NULL ||
		!begin_look(relid, &look) ||
		!first_expiry(rel, collection, clock, &expiry))
		return false;
	end_look(relid, look, expiry);
	return is_ahead(relid, clock);
}

static bool
is_ahead(Oid relid, TimestampTz clock)
{
	PurgeTable *table;
	bool		ahead;

	LWLockAcquire(ttl_docs_purge->lock, LW_SHARED);
	table = ttl_docs_find_table(relid);
	ahead = table != NULL && table->bound_is_known && table->bound > clock;
	LWLockRelease(ttl_docs_purge->lock);
	return ahead;
}

static void
lower_bound(Oid relid, TimestampTz expiry)
{
	PurgeTable *table;
	bool		is_lower;

	/* mostly it is not: what is written last expires last */
	LWLockAcquire(ttl_docs_purge->lock, LW_SHARED);
	table = ttl_docs_find_table(relid);
	is_lower = table != NULL &&
		(expiry < table->bound || expiry < table->gathered_bound);
	LWLockRelease(ttl_docs_purge->lock);
	if (!is_lower)
		return;

	LWLockAcquire(ttl_docs_purge->lock, LW_EXCLUSIVE);
	table = ttl_docs_find_table(relid);
	if (table != NULL)
	{
		table->bound = Min(table->bound, expiry);
		table->gathered_bound = Min(table->gathered_bound, expiry);
	}
	LWLockRelease(ttl_docs_purge->lock);
}

/* It is no longer known; nor will a look know that is under way. */
void
ttl_docs_forget_bound(PurgeTable *table)
{
	Assert(LWLockHeldByMeInMode(ttl_docs_purge->lock, LW_EXCLUSIVE));
	table->bound_is_known = false;
	table->bound_look++;
	table->bound_looked = 0;
}

/* One at a time, and not too often. */
static bool
begin_look(Oid relid, uint64 *look)
{
	int64		elapsed = ttl_docs_elapsed();
	PurgeTable *table;
	bool		may_look;

	LWLockAcquire(ttl_docs_purge->lock, LW_EXCLUSIVE);
	table = ttl_docs_find_table(relid);
	may_look = table != NULL &&
		(table->bound_looked == 0 || elapsed - table->bound_looked >= LOOK_INTERVAL);
	if (may_look)
	{
		table->bound_looked = Max(elapsed, 1);
		table->gathered_bound = DT_NOEND;
		*look = ++table->bound_look;
	}
	LWLockRelease(ttl_docs_purge->lock);
	return may_look;
}

static void
end_look(Oid relid, uint64 look, TimestampTz found)
{
	PurgeTable *table;

	LWLockAcquire(ttl_docs_purge->lock, LW_EXCLUSIVE);
	table = ttl_docs_find_table(relid);
	if (table != NULL && table->bound_look == look)
	{
		table->bound = Min(table->gathered_bound, found);
		table->bound_is_known = true;
	}
	LWLockRelease(ttl_docs_purge->lock);
}

/* When the first document of a table expires; false if that is too much to read. */
static bool
first_expiry(Relation rel, const Collection *collection, TimestampTz clock,
			 TimestampTz *expiry)
{
	BlockNumber nblocks = RelationGetNumberOfBlocks(rel);

	if (nblocks > MAX_BLOCKS)
		return first_expiry_by_index(rel, collection, clock, expiry);
	*expiry = nblocks == 0 ? DT_NOEND :
		first_expiry_in(rel, collection, 0, nblocks - 1);
	return true;
}

/* The same for a larger table, as far as it is soon. */
static bool
first_expiry_by_index(Relation rel, const Collection *collection,
					  TimestampTz clock, TimestampTz *expiry)
{
	Oid			indexid = ttl_docs_purge_index(rel, INDEXING_LAZY);
	BlockNumber blocks[MAX_BLOCKS];
	BlockNumber block = InvalidBlockNumber;
	int			nblocks = 0;
	Relation	index;
	TIDBitmap  *bitmap;
	compat_TBMIterator *iterator;
	bool		is_too_much = false;

	if (!OidIsValid(indexid))
		return false;
	index = index_open(indexid, AccessShareLock);
	bitmap = ttl_docs_expired_blocks(index, &collection->settings, clock + HORIZON);
	iterator = compat_tbm_begin(bitmap);
	while (!is_too_much && compat_tbm_next(iterator, &block))
	{
		is_too_much = nblocks == MAX_BLOCKS;
		if (!is_too_much)
			blocks[nblocks++] = block;
	}
	compat_tbm_end(iterator);
	tbm_free(bitmap);
	index_close(index, AccessShareLock);

	/* slots are rounded up */
	*expiry = clock + HORIZON - SLOT_MAX_WIDTH * USECS_PER_SEC;
	for (int i = 0; i < nblocks && !is_too_much; i++)
		*expiry = Min(*expiry, first_expiry_in(rel, collection, blocks[i], blocks[i]));
	return !is_too_much;
}

static TimestampTz
first_expiry_in(Relation rel, const Collection *collection, BlockNumber first,
				BlockNumber last)
{
	TupleTableSlot *row = table_slot_create(rel, NULL);
	TimestampTz expiry = DT_NOEND;
	SnapshotData non_vacuumable;
	TableScanDesc scan;
	ItemPointerData min;
	ItemPointerData max;

	InitNonVacuumableSnapshot(non_vacuumable, GlobalVisTestFor(rel));
	ItemPointerSet(&min, first, 0);
	ItemPointerSet(&max, last, MaxOffsetNumber);
	scan = table_beginscan_tidrange(rel, &non_vacuumable, &min, &max);
	while (table_scan_getnextslot_tidrange(scan, ForwardScanDirection, row))
		expiry = Min(expiry, ttl_docs_row_expired_from(collection, row));
	table_endscan(scan);
	ExecDropSingleTupleTableSlot(row);
	return expiry;
}
