/*-------------------------------------------------------------------------
 *
 * trigger.c
 *		The row trigger of collections.  It judges the old row, stamps the new
 *		row, and frees the keys of the new row.
 *
 * The trigger fires BEFORE INSERT, UPDATE and DELETE.  It fires after all
 * other BEFORE ROW triggers, so it sees the row as it will be stored.  By
 * then core has locked the old row, and has waited for other sessions that
 * had locked it.
 *
 * Judging.  The trigger judges the old row at the clock.  A document that
 * expired after the query's snapshot is treated like a row that was deleted
 * after the snapshot; late_write.c has the details.  Foreign key actions also
 * reach expired children.  Actions that delete rows delete expired children,
 * too.  Actions that set a column leave expired children unchanged.  The
 * trigger does not judge rows under session_replication_role = replica, nor
 * rows that ttl_docs itself deletes because they are expired.
 *
 * Stamping (stamp.c).  The server sets the system columns, and replaces any
 * values that the client sent for them.  Three kinds of writers bring stamps
 * that the server keeps:
 * 1. Replication, which applies changes under session_replication_role =
 *    replica.  Our trigger is enabled ALWAYS, so it frees keys for
 *    replication, too.
 * 2. A restore into a table that has its triggers: INSERT and COPY FROM by
 *    the owner or a superuser under row_security = off, which pg_dump puts
 *    into its scripts.
 *
 * 3. Citus, when it moves, splits or converts a table (citus/citus.h).
 *
 * COPY FROM avoids the trigger if possible (copy_from.c).
 *
 * On PostgreSQL 19, the same function is that of the parent trigger, which is an
 * AFTER trigger of child tables (parent_check.c).
 *
 * The trigger keeps its state for a table (WriteState) in fn_extra until the
 * query ends.  The settings cannot change before that.  Other sessions would
 * need a lock that conflicts with the query's lock, and the same session
 * cannot change settings while the table is in use.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "commands/trigger.h"
#include "fmgr.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#include "write/write_internal.h"

PG_FUNCTION_INFO_V1(ttl_docs_write_document);

typedef struct WriteState
{
	DocumentWriter writer;
	bool		is_restore;		/* INSERT keeps the _ts that it brings */
	PartitionCheck *partition;	/* NULL if no row needs this check */
} WriteState;

static WriteState *write_state(FunctionCallInfo fcinfo, TriggerData *trigdata);
static HeapTuple before_insert(WriteState *state, TriggerData *trigdata);
static HeapTuple before_update(WriteState *state, TriggerData *trigdata);
static HeapTuple before_delete(WriteState *state, TriggerData *trigdata);
static bool is_expired_now(const DocumentWriter *writer, const Stamp *stamp);
static bool in_replica_role(void);

/*
 * write_document(): the trigger function
 */
Datum
ttl_docs_write_document(PG_FUNCTION_ARGS)
{
	TriggerData *trigdata = (TriggerData *) fcinfo->context;
	WriteState *state;
	HeapTuple	result;

	ttl_docs_require_preload();
	if (CALLED_AS_TRIGGER(fcinfo) && ttl_docs_is_parent_check(trigdata))
	{
		ttl_docs_check_parent(trigdata);
		return PointerGetDatum(NULL);
	}
	if (!CALLED_AS_TRIGGER(fcinfo) ||
		!TRIGGER_FIRED_BEFORE(trigdata->tg_event) ||
		!TRIGGER_FIRED_FOR_ROW(trigdata->tg_event))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("function %s.%s() works only as the trigger of a collection",
						TTL_DOCS_INTERNAL, TTL_DOCS_TRIGGER_FUNCTION),
				 errhint("Make the table a collection with ttl_docs.adopt().")));

	state = write_state(fcinfo, trigdata);
	state->writer.clock = ttl_docs_clock();
	if (TRIGGER_FIRED_BY_INSERT(trigdata->tg_event))
		result = before_insert(state, trigdata);
	else if (TRIGGER_FIRED_BY_UPDATE(trigdata->tg_event))
		result = before_update(state, trigdata);
	else
		result = before_delete(state, trigdata);
	return PointerGetDatum(result);
}

/*
 * Returns the state for the table; creates it for the first row of a query.
 */
