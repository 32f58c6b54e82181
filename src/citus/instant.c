/*-------------------------------------------------------------------------
 *
 * instant.c
 *		One instant for a transaction on several nodes of Citus.
 *
 * In REPEATABLE READ and SERIALIZABLE, a transaction has one instant
 * (access/instant.c).  If it reads tables of Citus, every node that takes part
 * has a transaction of its own, with its own snapshot.  All of them must use
 * the instant of the first one.
 *
 * The first node hands its instant over with SET LOCAL.  Citus sends the
 * command to all nodes that take part, also to those that join later.  It does
 * so only if the transaction can have several statements.  We hand the
 * instant over in transaction blocks.  For a single statement, Citus begins no
 * transaction on the other nodes, and every node uses its own clock.
 *
 * The instant is not later than the snapshots of the other nodes, because they
 * take theirs afterwards.  If the clock of a node is behind, the node uses its
 * own clock.
 *
 * Every user can set the instant, and pose as a node (session.c).  An early
 * instant would show documents that have expired since.  So the instant is
 * never more than a second earlier than the transaction on this node: clocks
 * may differ that much, and Citus needs some time to reach the node.  If a
 * node joins later in a long transaction, or if its clock is more than a
 * second ahead, the instant on this node is that limit.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "utils/guc.h"
#include "utils/timestamp.h"

#include "access/access.h"
#include "citus/actions.h"
#include "citus/citus_internal.h"

/* How much earlier than the transaction on this node an instant may be */
#define JOIN_TIME	USECS_PER_SEC

/* Has this transaction handed its instant over? */
static bool has_handed_over = false;

static bool reads_shell(const PlannedStmt *stmt);

/*
 * Hands the instant of this transaction over to the nodes of Citus, before it
 * executes its first query there.
 */
void
ttl_docs_hand_over_instant(const PlannedStmt *stmt)
{
	char	   *sql;
	int			nest_level;

	if (has_handed_over || !ttl_docs_citus_is_loaded || !IsTransactionBlock() ||
		IsInParallelMode() || ttl_docs_guard != NULL || !reads_shell(stmt) ||
		ttl_docs_in_citus_session())
		return;
	sql = psprintf("SET LOCAL ttl_docs.distributed_instant = '" INT64_FORMAT "'",
				   (int64) ttl_docs_current_instant());
	nest_level = NewGUCNestLevel();
	(void) set_config_option("citus.propagate_set_commands", "local", PGC_USERSET,
							 PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
	ttl_docs_run_ddl_of_client(sql);
	AtEOXact_GUC(true, nest_level);
	has_handed_over = true;
	ttl_docs_end_turns |= TURN_OF_CITUS;
}

static bool
reads_shell(const PlannedStmt *stmt)
{
	ListCell   *lc;

	if (!ttl_docs_has_citus())
		return false;
	foreach(lc, stmt->rtable)
	{
		RangeTblEntry *rte = lfirst_node(RangeTblEntry, lc);

		if (rte->rtekind == RTE_RELATION && ttl_docs_is_shell(rte->relid))
			return true;
	}
	return false;
}

/* The transaction has ended, or Citus has rolled back to a savepoint. */
void
ttl_docs_forget_hand_over(void)
{
	has_handed_over = false;
}

/*
 * Returns the instant that another node has handed over to this transaction;
 * DT_NOEND if there is none.
 */
TimestampTz
ttl_docs_handed_instant(void)
{
	TimestampTz earliest;
	TimestampTz instant;
	char	   *end;

	if (ttl_docs_distributed_instant == NULL || ttl_docs_distributed_instant[0] == '\0' ||
		!ttl_docs_in_citus_session())
		return DT_NOEND;
	errno = 0;
	instant = strtoll(ttl_docs_distributed_instant, &end, 10);
	if (errno != 0 || *end != '\0' || !IS_VALID_TIMESTAMP(instant))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid value for \"ttl_docs.distributed_instant\": \"%s\"",
						ttl_docs_distributed_instant),
				 errhint("Only ttl_docs sets this setting.")));
	earliest = ttl_docs_shifted(GetCurrentTransactionStartTimestamp()) - JOIN_TIME;
	return Max(instant, earliest);
}
