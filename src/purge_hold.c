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
 * - clock jump: the clock has moved far ahead of the time that has passed.  The
 *   launcher follows it in small steps, and backwards; a large one stays one
 *   until the clock is back, or resume_purge() accepts it.
 * - subscribed: a subscription writes the table, and its publisher purges.
 * - blocked: a superuser owns the table, and a trigger would run somebody else's
 *   code.  Purging runs triggers as the owner of the table, and whoever may make
 *   a trigger on it (or a child of a foreign key that cascades) would be a
 *   superuser a second later.
 *
 * What counts as code that a delete runs: functions of its triggers, what their
 * WHEN clauses call, and the same for tables that a foreign key action reaches,
 * because their AFTER triggers fire at the end of our statement, as us.
 * Functions that are SECURITY DEFINER run as their owner, and are no danger.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/partition.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_subscription_rel.h"
#include "catalog/pg_trigger.h"
#include "commands/trigger.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "postmaster/bgworker.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"

#include "purge.h"

#define CLOCK_JUMP		(300 * USECS_PER_SEC)

static bool is_subscribed(Oid relid);
static bool has_subscription(Oid relid);
static char *foreign_trigger(Oid relid, int16 events, List **seen);
static Oid	table_of_action(Form_pg_trigger trigger);
static bool is_foreign_function(Oid function, void *context);
static bool calls_foreign_function(Node *node, void *context);
static bool when_is_foreign(Relation triggers, HeapTuple trigger);

static const struct
{
	const char *name;
	const char *hint;
}			states[] = {
	[PURGE_IDLE] = {"idle", NULL},
	[PURGE_WORKING] = {"purging", NULL},
	[PURGE_CAPPED] = {"capped", "Raise ttl_docs.purge_max_rate, or set it to 0."},
	[PURGE_WAITING] = {"waiting", "Other sessions hold locks on the table or on expired documents; see pg_locks."},
	[PURGE_TROUBLE] = {"failing", "See last_error; it is tried again, less and less often, or at once after ttl_docs.resume_purge()."},
	[PURGE_NO_INDEX] = {"no index", "Call ttl_docs.set_indexing() to build the purge index."},
	[PURGE_BLOCKED] = {"blocked", "A superuser owns the table, and somebody else's trigger function would run as that superuser. Give the table, or the function, another owner."},
	[PURGE_SUBSCRIBED] = {"subscription", "The publisher purges it. Drop the subscription, or take the table out of it, to purge here."},
	[PURGE_CLOCK_JUMP] = {"clock jump", "The clock is far ahead of the time that has passed. Set it right; or, if it is right now, call ttl_docs.resume_purge()."},
	[PURGE_RESTORED] = {"restored", "It came by a restore. Look at it, raise its DefaultTTL if need be, and call ttl_docs.resume_purge()."},
	[PURGE_PAUSED] = {"paused", "Call ttl_docs.resume_purge()."},
};

const char *
ttl_docs_purge_state_name(PurgeState state)
{
	return states[state].name;
}

/* The way out of a state, or NULL. */
const char *
ttl_docs_purge_state_hint(PurgeState state)
{
	return states[state].hint;
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
	return PURGE_IDLE;
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
	List	   *seen = NIL;
	char	   *trigger;

	*detail = NULL;
	if (PURGE_IS_HOLD(hold))
		return hold;

	/* a session that has moved its clock meant to */
	if (MyBgworkerEntry == NULL)
		jump -= (int64) ttl_docs_clock_offset * USECS_PER_SEC;
	if (jump > CLOCK_JUMP && (table == NULL || jump > table->accepted_jump + CLOCK_JUMP))
		return PURGE_CLOCK_JUMP;

	if (is_subscribed(RelationGetRelid(rel)))
		return PURGE_SUBSCRIBED;

	if (!superuser_arg(rel->rd_rel->relowner))
		return PURGE_IDLE;
	trigger = foreign_trigger(RelationGetRelid(rel), TRIGGER_TYPE_DELETE, &seen);
	if (trigger == NULL && collection->root != RelationGetRelid(rel))
		trigger = foreign_trigger(collection->root, TRIGGER_TYPE_DELETE, &seen);
	list_free(seen);
	if (trigger == NULL)
		return PURGE_IDLE;
	*detail = trigger;
	return PURGE_BLOCKED;
}

