/*-------------------------------------------------------------------------
 *
 * shard_lock.c
 *		Keeps Citus from moving or splitting a shard while we purge it.
 *
 * When Citus moves a shard, it copies the rows to a table on another node, and
 * drops the old table later.  So for some time there are two tables with the
 * same rows.  If both were purged, the triggers of each document would fire
 * twice.  The purge follows two rules:
 *
 *	1. It purges a shard only where the catalogs of Citus place it.
 *	2. It makes sure that the place does not change, and that no copy is under
 *	   way that would miss its deletes.
 *
 * Rule 2 needs a lock.  Every write that Citus runs takes a ShareLock on the
 * metadata of the shard.  A move or split with block_writes takes an
 * ExclusiveLock on all nodes before it begins to copy.  A move by logical
 * replication takes it before the last changes are replicated.  Both hold it
 * until the catalogs have changed (BlockWritesToShardList() in Citus).  The
 * purge takes the same lock as a write.
 *
 * The lock is an advisory lock with a tag that depends on the kind of table.
 * Most shards share a tag with the shards that are colocated with them.  We do
 * not compute the tag, but call lock_shard_metadata().  With this function, the
 * nodes of Citus lock shards on each other.  The function has no way to ask
 * without waiting, so a caller that must not wait sets lock_timeout to its
 * minimum.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "fmgr.h"
#include "nodes/value.h"
#include "parser/parse_func.h"
#include "utils/array.h"
#include "utils/guc.h"

#include "citus/citus_internal.h"

PG_FUNCTION_INFO_V1(ttl_docs_sql_is_shard);

static void lock_metadata(int64 shard);

/*
 * Keeps Citus from moving or splitting a shard until the transaction ends.
 * Returns false if the shard is not in use on this node.  If Citus is working
 * on the shard, waits; or raises an error if the caller does not want to wait.
 * The user must own the distributed table, or be a superuser.
 */
bool
ttl_docs_lock_shard(Oid relid, bool waits)
{
	int64		shard;
	int			nest_level;

	if (!ttl_docs_is_shard_in_use(relid, &shard))
		return false;
	nest_level = NewGUCNestLevel();
	if (!waits)
		(void) set_config_option("lock_timeout", "1", PGC_USERSET, PGC_S_SESSION,
								 GUC_ACTION_SAVE, true, 0, false);
	lock_metadata(shard);
	AtEOXact_GUC(true, nest_level);
	/* the shard may have moved before we had the lock */
	return ttl_docs_is_shard_in_use(relid, &shard);
}

static void
lock_metadata(int64 shard)
{
	Oid			types[] = {INT4OID, INT8ARRAYOID};
	List	   *name = list_make2(makeString("pg_catalog"),
								  makeString("lock_shard_metadata"));
	Oid			function = LookupFuncName(name, 2, types, false);
	Datum		number = Int64GetDatum(shard);
	ArrayType  *shards = construct_array(&number, 1, INT8OID, sizeof(int64),
										 FLOAT8PASSBYVAL, TYPALIGN_DOUBLE);

	(void) OidFunctionCall2(function, Int32GetDatum(ShareLock), PointerGetDatum(shards));
	pfree(shards);
}

/*
 * is_shard(collection regclass): is a collection whose label has "citus" a
 * shard?  For the view collections, which must work even if the library is not
 * preloaded.
 */
Datum
ttl_docs_sql_is_shard(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(ttl_docs_is_shard(PG_GETARG_OID(0)));
}
