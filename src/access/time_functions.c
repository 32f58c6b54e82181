/*-------------------------------------------------------------------------
 *
 * time_functions.c
 *		now(), is_expired() and expires_at().
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "utils/timestamp.h"

#include "access/access_internal.h"

PG_FUNCTION_INFO_V1(ttl_docs_now);
PG_FUNCTION_INFO_V1(ttl_docs_sql_is_expired);
PG_FUNCTION_INFO_V1(ttl_docs_sql_expires_at);

/*
 * now()
 */
Datum
ttl_docs_now(PG_FUNCTION_ARGS)
{
	ttl_docs_require_preload();
	PG_RETURN_TIMESTAMPTZ(ttl_docs_current_instant());
}

/*
 * is_expired(collection regclass, ts timestamptz, ttl integer)
 */
Datum
ttl_docs_sql_is_expired(PG_FUNCTION_ARGS)
{
	CollectionSettings settings;
	ExpiryBounds bounds;
	Stamp		stamp;

	if (PG_ARGISNULL(0) || PG_ARGISNULL(1))
		PG_RETURN_NULL();
	settings = ttl_docs_current_settings(PG_GETARG_OID(0));
	bounds = ttl_docs_bounds(&settings, ttl_docs_current_instant());
	stamp = ttl_docs_make_stamp(PG_GETARG_DATUM(1), false, PG_GETARG_DATUM(2),
								PG_ARGISNULL(2));
	PG_RETURN_BOOL(ttl_docs_is_expired(&bounds, &stamp));
}

/*
 * expires_at(collection regclass, ts timestamptz, ttl integer)
 */
Datum
ttl_docs_sql_expires_at(PG_FUNCTION_ARGS)
{
	CollectionSettings settings;
	Stamp		stamp;

	if (PG_ARGISNULL(0) || PG_ARGISNULL(1))
		PG_RETURN_NULL();
	settings = ttl_docs_current_settings(PG_GETARG_OID(0));
	stamp = ttl_docs_make_stamp(PG_GETARG_DATUM(1), false, PG_GETARG_DATUM(2),
								PG_ARGISNULL(2));
	PG_RETURN_TIMESTAMPTZ(ttl_docs_expires_at(&settings, &stamp));
}
