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
 * Rights.  User code runs as the owner of the table, never as more: the
 * session may belong to somebody who has no right to delete.  Where the
 * session is not the owner's anyway,
 * - SECURITY_LOCAL_USERID_CHANGE and a pinned search_path go with the switch,
 *   as for core's foreign keys.  (SECURITY_RESTRICTED_OPERATION would refuse
 *   deferred triggers.)
 * - a trigger whose function belongs to somebody else than the owner or a
 *   superuser is not run: who has no more than TRIGGER on the table could
 *   otherwise act as its owner;
 * - errors lose their detail, which could show keys that the caller may not
 *   read.
 * Core restores user and search_path when the (sub)transaction aborts; the
 * purging flag is ours to restore.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_trigger.h"
#include "commands/trigger.h"
#include "executor/executor.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "ttl_docs.h"

PG_FUNCTION_INFO_V1(ttl_docs_purging);

static int	purging_depth = 0;

static DeleteResult lock_expired(Relation rel, const Collection *collection,
								 ItemPointer tid);
static DeleteResult delete_as_owner(Relation rel, ItemPointer tid);
static DeleteResult delete_row(Relation rel, ItemPointer tid);
static void require_trusted_triggers(Relation rel);
static bool is_trusted(Oid function, Oid owner);

/*
 * Deletes a document if it is expired by the clock.
 */
DeleteResult
ttl_docs_delete_expired(Relation rel, const Collection *collection,
						ItemPointer tid)
{
	DeleteResult result = lock_expired(rel, collection, tid);

	if (result == DELETE_DONE)
		result = delete_as_owner(rel, tid);
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

/* Locks the row version and judges it again. */
static DeleteResult
lock_expired(Relation rel, const Collection *collection, ItemPointer tid)
{
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	DeleteResult result = DELETE_REFUSED;
	TM_FailureData failure;

	PushActiveSnapshot(GetLatestSnapshot());
	switch (table_tuple_lock(rel, tid, GetActiveSnapshot(), slot,
							 GetCurrentCommandId(true), LockTupleExclusive,
							 LockWaitBlock, 0, &failure))
	{
		case TM_Ok:
			{
				bool		ts_isnull;
				bool		inherits;
				Datum		ts = slot_getattr(slot, collection->ts, &ts_isnull);
				Datum		ttl = slot_getattr(slot, collection->ttl, &inherits);
				ExpiryBounds bounds = ttl_docs_bounds(&collection->settings,
													  ttl_docs_clock());

				if (!ts_isnull &&
					ttl_docs_is_expired(&bounds, DatumGetTimestampTz(ts), inherits,
										inherits ? 0 : DatumGetInt32(ttl)))
					result = DELETE_DONE;
				break;
			}
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

/* Deletes a row that we have locked, as the owner of its table. */
static DeleteResult
delete_as_owner(Relation rel, ItemPointer tid)
{
	Oid			owner = rel->rd_rel->relowner;
	bool		switches = owner != GetUserId();
	Oid			caller;
	int			sec_context;
	int			nest_level = 0;
	MemoryContext context = CurrentMemoryContext;
	volatile DeleteResult result = DELETE_REFUSED;

	GetUserIdAndSecContext(&caller, &sec_context);
	if (switches)
	{
		require_trusted_triggers(rel);
		SetUserIdAndSecContext(owner, sec_context | SECURITY_LOCAL_USERID_CHANGE);
		nest_level = NewGUCNestLevel();
		(void) set_config_option("search_path", "pg_catalog, pg_temp",
								 PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE,
								 true, 0, false);
	}
	purging_depth++;
	PG_TRY();
	{
		result = delete_row(rel, tid);
	}
	PG_CATCH();
	{
		ErrorData  *error;

		purging_depth--;
		if (!switches)
			PG_RE_THROW();
		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		FlushErrorState();
		error->detail = NULL;
		error->detail_log = NULL;
		error->context = NULL;
		ReThrowError(error);
	}
	PG_END_TRY();
	purging_depth--;
	if (switches)
	{
		AtEOXact_GUC(true, nest_level);
		SetUserIdAndSecContext(caller, sec_context);
	}
	return result;
}

/* The delete itself, with row triggers and foreign key actions. */
static DeleteResult
delete_row(Relation rel, ItemPointer tid)
{
	EState	   *estate = CreateExecutorState();
	ResultRelInfo *relinfo = makeNode(ResultRelInfo);
	TransitionCaptureState *transition;
	EPQState	epqstate;
	TM_FailureData failure;
	DeleteResult result = DELETE_REFUSED;

	CheckCmdReplicaIdentity(rel, CMD_DELETE);
	PushActiveSnapshot(GetLatestSnapshot());
	InitResultRelInfo(relinfo, rel, 1, NULL, 0);
	estate->es_snapshot = GetActiveSnapshot();
	estate->es_output_cid = GetCurrentCommandId(true);
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
	FreeExecutorState(estate);
	PopActiveSnapshot();
	return result;
}

/* See "Rights" above. */
static void
require_trusted_triggers(Relation rel)
{
	TriggerDesc *triggers = rel->trigdesc;

	for (int i = 0; triggers != NULL && i < triggers->numtriggers; i++)
	{
		Trigger    *trigger = &triggers->triggers[i];

		if (trigger->tgisinternal || trigger->tgenabled == TRIGGER_DISABLED ||
			!TRIGGER_FOR_ROW(trigger->tgtype) ||
			!TRIGGER_FOR_DELETE(trigger->tgtype) ||
			is_trusted(trigger->tgfoid, rel->rd_rel->relowner))
			continue;
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("cannot delete an expired document of \"%s\" that is in the way of this key",
						RelationGetRelationName(rel)),
				 errdetail("The function of the trigger \"%s\" would run as the owner of the table, and belongs to somebody else.",
						   trigger->tgname),
				 errhint("Give the function to the owner of the table, or make it SECURITY DEFINER.")));
	}
}

/* May a trigger function run as the owner of the table? */
static bool
is_trusted(Oid function, Oid owner)
{
	HeapTuple	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
	Form_pg_proc form;
	bool		result;

	if (!HeapTupleIsValid(tuple))
		return false;
	form = (Form_pg_proc) GETSTRUCT(tuple);
	result = form->prosecdef || form->proowner == owner ||
		superuser_arg(form->proowner);
	ReleaseSysCache(tuple);
	return result;
}
