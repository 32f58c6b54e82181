/*-------------------------------------------------------------------------
 *
 * ddl_partitions.c
 *		ATTACH and DETACH PARTITION of collections.
 *
 * - A new partition gets a copy of the label, and _ttl and _slot for the rows that
 *   it brings.  If some of them are expired under the settings of the collection,
 *   or if the purge of the partition was held, the purge of the collection is held.
 * - A detached partition stays a collection, by itself, with the settings and
 *   floors it had: its expired documents must not come back.
 * - Attached again, to a collection under which they are expired too, it becomes
 *   part of that collection.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
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
static void require_owner(const RangeVar *name, Oid relid, Oid old_relid,
						  void *arg);
static void require_dead_there_too(Oid child,
								   const CollectionSettings *settings,
								   Oid root, const CollectionSettings *into);
static void review_new_partition(Oid relid, const Collection *collection);
static void hold_for_attached(const Note *note);
static void take_holds_along(const Note *note, Oid root,
							 CollectionSettings *settings);
static void review_detached_partition(Oid relid);

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
	if (!ttl_docs_lookup_collection(parent, &into) ||
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
			!ttl_docs_lookup_collection(parent, into))
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

/* A table was made a child of another, or no longer is.  A new table has no rows. */
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
		if (!ttl_docs_lookup_collection(lfirst_oid(lc), &member))
			continue;
		ttl_docs_require_columns(lfirst_oid(lc), &member);
		if (!IsBinaryUpgrade)
			ttl_docs_recompute_rows(lfirst_oid(lc), &member);
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

	if (IsBinaryUpgrade || !ttl_docs_lookup_collection(note->relid, &collection))
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
	SettingsHold hold = ttl_docs_settings_hold(note->relid, &note->before);
	SettingsHold hold_of_root = ttl_docs_settings_hold(root, settings);

	settings->grace_until = Max(settings->grace_until, note->before.grace_until);
	settings->paused |= note->before.paused;
	if (hold == HOLD_RESTORED)
		settings->origin_relation = InvalidOid;
	if (hold != HOLD_NONE && hold_of_root == HOLD_NONE)
		ereport(NOTICE,
				(errmsg("the purge of \"%s\" is now held (%s), because the purge of \"%s\" was held",
						get_rel_name(root), ttl_docs_settings_hold_name(hold),
						get_rel_name(note->relid)),
				 errhint("To purge the expired documents of both: SELECT ttl_docs.resume_purge(%s).",
						 ttl_docs_quoted_literal(root))));
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
