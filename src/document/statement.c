/*-------------------------------------------------------------------------
 *
 * statement.c
 *		The SQL statements of the document functions, as cached plans.
 *
 * Each document function runs one statement, the same one that a user would
 * write.  So core and the other parts of ttl_docs take care of privileges, row
 * security, triggers, isolation, partitions and expiry.
 *
 * The session caches an entry for each table: the key column, and a plan for
 * each statement that was used.  If the table changes, the relation cache
 * invalidates the entry.  The text of a statement also names other objects,
 * such as the schema.  If one of them changes, core's plan cache invalidates
 * the plan.  Invalid entries and plans are freed when the transaction ends,
 * at the latest.
 *
 * A document function runs no code of the table's owner that the user's own
 * statement would not run.  So ids are converted by the input and output
 * functions of the type, and not by casts.  The only cast is that of a string
 * to text.  For a domain, the type is its base type.
 *
 * An invalid plan may still be running further up the stack, if one of its
 * triggers has called a document function.  Such a plan is freed when the
 * transaction ends.  None of our plans runs then, because none of them can
 * commit.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/stratnum.h"
#include "access/xact.h"
#include "catalog/pg_attribute.h"
#include "catalog/pg_constraint.h"
#include "catalog/pg_operator.h"
#include "catalog/pg_type.h"
#include "nodes/bitmapset.h"
#include "parser/parse_oper.h"
#include "storage/lmgr.h"
#include "tcop/dest.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/plancache.h"
#include "utils/rel.h"
#include "utils/ruleutils.h"
#include "utils/syscache.h"

#include "document/document_internal.h"

/* The cache entry of a table */
typedef struct DocumentTable
{
	Oid			relid;			/* hash key, must be first */
	bool		is_valid;
	DocumentKey key;
	SPIPlanPtr	plans[NUM_STATEMENTS];	/* NULL until needed */
} DocumentTable;

static HTAB *tables = NULL;
static List *retired_plans = NIL;	/* replaced, but may be running */
static bool has_invalid_tables = false;

/*
 * Number of our statements that are running, one nested in the other.  After
 * an error the number is too high until the transaction ends.  This only
 * delays the freeing of plans.
 */
static int	running_statements = 0;

static int	begin_shell_settings(void);
static SPIPlanPtr find_plan(const DocumentKey *key, DocumentStatement statement);
static void require_same_table(SPIPlanPtr plan, Oid relid);
static DocumentTable *find_table(Oid relid);
static void require_same_key(const DocumentKey *key, const DocumentKey *current);
static int	plan_options(const DocumentKey *key, DocumentStatement statement);
static DocumentKey find_key(Oid relid);
static void retire_plan(DocumentTable *table, DocumentStatement statement);
static char *statement_text(const DocumentKey *key, DocumentStatement statement);
static char *insert_text(const DocumentKey *key, const char *table,
						 const char *key_column, const char *doc_column,
						 const char *options);
static char *key_condition(const DocumentKey *key, const char *key_column);
static bool is_chosen_by_parser(Form_pg_operator operator, Oid type);

