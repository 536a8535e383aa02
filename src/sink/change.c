/*
 * change.c: changes of a batch → a tuplestore → one MERGE: the last change of each key decides whether its row is written or leaves.
 * A truncate forgets what came before it in the batch and empties the target first.
 * Danger: the order of changes is the order in which rows arrive here; nothing between source and sink may disturb it for one key.
 */
#include "sink/change.h"

#include "catalog/pg_type.h"
#include "fmgr.h"
#include "nodes/value.h"
#include "sink/divert.h"
#include "util/change_op.h"
#include "utils/builtins.h"

PG_FUNCTION_INFO_V1(stream_last_known);

struct Change
{
	Sink *sink;
	Target *target;
	Divert *divert;
	int op;	  /* of the row, 0-based */
	int nkey; /* NULL is no key */
	int *key;
	bool emptied; /* a truncate came with the batch */
};

/* ---- options ---- */

/* 0-based; -1: not a column of the query. */
static int
column_number(SinkShape *shape, const char *name)
{
	for (int i = 0; i < shape->desc->natts; i++)
		if (strcmp(NameStr(TupleDescAttr(shape->desc, i)->attname), name) == 0)
			return i;
	return -1;
}

static void
check_column(SinkDef *def, Target *target, SinkShape *shape, const char *option, const char *name, Oid type, Oid other_type)
{
	int i = column_number(shape, name);
	Oid is = i < 0 ? InvalidOid : TupleDescAttr(shape->desc, i)->atttypid;

	if (i < 0)
		ereport(ERROR, (errcode(ERRCODE_UNDEFINED_COLUMN),
						errmsg("option \"%s\" names column \"%s\", which query \"%s\" does not have", option, name, def->query_name)));
	if (is != type && is != other_type)
		ereport(ERROR, (errcode(ERRCODE_DATATYPE_MISMATCH),
						errmsg("column \"%s\" of query \"%s\" is of type %s", name, def->query_name, format_type_be(is)),
						errdetail("The table sink's option \"%s\" needs a column of type %s.", option, format_type_be(type))));
	if (list_member(target->key, makeString(pstrdup(name))))
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("column \"%s\" of query \"%s\" cannot be key and option \"%s\" at once", name, def->query_name, option)));
}

void
change_check(Target *target, SinkDef *def, SinkShape *shape)
{
	if (target->unchanged && !target->op)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("option \"unchanged_column\" of the table sink of query \"%s\" needs option \"op_column\"", def->query_name)));
	if (!target->op)
		return;
	if (shape->aggregated || shape->retracts || shape->mode == OUTPUT_COMPLETE)
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						errmsg("option \"op_column\" does not go with the rows of query \"%s\"", def->query_name),
						errdetail("They are results, which replace each other, and no changes that a source tells of."),
						errhint("Leave the option out, or use it in a query without aggregates and DISTINCT ON, in append or update mode.")));
	if (target->key == NIL)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("option \"op_column\" of the table sink of query \"%s\" needs option \"key\"", def->query_name),
						errhint("Name the columns that say which row a change is about: {\"key\": [\"id\"], \"op_column\": \"op\"}.")));
	check_column(def, target, shape, "op_column", target->op, TEXTOID, VARCHAROID);
	if (target->unchanged)
		check_column(def, target, shape, "unchanged_column", target->unchanged, TEXTARRAYOID, TEXTARRAYOID);
}

/* ---- the statement ---- */

static bool
is_key(Target *target, int column)
{
	return list_member(target->key, list_nth(target->columns, column));
}

/* A value that the target takes, neither key nor one of the two columns that only say what to do. */
static bool
is_value(Target *target, int column)
{
	return !is_key(target, column) && target_is_written(target, strVal(list_nth(target->columns, column)));
}

static char *
key_columns(Target *target, int n, const char *alias)
{
	StringInfoData sql;

	initStringInfo(&sql);
	for (int i = 0; i < n; i++)
		if (is_key(target, i))
			appendStringInfo(&sql, "%s%s.c%d", sql.len ? ", " : "", alias, i + 1);
	return sql.data;
}

