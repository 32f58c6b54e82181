/*-------------------------------------------------------------------------
 *
 * purge_hold.c
 *		Reasons not to purge a collection, and the names of what it does.
 *
 * A hold never changes what queries see; it keeps expired documents on disk,
 * where nothing is lost yet, until somebody has had a look.
 *
 * - paused: by pause_purge().
 * - restored: the label was written for another table or database, so it came
 *   by a restore, or with a copy of a database.  A month-old backup of documents
 *   that live for a week would be gone a second after it is back.
 * - grace: a change of settings has made living documents expire, and somebody may
 *   want to copy them out (collection_grace.c).
 * - clock jump: the clock has moved far ahead of the time that has passed.  The
 *   launcher follows it in small steps, and backwards; a large one stays one
 *   until the clock is back, or resume_purge() accepts it.
 * - subscribed: a subscription writes the table, and its publisher purges.  A
 *   subscriber cannot know this: the publisher may publish inserts only, be
 *   a plain table, or be a subscriber of this table.  Where nobody else purges, the
 *   owner says so with set_purge_subscribed().
 * - blocked: a trigger would run somebody else's code as the owner of the table
 *   (purge_rights.c).
 * - pg_repack: its trigger is on the table, or on a table that a foreign key action
 *   reaches.  The trigger takes arguments, so purge_rights.c does not trust it.
 *   The purge goes on when pg_repack has removed it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/table.h"
#include "catalog/partition.h"
#include "catalog/pg_subscription_rel.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "purge.h"

#define CLOCK_JUMP		(300 * USECS_PER_SEC)

static bool is_subscribed(Oid relid);

static const struct
{
	const char *name;
	const char *hint;
}			states[] = {
	[PURGE_IDLE] = {"idle", NULL},
	[PURGE_WORKING] = {"purging", NULL},
	[PURGE_CAPPED] = {"capped", "Raise ttl_docs.purge_max_rate, or set it to 0."},
	[PURGE_WAITING] = {"waiting", "Other sessions hold locks on the table or on expired documents; see pg_locks."},
	[PURGE_TROUBLE] = {"failing", "See last_error. The purge retries less and less often. After you have fixed the cause: SELECT ttl_docs.resume_purge(%s)."},
	[PURGE_NO_INDEX] = {"no index", "To build the purge index: SELECT ttl_docs.set_indexing(%s, 'consistent')."},
	[PURGE_BLOCKED] = {"blocked", "A trigger would run somebody else's code as the owner of the table; last_error names it. Change the owner of its function to the owner of the table, and use only built-in immutable functions in its WHEN clause."},
	[PURGE_REPACKED] = {"pg_repack", "pg_repack is working on the table; the purge continues afterwards. If pg_repack is not running, an interrupted run has left its trigger: DROP TRIGGER repack_trigger ON that table, or drop the extension pg_repack and create it again."},
	[PURGE_SUBSCRIBED] = {"subscription", "A subscription writes to this table, and its publisher should purge it. If no publisher does: SELECT ttl_docs.set_purge_subscribed(%s, true)."},
	[PURGE_CLOCK_JUMP] = {"clock jump", "The clock is far ahead of the time that has passed. Set it right; or, if it is right now: SELECT ttl_docs.resume_purge(%s)."},
	[PURGE_GRACE] = {"grace", "A change of settings made documents expire. They can be copied out until the hold ends. To purge them now: SELECT ttl_docs.resume_purge(%s)."},
	[PURGE_RESTORED] = {"restored", "The collection was restored. To allow the purge to delete its expired documents: SELECT ttl_docs.resume_purge(%s)."},
	[PURGE_PAUSED] = {"paused", "The purge was paused with ttl_docs.pause_purge(). To resume it: SELECT ttl_docs.resume_purge(%s)."},
};

const char *
ttl_docs_purge_state_name(PurgeState state)
{
	return states[state].name;
}

/*
 * The way out of a state, or NULL.  Commands in it can be run as they are: "%s" in a
 * hint stands for the collection.
 */
const char *
ttl_docs_purge_state_hint(PurgeState state, Oid root)
{
	const char *hint = states[state].hint;
	Collection	collection;

	if (hint == NULL)
		return NULL;
	if (state == PURGE_GRACE && ttl_docs_collection(root, &collection))
		return psprintf("A change of settings made documents expire. They can be copied out for another %s. To purge them now: SELECT ttl_docs.resume_purge(%s).",
						ttl_docs_grace_left(&collection.settings),
						quote_literal_cstr(ttl_docs_quoted_name(root)));
	return psprintf(hint, quote_literal_cstr(ttl_docs_quoted_name(root)));
}

