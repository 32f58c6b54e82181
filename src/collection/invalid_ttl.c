/*-------------------------------------------------------------------------
 *
 * invalid_ttl.c
 *		Finds documents with their own ttl, and refuses to turn TTL on while
 *		documents have an invalid ttl.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "executor/spi.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

#include "collection/collection_internal.h"

static void report_invalid_ttl(Oid relid, const char *doc_column);

/*
 * Raises an error if documents of the table have an invalid ttl.  condition
 * is SQL that selects these documents.  The caller holds a lock that keeps
 * writers out.
 */
void
ttl_docs_refuse_invalid_ttl(Oid relid, const char *doc_column,
							const char *condition)
{
	Relation	rel = table_open(relid, NoLock);
	char	   *from = psprintf("FROM %s WHERE %s", ttl_docs_quoted_name(relid),
								condition);

	SPI_connect();
	ttl_docs_query_as_owner(rel,
							psprintf("SELECT (SELECT pg_catalog.count(*) %s)::pg_catalog.int8,"
									 " (SELECT pg_catalog.jsonb_extract_path(%s, 'ttl') %s LIMIT 1)",
									 from, quote_identifier(doc_column), from));
	report_invalid_ttl(relid, doc_column);
	SPI_finish();
	table_close(rel, NoLock);
}

/* Does any document have its own ttl, valid or not? */
bool
ttl_docs_has_rows_with_ttl(Relation rel, const char *doc_column)
{
	return ttl_docs_exists_as_owner(rel, psprintf("%s.document_ttl(%s) IS NOT NULL",
												  TTL_DOCS_SCHEMA,
												  quote_identifier(doc_column)));
}

/* Raises the error if the query that has just run has found documents. */
static void
report_invalid_ttl(Oid relid, const char *doc_column)
{
	HeapTuple	row = SPI_tuptable->vals[0];
	TupleDesc	tupdesc = SPI_tuptable->tupdesc;
	bool		isnull;
	int64		count = DatumGetInt64(SPI_getbinval(row, tupdesc, 1, &isnull));
	Datum		example;

	if (count == 0)
		return;
	example = SPI_getbinval(row, tupdesc, 2, &isnull);
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg_plural("%lld document of \"%s\" has an invalid \"ttl\": %s",
						   "%lld documents of \"%s\" have an invalid \"ttl\", one of them %s",
						   (unsigned long) count, (long long) count,
						   get_rel_name(relid),
						   isnull ? "null" : ttl_docs_json_excerpt(DatumGetJsonbP(example))),
			 errhint("A ttl is an integer from 1 to %d, -1, or null. To find the documents with an invalid ttl: SELECT * FROM %s WHERE ttl_docs.document_ttl(%s) = 0.",
					 TTL_MAX, ttl_docs_quoted_name(relid),
					 quote_identifier(doc_column))));
}
