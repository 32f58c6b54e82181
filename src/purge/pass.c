/*-------------------------------------------------------------------------
 *
 * pass.c
 *		A pass over a table: from the first expired document to the last.
 *
 * A pass consists of steps, each in its own transaction or subtransaction
 * (transaction.c).  Between two steps the caller can pause, turn to another table, or
 * stop.  A step searches for candidates (find.c), or deletes a batch of them (batch.c),
 * or goes on to truncate the table (truncation.c).  A worker puts documents that it
 * cannot delete into the quarantine, and retries them when their time has come and
 * nothing else is left (quarantine.c).  A pass leaves documents that are busy, and comes
 * back for them (progress.c).
 *
 * Errors.  A batch that fails is rolled back, and then there are three cases:
 *
 * 1. The error came before the first document (no replica identity), or no document
 *    can be the cause (no disk space, no memory).  The pass ends, and the table is
 *    left alone for a while (pass_end.c).
 * 2. A document was being deleted.  That document is blamed: it is busy if a lock was
 *    not available, and undeletable otherwise.  If it is the first of its batch, the
 *    pass leaves it at once.  Otherwise the next batch ends before it.
 * 3. The error came from a statement trigger or from the commit.  The next batch has
 *    half as many documents, until a batch of one document fails, which is blamed.
 *
 * So the pass makes progress with each failure, even if the visit ends right after
 * it: shared memory keeps the position and the size of the next batch.  Each success
 * doubles the size again.
 *
 * The earliest expiry.  The searches of a pass may raise the earliest expiry of the
 * table (earliest.c).  That scan lasts until a search finds nothing, because new
 * documents may arrive in slots that the pass has already passed.  So a pass that has
 * deleted everything ends with one more search.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/memutils.h"

#include "purge/pass_internal.h"

/* number of candidates for the first search of a pass, and the maximum */
#define MIN_CANDIDATES	65536
#define MAX_CANDIDATES	131072
/* minimum interval between two counts of a backlog */
#define COUNT_INTERVAL	(10 * USECS_PER_SEC)
/* the same for a held table whose backlog was too long to be counted */
#define LONG_COUNT_INTERVAL	(30 * USECS_PER_SEC)
#define LAZY_COUNT_INTERVAL	(60 * USECS_PER_SEC)
/* how far a lazy collection is searched for its earliest expiry */
#define LAZY_HORIZON	(180 * USECS_PER_SEC)
/* maximum number of rows of the quarantine that a pass retries */
#define MAX_RETRIES		100

static bool take_rows_to_retry(TablePass *pass);
static TimestampTz pass_clock(const TablePass *pass);
static bool keeps_entry(const TablePass *pass);
static bool table_ends_pass(TablePass *pass, StepEnd end);
static bool search(TablePass *pass);
static void search_in_transaction(void *arg);
static bool has_nothing_to_find(const TablePass *pass);
static bool is_swept(const PurgeTable *table, const CollectionSettings *settings);
static void search_index(TablePass *pass);
static void find_or_count(TablePass *pass, TimestampTz clock);
static bool prepare_progress(TablePass *pass, TimestampTz clock);
static void forget_undeletable(TablePass *pass);
static void begin_scan(TablePass *pass, TimestampTz clock);
static bool found_nothing(const TablePass *pass);
static TimestampTz expiry_after_search(const TablePass *pass);
static void store_backlog(TablePass *pass, TimestampTz clock);
static bool delete_batch(TablePass *pass);
static void batch_in_transaction(void *arg);
static void drop_candidates(TablePass *pass);
static void apply_batch(TablePass *pass, const PurgeBatch *batch);
static void put_into_quarantine(TablePass *pass, Candidate *candidate);
static void apply_retry(TablePass *pass, const Candidate *candidate);
static void leave_candidate(TablePass *pass, const Candidate *candidate,
							TimestampTz live_until);
static void count_batch(TablePass *pass, const PurgeBatch *batch);
static bool next_candidates(TablePass *pass);
static bool should_search_once_more(const TablePass *pass);
static void batch_failed(TablePass *pass, PurgeBatch *batch);
static void blame(TablePass *pass, PurgeBatch *batch, int culprit,
				  PurgeErrorKind kind);

