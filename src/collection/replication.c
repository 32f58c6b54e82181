/*-------------------------------------------------------------------------
 *
 * replication.c
 *		Checks adopt() of tables that logical replication sends or receives.
 *
 * adopt() adds columns to the rows, and PostgreSQL does not replicate DDL.
 * Two things can go wrong:
 *
 * 1. The publisher sends columns that a subscriber does not have.
 *    Replication fails with an error until the subscriber has the columns.
 *    No data is lost.  So adopt() on a publisher gives a NOTICE.  Users
 *    should adopt the table on the subscribers first.
 * 2. The table has no key and REPLICA IDENTITY FULL.  The subscriber looks
 *    for a row with the same values in all columns, but _ts differs:
 *    - Each side stamps its existing rows with its own clock when it adopts
 *      them.
 *    - A publisher that is a plain table sends no _ts at all.
 *    So the subscriber does not find the row, and the UPDATE or DELETE is
 *    lost without an error.
 *
 * In case 2, the publisher knows that it sends updates or deletes, so adopt()
 * is an error there.  There are two exceptions: the table is empty, or _ts
 * comes from a column (last_modified or an existing _ts), so that it is the
 * same on both sides.
 * A subscriber cannot know whether the publisher sends anything but inserts,
 * so adopt() gives a WARNING there.
 *
 * Rows that are written or copied after both sides have adopted the table
 * arrive with their _ts.  The subscriber finds them by all columns.  A
 * publication with a column list does not send the new columns.  It cannot
 * send updates or deletes under REPLICA IDENTITY FULL either: core refuses
 * them.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/partition.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_publication.h"
#include "catalog/pg_publication_rel.h"
#include "catalog/pg_subscription_rel.h"
#include "miscadmin.h"
#include "replication/slot.h"
#include "storage/lwlock.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"

#include "collection/collection_internal.h"

static bool is_published(Oid relid);
static bool has_logical_slot(void);
static bool has_subscription(Oid relid);
static List *publications_of(Relation rel);
static bool has_column_list(Oid relid, Oid publication);
static bool sends_changes_without_key(Relation rel);
static bool has_key(Relation rel);

/*
 * Called before adopt() stamps existing documents with the clock.  Raises an
 * error if subscribers would not find the documents any more.
 */
void
ttl_docs_refuse_lossy_replication(Relation rel)
{
	List	   *tables = find_all_inheritors(RelationGetRelid(rel), NoLock, NULL);
	ListCell   *lc;

	foreach(lc, tables)
	{
		Relation	member = table_open(lfirst_oid(lc), NoLock);

		if (sends_changes_without_key(member) && ttl_docs_exists_as_owner(member, "true"))
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("cannot adopt \"%s\": subscribers would lose its updates and deletes",
							RelationGetRelationName(rel)),
					 errdetail("Table \"%s\" is published with REPLICA IDENTITY FULL and has no primary key, so subscribers find rows by the values of all columns. Publisher and subscriber would store different values of _ts.",
							   RelationGetRelationName(member)),
					 errhint("Add a primary key here and on the subscribers. Or take the table out of the publication, adopt it on both sides, and let the subscribers copy it again.")));
		table_close(member, NoLock);
	}
	list_free(tables);
}

/* After adopt(): reports what publishers or subscribers need. */
void
ttl_docs_warn_of_replication(Oid relid)
{
	List	   *tables = find_all_inheritors(relid, NoLock, NULL);
	bool		is_lossy = false;
	ListCell   *lc;

	foreach(lc, tables)
	{
		Relation	rel = table_open(lfirst_oid(lc), NoLock);

		is_lossy |= has_subscription(lfirst_oid(lc)) && !has_key(rel);
		table_close(rel, NoLock);
	}
	list_free(tables);

	if (is_published(relid))
		ereport(NOTICE,
				(errmsg("table \"%s\" is published: its subscribers need the columns %s, %s and %s from now on",
						get_rel_name(relid), TTL_DOCS_TS_COLUMN,
						TTL_DOCS_TTL_COLUMN, TTL_DOCS_SLOT_COLUMN),
				 errdetail("Replication to a subscriber without these columns fails until they are added. No data is lost."),
				 errhint("If you have not done so yet, adopt the table on each subscriber, with TTL off: SELECT ttl_docs.adopt(%s).",
						 ttl_docs_quoted_literal(relid))));
	if (is_lossy)
		ereport(WARNING,
				(errmsg("subscribed table \"%s\" has no primary key",
						get_rel_name(relid)),
				 errdetail("If the publisher uses REPLICA IDENTITY FULL, this subscriber finds rows by the values of all columns. It does not find a row whose %s differs, and the update or delete is lost without an error.",
						   TTL_DOCS_TS_COLUMN),
				 errhint("Add a primary key on both sides before the publisher updates or deletes rows. See \"Replication\" in docs/operations.md.")));
}

