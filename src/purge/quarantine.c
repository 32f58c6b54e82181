/*-------------------------------------------------------------------------
 *
 * quarantine.c
 *		The rows that workers could not delete, and when to retry them.
 *
 * A document that a foreign key or a trigger protects must not stop the purge of
 * the others.  So a worker puts its row into the quarantine, and later batches skip
 * the row.  Each row has its own time for the next try.  The delay doubles with each
 * failure, from 30 seconds to an hour.  It varies a little from row to row, so that
 * a thousand rows are not retried at the same time.
 *
 * A retry fetches the row by its position in the table.  If the row is gone, or is
 * live because the position was reused, the row leaves the quarantine.
 *
 * The quarantine is a hash table in shared memory, under the lock of shmem.c.  Its
 * size is fixed, and so is the share of a table.  If there is no room for a row, the
 * pass leaves the document like a busy one (progress.c): then each search that
 * passes it tries it again.
 *
 * CALL purge() tries every document, and neither uses nor changes the quarantine.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/hashfn.h"

#include "purge/pass_internal.h"

#define MAX_QUARANTINED				20000
#define MAX_QUARANTINED_PER_TABLE	10000
#define MIN_DELAY		(30 * USECS_PER_SEC)
#define MAX_DELAY		(3600 * USECS_PER_SEC)

typedef struct QuarantineKey
{
	PurgeTableKey table;
	BlockNumber block;
	uint32		offset;			/* as wide as the other fields: no padding */
} QuarantineKey;

typedef struct QuarantinedRow
{
	QuarantineKey key;			/* must be first */
	int			failures;
	TimestampTz retry_at;
} QuarantinedRow;

static HTAB *quarantine = NULL;

static QuarantineKey row_key(const PurgeTable *table, const ItemPointerData *tid);
static bool is_of(const QuarantinedRow *row, const PurgeTable *table);
static bool is_due(const QuarantinedRow *row, TimestampTz clock);

Size
ttl_docs_quarantine_shmem_size(void)
{
	return hash_estimate_size(MAX_QUARANTINED, sizeof(QuarantinedRow));
}

/* Creates the hash table, or attaches to it. */
void
ttl_docs_quarantine_shmem_init(void)
{
	quarantine = ttl_docs_shared_hash("ttl_docs quarantine", sizeof(QuarantineKey),
									  sizeof(QuarantinedRow), MAX_QUARANTINED);
}

static QuarantineKey
row_key(const PurgeTable *table, const ItemPointerData *tid)
{
	QuarantineKey key;

	key.table = table->key;
	key.block = ItemPointerGetBlockNumberNoCheck(tid);
	key.offset = ItemPointerGetOffsetNumberNoCheck(tid);
	return key;
}

static bool
is_of(const QuarantinedRow *row, const PurgeTable *table)
{
	return row->key.table.database == table->key.database &&
		row->key.table.relid == table->key.relid;
}

/* Is it time to retry a row?  A clock that went back must not delay it further. */
static bool
is_due(const QuarantinedRow *row, TimestampTz clock)
{
	return row->retry_at <= clock || row->retry_at > clock + 2 * MAX_DELAY;
}

bool
ttl_docs_is_quarantined(const PurgeTable *table, const ItemPointerData *tid)
{
	QuarantineKey key = row_key(table, tid);
	bool		found;

	if (table->quarantined == 0)
		return false;
	LWLockAcquire(ttl_docs_purge_shared->lock, LW_SHARED);
	hash_search(quarantine, &key, HASH_FIND, &found);
	LWLockRelease(ttl_docs_purge_shared->lock);
	return found;
}

/* Puts a row into the quarantine, or counts one more failure.  False if no room. */
bool
ttl_docs_quarantine(PurgeTable *table, const ItemPointerData *tid, TimestampTz clock)
{
	QuarantineKey key = row_key(table, tid);
	QuarantinedRow *row;
	bool		found;

	LWLockAcquire(ttl_docs_purge_shared->lock, LW_EXCLUSIVE);
	row = hash_search(quarantine, &key, HASH_FIND, &found);
	if (!found && table->quarantined < MAX_QUARANTINED_PER_TABLE)
		row = hash_search(quarantine, &key, HASH_ENTER_NULL, NULL);
	if (row != NULL)
	{
		TimestampTz delay;

		if (!found)
		{
			row->failures = 0;
			table->quarantined++;
		}
		delay = ttl_docs_growing_delay(MIN_DELAY, row->failures, MAX_DELAY);
		delay += delay / 8 * (hash_bytes_uint32(key.block ^ key.offset) % 8) / 8;
		row->failures++;
		row->retry_at = clock + delay;
	}
	LWLockRelease(ttl_docs_purge_shared->lock);
	return row != NULL;
}

void
ttl_docs_unquarantine(PurgeTable *table, const ItemPointerData *tid)
{
	QuarantineKey key = row_key(table, tid);
	bool		found;

	if (table->quarantined == 0)
		return;
	LWLockAcquire(ttl_docs_purge_shared->lock, LW_EXCLUSIVE);
	hash_search(quarantine, &key, HASH_REMOVE, &found);
	if (found)
		table->quarantined--;
	LWLockRelease(ttl_docs_purge_shared->lock);
}

/* Removes all rows of a table from the quarantine.  The caller holds the lock. */
void
ttl_docs_unquarantine_all(PurgeTable *table)
{
	HASH_SEQ_STATUS status;
	QuarantinedRow *row;

	if (table->quarantined == 0)
		return;
	hash_seq_init(&status, quarantine);
	while ((row = hash_seq_search(&status)) != NULL)
		if (is_of(row, table))
			hash_search(quarantine, &row->key, HASH_REMOVE, NULL);
	table->quarantined = 0;
}

/* When to retry the first row of a table; DT_NOEND if there is none. */
TimestampTz
ttl_docs_next_retry(const PurgeTable *table)
{
	HASH_SEQ_STATUS status;
	QuarantinedRow *row;
	TimestampTz next = DT_NOEND;

	if (table->quarantined == 0)
		return DT_NOEND;
	LWLockAcquire(ttl_docs_purge_shared->lock, LW_SHARED);
	hash_seq_init(&status, quarantine);
	while ((row = hash_seq_search(&status)) != NULL)
		if (is_of(row, table))
			next = Min(next, row->retry_at);
	LWLockRelease(ttl_docs_purge_shared->lock);
	return next;
}

/* Finds rows of a table that are to be retried now; returns their number. */
int
ttl_docs_rows_to_retry(const PurgeTable *table, TimestampTz clock, int max,
					   ItemPointerData *tids)
{
	HASH_SEQ_STATUS status;
	QuarantinedRow *row;
	int			count = 0;

	if (table->quarantined == 0)
		return 0;
	LWLockAcquire(ttl_docs_purge_shared->lock, LW_SHARED);
	hash_seq_init(&status, quarantine);
	while ((row = hash_seq_search(&status)) != NULL)
	{
		if (!is_of(row, table) || count == max || !is_due(row, clock))
			continue;
		ItemPointerSet(&tids[count], row->key.block, row->key.offset);
		count++;
	}
	LWLockRelease(ttl_docs_purge_shared->lock);
	return count;
}
