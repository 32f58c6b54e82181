/*-------------------------------------------------------------------------
 *
 * parent_triggers.c
 *		Creates and drops the parent trigger of child tables, for servers whose
 *		foreign key checks bypass the planner (PostgreSQL 19).
 *
 * A foreign key check must not find an expired parent.  Up to PostgreSQL 18
 * the check is a query, and access/plan.c filters it.  Since 19 core probes the
 * unique index of the parent table itself.  No hook sees that.  So a child table
 * gets one more trigger for each of its foreign keys to a collection, the parent
 * trigger.  It runs the query of 15 to 18 (write/parent_check.c), before core's
 * own check.  On older servers nothing in this file does anything.
 *
 * Which triggers there are.  Core has a trigger RI_FKey_check_ins for each
 * foreign key on each child table that has rows.  The parent trigger goes with
 * it, if core probes the index (the parent is a plain table, and the foreign key
 * has no PERIOD) and the parent is a collection.  If the parent is a partitioned
 * table, core runs a query.  No other table has a parent trigger.
 *
 * The parent trigger is an internal trigger that belongs to the constraint:
 *
 * - tgconstraint is the foreign key, so SET CONSTRAINTS also sets it.
 * - Its name is RI_ConstraintTrigger_b_OID.  Triggers fire in the order of
 *   their names: after core's actions (a), before core's check (c).  Otherwise
 *   core's check could raise a serialization failure first, where 15 to 18 find
 *   no parent.
 * - It depends on the constraint with DEPENDENCY_AUTO, so it goes with the
 *   constraint.  CreateTrigger() records DEPENDENCY_INTERNAL; then DROP EXTENSION
 *   ... CASCADE would drop the foreign key, too.
 * - tgconstrrelid is 0.  Core looks for its own triggers of a constraint by that
 *   column, and must not find this one.
 * - pg_dump leaves it out, as all internal triggers.  It is created again when
 *   the restore creates the foreign key or writes the label, whichever is later.
 * - Its function is that of the trigger of collections.  An extension of 1.0
 *   that pg_upgrade brings has no other function.
 *
 * When they change.  At the end of each command that creates or changes a foreign
 * key (ddl_review.c), and when a table becomes part of a collection or stops being
 * one, we compare the triggers of the child tables with those that they should
 * have.  This also drops the triggers of a released collection.
 *
 * Locks.  Creating a trigger takes SHARE ROW EXCLUSIVE on the child table,
 * dropping one takes ACCESS EXCLUSIVE, until the transaction ends.  So no write
 * that began without the trigger is in flight.  We take no such lock if there is
 * nothing to change.  The caller has locked the parent, so that nobody creates a
 * foreign key to it.  A session that has written to the child and then waits for
 * the parent can deadlock with us; core then ends one of the two.  We lock several
 * child tables in the order of their OIDs.
 *
 * Rights.  The owner of the parent may change the parent.  We then also change
 * the child tables of other owners, as core does when it creates triggers for a
 * foreign key.  CreateTrigger() checks no rights for internal triggers, and no
 * code of users runs.
 *
 * A write to a child table that lacks its parent trigger is refused, because it
 * could refer to an expired document.  This happens if a foreign key was created
 * while the server ran without the library.  The check runs for each statement
 * that writes, so it reads the relation cache only.  For a partitioned child
 * table it must look at all partitions.  It remembers the partitions that it has
 * found complete until one of them changes.
 *
 * On ERROR the transaction rolls back.  On a standby nothing is written.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/dependency.h"
#include "catalog/pg_class.h"
#include "catalog/pg_constraint.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_trigger.h"
#include "commands/tablecmds.h"
#include "commands/trigger.h"
#include "utils/fmgroids.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/reltrigger.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "collection/collection_internal.h"

/* Core adds "_" and the OID of the trigger */
#define PARENT_TRIGGER_PREFIX	"RI_ConstraintTrigger_b"

/* A foreign key of a child table, with core's check and our trigger */
typedef struct ChildKey
{
	Oid			constraint;
	Oid			parent;			/* InvalidOid if core has no check */
	bool		deferrable;
	bool		initdeferred;
	char		enabled;
	Oid			ours;			/* our trigger, or InvalidOid */
	bool		ours_deferrable;
	bool		ours_initdeferred;
	char		ours_enabled;
} ChildKey;

/* Partitioned tables that are complete, and all their partitions */
static HTAB *complete = NULL;

