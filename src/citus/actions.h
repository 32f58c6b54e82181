/*-------------------------------------------------------------------------
 *
 * actions.h
 *		What ttl_docs does when Citus does something, for hooks.c.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_DOCS_CITUS_ACTIONS_H
#define TTL_DOCS_CITUS_ACTIONS_H

#include "fmgr.h"
#include "nodes/plannodes.h"

#include "collection/collection.h"

/* follow.c */
extern void ttl_docs_follow_label(Oid relid);

/* instant.c */
extern void ttl_docs_hand_over_instant(const PlannedStmt *stmt);
extern void ttl_docs_hand_over_again(void);
extern void ttl_docs_forget_hand_over(void);

/* open_instants.c */
extern Size ttl_docs_open_instants_shmem_size(void);
extern void ttl_docs_open_instants_shmem_init(void);

/* convert.c */
extern List *ttl_docs_begin_conversion_by(Node *parsetree);
extern void ttl_docs_end_conversion(List *tables, Node *parsetree);
extern void ttl_docs_refuse_conversion_after_script(Node *parsetree);

/* calls.c */
extern bool ttl_docs_is_citus_function(Oid function);
extern void ttl_docs_intercept_call(FmgrHookEventType event, FmgrInfo *flinfo,
									Datum *private_data, fmgr_hook_type next);

#endif							/* TTL_DOCS_CITUS_ACTIONS_H */
