/*-------------------------------------------------------------------------
 *
 * ttl_docs.c
 *		Entry point of the module.
 *
 * The library has to be in shared_preload_libraries: a backend without the
 * hooks would show expired documents.  Loaded later, by calling one of the
 * functions, it installs nothing, and every function refuses to work.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "miscadmin.h"

#include "ttl_docs.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(ttl_docs_begin_install);

void		_PG_init(void);

static bool preloaded = false;

void
_PG_init(void)
{
	if (!process_shared_preload_libraries_in_progress)
	{
		/* pg_upgrade --check loads it, and should find out then */
		if (IsBinaryUpgrade)
			ttl_docs_require_preload();
		return;
	}
	preloaded = true;

	/* first, to be the last that a command comes to */
	ttl_docs_bulk_copy_init();
	ttl_docs_guc_init();
	ttl_docs_label_init();
	ttl_docs_cache_init();
	ttl_docs_guard_init();
	ttl_docs_citus_init();
	ttl_docs_plan_init();
	ttl_docs_paths_init();
	ttl_docs_instant_init();
	ttl_docs_snapshot_init();
	ttl_docs_copy_init();
	ttl_docs_earliest_init();
	ttl_docs_document_init();
	ttl_docs_purge_init();
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

/* What CREATE EXTENSION calls first. */
Datum
ttl_docs_begin_install(PG_FUNCTION_ARGS)
{
	ttl_docs_require_preload();
	/* the purge begins here, without a restart */
	ttl_docs_note_change(InvalidOid);
	PG_RETURN_VOID();
}
