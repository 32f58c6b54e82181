/*-------------------------------------------------------------------------
 *
 * held_instant.c
 *		Holds the instant of a snapshot under which several queries run.
 *
 * In READ COMMITTED, the instant of a query is the clock, because core takes a
 * snapshot right before it starts a query.  But some queries get a snapshot that
 * is older, and that no live query has:
 *
 * - The actions of a rule run one after the other, under one snapshot.
 * - PL/pgSQL evaluates some expressions without a query, such as "v := f() + g()".
 *	 It takes a snapshot for the expression, and the STABLE functions in it run
 *	 their queries under this snapshot.  So do functions that a client calls by
 *	 the fast-path protocol, and STABLE triggers that fire at commit.
 *
 * Between two such queries, or before the first one, a function can wait.  If
 * another session touches a document meanwhile, the snapshot shows the version
 * from before.  By the clock it may have expired, and the query would lose a live
 * document.  So all queries under a snapshot have one instant.  It is the time at
 * which we first saw the snapshot:
 *
 * - when a STABLE function was called;
 * - when the first query started.
 *
 * We see a function call through core's hook for functions (hooks.c), but only if
 * needs_fmgr_hook has asked for it when the function was looked up.  So we do not
 * ask for
 * - functions that a plan calls, because the query has an instant already;
 * - functions in SQL, because core would not inline them any more;
 * - functions in C, because they are frequent.  Our own ones call us;
 * - VOLATILE functions, because each of their statements has its own snapshot.
 *	 If one waits in an expression, the functions after it see a late instant
 *	 (docs/limits.md).
 *
 * We register the snapshot, so that no later snapshot can have its address, and
 * hold it until nobody else uses it.  Nobody tells us when.  So we look when
 * queries and commands start and end, and before we hold another one.  A snapshot
 * holds back VACUUM as long as it is registered, so we hold none that cannot be
 * used again.
 *
 * A query that rules can follow is different.  Core changes the command number of
 * the snapshot before it runs the next action, and asserts that nobody has
 * registered the snapshot.  So we remember its address, and mark it in a member
 * that core uses only for dirty snapshots.  A later snapshot at this address does
 * not have the mark.  One snapshot is enough: until the next action starts, no
 * other query runs.
 *
 * On ERROR, the resource owner of the transaction forgets the registrations.  A
 * subtransaction that is rolled back leaves them as they are.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/transam.h"
#include "access/xact.h"
#include "catalog/pg_language.h"
#include "catalog/pg_proc.h"
#include "tcop/pquery.h"
#include "utils/memutils.h"
#include "utils/portal.h"
#include "utils/resowner.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "access/access_internal.h"

typedef struct HeldInstant
{
	struct HeldInstant *next;
	Snapshot	snapshot;		/* registered */
	TimestampTz instant;
} HeldInstant;

/* In TopTransactionContext */
static HeldInstant *held = NULL;

/* The snapshot of the last query that rules can follow; NULL = none */
static struct
{
	Snapshot	snapshot;		/* may be freed: compare only the address */
	uint32		mark;			/* in speculativeToken of the snapshot */
	TimestampTz instant;
}			followed;

/* Too late to register snapshots: core is about to commit */
static bool is_committing = false;

static void release(HeldInstant **link);

/* Finds the instant of a snapshot that other queries have used. */
bool
ttl_docs_find_held_instant(Snapshot snapshot, TimestampTz *instant)
{
	if (snapshot == followed.snapshot && snapshot->speculativeToken == followed.mark)
	{
		*instant = followed.instant;
		return true;
	}
	for (HeldInstant *item = held; item != NULL; item = item->next)
	{
		if (item->snapshot == snapshot)
		{
			*instant = item->instant;
			return true;
		}
	}
	return false;
}

