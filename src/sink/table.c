/*
 * table.c: the table sink. The last stage becomes a part of one INSERT … SELECT [ON CONFLICT DO UPDATE], run by Postgres's executor: nothing is
 * materialised, and triggers, partitions, constraints and row security of the target hold as for any INSERT by the query's owner. Rows for a plain
 * table go there many at a time instead (bulk.c), after those with their keys have been updated (replace.c).
 * Same transaction as the commit entry: exactly once.
 */
#include "sink/sink.h"

#include "executor/executor.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "parser/parser.h"
#include "sink/bulk.h"
#include "sink/change.h"
#include "sink/divert.h"
#include "sink/retraction.h"
#include "tcop/tcopprot.h"
#include "util/compat.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/queryenvironment.h"

#define ROWS_NAME "stream_sink_rows" /* stands for the last stage until its Query takes the place */

typedef struct TableSink
{
	Sink base;
	Target *target;
	Retraction *retraction; /* NULL: rows stay */
	Divert *divert;	  /* NULL: a row that does not fit fails the batch */
	Bulk *bulk;		  /* NULL: the executor inserts and updates */
	Change *change;	  /* rows are changes; NULL: rows */
	MemoryContextCallback plans_release;
} TableSink;

/* ---- the statement ---- */

/* Columns c1 … cn of the rows, whatever the query calls them: its names may repeat or be missing. */
static char *
row_columns(int n, const char *alias)
{
	StringInfoData buf;

	initStringInfo(&buf);
	for (int i = 1; i <= n; i++)
		appendStringInfo(&buf, "%s%s.c%d", i > 1 ? ", " : "", alias, i);
	return buf.data;
}

/* DO UPDATE SET of everything that is no key; the batch id always moves on. */
static char *
conflict_clause(Target *target)
{
	StringInfoData buf;
	ListCell *lc;
	bool any = false;

	initStringInfo(&buf);
	appendStringInfo(&buf, " ON CONFLICT (%s) DO ", target->key ? target_column_list(target->key) : "(1)");
	foreach (lc, target->columns)
		if (!list_member(target->key, lfirst(lc)))
		{
			const char *column = quote_identifier(strVal(lfirst(lc)));

			appendStringInfo(&buf, "%s%s = EXCLUDED.%s", any ? ", " : "UPDATE SET ", column, column);
			any = true;
		}
	if (target->batch_id)
	{
		const char *column = quote_identifier(target->batch_id);

		appendStringInfo(&buf, "%s%s = EXCLUDED.%s", any ? ", " : "UPDATE SET ", column, column);
		any = true;
	}
	if (!any)
		appendStringInfoString(&buf, "NOTHING"); /* all columns are key: the row is there already */
	return buf.data;
}

/* Key columns of the rows, as c1 … cn. */
static char *
folded_key(Target *target, const char *alias)
{
	StringInfoData buf;
	ListCell *lc;

	initStringInfo(&buf);
	foreach (lc, target->key)
	{
		int column = 0;

		while (!equal(list_nth(target->columns, column), lfirst(lc)))
			column++;
		appendStringInfo(&buf, "%s%s.c%d", buf.len ? ", " : "", alias, column + 1);
	}
	return buf.data;
}

static char *
statement_text(Target *target, SinkShape *shape)
{
	int n = shape->desc->natts;
	bool fold = target->upsert && target->key != NIL && !target->key_is_shape_key;
	StringInfoData sql;

	if (target->op)
		return change_statement(target, shape, ROWS_NAME);
	initStringInfo(&sql);
	appendStringInfo(&sql, "INSERT INTO %s (%s", target->name, target_column_list(target->columns));
	if (target->batch_id)
		appendStringInfo(&sql, "%s%s", n ? ", " : "", quote_identifier(target->batch_id));
	appendStringInfoString(&sql, ") SELECT ");
	/* One statement cannot touch a row twice: of several rows with one key of the user's choice the last to arrive wins. Groups with one key are an error. */
	if (fold)
		appendStringInfo(&sql, "DISTINCT ON (%s) ", folded_key(target, "r"));
	appendStringInfoString(&sql, row_columns(n, "r"));
	if (target->batch_id)
		appendStringInfo(&sql, "%s$%d", n ? ", " : "", STREAM_PARAM_BATCH_ID);
	if (fold)
		appendStringInfo(&sql, " FROM (SELECT %s, pg_catalog.row_number() OVER () AS arrival FROM " ROWS_NAME " s) r ORDER BY %s, r.arrival DESC",
						 row_columns(n, "s"), folded_key(target, "r"));
	else
		appendStringInfoString(&sql, " FROM " ROWS_NAME " r");
	if (target->upsert)
		appendStringInfoString(&sql, conflict_clause(target));
	return sql.data;
}

typedef struct StatementContext
{
	const char *sql;
	SinkDef *def;
} StatementContext;

