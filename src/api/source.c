/*
 * source.c: create_source, alter_source, drop_source: sugar over the DDL of foreign tables.
 * The user's column list is parsed as one CREATE FOREIGN TABLE and nothing else, so that pasted text cannot carry more.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/dependency.h"
#include "catalog/namespace.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "commands/defrem.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "foreign/foreign.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "parser/parser.h"
#include "api/source_columns.h"
#include "source/source.h"
#include "tcop/utility.h"
#include "util/closest.h"
#include "util/compat.h"
#include "util/options.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/jsonb.h"
#include "utils/acl.h"
#include "utils/lsyscache.h"
#include "utils/regproc.h"
#include "utils/timestamp.h"

PG_FUNCTION_INFO_V1(stream_create_source);
PG_FUNCTION_INFO_V1(stream_alter_source);
PG_FUNCTION_INFO_V1(stream_drop_source);

/* The pieces of the options argument. */
typedef struct SourceOptions
{
	List *table;  /* DefElem; without arg: to be removed (alter_source) */
	char *server; /* option server */
	Jsonb *paths; /* option paths: {"column": "dotted.path"} */
} SourceOptions;

static RangeVar *
source_range_var(const char *name)
{
	return makeRangeVarFromNameList(stringToQualifiedNameList(name));
}

/* As if it had been sent: event triggers see it. */
void
source_run_utility(Node *statement, const char *what)
{
	PlannedStmt *planned = makeNode(PlannedStmt);

	planned->commandType = CMD_UTILITY;
	planned->canSetTag = true;
	planned->utilityStmt = statement;
	planned->stmt_location = -1;
	ProcessUtility(planned, what, false, PROCESS_UTILITY_QUERY, NULL, NULL, None_Receiver, NULL);
	CommandCounterIncrement();
}

/* The next key of a JSON object with its value; false at the end. */
static bool
object_next(JsonbIterator **it, char **key, JsonbValue *value)
{
	JsonbIteratorToken token;

	while ((token = JsonbIteratorNext(it, value, true)) != WJB_DONE)
		if (token == WJB_KEY)
		{
			*key = pnstrdup(value->val.string.val, value->val.string.len);
			JsonbIteratorNext(it, value, true);
			return true;
		}
	return false;
}

static SourceOptions
options_split(Jsonb *json, bool altering)
{
	SourceOptions result = {NIL, NULL, NULL};
	JsonbIterator *it;
	JsonbValue v;
	char *name;

	if (!JB_ROOT_IS_OBJECT(json))
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("options of a source must be a JSON object")));
	it = JsonbIteratorInit(&json->root);
	while (object_next(&it, &name, &v))
	{
		char *value = jsonb_get_text(json, name);

		if (strcmp(name, "paths") == 0)
			result.paths = jsonb_get_object(json, name);
		else if (strcmp(name, "server") == 0)
			result.server = value;
		else if (value || altering)
			result.table = lappend(result.table, makeDefElem(name, value ? (Node *) makeString(value) : NULL, -1));
	}
	if (result.paths && !JB_ROOT_IS_OBJECT(result.paths))
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("option \"paths\" of a source must be a JSON object"),
						errdetail("It maps columns to dotted paths inside the document.")));
	return result;
}

/* "a int, b text" → the one statement it must be. */
CreateForeignTableStmt *
source_columns_parse(const char *columns)
{
	List *parsed = raw_parser(psprintf("CREATE FOREIGN TABLE source (%s\n) SERVER source", columns), RAW_PARSE_DEFAULT);
	CreateForeignTableStmt *stmt;

	if (list_length(parsed) != 1 || !IsA(linitial_node(RawStmt, parsed)->stmt, CreateForeignTableStmt))
		ereport(ERROR, (errcode(ERRCODE_SYNTAX_ERROR), errmsg("columns must be a column list as in CREATE TABLE")));
	stmt = (CreateForeignTableStmt *) linitial_node(RawStmt, parsed)->stmt;
	if (strcmp(stmt->servername, "source") != 0 || stmt->options != NIL || stmt->base.inhRelations != NIL || stmt->base.partbound != NULL ||
		stmt->base.ofTypename != NULL)
		ereport(ERROR, (errcode(ERRCODE_SYNTAX_ERROR), errmsg("columns must be a column list without further clauses")));
	return stmt;
}

