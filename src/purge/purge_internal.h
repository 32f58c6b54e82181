/*-------------------------------------------------------------------------
 *
 * purge_internal.h
 *		Types and functions that the files of the purge share.
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
 *				subtransaction).  A step is a search or a batch.
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
#ifndef TTL_DOCS_PURGE_INTERNAL_H
#define TTL_DOCS_PURGE_INTERNAL_H

#include "fmgr.h"
#include "port/atomics.h"
#include "storage/block.h"
#include "storage/latch.h"
#include "storage/lwlock.h"
#include "utils/hsearch.h"

#include "access/access.h"
#include "purge/purge.h"

#define PURGE_ERROR_LENGTH		256
#define PURGE_CONTEXT_LENGTH	1024
/* duration of a visit; commands that need the database alone wait for its end */
#define PURGE_VISIT_TIME		(2 * USECS_PER_SEC)
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

/* Where a pass of CALL purge() has stopped, so that another session can continue it */
typedef struct PassPosition
{
	Oid			relid;
	Oid			index_file;		/* the position is valid for this file of the index */
	PurgePosition next[RANGE_COUNT];
	BlockNumber next_block;
	ItemPointerData next_row;
} PassPosition;

/* An error of a document or a table, as stat_collections shows it */
typedef struct ShownError
{
	int			sqlstate;
	char		message[PURGE_ERROR_LENGTH];
	char		detail[PURGE_ERROR_LENGTH]; /* "" = none */
} ShownError;

/* An error with its context.  Only the log and CALL purge() show the context. */
typedef struct PurgeError
{
	ShownError	shown;
	char		context[PURGE_CONTEXT_LENGTH];	/* "" = none */
} PurgeError;

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

/* visit_tables.c */

/* The tables of a visit */
typedef struct VisitTables
{
	List	   *placed;			/* PurgeTable entries whose next_visit has come */
	List	   *unplaced;		/* OIDs of tables that have no entry, sorted */
	UnplacedRound *round;		/* the round over the unplaced tables */
	uint64		listing;		/* UnplacedRound.listing when they were listed */
} VisitTables;
extern void ttl_docs_find_visit_tables(PurgeDatabase *database, VisitTables *tables);
extern Oid	ttl_docs_next_unplaced(VisitTables *tables);
extern bool ttl_docs_has_unplaced(const VisitTables *tables);
extern void ttl_docs_unplaced_has_left(VisitTables *tables);
extern TimestampTz ttl_docs_next_unplaced_round(PurgeDatabase *database);

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

/* hold.c */
extern PurgeState ttl_docs_hold_by_settings(const Collection *collection,
											const PurgeTable *table);
extern PurgeState ttl_docs_hold_by_table(Relation rel, const Collection *collection,
										 char **detail, List **cascade_targets);

/* clock_watch.c */
extern void ttl_docs_observe_clock(void);
extern int64 ttl_docs_clock_jump(void);
extern bool ttl_docs_clock_has_jumped(void);
extern bool ttl_docs_jump_is_accepted(const PurgeTable *table);

/* target.c */

/* The table that a step works on */
typedef struct PurgeTarget
{
	/* given by the caller */
	Oid			relid;
	PurgeTable *table;			/* NULL if it has no entry in shared memory */
	bool		waits;			/* wait for locks on the table? */
	MemoryContext context;		/* for data that outlives a step */
	/* worked out from the catalogs, and kept until one changes */
	MemoryContext facts;		/* of the fields below; NULL until needed */
	bool		is_known;		/* have the next fields been worked out? */
	uint64		invalidations;	/* number received before they were worked out */
	char	   *name;			/* quoted, with its schema */
	Oid			index;			/* the purge index, or InvalidOid */
	Oid			index_file;		/* relfilenode of the index */
	PurgeState	table_hold;		/* ttl_docs_hold_by_table(), or PURGE_IDLE */
	char	   *detail;			/* the code that blocks the purge, or NULL */
	List	   *cascade_targets;	/* tables that foreign key actions write to */
	/* set while the target is open */
	Relation	rel;
	Relation	root;			/* the partitioned table, or NULL */
	Collection	collection;
	PurgeState	hold;			/* a hold, or PURGE_IDLE */
	bool		is_moving;		/* a shard that is not in use on this node */
	OwnerSwitch before;
} PurgeTarget;

