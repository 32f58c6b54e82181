/*-------------------------------------------------------------------------
 *
 * collection_guard.h
 *		The notes that collection_guard.c takes and collection_review.c reads.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_DOCS_COLLECTION_GUARD_H
#define TTL_DOCS_COLLECTION_GUARD_H

#include "catalog/pg_trigger.h"

#include "ttl_docs.h"

/* In the order in which they are reviewed */
typedef enum NoteKind
{
	NOTE_EXTENSION_DROPPED,
	NOTE_RESTORED,				/* relid got its label by a restore */
	NOTE_LINK_CHANGED,			/* relid became or was a child of other */
	NOTE_COLUMN,				/* a column of relid changed or went */
	NOTE_INDEX_DROPPED,			/* an index of relid */
	NOTE_TRIGGER_DROPPED,		/* our trigger of relid */
	NOTE_TRIGGER				/* trigger other was made or changed */
} NoteKind;

typedef struct Note
{
	NoteKind	kind;
	Oid			relid;
	Oid			other;
	AttrNumber	attno;			/* NOTE_COLUMN; 0 if any */
	NameData	name;			/* its name before the command */
	Oid			type;			/* its type before the command */
	int32		typmod;
	bool		is_doc;			/* it is the document column */
	bool		is_piece;		/* it is that or a system column */
	bool		is_dropped;
	bool		parent_is_collection;	/* NOTE_LINK_CHANGED */
	bool		was_collection; /* relid was a collection by itself */
	CollectionSettings before;	/* its settings, if so */
} Note;

/* A collection that ATTACH PARTITION makes part of another one; InvalidOid = none */
typedef struct AttachedCollection
{
	Oid			child;
	Oid			parent;
	bool		is_linked;		/* core has done it */
} AttachedCollection;

extern bool ttl_docs_fetch_trigger(Oid trigger, Snapshot snapshot,
								   FormData_pg_trigger *form);
extern void ttl_docs_note_restored(Oid relid);
extern void ttl_docs_review(List *notes, Node *parsetree);
extern void ttl_docs_resolve_types(AlterTableStmt *stmt);
extern void ttl_docs_prepare_attach(Node *parsetree, AttachedCollection *attached);
extern void ttl_docs_require_attached(const AttachedCollection *attached);

#endif							/* TTL_DOCS_COLLECTION_GUARD_H */
