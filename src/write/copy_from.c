/*-------------------------------------------------------------------------
 *
 * copy_from.c
 *		COPY FROM into a collection, many rows at a time.
 *
 * Core inserts row by row into a table that has a BEFORE ROW trigger, because
 * such a trigger may look at the table.  Ours looks for expired documents that hold
 * a key of the new row, which can be done for many rows before they go in
 * together.  So where ours is the only one, we call none: rows are read by
 * core, stamped in place, and kept; and when there are enough of them, their keys
 * are freed, and they go in page by page, as they do for a table without triggers.
 *
 * This is for what is usual.  Whatever else COPY can do is left to core, which
 * fires the trigger: WHERE, FREEZE, ON_ERROR, partitioned tables, other BEFORE ROW
 * triggers, transition tables, volatile defaults, replication and restores; and so
 * is what will fail because of row security, or for want of a right to read files,
 * so that the error is core's.  With the command, the hooks are passed over that other libraries set up
 * before ours (they may count or audit commands); where there are such, nothing is
 * done here.
 *
 * Differences that can be seen, as for tables without triggers: a row holds its key
 * only when it is in; of several errors, that of a later line may be the first; and
 * functions that CHECK constraints call do not find the rows that wait.  Triggers
 * and foreign key actions that fire because a key is freed do: where there is an
 * expired document to delete, the rows before it go in first.
 *
 * A row is stamped, and its expiry announced (purge/earliest.c), when it is read.
 * It may then have to wait for the client to send more.
 *
 * Locks, memory and errors are as in core: the table is open and locked from the
 * first look to the end, so that nothing that was decided here can change
 * meanwhile; an error ends the transaction, and resource owners and memory
 * contexts clean up.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_trigger.h"
#include "commands/copy.h"
#include "commands/copyfrom_internal.h"
#include "commands/progress.h"
#include "commands/trigger.h"
#include "executor/executor.h"
#include "executor/nodeModifyTable.h"
#include "miscadmin.h"
#include "optimizer/optimizer.h"
#include "parser/parse_relation.h"
#include "rewrite/rewriteHandler.h"
#include "tcop/utility.h"
#include "utils/acl.h"
#include "utils/backend_progress.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/rls.h"

#include "write/write_internal.h"

/* How many rows go in together: no more than are in the processor's cache */
#define MAX_ROWS	1000
#define MAX_BYTES	65536

typedef struct BulkCopy
{
	DocumentWriter writer;
	Relation	rel;
	CopyFromState source;
	EState	   *estate;
	ResultRelInfo *relinfo;
	BulkInsertState pages;
	CommandId	cid;
	TupleTableSlot *rows[MAX_ROWS]; /* made when first needed, then kept */
	uint64		lines[MAX_ROWS];	/* where they stood */
	int			nrows;
	int			at;				/* the one whose keys are being freed */
	int			ninserted;		/* so many are in */
	Size		bytes;			/* of these rows */
	uint64		processed;
} BulkCopy;

static bool try_copy(CopyStmt *stmt, const char *queryString, uint64 *processed);
static bool is_usual_command(const CopyStmt *stmt);
static Relation open_usual_table(const RangeVar *name, Collection *collection);
static bool has_only_our_trigger(const TriggerDesc *triggers);
static bool has_volatile_default(Relation rel, List *columns, AttrNumber stamp);
static ParseState *check_rights(Relation rel, List *columns,
								const char *queryString);
static uint64 bulk_copy(Relation rel, const Collection *collection,
						const CopyStmt *stmt, ParseState *pstate);
static void begin_bulk_copy(BulkCopy *copy, Relation rel,
							const Collection *collection, const CopyStmt *stmt,
							ParseState *pstate);
static bool read_row(BulkCopy *copy);
static void check_row(BulkCopy *copy, TupleTableSlot *row);
static void flush_rows(BulkCopy *copy);
static void free_keys_and_insert(BulkCopy *copy);
static void insert_rows_before(void *arg);
static void insert_rows(BulkCopy *copy, int end);
static void end_bulk_copy(BulkCopy *copy);

/*
 * Raises an error for COPY FROM into a collection without its trigger: COPY FROM has
 * no plan in which access/plan.c would find that.
 */
void
ttl_docs_refuse_copy_without_trigger(Node *parsetree)
{
	CopyStmt   *stmt = (CopyStmt *) parsetree;
	Collection	collection;
	Oid			relid;

	if (!IsA(parsetree, CopyStmt) || !stmt->is_from || stmt->relation == NULL)
		return;
	relid = RangeVarGetRelid(stmt->relation, AccessShareLock, true);
	if (OidIsValid(relid) && ttl_docs_lookup_collection(relid, &collection))
		ttl_docs_require_trigger(relid, &collection);
}