/* How a step ended */
typedef enum StepEnd
{
	STEP_DONE,
	STEP_TABLE_BUSY,			/* another session has locked the table */
	STEP_TABLE_GONE,			/* it is no longer a table of a collection */
	STEP_HELD,					/* the table must not be purged now */
	STEP_STALE					/* the index was rebuilt: search again */
} StepEnd;

extern StepEnd ttl_docs_open_target(PurgeTarget *target);
extern void ttl_docs_close_target(PurgeTarget *target);

/* progress.c */
typedef struct Candidate Candidate;

extern int	ttl_docs_compare_positions(const PurgePosition *a, const PurgePosition *b);
extern void ttl_docs_reset_progress(PurgeProgress *progress,
									const PurgeTarget *target, TimestampTz clock);
extern bool ttl_docs_progress_is_valid(const PurgeProgress *progress,
									   const PurgeTarget *target, TimestampTz clock);
extern bool ttl_docs_same_expiry(const CollectionSettings *a,
								 const CollectionSettings *b);
extern bool ttl_docs_clock_went_back(TimestampTz before, TimestampTz clock);
extern void ttl_docs_rewind_progress(PurgeProgress *progress, TimestampTz due);
extern void ttl_docs_get_position(const PurgeProgress *progress, PassPosition *position);
extern void ttl_docs_go_to_position(PurgeProgress *progress,
									const PassPosition *position);
extern void ttl_docs_leave_busy(PurgeProgress *progress, const Candidate *candidate,
								TimestampTz clock);
extern void ttl_docs_leave_undeletable(PurgeProgress *progress,
									   const Candidate *candidate,
									   TimestampTz clock);
extern void ttl_docs_leave_live(PurgeProgress *progress, const Candidate *candidate,
								TimestampTz expires);
extern bool ttl_docs_has_left(const PurgeProgress *progress);
extern TimestampTz ttl_docs_busy_delay(int visits);
extern TimestampTz ttl_docs_revisit_at(const PurgeProgress *progress);
extern void ttl_docs_revisit_left(PurgeProgress *progress, TimestampTz clock);
extern bool ttl_docs_begin_lazy(PurgeProgress *progress, TimestampTz clock,
								bool continues);

/* find.c */

/* The result for a candidate in the last batch that contained it */
typedef enum CandidateFate
{
	CANDIDATE_GONE,				/* deleted by us or by others; or not tried yet */
	CANDIDATE_LIVE,
	CANDIDATE_BUSY,				/* locked by another session, or not committed */
	CANDIDATE_QUARANTINED,		/* its row is in the quarantine */
	CANDIDATE_UNDELETABLE		/* the same, but the quarantine has no room */
} CandidateFate;

struct Candidate
{
	int64		slot;			/* NO_SLOT if it was not found in a btree */
	ItemPointerData tid;
	ItemPointerData row;		/* the row, once a batch has fetched it; an entry of
								 * the index can lead to another version */
	uint8		fate;
	bool		is_blamed;		/* a batch failed because of it: do not try it again */
};

/* The result of a search, in the order of due times */
typedef struct Candidates
{
	Candidate  *items;
	int			count;
	int			done;			/* how many have been through a batch */
	bool		is_complete;	/* there are no more */
	bool		by_row;			/* tid is that of the row version, not that of the
								 * index entry */
	PurgePosition end[RANGE_COUNT]; /* where the next search begins */
	BlockNumber end_block;		/* the same for a BRIN index */
	bool		has_read_many;	/* it read so many entries that the worker must
								 * pause as after a batch */
	TimestampTz next_due;		/* due time of the first entry that has not
								 * expired */
	TimestampTz first_live;		/* when the first live row expires; lazy only */
	int64		backlog;		/* all expired entries; -1 = not counted */
	bool		has_counted_all;	/* the count of the backlog is exact */
	int32		default_ttl;	/* the due times of items depend on it */
} Candidates;

