/*-------------------------------------------------------------------------
 *
 * visit.c
 *		A visit to a database: purges its tables in turns.
 *
 * A visit lasts about two seconds, because commands that need the database for
 * themselves (DROP DATABASE, CREATE DATABASE ... TEMPLATE) wait for the worker.
 * If a command asks the worker to leave, the worker ends the visit after the
 * current batch.  If there is more to do, the launcher sends another worker.
 *
 * Tables take turns, one step each.  The tables that were visited longest ago come
 * first.  A table that has to wait for purge_max_rate loses its turn to one that does
 * not: searches and truncations delete no rows.  A worker takes a table until the pass
 * or the visit ends, so that no two workers purge the same table.
 *
 * The worker knows the tables from shared memory.  It lists them from the catalog
 * only after collections were created or changed.  Tables that have no entry in
 * shared memory are purged as well (visit_tables.c).  They get up to a quarter of
 * each visit first, even if all other tables have a backlog.
 *
 * If ERROR outside of a step, or FATAL, ends the worker, its exit callback calls
 * ttl_docs_abandon_visit().
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "commands/extension.h"
#include "miscadmin.h"
#include "postmaster/interrupt.h"
#include "utils/backend_status.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/wait_event.h"

#include "purge/purge_internal.h"

/* maximum number of tables that take turns */
#define MAX_ACTIVE		8

/* delay for a table that a worker was purging when it exited; doubles each time */
#define FIRST_INTERRUPTION_DELAY	(60 * USECS_PER_SEC)
#define LONGEST_INTERRUPTION_DELAY	(3600 * USECS_PER_SEC)

/* the part of a visit that belongs to tables without an entry */
#define UNPLACED_TIME	(PURGE_VISIT_TIME / 4)

static PurgeWorker *my_worker = NULL;
static PurgeDatabase *my_database = NULL;
static PurgeTable *table_at_work = NULL;	/* the table of the current step */
static int64 visit_deadline;
static bool visit_is_capped = false;	/* has it waited for purge_max_rate? */
static uint32 wait_for_rate;
static uint32 wait_for_others;

static bool may_purge_here(void);
static void follow_reload(void);
static bool must_leave(void);
static void purge_tables(VisitTables *tables);
static int	purge_until(VisitTables *tables, int64 deadline);
static TablePass *next_pass(VisitTables *tables);
static int	choose_turn(TablePass *const *active, int nactive, int turn);
static bool take_table(PurgeTable *table, TimestampTz *announced_due);
static bool make_step(TablePass *pass);
static void report_activity(const TablePass *pass);
static void nap(int64 microseconds, uint32 wait_event);
static void end_visit(int tables_left);
static TimestampTz record_interruption(PurgeTable *table, const PurgeWorker *worker,
									   bool got_sigterm);

/*
 * Visits this database.  Sets its next_visit to DT_NOEND first, so that a session
 * that announces a document from now on lowers it.
 */
void
ttl_docs_visit(PurgeWorker *worker)
{
	VisitTables tables;
	bool		allowed;

	my_worker = worker;
	visit_deadline = ttl_docs_elapsed() + PURGE_VISIT_TIME;
	wait_for_rate = compat_wait_event("TtlDocsPurgeRate");
	wait_for_others = compat_wait_event("TtlDocsPurgePause");
	my_database = ttl_docs_purge_database(MyDatabaseId, true);
	if (my_database != NULL)
		pg_atomic_write_u64(&my_database->next_visit, (uint64) DT_NOEND);
	pg_memory_barrier();

	pgstat_report_activity(STATE_RUNNING, "ttl_docs: searching for expired documents");
	follow_reload();
	StartTransactionCommand();
	PushActiveSnapshot(GetTransactionSnapshot());
	allowed = may_purge_here();
	if (allowed)
		ttl_docs_find_visit_tables(my_database, &tables);
	PopActiveSnapshot();
	CommitTransactionCommand();

	/* if there are very many tables, listing them may have taken all the time */
	visit_deadline = Max(visit_deadline, ttl_docs_elapsed() + PURGE_VISIT_TIME / 4);
	if (allowed)
		purge_tables(&tables);
	else
		end_visit(0);
}

