/*-------------------------------------------------------------------------
 *
 * procedure.c
 *		Procedures that commit, and run commands that cannot be part of a
 *		transaction: CREATE INDEX CONCURRENTLY, DROP INDEX CONCURRENTLY, VACUUM.
 *
 * Such a command commits by itself.  That works in a procedure that a client
 * calls directly: CALL is then the command of the portal, no SPI context is
 * open, and no transaction block.  The command runs through ProcessUtility()
 * as if the client had sent it, so all hooks and event triggers see it.
 *
 * Core's commands leave a transaction open when they end, and expect that
 * their caller commits.  We commit right after each.
 *
 * Snapshots.  SPI_commit() forgets the snapshot of the portal.  Before
 * an index command we push one, as core does; the command pops it.  VACUUM
 * needs none.  An event trigger that fires at the end of the command can give
 * the portal a snapshot again, which the next commit forgets.
 *
 * Memory.  CurrentMemoryContext is a child of PortalContext, and survives
 * commits.
 *
 * On ERROR, core rolls the open transaction back.  What was committed stays,
 * and the next call of the procedure continues there.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "executor/spi.h"
#include "nodes/parsenodes.h"
#include "parser/parser.h"
#include "tcop/dest.h"
#include "tcop/pquery.h"
#include "tcop/utility.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "online/online_internal.h"

static bool is_called_by_client(FunctionCallInfo fcinfo);

/*
 * Raises an error unless a client calls the procedure directly, without a
 * transaction block.  "instead" is a hint.
 */
void
ttl_docs_require_client_call(FunctionCallInfo fcinfo, const char *instead)
{
	char	   *name = psprintf("CALL %s.%s()", TTL_DOCS_SCHEMA,
								get_func_name(fcinfo->flinfo->fn_oid));

	/* a query string of several commands is a transaction block, too */
	if (!is_called_by_client(fcinfo) || IsInTransactionBlock(true))
		ereport(ERROR,
				(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				 errmsg("%s cannot run inside a transaction block, a function or another procedure",
						name),
				 errhint("Run it as a statement of its own, without BEGIN or DO. %s", instead)));
	/* makes the commands of a pipeline commit before and after this one */
	PreventInTransactionBlock(true, name);
}

static bool
is_called_by_client(FunctionCallInfo fcinfo)
{
	return fcinfo->context != NULL && IsA(fcinfo->context, CallContext) &&
		!((CallContext *) fcinfo->context)->atomic &&
		!SPI_inside_nonatomic_context() && !IsSubTransaction();
}

/*
 * Commits, and begins the next transaction.  Its isolation level is READ
 * COMMITTED, whatever default_transaction_isolation is: we read and write rows
 * of all times, and a SERIALIZABLE transaction would make others fail.
 */
void
ttl_docs_commit_step(void)
{
	SPI_connect_ext(SPI_OPT_NONATOMIC);
	SPI_commit();
	SPI_finish();
	XactIsoLevel = XACT_READ_COMMITTED;
}

/*
 * Runs a command that commits by itself.  Nothing else may be open in this
 * transaction.
 */
void
ttl_docs_run_committing(const char *sql)
{
	RawStmt    *raw = linitial_node(RawStmt, raw_parser(sql, RAW_PARSE_DEFAULT));
	PlannedStmt *stmt = makeNode(PlannedStmt);
	MemoryContext caller = CurrentMemoryContext;

	ttl_docs_commit_step();
	stmt->commandType = CMD_UTILITY;
	stmt->utilityStmt = raw->stmt;
	stmt->stmt_location = raw->stmt_location;
	stmt->stmt_len = raw->stmt_len;
	if (!IsA(raw->stmt, VacuumStmt))
		PushActiveSnapshot(GetTransactionSnapshot());
	ProcessUtility(stmt, sql, false, PROCESS_UTILITY_TOPLEVEL, NULL, NULL,
				   None_Receiver, NULL);
	if (ActiveSnapshotSet() && GetActiveSnapshot() != ActivePortal->portalSnapshot)
		PopActiveSnapshot();
	ttl_docs_commit_step();
	MemoryContextSwitchTo(caller);
}
