/*-------------------------------------------------------------------------
 *
 * label.c
 *		Stores the settings of a collection as a security label of its table.
 *
 * PostgreSQL takes care of security labels: every kind of dump includes the
 * label of a table, DROP TABLE drops it, ALTER TABLE RENAME keeps it, and
 * only the owner of the table can write it.  label_json.c defines the text of
 * the label.
 *
 * Each partition has a copy of the label of its root.  While the table is a
 * partition of a collection, the copy has no effect.  The copy takes effect
 * in two cases: if a partition is dumped and restored alone, or if a server
 * without the library detaches it.  Then the table is a collection by itself,
 * with the settings and floors of its root, and its purge is held as
 * "restored".  ttl_docs_set_label() keeps the copies equal to the label of
 * the root.  ddl_partitions.c writes the copy for a new partition.
 *
 * Restores write a label with SECURITY LABEL, which calls check_relabel().
 * This function accepts a label only for a table that has none, or has the
 * same label already.  Only the functions of the extension change an existing
 * label, because a change of settings needs other steps too.  check_relabel()
 * does not require the trigger and the purge index, because a restore creates
 * them later.
 *
 * Citus sends SECURITY LABEL commands for its tables to all nodes.  So we
 * write the label of a shell with this command (ttl_docs_write_label()).  When
 * it arrives at another node, check_relabel() accepts it, unless it would
 * bring expired documents back.  citus/follow.c then labels the shards of that
 * node.
 *
 * Writing a label sends a relation cache invalidation for the table and its
 * partitions.  The invalidation clears entries of cache.c and cached plans.
 * This session processes the invalidation at the next command, other sessions
 * and standbys when the transaction has committed.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/relation.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/indexing.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_seclabel.h"
#include "catalog/pg_type.h"
#include "commands/extension.h"
#include "commands/seclabel.h"
#include "common/jsonapi.h"
#include "mb/pg_wchar.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/guc.h"
#include "utils/json.h"
#include "utils/jsonb.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "collection/collection_internal.h"

/*
 * Our own labels are shorter, even if every byte of a name is escaped.  A row
 * of pg_seclabel with a label of this length is not toasted, so labels can be read
 * without a snapshot.
 */
#define LABEL_MAX_LENGTH 1536

/* Maximum number of bytes of an invalid label that an error shows */
#define LABEL_EXCERPT 64

/* Users may not know that they used ttl_docs as the label provider */
#define LABEL_DETAIL "SECURITY LABEL without FOR means the provider ttl_docs if no other label provider is loaded."
#define LABEL_HINT "To use another provider, load its library and write SECURITY LABEL FOR provider. To make a table a collection, call ttl_docs.adopt()."


/*
 * The table whose label the running SECURITY LABEL command writes, if Citus or
 * ttl_docs_write_label() sends the label
 */
static Oid	sent_label = InvalidOid;

/* The shell whose label ttl_docs_write_label() writes with a command */
static Oid	written_shell = InvalidOid;

static void announce_label_change(Oid relid);
static void write_shell_labels(Oid relid, const CollectionSettings *settings);
static void accept_sent_label(Oid relid, const CollectionSettings *before,
							  const CollectionSettings *settings);
static SysScanDesc scan_labels(Relation seclabels);
static void check_relabel(const ObjectAddress *object, const char *label);
static bool has_same_settings(const CollectionSettings *a,
							  const CollectionSettings *b);
static void require_json_object(const char *label);
static void check_labelled_table(Oid relid,
								 const CollectionSettings *settings);

void
ttl_docs_label_init(void)
{
	register_label_provider(TTL_DOCS_PROVIDER, check_relabel);
}

/* Sends invalidations after a label was written, and notifies the purge. */
static void
announce_label_change(Oid relid)
{
	ttl_docs_end_turns |= TURN_OF_COLLECTION;
	ttl_docs_invalidate_tree(relid);
	ttl_docs_announce_change(relid);
}

/* Reads the label of this table, not of its root; false if it has none. */
bool
ttl_docs_read_label(Oid relid, CollectionSettings *settings)
{
	TransactionId writer;

	return ttl_docs_read_label_at(relid, NULL, settings, &writer);
}

/*
 * Reads the label of this table as a snapshot sees it, and the transaction
 * that wrote it.  Reads the latest label if snapshot is NULL.  Labels are
 * rows of pg_seclabel, so an old snapshot finds the label of its time.
 */
