/*-------------------------------------------------------------------------
 *
 * truncation.c
 *		Decides when to truncate a table all of whose documents have expired.
 *
 * A worker considers this once in each pass over a large table, when it has found the
 * first candidates and before it deletes them.  There are four stages:
 *
 * 1. All documents of the table expire within purge_truncate_wait.  The purge waits, and
 *    deletes nothing.  If documents that expire later arrive meanwhile, the table is in
 *    use, and its documents are deleted one by one.
 * 2. All documents expired at least SLACK ago (whole_table.c).  The worker makes a note: this
 *    time, and a transaction id that it takes afterwards.  The transaction ends at once.
 * 3. No snapshot is left that is as old as the note: VACUUM's horizon for the table is
 *    past the transaction id.  As long as there is one, the purge waits.  VACUUM could
 *    free nothing earlier, either.
 * 4. Nobody uses the table.  The worker truncates it (truncate.c), which checks again
 *    that all documents had expired at the time of the note.  If the table is in use
 *    for BUSY_TIME, its documents are deleted one by one.
 *
 * A note is void if the settings, the purge index or its file change, or if the clock
 * goes back.
 *
 * Why no snapshot loses a document.  A session that has used the table in its transaction
 * has a lock on it.  A session that has not used it yet can have a snapshot, and TRUNCATE
 * does not respect snapshots.  Stage 3 makes sure that each snapshot in this database was
 * taken after the transaction of the note had ended.  It is not enough to compare with the
 * next transaction id without taking it: on an idle server, a snapshot that was taken
 * before the expiry and one that is taken now have the same xmax.  Sessions of other databases cannot
 * see the table.  Imported snapshots, prepared transactions, replication slots and
 * standbys with hot_standby_feedback count for the horizon.  (For other standbys see
 * truncate.c.)
 *
 * So each snapshot is at least SLACK younger than the last expiry.  In READ COMMITTED, the
 * instant of a query is not older than its snapshot.  In REPEATABLE READ and
 * SERIALIZABLE, it can be older by the time between the arrival of a statement and its
 * snapshot, for which SLACK is enough: if a command waits for locks before the
 * transaction has a snapshot, the instant is not earlier than its end (access/instant.c).
 * DEFERRABLE transactions, and those that began on another node of Citus, can have an
 * older instant.  For them the purge has removed the documents before their snapshot, as
 * it could have done by deleting.
 *
 * A table is truncated, or its truncation is given up, at most once in INTERVAL.
 *
 * ERROR in a step rolls it back and is recorded for the view.  Then documents are deleted
 * one by one.  The state is in the entry of the table in shared memory; a crash forgets
 * it, and the next worker begins with the first stage.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/transam.h"
#include "access/xact.h"
#include "catalog/pg_class.h"
#include "executor/instrument.h"
#include "pgstat.h"
#include "storage/procarray.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "purge/pass_internal.h"

/* how long ago all documents must have expired */
#define SLACK		(10 * USECS_PER_SEC)
/* minimum interval between two truncations of a table */
#define INTERVAL	(600 * USECS_PER_SEC)
/* how long to try to lock the table */
#define BUSY_TIME	(60 * USECS_PER_SEC)
/* after this time, what was known about the table may be about other documents */
#define STALE_AFTER	(120 * USECS_PER_SEC)
/* interval of attempts to lock the table, and of other checks, which grows */
#define MIN_DELAY	USECS_PER_SEC
#define MAX_DELAY	(30 * USECS_PER_SEC)

typedef enum Decision
{
	DECIDE_LATER,				/* the table cannot be purged now */
	DELETE_ROWS,
	GIVE_UP,					/* delete rows, and do not try again soon */
	WAIT,
	NEXT_STAGE,
	TRUNCATED
} Decision;

typedef struct Consideration
{
	TablePass  *pass;
	PurgeTruncation state;
	bool		is_ready;		/* for stage 4 */
	int64		documents;		/* estimated; if it is ready */
	Decision	decision;
} Consideration;

static void consider(void *arg);
static Decision decide(Consideration *work);
static Decision decide_by_state(Consideration *work);
static Decision decide_by_note(Consideration *work);
static Decision decide_to_wait(Consideration *work);
static void make_note(PurgeTruncation *state, TimestampTz instant);
static void remember_conditions(PurgeTruncation *state, const PurgeTarget *target);
static bool is_past_horizon(Relation rel, FullTransactionId xid);
static int64 document_estimate(Relation rel);
static Decision truncate_now(Consideration *work);
static void apply(TablePass *pass, Consideration *work);
static void forget_note(PurgeTruncation *state);

