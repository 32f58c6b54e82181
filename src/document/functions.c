/*-------------------------------------------------------------------------
 *
 * functions.c
 *		The verbs of the Cosmos DB SDKs: create, read, replace, upsert, patch,
 *		delete, touch, and the documents that contain a filter.
 *
 * Each checks its arguments and runs one statement (statement.c) as
 * the caller, with the caller's rights.  Those that read are STABLE and share
 * snapshot and instant of the query that calls them; those that write are
 * statements of their own.
 *
 * The id of a document is its "id" property.  In the table it is the key; the
 * document keeps it too, so that a filter and a GIN index can find it.  Where
 * there is none, a new document gets one: what the key column has for a
 * default, else a uuid.
 *
 * All results and errors come from SPI or from memory contexts that the caller
 * owns; there is no state to be put right on error.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "executor/tstoreReceiver.h"
#include "fmgr.h"
#include "funcapi.h"
#include "tcop/dest.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"
#include "utils/lsyscache.h"

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
static Jsonb *object_arg(FunctionCallInfo fcinfo, int arg, const char *what);
static void require_id_as_key(const DocumentKey *key, Datum value,
							  Jsonb *returned);
static Jsonb *patch_without_id(const DocumentKey *key, Jsonb *patch,
							   Datum value);
pg_noreturn static void report_no_document(const DocumentKey *key,
										   Datum value);
static uint64 run(const DocumentKey *key, DocumentStatement statement,
				  Datum key_value, Jsonb *doc, Jsonb **returned);

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

/* NULL if a trigger of the user's has kept the document out. */
static Datum
insert_document(FunctionCallInfo fcinfo, bool or_replace)
{
	DocumentKey key = key_of_collection(fcinfo, RowExclusiveLock);
	Jsonb	   *doc = ttl_docs_without(object_arg(fcinfo, 1, "document"), TS_PROPERTY);
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
		ttl_docs_set_id(&id, &key, value);
		doc = ttl_docs_set_properties(doc, &with_id, 1);
		/* which replaces none */
		statement = STATEMENT_CREATE_WITH_NEW_ID;
	}

	run(&key, statement, value, doc, &returned);
	if (returned == NULL)
		PG_RETURN_NULL();
	require_id_as_key(&key, value, returned);
	PG_RETURN_JSONB_P(returned);
}

/*
 * read_document(collection regclass, id text)
 */
Datum
ttl_docs_read_document(PG_FUNCTION_ARGS)
{
	DocumentKey key;
	Jsonb	   *returned;

	/* before the lock, which nobody has yet shown a right to */
	if (PG_ARGISNULL(1))
		PG_RETURN_NULL();
	key = key_of_collection(fcinfo, AccessShareLock);
	run(&key, STATEMENT_READ,
		ttl_docs_key_of_text(&key, text_to_cstring(PG_GETARG_TEXT_PP(1))), NULL, &returned);
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
	Jsonb	   *doc = ttl_docs_without(object_arg(fcinfo, 1, "document"), TS_PROPERTY);
	JsonbValue	id;
	Datum		value;
	Jsonb	   *returned;

	if (!ttl_docs_find_id(doc, &id))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("the document has no \"id\" that says which one to replace"),
				 errhint("Use ttl_docs.create_document() to make a new one.")));
	value = ttl_docs_key_of_id(&key, &id);
	run(&key, STATEMENT_REPLACE, value, doc, &returned);
	if (returned == NULL)
		report_no_document(&key, value);
	require_id_as_key(&key, value, returned);
	PG_RETURN_JSONB_P(returned);
}

/*
 * patch_document(collection regclass, id text, patch jsonb)
 */
Datum
ttl_docs_patch_document(PG_FUNCTION_ARGS)
{
	DocumentKey key = key_of_collection(fcinfo, RowExclusiveLock);
	Jsonb	   *patch = ttl_docs_without(object_arg(fcinfo, 2, "patch"), TS_PROPERTY);
	Datum		value;
	Jsonb	   *returned;

	if (PG_ARGISNULL(1))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("id cannot be null")));
	value = ttl_docs_key_of_text(&key, text_to_cstring(PG_GETARG_TEXT_PP(1)));
	patch = patch_without_id(&key, patch, value);
	run(&key, STATEMENT_PATCH, value, patch, &returned);
	if (returned == NULL)
		report_no_document(&key, value);
	require_id_as_key(&key, value, returned);
	PG_RETURN_JSONB_P(returned);
}

/*
 * delete_document(collection regclass, id text)
 */
Datum
ttl_docs_delete_document(PG_FUNCTION_ARGS)
{
	return write_by_id(fcinfo, STATEMENT_DELETE);
}

/*
 * touch_document(collection regclass, id text)
 */
Datum
ttl_docs_touch_document(PG_FUNCTION_ARGS)
{
	return write_by_id(fcinfo, STATEMENT_TOUCH);
}

/* Was there a document with that id? */
static Datum
write_by_id(FunctionCallInfo fcinfo, DocumentStatement statement)
{
	DocumentKey key;

	if (PG_ARGISNULL(1))
		PG_RETURN_BOOL(false);
	key = key_of_collection(fcinfo, RowExclusiveLock);
	PG_RETURN_BOOL(run(&key, statement,
					   ttl_docs_key_of_text(&key, text_to_cstring(PG_GETARG_TEXT_PP(1))),
					   NULL, NULL) > 0);
}

