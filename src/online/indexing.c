/*-------------------------------------------------------------------------
 *
 * indexing.c
 *		set_indexing_concurrently(): another kind of purge index, while others
 *		use the table.
 *
 * 1. Build the new index beside the old one (build_index.c).  Writers keep both.
 * 2. Switch: write the label, and give the new index the name of the old one.
 *	  Writers are kept out while the label is written.
 * 3. Drop the old index, concurrently.  Core has no such command for the index
 *	  of a partitioned table, so that one is dropped with brief locks.
 *
 * For "none", there is nothing to build.
 *
 * Whatever happens, the collection has the index that its label names: the
 * label changes when the new index is valid, and the old index goes
 * afterwards.  If the procedure is cancelled, or fails, or the server crashes,
 * the next call continues: it finds out from the catalogs what is done.
 *
 * Locks.  While the procedure runs, it holds the lock of change_lock.c, so
 * other changes of settings are refused.  The locks on tables are brief
 * (brief_lock.c).  The table may be dropped meanwhile, and its owner may
 * change, so each step checks again.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "catalog/pg_class.h"
#include "commands/defrem.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "online/online_internal.h"

PG_FUNCTION_INFO_V1(ttl_docs_set_indexing_concurrently);

typedef struct IndexingChange
{
	Oid			relid;
	IndexingMode indexing;
	bool		is_complete;	/* out: has every partition the new index? */
} IndexingChange;

static void require_changeable(Oid relid, IndexingMode indexing,
							   CollectionSettings *settings);
static void change_indexing(IndexingChange *change);
static void switch_indexing(void *arg, BriefLock *lock);
static void pass_names_on(Oid relid, IndexingMode before, IndexingMode after);
static void drop_old_indexes(IndexingChange *change);
static void drop_concurrently(Oid relid, IndexingMode indexing, PurgeIndexForm form);
static void drop_of_partitioned(void *arg, BriefLock *lock);

/*
 * set_indexing_concurrently(collection regclass, indexing text)
 */
Datum
ttl_docs_set_indexing_concurrently(PG_FUNCTION_ARGS)
{
	IndexingChange change = {0};
	CollectionSettings settings;

	ttl_docs_require_writable(fcinfo);
	change.relid = ttl_docs_collection_arg(fcinfo);
	change.indexing = ttl_docs_indexing_arg(fcinfo, 1);
	ttl_docs_require_client_call(fcinfo,
								 "In a transaction, call ttl_docs.set_indexing(), which blocks readers and writers.");
	/* end the transaction in which the arguments were computed */
	ttl_docs_commit_step();
	require_changeable(change.relid, change.indexing, &settings);
	ttl_docs_begin_concurrent_change(change.relid);
	ttl_docs_begin_progress(CHANGE_INDEXING, change.relid);
	PG_TRY();
	{
		change_indexing(&change);
	}
	PG_FINALLY();
	{
		ttl_docs_end_progress();
	}
	PG_END_TRY();
	ttl_docs_end_concurrent_change(change.relid);
	PG_RETURN_VOID();
}

/*
 * Raises an error unless the user may give the table this indexing.  Returns
 * the settings of the collection.
 */
static void
require_changeable(Oid relid, IndexingMode indexing, CollectionSettings *settings)
{
	Collection	collection;
	Relation	rel = ttl_docs_open_owned(relid, AccessShareLock);

	ttl_docs_refuse_shard(relid);
	if (!ttl_docs_lookup_collection(relid, &collection))
		ttl_docs_report_no_collection(relid);
	if (collection.root != relid)
		ttl_docs_report_partition(relid, collection.root);
	if (ttl_docs_is_shell(relid))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot change the indexing of \"%s\" concurrently because Citus manages the table",
						RelationGetRelationName(rel)),
				 errhint("Use SELECT ttl_docs.set_indexing(%s, '%s'), which blocks readers and writers.",
						 ttl_docs_quoted_literal(relid), ttl_docs_indexing_name(indexing))));
	table_close(rel, AccessShareLock);
	ttl_docs_require_indexing_allowed(relid, &collection.settings, indexing);
	ttl_docs_require_no_pending_detach(relid);
	*settings = collection.settings;
}

