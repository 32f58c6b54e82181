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

/* label_json.c */
extern const char *ttl_docs_indexing_name(IndexingMode indexing);
extern IndexingMode ttl_docs_parse_indexing(const char *name);

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
extern bool ttl_docs_is_collection(Oid relid);
extern bool ttl_docs_has_own_label(Oid relid);
extern bool ttl_docs_is_filling(Oid relid);
extern bool ttl_docs_settings_at(Oid root, Snapshot snapshot, bool use_cache,
								 CollectionSettings *settings);
extern bool ttl_docs_is_seen_by(Oid relid, Snapshot snapshot);
extern void ttl_docs_forget_table_settings(Oid relid);

/* adoptable.c */
extern void ttl_docs_require_adoptable(Relation rel);

extern void ttl_docs_refuse_shard(Oid relid);
extern void ttl_docs_require_heap(Relation rel);
extern AttrNumber ttl_docs_find_system_column(Relation rel, const char *name,
											  Oid type);

/* indexing.c */
extern IndexingMode ttl_docs_indexing_arg(FunctionCallInfo fcinfo, int arg);
extern void ttl_docs_require_indexing_allowed(Oid relid,
											  const CollectionSettings *settings,
											  IndexingMode indexing);

/* default_ttl.c */
extern bool ttl_docs_default_ttl_arg(FunctionCallInfo fcinfo, int arg,
									 int32 *default_ttl);

/* adopt.c */
extern CollectionSettings ttl_docs_new_settings(bool on, int32 default_ttl,
												const char *indexing);
extern void ttl_docs_require_new_collection(Relation rel);
extern void ttl_docs_add_constant_columns(Oid relid, const CollectionSettings *settings,
										  TimestampTz clock);

/* adopt_columns.c */
extern void ttl_docs_choose_doc_column(Relation rel, const char *doc_column,
									   NameData *name);
extern void ttl_docs_require_last_modified(Relation rel, const char *last_modified);

/* adopt_notices.c */
extern void ttl_docs_warn_of_chosen_column(Oid relid, const char *doc_column);
extern void ttl_docs_warn_on_concurrent_adopt(Oid relid,
											  const CollectionSettings *settings,
											  int64 with_ttl, const char *example,
											  int32 example_ttl);

/* grace.c */

/* How many documents a change of settings makes expire */
typedef struct NewlyExpired
{
	int64		count;
	bool		is_complete;	/* false if there may be more than "count" */
	bool		is_unknown;		/* if true, ignore "count" */
	int			entries_read;	/* of the purge index */
} NewlyExpired;
extern NewlyExpired ttl_docs_count_newly_expired(Oid relid,
												 const CollectionSettings *before,
												 const CollectionSettings *after);
extern void ttl_docs_begin_grace(Oid root, CollectionSettings *settings,
								 const NewlyExpired *found);
extern void ttl_docs_hold_newly_expired(Oid relid, Oid root,
										const CollectionSettings *before,
										CollectionSettings *settings);

/* recompute.c */
extern void ttl_docs_recompute_rows(Oid relid, const Collection *collection);

/* release.c */
extern void ttl_docs_delete_all_expired(Oid relid);

/* open.c */
extern void ttl_docs_lock_tree(Oid relid, LOCKMODE lockmode);
extern void ttl_docs_require_writable(FunctionCallInfo fcinfo);
extern Oid	ttl_docs_collection_arg(FunctionCallInfo fcinfo);
extern Oid	ttl_docs_declared_arg_type(FunctionCallInfo fcinfo, int arg);
extern Relation ttl_docs_open_owned(Oid relid, LOCKMODE lockmode);
extern Relation ttl_docs_open_collection(Oid relid, LOCKMODE lockmode,
										 Collection *collection);
extern Oid	ttl_docs_find_table(const char *name, bool missing_ok);
extern Oid	ttl_docs_find_owned(const char *name, bool missing_ok);
pg_noreturn extern void ttl_docs_report_no_collection(Oid relid);
pg_noreturn extern void ttl_docs_report_partition(Oid relid, Oid root);

