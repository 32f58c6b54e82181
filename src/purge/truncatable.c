/*-------------------------------------------------------------------------
 *
 * truncatable.c
 *		Whether a truncation of a table pays, and means the same as deleting its rows.
 *
 * Only large tables are truncated: a truncation creates new files, and locks out all
 * other sessions for a few milliseconds.  (If functions in the indexes of the owner are
 * slow, it can be the time limit of a batch.)
 *
 * A truncation runs no trigger and reports no row.  So the rows are deleted in these
 * cases:
 *
 * - Users have DELETE or TRUNCATE triggers on the table or on its partitioned table.
 * - Foreign keys refer to the table.  Core has DELETE triggers for them.
 * - There is a logical replication slot in this database.  pgoutput does not send the
 *   truncation of a partition under publish_via_partition_root, and other plugins may
 *   ignore truncations.  Since PostgreSQL 16, a standby can have logical slots, too.  We
 *   see them if the standby uses a physical slot, which then has a catalog_xmin.  (A
 *   standby that uses none can lose its logical slots at any time.)
 * - The owner has revoked the right to truncate the table from himself.
 * - The purge index does not show all rows: it is BRIN, it has a predicate, or it was
 *   built over HOT chains that it does not describe.
 * - A restore has brought the collection, and with it the slots of its rows.  Or the
 *   trigger was disabled while the server ran without the library, and has not been
 *   enabled as it was before: then rows can have any slot.
 * - The table has an index of an extension.  Such an index can depend on rows that are
 *   gone: ivfflat of pgvector chooses its lists when it is built.  A truncation builds
 *   it again, for no rows.
 * - The table is not a heap, so our knowledge of snapshots (truncation.c) does not apply.
 *
 * Holds are checked where the target is opened (target.c).  A shard that Citus moves
 * without blocking writes has a logical slot.  Other moves lock the shard
 * (citus/shard_lock.c).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/table.h"
#include "access/transam.h"
#include "catalog/pg_am.h"
#include "catalog/pg_class.h"
#include "catalog/pg_trigger.h"
#include "commands/trigger.h"
#include "miscadmin.h"
#include "replication/slot.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "storage/spin.h"
#include "utils/acl.h"
#include "utils/rel.h"

#include "purge/pass_internal.h"

/* minimum size of a table with its TOAST table */
#define MIN_PAGES	1000

static bool has_index_of_extension(Relation rel);
static bool shows_all_rows(const PurgeTarget *target);
static bool has_trigger_of_delete(Relation rel);
static bool has_logical_slot(void);

/* May the open target be truncated if all its documents have expired? */
bool
ttl_docs_may_truncate(const PurgeTarget *target)
{
	Relation	rel = target->rel;

	return ttl_docs_is_large(rel) &&
		rel->rd_rel->relam == HEAP_TABLE_AM_OID &&
		ttl_docs_has_right_slots(RelationGetRelid(rel), &target->collection) &&
		shows_all_rows(target) &&
		!has_index_of_extension(rel) &&
		!has_trigger_of_delete(rel) &&
		(target->root == NULL || !has_trigger_of_delete(target->root)) &&
		!has_logical_slot() &&
		pg_class_aclcheck(RelationGetRelid(rel), rel->rd_rel->relowner,
						  ACL_TRUNCATE) == ACLCHECK_OK;
}

/* Is the table so large that a truncation pays? */
bool
ttl_docs_is_large(Relation rel)
{
	Oid			toast = rel->rd_rel->reltoastrelid;
	uint64		pages = RelationGetNumberOfBlocks(rel);

	if (pages < MIN_PAGES && OidIsValid(toast) &&
		ConditionalLockRelationOid(toast, AccessShareLock))
	{
		Relation	toast_rel = table_open(toast, NoLock);

		pages += RelationGetNumberOfBlocks(toast_rel);
		table_close(toast_rel, AccessShareLock);
	}
	return pages >= MIN_PAGES;
}

/* Has the table an index whose access method is not one of core? */
static bool
has_index_of_extension(Relation rel)
{
	List	   *indexes = RelationGetIndexList(rel);
	ListCell   *lc;
	bool		found = false;

	foreach(lc, indexes)
	{
		Relation	index = index_open(lfirst_oid(lc), AccessShareLock);

		found |= index->rd_rel->relam >= FirstNormalObjectId;
		index_close(index, AccessShareLock);
	}
	list_free(indexes);
	return found;
}

/* Does the purge index have an entry for each version of each row? */
static bool
shows_all_rows(const PurgeTarget *target)
{
	Relation	index;
	bool		result;

	if (target->collection.settings.indexing != INDEXING_CONSISTENT ||
		!OidIsValid(target->index) ||
		target->index != ttl_docs_whole_purge_index(target->rel, INDEXING_CONSISTENT))
		return false;
	index = index_open(target->index, AccessShareLock);
	result = !index->rd_index->indcheckxmin;
	index_close(index, AccessShareLock);
	return result;
}

/*
 * Would a DELETE or TRUNCATE of the table fire a trigger other than ours?  The triggers
 * of foreign keys count even if they are disabled: core refuses to truncate the table.
 */
static bool
has_trigger_of_delete(Relation rel)
{
	TriggerDesc *triggers = rel->trigdesc;

	for (int i = 0; triggers != NULL && i < triggers->numtriggers; i++)
	{
		Trigger    *trigger = &triggers->triggers[i];

		if (strcmp(trigger->tgname, TTL_DOCS_TRIGGER) != 0 &&
			(TRIGGER_FOR_DELETE(trigger->tgtype) ||
			 TRIGGER_FOR_TRUNCATE(trigger->tgtype)) &&
			(trigger->tgisinternal || trigger->tgenabled != TRIGGER_DISABLED))
			return true;
	}
	return false;
}

/* Is there a logical slot in this database, or perhaps one on a standby? */
static bool
has_logical_slot(void)
{
	bool		found = false;

	LWLockAcquire(ReplicationSlotControlLock, LW_SHARED);
	for (int i = 0; i < max_replication_slots && !found; i++)
	{
		ReplicationSlot *slot = &ReplicationSlotCtl->replication_slots[i];

		if (!slot->in_use)
			continue;
		SpinLockAcquire(&slot->mutex);
		found = slot->data.database == InvalidOid ?
			TransactionIdIsValid(slot->effective_catalog_xmin) :
			slot->data.database == MyDatabaseId;
		SpinLockRelease(&slot->mutex);
	}
	LWLockRelease(ReplicationSlotControlLock);
	return found;
}
