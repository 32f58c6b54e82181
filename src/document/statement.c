/*-------------------------------------------------------------------------
 *
 * statement.c
 *		The SQL that the document functions stand for, as cached plans.
 *
 * Each document function runs one statement, the one that a user would write.
 * So rights, row security, triggers, isolation, partitions and all that makes
 * a collection one are core's business and that of the other parts.
 *
 * What is known of a table (its key, and a plan for each statement that was
 * used) is kept for the session.  A change of the table makes it invalid: the
 * relation cache tells, and for changes of other objects that the text of a
 * statement mentions, such as its schema, core's plan cache.  What is invalid
 * goes when the transaction ends, at the latest.
 *
 * No code of whoever owns the table runs where the statement that a user would
 * write runs none: an id is read and shown by the type that a domain is based on,
 * and by its input and output functions, not by casts.
 *
 * A plan that is found to be invalid may be running further up the stack, where a
 * trigger has brought us here.  Then it is freed when the transaction ends: no
 * plan of ours runs then, as none of them can commit.
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
#include "parser/parse_coerce.h"
#include "storage/lmgr.h"
#include "tcop/dest.h"
#include "utils/builtins.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/plancache.h"
#include "utils/rel.h"
#include "utils/ruleutils.h"
#include "utils/syscache.h"

#include "document/document_internal.h"

typedef struct DocumentTable
{
	Oid			relid;			/* hash key, must be first */
	bool		is_valid;
	DocumentKey key;
	SPIPlanPtr	plans[NUM_STATEMENTS];
} DocumentTable;

static HTAB *tables = NULL;
static List *retired_plans = NIL;
static bool has_invalid_tables = false;

/*
 * How many statements run right now, each fired by the one before.  After an error
 * it is too high until the transaction ends, and plans are kept that long.
 */
static int	running_statements = 0;

static SPIPlanPtr find_plan(const DocumentKey *key, DocumentStatement statement);
static void require_same_table(SPIPlanPtr plan, Oid relid);
static DocumentTable *find_table(Oid relid);
static void require_same_key(const DocumentKey *key, const DocumentKey *now);
static int	plan_options(const DocumentKey *key, DocumentStatement statement);
static DocumentKey find_key(Oid relid);
static void retire_plan(DocumentTable *table, DocumentStatement statement);
static char *statement_text(const DocumentKey *key, DocumentStatement statement);
static char *insert_text(const DocumentKey *key, const char *table,
						 const char *key_column, const char *doc_column,
						 const char *options);
static char *returned_document(const DocumentKey *key, const char *key_column,
							   const char *doc_column);
static char *equals_first_param(const DocumentKey *key, const char *key_column);

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
 * What is known of the key of a collection; an error if it has none.  Takes the
 * lock that the statement to come will take, so that it stays so.  A weaker one
 * would have to be made stronger then, which can deadlock with DDL.
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
 * Runs a statement with a key and a document, either of which may be missing
 * (NULL) where the statement does not use it.  SPI is connected, and has the
 * result; or the receiver has, if there is one.
 */
void
ttl_docs_run_statement(const DocumentKey *key, DocumentStatement statement,
					   const Datum *key_value, Jsonb *doc, DestReceiver *receiver)
{
	ParamListInfo params = makeParamList(2);
	SPIExecuteOptions options = {.params = params, .dest = receiver};
	SPIPlanPtr	plan;
	int			code;

	params->params[0] = (ParamExternData) {key_value != NULL ? *key_value : (Datum) 0,
		key_value == NULL, PARAM_FLAG_CONST, key->type};
	params->params[1] = (ParamExternData) {JsonbPGetDatum(doc), doc == NULL,
		PARAM_FLAG_CONST, JSONBOID};
	options.read_only = statement == STATEMENT_READ || statement >= STATEMENT_ALL;

	plan = find_plan(key, statement);
	running_statements++;
	code = SPI_execute_plan_extended(plan, &options);
	running_statements--;
	if (code < 0)
		elog(ERROR, "could not run a statement for documents: %s",
			 SPI_result_code_string(code));
	require_same_table(plan, key->relid);
}

