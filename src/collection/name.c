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
#include "lib/stringinfo.h"
#include "parser/scansup.h"
#include "utils/builtins.h"
#include "utils/varlena.h"

#include "collection/collection_internal.h"

/* a table, its schema and its database */
#define MAX_NAME_PARTS	3

static bool check_parts(const char *name);
static void warn_of_truncation(const char *part, size_t length);
static bool is_identifier(const char *part, size_t length, bool is_first);
pg_noreturn static void report_invalid_name(const char *name, int parts);
static char *quoted_form(const char *name);
static char *trimmed(char *string);

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
		!check_parts(name))
		report_invalid_name(name, list_length(identifiers));
	foreach(lc, identifiers)
		strings = lappend(strings, makeString(lfirst(lc)));
	return makeRangeVarFromNameList(strings);
}

/*
 * Does SQL read all parts of a name?  SplitIdentifierString() has accepted the
 * name.  Like SQL, raises a notice for a part that will be truncated.
 */
static bool
check_parts(const char *name)
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
			for (end = ++next; *end != '"' || end[1] == '"'; end++)
				if (*end == '"')
					end++;
			if (end == next)
				return false;
			warn_of_truncation(next, end - next);
			end++;
		}
		else
		{
			for (end = next; *end != '\0' && *end != '.' && !scanner_isspace(*end);)
				end++;
			if (!is_identifier(next, end - next, is_first))
				return false;
			warn_of_truncation(next, end - next);
		}
		while (scanner_isspace(*end))
			end++;
		if (*end == '\0')
			return true;
		next = end + 1;
	}
}

static void
warn_of_truncation(const char *part, size_t length)
{
	truncate_identifier(pnstrdup(part, length), length, true);
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
 *
 * Dots separate a database, a schema and a table.  If there are more dots, or
 * two without a name between them, they belong to the name of the table.
 */
static char *
quoted_form(const char *name)
{
	char	   *rest = trimmed(pstrdup(name));
	char	   *whole = psprintf("\"%s\"", rest);
	StringInfoData quoted;

	if (*rest == '\0' || strchr(rest, '"') != NULL)
		return NULL;
	initStringInfo(&quoted);
	for (int parts = 1; rest != NULL; parts++)
	{
		char	   *part = strsep(&rest, ".");

		part = trimmed(part);
		if (*part == '\0' || parts > MAX_NAME_PARTS)
			return whole;
		if (parts > 1)
			appendStringInfoChar(&quoted, '.');
		appendStringInfo(&quoted, is_identifier(part, strlen(part), parts == 1) ?
						 "%s" : "\"%s\"", part);
	}
	return quoted.data;
}

/* Removes blanks from both ends of a string, which it changes. */
static char *
trimmed(char *string)
{
	size_t		length;

	while (scanner_isspace(*string))
		string++;
	length = strlen(string);
	while (length > 0 && scanner_isspace(string[length - 1]))
		length--;
	string[length] = '\0';
	return string;
}
