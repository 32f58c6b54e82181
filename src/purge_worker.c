/*-------------------------------------------------------------------------
 *
 * purge_worker.c
 *		A worker visits a database and purges what is due in it.
 *
 * A visit lasts two seconds at the most, because whoever wants the database for
 * themselves (DROP DATABASE, CREATE DATABASE ... TEMPLATE) has to wait for the
 * worker; asked to leave, it does after the batch at hand.  If there is more to
 * do, the launcher sends another one.  A batch that lasts longer than
 * BATCH_TIMEOUT is cancelled; if a trigger does not let itself be cancelled, the
 * launcher ends the worker.
 *
 * Tables take turns, a batch each, those that were visited longest ago first.
 * A table is claimed for the time of the visit, so that several workers in a
 * database do not get in each other's way.
 *
 * Which tables there are is known from shared memory.  Only where collections
 * came or changed are they listed from the catalog; labels are the truth.  Tables
 * that have no entry in shared memory are purged as well (purge_tables.c).  They
 * get a quarter of each visit, even if all other tables have a backlog.
 *
 * The process connects as the superuser that the server was made with, as
 * autovacuum does, and pins the settings that could make a difference.  Code of
 * users runs as the owner of their table (purge_batch.c).  Nothing that they
 * leave in the session outlives the visit.
 *
 * ERROR in a step undoes that step and is kept as trouble of its table; ERROR
 * elsewhere, and FATAL, end the process.  What it had claimed, and that the
 * database is due, is given back when it exits.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "commands/extension.h"
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
#include "utils/timeout.h"
#include "utils/wait_event.h"

#include "purge.h"

/* tables that are worked on side by side */
#define MAX_ACTIVE		8
/* milliseconds; a document whose triggers take longer counts as failed */
#define BATCH_TIMEOUT	5000
/* a table at which a worker had to be ended is left alone for so long */
#define FIRST_INTERRUPTION_DELAY	(60 * USECS_PER_SEC)
#define LONGEST_INTERRUPTION_DELAY	(3600 * USECS_PER_SEC)
/* what tables without an entry have of a visit before the others begin */
#define UNPLACED_TIME	(PURGE_VISIT_TIME / 4)
/* milliseconds; has to be below deadlock_timeout, or that would be waited for */
#define LOCK_WAIT		100

/* A visit, for the exit callback */
static PurgeWorkerSlot *my_slot = NULL;
static uint64 my_generation;
static PurgeDatabase *my_database = NULL;
static PurgeTable *table_at_work = NULL;
static volatile sig_atomic_t was_told_to_end = false;
static bool visit_is_complete = false;
static int64 visit_deadline;
static bool visit_is_capped = false;	/* purge_max_rate made it wait */

static uint64 settings_epoch;	/* when the launcher asked for us */

static uint32 wait_for_rate;
static uint32 wait_for_others;

static void note_and_die(SIGNAL_ARGS);
static bool take_slot(int index, uint64 generation);
static void leave_slot(int code, Datum arg);
static void give_back(void);
static TimestampTz note_interruption(PurgeTable *table);
static void pin_settings(void);
static bool must_leave(void);
static void visit(void);
static bool may_purge_here(void);
static void follow_reload(void);
static void purge_tables(VisitTables *tables);
static int	purge_until(VisitTables *tables, int64 deadline);
static TablePass *next_pass(VisitTables *tables);
static bool claim(PurgeTable *table, TimestampTz *told);
static bool make_step(TablePass *pass);
static void report_activity(const TablePass *pass);
static void end_visit(int tables_left);
static bool run_in_transaction(PurgeWork work, void *arg, PurgeError *error);
static void nap(int64 microseconds, uint32 wait_event);

void
ttl_docs_worker_main(Datum arg)
{
	uint64		generation;

	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, note_and_die);
	BackgroundWorkerUnblockSignals();

	memcpy(&generation, MyBgworkerEntry->bgw_extra, sizeof(generation));
	if (!take_slot(DatumGetInt32(arg), generation))
		return;
	/* after the process is out of sight for those who wait for it */
	on_shmem_exit(leave_slot, (Datum) 0);
	visit_deadline = ttl_docs_elapsed() + PURGE_VISIT_TIME;
	wait_for_rate = compat_wait_event("TtlDocsPurgeRate");
	wait_for_others = compat_wait_event("TtlDocsPurgePause");
	if (!my_slot->must_leave)
	{
		BackgroundWorkerInitializeConnectionByOid(my_slot->database, InvalidOid, 0);
		pin_settings();
		visit();
	}
	visit_is_complete = true;
}

/* Core's handler, but we want to know whether it was a signal. */
static void
note_and_die(SIGNAL_ARGS)
{
	was_told_to_end = true;
	die(postgres_signal_arg);
}

