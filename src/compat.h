/*-------------------------------------------------------------------------
 *
 * compat.h
 *		Hides the differences between PostgreSQL 15, 16, 17, 18 and 19.
 *
 * Each difference has one name here.  No other file tests the version.
 *
 * Most entries give one name to two spellings of the same thing.  Others say
 * what a version can do (COMPAT_CORE_...).  These are constants, so that the
 * code for one version is compiled for all of them, and the compiler removes
 * it from the others.
 *
 * The entries for 19 come from the headers of 19~rc1.  Earlier test versions
 * also had ALTER TABLE ... SPLIT PARTITION and MERGE PARTITIONS, UPDATE and
 * DELETE ... FOR PORTION OF, GRAPH_TABLE, and foreign key checks of many rows
 * at a time.  The release candidate has none of them, so nobody has checked
 * what they do to collections.  test/t/047_postgres19.pl fails as soon as a server
 * accepts their syntax.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_DOCS_COMPAT_H
#define TTL_DOCS_COMPAT_H

#include "access/tableam.h"
#include "catalog/pg_class.h"
#include "catalog/pg_database.h"
#include "catalog/pg_extension.h"
#include "nodes/parsenodes.h"
#include "nodes/plannodes.h"
#include "nodes/tidbitmap.h"
#include "utils/jsonb.h"
#if PG_VERSION_NUM >= 160000
#include "nodes/miscnodes.h"
#endif

#if PG_VERSION_NUM < 150000
#error "ttl_docs needs PostgreSQL 15 or newer"
#endif
#if PG_VERSION_NUM >= 200000
#error "nobody has checked yet how PostgreSQL 20 and newer reach the rows of a table; see \"Why no operation sees an expired document\" in src/README.md"
#endif

/* Since 16, one function checks the ownership of all kinds of object */
#if PG_VERSION_NUM < 160000
#define compat_table_ownercheck(relid, roleid) \
	pg_class_ownercheck(relid, roleid)
#define compat_database_ownercheck(database, roleid) \
	pg_database_ownercheck(database, roleid)
#define compat_extension_ownercheck(extension, roleid) \
	pg_extension_ownercheck(extension, roleid)
#else
#define compat_table_ownercheck(relid, roleid) \
	object_ownercheck(RelationRelationId, relid, roleid)
#define compat_database_ownercheck(database, roleid) \
	object_ownercheck(DatabaseRelationId, database, roleid)
#define compat_extension_ownercheck(extension, roleid) \
	object_ownercheck(ExtensionRelationId, extension, roleid)
#endif

/* Since 16, EvalPlanQualInit takes the result relations */
#if PG_VERSION_NUM < 160000
#define compat_EvalPlanQualInit(epqstate, estate) \
	EvalPlanQualInit(epqstate, estate, NULL, NIL, -1)
#else
#define compat_EvalPlanQualInit(epqstate, estate) \
	EvalPlanQualInit(epqstate, estate, NULL, NIL, -1, NIL)
#endif

/*
 * Number of tables that a query names, that is, for which it checks rights.
 * Since 16, the plan has a list of these tables.
 */
#if PG_VERSION_NUM < 160000
static inline int
compat_named_tables(const PlannedStmt *stmt)
{
	int			count = 0;
	ListCell   *lc;

	foreach(lc, stmt->rtable)
		count += lfirst_node(RangeTblEntry, lc)->requiredPerms != 0;
	return count;
}
#else
#define compat_named_tables(stmt)	list_length((stmt)->permInfos)
#endif

/* BEFORE ROW DELETE triggers: 16 and 18 added arguments */
#if PG_VERSION_NUM < 160000
#define compat_ExecBRDeleteTriggers(estate, epqstate, relinfo, tid) \
	ExecBRDeleteTriggers(estate, epqstate, relinfo, tid, NULL, NULL)
#elif PG_VERSION_NUM < 180000
#define compat_ExecBRDeleteTriggers(estate, epqstate, relinfo, tid) \
	ExecBRDeleteTriggers(estate, epqstate, relinfo, tid, NULL, NULL, NULL, NULL)
