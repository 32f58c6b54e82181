/*-------------------------------------------------------------------------
 *
 * adopt_columns.c
 *		Finds the columns that adopt() uses: the document column, and the
 *		column with the time of the last change.
 *
 * If there is no suitable column, the hint lists those that are suitable, or
 * has a command that makes one.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "catalog/pg_type.h"
#include "lib/stringinfo.h"
#include "parser/parse_coerce.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "collection/collection_internal.h"

typedef bool (*ColumnTest) (Form_pg_attribute column);

static bool can_hold_documents(Form_pg_attribute column);
static bool can_become_jsonb(Form_pg_attribute column);
static bool is_string(Form_pg_attribute column);
static bool is_timestamp(Form_pg_attribute column);
static Form_pg_attribute find_column(Relation rel, const char *name);
static Form_pg_attribute first_column(Relation rel, ColumnTest test);
static char *list_columns(Relation rel, ColumnTest test);
static int	errhint_doc_column(Relation rel, Form_pg_attribute wanted);
static int	errhint_last_modified(Relation rel);

/*
 * Finds the column that holds the documents.  Raises an error if there is
 * none.  doc_column is NULL if the caller of adopt() has not chosen a column.
 */
void
ttl_docs_choose_doc_column(Relation rel, const char *doc_column, NameData *name)
{
	const char *table = RelationGetRelationName(rel);
	TupleDesc	tupdesc = RelationGetDescr(rel);
	Form_pg_attribute chosen = NULL;

	if (doc_column != NULL)
	{
		chosen = find_column(rel, doc_column);
		if (chosen == NULL)
			ereport(ERROR,
					(errcode(ERRCODE_UNDEFINED_COLUMN),
					 errmsg("column \"%s\" of table \"%s\" does not exist",
							doc_column, table),
					 errhint_doc_column(rel, NULL)));
	}
	else
	{
		for (int i = 0; i < tupdesc->natts; i++)
		{
			Form_pg_attribute att = TupleDescAttr(tupdesc, i);

			if (att->attisdropped || att->atttypid != JSONBOID)
				continue;
			if (chosen != NULL)
				ereport(ERROR,
						(errcode(ERRCODE_AMBIGUOUS_COLUMN),
						 errmsg("table \"%s\" has more than one jsonb column",
								table),
						 errhint("Pass the name of the column that holds the documents as doc_column, for example \"%s\".",
								 NameStr(chosen->attname))));
			chosen = att;
		}
		if (chosen == NULL)
			ereport(ERROR,
					(errcode(ERRCODE_UNDEFINED_COLUMN),
					 errmsg("table \"%s\" has no jsonb column", table),
					 errhint_doc_column(rel, NULL)));
	}

	if (!can_hold_documents(chosen))
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("column \"%s\" of table \"%s\" cannot hold documents",
						NameStr(chosen->attname), table),
				 chosen->attgenerated ?
				 errdetail("The column is a generated column of type %s.",
						   format_type_be(chosen->atttypid)) :
				 errdetail("The column is of type %s.",
						   format_type_be(chosen->atttypid)),
				 errhint_doc_column(rel, chosen)));
	namestrcpy(name, NameStr(chosen->attname));
}

/* Raises an error unless the column exists and contains timestamps. */
void
ttl_docs_require_last_modified(Relation rel, const char *last_modified)
{
	Form_pg_attribute column = find_column(rel, last_modified);

	if (column == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_COLUMN),
				 errmsg("column \"%s\" of table \"%s\" does not exist",
						last_modified, RelationGetRelationName(rel)),
				 errhint_last_modified(rel)));
	if (!is_timestamp(column))
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("column \"%s\" of table \"%s\" does not contain timestamps",
						last_modified, RelationGetRelationName(rel)),
				 errdetail("The column is of type %s.",
						   format_type_be(column->atttypid)),
				 errhint_last_modified(rel)));
}