/* Takes the place that the launcher has asked for; false if it gave up on us. */
static bool
take_slot(int index, uint64 generation)
{
	PurgeWorkerSlot *slot = &ttl_docs_purge->workers[index];
	bool		taken;

	LWLockAcquire(ttl_docs_purge->lock, LW_EXCLUSIVE);
	taken = OidIsValid(slot->database) && slot->generation == generation &&
		slot->pid == 0;
	if (taken)
		slot->pid = MyProcPid;
	settings_epoch = slot->settings_epoch;
	LWLockRelease(ttl_docs_purge->lock);
	my_slot = slot;
	my_generation = generation;
	return taken;
}

/* At exit, in whatever way. */
static void
leave_slot(int code, Datum arg)
{
	(void) code;
	(void) arg;
	MemoryContextSwitchTo(TopMemoryContext);
	if (!visit_is_complete)
		give_back();
	LWLockAcquire(ttl_docs_purge->lock, LW_EXCLUSIVE);
	if (my_slot->generation == my_generation)
		memset(my_slot, 0, sizeof(*my_slot));
	LWLockRelease(ttl_docs_purge->lock);
	/* the postmaster wakes the launcher when it has our slot back, too */
}

/*
 * The visit ends in the middle.  How far its passes had come is not known, so
 * they begin anew.  The table that was at work may be the reason: it waits.
 */
static void
give_back(void)
{
	TimestampTz clock = ttl_docs_clock();
	PurgeDatabase *database = ttl_docs_purge_database(my_slot->database, false);
	List	   *tables = ttl_docs_purge_tables(my_slot->database);
	ListCell   *lc;

	foreach(lc, tables)
	{
		PurgeTable *table = lfirst(lc);
		TimestampTz due = clock;

		if (table->claimed_by != MyProcPid)
			continue;
		if (table == table_at_work)
			due += note_interruption(table);
		LWLockAcquire(ttl_docs_purge->lock, LW_EXCLUSIVE);
		table->claimed_by = 0;
		table->progress.is_set = false;
		table->visited = clock;
		LWLockRelease(ttl_docs_purge->lock);
		ttl_docs_lower_due(&table->due, due);
	}
	if (database == NULL)
		return;
	LWLockAcquire(ttl_docs_purge->lock, LW_EXCLUSIVE);
	database->was_visited = true;
	database->visited = ttl_docs_elapsed();
	database->has_more = false;
	database->failures++;
	LWLockRelease(ttl_docs_purge->lock);
	/* the listing may not have come to its end */
	pg_atomic_write_u32(&database->must_list, 1);
	ttl_docs_lower_due(&database->due, clock);
}

/*
 * The worker ended while it purged a table; returns for how long to leave that
 * alone.  Triggers can bring it about (exit_on_error), and it must not be the
 * others' loss.
 */
static TimestampTz
note_interruption(PurgeTable *table)
{
	PurgeError	error;
	int			failures;

	/* by an administrator, or because the server stops */
	if (was_told_to_end && !my_slot->was_ended)
		return 0;
	ttl_docs_make_error(&error, ERRCODE_QUERY_CANCELED, my_slot->was_ended ?
						"the worker did not come to an end, and was ended" :
						"the worker ended while it was at work");
	ttl_docs_record_error(table, psprintf("table %u", table->key.relid), &error, true);
	LWLockAcquire(ttl_docs_purge->lock, LW_EXCLUSIVE);
	failures = table->failures++;
	table->state = PURGE_TROUBLE;
	LWLockRelease(ttl_docs_purge->lock);
	return ttl_docs_growing_delay(FIRST_INTERRUPTION_DELAY, failures,
								  LONGEST_INTERRUPTION_DELAY);
}

/* What roles, databases and the server may have set, and must not matter. */
static void
pin_settings(void)
{
	static const struct
	{
		const char *name;
		const char *value;
	}			pinned[] = {
		{"search_path", "pg_catalog, pg_temp"},
		{"default_transaction_isolation", "read committed"},
		{"session_replication_role", "origin"},
		{"row_security", "on"},
		{"ttl_docs.show_expired", "off"},
		{"statement_timeout", "0"},
		{"idle_in_transaction_session_timeout", "0"},
		{"transaction_timeout", "0"},	/* since 17 */
		/* what is lost in a crash is purged again */
		{"synchronous_commit", "off"},
		{"zero_damaged_pages", "off"},
	};

	for (size_t i = 0; i < lengthof(pinned); i++)
		if (GetConfigOption(pinned[i].name, true, false) != NULL)
			SetConfigOption(pinned[i].name, pinned[i].value, PGC_SUSET,
							PGC_S_OVERRIDE);
	/* the launcher goes by the clock of the server, and so do we */
	SetConfigOption("ttl_docs.clock_offset",
					psprintf("%d", ttl_docs_purge->clock_offset),
					PGC_SUSET, PGC_S_OVERRIDE);
	SetConfigOption("lock_timeout",
					psprintf("%d", Max(Min(LOCK_WAIT, DeadlockTimeout / 2), 1)),
					PGC_SUSET, PGC_S_OVERRIDE);
}

