/*-------------------------------------------------------------------------
 *
 * access_foreign_key.c
 *		Recognises the queries by which core checks foreign keys.
 *
 * Core checks foreign keys with SQL, and three of its queries are judged in
 * their own way (access_test.c):
 *
 * check		locks the parent of a new child: judged at the clock.
 * action		deletes or updates the children of a parent: sees all of them.
 * validation	ADD and VALIDATE FOREIGN KEY look for children without a parent:
 *				the parents on disk count, because a restore must not fail on
 *				one that has expired; expired children need no parent.
 *
 * Two of them see expired documents, so no query of a user may be taken for one.
 * We recognise a query of core by how it is executed: the executor is told not to
 * fire triggers (EXEC_FLAG_SKIP_TRIGGERS) and sends its rows to SPI.  In PostgreSQL
 * 15 to 19 only SPI_execute_snapshot() with fire_triggers = false does both, and
 * only ri_triggers.c calls it that way.  SQL cannot do both: queries of procedural
 * languages fire triggers; SQL functions that are evaluated row by row do not, but
 * they send their rows to a receiver of their own.  Our own queries fire triggers,
 * too (as_owner.c).
 *
 * The shape of a query then only tells which of core's queries it is.  We recognise
 * the shape of a validation in the parse tree, when the query is planned.  The
 * scan of the parents then gets a test of its own, is_live_parent(), which lets all
 * rows pass if the query is executed as a validation, and works like is_live()
 * otherwise.  A query is executed as a validation only if ALTER TABLE itself runs
 * it.  Functions that ALTER TABLE calls run inside queries, or commands, of their
 * own, so their queries do not count.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "executor/executor.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "parser/parsetree.h"
#include "tcop/dest.h"

#include "ttl_docs.h"

static ForeignKeyValidation validation = {false, NULL};

static bool is_query_of_core(const QueryDesc *queryDesc, int eflags);
static bool names_one_table(const PlannedStmt *stmt);
static bool is_table_named(const RangeTblEntry *rte, const char *alias);

/*
 * The guard says whether a command that begins may validate a foreign key.
 * The previous state goes to *outer, and is restored when the command has ended.
 */
void
ttl_docs_begin_validation(bool possible, ForeignKeyValidation *outer)
{
	*outer = validation;
	validation.possible = possible;
	validation.running = ttl_docs_running_query();
}

/* The command itself is through; what follows is ours. */
void
ttl_docs_stop_validation(void)
{
	validation.possible = false;
}

void
ttl_docs_end_validation(const ForeignKeyValidation *outer)
{
	validation = *outer;
}

bool
ttl_docs_may_validate(void)
{
	return validation.possible;
}

/*
 * Can that be core's query for the children without a parent, "SELECT fk.x FROM
 * ONLY child fk LEFT JOIN ONLY parent pk ON ... WHERE pk.y IS NULL"?
 */
bool
ttl_docs_looks_like_validation(const Query *parse)
{
	return validation.possible && parse->commandType == CMD_SELECT &&
		list_length(parse->rtable) >= 2 &&
		is_table_named(rt_fetch(1, parse->rtable), "fk") &&
		is_table_named(rt_fetch(2, parse->rtable), PARENT_ALIAS);
}

static bool
is_table_named(const RangeTblEntry *rte, const char *alias)
{
	return rte->rtekind == RTE_RELATION && strcmp(rte->eref->aliasname, alias) == 0;
}

/* Notes which of core's foreign key queries a query that starts is, if any. */
void
ttl_docs_recognise_foreign_key_query(LiveQuery *query, const QueryDesc *queryDesc,
									 int eflags)
{
	const PlannedStmt *stmt = queryDesc->plannedstmt;

	if (!is_query_of_core(queryDesc, eflags))
		return;
	query->foreign_key_check = InNoForceRLSOperation() &&
		stmt->commandType == CMD_SELECT && stmt->rowMarks != NIL;
	query->foreign_key_action = InNoForceRLSOperation() &&
		(stmt->commandType == CMD_UPDATE || stmt->commandType == CMD_DELETE) &&
		names_one_table(stmt);
	/* a period of time is covered by several parents */
	query->needs_all_rows = query->foreign_key_check && IsA(stmt->planTree, Agg);
	query->validates_foreign_key = validation.possible &&
		ttl_docs_running_query() == validation.running;
}

static bool
is_query_of_core(const QueryDesc *queryDesc, int eflags)
{
	return (eflags & EXEC_FLAG_SKIP_TRIGGERS) != 0 &&
		queryDesc->dest != NULL && queryDesc->dest->mydest == DestSPI;
}

/*
 * Does a command name no table but its target?  This is true of core's foreign key
 * actions.  A rule of the child can turn an action into another command; that
 * command also names the child, and could show expired documents of any table.
 */
static bool
names_one_table(const PlannedStmt *stmt)
{
	return compat_named_tables(stmt) == 1;
}
