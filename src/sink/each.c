/*
 * each.c: the foreach sink: fn(row, batch_id) is called for every row as it comes, in the batch's transaction.
 * What it does outside this database is repeated when the batch is: same id, same rows.
 */
#include "sink/sink.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "sink/row_json.h"
#include "sink/user_function.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/typcache.h"

typedef struct EachSink
{
	Sink base;
	RowJson *row;
	FmgrInfo function;
	MemoryContext context; /* of function's caches: one batch */
} EachSink;

static void
row_type_refuse(SinkDef *def, Oid type, const char *detail)
{
	ereport(ERROR, (errcode(ERRCODE_DATATYPE_MISMATCH), errmsg("rows of query \"%s\" do not fit type %s", def->query_name, format_type_be(type)),
					errdetail("%s", detail), errhint("The columns of the query must be those of the type, in the same order; or let the function take a record.")));
}

/* Rows match a named type by position. */
static TupleDesc
row_type_desc(SinkDef *def, TupleDesc rows, Oid type)
{
	TupleDesc desc;

	if (type == RECORDOID)
		return rows;
	if (get_typtype(type) != TYPTYPE_COMPOSITE)
		ereport(ERROR, (errcode(ERRCODE_INVALID_FUNCTION_DEFINITION), errmsg("function %s does not fit the sink of query \"%s\"", def->target, def->query_name),
						errdetail("Its first argument is %s.", format_type_be(type)), errhint("It must be f(row record or a composite type, batch_id bigint).")));
	desc = lookup_rowtype_tupdesc_copy(type, -1);
	if (desc->natts != rows->natts)
		row_type_refuse(def, type, psprintf("The type has %d columns, the query %d.", desc->natts, rows->natts));
	for (int i = 0; i < desc->natts; i++)
		if (TupleDescAttr(desc, i)->attisdropped || TupleDescAttr(desc, i)->atttypid != TupleDescAttr(rows, i)->atttypid)
			row_type_refuse(def, type, psprintf("Column %d is %s in the type and %s in the query.", i + 1,
												TupleDescAttr(desc, i)->attisdropped ? "dropped" : format_type_be(TupleDescAttr(desc, i)->atttypid),
												format_type_be(TupleDescAttr(rows, i)->atttypid)));
	return desc;
}

static Oid
function_find_checked(SinkDef *def)
{
	Oid function = user_function_find(def);

	user_function_check(def, function, 2);
	return function;
}

static void
to_each_create(SinkDef *def, SinkShape *shape)
{
	sink_refuse_options(def);
	(void) row_type_desc(def, shape->desc, user_function_argument(function_find_checked(def), 0));
}

static Sink *
to_each_open(SinkDef *def, SinkShape *shape)
{
	EachSink *sink = (EachSink *) sink_make(sizeof(EachSink), &each_sink, def, shape);

	sink->context = AllocSetContextCreate(CurrentMemoryContext, "stream_ext each sink", ALLOCSET_DEFAULT_SIZES);
	return &sink->base;
}

static void
to_each_begin(Sink *base, const BatchInfo *batch)
{
	EachSink *sink = (EachSink *) base;
	Oid function = function_find_checked(base->def);
	MemoryContext old;

	MemoryContextReset(sink->context);
	old = MemoryContextSwitchTo(sink->context);
	sink->row = row_json_make(row_type_desc(base->def, base->shape->desc, user_function_argument(function, 0)));
	fmgr_info(function, &sink->function);
	MemoryContextSwitchTo(old);
}

static void
to_each_receive(Sink *base, TupleTableSlot *slot)
{
	EachSink *sink = (EachSink *) base;
	Datum record = row_json_record(sink->row, slot);
	MemoryContext old = MemoryContextSwitchTo(sink->row->context);
	LOCAL_FCINFO(fcinfo, 2);

	InitFunctionCallInfoData(*fcinfo, &sink->function, 2, InvalidOid, NULL, NULL);
	fcinfo->args[0] = (NullableDatum){record, false};
	fcinfo->args[1] = (NullableDatum){Int64GetDatum(base->batch->batch_id), false};
	(void) FunctionCallInvoke(fcinfo); /* whatever it returns, NULL included */
	MemoryContextSwitchTo(old);
	CommandCounterIncrement();
	base->rows++;
}

static char *
to_each_describe(SinkDef *def)
{
	return psprintf("each row to %s", def->target);
}

const SinkOps each_sink = {
	.kind = "each",
	.needs_target = true,
	.in_database = false, /* nobody knows what it does: the offsets must be durable before */
	.in_pieces = sink_always_in_pieces,
	.create = to_each_create,
	.open = to_each_open,
	.begin = to_each_begin,
	.receive = to_each_receive,
	.describe = to_each_describe,
};
