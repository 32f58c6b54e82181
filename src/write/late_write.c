/*-------------------------------------------------------------------------
 *
 * late_write.c
 *		Handles a write that reaches a document which has already expired.
 *
 * The document expired after the query's snapshot was taken: while the write
 * waited for a lock, during a long transaction, or just now.
 * - In READ COMMITTED, the write skips the document, like a row that was
 *   deleted after the snapshot.
 * - At the higher isolation levels, the write raises a serialization failure.
 * - ON CONFLICT DO UPDATE and MERGE raise a serialization failure at every
 *   level.  If they skipped the row, the new document would be lost silently.
 *   A retry of the statement inserts the new document.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "nodes/plannodes.h"
#include "parser/parsetree.h"

#include "write/write_internal.h"

static bool may_be_upsert(Oid relid);
static bool may_upsert_into(Plan *plan, const PlannedStmt *stmt, Oid relid);

/* Raises an error, or returns if the write must skip the row. */
void
ttl_docs_report_late_write(Oid relid)
{
	if (IsolationUsesXactSnapshot())
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("could not serialize access due to a document that expired after the snapshot was taken"),
				 errhint("The transaction might succeed if retried.")));
	if (may_be_upsert(relid))
		ttl_docs_report_expired_upsert();
}

/*
 * Does ON CONFLICT DO UPDATE or MERGE write the row?  Core does not tell a
 * trigger.  So we look at the innermost running query, because it has fired
 * our trigger.
 */
static bool
may_be_upsert(Oid relid)
{
	const PlannedStmt *stmt = ttl_docs_running_stmt();
	ListCell   *lc;

	if (stmt == NULL)
		return false;
	if (may_upsert_into(stmt->planTree, stmt, relid))
		return true;
	/* data-modifying CTEs are subplans, with ModifyTable at their top */
	foreach(lc, stmt->subplans)
		if (may_upsert_into(lfirst(lc), stmt, relid))
			return true;
	return false;
}

/*
 * Can this plan have fired the trigger of the table by ON CONFLICT DO UPDATE
 * or MERGE?  A statement can both update and upsert a table.  Then we cannot
 * tell, and answer yes, because an error loses no document.
 */
static bool
may_upsert_into(Plan *plan, const PlannedStmt *stmt, Oid relid)
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

		/* core may have routed the row to a partition, so compare roots */
		if (rte->relid == relid ||
			(ttl_docs_lookup_collection(rte->relid, &target) &&
			 ttl_docs_lookup_collection(relid, &fired) && target.root == fired.root))
			return true;
	}
	return false;
}