bool
ttl_docs_read_label_at(Oid relid, Snapshot snapshot, CollectionSettings *settings,
					   TransactionId *writer)
{
	Relation	seclabels = table_open(SecLabelRelationId, AccessShareLock);
	ScanKeyData keys[4];
	SysScanDesc scan;
	HeapTuple	tuple;
	bool		found;

	ScanKeyInit(&keys[0], Anum_pg_seclabel_objoid, BTEqualStrategyNumber,
				F_OIDEQ, ObjectIdGetDatum(relid));
	ScanKeyInit(&keys[1], Anum_pg_seclabel_classoid, BTEqualStrategyNumber,
				F_OIDEQ, ObjectIdGetDatum(RelationRelationId));
	ScanKeyInit(&keys[2], Anum_pg_seclabel_objsubid, BTEqualStrategyNumber,
				F_INT4EQ, Int32GetDatum(0));
	ScanKeyInit(&keys[3], Anum_pg_seclabel_provider, BTEqualStrategyNumber,
				F_TEXTEQ, CStringGetTextDatum(TTL_DOCS_PROVIDER));
	scan = systable_beginscan(seclabels, SecLabelObjectIndexId, true, snapshot,
							  lengthof(keys), keys);
	tuple = systable_getnext(scan);
	found = HeapTupleIsValid(tuple);
	if (found)
	{
		bool		isnull;
		Datum		label = heap_getattr(tuple, Anum_pg_seclabel_label,
										 RelationGetDescr(seclabels), &isnull);

		ttl_docs_parse_label(TextDatumGetCString(label), settings);
		*writer = HeapTupleHeaderGetXmin(tuple->t_data);
	}
	systable_endscan(scan);
	table_close(seclabels, AccessShareLock);
	return found;
}

/*
 * Writes the label of a table and the copies of its partitions, or removes
 * them if settings is NULL.  The change is visible after the next command
 * counter increment.  The caller has checked rights, and holds a lock on the
 * table.
 *
 * A partition that is being detached concurrently belongs to the collection
 * until the command ends, so its copy changes too.  When labels are removed,
 * the copy of such a partition stays and makes it a collection by itself,
 * because release() has not deleted its expired documents.
 */
void
ttl_docs_set_label(Oid relid, const CollectionSettings *settings)
{
	bool		pushed = ttl_docs_push_snapshot();
	char	   *label = settings != NULL ? ttl_docs_print_label(settings) : NULL;
	/* the lock keeps a partition from being dropped at the same time */
	List	   *tables = settings != NULL ?
		ttl_docs_partition_tree(relid, ShareUpdateExclusiveLock) :
		find_all_inheritors(relid, ShareUpdateExclusiveLock, NULL);
	ListCell   *lc;

	foreach(lc, tables)
	{
		ObjectAddress address;

		ObjectAddressSet(address, RelationRelationId, lfirst_oid(lc));
		SetSecurityLabel(&address, TTL_DOCS_PROVIDER, label);
	}
	list_free(tables);
	announce_label_change(relid);
	if (pushed)
		PopActiveSnapshot();
}

/*
 * Like ttl_docs_set_label(), but makes the change visible at once.  For a
 * shell of Citus, changes the label on all nodes.  The sessions that Citus
 * opens on other nodes change their own node only.
 */
void
ttl_docs_write_label(Oid relid, const CollectionSettings *settings)
{
	if (ttl_docs_is_shell(relid) && !ttl_docs_in_citus_session())
		write_shell_labels(relid, settings);
	else
		ttl_docs_set_label(relid, settings);
	CommandCounterIncrement();
	(void) ttl_docs_update_triggers_of_children(relid);
}

/* Labels a shell and its partitions on all nodes. */
static void
write_shell_labels(Oid relid, const CollectionSettings *settings)
{
	const char *label = settings != NULL ?
		quote_literal_cstr(ttl_docs_print_label(settings)) : "NULL";
	List	   *tables = settings != NULL ?
		ttl_docs_partition_tree(relid, ShareUpdateExclusiveLock) :
		find_all_inheritors(relid, ShareUpdateExclusiveLock, NULL);
	ListCell   *lc;
	Oid			outer = written_shell;
	int			nest_level;

	ttl_docs_require_propagation(relid);
	nest_level = NewGUCNestLevel();
	/* despite its name, this setting is also about labels of tables */
	(void) set_config_option("citus.enable_alter_role_propagation", "on", PGC_USERSET,
							 PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
	PG_TRY();
	{
		foreach(lc, tables)
		{
			written_shell = lfirst_oid(lc);
			ttl_docs_run_ddl("SECURITY LABEL FOR %s ON TABLE %s IS %s",
							 TTL_DOCS_PROVIDER,
							 ttl_docs_quoted_name(written_shell), label);
		}
	}
	PG_FINALLY();
	{
		written_shell = outer;
	}
	PG_END_TRY();
	AtEOXact_GUC(true, nest_level);
	list_free(tables);
}

/*
 * Replaces the table whose label was sent, and returns the old value.  hooks.c
 * calls this before and after a SECURITY LABEL command: an event trigger can
 * run another one within it.
 */
Oid
ttl_docs_exchange_sent_label(Oid relid)
{
	Oid			before = sent_label;

	sent_label = relid;
	return before;
}

/*
 * Removes all labels of this database when the extension is dropped, because
 * its triggers and functions are dropped too.  Returns the number of
 * collections that there were.
 */
int
ttl_docs_remove_all_labels(void)
{
	int			count = list_length(ttl_docs_all_collections());
	Relation	seclabels = table_open(SecLabelRelationId, RowExclusiveLock);
	SysScanDesc scan = scan_labels(seclabels);
	HeapTuple	tuple;

	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		ttl_docs_invalidate_tree(((FormData_pg_seclabel *) GETSTRUCT(tuple))->objoid);
		CatalogTupleDelete(seclabels, &tuple->t_self);
	}
	systable_endscan(scan);
	table_close(seclabels, RowExclusiveLock);
	CommandCounterIncrement();
	return count;
}

