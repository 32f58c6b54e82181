/*-------------------------------------------------------------------------
 *
 * trusted_code.c
 *		Would a purge run somebody else's code with the owner's rights?
 *
 * Triggers run as the owner of the table, and nobody asked the owner.  Whoever
 * has, or had, the right to make a trigger on a table (or a child of a foreign
 * key, whose AFTER triggers fire at the end of our statement and, before 18, as
 * us) must not become its owner that way, who may be a superuser.  So what
 * cannot be shown to be the owner's own, or a superuser's, is not run: the
 * collection is "blocked".
 *
 * Looked at are the triggers that a delete fires, on the table and on the
 * partitioned table it belongs to, and all triggers of tables that foreign key
 * actions reach, with their partitions:
 * - the function belongs to a superuser, or to the owner or a role that may act
 *   as the owner anyway; for a superuser's table only the first will do.  That
 *   it is SECURITY DEFINER says nothing: its owner can change that any time;
 * - its arguments are chosen by who makes the trigger: then it has to be the
 *   owner's, and not in C;
 * - a WHEN clause uses nothing but built-in functions that are immutable.
 *   Others can be made to run any SQL;
 * - a reached table that belongs to somebody else has no triggers but those of
 *   foreign keys, and no rules, which can write to any table.
 *
 * Reached tables are locked, as their owner can change them at any time.  The
 * caller has locked the table itself when it is about to delete.
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
#include "storage/lmgr.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"

#include "core/core.h"

#define ALL_EVENTS	(TRIGGER_TYPE_INSERT | TRIGGER_TYPE_UPDATE | TRIGGER_TYPE_DELETE)

/* One look at a table and all that its foreign keys reach */
typedef struct RightsCheck
{
	Oid			owner;			/* as whom code would run */
	bool		only_foreign_keys;	/* no other triggers, whatever they run */
	List	   *reached;		/* tables, each once; those at its end are yet to
								 * be looked at */
	char	   *found;			/* what must not run, or NULL */
	Oid			function;		/* the trigger function, if it is a trigger */
} RightsCheck;

static void check_triggers(RightsCheck *check, Oid relid, int16 events);
static void check_trigger(RightsCheck *check, Relation triggers, HeapTuple tuple);
static void add_cascade_target(RightsCheck *check, Oid relid);
static void check_reached(RightsCheck *check, Oid relid);
static Oid	table_of_action(Form_pg_trigger trigger);
static bool is_trusted_role(const RightsCheck *check, Oid role);
static bool is_trusted_function(const RightsCheck *check, Oid function, int nargs);
static bool is_harmless(Node *node);
static bool has_harmful_part(Node *node, void *context);
static bool is_harmful_function(Oid function, void *context);

/*
 * Describes what would run as the owner of the table, though it is not theirs;
 * NULL if there is nothing.  *function is then the trigger function, or InvalidOid
 * if it is a rule.
 */
char *
ttl_docs_untrusted_code(Relation rel, Oid root, Oid *function)
{
	RightsCheck check = {rel->rd_rel->relowner, false, NIL, NULL, InvalidOid};

	check_triggers(&check, RelationGetRelid(rel), TRIGGER_TYPE_DELETE);
	if (root != RelationGetRelid(rel))
		check_triggers(&check, root, TRIGGER_TYPE_DELETE);
	for (int i = 0; check.found == NULL && i < list_length(check.reached); i++)
		check_reached(&check, list_nth_oid(check.reached, i));
	list_free(check.reached);
	*function = check.function;
	return check.found;
}

/* Looks at the enabled triggers of a table for these events. */
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
	if ((!check->only_foreign_keys ||
		 RI_FKey_trigger_type(trigger->tgfoid) != RI_TRIGGER_NONE) &&
		is_trusted_function(check, trigger->tgfoid, trigger->tgnargs) &&
		(isnull || is_harmless(stringToNode(TextDatumGetCString(when)))))
		return;
	check->found = psprintf("the trigger \"%s\" of the table \"%s\"",
							NameStr(trigger->tgname), get_rel_name(trigger->tgrelid));
	check->function = trigger->tgfoid;
}

/* Adds a table that a foreign key action writes to, and its partitions. */
static void
add_cascade_target(RightsCheck *check, Oid relid)
{
	List	   *members;
	ListCell   *lc;

	if (list_member_oid(check->reached, relid))
		return;
	members = find_all_inheritors(relid, NoLock, NULL);
	foreach(lc, members)
		check->reached = list_append_unique_oid(check->reached, lfirst_oid(lc));
	list_free(members);
}

/* Whatever happens to a reached table, nothing foreign may come of it. */
static void
check_reached(RightsCheck *check, Oid relid)
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
		return;					/* it went before we had the lock */
	form = (Form_pg_class) GETSTRUCT(tuple);
	check->only_foreign_keys = !is_trusted_role(check, form->relowner);
	if (form->relhasrules && check->only_foreign_keys)
		check->found = psprintf("a rule of the table \"%s\"", NameStr(form->relname));
	ReleaseSysCache(tuple);
	if (check->found == NULL)
		check_triggers(check, relid, ALL_EVENTS);
}

/* The table that a foreign key action writes to; InvalidOid if it is none. */
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

/* May code of that role run as the owner? */
static bool
is_trusted_role(const RightsCheck *check, Oid role)
{
	return superuser_arg(role) ||
		(!superuser_arg(check->owner) && has_privs_of_role(role, check->owner));
}

/* May that trigger function run as the owner, with so many arguments? */
static bool
is_trusted_function(const RightsCheck *check, Oid function, int nargs)
{
	HeapTuple	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
	Form_pg_proc form;
	bool		trusted;

	if (!HeapTupleIsValid(tuple))
		return false;
	form = (Form_pg_proc) GETSTRUCT(tuple);
	trusted = is_trusted_role(check, form->proowner);
	if (nargs > 0)
		trusted = form->proowner == check->owner &&
			form->prolang != ClanguageId && form->prolang != INTERNALlanguageId;
	ReleaseSysCache(tuple);
	return trusted;
}

/* Can an expression do nothing but compute? */
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

/* Anything but a built-in function that is immutable */
static bool
is_harmful_function(Oid function, void *context)
{
	(void) context;
	return function >= FirstUnpinnedObjectId ||
		func_volatile(function) != PROVOLATILE_IMMUTABLE;
}
