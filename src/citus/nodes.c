/*-------------------------------------------------------------------------
 *
 * nodes.c
 *		Asks nodes of Citus, and locks a table on all nodes.
 *
 * Questions go through functions of Citus, such as run_command_on_all_nodes().
 * They open other sessions as the current user.  These sessions do not take
 * part in the transaction, and do not see its changes.
 *
 * Locks go through LOCK TABLE, which Citus sends to all nodes in the
 * distributed transaction.  LOCK TABLE locks the shell on each node.  Every
 * query that Citus runs holds a lock on a shell, so a lock on all shells keeps
 * out all such queries.  Queries that name a shard lock only the shard.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "commands/extension.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "citus/citus_internal.h"
#include "collection/collection.h"

PG_FUNCTION_INFO_V1(ttl_docs_node_clock);

/* The group of the coordinator in pg_dist_local_group */
#define COORDINATOR_GROUP	0

static List *read_answers(const char *query);
static const char *lock_name(LOCKMODE lockmode);
static void use_local_execution(Oid shell);
static void use_two_phases(Oid shell);
static void refuse_statement_triggers(Oid shell);
static bool is_on(const char *setting);
static void require_on(const char *setting, Oid shell);

/*
 * Runs a query on every node, this one included.  Returns a list of
 * NodeAnswer in the current memory context.
 */
List *
ttl_docs_ask_all_nodes(const char *sql)
{
	return read_answers(psprintf("SELECT CASE WHEN n.nodeid IS NULL THEN 'this node'"
								 " ELSE pg_catalog.format('%%s:%%s', n.nodename, n.nodeport) END,"
								 " r.success, r.result"
								 " FROM pg_catalog.run_command_on_all_nodes(%s) AS r"
								 " LEFT JOIN pg_catalog.pg_dist_node AS n"
								 " ON n.nodeid OPERATOR(pg_catalog.=) r.nodeid",
								 quote_literal_cstr(sql)));
}

/* Runs a query on the nodes of a group, one after the other. */
List *
ttl_docs_ask_group(int group, const char *sql)
{
	return read_answers(psprintf("SELECT pg_catalog.format('%%s:%%s', r.node_name, r.node_port),"
								 " r.success, r.result"
								 " FROM (SELECT pg_catalog.array_agg(nodename) AS names,"
								 " pg_catalog.array_agg(nodeport) AS ports,"
								 " pg_catalog.array_agg(%s::pg_catalog.text) AS commands"
								 " FROM pg_catalog.pg_dist_node"
								 " WHERE groupid OPERATOR(pg_catalog.=) %d AND isactive) AS n,"
								 " pg_catalog.master_run_on_worker(n.names, n.ports, n.commands, false) AS r",
								 quote_literal_cstr(sql), group));
}

/* Runs a query that asks nodes, and returns their answers. */
static List *
read_answers(const char *query)
{
	MemoryContext caller = CurrentMemoryContext;
	List	   *answers = NIL;

	SPI_connect();
	if (SPI_execute(query, false, 0) != SPI_OK_SELECT)
		elog(ERROR, "could not ask the nodes of Citus");
	for (uint64 i = 0; i < SPI_processed; i++)
	{
		HeapTuple	row = SPI_tuptable->vals[i];
		TupleDesc	tupdesc = SPI_tuptable->tupdesc;
		char	   *text = SPI_getvalue(row, tupdesc, 3);
		MemoryContext spi = MemoryContextSwitchTo(caller);
		NodeAnswer *answer = palloc0(sizeof(NodeAnswer));
		bool		isnull;

		answer->node = pstrdup(SPI_getvalue(row, tupdesc, 1));
		answer->succeeded = DatumGetBool(SPI_getbinval(row, tupdesc, 2, &isnull));
		answer->text = text != NULL ? pstrdup(text) : NULL;
		answers = lappend(answers, answer);
		MemoryContextSwitchTo(spi);
	}
	SPI_finish();
	return answers;
}

