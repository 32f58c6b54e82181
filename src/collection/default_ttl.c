/*-------------------------------------------------------------------------
 *
 * default_ttl.c
 *		Reads the argument default_ttl of an SQL function.
 *
 * Every function with this argument has three versions in SQL, for integer,
 * double precision and ttl_interval.  The extension script explains why.
 * The three versions share one C function.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "catalog/pg_type.h"
#include "fmgr.h"
#include "utils/builtins.h"
#include "utils/float.h"
#include "utils/fmgrprotos.h"
#include "utils/lsyscache.h"

#include "collection/collection_internal.h"

static float8 seconds_of_interval(Datum interval);

/*
 * Reads a DefaultTTL.  Returns false if the argument is NULL, which means
 * that TTL is off.  Otherwise *default_ttl is TTL_NEVER or a number of
 * seconds.  Raises an error if the value is invalid.
 */
bool
ttl_docs_default_ttl_arg(FunctionCallInfo fcinfo, int arg, int32 *default_ttl)
{
	Datum		value = PG_GETARG_DATUM(arg);
	Oid			type = ttl_docs_declared_arg_type(fcinfo, arg);
	bool		is_interval = false;
	float8		seconds;
	Datum		text;

	*default_ttl = TTL_NEVER;
	if (PG_ARGISNULL(arg))
		return false;
	switch (type)
	{
		case INT4OID:
			seconds = DatumGetInt32(value);
			text = DirectFunctionCall1(int4out, value);
			break;
		case FLOAT8OID:
			seconds = DatumGetFloat8(value);
			text = DirectFunctionCall1(float8out, value);
			break;
		default:				/* ttl_interval, stored as an interval */
			Assert(get_typlen(type) == sizeof(Interval));
			is_interval = true;
			seconds = seconds_of_interval(value);
			text = DirectFunctionCall1(interval_out, value);
			break;
	}
	/* NaN and infinity fail these comparisons, too */
	if (!((seconds >= 1 && seconds <= TTL_MAX && rint(seconds) == seconds) ||
		  (seconds == TTL_NEVER && !is_interval)))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid DefaultTTL: %s", DatumGetCString(text)),
				 is_interval ?
				 errhint("The interval must be a whole number of seconds from 1 to %d. To turn TTL on without a default, pass -1. To turn TTL off, pass NULL.",
						 TTL_MAX) :
				 errhint("A DefaultTTL is a whole number of seconds from 1 to %d, -1 (on, without a default) or NULL (off).",
						 TTL_MAX)));
	*default_ttl = (int32) seconds;
	return true;
}

/*
 * Returns extract(epoch FROM interval): a month has 30 days, and a year 365.25
 * days.  Numbers up to TTL_MAX keep their microseconds in a float8.
 */
static float8
seconds_of_interval(Datum interval)
{
	Datum		epoch = DirectFunctionCall2(extract_interval,
											PointerGetDatum(cstring_to_text("epoch")),
											interval);

	return DatumGetFloat8(DirectFunctionCall1(numeric_float8, epoch));
}
