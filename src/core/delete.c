/*-------------------------------------------------------------------------
 *
 * delete.c
 *		Deletes rows in C, and does everything that a DELETE does.
 *
 * For each row:
 *
 * 1. BEFORE ROW triggers fire.
 * 2. The row is deleted.
 * 3. AFTER ROW triggers fire, and so do the actions of foreign keys.
 *
 * If the caller passes a root table, the statement triggers of the root fire,
 * with their transition tables, as if a user had named the root in a DELETE.
 * The root is the table itself, or the partitioned table that it belongs to.
 *
 * Each row has its own trigger query.  All effects of deleting a row are then
 * complete before the next row is touched, and an error can be attributed to
 * one row.  Statement triggers and transition tables need one trigger query
 * for all rows.
 *
 * While rows are deleted, purging() is true (purging.c).
 *
 * If our own trigger is the only BEFORE ROW trigger, it does not fire: for a
 * DELETE, it does nothing while purging() is true.
 *
 * Deferred triggers.  A purge and release() delete as the owner of the table,
 * in a security-restricted context (owner.c).  In that context, core raises
 * an error if a query defers a trigger to the end of the transaction.  So all
 * triggers, also those of foreign keys, must fire at once.  SET CONSTRAINTS
 * ALL IMMEDIATE would do that, but it also changes all other constraints of
 * the transaction, which may be the user's.  We mark triggers as not
 * deferrable instead.  Each ResultRelInfo has its own copy of the trigger
 * list, so the mark ends with the query:
 *
 * 1. ttl_docs_begin_deletes() marks the triggers of the table.
 * 2. ttl_docs_fire_at_once() marks the triggers of every query that starts
 *    while we delete: cascades of foreign keys, and queries of user triggers.
 *
 * Core makes two kinds of ResultRelInfo later, where no hook sees them: for
 * partitions to which a query of a user trigger routes rows, and for the
 * table of COPY FROM in a user trigger.  Deferred triggers of these tables
 * still raise core's error in a user's transaction block.  In its own
 * transactions, the purge also runs SET CONSTRAINTS (purge/batch.c).
 *
 * A key is freed as the writing user, whose context is normally not
 * restricted.  Deferred triggers then stay deferred.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/tableam.h"
#include "catalog/pg_trigger.h"
#include "commands/trigger.h"
#include "executor/executor.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "core/core.h"

struct RowDeleter
{
	Relation	rel;
	EState	   *estate;
	ResultRelInfo *relinfo;
	ResultRelInfo *root;		/* table whose statement triggers fire; NULL
								 * if that is rel itself */
	EPQState	epqstate;
	TransitionCaptureState *transition;
	bool		fires_statement;
	bool		fires_before;	/* has BEFORE ROW triggers other than ours */
	bool		fires_after;	/* has AFTER ROW triggers */
	bool		one_query;		/* use one AfterTrigger query for all rows */
	bool		query_is_open;	/* between begin_query() and end_query() */
	bool		has_trigger_query;	/* AfterTriggerBeginQuery was called */
};

static ResultRelInfo *make_relinfo(Relation rel, ResultRelInfo *root);
static bool nothing_can_be_deferred(void);
static void mark_not_deferrable(TriggerDesc *triggers);
static bool has_before_row_trigger(TriggerDesc *triggers);
static void begin_query(RowDeleter *deleter);
static void end_query(RowDeleter *deleter);

/*
 * Prepares to delete rows of a table.  root is the table whose statement
 * triggers fire; NULL fires none.  The caller has an active snapshot.
 */
RowDeleter *
ttl_docs_begin_deletes(Relation rel, Relation root)
{
	EState	   *estate;
	RowDeleter *deleter;
	MemoryContext caller;
	TriggerDesc *of_statement;

	CheckCmdReplicaIdentity(rel, CMD_DELETE);
	estate = CreateExecutorState();
	caller = MemoryContextSwitchTo(estate->es_query_cxt);
	deleter = palloc0(sizeof(RowDeleter));
	deleter->rel = rel;
	deleter->estate = estate;
	if (root != NULL && RelationGetRelid(root) != RelationGetRelid(rel))
		deleter->root = make_relinfo(root, NULL);
	deleter->relinfo = make_relinfo(rel, deleter->root);
	deleter->estate->es_snapshot = GetActiveSnapshot();
	compat_EvalPlanQualInit(&deleter->epqstate, deleter->estate);

	of_statement = root != NULL ? root->trigdesc : rel->trigdesc;
	deleter->fires_statement = root != NULL && of_statement != NULL &&
		(of_statement->trig_delete_before_statement ||
		 of_statement->trig_delete_after_statement);
	deleter->fires_before = has_before_row_trigger(rel->trigdesc);
	deleter->fires_after = rel->trigdesc != NULL &&
		rel->trigdesc->trig_delete_after_row;
	deleter->one_query = deleter->fires_statement ||
		(of_statement != NULL && of_statement->trig_delete_old_table);
	MemoryContextSwitchTo(caller);
	return deleter;
}

/* Must the caller lock each row first, because BEFORE ROW triggers fire? */
bool
ttl_docs_delete_locks_first(const RowDeleter *deleter)
{
	return deleter->fires_before;
}

/* Can a delete take long, because triggers other than ours fire? */
bool
ttl_docs_delete_fires_triggers(const RowDeleter *deleter)
{
	return deleter->fires_before || deleter->fires_after;
}

