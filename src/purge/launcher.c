/*-------------------------------------------------------------------------
 *
 * launcher.c
 *		The launcher sends workers to databases.
 *
 * There is one launcher.  The postmaster starts it when recovery is over: not on a
 * standby, but after a promotion.  If it ends for any reason, the postmaster starts
 * it again a few seconds later.  The launcher is connected to no database, and
 * reads only pg_database.  All its knowledge is in shared memory.
 *
 * The launcher sleeps until the next visit of a database.  Sessions and workers
 * lower next_visit and wake it (shmem.c, notify.c), so an idle server is not
 * disturbed.  Every five minutes the launcher reads pg_database and checks the clock,
 * in case of a change that nobody announced.  It sends a worker to a new database at
 * once, because only a worker can see whether the extension is installed there.
 *
 * Only a worker can see whether the purge is off in a database.  The settings of
 * the worker can be out of date: it inherits the settings of the postmaster and
 * reads those of the database when it connects, and both may change right after
 * that.  So the launcher counts, in settings_epoch, all events that may have turned
 * the purge on:
 *
 * 1. Settings change first: the postmaster reads its file, or ALTER DATABASE
 *    commits.  Then the launcher is notified, and increments settings_epoch.
 * 2. A worker has the settings_epoch of the time when the launcher requested it.
 *    If the worker finds that the purge is off, it stores that number in the entry
 *    of the database, and sets next_visit to now.
 * 3. The launcher trusts this result only while settings_epoch is still the same.
 *    Otherwise it sends another worker, which starts after the settings changed.
 *
 * The launcher also increments settings_epoch every five minutes, in case it was
 * not notified.
 *
 * The entry of a worker has three states:
 *
 *		free -> requested		by the launcher, in send_worker()
 *		requested -> running	by the worker, in attach_to_entry()
 *		running -> free			by the worker when it exits, in free_entry()
 *		requested -> free		by the launcher, in reap_lost_workers(), if the
 *								worker could not be started
 *
 * The launcher ends a worker that takes too long (end_overdue_worker).
 *
 * If several databases are to be visited, the one that was visited longest ago is
 * first.  A database whose last visit has purged everything gets no worker for
 * purge_naptime.  After a visit that failed, the delay is longer, and grows with
 * each failure.  A database gets a second worker only if its last visit had no time
 * for several tables.
 *
 * An error ends the launcher and is logged.  The postmaster starts it again.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_database.h"
#include "libpq/pqsignal.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/proc.h"
#include "tcop/tcopprot.h"
#include "utils/backend_status.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/wait_event.h"

#include "purge/purge_internal.h"

#define RESTART_SECONDS		5
/* time to wait for a requested worker to start */
#define START_TIMEOUT		(30 * USECS_PER_SEC)
/* a worker that runs longer is ended */
#define OVERDUE_TIME		(15 * USECS_PER_SEC)
/* delay after a visit that failed; doubles with each failure */
#define RETRY_TIME			USECS_PER_SEC
#define LONGEST_RETRY_TIME	(60 * USECS_PER_SEC)
/* delay after a failed start; doubles with each failure, up to RETRY_TIME */
#define FIRST_START_RETRY	INT64CONST(50000)
/* number of failed starts in a row that is logged: after a second and a half */
#define FAILED_STARTS_TO_LOG	6

static BackgroundWorkerHandle *handles[PURGE_MAX_WORKERS];
static int	failed_starts = 0;	/* in a row */
static int64 no_worker_slot_until = 0;	/* do not try to start a worker before
										 * then; elapsed time */

static void describe_process(BackgroundWorker *process, const char *name,
							 const char *function);
static bool become_launcher(void);
static void leave_launcher(int code, Datum arg);
static void reload_settings(void);
static void read_databases(void);
static void update_databases(List *all, List *connectable);
static void ask_again_where_off(void);
static void have_workers_reload(void);
static void reap_lost_workers(void);
static void end_overdue_worker(int index);
static void free_lost_worker(PurgeWorker *worker);
static int	workers_in(Oid database);
static TimestampTz send_workers(void);
static TimestampTz visit_time(PurgeDatabase *database);
static bool is_off(PurgeDatabase *database);
static bool send_worker(PurgeDatabase *database);
static void report_no_worker_slot(void);
static void clear_no_worker_slot(void);
static void sleep_until(TimestampTz when, uint32 wait_event);

