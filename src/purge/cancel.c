/*-------------------------------------------------------------------------
 *
 * cancel.c
 *		Distinguishes a real cancel of CALL purge() from an error of a trigger.
 *
 * A trigger can raise the error query_canceled by itself.  That is an error of the
 * document, and the call continues.  A real cancel, or statement_timeout, must end
 * the call.  The error code is the same in both cases, so it does not distinguish
 * them.
 *
 * On a server that is not a standby, every real cancel reaches a process as SIGINT.
 * pg_cancel_backend() and a client's cancel request send it.  The handlers of
 * statement_timeout and lock_timeout send it to their own process.  So during a
 * step our signal handler records SIGINT, and then calls the previous handler.
 * lock_timeout alone is not a cancel: core reports it with another error code.
 *
 * We install the handler with sigaction(), not with pqsignal(), because not every
 * version of pqsignal() returns the previous handler.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>

#include "miscadmin.h"
#include "utils/timeout.h"

#include "purge/pass_internal.h"

static struct sigaction before;
static bool is_watching = false;
static volatile sig_atomic_t was_cancelled = false;

static void record_cancel(int signo, siginfo_t *info, void *context);

/* A step begins.  Call ttl_docs_end_cancel_watch() at its end, also after ERROR. */
void
ttl_docs_begin_cancel_watch(void)
{
	struct sigaction action;

	Assert(!is_watching);
	was_cancelled = false;
	if (sigaction(SIGINT, NULL, &before) != 0)
		elog(ERROR, "could not read the handler of SIGINT: %m");
	/* a background worker may have no handler */
	if (before.sa_handler == SIG_DFL || before.sa_handler == SIG_IGN)
		return;
	action = before;
	action.sa_flags |= SA_SIGINFO;
	action.sa_sigaction = record_cancel;
	if (sigaction(SIGINT, &action, NULL) != 0)
		elog(ERROR, "could not set the handler of SIGINT: %m");
	is_watching = true;
	/* a cancel may have come before the handler was installed */
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

/*
 * Signal handler.  The handler that was there before may need all arguments: core's
 * does since PostgreSQL 19.
 */
static void
record_cancel(int signo, siginfo_t *info, void *context)
{
	if (!get_timeout_indicator(LOCK_TIMEOUT, false) ||
		get_timeout_indicator(STATEMENT_TIMEOUT, false))
		was_cancelled = true;
	if (before.sa_flags & SA_SIGINFO)
		before.sa_sigaction(signo, info, context);
	else
		before.sa_handler(signo);
}