void
ttl_docs_document_init(void)
{
	HASHCTL		ctl;

	ctl.keysize = sizeof(Oid);
	ctl.entrysize = sizeof(DocumentTable);
	ctl.hcxt = TopMemoryContext;
	tables = hash_create("ttl_docs document statements", 16, &ctl,
						 HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
}

/*
 * Returns the key column of a collection.  Raises an error if there is none.
 *
 * Takes the same lock that the statement will take, so that no other session
 * can change the key column in between.  A weaker lock is not enough: the
 * statement would have to upgrade it, which can deadlock with DDL.
 */
DocumentKey
ttl_docs_document_key(Oid relid, LOCKMODE lockmode)
{
	Collection	collection;

	LockRelationOid(relid, lockmode);
	if (!ttl_docs_lookup_collection(relid, &collection))
		ttl_docs_report_no_collection(relid);
	return find_table(relid)->key;
}

/*
 * Runs a statement with a key and a document.  Either may be NULL if the
 * statement does not use it.  The caller has connected to SPI.  The result
 * goes to the receiver or, if the receiver is NULL, to SPI.
 */
void
ttl_docs_run_statement(const DocumentKey *key, DocumentStatement statement,
					   const Datum *key_value, Jsonb *doc, DestReceiver *receiver)
{
	ParamListInfo params = makeParamList(2);
	SPIExecuteOptions options = {.params = params, .dest = receiver};
	SPIPlanPtr	plan;
	int			nest_level = 0;
	int			code;

	params->params[0] = (ParamExternData) {key_value != NULL ? *key_value : (Datum) 0,
		key_value == NULL, PARAM_FLAG_CONST, key->type};
	params->params[1] = (ParamExternData) {JsonbPGetDatum(doc), doc == NULL,
		PARAM_FLAG_CONST, JSONBOID};
	options.read_only = statement == STATEMENT_READ || statement >= STATEMENT_ALL;

	plan = find_plan(key, statement);
	ttl_docs_end_turns |= TURN_OF_DOCUMENT;
	running_statements++;
	if (key->is_shell)
		nest_level = begin_shell_settings();
	code = SPI_execute_plan_extended(plan, &options);
	if (key->is_shell)
		AtEOXact_GUC(true, nest_level);
	running_statements--;
	if (code < 0)
		elog(ERROR, "could not run the statement of a document function: %s",
			 SPI_result_code_string(code));
	require_same_table(plan, key->relid);
}

/*
 * Sets parameters for a statement on a shell.  Citus prints the key for other
 * nodes, which read it under other settings.  Returns the argument for
 * AtEOXact_GUC(), which restores the settings.
 */
static int
begin_shell_settings(void)
{
	int			nest_level = ttl_docs_begin_portable_output();

	/* this setting overrides plan_options() */
	if (plan_cache_mode == PLAN_CACHE_MODE_FORCE_GENERIC_PLAN)
		ttl_docs_set_locally("plan_cache_mode", "auto");
	return nest_level;
}

/* Returns the plan of a statement.  It is not freed while it runs. */
static SPIPlanPtr
find_plan(const DocumentKey *key, DocumentStatement statement)
{
	DocumentTable *table = find_table(key->relid);
	Oid			types[] = {key->type, JSONBOID};
	SPIPlanPtr	plan;

	require_same_key(key, &table->key);
	plan = table->plans[statement];
	if (plan != NULL && SPI_plan_is_valid(plan))
		return plan;
	retire_plan(table, statement);
	plan = SPI_prepare_cursor(statement_text(key, statement), lengthof(types), types,
							  plan_options(key, statement));
	if (plan == NULL || SPI_keepplan(plan) != 0)
		elog(ERROR, "could not prepare a statement for the documents of table %u",
			 key->relid);

	/* planning may have invalidated the entry; the next call notices that */
	table->plans[statement] = plan;
	return plan;
}

/*
 * Raises an error if the plan was for another table.  Our lock prevents
 * others from renaming the table, but not from renaming its schema.  If the
 * schema is renamed after find_plan() and before the plan is used, core
 * parses the text of the statement again.  The old name may belong to another
 * table by then.
 */
static void
require_same_table(SPIPlanPtr plan, Oid relid)
{
	CachedPlanSource *source = linitial(SPI_plan_get_plan_sources(plan));

	/* the list is empty if a rule has replaced the statement with nothing */
	if (source->relationOids != NIL && !list_member_oid(source->relationOids, relid))
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("schema of collection \"%s\" was renamed while a document function was running",
						get_rel_name(relid)),
				 errhint("The transaction might succeed if retried.")));
}

/*
 * Raises an error if the key column has changed since the caller got it: the
 * caller's key has the type of the old column.  Our lock prevents such a
 * change by other sessions, but not by code that this session has run to make
 * the key.
 */
static void
require_same_key(const DocumentKey *key, const DocumentKey *current)
{
	if (key->column != current->column || key->type != current->type ||
		key->is_generated != current->is_generated || key->is_shell != current->is_shell)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("primary key of \"%s\" has changed while a document function was running",
						get_rel_name(key->relid)),
				 errhint("Do not alter the table in a function that its defaults, types or triggers call.")));
}

