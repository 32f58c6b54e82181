/*-------------------------------------------------------------------------
 *
 * shmem.c
 *		What launcher, workers and sessions share: when something is due, how
 *		far the purge has come, and what it has done.
 *
 * Two hash tables in the main shared memory segment, for databases and for
 * tables, and the quarantine (quarantine.c).  One LWLock covers all of
 * them: writers of entries take it for some hundred nanoseconds at a time, a
 * few times for each batch.  Nothing is allocated and no error is raised while
 * it is held, except for lists, before they are returned.
 *
 * The due times are atomic, because sessions lower them when they commit, and
 * a commit must not wait.  (The earliest expiry of a table has rules of its own,
 * see earliest.c.)  Entries do not move, so sessions keep pointers to
 * them.  Whoever is about to look at a table or a
 * database first sets its due to never, then looks, then lowers it to what it has
 * found: what others write meanwhile is either seen or lowers it.
 *
 * The hash tables are of a fixed size.  Tables that find no room in it are purged
 * in rounds (visit_tables.c), and have no progress and no statistics.  For
 * databases the size is far beyond what a server has; the launcher logs when it
 * is too small.
 *
 * After a crash shared memory is made anew.  Nothing in it is more than a
 * short cut or a statistic: what is expired is known from the documents.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/shmem.h"
#include "utils/hsearch.h"

#include "purge/purge_internal.h"

#define MAX_DATABASES	10000
#define TRANCHE_NAME	"ttl_docs"
/* tables whose entries a session remembers */
#define KNOWN_TABLES	64

PurgeShared *ttl_docs_purge_shared = NULL;

static HTAB *tables = NULL;
static HTAB *databases = NULL;

static void start_table(PurgeTable *table, Oid root);
static int64 jump_accepted_for(Oid root);
static void remove_table(PurgeTable *table);

Size
ttl_docs_purge_shmem_size(void)
{
	Size		size = MAXALIGN(sizeof(PurgeShared));

	size = add_size(size, hash_estimate_size(ttl_docs_max_tables, sizeof(PurgeTable)));
	return add_size(size, hash_estimate_size(MAX_DATABASES, sizeof(PurgeDatabase)));
}

/* Asks for what else it needs of shared memory: its lock. */
void
ttl_docs_purge_shmem_request(void)
{
	RequestNamedLWLockTranche(TRANCHE_NAME, 1);
}

/* Called while shared memory is set up, or attached to. */
void
ttl_docs_purge_shmem_init(void)
{
	bool		found;

	ttl_docs_purge_shared = ShmemInitStruct("ttl_docs purge", sizeof(PurgeShared), &found);
	if (!found)
	{
		memset(ttl_docs_purge_shared, 0, sizeof(PurgeShared));
		ttl_docs_purge_shared->lock = &GetNamedLWLockTranche(TRANCHE_NAME)->lock;
		pg_atomic_init_u64(&ttl_docs_purge_shared->wakes_at, (uint64) DT_NOBEGIN);
		pg_atomic_init_u32(&ttl_docs_purge_shared->must_read_databases, 1);
		pg_atomic_init_u64(&ttl_docs_purge_shared->settings_epoch, 1);
		pg_atomic_init_u64(&ttl_docs_purge_shared->tables_gone, 0);
		ttl_docs_purge_shared->clock_offset = ttl_docs_clock_offset;
		pg_atomic_init_u64(&ttl_docs_purge_shared->clock_base,
						   (uint64) (ttl_docs_clock() - ttl_docs_elapsed()));
	}
	tables = ttl_docs_shared_hash("ttl_docs purge tables", sizeof(PurgeTableKey),
								  sizeof(PurgeTable), ttl_docs_max_tables);
	databases = ttl_docs_shared_hash("ttl_docs purge databases", sizeof(Oid),
									 sizeof(PurgeDatabase), MAX_DATABASES);
}

/*
 * A hash table for max entries and no more: beyond that, it would take the memory
 * that core keeps for locks.  When it is full, HASH_ENTER_NULL returns NULL.
 */
HTAB *
ttl_docs_shared_hash(const char *name, Size keysize, Size entrysize, long max)
{
	HASHCTL		ctl;

	ctl.keysize = keysize;
	ctl.entrysize = entrysize;
	return ShmemInitHash(name, max, max, &ctl,
						 HASH_ELEM | HASH_BLOBS | HASH_FIXED_SIZE);
}

/*
 * The entry of a database; NULL if there is none, or none left.  A new one is
 * due at once, because nobody knows yet what is in it.
 */
