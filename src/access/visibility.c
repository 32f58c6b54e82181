/*-------------------------------------------------------------------------
 *
 * visibility.c
 *		is_live(), the visibility test in every scan of a collection.
 *
 * plan.c puts is_live() into scans.  On its first call in a query, is_live()
 * computes the bounds for the collection from settings, instant and user.
 * After that, each row costs one or two comparisons.  Instant and settings
 * belong to the snapshot of the query (instant.c, collection/cache.c), so all
 * scans and workers of a query compute the same bounds.  A foreign key check
 * is judged at the clock, so it uses the current settings.
 *
 * Settings are kept for as long as the snapshot: by the query or, in
 * REPEATABLE READ and SERIALIZABLE, by the transaction, unless the
 * transaction changes settings itself.  Otherwise, if this backend processed
 * a change of settings between two scans of a query, the second scan could
 * use other settings than the first one.
 *
 * ttl_docs.show_expired and row_security count as they were when the query
 * started: a function that the query calls can change them between two scans.
 *
 * These see expired documents that are still on disk:
 *
 * - a superuser with ttl_docs.show_expired, in SELECT, COPY TO and INSERT ...
 *   SELECT;
 * - the owner of the table or a superuser with row_security = off, in SELECT
 *   and COPY TO, so that a backup is complete (collection/backup.c);
 * - pg_repack when it copies the table (pg_repack.c);
 * - Citus when it moves, splits or converts the table (citus/calls.c,
 *   citus/convert.c);
 * - ALTER TABLE when it checks existing rows against a foreign key, but only
 *   the expired parents (foreign_key.c);
 * - actions of foreign keys.  Another session may be renewing an expired
 *   child, so the action has to wait for the child, as for any other child.
 *   If the child is still expired then, it is deleted with its parent, or
 *   left as it is.
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

/* The state that is_live() computes once for a query */
typedef struct TestState
{
	Oid			collection;
	ExpiryBounds bounds;
	CollectionSettings settings;
	LiveQuery  *foreign_key_check;	/* record here when the row expires */
	TimestampTz instant;		/* judge rows that were written later by */
	ExpiryBounds later_bounds;	/* these bounds; DT_NOEND = there are none */
	bool		is_simple;		/* none of the last three members matters */
} TestState;

/* The settings that a query, or a transaction, uses */
typedef struct KeptSettings
{
	struct KeptSettings *next;
	Oid			collection;
	CollectionSettings settings;
} KeptSettings;

/* In TopTransactionContext; instant.c resets it when the transaction ends */
KeptSettings *ttl_docs_kept_by_transaction = NULL;

static inline Datum test_row(FunctionCallInfo fcinfo, bool is_parent);
static TestState *test_state(FunctionCallInfo fcinfo, Oid collection,
							 bool is_parent);
static void judge_later_rows(TestState *state, TimestampTz instant);
static bool sees_expired(const LiveQuery *query, Oid collection,
						 bool is_parent);
static bool selects_on_conflict(const PlannedStmt *stmt);
pg_noreturn static void report_expired_select(void);
static CollectionSettings latest_settings(Oid relid);
static CollectionSettings settings_for_query(LiveQuery *query, Oid relid);
static CollectionSettings settings_for_snapshot(Oid relid, Snapshot snapshot,
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
 * is_live_parent(ts timestamptz, ttl integer, collection regclass): like
 * is_live(), for the parents in core's query that validates a foreign key.
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
		if (likely(state->is_simple))
			PG_RETURN_BOOL(true);
	}
	else if (ttl_docs_is_expired(&state->bounds, &stamp))
		PG_RETURN_BOOL(false);

	if (unlikely(stamp.ts > state->instant) &&
		ttl_docs_is_expired(&state->later_bounds, &stamp))
		PG_RETURN_BOOL(false);
	if (state->foreign_key_check != NULL)
	{
		LiveQuery  *check = state->foreign_key_check;
		TimestampTz due = ttl_docs_expires_at(&state->settings, &stamp);

		/* the last version of a row counts; with PERIOD, every row counts */
		check->parent_expires = check->needs_all_rows ?
			Min(check->parent_expires, due) : due;
	}
	PG_RETURN_BOOL(true);
}

