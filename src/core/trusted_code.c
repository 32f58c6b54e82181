/*-------------------------------------------------------------------------
 *
 * trusted_code.c
 *		Finds code of other users that a purge would run as the owner.
 *
 * The purge runs triggers as the owner of the table, without the owner's
 * consent.  The owner may be a superuser.  Two kinds of users must not be
 * able to act as the owner in this way:
 *
 * - users who can create a trigger on the table, or could in the past;
 * - owners of a child table of a foreign key.  AFTER triggers of the child
 *   fire at the end of our statement.  Before PostgreSQL 18, they run as the
 *   current user, which is the owner of the table that we purge.
 *
 * So we trust only code of the owner, of a superuser, or of a role that may
 * act as the owner anyway.  If a delete could run any other code, nothing is
 * deleted: the collection is "blocked".
 *
 * We check the triggers that a delete fires, on the table and on its
 * partitioned table.  We also check all triggers of the cascade targets: the
 * tables, with their partitions, that foreign key actions write to.  The
 * rules are:
 *
 * - The trigger function belongs to a superuser, to the owner, or to a role
 *   that may act as the owner anyway.  If the owner is a superuser, the
 *   function must belong to a superuser.  SECURITY DEFINER does not help: the
 *   owner of the function can remove it at any time.
 * - If the trigger has arguments, the function belongs to the owner and is
 *   not written in C, because the user who creates a trigger chooses its
 *   arguments.
 * - A WHEN clause calls only built-in immutable functions.  Other functions
 *   can be used to run any SQL.
 * - A cascade target of another owner has no triggers except those of foreign
 *   keys, and no rules, because a rule can write to any table.
 *
 * We lock cascade targets, because their owners could change them at any
 * time.  A caller that is about to delete has already locked the table
 * itself.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/transam.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_language.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_trigger.h"
#include "commands/trigger.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "parser/parse_func.h"
#include "storage/lmgr.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"

#include "core/core.h"

#define ALL_EVENTS	(TRIGGER_TYPE_INSERT | TRIGGER_TYPE_UPDATE | TRIGGER_TYPE_DELETE)

/* The check of one table and of its cascade targets */
typedef struct RightsCheck
{
	Oid			owner;			/* role that would run the code */
	bool		only_foreign_keys;	/* trust only triggers of foreign keys */
	List	   *cascade_targets;	/* each once, in the order of the check */
	char	   *found;			/* name of the untrusted object, or NULL */
	Oid			function;		/* trigger function of the untrusted object;
								 * InvalidOid for a rule */
} RightsCheck;

static void check_triggers(RightsCheck *check, Oid relid, int16 events);
static void check_trigger(RightsCheck *check, Relation triggers, HeapTuple tuple);
static bool is_of_foreign_key(Form_pg_trigger trigger);
static void add_cascade_target(RightsCheck *check, Oid relid);
static void check_cascade_target(RightsCheck *check, Oid relid);
static Oid	table_of_action(Form_pg_trigger trigger);
static bool is_trusted_function(const RightsCheck *check, Oid function, int nargs);
static bool is_harmless(Node *node);
static bool has_harmful_part(Node *node, void *context);
static bool is_harmful_function(Oid function, void *context);

/*
 * Returns the name of an object (a trigger or a rule) that would run
 * untrusted code as the owner of the table, or NULL if there is none.  Sets
 * *function to the function of a trigger; InvalidOid for a rule.  Sets
 * *cascade_targets to the tables that foreign key actions write to.
 */
char *
ttl_docs_untrusted_code(Relation rel, Oid root, Oid *function,
						List **cascade_targets)
{
	RightsCheck check = {rel->rd_rel->relowner, false, NIL, NULL, InvalidOid};

	check_triggers(&check, RelationGetRelid(rel), TRIGGER_TYPE_DELETE);
	if (root != RelationGetRelid(rel))
		check_triggers(&check, root, TRIGGER_TYPE_DELETE);
	for (int i = 0; check.found == NULL && i < list_length(check.cascade_targets); i++)
		check_cascade_target(&check, list_nth_oid(check.cascade_targets, i));
	*function = check.function;
	*cascade_targets = check.cascade_targets;
	return check.found;
}

/* Checks the enabled triggers of a table for these events. */
static void
check_triggers(RightsCheck *check, Oid relid, int16 events)
{
	Relation	triggers = table_open(TriggerRelationId, AccessShareLock);
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;

	ScanKeyInit(&key, Anum_pg_trigger_tgrelid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(relid));
	scan = systable_beginscan(triggers, TriggerRelidNameIndexId, true, NULL, 1, &key);
	while (check->found == NULL && HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Form_pg_trigger trigger = (Form_pg_trigger) GETSTRUCT(tuple);

		if (trigger->tgenabled != TRIGGER_DISABLED &&
			(trigger->tgtype & events) != 0)
			check_trigger(check, triggers, tuple);
	}
	systable_endscan(scan);
	table_close(triggers, AccessShareLock);
}

static void
check_trigger(RightsCheck *check, Relation triggers, HeapTuple tuple)
{
	Form_pg_trigger trigger = (Form_pg_trigger) GETSTRUCT(tuple);
	Oid			action = table_of_action(trigger);
	bool		isnull;
	Datum		when = heap_getattr(tuple, Anum_pg_trigger_tgqual,
									RelationGetDescr(triggers), &isnull);

	if (OidIsValid(action))
		add_cascade_target(check, action);
	if ((!check->only_foreign_keys || is_of_foreign_key(trigger)) &&
		is_trusted_function(check, trigger->tgfoid, trigger->tgnargs) &&
		(isnull || is_harmless(stringToNode(TextDatumGetCString(when)))))
		return;
	check->found = psprintf("trigger \"%s\" on table \"%s\"",
							NameStr(trigger->tgname), get_rel_name(trigger->tgrelid));
	check->function = trigger->tgfoid;
}

