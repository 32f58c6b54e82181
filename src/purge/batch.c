/*-------------------------------------------------------------------------
 *
 * batch.c
 *		Deletes a batch of candidates.
 *
 * The caller has a transaction (or subtransaction) and an active snapshot, and
 * undoes it on error.  The batch then says at which candidate it was.
 *
 * Each candidate is looked up and judged again: the very row version that is
 * deleted has to be expired.  The look goes by a dirty snapshot, which shows
 * what nobody has committed yet.  So there are no surprises: a row is there and
 * nobody is at it, or somebody is (it is busy, and left), or it is gone for
 * good.  A row that was renewed has another version, which is live.
 *
 * Locks.  The table is locked as by a DELETE, but a worker does not wait for it,
 * nor for a row: table_tuple_delete() does not wait either, and where BEFORE ROW
 * triggers want the row locked first, it is, or it is busy.  What a cascade
 * waits for is bounded by lock_timeout (worker.c).  Partitions are locked
 * after the partitioned table, as everybody does it.
 *
 * Rights.  All of it runs as the owner of the table (core/owner.c).  Deferred
 * triggers fire with the delete (core/delete.c): at the end of the transaction they
 * would run as somebody else, and an error would not tell which document it comes
 * from.
 *
 * A batch ends when it has taken its time or written much, besides when it is
 * through with its candidates.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/catalog.h"
#include "catalog/pg_class.h"
#include "commands/trigger.h"
#include "executor/instrument.h"
#include "executor/tuptable.h"
#include "miscadmin.h"
#include "replication/message.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "utils/json.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "purge/purge_internal.h"

/* WAL that a batch may write before it ends */
#define MAX_BATCH_BYTES		UINT64CONST(4194304)
/* without triggers, documents are quick: no need to look at the time so often */
#define ROWS_PER_LOOK		16

static void set_constraints_immediate(void);
static Relation open_locked(Oid relid, bool wait, BatchEnd *end);
static void purge_as_owner(PurgeBatch *batch, Relation rel, Relation root);
static void delete_candidates(PurgeBatch *batch, Relation rel, Relation root,
							  const Collection *collection);
static void tell_decoding(Relation rel);
static void judge_and_delete(PurgeBatch *batch, Relation rel, RowDeleter *deleter,
							 const Collection *collection,
							 const ExpiryBounds *bounds,
							 struct IndexFetchTableData *fetch,
							 TupleTableSlot *row);
static bool fetch_row(PurgeBatch *batch, Relation rel, ItemPointer tid,
					  struct IndexFetchTableData *fetch, Snapshot dirty,
					  TupleTableSlot *row);
static Oid	index_file(Oid index);
static bool lock_row(Relation rel, ItemPointer tid, CommandId cid,
					 TupleTableSlot *row, DeleteResult *result);
static void record_outcome(PurgeBatch *batch, CandidateFate fate, ItemPointer tid,
						   TimestampTz until);

/*
 * Deletes what is expired of the candidates, and says what became of the
 * others.
 */
void
ttl_docs_run_batch(PurgeBatch *batch)
{
	Relation	rel;
	Relation	root = NULL;
	Collection	collection;
	OwnerSwitch before;

	batch->consumed = batch->deleted = 0;
	batch->current = -1;
	batch->has_started = batch->at_end = batch->has_told = false;
	batch->outcomes = NIL;
	batch->end = BATCH_DONE;

	if (!ttl_docs_lookup_collection(batch->relid, &collection))
	{
		batch->end = BATCH_TABLE_GONE;
		return;
	}
	if (collection.root != batch->relid)
	{
		root = open_locked(collection.root, batch->waits_for_table, &batch->end);
		if (root == NULL)
			return;
	}
	rel = open_locked(batch->relid, batch->waits_for_table, &batch->end);
	if (rel != NULL)
	{
		if (batch->owns_transaction)
			set_constraints_immediate();
		ttl_docs_become_owner(rel, &before);
		purge_as_owner(batch, rel, root);
		ttl_docs_become_caller(&before);
		table_close(rel, NoLock);
	}
	if (root != NULL)
		table_close(root, NoLock);
}

/*
 * SET CONSTRAINTS ALL IMMEDIATE, for the deferred triggers that core/delete.c does
 * not reach.
 */
static void
set_constraints_immediate(void)
{
	ConstraintsSetStmt *stmt = makeNode(ConstraintsSetStmt);

	stmt->constraints = NIL;
	stmt->deferred = false;
	AfterTriggerSetState(stmt);
}

