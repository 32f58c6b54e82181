/*-------------------------------------------------------------------------
 *
 * open.c
 *		Opens a collection, with the checks that most functions need.
 *
 * Rights are checked before a lock is taken.  Otherwise a user without rights
 * could block others by waiting for the lock.  A collection is locked with
 * all of its partitions, because queries can read and write a partition
 * without a lock on the root.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/table.h"
#include "access/tableam.h"
#include "catalog/namespace.h"
#include "catalog/pg_inherits.h"
#include "commands/tablecmds.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/varlena.h"

#include "collection/collection_internal.h"

static void require_no_concurrent_change(Oid relid);
static void lock_citus_table(Oid relid, LOCKMODE lockmode);

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

/* Returns the first argument of a function, which must be a collection. */
Oid
ttl_docs_collection_arg(FunctionCallInfo fcinfo)
{
	if (PG_ARGISNULL(0))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("collection cannot be null")));
	return PG_GETARG_OID(0);
}

/*
 * Returns the type of an argument in the SQL declaration of the function.
 * Unlike the type of the expression in the call, it is always known: a call
 * from C has no expression.
 */
Oid
ttl_docs_declared_arg_type(FunctionCallInfo fcinfo, int arg)
{
	Oid		   *types;
	int			count;

	get_func_signature(fcinfo->flinfo->fn_oid, &types, &count);
	Assert(arg < count);
	return types[arg];
}

/*
 * Opens a table for a change that only its owner may make.  Checks the right
 * before it takes the lock.
 */
Relation
ttl_docs_open_owned(Oid relid, LOCKMODE lockmode)
{
	char		relkind = get_rel_relkind(relid);
	Relation	rel;

	if (relkind != '\0' && !compat_table_ownercheck(relid, GetUserId()))
		aclcheck_error(ACLCHECK_NOT_OWNER, get_relkind_objtype(relkind),
					   get_rel_name(relid));
	rel = relkind == '\0' ? NULL : try_relation_open(relid, lockmode);
	if (rel == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("relation with OID %u does not exist", relid)));
	/* the owner may have changed while we waited for the lock */
	if (!compat_table_ownercheck(relid, GetUserId()))
		aclcheck_error(ACLCHECK_NOT_OWNER, get_relkind_objtype(relkind),
					   RelationGetRelationName(rel));
	return rel;
}

/*
 * Finds a table by its qualified and quoted name, without a lock.  If there is
 * no such table, raises an error or returns InvalidOid.
 */
Oid
ttl_docs_find_table(const char *name, bool missing_ok)
{
	List	   *names = textToQualifiedNameList(cstring_to_text(name));

	return RangeVarGetRelid(makeRangeVarFromNameList(names), NoLock, missing_ok);
}

/*
 * The same for a table that the user must own.  Takes no lock, because the
 * session of another node that asks may have locked the table.
 */
Oid
ttl_docs_find_owned(const char *name, bool missing_ok)
{
	Oid			relid = ttl_docs_find_table(name, missing_ok);

	if (OidIsValid(relid) && !compat_table_ownercheck(relid, GetUserId()))
		aclcheck_error(ACLCHECK_NOT_OWNER, get_relkind_objtype(get_rel_relkind(relid)),
					   get_rel_name(relid));
	return relid;
}

/*
 * Opens a collection for a change that only its owner may make.  Also locks
 * all of its partitions.
 */
Relation
ttl_docs_open_collection(Oid relid, LOCKMODE lockmode, Collection *collection)
{
	Relation	rel;

	if (lockmode > AccessShareLock)
	{
		require_no_concurrent_change(relid);
		lock_citus_table(relid, lockmode);
	}
	rel = ttl_docs_open_owned(relid, lockmode);
	ttl_docs_lock_tree(relid, lockmode);
	if (!ttl_docs_lookup_collection(relid, collection))
		ttl_docs_report_no_collection(relid);
	if (collection->root != relid)
		ttl_docs_report_partition(relid, collection->root);
	return rel;
}

/* Raises an error: the table is a partition, and the function needs the root. */
void
ttl_docs_report_partition(Oid relid, Oid root)
{
	ereport(ERROR,
			(errcode(ERRCODE_WRONG_OBJECT_TYPE),
			 errmsg("\"%s\" is a partition of the collection \"%s\"",
					get_rel_name(relid), get_rel_name(root)),
			 errhint("Call the function for \"%s\".", get_rel_name(root))));
}

/*
 * Raises an error if another session changes the table concurrently, before
 * this session waits for a lock on the table.  The caller raises the error if
 * the user is not the owner: nobody else may lock the table.
 */
static void
require_no_concurrent_change(Oid relid)
{
	if (get_rel_relkind(relid) != '\0' && compat_table_ownercheck(relid, GetUserId()))
		ttl_docs_refuse_concurrent_change(relid);
}

/*
 * Locks a shell on all nodes, before it is locked here: Citus locks the nodes
 * in the same order in all sessions.  A shard is refused: a change of its
 * settings alone would be lost with the next change of the distributed table.
 */
static void
lock_citus_table(Oid relid, LOCKMODE lockmode)
{
	/* the caller raises the error if the user is not the owner */
	if (ttl_docs_in_citus_session())
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot change the settings of collections in a session of Citus"),
				 errdetail("The application_name of this session is that of a node of Citus."),
				 errhint("Connect with another application_name.")));
	if (!ttl_docs_has_citus() || get_rel_relkind(relid) == '\0' || !compat_table_ownercheck(relid, GetUserId()))
		return;
	ttl_docs_refuse_shard(relid);
	if (ttl_docs_is_shell(relid))
		ttl_docs_lock_on_all_nodes(relid, lockmode);
}

void
ttl_docs_lock_tree(Oid relid, LOCKMODE lockmode)
{
	list_free(ttl_docs_partition_tree(relid, lockmode));
}

/*
 * Raises an error if a query of this session uses the table or one of its
 * partitions.  The lock on the table does not help, because locks of the same
 * session do not conflict.  "action" is a verb, possibly with an object and a
 * preposition, for core's message: cannot (action) "(table)" because it is
 * being used.
 */
void
ttl_docs_require_unused(Relation rel, const char *action)
{
	List	   *tables = find_all_inheritors(RelationGetRelid(rel), NoLock, NULL);
	ListCell   *lc;

	CheckTableNotInUse(rel, action);
	foreach(lc, tables)
	{
		Relation	part;

		if (lfirst_oid(lc) == RelationGetRelid(rel))
			continue;
		part = table_open(lfirst_oid(lc), NoLock);
		CheckTableNotInUse(part, action);
		table_close(part, NoLock);
	}
	list_free(tables);
}

/* Opens a collection that no query of this session uses. */
Relation
ttl_docs_open_unused(Oid relid, LOCKMODE lockmode, const char *action,
					 Collection *collection)
{
	Relation	rel = ttl_docs_open_collection(relid, lockmode, collection);

	ttl_docs_require_unused(rel, action);
	return rel;
}

/* Raises an error: the table is not a collection, or does not exist. */
void
ttl_docs_report_no_collection(Oid relid)
{
	char	   *name = get_rel_name(relid);

	if (name == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("relation with OID %u does not exist", relid)));
	ereport(ERROR,
			(errcode(ERRCODE_WRONG_OBJECT_TYPE),
			 errmsg("\"%s\" is not a collection", name),
			 errhint("The view ttl_docs.collections lists all collections. To make a table a collection, call ttl_docs.adopt().")));
}