/* number of invalidations of relations so far */
static uint64 changes = 0;

static bool update_parent_triggers(Oid child);
static List *child_keys(Oid child);
static ChildKey *find_key(List **keys, Oid constraint);
static bool needs_trigger(const ChildKey *key);
static bool has_period(Oid constraint);
static bool is_in_order(const ChildKey *key);
static ChildKey *broken_key(Oid child);
static bool fires_with(char ours, char check);
static void change_triggers(Oid child);
static void create_trigger(Oid child, const ChildKey *key);
static void loosen_dependency(Oid trigger, Oid constraint);
static void drop_trigger(Oid trigger);
static List *children_of(Oid parent);
static bool relation_is_complete(Relation rel);
static bool has_parent_trigger(const TriggerDesc *triggers, const Trigger *check);
static bool partitions_are_complete(Oid root, Oid *incomplete);
pg_noreturn static void report_missing_trigger(Oid child);
static Oid	root_of(Oid parent);

/* Is this a parent trigger? */
bool
ttl_docs_is_parent_trigger(const FormData_pg_trigger *form)
{
	return COMPAT_CORE_PROBES_PARENTS && form->tgisinternal &&
		OidIsValid(form->tgconstraint) && !TRIGGER_FOR_BEFORE(form->tgtype) &&
		form->tgfoid == ttl_docs_trigger_function();
}

/* ---- Creating and dropping ---- */

/*
 * Gives a child table the parent triggers that it needs, and drops all others.
 * Does nothing for partitioned tables: their partitions have the triggers.
 * Returns true if it has changed any.
 */
static bool
update_parent_triggers(Oid child)
{
	ListCell   *lc;

	if (get_rel_relkind(child) != RELKIND_RELATION)
		return false;
	foreach(lc, child_keys(child))
	{
		if (!is_in_order(lfirst(lc)))
		{
			change_triggers(child);
			return true;
		}
	}
	return false;
}

/*
 * The same for all child tables that refer to a table or its partitions.  Called
 * when they become part of a collection, or stop being one.
 */
bool
ttl_docs_update_triggers_of_children(Oid relid)
{
	List	   *tables;
	List	   *children = NIL;
	ListCell   *lc;
	bool		changed = false;

	if (!COMPAT_CORE_PROBES_PARENTS)
		return false;
	tables = ttl_docs_partition_tree(relid, NoLock);
	foreach(lc, tables)
		children = list_concat_unique_oid(children, children_of(lfirst_oid(lc)));
	list_sort(children, list_oid_cmp);
	foreach(lc, children)
		changed |= update_parent_triggers(lfirst_oid(lc));
	list_free(children);
	list_free(tables);
	return changed;
}

/* A constraint was created or changed.  Updates its table if it is a foreign key. */
void
ttl_docs_review_foreign_key(Oid constraint)
{
	HeapTuple	tuple = SearchSysCache1(CONSTROID, ObjectIdGetDatum(constraint));
	Oid			child = InvalidOid;

	if (!HeapTupleIsValid(tuple))
		return;
	if (((Form_pg_constraint) GETSTRUCT(tuple))->contype == CONSTRAINT_FOREIGN)
		child = ((Form_pg_constraint) GETSTRUCT(tuple))->conrelid;
	ReleaseSysCache(tuple);
	if (OidIsValid(child))
		(void) update_parent_triggers(child);
}

/*
 * A parent trigger was dropped or changed.  Raises an error if a user did that,
 * and the foreign key still needs the trigger.
 */
void
ttl_docs_review_parent_trigger(Oid child)
{
	ChildKey   *key = broken_key(child);

	if (key != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_DEPENDENT_OBJECTS_STILL_EXIST),
				 errmsg("cannot change the ttl_docs trigger of foreign key \"%s\" of table \"%s\"",
						get_constraint_name(key->constraint), get_rel_name(child)),
				 errdetail("The foreign key references the collection \"%s\", and the trigger keeps it from referencing expired documents.",
						   get_rel_name(key->parent)),
				 errhint("To remove the trigger, drop the foreign key.")));
}

