/*-------------------------------------------------------------------------
 *
 * write_quiet.c
 *		Knows when nothing in a table can be expired, so that a write need
 *		not look for expired documents that hold its keys.
 *
 * The purge index is ordered by due time, so its first entries tell the
 * earliest time at which a document can expire.  If that is yet to come,
 * nothing is expired; and since the shortest ttl is one second, nothing that
 * is written from now on will be for a second.  So one look serves all writes
 * of the next half second.  That something may be expired is also good to know
 * for so long: it saves looking, and costs no more than a probe.
 *
 * That holds for stamps that the clock gave.  Replication and restores bring
 * theirs, and a session may have moved its clock.  While a transaction is under
 * way that has written such a stamp, nobody knows; and when it commits it counts
 * a generation up, after which looks of an older generation no longer count.  A
 * session that has moved its clock always looks for itself.
 *
 * An entry that is due may be of a row that is dead to everybody.  Such are passed
 * over, but not for long: after a large purge there may be many until VACUUM
 * comes, and then the answer is that we do not know.  Not knowing costs a probe of
 * each unique index.  Entries that are not due yet are not looked at, whatever
 * they are of: documents that are touched leave many behind.
 *
 * A BRIN index has no first entry; for lazy collections see write_bound.c.
 *
 * Shared memory: two counters, atomic, so there is no lock.  An error or FATAL
 * ends the transaction, and with it its share in the first of them; after a
 * crash shared memory is made anew.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/relscan.h"
#include "access/tableam.h"
#include "access/visibilitymap.h"
#include "access/xact.h"
#include "executor/tuptable.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "storage/bufmgr.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "utils/fmgroids.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "ttl_docs.h"

#define QUIET_PERIOD	(USECS_PER_SEC / 2)
#define MAX_DEAD_ENTRIES	1000

typedef struct ForeignStamps
{
	pg_atomic_uint64 writers;	/* transactions under way that wrote any */
	pg_atomic_uint64 generation;	/* of those that have committed */
} ForeignStamps;

static ForeignStamps *foreign_stamps = NULL;
static bool wrote_foreign_stamp = false;	/* in this transaction */
static shmem_request_hook_type next_shmem_request_hook = NULL;
static shmem_startup_hook_type next_shmem_startup_hook = NULL;

static void request_shmem(void);
static void startup_shmem(void);
static void count_generation(XactEvent event, void *arg);
static bool still_counts(const QuietLook *look, TimestampTz clock,
						 uint64 generation);
static bool look(Relation rel, const Collection *collection, TimestampTz clock);
static bool may_have_entry(Relation rel, Relation index, int64 from, int64 to);

void
ttl_docs_quiet_init(void)
{
	next_shmem_request_hook = shmem_request_hook;
	shmem_request_hook = request_shmem;
	next_shmem_startup_hook = shmem_startup_hook;
	shmem_startup_hook = startup_shmem;
	RegisterXactCallback(count_generation, NULL);
}

static void
request_shmem(void)
{
	if (next_shmem_request_hook)
		next_shmem_request_hook();
	RequestAddinShmemSpace(MAXALIGN(sizeof(ForeignStamps)));
}

static void
startup_shmem(void)
{
	bool		found;

	if (next_shmem_startup_hook)
		next_shmem_startup_hook();
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	foreign_stamps = ShmemInitStruct("ttl_docs foreign stamps",
									 sizeof(ForeignStamps), &found);
	if (!found)
	{
		pg_atomic_init_u64(&foreign_stamps->writers, 0);
		pg_atomic_init_u64(&foreign_stamps->generation, 0);
	}
	LWLockRelease(AddinShmemInitLock);
}

/* This transaction writes a stamp that is not the clock's. */
void
ttl_docs_note_foreign_stamp(void)
{
	if (wrote_foreign_stamp)
		return;
	wrote_foreign_stamp = true;
	pg_atomic_fetch_add_u64(&foreign_stamps->writers, 1);
}

/*
 * This transaction writes a stamp that the clock gave some time ago: if that is too
 * long for those who have looked since, it counts as not the clock's.
 */
void
ttl_docs_note_late_stamp(TimestampTz stamp)
{
	if (ttl_docs_clock() - stamp > QUIET_PERIOD / 2)
		ttl_docs_note_foreign_stamp();
}

/* Counts the commits of such transactions, since the server started. */
uint64
ttl_docs_stamp_generation(void)
{
	return pg_atomic_read_u64(&foreign_stamps->generation);
}

