/*-------------------------------------------------------------------------
 *
 * stamp.c
 *		Sets the system columns of a row that is written.
 *
 * _ts is the clock, _ttl comes from the document, _slot from both.  The
 * trigger writes tuples, COPY FROM writes arrays of values (copy_from.c).
 *
 * A document that an UPDATE does not change is neither read nor detoasted.
 *
 * Stamps that are kept.  A restore brings _ts; _ttl and _slot are computed.
 * Replication brings all three, with exceptions:
 * - A publisher may not send _ttl: a plain table, or a publication whose column
 *   list leaves it out.  Then the document decides.
 * - A publisher may not send _ts.  Then an UPDATE has the _ts of the old row.
 *   It is stamped with the clock, because the publisher has just written the
 *   document.  We do that only for replication, which a replication origin or
 *   the apply worker shows: a person who sets session_replication_role decides
 *   about _ts.
 * - _slot is computed, unless the one that was sent can be right: where all
 *   columns identify a row (REPLICA IDENTITY FULL), the row has to equal the
 *   publisher's, whose DefaultTTL may be another.
 *
 * Every stamped row is announced to the purge before it goes into the table
 * (purge/notify.c).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "utils/datum.h"
#include "utils/rel.h"

#include "write/write_internal.h"

static void require_types(Relation rel, const Collection *collection);
static bool has_type(Relation rel, AttrNumber attno, Oid type);
static void read_new_ttl(DocumentWriter *writer, Relation rel, HeapTuple tuple,
						 const Stamp *old, Stamp *stamp);
static void read_replicated_ttl(DocumentWriter *writer, Relation rel,
								HeapTuple tuple, HeapTuple oldtuple,
								const Stamp *old, Stamp *stamp);
static bool refuses_ttl(const DocumentWriter *writer, const Stamp *stamp);
static Datum document(DocumentWriter *writer, Relation rel, HeapTuple tuple,
					  bool *isnull);
static bool same_document(DocumentWriter *writer, Relation rel, HeapTuple a,
						  HeapTuple b);
static void warn_of_ttl(DocumentWriter *writer, const Stamp *sent,
						const Stamp *old, const Stamp *stamp);
static bool has_ts(const DocumentWriter *writer, Relation rel, HeapTuple tuple);
static int64 complete_stamp(DocumentWriter *writer, Stamp *stamp);
static int64 slot_of(const DocumentWriter *writer, const Stamp *stamp);
static HeapTuple with_stamp(DocumentWriter *writer, Relation rel, HeapTuple tuple,
							const Stamp *stamp, int64 slot);

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
	ttl_docs_begin_telling(&writer->told);
}

/*
 * ALTER COLUMN TYPE is refused only when the command ends.  Until then a
 * function in its USING clause can write to the table, and must not mistake one
 * type for another.
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

/* The tuple as it is written now; oldtuple is the one that an UPDATE replaces. */
HeapTuple
ttl_docs_stamp_tuple(DocumentWriter *writer, Relation rel, HeapTuple tuple,
					 HeapTuple oldtuple)
{
	TupleDesc	tupdesc = RelationGetDescr(rel);
	Stamp		sent = ttl_docs_tuple_stamp(&writer->collection, tuple, tupdesc);
	Stamp		old;
	Stamp		stamp;

	if (oldtuple != NULL)
		old = ttl_docs_tuple_stamp(&writer->collection, oldtuple, tupdesc);
	read_new_ttl(writer, rel, tuple,
				 oldtuple != NULL && same_document(writer, rel, tuple, oldtuple) ?
				 &old : NULL, &stamp);
	warn_of_ttl(writer, &sent, oldtuple != NULL ? &old : NULL, &stamp);
	return with_stamp(writer, rel, tuple, &stamp, complete_stamp(writer, &stamp));
}

/*
 * Reads the ttl of a new row; an error if TTL is on and the ttl is invalid.  If an
 * UPDATE leaves the document alone, *old is the stamp before it, and else NULL.
 */
