/*-------------------------------------------------------------------------
 *
 * document.h
 *		Functions of document that hooks.c calls.  SQL calls the others.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_DOCS_DOCUMENT_H
#define TTL_DOCS_DOCUMENT_H

/* statement.c */
extern void ttl_docs_document_init(void);
extern void ttl_docs_forget_document_table(Oid relid);
extern void ttl_docs_end_document_transaction(void);

#endif							/* TTL_DOCS_DOCUMENT_H */
