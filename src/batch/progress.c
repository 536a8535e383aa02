/*
 * progress.c: how a batch went, as jsonb with Spark's field names.
 * Written in the batch's own transaction, so durations end before its commit.
 */
#include "batch/progress.h"

#include "util/clock.h"
#include "util/json_build.h"
#include "util/options.h"
#include "utils/fmgrprotos.h"
#include "utils/numeric.h"
#include "utils/timestamp.h"

static int64
to_ms(int64 us)
{
	return (us + 500) / 1000;
}

static void
progress_durations(JsonBuild *b, BatchRun *run, int64 total)
{
	json_object_begin(b, "durationMs");
	json_add_int(b, "latestOffset", to_ms(run->durations.latest_offset));
	json_add_int(b, "walCommit", to_ms(run->durations.wal_commit));
	json_add_int(b, "queryPlanning", to_ms(run->durations.query_planning));
	json_add_int(b, "addBatch", to_ms(run->durations.add_batch));
	json_add_int(b, "triggerExecution", to_ms(total));
	json_object_end(b);
}

static void
progress_event_time(JsonBuild *b, BatchRun *run)
{
	TimestampTz smallest = DT_NOEND, largest = DT_NOBEGIN;
	double sum = 0;
	int64 rows = 0;
	ListCell *lc;

	foreach (lc, run->sources)
	{
		SourceBatch *batch = lfirst(lc);

		if (batch->event_rows == 0 || batch->reader->def->watermark_delay < 0)
			continue;
		smallest = Min(smallest, batch->event_min);
		largest = Max(largest, batch->event_max);
		sum += batch->event_sum;
		rows += batch->event_rows;
	}
	json_object_begin(b, "eventTime");
	if (rows > 0)
	{
		json_add_time(b, "min", smallest);
		json_add_time(b, "max", largest);
		json_add_time(b, "avg", (TimestampTz) (sum / rows));
	}
	if (!TIMESTAMP_IS_NOBEGIN(run->info.evict_watermark))
		json_add_time(b, "watermark", run->info.evict_watermark);
	json_object_end(b);
}

static void
progress_operators(JsonBuild *b, QueryRuntime *rt)
{
	ListCell *lc;

	json_array_begin(b, "stateOperators");
	foreach (lc, rt->operators)
	{
		Operator *op = lfirst(lc);

		json_object_begin(b, NULL);
		json_add_text(b, "operatorName", op->ops->name);
		json_add_int(b, "numRowsTotal", op->metrics.rows_total);
		json_add_int(b, "numRowsUpdated", op->metrics.updated);
		json_add_int(b, "numRowsRemoved", op->metrics.removed);
		json_add_int(b, "numRowsDroppedByWatermark", op->metrics.dropped);
		json_add_int(b, "memoryUsedBytes", op->metrics.bytes);
		json_add_int(b, "commitTimeMs", to_ms(op->metrics.flush_us));
		json_add_int(b, "numShufflePartitions", 1);
		json_add_int(b, "numStateStoreInstances", 1);
		if (op->metrics.custom_name)
		{
			json_object_begin(b, "customMetrics");
			json_add_int(b, op->metrics.custom_name, op->metrics.custom);
			json_object_end(b);
		}
		json_object_end(b);
	}
	json_array_end(b);
}

/* ---- by partition, how far what was read is behind the newest ---- */

typedef struct Behind
{
	int64 partitions, sum, min, max;
} Behind;

static int64
number_of(const JsonbValue *v)
{
	return DatumGetInt64(DirectFunctionCall1(numeric_int8, NumericGetDatum(v->val.numeric)));
}

/* Positions: {partition: offset}, or those by topic; what begins with @ is the source's own. */
static void
behind_add(Behind *behind, JsonbContainer *latest, JsonbContainer *reached)
{
	JsonbIterator *it = JsonbIteratorInit(latest);
	JsonbIteratorToken token;
	JsonbValue key, value, *at;

	while ((token = JsonbIteratorNext(&it, &key, true)) != WJB_DONE)
	{
		if (token != WJB_KEY)
			continue;
		(void) JsonbIteratorNext(&it, &value, true);
		at = key.val.string.len > 0 && key.val.string.val[0] != '@' ? findJsonbValueFromContainer(reached, JB_FOBJECT, &key) : NULL;
		if (at == NULL || at->type != value.type)
			continue;
		if (value.type == jbvBinary)
			behind_add(behind, value.val.binary.data, at->val.binary.data);
		else if (value.type == jbvNumeric)
		{
			int64 n = Max(number_of(&value) - number_of(at), 0);

			behind->min = behind->partitions == 0 ? n : Min(behind->min, n);
			behind->max = Max(behind->max, n);
			behind->sum += n;
			behind->partitions++;
		}
	}
}

