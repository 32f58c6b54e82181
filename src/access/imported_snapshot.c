/*-------------------------------------------------------------------------
 *
 * imported_snapshot.c
 *		The instant that belongs to an imported snapshot.
 *
 * SET TRANSACTION SNAPSHOT gives a transaction the snapshot of another one,
 * which may be hours old.  If the importer used its own time as the instant, it
 * would miss live documents: if somebody has touched a document since, the snapshot
 * shows the version before that, which may have expired by now.  So the importer's
 * instant must not be later than the exporter's.
 *
 * An instant that is too early shows a document that has just expired; one that is
 * too late loses a live document.  So where the exporter's instant is not known, we
 * take an earlier moment.  In this order:
 *
 * 1. What the exporter has published in shared memory.  A session that is about to
 *    call pg_export_snapshot() publishes its instant if its transaction is
 *    REPEATABLE READ or SERIALIZABLE, and otherwise the time at which its statement
 *    arrived.  (So a snapshot that is imported and exported again keeps its
 *    instant.)  A READ COMMITTED transaction can export several snapshots.  Their
 *    xmax tells them apart, because it never decreases from one snapshot to the
 *    next: the importer takes the last moment that was published with an xmax not
 *    greater than that of the imported snapshot.
 * 2. When the exporter's transaction began, from pg_stat_activity: for a
 *    walsender, which exports without a query.
 * 3. When the exporter's process began, if track_activities is off.
 *
 * The file of a snapshot names the process that has exported it.  We read the file
 * before core does.  If the exporting transaction has ended when core reads the
 * file, core raises an error.
 *
 * The object access hook tells us when a session is about to
 * call pg_export_snapshot().
 *
 * Shared memory: some values for each process, which only that process writes, so
 * there is no lock.  The exporter publishes its moment before core writes the file
 * of the snapshot, so an importer finds it; if it has been overwritten meanwhile,
 * the importer takes an earlier moment.  The transaction callback of
 * instant.c removes what a process has published, on error too.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/transam.h"
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
#include "utils/snapmgr.h"

#include "access/access_internal.h"

/* where core keeps them, and the lines that we read */
#define SNAPSHOT_DIRECTORY	"pg_snapshots"
#define PID_LINE			"pid:%d"
#define XMAX_LINE			"xmax:%u"

/* exports of a transaction that are told apart */
#define MAX_EXPORTS			16

typedef struct Export
{
	pg_atomic_uint64 xmax;		/* of the snapshot; 0 = none */
	pg_atomic_uint64 instant;
} Export;

/* What a process has published */
typedef struct SessionExports
{
	pg_atomic_uint64 first;		/* the earliest instant; DT_NOEND = none */
	Export		exports[MAX_EXPORTS];
} SessionExports;

static SessionExports *published = NULL;	/* by process */
static int	nexports = 0;		/* of this transaction */

static const char *imported_snapshot(Node *parsetree);
static TimestampTz published_instant(SessionExports *exporter, TransactionId xmax);
static int	exporter_pid(const char *snapshot, TransactionId *xmax);
static TimestampTz began(int pid);

Size
ttl_docs_snapshot_shmem_size(void)
{
	return mul_size(MaxBackends, sizeof(SessionExports));
}

/* Called while shared memory is set up, or attached to. */
void
ttl_docs_snapshot_shmem_init(void)
{
	bool		found;

	published = ShmemInitStruct("ttl_docs instants", ttl_docs_snapshot_shmem_size(),
								&found);
	for (int i = 0; !found && i < MaxBackends; i++)
	{
		pg_atomic_init_u64(&published[i].first, (uint64) DT_NOEND);
		for (int j = 0; j < MAX_EXPORTS; j++)
		{
			pg_atomic_init_u64(&published[i].exports[j].xmax, 0);
			pg_atomic_init_u64(&published[i].exports[j].instant, 0);
		}
	}
}

