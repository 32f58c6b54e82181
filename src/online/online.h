/*-------------------------------------------------------------------------
 *
 * online.h
 *		Functions of online for hooks.c.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_DOCS_ONLINE_H
#define TTL_DOCS_ONLINE_H

#include "write/write.h"

/* progress.c */
extern Size ttl_docs_progress_shmem_size(void);
extern void ttl_docs_progress_shmem_init(void);

#endif							/* TTL_DOCS_ONLINE_H */
