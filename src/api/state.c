/*
 * state.c: the state reader: state, its changes, and what there is of it, as rows.
 * The tables tell entries, one by one; the operators of the query's plan show them, and what they show becomes jsonb here.
 * Showing a result may call final functions of the owner's, so all of it runs with the owner's rights and no more.
 */
#include "api/query.h"

#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "funcapi.h"
#include "metadata/log.h"
#include "nodes/makefuncs.h"
#include "operator/operator.h"
#include "state/store.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

PG_FUNCTION_INFO_V1(stream_state);
PG_FUNCTION_INFO_V1(stream_state_changes);
PG_FUNCTION_INFO_V1(stream_state_metadata);

typedef struct StateReader
{
	StreamQuery *query;
	StreamPlan *plan;
	int64 last_batch; /* newest committed; -1: none */
	ReturnSetInfo *result;
	MemoryContext row_context;
	OwnerScope scope;
	bool changes; /* rows are (batch_id, change_type, key, value, …), else (key, value, expires_at, …); then state_name and element */
	const char *state_name;
	int64 batch_id; /* of the row being told */
	bool removed;
} StateReader;

/* ---- as the owner ---- */

static void
reader_begin(StateReader *reader, FunctionCallInfo fcinfo)
{
	CommitEntry commit;

	memset(reader, 0, sizeof(*reader));
	reader->query = query_argument(fcinfo, 0);
	InitMaterializedSRF(fcinfo, 0);
	reader->result = (ReturnSetInfo *) fcinfo->resultinfo;
	reader->last_batch = commit_log_last(reader->query->id, &commit) ? commit.batch_id : -1;
	reader->row_context = AllocSetContextCreate(CurrentMemoryContext, "stream state reader row", ALLOCSET_DEFAULT_SIZES);

	query_owner_begin(reader->query, &reader->scope);
	reader->plan = plan_compile(reader->query, query_view_tree(reader->query));
}

static OperatorSpec *
reader_operator(StateReader *reader, int operator_id)
{
	ListCell *cell;

	foreach (cell, reader->plan->operators)
	{
		OperatorSpec *spec = lfirst(cell);

		if (spec->id == operator_id)
			return spec;
	}
	ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					errmsg("streaming query \"%s\" has no operator %d", reader->query->name, operator_id),
					list_length(reader->plan->operators) == 0
						? errdetail("The query is stateless.")
						: errdetail("Its operators are numbered 0 to %d.", list_length(reader->plan->operators) - 1),
					errhint("stream.state_metadata() lists operators and their states.")));
	return NULL;
}

/* With nothing in it: entries are read past it. */
static Operator *
operator_open(StateReader *reader, OperatorSpec *spec)
{
	return spec->ops->open(spec, reader->query->id, &memory_state, -1);
}

/* ---- rows ---- */

static Datum
datum_to_jsonb(Datum value, Oid type, int32 typmod, Oid collation)
{
	List *args = list_make1(makeNullConst(type, typmod, collation));
	FmgrInfo function;

	fmgr_info(F_TO_JSONB, &function);
	fmgr_info_set_expr((Node *) makeFuncExpr(F_TO_JSONB, JSONBOID, args, InvalidOid, InvalidOid, COERCE_EXPLICIT_CALL), &function);
	return FunctionCall1(&function, value);
}

/* Columns first..first+n-1 of a row as a jsonb object, or the one column's value alone. */
static Datum
columns_to_jsonb(TupleTableSlot *row, int first, int n, bool bare)
{
	TupleDesc desc;

	if (bare)
	{
		Form_pg_attribute column = TupleDescAttr(row->tts_tupleDescriptor, first);

		if (row->tts_isnull[first])
			return DirectFunctionCall1(jsonb_in, CStringGetDatum("null"));
		return datum_to_jsonb(row->tts_values[first], column->atttypid, column->atttypmod, column->attcollation);
	}
	desc = CreateTemplateTupleDesc(n);
	for (int i = 0; i < n; i++)
		TupleDescCopyEntry(desc, i + 1, row->tts_tupleDescriptor, first + i + 1);
	BlessTupleDesc(desc);
	return datum_to_jsonb(HeapTupleGetDatum(heap_form_tuple(desc, row->tts_values + first, row->tts_isnull + first)), RECORDOID,
						  desc->tdtypmod, InvalidOid);
}

static void
tell_row(void *arg, TupleTableSlot *row, int nkeys, bool bare, TimestampTz expires)
{
	StateReader *reader = arg;
	MemoryContext caller = MemoryContextSwitchTo(reader->row_context);
	int nvalues = row->tts_tupleDescriptor->natts - nkeys;
	Datum values[6];
	bool nulls[6] = {false};
	int at = reader->changes ? 2 : 0;

	if (reader->changes)
	{
		values[0] = Int64GetDatum(reader->batch_id);
		values[1] = CStringGetTextDatum(reader->removed ? "delete" : "update");
	}
	values[at] = columns_to_jsonb(row, 0, nkeys, bare);
	nulls[at + 1] = reader->removed;
	values[at + 1] = reader->removed ? (Datum) 0 : columns_to_jsonb(row, nkeys, nvalues, bare);
	if (!reader->changes)
	{
		values[2] = TimestampTzGetDatum(expires);
		nulls[2] = TIMESTAMP_NOT_FINITE(expires);
	}
	at += reader->changes ? 2 : 3;
	values[at] = CStringGetTextDatum(reader->state_name);
	nulls[at + 1] = !bare || nvalues < 2;
	values[at + 1] = nulls[at + 1] ? (Datum) 0 : columns_to_jsonb(row, nkeys + 1, 1, true);
	tuplestore_putvalues(reader->result->setResult, reader->result->setDesc, values, nulls);
	MemoryContextSwitchTo(caller);
	MemoryContextReset(reader->row_context);
}

