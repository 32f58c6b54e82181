/*-------------------------------------------------------------------------
 *
 * guard.c
 *		Protects the owner of a table while we delete rows as this owner: code
 *		of other users runs in the middle of the delete.
 *
 * Before we delete rows as the owner of a table, trusted_code.c checks all
 * triggers and rules that the delete can reach.  But the delete also runs code
 * of other users, as these users: a foreign key action computes CHECK
 * constraints and defaults of a child table as the owner of the child.  That
 * code must not change what the delete then runs as the owner of the parent:
 *
 * 1. It could create a trigger on the child, which core fires as the owner of
 *    the parent.  So from the check to the end of the deletes, nobody may change
 *    triggers, rules, partitions or owners of the tables that were checked.  Our
 *    own session is stopped here, by the object access hook (hooks.c).  Other
 *    sessions are stopped by our locks: ATTACH PARTITION to a child needs a lock
 *    on the parent, for its foreign key, that conflicts with ours.
 * 2. It could change a setting, such as search_path, so that a trusted trigger
 *    calls another function.  So only trusted roles may change settings.
 *
 * A guard is on the stack of its function, which ends it on ERROR, too.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_rewrite.h"
#include "catalog/pg_trigger.h"
#include "miscadmin.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "core/core.h"

TableGuard *ttl_docs_guard = NULL;

static Oid	changed_table(Oid classId, Oid objectId, void *arg);
static Oid	table_of_object(Oid catalog, Oid index, AttrNumber oid_column,
							AttrNumber table_column, Oid objectId);
static bool is_guarded(Oid relid);

/* Guards a table, the partitioned table it belongs to, and cascade targets. */
void
ttl_docs_begin_guard(TableGuard *guard, Relation rel, Oid root, List *cascade_targets)
{
	guard->outer = ttl_docs_guard;
	guard->owner = rel->rd_rel->relowner;
	guard->relid = RelationGetRelid(rel);
	guard->root = root;
	guard->cascade_targets = cascade_targets;
	ttl_docs_guard = guard;
}

void
ttl_docs_end_guard(const TableGuard *guard)
{
	ttl_docs_guard = guard->outer;
}

/* Raises an error if an object of a guarded table was created or altered. */
void
ttl_docs_refuse_guarded_change(Oid classId, Oid objectId, void *arg)
{
	Oid			relid = changed_table(classId, objectId, arg);

	if (!OidIsValid(relid) || !is_guarded(relid))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_IN_USE),
			 errmsg("cannot change table \"%s\" while ttl_docs deletes expired documents",
					get_rel_name(relid)),
			 errhint("Do not change triggers, rules, partitions or owners in code that a delete runs.")));
}

/* Raises an error if code of an untrusted role is about to change a setting. */
void
ttl_docs_refuse_guarded_setting(void)
{
	for (TableGuard *guard = ttl_docs_guard; guard != NULL; guard = guard->outer)
		if (!ttl_docs_is_trusted_role(guard->owner, GetUserId()))
			ereport(ERROR,
					(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
					 errmsg("cannot change settings while ttl_docs deletes expired documents as another user"),
					 errhint("Do not change settings in code that a foreign key action runs.")));
}

/* The table that a change concerns, or InvalidOid. */
static Oid
changed_table(Oid classId, Oid objectId, void *arg)
{
	switch (classId)
	{
		case RelationRelationId:
			return objectId;
		case InheritsRelationId:
			return arg != NULL ? ((ObjectAccessPostAlter *) arg)->auxiliary_id : InvalidOid;
		case TriggerRelationId:
			return table_of_object(TriggerRelationId, TriggerOidIndexId,
								   Anum_pg_trigger_oid, Anum_pg_trigger_tgrelid,
								   objectId);
		case RewriteRelationId:
			return table_of_object(RewriteRelationId, RewriteOidIndexId,
								   Anum_pg_rewrite_oid, Anum_pg_rewrite_ev_class,
								   objectId);
		default:
			return InvalidOid;
	}
}

/* The table of a trigger or rule, which this very command may have created. */
static Oid
table_of_object(Oid catalog, Oid index, AttrNumber oid_column,
				AttrNumber table_column, Oid objectId)
{
	Relation	objects = table_open(catalog, AccessShareLock);
	Oid			relid = InvalidOid;
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;

	ScanKeyInit(&key, oid_column, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(objectId));
	scan = systable_beginscan(objects, index, true, SnapshotSelf, 1, &key);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple))
	{
		bool		isnull;

		relid = DatumGetObjectId(heap_getattr(tuple, table_column,
											  RelationGetDescr(objects), &isnull));
	}
	systable_endscan(scan);
	table_close(objects, AccessShareLock);
	return relid;
}

static bool
is_guarded(Oid relid)
{
	for (TableGuard *guard = ttl_docs_guard; guard != NULL; guard = guard->outer)
		if (guard->relid == relid || guard->root == relid ||
			list_member_oid(guard->cascade_targets, relid))
			return true;
	return false;
}
