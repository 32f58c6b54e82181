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
 * The first node hands its instant over with SET LOCAL, and the number of its
 * group, which tells the other nodes where the instant comes from.  Citus
 * sends the command to all nodes that take part, also to those that join
 * later.  It does so only if the transaction can have several statements.  We
 * hand the instant over in transaction blocks.  For a single statement, Citus
 * begins no transaction on the other nodes, and every node uses its own clock.
 *
 * Too late.  The instant must not be later than the snapshot of the node, or
 * the node would lose live documents.  Normally it is earlier: the first node
 * chooses it before Citus reaches the others.  The exceptions are a node whose
 * clock is behind, and a node on which the transaction has its snapshot before
 * the first node has its instant (LOCK TABLE can be the first command).  Such a
 * node uses its own instant.
 *
 * Too early.  Every user can set the instant, and pose as a node (session.c).
 * An early instant would show documents that have expired since.  If the
 * instant is at most JOIN_TIME earlier than the transaction on this node, the
 * node believes it.  Otherwise the node has joined a long transaction, or the
 * clocks differ, or a user poses.  Then the node asks the first one whether it
 * has an open transaction with exactly this instant that works for the role of
 * this session (open_instants.c).  If not, or if the first node cannot be
 * asked, the transaction fails.  The question travels in a session of its own,
 * as the role of this session.  So a user who poses can only get the instant
 * of a transaction of the same role that is still open, and can use this
 * instant in that transaction anyway.
 *
 * Documents that were written later.  A node that joins late has a later
 * snapshot than the first one: Citus has no common snapshot.  The snapshot
 * shows documents that were written after the instant.  At the instant, they
 * were not expired, because they did not exist.  So the instant alone would
 * show such a document even if it has expired before the node joined, and
 * nobody could see it since.  The visibility test judges documents with a _ts
 * after the instant at the time when the node joined.
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

/*
 * How much earlier than the transaction on this node an instant may be without
 * a question: clocks differ, and Citus needs some time to reach the node
 */
#define JOIN_TIME	USECS_PER_SEC

/* Has this transaction handed its instant over, and as which role did it read last? */
static bool has_handed_over = false;
static Oid	reads_as = InvalidOid;

static bool reads_shell(const PlannedStmt *stmt);
static void send_instant(TimestampTz instant);
static TimestampTz parse_handed_instant(int *group);
static void confirm_instant(TimestampTz instant, int group);
static char *ask_for_instant(TimestampTz instant, int group);

/* ---- The first node ---- */

/*
 * Hands the instant of this transaction over to the nodes of Citus, before it
 * executes its first query there.
 */
