/*-------------------------------------------------------------------------
 *
 * follow.c
 *		Follows a label that was written to a Citus table: labels the shards
 *		of this node, and creates or drops triggers.
 *
 * The label of the shell is the vehicle of all settings.  Citus brings it to
 * every place where it is needed:
 *
 *	- SECURITY LABEL on a shell goes to the shells on all other nodes, in the
 *	  distributed transaction.
 *	- A new shard gets the label of its shell before it is filled: when a table
 *	  is distributed, and when a shard is moved or split.
 *	- A new node gets the shells with their labels.
 *
 * Each of these is a SECURITY LABEL command on some node.  When the command
 * has run, hooks.c calls ttl_docs_follow_label() there:
 *
 *	- A label on a shell: lock the shards of this node in the order of their
 *	  numbers, and write the same label to them.
 *	- A label with "resuming": also do what resume_purge() does besides writing
 *	  the label.  The written labels do not keep "resuming".
 *	- A label on any Citus table: create the hidden trigger if it is missing.
 *	- No label: delete the expired documents of the shards, as release() does,
 *	  and drop labels and triggers.
 *
 * So all nodes change in one transaction, or none.
 *
 * Locks.  The function that changes a label has locked the shell on all nodes
 * (nodes.c).  Here, the shards get the same lock: the purge and queries that
 * name a shard do not lock the shell.  Before floors are raised, nobody may
 * read the table on any node.  So the function first sends the current label
 * with "changing" set.  Each node locks its shards, and notes the time
 * (session.c).  Then the function asks all nodes for their clocks, and sends
 * the new label with the floors.
 *
 * The owner of a table can pose as Citus (session.c).  So a label that arrives
 * is checked (collection/label.c), and its effects are limited to what the
 * owner may do anyway.
 *
 * The OIDs in a label are those of the table that it was written for.  Other
 * nodes have other OIDs, so we replace them.  Zero means that a restore has
 * brought the label, and stays (see collection/settings_hold.c).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_inherits.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "storage/lock.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"

#include "citus/actions.h"
#include "citus/citus_internal.h"
#include "purge/purge.h"

static bool is_locked_shell(Oid relid);
static void follow_on_shard(Oid shell, Oid shard, const CollectionSettings *settings);
static void label_table(Oid relid, CollectionSettings settings);
static LOCKMODE lock_for_change(const CollectionSettings *before,
								const CollectionSettings *after);
static bool lock_shard(Oid shell, Oid shard, LOCKMODE lockmode);
static bool is_locked_by_same_transaction(Oid shard, LOCKMODE lockmode);
static bool conflicts(const char *held, LOCKMODE wanted);
static void recompute_tables(Oid relid);
static void follow_removal(Oid shell);
static void release_shard(Oid shell, Oid shard);

/* Called after a SECURITY LABEL command on a shell or shard. */
void
ttl_docs_follow_label(Oid relid)
{
	CollectionSettings settings;
	List	   *shards;
	ListCell   *lc;
	bool		resumes;

	/* core has written the label, but it is not visible yet */
	CommandCounterIncrement();
	if (!ttl_docs_read_label(relid, &settings))
	{
		follow_removal(relid);
		return;
	}
	settings.citus = true;
	resumes = settings.resuming;
	settings.resuming = false;
	label_table(relid, settings);
	shards = ttl_docs_is_shell(relid) ? ttl_docs_local_shards(relid) : NIL;
	foreach(lc, shards)
	{
		follow_on_shard(relid, lfirst_oid(lc), &settings);
		if (resumes)
			ttl_docs_reset_purge(lfirst_oid(lc));
	}
	list_free(shards);
	if (settings.changing && is_locked_shell(relid))
		ttl_docs_note_locked(relid);
}

/*
 * Has this transaction locked all readers of a shell out?  Only then has nobody
 * seen a document expire since.  A user who poses as Citus may not have.
 */
static bool
is_locked_shell(Oid relid)
{
	Relation	rel;
	bool		is_locked;

	if (!ttl_docs_is_shell(relid) || get_rel_relispartition(relid))
		return false;
	rel = table_open(relid, NoLock);
	is_locked = CheckRelationLockedByMe(rel, AccessExclusiveLock, false);
	table_close(rel, NoLock);
	return is_locked;
}

/* Writes the label of the shell to a shard. */
static void
follow_on_shard(Oid shell, Oid shard, const CollectionSettings *settings)
{
	Collection	collection;
	bool		was_collection;
	LOCKMODE	lockmode = AccessExclusiveLock;

	was_collection = ttl_docs_lookup_collection(shard, &collection);
	/* the label of a partition is a copy, which its root's shard writes */
	if (was_collection && collection.root != shard)
		return;
	if (was_collection)
		lockmode = lock_for_change(&collection.settings, settings);
	if (!lock_shard(shell, shard, lockmode))
		return;
	/* the shard may have other settings than the shell, by a user who poses as Citus */
	if (was_collection)
		ttl_docs_require_still_dead(shard, &collection.settings, settings,
									ttl_docs_locked_since(shell));
	label_table(shard, *settings);
	if (!was_collection)
		recompute_tables(shard);
}

/* Writes a label to a table of this node, and creates its trigger. */
static void
label_table(Oid relid, CollectionSettings settings)
{
	if (OidIsValid(settings.origin_relation))
	{
		settings.origin_database = MyDatabaseId;
		settings.origin_relation = relid;
	}
	ttl_docs_set_label(relid, &settings);
	CommandCounterIncrement();
	if (!ttl_docs_has_trigger(relid))
		ttl_docs_create_trigger(relid, true);
}

