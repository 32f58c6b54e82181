/*-------------------------------------------------------------------------
 *
 * purge_internal.h
 *		What the files of the purge know of one another.
 *
 * Vocabulary, in addition to ttl_docs.h:
 *
 * launcher		the one process that decides when to send a worker where.
 * worker		a process that visits one database, for about two seconds.
 * visit		what a worker does from its start to its end.
 * table		a plain table of a collection: the collection itself, or one of
 *				its leaf partitions.  The purge works on tables.
 * pass			the way from the first expired document of a table to the last,
 *				in one visit or several.
 * step			a part of a pass that runs in a transaction of its own: a search
 *				or a batch.
 * search		reads the purge index for candidates.
 * candidate	an entry of the purge index whose document has probably expired.
 * batch		judges candidates again and deletes those that are expired.
 * left			a candidate that a pass could not delete and comes back for: it
 *				is busy or undeletable, or not expired yet.
 * hold			a reason not to purge a collection at all.
 * trouble		an error that keeps a document, or a table, from being purged.
 *
 * All times are by the clock of core/clock.c, as the server sees it.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_DOCS_PURGE_INTERNAL_H
#define TTL_DOCS_PURGE_INTERNAL_H

#include "port/atomics.h"
#include "storage/block.h"
#include "storage/latch.h"
#include "storage/lwlock.h"
#include "utils/hsearch.h"

#include "access/access.h"
#include "purge/purge.h"

#define PURGE_ERROR_LENGTH		256
#define PURGE_CONTEXT_LENGTH	1024
/* a visit is over after that, so that nobody waits for a worker for long */
#define PURGE_VISIT_TIME		(2 * USECS_PER_SEC)
/* what nobody will tell us of is looked at so often */
#define PURGE_ROUND_TIME		(300 * USECS_PER_SEC)

/* Of several tables of a collection, the last of these is shown */
typedef enum PurgeState
{
	PURGE_IDLE,					/* nothing is expired */
	PURGE_WORKING,				/* something is, and is being purged */
	PURGE_CAPPED,				/* and waits because of purge_max_rate */
	PURGE_WAITING,				/* and is locked by others */
	PURGE_TROUBLE,				/* the table cannot be purged, see the error */
	PURGE_NO_INDEX,				/* it cannot be found */
	/* holds */
	PURGE_BLOCKED,				/* a trigger would run with a superuser's rights */
	PURGE_REPACKED,				/* the trigger is that of pg_repack */
	PURGE_SUBSCRIBED,			/* the publisher does it */
	PURGE_CLOCK_JUMP,
	PURGE_GRACE,				/* a change of settings made documents expire */
	PURGE_RESTORED,
	PURGE_PAUSED
} PurgeState;

#define PURGE_IS_HOLD(state)	((state) >= PURGE_BLOCKED)

/* A place in the purge index: before the entry of that slot and row */
typedef struct PurgePosition
{
	int64		slot;
	ItemPointerData tid;
} PurgePosition;

/*
 * The documents that passes over a table have left, see progress.c.  Positions are
 * kept for each range of a btree.
 */
typedef struct LeftDocuments
{
	int64		busy;			/* locked by another session, or not committed */
	int64		undeletable;
	TimestampTz left_at;		/* when the first of these was left; during a
								 * revisit, when the last one was left */
	TimestampTz expire_at;		/* when the first expires that was left because
								 * it is live; DT_NOEND = none */
	bool		has_position[RANGE_COUNT];
	PurgePosition first[RANGE_COUNT];
	PurgePosition last[RANGE_COUNT];
	/* the last revisit */
	bool		has_revisit_end[RANGE_COUNT];
	PurgePosition revisit_end[RANGE_COUNT]; /* it ends after this entry */
	int			revisits;		/* how many in a row had to leave documents */
} LeftDocuments;

/*
 * How far the purge of a table has come.  Valid as long as all that it was recorded
 * under stays the same.
 */
