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

#include "purge/purge.h"

/*
 * ttl_docs.clock_offset: seconds by which this session's clock is ahead of the
 * server's.  For tests, of ttl_docs and of the applications that use it.
 * Reserved to superusers: a clock that is ahead expires documents.
 */
int			ttl_docs_clock_offset = 0;

/*
 * ttl_docs.max_tables: how many tables of collections, partitions included, have an
 * entry in shared memory.  The purge visits the others in rounds, and does not count
 * their documents.
 */
int			ttl_docs_max_tables = PURGE_DEFAULT_TABLES;

/*
 * ttl_docs.purge: do workers purge expired documents?  They read it when they
 * have connected, so ALTER DATABASE ... SET turns it off for one database.
 * CALL ttl_docs.purge() does not ask.
 */
bool		ttl_docs_purge_on = true;

/*
 * ttl_docs.purge_batch_size: the most documents that the purge deletes in one
 * transaction.  It stops earlier when a batch takes long or writes much.
 */
int			ttl_docs_purge_batch_size = 1000;

/*
 * ttl_docs.purge_grace: how long the purge of a collection is held after a change
 * of its settings that makes living documents expire.  It is read when the change
 * is made.  Everybody may set it: a change is its owner's to make.
 */
int			ttl_docs_purge_grace = 600;

/*
 * ttl_docs.purge_max_rate: the most documents that all workers together purge
 * in a second; 0 is no limit.  A backlog that grows because of it is shown as
 * "capped" in ttl_docs.stat_collections.
 */
int			ttl_docs_purge_max_rate = 0;

/*
 * ttl_docs.purge_naptime: how long a database is left alone after a worker has
 * purged all there was.
 */
int			ttl_docs_purge_naptime = 1000;

/*
 * ttl_docs.purge_workers: how many workers may be at work at a time.  Each takes
 * a slot of max_worker_processes while it runs.
 */
int			ttl_docs_purge_workers = 1;

/*
 * ttl_docs.show_expired: lets a superuser look at the expired documents that
 * are still on disk.  It is read when a query starts, so it acts on plans that
 * are cached already.  Writes and foreign keys do not care for it.
 */
bool		ttl_docs_show_expired = false;

void
ttl_docs_guc_init(void)
{
	DefineCustomIntVariable("ttl_docs.clock_offset",
							"Shifts the clock that expires documents, in this session.",
							"Lets tests travel in time instead of sleeping.",
							&ttl_docs_clock_offset,
							0,
							-INT_MAX,
							INT_MAX,
							PGC_SUSET,
							GUC_UNIT_S | GUC_NOT_IN_SAMPLE,
							NULL,
							NULL,
							NULL);

	DefineCustomIntVariable("ttl_docs.max_tables",
							"Sets the maximum number of tables of collections with an entry in shared memory.",
							NULL,
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
							 "Purges expired documents in the background.",
							 "Can be set for a database with ALTER DATABASE.",
							 &ttl_docs_purge_on,
							 true,
							 PGC_SUSET,
							 0,
							 NULL,
							 NULL,
							 NULL);

	DefineCustomIntVariable("ttl_docs.purge_batch_size",
							"Sets the most documents that the purge deletes in one transaction.",
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
							"Sets the most documents that are purged in a second.",
							"0 is no limit.",
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
							"Sets the time between visits of the purge to a database.",
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

	DefineCustomIntVariable("ttl_docs.purge_workers",
							"Sets the most workers that purge at a time.",
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
							 "Shows expired documents that are not purged yet to SELECT and COPY TO.",
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
