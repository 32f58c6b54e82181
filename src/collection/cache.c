/*-------------------------------------------------------------------------
 *
 * cache.c
 *		Caches which tables are collections, in each backend.
 *
 * Every plan and every written row asks whether a table is a collection.  A
 * hash table keeps the answer for each table, including the answer "no".  The
 * entry of a partition has the settings of its root and the partition's own
 * column numbers.
 *
 * Invalidation.  An invalidation of the relation cache removes the entry of a
 * table.  Writing a label, DDL on the table, ATTACH and DETACH PARTITION all
 * send such an invalidation.  On abort, core repeats the invalidation in this
 * backend, so a change that was rolled back leaves no entry behind.  The entry
 * of a partition also depends on its ancestors.  So the invalidation of a
 * partitioned table removes the entries of all partitions.  An ancestor always
 * has an entry if one of its partitions has one, because the lookup of a
 * partition looks up its ancestors.
 *
 * While DETACH PARTITION CONCURRENTLY runs, the table still counts as a
 * partition.  Otherwise its expired documents would be visible until the
 * command ends.
 *
 * Settings and snapshots.  A query uses the settings that its snapshot sees.
 * Otherwise a later change of settings could hide a document that was live
 * for the snapshot, and the scans and workers of a query could disagree.  The
 * cache has the latest settings, and the transaction that wrote them.  If the
 * snapshot sees that transaction, it sees the cached settings.  If not, we
 * read the label with the snapshot.
 *
 * A commit becomes visible a moment before its invalidations are sent.  In
 * between, the cache still has the older settings.  So a query keeps the
 * settings that it read first (access/visibility.c), and the processes of a
 * parallel query do not use the cache.
 *
 * Plain tables.  Every query looks up each table that it reads, and most
 * tables are not collections.  A small array of tables that are not
 * collections answers most of these lookups in a few instructions.
 *
 * Callers get a copy of an entry, because an invalidation can remove the
 * entry at any time.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/transam.h"
#include "access/xact.h"
#include "catalog/pg_attribute.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "utils/fmgroids.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "collection/collection_internal.h"

typedef struct CacheEntry
{
	Oid			relid;			/* hash key, must be first */
	bool		is_collection;
	bool		has_own_label;	/* is the label of this table in effect? */
	bool		is_partition;
	bool		has_partitions;
	Collection	collection;
	TransactionId label_writer; /* wrote the label, if has_own_label */
	bool		is_filling;		/* does the label say that Citus fills it? */
	Oid			parent;			/* of a partition */
	TransactionId link_writer;	/* attached the partition to its parent */
} CacheEntry;

/* Tables that are not collections; the array index follows from the OID */
#define PLAIN_TABLES	64

static Oid	plain_tables[PLAIN_TABLES];
static HTAB *cache = NULL;
static CacheEntry *last_found = NULL;	/* the planner asks for the same table
										 * several times */
static uint64 invalidations = 0;	/* how many this backend has received */

static inline Oid *plain_table_cell(Oid relid);
static CacheEntry *lookup(Oid relid);
static bool load(Oid relid, CacheEntry *entry);
static void find_parent(CacheEntry *entry);
static bool snapshot_sees_column(Snapshot snapshot, Oid relid, AttrNumber attno);
static bool is_mvcc(Snapshot snapshot);
static bool is_adopted_in_place(const Collection *latest, Snapshot snapshot);
static bool snapshot_sees_table(Snapshot snapshot, Oid relid);
static int	columns_at(Snapshot snapshot, Oid relid);
static void forget_entries(bool only_partitions);

