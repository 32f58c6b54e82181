/*-------------------------------------------------------------------------
 *
 * notify.c
 *		Sessions announce documents and changes of collections to the purge.
 *
 * Documents.  The launcher sleeps until the next visit of a database.  A session
 * that writes a document with an earlier due time has to wake the launcher.  It
 * does so when its transaction commits, because nothing can be purged before.
 * Until then the session keeps the earliest due time for each table that it writes
 * to.  At commit, most sessions only do one atomic read for each table: documents
 * that are written later are usually due later, so next_visit does not change.
 *
 * Changes.  If a transaction creates or changes collections, its commit makes
 * workers visit the database at once and list its tables again.
 *
 * Counters.  If a transaction purges documents itself (CALL purge() in a block),
 * its commit counts them.
 *
 * Claims.  At the end of a transaction, after its announcements, its claims are
 * dropped (earliest.c).
 *
 * Errors.  Nothing has to be undone: a visit that is too early costs one search.
 *
 * Prepared transactions.  Their documents are announced by PREPARE TRANSACTION.
 * The purge finds that the rows are not committed, and comes back for them.
 * Changes of collections are announced again by the session that finishes the
 * transaction (prepared.c).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "utils/memutils.h"

#include "purge/shared_internal.h"

/* A table that this transaction has written to */
typedef struct PendingVisit
{
	PurgeTable *table;
	TimestampTz due;			/* earliest due time of the slots written to */
	bool		restarts_purge; /* the purge must begin from the start */
} PendingVisit;

static PendingVisit *pending = NULL;	/* later transactions reuse the array */
static int	npending = 0;
static int	max_pending = 0;

/* A batch that this transaction has purged */
typedef struct PendingPurge
{
	PurgeTable *table;
	int			rows;
	SubTransactionId subid;
} PendingPurge;
static List *pending_purges = NIL;	/* in TopTransactionContext */

/* Has this transaction created or changed collections? */
static bool must_list = false;

/* OIDs of these collections; InvalidOid = any.  In TopTransactionContext. */
static List *changed = NIL;

/* Has this transaction changed databases? */
static bool must_read_databases = false;

static PendingVisit *pending_visit(PurgeTable *table);
static void announce_pending(void);
static PurgeDatabase *my_database(void);
static void announce_changes(PurgeDatabase *database, List *roots);
static void count_pending_purges(void);
static void add_pending_visit(PurgeTable *table, TimestampTz due,
							  bool restarts_purge);
static TimestampTz visit_time(const Collection *collection, int64 slot,
							  bool *is_below_floor);

/*
 * Announces a document with this stamp and slot.  Call this before the row is
 * written to the table.  Later documents of a query mostly expire later, and then
 * there is nothing to do.
 */
void
ttl_docs_announce_document(AnnouncedDocuments *announced, Oid relid,
						   const Collection *collection, const Stamp *stamp, int64 slot)
{
	TimestampTz expiry = ttl_docs_expired_from(&collection->settings, stamp);
	bool		is_below_floor = false;
	TimestampTz due = visit_time(collection, slot, &is_below_floor);

	if (expiry < announced->expiry)
		ttl_docs_announce_expiry(relid, collection->root, expiry);
	if (due < announced->due)
	{
		PurgeTable *table = ttl_docs_purge_table(relid, collection->root);

		/* rounds find documents of tables without an entry (visit_tables.c) */
		if (table != NULL)
			add_pending_visit(table, due, is_below_floor);
	}
	announced->expiry = Min(announced->expiry, expiry);
	announced->due = Min(announced->due, due);
}

/*
 * When the purge has to visit a document of this slot; DT_NOEND = never.  If a floor
 * may keep the document expired although TTL is off, the visit is due now.
 */
static TimestampTz
visit_time(const Collection *collection, int64 slot, bool *is_below_floor)
{
	if (slot == NO_SLOT)
		return DT_NOEND;
	if (collection->settings.on)
		return ttl_docs_slot_due(slot, collection->settings.default_ttl);
	*is_below_floor = ttl_docs_floor_may_cover(&collection->settings, slot);
	return *is_below_floor ? ttl_docs_clock() : DT_NOEND;
}

/* Keeps a visit of a table until the end of the transaction. */
static void
add_pending_visit(PurgeTable *table, TimestampTz due, bool restarts_purge)
{
	PendingVisit *visit = pending_visit(table);

	visit->due = Min(visit->due, due);
	visit->restarts_purge |= restarts_purge;
}

/* The pending visit of a table.  Creates it if there is none. */
static PendingVisit *
pending_visit(PurgeTable *table)
{
	for (int i = npending - 1; i >= 0; i--)
		if (pending[i].table == table)
			return &pending[i];
	if (npending == max_pending)
	{
		int			max = Max(max_pending * 2, 16);

		pending = pending == NULL ?
			MemoryContextAlloc(TopMemoryContext, max * sizeof(PendingVisit)) :
			repalloc(pending, max * sizeof(PendingVisit));
		max_pending = max;
	}
	ttl_docs_end_turns |= TURN_OF_PURGE;
	pending[npending].table = table;
	pending[npending].due = DT_NOEND;
	pending[npending].restarts_purge = false;
	return &pending[npending++];
}

/*
 * Announces, at commit, that this transaction has created or changed a collection.
 * InvalidOid announces a change that may affect the purge of any collection.
 */
void
ttl_docs_announce_change(Oid root)
{
	MemoryContext caller = MemoryContextSwitchTo(TopTransactionContext);

	ttl_docs_end_turns |= TURN_OF_PURGE;
	must_list = true;
	changed = list_append_unique_oid(changed, root);
	MemoryContextSwitchTo(caller);
	if (OidIsValid(root))
		ttl_docs_settings_change(root);
}