/* Registers the launcher, when the library is preloaded. */
void
ttl_docs_register_launcher(void)
{
	BackgroundWorker process;

	/* pg_upgrade must be the only client */
	if (IsBinaryUpgrade)
		return;
	describe_process(&process, "ttl_docs launcher", PURGE_LAUNCHER_FUNCTION);
	process.bgw_restart_time = RESTART_SECONDS;
	RegisterBackgroundWorker(&process);
}

/* Sets what the launcher and its workers have in common. */
static void
describe_process(BackgroundWorker *process, const char *name, const char *function)
{
	memset(process, 0, sizeof(*process));
	process->bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	process->bgw_start_time = BgWorkerStart_RecoveryFinished;
	process->bgw_restart_time = BGW_NEVER_RESTART;
	strlcpy(process->bgw_library_name, TTL_DOCS_EXTENSION, BGW_MAXLEN);
	strlcpy(process->bgw_function_name, function, BGW_MAXLEN);
	strlcpy(process->bgw_name, name, BGW_MAXLEN);
	strlcpy(process->bgw_type, name, BGW_MAXLEN);
}

void
ttl_docs_launcher_main(Datum arg)
{
	MemoryContext context;
	TimestampTz next_recheck = DT_NOBEGIN;
	uint32		wait_event = compat_wait_event("TtlDocsLauncherMain");

	(void) arg;
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();
	if (!become_launcher())
		return;
	before_shmem_exit(leave_launcher, (Datum) 0);
	BackgroundWorkerInitializeConnection(NULL, NULL, 0);
	context = AllocSetContextCreate(TopMemoryContext, "ttl_docs launcher",
									ALLOCSET_DEFAULT_SIZES);
	MemoryContextSwitchTo(context);

	for (;;)
	{
		TimestampTz clock = ttl_docs_clock();
		TimestampTz next;
		bool		must_read;

		CHECK_FOR_INTERRUPTS();
		MemoryContextReset(context);
		if (ConfigReloadPending)
			reload_settings();
		ttl_docs_observe_clock();
		reap_lost_workers();
		/* if the clock has gone back, next_recheck is too far in the future */
		must_read = pg_atomic_exchange_u32(&ttl_docs_purge_shared->must_read_databases, 0) != 0;
		if (must_read || clock >= next_recheck ||
			next_recheck > clock + PURGE_RECHECK_TIME)
		{
			read_databases();
			ask_again_where_off();
			next_recheck = clock + PURGE_RECHECK_TIME;
		}
		next = Min(send_workers(), next_recheck);

		/*
		 * From now on, a session that lowers next_visit wakes us.  Check once more
		 * for sessions that lowered it before.
		 */
		pg_atomic_write_u64(&ttl_docs_purge_shared->wakes_at, (uint64) next);
		pg_memory_barrier();
		next = Min(next, send_workers());
		sleep_until(next, wait_event);
		pg_atomic_write_u64(&ttl_docs_purge_shared->wakes_at, (uint64) DT_NOBEGIN);
	}
}

/* Registers this process as the launcher.  False if there is another launcher. */
static bool
become_launcher(void)
{
	int			other;

	LWLockAcquire(ttl_docs_purge_shared->lock, LW_EXCLUSIVE);
	other = ttl_docs_purge_shared->launcher_pid;
	if (other == 0)
	{
		ttl_docs_purge_shared->launcher_pid = MyProcPid;
		ttl_docs_purge_shared->launcher_latch = MyLatch;
	}
	LWLockRelease(ttl_docs_purge_shared->lock);
	if (other != 0)
		ereport(LOG,
				(errmsg("ttl_docs launcher is already running with PID %d", other)));
	return other == 0;
}

static void
leave_launcher(int code, Datum arg)
{
	(void) code;
	(void) arg;
	LWLockAcquire(ttl_docs_purge_shared->lock, LW_EXCLUSIVE);
	if (ttl_docs_purge_shared->launcher_pid == MyProcPid)
	{
		ttl_docs_purge_shared->launcher_pid = 0;
		ttl_docs_purge_shared->launcher_latch = NULL;
	}
	LWLockRelease(ttl_docs_purge_shared->lock);
}

