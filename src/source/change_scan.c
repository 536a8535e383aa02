/*
 * change_scan.c: rows of a range of the changes source: first those that were there (stream.change_row), then changes from the buffer; a batch that comes
 * again is decoded again. Rows that cannot be used go to source_bad_row, as JSON with what is known of them.
 */
#include "source/change.h"

#include "executor/executor.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/lsyscache.h"

HeapScan *
change_rows_scan(ChangeReader *reader, int64 from)
{
	Datum keys[] = {Int64GetDatum(reader->table.base.query_id), CStringGetTextDatum(reader->table.base.def->name)};

	return heap_scan_begin_at("change_row", "change_row_pkey", 2, keys, from + 1);
}

typedef struct ChangeScan
{
	ChangePosition from, to;
	int pointer;	/* into the buffer */
	TupleTableSlot *slot;
	HeapScan *rows; /* or: those that were there */
	int64 left;
	FmgrInfo *input;
	Oid *params;
} ChangeScan;

static void
rows_scan_begin(SourceScan *scan, ChangeScan *state)
{
	ChangeReader *reader = (ChangeReader *) scan->reader;
	TupleDesc desc = scan->reader->def->desc;

	state->rows = change_rows_scan(reader, state->from.row);
	state->left = (XLogRecPtrIsInvalid(state->to.lsn) ? state->to.row : reader->slot->rows) - state->from.row;
	if (state->input)
		return;
	state->input = palloc0(sizeof(FmgrInfo) * desc->natts);
	state->params = palloc0(sizeof(Oid) * desc->natts);
	for (int i = 0; i < desc->natts; i++)
	{
		Oid function;

		if (TupleDescAttr(desc, i)->attisdropped)
			continue;
		getTypeInputInfo(TupleDescAttr(desc, i)->atttypid, &function, &state->params[i]);
		fmgr_info(function, &state->input[i]);
	}
}

/* The range is what was planned last, as a rule; else (a batch that comes again) it is decoded anew. */
static void
changes_scan_start(SourceScan *scan, ChangeScan *state)
{
	ChangeReader *reader = (ChangeReader *) scan->reader;
	ChangeBuffer *buffer = &reader->buffer;

	if (XLogRecPtrIsInvalid(state->from.lsn))
	{
		rows_scan_begin(scan, state);
		return;
	}
	if (buffer->store == NULL || XLogRecPtrIsInvalid(buffer->decoded) || buffer->decoded < state->to.lsn ||
		change_position_compare(buffer->begin, state->from) != 0 || change_position_compare(buffer->next, state->to) < 0)
	{
		change_buffer_reset(reader, state->from);
		change_decode(reader, state->from, state->to.lsn, PG_INT64_MAX);
		change_buffer_take_upto(reader, state->to);
	}
	state->pointer = change_buffer_pointer(reader);
	if (state->slot == NULL)
		state->slot = MakeSingleTupleTableSlot(buffer->desc, &TTSOpsMinimalTuple);
}

void
change_scan_begin(SourceScan *scan)
{
	SourceDef *def = scan->reader->def;
	ChangeScan *state;

	if (scan->batch == NULL)
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED), errmsg("source %s cannot be read outside a streaming query", def->name),
						errdetail("Changes are there for the query that has a replication slot for them."),
						errhint("Read table %s itself for the rows there are now.", table_full_name(((ChangeOptions *) def->options)->table.relid))));
	change_slot_know((ChangeReader *) scan->reader);
	state = palloc0(sizeof(ChangeScan));
	state->from = change_position_read(scan->from);
	state->to = change_position_read(scan->to);
	scan->state = state;
	changes_scan_start(scan, state);
}

static bool
next_row(SourceScan *scan, ChangeScan *state, TupleTableSlot *slot)
{
	ChangeOptions *options = scan->reader->def->options;
	TupleDesc desc = slot->tts_tupleDescriptor;
	Datum v[ROW_COLUMNS];
	bool n[ROW_COLUMNS];
	Jsonb *row;

	if (state->left-- <= 0 || heap_scan_next(state->rows, v, n) == NULL)
		return false;
	row = DatumGetJsonbP(v[ROW_DATA]);
	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);
		char *text = NULL;

		if (!att->attisdropped && options->columns[i] == CHANGE_TABLE_COLUMN)
			text = jsonb_get_text(row, NameStr(att->attname));
		else if (!att->attisdropped && options->columns[i] == CHANGE_OP)
			text = "r";
		slot->tts_isnull[i] = text == NULL;
		if (text)
			slot->tts_values[i] = InputFunctionCall(&state->input[i], text, state->params[i], att->atttypmod);
	}
	return true;
}

static void
bad_row(SourceScan *scan, TupleTableSlot *slot, ChangePosition at, Datum error)
{
	HeapTuple tuple = heap_form_tuple(slot->tts_tupleDescriptor, slot->tts_values, slot->tts_isnull);
	text *json = DatumGetTextPP(DirectFunctionCall1(row_to_json, heap_copy_tuple_as_datum(tuple, slot->tts_tupleDescriptor)));

	source_bad_row(scan, change_position_make(at), VARDATA_ANY(json), VARSIZE_ANY_EXHDR(json), ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
				   TextDatumGetCString(error));
}

static bool
next_change(SourceScan *scan, ChangeScan *state, TupleTableSlot *slot)
{
	int natts = slot->tts_tupleDescriptor->natts;
	TupleTableSlot *row = state->slot;

	while (change_buffer_fetch((ChangeReader *) scan->reader, state->pointer, row))
	{
		ChangePosition at = change_buffer_position(row);

		if (change_position_compare(at, state->to) > 0)
			return false;
		slot_getallattrs(row);
		memcpy(slot->tts_values, row->tts_values + BUFFER_OWN, sizeof(Datum) * natts);
		memcpy(slot->tts_isnull, row->tts_isnull + BUFFER_OWN, sizeof(bool) * natts);
		if (row->tts_isnull[BUFFER_ERROR])
			return true;
		bad_row(scan, slot, at, row->tts_values[BUFFER_ERROR]);
		if (scan->reader->def->on_bad_row == BAD_ROW_NULL)
			return true;
	}
	return false;
}

bool
change_scan_next(SourceScan *scan, TupleTableSlot *slot)
{
	ChangeScan *state = scan->state;

	return state->rows ? next_row(scan, state, slot) : next_change(scan, state, slot);
}

void
change_scan_end(SourceScan *scan)
{
	ChangeScan *state = scan->state;

	if (state->rows)
		heap_scan_end(state->rows);
	else
	{
		ExecClearTuple(state->slot);
		change_buffer_release((ChangeReader *) scan->reader, state->pointer);
	}
	state->rows = NULL;
}

void
change_scan_rewind(SourceScan *scan)
{
	change_scan_end(scan);
	changes_scan_start(scan, scan->state);
}