/* Runs the command, if it is a usual COPY to a collection; false if it is not. */
bool
ttl_docs_copy_many_rows(Node *parsetree, const char *queryString, QueryCompletion *qc)
{
	uint64		processed;

	if (!IsA(parsetree, CopyStmt) ||
		!try_copy((CopyStmt *) parsetree, queryString, &processed))
		return false;
	if (qc != NULL)
		SetQueryCompletion(qc, CMDTAG_COPY, processed);
	/* as after every command: what runs at the commit sees the rows */
	CommandCounterIncrement();
	return true;
}

static bool
try_copy(CopyStmt *stmt, const char *queryString, uint64 *processed)
{
	Collection	collection;
	Relation	rel;
	List	   *columns;
	ParseState *pstate;
	bool		is_usual;

	if (!is_usual_command(stmt))
		return false;
	rel = open_usual_table(stmt->relation, &collection);
	if (rel == NULL)
		return false;
	columns = CopyGetAttnums(RelationGetDescr(rel), rel, stmt->attlist);
	pstate = check_rights(rel, columns, queryString);
	/* computes what is constant in the defaults, so not before that */
	is_usual = !has_volatile_default(rel, columns, collection.ts);
	if (is_usual)
		*processed = bulk_copy(rel, &collection, stmt, pstate);
	free_parsestate(pstate);
	table_close(rel, NoLock);
	return is_usual;
}

static bool
is_usual_command(const CopyStmt *stmt)
{
	static const char *const usual_options[] = {"format", "delimiter", "null",
		"header", "quote", "escape", "force_not_null", "force_null", "encoding"};
	ListCell   *lc;

	if (!stmt->is_from || stmt->relation == NULL || stmt->whereClause != NULL ||
		XactReadOnly || IsInParallelMode() ||
		SessionReplicationRole == SESSION_REPLICATION_ROLE_REPLICA)
		return false;
	if (stmt->filename != NULL &&
		!has_privs_of_role(GetUserId(), stmt->is_program ?
						   ROLE_PG_EXECUTE_SERVER_PROGRAM : ROLE_PG_READ_SERVER_FILES))
		return false;
	foreach(lc, stmt->options)
	{
		bool		is_usual = false;

		for (size_t i = 0; i < lengthof(usual_options); i++)
			is_usual |= strcmp(lfirst_node(DefElem, lc)->defname, usual_options[i]) == 0;
		if (!is_usual)
			return false;
	}
	return true;
}

/* The table, locked, or NULL if it is no collection, or not a usual one. */
static Relation
open_usual_table(const RangeVar *name, Collection *collection)
{
	Oid			relid = RangeVarGetRelid(name, RowExclusiveLock, true);
	Relation	rel;

	if (!OidIsValid(relid) || get_rel_relkind(relid) != RELKIND_RELATION ||
		!ttl_docs_lookup_collection(relid, collection) ||
		collection->ts <= 0 || collection->ttl <= 0 || collection->slot <= 0 ||
		ttl_docs_acts_for_backup(collection->root) ||
		check_enable_rls(relid, InvalidOid, true) == RLS_ENABLED)
		return NULL;
	rel = table_open(relid, NoLock);
	if (has_only_our_trigger(rel->trigdesc))
		return rel;
	table_close(rel, NoLock);
	return NULL;
}

/* Among those before rows; and there is none with a transition table. */
static bool
has_only_our_trigger(const TriggerDesc *triggers)
{
	bool		is_there = false;

	if (triggers == NULL || triggers->trig_insert_new_table)
		return false;
	for (int i = 0; i < triggers->numtriggers; i++)
	{
		const Trigger *trigger = &triggers->triggers[i];

		if (!TRIGGER_TYPE_MATCHES(trigger->tgtype, TRIGGER_TYPE_ROW,
								  TRIGGER_TYPE_BEFORE, TRIGGER_TYPE_INSERT) ||
			trigger->tgenabled == TRIGGER_DISABLED)
			continue;
		if (trigger->tgenabled == TRIGGER_FIRES_ON_REPLICA ||
			trigger->tgfoid != ttl_docs_trigger_function())
			return false;
		is_there = true;
	}
	return is_there;
}

/*
 * Is there a default that may look at the table?  That of the stamp does not
 * count: its value is not used.
 */
