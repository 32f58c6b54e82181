/*-------------------------------------------------------------------------
 *
 * purge.h
 *		Declarations of the purge that hooks.c, guc.c and ttl_docs.c use.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_DOCS_PURGE_H
#define TTL_DOCS_PURGE_H

#include "access/xact.h"
#include "nodes/nodes.h"

#include "purge/notify.h"

/* Limits of settings, for guc.c */
#define PURGE_MAX_WORKERS		32
#define PURGE_MAX_BATCH_SIZE	100000
#define PURGE_MAX_NAPTIME		3600000 /* milliseconds */
#define PURGE_DEFAULT_TABLES	10000
#define PURGE_MAX_TABLES		1000000

/* launcher.c */
extern void ttl_docs_register_launcher(void);

/* shmem.c, earliest.c, for hooks.c */
extern Size ttl_docs_purge_shmem_size(void);
extern void ttl_docs_purge_shmem_request(void);
extern void ttl_docs_purge_shmem_init(void);
extern Size ttl_docs_earliest_shmem_size(void);
extern void ttl_docs_earliest_shmem_init(void);

/* notify.c, for hooks.c */
extern void ttl_docs_announce_at_end(XactEvent event);
extern void ttl_docs_follow_subtransaction(SubXactEvent event,
										   SubTransactionId mySubid,
										   SubTransactionId parentSubid);

/* target.c, for hooks.c */
extern void ttl_docs_purge_catalog_changed(void);

/* pace.c, for online */
extern bool ttl_docs_is_server_busy(void);

/* pause_resume.c, for citus */
extern void ttl_docs_reset_purge(Oid root);

/* database_commands.c, for hooks.c */
extern bool ttl_docs_begin_purge_command(Node *parsetree);
extern void ttl_docs_keep_workers_out(void);
extern void ttl_docs_purge_command_has_run(Node *parsetree);
extern void ttl_docs_end_purge_command(void);

#endif							/* TTL_DOCS_PURGE_H */
