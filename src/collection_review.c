/*-------------------------------------------------------------------------
 *
 * collection_review.c
 *		What a DDL command did to collections, and what follows from it.
 *
 * Reads the notes of collection_guard.c when the command is through.  It
 * refuses what leaves a collection without one of its pieces, and otherwise
 * does what keeps it right:
 * - a renamed document column is followed in the label;
 * - ALTER COLUMN TYPE that changes neither type nor values is let through;
 * - a new partition gets a copy of the label, and _ttl and _slot for the rows that
 *   it brings.  If some of them are expired under the settings of the collection, or
 *   if the purge of the partition was held, the purge of the collection is held;
 * - a detached partition stays a collection, by itself, with the settings and
 *   floors it had: its expired documents must not come back;
 * - attached again, to a collection under which they are dead too, it becomes
 *   part of that;
 * - DISABLE TRIGGER ALL and ENABLE TRIGGER ALL leave our trigger enabled, so a
 *   data-only restore works, and its rows are still validated;
 * - DROP EXTENSION takes the labels away: the tables stay, as plain tables.
 *
 * Commands that commit in between (REINDEX CONCURRENTLY) have given up their
 * locks by now, so tables are opened as if nothing were known of them.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_trigger.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "miscadmin.h"
#include "parser/parse_type.h"
#include "storage/lmgr.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"

#include "collection_guard.h"
#include "purge.h"

static void review_note(Note *note, Node *parsetree);
static void review_dropped_extension(void);
static void review_restored(Oid relid);
static void review_link(Note *note, bool may_have_rows);
static void review_new_partition(Oid relid, const Collection *collection);
static void hold_for_attached(const Note *note);
static void take_holds_along(const Note *note, Oid root, CollectionSettings *settings);
static void review_detached_partition(Oid relid);
static bool lock_to_attach(RangeVar *parent_name, RangeVar *child_name,
						   Collection *into, AttachedCollection *attached);
static void require_owner(const RangeVar *name, Oid relid, Oid old_relid, void *arg);
static void require_dead_there_too(Oid child, const CollectionSettings *settings,
								   Oid root, const CollectionSettings *into);
static void review_column(Note *note, Node *parsetree);
static void follow_rename(Note *note, Collection *collection);
static bool changes_type(const Note *note, Node *parsetree);
static bool keeps_type(const Note *note);
static bool is_plain_column(Node *expr, const Note *note);
static void require_columns(Oid relid, const Collection *collection);
static void review_index(Oid relid);
static void review_dropped_trigger(Oid relid);
static void review_trigger(Oid trigger, Node *parsetree);
static bool disables_our_trigger(Node *parsetree);
pg_noreturn static void refuse(const char *action, const char *piece, Oid relid);

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
			review_link(note, IsA(parsetree, AlterTableStmt));
			break;
		case NOTE_COLUMN:
			review_column(note, parsetree);
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

/* A table was made a child of another, or no longer is.  A new table has no rows. */
static void
review_link(Note *note, bool may_have_rows)
{
	Collection	collection;
	bool		is_partition = get_rel_relispartition(note->relid);
	bool		child_is_collection = ttl_docs_collection(note->relid, &collection);

	if (!has_superclass(note->relid))
	{
		if (note->parent_is_collection && child_is_collection)
			review_detached_partition(note->relid);
		return;
	}
	if (is_partition && !ttl_docs_has_own_label(note->relid))
	{
		if (child_is_collection)
		{
			review_new_partition(note->relid, &collection);
			if (may_have_rows)
				hold_for_attached(note);
		}
		return;
	}
	if (child_is_collection || note->parent_is_collection)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 is_partition ?
				 errmsg("the collection \"%s\" cannot become a partition of a plain table",
						get_rel_name(note->relid)) :
				 errmsg("the collection \"%s\" cannot take part in inheritance",
						get_rel_name(child_is_collection ? note->relid : note->other)),
				 is_partition ?
				 errhint("Make \"%s\" a collection with ttl_docs.adopt(), or call ttl_docs.release() for \"%s\", first.",
						 get_rel_name(note->other), get_rel_name(note->relid)) :
				 errhint("Use a partitioned table, or call ttl_docs.release() first.")));
}