#else
#define compat_ExecBRDeleteTriggers(estate, epqstate, relinfo, tid) \
	ExecBRDeleteTriggers(estate, epqstate, relinfo, tid, NULL, NULL, NULL, NULL, false)
#endif

/* 18 removed execute_once from ExecutorRun */
#if PG_VERSION_NUM < 180000
#define COMPAT_RUN_PARAMS	QueryDesc *queryDesc, ScanDirection direction, uint64 count, bool execute_once
#define COMPAT_RUN_ARGS		queryDesc, direction, count, execute_once
#else
#define COMPAT_RUN_PARAMS	QueryDesc *queryDesc, ScanDirection direction, uint64 count
#define COMPAT_RUN_ARGS		queryDesc, direction, count
#endif

/*
 * TRUNCATE of a table that the caller has locked and checked.  16 added an
 * argument: the tables of subscriptions can belong to other users.
 */
#if PG_VERSION_NUM < 160000
#define compat_truncate(rels, relids, logged) \
	ExecuteTruncateGuts(rels, relids, logged, DROP_RESTRICT, false)
#else
#define compat_truncate(rels, relids, logged) \
	ExecuteTruncateGuts(rels, relids, logged, DROP_RESTRICT, false, false)
#endif

/*
 * The WAL record with which a btree announces that a page is used again.  16
 * renamed two fields, and added a flag for catalogs.
 */
#if PG_VERSION_NUM < 160000
#define compat_set_reuse_page(record, index, xid) \
	((record)->node = (index)->rd_node, \
	 (record)->block = 0, \
	 (record)->latestRemovedFullXid = (xid))
#else
#define compat_set_reuse_page(record, index, xid) \
	((record)->locator = (index)->rd_locator, \
	 (record)->block = 0, \
	 (record)->snapshotConflictHorizon = (xid), \
	 (record)->isCatalogRel = false)
#endif

/* Live rows of a table, by the statistics; 16 renamed the field */
#if PG_VERSION_NUM < 160000
#define compat_live_rows(entry)	((entry)->n_live_tuples)
#else
#define compat_live_rows(entry)	((entry)->live_tuples)
#endif

/* Columns of all indexes; since 16, this set excludes BRIN indexes */
#if PG_VERSION_NUM < 160000
#define COMPAT_INDEXED_COLUMNS	INDEX_ATTR_BITMAP_ALL
#else
#define COMPAT_INDEXED_COLUMNS	INDEX_ATTR_BITMAP_HOT_BLOCKING
#endif

/* Since 16, an update can require new entries in BRIN indexes only */
#if PG_VERSION_NUM < 160000
typedef bool compat_UpdateIndexes;
#define compat_any_index(update_indexes)	(update_indexes)
#define compat_ExecInsertIndexTuples(relinfo, slot, estate, update_indexes) \
	ExecInsertIndexTuples(relinfo, slot, estate, false, false, NULL, NIL)
#define COMPAT_ALL_INDEXES	true
#else
#define compat_UpdateIndexes	TU_UpdateIndexes
#define compat_any_index(update_indexes)	((update_indexes) != TU_None)
#if PG_VERSION_NUM < 190000
#define compat_ExecInsertIndexTuples(relinfo, slot, estate, update_indexes) \
	ExecInsertIndexTuples(relinfo, slot, estate, false, false, NULL, NIL, \
						  (update_indexes) == TU_Summarizing)
#else
#define compat_ExecInsertIndexTuples(relinfo, slot, estate, update_indexes) \
	ExecInsertIndexTuples(relinfo, estate, \
						  (update_indexes) == TU_Summarizing ? EIIT_ONLY_SUMMARIZING : 0, \
						  slot, NIL, NULL)
#endif
#define COMPAT_ALL_INDEXES	TU_All
#endif

/* Did this transaction give the table a new file?  16 renamed the field */
#if PG_VERSION_NUM < 160000
#define compat_has_new_file(rel)	((rel)->rd_firstRelfilenodeSubid != InvalidSubTransactionId)
#else
#define compat_has_new_file(rel)	((rel)->rd_firstRelfilelocatorSubid != InvalidSubTransactionId)
#endif

/*
 * Since 16, rights are in nodes of their own.  18 also needs the set of
 * relations that are not pruned.
 */
