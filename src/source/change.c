/*
 * change.c: the changes source: inserts, updates, deletes of a table of this database as rows, in the order transactions committed, exactly once.
 * First, unless told otherwise, the rows that are there. Log → decoder → buffer → batch; the replication slot, one per query and source, moves on once
 * the batch has committed. Danger: what is acknowledged is gone: such a query starts afresh, it cannot be rewound.
 */
#include "source/change.h"

#include "access/xlog.h"
#include "catalog/pg_foreign_table.h"
#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "nodes/value.h"
#include "storage/proc.h"
#include "util/compat.h"
#include "util/json_build.h"
#include "util/options.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/pg_lsn.h"
#include "utils/rel.h"

#define LOOK_AGAIN_MS 50
#define MAX_ROWS_AT_ONCE INT64CONST(1000000) /* of a batch without limit; a transaction is not split by it */

/* ---- options and columns ---- */

static const OptionDef change_option_defs[] = {{"table", OPTION_TEXT, offsetof(ChangeOptions, table.table), 0, 0, NULL},
											   {"op_column", OPTION_TEXT, offsetof(ChangeOptions, op_column), 0, 0, NULL},
											   {"snapshot", OPTION_ENUM, offsetof(ChangeOptions, snapshot), 0, 0, "initial|never"},
											   {NULL, 0, 0, 0, 0, NULL}};

static char *
changes_prepare(const char *name, List *options, const char *columns)
{
	Oid relid = table_named(name, options);
	char *op = option_list_get(options, "op_column");

	if (columns)
		return pstrdup(columns);
	if (op == NULL)
		op = "op";
	if (get_attnum(relid, op) > 0)
		ereport(ERROR, (errcode(ERRCODE_DUPLICATE_COLUMN), errmsg("table %s has a column \"%s\" of its own", table_full_name(relid), op),
						errdetail("Source \"%s\" says there what happened to a row.", name),
						errhint("Give it another name with option \"op_column\".")));
	return psprintf("%s pg_catalog.text, %s", quote_identifier(op), table_columns(relid));
}

/* Columns that the table has not, by their names. */
static ChangeColumn
column_kind(SourceDef *def, ChangeOptions *options, Form_pg_attribute att)
{
	const struct
	{
		const char *name;
		ChangeColumn kind;
		Oid type;
	} known[] = {{options->op_column, CHANGE_OP, TEXTOID},
				 {"unchanged", CHANGE_UNCHANGED, TEXTARRAYOID},
				 {"change_lsn", CHANGE_LSN, PG_LSNOID},
				 {"change_time", CHANGE_TIME, TIMESTAMPTZOID}};

	for (int i = 0; i < lengthof(known); i++)
	{
		if (namestrcmp(&att->attname, known[i].name) != 0)
			continue;
		if (att->atttypid != known[i].type)
			ereport(ERROR, (errcode(ERRCODE_DATATYPE_MISMATCH), errmsg("column \"%s\" of source %s must be of type %s", known[i].name, def->name, format_type_be(known[i].type))));
		return known[i].kind;
	}
	table_check_column(def, options->table.relid, att);
	return CHANGE_TABLE_COLUMN;
}

static void
changes_parse(SourceDef *def)
{
	ChangeOptions *options = palloc0(sizeof(ChangeOptions));

	options->op_column = "op";
	options->snapshot = "initial";
	source_parse_options(def, options, NULL, NULL);
	options->table.relid = table_of_def(def);
	options->columns = palloc0(sizeof(ChangeColumn) * def->desc->natts);
	for (int i = 0; i < def->desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(def->desc, i);

		if (att->attisdropped)
			continue;
		options->columns[i] = column_kind(def, options, att);
		if (options->columns[i] == CHANGE_UNCHANGED)
			options->unchanged = att->attnum;
	}
	change_check_server(def);
	change_check_table(def);
}

static Oid
changes_base_relation(SourceDef *def)
{
	return ((ChangeOptions *) def->options)->table.relid;
}

