/*-------------------------------------------------------------------------
 *
 * cancel.c
 *		Tells whether somebody cancelled CALL purge(), or a trigger raised that error itself.
 *
 * A trigger of a document can raise the error query_canceled by itself.  That is
 * an error of the document, and the call goes on.  A real cancel, and
 * statement_timeout, have to end the call.  Both are errors with the same code, also
 * where a trigger catches one and raises another with the same code.
 *
 * On a server that is not a standby, every real cancel reaches a process as SIGINT:
 * pg_cancel_backend(), a client's cancel request, and the handlers of
 * statement_timeout and lock_timeout, which send it to their own process.  So during
 * a step we notice that signal, and leave all the rest to the handler that was there.
 * lock_timeout alone is no cancel: core reports it under another code.
 *
 * We set the handler with sigaction(), not with pqsignal(), because pqsignal() cannot
 * tell which handler was there before.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>

#include "miscadmin.h"
#include "utils/timeout.h"

#include "purge/purge_internal.h"

static struct sigaction before;
static bool is_watching = false;
static volatile sig_atomic_t was_cancelled = false;

static void note_cancel(int signo);

/* The step of a purge begins.  Ends with ttl_docs_end_cancel_watch(), on error, too. */
void
ttl_docs_begin_cancel_watch(void)
{
	struct sigaction action;

	Assert(!is_watching);
	was_cancelled = false;
	if (sigaction(SIGINT, NULL, &before) != 0)
		elog(ERROR, "could not read the handler of SIGINT: %m");
	/* a background worker need not have a handler */
	if (before.sa_handler == SIG_DFL || before.sa_handler == SIG_IGN)
		return;
	action = before;
	action.sa_handler = note_cancel;
	if (sigaction(SIGINT, &action, NULL) != 0)
		elog(ERROR, "could not set the handler of SIGINT: %m");
	is_watching = true;
	/* one that came before the handler was there */
	if (QueryCancelPending)
		was_cancelled = true;
}

void
ttl_docs_end_cancel_watch(void)
{
	if (is_watching)
		(void) sigaction(SIGINT, &before, NULL);
	is_watching = false;
}

/* Was the statement cancelled since the step began? */
bool
ttl_docs_was_cancelled(void)
{
	return was_cancelled;
}

/* Signal handler. */
static void
note_cancel(int signo)
{
	if (!get_timeout_indicator(LOCK_TIMEOUT, false) ||
		get_timeout_indicator(STATEMENT_TIMEOUT, false))
		was_cancelled = true;
	before.sa_handler(signo);
}
