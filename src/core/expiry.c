/*-------------------------------------------------------------------------
 *
 * expiry.c
 *		When a document expires: pure functions of settings and stamp.
 *
 * A document either inherits the DefaultTTL (its ttl is NULL) or has its own
 * ttl.  It is expired when _ts + time to live <= instant.  With the time to
 * live on the other side, that is a comparison with a bound that is the same
 * for every row of a query:
 *
 *		inherits:	 _ts	   <= instant - DefaultTTL
 *		own ttl:	 _ts + ttl <= instant
 *
 * Expired is final.  When a DefaultTTL changes, documents that are expired
 * under the old one must stay expired under the new one, and no row may be
 * touched for that.  So the bounds of that moment become floors of the
 * collection.  Floors only rise.  A bound is the greater of the floor and what
 * the current settings give.
 *
 * A _ts that is not finite never expires.  Only replication or a restore can
 * bring one.  Arithmetic is in 64 bits; a due time that would overflow never
 * comes.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "common/int.h"
#include "utils/timestamp.h"

#include "core/core.h"

/* The stamp of a row. */
Stamp
ttl_docs_row_stamp(const Collection *collection, TupleTableSlot *row)
{
	bool		ts_isnull;
	bool		ttl_isnull;
	Datum		ts = slot_getattr(row, collection->ts, &ts_isnull);
	Datum		ttl = slot_getattr(row, collection->ttl, &ttl_isnull);

	return ttl_docs_make_stamp(ts, ts_isnull, ttl, ttl_isnull);
}

/* The stamp of a tuple. */
Stamp
ttl_docs_tuple_stamp(const Collection *collection, HeapTuple tuple,
					 TupleDesc tupdesc)
{
	bool		ts_isnull;
	bool		ttl_isnull;
	Datum		ts = heap_getattr(tuple, collection->ts, tupdesc, &ts_isnull);
	Datum		ttl = heap_getattr(tuple, collection->ttl, tupdesc, &ttl_isnull);

	return ttl_docs_make_stamp(ts, ts_isnull, ttl, ttl_isnull);
}

/* When a document with that _ts and that time to live is due. */
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

/* The bounds that judge a collection's documents at an instant. */
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

/* Is a document with that stamp expired under these bounds? */
bool
ttl_docs_is_expired(const ExpiryBounds *bounds, const Stamp *stamp)
{
	if (stamp->inherits)
		return stamp->ts <= bounds->written && !TIMESTAMP_NOT_FINITE(stamp->ts);
	return ttl_docs_due(stamp->ts, stamp->ttl) <= bounds->due;
}

/* Is a row expired under these bounds? */
bool
ttl_docs_row_is_expired(const ExpiryBounds *bounds, const Collection *collection,
						TupleTableSlot *row)
{
	Stamp		stamp = ttl_docs_row_stamp(collection, row);

	return ttl_docs_is_expired(bounds, &stamp);
}

/*
 * When a document expires under these settings, or has expired; DT_NOEND if
 * never.  A document that a floor keeps expired has expired by that floor.
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
 * From when on a document is expired; DT_NOBEGIN where a floor keeps it
 * expired whatever the clock shows, because the clock may have gone back
 * behind the floor.
 */
TimestampTz
ttl_docs_expired_from(const CollectionSettings *settings, const Stamp *stamp)
{
	ExpiryBounds floors = {settings->written_floor, settings->due_floor};

	return ttl_docs_is_expired(&floors, stamp) ? DT_NOBEGIN :
		ttl_docs_expires_at(settings, stamp);
}

/*
 * Makes final what has expired by now, before the DefaultTTL changes.  The
 * caller holds a lock that keeps writers out.
 */
void
ttl_docs_raise_floors(CollectionSettings *settings, TimestampTz clock)
{
	ExpiryBounds bounds = ttl_docs_bounds(settings, clock);

	settings->written_floor = bounds.written;
	settings->due_floor = bounds.due;
}

/*
 * The _ts of a document that is written now, whose ttl is in *stamp.  It is
 * the clock.  Only if the clock went back behind a floor would the document be
 * expired at once; then _ts is the first moment at which it is not.
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
