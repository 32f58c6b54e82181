/*-------------------------------------------------------------------------
 *
 * collection_ddl.c
 *		Tables become collections, and plain tables again.
 *
 * Adopting.  _ttl and _slot of the documents that are there come from the
 * documents, and filling two new columns row by row would write the table
 * twice.  So the columns are added empty, and filled by a change of their type,
 * which takes a single rewrite.  The trigger comes first and the label last: until
 * then no guard and no filter knows the table, and the trigger refuses to write
 * (an event trigger that fires in between could).
 *
 * Releasing.  An expired document must not come back as a plain row, so the
 * expired ones are deleted first, with their triggers and foreign key actions.
 * Where that leaves triggers for the end of the transaction, constraints are made
 * immediate: no table is altered that has triggers pending.
 *
 * Locks: adopt, release and drop_collection take ACCESS EXCLUSIVE on the table
 * and its partitions until the transaction ends, as the ALTER TABLE and DROP
 * TABLE that they run would.
 *
 * Rights: the table's owner or a superuser, checked before the lock is taken.
 * The functions run as the caller, and so does all DDL in them.  What can run code
 * of users, queries and deletes, runs as the owner of the table (as_owner.c), and
 * deletes only if that code is the owner's (purge_rights.c): a superuser calls
 * them for everybody's tables.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/relation.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_type.h"
#include "commands/event_trigger.h"
#include "commands/tablecmds.h"
#include "commands/trigger.h"
#include "executor/tuptable.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/varlena.h"

#include "purge.h"

PG_FUNCTION_INFO_V1(ttl_docs_create_collection);
PG_FUNCTION_INFO_V1(ttl_docs_drop_collection);
PG_FUNCTION_INFO_V1(ttl_docs_adopt);
PG_FUNCTION_INFO_V1(ttl_docs_release);

/* Which system columns a table has before it is adopted */
typedef struct PresentColumns
{
	bool		ts;
	bool		ttl;
	bool		slot;
} PresentColumns;

/* The way through the expired rows of a table */
typedef struct ExpiredScan
{
	const Collection *collection;
	ExpiryBounds bounds;
	Snapshot	snapshot;
	TupleTableSlot *row;
	TableScanDesc scan;
} ExpiredScan;

static RangeVar *parse_name(char *text);
static CollectionSettings new_settings(bool on, int32 default_ttl,
									   const char *indexing);
static void adopt_table(Oid relid, CollectionSettings *settings,
						const char *doc_column, const char *last_modified);
static void mend_tree(Oid relid, const CollectionSettings *settings);
static void complete_collection(Oid relid, const CollectionSettings *settings);
static void choose_doc_column(Relation rel, const char *doc_column, NameData *name);
static char *first_stamp_expression(Relation rel, const char *last_modified,
									bool has_ts);
static void add_system_columns(Oid relid, const CollectionSettings *settings,
							   const char *stamp, bool stamp_is_computed,
							   PresentColumns present);
static void set_not_null_as_owner(Oid relid);
static int64 delete_expired_documents(Oid relid);
static void require_no_grace(Relation rel, const CollectionSettings *settings);
static void require_no_pending_trigger(Relation rel);
static void begin_expired_scan(ExpiredScan *expired, Relation rel,
							   const Collection *collection);
static bool next_expired_row(ExpiredScan *expired);
static void end_expired_scan(ExpiredScan *expired);
static bool has_expired_rows(Relation rel, const Collection *collection);
static int64 delete_expired_rows(Relation rel, const Collection *collection);
static void require_own_code(Relation rel, Oid root);
static void require_no_other_index(Relation rel, const Collection *collection);
static void lock_tree(Oid relid, LOCKMODE lockmode);

/*
 * create_collection(name text, default_ttl integer, indexing text)
 */
