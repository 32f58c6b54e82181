/*-------------------------------------------------------------------------
 *
 * id.c
 *		Converts between ids and keys, and makes new keys.
 *
 * The id of a document is its "id" property.  In the table, the id is the
 * key.  A new document without an id gets one: the default of the key column,
 * or else a uuid.
 *
 * The input and output functions of the key column's type convert between ids
 * and keys.  This file uses no casts, because casts can run code of the
 * table's owner.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "parser/parse_coerce.h"
#include "rewrite/rewriteHandler.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/float.h"
#include "utils/fmgrprotos.h"
#include "utils/guc.h"
#include "utils/jsonb.h"
#include "utils/lsyscache.h"
#include "utils/numeric.h"
#include "utils/rel.h"
#include "utils/typcache.h"

#include "document/document_internal.h"

static char *id_text(const DocumentKey *key, const JsonbValue *id);
static char *number_text(const DocumentKey *key, Numeric number);
static Oid	id_arg_type(FunctionCallInfo fcinfo, int arg);
static char *portable_text(const DocumentKey *key, Oid type, Datum value);
static char *json_id_text(const DocumentKey *key, Jsonb *json);
static Datum key_of_text(const DocumentKey *key, char *text);
static bool evaluate_default(const DocumentKey *key, Datum *value);

/*
 * Do values of a type contain values of a domain?  The input function of such a
 * type checks the domain.  The owner of the table may have written the checks,
 * and they would run as the caller.  A key that is itself a domain does not
 * count: we read it with the input function of its base type.
 */
bool
ttl_docs_contains_domain(Oid type)
{
	Oid			element = get_element_type(type);
	TupleDesc	tupdesc;
	bool		found = false;

	switch (get_typtype(type))
	{
		case TYPTYPE_DOMAIN:
			return true;
		case TYPTYPE_RANGE:
			return ttl_docs_contains_domain(get_range_subtype(type));
		case TYPTYPE_MULTIRANGE:
			return ttl_docs_contains_domain(get_multirange_range(type));
		case TYPTYPE_COMPOSITE:
			tupdesc = lookup_rowtype_tupdesc(type, -1);
			for (int i = 0; i < tupdesc->natts && !found; i++)
			{
				Form_pg_attribute att = TupleDescAttr(tupdesc, i);

				found = !att->attisdropped && ttl_docs_contains_domain(att->atttypid);
			}
			ReleaseTupleDesc(tupdesc);
			return found;
		default:
			return OidIsValid(element) && ttl_docs_contains_domain(element);
	}
}

/* Gets the id of a document; false if there is none.  JSON null is no id. */
bool
ttl_docs_find_id(Jsonb *doc, JsonbValue *id)
{
	return ttl_docs_get_property(doc, ID_PROPERTY, id) != NULL &&
		id->type != jbvNull;
}

/* Returns an id as text.  Raises an error if it has the wrong JSON type. */
static char *
id_text(const DocumentKey *key, const JsonbValue *id)
{
	JsonbValue	copy = *id;

	if (id->type == jbvString)
		return pnstrdup(id->val.string.val, id->val.string.len);
	if (id->type == jbvNumeric && key->is_number)
		return number_text(key, id->val.numeric);
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("invalid \"id\" of a document: %s",
					ttl_docs_json_excerpt(JsonbValueToJsonb(&copy))),
			 key->is_number ?
			 errhint("The id of a document in \"%s\" must be a number, or a string that contains a number.",
					 get_rel_name(key->relid)) :
			 errhint("The id of a document in \"%s\" must be a string.",
					 get_rel_name(key->relid))));
	return NULL;				/* keep the compiler quiet */
}

/* Returns a number as text.  If keys are numbers, 60.0 and 60 are the same. */
static char *
number_text(const DocumentKey *key, Numeric number)
{
	Datum		value = NumericGetDatum(number);

	if (key->is_number)
		value = DirectFunctionCall1(numeric_trim_scale, value);
	return DatumGetCString(DirectFunctionCall1(numeric_out, value));
}

static Datum
key_of_text(const DocumentKey *key, char *text)
{
	return OidInputFunctionCall(key->input, text, key->ioparam, -1);
}

Datum
ttl_docs_key_of_id(const DocumentKey *key, const JsonbValue *id)
{
	return key_of_text(key, id_text(key, id));
}

