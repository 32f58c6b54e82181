/*-------------------------------------------------------------------------
 *
 * delete.c
 *		Deletes rows in C, with all that belongs to a DELETE.
 *
 * That is: BEFORE ROW triggers, the delete, AFTER ROW triggers and foreign key
 * actions; and, where asked for, the statement triggers, with their transition
 * tables, of the table or of the partitioned table that it belongs to, as if
 * the user had named that one.  Each row has a trigger query of its own, so that
 * its consequences are through before the next row is touched, and an error
 * names the row that it comes from.  Transition tables want all rows in one.
 *
 * While rows are deleted, purging() is true (purging.c).
 *
 * Our own trigger is passed over where it is the only one BEFORE ROW: it would
 * only look whether we are purging.
 *
 * Deferred triggers.  A purge and release() delete as the owner of the table, in a
 * security-restricted context (owner.c).  There, core raises an error when a
 * query leaves a trigger for the end of the transaction.  So all triggers fire at
 * once, those of foreign keys included.  SET CONSTRAINTS ALL IMMEDIATE would do
 * that, but it also changes every other constraint of a transaction that may be
 * the user's.  We mark triggers as not deferrable instead.  Each ResultRelInfo has
 * its own copy of the trigger list, so the mark ends with the query:
 *
 * 1. ttl_docs_begin_deletes() marks the triggers of the deleted rows.
 * 2. ttl_docs_fire_at_once() marks those of every query that starts meanwhile:
 *    cascades of foreign keys, and queries of user triggers.
 *
 * Two kinds of ResultRelInfo are made later, where no hook sees them: partitions
 * that a user trigger's query routes rows to, and the table of its COPY FROM.
 * Their deferred triggers still raise core's error in a user's transaction block.
 * In its own transactions, the purge runs SET CONSTRAINTS, too (purge/batch.c).
 *
 * A key is freed as the user who writes, and that user's context is normally not
 * restricted: deferred triggers stay deferred.
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
	ResultRelInfo *root;		/* fires its statement triggers, if that is
								 * another table */
	EPQState	epqstate;
	TransitionCaptureState *transition;
	bool		fires_statement;
	bool		fires_before;	/* row triggers other than ours */
	bool		fires_after;
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
 * triggers are to fire, or NULL if none are.  The caller has an active snapshot.
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

/* Must the caller lock a row before it deletes it, because of BEFORE ROW triggers? */
bool
ttl_docs_delete_locks_first(const RowDeleter *deleter)
{
	return deleter->fires_before;
}

/* Does a delete fire triggers other than ours, so that it can take long? */
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
 * Lets the deferred triggers of a query fire at its end, if the query runs on
 * behalf of a purge.  The query has just started.
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

/* Do we delete in a context in which core raises an error for a deferred trigger? */
static bool
nothing_can_be_deferred(void)
{
	return ttl_docs_is_purging() && InSecurityRestrictedOperation();
}

/* Changes the trigger list of a ResultRelInfo, which is not the relcache's. */
static void
mark_not_deferrable(TriggerDesc *triggers)
{
	if (triggers == NULL)
		return;
	for (int i = 0; i < triggers->numtriggers; i++)
		triggers->triggers[i].tgdeferrable =
			triggers->triggers[i].tginitdeferred = false;
}

/* Is there one that is enabled and not ours? */
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
 * Deletes a row that the caller has judged, under that command number.  Where
 * there are BEFORE ROW triggers, the caller has locked it, too: they would wait
 * for the lock otherwise.
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
		switch (table_tuple_delete(deleter->rel, tid, cid, estate->es_snapshot,
								   InvalidSnapshot, wait, &failure, false))
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
				/* this very command, or a trigger of it, did something to it */
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

/* All rows are deleted: fires what is left, and cleans up. */
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
