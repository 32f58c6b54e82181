/*-------------------------------------------------------------------------
 *
 * notify.h
 *		What lower parts may tell the purge: that a document is written, that
 *		a collection changed, and when the first document of a table expires.
 *
 * This is the one header of the purge that collection, access and write may
 * include.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_DOCS_NOTIFY_H
#define TTL_DOCS_NOTIFY_H

#include "core/core.h"

/* A table in shared memory; its insides are the purge's */
typedef struct PurgeTable PurgeTable;

/* notify.c */

/* What a writer has told the purge of the documents that it writes to a table */
typedef struct ToldDocuments
{
	PurgeTable *entry;			/* NULL if it was not looked up, or there is none */
	TimestampTz announced;		/* the earliest expiry so far */
} ToldDocuments;
extern void ttl_docs_begin_telling(ToldDocuments *told);
extern void ttl_docs_tell_document(ToldDocuments *told, Oid relid,
								   const Collection *collection,
								   const Stamp *stamp, int64 slot);
extern void ttl_docs_note_change(Oid root);

/* earliest.c */

/* Who scans a table for its earliest expiry */
typedef enum EarliestScanner
{
	SCANNER_SESSION,
	SCANNER_PURGE,
	SCANNER_COUNT
} EarliestScanner;

/* A scan that may raise the earliest expiry of a table */
typedef struct EarliestScan
{
	PurgeTable *table;			/* NULL = none is under way */
	EarliestScanner scanner;
	uint64		number;
	TimestampTz claimed;		/* by transactions that began before */
} EarliestScan;
extern TimestampTz ttl_docs_earliest_expiry(Oid relid, Oid root);
extern bool ttl_docs_begin_session_scan(EarliestScan *scan, Oid relid, Oid root);
extern void ttl_docs_end_scan(EarliestScan *scan, TimestampTz found);

#endif							/* TTL_DOCS_NOTIFY_H */
