/*-------------------------------------------------------------------------
 *
 * citus.c
 *		Keeps collections and Citus tables apart.
 *
 * Citus stores the rows of its tables in shards: other tables, most of them
 * on other servers.  ttl_docs stamps and filters only the table that has the
 * label.  A collection that is a Citus table would therefore return expired
 * documents, without any error.  So no table can be both.
 *
 * ttl_docs does not link to Citus.  A table is a Citus table if
 * pg_catalog.pg_dist_partition, a table of the extension citus, has a row for
 * it.
 *
 * A Citus table cannot become a collection: ttl_docs_require_adoptable()
 * calls ttl_docs_refuse_citus_table().  That covers adopt(),
 * create_collection() and SECURITY LABEL, which restores use.
 *
 * A collection cannot become a Citus table.  Citus has many commands that
 * convert a table, but only two kinds of conversion:
 * 1. It adds the row to pg_dist_partition, then creates a TRUNCATE trigger on
 *    the table.  The object access hook calls
 *    ttl_docs_refuse_citus_trigger().
 * 2. It makes the table a shard, and creates a new table with the old name.
 *    It first renames the triggers of the shard.  ddl_review.c refuses to
 *    rename our trigger, and ttl_docs_refuse_citus_rename() reports the
 *    reason.
 *
 * Unless citus.enable_unsafe_triggers is on, Citus itself refuses conversions
 * of the first kind, because the table has a trigger.  Its hint says to drop
 * that trigger.  To report the real reason, a function manager hook checks
 * calls of the Citus functions that convert a table.  The hook does not
 * receive the arguments of the call.  It finds the table in the expression of
 * the call, if the planner has made the table a constant.  Otherwise the user
 * gets the message of Citus.  The hook recognises a function by its name,
 * which is in the system cache at that time.  Functions of core do not reach
 * the hook.
 *
 * Locks: this file does not lock the table.  Both adopt() and Citus lock the
 * table before they read the catalogs, and these locks conflict.  This file
 * keeps no state, so an error leaves none behind.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/transam.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "common/string.h"
#include "fmgr.h"
#include "nodes/primnodes.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "collection/collection_internal.h"

/* Functions of Citus whose first argument is a table to convert */
static const char *const converters[] = {
	"citus_add_local_table_to_metadata",
	"create_distributed_table",
	"create_distributed_table_concurrently",
	"create_reference_table",
};

static Oid	citus_catalog(void);
static bool is_citus_table(Oid relid);
pg_noreturn static void report_conversion(Oid namespace, const char *name);
static int	errdetail_citus(void);

/* Refuses to make a Citus table a collection. */
void
ttl_docs_refuse_citus_table(Relation rel)
{
	Oid			relid = RelationGetRelid(rel);

	if (is_citus_table(relid))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("Citus table \"%s\" cannot be a collection",
						RelationGetRelationName(rel)),
				 errdetail_citus(),
				 errhint("Make it a plain table first: SELECT undistribute_table(%s).",
						 ttl_docs_quoted_literal(relid))));
}

/*
 * Raises an error if ATTACH PARTITION of child to parent would connect a
 * collection with a Citus table.
 */
void
ttl_docs_refuse_citus_attach(Oid parent, Oid child)
{
	Collection	collection;

	if (ttl_docs_lookup_collection(child, &collection) && is_citus_table(parent))
		report_conversion(get_rel_namespace(child), get_rel_name(child));
	if (ttl_docs_lookup_collection(parent, &collection) && is_citus_table(child))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("Citus table \"%s\" cannot be a partition of the collection \"%s\"",
						get_rel_name(child), get_rel_name(collection.root)),
				 errdetail_citus(),
				 errhint("Make it a plain table first: SELECT undistribute_table(%s).",
						 ttl_docs_quoted_literal(child))));
}

/*
 * Raises an error if a trigger was created on a collection that has just
 * become a Citus table.  The trigger is not visible to an ordinary snapshot
 * yet.
 */
