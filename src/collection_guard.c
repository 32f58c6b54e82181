/*-------------------------------------------------------------------------
 *
 * collection_guard.c
 *		Keeps collections whole while people run DDL on them.
 *
 * A command that takes a piece away from a collection that survives it is
 * refused.  Whether the collection survives is known only when the command
 * ends: DROP TABLE drops triggers and indexes before the table, with the same
 * flags as if they were dropped alone.  So the object access hook only takes
 * notes, and the notes are looked at when the utility command is through.  An
 * error then undoes all of it.
 *
 * Commands nest: a DO block, a function or an extension script runs others,
 * and each looks at its own notes.  Sub-commands that core makes out of one
 * command (PROCESS_UTILITY_SUBCOMMAND) add to the notes of that one.  Notes
 * live in TopMemoryContext because some commands commit in between, and are
 * freed on error too.  Objects that go without a utility command (temporary
 * tables at exit or ON COMMIT) are never collections.
 *
 * What it does besides refusing:
 * - a renamed document column is followed in the label;
 * - a new partition gets _ttl and _slot for the rows that it brings;
 * - a detached partition stays a collection, by itself, with the settings and
 *   floors it had: its expired documents must not come back;
 * - DISABLE TRIGGER ALL and ENABLE TRIGGER ALL leave our trigger enabled, so a
 *   data-only restore works, and its rows are still validated;
 * - DROP EXTENSION takes the labels away: the tables stay, as plain tables.
 *
 * DROP INDEX CONCURRENTLY commits before its end, so it is looked at before it
 * starts.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/dependency.h"
#include "catalog/index.h"
#include "catalog/indexing.h"
#include "catalog/namespace.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_class.h"
#include "catalog/pg_extension.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_trigger.h"
#include "catalog/pg_type.h"
#include "commands/extension.h"
#include "commands/trigger.h"
#include "miscadmin.h"
#include "tcop/utility.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/syscache.h"

#include "ttl_docs.h"

typedef enum NoteKind
{
	NOTE_EXTENSION_DROPPED,
	NOTE_LINK_CHANGED,			/* relid became or was a child of other */
	NOTE_COLUMN,				/* relid's column attno changed or went */
	NOTE_INDEX_DROPPED,			/* an index of relid */
	NOTE_TRIGGER_DROPPED,		/* ours, of relid */
	NOTE_TRIGGER				/* trigger other was made or changed */
} NoteKind;

typedef struct Note
{
	NoteKind	kind;
	Oid			relid;
	Oid			other;
	AttrNumber	attno;
	bool		is_doc;			/* NOTE_COLUMN: the document column */
	Collection	parent;			/* NOTE_LINK_CHANGED: what the parent was */
	bool		parent_is_collection;
} Note;

/* The notes of one utility command */
typedef struct Notebook
{
	List	   *notes;
} Notebook;

static Notebook *notebook = NULL;
static object_access_hook_type next_object_access_hook = NULL;
static ProcessUtility_hook_type next_ProcessUtility_hook = NULL;

static void guard_object_access(ObjectAccessType access, Oid classId,
								Oid objectId, int subId, void *arg);
static void note_relation(ObjectAccessType access, Oid relid, AttrNumber attno);
static void note_trigger(ObjectAccessType access, Oid trigger);
static Note *add_note(NoteKind kind, Oid relid);
static void guard_ProcessUtility(PlannedStmt *pstmt, const char *queryString,
								 bool readOnlyTree, ProcessUtilityContext context,
								 ParamListInfo params, QueryEnvironment *queryEnv,
								 DestReceiver *dest, QueryCompletion *qc);
static bool is_ddl(Node *parsetree);
static bool validates_foreign_key(Node *parsetree);
static void check_drop_index_concurrently(Node *parsetree);
static void review(Notebook *book, Node *parsetree);
static void review_kind(Notebook *book, NoteKind kind, Node *parsetree);
static void review_link(Note *note);
static void review_new_partition(Oid relid, const Collection *collection);
static void review_detached_partition(Oid relid, const Collection *parent);
static void review_column(Note *note);
static void require_columns(Oid relid, const Collection *collection);
static void review_index(Oid relid);
static void review_dropped_trigger(Oid relid);
static void review_trigger(Oid trigger, Node *parsetree);
static bool names_our_trigger(Node *parsetree);
static bool fetch_trigger(Oid trigger, FormData_pg_trigger *form);

void
ttl_docs_guard_init(void)
{
	next_object_access_hook = object_access_hook;
	object_access_hook = guard_object_access;
	next_ProcessUtility_hook = ProcessUtility_hook;
	ProcessUtility_hook = guard_ProcessUtility;
}

