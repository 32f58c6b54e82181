/*-------------------------------------------------------------------------
 *
 * call_nodes.c
 *		CALL purge() of a distributed table of Citus.
 *
 * The documents are in shards, on several nodes.  CALL purge() on any node calls
 * purge_shards() on all nodes, at the same time.  Citus opens the sessions, as the
 * user who calls.  Each session purges the shards that are in use on its node, as
 * CALL purge() does with a local collection: it commits each batch, and waits for
 * locks on tables.  The user must own the distributed table on each node.
 *
 * All nodes delete the documents that had expired when CALL purge() began.  A node
 * whose clock is behind deletes only those that have expired by its own clock.
 *
 * Rounds.  A call of purge_shards() ends after ROUND_TIME, so that the session of the
 * user does not keep its snapshot for the whole purge, can report progress, and
 * notices when the user cancels.  If a node is not done, its answer has the position
 * that it has reached.  The next round sends the positions of all nodes to all nodes.
 * Each node recognises its own position by the number of its group of nodes.  A node
 * that has no position in the list is done.  So each document is tried once, even if
 * it cannot be deleted.
 *
 * A node that fails, or that cannot be reached, gets a WARNING.  The others continue.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#include "purge/purge_internal.h"

PG_FUNCTION_INFO_V1(ttl_docs_purge_shards);

/* duration of a round, in milliseconds */
#define ROUND_TIME	3000

/* A purge of a distributed table, in rounds */
typedef struct NodesPurge
{
	PurgeCall  *call;
	char	   *shell;			/* its name as a literal */
	char	   *name;			/* the same for messages */
	PurgeResult result;
	StringInfoData positions;	/* of the nodes that are not done */
	List	   *failed;			/* names of nodes */
} NodesPurge;

static void make_round(NodesPurge *purge, const char *positions);
static void add_failure(NodesPurge *purge, const NodeAnswer *answer);
static void add_answer(NodesPurge *purge, const NodeAnswer *answer);
static void add_error(PurgeResult *result, const char *node, JsonbContainer *json);
static void purge_shards_here(PurgeCall *call, Oid shell,
							  const PassPosition *continues_at, PurgeResult *result);
static List *tables_of_shards(Oid shell, Oid first);
static bool find_position(const char *positions, PassPosition *position);
static char *print_result(const PurgeResult *result);
static void print_position(StringInfo buf, const PassPosition *position);
static bool parse_position(const char *text, PassPosition *position);

/* ---- The node that asks ---- */

/* Purges a distributed table, and reports the result.  The call commits. */
void
ttl_docs_purge_on_all_nodes(PurgeCall *call, Oid shell)
{
	MemoryContext caller = MemoryContextSwitchTo(call->context);
	NodesPurge	purge = {.call = call};
	char	   *positions = NULL;

	/* another session may have dropped it since the last commit */
	purge.name = get_rel_name(shell);
	if (purge.name == NULL || !compat_table_ownercheck(shell, GetUserId()))
	{
		MemoryContextSwitchTo(caller);
		return;
	}
	purge.shell = ttl_docs_quoted_literal(shell);
	initStringInfo(&purge.positions);
	do
	{
		make_round(&purge, positions);
		positions = pstrdup(purge.positions.data);
		SPI_commit();
		MemoryContextSwitchTo(call->context);
		if (positions[0] != '\0' && ttl_docs_is_time_for_progress(call))
			ereport(NOTICE,
					(errmsg("purging %s: %lld documents so far", purge.name,
							(long long) purge.result.deleted)));
	} while (positions[0] != '\0');
	MemoryContextSwitchTo(caller);
	call->has_reported |= purge.failed != NIL;
	ttl_docs_report_purge(call, shell, purge.name, &purge.result);
}

/*
 * Lets all nodes purge for a while.  positions is NULL in the first round.  Collects
 * the results, and the positions for the next round.
 */
static void
make_round(NodesPurge *purge, const char *positions)
{
	char	   *sql = psprintf("CALL " TTL_DOCS_INTERNAL ".purge_shards(%s, "
							   INT64_FORMAT ", %s, %d, NULL)", purge->shell,
							   (int64) purge->call->instant,
							   positions == NULL ? "NULL" : quote_literal_cstr(positions),
							   ROUND_TIME);
	List	   *answers = ttl_docs_ask_all_nodes(sql);
	ListCell   *lc;

	resetStringInfo(&purge->positions);
	foreach(lc, answers)
	{
		NodeAnswer *answer = lfirst(lc);

		if (answer->succeeded)
			add_answer(purge, answer);
		else
			add_failure(purge, answer);
	}
}

