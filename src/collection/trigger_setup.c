/*-------------------------------------------------------------------------
 *
 * trigger_setup.c
 *		Recognises, creates and drops the ttl_docs trigger of a table.
 *
 * write/trigger.c implements the trigger function.
 *
 * On shells and shards of Citus, the trigger is hidden: tgisinternal is set.
 * Citus ignores hidden triggers, as it does those of foreign keys.  It refuses
 * to distribute a table with other triggers, and would rename them on shards.
 * On other tables the trigger is not hidden, because pg_dump would leave it
 * out, and an owner could not run ALTER TABLE ... DISABLE TRIGGER ALL.
 *
 * Triggers fire in the byte order of their names.  Ours must be the last
 * BEFORE ROW trigger, so we refuse BEFORE ROW triggers with a later name.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/dependency.h"
#include "catalog/indexing.h"
#include "catalog/pg_trigger.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "nodes/makefuncs.h"
#include "parser/parse_func.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/reltrigger.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "collection/collection_internal.h"

#define TRIGGER_TYPE	(TRIGGER_TYPE_ROW | TRIGGER_TYPE_BEFORE | \
						 TRIGGER_TYPE_INSERT | TRIGGER_TYPE_UPDATE | \
						 TRIGGER_TYPE_DELETE)

#define NO_TRIGGER		'\0'		/* is no value of pg_trigger.tgenabled */

static char write_trigger_fires(Oid relid);
static void set_hidden(Oid trigger, bool hidden);

/*
 * Does the table have our trigger with its full definition: for every row and
 * column, without a condition?
 */
bool
ttl_docs_has_trigger(Oid relid)
{
	Relation	triggers = table_open(TriggerRelationId, AccessShareLock);
	ScanKeyData keys[2];
	SysScanDesc scan;
	HeapTuple	tuple;
	bool		found = false;

	ScanKeyInit(&keys[0], Anum_pg_trigger_tgrelid, BTEqualStrategyNumber,
				F_OIDEQ, ObjectIdGetDatum(relid));
	ScanKeyInit(&keys[1], Anum_pg_trigger_tgname, BTEqualStrategyNumber,
				F_NAMEEQ, CStringGetDatum(TTL_DOCS_TRIGGER));
	scan = systable_beginscan(triggers, TriggerRelidNameIndexId, true, NULL,
							  lengthof(keys), keys);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple))
	{
		Form_pg_trigger form = (Form_pg_trigger) GETSTRUCT(tuple);

		found = form->tgfoid == ttl_docs_trigger_function() &&
			form->tgtype == TRIGGER_TYPE && form->tgnargs == 0 &&
			form->tgattr.dim1 == 0 &&
			heap_attisnull(tuple, Anum_pg_trigger_tgqual,
						   RelationGetDescr(triggers));
	}
	systable_endscan(scan);
	table_close(triggers, AccessShareLock);
	return found;
}

/*
 * Returns the OID of the trigger function.  It is not cached, because the
 * extension can be dropped and created again.
 */
Oid
ttl_docs_trigger_function(void)
{
	return LookupFuncName(list_make2(makeString(TTL_DOCS_INTERNAL),
									 makeString(TTL_DOCS_TRIGGER_FUNCTION)),
						  0, NULL, true);
}

/*
 * Creates our trigger as ENABLE ALWAYS.  If the table already has the
 * trigger, only sets ENABLE ALWAYS.  Such a trigger also fires for replicated
 * rows, and frees keys for them.
 *
 * We do not run CREATE TRIGGER as SQL, because that would fire event
 * triggers.  They must not run as the owner of a partition, which is the
 * current user when ddl_partitions.c calls this function.
 *
 * If the table is a shell or shard of Citus, the trigger is hidden.
 */
