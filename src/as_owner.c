/*-------------------------------------------------------------------------
 *
 * as_owner.c
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
#include "utils/guc.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "ttl_docs.h"

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
 * the owner hide nothing from it.  Planning computes what is constant in index
 * expressions, so it must not be left to a caller with more rights.  Names are
 * looked up as the caller, as an owner may have no right to look into the schema.
 *
 * SPI is connected; the rows are in SPI_tuptable.
 */
void
ttl_docs_query_as_owner(Relation rel, const char *sql)
{
	OwnerSwitch before;
	Oid			owner;
	int			sec_context;
	SPIPlanPtr	plan;

	ttl_docs_become_owner(rel, &before);
	GetUserIdAndSecContext(&owner, &sec_context);
	SetUserIdAndSecContext(before.user, before.sec_context | SECURITY_NOFORCE_RLS);
	plan = SPI_prepare(sql, 0, NULL);
	if (plan == NULL)
		elog(ERROR, "SPI_prepare failed: %s", sql);
	SetUserIdAndSecContext(owner, sec_context | SECURITY_NOFORCE_RLS);
	/* without triggers it would look like a query of core's foreign keys */
	if (SPI_execute_snapshot(plan, NULL, NULL, GetLatestSnapshot(),
							 InvalidSnapshot, true, true, 0) != SPI_OK_SELECT)
		elog(ERROR, "SPI_execute_snapshot failed: %s", sql);
	ttl_docs_become_caller(&before);
}
