/*-------------------------------------------------------------------------
 *
 * properties.c
 *		Changes the JSON of documents that clients send and get.
 *
 * A document that a client gets has two properties that need not be stored in
 * the document: "id", from the key, and "_ts", in seconds since 1970 as in
 * Cosmos DB.  A document of an adopted table may have properties with these
 * names.  Then the values of the table's columns replace them.  A document
 * that is not an object (SQL can write one) cannot have properties, and
 * clients get it unchanged.
 *
 * The "_ts" of a document that a client sends is removed, because the server
 * sets _ts.
 *
 * Patches are JSON merge patches (RFC 7396).  Properties of the patch replace
 * those of the document, null removes a property, and nested objects are
 * merged in the same way.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"
#include "utils/numeric.h"
#include "utils/timestamp.h"

#include "document/document_internal.h"

PG_FUNCTION_INFO_V1(ttl_docs_merge_patch);
PG_FUNCTION_INFO_V1(ttl_docs_patchable);
PG_FUNCTION_INFO_V1(ttl_docs_returned_document);

static bool is_among(const Property *properties, int count,
					 const JsonbValue *name);
static void merge_object(compat_JsonbBuilder *builder, JsonbContainer *target,
						 JsonbContainer *patch);
static bool is_object(const JsonbValue *value);
static bool has_id_of_key(const JsonbValue *own_id, const JsonbValue *key_id);
static char *numeric_text(Numeric number);
static JsonbValue seconds_since_1970(TimestampTz ts);

/*
 * merge_patch(target jsonb, patch jsonb)
 *
 * As the RFC says, a patch that is not an object replaces the target.
 */
Datum
ttl_docs_merge_patch(PG_FUNCTION_ARGS)
{
	Jsonb	   *target = PG_GETARG_JSONB_P(0);
	Jsonb	   *patch = PG_GETARG_JSONB_P(1);
	compat_JsonbBuilder builder = {0};

	if (!JB_ROOT_IS_OBJECT(patch))
		PG_RETURN_JSONB_P(patch);
	merge_object(&builder, JB_ROOT_IS_OBJECT(target) ? &target->root : NULL,
				 &patch->root);
	PG_RETURN_JSONB_P(JsonbValueToJsonb(builder.result));
}

/* Pushes the result of a merge.  A target of NULL means an empty object. */
static void
merge_object(compat_JsonbBuilder *builder, JsonbContainer *target,
			 JsonbContainer *patch)
{
	JsonbIterator *it;
	JsonbIteratorToken token;
	JsonbValue	name;
	JsonbValue	value;

	check_stack_depth();
	compat_push_jsonb(builder, WJB_BEGIN_OBJECT, NULL);

	/* properties of the target that the patch does not have */
	if (target != NULL)
	{
		it = JsonbIteratorInit(target);
		while ((token = JsonbIteratorNext(&it, &name, true)) != WJB_DONE)
		{
			if (token != WJB_KEY)
				continue;
			JsonbIteratorNext(&it, &value, true);
			if (findJsonbValueFromContainer(patch, JB_FOBJECT, &name) != NULL)
				continue;
			compat_push_jsonb(builder, WJB_KEY, &name);
			compat_push_jsonb(builder, WJB_VALUE, &value);
		}
	}

	/* properties of the patch */
	it = JsonbIteratorInit(patch);
	while ((token = JsonbIteratorNext(&it, &name, true)) != WJB_DONE)
	{
		if (token != WJB_KEY)
			continue;
		JsonbIteratorNext(&it, &value, true);
		if (value.type == jbvNull)
			continue;
		compat_push_jsonb(builder, WJB_KEY, &name);
		if (is_object(&value))
		{
			JsonbValue *old = target == NULL ? NULL :
				findJsonbValueFromContainer(target, JB_FOBJECT, &name);

			merge_object(builder,
						 old != NULL && is_object(old) ? old->val.binary.data : NULL,
						 value.val.binary.data);
		}
		else
			compat_push_jsonb(builder, WJB_VALUE, &value);
	}
	compat_push_jsonb(builder, WJB_END_OBJECT, NULL);
}

static bool
is_object(const JsonbValue *value)
{
	return value->type == jbvBinary && JsonContainerIsObject(value->val.binary.data);
}

/*
 * patchable(doc jsonb)
 *
 * Returns the document that a patch is merged into; NULL becomes an empty
 * object.  Raises an error if the document is not an object: the patch would
 * replace it, and the document would be lost.
 */
Datum
ttl_docs_patchable(PG_FUNCTION_ARGS)
{
	Jsonb	   *doc;
	compat_JsonbBuilder builder = {0};

	if (PG_ARGISNULL(0))
	{
		compat_push_jsonb(&builder, WJB_BEGIN_OBJECT, NULL);
		compat_push_jsonb(&builder, WJB_END_OBJECT, NULL);
		PG_RETURN_JSONB_P(JsonbValueToJsonb(builder.result));
	}
	doc = PG_GETARG_JSONB_P(0);
	if (!JB_ROOT_IS_OBJECT(doc))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("cannot patch a document that is not a JSON object"),
				 errhint("Replace the whole document with ttl_docs.replace_document() or UPDATE.")));
	PG_RETURN_JSONB_P(doc);
}

/*
 * returned_document(doc jsonb, id jsonb, ts timestamptz)
 *
 * Returns a document as clients get it.
 */
