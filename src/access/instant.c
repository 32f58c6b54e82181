/*-------------------------------------------------------------------------
 *
 * instant.c
 *		One instant for each query.
 *
 * The instant belongs to the snapshot.  It is chosen when a query starts:
 *
 * - REPEATABLE READ and SERIALIZABLE have one snapshot, so one instant, for
 *   the transaction;
 * - a query that runs under the snapshot of a query that is still alive (a
 *   STABLE function in it) shares its instant.  Core hands the very same
 *   snapshot down, so the pointer tells;
 * - else the query has a snapshot of its own, and its instant is the clock;
 * - a snapshot can be older than the query.  An instant that is later than its
 *   snapshot would hide live documents: those that somebody has touched in
 *   between, of which the snapshot shows the version that is over.  Core takes
 *   snapshots just before it starts a query, with two exceptions.  A utility
 *   command (EXECUTE, COPY) has one before it plans, and waits for locks; so it
 *   is in the list with its snapshot, like a query.  And the snapshot of a
 *   REPEATABLE READ transaction is as old as the first statement that needed
 *   one.  That statement may have waited for locks or (DEFERRABLE) for a safe
 *   snapshot; it may have been analyzed first and executed later; it may have
 *   failed in a savepoint, or been a fast-path call of a function.  So the
 *   instant is when that statement arrived, or the last moment since then that
 *   is known to be before the snapshot: when a utility command began, such as
 *   BEGIN, or when the transaction before ended, as in the loop of a procedure.
 *   (Such a moment counts only if it belongs to the same statement: an earlier
 *   statement may have run before the clock was set back.)  An imported snapshot
 *   has an instant of its own (imported_snapshot.c);
 * - foreign key checks (foreign_key.c) are judged at the clock at every
 *   isolation level.
 *
 * Live queries.  Each query is in the list from ExecutorStart until its memory
 * goes.  A memory context callback takes it out, so an error does it too;
 * otherwise a later snapshot at the same address would inherit an instant that
 * is not its own.  While ExecutorStart itself runs (it can evaluate STABLE
 * functions to prune partitions) the entry is on the stack.
 *
 * The running query is the innermost one that executes right now.  The
 * visibility test takes its instant; the write trigger asks it what command it
 * serves.  ExecutorFinish counts as running: it completes data-modifying CTEs.
 *
 * Parallel workers get the instant as an executor parameter: plan.c
 * appends one to the plan, the leader fills it in here, core sends
 * it, and the worker takes it over when it begins to run.  (A parameter in the
 * test itself would break EXPLAIN, which wants to know where it comes from.)
 *
 * A foreign key check can wait for the lock of the row it found, and the
 * document can expire meanwhile.  The test notes until when the row lives; if
 * that has passed when the check is through, what it found no longer counts.
 * Core has the row by then, so that is a serialization failure; tried again,
 * the check finds out by itself.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/parallel.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "replication/walsender.h"
#include "tcop/utility.h"
#include "utils/fmgroids.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "access/access_internal.h"

/* A live query in its memory context */
typedef struct LiveQueryHolder
{
	LiveQuery	query;
	MemoryContextCallback callback;
} LiveQueryHolder;

static LiveQuery *live_queries = NULL;
static LiveQuery *running_query = NULL;
static UtilityCommand *innermost_command = NULL;

/* The instant of this REPEATABLE READ or SERIALIZABLE transaction */
static bool transaction_instant_is_set = false;
static TimestampTz transaction_instant;

/* Has this transaction published its instant, see imported_snapshot.c? */
static bool has_published = false;

/*
 * The last moment when a utility command began or a transaction ended, and when
 * the statement arrived in which that happened
 */
static TimestampTz last_boundary = DT_NOBEGIN;
static TimestampTz last_boundary_statement = DT_NOBEGIN;

static bool copies_snapshot(Node *parsetree);
static bool is_copy(Snapshot a, Snapshot b);
static void choose_instant(LiveQuery *query);
static TimestampTz instant_of_transaction(void);
static void set_transaction_instant(TimestampTz instant);
static void note_boundary(void);
static TimestampTz instant_of_snapshot(Snapshot snapshot);
static void take_leaders_instant(LiveQuery *query);
static void tell_workers(LiveQuery *query);
static LiveQuery *find_live_query(QueryDesc *queryDesc);
static void drop_live_query(LiveQuery *query);
static void forget_live_query(void *arg);

