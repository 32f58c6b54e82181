/*-------------------------------------------------------------------------
 *
 * brief_lock.c
 *		Does something that needs strong locks, without making others wait.
 *
 * A session that waits for ACCESS EXCLUSIVE makes all later readers wait, too.
 * So we wait for at most LOCK_WAIT, for all tables of a collection together.
 * If that is not enough, we give the locks that we have got back, pause, and
 * try again.  The pauses grow.
 *
 * The work runs in a subtransaction, which sets lock_timeout.  It takes
 * its locks first, and then it must be quick: others wait until the
 * transaction commits, right after the work.
 *
 * deadlock_timeout is short meanwhile: after that time, core cancels an
 * autovacuum that has the lock.
 *
 * Nothing is lost if the work fails for lack of a lock: the subtransaction is
 * rolled back, and the work is done again from its start.  Other errors are
 * raised.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/resowner.h"
#include "utils/snapmgr.h"

#include "online/online_internal.h"

/* all in milliseconds */
#define LOCK_WAIT			50
#define YIELD_TIME			"20ms"	/* for autovacuum */
#define FIRST_PAUSE			50
#define LONGEST_PAUSE		1000

static bool try_briefly(BriefWork work, void *arg, BriefLock *lock);
static void set_locally(const char *name, const char *value);

/*
 * Does the work with brief locks, and commits it.  "relid" is the table that a
 * notice names if it takes long to get the locks.
 */
void
ttl_docs_do_briefly(BriefWork work, void *arg, Oid relid)
{
	int64		began = ttl_docs_elapsed();
	int			pause = FIRST_PAUSE;
	bool		has_noticed = false;
	BriefLock	lock;

	/* hold no weak lock when we ask for a strong one */
	ttl_docs_commit_step();
	for (;;)
	{
		CHECK_FOR_INTERRUPTS();
		if (try_briefly(work, arg, &lock))
			break;
		/* keep no snapshot and no transaction while we wait */
		ttl_docs_commit_step();
		if (!has_noticed && ttl_docs_elapsed() - began >= NOTICE_AFTER)
		{
			ttl_docs_notice_lock_holders(relid);
			has_noticed = true;
		}
		ttl_docs_pause(pause);
		pause = Min(pause * 2, LONGEST_PAUSE);
	}
	ttl_docs_commit_step();
}

/*
 * Tries the work once; false if a lock was not available.  What the work
 * allocates is freed, because there can be many attempts.
 */
static bool
try_briefly(BriefWork work, void *arg, BriefLock *lock)
{
	MemoryContext caller = CurrentMemoryContext;
	MemoryContext context = AllocSetContextCreate(caller, "ttl_docs brief work",
												  ALLOCSET_DEFAULT_SIZES);
	ResourceOwner owner = CurrentResourceOwner;
	volatile bool succeeded = false;

	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(context);
	PG_TRY();
	{
		PushActiveSnapshot(GetTransactionSnapshot());
		set_locally("deadlock_timeout", YIELD_TIME);
		set_locally("lock_timeout", psprintf("%dms", LOCK_WAIT));
		lock->deadline = 0;
		work(arg, lock);
		PopActiveSnapshot();
		ReleaseCurrentSubTransaction();
		succeeded = true;
	}
	PG_CATCH();
	{
		ErrorData  *edata;

		MemoryContextSwitchTo(caller);
		edata = CopyErrorData();
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
		CurrentResourceOwner = owner;
		MemoryContextSwitchTo(caller);
		if (edata->sqlerrcode != ERRCODE_LOCK_NOT_AVAILABLE &&
			edata->sqlerrcode != ERRCODE_T_R_DEADLOCK_DETECTED)
			ReThrowError(edata);
		FreeErrorData(edata);
	}
	PG_END_TRY();
	MemoryContextSwitchTo(caller);
	MemoryContextDelete(context);
	CurrentResourceOwner = owner;
	return succeeded;
}

/*
 * Sets lock_timeout to the time that is left.  Call this before each strong lock:
 * all of them have one deadline, which the first call sets.
 */
void
ttl_docs_limit_lock_wait(BriefLock *lock)
{
	int64		left;

	if (lock->deadline == 0)
		lock->deadline = ttl_docs_elapsed() + LOCK_WAIT * INT64CONST(1000);
	left = (lock->deadline - ttl_docs_elapsed()) / 1000;
	set_locally("lock_timeout", psprintf("%dms", (int) Max(left, 1)));
}

/* The setting ends with the subtransaction, or with the transaction. */
static void
set_locally(const char *name, const char *value)
{
	(void) set_config_option(name, value, PGC_SUSET, PGC_S_SESSION,
							 GUC_ACTION_LOCAL, true, 0, false);
}

/* Locks a table and its partitions of all levels. */
void
ttl_docs_lock_tree_briefly(Oid relid, LOCKMODE lockmode, BriefLock *lock)
{
	List	   *tables = list_make1_oid(relid);

	ttl_docs_limit_lock_wait(lock);
	LockRelationOid(relid, lockmode);
	for (int i = 0; i < list_length(tables); i++)
	{
		List	   *children;
		ListCell   *lc;

		if (get_rel_relkind(list_nth_oid(tables, i)) != RELKIND_PARTITIONED_TABLE)
			continue;
		children = find_inheritance_children_extended(list_nth_oid(tables, i), false,
													  NoLock, NULL, NULL);
		foreach(lc, children)
		{
			ttl_docs_limit_lock_wait(lock);
			LockRelationOid(lfirst_oid(lc), lockmode);
		}
		tables = list_concat(tables, children);
	}
	list_free(tables);
}
