/*-------------------------------------------------------------------------
 *
 * write_stamp.c
 *		What the system columns of a row say that is written now.
 *
 * _ts is the clock, _ttl comes from the document, _slot from both.  Rows come here
 * from the trigger, as tuples, and from COPY, as slots; so this is about values,
 * and who writes them where is left to the callers.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "utils/rel.h"

#include "ttl_docs.h"

static void require_types(Relation rel, const Collection *collection);
static bool has_type(Relation rel, AttrNumber attno, Oid type);

/*
 * Prepares to write documents to a table, in the current memory context, which
 * has to live as long as the query that writes them.
 */
void
ttl_docs_begin_writes(DocumentWriter *writer, Relation rel,
					  const Collection *collection)
{
	require_types(rel, collection);
	writer->relid = RelationGetRelid(rel);
	writer->collection = *collection;
	writer->keys = ttl_docs_key_probe(collection);
	writer->purge = NULL;
	writer->announced = DT_NOEND;
}

/*
 * ALTER COLUMN TYPE is refused only when the command ends.  Until then a function
 * in its USING can write to the table, and must not have one type taken for
 * another.
 */
static void
require_types(Relation rel, const Collection *collection)
{
	if (has_type(rel, collection->doc, JSONBOID) &&
		has_type(rel, collection->ts, TIMESTAMPTZOID) &&
		has_type(rel, collection->ttl, INT4OID) &&
		has_type(rel, collection->slot, INT8OID))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_IN_USE),
			 errmsg("cannot write to the collection \"%s\" while its columns are changed",
					RelationGetRelationName(rel)),
			 errhint("Do not write to it in a function that ALTER TABLE calls.")));
}

static bool
has_type(Relation rel, AttrNumber attno, Oid type)
{
	return attno > 0 && TupleDescAttr(RelationGetDescr(rel), attno - 1)->atttypid == type;
}

/* What a document says of its ttl; TTL_INVALID if that is not valid. */
int32
ttl_docs_ttl_in(Datum doc, bool isnull, bool *inherits, JsonbValue *offending)
{
	*inherits = true;
	if (isnull)
		return 0;
	return ttl_docs_document_ttl(DatumGetJsonbP(doc), inherits, offending);
}

/* Is that ttl of a new document an error?  Not while TTL is off. */
bool
ttl_docs_refuses_ttl(const DocumentWriter *writer, bool inherits, int32 ttl)
{
	return !inherits && ttl == TTL_INVALID && writer->collection.settings.on;
}

/* The stamp of a document that is written now, with that ttl. */
Stamp
ttl_docs_stamp_now(const DocumentWriter *writer, bool inherits, int32 ttl)
{
	return ttl_docs_stamp_at(writer,
							 ttl_docs_new_stamp(&writer->collection.settings,
												writer->clock, inherits, ttl),
							 inherits, ttl);
}

Stamp
ttl_docs_stamp_at(const DocumentWriter *writer, TimestampTz ts, bool inherits,
				  int32 ttl)
{
	Stamp		stamp;

	stamp.ts = ts;
	stamp.inherits = inherits;
	stamp.ttl = ttl;
	stamp.slot = 0;
	stamp.has_slot = ttl_docs_slot(ts, inherits, ttl,
								   writer->collection.settings.default_ttl,
								   &stamp.slot);
	return stamp;
}

/* Tells those who have to know that a document is about to be written. */
void
ttl_docs_note_stamp(DocumentWriter *writer, const Stamp *stamp)
{
	const Collection *collection = &writer->collection;
	TimestampTz expiry = ttl_docs_expired_from(&collection->settings, stamp->ts,
											   stamp->inherits, stamp->ttl);

	if (expiry < writer->announced)
	{
		ttl_docs_announce_expiry(writer->relid, collection->root, expiry);
		writer->announced = expiry;
	}
	if (stamp->has_slot)
		ttl_docs_note_document(&writer->purge, writer->relid, collection, stamp->slot);
}