/*
 * Is this a trigger of a foreign key: one of core's, or our parent trigger
 * (collection/parent_triggers.c)?  Only core and we create internal triggers.  But
 * any function can be that of an internal trigger of a constraint, so the function
 * decides, too.
 */
static bool
is_of_foreign_key(Form_pg_trigger trigger)
{
	if (RI_FKey_trigger_type(trigger->tgfoid) != RI_TRIGGER_NONE)
		return true;
	return COMPAT_CORE_PROBES_PARENTS && trigger->tgisinternal &&
		OidIsValid(trigger->tgconstraint) &&
		trigger->tgfoid == LookupFuncName(list_make2(makeString(TTL_DOCS_INTERNAL),
													 makeString(TTL_DOCS_TRIGGER_FUNCTION)),
										  0, NULL, true);
}

/* Adds a table that a foreign key action writes to, and its partitions. */
static void
add_cascade_target(RightsCheck *check, Oid relid)
{
	List	   *members;
	ListCell   *lc;

	if (list_member_oid(check->cascade_targets, relid))
		return;
	members = find_all_inheritors(relid, NoLock, NULL);
	foreach(lc, members)
		check->cascade_targets = list_append_unique_oid(check->cascade_targets,
														lfirst_oid(lc));
	list_free(members);
}

/* Checks a cascade target: the action may fire any of its triggers. */
static void
check_cascade_target(RightsCheck *check, Oid relid)
{
	HeapTuple	tuple;
	Form_pg_class form;

	if (!ConditionalLockRelationOid(relid, RowExclusiveLock))
		ereport(ERROR,
				(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
				 errmsg("could not obtain lock on relation \"%s\"",
						get_rel_name(relid))));
	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relid));
	if (!HeapTupleIsValid(tuple))
		return;					/* dropped before we got the lock */
	form = (Form_pg_class) GETSTRUCT(tuple);
	check->only_foreign_keys = !ttl_docs_is_trusted_role(check->owner, form->relowner);
	if (form->relhasrules && check->only_foreign_keys)
		check->found = psprintf("a rule on table \"%s\"", NameStr(form->relname));
	ReleaseSysCache(tuple);
	if (check->found == NULL)
		check_triggers(check, relid, ALL_EVENTS);
}

/* The table that a foreign key action writes to; InvalidOid = no action. */
static Oid
table_of_action(Form_pg_trigger trigger)
{
	switch (trigger->tgfoid)
	{
		case F_RI_FKEY_CASCADE_DEL:
		case F_RI_FKEY_CASCADE_UPD:
		case F_RI_FKEY_SETNULL_DEL:
		case F_RI_FKEY_SETNULL_UPD:
		case F_RI_FKEY_SETDEFAULT_DEL:
		case F_RI_FKEY_SETDEFAULT_UPD:
			return trigger->tgconstrrelid;
		default:
			return InvalidOid;
	}
}

/* May code of this role run as the owner of a table? */
bool
ttl_docs_is_trusted_role(Oid owner, Oid role)
{
	return superuser_arg(role) ||
		(!superuser_arg(owner) && has_privs_of_role(role, owner));
}

/* May this trigger function run as the owner, with this many arguments? */
static bool
is_trusted_function(const RightsCheck *check, Oid function, int nargs)
{
	HeapTuple	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
	Form_pg_proc form;
	bool		trusted;

	if (!HeapTupleIsValid(tuple))
		return false;
	form = (Form_pg_proc) GETSTRUCT(tuple);
	trusted = ttl_docs_is_trusted_role(check->owner, form->proowner);
	if (nargs > 0)
		trusted = form->proowner == check->owner &&
			form->prolang != ClanguageId && form->prolang != INTERNALlanguageId;
	ReleaseSysCache(tuple);
	return trusted;
}

/* Does an expression only compute, without calling untrusted functions? */
static bool
is_harmless(Node *node)
{
	return !has_harmful_part(node, NULL);
}

static bool
has_harmful_part(Node *node, void *context)
{
	if (node == NULL)
		return false;
	switch (nodeTag(node))
	{
		case T_List:
		case T_Var:
		case T_Const:
		case T_BoolExpr:
		case T_NullTest:
		case T_BooleanTest:
		case T_RelabelType:
		case T_CaseExpr:
		case T_CaseWhen:
		case T_CaseTestExpr:
		case T_CoalesceExpr:
		case T_ArrayExpr:
			break;
		case T_FuncExpr:
		case T_OpExpr:
		case T_DistinctExpr:
		case T_NullIfExpr:
		case T_ScalarArrayOpExpr:
		case T_CoerceViaIO:
			if (check_functions_in_node(node, is_harmful_function, context))
				return true;
			break;
		default:
			return true;
	}
	return expression_tree_walker(node, has_harmful_part, context);
}

/* Is this anything but a built-in immutable function? */
static bool
is_harmful_function(Oid function, void *context)
{
	(void) context;
	return function >= FirstUnpinnedObjectId ||
		func_volatile(function) != PROVOLATILE_IMMUTABLE;
}
