/*-------------------------------------------------------------------------
 *
 * ttl_docs.h
 *		What the parts of ttl_docs know of one another.
 *
 * Vocabulary, used with these meanings in every file:
 *
 * collection	a table known to ttl_docs; it has one jsonb document column.
 *				A partition belongs to the collection that its root is.
 * DefaultTTL	the collection's setting: off, -1 (on without a default) or
 *				seconds.
 * ttl			a document's own time to live, from its "ttl" property, kept
 *				in the column _ttl; NULL inherits the DefaultTTL, -1 never
 *				expires, 0 marks a value that is not valid, which only a
 *				collection whose TTL is off can hold.
 * stamp		_ts, the clock at the document's last write.
 * due			stamp plus time to live.
 * expired		due <= the instant; final, see expiry.c.
 * instant		the one point in time that judges all of a query.
 * clock		the time at this very moment, which judges writes.
 * floor		what keeps expired documents dead when a setting changes.
 * slot			the coarse position of a document in the purge index.
 * piece		what a collection is made of and may not lose while it is one:
 *				system columns, document column, trigger, purge index.
 *
 * The parts: collection_*.c (metadata, its cache and its guards), access_*.c
 * (reads), write_*.c (writes), purge_*.c (the way off the disk, with a header
 * of its own, purge.h); expiry.c and clock.c are what all of them judge by.  src/README.md tells how they work together.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_DOCS_H
#define TTL_DOCS_H

#include "access/attnum.h"
#include "access/htup.h"
#include "commands/trigger.h"
#include "datatype/timestamp.h"
#include "executor/execdesc.h"
#include "fmgr.h"
#include "nodes/execnodes.h"
#include "nodes/bitmapset.h"
#include "nodes/parsenodes.h"
#include "storage/itemptr.h"
#include "storage/lockdefs.h"
#include "utils/jsonb.h"
#include "utils/relcache.h"
#include "utils/timestamp.h"

#include "compat.h"

/* What users call, and what only the extension itself does */
#define TTL_DOCS_SCHEMA		"ttl_docs"
#define TTL_DOCS_INTERNAL	"ttl_docs_internal"

#define TTL_DOCS_PROVIDER	"ttl_docs"
#define TTL_DOCS_EXTENSION	"ttl_docs"

#define TTL_DOCS_TS_COLUMN		"_ts"
#define TTL_DOCS_TTL_COLUMN		"_ttl"
#define TTL_DOCS_SLOT_COLUMN	"_slot"

/*
 * Row triggers fire in the byte order of their names, and ours has to see the
 * row as it will be stored.  The guards keep later names away.
 */
#define TTL_DOCS_TRIGGER		"zzz_ttl_docs"
#define TTL_DOCS_TRIGGER_FUNCTION	"write_document"

/* Special values of DefaultTTL and ttl */
#define TTL_NEVER		(-1)
#define TTL_INVALID		0
#define TTL_MAX			PG_INT32_MAX

/* Where the purge index finds the documents, see expiry.c */
typedef enum IndexingMode
{
	INDEXING_CONSISTENT,
	INDEXING_LAZY,
	INDEXING_NONE
} IndexingMode;

/* What the label of a collection says */
typedef struct CollectionSettings
{
	NameData	doc_column;
	bool		on;				/* is the DefaultTTL set? */
	int32		default_ttl;	/* TTL_NEVER or seconds; TTL_NEVER when off */
	IndexingMode indexing;
	TimestampTz written_floor;	/* inheriting documents stamped up to here are
								 * dead; DT_NOBEGIN = none */
	TimestampTz due_floor;		/* documents with a ttl of their own that were
								 * due up to here are dead; likewise */
	bool		paused;			/* no purge */
	TimestampTz grace_until;	/* no purge until then, see collection_grace.c;
								 * DT_NOBEGIN = none */
	bool		purge_subscribed;	/* the purge does not leave it to the
									 * publisher */
	Oid			origin_database;	/* where the label was written: */
	Oid			origin_relation;	/* elsewhere, it came by a restore */
} CollectionSettings;

/* A table of a collection: its root or one of its partitions */
typedef struct Collection
{
	Oid			root;			/* the table whose label counts */
	CollectionSettings settings;
	/* columns of this very table; InvalidAttrNumber where one is missing */
	AttrNumber	doc;
	AttrNumber	ts;
	AttrNumber	ttl;
	AttrNumber	slot;
} Collection;