#if PG_VERSION_NUM < 160000
#define compat_check_insert(pstate, item, columns) \
	((item)->p_rte->requiredPerms = ACL_INSERT, \
	 (item)->p_rte->insertedCols = (columns), \
	 ExecCheckRTPerms((pstate)->p_rtable, true))
#define compat_ExecInitRangeTable(estate, pstate) \
	ExecInitRangeTable(estate, (pstate)->p_rtable)
#else
#define compat_check_insert(pstate, item, columns) \
	((item)->p_perminfo->requiredPerms = ACL_INSERT, \
	 (item)->p_perminfo->insertedCols = (columns), \
	 ExecCheckPermissions((pstate)->p_rtable, list_make1((item)->p_perminfo), true))
#if PG_VERSION_NUM < 180000
#define compat_ExecInitRangeTable(estate, pstate) \
	ExecInitRangeTable(estate, (pstate)->p_rtable, (pstate)->p_rteperminfos)
#else
#define compat_ExecInitRangeTable(estate, pstate) \
	ExecInitRangeTable(estate, (pstate)->p_rtable, (pstate)->p_rteperminfos, \
					   bms_make_singleton(1))
#endif
#endif

/* Since 17, ALTER TABLE can change the expression of a generated column */
#if PG_VERSION_NUM < 170000
#define compat_sets_expression(cmd)		false
#else
#define compat_sets_expression(cmd)		((cmd)->subtype == AT_SetExpression)
#endif

/* Since 18, pg_noreturn stands before the declaration of a function */
#if PG_VERSION_NUM < 180000
#define pg_noreturn		pg_attribute_noreturn()
#endif

/*
 * Since 18, index scans take an argument for instrumentation; since 19, scans
 * take flags
 */
#if PG_VERSION_NUM < 180000
#define compat_index_beginscan(heap, index, snapshot, nkeys) \
	index_beginscan(heap, index, snapshot, nkeys, 0)
#define compat_index_beginscan_bitmap(index, snapshot, nkeys) \
	index_beginscan_bitmap(index, snapshot, nkeys)
#else
#if PG_VERSION_NUM < 190000
#define compat_index_beginscan(heap, index, snapshot, nkeys) \
	index_beginscan(heap, index, snapshot, NULL, nkeys, 0)
#else
#define compat_index_beginscan(heap, index, snapshot, nkeys) \
	index_beginscan(heap, index, snapshot, NULL, nkeys, 0, SO_NONE)
#endif
#define compat_index_beginscan_bitmap(index, snapshot, nkeys) \
	index_beginscan_bitmap(index, snapshot, NULL, nkeys)
#endif
#if PG_VERSION_NUM < 190000
#define compat_table_beginscan(rel, snapshot) \
	table_beginscan(rel, snapshot, 0, NULL)
#define compat_table_beginscan_tidrange(rel, snapshot, min, max) \
	table_beginscan_tidrange(rel, snapshot, min, max)
#define compat_table_index_fetch_begin(rel) \
	table_index_fetch_begin(rel)
#else
#define compat_table_beginscan(rel, snapshot) \
	table_beginscan(rel, snapshot, 0, NULL, SO_NONE)
#define compat_table_beginscan_tidrange(rel, snapshot, min, max) \
	table_beginscan_tidrange(rel, snapshot, min, max, SO_NONE)
#define compat_table_index_fetch_begin(rel) \
	table_index_fetch_begin(rel, SO_NONE)
#endif

/* 19 moved the flag for a move to another partition into options, and gave updates options */
#if PG_VERSION_NUM < 190000
#define compat_table_tuple_delete(rel, tid, cid, snapshot, wait, failure) \
	table_tuple_delete(rel, tid, cid, snapshot, InvalidSnapshot, wait, failure, false)
#define compat_table_tuple_update(rel, tid, slot, cid, snapshot, wait, failure, lockmode, indexes) \
	table_tuple_update(rel, tid, slot, cid, snapshot, InvalidSnapshot, wait, failure, \
					   lockmode, indexes)
