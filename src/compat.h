/*-------------------------------------------------------------------------
 *
 * compat.h
 *		Hides the differences between PostgreSQL 15, 16, 17 and 18.
 *
 * Each difference has one name here.  No other file tests the version.
 *
 * PostgreSQL 19 is not supported.  Its foreign key checks do not use SPI, so
 * they have no plan that access/plan.c could filter.  An entry here would not
 * be enough.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_DOCS_COMPAT_H
#define TTL_DOCS_COMPAT_H

#include "catalog/pg_class.h"
#include "catalog/pg_database.h"
#include "catalog/pg_extension.h"
#include "nodes/parsenodes.h"
#include "nodes/plannodes.h"
#include "nodes/tidbitmap.h"

#if PG_VERSION_NUM < 150000
#error "ttl_docs needs PostgreSQL 15 or newer"
#endif
#if PG_VERSION_NUM >= 190000
#error "ttl_docs does not know PostgreSQL 19 yet: its foreign key checks bypass the planner"
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
#define compat_ExecInsertIndexTuples(relinfo, slot, estate, update_indexes) \
	ExecInsertIndexTuples(relinfo, slot, estate, false, false, NULL, NIL, \
						  (update_indexes) == TU_Summarizing)
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

/* Since 18, index scans take an argument for instrumentation */
#if PG_VERSION_NUM < 180000
#define compat_index_beginscan(heap, index, snapshot, nkeys) \
	index_beginscan(heap, index, snapshot, nkeys, 0)
#define compat_index_beginscan_bitmap(index, snapshot, nkeys) \
	index_beginscan_bitmap(index, snapshot, nkeys)
#else
#define compat_index_beginscan(heap, index, snapshot, nkeys) \
	index_beginscan(heap, index, snapshot, NULL, nkeys, 0)
#define compat_index_beginscan_bitmap(index, snapshot, nkeys) \
	index_beginscan_bitmap(index, snapshot, NULL, nkeys)
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

/* Is a process a client session?  18 renamed the field and inverted it */
#if PG_VERSION_NUM < 180000
#define compat_is_client(proc)	(!(proc)->isBackgroundWorker)
#else
#define compat_is_client(proc)	((proc)->isRegularBackend)
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

#endif							/* TTL_DOCS_COMPAT_H */
