/*-------------------------------------------------------------------------
 *
 * worker.c
 *		The process that visits a database and purges what is due there.
 *
 * The launcher starts a worker for one visit (visit.c).  The process connects as
 * the superuser that the server was made with, as autovacuum does, and pins the
 * settings that could make a difference.  Code of users runs as the owner of their
 * table (batch.c).  Nothing that users leave in the session outlives the visit.
 *
 * ERROR in a step undoes that step and is kept as trouble of its table.  ERROR
 * elsewhere, and FATAL, end the process.  The exit callback then frees what it had
 * claimed and makes the database due again.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/proc.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/memutils.h"

#include "purge/purge_internal.h"

/* milliseconds; has to be below deadlock_timeout, or that would be waited for */
#define LOCK_WAIT		100

/* A visit, for the exit callback */
static PurgeWorkerSlot *my_slot = NULL;
static uint64 my_generation;
static volatile sig_atomic_t was_told_to_end = false;
static bool visit_is_complete = false;

static void note_and_die(SIGNAL_ARGS);
static bool take_slot(int index, uint64 generation);
static void leave_slot(int code, Datum arg);
static void pin_settings(void);

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
	if (!my_slot->must_leave)
	{
		BackgroundWorkerInitializeConnectionByOid(my_slot->database, InvalidOid, 0);
		pin_settings();
		ttl_docs_visit(my_slot);
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
	PurgeWorkerSlot *slot = &ttl_docs_purge_shared->workers[index];
	bool		taken;

	LWLockAcquire(ttl_docs_purge_shared->lock, LW_EXCLUSIVE);
	taken = OidIsValid(slot->database) && slot->generation == generation &&
		slot->pid == 0;
	if (taken)
		slot->pid = MyProcPid;
	LWLockRelease(ttl_docs_purge_shared->lock);
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
		ttl_docs_abandon_visit(my_slot, was_told_to_end);
	LWLockAcquire(ttl_docs_purge_shared->lock, LW_EXCLUSIVE);
	if (my_slot->generation == my_generation)
		memset(my_slot, 0, sizeof(*my_slot));
	LWLockRelease(ttl_docs_purge_shared->lock);
	/* the postmaster wakes the launcher when it has our slot back, too */
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
					psprintf("%d", ttl_docs_purge_shared->clock_offset),
					PGC_SUSET, PGC_S_OVERRIDE);
	SetConfigOption("lock_timeout",
					psprintf("%d", Max(Min(LOCK_WAIT, DeadlockTimeout / 2), 1)),
					PGC_SUSET, PGC_S_OVERRIDE);
}
