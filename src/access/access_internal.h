/*-------------------------------------------------------------------------
 *
 * access_internal.h
 *		Declarations that the files of access share.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_DOCS_ACCESS_INTERNAL_H
#define TTL_DOCS_ACCESS_INTERNAL_H

#include "access/access.h"

/*
 * A utility command, or a query from ExecutorStart until its memory is freed
 */
typedef struct LiveQuery
{
	struct LiveQuery *next;		/* the live query that started before */
	Snapshot	snapshot;
	EState	   *estate;			/* NULL while ExecutorStart runs */
	PlannedStmt *stmt;			/* valid while the query runs; NULL for a
								 * utility command */
	bool		is_utility;
	bool		copies_snapshot;	/* a utility command that runs its query
									 * under a copy of its snapshot */
	TimestampTz instant;
	bool		show_expired;	/* ttl_docs.show_expired when it started */
	bool		row_security;	/* the setting when it started */
	bool		foreign_key_check;	/* core checks the parent of a new child;
									 * judged at the clock */
	bool		needs_all_rows; /* a foreign key check with PERIOD */
	bool		foreign_key_action; /* core's RI triggers write children */
	bool		validates_foreign_key;	/* ALTER TABLE checks existing rows */
	TimestampTz parent_expires; /* when the parent that a foreign key check
								 * found expires */
	Oid			repacked;		/* the collection that pg_repack copies with
								 * this query, or InvalidOid */
	struct KeptSettings *settings;	/* used by this query, see visibility.c */
} LiveQuery;

/* A utility command from its start to its end */
typedef struct UtilityCommand
{
	LiveQuery	query;
	struct UtilityCommand *outer;	/* the command that runs this command */
	LiveQuery  *outer_running;	/* the query that runs this command */
	bool		is_subcommand;	/* core made this command out of "outer" */
	bool		may_validate;	/* may check rows against a foreign key */
	TimestampTz imported;		/* instant of the snapshot that the command
								 * imports, or DT_NOEND */
} UtilityCommand;

/* instant.c */
extern LiveQuery *ttl_docs_running_query;	/* NULL = none */
extern UtilityCommand *ttl_docs_running_command(void);
extern bool ttl_docs_is_planning_or_starting(void);

/* held_instant.c */
extern bool ttl_docs_find_held_instant(Snapshot snapshot, TimestampTz *instant);
extern void ttl_docs_hold_instant(Snapshot snapshot, TimestampTz instant);
extern void ttl_docs_pass_on_instant(Snapshot snapshot, TimestampTz instant);
extern void ttl_docs_release_held_instants(void);
extern void ttl_docs_forget_held_instants(void);
extern bool ttl_docs_rules_may_follow(const PlannedStmt *stmt);
extern bool ttl_docs_may_share_snapshot(const QueryDesc *queryDesc, bool is_nested);

/*
 * Type of the parameter for the instant, and type of the mark that follows it
 * in the list of parameter types.  The mark is not a real parameter.  Its
 * type cannot occur in a query: core reserves the OIDs from 8000 to 9999 for
 * its own development.
 */
#define INSTANT_PARAM_TYPE	INT8OID
#define PLAN_MARK_TYPE		9876

/* plan.c */
extern int	ttl_docs_instant_param(const PlannedStmt *stmt);
extern void ttl_docs_prepare_plan(QueryDesc *queryDesc);

/* visibility.c */
pg_noreturn extern void ttl_docs_report_later_collection(Oid relid);
extern CollectionSettings ttl_docs_current_settings(Oid relid);
extern struct KeptSettings *ttl_docs_kept_by_transaction;

/* foreign_key.c */
extern bool ttl_docs_validates_foreign_key(Node *parsetree);
extern bool ttl_docs_is_validated_parent(const RangeTblEntry *rte);
extern void ttl_docs_recognise_foreign_key_query(LiveQuery *query,
												 const QueryDesc *queryDesc);

/* pg_repack.c */
extern Oid	ttl_docs_repacked_collection(const PlannedStmt *stmt);

/* imported_snapshot.c */
extern void ttl_docs_publish_instant(TimestampTz instant);
extern void ttl_docs_unpublish_instants(void);
extern TimestampTz ttl_docs_instant_to_import(Node *parsetree);

#endif							/* TTL_DOCS_ACCESS_INTERNAL_H */
