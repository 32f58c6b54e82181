/*-------------------------------------------------------------------------
 *
 * wrong_partition.c
 *		Raises the right error for a row that is sent to the wrong partition.
 *
 * An INSERT can name a partition.  If the row does not belong to this
 * partition, core raises a check violation after the BEFORE triggers.  But
 * core also checks the partition after each BEFORE trigger that returns a
 * changed row.  Then it blames the trigger: "moving row to another partition
 * ... is not supported".  Our trigger always returns a changed row, but never
 * changes a partition key.  So our trigger makes core check the row first.
 * The client gets the same error as for a plain table.
 *
 * Rows that core routes from a partitioned table are in the right partition.
 * If the running query shows that its rows are routed, we do not check them.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "executor/executor.h"
#include "nodes/plannodes.h"
#include "parser/parsetree.h"
#include "utils/rel.h"

#include "write/write_internal.h"

struct PartitionCheck
{
	ResultRelInfo relinfo;
	EState	   *estate;
	TupleTableSlot *row;
};

static bool may_be_target(Oid relid);

/*
 * Prepares calls of ttl_docs_check_partition(), in the current memory
 * context.  Returns NULL if the rows of the partition need no check.
 */
PartitionCheck *
ttl_docs_make_partition_check(Relation rel)
{
	PartitionCheck *check;

	if (!may_be_target(RelationGetRelid(rel)))
		return NULL;
	check = palloc0(sizeof(PartitionCheck));
	check->estate = CreateExecutorState();

	/*
	 * Range table index 0 stands for none.  Core then does not know which
	 * columns the statement sets, so its error message shows only columns
	 * that the user may read.
	 */
	InitResultRelInfo(&check->relinfo, rel, 0, NULL, 0);
	/* a copy, because nobody would release a reference to the original */
	check->row = MakeSingleTupleTableSlot(CreateTupleDescCopy(RelationGetDescr(rel)),
										  &TTSOpsHeapTuple);
	return check;
}

/* Can the partition be a target that the running command names? */
static bool
may_be_target(Oid relid)
{
	const PlannedStmt *stmt = ttl_docs_running_stmt();

	if (stmt == NULL)
		return true;			/* COPY, or replication */
	for (int rti = 1; rti <= list_length(stmt->rtable); rti++)
		if (compat_is_target(stmt, rti) && rt_fetch(rti, stmt->rtable)->relid == relid)
			return true;
	return false;
}

/* Raises core's error if a new row does not belong to its partition. */
void
ttl_docs_check_partition(PartitionCheck *check, HeapTuple tuple)
{
	ResetPerTupleExprContext(check->estate);
	ExecStoreHeapTuple(tuple, check->row, false);
	ExecPartitionCheck(&check->relinfo, check->row, check->estate, true);
	ExecClearTuple(check->row);
}
