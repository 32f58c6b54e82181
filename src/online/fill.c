/*-------------------------------------------------------------------------
 *
 * fill.c
 *		Fills the system columns of existing rows, while others use the table.
 *
 * When adopt_concurrently() adds the system columns, all rows get the same _ts,
 * the constant "adopting" of the label, and the _slot that follows from it.
 * Core keeps such constants in the catalog and writes no row.  Rows that need
 * other values are written here: if a document has its own ttl, or if a column
 * "last_modified" has its first _ts.
 *
 * Which blocks.  All rows that others write after the columns were added have
 * another _ts, because our trigger stamps them.  So it is enough to read the
 * blocks that the table had when the fill began, in any order, once or many
 * times.  fill_row.c says which of their rows it writes, and how.
 *
 * A batch is a transaction of a few milliseconds, which reads some blocks with
 * a new snapshot.  A row that another session has locked is "busy", and is left
 * for another round over its block.  So we never wait for a row, and others wait
 * for ours for the length of a batch.  A batch runs as the owner, in a restricted
 * context, because index expressions can call functions of users.
 *
 * After each tenth of the blocks, VACUUM makes the space of old versions
 * available, so that the table grows little.
 *
 * On ERROR, the batches that were committed stay.  The next call reads all
 * blocks again, and writes what is missing.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/relscan.h"
#include "access/table.h"
#include "access/tableam.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "utils/acl.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "online/online_internal.h"

/* how long a batch works, in microseconds */
#define BATCH_TIME			INT64CONST(20000)
/* maximum number of blocks that a batch reads */
#define BATCH_BLOCKS		1024
/* a smaller table is not vacuumed in between */
#define MIN_VACUUMED_BLOCKS	1000
#define VACUUMS				10
/* nor is one of which fewer rows were written than one in so many blocks */
#define MAX_BLOCKS_PER_ROW	10
/* between rounds over busy rows, in milliseconds */
#define FIRST_BUSY_PAUSE	50
#define LONGEST_BUSY_PAUSE	1000

/* The fill of one table */
typedef struct Fill
{
	Oid			relid;
	Oid			root;
	Oid			file;			/* its relfilenode when the fill began */
	BlockNumber total;			/* number of blocks to read */
	FillResult *result;
	MemoryContext context;		/* survives commits */
	bool		is_retry;		/* reads blocks that were read before */
	BlockNumber resumed_at;		/* the last batch ended within this block */
	List	   *busy_blocks;	/* block numbers, as integers */
	int64		busy_rows;
	int64		unvacuumed;		/* rows written since the last VACUUM */
} Fill;

/* How a batch, or a whole fill, ends */
typedef enum FillEnd
{
	FILL_DONE,
	FILL_GONE,					/* the table is gone, or not part of the adoption */
	FILL_REWRITTEN				/* the table has a new file, such as after CLUSTER */
} FillEnd;

static FillEnd fill_all_blocks(Fill *fill);
static bool begin_fill(Fill *fill);
static void pause_for_others(void);
static FillEnd fill_blocks(Fill *fill, BlockNumber from, BlockNumber count,
						   BlockNumber *next);
static FillEnd begin_batch(Fill *fill, RowFiller *filler);
static void require_owner(Oid relid);
static int64 read_blocks(Fill *fill, RowFiller *filler, BlockNumber from,
						 BlockNumber count, BlockNumber *next);
static void note_busy_block(Fill *fill, BlockNumber block);
static FillEnd retry_busy_rows(Fill *fill);
static FillEnd fill_listed_blocks(Fill *fill, List *blocks);
static void vacuum_table(Fill *fill);

/*
 * Fills all rows of a table without partitions.  Returns false if the table is
 * gone, or was detached.  The current memory context must survive commits.
 */
bool
ttl_docs_fill_table(Oid relid, Oid root, FillResult *result)
{
	Fill		fill = {.relid = relid, .root = root, .result = result};
	int64		with_ttl = result->with_ttl;
	FillEnd		end;

	fill.context = CurrentMemoryContext;
	do
	{
		result->with_ttl = with_ttl;
		end = fill_all_blocks(&fill);
	} while (end == FILL_REWRITTEN);
	return end == FILL_DONE;
}

static FillEnd
fill_all_blocks(Fill *fill)
{
	BlockNumber block = 0;
	BlockNumber vacuum_at;

	if (!begin_fill(fill))
		return FILL_GONE;
	vacuum_at = Max(fill->total / VACUUMS, 1);
	while (block < fill->total)
	{
		BlockNumber next;
		FillEnd		end;

		ttl_docs_set_phase(PHASE_FILL);
		end = fill_blocks(fill, block, Min(BATCH_BLOCKS, fill->total - block), &next);
		if (end != FILL_DONE)
			return end;
		ttl_docs_add_progress(next - block, 0);
		ttl_docs_notice_progress(fill->root);
		block = next;
		if (block >= vacuum_at)
		{
			vacuum_table(fill);
			vacuum_at += Max(fill->total / VACUUMS, 1);
		}
		if (block < fill->total)
			pause_for_others();
	}
	return retry_busy_rows(fill);
}