/* Begins a pass; the caller has set the fields that it gives. */
void
ttl_docs_begin_pass(TablePass *pass)
{
	PurgeTable *table = pass->target.table;

	pass->find_limit = MIN_CANDIDATES;
	pass->batch_limit = pass->row_limit;
	pass->state = PURGE_WORKING;
	pass->next_visit = pass->recount_at = DT_NOEND;
	pass->ahead = DT_NOBEGIN;
	if (!keeps_entry(pass))
		return;

	LWLockAcquire(ttl_docs_purge_shared->lock, LW_SHARED);
	pass->progress = table->progress;
	pass->epoch = table->epoch;
	pass->continues = table->state == PURGE_WORKING || table->state == PURGE_CAPPED ||
		table->state == PURGE_TRUNCATING;
	if (table->batch_limit > 0)
		pass->batch_limit = Min(table->batch_limit, pass->row_limit);
	LWLockRelease(ttl_docs_purge_shared->lock);
	/* rewind now, so that the next pass begins there even if this one ends early */
	if (pass->progress.is_set && pass->announced_due != DT_NOBEGIN)
		ttl_docs_rewind_progress(&pass->progress, pass->announced_due);
}

/* Makes one step; false if the pass has ended. */
bool
ttl_docs_step_pass(TablePass *pass)
{
	pass->deleted = 0;
	pass->was_batch = pass->was_work = false;
	if (pass->has_ended)
		return false;
	if (ttl_docs_batch_is_next(pass))
		return delete_batch(pass);
	if (!pass->has_candidates)
		return search(pass);
	/* a truncation leaves no candidate */
	if (ttl_docs_step_truncation(pass))
		drop_candidates(pass);
	return !pass->has_ended;
}

/* Will the next step delete rows?  Only then does purge_max_rate concern it. */
bool
ttl_docs_batch_is_next(const TablePass *pass)
{
	return pass->has_candidates && !ttl_docs_considers_truncation(pass);
}

static TimestampTz
pass_clock(const TablePass *pass)
{
	return pass->instant == DT_NOEND ? ttl_docs_clock() : pass->instant;
}

/* Does a worker make the pass, over a table with an entry in shared memory? */
static bool
keeps_entry(const TablePass *pass)
{
	return pass->target.table != NULL && !pass->foreground;
}

/* Ends the pass if the table cannot be purged now; false if it can. */
static bool
table_ends_pass(TablePass *pass, StepEnd end)
{
	switch (end)
	{
		case STEP_DONE:
		case STEP_STALE:
			return false;
		case STEP_TABLE_GONE:
			ttl_docs_pass_is_gone(pass);
			break;
		case STEP_TABLE_BUSY:
			pass->table_is_busy = true;
			ttl_docs_save_positions(pass);
			ttl_docs_pass_is_through(pass);
			break;
		case STEP_HELD:
			ttl_docs_save_positions(pass);
			ttl_docs_pass_is_held(pass);
			break;
	}
	return true;
}

/* ---- Searching ---- */

static bool
search(TablePass *pass)
{
	TimestampTz clock = pass_clock(pass);

	if (!pass->run(search_in_transaction, pass, &pass->error))
	{
		ttl_docs_pass_failed(pass);
		return false;
	}
	if (table_ends_pass(pass, pass->search_end))
		return false;
	if (pass->candidates.count == 0 || pass->is_last_search)
		return next_candidates(pass);
	pass->has_candidates = true;
	pass->deleted_before = pass->total_deleted;
	pass->find_limit = Min(pass->find_limit * 4, MAX_CANDIDATES);
	if (keeps_entry(pass))
	{
		/* the table may still have to wait */
		if (pass->target.table->state != PURGE_TRUNCATING)
			pass->target.table->state = PURGE_WORKING;
		store_backlog(pass, clock);
	}
	return true;
}

static void
search_in_transaction(void *arg)
{
	TablePass  *pass = arg;
	PurgeTarget *target = &pass->target;
	MemoryContext caller;

	pass->search_end = ttl_docs_open_target(target);
	if (pass->search_end != STEP_DONE)
		return;
	caller = MemoryContextSwitchTo(pass->context);
	memset(&pass->candidates, 0, sizeof(pass->candidates));
	pass->state = target->hold;
	if (has_nothing_to_find(pass))
	{
		pass->candidates.is_complete = true;
		pass->candidates.next_due = DT_NOEND;
	}
	/* nobody announces the rows that Citus copies to a shard: do not pass them */
	else if (OidIsValid(target->index) && pass->state != PURGE_MOVING)
	{
		search_index(pass);
		pass->is_large = pass->candidates.count > 0 && ttl_docs_is_large(target->rel);
	}
	else if (!PURGE_IS_HOLD(pass->state))
		pass->state = PURGE_NO_INDEX;
	if (PURGE_IS_HOLD(pass->state) || pass->state == PURGE_NO_INDEX)
		pass->search_end = STEP_HELD;
	MemoryContextSwitchTo(caller);
	ttl_docs_close_target(target);
}

