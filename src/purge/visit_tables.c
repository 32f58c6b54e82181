/*-------------------------------------------------------------------------
 *
 * visit_tables.c
 *		Finds the tables that a visit purges.
 *
 * Most tables have an entry in shared memory.  It says when to visit the table
 * next.  A worker lists the tables of a database from the catalog only after
 * collections were created or changed, so that new tables get an entry.
 *
 * A server can have more tables than entries.  A table without an entry is
 * unplaced.  Nothing shows when its documents expire, so workers purge all unplaced
 * tables in rounds.
 *
 * 1. A round visits the tables in the order of their OIDs.  Shared memory has the
 *    last table that was visited.  The next visit of the database continues after
 *    that table, so each table gets its turn, however many tables there are and
 *    however long one takes.
 * 2. A worker stores the OID of a table before it begins with the table.  If the
 *    worker exits there, the next worker continues with the next table.
 * 3. Writers start no round.  Otherwise each commit would make a worker list all
 *    tables.  A round begins a minute after the end of the last one, or after
 *    collections changed.
 * 4. After a round there is a rest of nine times its duration, at most five
 *    minutes.  So rounds of up to half a minute that find nothing take at most a
 *    tenth of a worker's time.  There is no rest if a round had no time for all
 *    expired documents.
 *
 * If several workers are in a database, only the one that listed the tables last
 * continues the round, because it knows all tables.
 *
 * The round is read and written under the lock of shmem.c.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/memutils.h"

#include "purge/purge_internal.h"

/* delay from the end of a round to the beginning of the next one */
#define ROUND_PERIOD	(60 * USECS_PER_SEC)
/* duration of the rest after a round, as a multiple of the round's duration */
#define REST_FACTOR		9

static bool must_list_tables(PurgeDatabase *database, UnplacedRound *round,
							 bool *changed);
static void list_tables(VisitTables *tables);
static void place_tables(VisitTables *tables, Oid root);
static void forget_tables_but(List *relids);
static int	position_after(const List *relids, Oid relid);
static void plan_round(VisitTables *tables, bool changed);
static void end_round(UnplacedRound *round);
static List *tables_to_visit(void);
static int	compare_visits(const ListCell *a, const ListCell *b);

/*
 * Finds the tables for a visit to this database, in a transaction.  The lists
 * live as long as the worker.
 */
void
ttl_docs_find_visit_tables(PurgeDatabase *database, VisitTables *tables)
{
	/* for a database without an entry: each visit begins with the first table */
	static UnplacedRound no_database = {.next_round = 0};
	bool		changed;

	memset(tables, 0, sizeof(*tables));
	tables->round = database != NULL ? &database->round : &no_database;
	if (must_list_tables(database, tables->round, &changed))
	{
		list_tables(tables);
		plan_round(tables, changed);
	}
	tables->placed = tables_to_visit();
}

/* Must the worker list the tables: after a change, or for a round? */
static bool
must_list_tables(PurgeDatabase *database, UnplacedRound *round, bool *changed)
{
	bool		is_time_for_round;

	*changed = database == NULL ||
		pg_atomic_exchange_u32(&database->must_list, 0) != 0;
	LWLockAcquire(ttl_docs_purge_shared->lock, LW_SHARED);
	is_time_for_round = round->next_round <= ttl_docs_elapsed();
	LWLockRelease(ttl_docs_purge_shared->lock);
	return *changed || is_time_for_round;
}

/*
 * Lists the tables of all collections from the catalog.  Removes the entries of
 * tables that are gone, and creates entries for new tables.  tables->unplaced gets
 * the tables for which there is no room.
 */
static void
list_tables(VisitTables *tables)
{
	List	   *collections = ttl_docs_all_collections();
	List	   *relids = NIL;
	ListCell   *lc;

	foreach(lc, collections)
		relids = list_concat(relids, ttl_docs_collection_tables(lfirst_oid(lc)));
	list_sort(relids, list_oid_cmp);
	/* first, because this makes room for new entries */
	forget_tables_but(relids);
	foreach(lc, collections)
		place_tables(tables, lfirst_oid(lc));
	list_sort(tables->unplaced, list_oid_cmp);
}

/* Creates entries for the tables of a collection. */
static void
place_tables(VisitTables *tables, Oid root)
{
	MemoryContext caller = MemoryContextSwitchTo(TopMemoryContext);
	List	   *members = ttl_docs_collection_tables(root);
	ListCell   *lc;

	foreach(lc, members)
		if (ttl_docs_purge_table(lfirst_oid(lc), root) == NULL)
			tables->unplaced = lappend_oid(tables->unplaced, lfirst_oid(lc));
	list_free(members);
	MemoryContextSwitchTo(caller);
}

/* Removes the entries of all tables whose OIDs are not in the sorted list. */
static void
forget_tables_but(List *relids)
{
	List	   *known = ttl_docs_purge_tables(MyDatabaseId);
	ListCell   *lc;

	foreach(lc, known)
	{
		Oid			relid = ((PurgeTable *) lfirst(lc))->key.relid;
		/* if the OID is in the list, it comes right before the larger ones */
		int			position = position_after(relids, relid) - 1;
		bool		found = relids != NIL && position >= 0 &&
			list_nth_oid(relids, position) == relid;

		if (!found)
			ttl_docs_forget_table(relid, 0);
	}
}

