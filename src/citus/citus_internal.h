/*-------------------------------------------------------------------------
 *
 * citus_internal.h
 *		Functions and types that the files of citus share.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_DOCS_CITUS_INTERNAL_H
#define TTL_DOCS_CITUS_INTERNAL_H

#include "citus/citus.h"

/* nodes.c */
extern List *ttl_docs_ask_group(int group, const char *sql);
extern bool ttl_docs_citus_propagates(void);

/* open_instants.c */
extern void ttl_docs_open_instant(TimestampTz instant, Oid role);
extern void ttl_docs_close_instant(void);
extern bool ttl_docs_has_open_instant(TimestampTz instant, Oid role);

/* convert.c */
extern List *ttl_docs_convertible_with(Oid relid, bool with_colocated);
extern List *ttl_docs_convertible_in_schema(Oid schema);
extern List *ttl_docs_autoconverted_tables(void);
extern void ttl_docs_refuse_concurrent_conversion(Oid relid);
extern List *ttl_docs_begin_conversion(List *relids);

/* catalog.c */
extern void ttl_docs_lock_node_list(void);
extern List *ttl_docs_colocated_shells(Oid shell);
extern List *ttl_docs_autoconverted_shells(void);
extern bool ttl_docs_is_distributed_schema(Oid schema);

#endif							/* TTL_DOCS_CITUS_INTERNAL_H */
