/*-------------------------------------------------------------------------
 *
 * node_stats.c
 *		The statistics of distributed tables of Citus, over all nodes.
 *
 * Each node purges its own shards, and has their statistics in its shared memory.
 * node_stats() returns them as a JSON object.  The views ask all nodes for it:
 *
 * - stat_shards has a row for each shard on each node.
 * - stat_collections has one row for each distributed table, with the sums over the
 *   shards that are in use.  Its state is the most severe one.
 *
 * A query asks the nodes once, for all distributed tables, and keeps the answers for
 * CACHE_TIME.
 *
 * A node that does not answer appears in the state and in the hint, and numbers that
 * depend on its documents are unknown.
 *
 * Documents expire by the clock of the node that has them, so the clocks should agree.
 * A node sends its clock with its answer.  The clock was read after the question was
 * sent and before the answer came.  If it is more than a second outside of this period,
 * the hint names the node.  Clocks are those of the purge: the clock of the server with
 * its ttl_docs.clock_offset, not that of a session.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/json.h"
#include "utils/memutils.h"
#include "utils/tuplestore.h"

#include "purge/purge_internal.h"

PG_FUNCTION_INFO_V1(ttl_docs_node_stats);
PG_FUNCTION_INFO_V1(ttl_docs_shard_stats);

#define CACHE_TIME		USECS_PER_SEC
#define MAX_CLOCK_ERROR	USECS_PER_SEC

/* columns of stat_shards before estimated_backlog */
#define SHARD_COLUMNS	4

/* A shard on some node */
typedef struct ShardStats
{
	char	   *collection;		/* qualified and quoted */
	char	   *shard;
	bool		is_in_use;
	ShownStats	stats;
} ShardStats;

/* The answer of a node */
typedef struct NodeStats
{
	char	   *node;
	char	   *failure;		/* NULL if it has answered */
	int64		clock_error;	/* microseconds that its clock is ahead; 0 = it may be
								 * right */
	List	   *shards;			/* of ShardStats */
} NodeStats;

/* The answers of all nodes */
typedef struct NodeStatsCache
{
	MemoryContext context;
	int64		asked_at;		/* elapsed time */
	List	   *nodes;			/* of NodeStats */
} NodeStatsCache;

static void print_shard(StringInfo json, Oid shard);
static TimestampTz purge_clock(void);
static List *ask_nodes(void);
static NodeStats *read_node(const NodeAnswer *answer, TimestampTz sent,
							TimestampTz received);
static int64 clock_error(TimestampTz clock, TimestampTz sent, TimestampTz received);
static ShardStats *read_shard(JsonbContainer *json);
static List *cached_nodes(FmgrInfo *flinfo);
static void add_shard(ShownStats *sum, const char *node, const ShownStats *stats);
static void add_to_hint(StringInfo hint, const NodeStats *node);
static void put_shard(ReturnSetInfo *rsinfo, const NodeStats *node,
					  const ShardStats *shard);

/* ---- Each node ---- */

/*
 * node_stats(): the statistics of all shards on this node.
 */
Datum
ttl_docs_node_stats(PG_FUNCTION_ARGS)
{
	StringInfoData json;
	const char *separator = "";
	ListCell   *lc;

	ttl_docs_require_preload();
	initStringInfo(&json);
	appendStringInfo(&json, "{\"clock\": " INT64_FORMAT ", \"shards\": [", purge_clock());
	foreach(lc, ttl_docs_all_collections())
	{
		Collection	collection;

		if (!ttl_docs_is_shard(lfirst_oid(lc)) ||
			!ttl_docs_lookup_collection(lfirst_oid(lc), &collection) ||
			!collection.settings.citus)
			continue;
		appendStringInfoString(&json, separator);
		print_shard(&json, lfirst_oid(lc));
		separator = ", ";
	}
	appendStringInfoString(&json, "]}");
	PG_RETURN_TEXT_P(cstring_to_text_with_len(json.data, json.len));
}

