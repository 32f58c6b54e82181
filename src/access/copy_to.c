/*-------------------------------------------------------------------------
 *
 * copy_to.c
 *		COPY collection TO becomes COPY (SELECT ... FROM ONLY collection) TO.
 *
 * COPY TO reads a table without a plan, so there is no scan to filter.  The
 * query it becomes has one, and asks for the same columns and rights.  What a
 * backup sees is then decided where it is for every other query.
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
 * The command that takes the place of a COPY of a collection TO; every other
 * command is returned as it is.
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

/* COPY of a partitioned table TO is core's error, and stays one. */
static bool
copies_collection_to(Node *parsetree, Oid *relid)
{
	CopyStmt   *stmt = (CopyStmt *) parsetree;
	Collection	collection;

	if (!IsA(parsetree, CopyStmt) || stmt->is_from || stmt->relation == NULL)
		return false;
	*relid = RangeVarGetRelid(stmt->relation, AccessShareLock, true);
	return OidIsValid(*relid) &&
		get_rel_relkind(*relid) == RELKIND_RELATION &&
		ttl_docs_lookup_collection(*relid, &collection);
}

/* The columns named, else those that COPY would take: all but generated. */
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

		/* what COPY would say */
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
	from->inh = false;
	select->fromClause = list_make1(from);
	table_close(rel, NoLock);
	return select;
}