/* The plan of a statement on that table, good until the transaction ends. */
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

	/* if the table was invalidated meanwhile, the next call will see that */
	table->plans[statement] = plan;
	return plan;
}

/*
 * Our lock keeps the table from being renamed, but not its schema.  Should that
 * happen between the look at a plan and its use, core reads the old name again,
 * and somebody else may have it by then.
 */
static void
require_same_table(SPIPlanPtr plan, Oid relid)
{
	CachedPlanSource *source = linitial(SPI_plan_get_plan_sources(plan));

	/* a rule may have left nothing of the statement */
	if (source->relationOids != NIL && !list_member_oid(source->relationOids, relid))
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("the schema of a collection was renamed while a document function was running"),
				 errhint("Try again.")));
}

/*
 * A value of the key that is at hand is of the type that it had.  Our lock keeps
 * others from changing that, but not what this session runs to make the value.
 */
static void
require_same_key(const DocumentKey *key, const DocumentKey *now)
{
	if (key->column != now->column || key->type != now->type ||
		key->is_generated != now->is_generated)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("the primary key of \"%s\" has changed while a document function was running",
						get_rel_name(key->relid)),
				 errhint("Do not alter the table in a function that its defaults, types or triggers call.")));
}

/*
 * A key finds one row whatever its value, so one plan serves all.  But a plan for
 * all values locks all partitions, where one for a value locks one.
 */
static int
plan_options(const DocumentKey *key, DocumentStatement statement)
{
	if (statement >= STATEMENT_ALL)
		return CURSOR_OPT_PARALLEL_OK;
	return get_rel_relkind(key->relid) == RELKIND_PARTITIONED_TABLE ? 0 :
		CURSOR_OPT_GENERIC_PLAN;
}

/* The entry of a table, which stays where it is until the transaction ends. */
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

/* Finds the key of a table, or raises an error. */
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
				 errmsg("the documents of \"%s\" have no id: the table has no primary key",
						get_rel_name(relid)) :
				 errmsg("the documents of \"%s\" have no id: its primary key has %d columns",
						get_rel_name(relid), bms_num_members(columns)),
				 errhint("The document functions need a primary key of one column. SQL works without.")));
	key.column = bms_singleton_member(columns) + FirstLowInvalidHeapAttributeNumber;
	if (ttl_docs_lookup_collection(relid, &collection) && collection.doc == key.column)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the documents of \"%s\" have no id: its primary key is the document itself",
						get_rel_name(relid)),
				 errhint("The document functions need a primary key that is another column. SQL works without.")));

	tuple = SearchSysCache2(ATTNUM, ObjectIdGetDatum(relid),
							Int16GetDatum(key.column));
	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for attribute %d of relation %u",
			 key.column, relid);
	attribute = (Form_pg_attribute) GETSTRUCT(tuple);
	key.type = getBaseType(attribute->atttypid);
	key.is_generated = attribute->attgenerated != '\0';
	ReleaseSysCache(tuple);

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
	return key;
}

/* Frees a plan, or keeps it until the transaction ends if it may be running. */
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
	MemoryContextSwitchTo(caller);
}

/* A relation was invalidated; InvalidOid stands for all. */
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
}

/*
 * Frees plans that are replaced, and all that is known of tables that have
 * changed: they may not even exist any more.  The transaction has ended.
 */
void
ttl_docs_free_stale_plans(void)
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
			/* not by way of the list: that allocates */
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
 * The text of a statement.  Every name is quoted and has its schema, so that
 * the caller's search_path does not matter.
 */
