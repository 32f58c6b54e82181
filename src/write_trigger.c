/*-------------------------------------------------------------------------
 *
 * write_trigger.c
 *		The row trigger of collections: stamps, validates, judges, frees keys.
 *
 * It fires BEFORE INSERT, UPDATE and DELETE, after all other BEFORE ROW
 * triggers, so it sees the row as it will be stored.  By then core has locked
 * the old row and waited for whoever had it.
 *
 * Judging.  Writes are judged at the clock: a document that expired after the
 * query's snapshot was taken (during a wait, in an old transaction, or just
 * now) is to a write what a row is that was deleted since.  READ COMMITTED
 * skips it; the higher levels raise a serialization failure.  So do ON CONFLICT
 * DO UPDATE and MERGE at every level: skipping would lose the new document
 * without a word, and the statement that is tried again inserts it.  The actions
 * of foreign keys reach expired children: they delete them, and leave them as
 * they are where they would set a column.
 *
 * Stamping (write_stamp.c).  What the client sent for the system columns does
 * not matter (write_messages.c warns about _ttl), with two exceptions that keep the stamps they bring: replication
 * (session_replication_role = replica, in which logical replication applies; we
 * fire ALWAYS, to free keys), and a restore into a table that has its triggers,
 * which is INSERT and COPY FROM by the owner or a superuser under row_security =
 * off, as pg_dump writes it.  The slot is computed in any case, and so is a ttl
 * that is not brought.
 *
 * Some publishers do not send _ts: a plain table, or a publication whose column
 * list leaves it out.  Then an UPDATE has the _ts of the old row.  It is stamped
 * with the clock, because the publisher has just written the document.  We do that
 * only for replication, which a replication origin or the apply worker shows: a
 * person who sets session_replication_role decides about _ts.
 *
 * COPY FROM does without the trigger where it can (write_copy.c).
 *
 * A document that an UPDATE leaves alone is not looked at, nor detoasted.
 *
 * What the trigger works out for a table (WriteState) is kept with the call
 * for the duration of the query.  Settings cannot change meanwhile: changing
 * them takes a lock that conflicts with the query's, and is refused in the
 * same session while the table is in use.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "commands/trigger.h"
#include "fmgr.h"
#include "nodes/plannodes.h"
#include "parser/parsetree.h"
#include "replication/logicalworker.h"
#include "replication/origin.h"
#include "utils/datum.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

#include "ttl_docs.h"

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
static HeapTuple too_late(Relation rel);
static bool is_arm_of_upsert(Oid relid);
static bool plan_may_be_arm(Plan *plan, PlannedStmt *stmt, Oid relid);
static int32 new_ttl(WriteState *state, Relation rel, HeapTuple tuple,
					 HeapTuple oldtuple, bool *inherits);
pg_noreturn static void report_invalid_ttl(Relation rel, HeapTuple tuple,
										   const JsonbValue *offending);
static int32 replicated_ttl(WriteState *state, Relation rel, HeapTuple tuple,
							HeapTuple oldtuple, bool *inherits);
static int32 stored_ttl(WriteState *state, Relation rel, HeapTuple tuple,
						bool *inherits);
static Datum document(WriteState *state, Relation rel, HeapTuple tuple, bool *isnull);
static bool same_document(WriteState *state, Relation rel, HeapTuple a,
						  HeapTuple b);
static HeapTuple stamp_now(WriteState *state, Relation rel, HeapTuple tuple,
						   HeapTuple oldtuple);
static void warn_of_ttl_column(WriteState *state, Relation rel, HeapTuple tuple,
							   HeapTuple oldtuple, const Stamp *stamp);
static HeapTuple keep_stamp(WriteState *state, Relation rel, HeapTuple tuple,
							bool inherits, int32 ttl);
static HeapTuple with_stamp(WriteState *state, Relation rel, HeapTuple tuple,
							const Stamp *stamp);
static bool has_same_ts(WriteState *state, Relation rel, HeapTuple a, HeapTuple b);
static bool in_replica_role(void);
static bool in_foreign_key_action(void);

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

	if (!ttl_docs_collection(RelationGetRelid(rel), &collection) ||
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
	Relation	rel = trigdata->tg_relation;
	HeapTuple	tuple = trigdata->tg_trigtuple;
	bool		inherits;
	int32		ttl;

	ttl_docs_check_partition(state->partition, tuple);
	if (in_replica_role())
	{
		ttl = replicated_ttl(state, rel, tuple, NULL, &inherits);
		tuple = keep_stamp(state, rel, tuple, inherits, ttl);
	}
	else if (state->keeps_insert_stamps)
	{
		ttl = new_ttl(state, rel, tuple, NULL, &inherits);
		tuple = keep_stamp(state, rel, tuple, inherits, ttl);
	}
	else
		tuple = stamp_now(state, rel, tuple, NULL);
	ttl_docs_free_keys(state->writer.keys, rel, tuple, NULL, state->writer.clock);
	return tuple;
}

static HeapTuple
before_update(WriteState *state, TriggerData *trigdata)
{
	Relation	rel = trigdata->tg_relation;
	HeapTuple	oldtuple = trigdata->tg_trigtuple;
	HeapTuple	tuple = trigdata->tg_newtuple;

	if (in_replica_role())
	{
		bool		inherits;
		int32		ttl = replicated_ttl(state, rel, tuple, oldtuple, &inherits);

		if (ttl_docs_is_by_replication() && has_same_ts(state, rel, tuple, oldtuple))
		{
			Stamp		stamp = ttl_docs_stamp_now(&state->writer, inherits, ttl);

			tuple = with_stamp(state, rel, tuple, &stamp);
		}
		else
			tuple = keep_stamp(state, rel, tuple, inherits, ttl);
	}
	else if (is_expired_now(state, rel, oldtuple))
		return in_foreign_key_action() ? NULL : too_late(rel);
	else
		tuple = stamp_now(state, rel, tuple, oldtuple);
	ttl_docs_free_keys(state->writer.keys, rel, tuple, oldtuple, state->writer.clock);
	return tuple;
}

static HeapTuple
before_delete(WriteState *state, TriggerData *trigdata)
{
	if (!in_replica_role() && !ttl_docs_is_purging() && !in_foreign_key_action() &&
		is_expired_now(state, trigdata->tg_relation, trigdata->tg_trigtuple))
		return too_late(trigdata->tg_relation);
	return trigdata->tg_trigtuple;
}

static bool
is_expired_now(WriteState *state, Relation rel, HeapTuple tuple)
{
	TupleDesc	tupdesc = RelationGetDescr(rel);
	ExpiryBounds bounds;
	bool		ts_isnull;
	bool		inherits;
	Datum		ts = heap_getattr(tuple, state->writer.collection.ts, tupdesc, &ts_isnull);
	Datum		ttl = heap_getattr(tuple, state->writer.collection.ttl, tupdesc, &inherits);

	if (ts_isnull)
		return false;
	bounds = ttl_docs_bounds(&state->writer.collection.settings, state->writer.clock);
	return ttl_docs_is_expired(&bounds, DatumGetTimestampTz(ts), inherits,
							   inherits ? 0 : DatumGetInt32(ttl));
}

/* The answer to a write that reaches a document after it has expired. */
static HeapTuple
too_late(Relation rel)
{
	if (IsolationUsesXactSnapshot())
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("could not serialize access due to a document that expired meanwhile"),
				 errhint("The transaction might succeed if retried.")));
	if (is_arm_of_upsert(RelationGetRelid(rel)))
		ttl_docs_report_expired_upsert();
	return NULL;
}

