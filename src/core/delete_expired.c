/*-------------------------------------------------------------------------
 *
 * delete_expired.c
 *		Deletes an expired document, and does everything that a DELETE does.
 *
 * Writes use this file to free a key, and release() uses it to delete all
 * expired documents.
 *
 * 1. Lock the row, and judge it again.  Two sessions can want the same key,
 *    and the second one must see what the first one did.
 * 2. Delete the row with its row triggers and foreign key actions (delete.c).
 *    The actions are complete before a new document is stored: a later
 *    cascade would delete the children of the new document.
 *
 * Rights.  Triggers run as the current user, as in a DELETE.  In release(),
 * this is the owner of the table.  In a write, this is the writing user, and
 * deferred constraint triggers stay deferred.  The delete itself checks no
 * right, because the writer does not see the document.  It would be wrong to
 * run the triggers of a write as the owner of the table, for two reasons:
 *
 * - An audit trigger would not find its tables under a search_path that is
 *   safe for the owner.
 * - Every user who can attach code to the delete could act as the owner: by a
 *   WHEN clause, by a child table of a cascade, or by a temporary table that
 *   hides another table.
 *
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

/* The delete that is running; adds context to errors */
typedef struct Deletion
{
	const char *table;
	int			trigger_depth;	/* depth at which the delete began */
	volatile bool is_violation; /* a child prevented the delete, according to
								 * the last error */
} Deletion;

static DeleteResult lock_expired(Relation rel, const Collection *collection,
								 ItemPointer tid, CommandId cid);
static bool is_still_there(Relation rel, ItemPointer tid, TupleTableSlot *slot);
static DeleteResult delete_purging(Relation rel, ItemPointer tid, CommandId cid);
static void rethrow_with_hint(MemoryContext context);
static void add_error_context(void *arg);
static bool is_violation_of_this_delete(const Deletion *deletion);
static int	trigger_depth(void);

/*
 * Deletes a document if it is expired at the clock.  cid is the number of the
 * command that writes, or of the current command.
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

/* Locks the row version and judges it again; DELETE_DONE if it is expired. */
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

			/*
			 * There are two cases.  The current command has written the row,
			 * and we must not delete the row.  Or a cascade of a previous
			 * delete has already deleted the row.
			 */
			if (!is_still_there(rel, tid, slot))
				result = DELETE_CHANGED;
			break;
	}
	PopActiveSnapshot();
	ExecDropSingleTupleTableSlot(slot);
	return result;
}

/* Does the row still exist after what the current command has done so far? */
static bool
is_still_there(Relation rel, ItemPointer tid, TupleTableSlot *slot)
{
	SnapshotData dirty;

	InitDirtySnapshot(dirty);
	return table_tuple_fetch_row_version(rel, tid, &dirty, slot);
}

/*
 * Deletes a row that we have locked.  purging() becomes false again on error,
 * too.  Errors of triggers and foreign keys get a context, because the user
 * did not ask for a delete.
 */
static DeleteResult
delete_purging(Relation rel, ItemPointer tid, CommandId cid)
{
	volatile DeleteResult result = DELETE_REFUSED;
	MemoryContext caller = CurrentMemoryContext;
	Deletion	deletion = {RelationGetRelationName(rel), trigger_depth(), false};
	ErrorContextCallback context;

	context.callback = add_error_context;
	context.arg = &deletion;
	context.previous = error_context_stack;
	error_context_stack = &context;
	ttl_docs_begin_purging();
	PG_TRY();
	{
		RowDeleter *deleter;

		PushActiveSnapshot(GetLatestSnapshot());
		deleter = ttl_docs_begin_deletes(rel, NULL);
		/* we hold the lock, so only a trigger can have kept the row */
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

/*
 * Raises core's error again with a hint.  Does nothing if the error has a
 * hint already or does not name a constraint: then a trigger has raised it.
 */
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
add_error_context(void *arg)
{
	Deletion   *deletion = arg;

	deletion->is_violation = is_violation_of_this_delete(deletion);
	errcontext("deletion of an expired document of \"%s\"", deletion->table);
}

/*
 * Does a child prevent the delete of the document, or of a row that a cascade
 * reached?  Core's foreign key triggers detect this one trigger level below
 * the delete.  Statements of user triggers can violate a foreign key, too,
 * but the foreign key triggers of these statements are two levels below the
 * delete.
 */
static bool
is_violation_of_this_delete(const Deletion *deletion)
{
	int			sqlstate = geterrcode();

	return (sqlstate == ERRCODE_FOREIGN_KEY_VIOLATION ||
			sqlstate == ERRCODE_RESTRICT_VIOLATION) &&
		trigger_depth() == deletion->trigger_depth + 1;
}

/* The number of nested triggers that are running. */
static int
trigger_depth(void)
{
	return DatumGetInt32(DirectFunctionCall1(pg_trigger_depth, (Datum) 0));
}
