/*-------------------------------------------------------------------------
 *
 * visit_tables.c
 *		Which tables a visit purges.
 *
 * Most tables have an entry in shared memory, which says when the table is due.
 * A worker lists the tables of a database from the catalog only after
 * collections came or changed, so that new tables get an entry.
 *
 * A server can have more tables than entries.  Nobody can say when a table
 * without an entry is due, so workers look at all such tables in rounds.
 *
 * 1. A round takes the tables by their OID.  Shared memory has the table that
 *    the round has come to.  The next visit goes on after that table, so each
 *    table gets its turn, however many there are and however long one takes.
 * 2. A worker moves on to a table before it looks at the table.  If the worker
 *    dies there, the next one goes on behind it.
 * 3. Writers start no round: their commits would have the tables listed all the time.
 *    A round begins a minute after the last one has ended, and after collections
 *    changed.
 * 4. After a round there is a rest of nine times its duration, at most five
 *    minutes.  So rounds that find nothing take a tenth of a worker's time.  There
 *    is no rest if a round had no time for all documents that it found.
 *
 * If several workers are in a database, only the one that listed the tables last
 * goes on with the round: it knows the latest tables.
 *
 * The round is read and written under the lock of shmem.c.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/memutils.h"

#include "purge/purge_internal.h"

/* how long after the end of a round the next one begins */
#define ROUND_PERIOD	(60 * USECS_PER_SEC)
/* the rest after a round is so many times as long as the round */
#define REST_FACTOR		9

static bool must_list_tables(PurgeDatabase *database, UnplacedRound *round,
							 bool *changed);
static void list_tables(VisitTables *tables);
static void place_tables(VisitTables *tables, Oid root);
static void forget_tables_but(List *relids);
static int	position_after(const List *relids, Oid relid);
static void plan_round(VisitTables *tables, bool changed);
static void end_round(UnplacedRound *round);
static List *due_tables(void);
static int	compare_visits(const ListCell *a, const ListCell *b);

/*
 * Finds the tables for a visit to this database, in a transaction.  The lists
 * live as long as the worker.
 */
void
ttl_docs_find_visit_tables(PurgeDatabase *database, VisitTables *tables)
{
	/* for a database without an entry, which begins at the first table */
	static UnplacedRound no_database = {.due = 0};
	bool		changed;

	memset(tables, 0, sizeof(*tables));
	tables->round = database != NULL ? &database->round : &no_database;
	if (must_list_tables(database, tables->round, &changed))
	{
		list_tables(tables);
		plan_round(tables, changed);
	}
	tables->placed = due_tables();
}

/* Is it time to read the catalog: after a change, or for a round? */
static bool
must_list_tables(PurgeDatabase *database, UnplacedRound *round, bool *changed)
{
	bool		is_due;

	*changed = database == NULL ||
		pg_atomic_exchange_u32(&database->must_list, 0) != 0;
	LWLockAcquire(ttl_docs_purge_shared->lock, LW_SHARED);
	is_due = round->due <= ttl_docs_elapsed();
	LWLockRelease(ttl_docs_purge_shared->lock);
	return *changed || is_due;
}

/*
 * Lists the tables of all collections from the catalog.  Those that are new are
 * due; those that find no place in shared memory are returned.
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
	/* first, because that makes room */
	forget_tables_but(relids);
	foreach(lc, collections)
		place_tables(tables, lfirst_oid(lc));
	list_sort(tables->unplaced, list_oid_cmp);
}

/* Gives the tables of a collection their entries. */
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

static void
forget_tables_but(List *relids)
{
	List	   *known = ttl_docs_purge_tables(MyDatabaseId);
	ListCell   *lc;

	foreach(lc, known)
	{
		PurgeTable *table = lfirst(lc);
		/* an OID that is there is the last one before the larger ones */
		int			position = position_after(relids, table->key.relid) - 1;
		bool		found = relids != NIL && position >= 0 &&
			list_nth_oid(relids, position) == table->key.relid;

		if (!found && table->claimed_by == 0)
			ttl_docs_forget_table(table);
	}
}

