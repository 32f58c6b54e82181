/*-------------------------------------------------------------------------
 *
 * slots.c
 *		Computes the slot of a document, and the times of a slot.
 *
 * _ts changes with every write, so an index on _ts would make every update
 * non-HOT.  The purge index is on the slot instead: a time in seconds,
 * rounded up to a multiple of the slot width.  Because slots are rounded up,
 * every document in a slot before the current time is expired, and the purge
 * is late by less than one width.  The width is the largest power of two that
 * is at most an eighth of the time to live, between 1 and 64 seconds.
 *
 * The index has two ranges:
 *
 * 1. The slot of an inheriting document is computed from _ts, and is far
 *    below zero.  A change of the DefaultTTL then moves the end of a scan,
 *    and not the index entries.
 * 2. The slot of a document with its own ttl is computed from its due time.
 *
 * A document that never expires has no slot (NULL).  Its entry is at the far
 * end of the index, and no scan for a range of slots reads it.  A document with
 * an invalid ttl has SLOT_INVALID, the last slot, where turning TTL on looks for
 * invalid values.  Replication can store any number as a slot, so the functions
 * here accept any number.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/stratnum.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "utils/fmgroids.h"
#include "utils/timestamp.h"

#include "core/core.h"

PG_FUNCTION_INFO_V1(ttl_docs_sql_slot);

/* Subtracted from the slots of inheriting documents */
#define INHERITING_OFFSET	(INT64CONST(1) << 62)
/* Separates the two ranges: all times lie within 2^43 seconds of zero */
#define RANGE_BORDER		(-(INHERITING_OFFSET / 2))
#define MAX_WIDTH			64	/* seconds */

static int64 slot_width(int32 ttl);
static int64 round_up(TimestampTz time, int64 width);
static int64 whole_seconds(TimestampTz time);

/*
 * The slot of a document, or NO_SLOT if the document never expires.  An
 * inheriting document has a slot even if the DefaultTTL is off or -1, because
 * the DefaultTTL may change.
 */
int64
ttl_docs_slot(const Stamp *stamp, int32 default_ttl)
{
	TimestampTz due;

	if (stamp->inherits)
		return TIMESTAMP_NOT_FINITE(stamp->ts) ? NO_SLOT :
			round_up(stamp->ts, slot_width(default_ttl)) - INHERITING_OFFSET;
	if (stamp->ttl == TTL_INVALID)
		return SLOT_INVALID;
	due = ttl_docs_due(stamp->ts, stamp->ttl);
	return TIMESTAMP_NOT_FINITE(due) ? NO_SLOT : round_up(due, slot_width(stamp->ttl));
}

/*
 * The slot of a document under some settings.  While a table is adopted
 * concurrently, documents get the slots for the DefaultTTL that will be set.
 */
int64
ttl_docs_slot_under(const CollectionSettings *settings, const Stamp *stamp)
{
	return ttl_docs_slot(stamp, settings->adopting != DT_NOBEGIN ?
						 settings->target_ttl : settings->default_ttl);
}

/* Could an inheriting document have this slot, under any DefaultTTL? */
bool
ttl_docs_may_be_slot(const Stamp *stamp, int64 slot)
{
	if (TIMESTAMP_NOT_FINITE(stamp->ts))
		return false;
	for (int64 width = 1; width <= MAX_WIDTH; width *= 2)
		if (slot == round_up(stamp->ts, width) - INHERITING_OFFSET)
			return true;
	return false;
}

SlotRange
ttl_docs_slot_range(int64 slot)
{
	return slot < RANGE_BORDER ? RANGE_INHERITING : RANGE_OWN;
}

/* The latest due time in a slot; DT_NOEND = never. */
TimestampTz
ttl_docs_slot_due(int64 slot, int32 default_ttl)
{
	int64		seconds = slot;

	if (ttl_docs_slot_range(slot) == RANGE_INHERITING)
	{
		if (default_ttl <= 0)
			return DT_NOEND;
		seconds = slot + INHERITING_OFFSET + default_ttl;
	}
	if (seconds >= END_TIMESTAMP / USECS_PER_SEC)
		return DT_NOEND;
	return Max(seconds, MIN_TIMESTAMP / USECS_PER_SEC) * USECS_PER_SEC;
}

/* The earliest possible due time in a slot; slot_due is the latest. */
TimestampTz
ttl_docs_earliest_in_slot(TimestampTz slot_due)
{
	return TIMESTAMP_NOT_FINITE(slot_due) ? slot_due :
		slot_due - MAX_WIDTH * USECS_PER_SEC;
}

/* The slot whose latest due time is "due": inverse of ttl_docs_slot_due(). */
int64
ttl_docs_slot_at(SlotRange range, TimestampTz due, int32 default_ttl)
{
	int64		slot = whole_seconds(due);

	if (range == RANGE_INHERITING)
		slot -= INHERITING_OFFSET + Max(default_ttl, 0);
	return slot;
}

/*
 * The last slot of a range that can contain an expired document, or NO_SLOT.
 * A floor can keep documents expired in a slot that ends after the floor.
 * Such a slot can also contain live documents, so a scan has to judge each
 * document.
 */
