/*-------------------------------------------------------------------------
 *
 * adopt.c
 *		adopt(): an existing table becomes a collection.
 *
 * _ttl and _slot of the existing documents are computed from the documents.
 * Filling two new columns row by row would write the table twice.  So we add the
 * columns empty, and fill them by a change of their type, which takes a single
 * rewrite.  The trigger comes first and the label last: until then no guard and no
 * filter knows the table, and the trigger refuses to write (an event trigger that
 * fires in between could try).
 *
 * Locks: ACCESS EXCLUSIVE on the table and its partitions until the transaction
 * ends, as the ALTER TABLE that it runs.
 *
 * Rights: the table's owner or a superuser, checked before the lock is taken.  The
 * function and its DDL run as the caller.  Whatever can run code of users runs as
 * the owner of the table (core/owner.c), because a superuser adopts everybody's
 * tables.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_type.h"
#include "commands/event_trigger.h"
#include "commands/tablecmds.h"
#include "commands/trigger.h"
#include "executor/tuptable.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

#include "collection/collection_internal.h"

PG_FUNCTION_INFO_V1(ttl_docs_adopt);
PG_FUNCTION_INFO_V1(ttl_docs_first_ts_tz);
PG_FUNCTION_INFO_V1(ttl_docs_first_ts);

/* Which system columns a table has before it is adopted */
typedef struct PresentColumns
{
	bool		ts;
	bool		ttl;
	bool		slot;
} PresentColumns;

static void complete_collection(Oid relid, const CollectionSettings *settings);
static void recompute_tree(Oid relid, const CollectionSettings *settings);
static void choose_doc_column(Relation rel, const char *doc_column,
							  NameData *name);
static char *first_stamp_expression(Relation rel, const char *last_modified,
									bool has_ts);
static void add_system_columns(Oid relid, const CollectionSettings *settings,
							   const char *stamp, bool stamp_is_computed,
							   PresentColumns present);
static void set_not_null_as_owner(Oid relid);

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
	settings = ttl_docs_new_settings(!PG_ARGISNULL(1), PG_ARGISNULL(1) ? 0 : PG_GETARG_INT32(1),
									 text_to_cstring(PG_GETARG_TEXT_PP(4)));
	ttl_docs_adopt_table(PG_GETARG_OID(0), &settings,
						 PG_ARGISNULL(2) ? NULL : NameStr(*PG_GETARG_NAME(2)),
						 PG_ARGISNULL(3) ? NULL : NameStr(*PG_GETARG_NAME(3)));
	ttl_docs_warn_of_replication(PG_GETARG_OID(0));
	PG_RETURN_VOID();
}

CollectionSettings
ttl_docs_new_settings(bool on, int32 default_ttl, const char *indexing)
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
void
ttl_docs_adopt_table(Oid relid, CollectionSettings *settings,
					 const char *doc_column, const char *last_modified)
{
	Relation	rel = ttl_docs_open_owned(relid, AccessExclusiveLock);
	PresentColumns present;
	Collection	collection;
	NewlyExpired expired = {.is_complete = true};
	char	   *stamp;

	ttl_docs_lock_tree(relid, AccessExclusiveLock);
	ttl_docs_require_no_pending_detach(relid);
	if (ttl_docs_lookup_collection(relid, &collection) && collection.root == relid &&
		!ttl_docs_has_trigger(relid))
	{
		table_close(rel, NoLock);
		complete_collection(relid, &collection.settings);
		return;
	}
	if (ttl_docs_lookup_collection(relid, &collection))
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
		recompute_tree(relid, settings);
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
	recompute_tree(relid, settings);
	ttl_docs_create_trigger(relid);
	ttl_docs_create_purge_index(relid, settings->indexing);
}

/*
 * Makes _ttl and _slot right where they were there before, in all partitions,
 * which have column numbers of their own.
 */
static void
recompute_tree(Oid relid, const CollectionSettings *settings)
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
		ttl_docs_recompute_rows(member, &collection);
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
		ttl_docs_run_ddl("ALTER TABLE %s %s", table, add.data + 2);
	if (fill.len > 0)
		ttl_docs_run_ddl("ALTER TABLE %s %s", table, fill.data + 2);
	ttl_docs_run_ddl("ALTER TABLE %s ALTER COLUMN %s SET DEFAULT pg_catalog.clock_timestamp()",
					 table, TTL_DOCS_TS_COLUMN);
	if (present.ts)
		set_not_null_as_owner(relid);
	ttl_docs_run_ddl("COMMENT ON COLUMN %s.%s IS 'ttl_docs: when the document was last written'",
					 table, TTL_DOCS_TS_COLUMN);
	ttl_docs_run_ddl("COMMENT ON COLUMN %s.%s IS 'ttl_docs: the document''s own ttl; NULL inherits; ignored while TTL is off, see ttl_docs.collections'",
					 table, TTL_DOCS_TTL_COLUMN);
	ttl_docs_run_ddl("COMMENT ON COLUMN %s.%s IS 'ttl_docs: internal, position in the purge index'",
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
 * first_ts(last_modified timestamptz, adopted bigint): the stamp of a document
 * that is there when its table is adopted, at that microsecond.
 */
Datum
ttl_docs_first_ts_tz(PG_FUNCTION_ARGS)
{
	if (PG_ARGISNULL(0) || TIMESTAMP_NOT_FINITE(PG_GETARG_TIMESTAMPTZ(0)))
		PG_RETURN_TIMESTAMPTZ((TimestampTz) PG_GETARG_INT64(1));
	PG_RETURN_TIMESTAMPTZ(PG_GETARG_TIMESTAMPTZ(0));
}

/*
 * The same for a timestamp without time zone, which is read in the time zone
 * of the session that adopts.
 */
Datum
ttl_docs_first_ts(PG_FUNCTION_ARGS)
{
	if (PG_ARGISNULL(0) || TIMESTAMP_NOT_FINITE(PG_GETARG_TIMESTAMP(0)))
		PG_RETURN_TIMESTAMPTZ((TimestampTz) PG_GETARG_INT64(1));
	PG_RETURN_TIMESTAMPTZ(timestamp2timestamptz_opt_overflow(PG_GETARG_TIMESTAMP(0), NULL));
}
