/*-------------------------------------------------------------------------
 *
 * convert.c
 *		A collection becomes a Citus table, or another kind of Citus table, or
 *		a plain table again.
 *
 * Functions of Citus convert tables (calls.c), and so do a few commands
 * (ttl_docs_begin_conversion_by()).  Citus copies the rows to other tables,
 * all in one transaction.
 *
 * Before the conversion, we
 *
 *	1. lock the table, and its shards on all nodes (follow.c);
 *	2. hide its trigger, because Citus refuses visible ones;
 *	3. give _ts a constant default (collection/column_defaults.c);
 *	4. set "citus" and "filling" in the label.
 *
 * Citus copies the label to the new tables, and follow.c creates their
 * triggers.  "filling" counts only in the transaction that wrote the label
 * (collection/cache.c).  It has two effects:
 *
 *	- the trigger keeps the stamps of the rows that are copied;
 *	- queries see expired documents, so that these are copied, too.  They are
 *	  as expired in the new table as in the old one.  Without a copy, they
 *	  would be lost without their triggers and foreign key actions, and even
 *	  if the purge is held.
 *
 * No other transaction sees the label with "filling".
 *
 * After the conversion, we look up each table by its name, because some
 * conversions create a new table of the same name.  If the table is a Citus
 * table, its label loses "filling" on all nodes.  If it is a plain table, we
 * undo steps 2 to 4.
 *
 * The labels with "filling" are visible only in the sessions that wrote them.
 * So Citus must use one session on each node for the whole conversion
 * (ttl_docs_require_propagation()).
 *
 * Citus can convert other tables along with the named one: those that foreign
 * keys connect with it, and those that are colocated.  So we prepare all
 * collections among them.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/namespace.h"
#include "catalog/partition.h"
#include "catalog/pg_constraint.h"
#include "catalog/pg_inherits.h"
#include "commands/extension.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/acl.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "citus/actions.h"
#include "citus/citus_internal.h"

/* A collection that is being converted */
typedef struct ConvertedTable
{
	Oid			schema;			/* before the conversion */
	char	   *name;
} ConvertedTable;

static List *only_collections(List *relids);
static List *connected_tables(Oid relid);
static List *add_neighbours(List *tables, Relation constraints);
static Oid	root_of(Oid relid);
static void prepare_table(Oid relid);
static Oid	find_converted(const ConvertedTable *table, Oid new_schema);
static void finish_table(Oid relid);
static void finish_citus_table(Oid relid, CollectionSettings *settings);
static void finish_plain_table(Oid relid, CollectionSettings *settings);
static List *convertible_with_name(RangeVar *name);
static bool is_shell_name(RangeVar *name);
static List *convertible_by_alter(AlterTableStmt *stmt);
static List *convertible_by_constraint(RangeVar *child, Constraint *constraint);
static List *convertible_by_set_schema(AlterObjectSchemaStmt *stmt);
static List *convertible_by_drop(DropStmt *stmt);
static List *autoconverted_now(void);
static bool is_connected_to_reference_table(Oid relid);
static List *without_shells(List *tables);
static List *only_autoconverted(List *tables);

/* Returns the collections that a conversion of a table may convert. */
List *
ttl_docs_convertible_with(Oid relid, bool with_colocated)
{
	List	   *tables;
	ListCell   *lc;

	if (get_rel_name(relid) == NULL)
		return NIL;
	tables = connected_tables(relid);
	if (with_colocated)
		foreach(lc, ttl_docs_colocated_shells(relid))
			tables = list_append_unique_oid(tables, root_of(lfirst_oid(lc)));
	return only_collections(tables);
}

/* Returns the collections in a schema. */
List *
ttl_docs_convertible_in_schema(Oid schema)
{
	List	   *tables = NIL;
	ListCell   *lc;

	foreach(lc, ttl_docs_all_collections())
		if (get_rel_namespace(lfirst_oid(lc)) == schema)
			tables = list_concat_unique_oid(tables, connected_tables(lfirst_oid(lc)));
	return only_collections(tables);
}

/*
 * Returns the collections that Citus manages only because of a foreign key to
 * a reference table.  When that foreign key is dropped, Citus makes them plain
 * tables.
 */
List *
ttl_docs_autoconverted_tables(void)
{
	List	   *tables = NIL;
	ListCell   *lc;

	foreach(lc, ttl_docs_autoconverted_shells())
		tables = list_append_unique_oid(tables, root_of(lfirst_oid(lc)));
	return only_collections(tables);
}

/*
 * Keeps the collections that the user owns.  Citus does not convert tables of
 * others.
 */
