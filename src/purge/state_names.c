/*-------------------------------------------------------------------------
 *
 * state_names.c
 *		The names of the states that stat_collections shows, and their hints.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/builtins.h"

#include "purge/shared_internal.h"

static const struct
{
	const char *name;
	const char *hint;
}			states[] = {
	[PURGE_IDLE] = {"idle", NULL},
	[PURGE_TRUNCATING] = {"truncating", "The purge waits until it can truncate the table. If this lasts longer than ttl_docs.purge_truncate_wait, a session has an old snapshot; see backend_xmin in pg_stat_activity."},
	[PURGE_WORKING] = {"purging", NULL},
	[PURGE_CAPPED] = {"capped", "Raise ttl_docs.purge_max_rate, or set it to 0."},
	[PURGE_WAITING] = {"waiting", "Other sessions hold locks on the table or on expired documents; see pg_locks."},
	[PURGE_TROUBLE] = {"failing", "See last_error. The purge retries less and less often. After you have fixed the cause: SELECT ttl_docs.resume_purge(%s)."},
	[PURGE_NO_INDEX] = {"no index", "To build the purge index: SELECT ttl_docs.set_indexing(%s, 'consistent')."},
	[PURGE_BLOCKED] = {"blocked", "The delete would run untrusted code as the owner of the table; last_error names it. Give the trigger function to the owner of the table with ALTER FUNCTION ... OWNER TO, and use only built-in immutable functions in the WHEN clause of the trigger."},
	[PURGE_REPACKED] = {"pg_repack", "pg_repack is working on the table; the purge continues afterwards. If pg_repack is not running, an interrupted run has left its trigger: DROP TRIGGER repack_trigger ON that table, or drop the extension pg_repack and create it again."},
	[PURGE_MOVING] = {"moving", "Citus does not use this shard on this node: Citus is still filling it, or will drop it. The purge continues when Citus uses it."},
	[PURGE_SUBSCRIBED] = {"subscription", "A subscription writes to this table, and its publisher should purge it. If no publisher does: SELECT ttl_docs.set_purge_subscribed(%s, true)."},
	[PURGE_CLOCK_JUMP] = {"clock jump", "The clock of the server has jumped ahead. If the clock is wrong, set it right. If it is correct: SELECT ttl_docs.resume_purge(%s)."},
	[PURGE_GRACE] = {NULL, "A change of settings made documents expire. They can be copied out until the hold ends. To purge them now: SELECT ttl_docs.resume_purge(%s)."},
	[PURGE_RESTORED] = {NULL, "The collection was restored. To allow the purge to delete its expired documents: SELECT ttl_docs.resume_purge(%s)."},
	[PURGE_PAUSED] = {NULL, "The purge was paused with ttl_docs.pause_purge(). To resume it: SELECT ttl_docs.resume_purge(%s)."},
};

/*
 * All states that the views show, from the least to the most severe.  "truncating" is
 * less severe than "purging": alerts ignore the backlog of a collection only if all of
 * its tables with a backlog wait for a truncation.
 */
static const char *const by_severity[] = {
	"idle", "off", "uncounted", "truncating", "purging", "capped", "waiting", "failing",
	"no index", "disabled", "no worker", "no launcher", "blocked", "pg_repack", "moving",
	"subscription", "clock jump", "grace", "restored", "paused", "standby",
	STATE_UNREACHABLE
};

/* How severe a state is; a state that we do not know is the most severe. */
int
ttl_docs_state_severity(const char *name)
{
	int			severity = 0;

	while (severity < (int) lengthof(by_severity) &&
		   strcmp(by_severity[severity], name) != 0)
		severity++;
	return severity;
}

/* Do the settings of a collection cause this state, so that all nodes have it? */
bool
ttl_docs_is_state_of_settings(const char *name)
{
	PurgeState	state = ttl_docs_purge_state_named(name);

	return strcmp(name, "off") == 0 || state == PURGE_IDLE || state == PURGE_GRACE ||
		state == PURGE_RESTORED || state == PURGE_PAUSED;
}

const char *
ttl_docs_purge_state_name(PurgeState state)
{
	for (SettingsHold hold = HOLD_GRACE; hold <= HOLD_PAUSED; hold++)
		if (state == ttl_docs_state_of_hold(hold))
			return ttl_docs_settings_hold_name(hold);
	return states[state].name;
}

/* The state with this name; PURGE_TROUBLE if there is none. */
PurgeState
ttl_docs_purge_state_named(const char *name)
{
	for (PurgeState state = PURGE_IDLE; state < (PurgeState) lengthof(states); state++)
		if (strcmp(ttl_docs_purge_state_name(state), name) == 0)
			return state;
	return PURGE_TROUBLE;
}

/* The state of a collection whose settings have this hold. */
PurgeState
ttl_docs_state_of_hold(SettingsHold hold)
{
	static const PurgeState states_of_holds[] = {
		[HOLD_NONE] = PURGE_IDLE,
		[HOLD_GRACE] = PURGE_GRACE,
		[HOLD_RESTORED] = PURGE_RESTORED,
		[HOLD_PAUSED] = PURGE_PAUSED,
	};

	return states_of_holds[hold];
}

/*
 * The hint of a state, or NULL.  Replaces "%s" with the collection, so that users can
 * run the commands in the hint as they are.
 */
const char *
ttl_docs_purge_state_hint(PurgeState state, Oid root)
{
	const char *hint = states[state].hint;
	Collection	collection;

	if (hint == NULL)
		return NULL;
	if (state == PURGE_GRACE && ttl_docs_lookup_collection(root, &collection))
		return psprintf("A change of settings made documents expire. They can be copied out for another %s. To purge them now: SELECT ttl_docs.resume_purge(%s).",
						ttl_docs_grace_left(&collection.settings),
						ttl_docs_quoted_literal(root));
	return psprintf(hint, ttl_docs_quoted_literal(root));
}
