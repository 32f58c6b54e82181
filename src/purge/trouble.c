/*-------------------------------------------------------------------------
 *
 * trouble.c
 *		What an error during a purge means, and who is told.
 *
 * An error is somebody else being there first (busy: come back soon), the fault
 * of a document (quarantine), or of nobody in particular (the table is left
 * alone for a while).
 *
 * stat_collections has the last error of each table, with its detail.  The log has a
 * line when a table gets into trouble, and not for each document and each try; with
 * the detail and the context of the error.
 *
 * Who may read a detail.  Core puts the values of a key into a detail only if the
 * user who runs the delete may read them, and that is the owner of the table.  In a
 * cascade it is the owner of the child, and the error goes to whoever began the
 * delete.  So the owner of a collection learns nothing from a purge that a DELETE of
 * theirs would not tell.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "mb/pg_wchar.h"

#include "purge/purge_internal.h"

/* the log has the trouble of a table so often, at the most */
#define LOG_PERIOD_OTHER	(60 * USECS_PER_SEC)
#define LOG_PERIOD_SAME		(86400 * USECS_PER_SEC)

static void keep_text(char *target, int size, const char *text);

/* Takes the error that was caught out of the hands of core. */
void
ttl_docs_keep_error(PurgeError *error)
{
	ErrorData  *edata = CopyErrorData();

	FlushErrorState();
	ttl_docs_make_error(error, edata->sqlerrcode,
						edata->message != NULL ? edata->message : "unknown error");
	keep_text(error->shown.detail, PURGE_ERROR_LENGTH, edata->detail);
	keep_text(error->context, PURGE_CONTEXT_LENGTH, edata->context);
	FreeErrorData(edata);
}

void
ttl_docs_make_error(PurgeError *error, int sqlstate, const char *message)
{
	error->shown.sqlstate = sqlstate;
	keep_text(error->shown.message, PURGE_ERROR_LENGTH, message);
	error->shown.detail[0] = error->context[0] = '\0';
}

/* Keeps as much of a text as there is room for; NULL is an empty one. */
static void
keep_text(char *target, int size, const char *text)
{
	int			length = text != NULL ? pg_mbcliplen(text, strlen(text), size - 1) : 0;

	if (length > 0)
		memcpy(target, text, length);
	target[length] = '\0';
}

/* What an error means for the purge. */
PurgeErrorKind
ttl_docs_error_kind(const PurgeError *error)
{
	switch (ERRCODE_TO_CATEGORY(error->shown.sqlstate))
	{
		case ERRCODE_TRANSACTION_ROLLBACK:
			return PURGE_ERROR_BUSY;
		case ERRCODE_INSUFFICIENT_RESOURCES:
		case ERRCODE_SYSTEM_ERROR:
			return PURGE_ERROR_OF_TABLE;
		case ERRCODE_OPERATOR_INTERVENTION:
			/* that can be a trigger that takes too long */
			return error->shown.sqlstate == ERRCODE_QUERY_CANCELED ?
				PURGE_ERROR_OF_DOCUMENT : PURGE_ERROR_OF_TABLE;
		default:
			return error->shown.sqlstate == ERRCODE_LOCK_NOT_AVAILABLE ?
				PURGE_ERROR_BUSY : PURGE_ERROR_OF_DOCUMENT;
	}
}

/*
 * Keeps the error of a table for stat_collections, and logs it if that is news
 * and nobody else is told.
 */
void
ttl_docs_record_error(PurgeTable *table, const char *name, const PurgeError *error,
					  bool may_log)
{
	TimestampTz clock = ttl_docs_clock();
	const ShownError *shown = &error->shown;
	uint32		hash = hash_bytes((const unsigned char *) shown->message,
								  strlen(shown->message));
	bool		is_news = table == NULL;

	if (table != NULL)
	{
		LWLockAcquire(ttl_docs_purge_shared->lock, LW_EXCLUSIVE);
		is_news = !table->has_error ||
			clock >= table->logged_at +
			(table->logged_hash == hash ? LOG_PERIOD_SAME : LOG_PERIOD_OTHER);
		table->has_error = true;
		table->error = *shown;
		table->error_at = clock;
		if (is_news && may_log)
		{
			table->logged_at = clock;
			table->logged_hash = hash;
		}
		LWLockRelease(ttl_docs_purge_shared->lock);
	}
	if (is_news && may_log)
		ereport(LOG,
				(errcode(shown->sqlstate),
				 errmsg("could not purge documents of %s: %s", name, shown->message),
				 shown->detail[0] != '\0' ? errdetail("%s", shown->detail) : 0,
				 error->context[0] != '\0' ? errcontext("%s", error->context) : 0,
				 errhint("They stay invisible, and are tried again. See ttl_docs.stat_collections.")));
}

/* A delay that doubles each time. */
TimestampTz
ttl_docs_growing_delay(TimestampTz first, int times, TimestampTz longest)
{
	return Min(first << Min(Max(times, 0), 16), Max(first, longest));
}