extern void ttl_docs_find_candidates(const PurgeTarget *target,
									 const PurgeProgress *progress,
									 TimestampTz clock, TimestampTz ahead, int max,
									 bool count, Candidates *found);

/* leaf_reader.c */
typedef struct LeafReader LeafReader;
extern BlockNumber ttl_docs_leaf_of_scan(struct IndexScanDescData *scan);
extern LeafReader *ttl_docs_begin_leaf(Relation index, const PurgePosition *from);
extern bool ttl_docs_next_in_leaf(LeafReader *reader, PurgePosition *entry);

/* batch.c */
typedef struct PurgeBatch
{
	/* given by the caller */
	PurgeTarget *target;
	bool		owns_transaction;	/* the purge has begun the transaction and
									 * commits it */
	bool		by_row;			/* as in Candidates */
	bool		skips_quarantined;	/* rows of the quarantine */
	Oid			index;			/* that the candidates come from; InvalidOid = the
								 * quarantine */
	Oid			index_file;		/* its relfilenode at that time */
	Candidate  *candidates;
	int			count;
	TimestampTz instant;		/* DT_NOEND = the clock */
	int64		time_limit;		/* microseconds */
	/* how far the batch had come, in case of an error */
	bool		has_started;	/* an error is no longer one of the table itself */
	bool		at_end;			/* only statement triggers and the commit remain */
	int			current;		/* the candidate that is being deleted; -1 = none */
	/* result */
	StepEnd		end;
	int			consumed;		/* number of candidates judged */
	int			deleted;
	int			refused;		/* number of deletes that a trigger prevented */
	TimestampTz live_until;		/* when the first live candidate expires */
} PurgeBatch;

extern void ttl_docs_run_batch(PurgeBatch *batch);

/* cancel.c */
extern void ttl_docs_begin_cancel_watch(void);
extern void ttl_docs_end_cancel_watch(void);
extern bool ttl_docs_was_cancelled(void);

/* trouble.c */
typedef enum PurgeErrorKind
{
	PURGE_ERROR_BUSY,			/* a conflict with another session */
	PURGE_ERROR_OF_DOCUMENT,
	PURGE_ERROR_OF_TABLE		/* every document would fail in the same way */
} PurgeErrorKind;
extern void ttl_docs_keep_error(PurgeError *error);
extern void ttl_docs_make_error(PurgeError *error, int sqlstate, const char *message,
								const char *detail);
extern PurgeErrorKind ttl_docs_error_kind(const PurgeError *error);
extern void ttl_docs_record_error(PurgeTable *table, const char *name,
								  const PurgeError *error, bool may_log);
extern TimestampTz ttl_docs_growing_delay(TimestampTz first, int times,
										  TimestampTz longest);

/* transaction.c */
typedef void (*PurgeWork) (void *arg);

/*
 * Runs a step in a transaction or subtransaction of its own, with an active
 * snapshot, and commits it.  On ERROR, rolls the step back, stores the error in
 * *error and returns false.
 */
typedef bool (*PurgeRunner) (PurgeWork work, void *arg, PurgeError *error);
extern bool ttl_docs_run_in_transaction(PurgeWork work, void *arg, PurgeError *error);
extern bool ttl_docs_run_in_subtransaction(PurgeWork work, void *arg, PurgeError *error);

