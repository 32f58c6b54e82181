/*-------------------------------------------------------------------------
 *
 * write_ttl.c
 *		The ttl of a document, from its "ttl" property.
 *
 * Absent and null inherit.  Otherwise it is -1 or an integer number from 1 to
 * 2147483647, however it is written: 60.0 is one, 1.5 and "60" are not.  A
 * document that is not an object has no properties and inherits.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "mb/pg_wchar.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"
#include "utils/numeric.h"

#include "ttl_docs.h"

PG_FUNCTION_INFO_V1(ttl_docs_sql_document_ttl);

#define TTL_PROPERTY	"ttl"
#define EXCERPT_MAX		64		/* bytes of an offending value that are shown */

static bool integer_ttl(const JsonbValue *value, int32 *ttl);

/*
 * The ttl of a document.  TTL_INVALID for a value that is not allowed, which
 * is then left in *offending.
 */
int32
ttl_docs_document_ttl(Jsonb *doc, bool *inherits, JsonbValue *offending)
{
	int32		ttl;

	*inherits = true;
	if (!JB_ROOT_IS_OBJECT(doc) ||
		getKeyJsonValueFromContainer(&doc->root, TTL_PROPERTY,
									 strlen(TTL_PROPERTY), offending) == NULL ||
		offending->type == jbvNull)
		return TTL_INVALID;
	*inherits = false;
	return integer_ttl(offending, &ttl) ? ttl : TTL_INVALID;
}

static bool
integer_ttl(const JsonbValue *value, int32 *ttl)
{
	bool		out_of_range = false;
	Datum		exact;

	if (value->type != jbvNumeric)
		return false;
	*ttl = numeric_int4_opt_error(value->val.numeric, &out_of_range);
	if (out_of_range || (*ttl != TTL_NEVER && *ttl <= 0))
		return false;
	/* the conversion rounds */
	exact = NumericGetDatum(int64_to_numeric(*ttl));
	return DatumGetBool(DirectFunctionCall2(numeric_eq, exact,
											NumericGetDatum(value->val.numeric)));
}

/* An offending value as text, cut where it is long. */
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
 * document_ttl(doc jsonb): NULL where the document inherits, 0 where its ttl
 * is not valid.
 */
Datum
ttl_docs_sql_document_ttl(PG_FUNCTION_ARGS)
{
	bool		inherits;
	JsonbValue	value;
	int32		ttl = ttl_docs_document_ttl(PG_GETARG_JSONB_P(0), &inherits, &value);

	if (inherits)
		PG_RETURN_NULL();
	PG_RETURN_INT32(ttl);
}
