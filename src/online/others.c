/*-------------------------------------------------------------------------
 *
 * others.c
 *		Pauses for other sessions, and reports those that we wait for.
 *
 * Waiting blocks nobody: while we wait, we hold no lock that keeps others out.
 * But it can take as long as the oldest transaction, so a NOTICE names the
 * processes.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/transam.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "storage/sinvaladt.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"

#include "online/online_internal.h"

/* a transaction that is still there after this time is reported */
#define OLD_AFTER		200		/* milliseconds */

static List *old_transactions(void);
static char *list_processes(List *pids);

/* Sleeps, and can be cancelled. */
void
ttl_docs_pause(int milliseconds)
{
	int64		until = ttl_docs_elapsed() + milliseconds * INT64CONST(1000);

	for (;;)
	{
		int64		left = (until - ttl_docs_elapsed() + 999) / 1000;

		CHECK_FOR_INTERRUPTS();
		if (left <= 0)
			break;
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 (long) left, PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
	}
}

/* Reports the processes that have locked a table or its partitions. */
void
ttl_docs_notice_lock_holders(Oid relid)
{
	char	   *sql = psprintf("SELECT pg_catalog.string_agg(DISTINCT coalesce(l.pid::pg_catalog.text, 'a prepared transaction'), ', ')"
							   "  FROM pg_catalog.pg_locks AS l"
							   "  JOIN (SELECT %u::pg_catalog.oid AS relid UNION"
							   "        SELECT relid FROM pg_catalog.pg_partition_tree(%u)) AS t"
							   "    ON t.relid OPERATOR(pg_catalog.=) l.relation"
							   " WHERE l.locktype OPERATOR(pg_catalog.=) 'relation' AND l.granted"
							   "   AND l.database OPERATOR(pg_catalog.=) %u::pg_catalog.oid"
							   "   AND l.pid IS DISTINCT FROM pg_catalog.pg_backend_pid()",
							   relid, relid, MyDatabaseId);
	char	   *holders = NULL;

	SPI_connect();
	if (SPI_execute(sql, false, 1) == SPI_OK_SELECT && SPI_processed == 1)
		holders = SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1);
	if (holders != NULL)
		ereport(NOTICE,
				(errmsg("waiting for transactions that use \"%s\": %s",
						get_rel_name(relid), holders),
				 errdetail("Other sessions do not wait."),
				 errhint("The numbers are process IDs of pg_stat_activity.")));
	SPI_finish();
}

/*
 * Reports transactions that an index build has to wait for: all transactions
 * of this database that have a snapshot now.  Only those that stay for a while are
 * worth a notice.
 */
void
ttl_docs_notice_old_transactions(Oid relid)
{
	List	   *before = old_transactions();
	List	   *pids;

	if (before == NIL)
		return;
	ttl_docs_pause(OLD_AFTER);
	pids = list_intersection_int(before, old_transactions());
	if (pids != NIL)
		ereport(NOTICE,
				(errmsg("the index of \"%s\" will be complete when these transactions have ended: %s",
						get_rel_name(relid), list_processes(pids)),
				 errdetail("Other sessions do not wait."),
				 errhint("The numbers are process IDs of pg_stat_activity.")));
}

/* Processes of this database with a snapshot, except VACUUM */
static List *
old_transactions(void)
{
	int			count;
	VirtualTransactionId *found;
	List	   *pids = NIL;

	PushActiveSnapshot(GetTransactionSnapshot());
	found = GetCurrentVirtualXIDs(InvalidTransactionId, true, false,
								  PROC_IS_AUTOVACUUM | PROC_IN_VACUUM | PROC_IN_SAFE_IC,
								  &count);
	PopActiveSnapshot();
	for (int i = 0; i < count; i++)
	{
		PGPROC	   *proc = compat_vxid_proc(found[i]);

		if (proc != NULL && proc->pid != 0)
			pids = lappend_int(pids, proc->pid);
	}
	return pids;
}

static char *
list_processes(List *pids)
{
	StringInfoData text;
	ListCell   *lc;

	initStringInfo(&text);
	foreach(lc, pids)
		appendStringInfo(&text, "%s%d", text.len > 0 ? ", " : "", lfirst_int(lc));
	return text.data;
}