static WriteState *
write_state(FunctionCallInfo fcinfo, TriggerData *trigdata)
{
	WriteState *state = fcinfo->flinfo->fn_extra;
	Relation	rel = trigdata->tg_relation;
	Collection *collection;
	MemoryContext caller;

	if (state != NULL && state->writer.relid == RelationGetRelid(rel))
		return state;

	caller = MemoryContextSwitchTo(fcinfo->flinfo->fn_mcxt);
	state = palloc(sizeof(WriteState));
	collection = &state->writer.collection;
	if (!ttl_docs_lookup_collection(RelationGetRelid(rel), collection) ||
		collection->ts <= 0 || collection->ttl <= 0 || collection->slot <= 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("table \"%s\" has the ttl_docs trigger but is not a collection",
						RelationGetRelationName(rel)),
				 errdetail("This happens when a table is restored without its security label."),
				 errhint("Call ttl_docs.adopt() to make the table a collection, or drop the trigger \"%s\".",
						 trigdata->tg_trigger->tgname)));

	ttl_docs_begin_writes(&state->writer, rel);
	state->is_restore = ttl_docs_keeps_stamps(RelationGetRelid(rel), collection);
	state->partition = rel->rd_rel->relispartition ?
		ttl_docs_make_partition_check(rel) : NULL;
	MemoryContextSwitchTo(caller);
	fcinfo->flinfo->fn_extra = state;
	return state;
}

static HeapTuple
before_insert(WriteState *state, TriggerData *trigdata)
{
	DocumentWriter *writer = &state->writer;
	Relation	rel = trigdata->tg_relation;
	HeapTuple	tuple = trigdata->tg_trigtuple;
	NewRow		row;

	if (state->partition != NULL)
		ttl_docs_check_partition(state->partition, tuple);
	ttl_docs_begin_row(&row, &writer->collection, tuple, trigdata->tg_trigslot);
	if (in_replica_role())
		tuple = ttl_docs_keep_replicated_stamp(writer, rel, &row, NULL);
	else if (state->is_restore)
		tuple = ttl_docs_keep_restored_stamp(writer, rel, &row);
	else
		tuple = ttl_docs_stamp_row(writer, rel, &row, NULL, NULL);
	ttl_docs_free_keys(writer, rel, tuple, NULL);
	return tuple;
}

static HeapTuple
before_update(WriteState *state, TriggerData *trigdata)
{
	DocumentWriter *writer = &state->writer;
	Relation	rel = trigdata->tg_relation;
	HeapTuple	oldtuple = trigdata->tg_trigtuple;
	HeapTuple	tuple;
	NewRow		row;

	ttl_docs_begin_row(&row, &writer->collection, trigdata->tg_newtuple,
					   trigdata->tg_newslot);
	if (in_replica_role())
		tuple = ttl_docs_keep_replicated_stamp(writer, rel, &row, oldtuple);
	else
	{
		Stamp		old = ttl_docs_tuple_stamp(&writer->collection, oldtuple,
											   RelationGetDescr(rel));

		if (is_expired_now(writer, &old))
		{
			if (!ttl_docs_in_foreign_key_action())
				ttl_docs_report_late_write(RelationGetRelid(rel));
			return NULL;
		}
		tuple = ttl_docs_stamp_row(writer, rel, &row, oldtuple, &old);
	}
	ttl_docs_free_keys(writer, rel, tuple, oldtuple);
	return tuple;
}

static HeapTuple
before_delete(WriteState *state, TriggerData *trigdata)
{
	Relation	rel = trigdata->tg_relation;
	Stamp		stamp;

	if (in_replica_role() || ttl_docs_is_purging() ||
		ttl_docs_in_foreign_key_action())
		return trigdata->tg_trigtuple;
	stamp = ttl_docs_tuple_stamp(&state->writer.collection, trigdata->tg_trigtuple,
								 RelationGetDescr(rel));
	if (!is_expired_now(&state->writer, &stamp))
		return trigdata->tg_trigtuple;
	ttl_docs_report_late_write(RelationGetRelid(rel));
	return NULL;
}

static bool
is_expired_now(const DocumentWriter *writer, const Stamp *stamp)
{
	ExpiryBounds bounds = ttl_docs_bounds(&writer->collection.settings, writer->clock);

	return ttl_docs_is_expired(&bounds, stamp);
}

static bool
in_replica_role(void)
{
	return SessionReplicationRole == SESSION_REPLICATION_ROLE_REPLICA;
}
