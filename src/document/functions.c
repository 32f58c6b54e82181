/*-------------------------------------------------------------------------
 *
 * functions.c
 *		The document functions: the verbs of the Cosmos DB SDKs (create, read,
 *		replace, upsert, patch, delete, touch), and documents(), which returns
 *		the documents that contain a filter.
 *
 * Each function checks its arguments and runs one statement (statement.c) as
 * the caller, with the caller's privileges.  The functions that read are
 * STABLE: they use the snapshot and the instant of the query that calls them.
 * The functions that write are VOLATILE: their statement has its own snapshot
 * and instant.
 *
 * The id of a document is its "id" property.  In the table, the id is the
 * key.  The document keeps the "id" property, too, so that a filter and a GIN
 * index can find it.  A new document without an id gets one (id.c).
 *
 * An error leaves nothing to clean up: all memory belongs to SPI or to the
 * caller.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "executor/tstoreReceiver.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "tcop/dest.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"
#include "utils/lsyscache.h"

#include "access/access.h"
#include "document/document_internal.h"

PG_FUNCTION_INFO_V1(ttl_docs_create_document);
PG_FUNCTION_INFO_V1(ttl_docs_upsert_document);
PG_FUNCTION_INFO_V1(ttl_docs_read_document);
PG_FUNCTION_INFO_V1(ttl_docs_replace_document);
PG_FUNCTION_INFO_V1(ttl_docs_patch_document);
PG_FUNCTION_INFO_V1(ttl_docs_delete_document);
PG_FUNCTION_INFO_V1(ttl_docs_touch_document);
PG_FUNCTION_INFO_V1(ttl_docs_documents);

static Datum insert_document(FunctionCallInfo fcinfo, bool or_replace);
static Datum write_by_id(FunctionCallInfo fcinfo, DocumentStatement statement);
static DocumentKey key_of_collection(FunctionCallInfo fcinfo,
									 LOCKMODE lockmode);
static Jsonb *object_arg(FunctionCallInfo fcinfo, int arg, const char *name);
static void require_id_equals_key(const DocumentKey *key, Datum value,
								  Jsonb *returned);
static Jsonb *patch_without_id(const DocumentKey *key, Jsonb *patch,
							   Datum value);
pg_noreturn static void report_no_document(const DocumentKey *key,
										   Datum value);
static uint64 run_for_key(const DocumentKey *key, DocumentStatement statement,
						  Datum key_value, Jsonb *doc, Jsonb **returned);
static void run_for_set(const DocumentKey *key, DocumentStatement statement,
						const Datum *key_value, Jsonb *filter,
						ReturnSetInfo *rsinfo);

/*
 * create_document(collection regclass, doc jsonb)
 */
Datum
ttl_docs_create_document(PG_FUNCTION_ARGS)
{
	return insert_document(fcinfo, false);
}

/*
 * upsert_document(collection regclass, doc jsonb)
 */
Datum
ttl_docs_upsert_document(PG_FUNCTION_ARGS)
{
	return insert_document(fcinfo, true);
}

/* Returns NULL if a user's trigger has suppressed the insert. */
static Datum
insert_document(FunctionCallInfo fcinfo, bool or_replace)
{
	DocumentKey key = key_of_collection(fcinfo, RowExclusiveLock);
	Jsonb	   *doc = ttl_docs_without_property(object_arg(fcinfo, 1, "document"),
												TS_PROPERTY);
	DocumentStatement statement = or_replace ? STATEMENT_UPSERT : STATEMENT_CREATE;
	JsonbValue	id;
	Datum		value;
	Jsonb	   *returned;

	if (ttl_docs_find_id(doc, &id))
		value = ttl_docs_key_of_id(&key, &id);
	else
	{
		Property	with_id = {ID_PROPERTY, &id};

		value = ttl_docs_new_key(&key);
		ttl_docs_make_id(&id, &key, value);
		doc = ttl_docs_set_properties(doc, &with_id, 1);
		/* a document with a new id replaces no other document */
		statement = STATEMENT_CREATE_WITH_NEW_ID;
	}

	run_for_key(&key, statement, value, doc, &returned);
	if (returned == NULL)
		PG_RETURN_NULL();
	require_id_equals_key(&key, value, returned);
	PG_RETURN_JSONB_P(returned);
}

/*
 * read_document(collection regclass, id text or anynonarray)
 */
Datum
ttl_docs_read_document(PG_FUNCTION_ARGS)
{
	DocumentKey key;
	Jsonb	   *returned;

	/* do not even lock the table: no statement would check privileges on it */
	if (PG_ARGISNULL(1))
		PG_RETURN_NULL();
	/* the statement runs under the snapshot of the caller, perhaps after a wait */
	ttl_docs_note_snapshot();
	key = key_of_collection(fcinfo, AccessShareLock);
	run_for_key(&key, STATEMENT_READ,
				ttl_docs_key_of_arg(&key, fcinfo, 1), NULL, &returned);
	if (returned == NULL)
		PG_RETURN_NULL();
	PG_RETURN_JSONB_P(returned);
}

