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
#include "nodes/parsenodes.h"

#include "collection/collection.h"

/* follow.c */
extern void ttl_docs_follow_label(const SentLabel *sent);

/* convert.c */
extern List *ttl_docs_begin_conversion_by(Node *parsetree);
extern void ttl_docs_end_conversion(List *tables);

/* calls.c */
extern bool ttl_docs_is_citus_function(Oid function);
extern void ttl_docs_intercept_citus_call(FmgrInfo *flinfo);

#endif							/* TTL_DOCS_CITUS_ACTIONS_H */