/* Warns once for each node. */
static void
add_failure(NodesPurge *purge, const NodeAnswer *answer)
{
	ListCell   *lc;

	foreach(lc, purge->failed)
		if (strcmp(lfirst(lc), answer->node) == 0)
			return;
	purge->failed = lappend(purge->failed, answer->node);
	ereport(WARNING,
			(errcode(ERRCODE_CONNECTION_FAILURE),
			 errmsg("node %s of Citus did not purge \"%s\"", answer->node, purge->name),
			 errdetail("%s", answer->text != NULL ? answer->text : "There was no answer."),
			 errhint("When the node is up, its background workers purge its documents.")));
}

static void
add_answer(NodesPurge *purge, const NodeAnswer *answer)
{
	PurgeResult *result = &purge->result;
	JsonbContainer *json = ttl_docs_parse_answer(answer);
	char	   *state = ttl_docs_answer_text(json, "state");
	char	   *position = ttl_docs_answer_text(json, "position");

	result->deleted += ttl_docs_answer_integer(json, "deleted");
	result->undeletable += ttl_docs_answer_integer(json, "undeletable");
	result->found_busy |= ttl_docs_answer_flag(json, "busy");
	result->found_others |= ttl_docs_answer_flag(json, "others");
	if (state != NULL)
	{
		result->state = ttl_docs_purge_state_named(state);
		result->detail = ttl_docs_answer_text(json, "detail");
	}
	add_error(result, answer->node, json);
	if (position != NULL)
		appendStringInfo(&purge->positions, "%s%s", purge->positions.len > 0 ? "," : "",
						 position);
}

static void
add_error(PurgeResult *result, const char *node, JsonbContainer *json)
{
	char	   *message = ttl_docs_answer_text(json, "message");
	char	   *sqlstate = ttl_docs_answer_text(json, "sqlstate");

	if (message == NULL || sqlstate == NULL || strlen(sqlstate) != 5)
		return;
	result->has_error = true;
	result->error_node = pstrdup(node);
	ttl_docs_make_error(&result->error,
						MAKE_SQLSTATE(sqlstate[0], sqlstate[1], sqlstate[2],
									  sqlstate[3], sqlstate[4]),
						message, ttl_docs_answer_text(json, "error_detail"));
}

/* ---- Each node ---- */

/*
 * purge_shards(collection text, instant bigint, positions text, milliseconds integer)
 *
 * Purges the shards of a distributed table that are in use on this node.
 */
