/*-------------------------------------------------------------------------
 *
 * owner.c
 *		Acts as the owner of a table, where code of users may run on the way.
 *
 * As in core's own maintenance commands: with the rights of the owner and no
 * others, in a restricted context that cannot be left (no SET ROLE, no
 * temporary tables, nothing deferred to when the context is over), and with a
 * search_path on which nobody can put anything.
 *
 * An error takes all of it back, with the transaction or subtransaction.
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

/* Takes that back, and what user code has set meanwhile. */
void
ttl_docs_become_caller(const OwnerSwitch *before)
{
	AtEOXact_GUC(false, before->nest_level);
	SetUserIdAndSecContext(before->user, before->sec_context);
}

/*
 * Runs a query on a table for its owner, with the latest snapshot, so that it sees
 * all there is also in a REPEATABLE READ transaction.  Policies that are forced on
 * the owner hide nothing from it.
 *
 * The caller looks up the names, because an owner may have no right to look into the
 * schema.  The owner does all the rest: planning computes what is constant in index
 * expressions, so it must not be left to a caller with more rights.  Core's plan cache
 * would analyse the query anew, as the owner, where the table has policies; so it has
 * no part in this.
 *
 * SPI is connected; the rows are in SPI_tuptable.
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

static Query *
analyse(const char *sql)
{
	List	   *parsed = raw_parser(sql, RAW_PARSE_DEFAULT);
	List	   *queries = pg_analyze_and_rewrite_fixedparams(linitial_node(RawStmt, parsed),
															 sql, NULL, 0, NULL);

	return linitial_node(Query, queries);
}

/* Plans the query, and starts it with the active snapshot. */
static Portal
open_portal(Query *query, const char *sql)
{
	Portal		portal = CreateNewPortal();
	MemoryContext caller = MemoryContextSwitchTo(portal->portalContext);
	PlannedStmt *plan = pg_plan_query(copyObject(query), sql, 0, NULL);

	portal->visible = false;
	PortalDefineQuery(portal, NULL, pstrdup(sql), CMDTAG_SELECT, list_make1(plan), NULL);
	MemoryContextSwitchTo(caller);
	PortalStart(portal, NULL, 0, GetActiveSnapshot());
	return portal;
}
