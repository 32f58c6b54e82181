/*-------------------------------------------------------------------------
 *
 * messages.c
 *		What writers are told about the ttl of their documents.
 *
 * An invalid ttl is an error, which names the table and, where the user may read
 * it, the key of the row.  The other two are about a ttl that does nothing:
 * - a NOTICE if a document has a ttl while TTL is off, for each collection once a
 *   session.  A session gets a limited number of them, because an application may
 *   write to thousands of such collections, and mean to;
 * - a WARNING if a client sets the column _ttl, at most once a statement.  A
 *   statement is what the client has sent: it may write to many partitions, and
 *   fire triggers that run statements of their own.  So the time at which it
 *   arrived identifies it.  (Several statements in one string arrive together,
 *   and get one warning.)
 *
 * Restores and the replica role keep the stamps that they bring, and raise neither
 * NOTICE nor WARNING.  Nor does replication in another role: nobody would read them.
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

#define KEY_MAX			256		/* bytes of a key that are shown */
#define MAX_WARNED		8		/* collections with a NOTICE in a session */

/* Collections that this session has had its NOTICE about */
static Oid	warned_while_off[MAX_WARNED];
static int	nwarned_while_off = 0;

/* When the statement arrived that was warned about _ttl */
static TimestampTz warned_statement = DT_NOBEGIN;

static char *describe_key(Relation rel, const Datum *values, const bool *isnull);
static Oid	key_index(Relation rel);

/*
 * Raises the error for the ttl of a new row.  The row may not have its generated
 * columns yet.
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
			 key == NULL ? 0 : errdetail("Key of the failing row: %s.", key),
			 errhint("A ttl is an integer from 1 to %d (seconds) or -1 (never expires). Omit it or set it to null to inherit the DefaultTTL of the collection.",
					 TTL_MAX),
			 errtable(rel)));
}

/*
 * The key of a row as "(id)=(7)", cut where it is long; NULL if the table has no
 * key, or the user may not read it.  Core decides that, by the rule for the keys
 * in its own messages.
 */
static char *
describe_key(Relation rel, const Datum *values, const bool *isnull)
{
	Oid			indexid = key_index(rel);
	Datum		key_values[INDEX_MAX_KEYS];
	bool		key_isnull[INDEX_MAX_KEYS];
	bool		has_values = true;
	Relation	index;
	char	   *text = NULL;

	if (!OidIsValid(indexid))
		return NULL;
	index = index_open(indexid, AccessShareLock);
	for (int i = 0; i < IndexRelationGetNumberOfKeyAttributes(index); i++)
	{
		/* neither kind of index has expressions */
		int			column = index->rd_index->indkey.values[i] - 1;

		has_values &= TupleDescAttr(RelationGetDescr(rel), column)->attgenerated == '\0';
		key_values[i] = values[column];
		key_isnull[i] = isnull[column];
	}
	if (has_values)
		text = BuildIndexValueDescription(index, key_values, key_isnull);
	index_close(index, AccessShareLock);
	if (text == NULL || strlen(text) <= KEY_MAX)
		return text;
	return psprintf("%.*s...)", pg_mbcliplen(text, strlen(text), KEY_MAX), text);
}

/* The index of the primary key, or else of the replica identity. */
static Oid
key_index(Relation rel)
{
	/* finds both */
	list_free(RelationGetIndexList(rel));
	return OidIsValid(rel->rd_pkindex) ? rel->rd_pkindex : rel->rd_replidindex;
}

/* Tells, once a session, that the ttl of a document does nothing. */
void
ttl_docs_warn_of_ttl_while_off(const DocumentWriter *writer)
{
	Oid			root = writer->collection.root;

	for (int i = 0; i < nwarned_while_off; i++)
		if (warned_while_off[i] == root)
			return;
	if (nwarned_while_off == MAX_WARNED || ttl_docs_is_by_replication())
		return;
	warned_while_off[nwarned_while_off++] = root;
	ereport(NOTICE,
			(errmsg("the \"ttl\" of a document of \"%s\" is ignored: TTL is off",
					get_rel_name(root)),
			 errhint("To turn TTL on: SELECT ttl_docs.set_default_ttl(%s, -1).",
					 ttl_docs_quoted_literal(root))));
}

/* Warns, once a statement, that the value that was sent for _ttl does nothing. */
void
ttl_docs_warn_of_ttl_column(const DocumentWriter *writer, int32 sent)
{
	TimestampTz statement = GetCurrentStatementStartTimestamp();

	if (statement == warned_statement || ttl_docs_is_by_replication())
		return;
	warned_statement = statement;
	ereport(WARNING,
			(errmsg("value %d for column \"%s\" of \"%s\" is ignored", sent,
					TTL_DOCS_TTL_COLUMN, get_rel_name(writer->collection.root)),
			 errdetail("The column shows the \"ttl\" of the document."),
			 errhint("Set \"ttl\" in the document instead, for example with %s || '{\"ttl\": 60}'.",
					 quote_identifier(NameStr(writer->collection.settings.doc_column)))));
}

/* Does replication apply a change, core's or that of another system? */
bool
ttl_docs_is_by_replication(void)
{
	return IsLogicalWorker() ||
		(replorigin_session_origin != InvalidRepOriginId &&
		 replorigin_session_origin != DoNotReplicateId);
}