static void
reload_settings(void)
{
	ConfigReloadPending = false;
	ProcessConfigFile(PGC_SIGHUP);
	have_workers_reload();
	ask_again_where_off();
}

/*
 * Makes all workers reload the configuration.  The postmaster signals them, too,
 * but a worker that has just been started misses the signal.
 */
static void
have_workers_reload(void)
{
	LWLockAcquire(ttl_docs_purge_shared->lock, LW_EXCLUSIVE);
	for (int i = 0; i < PURGE_MAX_WORKERS; i++)
		ttl_docs_purge_shared->workers[i].must_reload = true;
	LWLockRelease(ttl_docs_purge_shared->lock);
}

/* Allows visits to databases where a worker has found that the purge is off. */
static void
ask_again_where_off(void)
{
	(void) pg_atomic_fetch_add_u64(&ttl_docs_purge_shared->settings_epoch, 1);
}

/* Reads pg_database, and updates the entries of databases. */
static void
read_databases(void)
{
	MemoryContext caller = CurrentMemoryContext;
	List	   *known = ttl_docs_purge_databases();
	List	   *all = NIL;
	List	   *connectable = NIL;
	Relation	catalog;
	TableScanDesc scan;
	HeapTuple	tuple;
	ListCell   *lc;

	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	(void) GetTransactionSnapshot();
	catalog = table_open(DatabaseRelationId, AccessShareLock);
	scan = table_beginscan_catalog(catalog, 0, NULL);
	while (HeapTupleIsValid(tuple = heap_getnext(scan, ForwardScanDirection)))
	{
		Form_pg_database form = (Form_pg_database) GETSTRUCT(tuple);
		MemoryContext of_transaction = MemoryContextSwitchTo(caller);

		all = lappend_oid(all, form->oid);
		/* an interrupted DROP DATABASE sets datconnlimit to -2 */
		if (form->datallowconn && form->datconnlimit != -2)
			connectable = lappend_oid(connectable, form->oid);
		MemoryContextSwitchTo(of_transaction);
	}
	table_endscan(scan);
	table_close(catalog, AccessShareLock);
	CommitTransactionCommand();
	MemoryContextSwitchTo(caller);

	/*
	 * Remove only entries that existed before the catalog was read.  Sessions in a
	 * new database may have created an entry since.
	 */
	foreach(lc, known)
	{
		Oid			database = ((PurgeDatabase *) lfirst(lc))->database;

		if (!list_member_oid(all, database))
			ttl_docs_forget_database(database);
	}
	update_databases(all, connectable);
}

static void
update_databases(List *all, List *connectable)
{
	ListCell   *lc;

	foreach(lc, all)
	{
		bool		can_connect = list_member_oid(connectable, lfirst_oid(lc));
		PurgeDatabase *database = ttl_docs_purge_database(lfirst_oid(lc), can_connect);

		if (database != NULL)
			database->can_connect = can_connect;
		else if (can_connect)
			ereport(LOG,
					(errmsg("ttl_docs has no room in shared memory for the database with OID %u",
							lfirst_oid(lc)),
					 errdetail("No worker purges this database."),
					 errhint("Connect to this database and run CALL ttl_docs.purge().")));
	}
}

/* Frees the entries of workers that did not start, and ends overdue workers. */
static void
reap_lost_workers(void)
{
	int64		now = ttl_docs_elapsed();

	for (int i = 0; i < PURGE_MAX_WORKERS; i++)
	{
		PurgeWorker *worker = &ttl_docs_purge_shared->workers[i];
		pid_t		pid;
		bool		is_lost;

		if (!OidIsValid(worker->database))
			continue;
		if (worker->pid != 0)
		{
			if (now - worker->requested_at >= OVERDUE_TIME)
				end_overdue_worker(i);
			continue;
		}
		if (handles[i] != NULL)
			is_lost = GetBackgroundWorkerPid(handles[i], &pid) == BGWH_STOPPED;
		else
			is_lost = now - worker->requested_at >= START_TIMEOUT;
		if (is_lost)
			free_lost_worker(worker);
	}
}

