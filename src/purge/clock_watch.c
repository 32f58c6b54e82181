/*-------------------------------------------------------------------------
 *
 * clock_watch.c
 *		Detects jumps of the server's clock.
 *
 * The launcher compares the clock with elapsed time.  It accepts small steps of the
 * clock, and all steps back.  A step ahead by more than CLOCK_JUMP is a jump: the
 * purge is held until the clock is set back, or until resume_purge() accepts the
 * jump.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "purge/shared_internal.h"

#define CLOCK_JUMP		(300 * USECS_PER_SEC)

/*
 * By how much the clock is ahead of elapsed time, in microseconds.  Ignores this
 * session's clock_offset; measures the server clock.
 */
int64
ttl_docs_clock_jump(void)
{
	int64		shift = (int64) ttl_docs_clock_offset - ttl_docs_purge_shared->clock_offset;

	return ttl_docs_clock() - shift * USECS_PER_SEC - ttl_docs_elapsed() -
		(int64) pg_atomic_read_u64(&ttl_docs_purge_shared->clock_base);
}

/* Has the clock jumped so far that the purge is held? */
bool
ttl_docs_clock_has_jumped(void)
{
	return ttl_docs_clock_jump() > CLOCK_JUMP;
}

/*
 * The launcher calls this to accept the current clock, unless it has jumped ahead.
 * If the clock has gone back, times of visits are too late, so all tables are
 * visited now.
 */
void
ttl_docs_observe_clock(void)
{
	static int64 last_difference = PG_INT64_MIN;
	int64		difference = ttl_docs_clock() - ttl_docs_elapsed();

	ttl_docs_purge_shared->clock_offset = ttl_docs_clock_offset;
	if (difference + USECS_PER_SEC < last_difference)
		ttl_docs_visit_everything_now();
	last_difference = difference;
	if (!ttl_docs_clock_has_jumped())
		pg_atomic_write_u64(&ttl_docs_purge_shared->clock_base,
							(uint64) (ttl_docs_clock() - ttl_docs_elapsed()));
}

/* Has resume_purge() accepted the clock jump for a table, or was there no jump? */
bool
ttl_docs_jump_is_accepted(const PurgeTable *table)
{
	int64		jump = ttl_docs_clock_jump();

	return jump <= CLOCK_JUMP ||
		(table != NULL && jump <= table->accepted_jump + CLOCK_JUMP);
}