/* ---- open ---- */

static SourceReader *
changes_open(SourceDef *def)
{
	ChangeReader *reader = palloc0(sizeof(ChangeReader));

	reader->table.base.ops = &changes_source;
	reader->table.base.def = def;
	reader->table.base.context = CurrentMemoryContext;
	table_reader_watch(&reader->table);
	change_buffer_init(reader);
	return &reader->table.base;
}

static void
changes_close(SourceReader *reader)
{
}

/* What the query keeps of this source: made when it began. */
void
change_slot_know(ChangeReader *reader)
{
	SourceDef *def = reader->table.base.def;
	MemoryContext old = MemoryContextSwitchTo(reader->table.base.context);

	if (reader->slot == NULL)
	{
		reader->slot = change_slot_get(reader->table.base.query_id, def->name);
		if (reader->slot == NULL)
			ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE), errmsg("changes of source %s are lost", def->name),
							errdetail("The position is of another database: a dump does not hold replication slots."),
							errhint("Start the query afresh with stream.reset_query(), which begins with the rows of the table again.")));
		if (reader->slot->seen)
			reader->seen = horizon_from_text(reader->slot->seen);
	}
	MemoryContextSwitchTo(old);
}

/* ---- positions ---- */

int
change_position_compare(ChangePosition a, ChangePosition b)
{
	if (a.lsn != b.lsn)
		return a.lsn < b.lsn ? -1 : 1;
	return a.row == b.row ? 0 : a.row < b.row ? -1 : 1;
}

/* {"lsn": "0/1234"}, {"lsn": "0/1234", "row": 5}, {"rows": 17} */
Position *
change_position_make(ChangePosition position)
{
	JsonBuild b = {NULL, NULL};

	json_object_begin(&b, NULL);
	if (XLogRecPtrIsInvalid(position.lsn))
		json_add_int(&b, "rows", position.row);
	else
		json_add_text(&b, "lsn", psprintf("%X/%X", LSN_FORMAT_ARGS(position.lsn)));
	if (!XLogRecPtrIsInvalid(position.lsn) && position.row != CHANGE_ALL)
		json_add_int(&b, "row", position.row);
	json_object_end(&b);
	return json_result(&b);
}

ChangePosition
change_position_read(Position *position)
{
	char *lsn = jsonb_get_text(position, "lsn"), *row = jsonb_get_text(position, lsn ? "row" : "rows");

	return (ChangePosition){lsn ? DatumGetLSN(DirectFunctionCall1(pg_lsn_in, CStringGetDatum(lsn))) : InvalidXLogRecPtr, row ? pg_strtoint64(row) : CHANGE_ALL};
}

/* Our own commits are there for us to read, flushed or not. */
static XLogRecPtr
log_end(void)
{
	if (!XLogRecPtrIsInvalid(XactLastCommitEnd))
		XLogFlush(XactLastCommitEnd);
	return GetFlushRecPtr(NULL);
}

static Position *
changes_latest(SourceReader *reader)
{
	return change_position_make((ChangePosition){log_end(), CHANGE_ALL});
}

/* ---- ranges: rows that were there ---- */

/* How many of them a limit in bytes lets through, one at least. */
static int64
rows_within_bytes(ChangeReader *reader, int64 from, int64 upto, int64 max_bytes)
{
	HeapScan *scan = change_rows_scan(reader, from);
	Datum v[ROW_COLUMNS];
	bool n[ROW_COLUMNS];
	int64 rows = from, bytes = 0;

	while (rows < upto && heap_scan_next(scan, v, n))
	{
		bytes += VARSIZE_ANY(DatumGetPointer(v[ROW_DATA]));
		if (rows > from && bytes > max_bytes)
			break;
		rows++;
	}
	heap_scan_end(scan);
	return rows;
}

