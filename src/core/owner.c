/*-------------------------------------------------------------------------
 *
 * owner.c
 *		Acts as the owner of a table while code of users may run.
 *
 * We do what core's maintenance commands do:
 *
 * - use the rights of the owner, and no others;
 * - enter a restricted context, which the code cannot leave: no SET ROLE, no
 *   temporary tables, no triggers deferred beyond the end of the context;
 * - set a search_path of schemas in which users cannot create objects.
 *
 * On error, the rollback of the transaction or subtransaction restores the
 * caller's user, context and settings.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "executor/spi.h"
#include "miscadmin.h"
#include "parser/parser.h"
#include "tcop/pquery.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/portal.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "core/core.h"

static Query *analyse(const char *sql);
static Portal open_portal(Query *query, const char *sql);

void
ttl_docs_become_owner(Relation rel, OwnerSwitch *before)
{
	GetUserIdAndSecContext(&before->user, &before->sec_context);
	SetUserIdAndSecContext(rel->rd_rel->relowner,
						   before->sec_context | SECURITY_RESTRICTED_OPERATION);
	before->nest_level = NewGUCNestLevel();
	(void) set_config_option("search_path", "pg_catalog, pg_temp",
							 PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE,
							 true, 0, false);
}

/*
 * Restores the caller's user and context, and all settings that user code has
 * changed since ttl_docs_become_owner().
 */
void
ttl_docs_become_caller(const OwnerSwitch *before)
{
	AtEOXact_GUC(false, before->nest_level);
	SetUserIdAndSecContext(before->user, before->sec_context);
}

/*
 * Runs a query on a table as its owner.  The query uses the latest snapshot,
 * so it sees all committed rows even in a REPEATABLE READ transaction.
 * Policies that are forced on the owner do not apply.
 *
 * The caller's rights are used to look up names, because the owner may lack
 * USAGE on the schema.  The owner's rights are used for everything else:
 * planning evaluates constant parts of index expressions, and must not do so
 * with the rights of a more powerful caller.  We do not use core's plan
 * cache: for tables with policies, it would analyse the query again, as the
 * owner.
 *
 * The caller has connected to SPI.  The rows are in SPI_tuptable.
 */
void
ttl_docs_query_as_owner(Relation rel, const char *sql)
{
	OwnerSwitch before;
	Oid			owner;
	int			sec_context;
	Query	   *query;
	Portal		portal;

	PushActiveSnapshot(GetLatestSnapshot());
	ttl_docs_become_owner(rel, &before);
	GetUserIdAndSecContext(&owner, &sec_context);
	SetUserIdAndSecContext(before.user, before.sec_context | SECURITY_NOFORCE_RLS);
	query = analyse(sql);
	SetUserIdAndSecContext(owner, sec_context | SECURITY_NOFORCE_RLS);
	portal = open_portal(query, sql);
	SPI_cursor_fetch(portal, true, FETCH_ALL);
	SPI_cursor_close(portal);
	ttl_docs_become_caller(&before);
	PopActiveSnapshot();
}

/* Does a row of the table fulfil an SQL condition?  Runs as the owner. */
bool
ttl_docs_exists_as_owner(Relation rel, const char *condition)
{
	bool		isnull;
	bool		found;

	SPI_connect();
	/* Citus cannot run a sub-query without columns */
	ttl_docs_query_as_owner(rel, psprintf("SELECT EXISTS (SELECT 1 FROM %s WHERE %s)",
										  ttl_docs_quoted_name(RelationGetRelid(rel)),
										  condition));
	found = DatumGetBool(SPI_getbinval(SPI_tuptable->vals[0],
									   SPI_tuptable->tupdesc, 1, &isnull));
	SPI_finish();
	return found;
}

static Query *
analyse(const char *sql)
{
	List	   *parsed = raw_parser(sql, RAW_PARSE_DEFAULT);
	List	   *queries = pg_analyze_and_rewrite_fixedparams(linitial_node(RawStmt, parsed),
															 sql, NULL, 0, NULL);

	return linitial_node(Query, queries);
}

/* Plans and starts a query as the current user, with the active snapshot. */
static Portal
open_portal(Query *query, const char *sql)
{
	Portal		portal = CreateNewPortal();
	MemoryContext caller = MemoryContextSwitchTo(portal->portalContext);
	PlannedStmt *plan = compat_pg_plan_query(copyObject(query), sql);

	portal->visible = false;
	PortalDefineQuery(portal, NULL, pstrdup(sql), CMDTAG_SELECT, list_make1(plan), NULL);
	MemoryContextSwitchTo(caller);
	PortalStart(portal, NULL, 0, GetActiveSnapshot());
	return portal;
}
