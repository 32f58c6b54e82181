/*-------------------------------------------------------------------------
 *
 * notify.c
 *		Sessions tell the purge when there will be something to do.
 *
 * The launcher sleeps until the next document is due.  A session that writes
 * one that is due earlier has to wake it.  That is done when the transaction
 * commits: before, there is nothing to purge.  Until then the session keeps
 * the earliest due time for each table that it writes to.  With the commit it
 * costs an atomic read for each of them, and mostly that is all, because what
 * is written last is due last.
 *
 * A session that changes which collections there are, or their settings, has
 * the database visited at once, and listed anew.  One that purges by itself,
 * within a transaction, has what it has purged counted when that commits.
 *
 * At the end of a transaction, and after the purge was told, its claims are dropped
 * (earliest.c).
 *
 * There is nothing to undo on error: a due time that is too early costs a look.
 * A prepared transaction tells when it is prepared.  The purge finds its rows
 * not committed, and comes back for them by itself.  If the transaction has changed
 * collections, whoever finishes it tells once more (prepared.c).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "utils/memutils.h"

#include "purge/purge_internal.h"

typedef struct PendingDue
{
	PurgeTable *table;
	TimestampTz due;
	bool		begins_anew;	/* the position of the purge is of no use */
} PendingDue;

/* What this transaction has written */
static PendingDue *pending = NULL;	/* grows, and is kept */
static int	npending = 0;
static int	max_pending = 0;

/* What it has purged, table by table; in TopTransactionContext */
typedef struct PendingPurge
{
	PurgeTable *table;
	int			rows;
	SubTransactionId subid;
} PendingPurge;
static List *pending_purges = NIL;

static bool must_list = false;	/* it changed collections: */
static List *changed = NIL;		/* in TopTransactionContext */
static bool must_read_databases = false;	/* it changed databases */

static PendingDue *pending_due(PurgeTable *table);
static void tell(void);
static PurgeDatabase *my_database(void);
static void tell_changes(PurgeDatabase *database, List *roots);
static void count_pending_purges(void);
static void note_due(ToldDocuments *told, Oid relid, const Collection *collection,
					 int64 slot);

/* A query begins to write documents to a table. */
void
ttl_docs_begin_telling(ToldDocuments *told)
{
	told->entry = NULL;
	told->announced = DT_NOEND;
}

/*
 * This transaction is about to write a document with that stamp and slot to a
 * table.  Must be called before the row goes into the table.
 */
void
ttl_docs_tell_document(ToldDocuments *told, Oid relid, const Collection *collection,
					   const Stamp *stamp, int64 slot)
{
	TimestampTz expiry = ttl_docs_expired_from(&collection->settings, stamp);

	if (expiry < told->announced)
	{
		ttl_docs_announce_expiry(relid, collection->root, expiry);
		told->announced = expiry;
	}
	if (slot != NO_SLOT)
		note_due(told, relid, collection, slot);
}

/* Notes when the slot is due, for the end of the transaction. */
static void
note_due(ToldDocuments *told, Oid relid, const Collection *collection, int64 slot)
{
	PendingDue *pending_table;
	TimestampTz due;
	bool		is_below_floor = false;

	if (collection->settings.on)
		due = ttl_docs_slot_due(slot, collection->settings.default_ttl);
	else if (ttl_docs_floor_may_cover(&collection->settings, slot))
	{
		due = ttl_docs_clock();
		is_below_floor = true;
	}
	else
		return;
	if (due == DT_NOEND)
		return;
	if (told->entry == NULL)
	{
		told->entry = ttl_docs_purge_table(relid, collection->root);
		/* without an entry, rounds find the document (visit_tables.c) */
		if (told->entry == NULL)
			return;
	}
	pending_table = pending_due(told->entry);
	pending_table->due = Min(pending_table->due, due);
	pending_table->begins_anew |= is_below_floor;
}