PurgeDatabase *
ttl_docs_purge_database(Oid database, bool create)
{
	PurgeDatabase *entry;
	bool		found;

	LWLockAcquire(ttl_docs_purge_shared->lock, create ? LW_EXCLUSIVE : LW_SHARED);
	entry = hash_search(databases, &database,
						create ? HASH_ENTER_NULL : HASH_FIND, &found);
	if (create && entry != NULL && !found)
	{
		memset((char *) entry + sizeof(Oid), 0, sizeof(PurgeDatabase) - sizeof(Oid));
		pg_atomic_init_u64(&entry->next_visit, (uint64) DT_NOBEGIN);
		pg_atomic_init_u32(&entry->must_list, 1);
		pg_atomic_init_u64(&entry->off_epoch, 0);
		entry->can_connect = true;
		entry->round.due = PG_INT64_MAX;
	}
	LWLockRelease(ttl_docs_purge_shared->lock);
	return entry;
}

/* All databases that have an entry, as a list of them. */
List *
ttl_docs_purge_databases(void)
{
	HASH_SEQ_STATUS status;
	PurgeDatabase *entry;
	List	   *found = NIL;

	LWLockAcquire(ttl_docs_purge_shared->lock, LW_SHARED);
	hash_seq_init(&status, databases);
	while ((entry = hash_seq_search(&status)) != NULL)
		found = lappend(found, entry);
	LWLockRelease(ttl_docs_purge_shared->lock);
	return found;
}

/* Forgets a database that is gone, and its tables. */
void
ttl_docs_forget_database(Oid database)
{
	HASH_SEQ_STATUS status;
	PurgeTable *table;

	LWLockAcquire(ttl_docs_purge_shared->lock, LW_EXCLUSIVE);
	hash_search(databases, &database, HASH_REMOVE, NULL);
	hash_seq_init(&status, tables);
	while ((table = hash_seq_search(&status)) != NULL)
	{
		if (table->key.database != database)
			continue;
		remove_table(table);
	}
	LWLockRelease(ttl_docs_purge_shared->lock);
}

/*
 * The entry of a table of this database, made if need be; NULL if there is no
 * room for one.  A new one is due at once.
 */
PurgeTable *
ttl_docs_purge_table(Oid relid, Oid root)
{
	/*
	 * Writes ask for each row.  While no entry is removed, the result stays valid,
	 * also if the result was that there is no room.
	 */
	static struct
	{
		Oid			relid;
		PurgeTable *entry;		/* NULL = there was no room */
		uint64		gone;
	}			known[KNOWN_TABLES];
	int			place = relid % KNOWN_TABLES;
	PurgeTableKey key = {MyDatabaseId, relid};
	uint64		gone = ttl_docs_tables_gone();
	PurgeTable *entry = known[place].entry;
	bool		found;

	if (known[place].relid == relid && known[place].gone == gone &&
		(entry == NULL || (entry->key.relid == relid && entry->root == root)))
		return entry;

	LWLockAcquire(ttl_docs_purge_shared->lock, LW_SHARED);
	entry = ttl_docs_find_table(relid);
	LWLockRelease(ttl_docs_purge_shared->lock);
	known[place].relid = relid;
	known[place].gone = gone;
	if (entry != NULL && entry->root == root)
	{
		known[place].entry = entry;
		return entry;
	}

	LWLockAcquire(ttl_docs_purge_shared->lock, LW_EXCLUSIVE);
	entry = hash_search(tables, &key, HASH_ENTER_NULL, &found);
	if (entry != NULL && !found)
		start_table(entry, root);
	else if (entry != NULL && entry->root != root)
	{
		entry->root = root;
		ttl_docs_forget_earliest(entry);
	}
	LWLockRelease(ttl_docs_purge_shared->lock);
	known[place].entry = entry;
	return entry;
}

/* How many entries have gone.  If none did, pointers to entries are good. */
uint64
ttl_docs_tables_gone(void)
{
	return pg_atomic_read_u64(&ttl_docs_purge_shared->tables_gone);
}

/* The entry of a table of this database, or NULL.  The caller holds the lock. */
PurgeTable *
ttl_docs_find_table(Oid relid)
{
	PurgeTableKey key = {MyDatabaseId, relid};

	return hash_search(tables, &key, HASH_FIND, NULL);
}

static void
start_table(PurgeTable *table, Oid root)
{
	memset((char *) table + sizeof(PurgeTableKey), 0,
		   sizeof(PurgeTable) - sizeof(PurgeTableKey));
	pg_atomic_init_u64(&table->next_visit, (uint64) DT_NOBEGIN);
	table->root = root;
	table->accepted_jump = jump_accepted_for(root);
	pg_atomic_init_u64(&table->earliest, (uint64) DT_NOBEGIN);
	pg_atomic_init_u64(&table->session_scanned, 0);
	for (int i = 0; i < SCANNER_COUNT; i++)
		pg_atomic_init_u64(&table->scans[i].announced, (uint64) DT_NOEND);
	table->visited = DT_NOBEGIN;
	table->older_since = DT_NOEND;
	table->oldest = DT_NOEND;
	table->counted = DT_NOBEGIN;
	table->last_purge = DT_NOBEGIN;
	table->error_at = DT_NOBEGIN;
	table->logged_at = DT_NOBEGIN;
}

