/*-------------------------------------------------------------------------
 *
 * indexing.c
 *		set_indexing(): another kind of purge index.
 *
 * set_indexing() builds the new index before it drops the old one.  In the same
 * mode, it builds an index that is missing, and replaces a partial index by one
 * that has entries for all rows (purge_index.c).  The new
 * index gets the name of the old one, for each partition, too: a migration
 * tool that knows the name, or an exclusion list for one, stays right.
 *
 * Locks: ACCESS EXCLUSIVE on the table and its partitions until the
 * transaction ends.  DROP INDEX needs this lock.  If we took it only at the
 * end, a transaction that has read the table and now wants to write would
 * wait for us, and we for it.
 *
 * online/indexing.c does the same while others use the table.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "fmgr.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "collection/collection_internal.h"

PG_FUNCTION_INFO_V1(ttl_docs_set_indexing);

/*
 * set_indexing(collection regclass, indexing text)
 */
Datum
ttl_docs_set_indexing(PG_FUNCTION_ARGS)
{
	IndexingMode indexing;
	Collection	collection;
	CollectionSettings settings;
	Oid			relid;
	List	   *names;

	ttl_docs_require_writable(fcinfo);
	relid = ttl_docs_collection_arg(fcinfo);
	indexing = ttl_docs_indexing_arg(fcinfo, 1);
	table_close(ttl_docs_open_unused(relid, AccessExclusiveLock,
									 "change the indexing of", &collection), NoLock);
	ttl_docs_require_no_pending_detach(relid);
	settings = collection.settings;
	ttl_docs_require_indexing_allowed(relid, &settings, indexing);

	names = ttl_docs_replaced_purge_indexes(relid, settings.indexing, indexing);
	/* CREATE INDEX would use an index of a partition that is not valid */
	ttl_docs_drop_invalid_purge_indexes(relid, indexing);
	ttl_docs_create_whole_purge_index(relid, indexing);
	settings.indexing = indexing;
	ttl_docs_write_label(relid, &settings);
	ttl_docs_drop_other_purge_indexes(relid, indexing);
	ttl_docs_rename_purge_indexes(names, indexing);
	PG_RETURN_VOID();
}

/* Returns the argument "indexing" of a function. */
IndexingMode
ttl_docs_indexing_arg(FunctionCallInfo fcinfo, int arg)
{
	if (PG_ARGISNULL(arg))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("indexing cannot be null"),
				 errhint("Use \"consistent\", \"lazy\" or \"none\".")));
	return ttl_docs_parse_indexing(text_to_cstring(PG_GETARG_TEXT_PP(arg)));
}

/* Raises an error if the collection cannot have this indexing now. */
void
ttl_docs_require_indexing_allowed(Oid relid, const CollectionSettings *settings,
								  IndexingMode indexing)
{
	ttl_docs_require_adopted(relid, settings, "change the indexing of");
	if (indexing == INDEXING_NONE && settings->on)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot remove the purge index of \"%s\" while a DefaultTTL is set",
						get_rel_name(relid)),
				 errhint("Turn TTL off first: SELECT ttl_docs.set_default_ttl(%s, NULL).",
						 ttl_docs_quoted_literal(relid))));
}
