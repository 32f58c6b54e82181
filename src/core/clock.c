/*-------------------------------------------------------------------------
 *
 * clock.c
 *		The one place where ttl_docs reads the time.
 *
 * ttl_docs.clock_offset shifts this clock for the session, so that tests do
 * not have to sleep.  No other file may read the time.  Two times that core
 * has recorded are an exception: when the current statement arrived, and when
 * a transaction started.
 *
 * Elapsed time is separate from the clock: it advances evenly even if the
 * clock is set.  The purge uses elapsed time for its pace, and to detect that
 * the clock has jumped.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <time.h>

#include "utils/timestamp.h"

#include "core/core.h"

/* The current time on this session's clock, in microseconds. */
TimestampTz
ttl_docs_clock(void)
{
	return ttl_docs_shifted(ttl_docs_server_clock());
}

/* The current time on the server's clock; clock_offset does not shift it. */
TimestampTz
ttl_docs_server_clock(void)
{
	return GetCurrentTimestamp();
}

/* Converts a time of the server's clock to this session's clock. */
TimestampTz
ttl_docs_shifted(TimestampTz time)
{
	return time + (TimestampTz) ttl_docs_clock_offset * USECS_PER_SEC;
}

/*
 * Microseconds since some moment in the past, which is the same for all
 * processes.  Where the system supports it, the time during which the machine
 * was suspended counts, too.
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

/* Formats a period of time for people to read, in its two largest units. */
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
