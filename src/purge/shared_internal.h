/*-------------------------------------------------------------------------
 *
 * shared_internal.h
 *		The shared memory of the purge: entries of databases, tables and workers, and
 *		the functions with which sessions and processes change them.
 *
 * This is the lowest of the three internal headers.  pass_internal.h is about the purge
 * of one table, purge_internal.h about processes and commands.
 *
 * Vocabulary, in addition to ttl_docs.h:
 *
 * launcher		the one process that sends workers to databases.
 * worker		a process that visits one database, for about two seconds.
 * visit		the work of one worker, from its start to its end.
 * table		a plain table of a collection: the collection itself, or one of
 *				its leaf partitions.  The purge works on tables.
 * entry		the record of a table, a database or a worker in shared memory.
 * pass			the way from the first expired document of a table to the last,
 *				in one visit or several.
 * step			a part of a pass that runs in its own transaction (in CALL purge():
 *				subtransaction).  A step is a search, a batch, or a part of a truncation.
 * search		reads the purge index for candidates.
 * candidate	an entry of the purge index whose document has probably expired.
 * batch		judges candidates again and deletes those that are expired.
 * left			a candidate that a pass could not delete and comes back for: it
 *				is busy or undeletable, or not expired yet.
 * round		a series of passes, one over each table that has no entry, see
 *				visit_tables.c.
 * announce		to report to the purge that a document was written, or that a
 *				collection changed, see notify.c.
 * quarantine	the rows that workers could not delete and will retry.
 * hold			a reason not to purge a collection at all.
 * trouble		an error that keeps a document, or a table, from being purged.
 * elapsed time	the monotonic time of ttl_docs_elapsed().  Unlike the clock, it
 *				never goes back.
 *
 * In shared memory, a TimestampTz is a time of the server's clock (core/clock.c),
 * and an int64 time is elapsed time.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_DOCS_PURGE_SHARED_INTERNAL_H
#define TTL_DOCS_PURGE_SHARED_INTERNAL_H

#include "port/atomics.h"
#include "storage/block.h"
#include "storage/latch.h"
#include "storage/lwlock.h"
#include "utils/hsearch.h"

#include "access/access.h"
#include "purge/purge.h"

#define PURGE_ERROR_LENGTH		256
/* interval of checks for changes that nobody announces */
#define PURGE_RECHECK_TIME		(300 * USECS_PER_SEC)

/*
 * The state of the purge of a table.  If the tables of a collection have different
 * states, stat_collections shows the one furthest down in this list.  The list in
 * state_names.c has the same order.
 */
typedef enum PurgeState
{
	PURGE_IDLE,					/* no document has expired */
	PURGE_TRUNCATING,			/* the purge waits until it can truncate the table */
	PURGE_WORKING,				/* expired documents are being purged */
	PURGE_CAPPED,				/* the purge waits because of purge_max_rate */
	PURGE_WAITING,				/* other sessions have locked the table or expired
								 * documents */
	PURGE_TROUBLE,				/* the table cannot be purged, see the error */
	PURGE_NO_INDEX,				/* there is no purge index to search */
	/* holds */
	PURGE_BLOCKED,				/* a delete would run untrusted code as the owner */
	PURGE_REPACKED,				/* pg_repack is copying the table */
	PURGE_MOVING,				/* a shard that Citus does not use here yet, or any
								 * more */
	PURGE_SUBSCRIBED,			/* the publisher purges the table */
	PURGE_CLOCK_JUMP,
	PURGE_GRACE,				/* a change of settings made documents expire */
	PURGE_RESTORED,
	PURGE_PAUSED
} PurgeState;

#define PURGE_IS_HOLD(state)	((state) >= PURGE_BLOCKED)

/* A place in the purge index: just before the index entry of this slot and row */
typedef struct PurgePosition
{
	int64		slot;
	ItemPointerData tid;
	BlockNumber leaf;			/* a page of a btree that may have this entry; 0 =
								 * unknown (leaf_reader.c) */
} PurgePosition;

/*
 * The documents that passes over a table have left, see progress.c.  Positions are
 * kept for each range of a btree.
 */
