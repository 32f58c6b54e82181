/*-------------------------------------------------------------------------
 *
 * stamp.c
 *		Sets the system columns of a row that is written.
 *
 * _ts is the clock.  If the clock has gone back to a time before a floor, _ts
 * is later than the clock (core/expiry.c).  _ttl comes from the document.
 * _slot is computed from _ts, _ttl and the DefaultTTL.  The trigger stamps
 * tuples, and COPY FROM stamps arrays of values (copy_from.c).
 *
 * If an UPDATE does not change the document, the document is neither read nor
 * detoasted.  There are two exceptions.  A document with an invalid ttl is read,
 * because the error message shows the ttl.  While a table is adopted
 * concurrently, a document whose row is not filled yet is read, because _ttl of
 * the old row does not have its ttl.
 *
 * Stamps that are kept.  A restore brings _ts; _ttl and _slot are computed.
 * Replication brings all three columns, with these exceptions:
 * - If the publisher does not send _ttl, then _ttl comes from the document.
 *   This happens if the publisher's table is a plain table, or if the column
 *   list of the publication omits _ttl.
 * - If the publisher does not send _ts, then the new row of an INSERT arrives with
 *   the default of the column, which is not kept either.  A restore is the same.
 *   The new row of an UPDATE arrives
 *   with the _ts of the old row.  We set _ts to the clock, because the
 *   publisher has just written the document.  We do this only if a
 *   replication origin or an apply worker shows that replication writes the
 *   row.  Otherwise a user has set session_replication_role, and we keep the
 *   user's _ts.
 * - _slot is computed, unless the value that was sent is correct under some
 *   DefaultTTL.  Under REPLICA IDENTITY FULL all columns identify a row, so
 *   the row must stay equal to the publisher's row, and the publisher may
 *   have another DefaultTTL.
 *
 * Every stamped row is announced to the purge before it goes into the table
 * (purge/notify.c).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "utils/datum.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "write/write_internal.h"

static void require_types(Relation rel, const Collection *collection);
static bool has_type(Relation rel, AttrNumber attno, Oid type);
static void read_new_ttl(DocumentWriter *writer, Relation rel, const NewRow *row,
						 const Stamp *old, bool is_restore, Stamp *stamp);
static void read_replicated_ttl(DocumentWriter *writer, Relation rel,
								const NewRow *row, HeapTuple oldtuple,
								const Stamp *old, Stamp *stamp);
static bool rejects_ttl(const DocumentWriter *writer, const Stamp *stamp,
						bool is_restore);
static Datum get_document(const DocumentWriter *writer, Relation rel,
						  const NewRow *row, bool *isnull);
static bool same_document(const DocumentWriter *writer, Relation rel,
						  const NewRow *row, HeapTuple oldtuple);
static void warn_of_ttl(DocumentWriter *writer, const Stamp *sent,
						const Stamp *old, const Stamp *stamp);
static Stamp sent_stamp(const DocumentWriter *writer, Relation rel, const NewRow *row);
static bool has_ts(const DocumentWriter *writer, Relation rel, const NewRow *row);
static int64 complete_stamp(DocumentWriter *writer, Stamp *stamp);
static int64 slot_of(const DocumentWriter *writer, const Stamp *stamp);
static HeapTuple announce_and_stamp(DocumentWriter *writer, Relation rel,
									NewRow *row, const Stamp *stamp, int64 slot);

/*
 * Prepares to write documents to a table, whose collection the caller has set.
 * The current memory context and the writer must live as long as the query that
 * writes the documents.
 */
void
ttl_docs_begin_writes(DocumentWriter *writer, Relation rel)
{
	require_types(rel, &writer->collection);
	writer->relid = RelationGetRelid(rel);
	writer->context = CurrentMemoryContext;
	writer->keys = NULL;
	ttl_docs_begin_announcing(&writer->announced);
}

/*
 * Do the rows that are inserted now bring their stamps?  A restore brings
 * them, and so does Citus when it fills a table with the rows of another one.
 */
bool
ttl_docs_keeps_stamps(Oid relid, const Collection *collection)
{
	if (ttl_docs_acts_for_backup(collection->root))
		return true;
	return collection->settings.citus &&
		(ttl_docs_is_filling(relid) ||
		 (ttl_docs_is_filled_by_citus(relid) && ttl_docs_may_act_for_backup(relid)));
}

