/*-------------------------------------------------------------------------
 *
 * collection_pieces.c
 *		What a collection is made of: which tables qualify, system columns,
 *		trigger, purge index.
 *
 * Pieces are made and dropped by DDL through SPI, as the current user: event
 * triggers, dependencies, partitions and locks are then core's business, and
 * nobody gains a right.  Every name is qualified and quoted, every function
 * called is ours or in pg_catalog, and where an operator is needed it has its
 * schema or the search_path is pinned, so the caller's does not matter.
 *
 * The purge index is known by what it is, not by its name, so that it may be
 * renamed, reindexed concurrently, or replaced: an index on _slot alone, of
 * the access method that the indexing mode asks for.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/relation.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/catalog.h"
#include "catalog/dependency.h"
#include "catalog/index.h"
#include "catalog/partition.h"
#include "catalog/pg_am.h"
#include "catalog/pg_class.h"
#include "catalog/pg_index.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_opfamily.h"
#include "catalog/pg_trigger.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "parser/parse_func.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/reltrigger.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "ttl_docs.h"

#define TRIGGER_TYPE	(TRIGGER_TYPE_ROW | TRIGGER_TYPE_BEFORE | \
						 TRIGGER_TYPE_INSERT | TRIGGER_TYPE_UPDATE | \
						 TRIGGER_TYPE_DELETE)

static void require_no_inheritance(Relation rel);
static void require_fit_partitions(Relation rel);
static void report_invalid_ttl(Oid relid, const char *doc_column);
static Node *index_predicate(Relation index);
static bool is_slot_not_null(Node *predicate, AttrNumber slot);
static bool is_purge_index(Relation rel, Oid indexid, IndexingMode indexing);

/*
 * Raises an error unless the table is of a kind that can be a collection.
 * Nothing is said about its columns.
 */
void
ttl_docs_require_adoptable(Relation rel)
{
	char		relkind = rel->rd_rel->relkind;

	if (IsCatalogRelation(rel) || IsToastRelation(rel))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("system catalog \"%s\" cannot be a collection",
						RelationGetRelationName(rel))));
	if (relkind != RELKIND_RELATION && relkind != RELKIND_PARTITIONED_TABLE)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("\"%s\" cannot be a collection",
						RelationGetRelationName(rel)),
				 errdetail_relkind_not_supported(relkind),
				 errhint("Only plain and partitioned tables can be collections.")));
	if (rel->rd_rel->relpersistence == RELPERSISTENCE_TEMP)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("temporary table \"%s\" cannot be a collection",
						RelationGetRelationName(rel)),
				 errhint("Use a plain or an unlogged table.")));
	ttl_docs_refuse_citus_table(rel);
	require_no_inheritance(rel);
	require_fit_partitions(rel);
}

/* Triggers and purge index would not reach plain inheritance children. */
static void
require_no_inheritance(Relation rel)
{
	Oid			relid = RelationGetRelid(rel);

	if (rel->rd_rel->relispartition)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("partition \"%s\" cannot be a collection by itself",
						RelationGetRelationName(rel)),
				 errhint("Adopt the partitioned table that it belongs to.")));
	if (has_superclass(relid))
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("inheritance child \"%s\" cannot be a collection",
						RelationGetRelationName(rel)),
				 errhint("Use ALTER TABLE ... NO INHERIT, or a partitioned table.")));
	if (rel->rd_rel->relkind == RELKIND_RELATION &&
		find_inheritance_children(relid, NoLock) != NIL)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("inheritance parent \"%s\" cannot be a collection",
						RelationGetRelationName(rel)),
				 errhint("Use a partitioned table instead of inheritance.")));
}

