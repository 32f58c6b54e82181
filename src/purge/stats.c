/*-------------------------------------------------------------------------
 *
 * stats.c
 *		The view stat_collections.
 *
 * collection_stats() adds up the statistics of the tables of a collection in shared
 * memory, and reads the current settings.  It reads no documents.  Sizes come from
 * pg_class, so it opens no table and waits for no lock.
 *
 * node_stats.c has the statistics of distributed tables of Citus.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "access/htup_details.h"
#include "access/xlog.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_class.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "purge/purge_internal.h"

PG_FUNCTION_INFO_V1(ttl_docs_collection_stats);

#define STATS_COLUMNS		13

/* The sums of the tables of a collection */
typedef struct CollectionStats
{
	PurgeState	state;
	bool		has_unplaced;	/* tables without an entry are not counted here */
	int64		backlog;
	int64		sized_backlog;	/* backlog of the tables whose size is known */
	double		bytes;			/* size of sized_backlog */
	TimestampTz oldest;
	int64		purged;
	int64		batches;
	int64		truncations;
	int64		truncated;
	TimestampTz last_purge;
	int64		undeletable;
	bool		has_error;
	ShownError	error;
	TimestampTz error_at;
} CollectionStats;

static CollectionStats sum_stats(Oid root);
static void add_bytes(CollectionStats *sum, Oid relid, int64 backlog);
static double known_size(Oid relid, double *rows, Oid *toast);
static const char *state_of(Oid root, Oid named, const CollectionStats *stats,
							const char **hint);
static bool may_see_errors(Oid root);
static const char *error_with_detail(const ShownError *error);

/*
 * collection_stats(collection regclass): a row of the view stat_collections
 */
Datum
ttl_docs_collection_stats(PG_FUNCTION_ARGS)
{
	Oid			root = PG_GETARG_OID(0);
	TupleDesc	tupdesc;
	Datum		values[STATS_COLUMNS];
	bool		nulls[STATS_COLUMNS] = {0};
	ShownStats	stats;

	ttl_docs_require_preload();
	if (get_call_result_type(fcinfo, NULL, &tupdesc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	if (!ttl_docs_has_own_label(root))
		PG_RETURN_NULL();
	if (ttl_docs_is_shell(root))
		ttl_docs_sum_nodes(fcinfo->flinfo, root, &stats);
	else
		ttl_docs_get_stats(root, root, &stats);

	values[0] = CStringGetTextDatum(stats.state);
	nulls[1] = stats.hint == NULL;
	values[1] = stats.hint != NULL ? CStringGetTextDatum(stats.hint) : (Datum) 0;
	ttl_docs_set_numbers(&stats, values + 2, nulls + 2);
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(tupdesc),
													  values, nulls)));
}

/* Sets the columns from estimated_backlog on. */
void
ttl_docs_set_numbers(const ShownStats *stats, Datum *values, bool *nulls)
{
	nulls[0] = stats->is_uncounted;
	values[0] = Int64GetDatum(stats->backlog);
	nulls[1] = stats->is_uncounted || (stats->backlog > 0 && stats->sized_backlog == 0);
	values[1] = Int64GetDatum(stats->sized_backlog == 0 ? 0 :
							  (int64) rint(stats->bytes * stats->backlog /
										   stats->sized_backlog));
	nulls[2] = stats->is_uncounted || stats->overdue < 0;
	values[2] = nulls[2] ? (Datum) 0 :
		DirectFunctionCall2(timestamp_mi, TimestampGetDatum(stats->overdue),
							TimestampGetDatum(0));
	values[3] = Int64GetDatum(stats->purged);
	values[4] = Int64GetDatum(stats->batches);
	values[5] = Int64GetDatum(stats->truncations);
	values[6] = Int64GetDatum(stats->truncated);
	nulls[7] = stats->last_purge == DT_NOBEGIN;
	values[7] = TimestampTzGetDatum(stats->last_purge);
	values[8] = Int64GetDatum(stats->undeletable);
	nulls[STATS_LAST_ERROR] = stats->error == NULL;
	values[STATS_LAST_ERROR] = stats->error == NULL ? (Datum) 0 :
		CStringGetTextDatum(stats->error);
	nulls[10] = stats->error == NULL || stats->error_at == DT_NOBEGIN;
	values[10] = TimestampTzGetDatum(stats->error_at);
}

/*
 * Gets the statistics of a collection.  For a shard, "named" is its distributed
 * table: hints name that table.
 */
void
ttl_docs_get_stats(Oid root, Oid named, ShownStats *stats)
{
	CollectionStats sum = sum_stats(root);
	bool		shows_error = sum.has_error && may_see_errors(root);

	memset(stats, 0, sizeof(*stats));
	stats->state = state_of(root, named, &sum, &stats->hint);
	stats->is_uncounted = sum.has_unplaced;
	stats->backlog = sum.backlog;
	stats->sized_backlog = sum.sized_backlog;
	stats->bytes = sum.bytes;
	stats->overdue = sum.oldest == DT_NOEND || sum.backlog == 0 ? -1 :
		Max(ttl_docs_clock() - sum.oldest, 0);
	stats->purged = sum.purged;
	stats->batches = sum.batches;
	stats->truncations = sum.truncations;
	stats->truncated = sum.truncated;
	stats->last_purge = sum.last_purge;
	stats->undeletable = sum.undeletable;
	stats->error = shows_error ? error_with_detail(&sum.error) : NULL;
	stats->error_at = sum.error_at;
}

