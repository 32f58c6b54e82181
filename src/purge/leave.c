/*-------------------------------------------------------------------------
 *
 * leave.c
 *		Has the workers in a database leave it, for a command that needs the
 *		database for itself.
 *
 * This is the way of PostgreSQL 15 to 18.  Since 19, core ends our workers, and only
 * DROP DATABASE ... WITH (FORCE) comes here (database_commands.c).
 *
 * The session of the command sets a flag for each worker and wakes it.  A worker
 * looks at its flag after each batch, and exits.  The session waits for a limited
 * time.  On ERROR during the wait, the workers leave anyway, and the launcher sends
 * new ones.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "utils/wait_event.h"

#include "purge/shared_internal.h"

/* maximum time that a command waits for workers to leave */
#define LEAVE_TIME		(3 * USECS_PER_SEC)
#define LEAVE_POLL		10		/* milliseconds */

static void ask_workers_to_leave(Oid database);
static bool has_worker(Oid database);

/* Asks the workers in a database to leave, and waits up to LEAVE_TIME. */
void
ttl_docs_have_workers_leave(Oid database)
{
	int64		deadline = ttl_docs_elapsed() + LEAVE_TIME;

	ask_workers_to_leave(database);
	while (has_worker(database) && ttl_docs_elapsed() < deadline)
	{
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 LEAVE_POLL, compat_wait_event("TtlDocsPurgeLeave"));
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
		/* also workers that have started in the meantime */
		ask_workers_to_leave(database);
	}
}

static void
ask_workers_to_leave(Oid database)
{
	int			pids[PURGE_MAX_WORKERS];
	int			count = 0;

	LWLockAcquire(ttl_docs_purge_shared->lock, LW_EXCLUSIVE);
	for (int i = 0; i < PURGE_MAX_WORKERS; i++)
	{
		PurgeWorker *worker = &ttl_docs_purge_shared->workers[i];

		if (worker->database != database || worker->must_leave)
			continue;
		worker->must_leave = true;
		if (worker->pid != 0)
			pids[count++] = worker->pid;
	}
	LWLockRelease(ttl_docs_purge_shared->lock);
	for (int i = 0; i < count; i++)
	{
		PGPROC	   *proc = BackendPidGetProc(pids[i]);

		if (proc != NULL)
			SetLatch(&proc->procLatch);
	}
}

static bool
has_worker(Oid database)
{
	bool		found = false;

	LWLockAcquire(ttl_docs_purge_shared->lock, LW_SHARED);
	for (int i = 0; i < PURGE_MAX_WORKERS; i++)
		found |= ttl_docs_purge_shared->workers[i].database == database;
	LWLockRelease(ttl_docs_purge_shared->lock);
	return found;
}