/* As text, as Spark has it. */
static void
progress_metrics(JsonBuild *b, Jsonb *latest, Jsonb *reached)
{
	Behind behind = {0, 0, 0, 0};

	if (latest && reached)
		behind_add(&behind, &latest->root, &reached->root);
	if (behind.partitions == 0)
		return;
	json_object_begin(b, "metrics");
	json_add_text(b, "avgOffsetsBehindLatest", psprintf("%.1f", (double) behind.sum / behind.partitions));
	json_add_text(b, "maxOffsetsBehindLatest", psprintf(INT64_FORMAT, behind.max));
	json_add_text(b, "minOffsetsBehindLatest", psprintf(INT64_FORMAT, behind.min));
	json_object_end(b);
}

static void
progress_sources(JsonBuild *b, BatchRun *run, double seconds, double since_last)
{
	Jsonb *latest = jsonb_get_object(run->offsets.conf, "latest");
	ListCell *lc;

	json_array_begin(b, "sources");
	foreach (lc, run->sources)
	{
		SourceBatch *batch = lfirst(lc);
		SourceDef *def = batch->reader->def;
		Position *reached = batch->to ? batch->to : batch->from;

		json_object_begin(b, NULL);
		json_add_text(b, "description", psprintf("%s source %s", def->ops->kind, def->name));
		json_add_json(b, "startOffset", batch->from);
		json_add_json(b, "endOffset", reached);
		json_add_json(b, "latestOffset", jsonb_get_object(latest, def->name));
		progress_metrics(b, jsonb_get_object(latest, def->name), reached);
		json_add_int(b, "numInputRows", batch->rows + batch->rows_bad);
		json_add_int(b, "numBadRows", batch->rows_bad);
		if (batch->rows_ahead > 0)
			json_add_int(b, "numRowsAheadOfClock", batch->rows_ahead);
		json_add_float(b, "inputRowsPerSecond", since_last > 0 ? (batch->rows + batch->rows_bad) / since_last : 0);
		json_add_float(b, "processedRowsPerSecond", seconds > 0 ? (batch->rows + batch->rows_bad) / seconds : 0);
		json_object_end(b);
	}
	json_array_end(b);
}

/* ---- the clock ---- */

#define WARN_AGAIN_US (60 * INT64CONST(1000000))

void
progress_watch_clock(QueryRuntime *rt, BatchRun *run, const CommitEntry *commit)
{
	int64 ahead = 0, late = 0;
	ListCell *lc;

	foreach (lc, run->sources)
		ahead += ((SourceBatch *) lfirst(lc))->rows_ahead;
	foreach (lc, rt->operators)
		late += ((Operator *) lfirst(lc))->metrics.dropped;
	if (ahead > 0)
		run->warning = psprintf("rows further ahead of the clock than max_event_time_skew: " INT64_FORMAT "; they do not move the watermark", ahead);
	else if (commit->next_watermark > run->info.batch_time && late > 0)
		run->warning = psprintf("watermark %s is ahead of the clock; late rows dropped: " INT64_FORMAT, timestamptz_to_str(commit->next_watermark), late);
	else if (commit->next_watermark > run->info.batch_time && commit->next_watermark > rt->last_commit.next_watermark)
		run->warning = psprintf("watermark %s is ahead of the clock; rows behind it will be late", timestamptz_to_str(commit->next_watermark));
}

