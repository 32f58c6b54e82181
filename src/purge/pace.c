/*-------------------------------------------------------------------------
 *
 * pace.c
 *		The pace of the purge: pauses between batches, and the rate limit.
 *
 * Pauses.  Client sessions have priority.  A purge that takes a processor away from
 * a client increases the latency of the client.  So a worker pauses after each
 * batch, depending on the load.  The load is the number of active client sessions,
 * averaged over the last batches:
 *
 * - If no session is active, there is no pause.
 * - If at least half as many sessions are active as there are processors, a pause
 *   is PAUSE_FACTOR times as long as the batch before it.
 * - In between, the pause is proportional to the load.
 * - No pause is longer than LONGEST_PAUSE.
 *
 * The number of active sessions is read from the shared process array without
 * locks.  A session is active unless it waits for its client.  A walsender that has
 * nothing to send does not count, either.
 *
 * Growing backlog.  A backlog must not grow forever because of pauses.  If the age
 * of the oldest document grows for longer than PATIENCE, which is enough for a
 * large purge, pauses become shorter.  They become shorter and shorter until the
 * age no longer grows.
 *
 * Rate limit.  purge_max_rate is a limit for all workers together.  Each batch
 * reserves the time that its rows take at that rate, and begins when the time
 * reserved before it has passed.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <unistd.h>

#include "storage/proc.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"

#include "purge/pass_internal.h"

#define PAUSE_FACTOR		30
#define LONGEST_PAUSE		USECS_PER_SEC
/* time limit of a batch on an idle and on a busy server, in microseconds */
#define IDLE_BATCH_TIME		INT64CONST(100000)
#define BUSY_BATCH_TIME		INT64CONST(10000)
/* interval and duration of rests within a step on a busy server, in microseconds */
#define REST_AFTER			1000
#define REST_TIME			20000L
/* weight of the newest observation */
#define LOAD_WEIGHT			0.3
#define IDLE_LOAD			0.05
/* how long a backlog may grow before pauses become shorter */
#define PATIENCE			(120 * USECS_PER_SEC)
/* after this time of impatience, pauses are half as long */
#define IMPATIENCE			(60 * USECS_PER_SEC)
/* minimum number of batches per second under purge_max_rate */
#define RATE_BATCHES		10

#define WAIT_CLASS_MASK		0xFF000000U

static double load = 0;

static int	active_clients(void);
static int	max_rows(void);
static int64 pause_after(const PurgeTable *table, int64 duration);
static int64 reserve_rate(StepPace *pace);
static void return_rate(const StepPace *pace, int rows);

/* Measures the load of the server. */
void
ttl_docs_observe_load(void)
{
	load += LOAD_WEIGHT * (active_clients() - load);
}

/* Measures the load of the server; is any other client session active? */
bool
ttl_docs_is_server_busy(void)
{
	ttl_docs_observe_load();
	return load > IDLE_LOAD;
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

/* The maximum number of documents in a batch. */
static int
max_rows(void)
{
	int			rows = ttl_docs_purge_batch_size;

	if (ttl_docs_purge_max_rate > 0)
		rows = Min(rows, Max(ttl_docs_purge_max_rate / RATE_BATCHES, 1));
	return rows;
}

/* The time limit of a batch, in microseconds. */
int64
ttl_docs_pace_time(void)
{
	return load > IDLE_LOAD ? BUSY_BATCH_TIME : IDLE_BATCH_TIME;
}

/*
 * Rests for REST_TIME if the server is busy and the last rest was REST_AFTER ago.
 * This is for steps that use a processor for longer than a batch may.  The caller
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

/*
 * Observes, at the end of a pass or visit, whether the age of the oldest document
 * grows.  The caller holds the lock.
 */
void
ttl_docs_observe_oldest(PurgeTable *table, TimestampTz clock)
{
	int64		age = table->oldest == DT_NOEND ? 0 : clock - table->oldest;

	if (age <= table->last_age)
		table->older_since = DT_NOEND;
	else if (table->older_since == DT_NOEND)
		table->older_since = clock;
	table->last_age = age;
}

/*
 * Prepares a step.  Sets its limits, and reserves the time that its rows take under
 * purge_max_rate.  Returns how long to wait before the step, in microseconds.
 */
int64
ttl_docs_begin_step(StepPace *pace, bool is_batch)
{
	pace->row_limit = max_rows();
	pace->time_limit = ttl_docs_pace_time();
	pace->rate = ttl_docs_purge_max_rate;
	pace->reserved = is_batch && pace->rate > 0 ? pace->row_limit : 0;
	return reserve_rate(pace);
}

/* Gives the reserved time back, if the step is not made. */
void
ttl_docs_skip_step(const StepPace *pace)
{
	return_rate(pace, pace->reserved);
}

/*
 * A step is done.  Gives the reserved time of rows back that it did not delete, and
 * measures the load.  Returns how long to pause, in microseconds; 0 if the step was
 * no work (was_work).
 */
int64
ttl_docs_end_step(const StepPace *pace, const TablePass *pass, int64 duration)
{
	return_rate(pace, pace->reserved - pass->deleted);
	if (!pass->was_work)
		return 0;
	ttl_docs_observe_load();
	return pause_after(pass->target.table, duration);
}

static int64
reserve_rate(StepPace *pace)
{
	int64		now = ttl_docs_elapsed();
	int64		begin;

	if (pace->reserved <= 0)
		return 0;
	LWLockAcquire(ttl_docs_purge_shared->lock, LW_EXCLUSIVE);
	begin = Max(ttl_docs_purge_shared->rate_free_at, now);
	ttl_docs_purge_shared->rate_free_at = begin +
		pace->reserved * USECS_PER_SEC / pace->rate;
	LWLockRelease(ttl_docs_purge_shared->lock);
	return begin - now;
}

static void
return_rate(const StepPace *pace, int rows)
{
	if (rows <= 0 || pace->reserved <= 0)
		return;
	LWLockAcquire(ttl_docs_purge_shared->lock, LW_EXCLUSIVE);
	ttl_docs_purge_shared->rate_free_at -= rows * USECS_PER_SEC / pace->rate;
	LWLockRelease(ttl_docs_purge_shared->lock);
}

/* The pause after a step of this duration, both in microseconds. */
static int64
pause_after(const PurgeTable *table, int64 duration)
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
	return (int64) Min(factor * duration, (double) LONGEST_PAUSE);
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
