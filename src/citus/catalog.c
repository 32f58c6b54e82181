/*-------------------------------------------------------------------------
 *
 * catalog.c
 *		Reads the catalogs of Citus: shells, shards and placements.
 *
 * Citus keeps its catalogs in the schema pg_catalog, where only superusers
 * can create tables.  So their names are proof enough.  We look up tables and
 * columns by name, because their numbers differ from one version of Citus to
 * the next.
 *
 *	pg_dist_partition	a row for each shell
 *	pg_dist_shard		a row for each shard, with its shell
 *	pg_dist_placement	on which nodes a shard is.  The node of a shard is
 *						stored as the number of its group of nodes: a primary
 *						and its standbys.
 *	pg_dist_local_group	the group of this node
 *	pg_dist_node		the nodes
 *
 * Every node has copies of these catalogs.  During some commands, a shard
 * exists on a node before its row, or after it:
 *
 *	- Citus creates a shard and fills it, and then adds its rows.
 *	- After a shard was moved or split, the old table stays on disk until a
 *	  background process of Citus drops it.
 *
 * A shard is in use if the catalogs place it on this node.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_extension.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_type.h"
#include "parser/parse_func.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"
#include "utils/varlena.h"

#include "citus/citus_internal.h"

#define CITUS_EXTENSION		"citus"

/* The first version that sends labels of tables to other nodes */
#define OLDEST_MAJOR		13
#define OLDEST_MINOR		1

/* Values of pg_dist_partition.repmodel */
#define REPLICATED_BY_STATEMENTS	'c' /* several copies of each shard */
#define REPLICATED_IN_2PC			't' /* a reference table */

/* Value of pg_dist_placement.shardstate */
#define PLACEMENT_ACTIVE	1

/* A scan of a catalog of Citus for the rows with one value in a column */
typedef struct CatalogScan
{
	Relation	rel;
	SysScanDesc scan;
	HeapTuple	tuple;
} CatalogScan;

static bool begin_scan(CatalogScan *scan, const char *table, const char *index,
					   const char *column, Datum value, Oid type);
static bool next_row(CatalogScan *scan);
static Datum get_column(CatalogScan *scan, const char *column);
static void end_scan(CatalogScan *scan);
static Oid	find_catalog(const char *name);
static AttrNumber require_column(Oid catalog, const char *column);
static bool is_table_of(Oid relid, Oid owner);
static Oid	owner_of(Oid relid);
static int	compare_shards(const ListCell *a, const ListCell *b);
static bool parse_shard_number(const char *name, int64 *shard);
static Oid	shell_of_shard_number(int64 shard);
static char *shard_name(Oid shell, int64 shard);
static bool is_placed_here(int64 shard);
static char *citus_version(void);

/* Does this database have Citus? */
bool
ttl_docs_has_citus(void)
{
	return OidIsValid(find_catalog("pg_dist_partition"));
}

/* How does Citus manage the table?  A shard is no shell: CITUS_NONE. */
CitusKind
ttl_docs_citus_kind(Oid relid)
{
	CatalogScan scan;
	CitusKind	kind = CITUS_NONE;

	if (!begin_scan(&scan, "pg_dist_partition", "pg_dist_partition_logical_relid_index",
					"logicalrelid", ObjectIdGetDatum(relid), OIDOID))
		return CITUS_NONE;
	if (next_row(&scan))
	{
		char		repmodel = DatumGetChar(get_column(&scan, "repmodel"));

		kind = repmodel == REPLICATED_BY_STATEMENTS || repmodel == REPLICATED_IN_2PC ?
			CITUS_REPLICATED : CITUS_SHELL;
	}
	end_scan(&scan);
	return kind;
}

bool
ttl_docs_is_shell(Oid relid)
{
	return ttl_docs_citus_kind(relid) != CITUS_NONE;
}

/*
 * Returns the shell of a shard, and sets *shard to its number; InvalidOid if
 * the table is not a shard that the catalogs know.
 */
