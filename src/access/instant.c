/*-------------------------------------------------------------------------
 *
 * instant.c
 *		Chooses one instant for each query.
 *
 * The instant belongs to the snapshot of the query, and must not be later
 * than the snapshot.  Otherwise the query would lose live documents: if
 * somebody touched a document after the snapshot was taken, the snapshot
 * shows the version from before, which may have expired by the instant.
 *
 * The instant is chosen when the query starts.  The first rule that applies
 * decides:
 *
 * 1. A foreign key check (foreign_key.c) uses the clock, at every isolation
 *    level.
 * 2. In REPEATABLE READ and SERIALIZABLE, the transaction has one snapshot
 *    and one instant (see below).
 * 3. A query that uses the snapshot of a live query shares the instant of
 *    that query.  An example is a query of a STABLE function.  Core passes on
 *    the same snapshot, so we compare pointers.
 * 4. A query under a snapshot that other queries or functions have used before
 *    has their instant (held_instant.c).
 * 5. Otherwise, the query has its own snapshot.  Core takes a snapshot just
 *    before it starts a query, so the instant is the clock.
 *
 * A utility command (EXECUTE, COPY) takes its snapshot earlier: before it
 * plans its query and waits for locks.  So the command has an entry in the
 * list of live queries, with its snapshot, and its query falls under rule 3.
 * Some commands run their query under a copy of their snapshot, at another
 * address.  For these, we compare the contents of the snapshots (is_copy()).
 *
 * The snapshot of a REPEATABLE READ transaction is as old as the first
 * statement that needed a snapshot.  That statement may
 *
 * - have waited for locks or, if DEFERRABLE, for a safe snapshot;
 * - have been analyzed first and executed later;
 * - have failed in a savepoint;
 * - have been a fast-path call of a function.
 *
 * So the instant of the transaction is the latest time that we know to be
 * before the snapshot:
 *
 * - when the statement arrived;
 * - when a utility command began (BEGIN), or ended before the transaction had a
 *   snapshot (LOCK TABLE);
 * - when the previous transaction ended, as in the loop of a procedure.
 *
 * The last two (the boundaries) count only if they belong to the same
 * statement: an earlier statement may have run before the clock was set back.
 * In a walsender, the last boundary alone decides.  An imported snapshot has
 * its own instant (imported_snapshot.c).  If the transaction is part of one
 * that began on another node of Citus, that node has handed its instant over
 * (citus/instant.c), and the earlier of the two instants counts.
 *
 * Live queries.  A query is in the list of live queries from ExecutorStart
 * until its memory is freed.  A memory context callback removes it, also on
 * error.  Otherwise, a later snapshot at the same address would get the wrong
 * instant.  ExecutorStart can already evaluate STABLE functions, to prune
 * partitions, so the query has an entry on the stack while ExecutorStart
 * runs.
 *
 * The running query is the innermost query that is being executed.  The
 * visibility test uses the instant of the running query.  The write trigger
 * asks for the command type of the running query.  ExecutorFinish counts as
 * running, because it completes data-modifying CTEs.
 *
 * Parallel workers get the instant as an executor parameter: plan.c appends
 * the parameter to the plan, the leader sets its value here, core sends the
 * value, and the worker reads it when it begins to run.  (The visibility test
 * itself cannot have the parameter as an argument: EXPLAIN would fail to find
 * the origin of the parameter.)
 *
 * A foreign key check can wait for the lock of the parent that it found, and
 * the parent can expire in the meantime.  So the visibility test records when
 * the parent expires.  If that time has passed when the check ends, we raise
 * a serialization failure, because core has already accepted the parent.
 * After a retry, the check does not find the parent.
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

/* A live query, with the callback that removes it from the list */
typedef struct LiveQueryHolder
{
	LiveQuery	query;
	MemoryContextCallback callback;
} LiveQueryHolder;

static LiveQuery *live_queries = NULL;
LiveQuery  *ttl_docs_running_query = NULL;
static UtilityCommand *innermost_command = NULL;

