/*-------------------------------------------------------------------------
 *
 * backup.c
 *		Recognises a session that makes or restores a backup.
 *
 * pg_dump and pg_restore set row_security = off.  With this setting, the
 * owner of a table or a superuser may read expired documents, write system
 * columns, and drop pieces of a collection before its table.  The setting has
 * no such effect in a SECURITY DEFINER function, because the caller of the
 * function may have set it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/acl.h"

#include "collection/collection_internal.h"

/* With row_security = off: is the current user the owner or a superuser? */
bool
ttl_docs_may_act_for_backup(Oid relid)
{
	return !InLocalUserIdChange() &&
		!InSecurityRestrictedOperation() &&
		compat_table_ownercheck(relid, GetUserId());
}
