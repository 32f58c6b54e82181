/*-------------------------------------------------------------------------
 *
 * session.c
 *		Recognises sessions and commands of Citus.
 *
 * A node of Citus opens sessions on the other nodes, as the user of its own
 * session.  They have an application_name of their own.  Every user can set
 * this name, so it proves nothing.  We use it only to decide things that the
 * owner of a table may decide anyway; docs/security.md has the list.
 *
 * Citus also runs commands in the session of the user: while a function of
 * Citus converts a table (convert.c), and for shards on the same node.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "executor/executor.h"
#include "miscadmin.h"
#include "nodes/value.h"
#include "parser/parse_func.h"
#include "tcop/pquery.h"
#include "utils/guc.h"
#include "utils/varlena.h"

#include "citus/citus_internal.h"

/* Is the library of Citus loaded?  If not, no database has a use for Citus. */
bool		ttl_docs_citus_is_loaded = false;
static bool is_next_to_citus = false;

/* Conversions that run in this session, one nested in the other */
int			ttl_docs_conversions = 0;

/* The collection whose rows a function of Citus copies to another shard */
Oid			ttl_docs_copied_shard = InvalidOid;

/* The table that follow.c has locked for a change of its settings, and when */
static Oid	locked_table = InvalidOid;
static TimestampTz locked_at;

static bool is_library(const char *path, const char *name);
static bool is_copy(void);
static bool in_distributed_transaction(void);

static const char *const name_prefixes[] = {
	"citus_internal gpid=",
	"citus_rebalancer gpid=",
};

/* Does another node use this session, or a user who poses as one? */
bool
ttl_docs_in_citus_session(void)
{
	if (application_name == NULL)
		return false;
	for (size_t i = 0; i < lengthof(name_prefixes); i++)
		if (strncmp(application_name, name_prefixes[i], strlen(name_prefixes[i])) == 0)
			return ttl_docs_has_citus();
	return false;
}

/*
 * Finds Citus in shared_preload_libraries.  Citus loads only if no library
 * before it has installed certain hooks, such as ours.
 */
void
ttl_docs_find_citus_library(void)
{
	List	   *libraries;
	ListCell   *lc;

	if (!SplitDirectoriesString(pstrdup(shared_preload_libraries_string), ',', &libraries))
		return;
	foreach(lc, libraries)
		ttl_docs_citus_is_loaded |= is_library(lfirst(lc), "citus");
	is_next_to_citus = list_length(libraries) > 1 &&
		is_library(linitial(libraries), "citus") &&
		is_library(lsecond(libraries), TTL_DOCS_EXTENSION);
}

/*
 * Is Citus the only library that was loaded before us?  Then every hook that
 * we call next is that of Citus, and Citus calls core next.
 */
bool
ttl_docs_is_next_to_citus(void)
{
	return is_next_to_citus;
}

static bool
is_library(const char *path, const char *name)
{
	const char *file = last_dir_separator(path);

	file = file != NULL ? file + 1 : path;
	return strncmp(file, name, strlen(name)) == 0 &&
		(file[strlen(name)] == '\0' || strcmp(file + strlen(name), ".so") == 0);
}

/* Does a SECURITY LABEL command that runs now come from Citus? */
bool
ttl_docs_label_comes_from_citus(void)
{
	return ttl_docs_conversions > 0 || ttl_docs_in_citus_session();
}

/*
 * Does Citus copy rows to this table, to move or split a shard?  Until the
 * copy is complete, the catalogs do not place the shard on this node.  Only
 * the owner of a shard or a superuser can copy rows to it.
 *
 * The catalogs are not enough.  A move commits on one node after the other.
 * So a session on another node may know the new place, and write there before
 * this node knows it.  The document must get its stamps then.  Such a write
 * differs from the copy: it is not COPY, or it is COPY in a distributed
 * transaction.  Citus fills shards by COPY from another node, outside of
 * distributed transactions, or within a function that copies a shard of this
 * node (calls.c).
 */
bool
ttl_docs_is_filled_by_citus(Oid relid)
{
	int64		shard;

	/* what every INSERT asks comes first, because the rest reads catalogs */
	if (!OidIsValid(ttl_docs_copied_shard) && !is_copy())
		return false;
	if (!ttl_docs_in_citus_session() || ttl_docs_is_shell(relid) ||
		ttl_docs_is_shard_in_use(relid, &shard))
		return false;
	return OidIsValid(ttl_docs_copied_shard) || !in_distributed_transaction();
}

/* Has the client of this session sent a COPY command? */
static bool
is_copy(void)
{
	return ActivePortal != NULL && ActivePortal->commandTag == CMDTAG_COPY;
}

/* Has Citus given this transaction a number, because it spans several nodes? */
static bool
in_distributed_transaction(void)
{
	List	   *name = list_make2(makeString("pg_catalog"),
								  makeString("get_current_transaction_id"));
	Datum		id = OidFunctionCall0(LookupFuncName(name, 0, NULL, false));
	bool		isnull;
	Datum		number = GetAttributeByName(DatumGetHeapTupleHeader(id),
											"transaction_number", &isnull);

	return !isnull && DatumGetInt64(number) != 0;
}

/*
 * Records that this transaction has just locked a table and its shards on
 * this node, so that nobody can read them.
 */
void
ttl_docs_note_locked(Oid relid)
{
	locked_table = relid;
	locked_at = ttl_docs_clock();
	ttl_docs_end_turns |= TURN_OF_CITUS;
}

/* Since when has nobody else read the table?  Without a record: now. */
TimestampTz
ttl_docs_locked_since(Oid relid)
{
	return locked_table == relid ? locked_at : ttl_docs_clock();
}

/* Locks are gone at the end of a transaction, and after a rollback to a savepoint. */
void
ttl_docs_forget_lock(void)
{
	locked_table = InvalidOid;
}
