/*-------------------------------------------------------------------------
 *
 * foreign_key.c
 *		Recognises the queries with which core checks foreign keys.
 *
 * Since PostgreSQL 19, core checks the parent of a new child without a query,
 * if the parent is a plain table.  write/parent_check.c then runs the query that
 * core ran before, in the same way, and what is said of core's checks here is also
 * true of ours.
 *
 * Core checks foreign keys with SQL.  Three kinds of these queries are judged
 * in a special way (visibility.c):
 *
 * check		locks the parent of a new child.  Judged at the clock.
 * action		deletes or updates the children of a parent.  Sees them all.
 * validation	looks for children without a parent, for ADD and VALIDATE
 *				FOREIGN KEY.  All parents on disk count, because a restore
 *				must not fail on an expired parent.  Expired children need no
 *				parent.
 *
 * Actions and validations see expired documents, so we must never mistake a
 * user's query for one of them.  We recognise core's queries by the way they
 * are executed: the executor does not fire triggers
 * (EXEC_FLAG_SKIP_TRIGGERS), and sends the rows to SPI.  In PostgreSQL 15 to
 * 19, only SPI_execute_snapshot() with fire_triggers = false does both, and
 * only ri_triggers.c and write/parent_check.c call it in this way.  SQL cannot do both: queries of
 * procedural languages fire triggers; SQL functions that are evaluated row by
 * row do not, but send their rows to their own receiver.  Our own queries
 * fire triggers, too (core/owner.c).
 *
 * After that, the shape of a query only has to tell core's queries from one
 * another.  The planner hook recognises the shape of a validation in the
 * parse tree.  The scan of the parents then gets the test is_live_parent().
 * This test lets all rows pass if the query is executed as a validation, and
 * works like is_live() otherwise.  A query is executed as a validation only
 * if ALTER TABLE runs it directly.  Functions that ALTER TABLE calls run
 * inside of their own queries or commands, so their queries do not count.
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

#define CHILD_ALIAS		"fk"	/* aliases in core's queries */
#define PARENT_ALIAS	"pk"

static bool is_foreign_key(Node *constraint);
static bool names_one_table(const PlannedStmt *stmt);
static bool is_table_named(const RangeTblEntry *rte, const char *alias);

/* Does the command check existing rows against a foreign key? */
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
			return true;		/* recreates foreign keys of the column */
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
			case AT_AlterConstraint:	/* ENFORCED checks existing rows */
			case AT_AlterColumnType:	/* recreates foreign keys */
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

/*
 * Does this look like core's query for children without a parent, "SELECT
 * fk.x FROM ONLY child fk LEFT JOIN ONLY parent pk ON ... WHERE pk.y IS
 * NULL"?
 */
bool
ttl_docs_looks_like_validation(const Query *parse)
{
	return parse->commandType == CMD_SELECT && list_length(parse->rtable) >= 2 &&
		is_table_named(rt_fetch(1, parse->rtable), CHILD_ALIAS) &&
		is_table_named(rt_fetch(2, parse->rtable), PARENT_ALIAS);
}

/* Is this table the parent, in a query that looks like a validation? */
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

/*
 * Finds out whether a query that starts is one of core's foreign key queries.
 * The caller has checked that core started it with EXEC_FLAG_SKIP_TRIGGERS.
 */
void
ttl_docs_recognise_foreign_key_query(LiveQuery *query, const QueryDesc *queryDesc)
{
	const PlannedStmt *stmt = queryDesc->plannedstmt;

	if (queryDesc->dest == NULL || queryDesc->dest->mydest != DestSPI)
		return;
	query->foreign_key_check = InNoForceRLSOperation() &&
		stmt->commandType == CMD_SELECT && stmt->rowMarks != NIL;
	query->foreign_key_action = InNoForceRLSOperation() &&
		(stmt->commandType == CMD_UPDATE || stmt->commandType == CMD_DELETE) &&
		names_one_table(stmt);
	/* with PERIOD, several parents together cover the period of the child */
	query->needs_all_rows = query->foreign_key_check && IsA(stmt->planTree, Agg);
	query->validates_foreign_key = ttl_docs_validation_may_run &&
		ttl_docs_running_query == ttl_docs_running_command()->outer_running;
}

/*
 * Does a command name only its target table?  Core's foreign key actions do.
 * A rule on the child can turn an action into another command, which names its
 * target and the child.  Such a command could show expired documents of any
 * table.
 */
static bool
names_one_table(const PlannedStmt *stmt)
{
	return compat_named_tables(stmt) == 1;
}
