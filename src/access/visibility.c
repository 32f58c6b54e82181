/*-------------------------------------------------------------------------
 *
 * visibility.c
 *		is_live(): the visibility test that every scan of a collection applies.
 *
 * plan.c puts is_live() into scans.  On its first call in a query is_live() works
 * out the bounds for the collection from settings, instant and user; after that a
 * row costs a comparison or two.  Instant and settings both belong to the snapshot
 * of the query (instant.c, collection/cache.c), so that all scans and workers of a
 * query work out the same bounds.  A foreign key check is judged at the clock, and
 * so by the settings of that moment.
 *
 * Settings are kept for as long as the snapshot: with the query or, in REPEATABLE
 * READ and SERIALIZABLE, with the transaction, unless it changes settings itself.
 * Otherwise a scan that starts after this backend has processed a change could use
 * other settings than the first scan.
 *
 * Who sees expired documents that are on disk:
 * - a superuser with ttl_docs.show_expired, in SELECT, COPY TO and INSERT ... SELECT;
 * - the table's owner or a superuser under row_security = off, in SELECT and COPY
 *   TO, so that a backup is complete (collection/backup.c);
 * - pg_repack when it copies the table (pg_repack.c);
 * - ALTER TABLE when it checks existing rows against a foreign key, for the
 *   parents (foreign_key.c);
 * - the actions of foreign keys.  Another session may be renewing an expired
 *   child, so the action has to wait for it, as for any child.  A child that is
 *   still expired when it is reached is deleted with its parent, or left as it is.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/parallel.h"
#include "access/xact.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "access/access_internal.h"

PG_FUNCTION_INFO_V1(ttl_docs_is_live);
PG_FUNCTION_INFO_V1(ttl_docs_is_live_parent);
PG_FUNCTION_INFO_V1(ttl_docs_require_live);

/* What is_live() works out once for a query */
typedef struct TestState
{
	Oid			collection;
	ExpiryBounds bounds;
	CollectionSettings settings;
	LiveQuery  *foreign_key_check;	/* to be told until when a row lives */
} TestState;

/* Settings that a query, or a transaction, goes by */
typedef struct KeptSettings
{
	struct KeptSettings *next;
	Oid			collection;
	CollectionSettings settings;
} KeptSettings;

static KeptSettings *kept_by_transaction = NULL;	/* in TopTransactionContext */

static inline Datum test_row(FunctionCallInfo fcinfo, bool is_parent);
static TestState *test_state(FunctionCallInfo fcinfo, Oid collection,
							 bool is_parent);
static bool sees_expired(const LiveQuery *query, Oid collection,
						 bool is_parent);
static CollectionSettings settings_of(Oid relid);
static CollectionSettings query_settings(LiveQuery *query, Oid relid);
static CollectionSettings settings_at(Oid relid, Snapshot snapshot,
									  bool use_cache);

/*
 * is_live(ts timestamptz, ttl integer, collection regclass)
 */
Datum
ttl_docs_is_live(PG_FUNCTION_ARGS)
{
	return test_row(fcinfo, false);
}

/*
 * is_live_parent(ts timestamptz, ttl integer, collection regclass): the same,
 * for the parents in core's query that validates a foreign key.
 */
Datum
ttl_docs_is_live_parent(PG_FUNCTION_ARGS)
{
	return test_row(fcinfo, true);
}

static inline Datum
test_row(FunctionCallInfo fcinfo, bool is_parent)
{
	TestState  *state = fcinfo->flinfo->fn_extra;
	Stamp		stamp = ttl_docs_make_stamp(PG_GETARG_DATUM(0), PG_ARGISNULL(0),
											PG_GETARG_DATUM(1), PG_ARGISNULL(1));

	if (unlikely(state == NULL || state->collection != PG_GETARG_OID(2)))
		state = test_state(fcinfo, PG_GETARG_OID(2), is_parent);

	if (stamp.inherits && likely(stamp.ts > state->bounds.written))
	{
		if (likely(state->foreign_key_check == NULL))
			PG_RETURN_BOOL(true);
	}
	else if (ttl_docs_is_expired(&state->bounds, &stamp))
		PG_RETURN_BOOL(false);

	if (state->foreign_key_check != NULL)
	{
		LiveQuery  *check = state->foreign_key_check;
		TimestampTz due = ttl_docs_expires_at(&state->settings, &stamp);

		/* of several versions the last counts, of several rows each */
		check->checked_due = check->needs_all_rows ?
			Min(check->checked_due, due) : due;
	}
	PG_RETURN_BOOL(true);
}