/*
 * Begins at the first block.  All rows that are not filled are in the blocks
 * that the table has now.  A rewrite of the table moves them, so we remember
 * its file.
 */
static bool
begin_fill(Fill *fill)
{
	Relation	rel = try_table_open(fill->relid, AccessShareLock);

	if (rel == NULL)
		return false;
	fill->total = RelationGetNumberOfBlocks(rel);
	fill->file = rel->rd_rel->relfilenode;
	table_close(rel, AccessShareLock);
	fill->busy_blocks = NIL;
	fill->busy_rows = 0;
	fill->is_retry = false;
	fill->resumed_at = InvalidBlockNumber;
	return true;
}

static void
pause_for_others(void)
{
	if (ttl_docs_adopt_pause > 0 && ttl_docs_is_server_busy())
		ttl_docs_pause(ttl_docs_adopt_pause);
}

/*
 * Fills rows of a range of blocks in one transaction.  Sets *next to the block
 * where the next batch begins.
 */
static FillEnd
fill_blocks(Fill *fill, BlockNumber from, BlockNumber count, BlockNumber *next)
{
	RowFiller	filler = {0};
	MemoryContext context = AllocSetContextCreate(fill->context, "ttl_docs batch",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(context);
	OwnerSwitch before;
	int64		written = 0;
	FillEnd		end = begin_batch(fill, &filler);

	if (end == FILL_DONE)
	{
		ttl_docs_become_owner(filler.rel, &before);
		ttl_docs_begin_filling(&filler);
		written = read_blocks(fill, &filler, from, count, next);
		ttl_docs_end_filling(&filler);
		ttl_docs_become_caller(&before);
		table_close(filler.rel, NoLock);
		/* the commit of the last step makes all others durable */
		(void) set_config_option("synchronous_commit", "off", PGC_USERSET, PGC_S_SESSION,
								 GUC_ACTION_LOCAL, true, 0, false);
	}
	ttl_docs_commit_step();
	MemoryContextSwitchTo(caller);
	MemoryContextDelete(context);
	if (end != FILL_DONE)
		return end;
	fill->result->written += written;
	fill->unvacuumed += written;
	ttl_docs_add_progress(0, written);
	return FILL_DONE;
}

/* Opens the table, unless it is no longer the one that is filled. */
static FillEnd
begin_batch(Fill *fill, RowFiller *filler)
{
	Relation	rel = try_table_open(fill->relid, RowExclusiveLock);

	if (rel == NULL)
		return FILL_GONE;
	if (!ttl_docs_lookup_collection(fill->relid, &filler->collection) ||
		filler->collection.root != fill->root ||
		filler->collection.settings.adopting == DT_NOBEGIN)
	{
		table_close(rel, RowExclusiveLock);
		return FILL_GONE;
	}
	if (rel->rd_rel->relfilenode != fill->file)
	{
		table_close(rel, RowExclusiveLock);
		return FILL_REWRITTEN;
	}
	/* the caller may not own them any more; only the rights matter, so lock nothing */
	require_owner(fill->root);
	require_owner(fill->relid);
	CheckCmdReplicaIdentity(rel, CMD_UPDATE);
	filler->rel = rel;
	filler->result = fill->result;
	filler->context = fill->context;
	filler->is_retry = fill->is_retry;
	filler->resumed_at = fill->resumed_at;
	return FILL_DONE;
}

static void
require_owner(Oid relid)
{
	char	   *name = get_rel_name(relid);

	if (name == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("relation with OID %u does not exist", relid)));
	if (!compat_table_ownercheck(relid, GetUserId()))
		aclcheck_error(ACLCHECK_NOT_OWNER, OBJECT_TABLE, name);
}

/*
 * Reads blocks until the time of the batch is over, and fills their rows.  A
 * batch ends at the end of a block, or after a row that it has written: the
 * next batch reads that block again, and finds the row filled.  Sets *next to the
 * first block that was not read.  Returns the number of rows that were written.
 */
