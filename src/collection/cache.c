/*-------------------------------------------------------------------------
 *
 * cache.c
 *		Which tables are collections, for this backend.
 *
 * Every plan and every written row asks whether a table is a collection, so
 * the answer, also "no", is kept in a hash by table.  A partition answers with
 * the settings of its root and with its own column numbers.
 *
 * Relation cache invalidation is what keeps it right: writing a label, DDL on
 * the table, attaching and detaching send one for the table, and core replays
 * it on abort, so a rolled-back change leaves no trace.  The answer for a
 * partition depends on its ancestors too; an ancestor that is invalidated
 * takes the answers of all partitions with it.  (Ancestors are in the hash
 * whenever one of their partitions is, because the lookup goes through them.)
 *
 * A partition that is being detached concurrently is still a partition here
 * until the command is through: in between it must not show what has expired.
 *
 * Settings as of a snapshot.  The settings that judge a query belong to its
 * snapshot, as its instant does: a change of settings that the snapshot does not
 * see must not hide a document that was live then, and all scans and all workers of
 * a query must agree.  The cache has the latest settings, and knows which
 * transaction wrote them.  If the snapshot sees that transaction, the cached
 * settings are the right ones; if not, the label is read with the snapshot.  A
 * commit is visible a moment before its invalidations are sent; until then the
 * cache has the older settings.  So a query keeps the settings that it got first
 * (access/visibility.c), and the processes of a parallel query do not use the cache.
 *
 * Other tables.  Every query looks up each table that it reads, and most tables
 * are not collections.  A small array of tables that are known not to be
 * collections answers most of these lookups in a few instructions.
 *
 * Callers get a copy: entries come and go while they work.
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
	bool		has_own_label;	/* and that label is in effect */
	bool		is_partition;
	bool		has_partitions;
	Collection	collection;
	TransactionId label_writer; /* who wrote the label, if it is its own */
	Oid			parent;			/* of a partition, and who attached it */
	TransactionId link_writer;
} CacheEntry;

/* Tables known not to be collections, each at the place that its OID gives */
#define PLAIN_TABLES	64

static Oid	plain_tables[PLAIN_TABLES];
static HTAB *cache = NULL;
static CacheEntry *last_found = NULL;	/* planning asks for a table several times */
static uint64 invalidations = 0;

static inline Oid *plain_table(Oid relid);
static CacheEntry *lookup(Oid relid);
static bool load(Oid relid, CacheEntry *entry);
static void find_parent(CacheEntry *entry);
static bool snapshot_sees_column(Snapshot snapshot, Oid relid, AttrNumber attno);
static bool is_mvcc(Snapshot snapshot);
static bool snapshot_sees_table(Snapshot snapshot, Oid relid);
static void forget_where(bool only_partitions);

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
 * Is that table a collection, or a partition of one?  The caller should hold a
 * lock on it, else the answer may be old by the time it is used.
 */
bool
ttl_docs_lookup_collection(Oid relid, Collection *collection)
{
	CacheEntry *entry;

	if (*plain_table(relid) == relid)
		return false;
	entry = lookup(relid);
	if (entry == NULL || !entry->is_collection)
		return false;
	*collection = entry->collection;
	return true;
}

/*
 * Is the table's own label in effect?  That of a partition of a collection is
 * not: it is a copy (label.c).
 */
bool
ttl_docs_has_own_label(Oid relid)
{
	CacheEntry *entry = lookup(relid);

	return entry != NULL && entry->has_own_label;
}

/*
 * Gets the settings of a collection as a snapshot sees them; root is the table that
 * has the label.  If the snapshot does not see the table at all, these are the
 * latest settings.  Returns false if the snapshot sees the table, but not as a
 * collection: it became one later.  Several processes with the same snapshot get
 * the same answer if they do not use the cache.
 */