static SourceAdvance
advance_rows(ChangeReader *reader, int64 from, const ReadLimit *limit)
{
	int64 total = reader->slot->rows, upto = limit->max_rows > 0 ? Min(total, from + limit->max_rows) : total;
	SourceAdvance result = {.rows_waiting = total - from};

	if (limit->max_bytes > 0)
		upto = rows_within_bytes(reader, from, upto, limit->max_bytes);
	result.rows = upto - from;
	result.more = true; /* changes, perhaps */
	result.end = change_position_make(upto < total ? (ChangePosition){InvalidXLogRecPtr, upto} : (ChangePosition){reader->slot->start, CHANGE_ALL});
	return result;
}

/* ---- ranges: changes ---- */

/* Rows in the buffer behind POINTER_NEXT, decoding more when there may be more than are wanted. */
static void
buffer_fill(ChangeReader *reader, ChangePosition from, XLogRecPtr end, int64 enough)
{
	ChangeBuffer *buffer = &reader->buffer;

	if (buffer->store == NULL || XLogRecPtrIsInvalid(buffer->decoded) || change_position_compare(buffer->next, from) != 0 || buffer->taken == buffer->rows)
	{
		XLogRecPtr decoded = buffer->store && change_position_compare(buffer->next, from) == 0 ? buffer->decoded : InvalidXLogRecPtr;

		change_buffer_reset(reader, from);
		buffer->decoded = Max(decoded, from.row == CHANGE_ALL ? from.lsn : InvalidXLogRecPtr);
	}
	change_buffer_copy(reader, POINTER_NEXT, POINTER_BEGIN);
	buffer->begin = from;
	if (buffer->rows - buffer->taken < enough && buffer->decoded < end)
	{
		/* What is decoded is not decoded again: go on behind it. */
		ChangePosition behind = {buffer->decoded, CHANGE_ALL};

		change_decode(reader, XLogRecPtrIsInvalid(buffer->decoded) ? from : behind, end, enough - (buffer->rows - buffer->taken));
	}
}

static bool
within_limit(const ReadLimit *limit, int64 rows, int64 bytes)
{
	return rows == 0 || ((limit->max_rows == 0 || rows < limit->max_rows) && (limit->max_bytes == 0 || bytes <= limit->max_bytes));
}

/* The last row that belongs to the range, and whether its transaction is through with it. Moves POINTER_NEXT behind it. */
static int64
range_take(ChangeReader *reader, XLogRecPtr ceiling, const ReadLimit *limit, ChangePosition *end)
{
	ChangeBuffer *buffer = &reader->buffer;
	int64 rows = 0, bytes = 0;

	if (limit->max_rows == 0 && limit->max_bytes == 0 && buffer->last <= ceiling)
	{
		rows = buffer->rows - buffer->taken;
		change_buffer_skip(reader, POINTER_NEXT, rows);
		*end = (ChangePosition){buffer->last, CHANGE_ALL};
		return rows;
	}
	change_buffer_copy(reader, POINTER_NEXT, POINTER_PEEK);
	while (change_buffer_fetch(reader, POINTER_PEEK, buffer->slot))
	{
		ChangePosition at = change_buffer_position(buffer->slot);

		if (rows > 0 && end->lsn != at.lsn)
			end->row = CHANGE_ALL;
		bytes += ((MinimalTupleTableSlot *) buffer->slot)->mintuple->t_len;
		if (at.lsn > ceiling || !within_limit(limit, rows, bytes))
			break;
		*end = at;
		rows++;
	}
	if (rows == buffer->rows - buffer->taken && rows > 0)
		end->row = CHANGE_ALL;
	change_buffer_skip(reader, POINTER_NEXT, rows);
	return rows;
}

/* Nothing for us up to here: the slot may go on, or an idle table would hold back WAL for ever. Not before the position itself is committed. */
static void
slot_follow(ChangeReader *reader, ChangePosition from)
{
	bool committed = reader->idle_at == from.lsn && reader->idle_in != MY_LOCAL_XID;

	if (from.row == CHANGE_ALL && reader->buffer.taken == reader->buffer.rows && (committed || reader->acknowledged >= from.lsn))
		change_slot_confirm(reader, reader->buffer.decoded);
	if (reader->idle_at != from.lsn)
		reader->idle_in = MY_LOCAL_XID;
	reader->idle_at = from.lsn;
}

