/*-------------------------------------------------------------------------
 *
 * preload.c
 *		Refuses to work unless the library was preloaded, and refuses to
 *		write where nothing can be written.
 *
 * The library must be in shared_preload_libraries: a backend without the
 * hooks would show expired documents.  Every function and the trigger ask
 * here first.
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

static bool preloaded = false;

/* Called while the postmaster loads shared_preload_libraries. */
void
ttl_docs_set_preloaded(void)
{
	preloaded = true;
}

/* Raises an error with the line to add, unless the library was preloaded. */
void
ttl_docs_require_preload(void)
{
	if (preloaded)
		return;
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("ttl_docs must be loaded by shared_preload_libraries"),
			 errdetail("Without it, sessions see expired documents, also those of tables that a restore brings."),
			 errhint("Set \"shared_preload_libraries = 'ttl_docs'\" in postgresql.conf, or add ttl_docs to that list, and restart the server. If Citus is in the list, it has to stay first: 'citus, ttl_docs'. Do this before you restore a dump: tables that are restored without the library are plain tables, whose expired documents show.")));
}

/*
 * For functions that write: raises an error on a standby and in a read-only
 * transaction.  Such a function would fail anyway, by a lock that it takes or
 * a command that it runs, but with an error that does not name the function.
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
