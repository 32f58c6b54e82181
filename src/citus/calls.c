/*-------------------------------------------------------------------------
 *
 * calls.c
 *		Intercepts calls of functions of Citus.
 *
 * Some functions of Citus convert a table, or copy the rows of a shard.  We
 * have to do something before and after them.  Core has no hook that shows the
 * arguments of a call, but its hook for functions (fmgr_hook) passes the
 * FmgrInfo with which core is about to call the function.  There we replace
 * the address of the function by that of run_intercepted(), which has the
 * arguments, and calls the original function.
 *
 * Core keeps a Datum for the hooks of each FmgrInfo.  We keep the original
 * address there, and the Datum of the next hook.
 *
 * Core asks needs_fmgr_hook for every function that is looked up.  So
 * ttl_docs_is_citus_function() must be cheap: it answers without a lookup if
 * Citus is not loaded, and for functions of core.
 *
 * On ERROR, the transaction or subtransaction is rolled back, and PG_FINALLY
 * restores our state.  A call can nest in another one.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/transam.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_proc.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

#include "citus/actions.h"
#include "citus/citus_internal.h"

/* What a function does, and what its first argument is */
typedef enum CallKind
{
	CALL_CONVERTS_TABLE,
	CALL_CONVERTS_SCHEMA,
	CALL_CONVERTS_ANY,			/* it has no argument */
	CALL_CONVERTS_CONCURRENTLY,
	CALL_COPIES_TABLE,
	CALL_COPIES_SHARD			/* the argument is the number of a shard */
} CallKind;

typedef struct InterceptedFunction
{
	const char *name;
	CallKind	kind;
	int			cascade_arg;	/* converts colocated tables, too, if true; -1 =
								 * there is no such argument */
} InterceptedFunction;

/* What we keep for an FmgrInfo */
typedef struct InterceptedCall
{
	PGFunction	original;
	Datum		next_private;	/* of the next hook */
} InterceptedCall;

/* The function that core calls next, through run_intercepted() */
static PGFunction next_original = NULL;

/* Functions of Citus, in the schema pg_catalog */
static const InterceptedFunction functions[] = {
	{"create_distributed_table", CALL_CONVERTS_TABLE, -1},
	{"create_distributed_table_concurrently", CALL_CONVERTS_CONCURRENTLY, -1},
	{"create_reference_table", CALL_CONVERTS_TABLE, -1},
	{"citus_add_local_table_to_metadata", CALL_CONVERTS_TABLE, -1},
	{"undistribute_table", CALL_CONVERTS_TABLE, -1},
	{"alter_distributed_table", CALL_CONVERTS_TABLE, 4},
	{"alter_table_set_access_method", CALL_CONVERTS_TABLE, -1},
	{"citus_schema_distribute", CALL_CONVERTS_SCHEMA, -1},
	{"citus_schema_undistribute", CALL_CONVERTS_SCHEMA, -1},
	{"remove_local_tables_from_metadata", CALL_CONVERTS_ANY, -1},
	{"worker_copy_table_to_node", CALL_COPIES_TABLE, -1},
	{"worker_split_copy", CALL_COPIES_SHARD, -1},
};

static const InterceptedFunction *find_function(Oid function);
static Datum run_intercepted(PG_FUNCTION_ARGS);
static Datum run_conversion(const InterceptedFunction *function, PGFunction original,
							FunctionCallInfo fcinfo);
static Datum run_copy(const InterceptedFunction *function, PGFunction original,
					  FunctionCallInfo fcinfo);

/* Do we intercept calls of this function? */
bool
ttl_docs_is_citus_function(Oid function)
{
	return find_function(function) != NULL;
}

/*
 * The hook for functions: core is about to call one, or has called it, or an
 * error has ended the call.  After an error, no catalog may be read.
 */
void
ttl_docs_intercept_call(FmgrHookEventType event, FmgrInfo *flinfo, Datum *private_data,
						fmgr_hook_type next)
{
	InterceptedCall *call;

	if (event == FHET_START && flinfo->fn_addr != run_intercepted &&
		find_function(flinfo->fn_oid) != NULL && ttl_docs_has_citus())
	{
		call = MemoryContextAllocZero(flinfo->fn_mcxt, sizeof(InterceptedCall));
		call->original = flinfo->fn_addr;
		call->next_private = *private_data;
		flinfo->fn_addr = run_intercepted;
		*private_data = PointerGetDatum(call);
	}
	if (flinfo->fn_addr != run_intercepted)
	{
		if (next)
			next(event, flinfo, private_data);
		return;
	}
	call = (InterceptedCall *) DatumGetPointer(*private_data);
	if (next)
		next(event, flinfo, &call->next_private);
	if (event == FHET_START)
		next_original = call->original;
}