static void
count_generation(XactEvent event, void *arg)
{
	(void) arg;
	if (!wrote_foreign_stamp)
		return;
	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
		case XACT_EVENT_PRE_PREPARE:
			/* an error may still follow, so this is not the end */
			break;
		case XACT_EVENT_COMMIT:
		case XACT_EVENT_PREPARE:
			pg_atomic_fetch_add_u64(&foreign_stamps->generation, 1);
			/* fall through */
		default:
			pg_atomic_fetch_sub_u64(&foreign_stamps->writers, 1);
			wrote_foreign_stamp = false;
			break;
	}
}

/*
 * Is it certain that no document of this very table (not its partitions) is
 * expired?  *recent is what the query that asks has been told last, for the
 * next of its rows.
 */
bool
ttl_docs_nothing_expired(Relation rel, const Collection *collection,
						 TimestampTz clock, QuietLook *recent)
{
	const CollectionSettings *settings = &collection->settings;
	Oid			relid = RelationGetRelid(rel);
	uint64		generation;
	QuietLook  *last;

	if (!settings->on && settings->written_floor == DT_NOBEGIN &&
		settings->due_floor == DT_NOBEGIN)
		return true;
	if (settings->indexing == INDEXING_LAZY)
		return ttl_docs_is_before_bound(rel, collection, clock + QUIET_PERIOD);
	if (ttl_docs_clock_offset != 0)
		return look(rel, collection, clock);
	if (pg_atomic_read_u64(&foreign_stamps->writers) > 0)
		return false;

	generation = ttl_docs_stamp_generation();
	if (still_counts(recent, clock, generation))
		return recent->quiet;
	last = ttl_docs_quiet_look(relid);
	if (last == NULL || !still_counts(last, clock, generation))
	{
		recent->quiet = look(rel, collection, clock);
		recent->when = clock;
		recent->generation = generation;
		last = ttl_docs_quiet_look(relid);
		if (last != NULL)
			*last = *recent;
	}
	else
		*recent = *last;
	return recent->quiet;
}

static bool
still_counts(const QuietLook *look, TimestampTz clock, uint64 generation)
{
	return look->when != DT_NOBEGIN && look->generation == generation &&
		clock >= look->when && clock < look->when + QUIET_PERIOD;
}

/* Looks at the first entries of the purge index. */
static bool
look(Relation rel, const Collection *collection, TimestampTz clock)
{
	Oid			indexid;
	Relation	index;
	ExpiryBounds bounds;
	int64		inheriting;
	int64		own;
	bool		quiet;

	if (collection->settings.indexing != INDEXING_CONSISTENT)
		return false;
	indexid = ttl_docs_purge_index(rel, INDEXING_CONSISTENT);
	if (!OidIsValid(indexid))
		return false;
	/* what the next half second brings, too */
	bounds = ttl_docs_bounds(&collection->settings, clock + QUIET_PERIOD);
	ttl_docs_safe_slots(&bounds, &inheriting, &own);
	index = index_open(indexid, AccessShareLock);
	quiet = !may_have_entry(rel, index, PG_INT64_MIN,
							Min(inheriting, SLOT_RANGE_BORDER)) &&
		!may_have_entry(rel, index, SLOT_RANGE_BORDER, own);
	index_close(index, AccessShareLock);
	return quiet;
}

/*
 * Is there an entry with a slot from (included) to (excluded) of a row that is
 * not dead to everybody?  Also true if it gave up.
 */
static bool
may_have_entry(Relation rel, Relation index, int64 from, int64 to)
{
	ScanKeyData keys[2];
	SnapshotData non_vacuumable;
	IndexScanDesc scan;
	TupleTableSlot *row = table_slot_create(rel, NULL);
	Buffer		vmbuffer = InvalidBuffer;
	bool		found = false;
	int			dead = 0;
	ItemPointer tid;

	InitNonVacuumableSnapshot(non_vacuumable, GlobalVisTestFor(rel));
	ScanKeyInit(&keys[0], 1, BTGreaterEqualStrategyNumber, F_INT8GE,
				Int64GetDatum(from));
	ScanKeyInit(&keys[1], 1, BTLessStrategyNumber, F_INT8LT, Int64GetDatum(to));
	scan = compat_index_beginscan(rel, index, &non_vacuumable, lengthof(keys));
	index_rescan(scan, keys, lengthof(keys), NULL, 0);
	while (!found && dead < MAX_DEAD_ENTRIES &&
		   (tid = index_getnext_tid(scan, ForwardScanDirection)) != NULL)
	{
		found = VM_ALL_VISIBLE(rel, ItemPointerGetBlockNumber(tid), &vmbuffer) ||
			index_fetch_heap(scan, row);
		if (!found)
			dead++;
		ExecClearTuple(row);
	}
	if (BufferIsValid(vmbuffer))
		ReleaseBuffer(vmbuffer);
	index_endscan(scan);
	ExecDropSingleTupleTableSlot(row);
	return found || dead >= MAX_DEAD_ENTRIES;
}
