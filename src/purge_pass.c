/*-------------------------------------------------------------------------
 *
 * purge_pass.c
 *		A pass over a table: from the first expired document to the last.
 *
 * A pass is made of steps, each in a transaction of its own, so that whoever
 * runs it can pause, turn to another table, or stop for good between any two of
 * them.  A step looks for candidates (purge_find.c) or deletes a batch of them
 * (purge_batch.c).  First come the documents in quarantine whose time it is,
 * one by one; then what the purge index has.
 *
 * What is left.  A document that is locked, not committed yet, or live after
 * all stays behind the position of the pass.  The first such position is kept,
 * with the time to come back for it.  For what is busy that is soon at first,
 * and then less and less often.
 *
 * Trouble.  When a batch fails, it is undone.  If a document was at work, it is
 * to blame: it goes into quarantine, or is busy if it is a lock that failed, and
 * the batch is tried again without it.  If not (statement triggers, or an error
 * at the commit), the batch is tried again with half of its documents, until
 * there is one.  Each failure halves the size of batches, and each success
 * doubles it again: documents in trouble come in crowds, and what a failing
 * batch has done is lost.  Errors that are nobody's fault (no disk space, no
 * memory) and those that come before the first document (no replica identity)
 * are of the table: it is left alone for a while that grows.
 *
 * The log has a line when a table gets into trouble, and not for each document
 * and each try: stat_collections has the rest.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/table.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#include "purge.h"

/* entries of the index that the first look of a pass takes, and the largest */
#define FIRST_FIND		65536
#define LARGEST_FIND	524288
/* a backlog is counted so often, at the most */
#define COUNT_PERIOD	(10 * USECS_PER_SEC)
/* a BRIN index cannot tell when something is due */
#define LAZY_PERIOD		(60 * USECS_PER_SEC)
#define LONGEST_BUSY_DELAY		(60 * USECS_PER_SEC)
#define FIRST_TROUBLE_DELAY		(30 * USECS_PER_SEC)
#define LONGEST_TROUBLE_DELAY	(3600 * USECS_PER_SEC)
#define MAX_RETRIES		100		/* documents in quarantine, in a pass */
/* the log has the trouble of a table so often, at the most */
#define LOG_PERIOD_OTHER	(60 * USECS_PER_SEC)
#define LOG_PERIOD_SAME		(86400 * USECS_PER_SEC)

static TimestampTz pass_clock(const TablePass *pass);
static bool take_quarantined(TablePass *pass);
static void look(TablePass *pass);
static void look_work(void *arg);
static void look_at_table(TablePass *pass, Relation rel,
						  const Collection *collection);
static void look_into_index(TablePass *pass, Relation rel, Oid index_oid,
							const Collection *collection);
static void note_backlog(TablePass *pass, TimestampTz clock);
static void come_back_for_left(PurgeProgress *progress, TimestampTz clock);
static bool delete_some(TablePass *pass);
static void batch_work(void *arg);
static bool apply_batch(TablePass *pass, PurgeBatch *batch);
static void apply_outcome(TablePass *pass, const RowOutcome *outcome);
static void leave_behind(TablePass *pass, const Candidate *candidate,
						 TimestampTz until);
static void batch_failed(TablePass *pass, PurgeBatch *batch);
static void put_into_quarantine(TablePass *pass, Candidate *candidate,
								ItemPointer tid);
static bool is_busy_error(int sqlstate);
static bool is_nobodys_fault(int sqlstate);
static void table_failed(TablePass *pass);
static void record_error(TablePass *pass);
static void end_in_state(TablePass *pass, PurgeState state, TimestampTz due);
static void pass_is_through(TablePass *pass);
static TimestampTz growing_delay(TimestampTz first, int times, TimestampTz longest);
static void save_positions(TablePass *pass);

/* Starts a pass; the caller has filled in what is given. */
void
ttl_docs_begin_pass(TablePass *pass)
{
	pass->find_limit = FIRST_FIND;
	pass->batch_limit = pass->row_limit;
	pass->state = PURGE_WORKING;
	pass->due = DT_NOEND;
	pass->is_main = pass->foreground || pass->table == NULL;
	if (!pass->foreground && pass->table != NULL)
	{
		LWLockAcquire(ttl_docs_purge->lock, LW_SHARED);
		pass->progress = pass->table->progress;
		LWLockRelease(ttl_docs_purge->lock);
	}
}

