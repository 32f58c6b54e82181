/*-------------------------------------------------------------------------
 *
 * truncate.c
 *		The transaction that truncates a table.
 *
 * truncation.c has found out that all documents of the table have expired, and that no
 * snapshot is left that could see one of them.  This transaction makes sure that it is
 * still true, and then does what TRUNCATE does:
 *
 * 1. It locks the table and its TOAST table in ACCESS EXCLUSIVE mode, but only if nobody
 *    else has locked them.  It never waits, so nobody waits behind it.  Asking for the
 *    lock takes a transaction id even if the lock is not free.  So it first checks
 *    whether anybody has a lock.
 * 2. It opens the target as each step does (target.c), and checks everything again.
 *    Nobody can write to the table now, or attach, detach or alter it.
 * 3. It writes a WAL record for standbys (see below).
 * 4. It calls core, as the owner of the table.
 *
 * Others cannot use the table until the commit.  How long that is depends on the number
 * of indexes, for which core creates new files, and not on the size of the table.  Core
 * removes the old files after it has released the lock.
 *
 * Logical slots are checked again after the transaction has its id.  A slot that is
 * created later begins with transactions that start later: creating it waits for ours.
 *
 * Rollback and crash.  The old files stay until the commit, and core removes the new ones
 * after a rollback.  A crash before the commit can leave new, empty files behind, as with
 * TRUNCATE.  The commit is flushed at once in spite of synchronous_commit = off, because
 * it removes files.
 *
 * Standbys.  On a standby, TRUNCATE cancels queries that have locked the table.  A
 * session with a snapshot that has not used the table yet would find it empty, although
 * its snapshot may be older than the expiry.  So the transaction first writes the record
 * with which a btree announces that a page is used again, XLOG_BTREE_REUSE_PAGE.  Its
 * replay does one thing only: it cancels all queries in this database whose snapshot is
 * as old as a transaction id, as the records of VACUUM do.  It touches no page.  The
 * record names the purge index, which is a btree, and whose pages this transaction
 * does remove.  The id is that of the note: snapshots that are taken after its replay
 * belong to a time at which all documents had expired.  A record of our own would need a
 * resource manager of our own on each standby.  With hot_standby_feedback the snapshots
 * of the standby hold back VACUUM's horizon, so truncation.c waits for them.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/nbtxlog.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "access/xloginsert.h"
#include "catalog/catalog.h"
#include "catalog/heap.h"
#include "catalog/objectaccess.h"
#include "commands/tablecmds.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "storage/lock.h"
#include "utils/rel.h"

#include "purge/pass_internal.h"

static TruncateResult truncate_open_target(PurgeTarget *target,
										   const PurgeTruncation *note);
static bool lock_if_free(Oid relid);
static void cancel_on_standbys(Oid index, FullTransactionId xid);

/* Truncates the table of a TruncateWork, unless it is in use or has changed. */
void
ttl_docs_truncate_table(void *arg)
{
	TruncateWork *work = arg;
	PurgeTarget *target = work->target;

	work->result = TRUNCATE_BUSY;
	if (!lock_if_free(target->relid))
		return;
	switch (ttl_docs_open_target(target))
	{
		case STEP_DONE:
			work->result = truncate_open_target(target, work->note);
			ttl_docs_close_target(target);
			break;
		case STEP_TABLE_BUSY:	/* the partitioned table is locked */
			break;
		default:
			work->result = TRUNCATE_VOID;
			break;
	}
}

static TruncateResult
truncate_open_target(PurgeTarget *target, const PurgeTruncation *note)
{
	Relation	rel = target->rel;
	Oid			relid = RelationGetRelid(rel);

	if (OidIsValid(rel->rd_rel->reltoastrelid) &&
		!lock_if_free(rel->rd_rel->reltoastrelid))
		return TRUNCATE_BUSY;
	/* for the check of slots */
	(void) GetCurrentTransactionId();
	if (PURGE_IS_HOLD(target->hold) || !ttl_docs_may_truncate(target) ||
		!ttl_docs_note_is_valid(note, target, ttl_docs_clock()) ||
		!ttl_docs_all_are_expired(target, note->instant) ||
		/* a foreign key that is NOT ENFORCED has no triggers, but core would refuse */
		heap_truncate_find_FKs(list_make1_oid(relid)) != NIL)
		return TRUNCATE_VOID;
	/* the rest of what TRUNCATE checks */
	InvokeObjectTruncateHook(relid);
	CheckTableNotInUse(rel, "TRUNCATE");
	if (XLogStandbyInfoActive() && RelationNeedsWAL(rel))
		cancel_on_standbys(target->index, note->xid);
	compat_truncate(list_make1(rel), list_make1_oid(relid),
					RelationIsLogicallyLogged(rel) ? list_make1_oid(relid) : NIL);
	return TRUNCATE_DONE;
}

/* Locks a table in ACCESS EXCLUSIVE mode if no other session has locked it. */
static bool
lock_if_free(Oid relid)
{
	LOCKTAG		tag;
	int			others;

	SET_LOCKTAG_RELATION(tag, MyDatabaseId, relid);
	pfree(GetLockConflicts(&tag, AccessExclusiveLock, &others));
	return others == 0 && ConditionalLockRelationOid(relid, AccessExclusiveLock);
}

/*
 * Makes standbys cancel all queries whose snapshot is as old as this transaction, before
 * they replay what follows.
 */
static void
cancel_on_standbys(Oid index, FullTransactionId xid)
{
	Relation	rel = index_open(index, AccessShareLock);
	xl_btree_reuse_page record;

	memset(&record, 0, sizeof(record));
	compat_set_reuse_page(&record, rel, xid);
	XLogBeginInsert();
	XLogRegisterData((char *) &record, SizeOfBtreeReusePage);
	(void) XLogInsert(RM_BTREE_ID, XLOG_BTREE_REUSE_PAGE);
	index_close(rel, AccessShareLock);
}