/*
 * A statement with a key finds one row, whatever the key, so a generic plan
 * is best.  But a generic plan locks all partitions of a partitioned table,
 * and a custom plan locks only one of them.
 *
 * A shell always gets a custom plan.  Citus does not support generic plans of
 * statements that go to several shards, and Citus 13.2 crashes in some generic
 * plans with RETURNING.
 */
static int
plan_options(const DocumentKey *key, DocumentStatement statement)
{
	if (key->is_shell)
		return CURSOR_OPT_CUSTOM_PLAN;
	if (statement >= STATEMENT_ALL)
		return CURSOR_OPT_PARALLEL_OK;
	return get_rel_relkind(key->relid) == RELKIND_PARTITIONED_TABLE ? 0 :
		CURSOR_OPT_GENERIC_PLAN;
}

/* Returns a valid entry.  The entry exists until the transaction ends. */
static DocumentTable *
find_table(Oid relid)
{
	DocumentTable *table;
	DocumentKey key;
	bool		found;

	table = hash_search(tables, &relid, HASH_FIND, NULL);
	if (table != NULL && table->is_valid)
		return table;

	key = find_key(relid);
	table = hash_search(tables, &relid, HASH_ENTER, &found);
	if (!found)
		memset(table->plans, 0, sizeof(table->plans));
	for (int i = 0; i < NUM_STATEMENTS; i++)
		retire_plan(table, i);
	table->key = key;
	table->is_valid = true;
	return table;
}

/* Reads the key column from the catalogs.  Raises an error if there is none. */
static DocumentKey
find_key(Oid relid)
{
	Oid			constraint;
	Bitmapset  *columns = get_primary_key_attnos(relid, true, &constraint);
	DocumentKey key = {.relid = relid};
	Collection	collection;
	HeapTuple	tuple;
	Form_pg_attribute attribute;

	if (bms_membership(columns) != BMS_SINGLETON)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 bms_is_empty(columns) ?
				 errmsg("cannot use document functions on \"%s\" because it has no primary key",
						get_rel_name(relid)) :
				 errmsg("cannot use document functions on \"%s\" because its primary key has %d columns",
						get_rel_name(relid), bms_num_members(columns)),
				 errhint("The document functions need a primary key of one column. Use plain SQL on this table.")));
	key.column = bms_singleton_member(columns) + FirstLowInvalidHeapAttributeNumber;
	if (ttl_docs_lookup_collection(relid, &collection) && collection.doc == key.column)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot use document functions on \"%s\" because its primary key is the document column",
						get_rel_name(relid)),
				 errhint("The document functions need a primary key that is another column. Use plain SQL on this table.")));

	tuple = SearchSysCache2(ATTNUM, ObjectIdGetDatum(relid),
							Int16GetDatum(key.column));
	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for attribute %d of relation %u",
			 key.column, relid);
	attribute = (Form_pg_attribute) GETSTRUCT(tuple);
	key.type = getBaseType(attribute->atttypid);
	key.is_generated = attribute->attgenerated != '\0';
	ReleaseSysCache(tuple);

	if (ttl_docs_contains_domain(key.type))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot use document functions on \"%s\" because its primary key contains a domain",
						get_rel_name(relid)),
				 errdetail("The primary key is of type %s.", format_type_be(key.type)),
				 errhint("Use plain SQL on this table.")));
	getTypeInputInfo(key.type, &key.input, &key.ioparam);
	switch (key.type)
	{
		case INT2OID:
		case INT4OID:
		case INT8OID:
		case FLOAT4OID:
		case FLOAT8OID:
		case NUMERICOID:
			key.is_number = true;
			break;
	}
	key.index = get_constraint_index(constraint);
	key.is_shell = ttl_docs_is_shell(relid);
	return key;
}