/* Goes on with a pass; false if there is nothing more to do. */
bool
ttl_docs_step_pass(TablePass *pass)
{
	pass->deleted = 0;
	pass->deletes = false;
	if (pass->has_ended)
		return false;
	if (pass->has_candidates)
		return delete_some(pass);
	if (!pass->is_main && take_quarantined(pass))
		return true;
	pass->is_main = true;
	look(pass);
	return !pass->has_ended;
}

static TimestampTz
pass_clock(const TablePass *pass)
{
	return pass->instant == DT_NOEND ? ttl_docs_clock() : pass->instant;
}

/* Takes the documents whose next try is due for candidates. */
static bool
take_quarantined(TablePass *pass)
{
	Candidates *candidates = &pass->candidates;
	ItemPointerData tids[MAX_RETRIES];
	int			count = ttl_docs_quarantined_due(pass->table, ttl_docs_clock(),
												 MAX_RETRIES, tids);

	if (count == 0)
		return false;
	memset(candidates, 0, sizeof(*candidates));
	candidates->items = MemoryContextAllocZero(pass->context,
											   count * sizeof(Candidate));
	candidates->count = count;
	candidates->by_row = true;
	candidates->backlog = -1;
	for (int i = 0; i < count; i++)
		candidates->items[i].tid = tids[i];
	pass->has_candidates = true;
	pass->batch_limit = 1;
	return true;
}

/* Looks for candidates in the purge index. */
static void
look(TablePass *pass)
{
	TimestampTz clock = pass_clock(pass);
	Candidates *found = &pass->candidates;

	if (!pass->run(look_work, pass, &pass->error))
	{
		table_failed(pass);
		return;
	}
	switch (pass->look_end)
	{
		case BATCH_TABLE_GONE:
			pass->is_gone = true;
			end_in_state(pass, PURGE_IDLE, DT_NOEND);
			return;
		case BATCH_TABLE_BUSY:
			pass->found_busy = true;
			pass_is_through(pass);
			return;
		case BATCH_HELD:
			end_in_state(pass, pass->state, ttl_docs_clock() + PURGE_ROUND_TIME);
			return;
		default:
			break;
	}
	if (found->count == 0 && found->is_complete)
	{
		pass_is_through(pass);
		return;
	}
	pass->has_candidates = true;
	pass->find_limit = Min(pass->find_limit * 4, LARGEST_FIND);
	if (pass->batch_limit < pass->row_limit && !pass->has_error)
		pass->batch_limit = pass->row_limit;

	if (pass->table == NULL || pass->foreground)
		return;
	pass->table->state = PURGE_WORKING;
	note_backlog(pass, clock);
}

/* In a transaction. */
static void
look_work(void *arg)
{
	TablePass  *pass = arg;
	Collection	collection;
	Relation	rel;

	pass->look_end = BATCH_TABLE_GONE;
	if (pass->foreground)
	{
		/* locks of a block are kept: a partition comes after its root */
		if (ttl_docs_collection(pass->relid, &collection))
			LockRelationOid(collection.root, AccessShareLock);
		LockRelationOid(pass->relid, AccessShareLock);
	}
	else if (!ConditionalLockRelationOid(pass->relid, AccessShareLock))
	{
		pass->look_end = BATCH_TABLE_BUSY;
		return;
	}
	rel = try_table_open(pass->relid, NoLock);
	if (rel == NULL)
		return;
	if (ttl_docs_collection(pass->relid, &collection) &&
		rel->rd_rel->relkind == RELKIND_RELATION)
		look_at_table(pass, rel, &collection);
	table_close(rel, NoLock);
}

static void
look_at_table(TablePass *pass, Relation rel, const Collection *collection)
{
	const CollectionSettings *settings = &collection->settings;
	MemoryContext caller = MemoryContextSwitchTo(pass->context);
	Oid			index_oid = ttl_docs_purge_index(rel, settings->indexing);

	if (pass->name == NULL)
		pass->name = ttl_docs_quoted_name(pass->relid);
	pass->look_end = BATCH_DONE;
	pass->state = ttl_docs_purge_hold(rel, collection, pass->table, &pass->detail);
	if (!settings->on && settings->written_floor == DT_NOBEGIN &&
		settings->due_floor == DT_NOBEGIN)
	{
		/* never on, so nothing can be expired, and nobody is held up */
		memset(&pass->candidates, 0, sizeof(pass->candidates));
		pass->candidates.is_complete = true;
		pass->candidates.next_due = DT_NOEND;
	}
	else if (OidIsValid(index_oid))
		look_into_index(pass, rel, index_oid, collection);
	else if (!PURGE_IS_HOLD(pass->state))
		pass->state = PURGE_NO_INDEX;
	if (PURGE_IS_HOLD(pass->state) || pass->state == PURGE_NO_INDEX)
		pass->look_end = BATCH_HELD;
	MemoryContextSwitchTo(caller);
}

