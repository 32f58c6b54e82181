/*-------------------------------------------------------------------------
 *
 * shmem.c
 *		The shared memory of launcher, workers and sessions.
 *
 * The main shared memory segment has two hash tables, one for databases and one for
 * tables, and an array of workers.  The entries say when to visit each database and
 * table, how far the purge has come, and how many documents it has purged.
 *
 * Locks.  One LWLock covers all entries.  Processes hold it for some hundred
 * nanoseconds at a time, a few times for each batch.  While a process holds the
 * lock, it allocates no memory and raises no error.  Functions that return a list
 * are the exception: they allocate the list under the lock.
 *
 * next_visit of a table or database is atomic, because sessions lower it when they
 * commit, and a commit must not wait.  A worker that visits a table or database
 * does three things in this order:
 *
 * 1. It sets next_visit to DT_NOEND.
 * 2. It searches for expired documents.
 * 3. It lowers next_visit to the time that it has found for the next visit.
 *
 * A document that is committed in the meantime is either found in step 2, or its
 * session lowers next_visit after step 1.  The earliest expiry of a table has other
 * rules (earliest.c).
 *
 * Entries do not move, so sessions keep pointers to them.
 *
 * The hash tables have a fixed size.  Tables that have no entry because the hash
 * table is full have no progress and no statistics.  They are purged in rounds
 * (visit_tables.c).  There is room for far more databases than servers usually have.
 * If the room is not enough, the launcher logs it.
 *
 * After a crash, shared memory is initialized again.  The purge misses no document
 * because of that: the documents themselves show which of them have expired.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/shmem.h"
#include "utils/hsearch.h"

#include "purge/shared_internal.h"

#define MAX_DATABASES	10000
#define TRANCHE_NAME	"ttl_docs"
/* number of tables whose entries a session caches */
#define KNOWN_TABLES	64

PurgeShared *ttl_docs_purge_shared = NULL;

static HTAB *tables = NULL;
static HTAB *databases = NULL;

static PurgeTable *find_table(Oid relid);
static void start_table(PurgeTable *table, Oid root);
static int64 jump_accepted_for(Oid root);
static void remove_table(PurgeTable *table);

Size
ttl_docs_purge_shmem_size(void)
{
	Size		size = MAXALIGN(sizeof(PurgeShared));

	size = add_size(size, hash_estimate_size(ttl_docs_max_tables, sizeof(PurgeTable)));
	size = add_size(size, hash_estimate_size(MAX_DATABASES, sizeof(PurgeDatabase)));
	return add_size(size, ttl_docs_quarantine_shmem_size());
}

/* Requests the LWLock. */
void
ttl_docs_purge_shmem_request(void)
{
	RequestNamedLWLockTranche(TRANCHE_NAME, 1);
}

/* Creates the shared memory, or attaches to it. */
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
	ttl_docs_quarantine_shmem_init();
}

/*
 * Creates a hash table for at most max entries.  Without this limit, it could use
 * up the shared memory that core needs for locks.  When the hash table is full,
 * HASH_ENTER_NULL returns NULL.
 */
HTAB *
ttl_docs_shared_hash(const char *name, Size keysize, Size entrysize, long max)
{
	HASHCTL		ctl;

	ctl.keysize = keysize;
	ctl.entrysize = entrysize;
	return compat_ShmemInitHash(name, max, &ctl, HASH_ELEM | HASH_BLOBS);
}

/*
 * The entry of a database.  NULL if there is none, or no room for a new one.  The
 * next visit of a new database is now, because only a worker can see what is in it.
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
		entry->round.next_round = PG_INT64_MAX;
	}
	LWLockRelease(ttl_docs_purge_shared->lock);
	return entry;
}

/* The entries of all databases. */
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

/* Removes the entries of a database that is gone, and of its tables. */
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
 * The entry of a table of this database.  Creates the entry if there is none; NULL
 * if there is no room.  The next visit of a new table is now.
 */
