/*
 * sink.c: the table of sink kinds, and the way from a query's stream.sink value to a SinkDef.
 * Adding a sink is one line here, one file beside and one function in sql/install/40_sink.sql.
 */
#include "sink/sink.h"

#include "access/htup_details.h"
#include "executor/executor.h"
#include "funcapi.h"
#include "util/options.h"
#include "utils/builtins.h"
#include "utils/typcache.h"

static const SinkOps *const sink_table[] = {&table_sink, &kafka_sink, &file_sink, &function_sink, &each_sink, &channel_sink, &log_sink,
											  &memory_sink};

static const SinkOps *
sink_lookup(const char *kind)
{
	for (int i = 0; i < lengthof(sink_table); i++)
		if (strcmp(sink_table[i]->kind, kind) == 0)
			return sink_table[i];
	return NULL;
}

bool
sink_is_in_database(Sink *sink)
{
	return sink->ops->in_database && !sink->outside;
}

char *
sink_shared_by(int64 query_id, SinkDef *def)
{
	ListCell *cell;

	foreach (cell, query_ids())
	{
		StreamQuery *other = query_load_by_id(*(int64 *) lfirst(cell), true); /* NULL: dropped meanwhile */
		SinkDef *theirs = other ? sink_def_load(other) : NULL;

		if (other && other->id != query_id && theirs->ops == def->ops && theirs->target && def->target && strcmp(theirs->target, def->target) == 0)
			return other->name;
	}
	return NULL;
}

Sink *
sink_make(Size size, const SinkOps *ops, SinkDef *def, SinkShape *shape)
{
	Sink *sink = palloc0(size);

	sink->ops = ops;
	sink->def = def;
	sink->shape = shape;
	return sink;
}

static char *
sink_field_text(HeapTupleHeader composite, AttrNumber column)
{
	bool isnull;
	Datum value = GetAttributeByNum(composite, column, &isnull);

	return isnull ? NULL : TextDatumGetCString(value);
}

SinkDef *
sink_def_load(StreamQuery *query)
{
	const char *query_name = query->name;
	HeapTupleHeader row;
	SinkDef *def = palloc0(sizeof(SinkDef));
	char *kind;
	bool isnull;
	Datum options;

	if (DatumGetPointer(query->sink) == NULL)
		ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("query \"%s\" has no sink", query_name),
						errhint("Use stream.to_table() or another function that returns stream.sink.")));
	row = DatumGetHeapTupleHeader(query->sink);
	kind = sink_field_text(row, 1);
	if (kind == NULL)
		ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("the sink of query \"%s\" has no kind", query_name),
						errhint("Use stream.to_table() or another function that returns stream.sink.")));
	def->ops = sink_lookup(kind);
	if (def->ops == NULL)
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED), errmsg("sink \"%s\" is not supported yet", kind),
						errdetail("Query \"%s\" writes to it.", query_name),
						errhint("Write to a table with stream.to_table().")));
	def->target = sink_field_text(row, 2);
	if (def->target == NULL && def->ops->needs_target)
		ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("the %s sink of query \"%s\" has no target", kind, query_name)));
	options = GetAttributeByNum(row, 3, &isnull);
	def->options = isnull ? NULL : DatumGetJsonbPCopy(options);
	def->query_name = query_name;
	def->query_id = query->id;
	def->incarnation = query->incarnation;
	def->type = HeapTupleHeaderGetTypeId(row);
	return def;
}

Datum
sink_def_to_datum(SinkDef *def)
{
	TupleDesc desc = lookup_rowtype_tupdesc_copy(def->type, -1);
	Datum values[3] = {CStringGetTextDatum(def->ops->kind), (Datum) 0, (Datum) 0};
	bool nulls[3] = {false, def->target == NULL, def->options == NULL};

	if (def->target)
		values[1] = CStringGetTextDatum(def->target);
	if (def->options)
		values[2] = JsonbPGetDatum(def->options);
	return HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc), values, nulls));
}

bool
sink_always_in_pieces(SinkDef *def)
{
	return true;
}

void
sink_note_staying_rows(void)
{
	ereport(NOTICE, (errmsg("groups that stop satisfying the condition on their aggregates keep their last row in the target")));
}

void
sink_check_shape(SinkDef *def, SinkShape *shape)
{
	if ((!shape->retracts && shape->leaving == NULL) || def->ops->retract)
		return;
	if (shape->leaving == NULL)
	{
		sink_note_staying_rows();
		return;
	}
	ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					errmsg("%s in output mode update need a table sink, not a %s sink", shape->leaving, def->ops->kind),
					errdetail("Rows of earlier batches are replaced, which the sink of query \"%s\" could not take back.", def->query_name),
					errhint("Write to a table with stream.to_table().")));
}

void
sink_refuse_options(SinkDef *def)
{
	static const OptionDef none[] = {{NULL, 0, 0, 0, 0, NULL}};

	options_parse_jsonb(none, def->options, NULL, psprintf("the %s sink of query \"%s\"", def->ops->kind, def->query_name));
}