/* The index of the first larger OID in a sorted list, or the length of the list. */
static int
position_after(const List *relids, Oid relid)
{
	int			low = 0;
	int			high = list_length(relids);

	while (low < high)
	{
		int			middle = (low + high) / 2;

		if (list_nth_oid(relids, middle) <= relid)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* Sets the time of the next round, now that the unplaced tables are known. */
static void
plan_round(VisitTables *tables, bool changed)
{
	UnplacedRound *round = tables->round;
	int64		now = ttl_docs_elapsed();

	LWLockAcquire(ttl_docs_purge_shared->lock, LW_EXCLUSIVE);
	tables->listing = ++round->listing;
	if (tables->unplaced == NIL)
	{
		round->next_round = PG_INT64_MAX;
		round->last = InvalidOid;
		round->has_left = round->has_changed = false;
	}
	else if (OidIsValid(round->last))
		/* the round may have passed the collection that has changed */
		round->has_changed |= changed;
	else if (changed)
		round->next_round = Min(round->next_round, Max(now, round->rests_until));
	LWLockRelease(ttl_docs_purge_shared->lock);
}

/* The next table of the round, or InvalidOid if there is none for this visit. */
Oid
ttl_docs_next_unplaced(VisitTables *tables)
{
	UnplacedRound *round = tables->round;
	int64		now = ttl_docs_elapsed();
	Oid			next = InvalidOid;

	if (tables->unplaced == NIL)
		return InvalidOid;
	LWLockAcquire(ttl_docs_purge_shared->lock, LW_EXCLUSIVE);
	if (round->listing == tables->listing && round->next_round <= now)
	{
		int			position = position_after(tables->unplaced, round->last);

		if (!OidIsValid(round->last))
			round->began = now;
		if (position < list_length(tables->unplaced))
			round->last = next = list_nth_oid(tables->unplaced, position);
		else
			end_round(round);
	}
	LWLockRelease(ttl_docs_purge_shared->lock);
	if (!OidIsValid(next))
	{
		list_free(tables->unplaced);
		tables->unplaced = NIL;
	}
	return next;
}

/* Ends a round, and sets the time of the next one.  The caller holds the lock. */
static void
end_round(UnplacedRound *round)
{
	int64		now = ttl_docs_elapsed();

	round->rests_until = now + Min((now - round->began) * REST_FACTOR,
								   PURGE_RECHECK_TIME);
	if (round->has_left)
		round->next_round = now;
	else if (round->has_changed)
		round->next_round = round->rests_until;
	else
		round->next_round = Max(now + ROUND_PERIOD, round->rests_until);
	round->last = InvalidOid;
	round->has_left = round->has_changed = false;
}

/* Does this visit still have unplaced tables to purge? */
bool
ttl_docs_has_unplaced(const VisitTables *tables)
{
	UnplacedRound *round = tables->round;
	bool		has;

	if (tables->unplaced == NIL)
		return false;
	LWLockAcquire(ttl_docs_purge_shared->lock, LW_SHARED);
	has = round->listing == tables->listing && round->next_round <= ttl_docs_elapsed();
	LWLockRelease(ttl_docs_purge_shared->lock);
	return has;
}

/* The visit had no time for all expired documents of an unplaced table. */
void
ttl_docs_unplaced_has_left(VisitTables *tables)
{
	LWLockAcquire(ttl_docs_purge_shared->lock, LW_EXCLUSIVE);
	if (OidIsValid(tables->round->last))
		tables->round->has_left = true;
	else
		tables->round->next_round = Min(tables->round->next_round, ttl_docs_elapsed());
	LWLockRelease(ttl_docs_purge_shared->lock);
}

/* When the next round begins; DT_NOEND if all tables have an entry. */
TimestampTz
ttl_docs_next_unplaced_round(PurgeDatabase *database)
{
	int64		next_round;

	LWLockAcquire(ttl_docs_purge_shared->lock, LW_SHARED);
	next_round = database->round.next_round;
	LWLockRelease(ttl_docs_purge_shared->lock);
	return next_round == PG_INT64_MAX ? DT_NOEND :
		ttl_docs_clock() + Max(next_round - ttl_docs_elapsed(), 0);
}

/* The tables whose next_visit has come; those visited longest ago first. */
static List *
tables_to_visit(void)
{
	MemoryContext caller = MemoryContextSwitchTo(TopMemoryContext);
	List	   *all = ttl_docs_purge_tables(MyDatabaseId);
	List	   *found = NIL;
	TimestampTz clock = ttl_docs_clock();
	ListCell   *lc;

	foreach(lc, all)
	{
		PurgeTable *table = lfirst(lc);

		if (ttl_docs_read_time(&table->next_visit) <= clock)
			found = lappend(found, table);
	}
	list_free(all);
	list_sort(found, compare_visits);
	MemoryContextSwitchTo(caller);
	return found;
}

static int
compare_visits(const ListCell *a, const ListCell *b)
{
	TimestampTz visited_a = ((PurgeTable *) lfirst(a))->visited;
	TimestampTz visited_b = ((PurgeTable *) lfirst(b))->visited;

	return visited_a < visited_b ? -1 : visited_a > visited_b;
}
