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
#include "lib/stringinfo.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "collection/collection_internal.h"

PG_FUNCTION_INFO_V1(ttl_docs_create_collection);
PG_FUNCTION_INFO_V1(ttl_docs_drop_collection);

pg_noreturn static void report_existing(Oid relid, const char *name,
										const char *quoted,
										const CollectionSettings *settings);
static bool can_be_adopted(Oid relid);

/*
 * create_collection(name text, default_ttl integer, indexing text)
 */
Datum
ttl_docs_create_collection(PG_FUNCTION_ARGS)
{
	CollectionSettings settings;
	RangeVar   *name;
	char	   *quoted;
	bool		on;
	int32		default_ttl;
	Oid			schema;
	Oid			existing;
	Oid			relid;

	ttl_docs_require_writable(fcinfo);
	if (PG_ARGISNULL(0) || PG_ARGISNULL(2))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("name and indexing cannot be null")));
	on = ttl_docs_default_ttl_arg(fcinfo, 1, &default_ttl);
	settings = ttl_docs_new_settings(on, default_ttl,
									 text_to_cstring(PG_GETARG_TEXT_PP(2)));
	name = ttl_docs_parse_name(text_to_cstring(PG_GETARG_TEXT_PP(0)));

	/*
	 * The schema that CREATE TABLE would choose, with the same checks.  This
	 * refuses the name of another database, so the schema is enough.
	 */
	schema = RangeVarGetAndCheckCreationNamespace(name, NoLock, &existing);
	if (name->schemaname == NULL)
		name->schemaname = get_namespace_name(schema);
	quoted = quote_qualified_identifier(name->schemaname, name->relname);
	if (OidIsValid(existing))
		report_existing(existing, name->relname, quoted, &settings);
	ttl_docs_run_ddl_of_client(psprintf("CREATE TABLE %s ("
										"id pg_catalog.text PRIMARY KEY DEFAULT pg_catalog.gen_random_uuid()::pg_catalog.text, "
										"doc pg_catalog.jsonb NOT NULL)", quoted));
	relid = RangeVarGetRelid(name, AccessExclusiveLock, false);
	ttl_docs_adopt_table(relid, &settings, "doc", NULL);
	PG_RETURN_OID(relid);
}

/*
 * Raises core's error for a table that exists, with a hint that has the
 * arguments of the call.  The caller may create tables in the schema, so core
 * would say that the table exists, too.  Its kind and its label are in catalogs
 * that everybody can read.  The table is not locked: if somebody drops it now,
 * it has no kind and no label, and the hint is to choose another name.
 */
static void
report_existing(Oid relid, const char *name, const char *quoted,
				const CollectionSettings *settings)
{
	Collection	collection;
	StringInfoData arguments;

	initStringInfo(&arguments);
	appendStringInfoString(&arguments, quote_literal_cstr(quoted));
	if (settings->on)
		appendStringInfo(&arguments, ", %d", settings->default_ttl);
	if (ttl_docs_lookup_collection(relid, &collection) && collection.root == relid)
		ereport(ERROR,
				(errcode(ERRCODE_DUPLICATE_TABLE),
				 errmsg("collection \"%s\" already exists", name),
				 settings->on ?
				 errhint("To change its DefaultTTL: SELECT ttl_docs.set_default_ttl(%s).",
						 arguments.data) :
				 errhint("To change its settings, call ttl_docs.set_default_ttl() or ttl_docs.set_indexing().")));
	if (settings->indexing != INDEXING_CONSISTENT)
		appendStringInfo(&arguments, ", indexing => '%s'",
						 ttl_docs_indexing_name(settings->indexing));
	ereport(ERROR,
			(errcode(ERRCODE_DUPLICATE_TABLE),
			 errmsg("relation \"%s\" already exists", name),
			 can_be_adopted(relid) ?
			 errhint("To make this table a collection: SELECT ttl_docs.adopt(%s).",
					 arguments.data) :
			 errhint("Choose another name.")));
}

/* Would adopt() take this relation?  It is not locked, and may be gone. */
static bool
can_be_adopted(Oid relid)
{
	char		relkind = get_rel_relkind(relid);

	return (relkind == RELKIND_RELATION || relkind == RELKIND_PARTITIONED_TABLE) &&
		!get_rel_relispartition(relid) &&
		!isAnyTempNamespace(get_rel_namespace(relid));
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
