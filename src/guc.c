/*-------------------------------------------------------------------------
 *
 * guc.c
 *		The settings of ttl_docs, in alphabetical order.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <limits.h>

#include "utils/guc.h"

#include "ttl_docs.h"

/*
 * ttl_docs.clock_offset: seconds by which this session's clock is ahead of the
 * server's.  For tests, of ttl_docs and of the applications that use it.
 * Reserved to superusers: a clock that is ahead expires documents.
 */
int			ttl_docs_clock_offset = 0;

/*
 * ttl_docs.show_expired: lets a superuser look at the expired documents that
 * are still on disk.  It is read when a query starts, so it acts on plans that
 * are cached already.  Writes and foreign keys do not care for it.
 */
bool		ttl_docs_show_expired = false;

void
ttl_docs_guc_init(void)
{
	DefineCustomIntVariable("ttl_docs.clock_offset",
							"Shifts the clock that expires documents, in this session.",
							"Lets tests travel in time instead of sleeping.",
							&ttl_docs_clock_offset,
							0,
							-INT_MAX,
							INT_MAX,
							PGC_SUSET,
							GUC_UNIT_S | GUC_NOT_IN_SAMPLE,
							NULL,
							NULL,
							NULL);

	DefineCustomBoolVariable("ttl_docs.show_expired",
							 "Shows expired documents that are not purged yet to SELECT and COPY TO.",
							 NULL,
							 &ttl_docs_show_expired,
							 false,
							 PGC_SUSET,
							 GUC_NOT_IN_SAMPLE,
							 NULL,
							 NULL,
							 NULL);

	MarkGUCPrefixReserved("ttl_docs");
}