/* A foreign server would not filter, nor stamp. */
static void
require_fit_partitions(Relation rel)
{
	List	   *tables;
	ListCell   *lc;

	if (rel->rd_rel->relkind != RELKIND_PARTITIONED_TABLE)
		return;
	tables = find_all_inheritors(RelationGetRelid(rel), AccessShareLock, NULL);
	foreach(lc, tables)
	{
		Relation	part = table_open(lfirst_oid(lc), NoLock);

		if (part->rd_rel->relkind == RELKIND_FOREIGN_TABLE)
			ereport(ERROR,
					(errcode(ERRCODE_WRONG_OBJECT_TYPE),
					 errmsg("\"%s\" cannot be a collection: its partition \"%s\" is a foreign table",
							RelationGetRelationName(rel),
							RelationGetRelationName(part)),
					 errhint("Detach the foreign partition first.")));
		ttl_docs_refuse_citus_table(part);
		ttl_docs_require_free_partition_key(part);
		table_close(part, NoLock);
	}
	list_free(tables);
}

/* A stamp that changes with every write cannot say where a row belongs. */
void
ttl_docs_require_free_partition_key(Relation rel)
{
	static const char *const names[] = {
		TTL_DOCS_TS_COLUMN, TTL_DOCS_TTL_COLUMN, TTL_DOCS_SLOT_COLUMN
	};

	if (rel->rd_rel->relkind != RELKIND_PARTITIONED_TABLE)
		return;
	for (size_t i = 0; i < lengthof(names); i++)
	{
		AttrNumber	attno = get_attnum(RelationGetRelid(rel), names[i]);
		Bitmapset  *columns;

		if (attno == InvalidAttrNumber)
			continue;
		columns = bms_make_singleton(attno - FirstLowInvalidHeapAttributeNumber);
		if (has_partition_attrs(rel, columns, NULL))
			ereport(ERROR,
					(errcode(ERRCODE_WRONG_OBJECT_TYPE),
					 errmsg("the system column \"%s\" of a collection cannot be part of the partition key of \"%s\"",
							names[i], RelationGetRelationName(rel)),
					 errhint("It changes with every write. Partition by a column of your own.")));
	}
}

/*
 * The number of a system column, InvalidAttrNumber if the table has none of
 * that name.  One of another type is in the way.
 */
AttrNumber
ttl_docs_find_system_column(Relation rel, const char *name, Oid type)
{
	Oid			relid = RelationGetRelid(rel);
	AttrNumber	attno = get_attnum(relid, name);
	Form_pg_attribute att;

	if (attno == InvalidAttrNumber)
		return InvalidAttrNumber;
	att = TupleDescAttr(RelationGetDescr(rel), attno - 1);
	if (att->atttypid != type || att->attgenerated || att->attidentity)
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("column \"%s\" of table \"%s\" is in the way of the system column of that name",
						name, RelationGetRelationName(rel)),
				 errdetail("It is of type %s%s, the system column is a plain column of type %s.",
						   format_type_be(att->atttypid),
						   att->attgenerated ? " and generated" :
						   att->attidentity ? " and an identity" : "",
						   format_type_be(type)),
				 errhint("Rename the column.")));
	return attno;
}

/* The valid purge index of a table for that mode; InvalidOid if it has none. */
Oid
ttl_docs_purge_index(Relation rel, IndexingMode indexing)
{
	return ttl_docs_other_purge_index(rel, indexing, InvalidOid);
}

/* The same, without one that is about to go. */
Oid
ttl_docs_other_purge_index(Relation rel, IndexingMode indexing, Oid excluded)
{
	List	   *indexes;
	ListCell   *lc;
	Oid			found = InvalidOid;

	if (indexing == INDEXING_NONE)
		return InvalidOid;
	indexes = RelationGetIndexList(rel);
	foreach(lc, indexes)
	{
		if (lfirst_oid(lc) != excluded &&
			is_purge_index(rel, lfirst_oid(lc), indexing))
		{
			found = lfirst_oid(lc);
			break;
		}
	}
	list_free(indexes);
	return found;
}