static List *
only_collections(List *relids)
{
	List	   *found = NIL;
	ListCell   *lc;

	foreach(lc, relids)
	{
		int64		shard;

		if (ttl_docs_has_own_label(lfirst_oid(lc)) &&
			compat_table_ownercheck(lfirst_oid(lc), GetUserId()) &&
			!OidIsValid(ttl_docs_shell_of_shard(lfirst_oid(lc), &shard)))
			found = lappend_oid(found, lfirst_oid(lc));
	}
	list_sort(found, list_oid_cmp);
	return found;
}

/*
 * Raises an error if somebody distributes a collection concurrently.  Citus
 * commits in between, so the steps of a conversion would not be one change.
 */
void
ttl_docs_refuse_concurrent_conversion(Oid relid)
{
	Collection	collection;

	if (ttl_docs_lookup_collection(relid, &collection))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("collection \"%s\" cannot be distributed concurrently",
						get_rel_name(collection.root)),
				 errhint("Use create_distributed_table().")));
}

/* ---- Tables that foreign keys connect ---- */

/*
 * Returns the root of a table, and all roots that foreign keys connect with
 * it, in either direction and over any number of steps.
 */
static List *
connected_tables(Oid relid)
{
	Relation	constraints = table_open(ConstraintRelationId, AccessShareLock);
	List	   *tables = list_make1_oid(root_of(relid));
	int			length;

	do
	{
		length = list_length(tables);
		tables = add_neighbours(tables, constraints);
	} while (list_length(tables) > length);
	table_close(constraints, AccessShareLock);
	return tables;
}

/* Adds the tables that have a foreign key to one of the tables, or from one. */
static List *
add_neighbours(List *tables, Relation constraints)
{
	SysScanDesc scan = systable_beginscan(constraints, InvalidOid, false, NULL, 0, NULL);
	HeapTuple	tuple;

	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Form_pg_constraint form = (Form_pg_constraint) GETSTRUCT(tuple);
		Oid			child;
		Oid			parent;

		if (form->contype != CONSTRAINT_FOREIGN)
			continue;
		child = root_of(form->conrelid);
		parent = root_of(form->confrelid);
		if (list_member_oid(tables, child))
			tables = list_append_unique_oid(tables, parent);
		else if (list_member_oid(tables, parent))
			tables = lappend_oid(tables, child);
	}
	systable_endscan(scan);
	return tables;
}

static Oid
root_of(Oid relid)
{
	List	   *ancestors = get_rel_relispartition(relid) ? get_partition_ancestors(relid) :
		NIL;

	return ancestors != NIL ? llast_oid(ancestors) : relid;
}

/* ---- Before and after a conversion ---- */

/*
 * Prepares collections for a conversion.  Returns a list for
 * ttl_docs_end_conversion().
 */
List *
ttl_docs_begin_conversion(List *relids)
{
	List	   *tables = NIL;
	ListCell   *lc;

	ttl_docs_require_supported_citus();
	foreach(lc, relids)
	{
		ConvertedTable *table = palloc(sizeof(ConvertedTable));

		prepare_table(lfirst_oid(lc));
		table->schema = get_rel_namespace(lfirst_oid(lc));
		table->name = get_rel_name(lfirst_oid(lc));
		tables = lappend(tables, table);
	}
	return tables;
}

static void
prepare_table(Oid relid)
{
	Collection	collection;
	CollectionSettings settings;
	bool		is_shell = ttl_docs_is_shell(relid);

	table_close(ttl_docs_open_collection(relid, AccessExclusiveLock, &collection), NoLock);
	settings = collection.settings;
	ttl_docs_require_adopted(relid, &settings, "convert");
	if (ttl_docs_settings_hold(relid, &settings) == HOLD_RESTORED)
		settings.origin_relation = InvalidOid;
	settings.citus = settings.filling = true;
	if (!is_shell)
	{
		ttl_docs_require_propagation(relid);
		ttl_docs_hide_trigger(relid, true);
		ttl_docs_set_column_defaults(relid, true);
	}
	ttl_docs_write_label(relid, &settings);
}

/*
 * Completes the conversion of collections.  parsetree is the command that
 * converted them, or NULL if a function of Citus did.
 */
void
ttl_docs_end_conversion(List *tables, Node *parsetree)
{
	Oid			new_schema = InvalidOid;
	ListCell   *lc;

	CommandCounterIncrement();
	if (parsetree != NULL && IsA(parsetree, AlterObjectSchemaStmt))
		new_schema = get_namespace_oid(((AlterObjectSchemaStmt *) parsetree)->newschema, true);
	foreach(lc, tables)
	{
		Oid			relid = find_converted(lfirst(lc), new_schema);

		if (OidIsValid(relid) && ttl_docs_has_own_label(relid))
			finish_table(relid);
	}
}

