/*-------------------------------------------------------------------------
 *
 * target.c
 *		Opens the table that a step of the purge works on.
 *
 * Every step opens the table in the same way:
 *
 * 1. It locks the table in ROW EXCLUSIVE mode, as DELETE does.  A partition is locked
 *    after its partitioned table, as in every session.  A worker does not wait for
 *    these locks; CALL purge() does.  The locks also keep out changes of settings,
 *    except those of pause_resume.c.  A shard of Citus is first locked against moves
 *    (citus/shard_lock.c).  This order lets CALL purge() wait for a move without a
 *    lock on the table, which the move may need.
 * 2. It reads the settings, which may have changed before the lock was taken.
 * 3. It becomes the owner of the table (core/owner.c), until the target is closed.
 * 4. It works out what depends on the catalogs: the purge index, and the holds of
 *    hold.c, which include the check of all code that a delete would run.
 *
 * The result of item 4 is kept from one step of the purge to the next.  It is worked
 * out again after any invalidation of a relation, function, role or subscription
 * (hooks.c).  We receive invalidations when we acquire a lock, and at the start of a
 * transaction.  The check of code also locks the tables that foreign key actions
 * reach, because their owners could change them at any time.  So each later step
 * locks these tables again before it trusts the result.
 *
 * On ERROR, the end of the transaction or subtransaction releases locks and
 * relations, and restores the user.  The next step opens the table again.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/pg_class.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/syscache.h"

#include "purge/pass_internal.h"

/* invalidations that this process has received */
static uint64 invalidations = 0;

static StepEnd lock_target(PurgeTarget *target, Oid *root);
static bool is_moving(const PurgeTarget *target);
static void close_relations(PurgeTarget *target);
static StepEnd open_locked(Oid relid, bool waits, Relation *rel);
static bool is_up_to_date(const PurgeTarget *target);
static void work_out(PurgeTarget *target);
static Oid	index_file(Oid index);

/* A relation, function, role or subscription has changed. */
void
ttl_docs_purge_catalog_changed(void)
{
	invalidations++;
}

/*
 * Opens the target, unless it is busy or gone.  STEP_DONE means that it is open.  The
 * caller has a transaction and an active snapshot.
 */
StepEnd
ttl_docs_open_target(PurgeTarget *target)
{
	StepEnd		end;
	Oid			root;

	/* another session can attach or detach the table before we have the lock */
	do
	{
		CHECK_FOR_INTERRUPTS();
		end = lock_target(target, &root);
	} while (end == STEP_DONE && target->collection.root != root);
	if (end != STEP_DONE)
		return end;

	ttl_docs_become_owner(target->rel, &target->before);
	if (!is_up_to_date(target))
		work_out(target);
	target->hold = target->is_moving ? PURGE_MOVING :
		ttl_docs_hold_by_settings(&target->collection, target->table);
	if (!PURGE_IS_HOLD(target->hold))
		target->hold = target->table_hold;
	return STEP_DONE;
}

/*
 * Locks and opens the target and its partitioned table, *root.  If the target
 * belongs to another partitioned table after it is locked, closes both.
 */
static StepEnd
lock_target(PurgeTarget *target, Oid *root)
{
	Collection *collection = &target->collection;
	StepEnd		end = STEP_DONE;

	target->rel = target->root = NULL;
	if (!ttl_docs_lookup_collection(target->relid, collection))
		return STEP_TABLE_GONE;
	*root = collection->root;
	target->is_moving = is_moving(target);
	if (*root != target->relid)
		end = open_locked(*root, target->waits, &target->root);
	if (end == STEP_DONE)
		end = open_locked(target->relid, target->waits, &target->rel);
	if (end == STEP_DONE)
	{
		/* acquiring a lock that we already hold processes no invalidations */
		AcceptInvalidationMessages();
		if (!ttl_docs_lookup_collection(target->relid, collection) ||
			target->rel->rd_rel->relkind != RELKIND_RELATION ||
			/* somebody has distributed the table: its documents are in shards now */
			(collection->settings.citus && ttl_docs_is_shell(target->relid)))
			end = STEP_TABLE_GONE;
	}
	if (end != STEP_DONE || collection->root != *root)
		close_relations(target);
	return end;
}

/*
 * Is the target a shard that is not in use on this node?  Otherwise locks it against
 * moves.
 */
static bool
is_moving(const PurgeTarget *target)
{
	return target->collection.settings.citus && ttl_docs_is_shard(target->relid) &&
		!ttl_docs_lock_shard(target->relid, target->waits);
}

static void
close_relations(PurgeTarget *target)
{
	if (target->rel != NULL)
		table_close(target->rel, NoLock);
	if (target->root != NULL)
		table_close(target->root, NoLock);
}

/* Closes the target.  The transaction keeps the locks. */
void
ttl_docs_close_target(PurgeTarget *target)
{
	ttl_docs_become_caller(&target->before);
	close_relations(target);
}

static StepEnd
open_locked(Oid relid, bool waits, Relation *rel)
{
	if (waits)
		LockRelationOid(relid, RowExclusiveLock);
	else if (!ConditionalLockRelationOid(relid, RowExclusiveLock))
		return STEP_TABLE_BUSY;
	*rel = try_table_open(relid, NoLock);
	return *rel != NULL ? STEP_DONE : STEP_TABLE_GONE;
}

/* Is the result of an earlier step still valid? */
static bool
is_up_to_date(const PurgeTarget *target)
{
	ListCell   *lc;

	if (!target->is_known || target->invalidations != invalidations)
		return false;
	foreach(lc, target->cascade_targets)
		if (!ConditionalLockRelationOid(lfirst_oid(lc), RowExclusiveLock))
			return false;		/* work_out() raises the error */
	return target->invalidations == invalidations;
}

/* Works out what depends on the catalogs. */
static void
work_out(PurgeTarget *target)
{
	MemoryContext caller;
	uint64		before = invalidations;

	target->is_known = false;
	if (target->facts == NULL)
		target->facts = AllocSetContextCreate(target->context, "ttl_docs target",
											  ALLOCSET_SMALL_SIZES);
	MemoryContextReset(target->facts);
	target->name = target->detail = NULL;
	target->cascade_targets = NIL;
	caller = MemoryContextSwitchTo(target->facts);
	target->name = ttl_docs_quoted_name(target->relid);
	target->index = ttl_docs_purge_index(target->rel,
										 target->collection.settings.indexing);
	target->index_file = index_file(target->index);
	target->table_hold = ttl_docs_hold_by_table(target->rel, &target->collection,
												&target->detail,
												&target->cascade_targets);
	target->invalidations = before;
	target->is_known = true;
	MemoryContextSwitchTo(caller);
}

/* The file of an index, which changes when the index is rebuilt. */
static Oid
index_file(Oid index)
{
	HeapTuple	tuple;
	Oid			file;

	if (!OidIsValid(index))
		return InvalidOid;
	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(index));
	if (!HeapTupleIsValid(tuple))
		return InvalidOid;
	file = ((Form_pg_class) GETSTRUCT(tuple))->relfilenode;
	ReleaseSysCache(tuple);
	return file;
}
