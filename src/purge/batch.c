/*-------------------------------------------------------------------------
 *
 * batch.c
 *		Deletes a batch of candidates.
 *
 * The caller has a transaction (or subtransaction) and an active snapshot, and
 * rolls it back on ERROR.  batch->current is then the candidate that failed.
 *
 * Judging.  Each candidate is fetched and judged again, at the clock or at
 * batch->instant.  Only a row version that is expired is deleted.  The fetch uses a
 * dirty snapshot, which also shows changes that are not committed.  So there are
 * three cases:
 * 1. The row is there, and no other session is changing it.
 * 2. Another session has written or locked the row: the candidate is busy, and left.
 * 3. The row is gone for good.  A row that was renewed has another version, which
 *    is live.
 *
 * Locks.  target.c locks the table.  A batch waits for no row: table_tuple_delete()
 * does not wait here, and if BEFORE ROW triggers need the row locked first, a row
 * that another session has locked is busy.  A foreign key action can wait.  In a
 * worker, lock_timeout limits that wait (worker.c).
 *
 * Rights.  The batch runs as the owner of the table.  Deferred triggers fire with the
 * delete (core/delete.c).  At the end of the transaction they would run as another
 * user, and it would be unknown which document causes an error.
 *
 * A batch ends with its last candidate, or after its time limit, or when it has
 * written MAX_BATCH_BYTES of WAL.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/tableam.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/catalog.h"
#include "commands/trigger.h"
#include "executor/instrument.h"
#include "executor/tuptable.h"
#include "miscadmin.h"
#include "replication/message.h"
#include "storage/bufmgr.h"
#include "utils/json.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "purge/pass_internal.h"

/* WAL that a batch may write before it ends */
#define MAX_BATCH_BYTES		UINT64CONST(4194304)
/* without triggers, deletes are fast: check the limits once per this many rows */
#define ROWS_PER_CHECK		16

/* The state of a batch while it runs */
typedef struct BatchWork
{
	RowDeleter *deleter;
	ExpiryBounds bounds;
	struct IndexFetchTableData *fetch;
	TupleTableSlot *row;
	BlockNumber nblocks;		/* of the table, when the batch began */
	bool		has_sent_message;	/* to logical decoding */
} BatchWork;

static void set_constraints_immediate(void);
static bool is_stale(const PurgeBatch *batch);
static void delete_candidates(PurgeBatch *batch);
static bool is_over_limit(const PurgeBatch *batch, const BatchWork *work,
						  int64 deadline, uint64 wal_before);
static CandidateFate judge_and_delete(PurgeBatch *batch, BatchWork *work,
									  Candidate *candidate);
static bool fetch_row(const PurgeBatch *batch, BatchWork *work,
					  const Candidate *candidate, Snapshot dirty);
static void send_message(Relation rel, BatchWork *work);
static DeleteResult delete_row(Relation rel, BatchWork *work, ItemPointer tid);
static bool lock_row(Relation rel, ItemPointer tid, CommandId cid,
					 TupleTableSlot *row, DeleteResult *result);

/* Deletes the candidates that are expired, and sets the fate of each candidate. */
void
ttl_docs_run_batch(PurgeBatch *batch)
{
	PurgeTarget *target = batch->target;

	batch->consumed = batch->deleted = batch->refused = 0;
	batch->live_until = DT_NOEND;
	batch->current = -1;
	batch->has_started = batch->at_end = false;
	batch->end = ttl_docs_open_target(target);
	if (batch->end != STEP_DONE)
		return;
	if (is_stale(batch))
		batch->end = STEP_STALE;
	else if (PURGE_IS_HOLD(target->hold))
		batch->end = STEP_HELD;
	else
	{
		if (batch->owns_transaction)
			set_constraints_immediate();
		delete_candidates(batch);
	}
	ttl_docs_close_target(target);
}

/* Were the candidates found in another index, or before it was rebuilt? */
static bool
is_stale(const PurgeBatch *batch)
{
	return OidIsValid(batch->index) &&
		(batch->index != batch->target->index ||
		 batch->index_file != batch->target->index_file);
}

/*
 * Runs SET CONSTRAINTS ALL IMMEDIATE, for deferred triggers that core/delete.c does
 * not fire.
 */
static void
set_constraints_immediate(void)
{
	ConstraintsSetStmt *stmt = makeNode(ConstraintsSetStmt);

	stmt->constraints = NIL;
	stmt->deferred = false;
	AfterTriggerSetState(stmt);
}

static void
delete_candidates(PurgeBatch *batch)
{
	const PurgeTarget *target = batch->target;
	Relation	rel = target->rel;
	int64		deadline = ttl_docs_elapsed() + batch->time_limit;
	uint64		wal_before = pgWalUsage.wal_bytes;
	BatchWork	work = {0};
	TableGuard	guard;

	work.bounds = ttl_docs_bounds(&target->collection.settings,
								  batch->instant == DT_NOEND ?
								  ttl_docs_clock() : batch->instant);
	work.fetch = compat_table_index_fetch_begin(rel);
	work.row = table_slot_create(rel, NULL);
	work.nblocks = RelationGetNumberOfBlocks(rel);
	ttl_docs_begin_purging();
	ttl_docs_begin_guard(&guard, rel, target->collection.root, target->cascade_targets);
	PG_TRY();
	{
		work.deleter = ttl_docs_begin_deletes(rel, target->root != NULL ?
											  target->root : rel);
		batch->has_started = true;
		while (batch->consumed < batch->count)
		{
			Candidate  *candidate = &batch->candidates[batch->consumed];

			/* an interrupt here is not blamed on a document */
			CHECK_FOR_INTERRUPTS();
			batch->current = batch->consumed;
			if (!candidate->is_blamed)
				candidate->fate = judge_and_delete(batch, &work, candidate);
			batch->current = -1;
			batch->consumed++;
			if (is_over_limit(batch, &work, deadline, wal_before))
				break;
		}
		/* an error of a statement trigger is not blamed on a single document */
		batch->at_end = true;
		ttl_docs_end_deletes(work.deleter);
	}
	PG_FINALLY();
	{
		ttl_docs_end_guard(&guard);
		ttl_docs_end_purging();
	}
	PG_END_TRY();
	ExecDropSingleTupleTableSlot(work.row);
	table_index_fetch_end(work.fetch);
}