/* pass.c */
typedef struct TablePass
{
	/* given by the caller */
	PurgeTarget target;
	MemoryContext context;		/* lives as long as the pass */
	PurgeRunner run;
	bool		foreground;		/* CALL purge(): waits for locks on the table, and
								 * makes all steps in one call */
	bool		in_block;		/* the purge is part of the caller's transaction */
	TimestampTz instant;		/* deletes documents that had expired at this time;
								 * DT_NOEND = the clock */
	TimestampTz announced_due;	/* next_visit of the table when it was taken: the
								 * earliest due time that writers have announced */
	int64		time_limit;		/* of a batch, in microseconds */
	int			row_limit;		/* of a batch */
	const PassPosition *continues_at;	/* another session has made the first part of
										 * the pass; NULL = the pass is new */
	/* how far the pass has come */
	PurgeProgress progress;
	uint64		epoch;			/* that of the table when the pass began */
	bool		continues;		/* the last visit did not finish the table */
	int			find_limit;		/* number of candidates for the next search */
	int			batch_limit;	/* row limit that becomes smaller after an error */
	bool		has_candidates;
	bool		has_retried;	/* the rows of the quarantine that were due */
	bool		is_retry;		/* the candidates are such rows */
	Candidates	candidates;
	int64		deleted_before; /* total_deleted when the candidates were found */
	bool		found_busy;		/* a document */
	bool		table_is_busy;	/* another session has locked the table */
	bool		had_turn;		/* the pass made a batch, or ended */
	/* the earliest expiry of the table (earliest.c) */
	EarliestScan scan;
	bool		is_last_search; /* a search for the scan only, without deletes */
	/* truncation */
	bool		is_large;		/* the table is large enough */
	bool		has_considered; /* whether to truncate the table */
	TimestampTz ahead;			/* how far a lazy collection is searched for the
								 * earliest expiry */
	TimestampTz first_live;		/* when the first live row expires that these
								 * searches have found */
	/* the last step */
	StepEnd		search_end;
	int			deleted;
	bool		was_batch;
	bool		was_work;		/* it was a batch, or it read many entries */
	/* totals */
	int64		total_deleted;
	int64		total_undeletable;
	PurgeError	error;			/* the last error */
	bool		has_error;
	/* the end */
	bool		has_ended;
	bool		is_gone;		/* the table is gone */
	PurgeState	state;
	TimestampTz recount_at;		/* when to count the backlog of a held table */
	TimestampTz next_visit;
} TablePass;

extern void ttl_docs_begin_pass(TablePass *pass);
extern bool ttl_docs_step_pass(TablePass *pass);
extern bool ttl_docs_batch_is_next(const TablePass *pass);

/* whole_table.c */
extern bool ttl_docs_all_are_expired(const PurgeTarget *target, TimestampTz instant);
extern TimestampTz ttl_docs_last_expiry(const PurgeTarget *target);

/* truncatable.c */
extern bool ttl_docs_is_large(Relation rel);
extern bool ttl_docs_may_truncate(const PurgeTarget *target);

/* truncate.c */

/* The result of the transaction that truncates a table */
typedef enum TruncateResult
{
	TRUNCATE_DONE,
	TRUNCATE_BUSY,				/* another session uses the table */
	TRUNCATE_VOID				/* what was known about the table is out of date */
} TruncateResult;

typedef struct TruncateWork
{
	PurgeTarget *target;
	const PurgeTruncation *note;
	TruncateResult result;
} TruncateWork;
extern void ttl_docs_truncate_table(void *arg);

/* truncation.c */
extern bool ttl_docs_considers_truncation(const TablePass *pass);
extern bool ttl_docs_step_truncation(TablePass *pass);
extern bool ttl_docs_note_is_valid(const PurgeTruncation *note,
								   const PurgeTarget *target, TimestampTz clock);

/* pass_end.c */
extern void ttl_docs_pass_awaits_truncation(TablePass *pass, TimestampTz next_visit);
extern void ttl_docs_pass_is_gone(TablePass *pass);
extern void ttl_docs_pass_is_held(TablePass *pass);
extern void ttl_docs_pass_failed(TablePass *pass);
extern void ttl_docs_pass_is_through(TablePass *pass);
extern void ttl_docs_record_pass_error(TablePass *pass);
extern void ttl_docs_save_positions(TablePass *pass);
extern void ttl_docs_end_pass(TablePass *pass, bool capped);

/* stats.c */

/* The statistics of a collection or shard, as the views show them */
typedef struct ShownStats
{
	const char *state;
	const char *hint;			/* NULL = none */
	bool		is_uncounted;	/* some documents are not counted */
	int64		backlog;
	int64		sized_backlog;	/* backlog of the tables whose size is known */
	double		bytes;			/* size of sized_backlog */
	int64		overdue;		/* microseconds since the oldest document expired; -1 =
								 * unknown */
	int64		purged;
	int64		batches;
	int64		truncations;
	int64		truncated;		/* estimated documents of these truncations */
	TimestampTz last_purge;		/* DT_NOBEGIN = never */
	int64		undeletable;
	const char *error;			/* NULL = none, or the user may not see it */
	TimestampTz error_at;
} ShownStats;