/*
 * The settings and an instant in one: inheriting documents stamped up to
 * "written" and documents with a ttl of their own due up to "due" are expired.
 */
typedef struct ExpiryBounds
{
	TimestampTz written;
	TimestampTz due;
} ExpiryBounds;

/* A query between ExecutorStart and ExecutorEnd, see access_instant.c */
typedef struct LiveQuery LiveQuery;

/* ttl_docs.c */
extern void ttl_docs_require_preload(void);
extern void ttl_docs_require_writable(FunctionCallInfo fcinfo);

/* guc.c */
extern int	ttl_docs_clock_offset;
extern int	ttl_docs_max_tables;
extern bool ttl_docs_purge_on;
extern int	ttl_docs_purge_batch_size;
extern int	ttl_docs_purge_grace;
extern int	ttl_docs_purge_max_rate;
extern int	ttl_docs_purge_naptime;
extern int	ttl_docs_purge_workers;
extern bool ttl_docs_show_expired;
extern void ttl_docs_guc_init(void);

/* clock.c */
extern TimestampTz ttl_docs_clock(void);
extern TimestampTz ttl_docs_server_clock(void);
extern TimestampTz ttl_docs_shifted(TimestampTz time);
extern int64 ttl_docs_elapsed(void);
extern char *ttl_docs_period(int64 microseconds);

/* expiry.c */
extern TimestampTz ttl_docs_due(TimestampTz ts, int32 ttl);
extern ExpiryBounds ttl_docs_bounds(const CollectionSettings *settings,
									TimestampTz instant);
extern bool ttl_docs_is_expired(const ExpiryBounds *bounds, TimestampTz ts,
								bool inherits, int32 ttl);
extern bool ttl_docs_row_is_expired(const ExpiryBounds *bounds,
									const Collection *collection,
									TupleTableSlot *row);
extern TimestampTz ttl_docs_expires_at(const CollectionSettings *settings,
									   TimestampTz ts, bool inherits, int32 ttl);
extern TimestampTz ttl_docs_expired_from(const CollectionSettings *settings,
										 TimestampTz ts, bool inherits, int32 ttl);
extern TimestampTz ttl_docs_row_expired_from(const Collection *collection,
											 TupleTableSlot *row);
extern void ttl_docs_move_floors(CollectionSettings *settings,
								 TimestampTz clock);
extern TimestampTz ttl_docs_new_stamp(const CollectionSettings *settings,
									  TimestampTz clock, bool inherits, int32 ttl);
extern bool ttl_docs_may_be_slot(TimestampTz ts, int64 slot);
extern int64 ttl_docs_whole_seconds(TimestampTz time);
extern bool ttl_docs_slot(TimestampTz ts, bool inherits, int32 ttl,
						  int32 default_ttl, int64 *slot);

#define SLOT_INHERITING_OFFSET	(INT64CONST(1) << 62)
/* between the two kinds of slots: stamps lie within 2^43 seconds of zero */
#define SLOT_RANGE_BORDER		(-(SLOT_INHERITING_OFFSET / 2))
#define SLOT_INVALID			PG_INT64_MAX
#define SLOT_MAX_WIDTH			64	/* seconds */

/* collection_label.c */
extern void ttl_docs_label_init(void);
extern bool ttl_docs_read_label(Oid relid, CollectionSettings *settings);
extern bool ttl_docs_read_label_at(Oid relid, Snapshot snapshot,
								   CollectionSettings *settings,
								   TransactionId *writer);
extern void ttl_docs_set_label(Oid relid, const CollectionSettings *settings);
extern bool ttl_docs_push_snapshot(void);
extern void ttl_docs_write_label(Oid relid, const CollectionSettings *settings);
extern int	ttl_docs_remove_all_labels(void);
extern List *ttl_docs_all_collections(void);
extern List *ttl_docs_partition_tree(Oid relid, LOCKMODE lockmode);
extern void ttl_docs_require_no_pending_detach(Oid relid);
extern void ttl_docs_invalidate_tree(Oid relid);
extern const char *ttl_docs_indexing_name(IndexingMode indexing);
extern IndexingMode ttl_docs_parse_indexing(const char *name);
extern void ttl_docs_check_default_ttl(int32 default_ttl);

