/*-------------------------------------------------------------------------
 *
 * copy_from.c
 *		COPY FROM into a collection, many rows at a time.
 *
 * If a table has a BEFORE ROW trigger, core inserts row by row, because the
 * trigger may query the table.  Our trigger queries the table only to find
 * expired documents that hold a key of the new row.  This can also be done
 * for a batch of rows, before they are inserted together.  So if ours is the
 * only such trigger, we do not fire it.  Instead, for each batch:
 * 1. Core reads the rows.  We stamp each row in place and keep it in memory.
 * 2. We free the keys of all rows.
 * 3. We insert the rows page by page, as core does for a table without
 *    triggers.
 *
 * Only the common case is handled here.  We leave all other commands to core,
 * which fires the trigger:
 * - COPY with WHERE, FREEZE, ON_ERROR or another option that
 *   is_supported_command() does not list;
 * - COPY into a partitioned table, or into a table that has other BEFORE ROW
 *   triggers, transition tables or volatile defaults;
 * - COPY by replication or a restore, and COPY with which Citus fills a table;
 * - COPY into a distributed table, which Citus runs;
 * - COPY that core will refuse: in a read-only transaction or in parallel
 *   mode, because of row security, or because the user lacks the privilege to
 *   read files or to run programs.  Core raises its own error.
 *
 * Running COPY here skips the hooks of libraries that were loaded before us.
 * They may count or audit commands.  So if there are such hooks, core runs
 * every COPY.  There is one exception: the hook of Citus does nothing for COPY
 * into a table that is not distributed, such as a shard (citus/session.c).
 *
 * Users can notice these differences, which are the same as for a table
 * without triggers:
 * - A row holds its key only after it was inserted.
 * - If several lines have errors, the error of a later line may come first.
 * - Functions that CHECK constraints call do not see the rows of the batch.
 * Triggers and foreign key actions that fire because a key is freed do see
 * these rows: before we delete an expired document, we insert the rows that
 * precede the one that needs the key.
 *
 * A row is stamped when it is read, and its expiry is announced at the same
 * time (purge/earliest.c).  The row may then stay in memory until the client
 * sends more.
 *
 * Locks, memory and errors are as in core.  The table is open and locked from
 * our first check to the end, so the results of our checks stay true.  An
 * error ends the transaction; resource owners and memory contexts clean up.
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

/* Maximum size of a batch.  A batch should fit into the processor's cache. */
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
	TupleTableSlot *rows[MAX_ROWS]; /* the batch; a slot is created when first
									 * needed, and then reused */
	uint64		lines[MAX_ROWS];	/* line number of each row */
	int			nrows;			/* number of rows in the batch */
	int			current;		/* position of the row whose keys we free */
	int			ninserted;		/* number of rows that are already inserted */
	Size		bytes;			/* size of the batch */
	uint64		processed;		/* number of rows in earlier batches */
} BulkCopy;

static bool try_copy(CopyStmt *stmt, const char *queryString, uint64 *processed);
static bool is_supported_command(const CopyStmt *stmt);
static Relation open_supported_table(const RangeVar *name, Collection *collection);
static bool has_only_our_trigger(const TriggerDesc *triggers);
static bool has_volatile_default(Relation rel, List *columns,
								 AttrNumber ts_column);
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
static void insert_rows_before_current(void *arg);
static void insert_rows(BulkCopy *copy, int end);
static void end_bulk_copy(BulkCopy *copy);

/*
 * Raises an error for COPY FROM into a collection that has lost its trigger.
 * For other commands, access/plan.c checks the trigger; COPY FROM has no
 * plan.
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
	if (OidIsValid(relid))
		ttl_docs_require_parent_triggers(relid);
	if (OidIsValid(relid) && ttl_docs_lookup_collection(relid, &collection))
	{
		ttl_docs_require_trigger(relid, &collection);
		ttl_docs_refuse_distributed_restore(relid);
	}
}

/* Runs the command, or returns false if core must run it. */
bool
ttl_docs_run_copy_from(Node *parsetree, const char *queryString, QueryCompletion *qc)
{
	uint64		processed;

	if (!IsA(parsetree, CopyStmt) ||
		!try_copy((CopyStmt *) parsetree, queryString, &processed))
		return false;
	if (qc != NULL)
		SetQueryCompletion(qc, CMDTAG_COPY, processed);

	/* as after every command: code that runs at commit must see the rows */
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
	bool		is_supported;

	if (!is_supported_command(stmt))
		return false;
	rel = open_supported_table(stmt->relation, &collection);
	if (rel == NULL)
		return false;
	columns = CopyGetAttnums(RelationGetDescr(rel), rel, stmt->attlist);
	pstate = check_rights(rel, columns, queryString);

	/* after check_rights(), because this evaluates constants in defaults */
	is_supported = !has_volatile_default(rel, columns, collection.ts);
	if (is_supported)
		*processed = bulk_copy(rel, &collection, stmt, pstate);
	free_parsestate(pstate);
	table_close(rel, NoLock);
	return is_supported;
}

