/*-------------------------------------------------------------------------
 *
 * launcher.c
 *		The launcher decides when to send a worker to which database.
 *
 * There is one, which the postmaster starts when recovery is over: not on a
 * standby, and after a promotion.  It is connected to no database, reads only
 * pg_database, and is started again a few seconds after it ended in whatever
 * way.  All it knows is in shared memory.
 *
 * It sleeps until a database is due.  Sessions and workers lower due times and
 * wake it (shmem.c, notify.c), so an idle server is left alone.  Only
 * every five minutes does it look for what nobody told: databases that came or
 * went, and a clock that jumped.  A database that it does not know yet is due at
 * once: whether the extension is there, only a worker can tell.
 *
 * Only a worker can tell whether the purge is off in a database, and the worker's
 * settings can be out of date: it inherits them from the postmaster, reads those of the
 * database when it connects, and both may change right after that.  So the
 * launcher counts, in settings_epoch, whatever may have turned the purge on:
 *
 * 1. Settings change first: the postmaster reads its file, or ALTER DATABASE
 *    commits.  Then the launcher hears of it.  Then the launcher counts.
 * 2. A worker has the count of the moment when the launcher asked for it.  If it
 *    finds the purge to be off, it stores that count, and leaves the database due.
 * 3. The launcher believes a worker only if the count is still the same.
 *    Else it sends another one.  The other one is started after the launcher counted,
 *    so after the settings changed.
 *
 * The launcher counts every five minutes as well, in case it was not told.
 *
 * A worker has a place in shared memory from when it is asked for:
 *
 *		free -> asked for	by the launcher, in send_worker()
 *		asked for -> taken	by the worker, in take_slot()
 *		taken -> free		by the worker when it exits, in leave_slot()
 *		asked for -> free	by the launcher, in reap_lost_workers(), if it
 *							could not be started
 *
 * One that does not come back in time is ended (end_overdue_worker).
 *
 * Databases that are due take turns, that which was visited longest ago first.
 * One that was purged to the end is left alone for purge_naptime, one whose
 * visits fail for longer and longer.  It gets a second worker only if the last
 * visit left several tables unfinished.
 *
 * An error ends the process (and is logged): the postmaster starts it again.
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
/* a worker that was asked for and did not come is given up after that */
#define START_TIMEOUT		(30 * USECS_PER_SEC)
/* a worker that is still there after that is ended */
#define OVERDUE_TIME		(15 * USECS_PER_SEC)
/* no free worker slot, or a worker that failed: try again after that */
#define RETRY_TIME			USECS_PER_SEC
#define LONGEST_RETRY_TIME	(60 * USECS_PER_SEC)
#define FIRST_START_RETRY	INT64CONST(50000)
#define FAILED_STARTS_TO_TELL	6	/* after a second and a half */

static BackgroundWorkerHandle *handles[PURGE_MAX_WORKERS];
static int	failed_starts = 0;		/* in a row */
static int64 no_slot_until = 0; /* on the time that has passed */

static void describe_process(BackgroundWorker *worker, const char *name,
							 const char *function);
static bool become_launcher(void);
static void leave_launcher(int code, Datum arg);
static void reload_settings(void);
static void read_databases(void);
static void note_databases(List *all, List *connectable);
static void ask_again_where_off(void);
static void have_workers_reload(void);
static void reap_lost_workers(void);
static void end_overdue_worker(int index);
static void free_lost_slot(PurgeWorkerSlot *slot);
static int	workers_in(Oid database);
static TimestampTz send_workers(void);
static TimestampTz visit_time(PurgeDatabase *database);
static bool is_off(PurgeDatabase *database);
static bool send_worker(PurgeDatabase *database);
static void report_no_slot(void);
static void note_worker_slot(void);
static void sleep_until(TimestampTz when, uint32 wait_event);