/* Reads the foreign keys of a child table, with core's checks and our triggers. */
static List *
child_keys(Oid child)
{
	Relation	triggers = table_open(TriggerRelationId, AccessShareLock);
	List	   *keys = NIL;
	ScanKeyData scan_key;
	SysScanDesc scan;
	HeapTuple	tuple;

	ScanKeyInit(&scan_key, Anum_pg_trigger_tgrelid, BTEqualStrategyNumber,
				F_OIDEQ, ObjectIdGetDatum(child));
	scan = systable_beginscan(triggers, TriggerRelidNameIndexId, true, NULL, 1,
							  &scan_key);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Form_pg_trigger form = (Form_pg_trigger) GETSTRUCT(tuple);

		if (form->tgfoid == F_RI_FKEY_CHECK_INS && OidIsValid(form->tgconstraint))
		{
			ChildKey   *key = find_key(&keys, form->tgconstraint);

			key->parent = form->tgconstrrelid;
			key->deferrable = form->tgdeferrable;
			key->initdeferred = form->tginitdeferred;
			key->enabled = form->tgenabled;
		}
		else if (ttl_docs_is_parent_trigger(form))
		{
			ChildKey   *key = find_key(&keys, form->tgconstraint);

			key->ours = form->oid;
			key->ours_deferrable = form->tgdeferrable;
			key->ours_initdeferred = form->tginitdeferred;
			key->ours_enabled = form->tgenabled;
		}
	}
	systable_endscan(scan);
	table_close(triggers, AccessShareLock);
	return keys;
}

/* The entry of a constraint in the list; adds it if necessary. */
static ChildKey *
find_key(List **keys, Oid constraint)
{
	ChildKey   *key;
	ListCell   *lc;

	foreach(lc, *keys)
	{
		key = lfirst(lc);
		if (key->constraint == constraint)
			return key;
	}
	key = palloc0(sizeof(ChildKey));
	key->constraint = constraint;
	*keys = lappend(*keys, key);
	return key;
}

/* Does core probe the index of a collection for this foreign key? */
static bool
needs_trigger(const ChildKey *key)
{
	Collection	collection;

	return OidIsValid(key->parent) &&
		get_rel_relkind(key->parent) == RELKIND_RELATION &&
		ttl_docs_lookup_collection(key->parent, &collection) &&
		!has_period(key->constraint);
}

static bool
has_period(Oid constraint)
{
	HeapTuple	tuple = SearchSysCache1(CONSTROID, ObjectIdGetDatum(constraint));
	bool		found;

	if (!HeapTupleIsValid(tuple))
		return false;
	found = compat_has_period((Form_pg_constraint) GETSTRUCT(tuple));
	ReleaseSysCache(tuple);
	return found;
}

/* Is our trigger there if and only if it should be, as its foreign key wants it? */
static bool
is_in_order(const ChildKey *key)
{
	if (!needs_trigger(key))
		return !OidIsValid(key->ours);
	return OidIsValid(key->ours) &&
		key->ours_deferrable == key->deferrable &&
		key->ours_initdeferred == key->initdeferred &&
		fires_with(key->ours_enabled, key->enabled);
}

/* The first foreign key whose parent trigger is missing or wrong, or NULL. */
static ChildKey *
broken_key(Oid child)
{
	ListCell   *lc;

	foreach(lc, child_keys(child))
	{
		ChildKey   *key = lfirst(lc);

		if (needs_trigger(key) && !is_in_order(key))
			return key;
	}
	return NULL;
}

/*
 * Does our trigger fire for each write for which core's check fires?  The
 * arguments say how both are enabled.  Replication does not count: it checks no
 * foreign keys, unless somebody has enabled core's check there.
 */
static bool
fires_with(char ours, char check)
{
	return ours == TRIGGER_FIRES_ON_ORIGIN || ours == TRIGGER_FIRES_ALWAYS ||
		ours == check || check == TRIGGER_DISABLED;
}

/*
 * Makes the triggers of a child table right, under a lock.
 *
 * Raises an error if a new trigger would miss rows that a running query or a
 * deferred check of this session still has to check.  A trigger that is not
 * needed any more stays then, and does nothing: core would refuse to drop it.
 */
static void
change_triggers(Oid child)
{
	Relation	rel = try_table_open(child, ShareRowExclusiveLock);
	bool		is_in_use;
	ListCell   *lc;

	if (rel == NULL)
		return;					/* dropped meanwhile, with its foreign keys */
	is_in_use = rel->rd_refcnt > 1 || AfterTriggerPendingOnRel(child);
	table_close(rel, NoLock);
	foreach(lc, child_keys(child))
	{
		ChildKey   *key = lfirst(lc);

		if (is_in_order(key) || (is_in_use && !needs_trigger(key)))
			continue;
		if (is_in_use)
			CheckTableNotInUse(table_open(child, NoLock), "ALTER TABLE");
		if (OidIsValid(key->ours))
			drop_trigger(key->ours);
		if (needs_trigger(key))
			create_trigger(child, key);
	}
}