/* Frees a plan.  If the plan may be running, frees it at transaction end. */
static void
retire_plan(DocumentTable *table, DocumentStatement statement)
{
	SPIPlanPtr	plan = table->plans[statement];
	MemoryContext caller;

	if (plan == NULL)
		return;
	table->plans[statement] = NULL;
	if (running_statements == 0)
	{
		SPI_freeplan(plan);
		return;
	}
	caller = MemoryContextSwitchTo(TopMemoryContext);
	retired_plans = lappend(retired_plans, plan);
	ttl_docs_end_turns |= TURN_OF_DOCUMENT;
	MemoryContextSwitchTo(caller);
}

/* Invalidates the entry of a table, or all entries if relid is InvalidOid. */
void
ttl_docs_forget_document_table(Oid relid)
{
	HASH_SEQ_STATUS status;
	DocumentTable *table;

	if (OidIsValid(relid))
	{
		table = hash_search(tables, &relid, HASH_FIND, NULL);
		if (table == NULL)
			return;
		table->is_valid = false;
	}
	else
	{
		hash_seq_init(&status, tables);
		while ((table = hash_seq_search(&status)) != NULL)
			table->is_valid = false;
	}
	has_invalid_tables = true;
	ttl_docs_end_turns |= TURN_OF_DOCUMENT;
}

/*
 * Frees retired plans and invalid entries, whose tables may not exist any
 * more.  Called when the transaction has ended.
 */
void
ttl_docs_end_document_transaction(void)
{
	HASH_SEQ_STATUS status;
	DocumentTable *table;
	ListCell   *lc;

	running_statements = 0;
	if (has_invalid_tables)
	{
		has_invalid_tables = false;
		hash_seq_init(&status, tables);
		while ((table = hash_seq_search(&status)) != NULL)
		{
			if (table->is_valid)
				continue;
			/* retire_plan() could allocate memory, so free the plans here */
			for (int i = 0; i < NUM_STATEMENTS; i++)
				if (table->plans[i] != NULL)
					SPI_freeplan(table->plans[i]);
			hash_search(tables, &table->relid, HASH_REMOVE, NULL);
		}
	}
	foreach(lc, retired_plans)
		SPI_freeplan(lfirst(lc));
	list_free(retired_plans);
	retired_plans = NIL;
}

/*
 * Returns the text of a statement.  Every name is quoted and qualified with
 * its schema, so that the caller's search_path does not matter.
 */
static char *
statement_text(const DocumentKey *key, DocumentStatement statement)
{
	Collection	collection;
	char	   *table = ttl_docs_quoted_name(key->relid);
	const char *key_column = quote_identifier(get_attname(key->relid, key->column, false));
	const char *doc_column;
	char	   *condition = key_condition(key, key_column);
	char	   *returned;

	if (!ttl_docs_lookup_collection(key->relid, &collection))
		ttl_docs_report_no_collection(key->relid);
	doc_column = quote_identifier(NameStr(collection.settings.doc_column));
	returned = ttl_docs_returned_text(key, key_column, doc_column);

	switch (statement)
	{
		case STATEMENT_READ:
			return psprintf("SELECT %s FROM %s WHERE %s", returned, table,
							condition);
		case STATEMENT_CREATE:
			return psprintf("%s RETURNING %s",
							insert_text(key, table, key_column, doc_column, ""),
							returned);
		case STATEMENT_CREATE_WITH_NEW_ID:
			return psprintf("%s RETURNING %s",
							insert_text(key, table, key_column, doc_column,
										"OVERRIDING SYSTEM VALUE "),
							returned);
		case STATEMENT_REPLACE:
			return psprintf("UPDATE %s SET %s = $2 WHERE %s RETURNING %s",
							table, doc_column, condition, returned);
		case STATEMENT_UPSERT:
			return psprintf("%s ON CONFLICT (%s) DO UPDATE SET %s = EXCLUDED.%s RETURNING %s",
							insert_text(key, table, key_column, doc_column, ""),
							key_column, doc_column, doc_column, returned);
		case STATEMENT_PATCH:
			return psprintf("UPDATE %s SET %s = %s.merge_patch(%s.patchable(%s), $2) WHERE %s RETURNING %s",
							table, doc_column, TTL_DOCS_SCHEMA, TTL_DOCS_INTERNAL,
							doc_column, condition, returned);
		case STATEMENT_DELETE:
			return psprintf("DELETE FROM %s WHERE %s", table, condition);
		case STATEMENT_TOUCH:
			/* updating the key instead would block foreign key checks */
			return psprintf("UPDATE %s SET %s = DEFAULT WHERE %s",
							table, TTL_DOCS_TS_COLUMN, condition);
		case STATEMENT_ALL:
			return psprintf("SELECT %s FROM %s", returned, table);
		case STATEMENT_CONTAINING:
			return psprintf("SELECT %s FROM %s WHERE %s OPERATOR(pg_catalog.@>) $2",
							returned, table, doc_column);
		case STATEMENT_CONTAINING_WITH_ID:
			return psprintf("SELECT %s FROM %s WHERE %s AND %s OPERATOR(pg_catalog.@>) $2",
							returned, table, condition, doc_column);
	}
	elog(ERROR, "unknown statement %d", (int) statement);
	return NULL;				/* keep the compiler quiet */
}