/*
 * Ends a worker that takes too long, for example because a trigger ignores cancels.
 * Other databases need their turn.
 *
 * The postmaster sends the signal, because only the postmaster knows for certain
 * that the process still exists.  A worker that an earlier launcher requested has
 * no handle here.  We send the signal to it ourselves, while we hold the lock.  The
 * worker takes the lock before it exits (free_entry), so its PID cannot belong to
 * another process yet.
 */
static void
end_overdue_worker(int index)
{
	PurgeWorker *worker = &ttl_docs_purge_shared->workers[index];
	BackgroundWorkerHandle *handle = handles[index];
	bool		is_there;

	LWLockAcquire(ttl_docs_purge_shared->lock, LW_EXCLUSIVE);
	is_there = worker->pid != 0;
	if (is_there)
		worker->was_ended = true;
	if (is_there && handle == NULL)
		(void) kill(worker->pid, SIGTERM);
	LWLockRelease(ttl_docs_purge_shared->lock);
	if (is_there && handle != NULL)
		TerminateBackgroundWorker(handle);
}

static void
free_lost_worker(PurgeWorker *worker)
{
	PurgeDatabase *database = ttl_docs_purge_database(worker->database, false);

	LWLockAcquire(ttl_docs_purge_shared->lock, LW_EXCLUSIVE);
	if (worker->pid == 0)
	{
		memset(worker, 0, sizeof(*worker));
		if (database != NULL)
		{
			database->was_visited = true;
			database->visited = ttl_docs_elapsed();
			database->failures++;
		}
	}
	LWLockRelease(ttl_docs_purge_shared->lock);
}

/* The number of requested and running workers of a database; InvalidOid = all. */
static int
workers_in(Oid database)
{
	int			count = 0;

	for (int i = 0; i < PURGE_MAX_WORKERS; i++)
	{
		Oid			visited = ttl_docs_purge_shared->workers[i].database;

		if (OidIsValid(database) ? visited == database : OidIsValid(visited))
			count++;
	}
	return count;
}

/*
 * Sends workers to databases, up to purge_workers at the same time.  Returns the
 * time of the next visit of any other database; DT_NOEND if the maximum number of
 * workers is running.  The exit of a worker wakes the launcher.
 */
static TimestampTz
send_workers(void)
{
	List	   *databases = ttl_docs_purge_databases();
	TimestampTz next;

	for (;;)
	{
		TimestampTz clock = ttl_docs_clock();
		PurgeDatabase *first = NULL;
		ListCell   *lc;

		next = DT_NOEND;
		if (workers_in(InvalidOid) >= ttl_docs_purge_workers)
			break;
		foreach(lc, databases)
		{
			PurgeDatabase *database = lfirst(lc);
			TimestampTz when = visit_time(database);

			/* with a tolerance of a millisecond */
			if (when > clock + 1000)
				next = Min(next, when);
			else if (first == NULL || database->visited < first->visited)
				first = database;
		}
		if (first == NULL)
		{
			/* no database waits for a worker any more */
			if (ttl_docs_elapsed() >= no_worker_slot_until)
				clear_no_worker_slot();
			break;
		}
		if (!send_worker(first))
		{
			next = clock + Max(no_worker_slot_until - ttl_docs_elapsed(), 0);
			break;
		}
	}
	list_free(databases);
	return next;
}

/* When to send the next worker to a database; DT_NOEND if never. */
static TimestampTz
visit_time(PurgeDatabase *database)
{
	TimestampTz next_visit = ttl_docs_read_time(&database->next_visit);
	int			workers = workers_in(database->database);
	int64		now = ttl_docs_elapsed();
	int64		free_at = now;

	if (!database->can_connect || database->lacks_extension ||
		is_off(database) || next_visit == DT_NOEND ||
		(workers > 0 && workers >= database->tables_left))
		return DT_NOEND;
	if (database->failures > 0)
		free_at = database->visited +
			ttl_docs_growing_delay(RETRY_TIME, database->failures, LONGEST_RETRY_TIME);
	else if (database->has_more)
		/* but truncations and searches do not wait for the rate */
		free_at = Min(now + ttl_docs_rate_wait(),
					  database->visited + ttl_docs_purge_naptime * INT64CONST(1000));
	else if (database->was_visited)
		free_at = database->visited + ttl_docs_purge_naptime * INT64CONST(1000);
	free_at = Max(free_at, Max(database->keep_out_until, no_worker_slot_until));
	return Max(next_visit, ttl_docs_clock() + Max(free_at - now, 0));
}