/* The position points into our statement, not into the user's. */
static void
statement_error_context(void *arg)
{
	StatementContext *context = arg;
	int position = geterrposition();

	if (position > 0)
	{
		errposition(0);
		internalerrposition(position);
		internalerrquery(context->sql);
	}
	errcontext("table sink of query \"%s\"", context->def->query_name);
}

static TupleDesc
rows_desc(SinkShape *shape)
{
	TupleDesc desc = CreateTupleDescCopy(shape->desc);

	for (int i = 0; i < desc->natts; i++)
		namestrcpy(&TupleDescAttr(desc, i)->attname, psprintf("c%d", i + 1));
	return desc;
}

static Query *
statement_analyse(Target *target, SinkDef *def, SinkShape *shape)
{
	static const Oid params[STREAM_PARAM_COUNT] = {TIMESTAMPTZOID, INT8OID, TIMESTAMPTZOID};
	QueryEnvironment *env = create_queryEnv();
	EphemeralNamedRelation rows = palloc0(sizeof(EphemeralNamedRelationData));
	StatementContext context = {statement_text(target, shape), def};
	ErrorContextCallback callback = {error_context_stack, statement_error_context, &context};
	List *queries;
	Query *query;

	error_context_stack = &callback;
	rows->md.name = ROWS_NAME;
	rows->md.reliddesc = InvalidOid;
	rows->md.tupdesc = rows_desc(shape);
	rows->md.enrtype = ENR_NAMED_TUPLESTORE;
	rows->md.enrtuples = 1000;
	register_ENR(env, rows);
	queries = pg_analyze_and_rewrite_fixedparams(linitial_node(RawStmt, pg_parse_query(context.sql)), context.sql, params, STREAM_PARAM_COUNT, env);
	query = linitial_node(Query, queries);
	/* INSERT, and UPDATE and DELETE where rows are replaced and leave; the executor checks again in every batch. */
	compat_check_permissions(query);
	error_context_stack = callback.previous;
	return query;
}

/* Puts the last stage where the statement reads ROWS_NAME. */
static bool
rows_replace(Query *query, Query *final)
{
	ListCell *lc;

	foreach (lc, query->rtable)
	{
		RangeTblEntry *rte = lfirst_node(RangeTblEntry, lc);

		if (rte->rtekind == RTE_SUBQUERY && rows_replace(rte->subquery, final))
			return true;
		if (rte->rtekind == RTE_NAMEDTUPLESTORE && strcmp(rte->enrname, ROWS_NAME) == 0)
		{
			rte->rtekind = RTE_SUBQUERY;
			rte->subquery = final;
			rte->enrname = NULL;
			rte->enrtuples = 0;
			rte->coltypes = rte->coltypmods = rte->colcollations = NIL;
			return true;
		}
	}
	return false;
}

/* ---- callbacks ---- */

static void
to_table_create(SinkDef *def, SinkShape *shape)
{
	Target *target = target_describe(def, shape);

	change_check(target, def, shape);
	if (!target_find(target, def, shape, true))
		target_make(target, def, shape);
	if (target->upsert)
		target_check_key(target, def, true);
	target_check_delete(target, shape);
	if (shape->retracts && !target->retracts)
		sink_note_staying_rows();
	(void) statement_analyse(target, def, shape);
	def->target = target->name;
}

static void
plans_release(void *arg)
{
	TableSink *sink = arg;

	if (sink->retraction)
		retraction_free(sink->retraction);
	if (sink->divert)
		divert_free(sink->divert);
	if (sink->change)
		change_free(sink->change);
	target_release(sink->target);
}

static Sink *
to_table_open(SinkDef *def, SinkShape *shape)
{
	TableSink *sink = (TableSink *) sink_make(sizeof(TableSink), &table_sink, def, shape);

	sink->target = target_describe(def, shape);
	target_find(sink->target, def, shape, false);
	sink->base.outside = sink->target->outside;
	if (sink->target->upsert)
		target_check_key(sink->target, def, false);
	sink->retraction = retraction_create(sink->target, shape);
	change_check(sink->target, def, shape);
	if (sink->target->op)
		sink->change = change_create(&sink->base, sink->target, ROWS_NAME, rows_desc(shape));
	else if (sink->target->divert)
		sink->divert = divert_create(&sink->base, false, statement_text(sink->target, shape), ROWS_NAME, rows_desc(shape));
	sink->plans_release.func = plans_release;
	sink->plans_release.arg = sink;
	MemoryContextRegisterResetCallback(CurrentMemoryContext, &sink->plans_release);
	return &sink->base;
}

static Query *
to_table_wrap(Sink *base, Query *final)
{
	TableSink *sink = (TableSink *) base;
	Query *query;

	if (sink->divert || sink->change)
		return NULL;
	query = statement_analyse(sink->target, base->def, base->shape);
	if (!rows_replace(query, final))
		ereport(ERROR, (errcode(ERRCODE_INTERNAL_ERROR), errmsg("statement of query \"%s\" does not read its rows", base->def->query_name)));
	sink->bulk = bulk_create(query);
	return query;
}