Datum
ttl_docs_create_collection(PG_FUNCTION_ARGS)
{
	CollectionSettings settings;
	RangeVar   *name;
	char	   *quoted;
	Oid			relid;

	ttl_docs_require_writable(fcinfo);
	if (PG_ARGISNULL(0) || PG_ARGISNULL(2))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("name and indexing of a collection cannot be null")));
	settings = new_settings(!PG_ARGISNULL(1), PG_ARGISNULL(1) ? 0 : PG_GETARG_INT32(1),
							text_to_cstring(PG_GETARG_TEXT_PP(2)));
	name = parse_name(text_to_cstring(PG_GETARG_TEXT_PP(0)));

	/* where CREATE TABLE would put it, and nowhere else */
	if (name->schemaname == NULL)
		name->schemaname = get_namespace_name(RangeVarGetCreationNamespace(name));
	quoted = quote_qualified_identifier(name->schemaname, name->relname);
	if (name->catalogname != NULL)
		quoted = psprintf("%s.%s", quote_identifier(name->catalogname), quoted);
	ttl_docs_run("CREATE TABLE %s ("
				 "id pg_catalog.text PRIMARY KEY DEFAULT pg_catalog.gen_random_uuid()::pg_catalog.text, "
				 "doc pg_catalog.jsonb NOT NULL)", quoted);
	CommandCounterIncrement();
	relid = RangeVarGetRelid(name, AccessExclusiveLock, false);
	adopt_table(relid, &settings, "doc", NULL);
	PG_RETURN_OID(relid);
}

/* Reads a name as SQL reads one. */
static RangeVar *
parse_name(char *text)
{
	List	   *identifiers;
	List	   *names = NIL;
	ListCell   *lc;

	/* takes its input apart */
	if (!SplitIdentifierString(pstrdup(text), '.', &identifiers) || identifiers == NIL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_NAME),
				 errmsg("invalid name of a collection: \"%s\"", text),
				 errhint("Quote it as in SQL: '\"My Sessions\"'.")));
	foreach(lc, identifiers)
		names = lappend(names, makeString(lfirst(lc)));
	return makeRangeVarFromNameList(names);
}

/*
 * drop_collection(collection regclass)
 */
Datum
ttl_docs_drop_collection(PG_FUNCTION_ARGS)
{
	Collection	collection;
	Relation	rel;
	char	   *table;

	ttl_docs_require_writable(fcinfo);
	rel = ttl_docs_open_collection(ttl_docs_collection_arg(fcinfo),
								   AccessExclusiveLock, &collection);
	table = ttl_docs_quoted_name(RelationGetRelid(rel));
	table_close(rel, NoLock);
	ttl_docs_run("DROP TABLE %s", table);
	PG_RETURN_VOID();
}

/*
 * adopt(collection regclass, default_ttl integer, doc_column name,
 *		 last_modified name, indexing text)
 */
Datum
ttl_docs_adopt(PG_FUNCTION_ARGS)
{
	CollectionSettings settings;

	ttl_docs_require_writable(fcinfo);
	if (PG_ARGISNULL(0) || PG_ARGISNULL(4))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("table and indexing of a collection cannot be null")));
	settings = new_settings(!PG_ARGISNULL(1), PG_ARGISNULL(1) ? 0 : PG_GETARG_INT32(1),
							text_to_cstring(PG_GETARG_TEXT_PP(4)));
	adopt_table(PG_GETARG_OID(0), &settings,
				PG_ARGISNULL(2) ? NULL : NameStr(*PG_GETARG_NAME(2)),
				PG_ARGISNULL(3) ? NULL : NameStr(*PG_GETARG_NAME(3)));
	ttl_docs_warn_of_replication(PG_GETARG_OID(0));
	PG_RETURN_VOID();
}

/*
 * release(collection regclass)
 */