static TestState *
test_state(FunctionCallInfo fcinfo, Oid collection, bool is_parent)
{
	LiveQuery  *query = ttl_docs_running_query;
	TestState  *state;

	if (PG_ARGISNULL(2))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("collection cannot be null")));
	/* a user may call is_live() for several collections in turn */
	state = fcinfo->flinfo->fn_extra;
	if (state == NULL)
		state = MemoryContextAlloc(fcinfo->flinfo->fn_mcxt, sizeof(TestState));
	memset(state, 0, sizeof(*state));
	state->collection = collection;
	state->instant = DT_NOEND;
	if (sees_expired(query, collection, is_parent))
	{
		state->bounds.written = DT_NOBEGIN;
		state->bounds.due = DT_NOBEGIN;
	}
	else if (query != NULL && query->foreign_key_check)
	{
		state->settings = latest_settings(collection);
		state->bounds = ttl_docs_bounds(&state->settings, query->instant);
		state->foreign_key_check = query;
	}
	else if (query != NULL)
	{
		state->settings = settings_for_query(query, collection);
		state->bounds = ttl_docs_bounds(&state->settings, query->instant);
		judge_later_rows(state, query->instant);
	}
	else
	{
		state->settings = ttl_docs_current_settings(collection);
		state->bounds = ttl_docs_bounds(&state->settings,
										ttl_docs_current_instant());
	}
	state->is_simple = state->foreign_key_check == NULL && state->instant == DT_NOEND;
	fcinfo->flinfo->fn_extra = state;
	return state;
}

/*
 * The instant may come from another node of Citus, on which the transaction
 * began long before it joined this one.  Then judges rows that were written
 * after the instant at the time when the transaction joined: see
 * citus/instant.c.
 */
static void
judge_later_rows(TestState *state, TimestampTz instant)
{
	if (!IsolationUsesXactSnapshot() || !ttl_docs_has_handed_instant() ||
		instant >= ttl_docs_joined_at())
		return;
	state->instant = instant;
	state->later_bounds = ttl_docs_bounds(&state->settings, ttl_docs_joined_at());
}

/* Does this query see expired documents of the collection? */
static bool
sees_expired(const LiveQuery *query, Oid collection, bool is_parent)
{
	CmdType		command;

	if (query == NULL || query->stmt->hasModifyingCTE)
		return false;
	/* wait for a child that another session renews, and do not orphan it */
	if (query->foreign_key_action)
		return true;

	/*
	 * A validation sees expired parents, but not expired children.  Core can
	 * also validate row by row, with the query of a foreign key check, which
	 * reads only the parent.
	 */
	if (query->validates_foreign_key)
		return is_parent || query->foreign_key_check;
	if (query->foreign_key_check)
		return false;
	if (query->repacked == collection && OidIsValid(collection))
		return true;
	command = query->stmt->commandType;
	if (command == CMD_SELECT && OidIsValid(collection) &&
		ttl_docs_copied_shard == collection)
		return true;
	if ((command == CMD_SELECT || command == CMD_INSERT) && ttl_docs_is_filling(collection))
		return true;
	if (query->show_expired && (command == CMD_SELECT || command == CMD_INSERT))
		return true;
	return command == CMD_SELECT && query->stmt->rowMarks == NIL &&
		!query->row_security && ttl_docs_may_act_for_backup(collection);
}

/*
 * require_live(ts timestamptz, ttl integer, collection regclass): returns
 * true or raises a serialization failure.  plan.c puts the call in front of
 * the WHERE of ON CONFLICT DO UPDATE and DO SELECT.  The INSERT is a write, so
 * the document that it conflicts with is judged at the clock.
 */