/* Holds the instant of an active snapshot. */
void
ttl_docs_hold_instant(Snapshot snapshot, TimestampTz instant)
{
	TimestampTz before;
	HeldInstant *item;

	/* a static snapshot would be copied, and have another address */
	if (is_committing || !snapshot->copied || ttl_docs_find_held_instant(snapshot, &before))
		return;
	/* a loop of expressions can run no query, and holds a snapshot in each turn */
	ttl_docs_release_held_instants();
	item = MemoryContextAlloc(TopTransactionContext, sizeof(HeldInstant));
	item->snapshot = RegisterSnapshotOnOwner(snapshot, TopTransactionResourceOwner);
	item->instant = instant;
	item->next = held;
	held = item;
}

/*
 * A query has run that rules can follow.  Their actions have its instant.  Releases the
 * snapshot, which is still active, if the functions of the query have made us hold it.
 */
void
ttl_docs_pass_on_instant(Snapshot snapshot, TimestampTz instant)
{
	static uint32 last_mark = 0;

	if (!snapshot->copied)
		return;
	for (HeldInstant **link = &held; *link != NULL; link = &(*link)->next)
	{
		if ((*link)->snapshot == snapshot)
		{
			release(link);
			break;
		}
	}
	if (++last_mark == 0)
		last_mark = 1;			/* core's value is zero */
	snapshot->speculativeToken = last_mark;
	followed.snapshot = snapshot;
	followed.mark = last_mark;
	followed.instant = instant;
}

/* Releases the snapshots that nobody else uses any more. */
void
ttl_docs_release_held_instants(void)
{
	HeldInstant **link = &held;

	while (*link != NULL)
	{
		if ((*link)->snapshot->active_count > 0 || (*link)->snapshot->regd_count > 1)
			link = &(*link)->next;
		else
			release(link);
	}
}

static void
release(HeldInstant **link)
{
	HeldInstant *item = *link;

	*link = item->next;
	UnregisterSnapshotFromOwner(item->snapshot, TopTransactionResourceOwner);
	pfree(item);
}

/* The transaction is about to commit: core wants no registered snapshots. */
void
ttl_docs_end_held_instants(void)
{
	is_committing = true;
	for (HeldInstant *item = held; item != NULL; item = item->next)
		UnregisterSnapshotFromOwner(item->snapshot, TopTransactionResourceOwner);
	held = NULL;
}

/* The transaction has ended. */
void
ttl_docs_forget_held_instants(void)
{
	is_committing = false;
	held = NULL;
	followed.snapshot = NULL;
}

/*
 * Can rules follow the query, as further queries of its statement?  Then core lets only
 * one query of the statement set the command tag.  Rules do not follow a SELECT, but
 * can be one.
 */
bool
ttl_docs_rules_may_follow(const PlannedStmt *stmt)
{
	return stmt->commandType != CMD_SELECT || !stmt->canSetTag;
}

/*
 * Can other queries run under the snapshot of a query that has ended?  A client's
 * command has one query, unless it has rules.  Other queries are those of functions.
 */
bool
ttl_docs_may_share_snapshot(const QueryDesc *queryDesc, bool is_nested)
{
	return queryDesc->snapshot->active_count > 0 &&
		(is_nested || ActivePortal == NULL || list_length(ActivePortal->stmts) > 1);
}

/*
 * Must we know when this function is called?  Called when a function is looked up,
 * but not for functions of core.
 */
bool
ttl_docs_function_may_query(Oid function)
{
	HeapTuple	tuple;
	bool		result = false;

	if (function < FirstNormalObjectId || ttl_docs_is_planning_or_starting())
		return false;
	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
	if (HeapTupleIsValid(tuple))
	{
		Form_pg_proc form = (Form_pg_proc) GETSTRUCT(tuple);

		result = form->provolatile == PROVOLATILE_STABLE &&
			form->prolang != INTERNALlanguageId && form->prolang != ClanguageId &&
			form->prolang != SQLlanguageId;
		ReleaseSysCache(tuple);
	}
	return result;
}