/*
 * Is the extension installed in this database, and is the purge on?  If not, the
 * entry of the database tells the launcher to send no more workers.
 *
 * Other sessions may install the extension or turn the purge on at the same time.
 * For the extension, we set the flag before we read the catalog, and clear it
 * afterwards if the extension is there; a session that installs it clears the flag
 * after its commit.  For settings, see launcher.c.
 */
static bool
may_purge_here(void)
{
	bool		installed;
	bool		is_on = ttl_docs_purge_on && !DefaultXactReadOnly;

	if (my_database != NULL)
		my_database->lacks_extension = true;
	pg_memory_barrier();
	installed = OidIsValid(get_extension_oid(TTL_DOCS_EXTENSION, true));
	if (my_database != NULL)
	{
		bool		is_off = installed && !is_on;

		if (installed)
			my_database->lacks_extension = false;
		pg_atomic_write_u64(&my_database->off_epoch, is_off ? my_worker->settings_epoch : 0);
		if (is_off)
		{
			/* prepare the visit of the worker that finds the purge on */
			pg_atomic_write_u32(&my_database->must_list, 1);
			ttl_docs_lower_time(&my_database->next_visit, ttl_docs_clock());
		}
	}
	return installed && is_on;
}

/* Reloads the configuration if it has changed.  Called outside of transactions. */
static void
follow_reload(void)
{
	if (!ConfigReloadPending && !my_worker->must_reload)
		return;
	my_worker->must_reload = false;
	ConfigReloadPending = false;
	ProcessConfigFile(PGC_SIGHUP);
}

/* Must the visit end?  A reload may have turned the purge off. */
static bool
must_leave(void)
{
	return my_worker->must_leave || !ttl_docs_purge_on ||
		ttl_docs_elapsed() >= visit_deadline;
}

/* Purges tables until all are finished or the visit must end. */
static void
purge_tables(VisitTables *tables)
{
	int			left = 0;

	ttl_docs_observe_load();
	if (tables->placed != NIL)
	{
		List	   *placed = tables->placed;

		tables->placed = NIL;
		left += purge_until(tables, ttl_docs_elapsed() + UNPLACED_TIME);
		tables->placed = placed;
	}
	left += purge_until(tables, visit_deadline);
	left += list_length(tables->placed) + (ttl_docs_has_unplaced(tables) ? 1 : 0);
	end_visit(left);
}

/* Purges tables, a few in turns, and returns the number of unfinished ones. */
static int
purge_until(VisitTables *tables, int64 deadline)
{
	TablePass  *active[MAX_ACTIVE];
	int			nactive = 0;
	int			turn = 0;
	/* leave tables for other workers */
	int			max_active = Max(MAX_ACTIVE / ttl_docs_purge_workers, 1);

	while (!must_leave() && ttl_docs_elapsed() < deadline)
	{
		TablePass  *pass;

		while (nactive < max_active && (pass = next_pass(tables)) != NULL)
			active[nactive++] = pass;
		if (nactive == 0)
			break;
		turn = choose_turn(active, nactive, turn % nactive);
		pass = active[turn];
		if (make_step(pass))
		{
			turn++;
			continue;
		}
		ttl_docs_end_pass(pass, false);
		MemoryContextDelete(pass->context);
		active[turn] = active[--nactive];
	}
	for (int i = 0; i < nactive; i++)
	{
		if (active[i]->target.table == NULL)
			ttl_docs_unplaced_has_left(tables);
		ttl_docs_end_pass(active[i], visit_is_capped && ttl_docs_batch_is_next(active[i]));
	}
	return nactive;
}

/* The pass whose turn it is.  If it has to wait for the rate: the next one that has not. */
static int
choose_turn(TablePass *const *active, int nactive, int turn)
{
	if (ttl_docs_rate_wait() == 0)
		return turn;
	for (int i = 0; i < nactive; i++)
		if (!ttl_docs_batch_is_next(active[(turn + i) % nactive]))
			return (turn + i) % nactive;
	return turn;
}