/*
 * Was TTL never on, or did a pass delete all expired documents before the index was
 * dropped?
 */
static bool
has_nothing_to_find(const TablePass *pass)
{
	const CollectionSettings *settings = &pass->target.collection.settings;

	if (settings->on)
		return false;
	if (settings->written_floor == DT_NOBEGIN && settings->due_floor == DT_NOBEGIN)
		return true;
	return !OidIsValid(pass->target.index) && is_swept(pass->target.table, settings);
}

/* Has the purge deleted all documents that had expired when TTL was turned off? */
static bool
is_swept(const PurgeTable *table, const CollectionSettings *settings)
{
	const CollectionSettings *then;
	bool		result;

	if (table == NULL)
		return false;
	LWLockAcquire(ttl_docs_purge_shared->lock, LW_SHARED);
	then = &table->progress.settings;
	result = table->is_swept && table->progress.is_set && !then->on &&
		then->written_floor == settings->written_floor &&
		then->due_floor == settings->due_floor;
	LWLockRelease(ttl_docs_purge_shared->lock);
	return result;
}

/* Searches the purge index, and raises the earliest expiry if it finds nothing. */
static void
search_index(TablePass *pass)
{
	TimestampTz clock = pass_clock(pass);

	if (!prepare_progress(pass, clock))
	{
		/* the same result as at the end of the last pass */
		pass->candidates.is_complete = true;
		pass->candidates.next_due = DT_NOEND;
		return;
	}
	pass->progress.clock = clock;
	/* CALL purge() also deletes expired documents in slots that have not ended */
	if (pass->foreground && !pass->is_last_search)
		clock = ttl_docs_time_past_slot(clock);
	/* a scan must see the whole table */
	if (pass->target.table != NULL && !pass->in_block && pass->scan.table == NULL &&
		pass->continues_at == NULL)
		begin_scan(pass, clock);
	find_or_count(pass, clock);
	pass->was_work = pass->candidates.has_read_many;
	pass->first_live = Min(pass->first_live, pass->candidates.first_live);
	if (pass->scan.table != NULL && found_nothing(pass))
		ttl_docs_end_scan(&pass->scan, expiry_after_search(pass));
}

/*
 * Makes sure that progress is valid, and begins a revisit of left documents if it is
 * time.  False if it is too early for a pass over a lazy collection.
 */
static bool
prepare_progress(TablePass *pass, TimestampTz clock)
{
	PurgeProgress *progress = &pass->progress;

	if (!ttl_docs_progress_is_valid(progress, &pass->target, clock))
	{
		forget_undeletable(pass);
		ttl_docs_reset_progress(progress, &pass->target, clock);
		if (pass->continues_at != NULL)
			ttl_docs_go_to_position(progress, pass->continues_at);
		pass->scan.table = NULL;
		return true;
	}
	if (pass->target.collection.settings.indexing != INDEXING_LAZY)
	{
		ttl_docs_revisit_left(progress, clock);
		return true;
	}
	if (progress->next_block > 0 || ItemPointerIsValid(&progress->next_row) ||
		pass->total_deleted > 0 || pass->is_last_search)
		return true;			/* in the middle of a pass */
	return ttl_docs_begin_lazy(progress, clock, pass->continues);
}

/* A worker begins from the start: its search will find undeletable documents again. */
static void
forget_undeletable(TablePass *pass)
{
	PurgeTable *table = pass->target.table;

	if (!keeps_entry(pass))
		return;
	LWLockAcquire(ttl_docs_purge_shared->lock, LW_EXCLUSIVE);
	table->undeletable = 0;
	/* the rows of a rewritten table are elsewhere */
	if (pass->progress.is_set && pass->progress.index_file != pass->target.index_file)
		ttl_docs_unquarantine_all(table);
	LWLockRelease(ttl_docs_purge_shared->lock);
}