/*
 * A partition, or a tree of them, brought rows that our trigger has not seen.
 * ATTACH holds ACCESS EXCLUSIVE on all of it; one that was just made is empty.
 *
 * In a binary upgrade no row is looked at.  Tables have no rows yet, and those to
 * come were right before.  Nor could the owners of tables run a query that needs
 * our functions: their rights come at the end of the upgrade.
 */
static void
review_new_partition(Oid relid, const Collection *collection)
{
	List	   *tables = find_all_inheritors(relid, AccessExclusiveLock, NULL);
	ListCell   *lc;

	foreach(lc, tables)
	{
		Relation	rel = table_open(lfirst_oid(lc), NoLock);
		Collection	member;

		if (rel->rd_rel->relkind == RELKIND_FOREIGN_TABLE)
			ereport(ERROR,
					(errcode(ERRCODE_WRONG_OBJECT_TYPE),
					 errmsg("foreign table \"%s\" cannot be a partition of the collection \"%s\"",
							RelationGetRelationName(rel),
							get_rel_name(collection->root)),
					 errhint("Its server would not hide expired documents. Copy its rows into a local table.")));
		ttl_docs_require_free_partition_key(rel);
		ttl_docs_require_last_trigger(rel);
		table_close(rel, NoLock);
		if (!ttl_docs_collection(lfirst_oid(lc), &member))
			continue;
		require_columns(lfirst_oid(lc), &member);
		if (!IsBinaryUpgrade)
			ttl_docs_mend_derived(lfirst_oid(lc), &member);
	}
	list_free(tables);
	ttl_docs_write_label(relid, &collection->settings);
	ttl_docs_note_change(collection->root);
	if (collection->settings.on && !IsBinaryUpgrade)
		ttl_docs_refuse_invalid_ttl(relid, NameStr(collection->settings.doc_column),
									psprintf("%s OPERATOR(pg_catalog.=) %d",
											 TTL_DOCS_TTL_COLUMN, TTL_INVALID));
}

/*
 * The documents of a new partition that were live until now, and are expired under
 * the settings of the collection, hold its purge (collection_grace.c).
 *
 * The label is the root's, which ttl_docs_prepare_attach() has locked.  Whoever
 * attaches the partition need not own the root, and then must not hold its purge.  In
 * a binary upgrade, labels and rows are what they were.
 */
static void
hold_for_attached(const Note *note)
{
	Collection	collection;
	CollectionSettings settings;
	NewlyExpired expired;

	if (IsBinaryUpgrade || !ttl_docs_collection(note->relid, &collection))
		return;
	settings = collection.settings;
	if (note->was_collection)
		take_holds_along(note, collection.root, &settings);
	expired = ttl_docs_count_newly_expired(note->relid,
										   note->was_collection ? &note->before : NULL,
										   &settings);
	ttl_docs_begin_grace(collection.root, &settings, &expired);
	if (settings.grace_until == collection.settings.grace_until &&
		settings.paused == collection.settings.paused &&
		settings.origin_relation == collection.settings.origin_relation)
		return;
	if (!compat_table_ownercheck(collection.root, GetUserId()))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("must be owner of \"%s\" to attach \"%s\", because that holds the purge of \"%s\"",
						get_rel_name(collection.root), get_rel_name(note->relid),
						get_rel_name(collection.root)),
				 errhint("To purge the expired documents without a hold: SET ttl_docs.purge_grace = 0, and call ttl_docs.resume_purge() for \"%s\" if it is a collection.",
						 get_rel_name(note->relid))));
	ttl_docs_write_label(collection.root, &settings);
}

/*
 * What held the purge of the partition, as a collection by itself, holds the purge of
 * the collection that it becomes part of: nobody has allowed the purge to delete its
 * expired documents.
 */
