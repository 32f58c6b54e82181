/*-------------------------------------------------------------------------
 *
 * backup.c
 *		Recognises a session that makes or restores a backup.
 *
 * pg_dump and pg_restore set row_security = off.  Under that setting the owner of a
 * table, or a superuser, reads expired documents, writes stamps, and drops pieces
 * of a collection before its table.  In a SECURITY DEFINER function this does not
 * count, because its caller may have set it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/rls.h"

#include "collection/collection_internal.h"

/*
 * Does the session act as a backup or a restore of that table: its owner or a
 * superuser, under row_security = off?
 */
bool
ttl_docs_acts_for_backup(Oid relid)
{
	return !row_security && !InLocalUserIdChange() &&
		!InSecurityRestrictedOperation() &&
		compat_table_ownercheck(relid, GetUserId());
}