/* Finds candidates; of a table that is held, only how many there are. */
static void
look_into_index(TablePass *pass, Relation rel, Oid index_oid,
				const Collection *collection)
{
	Relation	index = index_open(index_oid, AccessShareLock);
	TimestampTz clock = pass_clock(pass);
	bool		held = PURGE_IS_HOLD(pass->state);
	bool		count = pass->table != NULL && !pass->foreground &&
		(held || clock >= pass->table->counted + COUNT_PERIOD);

	if (!ttl_docs_progress_holds(&pass->progress, index, collection, clock))
		ttl_docs_reset_progress(&pass->progress, index, collection, clock);
	else
	{
		if (pass->told != DT_NOBEGIN)
			ttl_docs_rewind_progress(&pass->progress, pass->told);
		come_back_for_left(&pass->progress, clock);
	}
	pass->told = DT_NOBEGIN;
	pass->progress.clock = clock;
	if (!held)
		ttl_docs_find_candidates(rel, index, collection, &pass->progress, clock,
								 pass->find_limit, count, &pass->candidates);
	else if (count)
	{
		ttl_docs_find_candidates(rel, index, collection, &pass->progress, clock,
								 1, true, &pass->candidates);
		note_backlog(pass, clock);
	}
	index_close(index, AccessShareLock);
}

/* Keeps in shared memory what a look has found. */
static void
note_backlog(TablePass *pass, TimestampTz clock)
{
	const Candidates *found = &pass->candidates;
	PurgeTable *table = pass->table;

	LWLockAcquire(ttl_docs_purge->lock, LW_EXCLUSIVE);
	table->oldest = found->count > 0 && !found->by_row ?
		ttl_docs_slot_due(found->items[0].slot, found->default_ttl) : DT_NOEND;
	if (found->backlog >= 0)
	{
		table->backlog = found->backlog;
		table->counted = clock;
	}
	else
		table->backlog = Max(table->backlog, found->count);
	LWLockRelease(ttl_docs_purge->lock);
}

/* It is time to come back for what was left. */
static void
come_back_for_left(PurgeProgress *progress, TimestampTz clock)
{
	if (progress->revisit_at > clock)
		return;
	for (SlotRange range = 0; range < RANGE_COUNT; range++)
	{
		if (!progress->left[range])
			continue;
		progress->left[range] = false;
		if (progress->first_left[range].slot <= progress->next[range].slot)
			progress->next[range] = progress->first_left[range];
	}
	progress->revisit_at = DT_NOEND;
}

/* Deletes a batch of the candidates. */
static bool
delete_some(TablePass *pass)
{
	Candidates *candidates = &pass->candidates;
	PurgeBatch	batch = {0};

	batch.table = pass->table;
	batch.relid = pass->relid;
	batch.context = pass->context;
	batch.waits_for_table = pass->foreground;
	batch.by_row = candidates->by_row;
	batch.skips_quarantined = pass->is_main && !pass->foreground;
	batch.index = pass->is_main ? pass->progress.index : InvalidOid;
	batch.index_file = pass->progress.index_file;
	batch.candidates = candidates->items + candidates->done;
	batch.count = Min(Min(pass->batch_limit, pass->row_limit),
					  candidates->count - candidates->done);
	batch.instant = pass->instant;
	batch.time_limit = pass->time_limit;

	pass->deletes = true;
	if (pass->run(batch_work, &batch, &pass->error))
		return apply_batch(pass, &batch);
	batch_failed(pass, &batch);
	return !pass->has_ended;
}

/* In a transaction. */
static void
batch_work(void *arg)
{
	ttl_docs_run_batch(arg);
}

