/*-------------------------------------------------------------------------
 *
 * expired_keys.c
 *		The keys that expired documents hold, for a batch of rows.
 *
 * To find out whether an expired document holds the key of a row, keys.c
 * descends the index of each key.  That takes as long as inserting the row into
 * this index.  But usually few documents are expired, because the purge has
 * removed the others.  So COPY FROM reads them once for each batch of rows,
 * through the purge index, and keeps hashes of their keys in memory.  Then
 * keys.c searches an index only for rows whose hash is among them.
 *
 * No key of an expired document may be missing in these sets:
 * - We read all slots that can contain a document which is expired now or half a
 *   second later (HORIZON), and we do not judge the documents.  After this
 *   time, the sets are no longer used.
 * - We read with a dirty snapshot, as keys.c does.  So we also find the documents
 *   of transactions that are under way.
 * - A transaction that has stamped a document may not have inserted it into the
 *   purge index yet, for example because it waits at another key.  Its claim
 *   (purge/earliest.c) says when such a document expires.  If it expires within
 *   this time, we do not use sets.  A document that another transaction stamps
 *   later expires later, because no ttl is below a second.
 * - Equal keys have the same hash.  We use the hash function that belongs to the
 *   operator of the constraint.  A constraint whose operator has none, such
 *   as &&, gets no set.
 *
 * Replication and restores keep old stamps.  If they insert an expired document
 * after we have read the sets, a row of the batch with its key fails.  It would
 * fail without sets, too, if the document came after the search for the key.
 *
 * There are no sets if they would cost more than they save, because many
 * documents are expired or the purge index is BRIN; or if rows may have wrong
 * slots (collection/expired_rows.c).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/relscan.h"
#include "access/tableam.h"
#include "common/hashfn.h"
#include "miscadmin.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/typcache.h"

#include "write/write_internal.h"

#define HORIZON		(USECS_PER_SEC / 2)

struct KeySet
{
	int			ncolumns;
	FmgrInfo   *hash_functions; /* one for each column */
	Oid		   *collations;
	uint32	   *hashes;			/* sorted when it is complete */
	int			nhashes;
	int			max_hashes;
};

static uint32 hash_key(const KeySet *set, const Datum *values, const bool *isnull);
static bool visit_range(IndexScanDesc scan, const ExpiryBounds *bounds, SlotRange range,
						TupleTableSlot *row, int *limit,
						void (*visit) (void *), void *arg);
static int	compare_hashes(const void *a, const void *b);

/*
 * Makes an empty set of keys of a constraint, in the current memory context.
 * "operators" define a conflict, one for each key column.  Returns NULL if one of them
 * has no hash function.
 */
KeySet *
ttl_docs_make_key_set(Relation indexrel, const Oid *operators)
{
	KeySet	   *set = palloc0(sizeof(KeySet));

	set->ncolumns = IndexRelationGetNumberOfKeyAttributes(indexrel);
	set->hash_functions = palloc(set->ncolumns * sizeof(FmgrInfo));
	set->collations = palloc(set->ncolumns * sizeof(Oid));
	for (int i = 0; i < set->ncolumns; i++)
	{
		TypeCacheEntry *type =
			lookup_type_cache(TupleDescAttr(RelationGetDescr(indexrel), i)->atttypid,
							  TYPECACHE_EQ_OPR | TYPECACHE_HASH_PROC);

		if (!OidIsValid(type->hash_proc) || type->eq_opr != operators[i])
			return NULL;
		fmgr_info(type->hash_proc, &set->hash_functions[i]);
		set->collations[i] = indexrel->rd_indcollation[i];
	}
	set->max_hashes = 64;
	set->hashes = palloc(set->max_hashes * sizeof(uint32));
	return set;
}

void
ttl_docs_empty_key_set(KeySet *set)
{
	set->nhashes = 0;
}

void
ttl_docs_add_key(KeySet *set, const Datum *values, const bool *isnull)
{
	if (set->nhashes == set->max_hashes)
	{
		set->max_hashes *= 2;
		set->hashes = repalloc(set->hashes, set->max_hashes * sizeof(uint32));
	}
	set->hashes[set->nhashes++] = hash_key(set, values, isnull);
}