/* Tells others the instant of the active snapshot, or an earlier moment. */
void
ttl_docs_publish_instant(TimestampTz instant)
{
	SessionExports *mine = &published[compat_proc_number(MyProc)];
	TransactionId xmax = ActiveSnapshotSet() ? GetActiveSnapshot()->xmax :
		FirstNormalTransactionId;
	Export	   *slot;

	(void) ttl_docs_lower_time(&mine->first, instant);
	/* of the same xmax, the earliest counts */
	for (int i = 0; i < Min(nexports, MAX_EXPORTS); i++)
		if (pg_atomic_read_u64(&mine->exports[i].xmax) == xmax)
			return;
	slot = &mine->exports[nexports++ % MAX_EXPORTS];
	pg_atomic_write_u64(&slot->xmax, 0);
	pg_write_barrier();
	pg_atomic_write_u64(&slot->instant, (uint64) instant);
	pg_write_barrier();
	pg_atomic_write_u64(&slot->xmax, xmax);
}

/* The transaction has ended, and its snapshots can no longer be imported. */
void
ttl_docs_unpublish_instants(void)
{
	SessionExports *mine = &published[compat_proc_number(MyProc)];

	pg_atomic_write_u64(&mine->first, (uint64) DT_NOEND);
	for (int i = 0; i < Min(nexports, MAX_EXPORTS); i++)
		pg_atomic_write_u64(&mine->exports[i].xmax, 0);
	nexports = 0;
}

/*
 * If the command is SET TRANSACTION SNAPSHOT: a moment that is not later than the
 * instant of the exporter.  DT_NOEND otherwise, and where core will raise an error.
 */
TimestampTz
ttl_docs_instant_to_import(Node *parsetree)
{
	const char *snapshot = imported_snapshot(parsetree);
	TransactionId xmax;
	int			pid = snapshot != NULL ? exporter_pid(snapshot, &xmax) : 0;
	PGPROC	   *proc = pid != 0 ? BackendPidGetProc(pid) : NULL;
	TimestampTz instant;

	if (proc == NULL || compat_proc_number(proc) >= MaxBackends)
		return DT_NOEND;
	instant = published_instant(&published[compat_proc_number(proc)], xmax);
	return instant != DT_NOEND ? instant : ttl_docs_shifted(began(pid));
}

/* What a process has published for a snapshot with that xmax; DT_NOEND = nothing. */
static TimestampTz
published_instant(SessionExports *exporter, TransactionId xmax)
{
	TimestampTz result = (TimestampTz) pg_atomic_read_u64(&exporter->first);
	TransactionId best = InvalidTransactionId;

	for (int i = 0; i < MAX_EXPORTS; i++)
	{
		Export	   *slot = &exporter->exports[i];
		TransactionId slot_xmax = (TransactionId) pg_atomic_read_u64(&slot->xmax);

		if (!TransactionIdIsValid(slot_xmax) || TransactionIdFollows(slot_xmax, xmax) ||
			(TransactionIdIsValid(best) && TransactionIdPrecedes(slot_xmax, best)))
			continue;
		pg_read_barrier();
		best = slot_xmax;
		result = (TimestampTz) pg_atomic_read_u64(&slot->instant);
	}
	return result;
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

/*
 * The process that has exported a snapshot, and the xmax of that; 0 if there is no
 * such snapshot.
 */
static int
exporter_pid(const char *snapshot, TransactionId *xmax)
{
	char		path[MAXPGPATH];
	char		line[128];
	FILE	   *file;
	int			pid = 0;

	*xmax = InvalidTransactionId;
	/* as core does: nothing that leads to another directory */
	if (strspn(snapshot, "0123456789ABCDEF-") != strlen(snapshot))
		return 0;
	snprintf(path, sizeof(path), SNAPSHOT_DIRECTORY "/%s", snapshot);
	file = AllocateFile(path, PG_BINARY_R);
	if (file == NULL)
		return 0;
	while (!TransactionIdIsValid(*xmax) && fgets(line, sizeof(line), file) != NULL)
		if (sscanf(line, PID_LINE, &pid) != 1)
			(void) sscanf(line, XMAX_LINE, xmax);
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