/* Has a worker found that the purge is off, under the current settings? */
static bool
is_off(PurgeDatabase *database)
{
	return pg_atomic_read_u64(&database->off_epoch) ==
		pg_atomic_read_u64(&ttl_docs_purge_shared->settings_epoch);
}

/* Requests a worker.  False if all background worker slots are in use. */
static bool
send_worker(PurgeDatabase *database)
{
	BackgroundWorker process;
	PurgeWorker *worker;
	BackgroundWorkerHandle *handle;
	MemoryContext caller;
	int			index = 0;
	bool		registered;

	LWLockAcquire(ttl_docs_purge_shared->lock, LW_EXCLUSIVE);
	while (index < PURGE_MAX_WORKERS - 1 &&
		   OidIsValid(ttl_docs_purge_shared->workers[index].database))
		index++;
	worker = &ttl_docs_purge_shared->workers[index];
	worker->database = database->database;
	worker->generation = ++ttl_docs_purge_shared->worker_generation;
	worker->pid = 0;
	worker->requested_at = ttl_docs_elapsed();
	worker->settings_epoch = pg_atomic_read_u64(&ttl_docs_purge_shared->settings_epoch);
	worker->must_leave = worker->must_reload = worker->was_ended = false;
	LWLockRelease(ttl_docs_purge_shared->lock);

	describe_process(&process, "ttl_docs purge worker", PURGE_WORKER_FUNCTION);
	process.bgw_flags |= COMPAT_BGWORKER_INTERRUPTIBLE;
	process.bgw_main_arg = Int32GetDatum(index);
	memcpy(process.bgw_extra, &worker->generation, sizeof(worker->generation));
	process.bgw_notify_pid = MyProcPid;

	caller = MemoryContextSwitchTo(TopMemoryContext);
	registered = RegisterDynamicBackgroundWorker(&process, &handle);
	MemoryContextSwitchTo(caller);
	if (registered)
	{
		if (handles[index] != NULL)
			pfree(handles[index]);
		handles[index] = handle;
		clear_no_worker_slot();
		return true;
	}
	LWLockAcquire(ttl_docs_purge_shared->lock, LW_EXCLUSIVE);
	memset(worker, 0, sizeof(*worker));
	LWLockRelease(ttl_docs_purge_shared->lock);
	report_no_worker_slot();
	return false;
}

/*
 * No worker could be started.  Plans the next try soon, because the slot of a
 * worker that has just exited becomes free in a moment.  If tries fail for a second
 * and a half, logs it once, until a worker can be started again.
 */
static void
report_no_worker_slot(void)
{
	no_worker_slot_until = ttl_docs_elapsed() +
		ttl_docs_growing_delay(FIRST_START_RETRY, failed_starts, RETRY_TIME);
	failed_starts++;
	if (failed_starts != FAILED_STARTS_TO_LOG)
		return;
	ttl_docs_purge_shared->lacks_worker_slot = true;
	ereport(LOG,
			(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
			 errmsg("could not start a worker to purge expired documents: all background worker slots are in use"),
			 errhint("Raise max_worker_processes and restart the server. The launcher retries until a slot is free.")));
}

/* A worker was started, or no database needs one. */
static void
clear_no_worker_slot(void)
{
	failed_starts = 0;
	ttl_docs_purge_shared->lacks_worker_slot = false;
}

static void
sleep_until(TimestampTz when, uint32 wait_event)
{
	TimestampTz clock = ttl_docs_clock();
	int64		wait = when <= clock ? 0 :
		Min(when - clock, PURGE_RECHECK_TIME);

	pgstat_report_activity(STATE_IDLE, NULL);
	/* check in time whether workers take too long */
	if (workers_in(InvalidOid) > 0)
		wait = Min(wait, OVERDUE_TIME);
	if (wait > 0)
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 (wait + 999) / 1000, wait_event);
	ResetLatch(MyLatch);
}