/* By how much the clock is ahead of the time that has passed, in microseconds. */
int64
ttl_docs_clock_jump(void)
{
	return ttl_docs_clock() - ttl_docs_elapsed() -
		(int64) pg_atomic_read_u64(&ttl_docs_purge->clock_base);
}

/* The launcher follows the clock, as long as it does not jump. */
void
ttl_docs_observe_clock(void)
{
	if (ttl_docs_clock_jump() <= CLOCK_JUMP)
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

	found = has_subscription(relid);
	if (found || !get_rel_relispartition(relid))
		return found;
	ancestors = get_partition_ancestors(relid);
	foreach(lc, ancestors)
		found |= has_subscription(lfirst_oid(lc));
	list_free(ancestors);
	return found;
}

static bool
has_subscription(Oid relid)
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

/*
 * Describes a trigger of the table, or of one that its foreign key actions
 * reach, that runs code of somebody who is no superuser; NULL if there is none.
 */
static char *
foreign_trigger(Oid relid, int16 events, List **seen)
{
	Relation	triggers;
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;
	char	   *found = NULL;
	List	   *reached = NIL;
	ListCell   *lc;

	if (list_member_oid(*seen, relid))
		return NULL;
	*seen = lappend_oid(*seen, relid);

	triggers = table_open(TriggerRelationId, AccessShareLock);
	ScanKeyInit(&key, Anum_pg_trigger_tgrelid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(relid));
	scan = systable_beginscan(triggers, TriggerRelidNameIndexId, true, NULL, 1, &key);
	while (found == NULL && HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Form_pg_trigger trigger = (Form_pg_trigger) GETSTRUCT(tuple);
		Oid			action;

		if (trigger->tgenabled == TRIGGER_DISABLED ||
			(trigger->tgtype & events) == 0)
			continue;
		action = table_of_action(trigger);
		if (OidIsValid(action))
			reached = lappend_oid(reached, action);
		else if (is_foreign_function(trigger->tgfoid, NULL) ||
				 when_is_foreign(triggers, tuple))
			found = psprintf("trigger \"%s\" of table \"%s\"",
							 NameStr(trigger->tgname), get_rel_name(relid));
	}
	systable_endscan(scan);
	table_close(triggers, AccessShareLock);

	/* of a partitioned table, the triggers of its partitions fire */
	foreach(lc, reached)
	{
		List	   *members = find_all_inheritors(lfirst_oid(lc), NoLock, NULL);
		ListCell   *member_lc;

		foreach(member_lc, members)
			if (found == NULL)
				found = foreign_trigger(lfirst_oid(member_lc),
										TRIGGER_TYPE_DELETE | TRIGGER_TYPE_UPDATE,
										seen);
		list_free(members);
	}
	list_free(reached);
	return found;
}

/* The table that a foreign key action writes to; InvalidOid if it is none. */
static Oid
table_of_action(Form_pg_trigger trigger)
{
	switch (trigger->tgfoid)
	{
		case F_RI_FKEY_CASCADE_DEL:
		case F_RI_FKEY_CASCADE_UPD:
		case F_RI_FKEY_SETNULL_DEL:
		case F_RI_FKEY_SETNULL_UPD:
		case F_RI_FKEY_SETDEFAULT_DEL:
		case F_RI_FKEY_SETDEFAULT_UPD:
			return trigger->tgconstrrelid;
		default:
			return InvalidOid;
	}
}

/* Would that function run as us, and does it belong to no superuser? */
static bool
is_foreign_function(Oid function, void *context)
{
	HeapTuple	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
	Form_pg_proc form;
	bool		foreign;

	(void) context;
	if (!HeapTupleIsValid(tuple))
		return true;
	form = (Form_pg_proc) GETSTRUCT(tuple);
	foreign = !form->prosecdef && !superuser_arg(form->proowner);
	ReleaseSysCache(tuple);
	return foreign;
}

static bool
calls_foreign_function(Node *node, void *context)
{
	if (node == NULL)
		return false;
	return check_functions_in_node(node, is_foreign_function, context) ||
		expression_tree_walker(node, calls_foreign_function, context);
}

/* Does the WHEN clause of a trigger run such code? */
static bool
when_is_foreign(Relation triggers, HeapTuple trigger)
{
	bool		isnull;
	Datum		when = heap_getattr(trigger, Anum_pg_trigger_tgqual,
									RelationGetDescr(triggers), &isnull);

	return !isnull &&
		calls_foreign_function(stringToNode(TextDatumGetCString(when)), NULL);
}
