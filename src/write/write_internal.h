/*-------------------------------------------------------------------------
 *
 * write_internal.h
 *		Declarations that the files of write share.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_DOCS_WRITE_INTERNAL_H
#define TTL_DOCS_WRITE_INTERNAL_H

#include "commands/trigger.h"

#include "purge/notify.h"
#include "write/write.h"

/* new_row.c */

/* The new row of a trigger */
typedef struct NewRow
{
	HeapTuple	tuple;
	TupleTableSlot *slot;		/* the slot that owns the tuple and has read its
								 * columns; NULL = the tuple must not be
								 * changed */
	/* where the tuple has its system columns; NULL = the column is NULL */
	char	   *ts;
	char	   *ttl;
	char	   *purge_slot;
} NewRow;
extern void ttl_docs_begin_row(NewRow *row, const Collection *collection,
							   HeapTuple tuple, TupleTableSlot *slot);
extern Datum ttl_docs_row_value(const NewRow *row, Relation rel, AttrNumber attno,
								bool *isnull);
extern HeapTuple ttl_docs_set_system_columns(NewRow *row, Relation rel,
											 const Collection *collection,
											 const Stamp *stamp, int64 slot);

/* stamp.c */

/* A query that writes documents to a table */
typedef struct DocumentWriter
{
	Oid			relid;
	Collection	collection;
	MemoryContext context;		/* lives as long as the query */
	struct KeyProbe *keys;		/* NULL until the keys of a row must be freed */
	AnnouncedDocuments announced;	/* documents announced to the purge so far */
	TimestampTz clock;			/* time of writing the current row */
} DocumentWriter;
extern bool ttl_docs_keeps_stamps(Oid relid, const Collection *collection);
extern void ttl_docs_begin_writes(DocumentWriter *writer, Relation rel);
extern HeapTuple ttl_docs_stamp_row(DocumentWriter *writer, Relation rel, NewRow *row,
									HeapTuple oldtuple, const Stamp *old);
extern HeapTuple ttl_docs_keep_restored_stamp(DocumentWriter *writer, Relation rel,
											  NewRow *row);
extern HeapTuple ttl_docs_keep_replicated_stamp(DocumentWriter *writer, Relation rel,
												NewRow *row, HeapTuple oldtuple);
extern void ttl_docs_stamp_values(DocumentWriter *writer, Relation rel,
								  Datum *values, bool *isnull);

/* parent_check.c */
extern bool ttl_docs_is_parent_check(const TriggerData *trigdata);
extern void ttl_docs_check_parent(TriggerData *trigdata);

/* late_write.c */
extern void ttl_docs_report_late_write(Oid relid);

/* ttl_messages.c */
pg_noreturn extern void ttl_docs_report_invalid_ttl(Relation rel, const Datum *values,
													const bool *isnull,
													const JsonbValue *ttl);
extern void ttl_docs_warn_of_ttl_while_off(const DocumentWriter *writer);
extern void ttl_docs_warn_of_ttl_column(const DocumentWriter *writer, int32 sent);
extern bool ttl_docs_replication_writes(void);

/* wrong_partition.c */
typedef struct PartitionCheck PartitionCheck;
extern PartitionCheck *ttl_docs_make_partition_check(Relation rel);
extern void ttl_docs_check_partition(PartitionCheck *check, HeapTuple tuple);

/* keys.c */
extern void ttl_docs_free_keys(DocumentWriter *writer, Relation rel,
							   HeapTuple newtuple, HeapTuple oldtuple);
extern bool ttl_docs_must_free_keys_of_batch(DocumentWriter *writer, Relation rel,
											 int nrows);
extern void ttl_docs_free_keys_of_row(DocumentWriter *writer, Relation rel,
									  TupleTableSlot *row,
									  void (*before_delete) (void *), void *arg);

/* expired_keys.c */
typedef struct KeySet KeySet;
extern KeySet *ttl_docs_make_key_set(Relation indexrel, const Oid *operators);
extern void ttl_docs_empty_key_set(KeySet *set);
extern void ttl_docs_add_key(KeySet *set, const Datum *values, const bool *isnull);
extern void ttl_docs_complete_key_set(KeySet *set);
extern bool ttl_docs_may_have_key(const KeySet *set, const Datum *values,
								  const bool *isnull);
extern bool ttl_docs_visit_expired_rows(Relation rel, const Collection *collection,
										TimestampTz clock, int limit,
										TupleTableSlot *row, TimestampTz *until,
										void (*visit) (void *), void *arg);

/* maybe_expired.c */
extern bool ttl_docs_maybe_expired(Relation rel, const Collection *collection,
								   TimestampTz clock);

#endif							/* TTL_DOCS_WRITE_INTERNAL_H */