static void
take_holds_along(const Note *note, Oid root, CollectionSettings *settings)
{
	PurgeState	hold = ttl_docs_settings_hold(note->relid, &note->before);
	PurgeState	hold_of_root = ttl_docs_settings_hold(root, settings);

	settings->grace_until = Max(settings->grace_until, note->before.grace_until);
	settings->paused |= note->before.paused;
	if (hold == PURGE_RESTORED)
		settings->origin_relation = InvalidOid;
	if (PURGE_IS_HOLD(hold) && !PURGE_IS_HOLD(hold_of_root))
		ereport(NOTICE,
				(errmsg("the purge of \"%s\" is now held (%s), because the purge of \"%s\" was held",
						get_rel_name(root), ttl_docs_purge_state_name(hold),
						get_rel_name(note->relid)),
				 errhint("To purge the expired documents of both: SELECT ttl_docs.resume_purge(%s).",
						 quote_literal_cstr(ttl_docs_quoted_name(root)))));
}

/*
 * Core took our trigger away with the link; the indexes stayed, and the label
 * came when the link went.  The partition may have another owner than the table
 * it was detached from; the trigger is made in their name, by which no code of
 * anybody runs.
 */
static void
review_detached_partition(Oid relid)
{
	Relation	rel = try_table_open(relid, ShareRowExclusiveLock);
	Oid			user;
	int			sec_context;

	if (rel == NULL)
		return;
	GetUserIdAndSecContext(&user, &sec_context);
	SetUserIdAndSecContext(rel->rd_rel->relowner,
						   sec_context | SECURITY_RESTRICTED_OPERATION);
	if (!ttl_docs_has_trigger(relid))
		ttl_docs_create_trigger(relid);
	SetUserIdAndSecContext(user, sec_context);
	table_close(rel, NoLock);
}

/*
 * Before ATTACH PARTITION: a collection that becomes part of another one gives
 * up its trigger, which core will make, and its label when the link is there.
 * What is dead in it has to be dead there.  Fills in which table is to be attached
 * to which.  Core looks the names up again, and may find others by then: the guard
 * compares.
 */
void
ttl_docs_prepare_attach(Node *parsetree, AttachedCollection *attached)
{
	AlterTableStmt *stmt = (AlterTableStmt *) parsetree;
	AlterTableCmd *cmd;
	RangeVar   *child_name;
	Oid			parent;
	Oid			child;
	Collection	into;
	Collection	collection;

	memset(attached, 0, sizeof(*attached));
	/* ATTACH PARTITION stands alone in its command */
	if (!IsA(parsetree, AlterTableStmt) || list_length(stmt->cmds) != 1)
		return;
	cmd = linitial_node(AlterTableCmd, stmt->cmds);
	if (cmd->subtype != AT_AttachPartition)
		return;
	child_name = ((PartitionCmd *) cmd->def)->name;
	parent = RangeVarGetRelid(stmt->relation, NoLock, true);
	child = RangeVarGetRelid(child_name, NoLock, true);
	if (!OidIsValid(parent) || !OidIsValid(child))
		return;
	ttl_docs_refuse_citus_attach(parent, child);
	/* who may not do it does not get a lock, but an error of core's */
	if (!ttl_docs_collection(parent, &into) ||
		!compat_table_ownercheck(parent, GetUserId()) ||
		!compat_table_ownercheck(child, GetUserId()) ||
		!lock_to_attach(stmt->relation, child_name, &into, attached))
		return;
	ttl_docs_require_no_pending_detach(attached->child);
	if (!ttl_docs_has_own_label(attached->child))
	{
		/* a plain table: core may attach whatever it finds */
		memset(attached, 0, sizeof(*attached));
		return;
	}

	table_close(ttl_docs_open_collection(attached->child, NoLock, &collection), NoLock);
	require_dead_there_too(attached->child, &collection.settings,
						   into.root, &into.settings);
	ttl_docs_drop_trigger(attached->child);
}