static bool
is_supported_command(const CopyStmt *stmt)
{
	static const char *const supported_options[] = {"format", "delimiter", "null",
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
		const char *option = lfirst_node(DefElem, lc)->defname;
		bool		is_supported = false;

		for (size_t i = 0; i < lengthof(supported_options); i++)
			is_supported |= strcmp(option, supported_options[i]) == 0;
		if (!is_supported)
			return false;
	}
	return true;
}

/*
 * Locks and opens the table.  Returns NULL if the table is not a collection,
 * or if we do not support it; the lock stays.
 */
static Relation
open_supported_table(const RangeVar *name, Collection *collection)
{
	Oid			relid = RangeVarGetRelid(name, RowExclusiveLock, true);
	Relation	rel;

	if (!OidIsValid(relid) || get_rel_relkind(relid) != RELKIND_RELATION ||
		!ttl_docs_lookup_collection(relid, collection) ||
		collection->ts <= 0 || collection->ttl <= 0 || collection->slot <= 0 ||
		(collection->settings.citus && ttl_docs_is_shell(relid)) ||
		ttl_docs_keeps_stamps(relid, collection) ||
		check_enable_rls(relid, InvalidOid, true) == RLS_ENABLED)
		return NULL;
	rel = table_open(relid, NoLock);
	if (has_only_our_trigger(rel->trigdesc))
		return rel;
	table_close(rel, NoLock);
	return NULL;
}

/*
 * Is our trigger the only BEFORE ROW trigger for INSERT?  And does no trigger
 * use a transition table for INSERT?
 */
static bool
has_only_our_trigger(const TriggerDesc *triggers)
{
	bool		has_ours = false;

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
		has_ours = true;
	}
	return has_ours;
}

/*
 * Is there a default that may query the table?  "columns" are the columns
 * that COPY reads, which need no default.  The default of _ts does not count,
 * because its value is not used.
 */
static bool
has_volatile_default(Relation rel, List *columns, AttrNumber ts_column)
{
	TupleDesc	tupdesc = RelationGetDescr(rel);

	for (int attno = 1; attno <= tupdesc->natts; attno++)
	{
		Form_pg_attribute att = TupleDescAttr(tupdesc, attno - 1);
		Node	   *expression;

		if (att->attisdropped || att->attgenerated || attno == ts_column ||
			list_member_int(columns, attno))
			continue;
		expression = build_column_default(rel, attno);
		if (expression != NULL &&
			contain_volatile_functions_not_nextval((Node *) expression_planner((Expr *) expression)))
			return true;
	}
	return false;
}

/*
 * Raises an error unless the user may insert into these columns.  Returns a
 * parse state that has the table in its range table.
 */
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

	/* unpin the last page before triggers run: they may query the table */
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
	copy->writer.collection = *collection;
	ttl_docs_begin_writes(&copy->writer, rel);
	compat_ExecInitRangeTable(copy->estate, pstate);
	copy->relinfo = makeNode(ResultRelInfo);
	ExecInitResultRelation(copy->estate, copy->relinfo, 1);
	ExecOpenIndices(copy->relinfo, false);
	copy->pages = GetBulkInsertState();
	MemoryContextSwitchTo(caller);
	/* also asks the client to send the rows */
	copy->source = BeginCopyFrom(pstate, rel, NULL, stmt->filename, stmt->is_program,
								 NULL, stmt->attlist, stmt->options);
}

/* Adds the next row to the batch, stamped and checked; false at the end. */
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
		/* the slot points into per-tuple memory, which the next row resets */
		ExecMaterializeSlot(row);
		copy->bytes += ExecFetchSlotHeapTuple(row, false, NULL)->t_len;
		copy->lines[copy->nrows++] = copy->source->cur_lineno;
	}
	MemoryContextSwitchTo(caller);
	return is_row;
}

/* Computes generated columns and checks constraints. */
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

/* Inserts the batch and empties it.  An error names the line of its row. */
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
 * Frees the keys of the batch, and inserts the rows.  Keys are not freed when
 * a row is read, because a document that holds a key may expire after that.
 */
static void
free_keys_and_insert(BulkCopy *copy)
{
	MemoryContext caller = MemoryContextSwitchTo(GetPerTupleMemoryContext(copy->estate));

	copy->writer.clock = ttl_docs_clock();
	if (ttl_docs_must_free_keys_of_batch(&copy->writer, copy->rel, copy->nrows))
	{
		for (copy->current = 0; copy->current < copy->nrows; copy->current++)
		{
			copy->source->cur_lineno = copy->lines[copy->current];
			ttl_docs_free_keys_of_row(&copy->writer, copy->rel,
									  copy->rows[copy->current],
									  insert_rows_before_current, copy);
		}
	}
	MemoryContextSwitchTo(caller);
	insert_rows(copy, copy->nrows);
}

/*
 * Called before an expired document is deleted, to free a key of the current
 * row.  Inserts the rows that precede the current row, so that triggers and
 * foreign key actions of the delete see them.
 */
static void
insert_rows_before_current(void *arg)
{
	BulkCopy   *copy = arg;

	insert_rows(copy, copy->current);
	copy->source->cur_lineno = copy->lines[copy->current];
}

/* Inserts the rows before position "end" that are not inserted yet. */
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