/* The query that executes right now, or NULL. */
LiveQuery *
ttl_docs_running_query(void)
{
	return running_query;
}

/*
 * The instant for code that is called right now: that of the query whose
 * snapshot is active.  Without one (an expression that a procedural language
 * evaluates by itself is a statement of its own) it is the clock.
 */
TimestampTz
ttl_docs_current_instant(void)
{
	if (IsolationUsesXactSnapshot())
		return instant_of_transaction();
	if (!ActiveSnapshotSet())
		return ttl_docs_clock();
	return instant_of_snapshot(GetActiveSnapshot());
}

/*
 * The parameter that carries the instant to the workers of a parallel plan, or
 * -1 if the plan has not passed plan.c.  It is known by the mark that
 * follows it, whose type no parameter of a query can have.
 */
int
ttl_docs_instant_param(const PlannedStmt *stmt)
{
	StaticAssertStmt(sizeof(Datum) == sizeof(TimestampTz),
					 "the instant is passed as a Datum");
	for (int i = list_length(stmt->paramExecTypes) - 1; i > 0; i--)
		if (list_nth_oid(stmt->paramExecTypes, i) == PLAN_MARK_TYPE)
			return i - 1;
	return -1;
}

/* Its statement, or NULL. */
const PlannedStmt *
ttl_docs_running_stmt(void)
{
	return running_query != NULL ? running_query->stmt : NULL;
}

/*
 * The number of the command that writes: that of the running query, if it is one
 * that writes.  Under a later number, which commands of triggers have, that query
 * would take a row that we delete for one that a trigger changed behind its back
 * when its scan comes to it.
 */
CommandId
ttl_docs_writing_command(void)
{
	CommandId	current = GetCurrentCommandId(true);

	return running_query != NULL && running_query->stmt->commandType != CMD_SELECT ?
		running_query->estate->es_output_cid : current;
}

/* Is a row written because core's RI triggers write its parent? */
bool
ttl_docs_in_foreign_key_action(void)
{
	return running_query != NULL && running_query->foreign_key_action;
}

/* The utility command that runs right now, without parts that core made of it. */
UtilityCommand *
ttl_docs_running_command(void)
{
	UtilityCommand *command = innermost_command;

	while (command != NULL && command->is_subcommand)
		command = command->outer;
	return command;
}

/*
 * A utility command begins.  It has a snapshot before it has a query, so it is in
 * the list of live queries.  Its entry is not in a memory context of the command,
 * which may commit in between.
 */
void
ttl_docs_begin_utility(Node *parsetree, ProcessUtilityContext context)
{
	UtilityCommand command = {0};

	command.imported = ttl_docs_instant_to_import(parsetree);
	/* a walsender may have been given a snapshot by its last command */
	if (!am_walsender)
		note_boundary();
	if (ActiveSnapshotSet())
	{
		command.query.snapshot = GetActiveSnapshot();
		command.query.copies_snapshot = copies_snapshot(parsetree);
		command.query.instant = IsolationUsesXactSnapshot() ?
			instant_of_transaction() : instant_of_snapshot(command.query.snapshot);
	}
	note_boundary();
	command.query.is_utility = true;
	command.query.next = live_queries;
	command.outer = innermost_command;
	command.outer_running = running_query;
	command.is_subcommand = context == PROCESS_UTILITY_SUBCOMMAND;
	command.may_validate = ttl_docs_validates_foreign_key(parsetree);

	innermost_command = MemoryContextAlloc(TopMemoryContext, sizeof(UtilityCommand));
	*innermost_command = command;
	live_queries = &innermost_command->query;
	/* what COPY FROM writes is not written by a query that has called it */
	if (IsA(parsetree, CopyStmt))
		running_query = NULL;
}

/* The command is through. */
void
ttl_docs_utility_has_run(void)
{
	if (innermost_command->imported != DT_NOEND)
		set_transaction_instant(Min(innermost_command->imported, ttl_docs_clock()));
	else if (!am_walsender && !FirstSnapshotSet)
		note_boundary();		/* LOCK TABLE can take its time */
}

/* A utility command ends, by itself or by an error. */
void
ttl_docs_end_utility(void)
{
	UtilityCommand *command = innermost_command;

	drop_live_query(&command->query);
	running_query = command->outer_running;
	innermost_command = command->outer;
	pfree(command);
}