static void
read_new_ttl(DocumentWriter *writer, Relation rel, HeapTuple tuple,
			 const Stamp *old, Stamp *stamp)
{
	TupleDesc	tupdesc = RelationGetDescr(rel);
	JsonbValue	found;
	Datum		doc;
	bool		doc_isnull;
	Datum	   *values;
	bool	   *isnull;

	if (old != NULL && (old->inherits || old->ttl != TTL_INVALID))
	{
		*stamp = *old;
		return;
	}
	doc = document(writer, rel, tuple, &doc_isnull);
	ttl_docs_read_ttl(doc, doc_isnull, stamp, &found);
	if (!refuses_ttl(writer, stamp))
		return;
	values = palloc(tupdesc->natts * sizeof(Datum));
	isnull = palloc(tupdesc->natts * sizeof(bool));
	heap_deform_tuple(tuple, tupdesc, values, isnull);
	ttl_docs_report_invalid_ttl(rel, values, isnull, &found);
}

/* Is that ttl of a new document an error?  Not while TTL is off. */
static bool
refuses_ttl(const DocumentWriter *writer, const Stamp *stamp)
{
	return !stamp->inherits && stamp->ttl == TTL_INVALID &&
		writer->collection.settings.on;
}

/* The document of a row. */
static Datum
document(DocumentWriter *writer, Relation rel, HeapTuple tuple, bool *isnull)
{
	return heap_getattr(tuple, writer->collection.doc, RelationGetDescr(rel), isnull);
}

/* Compares bytes as stored: an update that leaves it alone hands it on so. */
static bool
same_document(DocumentWriter *writer, Relation rel, HeapTuple a, HeapTuple b)
{
	bool		a_isnull;
	bool		b_isnull;
	Datum		a_doc = document(writer, rel, a, &a_isnull);
	Datum		b_doc = document(writer, rel, b, &b_isnull);

	if (a_isnull || b_isnull)
		return a_isnull && b_isnull;
	return datumIsEqual(a_doc, b_doc, false, -1);
}

/*
 * Warns of a ttl that has no effect: in a document while TTL is off, or as a value
 * that the client sent for _ttl.  Clients that write all columns back send what
 * they have read, which is no mistake; old is the row that they have read, or NULL.
 */
static void
warn_of_ttl(DocumentWriter *writer, const Stamp *sent, const Stamp *old,
			const Stamp *stamp)
{
	if (!stamp->inherits && !writer->collection.settings.on)
		ttl_docs_warn_of_ttl_while_off(writer);
	if (sent->inherits || (!stamp->inherits && sent->ttl == stamp->ttl) ||
		(old != NULL && !old->inherits && sent->ttl == old->ttl))
		return;
	ttl_docs_warn_of_ttl_column(writer, sent->ttl);
}

/* Completes the stamp of a document that is written now; returns its slot. */
static int64
complete_stamp(DocumentWriter *writer, Stamp *stamp)
{
	stamp->ts = ttl_docs_stamp_time(&writer->collection.settings, writer->clock, stamp);
	return slot_of(writer, stamp);
}

static int64
slot_of(const DocumentWriter *writer, const Stamp *stamp)
{
	return ttl_docs_slot(stamp, writer->collection.settings.default_ttl);
}

/* The tuple with its system columns set. */
static HeapTuple
with_stamp(DocumentWriter *writer, Relation rel, HeapTuple tuple,
		   const Stamp *stamp, int64 slot)
{
	const Collection *collection = &writer->collection;
	int			columns[3] = {collection->ts, collection->ttl, collection->slot};
	Datum		values[3] = {TimestampTzGetDatum(stamp->ts),
		Int32GetDatum(stamp->ttl), Int64GetDatum(slot)};
	bool		nulls[3] = {false, stamp->inherits, slot == NO_SLOT};

	ttl_docs_tell_document(&writer->told, writer->relid, collection, stamp, slot);
	return heap_modify_tuple_by_cols(tuple, RelationGetDescr(rel), 3, columns,
									 values, nulls);
}