/*
 * One row per key: the last, or, where changes leave values out, the last value known of each column, and whether (k1 … kn) there was one.
 * Aggregates see the rows as they come out of the sorted subquery.
 */
static void
write_fold(StringInfo sql, Target *target, int n, const char *rows_name)
{
	char *key = key_columns(target, n, "r");
	int unchanged = 0;

	if (!target->unchanged)
	{
		appendStringInfo(sql, "SELECT DISTINCT ON (%s) r.* FROM (SELECT s.*, pg_catalog.row_number() OVER () AS arrival FROM %s s) r "
						 "ORDER BY %s, r.arrival DESC", key, rows_name, key);
		return;
	}
	while (strcmp(strVal(list_nth(target->columns, unchanged)), target->unchanged) != 0)
		unchanged++;
	appendStringInfoString(sql, "SELECT ");
	for (int i = 0; i < n; i++)
	{
		char *known = psprintf("(%s OPERATOR(pg_catalog.=) ANY (r.c%d)) IS NOT TRUE",
							   quote_literal_cstr(strVal(list_nth(target->columns, i))), unchanged + 1);

		if (is_key(target, i))
			appendStringInfo(sql, "%sr.c%d", i ? ", " : "", i + 1);
		else if (is_value(target, i))
			appendStringInfo(sql, "%sstream.last_known(r.c%d, %s) AS c%d, pg_catalog.bool_or(%s) AS k%d", i ? ", " : "", i + 1, known, i + 1,
							 known, i + 1);
		else
			appendStringInfo(sql, "%sstream.last_known(r.c%d, true) AS c%d", i ? ", " : "", i + 1, i + 1);
	}
	appendStringInfo(sql, " FROM (SELECT s.*, pg_catalog.row_number() OVER () AS arrival FROM %s s ORDER BY %s, arrival) r GROUP BY %s", rows_name,
					 key_columns(target, n, "s"), key);
}

static void
write_update(StringInfo sql, Target *target, int n)
{
	bool any = false;

	for (int i = 0; i < n; i++)
	{
		const char *column = quote_identifier(strVal(list_nth(target->columns, i)));

		if (!is_value(target, i))
			continue;
		appendStringInfo(sql, "%s%s = ", any ? ", " : " WHEN MATCHED THEN UPDATE SET ", column);
		if (target->unchanged)
			appendStringInfo(sql, "CASE WHEN r.k%d THEN r.c%d ELSE t.%s END", i + 1, i + 1, column);
		else
			appendStringInfo(sql, "r.c%d", i + 1);
		any = true;
	}
	if (target->batch_id)
		appendStringInfo(sql, "%s%s = $%d", any ? ", " : " WHEN MATCHED THEN UPDATE SET ", quote_identifier(target->batch_id),
						 STREAM_PARAM_BATCH_ID);
	else if (!any)
		appendStringInfoString(sql, " WHEN MATCHED THEN DO NOTHING"); /* all columns are key */
}

static void
write_insert(StringInfo sql, Target *target, int n)
{
	StringInfoData columns, values;

	initStringInfo(&columns);
	initStringInfo(&values);
	for (int i = 0; i < n; i++)
		if (is_key(target, i) || is_value(target, i))
		{
			appendStringInfo(&columns, "%s%s", columns.len ? ", " : "", quote_identifier(strVal(list_nth(target->columns, i))));
			appendStringInfo(&values, "%sr.c%d", values.len ? ", " : "", i + 1);
		}
	if (target->batch_id)
	{
		appendStringInfo(&columns, ", %s", quote_identifier(target->batch_id));
		appendStringInfo(&values, ", $%d", STREAM_PARAM_BATCH_ID);
	}
	appendStringInfo(sql, " WHEN NOT MATCHED THEN INSERT (%s) VALUES (%s)", columns.data, values.data);
}

