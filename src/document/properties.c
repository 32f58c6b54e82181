/*-------------------------------------------------------------------------
 *
 * properties.c
 *		What happens to the JSON of documents on their way in and out.
 *
 * Out: a document carries its "id", from the key, and "_ts", in seconds since
 * 1970 as in Cosmos DB.  Neither has to be stored in it, and where a document
 * of an adopted table has properties of these names, what the table says wins.
 * A document that is no object (SQL can write one) has no place for them and
 * is shown as it is.
 *
 * In: "_ts" is the server's and not stored.
 *
 * Patches are JSON merge patches (RFC 7396): properties of the patch replace
 * those of the document, null takes one away, objects are merged likewise.
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
static JsonbValue *merge_object(JsonbParseState **state, JsonbContainer *target,
								JsonbContainer *patch);
static bool is_object(const JsonbValue *value);
static bool same_id(const JsonbValue *a, const JsonbValue *b);
static char *numeric_text(Numeric number);
static JsonbValue seconds_since_1970(TimestampTz ts);

/*
 * merge_patch(target jsonb, patch jsonb), to the letter of the RFC: a patch
 * that is no object takes the target's place.
 */
Datum
ttl_docs_merge_patch(PG_FUNCTION_ARGS)
{
	Jsonb	   *target = PG_GETARG_JSONB_P(0);
	Jsonb	   *patch = PG_GETARG_JSONB_P(1);
	JsonbParseState *state = NULL;

	if (!JB_ROOT_IS_OBJECT(patch))
		PG_RETURN_JSONB_P(patch);
	PG_RETURN_JSONB_P(JsonbValueToJsonb(merge_object(&state,
													 JB_ROOT_IS_OBJECT(target) ? &target->root : NULL,
													 &patch->root)));
}

/* Pushes the merger of two objects; a target of NULL is an empty one. */
static JsonbValue *
merge_object(JsonbParseState **state, JsonbContainer *target,
			 JsonbContainer *patch)
{
	JsonbIterator *it;
	JsonbIteratorToken token;
	JsonbValue	name;
	JsonbValue	value;

	check_stack_depth();
	pushJsonbValue(state, WJB_BEGIN_OBJECT, NULL);

	/* what the patch does not mention */
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
			pushJsonbValue(state, WJB_KEY, &name);
			pushJsonbValue(state, WJB_VALUE, &value);
		}
	}

	/* and what it does */
	it = JsonbIteratorInit(patch);
	while ((token = JsonbIteratorNext(&it, &name, true)) != WJB_DONE)
	{
		if (token != WJB_KEY)
			continue;
		JsonbIteratorNext(&it, &value, true);
		if (value.type == jbvNull)
			continue;
		pushJsonbValue(state, WJB_KEY, &name);
		if (is_object(&value))
		{
			JsonbValue *old = target == NULL ? NULL :
				findJsonbValueFromContainer(target, JB_FOBJECT, &name);

			merge_object(state,
						 old != NULL && is_object(old) ? old->val.binary.data : NULL,
						 value.val.binary.data);
		}
		else
			pushJsonbValue(state, WJB_VALUE, &value);
	}
	return pushJsonbValue(state, WJB_END_OBJECT, NULL);
}

static bool
is_object(const JsonbValue *value)
{
	return value->type == jbvBinary && JsonContainerIsObject(value->val.binary.data);
}

/*
 * patchable(doc jsonb): the document that a patch can be merged into.  One that
 * is no object would be lost.
 */
Datum
ttl_docs_patchable(PG_FUNCTION_ARGS)
{
	Jsonb	   *doc;
	JsonbParseState *state = NULL;

	if (PG_ARGISNULL(0))
	{
		pushJsonbValue(&state, WJB_BEGIN_OBJECT, NULL);
		PG_RETURN_JSONB_P(JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_OBJECT, NULL)));
	}
	doc = PG_GETARG_JSONB_P(0);
	if (!JB_ROOT_IS_OBJECT(doc))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("cannot patch a document that is not a JSON object"),
				 errhint("Write it as a whole, with ttl_docs.replace_document() or UPDATE.")));
	PG_RETURN_JSONB_P(doc);
}