/* A batch is committed: what became of its candidates? */
static bool
apply_batch(TablePass *pass, PurgeBatch *batch)
{
	Candidates *candidates = &pass->candidates;
	ListCell   *lc;

	switch (batch->end)
	{
		case BATCH_DONE:
			break;
		case BATCH_TABLE_GONE:
			pass->is_gone = true;
			end_in_state(pass, PURGE_IDLE, DT_NOEND);
			return false;
		case BATCH_TABLE_BUSY:
			pass->found_busy = true;
			save_positions(pass);
			pass_is_through(pass);
			return false;
		case BATCH_HELD:
			pass->detail = batch->detail;
			end_in_state(pass, batch->state, ttl_docs_clock() + PURGE_ROUND_TIME);
			return false;
		case BATCH_STALE:
			pass->has_candidates = false;
			return true;
	}

	/* in quarantine, what is not reported is gone */
	for (int i = 0; !pass->is_main && i < batch->consumed; i++)
		ttl_docs_unquarantine(pass->table, &batch->candidates[i].tid);
	foreach(lc, batch->outcomes)
		apply_outcome(pass, lfirst(lc));
	list_free_deep(batch->outcomes);

	candidates->done += batch->consumed;
	pass->deleted = batch->deleted;
	pass->total_deleted += batch->deleted;
	if (pass->is_main)
		pass->batch_limit = Min(pass->batch_limit * 2, pass->row_limit);
	if (pass->table != NULL)
	{
		if (pass->in_block)
			ttl_docs_count_purged_at_commit(pass->table, batch->deleted);
		else
			ttl_docs_count_purged(pass->table, batch->deleted);
		LWLockAcquire(ttl_docs_purge->lock, LW_EXCLUSIVE);
		if (pass->is_main && !pass->in_block)
			pass->table->backlog = Max(pass->table->backlog - batch->consumed, 0);
		LWLockRelease(ttl_docs_purge->lock);
	}

	if (candidates->done < candidates->count)
		return true;
	pfree(candidates->items);
	candidates->items = NULL;
	pass->has_candidates = false;
	if (!pass->is_main)
	{
		pass->is_main = true;
		pass->batch_limit = pass->row_limit;
		return true;
	}
	for (SlotRange range = 0; range < RANGE_COUNT; range++)
		pass->progress.next[range] = candidates->end[range];
	pass->progress.next_block = candidates->is_complete ? 0 : candidates->end_block;
	if (!candidates->is_complete)
		return true;
	pass_is_through(pass);
	return false;
}

static void
apply_outcome(TablePass *pass, const RowOutcome *outcome)
{
	Candidate  *candidate = &pass->candidates.items[pass->candidates.done +
													outcome->candidate];
	TimestampTz clock = ttl_docs_clock();
	int			revisits = pass->progress.revisits;

	switch (outcome->fate)
	{
		case CANDIDATE_OPEN:
			/* live after all; without its time it will never expire */
			if (pass->is_main && outcome->until < DT_NOEND)
				leave_behind(pass, candidate, outcome->until);
			break;
		case CANDIDATE_BUSY:
			pass->found_busy = true;
			pass->left++;
			if (pass->is_main)
				leave_behind(pass, candidate, clock +
							 growing_delay(ttl_docs_purge_naptime * INT64CONST(1000),
										   revisits, LONGEST_BUSY_DELAY));
			else
				put_into_quarantine(pass, candidate, &candidate->tid);
			break;
		case CANDIDATE_POISON:
			pass->total_refused++;
			pass->has_error = true;
			pass->error.sqlstate = ERRCODE_TRIGGERED_ACTION_EXCEPTION;
			strlcpy(pass->error.message,
					"a BEFORE trigger keeps an expired document from being deleted",
					sizeof(pass->error.message));
			record_error(pass);
			candidate->tid = outcome->tid;
			put_into_quarantine(pass, candidate, &candidate->tid);
			if (candidate->fate != CANDIDATE_NO_ROOM)
				break;
			/* fall through */
		case CANDIDATE_NO_ROOM:
			pass->found_no_room = true;
			pass->left++;
			leave_behind(pass, candidate, clock +
						 growing_delay(FIRST_TROUBLE_DELAY, revisits,
									   LONGEST_TROUBLE_DELAY));
			break;
		case CANDIDATE_RELEASED:
			/* if it is not committed after all, a worker has to find it */
			ttl_docs_unquarantine(pass->table, unconstify(ItemPointerData *, &outcome->tid));
			pass->table->progress.is_set = false;
			ttl_docs_lower_due(&pass->table->due, clock);
			break;
	}
}

