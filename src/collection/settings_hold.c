/*-------------------------------------------------------------------------
 *
 * settings_hold.c
 *		Reasons in the settings of a collection not to purge it.
 *
 * - paused: pause_purge() was called.
 * - restored: the label was written for another table or database.  So a
 *   restore or a copy of a database brought the label.  Without this hold,
 *   all documents with a time to live of a week would be purged a second after
 *   a month-old backup is restored.
 * - grace: a change of settings made live documents expire, and somebody may
 *   want to copy them out (grace.c).
 *
 * purge/hold.c has the reasons that are not in the settings.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"

#include "collection/collection_internal.h"

static const char *const hold_names[] = {
	[HOLD_NONE] = "none",
	[HOLD_GRACE] = "grace",
	[HOLD_RESTORED] = "restored",
	[HOLD_PAUSED] = "paused",
};

static bool is_origin_elsewhere(Oid root, const CollectionSettings *settings);

/* Returns the strongest hold in the settings, or HOLD_NONE. */
SettingsHold
ttl_docs_settings_hold(Oid root, const CollectionSettings *settings)
{
	if (settings->paused)
		return HOLD_PAUSED;
	if (is_origin_elsewhere(root, settings))
		return HOLD_RESTORED;
	return ttl_docs_in_grace(settings) ? HOLD_GRACE : HOLD_NONE;
}

/* Was the label written for another table or database? */
static bool
is_origin_elsewhere(Oid root, const CollectionSettings *settings)
{
	return settings->origin_database != MyDatabaseId ||
		settings->origin_relation != root;
}

/* Did a restore bring the label, even if resume_purge() has ended the hold? */
bool
ttl_docs_was_restored(Oid root, const CollectionSettings *settings)
{
	return settings->restored || is_origin_elsewhere(root, settings);
}

/* Is the purge held because a change of settings made documents expire? */
bool
ttl_docs_in_grace(const CollectionSettings *settings)
{
	return settings->grace_until > ttl_docs_server_clock();
}

/* Returns for how long the purge is still held, as text for people. */
char *
ttl_docs_grace_left(const CollectionSettings *settings)
{
	return ttl_docs_period(settings->grace_until - ttl_docs_server_clock());
}

const char *
ttl_docs_settings_hold_name(SettingsHold hold)
{
	return hold_names[hold];
}