Datum
ttl_docs_release(PG_FUNCTION_ARGS)
{
	Collection	collection;
	Relation	rel;
	Oid			relid;
	char	   *table;
	int64		deleted;

	ttl_docs_require_writable(fcinfo);
	rel = ttl_docs_open_collection(ttl_docs_collection_arg(fcinfo),
								   AccessExclusiveLock, &collection);
	relid = RelationGetRelid(rel);
	require_no_grace(rel, &collection.settings);
	ttl_docs_require_no_pending_detach(relid);
	require_no_pending_trigger(rel);
	ttl_docs_require_unused(rel, "release");
	require_no_other_index(rel, &collection);
	table_close(rel, NoLock);

	deleted = delete_expired_documents(relid);
	if (deleted > 0)
		ereport(NOTICE,
				(errmsg_plural("deleted %lld expired document of \"%s\"",
							   "deleted %lld expired documents of \"%s\"",
							   (unsigned long) deleted, (long long) deleted,
							   get_rel_name(relid))));
	ttl_docs_write_label(relid, NULL);
	table = ttl_docs_quoted_name(relid);
	ttl_docs_drop_trigger(relid);
	ttl_docs_run("ALTER TABLE %s DROP COLUMN %s, DROP COLUMN %s, DROP COLUMN %s",
				 table, TTL_DOCS_TS_COLUMN, TTL_DOCS_TTL_COLUMN,
				 TTL_DOCS_SLOT_COLUMN);
	PG_RETURN_VOID();
}

/* release() would delete documents that somebody may want to copy out. */
static void
require_no_grace(Relation rel, const CollectionSettings *settings)
{
	if (!ttl_docs_in_grace(settings))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("cannot release \"%s\" while its purge is held after a change of settings",
					RelationGetRelationName(rel)),
			 errdetail("Documents that the change made expire can be copied out for another %s.",
					   ttl_docs_grace_left(settings)),
			 errhint("To copy them out, see \"A DefaultTTL that was too short\" in docs/operations.md. Then run SELECT ttl_docs.resume_purge(%s).",
					 quote_literal_cstr(ttl_docs_quoted_name(RelationGetRelid(rel))))));
}

/*
 * Raises an error if triggers of the table wait for the end of the transaction:
 * core refuses to alter such a table.  Firing them is up to the user.
 */
static void
require_no_pending_trigger(Relation rel)
{
	List	   *tables = find_all_inheritors(RelationGetRelid(rel), NoLock, NULL);
	ListCell   *lc;

	foreach(lc, tables)
		if (AfterTriggerPendingOnRel(lfirst_oid(lc)))
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_IN_USE),
					 errmsg("cannot release \"%s\" because it has pending trigger events",
							RelationGetRelationName(rel)),
					 errhint("Run SET CONSTRAINTS ALL IMMEDIATE, or COMMIT, first.")));
	list_free(tables);
}

/* The first argument of a function that is about a collection. */
Oid
ttl_docs_collection_arg(FunctionCallInfo fcinfo)
{
	if (PG_ARGISNULL(0))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("collection cannot be null")));
	return PG_GETARG_OID(0);
}

/*
 * Opens a table for a change that only its owner may make.  The right is
 * checked before the lock is taken, so that others cannot queue up on it.
 */
Relation
ttl_docs_open_owned(Oid relid, LOCKMODE lockmode)
{
	char		relkind = get_rel_relkind(relid);
	Relation	rel;

	if (relkind != '\0' && !compat_table_ownercheck(relid, GetUserId()))
		aclcheck_error(ACLCHECK_NOT_OWNER, get_relkind_objtype(relkind),
					   get_rel_name(relid));
	rel = relkind == '\0' ? NULL : try_relation_open(relid, lockmode);
	if (rel == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("relation with OID %u does not exist", relid)));
	return rel;
}

/*
 * The same for a collection, which is locked with all of its partitions: a
 * partition can be read and written without asking for the root.
 */