/* Does the command run its query under a copy of the snapshot it was given? */
static bool
copies_snapshot(Node *parsetree)
{
	switch (nodeTag(parsetree))
	{
		case T_CopyStmt:
			/* COPY FROM has no query, and its triggers are on their own */
			return !((CopyStmt *) parsetree)->is_from;
		case T_CreateTableAsStmt:
		case T_RefreshMatViewStmt:
		case T_ExplainStmt:
			return true;
		default:
			return false;
	}
}

/* Do both see the same?  The command number may have moved on. */
static bool
is_copy(Snapshot a, Snapshot b)
{
	return a->snapshot_type == SNAPSHOT_MVCC && b->snapshot_type == SNAPSHOT_MVCC &&
		a->xmin == b->xmin && a->xmax == b->xmax && a->xcnt == b->xcnt &&
		a->subxcnt == b->subxcnt &&
		a->snapXactCompletionCount == b->snapXactCompletionCount;
}

/*
 * The transaction may have taken its snapshot by now.  hooks.c calls this where no
 * query starts: when a statement was analyzed, which may only be prepared, and when
 * a subtransaction was rolled back, whose statement may have failed before it was a
 * query.
 */
void
ttl_docs_note_transaction_snapshot(void)
{
	if (IsolationUsesXactSnapshot() && FirstSnapshotSet)
		(void) instant_of_transaction();
}

/* Starts a query by calling start(). */
void
ttl_docs_start_query(QueryDesc *queryDesc, int eflags, ExecutorStart_hook_type start)
{
	LiveQuery	starting = {0};
	LiveQueryHolder *holder;

	starting.snapshot = queryDesc->snapshot;
	ttl_docs_recognise_foreign_key_query(&starting, queryDesc, eflags);
	/* reads the clock: as soon after the snapshot as possible */
	choose_instant(&starting);
	ttl_docs_prepare_plan(queryDesc);
	starting.stmt = queryDesc->plannedstmt;
	starting.repacked = ttl_docs_repacked_collection(starting.stmt);
	starting.next = live_queries;
	live_queries = &starting;
	PG_TRY();
	{
		start(queryDesc, eflags);
	}
	PG_FINALLY();
	{
		drop_live_query(&starting);
	}
	PG_END_TRY();

	holder = MemoryContextAlloc(queryDesc->estate->es_query_cxt,
								sizeof(LiveQueryHolder));
	holder->query = starting;
	holder->query.estate = queryDesc->estate;
	holder->query.next = live_queries;
	live_queries = &holder->query;
	holder->callback.func = forget_live_query;
	holder->callback.arg = &holder->query;
	MemoryContextRegisterResetCallback(queryDesc->estate->es_query_cxt,
									   &holder->callback);
	if (queryDesc->plannedstmt->parallelModeNeeded)
		tell_workers(&holder->query);
}

/* Runs a query by calling run(). */
void
ttl_docs_run_query(COMPAT_RUN_PARAMS, ExecutorRun_hook_type run)
{
	LiveQuery  *outer = running_query;
	LiveQuery  *volatile query = find_live_query(queryDesc);

	if (query != NULL && IsParallelWorker() && running_query == NULL)
		take_leaders_instant(query);
	running_query = query;
	PG_TRY();
	{
		run(COMPAT_RUN_ARGS);
	}
	PG_FINALLY();
	{
		running_query = outer;
	}
	PG_END_TRY();

	if (query != NULL && query->foreign_key_check &&
		query->estate->es_processed > 0 &&
		query->checked_due <= ttl_docs_clock())
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("could not check a foreign key: a document expired meanwhile"),
				 errhint("The transaction might succeed if retried.")));
}

/* Finishes a query by calling finish(). */
void
ttl_docs_finish_query(QueryDesc *queryDesc, ExecutorFinish_hook_type finish)
{
	LiveQuery  *outer = running_query;

	running_query = find_live_query(queryDesc);
	PG_TRY();
	{
		finish(queryDesc);
	}
	PG_FINALLY();
	{
		running_query = outer;
	}
	PG_END_TRY();
}

static void
choose_instant(LiveQuery *query)
{
	query->checked_due = DT_NOEND;
	if (query->foreign_key_check)
		query->instant = ttl_docs_clock();
	else if (!IsolationUsesXactSnapshot())
		query->instant = instant_of_snapshot(query->snapshot);
	else
		query->instant = instant_of_transaction();
}

