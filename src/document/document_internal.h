/*-------------------------------------------------------------------------
 *
 * document_internal.h
 *		What the files of document know of one another.
 *
 * Vocabulary, beside that of ttl_docs.h:
 *
 * id			what a document is called in its collection: a string, or a
 *				number where the key is one.  It is the "id" property of the
 *				document as a client sends and gets it.
 * key			the column that is the primary key, and its value for an id.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_DOCS_DOCUMENT_INTERNAL_H
#define TTL_DOCS_DOCUMENT_INTERNAL_H

#include "executor/spi.h"

#include "collection/collection.h"
#include "document/document.h"

#define ID_PROPERTY		"id"
#define TS_PROPERTY		TTL_DOCS_TS_COLUMN

/* What is known of the key of a table, good for one call */
typedef struct DocumentKey
{
	Oid			relid;
	AttrNumber	column;
	Oid			type;			/* under a domain: what it is based on */
	Oid			input;			/* its input function */
	Oid			ioparam;
	Oid			index;			/* its primary key */
	bool		is_number;		/* is the id a JSON number? */
	bool		is_generated;	/* does the table compute it from the document? */
} DocumentKey;

/* The statements that the document functions stand for */
typedef enum DocumentStatement
{
	STATEMENT_READ,				/* $1 is the key, $2 the document */
	STATEMENT_CREATE,
	STATEMENT_CREATE_WITH_NEW_ID,
	STATEMENT_REPLACE,
	STATEMENT_UPSERT,
	STATEMENT_PATCH,
	STATEMENT_DELETE,
	STATEMENT_TOUCH,
	STATEMENT_ALL,				/* $1 and $2 are not used */
	STATEMENT_CONTAINING,		/* only $2 is */
	STATEMENT_CONTAINING_WITH_ID
} DocumentStatement;
#define NUM_STATEMENTS	(STATEMENT_CONTAINING_WITH_ID + 1)

/* statement.c */
extern DocumentKey ttl_docs_document_key(Oid relid, LOCKMODE lockmode);
extern void ttl_docs_run_statement(const DocumentKey *key,
								   DocumentStatement statement,
								   const Datum *key_value, Jsonb *doc,
								   DestReceiver *receiver);

/* id.c */
extern bool ttl_docs_find_id(Jsonb *doc, JsonbValue *id);
extern Datum ttl_docs_key_of_text(const DocumentKey *key, char *text);
extern Datum ttl_docs_key_of_id(const DocumentKey *key, const JsonbValue *id);
extern char *ttl_docs_text_of_key(const DocumentKey *key, Datum value);
extern Datum ttl_docs_new_key(const DocumentKey *key);
extern void ttl_docs_set_id(JsonbValue *id, const DocumentKey *key, Datum value);
extern bool ttl_docs_same_key(const DocumentKey *key, Datum a, Datum b);

/* properties.c */
typedef struct Property
{
	const char *name;
	JsonbValue *value;			/* NULL takes the property away */
} Property;
extern Jsonb *ttl_docs_set_properties(Jsonb *doc, const Property *properties,
									  int count);
extern JsonbValue *ttl_docs_property(Jsonb *doc, const char *name,
									 JsonbValue *value);
extern Jsonb *ttl_docs_without(Jsonb *doc, const char *name);

#endif							/* TTL_DOCS_DOCUMENT_INTERNAL_H */
