/*-------------------------------------------------------------------------
 *
 * visit.c
 *		A visit to a database: purges the tables that are due, in turns.
 *
 * A visit lasts at most two seconds, because commands that want the database for
 * themselves (DROP DATABASE, CREATE DATABASE ... TEMPLATE) have to wait for the
 * worker.  A worker that is asked to leave does so after the current batch.  If
 * there is more to do, the launcher sends another worker.
 *
 * Tables take turns, a batch each, those that were visited longest ago first.  A
 * table is claimed for the time of the visit, so that several workers in a database
 * do not get in each other's way.
 *
 * Which tables there are is known from shared memory.  Only where collections came
 * or changed are they listed from the catalog.  Tables that have no entry in shared
 * memory are purged as well (visit_tables.c).  They get a quarter of each visit, even
 * if all other tables have a backlog.
 *
 * A visit that ends in the middle (ERROR outside of a step, FATAL) is abandoned by
 * ttl_docs_abandon_visit(), which the exit callback of the worker calls.
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

/* tables that are worked on side by side */
#define MAX_ACTIVE		8

/* a table at which a worker had to be ended is left alone for so long */
#define FIRST_INTERRUPTION_DELAY	(60 * USECS_PER_SEC)
#define LONGEST_INTERRUPTION_DELAY	(3600 * USECS_PER_SEC)

/* what tables without an entry have of a visit before the others begin */
#define UNPLACED_TIME	(PURGE_VISIT_TIME / 4)

/* A visit, for the exit callback */
static PurgeWorkerSlot *my_slot = NULL;
static PurgeDatabase *my_database = NULL;
static PurgeTable *table_at_work = NULL;
static int64 visit_deadline;
static bool visit_is_capped = false;	/* purge_max_rate made it wait */
static uint32 wait_for_rate;
static uint32 wait_for_others;

static bool may_purge_here(void);
static void follow_reload(void);
static bool must_leave(void);
static void purge_tables(VisitTables *tables);
static int	purge_until(VisitTables *tables, int64 deadline);
static TablePass *next_pass(VisitTables *tables);
static bool claim(PurgeTable *table, TimestampTz *reported_due);
static bool make_step(TablePass *pass);
static void report_activity(const TablePass *pass);
static void nap(int64 microseconds, uint32 wait_event);
static void end_visit(int tables_left);
static TimestampTz note_interruption(PurgeTable *table, const PurgeWorkerSlot *slot,
									 bool was_told_to_end);

/*
 * The visit.  The due time of the database is taken away first, so that what
 * sessions tell from now on is not lost.
 */
