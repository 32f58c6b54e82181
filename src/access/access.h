/*-------------------------------------------------------------------------
 *
 * access.h
 *		Functions of access for other parts: facts about the running query.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_DOCS_ACCESS_H
#define TTL_DOCS_ACCESS_H

#include "executor/executor.h"
#include "nodes/pathnodes.h"
#include "nodes/plannodes.h"
#include "tcop/utility.h"

#include "collection/collection.h"

/* instant.c */
extern TimestampTz ttl_docs_current_instant(void);
extern void ttl_docs_note_snapshot(void);

/* instant.c: the innermost query that is being executed */
extern const PlannedStmt *ttl_docs_running_stmt(void);
extern CommandId ttl_docs_writing_command(void);
extern bool ttl_docs_in_foreign_key_action(void);

/* visibility.c */
pg_noreturn extern void ttl_docs_report_expired_upsert(void);

/* pg_repack.c */
extern bool ttl_docs_is_repack_function(Oid function);

/* instant.c, for hooks.c */
extern bool ttl_docs_validation_may_run;
extern void ttl_docs_stop_validation(void);
extern void ttl_docs_begin_utility(Node *parsetree, ProcessUtilityContext context);
extern void ttl_docs_utility_has_run(void);
extern void ttl_docs_end_utility(void);
extern void ttl_docs_start_query(QueryDesc *queryDesc, int eflags,
								 ExecutorStart_hook_type start);
extern void ttl_docs_run_query(COMPAT_RUN_PARAMS, ExecutorRun_hook_type run);
extern void ttl_docs_finish_query(QueryDesc *queryDesc,
								  ExecutorFinish_hook_type finish);
extern void ttl_docs_note_function(Oid function);
extern void ttl_docs_note_transaction_snapshot(void);
extern void ttl_docs_forget_transaction(void);
extern void ttl_docs_begin_planning(void);
extern void ttl_docs_end_planning(void);

/* held_instant.c, for hooks.c */
extern bool ttl_docs_function_may_query(Oid function);
extern void ttl_docs_end_held_instants(void);

/* plan.c, for hooks.c */
extern void ttl_docs_filter_plan(PlannedStmt *stmt, bool validates_foreign_key);

/* paths.c, for hooks.c */
extern void ttl_docs_forbid_blind_index_only(Oid relid, RelOptInfo *rel);
extern void ttl_docs_replace_paths(PlannerInfo *root, RelOptInfo *rel,
								   RangeTblEntry *rte);

/* foreign_key.c, for hooks.c */
extern bool ttl_docs_looks_like_validation(const Query *parse);

/* copy_to.c, for hooks.c */
extern PlannedStmt *ttl_docs_copy_as_query(PlannedStmt *pstmt);

/* imported_snapshot.c, for hooks.c */
extern Size ttl_docs_snapshot_shmem_size(void);
extern void ttl_docs_snapshot_shmem_init(void);

#endif							/* TTL_DOCS_ACCESS_H */
