/*-------------------------------------------------------------------------
 *
 * ddl_partitions.c
 *		ATTACH and DETACH PARTITION of collections.
 *
 * - A new partition gets a copy of the label of the collection.  We compute
 *   _ttl and _slot of the rows that it brings.  The purge of the collection
 *   is held if some of these rows were live until now and are expired under
 *   the settings of the collection, or if the purge of the partition was held
 *   before.
 * - A detached partition becomes a collection by itself, with the settings
 *   and floors that it had as a partition.  So its expired documents do not
 *   come back.
 * - A collection can be attached to another collection if all of its expired
 *   documents are expired under the settings of the other one too.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "collection/collection_internal.h"

static bool lock_to_attach(RangeVar *parent_name, RangeVar *child_name,
						   Collection *into, AttachedCollection *attached);
static void require_same_adoption(Oid child, const CollectionSettings *settings,
								  const CollectionSettings *into);
static void require_owner(const RangeVar *name, Oid relid, Oid old_relid,
						  void *arg);
static void require_still_expired(Oid child, const CollectionSettings *settings,
								  Oid root, const CollectionSettings *into);
static void review_new_partition(Oid relid, const Collection *collection);
static void hold_for_attached(const Note *note);
static void copy_holds(const Note *note, Oid root, CollectionSettings *settings);
static void review_detached_partition(Oid relid);

/*
 * Called before ATTACH PARTITION.  If a collection (child) is about to become
 * a partition of another collection, checks that its expired documents stay
 * expired there, and drops its trigger, because core will create the trigger
 * of the parent on the child.  The label of the child loses its effect when
 * core has added the link.
 *
 * Sets *attached to the two tables.  Core looks up their names again, and can
 * find other tables then.  ttl_docs_require_attached() checks that core has
 * attached the same tables.
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
	/* ATTACH PARTITION is always the only clause of its command */
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
	/* without the rights, take no lock: core will raise the error */
	if (!ttl_docs_lookup_collection(parent, &into) ||
		!compat_table_ownercheck(parent, GetUserId()) ||
		!compat_table_ownercheck(child, GetUserId()) ||
		!lock_to_attach(stmt->relation, child_name, &into, attached))
		return;
	ttl_docs_require_no_pending_detach(attached->child);
	if (!ttl_docs_has_own_label(attached->child))
	{
		/* a plain table: it does not matter which table core finds */
		memset(attached, 0, sizeof(*attached));
		return;
	}

	table_close(ttl_docs_open_collection(attached->child, NoLock, &collection), NoLock);
	require_same_adoption(attached->child, &collection.settings, &into.settings);
	require_still_expired(attached->child, &collection.settings,
						  into.root, &into.settings);
	ttl_docs_drop_trigger(attached->child);
}

/*
 * Raises an error if a collection (child) has rows that are not filled yet,
 * and the adoption of its new root would not fill them.  A partition that was
 * detached during the adoption of its root can come back.
 */
static void
require_same_adoption(Oid child, const CollectionSettings *settings,
					  const CollectionSettings *into)
{
	ttl_docs_refuse_concurrent_change(child);
	if (settings->adopting != into->adopting ||
		strcmp(NameStr(settings->last_modified), NameStr(into->last_modified)) != 0)
		ttl_docs_require_adopted(child, settings, "attach");
}

/*
 * Locks the root of the collection, and then the parent and the child as
 * ATTACH PARTITION does.  The lock on the root keeps others from changing the
 * settings, because they lock the root first.  Resolves the names again under
 * the locks.  Returns false if one of the tables is gone, or if the parent is
 * no longer part of a collection.
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
			!ttl_docs_lookup_collection(parent, into))
			return false;
	} while (into->root != root);
	attached->parent = parent;
	attached->child = child;
	return true;
}

/* A callback for RangeVarGetRelidExtended(), which then takes the lock. */
static void
require_owner(const RangeVar *name, Oid relid, Oid old_relid, void *arg)
{
	(void) old_relid;
	(void) arg;
	if (OidIsValid(relid) && !compat_table_ownercheck(relid, GetUserId()))
		aclcheck_error(ACLCHECK_NOT_OWNER,
					   get_relkind_objtype(get_rel_relkind(relid)), name->relname);
}

/*
 * Raises an error unless all expired documents of a collection (child) are
 * expired under the settings of another collection (root) too.
 */
