/*-------------------------------------------------------------------------
 *
 * collection_internal.h
 *		Functions and types that the files of collection share.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_DOCS_COLLECTION_INTERNAL_H
#define TTL_DOCS_COLLECTION_INTERNAL_H

#include "catalog/pg_trigger.h"
#include "nodes/parsenodes.h"

#include "collection/collection.h"
#include "purge/notify.h"

/* label.c */
extern bool ttl_docs_read_label_at(Oid relid, Snapshot snapshot,
								   CollectionSettings *settings,
								   TransactionId *writer);
extern int	ttl_docs_remove_all_labels(void);

/* label_json.c */
extern char *ttl_docs_print_label(const CollectionSettings *settings);
extern void ttl_docs_parse_label(const char *label, CollectionSettings *settings);

/* cache.c */
extern void ttl_docs_find_columns(Oid relid, Collection *collection);
extern void ttl_docs_invalidate_tree(Oid relid);

/* partitions.c */
extern List *ttl_docs_partition_tree(Oid relid, LOCKMODE lockmode);

/* open.c */
extern void ttl_docs_require_unused(Relation rel, const char *action);
extern Relation ttl_docs_open_unused(Oid relid, LOCKMODE lockmode,
									 const char *action, Collection *collection);

/* name.c */
extern RangeVar *ttl_docs_parse_name(const char *name);

/* adoptable.c */
extern void ttl_docs_refuse_system_column_in_key(Relation rel);
pg_noreturn extern void ttl_docs_report_mixed_partition(Oid parent, Oid child);

/* purge_index.c */
extern Oid	ttl_docs_other_purge_index(Relation rel, IndexingMode indexing,
									   Oid excluded);
extern void ttl_docs_create_purge_index(Oid relid, IndexingMode indexing);
extern void ttl_docs_drop_invalid_purge_indexes(Oid root, IndexingMode indexing);
extern void ttl_docs_create_whole_purge_index(Oid relid, IndexingMode indexing);

/* trigger_setup.c */
extern bool ttl_docs_fetch_trigger(Oid trigger, Snapshot snapshot,
								   FormData_pg_trigger *form);
extern void ttl_docs_require_last_trigger(Relation rel);

/* parent_triggers.c */
extern bool ttl_docs_is_parent_trigger(const FormData_pg_trigger *form);
extern bool ttl_docs_update_triggers_of_children(Oid relid);
extern void ttl_docs_review_foreign_key(Oid constraint);
extern void ttl_docs_review_parent_trigger(Oid child);

/* invalid_ttl.c */
extern void ttl_docs_refuse_invalid_ttl(Oid relid, const char *doc_column,
										const char *condition);
extern bool ttl_docs_has_rows_with_ttl(Relation rel, const char *doc_column);

/* expired_rows.c */
typedef struct ExpiredRows ExpiredRows;
extern ExpiredRows *ttl_docs_begin_expired_rows(Relation rel,
												const Collection *collection);
extern TupleTableSlot *ttl_docs_next_expired_row(ExpiredRows *expired);
extern void ttl_docs_end_expired_rows(ExpiredRows *expired);
extern void ttl_docs_mark_purged_rows(Oid relid);

/* adopt.c */
extern void ttl_docs_adopt_table(Oid relid, CollectionSettings *settings,
								 const char *doc_column, const char *last_modified);

/* adopt_notices.c */
extern int64 ttl_docs_warn_on_adopt(Oid relid, const CollectionSettings *settings,
									bool has_own_ttl, bool has_old_stamps);

/* ddl_notes.c */

/* What a command did.  The review handles the kinds in this order. */
typedef enum NoteKind
{
	NOTE_EXTENSION_DROPPED,		/* ttl_docs itself */
	NOTE_RESTORED,				/* SECURITY LABEL made a table a collection */
	NOTE_LINK_CHANGED,			/* a table got or lost a parent table */
	NOTE_CONSTRAINT,			/* any constraint was created or changed */
	NOTE_COLUMN,				/* a column was changed or dropped */
	NOTE_INDEX_DROPPED,
	NOTE_TRIGGER_DROPPED,		/* our trigger */
	NOTE_PARENT_TRIGGER,		/* a parent trigger was dropped or changed */
	NOTE_TRIGGER				/* any trigger was created or changed */
} NoteKind;

typedef struct Note
{
	NoteKind	kind;
	Oid			relid;			/* the table; not set for NOTE_TRIGGER,
								 * NOTE_CONSTRAINT and NOTE_EXTENSION_DROPPED */
	Oid			other;			/* the parent for NOTE_LINK_CHANGED, the
								 * trigger for NOTE_TRIGGER, the constraint for
								 * NOTE_CONSTRAINT */

	/* The next fields are for NOTE_COLUMN only */
	AttrNumber	attno;			/* 0 if the column is not known */
	NameData	name;			/* before the command */
	Oid			type;			/* before the command */
	int32		typmod;			/* before the command */
	bool		is_doc;			/* is this the document column? */
	bool		is_last_modified;	/* does an adoption that is not complete
									 * take the first _ts from this column? */
	bool		is_piece;		/* is this the document column or a system
								 * column? */
	bool		is_dropped;

	/* The next fields are for NOTE_LINK_CHANGED only */
	bool		parent_is_collection;
	bool		was_collection; /* was relid a collection by itself? */
	CollectionSettings before;	/* settings of relid, if was_collection */
} Note;
extern void ttl_docs_note_restored(Oid relid);

/* ddl_review.c */
extern void ttl_docs_review(List *notes, Node *parsetree);
extern void ttl_docs_check_drop_extension(Node *parsetree);
extern void ttl_docs_check_drop_index_concurrently(Oid index, Oid table,
												   const Collection *collection);
extern int	ttl_docs_errhint_release(Oid root);

/* ddl_columns.c */
extern void ttl_docs_refuse_last_modified_change(AlterTableStmt *stmt);
extern void ttl_docs_review_column(Note *note, Node *parsetree);
extern void ttl_docs_require_columns(Oid relid, const Collection *collection);
extern void ttl_docs_resolve_types(AlterTableStmt *stmt);

/* ddl_partitions.c */

/* A collection that ATTACH PARTITION adds to another collection */
typedef struct AttachedCollection
{
	Oid			child;			/* InvalidOid if there is no such collection */
	Oid			parent;
	bool		is_linked;		/* has core attached child to parent? */
} AttachedCollection;
extern void ttl_docs_prepare_attach(Node *parsetree, AttachedCollection *attached);
extern void ttl_docs_require_attached(const AttachedCollection *attached);
extern void ttl_docs_review_link(Note *note, bool may_have_rows);

#endif							/* TTL_DOCS_COLLECTION_INTERNAL_H */
