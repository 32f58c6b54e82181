/*-------------------------------------------------------------------------
 *
 * online.h
 *		Functions of online for hooks.c.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_DOCS_ONLINE_H
#define TTL_DOCS_ONLINE_H

#include "purge/purge.h"
#include "write/write.h"

/* maximum of a setting, for guc.c */
#define ADOPT_MAX_PAUSE		60000	/* milliseconds */

/* progress.c */
extern Size ttl_docs_progress_shmem_size(void);
extern void ttl_docs_progress_shmem_init(void);

#endif							/* TTL_DOCS_ONLINE_H */