/* Core tells what it drops, alters and creates. */
static void
guard_object_access(ObjectAccessType access, Oid classId, Oid objectId,
					int subId, void *arg)
{
	if (next_object_access_hook)
		next_object_access_hook(access, classId, objectId, subId, arg);

	if (notebook == NULL ||
		(access != OAT_DROP && access != OAT_POST_ALTER && access != OAT_POST_CREATE))
		return;

	if (classId == RelationRelationId)
		note_relation(access, objectId, subId);
	else if (classId == TriggerRelationId)
		note_trigger(access, objectId);
	else if (classId == InheritsRelationId && access == OAT_POST_ALTER)
	{
		Oid			parent = ((ObjectAccessPostAlter *) arg)->auxiliary_id;
		Note	   *note = add_note(NOTE_LINK_CHANGED, objectId);

		note->other = parent;
		note->parent_is_collection = ttl_docs_collection(parent, &note->parent);
	}
	else if (classId == ExtensionRelationId && access == OAT_DROP &&
			 objectId == get_extension_oid(TTL_DOCS_EXTENSION, true))
		add_note(NOTE_EXTENSION_DROPPED, InvalidOid);
}

/* A column of a table, or an index, if it is of a collection. */
static void
note_relation(ObjectAccessType access, Oid relid, AttrNumber attno)
{
	Collection	collection;

	if (access == OAT_POST_CREATE)
		return;
	if (attno != 0)
	{
		if (ttl_docs_collection(relid, &collection))
		{
			Note	   *note = add_note(NOTE_COLUMN, relid);

			note->attno = attno;
			note->is_doc = attno == collection.doc;
		}
	}
	else if (access == OAT_DROP)
	{
		char		relkind = get_rel_relkind(relid);
		Oid			table;

		if (relkind != RELKIND_INDEX && relkind != RELKIND_PARTITIONED_INDEX)
			return;
		table = IndexGetRelation(relid, true);
		if (OidIsValid(table) && ttl_docs_collection(table, &collection))
			add_note(NOTE_INDEX_DROPPED, table);
	}
}

/*
 * A trigger.  One that is dropped is looked at now, while it is there; one
 * that was made cannot be seen before the next command.
 */