static void
columns_add_paths(List *elements, Jsonb *paths, const char *source)
{
	JsonbIterator *it;
	JsonbValue v;
	char *column;

	if (paths == NULL)
		return;
	it = JsonbIteratorInit(&paths->root);
	while (object_next(&it, &column, &v))
	{
		ColumnDef *found = NULL;
		ListCell *lc;

		foreach (lc, elements)
			if (IsA(lfirst(lc), ColumnDef) && strcmp(lfirst_node(ColumnDef, lc)->colname, column) == 0)
				found = lfirst_node(ColumnDef, lc);
		if (found == NULL)
			ereport(ERROR, (errcode(ERRCODE_UNDEFINED_COLUMN),
							errmsg("option \"paths\" names column \"%s\", which source \"%s\" does not have", column, source)));
		if (v.type != jbvString)
			ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("path of column \"%s\" must be a string", column)));
		found->fdwoptions =
			lappend(found->fdwoptions, makeDefElem("path", (Node *) makeString(pnstrdup(v.val.string.val, v.val.string.len)), -1));
	}
}

static const SourceOps *
source_kind(const char *kind)
{
	const SourceOps *ops = source_lookup_kind(kind);

	if (ops == NULL)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("unknown kind of source \"%s\"", kind),
						errdetail("Kinds are: %s.", source_kinds()), closest_hint(kind, source_kinds())));
	return ops;
}

static void
server_check_kind(const SourceOps *ops, const char *server)
{
	const char *wrapper = GetForeignDataWrapper(GetForeignServerByName(server, false)->fdwid)->fdwname;

	if (strcmp(wrapper, ops->server) != 0)
		ereport(ERROR, (errcode(ERRCODE_WRONG_OBJECT_TYPE),
						errmsg("server \"%s\" is of foreign-data wrapper \"%s\", a %s source needs \"%s\"", server, wrapper, ops->kind, ops->server)));
}

static List *
event_time_options(List *options, const char *name, const char *event_time, const Interval *delay)
{
	char *text;

	if (event_time)
		options = lappend(options, makeDefElem("event_time", (Node *) makeString(pstrdup(event_time)), -1));
	if (delay == NULL)
		return options;
	text = DatumGetCString(DirectFunctionCall1(interval_out, IntervalPGetDatum(delay)));
	if (event_time == NULL)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("watermark_delay of source \"%s\" needs event_time", name),
						errhint("Name the column that holds the event time in event_time.")));
	if (options_interval_length(delay, "watermark_delay") < 0)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("watermark_delay of source \"%s\" is negative: %s", name, text),
						errdetail("A month counts as 31 days.")));
	return lappend(options, makeDefElem("watermark_delay", (Node *) makeString(text), -1));
}

/* A table that is read as a stream is not dropped from under its source. */
static void
source_depend(SourceDef *def)
{
	ObjectAddress source, base;
	Oid relid = def->ops->base_relation ? def->ops->base_relation(def) : InvalidOid;

	if (!OidIsValid(relid))
		return;
	ObjectAddressSet(source, RelationRelationId, def->relid);
	ObjectAddressSet(base, RelationRelationId, relid);
	recordDependencyOn(&source, &base, DEPENDENCY_NORMAL);
}

/* create_source(name, kind, columns, options, event_time, watermark_delay, if_not_exists) → regclass */
Datum
stream_create_source(PG_FUNCTION_ARGS)
{
	char *name, *columns;
	const SourceOps *ops;
	SourceOptions options = {NIL, NULL, NULL};
	CreateForeignTableStmt *stmt;
	Oid relid;

	if (PG_ARGISNULL(0) || PG_ARGISNULL(1))
		ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("name and kind of a source must not be null")));
	name = text_to_cstring(PG_GETARG_TEXT_PP(0));
	ops = source_kind(text_to_cstring(PG_GETARG_TEXT_PP(1)));
	columns = PG_ARGISNULL(2) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(2));
	if (!PG_ARGISNULL(3))
		options = options_split(PG_GETARG_JSONB_P(3), false);
	if (options.server)
		server_check_kind(ops, options.server);
	relid = RangeVarGetRelid(source_range_var(name), NoLock, true);
	if (OidIsValid(relid))
	{
		bool skip = !PG_ARGISNULL(6) && PG_GETARG_BOOL(6);

		ereport(skip ? NOTICE : ERROR,
				(errcode(ERRCODE_DUPLICATE_TABLE), errmsg("relation \"%s\" already exists%s", name, skip ? ", skipping" : "")));
		PG_RETURN_OID(relid);
	}
	options.table = event_time_options(options.table, name, PG_ARGISNULL(4) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(4)),
									   PG_ARGISNULL(5) ? NULL : PG_GETARG_INTERVAL_P(5));
	if (ops->prepare)
		columns = ops->prepare(name, options.table, columns);
	if (columns == NULL)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("a %s source needs columns", ops->kind),
						errhint("Give a column list as in CREATE TABLE: 'id bigint, amount numeric'.")));
	stmt = source_columns_parse(columns);
	columns_add_paths(stmt->base.tableElts, options.paths, name);
	stmt->base.relation = source_range_var(name);
	stmt->servername = options.server ? options.server : pstrdup(ops->server);
	stmt->options = options.table;
	source_run_utility((Node *) stmt, "stream.create_source");
	relid = RangeVarGetRelid(source_range_var(name), NoLock, false);
	source_depend(source_load(relid));
	PG_RETURN_OID(relid);
}