/* They are known to be gone when a later transaction finds none: this one may be rolled back. */
static void
rows_forget(ChangeReader *reader)
{
	if (reader->rows_deleted)
		return;
	if (reader->slot->rows > 0 && change_rows_delete(reader->table.base.query_id, reader->table.base.def->name) > 0)
		reader->rows_deleted_in = MY_LOCAL_XID;
	else
		reader->rows_deleted = reader->rows_deleted_in != MY_LOCAL_XID;
}

static SourceAdvance
advance_changes(ChangeReader *reader, ChangePosition from, ChangePosition ceiling, const ReadLimit *limit)
{
	ChangeBuffer *buffer = &reader->buffer;
	int64 enough = limit->max_rows > 0 ? limit->max_rows + 1 : limit->everything ? PG_INT64_MAX : MAX_ROWS_AT_ONCE;
	SourceAdvance result = {.rows = 0};
	ChangePosition end;

	rows_forget(reader);
	buffer_fill(reader, from, Min(log_end(), ceiling.lsn), Max(enough, limit->min_rows));
	result.rows_waiting = buffer->rows - buffer->taken;
	result.rows = range_take(reader, ceiling.lsn, limit, &end);
	if (result.rows == 0)
	{
		slot_follow(reader, from);
		return result;
	}
	buffer->taken += result.rows;
	buffer->next = end;
	result.end = change_position_make(end);
	result.more = buffer->taken < buffer->rows || buffer->decoded < Min(log_end(), ceiling.lsn);
	return result;
}

static SourceAdvance
changes_advance(SourceReader *base, Position *from, Position *ceiling, const ReadLimit *limit)
{
	static const ReadLimit none = {0};
	ChangeReader *reader = (ChangeReader *) base;
	ChangePosition start = change_position_read(from), end = {PG_UINT64_MAX, CHANGE_ALL};

	change_check_readable(base->def);
	change_slot_know(reader);
	if (ceiling)
		end = change_position_read(ceiling);
	if (XLogRecPtrIsInvalid(start.lsn))
		return advance_rows(reader, start.row, limit ? limit : &none);
	return advance_changes(reader, start, end, limit ? limit : &none);
}

/* ---- afterwards ---- */

static void
changes_acknowledge(SourceReader *base, Position *upto)
{
	ChangePosition position = change_position_read(upto);

	if (position.row == CHANGE_ALL)
		change_slot_confirm((ChangeReader *) base, position.lsn);
}

static bool
changes_has_news(SourceReader *base)
{
	ChangeBuffer *buffer = &((ChangeReader *) base)->buffer;

	return buffer->taken < buffer->rows || buffer->decoded < GetFlushRecPtr(NULL);
}

/* Nobody tells of commits; looking costs a transaction that does nothing, decoding only what has been written since. */
static int
changes_look_again_ms(SourceReader *base)
{
	return changes_has_news(base) ? 0 : LOOK_AGAIN_MS;
}

const SourceOps changes_source = {
	.kind = "changes",
	.server = "stream_changes",
	.forgets = true,
	.options = change_option_defs,
	.options_size = sizeof(ChangeOptions),
	.prepare = changes_prepare,
	.parse = changes_parse,
	.open = changes_open,
	.arrive = change_arrive,
	.initial = change_initial,
	.latest = changes_latest,
	.advance = changes_advance,
	.scan_begin = change_scan_begin,
	.scan_next = change_scan_next,
	.scan_rewind = change_scan_rewind,
	.scan_end = change_scan_end,
	.acknowledge = changes_acknowledge,
	.base_relation = changes_base_relation,
	.has_news = changes_has_news,
	.look_again_ms = changes_look_again_ms,
	.close = changes_close,
};
