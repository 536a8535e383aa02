/*
 * hook.c: a connected worker blocks DROP DATABASE and its kin: stop the workers of that database first, let them come back afterwards.
 * Statement → which database must be free, and may this role ask for it? → block → the statement → end of transaction → unblock.
 * COMMIT PREPARED brings rows without a commit callback of the transaction that wrote them: everybody looks.
 */
#include "worker/hook.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_class.h"
#include "catalog/pg_database.h"
#include "catalog/pg_extension.h"
#include "commands/dbcommands.h"
#include "commands/defrem.h"
#include "commands/extension.h"
#include "metadata/change_slot.h"
#include "miscadmin.h"
#include "nodes/value.h"
#include "tcop/utility.h"
#include "util/compat.h"
#include "util/wakeup.h"
#include "utils/acl.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"
#include "worker/dependent.h"
#include "worker/status.h"
#include "worker/worker.h"

static ProcessUtility_hook_type next_utility = NULL;
static object_access_hook_type next_access = NULL;
static bool blocking = false;		  /* in this transaction */
static bool extension_going = false; /* this database's, in this transaction */

/* ---- block and unblock ---- */

static void
unblock_at_end(XactEvent event, void *arg)
{
	Oid database;
	bool wanted;

	if (!blocking || (event != XACT_EVENT_COMMIT && event != XACT_EVENT_ABORT))
		return;
	blocking = extension_going = false;
	/* Whatever became of them: the launcher finds out whether a database is still there, a supervisor whether the extension is. */
	while (OidIsValid(database = status_unblock_database(&wanted)))
		if (wanted && worker_is_preloaded())
			worker_ask_supervisor(database);
}

static void
block(Oid database)
{
	static bool registered = false;

	if (worker_in_worker())
		ereport(ERROR, (errcode(ERRCODE_OBJECT_IN_USE), errmsg("a streaming query cannot drop or change what it runs in")));
	if (!registered)
		RegisterXactCallback(unblock_at_end, NULL);
	registered = blocking = true;
	extension_going = extension_going || database == MyDatabaseId;
	status_block_database(database);
}

/* ---- which database must be free ---- */

static bool
database_is_template(Oid database)
{
	HeapTuple tuple = SearchSysCache1(DATABASEOID, ObjectIdGetDatum(database));
	bool is_template = HeapTupleIsValid(tuple) && ((Form_pg_database) GETSTRUCT(tuple))->datistemplate;

	if (HeapTupleIsValid(tuple))
		ReleaseSysCache(tuple);
	return is_template;
}

static bool
may_create_databases(void)
{
	HeapTuple tuple = SearchSysCache1(AUTHOID, ObjectIdGetDatum(GetUserId()));
	bool may = superuser() || (HeapTupleIsValid(tuple) && ((Form_pg_authid) GETSTRUCT(tuple))->rolcreatedb);

	if (HeapTupleIsValid(tuple))
		ReleaseSysCache(tuple);
	return may;
}

/* Only who may do it anyway stops anybody's queries. */
static Oid
owned_database(const char *name)
{
	Oid database = name ? get_database_oid(name, true) : InvalidOid;

	return OidIsValid(database) && pg_database_ownercheck(database, GetUserId()) ? database : InvalidOid;
}

static char *
option_text(List *options, const char *name)
{
	ListCell *cell;

	foreach (cell, options)
	{
		DefElem *option = lfirst(cell);

		if (strcmp(option->defname, name) == 0 && option->arg)
			return defGetString(option);
	}
	return NULL;
}

static Oid
template_database(CreatedbStmt *stmt)
{
	char *name = option_text(stmt->options, "template");
	Oid database = get_database_oid(name ? name : "template1", true);

	if (!OidIsValid(database) || !may_create_databases())
		return InvalidOid;
	return database_is_template(database) || pg_database_ownercheck(database, GetUserId()) ? database : InvalidOid;
}

static bool
owns_extension(void)
{
	Oid extension = get_extension_oid("stream_ext", true);

	return OidIsValid(extension) && pg_extension_ownercheck(extension, GetUserId());
}

static bool
drops_extension(DropStmt *stmt)
{
	ListCell *cell;

	if (stmt->removeType != OBJECT_EXTENSION || !owns_extension())
		return false;
	foreach (cell, stmt->objects)
	{
		if (strcmp(strVal(lfirst(cell)), "stream_ext") == 0)
			return true;
	}
	return false;
}

static Oid
database_to_free(Node *stmt)
{
	switch (nodeTag(stmt))
	{
		case T_DropdbStmt:
			return owned_database(((DropdbStmt *) stmt)->dbname);
		case T_CreatedbStmt:
			return template_database((CreatedbStmt *) stmt);
		case T_AlterDatabaseStmt: /* moving to another tablespace */
			return option_text(((AlterDatabaseStmt *) stmt)->options, "tablespace") ? owned_database(((AlterDatabaseStmt *) stmt)->dbname)
																					: InvalidOid;
		case T_RenameStmt:
			return ((RenameStmt *) stmt)->renameType == OBJECT_DATABASE ? owned_database(((RenameStmt *) stmt)->subname) : InvalidOid;
		case T_AlterExtensionStmt: /* an update changes tables that workers have open, perhaps to those of another library */
			return strcmp(((AlterExtensionStmt *) stmt)->extname, "stream_ext") == 0 && owns_extension() ? MyDatabaseId : InvalidOid;
		case T_DropStmt:
			return drops_extension((DropStmt *) stmt) ? MyDatabaseId : InvalidOid;
		default:
			return InvalidOid;
	}
}