char *
change_statement(Target *target, SinkShape *shape, const char *rows_name)
{
	int n = shape->desc->natts, op = column_number(shape, target->op);
	StringInfoData sql;
	char *gone = psprintf("pg_catalog.lower(r.c%d) OPERATOR(pg_catalog.=) ANY ('{d,delete}'::pg_catalog.text[])", op + 1);
	bool any = false;

	initStringInfo(&sql);
	appendStringInfo(&sql, "MERGE INTO %s t USING (", target->name);
	write_fold(&sql, target, n, rows_name);
	appendStringInfoString(&sql, ") r ON ");
	for (int i = 0; i < n; i++)
		if (is_key(target, i))
		{
			appendStringInfoString(&sql, any ? " AND " : "");
			target_append_equality(&sql, target, strVal(list_nth(target->columns, i)), psprintf("r.c%d", i + 1));
			any = true;
		}
	appendStringInfo(&sql, " WHEN MATCHED AND %s THEN DELETE WHEN NOT MATCHED AND %s THEN DO NOTHING", gone, gone);
	write_update(&sql, target, n);
	write_insert(&sql, target, n);
	return sql.data;
}

/* ---- rows ---- */

Change *
change_create(Sink *sink, Target *target, const char *rows_name, TupleDesc rows)
{
	Change *change = palloc0(sizeof(Change));

	change->sink = sink;
	change->target = target;
	change->op = column_number(sink->shape, target->op);
	change->key = palloc(sizeof(int) * rows->natts);
	for (int i = 0; i < rows->natts; i++)
		if (is_key(target, i))
			change->key[change->nkey++] = i;
	change->divert = divert_create(sink, !target->divert, change_statement(target, sink->shape, rows_name), rows_name, rows);
	return change;
}

void
change_begin(Change *change)
{
	change->emptied = false;
	divert_begin(change->divert);
}

static void
bad_change(Change *change, TupleTableSlot *slot, int sqlstate, const char *column, char *message)
{
	ErrorData error = {.sqlerrcode = sqlstate, .message = message, .column_name = pstrdup(column)};

	if (!change->target->divert)
		ereport(ERROR, (errcode(sqlstate), errmsg_internal("%s", message), errcontext("table sink of query \"%s\"", change->sink->def->query_name)));
	divert_put_aside(change->divert, slot, &error);
}

void
change_receive(Change *change, TupleTableSlot *slot)
{
	text *word;
	ChangeOp op;

	slot_getallattrs(slot);
	word = slot->tts_isnull[change->op] ? NULL : DatumGetTextPP(slot->tts_values[change->op]);
	op = word ? change_op_read(VARDATA_ANY(word), VARSIZE_ANY_EXHDR(word)) : CHANGE_UNKNOWN;
	if (op == CHANGE_UNKNOWN)
	{
		bad_change(change, slot, ERRCODE_INVALID_PARAMETER_VALUE, change->target->op,
				   psprintf("column \"%s\" does not say what the change is: %s", change->target->op,
							word ? psprintf("\"%s\"", text_to_cstring(word)) : "null"));
		return;
	}
	if (op == CHANGE_TRUNCATE)
	{
		divert_forget(change->divert);
		change->emptied = true;
		return;
	}
	for (int i = 0; i < change->nkey; i++)
		if (slot->tts_isnull[change->key[i]])
		{
			char *column = strVal(list_nth(change->target->columns, change->key[i]));

			bad_change(change, slot, ERRCODE_NOT_NULL_VIOLATION, column,
					   psprintf("null value in key column \"%s\" of a change", column));
			return;
		}
	divert_receive(change->divert, slot);
}

void
change_finish(Change *change)
{
	if (change->emptied)
		target_clear(change->target);
	divert_finish(change->divert);
}

void
change_free(Change *change)
{
	divert_free(change->divert);
}

/* last_known's step: of the values of a column, the newest that came with its change. */
Datum
stream_last_known(PG_FUNCTION_ARGS)
{
	int from = !PG_ARGISNULL(2) && PG_GETARG_BOOL(2) ? 1 : 0;

	if (PG_ARGISNULL(from))
		PG_RETURN_NULL();
	PG_RETURN_DATUM(PG_GETARG_DATUM(from));
}