/* Is a query being planned, or inside of ExecutorStart?  Number of nestings. */
static int	planning_or_starting = 0;

/* May the running utility command check rows against a foreign key? */
bool		ttl_docs_validation_may_run = false;

/* The instant of this REPEATABLE READ or SERIALIZABLE transaction */
static bool transaction_instant_is_set = false;
static TimestampTz transaction_instant;

/* Has this transaction taken the instant of another node of Citus? */
static bool handed_instant_is_taken = false;

/* Has this transaction published an instant, see imported_snapshot.c? */
static bool has_published = false;

/*
 * The last boundary: the last time at which a utility command began or ended,
 * or a transaction ended; and when the statement of that time arrived.
 */
static TimestampTz last_boundary = DT_NOBEGIN;
static TimestampTz last_boundary_statement = DT_NOBEGIN;

static bool running_command_may_validate(void);
static bool copies_snapshot(Node *parsetree);
static bool is_copy(Snapshot a, Snapshot b);
static void hold_instant_after(LiveQuery *query, QueryDesc *queryDesc);
static void choose_instant(LiveQuery *query);
static TimestampTz instant_of_transaction(void);
static void take_handed_instant(void);
static void set_transaction_instant(TimestampTz instant);
static void record_boundary(void);
static TimestampTz instant_of_snapshot(Snapshot snapshot);
static bool find_instant(Snapshot snapshot, TimestampTz *instant);
static void take_leaders_instant(LiveQuery *query);
static void send_instant_to_workers(LiveQuery *query);
static LiveQuery *find_live_query(QueryDesc *queryDesc);
static void unlink_live_query(LiveQuery *query);
static void forget_live_query(void *arg);

/*
 * The instant for code that is called now: that of the query whose snapshot
 * is active.  If no query has this snapshot, the next queries under it get the
 * same instant.  Without an active snapshot, the instant is the clock.
 */
TimestampTz
ttl_docs_current_instant(void)
{
	TimestampTz instant;

	if (IsolationUsesXactSnapshot())
		return instant_of_transaction();
	if (!ActiveSnapshotSet())
		return ttl_docs_clock();
	if (!find_instant(GetActiveSnapshot(), &instant))
	{
		instant = ttl_docs_clock();
		ttl_docs_hold_instant(GetActiveSnapshot(), instant);
	}
	return instant;
}

/*
 * Code begins that may wait, and then run queries under the active snapshot.
 */
void
ttl_docs_note_snapshot(void)
{
	if (!IsolationUsesXactSnapshot())
		(void) ttl_docs_current_instant();
}

/* The statement of the running query, or NULL. */
const PlannedStmt *
ttl_docs_running_stmt(void)
{
	return ttl_docs_running_query != NULL ? ttl_docs_running_query->stmt : NULL;
}

/*
 * The command number for rows that we delete: that of the running query, if
 * it writes.  Commands of triggers have later numbers.  If we deleted a row
 * under a later number, and the scan of the running query then reached this
 * row, core would raise an error: it would believe that a trigger had changed
 * the row.
 */
CommandId
ttl_docs_writing_command(void)
{
	CommandId	current = GetCurrentCommandId(true);

	return ttl_docs_running_query != NULL &&
		(ttl_docs_running_query->stmt->commandType != CMD_SELECT ||
		 ttl_docs_running_query->stmt->hasModifyingCTE) ?
		ttl_docs_running_query->estate->es_output_cid : current;
}

/* Does a foreign key action of core write the row? */
bool
ttl_docs_in_foreign_key_action(void)
{
	return ttl_docs_running_query != NULL && ttl_docs_running_query->foreign_key_action;
}

/*
 * The running utility command.  If core has split a command into sub-commands,
 * returns the whole command.
 */
UtilityCommand *
ttl_docs_running_command(void)
{
	UtilityCommand *command = innermost_command;

	while (command != NULL && command->is_subcommand)
		command = command->outer;
	return command;
}

/*
 * A utility command begins.  It has a snapshot before it has a query, so it
 * gets an entry in the list of live queries.  The entry is in
 * TopMemoryContext, because the command may commit in between.
 */
