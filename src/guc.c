/*-------------------------------------------------------------------------
 *
 * guc.c
 *		The settings of ttl_docs, in alphabetical order.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <limits.h>

#include "utils/guc.h"

#include "online/online.h"
#include "purge/purge.h"

/*
 * ttl_docs.adopt_pause: how long adopt_concurrently() pauses after every 20 ms
 * of work, while other sessions are active.  Every user may set it, because the
 * owner of a table may write its rows without pauses anyway.
 */
int			ttl_docs_adopt_pause = 100;

/*
 * ttl_docs.clock_offset: seconds by which this session's clock is ahead of
 * the server's clock.  Tests of ttl_docs, and of applications that use it,
 * set the offset instead of sleeping.  Only superusers may set it, because a
 * clock that is ahead makes documents expire.
 */
int			ttl_docs_clock_offset = 0;

/*
 * ttl_docs.distributed_instant: the instant of a REPEATABLE READ or
 * SERIALIZABLE transaction that began on another node of Citus, in
 * microseconds.  That node sets it (citus/instant.c).  Users do not, and it is
 * not listed.
 */
char	   *ttl_docs_distributed_instant = NULL;

/*
 * ttl_docs.max_tables: maximum number of tables of collections, partitions
 * included, that have an entry in shared memory.  The purge visits the other
 * tables in rounds, and does not count their documents.
 */
int			ttl_docs_max_tables = PURGE_DEFAULT_TABLES;

/*
 * ttl_docs.purge: do workers purge expired documents?  A worker reads this
 * setting after it has connected, so ALTER DATABASE ... SET can turn the
 * purge off for one database.  CALL ttl_docs.purge() ignores the setting.
 */
bool		ttl_docs_purge_on = true;

/*
 * ttl_docs.purge_batch_size: maximum number of documents that the purge
 * deletes in one transaction.  A batch ends earlier if it takes long or
 * writes much.
 */
int			ttl_docs_purge_batch_size = 1000;

/*
 * ttl_docs.purge_grace: how long the purge of a collection is held after a
 * change of its settings that makes live documents expire.  The command that
 * changes the settings reads purge_grace.  Every user may set it, because the
 * owner of a collection decides about the change anyway.
 */
int			ttl_docs_purge_grace = 600;

/*
 * ttl_docs.purge_max_rate: maximum number of documents that all workers
 * together purge in a second; 0 means no limit.  If the limit makes a backlog
 * grow, ttl_docs.stat_collections shows the state "capped".
 */
int			ttl_docs_purge_max_rate = 0;

/*
 * ttl_docs.purge_naptime: how long the purge stays away from a database after
 * a visit that has purged all expired documents.
 */
int			ttl_docs_purge_naptime = 1000;

/*
 * ttl_docs.purge_truncate: do workers truncate a large table all of whose
 * documents have expired, instead of deleting them?  A worker reads this
 * setting as it reads ttl_docs.purge.
 */
bool		ttl_docs_purge_truncate = true;

/*
 * ttl_docs.purge_truncate_wait: if all documents of a large table expire
 * within this time, and nobody writes new ones, workers wait for the last one
 * and then truncate the table.
 */
int			ttl_docs_purge_truncate_wait = 300;

/*
 * ttl_docs.purge_workers: maximum number of workers that run at the same
 * time.  Each running worker counts against max_worker_processes.
 */
int			ttl_docs_purge_workers = 1;

/*
 * ttl_docs.show_expired: shows a superuser the expired documents that are
 * still on disk.  A query reads this setting when it starts, so cached plans
 * obey it, too.  Writes and foreign keys ignore the setting.
 */
bool		ttl_docs_show_expired = false;

