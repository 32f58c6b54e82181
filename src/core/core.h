/*-------------------------------------------------------------------------
 *
 * core.h
 *		Functions of core that every part may use: time, expiry, slots, and
 *		ways to act on tables.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_DOCS_CORE_H
#define TTL_DOCS_CORE_H

#include "access/htup_details.h"
#include "access/skey.h"
#include "access/tupdesc.h"
#include "executor/tuptable.h"
#include "fmgr.h"
#include "nodes/execnodes.h"
#include "port/atomics.h"
#include "storage/itemptr.h"
#include "utils/jsonb.h"
#include "utils/relcache.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "ttl_docs.h"

/* preload.c */
extern bool ttl_docs_is_preloaded;
pg_noreturn extern void ttl_docs_report_not_preloaded(void);

/* Raises an error unless the library was preloaded. */
static inline void
ttl_docs_require_preload(void)
{
	if (unlikely(!ttl_docs_is_preloaded))
		ttl_docs_report_not_preloaded();
}


/* clock.c */
extern TimestampTz ttl_docs_clock(void);
extern TimestampTz ttl_docs_server_clock(void);
extern TimestampTz ttl_docs_shifted(TimestampTz time);
extern int64 ttl_docs_elapsed(void);
extern char *ttl_docs_period(int64 microseconds);

/*
 * Lowers a time in shared memory to "to".  Returns false if the time is
 * already that early.
 */
static inline bool
ttl_docs_lower_time(pg_atomic_uint64 *time, TimestampTz to)
{
	uint64		current = pg_atomic_read_u64(time);

	while (to < (TimestampTz) current)
		if (pg_atomic_compare_exchange_u64(time, &current, (uint64) to))
			return true;
	return false;
}

static inline TimestampTz
ttl_docs_read_time(pg_atomic_uint64 *time)
{
	return (TimestampTz) pg_atomic_read_u64(time);
}

/* expiry.c */

/* Decides, with the settings, when a document expires */
typedef struct Stamp
{
	TimestampTz ts;				/* DT_NOEND if _ts is NULL: never expires */
	bool		inherits;		/* the ttl is NULL */
	int32		ttl;			/* 0 if the document inherits */
} Stamp;

/* The result of combining settings with an instant */
typedef struct ExpiryBounds
{
	TimestampTz written;		/* inheriting documents are expired if their
								 * _ts <= written */
	TimestampTz due;			/* documents with their own ttl are expired if
								 * their due time <= due */
} ExpiryBounds;

/* Makes a stamp from the values of _ts and _ttl. */
static inline Stamp
ttl_docs_make_stamp(Datum ts, bool ts_isnull, Datum ttl, bool ttl_isnull)
{
	Stamp		stamp;

	stamp.ts = ts_isnull ? DT_NOEND : DatumGetTimestampTz(ts);
	stamp.inherits = ttl_isnull;
	stamp.ttl = ttl_isnull ? 0 : DatumGetInt32(ttl);
	return stamp;
}

static inline Stamp
ttl_docs_row_stamp(const Collection *collection, TupleTableSlot *row)
{
	bool		ts_isnull;
	bool		ttl_isnull;
	Datum		ts = slot_getattr(row, collection->ts, &ts_isnull);
	Datum		ttl = slot_getattr(row, collection->ttl, &ttl_isnull);

	return ttl_docs_make_stamp(ts, ts_isnull, ttl, ttl_isnull);
}

static inline Stamp
ttl_docs_tuple_stamp(const Collection *collection, HeapTuple tuple,
					 TupleDesc tupdesc)
{
	bool		ts_isnull;
	bool		ttl_isnull;
	Datum		ts = heap_getattr(tuple, collection->ts, tupdesc, &ts_isnull);
	Datum		ttl = heap_getattr(tuple, collection->ttl, tupdesc, &ttl_isnull);

	return ttl_docs_make_stamp(ts, ts_isnull, ttl, ttl_isnull);
}

extern TimestampTz ttl_docs_due(TimestampTz ts, int32 ttl);
extern ExpiryBounds ttl_docs_bounds(const CollectionSettings *settings,
									TimestampTz instant);
extern bool ttl_docs_is_expired(const ExpiryBounds *bounds, const Stamp *stamp);
extern bool ttl_docs_row_is_expired(const ExpiryBounds *bounds,
									const Collection *collection,
									TupleTableSlot *row);
extern TimestampTz ttl_docs_expires_at(const CollectionSettings *settings,
									   const Stamp *stamp);
extern TimestampTz ttl_docs_expired_from(const CollectionSettings *settings,
										 const Stamp *stamp);
extern void ttl_docs_raise_floors(CollectionSettings *settings, TimestampTz clock);
extern TimestampTz ttl_docs_stamp_time(const CollectionSettings *settings,
									   TimestampTz clock, const Stamp *stamp);

/* slots.c */
#define NO_SLOT			PG_INT64_MIN	/* stored as NULL: never expires */
#define SLOT_INVALID	PG_INT64_MAX	/* the ttl is invalid */

