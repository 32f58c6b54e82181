/*-------------------------------------------------------------------------
 *
 * pass.c
 *		A pass over a table: from the first expired document to the last.
 *
 * A pass is made of steps, each in a transaction of its own, so that whoever
 * runs it can pause, turn to another table, or stop for good between any two of
 * them.  A step looks for candidates (find.c) or deletes a batch of them
 * (batch.c).  First come the documents in quarantine whose time it is,
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

#include "purge/purge_internal.h"

/* entries of the index that the first look of a pass takes, and the largest */
#define FIRST_FIND		65536
#define LARGEST_FIND	131072
/* a backlog is counted so often, at the most */
#define COUNT_PERIOD	(10 * USECS_PER_SEC)
/* a held table whose backlog was too long to count to its end, after that */
#define RECOUNT_PERIOD	(30 * USECS_PER_SEC)
/* a BRIN index cannot tell when something is due */
#define LAZY_PERIOD		(60 * USECS_PER_SEC)
/* and how far its earliest expiry is searched */
#define LAZY_HORIZON	(180 * USECS_PER_SEC)
#define LONGEST_BUSY_DELAY		(60 * USECS_PER_SEC)
#define FIRST_TROUBLE_DELAY		(30 * USECS_PER_SEC)
#define LONGEST_TROUBLE_DELAY	(3600 * USECS_PER_SEC)
#define MAX_RETRIES		100		/* documents in quarantine, in a pass */

static TimestampTz pass_clock(const TablePass *pass);
static TimestampTz busy_delay(const PurgeProgress *progress);
static bool take_quarantined(TablePass *pass);
static void look(TablePass *pass);
static void look_work(void *arg);
static void look_at_table(TablePass *pass, Relation rel,
						  const Collection *collection);
static void look_into_index(TablePass *pass, Relation rel, Oid index_oid,
							const Collection *collection);
static void begin_scan(TablePass *pass, TimestampTz clock);
static bool found_nothing(const TablePass *pass);
static TimestampTz expiry_after_look(const TablePass *pass, IndexingMode indexing);
static bool is_swept(const PurgeTable *table, const CollectionSettings *settings);
static void note_backlog(TablePass *pass, TimestampTz clock);
static void come_back_for_left(PurgeProgress *progress, TimestampTz clock);
static bool delete_some(TablePass *pass);
static void batch_work(void *arg);
static bool batch_has_ended_pass(TablePass *pass, PurgeBatch *batch);
static void apply_batch(TablePass *pass, PurgeBatch *batch);
static void apply_outcome(TablePass *pass, Candidate *candidate,
						  const RowOutcome *outcome);
static void apply_quarantine_outcome(TablePass *pass, Candidate *candidate,
									 const RowOutcome *outcome);
static bool candidates_are_through(TablePass *pass);
static bool should_look_once_more(const TablePass *pass);
static void leave_behind(TablePass *pass, const Candidate *candidate,
						 TimestampTz until);
static void batch_failed(TablePass *pass, PurgeBatch *batch);
static void blame(TablePass *pass, Candidate *candidate, ItemPointer tid);
static void table_failed(TablePass *pass);
static void record_error(TablePass *pass);
static void end_in_state(TablePass *pass, PurgeState state, TimestampTz due);
static void pass_is_held(TablePass *pass);
static void pass_is_through(TablePass *pass);
static void save_positions(TablePass *pass);
static TimestampTz oldest_left(const TablePass *pass);

