/*-------------------------------------------------------------------------
 *
 * collection_label.c
 *		The settings of a collection, kept as a security label of its table.
 *
 * A label is what PostgreSQL keeps for us: it is dumped with its table in
 * every kind of dump, goes with it, follows a rename, and asks for the table's
 * owner.  Ours is a JSON object, so that people and SQL can read it:
 *
 *	{"version": 1, "document": "doc", "default_ttl": 60,
 *	 "indexing": "consistent", "written_floor": null, "due_floor": null,
 *	 "paused": false, "database": 5, "table": 16390}
 *
 * database and table are the OIDs under which it was written.  Where they
 * differ from those of the table that carries the label, it came by a restore.
 *
 * Two keys are present only if they are set: "grace_until", a time
 * (collection_grace.c), and "purge_subscribed": true (purge_hold.c).
 *
 * Each partition has a copy of the label of its root.  Nothing reads the copy
 * while the table is a partition of a collection.  A partition that is dumped and
 * restored alone brings its copy along, and so it is a collection by itself, with
 * the settings and floors of its root, and held as restored.  The same happens if
 * a server without the library detaches it.  ttl_docs_set_label() keeps the
 * copies equal to the root's label; collection_review.c gives one to a new
 * partition.
 *
 * SECURITY LABEL, which is how a restore writes one, comes through
 * check_relabel.  It takes a label for a table that has none; a collection is
 * changed by the functions of the extension, which know what else has to
 * happen.  The trigger and the index are not asked for: a restore makes them
 * later.
 *
 * Writing a label sends a relcache invalidation for the table and its
 * partitions.  That clears the caches of collection_cache.c and invalidates
 * cached plans, in every session and on standbys, when the transaction
 * commits; in this session at the next command.
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
#include "catalog/partition.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_seclabel.h"
#include "catalog/pg_type.h"
#include "commands/extension.h"
#include "commands/seclabel.h"
#include "common/jsonapi.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/datetime.h"
#include "utils/fmgroids.h"
#include "utils/inval.h"
#include "utils/json.h"
#include "utils/jsonb.h"
#include "utils/lsyscache.h"
#include "utils/numeric.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "collection_guard.h"
#include "ttl_docs.h"

#define LABEL_VERSION 1
/* no label that we write is longer, even if every byte of a name is escaped */
#define LABEL_MAX_LENGTH 1024
/* an error shows so much of a label that is not ours */
#define LABEL_EXCERPT 64
/* somebody may not know that they have written a label of ours */
#define LABEL_DETAIL "SECURITY LABEL without FOR means the provider ttl_docs if no other label provider is loaded."
#define LABEL_HINT "To use another provider, load its library and write SECURITY LABEL FOR provider. To make a table a collection, call ttl_docs.adopt()."

static SysScanDesc scan_labels(Relation seclabels);
static void check_relabel(const ObjectAddress *object, const char *label);
static void require_json_object(const char *label);
static bool has_same_settings(const CollectionSettings *a,
							  const CollectionSettings *b);
static void check_labelled_table(Oid relid, const CollectionSettings *settings);
static char *print_label(const CollectionSettings *settings);
static void print_time(StringInfo buf, const char *key, TimestampTz time);
static char *iso_time(TimestampTz time);
static void parse_label(const char *label, CollectionSettings *settings);
static bool has_key(Jsonb *label, const char *key);
static JsonbValue *label_value(Jsonb *label, const char *key,
							   enum jbvType type, JsonbValue *value);
static int64 label_integer(Jsonb *label, const char *key, int64 min, int64 max);
static TimestampTz label_time(Jsonb *label, const char *key);
pg_noreturn static void report_bad_label(const char *key);

static const char *const indexing_names[] = {
	[INDEXING_CONSISTENT] = "consistent",
	[INDEXING_LAZY] = "lazy",
	[INDEXING_NONE] = "none",
};

void
ttl_docs_label_init(void)
{
	register_label_provider(TTL_DOCS_PROVIDER, check_relabel);
}

const char *
ttl_docs_indexing_name(IndexingMode indexing)
{
	return indexing_names[indexing];
}

/* The mode of that name, or an error. */
IndexingMode
ttl_docs_parse_indexing(const char *name)
{
	for (size_t i = 0; i < lengthof(indexing_names); i++)
		if (strcmp(name, indexing_names[i]) == 0)
			return (IndexingMode) i;
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("invalid indexing mode: \"%s\"", name),
			 errhint("Available modes: consistent, lazy, none.")));
}

/* Raises an error unless that is a DefaultTTL (which may also be NULL). */
void
ttl_docs_check_default_ttl(int32 default_ttl)
{
	if (default_ttl == TTL_NEVER || default_ttl > 0)
		return;
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("invalid DefaultTTL: %d", default_ttl),
			 errhint("A DefaultTTL is a number of seconds from 1 to %d, -1 (on, without a default) or NULL (off).",
					 TTL_MAX)));
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

		parse_label(TextDatumGetCString(label), settings);
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
	char	   *label = settings != NULL ? print_label(settings) : NULL;
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
	ttl_docs_invalidate_tree(relid);
	ttl_docs_note_change(relid);
	if (pushed)
		PopActiveSnapshot();
}

