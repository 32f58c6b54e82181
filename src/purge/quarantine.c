/*-------------------------------------------------------------------------
 *
 * quarantine.c
 *		The documents that could not be deleted, to be tried again later.
 *
 * A document that a foreign key or a trigger keeps must not keep the others.
 * It is noted here by where its row is, with the time of the next try, and the
 * pass goes on without it.  The time doubles with each failure, up to an hour,
 * and is spread a little, so that a thousand of them do not come back at once.
 *
 * A hash table in shared memory, under the lock of shmem.c.  It is of a
 * fixed size, and so is the share of a table.  What finds no room stays in the
 * way of its table (pass.c): the pass goes around it each time.
 *
 * A row that is gone, or has become another one, is taken out when it is tried.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/hashfn.h"

#include "purge/purge_internal.h"

#define MAX_QUARANTINED			10000
#define MAX_QUARANTINED_PER_TABLE	1000
#define FIRST_DELAY		(30 * USECS_PER_SEC)
#define LONGEST_DELAY	(3600 * USECS_PER_SEC)

typedef struct QuarantineKey
{
	PurgeTableKey table;
	BlockNumber block;
	uint32		offset;			/* as wide as the rest: no padding */
} QuarantineKey;

typedef struct QuarantinedRow
{
	QuarantineKey key;			/* must be first */
	int			failures;
	TimestampTz retry_at;
} QuarantinedRow;

static HTAB *quarantine = NULL;

static QuarantineKey row_key(const PurgeTable *table, ItemPointer tid);
static bool is_of(const QuarantinedRow *row, const PurgeTable *table);

Size
ttl_docs_quarantine_size(void)
{
	return hash_estimate_size(MAX_QUARANTINED, sizeof(QuarantinedRow));
}

/* Called while shared memory is set up, or attached to. */
void
ttl_docs_quarantine_startup(void)
{
	quarantine = ttl_docs_shared_hash("ttl_docs quarantine", sizeof(QuarantineKey),
									  sizeof(QuarantinedRow), MAX_QUARANTINED);
}

static QuarantineKey
row_key(const PurgeTable *table, ItemPointer tid)
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

bool
ttl_docs_is_quarantined(const PurgeTable *table, ItemPointer tid)
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

/* Notes a row, or that it has failed once more; false if there is no room. */
bool
ttl_docs_quarantine(PurgeTable *table, ItemPointer tid, TimestampTz clock)
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
		delay = ttl_docs_growing_delay(FIRST_DELAY, row->failures, LONGEST_DELAY);
		delay += delay / 8 * (hash_bytes_uint32(key.block ^ key.offset) % 8) / 8;
		row->failures++;
		row->retry_at = clock + delay;
	}
	LWLockRelease(ttl_docs_purge_shared->lock);
	return row != NULL;
}

void
ttl_docs_unquarantine(PurgeTable *table, ItemPointer tid)
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

/* Takes out all rows of a table; the caller holds the lock. */
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

/* The same for callers who do not hold it. */
void
ttl_docs_empty_quarantine(PurgeTable *table)
{
	LWLockAcquire(ttl_docs_purge_shared->lock, LW_EXCLUSIVE);
	ttl_docs_unquarantine_all(table);
	LWLockRelease(ttl_docs_purge_shared->lock);
}

/* When the first of a table is to be tried again; DT_NOEND if there is none. */
TimestampTz
ttl_docs_quarantine_due(const PurgeTable *table)
{
	HASH_SEQ_STATUS status;
	QuarantinedRow *row;
	TimestampTz due = DT_NOEND;

	if (table->quarantined == 0)
		return DT_NOEND;
	LWLockAcquire(ttl_docs_purge_shared->lock, LW_SHARED);
	hash_seq_init(&status, quarantine);
	while ((row = hash_seq_search(&status)) != NULL)
		if (is_of(row, table))
			due = Min(due, row->retry_at);
	LWLockRelease(ttl_docs_purge_shared->lock);
	return due;
}

/* Those of a table that are to be tried now; returns how many. */
int
ttl_docs_quarantined_due(const PurgeTable *table, TimestampTz clock, int max,
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
		/* a clock that went back must not put it off for longer */
		if (!is_of(row, table) || count == max ||
			(row->retry_at > clock && row->retry_at <= clock + 2 * LONGEST_DELAY))
			continue;
		ItemPointerSet(&tids[count], row->key.block, row->key.offset);
		count++;
	}
	LWLockRelease(ttl_docs_purge_shared->lock);
	return count;
}