void
ttl_docs_report_expired_upsert(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
			 errmsg("could not update a document that expired meanwhile"),
			 errhint("The statement inserts it anew when it is tried again.")));
}

/*
 * Does the row come from ON CONFLICT DO UPDATE or from MERGE?  A trigger is
 * not told, but the innermost running query is the one that fires it.
 */
static bool
is_arm_of_upsert(Oid relid)
{
	LiveQuery  *query = ttl_docs_running_query();
	ListCell   *lc;

	if (query == NULL)
		return false;
	if (plan_may_be_arm(query->stmt->planTree, query->stmt, relid))
		return true;
	/* data-modifying CTEs are subplans, with ModifyTable at their top */
	foreach(lc, query->stmt->subplans)
		if (plan_may_be_arm(lfirst(lc), query->stmt, relid))
			return true;
	return false;
}

/*
 * Could that plan have fired the trigger by such an arm?  Where a statement
 * both updates and upserts a table, the answer that loses nothing is yes.
 */
static bool
plan_may_be_arm(Plan *plan, PlannedStmt *stmt, Oid relid)
{
	ModifyTable *modify = (ModifyTable *) plan;
	ListCell   *lc;

	if (plan == NULL || !IsA(plan, ModifyTable))
		return false;
	if (modify->operation != CMD_MERGE &&
		(modify->operation != CMD_INSERT ||
		 modify->onConflictAction != ONCONFLICT_UPDATE))
		return false;
	foreach(lc, modify->resultRelations)
	{
		RangeTblEntry *rte = rt_fetch(lfirst_int(lc), stmt->rtable);
		Collection	target;
		Collection	fired;

		/* partitions are routed to, so compare roots */
		if (rte->relid == relid ||
			(ttl_docs_collection(rte->relid, &target) &&
			 ttl_docs_collection(relid, &fired) && target.root == fired.root))
			return true;
	}
	return false;
}