/* collection_cache.c */
extern void ttl_docs_cache_init(void);
extern bool ttl_docs_collection(Oid relid, Collection *collection);
extern void ttl_docs_find_columns(Oid relid, Collection *collection);
extern bool ttl_docs_has_own_label(Oid relid);
extern void ttl_docs_forget(Oid relid);
extern bool ttl_docs_settings_at(Oid root, Snapshot snapshot, bool use_cache,
								 CollectionSettings *settings);
extern bool ttl_docs_is_seen_by(Oid relid, Snapshot snapshot);

/* collection_pieces.c */
extern void ttl_docs_require_adoptable(Relation rel);
extern AttrNumber ttl_docs_find_system_column(Relation rel, const char *name,
											  Oid type);
extern void ttl_docs_require_free_partition_key(Relation rel);
extern Oid	ttl_docs_purge_index(Relation rel, IndexingMode indexing);
extern Oid	ttl_docs_other_purge_index(Relation rel, IndexingMode indexing,
									   Oid excluded);
extern Oid	ttl_docs_trigger_function(void);
extern bool ttl_docs_has_trigger(Oid relid);
extern void ttl_docs_drop_trigger(Oid relid);
extern List *ttl_docs_collection_tables(Oid root);
extern char *ttl_docs_quoted_name(Oid relid);
extern void ttl_docs_run(const char *format,...) pg_attribute_printf(1, 2);
extern void ttl_docs_create_trigger(Oid relid);
extern void ttl_docs_create_purge_index(Oid relid, IndexingMode indexing);
extern void ttl_docs_drop_purge_index(Oid relid, IndexingMode indexing);
extern void ttl_docs_refuse_invalid_ttl(Oid relid, const char *doc_column,
										const char *condition);
extern void ttl_docs_require_last_trigger(Relation rel);
pg_noreturn extern void ttl_docs_report_no_collection(Oid relid);

/* collection_grace.c */
typedef struct NewlyExpired
{
	int64		count;
	bool		is_complete;	/* else there may be more */
	bool		is_unknown;		/* and the count means nothing */
	int			entries_read;
} NewlyExpired;
extern NewlyExpired ttl_docs_count_newly_expired(Oid relid,
												 const CollectionSettings *before,
												 const CollectionSettings *after);
extern void ttl_docs_begin_grace(Oid root, CollectionSettings *settings,
								 const NewlyExpired *found);
extern bool ttl_docs_in_grace(const CollectionSettings *settings);
extern char *ttl_docs_grace_left(const CollectionSettings *settings);

/* collection_mend.c */
extern void ttl_docs_mend_derived(Oid relid, const Collection *collection);

/* collection_ddl.c */
extern Oid	ttl_docs_collection_arg(FunctionCallInfo fcinfo);
extern Relation ttl_docs_open_owned(Oid relid, LOCKMODE lockmode);
extern Relation ttl_docs_open_collection(Oid relid, LOCKMODE lockmode,
										 Collection *collection);
extern void ttl_docs_require_unused(Relation rel, const char *action);

/* collection_replication.c */
extern void ttl_docs_refuse_lossy_replication(Relation rel);
extern void ttl_docs_warn_of_replication(Oid relid);

/* collection_notices.c */
extern int64 ttl_docs_warn_on_adopt(Oid relid, const CollectionSettings *settings,
									bool has_old_stamps);
extern void ttl_docs_warn_of_chosen_column(Oid relid, const char *doc_column);

/* collection_guard.c */
extern void ttl_docs_guard_init(void);

/* collection_citus.c */
extern void ttl_docs_citus_init(void);
extern void ttl_docs_refuse_citus_table(Relation rel);
extern void ttl_docs_refuse_citus_attach(Oid parent, Oid child);
extern void ttl_docs_refuse_citus_trigger(Oid trigger);
extern void ttl_docs_refuse_citus_rename(Oid relid, const char *trigger);

/* access_plan.c */
extern void ttl_docs_plan_init(void);
extern void ttl_docs_prepare_plan(QueryDesc *queryDesc);
extern void ttl_docs_require_trigger(Oid relid, const Collection *collection);

