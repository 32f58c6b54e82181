/*-------------------------------------------------------------------------
 *
 * prepared.c
 *		Prepared transactions that change collections.
 *
 * A transaction tells the purge what it has changed when it commits (notify.c,
 * commands.c).  PREPARE TRANSACTION is too early: workers still see the old
 * catalogs.  So the session that runs COMMIT PREPARED or ROLLBACK PREPARED notifies
 * the purge.  That session does not know what the transaction has changed, so it has
 * all tables of the database looked at.
 *
 * Most prepared transactions change no collection, and nobody should be woken
 * for those.  A transaction that does takes a lock when it is prepared, the
 * mark.  PostgreSQL keeps the locks of prepared transactions through a restart, a
 * crash and a promotion, and releases them when the transaction is finished.  The
 * mark keeps nobody out: it is taken in one mode only, which does not conflict with
 * itself.  In pg_locks it has the locktype "object", the class pg_extension, the
 * object 0 and the subobject of PREPARED_MARK.
 *
 * Documents need no mark.  They are announced at PREPARE, and a worker that finds a
 * row that is not committed comes back for it.
 *
 * Logical replication finishes prepared transactions without a command.  They
 * have written documents, and changed no collection.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_extension.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "storage/lock.h"

#include "purge/purge_internal.h"

/* a subobject that an extension does not have */
#define PREPARED_MARK	0x7474

static void set_mark(LOCKTAG *mark);

/*
 * Marks a transaction that is about to be prepared.  Called before locks are
 * written to its state.
 */
void
ttl_docs_mark_prepared(void)
{
	LOCKTAG		mark;

	set_mark(&mark);
	(void) LockAcquire(&mark, AccessShareLock, false, false);
}

/*
 * Is this a command that finishes a prepared transaction, in a database where one
 * has the mark?  It need not be the same one.
 */
bool
ttl_docs_finishes_marked(Node *parsetree)
{
	TransactionStmt *stmt = (TransactionStmt *) parsetree;
	LOCKTAG		mark;
	int			count;

	if (!IsA(parsetree, TransactionStmt) ||
		(stmt->kind != TRANS_STMT_COMMIT_PREPARED &&
		 stmt->kind != TRANS_STMT_ROLLBACK_PREPARED))
		return false;
	set_mark(&mark);
	pfree(GetLockConflicts(&mark, AccessExclusiveLock, &count));
	return count > 0;
}

static void
set_mark(LOCKTAG *mark)
{
	SET_LOCKTAG_OBJECT(*mark, MyDatabaseId, ExtensionRelationId, InvalidOid,
					   PREPARED_MARK);
}