static bool
is_purge_index(Relation rel, Oid indexid, IndexingMode indexing)
{
	/* gone in the meantime: REINDEX CONCURRENTLY and DROP INDEX swap them */
	Relation	index = try_relation_open(indexid, AccessShareLock);
	AttrNumber	slot;
	bool		result;

	if (index == NULL)
		return false;
	slot = get_attnum(RelationGetRelid(rel), TTL_DOCS_SLOT_COLUMN);
	result = slot != InvalidAttrNumber &&
		index->rd_index->indisvalid &&
		index->rd_index->indnatts == 1 &&
		index->rd_index->indkey.values[0] == slot &&
		!index->rd_index->indisunique &&
		index->rd_rel->relam == (indexing == INDEXING_LAZY ?
								 BRIN_AM_OID : BTREE_AM_OID);

	/* ascending, by the usual order: its beginning is what is due first */
	if (result && indexing == INDEXING_CONSISTENT &&
		index->rd_rel->relkind == RELKIND_INDEX)
		result = index->rd_indoption[0] == 0 &&
			index->rd_opfamily[0] == INTEGER_BTREE_FAM_OID;

	/* a partial one has to hold every document that can expire */
	if (result)
	{
		Node	   *predicate = index_predicate(index);

		result = predicate == NULL ||
			(indexing == INDEXING_CONSISTENT && is_slot_not_null(predicate, slot));
	}
	relation_close(index, AccessShareLock);
	return result;
}

/*
 * The predicate of an index as it is stored.  Core's function computes what is
 * constant in it, and so runs functions of its owner: not for a background
 * worker, who has more rights.
 */
static Node *
index_predicate(Relation index)
{
	HeapTuple	tuple = SearchSysCache1(INDEXRELID,
										ObjectIdGetDatum(RelationGetRelid(index)));
	Node	   *predicate = NULL;
	Datum		text_form;
	bool		isnull;

	if (!HeapTupleIsValid(tuple))
		return NULL;
	text_form = SysCacheGetAttr(INDEXRELID, tuple, Anum_pg_index_indpred, &isnull);
	if (!isnull)
		predicate = stringToNode(TextDatumGetCString(text_form));
	ReleaseSysCache(tuple);
	return predicate;
}

/* Is it "_slot IS NOT NULL", and nothing else? */
static bool
is_slot_not_null(Node *predicate, AttrNumber slot)
{
	NullTest   *test = (NullTest *) predicate;

	return IsA(predicate, NullTest) &&
		test->nulltesttype == IS_NOT_NULL && IsA(test->arg, Var) &&
		((Var *) test->arg)->varattno == slot;
}

/*
 * Does the table have our trigger, whole: for every row and column, without a
 * condition?
 */
bool
ttl_docs_has_trigger(Oid relid)
{
	Relation	triggers = table_open(TriggerRelationId, AccessShareLock);
	ScanKeyData keys[2];
	SysScanDesc scan;
	HeapTuple	tuple;
	bool		found = false;

	ScanKeyInit(&keys[0], Anum_pg_trigger_tgrelid, BTEqualStrategyNumber,
				F_OIDEQ, ObjectIdGetDatum(relid));
	ScanKeyInit(&keys[1], Anum_pg_trigger_tgname, BTEqualStrategyNumber,
				F_NAMEEQ, CStringGetDatum(TTL_DOCS_TRIGGER));
	scan = systable_beginscan(triggers, TriggerRelidNameIndexId, true, NULL,
							  lengthof(keys), keys);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple))
	{
		Form_pg_trigger form = (Form_pg_trigger) GETSTRUCT(tuple);

		found = form->tgfoid == ttl_docs_trigger_function() &&
			form->tgtype == TRIGGER_TYPE && form->tgnargs == 0 &&
			form->tgattr.dim1 == 0 &&
			heap_attisnull(tuple, Anum_pg_trigger_tgqual,
						   RelationGetDescr(triggers));
	}
	systable_endscan(scan);
	table_close(triggers, AccessShareLock);
	return found;
}

/* The trigger function's OID, looked up because extensions come and go. */
Oid
ttl_docs_trigger_function(void)
{
	return LookupFuncName(list_make2(makeString(TTL_DOCS_INTERNAL),
									 makeString(TTL_DOCS_TRIGGER_FUNCTION)),
						  0, NULL, true);
}

/* Drops it, and its copies in partitions, without event triggers either. */
void
ttl_docs_drop_trigger(Oid relid)
{
	Oid			trigger = get_trigger_oid(relid, TTL_DOCS_TRIGGER, true);
	ObjectAddress address;

	if (!OidIsValid(trigger))
		return;
	ObjectAddressSet(address, TriggerRelationId, trigger);
	performDeletion(&address, DROP_RESTRICT, 0);
	CommandCounterIncrement();
}

