/*-------------------------------------------------------------------------
 *
 * ddl_columns.c
 *		DDL on the columns of a collection.
 *
 * - A command that drops or changes the document column, or drops, renames or
 *   changes a system column, is refused.
 * - If a command renames the document column, the label gets the new name.
 * - The same holds for the column "last_modified" of an adoption that is not
 *   complete.  A command that drops or changes it is refused before it waits
 *   for its lock: the lock of a concurrent index build can last for hours, and
 *   all readers would wait behind the command.
 * - ALTER COLUMN TYPE is accepted if it changes neither the type nor the
 *   values, because schema migration tools send such commands.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "access/table.h"
#include "catalog/namespace.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "parser/parse_type.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"

#include "collection/collection_internal.h"

static void follow_rename(Note *note, Collection *collection, NameData *in_label);
static bool changes_type(const Note *note, Node *parsetree);
static bool keeps_type(const Note *note);
static bool is_plain_column(Node *expr, const Note *note);
pg_noreturn static void report_dropped_column(const char *column, Oid relid,
											  Oid root);
pg_noreturn static void report_changed_column(const char *column, Oid relid,
											  Oid root);
pg_noreturn static void report_needed_column(const char *column,
											 const Collection *collection);

/* Reviews a changed or dropped column, or a dropped constraint. */
void
ttl_docs_review_column(Note *note, Node *parsetree)
{
	Collection	collection;

	if (!ttl_docs_lookup_collection(note->relid, &collection))
		return;

	/*
	 * ttl_docs_require_columns() below is not enough.  A column that was
	 * dropped and added again, or that USING filled with new values, has the
	 * right type too.
	 */
	if (note->is_piece && note->is_dropped)
		report_dropped_column(NameStr(note->name), note->relid, collection.root);
	if (note->is_piece && changes_type(note, parsetree))
		report_changed_column(NameStr(note->name), note->relid, collection.root);
	if (note->is_last_modified &&
		(note->is_dropped || changes_type(note, parsetree)))
		report_needed_column(NameStr(note->name), &collection);
	/* the same command also changes the root, which has its own note */
	if (note->relid != collection.root)
		return;
	if (note->is_doc)
		follow_rename(note, &collection, &collection.settings.doc_column);
	if (note->is_last_modified)
		follow_rename(note, &collection, &collection.settings.last_modified);
	ttl_docs_require_columns(note->relid, &collection);
}

/* Writes the new name of a column to the label, where "in_label" has the old. */
static void
follow_rename(Note *note, Collection *collection, NameData *in_label)
{
	char	   *name = get_attname(note->relid, note->attno, true);

	if (name == NULL || strcmp(name, NameStr(*in_label)) == 0)
		return;
	ttl_docs_require_no_pending_detach(note->relid);
	namestrcpy(in_label, name);
	/* Citus runs the command on all nodes and shards, and each changes its label */
	ttl_docs_set_label(note->relid, &collection->settings);
	CommandCounterIncrement();
	(void) ttl_docs_lookup_collection(note->relid, collection);
}

/*
 * Called before an ALTER TABLE.  Raises an error if it drops or changes the
 * column "last_modified" of an adoption that is not complete.  Only names are
 * compared here; the review finds the column in all other cases.
 */
void
ttl_docs_refuse_last_modified_change(AlterTableStmt *stmt)
{
	Oid			relid = RangeVarGetRelid(stmt->relation, NoLock, true);
	Collection	collection;
	ListCell   *lc;

	if (!OidIsValid(relid) || !ttl_docs_lookup_collection(relid, &collection) ||
		collection.settings.adopting == DT_NOBEGIN)
		return;
	foreach(lc, stmt->cmds)
	{
		AlterTableCmd *cmd = lfirst_node(AlterTableCmd, lc);

		if ((cmd->subtype == AT_DropColumn || cmd->subtype == AT_AlterColumnType) &&
			strcmp(cmd->name, NameStr(collection.settings.last_modified)) == 0)
			report_needed_column(cmd->name, &collection);
	}
}

/*
 * Is the command ALTER COLUMN TYPE, and can it change the type or the values
 * of the column?  Its USING clause can compute any value.  Schema migration
 * tools send the command with the type that the column already has, and with
 * a USING that only names the column; that changes nothing.  A command can
 * have several ALTER COLUMN TYPE clauses for one column.
 */
static bool
changes_type(const Note *note, Node *parsetree)
{
	ListCell   *lc;

	if (!IsA(parsetree, AlterTableStmt))
		return false;
	foreach(lc, ((AlterTableStmt *) parsetree)->cmds)
	{
		AlterTableCmd *cmd = lfirst_node(AlterTableCmd, lc);

		if (cmd->subtype == AT_AlterColumnType &&
			strcmp(cmd->name, NameStr(note->name)) == 0 &&
			(!keeps_type(note) ||
			 !is_plain_column(castNode(ColumnDef, cmd->def)->raw_default, note)))
			return true;
	}
	return false;
}

/*
 * Called before an ALTER TABLE: looks up the types to which its USING clauses
 * cast, and stores them in the statement.  After the command it is too late,
 * because functions that run during the command can change the search_path.
 */
