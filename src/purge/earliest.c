/*-------------------------------------------------------------------------
 *
 * earliest.c
 *		When the first document of a table expires.
 *
 * Each table has an earliest expiry in shared memory: a time before which no
 * document of the table expires, whether it is committed or not.  Before that time
 * no document has expired, and writers need not probe their keys (write/keys.c).
 * If the earliest expiry is unknown, or has passed, they probe.  The earliest expiry
 * is computed from stamps, not from the clock.  So it is correct for every clock: for
 * sessions that use another clock_offset, and for stamps that replication brings.
 *
 * Writers lower the earliest expiry.  Before a transaction writes a row, it
 * announces the document in two steps:
 *
 * 1. It sets a claim in shared memory: the table, and the earliest expiry that the
 *    transaction has announced for it.
 * 2. It lowers the earliest expiry of the table.
 *
 * The claim stays until the transaction ends, because the row may arrive in the
 * index long after it was stamped (a wait for another transaction at the same key,
 * a large document, COPY that waits for its client).  Only the first document that a
 * query writes to a table, and each one that expires earlier than those before it,
 * costs more than a comparison.
 *
 * Scans of the purge index raise the earliest expiry.  The purge scans the table in
 * a pass (pass.c).  A session scans the first entries of a btree
 * (write/maybe_expired.c).  A scan must not miss a document that is announced but
 * not in the index yet, or that arrives in a part of the index that the scan has
 * already read:
 *
 * 1. The scan resets its "announced".  From now on, writers lower that value, too.
 * 2. It reads the claims of all sessions.  The claims cover the documents that were
 *    announced before step 1, by transactions that are still under way.
 * 3. It reads the index.  The index has the rows of all other transactions: those
 *    that are committed, prepared, or rolled back.
 * 4. The earliest of the three times becomes the earliest expiry of the table, unless
 *    the table already has a later one.
 *
 * A prepared transaction needs no claim: its rows are in the index.
 *
 * Settings decide when a document expires.  So a change of settings makes the
 * earliest expiry unknown, and all scans that are under way void.  The change holds
 * a lock that conflicts with ROW EXCLUSIVE, and every scan begins under ROW
 * EXCLUSIVE.  So no scan begins under settings that are about to change.
 * (pause_purge() and resume_purge() hold a weaker lock; they do not change when
 * documents expire.)
 *
 * Locks.  Reading the earliest expiry takes no lock.  Lowering and raising it take
 * a spinlock of the table, for a few instructions.  The entry of a table may be
 * reused for another table at any time.  So values are lowered atomically, which
 * does no harm to another table, and each scan has a number that no other scan has.
 * Only the session itself writes its claims.  Other sessions see a claim of its
 * current transaction or of an earlier one.  A claim of an earlier one does no
 * harm: that transaction has ended, so its rows are in the index.
 *
 * Errors.  Nothing is undone, because a value that is too low is still correct.
 * The claims of a transaction end with it, after FATAL, too.  After a crash, shared
 * memory is initialized again, and all values are unknown.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/proc.h"
#include "storage/shmem.h"
#include "storage/spin.h"

#include "purge/shared_internal.h"

/* minimum interval between two scans of a table by sessions */
#define SCAN_INTERVAL	(USECS_PER_SEC / 2)
/* number of tables for which a session has a claim each; all others share one */
#define MAX_CLAIMS		7
#define LOCK_COUNT		64

typedef union PaddedLock
{
	slock_t		lock;
	char		padding[PG_CACHE_LINE_SIZE];
} PaddedLock;

typedef struct Claim
{
	pg_atomic_uint64 table;		/* database and table; 0 = none */
	pg_atomic_uint64 expiry;
} Claim;

typedef struct SessionClaims
{
	Claim		of_table[MAX_CLAIMS];
	pg_atomic_uint64 of_others; /* the earliest expiry in all other tables;
								 * DT_NOEND = none */
	uint64		padding;		/* makes the size that of a cache line */
} SessionClaims;

typedef struct EarliestShared
{
	pg_atomic_uint64 scans;		/* number of the last scan */
	/* not in the entries of tables, because those can be reused */
	PaddedLock	locks[LOCK_COUNT];
	SessionClaims sessions[FLEXIBLE_ARRAY_MEMBER];
} EarliestShared;

static EarliestShared *shared = NULL;
static int	nclaims = 0;		/* tables with a claim of this transaction */
static bool claims_others = false;	/* has it set the claim of other tables? */

