/*-------------------------------------------------------------------------
 *
 * ddl_notes.c
 *		Takes notes of what a DDL command does to collections.
 *
 * We refuse a command that removes a piece of a collection, unless the
 * command drops the collection itself.  Only at the end of the command do we
 * know whether the collection still exists: DROP TABLE drops triggers and
 * indexes before the table, with the same flags as if they were dropped
 * alone.  So the object access hook only takes notes.  ddl_review.c reads the
 * notes when the utility command has finished.  If the review raises an
 * error, the error undoes the command.
 *
 * Commands nest: a DO block, a function or an extension script runs other
 * commands.  Each command has its own notes.  Core splits some commands into
 * sub-commands (PROCESS_UTILITY_SUBCOMMAND); these add to the notes of the
 * whole command.
 *
 * Notes live in TopMemoryContext because some commands commit before they
 * end.  ttl_docs_end_notes() frees the notes, after an error too.
 *
 * Some objects are dropped without a utility command: temporary tables at
 * exit or ON COMMIT.  These are never collections.
 *
 * Three commands cannot wait for the review:
 * - DROP INDEX CONCURRENTLY commits before it ends.  It is checked when core
 *   is about to drop the index.
 * - ATTACH PARTITION of a table that is a collection is checked before it
 *   starts (ddl_partitions.c).
 * - ALTER TABLE that disables our trigger and does something else is refused when
 *   core disables the trigger.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/dependency.h"
#include "catalog/index.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_class.h"
#include "catalog/pg_constraint.h"
#include "catalog/pg_extension.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_trigger.h"
#include "catalog/pg_type.h"
#include "commands/extension.h"
#include "commands/trigger.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "collection/collection_internal.h"

/* The notes of one utility command */
typedef struct Notebook
{
	struct Notebook *outer;		/* of the command that runs this command */
	Node	   *parsetree;		/* of this command; for ALTER TABLE, a copy
								 * from before core changes it */
	List	   *notes;
	AttachedCollection attached;
} Notebook;

static Notebook *notebook = NULL;	/* of the innermost command */

static void note_relation(ObjectAccessType access, Oid relid, AttrNumber attno,
						  void *arg);
static void note_column(Oid relid, AttrNumber attno, bool is_dropped);
static void note_trigger(ObjectAccessType access, Oid trigger);
static void refuse_disabling_with_others(Oid trigger);
static void note_constraint(Oid constraint);
static void note_link(Oid child, Oid parent);
static Note *add_note(NoteKind kind, Oid relid);
static bool is_ddl(Node *parsetree);

/*
 * Begins the notes of a utility command.  Returns false if the command is not
 * DDL, or is a sub-command of a command that has notes already.  Raises an
 * error if the command can be refused before it starts.
 */
bool
ttl_docs_begin_notes(Node *parsetree, ProcessUtilityContext context)
{
	AttachedCollection attached;
	Notebook   *book;

	if (context == PROCESS_UTILITY_SUBCOMMAND || !is_ddl(parsetree))
		return false;
	ttl_docs_check_drop_extension(parsetree);
	ttl_docs_prepare_attach(parsetree, &attached);
	/* core changes this parse tree, and the review reads it afterwards */
	if (IsA(parsetree, AlterTableStmt))
	{
		ttl_docs_refuse_last_modified_change((AlterTableStmt *) parsetree);
		parsetree = copyObject(parsetree);
		ttl_docs_resolve_types((AlterTableStmt *) parsetree);
	}
	book = MemoryContextAllocZero(TopMemoryContext, sizeof(Notebook));
	book->outer = notebook;
	book->parsetree = parsetree;
	book->attached = attached;
	notebook = book;
	return true;
}

/* Called after the command.  Raises an error if it broke a collection. */
void
ttl_docs_review_notes(void)
{
	ttl_docs_require_attached(&notebook->attached);
	ttl_docs_review(notebook->notes, notebook->parsetree);
}

/* Frees the notes of a command, also after an error. */
void
ttl_docs_end_notes(void)
{
	Notebook   *book = notebook;

	notebook = book->outer;
	list_free_deep(book->notes);
	pfree(book);
}