static bool
has_volatile_default(Relation rel, List *columns, AttrNumber stamp)
{
	TupleDesc	tupdesc = RelationGetDescr(rel);

	for (int attno = 1; attno <= tupdesc->natts; attno++)
	{
		Form_pg_attribute att = TupleDescAttr(tupdesc, attno - 1);
		Node	   *expression;

		if (att->attisdropped || att->attgenerated || attno == stamp ||
			list_member_int(columns, attno))
			continue;
		expression = build_column_default(rel, attno);
		if (expression != NULL &&
			contain_volatile_functions_not_nextval((Node *) expression_planner((Expr *) expression)))
			return true;
	}
	return false;
}

/* Raises an error unless the user may insert into these columns. */
static ParseState *
check_rights(Relation rel, List *columns, const char *queryString)
{
	ParseState *pstate = make_parsestate(NULL);
	ParseNamespaceItem *item;
	Bitmapset  *inserted = NULL;
	ListCell   *lc;

	pstate->p_sourcetext = queryString;
	item = addRangeTableEntryForRelation(pstate, rel, RowExclusiveLock, NULL,
										 false, false);
	foreach(lc, columns)
		inserted = bms_add_member(inserted,
								  lfirst_int(lc) - FirstLowInvalidHeapAttributeNumber);
	compat_check_insert(pstate, item, inserted);
	return pstate;
}

static uint64
bulk_copy(Relation rel, const Collection *collection, const CopyStmt *stmt,
		  ParseState *pstate)
{
	BulkCopy   *copy = palloc0(sizeof(BulkCopy));
	ErrorContextCallback context;
	uint64		processed;

	begin_bulk_copy(copy, rel, collection, stmt, pstate);
	AfterTriggerBeginQuery();
	ExecBSInsertTriggers(copy->estate, copy->relinfo);

	context.callback = CopyFromErrorCallback;
	context.arg = copy->source;
	context.previous = error_context_stack;
	error_context_stack = &context;
	while (read_row(copy))
	{
		if (copy->nrows == MAX_ROWS || copy->bytes >= MAX_BYTES)
			flush_rows(copy);
	}
	flush_rows(copy);
	error_context_stack = context.previous;

	/* its pin is not for triggers that look at the table */
	FreeBulkInsertState(copy->pages);
	ExecASInsertTriggers(copy->estate, copy->relinfo, NULL);
	AfterTriggerEndQuery(copy->estate);
	processed = copy->processed;
	end_bulk_copy(copy);
	return processed;
}

static void
begin_bulk_copy(BulkCopy *copy, Relation rel, const Collection *collection,
				const CopyStmt *stmt, ParseState *pstate)
{
	MemoryContext caller;

	copy->rel = rel;
	copy->estate = CreateExecutorState();
	copy->cid = GetCurrentCommandId(true);
	caller = MemoryContextSwitchTo(copy->estate->es_query_cxt);
	ttl_docs_begin_writes(&copy->writer, rel, collection);
	compat_ExecInitRangeTable(copy->estate, pstate);
	copy->relinfo = makeNode(ResultRelInfo);
	ExecInitResultRelation(copy->estate, copy->relinfo, 1);
	ExecOpenIndices(copy->relinfo, false);
	copy->pages = GetBulkInsertState();
	MemoryContextSwitchTo(caller);
	/* asks the client for the rows */
	copy->source = BeginCopyFrom(pstate, rel, NULL, stmt->filename, stmt->is_program,
								 NULL, stmt->attlist, stmt->options);
}

/* Reads, stamps and checks a row, and keeps it; false if there are no more. */
static bool
read_row(BulkCopy *copy)
{
	EState	   *estate = copy->estate;
	TupleTableSlot *row = copy->rows[copy->nrows];
	MemoryContext caller;
	bool		is_row;

	CHECK_FOR_INTERRUPTS();
	ResetPerTupleExprContext(estate);
	if (row == NULL)
	{
		caller = MemoryContextSwitchTo(estate->es_query_cxt);
		row = table_slot_create(copy->rel, &estate->es_tupleTable);
		copy->rows[copy->nrows] = row;
		MemoryContextSwitchTo(caller);
	}

	caller = MemoryContextSwitchTo(GetPerTupleMemoryContext(estate));
	is_row = NextCopyFrom(copy->source, GetPerTupleExprContext(estate),
						  row->tts_values, row->tts_isnull);
	if (is_row)
	{
		ttl_docs_stamp_values(&copy->writer, copy->rel, row->tts_values,
							  row->tts_isnull);
		ExecStoreVirtualTuple(row);
		row->tts_tableOid = RelationGetRelid(copy->rel);
		check_row(copy, row);
		/* what it points to does not live as long as it has to */
		ExecMaterializeSlot(row);
		copy->bytes += ExecFetchSlotHeapTuple(row, false, NULL)->t_len;
		copy->lines[copy->nrows++] = copy->source->cur_lineno;
	}
	MemoryContextSwitchTo(caller);
	return is_row;
}