void
ttl_docs_create_trigger(Oid relid, bool hidden)
{
	CreateTrigStmt *stmt;
	bool		pushed;

	if (ttl_docs_has_trigger(relid))
	{
		ttl_docs_hide_trigger(relid, hidden);
		if (hidden)
			return;
		ttl_docs_run_ddl("ALTER TABLE %s ENABLE ALWAYS TRIGGER %s",
						 ttl_docs_quoted_name(relid), TTL_DOCS_TRIGGER);
		return;
	}
	stmt = makeNode(CreateTrigStmt);
	stmt->trigname = TTL_DOCS_TRIGGER;
	stmt->relation = makeRangeVar(get_namespace_name(get_rel_namespace(relid)),
								  get_rel_name(relid), -1);
	stmt->funcname = list_make2(makeString(TTL_DOCS_INTERNAL),
								makeString(TTL_DOCS_TRIGGER_FUNCTION));
	stmt->row = true;
	stmt->timing = TRIGGER_TYPE_BEFORE;
	stmt->events = TRIGGER_TYPE_INSERT | TRIGGER_TYPE_UPDATE | TRIGGER_TYPE_DELETE;
	pushed = ttl_docs_push_snapshot();
	CreateTriggerFiringOn(stmt, NULL, relid, InvalidOid, InvalidOid, InvalidOid,
						  InvalidOid, InvalidOid, NULL, false, false,
						  TRIGGER_FIRES_ALWAYS);
	if (pushed)
		PopActiveSnapshot();
	CommandCounterIncrement();
	if (hidden)
		ttl_docs_hide_trigger(relid, true);
}

/*
 * Hides our trigger on a table and its partitions, or shows it again.  A
 * hidden trigger also becomes ENABLE ALWAYS again.  We do not run ALTER TABLE
 * for that: Citus would send the command to the shards, with another name of
 * the trigger.
 */
void
ttl_docs_hide_trigger(Oid relid, bool hidden)
{
	List	   *tables = ttl_docs_partition_tree(relid, NoLock);
	ListCell   *lc;

	foreach(lc, tables)
	{
		if (ttl_docs_has_trigger(lfirst_oid(lc)))
			set_hidden(get_trigger_oid(lfirst_oid(lc), TTL_DOCS_TRIGGER, false), hidden);
	}
	list_free(tables);
	CommandCounterIncrement();
}

static void
set_hidden(Oid trigger, bool hidden)
{
	Relation	triggers = table_open(TriggerRelationId, RowExclusiveLock);
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;

	ScanKeyInit(&key, Anum_pg_trigger_oid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(trigger));
	scan = systable_beginscan(triggers, TriggerOidIndexId, true, NULL, 1, &key);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple))
	{
		HeapTuple	changed = heap_copytuple(tuple);
		Form_pg_trigger form = (Form_pg_trigger) GETSTRUCT(changed);

		form->tgisinternal = hidden;
		form->tgenabled = TRIGGER_FIRES_ALWAYS;
		CatalogTupleUpdate(triggers, &changed->t_self, changed);
		CacheInvalidateRelcacheByRelid(form->tgrelid);
	}
	systable_endscan(scan);
	table_close(triggers, RowExclusiveLock);
}

/* Drops our trigger and its copies in partitions, without event triggers. */
void
ttl_docs_drop_trigger(Oid relid)
{
	Oid			trigger = get_trigger_oid(relid, TTL_DOCS_TRIGGER, true);
	ObjectAddress address;

	if (!OidIsValid(trigger))
		return;
	ObjectAddressSet(address, TriggerRelationId, trigger);
	performDeletion(&address, DROP_RESTRICT, 0);
	CommandCounterIncrement();
}

/*
 * Reads the catalog row of a trigger; false if there is none.  If snapshot is
 * NULL, uses the usual catalog snapshot.
 */