void
ttl_docs_refuse_citus_trigger(Oid trigger)
{
	FormData_pg_trigger form;
	Collection	collection;

	if (OidIsValid(citus_catalog()) &&
		ttl_docs_fetch_trigger(trigger, SnapshotSelf, &form) &&
		ttl_docs_lookup_collection(form.tgrelid, &collection) &&
		is_citus_table(form.tgrelid))
		report_conversion(get_rel_namespace(collection.root),
						  get_rel_name(collection.root));
}

/*
 * Raises an error if Citus renamed our trigger.  "trigger" is its new name.
 * Citus appends the same shard number to the names of the trigger and of its
 * table.
 */
void
ttl_docs_refuse_citus_rename(Oid relid, const char *trigger)
{
	const char *suffix = trigger + strlen(TTL_DOCS_TRIGGER);
	char	   *table;

	if (!OidIsValid(citus_catalog()) ||
		strncmp(trigger, TTL_DOCS_TRIGGER, strlen(TTL_DOCS_TRIGGER)) != 0 ||
		suffix[0] != '_' || strspn(suffix + 1, "0123456789") != strlen(suffix + 1))
		return;
	table = get_rel_name(relid);
	if (table == NULL || !pg_str_endswith(table, suffix))
		return;
	table[strlen(table) - strlen(suffix)] = '\0';
	report_conversion(get_rel_namespace(relid), table);
}

/* Refuses a call of a Citus function that would convert a collection. */
void
ttl_docs_refuse_citus_call(FmgrInfo *flinfo)
{
	FuncExpr   *call = (FuncExpr *) flinfo->fn_expr;
	Const	   *table;
	Collection	collection;

	/* cheap tests first: this runs for SECURITY DEFINER and SET functions */
	if (call == NULL || !IsA(call, FuncExpr) || call->args == NIL)
		return;
	table = linitial(call->args);
	if (IsA(table, Const) && table->consttype == REGCLASSOID &&
		!table->constisnull && ttl_docs_is_citus_converter(flinfo->fn_oid) &&
		OidIsValid(citus_catalog()) &&
		ttl_docs_lookup_collection(DatumGetObjectId(table->constvalue), &collection))
		report_conversion(get_rel_namespace(collection.root),
						  get_rel_name(collection.root));
}

/* Is this a function of Citus that converts a table? */
bool
ttl_docs_is_citus_converter(Oid function)
{
	HeapTuple	tuple;
	bool		found = false;

	if (function < FirstNormalObjectId)
		return false;
	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
	if (!HeapTupleIsValid(tuple))
		return false;
	if (((Form_pg_proc) GETSTRUCT(tuple))->pronamespace == PG_CATALOG_NAMESPACE)
	{
		const char *name = NameStr(((Form_pg_proc) GETSTRUCT(tuple))->proname);

		for (size_t i = 0; i < lengthof(converters) && !found; i++)
			found = strcmp(name, converters[i]) == 0;
	}
	ReleaseSysCache(tuple);
	return found;
}

/* Returns pg_dist_partition; InvalidOid if the database has no Citus. */
static Oid
citus_catalog(void)
{
	return get_relname_relid("pg_dist_partition", PG_CATALOG_NAMESPACE);
}

static bool
is_citus_table(Oid relid)
{
	Oid			catalog = citus_catalog();
	AttrNumber	column;
	Relation	rel;
	ScanKeyData key;
	SysScanDesc scan;
	bool		found;

	if (!OidIsValid(catalog))
		return false;
	column = get_attnum(catalog, "logicalrelid");
	if (column == InvalidAttrNumber)
		return false;
	rel = table_open(catalog, AccessShareLock);
	ScanKeyInit(&key, column, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(relid));
	scan = systable_beginscan(rel, InvalidOid, false, NULL, 1, &key);
	found = HeapTupleIsValid(systable_getnext(scan));
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return found;
}

static void
report_conversion(Oid namespace, const char *name)
{
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("collection \"%s\" cannot become a Citus table", name),
			 errdetail_citus(),
			 errhint("Make it a plain table first: SELECT ttl_docs.release(%s).",
					 quote_literal_cstr(quote_qualified_identifier(get_namespace_name(namespace),
																   name)))));
}

static int
errdetail_citus(void)
{
	return errdetail("Citus stores the rows of its tables in shards, which ttl_docs does not filter. Queries would return expired documents.");
}