static void
to_table_begin(Sink *base, const BatchInfo *batch)
{
	TableSink *sink = (TableSink *) base;

	if (base->shape->mode == OUTPUT_COMPLETE)
		target_clear(sink->target);
	target_take_back(sink->target, base->def, batch);
	if (sink->divert)
		divert_begin(sink->divert);
	if (sink->change)
		change_begin(sink->change);
	if (sink->bulk)
		bulk_begin(sink->bulk);
}

/* Rows of the target where many are inserted at once. Else only where bad rows are put aside, and for changes: the last stage is part of the INSERT. */
static void
to_table_receive(Sink *base, TupleTableSlot *slot)
{
	TableSink *sink = (TableSink *) base;

	if (sink->bulk)
		bulk_receive(sink->bulk, slot);
	else if (sink->change)
		change_receive(sink->change, slot);
	else
		divert_receive(sink->divert, slot);
}

static void
to_table_retract(Sink *base, TupleTableSlot *slot)
{
	TableSink *sink = (TableSink *) base;

	if (sink->retraction)
		retraction_run(sink->retraction, slot);
}

static void
to_table_finish(Sink *base)
{
	TableSink *sink = (TableSink *) base;

	if (sink->divert)
		divert_finish(sink->divert);
	if (sink->change)
		change_finish(sink->change);
	if (sink->bulk)
		bulk_finish(sink->bulk);
}

static void
to_table_close(Sink *base)
{
	plans_release(base);
}

static Oid
to_table_target_relation(Sink *base)
{
	return ((TableSink *) base)->target->relid;
}

/* Does the target hold what came with a later batch, or could it? */
static bool
target_is_ahead(Target *target, int64 batch_id)
{
	Oid types[] = {INT8OID};
	Datum values[] = {Int64GetDatum(batch_id)};
	char *later = target->batch_id ? psprintf(" WHERE %s OPERATOR(pg_catalog.>) $1", quote_identifier(target->batch_id)) : "";

	if (SPI_execute_with_args(psprintf("SELECT 1 FROM %s%s LIMIT 1", target->name, later), target->batch_id ? lengthof(types) : 0, types, values, NULL, true,
							  1) != SPI_OK_SELECT)
		ereport(ERROR, (errcode(ERRCODE_INTERNAL_ERROR), errmsg("could not read target %s", target->name)));
	return SPI_processed > 0;
}

static void
take_later_rows(Target *target, int64 batch_id)
{
	Oid types[] = {INT8OID};
	Datum values[] = {Int64GetDatum(batch_id)};

	if (SPI_execute_with_args(psprintf("DELETE FROM %s WHERE %s OPERATOR(pg_catalog.>) $1", target->name, quote_identifier(target->batch_id)), lengthof(types), types, values, NULL,
							  false, 0) != SPI_OK_DELETE)
		ereport(ERROR, (errcode(ERRCODE_INTERNAL_ERROR), errmsg("could not take rows out of target %s", target->name)));
}

/* Rows that were only added are found by the batch that added them. What rows were before later batches replaced them, nobody knows. */
static void
to_table_rewind(SinkDef *def, SinkShape *shape, int64 batch_id)
{
	Target *target = target_describe(def, shape);
	bool replaces;

	(void) target_find(target, def, shape, false);
	replaces = shape->mode == OUTPUT_COMPLETE || target->upsert;
	if (SPI_connect() != SPI_OK_CONNECT)
		ereport(ERROR, (errcode(ERRCODE_INTERNAL_ERROR), errmsg("could not read target %s", target->name)));
	if (!replaces && target->batch_id)
		take_later_rows(target, batch_id);
	else if (target_is_ahead(target, batch_id))
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						target->batch_id ? errmsg("query \"%s\" cannot be rewound: target %s holds rows of later batches", def->query_name, target->name)
										 : errmsg("query \"%s\" cannot be rewound: target %s does not tell which batch a row came with", def->query_name, target->name),
						replaces ? errdetail("Its rows replace each other; what they were before is not known.")
								 : errdetail("Rows of later batches would come a second time."),
						target->batch_id ? errhint("Delete the rows with %s above " INT64_FORMAT " first: the batches write them again. Or start afresh with stream.reset_query.",
												   quote_identifier(target->batch_id), batch_id)
										 : errhint("Empty the target first, or give the query another sink.")));
	SPI_finish();
}

static char *
to_table_describe(SinkDef *def)
{
	return psprintf("table %s", def->target);
}

const SinkOps table_sink = {
	.kind = "table",
	.needs_target = true,
	.in_database = true,
	.in_pieces = sink_always_in_pieces,
	.create = to_table_create,
	.open = to_table_open,
	.wrap = to_table_wrap,
	.begin = to_table_begin,
	.receive = to_table_receive,
	.retract = to_table_retract,
	.finish = to_table_finish,
	.close = to_table_close,
	.target_relation = to_table_target_relation,
	.rewind = to_table_rewind,
	.describe = to_table_describe,
};