/* The object access hook, for objects that core drops, alters or creates. */
void
ttl_docs_note_object_access(ObjectAccessType access, Oid classId, Oid objectId,
							int subId, void *arg)
{
	if (notebook == NULL)
		return;
	if (classId == RelationRelationId)
		note_relation(access, objectId, subId, arg);
	else if (classId == TriggerRelationId)
		note_trigger(access, objectId);
	else if (classId == ConstraintRelationId && access == OAT_DROP)
		note_constraint(objectId);
	else if (classId == ConstraintRelationId && COMPAT_CORE_PROBES_PARENTS)
		add_note(NOTE_CONSTRAINT, InvalidOid)->other = objectId;
	else if (classId == InheritsRelationId && access == OAT_POST_ALTER)
		note_link(objectId, ((ObjectAccessPostAlter *) arg)->auxiliary_id);
	else if (classId == ExtensionRelationId && access == OAT_DROP &&
			 objectId == get_extension_oid(TTL_DOCS_EXTENSION, true))
		add_note(NOTE_EXTENSION_DROPPED, InvalidOid);
}

/* Takes a note of a column, or of a dropped index, of a collection. */
static void
note_relation(ObjectAccessType access, Oid relid, AttrNumber attno, void *arg)
{
	Collection	collection;
	char		relkind;
	Oid			table;

	if (access == OAT_POST_CREATE)
		return;
	if (attno != 0)
	{
		note_column(relid, attno, access == OAT_DROP);
		return;
	}
	relkind = get_rel_relkind(relid);
	if (access != OAT_DROP ||
		(relkind != RELKIND_INDEX && relkind != RELKIND_PARTITIONED_INDEX))
		return;
	table = IndexGetRelation(relid, true);
	if (!OidIsValid(table) || !ttl_docs_lookup_collection(table, &collection))
		return;
	if ((((ObjectAccessDrop *) arg)->dropflags & PERFORM_DELETION_CONCURRENTLY) != 0)
		ttl_docs_check_drop_index_concurrently(relid, table, &collection);
	add_note(NOTE_INDEX_DROPPED, table);
}

/* Takes a note of a column; attno is 0 if the column is not known. */
static void
note_column(Oid relid, AttrNumber attno, bool is_dropped)
{
	Collection	collection;
	Note	   *note;

	if (!ttl_docs_lookup_collection(relid, &collection))
		return;
	note = add_note(NOTE_COLUMN, relid);
	note->attno = attno;
	note->is_dropped = is_dropped;
	if (attno > 0)
	{
		Oid			collation;

		/* core's change is not visible yet, so these are the old values */
		namestrcpy(&note->name, get_attname(relid, attno, false));
		get_atttypetypmodcoll(relid, attno, &note->type, &note->typmod, &collation);
	}
	note->is_doc = attno == collection.doc;
	note->is_last_modified = attno > 0 && collection.settings.adopting != DT_NOBEGIN &&
		strcmp(NameStr(note->name), NameStr(collection.settings.last_modified)) == 0;
	note->is_piece = note->is_doc || attno == collection.ts ||
		attno == collection.ttl || attno == collection.slot;
}

/*
 * Takes a note of a trigger.  A dropped trigger must be read now, while its
 * catalog row exists.  A new trigger is not visible before the next command,
 * so the review reads it.
 */
static void
note_trigger(ObjectAccessType access, Oid trigger)
{
	FormData_pg_trigger form;
	Collection	collection;

	if (access != OAT_DROP)
	{
		refuse_disabling_with_others(trigger);
		add_note(NOTE_TRIGGER, InvalidOid)->other = trigger;
	}
	else if (!ttl_docs_fetch_trigger(trigger, NULL, &form))
		return;
	else if (ttl_docs_is_parent_trigger(&form))
		add_note(NOTE_PARENT_TRIGGER, form.tgrelid);
	else if (strcmp(NameStr(form.tgname), TTL_DOCS_TRIGGER) == 0 &&
			 ttl_docs_lookup_collection(form.tgrelid, &collection))
		add_note(NOTE_TRIGGER_DROPPED, form.tgrelid);
}

/*
 * Refuses an ALTER TABLE that disables our trigger, if it does anything else.
 * Other clauses can run functions of users, such as that of a new CHECK
 * constraint.  The review enables the trigger again, but would not see which rows
 * these functions have written without it.
 */
