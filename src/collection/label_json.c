/*-------------------------------------------------------------------------
 *
 * label_json.c
 *		Prints and parses the text of a label.
 *
 * A label is a JSON object, so that people and SQL can read it:
 *
 * 	{"version": 1, "document": "doc", "default_ttl": 60,
 * 	 "indexing": "consistent", "written_floor": null, "due_floor": null,
 * 	 "paused": false, "database": 5, "table": 16390}
 *
 * "database" and "table" are the OIDs of the database and the table for which
 * the label was written.  If the label is on another table or in another
 * database, a restore brought it.
 *
 * Other keys are present only if they are set: "grace_until", a time
 * (grace.c), "purge_subscribed": true (purge/hold.c), "restored": true if a
 * restore brought the label and resume_purge() has replaced its OIDs since
 * (expired_rows.c), "citus": true on shells and shards of Citus, "changing":
 * true to lock a table on all nodes (citus/follow.c), and "filling": true while
 * Citus fills the table (citus/convert.c).  While a table is adopted
 * concurrently, it has "adopting", a time, "target_ttl", which is null if TTL
 * will be off, and possibly "last_modified" and "time_zone" (online/adopt.c).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "utils/builtins.h"
#include "utils/datetime.h"
#include "utils/fmgrprotos.h"
#include "utils/json.h"
#include "utils/jsonb.h"
#include "utils/numeric.h"
#include "utils/rel.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "collection/collection_internal.h"

#define LABEL_VERSION 1

static const char *const indexing_names[] = {
	[INDEXING_CONSISTENT] = "consistent",
	[INDEXING_LAZY] = "lazy",
	[INDEXING_NONE] = "none",
};

static void print_time(StringInfo buf, const char *key, TimestampTz time);
static char *iso_time(TimestampTz time);
static bool has_key(Jsonb *label, const char *key);
static bool label_flag(Jsonb *label, const char *key);
static JsonbValue *label_value(Jsonb *label, const char *key,
							   enum jbvType type, JsonbValue *value);
static int64 label_integer(Jsonb *label, const char *key, int64 min,
						   int64 max);
static TimestampTz label_time(Jsonb *label, const char *key);
static bool label_default_ttl(Jsonb *label, const char *key, int32 *default_ttl);
static void label_name(Jsonb *label, const char *key, NameData *name);
static void print_adoption(StringInfo buf, const CollectionSettings *settings);
static void parse_adoption(Jsonb *label, CollectionSettings *settings);
pg_noreturn static void report_bad_label(const char *key);

char *
ttl_docs_print_label(const CollectionSettings *settings)
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
	if (settings->restored)
		appendStringInfoString(&buf, ", \"restored\": true");
	if (settings->citus)
		appendStringInfoString(&buf, ", \"citus\": true");
	if (settings->changing)
		appendStringInfoString(&buf, ", \"changing\": true");
	if (settings->resuming)
		appendStringInfoString(&buf, ", \"resuming\": true");
	if (settings->filling)
		appendStringInfoString(&buf, ", \"filling\": true");
	if (settings->adopting != DT_NOBEGIN)
		print_adoption(&buf, settings);
	appendStringInfo(&buf, ", \"database\": %u, \"table\": %u}",
					 settings->origin_database, settings->origin_relation);
	return buf.data;
}

static void
print_adoption(StringInfo buf, const CollectionSettings *settings)
{
	print_time(buf, "adopting", settings->adopting);
	if (settings->target_on)
		appendStringInfo(buf, ", \"target_ttl\": %d", settings->target_ttl);
	else
		appendStringInfoString(buf, ", \"target_ttl\": null");
	if (NameStr(settings->last_modified)[0] == '\0')
		return;
	appendStringInfoString(buf, ", \"last_modified\": ");
	escape_json(buf, NameStr(settings->last_modified));
	appendStringInfoString(buf, ", \"time_zone\": ");
	escape_json(buf, NameStr(settings->time_zone));
}

static void
print_time(StringInfo buf, const char *key, TimestampTz time)
{
	if (time == DT_NOBEGIN)
		appendStringInfo(buf, ", \"%s\": null", key);
	else
		appendStringInfo(buf, ", \"%s\": \"%s\"", key, iso_time(time));
}

/* Prints a time in the only form that labels use: ISO 8601, in UTC. */
static char *
iso_time(TimestampTz time)
{
	const int	utc = 0;

	return JsonEncodeDateTime(palloc(MAXDATELEN + 1), TimestampTzGetDatum(time),
							  TIMESTAMPTZOID, &utc);
}

