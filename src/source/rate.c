/*
 * rate.c: rows (ts, value) at a steady rate. Which rows a second holds follows from the second alone, so every range can be read again.
 * A position is {"start": microseconds of the first second, "second": seconds already read}.
 */
#include "source/source.h"

#include "catalog/pg_foreign_table.h"
#include "catalog/pg_type.h"
#include "commands/defrem.h"
#include "util/clock.h"
#include "util/json_build.h"
#include "util/options.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

typedef struct RateOptions
{
	int64 rows_per_second;
	int64 ramp_up; /* microseconds until the full rate is reached */
} RateOptions;

typedef struct RatePosition
{
	int64 start, second;
} RatePosition;

static const OptionDef rate_option_defs[] = {
	{"rows_per_second", OPTION_INT64, offsetof(RateOptions, rows_per_second), 1, 100000000, NULL},
	{"ramp_up", OPTION_INTERVAL, offsetof(RateOptions, ramp_up), 0, PG_INT64_MAX, NULL},
	{NULL, 0, 0, 0, 0, NULL}};

static char *
rate_prepare(const char *name, List *options, const char *columns)
{
	if (columns)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("rate source \"%s\" has columns of its own", name),
						errdetail("They are ts timestamptz and value bigint."), errhint("Leave columns away.")));
	return "ts pg_catalog.timestamptz, value pg_catalog.int8";
}

static void
rate_parse(SourceDef *def)
{
	RateOptions *options = palloc0(sizeof(RateOptions));

	options->rows_per_second = 1;
	source_parse_options(def, options, NULL, NULL);
	if (def->desc->natts != 2 || TupleDescAttr(def->desc, 0)->atttypid != TIMESTAMPTZOID || TupleDescAttr(def->desc, 1)->atttypid != INT8OID)
		ereport(ERROR, (errcode(ERRCODE_DATATYPE_MISMATCH), errmsg("columns of rate source %s must be ts timestamptz and value bigint", def->name)));
}

/* ---- positions ---- */

static RatePosition
position_read(Position *position)
{
	char *start = jsonb_get_text(position, "start"), *second = jsonb_get_text(position, "second");

	return (RatePosition){start ? pg_strtoint64(start) : 0, second ? pg_strtoint64(second) : 0};
}

static Position *
position_make(int64 start, int64 second)
{
	JsonBuild b = {NULL, NULL};

	json_object_begin(&b, NULL);
	json_add_int(&b, "start", start);
	json_add_int(&b, "second", second);
	json_object_end(&b);
	return json_result(&b);
}

/* Rows of second number n (0 is the first): n-th step of the ramp, then the full rate. */
static int64
rows_in_second(const RateOptions *o, int64 n)
{
	int64 ramp = o->ramp_up / USECS_PER_SEC;

	return n >= ramp ? o->rows_per_second : (int64) ((int128) o->rows_per_second * (n + 1) / (ramp + 1));
}

/* Rows of all seconds before number n. */
static int64
rows_before_second(const RateOptions *o, int64 n)
{
	int64 ramp = Min(o->ramp_up / USECS_PER_SEC, n), rows = 0;

	for (int64 i = 0; i < ramp; i++)
		rows += rows_in_second(o, i);
	return rows + (n - ramp) * o->rows_per_second;
}

static Position *
rate_initial(SourceReader *reader)
{
	return position_make(clock_now(), 0);
}

static int64
seconds_between(int64 start, int64 end)
{
	return Max((end - start) / USECS_PER_SEC, 0);
}

/* A fixed end knows nothing of the query's start: {"until": microseconds}. */
static Position *
rate_latest(SourceReader *reader)
{
	JsonBuild b = {NULL, NULL};

	json_object_begin(&b, NULL);
	json_add_int(&b, "until", clock_now());
	json_object_end(&b);
	return json_result(&b);
}

static SourceAdvance
rate_advance(SourceReader *reader, Position *from, Position *ceiling, const ReadLimit *limit)
{
	RateOptions *o = reader->def->options;
	SourceAdvance advance = {NULL, 0, 0, false, NULL};
	RatePosition p = position_read(from);
	char *until = ceiling ? jsonb_get_text(ceiling, "until") : NULL;
	int64 now = seconds_between(p.start, until ? pg_strtoint64(until) : clock_now()), second = p.second;

	advance.rows_waiting = rows_before_second(o, now) - rows_before_second(o, p.second);
	while (second < now && (limit->max_rows == 0 || second == p.second || advance.rows + rows_in_second(o, second) <= limit->max_rows))
		advance.rows += rows_in_second(o, second++);
	advance.more = second < now;
	advance.rows_left = advance.rows_waiting - advance.rows;
	if (second > p.second)
		advance.end = position_make(p.start, second);
	return advance;
}

static SourceReader *
rate_open(SourceDef *def)
{
	SourceReader *reader = palloc0(sizeof(SourceReader));

	reader->ops = &rate_source;
	reader->def = def;
	reader->context = CurrentMemoryContext;
	return reader;
}

/* ---- scans ---- */

typedef struct RateScan
{
	RatePosition from, to;
	int64 second, row, value; /* next */
} RateScan;

static void
rate_scan_rewind(SourceScan *scan)
{
	RateScan *state = scan->state;

	state->second = state->from.second;
	state->row = 0;
	state->value = rows_before_second(scan->reader->def->options, state->second);
}

static void
rate_scan_begin(SourceScan *scan)
{
	RateScan *state = palloc0(sizeof(RateScan));

	if (scan->batch == NULL)
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED), errmsg("rate source %s can only be read by a streaming query", scan->reader->def->name),
						errdetail("It has no rows of its own: they begin when a query starts.")));
	state->from = position_read(scan->from);
	state->to = position_read(scan->to);
	scan->state = state;
	rate_scan_rewind(scan);
}

static bool
rate_scan_next(SourceScan *scan, TupleTableSlot *slot)
{
	RateOptions *o = scan->reader->def->options;
	RateScan *state = scan->state;
	int64 rows;

	while (state->second < state->to.second && state->row >= rows_in_second(o, state->second))
	{
		state->second++;
		state->row = 0;
	}
	if (state->second >= state->to.second)
		return false;
	rows = rows_in_second(o, state->second);
	slot->tts_values[0] = TimestampTzGetDatum(state->from.start + state->second * USECS_PER_SEC + state->row * USECS_PER_SEC / rows);
	slot->tts_values[1] = Int64GetDatum(state->value++);
	slot->tts_isnull[0] = slot->tts_isnull[1] = false;
	state->row++;
	return true;
}

static void
rate_scan_end(SourceScan *scan)
{
}

static int
rate_look_again_ms(SourceReader *reader)
{
	return 1000;
}

static void
rate_close(SourceReader *reader)
{
}

const SourceOps rate_source = {
	.kind = "rate",
	.server = "stream_rate",
	.options = rate_option_defs,
	.options_size = sizeof(RateOptions),
	.prepare = rate_prepare,
	.parse = rate_parse,
	.open = rate_open,
	.initial = rate_initial,
	.latest = rate_latest,
	.advance = rate_advance,
	.scan_begin = rate_scan_begin,
	.scan_next = rate_scan_next,
	.scan_rewind = rate_scan_rewind,
	.scan_end = rate_scan_end,
	.look_again_ms = rate_look_again_ms,
	.close = rate_close,
};