/* Deletes, unless there is a reason not to. */
static void
purge_as_owner(PurgeBatch *batch, Relation rel, Relation root)
{
	MemoryContext caller;
	Collection	collection;

	/* what was known before the lock may be over */
	if (!ttl_docs_lookup_collection(batch->relid, &collection))
	{
		batch->end = BATCH_TABLE_GONE;
		return;
	}
	if (collection.root != (root != NULL ? RelationGetRelid(root) : batch->relid) ||
		(OidIsValid(batch->index) &&
		 (ttl_docs_purge_index(rel, collection.settings.indexing) != batch->index ||
		  index_file(batch->index) != batch->index_file)))
	{
		batch->end = BATCH_STALE;
		return;
	}
	caller = MemoryContextSwitchTo(batch->context);
	batch->state = ttl_docs_purge_hold(rel, &collection, batch->table, &batch->detail);
	MemoryContextSwitchTo(caller);
	if (PURGE_IS_HOLD(batch->state))
	{
		batch->end = BATCH_HELD;
		return;
	}
	delete_candidates(batch, rel, root != NULL ? root : rel, &collection);
}

/* Opens a table with the lock of a DELETE, which is kept; or says why not. */
static Relation
open_locked(Oid relid, bool wait, BatchEnd *end)
{
	Relation	rel;

	if (wait)
		LockRelationOid(relid, RowExclusiveLock);
	else if (!ConditionalLockRelationOid(relid, RowExclusiveLock))
	{
		*end = BATCH_TABLE_BUSY;
		return NULL;
	}
	rel = try_table_open(relid, NoLock);
	if (rel == NULL)
		*end = BATCH_TABLE_GONE;
	return rel;
}

static void
delete_candidates(PurgeBatch *batch, Relation rel, Relation root,
				  const Collection *collection)
{
	ExpiryBounds bounds = ttl_docs_bounds(&collection->settings,
										  batch->instant == DT_NOEND ?
										  ttl_docs_clock() : batch->instant);
	int64		deadline = ttl_docs_elapsed() + batch->time_limit;
	uint64		wal_before = pgWalUsage.wal_bytes;
	struct IndexFetchTableData *fetch = table_index_fetch_begin(rel);
	TupleTableSlot *row = table_slot_create(rel, NULL);
	RowDeleter *volatile deleter;

	ttl_docs_begin_purging();
	PG_TRY();
	{
		deleter = ttl_docs_begin_deletes(rel, root);
		batch->nblocks = RelationGetNumberOfBlocks(rel);
		batch->has_started = true;
		while (batch->consumed < batch->count)
		{
			/* whoever interrupts now has nothing against any document */
			CHECK_FOR_INTERRUPTS();
			batch->current = batch->consumed;
			batch->has_row = false;
			judge_and_delete(batch, rel, deleter, collection, &bounds, fetch, row);
			batch->current = -1;
			batch->consumed++;
			if ((batch->consumed % ROWS_PER_LOOK == 0 ||
				 ttl_docs_delete_fires_triggers(deleter)) &&
				(ttl_docs_elapsed() >= deadline ||
				 pgWalUsage.wal_bytes - wal_before >= MAX_BATCH_BYTES))
				break;
		}
		/* what statement triggers do is no single document's fault */
		batch->at_end = true;
		ttl_docs_end_deletes(deleter);
	}
	PG_FINALLY();
	{
		ttl_docs_end_purging();
	}
	PG_END_TRY();
	ExecDropSingleTupleTableSlot(row);
	table_index_fetch_end(fetch);
}

/*
 * Consumers of logical decoding get a message before the deletes of a batch, in
 * the same transaction: prefix "ttl_docs", and a JSON object that names the
 * table.
 */
static void
tell_decoding(Relation rel)
{
	StringInfoData message;

	if (!XLogLogicalInfoActive() || !RelationIsLogicallyLogged(rel))
		return;
	initStringInfo(&message);
	appendStringInfoString(&message, "{\"purge\": ");
	escape_json(&message, ttl_docs_quoted_name(RelationGetRelid(rel)));
	appendStringInfo(&message, ", \"table\": %u}", RelationGetRelid(rel));
	compat_LogLogicalMessage(TTL_DOCS_EXTENSION, message.data, message.len);
	pfree(message.data);
}

