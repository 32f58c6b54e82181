/*-------------------------------------------------------------------------
 *
 * trigger.c
 *		The row trigger of collections: judges, stamps, frees keys.
 *
 * It fires BEFORE INSERT, UPDATE and DELETE, after all other BEFORE ROW
 * triggers, so it sees the row as it will be stored.  By then core has locked
 * the old row and waited for other sessions that had it locked.
 *
 * Judging.  Writes are judged at the clock.  To a write, a document that
 * expired after the query's snapshot is what a row deleted since then is;
 * late_write.c has the answers.  The actions of foreign keys reach expired
 * children: they delete them, and leave them as they are where they would set a
 * column.
 *
 * Stamping (stamp.c).  The server sets the system columns, whatever the client
 * sent for them.  Two kinds of writers bring stamps that are kept:
 * 1. Replication, which applies changes under session_replication_role =
 *    replica.  Our trigger fires ALWAYS, so that keys are freed for it, too.
 * 2. A restore into a table that has its triggers: INSERT and COPY FROM by the
 *    owner or a superuser under row_security = off, as pg_dump writes it.
 *
 * COPY FROM does without the trigger where it can (copy_from.c).
 *
 * What the trigger works out for a table (WriteState) is kept with the call
 * for the duration of the query.  Settings cannot change meanwhile: a change
 * takes a lock that conflicts with the query's, and is refused in the same
 * session while the table is in use.
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
	bool		keeps_insert_stamps;	/* a restore */
	PartitionCheck *partition;	/* NULL if rows need no such check */
} WriteState;

static WriteState *write_state(FunctionCallInfo fcinfo, TriggerData *trigdata);
static HeapTuple before_insert(WriteState *state, TriggerData *trigdata);
static HeapTuple before_update(WriteState *state, TriggerData *trigdata);
static HeapTuple before_delete(WriteState *state, TriggerData *trigdata);
static bool is_expired_now(WriteState *state, Relation rel, HeapTuple tuple);
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

static WriteState *
write_state(FunctionCallInfo fcinfo, TriggerData *trigdata)
{
	WriteState *state = fcinfo->flinfo->fn_extra;
	Relation	rel = trigdata->tg_relation;
	Collection	collection;
	MemoryContext caller;

	if (state != NULL && state->writer.relid == RelationGetRelid(rel))
		return state;

	if (!ttl_docs_lookup_collection(RelationGetRelid(rel), &collection) ||
		collection.ts <= 0 || collection.ttl <= 0 || collection.slot <= 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("table \"%s\" has the trigger of a collection, but is none",
						RelationGetRelationName(rel)),
				 errdetail("A restore without security labels leaves such a table."),
				 errhint("Call ttl_docs.adopt() to make it a collection, or drop the trigger \"%s\".",
						 trigdata->tg_trigger->tgname)));

	caller = MemoryContextSwitchTo(fcinfo->flinfo->fn_mcxt);
	state = palloc0(sizeof(WriteState));
	ttl_docs_begin_writes(&state->writer, rel, &collection);
	state->keeps_insert_stamps = ttl_docs_acts_for_backup(collection.root);
	state->partition = ttl_docs_partition_check(rel);
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

	ttl_docs_check_partition(state->partition, tuple);
	if (in_replica_role())
		tuple = ttl_docs_keep_replicated_stamp(writer, rel, tuple, NULL);
	else if (state->keeps_insert_stamps)
		tuple = ttl_docs_keep_restored_stamp(writer, rel, tuple);
	else
		tuple = ttl_docs_stamp_tuple(writer, rel, tuple, NULL);
	ttl_docs_free_keys(writer->keys, rel, tuple, NULL, writer->clock);
	return tuple;
}

static HeapTuple
before_update(WriteState *state, TriggerData *trigdata)
{
	DocumentWriter *writer = &state->writer;
	Relation	rel = trigdata->tg_relation;
	HeapTuple	oldtuple = trigdata->tg_trigtuple;
	HeapTuple	tuple = trigdata->tg_newtuple;

	if (in_replica_role())
		tuple = ttl_docs_keep_replicated_stamp(writer, rel, tuple, oldtuple);
	else if (is_expired_now(state, rel, oldtuple))
	{
		if (!ttl_docs_in_foreign_key_action())
			ttl_docs_report_late_write(RelationGetRelid(rel));
		return NULL;
	}
	else
		tuple = ttl_docs_stamp_tuple(writer, rel, tuple, oldtuple);
	ttl_docs_free_keys(writer->keys, rel, tuple, oldtuple, writer->clock);
	return tuple;
}

static HeapTuple
before_delete(WriteState *state, TriggerData *trigdata)
{
	Relation	rel = trigdata->tg_relation;

	if (in_replica_role() || ttl_docs_is_purging() ||
		ttl_docs_in_foreign_key_action() ||
		!is_expired_now(state, rel, trigdata->tg_trigtuple))
		return trigdata->tg_trigtuple;
	ttl_docs_report_late_write(RelationGetRelid(rel));
	return NULL;
}

static bool
is_expired_now(WriteState *state, Relation rel, HeapTuple tuple)
{
	const Collection *collection = &state->writer.collection;
	Stamp		stamp = ttl_docs_tuple_stamp(collection, tuple, RelationGetDescr(rel));
	ExpiryBounds bounds = ttl_docs_bounds(&collection->settings, state->writer.clock);

	return ttl_docs_is_expired(&bounds, &stamp);
}

static bool
in_replica_role(void)
{
	return SessionReplicationRole == SESSION_REPLICATION_ROLE_REPLICA;
}