/*
 * Finds a table after the conversion.  It may be a new table of the same name,
 * in the same schema or, after SET SCHEMA, in the new one.
 */
static Oid
find_converted(const ConvertedTable *table, Oid new_schema)
{
	Oid			relid = get_relname_relid(table->name, table->schema);

	if (!OidIsValid(relid) && OidIsValid(new_schema))
		relid = get_relname_relid(table->name, new_schema);
	return relid;
}

static void
finish_table(Oid relid)
{
	Collection	collection;

	ttl_docs_lookup_collection(relid, &collection);
	if (ttl_docs_is_shell(relid))
		finish_citus_table(relid, &collection.settings);
	else
		finish_plain_table(relid, &collection.settings);
	/* some conversions create a new table, and lose the comments of the old one */
	ttl_docs_comment_on_columns(relid);
}

static void
finish_citus_table(Oid relid, CollectionSettings *settings)
{
	Relation	rel = table_open(relid, NoLock);

	ttl_docs_require_adoptable(rel);
	table_close(rel, NoLock);
	if (OidIsValid(settings->origin_relation))
		settings->origin_relation = relid;
	if (!ttl_docs_has_trigger(relid))
		ttl_docs_create_trigger(relid, true);
	/* without "filling", on all nodes: the transaction may write more rows */
	ttl_docs_write_label(relid, settings);
}

/* The table is a plain table again, or Citus has not converted it. */
static void
finish_plain_table(Oid relid, CollectionSettings *settings)
{
	List	   *tables = find_all_inheritors(relid, NoLock, NULL);
	ListCell   *lc;

	/* the partitions may have triggers that are not copies of the root's */
	foreach(lc, tables)
		ttl_docs_drop_trigger(lfirst_oid(lc));
	list_free(tables);
	settings->citus = false;
	if (OidIsValid(settings->origin_relation))
		settings->origin_relation = relid;
	ttl_docs_set_label(relid, settings);
	CommandCounterIncrement();
	ttl_docs_create_trigger(relid, false);
	ttl_docs_set_column_defaults(relid, false);
}

/* ---- Commands that convert tables ---- */

/*
 * Prepares collections that a utility command may convert.  Returns a list
 * for ttl_docs_end_conversion(); NIL if there is nothing to do.
 *
 * Citus converts tables in these commands:
 *
 *	- A foreign key between a plain table and a reference table, or a Citus
 *	  local table, makes the plain table a Citus table.
 *	- ALTER TABLE ... SET SCHEMA to a distributed schema does so, too, and back.
 *	- ATTACH PARTITION to a Citus table does so, too.
 *	- If a table, a column or a foreign key is dropped, Citus makes tables plain
 *	  that it had converted because of a foreign key.  It refuses this if
 *	  another user owns one of these tables.  In the script of an extension, see
 *	  ttl_docs_refuse_conversion_after_script().
 */
List *
ttl_docs_begin_conversion_by(Node *parsetree)
{
	List	   *tables = NIL;

	if (!ttl_docs_citus_is_loaded ||
		!(IsA(parsetree, AlterTableStmt) || IsA(parsetree, AlterObjectSchemaStmt) ||
		  IsA(parsetree, DropStmt) || IsA(parsetree, DropOwnedStmt)) ||
		XactReadOnly || RecoveryInProgress() || !ttl_docs_has_citus() ||
		ttl_docs_in_citus_session() || ttl_docs_conversions > 0 ||
		!ttl_docs_citus_propagates())
		return NIL;
	if (IsA(parsetree, AlterTableStmt))
		tables = convertible_by_alter((AlterTableStmt *) parsetree);
	else if (IsA(parsetree, DropStmt))
		tables = convertible_by_drop((DropStmt *) parsetree);
	else if (IsA(parsetree, DropOwnedStmt))
		tables = autoconverted_now();
	else
		tables = convertible_by_set_schema((AlterObjectSchemaStmt *) parsetree);
	return tables != NIL ? ttl_docs_begin_conversion(tables) : NIL;
}

static List *
convertible_with_name(RangeVar *name)
{
	Oid			relid = RangeVarGetRelid(name, NoLock, true);

	return OidIsValid(relid) ? ttl_docs_convertible_with(relid, false) : NIL;
}

static bool
is_shell_name(RangeVar *name)
{
	return name != NULL && ttl_docs_is_shell(RangeVarGetRelid(name, NoLock, true));
}