/* The pass goes on without a document, and comes back for it. */
static void
leave_behind(TablePass *pass, const Candidate *candidate, TimestampTz until)
{
	PurgeProgress *progress = &pass->progress;
	SlotRange	range = ttl_docs_slot_range(candidate->slot);
	PurgePosition *first = &progress->first_left[range];

	if (!progress->left[range] || candidate->slot < first->slot ||
		(candidate->slot == first->slot &&
		 ItemPointerCompare(unconstify(ItemPointerData *, &candidate->tid),
							&first->tid) < 0))
	{
		first->slot = candidate->slot;
		first->tid = candidate->tid;
	}
	progress->left[range] = true;
	progress->revisit_at = Min(progress->revisit_at, until);
}

/* A batch failed and was undone; finds out who is to blame. */
static void
batch_failed(TablePass *pass, PurgeBatch *batch)
{
	int			culprit = batch->current;
	Candidate  *candidate;

	if (!batch->has_started || is_nobodys_fault(pass->error.sqlstate))
	{
		save_positions(pass);
		table_failed(pass);
		return;
	}
	if (culprit < 0 && batch->count == 1)
		culprit = 0;
	pass->batch_limit = Max(batch->count / 2, 1);
	if (culprit < 0)
		return;

	candidate = &batch->candidates[culprit];
	if (is_busy_error(pass->error.sqlstate))
	{
		candidate->fate = CANDIDATE_BUSY;
		return;
	}
	pass->has_error = true;
	pass->total_refused++;
	record_error(pass);
	put_into_quarantine(pass, candidate, &batch->current_tid);
}

static void
put_into_quarantine(TablePass *pass, Candidate *candidate, ItemPointer tid)
{
	if (pass->table != NULL &&
		ttl_docs_quarantine(pass->table, tid, ttl_docs_clock()))
		candidate->fate = CANDIDATE_POISON;
	else
		candidate->fate = CANDIDATE_NO_ROOM;
}

/* Does the error mean that somebody else was there first? */
static bool
is_busy_error(int sqlstate)
{
	return sqlstate == ERRCODE_LOCK_NOT_AVAILABLE ||
		ERRCODE_TO_CATEGORY(sqlstate) == ERRCODE_TRANSACTION_ROLLBACK;
}

/* Would any other document have met it, too? */
static bool
is_nobodys_fault(int sqlstate)
{
	int			category = ERRCODE_TO_CATEGORY(sqlstate);

	return category == ERRCODE_INSUFFICIENT_RESOURCES ||
		category == ERRCODE_SYSTEM_ERROR ||
		(category == ERRCODE_OPERATOR_INTERVENTION &&
		 sqlstate != ERRCODE_QUERY_CANCELED);
}

/* The table as a whole could not be purged: ends the pass. */
static void
table_failed(TablePass *pass)
{
	int			failures = 0;

	if (is_busy_error(pass->error.sqlstate))
	{
		pass->found_busy = true;
		pass_is_through(pass);
		return;
	}
	pass->has_error = true;
	record_error(pass);
	if (pass->table != NULL && !pass->foreground)
		failures = pass->table->failures++;
	end_in_state(pass, PURGE_TROUBLE, ttl_docs_clock() +
				 growing_delay(FIRST_TROUBLE_DELAY, failures, LONGEST_TROUBLE_DELAY));
}

/* Keeps the error for stat_collections, and logs it if that is news. */
static void
record_error(TablePass *pass)
{
	PurgeTable *table = pass->table;
	TimestampTz clock = ttl_docs_clock();
	bool		is_news = table == NULL;

	if (table != NULL)
	{
		LWLockAcquire(ttl_docs_purge->lock, LW_EXCLUSIVE);
		is_news = !table->has_error ||
			clock >= table->logged_at +
			(strcmp(table->error.message, pass->error.message) == 0 ?
			 LOG_PERIOD_SAME : LOG_PERIOD_OTHER);
		table->has_error = true;
		table->error = pass->error;
		table->error_at = clock;
		if (is_news)
			table->logged_at = clock;
		LWLockRelease(ttl_docs_purge->lock);
	}
	if (is_news && !pass->foreground)
		ereport(LOG,
				(errcode(pass->error.sqlstate),
				 errmsg("could not purge documents of %s: %s",
						pass->name != NULL ? pass->name : psprintf("table %u", pass->relid),
						pass->error.message),
				 errhint("They stay invisible, and are tried again. See ttl_docs.stat_collections.")));
}

