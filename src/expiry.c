/*-------------------------------------------------------------------------
 *
 * expiry.c
 *		When a document expires: pure functions of settings, stamp and ttl.
 *
 * A document either inherits the DefaultTTL (its ttl is NULL) or has a ttl of
 * its own.  It is expired when stamp + time to live <= instant.  With the time
 * to live on the other side, that is a comparison with a bound that is the
 * same for every row of a query:
 *
 *		inherits:	 stamp		 <= instant - DefaultTTL
 *		own ttl:	 stamp + ttl <= instant
 *
 * Expired is final.  When a DefaultTTL changes, the documents that are dead
 * under the old one have to stay dead under the new one, without touching
 * them: the bounds of that moment become floors of the collection, and floors
 * only rise.  A bound is the greater of the floor and what the settings in
 * force give.
 *
 * Slots.  The stamp changes with every write, so an index on it would take
 * HOT updates away.  The purge index is on the slot instead: the due time in
 * seconds, rounded up to the width of the slot.  Rounded up, whatever the
 * index finds is truly expired, and a document is late by less than a width.
 * Inheriting documents are slotted by their stamp, in a range of their own far
 * below zero, so that a change of DefaultTTL moves the bound of a scan and not
 * the entries.  Documents that never expire have no slot and are not in the
 * index; those whose ttl is not valid (which TTL off allows) are at its far
 * end, where turning TTL on finds them.
 *
 * Stamps that are not finite (only replication or a restore can bring one)
 * never expire.  Arithmetic is in 64 bits; what would overflow never expires.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/int.h"
#include "executor/tuptable.h"
#include "utils/timestamp.h"

#include "ttl_docs.h"

static bool read_stamp(const Collection *collection, TupleTableSlot *row,
					   TimestampTz *ts, bool *inherits, int32 *ttl);
static int64 slot_width(int32 ttl);
static int64 round_up_to_slot(TimestampTz ts, int64 width);

/* When a document of that stamp with that time to live is due. */
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

/* Is a document expired under these bounds? */
bool
ttl_docs_is_expired(const ExpiryBounds *bounds, TimestampTz ts,
					bool inherits, int32 ttl)
{
	if (inherits)
		return ts <= bounds->written && !TIMESTAMP_NOT_FINITE(ts);
	return ttl_docs_due(ts, ttl) <= bounds->due;
}

/* The same for a row of the collection. */
bool
ttl_docs_row_is_expired(const ExpiryBounds *bounds, const Collection *collection,
						TupleTableSlot *row)
{
	TimestampTz ts;
	bool		inherits;
	int32		ttl;

	return read_stamp(collection, row, &ts, &inherits, &ttl) &&
		ttl_docs_is_expired(bounds, ts, inherits, ttl);
}

/* The stamp and ttl of a row; false if it has no stamp, and never expires. */
static bool
read_stamp(const Collection *collection, TupleTableSlot *row, TimestampTz *ts,
		   bool *inherits, int32 *ttl)
{
	bool		ts_isnull;
	Datum		ts_value = slot_getattr(row, collection->ts, &ts_isnull);
	Datum		ttl_value = slot_getattr(row, collection->ttl, inherits);

	*ts = ts_isnull ? 0 : DatumGetTimestampTz(ts_value);
	*ttl = *inherits ? 0 : DatumGetInt32(ttl_value);
	return !ts_isnull;
}

/*
 * When a document expires under these settings, or has expired; DT_NOEND if
 * never.  A document that a floor keeps dead has expired by that floor.
 */
TimestampTz
ttl_docs_expires_at(const CollectionSettings *settings, TimestampTz ts,
					bool inherits, int32 ttl)
{
	TimestampTz due;

	if (!inherits)
	{
		due = ttl_docs_due(ts, ttl);
		return settings->on || due <= settings->due_floor ? due : DT_NOEND;
	}

	due = settings->on ? ttl_docs_due(ts, settings->default_ttl) : DT_NOEND;
	if (ts <= settings->written_floor && !TIMESTAMP_NOT_FINITE(ts))
		due = Min(due, settings->written_floor);
	return due;
}

/*
 * From when on a document is expired: whatever the clock says, where a floor keeps
 * it dead.  (The clock may have gone back behind the floor.)
 */
