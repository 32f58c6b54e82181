/*-------------------------------------------------------------------------
 *
 * access_snapshot.c
 *		The instant that belongs to an imported snapshot.
 *
 * SET TRANSACTION SNAPSHOT gives a transaction the snapshot of another one,
 * which may be hours old.  Judged by its own time, the importer would miss live
 * documents: if somebody has touched a document since, the snapshot shows
 * the version before that, which may have expired by now.  So the importer's
 * instant must not be later than the exporter's.
 *
 * An instant that is too early shows a document that has just expired, one that is
 * too late loses a live one; so where the exporter's instant is not known, an
 * earlier moment is taken.  In this order:
 *
 * 1. What the exporter has published in shared memory.  A session that is about to
 *    call pg_export_snapshot() publishes its instant if its transaction is
 *    REPEATABLE READ or SERIALIZABLE, else when its statement arrived.  (So
 *    a snapshot that is imported and exported again keeps its instant.)  Of several
 *    exports of a transaction, the first counts.
 * 2. When the exporter's transaction began, from pg_stat_activity: for a
 *    walsender, which exports without a query.
 * 3. When the exporter's process began, if track_activities is off.
 *
 * The file of a snapshot names the process that has exported it.  We read it
 * before core does: a transaction that is gone when core looks is core's error.
 *
 * The object access hook (collection_guard.c) tells us of the call.
 *
 * Shared memory: an atomic value for each process, so there is no lock.  The
 * transaction callback of access_instant.c takes it back, on error too.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "port/atomics.h"
#include "storage/fd.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "storage/shmem.h"
#include "utils/backend_status.h"

#include "ttl_docs.h"

/* where core keeps them, and the line that we read */
#define SNAPSHOT_DIRECTORY	"pg_snapshots"
#define PID_LINE			"pid:%d"

/* By process; DT_NOEND = none */
static pg_atomic_uint64 *published = NULL;

static shmem_request_hook_type next_shmem_request_hook = NULL;
static shmem_startup_hook_type next_shmem_startup_hook = NULL;

static void request_shmem(void);
static void startup_shmem(void);
static const char *imported_snapshot(Node *parsetree);
static int	exporter_pid(const char *snapshot);
static TimestampTz began(int pid);

void
ttl_docs_snapshot_init(void)
{
	next_shmem_request_hook = shmem_request_hook;
	shmem_request_hook = request_shmem;
	next_shmem_startup_hook = shmem_startup_hook;
	shmem_startup_hook = startup_shmem;
}

static void
request_shmem(void)
{
	if (next_shmem_request_hook)
		next_shmem_request_hook();
	RequestAddinShmemSpace(mul_size(MaxBackends, sizeof(pg_atomic_uint64)));
}

static void
startup_shmem(void)
{
	bool		found;

	if (next_shmem_startup_hook)
		next_shmem_startup_hook();
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	published = ShmemInitStruct("ttl_docs instants",
								mul_size(MaxBackends, sizeof(pg_atomic_uint64)),
								&found);
	for (int i = 0; !found && i < MaxBackends; i++)
		pg_atomic_init_u64(&published[i], (uint64) DT_NOEND);
	LWLockRelease(AddinShmemInitLock);
}

/*
 * Tells others a moment that is not later than the instants of this transaction;
 * DT_NOEND = it has none.
 */
void
ttl_docs_publish_instant(TimestampTz instant)
{
	pg_atomic_uint64 *mine = &published[compat_proc_number(MyProc)];

	if (instant < (TimestampTz) pg_atomic_read_u64(mine) || instant == DT_NOEND)
		pg_atomic_write_u64(mine, (uint64) instant);
}

/*
 * If the command is SET TRANSACTION SNAPSHOT: a moment that is not later than the
 * instant of the exporter.  DT_NOEND otherwise, and where core will raise an error.
 */
TimestampTz
ttl_docs_instant_to_import(Node *parsetree)
{
	const char *snapshot = imported_snapshot(parsetree);
	int			pid = snapshot != NULL ? exporter_pid(snapshot) : 0;
	PGPROC	   *proc = pid != 0 ? BackendPidGetProc(pid) : NULL;
	TimestampTz instant;

	if (proc == NULL || compat_proc_number(proc) >= MaxBackends)
		return DT_NOEND;
	instant = (TimestampTz)
		pg_atomic_read_u64(&published[compat_proc_number(proc)]);
	return instant != DT_NOEND ? instant : ttl_docs_shifted(began(pid));
}

static const char *
imported_snapshot(Node *parsetree)
{
	VariableSetStmt *stmt = (VariableSetStmt *) parsetree;

	if (!IsA(parsetree, VariableSetStmt) || stmt->kind != VAR_SET_MULTI ||
		strcmp(stmt->name, "TRANSACTION SNAPSHOT") != 0)
		return NULL;
	return strVal(&linitial_node(A_Const, stmt->args)->val);
}

/* The process that has exported a snapshot; 0 if there is no such snapshot. */
static int
exporter_pid(const char *snapshot)
{
	char		path[MAXPGPATH];
	char		line[128];
	FILE	   *file;
	int			pid = 0;

	/* as core does: nothing that leads to another directory */
	if (strspn(snapshot, "0123456789ABCDEF-") != strlen(snapshot))
		return 0;
	snprintf(path, sizeof(path), SNAPSHOT_DIRECTORY "/%s", snapshot);
	file = AllocateFile(path, PG_BINARY_R);
	if (file == NULL)
		return 0;
	while (pid == 0 && fgets(line, sizeof(line), file) != NULL)
		if (sscanf(line, PID_LINE, &pid) != 1)
			pid = 0;
	FreeFile(file);
	return pid;
}

/* When the transaction of a process began, or else the process itself. */
static TimestampTz
began(int pid)
{
	TimestampTz result = GetCurrentTransactionStartTimestamp();
	int			count = pgstat_fetch_stat_numbackends();

	for (int i = 1; i <= count; i++)
	{
		PgBackendStatus *status = &compat_backend_status(i)->backendStatus;

		if (status->st_procpid != pid)
			continue;
		result = status->st_xact_start_timestamp != 0 ?
			status->st_xact_start_timestamp : status->st_proc_start_timestamp;
	}
	/* what the transaction itself asks of statistics is not to be that old */
	pgstat_clear_backend_activity_snapshot();
	return result;
}