static Oid
source_relid(const char *name, bool missing_ok)
{
	Oid relid = RangeVarGetRelid(source_range_var(name), NoLock, true);

	if (!OidIsValid(relid) && missing_ok)
		return InvalidOid;
	if (!OidIsValid(relid))
		ereport(ERROR, (errcode(ERRCODE_UNDEFINED_TABLE), errmsg("source \"%s\" does not exist", name)));
	if (!source_is_stream(relid))
		ereport(ERROR, (errcode(ERRCODE_WRONG_OBJECT_TYPE), errmsg("\"%s\" is not a source", name)));
	return relid;
}

static void
source_check_owner(Oid relid)
{
	if (!pg_class_ownercheck(relid, GetUserId()))
		aclcheck_error(ACLCHECK_NOT_OWNER, OBJECT_FOREIGN_TABLE, get_rel_name(relid));
}

static void
options_set_actions(List *options, List *present)
{
	ListCell *lc, *lc2;

	foreach (lc, options)
	{
		DefElem *def = lfirst_node(DefElem, lc);
		bool exists = false;

		foreach (lc2, present)
			exists = exists || strcmp(lfirst_node(DefElem, lc2)->defname, def->defname) == 0;
		def->defaction = def->arg == NULL ? DEFELEM_DROP : exists ? DEFELEM_SET : DEFELEM_ADD;
	}
}

static AlterTableCmd *
alter_command(AlterTableType type, char *column, List *options)
{
	AlterTableCmd *cmd = makeNode(AlterTableCmd);

	cmd->subtype = type;
	cmd->name = column;
	cmd->def = (Node *) options;
	return cmd;
}

static List *
alter_path_commands(Oid relid, Jsonb *paths)
{
	List *cmds = NIL;
	JsonbIterator *it;
	JsonbValue v;
	char *column;

	if (paths == NULL)
		return NIL;
	it = JsonbIteratorInit(&paths->root);
	while (object_next(&it, &column, &v))
	{
		AttrNumber attno = get_attnum(relid, column);
		char *path = v.type == jbvString ? pnstrdup(v.val.string.val, v.val.string.len) : NULL;
		List *option;

		if (attno <= 0)
			ereport(ERROR, (errcode(ERRCODE_UNDEFINED_COLUMN), errmsg("option \"paths\" names column \"%s\", which the source does not have", column)));
		option = list_make1(makeDefElem("path", path ? (Node *) makeString(path) : NULL, -1));
		options_set_actions(option, GetForeignColumnOptions(relid, attno));
		cmds = lappend(cmds, alter_command(AT_AlterColumnGenericOptions, column, option));
	}
	return cmds;
}