/*
 * Before adopt_concurrently(): reports that logical replication sends the rows
 * that it writes.  A slot can belong to any plugin, so we cannot know which
 * tables its consumer reads.
 */
void
ttl_docs_notice_published_rows(Relation rel)
{
	if (!is_published(RelationGetRelid(rel)) && !has_logical_slot())
		return;
	ereport(NOTICE,
			(errmsg("logical replication sends each row of \"%s\" that adopt_concurrently() writes as an UPDATE",
					RelationGetRelationName(rel)),
			 errdetail("It writes rows whose documents have a \"ttl\", and with last_modified all rows.")));
}

static bool
is_published(Oid relid)
{
	List	   *tables = find_all_inheritors(relid, NoLock, NULL);
	bool		found = false;
	ListCell   *lc;

	foreach(lc, tables)
	{
		Relation	rel = table_open(lfirst_oid(lc), NoLock);

		found |= publications_of(rel) != NIL;
		table_close(rel, NoLock);
	}
	list_free(tables);
	return found;
}

/* Does this database have a logical replication slot? */
static bool
has_logical_slot(void)
{
	bool		found = false;

	LWLockAcquire(ReplicationSlotControlLock, LW_SHARED);
	for (int i = 0; i < max_replication_slots; i++)
	{
		ReplicationSlot *slot = &ReplicationSlotCtl->replication_slots[i];

		/* the database of a slot in use does not change */
		found |= slot->in_use && slot->data.database == MyDatabaseId;
	}
	LWLockRelease(ReplicationSlotControlLock);
	return found;
}

/*
 * Returns the OIDs of the publications that send all columns of the table.
 * Publications of ancestors do not matter, because only a root can be
 * adopted.
 */
static List *
publications_of(Relation rel)
{
	Oid			relid = RelationGetRelid(rel);
	List	   *by_name = compat_publications_by_name(relid);
	List	   *found = NIL;
	ListCell   *lc;

	if (rel->rd_rel->relpersistence != RELPERSISTENCE_PERMANENT)
		return NIL;
	foreach(lc, by_name)
		if (!has_column_list(relid, lfirst_oid(lc)))
			found = lappend_oid(found, lfirst_oid(lc));
	found = list_concat(found, GetSchemaPublications(RelationGetNamespace(rel)));
	return list_concat(found, compat_publications_of_all(relid));
}

static bool
has_column_list(Oid relid, Oid publication)
{
	HeapTuple	tuple = SearchSysCache2(PUBLICATIONRELMAP, ObjectIdGetDatum(relid),
										ObjectIdGetDatum(publication));
	bool		found;

	if (!HeapTupleIsValid(tuple))
		return false;
	found = !heap_attisnull(tuple, Anum_pg_publication_rel_prattrs, NULL);
	ReleaseSysCache(tuple);
	return found;
}

/* Do subscribers get updates or deletes, and find rows by all columns? */
static bool
sends_changes_without_key(Relation rel)
{
	List	   *publications;
	ListCell   *lc;

	if (rel->rd_rel->relreplident != REPLICA_IDENTITY_FULL || has_key(rel))
		return false;
	publications = publications_of(rel);
	foreach(lc, publications)
	{
		Publication *publication = GetPublication(lfirst_oid(lc));

		if (publication->pubactions.pubupdate || publication->pubactions.pubdelete)
			return true;
	}
	return false;
}

/*
 * Does the table have a key by which a subscriber finds a row: a primary key
 * or a replica identity index?
 */
static bool
has_key(Relation rel)
{
	return !bms_is_empty(RelationGetIndexAttrBitmap(rel, INDEX_ATTR_BITMAP_PRIMARY_KEY)) ||
		!bms_is_empty(RelationGetIndexAttrBitmap(rel, INDEX_ATTR_BITMAP_IDENTITY_KEY));
}

/* Is the table, or one of its ancestors, the target of a subscription? */
bool
ttl_docs_is_subscribed(Oid relid)
{
	List	   *ancestors;
	ListCell   *lc;
	bool		found;

	found = has_subscription(relid);
	if (found || !get_rel_relispartition(relid))
		return found;
	ancestors = get_partition_ancestors(relid);
	foreach(lc, ancestors)
		found |= has_subscription(lfirst_oid(lc));
	list_free(ancestors);
	return found;
}

/* Is the table itself the target of a subscription? */
static bool
has_subscription(Oid relid)
{
	Relation	catalog = table_open(SubscriptionRelRelationId, AccessShareLock);
	ScanKeyData key;
	SysScanDesc scan;
	bool		found;

	ScanKeyInit(&key, Anum_pg_subscription_rel_srrelid, BTEqualStrategyNumber,
				F_OIDEQ, ObjectIdGetDatum(relid));
	scan = systable_beginscan(catalog, SubscriptionRelSrrelidSrsubidIndexId,
							  true, NULL, 1, &key);
	found = HeapTupleIsValid(systable_getnext(scan));
	systable_endscan(scan);
	table_close(catalog, AccessShareLock);
	return found;
}