bool
ttl_docs_fetch_trigger(Oid trigger, Snapshot snapshot, FormData_pg_trigger *form)
{
	Relation	triggers = table_open(TriggerRelationId, AccessShareLock);
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;
	bool		found;

	ScanKeyInit(&key, Anum_pg_trigger_oid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(trigger));
	scan = systable_beginscan(triggers, TriggerOidIndexId, true, snapshot, 1, &key);
	tuple = systable_getnext(scan);
	found = HeapTupleIsValid(tuple);
	if (found)
		memcpy(form, GETSTRUCT(tuple), sizeof(*form));
	systable_endscan(scan);
	table_close(triggers, AccessShareLock);
	return found;
}

/*
 * Raises an error if a BEFORE ROW trigger of the table fires after ours.  That
 * trigger could change a row after ours has stamped and validated the row.
 */
void
ttl_docs_require_last_trigger(Relation rel)
{
	TriggerDesc *triggers = rel->trigdesc;

	for (int i = 0; triggers != NULL && i < triggers->numtriggers; i++)
	{
		Trigger    *trigger = &triggers->triggers[i];

		if (TRIGGER_FOR_ROW(trigger->tgtype) &&
			TRIGGER_FOR_BEFORE(trigger->tgtype) &&
			strcmp(trigger->tgname, TTL_DOCS_TRIGGER) > 0)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_OBJECT_DEFINITION),
					 errmsg("trigger \"%s\" of table \"%s\" would fire after \"%s\"",
							trigger->tgname, RelationGetRelationName(rel),
							TTL_DOCS_TRIGGER),
					 errdetail("The ttl_docs trigger must fire last, and triggers fire in the order of their names."),
					 errhint("Choose a name that sorts before \"%s\".",
							 TTL_DOCS_TRIGGER)));
	}
}

/*
 * Raises an error if a table of a collection does not have our trigger,
 * unless the session restores a backup.  Also if the trigger does not fire in
 * this session: an ALTER TABLE may have disabled it, before the review enables it
 * again, or somebody has done so while the server ran without ttl_docs.
 */
void
ttl_docs_require_trigger(Oid relid, const Collection *collection)
{
	char		fires = write_trigger_fires(relid);

	if (fires == TRIGGER_FIRES_ALWAYS ||
		fires == (SessionReplicationRole == SESSION_REPLICATION_ROLE_REPLICA ?
				  TRIGGER_FIRES_ON_REPLICA : TRIGGER_FIRES_ON_ORIGIN) ||
		ttl_docs_acts_for_backup(collection->root))
		return;
	if (fires == NO_TRIGGER)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the collection \"%s\" has lost its trigger", get_rel_name(relid)),
				 errdetail("This happens when a table is restored without its triggers."),
				 errhint("To create the trigger again: SELECT ttl_docs.adopt(%s).",
						 ttl_docs_quoted_literal(collection->root))));
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("trigger \"%s\" of the collection \"%s\" does not fire", TTL_DOCS_TRIGGER,
					get_rel_name(relid)),
			 errdetail("Without the trigger, documents would be stored with wrong values of \"%s\" and \"%s\".",
					   TTL_DOCS_TS_COLUMN, TTL_DOCS_TTL_COLUMN),
			 errhint("To enable the trigger: ALTER TABLE %s ENABLE ALWAYS TRIGGER %s.",
					 ttl_docs_quoted_name(relid), TTL_DOCS_TRIGGER)));
}

/*
 * When does the trigger with the name of ours fire?  NO_TRIGGER if the table has
 * none.  Every plan that writes to a collection needs this answer, so we only
 * read the relation cache.
 */
static char
write_trigger_fires(Oid relid)
{
	Relation	rel = table_open(relid, NoLock);
	TriggerDesc *triggers = rel->trigdesc;
	char		fires = NO_TRIGGER;

	for (int i = 0; triggers != NULL && i < triggers->numtriggers; i++)
		if (strcmp(triggers->triggers[i].tgname, TTL_DOCS_TRIGGER) == 0)
			fires = triggers->triggers[i].tgenabled;
	table_close(rel, NoLock);
	return fires;
}