/* Finds candidates.  If the table is held, only counts them. */
static void
find_or_count(TablePass *pass, TimestampTz clock)
{
	PurgeTable *table = pass->target.table;
	bool		is_held = PURGE_IS_HOLD(pass->state);
	bool		is_lazy = pass->target.collection.settings.indexing == INDEXING_LAZY;
	bool		count = keeps_entry(pass) &&
		(is_held || pass->continues) && clock >= table->counted + COUNT_INTERVAL;

	if (!is_held)
		ttl_docs_find_candidates(&pass->target, &pass->progress, clock, pass->ahead,
								 pass->find_limit, count, &pass->candidates);
	else if (count)
	{
		ttl_docs_find_candidates(&pass->target, &pass->progress, clock, pass->ahead,
								 1, true, &pass->candidates);
		store_backlog(pass, clock);
		if (!pass->candidates.has_counted_all)
			pass->recount_at = clock +
				(is_lazy ? LAZY_COUNT_INTERVAL : LONG_COUNT_INTERVAL);
	}
	else if (table != NULL)
		pass->recount_at = table->counted + COUNT_INTERVAL;
}

/* Begins the scan for the earliest expiry. */
static void
begin_scan(TablePass *pass, TimestampTz clock)
{
	ttl_docs_begin_scan(&pass->scan, SCANNER_PURGE, pass->target.table);
	pass->first_live = DT_NOEND;
	/* searching ahead costs many reads, so only if the earliest expiry has passed */
	pass->ahead = pass->progress.next_block == 0 &&
		ttl_docs_table_expiry(pass->target.table) <= clock ?
		clock + LAZY_HORIZON : DT_NOBEGIN;
}

/* Has the last search found nothing, and has the pass left no expired document? */
static bool
found_nothing(const TablePass *pass)
{
	return pass->candidates.count == 0 && pass->candidates.is_complete &&
		pass->scan.table->quarantined == 0 && !ttl_docs_has_left(&pass->progress);
}

/* The earliest expiry of the table, after a search that has found nothing. */
static TimestampTz
expiry_after_search(const TablePass *pass)
{
	TimestampTz expiry = ttl_docs_earliest_in_slot(pass->candidates.next_due);

	/* live documents that the pass has left */
	expiry = Min(expiry, ttl_docs_revisit_at(&pass->progress));
	/* announced documents may be before the position at which a worker began */
	if (!pass->foreground)
		expiry = Min(expiry, ttl_docs_earliest_in_slot
					 (ttl_docs_read_time(&pass->scan.table->next_visit)));
	if (pass->target.collection.settings.indexing == INDEXING_LAZY)
		expiry = Min(Min(expiry, pass->first_live),
					 ttl_docs_earliest_in_slot(pass->ahead));
	return expiry;
}

/* Stores the backlog and its oldest document in shared memory. */
static void
store_backlog(TablePass *pass, TimestampTz clock)
{
	const Candidates *found = &pass->candidates;
	PurgeTable *table = pass->target.table;

	LWLockAcquire(ttl_docs_purge_shared->lock, LW_EXCLUSIVE);
	table->oldest = found->count > 0 && !found->by_row ?
		ttl_docs_slot_due(found->items[0].slot, found->default_ttl) : DT_NOEND;
	if (found->backlog >= 0)
	{
		table->backlog = found->backlog;
		table->counted = clock;
	}
	else
		table->backlog = Max(table->backlog, found->count);
	LWLockRelease(ttl_docs_purge_shared->lock);
}

/* ---- Deleting ---- */

static bool
delete_batch(TablePass *pass)
{
	Candidates *candidates = &pass->candidates;
	PurgeBatch	batch = {0};

	batch.target = &pass->target;
	batch.owns_transaction = !pass->in_block;
	batch.by_row = candidates->by_row;
	batch.skips_quarantined = keeps_entry(pass) && !pass->is_retry;
	batch.index = pass->is_retry ? InvalidOid : pass->progress.index;
	batch.index_file = pass->progress.index_file;
	batch.candidates = candidates->items + candidates->done;
	/* each row of the quarantine may fail */
	batch.count = pass->is_retry ? 1 :
		Min(Min(pass->batch_limit, pass->row_limit),
			candidates->count - candidates->done);
	batch.instant = pass->instant;
	batch.time_limit = pass->time_limit;

	pass->was_batch = pass->was_work = pass->had_turn = true;
	if (!pass->run(batch_in_transaction, &batch, &pass->error))
		batch_failed(pass, &batch);
	else if (batch.end == STEP_STALE)
		drop_candidates(pass);
	else
	{
		if (batch.end == STEP_HELD)
			pass->state = pass->target.hold;
		if (!table_ends_pass(pass, batch.end))
			apply_batch(pass, &batch);
	}
	if (pass->has_candidates && candidates->done == candidates->count)
		return next_candidates(pass);
	return !pass->has_ended;
}

