/*-------------------------------------------------------------------------
 *
 * settings.c
 *		Reads and changes the settings of a collection.
 *
 * set_default_ttl() writes only the label and no rows, whatever the size of
 * the table.  If documents can live longer under the new setting,
 * set_default_ttl() first raises the floors, so that expired documents stay
 * expired (core/expiry.c).  If the change makes live documents expire, it
 * holds the purge (grace.c).
 *
 * Locks.  Every change keeps writers out until it commits, so that no write
 * is judged by one setting and stamped under another.  A change after which a
 * document can live longer (raise the DefaultTTL, set it to -1, turn TTL off)
 * also keeps readers out.  Otherwise a document could expire for readers
 * between the moment when the floors are computed and the commit, and the new
 * setting would bring it back.  Such a change takes ACCESS EXCLUSIVE, as
 * ALTER TABLE does.  Other changes take SHARE ROW EXCLUSIVE.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "funcapi.h"
#include "mb/pg_wchar.h"
#include "utils/builtins.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "collection/collection_internal.h"

PG_FUNCTION_INFO_V1(ttl_docs_set_default_ttl);
PG_FUNCTION_INFO_V1(ttl_docs_get_default_ttl);
PG_FUNCTION_INFO_V1(ttl_docs_set_indexing);

static bool lets_live_longer(const CollectionSettings *settings, bool on,
							 int32 default_ttl);
static void lock_shards(Oid relid, const CollectionSettings *settings);
static void require_purge_index(Relation rel,
								const CollectionSettings *settings);

/*
 * set_default_ttl(collection regclass, default_ttl integer)
 */
Datum
ttl_docs_set_default_ttl(PG_FUNCTION_ARGS)
{
	bool		on;
	bool		lives_longer;
	int32		default_ttl;
	LOCKMODE	lockmode = ShareRowExclusiveLock;
	Collection	collection;
	CollectionSettings settings;
	Relation	rel;
	Oid			relid;

	ttl_docs_require_writable(fcinfo);
	relid = ttl_docs_collection_arg(fcinfo);
	on = ttl_docs_default_ttl_arg(fcinfo, 1, &default_ttl);

	/*
	 * The lock that we need depends on the setting that the lock protects.
	 * So we read the setting without a lock, and check it again under the
	 * lock.  We cannot upgrade a weaker lock, because two sessions that do so
	 * would deadlock.  Without a lock, we must process invalidations here to
	 * see changes that other sessions have committed.
	 */
	AcceptInvalidationMessages();
	if (ttl_docs_lookup_collection(relid, &collection) &&
		lets_live_longer(&collection.settings, on, default_ttl))
		lockmode = AccessExclusiveLock;
	rel = ttl_docs_open_unused(relid, lockmode, "set the DefaultTTL of", &collection);
	if (lockmode != AccessExclusiveLock &&
		lets_live_longer(&collection.settings, on, default_ttl))
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("could not set the DefaultTTL of \"%s\" due to a concurrent change",
						RelationGetRelationName(rel)),
				 errhint("Try again.")));

	settings = collection.settings;
	if (on && settings.indexing == INDEXING_NONE)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("a DefaultTTL needs a purge index, but the indexing of \"%s\" is \"none\"",
						RelationGetRelationName(rel)),
				 errhint("Call ttl_docs.set_indexing() with \"consistent\" or \"lazy\" first.")));
	if (on)
		require_purge_index(rel, &settings);
	if (on && !settings.on)
		ttl_docs_refuse_invalid_ttl(relid, NameStr(settings.doc_column),
									psprintf("%s OPERATOR(pg_catalog.=) " INT64_FORMAT,
											 TTL_DOCS_SLOT_COLUMN, SLOT_INVALID));

	/*
	 * Raise the floors only if readers are locked out.  Other changes do not
	 * need floors, because the new bounds are not below the old ones.  Only
	 * these other changes can make a live document expire.
	 */
	lives_longer = lets_live_longer(&settings, on, default_ttl);
	if (lives_longer)
	{
		lock_shards(relid, &settings);
		ttl_docs_raise_floors(&settings, ttl_docs_latest_clock(relid));
	}
	settings.on = on;
	settings.default_ttl = default_ttl;
	if (!lives_longer)
		ttl_docs_hold_newly_expired(relid, relid, &collection.settings, &settings);
	ttl_docs_write_label(relid, &settings);
	table_close(rel, NoLock);
	PG_RETURN_VOID();
}