static void
print_shard(StringInfo json, Oid shard)
{
	int64		number;
	Oid			shell = ttl_docs_shell_of_shard(shard, &number);
	bool		is_in_use = ttl_docs_is_shard_in_use(shard, &number);
	ShownStats	stats;

	ttl_docs_get_stats(shard, OidIsValid(shell) ? shell : shard, &stats);
	/* the background purge may not have noticed it yet */
	if (!is_in_use)
		stats.state = ttl_docs_purge_state_name(PURGE_MOVING);
	appendStringInfoString(json, "{\"shard\": ");
	escape_json(json, ttl_docs_quoted_name(shard));
	ttl_docs_append_text(json, "collection",
						 OidIsValid(shell) ? ttl_docs_quoted_name(shell) : NULL);
	ttl_docs_append_flag(json, "in_use", is_in_use);
	ttl_docs_append_text(json, "state", stats.state);
	ttl_docs_append_text(json, "hint", stats.hint);
	ttl_docs_append_flag(json, "uncounted", stats.is_uncounted);
	ttl_docs_append_integer(json, "backlog", stats.backlog);
	ttl_docs_append_integer(json, "sized_backlog", stats.sized_backlog);
	ttl_docs_append_integer(json, "bytes", (int64) stats.bytes);
	ttl_docs_append_integer(json, "overdue", stats.overdue);
	ttl_docs_append_integer(json, "purged", stats.purged);
	ttl_docs_append_integer(json, "batches", stats.batches);
	ttl_docs_append_integer(json, "truncations", stats.truncations);
	ttl_docs_append_integer(json, "truncated", stats.truncated);
	ttl_docs_append_integer(json, "last_purge", stats.last_purge);
	ttl_docs_append_integer(json, "undeletable", stats.undeletable);
	ttl_docs_append_text(json, "error", stats.error);
	ttl_docs_append_integer(json, "error_at", stats.error_at);
	appendStringInfoChar(json, '}');
}

/* The clock of the purge on this node. */
static TimestampTz
purge_clock(void)
{
	return ttl_docs_server_clock() +
		(int64) ttl_docs_purge_shared->clock_offset * USECS_PER_SEC;
}

/* ---- The node that asks ---- */

/* Asks all nodes for their statistics.  Returns a list of NodeStats. */
static List *
ask_nodes(void)
{
	TimestampTz sent = purge_clock();
	List	   *answers = ttl_docs_ask_all_nodes("SELECT " TTL_DOCS_INTERNAL ".node_stats()");
	TimestampTz received = purge_clock();
	List	   *nodes = NIL;
	ListCell   *lc;

	foreach(lc, answers)
		nodes = lappend(nodes, read_node(lfirst(lc), sent, received));
	return nodes;
}

static NodeStats *
read_node(const NodeAnswer *answer, TimestampTz sent, TimestampTz received)
{
	NodeStats  *node = palloc0(sizeof(NodeStats));
	JsonbContainer *json;
	ListCell   *lc;

	node->node = answer->node;
	if (!answer->succeeded)
	{
		node->failure = answer->text != NULL ? answer->text : "there was no answer";
		return node;
	}
	json = ttl_docs_parse_answer(answer);
	node->clock_error = clock_error(ttl_docs_answer_integer(json, "clock"), sent,
									received);
	foreach(lc, ttl_docs_answer_objects(json, "shards"))
		node->shards = lappend(node->shards, read_shard(lfirst(lc)));
	return node;
}

/* How far is a clock outside of the period in which it was read? */
static int64
clock_error(TimestampTz clock, TimestampTz sent, TimestampTz received)
{
	if (clock > received + MAX_CLOCK_ERROR)
		return clock - received;
	if (clock < sent - MAX_CLOCK_ERROR)
		return clock - sent;
	return 0;
}

