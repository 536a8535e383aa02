/*
 * source.c: the table of source kinds, what the catalog says of a source, and what every source's rows have in common:
 * counting, event time, rows that cannot be read.
 */
#include "source/source.h"

#include "access/table.h"
#include "catalog/pg_attribute.h"
#include "catalog/pg_foreign_table.h"
#include "catalog/pg_type.h"
#include "commands/defrem.h"
#include "foreign/foreign.h"
#include "metadata/dead_letter.h"
#include "miscadmin.h"
#include "util/operation.h"
#include "util/json_build.h"
#include "util/options.h"
#include "util/user_mapping.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

/* Adding a kind of source: one line here, one file beside, one wrapper and server in sql/install. */
static const SourceOps *const source_table[] = {&table_source, &kafka_source, &file_source, &rate_source, &socket_source, &changes_source};

static List *running_batches = NIL; /* SourceBatch */

const SourceOps *
source_lookup_kind(const char *kind)
{
	for (int i = 0; i < lengthof(source_table); i++)
		if (strcmp(source_table[i]->kind, kind) == 0)
			return source_table[i];
	return NULL;
}

static const SourceOps *
source_ops_of(ForeignServer *server)
{
	const char *wrapper = GetForeignDataWrapper(server->fdwid)->fdwname;

	for (int i = 0; i < lengthof(source_table); i++)
		if (strcmp(source_table[i]->server, wrapper) == 0)
			return source_table[i];
	return NULL;
}

char *
source_kinds(void)
{
	StringInfoData buf;

	initStringInfo(&buf);
	for (int i = 0; i < lengthof(source_table); i++)
		appendStringInfo(&buf, "%s%s", i ? ", " : "", source_table[i]->kind);
	return buf.data;
}

bool
source_is_stream(Oid relid)
{
	return get_rel_relkind(relid) == RELKIND_FOREIGN_TABLE && source_ops_of(GetForeignServer(GetForeignTable(relid)->serverid)) != NULL;
}

void
source_parse_options(SourceDef *def, void *target, char **format, char **timestamp_unit)
{
	char *owner = psprintf("source %s", def->name);
	ListCell *lc;

	foreach (lc, def->table_options)
	{
		DefElem *elem = lfirst_node(DefElem, lc);

		if (format && strcmp(elem->defname, "format") == 0)
			*format = defGetString(elem);
		else if (timestamp_unit && strcmp(elem->defname, "timestamp_unit") == 0)
			*timestamp_unit = defGetString(elem);
		else
			(void) options_parse_text(def->ops->options, elem->defname, defGetString(elem), target, owner);
	}
	def->options = target;
}

int64
source_position_n(Position *position)
{
	char *text = position ? jsonb_get_text(position, "n") : NULL;

	return text ? pg_strtoint64(text) : 0;
}

Position *
source_position_of(int64 n)
{
	JsonBuild b = {NULL, NULL};

	json_object_begin(&b, NULL);
	json_add_int(&b, "n", n);
	json_object_end(&b);
	return json_result(&b);
}

static void
source_find_event_time(SourceDef *def)
{
	char *column = option_list_get(def->table_options, "event_time");
	char *delay = option_list_get(def->table_options, "watermark_delay");

	def->watermark_delay = -1;
	if (column == NULL)
	{
		if (delay)
			ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
							errmsg("source %s has a watermark_delay but no event_time", def->name),
							errhint("Name the column that holds the event time in option event_time.")));
		return;
	}
	def->event_time = get_attnum(def->relid, column);
	if (def->event_time <= 0)
		ereport(ERROR, (errcode(ERRCODE_UNDEFINED_COLUMN),
						errmsg("event_time column \"%s\" of source %s does not exist", column, def->name)));
	def->event_time_type = TupleDescAttr(def->desc, def->event_time - 1)->atttypid;
	if (def->event_time_type != TIMESTAMPTZOID && def->event_time_type != TIMESTAMPOID)
		ereport(ERROR, (errcode(ERRCODE_DATATYPE_MISMATCH),
						errmsg("event_time column \"%s\" of source %s is of type %s", column, def->name,
							   format_type_be(def->event_time_type)),
						errdetail("Event time must be a timestamp or timestamp with time zone.")));
	if (delay)
		def->watermark_delay = options_interval_us(delay, psprintf("watermark_delay of source %s", def->name));
}

static BadRowPolicy
bad_row_policy(const char *text)
{
	static const char *const names[] = {"dead_letter", "fail", "skip", "null"};

	for (int i = 0; text && i < lengthof(names); i++)
		if (strcmp(names[i], text) == 0)
			return (BadRowPolicy) i;
	return BAD_ROW_DEAD_LETTER;
}