static void
note_trigger(ObjectAccessType access, Oid trigger)
{
	FormData_pg_trigger form;
	Collection	collection;

	if (access != OAT_DROP)
		add_note(NOTE_TRIGGER, InvalidOid)->other = trigger;
	else if (fetch_trigger(trigger, &form) &&
			 form.tgfoid == ttl_docs_trigger_function() &&
			 ttl_docs_collection(form.tgrelid, &collection))
		add_note(NOTE_TRIGGER_DROPPED, form.tgrelid);
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

/* Runs a utility command and looks at what it did to collections. */
static void
guard_ProcessUtility(PlannedStmt *pstmt, const char *queryString,
					 bool readOnlyTree, ProcessUtilityContext context,
					 ParamListInfo params, QueryEnvironment *queryEnv,
					 DestReceiver *dest, QueryCompletion *qc)
{
	ProcessUtility_hook_type next = next_ProcessUtility_hook ?
		next_ProcessUtility_hook : standard_ProcessUtility;
	Node	   *parsetree = pstmt->utilityStmt;
	Notebook	book = {NIL};
	Notebook   *outer = notebook;
	bool		outer_validating = ttl_docs_validating_foreign_key();

	if (context == PROCESS_UTILITY_SUBCOMMAND || !is_ddl(parsetree))
	{
		next(pstmt, queryString, readOnlyTree, context, params, queryEnv, dest, qc);
		return;
	}

	check_drop_index_concurrently(parsetree);
	/* core may scribble on the tree, and the review reads it */
	if (IsA(parsetree, AlterTableStmt))
		parsetree = copyObject(parsetree);

	notebook = &book;
	ttl_docs_set_validating_foreign_key(validates_foreign_key(parsetree));
	PG_TRY();
	{
		next(pstmt, queryString, readOnlyTree, context, params, queryEnv, dest, qc);
		ttl_docs_set_validating_foreign_key(false);
		review(&book, parsetree);
	}
	PG_FINALLY();
	{
		notebook = outer;
		ttl_docs_set_validating_foreign_key(outer_validating);
		list_free_deep(book.notes);
	}
	PG_END_TRY();
}

/*
 * Can the command change what a collection is made of by itself?  Those that
 * only run other commands are not asked: the others are.
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

/* Does the command check rows that are there against a foreign key? */
static bool
validates_foreign_key(Node *parsetree)
{
	ListCell   *lc;

	if (!IsA(parsetree, AlterTableStmt))
		return false;
	foreach(lc, ((AlterTableStmt *) parsetree)->cmds)
	{
		AlterTableCmd *cmd = lfirst_node(AlterTableCmd, lc);

		switch (cmd->subtype)
		{
			case AT_AddConstraint:
			case AT_AddColumn:
			case AT_ValidateConstraint:
			case AT_AlterConstraint:
			case AT_AlterColumnType:
			case AT_AttachPartition:
				return true;
			default:
				break;
		}
	}
	return false;
}

/* That one commits in between: too late to refuse it at its end. */
static void
check_drop_index_concurrently(Node *parsetree)
{
	DropStmt   *stmt = (DropStmt *) parsetree;
	ListCell   *lc;

	if (!IsA(parsetree, DropStmt) || stmt->removeType != OBJECT_INDEX ||
		!stmt->concurrent)
		return;
	foreach(lc, stmt->objects)
	{
		RangeVar   *name = makeRangeVarFromNameList(lfirst_node(List, lc));
		Oid			index = RangeVarGetRelid(name, NoLock, true);
		Oid			table = OidIsValid(index) ? IndexGetRelation(index, true) : InvalidOid;
		Collection	collection;
		Relation	rel;
		Oid			purge_index;

		if (!OidIsValid(table) || !ttl_docs_collection(table, &collection) ||
			!collection.settings.on)
			continue;
		rel = table_open(table, AccessShareLock);
		purge_index = ttl_docs_purge_index(rel, collection.settings.indexing);
		table_close(rel, AccessShareLock);
		if (purge_index == index)
			ereport(ERROR,
					(errcode(ERRCODE_DEPENDENT_OBJECTS_STILL_EXIST),
					 errmsg("cannot drop the purge index \"%s\" of the collection \"%s\" while a DefaultTTL is set",
							get_rel_name(index), get_rel_name(collection.root)),
					 errhint("Turn TTL off with ttl_docs.set_default_ttl(), or use ttl_docs.set_indexing() or ttl_docs.release().")));
	}
}

/*
 * Looks at the notes of a command.  The order matters: without the extension
 * there are no collections, and a detached partition gets a trigger of its own
 * for the one that went with the link.
 */
static void
review(Notebook *book, Node *parsetree)
{
	if (book->notes == NIL)
		return;
	CommandCounterIncrement();
	for (NoteKind kind = NOTE_EXTENSION_DROPPED; kind <= NOTE_TRIGGER; kind++)
		review_kind(book, kind, parsetree);
}

static void
review_kind(Notebook *book, NoteKind kind, Node *parsetree)
{
	ListCell   *lc;

	foreach(lc, book->notes)
	{
		Note	   *note = lfirst(lc);

		if (note->kind != kind)
			continue;
		if (OidIsValid(note->relid) &&
			!SearchSysCacheExists1(RELOID, ObjectIdGetDatum(note->relid)))
			continue;			/* the whole table went */
		switch (kind)
		{
			case NOTE_EXTENSION_DROPPED:
				ttl_docs_remove_all_labels();
				break;
			case NOTE_LINK_CHANGED:
				review_link(note);
				break;
			case NOTE_COLUMN:
				review_column(note);
				break;
			case NOTE_INDEX_DROPPED:
				review_index(note->relid);
				break;
			case NOTE_TRIGGER_DROPPED:
				review_dropped_trigger(note->relid);
				break;
			case NOTE_TRIGGER:
				review_trigger(note->other, parsetree);
				break;
		}
	}
}

/* A table was made a child of another, or no longer is. */
static void
review_link(Note *note)
{
	Collection	collection;
	bool		is_partition = get_rel_relispartition(note->relid);
	bool		child_is_collection;
	bool		linked = has_superclass(note->relid);

	child_is_collection = ttl_docs_collection(note->relid, &collection);
	if (!linked)
	{
		if (note->parent_is_collection && !child_is_collection)
			review_detached_partition(note->relid, &note->parent);
		return;
	}
	if (is_partition && !ttl_docs_has_own_label(note->relid))
	{
		if (child_is_collection)
			review_new_partition(note->relid, &collection);
		return;
	}
	if (child_is_collection || note->parent_is_collection)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 is_partition ?
				 errmsg("the collection \"%s\" cannot become a partition",
						get_rel_name(note->relid)) :
				 errmsg("the collection \"%s\" cannot take part in inheritance",
						get_rel_name(child_is_collection ? note->relid : note->other)),
				 is_partition ?
				 errhint("Call ttl_docs.release() for it first.") :
				 errhint("Use a partitioned table, or call ttl_docs.release() first.")));
}