Relation
ttl_docs_open_collection(Oid relid, LOCKMODE lockmode, Collection *collection)
{
	Relation	rel = ttl_docs_open_owned(relid, lockmode);

	lock_tree(relid, lockmode);
	if (!ttl_docs_collection(relid, collection))
		ttl_docs_report_no_collection(relid);
	if (collection->root != relid)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("\"%s\" is a partition of the collection \"%s\"",
						RelationGetRelationName(rel),
						get_rel_name(collection->root)),
				 errhint("Call the function for \"%s\".",
						 get_rel_name(collection->root))));
	return rel;
}

static void
lock_tree(Oid relid, LOCKMODE lockmode)
{
	list_free(ttl_docs_partition_tree(relid, lockmode));
}

/*
 * Raises an error if a query of this session is at work on the table or one of
 * its partitions: our lock does not keep ourselves out.
 */
void
ttl_docs_require_unused(Relation rel, const char *action)
{
	List	   *tables = find_all_inheritors(RelationGetRelid(rel), NoLock, NULL);
	ListCell   *lc;

	CheckTableNotInUse(rel, action);
	foreach(lc, tables)
	{
		Relation	part;

		if (lfirst_oid(lc) == RelationGetRelid(rel))
			continue;
		part = table_open(lfirst_oid(lc), NoLock);
		CheckTableNotInUse(part, action);
		table_close(part, NoLock);
	}
	list_free(tables);
}

/* An index that goes with a system column would be lost without a word. */
static void
require_no_other_index(Relation rel, const Collection *collection)
{
	List	   *indexes = RelationGetIndexList(rel);
	ListCell   *lc;

	foreach(lc, indexes)
	{
		Relation	index = index_open(lfirst_oid(lc), AccessShareLock);
		Bitmapset  *columns = NULL;
		int			ncolumns = index->rd_index->indnatts;

		for (int i = 0; i < ncolumns; i++)
			columns = bms_add_member(columns, index->rd_index->indkey.values[i] -
									 FirstLowInvalidHeapAttributeNumber);
		if (bms_is_member(collection->ts - FirstLowInvalidHeapAttributeNumber, columns) ||
			bms_is_member(collection->ttl - FirstLowInvalidHeapAttributeNumber, columns) ||
			(bms_is_member(collection->slot - FirstLowInvalidHeapAttributeNumber, columns) &&
			 ncolumns > 1))
			ereport(ERROR,
					(errcode(ERRCODE_DEPENDENT_OBJECTS_STILL_EXIST),
					 errmsg("cannot release \"%s\": the index \"%s\" uses its system columns",
							RelationGetRelationName(rel), RelationGetRelationName(index)),
					 errhint("Drop the index, or build it without them, first.")));
		index_close(index, AccessShareLock);
	}
	list_free(indexes);
}

static CollectionSettings
new_settings(bool on, int32 default_ttl, const char *indexing)
{
	CollectionSettings settings;

	memset(&settings, 0, sizeof(settings));
	settings.on = on;
	settings.default_ttl = on ? default_ttl : TTL_NEVER;
	settings.indexing = ttl_docs_parse_indexing(indexing);
	settings.written_floor = DT_NOBEGIN;
	settings.due_floor = DT_NOBEGIN;
	settings.grace_until = DT_NOBEGIN;
	if (on)
		ttl_docs_check_default_ttl(default_ttl);
	if (on && settings.indexing == INDEXING_NONE)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("a DefaultTTL needs a purge index, and indexing is \"none\""),
				 errhint("Use indexing \"consistent\" or \"lazy\", or leave the DefaultTTL off.")));
	return settings;
}