void
ttl_docs_hand_over_instant(const PlannedStmt *stmt)
{
	Oid			role = GetUserId();

	if ((has_handed_over && reads_as == role) || !ttl_docs_citus_is_loaded ||
		!IsTransactionBlock() || IsInParallelMode() || ttl_docs_guard != NULL ||
		!reads_shell(stmt) || ttl_docs_in_citus_session())
		return;
	ttl_docs_end_turns |= TURN_OF_CITUS;
	/* another node may ask as soon as it has the instant */
	ttl_docs_open_instant(ttl_docs_current_instant(), role);
	reads_as = role;
	if (!has_handed_over)
		send_instant(ttl_docs_current_instant());
	has_handed_over = true;
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

static void
send_instant(TimestampTz instant)
{
	char	   *sql = psprintf("SET LOCAL ttl_docs.distributed_instant = '" INT64_FORMAT " %d'",
							   (int64) instant, ttl_docs_local_group());
	int			nest_level = NewGUCNestLevel();

	(void) set_config_option("citus.propagate_set_commands", "local", PGC_USERSET,
							 PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
	ttl_docs_run_ddl_of_client(sql);
	AtEOXact_GUC(true, nest_level);
}

/*
 * Citus has rolled back to a savepoint, and SET LOCAL with it.  The instant
 * stays open for nodes that have it.
 */
void
ttl_docs_hand_over_again(void)
{
	has_handed_over = false;
}

/* The transaction has ended. */
void
ttl_docs_forget_hand_over(void)
{
	if (OidIsValid(reads_as))
		ttl_docs_close_instant();
	has_handed_over = false;
	reads_as = InvalidOid;
}

/* ---- The other nodes ---- */

/* Has another node handed an instant over to this transaction? */
bool
ttl_docs_has_handed_instant(void)
{
	return ttl_docs_distributed_instant != NULL && ttl_docs_distributed_instant[0] != '\0' &&
		ttl_docs_in_citus_session();
}

/*
 * Returns the instant that another node has handed over.  May run queries.
 * Raises an error if the instant is too early, and that node does not confirm
 * it.
 */
TimestampTz
ttl_docs_handed_instant(void)
{
	int			group;
	TimestampTz instant = parse_handed_instant(&group);

	if (instant < ttl_docs_joined_at() - JOIN_TIME)
		confirm_instant(instant, group);
	return instant;
}

/*
 * A time before the snapshot of this transaction, for documents that were
 * written after the instant of the first node.  Parallel workers have the same
 * time.
 */
TimestampTz
ttl_docs_joined_at(void)
{
	return ttl_docs_shifted(GetCurrentTransactionStartTimestamp());
}

static TimestampTz
parse_handed_instant(int *group)
{
	TimestampTz instant;
	long		number;
	char	   *end;

	errno = 0;
	instant = strtoll(ttl_docs_distributed_instant, &end, 10);
	number = *end == ' ' ? strtol(end + 1, &end, 10) : -1;
	if (errno != 0 || *end != '\0' || number < 0 || number > PG_INT32_MAX ||
		!IS_VALID_TIMESTAMP(instant))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid value for \"ttl_docs.distributed_instant\": \"%s\"",
						ttl_docs_distributed_instant),
				 errhint("Only ttl_docs sets this setting.")));
	*group = (int) number;
	return instant;
}

/* Raises an error if the nodes of this group do not confirm the instant. */
static void
confirm_instant(TimestampTz instant, int group)
{
	char	   *problem;

	/* Citus also opens sessions on the first node itself */
	if (group == ttl_docs_local_group() &&
		ttl_docs_has_open_instant(instant, GetSessionUserId()))
		return;
	problem = ask_for_instant(instant, group);
	if (problem != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("could not verify the instant of a transaction that began on another node of Citus"),
				 errdetail_internal("%s", problem),
				 errhint("Try again. If the error persists, make sure that this role can connect"
						 " from every node of Citus to every other node.")));
}

/*
 * Asks the nodes of this group for the instant: the primary node, and its
 * standbys if Citus knows them.  Returns NULL if one of them confirms it, else
 * a sentence.
 */
static char *
ask_for_instant(TimestampTz instant, int group)
{
	char	   *question = psprintf("SELECT " TTL_DOCS_INTERNAL ".has_open_instant(" INT64_FORMAT ")",
									(int64) instant);
	char	   *problem = psprintf(_("Group %d has no active node."), group);
	Oid			user;
	int			sec_context;
	List	   *answers;
	ListCell   *lc;

	/* the first node compares the role of the session, not one of SET ROLE */
	GetUserIdAndSecContext(&user, &sec_context);
	SetUserIdAndSecContext(GetSessionUserId(), sec_context);
	answers = ttl_docs_ask_group(group, question);
	SetUserIdAndSecContext(user, sec_context);
	foreach(lc, answers)
	{
		NodeAnswer *answer = lfirst(lc);

		if (answer->succeeded && answer->text != NULL && strcmp(answer->text, "t") == 0)
			return NULL;
		problem = answer->succeeded ?
			psprintf(_("Node %s has no open transaction of role \"%s\" with this instant."),
					 answer->node, GetUserNameFromId(GetSessionUserId(), false)) :
			psprintf(_("Node %s: %s"), answer->node,
					 answer->text != NULL ? answer->text : _("no answer"));
	}
	return problem;
}
