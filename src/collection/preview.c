/*-------------------------------------------------------------------------
 *
 * preview.c
 *		preview(): counts the live documents that a DefaultTTL would expire.
 *
 * preview() runs as the caller, changes nothing, and shows only documents
 * that the caller may read.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/relation.h"
#include "access/table.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "funcapi.h"
#include "nodes/bitmapset.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

#include "collection/collection_internal.h"

PG_FUNCTION_INFO_V1(ttl_docs_preview);
PG_FUNCTION_INFO_V1(ttl_docs_expires_under);

#define PREVIEW_COUNTS		5	/* number of counts, the first result columns */
#define PREVIEW_EXAMPLES	5	/* maximum number of documents to name */
#define PREVIEW_EXCERPT		64	/* maximum length of a document as a name */

static void preview_counts(const char *table, const char *live,
						   const char *expires, int64 *counts);
static Datum preview_examples(Relation rel, const char *doc_column,
							  const char *live, const char *expires);
static char *document_name_expression(Relation rel, const char *doc_column);

/*
 * preview(collection regclass, default_ttl integer)
 *
 * Counts the live documents that would expire at once, later, or never under
 * a DefaultTTL.  Names a few that would expire at once.
 */
Datum
ttl_docs_preview(PG_FUNCTION_ARGS)
{
	Oid			relid;
	Relation	rel;
	TupleDesc	tupdesc;
	Collection	collection;
	bool		on;
	int32		default_ttl;
	int64		counts[PREVIEW_COUNTS];
	Datum		values[PREVIEW_COUNTS + 1];
	bool		nulls[PREVIEW_COUNTS + 1] = {0};
	char	   *expires;
	char	   *live;

	ttl_docs_require_preload();
	relid = ttl_docs_collection_arg(fcinfo);
	on = ttl_docs_default_ttl_arg(fcinfo, 1, &default_ttl);
	if (get_call_result_type(fcinfo, NULL, &tupdesc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	rel = try_relation_open(relid, AccessShareLock);
	if (rel == NULL || !ttl_docs_lookup_collection(relid, &collection))
		ttl_docs_report_no_collection(relid);
	ttl_docs_require_adopted(collection.root, &collection.settings, "preview");

	expires = psprintf("%s.expires_under(%s, %s, %s)", TTL_DOCS_INTERNAL,
					   TTL_DOCS_TS_COLUMN, TTL_DOCS_TTL_COLUMN,
					   on ? psprintf("%d", default_ttl) : "NULL");

	/*
	 * needed if settings of the session make expired documents visible; has
	 * the name of the table, because it has another OID on other nodes of
	 * Citus
	 */
	live = psprintf("NOT %s.is_expired(%s::pg_catalog.regclass, %s, %s)",
					TTL_DOCS_SCHEMA, ttl_docs_quoted_literal(relid),
					TTL_DOCS_TS_COLUMN, TTL_DOCS_TTL_COLUMN);
	preview_counts(ttl_docs_quoted_name(relid), live, expires, counts);
	for (int i = 0; i < PREVIEW_COUNTS; i++)
		values[i] = Int64GetDatum(counts[i]);
	values[PREVIEW_COUNTS] = preview_examples(rel, NameStr(collection.settings.doc_column),
											  live, expires);
	table_close(rel, NoLock);
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(tupdesc),
													  values, nulls)));
}

/*
 * Counts live documents: all; those that would expire now, later, and never;
 * and those with an invalid ttl.  Each count is a bigint.
 */