/* The two ranges of the purge index: by _ts, and by due time */
typedef enum SlotRange
{
	RANGE_INHERITING,
	RANGE_OWN,
	RANGE_COUNT
} SlotRange;

extern int64 ttl_docs_slot(const Stamp *stamp, int32 default_ttl);
extern int64 ttl_docs_slot_under(const CollectionSettings *settings, const Stamp *stamp);
extern bool ttl_docs_may_be_slot(const Stamp *stamp, int64 slot);
extern SlotRange ttl_docs_slot_range(int64 slot);
extern TimestampTz ttl_docs_slot_due(int64 slot, int32 default_ttl);
extern TimestampTz ttl_docs_earliest_in_slot(TimestampTz slot_due);
extern int64 ttl_docs_slot_at(SlotRange range, TimestampTz due, int32 default_ttl);
extern int64 ttl_docs_last_expired_slot(const CollectionSettings *settings,
										SlotRange range, TimestampTz clock);
extern int64 ttl_docs_first_live_slot(const ExpiryBounds *bounds, SlotRange range);
extern TimestampTz ttl_docs_time_past_slot(TimestampTz clock);
extern bool ttl_docs_floor_may_cover(const CollectionSettings *settings, int64 slot);
extern bool ttl_docs_slots_between(const ExpiryBounds *before,
								   const ExpiryBounds *after, SlotRange range,
								   int64 *from, int64 *to);
extern void ttl_docs_slot_scan_keys(ScanKey keys, SlotRange range, int64 from,
									int64 to);

/* document_ttl.c */
extern void ttl_docs_read_ttl(Datum doc, bool isnull, Stamp *stamp,
							  JsonbValue *found);
extern char *ttl_docs_json_excerpt(Jsonb *value);

/* sql.c */
extern void ttl_docs_run_ddl(const char *format,...) pg_attribute_printf(1, 2);
extern void ttl_docs_run_ddl_of_client(const char *sql);
extern char *ttl_docs_quoted_name(Oid relid);
extern char *ttl_docs_quoted_literal(Oid relid);
extern bool ttl_docs_push_snapshot(void);

/* owner.c */
typedef struct OwnerSwitch
{
	Oid			user;
	int			sec_context;
	int			nest_level;
} OwnerSwitch;
extern void ttl_docs_become_owner(Relation rel, OwnerSwitch *before);
extern void ttl_docs_become_caller(const OwnerSwitch *before);
extern void ttl_docs_query_as_owner(Relation rel, const char *sql);
extern bool ttl_docs_exists_as_owner(Relation rel, const char *condition);

/* trusted_code.c */
extern char *ttl_docs_untrusted_code(Relation rel, Oid root, Oid *function,
									 List **cascade_targets);

extern bool ttl_docs_is_trusted_role(Oid owner, Oid role);

/* guard.c */
typedef struct TableGuard
{
	struct TableGuard *outer;	/* the guard that was active before */
	Oid			owner;			/* as whom we delete */
	Oid			relid;
	Oid			root;
	List	   *cascade_targets;
} TableGuard;
extern TableGuard *ttl_docs_guard;	/* NULL = no table is guarded */
extern void ttl_docs_begin_guard(TableGuard *guard, Relation rel, Oid root,
								 List *cascade_targets);
extern void ttl_docs_end_guard(const TableGuard *guard);
extern void ttl_docs_refuse_guarded_change(Oid classId, Oid objectId, void *arg);
extern void ttl_docs_refuse_guarded_setting(void);

/* purging.c */
extern int	ttl_docs_purging_depth;

static inline bool
ttl_docs_is_purging(void)
{
	return ttl_docs_purging_depth > 0;
}

static inline void
ttl_docs_begin_purging(void)
{
	ttl_docs_purging_depth++;
}

static inline void
ttl_docs_end_purging(void)
{
	ttl_docs_purging_depth--;
}

/* delete.c */
typedef struct RowDeleter RowDeleter;
typedef enum DeleteResult
{
	DELETE_DONE,				/* row deleted, triggers fired */
	DELETE_CHANGED,				/* another session changed the row first */
	DELETE_BUSY,				/* another session has locked the row */
	DELETE_REFUSED				/* a trigger kept the row, the current command
								 * changed it, or it is not expired any more */
} DeleteResult;
extern RowDeleter *ttl_docs_begin_deletes(Relation rel, Relation root);
extern DeleteResult ttl_docs_delete_row(RowDeleter *deleter, ItemPointer tid,
										CommandId cid, bool wait);
extern bool ttl_docs_delete_locks_first(const RowDeleter *deleter);
extern bool ttl_docs_delete_fires_triggers(const RowDeleter *deleter);
extern void ttl_docs_end_deletes(RowDeleter *deleter);
extern void ttl_docs_fire_at_once(EState *estate);

/* delete_expired.c */
extern DeleteResult ttl_docs_delete_expired(Relation rel,
											const Collection *collection,
											ItemPointer tid, CommandId cid);

#endif							/* TTL_DOCS_CORE_H */