typedef struct PurgeProgress
{
	bool		is_set;
	/* recorded under */
	Oid			root;
	CollectionSettings settings;
	Oid			index;
	Oid			index_file;
	TimestampTz clock;
	/* recorded */
	PurgePosition next[RANGE_COUNT];	/* where the next search begins */
	BlockNumber next_block;		/* the same for a BRIN index */
	LeftDocuments left;
} PurgeProgress;

/* The trouble of a document or a table, as stat_collections shows it */
typedef struct ShownError
{
	int			sqlstate;
	char		message[PURGE_ERROR_LENGTH];
	char		detail[PURGE_ERROR_LENGTH]; /* "" = none */
} ShownError;

/* The same, and what only the log has */
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

/* The last scan of such a one */
typedef struct EarliestScanState
{
	uint64		number;			/* 0 = none counts */
	pg_atomic_uint64 announced; /* by writers, since it began */
} EarliestScanState;

/*
 * A table in shared memory.  due is lowered by whoever knows of something
 * earlier.  earliest.c has rules of its own for the earliest expiry.
 * Everything else is written under the lock.  Progress is written by
 * the worker that has claimed the table, at the end of its pass, unless somebody
 * has counted the epoch up meanwhile: then it begins anew.
 *
 * An entry may go when its table is gone, and be used for another one.  A
 * session that still points to it can lower due and earliest expiry of that one,
 * have its pass begin anew, or count rows to it: nothing that loses a document.
 */
struct PurgeTable
{
	PurgeTableKey key;			/* must be first */
	pg_atomic_uint64 next_visit;	/* a time */
	Oid			root;
	int			claimed_by;		/* pid of a worker, or 0 */
	TimestampTz visited;
	PurgeProgress progress;
	uint64		epoch;			/* counts what makes progress invalid */
	int64		accepted_jump;	/* of the clock, by resume_purge() */
	/* when its first document expires, see earliest.c */
	pg_atomic_uint64 earliest;	/* DT_NOBEGIN = unknown */
	EarliestScanState scans[SCANNER_COUNT];
	pg_atomic_uint64 session_scanned;	/* when a session did, in elapsed time */
	/* trouble */
	int			failures;		/* of the table itself, in a row */
	int64		undeletable;	/* documents, by the last pass that ended */
	bool		has_error;
	ShownError	error;
	TimestampTz error_at;
	TimestampTz logged_at;
	uint32		logged_hash;	/* of the message in the log */
	int			batch_limit;	/* rows in a batch after an error; 0 = no limit */
	bool		is_swept;		/* the last pass has left nothing */
	/* pace */
	TimestampTz older_since;	/* the oldest document gets older since then */
	int64		last_age;		/* of the oldest, microseconds */
	/* statistics */
	PurgeState	state;
	int64		backlog;
	TimestampTz oldest;			/* due time of the oldest in the backlog */
	TimestampTz counted;		/* when the backlog was counted */
	int64		purged;
	int64		batches;
	TimestampTz last_purge;
};

/*
 * A round over the tables of a database that have no entry, see visit_tables.c.
 * Times are of the time that has passed.
 */
typedef struct UnplacedRound
{
	int64		due;			/* the next one; PG_INT64_MAX = no such tables */
	int64		rests_until;	/* it does not begin before that */
	int64		began;
	Oid			last;			/* the table it has come to; InvalidOid = no round
								 * is under way */
	bool		has_left;		/* documents that it had no time for */
	bool		has_changed;	/* collections did, since it began */
	uint64		listing;		/* counts how often the tables were listed */
} UnplacedRound;

/*
 * A database in shared memory.  Flags are single bytes that anybody may raise;
 * visits are counted under the lock.  Its own times are of the time that has
 * passed (ttl_docs_elapsed), so that a clock that goes back holds nothing up.
 */