static ResultRelInfo *
make_relinfo(Relation rel, ResultRelInfo *root)
{
	ResultRelInfo *relinfo = makeNode(ResultRelInfo);

	InitResultRelInfo(relinfo, rel, 1, root, 0);
	if (nothing_can_be_deferred())
		mark_not_deferrable(relinfo->ri_TrigDesc);
	return relinfo;
}

/*
 * Makes the deferred triggers of a query fire at its end, if a purge has
 * caused the query.  Called right after the query has started.
 */
void
ttl_docs_fire_at_once(EState *estate)
{
	ListCell   *lc;

	if (!nothing_can_be_deferred())
		return;
	foreach(lc, estate->es_opened_result_relations)
		mark_not_deferrable(((ResultRelInfo *) lfirst(lc))->ri_TrigDesc);
}

/* Are we in a context in which core raises an error for deferred triggers? */
static bool
nothing_can_be_deferred(void)
{
	return ttl_docs_is_purging() && InSecurityRestrictedOperation();
}

/* Changes the copy of a trigger list that a ResultRelInfo has. */
static void
mark_not_deferrable(TriggerDesc *triggers)
{
	if (triggers == NULL)
		return;
	for (int i = 0; i < triggers->numtriggers; i++)
		triggers->triggers[i].tgdeferrable =
			triggers->triggers[i].tginitdeferred = false;
}

/* Is there an enabled BEFORE ROW DELETE trigger other than ours? */
static bool
has_before_row_trigger(TriggerDesc *triggers)
{
	if (triggers == NULL || !triggers->trig_delete_before_row)
		return false;
	for (int i = 0; i < triggers->numtriggers; i++)
	{
		Trigger    *trigger = &triggers->triggers[i];

		if (TRIGGER_TYPE_MATCHES(trigger->tgtype, TRIGGER_TYPE_ROW,
								 TRIGGER_TYPE_BEFORE, TRIGGER_TYPE_DELETE) &&
			trigger->tgenabled != TRIGGER_DISABLED &&
			strcmp(trigger->tgname, TTL_DOCS_TRIGGER) != 0)
			return true;
	}
	return false;
}

/*
 * Deletes a row with the command number cid.  The caller has found the row to
 * be expired.  If there are BEFORE ROW triggers, the caller has also locked
 * the row; otherwise ExecBRDeleteTriggers would wait for the lock.
 */
DeleteResult
ttl_docs_delete_row(RowDeleter *deleter, ItemPointer tid, CommandId cid, bool wait)
{
	EState	   *estate = deleter->estate;
	MemoryContext caller = MemoryContextSwitchTo(estate->es_query_cxt);
	DeleteResult result = DELETE_REFUSED;
	TM_FailureData failure;

	estate->es_output_cid = cid;
	if (!deleter->query_is_open)
		begin_query(deleter);
	if (!deleter->fires_before ||
		compat_ExecBRDeleteTriggers(estate, &deleter->epqstate, deleter->relinfo, tid))
	{
		switch (compat_table_tuple_delete(deleter->rel, tid, cid, estate->es_snapshot,
										  wait, &failure))
		{
			case TM_Ok:
				ExecARDeleteTriggers(estate, deleter->relinfo, tid, NULL,
									 deleter->transition, false);
				result = DELETE_DONE;
				break;
			case TM_BeingModified:
				result = DELETE_BUSY;
				break;
			case TM_Updated:
			case TM_Deleted:
				result = DELETE_CHANGED;
				break;
			default:
				/* the current command, or a trigger of it, changed the row */
				break;
		}
	}
	if (!deleter->one_query)
		end_query(deleter);
	ResetPerTupleExprContext(estate);
	MemoryContextSwitchTo(caller);
	return result;
}

static void
begin_query(RowDeleter *deleter)
{
	ResultRelInfo *of_statement = deleter->root != NULL ?
		deleter->root : deleter->relinfo;

	deleter->query_is_open = true;
	if (!deleter->one_query && !deleter->fires_before && !deleter->fires_after)
		return;
	AfterTriggerBeginQuery();
	deleter->has_trigger_query = true;
	deleter->transition =
		MakeTransitionCaptureState(of_statement->ri_RelationDesc->trigdesc,
								   RelationGetRelid(of_statement->ri_RelationDesc),
								   CMD_DELETE);
	if (deleter->fires_statement)
		ExecBSDeleteTriggers(deleter->estate, of_statement);
}

static void
end_query(RowDeleter *deleter)
{
	if (!deleter->query_is_open)
		return;
	deleter->query_is_open = false;
	if (!deleter->has_trigger_query)
		return;
	if (deleter->fires_statement)
		ExecASDeleteTriggers(deleter->estate,
							 deleter->root != NULL ? deleter->root : deleter->relinfo,
							 deleter->transition);
	AfterTriggerEndQuery(deleter->estate);
	deleter->has_trigger_query = false;
}

/* Ends the deletes: fires the remaining triggers and frees the deleter. */
void
ttl_docs_end_deletes(RowDeleter *deleter)
{
	EState	   *estate = deleter->estate;
	MemoryContext caller = MemoryContextSwitchTo(estate->es_query_cxt);

	end_query(deleter);
	EvalPlanQualEnd(&deleter->epqstate);
	ExecCloseResultRelations(estate);
	ExecResetTupleTable(estate->es_tupleTable, false);
	estate->es_snapshot = InvalidSnapshot;
	MemoryContextSwitchTo(caller);
	FreeExecutorState(estate);
}