/* Returns the OIDs of all collections, without their partitions. */
List *
ttl_docs_all_collections(void)
{
	Relation	seclabels = table_open(SecLabelRelationId, AccessShareLock);
	SysScanDesc scan = scan_labels(seclabels);
	HeapTuple	tuple;
	List	   *labelled = NIL;
	List	   *found = NIL;
	ListCell   *lc;

	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
		labelled = lappend_oid(labelled, ((FormData_pg_seclabel *) GETSTRUCT(tuple))->objoid);
	systable_endscan(scan);
	table_close(seclabels, AccessShareLock);

	/* most tables are not partitions, and that test is cheap */
	foreach(lc, labelled)
		if (!get_rel_relispartition(lfirst_oid(lc)) ||
			ttl_docs_has_own_label(lfirst_oid(lc)))
			found = lappend_oid(found, lfirst_oid(lc));
	list_free(labelled);
	return found;
}

/* Begins a scan of all ttl_docs labels. */
static SysScanDesc
scan_labels(Relation seclabels)
{
	ScanKeyData key;

	ScanKeyInit(&key, Anum_pg_seclabel_provider, BTEqualStrategyNumber,
				F_TEXTEQ, CStringGetTextDatum(TTL_DOCS_PROVIDER));
	return systable_beginscan(seclabels, InvalidOid, false, NULL, 1, &key);
}

/*
 * Core calls this function for SECURITY LABEL, after it has checked that the
 * user owns the table.
 */
static void
check_relabel(const ObjectAddress *object, const char *label)
{
	CollectionSettings settings;
	CollectionSettings before;
	Collection	collection;
	bool		is_sent;

	if (object->classId != RelationRelationId || object->objectSubId != 0)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("only tables can be collections of ttl_docs"),
				 errdetail(LABEL_DETAIL),
				 errhint(LABEL_HINT)));
	if (!OidIsValid(get_extension_oid(TTL_DOCS_EXTENSION, true)))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("extension \"%s\" is not installed in this database",
						TTL_DOCS_EXTENSION),
				 errdetail(LABEL_DETAIL),
				 errhint("For a collection, run CREATE EXTENSION %s first. For a label of another provider, load its library and use SECURITY LABEL FOR.",
						 TTL_DOCS_EXTENSION)));

	if (label != NULL)
		require_json_object(label);
	/* views of all users and all purge workers read every label */
	if (label != NULL && strlen(label) > LABEL_MAX_LENGTH)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("the security label of a collection cannot be longer than %d bytes",
						LABEL_MAX_LENGTH)));
	if (label != NULL)
		ttl_docs_parse_label(label, &settings);
	/*
	 * A user who poses as Citus gains nothing for other tables.  Only shells
	 * lose their label this way: their expired documents are in shards, which
	 * still have labels then.
	 */
	is_sent = written_shell == object->objectId ||
		(ttl_docs_label_comes_from_citus() &&
		 (label == NULL ? ttl_docs_is_shell(object->objectId) : settings.citus));
	if (ttl_docs_lookup_collection(object->objectId, &collection) &&
		collection.root != object->objectId)
	{
		/* a restore can write the copy after it has attached the partition */
		if (label != NULL && has_same_settings(&settings, &collection.settings))
		{
			if (is_sent)
				accept_sent_label(object->objectId, &collection.settings, &settings);
			return;
		}
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("table \"%s\" is a partition of the collection \"%s\"",
						get_rel_name(object->objectId),
						get_rel_name(collection.root)),
				 errhint("To change the settings of \"%s\", call ttl_docs.set_default_ttl() or ttl_docs.set_indexing().",
						 get_rel_name(collection.root))));
	}
	if (ttl_docs_read_label(object->objectId, &before))
	{
		if (is_sent && (before.citus || written_shell == object->objectId ||
						ttl_docs_conversions > 0))
		{
			accept_sent_label(object->objectId, &before, label != NULL ? &settings : NULL);
			return;
		}
		/* a restore may write the same label again */
		if (label != NULL && strcmp(ttl_docs_print_label(&settings), ttl_docs_print_label(&before)) == 0)
			return;
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot change the label of collection \"%s\"",
						get_rel_name(object->objectId)),
				 errhint("To change its settings, call ttl_docs.set_default_ttl(), ttl_docs.set_indexing() or ttl_docs.release().")));
	}
	if (label == NULL)
		return;

	check_labelled_table(object->objectId, &settings);
	if (is_sent)
		accept_sent_label(object->objectId, NULL, &settings);
	else
	{
		ttl_docs_note_restored(object->objectId);
		announce_label_change(object->objectId);
	}
}