#else
#define compat_table_tuple_update(rel, tid, slot, cid, snapshot, wait, failure, lockmode, indexes) \
	table_tuple_update(rel, tid, slot, cid, 0, snapshot, InvalidSnapshot, wait, failure, \
					   lockmode, indexes)
#define compat_table_tuple_delete(rel, tid, cid, snapshot, wait, failure) \
	table_tuple_delete(rel, tid, cid, 0, snapshot, InvalidSnapshot, wait, failure)
#endif

/* Since 19, slots take flags when they are made */
#if PG_VERSION_NUM < 190000
#define compat_MakeTupleTableSlot(tupdesc, ops)	MakeTupleTableSlot(tupdesc, ops)
#else
#define compat_MakeTupleTableSlot(tupdesc, ops)	MakeTupleTableSlot(tupdesc, ops, 0)
#endif

/* The blocks of a bitmap; since 18, the caller provides the result */
#if PG_VERSION_NUM < 180000
#define compat_TBMIterator	TBMIterator
#define compat_tbm_begin(bitmap)	tbm_begin_iterate(bitmap)
#define compat_tbm_end(iterator)	tbm_end_iterate(iterator)
static inline bool
compat_tbm_next(compat_TBMIterator *iterator, BlockNumber *block)
{
	TBMIterateResult *result = tbm_iterate(iterator);

	if (result != NULL)
		*block = result->blockno;
	return result != NULL;
}
#else
#define compat_TBMIterator	TBMPrivateIterator
#define compat_tbm_begin(bitmap)	tbm_begin_private_iterate(bitmap)
#define compat_tbm_end(iterator)	tbm_end_private_iterate(iterator)
static inline bool
compat_tbm_next(compat_TBMIterator *iterator, BlockNumber *block)
{
	TBMIterateResult result;
	bool		found = tbm_private_iterate(iterator, &result);

	if (found)
		*block = result.blockno;
	return found;
}
#endif

/*
 * Since 17, a message for logical decoding can be flushed at once.  We do not
 * need that: the commit flushes our messages.
 */
#if PG_VERSION_NUM < 170000
#define compat_LogLogicalMessage(prefix, message, size) \
	LogLogicalMessage(prefix, message, size, true)
#else
#define compat_LogLogicalMessage(prefix, message, size) \
	LogLogicalMessage(prefix, message, size, true, false)
#endif

/*
 * Is a text valid JSON?  Since 17, the lexer can be on the stack; NULL
 * allocates it.
 */
#if PG_VERSION_NUM < 170000
#define compat_is_json(text) \
	(pg_parse_json(makeJsonLexContextCstringLen(unconstify(char *, text), strlen(text), \
												GetDatabaseEncoding(), true), \
				   &nullSemAction) == JSON_SUCCESS)
#else
#define compat_is_json(text) \
	(pg_parse_json(makeJsonLexContextCstringLen(NULL, text, strlen(text), \
												GetDatabaseEncoding(), true), \
				   &nullSemAction) == JSON_SUCCESS)
#endif

/* Since 17, an extension can name its wait events */
#if PG_VERSION_NUM < 170000
#define compat_wait_event(name)		PG_WAIT_EXTENSION
#else
#define compat_wait_event(name)		WaitEventExtensionNew(name)
#endif

/* Is a process a client session?  18 and 19 changed the field */
#if PG_VERSION_NUM < 180000
#define compat_is_client(proc)	(!(proc)->isBackgroundWorker)
#elif PG_VERSION_NUM < 190000
#define compat_is_client(proc)	((proc)->isRegularBackend)
#else
#define compat_is_client(proc)	((proc)->backendType == B_BACKEND)
#endif

/* Index of a process; auxiliary processes have indexes from MaxBackends on */
#if PG_VERSION_NUM < 170000
#define compat_proc_number(proc)	((proc)->pgprocno)
#else
#define compat_proc_number(proc)	GetNumberFromPGProc(proc)
#endif

/*
 * The process of a virtual transaction, or NULL; the local ID of the transaction
 * that a process runs; and the index of this backend, from 0 to MaxBackends - 1.
 * Since 17, they use process numbers.
 */