/* Deals with the current candidate. */
static void
judge_and_delete(PurgeBatch *batch, Relation rel, RowDeleter *deleter,
				 const Collection *collection, const ExpiryBounds *bounds,
				 struct IndexFetchTableData *fetch, TupleTableSlot *row)
{
	Candidate  *candidate = &batch->candidates[batch->current];
	DeleteResult result = DELETE_DONE;
	CommandId	cid;
	SnapshotData dirty;

	if (candidate->fate == CANDIDATE_POISON)
		return;					/* noted already */
	if (candidate->fate != CANDIDATE_OPEN)
	{
		record_outcome(batch, candidate->fate, &candidate->tid, DT_NOEND);
		return;
	}
	InitDirtySnapshot(dirty);
	if (!fetch_row(batch, rel, &candidate->tid, fetch, &dirty, row))
		return;
	batch->current_tid = row->tts_tid;
	batch->has_row = true;
	if (!ttl_docs_row_is_expired(bounds, collection, row))
	{
		Stamp		stamp = ttl_docs_row_stamp(collection, row);

		record_outcome(batch, CANDIDATE_OPEN, &row->tts_tid,
					   ttl_docs_expires_at(&collection->settings, &stamp));
		return;
	}
	if (batch->skips_quarantined && batch->table != NULL &&
		ttl_docs_is_quarantined(batch->table, &row->tts_tid))
		return;
	if (TransactionIdIsValid(dirty.xmin) || TransactionIdIsValid(dirty.xmax))
	{
		record_outcome(batch, CANDIDATE_BUSY, &row->tts_tid, DT_NOEND);
		return;
	}

	if (!batch->has_told)
		tell_decoding(rel);
	batch->has_told = true;
	/* triggers of the row before may have run commands */
	cid = GetCurrentCommandId(true);
	if (!ttl_docs_delete_locks_first(deleter))
		result = ttl_docs_delete_row(deleter, &batch->current_tid, cid, false);
	/* what looks busy may be locked by this very transaction */
	if ((ttl_docs_delete_locks_first(deleter) || result == DELETE_BUSY) &&
		lock_row(rel, &batch->current_tid, cid, row, &result))
		result = ttl_docs_delete_row(deleter, &batch->current_tid, cid, true);
	switch (result)
	{
		case DELETE_DONE:
			batch->deleted++;
			if (!batch->skips_quarantined && !batch->by_row && batch->table != NULL &&
				ttl_docs_is_quarantined(batch->table, &batch->current_tid))
				record_outcome(batch, CANDIDATE_RELEASED, &batch->current_tid, DT_NOEND);
			break;
		case DELETE_CHANGED:
			/* committed a moment ago: look again, later */
		case DELETE_BUSY:
			record_outcome(batch, CANDIDATE_BUSY, &batch->current_tid, DT_NOEND);
			break;
		case DELETE_REFUSED:
			record_outcome(batch, CANDIDATE_POISON, &batch->current_tid, DT_NOEND);
			break;
	}
}

/* Looks a candidate up; false if its row is gone for good. */
static bool
fetch_row(PurgeBatch *batch, Relation rel, ItemPointer tid,
		  struct IndexFetchTableData *fetch, Snapshot dirty, TupleTableSlot *row)
{
	ItemPointerData entry = *tid;
	bool		call_again = false;

	/* VACUUM may have taken the end of the table away since it was found */
	if (ItemPointerGetBlockNumber(&entry) >= batch->nblocks)
		return false;
	if (batch->by_row)
		return table_tuple_fetch_row_version(rel, &entry, dirty, row);
	/* an index entry leads to the first of its versions */
	return table_index_fetch_tuple(fetch, &entry, dirty, row, &call_again, NULL);
}

/* Locks a row without waiting, before its BEFORE triggers run. */
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

/* Notes what became of the current candidate. */
static void
record_outcome(PurgeBatch *batch, CandidateFate fate, ItemPointer tid, TimestampTz until)
{
	MemoryContext caller = MemoryContextSwitchTo(batch->context);
	RowOutcome *outcome = palloc(sizeof(RowOutcome));

	outcome->candidate = batch->current;
	outcome->fate = fate;
	outcome->tid = *tid;
	outcome->until = until;
	batch->outcomes = lappend(batch->outcomes, outcome);
	MemoryContextSwitchTo(caller);
}

/* The file of an index, which changes when it is built anew. */
static Oid
index_file(Oid index)
{
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(index));
	Oid			file;

	if (!HeapTupleIsValid(tuple))
		return InvalidOid;
	file = ((Form_pg_class) GETSTRUCT(tuple))->relfilenode;
	ReleaseSysCache(tuple);
	return file;
}