static char *
statement_text(const DocumentKey *key, DocumentStatement statement)
{
	Collection	collection;
	char	   *table = ttl_docs_quoted_name(key->relid);
	const char *key_column = quote_identifier(get_attname(key->relid, key->column, false));
	const char *doc_column;
	char	   *is_it = equals_first_param(key, key_column);
	char	   *returned;

	if (!ttl_docs_lookup_collection(key->relid, &collection))
		ttl_docs_report_no_collection(key->relid);
	doc_column = quote_identifier(NameStr(collection.settings.doc_column));
	returned = returned_document(key, key_column, doc_column);

	switch (statement)
	{
		case STATEMENT_READ:
			return psprintf("SELECT %s FROM %s WHERE %s", returned, table, is_it);
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
							table, doc_column, is_it, returned);
		case STATEMENT_UPSERT:
			return psprintf("%s ON CONFLICT (%s) DO UPDATE SET %s = EXCLUDED.%s RETURNING %s",
							insert_text(key, table, key_column, doc_column, ""),
							key_column, doc_column, doc_column, returned);
		case STATEMENT_PATCH:
			return psprintf("UPDATE %s SET %s = %s.merge_patch(%s.patchable(%s), $2) WHERE %s RETURNING %s",
							table, doc_column, TTL_DOCS_SCHEMA, TTL_DOCS_INTERNAL,
							doc_column, is_it, returned);
		case STATEMENT_DELETE:
			return psprintf("DELETE FROM %s WHERE %s", table, is_it);
		case STATEMENT_TOUCH:
			/* not the key: that would keep out those who only refer to it */
			return psprintf("UPDATE %s SET %s = DEFAULT WHERE %s",
							table, TTL_DOCS_TS_COLUMN, is_it);
		case STATEMENT_ALL:
			return psprintf("SELECT %s FROM %s", returned, table);
		case STATEMENT_CONTAINING:
			return psprintf("SELECT %s FROM %s WHERE %s OPERATOR(pg_catalog.@>) $2",
							returned, table, doc_column);
		case STATEMENT_CONTAINING_WITH_ID:
			return psprintf("SELECT %s FROM %s WHERE %s AND %s OPERATOR(pg_catalog.@>) $2",
							returned, table, is_it, doc_column);
	}
	elog(ERROR, "unknown statement %d", (int) statement);
}

/* A key that the table computes from the document cannot be written. */
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
 * SQL for the document as clients get it.  An id that is no number is what the
 * type prints; casts to text may say it otherwise.
 */
static char *
returned_document(const DocumentKey *key, const char *key_column,
				  const char *doc_column)
{
	const char *id;

	if (key->is_number)
		id = key_column;
	else if (TypeCategory(key->type) == TYPCATEGORY_STRING)
		id = psprintf("%s::pg_catalog.text", key_column);
	else
		id = psprintf("pg_catalog.concat(%s)", key_column);
	return psprintf("%s.returned_document(%s, pg_catalog.to_jsonb(%s), %s)",
					TTL_DOCS_INTERNAL, doc_column, id, TTL_DOCS_TS_COLUMN);
}

/*
 * SQL to compare the key with $1, by the operator that the primary key goes by.
 * With the types it is for: else others of its name could be taken for it.
 */
static char *
equals_first_param(const DocumentKey *key, const char *key_column)
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
	/* those of polymorphic types are built in, and nobody can add to them */
	if (get_typtype(type) != TYPTYPE_PSEUDO)
		cast = psprintf("::%s", format_type_be_qualified(type));
	text = psprintf("%s%s OPERATOR(%s.%s) $1%s", key_column, cast,
					quote_identifier(get_namespace_name(form->oprnamespace)),
					NameStr(form->oprname), cast);
	/* the parameter has the collation of its type, the column may have another */
	if (index->rd_indcollation[0] != get_typcollation(key->type))
		text = psprintf("%s COLLATE %s", text,
						generate_collation_name(index->rd_indcollation[0]));
	ReleaseSysCache(tuple);
	index_close(index, AccessShareLock);
	return text;
}