/*
 * replace_document(collection regclass, doc jsonb)
 */
Datum
ttl_docs_replace_document(PG_FUNCTION_ARGS)
{
	DocumentKey key = key_of_collection(fcinfo, RowExclusiveLock);
	Jsonb	   *doc = ttl_docs_without_property(object_arg(fcinfo, 1, "document"),
												TS_PROPERTY);
	JsonbValue	id;
	Datum		value;
	Jsonb	   *returned;

	if (!ttl_docs_find_id(doc, &id))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("replacement document has no \"id\""),
				 errhint("Add the \"id\" of the document to be replaced. To store a new document, call ttl_docs.create_document().")));
	value = ttl_docs_key_of_id(&key, &id);
	run_for_key(&key, STATEMENT_REPLACE, value, doc, &returned);
	if (returned == NULL)
		report_no_document(&key, value);
	require_id_equals_key(&key, value, returned);
	PG_RETURN_JSONB_P(returned);
}

/*
 * patch_document(collection regclass, id text or anynonarray, patch jsonb)
 */
Datum
ttl_docs_patch_document(PG_FUNCTION_ARGS)
{
	DocumentKey key = key_of_collection(fcinfo, RowExclusiveLock);
	Jsonb	   *patch = ttl_docs_without_property(object_arg(fcinfo, 2, "patch"),
												  TS_PROPERTY);
	Datum		value;
	Jsonb	   *returned;

	if (PG_ARGISNULL(1))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("id cannot be null")));
	value = ttl_docs_key_of_arg(&key, fcinfo, 1);
	patch = patch_without_id(&key, patch, value);
	run_for_key(&key, STATEMENT_PATCH, value, patch, &returned);
	if (returned == NULL)
		report_no_document(&key, value);
	require_id_equals_key(&key, value, returned);
	PG_RETURN_JSONB_P(returned);
}

/*
 * delete_document(collection regclass, id text or anynonarray)
 */
Datum
ttl_docs_delete_document(PG_FUNCTION_ARGS)
{
	return write_by_id(fcinfo, STATEMENT_DELETE);
}

/*
 * touch_document(collection regclass, id text or anynonarray)
 */
Datum
ttl_docs_touch_document(PG_FUNCTION_ARGS)
{
	return write_by_id(fcinfo, STATEMENT_TOUCH);
}

/* Returns true if there was a document with this id. */
static Datum
write_by_id(FunctionCallInfo fcinfo, DocumentStatement statement)
{
	DocumentKey key;
	Datum		value;

	if (PG_ARGISNULL(1))
		PG_RETURN_BOOL(false);
	key = key_of_collection(fcinfo, RowExclusiveLock);
	value = ttl_docs_key_of_arg(&key, fcinfo, 1);
	PG_RETURN_BOOL(run_for_key(&key, statement, value, NULL, NULL) > 0);
}

/*
 * documents(collection regclass, filter jsonb)
 *
 * The filter applies to documents as clients get them: "id" in the filter is
 * compared with the key.  "_ts" in the filter is an error.
 */
Datum
ttl_docs_documents(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	DocumentKey key;
	DocumentStatement statement = STATEMENT_ALL;
	Jsonb	   *filter = NULL;
	Datum		value;
	Datum	   *key_value = NULL;
	JsonbValue	property;

	/* as in read_document() */
	ttl_docs_note_snapshot();
	key = key_of_collection(fcinfo, AccessShareLock);
	if (!PG_ARGISNULL(1))
	{
		statement = STATEMENT_CONTAINING;
		filter = object_arg(fcinfo, 1, "filter");
		if (ttl_docs_get_property(filter, TS_PROPERTY, &property) != NULL)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("\"%s\" cannot be part of a filter", TS_PROPERTY),
					 errhint("Use SELECT with a WHERE clause on the column \"%s\".",
							 TTL_DOCS_TS_COLUMN)));
		if (ttl_docs_get_property(filter, ID_PROPERTY, &property) != NULL)
		{
			statement = STATEMENT_CONTAINING_WITH_ID;
			value = ttl_docs_key_of_id(&key, &property);
			key_value = &value;
			filter = ttl_docs_without_property(filter, ID_PROPERTY);
			/* an empty filter would exclude documents that are not objects */
			if (JB_ROOT_COUNT(filter) == 0)
				statement = STATEMENT_READ;
		}
	}
	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	run_for_set(&key, statement, key_value, filter, rsinfo);
	return (Datum) 0;
}

/*
 * Locks the collection that a document function is called for, and returns
 * its key column.  Raises an error if this server cannot run the function.
 */
