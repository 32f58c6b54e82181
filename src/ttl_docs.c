/*-------------------------------------------------------------------------
 *
 * ttl_docs.c
 *		Entry point of the module.
 *
 * The library must be in shared_preload_libraries: a backend without the hooks
 * would show expired documents.  Loaded later, by calling one of its functions
 * or by LOAD, it installs nothing and warns, and every function refuses to work
 * (core/preload.c).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/parallel.h"
#include "fmgr.h"
#include "miscadmin.h"

#include "collection/collection.h"
#include "document/document.h"
#include "purge/purge.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(ttl_docs_begin_install);

void		_PG_init(void);

static void warn_of_late_load(void);

void
_PG_init(void)
{
	if (!process_shared_preload_libraries_in_progress)
	{
		/* pg_upgrade --check loads the library, and should find out then */
		if (IsBinaryUpgrade)
			ttl_docs_require_preload();
		warn_of_late_load();
		return;
	}
	ttl_docs_set_preloaded();
	ttl_docs_guc_init();
	ttl_docs_label_init();
	ttl_docs_cache_init();
	ttl_docs_document_init();
	ttl_docs_hooks_init();
	ttl_docs_register_launcher();
}

/* LOAD and session_preload_libraries succeed, but hide no expired document. */
static void
warn_of_late_load(void)
{
	/* a parallel worker loads what its leader has loaded */
	if (IsParallelWorker())
		return;
	ereport(WARNING,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("ttl_docs has no effect when it is loaded into a running session"),
			 errdetail("Expired documents stay visible."),
			 errhint("Add ttl_docs to shared_preload_libraries in postgresql.conf, and restart the server.")));
}

/* CREATE EXTENSION calls this first. */
Datum
ttl_docs_begin_install(PG_FUNCTION_ARGS)
{
	ttl_docs_require_preload();
	/* the purge begins here, without a restart */
	ttl_docs_note_change(InvalidOid);
	PG_RETURN_VOID();
}