/* Computes generated columns, and checks constraints. */
static void
check_row(BulkCopy *copy, TupleTableSlot *row)
{
	TupleConstr *constr = RelationGetDescr(copy->rel)->constr;

	if (constr != NULL && constr->has_generated_stored)
		ExecComputeStoredGenerated(copy->relinfo, copy->estate, row, CMD_INSERT);
	if (constr != NULL)
		ExecConstraints(copy->relinfo, row, copy->estate);
	if (copy->rel->rd_rel->relispartition)
		ExecPartitionCheck(copy->relinfo, row, copy->estate, true);
}

/* Has the rows that were kept go in; an error names the line of its row. */
static void
flush_rows(BulkCopy *copy)
{
	CopyFromState source = copy->source;
	uint64		line = source->cur_lineno;
	bool		line_buf_valid = source->line_buf_valid;

	if (copy->nrows == 0)
		return;
	source->line_buf_valid = false;
	free_keys_and_insert(copy);
	source->line_buf_valid = line_buf_valid;
	source->cur_lineno = line;

	copy->processed += copy->nrows;
	copy->nrows = 0;
	copy->ninserted = 0;
	copy->bytes = 0;
	pgstat_progress_update_param(PROGRESS_COPY_TUPLES_PROCESSED, copy->processed);
}

/*
 * Frees the keys of the rows, only now, whenever they were read: what expires
 * meanwhile is found, too.  Then they go in.
 */
static void
free_keys_and_insert(BulkCopy *copy)
{
	KeyProbe   *keys = copy->writer.keys;

	if (ttl_docs_must_free_keys(keys, copy->rel, ttl_docs_clock()))
	{
		MemoryContext caller = MemoryContextSwitchTo(GetPerTupleMemoryContext(copy->estate));

		for (copy->at = 0; copy->at < copy->nrows; copy->at++)
		{
			copy->source->cur_lineno = copy->lines[copy->at];
			ttl_docs_free_keys_of(keys, copy->rel, copy->rows[copy->at],
								  insert_rows_before, copy);
		}
		MemoryContextSwitchTo(caller);
	}
	insert_rows(copy, copy->nrows);
}

/*
 * An expired document is about to go, and triggers and foreign key actions with
 * it: they find the rows that stood before the one that wants its key.
 */
static void
insert_rows_before(void *arg)
{
	BulkCopy   *copy = arg;

	insert_rows(copy, copy->at);
	copy->source->cur_lineno = copy->lines[copy->at];
}

/* Has the rows go in, up to that one, that are not in yet. */
static void
insert_rows(BulkCopy *copy, int end)
{
	MemoryContext caller;

	if (copy->ninserted == end)
		return;
	caller = MemoryContextSwitchTo(GetPerTupleMemoryContext(copy->estate));
	table_multi_insert(copy->rel, copy->rows + copy->ninserted,
					   end - copy->ninserted, copy->cid, 0, copy->pages);
	MemoryContextSwitchTo(caller);
	for (; copy->ninserted < end; copy->ninserted++)
	{
		TupleTableSlot *row = copy->rows[copy->ninserted];
		List	   *recheck = NIL;

		copy->source->cur_lineno = copy->lines[copy->ninserted];
		if (copy->relinfo->ri_NumIndices > 0)
			recheck = compat_ExecInsertIndexTuples(copy->relinfo, row, copy->estate,
												   COMPAT_ALL_INDEXES);
		ExecARInsertTriggers(copy->estate, copy->relinfo, row, recheck, NULL);
		list_free(recheck);
		ExecClearTuple(row);
	}
}

static void
end_bulk_copy(BulkCopy *copy)
{
	EState	   *estate = copy->estate;

	table_finish_bulk_insert(copy->rel, 0);
	EndCopyFrom(copy->source);
	ExecResetTupleTable(estate->es_tupleTable, false);
	ExecCloseResultRelations(estate);
	ExecCloseRangeTableRelations(estate);
	FreeExecutorState(estate);
	pfree(copy);
}