static void
batch_in_transaction(void *arg)
{
	ttl_docs_run_batch(arg);
}

/* A batch has been committed.  Leaves the candidates that it did not delete. */
static void
apply_batch(TablePass *pass, const PurgeBatch *batch)
{
	for (int i = 0; i < batch->consumed; i++)
	{
		Candidate  *candidate = &batch->candidates[i];

		if (candidate->fate == CANDIDATE_UNDELETABLE && !candidate->is_blamed)
			put_into_quarantine(pass, candidate);
		if (pass->is_retry)
			apply_retry(pass, candidate);
		else if (candidate->fate != CANDIDATE_GONE)
			leave_candidate(pass, candidate, batch->live_until);
	}
	if (batch->refused > 0)
	{
		ttl_docs_make_error(&pass->error, ERRCODE_TRIGGERED_ACTION_EXCEPTION,
							"a BEFORE trigger keeps an expired document from being deleted",
							NULL);
		pass->has_error = true;
		ttl_docs_record_pass_error(pass);
	}
	pass->candidates.done += batch->consumed;
	if (!pass->is_retry)
		pass->batch_limit = Min(pass->batch_limit * 2, pass->row_limit);
	count_batch(pass, batch);
}

/* Puts the row of an undeletable candidate into the quarantine, if there is room. */
static void
put_into_quarantine(TablePass *pass, Candidate *candidate)
{
	if (keeps_entry(pass) && ItemPointerIsValid(&candidate->row) &&
		ttl_docs_quarantine(pass->target.table, &candidate->row, ttl_docs_clock()))
		candidate->fate = CANDIDATE_QUARANTINED;
}

/* A row of the quarantine was retried. */
static void
apply_retry(TablePass *pass, const Candidate *candidate)
{
	switch ((CandidateFate) candidate->fate)
	{
		case CANDIDATE_GONE:
		case CANDIDATE_LIVE:	/* another document has the place of the row */
			ttl_docs_unquarantine(pass->target.table, &candidate->tid);
			break;
		case CANDIDATE_BUSY:
			(void) ttl_docs_quarantine(pass->target.table, &candidate->tid,
									   ttl_docs_clock());
			break;
		case CANDIDATE_QUARANTINED:
		case CANDIDATE_UNDELETABLE: /* resume_purge() has emptied the quarantine */
			break;
	}
}

static void
leave_candidate(TablePass *pass, const Candidate *candidate, TimestampTz live_until)
{
	switch ((CandidateFate) candidate->fate)
	{
		case CANDIDATE_GONE:
		case CANDIDATE_QUARANTINED:
			break;
		case CANDIDATE_LIVE:
			ttl_docs_leave_live(&pass->progress, candidate, live_until);
			break;
		case CANDIDATE_BUSY:
			pass->found_busy = true;
			ttl_docs_leave_busy(&pass->progress, candidate, ttl_docs_clock());
			break;
		case CANDIDATE_UNDELETABLE:
			pass->total_undeletable++;
			ttl_docs_leave_undeletable(&pass->progress, candidate, ttl_docs_clock());
			break;
	}
}

static void
count_batch(TablePass *pass, const PurgeBatch *batch)
{
	PurgeTable *table = pass->target.table;

	pass->deleted = batch->deleted;
	pass->total_deleted += batch->deleted;
	if (table == NULL)
		return;
	/* CALL purge() commits after the step, or not at all */
	if (pass->foreground)
		ttl_docs_count_purged_at_commit(table, batch->deleted);
	else
		ttl_docs_count_purged(table, batch->deleted);
	if (pass->in_block || pass->is_retry)
		return;
	LWLockAcquire(ttl_docs_purge_shared->lock, LW_EXCLUSIVE);
	table->backlog = Max(table->backlog - batch->consumed, 0);
	LWLockRelease(ttl_docs_purge_shared->lock);
}

static void
drop_candidates(TablePass *pass)
{
	if (pass->candidates.items != NULL)
		pfree(pass->candidates.items);
	pass->candidates.items = NULL;
	pass->has_candidates = false;
}