typedef struct PurgeDatabase
{
	Oid			database;		/* must be first */
	pg_atomic_uint64 next_visit;	/* a time */
	pg_atomic_uint32 must_list; /* collections came or changed */
	bool		was_visited;
	int64		visited;
	int64		keep_out_until; /* somebody wants it without a worker */
	bool		can_connect;
	bool		lacks_extension;	/* as far as is known */
	pg_atomic_uint64 off_epoch; /* settings_epoch of the worker that found the
								 * purge to be off in it; 0 = it is on */
	bool		has_more;		/* the last visit ended for lack of time, */
	int			tables_left;	/* with work left in so many tables */
	int			failures;		/* visits that ended in an error, in a row */
	UnplacedRound round;
} PurgeDatabase;

/* A worker, from when it is asked for */
typedef struct PurgeWorkerSlot
{
	Oid			database;		/* InvalidOid = free */
	uint64		generation;
	int			pid;			/* 0 = not started yet */
	int64		asked;			/* when, on the time that has passed */
	uint64		settings_epoch; /* of that moment */
	bool		must_leave;
	bool		must_reload;	/* the configuration was, since it was asked for */
	bool		was_ended;		/* by the launcher, because it took too long */
} PurgeWorkerSlot;

typedef struct PurgeShared
{
	LWLock	   *lock;
	Latch	   *launcher_latch; /* NULL while there is none */
	int			launcher_pid;
	pg_atomic_uint64 wakes_at;	/* until when the launcher sleeps */
	pg_atomic_uint64 clock_base;	/* clock minus elapsed time, as it should be */
	int			clock_offset;	/* ttl_docs.clock_offset of the server */
	pg_atomic_uint32 must_read_databases;	/* for the launcher */
	pg_atomic_uint64 tables_gone;	/* counts entries of tables that have gone */
	pg_atomic_uint64 settings_epoch;	/* counts what may have turned the
										 * purge on somewhere; never 0 */
	bool		lacks_worker_slot;	/* for a second or more */
	int64		rate_free_at;	/* when, on the time that has passed,
								 * purge_max_rate allows the next batch */
	uint64		worker_generation;
	PurgeWorkerSlot workers[PURGE_MAX_WORKERS];
} PurgeShared;

/* shmem.c */
extern PurgeShared *ttl_docs_purge_shared;
extern HTAB *ttl_docs_shared_hash(const char *name, Size keysize, Size entrysize,
								  long max);
extern PurgeDatabase *ttl_docs_purge_database(Oid database, bool create);
extern PurgeTable *ttl_docs_purge_table(Oid relid, Oid root);
extern void ttl_docs_forget_table(PurgeTable *table);
extern void ttl_docs_begin_anew(PurgeTable *table);
extern PurgeTable *ttl_docs_find_table(Oid relid);
extern void ttl_docs_look_at_collections(List *roots);
extern void ttl_docs_settings_change(Oid root);
extern uint64 ttl_docs_tables_gone(void);
extern void ttl_docs_look_at_everything(void);
extern List *ttl_docs_purge_tables(Oid database);
extern void ttl_docs_forget_database(Oid database);
extern List *ttl_docs_purge_databases(void);
extern void ttl_docs_wake_launcher(TimestampTz when);

/* notify.c */
extern void ttl_docs_count_purged(PurgeTable *table, int rows);
extern void ttl_docs_count_purged_at_commit(PurgeTable *table, int rows);
extern void ttl_docs_tell_of_all(void);
extern void ttl_docs_note_database_change(void);
extern void ttl_docs_wake_for_databases(void);

/* prepared.c */
extern void ttl_docs_mark_prepared(void);
extern bool ttl_docs_finishes_marked(Node *parsetree);

/* visit_tables.c */
typedef struct VisitTables
{
	List	   *placed;			/* PurgeTable, those that are due */
	List	   *unplaced;		/* OIDs of those that have no entry, sorted */
	UnplacedRound *round;		/* over the latter */
	uint64		listing;
} VisitTables;
extern void ttl_docs_find_visit_tables(PurgeDatabase *database, VisitTables *tables);
extern Oid	ttl_docs_next_unplaced(VisitTables *tables);
extern bool ttl_docs_has_unplaced(const VisitTables *tables);
extern void ttl_docs_unplaced_has_left(VisitTables *tables);
extern TimestampTz ttl_docs_unplaced_due(PurgeDatabase *database);

