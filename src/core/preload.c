/*-------------------------------------------------------------------------
 *
 * preload.c
 *		Raises an error if the library was not preloaded, and if a function
 *		that writes is called where nothing can be written.
 *
 * The library must be in shared_preload_libraries: a backend without the
 * hooks would show expired documents.  Every function and the trigger call
 * ttl_docs_require_preload() first.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "tcop/utility.h"
#include "utils/lsyscache.h"

#include "core/core.h"

/* ttl_docs.c sets it while the postmaster loads shared_preload_libraries */
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

/*
 * For functions that write: raises an error on a standby and in a read-only
 * transaction.  Without this check, a lock or a command in the function would
 * raise an error that does not name the function.
 */
void
ttl_docs_require_writable(FunctionCallInfo fcinfo)
{
	char	   *name;

	ttl_docs_require_preload();
	if (!XactReadOnly && !RecoveryInProgress())
		return;
	name = psprintf("%s.%s()", TTL_DOCS_SCHEMA, get_func_name(fcinfo->flinfo->fn_oid));
	PreventCommandDuringRecovery(name);
	PreventCommandIfReadOnly(name);
}