static void
create_trigger(Oid child, const ChildKey *key)
{
	CreateTrigStmt *stmt = makeNode(CreateTrigStmt);
	bool		pushed = ttl_docs_push_snapshot();
	ObjectAddress address;

	stmt->trigname = PARENT_TRIGGER_PREFIX;
	stmt->row = true;
	stmt->timing = TRIGGER_TYPE_AFTER;
	stmt->events = TRIGGER_TYPE_INSERT | TRIGGER_TYPE_UPDATE;
	stmt->isconstraint = true;
	stmt->deferrable = key->deferrable;
	stmt->initdeferred = key->initdeferred;
	address = CreateTriggerFiringOn(stmt, NULL, child, InvalidOid, key->constraint,
									InvalidOid, ttl_docs_trigger_function(),
									InvalidOid, NULL, true, false, key->enabled);
	if (pushed)
		PopActiveSnapshot();
	/* the dependency can only be changed when it is visible */
	CommandCounterIncrement();
	loosen_dependency(address.objectId, key->constraint);
	CommandCounterIncrement();
}

/* The trigger goes with the constraint, but the constraint stays without it. */
static void
loosen_dependency(Oid trigger, Oid constraint)
{
	ObjectAddress dependent;
	ObjectAddress referenced;

	(void) deleteDependencyRecordsForSpecific(TriggerRelationId, trigger,
											  DEPENDENCY_INTERNAL,
											  ConstraintRelationId, constraint);
	ObjectAddressSet(dependent, TriggerRelationId, trigger);
	ObjectAddressSet(referenced, ConstraintRelationId, constraint);
	recordDependencyOn(&dependent, &referenced, DEPENDENCY_AUTO);
}

static void
drop_trigger(Oid trigger)
{
	ObjectAddress address;

	ObjectAddressSet(address, TriggerRelationId, trigger);
	performDeletion(&address, DROP_RESTRICT, PERFORM_DELETION_INTERNAL);
	CommandCounterIncrement();
}

/*
 * The child tables with a foreign key to this table, and their partitions.  The
 * actions of a foreign key are triggers of the parent, so we find them there.
 */
static List *
children_of(Oid parent)
{
	Relation	triggers = table_open(TriggerRelationId, AccessShareLock);
	List	   *found = NIL;
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;

	ScanKeyInit(&key, Anum_pg_trigger_tgrelid, BTEqualStrategyNumber,
				F_OIDEQ, ObjectIdGetDatum(parent));
	scan = systable_beginscan(triggers, TriggerRelidNameIndexId, true, NULL, 1, &key);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Form_pg_trigger form = (Form_pg_trigger) GETSTRUCT(tuple);

		if (OidIsValid(form->tgconstrrelid) &&
			RI_FKey_trigger_type(form->tgfoid) == RI_TRIGGER_PK)
			found = list_append_unique_oid(found, form->tgconstrrelid);
	}
	systable_endscan(scan);
	table_close(triggers, AccessShareLock);
	for (int i = 0; i < list_length(found); i++)
		found = list_concat_unique_oid(found, find_inheritance_children(list_nth_oid(found, i),
																		NoLock));
	return found;
}

/* ---- Refusing writes ---- */

/*
 * Raises an error if a table that is about to be written lacks a parent trigger.
 * The caller has locked the table.
 */
void
ttl_docs_require_parent_triggers(Oid relid)
{
	Relation	rel;
	Oid			incomplete = relid;
	bool		is_complete;

	/* core checks no foreign keys for replication */
	if (!COMPAT_CORE_PROBES_PARENTS ||
		SessionReplicationRole == SESSION_REPLICATION_ROLE_REPLICA)
		return;
	rel = table_open(relid, NoLock);
	if (rel->rd_rel->relkind == RELKIND_PARTITIONED_TABLE)
		is_complete = partitions_are_complete(relid, &incomplete);
	else
		is_complete = relation_is_complete(rel);
	table_close(rel, NoLock);
	if (!is_complete)
		report_missing_trigger(incomplete);
}

/*
 * Does a table have its parent triggers?  This runs for each write of a table with
 * a foreign key, so it reads the relation cache.
 */
