/*-------------------------------------------------------------------------
 *
 * hold.c
 *		Reasons not to purge a table.
 *
 * A hold never changes what queries see.  It keeps expired documents on disk until
 * the reason is gone, or until an administrator has checked.
 *
 * - paused, restored, grace: the settings have this hold (collection/settings_hold.c).
 * - clock jump: the clock has moved far ahead of elapsed time (clock_watch.c).
 * - subscribed: a subscription writes to the table, and the publisher should purge.
 *   The subscriber cannot know whether the publisher does: the publisher may publish
 *   inserts only, publish a plain table, or subscribe to this table itself.  If no
 *   publisher purges, the owner calls set_purge_subscribed().
 * - blocked: the delete would run untrusted code as the owner of the table
 *   (core/trusted_code.c).
 * - pg_repack: its trigger is on the table, or on a table that a foreign key action
 *   reaches.  The trigger has arguments, so core/trusted_code.c does not trust it.
 *   The hold ends when pg_repack removes the trigger.
 * - moving: the table is a shard of Citus that is not in use on this node
 *   (citus/shard_lock.c).  Citus is filling it, or will drop it soon (target.c).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/rel.h"

#include "purge/pass_internal.h"

/* The hold by the settings or the clock, or PURGE_IDLE. */
PurgeState
ttl_docs_hold_by_settings(const Collection *collection, const PurgeTable *table)
{
	SettingsHold hold = ttl_docs_settings_hold(collection->root, &collection->settings);

	if (hold != HOLD_NONE)
		return ttl_docs_state_of_hold(hold);
	return ttl_docs_jump_is_accepted(table) ? PURGE_IDLE : PURGE_CLOCK_JUMP;
}

/*
 * The hold by the catalogs, or PURGE_IDLE.  *detail names the code that blocks the
 * purge, or is NULL.  *cascade_targets are the tables that foreign key actions write
 * to; this function locks them.
 */
PurgeState
ttl_docs_hold_by_table(Relation rel, const Collection *collection, char **detail,
					   List **cascade_targets)
{
	Oid			function;

	*detail = NULL;
	*cascade_targets = NIL;
	if (!collection->settings.purge_subscribed &&
		ttl_docs_is_subscribed(RelationGetRelid(rel)))
		return PURGE_SUBSCRIBED;
	*detail = ttl_docs_untrusted_code(rel, collection->root, &function, cascade_targets);
	if (*detail == NULL)
		return PURGE_IDLE;
	return ttl_docs_is_repack_function(function) ? PURGE_REPACKED : PURGE_BLOCKED;
}