static ShardStats *
read_shard(JsonbContainer *json)
{
	ShardStats *shard = palloc0(sizeof(ShardStats));
	ShownStats *stats = &shard->stats;

	shard->collection = ttl_docs_answer_text(json, "collection");
	shard->shard = ttl_docs_answer_text(json, "shard");
	shard->is_in_use = ttl_docs_answer_flag(json, "in_use");
	stats->state = ttl_docs_answer_text(json, "state");
	if (stats->state == NULL)
		stats->state = "idle";
	stats->hint = ttl_docs_answer_text(json, "hint");
	stats->is_uncounted = ttl_docs_answer_flag(json, "uncounted");
	stats->backlog = ttl_docs_answer_integer(json, "backlog");
	stats->sized_backlog = ttl_docs_answer_integer(json, "sized_backlog");
	stats->bytes = ttl_docs_answer_integer(json, "bytes");
	stats->overdue = ttl_docs_answer_integer(json, "overdue");
	stats->purged = ttl_docs_answer_integer(json, "purged");
	stats->batches = ttl_docs_answer_integer(json, "batches");
	stats->truncations = ttl_docs_answer_integer(json, "truncations");
	stats->truncated = ttl_docs_answer_integer(json, "truncated");
	stats->last_purge = ttl_docs_answer_integer(json, "last_purge");
	stats->undeletable = ttl_docs_answer_integer(json, "undeletable");
	stats->error = ttl_docs_answer_text(json, "error");
	stats->error_at = ttl_docs_answer_integer(json, "error_at");
	return shard;
}

/* The answers of all nodes, from an earlier call in the same query if possible. */
static List *
cached_nodes(FmgrInfo *flinfo)
{
	NodeStatsCache *cache = flinfo->fn_extra;
	MemoryContext caller;

	if (cache != NULL && ttl_docs_elapsed() < cache->asked_at + CACHE_TIME)
		return cache->nodes;
	if (cache == NULL)
	{
		cache = MemoryContextAllocZero(flinfo->fn_mcxt, sizeof(NodeStatsCache));
		cache->context = AllocSetContextCreate(flinfo->fn_mcxt, "ttl_docs node stats",
											   ALLOCSET_DEFAULT_SIZES);
		flinfo->fn_extra = cache;
	}
	cache->nodes = NIL;
	cache->asked_at = 0;
	MemoryContextReset(cache->context);
	caller = MemoryContextSwitchTo(cache->context);
	cache->nodes = ask_nodes();
	cache->asked_at = ttl_docs_elapsed();
	MemoryContextSwitchTo(caller);
	return cache->nodes;
}

/* ---- stat_collections ---- */

/* Adds up the statistics of a distributed table. */
void
ttl_docs_sum_nodes(FmgrInfo *flinfo, Oid shell, ShownStats *sum)
{
	char	   *name = ttl_docs_quoted_name(shell);
	StringInfoData hint;
	ListCell   *lc;

	memset(sum, 0, sizeof(*sum));
	sum->state = "idle";
	sum->overdue = -1;
	sum->last_purge = sum->error_at = DT_NOBEGIN;
	initStringInfo(&hint);
	foreach(lc, cached_nodes(flinfo))
	{
		NodeStats  *node = lfirst(lc);
		ListCell   *cell;

		add_to_hint(&hint, node);
		if (node->failure != NULL)
		{
			sum->state = STATE_UNREACHABLE;
			sum->hint = NULL;
			sum->is_uncounted = true;
		}
		foreach(cell, node->shards)
		{
			ShardStats *shard = lfirst(cell);

			if (shard->is_in_use && shard->collection != NULL &&
				strcmp(shard->collection, name) == 0)
				add_shard(sum, node->node, &shard->stats);
		}
	}
	if (sum->hint != NULL)
		appendStringInfo(&hint, "%s%s", hint.len > 0 ? " " : "", sum->hint);
	sum->hint = hint.len > 0 ? hint.data : NULL;
}

