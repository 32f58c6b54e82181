/*-------------------------------------------------------------------------
 *
 * collection_settings.c
 *		Reading and changing the settings of a collection.
 *
 * set_default_ttl writes a label and nothing else, whatever the size of the
 * table.  Before a change after which documents can live longer, what has
 * expired under the old setting becomes final (see the floors in expiry.c).  A
 * change that makes living documents expire holds the purge (collection_grace.c).
 *
 * Locks.  Either change keeps writers out until it commits, so that no write
 * is judged by one setting and stamped under another.  A change after which a
 * document can live longer (raise, unset, disable) also keeps readers out:
 * with the floor fixed but not committed, they would go on to see documents
 * expire under the old setting that the new one then brings back.  So it takes
 * ACCESS EXCLUSIVE, as ALTER TABLE would, and the others SHARE ROW EXCLUSIVE.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/relation.h"
#include "access/table.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "funcapi.h"
#include "nodes/bitmapset.h"
#include "utils/builtins.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "ttl_docs.h"

PG_FUNCTION_INFO_V1(ttl_docs_set_default_ttl);
PG_FUNCTION_INFO_V1(ttl_docs_get_default_ttl);
PG_FUNCTION_INFO_V1(ttl_docs_set_indexing);
PG_FUNCTION_INFO_V1(ttl_docs_preview);

#define PREVIEW_COUNTS		5	/* leading columns of preview() */
#define PREVIEW_EXAMPLES	5	/* documents it names */

static bool lets_live_longer(const CollectionSettings *settings, bool on,
							 int32 default_ttl);
static void require_purge_index(Relation rel, const CollectionSettings *settings);
static void preview_counts(const char *table, const char *live,
						   const char *expires, Datum *counts);
static Datum preview_examples(Relation rel, const char *live,
							  const char *expires);
static char *document_name_expression(Relation rel);

/*
 * set_default_ttl(collection regclass, default_ttl integer)
 */
Datum
ttl_docs_set_default_ttl(PG_FUNCTION_ARGS)
{
	bool		on = !PG_ARGISNULL(1);
	int32		default_ttl = on ? PG_GETARG_INT32(1) : TTL_NEVER;
	LOCKMODE	lockmode = ShareRowExclusiveLock;
	Collection	collection;
	CollectionSettings settings;
	NewlyExpired expired;
	Relation	rel;
	Oid			relid;

	ttl_docs_require_writable(fcinfo);
	relid = ttl_docs_collection_arg(fcinfo);
	if (on)
		ttl_docs_check_default_ttl(default_ttl);

	/*
	 * Which lock it takes depends on the setting that the lock protects.  So
	 * look first and check later; making a lock stronger would deadlock.
	 * Without a lock, ask what others have committed in this transaction.
	 */
	AcceptInvalidationMessages();
	if (ttl_docs_collection(relid, &collection) &&
		lets_live_longer(&collection.settings, on, default_ttl))
		lockmode = AccessExclusiveLock;
	rel = ttl_docs_open_collection(relid, lockmode, &collection);
	if (lockmode != AccessExclusiveLock &&
		lets_live_longer(&collection.settings, on, default_ttl))
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("could not set the DefaultTTL of \"%s\": somebody else has changed it meanwhile",
						RelationGetRelationName(rel)),
				 errhint("Try again.")));
	ttl_docs_require_unused(rel, "set_default_ttl");

	settings = collection.settings;
	if (on && settings.indexing == INDEXING_NONE)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("a DefaultTTL needs a purge index, and the indexing of \"%s\" is \"none\"",
						RelationGetRelationName(rel)),
				 errhint("Call ttl_docs.set_indexing() with \"consistent\" or \"lazy\" first.")));
	if (on)
		require_purge_index(rel, &settings);
	if (on && !settings.on)
		ttl_docs_refuse_invalid_ttl(relid, NameStr(settings.doc_column),
									psprintf("%s OPERATOR(pg_catalog.=) " INT64_FORMAT,
											 TTL_DOCS_SLOT_COLUMN, SLOT_INVALID));

	/* else the new bounds are beyond the old ones, and readers are at work */
	if (lets_live_longer(&settings, on, default_ttl))
		ttl_docs_move_floors(&settings, ttl_docs_clock());
	settings.on = on;
	settings.default_ttl = default_ttl;
	expired = ttl_docs_count_newly_expired(relid, &collection.settings, &settings);
	ttl_docs_begin_grace(relid, &settings, &expired);
	ttl_docs_write_label(relid, &settings);
	table_close(rel, NoLock);
	PG_RETURN_VOID();
}

/* Can a document live longer under the new DefaultTTL than under the old? */
static bool
lets_live_longer(const CollectionSettings *settings, bool on, int32 default_ttl)
{
	if (!settings->on)
		return false;
	if (!on)
		return true;
	if (settings->default_ttl == TTL_NEVER)
		return false;
	return default_ttl == TTL_NEVER || default_ttl > settings->default_ttl;
}

/* A restore that was broken off may have left a collection without one. */
static void
require_purge_index(Relation rel, const CollectionSettings *settings)
{
	if (OidIsValid(ttl_docs_purge_index(rel, settings->indexing)))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("the collection \"%s\" has lost its purge index",
					RelationGetRelationName(rel)),
			 errhint("Call ttl_docs.set_indexing() to build it again.")));
}

/*
 * get_default_ttl(collection regclass)
 */