/*
 * Before the floors of a Citus table are raised: locks its shards on all
 * nodes.  The label is the vehicle: every node locks its shards when a label
 * arrives that has "changing" set (citus/follow.c).
 */
static void
lock_shards(Oid relid, const CollectionSettings *settings)
{
	CollectionSettings changing = *settings;

	if (!ttl_docs_is_shell(relid))
		return;
	changing.changing = true;
	ttl_docs_write_label(relid, &changing);
}

/* Can a document live longer under the new DefaultTTL than under the old? */
static bool
lets_live_longer(const CollectionSettings *settings, bool on, int32 default_ttl)
{
	if (!settings->on)
		return false;
	if (!on)
		return true;
	if (settings->default_ttl == TTL_NEVER)
		return false;
	return default_ttl == TTL_NEVER || default_ttl > settings->default_ttl;
}

/*
 * Raises an error if the collection has no purge index.  An incomplete
 * restore may have left it without one.
 */
static void
require_purge_index(Relation rel, const CollectionSettings *settings)
{
	if (OidIsValid(ttl_docs_purge_index(rel, settings->indexing)))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("the collection \"%s\" has lost its purge index",
					RelationGetRelationName(rel)),
			 errhint("To build it again: SELECT ttl_docs.set_indexing(%s, '%s').",
					 ttl_docs_quoted_literal(RelationGetRelid(rel)),
					 ttl_docs_indexing_name(settings->indexing))));
}

/*
 * get_default_ttl(collection regclass)
 */
Datum
ttl_docs_get_default_ttl(PG_FUNCTION_ARGS)
{
	Oid			relid = PG_GETARG_OID(0);
	Collection	collection;

	ttl_docs_require_preload();
	/* without a lock, process invalidations to see the latest settings */
	AcceptInvalidationMessages();
	if (!ttl_docs_lookup_collection(relid, &collection))
		ttl_docs_report_no_collection(relid);
	if (!collection.settings.on)
		PG_RETURN_NULL();
	PG_RETURN_INT32(collection.settings.default_ttl);
}

/*
 * set_indexing(collection regclass, indexing text)
 *
 * Builds the new index before it drops the old one.  In the same mode, it
 * builds an index that is missing, and replaces a partial index by one that has
 * entries for all rows (purge_index.c).  SHARE ROW EXCLUSIVE
 * keeps writers out during the build.  DROP INDEX takes ACCESS EXCLUSIVE at
 * the end.
 */
Datum
ttl_docs_set_indexing(PG_FUNCTION_ARGS)
{
	IndexingMode indexing;
	Collection	collection;
	CollectionSettings settings;
	Relation	rel;
	Oid			relid;

	ttl_docs_require_writable(fcinfo);
	relid = ttl_docs_collection_arg(fcinfo);
	if (PG_ARGISNULL(1))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("indexing cannot be null"),
				 errhint("Use \"consistent\", \"lazy\" or \"none\".")));
	indexing = ttl_docs_parse_indexing(text_to_cstring(PG_GETARG_TEXT_PP(1)));
	rel = ttl_docs_open_unused(relid, ShareRowExclusiveLock,
							   "change the indexing of", &collection);
	ttl_docs_require_no_pending_detach(relid);
	settings = collection.settings;
	if (indexing == INDEXING_NONE && settings.on)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot remove the purge index of \"%s\" while a DefaultTTL is set",
						RelationGetRelationName(rel)),
				 errhint("Turn TTL off first: SELECT ttl_docs.set_default_ttl(%s, NULL).",
						 ttl_docs_quoted_literal(relid))));
	table_close(rel, NoLock);

	ttl_docs_create_whole_purge_index(relid, indexing);
	settings.indexing = indexing;
	ttl_docs_write_label(relid, &settings);
	if (collection.settings.indexing != indexing)
		ttl_docs_drop_purge_index(relid, collection.settings.indexing);
	ttl_docs_drop_partial_purge_index(relid, indexing);
	PG_RETURN_VOID();
}