/* earliest.c */
extern void ttl_docs_announce_expiry(Oid relid, Oid root, TimestampTz expiry);
extern TimestampTz ttl_docs_table_expiry(PurgeTable *table);
extern void ttl_docs_forget_earliest(PurgeTable *table);
extern void ttl_docs_begin_scan(EarliestScan *scan, EarliestScanner scanner,
								PurgeTable *table);
extern void ttl_docs_drop_claims(void);

/* state.c */
extern const char *ttl_docs_purge_state_name(PurgeState state);
extern const char *ttl_docs_purge_state_hint(PurgeState state, Oid root);
extern PurgeState ttl_docs_state_of_hold(SettingsHold hold);

/* hold.c */
extern PurgeState ttl_docs_hold_by_settings(const Collection *collection,
											const PurgeTable *table);
extern PurgeState ttl_docs_hold_by_table(Relation rel, const Collection *collection,
										 char **detail, List **reached);

/* clock_watch.c */
extern void ttl_docs_observe_clock(void);
extern int64 ttl_docs_clock_jump(void);
extern bool ttl_docs_clock_has_jumped(void);
extern bool ttl_docs_jump_is_accepted(const PurgeTable *table);

/* target.c */

/* What a step needs to know of the table that it works on */
typedef struct PurgeTarget
{
	/* given */
	Oid			relid;
	PurgeTable *table;			/* NULL if it has no entry in shared memory */
	bool		waits;			/* for locks on the table */
	MemoryContext context;		/* of all that outlives a step */
	/* kept from step to step, until a catalog changes */
	bool		is_known;
	uint64		invalidations;	/* counted when the rest was worked out */
	char	   *name;			/* quoted, with its schema */
	Oid			index;			/* the purge index, or InvalidOid */
	Oid			index_file;
	PurgeState	table_hold;		/* by hold.c, or PURGE_IDLE */
	char	   *detail;			/* of table_hold, or NULL */
	List	   *reached;		/* tables that foreign key actions write to */
	/* while it is open */
	Relation	rel;
	Relation	root;			/* the partitioned table, or NULL */
	Collection	collection;
	PurgeState	hold;			/* a hold, or PURGE_IDLE */
	OwnerSwitch before;
} PurgeTarget;

typedef enum TargetStatus
{
	TARGET_OPEN,
	TARGET_BUSY,				/* another session has locked the table */
	TARGET_GONE					/* it is no longer a table of a collection */
} TargetStatus;

extern TargetStatus ttl_docs_open_target(PurgeTarget *target);
extern void ttl_docs_close_target(PurgeTarget *target);

/* progress.c */
typedef struct Candidate Candidate;

extern int	ttl_docs_compare_positions(const PurgePosition *a, const PurgePosition *b);
extern void ttl_docs_reset_progress(PurgeProgress *progress,
									const PurgeTarget *target, TimestampTz clock);
extern bool ttl_docs_progress_is_valid(const PurgeProgress *progress,
									   const PurgeTarget *target, TimestampTz clock);
extern void ttl_docs_rewind_progress(PurgeProgress *progress, TimestampTz due);
extern void ttl_docs_leave_busy(PurgeProgress *progress, const Candidate *candidate,
								TimestampTz clock);
extern void ttl_docs_leave_undeletable(PurgeProgress *progress,
									   const Candidate *candidate,
									   TimestampTz clock);
extern void ttl_docs_leave_live(PurgeProgress *progress, const Candidate *candidate,
								TimestampTz expires);
extern bool ttl_docs_has_left(const PurgeProgress *progress);
extern TimestampTz ttl_docs_busy_delay(const PurgeProgress *progress);
extern TimestampTz ttl_docs_revisit_at(const PurgeProgress *progress);
extern void ttl_docs_revisit_left(PurgeProgress *progress, TimestampTz clock);
extern bool ttl_docs_begin_lazy(PurgeProgress *progress, TimestampTz clock,
								bool continues);

