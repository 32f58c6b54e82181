/*-------------------------------------------------------------------------
 *
 * sql.c
 *		Runs our own SQL commands, and quotes names for them.
 *
 * Commands run through SPI as the current user.  So core handles event
 * triggers, dependencies, partitions and locks, and no user gains a right.
 * Callers qualify and quote every name, so the search_path does not matter.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "executor/spi.h"
#include "lib/stringinfo.h"
#include "nodes/makefuncs.h"
#include "parser/parser.h"
#include "tcop/dest.h"
#include "tcop/utility.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"

#include "core/core.h"

/* Runs a utility command as the current user. */
void
ttl_docs_run_ddl(const char *format,...)
{
	StringInfoData sql;

	initStringInfo(&sql);
	for (;;)
	{
		va_list		args;
		int			needed;

		va_start(args, format);
		needed = appendStringInfoVA(&sql, format, args);
		va_end(args);
		if (needed == 0)
			break;
		enlargeStringInfo(&sql, needed);
	}

	SPI_connect();
	if (SPI_execute(sql.data, false, 0) < 0)
		elog(ERROR, "SPI_execute failed: %s", sql.data);
	SPI_finish();
	pfree(sql.data);
}

/*
 * Runs a utility command as if a client had sent it.  Citus distributes a new
 * table in a distributed schema only if a client has sent CREATE TABLE.  Do
 * not use this for a command that may commit.
 */
void
ttl_docs_run_ddl_of_client(const char *sql)
{
	RawStmt    *raw = linitial_node(RawStmt, raw_parser(sql, RAW_PARSE_DEFAULT));
	PlannedStmt *stmt = makeNode(PlannedStmt);
	bool		pushed = ttl_docs_push_snapshot();

	stmt->commandType = CMD_UTILITY;
	stmt->utilityStmt = raw->stmt;
	stmt->stmt_location = raw->stmt_location;
	stmt->stmt_len = raw->stmt_len;
	ProcessUtility(stmt, sql, false, PROCESS_UTILITY_TOPLEVEL, NULL, NULL,
				   None_Receiver, NULL);
	if (pushed)
		PopActiveSnapshot();
	CommandCounterIncrement();
}

/* A table's name for use in SQL: qualified and quoted. */
char *
ttl_docs_quoted_name(Oid relid)
{
	char	   *schema = get_namespace_name(get_rel_namespace(relid));
	char	   *name = get_rel_name(relid);

	/* without a lock on it, it can be dropped at any time */
	if (schema == NULL || name == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("relation with OID %u does not exist", relid)));
	return quote_qualified_identifier(schema, name);
}

/* A table's qualified name as a string literal, for a regclass argument. */
char *
ttl_docs_quoted_literal(Oid relid)
{
	return quote_literal_cstr(ttl_docs_quoted_name(relid));
}

/*
 * Makes sure that there is an active snapshot.  Core needs one to write to a
 * catalog that has a TOAST table.  Commands that commit in between, such as
 * DETACH CONCURRENTLY, have no active snapshot at their end.  Returns true if
 * the caller must pop the snapshot.
 */
bool
ttl_docs_push_snapshot(void)
{
	if (ActiveSnapshotSet())
		return false;
	PushActiveSnapshot(GetTransactionSnapshot());
	return true;
}