/* access_foreign_key.c */
#define PARENT_ALIAS	"pk"	/* of the parents in core's queries */
typedef struct ForeignKeyValidation
{
	bool		possible;
	LiveQuery  *running;		/* the query, if any, that runs the command */
} ForeignKeyValidation;
extern void ttl_docs_begin_validation(bool possible, ForeignKeyValidation *outer);
extern void ttl_docs_stop_validation(void);
extern void ttl_docs_end_validation(const ForeignKeyValidation *outer);
extern bool ttl_docs_may_validate(void);
extern bool ttl_docs_looks_like_validation(const Query *parse);
extern void ttl_docs_recognise_foreign_key_query(LiveQuery *query,
												 const QueryDesc *queryDesc,
												 int eflags);

/* access_repack.c */
extern bool ttl_docs_is_repack_function(Oid function);
extern Oid	ttl_docs_repacked_collection(const PlannedStmt *stmt);

/* access_paths.c */
extern void ttl_docs_paths_init(void);

/* access_instant.c */
struct LiveQuery
{
	struct LiveQuery *next;		/* the live query started before this one */
	Snapshot	snapshot;
	EState	   *estate;			/* NULL while ExecutorStart runs */
	PlannedStmt *stmt;			/* valid while the query runs; NULL for a
								 * utility command */
	bool		is_utility;
	bool		copies_snapshot;	/* a utility command that runs its query
									 * under a copy of its snapshot */
	TimestampTz instant;
	bool		foreign_key_check;	/* a query of core's RI triggers, judged
									 * at the clock */
	bool		needs_all_rows; /* such a query for a period of time */
	bool		foreign_key_action; /* a write of core's RI triggers */
	bool		validates_foreign_key;	/* run by ALTER TABLE itself, to check the
										 * rows that are there */
	TimestampTz checked_due;	/* when the row that such a query found will
								 * expire */
	Oid			repacked;		/* the collection that pg_repack copies by this
								 * query, or InvalidOid */
	struct KeptSettings *settings;	/* that it goes by, see access_test.c */
};
extern void ttl_docs_instant_init(void);
extern TimestampTz ttl_docs_current_instant(void);
extern void ttl_docs_note_function(Oid function);
extern LiveQuery *ttl_docs_running_query(void);
extern int	ttl_docs_instant_param(const PlannedStmt *stmt);
/* the types of the parameter for the instant, and of the mark after it, which is no
 * parameter: core leaves the OIDs from 8000 to 9999 to its own development */
#define INSTANT_PARAM_TYPE	INTERNALOID
#define PLAN_MARK_TYPE		9876

/* access_snapshot.c */
extern void ttl_docs_snapshot_init(void);
extern void ttl_docs_publish_instant(TimestampTz instant);
extern void ttl_docs_unpublish_instants(void);
extern TimestampTz ttl_docs_instant_to_import(Node *parsetree);

/* access_copy.c */
extern void ttl_docs_copy_init(void);

/* access_test.c */
pg_noreturn extern void ttl_docs_report_later_collection(Oid relid);
extern bool ttl_docs_acts_for_backup(Oid relid);
extern void ttl_docs_forget_kept_settings(void);

/* write_ttl.c */
extern int32 ttl_docs_document_ttl(Jsonb *doc, bool *inherits,
								   JsonbValue *offending);
extern char *ttl_docs_json_excerpt(Jsonb *value);

/* write_stamp.c */
typedef struct KeyProbe KeyProbe;
struct PurgeTable;

/* Whoever writes documents to a table, for the duration of a query */
typedef struct DocumentWriter
{
	Oid			relid;
	Collection	collection;
	KeyProbe   *keys;
	struct PurgeTable *purge;	/* where the purge keeps the table, or NULL */
	TimestampTz announced;		/* the earliest expiry of the rows so far */
	TimestampTz clock;			/* when the row at hand is written */
} DocumentWriter;

/* The system columns of a row */
typedef struct Stamp
{
	TimestampTz ts;
	bool		inherits;		/* the ttl is NULL */
	int32		ttl;
	bool		has_slot;
	int64		slot;
} Stamp;
extern void ttl_docs_begin_writes(DocumentWriter *writer, Relation rel,
								  const Collection *collection);
extern int32 ttl_docs_ttl_in(Datum doc, bool isnull, bool *inherits,
							 JsonbValue *offending);
extern bool ttl_docs_refuses_ttl(const DocumentWriter *writer, bool inherits,
								 int32 ttl);
extern Stamp ttl_docs_stamp_now(const DocumentWriter *writer, bool inherits,
								int32 ttl);
extern Stamp ttl_docs_stamp_at(const DocumentWriter *writer, TimestampTz ts,
							   bool inherits, int32 ttl);
