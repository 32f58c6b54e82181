/*-------------------------------------------------------------------------
 *
 * returned.c
 *		The document that a statement returns, as clients get it.
 *
 * A row has the document, the key and _ts.  Clients get one JSON document that
 * also has the properties "id" and "_ts" (properties.c).  There are two ways to
 * make it:
 *
 * - On an ordinary table, the statement computes the document.  It returns one
 *	 column.
 * - On a shell of Citus, the statement returns the document, the key and _ts as
 *	 they are, and this file computes the document in the caller's session.
 *	 The functions that print the id are STABLE.  On a shard they would use the
 *	 settings of another session, such as DateStyle.  In RETURNING, they make
 *	 Citus 13.2 crash if the plan is generic.
 *
 * Both ways give the same document.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "executor/tuptable.h"
#include "miscadmin.h"
#include "parser/parse_coerce.h"
#include "utils/jsonb.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "document/document_internal.h"

/* The columns that a statement on a shell returns */
enum
{
	RETURNED_DOCUMENT,
	RETURNED_KEY,
	RETURNED_TS,
	NUM_RETURNED
};

static Oid	returned_key_type(const DocumentKey *key);
static Jsonb *compute_document(const DocumentKey *key, const Datum *values,
							   const bool *nulls);

/*
 * Returns SQL for the columns that a statement returns.
 *
 * A key of a string type is cast to text.  For other types that are not
 * numbers, the id is the result of the type's output function, which concat()
 * calls.  A cast to text could give another result.
 */
char *
ttl_docs_returned_text(const DocumentKey *key, const char *key_column,
					   const char *doc_column)
{
	const char *id = key_column;

	if (returned_key_type(key) == TEXTOID)
		id = psprintf("%s::pg_catalog.text", key_column);
	else if (!key->is_number && !key->is_shell)
		id = psprintf("pg_catalog.concat(%s)", key_column);
	if (key->is_shell)
		return psprintf("%s, %s, %s", doc_column, id, TTL_DOCS_TS_COLUMN);
	return psprintf("%s.returned_document(%s, pg_catalog.to_jsonb(%s), %s)",
					TTL_DOCS_INTERNAL, doc_column, id, TTL_DOCS_TS_COLUMN);
}

/* The type of the key in a row that a statement returns. */
static Oid
returned_key_type(const DocumentKey *key)
{
	return TypeCategory(key->type) == TYPCATEGORY_STRING ? TEXTOID : key->type;
}

/*
 * Returns the document of a row that a statement has returned, in the current
 * memory context.  NULL if a rule has returned NULL instead.
 */
Jsonb *
ttl_docs_returned_row(const DocumentKey *key, HeapTuple row, TupleDesc tupdesc)
{
	Datum		values[NUM_RETURNED];
	bool		nulls[NUM_RETURNED];
	bool		isnull;
	Datum		doc;

	if (key->is_shell)
	{
		Assert(tupdesc->natts == NUM_RETURNED);
		heap_deform_tuple(row, tupdesc, values, nulls);
		return compute_document(key, values, nulls);
	}
	doc = heap_getattr(row, 1, tupdesc, &isnull);
	return isnull ? NULL : DatumGetJsonbPCopy(doc);
}

/* Computes the document of a row of a shell. */
static Jsonb *
compute_document(const DocumentKey *key, const Datum *values, const bool *nulls)
{
	Oid			output;
	bool		is_varlena;
	JsonbValue	id;
	TimestampTz ts = DatumGetTimestampTz(values[RETURNED_TS]);

	if (!nulls[RETURNED_KEY])
	{
		getTypeOutputInfo(returned_key_type(key), &output, &is_varlena);
		ttl_docs_make_id_of_text(&id, key,
								 OidOutputFunctionCall(output, values[RETURNED_KEY]));
	}
	return ttl_docs_add_properties(nulls[RETURNED_DOCUMENT] ? NULL :
								   DatumGetJsonbPCopy(values[RETURNED_DOCUMENT]),
								   nulls[RETURNED_KEY] ? NULL : &id,
								   nulls[RETURNED_TS] ? NULL : &ts);
}

/*
 * Adds the documents of all rows that a statement on a shell has returned to
 * the result of a set-returning function.
 */
void
ttl_docs_returned_rows(const DocumentKey *key, Tuplestorestate *rows,
					   ReturnSetInfo *rsinfo)
{
	TupleDesc	tupdesc = CreateTemplateTupleDesc(NUM_RETURNED);
	TupleTableSlot *row;
	MemoryContext per_row = AllocSetContextCreate(CurrentMemoryContext,
												  "ttl_docs document",
												  ALLOCSET_DEFAULT_SIZES);

	TupleDescInitEntry(tupdesc, RETURNED_DOCUMENT + 1, NULL, JSONBOID, -1, 0);
	TupleDescInitEntry(tupdesc, RETURNED_KEY + 1, NULL, returned_key_type(key), -1, 0);
	TupleDescInitEntry(tupdesc, RETURNED_TS + 1, NULL, TIMESTAMPTZOID, -1, 0);
	row = MakeSingleTupleTableSlot(tupdesc, &TTSOpsMinimalTuple);

	while (tuplestore_gettupleslot(rows, true, false, row))
	{
		MemoryContext caller;
		Datum		doc;
		bool		isnull = false;

		CHECK_FOR_INTERRUPTS();
		slot_getallattrs(row);
		caller = MemoryContextSwitchTo(per_row);
		doc = JsonbPGetDatum(compute_document(key, row->tts_values, row->tts_isnull));
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, &doc, &isnull);
		MemoryContextSwitchTo(caller);
		MemoryContextReset(per_row);
	}
	MemoryContextDelete(per_row);
	ExecDropSingleTupleTableSlot(row);
}
