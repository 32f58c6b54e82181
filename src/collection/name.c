/*-------------------------------------------------------------------------
 *
 * name.c
 *		Parses the name of a new collection, with the rules of SQL.
 *
 * A name that SQL would not read without quotes is an error.  The functions of
 * core that parse names accept more: they would create a table "order" or
 * "my-sessions", and the user's first SELECT on it would be a syntax error.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/namespace.h"
#include "common/keywords.h"
#include "parser/scansup.h"
#include "utils/builtins.h"
#include "utils/varlena.h"

#include "collection/collection_internal.h"

/* a table, its schema and its database */
#define MAX_NAME_PARTS	3

static bool needs_no_quotes(const char *name);
static bool is_identifier(const char *part, size_t length, bool is_first);
pg_noreturn static void report_invalid_name(const char *name, int parts);
static char *quoted_form(const char *name);
static const char *quoted_part(const char *part, bool is_first);

/* Parses the name of a table.  Raises an error if SQL would not read it. */
RangeVar *
ttl_docs_parse_name(const char *name)
{
	List	   *identifiers = NIL;
	List	   *strings = NIL;
	ListCell   *lc;

	/* SplitIdentifierString() changes its input, so it gets a copy */
	if (!SplitIdentifierString(pstrdup(name), '.', &identifiers) ||
		identifiers == NIL || list_length(identifiers) > MAX_NAME_PARTS ||
		!needs_no_quotes(name))
		report_invalid_name(name, list_length(identifiers));
	foreach(lc, identifiers)
		strings = lappend(strings, makeString(lfirst(lc)));
	return makeRangeVarFromNameList(strings);
}

/*
 * Are all parts of a name that are not quoted identifiers of SQL?  The name is
 * one that SplitIdentifierString() has accepted.
 */
static bool
needs_no_quotes(const char *name)
{
	const char *next = name;

	for (bool is_first = true;; is_first = false)
	{
		const char *end;

		while (scanner_isspace(*next))
			next++;
		if (*next == '"')
		{
			/* the end is a quote that is not doubled */
			for (end = next + 1; *end != '"' || end[1] == '"'; end++)
				if (*end == '"')
					end++;
			end++;
		}
		else
		{
			for (end = next; *end != '\0' && *end != '.' && !scanner_isspace(*end);)
				end++;
			if (!is_identifier(next, end - next, is_first))
				return false;
		}
		while (scanner_isspace(*end))
			end++;
		if (*end == '\0')
			return true;
		next = end + 1;
	}
}

/*
 * Does SQL read this part of a table's name without quotes?  Only the first
 * part cannot be a reserved word.
 */
static bool
is_identifier(const char *part, size_t length, bool is_first)
{
	int			keyword;

	for (size_t i = 0; i < length; i++)
	{
		char		c = part[i];

		if (IS_HIGHBIT_SET(c) || (c >= 'a' && c <= 'z') ||
			(c >= 'A' && c <= 'Z') || c == '_')
			continue;
		if (i == 0 || !((c >= '0' && c <= '9') || c == '$'))
			return false;
	}
	if (length == 0 || !is_first)
		return length > 0;
	keyword = ScanKeywordLookup(pnstrdup(part, length), &ScanKeywords);
	return keyword < 0 || ScanKeywordCategories[keyword] == UNRESERVED_KEYWORD ||
		ScanKeywordCategories[keyword] == COL_NAME_KEYWORD;
}

static void
report_invalid_name(const char *name, int parts)
{
	char	   *quoted = quoted_form(name);

	ereport(ERROR,
			(errcode(ERRCODE_INVALID_NAME),
			 errmsg("invalid collection name: \"%s\"", name),
			 quoted == NULL ?
			 errhint("Write the name as in SQL, for example 'sessions' or '\"My Sessions\"'.") :
			 parts > MAX_NAME_PARTS ?
			 errhint("A name consists of a schema and a table, such as 'public.sessions'. If the dots belong to the name of the table, add double quotes: %s.",
					 quote_literal_cstr(quoted)) :
			 errhint("As in SQL, this name needs double quotes: %s.",
					 quote_literal_cstr(quoted))));
}

/*
 * Adds the double quotes that a name needs.  Returns NULL if that would not
 * make it a name: it is blank, or has double quotes already.
 */
static char *
quoted_form(const char *name)
{
	const char *dot = strchr(name, '.');
	size_t		schema = dot == NULL ? 0 : dot - name;
	const char *table = dot == NULL ? name : dot + 1;

	if (name[strspn(name, " \t\n\r\f\v")] == '\0' || strchr(name, '"') != NULL)
		return NULL;
	/* one dot with a name on both sides separates the schema from the table */
	if (dot == NULL || schema == 0 || *table == '\0' || strchr(table, '.') != NULL)
		return psprintf("\"%s\"", name);
	return psprintf("%s.%s", quoted_part(pnstrdup(name, schema), true),
					quoted_part(table, false));
}

static const char *
quoted_part(const char *part, bool is_first)
{
	return is_identifier(part, strlen(part), is_first) ? part :
		psprintf("\"%s\"", part);
}