void
ttl_docs_begin_utility(Node *parsetree, ProcessUtilityContext context)
{
	UtilityCommand command = {0};

	ttl_docs_release_held_instants();
	command.imported = ttl_docs_instant_to_import(parsetree);
	/* a walsender may have taken its snapshot in its previous command */
	if (!am_walsender)
		record_boundary();
	if (ActiveSnapshotSet())
	{
		command.query.snapshot = GetActiveSnapshot();
		command.query.copies_snapshot = copies_snapshot(parsetree);
		command.query.instant = IsolationUsesXactSnapshot() ?
			instant_of_transaction() : instant_of_snapshot(command.query.snapshot);
	}
	record_boundary();
	command.query.is_utility = true;
	command.query.next = live_queries;
	command.outer = innermost_command;
	command.outer_running = ttl_docs_running_query;
	command.is_subcommand = context == PROCESS_UTILITY_SUBCOMMAND;
	command.may_validate = ttl_docs_validates_foreign_key(parsetree);

	innermost_command = MemoryContextAlloc(TopMemoryContext, sizeof(UtilityCommand));
	*innermost_command = command;
	ttl_docs_validation_may_run = running_command_may_validate();
	live_queries = &innermost_command->query;
	/* rows of COPY FROM are not written by the query that runs the command */
	if (IsA(parsetree, CopyStmt))
		ttl_docs_running_query = NULL;
}

/* The command has succeeded. */
void
ttl_docs_utility_has_run(void)
{
	ttl_docs_release_held_instants();
	if (innermost_command->imported != DT_NOEND)
		set_transaction_instant(Min(innermost_command->imported, ttl_docs_clock()));
	else if (!am_walsender && !FirstSnapshotSet)
		record_boundary();		/* LOCK TABLE may have waited */
}

/* A utility command ends, normally or by an error. */
void
ttl_docs_end_utility(void)
{
	UtilityCommand *command = innermost_command;

	unlink_live_query(&command->query);
	ttl_docs_running_query = command->outer_running;
	innermost_command = command->outer;
	ttl_docs_validation_may_run = running_command_may_validate();
	pfree(command);
}

static bool
running_command_may_validate(void)
{
	const UtilityCommand *command = ttl_docs_running_command();

	return command != NULL && command->may_validate;
}

/* Called after a command: the next queries are ours, not validations. */
void
ttl_docs_stop_validation(void)
{
	ttl_docs_running_command()->may_validate = false;
	ttl_docs_validation_may_run = false;
}

/* Does the command run its query under a copy of the snapshot that it has? */
static bool
copies_snapshot(Node *parsetree)
{
	switch (nodeTag(parsetree))
	{
		case T_CopyStmt:
			/* COPY FROM has no query; queries of its triggers do not count */
			return !((CopyStmt *) parsetree)->is_from;
		case T_CreateTableAsStmt:
		case T_RefreshMatViewStmt:
		case T_ExplainStmt:
			return true;
		default:
			return false;
	}
}

/* Is one snapshot a copy of the other, apart from the command number? */
static bool
is_copy(Snapshot a, Snapshot b)
{
	return a->snapshot_type == SNAPSHOT_MVCC && b->snapshot_type == SNAPSHOT_MVCC &&
		a->xmin == b->xmin && a->xmax == b->xmax && a->xcnt == b->xcnt &&
		a->subxcnt == b->subxcnt &&
		a->snapXactCompletionCount == b->snapXactCompletionCount;
}