Oid
ttl_docs_shell_of_shard(Oid relid, int64 *shard)
{
	char	   *name;
	Oid			shell;

	if (!ttl_docs_has_citus())
		return InvalidOid;
	name = get_rel_name(relid);
	if (name == NULL || !parse_shard_number(name, shard))
		return InvalidOid;
	shell = shell_of_shard_number(*shard);
	/* a user may have named a table like a shard */
	if (!OidIsValid(shell) || get_rel_namespace(shell) != get_rel_namespace(relid) ||
		strcmp(shard_name(shell, *shard), name) != 0)
		return InvalidOid;
	return shell;
}

/* Returns the shards of a shell that exist on this node, in their order. */
List *
ttl_docs_local_shards(Oid shell)
{
	CatalogScan scan;
	List	   *numbers = NIL;
	List	   *shards = NIL;
	ListCell   *lc;

	if (!begin_scan(&scan, "pg_dist_shard", "pg_dist_shard_logical_relid_index",
					"logicalrelid", ObjectIdGetDatum(shell), OIDOID))
		return NIL;
	while (next_row(&scan))
	{
		int64	   *shard = palloc(sizeof(int64));

		*shard = DatumGetInt64(get_column(&scan, "shardid"));
		numbers = lappend(numbers, shard);
	}
	end_scan(&scan);
	list_sort(numbers, compare_shards);
	foreach(lc, numbers)
	{
		Oid			relid = get_relname_relid(shard_name(shell, *(int64 *) lfirst(lc)),
											  get_rel_namespace(shell));

		/* somebody else may have named a table like a shard */
		if (OidIsValid(relid) && is_table_of(relid, owner_of(shell)))
			shards = lappend_oid(shards, relid);
	}
	list_free_deep(numbers);
	return shards;
}

/* Is the relation a table of this owner? */
static bool
is_table_of(Oid relid, Oid owner)
{
	char		relkind = get_rel_relkind(relid);

	return (relkind == RELKIND_RELATION || relkind == RELKIND_PARTITIONED_TABLE) &&
		owner_of(relid) == owner;
}

static Oid
owner_of(Oid relid)
{
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relid));
	Oid			owner;

	if (!HeapTupleIsValid(tuple))
		return InvalidOid;
	owner = ((Form_pg_class) GETSTRUCT(tuple))->relowner;
	ReleaseSysCache(tuple);
	return owner;
}

/* Orders numbers of shards, so that all sessions lock shards in one order. */
static int
compare_shards(const ListCell *a, const ListCell *b)
{
	int64		left = *(int64 *) lfirst(a);
	int64		right = *(int64 *) lfirst(b);

	return left < right ? -1 : left > right;
}

/* Returns the table of a shard on this node; InvalidOid if there is none. */
Oid
ttl_docs_local_shard(int64 shard)
{
	Oid			shell = shell_of_shard_number(shard);

	return OidIsValid(shell) ?
		get_relname_relid(shard_name(shell, shard), get_rel_namespace(shell)) : InvalidOid;
}

/*
 * Is the table a shard that is in use on this node?  Sets *shard to its
 * number.
 */
bool
ttl_docs_is_shard_in_use(Oid relid, int64 *shard)
{
	return OidIsValid(ttl_docs_shell_of_shard(relid, shard)) && is_placed_here(*shard);
}

/*
 * Is a table whose label has "citus" a shard?  True also for a shard that the
 * catalogs do not know: a split has created it and fills it, or has replaced
 * it, or its distributed table is gone.  Without Citus, such a table is like
 * any other.
 */
bool
ttl_docs_is_shard(Oid relid)
{
	char	   *name = get_rel_name(relid);
	int64		shard;

	return name != NULL && ttl_docs_has_citus() && parse_shard_number(name, &shard) &&
		!ttl_docs_is_shell(relid);
}

/* Raises an error if the version of Citus does not send labels to nodes. */
void
ttl_docs_require_supported_citus(void)
{
	char	   *version = citus_version();
	int			major = 0;
	int			minor = 0;

	if (version == NULL)
		version = "unknown";
	if (sscanf(version, "%d.%d", &major, &minor) != 2 ||
		major < OLDEST_MAJOR || (major == OLDEST_MAJOR && minor < OLDEST_MINOR))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("ttl_docs does not support Citus of version %s", version),
				 errdetail("Only Citus %d.%d and later versions send security labels to other nodes. ttl_docs stores its settings in a security label.",
						   OLDEST_MAJOR, OLDEST_MINOR),
				 errhint("Upgrade Citus, or use a table that Citus does not manage.")));
}