void
ttl_docs_visit(PurgeWorkerSlot *slot)
{
	VisitTables tables;
	bool		allowed;

	my_slot = slot;
	visit_deadline = ttl_docs_elapsed() + PURGE_VISIT_TIME;
	wait_for_rate = compat_wait_event("TtlDocsPurgeRate");
	wait_for_others = compat_wait_event("TtlDocsPurgePause");
	my_database = ttl_docs_purge_database(MyDatabaseId, true);
	if (my_database != NULL)
		pg_atomic_write_u64(&my_database->next_visit, (uint64) DT_NOEND);
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
 * settings, see launcher.c.
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
		pg_atomic_write_u64(&my_database->off_epoch, is_off ? my_slot->settings_epoch : 0);
		if (is_off)
		{
			/* for the worker that finds it to be on */
			pg_atomic_write_u32(&my_database->must_list, 1);
			ttl_docs_lower_time(&my_database->next_visit, ttl_docs_clock());
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

/* Is it time to go?  A reload may have turned the purge off. */
static bool
must_leave(void)
{
	return my_slot->must_leave || !ttl_docs_purge_on ||
		ttl_docs_elapsed() >= visit_deadline;
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
		if (active[i]->target.table == NULL)
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
	TimestampTz reported_due = DT_NOBEGIN;
	Oid			relid;

	while (table == NULL && tables->placed != NIL)
	{
		table = linitial(tables->placed);
		tables->placed = list_delete_first(tables->placed);
		if (!claim(table, &reported_due))
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
	pass->reported_due = reported_due;
	pass->row_limit = ttl_docs_pace_rows();
	ttl_docs_begin_pass(pass);
	return pass;
}

/* Claims a table for this visit; *reported_due is what made it due. */
static bool
claim(PurgeTable *table, TimestampTz *reported_due)
{
	bool		claimed = false;

	LWLockAcquire(ttl_docs_purge_shared->lock, LW_EXCLUSIVE);
	if (table->claimed_by == 0 && table->key.database == MyDatabaseId)
	{
		table->claimed_by = MyProcPid;
		*reported_due = (TimestampTz) pg_atomic_exchange_u64(&table->next_visit, (uint64) DT_NOEND);
		claimed = true;
	}
	LWLockRelease(ttl_docs_purge_shared->lock);
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
		if (pass->target.table != NULL)
			pass->target.table->state = PURGE_CAPPED;
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
	table_at_work = pass->target.table;
	goes_on = ttl_docs_step_pass(pass);
	table_at_work = NULL;
	ttl_docs_return_rate(rows - pass->deleted);
	if (pass->was_work)
	{
		int64		took = ttl_docs_elapsed() - began;

		ttl_docs_observe_load();
		nap(Min(ttl_docs_pace_pause(pass->target.table, took),
				visit_deadline - ttl_docs_elapsed()), wait_for_others);
	}
	return goes_on;
}

/* Shows in pg_stat_activity what is done now. */
static void
report_activity(const TablePass *pass)
{
	char		activity[2 * NAMEDATALEN + 64];

	if (pass->target.name == NULL)
		return;
	snprintf(activity, sizeof(activity), "ttl_docs: purging %s", pass->target.name);
	pgstat_report_activity(STATE_RUNNING, activity);
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

/* The visit comes to its end: when is the next one due? */
static void
end_visit(int tables_left)
{
	TimestampTz due = DT_NOEND;
	List	   *tables;
	ListCell   *lc;

	if (my_database == NULL)
		return;
	tables = ttl_docs_purge_tables(MyDatabaseId);
	foreach(lc, tables)
	{
		PurgeTable *table = lfirst(lc);

		due = Min(due, ttl_docs_read_time(&table->next_visit));
	}
	due = Min(due, ttl_docs_unplaced_due(my_database));
	LWLockAcquire(ttl_docs_purge_shared->lock, LW_EXCLUSIVE);
	my_database->was_visited = true;
	my_database->visited = ttl_docs_elapsed();
	my_database->has_more = tables_left > 0;
	my_database->tables_left = tables_left;
	my_database->failures = 0;
	LWLockRelease(ttl_docs_purge_shared->lock);
	ttl_docs_lower_time(&my_database->next_visit, due);
}

/*
 * The visit ends in the middle.  How far its passes had come is not known, so
 * they begin anew.  The table that was at work may be the reason: it waits.
 */
void
ttl_docs_abandon_visit(PurgeWorkerSlot *slot, bool was_told_to_end)
{
	TimestampTz clock = ttl_docs_clock();
	PurgeDatabase *database = ttl_docs_purge_database(slot->database, false);
	List	   *tables = ttl_docs_purge_tables(slot->database);
	ListCell   *lc;

	foreach(lc, tables)
	{
		PurgeTable *table = lfirst(lc);
		TimestampTz due = clock;

		if (table->claimed_by != MyProcPid)
			continue;
		if (table == table_at_work)
			due += note_interruption(table, slot, was_told_to_end);
		LWLockAcquire(ttl_docs_purge_shared->lock, LW_EXCLUSIVE);
		table->claimed_by = 0;
		table->progress.is_set = false;
		table->visited = clock;
		LWLockRelease(ttl_docs_purge_shared->lock);
		ttl_docs_lower_time(&table->next_visit, due);
	}
	if (database == NULL)
		return;
	LWLockAcquire(ttl_docs_purge_shared->lock, LW_EXCLUSIVE);
	database->was_visited = true;
	database->visited = ttl_docs_elapsed();
	database->has_more = false;
	database->failures++;
	LWLockRelease(ttl_docs_purge_shared->lock);
	/* the listing may not have come to its end */
	pg_atomic_write_u32(&database->must_list, 1);
	ttl_docs_lower_time(&database->next_visit, clock);
}

/*
 * The worker ended while it purged a table; returns for how long to leave that
 * alone.  Triggers can bring it about (exit_on_error), and it must not be the
 * others' loss.
 */
static TimestampTz
note_interruption(PurgeTable *table, const PurgeWorkerSlot *slot,
				  bool was_told_to_end)
{
	PurgeError	error;
	int			failures;

	/* by an administrator, or because the server stops */
	if (was_told_to_end && !slot->was_ended)
		return 0;
	ttl_docs_make_error(&error, ERRCODE_QUERY_CANCELED, slot->was_ended ?
						"the worker did not come to an end, and was ended" :
						"the worker ended while it was at work");
	ttl_docs_record_error(table, psprintf("table %u", table->key.relid), &error, true);
	LWLockAcquire(ttl_docs_purge_shared->lock, LW_EXCLUSIVE);
	failures = table->failures++;
	table->state = PURGE_TROUBLE;
	LWLockRelease(ttl_docs_purge_shared->lock);
	return ttl_docs_growing_delay(FIRST_INTERRUPTION_DELAY, failures,
								  LONGEST_INTERRUPTION_DELAY);
}
