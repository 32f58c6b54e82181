/*-------------------------------------------------------------------------
 *
 * document_internal.h
 *		Declarations that the files of document share.
 *
 * Vocabulary, in addition to that of ttl_docs.h:
 *
 * id			identifies a document in its collection, for clients: the "id"
 *				property of the document.  A string, or a number if the key
 *				column has a numeric type.
 * key column	the column that is the primary key of the table.
 * key			the id as a value of the key column.
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

/* The key column of a table; valid during one call of a document function */
typedef struct DocumentKey
{
	Oid			relid;
	AttrNumber	column;
	Oid			type;			/* of the column; for a domain, its base type */
	Oid			input;			/* input function of the type */
	Oid			ioparam;		/* argument of the input function */
	Oid			index;			/* index of the primary key */
	bool		is_number;		/* the type is numeric */
	bool		is_generated;	/* the column is generated */
} DocumentKey;

/*
 * The statements that the document functions run.  $1 is the key.  $2 is the
 * document, the patch or the filter.  Not every statement uses both.
 */
typedef enum DocumentStatement
{
	STATEMENT_READ,
	STATEMENT_CREATE,
	STATEMENT_CREATE_WITH_NEW_ID,
	STATEMENT_REPLACE,
	STATEMENT_UPSERT,
	STATEMENT_PATCH,
	STATEMENT_DELETE,
	STATEMENT_TOUCH,
	/* the following statements read any number of documents */
	STATEMENT_ALL,
	STATEMENT_CONTAINING,
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
extern bool ttl_docs_contains_domain(Oid type);
extern bool ttl_docs_find_id(Jsonb *doc, JsonbValue *id);
extern Datum ttl_docs_key_of_arg(const DocumentKey *key, FunctionCallInfo fcinfo,
								 int arg);
extern Datum ttl_docs_key_of_id(const DocumentKey *key, const JsonbValue *id);
extern char *ttl_docs_text_of_key(const DocumentKey *key, Datum value);
extern Datum ttl_docs_new_key(const DocumentKey *key);
extern void ttl_docs_make_id(JsonbValue *id, const DocumentKey *key, Datum value);
extern bool ttl_docs_same_key(const DocumentKey *key, Datum a, Datum b);

/* properties.c */
typedef struct Property
{
	const char *name;
	JsonbValue *value;			/* NULL removes the property */
} Property;
extern Jsonb *ttl_docs_set_properties(Jsonb *doc, const Property *properties,
									  int count);
extern JsonbValue *ttl_docs_get_property(Jsonb *doc, const char *name,
										 JsonbValue *value);
extern Jsonb *ttl_docs_without_property(Jsonb *doc, const char *name);

#endif							/* TTL_DOCS_DOCUMENT_INTERNAL_H */
