/*-------------------------------------------------------------------------
 *
 * slots.c
 *		The arithmetic of slots, in both directions.
 *
 * _ts changes with every write, so an index on it would make every update
 * non-HOT.  The purge index is on the slot instead: a time in seconds, rounded
 * up to the width of the slot.  Because slots are rounded up, every row that
 * the index finds below the current time is expired, and the purge is late by
 * less than a width.  The width is a power of two of seconds: an eighth of the
 * time to live, at least one second and at most 64.
 *
 * The index has two ranges:
 *
 * 1. Inheriting documents are slotted by _ts, far below zero.  A change of the
 *    DefaultTTL then moves the end of a scan and not the entries.
 * 2. Documents with their own ttl are slotted by due time.
 *
 * Documents that never expire have no slot (NULL) and are not in the index.
 * Documents with an invalid ttl have SLOT_INVALID, at the far end of the
 * index, where turning TTL on finds them.  Any number can arrive as a slot by
 * replication, so the functions here accept any.
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

/* Added to a slot by due time, and subtracted from one by _ts */
#define INHERITING_OFFSET	(INT64CONST(1) << 62)
/* Between the two ranges: times lie within 2^43 seconds of zero */
#define RANGE_BORDER		(-(INHERITING_OFFSET / 2))
#define MAX_WIDTH			64	/* seconds */

static int64 slot_width(int32 ttl);
static int64 round_up(TimestampTz time, int64 width);
static int64 whole_seconds(TimestampTz time);

/*
 * The slot of a document, or NO_SLOT if it never expires.  An inheriting
 * document has a slot whatever the DefaultTTL is, because that may change.
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

/* Could an inheriting document have got that slot under some DefaultTTL? */
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

/* The range that a slot belongs to. */
SlotRange
ttl_docs_slot_range(int64 slot)
{
	return slot < RANGE_BORDER ? RANGE_INHERITING : RANGE_OWN;
}

/* When the last document of a slot is due; DT_NOEND if never. */
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

/* The earliest possible due time in the slot whose last document is due then. */
TimestampTz
ttl_docs_earliest_in_slot(TimestampTz slot_due)
{
	return TIMESTAMP_NOT_FINITE(slot_due) ? slot_due :
		slot_due - MAX_WIDTH * USECS_PER_SEC;
}

/* The inverse of ttl_docs_slot_due(): the slot of a range that is due then. */
int64
ttl_docs_slot_at(SlotRange range, TimestampTz due, int32 default_ttl)
{
	int64		slot = whole_seconds(due);

	if (range == RANGE_INHERITING)
		slot -= INHERITING_OFFSET + Max(default_ttl, 0);
	return slot;
}

/*
 * The last slot of a range in which a document can be expired, or NO_SLOT.
 * Documents that a floor keeps expired can be in the slot after the floor; a
 * scan finds live documents there, too, and has to judge each.
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

/* A time at which every document that is due now is in a slot that is over. */
TimestampTz
ttl_docs_time_past_slot(TimestampTz clock)
{
	return clock + (MAX_WIDTH + 1) * USECS_PER_SEC;
}

/*
 * Could a floor keep a document of that slot expired while TTL is off?  Only
 * if its _ts did not come from the clock.
 */
bool
ttl_docs_floor_may_cover(const CollectionSettings *settings, int64 slot)
{
	return slot <= ttl_docs_last_expired_slot(settings, ttl_docs_slot_range(slot),
											  DT_NOBEGIN);
}

/*
 * The slots of a range in which documents can be that are live under the
 * bounds "before" and expired under "after", both ends included.  False if
 * there are none.  Slots are rounded up, so a few others are among them.
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

/* Two scan keys for the slots from..to of a range, both ends included. */
void
ttl_docs_slot_scan_keys(ScanKey keys, SlotRange range, int64 from, int64 to)
{
	if (range == RANGE_INHERITING)
		to = Min(to, RANGE_BORDER - 1);
	else
		from = Max(from, RANGE_BORDER);
	/* BRIN needs the type */
	ScanKeyEntryInitialize(&keys[0], 0, 1, BTGreaterEqualStrategyNumber, INT8OID,
						   InvalidOid, F_INT8GE, Int64GetDatum(from));
	ScanKeyEntryInitialize(&keys[1], 0, 1, BTLessEqualStrategyNumber, INT8OID,
						   InvalidOid, F_INT8LE, Int64GetDatum(to));
}

/* The width of the slots for a time to live, in seconds. */
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

/* A time in seconds, rounded up to a multiple of width. */
static int64
round_up(TimestampTz time, int64 width)
{
	int64		unit = width * USECS_PER_SEC;
	int64		slots = time / unit;

	/* division rounds towards zero, which is up for negative times */
	if (time > 0 && time % unit != 0)
		slots++;
	return slots * width;
}

/* A time in seconds, rounded down. */
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