/* Keeps Citus from adding and removing nodes until the transaction ends. */
void
ttl_docs_lock_node_list(void)
{
	Oid			nodes = find_catalog("pg_dist_node");

	if (OidIsValid(nodes))
		LockRelationOid(nodes, RowShareLock);
}

/* Returns the shells whose shards are colocated with those of a shell. */
List *
ttl_docs_colocated_shells(Oid shell)
{
	CatalogScan scan;
	List	   *found = NIL;
	int			colocation = 0;

	if (!begin_scan(&scan, "pg_dist_partition", "pg_dist_partition_logical_relid_index",
					"logicalrelid", ObjectIdGetDatum(shell), OIDOID))
		return NIL;
	if (next_row(&scan))
		colocation = DatumGetInt32(get_column(&scan, "colocationid"));
	end_scan(&scan);
	if (colocation == 0)
		return NIL;
	if (!begin_scan(&scan, "pg_dist_partition", NULL, NULL, (Datum) 0, InvalidOid))
		return NIL;
	while (next_row(&scan))
		if (DatumGetInt32(get_column(&scan, "colocationid")) == colocation)
			found = lappend_oid(found, DatumGetObjectId(get_column(&scan, "logicalrelid")));
	end_scan(&scan);
	return found;
}

/* Does Citus distribute the tables that are created in this schema? */
bool
ttl_docs_is_distributed_schema(Oid schema)
{
	CatalogScan scan;
	bool		found;

	if (!begin_scan(&scan, "pg_dist_schema", "pg_dist_schema_pkey", "schemaid",
					ObjectIdGetDatum(schema), OIDOID))
		return false;
	found = next_row(&scan);
	end_scan(&scan);
	return found;
}

/* Returns the local tables that Citus manages only because of foreign keys. */
List *
ttl_docs_autoconverted_shells(void)
{
	CatalogScan scan;
	List	   *found = NIL;

	if (!begin_scan(&scan, "pg_dist_partition", NULL, NULL, (Datum) 0, InvalidOid))
		return NIL;
	while (next_row(&scan))
		if (DatumGetBool(get_column(&scan, "autoconverted")))
			found = lappend_oid(found, DatumGetObjectId(get_column(&scan, "logicalrelid")));
	end_scan(&scan);
	return found;
}

/* ---- Rows of the catalogs ---- */

/*
 * Begins a scan for the rows that have this value in a column; false if the
 * database has no Citus.
 */
static bool
begin_scan(CatalogScan *scan, const char *table, const char *index,
		   const char *column, Datum value, Oid type)
{
	Oid			relid = find_catalog(table);
	Oid			indexid;
	ScanKeyData key;

	if (!OidIsValid(relid))
		return false;
	scan->rel = table_open(relid, AccessShareLock);
	indexid = index != NULL ? find_catalog(index) : InvalidOid;
	if (column != NULL)
		ScanKeyInit(&key, require_column(relid, column), BTEqualStrategyNumber,
					type == OIDOID ? F_OIDEQ : F_INT8EQ, value);
	scan->scan = systable_beginscan(scan->rel, indexid, OidIsValid(indexid), NULL,
									column != NULL ? 1 : 0, &key);
	return true;
}

static bool
next_row(CatalogScan *scan)
{
	scan->tuple = systable_getnext(scan->scan);
	return HeapTupleIsValid(scan->tuple);
}

/* Returns a column of the current row.  A null flag is false. */
static Datum
get_column(CatalogScan *scan, const char *column)
{
	bool		isnull;

	return heap_getattr(scan->tuple,
						require_column(RelationGetRelid(scan->rel), column),
						RelationGetDescr(scan->rel), &isnull);
}

static void
end_scan(CatalogScan *scan)
{
	systable_endscan(scan->scan);
	table_close(scan->rel, AccessShareLock);
}

static Oid
find_catalog(const char *name)
{
	if (!ttl_docs_citus_is_loaded)
		return InvalidOid;
	return get_relname_relid(name, PG_CATALOG_NAMESPACE);
}

