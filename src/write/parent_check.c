/*-------------------------------------------------------------------------
 *
 * parent_check.c
 *		The check of the parent trigger: is the parent of a new child live?
 *
 * For servers whose own foreign key checks bypass the planner (PostgreSQL 19).
 * collection/parent_triggers.c says which tables have the trigger, and why.
 *
 * The check runs the query with which PostgreSQL 15 to 18 check a foreign key:
 *
 *	SELECT 1 FROM ONLY parent x WHERE key = $1 ... FOR KEY SHARE OF x
 *
 * It runs as the owner of the parent, in the same security context, with the
 * same snapshots, and without firing triggers.  So access/foreign_key.c treats
 * it as core's query: it is judged at the clock at each isolation level, and a
 * parent that expires while the query waits for its lock raises a serialization
 * failure.  Core then checks the child again.  It finds the parent that we have
 * locked.
 *
 * If the query finds no live parent, we raise core's error.  Core's message shows
 * the key only to users who may read it, and so does ours.
 *
 * What is left to core: a key with a null, a row that the transaction has deleted
 * or updated again, an update that leaves the key as it was, and a parent that is
 * no collection any more.
 *
 * Plans.  A session keeps the plan of each foreign key that it has checked.  It
 * makes a new plan when the constraint has changed, or when core says that the
 * plan is not valid any more, because a table or column has another name.
 *
 * On ERROR the user id is restored by the end of the (sub)transaction, as for
 * core's checks.  A check can run within another one of the same foreign key, if
 * an operator of the key writes to the child.  So a plan that is being executed
 * is not freed.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "catalog/pg_attribute.h"
#include "catalog/pg_constraint.h"
#include "catalog/pg_operator.h"
#include "commands/trigger.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/rls.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "write/write_internal.h"

/* A foreign key, and the query that checks it */
typedef struct ParentQuery
{
	Oid			constraint;		/* hash key, must be first */
	bool		is_current;		/* false after a change of the constraint */
	uint32		hash;			/* of the constraint in the catalog cache */
	SPIPlanPtr	plan;			/* NULL until it is prepared */
	int			running;		/* how many executions of plans have begun */
	NameData	name;
	Oid			child;
	Oid			parent;
	int			nkeys;
	AttrNumber	child_keys[INDEX_MAX_KEYS];
	AttrNumber	parent_keys[INDEX_MAX_KEYS];
	Oid			operators[INDEX_MAX_KEYS];
} ParentQuery;

static HTAB *queries = NULL;

static ParentQuery *find_query(Oid constraint, Relation child);
static void constraint_changed(Datum arg, int cacheid, uint32 hash);
static void read_constraint(ParentQuery *query, Relation child);
static void forget_plan(ParentQuery *query);
static bool key_may_have_changed(const TriggerData *trigdata,
								 const ParentQuery *query);
static bool read_key(const ParentQuery *query, TupleTableSlot *row, Datum *values);
static bool has_live_parent(ParentQuery *query, Relation child, Relation parent,
							Datum *values);
static SPIPlanPtr prepare(const ParentQuery *query, Relation child, Relation parent);
pg_noreturn static void report_no_parent(const ParentQuery *query, Relation child,
										 Relation parent, TupleTableSlot *row);
static bool may_see_key(const ParentQuery *query, Oid relid);

/* Is this call that of a parent trigger? */
bool
ttl_docs_is_parent_check(const TriggerData *trigdata)
{
	return COMPAT_CORE_PROBES_PARENTS &&
		TRIGGER_FIRED_AFTER(trigdata->tg_event) &&
		TRIGGER_FIRED_FOR_ROW(trigdata->tg_event) &&
		!TRIGGER_FIRED_BY_DELETE(trigdata->tg_event) &&
		trigdata->tg_trigger->tgisinternal &&
		OidIsValid(trigdata->tg_trigger->tgconstraint);
}

/* Raises an error if the parent of a new or changed child has expired. */
void
ttl_docs_check_parent(TriggerData *trigdata)
{
	Relation	child = trigdata->tg_relation;
	bool		is_update = TRIGGER_FIRED_BY_UPDATE(trigdata->tg_event);
	TupleTableSlot *row = is_update ? trigdata->tg_newslot : trigdata->tg_trigslot;
	ParentQuery *query = find_query(trigdata->tg_trigger->tgconstraint, child);
	Datum		values[INDEX_MAX_KEYS];
	Collection	collection;
	Relation	parent;

	if (!table_tuple_satisfies_snapshot(child, row, SnapshotSelf) ||
		(is_update && !key_may_have_changed(trigdata, query)) ||
		!read_key(query, row, values))
		return;
	parent = table_open(query->parent, RowShareLock);
	if (ttl_docs_lookup_collection(query->parent, &collection) &&
		!has_live_parent(query, child, parent, values))
		report_no_parent(query, child, parent, row);
	table_close(parent, RowShareLock);
}