/* Like ttl_docs_ask_all_nodes(), but raises an error if a node has failed. */
List *
ttl_docs_ask_all_nodes_or_fail(const char *sql)
{
	List	   *answers = ttl_docs_ask_all_nodes(sql);
	ListCell   *lc;

	foreach(lc, answers)
	{
		NodeAnswer *answer = lfirst(lc);

		if (!answer->succeeded)
			ereport(ERROR,
					(errcode(ERRCODE_CONNECTION_FAILURE),
					 errmsg("could not query all nodes of Citus"),
					 errdetail("Node %s: %s", answer->node,
							   answer->text != NULL ? answer->text : "no answer"),
					 errhint("Every node must be reachable and have ttl_docs in shared_preload_libraries.")));
	}
	return answers;
}

/*
 * Locks a shell on all nodes until the transaction ends, and makes the changes
 * that follow atomic.  Until then, Citus uses one connection to each node: a
 * second one would wait for locks of the first.
 */
void
ttl_docs_lock_on_all_nodes(Oid shell, LOCKMODE lockmode)
{
	char	   *name = ttl_docs_quoted_name(shell);

	ttl_docs_require_propagation(shell);
	/* a node that is added meanwhile would not have the lock */
	ttl_docs_lock_node_list();
	ttl_docs_run_ddl("LOCK TABLE %s IN %s MODE", name, lock_name(lockmode));
	/* while we waited, Citus may have replaced the table by one of the same name */
	if (get_rel_name(shell) == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("could not change collection %s due to a concurrent conversion", name),
				 errhint("Try again.")));
	if (ttl_docs_local_shards(shell) != NIL)
		use_local_execution(shell);
	use_two_phases(shell);
}

/*
 * Makes Citus work on the shards of this node in this session, until the
 * transaction ends.  Otherwise Citus may open a second session on this node
 * for a command on all shards, and the two sessions would wait for each
 * other's locks.  Citus decides for the rest of the transaction when it
 * executes the first query in a function.  So we run a query on all shards
 * that reads at most one row of each, after the table is locked.  It runs as
 * the caller: as the owner, Citus would use other connections.
 */
static void
use_local_execution(Oid shell)
{
	SPI_connect();
	if (SPI_execute(psprintf("SELECT 1 FROM %s WHERE ctid OPERATOR(pg_catalog.=) '(0,1)'",
							 ttl_docs_quoted_name(shell)),
					false, 0) != SPI_OK_SELECT)
		elog(ERROR, "could not query \"%s\"", get_rel_name(shell));
	SPI_finish();
}

/*
 * Makes Citus commit this transaction in two phases on all nodes that have
 * shards of the table.
 *
 * Citus prepares a transaction on another node only if its connection has
 * changed a shard, or has not used any.  SECURITY LABEL on a shell does not
 * count as a change of a shard.  So if the transaction also reads shards on
 * the connection, Citus only commits there, after it has committed on the
 * other nodes.  If the node fails in between, it loses the label.
 *
 * So we run a command that changes each shard, but has no effect.  On the
 * coordinator, it resets a parameter that no table has.  Citus refuses DDL on
 * other nodes, so there we update a row that no table has.  The UPDATE would
 * fire triggers FOR EACH STATEMENT, so we refuse tables that have one.
 *
 * A node without shards of this table can still lose the label of its shell.
 */
static void
use_two_phases(Oid shell)
{
	Collection	collection;

	if (ttl_docs_local_group() == COORDINATOR_GROUP)
		ttl_docs_run_ddl("ALTER TABLE %s RESET (ttl_docs)", ttl_docs_quoted_name(shell));
	else if (ttl_docs_lookup_collection(shell, &collection))
	{
		refuse_statement_triggers(shell);
		SPI_connect();
		if (SPI_execute(psprintf("UPDATE %s SET %s = %s WHERE ctid OPERATOR(pg_catalog.=) '(0,0)'",
								 ttl_docs_quoted_name(shell), TTL_DOCS_TS_COLUMN,
								 TTL_DOCS_TS_COLUMN),
						false, 0) != SPI_OK_UPDATE)
			elog(ERROR, "could not update \"%s\"", get_rel_name(shell));
		SPI_finish();
	}
}

