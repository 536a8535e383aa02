/*
 * source_columns.c: schema evolution: columns of a source are added, or change their type. Postgres changes no column that a view uses, and a query is
 * one: its view goes, and is made again from the text as it was written, checked against the saved state as alter_query does.
 */
#include "api/source_columns.h"

#include "api/query.h"
#include "foreign/foreign.h"
#include "nodes/makefuncs.h"
#include "parser/parse_type.h"
#include "source/source.h"
#include "utils/lsyscache.h"

static void
check_may_change(Oid relid)
{
	SourceDef *def = source_load(relid);

	if (def->ops->base_relation && OidIsValid(def->ops->base_relation(def)))
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED), errmsg("columns of source %s cannot be changed", def->name),
						errdetail("They are those of the table it reads."),
						errhint("Make a new source, and give the query its text with stream.alter_query().")));
}

/* Has it another type than the column that is there? */
static bool
changes_type(Oid relid, AttrNumber attno, ColumnDef *column)
{
	Oid type, old_type, old_collation;
	int32 typmod, old_typmod;

	if (column->constraints != NIL || column->fdwoptions != NIL || column->raw_default)
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED), errmsg("column \"%s\" is there already: only its type can be changed", column->colname),
						errhint("For the rest there is ALTER FOREIGN TABLE … ALTER COLUMN; paths are an option of the source.")));
	typenameTypeIdAndMod(NULL, column->typeName, &type, &typmod);
	get_atttypetypmodcoll(relid, attno, &old_type, &old_typmod, &old_collation);
	return type != old_type || typmod != old_typmod;
}

static AlterTableCmd *
column_command(Oid relid, ColumnDef *column)
{
	AttrNumber attno = get_attnum(relid, column->colname);
	AlterTableCmd *cmd = makeNode(AlterTableCmd);

	cmd->def = (Node *) column;
	cmd->name = column->colname;
	cmd->subtype = attno == InvalidAttrNumber ? AT_AddColumn : AT_AlterColumnType;
	return attno == InvalidAttrNumber || changes_type(relid, attno, column) ? cmd : NULL;
}

/* Their views are gone when this returns; they stay locked. */
static List *
queries_take_apart(Oid relid)
{
	List *queries = NIL;
	ListCell *lc;

	foreach (lc, source_readers(relid))
	{
		StreamQuery *query = query_load(lfirst(lc), false);

		query_check_owner(query);
		query_check_stopped(query);
		query_view_drop(query);
		queries = lappend(queries, query);
	}
	return queries;
}

void
source_change_columns(Oid relid, RangeVar *source, List *columns)
{
	AlterTableStmt *stmt = makeNode(AlterTableStmt);
	List *queries = NIL;
	bool types = false;
	ListCell *lc;

	check_may_change(relid);
	stmt->relation = source;
	stmt->objtype = OBJECT_FOREIGN_TABLE;
	foreach (lc, columns)
	{
		AlterTableCmd *cmd;

		if (!IsA(lfirst(lc), ColumnDef))
			ereport(ERROR, (errcode(ERRCODE_SYNTAX_ERROR), errmsg("columns of a source must be columns, without table constraints")));
		cmd = column_command(relid, lfirst_node(ColumnDef, lc));
		types = types || (cmd && cmd->subtype == AT_AlterColumnType);
		if (cmd)
			stmt->cmds = lappend(stmt->cmds, cmd);
	}
	if (stmt->cmds == NIL)
		return;
	if (types)
		queries = queries_take_apart(relid);
	source_run_utility((Node *) stmt, "stream.alter_source");
	foreach (lc, queries)
		query_make_again(lfirst(lc));
}
