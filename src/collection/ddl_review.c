/*-------------------------------------------------------------------------
 *
 * ddl_review.c
 *		Reviews what a DDL command did to collections, and refuses
 *		commands that break a collection.
 *
 * The review reads the notes of ddl_notes.c when the command has finished.
 * It refuses a command after which a collection lacks one of its pieces.
 * Other commands need a reaction:
 * - changed columns: ddl_columns.c;
 * - attached and detached partitions: ddl_partitions.c;
 * - DISABLE TRIGGER ALL and ENABLE TRIGGER ALL: the review enables our
 *   trigger again, with ENABLE ALWAYS.  So a data-only restore works, and its
 *   rows are still validated;
 * - DROP EXTENSION: the review removes the labels, and the tables stay as
 *   plain tables.
 *
 * A command that commits before it ends (REINDEX CONCURRENTLY) has released
 * its locks when the review starts.  So the review expects that any table may
 * be gone.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/pg_trigger.h"
#include "catalog/pg_type.h"
#include "commands/extension.h"
#include "commands/trigger.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"

#include "collection/collection_internal.h"

static void review_access_method(AlterTableStmt *stmt);
static void review_note(Note *note, Node *parsetree);
static void review_dropped_extension(void);
static void review_restored(Oid relid);
static void review_dropped_index(Oid relid);
static void review_dropped_trigger(Oid relid);
static void review_trigger(Oid trigger, Node *parsetree);
static bool disables_our_trigger(Node *parsetree);
static int	errhint_purge_index(Oid root);

/*
 * Reviews the notes of a command.  The order of the kinds matters: without
 * the extension there are no collections, and a detached partition must have
 * its new trigger before the drop of its old trigger is reviewed.
 */
void
ttl_docs_review(List *notes, Node *parsetree)
{
	ListCell   *lc;

	if (IsA(parsetree, AlterTableStmt))
		review_access_method((AlterTableStmt *) parsetree);
	if (notes == NIL)
		return;
	CommandCounterIncrement();
	for (NoteKind kind = NOTE_EXTENSION_DROPPED; kind <= NOTE_TRIGGER; kind++)
	{
		foreach(lc, notes)
		{
			Note	   *note = lfirst(lc);

			if (note->kind == kind)
				review_note(note, parsetree);
		}
	}
}

/* Refuses ALTER TABLE ... SET ACCESS METHOD for a collection. */
static void
review_access_method(AlterTableStmt *stmt)
{
	Collection	collection;
	Oid			relid;
	ListCell   *lc;

	foreach(lc, stmt->cmds)
	{
		if (lfirst_node(AlterTableCmd, lc)->subtype != AT_SetAccessMethod)
			continue;
		CommandCounterIncrement();
		relid = RangeVarGetRelid(stmt->relation, NoLock, true);
		if (OidIsValid(relid) && ttl_docs_lookup_collection(relid, &collection))
		{
			Relation	rel = relation_open(relid, AccessShareLock);

			ttl_docs_require_heap(rel);
			relation_close(rel, AccessShareLock);
		}
	}
}

static void
review_note(Note *note, Node *parsetree)
{
	if (OidIsValid(note->relid) &&
		!SearchSysCacheExists1(RELOID, ObjectIdGetDatum(note->relid)))
		return;					/* the whole table was dropped */
	switch (note->kind)
	{
		case NOTE_EXTENSION_DROPPED:
			review_dropped_extension();
			break;
		case NOTE_RESTORED:
			review_restored(note->relid);
			break;
		case NOTE_LINK_CHANGED:
			ttl_docs_review_link(note, IsA(parsetree, AlterTableStmt));
			break;
		case NOTE_CONSTRAINT:
			ttl_docs_review_foreign_key(note->other);
			break;
		case NOTE_COLUMN:
			ttl_docs_review_column(note, parsetree);
			break;
		case NOTE_INDEX_DROPPED:
			review_dropped_index(note->relid);
			break;
		case NOTE_TRIGGER_DROPPED:
			review_dropped_trigger(note->relid);
			break;
		case NOTE_PARENT_TRIGGER:
			ttl_docs_review_parent_trigger(note->relid);
			break;
		case NOTE_TRIGGER:
			review_trigger(note->other, parsetree);
			break;
	}
}

/* Makes all collections plain tables after DROP EXTENSION ... CASCADE. */
static void
review_dropped_extension(void)
{
	int			collections = ttl_docs_remove_all_labels();

	if (collections > 0)
		ereport(WARNING,
				(errmsg_plural("%d collection is now a plain table",
							   "%d collections are now plain tables",
							   collections, collections),
				 errdetail("Expired documents that were not purged are visible again.")));
}