/*
 * Catalogs with a TOAST table want a snapshot to be written to.  Commands that
 * commit in between, such as DETACH CONCURRENTLY, have none at their end.
 * Returns true if the caller has to pop it.
 */
bool
ttl_docs_push_snapshot(void)
{
	if (ActiveSnapshotSet())
		return false;
	PushActiveSnapshot(GetTransactionSnapshot());
	return true;
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
 * A table and its partitions of all levels, also those that are being detached
 * concurrently, which core leaves out.  The partitions get locked.
 */
List *
ttl_docs_partition_tree(Oid relid, LOCKMODE lockmode)
{
	List	   *tables = list_make1_oid(relid);

	for (int i = 0; i < list_length(tables); i++)
		tables = list_concat(tables,
							 find_inheritance_children_extended(list_nth_oid(tables, i),
																false, lockmode,
																NULL, NULL));
	return tables;
}

/*
 * Raises an error if a partition is being detached concurrently.  Core leaves such a
 * partition out of what it does to the tree, so we could not change all of it.
 */
void
ttl_docs_require_no_pending_detach(Oid relid)
{
	List	   *tables = ttl_docs_partition_tree(relid, NoLock);
	List	   *attached = find_all_inheritors(relid, NoLock, NULL);
	ListCell   *lc;

	foreach(lc, tables)
	{
		Oid			parent;

		if (list_member_oid(attached, lfirst_oid(lc)))
			continue;
		parent = get_partition_parent(lfirst_oid(lc), true);
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("partition \"%s\" of \"%s\" is being detached concurrently",
						get_rel_name(lfirst_oid(lc)), get_rel_name(parent)),
				 errhint("Run ALTER TABLE %s DETACH PARTITION %s FINALIZE first.",
						 ttl_docs_quoted_name(parent),
						 ttl_docs_quoted_name(lfirst_oid(lc)))));
	}
	list_free(tables);
	list_free(attached);
}