/* Makes a table a collection; doc_column and last_modified may be NULL. */
static void
adopt_table(Oid relid, CollectionSettings *settings,
			const char *doc_column, const char *last_modified)
{
	Relation	rel = ttl_docs_open_owned(relid, AccessExclusiveLock);
	PresentColumns present;
	Collection	collection;
	NewlyExpired expired = {.is_complete = true};
	char	   *stamp;

	lock_tree(relid, AccessExclusiveLock);
	ttl_docs_require_no_pending_detach(relid);
	if (ttl_docs_collection(relid, &collection) && collection.root == relid &&
		!ttl_docs_has_trigger(relid))
	{
		table_close(rel, NoLock);
		complete_collection(relid, &collection.settings);
		return;
	}
	if (ttl_docs_collection(relid, &collection))
		ereport(ERROR,
				(errcode(ERRCODE_DUPLICATE_OBJECT),
				 collection.root == relid ?
				 errmsg("table \"%s\" is a collection already",
						RelationGetRelationName(rel)) :
				 errmsg("table \"%s\" is a partition of the collection \"%s\"",
						RelationGetRelationName(rel),
						get_rel_name(collection.root)),
				 errhint("Change its settings with ttl_docs.set_default_ttl() and ttl_docs.set_indexing().")));
	ttl_docs_require_adoptable(rel);
	ttl_docs_require_last_trigger(rel);
	if (OidIsValid(get_trigger_oid(relid, TTL_DOCS_TRIGGER, true)) &&
		!ttl_docs_has_trigger(relid))
		ereport(ERROR,
				(errcode(ERRCODE_DUPLICATE_OBJECT),
				 errmsg("table \"%s\" has a trigger \"%s\" that is not ours",
						RelationGetRelationName(rel), TTL_DOCS_TRIGGER),
				 errhint("Rename it: the name is kept for the trigger of the collection.")));
	choose_doc_column(rel, doc_column, &settings->doc_column);
	present.ts = ttl_docs_find_system_column(rel, TTL_DOCS_TS_COLUMN, TIMESTAMPTZOID);
	present.ttl = ttl_docs_find_system_column(rel, TTL_DOCS_TTL_COLUMN, INT4OID);
	present.slot = ttl_docs_find_system_column(rel, TTL_DOCS_SLOT_COLUMN, INT8OID);
	stamp = first_stamp_expression(rel, last_modified, present.ts);
	if (settings->on)
		ttl_docs_refuse_invalid_ttl(relid, NameStr(settings->doc_column),
									psprintf("%s.document_ttl(%s) OPERATOR(pg_catalog.=) %d",
											 TTL_DOCS_SCHEMA,
											 quote_identifier(NameStr(settings->doc_column)),
											 TTL_INVALID));
	if (!present.ts && last_modified == NULL)
		ttl_docs_refuse_lossy_replication(rel);
	table_close(rel, NoLock);

	ttl_docs_create_trigger(relid);
	add_system_columns(relid, settings, stamp, last_modified != NULL, present);
	if (present.ttl || present.slot)
		mend_tree(relid, settings);
	ttl_docs_create_purge_index(relid, settings->indexing);

	if (doc_column == NULL)
		ttl_docs_warn_of_chosen_column(relid, NameStr(settings->doc_column));
	expired.count = ttl_docs_warn_on_adopt(relid, settings,
										   present.ts || last_modified != NULL);
	ttl_docs_begin_grace(relid, settings, &expired);

	settings->origin_database = MyDatabaseId;
	settings->origin_relation = relid;
	ttl_docs_write_label(relid, settings);
}

/*
 * Gives a collection back what a restore has left behind: "pg_restore -t" brings
 * the label, whose settings and floors stay, but no trigger and no index.
 */
static void
complete_collection(Oid relid, const CollectionSettings *settings)
{
	mend_tree(relid, settings);
	ttl_docs_create_trigger(relid);
	ttl_docs_create_purge_index(relid, settings->indexing);
}

/*
 * Makes _ttl and _slot right where they were there before, in all partitions,
 * which have column numbers of their own.
 */
static void
mend_tree(Oid relid, const CollectionSettings *settings)
{
	List	   *tables = find_all_inheritors(relid, NoLock, NULL);
	ListCell   *lc;

	foreach(lc, tables)
	{
		Oid			member = lfirst_oid(lc);
		Collection	collection;

		collection.root = relid;
		collection.settings = *settings;
		ttl_docs_find_columns(member, &collection);
		ttl_docs_mend_derived(member, &collection);
	}
	list_free(tables);
}

