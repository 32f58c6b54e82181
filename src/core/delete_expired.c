/*-------------------------------------------------------------------------
 *
 * delete_expired.c
 *		Deletes an expired document that is in the way, with all that belongs
 *		to a delete.
 *
 * The row is locked first and judged again: two sessions can want the same key,
 * and the one that comes second must see what the first has done.  Then it is
 * deleted with its row triggers and foreign key actions (delete.c), which are
 * through before the new document is in: a cascade that ran later would take the
 * new document's children.  Constraint triggers that are deferred stay so.
 *
 * Rights.  Triggers run as whoever writes, as they do for a DELETE; the delete
 * itself asks for no right, because to the writer the document is not there.
 * Running them as the owner of the table would be wrong twice: an audit trigger
 * would not find its tables under a search_path that is safe for the owner, and
 * whoever may have code run on the way (a WHEN clause, a child table of a
 * cascade, a temporary table that is found first) could act as the owner.
 * Core's foreign key actions switch to the owner of the child by themselves.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/tableam.h"
#include "access/xact.h"
#include "executor/executor.h"
#include "utils/fmgrprotos.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "core/core.h"

/* A delete that is under way, for the context of errors */
typedef struct Deletion
{
	const char *table;
	int			trigger_depth;	/* when the delete began */
	volatile bool is_violation; /* the last error: a child keeps the row */
} Deletion;

static DeleteResult lock_expired(Relation rel, const Collection *collection,
								 ItemPointer tid, CommandId cid);
static bool is_still_there(Relation rel, ItemPointer tid, TupleTableSlot *slot);
static DeleteResult delete_purging(Relation rel, ItemPointer tid, CommandId cid);
static void rethrow_with_hint(MemoryContext context);
static void tell_context(void *arg);
static bool is_violation_of_this_delete(const Deletion *deletion);
static int	trigger_depth(void);

/*
 * Deletes a document if it is expired by the clock, under that command number.
 */
DeleteResult
ttl_docs_delete_expired(Relation rel, const Collection *collection,
						ItemPointer tid, CommandId cid)
{
	DeleteResult result = lock_expired(rel, collection, tid, cid);

	if (result == DELETE_DONE)
		result = delete_purging(rel, tid, cid);
	return result;
}

/* Locks the row version and judges it again. */
static DeleteResult
lock_expired(Relation rel, const Collection *collection, ItemPointer tid,
			 CommandId cid)
{
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	DeleteResult result = DELETE_REFUSED;
	TM_FailureData failure;
	ExpiryBounds bounds;

	PushActiveSnapshot(GetLatestSnapshot());
	switch (table_tuple_lock(rel, tid, GetActiveSnapshot(), slot, cid,
							 LockTupleExclusive, LockWaitBlock, 0, &failure))
	{
		case TM_Ok:
			bounds = ttl_docs_bounds(&collection->settings, ttl_docs_clock());
			if (ttl_docs_row_is_expired(&bounds, collection, slot))
				result = DELETE_DONE;
			break;
		case TM_Updated:
		case TM_Deleted:
			result = DELETE_CHANGED;
			break;
		default:
			/* written by this very command: not ours to take away; or a cascade
			 * of the last delete was faster */
			if (!is_still_there(rel, tid, slot))
				result = DELETE_CHANGED;
			break;
	}
	PopActiveSnapshot();
	ExecDropSingleTupleTableSlot(slot);
	return result;
}

/* Is the row there for this transaction, whatever its commands have done? */
static bool
is_still_there(Relation rel, ItemPointer tid, TupleTableSlot *slot)
{
	SnapshotData dirty;

	InitDirtySnapshot(dirty);
	return table_tuple_fetch_row_version(rel, tid, &dirty, slot);
}

/*
 * Deletes a row that we have locked; the flag goes down on error too.  Errors
 * of triggers and foreign keys say what they come from: the user did not ask
 * for a delete.
 */
static DeleteResult
delete_purging(Relation rel, ItemPointer tid, CommandId cid)
{
	volatile DeleteResult result = DELETE_REFUSED;
	MemoryContext caller = CurrentMemoryContext;
	Deletion	deletion = {RelationGetRelationName(rel), trigger_depth(), false};
	ErrorContextCallback context;

	context.callback = tell_context;
	context.arg = &deletion;
	context.previous = error_context_stack;
	error_context_stack = &context;
	ttl_docs_begin_purging();
	PG_TRY();
	{
		RowDeleter *deleter;

		PushActiveSnapshot(GetLatestSnapshot());
		deleter = ttl_docs_begin_deletes(rel, NULL);
		/* we have it locked, so whatever else it is, a trigger has done it */
		if (ttl_docs_delete_row(deleter, tid, cid, true) == DELETE_DONE)
			result = DELETE_DONE;
		ttl_docs_end_deletes(deleter);
		PopActiveSnapshot();
	}
	PG_CATCH();
	{
		ttl_docs_end_purging();
		if (deletion.is_violation)
			rethrow_with_hint(caller);
		PG_RE_THROW();
	}
	PG_END_TRY();
	ttl_docs_end_purging();
	error_context_stack = context.previous;
	return result;
}

/* Raises core's error again, with a hint; not if a trigger has raised it by itself. */
static void
rethrow_with_hint(MemoryContext context)
{
	MemoryContext of_error = MemoryContextSwitchTo(context);
	ErrorData  *edata = CopyErrorData();

	if (edata->hint == NULL && edata->constraint_name != NULL)
	{
		FlushErrorState();
		edata->hint = pstrdup("The document has expired, but another row still references it. Delete that row first, or define the foreign key with ON DELETE CASCADE or SET NULL.");
		ReThrowError(edata);
	}
	FreeErrorData(edata);
	MemoryContextSwitchTo(of_error);
}

static void
tell_context(void *arg)
{
	Deletion   *deletion = arg;

	deletion->is_violation = is_violation_of_this_delete(deletion);
	errcontext("deletion of an expired document of \"%s\"", deletion->table);
}

/*
 * Does a child keep the document, or a row that a cascade has reached?  Core's
 * foreign key triggers find that out, one level below the delete.  Statements of
 * user triggers can violate a foreign key, too, but their foreign key triggers are
 * two levels below it.
 */
static bool
is_violation_of_this_delete(const Deletion *deletion)
{
	int			sqlstate = geterrcode();

	return (sqlstate == ERRCODE_FOREIGN_KEY_VIOLATION ||
			sqlstate == ERRCODE_RESTRICT_VIOLATION) &&
		trigger_depth() == deletion->trigger_depth + 1;
}

/* How many triggers are running, each caused by the one before. */
static int
trigger_depth(void)
{
	return DatumGetInt32(DirectFunctionCall1(pg_trigger_depth, (Datum) 0));
}
