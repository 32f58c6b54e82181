/*-------------------------------------------------------------------------
 *
 * database_commands.c
 *		Commands on databases and subscriptions that affect the purge.
 *
 * Some commands need a database without other sessions: DROP DATABASE, CREATE
 * DATABASE ... TEMPLATE, ALTER DATABASE ... RENAME and ALTER DATABASE ... SET
 * TABLESPACE.  They wait five seconds for other sessions to end.  WITH (FORCE) ends
 * other sessions, but only a superuser may end a worker that way.  So no new worker
 * comes while such a command runs, and running ones leave the database:
 *
 * - Since PostgreSQL 19, core ends them, because we start them with
 *   BGWORKER_INTERRUPTIBLE.  DROP DATABASE ... WITH (FORCE) is an exception: it first
 *   ends all sessions itself, and fails on our worker if the user is no superuser.
 * - Otherwise we ask them to leave before the command starts (leave.c).
 *
 * We do this only if the user may run the command.
 *
 * Other commands can turn the purge on or make documents purgeable.  Their commit,
 * or COMMIT PREPARED (prepared.c), wakes the launcher.
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
#include "utils/acl.h"
#include "utils/memutils.h"
#include "utils/syscache.h"

#include "purge/shared_internal.h"

/*
 * How long no worker is sent, if the session of the command does not end this
 * earlier.  Longer than any command waits for other sessions.
 */
#define KEEP_OUT_TIME	(60 * USECS_PER_SEC)

/* A running command that affects the purge */
typedef struct PurgeCommand
{
	struct PurgeCommand *outer; /* the command that runs this one, or NULL */
	PurgeDatabase *wanted;		/* the database that it needs without workers, or
								 * NULL */
	bool		is_forced;		/* DROP DATABASE ... WITH (FORCE) */
	bool		finishes_marked;	/* it may finish a transaction with a mark */
	bool		is_gone;		/* it has dropped the database */
} PurgeCommand;

static PurgeCommand *innermost_command = NULL;

static void announce_effects_of(Node *parsetree);
static Oid	wanted_database(Node *parsetree);
static bool is_forced_drop(Node *parsetree);
static const char *template_of(CreatedbStmt *stmt);
static bool sets_tablespace(AlterDatabaseStmt *stmt);
static bool may_copy(Oid database);

/*
 * A utility command begins.  Returns false if the purge has nothing more to do for
 * the command.  The PurgeCommand is allocated in TopMemoryContext, because the
 * command may commit.
 */
bool
ttl_docs_begin_purge_command(Node *parsetree)
{
	Oid			wanted = wanted_database(parsetree);
	PurgeDatabase *database = OidIsValid(wanted) ?
		ttl_docs_purge_database(wanted, false) : NULL;
	bool		finishes_marked = database == NULL && ttl_docs_finishes_marked(parsetree);
	PurgeCommand *command;

	announce_effects_of(parsetree);
	if (database == NULL && !finishes_marked)
		return false;
	command = MemoryContextAllocZero(TopMemoryContext, sizeof(PurgeCommand));
	command->outer = innermost_command;
	command->wanted = database;
	command->is_forced = is_forced_drop(parsetree);
	command->finishes_marked = finishes_marked;
	innermost_command = command;
	return true;
}

/* The command has succeeded. */
void
ttl_docs_purge_command_has_run(Node *parsetree)
{
	innermost_command->is_gone = IsA(parsetree, DropdbStmt);
	if (!innermost_command->finishes_marked)
		return;
	ttl_docs_announce_all();
	ttl_docs_wake_for_databases();
}

/* A command ends, also by an error: workers may enter the database again. */
void
ttl_docs_end_purge_command(void)
{
	PurgeCommand *command = innermost_command;

	/* the launcher removes the entry of a dropped database */
	if (command->wanted != NULL && !command->is_gone)
	{
		command->wanted->keep_out_until = 0;
		ttl_docs_wake_launcher(DT_NOBEGIN);
	}
	innermost_command = command->outer;
	pfree(command);
}

/* Announces, at commit, a command after which there may be something to purge. */
static void
announce_effects_of(Node *parsetree)
{
	switch (nodeTag(parsetree))
	{
		case T_CreatedbStmt:
		case T_DropdbStmt:
		case T_AlterDatabaseStmt:
		case T_AlterDatabaseSetStmt:
		case T_AlterRoleSetStmt:
			ttl_docs_announce_database_change();
			break;
		case T_CreateSubscriptionStmt:
		case T_AlterSubscriptionStmt:
		case T_DropSubscriptionStmt:
			ttl_docs_announce_change(InvalidOid);
			break;
		default:
			break;
	}
}

/*
 * The database that a command needs without other sessions, if the user may run the
 * command; InvalidOid for other commands.
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

static bool
is_forced_drop(Node *parsetree)
{
	ListCell   *lc;

	if (!IsA(parsetree, DropdbStmt))
		return false;
	foreach(lc, ((DropdbStmt *) parsetree)->options)
		if (strcmp(lfirst_node(DefElem, lc)->defname, "force") == 0)
			return true;
	return false;
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

/* May the user copy a database?  Users with CREATEDB may copy templates. */
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
 * Keeps new workers out of the database that the command needs, and has running ones
 * leave.
 */
void
ttl_docs_keep_workers_out(void)
{
	PurgeDatabase *database = innermost_command->wanted;
	Oid			oid;

	if (database == NULL)
		return;
	oid = database->database;
	LWLockAcquire(ttl_docs_purge_shared->lock, LW_EXCLUSIVE);
	database->keep_out_until = ttl_docs_elapsed() + KEEP_OUT_TIME;
	LWLockRelease(ttl_docs_purge_shared->lock);
	if (!COMPAT_CORE_ENDS_WORKERS || innermost_command->is_forced)
		ttl_docs_have_workers_leave(oid);
}