/* column_defaults.c */
extern void ttl_docs_set_column_defaults(Oid relid, bool constant_ts);
extern void ttl_docs_comment_on_columns(Oid relid);

/* partitions.c */
extern List *ttl_docs_collection_tables(Oid root);
extern Oid	ttl_docs_pending_partition(Oid relid);
extern void ttl_docs_require_no_pending_detach(Oid relid);

/* change_lock.c */
extern void ttl_docs_begin_concurrent_change(Oid relid);
extern void ttl_docs_end_concurrent_change(Oid relid);
extern void ttl_docs_refuse_concurrent_change(Oid relid);
extern void ttl_docs_require_adopted(Oid relid, const CollectionSettings *settings,
									 const char *action);
extern char *ttl_docs_adoption_command(Oid relid, const CollectionSettings *settings);

/* lazy_blocks.c */
extern struct TIDBitmap *ttl_docs_lazy_blocks(Relation index, const int64 *last_slots);

/* purge_index.c */
extern Oid	ttl_docs_purge_index(Relation rel, IndexingMode indexing);
/* Which valid index is it, or is it not valid? */
typedef enum PurgeIndexForm
{
	INDEX_WHOLE,				/* valid, with entries for all rows */
	INDEX_PARTIAL,				/* valid, with entries for rows that can expire */
	INDEX_INVALID				/* not valid: a concurrent build has failed or is
								 * running, or, for a partitioned table, a partition
								 * has no index that is attached to it */
} PurgeIndexForm;
extern Oid	ttl_docs_whole_purge_index(Relation rel, IndexingMode indexing);
extern Oid	ttl_docs_table_purge_index(Oid relid, IndexingMode indexing,
									   PurgeIndexForm form);

/* The name of the purge index of a table */
typedef struct TableIndexName
{
	Oid			relid;			/* the table */
	Oid			index;
	NameData	name;
} TableIndexName;
extern List *ttl_docs_replaced_purge_indexes(Oid root, IndexingMode before,
											IndexingMode after);
extern void ttl_docs_rename_purge_indexes(List *names, IndexingMode indexing);
extern void ttl_docs_drop_other_purge_indexes(Oid root, IndexingMode kept);
extern const char *ttl_docs_purge_index_definition(IndexingMode indexing);

/* trigger_setup.c */
extern Oid	ttl_docs_trigger_function(void);
extern bool ttl_docs_has_trigger(Oid relid);
extern bool ttl_docs_trigger_always_fires(Oid relid);
extern void ttl_docs_create_trigger(Oid relid, bool hidden);
extern void ttl_docs_hide_trigger(Oid relid, bool hidden);
extern void ttl_docs_drop_trigger(Oid relid);
extern void ttl_docs_require_trigger(Oid relid, const Collection *collection);

/* parent_triggers.c */
extern void ttl_docs_require_parent_triggers(Oid relid);
extern void ttl_docs_forget_complete_children(Oid relid);

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
extern bool ttl_docs_was_restored(Oid root, const CollectionSettings *settings);
extern const char *ttl_docs_settings_hold_name(SettingsHold hold);
extern bool ttl_docs_in_grace(const CollectionSettings *settings);
extern char *ttl_docs_grace_left(const CollectionSettings *settings);

/* expired_rows.c */
extern bool ttl_docs_has_right_slots(Oid relid, const Collection *collection);

/* replication.c */
extern bool ttl_docs_is_subscribed(Oid relid);
extern void ttl_docs_refuse_lossy_replication(Relation rel);
extern void ttl_docs_warn_of_replication(Oid relid);
extern void ttl_docs_notice_published_rows(Relation rel);

/* ddl_notes.c, for hooks.c */
extern bool ttl_docs_begin_notes(Node *parsetree, ProcessUtilityContext context);
extern void ttl_docs_review_notes(void);
extern void ttl_docs_end_notes(void);
extern void ttl_docs_note_object_access(ObjectAccessType access, Oid classId,
										Oid objectId, int subId, void *arg);

#endif							/* TTL_DOCS_COLLECTION_H */