/* Can a column be the document column? */
static bool
can_hold_documents(Form_pg_attribute column)
{
	return column->atttypid == JSONBOID && !column->attgenerated;
}

/* Does a column contain JSON, so that its type could be changed to jsonb? */
static bool
can_become_jsonb(Form_pg_attribute column)
{
	Oid			type = getBaseType(column->atttypid);

	return !column->attgenerated && column->atttypid != JSONBOID &&
		(type == JSONOID || type == JSONBOID);
}

/* Could a column contain JSON as a string? */
static bool
is_string(Form_pg_attribute column)
{
	return !column->attgenerated &&
		TypeCategory(getBaseType(column->atttypid)) == TYPCATEGORY_STRING;
}

static bool
is_timestamp(Form_pg_attribute column)
{
	Oid			type = getBaseType(column->atttypid);

	return type == TIMESTAMPTZOID || type == TIMESTAMPOID;
}

/* Returns NULL if the table has no column of this name. */
static Form_pg_attribute
find_column(Relation rel, const char *name)
{
	AttrNumber	attno = get_attnum(RelationGetRelid(rel), name);

	return attno > 0 ? TupleDescAttr(RelationGetDescr(rel), attno - 1) : NULL;
}

/* Returns NULL if there is no such column. */
static Form_pg_attribute
first_column(Relation rel, ColumnTest test)
{
	TupleDesc	tupdesc = RelationGetDescr(rel);

	for (int i = 0; i < tupdesc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(tupdesc, i);

		if (!att->attisdropped && test(att))
			return att;
	}
	return NULL;
}

/* Returns the names of all such columns, or NULL if there are none. */
static char *
list_columns(Relation rel, ColumnTest test)
{
	TupleDesc	tupdesc = RelationGetDescr(rel);
	StringInfoData list;

	initStringInfo(&list);
	for (int i = 0; i < tupdesc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(tupdesc, i);

		if (!att->attisdropped && test(att))
			appendStringInfo(&list, "%s\"%s\"", list.len > 0 ? ", " : "",
							 NameStr(att->attname));
	}
	return list.len > 0 ? list.data : NULL;
}

/*
 * Adds a hint on the document column.  "wanted" is the column that should hold
 * the documents but cannot, or NULL.
 */
static int
errhint_doc_column(Relation rel, Form_pg_attribute wanted)
{
	char	   *table = ttl_docs_quoted_name(RelationGetRelid(rel));
	char	   *suitable = list_columns(rel, can_hold_documents);
	const char *column;

	if (wanted == NULL || !can_become_jsonb(wanted))
	{
		if (suitable != NULL)
			return errhint("Columns that can hold documents: %s.", suitable);
		if (wanted == NULL || !is_string(wanted))
			wanted = first_column(rel, can_become_jsonb);
	}
	if (wanted != NULL)
	{
		column = quote_identifier(NameStr(wanted->attname));
		return is_string(wanted) ?
			errhint("If column \"%s\" contains JSON, convert it: ALTER TABLE %s ALTER COLUMN %s TYPE jsonb USING %s::jsonb.",
					NameStr(wanted->attname), table, column, column) :
			errhint("To convert column \"%s\": ALTER TABLE %s ALTER COLUMN %s TYPE jsonb USING %s::jsonb.",
					NameStr(wanted->attname), table, column, column);
	}
	column = "doc";
	for (int i = 2; find_column(rel, column) != NULL; i++)
		column = psprintf("doc%d", i);
	return errhint("Documents need a column of type jsonb. To add one: ALTER TABLE %s ADD COLUMN %s jsonb NOT NULL DEFAULT '{}'.",
				   table, column);
}

/* Adds a hint on the column with the time of the last change. */
static int
errhint_last_modified(Relation rel)
{
	char	   *suitable = list_columns(rel, is_timestamp);

	return suitable != NULL ?
		errhint("Columns of a timestamp type: %s.", suitable) :
		errhint("The table has no column of a timestamp type. Without last_modified, the countdown of all documents starts now.");
}