static void
preview_counts(const char *table, const char *live, const char *expires,
			   int64 *counts)
{
	char	   *sql;

	sql = psprintf("SELECT pg_catalog.count(*),"
				   " pg_catalog.count(*) FILTER (WHERE e OPERATOR(pg_catalog.<=) n),"
				   " pg_catalog.count(*) FILTER (WHERE e OPERATOR(pg_catalog.>) n"
				   "  AND e OPERATOR(pg_catalog.<) 'infinity'),"
				   " pg_catalog.count(*) FILTER (WHERE e OPERATOR(pg_catalog.=) 'infinity'),"
				   " pg_catalog.count(*) FILTER (WHERE %s OPERATOR(pg_catalog.=) %d)"
				   " FROM (SELECT %s, %s AS e, %s.now() AS n FROM %s WHERE %s) AS d",
				   TTL_DOCS_TTL_COLUMN, TTL_INVALID, TTL_DOCS_TTL_COLUMN,
				   expires, TTL_DOCS_SCHEMA, table, live);
	SPI_connect();
	if (SPI_execute(sql, true, 1) != SPI_OK_SELECT || SPI_processed != 1)
		elog(ERROR, "could not preview %s", table);
	for (int i = 0; i < PREVIEW_COUNTS; i++)
	{
		bool		isnull;

		counts[i] = DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[0],
												SPI_tuptable->tupdesc, i + 1,
												&isnull));
	}
	SPI_finish();
}

/* Returns the names of a few documents that would expire now, as text[]. */
static Datum
preview_examples(Relation rel, const char *doc_column, const char *live,
				 const char *expires)
{
	char	   *sql;
	bool		isnull;
	Datum		examples;

	sql = psprintf("SELECT ARRAY(SELECT %s FROM %s"
				   " WHERE %s AND %s OPERATOR(pg_catalog.<=) %s.now() LIMIT %d)",
				   document_name_expression(rel, doc_column),
				   ttl_docs_quoted_name(RelationGetRelid(rel)), live, expires,
				   TTL_DOCS_SCHEMA, PREVIEW_EXAMPLES);
	SPI_connect();
	if (SPI_execute(sql, true, 1) != SPI_OK_SELECT || SPI_processed != 1)
		elog(ERROR, "could not preview \"%s\"", RelationGetRelationName(rel));
	examples = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1,
							 &isnull);
	examples = SPI_datumTransfer(examples, false, -1);
	SPI_finish();
	return examples;
}

/*
 * Returns SQL for the name of a document: its primary key, or its ctid.  On a
 * shell of Citus, rows of several shards have the same ctid.  There the name is
 * the beginning of the document.
 */
static char *
document_name_expression(Relation rel, const char *doc_column)
{
	Bitmapset  *key = RelationGetIndexAttrBitmap(rel, INDEX_ATTR_BITMAP_PRIMARY_KEY);
	StringInfoData buf;
	int			member = -1;

	if (bms_is_empty(key) && ttl_docs_is_shell(RelationGetRelid(rel)))
		return psprintf("pg_catalog.left(%s::pg_catalog.text, %d)",
						quote_identifier(doc_column), PREVIEW_EXCERPT);
	if (bms_is_empty(key))
		return pstrdup("ctid::pg_catalog.text");
	initStringInfo(&buf);
	while ((member = bms_next_member(key, member)) >= 0)
	{
		AttrNumber	attno = member + FirstLowInvalidHeapAttributeNumber;

		appendStringInfo(&buf, "%s%s", buf.len > 0 ? ", " : "",
						 quote_identifier(get_attname(RelationGetRelid(rel),
													  attno, false)));
	}
	/* format(), not a cast: a cast can run code of the owner of the type */
	return bms_num_members(key) == 1 ?
		psprintf("pg_catalog.format('%%s', %s)", buf.data) :
		psprintf("ROW(%s)::pg_catalog.text", buf.data);
}

/*
 * expires_under(ts timestamptz, ttl integer, default_ttl integer): the time
 * at which a document would expire under a DefaultTTL.
 */
Datum
ttl_docs_expires_under(PG_FUNCTION_ARGS)
{
	if (PG_ARGISNULL(0))
		PG_RETURN_NULL();
	if (PG_ARGISNULL(2))
		PG_RETURN_TIMESTAMPTZ(DT_NOEND);
	PG_RETURN_TIMESTAMPTZ(ttl_docs_due(PG_GETARG_TIMESTAMPTZ(0),
									   PG_ARGISNULL(1) ? PG_GETARG_INT32(2) :
									   PG_GETARG_INT32(1)));
}