/* All candidates have been in a batch.  False if there are no more to search for. */
static bool
next_candidates(TablePass *pass)
{
	Candidates *candidates = &pass->candidates;

	drop_candidates(pass);
	if (pass->is_retry)
	{
		pass->is_retry = false;
		ttl_docs_pass_is_through(pass);
		return false;
	}
	for (SlotRange range = 0; range < RANGE_COUNT; range++)
		pass->progress.next[range] = candidates->end[range];
	pass->progress.next_block = candidates->is_complete ? 0 : candidates->end_block;
	ItemPointerSetInvalid(&pass->progress.next_row);
	if (!candidates->is_complete)
		return true;
	if (should_search_once_more(pass))
	{
		/* CALL purge() does not delete documents that have expired since it began */
		pass->is_last_search = pass->foreground;
		return true;
	}
	if (take_rows_to_retry(pass))
		return true;
	ttl_docs_pass_is_through(pass);
	return false;
}

/*
 * Takes rows of the quarantine as candidates, when a worker has nothing else to do in
 * the table: a retry can take as long as a visit.  False if there are none.
 */
static bool
take_rows_to_retry(TablePass *pass)
{
	Candidates *candidates = &pass->candidates;
	TimestampTz next_due = candidates->next_due;
	ItemPointerData tids[MAX_RETRIES];
	int			count = 0;

	if (keeps_entry(pass) && !pass->has_retried)
		count = ttl_docs_rows_to_retry(pass->target.table, ttl_docs_clock(),
									   MAX_RETRIES, tids);
	pass->has_retried = true;
	if (count == 0)
		return false;
	memset(candidates, 0, sizeof(*candidates));
	candidates->items = MemoryContextAllocZero(pass->context,
											   count * sizeof(Candidate));
	candidates->count = count;
	candidates->by_row = true;
	/* as the last search found it */
	candidates->is_complete = true;
	candidates->next_due = next_due;
	for (int i = 0; i < count; i++)
	{
		candidates->items[i].slot = NO_SLOT;
		candidates->items[i].tid = candidates->items[i].row = tids[i];
	}
	pass->has_candidates = pass->is_retry = true;
	return true;
}

/* Should one more search, which finds nothing, end the scan for the earliest expiry? */
static bool
should_search_once_more(const TablePass *pass)
{
	const Candidates *candidates = &pass->candidates;

	return pass->scan.table != NULL && !pass->is_last_search &&
		candidates->count > 0 && !ttl_docs_has_left(&pass->progress) &&
		(!candidates->by_row ||
		 pass->total_deleted - pass->deleted_before == candidates->count);
}

/* A batch has failed and was rolled back: finds out why. */
static void
batch_failed(TablePass *pass, PurgeBatch *batch)
{
	PurgeErrorKind kind = ttl_docs_error_kind(&pass->error);
	int			culprit = batch->current;

	if (!batch->has_started || kind == PURGE_ERROR_OF_TABLE)
	{
		ttl_docs_save_positions(pass);
		ttl_docs_pass_failed(pass);
		return;
	}
	/* a cancel between two documents is not the fault of either */
	if (culprit < 0 && !batch->at_end &&
		pass->error.shown.sqlstate == ERRCODE_QUERY_CANCELED)
		kind = PURGE_ERROR_BUSY;
	if (culprit < 0 && batch->count == 1)
		culprit = 0;
	if (culprit < 0)
		pass->batch_limit = Max(batch->count / 2, 1);
	else
		blame(pass, batch, culprit, kind);
}

/* A batch failed because of one document. */
static void
blame(TablePass *pass, PurgeBatch *batch, int culprit, PurgeErrorKind kind)
{
	Candidate  *candidate = &batch->candidates[culprit];

	candidate->is_blamed = true;
	candidate->fate = CANDIDATE_BUSY;
	if (kind != PURGE_ERROR_BUSY)
	{
		candidate->fate = CANDIDATE_UNDELETABLE;
		put_into_quarantine(pass, candidate);
		pass->has_error = true;
		ttl_docs_record_pass_error(pass);
	}
	if (culprit > 0)
	{
		pass->batch_limit = culprit;
		return;
	}
	if (pass->is_retry)
		apply_retry(pass, candidate);
	else
	{
		leave_candidate(pass, candidate, DT_NOEND);
		pass->batch_limit = Max(batch->count / 2, 1);
	}
	pass->candidates.done++;
}