/*
 * The pass has candidates, and considers a truncation.  Makes a step towards it, and may
 * end the pass.  True if the table was truncated.
 */
bool
ttl_docs_step_truncation(TablePass *pass)
{
	Consideration work = {0};

	work.pass = pass;
	LWLockAcquire(ttl_docs_purge_shared->lock, LW_SHARED);
	work.state = pass->target.table->truncation;
	LWLockRelease(ttl_docs_purge_shared->lock);
	if (!pass->run(consider, &work, &pass->error))
		work.decision = DECIDE_LATER;	/* the search reports its own error */
	else if (work.is_ready)
		work.decision = truncate_now(&work);
	apply(pass, &work);
	return work.decision == TRUNCATED;
}

/*
 * Will the pass, which has candidates, consider a truncation before it deletes rows?  Only
 * workers do so, once in each pass, and not too often.
 */
bool
ttl_docs_considers_truncation(const TablePass *pass)
{
	const PurgeTable *table = pass->target.table;
	TimestampTz clock = ttl_docs_clock();

	return ttl_docs_purge_truncate && table != NULL && !pass->foreground &&
		pass->is_large && !pass->has_considered && !pass->is_retry &&
		(clock >= table->truncation.not_before ||
		 /* the clock has gone back */
		 clock < table->truncation.not_before - INTERVAL);
}

/* A step in a transaction: stages 1 to 3. */
static void
consider(void *arg)
{
	Consideration *work = arg;
	PurgeTarget *target = &work->pass->target;

	work->decision = DECIDE_LATER;
	if (ttl_docs_open_target(target) != STEP_DONE)
		return;
	if (!PURGE_IS_HOLD(target->hold))
		work->decision = ttl_docs_may_truncate(target) ? decide(work) : DELETE_ROWS;
	ttl_docs_close_target(target);
}

static Decision
decide(Consideration *work)
{
	PurgeTruncation *state = &work->state;
	TimestampTz clock = ttl_docs_clock();
	bool		is_stale = clock > state->clock + STALE_AFTER;
	Decision	decision;

	if (!ttl_docs_note_is_valid(state, &work->pass->target, clock))
		forget_note(state);
	decision = decide_by_state(work);
	/* what was known was about other documents, which are gone */
	if (decision == GIVE_UP && is_stale)
	{
		forget_note(state);
		decision = decide_by_state(work);
	}
	remember_conditions(state, &work->pass->target);
	return decision;
}

static Decision
decide_by_state(Consideration *work)
{
	TimestampTz clock = ttl_docs_clock();

	if (work->state.is_noted)
		return decide_by_note(work);
	if (!ttl_docs_all_are_expired(&work->pass->target, clock - SLACK))
		return decide_to_wait(work);
	make_note(&work->state, clock - SLACK);
	return NEXT_STAGE;
}

/* Stage 3. */
static Decision
decide_by_note(Consideration *work)
{
	const PurgeTruncation *state = &work->state;
	const PurgeTarget *target = &work->pass->target;

	/* documents that were written since may expire later */
	if (!ttl_docs_all_are_expired(target, state->instant))
		return GIVE_UP;
	if (!is_past_horizon(target->rel, state->xid))
		return WAIT;
	work->documents = document_estimate(target->rel);
	work->is_ready = true;
	return NEXT_STAGE;
}

/*
 * Stage 1.  The first time, records when the last document expires.  Later, makes sure
 * that all documents expire by then: nobody has written new ones.
 */
static Decision
decide_to_wait(Consideration *work)
{
	PurgeTruncation *state = &work->state;
	const PurgeTarget *target = &work->pass->target;
	TimestampTz clock = ttl_docs_clock();
	bool		is_waiting = state->last_expiry != DT_NOBEGIN;

	if (!is_waiting)
		state->last_expiry = ttl_docs_last_expiry(target);
	if (state->last_expiry == DT_NOBEGIN ||
		state->last_expiry > clock + ttl_docs_purge_truncate_wait * USECS_PER_SEC)
		return DELETE_ROWS;
	if (is_waiting && (clock > state->last_expiry + SLACK ||
					   !ttl_docs_all_are_expired(target, state->last_expiry)))
		return GIVE_UP;
	return WAIT;
}

/* Stage 2: takes a transaction id after all documents had expired. */
static void
make_note(PurgeTruncation *state, TimestampTz instant)
{
	forget_note(state);
	state->instant = instant;
	state->xid = GetCurrentFullTransactionId();
	state->is_noted = true;
}

