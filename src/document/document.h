/*-------------------------------------------------------------------------
 *
 * document.h
 *		What hooks.c uses of the document functions.  SQL calls the rest.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_DOCS_DOCUMENT_H
#define TTL_DOCS_DOCUMENT_H

/* statement.c */
extern void ttl_docs_document_init(void);
extern void ttl_docs_forget_document_table(Oid relid);
extern void ttl_docs_free_stale_plans(void);

#endif							/* TTL_DOCS_DOCUMENT_H */