/* Begins a pass over the next table that no worker has taken; NULL if none. */
static TablePass *
next_pass(VisitTables *tables)
{
	MemoryContext context;
	TablePass  *pass;
	PurgeTable *table = NULL;
	TimestampTz announced_due = DT_NOBEGIN;
	Oid			relid;

	while (table == NULL && tables->placed != NIL)
	{
		table = linitial(tables->placed);
		tables->placed = list_delete_first(tables->placed);
		if (!take_table(table, &announced_due))
			table = NULL;
	}
	relid = table != NULL ? table->key.relid : ttl_docs_next_unplaced(tables);
	if (!OidIsValid(relid))
		return NULL;

	context = AllocSetContextCreate(TopMemoryContext, "ttl_docs pass",
									ALLOCSET_DEFAULT_SIZES);
	pass = MemoryContextAllocZero(context, sizeof(TablePass));
	pass->context = context;
	pass->target.relid = relid;
	pass->target.table = table;
	pass->target.context = context;
	pass->run = ttl_docs_run_in_transaction;
	pass->instant = DT_NOEND;
	pass->announced_due = announced_due;
	pass->row_limit = ttl_docs_purge_batch_size;
	ttl_docs_begin_pass(pass);
	return pass;
}

/*
 * Takes a table, unless another worker has taken it.  *announced_due is its
 * next_visit, which is set to DT_NOEND.
 */
static bool
take_table(PurgeTable *table, TimestampTz *announced_due)
{
	bool		taken = false;

	LWLockAcquire(ttl_docs_purge_shared->lock, LW_EXCLUSIVE);
	if (table->taken_by == 0 && table->key.database == MyDatabaseId)
	{
		table->taken_by = MyProcPid;
		*announced_due = (TimestampTz) pg_atomic_exchange_u64(&table->next_visit,
															  (uint64) DT_NOEND);
		taken = true;
	}
	LWLockRelease(ttl_docs_purge_shared->lock);
	return taken;
}

/*
 * Runs one step of a pass, respecting the rate limit and the pause.  False if the
 * pass has ended.
 */
static bool
make_step(TablePass *pass)
{
	StepPace	pace;
	int64		wait = ttl_docs_begin_step(&pace, ttl_docs_batch_is_next(pass));
	int64		began;
	int64		pause;
	bool		goes_on;

	if (wait > 0)
	{
		visit_is_capped = true;
		if (pass->target.table != NULL)
			pass->target.table->state = PURGE_CAPPED;
		nap(wait, wait_for_rate);
		if (must_leave())
		{
			ttl_docs_skip_step(&pace);
			return true;
		}
	}
	follow_reload();
	pass->row_limit = pace.row_limit;
	pass->time_limit = pace.time_limit;
	report_activity(pass);
	began = ttl_docs_elapsed();
	table_at_work = pass->target.table;
	goes_on = ttl_docs_step_pass(pass);
	table_at_work = NULL;
	pause = ttl_docs_end_step(&pace, pass, ttl_docs_elapsed() - began);
	if (pause > 0)
		nap(Min(pause, visit_deadline - ttl_docs_elapsed()), wait_for_others);
	return goes_on;
}

/* Shows the table in pg_stat_activity. */
static void
report_activity(const TablePass *pass)
{
	char		activity[2 * NAMEDATALEN + 64];

	if (pass->target.name == NULL)
		return;
	snprintf(activity, sizeof(activity), "ttl_docs: purging %s", pass->target.name);
	pgstat_report_activity(STATE_RUNNING, activity);
}

/* Waits, outside of any transaction.  Returns early if the visit must end. */
static void
nap(int64 microseconds, uint32 wait_event)
{
	int64		until = ttl_docs_elapsed() + microseconds;
	int64		left = microseconds;

	while (left > 0 && !must_leave())
	{
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 (left + 999) / 1000, wait_event);
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
		follow_reload();
		left = until - ttl_docs_elapsed();
	}
}