static slock_t *lock_of(const PurgeTable *table);
static uint64 claim_key(Oid database, Oid relid);
static bool claim(Oid relid, TimestampTz expiry);
static TimestampTz earliest_claim(uint64 key);
static bool is_time_to_scan(PurgeTable *table);

Size
ttl_docs_earliest_shmem_size(void)
{
	return add_size(offsetof(EarliestShared, sessions),
					mul_size(MaxBackends, sizeof(SessionClaims)));
}

/* Creates the shared memory, or attaches to it. */
void
ttl_docs_earliest_shmem_init(void)
{
	bool		found;

	shared = ShmemInitStruct("ttl_docs earliest expiry",
							 ttl_docs_earliest_shmem_size(), &found);
	if (!found)
		pg_atomic_init_u64(&shared->scans, 0);
	for (int i = 0; !found && i < LOCK_COUNT; i++)
		SpinLockInit(&shared->locks[i].lock);
	for (int i = 0; !found && i < MaxBackends; i++)
	{
		SessionClaims *session = &shared->sessions[i];

		for (int j = 0; j < MAX_CLAIMS; j++)
		{
			pg_atomic_init_u64(&session->of_table[j].table, 0);
			pg_atomic_init_u64(&session->of_table[j].expiry, (uint64) DT_NOEND);
		}
		pg_atomic_init_u64(&session->of_others, (uint64) DT_NOEND);
	}
}

/*
 * The spinlock of a table.  Get it once for each use, because the entry may belong
 * to another table a moment later.
 */
static slock_t *
lock_of(const PurgeTable *table)
{
	return &shared->locks[table->key.relid % LOCK_COUNT].lock;
}

static uint64
claim_key(Oid database, Oid relid)
{
	return (uint64) database << 32 | relid;
}

/*
 * Announces a document with this expiry.  Call this before the row is written to
 * the table.
 */
void
ttl_docs_announce_expiry(Oid relid, Oid root, TimestampTz expiry)
{
	PurgeTable *table;
	slock_t    *lock;

	if (!claim(relid, expiry))
		return;
	table = ttl_docs_purge_table(relid, root);
	if (table == NULL)
		return;					/* then the earliest expiry is always unknown */

	/*
	 * A scan that begins after this sees our claim: releasing the spinlock
	 * publishes the claim to the next process that acquires it.
	 */
	lock = lock_of(table);
	SpinLockAcquire(lock);
	(void) ttl_docs_lower_time(&table->earliest, expiry);
	for (int i = 0; i < SCANNER_COUNT; i++)
		(void) ttl_docs_lower_time(&table->scans[i].announced, expiry);
	SpinLockRelease(lock);
}

/* Sets a claim.  False if this transaction already has one that is not later. */
static bool
claim(Oid relid, TimestampTz expiry)
{
	SessionClaims *mine = &shared->sessions[compat_proc_number(MyProc)];
	uint64		key = claim_key(MyDatabaseId, relid);

	Assert(compat_proc_number(MyProc) < MaxBackends);
	for (int i = 0; i < nclaims; i++)
		if (pg_atomic_read_u64(&mine->of_table[i].table) == key)
			return ttl_docs_lower_time(&mine->of_table[i].expiry, expiry);
	if (nclaims == MAX_CLAIMS)
	{
		claims_others = true;
		/* even if the claim is early enough, it may come from another table */
		(void) ttl_docs_lower_time(&mine->of_others, expiry);
		return true;
	}
	pg_atomic_write_u64(&mine->of_table[nclaims].expiry, (uint64) expiry);
	pg_write_barrier();
	pg_atomic_write_u64(&mine->of_table[nclaims].table, key);
	nclaims++;
	ttl_docs_end_turns |= TURN_OF_PURGE;
	return true;
}

/*
 * Drops the claims of a transaction that has ended or is prepared.  Its rows are in
 * the index.  Unless it was rolled back, it has announced them to the purge.
 */
void
ttl_docs_drop_claims(void)
{
	SessionClaims *mine;

	if (nclaims == 0)
		return;
	mine = &shared->sessions[compat_proc_number(MyProc)];
	pg_memory_barrier();
	for (int i = 0; i < nclaims; i++)
		pg_atomic_write_u64(&mine->of_table[i].table, 0);
	if (claims_others)
		pg_atomic_write_u64(&mine->of_others, (uint64) DT_NOEND);
	nclaims = 0;
	claims_others = false;
}