static void
require_still_expired(Oid child, const CollectionSettings *settings,
					  Oid root, const CollectionSettings *into)
{
	TimestampTz clock = ttl_docs_clock();
	ExpiryBounds bounds = ttl_docs_bounds(settings, clock);
	ExpiryBounds into_bounds = ttl_docs_bounds(into, clock);

	if (strcmp(NameStr(settings->doc_column), NameStr(into->doc_column)) != 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot attach \"%s\" to the collection \"%s\" because their document columns differ",
						get_rel_name(child), get_rel_name(root)),
				 errdetail("The document column of \"%s\" is \"%s\", and the document column of \"%s\" is \"%s\".",
						   get_rel_name(child), NameStr(settings->doc_column),
						   get_rel_name(root), NameStr(into->doc_column)),
				 errhint("Call ttl_docs.release() for \"%s\", then call ttl_docs.adopt() for it with doc_column \"%s\".",
						 get_rel_name(child), NameStr(into->doc_column))));
	if (bounds.written > into_bounds.written || bounds.due > into_bounds.due)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot attach \"%s\" because its expired documents would be live in \"%s\"",
						get_rel_name(child), get_rel_name(root)),
				 errhint("Call ttl_docs.set_default_ttl() for \"%s\" with a DefaultTTL that is not longer than that of \"%s\". Or call ttl_docs.release() for \"%s\", which deletes its expired documents, and adopt it again with the settings of \"%s\".",
						 get_rel_name(root), get_rel_name(child),
						 get_rel_name(child), get_rel_name(root))));
}

/*
 * Called after ATTACH PARTITION.  Raises an error if core has attached other
 * tables than ttl_docs_prepare_attach() has checked.
 */
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

/*
 * A command added or removed the link between a child table and its parent.
 * may_have_rows is false for a child that the command created.
 */
void
ttl_docs_review_link(Note *note, bool may_have_rows)
{
	Collection	collection;
	bool		is_partition = get_rel_relispartition(note->relid);
	bool		child_is_collection = ttl_docs_lookup_collection(note->relid, &collection);

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
				 errhint("First make \"%s\" a collection with ttl_docs.adopt(), or make \"%s\" a plain table with ttl_docs.release().",
						 get_rel_name(note->other), get_rel_name(note->relid)) :
				 errhint("Use a partitioned table, or call ttl_docs.release() first.")));
}

/*
 * Checks a new partition and its own partitions, recomputes _ttl and _slot of
 * their rows, which our trigger has not seen, and writes the copies of the
 * label.  ATTACH PARTITION holds ACCESS EXCLUSIVE on all of these tables.  A
 * partition that CREATE TABLE has just created is empty.
 *
 * In a binary upgrade (pg_upgrade), no row is read.  The tables have no rows
 * yet, and the rows that pg_upgrade will add were correct on the old server.
 * Also, the owners of the tables could not run a query that uses our
 * functions, because pg_upgrade restores their rights at its end.
 *
 * The shell of a Citus table has no rows.  Citus attaches the shards, too, and
 * their nodes call this function for them.
 */
static void
review_new_partition(Oid relid, const Collection *collection)
{
	List	   *tables = find_all_inheritors(relid, AccessExclusiveLock, NULL);
	bool		is_shell = ttl_docs_is_shell(relid);
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
					 errdetail("The foreign server would return expired documents."),
					 errhint("Copy the rows of \"%s\" into a local table.",
							 RelationGetRelationName(rel))));
		ttl_docs_require_heap(rel);
		ttl_docs_refuse_system_column_in_key(rel);
		ttl_docs_require_last_trigger(rel);
		table_close(rel, NoLock);
		if (!ttl_docs_lookup_collection(lfirst_oid(lc), &member))
			continue;
		ttl_docs_require_columns(lfirst_oid(lc), &member);
		if (ttl_docs_is_shell(lfirst_oid(lc)) != ttl_docs_is_shell(collection->root))
			ttl_docs_report_mixed_partition(collection->root, lfirst_oid(lc));
		if (!IsBinaryUpgrade && !is_shell)
			ttl_docs_recompute_rows(lfirst_oid(lc), &member);
	}
	list_free(tables);
	/* Citus runs the command on all nodes and shards, and each writes its label */
	ttl_docs_set_label(relid, &collection->settings);
	CommandCounterIncrement();
	(void) ttl_docs_update_triggers_of_children(relid);
	ttl_docs_announce_change(collection->root);
	/* core does not copy a hidden trigger of the parent */
	if (collection->settings.citus)
		ttl_docs_create_trigger(relid, true);
	if ((collection->settings.on || collection->settings.target_on) &&
		!IsBinaryUpgrade && !is_shell)
		ttl_docs_refuse_invalid_ttl(relid, NameStr(collection->settings.doc_column),
									psprintf("%s OPERATOR(pg_catalog.=) %d",
											 TTL_DOCS_TTL_COLUMN, TTL_INVALID));
}