/*
 * documents(collection regclass, filter jsonb)
 *
 * The filter is held against documents as clients get them: "id" is the key.
 * "_ts" is no property that could be contained.
 */
Datum
ttl_docs_documents(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	DocumentKey key = key_of_collection(fcinfo, AccessShareLock);
	DocumentStatement statement = STATEMENT_ALL;
	Jsonb	   *filter = NULL;
	Datum		value;
	Datum	   *key_value = NULL;
	JsonbValue	property;
	DestReceiver *receiver;

	if (!PG_ARGISNULL(1))
	{
		statement = STATEMENT_CONTAINING;
		filter = object_arg(fcinfo, 1, "filter");
		if (ttl_docs_property(filter, TS_PROPERTY, &property) != NULL)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("\"%s\" cannot be part of a filter", TS_PROPERTY),
					 errhint("It is a column of the table: use SQL, with a WHERE clause on \"%s\".",
							 TTL_DOCS_TS_COLUMN)));
		if (ttl_docs_property(filter, ID_PROPERTY, &property) != NULL)
		{
			statement = STATEMENT_CONTAINING_WITH_ID;
			value = ttl_docs_key_of_id(&key, &property);
			key_value = &value;
			filter = ttl_docs_without(filter, ID_PROPERTY);
			/* a document that is no object contains nothing, but has an id */
			if (JB_ROOT_COUNT(filter) == 0)
				statement = STATEMENT_READ;
		}
	}
	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	receiver = CreateDestReceiver(DestTuplestore);
	SetTuplestoreDestReceiverParams(receiver, rsinfo->setResult,
									rsinfo->econtext->ecxt_per_query_memory,
									false, NULL, NULL);
	SPI_connect();
	ttl_docs_run_statement(&key, statement, key_value, filter, receiver);
	SPI_finish();
	receiver->rDestroy(receiver);
	return (Datum) 0;
}

/* The key of the collection that a document function is called for. */
static DocumentKey
key_of_collection(FunctionCallInfo fcinfo, LOCKMODE lockmode)
{
	if (lockmode == AccessShareLock)
		ttl_docs_require_preload();
	else
		ttl_docs_require_writable(fcinfo);
	return ttl_docs_document_key(ttl_docs_collection_arg(fcinfo), lockmode);
}

static Jsonb *
object_arg(FunctionCallInfo fcinfo, int arg, const char *what)
{
	Jsonb	   *object;

	if (PG_ARGISNULL(arg))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("%s cannot be null", what)));
	object = PG_GETARG_JSONB_P(arg);
	if (!JB_ROOT_IS_OBJECT(object))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s is not a JSON object: %s", what,
						ttl_docs_json_excerpt(object)),
				 errhint("Write it as an object, such as {\"id\": \"a\", \"ttl\": 60}.")));
	return object;
}

/*
 * Where the table computes the key, that has to be from the id.  Otherwise the
 * document would be found under another id than it was written with.
 */
static void
require_id_as_key(const DocumentKey *key, Datum value, Jsonb *returned)
{
	JsonbValue	id;

	if (!key->is_generated ||
		(ttl_docs_find_id(returned, &id) && ttl_docs_same_key(key, ttl_docs_key_of_id(key, &id), value)))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("the primary key of \"%s\" is generated from something else than the \"id\" of a document",
					get_rel_name(key->relid)),
			 errhint("Use SQL, which needs no id.")));
}

/* The id of a document is final, but a patch may mention it. */
static Jsonb *
patch_without_id(const DocumentKey *key, Jsonb *patch, Datum value)
{
	JsonbValue	id;

	if (ttl_docs_property(patch, ID_PROPERTY, &id) == NULL)
		return patch;
	if (id.type == jbvNull || !ttl_docs_same_key(key, ttl_docs_key_of_id(key, &id), value))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("a patch cannot change the \"id\" of document \"%s\" to %s",
						ttl_docs_text_of_key(key, value),
						ttl_docs_json_excerpt(JsonbValueToJsonb(&id))),
				 errhint("Create a document with the new id, and delete the old one.")));
	return ttl_docs_without(patch, ID_PROPERTY);
}

static void
report_no_document(const DocumentKey *key, Datum value)
{
	ereport(ERROR,
			(errcode(ERRCODE_NO_DATA_FOUND),
			 errmsg("there is no document \"%s\" in \"%s\"",
					ttl_docs_text_of_key(key, value), get_rel_name(key->relid)),
			 errhint("Use ttl_docs.upsert_document() or ttl_docs.create_document() to make one.")));
}

/*
 * Runs a statement for one key and tells how many rows it was about.  Sets
 * *returned, unless that is NULL, to the document that came back, in the caller's
 * memory, or to NULL.
 */
static uint64
run(const DocumentKey *key, DocumentStatement statement, Datum key_value,
	Jsonb *doc, Jsonb **returned)
{
	bool		isnull = true;
	Datum		value = (Datum) 0;
	uint64		processed;

	SPI_connect();
	ttl_docs_run_statement(key, statement, &key_value, doc, NULL);
	processed = SPI_processed;
	/* a rule may have made something else of the statement */
	if (returned != NULL && processed > 0 && SPI_tuptable != NULL)
		value = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1,
							  &isnull);
	if (!isnull)
		value = SPI_datumTransfer(value, false, -1);
	SPI_finish();

	/* only now: unpacking it allocates, and SPI's memory is gone */
	if (returned != NULL)
		*returned = isnull ? NULL : DatumGetJsonbP(value);
	return processed;
}