/*
 * A restore brought a label.  By coincidence, the OIDs in the label can be
 * those of the table and the database that got the label.  Then the label
 * would look as if it had been written here, and the purge would not be held.
 * So we clear the OID of the table.  pg_upgrade keeps OIDs on purpose, and
 * after pg_upgrade the purge continues.  Existing partitions get copies of the
 * label.
 *
 * A dump of a Citus table has the label, but not the hidden trigger, so the
 * trigger is created here.  A restore creates plain tables, but somebody may
 * have distributed the table before its label is restored.  pg_upgrade brings
 * the catalogs of Citus later.
 *
 * Somebody may have created the trigger before the label.  Then review_trigger() has
 * not set ENABLE ALWAYS.
 */
static void
review_restored(Oid relid)
{
	CollectionSettings settings;
	bool		is_citus;

	if (!ttl_docs_read_label(relid, &settings))
		return;
	if (!IsBinaryUpgrade && settings.origin_database == MyDatabaseId &&
		settings.origin_relation == relid)
		settings.origin_relation = InvalidOid;
	is_citus = IsBinaryUpgrade ? settings.citus : ttl_docs_is_shell(relid);
	if (is_citus || settings.citus ||
		(ttl_docs_has_trigger(relid) && !ttl_docs_trigger_always_fires(relid)))
		ttl_docs_create_trigger(relid, is_citus);
	if (is_citus != settings.citus)
		ttl_docs_set_column_defaults(relid, is_citus);
	/* other nodes have other OIDs; zero means "restored" on all of them */
	if (is_citus && !IsBinaryUpgrade)
		settings.origin_relation = InvalidOid;
	settings.citus = is_citus;
	settings.filling = settings.changing = false;
	ttl_docs_write_label(relid, &settings);
}

/* Refuses to drop the purge index while TTL is on. */
static void
review_dropped_index(Oid relid)
{
	Collection	collection;
	Relation	rel = try_table_open(relid, AccessShareLock);

	if (rel == NULL)
		return;
	/* pg_restore --clean drops the pieces of a table before the table */
	if (ttl_docs_lookup_collection(relid, &collection) && collection.settings.on &&
		!ttl_docs_acts_for_backup(relid) &&
		!OidIsValid(ttl_docs_purge_index(rel, collection.settings.indexing)))
		ereport(ERROR,
				(errcode(ERRCODE_DEPENDENT_OBJECTS_STILL_EXIST),
				 errmsg("cannot drop the purge index of the collection \"%s\" while a DefaultTTL is set",
						RelationGetRelationName(rel)),
				 errhint_purge_index(collection.root)));
	table_close(rel, NoLock);
}

/* Refuses to drop our trigger. */
static void
review_dropped_trigger(Oid relid)
{
	Collection	collection;

	/* pg_restore --clean drops the pieces of a table before the table */
	if (ttl_docs_acts_for_backup(relid))
		return;
	if (ttl_docs_lookup_collection(relid, &collection) && !ttl_docs_has_trigger(relid))
		ereport(ERROR,
				(errcode(ERRCODE_DEPENDENT_OBJECTS_STILL_EXIST),
				 errmsg("cannot drop trigger \"%s\" of the collection \"%s\"",
						TTL_DOCS_TRIGGER, get_rel_name(relid)),
				 ttl_docs_errhint_release(collection.root)));
}

/* Reviews any trigger that was created, renamed, enabled or disabled. */
static void
review_trigger(Oid trigger, Node *parsetree)
{
	FormData_pg_trigger form;
	Collection	collection;
	Relation	rel;
	bool		is_ours;

	if (!ttl_docs_fetch_trigger(trigger, NULL, &form))
		return;
	if (ttl_docs_is_parent_trigger(&form))
	{
		ttl_docs_review_parent_trigger(form.tgrelid);
		return;
	}
	if (!ttl_docs_lookup_collection(form.tgrelid, &collection))
		return;
	is_ours = strcmp(NameStr(form.tgname), TTL_DOCS_TRIGGER) == 0;
	if (is_ours ? !ttl_docs_has_trigger(form.tgrelid) :
		form.tgfoid == ttl_docs_trigger_function())
		ereport(ERROR,
				(errcode(ERRCODE_DEPENDENT_OBJECTS_STILL_EXIST),
				 errmsg("cannot change trigger \"%s\" of the collection \"%s\"",
						TTL_DOCS_TRIGGER, get_rel_name(form.tgrelid)),
				 ttl_docs_errhint_release(collection.root)));
	if (is_ours && form.tgenabled == TRIGGER_DISABLED)
	{
		if (disables_our_trigger(parsetree))
			ereport(ERROR,
					(errcode(ERRCODE_DEPENDENT_OBJECTS_STILL_EXIST),
					 errmsg("cannot disable trigger \"%s\" of the collection \"%s\"",
							TTL_DOCS_TRIGGER, get_rel_name(form.tgrelid)),
					 ttl_docs_errhint_release(collection.root)));
		ereport(NOTICE,
				(errmsg("trigger \"%s\" of the collection \"%s\" stays enabled",
						TTL_DOCS_TRIGGER, get_rel_name(form.tgrelid))));
	}
	/* a restore runs CREATE TRIGGER first and ENABLE ALWAYS TRIGGER later */
	if (is_ours && form.tgenabled != TRIGGER_FIRES_ALWAYS && form.tgisinternal)
		ttl_docs_hide_trigger(form.tgrelid, true);
	else if (is_ours && form.tgenabled != TRIGGER_FIRES_ALWAYS)
		ttl_docs_run_ddl("ALTER TABLE ONLY %s ENABLE ALWAYS TRIGGER %s",
						 ttl_docs_quoted_name(form.tgrelid), TTL_DOCS_TRIGGER);

	rel = try_table_open(form.tgrelid, AccessShareLock);
	if (rel != NULL)
	{
		ttl_docs_require_last_trigger(rel);
		table_close(rel, NoLock);
	}
}