Datum
ttl_docs_purge_shards(PG_FUNCTION_ARGS)
{
	PurgeCall	call;
	PurgeResult result = {0};
	PassPosition position;
	TupleDesc	tupdesc;
	MemoryContext caller = CurrentMemoryContext;
	bool		is_first = PG_ARGISNULL(2);
	bool		isnull = false;
	Datum		answer;
	Oid			shell;

	if (PG_ARGISNULL(0) || PG_ARGISNULL(1) || PG_ARGISNULL(3))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("only positions can be null")));
	if (get_call_result_type(fcinfo, NULL, &tupdesc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	ttl_docs_begin_purge_call(fcinfo, &call);
	call.instant = Min(call.instant, PG_GETARG_INT64(1));
	call.deadline = ttl_docs_elapsed() + PG_GETARG_INT32(3) * INT64CONST(1000);

	MemoryContextSwitchTo(call.context);
	shell = ttl_docs_find_owned(text_to_cstring(PG_GETARG_TEXT_PP(0)), false);
	/* the steps below commit, and free the memory of the transaction */
	tupdesc = BlessTupleDesc(CreateTupleDescCopy(tupdesc));
	if (is_first)
		purge_shards_here(&call, shell, NULL, &result);
	else if (find_position(text_to_cstring(PG_GETARG_TEXT_PP(2)), &position))
		purge_shards_here(&call, shell, &position, &result);
	MemoryContextSwitchTo(caller);
	answer = CStringGetTextDatum(print_result(&result));
	answer = HeapTupleGetDatum(heap_form_tuple(tupdesc, &answer, &isnull));
	ttl_docs_end_purge_call(&call);
	PG_RETURN_DATUM(answer);
}

/* Purges the shards of this node, from a position on if there is one. */
static void
purge_shards_here(PurgeCall *call, Oid shell, const PassPosition *continues_at,
				  PurgeResult *result)
{
	List	   *shards;
	ListCell   *lc;

	MemoryContextSwitchTo(call->context);
	shards = tables_of_shards(shell, continues_at != NULL ? continues_at->relid :
							  InvalidOid);
	foreach(lc, shards)
	{
		List	   *tables = lfirst(lc);
		Collection	collection;

		if (!ttl_docs_lookup_collection(linitial_oid(tables), &collection))
			continue;
		ttl_docs_purge_tables_now(call, collection.root, tables,
								  continues_at != NULL &&
								  continues_at->relid == linitial_oid(tables) ?
								  continues_at : NULL, result);
		if (result->has_stopped)
			break;
	}
}

/*
 * The tables of the shards that are in use on this node, as a list of lists.  If first
 * is one of the tables, leaves out the tables before it.
 */
static List *
tables_of_shards(Oid shell, Oid first)
{
	List	   *shards = ttl_docs_local_shards(shell);
	List	   *found = NIL;
	ListCell   *lc;

	foreach(lc, shards)
	{
		int64		shard;
		List	   *tables = ttl_docs_is_shard_in_use(lfirst_oid(lc), &shard) ?
			ttl_docs_collection_tables(lfirst_oid(lc)) : NIL;

		if (list_member_oid(tables, first))
		{
			found = NIL;
			while (linitial_oid(tables) != first)
				tables = list_delete_first(tables);
		}
		if (tables != NIL)
			found = lappend(found, tables);
	}
	return found;
}

/* Finds the position of this node in a list of positions; false if it is done. */
static bool
find_position(const char *positions, PassPosition *position)
{
	char	   *list = pstrdup(positions);
	char	   *next = NULL;
	char	   *group = psprintf("%d:", ttl_docs_local_group());

	for (char *item = strtok_r(list, ",", &next); item != NULL;
		 item = strtok_r(NULL, ",", &next))
		if (strncmp(item, group, strlen(group)) == 0)
			return parse_position(item + strlen(group), position);
	return false;
}

/* Prints a result as a JSON object, for add_answer(). */
static char *
print_result(const PurgeResult *result)
{
	const ShownError *error = &result->error.shown;
	StringInfoData json;

	initStringInfo(&json);
	appendStringInfo(&json, "{\"deleted\": " INT64_FORMAT, result->deleted);
	ttl_docs_append_integer(&json, "undeletable", result->undeletable);
	ttl_docs_append_flag(&json, "busy", result->found_busy);
	ttl_docs_append_flag(&json, "others", result->found_others);
	/* a shard that has moved is purged on its new node */
	if (result->state != PURGE_IDLE && result->state != PURGE_MOVING)
	{
		ttl_docs_append_text(&json, "state", ttl_docs_purge_state_name(result->state));
		ttl_docs_append_text(&json, "detail", result->detail);
	}
	if (result->has_error)
	{
		ttl_docs_append_text(&json, "sqlstate", unpack_sql_state(error->sqlstate));
		ttl_docs_append_text(&json, "message", error->message);
		ttl_docs_append_text(&json, "error_detail",
							 error->detail[0] != '\0' ? error->detail : NULL);
	}
	if (result->has_stopped)
	{
		StringInfoData position;

		initStringInfo(&position);
		print_position(&position, &result->stopped_at);
		ttl_docs_append_text(&json, "position", position.data);
	}
	appendStringInfoChar(&json, '}');
	return json.data;
}

/* Prints the group of this node, and a position. */
static void
print_position(StringInfo buf, const PassPosition *position)
{
	appendStringInfo(buf, "%d:%u %u", ttl_docs_local_group(), position->relid,
					 position->index_file);
	for (SlotRange range = 0; range < RANGE_COUNT; range++)
		appendStringInfo(buf, " " INT64_FORMAT " %u %u", position->next[range].slot,
						 ItemPointerGetBlockNumberNoCheck(&position->next[range].tid),
						 ItemPointerGetOffsetNumberNoCheck(&position->next[range].tid));
	appendStringInfo(buf, " %u %u %u", position->next_block,
					 ItemPointerGetBlockNumberNoCheck(&position->next_row),
					 ItemPointerGetOffsetNumberNoCheck(&position->next_row));
}

static bool
parse_position(const char *text, PassPosition *position)
{
	unsigned int relid;
	unsigned int file;
	unsigned int next_block;
	unsigned int blocks[RANGE_COUNT + 1];
	unsigned short offsets[RANGE_COUNT + 1];
	long long	slots[RANGE_COUNT];

	StaticAssertStmt(RANGE_COUNT == 2, "print_position() and this format must agree");
	if (sscanf(text, "%u %u %lld %u %hu %lld %u %hu %u %u %hu", &relid, &file,
			   &slots[0], &blocks[0], &offsets[0], &slots[1], &blocks[1], &offsets[1],
			   &next_block, &blocks[2], &offsets[2]) != 11)
		return false;
	position->relid = relid;
	position->index_file = file;
	for (SlotRange range = 0; range < RANGE_COUNT; range++)
	{
		position->next[range].slot = slots[range];
		ItemPointerSet(&position->next[range].tid, blocks[range], offsets[range]);
		position->next[range].leaf = 0;
	}
	position->next_block = next_block;
	ItemPointerSet(&position->next_row, blocks[RANGE_COUNT], offsets[RANGE_COUNT]);
	return true;
}
