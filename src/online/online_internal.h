/*-------------------------------------------------------------------------
 *
 * online_internal.h
 *		Functions and types that the files of online share.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_DOCS_ONLINE_INTERNAL_H
#define TTL_DOCS_ONLINE_INTERNAL_H

#include "nodes/execnodes.h"
#include "pgtime.h"

#include "online/online.h"

/* after so many microseconds of waiting, a notice names those we wait for */
#define NOTICE_AFTER		(2 * USECS_PER_SEC)

/* procedure.c */
extern void ttl_docs_require_client_call(FunctionCallInfo fcinfo, const char *instead);
extern void ttl_docs_commit_step(void);
extern void ttl_docs_run_committing(const char *sql);

/* brief_lock.c */

/* The locks of an attempt; all of them have one deadline */
typedef struct BriefLock
{
	int64		deadline;		/* in microseconds of ttl_docs_elapsed(); 0 until
								 * the first lock */
} BriefLock;

/* Takes locks, and then does something quick. */
typedef void (*BriefWork) (void *arg, BriefLock *lock);
extern void ttl_docs_do_briefly(BriefWork work, void *arg, Oid relid);
extern void ttl_docs_limit_lock_wait(BriefLock *lock);
extern void ttl_docs_lock_tree_briefly(Oid relid, LOCKMODE lockmode,
									   BriefLock *lock);

/* others.c */
extern void ttl_docs_pause(int milliseconds);
extern void ttl_docs_notice_lock_holders(Oid relid);
extern void ttl_docs_notice_old_transactions(Oid relid);

/* progress.c */
typedef enum ChangeCommand
{
	CHANGE_ADOPT,
	CHANGE_INDEXING
} ChangeCommand;

typedef enum ChangePhase
{
	PHASE_LOCK,					/* begins, or waits for locks */
	PHASE_FILL,					/* writes rows */
	PHASE_BUSY,					/* waits for rows that others have locked */
	PHASE_VACUUM,
	PHASE_INDEX,				/* builds indexes */
	PHASE_SWITCH,				/* makes the change take effect */
	PHASE_DROP					/* drops the index that is not needed any more */
} ChangePhase;
extern void ttl_docs_begin_progress(ChangeCommand command, Oid relid);
extern void ttl_docs_end_progress(void);
extern void ttl_docs_set_phase(ChangePhase phase);
extern void ttl_docs_set_blocks(int64 total);
extern void ttl_docs_add_progress(int64 blocks, int64 written);
extern void ttl_docs_set_busy(int64 rows);
extern void ttl_docs_notice_progress(Oid relid);

/* fill.c */

/* What a fill has found in all tables so far */
typedef struct FillResult
{
	TransactionId first_xid;	/* rows of later transactions were written since */
	int64		written;		/* rows */
	int64		with_ttl;		/* documents with their own ttl */
	int32		example_ttl;	/* the ttl of one of them */
	char	   *example;		/* an excerpt of that document */
} FillResult;
extern bool ttl_docs_fill_table(Oid relid, Oid root, FillResult *result);

/* fill_row.c */

/* What became of a row */
typedef enum FillOutcome
{
	ROW_IS_RIGHT,				/* needs no other values */
	ROW_WRITTEN,
	ROW_GONE,					/* another session has changed or deleted it */
	ROW_BUSY
} FillOutcome;

/* Fills the rows of a batch, one after the other */
typedef struct RowFiller
{
	/* given by the caller */
	Relation	rel;
	Collection	collection;
	FillResult *result;
	MemoryContext context;		/* of result->example */
	bool		is_retry;		/* the batch reads blocks that were read before */
	BlockNumber resumed_at;		/* an earlier batch has read a part of this block */
	/* for the caller to read rows */
	Snapshot	snapshot;
	TupleTableSlot *row;		/* the current row */
	/* private */
	AttrNumber	last_modified;	/* InvalidAttrNumber if there is none */
	bool		is_timestamptz; /* the type of last_modified */
	pg_tz	   *time_zone;		/* for a last_modified without time zone */
	bool		computes_generated; /* does a generated column depend on ours? */
	bool		changes_key;	/* has a unique index a system column? */
	EState	   *estate;
	ResultRelInfo *relinfo;
	TupleTableSlot *new_row;
} RowFiller;
extern void ttl_docs_begin_filling(RowFiller *filler);
extern FillOutcome ttl_docs_fill_row(RowFiller *filler);
extern void ttl_docs_end_filling(RowFiller *filler);

/* build_index.c */
extern void ttl_docs_build_purge_index(Oid root, IndexingMode indexing);
extern bool ttl_docs_has_built_purge_index(Oid root, IndexingMode indexing);

#endif							/* TTL_DOCS_ONLINE_INTERNAL_H */
