/*-------------------------------------------------------------------------
 *
 * prepared.c
 *		Prepared transactions that change collections.
 *
 * A transaction announces its changes of collections when it commits (notify.c,
 * database_commands.c).  PREPARE TRANSACTION is too early: workers still see the old
 * catalogs.  So the session that runs COMMIT PREPARED or ROLLBACK PREPARED
 * announces them.  That session does not know what the transaction has changed, so
 * it makes workers visit all tables of the database.
 *
 * Most prepared transactions change no collection, and should wake no worker.  A
 * transaction that changes collections takes a special lock when it is prepared:
 * the mark.  PostgreSQL keeps the locks of prepared transactions through a restart,
 * a crash and a promotion, and releases them when the transaction is finished.  The
 * mark blocks nobody: it is only taken in a mode that does not conflict with
 * itself.  In pg_locks it has the locktype "object", the class pg_extension, the
 * object 0 and the subobject PREPARED_MARK.
 *
 * Documents need no mark.  PREPARE TRANSACTION announces them, and a worker that
 * finds an uncommitted row comes back for it.
 *
 * Logical replication finishes prepared transactions without a command.  These
 * transactions have written documents, but changed no collection.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_extension.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "storage/lock.h"

#include "purge/shared_internal.h"

/* a subobject number that no other lock on an extension uses */
#define PREPARED_MARK	0x7474

static void set_mark(LOCKTAG *mark);

/*
 * Marks a transaction that is about to be prepared.  Call this before core writes
 * the locks to the state file of the transaction.
 */
void
ttl_docs_mark_prepared(void)
{
	LOCKTAG		mark;

	set_mark(&mark);
	(void) LockAcquire(&mark, AccessShareLock, false, false);
}

/*
 * Does this command finish a prepared transaction, and does any prepared
 * transaction of this database have the mark?  The two need not be the same.
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
