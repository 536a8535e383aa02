/*
 * retraction.c: DELETE of rows that leave the target, one prepared statement per set of NULLs among the columns they are found by: "= or both NULL"
 * in one condition would use no index. Runs as the query's owner, before the batch's own rows are written.
 */
#include "sink/retraction.h"

#include "executor/spi.h"
#include "lib/stringinfo.h"
#include "utils/builtins.h"
#include "utils/memutils.h"

/* The statement for rows whose NULLs are just these. */
typedef struct RetractionPlan
{
	Bitmapset *nulls; /* of the columns, 0-based */
	SPIPlanPtr plan;
} RetractionPlan;

struct Retraction
{
	Target *target;
	bool one_row; /* of several equal ones */
	int ncolumns;
	int *columns; /* of the row, 0-based */
	Oid *types;	  /* in the row */
	List *plans;  /* RetractionPlan */
	MemoryContext context;
};

static Bitmapset *
columns_to_find_by(Target *target, SinkShape *shape)
{
	Bitmapset *columns = NULL;

	if (!target->upsert)
		return shape->key;
	if (shape->whole_groups)
		return shape->groups;
	for (int i = 1; i <= shape->desc->natts; i++)
		if (list_member(target->key, list_nth(target->columns, i - 1)))
			columns = bms_add_member(columns, i);
	return columns;
}

Retraction *
retraction_create(Target *target, SinkShape *shape)
{
	Retraction *retraction;
	Bitmapset *columns = columns_to_find_by(target, shape);
	int i = -1;

	if (!target->retracts)
		return NULL;
	retraction = palloc0(sizeof(Retraction));
	retraction->target = target;
	retraction->one_row = shape->whole_rows && !target->upsert;
	retraction->columns = palloc(sizeof(int) * (bms_num_members(columns) + 1));
	retraction->types = palloc(sizeof(Oid) * (bms_num_members(columns) + 1));
	retraction->context = CurrentMemoryContext;
	while ((i = bms_next_member(columns, i)) >= 0)
	{
		retraction->columns[retraction->ncolumns] = i - 1;
		retraction->types[retraction->ncolumns++] = TupleDescAttr(shape->desc, i - 1)->atttypid;
	}
	return retraction;
}

/* ---- the statement ---- */

static char *
statement_text(Retraction *retraction, Bitmapset *nulls)
{
	Target *target = retraction->target;
	StringInfoData sql;

	initStringInfo(&sql);
	if (retraction->one_row)
		appendStringInfo(&sql, "DELETE FROM %s d USING (SELECT t.tableoid, t.ctid FROM %s t WHERE true", target->name, target->name);
	else
		appendStringInfo(&sql, "DELETE FROM %s t WHERE true", target->name);
	for (int i = 0; i < retraction->ncolumns; i++)
	{
		const char *column = strVal(list_nth(target->columns, retraction->columns[i]));

		appendStringInfoString(&sql, " AND ");
		if (bms_is_member(i, nulls))
			appendStringInfo(&sql, "t.%s IS NULL", quote_identifier(column));
		else
			target_append_equality(&sql, target, column, psprintf("$%d", i + 1));
	}
	if (retraction->one_row)
		appendStringInfoString(&sql, " LIMIT 1) x WHERE d.tableoid OPERATOR(pg_catalog.=) x.tableoid AND d.ctid OPERATOR(pg_catalog.=) x.ctid");
	return sql.data;
}

static SPIPlanPtr
plan_for(Retraction *retraction, Bitmapset *nulls)
{
	RetractionPlan *made;
	SPIPlanPtr plan;
	MemoryContext caller;
	ListCell *lc;

	foreach (lc, retraction->plans)
		if (bms_equal(((RetractionPlan *) lfirst(lc))->nulls, nulls))
			return ((RetractionPlan *) lfirst(lc))->plan;
	plan = SPI_prepare(statement_text(retraction, nulls), retraction->ncolumns, retraction->types);
	if (plan == NULL || SPI_keepplan(plan) != 0)
		ereport(ERROR, (errcode(ERRCODE_INTERNAL_ERROR), errmsg("could not prepare DELETE from target %s", retraction->target->name)));
	caller = MemoryContextSwitchTo(retraction->context);
	made = palloc(sizeof(RetractionPlan));
	made->nulls = bms_copy(nulls);
	made->plan = plan;
	retraction->plans = lappend(retraction->plans, made);
	MemoryContextSwitchTo(caller);
	return plan;
}

/* ---- running it ---- */

void
retraction_run(Retraction *retraction, TupleTableSlot *row)
{
	Datum *values;
	char *nulls;
	Bitmapset *null_set = NULL;

	slot_getallattrs(row);
	if (SPI_connect() != SPI_OK_CONNECT)
		ereport(ERROR, (errcode(ERRCODE_INTERNAL_ERROR), errmsg("could not delete from target %s", retraction->target->name)));
	values = palloc(sizeof(Datum) * (retraction->ncolumns + 1));
	nulls = palloc(retraction->ncolumns + 1);
	for (int i = 0; i < retraction->ncolumns; i++)
	{
		values[i] = row->tts_values[retraction->columns[i]];
		nulls[i] = row->tts_isnull[retraction->columns[i]] ? 'n' : ' ';
		if (nulls[i] == 'n')
			null_set = bms_add_member(null_set, i);
	}
	if (SPI_execute_plan(plan_for(retraction, null_set), values, nulls, false, 0) != SPI_OK_DELETE)
		ereport(ERROR, (errcode(ERRCODE_INTERNAL_ERROR), errmsg("could not delete from target %s", retraction->target->name)));
	SPI_finish();
}

void
retraction_free(Retraction *retraction)
{
	ListCell *lc;

	foreach (lc, retraction->plans)
		SPI_freeplan(((RetractionPlan *) lfirst(lc))->plan);
	retraction->plans = NIL;
}
