/*-------------------------------------------------------------------------
 *
 * change_lock.c
 *		Only one session changes a table concurrently, and nobody waits for it.
 *
 * adopt_concurrently() and set_indexing_concurrently() commit several times,
 * and can take hours.  Meanwhile they hold a lock of our own for the session.
 * It is not a lock on the table, so it keeps no reader or writer out.
 *
 * Functions that change settings would wait for the index build, and all
 * readers of the table would wait behind them.  So they ask for the lock
 * first, and raise an error at once if another session has it.  Several of
 * them can hold it at the same time: the locks on the table are enough between
 * them.
 *
 * On ERROR, core releases the lock when it rolls the transaction back, as all
 * session locks of this kind (but not in the abort of a subtransaction).  If
 * the process ends, the lock is gone, too.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_class.h"
#include "fmgr.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "storage/lock.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

#include "collection/collection_internal.h"

PG_FUNCTION_INFO_V1(ttl_docs_sql_adoption_command);

static void set_tag(LOCKTAG *tag, Oid relid);
pg_noreturn static void report_concurrent_change(Oid relid);

/*
 * Locks the table for a concurrent change by this session, until
 * ttl_docs_end_concurrent_change() or an error.
 */
void
ttl_docs_begin_concurrent_change(Oid relid)
{
	LOCKTAG		tag;

	set_tag(&tag, relid);
	if (LockAcquire(&tag, AccessExclusiveLock, true, true) == LOCKACQUIRE_NOT_AVAIL)
		report_concurrent_change(relid);
}

void
ttl_docs_end_concurrent_change(Oid relid)
{
	LOCKTAG		tag;

	set_tag(&tag, relid);
	LockRelease(&tag, AccessExclusiveLock, true);
}

/*
 * Raises an error if another session changes the table concurrently.  Nobody
 * can begin to do so before this transaction ends.
 */
void
ttl_docs_refuse_concurrent_change(Oid relid)
{
	LOCKTAG		tag;

	set_tag(&tag, relid);
	if (LockAcquire(&tag, AccessShareLock, false, true) == LOCKACQUIRE_NOT_AVAIL)
		report_concurrent_change(relid);
}

/* Core locks tables with another kind of tag, so this one is free. */
static void
set_tag(LOCKTAG *tag, Oid relid)
{
	SET_LOCKTAG_OBJECT(*tag, MyDatabaseId, RelationRelationId, relid, 0);
}

static void
report_concurrent_change(Oid relid)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_IN_USE),
			 errmsg("another session is changing table \"%s\" or its settings",
					get_rel_name(relid)),
			 errhint("The view ttl_docs.stat_progress shows concurrent changes and how far they are. Wait until the change is complete, or cancel it.")));
}

/*
 * Raises an error if adopt_concurrently() has begun with the table, and has
 * not finished.  "action" is a verb, possibly with an object.
 */
void
ttl_docs_require_adopted(Oid relid, const CollectionSettings *settings,
						 const char *action)
{
	if (settings->adopting == DT_NOBEGIN)
		return;
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("cannot %s \"%s\" because it is not completely adopted", action,
					get_rel_name(relid)),
			 errdetail("CALL ttl_docs.adopt_concurrently() began to adopt the table, and was interrupted."),
			 errhint("To complete the adoption: %s. To make it a plain table again: SELECT ttl_docs.release(%s).",
					 ttl_docs_adoption_command(relid, settings),
					 ttl_docs_quoted_literal(relid))));
}

/*
 * adoption_command(collection regclass): the command that continues an adoption,
 * for the view collections; NULL if there is nothing to continue
 */
Datum
ttl_docs_sql_adoption_command(PG_FUNCTION_ARGS)
{
	Oid			relid = PG_GETARG_OID(0);
	Collection	collection;

	ttl_docs_require_preload();
	if (!ttl_docs_lookup_collection(relid, &collection) ||
		collection.settings.adopting == DT_NOBEGIN ||
		get_rel_name(collection.root) == NULL)
		PG_RETURN_NULL();
	PG_RETURN_TEXT_P(cstring_to_text(ttl_docs_adoption_command(collection.root,
															   &collection.settings)));
}

/* Returns the command that continues an adoption. */
char *
ttl_docs_adoption_command(Oid relid, const CollectionSettings *settings)
{
	StringInfoData sql;

	initStringInfo(&sql);
	appendStringInfo(&sql, "CALL ttl_docs.adopt_concurrently(%s",
					 ttl_docs_quoted_literal(relid));
	if (settings->target_on)
		appendStringInfo(&sql, ", %d", settings->target_ttl);
	else
		appendStringInfoString(&sql, ", NULL");
	appendStringInfo(&sql, ", doc_column => %s",
					 quote_literal_cstr(NameStr(settings->doc_column)));
	if (NameStr(settings->last_modified)[0] != '\0')
		appendStringInfo(&sql, ", last_modified => %s",
						 quote_literal_cstr(NameStr(settings->last_modified)));
	if (settings->indexing != INDEXING_CONSISTENT)
		appendStringInfo(&sql, ", indexing => '%s'",
						 ttl_docs_indexing_name(settings->indexing));
	appendStringInfoChar(&sql, ')');
	return sql.data;
}