/*
 * Chooses the instant of the transaction, if the transaction has a snapshot.
 * hooks.c calls this where no query starts:
 *
 * - after a statement was analyzed, because it may be executed later;
 * - after a subtransaction was rolled back, because its statement may have
 *   failed before a query started.
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

	take_handed_instant();
	ttl_docs_release_held_instants();
	starting.snapshot = queryDesc->snapshot;
	if (eflags & EXEC_FLAG_SKIP_TRIGGERS)
		ttl_docs_recognise_foreign_key_query(&starting, queryDesc);
	/* reads the clock, so call it as soon after the snapshot as possible */
	choose_instant(&starting);
	starting.show_expired = ttl_docs_show_expired;
	starting.row_security = row_security;
	ttl_docs_prepare_plan(queryDesc);
	starting.stmt = queryDesc->plannedstmt;
	if (starting.stmt->commandType == CMD_INSERT &&
		list_length(starting.stmt->relationOids) > 1)
		starting.repacked = ttl_docs_repacked_collection(starting.stmt);
	starting.next = live_queries;
	live_queries = &starting;
	planning_or_starting++;
	PG_TRY();
	{
		start(queryDesc, eflags);
	}
	PG_FINALLY();
	{
		planning_or_starting--;
		unlink_live_query(&starting);
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
		send_instant_to_workers(&holder->query);
}

/* Runs a query by calling run(). */
void
ttl_docs_run_query(COMPAT_RUN_PARAMS, ExecutorRun_hook_type run)
{
	LiveQuery  *outer = ttl_docs_running_query;
	LiveQuery  *volatile query = find_live_query(queryDesc);

	if (query != NULL && IsParallelWorker() && ttl_docs_running_query == NULL)
		take_leaders_instant(query);
	ttl_docs_running_query = query;
	PG_TRY();
	{
		run(COMPAT_RUN_ARGS);
	}
	PG_FINALLY();
	{
		ttl_docs_running_query = outer;
	}
	PG_END_TRY();
	ttl_docs_release_held_instants();

	if (query != NULL && query->foreign_key_check &&
		query->estate->es_processed > 0 &&
		query->parent_expires <= ttl_docs_clock())
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("could not check a foreign key because the referenced document expired meanwhile"),
				 errhint("The transaction might succeed if retried.")));
}

/* Finishes a query by calling finish(). */
void
ttl_docs_finish_query(QueryDesc *queryDesc, ExecutorFinish_hook_type finish)
{
	LiveQuery  *outer = ttl_docs_running_query;
	LiveQuery  *volatile query = find_live_query(queryDesc);

	ttl_docs_running_query = query;
	PG_TRY();
	{
		finish(queryDesc);
	}
	PG_FINALLY();
	{
		ttl_docs_running_query = outer;
	}
	PG_END_TRY();
	ttl_docs_release_held_instants();
	if (query != NULL)
		hold_instant_after(query, queryDesc);
}

/* The query has run.  Other queries may follow under its snapshot. */
static void
hold_instant_after(LiveQuery *query, QueryDesc *queryDesc)
{
	if (IsolationUsesXactSnapshot() || query->foreign_key_check ||
		!ttl_docs_may_share_snapshot(queryDesc, ttl_docs_running_query != NULL ||
									 innermost_command != NULL))
		return;
	if (ttl_docs_rules_may_follow(query->stmt))
		ttl_docs_pass_on_instant(queryDesc->snapshot, query->instant);
	else
		ttl_docs_hold_instant(queryDesc->snapshot, query->instant);
}

/* A query is about to be planned. */
void
ttl_docs_begin_planning(void)
{
	planning_or_starting++;
}

/* A query has been planned, or an error has been raised. */
void
ttl_docs_end_planning(void)
{
	planning_or_starting--;
}

bool
ttl_docs_is_planning_or_starting(void)
{
	return planning_or_starting > 0;
}