/* Where the first of the sorted OIDs is that is larger; the length if none is. */
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

/* Decides when the next round begins, now that its tables are known. */
static void
plan_round(VisitTables *tables, bool changed)
{
	UnplacedRound *round = tables->round;
	int64		now = ttl_docs_elapsed();

	LWLockAcquire(ttl_docs_purge_shared->lock, LW_EXCLUSIVE);
	tables->listing = ++round->listing;
	if (tables->unplaced == NIL)
	{
		round->due = PG_INT64_MAX;
		round->last = InvalidOid;
		round->has_left = round->has_changed = false;
	}
	else if (OidIsValid(round->last))
		/* what has changed may be behind us */
		round->has_changed |= changed;
	else if (changed)
		round->due = Min(round->due, Max(now, round->rests_until));
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
	if (round->listing == tables->listing && round->due <= now)
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

/* The caller holds the lock. */
static void
end_round(UnplacedRound *round)
{
	int64		now = ttl_docs_elapsed();

	round->rests_until = now + Min((now - round->began) * REST_FACTOR,
								   PURGE_ROUND_TIME);
	if (round->has_left)
		round->due = now;
	else if (round->has_changed)
		round->due = round->rests_until;
	else
		round->due = Max(now + ROUND_PERIOD, round->rests_until);
	round->last = InvalidOid;
	round->has_left = round->has_changed = false;
}

/* Does this visit still have tables of the round to look at? */
bool
ttl_docs_has_unplaced(const VisitTables *tables)
{
	UnplacedRound *round = tables->round;
	bool		has;

	if (tables->unplaced == NIL)
		return false;
	LWLockAcquire(ttl_docs_purge_shared->lock, LW_SHARED);
	has = round->listing == tables->listing && round->due <= ttl_docs_elapsed();
	LWLockRelease(ttl_docs_purge_shared->lock);
	return has;
}

/* A visit had no time for all documents of a table without an entry. */
void
ttl_docs_unplaced_has_left(VisitTables *tables)
{
	LWLockAcquire(ttl_docs_purge_shared->lock, LW_EXCLUSIVE);
	if (OidIsValid(tables->round->last))
		tables->round->has_left = true;
	else
		tables->round->due = Min(tables->round->due, ttl_docs_elapsed());
	LWLockRelease(ttl_docs_purge_shared->lock);
}

/* When the tables without an entry are to be looked at; DT_NOEND = there are none. */
TimestampTz
ttl_docs_unplaced_due(PurgeDatabase *database)
{
	int64		due;

	LWLockAcquire(ttl_docs_purge_shared->lock, LW_SHARED);
	due = database->round.due;
	LWLockRelease(ttl_docs_purge_shared->lock);
	return due == PG_INT64_MAX ? DT_NOEND :
		ttl_docs_clock() + Max(due - ttl_docs_elapsed(), 0);
}

/* The tables that are due, in the order in which they are to be visited. */
static List *
due_tables(void)
{
	MemoryContext caller = MemoryContextSwitchTo(TopMemoryContext);
	List	   *all = ttl_docs_purge_tables(MyDatabaseId);
	List	   *due = NIL;
	TimestampTz clock = ttl_docs_clock();
	ListCell   *lc;

	foreach(lc, all)
	{
		PurgeTable *table = lfirst(lc);

		if (ttl_docs_read_time(&table->next_visit) <= clock)
			due = lappend(due, table);
	}
	list_free(all);
	list_sort(due, compare_visits);
	MemoryContextSwitchTo(caller);
	return due;
}

static int
compare_visits(const ListCell *a, const ListCell *b)
{
	TimestampTz visited_a = ((PurgeTable *) lfirst(a))->visited;
	TimestampTz visited_b = ((PurgeTable *) lfirst(b))->visited;

	return visited_a < visited_b ? -1 : visited_a > visited_b;
}