/*
 * Raises an error if a restore inserts rows into a distributed table of Citus.
 * row_security = off does not reach the shards.  They would stamp the rows as
 * new, and expired documents would come back.
 */
void
ttl_docs_refuse_distributed_restore(Oid relid)
{
	Collection	collection;

	if (row_security || !ttl_docs_citus_is_loaded || ttl_docs_in_citus_session() ||
		!ttl_docs_lookup_collection(relid, &collection) || !collection.settings.citus ||
		!ttl_docs_is_shell(relid) || ttl_docs_is_filling(relid) ||
		!ttl_docs_acts_for_backup(collection.root))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("cannot restore documents into the distributed collection \"%s\"",
					get_rel_name(relid)),
			 errdetail("With row_security = off, \"%s\" is restored. But this setting does not reach the other nodes of Citus.",
					   TTL_DOCS_TS_COLUMN),
			 errhint("Restore the table first, and distribute it afterwards. To insert new documents, run SET row_security = on.")));
}

/*
 * Raises an error if a column that we read or set has the wrong type.  ALTER
 * COLUMN TYPE is refused only when the command ends.  Before that, a function
 * in its USING clause can write to the table.
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
			 errmsg("cannot write to collection \"%s\" while ALTER TABLE is changing its columns",
					RelationGetRelationName(rel)),
			 errhint("Do not write to the collection in a function that ALTER TABLE calls.")));
}

static bool
has_type(Relation rel, AttrNumber attno, Oid type)
{
	return attno > 0 && TupleDescAttr(RelationGetDescr(rel), attno - 1)->atttypid == type;
}

/*
 * Stamps a new row.  oldtuple is the row that an UPDATE replaces, and "old" its
 * stamp; both are NULL for an INSERT.
 */
HeapTuple
ttl_docs_stamp_row(DocumentWriter *writer, Relation rel, NewRow *row,
				   HeapTuple oldtuple, const Stamp *old)
{
	bool		isnull;
	Datum		ttl = ttl_docs_row_value(row, rel, writer->collection.ttl, &isnull);
	/* the _ts that the client sent does not matter */
	Stamp		sent = ttl_docs_make_stamp((Datum) 0, true, ttl, isnull);
	Stamp		stamp;

	read_new_ttl(writer, rel, row,
				 oldtuple != NULL && same_document(writer, rel, row, oldtuple) ?
				 old : NULL, false, &stamp);
	warn_of_ttl(writer, &sent, old, &stamp);
	return announce_and_stamp(writer, rel, row, &stamp,
							  complete_stamp(writer, &stamp));
}

/*
 * Reads the ttl of a new row into *stamp.  Raises an error if TTL is on and
 * the ttl is invalid.  If an UPDATE does not change the document, "old" is
 * the stamp of the old row; otherwise "old" is NULL.  The ttl of a row that
 * adopt_concurrently() has not filled yet is not known from its stamp.
 */
static void
read_new_ttl(DocumentWriter *writer, Relation rel, const NewRow *row,
			 const Stamp *old, bool is_restore, Stamp *stamp)
{
	TupleDesc	tupdesc = RelationGetDescr(rel);
	JsonbValue	found;
	Datum		doc;
	bool		doc_isnull;
	Datum	   *values;
	bool	   *isnull;

	if (old != NULL && (old->inherits || old->ttl != TTL_INVALID) &&
		old->ts != writer->collection.settings.adopting)
	{
		*stamp = *old;
		return;
	}
	doc = get_document(writer, rel, row, &doc_isnull);
	ttl_docs_read_ttl(doc, doc_isnull, stamp, &found);
	if (!rejects_ttl(writer, stamp, is_restore))
		return;
	values = palloc(tupdesc->natts * sizeof(Datum));
	isnull = palloc(tupdesc->natts * sizeof(bool));
	heap_deform_tuple(row->tuple, tupdesc, values, isnull);
	ttl_docs_report_invalid_ttl(rel, values, isnull, &found);
}

