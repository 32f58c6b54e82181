/*-------------------------------------------------------------------------
 *
 * foreign_key.c
 *		Recognises the queries by which core checks foreign keys.
 *
 * Core checks foreign keys with SQL, and three of its queries are judged in
 * their own way (visibility.c):
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
 * too (core/owner.c).
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

#include "access/access_internal.h"

#define CHILD_ALIAS		"fk"	/* in core's queries */
#define PARENT_ALIAS	"pk"

static bool is_foreign_key(Node *constraint);
static bool is_query_of_core(const QueryDesc *queryDesc, int eflags);
static bool names_one_table(const PlannedStmt *stmt);
static bool is_table_named(const RangeTblEntry *rte, const char *alias);

/* Does the command check rows that are there against a foreign key? */
bool
ttl_docs_validates_foreign_key(Node *parsetree)
{
	ListCell   *lc;
	ListCell   *column_lc;

	if (!IsA(parsetree, AlterTableStmt))
		return false;
	foreach(lc, ((AlterTableStmt *) parsetree)->cmds)
	{
		AlterTableCmd *cmd = lfirst_node(AlterTableCmd, lc);

		if (compat_sets_expression(cmd))
			return true;		/* makes foreign keys of the column anew */
		switch (cmd->subtype)
		{
			case AT_AddConstraint:
				if (is_foreign_key(cmd->def))
					return true;
				break;
			case AT_AddColumn:
				foreach(column_lc, castNode(ColumnDef, cmd->def)->constraints)
					if (is_foreign_key(lfirst(column_lc)))
						return true;
				break;
			case AT_ValidateConstraint:
			case AT_AlterConstraint:	/* ENFORCED checks the rows */
			case AT_AlterColumnType:	/* makes foreign keys of it anew */
			case AT_AttachPartition:
				return true;
			default:
				break;
		}
	}
	return false;
}

static bool
is_foreign_key(Node *constraint)
{
	return IsA(constraint, Constraint) &&
		((Constraint *) constraint)->contype == CONSTR_FOREIGN;
}

/* The command itself is through; what follows is our own work. */
void
ttl_docs_stop_validation(void)
{
	ttl_docs_running_command()->may_validate = false;
}

/*
 * Can that be core's query for the children without a parent, "SELECT fk.x FROM
 * ONLY child fk LEFT JOIN ONLY parent pk ON ... WHERE pk.y IS NULL"?
 */
bool
ttl_docs_looks_like_validation(const Query *parse)
{
	const UtilityCommand *command = ttl_docs_running_command();

	return command != NULL && command->may_validate &&
		parse->commandType == CMD_SELECT && list_length(parse->rtable) >= 2 &&
		is_table_named(rt_fetch(1, parse->rtable), CHILD_ALIAS) &&
		is_table_named(rt_fetch(2, parse->rtable), PARENT_ALIAS);
}

/* Does such a query use that table as the parent? */
bool
ttl_docs_is_validated_parent(const RangeTblEntry *rte)
{
	return is_table_named(rte, PARENT_ALIAS);
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
	const UtilityCommand *command = ttl_docs_running_command();

	if (!is_query_of_core(queryDesc, eflags))
		return;
	query->foreign_key_check = InNoForceRLSOperation() &&
		stmt->commandType == CMD_SELECT && stmt->rowMarks != NIL;
	query->foreign_key_action = InNoForceRLSOperation() &&
		(stmt->commandType == CMD_UPDATE || stmt->commandType == CMD_DELETE) &&
		names_one_table(stmt);
	/* a period of time is covered by several parents */
	query->needs_all_rows = query->foreign_key_check && IsA(stmt->planTree, Agg);
	query->validates_foreign_key = command != NULL && command->may_validate &&
		ttl_docs_running_query() == command->outer_running;
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