static List *
convertible_by_alter(AlterTableStmt *stmt)
{
	List	   *tables = NIL;
	bool		drops = false;
	ListCell   *lc;

	foreach(lc, stmt->cmds)
	{
		AlterTableCmd *cmd = lfirst_node(AlterTableCmd, lc);

		if (cmd->subtype == AT_AttachPartition && is_shell_name(stmt->relation))
			tables = without_shells(convertible_with_name(((PartitionCmd *) cmd->def)->name));
		else if (cmd->subtype == AT_AddConstraint)
			tables = list_concat_unique_oid(tables,
											convertible_by_constraint(stmt->relation,
																	  (Constraint *) cmd->def));
		else if (cmd->subtype == AT_AddColumn)
		{
			ListCell   *constraint;

			foreach(constraint, ((ColumnDef *) cmd->def)->constraints)
				tables = list_concat_unique_oid(tables,
												convertible_by_constraint(stmt->relation,
																		  lfirst(constraint)));
		}
		drops |= cmd->subtype == AT_DropConstraint || cmd->subtype == AT_DropColumn;
	}
	if (drops && autoconverted_now() != NIL)
		tables = list_concat_unique_oid(tables,
										only_autoconverted(convertible_with_name(stmt->relation)));
	return tables;
}

/*
 * If a foreign key connects a Citus table with a plain one, Citus converts the
 * plain one, and the tables that are connected with it.
 */
static List *
convertible_by_constraint(RangeVar *child, Constraint *constraint)
{
	if (constraint->contype != CONSTR_FOREIGN ||
		is_shell_name(child) == is_shell_name(constraint->pktable))
		return NIL;
	return without_shells(list_concat_unique_oid(convertible_with_name(child),
												 convertible_with_name(constraint->pktable)));
}

static List *
convertible_by_set_schema(AlterObjectSchemaStmt *stmt)
{
	if (stmt->objectType != OBJECT_TABLE ||
		(!is_shell_name(stmt->relation) &&
		 !ttl_docs_is_distributed_schema(get_namespace_oid(stmt->newschema, true))))
		return NIL;
	return convertible_with_name(stmt->relation);
}

static List *
convertible_by_drop(DropStmt *stmt)
{
	List	   *tables = NIL;
	ListCell   *lc;

	if (autoconverted_now() == NIL)
		return NIL;
	if (stmt->removeType != OBJECT_TABLE)
		return stmt->behavior == DROP_CASCADE ? ttl_docs_autoconverted_tables() : NIL;
	foreach(lc, stmt->objects)
		tables = list_concat_unique_oid(tables,
										convertible_with_name(makeRangeVarFromNameList(lfirst(lc))));
	return only_autoconverted(tables);
}

/*
 * The collections that the end of this command may make plain.  In the script of
 * an extension, Citus does that when the script has ended.
 */
static List *
autoconverted_now(void)
{
	return creating_extension ? NIL : ttl_docs_autoconverted_tables();
}

/*
 * Raises an error if a command in the script of an extension has dropped the last
 * connection of a collection with a reference table.  Citus would make the
 * collection plain when the script has ended.  We could not prepare that: no hook
 * runs there, and Citus sends no labels to other nodes before.
 */
void
ttl_docs_refuse_conversion_after_script(Node *parsetree)
{
	ListCell   *lc;

	if (!creating_extension || !ttl_docs_citus_is_loaded ||
		!(IsA(parsetree, AlterTableStmt) || IsA(parsetree, DropStmt) ||
		  IsA(parsetree, DropOwnedStmt)) ||
		!ttl_docs_has_citus() || ttl_docs_in_citus_session())
		return;
	CommandCounterIncrement();
	foreach(lc, ttl_docs_autoconverted_tables())
		if (!is_connected_to_reference_table(lfirst_oid(lc)))
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("cannot make collection \"%s\" a plain table in the script of an extension",
							get_rel_name(lfirst_oid(lc))),
					 errdetail("No foreign key connects the collection with a reference table any more."),
					 errhint("Drop the foreign key before you run the script.")));
}

static bool
is_connected_to_reference_table(Oid relid)
{
	ListCell   *lc;

	foreach(lc, connected_tables(relid))
		if (ttl_docs_citus_kind(lfirst_oid(lc)) == CITUS_REPLICATED)
			return true;
	return false;
}

static List *
without_shells(List *tables)
{
	List	   *found = NIL;
	ListCell   *lc;

	foreach(lc, tables)
		if (!ttl_docs_is_shell(lfirst_oid(lc)))
			found = lappend_oid(found, lfirst_oid(lc));
	return found;
}

static List *
only_autoconverted(List *tables)
{
	List	   *autoconverted = ttl_docs_autoconverted_tables();
	List	   *found = NIL;
	ListCell   *lc;

	foreach(lc, tables)
		if (list_member_oid(autoconverted, lfirst_oid(lc)))
			found = lappend_oid(found, lfirst_oid(lc));
	return found;
}