/* Call this after the last ttl_docs_add_key(). */
void
ttl_docs_complete_key_set(KeySet *set)
{
	qsort(set->hashes, set->nhashes, sizeof(uint32), compare_hashes);
}

/* False if the set certainly does not have the key. */
bool
ttl_docs_may_have_key(const KeySet *set, const Datum *values, const bool *isnull)
{
	uint32		hash;

	if (set->nhashes == 0)
		return false;
	hash = hash_key(set, values, isnull);
	return bsearch(&hash, set->hashes, set->nhashes, sizeof(uint32),
				   compare_hashes) != NULL;
}

static uint32
hash_key(const KeySet *set, const Datum *values, const bool *isnull)
{
	uint32		hash = 0;

	for (int i = 0; i < set->ncolumns; i++)
		hash = hash_combine(hash, isnull[i] ? 0 :
							DatumGetUInt32(FunctionCall1Coll(&set->hash_functions[i],
															 set->collations[i],
															 values[i])));
	return hash;
}

static int
compare_hashes(const void *a, const void *b)
{
	uint32		left = *(const uint32 *) a;
	uint32		right = *(const uint32 *) b;

	return left < right ? -1 : left > right;
}

/*
 * Calls visit() for all rows of the table that are expired now, or that may
 * expire before *until.  visit() finds the row in the slot.  Returns false if
 * there are more than "limit" of them, or if the purge index does not lead to all
 * of them.
 */
bool
ttl_docs_visit_expired_rows(Relation rel, const Collection *collection, TimestampTz clock,
							int limit, TupleTableSlot *row, TimestampTz *until,
							void (*visit) (void *), void *arg)
{
	const CollectionSettings *settings = &collection->settings;
	ExpiryBounds bounds = ttl_docs_bounds(settings, clock + HORIZON);
	SnapshotData dirty;
	IndexScanDesc scan;
	Relation	index;
	Oid			indexid;
	bool		complete = true;

	*until = clock + HORIZON;
	if (settings->indexing != INDEXING_CONSISTENT ||
		ttl_docs_was_restored(collection->root, settings))
		return false;
	/* before we read the index: a claim ends when its documents are in the index */
	if (ttl_docs_earliest_claim(RelationGetRelid(rel)) <= *until)
		return false;
	indexid = ttl_docs_purge_index(rel, settings->indexing);
	if (!OidIsValid(indexid))
		return false;

	InitDirtySnapshot(dirty);
	index = index_open(indexid, AccessShareLock);
	scan = compat_index_beginscan(rel, index, &dirty, 2);
	for (SlotRange range = 0; range < RANGE_COUNT && complete; range++)
		complete = visit_range(scan, &bounds, range, row, &limit, visit, arg);
	index_endscan(scan);
	ExecClearTuple(row);
	index_close(index, AccessShareLock);
	return complete;
}

/*
 * Does the same for one range of the purge index.  The limit counts index
 * entries, because the entries of rows that were purged cost time, too.
 */
static bool
visit_range(IndexScanDesc scan, const ExpiryBounds *bounds, SlotRange range,
			TupleTableSlot *row, int *limit, void (*visit) (void *), void *arg)
{
	ExpiryBounds none = {DT_NOBEGIN, DT_NOBEGIN};
	ScanKeyData keys[2];
	int64		from;
	int64		to;

	if (!ttl_docs_slots_between(&none, bounds, range, &from, &to))
		return true;
	ttl_docs_slot_scan_keys(keys, range, from, to);
	index_rescan(scan, keys, lengthof(keys), NULL, 0);
	while (index_getnext_tid(scan, ForwardScanDirection) != NULL)
	{
		CHECK_FOR_INTERRUPTS();
		if (--*limit < 0)
			return false;
		/* of several versions one is enough: a HOT update changes no key */
		if (index_fetch_heap(scan, row))
			visit(arg);
	}
	return true;
}
