/*-------------------------------------------------------------------------
 *
 * grace.c
 *		Holds the purge after a change of settings that makes live documents
 *		expire.
 *
 * A DefaultTTL that is too short hides documents at once, and the purge would
 * delete them a second later.  adopt(), set_default_ttl() and ATTACH
 * PARTITION can make such a change.  They report how many documents they make
 * expire, and hold the purge of the whole collection for
 * ttl_docs.purge_grace.  The documents stay expired, but until the hold ends
 * they can be copied out.
 *
 * The label has the end of the hold, by the clock of the server.  The
 * clock_offset of a session neither shortens nor prolongs the hold.  A later
 * change of settings never makes the hold end earlier.  resume_purge() ends
 * the hold.
 *
 * Counting must not make the change slow, so it reads a limited number of
 * entries of the purge index: those between the bounds of the old and of the
 * new settings.  Slots are rounded up, so this range is a little wider than
 * needed, and we judge each row under both settings.  The BRIN index of a
 * lazy collection has no entries for single documents.  There the count is
 * unknown, and the purge is held if the table is not empty.
 *
 * The caller holds a lock on the tables that keeps writers out until the
 * change is committed.  An error undoes the whole change, because it aborts
 * the transaction.
 *
 * On Citus, each node counts in its shards, and the caller adds up the counts.
 * Other sessions do that: they do not see rows that the caller's transaction
 * has written, and must not wait for its locks.  So they lock nothing but the
 * shards, and if the caller has locked a shard, its count is unknown.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/relscan.h"
#include "access/table.h"
#include "access/tableam.h"
#include "executor/tuptable.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "collection/collection_internal.h"

PG_FUNCTION_INFO_V1(ttl_docs_node_newly_expired);

/*
 * Maximum number of entries of the purge index to read for one change, on each
 * node of Citus
 */
#define MAX_ENTRIES_READ	10000

static bool has_newly_expired(const CollectionSettings *before,
							  const CollectionSettings *after,
							  ExpiryBounds *bounds_before, ExpiryBounds *bounds_after);
static NewlyExpired count_on_all_nodes(Oid shell, const CollectionSettings *before,
									   const CollectionSettings *after);
static void count_in_shards(Oid shell, const CollectionSettings *before,
							const CollectionSettings *after, NewlyExpired *found);
static bool lock_tables(List *tables);
static void count_in_table(Oid relid, const ExpiryBounds *before,
						   const ExpiryBounds *after, IndexingMode indexing,
						   NewlyExpired *found);
static void count_in_index(Relation rel, Relation index,
						   const Collection *collection,
						   const ExpiryBounds *before, const ExpiryBounds *after,
						   NewlyExpired *found);
static void count_in_slots(Relation rel, Relation index,
						   const Collection *collection, ScanKey keys,
						   const ExpiryBounds *before, const ExpiryBounds *after,
						   NewlyExpired *found);
static void report_newly_expired(Oid root, const NewlyExpired *found,
								 TimestampTz grace_until, TimestampTz now);

/*
 * Called when the settings of a collection change, or when a table becomes
 * part of the collection.  "before" has the settings that applied to the table
 * until now; NULL if the table was not a collection.  If the change makes live
 * documents of the table expire, reports how many, and adds a hold of the
 * purge to the new settings.
 */
void
ttl_docs_hold_newly_expired(Oid relid, Oid root, const CollectionSettings *before,
							CollectionSettings *settings)
{
	NewlyExpired found = ttl_docs_count_newly_expired(relid, before, settings);

	ttl_docs_begin_grace(root, settings, &found);
}

/*
 * Counts the documents of a table and its partitions that are live under the
 * settings "before" and expired under the settings "after".  "before" is NULL
 * if the table was not a collection.  The caller has locked the tables.
 */
NewlyExpired
ttl_docs_count_newly_expired(Oid relid, const CollectionSettings *before,
							 const CollectionSettings *after)
{
	ExpiryBounds bounds_before;
	ExpiryBounds bounds_after;
	NewlyExpired found = {.is_complete = true};
	List	   *tables;
	ListCell   *lc;

	if (!has_newly_expired(before, after, &bounds_before, &bounds_after))
		return found;
	if (before != NULL && !ttl_docs_in_citus_session() && ttl_docs_is_shell(relid))
		return count_on_all_nodes(relid, before, after);
	tables = ttl_docs_collection_tables(relid);
	foreach(lc, tables)
		count_in_table(lfirst_oid(lc), &bounds_before, &bounds_after,
					   after->indexing, &found);
	list_free(tables);
	return found;
}