void
ttl_docs_guc_init(void)
{
	DefineCustomIntVariable("ttl_docs.adopt_pause",
							"Sets how long adopt_concurrently() pauses after every 20 ms of work, while other sessions are active.",
							"0 disables the pauses.",
							&ttl_docs_adopt_pause,
							100,
							0,
							ADOPT_MAX_PAUSE,
							PGC_USERSET,
							GUC_UNIT_MS,
							NULL,
							NULL,
							NULL);

	DefineCustomIntVariable("ttl_docs.clock_offset",
							"Sets how far the clock of this session is ahead of the server's clock.",
							"Tests can move the clock instead of waiting for documents to expire.",
							&ttl_docs_clock_offset,
							0,
							-INT_MAX,
							INT_MAX,
							PGC_SUSET,
							GUC_UNIT_S | GUC_NOT_IN_SAMPLE,
							NULL,
							NULL,
							NULL);

	DefineCustomStringVariable("ttl_docs.distributed_instant",
							   "Sets the instant of a transaction that began on another node of Citus.",
							   NULL,
							   &ttl_docs_distributed_instant,
							   "",
							   PGC_USERSET,
							   GUC_NO_SHOW_ALL | GUC_NOT_IN_SAMPLE | GUC_DISALLOW_IN_FILE,
							   NULL,
							   NULL,
							   NULL);

	DefineCustomIntVariable("ttl_docs.max_tables",
							"Sets the maximum number of collection tables with an entry in shared memory.",
							"Each partition counts as a table.",
							&ttl_docs_max_tables,
							PURGE_DEFAULT_TABLES,
							1,
							PURGE_MAX_TABLES,
							PGC_POSTMASTER,
							0,
							NULL,
							NULL,
							NULL);

	DefineCustomBoolVariable("ttl_docs.purge",
							 "Enables the background purge of expired documents.",
							 "ALTER DATABASE ... SET can change this setting for one database.",
							 &ttl_docs_purge_on,
							 true,
							 PGC_SUSET,
							 0,
							 NULL,
							 NULL,
							 NULL);

	DefineCustomIntVariable("ttl_docs.purge_batch_size",
							"Sets the maximum number of documents that the purge deletes in one transaction.",
							NULL,
							&ttl_docs_purge_batch_size,
							1000,
							1,
							PURGE_MAX_BATCH_SIZE,
							PGC_SIGHUP,
							0,
							NULL,
							NULL,
							NULL);

	DefineCustomIntVariable("ttl_docs.purge_grace",
							"Sets how long the purge is held after a change of settings that makes documents expire.",
							"0 disables the hold.",
							&ttl_docs_purge_grace,
							600,
							0,
							INT_MAX,
							PGC_USERSET,
							GUC_UNIT_S,
							NULL,
							NULL,
							NULL);

	DefineCustomIntVariable("ttl_docs.purge_max_rate",
							"Sets the maximum number of documents that all workers together purge in a second.",
							"0 means no limit.",
							&ttl_docs_purge_max_rate,
							0,
							0,
							INT_MAX,
							PGC_SIGHUP,
							0,
							NULL,
							NULL,
							NULL);

	DefineCustomIntVariable("ttl_docs.purge_naptime",
							"Sets how long the purge leaves a database alone after it has purged all expired documents.",
							NULL,
							&ttl_docs_purge_naptime,
							1000,
							10,
							PURGE_MAX_NAPTIME,
							PGC_SIGHUP,
							GUC_UNIT_MS,
							NULL,
							NULL,
							NULL);

	DefineCustomBoolVariable("ttl_docs.purge_truncate",
							 "Truncates large tables all of whose documents have expired.",
							 "If this is off, the purge deletes these documents one by one.",
							 &ttl_docs_purge_truncate,
							 true,
							 PGC_SUSET,
							 0,
							 NULL,
							 NULL,
							 NULL);

	DefineCustomIntVariable("ttl_docs.purge_truncate_wait",
							"Sets how long the purge waits until all documents of a large table have expired.",
							"Then it truncates the table. 0 disables the wait.",
							&ttl_docs_purge_truncate_wait,
							300,
							0,
							INT_MAX,
							PGC_SUSET,
							GUC_UNIT_S,
							NULL,
							NULL,
							NULL);

	DefineCustomIntVariable("ttl_docs.purge_workers",
							"Sets the maximum number of purge workers that run at the same time.",
							NULL,
							&ttl_docs_purge_workers,
							1,
							1,
							PURGE_MAX_WORKERS,
							PGC_SIGHUP,
							0,
							NULL,
							NULL,
							NULL);

	DefineCustomBoolVariable("ttl_docs.show_expired",
							 "Lets SELECT and COPY TO return expired documents that are not purged yet.",
							 NULL,
							 &ttl_docs_show_expired,
							 false,
							 PGC_SUSET,
							 GUC_NOT_IN_SAMPLE,
							 NULL,
							 NULL,
							 NULL);

	MarkGUCPrefixReserved("ttl_docs");
}