typedef struct LeftDocuments
{
	int64		busy;			/* locked by another session, or not committed */
	int64		undeletable;
	TimestampTz left_at;		/* when the first busy or undeletable one was
								 * left; during a revisit, when the last one was */
	TimestampTz expire_at;		/* when the first of the live ones expires;
								 * DT_NOEND = no live document was left */
	bool		has_position[RANGE_COUNT];
	PurgePosition first[RANGE_COUNT];
	PurgePosition last[RANGE_COUNT];
	/* the last revisit */
	bool		has_revisit_end[RANGE_COUNT];
	PurgePosition revisit_end[RANGE_COUNT]; /* it ends after this entry */
	int			revisits;		/* number in a row that had to leave documents */
} LeftDocuments;

/*
 * How far the purge of a table has come.  Progress is valid as long as settings and
 * index are as they were when it was recorded, and the clock has not gone back
 * (ttl_docs_progress_is_valid).
 */
typedef struct PurgeProgress
{
	bool		is_set;
	/* the conditions under which it was recorded */
	Oid			root;
	CollectionSettings settings;
	Oid			index;
	Oid			index_file;
	TimestampTz clock;
	/* the progress itself */
	PurgePosition next[RANGE_COUNT];	/* where the next search begins */
	BlockNumber next_block;		/* the same for a BRIN index */
	ItemPointerData next_row;	/* the first row to find there; invalid = any */
	LeftDocuments left;
	int			table_busy;		/* passes in a row that found the table locked */
} PurgeProgress;

/* An error of a document or a table, as stat_collections shows it */
typedef struct ShownError
{
	int			sqlstate;
	char		message[PURGE_ERROR_LENGTH];
	char		detail[PURGE_ERROR_LENGTH]; /* "" = none */
} ShownError;

typedef struct PurgeTableKey
{
	Oid			database;
	Oid			relid;
} PurgeTableKey;

/* The last scan for the earliest expiry of a table, by sessions or by the purge */
typedef struct EarliestScanState
{
	uint64		number;			/* 0 = there was none, or it is void */
	pg_atomic_uint64 announced; /* the earliest expiry that writers have announced
								 * since the scan began */
} EarliestScanState;

/*
 * Whether to truncate a table, see truncation.c.  Only the worker that has taken the
 * table writes this, under the lock.
 */
typedef struct PurgeTruncation
{
	TimestampTz not_before;		/* until then rows are deleted */
	/* the note: all documents had expired at "instant" */
	bool		is_noted;
	TimestampTz instant;
	FullTransactionId xid;		/* assigned afterwards, and finished */
	/* the wait for the last document */
	TimestampTz last_expiry;	/* by then all have expired; DT_NOBEGIN = no wait */
	/* the conditions of both */
	Oid			root;
	CollectionSettings settings;
	Oid			index;
	Oid			index_file;
	TimestampTz clock;
	/* attempts */
	TimestampTz busy_since;		/* the first attempt that found the table locked;
								 * DT_NOBEGIN = there was none */
	int			visits;			/* in a row that had to wait */
} PurgeTruncation;

/*
 * The entry of a table.
 *
 * next_visit is atomic, and every session may lower it.  The earliest expiry has
 * its own rules (earliest.c).  All other fields are written under the lock, except
 * for one: the worker that has taken the table may also set state without it.
 *
 * The worker that has taken the table writes the progress at the end of its pass.
 * If another process has incremented the epoch since the pass began, the progress
 * is void, and the next pass begins from the start.
 *
 * The entry of a table that is gone can be reused for another table.  A session
 * that still has a pointer to the entry can then lower next_visit and the earliest
 * expiry of the other table, restart its purge, or count rows for it.  None of
 * these loses a document.
 */