/* Ends the visit, and sets the time of the next one. */
static void
end_visit(int tables_left)
{
	TimestampTz next_visit = DT_NOEND;
	List	   *tables;
	ListCell   *lc;

	if (my_database == NULL)
		return;
	tables = ttl_docs_purge_tables(MyDatabaseId);
	foreach(lc, tables)
	{
		PurgeTable *table = lfirst(lc);

		next_visit = Min(next_visit, ttl_docs_read_time(&table->next_visit));
	}
	next_visit = Min(next_visit, ttl_docs_next_unplaced_round(my_database));
	LWLockAcquire(ttl_docs_purge_shared->lock, LW_EXCLUSIVE);
	my_database->was_visited = true;
	my_database->visited = ttl_docs_elapsed();
	my_database->has_more = tables_left > 0;
	my_database->tables_left = tables_left;
	my_database->failures = 0;
	LWLockRelease(ttl_docs_purge_shared->lock);
	ttl_docs_lower_time(&my_database->next_visit, next_visit);
}

/*
 * The worker exits in the middle of a visit.  The progress of its passes is
 * unknown, so they begin from the start.  The table of the current step may be the
 * cause, so its next visit is later than that of the others.
 *
 * Since PostgreSQL 19, core sends SIGTERM to a worker if a command needs the
 * database.  Then the next visit is as soon as after a visit that was completed.
 */
void
ttl_docs_abandon_visit(PurgeWorker *worker, bool got_sigterm)
{
	TimestampTz clock = ttl_docs_clock();
	PurgeDatabase *database = ttl_docs_purge_database(worker->database, false);
	List	   *tables = ttl_docs_purge_tables(worker->database);
	ListCell   *lc;

	foreach(lc, tables)
	{
		PurgeTable *table = lfirst(lc);
		TimestampTz next_visit = clock;

		if (table->taken_by != MyProcPid)
			continue;
		if (table == table_at_work)
			next_visit += record_interruption(table, worker, got_sigterm);
		LWLockAcquire(ttl_docs_purge_shared->lock, LW_EXCLUSIVE);
		table->taken_by = 0;
		table->progress.is_set = false;
		table->visited = clock;
		LWLockRelease(ttl_docs_purge_shared->lock);
		ttl_docs_lower_time(&table->next_visit, next_visit);
	}
	if (database == NULL)
		return;
	LWLockAcquire(ttl_docs_purge_shared->lock, LW_EXCLUSIVE);
	database->was_visited = true;
	database->visited = ttl_docs_elapsed();
	database->has_more = false;
	database->tables_left = 0;
	/* a command that needs the database may have ended the worker: no failure */
	if (!COMPAT_CORE_ENDS_WORKERS || !got_sigterm || worker->was_ended)
		database->failures++;
	LWLockRelease(ttl_docs_purge_shared->lock);
	/* the worker may not have listed all tables */
	pg_atomic_write_u32(&database->must_list, 1);
	ttl_docs_lower_time(&database->next_visit, clock);
}

/*
 * The worker exits while it purges a table.  Returns the delay until the next visit
 * of that table.  A trigger can cause the exit (exit_on_error); the delay gives
 * other tables their turn.
 */
static TimestampTz
record_interruption(PurgeTable *table, const PurgeWorker *worker,
					bool got_sigterm)
{
	PurgeError	error;
	int			failures;

	/* an administrator ended the worker, or the server stops */
	if (got_sigterm && !worker->was_ended)
		return 0;
	ttl_docs_make_error(&error, ERRCODE_QUERY_CANCELED, worker->was_ended ?
						"the purge worker took too long and was terminated" :
						"the purge worker exited while it purged the table",
						NULL);
	ttl_docs_record_error(table, psprintf("table %u", table->key.relid), &error, true);
	LWLockAcquire(ttl_docs_purge_shared->lock, LW_EXCLUSIVE);
	failures = table->failures++;
	table->state = PURGE_TROUBLE;
	LWLockRelease(ttl_docs_purge_shared->lock);
	return ttl_docs_growing_delay(FIRST_INTERRUPTION_DELAY, failures,
								  LONGEST_INTERRUPTION_DELAY);
}
