/*-------------------------------------------------------------------------
 *
 * expiry.c
 *		Decides when a document expires, by pure functions of settings and
 *		stamp.
 *
 * A document either inherits the DefaultTTL (its ttl is NULL) or has its own
 * ttl.  It is expired when _ts + time to live <= instant.  We rewrite this
 * condition as a comparison with a bound that is the same for every row of a
 * query:
 *
 *		inherits:	 _ts	   <= instant - DefaultTTL
 *		own ttl:	 _ts + ttl <= instant
 *
 * Expired is final.  When the DefaultTTL changes, documents that are expired
 * under the old DefaultTTL must stay expired under the new one, without
 * touching any row.  So the current bounds become floors of the collection.
 * Floors only rise.  A bound is the maximum of the floor and the result of
 * the current settings.
 *
 * A document whose _ts is not finite never expires.  Only replication or a
 * restore can store such a _ts.  Arithmetic is in 64 bits.  A document whose
 * due time would overflow never expires.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/int.h"
#include "utils/timestamp.h"

#include "core/core.h"

/* The due time for a _ts and a time to live; DT_NOEND = never. */
TimestampTz
ttl_docs_due(TimestampTz ts, int32 ttl)
{
	TimestampTz due;

	if (ttl <= 0 || TIMESTAMP_NOT_FINITE(ts) ||
		pg_add_s64_overflow(ts, (int64) ttl * USECS_PER_SEC, &due) ||
		!IS_VALID_TIMESTAMP(due))
		return DT_NOEND;
	return due;
}

/* The bounds by which to judge documents of a collection at an instant. */
ExpiryBounds
ttl_docs_bounds(const CollectionSettings *settings, TimestampTz instant)
{
	ExpiryBounds bounds;

	bounds.written = settings->written_floor;
	bounds.due = settings->due_floor;
	if (settings->on)
	{
		if (settings->default_ttl > 0)
			bounds.written = Max(bounds.written, instant -
								 (int64) settings->default_ttl * USECS_PER_SEC);
		bounds.due = Max(bounds.due, instant);
	}
	return bounds;
}

bool
ttl_docs_is_expired(const ExpiryBounds *bounds, const Stamp *stamp)
{
	if (stamp->inherits)
		return stamp->ts <= bounds->written && !TIMESTAMP_NOT_FINITE(stamp->ts);
	return ttl_docs_due(stamp->ts, stamp->ttl) <= bounds->due;
}

bool
ttl_docs_row_is_expired(const ExpiryBounds *bounds, const Collection *collection,
						TupleTableSlot *row)
{
	Stamp		stamp = ttl_docs_row_stamp(collection, row);

	return ttl_docs_is_expired(bounds, &stamp);
}

/*
 * When a document expires or has expired under these settings; DT_NOEND =
 * never.  If a floor keeps the document expired, the result is not later than
 * the floor.
 */
TimestampTz
ttl_docs_expires_at(const CollectionSettings *settings, const Stamp *stamp)
{
	TimestampTz due;

	if (!stamp->inherits)
	{
		due = ttl_docs_due(stamp->ts, stamp->ttl);
		return settings->on || due <= settings->due_floor ? due : DT_NOEND;
	}

	due = settings->on ? ttl_docs_due(stamp->ts, settings->default_ttl) : DT_NOEND;
	if (stamp->ts <= settings->written_floor && !TIMESTAMP_NOT_FINITE(stamp->ts))
		due = Min(due, settings->written_floor);
	return due;
}

/*
 * From which time on a document counts as expired; DT_NOEND = never.  If a
 * floor keeps the document expired, the result is DT_NOBEGIN: the document
 * stays expired even if the clock goes back to a time before the floor.
 */
TimestampTz
ttl_docs_expired_from(const CollectionSettings *settings, const Stamp *stamp)
{
	ExpiryBounds floors = {settings->written_floor, settings->due_floor};

	return ttl_docs_is_expired(&floors, stamp) ? DT_NOBEGIN :
		ttl_docs_expires_at(settings, stamp);
}

/*
 * Turns the current bounds into floors, before the DefaultTTL changes, so
 * that documents that have expired stay expired.  The caller holds a lock
 * that keeps writers out.
 */
void
ttl_docs_raise_floors(CollectionSettings *settings, TimestampTz clock)
{
	ExpiryBounds bounds = ttl_docs_bounds(settings, clock);

	settings->written_floor = bounds.written;
	settings->due_floor = bounds.due;
}

/*
 * The _ts of a document that is written now; *stamp has its ttl.  Normally
 * the result is the clock.  But if the clock went back to a time before a
 * floor, the new document could be expired at once.  Then the result is the
 * earliest _ts with which the document is live.
 */
TimestampTz
ttl_docs_stamp_time(const CollectionSettings *settings, TimestampTz clock,
					const Stamp *stamp)
{
	if (stamp->inherits)
	{
		if (clock <= settings->written_floor)
			return settings->written_floor + 1;
	}
	else if (stamp->ttl > 0 &&
			 ttl_docs_due(clock, stamp->ttl) <= settings->due_floor)
		return settings->due_floor - (int64) stamp->ttl * USECS_PER_SEC + 1;
	return clock;
}