Datum
ttl_docs_require_live(PG_FUNCTION_ARGS)
{
	CollectionSettings settings = latest_settings(PG_GETARG_OID(2));
	ExpiryBounds bounds = ttl_docs_bounds(&settings, ttl_docs_clock());
	Stamp		stamp = ttl_docs_make_stamp(PG_GETARG_DATUM(0), PG_ARGISNULL(0),
											PG_GETARG_DATUM(1), PG_ARGISNULL(1));

	if (ttl_docs_is_expired(&bounds, &stamp))
	{
		if (selects_on_conflict(ttl_docs_running_stmt()))
			report_expired_select();
		ttl_docs_report_expired_upsert();
	}
	PG_RETURN_BOOL(true);
}

/*
 * Does a statement have ON CONFLICT DO SELECT, and no DO UPDATE?  If it has both,
 * we do not know which of them found the document.
 */
static bool
selects_on_conflict(const PlannedStmt *stmt)
{
	bool		selects = false;
	List	   *plans;
	ListCell   *lc;

	if (stmt == NULL)
		return false;
	/* data-modifying CTEs are subplans, with ModifyTable at their top */
	plans = lcons(stmt->planTree, list_copy(stmt->subplans));
	foreach(lc, plans)
	{
		ModifyTable *modify = (ModifyTable *) lfirst(lc);

		if (modify == NULL || !IsA(modify, ModifyTable))
			continue;
		if (modify->onConflictAction == ONCONFLICT_UPDATE)
			return false;
		selects |= compat_selects_on_conflict(modify);
	}
	return selects;
}

static void
report_expired_select(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
			 errmsg("could not select a document that expired meanwhile"),
			 errhint("Retry the transaction. The expired document is then absent, and ON CONFLICT inserts the new one.")));
}

void
ttl_docs_report_expired_upsert(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
			 errmsg("could not update a document that expired meanwhile"),
			 errhint("Retry the transaction. The expired document is then absent, and an upsert inserts a new one.")));
}

/* The latest settings; raises an error if the table is not a collection. */
static CollectionSettings
latest_settings(Oid relid)
{
	Collection	collection;

	ttl_docs_require_preload();
	if (!ttl_docs_lookup_collection(relid, &collection))
		ttl_docs_report_no_collection(relid);
	return collection.settings;
}

/* The settings by which a query judges a collection. */
static CollectionSettings
settings_for_query(LiveQuery *query, Oid relid)
{
	bool		of_transaction = IsolationUsesXactSnapshot() &&
		!ttl_docs_changed_collections();
	KeptSettings **list = of_transaction ? &ttl_docs_kept_by_transaction : &query->settings;
	CollectionSettings settings;
	KeptSettings *kept;

	for (kept = *list; kept != NULL; kept = kept->next)
		if (kept->collection == relid)
			return kept->settings;

	/* ttl_docs_prepare_plan() has processed invalidations already */
	settings = settings_for_snapshot(relid, query->snapshot,
									 !query->stmt->parallelModeNeeded &&
									 !IsParallelWorker());
	kept = MemoryContextAlloc(of_transaction ? TopTransactionContext :
							  query->estate->es_query_cxt, sizeof(KeptSettings));
	kept->next = *list;
	kept->collection = relid;
	kept->settings = settings;
	*list = kept;
	return settings;
}

/*
 * The settings for code that is called now, outside of a scan: those that the
 * active snapshot sees.  Invalidations are processed first, because this
 * backend may not have seen the latest commits of others yet.
 */
CollectionSettings
ttl_docs_current_settings(Oid relid)
{
	AcceptInvalidationMessages();
	return settings_for_snapshot(relid, ActiveSnapshotSet() ? GetActiveSnapshot() : NULL,
								 true);
}

/* The settings that a snapshot sees; an error if it sees no collection. */
static CollectionSettings
settings_for_snapshot(Oid relid, Snapshot snapshot, bool use_cache)
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
