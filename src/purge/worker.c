/*-------------------------------------------------------------------------
 *
 * worker.c
 *		The worker process: it visits one database, and exits.
 *
 * The launcher starts a worker for one visit (visit.c).  The process connects as
 * the bootstrap superuser, as autovacuum does.  It overrides all settings that
 * could change what the purge does.  Code of users runs as the owner of their table
 * (target.c).  Session state that their code leaves behind ends with the process.
 *
 * ERROR in a step rolls that step back, and is recorded as trouble of its table.
 * ERROR elsewhere, and FATAL, end the process.  The exit callback then gives back
 * the tables that the worker had taken, and sets the next visit of the database.
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

/* in milliseconds; a worker gives up a wait before deadlock_timeout */
#define LOCK_WAIT		100

/* For the exit callback */
static PurgeWorker *my_worker = NULL;
static uint64 my_generation;
static volatile sig_atomic_t got_sigterm = false;
static bool visit_is_complete = false;

static void record_sigterm_and_die(SIGNAL_ARGS);
static bool attach_to_entry(int index, uint64 generation);
static void free_entry(int code, Datum arg);
static void pin_settings(void);

void
ttl_docs_worker_main(Datum arg)
{
	uint64		generation;

	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, record_sigterm_and_die);
	BackgroundWorkerUnblockSignals();

	memcpy(&generation, MyBgworkerEntry->bgw_extra, sizeof(generation));
	if (!attach_to_entry(DatumGetInt32(arg), generation))
		return;
	/* this callback runs after the process has left the process array */
	on_shmem_exit(free_entry, (Datum) 0);
	if (!my_worker->must_leave)
	{
		BackgroundWorkerInitializeConnectionByOid(my_worker->database, InvalidOid, 0);
		pin_settings();
		ttl_docs_visit(my_worker);
	}
	visit_is_complete = true;
}

/* Signal handler: records that the signal came, then does what core does. */
static void
record_sigterm_and_die(SIGNAL_ARGS)
{
	got_sigterm = true;
	compat_die();
}

/* Takes over the entry of this worker.  False if the launcher has given up. */
static bool
attach_to_entry(int index, uint64 generation)
{
	PurgeWorker *worker = &ttl_docs_purge_shared->workers[index];
	bool		taken;

	LWLockAcquire(ttl_docs_purge_shared->lock, LW_EXCLUSIVE);
	taken = OidIsValid(worker->database) && worker->generation == generation &&
		worker->pid == 0;
	if (taken)
		worker->pid = MyProcPid;
	LWLockRelease(ttl_docs_purge_shared->lock);
	my_worker = worker;
	my_generation = generation;
	return taken;
}

/* Exit callback: abandons the visit if it is not complete, and frees the entry. */
static void
free_entry(int code, Datum arg)
{
	(void) code;
	(void) arg;
	MemoryContextSwitchTo(TopMemoryContext);
	if (!visit_is_complete)
		ttl_docs_abandon_visit(my_worker, got_sigterm);
	LWLockAcquire(ttl_docs_purge_shared->lock, LW_EXCLUSIVE);
	if (my_worker->generation == my_generation)
		memset(my_worker, 0, sizeof(*my_worker));
	LWLockRelease(ttl_docs_purge_shared->lock);
	/* the postmaster wakes the launcher when the background worker slot is free */
}

/* Overrides settings of the server, the database and the role. */
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
		/* if a crash loses a commit, the documents are purged again */
		{"synchronous_commit", "off"},
		{"zero_damaged_pages", "off"},
	};

	for (size_t i = 0; i < lengthof(pinned); i++)
		if (GetConfigOption(pinned[i].name, true, false) != NULL)
			SetConfigOption(pinned[i].name, pinned[i].value, PGC_SUSET,
							PGC_S_OVERRIDE);
	/* the same clock as that of the launcher */
	SetConfigOption("ttl_docs.clock_offset",
					psprintf("%d", ttl_docs_purge_shared->clock_offset),
					PGC_SUSET, PGC_S_OVERRIDE);
	SetConfigOption("lock_timeout",
					psprintf("%d", Max(Min(LOCK_WAIT, DeadlockTimeout / 2), 1)),
					PGC_SUSET, PGC_S_OVERRIDE);
}