/* Starts a pass; the caller has filled in what is given. */
void
ttl_docs_begin_pass(TablePass *pass)
{
	pass->find_limit = FIRST_FIND;
	pass->batch_limit = pass->row_limit;
	pass->state = PURGE_WORKING;
	pass->due = pass->recount_at = DT_NOEND;
	pass->ahead = DT_NOBEGIN;
	pass->is_main = pass->foreground || pass->table == NULL;
	if (!pass->foreground && pass->table != NULL)
	{
		LWLockAcquire(ttl_docs_purge_shared->lock, LW_SHARED);
		pass->progress = pass->table->progress;
		pass->epoch = pass->table->epoch;
		pass->goes_on = pass->table->state == PURGE_WORKING ||
			pass->table->state == PURGE_CAPPED;
		if (pass->table->batch_limit > 0)
			pass->batch_limit = Min(pass->table->batch_limit, pass->row_limit);
		LWLockRelease(ttl_docs_purge_shared->lock);
		/* at once: whatever becomes of this pass, the position keeps it */
		if (pass->progress.is_set && pass->told != DT_NOBEGIN)
			ttl_docs_rewind_progress(&pass->progress, pass->told);
	}
}

/* Goes on with a pass; false if there is nothing more to do. */
bool
ttl_docs_step_pass(TablePass *pass)
{
	pass->deleted = 0;
	pass->deletes = pass->was_work = false;
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

/* When to come back for what is busy: soon, and then less and less often. */
static TimestampTz
busy_delay(const PurgeProgress *progress)
{
	return ttl_docs_growing_delay(ttl_docs_purge_naptime * INT64CONST(1000),
								  progress->revisits, LONGEST_BUSY_DELAY);
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
			pass_is_held(pass);
			return;
		default:
			break;
	}
	if (found->count == 0 || pass->is_last_look)
	{
		(void) candidates_are_through(pass);
		return;
	}
	pass->has_candidates = true;
	pass->deleted_before = pass->total_deleted;
	pass->find_limit = Min(pass->find_limit * 4, LARGEST_FIND);

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
	OwnerSwitch before;

	pass->look_end = BATCH_TABLE_GONE;
	if (pass->foreground)
	{
		/* locks of a block are kept: a partition comes after its root */
		if (ttl_docs_lookup_collection(pass->relid, &collection))
			LockRelationOid(collection.root, AccessShareLock);
		LockRelationOid(pass->relid, AccessShareLock);
	}
	else if (!ConditionalLockRelationOid(pass->relid, AccessShareLock))
	{
		pass->look_end = BATCH_TABLE_BUSY;
		return;
	}
	/* keeps changes of settings out while we look */
	pass->may_raise = pass->table != NULL && !pass->in_block &&
		ConditionalLockRelationOid(pass->relid, RowExclusiveLock);
	rel = try_table_open(pass->relid, NoLock);
	if (rel == NULL)
		return;
	if (ttl_docs_lookup_collection(pass->relid, &collection) &&
		rel->rd_rel->relkind == RELKIND_RELATION)
	{
		ttl_docs_become_owner(rel, &before);
		look_at_table(pass, rel, &collection);
		ttl_docs_become_caller(&before);
	}
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
	pass->hold_ends = settings->grace_until;
	if (!settings->on &&
		((settings->written_floor == DT_NOBEGIN && settings->due_floor == DT_NOBEGIN) ||
		 (!OidIsValid(index_oid) && is_swept(pass->table, settings))))
	{
		/* never on, or swept before the index went: nobody is held up */
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

/* Has all that had expired when TTL was turned off been purged? */
static bool
is_swept(const PurgeTable *table, const CollectionSettings *settings)
{
	return table != NULL && table->is_swept && table->progress.is_set &&
		!table->progress.settings.on &&
		table->progress.settings.written_floor == settings->written_floor &&
		table->progress.settings.due_floor == settings->due_floor;
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
		(held || pass->goes_on) &&
		clock >= pass->table->counted + COUNT_PERIOD;

	if (!ttl_docs_progress_holds(&pass->progress, index, collection, clock))
	{
		/* a table that was rewritten has its rows elsewhere */
		if (pass->progress.is_set && pass->table != NULL &&
			pass->progress.index_file != index->rd_rel->relfilenode)
			ttl_docs_empty_quarantine(pass->table);
		ttl_docs_reset_progress(&pass->progress, index, collection, clock);
		pass->scan.table = NULL;
	}
	else
		come_back_for_left(&pass->progress, clock);
	pass->progress.clock = clock;
	/* somebody waits, and wants what has expired in the slot at hand, too */
	if (pass->foreground && !pass->is_last_look)
		clock = ttl_docs_time_past_slot(clock);
	if (pass->may_raise && pass->scan.table == NULL)
		begin_scan(pass, clock);
	if (!held)
		ttl_docs_find_candidates(rel, index, collection, &pass->progress, clock,
								 pass->ahead, pass->find_limit, count,
								 &pass->candidates);
	else if (count)
	{
		ttl_docs_find_candidates(rel, index, collection, &pass->progress, clock,
								 pass->ahead, 1, true, &pass->candidates);
		note_backlog(pass, clock);
		if (!pass->candidates.has_counted_all)
			pass->recount_at = clock +
				(collection->settings.indexing == INDEXING_LAZY ? LAZY_PERIOD : RECOUNT_PERIOD);
	}
	else if (pass->table != NULL)
		pass->recount_at = pass->table->counted + COUNT_PERIOD;
	pass->was_work = pass->candidates.has_read_many;
	pass->first_live = Min(pass->first_live, pass->candidates.first_live);
	if (pass->scan.table != NULL && (!held || count) && found_nothing(pass))
		ttl_docs_end_scan(&pass->scan,
						  expiry_after_look(pass, collection->settings.indexing));
	index_close(index, AccessShareLock);
}

/*
 * Begins a scan for the earliest expiry.  It goes on until a look finds nothing: what
 * others write meanwhile may come behind the position of the pass.
 */
static void
begin_scan(TablePass *pass, TimestampTz clock)
{
	ttl_docs_begin_scan(&pass->scan, SCANNER_PURGE, pass->table);
	pass->first_live = DT_NOEND;
	/* looking ahead costs reads, and is only worth it if the value has passed */
	pass->ahead = pass->progress.next_block == 0 &&
		ttl_docs_table_expiry(pass->table) <= clock ? clock + LAZY_HORIZON : DT_NOBEGIN;
}

/* Did the look find no expired document, and has the pass left none behind? */
static bool
found_nothing(const TablePass *pass)
{
	return pass->candidates.count == 0 && pass->candidates.is_complete &&
		pass->scan.table->quarantined == 0 &&
		pass->progress.left_busy == 0 && pass->progress.left_no_room == 0;
}

/* A moment before which nothing in the table expires, after such a look. */
static TimestampTz
expiry_after_look(const TablePass *pass, IndexingMode indexing)
{
	PurgeTable *table = pass->scan.table;
	TimestampTz expiry = ttl_docs_earliest_in_slot(pass->candidates.next_due);

	/* live documents that the pass has met */
	for (SlotRange range = 0; range < RANGE_COUNT; range++)
		if (pass->progress.left[range])
			expiry = Min(expiry, pass->progress.revisit_at);
	/* documents reported before the first look may be behind a worker's position */
	if (!pass->foreground)
		expiry = Min(expiry,
					 ttl_docs_earliest_in_slot(ttl_docs_read_time(&table->due)));
	if (indexing == INDEXING_LAZY)
		expiry = Min(Min(expiry, pass->first_live), ttl_docs_earliest_in_slot(pass->ahead));
	return expiry;
}

/* Keeps in shared memory what a look has found. */
static void
note_backlog(TablePass *pass, TimestampTz clock)
{
	const Candidates *found = &pass->candidates;
	PurgeTable *table = pass->table;

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

/* Is it time to come back for what was left? */
static void
come_back_for_left(PurgeProgress *progress, TimestampTz clock)
{
	if (progress->revisit_at > clock)
		return;
	for (SlotRange range = 0; range < RANGE_COUNT; range++)
	{
		if (progress->left[range] &&
			ttl_docs_compare_positions(&progress->first_left[range],
									   &progress->next[range]) < 0)
			progress->next[range] = progress->first_left[range];
		progress->left[range] = false;
	}
	progress->revisit_at = DT_NOEND;
	progress->left_busy = progress->left_no_room = 0;
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
	batch.owns_transaction = !pass->in_block;
	batch.by_row = candidates->by_row;
	batch.skips_quarantined = pass->is_main && !pass->foreground;
	batch.index = pass->is_main ? pass->progress.index : InvalidOid;
	batch.index_file = pass->progress.index_file;
	batch.candidates = candidates->items + candidates->done;
	/* of those in quarantine each may fail */
	batch.count = Min(pass->is_main ? Min(pass->batch_limit, pass->row_limit) : 1,
					  candidates->count - candidates->done);
	batch.instant = pass->instant;
	batch.time_limit = pass->time_limit;

	pass->deletes = pass->was_work = pass->had_turn = true;
	if (!pass->run(batch_work, &batch, &pass->error))
		batch_failed(pass, &batch);
	else if (!batch_has_ended_pass(pass, &batch) && pass->has_candidates)
	{
		apply_batch(pass, &batch);
		if (candidates->done == candidates->count)
			return candidates_are_through(pass);
	}
	return !pass->has_ended;
}

/* In a transaction. */
static void
batch_work(void *arg)
{
	ttl_docs_run_batch(arg);
}

/* Was there a reason not to delete anything? */
static bool
batch_has_ended_pass(TablePass *pass, PurgeBatch *batch)
{
	switch (batch->end)
	{
		case BATCH_DONE:
			return false;
		case BATCH_STALE:
			pass->has_candidates = false;
			return false;
		case BATCH_TABLE_GONE:
			pass->is_gone = true;
			end_in_state(pass, PURGE_IDLE, DT_NOEND);
			break;
		case BATCH_TABLE_BUSY:
			pass->found_busy = true;
			save_positions(pass);
			pass_is_through(pass);
			break;
		case BATCH_HELD:
			save_positions(pass);
			pass->detail = batch->detail;
			pass->state = batch->state;
			pass_is_held(pass);
			break;
	}
	return true;
}

/* A batch is committed: what became of its candidates? */
static void
apply_batch(TablePass *pass, PurgeBatch *batch)
{
	Candidates *candidates = &pass->candidates;
	ListCell   *lc;

	foreach(lc, batch->outcomes)
	{
		RowOutcome *outcome = lfirst(lc);
		Candidate  *candidate = &batch->candidates[outcome->candidate];

		if (pass->is_main)
			apply_outcome(pass, candidate, outcome);
		else
			apply_quarantine_outcome(pass, candidate, outcome);
	}
	list_free_deep(batch->outcomes);
	/* what was in quarantine, and of which nothing was said, is gone */
	for (int i = 0; !pass->is_main && i < batch->consumed; i++)
		if (batch->candidates[i].fate == CANDIDATE_OPEN)
			ttl_docs_unquarantine(pass->table, &batch->candidates[i].tid);

	candidates->done += batch->consumed;
	pass->deleted = batch->deleted;
	pass->total_deleted += batch->deleted;
	if (pass->is_main)
		pass->batch_limit = Min(pass->batch_limit * 2, pass->row_limit);
	if (pass->table == NULL)
		return;
	if (pass->in_block)
	{
		ttl_docs_count_purged_at_commit(pass->table, batch->deleted);
		return;
	}
	ttl_docs_count_purged(pass->table, batch->deleted);
	LWLockAcquire(ttl_docs_purge_shared->lock, LW_EXCLUSIVE);
	if (pass->is_main)
		pass->table->backlog = Max(pass->table->backlog - batch->consumed, 0);
	LWLockRelease(ttl_docs_purge_shared->lock);
}

/* A candidate of the purge index that was not just deleted. */
static void
apply_outcome(TablePass *pass, Candidate *candidate, const RowOutcome *outcome)
{
	PurgeProgress *progress = &pass->progress;
	TimestampTz clock = ttl_docs_clock();
	ItemPointerData tid = outcome->tid;

	switch (outcome->fate)
	{
		case CANDIDATE_OPEN:
			/* live after all; without its time it will never expire */
			if (outcome->until < DT_NOEND)
				leave_behind(pass, candidate, outcome->until);
			break;
		case CANDIDATE_BUSY:
			pass->found_busy = true;
			progress->left_busy++;
			leave_behind(pass, candidate, clock + busy_delay(progress));
			break;
		case CANDIDATE_POISON:
			ttl_docs_make_error(&pass->error, ERRCODE_TRIGGERED_ACTION_EXCEPTION,
								"a BEFORE trigger keeps an expired document from being deleted");
			blame(pass, candidate, &tid);
			if (candidate->fate != CANDIDATE_NO_ROOM)
				break;
			/* fall through */
		case CANDIDATE_NO_ROOM:
			pass->found_no_room = true;
			progress->left_no_room++;
			leave_behind(pass, candidate, clock +
						 ttl_docs_growing_delay(FIRST_TROUBLE_DELAY, progress->revisits,
												LONGEST_TROUBLE_DELAY));
			break;
		case CANDIDATE_RELEASED:
			/* if it is not committed after all, a worker has to find it */
			ttl_docs_unquarantine(pass->table, &tid);
			ttl_docs_begin_anew(pass->table);
			break;
	}
}

/* A document in quarantine that was tried and is still there. */
static void
apply_quarantine_outcome(TablePass *pass, Candidate *candidate,
						 const RowOutcome *outcome)
{
	switch (outcome->fate)
	{
		case CANDIDATE_OPEN:
			/* live, so it is another one by now */
			break;
		case CANDIDATE_BUSY:
			pass->found_busy = true;
			candidate->fate = CANDIDATE_BUSY;
			if (!ttl_docs_quarantine(pass->table, &candidate->tid, ttl_docs_clock()))
				ttl_docs_begin_anew(pass->table);
			break;
		case CANDIDATE_POISON:
			ttl_docs_make_error(&pass->error, ERRCODE_TRIGGERED_ACTION_EXCEPTION,
								"a BEFORE trigger keeps an expired document from being deleted");
			blame(pass, candidate, &candidate->tid);
			/* fall through */
		case CANDIDATE_NO_ROOM:
			/* resume_purge() has emptied it, and somebody else has filled it */
			if (candidate->fate == CANDIDATE_NO_ROOM)
				ttl_docs_begin_anew(pass->table);
			break;
		case CANDIDATE_RELEASED:
			break;
	}
}

/* All candidates are dealt with: are there more?  False if not. */
static bool
candidates_are_through(TablePass *pass)
{
	Candidates *candidates = &pass->candidates;

	if (candidates->items != NULL)
		pfree(candidates->items);
	candidates->items = NULL;
	pass->has_candidates = false;
	if (!pass->is_main)
	{
		pass->is_main = true;
		return true;
	}
	for (SlotRange range = 0; range < RANGE_COUNT; range++)
		pass->progress.next[range] = candidates->end[range];
	pass->progress.next_block = candidates->is_complete ? 0 : candidates->end_block;
	if (!candidates->is_complete)
		return true;
	if (should_look_once_more(pass))
	{
		/* CALL purge() leaves what has expired since it began */
		pass->is_last_look = pass->foreground;
		return true;
	}
	pass_is_through(pass);
	return false;
}

/*
 * Should the pass end with a look that finds nothing?  That look tells the earliest
 * expiry of the table.  It must not find the same documents again.
 */
static bool
should_look_once_more(const TablePass *pass)
{
	const Candidates *candidates = &pass->candidates;

	return pass->may_raise && !pass->is_last_look && candidates->count > 0 &&
		pass->progress.left_busy == 0 && pass->progress.left_no_room == 0 &&
		(!candidates->by_row ||
		 pass->total_deleted - pass->deleted_before == candidates->count);
}

/* The pass goes on without a document, and comes back for it. */
static void
leave_behind(TablePass *pass, const Candidate *candidate, TimestampTz until)
{
	PurgeProgress *progress = &pass->progress;
	SlotRange	range = ttl_docs_slot_range(candidate->slot);
	PurgePosition position;

	position.slot = candidate->slot;
	position.tid = candidate->tid;
	if (!progress->left[range] ||
		ttl_docs_compare_positions(&position, &progress->first_left[range]) < 0)
		progress->first_left[range] = position;
	progress->left[range] = true;
	progress->revisit_at = Min(progress->revisit_at, until);
}

/* A batch failed and was undone; finds out who is to blame. */
static void
batch_failed(TablePass *pass, PurgeBatch *batch)
{
	PurgeErrorKind kind = ttl_docs_error_kind(&pass->error);
	int			culprit = batch->current;
	Candidate  *candidate;

	if (!batch->has_started || kind == PURGE_ERROR_OF_TABLE)
	{
		save_positions(pass);
		table_failed(pass);
		return;
	}
	/* somebody has interrupted us between two documents */
	if (culprit < 0 && !batch->at_end &&
		pass->error.shown.sqlstate == ERRCODE_QUERY_CANCELED)
		kind = PURGE_ERROR_BUSY;
	if (culprit < 0 && batch->count == 1)
		culprit = 0;
	if (pass->is_main)
		pass->batch_limit = Max(batch->count / 2, 1);
	if (culprit < 0)
		return;

	candidate = &batch->candidates[culprit];
	if (kind == PURGE_ERROR_BUSY)
		candidate->fate = CANDIDATE_BUSY;
	else
		blame(pass, candidate, batch->has_row ? &batch->current_tid : NULL);
}

/*
 * A document cannot be deleted: it goes into quarantine, if its row is known and
 * there is room.
 */
static void
blame(TablePass *pass, Candidate *candidate, ItemPointer tid)
{
	Assert(candidate != NULL);
	pass->has_error = true;
	pass->total_refused++;
	record_error(pass);
	if (tid != NULL && pass->table != NULL &&
		ttl_docs_quarantine(pass->table, tid, ttl_docs_clock()))
		candidate->fate = CANDIDATE_POISON;
	else
		candidate->fate = CANDIDATE_NO_ROOM;
}

/* The table as a whole could not be purged: ends the pass. */
static void
table_failed(TablePass *pass)
{
	int			failures = 0;

	if (ttl_docs_error_kind(&pass->error) == PURGE_ERROR_BUSY)
	{
		pass->found_busy = true;
		pass_is_through(pass);
		return;
	}
	pass->has_error = true;
	record_error(pass);
	if (pass->table != NULL && !pass->foreground)
	{
		LWLockAcquire(ttl_docs_purge_shared->lock, LW_EXCLUSIVE);
		failures = pass->table->failures++;
		LWLockRelease(ttl_docs_purge_shared->lock);
	}
	end_in_state(pass, PURGE_TROUBLE, ttl_docs_clock() +
				 ttl_docs_growing_delay(FIRST_TROUBLE_DELAY, failures,
										LONGEST_TROUBLE_DELAY));
}

static void
record_error(TablePass *pass)
{
	char		name[32];

	snprintf(name, sizeof(name), "table %u", pass->relid);
	ttl_docs_record_error(pass->table, pass->name != NULL ? pass->name : name,
						  &pass->error, !pass->foreground);
}

static void
end_in_state(TablePass *pass, PurgeState state, TimestampTz due)
{
	pass->has_ended = pass->had_turn = true;
	pass->state = state;
	pass->due = due;
}

/* There is a reason not to purge; whoever takes it away tells us, or not. */
static void
pass_is_held(TablePass *pass)
{
	TimestampTz clock = ttl_docs_clock();
	TimestampTz due = clock + PURGE_ROUND_TIME;

	if (pass->state == PURGE_BLOCKED)
	{
		ttl_docs_make_error(&pass->error, ERRCODE_INSUFFICIENT_PRIVILEGE,
							psprintf("%s would run somebody else's code as the owner of the table",
									 pass->detail));
		record_error(pass);
	}
	/* nobody tells when pg_repack is done */
	if (pass->state == PURGE_REPACKED)
		due = Min(due, clock + COUNT_PERIOD);
	/* what expires meanwhile should show */
	if (pass->candidates.is_complete || pass->candidates.has_counted_all)
		due = Min(due, Max(pass->candidates.next_due, clock + COUNT_PERIOD));
	due = Min(due, pass->recount_at);
	if (pass->state == PURGE_GRACE)
		due = Min(due, clock + Max(pass->hold_ends - ttl_docs_server_clock(), 0));
	end_in_state(pass, pass->state, due);
}

/* Nothing more can be done now. */
static void
pass_is_through(TablePass *pass)
{
	PurgeProgress *progress = &pass->progress;
	TimestampTz clock = ttl_docs_clock();
	TimestampTz due = DT_NOEND;

	if (pass->found_busy)
		due = clock + busy_delay(progress);
	if (pass->found_busy || pass->found_no_room)
		progress->revisits++;
	else if (progress->left_busy == 0 && progress->left_no_room == 0)
		progress->revisits = 0;
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
	end_in_state(pass, pass->found_busy || progress->left_busy > 0 ?
				 PURGE_WAITING : PURGE_IDLE, due);
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

/* When the oldest document was due that the pass has not deleted. */
static TimestampTz
oldest_left(const TablePass *pass)
{
	const Candidates *candidates = &pass->candidates;
	const PurgeProgress *progress = &pass->progress;
	TimestampTz oldest = DT_NOEND;

	if (pass->is_main && pass->has_candidates && !candidates->by_row &&
		candidates->done < candidates->count)
		oldest = ttl_docs_slot_due(candidates->items[candidates->done].slot,
								   candidates->default_ttl);
	for (SlotRange range = 0; range < RANGE_COUNT; range++)
		if (progress->left_busy > 0 && progress->left[range])
			oldest = Min(oldest, ttl_docs_slot_due(progress->first_left[range].slot,
												   progress->settings.default_ttl));
	return oldest;
}

/*
 * Ends a pass of a worker, through or not: keeps in shared memory how far it
 * has come, and when to look again.
 */
void
ttl_docs_end_pass(TablePass *pass, bool capped)
{
	PurgeTable *table = pass->table;
	TimestampTz clock = ttl_docs_clock();

	if (!pass->has_ended)
	{
		save_positions(pass);
		pass->state = capped ? PURGE_CAPPED : PURGE_WORKING;
		pass->due = clock;
	}
	if (table == NULL)
		return;
	if (pass->is_gone)
	{
		ttl_docs_forget_table(table);
		return;
	}

	LWLockAcquire(ttl_docs_purge_shared->lock, LW_EXCLUSIVE);
	table->progress = pass->progress;
	if (table->epoch != pass->epoch)
	{
		table->progress.is_set = false;
		pass->due = Min(pass->due, clock);
	}
	table->state = pass->state;
	/* one that had no turn comes first the next time */
	if (pass->had_turn)
		table->visited = clock;
	if (!PURGE_IS_HOLD(pass->state))
		table->oldest = oldest_left(pass);
	if (pass->state != PURGE_TROUBLE)
		table->failures = 0;
	if (pass->state == PURGE_IDLE || pass->state == PURGE_WAITING)
	{
		table->backlog = pass->progress.left_busy;
		table->unquarantined = pass->progress.left_no_room;
		table->is_swept = table->backlog == 0 && table->unquarantined == 0 &&
			table->quarantined == 0;
	}
	table->batch_limit = pass->batch_limit < pass->row_limit ? pass->batch_limit : 0;
	table->claimed_by = 0;
	ttl_docs_note_oldest(table, clock);
	LWLockRelease(ttl_docs_purge_shared->lock);
	ttl_docs_lower_time(&table->due, pass->due);
}
