/*-------------------------------------------------------------------------
 *
 * label.c
 *		The settings of a collection, kept as a security label of its table.
 *
 * A label is what PostgreSQL keeps for us: every kind of dump has it with its
 * table, it goes with the table, it follows a rename, and only the table's owner
 * can write it.  label_json.c has its format.
 *
 * Each partition has a copy of the label of its root.  Nothing reads the copy
 * while the table is a partition of a collection.  A partition that is dumped and
 * restored alone brings its copy along.  It is then a collection by itself, with
 * the settings and floors of its root, and its purge is held as restored.  The
 * same happens if a server without the library detaches it.  ttl_docs_set_label()
 * keeps the copies equal to the root's label; ddl_partitions.c gives one to a new
 * partition.
 *
 * Restores write a label with SECURITY LABEL, which calls ttl_docs_check_relabel().
 * It accepts a label for a table that has none.  A collection is changed by the
 * functions of the extension only, which know what else has to happen.  Trigger
 * and index are not required: a restore creates them later.
 *
 * Writing a label sends a relcache invalidation for the table and its partitions.
 * That clears the caches of cache.c and invalidates cached plans, in every session
 * and on standbys, when the transaction commits; in this session at the next
 * command.
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
#include "utils/json.h"
#include "utils/jsonb.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "collection/collection_internal.h"

/* no label that we write is longer, even if every byte of a name is escaped */
#define LABEL_MAX_LENGTH 1024

/* an error shows so much of a label that is not ours */
#define LABEL_EXCERPT 64

/* somebody may not know that they have written a label of ours */
#define LABEL_DETAIL "SECURITY LABEL without FOR means the provider ttl_docs if no other label provider is loaded."
#define LABEL_HINT "To use another provider, load its library and write SECURITY LABEL FOR provider. To make a table a collection, call ttl_docs.adopt()."

/* Has this transaction written a label? */
static bool has_changed_label = false;

static void label_has_changed(Oid relid);
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

/*
 * Has this transaction changed the settings of any collection?  If so, queries
 * cannot go by settings that they have read before.
 */
bool
ttl_docs_changed_collections(void)
{
	return has_changed_label;
}

/* The transaction has ended. */
void
ttl_docs_forget_changes(void)
{
	has_changed_label = false;
}

/* Notes that the label of a table was written, and tells everybody. */
static void
label_has_changed(Oid relid)
{
	has_changed_label = true;
	ttl_docs_invalidate_tree(relid);
	ttl_docs_note_change(relid);
}

/* Reads the label of that very table; false if it has none. */
bool
ttl_docs_read_label(Oid relid, CollectionSettings *settings)
{
	TransactionId writer;

	return ttl_docs_read_label_at(relid, NULL, settings, &writer);
}

/*
 * The same as a snapshot sees it (NULL: as it is now), and who wrote it.  Labels
 * are rows like any others, so an old snapshot finds the label of its time.
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
 * Writes the label of that table and the copies of its partitions, or removes
 * them (NULL), with effect from the next command on.  The caller has checked
 * rights, and holds a lock on the table.
 *
 * A partition that is being detached concurrently belongs to the collection until
 * it is gone, so its copy changes, too.  release() leaves it out, with its expired
 * documents, so its copy stays and makes it a collection by itself.
 */
void
ttl_docs_set_label(Oid relid, const CollectionSettings *settings)
{
	bool		pushed = ttl_docs_push_snapshot();
	char	   *label = settings != NULL ? ttl_docs_print_label(settings) : NULL;
	/* the lock keeps a partition from being dropped under its new label */
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
	label_has_changed(relid);
	if (pushed)
		PopActiveSnapshot();
}

/* Writes the label as ttl_docs_set_label() does, with effect at once. */
void
ttl_docs_write_label(Oid relid, const CollectionSettings *settings)
{
	ttl_docs_set_label(relid, settings);
	CommandCounterIncrement();
}

/*
 * Removes every label of this database, when the extension goes: a label
 * without its trigger and its functions would be half a collection.  Returns
 * how many collections there were.
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

/* The collections of this database, without their partitions, as a list of OIDs. */
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

	/* most are no partitions, which is a cheap answer */
	foreach(lc, labelled)
		if (!get_rel_relispartition(lfirst_oid(lc)) ||
			ttl_docs_has_own_label(lfirst_oid(lc)))
			found = lappend_oid(found, lfirst_oid(lc));
	list_free(labelled);
	return found;
}

/* Starts to read all labels of ours. */
static SysScanDesc
scan_labels(Relation seclabels)
{
	ScanKeyData key;

	ScanKeyInit(&key, Anum_pg_seclabel_provider, BTEqualStrategyNumber,
				F_TEXTEQ, CStringGetTextDatum(TTL_DOCS_PROVIDER));
	return systable_beginscan(seclabels, InvalidOid, false, NULL, 1, &key);
}

/*
 * Core calls this when somebody runs SECURITY LABEL, after it has checked that
 * they own the table.
 */
static void
check_relabel(const ObjectAddress *object, const char *label)
{
	CollectionSettings settings;
	CollectionSettings before;
	Collection	collection;

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
	/* everybody's views and every worker read it */
	if (label != NULL && strlen(label) > LABEL_MAX_LENGTH)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("the security label of a collection cannot be longer than %d bytes",
						LABEL_MAX_LENGTH)));
	if (label != NULL)
		ttl_docs_parse_label(label, &settings);
	if (ttl_docs_lookup_collection(object->objectId, &collection) &&
		collection.root != object->objectId)
	{
		/* a restore can bring the copy after it has attached the partition */
		if (label != NULL && has_same_settings(&settings, &collection.settings))
			return;
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("table \"%s\" is a partition of the collection \"%s\"",
						get_rel_name(object->objectId),
						get_rel_name(collection.root)),
				 errhint("It has the settings of that collection.")));
	}
	if (ttl_docs_read_label(object->objectId, &before))
	{
		/* restoring the same over itself is harmless */
		if (label != NULL && strcmp(ttl_docs_print_label(&settings), ttl_docs_print_label(&before)) == 0)
			return;
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("table \"%s\" is a collection already",
						get_rel_name(object->objectId)),
				 errhint("Its label is written by ttl_docs.set_default_ttl(), set_indexing() and release().")));
	}
	if (label == NULL)
		return;

	check_labelled_table(object->objectId, &settings);
	ttl_docs_note_restored(object->objectId);
	label_has_changed(object->objectId);
}

/* Are two labels the same, but for the place where they were written? */
static bool
has_same_settings(const CollectionSettings *a, const CollectionSettings *b)
{
	CollectionSettings moved = *a;

	moved.origin_database = b->origin_database;
	moved.origin_relation = b->origin_relation;
	return strcmp(ttl_docs_print_label(&moved), ttl_docs_print_label(b)) == 0;
}

/* A label that is not even a JSON object was meant for another provider. */
static void
require_json_object(const char *label)
{
	int			length = strlen(label);
	int			shown = pg_mbcliplen(label, length, LABEL_EXCERPT);

	/* one that is too long is refused anyway: it may be deep, so do not parse it */
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

/* Can that table be what its new label says? */
static void
check_labelled_table(Oid relid, const CollectionSettings *settings)
{
	/* core has it locked */
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