static void
choose_instant(LiveQuery *query)
{
	query->parent_expires = DT_NOEND;
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
	/* a worker gets the leader's instant when it begins to run */
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

/*
 * Takes the instant that another node of Citus has handed over, or our own
 * one if that is earlier: our snapshot may be older than the instant.  The
 * other node can do this after our transaction has chosen its own instant,
 * but only before its first query on a distributed table.  Called where a
 * query starts, because it may run queries itself.
 */
static void
take_handed_instant(void)
{
	TimestampTz own;

	if (handed_instant_is_taken || !ttl_docs_has_handed_instant() ||
		!IsolationUsesXactSnapshot() || IsParallelWorker())
		return;
	own = instant_of_transaction();
	handed_instant_is_taken = true; /* its queries must not come here */
	PG_TRY();
	{
		set_transaction_instant(Min(ttl_docs_handed_instant(), own));
	}
	PG_CATCH();
	{
		handed_instant_is_taken = false;
		PG_RE_THROW();
	}
	PG_END_TRY();
}

static void
set_transaction_instant(TimestampTz instant)
{
	transaction_instant = instant;
	transaction_instant_is_set = true;
}

/*
 * A function is about to be executed.  For a fast-path call, core has taken
 * the snapshot of the transaction, and calls no other hook of ours.  Before
 * pg_export_snapshot(), we publish a time that is not later than the instant
 * of the snapshot, because other sessions can import the snapshot afterwards.
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

/* Records the clock: every snapshot that is taken later is not older. */
static void
record_boundary(void)
{
	last_boundary = ttl_docs_clock();
	last_boundary_statement = GetCurrentStatementStartTimestamp();
}

/* The instant that belongs to the snapshot already, or else the clock. */
static TimestampTz
instant_of_snapshot(Snapshot snapshot)
{
	TimestampTz instant;

	if (snapshot != NULL && find_instant(snapshot, &instant))
		return instant;
	return ttl_docs_clock();
}

/* Finds the instant of the queries that have this snapshot, or had it. */
static bool
find_instant(Snapshot snapshot, TimestampTz *instant)
{
	LiveQuery  *innermost = live_queries;

	for (LiveQuery *query = innermost; query != NULL; query = query->next)
	{
		if (query->snapshot == snapshot && !query->foreign_key_check)
		{
			*instant = query->instant;
			return true;
		}
	}
	if (ttl_docs_find_held_instant(snapshot, instant))
		return true;
	if (innermost != NULL && innermost->snapshot != NULL &&
		innermost->copies_snapshot &&
		is_copy(innermost->snapshot, snapshot))
	{
		*instant = innermost->instant;
		return true;
	}
	return false;
}

/* In a parallel worker: takes the instant from the parameter of its plan. */
static void
take_leaders_instant(LiveQuery *query)
{
	int			param = ttl_docs_instant_param(query->stmt);

	/* core initializes parameters to zero: zero means that none was sent */
	if (param < 0 || query->estate->es_param_exec_vals[param].value == (Datum) 0)
		return;
	query->instant = (TimestampTz)
		DatumGetInt64(query->estate->es_param_exec_vals[param].value);
	if (IsolationUsesXactSnapshot())
		set_transaction_instant(query->instant);
}

/*
 * In the leader: sets the parameter that core sends to the workers.  On a
 * 32-bit machine, the value is a pointer, and must live as long as the query.
 */
static void
send_instant_to_workers(LiveQuery *query)
{
	int			param = ttl_docs_instant_param(query->stmt);
	MemoryContext caller;

	if (param < 0)
		return;
	caller = MemoryContextSwitchTo(query->estate->es_query_cxt);
	query->estate->es_param_exec_vals[param].value = Int64GetDatum(query->instant);
	query->estate->es_param_exec_vals[param].isnull = false;
	MemoryContextSwitchTo(caller);
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
unlink_live_query(LiveQuery *query)
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

/* The memory of the query is freed, at its end or after an error. */
static void
forget_live_query(void *arg)
{
	unlink_live_query((LiveQuery *) arg);
}

/*
 * A transaction ends.  A procedure that commits continues, but the snapshot
 * of its CALL is gone.  After an error, plans may be gone, too, so do not use
 * them.
 */
void
ttl_docs_forget_transaction(void)
{
	ttl_docs_kept_by_transaction = NULL;
	ttl_docs_forget_held_instants();
	if (has_published)
		ttl_docs_unpublish_instants();
	has_published = false;
	transaction_instant_is_set = false;
	handed_instant_is_taken = false;
	record_boundary();
	for (LiveQuery *query = live_queries; query != NULL; query = query->next)
		if (query->is_utility)
			query->snapshot = NULL;
}