/* find.c */

/* What became of a candidate in the last batch that had it */
typedef enum CandidateFate
{
	CANDIDATE_GONE,				/* deleted by us or by others; or not tried yet */
	CANDIDATE_LIVE,
	CANDIDATE_BUSY,				/* locked by another session, or not committed */
	CANDIDATE_UNDELETABLE
} CandidateFate;

struct Candidate
{
	int64		slot;			/* NO_SLOT if it was found by a BRIN index */
	ItemPointerData tid;
	uint8		fate;
	bool		is_blamed;		/* a batch failed because of it: do not try again */
};

/* The result of a search, in the order of due times */
typedef struct Candidates
{
	Candidate  *items;
	int			count;
	int			done;			/* how many have been through a batch */
	bool		is_complete;	/* there are no more */
	bool		by_row;			/* tid is of the row, not of its index entry */
	PurgePosition end[RANGE_COUNT]; /* where the next search begins */
	BlockNumber end_block;		/* the same for a BRIN index */
	bool		has_read_many;	/* entries, so a pause is due as after a batch */
	TimestampTz next_due;		/* when the first other entry is due */
	TimestampTz first_live;		/* when the first live row expires; lazy only */
	int64		backlog;		/* all expired entries; -1 = not counted */
	bool		has_counted_all;	/* the count of the backlog is exact */
	int32		default_ttl;	/* the due times of items depend on it */
} Candidates;

extern void ttl_docs_find_candidates(const PurgeTarget *target,
									 const PurgeProgress *progress,
									 TimestampTz clock, TimestampTz ahead, int max,
									 bool count, Candidates *found);

/* batch.c */
typedef enum BatchEnd
{
	BATCH_DONE,
	BATCH_TABLE_BUSY,			/* another session has locked the table */
	BATCH_TABLE_GONE,			/* it is no longer a table of a collection */
	BATCH_HELD,					/* target->hold says why */
	BATCH_STALE					/* the index was rebuilt: search again */
} BatchEnd;

typedef struct PurgeBatch
{
	/* given */
	PurgeTarget *target;
	bool		owns_transaction;	/* begun for the purge, and committed by it */
	bool		by_row;			/* as in Candidates */
	Oid			index;			/* in which the candidates were found */
	Oid			index_file;
	Candidate  *candidates;
	int			count;
	TimestampTz instant;		/* DT_NOEND = the clock */
	int64		time_limit;		/* microseconds */
	/* for an error: where the batch was */
	bool		has_started;	/* the table itself is all right */
	bool		at_end;			/* only statement triggers and the commit are left */
	int			current;		/* the candidate at work; -1 = none */
	/* result */
	BatchEnd	end;
	int			consumed;		/* candidates that have been dealt with */
	int			deleted;
	int			refused;		/* kept by a BEFORE trigger */
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
	PURGE_ERROR_BUSY,			/* somebody else was there first */
	PURGE_ERROR_OF_DOCUMENT,
	PURGE_ERROR_OF_TABLE		/* any other document would have met it, too */
} PurgeErrorKind;
extern void ttl_docs_keep_error(PurgeError *error);
extern void ttl_docs_make_error(PurgeError *error, int sqlstate, const char *message);
extern PurgeErrorKind ttl_docs_error_kind(const PurgeError *error);
extern void ttl_docs_record_error(PurgeTable *table, const char *name,
								  const PurgeError *error, bool may_log);
extern TimestampTz ttl_docs_growing_delay(TimestampTz first, int times,
										  TimestampTz longest);

/* transaction.c */
typedef void (*PurgeWork) (void *arg);

/*
 * Runs a piece of work in a transaction of its own, with an active snapshot, and
 * commits it.  Returns false on error, which is then undone and in *error.
 */
