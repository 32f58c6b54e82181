/*-------------------------------------------------------------------------
 *
 * ttl_docs.h
 *		Vocabulary that all parts share, and the settings.
 *
 * Every file uses these terms with these meanings:
 *
 * collection	a table known to ttl_docs; it has one jsonb document column.
 *				A partition belongs to the collection that its root is.
 * DefaultTTL	the collection's setting: off, -1 (on without a default) or
 *				seconds.
 * ttl			a document's own time to live, from its "ttl" property.  The
 *				column _ttl holds it: NULL inherits the DefaultTTL, -1 never
 *				expires, 0 marks an invalid value.  Only a collection whose
 *				TTL is off can hold an invalid value.
 * _ts			when the document was last written, by the clock.
 * stamp		_ts and ttl of a row: all that decides when it expires.
 * due time		_ts plus time to live.
 * expired		due time <= instant.  Expired is final, see core/expiry.c.
 * live			not expired.
 * instant		the one point in time that judges all of a query.
 * clock		the time at this very moment.  It judges writes.
 * floor		what keeps expired documents expired when a setting changes.
 * slot			the coarse position of a document in the purge index, see
 *				core/slots.c.
 * piece		what a collection is made of and may not lose while it is one:
 *				system columns, document column, trigger, purge index.
 * purge		the physical delete of expired documents.
 *
 * This header declares nothing that has code of its own.  Each part has a
 * header that says what others may use of it; src/README.md shows which part
 * may call which.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_DOCS_H
#define TTL_DOCS_H

#include "access/attnum.h"
#include "datatype/timestamp.h"

/* The schema that users call, and the one that only the extension uses */
#define TTL_DOCS_SCHEMA		"ttl_docs"
#define TTL_DOCS_INTERNAL	"ttl_docs_internal"

#define TTL_DOCS_PROVIDER	"ttl_docs"
#define TTL_DOCS_EXTENSION	"ttl_docs"

#define TTL_DOCS_TS_COLUMN		"_ts"
#define TTL_DOCS_TTL_COLUMN		"_ttl"
#define TTL_DOCS_SLOT_COLUMN	"_slot"

/*
 * Row triggers fire in the byte order of their names, and ours must see the
 * row as it will be stored.  collection/trigger_setup.c refuses later names.
 */
#define TTL_DOCS_TRIGGER		"zzz_ttl_docs"
#define TTL_DOCS_TRIGGER_FUNCTION	"write_document"

/* Special values of DefaultTTL and ttl */
#define TTL_NEVER		(-1)
#define TTL_INVALID		0
#define TTL_MAX			PG_INT32_MAX

/* How the purge finds expired documents */
typedef enum IndexingMode
{
	INDEXING_CONSISTENT,		/* btree */
	INDEXING_LAZY,				/* BRIN */
	INDEXING_NONE
} IndexingMode;

/* The settings of a collection, as its label has them */
typedef struct CollectionSettings
{
	NameData	doc_column;
	bool		on;				/* is a DefaultTTL set? */
	int32		default_ttl;	/* TTL_NEVER or seconds; TTL_NEVER when off */
	IndexingMode indexing;
	TimestampTz written_floor;	/* inheriting documents with a _ts up to here
								 * are expired; DT_NOBEGIN = none */
	TimestampTz due_floor;		/* documents with their own ttl that were due
								 * up to here are expired; DT_NOBEGIN = none */
	bool		paused;			/* pause_purge() was called */
	TimestampTz grace_until;	/* end of the hold of collection/grace.c;
								 * DT_NOBEGIN = none */
	bool		purge_subscribed;	/* purge here even if a subscription writes
									 * the table */
	Oid			origin_database;	/* where the label was written */
	Oid			origin_relation;	/* the table it was written for */
} CollectionSettings;

/* A table of a collection: its root or one of its partitions */
typedef struct Collection
{
	Oid			root;			/* the table whose label is in effect */
	CollectionSettings settings;
	/* columns of this very table; InvalidAttrNumber where one is missing */
	AttrNumber	doc;
	AttrNumber	ts;
	AttrNumber	ttl;
	AttrNumber	slot;
} Collection;

/* The settings of the server and the session; guc.c explains each */
extern int	ttl_docs_clock_offset;
extern int	ttl_docs_max_tables;
extern bool ttl_docs_purge_on;
extern int	ttl_docs_purge_batch_size;
extern int	ttl_docs_purge_grace;
extern int	ttl_docs_purge_max_rate;
extern int	ttl_docs_purge_naptime;
extern int	ttl_docs_purge_workers;
extern bool ttl_docs_show_expired;
extern void ttl_docs_guc_init(void);

/* hooks.c */
extern void ttl_docs_hooks_init(void);

#endif							/* TTL_DOCS_H */