static void
add_shard(ShownStats *sum, const char *node, const ShownStats *stats)
{
	int			severity = ttl_docs_state_severity(stats->state);
	int			most_severe = ttl_docs_state_severity(sum->state);

	if (severity > most_severe || (severity == most_severe && sum->hint == NULL))
	{
		sum->state = stats->state;
		sum->hint = stats->hint == NULL || ttl_docs_is_state_of_settings(stats->state) ?
			stats->hint : psprintf("Node %s: %s", node, stats->hint);
	}
	sum->is_uncounted |= stats->is_uncounted;
	sum->backlog += stats->backlog;
	sum->sized_backlog += stats->sized_backlog;
	sum->bytes += stats->bytes;
	sum->overdue = Max(sum->overdue, stats->overdue);
	sum->purged += stats->purged;
	sum->batches += stats->batches;
	sum->truncations += stats->truncations;
	sum->truncated += stats->truncated;
	sum->last_purge = Max(sum->last_purge, stats->last_purge);
	sum->undeletable += stats->undeletable;
	if (stats->error != NULL && stats->error_at > sum->error_at)
	{
		sum->error = psprintf("node %s: %s", node, stats->error);
		sum->error_at = stats->error_at;
	}
}

/* Adds sentences about a node that has not answered, or whose clock is wrong. */
static void
add_to_hint(StringInfo hint, const NodeStats *node)
{
	const char *separator = hint->len > 0 ? " " : "";

	if (node->failure != NULL)
		appendStringInfo(hint, "%sNode %s did not answer, so its documents are not counted. The error was: %s.",
						 separator, node->node, node->failure);
	else if (node->clock_error > 0)
		appendStringInfo(hint, "%sThe clock of node %s is %s ahead of the clock of this node. Documents expire earlier there. Synchronize the clocks.",
						 separator, node->node, ttl_docs_period(node->clock_error));
	else if (node->clock_error < 0)
		appendStringInfo(hint, "%sThe clock of node %s is %s behind the clock of this node. Documents expire later there. Synchronize the clocks.",
						 separator, node->node, ttl_docs_period(-node->clock_error));
}

/* ---- stat_shards ---- */

/*
 * shard_stats(): the rows of the view stat_shards
 */
Datum
ttl_docs_shard_stats(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	ListCell   *lc;

	ttl_docs_require_preload();
	InitMaterializedSRF(fcinfo, 0);
	if (!ttl_docs_has_citus())
		PG_RETURN_NULL();
	foreach(lc, ask_nodes())
	{
		NodeStats  *node = lfirst(lc);
		ListCell   *cell;

		if (node->failure != NULL)
			put_shard(rsinfo, node, NULL);
		foreach(cell, node->shards)
			put_shard(rsinfo, node, lfirst(cell));
	}
	PG_RETURN_NULL();
}

/* Puts out the row of a shard, or of a node that has not answered. */
static void
put_shard(ReturnSetInfo *rsinfo, const NodeStats *node, const ShardStats *shard)
{
	Datum		values[SHARD_COLUMNS + STATS_NUMBERS] = {0};
	bool		nulls[SHARD_COLUMNS + STATS_NUMBERS] = {0};
	Oid			collection = InvalidOid;

	if (shard != NULL && shard->collection != NULL)
		collection = ttl_docs_find_table(shard->collection, true);
	nulls[0] = !OidIsValid(collection);
	values[0] = ObjectIdGetDatum(collection);
	values[1] = CStringGetTextDatum(node->node);
	if (shard != NULL)
	{
		values[2] = CStringGetTextDatum(shard->shard);
		values[3] = CStringGetTextDatum(shard->stats.state);
		ttl_docs_set_numbers(&shard->stats, values + SHARD_COLUMNS,
							 nulls + SHARD_COLUMNS);
	}
	else
	{
		values[3] = CStringGetTextDatum(STATE_UNREACHABLE);
		memset(nulls + SHARD_COLUMNS, true, STATS_NUMBERS);
		nulls[2] = true;
		nulls[SHARD_COLUMNS + STATS_LAST_ERROR] = false;
		values[SHARD_COLUMNS + STATS_LAST_ERROR] = CStringGetTextDatum(node->failure);
	}
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
}
