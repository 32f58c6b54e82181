/*-------------------------------------------------------------------------
 *
 * copy_to.c
 *		Turns COPY collection TO into COPY (SELECT ... FROM ...) TO.
 *
 * COPY TO reads a table without a plan, so it has no scan to filter.  The
 * SELECT has a scan.  It reads the same columns and needs the same rights.
 * Whether a backup sees expired documents is then decided as for every other
 * query.  The first copy of a logical replication subscription is such a COPY.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "catalog/namespace.h"
#include "nodes/makefuncs.h"
#include "tcop/utility.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "access/access_internal.h"

static bool copies_collection_to(Node *parsetree, Oid *relid);
static SelectStmt *select_for_copy(Oid relid, List *columns);

/*
 * Replaces COPY collection TO with COPY of a query; returns every other
 * command unchanged.
 */
PlannedStmt *
ttl_docs_copy_as_query(PlannedStmt *pstmt)
{
	CopyStmt   *stmt;
	Oid			relid;

	if (!copies_collection_to(pstmt->utilityStmt, &relid))
		return pstmt;
	pstmt = copyObject(pstmt);
	stmt = (CopyStmt *) pstmt->utilityStmt;
	stmt->query = (Node *) select_for_copy(relid, stmt->attlist);
	stmt->relation = NULL;
	stmt->attlist = NIL;
	return pstmt;
}

/*
 * Is this COPY collection TO?  Before 19, core refuses partitioned tables itself.
 * For a distributed table, Citus runs COPY TO for each shard.
 */
static bool
copies_collection_to(Node *parsetree, Oid *relid)
{
	CopyStmt   *stmt = (CopyStmt *) parsetree;
	Collection	collection;
	char		relkind;

	if (!IsA(parsetree, CopyStmt) || stmt->is_from || stmt->relation == NULL)
		return false;
	*relid = RangeVarGetRelid(stmt->relation, AccessShareLock, true);
	relkind = OidIsValid(*relid) ? get_rel_relkind(*relid) : '\0';
	return (relkind == RELKIND_RELATION ||
			(COMPAT_CORE_COPIES_PARTITIONED && relkind == RELKIND_PARTITIONED_TABLE)) &&
		ttl_docs_lookup_collection(*relid, &collection) &&
		!(collection.settings.citus && ttl_docs_is_shell(*relid));
}

/* Selects the named columns, or else all columns except generated ones. */
static SelectStmt *
select_for_copy(Oid relid, List *columns)
{
	Relation	rel = table_open(relid, NoLock);
	TupleDesc	tupdesc = RelationGetDescr(rel);
	SelectStmt *select = makeNode(SelectStmt);
	RangeVar   *from = makeRangeVar(get_namespace_name(RelationGetNamespace(rel)),
									pstrdup(RelationGetRelationName(rel)), -1);
	Bitmapset  *copied = NULL;
	ListCell   *lc;

	if (columns == NIL)
	{
		for (int i = 0; i < tupdesc->natts; i++)
		{
			Form_pg_attribute att = TupleDescAttr(tupdesc, i);

			if (!att->attisdropped && !att->attgenerated)
				columns = lappend(columns,
								  makeString(pstrdup(NameStr(att->attname))));
		}
	}
	foreach(lc, columns)
	{
		ColumnRef  *column = makeNode(ColumnRef);
		ResTarget  *target = makeNode(ResTarget);
		AttrNumber	attno = get_attnum(relid, strVal(lfirst(lc)));

		/* raise the errors that COPY would raise */
		if (attno <= 0)
			ereport(ERROR,
					(errcode(ERRCODE_UNDEFINED_COLUMN),
					 errmsg("column \"%s\" of relation \"%s\" does not exist",
							strVal(lfirst(lc)), RelationGetRelationName(rel))));
		if (bms_is_member(attno, copied))
			ereport(ERROR,
					(errcode(ERRCODE_DUPLICATE_COLUMN),
					 errmsg("column \"%s\" specified more than once",
							strVal(lfirst(lc)))));
		copied = bms_add_member(copied, attno);
		if (TupleDescAttr(tupdesc, attno - 1)->attgenerated)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_COLUMN_REFERENCE),
					 errmsg("column \"%s\" is a generated column",
							strVal(lfirst(lc))),
					 errdetail("Generated columns cannot be used in COPY.")));

		column->fields = list_make2(makeString(from->relname), lfirst(lc));
		column->location = -1;
		target->val = (Node *) column;
		target->location = -1;
		select->targetList = lappend(select->targetList, target);
	}
	/* core copies the rows of all partitions, but not those of INHERITS children */
	from->inh = rel->rd_rel->relkind == RELKIND_PARTITIONED_TABLE;
	select->fromClause = list_make1(from);
	table_close(rel, NoLock);
	return select;
}
