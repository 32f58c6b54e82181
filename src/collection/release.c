/*-------------------------------------------------------------------------
 *
 * release.c
 *		release(): a collection becomes a plain table again.
 *
 * An expired document must not come back as a plain row.  So release() first
 * deletes the expired documents, with their triggers and foreign key actions,
 * as the owner of the table.  It raises an error if the delete would run code
 * that cannot be trusted (core/trusted_code.c).  Then release() removes the
 * label, the trigger, and the system columns with the purge index.
 *
 * Locks: ACCESS EXCLUSIVE on the table and its partitions until the
 * transaction ends, because release() runs ALTER TABLE.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/table.h"
#include "access/tableam.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "commands/trigger.h"
#include "executor/tuptable.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "collection/collection_internal.h"

PG_FUNCTION_INFO_V1(ttl_docs_release);

/* A scan that returns the expired rows of a table */
typedef struct ExpiredScan
{
	const Collection *collection;
	ExpiryBounds bounds;
	Snapshot	snapshot;
	TupleTableSlot *row;
	TableScanDesc scan;
} ExpiredScan;

static void require_no_grace(Relation rel, const CollectionSettings *settings);
static void require_no_pending_trigger(Relation rel);
static void require_no_other_index(Relation rel, const Collection *collection);
static int64 delete_expired_documents(Oid relid);
static bool has_expired_rows(Relation rel, const Collection *collection);
static int64 delete_expired_rows(Relation rel, const Collection *collection);
static bool delete_expired_row(Relation rel, const Collection *collection,
							   ItemPointer tid);
static List *require_trusted_code(Relation rel, Oid root);
static void begin_expired_scan(ExpiredScan *expired, Relation rel,
							   const Collection *collection);
static bool next_expired_row(ExpiredScan *expired);
static void end_expired_scan(ExpiredScan *expired);

/*
 * release(collection regclass)
 */
Datum
ttl_docs_release(PG_FUNCTION_ARGS)
{
	Collection	collection;
	Relation	rel;
	Oid			relid;
	char	   *table;

	ttl_docs_require_writable(fcinfo);
	rel = ttl_docs_open_collection(ttl_docs_collection_arg(fcinfo),
								   AccessExclusiveLock, &collection);
	relid = RelationGetRelid(rel);
	require_no_grace(rel, &collection.settings);
	ttl_docs_require_no_pending_detach(relid);
	require_no_pending_trigger(rel);
	ttl_docs_require_unused(rel, "release");
	require_no_other_index(rel, &collection);
	table_close(rel, NoLock);

	/* on Citus, each node does this for its shards when the label is removed */
	if (!ttl_docs_is_shell(relid))
		ttl_docs_delete_all_expired(relid);
	ttl_docs_write_label(relid, NULL);
	table = ttl_docs_quoted_name(relid);
	ttl_docs_drop_trigger(relid);
	ttl_docs_run_ddl("ALTER TABLE %s DROP COLUMN %s, DROP COLUMN %s, DROP COLUMN %s",
					 table, TTL_DOCS_TS_COLUMN, TTL_DOCS_TTL_COLUMN,
					 TTL_DOCS_SLOT_COLUMN);
	PG_RETURN_VOID();
}

/* Deletes all expired documents of a table, and reports their number. */
void
ttl_docs_delete_all_expired(Oid relid)
{
	int64		deleted = delete_expired_documents(relid);

	if (deleted > 0)
		ereport(NOTICE,
				(errmsg_plural("deleted %lld expired document of \"%s\"",
							   "deleted %lld expired documents of \"%s\"",
							   (unsigned long) deleted, (long long) deleted,
							   get_rel_name(relid))));
}

/*
 * Raises an error during the hold of grace.c.  release() would delete
 * documents that somebody may want to copy out.
 */
static void
require_no_grace(Relation rel, const CollectionSettings *settings)
{
	if (!ttl_docs_in_grace(settings))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("cannot release \"%s\" while its purge is held after a change of settings",
					RelationGetRelationName(rel)),
			 errdetail("Documents that the change made expire can be copied out for another %s.",
					   ttl_docs_grace_left(settings)),
			 errhint("To copy them out, see \"A DefaultTTL that was too short\" in docs/operations.md. Then run SELECT ttl_docs.resume_purge(%s).",
					 ttl_docs_quoted_literal(RelationGetRelid(rel)))));
}

/*
 * Raises an error if the table has pending trigger events in this
 * transaction, because core would refuse ALTER TABLE.  Only the user can
 * decide to fire the triggers now.
 */
static void
require_no_pending_trigger(Relation rel)
{
	List	   *tables = find_all_inheritors(RelationGetRelid(rel), NoLock, NULL);
	ListCell   *lc;

	foreach(lc, tables)
		if (AfterTriggerPendingOnRel(lfirst_oid(lc)))
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_IN_USE),
					 errmsg("cannot release \"%s\" because it has pending trigger events",
							RelationGetRelationName(rel)),
					 errhint("Run SET CONSTRAINTS ALL IMMEDIATE, or COMMIT, first.")));
	list_free(tables);
}

/*
 * Raises an error if an index other than the purge index uses a system
 * column.  DROP COLUMN would drop the index without a message.
 */