/* The tables that hold the documents of a collection, as a list of OIDs. */
List *
ttl_docs_collection_tables(Oid root)
{
	List	   *members = find_all_inheritors(root, NoLock, NULL);
	List	   *tables = NIL;
	ListCell   *lc;

	foreach(lc, members)
		if (get_rel_relkind(lfirst_oid(lc)) == RELKIND_RELATION)
			tables = lappend_oid(tables, lfirst_oid(lc));
	list_free(members);
	return tables;
}

/* A table's name for use in SQL: qualified and quoted. */
char *
ttl_docs_quoted_name(Oid relid)
{
	return quote_qualified_identifier(get_namespace_name(get_rel_namespace(relid)),
									  get_rel_name(relid));
}

/* Runs a utility command as the current user. */
void
ttl_docs_run(const char *format,...)
{
	StringInfoData sql;

	initStringInfo(&sql);
	for (;;)
	{
		va_list		args;
		int			needed;

		va_start(args, format);
		needed = appendStringInfoVA(&sql, format, args);
		va_end(args);
		if (needed == 0)
			break;
		enlargeStringInfo(&sql, needed);
	}

	SPI_connect();
	if (SPI_execute(sql.data, false, 0) < 0)
		elog(ERROR, "SPI_execute failed: %s", sql.data);
	SPI_finish();
	pfree(sql.data);
}

/*
 * Makes our trigger, unless the table has it.  ALWAYS: keys are freed for
 * replicated rows too.  Not by CREATE TRIGGER: that would run event triggers,
 * and a partition's trigger is made in the name of its owner.
 */
void
ttl_docs_create_trigger(Oid relid)
{
	CreateTrigStmt *stmt;
	bool		pushed;

	if (ttl_docs_has_trigger(relid))
	{
		ttl_docs_run("ALTER TABLE %s ENABLE ALWAYS TRIGGER %s",
					 ttl_docs_quoted_name(relid), TTL_DOCS_TRIGGER);
		return;
	}
	stmt = makeNode(CreateTrigStmt);
	stmt->trigname = TTL_DOCS_TRIGGER;
	stmt->relation = makeRangeVar(get_namespace_name(get_rel_namespace(relid)),
								  get_rel_name(relid), -1);
	stmt->funcname = list_make2(makeString(TTL_DOCS_INTERNAL),
								makeString(TTL_DOCS_TRIGGER_FUNCTION));
	stmt->row = true;
	stmt->timing = TRIGGER_TYPE_BEFORE;
	stmt->events = TRIGGER_TYPE_INSERT | TRIGGER_TYPE_UPDATE | TRIGGER_TYPE_DELETE;
	pushed = ttl_docs_push_snapshot();
	CreateTriggerFiringOn(stmt, NULL, relid, InvalidOid, InvalidOid, InvalidOid,
						  InvalidOid, InvalidOid, NULL, false, false,
						  TRIGGER_FIRES_ALWAYS);
	if (pushed)
		PopActiveSnapshot();
	CommandCounterIncrement();
}

/* Builds the purge index of that mode, unless the table has it. */
void
ttl_docs_create_purge_index(Oid relid, IndexingMode indexing)
{
	Relation	rel = table_open(relid, AccessShareLock);
	bool		exists = OidIsValid(ttl_docs_purge_index(rel, indexing));

	table_close(rel, NoLock);
	if (exists || indexing == INDEXING_NONE)
		return;
	if (indexing == INDEXING_LAZY)
		ttl_docs_run("CREATE INDEX ON %s USING brin (%s)",
					 ttl_docs_quoted_name(relid), TTL_DOCS_SLOT_COLUMN);
	else
		ttl_docs_run("CREATE INDEX ON %s USING btree (%s) WHERE %s IS NOT NULL",
					 ttl_docs_quoted_name(relid), TTL_DOCS_SLOT_COLUMN,
					 TTL_DOCS_SLOT_COLUMN);
}