/* Invalidates the table and its partitions in every relation cache. */
void
ttl_docs_invalidate_tree(Oid relid)
{
	List	   *tables = ttl_docs_partition_tree(relid, NoLock);
	ListCell   *lc;

	foreach(lc, tables)
	{
		if (SearchSysCacheExists1(RELOID, ObjectIdGetDatum(lfirst_oid(lc))))
			CacheInvalidateRelcacheByRelid(lfirst_oid(lc));
		ttl_docs_forget(lfirst_oid(lc));
	}
	list_free(tables);
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
		parse_label(label, &settings);
	if (ttl_docs_collection(object->objectId, &collection) &&
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
		if (label != NULL && strcmp(print_label(&settings), print_label(&before)) == 0)
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
	ttl_docs_invalidate_tree(object->objectId);
	ttl_docs_note_change(object->objectId);
}

/* Are two labels the same, but for the place where they were written? */
static bool
has_same_settings(const CollectionSettings *a, const CollectionSettings *b)
{
	CollectionSettings moved = *a;

	moved.origin_database = b->origin_database;
	moved.origin_relation = b->origin_relation;
	return strcmp(print_label(&moved), print_label(b)) == 0;
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

static char *
print_label(const CollectionSettings *settings)
{
	StringInfoData buf;

	initStringInfo(&buf);
	appendStringInfo(&buf, "{\"version\": %d, \"document\": ", LABEL_VERSION);
	escape_json(&buf, NameStr(settings->doc_column));
	if (settings->on)
		appendStringInfo(&buf, ", \"default_ttl\": %d", settings->default_ttl);
	else
		appendStringInfoString(&buf, ", \"default_ttl\": null");
	appendStringInfo(&buf, ", \"indexing\": \"%s\"",
					 indexing_names[settings->indexing]);
	print_time(&buf, "written_floor", settings->written_floor);
	print_time(&buf, "due_floor", settings->due_floor);
	appendStringInfo(&buf, ", \"paused\": %s", settings->paused ? "true" : "false");
	if (settings->grace_until != DT_NOBEGIN)
		print_time(&buf, "grace_until", settings->grace_until);
	if (settings->purge_subscribed)
		appendStringInfoString(&buf, ", \"purge_subscribed\": true");
	appendStringInfo(&buf, ", \"database\": %u, \"table\": %u}",
					 settings->origin_database, settings->origin_relation);
	return buf.data;
}

static void
print_time(StringInfo buf, const char *key, TimestampTz time)
{
	if (time == DT_NOBEGIN)
		appendStringInfo(buf, ", \"%s\": null", key);
	else
		appendStringInfo(buf, ", \"%s\": \"%s\"", key, iso_time(time));
}

/* A time in the one form that labels have. */
static char *
iso_time(TimestampTz time)
{
	const int	utc = 0;

	return JsonEncodeDateTime(palloc(MAXDATELEN + 1), TimestampTzGetDatum(time),
							  TIMESTAMPTZOID, &utc);
}

/* Reads what print_label wrote, or raises an error. */
static void
parse_label(const char *label, CollectionSettings *settings)
{
	Jsonb	   *json;
	JsonbValue	value;

	json = DatumGetJsonbP(DirectFunctionCall1(jsonb_in, CStringGetDatum(label)));
	if (!JB_ROOT_IS_OBJECT(json))
		report_bad_label("version");
	label_integer(json, "version", LABEL_VERSION, LABEL_VERSION);

	memset(settings, 0, sizeof(*settings));
	if (label_value(json, "document", jbvString, &value) == NULL ||
		value.val.string.len == 0 || value.val.string.len >= NAMEDATALEN)
		report_bad_label("document");
	memcpy(NameStr(settings->doc_column), value.val.string.val,
		   value.val.string.len);

	settings->default_ttl = TTL_NEVER;
	if (label_value(json, "default_ttl", jbvNumeric, &value) != NULL)
	{
		settings->on = true;
		settings->default_ttl = label_integer(json, "default_ttl", TTL_NEVER,
											  TTL_MAX);
		if (settings->default_ttl == 0)
			report_bad_label("default_ttl");
	}

	if (label_value(json, "indexing", jbvString, &value) == NULL)
		report_bad_label("indexing");
	settings->indexing =
		ttl_docs_parse_indexing(pnstrdup(value.val.string.val,
										 value.val.string.len));
	settings->written_floor = label_time(json, "written_floor");
	settings->due_floor = label_time(json, "due_floor");
	if (label_value(json, "paused", jbvBool, &value) == NULL)
		report_bad_label("paused");
	settings->paused = value.val.boolean;
	settings->grace_until = has_key(json, "grace_until") ?
		label_time(json, "grace_until") : DT_NOBEGIN;
	settings->purge_subscribed = has_key(json, "purge_subscribed") &&
		label_value(json, "purge_subscribed", jbvBool, &value) != NULL &&
		value.val.boolean;
	settings->origin_database = label_integer(json, "database", 0, PG_UINT32_MAX);
	settings->origin_relation = label_integer(json, "table", 0, PG_UINT32_MAX);
}

static bool
has_key(Jsonb *label, const char *key)
{
	JsonbValue	value;

	return getKeyJsonValueFromContainer(&label->root, key, strlen(key), &value) != NULL;
}

/*
 * The value of a key, NULL for a JSON null; an error if the key is missing or
 * of another type.
 */
static JsonbValue *
label_value(Jsonb *label, const char *key, enum jbvType type, JsonbValue *value)
{
	if (getKeyJsonValueFromContainer(&label->root, key, strlen(key), value) == NULL)
		report_bad_label(key);
	if (value->type == jbvNull)
		return NULL;
	if (value->type != type)
		report_bad_label(key);
	return value;
}

static int64
label_integer(Jsonb *label, const char *key, int64 min, int64 max)
{
	JsonbValue	value;
	char	   *text;
	char	   *end;
	int64		result;

	if (label_value(label, key, jbvNumeric, &value) == NULL)
		report_bad_label(key);
	text = DatumGetCString(DirectFunctionCall1(numeric_out,
											   NumericGetDatum(value.val.numeric)));
	errno = 0;
	result = strtoll(text, &end, 10);
	if (errno != 0 || *end != '\0' || result < min || result > max)
		report_bad_label(key);
	return result;
}

static TimestampTz
label_time(Jsonb *label, const char *key)
{
	JsonbValue	value;
	char	   *text;
	TimestampTz time;

	if (label_value(label, key, jbvString, &value) == NULL)
		return DT_NOBEGIN;
	text = pnstrdup(value.val.string.val, value.val.string.len);
	time = DatumGetTimestampTz(DirectFunctionCall3(timestamptz_in,
												   CStringGetDatum(text),
												   ObjectIdGetDatum(InvalidOid),
												   Int32GetDatum(-1)));
	/*
	 * not "now", nor anything else that means something else elsewhere, nor the
	 * end of time: documents are stamped with the moment after a floor
	 */
	if (TIMESTAMP_NOT_FINITE(time) || !IS_VALID_TIMESTAMP(time + 1) ||
		strcmp(iso_time(time), text) != 0)
		report_bad_label(key);
	return time;
}

static void
report_bad_label(const char *key)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("invalid label for a collection of ttl_docs"),
			 errdetail("The value of \"%s\" is missing or not valid.", key),
			 errhint("Labels are written by the functions of the extension; use ttl_docs.adopt().")));
}
