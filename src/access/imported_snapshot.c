/*-------------------------------------------------------------------------
 *
 * imported_snapshot.c
 *		Finds the instant of an imported snapshot.
 *
 * SET TRANSACTION SNAPSHOT gives a transaction (the importer) the snapshot of
 * another transaction (the exporter).  This snapshot may be hours old.  If
 * the importer used its own time as the instant, it would lose live
 * documents: if somebody touched a document after the export, the snapshot
 * shows the version from before, which may have expired by now.  So the
 * importer's instant must not be later than the exporter's.
 *
 * If the instant is too early, the importer sees a document that has just
 * expired.  If it is too late, the importer loses a live document.  So when
 * we do not know the exporter's instant, we use an earlier time.  We use the
 * first of these that is known:
 *
 * 1. The time that the exporter has published in shared memory.  The object
 *    access hook of a session publishes when the session is about to call
 *    pg_export_snapshot().  In REPEATABLE READ and SERIALIZABLE, the session
 *    publishes its instant, so a snapshot that is imported and exported again
 *    keeps its instant.  In READ COMMITTED, the session publishes the time at
 *    which its statement arrived.
 * 2. The start of the exporter's transaction, from pg_stat_activity.  This is
 *    for a walsender, which exports without a query.
 * 3. The start of the exporter's process, if track_activities is off.
 *
 * A READ COMMITTED transaction can export several snapshots.  We distinguish
 * them by xmax, which never decreases from one snapshot to the next.  The
 * importer uses the entry with the greatest xmax that is not greater than the
 * xmax of the imported snapshot.
 *
 * The file of a snapshot contains the process ID of the exporter.  We read
 * the file before core does.  If the exporting transaction ends before core
 * reads the file, core raises an error.
 *
 * Shared memory has a few values for each process.  Only that process writes
 * them, so there is no lock.  The exporter publishes its time before core
 * writes the file of the snapshot, so every importer finds the time.  If the
 * exporter has overwritten an entry in the meantime, the importer uses an
 * earlier time.  At the end of a transaction, also after an error,
 * ttl_docs_forget_transaction() in instant.c removes the values of the process.
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

/* Where core keeps exported snapshots, and the lines that we read */
#define SNAPSHOT_DIRECTORY	"pg_snapshots"
#define PID_LINE			"pid:%d"
#define XMAX_LINE			"xmax:%u"

/* Maximum number of exports of a transaction that we can distinguish */
#define MAX_EXPORTS			16

typedef struct Export
{
	pg_atomic_uint64 xmax;		/* of the snapshot; 0 = unused entry */
	pg_atomic_uint64 instant;	/* not later than the snapshot */
} Export;

/* The values that a process has published */
typedef struct SessionExports
{
	pg_atomic_uint64 first;		/* the earliest instant; DT_NOEND = none */
	Export		exports[MAX_EXPORTS];
} SessionExports;

static SessionExports *published = NULL;	/* array, by process number */
static int	nexports = 0;		/* number of exports of this transaction */

static const char *imported_snapshot(Node *parsetree);
static TimestampTz published_instant(SessionExports *exporter, TransactionId xmax);
static int	exporter_pid(const char *snapshot, TransactionId *xmax);
static TimestampTz start_time(int pid);

Size
ttl_docs_snapshot_shmem_size(void)
{
	return mul_size(MaxBackends, sizeof(SessionExports));
}

/* Called when shared memory is created or attached. */
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

/* Publishes the instant of the active snapshot, or an earlier time. */
void
ttl_docs_publish_instant(TimestampTz instant)
{
	SessionExports *mine = &published[compat_proc_number(MyProc)];
	TransactionId xmax = ActiveSnapshotSet() ? GetActiveSnapshot()->xmax :
		FirstNormalTransactionId;
	Export	   *entry;

	(void) ttl_docs_lower_time(&mine->first, instant);
	/* for the same xmax, keep the first and therefore earliest instant */
	for (int i = 0; i < Min(nexports, MAX_EXPORTS); i++)
		if (pg_atomic_read_u64(&mine->exports[i].xmax) == xmax)
			return;
	entry = &mine->exports[nexports++ % MAX_EXPORTS];
	pg_atomic_write_u64(&entry->xmax, 0);
	pg_write_barrier();
	pg_atomic_write_u64(&entry->instant, (uint64) instant);
	pg_write_barrier();
	pg_atomic_write_u64(&entry->xmax, xmax);
}

/* The transaction has ended, so its snapshots can no longer be imported. */
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
 * For SET TRANSACTION SNAPSHOT, returns a time that is not later than the
 * exporter's instant.  Returns DT_NOEND for other commands, and if core will
 * raise an error.
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
	return instant != DT_NOEND ? instant : ttl_docs_shifted(start_time(pid));
}

/* The published instant for a snapshot with this xmax; DT_NOEND = none. */
static TimestampTz
published_instant(SessionExports *exporter, TransactionId xmax)
{
	TimestampTz result = (TimestampTz) pg_atomic_read_u64(&exporter->first);
	TransactionId best = InvalidTransactionId;

	for (int i = 0; i < MAX_EXPORTS; i++)
	{
		Export	   *entry = &exporter->exports[i];
		TransactionId entry_xmax = (TransactionId) pg_atomic_read_u64(&entry->xmax);
		TimestampTz instant;

		if (!TransactionIdIsValid(entry_xmax) || TransactionIdFollows(entry_xmax, xmax) ||
			(TransactionIdIsValid(best) && TransactionIdPrecedes(entry_xmax, best)))
			continue;
		pg_read_barrier();
		instant = (TimestampTz) pg_atomic_read_u64(&entry->instant);
		pg_read_barrier();
		/* skip an entry that the exporter has overwritten meanwhile */
		if (pg_atomic_read_u64(&entry->xmax) != entry_xmax)
			continue;
		best = entry_xmax;
		result = instant;
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
 * The process that has exported a snapshot; 0 if there is no such snapshot.
 * Sets *xmax to the xmax of the snapshot.
 */
static int
exporter_pid(const char *snapshot, TransactionId *xmax)
{
	char		path[MAXPGPATH];
	char		line[128];
	FILE	   *file;
	int			pid = 0;

	*xmax = InvalidTransactionId;
	/* like core, refuse names that could lead to another directory */
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

/* The start of the transaction of a process, or of the process itself. */
static TimestampTz
start_time(int pid)
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
	/* the transaction's own queries must not see these old statistics */
	pgstat_clear_backend_activity_snapshot();
	return result;
}
