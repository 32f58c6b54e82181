/*-------------------------------------------------------------------------
 *
 * ttl_docs.c
 *		Entry point of the module.
 *
 * The library has to be in shared_preload_libraries: a backend without the
 * hooks would show expired documents.  Loaded later, by calling one of the
 * functions or by LOAD, it installs nothing and warns, and every function refuses
 * to work.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/parallel.h"
#include "access/xlog.h"
#include "access/xact.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "tcop/utility.h"
#include "utils/lsyscache.h"

#include "ttl_docs.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(ttl_docs_begin_install);

void		_PG_init(void);

static bool preloaded = false;

static void warn_of_late_load(void);

void
_PG_init(void)
{
	if (!process_shared_preload_libraries_in_progress)
	{
		/* pg_upgrade --check loads it, and should find out then */
		if (IsBinaryUpgrade)
			ttl_docs_require_preload();
		warn_of_late_load();
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

/* LOAD and session_preload_libraries succeed, but hide no expired document. */
static void
warn_of_late_load(void)
{
	/* a worker loads what its leader has loaded */
	if (IsParallelWorker())
		return;
	ereport(WARNING,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("ttl_docs has no effect when it is loaded into a running session"),
			 errdetail("Expired documents stay visible."),
			 errhint("Add ttl_docs to shared_preload_libraries in postgresql.conf, and restart the server.")));
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
 * transaction.  Such a function would fail anyway, by a lock that it takes or a
 * command that it runs, but with an error that does not name the function.
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

/* What CREATE EXTENSION calls first. */
Datum
ttl_docs_begin_install(PG_FUNCTION_ARGS)
{
	ttl_docs_require_preload();
	/* the purge begins here, without a restart */
	ttl_docs_note_change(InvalidOid);
	PG_RETURN_VOID();
}