/*
 * The lock that a change of settings needs; the same as in settings.c.  While
 * Citus copies the rows of a table to another one ("filling"), nobody may
 * write.  Citus itself locks only the shell on the node of its function.  A
 * purge would delete documents in the old shards that have been copied, and
 * their triggers would fire again in the new shards.  Writes of sessions on
 * other nodes would be lost.
 *
 * For a change of indexing, the shell is locked with ACCESS EXCLUSIVE, and Citus
 * locks the shards when it drops their indexes.
 */
static LOCKMODE
lock_for_change(const CollectionSettings *before, const CollectionSettings *after)
{
	if (after->changing)
		return AccessExclusiveLock;
	if (after->filling)
		return ShareRowExclusiveLock;
	if (before->on != after->on || before->default_ttl != after->default_ttl ||
		before->indexing != after->indexing)
		return ShareRowExclusiveLock;
	return ShareUpdateExclusiveLock;
}

/*
 * Locks a shard and its partitions; returns false if the shard is gone.
 *
 * For a statement on several shards, Citus may have opened several sessions on
 * this node.  They stay open until the transaction ends, with their locks.  If
 * another one has locked the shard, we would wait for ourselves, until Citus
 * cancels the transaction because of a distributed deadlock.
 */
static bool
lock_shard(Oid shell, Oid shard, LOCKMODE lockmode)
{
	if (!ConditionalLockRelationOid(shard, lockmode))
	{
		if (is_locked_by_same_transaction(shard, lockmode))
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_IN_USE),
					 errmsg("cannot change collection \"%s\" because this transaction has used it in several sessions",
							get_rel_name(shell)),
					 errdetail("Another session that Citus has opened for this transaction has locked shard \"%s\".",
							   get_rel_name(shard)),
					 errhint("Change the collection first, or begin the transaction with"
							 " SET LOCAL citus.multi_shard_modify_mode = 'sequential'.")));
		LockRelationOid(shard, lockmode);
	}
	if (!SearchSysCacheExists1(RELOID, ObjectIdGetDatum(shard)))
		return false;
	ttl_docs_lock_tree(shard, lockmode);
	return true;
}

/*
 * Has another session of this distributed transaction a lock on the shard that
 * conflicts with ours?
 */
static bool
is_locked_by_same_transaction(Oid shard, LOCKMODE lockmode)
{
	bool		found = false;

	SPI_connect();
	if (SPI_execute(psprintf("SELECT l.mode FROM pg_catalog.get_current_transaction_id() AS mine,"
							 " pg_catalog.get_all_active_transactions() AS t, pg_catalog.pg_locks AS l"
							 " WHERE mine.transaction_number OPERATOR(pg_catalog.<>) 0"
							 " AND t.transaction_number OPERATOR(pg_catalog.=) mine.transaction_number"
							 " AND t.transaction_stamp OPERATOR(pg_catalog.=) mine.transaction_stamp"
							 " AND t.process_id OPERATOR(pg_catalog.<>) mine.process_id"
							 " AND l.pid OPERATOR(pg_catalog.=) t.process_id AND l.granted"
							 " AND l.locktype OPERATOR(pg_catalog.=) 'relation'"
							 " AND l.database OPERATOR(pg_catalog.=) %u"
							 " AND l.relation OPERATOR(pg_catalog.=) %u",
							 MyDatabaseId, shard),
					false, 0) != SPI_OK_SELECT)
		elog(ERROR, "could not read the locks of \"%s\"", get_rel_name(shard));
	for (uint64 i = 0; i < SPI_processed && !found; i++)
		found = conflicts(SPI_getvalue(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, 1), lockmode);
	SPI_finish();
	return found;
}

static bool
conflicts(const char *held, LOCKMODE wanted)
{
	for (LOCKMODE mode = AccessShareLock; mode <= AccessExclusiveLock; mode++)
		if (strcmp(GetLockmodeName(DEFAULT_LOCKMETHOD, mode), held) == 0)
			return DoLockModesConflict(mode, wanted);
	return false;
}

/*
 * Recomputes _ttl and _slot in a shard that existed before its table became a
 * collection.  Most of these rows are right already: adopt() has computed them
 * with ALTER TABLE, unless the table had such columns before.
 */
static void
recompute_tables(Oid relid)
{
	List	   *tables = find_all_inheritors(relid, NoLock, NULL);
	ListCell   *lc;

	foreach(lc, tables)
	{
		Collection	collection;

		if (ttl_docs_lookup_collection(lfirst_oid(lc), &collection))
			ttl_docs_recompute_rows(lfirst_oid(lc), &collection);
	}
	list_free(tables);
}

/* The label of a shell was removed: its shards become plain tables. */
static void
follow_removal(Oid shell)
{
	List	   *shards = ttl_docs_local_shards(shell);
	ListCell   *lc;

	foreach(lc, shards)
		release_shard(shell, lfirst_oid(lc));
	list_free(shards);
	ttl_docs_drop_trigger(shell);
}

static void
release_shard(Oid shell, Oid shard)
{
	if (!lock_shard(shell, shard, AccessExclusiveLock) || !ttl_docs_has_own_label(shard))
		return;
	ttl_docs_delete_all_expired(shard);
	ttl_docs_set_label(shard, NULL);
	CommandCounterIncrement();
	ttl_docs_drop_trigger(shard);
}