/* Called when the library is preloaded. */
void
ttl_docs_register_launcher(void)
{
	BackgroundWorker worker;

	/* pg_upgrade wants to be alone */
	if (IsBinaryUpgrade)
		return;
	describe_process(&worker, "ttl_docs launcher", PURGE_LAUNCHER_FUNCTION);
	worker.bgw_restart_time = RESTART_SECONDS;
	RegisterBackgroundWorker(&worker);
}

/* What the launcher and its workers have in common. */
static void
describe_process(BackgroundWorker *worker, const char *name, const char *function)
{
	memset(worker, 0, sizeof(*worker));
	worker->bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker->bgw_start_time = BgWorkerStart_RecoveryFinished;
	worker->bgw_restart_time = BGW_NEVER_RESTART;
	strlcpy(worker->bgw_library_name, TTL_DOCS_EXTENSION, BGW_MAXLEN);
	strlcpy(worker->bgw_function_name, function, BGW_MAXLEN);
	strlcpy(worker->bgw_name, name, BGW_MAXLEN);
	strlcpy(worker->bgw_type, name, BGW_MAXLEN);
}

void
ttl_docs_launcher_main(Datum arg)
{
	MemoryContext context;
	TimestampTz next_round = DT_NOBEGIN;
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
		bool		told;

		CHECK_FOR_INTERRUPTS();
		MemoryContextReset(context);
		if (ConfigReloadPending)
			reload_settings();
		ttl_docs_observe_clock();
		reap_lost_workers();
		/* a clock that went back must not put off the round, either */
		told = pg_atomic_exchange_u32(&ttl_docs_purge_shared->must_read_databases, 0) != 0;
		if (told || clock >= next_round || next_round > clock + PURGE_ROUND_TIME)
		{
			read_databases();
			ask_again_where_off();
			next_round = clock + PURGE_ROUND_TIME;
		}
		next = Min(send_workers(), next_round);

		/* from here on, whoever lowers a due time wakes us; so look again */
		pg_atomic_write_u64(&ttl_docs_purge_shared->wakes_at, (uint64) next);
		pg_memory_barrier();
		next = Min(next, send_workers());
		sleep_until(next, wait_event);
		pg_atomic_write_u64(&ttl_docs_purge_shared->wakes_at, (uint64) DT_NOBEGIN);
	}
}

/* There can be only one; false if it is somebody else. */
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
				(errmsg("the launcher of ttl_docs runs already, as process %d", other)));
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
 * The postmaster tells the workers, too, but the signal is lost on one that has
 * just been started.
 */
static void
have_workers_reload(void)
{
	LWLockAcquire(ttl_docs_purge_shared->lock, LW_EXCLUSIVE);
	for (int i = 0; i < PURGE_MAX_WORKERS; i++)
		ttl_docs_purge_shared->workers[i].must_reload = true;
	LWLockRelease(ttl_docs_purge_shared->lock);
}

/* Databases where the purge was found to be off are visited again if they are due. */
static void
ask_again_where_off(void)
{
	(void) pg_atomic_fetch_add_u64(&ttl_docs_purge_shared->settings_epoch, 1);
}

/* Learns which databases there are. */
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
		/* -2 is what DROP DATABASE leaves when it is interrupted */
		if (form->datallowconn && form->datconnlimit != -2)
			connectable = lappend_oid(connectable, form->oid);
		MemoryContextSwitchTo(of_transaction);
	}
	table_endscan(scan);
	table_close(catalog, AccessShareLock);
	CommitTransactionCommand();
	MemoryContextSwitchTo(caller);

	/*
	 * Only what was known before the catalog was read can be gone: sessions in
	 * a new database may have told of it in between.
	 */
	foreach(lc, known)
	{
		Oid			database = ((PurgeDatabase *) lfirst(lc))->database;

		if (!list_member_oid(all, database))
			ttl_docs_forget_database(database);
	}
	note_databases(all, connectable);
}

static void
note_databases(List *all, List *connectable)
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
					(errmsg("ttl_docs has no room to purge the database with OID %u",
							lfirst_oid(lc)),
					 errhint("Use CALL ttl_docs.purge() in it.")));
	}
}

