/*-------------------------------------------------------------------------
 *
 * preload.c
 *		Raises an error if the library was not preloaded.
 *
 * The library must be in shared_preload_libraries: a backend without the
 * hooks would show expired documents.  The trigger and every function that
 * reads or changes a collection, the clock or the purge call
 * ttl_docs_require_preload().  Functions that only compute a result from their
 * arguments, such as document_ttl(), do not.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "core/core.h"

/* ttl_docs.c sets this while the postmaster loads shared_preload_libraries */
bool		ttl_docs_is_preloaded = false;

void
ttl_docs_report_not_preloaded(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("ttl_docs must be loaded via \"shared_preload_libraries\""),
			 errdetail("Without the library, queries return expired documents, also from tables that were restored from a dump."),
			 errhint("Set \"shared_preload_libraries = 'ttl_docs'\" in postgresql.conf, or add ttl_docs to the list, and restart the server. If the list contains citus, keep citus first: 'citus, ttl_docs'. Do this before you restore a dump: a collection that is restored without the library becomes a plain table, and its expired documents are visible.")));
}