/* Finds the jsonb column that holds the documents, or raises an error. */
static void
choose_doc_column(Relation rel, const char *doc_column, NameData *name)
{
	TupleDesc	tupdesc = RelationGetDescr(rel);
	Form_pg_attribute chosen = NULL;

	for (int i = 0; i < tupdesc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(tupdesc, i);

		if (att->attisdropped)
			continue;
		if (doc_column != NULL)
		{
			if (strcmp(NameStr(att->attname), doc_column) == 0)
				chosen = att;
			continue;
		}
		if (att->atttypid != JSONBOID)
			continue;
		if (chosen != NULL)
			ereport(ERROR,
					(errcode(ERRCODE_AMBIGUOUS_COLUMN),
					 errmsg("table \"%s\" has more than one jsonb column",
							RelationGetRelationName(rel)),
					 errhint("Name the one that holds the documents with doc_column, for example \"%s\".",
							 NameStr(chosen->attname))));
		chosen = att;
	}

	if (chosen == NULL && doc_column != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_COLUMN),
				 errmsg("column \"%s\" of table \"%s\" does not exist",
						doc_column, RelationGetRelationName(rel))));
	if (chosen == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_COLUMN),
				 errmsg("table \"%s\" has no jsonb column",
						RelationGetRelationName(rel)),
				 errhint("A collection keeps its documents in a column of type jsonb; for one of another type, ALTER TABLE ... ALTER COLUMN ... TYPE jsonb.")));
	if (chosen->atttypid != JSONBOID || chosen->attgenerated)
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("column \"%s\" of table \"%s\" cannot hold documents",
						NameStr(chosen->attname), RelationGetRelationName(rel)),
				 errdetail("It is of type %s%s.", format_type_be(chosen->atttypid),
						   chosen->attgenerated ? " and generated" : ""),
				 errhint("A collection keeps its documents in a plain column of type jsonb; for one of another type, ALTER TABLE ... ALTER COLUMN ... TYPE jsonb.")));
	namestrcpy(name, NameStr(chosen->attname));
}

/* SQL for the first _ts of the documents that are there. */
static char *
first_stamp_expression(Relation rel, const char *last_modified, bool has_ts)
{
	AttrNumber	attno;
	Oid			type;

	if (last_modified == NULL)
		return has_ts ? pstrdup(TTL_DOCS_TS_COLUMN) :
			psprintf("%s.first_ts(NULL::pg_catalog.timestamptz, " INT64_FORMAT ")",
					 TTL_DOCS_INTERNAL, (int64) ttl_docs_clock());

	if (has_ts)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("last_modified cannot be used for table \"%s\", which has a column \"%s\" already",
						RelationGetRelationName(rel), TTL_DOCS_TS_COLUMN),
				 errhint("Leave last_modified out to take these stamps over, or drop the column first.")));
	attno = get_attnum(RelationGetRelid(rel), last_modified);
	if (attno <= 0)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_COLUMN),
				 errmsg("column \"%s\" of table \"%s\" does not exist",
						last_modified, RelationGetRelationName(rel))));
	type = getBaseType(get_atttype(RelationGetRelid(rel), attno));
	if (type != TIMESTAMPTZOID && type != TIMESTAMPOID)
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("column \"%s\" of table \"%s\" is of type %s",
						last_modified, RelationGetRelationName(rel),
						format_type_be(type)),
				 errhint("last_modified names a column of type timestamp with or without time zone.")));
	return psprintf("%s.first_ts(%s, " INT64_FORMAT ")", TTL_DOCS_INTERNAL,
					quote_identifier(last_modified), (int64) ttl_docs_clock());
}

/*
 * Adds the system columns that are missing, and fills them in one rewrite of the
 * table: a change of type computes values from other columns of a row.  A stamp
 * that is the same for all rows is a default and needs none.
 */
