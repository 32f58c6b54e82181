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
#include "nodes/execnodes.h"

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
	bool		is_shell;		/* the table is a shell of Citus */
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

/* returned.c */
extern char *ttl_docs_returned_text(const DocumentKey *key, const char *key_column,
									const char *doc_column);
extern Jsonb *ttl_docs_returned_row(const DocumentKey *key, HeapTuple row,
									TupleDesc tupdesc);
extern void ttl_docs_returned_rows(const DocumentKey *key, Tuplestorestate *rows,
								   ReturnSetInfo *rsinfo);

/* id.c */
extern bool ttl_docs_contains_domain(Oid type);
extern int	ttl_docs_begin_portable_output(void);
extern void ttl_docs_set_locally(const char *name, const char *value);
extern bool ttl_docs_find_id(Jsonb *doc, JsonbValue *id);
extern Datum ttl_docs_key_of_arg(const DocumentKey *key, FunctionCallInfo fcinfo,
								 int arg);
extern Datum ttl_docs_key_of_id(const DocumentKey *key, const JsonbValue *id);
extern char *ttl_docs_text_of_key(const DocumentKey *key, Datum value);
extern Datum ttl_docs_new_key(const DocumentKey *key);
extern void ttl_docs_make_id(JsonbValue *id, const DocumentKey *key, Datum value);
extern void ttl_docs_make_id_of_text(JsonbValue *id, const DocumentKey *key,
									 char *text);
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
extern Jsonb *ttl_docs_add_properties(Jsonb *doc, JsonbValue *id,
									  const TimestampTz *ts);

#endif							/* TTL_DOCS_DOCUMENT_INTERNAL_H */