static DocumentKey
key_of_collection(FunctionCallInfo fcinfo, LOCKMODE lockmode)
{
	if (lockmode == AccessShareLock)
		ttl_docs_require_preload();
	else
		ttl_docs_require_writable(fcinfo);
	return ttl_docs_document_key(ttl_docs_collection_arg(fcinfo), lockmode);
}

/* Returns an argument that must be a JSON object; name is for messages. */
static Jsonb *
object_arg(FunctionCallInfo fcinfo, int arg, const char *name)
{
	Jsonb	   *object;

	if (PG_ARGISNULL(arg))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("%s cannot be null", name)));
	object = PG_GETARG_JSONB_P(arg);
	if (!JB_ROOT_IS_OBJECT(object))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s is not a JSON object: %s", name,
						ttl_docs_json_excerpt(object)),
				 errhint("Pass an object, such as {\"id\": \"a\", \"ttl\": 60}.")));
	return object;
}

/*
 * Raises an error if the table has generated a key that differs from the id.
 * Clients could not find the document by the id with which they wrote it.
 */
static void
require_id_equals_key(const DocumentKey *key, Datum value, Jsonb *returned)
{
	JsonbValue	id;

	if (!key->is_generated ||
		(ttl_docs_find_id(returned, &id) && ttl_docs_same_key(key, ttl_docs_key_of_id(key, &id), value)))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("generated primary key of \"%s\" differs from the \"id\" of the document",
					get_rel_name(key->relid)),
			 errhint("The document functions need a primary key that is equal to the \"id\". Use plain SQL on this table.")));
}

/* Removes the id from a patch.  Raises an error if the patch changes the id. */
static Jsonb *
patch_without_id(const DocumentKey *key, Jsonb *patch, Datum value)
{
	JsonbValue	id;

	if (ttl_docs_get_property(patch, ID_PROPERTY, &id) == NULL)
		return patch;
	if (id.type == jbvNull || !ttl_docs_same_key(key, ttl_docs_key_of_id(key, &id), value))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("a patch cannot change the \"id\" of document \"%s\" to %s",
						ttl_docs_text_of_key(key, value),
						ttl_docs_json_excerpt(JsonbValueToJsonb(&id))),
				 errhint("Call ttl_docs.create_document() with the new id, then ttl_docs.delete_document() with the old id.")));
	return ttl_docs_without_property(patch, ID_PROPERTY);
}

static void
report_no_document(const DocumentKey *key, Datum value)
{
	ereport(ERROR,
			(errcode(ERRCODE_NO_DATA_FOUND),
			 errmsg("there is no document \"%s\" in \"%s\"",
					ttl_docs_text_of_key(key, value), get_rel_name(key->relid)),
			 errhint("To create the document, call ttl_docs.upsert_document() or ttl_docs.create_document().")));
}

/*
 * Runs a statement for one key.  Returns the number of rows that it read or
 * wrote.  If "returned" is not NULL, sets *returned to the document that
 * the statement returns, in the caller's memory, or to NULL if there is none.
 */
static uint64
run_for_key(const DocumentKey *key, DocumentStatement statement, Datum key_value,
			Jsonb *doc, Jsonb **returned)
{
	MemoryContext caller = CurrentMemoryContext;
	uint64		processed;

	SPI_connect();
	ttl_docs_run_statement(key, statement, &key_value, doc, NULL);
	processed = SPI_processed;
	if (returned != NULL)
	{
		MemoryContext spi = MemoryContextSwitchTo(caller);

		/* a rule may have replaced the statement with one that has no result */
		*returned = processed == 0 || SPI_tuptable == NULL ? NULL :
			ttl_docs_returned_row(key, SPI_tuptable->vals[0], SPI_tuptable->tupdesc);
		MemoryContextSwitchTo(spi);
	}
	SPI_finish();
	return processed;
}

/*
 * Runs a statement that reads any number of documents, and puts them into the
 * result of a set-returning function.
 */
static void
run_for_set(const DocumentKey *key, DocumentStatement statement,
			const Datum *key_value, Jsonb *filter, ReturnSetInfo *rsinfo)
{
	Tuplestorestate *rows = rsinfo->setResult;
	MemoryContext rows_context = rsinfo->econtext->ecxt_per_query_memory;
	DestReceiver *receiver = CreateDestReceiver(DestTuplestore);

	if (key->is_shell)
	{
		rows = tuplestore_begin_heap(false, false, work_mem);
		rows_context = CurrentMemoryContext;
	}
	SetTuplestoreDestReceiverParams(receiver, rows, rows_context, false, NULL, NULL);
	SPI_connect();
	ttl_docs_run_statement(key, statement, key_value, filter, receiver);
	SPI_finish();
	receiver->rDestroy(receiver);
	if (key->is_shell)
	{
		ttl_docs_returned_rows(key, rows, rsinfo);
		tuplestore_end(rows);
	}
}