static TestState *
test_state(FunctionCallInfo fcinfo, Oid collection, bool is_parent)
{
	LiveQuery  *query = ttl_docs_running_query();
	TestState  *state;

	if (PG_ARGISNULL(2))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("collection cannot be null")));
	/* a user may call it for one collection after another */
	state = fcinfo->flinfo->fn_extra;
	if (state == NULL)
		state = MemoryContextAlloc(fcinfo->flinfo->fn_mcxt, sizeof(TestState));
	memset(state, 0, sizeof(*state));
	state->collection = collection;
	if (sees_expired(query, collection, is_parent))
	{
		state->bounds.written = DT_NOBEGIN;
		state->bounds.due = DT_NOBEGIN;
	}
	else if (query != NULL && query->foreign_key_check)
	{
		state->settings = settings_of(collection);
		state->bounds = ttl_docs_bounds(&state->settings, query->instant);
		state->foreign_key_check = query;
	}
	else if (query != NULL)
	{
		state->settings = query_settings(query, collection);
		state->bounds = ttl_docs_bounds(&state->settings, query->instant);
	}
	else
	{
		state->settings = ttl_docs_current_settings(collection);
		state->bounds = ttl_docs_bounds(&state->settings,
										ttl_docs_current_instant());
	}
	fcinfo->flinfo->fn_extra = state;
	return state;
}

/* Is this a query that shows expired documents of the collection? */
static bool
sees_expired(const LiveQuery *query, Oid collection, bool is_parent)
{
	CmdType		command;

	if (query == NULL || query->stmt->hasModifyingCTE)
		return false;
	/* what somebody is renewing has to be waited for, and not be orphaned */
	if (query->foreign_key_action)
		return true;
	/* parents on disk count, children that are expired do not */
	if (query->validates_foreign_key)
		return is_parent || query->foreign_key_check;
	if (query->foreign_key_check)
		return false;
	if (query->repacked == collection && OidIsValid(collection))
		return true;
	command = query->stmt->commandType;
	if (ttl_docs_show_expired && (command == CMD_SELECT || command == CMD_INSERT))
		return true;
	return command == CMD_SELECT && query->stmt->rowMarks == NIL &&
		ttl_docs_acts_for_backup(collection);
}

/*
 * require_live(ts timestamptz, ttl integer, collection regclass): true, or a
 * serialization failure.  plan.c puts it before the WHERE of ON CONFLICT
 * DO UPDATE, which is a write and judged at the clock.
 */
Datum
ttl_docs_require_live(PG_FUNCTION_ARGS)
{
	CollectionSettings settings = settings_of(PG_GETARG_OID(2));
	ExpiryBounds bounds = ttl_docs_bounds(&settings, ttl_docs_clock());
	Stamp		stamp = ttl_docs_make_stamp(PG_GETARG_DATUM(0), PG_ARGISNULL(0),
											PG_GETARG_DATUM(1), PG_ARGISNULL(1));

	if (ttl_docs_is_expired(&bounds, &stamp))
		ttl_docs_report_expired_upsert();
	PG_RETURN_BOOL(true);
}

void
ttl_docs_report_expired_upsert(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
			 errmsg("could not update a document that expired meanwhile"),
			 errhint("The statement inserts it anew when it is tried again.")));
}

/* The settings of a collection, or an error. */
static CollectionSettings
settings_of(Oid relid)
{
	Collection	collection;

	ttl_docs_require_preload();
	if (!ttl_docs_lookup_collection(relid, &collection))
		ttl_docs_report_no_collection(relid);
	return collection.settings;
}

/* The settings of a collection that judge a query. */
static CollectionSettings
query_settings(LiveQuery *query, Oid relid)
{
	bool		of_transaction = IsolationUsesXactSnapshot() &&
		!ttl_docs_changed_collections();
	KeptSettings **list = of_transaction ? &kept_by_transaction : &query->settings;
	CollectionSettings settings;
	KeptSettings *kept;

	for (kept = *list; kept != NULL; kept = kept->next)
		if (kept->collection == relid)
			return kept->settings;

	/* ttl_docs_prepare_plan() has processed invalidations */
	settings = settings_at(relid, query->snapshot,
						   !query->stmt->parallelModeNeeded && !IsParallelWorker());
	kept = MemoryContextAlloc(of_transaction ? TopTransactionContext :
							  query->estate->es_query_cxt, sizeof(KeptSettings));
	kept->next = *list;
	kept->collection = relid;
	kept->settings = settings;
	*list = kept;
	return settings;
}

/*
 * The settings for code that is called right now, outside of a scan: those that the
 * active snapshot sees.  This backend may not yet have processed the invalidations
 * of what others have committed.
 */
CollectionSettings
ttl_docs_current_settings(Oid relid)
{
	AcceptInvalidationMessages();
	return settings_at(relid, ActiveSnapshotSet() ? GetActiveSnapshot() : NULL, true);
}

/* The settings that a snapshot sees, or an error. */
static CollectionSettings
settings_at(Oid relid, Snapshot snapshot, bool use_cache)
{
	CollectionSettings settings;
	Collection	collection;

	ttl_docs_require_preload();
	if (!ttl_docs_lookup_collection(relid, &collection))
		ttl_docs_report_no_collection(relid);
	if (!ttl_docs_settings_at(collection.root, snapshot, use_cache, &settings))
		ttl_docs_report_later_collection(collection.root);
	return settings;
}

void
ttl_docs_report_later_collection(Oid relid)
{
	ereport(ERROR,
			(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
			 errmsg("could not serialize access because table \"%s\" became part of a collection",
					get_rel_name(relid)),
			 errdetail("The snapshot of this transaction is older than that change."),
			 errhint("The transaction might succeed if retried.")));
}

/* The transaction ends, and its memory with it. */
void
ttl_docs_forget_kept_settings(void)
{
	kept_by_transaction = NULL;
}