List *
source_readers(Oid relid)
{
	static const char *const sql =
		"SELECT q.name FROM stream.query q "
		"WHERE EXISTS (SELECT FROM pg_catalog.pg_depend d JOIN pg_catalog.pg_rewrite r ON r.oid OPERATOR(pg_catalog.=) d.objid "
		"JOIN pg_catalog.pg_class c ON c.oid OPERATOR(pg_catalog.=) r.ev_class "
		"WHERE d.classid OPERATOR(pg_catalog.=) 'pg_catalog.pg_rewrite'::pg_catalog.regclass "
		"AND d.refclassid OPERATOR(pg_catalog.=) 'pg_catalog.pg_class'::pg_catalog.regclass AND d.refobjid OPERATOR(pg_catalog.=) $1 "
		"AND c.relnamespace OPERATOR(pg_catalog.=) 'stream'::pg_catalog.regnamespace "
		"AND c.relname OPERATOR(pg_catalog.=) ('query_' OPERATOR(pg_catalog.||) q.id::pg_catalog.text)) ORDER BY q.name";
	Oid types[] = {OIDOID};
	Datum args[] = {ObjectIdGetDatum(relid)};
	MemoryContext caller = CurrentMemoryContext;
	Oid user;
	int context;
	List *names = NIL;

	/* Our own statement over our own catalog, which the user may not read. */
	GetUserIdAndSecContext(&user, &context);
	SetUserIdAndSecContext(BOOTSTRAP_SUPERUSERID, context | SECURITY_LOCAL_USERID_CHANGE | SECURITY_RESTRICTED_OPERATION);
	SPI_connect();
	SPI_execute_with_args(sql, 1, types, args, NULL, false, 0); /* not read-only: what this statement has done so far counts */
	for (uint64 i = 0; i < SPI_processed; i++)
	{
		char *name = SPI_getvalue(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, 1);
		MemoryContext old = MemoryContextSwitchTo(caller);

		names = lappend(names, pstrdup(name));
		MemoryContextSwitchTo(old);
	}
	SPI_finish();
	SetUserIdAndSecContext(user, context);
	return names;
}

/* alter_source(name, options, columns) */
Datum
stream_alter_source(PG_FUNCTION_ARGS)
{
	char *name = PG_ARGISNULL(0) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(0));
	SourceOptions options = {NIL, NULL, NULL};
	Oid relid;
	AlterTableStmt *stmt = makeNode(AlterTableStmt);

	if (name == NULL)
		ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("name of a source must not be null")));
	if (!PG_ARGISNULL(1))
		options = options_split(PG_GETARG_JSONB_P(1), true);
	relid = source_relid(name, false);
	source_check_owner(relid);
	if (options.server)
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED), errmsg("the server of source \"%s\" cannot be changed", name),
						errhint("Change the server's own options with ALTER SERVER, or make a new source.")));
	if (!PG_ARGISNULL(2))
		source_change_columns(relid, source_range_var(name), source_columns_parse(text_to_cstring(PG_GETARG_TEXT_PP(2)))->base.tableElts);
	options_set_actions(options.table, GetForeignTable(relid)->options);
	stmt->relation = source_range_var(name);
	stmt->objtype = OBJECT_FOREIGN_TABLE;
	if (options.table)
		stmt->cmds = list_make1(alter_command(AT_GenericOptions, NULL, options.table));
	stmt->cmds = list_concat(stmt->cmds, alter_path_commands(relid, options.paths));
	if (stmt->cmds != NIL)
		source_run_utility((Node *) stmt, "stream.alter_source");
	/* What it depended on no longer counts: the options say what it reads. A table that it inherits from is another matter. */
	if (!has_superclass(relid))
		deleteDependencyRecordsForClass(RelationRelationId, relid, RelationRelationId, DEPENDENCY_NORMAL);
	CommandCounterIncrement();
	source_depend(source_load(relid));
	PG_RETURN_VOID();
}

static char *
names_list(List *names)
{
	StringInfoData list;
	ListCell *lc;

	initStringInfo(&list);
	foreach (lc, names)
		appendStringInfo(&list, "%s%s", list.len ? ", " : "", quote_identifier(lfirst(lc)));
	return list.data;
}

/* drop_source(name, if_exists) */
Datum
stream_drop_source(PG_FUNCTION_ARGS)
{
	char *name = text_to_cstring(PG_GETARG_TEXT_PP(0));
	Oid relid = source_relid(name, PG_GETARG_BOOL(1));
	List *readers;
	DropStmt *stmt;

	if (!OidIsValid(relid))
	{
		ereport(NOTICE, (errmsg("source \"%s\" does not exist, skipping", name)));
		PG_RETURN_VOID();
	}
	source_check_owner(relid);
	readers = source_readers(relid);
	if (readers)
		ereport(ERROR, (errcode(ERRCODE_DEPENDENT_OBJECTS_STILL_EXIST), errmsg("source \"%s\" is read by streaming queries: %s", name, names_list(readers)),
						errhint("Drop those queries first with stream.drop_query.")));
	stmt = makeNode(DropStmt);
	stmt->objects = list_make1(stringToQualifiedNameList(name));
	stmt->removeType = OBJECT_FOREIGN_TABLE;
	stmt->behavior = DROP_RESTRICT;
	source_run_utility((Node *) stmt, "stream.drop_source");
	PG_RETURN_VOID();
}