/* What the settings alone say; PURGE_IDLE if they are no hold. */
PurgeState
ttl_docs_settings_hold(Oid root, const CollectionSettings *settings)
{
	if (settings->paused)
		return PURGE_PAUSED;
	if (settings->origin_database != MyDatabaseId ||
		settings->origin_relation != root)
		return PURGE_RESTORED;
	return ttl_docs_in_grace(settings) ? PURGE_GRACE : PURGE_IDLE;
}

/*
 * The reason not to purge a table now, or PURGE_IDLE.  *detail is set where
 * there is more to say.
 */
PurgeState
ttl_docs_purge_hold(Relation rel, const Collection *collection,
					const PurgeTable *table, char **detail)
{
	PurgeState	hold = ttl_docs_settings_hold(collection->root, &collection->settings);
	int64		jump = ttl_docs_clock_jump();
	bool		is_of_repack;

	*detail = NULL;
	if (PURGE_IS_HOLD(hold))
		return hold;
	if (jump > CLOCK_JUMP && (table == NULL || jump > table->accepted_jump + CLOCK_JUMP))
		return PURGE_CLOCK_JUMP;
	if (!collection->settings.purge_subscribed && is_subscribed(RelationGetRelid(rel)))
		return PURGE_SUBSCRIBED;
	*detail = ttl_docs_foreign_code(rel, collection->root, &is_of_repack);
	if (*detail == NULL)
		return PURGE_IDLE;
	return is_of_repack ? PURGE_REPACKED : PURGE_BLOCKED;
}

/*
 * By how much the clock is ahead of the time that has passed, in microseconds.
 * What counts is the clock of the server: a session that has moved its own meant
 * to.
 */
int64
ttl_docs_clock_jump(void)
{
	int64		shift = (int64) ttl_docs_clock_offset - ttl_docs_purge->clock_offset;

	return ttl_docs_clock() - shift * USECS_PER_SEC - ttl_docs_elapsed() -
		(int64) pg_atomic_read_u64(&ttl_docs_purge->clock_base);
}

/* Is that so much that the purge is held? */
bool
ttl_docs_clock_has_jumped(void)
{
	return ttl_docs_clock_jump() > CLOCK_JUMP;
}

/*
 * The launcher follows the clock, as long as it does not jump ahead.  When it has
 * gone back, times that were computed by it are too late.
 */
void
ttl_docs_observe_clock(void)
{
	static int64 last_difference = PG_INT64_MIN;
	int64		difference = ttl_docs_clock() - ttl_docs_elapsed();

	ttl_docs_purge->clock_offset = ttl_docs_clock_offset;
	if (difference + USECS_PER_SEC < last_difference)
		ttl_docs_look_at_everything();
	last_difference = difference;
	if (!ttl_docs_clock_has_jumped())
		pg_atomic_write_u64(&ttl_docs_purge->clock_base,
							(uint64) (ttl_docs_clock() - ttl_docs_elapsed()));
}

/* Is the table, or one it is a partition of, the target of a subscription? */
static bool
is_subscribed(Oid relid)
{
	List	   *ancestors;
	ListCell   *lc;
	bool		found;

	found = ttl_docs_has_subscription(relid);
	if (found || !get_rel_relispartition(relid))
		return found;
	ancestors = get_partition_ancestors(relid);
	foreach(lc, ancestors)
		found |= ttl_docs_has_subscription(lfirst_oid(lc));
	list_free(ancestors);
	return found;
}

/* Is that very table the target of a subscription? */
bool
ttl_docs_has_subscription(Oid relid)
{
	Relation	catalog = table_open(SubscriptionRelRelationId, AccessShareLock);
	ScanKeyData key;
	SysScanDesc scan;
	bool		found;

	ScanKeyInit(&key, Anum_pg_subscription_rel_srrelid, BTEqualStrategyNumber,
				F_OIDEQ, ObjectIdGetDatum(relid));
	scan = systable_beginscan(catalog, SubscriptionRelSrrelidSrsubidIndexId,
							  true, NULL, 1, &key);
	found = HeapTupleIsValid(systable_getnext(scan));
	systable_endscan(scan);
	table_close(catalog, AccessShareLock);
	return found;
}
