/*
 * divert.c: rows of a batch → a tuplestore → one statement in a subtransaction. When that fails because of a row, halves are tried, down to the rows that are
 * to blame: those become dead letters. k bad rows of n cost about 2 k log n subtransactions. Strict: the statement runs as it is, once.
 * Danger: only what a row can be blamed for may be caught: broken constraints and values that do not fit. Locks, resources, cancels fly on.
 */
#include "sink/divert.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "metadata/dead_letter.h"
#include "miscadmin.h"
#include "sink/row_json.h"
#include "util/json_build.h"
#include "util/stored_row.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/resowner.h"

struct Divert
{
	Sink *sink;
	bool strict;	  /* a bad row fails the batch */
	const char *sql;
	const char *rows_name;
	TupleDesc rows;
	SPIPlanPtr plan;
	MemoryContext context; /* of one batch */
	Tuplestorestate *store;
	RowJson *json;		   /* names of the query's columns */
};

/* ---- errors ---- */

static bool
row_is_to_blame(int sqlstate)
{
	switch (ERRCODE_TO_CATEGORY(sqlstate))
	{
		case MAKE_SQLSTATE('2', '2', '0', '0', '0'): /* data exception */
		case MAKE_SQLSTATE('2', '3', '0', '0', '0'): /* integrity constraint violation */
		case MAKE_SQLSTATE('4', '4', '0', '0', '0'): /* WITH CHECK OPTION */
			return true;
		default:
			return false;
	}
}

void
divert_put_aside(Divert *divert, TupleTableSlot *slot, ErrorData *error)
{
	text *raw = DatumGetTextPP(row_json_text(divert->json, slot));
	JsonBuild b = {NULL, NULL};

	json_object_begin(&b, NULL);
	json_add_text(&b, "target", divert->sink->def->target);
	json_add_text(&b, "sqlstate", unpack_sql_state(error->sqlerrcode));
	if (error->constraint_name)
		json_add_text(&b, "constraint", error->constraint_name);
	if (error->column_name)
		json_add_text(&b, "column", error->column_name);
	json_object_end(&b);
	dead_letter_add(divert->sink->batch, NULL, "rejected", json_result(&b), VARDATA_ANY(raw), VARSIZE_ANY_EXHDR(raw), error->message);
	divert->sink->rows_bad++;
}

/* ---- one attempt ---- */

static void
statement_run(Divert *divert, Tuplestorestate *store)
{
	EphemeralNamedRelation rows = palloc0(sizeof(EphemeralNamedRelationData));
	static Oid types[STREAM_PARAM_COUNT] = {TIMESTAMPTZOID, INT8OID, TIMESTAMPTZOID};

	rows->md.name = pstrdup(divert->rows_name);
	rows->md.tupdesc = divert->rows;
	rows->md.enrtype = ENR_NAMED_TUPLESTORE;
	rows->md.enrtuples = tuplestore_tuple_count(store);
	rows->reldata = store;
	if (SPI_connect() != SPI_OK_CONNECT || SPI_register_relation(rows) != SPI_OK_REL_REGISTER)
		ereport(ERROR, (errcode(ERRCODE_INTERNAL_ERROR), errmsg("could not write to %s", divert->sink->def->target)));
	if (divert->plan == NULL)
	{
		SPIPlanPtr plan = SPI_prepare(divert->sql, STREAM_PARAM_COUNT, types);

		if (plan == NULL || SPI_keepplan(plan) != 0)
			ereport(ERROR, (errcode(ERRCODE_INTERNAL_ERROR), errmsg("could not write to %s", divert->sink->def->target)));
		divert->plan = plan;
	}
	if (SPI_execute_plan_with_paramlist(divert->plan, batch_info_params(divert->sink->batch), false, 0) < 0)
		ereport(ERROR, (errcode(ERRCODE_INTERNAL_ERROR), errmsg("could not write to %s", divert->sink->def->target)));
	SPI_finish();
}

/* NULL: all rows are in the target; else the error a row is to blame for, and none is. */
static ErrorData *
rows_try(Divert *divert, Tuplestorestate *store)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	ErrorData *volatile error = NULL;

	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(context);
	PG_TRY();
	{
		statement_run(divert, store);
		ReleaseCurrentSubTransaction();
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
	CurrentResourceOwner = owner;
	if (error && !row_is_to_blame(error->sqlerrcode))
		ReThrowError(error);
	return error;
}

/* ---- halves ---- */

static Tuplestorestate *
store_make(Divert *divert)
{
	MemoryContext old = MemoryContextSwitchTo(divert->context);
	Tuplestorestate *store = tuplestore_begin_heap(false, false, work_mem);

	MemoryContextSwitchTo(old);
	return store;
}

/* The next so many rows of a store, in a store of their own. */
static Tuplestorestate *
store_part(Divert *divert, Tuplestorestate *from, int64 count, TupleTableSlot *slot)
{
	Tuplestorestate *part = store_make(divert);

	while (count-- > 0 && stored_row_next(from, slot))
		tuplestore_puttupleslot(part, slot);
	return part;
}

/* Takes the store. Rows are tried in their order: where a later one replaces an earlier one, it still does. */
static void
rows_write(Divert *divert, Tuplestorestate *store, TupleTableSlot *slot)
{
	int64 count = tuplestore_tuple_count(store);
	Tuplestorestate *first, *second;
	ErrorData *error;

	CHECK_FOR_INTERRUPTS();
	if (divert->strict && count > 0)
		statement_run(divert, store);
	error = count > 0 && !divert->strict ? rows_try(divert, store) : NULL;
	if (error == NULL)
	{
		tuplestore_end(store);
		return;
	}
	tuplestore_select_read_pointer(store, 0);
	tuplestore_rescan(store);
	if (count == 1)
	{
		if (stored_row_next(store, slot))
			divert_put_aside(divert, slot, error);
		ExecClearTuple(slot);
		tuplestore_end(store);
		FreeErrorData(error);
		return;
	}
	FreeErrorData(error);
	first = store_part(divert, store, count / 2, slot);
	second = store_part(divert, store, count - count / 2, slot);
	ExecClearTuple(slot);
	tuplestore_end(store);
	rows_write(divert, first, slot);
	rows_write(divert, second, slot);
}

/* ---- a batch ---- */

Divert *
divert_create(Sink *sink, bool strict, const char *sql, const char *rows_name, TupleDesc rows)
{
	Divert *divert = palloc0(sizeof(Divert));

	divert->strict = strict;
	divert->sink = sink;
	divert->sql = sql;
	divert->rows_name = rows_name;
	divert->rows = rows;
	divert->json = row_json_make(sink->shape->desc);
	divert->context = AllocSetContextCreate(CurrentMemoryContext, "stream_ext divert", ALLOCSET_DEFAULT_SIZES);
	return divert;
}

void
divert_begin(Divert *divert)
{
	MemoryContextReset(divert->context);
	divert->store = store_make(divert);
}

void
divert_receive(Divert *divert, TupleTableSlot *slot)
{
	tuplestore_puttupleslot(divert->store, slot);
}

void
divert_forget(Divert *divert)
{
	tuplestore_clear(divert->store);
}

void
divert_finish(Divert *divert)
{
	TupleTableSlot *slot = MakeSingleTupleTableSlot(divert->rows, &TTSOpsMinimalTuple);
	Tuplestorestate *store = divert->store;

	divert->store = NULL;
	rows_write(divert, store, slot);
	ExecDropSingleTupleTableSlot(slot);
}

void
divert_free(Divert *divert)
{
	if (divert->plan)
		SPI_freeplan(divert->plan);
	divert->plan = NULL;
}