/* Is it time to go?  A reload may have turned the purge off. */
static bool
must_leave(void)
{
	return my_slot->must_leave || !ttl_docs_purge_on ||
		ttl_docs_elapsed() >= visit_deadline;
}

/*
 * The visit.  The due time of the database is taken away first, so that what
 * sessions tell from now on is not lost.
 */
static void
visit(void)
{
	VisitTables tables;
	bool		allowed;

	my_database = ttl_docs_purge_database(MyDatabaseId, true);
	if (my_database != NULL)
		pg_atomic_write_u64(&my_database->due, (uint64) DT_NOEND);
	pg_memory_barrier();

	pgstat_report_activity(STATE_RUNNING, "ttl_docs: looking for expired documents");
	follow_reload();
	StartTransactionCommand();
	PushActiveSnapshot(GetTransactionSnapshot());
	allowed = may_purge_here();
	if (allowed)
		ttl_docs_find_visit_tables(my_database, &tables);
	PopActiveSnapshot();
	CommitTransactionCommand();

	/* where there are very many tables, the listing must not take all of the visit */
	visit_deadline = Max(visit_deadline, ttl_docs_elapsed() + PURGE_VISIT_TIME / 4);
	if (allowed)
		purge_tables(&tables);
	else
		end_visit(0);
}

/*
 * Is there anything of ours in this database, and may it be purged?  What says
 * no is kept for the launcher, unless somebody has changed it meanwhile.  For the
 * extension, the flag is set before, and taken back after the look; for
 * settings, see purge_launcher.c.
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
		pg_atomic_write_u64(&my_database->off_epoch, is_off ? settings_epoch : 0);
		if (is_off)
		{
			/* for the worker that finds it to be on */
			pg_atomic_write_u32(&my_database->must_list, 1);
			ttl_docs_lower_due(&my_database->due, ttl_docs_clock());
		}
	}
	return installed && is_on;
}

/* Reads the configuration again, outside of any transaction, if that was reloaded. */
static void
follow_reload(void)
{
	if (!ConfigReloadPending && !my_slot->must_reload)
		return;
	my_slot->must_reload = false;
	ConfigReloadPending = false;
	ProcessConfigFile(PGC_SIGHUP);
}

/* Purges tables until all is done or time is up. */
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

/* Purges tables, a few side by side, and returns how many it leaves unfinished. */
static int
purge_until(VisitTables *tables, int64 deadline)
{
	TablePass  *active[MAX_ACTIVE];
	int			nactive = 0;
	int			turn = 0;
	/* other workers want something to do, too */
	int			max_active = Max(MAX_ACTIVE / ttl_docs_purge_workers, 1);

	while (!must_leave() && ttl_docs_elapsed() < deadline)
	{
		TablePass  *pass;

		while (nactive < max_active && (pass = next_pass(tables)) != NULL)
			active[nactive++] = pass;
		if (nactive == 0)
			break;
		turn %= nactive;
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
		if (active[i]->table == NULL)
			ttl_docs_unplaced_has_left(tables);
		ttl_docs_end_pass(active[i], visit_is_capped);
	}
	return nactive;
}

/* Begins a pass over the next table that nobody else has claimed, or NULL. */
static TablePass *
next_pass(VisitTables *tables)
{
	MemoryContext context;
	TablePass  *pass;
	PurgeTable *table = NULL;
	TimestampTz told = DT_NOBEGIN;
	Oid			relid;

	while (table == NULL && tables->placed != NIL)
	{
		table = linitial(tables->placed);
		tables->placed = list_delete_first(tables->placed);
		if (!claim(table, &told))
			table = NULL;
	}
	relid = table != NULL ? table->key.relid : ttl_docs_next_unplaced(tables);
	if (!OidIsValid(relid))
		return NULL;

	context = AllocSetContextCreate(TopMemoryContext, "ttl_docs pass",
									ALLOCSET_DEFAULT_SIZES);
	pass = MemoryContextAllocZero(context, sizeof(TablePass));
	pass->context = context;
	pass->table = table;
	pass->relid = relid;
	pass->run = run_in_transaction;
	pass->instant = DT_NOEND;
	pass->told = told;
	pass->row_limit = ttl_docs_pace_rows();
	ttl_docs_begin_pass(pass);
	return pass;
}

