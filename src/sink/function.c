/*
 * function.c: the function sink (foreachBatch): the rows of a batch are kept in a tuplestore, then fn(batch_id) is called once, in the batch's
 * transaction, and reads them as relation `batch`. What it does outside this database is repeated when the batch is: same id, same rows.
 */
#include "sink/sink.h"

#include "commands/dbcommands.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "sink/batch_relation.h"
#include "sink/user_function.h"
#include "util/compat.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

typedef struct FunctionSink
{
	Sink base;
	Oid function;
	MemoryContext context; /* of one batch's rows */
	Tuplestorestate *rows;
} FunctionSink;

static void
to_function_create(SinkDef *def, SinkShape *shape)
{
	sink_refuse_options(def);
	user_function_check(def, user_function_find(def), 1);
	if (pg_database_aclcheck(MyDatabaseId, GetUserId(), ACL_CREATE_TEMP) != ACLCHECK_OK)
		ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE), errmsg("permission denied to create temporary tables in database \"%s\"", get_database_name(MyDatabaseId)),
						errdetail("The function of a function sink reads the batch's rows as a temporary foreign table."),
						errhint("GRANT TEMPORARY ON DATABASE to the owner of the query.")));
}

static Sink *
to_function_open(SinkDef *def, SinkShape *shape)
{
	FunctionSink *sink = (FunctionSink *) sink_make(sizeof(FunctionSink), &function_sink, def, shape);

	sink->function = user_function_find(def);
	sink->context = AllocSetContextCreate(CurrentMemoryContext, "stream_ext function sink", ALLOCSET_DEFAULT_SIZES);
	return &sink->base;
}

static void
to_function_begin(Sink *base, const BatchInfo *batch)
{
	FunctionSink *sink = (FunctionSink *) base;
	MemoryContext old;

	sink->function = user_function_find(base->def);
	user_function_check(base->def, sink->function, 1);
	MemoryContextReset(sink->context);
	old = MemoryContextSwitchTo(sink->context);
	sink->rows = tuplestore_begin_heap(true, false, work_mem);
	MemoryContextSwitchTo(old);
}

static void
to_function_receive(Sink *base, TupleTableSlot *slot)
{
	tuplestore_puttupleslot(((FunctionSink *) base)->rows, slot);
	base->rows++;
}

static void
function_call(FunctionSink *sink)
{
	Oid types[] = {INT8OID};
	Datum args[] = {Int64GetDatum(sink->base.batch->batch_id)};
	char *name = quote_qualified_identifier(get_namespace_name(get_func_namespace(sink->function)), get_func_name(sink->function));

	if (SPI_connect() != SPI_OK_CONNECT || SPI_execute_with_args(psprintf("SELECT %s($1)", name), 1, types, args, NULL, false, 0) < 0 ||
		SPI_finish() != SPI_OK_FINISH)
		ereport(ERROR, (errcode(ERRCODE_INTERNAL_ERROR), errmsg("could not call %s", sink->base.def->target)));
}

static void
to_function_finish(Sink *base)
{
	FunctionSink *sink = (FunctionSink *) base;

	batch_relation_make(base->shape->desc);
	batch_relation_set_rows(sink->rows, base->shape->desc);
	function_call(sink);
	batch_relation_set_rows(NULL, NULL);
	/* A session that goes on to other things is left as it was; a worker runs one query and keeps the relation. */
	if (!IsBackgroundWorker)
		batch_relation_drop();
	tuplestore_end(sink->rows);
	sink->rows = NULL;
}

static void
to_function_close(Sink *base)
{
	MemoryContextDelete(((FunctionSink *) base)->context);
}

static char *
to_function_describe(SinkDef *def)
{
	return psprintf("function %s", def->target);
}

const SinkOps function_sink = {
	.kind = "function",
	.needs_target = true,
	.in_database = false, /* nobody knows what it does: the offsets must be durable before */
	.create = to_function_create,
	.open = to_function_open,
	.begin = to_function_begin,
	.receive = to_function_receive,
	.finish = to_function_finish,
	.close = to_function_close,
	.describe = to_function_describe,
};