/* Sees to workers that were asked for and never came, or do not come back. */
static void
reap_lost_workers(void)
{
	int64		now = ttl_docs_elapsed();

	for (int i = 0; i < PURGE_MAX_WORKERS; i++)
	{
		PurgeWorkerSlot *slot = &ttl_docs_purge_shared->workers[i];
		pid_t		pid;
		bool		is_lost;

		if (!OidIsValid(slot->database))
			continue;
		if (slot->pid != 0)
		{
			if (now - slot->asked >= OVERDUE_TIME)
				end_overdue_worker(i);
			continue;
		}
		if (handles[i] != NULL)
			is_lost = GetBackgroundWorkerPid(handles[i], &pid) == BGWH_STOPPED;
		else
			is_lost = now - slot->asked >= START_TIMEOUT;
		if (is_lost)
			free_lost_slot(slot);
	}
}

/*
 * A trigger does not let itself be cancelled: others have to get their turn.
 *
 * The postmaster sends the signal, because only the postmaster knows for certain that
 * the process has not ended meanwhile.  A worker that an earlier launcher asked for
 * has no handle here.  It gets its signal from us, while we hold the lock: it cannot
 * end before it has taken that lock (leave_slot), so its process number is not
 * another process's by now.
 */
static void
end_overdue_worker(int index)
{
	PurgeWorkerSlot *slot = &ttl_docs_purge_shared->workers[index];
	BackgroundWorkerHandle *handle = handles[index];
	bool		is_there;

	LWLockAcquire(ttl_docs_purge_shared->lock, LW_EXCLUSIVE);
	is_there = slot->pid != 0;
	if (is_there)
		slot->was_ended = true;
	if (is_there && handle == NULL)
		(void) kill(slot->pid, SIGTERM);
	LWLockRelease(ttl_docs_purge_shared->lock);
	if (is_there && handle != NULL)
		TerminateBackgroundWorker(handle);
}

static void
free_lost_slot(PurgeWorkerSlot *slot)
{
	PurgeDatabase *database = ttl_docs_purge_database(slot->database, false);

	LWLockAcquire(ttl_docs_purge_shared->lock, LW_EXCLUSIVE);
	if (slot->pid == 0)
	{
		memset(slot, 0, sizeof(*slot));
		if (database != NULL)
		{
			database->was_visited = true;
			database->visited = ttl_docs_elapsed();
			database->failures++;
		}
	}
	LWLockRelease(ttl_docs_purge_shared->lock);
}

/* How many workers are in a database, or on their way; InvalidOid = in any. */
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
 * Sends workers to the databases that are due, as many as may run, and returns
 * when the next one will be.  When all workers are out, the first that comes
 * back wakes us.
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

			/* with a little tolerance, for the clock has moved on */
			if (when > clock + 1000)
				next = Min(next, when);
			else if (first == NULL || database->visited < first->visited)
				first = database;
		}
		if (first == NULL)
		{
			/* nobody waits for a worker any more */
			if (ttl_docs_elapsed() >= no_slot_until)
				note_worker_slot();
			break;
		}
		if (!send_worker(first))
		{
			next = clock + Max(no_slot_until - ttl_docs_elapsed(), 0);
			break;
		}
	}
	list_free(databases);
	return next;
}

/* When a database is to be visited; DT_NOEND if not at all. */
static TimestampTz
visit_time(PurgeDatabase *database)
{
	TimestampTz due = ttl_docs_read_time(&database->next_visit);
	int			workers = workers_in(database->database);
	int64		now = ttl_docs_elapsed();
	int64		free_at = now;

	if (!database->can_connect || database->lacks_extension ||
		is_off(database) || due == DT_NOEND ||
		(workers > 0 && workers >= database->tables_left))
		return DT_NOEND;
	if (database->failures > 0)
		free_at = database->visited +
			ttl_docs_growing_delay(RETRY_TIME, database->failures, LONGEST_RETRY_TIME);
	else if (database->has_more)
		free_at = now + ttl_docs_rate_wait();
	else if (database->was_visited)
		free_at = database->visited + ttl_docs_purge_naptime * INT64CONST(1000);
	free_at = Max(free_at, Max(database->keep_out_until, no_slot_until));
	return Max(due, ttl_docs_clock() + Max(free_at - now, 0));
}