Datum
ttl_docs_get_default_ttl(PG_FUNCTION_ARGS)
{
	Oid			relid = PG_GETARG_OID(0);
	Collection	collection;

	ttl_docs_require_preload();
	/* there is no lock that would tell what others have committed meanwhile */
	AcceptInvalidationMessages();
	if (!ttl_docs_collection(relid, &collection))
		ttl_docs_report_no_collection(relid);
	if (!collection.settings.on)
		PG_RETURN_NULL();
	PG_RETURN_INT32(collection.settings.default_ttl);
}

/*
 * set_indexing(collection regclass, indexing text)
 *
 * Builds the new index before it drops the old one.  SHARE ROW EXCLUSIVE keeps
 * writers out meanwhile; DROP INDEX takes ACCESS EXCLUSIVE at the end.
 */
Datum
ttl_docs_set_indexing(PG_FUNCTION_ARGS)
{
	IndexingMode indexing;
	Collection	collection;
	CollectionSettings settings;
	Relation	rel;
	Oid			relid;

	ttl_docs_require_writable(fcinfo);
	relid = ttl_docs_collection_arg(fcinfo);
	if (PG_ARGISNULL(1))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("indexing cannot be null"),
				 errhint("Use \"consistent\", \"lazy\" or \"none\".")));
	indexing = ttl_docs_parse_indexing(text_to_cstring(PG_GETARG_TEXT_PP(1)));
	rel = ttl_docs_open_collection(relid, ShareRowExclusiveLock, &collection);
	ttl_docs_require_unused(rel, "set_indexing");
	ttl_docs_require_no_pending_detach(relid);
	settings = collection.settings;
	if (indexing == INDEXING_NONE && settings.on)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot take the purge index away from \"%s\" while a DefaultTTL is set",
						RelationGetRelationName(rel)),
				 errhint("Turn TTL off first: SELECT ttl_docs.set_default_ttl(%s, NULL).",
						 quote_literal_cstr(ttl_docs_quoted_name(relid)))));
	table_close(rel, NoLock);

	ttl_docs_create_purge_index(relid, indexing);
	settings.indexing = indexing;
	ttl_docs_write_label(relid, &settings);
	if (collection.settings.indexing != indexing)
		ttl_docs_drop_purge_index(relid, collection.settings.indexing);
	PG_RETURN_VOID();
}

/*
 * preview(collection regclass, default_ttl integer)
 *
 * Counts what a DefaultTTL would do to the documents that are live now, and
 * names a few that it would expire at once.  Changes nothing, and shows only
 * what the caller may read.
 */
Datum
ttl_docs_preview(PG_FUNCTION_ARGS)
{
	Oid			relid;
	Relation	rel;
	TupleDesc	tupdesc;
	Collection	collection;
	Datum		values[PREVIEW_COUNTS + 1];
	bool		nulls[PREVIEW_COUNTS + 1] = {0};
	char	   *expires;
	char	   *live;

	ttl_docs_require_preload();
	relid = ttl_docs_collection_arg(fcinfo);
	if (!PG_ARGISNULL(1))
		ttl_docs_check_default_ttl(PG_GETARG_INT32(1));
	if (get_call_result_type(fcinfo, NULL, &tupdesc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	rel = try_relation_open(relid, AccessShareLock);
	if (rel == NULL || !ttl_docs_collection(relid, &collection))
		ttl_docs_report_no_collection(relid);

	expires = psprintf("%s.expires_under(%s, %s, %s)", TTL_DOCS_INTERNAL,
					   TTL_DOCS_TS_COLUMN, TTL_DOCS_TTL_COLUMN,
					   PG_ARGISNULL(1) ? "NULL" : psprintf("%d", PG_GETARG_INT32(1)));
	/* also where the caller's settings show expired documents */
	live = psprintf("NOT %s.is_expired(%u, %s, %s)", TTL_DOCS_SCHEMA, relid,
					TTL_DOCS_TS_COLUMN, TTL_DOCS_TTL_COLUMN);
	preview_counts(ttl_docs_quoted_name(relid), live, expires, values);
	values[PREVIEW_COUNTS] = preview_examples(rel, live, expires);
	table_close(rel, NoLock);
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(tupdesc),
													  values, nulls)));
}

/* How many live documents would expire when; all of them bigint. */
static void
preview_counts(const char *table, const char *live, const char *expires,
			   Datum *counts)
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

		/* by value on the machines that we build for */
		counts[i] = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc,
								  i + 1, &isnull);
	}
	SPI_finish();
}

/* Names a few that would expire now, as text[]. */
static Datum
preview_examples(Relation rel, const char *live, const char *expires)
{
	char	   *sql;
	bool		isnull;
	Datum		examples;

	sql = psprintf("SELECT ARRAY(SELECT %s FROM %s"
				   " WHERE %s AND %s OPERATOR(pg_catalog.<=) %s.now() LIMIT %d)",
				   document_name_expression(rel),
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

/* SQL that names a document: its primary key as text, or where it is. */
static char *
document_name_expression(Relation rel)
{
	Bitmapset  *key = RelationGetIndexAttrBitmap(rel, INDEX_ATTR_BITMAP_PRIMARY_KEY);
	StringInfoData buf;
	int			member = -1;

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
	/* not by a cast: that can be code of whoever owns the type */
	return bms_num_members(key) == 1 ?
		psprintf("pg_catalog.format('%%s', %s)", buf.data) :
		psprintf("ROW(%s)::pg_catalog.text", buf.data);
}