struct PurgeTable
{
	PurgeTableKey key;			/* must be first */
	pg_atomic_uint64 next_visit;	/* a TimestampTz */
	Oid			root;
	int			taken_by;		/* PID of the worker that purges it, or 0 */
	TimestampTz visited;		/* when its last pass ended */
	PurgeProgress progress;
	uint64		epoch;			/* number of restarts of the purge of the table */
	int64		accepted_jump;	/* the clock jump that resume_purge() accepted, in
								 * microseconds */
	/* when its first document expires, see earliest.c */
	pg_atomic_uint64 earliest;	/* DT_NOBEGIN = unknown */
	EarliestScanState scans[SCANNER_COUNT];
	pg_atomic_uint64 session_scanned;	/* elapsed time of the last scan by a
										 * session */
	/* trouble */
	int			failures;		/* errors of the table itself, in a row */
	int			quarantined;	/* rows in the quarantine */
	int64		undeletable;	/* other documents, by the last pass that ended */
	bool		has_error;
	ShownError	error;
	TimestampTz error_at;
	TimestampTz logged_at;
	uint32		logged_hash;	/* hash of the message that was logged last */
	int			batch_limit;	/* rows in a batch after an error; 0 = no limit */
	bool		is_swept;		/* the last pass has left no document */
	PurgeTruncation truncation;
	/* pace */
	TimestampTz older_since;	/* since when the age of the oldest document grows;
								 * DT_NOEND = it does not */
	int64		last_age;		/* age of the oldest document, in microseconds */
	/* statistics */
	PurgeState	state;
	int64		backlog;
	TimestampTz oldest;			/* due time of the oldest document in the backlog */
	TimestampTz counted;		/* when the backlog was counted */
	int64		purged;
	int64		batches;
	int64		truncations;
	int64		truncated;		/* estimated documents of these truncations */
	TimestampTz last_purge;
};

/* A round over the unplaced tables of a database: those that have no entry */
typedef struct UnplacedRound
{
	int64		next_round;		/* when it begins; PG_INT64_MAX = all tables have
								 * an entry */
	int64		rests_until;	/* end of the rest after the last round */
	int64		began;
	Oid			last;			/* the table it has come to; InvalidOid = no round
								 * is under way */
	bool		has_left;		/* it had no time for some expired documents */
	bool		has_changed;	/* collections have changed since it began */
	uint64		listing;		/* number of times that the tables were listed */
} UnplacedRound;

/*
 * The entry of a database.  Any process may set the flags: each of them is a single
 * byte.  The fields of the last visit are written under the lock.  Times other than
 * next_visit are elapsed time, so a clock that goes back delays no visit.
 */
typedef struct PurgeDatabase
{
	Oid			database;		/* must be first */
	pg_atomic_uint64 next_visit;	/* a TimestampTz */
	pg_atomic_uint32 must_list; /* collections were created or changed */
	bool		was_visited;
	int64		visited;		/* when the last visit ended */
	int64		keep_out_until; /* until then a command needs the database without
								 * workers */
	bool		can_connect;
	bool		lacks_extension;	/* by the last visit */
	pg_atomic_uint64 off_epoch; /* settings_epoch of the worker that found the
								 * purge off; 0 = it is on */
	bool		has_more;		/* the last visit had no time for some tables */
	int			tables_left;	/* number of tables that the last visit did not
								 * finish */
	int			failures;		/* visits that ended in an error, in a row */
	UnplacedRound round;
} PurgeDatabase;

/* The entry of a worker, from when the launcher requests it until it exits */
typedef struct PurgeWorker
{
	Oid			database;		/* InvalidOid = the entry is free */
	uint64		generation;		/* no other worker had the same number */
	int			pid;			/* 0 = not started yet */
	int64		requested_at;	/* elapsed time */
	uint64		settings_epoch; /* PurgeShared.settings_epoch at requested_at */
	bool		must_leave;		/* a command needs the database without workers */
	bool		must_reload;	/* the configuration may have changed since
								 * requested_at */
	bool		was_ended;		/* it took too long, and the launcher ended it */
} PurgeWorker;

typedef struct PurgeShared
{
	LWLock	   *lock;
	Latch	   *launcher_latch; /* NULL while there is no launcher */
	int			launcher_pid;	/* 0 while there is no launcher */
	pg_atomic_uint64 wakes_at;	/* until when the launcher sleeps */
	pg_atomic_uint64 clock_base;	/* clock minus elapsed time, as long as the
									 * clock does not jump */
	int			clock_offset;	/* ttl_docs.clock_offset of the server */
	pg_atomic_uint32 must_read_databases;	/* the launcher must read pg_database */
	pg_atomic_uint64 tables_gone;	/* number of table entries removed so far */
	pg_atomic_uint64 settings_epoch;	/* number of events that may have turned
										 * the purge on in a database; never 0 */
	bool		lacks_worker_slot;	/* no worker could be started for a second or
									 * more */
	int64		rate_free_at;	/* elapsed time at which purge_max_rate allows the
								 * next batch */
	uint64		worker_generation;	/* of the last worker */
	PurgeWorker workers[PURGE_MAX_WORKERS];
} PurgeShared;