/*
 * Locks both tables as ATTACH PARTITION itself does, and the collection before them,
 * which keeps its settings as they are: all who change them lock the root first.
 * Resolves the names again under the locks.  Returns false if the parent is no longer
 * part of a collection.
 */
static bool
lock_to_attach(RangeVar *parent_name, RangeVar *child_name, Collection *into,
			   AttachedCollection *attached)
{
	Oid			root;
	Oid			parent;
	Oid			child;

	do
	{
		root = into->root;
		LockRelationOid(root, ShareUpdateExclusiveLock);
		parent = RangeVarGetRelidExtended(parent_name, ShareUpdateExclusiveLock,
										  RVR_MISSING_OK, require_owner, NULL);
		child = RangeVarGetRelidExtended(child_name, AccessExclusiveLock,
										 RVR_MISSING_OK, require_owner, NULL);
		if (!OidIsValid(parent) || !OidIsValid(child) ||
			!ttl_docs_collection(parent, into))
			return false;
	} while (into->root != root);
	attached->parent = parent;
	attached->child = child;
	return true;
}

/* Before a table is locked by its name. */
static void
require_owner(const RangeVar *name, Oid relid, Oid old_relid, void *arg)
{
	(void) old_relid;
	(void) arg;
	if (OidIsValid(relid) && !compat_table_ownercheck(relid, GetUserId()))
		aclcheck_error(ACLCHECK_NOT_OWNER,
					   get_relkind_objtype(get_rel_relkind(relid)), name->relname);
}

/* After ATTACH PARTITION: raises an error if core has attached another table. */
void
ttl_docs_require_attached(const AttachedCollection *attached)
{
	if (OidIsValid(attached->child) && !attached->is_linked)
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("could not attach \"%s\" because a table in the command was renamed or replaced concurrently",
						get_rel_name(attached->child)),
				 errhint("Try again.")));
}

/* Would the documents that are dead in one collection be so in another? */
static void
require_dead_there_too(Oid child, const CollectionSettings *settings,
					   Oid root, const CollectionSettings *into)
{
	TimestampTz clock = ttl_docs_clock();
	ExpiryBounds bounds = ttl_docs_bounds(settings, clock);
	ExpiryBounds into_bounds = ttl_docs_bounds(into, clock);

	if (strcmp(NameStr(settings->doc_column), NameStr(into->doc_column)) != 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot attach \"%s\": its documents are in \"%s\", those of \"%s\" in \"%s\"",
						get_rel_name(child), NameStr(settings->doc_column),
						get_rel_name(root), NameStr(into->doc_column)),
				 errhint("Call ttl_docs.release() for it, and adopt() it with the same doc_column.")));
	if (bounds.written > into_bounds.written || bounds.due > into_bounds.due)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot attach \"%s\": expired documents in it would be live in \"%s\"",
						get_rel_name(child), get_rel_name(root)),
				 errhint("Give \"%s\" a DefaultTTL that is not longer; or call ttl_docs.release() for \"%s\", which deletes them, and adopt() it again like \"%s\".",
						 get_rel_name(root), get_rel_name(child),
						 get_rel_name(root))));
}

/* A column, or the constraints, of a collection changed. */
static void
review_column(Note *note, Node *parsetree)
{
	Collection	collection;

	if (!ttl_docs_collection(note->relid, &collection))
		return;
	/* dropped and added again, or filled anew, it has the right type too */
	if (note->is_piece && note->is_dropped)
		refuse("drop or rename column", NameStr(note->name), note->relid);
	if (note->is_piece && changes_type(note, parsetree))
		refuse("change column", NameStr(note->name), note->relid);
	/* a partition follows its root, which the same command changes */
	if (note->relid != collection.root)
		return;
	if (note->is_doc)
		follow_rename(note, &collection);
	require_columns(note->relid, &collection);
}

