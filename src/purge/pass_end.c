/*-------------------------------------------------------------------------
 *
 * pass_end.c
 *		How a pass ends: the state of the table, and when to visit it again.
 *
 * A pass ends when it is through, when the table is held, gone or in trouble, or when
 * the visit is over.  A worker stores the result in shared memory, for the next pass
 * and for stat_collections.  If the epoch of the table was incremented during the
 * pass, the next pass begins from the start.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"

#include "purge/pass_internal.h"

/* interval of passes over a lazy collection: BRIN does not show due times */
#define LAZY_INTERVAL		(60 * USECS_PER_SEC)
/* how soon a held table is visited again to count its backlog */
#define HELD_INTERVAL		(10 * USECS_PER_SEC)
/* how late the purge may notice that Citus uses a shard */
#define MAX_MOVING_DELAY	(60 * USECS_PER_SEC)
#define MIN_TROUBLE_DELAY	(30 * USECS_PER_SEC)
#define MAX_TROUBLE_DELAY	(3600 * USECS_PER_SEC)

static void end_in_state(TablePass *pass, PurgeState state, TimestampTz next_visit);
static TimestampTz next_visit_of(const TablePass *pass);
static void save_block(TablePass *pass);
static TimestampTz oldest_remaining(const TablePass *pass);

static void
end_in_state(TablePass *pass, PurgeState state, TimestampTz next_visit)
{
	pass->has_ended = pass->had_turn = true;
	pass->state = state;
	pass->next_visit = next_visit;
}

/* The table is no longer part of a collection. */
void
ttl_docs_pass_is_gone(TablePass *pass)
{
	pass->is_gone = true;
	end_in_state(pass, PURGE_IDLE, DT_NOEND);
}

/*
 * The table is held, and pass->state is the reason.  Most holds end with a command,
 * which announces the change.
 */
void
ttl_docs_pass_is_held(TablePass *pass)
{
	TimestampTz clock = ttl_docs_clock();
	TimestampTz next_visit = clock + PURGE_RECHECK_TIME;

	if (pass->state == PURGE_BLOCKED)
	{
		ttl_docs_make_error(&pass->error, ERRCODE_INSUFFICIENT_PRIVILEGE,
							"the delete would run untrusted code as the owner of the table",
							psprintf("Blocked by %s.", pass->target.detail));
		ttl_docs_record_pass_error(pass);
	}
	/* pg_repack does not announce its end */
	if (pass->state == PURGE_REPACKED)
		next_visit = Min(next_visit, clock + HELD_INTERVAL);
	/* neither does Citus announce that it uses a shard */
	if (pass->state == PURGE_MOVING)
		next_visit = clock + ttl_docs_growing_delay(HELD_INTERVAL,
													pass->progress.table_busy++,
													MAX_MOVING_DELAY);
	/* stat_collections should show the growing backlog */
	if (pass->candidates.is_complete || pass->candidates.has_counted_all)
		next_visit = Min(next_visit,
						 Max(pass->candidates.next_due, clock + HELD_INTERVAL));
	next_visit = Min(next_visit, pass->recount_at);
	if (pass->state == PURGE_GRACE)
		next_visit = Min(next_visit, clock +
						 Max(pass->target.collection.settings.grace_until -
							 ttl_docs_server_clock(), 0));
	end_in_state(pass, pass->state, next_visit);
}

/* Nothing is deleted until then, because the table will be truncated soon. */
void
ttl_docs_pass_awaits_truncation(TablePass *pass, TimestampTz next_visit)
{
	end_in_state(pass, PURGE_TRUNCATING, next_visit);
}

/* An error that is not the fault of a document: pass->error. */
void
ttl_docs_pass_failed(TablePass *pass)
{
	PurgeTable *table = pass->target.table;
	int			failures = 0;

	if (ttl_docs_error_kind(&pass->error) == PURGE_ERROR_BUSY)
	{
		pass->table_is_busy = true;
		ttl_docs_pass_is_through(pass);
		return;
	}
	pass->has_error = true;
	ttl_docs_record_pass_error(pass);
	if (table != NULL && !pass->foreground)
	{
		LWLockAcquire(ttl_docs_purge_shared->lock, LW_EXCLUSIVE);
		failures = table->failures++;
		LWLockRelease(ttl_docs_purge_shared->lock);
	}
	end_in_state(pass, PURGE_TROUBLE, ttl_docs_clock() +
				 ttl_docs_growing_delay(MIN_TROUBLE_DELAY, failures,
										MAX_TROUBLE_DELAY));
}

/* Nothing more can be deleted now. */
void
ttl_docs_pass_is_through(TablePass *pass)
{
	PurgeProgress *progress = &pass->progress;

	if (!ttl_docs_has_left(progress))
		progress->left.revisits = 0;
	if (pass->table_is_busy)
		end_in_state(pass, PURGE_WAITING, ttl_docs_clock() +
					 ttl_docs_busy_delay(progress->table_busy++));
	else
	{
		progress->table_busy = 0;
		end_in_state(pass, pass->found_busy || progress->left.busy > 0 ?
					 PURGE_WAITING : PURGE_IDLE, next_visit_of(pass));
	}
}