static bool
relation_is_complete(Relation rel)
{
	TriggerDesc *triggers = rel->trigdesc;
	List	   *constraints = NIL;
	List	   *parents = NIL;
	ListCell   *c,
			   *p;

	/* collect first: a lookup can process an invalidation, which frees the triggers */
	for (int i = 0; triggers != NULL && i < triggers->numtriggers; i++)
	{
		Trigger    *check = &triggers->triggers[i];

		if (check->tgfoid == F_RI_FKEY_CHECK_INS &&
			check->tgenabled != TRIGGER_DISABLED &&
			!has_parent_trigger(triggers, check))
		{
			constraints = lappend_oid(constraints, check->tgconstraint);
			parents = lappend_oid(parents, check->tgconstrrelid);
		}
	}
	forboth(c, constraints, p, parents)
	{
		Collection	collection;

		if (ttl_docs_lookup_collection(lfirst_oid(p), &collection) &&
			get_rel_relkind(lfirst_oid(p)) == RELKIND_RELATION &&
			!has_period(lfirst_oid(c)))
			return false;
	}
	return true;
}

static bool
has_parent_trigger(const TriggerDesc *triggers, const Trigger *check)
{
	for (int i = 0; i < triggers->numtriggers; i++)
	{
		Trigger    *trigger = &triggers->triggers[i];

		if (trigger->tgconstraint == check->tgconstraint &&
			!OidIsValid(trigger->tgconstrrelid) &&
			fires_with(trigger->tgenabled, check->tgenabled))
			return true;
	}
	return false;
}

/* The same for all partitions of a table.  Sets *incomplete to one that is not. */
static bool
partitions_are_complete(Oid root, Oid *incomplete)
{
	uint64		changes_before;
	List	   *members;
	ListCell   *lc;

	if (complete == NULL)
	{
		HASHCTL		ctl = {0};

		ctl.keysize = sizeof(Oid);
		ctl.entrysize = sizeof(Oid);
		ctl.hcxt = TopMemoryContext;
		complete = hash_create("ttl_docs complete child tables", 64, &ctl,
							   HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	}
	if (hash_search(complete, &root, HASH_FIND, NULL) != NULL)
		return true;
	changes_before = changes;
	members = find_all_inheritors(root, NoLock, NULL);
	foreach(lc, members)
	{
		ListCell   *key_lc;

		if (get_rel_relkind(lfirst_oid(lc)) != RELKIND_RELATION)
			continue;
		foreach(key_lc, child_keys(lfirst_oid(lc)))
		{
			ChildKey   *key = lfirst(key_lc);

			if (key->enabled != TRIGGER_DISABLED && needs_trigger(key) &&
				(!OidIsValid(key->ours) || !fires_with(key->ours_enabled, key->enabled)))
			{
				*incomplete = lfirst_oid(lc);
				return false;
			}
		}
	}
	/* if a relation has changed meanwhile, look again next time */
	if (changes == changes_before)
		foreach(lc, members)
			(void) hash_search(complete, &lfirst_oid(lc), HASH_ENTER, NULL);
	list_free(members);
	return true;
}

/* A relation was invalidated; InvalidOid means all relations. */
void
ttl_docs_forget_complete_children(Oid relid)
{
	changes++;
	if (complete == NULL ||
		(OidIsValid(relid) && hash_search(complete, &relid, HASH_FIND, NULL) == NULL))
		return;
	hash_destroy(complete);
	complete = NULL;
}

static void
report_missing_trigger(Oid child)
{
	ChildKey   *key = broken_key(child);

	if (key != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot write to table \"%s\" because its foreign key \"%s\" to a collection lacks the trigger of ttl_docs",
						get_rel_name(child), get_constraint_name(key->constraint)),
				 errdetail("Without the trigger, the foreign key could reference expired documents. The trigger is missing if the foreign key was created while ttl_docs was not preloaded."),
				 errhint("To create the trigger: SELECT ttl_docs.adopt(%s).",
						 ttl_docs_quoted_literal(root_of(key->parent)))));
	/* somebody has repaired it since we looked */
	ereport(ERROR,
			(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
			 errmsg("could not write to table \"%s\" because its triggers changed",
					get_rel_name(child)),
			 errhint("The transaction might succeed if retried.")));
}

/* The table whose label makes a table a collection. */
static Oid
root_of(Oid parent)
{
	Collection	collection;

	return ttl_docs_lookup_collection(parent, &collection) ? collection.root : parent;
}