/* Drops the purge indexes of that mode. */
void
ttl_docs_drop_purge_index(Oid relid, IndexingMode indexing)
{
	for (;;)
	{
		Relation	rel = table_open(relid, AccessShareLock);
		Oid			index = ttl_docs_purge_index(rel, indexing);

		table_close(rel, NoLock);
		if (!OidIsValid(index))
			break;
		ttl_docs_run("DROP INDEX %s", ttl_docs_quoted_name(index));
	}
}

/*
 * Refuses to turn TTL on while documents hold a ttl that is not valid.  The
 * condition selects them.  The caller holds a lock that keeps writers out.
 */
void
ttl_docs_refuse_invalid_ttl(Oid relid, const char *doc_column,
							const char *condition)
{
	Relation	rel = table_open(relid, NoLock);
	char	   *from = psprintf("FROM %s WHERE %s", ttl_docs_quoted_name(relid),
								condition);

	SPI_connect();
	ttl_docs_query_as_owner(rel,
							psprintf("SELECT (SELECT pg_catalog.count(*) %s)::pg_catalog.int8,"
									 " (SELECT pg_catalog.jsonb_extract_path(%s, 'ttl') %s LIMIT 1)",
									 from, quote_identifier(doc_column), from));
	report_invalid_ttl(relid, doc_column);
	SPI_finish();
	table_close(rel, NoLock);
}

/* Raises the error, if the query just run has found any. */
static void
report_invalid_ttl(Oid relid, const char *doc_column)
{
	HeapTuple	row = SPI_tuptable->vals[0];
	TupleDesc	tupdesc = SPI_tuptable->tupdesc;
	bool		isnull;
	int64		count = DatumGetInt64(SPI_getbinval(row, tupdesc, 1, &isnull));
	Datum		example;

	if (count == 0)
		return;
	example = SPI_getbinval(row, tupdesc, 2, &isnull);
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg_plural("%lld document of \"%s\" has an invalid \"ttl\": %s",
						   "%lld documents of \"%s\" have an invalid \"ttl\", one of them %s",
						   (unsigned long) count, (long long) count,
						   get_rel_name(relid),
						   isnull ? "null" : ttl_docs_json_excerpt(DatumGetJsonbP(example))),
			 errhint("A ttl is an integer from 1 to %d, -1, or null. Find what is not with: SELECT * FROM %s WHERE ttl_docs.document_ttl(%s) = 0",
					 TTL_MAX, ttl_docs_quoted_name(relid),
					 quote_identifier(doc_column))));
}

/*
 * Raises an error if a BEFORE ROW trigger of the table fires after ours: it
 * could change a row that is stamped and validated already.
 */
void
ttl_docs_require_last_trigger(Relation rel)
{
	TriggerDesc *triggers = rel->trigdesc;

	for (int i = 0; triggers != NULL && i < triggers->numtriggers; i++)
	{
		Trigger    *trigger = &triggers->triggers[i];

		if (TRIGGER_FOR_ROW(trigger->tgtype) &&
			TRIGGER_FOR_BEFORE(trigger->tgtype) &&
			strcmp(trigger->tgname, TTL_DOCS_TRIGGER) > 0)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_OBJECT_DEFINITION),
					 errmsg("trigger \"%s\" of table \"%s\" would fire after \"%s\"",
							trigger->tgname, RelationGetRelationName(rel),
							TTL_DOCS_TRIGGER),
					 errdetail("The trigger of a collection has to fire last, and triggers fire in the order of their names."),
					 errhint("Choose a name that sorts before \"%s\".",
							 TTL_DOCS_TRIGGER)));
	}
}

/* For what only a collection has. */
void
ttl_docs_report_no_collection(Oid relid)
{
	char	   *name = get_rel_name(relid);

	if (name == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("relation with OID %u does not exist", relid)));
	ereport(ERROR,
			(errcode(ERRCODE_WRONG_OBJECT_TYPE),
			 errmsg("\"%s\" is not a collection", name),
			 errhint("The view ttl_docs.collections lists those that are; ttl_docs.adopt() makes it one.")));
}
