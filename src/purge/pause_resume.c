/*-------------------------------------------------------------------------
 *
 * pause_resume.c
 *		pause_purge(), resume_purge() and set_purge_subscribed().
 *
 * These functions write the label under SHARE UPDATE EXCLUSIVE.  This lock
 * conflicts with other changes of settings, but not with writers, so a batch that is
 * under way can finish.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "purge/pass_internal.h"

PG_FUNCTION_INFO_V1(ttl_docs_pause_purge);
PG_FUNCTION_INFO_V1(ttl_docs_resume_purge);
PG_FUNCTION_INFO_V1(ttl_docs_set_purge_subscribed);

static void set_paused(FunctionCallInfo fcinfo, bool paused);
static void reset_trouble(Oid relid, Oid root);
static void report_remaining_hold(Oid relid);

/*
 * pause_purge(collection regclass)
 */
Datum
ttl_docs_pause_purge(PG_FUNCTION_ARGS)
{
	set_paused(fcinfo, true);
	PG_RETURN_VOID();
}

/*
 * resume_purge(collection regclass)
 *
 * Ends a pause, and the holds after a restore, a clock jump and a change of
 * settings.  The purge retries undeletable documents at once.
 */
Datum
ttl_docs_resume_purge(PG_FUNCTION_ARGS)
{
	Oid			root = ttl_docs_collection_arg(fcinfo);
	List	   *tables;

	set_paused(fcinfo, false);
	ttl_docs_reset_purge(root);
	tables = ttl_docs_collection_tables(root);
	if (tables != NIL)
		report_remaining_hold(linitial_oid(tables));
	PG_RETURN_VOID();
}

static void
set_paused(FunctionCallInfo fcinfo, bool paused)
{
	Collection	collection;
	Relation	rel;

	ttl_docs_require_writable(fcinfo);
	rel = ttl_docs_open_collection(ttl_docs_collection_arg(fcinfo),
								   ShareUpdateExclusiveLock, &collection);
	collection.settings.paused = paused;
	if (!paused)
	{
		collection.settings.restored =
			ttl_docs_was_restored(RelationGetRelid(rel), &collection.settings);
		collection.settings.origin_database = MyDatabaseId;
		collection.settings.origin_relation = RelationGetRelid(rel);
		collection.settings.grace_until = DT_NOBEGIN;
		collection.settings.resuming = ttl_docs_is_shell(RelationGetRelid(rel));
	}
	ttl_docs_write_label(RelationGetRelid(rel), &collection.settings);
	table_close(rel, NoLock);
}

/*
 * set_purge_subscribed(collection regclass, purge_subscribed boolean)
 *
 * Sets whether to purge the collection here even if a subscription writes to it.
 */
Datum
ttl_docs_set_purge_subscribed(PG_FUNCTION_ARGS)
{
	Collection	collection;
	Relation	rel;

	ttl_docs_require_writable(fcinfo);
	if (PG_ARGISNULL(1))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("purge_subscribed cannot be null"),
				 errhint("Use true to purge the collection here, or false to let the publisher purge it.")));
	rel = ttl_docs_open_collection(ttl_docs_collection_arg(fcinfo),
								   ShareUpdateExclusiveLock, &collection);
	collection.settings.purge_subscribed = PG_GETARG_BOOL(1);
	ttl_docs_write_label(RelationGetRelid(rel), &collection.settings);
	table_close(rel, NoLock);
	PG_RETURN_VOID();
}

/*
 * Resets the trouble of the tables of a collection, and accepts the current clock.
 * Does nothing for a distributed table of Citus: each node does this for its shards
 * when the label arrives (citus/follow.c).
 */
void
ttl_docs_reset_purge(Oid root)
{
	List	   *tables = ttl_docs_collection_tables(root);
	ListCell   *lc;

	foreach(lc, tables)
		reset_trouble(lfirst_oid(lc), root);
	list_free(tables);
}

/* Resets the trouble of a table, and accepts the current clock. */
static void
reset_trouble(Oid relid, Oid root)
{
	PurgeTable *table = ttl_docs_purge_table(relid, root);
	int64		jump = Max(ttl_docs_clock_jump(), 0);

	if (table == NULL)
		return;
	LWLockAcquire(ttl_docs_purge_shared->lock, LW_EXCLUSIVE);
	table->failures = 0;
	ttl_docs_unquarantine_all(table);
	table->undeletable = 0;
	table->accepted_jump = jump;
	LWLockRelease(ttl_docs_purge_shared->lock);
	ttl_docs_restart_purge_of(table);
}

/* Raises a NOTICE if there is a hold that resume_purge() cannot end. */
static void
report_remaining_hold(Oid relid)
{
	Relation	rel = table_open(relid, AccessShareLock);
	Collection	collection;
	PurgeState	hold = PURGE_IDLE;
	char	   *detail = NULL;
	List	   *cascade_targets;

	if (ttl_docs_lookup_collection(relid, &collection))
	{
		hold = ttl_docs_hold_by_settings(&collection,
										 ttl_docs_purge_table(relid, collection.root));
		if (!PURGE_IS_HOLD(hold))
			hold = ttl_docs_hold_by_table(rel, &collection, &detail, &cascade_targets);
	}
	if (PURGE_IS_HOLD(hold))
		ereport(NOTICE,
				(errmsg("the purge of \"%s\" is still held: %s",
						get_rel_name(collection.root), ttl_docs_purge_state_name(hold)),
				 detail != NULL ? errdetail("Blocked by %s.", detail) : 0,
				 errhint("%s", ttl_docs_purge_state_hint(hold, collection.root))));
	table_close(rel, AccessShareLock);
}