/*
 * Is the ttl of a new document an error?  While TTL is off, none is.  While
 * adopt_concurrently() is about to turn TTL on, only a restore may bring an
 * invalid ttl: the table that was dumped can have one.  The next call of
 * adopt_concurrently() finds it.
 */
static bool
rejects_ttl(const DocumentWriter *writer, const Stamp *stamp, bool is_restore)
{
	const CollectionSettings *settings = &writer->collection.settings;

	if (stamp->inherits || stamp->ttl != TTL_INVALID)
		return false;
	/* the adoption that runs now may have read the end of the table already */
	if (settings->target_on && is_restore)
		ttl_docs_refuse_concurrent_change(writer->collection.root);
	return settings->on || (settings->target_on && !is_restore);
}

static Datum
get_document(const DocumentWriter *writer, Relation rel, const NewRow *row,
			 bool *isnull)
{
	return ttl_docs_row_value(row, rel, writer->collection.doc, isnull);
}

/*
 * Compares the documents of two rows as they are stored.  An UPDATE that does
 * not change the document passes on the stored bytes, even if the document is
 * toasted.
 */
static bool
same_document(const DocumentWriter *writer, Relation rel, const NewRow *row,
			  HeapTuple oldtuple)
{
	bool		isnull;
	bool		old_isnull;
	Datum		doc = get_document(writer, rel, row, &isnull);
	Datum		old_doc = heap_getattr(oldtuple, writer->collection.doc,
									   RelationGetDescr(rel), &old_isnull);

	if (isnull || old_isnull)
		return isnull && old_isnull;
	return datumIsEqual(doc, old_doc, false, -1);
}

/*
 * Warns about a ttl that has no effect:
 * - a document has a ttl while TTL is off;
 * - the client sent a value for _ttl that is not the ttl of the document.
 *   But a client may write back all columns as it has read them.  So there is
 *   no warning if the value is the _ttl of the old row.
 * "old" is the stamp of the old row, or NULL for an INSERT.
 */
static void
warn_of_ttl(DocumentWriter *writer, const Stamp *sent, const Stamp *old,
			const Stamp *stamp)
{
	if (!stamp->inherits && !writer->collection.settings.on &&
		!writer->collection.settings.target_on)
		ttl_docs_warn_of_ttl_while_off(writer);
	if (sent->inherits || (!stamp->inherits && sent->ttl == stamp->ttl) ||
		(old != NULL && !old->inherits && sent->ttl == old->ttl))
		return;
	ttl_docs_warn_of_ttl_column(writer, sent->ttl);
}

/* Sets _ts for a document that is written now; returns the slot. */
static int64
complete_stamp(DocumentWriter *writer, Stamp *stamp)
{
	stamp->ts = ttl_docs_stamp_time(&writer->collection.settings, writer->clock, stamp);
	/* a row with this _ts would count as not filled */
	if (stamp->ts == writer->collection.settings.adopting)
		stamp->ts++;
	return slot_of(writer, stamp);
}

static int64
slot_of(const DocumentWriter *writer, const Stamp *stamp)
{
	return ttl_docs_slot_under(&writer->collection.settings, stamp);
}

/* Announces the row to the purge; returns it with its system columns set. */
static HeapTuple
announce_and_stamp(DocumentWriter *writer, Relation rel, NewRow *row,
				   const Stamp *stamp, int64 slot)
{
	const Collection *collection = &writer->collection;

	ttl_docs_announce_document(&writer->announced, writer->relid, collection, stamp,
							   slot);
	return ttl_docs_set_system_columns(row, rel, collection, stamp, slot);
}

/* Stamps a row of COPY FROM, which is an array of values and no tuple yet. */
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
	if (rejects_ttl(writer, &stamp, false))
		ttl_docs_report_invalid_ttl(rel, values, isnull, &found);
	warn_of_ttl(writer, &sent, NULL, &stamp);
	writer->clock = ttl_docs_clock();
	slot = complete_stamp(writer, &stamp);
	ttl_docs_announce_document(&writer->announced, writer->relid, collection, &stamp,
							   slot);
	values[ts] = TimestampTzGetDatum(stamp.ts);
	isnull[ts] = false;
	values[ttl] = Int32GetDatum(stamp.ttl);
	isnull[ttl] = stamp.inherits;
	values[slot_column] = Int64GetDatum(slot);
	isnull[slot_column] = slot == NO_SLOT;
}

