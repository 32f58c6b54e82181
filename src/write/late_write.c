/*-------------------------------------------------------------------------
 *
 * late_write.c
 *		The answer to a write that reaches a document after it has expired.
 *
 * The document expired after the query's snapshot was taken: during a wait for
 * its lock, in an old transaction, or a moment ago.  READ COMMITTED skips it,
 * as a row that was deleted since.  The higher isolation levels raise a
 * serialization failure.  So do ON CONFLICT DO UPDATE and MERGE at every level:
 * to skip the row would lose the new document silently, and the statement
 * inserts it when it is retried.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "nodes/plannodes.h"
#include "parser/parsetree.h"

#include "write/write_internal.h"

static bool is_arm_of_upsert(Oid relid);
static bool plan_may_be_arm(Plan *plan, const PlannedStmt *stmt, Oid relid);

/* Raises an error, or returns if the write is to skip the row. */
void
ttl_docs_report_late_write(Oid relid)
{
	if (IsolationUsesXactSnapshot())
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("could not serialize access due to a document that expired meanwhile"),
				 errhint("The transaction might succeed if retried.")));
	if (is_arm_of_upsert(relid))
		ttl_docs_report_expired_upsert();
}

/*
 * Does the row come from ON CONFLICT DO UPDATE or from MERGE?  A trigger does
 * not learn that, but the innermost running query is the one that fires it.
 */
static bool
is_arm_of_upsert(Oid relid)
{
	const PlannedStmt *stmt = ttl_docs_running_stmt();
	ListCell   *lc;

	if (stmt == NULL)
		return false;
	if (plan_may_be_arm(stmt->planTree, stmt, relid))
		return true;
	/* data-modifying CTEs are subplans, with ModifyTable at their top */
	foreach(lc, stmt->subplans)
		if (plan_may_be_arm(lfirst(lc), stmt, relid))
			return true;
	return false;
}

/*
 * Could that plan have fired the trigger by such an arm?  If a statement both
 * updates and upserts a table, the answer that loses nothing is yes.
 */
static bool
plan_may_be_arm(Plan *plan, const PlannedStmt *stmt, Oid relid)
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

		/* core routes rows to partitions, so compare roots */
		if (rte->relid == relid ||
			(ttl_docs_lookup_collection(rte->relid, &target) &&
			 ttl_docs_lookup_collection(relid, &fired) && target.root == fired.root))
			return true;
	}
	return false;
}