/* Claims a table for this visit; *told is what made it due. */
static bool
claim(PurgeTable *table, TimestampTz *told)
{
	bool		claimed = false;

	LWLockAcquire(ttl_docs_purge->lock, LW_EXCLUSIVE);
	if (table->claimed_by == 0 && table->key.database == MyDatabaseId)
	{
		table->claimed_by = MyProcPid;
		*told = (TimestampTz) pg_atomic_exchange_u64(&table->due, (uint64) DT_NOEND);
		claimed = true;
	}
	LWLockRelease(ttl_docs_purge->lock);
	return claimed;
}

/*
 * Goes a step further with a table, at the pace that befits; false if it is
 * done with.
 */
static bool
make_step(TablePass *pass)
{
	int			rows = pass->has_candidates ? ttl_docs_pace_rows() : 0;
	int64		wait = ttl_docs_reserve_rate(rows);
	int64		began;
	bool		goes_on;

	if (wait > 0)
	{
		visit_is_capped = true;
		if (pass->table != NULL)
			pass->table->state = PURGE_CAPPED;
		nap(wait, wait_for_rate);
		if (must_leave())
		{
			ttl_docs_return_rate(rows);
			return true;
		}
	}
	follow_reload();
	pass->row_limit = rows > 0 ? rows : ttl_docs_pace_rows();
	pass->time_limit = ttl_docs_pace_time();
	report_activity(pass);
	began = ttl_docs_elapsed();
	table_at_work = pass->table;
	goes_on = ttl_docs_step_pass(pass);
	table_at_work = NULL;
	ttl_docs_return_rate(rows - pass->deleted);
	if (pass->was_work)
	{
		int64		took = ttl_docs_elapsed() - began;

		ttl_docs_observe_load();
		nap(Min(ttl_docs_pace_pause(pass->table, took),
				visit_deadline - ttl_docs_elapsed()), wait_for_others);
	}
	return goes_on;
}

/* Shows in pg_stat_activity what is done now. */
static void
report_activity(const TablePass *pass)
{
	char		activity[2 * NAMEDATALEN + 64];

	if (pass->name == NULL)
		return;
	snprintf(activity, sizeof(activity), "ttl_docs: purging %s", pass->name);
	pgstat_report_activity(STATE_RUNNING, activity);
}

/* The visit comes to its end: when is the next one due? */
static void
end_visit(int tables_left)
{
	TimestampTz due = DT_NOEND;
	List	   *tables;
	ListCell   *lc;

	visit_is_complete = true;
	if (my_database == NULL)
		return;
	tables = ttl_docs_purge_tables(MyDatabaseId);
	foreach(lc, tables)
	{
		PurgeTable *table = lfirst(lc);

		due = Min(due, ttl_docs_read_due(&table->due));
	}
	due = Min(due, ttl_docs_unplaced_due(my_database));
	LWLockAcquire(ttl_docs_purge->lock, LW_EXCLUSIVE);
	my_database->was_visited = true;
	my_database->visited = ttl_docs_elapsed();
	my_database->has_more = tables_left > 0;
	my_database->tables_left = tables_left;
	my_database->failures = 0;
	LWLockRelease(ttl_docs_purge->lock);
	ttl_docs_lower_due(&my_database->due, due);
}

/* Runs a step in a transaction, and keeps its error. */
static bool
run_in_transaction(PurgeWork work, void *arg, PurgeError *error)
{
	MemoryContext caller = CurrentMemoryContext;
	volatile bool succeeded = false;

	PG_TRY();
	{
		SetCurrentStatementStartTimestamp();
		StartTransactionCommand();
		PushActiveSnapshot(GetTransactionSnapshot());
		enable_timeout_after(STATEMENT_TIMEOUT, BATCH_TIMEOUT);
		work(arg);
		disable_timeout(STATEMENT_TIMEOUT, false);
		PopActiveSnapshot();
		CommitTransactionCommand();
		/* what came too late for this step is not for the next one */
		QueryCancelPending = false;
		succeeded = true;
	}
	PG_CATCH();
	{
		HOLD_INTERRUPTS();
		disable_all_timeouts(false);
		QueryCancelPending = false;
		MemoryContextSwitchTo(caller);
		ttl_docs_keep_error(error);
		AbortOutOfAnyTransaction();
		RESUME_INTERRUPTS();
	}
	PG_END_TRY();
	MemoryContextSwitchTo(caller);
	/* so that autovacuum learns of it */
	pgstat_report_stat(false);
	return succeeded;
}

/* Waits, outside of any transaction, unless it is told to leave. */
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