/*
 * Holds the purge of the collection if documents of a new partition were live
 * until now and are expired under the settings of the collection (grace.c),
 * or if the purge of the partition was held.
 *
 * A hold changes the label of the root, which ttl_docs_prepare_attach() has
 * locked.  A user who does not own the root can attach a table to a partition
 * of the root, but may not hold the purge.  So this function raises an error
 * if the attach needs a hold.  In a binary upgrade nothing changes: the labels
 * and the rows are those of the old server.
 */
static void
hold_for_attached(const Note *note)
{
	Collection	collection;
	CollectionSettings settings;

	if (IsBinaryUpgrade || !ttl_docs_lookup_collection(note->relid, &collection))
		return;
	settings = collection.settings;
	if (note->was_collection)
		copy_holds(note, collection.root, &settings);
	ttl_docs_hold_newly_expired(note->relid, collection.root,
								note->was_collection ? &note->before : NULL,
								&settings);
	if (settings.grace_until == collection.settings.grace_until &&
		settings.paused == collection.settings.paused &&
		settings.origin_relation == collection.settings.origin_relation)
		return;
	if (!compat_table_ownercheck(collection.root, GetUserId()))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("must be owner of \"%s\" to attach \"%s\" because attaching it holds the purge of \"%s\"",
						get_rel_name(collection.root), get_rel_name(note->relid),
						get_rel_name(collection.root)),
				 errhint("To allow the purge of the expired documents of \"%s\" at once, run SET ttl_docs.purge_grace = 0, and call ttl_docs.resume_purge() for \"%s\" if it is a collection.",
						 get_rel_name(note->relid), get_rel_name(note->relid))));
	ttl_docs_write_label(collection.root, &settings);
}

/*
 * Copies the holds of a collection that becomes a partition to the settings
 * of its new root.  Otherwise the purge of the root would delete expired
 * documents that the hold still protects.
 */
static void
copy_holds(const Note *note, Oid root, CollectionSettings *settings)
{
	SettingsHold hold = ttl_docs_settings_hold(note->relid, &note->before);
	SettingsHold hold_of_root = ttl_docs_settings_hold(root, settings);

	settings->grace_until = Max(settings->grace_until, note->before.grace_until);
	settings->paused |= note->before.paused;
	if (hold == HOLD_RESTORED)
		settings->origin_relation = InvalidOid;
	if (hold != HOLD_NONE && hold_of_root == HOLD_NONE)
		ereport(NOTICE,
				(errmsg("the purge of \"%s\" is now held (%s) because the purge of \"%s\" was held",
						get_rel_name(root), ttl_docs_settings_hold_name(hold),
						get_rel_name(note->relid)),
				 errhint("To purge the expired documents of both: SELECT ttl_docs.resume_purge(%s).",
						 ttl_docs_quoted_literal(root))));
}

/*
 * Creates our trigger on a detached partition.  Core dropped the trigger
 * together with the link to the parent.  The indexes stayed, and note_link()
 * wrote the label.
 *
 * The partition may have another owner than its former parent, so we act as
 * the owner of the partition.  Creating a trigger runs no code of users.
 */
static void
review_detached_partition(Oid relid)
{
	Relation	rel = try_table_open(relid, ShareRowExclusiveLock);
	Collection	collection;
	bool		is_citus;
	Oid			user;
	int			sec_context;

	if (rel == NULL)
		return;
	is_citus = ttl_docs_lookup_collection(relid, &collection) && collection.settings.citus;
	GetUserIdAndSecContext(&user, &sec_context);
	SetUserIdAndSecContext(rel->rd_rel->relowner,
						   sec_context | SECURITY_RESTRICTED_OPERATION);
	if (!ttl_docs_has_trigger(relid))
		ttl_docs_create_trigger(relid, is_citus);
	SetUserIdAndSecContext(user, sec_context);
	table_close(rel, NoLock);
}