static void
add_system_columns(Oid relid, const CollectionSettings *settings,
				   const char *stamp, bool stamp_is_computed,
				   PresentColumns present)
{
	char	   *table = ttl_docs_quoted_name(relid);
	const char *doc = quote_identifier(NameStr(settings->doc_column));
	StringInfoData add;
	StringInfoData fill;

	initStringInfo(&add);
	initStringInfo(&fill);
	if (!present.ts && stamp_is_computed)
	{
		/* with some value until it is filled, to be NOT NULL from the start */
		appendStringInfo(&add, ", ADD COLUMN %s pg_catalog.timestamptz NOT NULL DEFAULT pg_catalog.to_timestamp(0)",
						 TTL_DOCS_TS_COLUMN);
		appendStringInfo(&fill, ", ALTER COLUMN %s TYPE pg_catalog.timestamptz USING %s",
						 TTL_DOCS_TS_COLUMN, stamp);
	}
	else if (!present.ts)
		appendStringInfo(&add, ", ADD COLUMN %s pg_catalog.timestamptz NOT NULL DEFAULT %s",
						 TTL_DOCS_TS_COLUMN, stamp);
	if (!present.ttl)
	{
		appendStringInfo(&add, ", ADD COLUMN %s pg_catalog.int4", TTL_DOCS_TTL_COLUMN);
		appendStringInfo(&fill, ", ALTER COLUMN %s TYPE pg_catalog.int4 USING %s.document_ttl(%s)",
						 TTL_DOCS_TTL_COLUMN, TTL_DOCS_SCHEMA, doc);
	}
	if (!present.slot)
	{
		appendStringInfo(&add, ", ADD COLUMN %s pg_catalog.int8", TTL_DOCS_SLOT_COLUMN);
		appendStringInfo(&fill, ", ALTER COLUMN %s TYPE pg_catalog.int8 USING %s.slot(%s, %s.document_ttl(%s), %d)",
						 TTL_DOCS_SLOT_COLUMN, TTL_DOCS_INTERNAL, stamp,
						 TTL_DOCS_SCHEMA, doc, settings->default_ttl);
	}

	if (add.len > 0)
		ttl_docs_run("ALTER TABLE %s %s", table, add.data + 2);
	if (fill.len > 0)
		ttl_docs_run("ALTER TABLE %s %s", table, fill.data + 2);
	ttl_docs_run("ALTER TABLE %s ALTER COLUMN %s SET DEFAULT pg_catalog.clock_timestamp()",
				 table, TTL_DOCS_TS_COLUMN);
	if (present.ts)
		set_not_null_as_owner(relid);
	ttl_docs_run("COMMENT ON COLUMN %s.%s IS 'ttl_docs: when the document was last written'",
				 table, TTL_DOCS_TS_COLUMN);
	ttl_docs_run("COMMENT ON COLUMN %s.%s IS 'ttl_docs: the document''s own ttl; NULL inherits; ignored while TTL is off, see ttl_docs.collections'",
				 table, TTL_DOCS_TTL_COLUMN);
	ttl_docs_run("COMMENT ON COLUMN %s.%s IS 'ttl_docs: internal, position in the purge index'",
				 table, TTL_DOCS_SLOT_COLUMN);
}

/*
 * Forbids that a document has no stamp, where the column was there before.  To
 * spare itself a scan, core computes what is constant in the table's CHECK
 * constraints, so it must not be left to a caller with more rights than the owner.
 * Does not run ALTER TABLE as SQL, because the owner may lack USAGE on the schema.
 */
static void
set_not_null_as_owner(Oid relid)
{
	Relation	rel = table_open(relid, NoLock);
	AlterTableStmt *stmt = makeNode(AlterTableStmt);
	AlterTableCmd *cmd = makeNode(AlterTableCmd);
	OwnerSwitch before;

	cmd->subtype = AT_SetNotNull;
	cmd->name = TTL_DOCS_TS_COLUMN;
	stmt->cmds = list_make1(cmd);
	stmt->objtype = OBJECT_TABLE;

	ttl_docs_become_owner(rel, &before);
	table_close(rel, NoLock);
	/* core wants this if the command that calls us has event triggers */
	EventTriggerAlterTableStart((Node *) stmt);
	AlterTableInternal(relid, stmt->cmds, true);
	EventTriggerAlterTableEnd();
	CommandCounterIncrement();
	ttl_docs_become_caller(&before);
}