/* A partition brought rows that our trigger has not seen. */
static void
review_new_partition(Oid relid, const Collection *collection)
{
	const CollectionSettings *settings = &collection->settings;
	Oid			outer_unfiltered = ttl_docs_unfiltered;

	if (get_rel_relkind(relid) == RELKIND_FOREIGN_TABLE)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("foreign table \"%s\" cannot be a partition of the collection \"%s\"",
						get_rel_name(relid), get_rel_name(collection->root))));
	require_columns(relid, collection);

	/* expired by what _ttl says now is not expired by what the document says */
	ttl_docs_unfiltered = collection->root;
	PG_TRY();
	{
		ttl_docs_mend_derived(relid, collection);
		if (settings->on)
			ttl_docs_refuse_invalid_ttl(relid, NameStr(settings->doc_column),
										psprintf("%s OPERATOR(pg_catalog.=) %d",
												 TTL_DOCS_TTL_COLUMN, TTL_INVALID));
	}
	PG_FINALLY();
	{
		ttl_docs_unfiltered = outer_unfiltered;
	}
	PG_END_TRY();
}

/* Core took our trigger away with the link; the indexes stayed. */
static void
review_detached_partition(Oid relid, const Collection *parent)
{
	CollectionSettings settings = parent->settings;

	if (get_rel_relkind(relid) == RELKIND_FOREIGN_TABLE)
		return;
	if (!OidIsValid(get_trigger_oid(relid, TTL_DOCS_TRIGGER, true)))
		ttl_docs_create_trigger(relid);
	/* a label that was restored is still one, and holds the purge */
	if (settings.origin_database == MyDatabaseId &&
		settings.origin_relation == parent->root)
		settings.origin_relation = relid;
	ttl_docs_write_label(relid, &settings);
}

/* A column was changed, renamed or dropped. */
static void
review_column(Note *note)
{
	Collection	collection;

	if (!ttl_docs_collection(note->relid, &collection))
		return;
	if (note->is_doc && note->relid == collection.root)
	{
		char	   *name = get_attname(note->relid, note->attno, true);

		if (name != NULL &&
			strcmp(name, NameStr(collection.settings.doc_column)) != 0)
		{
			namestrcpy(&collection.settings.doc_column, name);
			ttl_docs_write_label(note->relid, &collection.settings);
			if (!ttl_docs_collection(note->relid, &collection))
				return;
		}
	}
	/* a partition follows its root, which the same command renames */
	if (note->relid == collection.root)
		require_columns(note->relid, &collection);
}

/* Raises an error unless the columns of a collection are what they must be. */
static void
require_columns(Oid relid, const Collection *collection)
{
	const struct
	{
		const char *name;
		AttrNumber	attno;
		Oid			type;
	}			columns[] = {
		{NameStr(collection->settings.doc_column), collection->doc, JSONBOID},
		{TTL_DOCS_TS_COLUMN, collection->ts, TIMESTAMPTZOID},
		{TTL_DOCS_TTL_COLUMN, collection->ttl, INT4OID},
		{TTL_DOCS_SLOT_COLUMN, collection->slot, INT8OID},
	};
	Relation	rel = table_open(relid, NoLock);

	for (size_t i = 0; i < lengthof(columns); i++)
	{
		Form_pg_attribute att = columns[i].attno <= 0 ? NULL :
			TupleDescAttr(RelationGetDescr(rel), columns[i].attno - 1);

		if (att == NULL)
			ereport(ERROR,
					(errcode(ERRCODE_DEPENDENT_OBJECTS_STILL_EXIST),
					 errmsg("cannot drop or rename column \"%s\" of the collection \"%s\"",
							columns[i].name, RelationGetRelationName(rel)),
					 errhint("Call ttl_docs.release() to make it a plain table again.")));
		if (att->atttypid != columns[i].type || att->attgenerated ||
			att->attidentity ||
			(strcmp(columns[i].name, TTL_DOCS_TS_COLUMN) == 0 && !att->attnotnull))
			ereport(ERROR,
					(errcode(ERRCODE_DEPENDENT_OBJECTS_STILL_EXIST),
					 errmsg("cannot change column \"%s\" of the collection \"%s\"",
							columns[i].name, RelationGetRelationName(rel)),
					 errhint("Call ttl_docs.release() to make it a plain table again.")));
	}
	table_close(rel, NoLock);
}

