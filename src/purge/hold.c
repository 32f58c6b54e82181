/*-------------------------------------------------------------------------
 *
 * hold.c
 *		Reasons not to purge a table.
 *
 * A hold never changes what queries see.  It keeps expired documents on disk, where
 * nothing is lost yet, until somebody has checked.
 *
 * - paused, restored, grace: the settings say so (collection/hold.c).
 * - clock jump: the clock has moved far ahead of the time that has passed
 *   (clock_watch.c).
 * - subscribed: a subscription writes the table, and its publisher purges.  A
 *   subscriber cannot know this: the publisher may publish inserts only, be a plain
 *   table, or be a subscriber of this table.  Where nobody else purges, the owner
 *   says so with set_purge_subscribed().
 * - blocked: a trigger would run another role's code as the owner of the table
 *   (core/trusted_code.c).
 * - pg_repack: its trigger is on the table, or on a table that a foreign key action
 *   reaches.  The trigger takes arguments, so core/trusted_code.c does not trust it.
 *   The purge goes on when pg_repack has removed it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/rel.h"

#include "purge/purge_internal.h"

/* The reason in the settings, or of the clock, not to purge now; or PURGE_IDLE. */
PurgeState
ttl_docs_hold_by_settings(const Collection *collection, const PurgeTable *table)
{
	SettingsHold hold = ttl_docs_settings_hold(collection->root, &collection->settings);

	if (hold != HOLD_NONE)
		return ttl_docs_state_of_hold(hold);
	return ttl_docs_jump_is_accepted(table) ? PURGE_IDLE : PURGE_CLOCK_JUMP;
}

/*
 * The reason in the catalogs not to purge a table, or PURGE_IDLE.  *detail says more,
 * or is NULL.  *reached are the tables that foreign key actions write to; all of them
 * are locked.
 */
PurgeState
ttl_docs_hold_by_table(Relation rel, const Collection *collection, char **detail,
					   List **reached)
{
	Oid			function;

	*detail = NULL;
	*reached = NIL;
	if (!collection->settings.purge_subscribed &&
		ttl_docs_is_subscribed(RelationGetRelid(rel)))
		return PURGE_SUBSCRIBED;
	*detail = ttl_docs_untrusted_code(rel, collection->root, &function, reached);
	if (*detail == NULL)
		return PURGE_IDLE;
	return ttl_docs_is_repack_function(function) ? PURGE_REPACKED : PURGE_BLOCKED;
}
