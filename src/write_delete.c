/*-------------------------------------------------------------------------
 *
 * write_delete.c
 *		Deletes an expired document that is in the way, with all that belongs
 *		to a delete.
 *
 * The row is locked first and judged again: two sessions can want the same key,
 * and the one that comes second must see what the first has done.  Then BEFORE
 * ROW triggers, the delete, AFTER ROW triggers and foreign key actions, in a
 * trigger query of its own, so that they are through before the new document is
 * in.  (A cascade that ran later would take the new document's children.)
 * Constraint triggers that are deferred stay so.
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

#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "commands/trigger.h"
#include "executor/executor.h"
#include "fmgr.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "ttl_docs.h"

PG_FUNCTION_INFO_V1(ttl_docs_purging);

static int	purging_depth = 0;

static CommandId command_id(void);
static DeleteResult lock_expired(Relation rel, const Collection *collection,
								 ItemPointer tid);
static DeleteResult delete_purging(Relation rel, ItemPointer tid);
static void tell_context(void *arg);
static DeleteResult delete_row(Relation rel, ItemPointer tid);

/*
 * Deletes a document if it is expired by the clock.
 */
DeleteResult
ttl_docs_delete_expired(Relation rel, const Collection *collection,
						ItemPointer tid)
{
	DeleteResult result = lock_expired(rel, collection, tid);

	if (result == DELETE_DONE)
		result = delete_purging(rel, tid);
	return result;
}

bool
ttl_docs_is_purging(void)
{
	return purging_depth > 0;
}

/*
 * purging()
 */
Datum
ttl_docs_purging(PG_FUNCTION_ARGS)
{
	ttl_docs_require_preload();
	PG_RETURN_BOOL(purging_depth > 0);
}

/*
 * The command that deletes: the query that writes, if there is one.  Under a
 * later number, which commands of triggers have, that query would take the row
 * for one that a trigger changed behind its back when its scan comes to it.
 */
static CommandId
command_id(void)
{
	LiveQuery  *query = ttl_docs_running_query();
	CommandId	current = GetCurrentCommandId(true);

	return query != NULL && query->stmt->commandType != CMD_SELECT ?
		query->estate->es_output_cid : current;
}

/* Locks the row version and judges it again. */
static DeleteResult
lock_expired(Relation rel, const Collection *collection, ItemPointer tid)
{
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	DeleteResult result = DELETE_REFUSED;
	TM_FailureData failure;
	ExpiryBounds bounds;

	PushActiveSnapshot(GetLatestSnapshot());
	switch (table_tuple_lock(rel, tid, GetActiveSnapshot(), slot,
							 command_id(), LockTupleExclusive,
							 LockWaitBlock, 0, &failure))
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
			/* written by this very command: not ours to take away */
			break;
	}
	PopActiveSnapshot();
	ExecDropSingleTupleTableSlot(slot);
	return result;
}

/*
 * Deletes a row that we have locked; the flag goes down on error too.  Errors
 * of triggers and foreign keys say what they come from: the user did not ask
 * for a delete.
 */
static DeleteResult
delete_purging(Relation rel, ItemPointer tid)
{
	volatile DeleteResult result = DELETE_REFUSED;
	ErrorContextCallback context;

	context.callback = tell_context;
	context.arg = RelationGetRelationName(rel);
	context.previous = error_context_stack;
	error_context_stack = &context;
	purging_depth++;
	PG_TRY();
	{
		result = delete_row(rel, tid);
	}
	PG_FINALLY();
	{
		purging_depth--;
	}
	PG_END_TRY();
	error_context_stack = context.previous;
	return result;
}

static void
tell_context(void *arg)
{
	errcontext("deletion of an expired document of \"%s\"", (char *) arg);
}

/* The delete itself, with row triggers and foreign key actions. */
static DeleteResult
delete_row(Relation rel, ItemPointer tid)
{
	EState	   *estate = CreateExecutorState();
	MemoryContext caller = MemoryContextSwitchTo(estate->es_query_cxt);
	ResultRelInfo *relinfo = makeNode(ResultRelInfo);
	TransitionCaptureState *transition;
	EPQState	epqstate;
	TM_FailureData failure;
	DeleteResult result = DELETE_REFUSED;

	CheckCmdReplicaIdentity(rel, CMD_DELETE);
	PushActiveSnapshot(GetLatestSnapshot());
	InitResultRelInfo(relinfo, rel, 1, NULL, 0);
	estate->es_snapshot = GetActiveSnapshot();
	estate->es_output_cid = command_id();
	compat_EvalPlanQualInit(&epqstate, estate);
	AfterTriggerBeginQuery();
	transition = MakeTransitionCaptureState(rel->trigdesc, RelationGetRelid(rel),
											CMD_DELETE);

	if (relinfo->ri_TrigDesc == NULL ||
		!relinfo->ri_TrigDesc->trig_delete_before_row ||
		compat_ExecBRDeleteTriggers(estate, &epqstate, relinfo, tid))
	{
		switch (table_tuple_delete(rel, tid, estate->es_output_cid,
								   estate->es_snapshot, InvalidSnapshot, true,
								   &failure, false))
		{
			case TM_Ok:
				ExecARDeleteTriggers(estate, relinfo, tid, NULL, transition, false);
				result = DELETE_DONE;
				break;
			default:
				/* we have it locked, so a BEFORE trigger did something to it */
				break;
		}
	}

	AfterTriggerEndQuery(estate);
	EvalPlanQualEnd(&epqstate);
	ExecCloseResultRelations(estate);
	ExecResetTupleTable(estate->es_tupleTable, false);
	estate->es_snapshot = InvalidSnapshot;
	MemoryContextSwitchTo(caller);
	FreeExecutorState(estate);
	PopActiveSnapshot();
	return result;
}
