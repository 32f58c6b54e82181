/*-------------------------------------------------------------------------
 *
 * wrong_partition.c
 *		Refuses a row that is sent to the wrong partition.
 *
 * An INSERT can name a partition.  If the row does not belong there, core raises a
 * check violation after the BEFORE triggers.  But core also looks after each BEFORE
 * trigger that returns another row, and then takes the wrong partition for the work
 * of that trigger: "moving row to another partition ... is not supported".  Our
 * trigger returns another row each time, and never changes a partition key.  So it
 * has core check the row first, and the client gets the error that a plain table
 * would give.
 *
 * Rows that core routes from a partitioned table are in the right partition.  Where
 * the running query tells that they are routed, they are not checked.
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

static bool may_be_named(Oid relid);

/*
 * What ttl_docs_check_partition() needs, in the current memory context; NULL if the
 * rows of the table need no check.
 */
PartitionCheck *
ttl_docs_partition_check(Relation rel)
{
	PartitionCheck *check;

	if (!rel->rd_rel->relispartition || !may_be_named(RelationGetRelid(rel)))
		return NULL;
	check = palloc0(sizeof(PartitionCheck));
	check->estate = CreateExecutorState();
	/* no index in a range table: core then asks for rights on the whole table
	 * before it shows the row */
	InitResultRelInfo(&check->relinfo, rel, 0, NULL, 0);
	/* a copy, because nobody would release the table's own */
	check->row = MakeSingleTupleTableSlot(CreateTupleDescCopy(RelationGetDescr(rel)),
										  &TTSOpsHeapTuple);
	return check;
}

/* Does the running command write to that very partition, as far as we know? */
static bool
may_be_named(Oid relid)
{
	const PlannedStmt *stmt = ttl_docs_running_stmt();
	ListCell   *lc;

	if (stmt == NULL)
		return true;			/* COPY, or replication */
	foreach(lc, stmt->resultRelations)
		if (rt_fetch(lfirst_int(lc), stmt->rtable)->relid == relid)
			return true;
	return false;
}

/* Raises core's error if a new row does not belong to its partition. */
void
ttl_docs_check_partition(PartitionCheck *check, HeapTuple tuple)
{
	if (check == NULL)
		return;
	ResetPerTupleExprContext(check->estate);
	ExecStoreHeapTuple(tuple, check->row, false);
	ExecPartitionCheck(&check->relinfo, check->row, check->estate, true);
	ExecClearTuple(check->row);
}