int64
ttl_docs_last_expired_slot(const CollectionSettings *settings, SlotRange range,
						   TimestampTz clock)
{
	bool		inheriting = range == RANGE_INHERITING;
	TimestampTz floor = inheriting ? settings->written_floor : settings->due_floor;
	int64		slot = NO_SLOT;

	if (settings->on && !inheriting)
		slot = whole_seconds(clock);
	else if (settings->on && settings->default_ttl > 0)
		slot = whole_seconds(clock) - settings->default_ttl;
	if (floor != DT_NOBEGIN)
		slot = Max(slot, whole_seconds(floor) + MAX_WIDTH + 1);
	if (slot != NO_SLOT && inheriting)
		slot -= INHERITING_OFFSET;
	return slot;
}

/*
 * The first slot of a range that can contain a live document.  Slots are
 * rounded up, so each document in an earlier slot is expired under the bounds.
 */
int64
ttl_docs_first_live_slot(const ExpiryBounds *bounds, SlotRange range)
{
	return range == RANGE_INHERITING ?
		whole_seconds(bounds->written) + 1 - INHERITING_OFFSET :
		whole_seconds(bounds->due) + 1;
}

/* A time by which the slots of all documents due at "clock" have ended. */
TimestampTz
ttl_docs_time_past_slot(TimestampTz clock)
{
	return clock + (MAX_WIDTH + 1) * USECS_PER_SEC;
}

/*
 * Can a floor keep a document in this slot expired, even if TTL is off?  For
 * a new document this is possible only if its _ts did not come from the
 * clock.
 */
bool
ttl_docs_floor_may_cover(const CollectionSettings *settings, int64 slot)
{
	return slot <= ttl_docs_last_expired_slot(settings, ttl_docs_slot_range(slot),
											  DT_NOBEGIN);
}

/*
 * Finds the slots of a range, from *from to *to inclusive, that can contain
 * documents which are live under the bounds "before" and expired under
 * "after".  Returns false if there are none.  Because slots are rounded up,
 * the result also covers a few other documents.
 */
bool
ttl_docs_slots_between(const ExpiryBounds *before, const ExpiryBounds *after,
					   SlotRange range, int64 *from, int64 *to)
{
	bool		inheriting = range == RANGE_INHERITING;
	TimestampTz old_bound = inheriting ? before->written : before->due;
	TimestampTz new_bound = inheriting ? after->written : after->due;
	int64		offset = inheriting ? INHERITING_OFFSET : 0;

	if (new_bound <= old_bound)
		return false;
	*from = old_bound == DT_NOBEGIN ? NO_SLOT : whole_seconds(old_bound) - offset;
	*to = whole_seconds(new_bound) + MAX_WIDTH + 1 - offset;
	return true;
}

/* Makes two scan keys for the slots of a range, "from" and "to" included. */
void
ttl_docs_slot_scan_keys(ScanKey keys, SlotRange range, int64 from, int64 to)
{
	if (range == RANGE_INHERITING)
		to = Min(to, RANGE_BORDER - 1);
	else
		from = Max(from, RANGE_BORDER);
	/* BRIN needs the type of the argument */
	ScanKeyEntryInitialize(&keys[0], 0, 1, BTGreaterEqualStrategyNumber, INT8OID,
						   InvalidOid, F_INT8GE, Int64GetDatum(from));
	ScanKeyEntryInitialize(&keys[1], 0, 1, BTLessEqualStrategyNumber, INT8OID,
						   InvalidOid, F_INT8LE, Int64GetDatum(to));
}

/* The slot width for a time to live, in seconds. */
static int64
slot_width(int32 ttl)
{
	int64		width = MAX_WIDTH;

	if (ttl <= 0)
		return MAX_WIDTH;
	while (width > 1 && width > ttl / 8)
		width /= 2;
	return width;
}

/* Converts a time to seconds, rounded up to a multiple of width. */
static int64
round_up(TimestampTz time, int64 width)
{
	int64		unit = width * USECS_PER_SEC;
	int64		slots = time / unit;

	/* division rounds towards zero, which is up for negative times already */
	if (time > 0 && time % unit != 0)
		slots++;
	return slots * width;
}

/* Converts a time to seconds, rounded down. */
static int64
whole_seconds(TimestampTz time)
{
	int64		seconds = time / USECS_PER_SEC;

	return time < 0 && time % USECS_PER_SEC != 0 ? seconds - 1 : seconds;
}

/*
 * slot(ts timestamptz, ttl integer, default_ttl integer)
 */
Datum
ttl_docs_sql_slot(PG_FUNCTION_ARGS)
{
	Stamp		stamp = ttl_docs_make_stamp(PG_GETARG_DATUM(0), PG_ARGISNULL(0),
											PG_GETARG_DATUM(1), PG_ARGISNULL(1));
	int64		slot = NO_SLOT;

	if (!PG_ARGISNULL(0))
		slot = ttl_docs_slot(&stamp, PG_ARGISNULL(2) ? TTL_NEVER : PG_GETARG_INT32(2));
	if (slot == NO_SLOT)
		PG_RETURN_NULL();
	PG_RETURN_INT64(slot);
}