static void
refuse_statement_triggers(Oid shell)
{
	Relation	rel = table_open(shell, NoLock);
	TriggerDesc *triggers = rel->trigdesc;

	if (triggers != NULL &&
		(triggers->trig_update_before_statement || triggers->trig_update_after_statement))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot change collection \"%s\" on this node of Citus",
						RelationGetRelationName(rel)),
				 errdetail("The change would fire triggers FOR EACH STATEMENT of the table."),
				 errhint("Connect to the coordinator and try again.")));
	table_close(rel, NoLock);
}

static const char *
lock_name(LOCKMODE lockmode)
{
	switch (lockmode)
	{
		case ShareUpdateExclusiveLock:
			return "SHARE UPDATE EXCLUSIVE";
		case ShareRowExclusiveLock:
			return "SHARE ROW EXCLUSIVE";
		case AccessExclusiveLock:
			return "ACCESS EXCLUSIVE";
		default:
			elog(ERROR, "unexpected lock mode %d", lockmode);
			return NULL;		/* keep the compiler quiet */
	}
}

/*
 * Makes sure that Citus sends our commands on a shell to all nodes.  Raises
 * an error if the user has turned that off, or in the script of an extension.
 */
void
ttl_docs_require_propagation(Oid shell)
{
	ttl_docs_require_supported_citus();
	if (creating_extension)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot change collection \"%s\" in the script of an extension",
						get_rel_name(shell)),
				 errdetail("Citus does not send labels in such a script to its other nodes."),
				 errhint("Change the collection before or after the extension.")));
	require_on("citus.enable_ddl_propagation", shell);
	require_on("citus.enable_metadata_sync", shell);
	(void) set_config_option("citus.multi_shard_modify_mode", "sequential", PGC_USERSET,
							 PGC_S_SESSION, GUC_ACTION_LOCAL, true, 0, false);
}

/* Does Citus send DDL to other nodes?  If not, it converts no tables either. */
bool
ttl_docs_citus_propagates(void)
{
	return is_on("citus.enable_ddl_propagation") && is_on("citus.enable_metadata_sync");
}

static bool
is_on(const char *setting)
{
	const char *value = GetConfigOption(setting, true, false);

	return value == NULL || strcmp(value, "on") == 0;
}

static void
require_on(const char *setting, Oid shell)
{
	if (!is_on(setting))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot change collection \"%s\" while %s is off",
						get_rel_name(shell), setting),
				 errdetail("The change would not reach the other nodes of Citus."),
				 errhint("Run SET %s = on.", setting)));
}

/*
 * Returns the clock.  For a shell, returns the latest clock of all nodes: a
 * document is expired if a node has seen it expire.
 */
TimestampTz
ttl_docs_latest_clock(Oid relid)
{
	TimestampTz latest = ttl_docs_clock();
	List	   *answers;
	ListCell   *lc;

	if (!ttl_docs_is_shell(relid))
		return latest;
	answers = ttl_docs_ask_all_nodes_or_fail("SELECT " TTL_DOCS_INTERNAL ".node_clock()");
	foreach(lc, answers)
	{
		NodeAnswer *answer = lfirst(lc);

		if (answer->text != NULL)
			latest = Max(latest, strtoll(answer->text, NULL, 10));
	}
	return latest;
}

/*
 * node_clock(): the clock of this node, for ttl_docs_latest_clock() on another
 * one.  As microseconds, because the style of dates differs between sessions.
 */
Datum
ttl_docs_node_clock(PG_FUNCTION_ARGS)
{
	ttl_docs_require_preload();
	PG_RETURN_INT64((int64) ttl_docs_clock());
}