extern void ttl_docs_note_stamp(DocumentWriter *writer, const Stamp *stamp);

/* write_messages.c */
pg_noreturn extern void ttl_docs_report_invalid_ttl(Relation rel, const Datum *values,
													const bool *isnull,
													const JsonbValue *ttl);
extern void ttl_docs_warn_of_ttl_while_off(const DocumentWriter *writer);
extern void ttl_docs_warn_of_ttl_column(const DocumentWriter *writer, int32 sent);

/* write_trigger.c */
pg_noreturn extern void ttl_docs_report_expired_upsert(void);
extern bool ttl_docs_is_by_replication(void);

/* write_partition.c */
typedef struct PartitionCheck PartitionCheck;
extern PartitionCheck *ttl_docs_partition_check(Relation rel);
extern void ttl_docs_check_partition(PartitionCheck *check, HeapTuple tuple);

/* write_copy.c */
extern void ttl_docs_bulk_copy_init(void);

/* write_keys.c */
extern KeyProbe *ttl_docs_key_probe(const Collection *collection);
extern void ttl_docs_free_keys(KeyProbe *probe, Relation rel,
							   HeapTuple newtuple, HeapTuple oldtuple,
							   TimestampTz clock);
extern bool ttl_docs_must_free_keys(KeyProbe *probe, Relation rel,
									TimestampTz clock);
extern void ttl_docs_free_keys_of(KeyProbe *probe, Relation rel,
								  TupleTableSlot *row,
								  void (*before_delete) (void *), void *arg);

/* write_earliest.c; what the purge does with it is in purge.h */
extern void ttl_docs_earliest_init(void);
extern void ttl_docs_announce_expiry(Oid relid, Oid root, TimestampTz expiry);
extern bool ttl_docs_nothing_expired(Relation rel, const Collection *collection,
									 TimestampTz clock);

/* document_statement.c; the rest of the document functions is in document.h */
extern void ttl_docs_document_init(void);

/* row_delete.c */
typedef enum DeleteResult
{
	DELETE_DONE,				/* deleted, its triggers and actions fired */
	DELETE_CHANGED,				/* somebody else was faster: look again */
	DELETE_BUSY,				/* somebody else has it locked */
	DELETE_REFUSED				/* a trigger, or this very command, keeps it */
} DeleteResult;

typedef struct RowDeleter
{
	Relation	rel;
	EState	   *estate;
	ResultRelInfo *relinfo;
	ResultRelInfo *root;		/* whose statement triggers fire, if another's */
	EPQState	epqstate;
	TransitionCaptureState *transition;
	bool		fires_statement;
	bool		fires_before;	/* row triggers other than ours */
	bool		fires_after;
	bool		one_query;		/* all rows in one trigger query, */
	bool		query_is_open;	/* which has begun */
	bool		has_trigger_query;	/* and core knows of */
} RowDeleter;
extern void ttl_docs_begin_deletes(RowDeleter *deleter, Relation rel, Relation root);
extern DeleteResult ttl_docs_delete_row(RowDeleter *deleter, ItemPointer tid,
										CommandId cid, bool wait);
extern void ttl_docs_end_deletes(RowDeleter *deleter);
extern bool ttl_docs_is_purging(void);
extern void ttl_docs_begin_purging(void);
extern void ttl_docs_end_purging(void);
extern void ttl_docs_fire_at_once(EState *estate);

/* as_owner.c */
typedef struct OwnerSwitch
{
	Oid			user;
	int			sec_context;
	int			nest_level;
} OwnerSwitch;
extern void ttl_docs_become_owner(Relation rel, OwnerSwitch *before);
extern void ttl_docs_become_caller(const OwnerSwitch *before);
extern void ttl_docs_query_as_owner(Relation rel, const char *sql);

/* write_delete.c */
extern DeleteResult ttl_docs_delete_expired(Relation rel,
											const Collection *collection,
											ItemPointer tid);

/* purge_due.c; the rest of the purge is in purge.h */
extern bool ttl_docs_changed_collections(void);
extern void ttl_docs_note_document(struct PurgeTable **entry, Oid relid,
								   const Collection *collection, int64 slot);
extern void ttl_docs_note_change(Oid root);

/* purge_launcher.c */
extern void ttl_docs_purge_init(void);

#endif							/* TTL_DOCS_H */
