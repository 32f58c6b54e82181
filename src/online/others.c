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
#include "catalog/pg_inherits.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/latch.h"
#include "storage/lmgr.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "storage/sinvaladt.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"

#include "online/online_internal.h"

/* a transaction that is still there after this time is reported */
#define OLD_AFTER		200		/* milliseconds */

/* stands for the process of prepared transactions, which have none */
#define PREPARED		0

static List *old_transactions(Oid relid);
static List *add_lock_holders(List *pids, Oid relid, LOCKMODE lockmode);
static int	process_of(VirtualTransactionId vxid);
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
	List	   *tables = find_all_inheritors(relid, NoLock, NULL);
	List	   *pids = NIL;
	ListCell   *lc;

	foreach(lc, tables)
		pids = add_lock_holders(pids, lfirst_oid(lc), AccessExclusiveLock);
	if (pids != NIL)
		ereport(NOTICE,
				(errmsg("waiting for transactions that use \"%s\": %s",
						get_rel_name(relid), list_processes(pids)),
				 errdetail("Other sessions do not wait."),
				 errhint("The numbers are process IDs of pg_stat_activity. For prepared transactions, see pg_prepared_xacts.")));
}

/*
 * Reports transactions that an index build has to wait for.  Only those that stay
 * for a while are worth a notice.
 */
void
ttl_docs_notice_old_transactions(Oid relid)
{
	List	   *before = old_transactions(relid);
	List	   *pids;

	if (before == NIL)
		return;
	ttl_docs_pause(OLD_AFTER);
	pids = list_intersection_int(before, old_transactions(relid));
	if (pids != NIL)
		ereport(NOTICE,
				(errmsg("the index of \"%s\" will be complete when these transactions have ended: %s",
						get_rel_name(relid), list_processes(pids)),
				 errdetail("Other sessions do not wait."),
				 errhint("The numbers are process IDs of pg_stat_activity. For prepared transactions, see pg_prepared_xacts.")));
}

/*
 * Returns the process IDs of transactions that write to the table, or that have
 * a snapshot in this database.  CREATE INDEX CONCURRENTLY waits for both.
 */
static List *
old_transactions(Oid relid)
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
		pids = list_append_unique_int(pids, process_of(found[i]));
	return add_lock_holders(pids, relid, ShareLock);
}

/* Adds the processes whose locks on the table conflict with this mode. */
static List *
add_lock_holders(List *pids, Oid relid, LOCKMODE lockmode)
{
	LOCKTAG		tag;
	int			count;
	VirtualTransactionId *found;

	SET_LOCKTAG_RELATION(tag, MyDatabaseId, relid);
	found = GetLockConflicts(&tag, lockmode, &count);
	for (int i = 0; i < count; i++)
		pids = list_append_unique_int(pids, process_of(found[i]));
	return pids;
}

/* Returns the process ID of a transaction, or PREPARED. */
static int
process_of(VirtualTransactionId vxid)
{
	PGPROC	   *proc = compat_vxid_proc(vxid);

	/* a prepared transaction keeps the ID of a process that does other things */
	if (proc == NULL || compat_local_xid(proc) != vxid.localTransactionId)
		return PREPARED;
	return proc->pid;
}

static char *
list_processes(List *pids)
{
	StringInfoData text;
	ListCell   *lc;

	initStringInfo(&text);
	foreach(lc, pids)
	{
		appendStringInfoString(&text, text.len > 0 ? ", " : "");
		if (lfirst_int(lc) == PREPARED)
			appendStringInfoString(&text, "prepared transactions");
		else
			appendStringInfo(&text, "%d", lfirst_int(lc));
	}
	return text.data;
}
