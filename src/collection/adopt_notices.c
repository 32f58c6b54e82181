/*-------------------------------------------------------------------------
 *
 * adopt_notices.c
 *		Warns the caller of adopt() about effects that may be unexpected.
 *
 * The table that adopt() gets was not made for ttl_docs.  There is a NOTICE
 * for each of these cases:
 * - Documents have a "ttl" property.  It may mean something else (a DNS
 *   record has a ttl), or it has no effect because TTL is off.
 * - A foreign key of another table prevents the purge of expired documents.
 * - adopt() chose the only jsonb column, but the table has json columns too.
 * - The table has a column "ttl", which has no effect.
 *
 * Some documents may already be expired, because their _ts is older than the
 * adoption.  This file only counts them.  grace.c reports them and holds the
 * purge.
 *
 * When these functions run, the table is locked and has its system columns,
 * but is not a collection yet.  So the queries here see all rows.  They run
 * as the owner of the table (core/owner.c).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/pg_constraint.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_trigger.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "executor/spi.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/jsonb.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"

#include "collection/collection_internal.h"

/* Maximum number of foreign keys or columns that one NOTICE lists */
#define MAX_LISTED	10

/* The documents of a table that is being adopted */
typedef struct AdoptedDocuments
{
	int64		expired;		/* how many are expired under the new settings */
	int64		with_ttl;		/* how many have their own ttl */
	const char *example;		/* an excerpt of a document with its own ttl */
	int			example_ttl;	/* the ttl of the example */
	bool		is_committed;	/* is it too late to roll the adoption back? */
} AdoptedDocuments;

static AdoptedDocuments count_documents(Relation rel,
										const CollectionSettings *settings,
										bool has_old_stamps);
static void warn_of_documents(Relation rel, const CollectionSettings *settings,
							  bool is_on, const AdoptedDocuments *documents);
static void find_example(Relation rel, const CollectionSettings *settings,
						 AdoptedDocuments *documents);
static void warn_of_own_ttl(Relation rel, const AdoptedDocuments *documents);
static void warn_of_ignored_ttl(Relation rel, const AdoptedDocuments *documents);
static void warn_of_ttl_column(Relation rel, const char *doc_column);
static void warn_of_blocking_foreign_keys(Relation rel);
static List *add_blocking_constraints(List *constraints, Oid relid);
static int	describe_foreign_key(Oid constraint, int nlisted, StringInfo text);

/*
 * Warns about documents and foreign keys of a table that is being adopted.
 * Returns the number of documents that are expired under the new settings.
 * has_own_ttl tells whether any document has its own ttl.  has_old_stamps is
 * false if adopt() has just stamped all documents; then none is expired.
 */
int64
ttl_docs_warn_on_adopt(Oid relid, const CollectionSettings *settings,
					   bool has_own_ttl, bool has_old_stamps)
{
	Relation	rel = table_open(relid, NoLock);
	AdoptedDocuments documents = {0};

	if (has_own_ttl || has_old_stamps)
		documents = count_documents(rel, settings, has_old_stamps);
	warn_of_documents(rel, settings, settings->on, &documents);
	table_close(rel, NoLock);
	return documents.expired;
}

/*
 * The same warnings for a table that adopt_concurrently() has adopted.  The
 * caller has counted the documents with their own ttl.
 */
void
ttl_docs_warn_on_concurrent_adopt(Oid relid, const CollectionSettings *settings,
								  int64 with_ttl, const char *example, int32 example_ttl)
{
	Relation	rel = try_table_open(relid, AccessShareLock);
	AdoptedDocuments documents = {.with_ttl = with_ttl, .example = example,
	.example_ttl = example_ttl, .is_committed = true};

	/* somebody has dropped it since it was complete */
	if (rel == NULL)
		return;
	list_free(find_all_inheritors(relid, AccessShareLock, NULL));
	warn_of_documents(rel, settings, settings->target_on, &documents);
	table_close(rel, AccessShareLock);
}

static void
warn_of_documents(Relation rel, const CollectionSettings *settings, bool is_on,
				  const AdoptedDocuments *documents)
{
	if (is_on)
	{
		warn_of_own_ttl(rel, documents);
		warn_of_blocking_foreign_keys(rel);
	}
	else
		warn_of_ignored_ttl(rel, documents);
	warn_of_ttl_column(rel, NameStr(settings->doc_column));
}

/*
 * Reports which document column adopt() chose, if the table has other columns
 * that could hold the documents: columns of type json, or of a domain over
 * json or jsonb.  adopt() does not consider these.
 */