static void
remember_conditions(PurgeTruncation *state, const PurgeTarget *target)
{
	state->root = target->collection.root;
	state->settings = target->collection.settings;
	state->index = target->index;
	state->index_file = target->index_file;
	state->clock = ttl_docs_clock();
}

/* Are settings and index as they were then, and has the clock not gone back? */
bool
ttl_docs_note_is_valid(const PurgeTruncation *note, const PurgeTarget *target,
					   TimestampTz clock)
{
	return note->root == target->collection.root &&
		note->index == target->index && note->index_file == target->index_file &&
		!ttl_docs_clock_went_back(note->clock, clock) &&
		ttl_docs_same_expiry(&note->settings, &target->collection.settings);
}

/*
 * Was every snapshot that can see the table taken after this transaction had ended?  Our
 * own snapshot does not count, as in VACUUM: it would hold the horizon at the oldest
 * transaction of all databases.
 */
static bool
is_past_horizon(Relation rel, FullTransactionId xid)
{
	TransactionId horizon;

	PopActiveSnapshot();
	InvalidateCatalogSnapshot();
	horizon = GetOldestNonRemovableTransactionId(rel);
	PushActiveSnapshot(GetTransactionSnapshot());
	return TransactionIdFollows(horizon, XidFromFullTransactionId(xid));
}

/* The estimated number of rows of a table, by the statistics or by pg_class. */
static int64
document_estimate(Relation rel)
{
	PgStat_StatTabEntry *entry = pgstat_fetch_stat_tabentry(RelationGetRelid(rel));

	if (entry != NULL && compat_live_rows(entry) > 0)
		return compat_live_rows(entry);
	return (int64) Max(rel->rd_rel->reltuples, 0);
}

/* Stage 4. */
static Decision
truncate_now(Consideration *work)
{
	TablePass  *pass = work->pass;
	PurgeTruncation *state = &work->state;
	TruncateWork truncation = {&pass->target, state, TRUNCATE_VOID};
	int64		began = ttl_docs_elapsed();
	uint64		wal_before = pgWalUsage.wal_bytes;

	if (!pass->run(ttl_docs_truncate_table, &truncation, &pass->error))
	{
		if (ttl_docs_error_kind(&pass->error) != PURGE_ERROR_BUSY)
		{
			pass->has_error = true;
			ttl_docs_record_pass_error(pass);
			return GIVE_UP;
		}
		truncation.result = TRUNCATE_BUSY;
	}
	switch (truncation.result)
	{
		case TRUNCATE_DONE:
			ttl_docs_count_truncation(pass->target.table, work->documents);
			ereport(DEBUG1,
					(errmsg_internal("ttl_docs: truncated %s in %lld microseconds with %llu bytes of WAL",
									 pass->target.name,
									 (long long) (ttl_docs_elapsed() - began),
									 (unsigned long long) (pgWalUsage.wal_bytes - wal_before))));
			return TRUNCATED;
		case TRUNCATE_BUSY:
			if (state->busy_since == DT_NOBEGIN)
				state->busy_since = ttl_docs_clock();
			return ttl_docs_clock() < state->busy_since + BUSY_TIME ? WAIT : GIVE_UP;
		case TRUNCATE_VOID:
			break;
	}
	return GIVE_UP;
}

/* Stores the decision in shared memory, and ends the pass if the table has to wait. */
static void
apply(TablePass *pass, Consideration *work)
{
	PurgeTruncation *state = &work->state;

	pass->has_considered = work->decision != NEXT_STAGE;
	if (work->decision == DECIDE_LATER)
		return;
	if (work->decision == WAIT)
		/* attempts to lock the table have a time limit, so make many of them */
		ttl_docs_pass_awaits_truncation(pass, ttl_docs_clock() +
										ttl_docs_growing_delay(MIN_DELAY,
															   state->busy_since != DT_NOBEGIN ? 0 :
															   state->visits++,
															   MAX_DELAY));
	else if (work->decision != NEXT_STAGE)
		forget_note(state);
	if (work->decision == GIVE_UP || work->decision == TRUNCATED)
		state->not_before = ttl_docs_clock() + INTERVAL;
	if (work->decision == TRUNCATED)
		pass->had_turn = true;
	LWLockAcquire(ttl_docs_purge_shared->lock, LW_EXCLUSIVE);
	pass->target.table->truncation = *state;
	LWLockRelease(ttl_docs_purge_shared->lock);
}

/* Begins with the first stage. */
static void
forget_note(PurgeTruncation *state)
{
	state->is_noted = false;
	state->last_expiry = DT_NOBEGIN;
	state->busy_since = DT_NOBEGIN;
	state->visits = 0;
}