/* Can a document be live before the change, and expired after it? */
static bool
has_newly_expired(const CollectionSettings *before, const CollectionSettings *after,
				  ExpiryBounds *bounds_before, ExpiryBounds *bounds_after)
{
	TimestampTz clock = ttl_docs_clock();

	bounds_before->written = bounds_before->due = DT_NOBEGIN;
	if (before != NULL)
		*bounds_before = ttl_docs_bounds(before, clock);
	*bounds_after = ttl_docs_bounds(after, clock);
	return bounds_after->written > bounds_before->written ||
		bounds_after->due > bounds_before->due;
}

/* ---- Citus ---- */

/* Adds up the counts of all nodes. */
static NewlyExpired
count_on_all_nodes(Oid shell, const CollectionSettings *before,
				   const CollectionSettings *after)
{
	NewlyExpired found = {.is_complete = true};
	char	   *sql = psprintf("SELECT " TTL_DOCS_INTERNAL ".newly_expired(%s, %s, %s)",
							   ttl_docs_quoted_literal(shell),
							   quote_literal_cstr(ttl_docs_print_label(before)),
							   quote_literal_cstr(ttl_docs_print_label(after)));
	List	   *answers = ttl_docs_ask_all_nodes_or_fail(sql);
	ListCell   *lc;

	foreach(lc, answers)
	{
		JsonbContainer *json = ttl_docs_parse_answer(lfirst(lc));

		found.count += ttl_docs_answer_integer(json, "count");
		found.is_complete &= ttl_docs_answer_flag(json, "complete");
		found.is_unknown |= ttl_docs_answer_flag(json, "unknown");
	}
	return found;
}

/*
 * newly_expired(collection text, label_before text, label_after text)
 *
 * Counts the documents on this node that a change makes expire.  The label of
 * the collection has not changed yet in the eyes of this session, so both
 * labels are arguments.
 */
Datum
ttl_docs_node_newly_expired(PG_FUNCTION_ARGS)
{
	CollectionSettings before;
	CollectionSettings after;
	NewlyExpired found = {.is_complete = true};
	Oid			shell;

	ttl_docs_require_preload();
	if (PG_ARGISNULL(0) || PG_ARGISNULL(1) || PG_ARGISNULL(2))
		PG_RETURN_NULL();
	shell = ttl_docs_find_owned(text_to_cstring(PG_GETARG_TEXT_PP(0)), true);
	ttl_docs_parse_label(text_to_cstring(PG_GETARG_TEXT_PP(1)), &before);
	ttl_docs_parse_label(text_to_cstring(PG_GETARG_TEXT_PP(2)), &after);
	/* the transaction of the caller may have created it */
	if (OidIsValid(shell))
		count_in_shards(shell, &before, &after, &found);
	else
		found.is_unknown = true;
	PG_RETURN_TEXT_P(cstring_to_text(psprintf("{\"count\": " INT64_FORMAT
											  ", \"complete\": %s, \"unknown\": %s}",
											  found.count,
											  found.is_complete ? "true" : "false",
											  found.is_unknown ? "true" : "false")));
}

/* Counts in the shards that are in use on this node, without waiting for locks. */
static void
count_in_shards(Oid shell, const CollectionSettings *before,
				const CollectionSettings *after, NewlyExpired *found)
{
	List	   *shards = ttl_docs_local_shards(shell);
	ExpiryBounds bounds_before;
	ExpiryBounds bounds_after;
	ListCell   *lc;

	if (!has_newly_expired(before, after, &bounds_before, &bounds_after))
		return;
	foreach(lc, shards)
	{
		int64		shard;
		List	   *tables;
		ListCell   *table;

		if (!ttl_docs_is_shard_in_use(lfirst_oid(lc), &shard))
			continue;
		tables = ttl_docs_collection_tables(lfirst_oid(lc));
		if (!lock_tables(tables))
		{
			found->is_unknown = true;
			continue;
		}
		foreach(table, tables)
			count_in_table(lfirst_oid(table), &bounds_before, &bounds_after,
						   after->indexing, found);
	}
}

/* Locks tables for reading; false if one of them is locked or gone. */
static bool
lock_tables(List *tables)
{
	ListCell   *lc;

	foreach(lc, tables)
		if (!ConditionalLockRelationOid(lfirst_oid(lc), AccessShareLock) ||
			!SearchSysCacheExists1(RELOID, ObjectIdGetDatum(lfirst_oid(lc))))
			return false;
	return true;
}

/* ---- One table ---- */