/* Statements after which queries can run that could not: their database is looked over again. */
static Oid
database_to_look_at(Node *stmt)
{
	switch (nodeTag(stmt))
	{
		case T_AlterDatabaseStmt:
			return option_text(((AlterDatabaseStmt *) stmt)->options, "allow_connections") ? owned_database(((AlterDatabaseStmt *) stmt)->dbname)
																							: InvalidOid;
		default:
			return InvalidOid;
	}
}

/* The new database may hold queries that say they run: its supervisor knows better. */
static void
copy_was_made(CreatedbStmt *stmt)
{
	char *template = option_text(stmt->options, "template");

	if (template && worker_is_preloaded() && strcmp(template, "template0") != 0 && strcmp(template, "template1") != 0)
		worker_ask_supervisor_at_commit(get_database_oid(stmt->dbname, true));
}

/* ---- hooks ---- */

static void
go_on(PlannedStmt *pstmt, const char *query, bool read_only_tree, ProcessUtilityContext context, ParamListInfo params, QueryEnvironment *env,
	  DestReceiver *dest, QueryCompletion *completion)
{
	ProcessUtility_hook_type next = next_utility ? next_utility : standard_ProcessUtility;

	next(pstmt, query, read_only_tree, context, params, env, dest, completion);
}

static void
hook_utility(PlannedStmt *pstmt, const char *query, bool read_only_tree, ProcessUtilityContext context, ParamListInfo params,
			 QueryEnvironment *env, DestReceiver *dest, QueryCompletion *completion)
{
	Node *stmt = pstmt->utilityStmt;
	bool in_transaction = IsTransactionState() && !IsAbortedTransactionBlockState();
	bool prepared = IsA(stmt, TransactionStmt) && ((TransactionStmt *) stmt)->kind == TRANS_STMT_COMMIT_PREPARED;
	Oid to_free = in_transaction ? database_to_free(stmt) : InvalidOid;
	Oid to_look_at = in_transaction ? database_to_look_at(stmt) : InvalidOid;
	List *named = in_transaction ? dependent_queries(stmt) : NIL;
	MemoryContext caller = CurrentMemoryContext;

	if (OidIsValid(to_free))
		block(to_free);
	if (OidIsValid(to_look_at))
		worker_ask_supervisor_at_commit(to_look_at);
	if (named == NIL)
		go_on(pstmt, query, read_only_tree, context, params, env, dest, completion);
	else
	{
		PG_TRY();
		{
			go_on(pstmt, query, read_only_tree, context, params, env, dest, completion);
		}
		PG_CATCH();
		{
			dependent_rethrow(named, caller);
		}
		PG_END_TRY();
	}
	if (prepared)
		wakeup_all();
	if (IsA(stmt, CreatedbStmt))
		copy_was_made((CreatedbStmt *) stmt);
}

/* The query whose view stream.query_<id> is about to go, 0: none. */
static int64
query_of_view(Oid relation)
{
	Oid schema = get_namespace_oid("stream", true);
	char *name;
	int64 id = 0;

	if (!OidIsValid(schema) || get_rel_namespace(relation) != schema || get_rel_relkind(relation) != RELKIND_VIEW ||
		!OidIsValid(get_extension_oid("stream_ext", true)) || !OidIsValid(get_relname_relid("query_run", schema)))
		return 0;
	name = get_rel_name(relation);
	return sscanf(name, "query_" INT64_FORMAT, &id) == 1 ? id : 0;
}

/* DROP SCHEMA … CASCADE, DROP OWNED and the like reach the extension, or what a query stands on, by dependency. */
static void
hook_access(ObjectAccessType access, Oid class, Oid object, int sub, void *arg)
{
	int64 query_id;

	if (next_access)
		next_access(access, class, object, sub, arg);
	if (access != OAT_DROP)
		return;
	if (class == ExtensionRelationId && object == get_extension_oid("stream_ext", true))
	{
		block(MyDatabaseId);
		change_slots_gone(); /* no objects that go by dependency */
	}
	else if (class == RelationRelationId && sub == 0 && !extension_going && (query_id = query_of_view(object)) != 0)
		worker_stop_for_good(query_id, ERRCODE_UNDEFINED_TABLE, "its view was dropped, with something it reads or with all its owner had");
}

void
hook_install(void)
{
	next_utility = ProcessUtility_hook;
	ProcessUtility_hook = hook_utility;
	next_access = object_access_hook;
	object_access_hook = hook_access;
}