static bool
is_over_limit(const PurgeBatch *batch, const BatchWork *work, int64 deadline,
			  uint64 wal_before)
{
	if (batch->consumed % ROWS_PER_CHECK != 0 &&
		!ttl_docs_delete_fires_triggers(work->deleter))
		return false;
	return ttl_docs_elapsed() >= deadline ||
		pgWalUsage.wal_bytes - wal_before >= MAX_BATCH_BYTES;
}

static CandidateFate
judge_and_delete(PurgeBatch *batch, BatchWork *work, Candidate *candidate)
{
	const Collection *collection = &batch->target->collection;
	Relation	rel = batch->target->rel;
	ItemPointerData tid;
	SnapshotData dirty;

	InitDirtySnapshot(dirty);
	if (!fetch_row(batch, work, candidate, &dirty))
		return CANDIDATE_GONE;
	if (!ttl_docs_row_is_expired(&work->bounds, collection, work->row))
	{
		Stamp		stamp = ttl_docs_row_stamp(collection, work->row);

		batch->live_until = Min(batch->live_until,
								ttl_docs_expires_at(&collection->settings, &stamp));
		return CANDIDATE_LIVE;
	}
	if (batch->skips_quarantined &&
		ttl_docs_is_quarantined(batch->target->table, &work->row->tts_tid))
		return CANDIDATE_QUARANTINED;
	candidate->row = work->row->tts_tid;
	if (TransactionIdIsValid(dirty.xmin) || TransactionIdIsValid(dirty.xmax))
		return CANDIDATE_BUSY;

	send_message(rel, work);
	tid = work->row->tts_tid;
	switch (delete_row(rel, work, &tid))
	{
		case DELETE_DONE:
			batch->deleted++;
			return CANDIDATE_GONE;
		case DELETE_CHANGED:	/* changed by a recent commit: judge it later */
		case DELETE_BUSY:
			return CANDIDATE_BUSY;
		case DELETE_REFUSED:
			break;
	}
	batch->refused++;
	return CANDIDATE_UNDELETABLE;
}

/* Fetches the row of a candidate; false if it is gone for good. */
static bool
fetch_row(const PurgeBatch *batch, BatchWork *work, const Candidate *candidate,
		  Snapshot dirty)
{
	ItemPointerData tid = candidate->tid;
	bool		call_again = false;

	/* VACUUM may have truncated the table since the search */
	if (ItemPointerGetBlockNumber(&tid) >= work->nblocks)
		return false;
	if (batch->by_row)
		return table_tuple_fetch_row_version(batch->target->rel, &tid, dirty,
											 work->row);
	/* an index entry leads to the first version in a HOT chain */
	return table_index_fetch_tuple(work->fetch, &tid, dirty, work->row, &call_again,
								   NULL);
}

/*
 * Sends consumers of logical decoding a message before the first delete of a batch,
 * in the same transaction.  Its prefix is "ttl_docs", and its content a JSON object
 * that names the table.
 */
static void
send_message(Relation rel, BatchWork *work)
{
	StringInfoData message;

	if (work->has_sent_message || !XLogLogicalInfoActive() ||
		!RelationIsLogicallyLogged(rel))
		return;
	work->has_sent_message = true;
	initStringInfo(&message);
	appendStringInfoString(&message, "{\"purge\": ");
	escape_json(&message, ttl_docs_quoted_name(RelationGetRelid(rel)));
	appendStringInfo(&message, ", \"table\": %u}", RelationGetRelid(rel));
	compat_LogLogicalMessage(TTL_DOCS_EXTENSION, message.data, message.len);
	pfree(message.data);
}

/* Deletes a row without waiting for its lock. */
static DeleteResult
delete_row(Relation rel, BatchWork *work, ItemPointer tid)
{
	/* triggers of the previous row may have run commands */
	CommandId	cid = GetCurrentCommandId(true);
	DeleteResult result = DELETE_DONE;

	if (!ttl_docs_delete_locks_first(work->deleter))
	{
		result = ttl_docs_delete_row(work->deleter, tid, cid, false);
		/* a row that looks busy may be locked by this very transaction */
		if (result != DELETE_BUSY)
			return result;
	}
	if (lock_row(rel, tid, cid, work->row, &result))
		result = ttl_docs_delete_row(work->deleter, tid, cid, true);
	return result;
}

/*
 * Locks a row before its BEFORE triggers run.  If this fails, returns false and sets
 * *result.
 */
static bool
lock_row(Relation rel, ItemPointer tid, CommandId cid, TupleTableSlot *row,
		 DeleteResult *result)
{
	TM_FailureData failure;

	switch (table_tuple_lock(rel, tid, GetActiveSnapshot(), row, cid,
							 LockTupleExclusive, LockWaitSkip, 0, &failure))
	{
		case TM_Ok:
			return true;
		case TM_SelfModified:
		case TM_Invisible:
			*result = DELETE_REFUSED;
			return false;
		default:
			*result = DELETE_BUSY;
			return false;
	}
}
