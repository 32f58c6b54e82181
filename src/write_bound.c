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
 * what a transaction has written itself, it knows besides.  A document that is not
 * committed is missing if somebody has looked between its stamp and its row: who
 * wants its key then waits for it in core, without judging it afterwards.  One
 * that its writer takes away again, or that is deleted, leaves the bound lower than
 * it need be, which costs a look.
 *
 * A look raises it, from when it is not known or was reached: by reading the blocks
 * whose summaries do not rule out that something expires soon, if they are few.
 * (They are many where much was written since VACUUM has summarized it, and where
 * much expires all the time.  Then a look is tried ever more seldom.)  It reads
 * everything that VACUUM would have to keep, whether it is committed or not.
 * Meanwhile others write, so what they lower is gathered: the look empties that
 * first, then reads, and then the bound becomes the earlier of what it has found
 * and what was gathered.  A document is in the table before its writer
 * lowers the bound for the second time; so either the look has read it, or that
 * second time comes after the look has begun.  (Libraries that write documents
 * when a transaction is about to commit, after we were told of that, are not
 * provided for.)
 *
 * What is read has to be what there is.  A transaction that has given the table a new
 * file (TRUNCATE, ALTER TABLE) does not look: the old one may come back.
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

/* how many blocks a look reads: four ranges of an index, or a small table */
#define MAX_BLOCKS		512
/* how far a look at some of the blocks is ahead */
#define HORIZON			(180 * USECS_PER_SEC)
/* when the next look may be, and when after looks in vain */
#define LOOK_INTERVAL	(10 * USECS_PER_SEC)
#define MAX_INTERVAL	(600 * USECS_PER_SEC)

/* What this transaction has written: the first to expire of a table */
typedef struct OwnExpiry
{
	Oid			relid;
	TimestampTz expiry;
} OwnExpiry;
static List *own = NIL;			/* in TopTransactionContext */

typedef enum BoundState
{
	BOUND_AHEAD,
	BOUND_REACHED,				/* or not known */
	BOUND_CAN_BE_RAISED			/* the same, and it is time to try */
} BoundState;

static OwnExpiry *find_own(Oid relid);
static void lower_before_commit(XactEvent event, void *arg);
static void lower_bound(Oid relid, TimestampTz expiry);
static BoundState bound_state(Oid relid, Oid root, TimestampTz clock);
static bool may_look(const PurgeTable *table);
static bool begin_look(Oid relid, uint64 *look);
static void end_look(Oid relid, uint64 look, TimestampTz found);
static bool first_expiry(Relation rel, const Collection *collection,
						 TimestampTz clock, TimestampTz *expiry);
static bool first_expiry_by_index(Relation rel, const Collection *collection,
								  TimestampTz clock, TimestampTz *expiry);
static int	blocks_to_read(Relation rel, const Collection *collection,
						   TimestampTz clock, BlockNumber *blocks);
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
	OwnExpiry  *known = find_own(relid);

	if (known != NULL && known->expiry <= expiry)
		return;
	if (known == NULL)
	{
		MemoryContext caller = MemoryContextSwitchTo(TopTransactionContext);

		known = palloc(sizeof(OwnExpiry));
		known->relid = relid;
		own = lappend(own, known);
		MemoryContextSwitchTo(caller);
	}
	known->expiry = expiry;
	lower_bound(relid, expiry);
}

/* What was noted of a table is in it now: those who look see it from here on. */
void
ttl_docs_confirm_expiry(Oid relid)
{
	OwnExpiry  *known = find_own(relid);

	if (known != NULL)
		lower_bound(relid, known->expiry);
}

static OwnExpiry *
find_own(Oid relid)
{
	ListCell   *lc;

	foreach(lc, own)
	{
		OwnExpiry  *known = lfirst(lc);

		if (known->relid == relid)
			return known;
	}
	return NULL;
}

static void
lower_before_commit(XactEvent event, void *arg)
{
	ListCell   *lc;

	(void) arg;
	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
		case XACT_EVENT_PRE_PREPARE:
			foreach(lc, own)
			{
				OwnExpiry  *known = lfirst(lc);

				lower_bound(known->relid, known->expiry);
			}
			break;
		case XACT_EVENT_COMMIT:
		case XACT_EVENT_PREPARE:
		case XACT_EVENT_ABORT:
			own = NIL;
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
	OwnExpiry  *known = find_own(relid);
	BoundState	state;
	uint64		look;
	TimestampTz expiry;

	if (ttl_docs_changed_collections() || (known != NULL && known->expiry <= clock))
		return false;
	state = bound_state(relid, collection->root, clock);
	if (state != BOUND_CAN_BE_RAISED)
		return state == BOUND_AHEAD;
	/* the old file may come back; and an entry may have to be made, or changed */
	if (compat_has_new_file(rel) ||
		ttl_docs_purge_table(relid, collection->root) == NULL ||
		!begin_look(relid, &look) ||
		!first_expiry(rel, collection, clock, &expiry))
		return false;
	/* what we are about to write is noted already, and not there yet */
	if (known != NULL)
		expiry = Min(expiry, known->expiry);
	end_look(relid, look, expiry);
	return bound_state(relid, collection->root, clock) == BOUND_AHEAD;
}