Datum
ttl_docs_returned_document(PG_FUNCTION_ARGS)
{
	JsonbValue	id;
	bool		has_id = !PG_ARGISNULL(1) &&
		JsonbExtractScalar(&PG_GETARG_JSONB_P(1)->root, &id);
	TimestampTz ts = PG_ARGISNULL(2) ? 0 : PG_GETARG_TIMESTAMPTZ(2);

	PG_RETURN_JSONB_P(ttl_docs_add_properties(PG_ARGISNULL(0) ? NULL : PG_GETARG_JSONB_P(0),
											  has_id ? &id : NULL,
											  PG_ARGISNULL(2) ? NULL : &ts));
}

/*
 * Returns a document as clients get it.  doc is NULL if the column is NULL; id
 * and ts are NULL if the row has none.
 */
Jsonb *
ttl_docs_add_properties(Jsonb *doc, JsonbValue *id, const TimestampTz *ts)
{
	Property	properties[2];
	JsonbValue	own_id;
	JsonbValue	seconds;
	int			count = 0;

	if (doc != NULL && !JB_ROOT_IS_OBJECT(doc))
		return doc;

	if (id != NULL &&
		!(doc != NULL && ttl_docs_get_property(doc, ID_PROPERTY, &own_id) != NULL &&
		  has_id_of_key(&own_id, id)))
		properties[count++] = (Property) {ID_PROPERTY, id};
	if (ts != NULL && !TIMESTAMP_NOT_FINITE(*ts))
	{
		seconds = seconds_since_1970(*ts);
		properties[count++] = (Property) {TS_PROPERTY, &seconds};
	}
	return ttl_docs_set_properties(doc, properties, count);
}

/*
 * Does a document already have the id of its key?  A client may have sent a
 * numeric id as a string; then the document keeps the string.  The ids 60.0
 * and 60 are different here, because a client cannot find the key 60 by the
 * text 60.0.
 */
static bool
has_id_of_key(const JsonbValue *own_id, const JsonbValue *key_id)
{
	char	   *own_text;
	char	   *key_text;

	if (own_id->type == jbvString && key_id->type == jbvString)
		return own_id->val.string.len == key_id->val.string.len &&
			memcmp(own_id->val.string.val, key_id->val.string.val,
				   own_id->val.string.len) == 0;
	if ((own_id->type != jbvString && own_id->type != jbvNumeric) ||
		key_id->type != jbvNumeric)
		return false;
	own_text = own_id->type == jbvString ?
		pnstrdup(own_id->val.string.val, own_id->val.string.len) :
		numeric_text(own_id->val.numeric);
	key_text = numeric_text(key_id->val.numeric);
	return strcmp(own_text, key_text) == 0;
}

static char *
numeric_text(Numeric number)
{
	return DatumGetCString(DirectFunctionCall1(numeric_out, NumericGetDatum(number)));
}

/* Returns whole seconds, rounded down. */
static JsonbValue
seconds_since_1970(TimestampTz ts)
{
	JsonbValue	value;
	int64		seconds = ts / USECS_PER_SEC;

	if (ts % USECS_PER_SEC < 0)
		seconds--;
	seconds += (int64) (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * SECS_PER_DAY;
	value.type = jbvNumeric;
	value.val.numeric = int64_to_numeric(seconds);
	return value;
}

/*
 * Returns the document with these properties set or removed.  The document
 * must be an object; NULL is an empty object.
 */
Jsonb *
ttl_docs_set_properties(Jsonb *doc, const Property *properties, int count)
{
	compat_JsonbBuilder builder = {0};
	JsonbIterator *it;
	JsonbIteratorToken token;
	JsonbValue	name;
	JsonbValue	value;

	compat_push_jsonb(&builder, WJB_BEGIN_OBJECT, NULL);
	if (doc != NULL)
	{
		it = JsonbIteratorInit(&doc->root);
		while ((token = JsonbIteratorNext(&it, &name, true)) != WJB_DONE)
		{
			if (token != WJB_KEY)
				continue;
			JsonbIteratorNext(&it, &value, true);
			if (is_among(properties, count, &name))
				continue;
			compat_push_jsonb(&builder, WJB_KEY, &name);
			compat_push_jsonb(&builder, WJB_VALUE, &value);
		}
	}
	for (int i = 0; i < count; i++)
	{
		if (properties[i].value == NULL)
			continue;
		name.type = jbvString;
		name.val.string.val = unconstify(char *, properties[i].name);
		name.val.string.len = strlen(properties[i].name);
		compat_push_jsonb(&builder, WJB_KEY, &name);
		compat_push_jsonb(&builder, WJB_VALUE, properties[i].value);
	}
	compat_push_jsonb(&builder, WJB_END_OBJECT, NULL);
	return JsonbValueToJsonb(builder.result);
}

static bool
is_among(const Property *properties, int count, const JsonbValue *name)
{
	for (int i = 0; i < count; i++)
		if ((int) strlen(properties[i].name) == name->val.string.len &&
			memcmp(properties[i].name, name->val.string.val, name->val.string.len) == 0)
			return true;
	return false;
}

/* Gets a top-level property of a document; NULL if there is none. */
JsonbValue *
ttl_docs_get_property(Jsonb *doc, const char *name, JsonbValue *value)
{
	if (!JB_ROOT_IS_OBJECT(doc))
		return NULL;
	return getKeyJsonValueFromContainer(&doc->root, name, strlen(name), value);
}

/* Returns the document without a property.  Most documents do not have it. */
Jsonb *
ttl_docs_without_property(Jsonb *doc, const char *name)
{
	Property	removed = {name, NULL};
	JsonbValue	value;

	if (ttl_docs_get_property(doc, name, &value) == NULL)
		return doc;
	return ttl_docs_set_properties(doc, &removed, 1);
}