static void
require_no_other_index(Relation rel, const Collection *collection)
{
	List	   *indexes = RelationGetIndexList(rel);
	ListCell   *lc;

	foreach(lc, indexes)
	{
		Relation	index = index_open(lfirst_oid(lc), AccessShareLock);
		Bitmapset  *columns = NULL;
		int			ncolumns = index->rd_index->indnatts;

		for (int i = 0; i < ncolumns; i++)
			columns = bms_add_member(columns, index->rd_index->indkey.values[i] -
									 FirstLowInvalidHeapAttributeNumber);
		if (bms_is_member(collection->ts - FirstLowInvalidHeapAttributeNumber, columns) ||
			bms_is_member(collection->ttl - FirstLowInvalidHeapAttributeNumber, columns) ||
			(bms_is_member(collection->slot - FirstLowInvalidHeapAttributeNumber, columns) &&
			 ncolumns > 1))
			ereport(ERROR,
					(errcode(ERRCODE_DEPENDENT_OBJECTS_STILL_EXIST),
					 errmsg("cannot release \"%s\" because index \"%s\" uses its system columns",
							RelationGetRelationName(rel), RelationGetRelationName(index)),
					 errhint("First drop the index with DROP INDEX, or replace it with an index without system columns.")));
		index_close(index, AccessShareLock);
	}
	list_free(indexes);
}

/*
 * Deletes the expired documents of a table and its partitions.  Returns how
 * many were deleted.
 */
static int64
delete_expired_documents(Oid relid)
{
	List	   *tables = find_all_inheritors(relid, NoLock, NULL);
	ListCell   *lc;
	int64		deleted = 0;

	foreach(lc, tables)
	{
		Relation	rel = table_open(lfirst_oid(lc), NoLock);
		Collection	collection;
		OwnerSwitch before;

		if (rel->rd_rel->relkind != RELKIND_PARTITIONED_TABLE &&
			ttl_docs_lookup_collection(RelationGetRelid(rel), &collection) &&
			has_expired_rows(rel, &collection))
		{
			ttl_docs_become_owner(rel, &before);
			deleted += delete_expired_rows(rel, &collection);
			ttl_docs_become_caller(&before);
		}
		table_close(rel, NoLock);
	}
	list_free(tables);
	return deleted;
}

static bool
has_expired_rows(Relation rel, const Collection *collection)
{
	ExpiredScan expired;
	bool		found;

	begin_expired_scan(&expired, rel, collection);
	found = next_expired_row(&expired);
	end_expired_scan(&expired);
	return found;
}

static int64
delete_expired_rows(Relation rel, const Collection *collection)
{
	List	   *cascade_targets = require_trusted_code(rel, collection->root);
	volatile int64 deleted = 0;
	ExpiredScan expired;
	TableGuard	guard;

	begin_expired_scan(&expired, rel, collection);
	ttl_docs_begin_guard(&guard, rel, collection->root, cascade_targets);
	PG_TRY();
	{
		while (next_expired_row(&expired))
			if (delete_expired_row(rel, collection, &expired.row->tts_tid))
				deleted++;
	}
	PG_FINALLY();
	{
		ttl_docs_end_guard(&guard);
	}
	PG_END_TRY();
	end_expired_scan(&expired);
	return deleted;
}

/* Deletes one document; false if another session has changed it. */
static bool
delete_expired_row(Relation rel, const Collection *collection, ItemPointer tid)
{
	DeleteResult result = ttl_docs_delete_expired(rel, collection, tid,
												  GetCurrentCommandId(true));

	if (result == DELETE_REFUSED)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot release \"%s\" because a trigger prevents the delete of an expired document",
						RelationGetRelationName(rel)),
				 errhint("Use ALTER TABLE ... DISABLE TRIGGER to disable the BEFORE DELETE trigger that returns NULL.")));
	return result == DELETE_DONE;
}

/*
 * Raises an error if a delete would run another user's code as the owner.  Returns
 * the tables that foreign key actions write to.
 */
static List *
require_trusted_code(Relation rel, Oid root)
{
	Oid			function;
	List	   *cascade_targets;
	char	   *code = ttl_docs_untrusted_code(rel, root, &function, &cascade_targets);

	if (code != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot release \"%s\" because deleting its expired documents would run another user's code as its owner",
						RelationGetRelationName(rel)),
				 errdetail("Blocked by %s.", code),
				 errhint("Drop or disable the trigger or rule, or make the owner of the table the owner of the trigger function.")));
	return cascade_targets;
}

/* Begins a scan for the rows of a table that are expired now. */
static void
begin_expired_scan(ExpiredScan *expired, Relation rel, const Collection *collection)
{
	expired->collection = collection;
	expired->bounds = ttl_docs_bounds(&collection->settings, ttl_docs_clock());
	expired->snapshot = RegisterSnapshot(GetLatestSnapshot());
	expired->row = table_slot_create(rel, NULL);
	expired->scan = compat_table_beginscan(rel, expired->snapshot);
}

/* Moves to the next expired row; false if there is none. */
static bool
next_expired_row(ExpiredScan *expired)
{
	while (table_scan_getnextslot(expired->scan, ForwardScanDirection, expired->row))
	{
		CHECK_FOR_INTERRUPTS();
		if (ttl_docs_row_is_expired(&expired->bounds, expired->collection, expired->row))
			return true;
	}
	return false;
}

static void
end_expired_scan(ExpiredScan *expired)
{
	table_endscan(expired->scan);
	ExecDropSingleTupleTableSlot(expired->row);
	UnregisterSnapshot(expired->snapshot);
}