/*
 * Accepts a label of a shell or shard, from this node or another one.
 * "before" has the current settings, "settings" the new ones; either is NULL
 * if the table is not a collection.
 */
static void
accept_sent_label(Oid relid, const CollectionSettings *before,
				  const CollectionSettings *settings)
{
	if (before != NULL && settings != NULL && written_shell != relid)
	{
		if (!get_rel_relispartition(relid))
			check_labelled_table(relid, settings);
		ttl_docs_require_still_dead(relid, before, settings, ttl_docs_locked_since(relid));
	}
	sent_label = relid;
	announce_label_change(relid);
}

/*
 * Raises an error if expired documents would be live under new settings that
 * another node has sent.  The owner of a table can pose as that node.
 * Documents that expired after "since" do not count: this transaction has
 * locked all readers out since then, so nobody has seen them expire.
 */
void
ttl_docs_require_still_dead(Oid relid, const CollectionSettings *before,
							const CollectionSettings *settings, TimestampTz since)
{
	ExpiryBounds old_bounds = ttl_docs_bounds(before, since);
	ExpiryBounds new_bounds = ttl_docs_bounds(settings, since);

	if (new_bounds.written < old_bounds.written || new_bounds.due < old_bounds.due)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot change the label of collection \"%s\" because expired documents would be live again",
						get_rel_name(relid)),
				 errhint("To change its settings, call ttl_docs.set_default_ttl().")));
}

/* Are two labels equal, apart from their OIDs and passing flags? */
static bool
has_same_settings(const CollectionSettings *a, const CollectionSettings *b)
{
	CollectionSettings moved = *a;

	moved.changing = b->changing;
	moved.filling = b->filling;
	moved.resuming = b->resuming;
	moved.origin_database = b->origin_database;
	moved.origin_relation = b->origin_relation;
	return strcmp(ttl_docs_print_label(&moved), ttl_docs_print_label(b)) == 0;
}

/*
 * Raises an error unless the label is a JSON object.  Other labels were
 * probably meant for another provider.
 */
static void
require_json_object(const char *label)
{
	int			length = strlen(label);
	int			shown = pg_mbcliplen(label, length, LABEL_EXCERPT);

	/*
	 * The caller refuses a label that is too long.  Do not parse it: it could
	 * be deeply nested.
	 */
	if (label[strspn(label, " \t\r\n")] == '{' &&
		(length > LABEL_MAX_LENGTH || compat_is_json(label)))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("invalid label for a collection of ttl_docs: \"%s%s\"",
					pnstrdup(label, shown), shown < length ? "..." : ""),
			 errdetail(LABEL_DETAIL),
			 errhint(LABEL_HINT)));
}

/* Raises an error unless the table can have these settings. */
static void
check_labelled_table(Oid relid, const CollectionSettings *settings)
{
	/* core has locked the table */
	Relation	rel = relation_open(relid, NoLock);
	AttrNumber	ts;
	AttrNumber	doc;

	ttl_docs_require_adoptable(rel);
	ts = ttl_docs_find_system_column(rel, TTL_DOCS_TS_COLUMN, TIMESTAMPTZOID);
	if (!ts || !TupleDescAttr(RelationGetDescr(rel), ts - 1)->attnotnull ||
		!ttl_docs_find_system_column(rel, TTL_DOCS_TTL_COLUMN, INT4OID) ||
		!ttl_docs_find_system_column(rel, TTL_DOCS_SLOT_COLUMN, INT8OID))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_COLUMN),
				 errmsg("table \"%s\" lacks the system columns of a collection",
						RelationGetRelationName(rel)),
				 errhint("Make it a collection with ttl_docs.adopt().")));
	doc = get_attnum(relid, NameStr(settings->doc_column));
	if (doc <= 0 || get_atttype(relid, doc) != JSONBOID)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_COLUMN),
				 errmsg("table \"%s\" has no jsonb column \"%s\"",
						RelationGetRelationName(rel),
						NameStr(settings->doc_column)),
				 errhint("Make it a collection with ttl_docs.adopt().")));
	relation_close(rel, NoLock);
}