/* The query of a foreign key; reads the constraint if it is new or has changed. */
static ParentQuery *
find_query(Oid constraint, Relation child)
{
	ParentQuery *query;
	bool		found;

	if (queries == NULL)
	{
		HASHCTL		ctl = {0};

		ctl.keysize = sizeof(Oid);
		ctl.entrysize = sizeof(ParentQuery);
		ctl.hcxt = TopMemoryContext;
		queries = hash_create("ttl_docs parent checks", 32, &ctl,
							  HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
		CacheRegisterSyscacheCallback(CONSTROID, constraint_changed, (Datum) 0);
	}
	query = hash_search(queries, &constraint, HASH_ENTER, &found);
	if (!found)
	{
		query->is_current = false;
		query->plan = NULL;
		query->running = 0;
		query->hash = GetSysCacheHashValue1(CONSTROID, ObjectIdGetDatum(constraint));
	}
	if (!query->is_current)
		read_constraint(query, child);
	return query;
}

/* A constraint was invalidated; 0 means all. */
static void
constraint_changed(Datum arg, int cacheid, uint32 hash)
{
	HASH_SEQ_STATUS status;
	ParentQuery *query;

	(void) arg;
	(void) cacheid;
	hash_seq_init(&status, queries);
	while ((query = hash_seq_search(&status)) != NULL)
		if (hash == 0 || query->hash == hash)
			query->is_current = false;
}

static void
read_constraint(ParentQuery *query, Relation child)
{
	HeapTuple	tuple;
	Form_pg_constraint form;

	/* set this first: reading can process an invalidation */
	query->is_current = true;
	tuple = SearchSysCache1(CONSTROID, ObjectIdGetDatum(query->constraint));
	form = HeapTupleIsValid(tuple) ? (Form_pg_constraint) GETSTRUCT(tuple) : NULL;
	if (form == NULL || form->contype != CONSTRAINT_FOREIGN ||
		form->conrelid != RelationGetRelid(child))
	{
		query->is_current = false;
		elog(ERROR, "constraint %u is not a foreign key of table \"%s\"",
			 query->constraint, RelationGetRelationName(child));
	}
	query->name = form->conname;
	query->child = form->conrelid;
	query->parent = form->confrelid;
	DeconstructFkConstraintRow(tuple, &query->nkeys, query->child_keys,
							   query->parent_keys, query->operators, NULL, NULL,
							   NULL, NULL);
	ReleaseSysCache(tuple);
	forget_plan(query);
}

/* Frees the plan, unless an outer call of this file executes it. */
static void
forget_plan(ParentQuery *query)
{
	if (query->plan != NULL && query->running == 0)
		SPI_freeplan(query->plan);
	query->plan = NULL;
}

/*
 * Can this update have changed the key?  Core decides the same for its own check.
 * It wants to know the parent from the trigger, in which ours has none.
 */
static bool
key_may_have_changed(const TriggerData *trigdata, const ParentQuery *query)
{
	Trigger		check = *trigdata->tg_trigger;

	check.tgconstrrelid = query->parent;
	return RI_FKey_fk_upd_check_required(&check, trigdata->tg_relation,
										 trigdata->tg_trigslot, trigdata->tg_newslot);
}

/* Reads the key of a child.  Returns false if a part of it is null. */
static bool
read_key(const ParentQuery *query, TupleTableSlot *row, Datum *values)
{
	for (int i = 0; i < query->nkeys; i++)
	{
		bool		isnull;

		values[i] = slot_getattr(row, query->child_keys[i], &isnull);
		if (isnull)
			return false;
	}
	return true;
}

/* Finds and locks the parent, as its owner. */
static bool
has_live_parent(ParentQuery *query, Relation child, Relation parent, Datum *values)
{
	Oid			user;
	int			sec_context;
	int			result;
	bool		found;

	SPI_connect();
	GetUserIdAndSecContext(&user, &sec_context);
	SetUserIdAndSecContext(RelationGetForm(parent)->relowner,
						   sec_context | SECURITY_LOCAL_USERID_CHANGE |
						   SECURITY_NOFORCE_RLS);
	if (query->plan != NULL && !SPI_plan_is_valid(query->plan))
		forget_plan(query);
	if (query->plan == NULL)
		query->plan = prepare(query, child, parent);
	query->running++;
	PG_TRY();
	{
		result = SPI_execute_snapshot(query->plan, values, NULL, InvalidSnapshot,
									  InvalidSnapshot, false, false, 1);
	}
	PG_FINALLY();
	{
		query->running--;
	}
	PG_END_TRY();
	SetUserIdAndSecContext(user, sec_context);
	if (result != SPI_OK_SELECT)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the query for foreign key \"%s\" of table \"%s\" gave an unexpected result",
						NameStr(query->name), RelationGetRelationName(child)),
				 errhint("Drop the rules of table \"%s\".",
						 RelationGetRelationName(parent))));
	found = SPI_processed > 0;
	SPI_finish();
	return found;
}