void
ttl_docs_cache_init(void)
{
	HASHCTL		ctl;

	ctl.keysize = sizeof(Oid);
	ctl.entrysize = sizeof(CacheEntry);
	ctl.hcxt = TopMemoryContext;
	cache = hash_create("ttl_docs collections", 128, &ctl,
						HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
}

/*
 * Is the table a collection, or a partition of one?  The caller should hold a
 * lock on the table.  Otherwise the answer can become outdated before the
 * caller uses it.
 */
bool
ttl_docs_lookup_collection(Oid relid, Collection *collection)
{
	CacheEntry *entry;

	if (*plain_table_cell(relid) == relid)
		return false;
	entry = lookup(relid);
	if (entry == NULL || !entry->is_collection)
		return false;
	*collection = entry->collection;
	return true;
}

/* The same without a copy, for callers that need no more than the answer. */
bool
ttl_docs_is_collection(Oid relid)
{
	CacheEntry *entry;

	if (*plain_table_cell(relid) == relid)
		return false;
	entry = lookup(relid);
	return entry != NULL && entry->is_collection;
}

/*
 * Does the table have a label that is in effect?  The label of a partition is
 * not in effect if its parent belongs to a collection: it is only a copy
 * (label.c).
 */
bool
ttl_docs_has_own_label(Oid relid)
{
	CacheEntry *entry = lookup(relid);

	return entry != NULL && entry->has_own_label;
}

/*
 * Does Citus convert the table in this transaction?  Then it copies rows with
 * their stamps, expired ones too.  The flag in the label counts only for the
 * transaction that wrote it.
 */
bool
ttl_docs_is_filling(Oid relid)
{
	CacheEntry *entry = lookup(relid);

	if (entry != NULL && entry->is_collection && !entry->has_own_label)
		entry = lookup(entry->collection.root);
	return entry != NULL && entry->is_filling &&
		TransactionIdIsCurrentTransactionId(entry->label_writer);
}

/*
 * Reads the settings of a collection as a snapshot sees them.  root is the
 * table that has the label.  If the snapshot does not see the table at all,
 * sets *settings to the latest settings.  Returns false if the snapshot sees a
 * plain table that became a collection later, unless adopt_concurrently() is
 * still adopting it.  With use_cache = false, all
 * processes that use the same snapshot get the same answer.
 */
bool
ttl_docs_settings_at(Oid root, Snapshot snapshot, bool use_cache,
					 CollectionSettings *settings)
{
	CacheEntry *entry = lookup(root);
	TransactionId writer;
	Collection	latest;
	bool		is_own;

	if (entry == NULL || !entry->has_own_label)
		return false;
	latest = entry->collection;
	*settings = latest.settings;
	if (!is_mvcc(snapshot))
		return true;

	/*
	 * If this transaction wrote the label, XidInMVCCSnapshot() does not tell
	 * whether the query sees it: the query may have begun before the write.
	 */
	is_own = TransactionIdIsCurrentTransactionId(entry->label_writer);
	if (use_cache && !is_own && !XidInMVCCSnapshot(entry->label_writer, snapshot))
		return true;
	if (ttl_docs_read_label_at(root, snapshot, settings, &writer))
		return is_own || snapshot_sees_column(snapshot, root, latest.ts);
	*settings = latest.settings;
	/* if the snapshot does not see the table, it sees no rows of it either */
	return is_own || !snapshot_sees_table(snapshot, root) ||
		is_adopted_in_place(&latest, snapshot);
}

/*
 * Is adopt_concurrently() adopting a table that is a plain table for the
 * snapshot?  It does not rewrite the table, and TTL is off meanwhile, so the
 * latest settings are right for the snapshot, too.  If other columns were added
 * before the system columns, the table may have been rewritten then.
 */
static bool
is_adopted_in_place(const Collection *latest, Snapshot snapshot)
{
	return latest->settings.adopting != DT_NOBEGIN &&
		latest->ts == columns_at(snapshot, latest->root) + 1;
}

/*
 * Does a snapshot see the column?  If a collection was released and adopted
 * again after the snapshot, its system columns are new, and the table may
 * have been rewritten to add them.
 */
static bool
snapshot_sees_column(Snapshot snapshot, Oid relid, AttrNumber attno)
{
	Relation	attributes = table_open(AttributeRelationId, AccessShareLock);
	ScanKeyData keys[2];
	SysScanDesc scan;
	HeapTuple	tuple;
	bool		found;

	ScanKeyInit(&keys[0], Anum_pg_attribute_attrelid, BTEqualStrategyNumber,
				F_OIDEQ, ObjectIdGetDatum(relid));
	ScanKeyInit(&keys[1], Anum_pg_attribute_attnum, BTEqualStrategyNumber,
				F_INT2EQ, Int16GetDatum(attno));
	scan = systable_beginscan(attributes, AttributeRelidNumIndexId, true, snapshot,
							  lengthof(keys), keys);
	tuple = systable_getnext(scan);
	found = HeapTupleIsValid(tuple) &&
		!((Form_pg_attribute) GETSTRUCT(tuple))->attisdropped;
	systable_endscan(scan);
	table_close(attributes, AccessShareLock);
	return found;
}

/*
 * Returns false if a snapshot sees the table, but not as a part of its
 * current collection, because the table was adopted or attached after the
 * snapshot.  A table that was detached after the snapshot had a copy of the
 * label of its root before, and the snapshot sees that copy (label.c).
 */
bool
ttl_docs_is_seen_by(Oid relid, Snapshot snapshot)
{
	CacheEntry *entry = lookup(relid);
	CollectionSettings settings;
	Oid			parent;

	if (entry == NULL || !entry->is_collection || entry->has_own_label)
		return ttl_docs_settings_at(relid, snapshot, true, &settings);
	parent = entry->parent;
	if (is_mvcc(snapshot) && TransactionIdIsNormal(entry->link_writer) &&
		XidInMVCCSnapshot(entry->link_writer, snapshot) &&
		!TransactionIdIsCurrentTransactionId(entry->link_writer) &&
		snapshot_sees_table(snapshot, relid))
		return false;
	return ttl_docs_is_seen_by(parent, snapshot);
}

static bool
is_mvcc(Snapshot snapshot)
{
	return snapshot != NULL && snapshot->snapshot_type == SNAPSHOT_MVCC;
}

static bool
snapshot_sees_table(Snapshot snapshot, Oid relid)
{
	return columns_at(snapshot, relid) >= 0;
}

/*
 * How many columns a table has for a snapshot, dropped ones included; -1 if the
 * snapshot does not see the table.
 */
static int
columns_at(Snapshot snapshot, Oid relid)
{
	Relation	classes = table_open(RelationRelationId, AccessShareLock);
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;
	int			columns;

	ScanKeyInit(&key, Anum_pg_class_oid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(relid));
	scan = systable_beginscan(classes, ClassOidIndexId, true, snapshot, 1, &key);
	tuple = systable_getnext(scan);
	columns = HeapTupleIsValid(tuple) ? ((Form_pg_class) GETSTRUCT(tuple))->relnatts : -1;
	systable_endscan(scan);
	table_close(classes, AccessShareLock);
	return columns;
}

static inline Oid *
plain_table_cell(Oid relid)
{
	return &plain_tables[relid % PLAIN_TABLES];
}

/*
 * Returns the entry of a table, and loads it if necessary; NULL if the table
 * does not exist.  The entry is valid until the next catalog access.
 */
static CacheEntry *
lookup(Oid relid)
{
	static CacheEntry uncached;
	CacheEntry	loaded;
	CacheEntry *entry;
	uint64		before;

	/* system catalogs are never collections, and may not be readable now */
	if (relid < FirstNormalObjectId)
		return NULL;

	if (last_found != NULL && last_found->relid == relid)
		return last_found;
	entry = hash_search(cache, &relid, HASH_FIND, NULL);
	if (entry != NULL)
	{
		last_found = entry;
		if (!entry->is_collection)
			*plain_table_cell(relid) = relid;
		return entry;
	}

	/*
	 * Reading the catalogs can process an invalidation, which may or may not
	 * be for this table.  Then we return the answer, but do not cache it.
	 * The answer is reliable if the caller has locked the table.  We do not
	 * read again: with debug_discard_caches, every attempt would end this
	 * way.
	 */
	before = invalidations;
	if (!load(relid, &loaded))
		return NULL;
	if (before != invalidations)
	{
		uncached = loaded;
		return &uncached;
	}
	entry = hash_search(cache, &relid, HASH_ENTER, NULL);
	*entry = loaded;
	return entry;
}

/* Fills an entry from the catalogs; false if the table does not exist. */
static bool
load(Oid relid, CacheEntry *entry)
{
	HeapTuple	tuple;
	Form_pg_class form;
	bool		may_be;

	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relid));
	if (!HeapTupleIsValid(tuple))
		return false;
	form = (Form_pg_class) GETSTRUCT(tuple);
	memset(entry, 0, sizeof(*entry));
	entry->relid = relid;
	entry->is_partition = form->relispartition;
	entry->has_partitions = form->relkind == RELKIND_PARTITIONED_TABLE;
	may_be = form->relkind == RELKIND_RELATION || entry->has_partitions ||
		(form->relkind == RELKIND_FOREIGN_TABLE && entry->is_partition);
	ReleaseSysCache(tuple);
	if (!may_be)
		return true;

	/* a partition only has a copy; the label of its root is in effect */
	if (entry->is_partition)
	{
		Collection	parent;

		find_parent(entry);
		if (OidIsValid(entry->parent) &&
			ttl_docs_lookup_collection(entry->parent, &parent))
		{
			entry->is_collection = true;
			entry->collection = parent;
		}
	}
	if (!entry->is_collection &&
		ttl_docs_read_label_at(relid, NULL, &entry->collection.settings,
							   &entry->label_writer))
	{
		entry->is_collection = entry->has_own_label = true;
		entry->collection.root = relid;
		/* whoever writes the settings again must not write these flags */
		entry->is_filling = entry->collection.settings.filling;
		entry->collection.settings.filling = false;
		entry->collection.settings.changing = false;
	}

	if (entry->is_collection)
		ttl_docs_find_columns(relid, &entry->collection);
	return true;
}

