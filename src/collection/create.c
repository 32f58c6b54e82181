/*-------------------------------------------------------------------------
 *
 * create.c
 *		create_collection() and drop_collection().
 *
 * Both take ACCESS EXCLUSIVE on the table, as CREATE TABLE and DROP TABLE do.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "executor/tuptable.h"
#include "fmgr.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/varlena.h"

#include "collection/collection_internal.h"

PG_FUNCTION_INFO_V1(ttl_docs_create_collection);
PG_FUNCTION_INFO_V1(ttl_docs_drop_collection);

static RangeVar *parse_name(char *text);

/*
 * create_collection(name text, default_ttl integer, indexing text)
 */
Datum
ttl_docs_create_collection(PG_FUNCTION_ARGS)
{
	CollectionSettings settings;
	RangeVar   *name;
	char	   *quoted;
	Oid			relid;

	ttl_docs_require_writable(fcinfo);
	if (PG_ARGISNULL(0) || PG_ARGISNULL(2))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("name and indexing cannot be null")));
	settings = ttl_docs_new_settings(!PG_ARGISNULL(1), PG_ARGISNULL(1) ? 0 : PG_GETARG_INT32(1),
									 text_to_cstring(PG_GETARG_TEXT_PP(2)));
	name = parse_name(text_to_cstring(PG_GETARG_TEXT_PP(0)));

	/* the schema that CREATE TABLE would choose */
	if (name->schemaname == NULL)
		name->schemaname = get_namespace_name(RangeVarGetCreationNamespace(name));
	quoted = quote_qualified_identifier(name->schemaname, name->relname);
	if (name->catalogname != NULL)
		quoted = psprintf("%s.%s", quote_identifier(name->catalogname), quoted);
	ttl_docs_run_ddl("CREATE TABLE %s ("
					 "id pg_catalog.text PRIMARY KEY DEFAULT pg_catalog.gen_random_uuid()::pg_catalog.text, "
					 "doc pg_catalog.jsonb NOT NULL)", quoted);
	CommandCounterIncrement();
	relid = RangeVarGetRelid(name, AccessExclusiveLock, false);
	ttl_docs_adopt_table(relid, &settings, "doc", NULL);
	PG_RETURN_OID(relid);
}

/* Parses the name of a table with the rules of SQL. */
static RangeVar *
parse_name(char *text)
{
	List	   *identifiers;
	List	   *names = NIL;
	ListCell   *lc;

	/* SplitIdentifierString() changes its input, so it gets a copy */
	if (!SplitIdentifierString(pstrdup(text), '.', &identifiers) || identifiers == NIL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_NAME),
				 errmsg("invalid collection name: \"%s\"", text),
				 errhint("Quote the name as in SQL, for example '\"My Sessions\"'.")));
	foreach(lc, identifiers)
		names = lappend(names, makeString(lfirst(lc)));
	return makeRangeVarFromNameList(names);
}

/*
 * drop_collection(collection regclass)
 */
Datum
ttl_docs_drop_collection(PG_FUNCTION_ARGS)
{
	Collection	collection;
	Relation	rel;
	char	   *table;

	ttl_docs_require_writable(fcinfo);
	rel = ttl_docs_open_collection(ttl_docs_collection_arg(fcinfo),
								   AccessExclusiveLock, &collection);
	table = ttl_docs_quoted_name(RelationGetRelid(rel));
	table_close(rel, NoLock);
	ttl_docs_run_ddl("DROP TABLE %s", table);
	PG_RETURN_VOID();
}