/* The label names the document column. */
static void
follow_rename(Note *note, Collection *collection)
{
	char	   *name = get_attname(note->relid, note->attno, true);

	if (name == NULL ||
		strcmp(name, NameStr(collection->settings.doc_column)) == 0)
		return;
	ttl_docs_require_no_pending_detach(note->relid);
	namestrcpy(&collection->settings.doc_column, name);
	ttl_docs_write_label(note->relid, &collection->settings);
	(void) ttl_docs_collection(note->relid, collection);
}

/*
 * Is it ALTER COLUMN TYPE, whose USING can make any value of it?  Schema tools send
 * that with the type that the column has, and a USING that only names the column:
 * then nothing changes.  A command can have several such clauses for a column.
 */
static bool
changes_type(const Note *note, Node *parsetree)
{
	ListCell   *lc;

	if (!IsA(parsetree, AlterTableStmt))
		return false;
	foreach(lc, ((AlterTableStmt *) parsetree)->cmds)
	{
		AlterTableCmd *cmd = lfirst_node(AlterTableCmd, lc);

		if (cmd->subtype == AT_AlterColumnType &&
			strcmp(cmd->name, NameStr(note->name)) == 0 &&
			(!keeps_type(note) ||
			 !is_plain_column(castNode(ColumnDef, cmd->def)->raw_default, note)))
			return true;
	}
	return false;
}

/*
 * Before an ALTER TABLE: finds out which types its USING clauses cast to.  Functions
 * that run during the command can change the search_path, so afterwards it is too late.
 */
void
ttl_docs_resolve_types(AlterTableStmt *stmt)
{
	ListCell   *lc;

	foreach(lc, stmt->cmds)
	{
		AlterTableCmd *cmd = lfirst_node(AlterTableCmd, lc);
		Node	   *expr;

		if (cmd->subtype != AT_AlterColumnType)
			continue;
		expr = castNode(ColumnDef, cmd->def)->raw_default;
		for (; expr != NULL && IsA(expr, TypeCast); expr = ((TypeCast *) expr)->arg)
		{
			TypeName   *name = ((TypeCast *) expr)->typeName;
			int32		typmod;
			Type		type = LookupTypeName(NULL, name, &typmod, true);

			/* core will raise the error */
			if (type == NULL)
				return;
			name->typeOid = typeTypeId(type);
			name->typemod = typmod;
			name->names = name->typmods = name->arrayBounds = NIL;
			ReleaseSysCache(type);
		}
	}
}

/* Has the column the type that it had before the command? */
static bool
keeps_type(const Note *note)
{
	Oid			type;
	int32		typmod;
	Oid			collation;

	get_atttypetypmodcoll(note->relid, note->attno, &type, &typmod, &collation);
	return type == note->type && typmod == note->typmod;
}

/*
 * Is the expression of a USING the column itself, cast to no other type than its
 * own?  Core has accepted the expression for this table, so a name that ends in
 * that of the column means the column.  We do not analyse the expression again: what
 * it refers to may have been dropped by the same command.  Types were looked up before
 * the command.
 */
