/*-------------------------------------------------------------------------
 *
 * column_defaults.c
 *		The defaults of the system columns, and their comments.
 *
 * The trigger replaces the defaults, also in a restore and in replication, which
 * keep the values that they bring (write/stamp.c recognises now() there).  So
 * they only matter for speed, and for rows that our trigger has not seen.  Such rows are in tables that were
 * created with LIKE ... INCLUDING DEFAULTS and are attached or adopted later;
 * recompute.c completes them.
 *
 * - _ts is NOT NULL, so it needs a default.  now() says when a row was written,
 *   and is cheaper than clock_timestamp(): it does not read the clock, and is not
 *   volatile.  CURRENT_TIMESTAMP would be cheaper still, but TypeORM cannot
 *   declare it: it turns it into now(), and then finds a difference.
 * - If Citus manages the table, the default of _ts is a constant.  Citus does
 *   not send a statement to the shards as a whole if it contains a volatile
 *   function.  -infinity marks rows without a stamp.  They never expire.
 * - _ttl has none.  Most documents inherit the DefaultTTL, and then _ttl stays
 *   NULL.
 * - _slot has room for a value in each new row, so that the trigger can
 *   overwrite it (write/new_row.c).  The default is a slot that is never due.
 *   So a row that has kept it is not mistaken for an expired one.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_class.h"
#include "commands/comment.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

#include "collection/collection_internal.h"

/* later than every time, and small enough for clients that read it as a double */
#define NEVER_DUE_SLOT	"1000000000000000"

static const struct
{
	const char *column;
	const char *comment;
}			comments[] = {
	{TTL_DOCS_TS_COLUMN, "ttl_docs: when the document was last written"},
	{TTL_DOCS_TTL_COLUMN, "ttl_docs: the document's own ttl; NULL inherits; ignored while TTL is off, see ttl_docs.collections"},
	{TTL_DOCS_SLOT_COLUMN, "ttl_docs: internal, position in the purge index"},
};

/* Sets the defaults of all system columns.  constant_ts: is Citus in charge? */
void
ttl_docs_set_column_defaults(Oid relid, bool constant_ts)
{
	ttl_docs_run_ddl("ALTER TABLE %s ALTER COLUMN %s SET DEFAULT %s, ALTER COLUMN %s SET DEFAULT %s",
					 ttl_docs_quoted_name(relid),
					 TTL_DOCS_TS_COLUMN,
					 constant_ts ? "'-infinity'::pg_catalog.timestamptz" : "pg_catalog.now()",
					 TTL_DOCS_SLOT_COLUMN, NEVER_DUE_SLOT);
}

/* Explains the system columns, as far as they have no comments. */
void
ttl_docs_comment_on_columns(Oid relid)
{
	for (size_t i = 0; i < lengthof(comments); i++)
		if (GetComment(relid, RelationRelationId,
					   get_attnum(relid, comments[i].column)) == NULL)
			ttl_docs_run_ddl("COMMENT ON COLUMN %s.%s IS %s", ttl_docs_quoted_name(relid),
							 comments[i].column, quote_literal_cstr(comments[i].comment));
}