/* Returns the text of an INSERT.  A generated key column gets no value. */
static char *
insert_text(const DocumentKey *key, const char *table, const char *key_column,
			const char *doc_column, const char *options)
{
	if (key->is_generated)
		return psprintf("INSERT INTO %s (%s) VALUES ($2)", table, doc_column);
	return psprintf("INSERT INTO %s (%s, %s) %sVALUES ($1, $2)", table,
					key_column, doc_column, options);
}

/*
 * Returns an SQL condition that compares the key column with $1, by the
 * equality operator of the primary key.  Both sides are cast to the types of
 * the operator.  Otherwise the parser could choose another operator with the
 * same name.
 *
 * Citus finds the shard of a key only if there is no cast.  So on a shell,
 * there is none if the parser chooses the operator anyway.  A domain keeps the
 * cast, and the statement goes to all shards: to find the shard, Citus would
 * convert $1 to the domain, and fail for a key that the domain does not allow.
 */
static char *
key_condition(const DocumentKey *key, const char *key_column)
{
	Relation	index = index_open(key->index, AccessShareLock);
	Oid			type = index->rd_opcintype[0];
	Oid			operator = get_opfamily_member(index->rd_opfamily[0], type, type,
											   BTEqualStrategyNumber);
	HeapTuple	tuple = SearchSysCache1(OPEROID, ObjectIdGetDatum(operator));
	Form_pg_operator form;
	char	   *cast = "";
	char	   *text;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for operator %u", operator);
	form = (Form_pg_operator) GETSTRUCT(tuple);
	/* polymorphic types need no cast: users cannot extend pg_catalog */
	if (get_typtype(type) != TYPTYPE_PSEUDO &&
		!(key->is_shell && get_atttype(key->relid, key->column) == key->type &&
		  is_chosen_by_parser(form, key->type)))
		cast = psprintf("::%s", format_type_be_qualified(type));
	text = psprintf("%s%s OPERATOR(%s.%s) $1%s", key_column, cast,
					quote_identifier(get_namespace_name(form->oprnamespace)),
					NameStr(form->oprname), cast);

	/* the collation of $1 is that of its type; the column may have another */
	if (index->rd_indcollation[0] != get_typcollation(key->type))
		text = psprintf("%s COLLATE %s", text,
						generate_collation_name(index->rd_indcollation[0]));
	ReleaseSysCache(tuple);
	index_close(index, AccessShareLock);
	return text;
}

/* Does the parser choose this operator to compare two values of the type? */
static bool
is_chosen_by_parser(Form_pg_operator operator, Oid type)
{
	List	   *name = list_make2(makeString(get_namespace_name(operator->oprnamespace)),
								  makeString(NameStr(operator->oprname)));
	Operator	chosen = oper(NULL, name, type, type, true, -1);
	bool		is_same = chosen != NULL && oprid(chosen) == operator->oid;

	if (chosen != NULL)
		ReleaseSysCache(chosen);
	return is_same;
}