/*
 * Deletes the expired documents of a table and its partitions, and returns how
 * many there were.
 */
static int64
delete_expired_documents(Oid relid)
{
	List	   *tables = find_all_inheritors(relid, NoLock, NULL);
	ListCell   *lc;
	int64		deleted = 0;

	foreach(lc, tables)
	{
		Relation	rel = table_open(lfirst_oid(lc), NoLock);
		Collection	collection;
		OwnerSwitch before;

		if (rel->rd_rel->relkind != RELKIND_PARTITIONED_TABLE &&
			ttl_docs_collection(RelationGetRelid(rel), &collection) &&
			has_expired_rows(rel, &collection))
		{
			ttl_docs_become_owner(rel, &before);
			deleted += delete_expired_rows(rel, &collection);
			ttl_docs_become_caller(&before);
		}
		table_close(rel, NoLock);
	}
	list_free(tables);
	return deleted;
}

/* Begins to look for the rows of a table that are expired now. */
static void
begin_expired_scan(ExpiredScan *expired, Relation rel, const Collection *collection)
{
	expired->collection = collection;
	expired->bounds = ttl_docs_bounds(&collection->settings, ttl_docs_clock());
	expired->snapshot = RegisterSnapshot(GetLatestSnapshot());
	expired->row = table_slot_create(rel, NULL);
	expired->scan = table_beginscan(rel, expired->snapshot, 0, NULL);
}

/* Moves on to the next one; false if there is none. */
static bool
next_expired_row(ExpiredScan *expired)
{
	while (table_scan_getnextslot(expired->scan, ForwardScanDirection, expired->row))
	{
		CHECK_FOR_INTERRUPTS();
		if (ttl_docs_row_is_expired(&expired->bounds, expired->collection, expired->row))
			return true;
	}
	return false;
}

static void
end_expired_scan(ExpiredScan *expired)
{
	table_endscan(expired->scan);
	ExecDropSingleTupleTableSlot(expired->row);
	UnregisterSnapshot(expired->snapshot);
}

static bool
has_expired_rows(Relation rel, const Collection *collection)
{
	ExpiredScan expired;
	bool		found;

	begin_expired_scan(&expired, rel, collection);
	found = next_expired_row(&expired);
	end_expired_scan(&expired);
	return found;
}

static int64
delete_expired_rows(Relation rel, const Collection *collection)
{
	ExpiredScan expired;
	int64		deleted = 0;

	require_own_code(rel, collection->root);
	begin_expired_scan(&expired, rel, collection);
	while (next_expired_row(&expired))
	{
		DeleteResult result = ttl_docs_delete_expired(rel, collection,
													  &expired.row->tts_tid);

		if (result == DELETE_REFUSED)
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("cannot release \"%s\": a trigger keeps an expired document from being deleted",
							RelationGetRelationName(rel)),
					 errhint("Disable the BEFORE DELETE trigger that returns NULL.")));
		if (result == DELETE_DONE)
			deleted++;
	}
	end_expired_scan(&expired);
	return deleted;
}

/* Raises an error where a delete would run somebody else's code as the owner. */
static void
require_own_code(Relation rel, Oid root)
{
	char	   *foreign = ttl_docs_foreign_code(rel, root, NULL);

	if (foreign == NULL)
		return;
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("cannot release \"%s\": deleting its expired documents would run somebody else's code as its owner",
					RelationGetRelationName(rel)),
			 errdetail("Blocked by %s.", foreign),
			 errhint("Drop or disable it, or let its function belong to the owner of the table.")));
}