/* The ttl of the new row; an error if TTL is on and it is not valid. */
static int32
new_ttl(WriteState *state, Relation rel, HeapTuple tuple, HeapTuple oldtuple,
		bool *inherits)
{
	JsonbValue	offending;
	Datum		doc;
	bool		isnull;
	int32		ttl;

	if (oldtuple != NULL && same_document(state, rel, tuple, oldtuple))
	{
		ttl = stored_ttl(state, rel, oldtuple, inherits);
		if (*inherits || ttl != TTL_INVALID)
			return ttl;
	}
	doc = document(state, rel, tuple, &isnull);
	ttl = ttl_docs_ttl_in(doc, isnull, inherits, &offending);
	if (ttl_docs_refuses_ttl(&state->writer, *inherits, ttl))
		report_invalid_ttl(rel, tuple, &offending);
	return ttl;
}

static void
report_invalid_ttl(Relation rel, HeapTuple tuple, const JsonbValue *offending)
{
	TupleDesc	tupdesc = RelationGetDescr(rel);
	Datum	   *values = palloc(tupdesc->natts * sizeof(Datum));
	bool	   *isnull = palloc(tupdesc->natts * sizeof(bool));

	heap_deform_tuple(tuple, tupdesc, values, isnull);
	ttl_docs_report_invalid_ttl(rel, values, isnull, offending);
}

/*
 * The ttl of a row that replication brings.  Whoever does not bring the column
 * may bring a document that has one: then the column is NULL, or as it was.
 * A publisher's comes from the document, so there it makes no difference.
 */
static int32
replicated_ttl(WriteState *state, Relation rel, HeapTuple tuple,
			   HeapTuple oldtuple, bool *inherits)
{
	int32		ttl = stored_ttl(state, rel, tuple, inherits);
	bool		is_brought = !*inherits;
	JsonbValue	offending;
	Datum		doc;
	bool		isnull;

	if (oldtuple != NULL)
	{
		bool		old_inherits;
		int32		old_ttl = stored_ttl(state, rel, oldtuple, &old_inherits);

		is_brought = *inherits != old_inherits || ttl != old_ttl ||
			same_document(state, rel, tuple, oldtuple);
	}
	if (is_brought)
		return ttl;
	doc = document(state, rel, tuple, &isnull);
	return ttl_docs_ttl_in(doc, isnull, inherits, &offending);
}

/* What the column _ttl of a row says; 0 where it inherits. */
static int32
stored_ttl(WriteState *state, Relation rel, HeapTuple tuple, bool *inherits)
{
	Datum		ttl = heap_getattr(tuple, state->writer.collection.ttl,
								   RelationGetDescr(rel), inherits);

	return *inherits ? 0 : DatumGetInt32(ttl);
}

/* The document of a row. */
static Datum
document(WriteState *state, Relation rel, HeapTuple tuple, bool *isnull)
{
	return heap_getattr(tuple, state->writer.collection.doc, RelationGetDescr(rel),
						isnull);
}

/* To the byte, as stored: an update that leaves it alone hands it on so. */
static bool
same_document(WriteState *state, Relation rel, HeapTuple a, HeapTuple b)
{
	bool		a_isnull;
	bool		b_isnull;
	Datum		a_doc = document(state, rel, a, &a_isnull);
	Datum		b_doc = document(state, rel, b, &b_isnull);

	if (a_isnull || b_isnull)
		return a_isnull && b_isnull;
	return datumIsEqual(a_doc, b_doc, false, -1);
}