TimestampTz
ttl_docs_expired_from(const CollectionSettings *settings, TimestampTz ts,
					  bool inherits, int32 ttl)
{
	ExpiryBounds floors = {settings->written_floor, settings->due_floor};

	return ttl_docs_is_expired(&floors, ts, inherits, ttl) ? DT_NOBEGIN :
		ttl_docs_expires_at(settings, ts, inherits, ttl);
}

/* The same for a row of the collection. */
TimestampTz
ttl_docs_row_expired_from(const Collection *collection, TupleTableSlot *row)
{
	TimestampTz ts;
	bool		inherits;
	int32		ttl;

	return read_stamp(collection, row, &ts, &inherits, &ttl) ?
		ttl_docs_expired_from(&collection->settings, ts, inherits, ttl) : DT_NOEND;
}

/*
 * Makes what has expired by now final, before the DefaultTTL changes.  The
 * caller holds a lock that keeps writers out.
 */
void
ttl_docs_move_floors(CollectionSettings *settings, TimestampTz clock)
{
	ExpiryBounds bounds = ttl_docs_bounds(settings, clock);

	settings->written_floor = bounds.written;
	settings->due_floor = bounds.due;
}

/*
 * The stamp of a document written now: the clock, unless a floor is ahead of
 * it.  That takes a clock that went back, and then the document would be dead
 * when it is born; so it is stamped with the first moment that is not.
 */
TimestampTz
ttl_docs_new_stamp(const CollectionSettings *settings, TimestampTz clock,
				   bool inherits, int32 ttl)
{
	if (inherits)
	{
		if (clock <= settings->written_floor)
			return settings->written_floor + 1;
	}
	else if (ttl > 0 && ttl_docs_due(clock, ttl) <= settings->due_floor)
		return settings->due_floor - (int64) ttl * USECS_PER_SEC + 1;
	return clock;
}

/*
 * Sets the slot of a document; false if it has none because it never expires.
 * An inheriting document has one whatever the DefaultTTL is: it may change.
 */
bool
ttl_docs_slot(TimestampTz ts, bool inherits, int32 ttl, int32 default_ttl,
			  int64 *slot)
{
	TimestampTz due;

	if (inherits)
	{
		if (TIMESTAMP_NOT_FINITE(ts))
			return false;
		*slot = round_up_to_slot(ts, slot_width(default_ttl)) -
			SLOT_INHERITING_OFFSET;
		return true;
	}
	if (ttl == TTL_INVALID)
	{
		*slot = SLOT_INVALID;
		return true;
	}
	due = ttl_docs_due(ts, ttl);
	if (TIMESTAMP_NOT_FINITE(due))
		return false;
	*slot = round_up_to_slot(due, slot_width(ttl));
	return true;
}

/*
 * Could that be the slot of an inheriting document, under whatever DefaultTTL
 * it was written?
 */
bool
ttl_docs_may_be_slot(TimestampTz ts, int64 slot)
{
	if (TIMESTAMP_NOT_FINITE(ts))
		return false;
	for (int64 width = 1; width <= SLOT_MAX_WIDTH; width *= 2)
		if (slot == round_up_to_slot(ts, width) - SLOT_INHERITING_OFFSET)
			return true;
	return false;
}

/*
 * The width of the slots for a time to live, in seconds: a power of two, an
 * eighth of it at the most, but at least one second.  A document is late by less than
 * the width of its slot.
 */
static int64
slot_width(int32 ttl)
{
	int64		width = SLOT_MAX_WIDTH;

	if (ttl <= 0)
		return SLOT_MAX_WIDTH;
	while (width > 1 && width > ttl / 8)
		width /= 2;
	return width;
}

/* A time in seconds, rounded up to a multiple of width. */
static int64
round_up_to_slot(TimestampTz ts, int64 width)
{
	int64		unit = width * USECS_PER_SEC;
	int64		slots = ts / unit;

	/* division rounds towards zero: up for negative times already */
	if (ts > 0 && ts % unit != 0)
		slots++;
	return slots * width;
}

/* A time in seconds, rounded down. */
int64
ttl_docs_whole_seconds(TimestampTz time)
{
	int64		seconds = time / USECS_PER_SEC;

	return time < 0 && time % USECS_PER_SEC != 0 ? seconds - 1 : seconds;
}
