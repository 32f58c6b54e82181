/*-------------------------------------------------------------------------
 *
 * ttl_docs.h
 *		The terms that all parts share, and the settings.
 *
 * Every file uses these terms with these meanings:
 *
 * collection	a table known to ttl_docs.  One of its columns, of type jsonb,
 *				is the document column.  A partition belongs to the
 *				collection of its root table.
 * DefaultTTL	a setting of the collection: off, -1 (on, but without a
 *				default) or a number of seconds.
 * ttl			a document's own time to live, from its "ttl" property.  The
 *				column _ttl stores the ttl: NULL inherits the DefaultTTL, -1
 *				never expires, 0 marks an invalid value.  Invalid values
 *				exist only in a collection whose TTL is off.
 * _ts			when the document was last written, by the clock.
 * stamp		_ts and ttl of a row.  Together with the settings, the stamp
 *				decides when the row expires.
 * due time		_ts plus time to live.
 * expired		due time <= instant.  Expired is final, see core/expiry.c.
 * live			not expired.
 * instant		the one point in time at which a query judges all documents.
 * clock		the current time.  Writes judge documents at the clock.
 * floor		a setting that keeps expired documents expired when the
 *				DefaultTTL changes.
 * slot			the coarse position of a document in the purge index, see
 *				core/slots.c.
 * piece		a part that a collection must not lose: a system column, the
 *				document column, the trigger or the purge index.
 * purge		the physical delete of expired documents.
 * adopting		adopt_concurrently() has begun to make the table a collection,
 *				and has not finished.  TTL is off until it has.
 *
 * The functions of each part are declared in the header of that part.
 * src/README.md shows which part may call which.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_DOCS_H
#define TTL_DOCS_H

#include "access/attnum.h"
#include "datatype/timestamp.h"

/* The first schema is for users, the second one for the extension itself */
#define TTL_DOCS_SCHEMA		"ttl_docs"
#define TTL_DOCS_INTERNAL	"ttl_docs_internal"

#define TTL_DOCS_PROVIDER	"ttl_docs"
#define TTL_DOCS_EXTENSION	"ttl_docs"

#define TTL_DOCS_TS_COLUMN		"_ts"
#define TTL_DOCS_TTL_COLUMN		"_ttl"
#define TTL_DOCS_SLOT_COLUMN	"_slot"

/*
 * Row triggers fire in the byte order of their names.  Our trigger must fire
 * last, to see the row as it will be stored.  collection/trigger_setup.c
 * refuses triggers whose names sort after ours.
 */
#define TTL_DOCS_TRIGGER		"zzz_ttl_docs"
#define TTL_DOCS_TRIGGER_FUNCTION	"write_document"

/* Special values of DefaultTTL and ttl */
#define TTL_NEVER		(-1)
#define TTL_INVALID		0
#define TTL_MAX			PG_INT32_MAX

/* The kind of index by which the purge finds expired documents */
typedef enum IndexingMode
{
	INDEXING_CONSISTENT,		/* btree */
	INDEXING_LAZY,				/* BRIN */
	INDEXING_NONE
} IndexingMode;

/* The settings of a collection, as stored in its label */
typedef struct CollectionSettings
{
	NameData	doc_column;
	bool		on;				/* is a DefaultTTL set? */
	int32		default_ttl;	/* TTL_NEVER or seconds; TTL_NEVER when off */
	IndexingMode indexing;
	TimestampTz written_floor;	/* inheriting documents are expired if their
								 * _ts <= written_floor; DT_NOBEGIN = none */
	TimestampTz due_floor;		/* documents with their own ttl are expired if
								 * due <= due_floor; DT_NOBEGIN = none */
	bool		paused;			/* pause_purge() was called */
	TimestampTz grace_until;	/* end of the hold of collection/grace.c;
								 * DT_NOBEGIN = none */
	bool		purge_subscribed;	/* purge even if a subscription writes to
									 * the table */
	bool		restored;		/* a restore brought the label, and then
								 * resume_purge() was called */
	bool		citus;			/* the table is a shell or shard of Citus */
	bool		changing;		/* only in the text of a label: the sender is about
								 * to change the settings, and needs locks */
	bool		resuming;		/* only in the text of a label: resume_purge() was
								 * called on another node */
	bool		filling;		/* only in the text of a label: Citus fills the
								 * table in the transaction that wrote it */
	TimestampTz adopting;		/* adopt_concurrently() has not finished, and this
								 * is the _ts of rows that it has not filled;
								 * DT_NOBEGIN = it has finished */
	bool		target_on;		/* the next four fields are for "adopting" only:
								 * will a DefaultTTL be set? */
	int32		target_ttl;		/* the DefaultTTL that will be set */
	NameData	last_modified;	/* the column with the first _ts; empty = none */
	NameData	time_zone;		/* for a last_modified without time zone */
	Oid			origin_database;	/* database where the label was written */
	Oid			origin_relation;	/* table that the label was written for */
} CollectionSettings;

/* A table of a collection: its root or one of its partitions */
typedef struct Collection
{
	Oid			root;			/* the table whose label is in effect */
	CollectionSettings settings;
	/* columns of this table; InvalidAttrNumber if the column is missing */
	AttrNumber	doc;
	AttrNumber	ts;
	AttrNumber	ttl;
	AttrNumber	slot;
} Collection;

/* The settings of the server and the session; guc.c describes each */
extern int	ttl_docs_adopt_pause;
extern int	ttl_docs_clock_offset;
extern char *ttl_docs_distributed_instant;
extern int	ttl_docs_max_tables;
extern bool ttl_docs_purge_on;
extern int	ttl_docs_purge_batch_size;
extern int	ttl_docs_purge_grace;
extern int	ttl_docs_purge_max_rate;
extern int	ttl_docs_purge_naptime;
extern bool ttl_docs_purge_truncate;
extern int	ttl_docs_purge_truncate_wait;
extern int	ttl_docs_purge_workers;
extern bool ttl_docs_show_expired;
extern void ttl_docs_guc_init(void);

/* hooks.c */
extern void ttl_docs_hooks_init(void);

/*
 * A part sets its bit when it keeps something until the transaction ends.  At
 * the end, hooks.c calls the parts whose bits are set, and clears the bits.
 * The collection part keeps nothing but its bit, which says that the
 * transaction has written a label.
 */
typedef enum EndTurn
{
	TURN_OF_COLLECTION = 1 << 0,
	TURN_OF_PURGE = 1 << 1,
	TURN_OF_DOCUMENT = 1 << 2,
	TURN_OF_CITUS = 1 << 3
} EndTurn;
extern int	ttl_docs_end_turns;

#endif							/* TTL_DOCS_H */