static SPIPlanPtr
prepare(const ParentQuery *query, Relation child, Relation parent)
{
	StringInfoData sql;
	Oid			types[INDEX_MAX_KEYS];
	SPIPlanPtr	plan;

	initStringInfo(&sql);
	appendStringInfo(&sql, "SELECT 1 FROM ONLY %s x",
					 ttl_docs_quoted_name(RelationGetRelid(parent)));
	for (int i = 0; i < query->nkeys; i++)
	{
		Form_pg_attribute column = TupleDescAttr(RelationGetDescr(parent),
												 query->parent_keys[i] - 1);
		char		param[16];

		types[i] = TupleDescAttr(RelationGetDescr(child),
								 query->child_keys[i] - 1)->atttypid;
		snprintf(param, sizeof(param), "$%d", i + 1);
		appendStringInfoString(&sql, i == 0 ? " WHERE " : " AND ");
		/* adds the casts that the operator needs */
		generate_operator_clause(&sql, quote_identifier(NameStr(column->attname)),
								 column->atttypid, query->operators[i],
								 param, types[i]);
	}
	appendStringInfoString(&sql, " FOR KEY SHARE OF x");
	plan = SPI_prepare(sql.data, query->nkeys, types);
	if (plan == NULL)
		elog(ERROR, "SPI_prepare failed: %s", SPI_result_code_string(SPI_result));
	SPI_keepplan(plan);
	return plan;
}

/* Raises the error of core's check. */
static void
report_no_parent(const ParentQuery *query, Relation child, Relation parent,
				 TupleTableSlot *row)
{
	StringInfoData names;
	StringInfoData values;
	bool		shows_key = may_see_key(query, RelationGetRelid(child));

	initStringInfo(&names);
	initStringInfo(&values);
	for (int i = 0; i < query->nkeys && shows_key; i++)
	{
		Form_pg_attribute column = TupleDescAttr(RelationGetDescr(child),
												 query->child_keys[i] - 1);
		Oid			output;
		bool		is_varlena;
		bool		isnull;

		getTypeOutputInfo(column->atttypid, &output, &is_varlena);
		appendStringInfo(&names, "%s%s", i > 0 ? ", " : "", NameStr(column->attname));
		appendStringInfo(&values, "%s%s", i > 0 ? ", " : "",
						 OidOutputFunctionCall(output,
											   slot_getattr(row, query->child_keys[i],
															&isnull)));
	}
	ereport(ERROR,
			(errcode(ERRCODE_FOREIGN_KEY_VIOLATION),
			 errmsg("insert or update on table \"%s\" violates foreign key constraint \"%s\"",
					RelationGetRelationName(child), NameStr(query->name)),
			 shows_key ?
			 errdetail("Key (%s)=(%s) is not present in table \"%s\".", names.data,
					   values.data, RelationGetRelationName(parent)) :
			 errdetail("Key is not present in table \"%s\".",
					   RelationGetRelationName(parent)),
			 errtableconstraint(child, NameStr(query->name))));
}

/* May the user read all columns of the key, in each row? */
static bool
may_see_key(const ParentQuery *query, Oid relid)
{
	if (check_enable_rls(relid, InvalidOid, true) == RLS_ENABLED)
		return false;
	if (pg_class_aclcheck(relid, GetUserId(), ACL_SELECT) == ACLCHECK_OK)
		return true;
	for (int i = 0; i < query->nkeys; i++)
		if (pg_attribute_aclcheck(relid, query->child_keys[i], GetUserId(),
								  ACL_SELECT) != ACLCHECK_OK)
			return false;
	return true;
}