typedef bool (*PurgeRunner) (PurgeWork work, void *arg, PurgeError *error);
extern bool ttl_docs_run_in_transaction(PurgeWork work, void *arg, PurgeError *error);
extern bool ttl_docs_run_in_subtransaction(PurgeWork work, void *arg, PurgeError *error);

/* pass.c */
typedef struct TablePass
{
	/* given */
	PurgeTarget target;
	MemoryContext context;
	PurgeRunner run;
	bool		foreground;		/* CALL purge(): goes on to the end, and waits */
	bool		in_block;		/* the caller commits later, or not at all */
	TimestampTz instant;		/* deletes what had expired then; DT_NOEND = the
								 * clock */
	TimestampTz reported_due;	/* the due time that led to this pass */
	int64		time_limit;		/* of a batch */
	int			row_limit;		/* of a batch */
	/* how far it is */
	PurgeProgress progress;
	uint64		epoch;			/* of the table, when the pass began */
	bool		continues;		/* the last visit did not finish the table */
	int			find_limit;		/* candidates for the next search */
	int			batch_limit;	/* becomes smaller after an error */
	bool		has_candidates;
	Candidates	candidates;
	int64		deleted_before; /* total_deleted when these were found */
	bool		found_busy;		/* a document, or the table */
	bool		had_turn;		/* it made a batch, or ended */
	/* the earliest expiry of the table (earliest.c) */
	EarliestScan scan;
	bool		is_last_search; /* which only serves the scan */
	TimestampTz ahead;			/* how far a lazy collection is searched for it */
	TimestampTz first_live;		/* what these searches have found */
	/* the last step */
	BatchEnd	search_end;
	int			deleted;
	bool		was_batch;
	bool		was_work;		/* a batch, or a search that read many entries */
	/* totals */
	int64		total_deleted;
	int64		total_undeletable;
	PurgeError	error;			/* the last one */
	bool		has_error;
	/* the end */
	bool		has_ended;
	bool		is_gone;		/* the table */
	PurgeState	state;
	TimestampTz recount_at;		/* when to count the backlog of a held table */
	TimestampTz next_visit;
} TablePass;

extern void ttl_docs_begin_pass(TablePass *pass);
extern bool ttl_docs_step_pass(TablePass *pass);

/* pass_end.c */
extern void ttl_docs_pass_is_gone(TablePass *pass);
extern void ttl_docs_pass_is_held(TablePass *pass);
extern void ttl_docs_pass_failed(TablePass *pass);
extern void ttl_docs_pass_is_through(TablePass *pass);
extern void ttl_docs_record_pass_error(TablePass *pass);
extern void ttl_docs_save_positions(TablePass *pass);
extern void ttl_docs_end_pass(TablePass *pass, bool capped);

/* pace.c */
extern void ttl_docs_observe_load(void);
extern int	ttl_docs_pace_rows(void);
extern int64 ttl_docs_pace_time(void);
extern void ttl_docs_pace_rest(int64 *rested);
extern int64 ttl_docs_pace_pause(const PurgeTable *table, int64 batch_time);
extern void ttl_docs_note_oldest(PurgeTable *table, TimestampTz clock);
extern int64 ttl_docs_reserve_rate(int rows);
extern void ttl_docs_return_rate(int rows);
extern int64 ttl_docs_rate_wait(void);

/* visit.c */
extern void ttl_docs_visit(PurgeWorkerSlot *slot);
extern void ttl_docs_abandon_visit(PurgeWorkerSlot *slot, bool was_told_to_end);

/* worker.c */
#define PURGE_WORKER_FUNCTION	"ttl_docs_worker_main"
extern PGDLLEXPORT void ttl_docs_worker_main(Datum arg);

/* launcher.c */
#define PURGE_LAUNCHER_FUNCTION "ttl_docs_launcher_main"
extern PGDLLEXPORT void ttl_docs_launcher_main(Datum arg);

#endif							/* TTL_DOCS_PURGE_INTERNAL_H */