/* number of columns that ttl_docs_set_numbers() sets */
#define STATS_NUMBERS	11
/* the column last_error among them */
#define STATS_LAST_ERROR	9

extern void ttl_docs_get_stats(Oid root, Oid named, ShownStats *stats);
extern void ttl_docs_set_numbers(const ShownStats *stats, Datum *values, bool *nulls);

/* node_stats.c */
extern void ttl_docs_sum_nodes(FmgrInfo *flinfo, Oid shell, ShownStats *sum);

/* call.c */

/* A CALL purge() */
typedef struct PurgeCall
{
	bool		commits;		/* commits each batch */
	TimestampTz instant;		/* when it began */
	MemoryContext context;		/* survives commits */
	bool		has_reported;	/* has sent a message about a collection */
	int64		next_progress;	/* elapsed time of the next progress message */
	int64		deadline;		/* elapsed time at which to stop; PG_INT64_MAX = when
								 * all is done */
} PurgeCall;

/* The result for all tables of a collection */
typedef struct PurgeResult
{
	int64		deleted;
	int64		undeletable;
	bool		found_busy;		/* other sessions use expired documents */
	bool		found_others;	/* there are partitions of other owners */
	bool		has_error;
	PurgeError	error;			/* the last error */
	char	   *error_node;		/* the node of Citus that raised it, or NULL */
	PurgeState	state;			/* a hold, PURGE_NO_INDEX or PURGE_IDLE */
	char	   *detail;			/* the code that blocks the purge, or NULL */
	bool		has_stopped;	/* at the deadline */
	PassPosition stopped_at;
} PurgeResult;

extern void ttl_docs_begin_purge_call(FunctionCallInfo fcinfo, PurgeCall *call);
extern void ttl_docs_end_purge_call(PurgeCall *call);
extern void ttl_docs_purge_tables_now(PurgeCall *call, Oid root, List *tables,
									  const PassPosition *continues_at,
									  PurgeResult *result);
extern bool ttl_docs_is_time_for_progress(PurgeCall *call);
extern void ttl_docs_report_purge(PurgeCall *call, Oid root, const char *name,
								  const PurgeResult *result);

/* call_nodes.c */
extern void ttl_docs_purge_on_all_nodes(PurgeCall *call, Oid shell);

/* pace.c */

/* The limits of a step */
typedef struct StepPace
{
	int			row_limit;		/* of a batch */
	int64		time_limit;		/* of a batch, in microseconds */
	int			rate;			/* purge_max_rate, when the step began */
	int			reserved;		/* number of rows whose time is reserved */
} StepPace;

extern void ttl_docs_observe_load(void);
extern int64 ttl_docs_pace_time(void);
extern void ttl_docs_pace_rest(int64 *rested);
extern int64 ttl_docs_begin_step(StepPace *pace, bool is_batch);
extern void ttl_docs_skip_step(const StepPace *pace);
extern int64 ttl_docs_end_step(const StepPace *pace, const TablePass *pass,
							   int64 duration);
extern void ttl_docs_observe_oldest(PurgeTable *table, TimestampTz clock);
extern int64 ttl_docs_rate_wait(void);

/* visit.c */
extern void ttl_docs_visit(PurgeWorker *worker);
extern void ttl_docs_abandon_visit(PurgeWorker *worker, bool got_sigterm);

/* leave.c */
extern void ttl_docs_have_workers_leave(Oid database);

/* worker.c */
#define PURGE_WORKER_FUNCTION	"ttl_docs_worker_main"
extern PGDLLEXPORT void ttl_docs_worker_main(Datum arg);

/* launcher.c */
#define PURGE_LAUNCHER_FUNCTION "ttl_docs_launcher_main"
extern PGDLLEXPORT void ttl_docs_launcher_main(Datum arg);

#endif							/* TTL_DOCS_PURGE_INTERNAL_H */
