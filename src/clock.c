/*-------------------------------------------------------------------------
 *
 * clock.c
 *		The one place where ttl_docs reads the time.
 *
 * ttl_docs.clock_offset moves this clock for the session, so that a test
 * travels in time where it would have to sleep.  Nothing else in the extension
 * may call a time function, but for when the current statement arrived.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/timestamp.h"

#include "ttl_docs.h"

/* The time at this moment, to the microsecond. */
TimestampTz
ttl_docs_clock(void)
{
	return ttl_docs_shifted(GetCurrentTimestamp());
}

/* A time that the server's clock has shown, on this session's clock. */
TimestampTz
ttl_docs_shifted(TimestampTz time)
{
	return time + (TimestampTz) ttl_docs_clock_offset * USECS_PER_SEC;
}
