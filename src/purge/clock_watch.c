/*-------------------------------------------------------------------------
 *
 * clock_watch.c
 *		Notices when the clock of the server jumps.
 *
 * The launcher compares the clock with the time that has passed.  It follows the
 * clock in small steps, and backwards.  A large step ahead stays a jump until the
 * clock is back, or resume_purge() accepts it; until then the purge is held.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "purge/purge_internal.h"

#define CLOCK_JUMP		(300 * USECS_PER_SEC)

/*
 * By how much the clock is ahead of the time that has passed, in microseconds.
 * What counts is the clock of the server: a session that has moved its own meant
 * to.
 */
int64
ttl_docs_clock_jump(void)
{
	int64		shift = (int64) ttl_docs_clock_offset - ttl_docs_purge_shared->clock_offset;

	return ttl_docs_clock() - shift * USECS_PER_SEC - ttl_docs_elapsed() -
		(int64) pg_atomic_read_u64(&ttl_docs_purge_shared->clock_base);
}

/* Is that so much that the purge is held? */
bool
ttl_docs_clock_has_jumped(void)
{
	return ttl_docs_clock_jump() > CLOCK_JUMP;
}

/*
 * The launcher follows the clock, as long as it does not jump ahead.  When it has
 * gone back, times that were computed by it are too late.
 */
void
ttl_docs_observe_clock(void)
{
	static int64 last_difference = PG_INT64_MIN;
	int64		difference = ttl_docs_clock() - ttl_docs_elapsed();

	ttl_docs_purge_shared->clock_offset = ttl_docs_clock_offset;
	if (difference + USECS_PER_SEC < last_difference)
		ttl_docs_look_at_everything();
	last_difference = difference;
	if (!ttl_docs_clock_has_jumped())
		pg_atomic_write_u64(&ttl_docs_purge_shared->clock_base,
							(uint64) (ttl_docs_clock() - ttl_docs_elapsed()));
}

/* Is the clock right, or has resume_purge() accepted its jump for the table? */
bool
ttl_docs_jump_is_accepted(const PurgeTable *table)
{
	int64		jump = ttl_docs_clock_jump();

	return jump <= CLOCK_JUMP ||
		(table != NULL && jump <= table->accepted_jump + CLOCK_JUMP);
}
