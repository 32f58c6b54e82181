/*-------------------------------------------------------------------------
 *
 * purging.c
 *		purging(): is an expired document being removed right now?
 *
 * We count begin and end, because a trigger that fires for one delete can
 * cause another delete.  Callers delete inside of PG_TRY, and call end on
 * error, too.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"

#include "core/core.h"

PG_FUNCTION_INFO_V1(ttl_docs_purging);

int			ttl_docs_purging_depth = 0;

/*
 * purging()
 */
Datum
ttl_docs_purging(PG_FUNCTION_ARGS)
{
	ttl_docs_require_preload();
	PG_RETURN_BOOL(ttl_docs_is_purging());
}
