/*-------------------------------------------------------------------------
 *
 * open_instants.c
 *		Remembers the instants that transactions of this node have handed over
 *		to other nodes of Citus, until they end.
 *
 * instant.c says why: another node asks whether the instant that it got is
 * that of a transaction that is still open here, and that works for the same
 * role.
 *
 * A transaction can work for several roles, with SET ROLE or in functions with
 * SECURITY DEFINER.  Citus opens a session as each of them.  So an entry has
 * every role as which the transaction has read a table of Citus.  If there are
 * too many roles, the other nodes get no confirmation for the last ones.
 *
 * Shared memory has an entry for each process.  Only that process writes it,
 * so there is no lock.  A process writes the roles before the instant, and at
 * the end, it removes the instant first.  The processes of a transaction on
 * two databases are different ones, so the entry has the database, too.
 * Without the library of Citus, there is no shared memory.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "storage/proc.h"
#include "storage/shmem.h"
#include "utils/timestamp.h"

#include "citus/actions.h"
#include "citus/citus_internal.h"

PG_FUNCTION_INFO_V1(ttl_docs_sql_has_open_instant);

/* Maximum number of roles of a transaction */
#define MAX_ROLES	16

typedef struct OpenInstant
{
	pg_atomic_uint64 instant;	/* DT_NOEND = none */
	pg_atomic_uint32 database;
	pg_atomic_uint32 roles[MAX_ROLES];	/* InvalidOid = unused */
} OpenInstant;

static OpenInstant *open_instants = NULL;	/* array, by process number */

static bool has_role(OpenInstant *entry, Oid role);

Size
ttl_docs_open_instants_shmem_size(void)
{
	return ttl_docs_citus_is_loaded ? mul_size(MaxBackends, sizeof(OpenInstant)) : 0;
}

/* Called when shared memory is created or attached. */
void
ttl_docs_open_instants_shmem_init(void)
{
	bool		found;

	if (!ttl_docs_citus_is_loaded)
		return;
	open_instants = ShmemInitStruct("ttl_docs open instants",
									ttl_docs_open_instants_shmem_size(), &found);
	for (int i = 0; !found && i < MaxBackends; i++)
	{
		pg_atomic_init_u64(&open_instants[i].instant, (uint64) DT_NOEND);
		pg_atomic_init_u32(&open_instants[i].database, InvalidOid);
		for (int j = 0; j < MAX_ROLES; j++)
			pg_atomic_init_u32(&open_instants[i].roles[j], InvalidOid);
	}
}

/* This transaction reads tables of Citus as this role, at this instant. */
void
ttl_docs_open_instant(TimestampTz instant, Oid role)
{
	OpenInstant *mine = &open_instants[compat_proc_number(MyProc)];

	for (int i = 0; i < MAX_ROLES; i++)
	{
		Oid			known = pg_atomic_read_u32(&mine->roles[i]);

		if (!OidIsValid(known))
			pg_atomic_write_u32(&mine->roles[i], role);
		if (!OidIsValid(known) || known == role)
			break;
	}
	pg_atomic_write_u32(&mine->database, MyDatabaseId);
	pg_write_barrier();
	pg_atomic_write_u64(&mine->instant, (uint64) instant);
}

/* The transaction has ended. */
void
ttl_docs_close_instant(void)
{
	OpenInstant *mine = &open_instants[compat_proc_number(MyProc)];

	pg_atomic_write_u64(&mine->instant, (uint64) DT_NOEND);
	pg_write_barrier();
	for (int i = 0; i < MAX_ROLES; i++)
		pg_atomic_write_u32(&mine->roles[i], InvalidOid);
}

/*
 * Is there a transaction in this database that has handed over this instant,
 * and works for this role?
 */
bool
ttl_docs_has_open_instant(TimestampTz instant, Oid role)
{
	for (int i = 0; open_instants != NULL && i < MaxBackends; i++)
	{
		OpenInstant *entry = &open_instants[i];
		bool		matches;

		if ((TimestampTz) pg_atomic_read_u64(&entry->instant) != instant)
			continue;
		pg_read_barrier();
		matches = pg_atomic_read_u32(&entry->database) == MyDatabaseId &&
			has_role(entry, role);
		pg_read_barrier();
		/* the transaction may have ended meanwhile */
		if (matches && (TimestampTz) pg_atomic_read_u64(&entry->instant) == instant)
			return true;
	}
	return false;
}

static bool
has_role(OpenInstant *entry, Oid role)
{
	for (int i = 0; i < MAX_ROLES; i++)
		if (pg_atomic_read_u32(&entry->roles[i]) == role)
			return true;
	return false;
}

/*
 * has_open_instant(instant bigint): the question of another node, which asks
 * as the role of its session.
 */
Datum
ttl_docs_sql_has_open_instant(PG_FUNCTION_ARGS)
{
	ttl_docs_require_preload();
	PG_RETURN_BOOL(ttl_docs_has_open_instant((TimestampTz) PG_GETARG_INT64(0),
											 GetSessionUserId()));
}
