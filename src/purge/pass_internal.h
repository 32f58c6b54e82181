/*-------------------------------------------------------------------------
 *
 * pass_internal.h
 *		A pass over a table: opening the table, the search, batches, the truncation,
 *		errors, and how long to pause.
 *
 * TablePass is the state of a pass, and PurgeTarget the table that it works on.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_DOCS_PURGE_PASS_INTERNAL_H
#define TTL_DOCS_PURGE_PASS_INTERNAL_H

#include "purge/shared_internal.h"

#define PURGE_CONTEXT_LENGTH	1024

/* An error with its context.  Only the log and CALL purge() show the context. */
typedef struct PurgeError
{
	ShownError	shown;
	char		context[PURGE_CONTEXT_LENGTH];	/* "" = none */
} PurgeError;

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

/* hold.c */
extern PurgeState ttl_docs_hold_by_settings(const Collection *collection,
											const PurgeTable *table);
extern PurgeState ttl_docs_hold_by_table(Relation rel, const Collection *collection,
										 char **detail, List **cascade_targets);

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

/* Where a pass of CALL purge() has stopped, so that another session can continue it */
typedef struct PassPosition
{
	Oid			relid;
	Oid			index_file;		/* the position is valid for this file of the index */
	PurgePosition next[RANGE_COUNT];
	BlockNumber next_block;
	ItemPointerData next_row;
} PassPosition;

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

#endif							/* TTL_DOCS_PURGE_PASS_INTERNAL_H */
