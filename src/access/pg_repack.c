/*-------------------------------------------------------------------------
 *
 * pg_repack.c
 *		Recognises the query with which pg_repack copies a collection.
 *
 * pg_repack makes a table smaller while other sessions write to the table:
 *
 * 1. It fills a new table with "INSERT INTO repack.table_NNN SELECT ... FROM
 *    ONLY the_table".
 * 2. It replays the writes that its trigger has logged in the meantime.
 * 3. It swaps the files of the two tables.
 *
 * A row that the INSERT does not read is lost, without DELETE triggers and
 * foreign key actions, and even if the purge is held.  So this query of
 * pg_repack, and no other, also reads expired documents.
 *
 * We treat a query as the copy of pg_repack if
 *
 * - its target is in the schema that belongs to the extension pg_repack.  The
 *   name of the schema alone proves nothing.  extnamespace is another schema,
 *   because the script of pg_repack creates its schema itself;
 * - it reads one table, which is a collection or a partition, and nothing
 *   else.  Functions that the query calls run their own queries, which are
 *   filtered;
 * - the user owns both tables or is a superuser.  These users could read
 *   expired documents anyway, with row_security = off.  As with row_security,
 *   this does not apply in a SECURITY DEFINER function.
 *
 * If the owner of a collection copies it into that schema with any other
 * query, we raise an error.  So a later version of pg_repack, whose query we
 * do not recognise, cannot lose documents.
 *
 * We decide when the query starts, not when it is planned.  The decision
 * depends on the user, but a plan can be cached, or made without our planner
 * hook.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/dependency.h"
#include "catalog/pg_class.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_proc.h"
#include "commands/extension.h"
#include "miscadmin.h"
#include "nodes/plannodes.h"
#include "parser/parsetree.h"
#include "utils/acl.h"
#include "utils/lsyscache.h"

#include "access/access_internal.h"

#define REPACK_EXTENSION	"pg_repack"
#define REPACK_SCHEMA		"repack"

static bool belongs_to_repack(Oid classid, Oid object);
static bool is_in_repack_schema(Oid relid);
static Oid	copied_table(const PlannedStmt *stmt, Index target,
						 Collection *collection, bool *reads_more);
static bool may_read_expired(Oid target, Oid root);

/* Does this function belong to pg_repack? */
bool
ttl_docs_is_repack_function(Oid function)
{
	return belongs_to_repack(ProcedureRelationId, function);
}

static bool
belongs_to_repack(Oid classid, Oid object)
{
	Oid			extension = get_extension_oid(REPACK_EXTENSION, true);

	return OidIsValid(extension) && getExtensionOfObject(classid, object) == extension;
}

/*
 * The collection that an INSERT of pg_repack copies, expired documents
 * included; InvalidOid for every other INSERT.
 */
Oid
ttl_docs_repacked_collection(const PlannedStmt *stmt)
{
	ModifyTable *modify = (ModifyTable *) stmt->planTree;
	Collection	collection;
	Oid			target;
	Oid			source;
	bool		reads_more;

	if (!IsA(modify, ModifyTable))
		return InvalidOid;
	target = rt_fetch(linitial_int(modify->resultRelations), stmt->rtable)->relid;
	if (!is_in_repack_schema(target))
		return InvalidOid;
	source = copied_table(stmt, linitial_int(modify->resultRelations), &collection,
						  &reads_more);
	/* only the owner of a table can swap its file */
	if (!OidIsValid(source) || !compat_table_ownercheck(source, GetUserId()))
		return InvalidOid;
	if (reads_more || !may_read_expired(target, collection.root))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot copy \"%s\" into the schema of %s with this query",
						get_rel_name(source), REPACK_EXTENSION),
				 errdetail("The copy would lack the expired documents that are still on disk."),
				 errhint("Run %s as a superuser or as the owner of \"%s\", or use VACUUM FULL.",
						 REPACK_EXTENSION, get_rel_name(collection.root))));
	return collection.root;
}

static bool
is_in_repack_schema(Oid relid)
{
	Oid			schema = get_rel_namespace(relid);
	char	   *name = get_namespace_name(schema);

	/* compare the name first, because it is cheaper */
	return name != NULL && strcmp(name, REPACK_SCHEMA) == 0 &&
		belongs_to_repack(NamespaceRelationId, schema);
}

/*
 * The collection table that an INSERT reads, or InvalidOid.  Sets *reads_more
 * if the INSERT reads anything else, so that it is not a plain copy of the
 * table.
 */
static Oid
copied_table(const PlannedStmt *stmt, Index target, Collection *collection,
			 bool *reads_more)
{
	Oid			found = InvalidOid;
	Index		rti = 0;
	ListCell   *lc;

	*reads_more = stmt->hasModifyingCTE || stmt->subplans != NIL || stmt->rowMarks != NIL;
	foreach(lc, stmt->rtable)
	{
		RangeTblEntry *rte = lfirst_node(RangeTblEntry, lc);

		/* skip the SELECT of the INSERT, but not a view, which has a relid */
		if (++rti == target || rte->rtekind == RTE_RESULT ||
			(rte->rtekind == RTE_SUBQUERY && !OidIsValid(rte->relid)))
			continue;
		if (OidIsValid(found) || rte->rtekind != RTE_RELATION || rte->inh ||
			!ttl_docs_lookup_collection(rte->relid, collection))
			*reads_more = true;
		else
			found = rte->relid;
	}
	return found;
}

static bool
may_read_expired(Oid target, Oid root)
{
	return !InLocalUserIdChange() && !InSecurityRestrictedOperation() &&
		compat_table_ownercheck(target, GetUserId()) &&
		compat_table_ownercheck(root, GetUserId());
}