/* The earliest expiry of a table; DT_NOBEGIN if it is unknown. */
TimestampTz
ttl_docs_earliest_expiry(Oid relid, Oid root)
{
	uint64		gone = ttl_docs_tables_gone();
	PurgeTable *table = ttl_docs_purge_table(relid, root);
	TimestampTz earliest;

	if (table == NULL)
		return DT_NOBEGIN;
	earliest = ttl_docs_table_expiry(table);
	/* the entry may belong to another table by now */
	pg_read_barrier();
	return gone == ttl_docs_tables_gone() ? earliest : DT_NOBEGIN;
}

/* The same for an entry. */
TimestampTz
ttl_docs_table_expiry(PurgeTable *table)
{
	return ttl_docs_read_time(&table->earliest);
}

/*
 * Begins a scan by a session.  False if the table has no entry, or if a session has
 * scanned it within SCAN_INTERVAL.
 */
bool
ttl_docs_begin_session_scan(EarliestScan *scan, Oid relid, Oid root)
{
	PurgeTable *table = ttl_docs_purge_table(relid, root);

	if (table == NULL || !is_time_to_scan(table))
		return false;
	ttl_docs_begin_scan(scan, SCANNER_SESSION, table);
	return true;
}

/* Makes the earliest expiry unknown, and scans that are under way void. */
void
ttl_docs_forget_earliest(PurgeTable *table)
{
	slock_t    *lock = lock_of(table);

	SpinLockAcquire(lock);
	pg_atomic_write_u64(&table->earliest, (uint64) DT_NOBEGIN);
	for (int i = 0; i < SCANNER_COUNT; i++)
		table->scans[i].number = 0;
	SpinLockRelease(lock);
}

/*
 * Begins a scan that may raise the earliest expiry.  An earlier scan by the same
 * kind of scanner becomes void.  The caller acquired ROW EXCLUSIVE on the table
 * before it read the settings, and still holds it.
 */
void
ttl_docs_begin_scan(EarliestScan *scan, EarliestScanner scanner,
					PurgeTable *table)
{
	slock_t    *lock = lock_of(table);

	scan->table = table;
	scan->scanner = scanner;
	scan->number = pg_atomic_add_fetch_u64(&shared->scans, 1);
	SpinLockAcquire(lock);
	pg_atomic_write_u64(&table->scans[scanner].announced, (uint64) DT_NOEND);
	table->scans[scanner].number = scan->number;
	SpinLockRelease(lock);
	pg_memory_barrier();
	scan->claimed = earliest_claim(claim_key(table->key.database, table->key.relid));
}

/* The earliest expiry that transactions under way have claimed for a table. */
TimestampTz
ttl_docs_earliest_claim(Oid relid)
{
	pg_memory_barrier();
	return earliest_claim(claim_key(MyDatabaseId, relid));
}

static TimestampTz
earliest_claim(uint64 key)
{
	TimestampTz earliest = DT_NOEND;

	for (int i = 0; i < MaxBackends; i++)
	{
		SessionClaims *session = &shared->sessions[i];

		earliest = Min(earliest,
					   (TimestampTz) pg_atomic_read_u64(&session->of_others));
		for (int j = 0; j < MAX_CLAIMS; j++)
		{
			Claim	   *other = &session->of_table[j];

			if (pg_atomic_read_u64(&other->table) != key)
				continue;
			pg_read_barrier();
			earliest = Min(earliest, (TimestampTz) pg_atomic_read_u64(&other->expiry));
		}
	}
	return earliest;
}

/* Ends a scan.  No document that it has read expires before "found". */
void
ttl_docs_end_scan(EarliestScan *scan, TimestampTz found)
{
	PurgeTable *table = scan->table;
	EarliestScanState *state = &table->scans[scan->scanner];
	slock_t    *lock = lock_of(table);

	found = Min(found, scan->claimed);
	SpinLockAcquire(lock);
	if (state->number == scan->number)
	{
		found = Min(found, (TimestampTz) pg_atomic_read_u64(&state->announced));
		if (found > ttl_docs_table_expiry(table))
			pg_atomic_write_u64(&table->earliest, (uint64) found);
	}
	SpinLockRelease(lock);
	scan->table = NULL;
}

/* May this session scan the table?  One session per SCAN_INTERVAL may. */
static bool
is_time_to_scan(PurgeTable *table)
{
	uint64		last = pg_atomic_read_u64(&table->session_scanned);
	int64		now = ttl_docs_elapsed();

	return now - (int64) last >= SCAN_INTERVAL &&
		pg_atomic_compare_exchange_u64(&table->session_scanned, &last, (uint64) now);
}