/* Sets the column numbers that a collection has in one of its tables. */
void
ttl_docs_find_columns(Oid relid, Collection *collection)
{
	collection->doc = get_attnum(relid, NameStr(collection->settings.doc_column));
	collection->ts = get_attnum(relid, TTL_DOCS_TS_COLUMN);
	collection->ttl = get_attnum(relid, TTL_DOCS_TTL_COLUMN);
	collection->slot = get_attnum(relid, TTL_DOCS_SLOT_COLUMN);
}

/*
 * Sets the parent of a partition, also while the partition is being detached;
 * InvalidOid if there is none.  We do not use core's get_partition_parent().
 * In the middle of a DETACH, the link to the parent is gone already, and
 * core's function raises an error.
 */
static void
find_parent(CacheEntry *entry)
{
	Relation	inherits = table_open(InheritsRelationId, AccessShareLock);
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;

	ScanKeyInit(&key, Anum_pg_inherits_inhrelid, BTEqualStrategyNumber,
				F_OIDEQ, ObjectIdGetDatum(entry->relid));
	scan = systable_beginscan(inherits, InheritsRelidSeqnoIndexId, true, NULL,
							  1, &key);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple))
	{
		entry->parent = ((Form_pg_inherits) GETSTRUCT(tuple))->inhparent;
		/* DETACH CONCURRENTLY updated the row, so ignore its xmin */
		entry->link_writer = ((Form_pg_inherits) GETSTRUCT(tuple))->inhdetachpending ?
			FrozenTransactionId : HeapTupleHeaderGetXmin(tuple->t_data);
	}
	systable_endscan(scan);
	table_close(inherits, AccessShareLock);
}