static bool
is_plain_column(Node *expr, const Note *note)
{
	Node	   *name;

	if (expr == NULL)
		return true;			/* there is no USING */
	while (IsA(expr, TypeCast))
	{
		Oid			type;
		int32		typmod;

		typenameTypeIdAndMod(NULL, ((TypeCast *) expr)->typeName, &type, &typmod);
		if (type != note->type || (typmod != -1 && typmod != note->typmod))
			return false;
		expr = ((TypeCast *) expr)->arg;
	}
	if (!IsA(expr, ColumnRef))
		return false;
	name = llast(((ColumnRef *) expr)->fields);
	return IsA(name, String) && strcmp(strVal(name), NameStr(note->name)) == 0;
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
		bool		may_be_null;
		bool		must_be_null;
	}			columns[] = {
		{NameStr(collection->settings.doc_column), collection->doc, JSONBOID, true, false},
		{TTL_DOCS_TS_COLUMN, collection->ts, TIMESTAMPTZOID, false, false},
		{TTL_DOCS_TTL_COLUMN, collection->ttl, INT4OID, true, true},
		{TTL_DOCS_SLOT_COLUMN, collection->slot, INT8OID, true, true},
	};
	Relation	rel = try_table_open(relid, AccessShareLock);

	if (rel == NULL)
		return;
	for (size_t i = 0; i < lengthof(columns); i++)
	{
		Form_pg_attribute att;

		if (columns[i].attno <= 0)
			refuse("drop or rename column", columns[i].name, relid);
		att = TupleDescAttr(RelationGetDescr(rel), columns[i].attno - 1);
		if (att->atttypid != columns[i].type || att->attgenerated ||
			att->attidentity ||
			(att->attnotnull ? columns[i].must_be_null : !columns[i].may_be_null))
			refuse("change column", columns[i].name, relid);
	}
	table_close(rel, NoLock);
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
	if (ttl_docs_collection(relid, &collection) && collection.settings.on &&
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
	if (ttl_docs_collection(relid, &collection) && !ttl_docs_has_trigger(relid))
		refuse("drop trigger", TTL_DOCS_TRIGGER, relid);
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
		!ttl_docs_collection(form.tgrelid, &collection))
		return;
	is_ours = strcmp(NameStr(form.tgname), TTL_DOCS_TRIGGER) == 0;
	if (is_ours ? !ttl_docs_has_trigger(form.tgrelid) :
		form.tgfoid == ttl_docs_trigger_function())
	{
		ttl_docs_refuse_citus_rename(form.tgrelid, NameStr(form.tgname));
		refuse("change trigger", TTL_DOCS_TRIGGER, form.tgrelid);
	}
	if (is_ours && form.tgenabled == TRIGGER_DISABLED)
	{
		if (disables_our_trigger(parsetree))
			refuse("disable trigger", TTL_DOCS_TRIGGER, form.tgrelid);
		ereport(NOTICE,
				(errmsg("trigger \"%s\" of the collection \"%s\" stays enabled",
						TTL_DOCS_TRIGGER, get_rel_name(form.tgrelid))));
	}
	/* in a restore, CREATE TRIGGER comes first and ENABLE ALWAYS next */
	if (is_ours && form.tgenabled != TRIGGER_FIRES_ALWAYS)
		ttl_docs_run("ALTER TABLE ONLY %s ENABLE ALWAYS TRIGGER %s",
					 ttl_docs_quoted_name(form.tgrelid), TTL_DOCS_TRIGGER);

	rel = try_table_open(form.tgrelid, AccessShareLock);
	if (rel != NULL)
	{
		ttl_docs_require_last_trigger(rel);
		table_close(rel, NoLock);
	}
}

/*
 * Reads a trigger's catalog row; false if it is not there.  Without a snapshot,
 * the catalog's usual one decides.
 */
bool
ttl_docs_fetch_trigger(Oid trigger, Snapshot snapshot, FormData_pg_trigger *form)
{
	Relation	triggers = table_open(TriggerRelationId, AccessShareLock);
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;
	bool		found;

	ScanKeyInit(&key, Anum_pg_trigger_oid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(trigger));
	scan = systable_beginscan(triggers, TriggerOidIndexId, true, snapshot, 1, &key);
	tuple = systable_getnext(scan);
	found = HeapTupleIsValid(tuple);
	if (found)
		memcpy(form, GETSTRUCT(tuple), sizeof(*form));
	systable_endscan(scan);
	table_close(triggers, AccessShareLock);
	return found;
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

static void
refuse(const char *action, const char *piece, Oid relid)
{
	ereport(ERROR,
			(errcode(ERRCODE_DEPENDENT_OBJECTS_STILL_EXIST),
			 errmsg("cannot %s \"%s\" of the collection \"%s\"",
					action, piece, get_rel_name(relid)),
			 errhint("ttl_docs.release() makes the collection a plain table again. A schema tool has to be told to leave it alone.")));
}
