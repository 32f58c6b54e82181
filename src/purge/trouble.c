/*-------------------------------------------------------------------------
 *
 * trouble.c
 *		Classifies and records errors of the purge.
 *
 * There are three kinds of errors:
 *
 * - A conflict with another session: the document or table is busy, and the purge
 *   comes back soon.
 * - An error of a document: the pass leaves the document (progress.c).
 * - An error of the table: the table is not visited for a while (pass_end.c).
 *
 * stat_collections shows the last error of each table, with its detail.  The log
 * has a line, with detail and context, when a table gets into trouble, but not for
 * each document and each retry.
 *
 * Who may read a detail.  Core puts the values of a key into a detail only if the
 * user who runs the delete may read them.  This user is the owner of the table.  In
 * a cascade it is the owner of the child table, and the session that began the
 * delete gets the error.  So the owner of a collection learns nothing from a purge
 * that their own DELETE would not show.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "mb/pg_wchar.h"

#include "purge/pass_internal.h"

/* minimum interval between two log lines for a table, if the message has changed */
#define LOG_PERIOD_OTHER	(60 * USECS_PER_SEC)
/* the same if the message is the same */
#define LOG_PERIOD_SAME		(86400 * USECS_PER_SEC)

static void keep_text(char *target, int size, const char *text);

/* Copies the error that PG_CATCH has caught, and clears it. */
void
ttl_docs_keep_error(PurgeError *error)
{
	ErrorData  *edata = CopyErrorData();

	FlushErrorState();
	ttl_docs_make_error(error, edata->sqlerrcode,
						edata->message != NULL ? edata->message : "unknown error",
						edata->detail);
	keep_text(error->context, PURGE_CONTEXT_LENGTH, edata->context);
	FreeErrorData(edata);
}

/* Makes an error without a context; detail may be NULL. */
void
ttl_docs_make_error(PurgeError *error, int sqlstate, const char *message,
					const char *detail)
{
	error->shown.sqlstate = sqlstate;
	keep_text(error->shown.message, PURGE_ERROR_LENGTH, message);
	keep_text(error->shown.detail, PURGE_ERROR_LENGTH, detail);
	error->context[0] = '\0';
}

/* Copies as much of a text as there is room for; NULL becomes "". */
static void
keep_text(char *target, int size, const char *text)
{
	int			length = text != NULL ? pg_mbcliplen(text, strlen(text), size - 1) : 0;

	if (length > 0)
		memcpy(target, text, length);
	target[length] = '\0';
}

/* The kind of an error. */
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
			/* the cause can be a trigger that takes too long */
			return error->shown.sqlstate == ERRCODE_QUERY_CANCELED ?
				PURGE_ERROR_OF_DOCUMENT : PURGE_ERROR_OF_TABLE;
		default:
			return error->shown.sqlstate == ERRCODE_LOCK_NOT_AVAILABLE ?
				PURGE_ERROR_BUSY : PURGE_ERROR_OF_DOCUMENT;
	}
}

/*
 * Records an error of a table for stat_collections, and logs it if it is new.
 * may_log is false if the caller of CALL purge() gets the error.
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
				 errhint("The documents stay invisible, and the purge retries them. See the view ttl_docs.stat_collections.")));
}

/* A delay that doubles each time, up to a maximum. */
TimestampTz
ttl_docs_growing_delay(TimestampTz first, int times, TimestampTz longest)
{
	return Min(first << Min(Max(times, 0), 16), Max(first, longest));
}
