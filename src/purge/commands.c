/*-------------------------------------------------------------------------
 *
 * commands.c
 *		Commands on databases and subscriptions that the purge has to know of.
 *
 * DROP DATABASE, a copy of one (CREATE DATABASE ... TEMPLATE), its renaming and
 * its move to another tablespace want nobody else in it.  They wait five seconds
 * for others to go, and with WITH (FORCE) end them if they have the right to end
 * a superuser's process.  So workers are asked to leave before the command
 * starts, and no new ones are sent while it runs.  Whoever may not run the
 * command does not get that far.
 *
 * Commands after which there may be something to purge wake the launcher when
 * they are committed, also by COMMIT PREPARED (prepared.c).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_database.h"
#include "commands/dbcommands.h"
#include "commands/defrem.h"
#include "miscadmin.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "utils/acl.h"
#include "utils/memutils.h"
#include "utils/syscache.h"
#include "utils/wait_event.h"

#include "purge/purge_internal.h"

/* how long a command waits for workers to leave before it goes on */
#define LEAVE_TIME		(3 * USECS_PER_SEC)
#define LEAVE_POLL		10		/* milliseconds */
/* longer than such a command waits for others; it lets workers in when it ends */
#define KEEP_OUT_TIME	(60 * USECS_PER_SEC)

/* A command that the purge has to know of, from its start to its end */
typedef struct PurgeCommand
{
	struct PurgeCommand *outer;
	PurgeDatabase *wanted;		/* that it wants without workers, or NULL */
	bool		finishes_marked;	/* it may finish a transaction with a mark */
	bool		is_gone;		/* the database was dropped */
} PurgeCommand;

static PurgeCommand *innermost_command = NULL;

static void note_command(Node *parsetree);
static Oid	wanted_database(Node *parsetree);
static const char *template_of(CreatedbStmt *stmt);
static bool sets_tablespace(AlterDatabaseStmt *stmt);
static bool may_copy(Oid database);
static void ask_workers_to_leave(Oid database);
static bool has_worker(Oid database);

/*
 * A utility command begins; false if there is nothing to do for it.  The entry is
 * not in a memory context of the command, which may commit.
 */
bool
ttl_docs_begin_purge_command(Node *parsetree)
{
	Oid			wanted = wanted_database(parsetree);
	PurgeDatabase *database = OidIsValid(wanted) ?
		ttl_docs_purge_database(wanted, false) : NULL;
	bool		finishes_marked = database == NULL && ttl_docs_finishes_marked(parsetree);
	PurgeCommand *command;

	note_command(parsetree);
	if (database == NULL && !finishes_marked)
		return false;
	command = MemoryContextAllocZero(TopMemoryContext, sizeof(PurgeCommand));
	command->outer = innermost_command;
	command->wanted = database;
	command->finishes_marked = finishes_marked;
	innermost_command = command;
	return true;
}

/* The command has run. */
void
ttl_docs_purge_command_has_run(Node *parsetree)
{
	innermost_command->is_gone = IsA(parsetree, DropdbStmt);
	if (!innermost_command->finishes_marked)
		return;
	ttl_docs_tell_of_all();
	ttl_docs_wake_for_databases();
}

/* A command ends, by itself or by an error: workers are let in again. */
void
ttl_docs_end_purge_command(void)
{
	PurgeCommand *command = innermost_command;

	/* one that was dropped the launcher will forget */
	if (command->wanted != NULL && !command->is_gone)
	{
		command->wanted->keep_out_until = 0;
		ttl_docs_wake_launcher(DT_NOBEGIN);
	}
	innermost_command = command->outer;
	pfree(command);
}

/* Commands after which it is worth to look. */
static void
note_command(Node *parsetree)
{
	switch (nodeTag(parsetree))
	{
		case T_CreatedbStmt:
		case T_DropdbStmt:
		case T_AlterDatabaseStmt:
		case T_AlterDatabaseSetStmt:
		case T_AlterRoleSetStmt:
			ttl_docs_note_database_change();
			break;
		case T_CreateSubscriptionStmt:
		case T_AlterSubscriptionStmt:
		case T_DropSubscriptionStmt:
			ttl_docs_note_change(InvalidOid);
			break;
		default:
			break;
	}
}

/*
 * The database that a command wants for itself, if its user may run it;
 * InvalidOid for other commands.
 */
