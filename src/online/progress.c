/*-------------------------------------------------------------------------
 *
 * progress.c
 *		Shows how far concurrent changes are: the view stat_progress.
 *
 * Each backend has an entry in shared memory.  Only its backend writes to it.
 * A reader may see values of different moments, which does no harm.  pid is
 * set last and cleared first, so an entry with a pid has all of its values.
 *
 * The procedure clears its entry when it ends, also on ERROR.  On FATAL, a
 * callback does so.  After a crash, shared memory is new.
 *
 * While core builds an index, core's view pg_stat_progress_create_index has
 * the blocks; the SQL of our view reads them there.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "storage/ipc.h"
#include "storage/proc.h"
#include "storage/shmem.h"
#include "utils/builtins.h"
#include "utils/tuplestore.h"
#include "utils/lsyscache.h"
#include "utils/timestamp.h"

#include "online/online_internal.h"

PG_FUNCTION_INFO_V1(ttl_docs_online_progress);

/* interval of notices */
#define NOTICE_PERIOD		(10 * USECS_PER_SEC)

typedef struct ProgressEntry
{
	pg_atomic_uint32 pid;		/* 0 = unused */
	Oid			database;
	Oid			collection;
	ChangeCommand command;
	ChangePhase phase;
	int64		blocks_done;
	int64		blocks_total;
	int64		rows_written;
	int64		rows_busy;
} ProgressEntry;

static ProgressEntry *entries = NULL;

/* when to send the next notice, in elapsed time */
static int64 next_notice = 0;

static ProgressEntry *my_entry(void);
static void end_at_exit(int code, Datum arg);

static const char *const command_names[] = {
	[CHANGE_ADOPT] = "adopt_concurrently",
	[CHANGE_INDEXING] = "set_indexing_concurrently",
};

static const char *const phase_names[] = {
	[PHASE_LOCK] = "waiting for a lock",
	[PHASE_FILL] = "filling rows",
	[PHASE_BUSY] = "waiting for busy rows",
	[PHASE_VACUUM] = "vacuuming",
	[PHASE_INDEX] = "building the index",
	[PHASE_SWITCH] = "switching",
	[PHASE_DROP] = "dropping the old index",
};

Size
ttl_docs_progress_shmem_size(void)
{
	return mul_size(MaxBackends, sizeof(ProgressEntry));
}

void
ttl_docs_progress_shmem_init(void)
{
	bool		found;

	entries = ShmemInitStruct("ttl_docs progress", ttl_docs_progress_shmem_size(), &found);
	if (found)
		return;
	memset(entries, 0, ttl_docs_progress_shmem_size());
	for (int i = 0; i < MaxBackends; i++)
		pg_atomic_init_u32(&entries[i].pid, 0);
}

static ProgressEntry *
my_entry(void)
{
	return &entries[COMPAT_MY_BACKEND];
}

void
ttl_docs_begin_progress(ChangeCommand command, Oid relid)
{
	static bool is_registered = false;
	ProgressEntry *entry = my_entry();

	if (!is_registered)
		before_shmem_exit(end_at_exit, (Datum) 0);
	is_registered = true;
	pg_atomic_write_u32(&entry->pid, 0);
	pg_write_barrier();
	entry->database = MyDatabaseId;
	entry->collection = relid;
	entry->command = command;
	entry->phase = PHASE_LOCK;
	entry->blocks_done = entry->blocks_total = 0;
	entry->rows_written = entry->rows_busy = 0;
	next_notice = ttl_docs_elapsed() + NOTICE_PERIOD;
	pg_write_barrier();
	pg_atomic_write_u32(&entry->pid, (uint32) MyProcPid);
}

static void
end_at_exit(int code, Datum arg)
{
	(void) code;
	(void) arg;
	ttl_docs_end_progress();
}

void
ttl_docs_end_progress(void)
{
	pg_atomic_write_u32(&my_entry()->pid, 0);
}

void
ttl_docs_set_phase(ChangePhase phase)
{
	my_entry()->phase = phase;
}

/* Begins to count the blocks of a phase. */
void
ttl_docs_set_blocks(int64 total)
{
	my_entry()->blocks_done = 0;
	my_entry()->blocks_total = total;
}

void
ttl_docs_add_progress(int64 blocks, int64 written)
{
	my_entry()->blocks_done += blocks;
	my_entry()->rows_written += written;
}

void
ttl_docs_set_busy(int64 rows)
{
	my_entry()->rows_busy = rows;
}

/* Reports the progress to the client, from time to time. */
void
ttl_docs_notice_progress(Oid relid)
{
	ProgressEntry *entry = my_entry();

	if (ttl_docs_elapsed() < next_notice)
		return;
	next_notice = ttl_docs_elapsed() + NOTICE_PERIOD;
	ereport(NOTICE,
			(errmsg("filling \"%s\": %lld of %lld blocks read, %lld rows written",
					get_rel_name(relid), (long long) entry->blocks_done,
					(long long) entry->blocks_total, (long long) entry->rows_written)));
}

/*
 * online_progress(): the concurrent changes that run in this database
 */
Datum
ttl_docs_online_progress(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;

	ttl_docs_require_preload();
	InitMaterializedSRF(fcinfo, 0);
	for (int i = 0; i < MaxBackends; i++)
	{
		ProgressEntry *entry = &entries[i];
		int			pid = (int) pg_atomic_read_u32(&entry->pid);
		Datum		values[8];
		bool		nulls[8] = {false};

		pg_read_barrier();
		if (pid == 0 || entry->database != MyDatabaseId)
			continue;
		values[0] = ObjectIdGetDatum(entry->collection);
		values[1] = Int32GetDatum(pid);
		values[2] = CStringGetTextDatum(command_names[entry->command]);
		values[3] = CStringGetTextDatum(phase_names[entry->phase]);
		values[4] = Int64GetDatum(entry->blocks_done);
		values[5] = Int64GetDatum(entry->blocks_total);
		values[6] = Int64GetDatum(entry->rows_written);
		values[7] = Int64GetDatum(entry->rows_busy);
		tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
	}
	return (Datum) 0;
}
