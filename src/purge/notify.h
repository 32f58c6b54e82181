/*-------------------------------------------------------------------------
 *
 * notify.h
 *		Functions of the purge that lower parts call: to announce a document
 *		or a change of a collection, and to learn when the first document of
 *		a table expires.
 *
 * Collection, access and write may include this header, but no other header of the
 * purge.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_DOCS_NOTIFY_H
#define TTL_DOCS_NOTIFY_H

#include "core/core.h"

/* The entry of a table in shared memory.  Only the purge uses its fields. */
typedef struct PurgeTable PurgeTable;

/* notify.c */

/* The documents that a query has announced for a table so far */
typedef struct AnnouncedDocuments
{
	TimestampTz expiry;			/* the earliest expiry of these documents */
	TimestampTz due;			/* the earliest due time of their slots */
} AnnouncedDocuments;

/* Call this when a query begins to write documents to a table. */
static inline void
ttl_docs_begin_announcing(AnnouncedDocuments *announced)
{
	announced->expiry = announced->due = DT_NOEND;
}

extern void ttl_docs_announce_document(AnnouncedDocuments *announced, Oid relid,
									   const Collection *collection,
									   const Stamp *stamp, int64 slot);
extern void ttl_docs_announce_change(Oid root);

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
	PurgeTable *table;			/* NULL = no scan is under way */
	EarliestScanner scanner;
	uint64		number;			/* no other scan has the same number */
	TimestampTz claimed;		/* the earliest claim of transactions that were
								 * under way when the scan began */
} EarliestScan;
extern TimestampTz ttl_docs_earliest_expiry(Oid relid, Oid root);
extern TimestampTz ttl_docs_earliest_claim(Oid relid);
extern bool ttl_docs_begin_session_scan(EarliestScan *scan, Oid relid, Oid root);
extern void ttl_docs_end_scan(EarliestScan *scan, TimestampTz found);

#endif							/* TTL_DOCS_NOTIFY_H */