/* Returns the number of a column that every supported version has. */
static AttrNumber
require_column(Oid catalog, const char *column)
{
	AttrNumber	attno = get_attnum(catalog, column);

	if (attno == InvalidAttrNumber)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("ttl_docs does not support this version of Citus"),
				 errdetail("The catalog %s has no column \"%s\".",
						   get_rel_name(catalog), column)));
	return attno;
}

/* ---- Shards ---- */

/* Reads the number at the end of the name of a shard. */
static bool
parse_shard_number(const char *name, int64 *shard)
{
	const char *digits = strrchr(name, '_');
	char	   *end;

	if (digits == NULL || digits[1] < '1' || digits[1] > '9')
		return false;
	errno = 0;
	*shard = strtoll(digits + 1, &end, 10);
	return errno == 0 && *end == '\0';
}

static Oid
shell_of_shard_number(int64 shard)
{
	CatalogScan scan;
	Oid			shell = InvalidOid;

	if (!begin_scan(&scan, "pg_dist_shard", "pg_dist_shard_shardid_index", "shardid",
					Int64GetDatum(shard), INT8OID))
		return InvalidOid;
	if (next_row(&scan))
		shell = DatumGetObjectId(get_column(&scan, "logicalrelid"));
	end_scan(&scan);
	return get_rel_name(shell) != NULL ? shell : InvalidOid;
}

/*
 * Returns the name of a shard, without its schema.  Citus shortens long
 * names, so we ask its function.
 */
static char *
shard_name(Oid shell, int64 shard)
{
	Oid			types[] = {REGCLASSOID, INT8OID, BOOLOID};
	List	   *name = list_make2(makeString("pg_catalog"), makeString("shard_name"));
	Oid			function = LookupFuncName(name, 3, types, true);
	Datum		quoted;

	/* versions before 13.1, which we refuse, have no third argument */
	if (OidIsValid(function))
		quoted = OidFunctionCall3(function, ObjectIdGetDatum(shell),
								  Int64GetDatum(shard), BoolGetDatum(true));
	else
		quoted = OidFunctionCall2(LookupFuncName(name, 2, types, false),
								  ObjectIdGetDatum(shell), Int64GetDatum(shard));
	return strVal(llast(textToQualifiedNameList(DatumGetTextPP(quoted))));
}

/* Do the catalogs place the shard on this node? */
static bool
is_placed_here(int64 shard)
{
	CatalogScan scan;
	bool		found = false;
	int			here = ttl_docs_local_group();

	if (!begin_scan(&scan, "pg_dist_placement", "pg_dist_placement_shardid_index",
					"shardid", Int64GetDatum(shard), INT8OID))
		return false;
	while (!found && next_row(&scan))
		found = DatumGetInt32(get_column(&scan, "groupid")) == here &&
			DatumGetInt32(get_column(&scan, "shardstate")) == PLACEMENT_ACTIVE;
	end_scan(&scan);
	return found;
}

/* Returns the number of the group of this node. */
int
ttl_docs_local_group(void)
{
	CatalogScan scan;
	int			group = 0;

	if (begin_scan(&scan, "pg_dist_local_group", NULL, NULL, (Datum) 0, InvalidOid))
	{
		if (next_row(&scan))
			group = DatumGetInt32(get_column(&scan, "groupid"));
		end_scan(&scan);
	}
	return group;
}

/* Returns the version of the extension citus; NULL if there is none. */
static char *
citus_version(void)
{
	Relation	rel = table_open(ExtensionRelationId, AccessShareLock);
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;
	char	   *version = NULL;

	ScanKeyInit(&key, Anum_pg_extension_extname, BTEqualStrategyNumber, F_NAMEEQ,
				CStringGetDatum(CITUS_EXTENSION));
	scan = systable_beginscan(rel, ExtensionNameIndexId, true, NULL, 1, &key);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple))
	{
		bool		isnull;
		Datum		value = heap_getattr(tuple, Anum_pg_extension_extversion,
										 RelationGetDescr(rel), &isnull);

		version = TextDatumGetCString(value);
	}
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return version;
}
