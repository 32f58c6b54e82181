/*-------------------------------------------------------------------------
 *
 * write.h
 *		Functions of write that other parts call.  Core calls the trigger.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_DOCS_WRITE_H
#define TTL_DOCS_WRITE_H

#include "access/access.h"

/* stamp.c, for hooks.c */
extern void ttl_docs_refuse_distributed_restore(Oid relid);

/* copy_from.c, for hooks.c */
extern void ttl_docs_refuse_copy_without_trigger(Node *parsetree);
extern bool ttl_docs_run_copy_from(Node *parsetree, const char *queryString,
								   QueryCompletion *qc);

#endif							/* TTL_DOCS_WRITE_H */