static BoundState
bound_state(Oid relid, Oid root, TimestampTz clock)
{
	BoundState	state = BOUND_REACHED;
	PurgeTable *table;

	LWLockAcquire(ttl_docs_purge->lock, LW_SHARED);
	table = ttl_docs_find_table(relid);
	if (table == NULL || table->root != root)
	{
		if (!ttl_docs_purge->tables_overflow)
			state = BOUND_CAN_BE_RAISED;
	}
	else if (table->bound_is_known && table->bound > clock)
		state = BOUND_AHEAD;
	else if (may_look(table))
		state = BOUND_CAN_BE_RAISED;
	LWLockRelease(ttl_docs_purge->lock);
	return state;
}

/* The caller holds the lock. */
static bool
may_look(const PurgeTable *table)
{
	return table->bound_looked == 0 ||
		ttl_docs_elapsed() - table->bound_looked >= table->bound_interval;
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

/*
 * It is no longer known; nor will a look know that is under way.  The caller holds
 * the lock.
 */
void
ttl_docs_forget_bound(PurgeTable *table)
{
	table->bound_is_known = false;
	table->bound_look = ++ttl_docs_purge->bound_looks;
	table->bound_looked = 0;
}

/* One at a time, and until it succeeds, the next one is later still. */
static bool
begin_look(Oid relid, uint64 *look)
{
	PurgeTable *table;
	bool		begins;

	LWLockAcquire(ttl_docs_purge->lock, LW_EXCLUSIVE);
	table = ttl_docs_find_table(relid);
	begins = table != NULL && may_look(table);
	if (begins)
	{
		table->bound_interval = table->bound_looked == 0 ? LOOK_INTERVAL :
			Min(table->bound_interval * 2, MAX_INTERVAL);
		table->bound_looked = Max(ttl_docs_elapsed(), 1);
		table->gathered_bound = DT_NOEND;
		/* a number that no other look has, whatever becomes of the entry */
		table->bound_look = ++ttl_docs_purge->bound_looks;
		*look = table->bound_look;
	}
	LWLockRelease(ttl_docs_purge->lock);
	return begins;
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
		table->bound_interval = LOOK_INTERVAL;
	}
	LWLockRelease(ttl_docs_purge->lock);
}

/* When the first document of a table expires; false if that is too much to read. */
static bool
first_expiry(Relation rel, const Collection *collection, TimestampTz clock,
			 TimestampTz *expiry)
{
	BlockNumber nblocks = RelationGetNumberOfBlocks(rel);

	/* not every access method can read some blocks */
	if (rel->rd_tableam->scan_set_tidrange == NULL)
		return false;
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
	BlockNumber blocks[MAX_BLOCKS];
	int			nblocks = blocks_to_read(rel, collection, clock + HORIZON, blocks);
	int			next;

	/* slots are rounded up */
	*expiry = clock + HORIZON - SLOT_MAX_WIDTH * USECS_PER_SEC;
	for (int i = 0; i < nblocks; i = next)
	{
		for (next = i + 1; next < nblocks && blocks[next] == blocks[next - 1] + 1;)
			next++;
		*expiry = Min(*expiry, first_expiry_in(rel, collection, blocks[i],
											   blocks[next - 1]));
	}
	return nblocks >= 0;
}

/* The blocks that may have something in a slot that is over by then; -1 = too many. */
static int
blocks_to_read(Relation rel, const Collection *collection, TimestampTz clock,
			   BlockNumber *blocks)
{
	Oid			indexid = ttl_docs_purge_index(rel, INDEXING_LAZY);
	int			nblocks = 0;
	Relation	index;
	TIDBitmap  *bitmap;
	compat_TBMIterator *iterator;
	BlockNumber block = InvalidBlockNumber;

	if (!OidIsValid(indexid))
		return -1;
	index = index_open(indexid, AccessShareLock);
	bitmap = ttl_docs_expired_blocks(index, &collection->settings, clock);
	iterator = compat_tbm_begin(bitmap);
	while (nblocks >= 0 && compat_tbm_next(iterator, &block))
	{
		if (nblocks < MAX_BLOCKS)
			blocks[nblocks++] = block;
		else
			nblocks = -1;
	}
	compat_tbm_end(iterator);
	tbm_free(bitmap);
	index_close(index, AccessShareLock);
	return nblocks;
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