static void
count_in_table(Oid relid, const ExpiryBounds *before, const ExpiryBounds *after,
			   IndexingMode indexing, NewlyExpired *found)
{
	Relation	rel = table_open(relid, NoLock);
	Oid			index_oid = indexing == INDEXING_CONSISTENT ?
		ttl_docs_purge_index(rel, indexing) : InvalidOid;
	Collection	collection;

	if (OidIsValid(index_oid) && ttl_docs_lookup_collection(relid, &collection))
	{
		Relation	index = index_open(index_oid, AccessShareLock);

		count_in_index(rel, index, &collection, before, after, found);
		index_close(index, AccessShareLock);
	}
	else if (RelationGetNumberOfBlocks(rel) > 0)
		found->is_unknown = true;
	table_close(rel, NoLock);
}

static void
count_in_index(Relation rel, Relation index, const Collection *collection,
			   const ExpiryBounds *before, const ExpiryBounds *after,
			   NewlyExpired *found)
{
	for (SlotRange range = 0; range < RANGE_COUNT; range++)
	{
		ScanKeyData keys[2];
		int64		from;
		int64		to;

		if (!ttl_docs_slots_between(before, after, range, &from, &to))
			continue;
		ttl_docs_slot_scan_keys(keys, range, from, to);
		count_in_slots(rel, index, collection, keys, before, after, found);
	}
}

/* Counts newly expired documents in the slots that the keys select. */
static void
count_in_slots(Relation rel, Relation index, const Collection *collection,
			   ScanKey keys, const ExpiryBounds *before,
			   const ExpiryBounds *after, NewlyExpired *found)
{
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	TupleTableSlot *row = table_slot_create(rel, NULL);
	IndexScanDesc scan = compat_index_beginscan(rel, index, snapshot, 2);

	index_rescan(scan, keys, 2, NULL, 0);
	while (index_getnext_tid(scan, ForwardScanDirection) != NULL)
	{
		CHECK_FOR_INTERRUPTS();
		if (found->entries_read == MAX_ENTRIES_READ)
		{
			found->is_complete = false;
			break;
		}
		found->entries_read++;
		if (index_fetch_heap(scan, row) &&
			!ttl_docs_row_is_expired(before, collection, row) &&
			ttl_docs_row_is_expired(after, collection, row))
			found->count++;
	}
	index_endscan(scan);
	ExecDropSingleTupleTableSlot(row);
	UnregisterSnapshot(snapshot);
}

/*
 * Reports how many documents a change of settings makes expire, and adds a
 * hold of the purge to the settings, which the caller is about to write.
 * Does nothing if the change makes no documents expire.
 */
void
ttl_docs_begin_grace(Oid root, CollectionSettings *settings,
					 const NewlyExpired *found)
{
	TimestampTz now = ttl_docs_server_clock();

	if (found->count == 0 && found->is_complete && !found->is_unknown)
		return;
	if (ttl_docs_purge_grace > 0)
		settings->grace_until =
			Max(settings->grace_until,
				now + ttl_docs_purge_grace * USECS_PER_SEC);
	report_newly_expired(root, found, settings->grace_until, now);
}

static void
report_newly_expired(Oid root, const NewlyExpired *found,
					 TimestampTz grace_until, TimestampTz now)
{
	const char *name = get_rel_name(root);
	bool		is_held = grace_until > now;
	bool		is_unknown = found->is_unknown || found->count == 0;

	ereport(NOTICE,
			(is_unknown ?
			 errmsg("this change makes an unknown number of documents of \"%s\" expire",
					name) :
			 found->is_complete ?
			 errmsg_plural("this change makes %lld document of \"%s\" expire",
						   "this change makes %lld documents of \"%s\" expire",
						   (unsigned long) found->count, (long long) found->count, name) :
			 errmsg("this change makes at least %lld documents of \"%s\" expire",
					(long long) found->count, name),
			 is_held ?
			 errdetail("Queries no longer see expired documents. The purge of \"%s\" is held for %s so that the documents can be copied out. An INSERT with the key of an expired document still deletes that document.",
					   name, ttl_docs_period(grace_until - now)) :
			 errdetail("Queries no longer see expired documents."),
			 is_unknown ?
			 errhint("ttl_docs.preview() counts them, if you call it before the change.") :
			 is_held ?
			 errhint("To copy them out, see \"A DefaultTTL that was too short\" in docs/operations.md. To purge them now: SELECT ttl_docs.resume_purge(%s).",
					 ttl_docs_quoted_literal(root)) : 0));
}