static void
end_in_state(TablePass *pass, PurgeState state, TimestampTz due)
{
	pass->has_ended = true;
	pass->state = state;
	pass->due = due;
}

/* Nothing more can be done now. */
static void
pass_is_through(TablePass *pass)
{
	PurgeProgress *progress = &pass->progress;
	TimestampTz clock = ttl_docs_clock();
	TimestampTz due = DT_NOEND;

	if (pass->found_busy || pass->found_no_room)
		progress->revisits++;
	else
		progress->revisits = 0;
	if (pass->found_busy)
		due = clock + growing_delay(ttl_docs_purge_naptime * INT64CONST(1000),
									progress->revisits - 1, LONGEST_BUSY_DELAY);
	if (pass->candidates.is_complete)
	{
		due = Min(due, pass->candidates.next_due);
		if (progress->settings.on && progress->settings.indexing == INDEXING_LAZY)
			due = Min(due, clock + LAZY_PERIOD);
	}
	for (SlotRange range = 0; range < RANGE_COUNT; range++)
		if (progress->left[range])
			due = Min(due, progress->revisit_at);
	if (pass->table != NULL)
		due = Min(due, ttl_docs_quarantine_due(pass->table));
	end_in_state(pass, pass->found_busy ? PURGE_WAITING : PURGE_IDLE, due);
}

/* A delay that doubles each time. */
static TimestampTz
growing_delay(TimestampTz first, int times, TimestampTz longest)
{
	return Min(first << Min(Max(times, 0), 16), Max(first, longest));
}

/* A pass ends within its candidates: the next one begins there. */
static void
save_positions(TablePass *pass)
{
	Candidates *candidates = &pass->candidates;
	bool		found[RANGE_COUNT] = {0};

	if (!pass->is_main || !pass->has_candidates || candidates->by_row)
		return;
	for (int i = candidates->done; i < candidates->count; i++)
	{
		Candidate  *candidate = &candidates->items[i];
		SlotRange	range = ttl_docs_slot_range(candidate->slot);

		if (found[range])
			continue;
		found[range] = true;
		pass->progress.next[range].slot = candidate->slot;
		pass->progress.next[range].tid = candidate->tid;
		if (found[RANGE_INHERITING] && found[RANGE_OWN])
			break;
	}
	for (SlotRange range = 0; range < RANGE_COUNT; range++)
		if (!found[range])
			pass->progress.next[range] = candidates->end[range];
}

/*
 * Ends a pass of a worker, through or not: keeps in shared memory how far it
 * has come, and when to look again.
 */
void
ttl_docs_end_pass(TablePass *pass, bool capped)
{
	PurgeTable *table = pass->table;
	Candidates *candidates = &pass->candidates;
	TimestampTz clock = ttl_docs_clock();
	TimestampTz oldest = DT_NOEND;

	if (!pass->has_ended)
	{
		save_positions(pass);
		end_in_state(pass, capped ? PURGE_CAPPED : PURGE_WORKING, clock);
	}
	if (table == NULL)
		return;
	if (pass->is_gone)
	{
		ttl_docs_forget_table(table);
		return;
	}

	if (pass->is_main && pass->has_candidates && candidates->done < candidates->count &&
		!candidates->by_row)
		oldest = ttl_docs_slot_due(candidates->items[candidates->done].slot,
								   candidates->default_ttl);
	for (SlotRange range = 0; range < RANGE_COUNT; range++)
		if (pass->left > 0 && pass->progress.left[range])
			oldest = Min(oldest, ttl_docs_slot_due(pass->progress.first_left[range].slot,
												   candidates->default_ttl));

	LWLockAcquire(ttl_docs_purge->lock, LW_EXCLUSIVE);
	table->progress = pass->progress;
	table->state = pass->state;
	table->visited = clock;
	if (!PURGE_IS_HOLD(pass->state))
		table->oldest = oldest;
	if (pass->state != PURGE_TROUBLE)
		table->failures = 0;
	if (pass->state == PURGE_IDLE || pass->state == PURGE_WAITING)
	{
		table->backlog = pass->left;
		table->unquarantined = pass->found_no_room ? pass->left : 0;
	}
	table->claimed_by = 0;
	ttl_docs_note_oldest(table, clock);
	LWLockRelease(ttl_docs_purge->lock);
	ttl_docs_lower_due(&table->due, pass->due);
}
