/*-------------------------------------------------------------------------
 *
 * ttl_docs.c
 *		Entry point of the module.
 *
 * The library must be in shared_preload_libraries: a backend without the
 * hooks would show expired documents.  If LOAD or a function call loads the
 * library later, the library warns and installs nothing, and its functions
 * raise an error (core/preload.c).
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
		/* pg_upgrade --check loads the library; let the check fail */
		if (IsBinaryUpgrade)
			ttl_docs_require_preload();
		warn_of_late_load();
		return;
	}
	ttl_docs_is_preloaded = true;
	ttl_docs_guc_init();
	ttl_docs_label_init();
	ttl_docs_cache_init();
	ttl_docs_document_init();
	ttl_docs_hooks_init();
	ttl_docs_register_launcher();
}

/*
 * Warns about LOAD and session_preload_libraries: both succeed, but expired
 * documents stay visible.
 */
static void
warn_of_late_load(void)
{
	/* the leader of a parallel worker has warned already */
	if (IsParallelWorker())
		return;
	ereport(WARNING,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("ttl_docs has no effect when it is loaded into a running session"),
			 errdetail("Expired documents stay visible."),
			 errhint("Add ttl_docs to shared_preload_libraries in postgresql.conf, and restart the server.")));
}

/* The first command of CREATE EXTENSION calls this function. */
Datum
ttl_docs_begin_install(PG_FUNCTION_ARGS)
{
	ttl_docs_require_preload();
	/* so that the purge starts without a restart */
	ttl_docs_announce_change(InvalidOid);
	PG_RETURN_VOID();
}
