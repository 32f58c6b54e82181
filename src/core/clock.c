/*-------------------------------------------------------------------------
 *
 * clock.c
 *		The one place where ttl_docs reads the time.
 *
 * ttl_docs.clock_offset moves this clock for the session, so that a test
 * travels in time where it would have to sleep.  Nothing else in the extension
 * may call a time function, but for when the current statement arrived.
 *
 * Time that passes is another matter: it goes on evenly whatever happens to the
 * clock.  It paces the purge, and shows when the clock has jumped.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <time.h>

#include "utils/timestamp.h"

#include "core/core.h"

/* The time at this moment, to the microsecond. */
TimestampTz
ttl_docs_clock(void)
{
	return ttl_docs_shifted(ttl_docs_server_clock());
}

/* The time at this moment by the server's own clock, which no session moves. */
TimestampTz
ttl_docs_server_clock(void)
{
	return GetCurrentTimestamp();
}

/* A time that the server's clock has shown, on this session's clock. */
TimestampTz
ttl_docs_shifted(TimestampTz time)
{
	return time + (TimestampTz) ttl_docs_clock_offset * USECS_PER_SEC;
}

/*
 * Microseconds since some moment in the past, the same for all processes.  A
 * machine that was suspended has gone through that time, where the system can
 * tell.
 */
int64
ttl_docs_elapsed(void)
{
	struct timespec now;

#ifdef CLOCK_BOOTTIME
	if (clock_gettime(CLOCK_BOOTTIME, &now) != 0)
#endif
		clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64) now.tv_sec * USECS_PER_SEC + now.tv_nsec / 1000;
}

/* A period of time for people to read: its two largest units. */
char *
ttl_docs_period(int64 microseconds)
{
	static const struct
	{
		const char *name;
		int64		seconds;
	}			units[] = {
		{"d", SECS_PER_DAY},
		{"h", SECS_PER_HOUR},
		{"min", SECS_PER_MINUTE},
		{"s", 1}
	};
	int64		seconds = (Max(microseconds, 0) + USECS_PER_SEC - 1) / USECS_PER_SEC;
	size_t		unit = 0;
	int64		rest;

	while (unit < lengthof(units) - 1 && seconds < units[unit].seconds)
		unit++;
	rest = seconds % units[unit].seconds;
	if (unit == lengthof(units) - 1 || rest < units[unit + 1].seconds)
		return psprintf(INT64_FORMAT " %s", seconds / units[unit].seconds,
						units[unit].name);
	return psprintf(INT64_FORMAT " %s " INT64_FORMAT " %s",
					seconds / units[unit].seconds, units[unit].name,
					rest / units[unit + 1].seconds, units[unit + 1].name);
}

/* Makes a time in shared memory earlier; false if it is early enough. */
bool
ttl_docs_lower_time(pg_atomic_uint64 *time, TimestampTz to)
{
	uint64		current = pg_atomic_read_u64(time);

	while (to < (TimestampTz) current)
		if (pg_atomic_compare_exchange_u64(time, &current, (uint64) to))
			return true;
	return false;
}

TimestampTz
ttl_docs_read_time(pg_atomic_uint64 *time)
{
	return (TimestampTz) pg_atomic_read_u64(time);
}