/*
 * returned_document(doc jsonb, id jsonb, ts timestamptz): a document as clients
 * get it.
 */
Datum
ttl_docs_returned_document(PG_FUNCTION_ARGS)
{
	Jsonb	   *doc = PG_ARGISNULL(0) ? NULL : PG_GETARG_JSONB_P(0);
	Property	properties[2];
	JsonbValue	id;
	JsonbValue	own_id;
	JsonbValue	ts;
	int			count = 0;

	if (doc != NULL && !JB_ROOT_IS_OBJECT(doc))
		PG_RETURN_JSONB_P(doc);

	if (!PG_ARGISNULL(1) &&
		JsonbExtractScalar(&PG_GETARG_JSONB_P(1)->root, &id) &&
		!(doc != NULL && ttl_docs_property(doc, ID_PROPERTY, &own_id) != NULL &&
		  same_id(&own_id, &id)))
		properties[count++] = (Property) {ID_PROPERTY, &id};
	if (!PG_ARGISNULL(2) && !TIMESTAMP_NOT_FINITE(PG_GETARG_TIMESTAMPTZ(2)))
	{
		ts = seconds_since_1970(PG_GETARG_TIMESTAMPTZ(2));
		properties[count++] = (Property) {TS_PROPERTY, &ts};
	}
	PG_RETURN_JSONB_P(ttl_docs_set_properties(doc, properties, count));
}

/*
 * A number that is the key may have been sent as a string, and stays one.  60.0
 * is not what the key 60 looks like, and not an id to find it by.
 */
static bool
same_id(const JsonbValue *a, const JsonbValue *b)
{
	char	   *a_text;
	char	   *b_text;

	if (a->type == jbvString && b->type == jbvString)
		return a->val.string.len == b->val.string.len &&
			memcmp(a->val.string.val, b->val.string.val, a->val.string.len) == 0;
	if ((a->type != jbvString && a->type != jbvNumeric) || b->type != jbvNumeric)
		return false;
	a_text = a->type == jbvString ?
		pnstrdup(a->val.string.val, a->val.string.len) : numeric_text(a->val.numeric);
	b_text = numeric_text(b->val.numeric);
	return strcmp(a_text, b_text) == 0;
}

static char *
numeric_text(Numeric number)
{
	return DatumGetCString(DirectFunctionCall1(numeric_out, NumericGetDatum(number)));
}

/* Whole seconds, of which the last has begun. */
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
 * The document, an object or NULL for an empty one, with these properties set
 * or taken away.
 */
Jsonb *
ttl_docs_set_properties(Jsonb *doc, const Property *properties, int count)
{
	JsonbParseState *state = NULL;
	JsonbIterator *it;
	JsonbIteratorToken token;
	JsonbValue	name;
	JsonbValue	value;

	pushJsonbValue(&state, WJB_BEGIN_OBJECT, NULL);
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
			pushJsonbValue(&state, WJB_KEY, &name);
			pushJsonbValue(&state, WJB_VALUE, &value);
		}
	}
	for (int i = 0; i < count; i++)
	{
		if (properties[i].value == NULL)
			continue;
		name.type = jbvString;
		name.val.string.val = unconstify(char *, properties[i].name);
		name.val.string.len = strlen(properties[i].name);
		pushJsonbValue(&state, WJB_KEY, &name);
		pushJsonbValue(&state, WJB_VALUE, properties[i].value);
	}
	return JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_OBJECT, NULL));
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

/* A top-level property of a document; NULL if absent. */
JsonbValue *
ttl_docs_property(Jsonb *doc, const char *name, JsonbValue *value)
{
	if (!JB_ROOT_IS_OBJECT(doc))
		return NULL;
	return getKeyJsonValueFromContainer(&doc->root, name, strlen(name), value);
}

/* The document without a property, which it seldom has. */
Jsonb *
ttl_docs_without(Jsonb *doc, const char *name)
{
	Property	taken = {name, NULL};
	JsonbValue	value;

	if (ttl_docs_property(doc, name, &value) == NULL)
		return doc;
	return ttl_docs_set_properties(doc, &taken, 1);
}