SourceDef *
source_load(Oid relid)
{
	ForeignTable *table = GetForeignTable(relid);
	ForeignServer *server = GetForeignServer(table->serverid);
	Relation rel = table_open(relid, AccessShareLock);
	SourceDef *def = palloc0(sizeof(SourceDef));

	def->relid = relid;
	def->owner = rel->rd_rel->relowner;
	def->name = quote_qualified_identifier(get_namespace_name(RelationGetNamespace(rel)), RelationGetRelationName(rel));
	def->ops = source_ops_of(server);
	if (def->ops == NULL)
		ereport(ERROR, (errcode(ERRCODE_WRONG_OBJECT_TYPE), errmsg("%s is not a streaming source", def->name)));
	def->desc = CreateTupleDescCopyConstr(RelationGetDescr(rel));
	table_close(rel, NoLock);

	def->table_options = table->options;
	def->server_options = server->options;
	def->user_options = user_mapping_options(server->serverid);
	def->on_bad_row = bad_row_policy(option_list_get(def->table_options, "on_bad_row"));
	def->paths = palloc0(sizeof(char *) * Max(def->desc->natts, 1));
	for (int i = 0; i < def->desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(def->desc, i);
		char *path = att->attisdropped ? NULL : option_list_get(GetForeignColumnOptions(relid, att->attnum), "path");

		if (!att->attisdropped)
			def->paths[i] = path ? path : pstrdup(NameStr(att->attname));
	}
	source_find_event_time(def);
	def->ops->parse(def);
	return def;
}

/* ---- readers ---- */

static bool
paths_unchanged(const SourceDef *a, const SourceDef *b)
{
	for (int i = 0; i < a->desc->natts; i++)
		if (!a->paths[i] != !b->paths[i] || (a->paths[i] && strcmp(a->paths[i], b->paths[i]) != 0))
			return false;
	return true;
}

bool
source_is_unchanged(const SourceDef *a, const SourceDef *b)
{
	return a->relid == b->relid && a->event_time == b->event_time && a->watermark_delay == b->watermark_delay && a->on_bad_row == b->on_bad_row &&
		   equal(a->table_options, b->table_options) && equal(a->server_options, b->server_options) && equal(a->user_options, b->user_options) &&
		   equalTupleDescs(a->desc, b->desc) && paths_unchanged(a, b);
}