/* Stamps a row of a restore.  Keeps _ts, or uses the clock if _ts is NULL. */
HeapTuple
ttl_docs_keep_restored_stamp(DocumentWriter *writer, Relation rel, NewRow *row)
{
	Stamp		sent = sent_stamp(writer, rel, row);
	Stamp		stamp;

	read_new_ttl(writer, rel, row, NULL, true, &stamp);
	stamp.ts = has_ts(writer, rel, row) ? sent.ts : writer->clock;
	return announce_and_stamp(writer, rel, row, &stamp, slot_of(writer, &stamp));
}

/* The stamp that the row has brought. */
static Stamp
sent_stamp(const DocumentWriter *writer, Relation rel, const NewRow *row)
{
	bool		ts_isnull;
	bool		ttl_isnull;
	Datum		ts = ttl_docs_row_value(row, rel, writer->collection.ts, &ts_isnull);
	Datum		ttl = ttl_docs_row_value(row, rel, writer->collection.ttl, &ttl_isnull);

	return ttl_docs_make_stamp(ts, ts_isnull, ttl, ttl_isnull);
}

/*
 * Has somebody sent the _ts of the row?  If not, core has computed the default of
 * the column, now(), before it called us.  That is the start of the transaction,
 * and a long COPY could end after such documents had expired.  A value from
 * elsewhere is not equal to it.
 */
static bool
has_ts(const DocumentWriter *writer, Relation rel, const NewRow *row)
{
	bool		isnull;
	Datum		ts = ttl_docs_row_value(row, rel, writer->collection.ts, &isnull);

	return !isnull && DatumGetTimestampTz(ts) != GetCurrentTransactionStartTimestamp();
}

/* Stamps a row of replication, by the rules in the header of this file. */
HeapTuple
ttl_docs_keep_replicated_stamp(DocumentWriter *writer, Relation rel,
							   NewRow *row, HeapTuple oldtuple)
{
	Stamp		stamp = sent_stamp(writer, rel, row);
	Stamp		old;
	Datum		sent_slot;
	bool		isnull;
	int64		slot;

	if (oldtuple != NULL)
		old = ttl_docs_tuple_stamp(&writer->collection, oldtuple,
								   RelationGetDescr(rel));
	read_replicated_ttl(writer, rel, row, oldtuple,
						oldtuple != NULL ? &old : NULL, &stamp);
	if (oldtuple != NULL && has_ts(writer, rel, row) && stamp.ts == old.ts &&
		ttl_docs_replication_writes())
		return announce_and_stamp(writer, rel, row, &stamp,
								  complete_stamp(writer, &stamp));

	if (!has_ts(writer, rel, row))
		stamp.ts = writer->clock;
	slot = slot_of(writer, &stamp);
	sent_slot = ttl_docs_row_value(row, rel, writer->collection.slot, &isnull);
	if (stamp.inherits && slot != NO_SLOT && !isnull &&
		ttl_docs_may_be_slot(&stamp, DatumGetInt64(sent_slot)))
		slot = DatumGetInt64(sent_slot);
	return announce_and_stamp(writer, rel, row, &stamp, slot);
}

/*
 * Reads the ttl of a replicated row from its document, unless the publisher
 * has certainly sent _ttl, or the UPDATE does not change the document.  If _ttl
 * was not sent, it is NULL in an INSERT, and has its old value in an UPDATE.  If the publisher did send this value, reading the document changes
 * nothing, because the publisher's value comes from the document.
 */
static void
read_replicated_ttl(DocumentWriter *writer, Relation rel, const NewRow *row,
					HeapTuple oldtuple, const Stamp *old, Stamp *stamp)
{
	bool		is_sent = !stamp->inherits;
	JsonbValue	found;
	Datum		doc;
	bool		isnull;

	if (old != NULL)
		is_sent = stamp->inherits != old->inherits || stamp->ttl != old->ttl ||
			(old->ts != writer->collection.settings.adopting &&
			 same_document(writer, rel, row, oldtuple));
	if (is_sent)
		return;
	doc = get_document(writer, rel, row, &isnull);
	ttl_docs_read_ttl(doc, isnull, stamp, &found);
}