static Oid
wanted_database(Node *parsetree)
{
	const char *name = NULL;
	bool		is_copy = false;
	Oid			database;

	switch (nodeTag(parsetree))
	{
		case T_DropdbStmt:
			name = ((DropdbStmt *) parsetree)->dbname;
			break;
		case T_CreatedbStmt:
			name = template_of((CreatedbStmt *) parsetree);
			is_copy = true;
			break;
		case T_AlterDatabaseStmt:
			if (sets_tablespace((AlterDatabaseStmt *) parsetree))
				name = ((AlterDatabaseStmt *) parsetree)->dbname;
			break;
		case T_RenameStmt:
			if (((RenameStmt *) parsetree)->renameType == OBJECT_DATABASE)
				name = ((RenameStmt *) parsetree)->subname;
			break;
		default:
			break;
	}
	if (name == NULL)
		return InvalidOid;
	database = get_database_oid(name, true);
	if (!OidIsValid(database) || database == MyDatabaseId ||
		!(compat_database_ownercheck(database, GetUserId()) ||
		  (is_copy && may_copy(database))))
		return InvalidOid;
	return database;
}

static const char *
template_of(CreatedbStmt *stmt)
{
	ListCell   *lc;

	foreach(lc, stmt->options)
	{
		DefElem    *option = lfirst_node(DefElem, lc);

		if (strcmp(option->defname, "template") == 0 && option->arg != NULL)
			return defGetString(option);
	}
	return "template1";
}

static bool
sets_tablespace(AlterDatabaseStmt *stmt)
{
	ListCell   *lc;

	foreach(lc, stmt->options)
		if (strcmp(lfirst_node(DefElem, lc)->defname, "tablespace") == 0)
			return true;
	return false;
}

/* Templates may be copied by whoever may create databases. */
static bool
may_copy(Oid database)
{
	HeapTuple	tuple = SearchSysCache1(DATABASEOID, ObjectIdGetDatum(database));
	bool		may;

	if (!HeapTupleIsValid(tuple))
		return false;
	may = ((Form_pg_database) GETSTRUCT(tuple))->datistemplate;
	ReleaseSysCache(tuple);
	tuple = SearchSysCache1(AUTHOID, ObjectIdGetDatum(GetUserId()));
	if (!HeapTupleIsValid(tuple))
		return false;
	may = may && ((Form_pg_authid) GETSTRUCT(tuple))->rolcreatedb;
	ReleaseSysCache(tuple);
	return may;
}

/*
 * Sends no more workers to the database that the command wants, and waits for those
 * that are there, but not for long.
 */
void
ttl_docs_keep_workers_out(void)
{
	int64		deadline = ttl_docs_elapsed() + LEAVE_TIME;
	PurgeDatabase *database = innermost_command->wanted;
	Oid			oid;

	if (database == NULL)
		return;
	oid = database->database;
	LWLockAcquire(ttl_docs_purge_shared->lock, LW_EXCLUSIVE);
	database->keep_out_until = ttl_docs_elapsed() + KEEP_OUT_TIME;
	LWLockRelease(ttl_docs_purge_shared->lock);
	ask_workers_to_leave(oid);
	while (has_worker(oid) && ttl_docs_elapsed() < deadline)
	{
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 LEAVE_POLL, compat_wait_event("TtlDocsPurgeLeave"));
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
		/* also those that were on their way */
		ask_workers_to_leave(oid);
	}
}

static void
ask_workers_to_leave(Oid database)
{
	int			pids[PURGE_MAX_WORKERS];
	int			count = 0;

	LWLockAcquire(ttl_docs_purge_shared->lock, LW_EXCLUSIVE);
	for (int i = 0; i < PURGE_MAX_WORKERS; i++)
	{
		PurgeWorkerSlot *slot = &ttl_docs_purge_shared->workers[i];

		if (slot->database != database || slot->must_leave)
			continue;
		slot->must_leave = true;
		if (slot->pid != 0)
			pids[count++] = slot->pid;
	}
	LWLockRelease(ttl_docs_purge_shared->lock);
	for (int i = 0; i < count; i++)
	{
		PGPROC	   *proc = BackendPidGetProc(pids[i]);

		if (proc != NULL)
			SetLatch(&proc->procLatch);
	}
}

static bool
has_worker(Oid database)
{
	bool		found = false;

	LWLockAcquire(ttl_docs_purge_shared->lock, LW_SHARED);
	for (int i = 0; i < PURGE_MAX_WORKERS; i++)
		found |= ttl_docs_purge_shared->workers[i].database == database;
	LWLockRelease(ttl_docs_purge_shared->lock);
	return found;
}