/*
 * Returns the key for the argument "id" of a document function, which is of
 * any type and not NULL.
 *
 * An id of the key's own type is the key.  Other ids are converted by way of
 * text.  The output function of a type is code that the server or a superuser
 * has installed: only superusers can create base types, and the output
 * functions of other types are those of core.  The value comes from the
 * caller's own query, which could print it with the same function.
 */
Datum
ttl_docs_key_of_arg(const DocumentKey *key, FunctionCallInfo fcinfo, int arg)
{
	Oid			type = id_arg_type(fcinfo, arg);
	Datum		value = PG_GETARG_DATUM(arg);
	int			nest_level;
	Datum		result;

	if (type == key->type)
		return value;
	if (type == TEXTOID)
		return key_of_text(key, TextDatumGetCString(value));
	nest_level = ttl_docs_begin_portable_output();
	result = key_of_text(key, portable_text(key, type, value));
	AtEOXact_GUC(true, nest_level);
	return result;
}

/*
 * Makes output functions print values that every input function reads as the
 * same value, whatever the session has set.  Otherwise the time zone "IST"
 * would be printed for India and read as Israel.  Returns the argument for
 * AtEOXact_GUC(), which restores the settings.  After an error, the end of the
 * transaction or subtransaction restores them.
 */
int
ttl_docs_begin_portable_output(void)
{
	int			nest_level = NewGUCNestLevel();

	if (DateStyle != USE_ISO_DATES)
		ttl_docs_set_locally("datestyle", "ISO");
	if (IntervalStyle != INTSTYLE_POSTGRES)
		ttl_docs_set_locally("intervalstyle", "postgres");
	if (extra_float_digits < 1)
		ttl_docs_set_locally("extra_float_digits", "1");
	return nest_level;
}

/* Sets a parameter until the end of the GUC nest level. */
void
ttl_docs_set_locally(const char *name, const char *value)
{
	(void) set_config_option(name, value, PGC_USERSET, PGC_S_SESSION,
							 GUC_ACTION_SAVE, true, 0, false);
}

/* Returns an id of another type than the key, and than text, as text. */
static char *
portable_text(const DocumentKey *key, Oid type, Datum value)
{
	Oid			output;
	bool		is_varlena;
	char	   *string;

	switch (type)
	{
		case NUMERICOID:
			return number_text(key, DatumGetNumeric(value));
		case JSONBOID:
			return json_id_text(key, DatumGetJsonbP(value));
		case BOOLOID:			/* as a cast to text */
			return DatumGetBool(value) ? "true" : "false";
	}
	getTypeOutputInfo(type, &output, &is_varlena);
	string = OidOutputFunctionCall(output, value);
	if (type == JSONOID)
		return json_id_text(key, DatumGetJsonbP(DirectFunctionCall1(jsonb_in,
																	CStringGetDatum(string))));
	/* not 1e+06, which an integer key cannot read */
	if ((type == FLOAT4OID || type == FLOAT8OID) && key->is_number)
		return number_text(key, DatumGetNumeric(DirectFunctionCall3(numeric_in,
																	CStringGetDatum(string),
																	ObjectIdGetDatum(InvalidOid),
																	Int32GetDatum(-1))));
	return string;
}

/*
 * Returns the type of the argument "id", or its base type if it is a domain.
 * A call from C has no expression to take the type from.  Such a call must use
 * the version of the function whose id is text.
 */
static Oid
id_arg_type(FunctionCallInfo fcinfo, int arg)
{
	Oid			type = get_fn_expr_argtype(fcinfo->flinfo, arg);

	if (type == TEXTOID)		/* the usual case, without a lookup */
		return type;
	if (!OidIsValid(type))
		type = ttl_docs_declared_arg_type(fcinfo, arg);
	if (IsPolymorphicType(type))
		ereport(ERROR,
				(errcode(ERRCODE_INDETERMINATE_DATATYPE),
				 errmsg("could not determine the data type of the id"),
				 errhint("Pass the id as text.")));
	return getBaseType(type);
}