/* shmem.c */
extern PurgeShared *ttl_docs_purge_shared;
extern HTAB *ttl_docs_shared_hash(const char *name, Size keysize, Size entrysize,
								  long max);
extern PurgeDatabase *ttl_docs_purge_database(Oid database, bool create);
extern PurgeTable *ttl_docs_purge_table(Oid relid, Oid root);
extern void ttl_docs_forget_table(Oid relid, int taken_by);
extern void ttl_docs_restart_purge_of(PurgeTable *table);
extern void ttl_docs_visit_collections_now(List *roots);
extern void ttl_docs_settings_change(Oid root);
extern uint64 ttl_docs_tables_gone(void);
extern void ttl_docs_visit_everything_now(void);
extern List *ttl_docs_purge_tables(Oid database);
extern void ttl_docs_forget_database(Oid database);
extern List *ttl_docs_purge_databases(void);
extern void ttl_docs_wake_launcher(TimestampTz when);

/* notify.c */
extern void ttl_docs_count_purged(PurgeTable *table, int rows);
extern void ttl_docs_count_purged_at_commit(PurgeTable *table, int rows);
extern void ttl_docs_count_truncation(PurgeTable *table, int64 documents);
extern void ttl_docs_announce_all(void);
extern void ttl_docs_announce_database_change(void);
extern void ttl_docs_wake_for_databases(void);

/* prepared.c */
extern void ttl_docs_mark_prepared(void);
extern bool ttl_docs_finishes_marked(Node *parsetree);

/* earliest.c */
extern void ttl_docs_announce_expiry(Oid relid, Oid root, TimestampTz expiry);
extern TimestampTz ttl_docs_table_expiry(PurgeTable *table);
extern void ttl_docs_forget_earliest(PurgeTable *table);
extern void ttl_docs_begin_scan(EarliestScan *scan, EarliestScanner scanner,
								PurgeTable *table);
extern void ttl_docs_drop_claims(void);

/* quarantine.c */
extern Size ttl_docs_quarantine_shmem_size(void);
extern void ttl_docs_quarantine_shmem_init(void);
extern bool ttl_docs_is_quarantined(const PurgeTable *table,
									const ItemPointerData *tid);
extern bool ttl_docs_quarantine(PurgeTable *table, const ItemPointerData *tid,
								TimestampTz clock);
extern void ttl_docs_unquarantine(PurgeTable *table, const ItemPointerData *tid);
extern void ttl_docs_unquarantine_all(PurgeTable *table);
extern TimestampTz ttl_docs_next_retry(const PurgeTable *table);
extern int	ttl_docs_rows_to_retry(const PurgeTable *table, TimestampTz clock, int max,
								   ItemPointerData *tids);

/* state_names.c */
#define STATE_UNREACHABLE	"unreachable node"
extern const char *ttl_docs_purge_state_name(PurgeState state);
extern const char *ttl_docs_purge_state_hint(PurgeState state, Oid root);
extern PurgeState ttl_docs_state_of_hold(SettingsHold hold);
extern PurgeState ttl_docs_purge_state_named(const char *name);
extern int	ttl_docs_state_severity(const char *name);
extern bool ttl_docs_is_state_of_settings(const char *name);

/* clock_watch.c */
extern void ttl_docs_observe_clock(void);
extern int64 ttl_docs_clock_jump(void);
extern bool ttl_docs_clock_has_jumped(void);
extern bool ttl_docs_jump_is_accepted(const PurgeTable *table);

/* leave.c */
extern void ttl_docs_have_workers_leave(Oid database);

#endif							/* TTL_DOCS_PURGE_SHARED_INTERNAL_H */