void
ttl_docs_resolve_types(AlterTableStmt *stmt)
{
	ListCell   *lc;

	foreach(lc, stmt->cmds)
	{
		AlterTableCmd *cmd = lfirst_node(AlterTableCmd, lc);
		Node	   *expr;

		if (cmd->subtype != AT_AlterColumnType)
			continue;
		expr = castNode(ColumnDef, cmd->def)->raw_default;
		for (; expr != NULL && IsA(expr, TypeCast); expr = ((TypeCast *) expr)->arg)
		{
			TypeName   *name = ((TypeCast *) expr)->typeName;
			int32		typmod;
			Type		type = LookupTypeName(NULL, name, &typmod, true);

			/* core will raise the error */
			if (type == NULL)
				return;
			name->typeOid = typeTypeId(type);
			name->typemod = typmod;
			name->names = name->typmods = name->arrayBounds = NIL;
			ReleaseSysCache(type);
		}
	}
}

/* Does the column still have the type that it had before the command? */
static bool
keeps_type(const Note *note)
{
	Oid			type;
	int32		typmod;
	Oid			collation;

	get_atttypetypmodcoll(note->relid, note->attno, &type, &typmod, &collation);
	return type == note->type && typmod == note->typmod;
}

/*
 * Is the expression of a USING clause the column itself, possibly with casts
 * to the type that the column already has?  Core has accepted the expression
 * for this table.  So a column reference whose last part is the name of the
 * column means the column.  We cannot analyse the expression again, because
 * the same command may have dropped objects that it refers to.
 * ttl_docs_resolve_types() has looked up the types before the command.
 */
static bool
is_plain_column(Node *expr, const Note *note)
{
	Node	   *name;

	if (expr == NULL)
		return true;			/* there is no USING */
	while (IsA(expr, TypeCast))
	{
		Oid			type;
		int32		typmod;

		typenameTypeIdAndMod(NULL, ((TypeCast *) expr)->typeName, &type, &typmod);
		if (type != note->type || (typmod != -1 && typmod != note->typmod))
			return false;
		expr = ((TypeCast *) expr)->arg;
	}
	if (!IsA(expr, ColumnRef))
		return false;
	name = llast(((ColumnRef *) expr)->fields);
	return IsA(name, String) && strcmp(strVal(name), NameStr(note->name)) == 0;
}

/*
 * Raises an error unless the table has the document column and the system
 * columns, with the right types and with the right NOT NULL constraints.
 */
void
ttl_docs_require_columns(Oid relid, const Collection *collection)
{
	const struct
	{
		const char *name;
		AttrNumber	attno;
		Oid			type;
		bool		may_be_null;
		bool		must_be_null;
	}			columns[] = {
		{NameStr(collection->settings.doc_column), collection->doc, JSONBOID, true, false},
		{TTL_DOCS_TS_COLUMN, collection->ts, TIMESTAMPTZOID, false, false},
		{TTL_DOCS_TTL_COLUMN, collection->ttl, INT4OID, true, true},
		{TTL_DOCS_SLOT_COLUMN, collection->slot, INT8OID, true, true},
	};
	Relation	rel = try_table_open(relid, AccessShareLock);

	if (rel == NULL)
		return;
	for (size_t i = 0; i < lengthof(columns); i++)
	{
		Form_pg_attribute att;

		if (columns[i].attno <= 0)
			report_dropped_column(columns[i].name, relid, collection->root);
		att = TupleDescAttr(RelationGetDescr(rel), columns[i].attno - 1);
		if (att->atttypid != columns[i].type || att->attgenerated ||
			att->attidentity ||
			(att->attnotnull ? columns[i].must_be_null : !columns[i].may_be_null))
			report_changed_column(columns[i].name, relid, collection->root);
	}
	table_close(rel, NoLock);
}

static void
report_dropped_column(const char *column, Oid relid, Oid root)
{
	ereport(ERROR,
			(errcode(ERRCODE_DEPENDENT_OBJECTS_STILL_EXIST),
			 errmsg("cannot drop or rename column \"%s\" of the collection \"%s\"",
					column, get_rel_name(relid)),
			 ttl_docs_errhint_release(root)));
}

static void
report_changed_column(const char *column, Oid relid, Oid root)
{
	ereport(ERROR,
			(errcode(ERRCODE_DEPENDENT_OBJECTS_STILL_EXIST),
			 errmsg("cannot change column \"%s\" of the collection \"%s\"",
					column, get_rel_name(relid)),
			 ttl_docs_errhint_release(root)));
}

static void
report_needed_column(const char *column, const Collection *collection)
{
	ereport(ERROR,
			(errcode(ERRCODE_DEPENDENT_OBJECTS_STILL_EXIST),
			 errmsg("cannot drop or change column \"%s\" while \"%s\" is being adopted",
					column, get_rel_name(collection->root)),
			 errdetail("The adoption takes the first \"%s\" of the documents from this column.",
					   TTL_DOCS_TS_COLUMN),
			 errhint("Wait until the adoption is complete, see ttl_docs.stat_progress. If it was interrupted, continue it: %s.",
					 ttl_docs_adoption_command(collection->root, &collection->settings))));
}