#if PG_VERSION_NUM < 170000
#define compat_vxid_proc(vxid)	BackendIdGetProc((vxid).backendId)
#define compat_local_xid(proc)	((proc)->lxid)
#define COMPAT_MY_BACKEND	(MyBackendId - 1)
#else
#define compat_vxid_proc(vxid)	ProcNumberGetProc((vxid).procNumber)
#define compat_local_xid(proc)	((proc)->vxid.lxid)
#define COMPAT_MY_BACKEND	MyProcNumber
#endif

/* Public status of a backend, by its position in the list; renamed in 16 */
#if PG_VERSION_NUM < 160000
#define compat_backend_status(i)	pgstat_fetch_stat_local_beentry(i)
#else
#define compat_backend_status(i)	pgstat_get_local_beentry_by_index(i)
#endif

/* Since 19, the planner knows the EXPLAIN that it plans for */
#if PG_VERSION_NUM < 190000
#define COMPAT_PLANNER_PARAMS	Query *parse, const char *query_string, \
	int cursorOptions, ParamListInfo boundParams
#define COMPAT_PLANNER_ARGS		parse, query_string, cursorOptions, boundParams
#define compat_pg_plan_query(query, sql) \
	pg_plan_query(query, sql, 0, NULL)
#else
#define COMPAT_PLANNER_PARAMS	Query *parse, const char *query_string, \
	int cursorOptions, ParamListInfo boundParams, ExplainState *es
#define COMPAT_PLANNER_ARGS		parse, query_string, cursorOptions, boundParams, es
#define compat_pg_plan_query(query, sql) \
	pg_plan_query(query, sql, 0, NULL, NULL)
#endif

/* Since 19, the hook after parse analysis gets a constant */
#if PG_VERSION_NUM < 190000
#define COMPAT_JUMBLE_STATE		JumbleState
#else
#define COMPAT_JUMBLE_STATE		const JumbleState
#endif

/*
 * The hook that runs after the planner has collected the indexes of a table.
 * In 19, it also runs for range table entries that are no tables;
 * COMPAT_INDEXES_RELID is InvalidOid then.
 */
#if PG_VERSION_NUM < 190000
#define compat_indexes_hook			get_relation_info_hook
#define compat_indexes_hook_type	get_relation_info_hook_type
#define COMPAT_INDEXES_PARAMS		PlannerInfo *root, Oid relid, bool inhparent, RelOptInfo *rel
#define COMPAT_INDEXES_ARGS			root, relid, inhparent, rel
#define COMPAT_INDEXES_RELID		relid
#else
#define compat_indexes_hook			build_simple_rel_hook
#define compat_indexes_hook_type	build_simple_rel_hook_type
#define COMPAT_INDEXES_PARAMS		PlannerInfo *root, RelOptInfo *rel, RangeTblEntry *rte
#define COMPAT_INDEXES_ARGS			root, rel, rte
#define COMPAT_INDEXES_RELID		(rte->rtekind == RTE_RELATION ? rte->relid : InvalidOid)
#endif

/* Does a statement write a table of its range table?  19 has a set instead of a list */
#if PG_VERSION_NUM < 190000
#define compat_is_target(stmt, rti) \
	list_member_int((stmt)->resultRelations, rti)
#define compat_has_targets(stmt)	((stmt)->resultRelations != NIL)
#else
#define compat_is_target(stmt, rti) \
	bms_is_member(rti, (stmt)->resultRelationRelids)
#define compat_has_targets(stmt)	((stmt)->resultRelationRelids != NULL)
#endif

/* Since 19, a hash table in shared memory never grows */
#if PG_VERSION_NUM < 190000
#define compat_ShmemInitHash(name, size, ctl, flags) \
	ShmemInitHash(name, size, size, ctl, (flags) | HASH_FIXED_SIZE)
#else
#define compat_ShmemInitHash(name, size, ctl, flags) \
	ShmemInitHash(name, size, ctl, flags)
#endif

/* In a signal handler, whose arguments grew in 19 */
#if PG_VERSION_NUM < 190000
#define compat_die()	die(postgres_signal_arg)
#else
#define compat_die()	die(postgres_signal_arg, pg_siginfo)
#endif

/* Since 19, core has a name for the attribute */
#ifndef pg_fallthrough
#define pg_fallthrough	__attribute__((fallthrough))
#endif