static int64
read_blocks(Fill *fill, RowFiller *filler, BlockNumber from, BlockNumber count,
			BlockNumber *next)
{
	int64		until = ttl_docs_elapsed() + BATCH_TIME;
	TableScanDesc scan = table_beginscan_strat(filler->rel, filler->snapshot, 0, NULL,
											   true, false);
	BlockNumber block = from;
	int64		written = 0;

	/* another session may have truncated the end of the table */
	*next = from + count;
	count = RelationGetNumberOfBlocks(filler->rel) > from ?
		Min(count, RelationGetNumberOfBlocks(filler->rel) - from) : 0;
	if (count > 0)
		heap_setscanlimits(scan, from, count);
	while (count > 0 && table_scan_getnextslot(scan, ForwardScanDirection, filler->row))
	{
		BlockNumber current = ItemPointerGetBlockNumber(&filler->row->tts_tid);
		FillOutcome outcome;

		CHECK_FOR_INTERRUPTS();
		if (current != block && ttl_docs_elapsed() >= until)
		{
			*next = current;
			break;
		}
		block = current;
		outcome = ttl_docs_fill_row(filler);
		if (outcome == ROW_WRITTEN)
		{
			written++;
			if (ttl_docs_elapsed() >= until)
			{
				*next = fill->resumed_at = current;
				break;
			}
		}
		else if (outcome == ROW_BUSY)
		{
			fill->busy_rows++;
			note_busy_block(fill, block);
		}
	}
	table_endscan(scan);
	return written;
}

static void
note_busy_block(Fill *fill, BlockNumber block)
{
	MemoryContext caller = MemoryContextSwitchTo(fill->context);

	if (fill->busy_blocks == NIL || llast_int(fill->busy_blocks) != (int) block)
		fill->busy_blocks = lappend_int(fill->busy_blocks, (int) block);
	MemoryContextSwitchTo(caller);
}

/* Reads blocks with busy rows again, until none is left. */
static FillEnd
retry_busy_rows(Fill *fill)
{
	int64		began = ttl_docs_elapsed();
	int			pause = FIRST_BUSY_PAUSE;
	bool		has_noticed = false;

	fill->is_retry = true;
	while (fill->busy_blocks != NIL)
	{
		List	   *blocks = fill->busy_blocks;
		FillEnd		end;

		ttl_docs_set_phase(PHASE_BUSY);
		ttl_docs_set_busy(fill->busy_rows);
		if (!has_noticed && ttl_docs_elapsed() - began >= NOTICE_AFTER)
		{
			ttl_docs_notice_lock_holders(fill->relid);
			has_noticed = true;
		}
		ttl_docs_pause(pause);
		pause = Min(pause * 2, LONGEST_BUSY_PAUSE);
		fill->busy_blocks = NIL;
		fill->busy_rows = 0;
		end = fill_listed_blocks(fill, blocks);
		if (end != FILL_DONE)
			return end;
		list_free(blocks);
	}
	ttl_docs_set_busy(0);
	return FILL_DONE;
}

/*
 * Fills blocks of an ascending list.  A batch takes as many adjacent blocks as
 * its time allows.  It can end within a block, after a row that it has written;
 * then the next batch reads the rest of that block.
 */
static FillEnd
fill_listed_blocks(Fill *fill, List *blocks)
{
	int			done = 0;

	while (done < list_length(blocks))
	{
		BlockNumber from = (BlockNumber) list_nth_int(blocks, done);
		BlockNumber count = 1;
		BlockNumber next;
		FillEnd		end;

		while (count < BATCH_BLOCKS && done + (int) count < list_length(blocks) &&
			   (BlockNumber) list_nth_int(blocks, done + count) == from + count)
			count++;
		end = fill_blocks(fill, from, count, &next);
		if (end != FILL_DONE)
			return end;
		done += next - from;
	}
	return FILL_DONE;
}

/*
 * Makes the space of old versions available for new ones.  Does nothing if few
 * rows were written, or if autovacuum is at work.  Does not give disk space
 * back at the end of the table, because that needs a strong lock.  Old versions
 * of documents that are stored out of line are the same as the new ones, so the
 * TOAST table needs nothing.
 */
static void
vacuum_table(Fill *fill)
{
	if (fill->total < MIN_VACUUMED_BLOCKS ||
		fill->unvacuumed < fill->total / VACUUMS / MAX_BLOCKS_PER_ROW)
		return;
	fill->unvacuumed = 0;
	/* without this test, VACUUM would give a warning */
	if (!ConditionalLockRelationOid(fill->relid, ShareUpdateExclusiveLock))
		return;
	if (get_rel_name(fill->relid) == NULL)
		return;
	ttl_docs_set_phase(PHASE_VACUUM);
	ttl_docs_run_committing(psprintf("VACUUM (TRUNCATE FALSE, PROCESS_TOAST FALSE, SKIP_LOCKED) %s",
									 ttl_docs_quoted_name(fill->relid)));
}
