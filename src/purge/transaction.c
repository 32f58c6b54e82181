/*-------------------------------------------------------------------------
 *
 * transaction.c
 *		Runs a step of a purge in a transaction of its own, and keeps its error.
 *
 * A worker runs each step in a transaction.  CALL purge() runs each step in a
 * subtransaction of its caller's transaction.  In both cases, ERROR rolls the step
 * back, and the pass gets the error (trouble.c).
 *
 * A worker's step that lasts longer than BATCH_TIMEOUT is cancelled.  In CALL
 * purge() a cancel by the user, or statement_timeout, ends the call (cancel.c).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/ipc.h"
#include "utils/memutils.h"
#include "utils/resowner.h"
#include "utils/snapmgr.h"
#include "utils/timeout.h"

#include "purge/pass_internal.h"

/* in milliseconds; a document whose triggers take longer is undeletable */
#define BATCH_TIMEOUT	5000

static bool is_user_cancel(const ErrorData *edata);

/* Runs a step in a transaction, and keeps its error. */
bool
ttl_docs_run_in_transaction(PurgeWork work, void *arg, PurgeError *error)
{
	MemoryContext caller = CurrentMemoryContext;
	volatile bool succeeded = false;

	PG_TRY();
	{
		SetCurrentStatementStartTimestamp();
		StartTransactionCommand();
		PushActiveSnapshot(GetTransactionSnapshot());
		enable_timeout_after(STATEMENT_TIMEOUT, BATCH_TIMEOUT);
		work(arg);
		disable_timeout(STATEMENT_TIMEOUT, false);
		PopActiveSnapshot();
		CommitTransactionCommand();
		/* a cancel that came too late for this step must not cancel the next one */
		QueryCancelPending = false;
		succeeded = true;
	}
	PG_CATCH();
	{
		HOLD_INTERRUPTS();
		disable_all_timeouts(false);
		QueryCancelPending = false;
		MemoryContextSwitchTo(caller);
		ttl_docs_keep_error(error);
		AbortOutOfAnyTransaction();
		RESUME_INTERRUPTS();
	}
	PG_END_TRY();
	MemoryContextSwitchTo(caller);
	/* report the deleted rows, so that autovacuum knows about them */
	pgstat_report_stat(false);
	return succeeded;
}

/* Runs a step in a subtransaction, and keeps its error. */
bool
ttl_docs_run_in_subtransaction(PurgeWork work, void *arg, PurgeError *error)
{
	MemoryContext caller = CurrentMemoryContext;
	MemoryContext of_step = AllocSetContextCreate(caller, "ttl_docs step",
												  ALLOCSET_DEFAULT_SIZES);
	ResourceOwner owner = CurrentResourceOwner;
	volatile bool succeeded = false;

	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(of_step);
	ttl_docs_begin_cancel_watch();
	PG_TRY();
	{
		PushActiveSnapshot(GetTransactionSnapshot());
		work(arg);
		PopActiveSnapshot();
		CommandCounterIncrement();
		ReleaseCurrentSubTransaction();
		ttl_docs_end_cancel_watch();
		succeeded = true;
	}
	PG_CATCH();
	{
		ErrorData  *edata;

		ttl_docs_end_cancel_watch();
		MemoryContextSwitchTo(caller);
		edata = CopyErrorData();
		if (is_user_cancel(edata))
		{
			FlushErrorState();
			RollbackAndReleaseCurrentSubTransaction();
			CurrentResourceOwner = owner;
			ReThrowError(edata);
		}
		FreeErrorData(edata);
		ttl_docs_keep_error(error);
		RollbackAndReleaseCurrentSubTransaction();
	}
	PG_END_TRY();
	MemoryContextSwitchTo(caller);
	MemoryContextDelete(of_step);
	CurrentResourceOwner = owner;
	return succeeded;
}

/*
 * Did a user or statement_timeout cancel the command?  A trigger can raise the same
 * error code by itself.
 */
static bool
is_user_cancel(const ErrorData *edata)
{
	return edata->sqlerrcode == ERRCODE_QUERY_CANCELED && ttl_docs_was_cancelled();
}