/* Stamps a row of COPY FROM, whose values are still being put together. */
void
ttl_docs_stamp_values(DocumentWriter *writer, Relation rel, Datum *values,
					  bool *isnull)
{
	const Collection *collection = &writer->collection;
	int			doc = collection->doc - 1;
	int			ts = collection->ts - 1;
	int			ttl = collection->ttl - 1;
	int			slot_column = collection->slot - 1;
	Stamp		sent = ttl_docs_make_stamp(values[ts], isnull[ts], values[ttl],
										   isnull[ttl]);
	Stamp		stamp;
	JsonbValue	found;
	int64		slot;

	ttl_docs_read_ttl(values[doc], isnull[doc], &stamp, &found);
	if (refuses_ttl(writer, &stamp))
		ttl_docs_report_invalid_ttl(rel, values, isnull, &found);
	warn_of_ttl(writer, &sent, NULL, &stamp);
	writer->clock = ttl_docs_clock();
	slot = complete_stamp(writer, &stamp);
	ttl_docs_tell_document(&writer->told, writer->relid, collection, &stamp, slot);
	values[ts] = TimestampTzGetDatum(stamp.ts);
	isnull[ts] = false;
	values[ttl] = Int32GetDatum(stamp.ttl);
	isnull[ttl] = stamp.inherits;
	values[slot_column] = Int64GetDatum(slot);
	isnull[slot_column] = slot == NO_SLOT;
}

/* The tuple with the _ts that a restore brings. */
HeapTuple
ttl_docs_keep_restored_stamp(DocumentWriter *writer, Relation rel, HeapTuple tuple)
{
	Stamp		sent = ttl_docs_tuple_stamp(&writer->collection, tuple,
											RelationGetDescr(rel));
	Stamp		stamp;

	read_new_ttl(writer, rel, tuple, NULL, &stamp);
	stamp.ts = has_ts(writer, rel, tuple) ? sent.ts : writer->clock;
	return with_stamp(writer, rel, tuple, &stamp, slot_of(writer, &stamp));
}

static bool
has_ts(const DocumentWriter *writer, Relation rel, HeapTuple tuple)
{
	return !heap_attisnull(tuple, writer->collection.ts, RelationGetDescr(rel));
}

/* The tuple with the stamp that replication brings. */
HeapTuple
ttl_docs_keep_replicated_stamp(DocumentWriter *writer, Relation rel,
							   HeapTuple tuple, HeapTuple oldtuple)
{
	TupleDesc	tupdesc = RelationGetDescr(rel);
	Stamp		stamp = ttl_docs_tuple_stamp(&writer->collection, tuple, tupdesc);
	Stamp		old;
	Datum		sent_slot;
	bool		isnull;
	int64		slot;

	if (oldtuple != NULL)
		old = ttl_docs_tuple_stamp(&writer->collection, oldtuple, tupdesc);
	read_replicated_ttl(writer, rel, tuple, oldtuple,
						oldtuple != NULL ? &old : NULL, &stamp);
	if (oldtuple != NULL && has_ts(writer, rel, tuple) && stamp.ts == old.ts &&
		ttl_docs_is_by_replication())
		return with_stamp(writer, rel, tuple, &stamp, complete_stamp(writer, &stamp));

	if (!has_ts(writer, rel, tuple))
		stamp.ts = writer->clock;
	slot = slot_of(writer, &stamp);
	sent_slot = heap_getattr(tuple, writer->collection.slot, tupdesc, &isnull);
	if (stamp.inherits && slot != NO_SLOT && !isnull &&
		ttl_docs_may_be_slot(&stamp, DatumGetInt64(sent_slot)))
		slot = DatumGetInt64(sent_slot);
	return with_stamp(writer, rel, tuple, &stamp, slot);
}

/*
 * Corrects the ttl of a replicated row, if the publisher did not send the column:
 * then it is NULL, or as it was.  If the publisher sent the column, its value comes
 * from the document, so reading the document makes no difference.
 */
static void
read_replicated_ttl(DocumentWriter *writer, Relation rel, HeapTuple tuple,
					HeapTuple oldtuple, const Stamp *old, Stamp *stamp)
{
	bool		is_sent = !stamp->inherits;
	JsonbValue	found;
	Datum		doc;
	bool		isnull;

	if (old != NULL)
		is_sent = stamp->inherits != old->inherits || stamp->ttl != old->ttl ||
			same_document(writer, rel, tuple, oldtuple);
	if (is_sent)
		return;
	doc = document(writer, rel, tuple, &isnull);
	ttl_docs_read_ttl(doc, isnull, stamp, &found);
}