/* Parses a label that ttl_docs_print_label() wrote, or raises an error. */
void
ttl_docs_parse_label(const char *label, CollectionSettings *settings)
{
	Jsonb	   *json;
	JsonbValue	value;

	json = DatumGetJsonbP(DirectFunctionCall1(jsonb_in, CStringGetDatum(label)));
	if (!JB_ROOT_IS_OBJECT(json))
		report_bad_label("version");
	label_integer(json, "version", LABEL_VERSION, LABEL_VERSION);

	memset(settings, 0, sizeof(*settings));
	label_name(json, "document", &settings->doc_column);

	settings->on = label_default_ttl(json, "default_ttl", &settings->default_ttl);

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
	settings->purge_subscribed = label_flag(json, "purge_subscribed");
	settings->restored = label_flag(json, "restored");
	settings->citus = label_flag(json, "citus");
	settings->changing = label_flag(json, "changing");
	settings->resuming = label_flag(json, "resuming");
	settings->filling = label_flag(json, "filling");
	parse_adoption(json, settings);
	settings->origin_database = label_integer(json, "database", 0, PG_UINT32_MAX);
	settings->origin_relation = label_integer(json, "table", 0, PG_UINT32_MAX);
}

static void
parse_adoption(Jsonb *label, CollectionSettings *settings)
{
	settings->target_ttl = TTL_NEVER;
	settings->adopting = has_key(label, "adopting") ?
		label_time(label, "adopting") : DT_NOBEGIN;
	if (settings->adopting == DT_NOBEGIN)
		return;
	/* TTL is off until the adoption is complete */
	if (settings->on)
		report_bad_label("adopting");
	settings->target_on = label_default_ttl(label, "target_ttl", &settings->target_ttl);
	if (!has_key(label, "last_modified"))
		return;
	label_name(label, "last_modified", &settings->last_modified);
	label_name(label, "time_zone", &settings->time_zone);
}

/* Reads a DefaultTTL; returns false if it is null, which means off. */
static bool
label_default_ttl(Jsonb *label, const char *key, int32 *default_ttl)
{
	JsonbValue	value;

	*default_ttl = TTL_NEVER;
	if (label_value(label, key, jbvNumeric, &value) == NULL)
		return false;
	*default_ttl = label_integer(label, key, TTL_NEVER, TTL_MAX);
	if (*default_ttl == 0)
		report_bad_label(key);
	return true;
}

static void
label_name(Jsonb *label, const char *key, NameData *name)
{
	JsonbValue	value;

	if (label_value(label, key, jbvString, &value) == NULL ||
		value.val.string.len == 0 || value.val.string.len >= NAMEDATALEN)
		report_bad_label(key);
	memcpy(NameStr(*name), value.val.string.val, value.val.string.len);
}

static bool
has_key(Jsonb *label, const char *key)
{
	JsonbValue	value;

	return getKeyJsonValueFromContainer(&label->root, key, strlen(key), &value) != NULL;
}

/* A flag is false if its key is missing. */
static bool
label_flag(Jsonb *label, const char *key)
{
	JsonbValue	value;

	return has_key(label, key) && label_value(label, key, jbvBool, &value) != NULL &&
		value.val.boolean;
}

/*
 * Returns the value of a key, or NULL if it is a JSON null.  Raises an error
 * if the key is missing or its value is of another type.
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
	 * Only accept the form that iso_time() prints.  Other forms, such as
	 * "now", can mean another time elsewhere.  Refuse the last possible time
	 * too, because documents can be stamped with the microsecond after a
	 * floor.
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
			 errhint("Only the functions of ttl_docs write labels. To make a table a collection, call ttl_docs.adopt().")));
}

const char *
ttl_docs_indexing_name(IndexingMode indexing)
{
	return indexing_names[indexing];
}

/* Returns the mode with this name, or raises an error. */
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
	return INDEXING_NONE;		/* keep the compiler quiet */
}
