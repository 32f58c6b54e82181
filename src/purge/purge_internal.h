/*-------------------------------------------------------------------------
 *
 * purge_internal.h
 *		The processes and commands of the purge: launcher, worker and visits, CALL
 *		purge(), and the statistics.
 *
 * The vocabulary is in shared_internal.h.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_DOCS_PURGE_INTERNAL_H
#define TTL_DOCS_PURGE_INTERNAL_H

#include "fmgr.h"

#include "purge/pass_internal.h"

/* launcher.c */
#define PURGE_LAUNCHER_FUNCTION "ttl_docs_launcher_main"
extern PGDLLEXPORT void ttl_docs_launcher_main(Datum arg);

/* worker.c */
#define PURGE_WORKER_FUNCTION	"ttl_docs_worker_main"
extern PGDLLEXPORT void ttl_docs_worker_main(Datum arg);

/* visit.c */
/* duration of a visit; commands that need the database alone wait for its end */
#define PURGE_VISIT_TIME		(2 * USECS_PER_SEC)
extern void ttl_docs_visit(PurgeWorker *worker);
extern void ttl_docs_abandon_visit(PurgeWorker *worker, bool got_sigterm);

/* visit_tables.c */

/* The tables of a visit */
typedef struct VisitTables
{
	List	   *placed;			/* PurgeTable entries whose next_visit has come */
	List	   *unplaced;		/* OIDs of tables that have no entry, sorted */
	UnplacedRound *round;		/* the round over the unplaced tables */
	uint64		listing;		/* UnplacedRound.listing when they were listed */
} VisitTables;
extern void ttl_docs_find_visit_tables(PurgeDatabase *database, VisitTables *tables);
extern Oid	ttl_docs_next_unplaced(VisitTables *tables);
extern bool ttl_docs_has_unplaced(const VisitTables *tables);
extern void ttl_docs_unplaced_has_left(VisitTables *tables);
extern TimestampTz ttl_docs_next_unplaced_round(PurgeDatabase *database);

/* call.c */

/* A CALL purge() */
typedef struct PurgeCall
{
	bool		commits;		/* commits each batch */
	TimestampTz instant;		/* when it began */
	MemoryContext context;		/* survives commits */
	bool		has_reported;	/* has sent a message about a collection */
	int64		next_progress;	/* elapsed time of the next progress message */
	int64		deadline;		/* elapsed time at which to stop; PG_INT64_MAX = when
								 * all is done */
} PurgeCall;

/* The result for all tables of a collection */
typedef struct PurgeResult
{
	int64		deleted;
	int64		undeletable;
	bool		found_busy;		/* other sessions use expired documents */
	bool		found_others;	/* there are partitions of other owners */
	bool		has_error;
	PurgeError	error;			/* the last error */
	char	   *error_node;		/* the node of Citus that raised it, or NULL */
	PurgeState	state;			/* a hold, PURGE_NO_INDEX or PURGE_IDLE */
	char	   *detail;			/* the code that blocks the purge, or NULL */
	bool		has_stopped;	/* at the deadline */
	PassPosition stopped_at;
} PurgeResult;

extern void ttl_docs_begin_purge_call(FunctionCallInfo fcinfo, PurgeCall *call);
extern void ttl_docs_end_purge_call(PurgeCall *call);
extern void ttl_docs_purge_tables_now(PurgeCall *call, Oid root, List *tables,
									  const PassPosition *continues_at,
									  PurgeResult *result);
extern bool ttl_docs_is_time_for_progress(PurgeCall *call);
extern void ttl_docs_report_purge(PurgeCall *call, Oid root, const char *name,
								  const PurgeResult *result);

/* call_nodes.c */
extern void ttl_docs_purge_on_all_nodes(PurgeCall *call, Oid shell);

/* stats.c */

/* The statistics of a collection or shard, as the views show them */
typedef struct ShownStats
{
	const char *state;
	const char *hint;			/* NULL = none */
	bool		is_uncounted;	/* some documents are not counted */
	int64		backlog;
	int64		sized_backlog;	/* backlog of the tables whose size is known */
	double		bytes;			/* size of sized_backlog */
	int64		overdue;		/* microseconds since the oldest document expired; -1 =
								 * unknown */
	int64		purged;
	int64		batches;
	int64		truncations;
	int64		truncated;		/* estimated documents of these truncations */
	TimestampTz last_purge;		/* DT_NOBEGIN = never */
	int64		undeletable;
	const char *error;			/* NULL = none, or the user may not see it */
	TimestampTz error_at;
} ShownStats;

/* number of columns that ttl_docs_set_numbers() sets */
#define STATS_NUMBERS	11
/* the column last_error among them */
#define STATS_LAST_ERROR	9

extern void ttl_docs_get_stats(Oid root, Oid named, ShownStats *stats);
extern void ttl_docs_set_numbers(const ShownStats *stats, Datum *values, bool *nulls);

/* node_stats.c */
extern void ttl_docs_sum_nodes(FmgrInfo *flinfo, Oid shell, ShownStats *sum);

#endif							/* TTL_DOCS_PURGE_INTERNAL_H */