/*
 * Builds a jsonb value from tokens.  "result" is valid after the last token.
 */
#if PG_VERSION_NUM < 190000
typedef struct compat_JsonbBuilder
{
	JsonbParseState *state;
	JsonbValue *result;
} compat_JsonbBuilder;
#define compat_push_jsonb(builder, token, value) \
	((void) ((builder)->result = pushJsonbValue(&(builder)->state, token, value)))
#else
#define compat_JsonbBuilder		JsonbInState
#define compat_push_jsonb(builder, token, value) \
	pushJsonbValue(builder, token, value)
#endif

/*
 * Rounds a numeric to an integer; false if it is out of range.  Since 19, such
 * functions report errors to an ErrorSaveContext.
 */
#if PG_VERSION_NUM < 190000
#define compat_timestamp_to_tz(value)	timestamp2timestamptz_opt_overflow(value, NULL)
static inline bool
compat_numeric_to_int4(Numeric value, int32 *result)
{
	bool		failed = false;

	*result = numeric_int4_opt_error(value, &failed);
	return !failed;
}
#else
#define compat_timestamp_to_tz(value)	timestamp2timestamptz_safe(value, NULL)
static inline bool
compat_numeric_to_int4(Numeric value, int32 *result)
{
	ErrorSaveContext context = {.type = T_ErrorSaveContext};

	*result = numeric_int4_safe(value, (Node *) &context);
	return !context.error_occurred;
}
#endif

/* The replication origin of the session; 19 renamed the variable */
#if PG_VERSION_NUM < 190000
#define compat_has_origin()	\
	(replorigin_session_origin != InvalidRepOriginId && \
	 replorigin_session_origin != DoNotReplicateId)
#else
#define compat_has_origin()	\
	(replorigin_xact_state.origin != InvalidReplOriginId && \
	 replorigin_xact_state.origin != DoNotReplicateId)
#endif

/*
 * Publications that name a table, and publications of all tables.  Since 19,
 * the latter can leave out tables.
 */
#if PG_VERSION_NUM < 190000
#define compat_publications_by_name(relid)	GetRelationPublications(relid)
#define compat_publications_of_all(relid)	GetAllTablesPublications()
#else
#define compat_publications_by_name(relid)	GetRelationIncludedPublications(relid)
#define compat_publications_of_all(relid) \
	list_difference_oid(GetAllTablesPublications(), GetRelationExcludedPublications(relid))
#endif

/*
 * Does core check foreign keys by probing the index of the parent table itself?
 * Before 19 it runs a query, which access/plan.c filters.  In 19 the child
 * tables of collections get one more trigger, which runs that query
 * (collection/parent_triggers.c, write/parent_check.c).  These two files are
 * for 19 only.
 */
#define COMPAT_CORE_PROBES_PARENTS	(PG_VERSION_NUM >= 190000)

/* Since 18, a foreign key can have a PERIOD; core checks it with a query */
#if PG_VERSION_NUM < 180000
#define compat_has_period(constraint)	false
#else
#define compat_has_period(constraint)	((constraint)->conperiod)
#endif

/* Since 19, INSERT ... ON CONFLICT can return the row that it conflicts with */
#if PG_VERSION_NUM < 190000
#define compat_selects_on_conflict(modify)	((void) (modify), false)
#else
#define compat_selects_on_conflict(modify)	((modify)->onConflictAction == ONCONFLICT_SELECT)
#endif

/* Since 19, COPY TO reads partitioned tables */
#define COMPAT_CORE_COPIES_PARTITIONED	(PG_VERSION_NUM >= 190000)

/*
 * Since 19, core ends background workers that ask for it if a command needs
 * their database.  Before, sessions ask our workers (purge/leave.c).
 */
#define COMPAT_CORE_ENDS_WORKERS	(PG_VERSION_NUM >= 190000)
#if PG_VERSION_NUM < 190000
#define COMPAT_BGWORKER_INTERRUPTIBLE	0
#else
#define COMPAT_BGWORKER_INTERRUPTIBLE	BGWORKER_INTERRUPTIBLE
#endif

#endif							/* TTL_DOCS_COMPAT_H */