PurgeTable *
ttl_docs_purge_table(Oid relid, Oid root)
{
	/*
	 * Writers call this for every row, so results are cached.  A result stays valid
	 * until an entry is removed, even if the result was that there is no room.
	 */
	static struct
	{
		Oid			relid;
		PurgeTable *entry;		/* NULL = there was no room */
		uint64		gone;		/* ttl_docs_tables_gone() at that time */
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
	entry = find_table(relid);
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

/*
 * The number of removed entries.  Until it changes, pointers to entries are valid.
 */
uint64
ttl_docs_tables_gone(void)
{
	return pg_atomic_read_u64(&ttl_docs_purge_shared->tables_gone);
}

/* The entry of a table of this database, or NULL.  The caller holds the lock. */
static PurgeTable *
find_table(Oid relid)
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
	table->truncation.not_before = table->truncation.busy_since = DT_NOBEGIN;
	table->truncation.last_expiry = DT_NOBEGIN;
	table->error_at = DT_NOBEGIN;
	table->logged_at = DT_NOBEGIN;
}

/*
 * The clock jump that resume_purge() has accepted for the other tables of a
 * collection, for a new partition.  The caller holds the lock.
 */
static int64
jump_accepted_for(Oid root)
{
	HASH_SEQ_STATUS status;
	PurgeTable *table;
	int64		accepted = 0;

	/* without a jump the value does not matter, and reading all entries takes long */
	if (!ttl_docs_clock_has_jumped())
		return 0;
	hash_seq_init(&status, tables);
	while ((table = hash_seq_search(&status)) != NULL)
		if (table->key.database == MyDatabaseId && table->root == root)
			accepted = Max(accepted, table->accepted_jump);
	return accepted;
}

/* Makes the next pass over a table begin from the start.  A pass may be under way. */
void
ttl_docs_restart_purge_of(PurgeTable *table)
{
	LWLockAcquire(ttl_docs_purge_shared->lock, LW_EXCLUSIVE);
	table->epoch++;
	table->progress.is_set = false;
	LWLockRelease(ttl_docs_purge_shared->lock);
	/* the scan of a pass that is under way may have missed documents */
	ttl_docs_forget_earliest(table);
	ttl_docs_lower_time(&table->next_visit, ttl_docs_clock());
}

/*
 * Removes the entry of a table that is gone, or no longer part of a collection; only
 * if the process taken_by has taken it (0 = no process).  Another session may have
 * removed the entry, so find it by its key.
 */
void
ttl_docs_forget_table(Oid relid, int taken_by)
{
	PurgeTable *table;

	LWLockAcquire(ttl_docs_purge_shared->lock, LW_EXCLUSIVE);
	table = find_table(relid);
	if (table != NULL && table->taken_by == taken_by)
		remove_table(table);
	LWLockRelease(ttl_docs_purge_shared->lock);
}

/* The caller holds the lock. */
static void
remove_table(PurgeTable *table)
{
	ttl_docs_unquarantine_all(table);
	pg_atomic_fetch_add_u64(&ttl_docs_purge_shared->tables_gone, 1);
	hash_search(tables, &table->key, HASH_REMOVE, NULL);
}

/* The entries of all tables of a database. */
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
 * Makes workers visit all tables of some collections of this database now.
 * InvalidOid in the list stands for all collections.
 */
void
ttl_docs_visit_collections_now(List *roots)
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

/* The settings of a collection change: the earliest expiry becomes unknown. */
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

/* Makes workers visit all tables now, in all databases: next_visit may be late. */
void
ttl_docs_visit_everything_now(void)
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

/*
 * Wakes the launcher, unless it will be awake at that time.  DT_NOBEGIN = always.
 */
void
ttl_docs_wake_launcher(TimestampTz when)
{
	Latch	   *latch = ttl_docs_purge_shared->launcher_latch;

	/* the latch is in shared memory: it exists even if the launcher has exited */
	if (latch != NULL && (when == DT_NOBEGIN ||
						  when < ttl_docs_read_time(&ttl_docs_purge_shared->wakes_at)))
		SetLatch(latch);
}
