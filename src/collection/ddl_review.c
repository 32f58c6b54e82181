/*-------------------------------------------------------------------------
 *
 * ddl_review.c
 *		Reviews what a DDL command did to collections, and refuses what breaks one.
 *
 * Reads the notes of ddl_notes.c when the command is through.  It refuses what
 * leaves a collection without one of its pieces, and otherwise does what keeps the
 * collection right:
 * - columns: ddl_columns.c;
 * - partitions that were attached or detached: ddl_partitions.c;
 * - DISABLE TRIGGER ALL and ENABLE TRIGGER ALL leave our trigger enabled, so a
 *   data-only restore works, and its rows are still validated;
 * - DROP EXTENSION removes the labels: the tables stay, as plain tables.
 *
 * Commands that commit in between (REINDEX CONCURRENTLY) have given up their locks
 * by now, so tables are opened as if nothing were known about them.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "access/xact.h"
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

static void review_note(Note *note, Node *parsetree);
static void review_dropped_extension(void);
static void review_restored(Oid relid);
static void review_index(Oid relid);
static void review_dropped_trigger(Oid relid);
static void review_trigger(Oid trigger, Node *parsetree);
static bool disables_our_trigger(Node *parsetree);

/*
 * Looks at the notes of a command.  The order of the kinds matters: without
 * the extension there are no collections, and a detached partition gets a
 * trigger of its own for the one that went with the link.
 */
void
ttl_docs_review(List *notes, Node *parsetree)
{
	ListCell   *lc;

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

static void
review_note(Note *note, Node *parsetree)
{
	if (OidIsValid(note->relid) &&
		!SearchSysCacheExists1(RELOID, ObjectIdGetDatum(note->relid)))
		return;					/* the whole table went */
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
		case NOTE_COLUMN:
			ttl_docs_review_column(note, parsetree);
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

/* Without the extension, collections are plain tables. */
static void
review_dropped_extension(void)
{
	int			collections = ttl_docs_remove_all_labels();

	if (collections > 0)
		ereport(WARNING,
				(errmsg_plural("%d collection is a plain table now, and expired documents that it still has on disk are rows again",
							   "%d collections are plain tables now, and expired documents that they still have on disk are rows again",
							   collections, collections)));
}

/*
 * A restore has brought a label.  By coincidence, a restored label can name the OIDs
 * of the table and database that it was restored to; it must not look like a label
 * that was written here.  pg_upgrade keeps OIDs, so there the purge goes on.
 * Existing partitions get their copies.
 */
static void
review_restored(Oid relid)
{
	CollectionSettings settings;

	if (!ttl_docs_read_label(relid, &settings))
		return;
	if (!IsBinaryUpgrade && settings.origin_database == MyDatabaseId &&
		settings.origin_relation == relid)
		settings.origin_relation = InvalidOid;
	ttl_docs_write_label(relid, &settings);
}

/* An index was dropped; was it the purge index? */
static void
review_index(Oid relid)
{
	Collection	collection;
	Relation	rel = try_table_open(relid, AccessShareLock);

	if (rel == NULL)
		return;
	/* as in review_dropped_trigger */
	if (ttl_docs_lookup_collection(relid, &collection) && collection.settings.on &&
		!ttl_docs_acts_for_backup(relid) &&
		!OidIsValid(ttl_docs_purge_index(rel, collection.settings.indexing)))
		ereport(ERROR,
				(errcode(ERRCODE_DEPENDENT_OBJECTS_STILL_EXIST),
				 errmsg("cannot drop the purge index of the collection \"%s\" while a DefaultTTL is set",
						RelationGetRelationName(rel)),
				 errhint("To do without it, turn TTL off with ttl_docs.set_default_ttl(), or use ttl_docs.set_indexing() or ttl_docs.release(). A schema tool has to be told to leave it alone.")));
	table_close(rel, NoLock);
}

/* A trigger of our name was dropped. */
static void
review_dropped_trigger(Oid relid)
{
	Collection	collection;

	/* pg_restore --clean drops the pieces of a table before the table */
	if (ttl_docs_acts_for_backup(relid))
		return;
	if (ttl_docs_lookup_collection(relid, &collection) && !ttl_docs_has_trigger(relid))
		ttl_docs_refuse_ddl("drop trigger", TTL_DOCS_TRIGGER, relid);
}

/* A trigger was made, renamed, enabled or disabled. */
static void
review_trigger(Oid trigger, Node *parsetree)
{
	FormData_pg_trigger form;
	Collection	collection;
	Relation	rel;
	bool		is_ours;

	if (!ttl_docs_fetch_trigger(trigger, NULL, &form) ||
		!ttl_docs_lookup_collection(form.tgrelid, &collection))
		return;
	is_ours = strcmp(NameStr(form.tgname), TTL_DOCS_TRIGGER) == 0;
	if (is_ours ? !ttl_docs_has_trigger(form.tgrelid) :
		form.tgfoid == ttl_docs_trigger_function())
	{
		ttl_docs_refuse_citus_rename(form.tgrelid, NameStr(form.tgname));
		ttl_docs_refuse_ddl("change trigger", TTL_DOCS_TRIGGER, form.tgrelid);
	}
	if (is_ours && form.tgenabled == TRIGGER_DISABLED)
	{
		if (disables_our_trigger(parsetree))
			ttl_docs_refuse_ddl("disable trigger", TTL_DOCS_TRIGGER, form.tgrelid);
		ereport(NOTICE,
				(errmsg("trigger \"%s\" of the collection \"%s\" stays enabled",
						TTL_DOCS_TRIGGER, get_rel_name(form.tgrelid))));
	}
	/* in a restore, CREATE TRIGGER comes first and ENABLE ALWAYS next */
	if (is_ours && form.tgenabled != TRIGGER_FIRES_ALWAYS)
		ttl_docs_run_ddl("ALTER TABLE ONLY %s ENABLE ALWAYS TRIGGER %s",
						 ttl_docs_quoted_name(form.tgrelid), TTL_DOCS_TRIGGER);

	rel = try_table_open(form.tgrelid, AccessShareLock);
	if (rel != NULL)
	{
		ttl_docs_require_last_trigger(rel);
		table_close(rel, NoLock);
	}
}

/* Is it ALTER TABLE ... DISABLE TRIGGER with the name of ours? */
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

/* That one commits in between: too late to ttl_docs_refuse_ddl it at its end. */
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
				 errhint("To do without it, turn TTL off with ttl_docs.set_default_ttl(), or use ttl_docs.set_indexing() or ttl_docs.release(). A schema tool has to be told to leave it alone.")));
}

/*
 * Core would ttl_docs_refuse_ddl it, too, and then advise CASCADE, which lets expired documents
 * come back as rows of plain tables.
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
		/* what core has to say of rights goes first */
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
					 errhint("First: SELECT ttl_docs.release(collection) FROM ttl_docs.collections. With CASCADE, expired documents that are still on disk would be rows again.")));
	}
}

void
ttl_docs_refuse_ddl(const char *action, const char *piece, Oid relid)
{
	ereport(ERROR,
			(errcode(ERRCODE_DEPENDENT_OBJECTS_STILL_EXIST),
			 errmsg("cannot %s \"%s\" of the collection \"%s\"",
					action, piece, get_rel_name(relid)),
			 errhint("ttl_docs.release() makes the collection a plain table again. A schema tool has to be told to leave it alone.")));
}