/* What this transaction will tell of a table. */
static PendingDue *
pending_due(PurgeTable *table)
{
	for (int i = npending - 1; i >= 0; i--)
		if (pending[i].table == table)
			return &pending[i];
	if (npending == max_pending)
	{
		int			max = Max(max_pending * 2, 16);

		pending = pending == NULL ?
			MemoryContextAlloc(TopMemoryContext, max * sizeof(PendingDue)) :
			repalloc(pending, max * sizeof(PendingDue));
		max_pending = max;
	}
	pending[npending].table = table;
	pending[npending].due = DT_NOEND;
	pending[npending].begins_anew = false;
	return &pending[npending++];
}

/*
 * This transaction has changed a collection, or made it, or something that may
 * concern the purge of any of them (InvalidOid).
 */
void
ttl_docs_note_change(Oid root)
{
	MemoryContext caller = MemoryContextSwitchTo(TopTransactionContext);

	must_list = true;
	changed = list_append_unique_oid(changed, root);
	MemoryContextSwitchTo(caller);
	if (OidIsValid(root))
		ttl_docs_settings_change(root);
}

/* This transaction has changed databases, or settings of them. */
void
ttl_docs_note_database_change(void)
{
	must_read_databases = true;
}

/* Has the launcher look which databases there are, and where the purge is on. */
void
ttl_docs_wake_for_databases(void)
{
	pg_atomic_write_u32(&ttl_docs_purge_shared->must_read_databases, 1);
	ttl_docs_wake_launcher(DT_NOBEGIN);
}

/* A batch has been purged. */
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

/* A batch will have been purged when this transaction commits. */
void
ttl_docs_count_purged_at_commit(PurgeTable *table, int rows)
{
	MemoryContext caller = MemoryContextSwitchTo(TopTransactionContext);
	PendingPurge *purge = palloc(sizeof(PendingPurge));

	purge->table = table;
	purge->rows = rows;
	purge->subid = GetCurrentSubTransactionId();
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

/* What was purged in a subtransaction belongs to its parent, or never was. */
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

/* The transaction comes to its end. */
void
ttl_docs_tell_purge(XactEvent event)
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
				tell();
			count_pending_purges();
			/* prepared, the databases are still as they were */
			if (must_read_databases && event == XACT_EVENT_COMMIT)
				ttl_docs_wake_for_databases();
			/* fall through */
		case XACT_EVENT_ABORT:
			/* after tell(): a scan relies on the one or the other */
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

/* The transaction is through: no error may be raised from here. */
static void
tell(void)
{
	PurgeDatabase *database = my_database();
	TimestampTz earliest = DT_NOEND;

	for (int i = 0; i < npending; i++)
	{
		if (pending[i].begins_anew)
			ttl_docs_begin_anew(pending[i].table);
		if (ttl_docs_lower_time(&pending[i].table->next_visit, pending[i].due))
			earliest = Min(earliest, pending[i].due);
	}
	if (must_list)
		tell_changes(database, changed);
	else if (earliest != DT_NOEND && database != NULL &&
			 ttl_docs_lower_time(&database->next_visit, earliest))
		ttl_docs_wake_launcher(earliest);
}

/* This database in shared memory, which does not go while we are in it. */
static PurgeDatabase *
my_database(void)
{
	static PurgeDatabase *database = NULL;

	if (database == NULL)
		database = ttl_docs_purge_database(MyDatabaseId, true);
	return database;
}

/* Has the database visited at once, listed anew, and some collections looked at. */
static void
tell_changes(PurgeDatabase *database, List *roots)
{
	if (database != NULL)
	{
		database->lacks_extension = false;
		pg_atomic_write_u32(&database->must_list, 1);
	}
	ttl_docs_look_at_collections(roots);
	if (database != NULL && ttl_docs_lower_time(&database->next_visit, DT_NOBEGIN))
		ttl_docs_wake_launcher(DT_NOBEGIN);
}

/* Something in this database has changed, and nobody knows what. */
void
ttl_docs_tell_of_all(void)
{
	List	   *all = list_make1_oid(InvalidOid);

	tell_changes(my_database(), all);
	list_free(all);
}