SourceReader *
source_reader_open(MemoryContext parent, const SourceDef *def, int64 query_id)
{
	MemoryContext context = AllocSetContextCreate(parent, "stream_ext source", ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	SourceDef *kept = source_load(def->relid);
	SourceReader *reader;

	kept->event_time = def->event_time;
	kept->watermark_delay = def->watermark_delay;
	reader = kept->ops->open(kept);
	reader->context = context;
	reader->query_id = query_id;
	reader->rows_expected = -1;
	MemoryContextSwitchTo(old);
	return reader;
}

void
source_reader_close(SourceReader *reader)
{
	reader->ops->close(reader);
	MemoryContextDelete(reader->context);
}

/* ---- rows that cannot be read ---- */

static void
bad_row_refuse(SourceDef *def, Jsonb *position, int sqlstate, const char *message)
{
	ereport(ERROR, (errcode(sqlstate), errmsg("row of source %s cannot be read: %s", def->name, message),
					position ? errdetail("Position: %s", JsonbToCString(NULL, &position->root, VARSIZE(position))) : 0,
					errhint("Set the source's option on_bad_row to dead_letter, skip or null to go on.")));
}

void
source_check_bad_rows(SourceBatch *batch, Jsonb *position, int sqlstate, const char *message)
{
	if (batch->max_bad_rows < 0 || batch->rows_bad <= batch->max_bad_rows)
		return;
	ereport(ERROR, (errcode(sqlstate),
					errmsg("more than " INT64_FORMAT " rows of source %s cannot be read; the last: %s", batch->max_bad_rows, batch->reader->def->name, message),
					position ? errdetail("Position: %s", JsonbToCString(NULL, &position->root, VARSIZE(position))) : 0,
					errhint("Option max_bad_rows_per_batch is the limit; stream.skip_batch gives up the batch.")));
}

/* A dead letter that came again is one still, for this reason now. */
static void
letter_keep(SourceLetter *letter, const char *text)
{
	MemoryContext old = MemoryContextSwitchTo(GetMemoryChunkContext(letter));

	letter->error = pstrdup(text);
	MemoryContextSwitchTo(old);
}

void
source_bad_row(SourceScan *scan, Jsonb *position, const char *raw, Size raw_len, int sqlstate, const char *message)
{
	SourceDef *def = scan->reader->def;
	char *text;

	if (scan->batch && !scan->observer)
		return;
	if (def->on_bad_row == BAD_ROW_FAIL && !scan->letter)
		bad_row_refuse(def, position, sqlstate, message);
	if (scan->batch == NULL)
	{
		if (scan->bad_rows++ == 0)
			ereport(WARNING, (errcode(sqlstate), errmsg("row of source %s cannot be read and is left out: %s", def->name, message),
							  errdetail("Further ones of this scan are left out silently.")));
		return;
	}
	text = psprintf("%s: %s", unpack_sql_state(sqlstate), message);
	if (scan->letter)
	{
		letter_keep(scan->letter, text);
		return;
	}
	scan->batch->rows_bad++;
	source_check_bad_rows(scan->batch, position, sqlstate, message);
	if (def->on_bad_row != BAD_ROW_SKIP)
		dead_letter_add(scan->batch->info, def->name, "malformed", position, raw, raw_len, text);
}

/* ---- rows seen ---- */

static void
lane_observe(SourceBatch *batch, int lane, TimestampTz at)
{
	if (lane >= batch->nlanes)
	{
		MemoryContext old = MemoryContextSwitchTo(GetMemoryChunkContext(batch));
		int n = Max(lane + 1, batch->nlanes * 2);

		batch->lane_max = batch->lane_max ? repalloc(batch->lane_max, n * sizeof(TimestampTz)) : palloc(n * sizeof(TimestampTz));
		for (int i = batch->nlanes; i < n; i++)
			batch->lane_max[i] = DT_NOBEGIN;
		batch->nlanes = n;
		MemoryContextSwitchTo(old);
	}
	if (at > batch->lane_max[lane])
		batch->lane_max[lane] = at;
}

void
source_observe(SourceScan *scan, TupleTableSlot *slot)
{
	SourceBatch *batch = scan->batch;
	AttrNumber column = scan->reader->def->event_time;
	TimestampTz at;

	batch->rows++;
	if (scan->letter) /* an old row: it is none of the news that move event time on */
		return;
	if (column == 0 || slot->tts_isnull[column - 1])
		return;
	at = DatumGetTimestampTz(slot->tts_values[column - 1]); /* a timestamp without zone has the same representation, read as UTC */
	if (TIMESTAMP_NOT_FINITE(at))
		return;
	if (batch->event_rows++ == 0)
	{
		batch->event_min = batch->event_max = at;
		batch->event_sum = 0;
	}
	batch->event_min = Min(batch->event_min, at);
	batch->event_max = Max(batch->event_max, at);
	batch->event_sum += (double) at;
	if (at > batch->max_event_time)
		batch->rows_ahead++;
	else
		lane_observe(batch, scan->lane, at);
}

void
source_observe_share(SourceBatch *batch, const SourceBatch *share)
{
	batch->rows += share->rows;
	batch->rows_bad += share->rows_bad;
	batch->bytes += share->bytes;
	batch->rows_shown += share->rows_shown;
	batch->bytes_shown += share->bytes_shown;
	batch->rows_ahead += share->rows_ahead;
	if (share->event_rows > 0)
	{
		bool first = batch->event_rows == 0;

		batch->event_min = first ? share->event_min : Min(batch->event_min, share->event_min);
		batch->event_max = first ? share->event_max : Max(batch->event_max, share->event_max);
		batch->event_sum = first ? share->event_sum : batch->event_sum + share->event_sum;
		batch->event_rows += share->event_rows;
	}
	for (int i = 0; i < share->nlanes; i++)
		if (share->lane_max[i] != DT_NOBEGIN)
			lane_observe(batch, i, share->lane_max[i]);
}

/* ---- the running batch ---- */

void
source_set_running(List *batches)
{
	running_batches = batches;
}

void
source_show_progress(SourceBatch *batch)
{
	int64 rows = batch->rows + batch->rows_bad;

	operation_add(batch->shares > 0 ? OPERATION_SHARE : OPERATION_BATCH, batch->info->query_id, batch->info->batch_id, rows - batch->rows_shown,
				  batch->bytes - batch->bytes_shown);
	batch->rows_shown = rows;
	batch->bytes_shown = batch->bytes;
}

SourceBatch *
source_running(Oid relid)
{
	ListCell *lc;

	foreach (lc, running_batches)
	{
		SourceBatch *batch = lfirst(lc);

		if (batch->reader->def->relid == relid)
			return batch;
	}
	return NULL;
}
