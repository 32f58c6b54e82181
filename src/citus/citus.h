/*-------------------------------------------------------------------------
 *
 * citus.h
 *		What every part may ask about Citus, and about its other nodes.
 *
 * Citus distributes a table over several servers, its nodes.  Every node has
 * a table of the same name, the shell.  The shell has no rows.  The rows are
 * in shards: plain tables whose names end with the number of the shard, such
 * as sessions_102008.
 *
 * We do not link to Citus.  If its library is not loaded, each function
 * returns at once.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_DOCS_CITUS_H
#define TTL_DOCS_CITUS_H

#include "lib/stringinfo.h"
#include "nodes/pg_list.h"
#include "storage/lockdefs.h"
#include "utils/jsonb.h"

#include "core/core.h"

/* catalog.c */

/* How Citus manages a table */
typedef enum CitusKind
{
	CITUS_NONE,					/* it does not: the table is no shell */
	CITUS_SHELL,				/* the shell of a table with one copy of each row */
	CITUS_REPLICATED			/* the shell of a table with several copies */
} CitusKind;
extern bool ttl_docs_has_citus(void);
extern CitusKind ttl_docs_citus_kind(Oid relid);
extern bool ttl_docs_is_shell(Oid relid);
extern Oid	ttl_docs_shell_of_shard(Oid relid, int64 *shard);
extern List *ttl_docs_local_shards(Oid shell);
extern Oid	ttl_docs_local_shard(int64 shard);
extern bool ttl_docs_is_shard_in_use(Oid relid, int64 *shard);
extern bool ttl_docs_is_shard(Oid relid);
extern int	ttl_docs_local_group(void);
extern void ttl_docs_require_supported_citus(void);

/* shard_lock.c */
extern bool ttl_docs_lock_shard(Oid relid, bool waits);

/* session.c */
extern bool ttl_docs_in_citus_session(void);
extern bool ttl_docs_citus_is_loaded;
extern void ttl_docs_find_citus_library(void);
extern bool ttl_docs_is_next_to_citus(void);
extern bool ttl_docs_label_comes_from_citus(void);
extern int	ttl_docs_conversions;
extern Oid	ttl_docs_copied_shard;
extern bool ttl_docs_is_filled_by_citus(Oid relid);
extern void ttl_docs_note_locked(Oid relid);
extern TimestampTz ttl_docs_locked_since(Oid relid);
extern void ttl_docs_forget_lock(void);

/* instant.c */
extern bool ttl_docs_has_handed_instant(void);
extern TimestampTz ttl_docs_handed_instant(void);
extern TimestampTz ttl_docs_joined_at(void);

/* nodes.c */

/* The answer of a node */
typedef struct NodeAnswer
{
	char	   *node;			/* host and port */
	bool		succeeded;
	char	   *text;			/* the first column of the first row, or an error;
								 * NULL if there is no row */
} NodeAnswer;
extern List *ttl_docs_ask_all_nodes(const char *sql);
extern List *ttl_docs_ask_all_nodes_or_fail(const char *sql);
extern void ttl_docs_lock_on_all_nodes(Oid shell, LOCKMODE lockmode);
extern void ttl_docs_require_propagation(Oid shell);
extern TimestampTz ttl_docs_latest_clock(Oid relid);

/* answers.c */
extern JsonbContainer *ttl_docs_parse_answer(const NodeAnswer *answer);
extern char *ttl_docs_answer_text(JsonbContainer *object, const char *key);
extern int64 ttl_docs_answer_integer(JsonbContainer *object, const char *key);
extern bool ttl_docs_answer_flag(JsonbContainer *object, const char *key);
extern List *ttl_docs_answer_objects(JsonbContainer *object, const char *key);
extern void ttl_docs_append_text(StringInfo json, const char *key, const char *value);
extern void ttl_docs_append_integer(StringInfo json, const char *key, int64 value);
extern void ttl_docs_append_flag(StringInfo json, const char *key, bool value);

#endif							/* TTL_DOCS_CITUS_H */
