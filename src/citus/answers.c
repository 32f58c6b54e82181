/*-------------------------------------------------------------------------
 *
 * answers.c
 *		Reads answers of other nodes that are JSON.
 *
 * An answer is text, because run_command_on_all_nodes() of Citus returns text.
 * A question that has several results returns a JSON object.  A key that the
 * other node does not send is like null: the nodes may have different versions
 * of ttl_docs for a while.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "utils/builtins.h"
#include "utils/json.h"
#include "utils/numeric.h"

#include "citus/citus_internal.h"

/* Parses the answer of a node that has succeeded, or raises an error. */
JsonbContainer *
ttl_docs_parse_answer(const NodeAnswer *answer)
{
	Jsonb	   *json;

	if (answer->text == NULL || answer->text[0] != '{')
		ereport(ERROR,
				(errcode(ERRCODE_CONNECTION_FAILURE),
				 errmsg("node %s of Citus sent an invalid answer", answer->node),
				 errhint("All nodes must have the same version of ttl_docs.")));
	json = DatumGetJsonbP(DirectFunctionCall1(jsonb_in, CStringGetDatum(answer->text)));
	return &json->root;
}

/* Returns the value of a key as text; NULL if it is null or missing. */
char *
ttl_docs_answer_text(JsonbContainer *object, const char *key)
{
	JsonbValue	value;

	if (getKeyJsonValueFromContainer(object, key, strlen(key), &value) == NULL)
		return NULL;
	switch (value.type)
	{
		case jbvString:
			return pnstrdup(value.val.string.val, value.val.string.len);
		case jbvNumeric:
			return DatumGetCString(DirectFunctionCall1(numeric_out,
													   NumericGetDatum(value.val.numeric)));
		case jbvBool:
			return pstrdup(value.val.boolean ? "true" : "false");
		default:
			return NULL;
	}
}

/* Returns the value of a key as a number; 0 if it is null or missing. */
int64
ttl_docs_answer_integer(JsonbContainer *object, const char *key)
{
	char	   *text = ttl_docs_answer_text(object, key);

	return text != NULL ? strtoll(text, NULL, 10) : 0;
}

/* Is the value of a key true? */
bool
ttl_docs_answer_flag(JsonbContainer *object, const char *key)
{
	char	   *text = ttl_docs_answer_text(object, key);

	return text != NULL && strcmp(text, "true") == 0;
}

/* Returns the objects in the array under a key, as a list of JsonbContainer. */
List *
ttl_docs_answer_objects(JsonbContainer *object, const char *key)
{
	List	   *found = NIL;
	JsonbValue	array;

	if (getKeyJsonValueFromContainer(object, key, strlen(key), &array) == NULL ||
		array.type != jbvBinary || !JsonContainerIsArray(array.val.binary.data))
		return NIL;
	for (uint32 i = 0; i < JsonContainerSize(array.val.binary.data); i++)
	{
		JsonbValue *element = getIthJsonbValueFromContainer(array.val.binary.data, i);

		if (element->type == jbvBinary && JsonContainerIsObject(element->val.binary.data))
			found = lappend(found, element->val.binary.data);
	}
	return found;
}

/* Appends a key and its value to a JSON object that has begun; NULL is null. */
void
ttl_docs_append_text(StringInfo json, const char *key, const char *value)
{
	appendStringInfo(json, ", \"%s\": ", key);
	if (value != NULL)
		escape_json(json, value);
	else
		appendStringInfoString(json, "null");
}

void
ttl_docs_append_integer(StringInfo json, const char *key, int64 value)
{
	appendStringInfo(json, ", \"%s\": " INT64_FORMAT, key, value);
}

void
ttl_docs_append_flag(StringInfo json, const char *key, bool value)
{
	appendStringInfo(json, ", \"%s\": %s", key, value ? "true" : "false");
}