/*
 * The jump of the clock that resume_purge() has accepted for a collection, which
 * a new partition takes over.  The caller holds the lock.
 */
static int64
jump_accepted_for(Oid root)
{
	HASH_SEQ_STATUS status;
	PurgeTable *table;
	int64		accepted = 0;

	/* then it does not matter, and the search is long */
	if (!ttl_docs_clock_has_jumped())
		return 0;
	hash_seq_init(&status, tables);
	while ((table = hash_seq_search(&status)) != NULL)
		if (table->key.database == MyDatabaseId && table->root == root)
			accepted = Max(accepted, table->accepted_jump);
	return accepted;
}

/* The next pass over a table begins anew, also if one is under way. */
void
ttl_docs_begin_anew(PurgeTable *table)
{
	LWLockAcquire(ttl_docs_purge_shared->lock, LW_EXCLUSIVE);
	table->epoch++;
	table->progress.is_set = false;
	LWLockRelease(ttl_docs_purge_shared->lock);
	/* a pass that is under way may have left something out */
	ttl_docs_forget_earliest(table);
	ttl_docs_lower_time(&table->next_visit, ttl_docs_clock());
}

/* Forgets a table that is gone, or no longer part of a collection. */
void
ttl_docs_forget_table(PurgeTable *table)
{
	LWLockAcquire(ttl_docs_purge_shared->lock, LW_EXCLUSIVE);
	remove_table(table);
	LWLockRelease(ttl_docs_purge_shared->lock);
}

/* The caller holds the lock. */
static void
remove_table(PurgeTable *table)
{
	pg_atomic_fetch_add_u64(&ttl_docs_purge_shared->tables_gone, 1);
	hash_search(tables, &table->key, HASH_REMOVE, NULL);
}

/* All tables of a database that have an entry, as a list of them. */
List *
ttl_docs_purge_tables(Oid database)
{
	HASH_SEQ_STATUS status;
	PurgeTable *table;
	List	   *found = NIL;

	LWLockAcquire(ttl_docs_purge_shared->lock, LW_SHARED);
	hash_seq_init(&status, tables);
	while ((table = hash_seq_search(&status)) != NULL)
		if (table->key.database == database)
			found = lappend(found, table);
	LWLockRelease(ttl_docs_purge_shared->lock);
	return found;
}

/*
 * Has all tables of some collections of this database looked at now; InvalidOid
 * in the list stands for all of them.
 */
void
ttl_docs_look_at_collections(List *roots)
{
	TimestampTz clock = ttl_docs_clock();
	bool		all = list_member_oid(roots, InvalidOid);
	HASH_SEQ_STATUS status;
	PurgeTable *table;

	LWLockAcquire(ttl_docs_purge_shared->lock, LW_SHARED);
	hash_seq_init(&status, tables);
	while ((table = hash_seq_search(&status)) != NULL)
		if (table->key.database == MyDatabaseId &&
			(all || list_member_oid(roots, table->root) ||
			 list_member_oid(roots, table->key.relid)))
			ttl_docs_lower_time(&table->next_visit, clock);
	LWLockRelease(ttl_docs_purge_shared->lock);
}

/* The settings of a collection change, so it is unknown when its documents expire. */
void
ttl_docs_settings_change(Oid root)
{
	HASH_SEQ_STATUS status;
	PurgeTable *table;

	LWLockAcquire(ttl_docs_purge_shared->lock, LW_SHARED);
	hash_seq_init(&status, tables);
	while ((table = hash_seq_search(&status)) != NULL)
		if (table->key.database == MyDatabaseId &&
			(table->root == root || table->key.relid == root))
			ttl_docs_forget_earliest(table);
	LWLockRelease(ttl_docs_purge_shared->lock);
}

/* Has all tables of all databases looked at: no due time can be relied on. */
void
ttl_docs_look_at_everything(void)
{
	TimestampTz clock = ttl_docs_clock();
	HASH_SEQ_STATUS status;
	PurgeTable *table;
	PurgeDatabase *database;

	LWLockAcquire(ttl_docs_purge_shared->lock, LW_SHARED);
	hash_seq_init(&status, tables);
	while ((table = hash_seq_search(&status)) != NULL)
		ttl_docs_lower_time(&table->next_visit, clock);
	hash_seq_init(&status, databases);
	while ((database = hash_seq_search(&status)) != NULL)
		ttl_docs_lower_time(&database->next_visit, clock);
	LWLockRelease(ttl_docs_purge_shared->lock);
}

/* Wakes the launcher, unless it will be awake by then; always for DT_NOBEGIN. */
void
ttl_docs_wake_launcher(TimestampTz when)
{
	Latch	   *latch = ttl_docs_purge_shared->launcher_latch;

	/* a latch of a process that is gone is still a latch */
	if (latch != NULL && (when == DT_NOBEGIN ||
						  when < ttl_docs_read_time(&ttl_docs_purge_shared->wakes_at)))
		SetLatch(latch);
}
