/*
 * view.c: a query's SELECT is kept as a view stream.query_<id> owned by the query's owner: renames are followed, what it uses cannot be dropped,
 * pg_dump orders it. The text is analysed as the owner; only the finished tree is stored with more rights, so no name is looked up with them.
 */
#include "api/query.h"

#include "access/xact.h"
#include "catalog/dependency.h"
#include "catalog/namespace.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_class.h"
#include "commands/tablecmds.h"
#include "commands/view.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "parser/analyze.h"
#include "parser/parse_relation.h"
#include "parser/parser.h"
#include "tcop/tcopprot.h"
#include "utils/lsyscache.h"

/* Positions in the query's text, not in the statement that brought it. */
static void
text_position_callback(void *text)
{
	int position = geterrposition();

	if (position <= 0)
		return;
	errposition(0);
	internalerrposition(position);
	internalerrquery(text);
}

static Query *
text_analyze(const char *text)
{
	List *parsed = pg_parse_query(text);
	RawStmt *raw;
	Query *query;

	if (list_length(parsed) != 1)
		ereport(ERROR, (errcode(ERRCODE_SYNTAX_ERROR), errmsg("the text of a streaming query must be one SELECT, not %d statements", list_length(parsed))));
	raw = linitial_node(RawStmt, parsed);
	if (!IsA(raw->stmt, SelectStmt))
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED), errmsg("a streaming query must be a SELECT"),
						errhint("Rows go where the sink says: INSERT and the like are not needed.")));
	if (((SelectStmt *) raw->stmt)->intoClause)
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED), errmsg("a streaming query cannot be SELECT INTO"),
						errhint("Use stream.to_table() as the sink.")));
	query = parse_analyze_fixedparams(raw, text, NULL, 0, NULL);
	if (query->hasModifyingCTE)
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED), errmsg("data-modifying statement in WITH is not supported in a streaming query"),
						errhint("Write to tables with a sink, or with stream.to_function.")));
	if (isQueryUsingTempRelation(query))
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED), errmsg("a streaming query cannot use temporary relations"),
						errdetail("It outlives the session."), errhint("Use an ordinary table, or an unlogged one.")));
	return query;
}

Query *
query_text_analyze(const char *text)
{
	ErrorContextCallback callback = {.callback = text_position_callback, .arg = unconstify(char *, text), .previous = error_context_stack};
	Query *query;

	error_context_stack = &callback;
	query = text_analyze(text);
	error_context_stack = callback.previous;
	return query;
}

static List *
view_columns(Query *tree)
{
	List *columns = NIL;
	ListCell *lc;

	foreach (lc, tree->targetList)
	{
		TargetEntry *te = lfirst_node(TargetEntry, lc);

		if (!te->resjunk)
			columns = lappend(columns, makeColumnDef(te->resname, exprType((Node *) te->expr), exprTypmod((Node *) te->expr),
													 exprCollation((Node *) te->expr)));
	}
	if (columns == NIL)
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED), errmsg("a streaming query needs at least one output column")));
	return columns;
}

static char *
view_name(StreamQuery *query)
{
	return psprintf("query_" INT64_FORMAT, query->id);
}

void
query_view_create(StreamQuery *query, Query *tree)
{
	CreateStmt *create = makeNode(CreateStmt);
	ObjectAddress address;
	Oid user;
	int context;

	create->relation = makeRangeVar("stream", view_name(query), -1);
	create->tableElts = view_columns(tree);
	create->oncommit = ONCOMMIT_NOOP;
	/* The schema is the extension's: making a relation in it takes its owner's rights. Nothing of the user's is evaluated meanwhile. */
	GetUserIdAndSecContext(&user, &context);
	SetUserIdAndSecContext(BOOTSTRAP_SUPERUSERID, context | SECURITY_LOCAL_USERID_CHANGE | SECURITY_RESTRICTED_OPERATION);
	address = DefineRelation(create, RELKIND_VIEW, query->owner, NULL, NULL);
	CommandCounterIncrement();
	StoreViewQuery(address.objectId, copyObject(tree), false);
	CommandCounterIncrement();
	SetUserIdAndSecContext(user, context);
	query->view = address.objectId;
}

void
query_view_drop(StreamQuery *query)
{
	ObjectAddress address;
	Oid user;
	int context;

	if (!OidIsValid(query->view))
		return;
	ObjectAddressSet(address, RelationRelationId, query->view);
	GetUserIdAndSecContext(&user, &context);
	SetUserIdAndSecContext(BOOTSTRAP_SUPERUSERID, context | SECURITY_LOCAL_USERID_CHANGE | SECURITY_RESTRICTED_OPERATION);
	performDeletion(&address, DROP_RESTRICT, 0);
	CommandCounterIncrement();
	SetUserIdAndSecContext(user, context);
	query->view = InvalidOid;
}