/* Adds up the entries of the tables of a collection. */
static CollectionStats
sum_stats(Oid root)
{
	CollectionStats sum = {0};
	List	   *tables = ttl_docs_collection_tables(root);
	ListCell   *lc;

	sum.oldest = DT_NOEND;
	sum.last_purge = DT_NOBEGIN;
	sum.error_at = DT_NOBEGIN;
	foreach(lc, tables)
	{
		PurgeTable *table = ttl_docs_purge_table(lfirst_oid(lc), root);
		int64		backlog;

		if (table == NULL)
		{
			sum.has_unplaced = true;
			continue;
		}
		LWLockAcquire(ttl_docs_purge_shared->lock, LW_SHARED);
		sum.state = Max(sum.state, table->state);
		backlog = table->backlog;
		sum.backlog += backlog;
		sum.oldest = Min(sum.oldest, table->oldest);
		sum.purged += table->purged;
		sum.batches += table->batches;
		sum.truncations += table->truncations;
		sum.truncated += table->truncated;
		sum.last_purge = Max(sum.last_purge, table->last_purge);
		sum.undeletable += table->quarantined + table->undeletable;
		if (table->has_error && table->error_at > sum.error_at)
		{
			sum.has_error = true;
			sum.error = table->error;
			sum.error_at = table->error_at;
		}
		LWLockRelease(ttl_docs_purge_shared->lock);
		if (backlog > 0)
			add_bytes(&sum, lfirst_oid(lc), backlog);
	}
	return sum;
}

/*
 * Adds the disk space that the backlog of a table takes: its share of the rows,
 * times the size of the table and its TOAST table.
 */
static void
add_bytes(CollectionStats *sum, Oid relid, int64 backlog)
{
	double		rows = 0;
	Oid			toast = InvalidOid;
	double		size = known_size(relid, &rows, &toast);

	/* unknown until the first VACUUM, ANALYZE or CREATE INDEX */
	if (rows <= 0)
		return;
	if (OidIsValid(toast))
		size += known_size(toast, NULL, NULL);
	sum->bytes += backlog * size / rows;
	sum->sized_backlog += backlog;
}

/* The size of a table in bytes, and its number of rows, from pg_class. */
static double
known_size(Oid relid, double *rows, Oid *toast)
{
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relid));
	Form_pg_class form;
	double		size;

	if (!HeapTupleIsValid(tuple))
		return 0;
	form = (Form_pg_class) GETSTRUCT(tuple);
	size = (double) form->relpages * BLCKSZ;
	if (rows != NULL)
		*rows = form->reltuples;
	if (toast != NULL)
		*toast = form->reltoastrelid;
	ReleaseSysCache(tuple);
	return size;
}

/*
 * The state of the purge of a collection, and its hint.  Holds by the settings are
 * current.  All other states are as the last pass found them.
 */
static const char *
state_of(Oid root, Oid named, const CollectionStats *stats, const char **hint)
{
	Collection	collection;
	PurgeDatabase *database = ttl_docs_purge_database(MyDatabaseId, false);
	PurgeState	state = stats->state;
	PurgeState	hold;

	*hint = NULL;
	if (RecoveryInProgress())
	{
		*hint = "The primary server purges this collection.";
		return "standby";
	}
	if (!ttl_docs_lookup_collection(root, &collection))
		return "gone";
	hold = ttl_docs_state_of_hold(ttl_docs_settings_hold(root, &collection.settings));
	/* the settings may have changed since the last pass */
	if (PURGE_IS_HOLD(hold))
		state = hold;
	else if (state == PURGE_PAUSED || state == PURGE_RESTORED || state == PURGE_GRACE)
		state = PURGE_IDLE;
	if (ttl_docs_purge_shared->launcher_pid == 0 && !PURGE_IS_HOLD(state))
	{
		*hint = "The launcher is not running. After an error it restarts within seconds. If it does not restart, raise max_worker_processes and restart the server. CALL ttl_docs.purge() works without the launcher.";
		return "no launcher";
	}
	if (ttl_docs_purge_shared->lacks_worker_slot && !PURGE_IS_HOLD(state))
	{
		*hint = "All background worker slots are in use. Raise max_worker_processes and restart the server. CALL ttl_docs.purge() works without a worker.";
		return "no worker";
	}
	if (database != NULL && !PURGE_IS_HOLD(state) &&
		pg_atomic_read_u64(&database->off_epoch) != 0)
	{
		*hint = "Set ttl_docs.purge to on, for the server and for this database, and default_transaction_read_only to off.";
		return "disabled";
	}
	*hint = ttl_docs_purge_state_hint(state, named);
	if (state == PURGE_IDLE && stats->undeletable > 0)
		*hint = psprintf("Some documents could not be deleted; see last_error. The purge retries them later. To retry now: SELECT ttl_docs.resume_purge(%s).",
						 ttl_docs_quoted_literal(named));
	if (state == PURGE_IDLE && stats->has_unplaced)
	{
		*hint = "Shared memory has no room for all tables of this server. Some tables of this collection are purged once a minute or less often, and are not counted in this view. Raise ttl_docs.max_tables and restart the server, or use fewer partitions.";
		return "uncounted";
	}
	if (state == PURGE_IDLE && !collection.settings.on)
	{
		if (*hint == NULL)
			*hint = "Nothing expires, and \"ttl\" in documents is ignored. Turn TTL on with ttl_docs.set_default_ttl().";
		return "off";
	}
	return ttl_docs_purge_state_name(state);
}

/* May the user see errors?  Errors of triggers may contain parts of documents. */
static bool
may_see_errors(Oid root)
{
	return has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS) ||
		compat_table_ownercheck(root, GetUserId());
}

/* An error as last_error shows it. */
static const char *
error_with_detail(const ShownError *error)
{
	if (error->detail[0] == '\0')
		return pstrdup(error->message);
	return psprintf("%s\nDETAIL:  %s", error->message, error->detail);
}