/* In the foreground to the server's log only: what a session is told depends on no clock. */
void
progress_warn(QueryRuntime *rt, BatchRun *run)
{
	int64 now = clock_monotonic_us();

	if (run->warning == NULL || (rt->warned_at != 0 && now - rt->warned_at < WARN_AGAIN_US))
		return;
	rt->warned_at = now;
	ereport(rt->session_lock ? WARNING : LOG,
			(errmsg("streaming query \"%s\": %s", rt->query->name, run->warning), errdetail("Batch " INT64_FORMAT ".", run->info.batch_id),
			 errhint("A clock somewhere may be wrong. Option max_event_time_skew keeps rows from the future from moving the watermark.")));
}

/* ---- rows that cannot be read ---- */

#define RECENT_ROWS 1000
#define RECENT_ROWS_MIN 20 /* fewer say nothing */

static void
reader_note_rows(QueryRuntime *rt, SourceReader *reader, const BatchRun *run)
{
	double share = reader->recent_bad / reader->recent_rows;

	if (reader->recent_rows < RECENT_ROWS_MIN || (reader->unreadable ? share > 0.5 : share <= 0.9))
		return;
	reader->unreadable = !reader->unreadable;
	rt->unreadable |= reader->unreadable;
	rt->readable |= !reader->unreadable;
	if (reader->unreadable)
		ereport(WARNING, (errmsg("streaming query \"%s\": %d %% of the newest rows of source %s cannot be read", rt->query->name, (int) (share * 100), reader->def->name),
						  errdetail("Batch " INT64_FORMAT ".", run->info.batch_id),
						  errhint("stream.dead_letters says why, unless on_bad_row is skip. stream.replay_dead_letters feeds them in again once the source is mended.")));
	else
		ereport(LOG, (errmsg("streaming query \"%s\": rows of source %s can be read again", rt->query->name, reader->def->name),
					  errdetail("Batch " INT64_FORMAT ".", run->info.batch_id)));
}

/* One line when nearly all rows of a source begin to be bad, one when most are good again: between the two limits the state stays as it is. */
void
progress_watch_rows(QueryRuntime *rt, BatchRun *run)
{
	ListCell *lc;

	foreach (lc, run->sources)
	{
		SourceBatch *batch = lfirst(lc);
		SourceReader *reader = batch->reader;
		double excess;

		if (!rt->session_lock || batch->rows + batch->rows_bad == 0)
			continue;
		reader->recent_rows += batch->rows + batch->rows_bad;
		reader->recent_bad += batch->rows_bad;
		reader_note_rows(rt, reader, run);
		excess = Max(reader->recent_rows / RECENT_ROWS, 1);
		reader->recent_rows /= excess;
		reader->recent_bad /= excess;
	}
}

Jsonb *
progress_build(QueryRuntime *rt, BatchRun *run)
{
	JsonBuild b = {NULL, NULL};
	int64 total = clock_monotonic_us() - run->durations.started;
	double seconds = total / 1e6;
	double since_last = rt->last_batch_at ? (double) (run->info.batch_time - rt->last_batch_at) / 1e6 : 0;
	int64 rows = 0;
	ListCell *lc;

	foreach (lc, run->sources)
		rows += ((SourceBatch *) lfirst(lc))->rows + ((SourceBatch *) lfirst(lc))->rows_bad;
	json_object_begin(&b, NULL);
	json_add_text(&b, "id", psprintf(INT64_FORMAT, rt->query->id));
	json_add_text(&b, "runId", rt->run_id);
	json_add_text(&b, "name", rt->query->name);
	json_add_time(&b, "timestamp", run->info.batch_time);
	json_add_int(&b, "batchId", run->info.batch_id);
	json_add_int(&b, "batchDuration", to_ms(total));
	json_add_int(&b, "numInputRows", rows);
	json_add_float(&b, "inputRowsPerSecond", since_last > 0 ? rows / since_last : 0);
	json_add_float(&b, "processedRowsPerSecond", seconds > 0 ? rows / seconds : 0);
	progress_durations(&b, run, total);
	progress_event_time(&b, run);
	progress_operators(&b, rt);
	progress_sources(&b, run, seconds, since_last);
	json_object_begin(&b, "sink");
	json_add_text(&b, "description", rt->sink->ops->describe(rt->sink->def));
	json_add_int(&b, "numOutputRows", run->rows_out);
	json_object_end(&b);
	if (run->warning)
		json_add_text(&b, "warning", run->warning);
	json_object_end(&b);
	return json_result(&b);
}