void
ttl_docs_warn_of_chosen_column(Oid relid, const char *doc_column)
{
	Relation	rel = table_open(relid, NoLock);
	TupleDesc	tupdesc = RelationGetDescr(rel);
	StringInfoData others;
	int			nothers = 0;

	initStringInfo(&others);
	for (int i = 0; i < tupdesc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(tupdesc, i);
		Oid			type = att->attisdropped ? InvalidOid : getBaseType(att->atttypid);

		if ((type != JSONOID && type != JSONBOID) ||
			strcmp(NameStr(att->attname), doc_column) == 0)
			continue;
		if (nothers++ < MAX_LISTED)
			appendStringInfo(&others, "%sColumn \"%s\" is of type %s.",
							 nothers > 1 ? "\n" : "", NameStr(att->attname),
							 format_type_be(att->atttypid));
	}
	if (nothers > 0)
		ereport(NOTICE,
				(errmsg("adopt() chose the jsonb column \"%s\" of \"%s\" as the document column",
						doc_column, RelationGetRelationName(rel)),
				 errdetail_internal("%s", others.data),
				 errhint("To use another column: release the table with SELECT ttl_docs.release(%s), change the column to type jsonb, and adopt the table again with doc_column.",
						 ttl_docs_quoted_literal(relid))));
	table_close(rel, NoLock);
}

/* Counts documents in one scan of the table, and finds an example. */
static AdoptedDocuments
count_documents(Relation rel, const CollectionSettings *settings,
				bool has_old_stamps)
{
	AdoptedDocuments documents = {0};
	const char *is_expired = "false";
	HeapTuple	row;
	TupleDesc	tupdesc;
	bool		isnull;

	if (settings->on && has_old_stamps)
		is_expired = psprintf("%s.expires_under(%s, %s, %d) OPERATOR(pg_catalog.<=) %s.now()",
							  TTL_DOCS_INTERNAL, TTL_DOCS_TS_COLUMN,
							  TTL_DOCS_TTL_COLUMN, settings->default_ttl,
							  TTL_DOCS_SCHEMA);
	SPI_connect();
	ttl_docs_query_as_owner(rel, psprintf("SELECT pg_catalog.count(*) FILTER (WHERE %s),"
										  " pg_catalog.count(%s) FROM %s",
										  is_expired, TTL_DOCS_TTL_COLUMN,
										  ttl_docs_quoted_name(RelationGetRelid(rel))));
	row = SPI_tuptable->vals[0];
	tupdesc = SPI_tuptable->tupdesc;
	documents.expired = DatumGetInt64(SPI_getbinval(row, tupdesc, 1, &isnull));
	documents.with_ttl = DatumGetInt64(SPI_getbinval(row, tupdesc, 2, &isnull));
	SPI_finish();
	if (documents.with_ttl > 0)
		find_example(rel, settings, &documents);
	return documents;
}

/* Finds a document that has its own ttl. */
static void
find_example(Relation rel, const CollectionSettings *settings,
			 AdoptedDocuments *documents)
{
	MemoryContext caller = CurrentMemoryContext;
	HeapTuple	row;
	TupleDesc	tupdesc;
	Datum		doc;
	bool		isnull;

	SPI_connect();
	ttl_docs_query_as_owner(rel, psprintf("SELECT %s, %s FROM %s WHERE %s IS NOT NULL LIMIT 1",
										  TTL_DOCS_TTL_COLUMN,
										  quote_identifier(NameStr(settings->doc_column)),
										  ttl_docs_quoted_name(RelationGetRelid(rel)),
										  TTL_DOCS_TTL_COLUMN));
	row = SPI_tuptable->vals[0];
	tupdesc = SPI_tuptable->tupdesc;
	documents->example_ttl = DatumGetInt32(SPI_getbinval(row, tupdesc, 1, &isnull));
	doc = SPI_getbinval(row, tupdesc, 2, &isnull);
	documents->example = MemoryContextStrdup(caller, isnull ? "null" :
											 ttl_docs_json_excerpt(DatumGetJsonbP(doc)));
	SPI_finish();
}

static void
warn_of_own_ttl(Relation rel, const AdoptedDocuments *documents)
{
	char	   *table = ttl_docs_quoted_name(RelationGetRelid(rel));

	if (documents->with_ttl == 0)
		return;
	ereport(NOTICE,
			(errmsg_plural("%lld document of \"%s\" has a \"ttl\" property, which now decides when it expires",
						   "%lld documents of \"%s\" have a \"ttl\" property, which now decides when they expire",
						   (unsigned long) documents->with_ttl,
						   (long long) documents->with_ttl,
						   RelationGetRelationName(rel)),
			 errdetail("For example, the ttl is %d in %s.", documents->example_ttl,
					   documents->example),
			 documents->is_committed ?
			 errhint("To see the live ones: SELECT * FROM %s WHERE %s IS NOT NULL. The owner also sees the expired ones after SET row_security = off. If the property means something else in these documents, see \"A DefaultTTL that was too short\" in docs/operations.md.",
					 table, TTL_DOCS_TTL_COLUMN) :
			 errhint("To see the live ones: SELECT * FROM %s WHERE %s IS NOT NULL. The owner also sees the expired ones after SET row_security = off. If the property means something else in these documents, roll back and rename the property first. After the commit, see \"A DefaultTTL that was too short\" in docs/operations.md.",
					 table, TTL_DOCS_TTL_COLUMN)));
}

