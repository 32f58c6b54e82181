/*-------------------------------------------------------------------------
 *
 * collection.h
 *		Functions of collection for other parts: which tables are
 *		collections, the settings of a collection, and its pieces.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_DOCS_COLLECTION_H
#define TTL_DOCS_COLLECTION_H

#include "catalog/objectaccess.h"
#include "storage/lockdefs.h"
#include "tcop/utility.h"
#include "utils/rls.h"
#include "utils/snapshot.h"

#include "citus/citus.h"
#include "core/core.h"

/* label.c */
extern void ttl_docs_label_init(void);
extern List *ttl_docs_all_collections(void);
extern void ttl_docs_write_label(Oid relid, const CollectionSettings *settings);
extern bool ttl_docs_read_label(Oid relid, CollectionSettings *settings);
extern void ttl_docs_set_label(Oid relid, const CollectionSettings *settings);

extern Oid	ttl_docs_exchange_sent_label(Oid relid);
extern void ttl_docs_require_still_dead(Oid relid, const CollectionSettings *before,
										const CollectionSettings *settings,
										TimestampTz since);


/* Has this transaction written the label of a collection? */
static inline bool
ttl_docs_changed_collections(void)
{
	return (ttl_docs_end_turns & TURN_OF_COLLECTION) != 0;
}

/* cache.c */
extern void ttl_docs_cache_init(void);
extern bool ttl_docs_lookup_collection(Oid relid, Collection *collection);
extern bool ttl_docs_has_own_label(Oid relid);
extern bool ttl_docs_is_filling(Oid relid);
extern bool ttl_docs_settings_at(Oid root, Snapshot snapshot, bool use_cache,
								 CollectionSettings *settings);
extern bool ttl_docs_is_seen_by(Oid relid, Snapshot snapshot);
extern void ttl_docs_forget_table_settings(Oid relid);

/* adoptable.c */
extern void ttl_docs_require_adoptable(Relation rel);

/* adopt.c */

/* recompute.c */
extern void ttl_docs_recompute_rows(Oid relid, const Collection *collection);

/* release.c */
extern void ttl_docs_delete_all_expired(Oid relid);

/* open.c */
extern void ttl_docs_lock_tree(Oid relid, LOCKMODE lockmode);
extern void ttl_docs_require_writable(FunctionCallInfo fcinfo);
extern Oid	ttl_docs_collection_arg(FunctionCallInfo fcinfo);
extern Oid	ttl_docs_declared_arg_type(FunctionCallInfo fcinfo, int arg);
extern Relation ttl_docs_open_collection(Oid relid, LOCKMODE lockmode,
										 Collection *collection);
extern Oid	ttl_docs_find_table(const char *name, bool missing_ok);
extern Oid	ttl_docs_find_owned(const char *name, bool missing_ok);
pg_noreturn extern void ttl_docs_report_no_collection(Oid relid);

/* column_defaults.c */
extern void ttl_docs_set_column_defaults(Oid relid, bool constant_ts);

/* partitions.c */
extern List *ttl_docs_collection_tables(Oid root);

/* purge_index.c */
extern Oid	ttl_docs_purge_index(Relation rel, IndexingMode indexing);
extern Oid	ttl_docs_whole_purge_index(Relation rel, IndexingMode indexing);

/* trigger_setup.c */
extern Oid	ttl_docs_trigger_function(void);
extern bool ttl_docs_has_trigger(Oid relid);
extern void ttl_docs_create_trigger(Oid relid, bool hidden);
extern void ttl_docs_hide_trigger(Oid relid, bool hidden);
extern void ttl_docs_drop_trigger(Oid relid);
extern void ttl_docs_require_trigger(Oid relid, const Collection *collection);

/* backup.c */
extern bool ttl_docs_may_act_for_backup(Oid relid);

/* Does pg_dump or a restore run the query? */
static inline bool
ttl_docs_acts_for_backup(Oid relid)
{
	return !row_security && ttl_docs_may_act_for_backup(relid);
}


/* settings_hold.c */

/* Reasons in the settings not to purge a collection */
typedef enum SettingsHold
{
	HOLD_NONE,
	HOLD_GRACE,					/* a change of settings made documents expire */
	HOLD_RESTORED,				/* a restore brought the label */
	HOLD_PAUSED					/* pause_purge() was called */
} SettingsHold;
extern SettingsHold ttl_docs_settings_hold(Oid root, const CollectionSettings *settings);
extern const char *ttl_docs_settings_hold_name(SettingsHold hold);
extern bool ttl_docs_in_grace(const CollectionSettings *settings);
extern char *ttl_docs_grace_left(const CollectionSettings *settings);

/* replication.c */
extern bool ttl_docs_is_subscribed(Oid relid);

/* ddl_notes.c, for hooks.c */
extern bool ttl_docs_begin_notes(Node *parsetree, ProcessUtilityContext context);
extern void ttl_docs_review_notes(void);
extern void ttl_docs_end_notes(void);
extern void ttl_docs_note_object_access(ObjectAccessType access, Oid classId,
										Oid objectId, int subId, void *arg);

#endif							/* TTL_DOCS_COLLECTION_H */