/* When to visit a table again that was searched to its end. */
static TimestampTz
next_visit_of(const TablePass *pass)
{
	const PurgeProgress *progress = &pass->progress;
	TimestampTz next_visit = ttl_docs_revisit_at(progress);

	if (pass->target.table != NULL)
		next_visit = Min(next_visit, ttl_docs_next_retry(pass->target.table));
	if (pass->candidates.is_complete)
	{
		next_visit = Min(next_visit, pass->candidates.next_due);
		if (progress->settings.on && progress->settings.indexing == INDEXING_LAZY)
			next_visit = Min(next_visit, ttl_docs_clock() + LAZY_INTERVAL);
	}
	return next_visit;
}

/* Records pass->error for stat_collections.  A worker also logs it. */
void
ttl_docs_record_pass_error(TablePass *pass)
{
	char		name[32];

	snprintf(name, sizeof(name), "table %u", pass->target.relid);
	ttl_docs_record_error(pass->target.table,
						  pass->target.name != NULL ? pass->target.name : name,
						  &pass->error, !pass->foreground);
}

/*
 * The pass ends before all candidates are done.  The next pass begins with the first
 * one that is not done.
 */
void
ttl_docs_save_positions(TablePass *pass)
{
	Candidates *candidates = &pass->candidates;
	bool		found[RANGE_COUNT] = {0};

	if (!pass->has_candidates || pass->is_retry)
		return;
	if (candidates->by_row)
	{
		save_block(pass);
		return;
	}
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

/* The same for candidates that were found by BRIN. */
static void
save_block(TablePass *pass)
{
	Candidates *candidates = &pass->candidates;
	ItemPointer next;

	if (candidates->done == candidates->count)
		return;
	next = &candidates->items[candidates->done].tid;
	pass->progress.next_block = ItemPointerGetBlockNumber(next);
	pass->progress.next_row = *next;
}

/* The due time of the oldest document that the pass has not deleted. */
static TimestampTz
oldest_remaining(const TablePass *pass)
{
	const Candidates *candidates = &pass->candidates;
	const LeftDocuments *left = &pass->progress.left;
	TimestampTz oldest = DT_NOEND;

	if (pass->has_candidates && !candidates->by_row &&
		candidates->done < candidates->count)
		oldest = ttl_docs_slot_due(candidates->items[candidates->done].slot,
								   candidates->default_ttl);
	for (SlotRange range = 0; range < RANGE_COUNT; range++)
		if (left->busy > 0 && left->has_position[range])
			oldest = Min(oldest,
						 ttl_docs_slot_due(left->first[range].slot,
										   pass->progress.settings.default_ttl));
	return oldest;
}

/*
 * Ends the pass of a worker, whether it is through or not, and stores the result in
 * shared memory.
 */
void
ttl_docs_end_pass(TablePass *pass, bool capped)
{
	PurgeTable *table = pass->target.table;
	TimestampTz clock = ttl_docs_clock();

	if (!pass->has_ended)
	{
		ttl_docs_save_positions(pass);
		pass->state = capped ? PURGE_CAPPED : PURGE_WORKING;
		pass->next_visit = clock;
	}
	if (table == NULL)
		return;
	if (pass->is_gone)
	{
		ttl_docs_forget_table(pass->target.relid, MyProcPid);
		return;
	}

	LWLockAcquire(ttl_docs_purge_shared->lock, LW_EXCLUSIVE);
	table->progress = pass->progress;
	if (table->epoch != pass->epoch)
	{
		table->progress.is_set = false;
		pass->next_visit = Min(pass->next_visit, clock);
	}
	table->state = pass->state;
	/* a table that had no turn keeps its old value, to come first in the next visit */
	if (pass->had_turn)
		table->visited = clock;
	if (!PURGE_IS_HOLD(pass->state))
		table->oldest = oldest_remaining(pass);
	if (pass->state != PURGE_TROUBLE)
		table->failures = 0;
	if ((pass->state == PURGE_IDLE || pass->state == PURGE_WAITING) &&
		!pass->table_is_busy)
	{
		table->backlog = pass->progress.left.busy;
		table->undeletable = pass->progress.left.undeletable;
	}
	if (!PURGE_IS_HOLD(pass->state) && pass->state != PURGE_NO_INDEX)
		table->is_swept = pass->state == PURGE_IDLE && table->quarantined == 0 &&
			!ttl_docs_has_left(&pass->progress);
	table->batch_limit = pass->batch_limit < pass->row_limit ? pass->batch_limit : 0;
	table->taken_by = 0;
	ttl_docs_observe_oldest(table, clock);
	LWLockRelease(ttl_docs_purge_shared->lock);
	ttl_docs_lower_time(&table->next_visit, pass->next_visit);
}