static void
refuse_disabling_with_others(Oid trigger)
{
	AlterTableStmt *stmt = (AlterTableStmt *) notebook->parsetree;
	FormData_pg_trigger form;
	Collection	collection;

	if (!IsA(stmt, AlterTableStmt) || list_length(stmt->cmds) < 2 ||
		/* core's change is not visible yet to other snapshots */
		!ttl_docs_fetch_trigger(trigger, SnapshotSelf, &form) ||
		strcmp(NameStr(form.tgname), TTL_DOCS_TRIGGER) != 0 ||
		form.tgenabled == TRIGGER_FIRES_ALWAYS ||
		!ttl_docs_lookup_collection(form.tgrelid, &collection))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("cannot enable or disable triggers of the collection \"%s\" together with other changes",
					get_rel_name(form.tgrelid)),
			 errhint("Use one ALTER TABLE for the triggers, and another one for the other changes.")));
}

/* Takes a note of a dropped constraint, such as NOT NULL since 18. */
static void
note_constraint(Oid constraint)
{
	HeapTuple	tuple = SearchSysCache1(CONSTROID, ObjectIdGetDatum(constraint));

	if (!HeapTupleIsValid(tuple))
		return;
	if (OidIsValid(((Form_pg_constraint) GETSTRUCT(tuple))->conrelid))
		note_column(((Form_pg_constraint) GETSTRUCT(tuple))->conrelid, 0, false);
	ReleaseSysCache(tuple);
}

/*
 * Takes a note that core adds or removes the link between a child table and
 * its parent.
 *
 * A partition that loses its link becomes a collection by itself.  Its label
 * is written here, not in the review: event triggers run before the review,
 * and must not see expired documents.  The label takes effect together with
 * core's own change, at the next command counter increment.
 */
static void
note_link(Oid child, Oid parent)
{
	Note	   *note = add_note(NOTE_LINK_CHANGED, child);
	Collection	before;

	note->other = parent;
	note->parent_is_collection = ttl_docs_lookup_collection(parent, &before);
	if (!note->parent_is_collection)
		return;
	/* an attached table's label loses its effect; the review rewrites it */
	if (child == notebook->attached.child && parent == notebook->attached.parent)
	{
		notebook->attached.is_linked = true;
		note->was_collection = ttl_docs_read_label(child, &note->before);
		return;
	}

	/*
	 * Core's change is not visible yet.  So a child that still is a partition
	 * of the collection is being detached.
	 */
	if (ttl_docs_lookup_collection(child, &before) && !ttl_docs_has_own_label(child) &&
		get_rel_relkind(child) != RELKIND_FOREIGN_TABLE)
	{
		/*
		 * If a restore brought the label of the root, leave its OIDs in the
		 * label of the child, so that the purge of the child is held too.
		 */
		if (before.settings.origin_database == MyDatabaseId &&
			before.settings.origin_relation == before.root)
			before.settings.origin_relation = child;
		/* Citus detaches partitions before it converts them */
		before.settings.filling = ttl_docs_is_filling(parent);
		ttl_docs_set_label(child, &before.settings);
	}
}

/* Takes a note that SECURITY LABEL made a table a collection. */
void
ttl_docs_note_restored(Oid relid)
{
	if (notebook != NULL)
		add_note(NOTE_RESTORED, relid);
}

static Note *
add_note(NoteKind kind, Oid relid)
{
	MemoryContext caller = MemoryContextSwitchTo(TopMemoryContext);
	Note	   *note = palloc0(sizeof(Note));

	note->kind = kind;
	note->relid = relid;
	notebook->notes = lappend(notebook->notes, note);
	MemoryContextSwitchTo(caller);
	return note;
}

/*
 * Can the command itself change a piece of a collection?  Returns false for a
 * command that only runs other commands, such as DO: each of these is checked
 * separately.
 */
static bool
is_ddl(Node *parsetree)
{
	switch (nodeTag(parsetree))
	{
		case T_TransactionStmt:
		case T_PlannedStmt:
		case T_DeclareCursorStmt:
		case T_ClosePortalStmt:
		case T_FetchStmt:
		case T_DoStmt:
		case T_CallStmt:
		case T_CopyStmt:
		case T_PrepareStmt:
		case T_ExecuteStmt:
		case T_DeallocateStmt:
		case T_ExplainStmt:
		case T_VariableSetStmt:
		case T_VariableShowStmt:
		case T_DiscardStmt:
		case T_ListenStmt:
		case T_UnlistenStmt:
		case T_NotifyStmt:
		case T_LoadStmt:
		case T_VacuumStmt:
		case T_LockStmt:
		case T_ConstraintsSetStmt:
		case T_CheckPointStmt:
			return false;
		default:
			return true;
	}
}
