/*-------------------------------------------------------------------------
 *
 * document_ttl.c
 *		Reads the ttl of a document from its "ttl" property.
 *
 * A document inherits if "ttl" is absent or null, or if the document is not
 * an object.  Otherwise the value must be -1 or an integer from 1 to
 * 2147483647.  The notation of the number does not matter: 60.0 is an
 * integer.  1.5 and "60" are not integers.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "mb/pg_wchar.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"
#include "utils/numeric.h"

#include "core/core.h"

PG_FUNCTION_INFO_V1(ttl_docs_sql_document_ttl);

#define TTL_PROPERTY	"ttl"
#define EXCERPT_MAX		64		/* maximum length of a value in messages */

static bool integer_ttl(const JsonbValue *value, int32 *ttl);

/*
 * Sets the ttl of a stamp from a document, or TTL_INVALID for an invalid
 * value.  Sets *found to the value of the property, unless it is absent or
 * null.
 */
void
ttl_docs_read_ttl(Datum doc, bool isnull, Stamp *stamp, JsonbValue *found)
{
	Jsonb	   *json;

	stamp->inherits = true;
	stamp->ttl = 0;
	if (isnull)
		return;
	json = DatumGetJsonbP(doc);
	if (!JB_ROOT_IS_OBJECT(json) ||
		getKeyJsonValueFromContainer(&json->root, TTL_PROPERTY,
									 strlen(TTL_PROPERTY), found) == NULL ||
		found->type == jbvNull)
		return;
	stamp->inherits = false;
	if (!integer_ttl(found, &stamp->ttl))
		stamp->ttl = TTL_INVALID;
}

static bool
integer_ttl(const JsonbValue *value, int32 *ttl)
{
	Datum		exact;

	if (value->type != jbvNumeric)
		return false;
	if (!compat_numeric_to_int4(value->val.numeric, ttl) ||
		(*ttl != TTL_NEVER && *ttl <= 0))
		return false;
	/* the conversion rounds: compare with the exact value */
	exact = NumericGetDatum(int64_to_numeric(*ttl));
	return DatumGetBool(DirectFunctionCall2(numeric_eq, exact,
											NumericGetDatum(value->val.numeric)));
}

/* An invalid value as text, shortened if it is long. */
char *
ttl_docs_json_excerpt(Jsonb *value)
{
	char	   *text = JsonbToCString(NULL, &value->root, VARSIZE(value));
	int			length = strlen(text);

	if (length <= EXCERPT_MAX)
		return text;
	return psprintf("%.*s...", pg_mbcliplen(text, length, EXCERPT_MAX), text);
}

/*
 * document_ttl(doc jsonb): NULL if the document inherits, 0 if its ttl is
 * invalid.
 */
Datum
ttl_docs_sql_document_ttl(PG_FUNCTION_ARGS)
{
	Stamp		stamp;
	JsonbValue	found;

	ttl_docs_read_ttl(PG_GETARG_DATUM(0), false, &stamp, &found);
	if (stamp.inherits)
		PG_RETURN_NULL();
	PG_RETURN_INT32(stamp.ttl);
}