static void
show_entry(StateReader *reader, Operator *op, StateStore *store, StateEntry *entry)
{
	reader->state_name = store->schema.state_name;
	if (op->ops->show)
		op->ops->show(op, store, entry, tell_row, reader);
	else
		operator_show_key(op, store, entry, tell_row, reader);
}

/* The stores a name means; without a name the default one, or all where none is called so. */
static List *
stores_by_name(Operator *op, const char *name)
{
	List *chosen = NIL;
	StringInfoData names;
	ListCell *cell;

	initStringInfo(&names);
	foreach (cell, op->stores)
	{
		StateStore *store = lfirst(cell);

		appendStringInfo(&names, "%s%s", names.len > 0 ? ", " : "", store->schema.state_name);
		if (strcmp(store->schema.state_name, name ? name : "default") == 0)
			chosen = lappend(chosen, store);
	}
	if (name && chosen == NIL)
		ereport(ERROR, (errcode(ERRCODE_UNDEFINED_OBJECT), errmsg("operator %d has no state \"%s\"", op->spec->id, name),
						errdetail("Its states are: %s.", names.data)));
	return chosen != NIL ? chosen : op->stores;
}

typedef struct EntryTold
{
	StateReader *reader;
	Operator *op;
	StateStore *store;
} EntryTold;

static void
tell_entry(void *arg, int64 batch_id, StateEntry *entry)
{
	EntryTold *told = arg;

	told->reader->batch_id = batch_id;
	told->reader->removed = entry->removed;
	show_entry(told->reader, told->op, told->store, entry);
}

/* ---- the functions ---- */

/* state(query, operator_id, batch_id, state_name): the entries as of a batch. */
Datum
stream_state(PG_FUNCTION_ARGS)
{
	StateReader reader;
	int64 batch_id;
	Operator *op;
	ListCell *cell;

	reader_begin(&reader, fcinfo);
	batch_id = PG_ARGISNULL(2) ? reader.last_batch : PG_GETARG_INT64(2);
	if (!PG_ARGISNULL(2) && (batch_id < 0 || batch_id > reader.last_batch))
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("streaming query \"%s\" has not committed batch %lld", reader.query->name, (long long) batch_id),
						errhint("stream.state_metadata() tells which batches state can be read as of.")));
	op = operator_open(&reader, reader_operator(&reader, PG_ARGISNULL(1) ? 0 : PG_GETARG_INT32(1)));
	foreach (cell, stores_by_name(op, PG_ARGISNULL(3) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(3))))
	{
		EntryTold told = {&reader, op, lfirst(cell)};

		if (batch_id >= 0)
			state_scan_asof(told.store, batch_id, tell_entry, &told);
	}
	op->ops->close(op);
	query_owner_end(&reader.scope);
	return (Datum) 0;
}

/* state_changes(query, operator_id, from_batch, to_batch): what these batches changed, in order. */
Datum
stream_state_changes(PG_FUNCTION_ARGS)
{
	StateReader reader;
	int64 from_batch, to_batch;
	Operator *op;
	ListCell *cell;

	for (int i = 0; i < 4; i++)
	{
		if (PG_ARGISNULL(i))
			ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("no argument of stream.state_changes may be NULL")));
	}
	reader_begin(&reader, fcinfo);
	reader.changes = true;
	from_batch = PG_GETARG_INT64(2);
	to_batch = PG_GETARG_INT64(3);
	if (from_batch < 0 || to_batch < from_batch || to_batch > reader.last_batch)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("batches %lld to %lld are no range of batches of streaming query \"%s\"", (long long) from_batch,
							   (long long) to_batch, reader.query->name),
						errdetail("Batches are numbered from 0, none may be negative, the first comes first; the last committed is %lld.",
								  (long long) reader.last_batch)));
	op = operator_open(&reader, reader_operator(&reader, PG_GETARG_INT32(1)));
	foreach (cell, stores_by_name(op, NULL))
	{
		EntryTold told = {&reader, op, lfirst(cell)};

		state_scan_changes(told.store, from_batch, to_batch, tell_entry, &told);
	}
	op->ops->close(op);
	query_owner_end(&reader.scope);
	return (Datum) 0;
}

static void
tell_metadata(StateReader *reader, Operator *op)
{
	ListCell *cell;

	foreach (cell, op->stores)
	{
		StateStore *store = lfirst(cell);
		StateMetrics metrics = state_measure(store, reader->last_batch);
		Datum values[] = {Int32GetDatum(op->spec->id),	   CStringGetTextDatum(op->ops->name),
						  CStringGetTextDatum(store->schema.state_name),
						  Int64GetDatum(metrics.rows),	   Int64GetDatum(metrics.bytes),
						  Int64GetDatum(state_oldest_readable(store)), Int64GetDatum(reader->last_batch)};
		bool nulls[lengthof(values)] = {false};

		nulls[5] = nulls[6] = reader->last_batch < 0;
		tuplestore_putvalues(reader->result->setResult, reader->result->setDesc, values, nulls);
	}
}

/* state_metadata(query): one row per state of each operator, and the batches it can be read as of. */
Datum
stream_state_metadata(PG_FUNCTION_ARGS)
{
	StateReader reader;
	ListCell *cell;

	reader_begin(&reader, fcinfo);
	foreach (cell, reader.plan->operators)
	{
		Operator *op = operator_open(&reader, lfirst(cell));

		tell_metadata(&reader, op);
		op->ops->close(op);
	}
	query_owner_end(&reader.scope);
	return (Datum) 0;
}