/* The instant of a REPEATABLE READ or SERIALIZABLE transaction. */
static TimestampTz
instant_of_transaction(void)
{
	TimestampTz clock;
	TimestampTz instant;

	if (transaction_instant_is_set)
		return transaction_instant;
	clock = ttl_docs_clock();
	/* a worker is told the leader's when it begins to run */
	if (IsParallelWorker())
		return clock;
	instant = last_boundary;
	if (!am_walsender)
	{
		TimestampTz statement = GetCurrentStatementStartTimestamp();

		if (last_boundary_statement != statement)
			instant = DT_NOBEGIN;
		instant = Max(instant, ttl_docs_shifted(statement));
	}
	/* the clock may have been set back since the statement arrived */
	set_transaction_instant(Min(instant, clock));
	return transaction_instant;
}

static void
set_transaction_instant(TimestampTz instant)
{
	transaction_instant = instant;
	transaction_instant_is_set = true;
}

/*
 * A function is about to be executed.  If it is a fast-path call, core has taken the
 * snapshot of the transaction, and calls no other hook of ours.  If it is
 * pg_export_snapshot(), other sessions can import the snapshot, so we publish a
 * moment that is not later than the instant of the snapshot.
 */
void
ttl_docs_note_function(Oid function)
{
	ttl_docs_note_transaction_snapshot();
	if (function != F_PG_EXPORT_SNAPSHOT)
		return;
	ttl_docs_publish_instant(IsolationUsesXactSnapshot() ? instant_of_transaction() :
							 ttl_docs_shifted(GetCurrentStatementStartTimestamp()));
	has_published = true;
}

/* No snapshot that the transaction takes from now on is older than this moment. */
static void
note_boundary(void)
{
	last_boundary = ttl_docs_clock();
	last_boundary_statement = GetCurrentStatementStartTimestamp();
}

/* The instant of the live query that has this snapshot, or the clock. */
static TimestampTz
instant_of_snapshot(Snapshot snapshot)
{
	LiveQuery  *innermost = live_queries;

	if (snapshot == NULL)
		return ttl_docs_clock();
	for (LiveQuery *query = innermost; query != NULL; query = query->next)
		if (query->snapshot == snapshot && !query->foreign_key_check)
			return query->instant;
	if (innermost != NULL && innermost->snapshot != NULL &&
		innermost->copies_snapshot &&
		is_copy(innermost->snapshot, snapshot))
		return innermost->instant;
	return ttl_docs_clock();
}

/* In a parallel worker, for the part of the plan that it was sent. */
static void
take_leaders_instant(LiveQuery *query)
{
	int			param = ttl_docs_instant_param(query->stmt);

	/* core starts parameters as zero; what was not sent stays so */
	if (param < 0 || query->estate->es_param_exec_vals[param].value == (Datum) 0)
		return;
	query->instant = (TimestampTz)
		DatumGetInt64(query->estate->es_param_exec_vals[param].value);
	if (IsolationUsesXactSnapshot())
	{
		transaction_instant = query->instant;
		transaction_instant_is_set = true;
	}
}

/* In the leader: puts the instant where core finds it for the workers. */
static void
tell_workers(LiveQuery *query)
{
	int			param = ttl_docs_instant_param(query->stmt);

	if (param < 0)
		return;
	query->estate->es_param_exec_vals[param].value = Int64GetDatum(query->instant);
	query->estate->es_param_exec_vals[param].isnull = false;
}

static LiveQuery *
find_live_query(QueryDesc *queryDesc)
{
	for (LiveQuery *query = live_queries; query != NULL; query = query->next)
		if (query->estate == queryDesc->estate)
			return query;
	return NULL;
}

static void
drop_live_query(LiveQuery *query)
{
	for (LiveQuery **link = &live_queries; *link != NULL; link = &(*link)->next)
	{
		if (*link == query)
		{
			*link = query->next;
			return;
		}
	}
}

/* The query's memory goes, by its end or by an error. */
static void
forget_live_query(void *arg)
{
	drop_live_query((LiveQuery *) arg);
}

/*
 * A transaction ends.  A procedure that commits goes on, but the snapshot that
 * CALL had is gone.  (After an error, plans may be gone by now, too.)
 */
void
ttl_docs_forget_transaction(void)
{
	ttl_docs_forget_kept_settings();
	if (has_published)
		ttl_docs_unpublish_instants();
	has_published = false;
	transaction_instant_is_set = false;
	note_boundary();
	for (LiveQuery *query = live_queries; query != NULL; query = query->next)
		if (query->is_utility)
			query->snapshot = NULL;
}