static void
change_indexing(IndexingChange *change)
{
	do
	{
		ttl_docs_build_purge_index(change->relid, change->indexing);
		ttl_docs_set_phase(PHASE_SWITCH);
		ttl_docs_do_briefly(switch_indexing, change, change->relid);
	} while (!change->is_complete);
	ttl_docs_set_phase(PHASE_DROP);
	drop_old_indexes(change);
}

/*
 * Makes the new index the purge index, unless a partition without it was
 * attached meanwhile.
 *
 * The first lock keeps out DDL and other changes of settings, but no reader or
 * writer.  Renaming is done under this lock, because it takes longer than
 * writing the label if there are many partitions.
 */
static void
switch_indexing(void *arg, BriefLock *lock)
{
	IndexingChange *change = arg;
	CollectionSettings settings;
	IndexingMode before;

	ttl_docs_lock_tree_briefly(change->relid, ShareUpdateExclusiveLock, lock);
	require_changeable(change->relid, change->indexing, &settings);
	change->is_complete = ttl_docs_has_built_purge_index(change->relid, change->indexing);
	before = settings.indexing;
	if (!change->is_complete)
		return;
	pass_names_on(change->relid, before, change->indexing);
	if (before == change->indexing)
		return;
	/* a new deadline: so far, nobody has waited for us */
	lock->deadline = 0;
	ttl_docs_lock_tree_briefly(change->relid, ShareRowExclusiveLock, lock);
	settings.indexing = change->indexing;
	ttl_docs_write_label(change->relid, &settings);
}

/* Gives the old indexes other names, and the new indexes theirs. */
static void
pass_names_on(Oid relid, IndexingMode before, IndexingMode after)
{
	List	   *names = ttl_docs_replaced_purge_indexes(relid, before, after);
	ListCell   *lc;

	if (after == INDEXING_NONE)
		return;
	foreach(lc, names)
	{
		TableIndexName *old = lfirst(lc);
		char	   *name = ChooseRelationName(get_rel_name(old->relid),
											  TTL_DOCS_SLOT_COLUMN, "old",
											  get_rel_namespace(old->relid), false);

		if (OidIsValid(ttl_docs_table_purge_index(old->relid, after, INDEX_WHOLE)))
			ttl_docs_run_ddl("ALTER INDEX %s RENAME TO %s",
							 ttl_docs_quoted_name(old->index), quote_identifier(name));
	}
	ttl_docs_rename_purge_indexes(names, after);
}

/* Drops the indexes that the new one replaces. */
static void
drop_old_indexes(IndexingChange *change)
{
	if (get_rel_relkind(change->relid) == RELKIND_PARTITIONED_TABLE)
	{
		ttl_docs_do_briefly(drop_of_partitioned, change, change->relid);
		return;
	}
	for (IndexingMode mode = 0; mode < INDEXING_NONE; mode++)
	{
		drop_concurrently(change->relid, mode, INDEX_INVALID);
		drop_concurrently(change->relid, mode, INDEX_PARTIAL);
		if (mode != change->indexing)
			drop_concurrently(change->relid, mode, INDEX_WHOLE);
	}
}

static void
drop_concurrently(Oid relid, IndexingMode indexing, PurgeIndexForm form)
{
	Oid			index;

	while (OidIsValid(index = ttl_docs_table_purge_index(relid, indexing, form)))
		ttl_docs_run_committing(psprintf("DROP INDEX CONCURRENTLY %s",
										 ttl_docs_quoted_name(index)));
}

static void
drop_of_partitioned(void *arg, BriefLock *lock)
{
	IndexingChange *change = arg;

	ttl_docs_lock_tree_briefly(change->relid, AccessExclusiveLock, lock);
	if (get_rel_name(change->relid) != NULL)
		ttl_docs_drop_other_purge_indexes(change->relid, change->indexing);
}