/* Is the purge off there, as far as is known under the settings of now? */
static bool
is_off(PurgeDatabase *database)
{
	return pg_atomic_read_u64(&database->off_epoch) ==
		pg_atomic_read_u64(&ttl_docs_purge_shared->settings_epoch);
}

/* Asks the postmaster for a worker; false if it has none to give. */
static bool
send_worker(PurgeDatabase *database)
{
	BackgroundWorker worker;
	PurgeWorkerSlot *slot;
	BackgroundWorkerHandle *handle;
	MemoryContext caller;
	int			index = 0;
	bool		registered;

	LWLockAcquire(ttl_docs_purge_shared->lock, LW_EXCLUSIVE);
	while (index < PURGE_MAX_WORKERS - 1 &&
		   OidIsValid(ttl_docs_purge_shared->workers[index].database))
		index++;
	slot = &ttl_docs_purge_shared->workers[index];
	slot->database = database->database;
	slot->generation = ++ttl_docs_purge_shared->worker_generation;
	slot->pid = 0;
	slot->asked = ttl_docs_elapsed();
	slot->settings_epoch = pg_atomic_read_u64(&ttl_docs_purge_shared->settings_epoch);
	slot->must_leave = slot->must_reload = slot->was_ended = false;
	LWLockRelease(ttl_docs_purge_shared->lock);

	describe_process(&worker, "ttl_docs purge worker", PURGE_WORKER_FUNCTION);
	worker.bgw_main_arg = Int32GetDatum(index);
	memcpy(worker.bgw_extra, &slot->generation, sizeof(slot->generation));
	worker.bgw_notify_pid = MyProcPid;

	caller = MemoryContextSwitchTo(TopMemoryContext);
	registered = RegisterDynamicBackgroundWorker(&worker, &handle);
	MemoryContextSwitchTo(caller);
	if (registered)
	{
		if (handles[index] != NULL)
			pfree(handles[index]);
		handles[index] = handle;
		note_worker_slot();
		return true;
	}
	LWLockAcquire(ttl_docs_purge_shared->lock, LW_EXCLUSIVE);
	memset(slot, 0, sizeof(*slot));
	LWLockRelease(ttl_docs_purge_shared->lock);
	report_no_slot();
	return false;
}

/*
 * Tries again soon: the slot of a worker that has just left is free in a moment.
 * If that goes on, it is logged, once, until a worker could be had again.
 */
static void
report_no_slot(void)
{
	no_slot_until = ttl_docs_elapsed() +
		ttl_docs_growing_delay(FIRST_START_RETRY, failed_starts, RETRY_TIME);
	failed_starts++;
	if (failed_starts != FAILED_STARTS_TO_TELL)
		return;
	ttl_docs_purge_shared->lacks_worker_slot = true;
	ereport(LOG,
			(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
			 errmsg("could not start a worker to purge expired documents: all background worker slots are taken"),
			 errhint("Raise max_worker_processes. It is tried again until there is one.")));
}

/* A worker can be had, or nobody needs one. */
static void
note_worker_slot(void)
{
	failed_starts = 0;
	ttl_docs_purge_shared->lacks_worker_slot = false;
}

static void
sleep_until(TimestampTz when, uint32 wait_event)
{
	TimestampTz clock = ttl_docs_clock();
	int64		wait = when <= clock ? 0 :
		Min(when - clock, PURGE_ROUND_TIME);

	pgstat_report_activity(STATE_IDLE, NULL);
	/* somebody has to look whether workers come back */
	if (workers_in(InvalidOid) > 0)
		wait = Min(wait, OVERDUE_TIME);
	if (wait > 0)
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 (wait + 999) / 1000, wait_event);
	ResetLatch(MyLatch);
}
