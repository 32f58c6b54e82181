/*-------------------------------------------------------------------------
 *
 * pace.c
 *		How fast the purge goes: with what the foreground leaves over.
 *
 * Load is the number of client sessions that are at work, averaged over the
 * last batches.  It is read from the shared process array without locks: a
 * session that does not wait for its client is at work.  (A walsender that has
 * nothing to send waits for activity.)  With none, there is no
 * pause at all.  With half as many as there are processors, or more, a pause is
 * PAUSE_FACTOR times as long as the batch before it, and with fewer of them
 * shorter: a purge that takes a processor from a client shows in its latency.
 *
 * A backlog that grows all the same must not grow for ever.  If the oldest
 * document has been getting older for longer than a large purge takes, pauses
 * become shorter, the more the longer it goes on, until it no longer does.
 *
 * purge_max_rate is kept for all workers together.  Each batch takes the time that
 * its documents are worth, and begins when the time of those before it has passed.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <unistd.h>

#include "storage/proc.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"

#include "purge/purge_internal.h"

#define PAUSE_FACTOR		30
#define LONGEST_PAUSE		USECS_PER_SEC
/* how long a batch may take, on an idle server and on a busy one */
#define IDLE_BATCH_TIME		INT64CONST(100000)
#define BUSY_BATCH_TIME		INT64CONST(10000)
/* where there are no batches, on a busy server */
#define REST_AFTER			1000
#define REST_TIME			20000L
/* weight of the newest observation */
#define LOAD_WEIGHT			0.3
#define IDLE_LOAD			0.05
/* growing so long is nothing unusual; after that, pauses halve in this time */
#define PATIENCE			(120 * USECS_PER_SEC)
#define IMPATIENCE			(60 * USECS_PER_SEC)
/* batches to a second under purge_max_rate, at least */
#define RATE_BATCHES		10

#define WAIT_CLASS_MASK		0xFF000000U

static double load = 0;

static int	active_clients(void);

/* Looks how busy the server is. */
void
ttl_docs_observe_load(void)
{
	load += LOAD_WEIGHT * (active_clients() - load);
}

static int
active_clients(void)
{
	int			count = 0;

	for (uint32 i = 0; i < ProcGlobal->allProcCount; i++)
	{
		volatile PGPROC *proc = &ProcGlobal->allProcs[i];

		/* an exited process keeps its pid here (15, 16), but not its latch */
		if (proc->procLatch.owner_pid != 0 && proc != MyProc &&
			OidIsValid(proc->databaseId) && compat_is_client(proc) &&
			(proc->statusFlags & PROC_IS_AUTOVACUUM) == 0 &&
			(proc->wait_event_info & WAIT_CLASS_MASK) != PG_WAIT_CLIENT &&
			(proc->wait_event_info & WAIT_CLASS_MASK) != PG_WAIT_ACTIVITY)
			count++;
	}
	return count;
}

/* The most documents for a batch. */
int
ttl_docs_pace_rows(void)
{
	int			rows = ttl_docs_purge_batch_size;

	if (ttl_docs_purge_max_rate > 0)
		rows = Min(rows, Max(ttl_docs_purge_max_rate / RATE_BATCHES, 1));
	return rows;
}

/* The most time for a batch, in microseconds. */
int64
ttl_docs_pace_time(void)
{
	return load > IDLE_LOAD ? BUSY_BATCH_TIME : IDLE_BATCH_TIME;
}

/*
 * Rests for a while if the server is busy and the last rest was some time ago:
 * for work that would else take a processor for longer than a batch may.  The caller
 * has no page pinned.
 */
void
ttl_docs_pace_rest(int64 *rested)
{
	if (load <= IDLE_LOAD || ttl_docs_elapsed() - *rested < REST_AFTER)
		return;
	pg_usleep(REST_TIME);
	*rested = ttl_docs_elapsed();
}

/* How long to pause after a batch that took that long. */
int64
ttl_docs_pace_pause(const PurgeTable *table, int64 batch_time)
{
	static long processors = 0;
	double		factor;

	if (load <= IDLE_LOAD)
		return 0;
	if (processors <= 0)
		processors = Max(sysconf(_SC_NPROCESSORS_ONLN), 1);
	factor = PAUSE_FACTOR * Min(2 * load / processors, 1.0);
	if (table != NULL && table->older_since != DT_NOEND)
	{
		int64		impatient = ttl_docs_clock() - table->older_since - PATIENCE;

		if (impatient > 0)
			factor /= 1.0 + (double) impatient / IMPATIENCE;
	}
	return (int64) Min(factor * batch_time, (double) LONGEST_PAUSE);
}

/*
 * A pass over the table has come to an end, for now: does its oldest document
 * get older?  The caller holds the lock.
 */
void
ttl_docs_note_oldest(PurgeTable *table, TimestampTz clock)
{
	int64		age = table->oldest == DT_NOEND ? 0 : clock - table->oldest;

	if (age <= table->last_age)
		table->older_since = DT_NOEND;
	else if (table->older_since == DT_NOEND)
		table->older_since = clock;
	table->last_age = age;
}

/*
 * Takes the time that some documents are worth under purge_max_rate, before they
 * are purged, and returns how long to wait until it begins, in microseconds.
 */
int64
ttl_docs_reserve_rate(int rows)
{
	int64		now = ttl_docs_elapsed();
	int64		begin;

	if (ttl_docs_purge_max_rate <= 0 || rows <= 0)
		return 0;
	LWLockAcquire(ttl_docs_purge_shared->lock, LW_EXCLUSIVE);
	begin = Max(ttl_docs_purge_shared->rate_free_at, now);
	ttl_docs_purge_shared->rate_free_at = begin + rows * USECS_PER_SEC / ttl_docs_purge_max_rate;
	LWLockRelease(ttl_docs_purge_shared->lock);
	return begin - now;
}

/* Gives back the time of documents that were not purged after all. */
void
ttl_docs_return_rate(int rows)
{
	if (ttl_docs_purge_max_rate <= 0 || rows <= 0)
		return;
	LWLockAcquire(ttl_docs_purge_shared->lock, LW_EXCLUSIVE);
	ttl_docs_purge_shared->rate_free_at -= rows * USECS_PER_SEC / ttl_docs_purge_max_rate;
	LWLockRelease(ttl_docs_purge_shared->lock);
}

/* How long the next batch has to wait for purge_max_rate, in microseconds. */
int64
ttl_docs_rate_wait(void)
{
	int64		free_at;

	if (ttl_docs_purge_max_rate <= 0)
		return 0;
	LWLockAcquire(ttl_docs_purge_shared->lock, LW_SHARED);
	free_at = ttl_docs_purge_shared->rate_free_at;
	LWLockRelease(ttl_docs_purge_shared->lock);
	return Max(free_at - ttl_docs_elapsed(), 0);
}
