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

#include "miscadmin.h"
#include "utils/guc.h"
#include "utils/rel.h"

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