/* The row as it is written now, in place of oldtuple, if that is not NULL. */
static HeapTuple
stamp_now(WriteState *state, Relation rel, HeapTuple tuple, HeapTuple oldtuple)
{
	bool		inherits;
	int32		ttl = new_ttl(state, rel, tuple, oldtuple, &inherits);
	Stamp		stamp = ttl_docs_stamp_now(&state->writer, inherits, ttl);

	if (!inherits && !state->writer.collection.settings.on)
		ttl_docs_warn_of_ttl_while_off(&state->writer);
	warn_of_ttl_column(state, rel, tuple, oldtuple, &stamp);
	return with_stamp(state, rel, tuple, &stamp);
}

/*
 * Warns if the client has sent a value for _ttl that the stamp replaces.  Clients
 * that write all columns back send what they have read, which is no mistake.
 */
static void
warn_of_ttl_column(WriteState *state, Relation rel, HeapTuple tuple,
				   HeapTuple oldtuple, const Stamp *stamp)
{
	bool		isnull;
	int32		sent = stored_ttl(state, rel, tuple, &isnull);

	if (isnull || (!stamp->inherits && sent == stamp->ttl))
		return;
	if (oldtuple != NULL)
	{
		int32		old = stored_ttl(state, rel, oldtuple, &isnull);

		if (!isnull && sent == old)
			return;
	}
	ttl_docs_warn_of_ttl_column(&state->writer, sent);
}

/*
 * The row with the stamp that it brings.  A slot that replication brings is kept
 * if it can be one: where all of a row identifies it (REPLICA IDENTITY FULL), the
 * row has to be the publisher's, whose DefaultTTL may be another.
 */
static HeapTuple
keep_stamp(WriteState *state, Relation rel, HeapTuple tuple, bool inherits,
		   int32 ttl)
{
	const Collection *collection = &state->writer.collection;
	TupleDesc	tupdesc = RelationGetDescr(rel);
	bool		isnull;
	Datum		ts = heap_getattr(tuple, collection->ts, tupdesc, &isnull);
	Stamp		stamp = ttl_docs_stamp_at(&state->writer,
										  isnull ? state->writer.clock : DatumGetTimestampTz(ts),
										  inherits, ttl);

	if (in_replica_role() && inherits && stamp.has_slot)
	{
		Datum		slot = heap_getattr(tuple, collection->slot, tupdesc, &isnull);

		if (!isnull && ttl_docs_may_be_slot(stamp.ts, DatumGetInt64(slot)))
			stamp.slot = DatumGetInt64(slot);
	}
	return with_stamp(state, rel, tuple, &stamp);
}

/* The row with its system columns set. */
static HeapTuple
with_stamp(WriteState *state, Relation rel, HeapTuple tuple, const Stamp *stamp)
{
	const Collection *collection = &state->writer.collection;
	int			columns[3] = {collection->ts, collection->ttl, collection->slot};
	Datum		values[3] = {TimestampTzGetDatum(stamp->ts),
		Int32GetDatum(stamp->ttl), Int64GetDatum(stamp->slot)};
	bool		nulls[3] = {false, stamp->inherits, !stamp->has_slot};

	ttl_docs_note_stamp(&state->writer, stamp);
	return heap_modify_tuple_by_cols(tuple, RelationGetDescr(rel), 3, columns,
									 values, nulls);
}

/* Do two rows have the same _ts?  Not if one of them has none. */
static bool
has_same_ts(WriteState *state, Relation rel, HeapTuple a, HeapTuple b)
{
	AttrNumber	column = state->writer.collection.ts;
	bool		a_isnull;
	bool		b_isnull;
	Datum		a_ts = heap_getattr(a, column, RelationGetDescr(rel), &a_isnull);
	Datum		b_ts = heap_getattr(b, column, RelationGetDescr(rel), &b_isnull);

	return !a_isnull && !b_isnull &&
		DatumGetTimestampTz(a_ts) == DatumGetTimestampTz(b_ts);
}

static bool
in_replica_role(void)
{
	return SessionReplicationRole == SESSION_REPLICATION_ROLE_REPLICA;
}

/* Does replication apply a change, core's or that of another system? */
bool
ttl_docs_is_by_replication(void)
{
	return IsLogicalWorker() ||
		(replorigin_session_origin != InvalidRepOriginId &&
		 replorigin_session_origin != DoNotReplicateId);
}

/* Is the row written because its parent is? */
static bool
in_foreign_key_action(void)
{
	LiveQuery  *query = ttl_docs_running_query();

	return query != NULL && query->foreign_key_action;
}
