/*-------------------------------------------------------------------------
 *
 * ttl_messages.c
 *		Messages about the ttl of documents that are written.
 *
 * An invalid ttl is an ERROR.  The message names the table and, if the user
 * may read it, the key of the row.
 *
 * Two other messages are about a ttl that has no effect:
 * - A NOTICE if a document has a ttl while TTL is off.  A session gets this
 *   NOTICE once for each collection, and for at most MAX_NOTICES
 *   collections, because an application may write to thousands of such
 *   collections on purpose.
 * - A WARNING if a client sets the column _ttl, at most once for each
 *   statement that the client sends.  A statement may write to many
 *   partitions, and its triggers may run other statements.  So we identify
 *   the statement by the time at which it arrived.  Several statements in one
 *   string arrive together, and get one WARNING.
 *
 * Restores and the replica role keep the stamps that they bring, and raise
 * neither NOTICE nor WARNING.  Replication in another role raises neither,
 * because nobody would read them.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/xact.h"
#include "mb/pg_wchar.h"
#include "replication/logicalworker.h"
#include "replication/origin.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "write/write_internal.h"

#define MAX_KEY_BYTES	256		/* maximum length of a key in a message */
#define MAX_NOTICES		8		/* maximum number of NOTICEs in a session */

/* Collections for which this session has raised the NOTICE */
static Oid	noticed_collections[MAX_NOTICES];
static int	nnoticed_collections = 0;

/* Arrival time of the last statement that got the WARNING */
static TimestampTz warned_statement = DT_NOBEGIN;

static char *describe_key(Relation rel, const Datum *values, const bool *isnull);
static Oid	key_index(Relation rel);

/*
 * Raises the error for an invalid ttl in a new row.  The generated columns of
 * the row may not be computed yet.
 */
void
ttl_docs_report_invalid_ttl(Relation rel, const Datum *values, const bool *isnull,
							const JsonbValue *ttl)
{
	JsonbValue	copy = *ttl;
	char	   *key = describe_key(rel, values, isnull);

	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("invalid \"ttl\" in a document of \"%s\": %s",
					RelationGetRelationName(rel),
					ttl_docs_json_excerpt(JsonbValueToJsonb(&copy))),
			 key == NULL ? 0 : errdetail("Failing row has key %s.", key),
			 errhint("A ttl is an integer from 1 to %d (seconds) or -1 (never expires). Omit it or set it to null to inherit the DefaultTTL of the collection.",
					 TTL_MAX),
			 errtable(rel)));
}

/*
 * Returns the key of a row, such as "(id)=(7)".  A long key is truncated.
 * Returns NULL if the table has no key, if a key column is generated, or if
 * the user may not read the key.  Core checks this privilege by the same rule
 * as for keys in its own messages.
 */
static char *
describe_key(Relation rel, const Datum *values, const bool *isnull)
{
	Oid			indexid = key_index(rel);
	Datum		key_values[INDEX_MAX_KEYS];
	bool		key_isnull[INDEX_MAX_KEYS];
	bool		has_all_values = true;
	Relation	index;
	char	   *text = NULL;

	if (!OidIsValid(indexid))
		return NULL;
	index = index_open(indexid, AccessShareLock);
	for (int i = 0; i < IndexRelationGetNumberOfKeyAttributes(index); i++)
	{
		/* primary keys and replica identities have no expressions */
		int			column = index->rd_index->indkey.values[i] - 1;

		has_all_values &=
			TupleDescAttr(RelationGetDescr(rel), column)->attgenerated == '\0';
		key_values[i] = values[column];
		key_isnull[i] = isnull[column];
	}
	if (has_all_values)
		text = BuildIndexValueDescription(index, key_values, key_isnull);
	index_close(index, AccessShareLock);
	if (text == NULL || strlen(text) <= MAX_KEY_BYTES)
		return text;
	return psprintf("%.*s...)", pg_mbcliplen(text, strlen(text), MAX_KEY_BYTES),
					text);
}

/* Returns the index of the primary key, or else of the replica identity. */
static Oid
key_index(Relation rel)
{
	/* sets rd_pkindex and rd_replidindex */
	list_free(RelationGetIndexList(rel));
	return OidIsValid(rel->rd_pkindex) ? rel->rd_pkindex : rel->rd_replidindex;
}

/* Raises the NOTICE about a ttl while TTL is off, once per collection. */
void
ttl_docs_warn_of_ttl_while_off(const DocumentWriter *writer)
{
	Oid			root = writer->collection.root;

	for (int i = 0; i < nnoticed_collections; i++)
		if (noticed_collections[i] == root)
			return;
	if (nnoticed_collections == MAX_NOTICES || ttl_docs_replication_writes())
		return;
	noticed_collections[nnoticed_collections++] = root;
	ereport(NOTICE,
			(errmsg("the \"ttl\" of a document of \"%s\" is ignored: TTL is off",
					get_rel_name(root)),
			 errhint("To turn TTL on: SELECT ttl_docs.set_default_ttl(%s, -1).",
					 ttl_docs_quoted_literal(root))));
}

/* Raises the WARNING about a value for _ttl, once per statement. */
void
ttl_docs_warn_of_ttl_column(const DocumentWriter *writer, int32 sent)
{
	TimestampTz statement = GetCurrentStatementStartTimestamp();

	if (statement == warned_statement || ttl_docs_replication_writes())
		return;
	warned_statement = statement;
	ereport(WARNING,
			(errmsg("value %d for column \"%s\" of \"%s\" is ignored", sent,
					TTL_DOCS_TTL_COLUMN, get_rel_name(writer->collection.root)),
			 errdetail("The column shows the \"ttl\" of the document."),
			 errhint("Set \"ttl\" in the document instead, for example with %s || '{\"ttl\": 60}'.",
					 quote_identifier(NameStr(writer->collection.settings.doc_column)))));
}

/*
 * Does replication write the current row?  Either core's logical replication,
 * or another system that has set a replication origin.
 */
bool
ttl_docs_replication_writes(void)
{
	return IsLogicalWorker() || compat_has_origin();
}