/* Is the command ALTER TABLE ... DISABLE TRIGGER for our trigger by name? */
static bool
disables_our_trigger(Node *parsetree)
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

/*
 * Refuses DROP INDEX CONCURRENTLY of the last purge index while TTL is on.
 * The command commits before it ends, so the review would be too late.
 */
void
ttl_docs_check_drop_index_concurrently(Oid index, Oid table, const Collection *collection)
{
	Relation	rel;
	bool		is_last;

	if (!collection->settings.on)
		return;
	rel = table_open(table, AccessShareLock);
	is_last = !OidIsValid(ttl_docs_other_purge_index(rel, collection->settings.indexing,
													 index));
	table_close(rel, AccessShareLock);
	if (is_last)
		ereport(ERROR,
				(errcode(ERRCODE_DEPENDENT_OBJECTS_STILL_EXIST),
				 errmsg("cannot drop the purge index \"%s\" of the collection \"%s\" while a DefaultTTL is set",
						get_rel_name(index), get_rel_name(collection->root)),
				 errhint_purge_index(collection->root)));
}

/*
 * Refuses DROP EXTENSION ttl_docs without CASCADE while there are
 * collections.  Core would refuse the command too, but its hint advises
 * CASCADE.  After CASCADE, expired documents come back as rows of plain
 * tables.
 */
void
ttl_docs_check_drop_extension(Node *parsetree)
{
	DropStmt   *stmt = (DropStmt *) parsetree;
	ListCell   *lc;

	if (!IsA(parsetree, DropStmt) || stmt->removeType != OBJECT_EXTENSION ||
		stmt->behavior == DROP_CASCADE)
		return;
	foreach(lc, stmt->objects)
	{
		Oid			extension;
		int			count;

		if (strcmp(strVal(lfirst(lc)), TTL_DOCS_EXTENSION) != 0)
			continue;
		/* if the user lacks the right, core raises its own error */
		extension = get_extension_oid(TTL_DOCS_EXTENSION, true);
		if (!OidIsValid(extension) ||
			!compat_extension_ownercheck(extension, GetUserId()))
			continue;
		count = list_length(ttl_docs_all_collections());
		if (count > 0)
			ereport(ERROR,
					(errcode(ERRCODE_DEPENDENT_OBJECTS_STILL_EXIST),
					 errmsg_plural("cannot drop extension \"%s\" while there is %d collection",
								   "cannot drop extension \"%s\" while there are %d collections",
								   count, TTL_DOCS_EXTENSION, count),
					 errhint("First make them plain tables: SELECT ttl_docs.release(collection) FROM ttl_docs.collections. With CASCADE, expired documents that were not purged would be visible again.")));
	}
}

/* The hint for a refused drop of the purge index. */
static int
errhint_purge_index(Oid root)
{
	return errhint("To replace the index, call ttl_docs.set_indexing(). To drop it, turn TTL off first: SELECT ttl_docs.set_default_ttl(%s, NULL). Exclude the index from schema migration tools (see docs/orms.md).",
				   ttl_docs_quoted_literal(root));
}

/* The hint for a refused change of a column or of the trigger. */
int
ttl_docs_errhint_release(Oid root)
{
	return errhint("Make the collection a plain table first: SELECT ttl_docs.release(%s). Exclude the columns and the trigger of ttl_docs from schema migration tools (see docs/orms.md).",
				   ttl_docs_quoted_literal(root));
}