/* Returns an id of type jsonb as text.  It must be a string or a number. */
static char *
json_id_text(const DocumentKey *key, Jsonb *json)
{
	JsonbValue	id;

	if (JB_ROOT_IS_SCALAR(json) && JsonbExtractScalar(&json->root, &id))
	{
		if (id.type == jbvString)
			return pnstrdup(id.val.string.val, id.val.string.len);
		if (id.type == jbvNumeric)
			return number_text(key, id.val.numeric);
	}
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("invalid id of a document: %s", ttl_docs_json_excerpt(json)),
			 errhint("Pass a string or a number. To get a property of a document as text, use the operator ->>.")));
	return NULL;				/* keep the compiler quiet */
}

char *
ttl_docs_text_of_key(const DocumentKey *key, Datum value)
{
	int			nest_level = ttl_docs_begin_portable_output();
	Oid			output;
	bool		is_varlena;
	char	   *text;

	getTypeOutputInfo(key->type, &output, &is_varlena);
	text = OidOutputFunctionCall(output, value);
	AtEOXact_GUC(true, nest_level);
	return text;
}

/* Makes a key for a document without an id. */
Datum
ttl_docs_new_key(const DocumentKey *key)
{
	Datum		value;

	if (!key->is_generated && evaluate_default(key, &value))
		return value;
	if (key->type != UUIDOID && TypeCategory(key->type) != TYPCATEGORY_STRING)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("document has no \"id\", and the primary key of \"%s\" has no default",
						get_rel_name(key->relid)),
				 errhint("Add an \"id\" to the document.")));
	value = DirectFunctionCall1(gen_random_uuid, (Datum) 0);
	return key_of_text(key, DatumGetCString(DirectFunctionCall1(uuid_out, value)));
}

/*
 * Evaluates the default of the key column, which may be an identity column.
 * Returns false if there is no default, or if it is NULL.  Checks the INSERT
 * privilege first, as INSERT does, because users without this privilege must
 * not advance a sequence.
 */
static bool
evaluate_default(const DocumentKey *key, Datum *value)
{
	Relation	rel = table_open(key->relid, NoLock);
	Node	   *expression = build_column_default(rel, key->column);
	EState	   *estate;
	bool		isnull = true;

	*value = (Datum) 0;
	if (expression != NULL)
	{
		int16		typlen;
		bool		typbyval;

		if (pg_attribute_aclcheck(key->relid, key->column, GetUserId(), ACL_INSERT) != ACLCHECK_OK)
			aclcheck_error(pg_class_aclcheck(key->relid, GetUserId(), ACL_INSERT),
						   OBJECT_TABLE, RelationGetRelationName(rel));
		get_typlenbyval(key->type, &typlen, &typbyval);
		estate = CreateExecutorState();
		*value = ExecEvalExprSwitchContext(ExecPrepareExpr((Expr *) expression, estate),
										   GetPerTupleExprContext(estate), &isnull);
		if (!isnull)
			*value = datumCopy(*value, typbyval, typlen);
		FreeExecutorState(estate);
	}
	table_close(rel, NoLock);
	return !isnull;
}

/* Makes the id for a key. */
void
ttl_docs_make_id(JsonbValue *id, const DocumentKey *key, Datum value)
{
	ttl_docs_make_id_of_text(id, key, ttl_docs_text_of_key(key, value));
}

/* Makes the id for a key that its output function has printed. */
void
ttl_docs_make_id_of_text(JsonbValue *id, const DocumentKey *key, char *text)
{
	if (key->is_number)
	{
		id->type = jbvNumeric;
		id->val.numeric =
			DatumGetNumeric(DirectFunctionCall3(numeric_in, CStringGetDatum(text),
												ObjectIdGetDatum(InvalidOid),
												Int32GetDatum(-1)));
	}
	/* JSON has neither NaN nor infinity, so use strings */
	if (!key->is_number || numeric_is_nan(id->val.numeric) ||
		numeric_is_inf(id->val.numeric))
	{
		id->type = jbvString;
		id->val.string.val = text;
		id->val.string.len = strlen(text);
	}
}

/*
 * Compares two keys with the equality operator of their type.  The type has
 * one, because it is the type of a primary key.
 */
bool
ttl_docs_same_key(const DocumentKey *key, Datum a, Datum b)
{
	TypeCacheEntry *type = lookup_type_cache(key->type, TYPECACHE_EQ_OPR_FINFO);

	return DatumGetBool(FunctionCall2Coll(&type->eq_opr_finfo,
										  get_typcollation(key->type), a, b));
}
