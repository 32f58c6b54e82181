/*-------------------------------------------------------------------------
 *
 * ddl_columns.c
 *		DDL on the columns of a collection.
 *
 * Dropping or changing the document column or a system column is refused.  A
 * renamed document column is followed in the label.  ALTER COLUMN TYPE that
 * changes neither type nor values is accepted, because schema tools send it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "parser/parse_type.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"

#include "collection/collection_internal.h"

static void follow_rename(Note *note, Collection *collection);
static bool changes_type(const Note *note, Node *parsetree);
static bool keeps_type(const Note *note);
static bool is_plain_column(Node *expr, const Note *note);

/* A column, or the constraints, of a collection changed. */
void
ttl_docs_review_column(Note *note, Node *parsetree)
{
	Collection	collection;

	if (!ttl_docs_lookup_collection(note->relid, &collection))
		return;
	/* dropped and added again, or filled anew, it has the right type too */
	if (note->is_piece && note->is_dropped)
		ttl_docs_refuse_ddl("drop or rename column", NameStr(note->name), note->relid);
	if (note->is_piece && changes_type(note, parsetree))
		ttl_docs_refuse_ddl("change column", NameStr(note->name), note->relid);
	/* a partition follows its root, which the same command changes */
	if (note->relid != collection.root)
		return;
	if (note->is_doc)
		follow_rename(note, &collection);
	ttl_docs_require_columns(note->relid, &collection);
}

/* The label names the document column. */
static void
follow_rename(Note *note, Collection *collection)
{
	char	   *name = get_attname(note->relid, note->attno, true);

	if (name == NULL ||
		strcmp(name, NameStr(collection->settings.doc_column)) == 0)
		return;
	ttl_docs_require_no_pending_detach(note->relid);
	namestrcpy(&collection->settings.doc_column, name);
	ttl_docs_write_label(note->relid, &collection->settings);
	(void) ttl_docs_lookup_collection(note->relid, collection);
}

/*
 * Is it ALTER COLUMN TYPE, whose USING can make any value of it?  Schema tools send
 * that with the type that the column has, and a USING that only names the column:
 * then nothing changes.  A command can have several such clauses for a column.
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
 * Before an ALTER TABLE: finds out which types its USING clauses cast to.  Functions
 * that run during the command can change the search_path, so afterwards it is too late.
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

/* Has the column the type that it had before the command? */
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
 * Is the expression of a USING the column itself, cast to no other type than its
 * own?  Core has accepted the expression for this table, so a name that ends in
 * that of the column means the column.  We do not analyse the expression again: what
 * it refers to may have been dropped by the same command.  Types were looked up before
 * the command.
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

/* Raises an error unless the columns of a collection are what they must be. */
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
			ttl_docs_refuse_ddl("drop or rename column", columns[i].name, relid);
		att = TupleDescAttr(RelationGetDescr(rel), columns[i].attno - 1);
		if (att->atttypid != columns[i].type || att->attgenerated ||
			att->attidentity ||
			(att->attnotnull ? columns[i].must_be_null : !columns[i].may_be_null))
			ttl_docs_refuse_ddl("change column", columns[i].name, relid);
	}
	table_close(rel, NoLock);
}