static const InterceptedFunction *
find_function(Oid function)
{
	const InterceptedFunction *found = NULL;
	HeapTuple	tuple;

	if (!ttl_docs_citus_is_loaded || function < FirstNormalObjectId)
		return NULL;
	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
	if (!HeapTupleIsValid(tuple))
		return NULL;
	if (((Form_pg_proc) GETSTRUCT(tuple))->pronamespace == PG_CATALOG_NAMESPACE)
	{
		const char *name = NameStr(((Form_pg_proc) GETSTRUCT(tuple))->proname);

		for (size_t i = 0; i < lengthof(functions) && found == NULL; i++)
			if (strcmp(name, functions[i].name) == 0)
				found = &functions[i];
	}
	ReleaseSysCache(tuple);
	return found;
}

/* Runs in place of a function of Citus, with its arguments. */
static Datum
run_intercepted(PG_FUNCTION_ARGS)
{
	const InterceptedFunction *function = find_function(fcinfo->flinfo->fn_oid);
	PGFunction	original = next_original;	/* a nested call changes it */

	if (function == NULL ||
		(function->kind != CALL_CONVERTS_ANY && PG_NARGS() > 0 && PG_ARGISNULL(0)))
		return original(fcinfo);
	if (function->kind == CALL_COPIES_TABLE || function->kind == CALL_COPIES_SHARD)
		return run_copy(function, original, fcinfo);
	return run_conversion(function, original, fcinfo);
}

static Datum
run_conversion(const InterceptedFunction *function, PGFunction original,
			   FunctionCallInfo fcinfo)
{
	bool		cascades = function->cascade_arg >= 0 &&
		PG_NARGS() > function->cascade_arg && !PG_ARGISNULL(function->cascade_arg) &&
		PG_GETARG_BOOL(function->cascade_arg);
	List	   *tables;
	Datum		result;

	switch (function->kind)
	{
		case CALL_CONVERTS_CONCURRENTLY:
			ttl_docs_refuse_concurrent_conversion(PG_GETARG_OID(0));
			return original(fcinfo);
		case CALL_CONVERTS_SCHEMA:
			tables = ttl_docs_convertible_in_schema(PG_GETARG_OID(0));
			break;
		case CALL_CONVERTS_ANY:
			tables = ttl_docs_autoconverted_tables();
			break;
		default:
			tables = ttl_docs_convertible_with(PG_GETARG_OID(0), cascades);
	}
	/* in a read-only transaction, Citus raises the error */
	if (tables == NIL || XactReadOnly || RecoveryInProgress() || ttl_docs_in_citus_session())
		return original(fcinfo);

	tables = ttl_docs_begin_conversion(tables);
	ttl_docs_conversions++;
	PG_TRY();
	{
		result = original(fcinfo);
		ttl_docs_end_conversion(tables, NULL);
	}
	PG_FINALLY();
	{
		ttl_docs_conversions--;
	}
	PG_END_TRY();
	return result;
}

/*
 * Runs a function that copies the rows of a shard, to move or split it.
 * Expired documents are copied, too: their triggers and foreign key actions
 * must run when they are purged, and somebody may want to copy them out.  The
 * user must own the shard, because the copy shows expired documents.
 */
static Datum
run_copy(const InterceptedFunction *function, PGFunction original,
		 FunctionCallInfo fcinfo)
{
	Oid			outer = ttl_docs_copied_shard;
	Oid			shard = function->kind == CALL_COPIES_TABLE ? PG_GETARG_OID(0) :
		ttl_docs_local_shard(PG_GETARG_INT64(0));
	Collection	collection;
	Datum		result;

	if (OidIsValid(shard) && ttl_docs_lookup_collection(shard, &collection) &&
		ttl_docs_may_act_for_backup(collection.root))
		ttl_docs_copied_shard = collection.root;
	PG_TRY();
	{
		result = original(fcinfo);
	}
	PG_FINALLY();
	{
		ttl_docs_copied_shard = outer;
	}
	PG_END_TRY();
	return result;
}