/*
 * Invalidates the table and its partitions in the relation cache of every
 * backend.  Removes their entries from the cache of this backend at once,
 * before the invalidation arrives.
 */
void
ttl_docs_invalidate_tree(Oid relid)
{
	List	   *tables = ttl_docs_partition_tree(relid, NoLock);
	ListCell   *lc;

	foreach(lc, tables)
	{
		if (SearchSysCacheExists1(RELOID, ObjectIdGetDatum(lfirst_oid(lc))))
			CacheInvalidateRelcacheByRelid(lfirst_oid(lc));
		ttl_docs_forget_table_settings(lfirst_oid(lc));
	}
	list_free(tables);
}

/*
 * Called when the relation cache entry of a table was invalidated; InvalidOid
 * stands for all tables.
 */
void
ttl_docs_forget_table_settings(Oid relid)
{
	CacheEntry *entry;

	invalidations++;
	last_found = NULL;
	if (!OidIsValid(relid))
	{
		forget_entries(false);
		return;
	}
	if (*plain_table_cell(relid) == relid)
		*plain_table_cell(relid) = InvalidOid;
	entry = hash_search(cache, &relid, HASH_FIND, NULL);
	if (entry == NULL)
		return;
	if (entry->has_partitions)
		forget_entries(true);
	hash_search(cache, &relid, HASH_REMOVE, NULL);
}

/* Removes all entries, or only those of partitions. */
static void
forget_entries(bool only_partitions)
{
	HASH_SEQ_STATUS status;
	CacheEntry *entry;

	memset(plain_tables, 0, sizeof(plain_tables));
	hash_seq_init(&status, cache);
	while ((entry = hash_seq_search(&status)) != NULL)
		if (!only_partitions || entry->is_partition)
			hash_search(cache, &entry->relid, HASH_REMOVE, NULL);
}
