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
 * came or changed are they listed from the catalog; labels are the truth.
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
/* tables without a place in shared memory are looked at so often */
#define OVERFLOW_PERIOD	(60 * USECS_PER_SEC)
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

static uint64 settings_epoch;	/* before it connected */

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
static List *tables_to_visit(void);
static void list_tables(List **unplaced);
static void forget_tables_but(List *relids);
static int	compare_visits(const ListCell *a, const ListCell *b);
static void purge_tables(List *tables, List *unplaced);
static TablePass *next_pass(List **tables, List **unplaced);
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
	settings_epoch = pg_atomic_read_u64(&ttl_docs_purge->settings_epoch);
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
	List	   *tables;
	List	   *unplaced = NIL;
	bool		allowed;

	my_database = ttl_docs_purge_database(MyDatabaseId, true);
	if (my_database != NULL)
		pg_atomic_write_u64(&my_database->due, (uint64) DT_NOEND);
	pg_memory_barrier();

	pgstat_report_activity(STATE_RUNNING, "ttl_docs: looking for expired documents");
	StartTransactionCommand();
	PushActiveSnapshot(GetTransactionSnapshot());
	allowed = may_purge_here();
	if (allowed &&
		(my_database == NULL || ttl_docs_purge->tables_overflow ||
		 pg_atomic_exchange_u32(&my_database->must_list, 0) != 0))
		list_tables(&unplaced);
	PopActiveSnapshot();
	CommitTransactionCommand();

	if (allowed)
	{
		tables = tables_to_visit();
		purge_tables(tables, unplaced);
	}
	else
		end_visit(0);
}

/*
 * Is there anything of ours in this database, and may it be purged?  What says
 * no is kept for the launcher, unless somebody has changed it meanwhile: flags
 * are set before, and taken back after the look.
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
		if (installed)
			my_database->lacks_extension = false;
		my_database->is_off = installed && !is_on;
		pg_memory_barrier();
		/* we may have connected before it was turned on */
		if (pg_atomic_read_u64(&ttl_docs_purge->settings_epoch) != settings_epoch)
		{
			my_database->is_off = false;
			ttl_docs_lower_due(&my_database->due, ttl_docs_clock());
		}
	}
	return installed && is_on;
}

/* The tables that are due, in the order in which they are to be visited. */
static List *
tables_to_visit(void)
{
	MemoryContext caller = MemoryContextSwitchTo(TopMemoryContext);
	List	   *all = ttl_docs_purge_tables(MyDatabaseId);
	List	   *due = NIL;
	TimestampTz clock = ttl_docs_clock();
	ListCell   *lc;

	foreach(lc, all)
	{
		PurgeTable *table = lfirst(lc);

		if (ttl_docs_read_due(&table->due) <= clock)
			due = lappend(due, table);
	}
	list_free(all);
	list_sort(due, compare_visits);
	MemoryContextSwitchTo(caller);
	return due;
}

static int
compare_visits(const ListCell *a, const ListCell *b)
{
	TimestampTz visited_a = ((PurgeTable *) lfirst(a))->visited;
	TimestampTz visited_b = ((PurgeTable *) lfirst(b))->visited;

	return visited_a < visited_b ? -1 : visited_a > visited_b;
}

/*
 * Lists the tables of all collections from the catalog.  Those that are new are
 * due; those that find no place in shared memory are returned.
 */
static void
list_tables(List **unplaced)
{
	List	   *collections = ttl_docs_all_collections();
	List	   *relids = NIL;
	ListCell   *lc;
	ListCell   *table_lc;

	foreach(lc, collections)
	{
		List	   *tables = ttl_docs_collection_tables(lfirst_oid(lc));

		foreach(table_lc, tables)
		{
			PurgeTable *table = ttl_docs_purge_table(lfirst_oid(table_lc),
													 lfirst_oid(lc));
			MemoryContext caller;

			relids = lappend_oid(relids, lfirst_oid(table_lc));
			if (table != NULL)
				continue;
			caller = MemoryContextSwitchTo(TopMemoryContext);
			*unplaced = lappend_oid(*unplaced, lfirst_oid(table_lc));
			MemoryContextSwitchTo(caller);
		}
	}
	list_sort(relids, list_oid_cmp);
	forget_tables_but(relids);
}

static void
forget_tables_but(List *relids)
{
	List	   *known = ttl_docs_purge_tables(MyDatabaseId);
	ListCell   *lc;

	foreach(lc, known)
	{
		PurgeTable *table = lfirst(lc);
		bool		found = false;
		int			low = 0;
		int			high = list_length(relids);

		while (low < high && !found)
		{
			int			middle = (low + high) / 2;
			Oid			relid = list_nth_oid(relids, middle);

			found = relid == table->key.relid;
			if (relid < table->key.relid)
				low = middle + 1;
			else
				high = middle;
		}
		if (!found && table->claimed_by == 0)
			ttl_docs_forget_table(table);
	}
}

/* Purges tables, a few side by side, until all is done or time is up. */
static void
purge_tables(List *tables, List *unplaced)
{
	TablePass  *active[MAX_ACTIVE];
	int			nactive = 0;
	int			turn = 0;
	int			left;
	/* other workers want something to do, too */
	int			max_active = Max(MAX_ACTIVE / ttl_docs_purge_workers, 1);

	ttl_docs_observe_load();
	while (!must_leave())
	{
		TablePass  *pass;

		while (nactive < max_active &&
			   (pass = next_pass(&tables, &unplaced)) != NULL)
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
	left = nactive + list_length(tables) + list_length(unplaced);
	for (int i = 0; i < nactive; i++)
		ttl_docs_end_pass(active[i], visit_is_capped);
	end_visit(left);
}

/* Begins a pass over the next table that nobody else has claimed, or NULL. */
static TablePass *
next_pass(List **tables, List **unplaced)
{
	MemoryContext context;
	TablePass  *pass;
	PurgeTable *table = NULL;
	TimestampTz told = DT_NOBEGIN;
	Oid			relid = InvalidOid;

	while (table == NULL && *tables != NIL)
	{
		table = linitial(*tables);
		*tables = list_delete_first(*tables);
		if (!claim(table, &told))
			table = NULL;
	}
	if (table != NULL)
		relid = table->key.relid;
	else if (*unplaced != NIL)
	{
		relid = linitial_oid(*unplaced);
		*unplaced = list_delete_first(*unplaced);
	}
	else
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
	if (ConfigReloadPending)
	{
		ConfigReloadPending = false;
		ProcessConfigFile(PGC_SIGHUP);
	}
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
	/* of these nobody tells */
	if (ttl_docs_purge->tables_overflow)
		due = Min(due, ttl_docs_clock() + OVERFLOW_PERIOD);
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
		left = until - ttl_docs_elapsed();
	}
}
