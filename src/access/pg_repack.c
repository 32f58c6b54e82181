/*-------------------------------------------------------------------------
 *
 * pg_repack.c
 *		Recognises the query by which pg_repack copies a collection.
 *
 * pg_repack makes a table smaller while others write to it.  It fills a new table
 * by "INSERT INTO repack.table_NNN SELECT ... FROM ONLY the_table", replays what
 * its trigger has logged meanwhile, and exchanges the files of the two tables.  A
 * row that the INSERT does not read is gone afterwards: without DELETE triggers
 * and foreign key actions, and also where the purge is held.  So this query, and
 * no other one, reads expired documents, too.
 *
 * A query is taken for that of pg_repack if
 * - its target is in the schema that belongs to the extension pg_repack.  The
 *   name of the schema alone proves nothing, and extnamespace is another schema:
 *   the script of pg_repack creates its schema by itself;
 * - it reads one table, a collection or a partition of one, and nothing else.
 *   Functions that it calls run queries of their own, which are filtered;
 * - the user owns both tables, or is a superuser.  They could read expired
 *   documents anyway, under row_security = off.  As there, this does not
 *   hold in a SECURITY DEFINER function.
 *
 * If the owner of a collection copies it into that schema by any other query, we
 * raise an error.  A later version of pg_repack must not lose documents because we
 * do not recognise its query.
 *
 * The decision is made when the query starts, not when it is planned: it depends
 * on the user, and a plan can be cached, or made without our planner hook.
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

/* Is that a function of pg_repack? */
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
 * The collection whose expired documents a query reads because it is the copy of
 * pg_repack; InvalidOid for every other query.
 */
Oid
ttl_docs_repacked_collection(const PlannedStmt *stmt)
{
	ModifyTable *modify = (ModifyTable *) stmt->planTree;
	Collection	collection;
	Oid			target;
	Oid			source;
	bool		reads_more;

	/* most queries leave here */
	if (stmt->commandType != CMD_INSERT || !IsA(modify, ModifyTable) ||
		list_length(stmt->rtable) < 2)
		return InvalidOid;
	target = rt_fetch(linitial_int(modify->resultRelations), stmt->rtable)->relid;
	if (!is_in_repack_schema(target))
		return InvalidOid;
	source = copied_table(stmt, linitial_int(modify->resultRelations), &collection,
						  &reads_more);
	/* only its owner can exchange the file of a table */
	if (!OidIsValid(source) || !compat_table_ownercheck(source, GetUserId()))
		return InvalidOid;
	if (reads_more || !may_read_expired(target, collection.root))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot copy \"%s\" into the schema of %s by this query",
						get_rel_name(source), REPACK_EXTENSION),
				 errdetail("The copy would lack expired documents of the collection that are still on disk."),
				 errhint("Run %s as a superuser or as the owner of \"%s\", or use VACUUM FULL.",
						 REPACK_EXTENSION, get_rel_name(collection.root))));
	return collection.root;
}

static bool
is_in_repack_schema(Oid relid)
{
	Oid			schema = get_rel_namespace(relid);
	char	   *name = get_namespace_name(schema);

	/* the name first, because it costs less */
	return name != NULL && strcmp(name, REPACK_SCHEMA) == 0 &&
		belongs_to_repack(NamespaceRelationId, schema);
}

/*
 * The table of a collection that an INSERT reads, or InvalidOid.  *reads_more is set
 * if it reads anything else, so that it is no plain copy of that table.
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

		/* the SELECT of the INSERT is a subquery; that of a view has a relid */
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