/* Announces, at commit, a change of databases or of their settings. */
void
ttl_docs_announce_database_change(void)
{
	ttl_docs_end_turns |= TURN_OF_PURGE;
	must_read_databases = true;
}

/* Makes the launcher read pg_database, and ask again where the purge was off. */
void
ttl_docs_wake_for_databases(void)
{
	pg_atomic_write_u32(&ttl_docs_purge_shared->must_read_databases, 1);
	ttl_docs_wake_launcher(DT_NOBEGIN);
}

/* Counts a batch that has been purged. */
void
ttl_docs_count_purged(PurgeTable *table, int rows)
{
	TimestampTz clock = ttl_docs_clock();

	if (rows == 0)
		return;
	LWLockAcquire(ttl_docs_purge_shared->lock, LW_EXCLUSIVE);
	table->purged += rows;
	table->batches++;
	table->last_purge = clock;
	LWLockRelease(ttl_docs_purge_shared->lock);
}

/* Counts a truncation, which has been committed. */
void
ttl_docs_count_truncation(PurgeTable *table, int64 documents)
{
	TimestampTz clock = ttl_docs_clock();

	LWLockAcquire(ttl_docs_purge_shared->lock, LW_EXCLUSIVE);
	table->truncations++;
	table->truncated += documents;
	table->backlog = 0;
	table->last_purge = clock;
	LWLockRelease(ttl_docs_purge_shared->lock);
}

/* Counts a batch when this transaction commits. */
void
ttl_docs_count_purged_at_commit(PurgeTable *table, int rows)
{
	MemoryContext caller = MemoryContextSwitchTo(TopTransactionContext);
	PendingPurge *purge = palloc(sizeof(PendingPurge));

	purge->table = table;
	purge->rows = rows;
	purge->subid = GetCurrentSubTransactionId();
	ttl_docs_end_turns |= TURN_OF_PURGE;
	pending_purges = lappend(pending_purges, purge);
	MemoryContextSwitchTo(caller);
}

static void
count_pending_purges(void)
{
	ListCell   *lc;

	foreach(lc, pending_purges)
	{
		PendingPurge *purge = lfirst(lc);

		ttl_docs_count_purged(purge->table, purge->rows);
	}
}

/* A subtransaction ends: its batches belong to its parent, or are rolled back. */
void
ttl_docs_follow_subtransaction(SubXactEvent event, SubTransactionId mySubid,
							   SubTransactionId parentSubid)
{
	ListCell   *lc;

	foreach(lc, pending_purges)
	{
		PendingPurge *purge = lfirst(lc);

		if (purge->subid != mySubid)
			continue;
		if (event == SUBXACT_EVENT_COMMIT_SUB)
			purge->subid = parentSubid;
		else if (event == SUBXACT_EVENT_ABORT_SUB)
			purge->rows = 0;
	}
}

/* Makes the announcements of a transaction at its end. */
void
ttl_docs_announce_at_end(XactEvent event)
{
	switch (event)
	{
		case XACT_EVENT_PRE_PREPARE:
			if (must_list || must_read_databases)
				ttl_docs_mark_prepared();
			break;
		case XACT_EVENT_COMMIT:
		case XACT_EVENT_PREPARE:
			if (npending > 0 || must_list)
				announce_pending();
			count_pending_purges();
			/* at PREPARE, others still see the old databases */
			if (must_read_databases && event == XACT_EVENT_COMMIT)
				ttl_docs_wake_for_databases();
			pg_fallthrough;
		case XACT_EVENT_ABORT:

			/*
			 * After announce_pending(): a scan for the earliest expiry needs the
			 * claim until the announcement is visible.
			 */
			ttl_docs_drop_claims();
			npending = 0;
			must_list = must_read_databases = false;
			changed = NIL;
			pending_purges = NIL;
			break;
		default:
			break;
	}
}

/* Announces documents and changes.  The transaction has ended: raise no error. */
static void
announce_pending(void)
{
	PurgeDatabase *database = my_database();
	TimestampTz earliest = DT_NOEND;

	for (int i = 0; i < npending; i++)
	{
		if (pending[i].restarts_purge)
			ttl_docs_restart_purge_of(pending[i].table);
		if (ttl_docs_lower_time(&pending[i].table->next_visit, pending[i].due))
			earliest = Min(earliest, pending[i].due);
	}
	if (must_list)
		announce_changes(database, changed);
	else if (earliest != DT_NOEND && database != NULL &&
			 ttl_docs_lower_time(&database->next_visit, earliest))
		ttl_docs_wake_launcher(earliest);
}

/* The entry of this database, which stays as long as this session is connected. */
static PurgeDatabase *
my_database(void)
{
	static PurgeDatabase *database = NULL;

	if (database == NULL)
		database = ttl_docs_purge_database(MyDatabaseId, true);
	return database;
}

/*
 * Makes workers visit the database at once, list its tables again, and visit all
 * tables of some collections.
 */
static void
announce_changes(PurgeDatabase *database, List *roots)
{
	if (database != NULL)
	{
		database->lacks_extension = false;
		pg_atomic_write_u32(&database->must_list, 1);
	}
	ttl_docs_visit_collections_now(roots);
	if (database != NULL && ttl_docs_lower_time(&database->next_visit, DT_NOBEGIN))
		ttl_docs_wake_launcher(DT_NOBEGIN);
}

/* Announces that any collection of this database may have changed. */
void
ttl_docs_announce_all(void)
{
	List	   *all = list_make1_oid(InvalidOid);

	announce_changes(my_database(), all);
	list_free(all);
}