bool
ttl_docs_settings_at(Oid root, Snapshot snapshot, bool use_cache,
					 CollectionSettings *settings)
{
	CacheEntry *entry = lookup(root);
	TransactionId writer;
	AttrNumber	ts;
	bool		is_own;

	if (entry == NULL || !entry->has_own_label)
		return false;
	*settings = entry->collection.settings;
	if (!is_mvcc(snapshot))
		return true;
	/* of what we have written ourselves, an older query may not see all */
	is_own = TransactionIdIsCurrentTransactionId(entry->label_writer);
	if (use_cache && !is_own && !XidInMVCCSnapshot(entry->label_writer, snapshot))
		return true;
	ts = entry->collection.ts;
	if (ttl_docs_read_label_at(root, snapshot, settings, &writer))
		return is_own || snapshot_sees_column(snapshot, root, ts);
	/* of a table that it does not see, it sees no rows either */
	return is_own || !snapshot_sees_table(snapshot, root);
}

/*
 * Does a snapshot see that column?  A collection that was released and adopted again
 * has new system columns, and may have been rewritten for them.
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
 * False if a snapshot sees a table, but not as the part of a collection that it is
 * now: the table was adopted or attached since.  A table that was detached since had
 * a copy of the label of its root, which the snapshot sees (label.c).
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
	Relation	classes = table_open(RelationRelationId, AccessShareLock);
	ScanKeyData key;
	SysScanDesc scan;
	bool		found;

	ScanKeyInit(&key, Anum_pg_class_oid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(relid));
	scan = systable_beginscan(classes, ClassOidIndexId, true, snapshot, 1, &key);
	found = HeapTupleIsValid(systable_getnext(scan));
	systable_endscan(scan);
	table_close(classes, AccessShareLock);
	return found;
}

static inline Oid *
plain_table(Oid relid)
{
	return &plain_tables[relid % PLAIN_TABLES];
}

/*
 * The entry for a table, loaded if need be; NULL if the table does not exist.
 * It is good until the next catalog access.
 */
static CacheEntry *
lookup(Oid relid)
{
	static CacheEntry uncached;
	CacheEntry	loaded;
	CacheEntry *entry;
	uint64		before;

	/* system catalogs are never collections, and may be hard to read now */
	if (relid < FirstNormalObjectId)
		return NULL;

	if (last_found != NULL && last_found->relid == relid)
		return last_found;
	entry = hash_search(cache, &relid, HASH_FIND, NULL);
	if (entry != NULL)
	{
		last_found = entry;
		if (!entry->is_collection)
			*plain_table(relid) = relid;
		return entry;
	}

	/*
	 * Reading catalogs can bring an invalidation, which may or may not be for
	 * what has just been read.  The answer is as good as the caller's lock
	 * makes it, but it must not stay.  (No second try: with
	 * debug_discard_caches every try would end so.)
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

	/* the label of a partition is a copy, and its root's counts */
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
 * Sets the table that a partition belongs to, also while it is being detached;
 * InvalidOid if there is none.  Core's function raises an error for a
 * partition whose link is gone already, which is what a detach looks like from
 * inside.
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
		/* a DETACH CONCURRENTLY that is under way has written the row anew */
		entry->link_writer = ((Form_pg_inherits) GETSTRUCT(tuple))->inhdetachpending ?
			FrozenTransactionId : HeapTupleHeaderGetXmin(tuple->t_data);
	}
	systable_endscan(scan);
	table_close(inherits, AccessShareLock);
}

/*
 * Invalidates the table and its partitions in every relation cache, and forgets
 * them here at once, before the invalidation arrives.
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

/* A relation was invalidated; InvalidOid stands for all. */
void
ttl_docs_forget_table_settings(Oid relid)
{
	CacheEntry *entry;

	invalidations++;
	last_found = NULL;
	if (!OidIsValid(relid))
	{
		forget_where(false);
		return;
	}
	if (*plain_table(relid) == relid)
		*plain_table(relid) = InvalidOid;
	entry = hash_search(cache, &relid, HASH_FIND, NULL);
	if (entry == NULL)
		return;
	if (entry->has_partitions)
		forget_where(true);
	hash_search(cache, &relid, HASH_REMOVE, NULL);
}

static void
forget_where(bool only_partitions)
{
	HASH_SEQ_STATUS status;
	CacheEntry *entry;

	memset(plain_tables, 0, sizeof(plain_tables));
	hash_seq_init(&status, cache);
	while ((entry = hash_seq_search(&status)) != NULL)
		if (!only_partitions || entry->is_partition)
			hash_search(cache, &entry->relid, HASH_REMOVE, NULL);
}