static void
warn_of_ignored_ttl(Relation rel, const AdoptedDocuments *documents)
{
	char	   *literal;

	if (documents->with_ttl == 0)
		return;
	literal = ttl_docs_quoted_literal(RelationGetRelid(rel));
	ereport(NOTICE,
			(errmsg_plural("%lld document of \"%s\" has a \"ttl\" property, which is ignored because TTL is off",
						   "%lld documents of \"%s\" have a \"ttl\" property, which is ignored because TTL is off",
						   (unsigned long) documents->with_ttl,
						   (long long) documents->with_ttl,
						   RelationGetRelationName(rel)),
			 errhint("To see what would expire: SELECT * FROM ttl_docs.preview(%s, -1). To turn TTL on: SELECT ttl_docs.set_default_ttl(%s, -1).",
					 literal, literal)));
}

/* Warns about a column whose name is that of the property. */
static void
warn_of_ttl_column(Relation rel, const char *doc_column)
{
	if (strcmp(doc_column, "ttl") == 0 ||
		get_attnum(RelationGetRelid(rel), "ttl") == InvalidAttrNumber)
		return;
	ereport(NOTICE,
			(errmsg("column \"ttl\" of \"%s\" does not make documents expire",
					RelationGetRelationName(rel)),
			 errdetail("ttl_docs reads the property \"ttl\" of the documents in column \"%s\".",
					   doc_column)));
}

/*
 * Warns about foreign keys that forbid the delete of a referenced row.
 * Because of such a foreign key, a referenced document stays on disk after it
 * expires and keeps its key.
 */
static void
warn_of_blocking_foreign_keys(Relation rel)
{
	List	   *tables = find_all_inheritors(RelationGetRelid(rel), NoLock, NULL);
	List	   *constraints = NIL;
	StringInfoData text;
	int			nlisted = 0;
	ListCell   *lc;

	foreach(lc, tables)
		constraints = add_blocking_constraints(constraints, lfirst_oid(lc));
	list_sort(constraints, list_oid_cmp);
	initStringInfo(&text);
	foreach(lc, constraints)
		nlisted += describe_foreign_key(lfirst_oid(lc), nlisted, &text);
	if (nlisted > MAX_LISTED)
		appendStringInfo(&text, "\nThere are %d more.", nlisted - MAX_LISTED);
	list_free(tables);
	list_free(constraints);
	if (nlisted == 0)
		return;
	ereport(NOTICE,
			(errmsg_plural("%d foreign key prevents the purge of referenced documents of \"%s\"",
						   "%d foreign keys prevent the purge of referenced documents of \"%s\"",
						   nlisted, nlisted, RelationGetRelationName(rel)),
			 errdetail_internal("%s", text.data),
			 errhint("While a row references an expired document, the purge cannot delete the document, and an INSERT with the same key can fail. Use ON DELETE CASCADE or SET NULL, or delete the referencing rows.")));
}

/*
 * Adds the foreign key constraints for which core refuses to delete a
 * referenced row of the table.
 */
static List *
add_blocking_constraints(List *constraints, Oid relid)
{
	Relation	rel = table_open(relid, NoLock);
	TriggerDesc *triggers = rel->trigdesc;

	for (int i = 0; triggers != NULL && i < triggers->numtriggers; i++)
	{
		const Trigger *trigger = &triggers->triggers[i];

		if (trigger->tgenabled != TRIGGER_DISABLED &&
			(trigger->tgfoid == F_RI_FKEY_NOACTION_DEL ||
			 trigger->tgfoid == F_RI_FKEY_RESTRICT_DEL))
			constraints = list_append_unique_oid(constraints, trigger->tgconstraint);
	}
	table_close(rel, NoLock);
	return constraints;
}

/*
 * Adds a line about a foreign key, unless the text already lists MAX_LISTED
 * of them.  Returns how many foreign keys the constraint counts as: 1, or 0
 * if core created it for a partition as part of another constraint.
 */
static int
describe_foreign_key(Oid constraint, int nlisted, StringInfo text)
{
	HeapTuple	tuple = SearchSysCache1(CONSTROID, ObjectIdGetDatum(constraint));
	Form_pg_constraint form;
	bool		is_part;

	if (!HeapTupleIsValid(tuple))
		return 0;
	form = (Form_pg_constraint) GETSTRUCT(tuple);
	is_part = OidIsValid(form->conparentid);
	if (!is_part && nlisted < MAX_LISTED)
		appendStringInfo(text, "%sForeign key \"%s\" of table \"%s\" has ON DELETE %s.",
						 nlisted > 0 ? "\n" : "", NameStr(form->conname),
						 get_rel_name(form->conrelid),
						 form->confdeltype == FKCONSTR_ACTION_RESTRICT ?
						 "RESTRICT" : "NO ACTION");
	ReleaseSysCache(tuple);
	return is_part ? 0 : 1;
}