/* An index was dropped; was it the purge index? */
static void
review_index(Oid relid)
{
	Collection	collection;
	Relation	rel;

	if (!ttl_docs_collection(relid, &collection) || !collection.settings.on)
		return;
	rel = table_open(relid, NoLock);
	if (!OidIsValid(ttl_docs_purge_index(rel, collection.settings.indexing)))
		ereport(ERROR,
				(errcode(ERRCODE_DEPENDENT_OBJECTS_STILL_EXIST),
				 errmsg("cannot drop the purge index of the collection \"%s\" while a DefaultTTL is set",
						RelationGetRelationName(rel)),
				 errhint("Turn TTL off with ttl_docs.set_default_ttl(), or use ttl_docs.set_indexing() or ttl_docs.release().")));
	table_close(rel, NoLock);
}

/* Our trigger was dropped. */
static void
review_dropped_trigger(Oid relid)
{
	Collection	collection;

	if (!ttl_docs_collection(relid, &collection) ||
		OidIsValid(get_trigger_oid(relid, TTL_DOCS_TRIGGER, true)))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_DEPENDENT_OBJECTS_STILL_EXIST),
			 errmsg("cannot drop trigger \"%s\" of the collection \"%s\"",
					TTL_DOCS_TRIGGER, get_rel_name(relid)),
			 errhint("Call ttl_docs.release() to make it a plain table again.")));
}

/* A trigger was made, renamed, enabled or disabled. */
static void
review_trigger(Oid trigger, Node *parsetree)
{
	FormData_pg_trigger form;
	Collection	collection;
	Relation	rel;
	bool		is_ours;

	if (!fetch_trigger(trigger, &form) ||
		!ttl_docs_collection(form.tgrelid, &collection))
		return;
	is_ours = form.tgfoid == ttl_docs_trigger_function();
	if (is_ours != (strcmp(NameStr(form.tgname), TTL_DOCS_TRIGGER) == 0) ||
		(is_ours && form.tgtype != (TRIGGER_TYPE_ROW | TRIGGER_TYPE_BEFORE |
									TRIGGER_TYPE_INSERT | TRIGGER_TYPE_UPDATE |
									TRIGGER_TYPE_DELETE)) ||
		(is_ours && form.tgenabled == TRIGGER_DISABLED && names_our_trigger(parsetree)))
		ereport(ERROR,
				(errcode(ERRCODE_DEPENDENT_OBJECTS_STILL_EXIST),
				 errmsg("cannot change trigger \"%s\" of the collection \"%s\"",
						TTL_DOCS_TRIGGER, get_rel_name(form.tgrelid)),
				 errhint("Call ttl_docs.release() to make it a plain table again.")));
	if (is_ours && form.tgenabled != TRIGGER_FIRES_ALWAYS)
	{
		if (form.tgenabled == TRIGGER_DISABLED)
			ereport(NOTICE,
					(errmsg("trigger \"%s\" of the collection \"%s\" stays enabled",
							TTL_DOCS_TRIGGER, get_rel_name(form.tgrelid))));
		ttl_docs_run("ALTER TABLE ONLY %s ENABLE ALWAYS TRIGGER %s",
					 ttl_docs_quoted_name(form.tgrelid), TTL_DOCS_TRIGGER);
	}

	rel = table_open(form.tgrelid, NoLock);
	ttl_docs_require_last_trigger(rel);
	table_close(rel, NoLock);
}

/* Is it ALTER TABLE ... DISABLE TRIGGER with the name of ours? */
static bool
names_our_trigger(Node *parsetree)
{
	ListCell   *lc;

	if (!IsA(parsetree, AlterTableStmt))
		return false;
	foreach(lc, ((AlterTableStmt *) parsetree)->cmds)
	{
		AlterTableCmd *cmd = lfirst_node(AlterTableCmd, lc);

		if (cmd->subtype == AT_DisableTrig &&
			strcmp(cmd->name, TTL_DOCS_TRIGGER) == 0)
			return true;
	}
	return false;
}

/* Reads a trigger's catalog row; false if it is not there. */
static bool
fetch_trigger(Oid trigger, FormData_pg_trigger *form)
{
	Relation	triggers = table_open(TriggerRelationId, AccessShareLock);
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;
	bool		found;

	ScanKeyInit(&key, Anum_pg_trigger_oid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(trigger));
	scan = systable_beginscan(triggers, TriggerOidIndexId, true, NULL, 1, &key);
	tuple = systable_getnext(scan);
	found = HeapTupleIsValid(tuple);
	if (found)
		memcpy(form, GETSTRUCT(tuple), sizeof(*form));
	systable_endscan(scan);
	table_close(triggers, AccessShareLock);
	return found;
}
