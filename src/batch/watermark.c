/*
 * watermark.c: event time: lanes → sources → query.
 *
 * A source's watermark is the largest event time seen, less its delay; while lanes (partitions) have unread data, the slowest of those holds it at its own
 * progress. The query's is the smallest (or largest) over its sources. None of them ever moves back.
 */
#include "batch/watermark.h"

#include "common/int.h"
#include "source/source.h"
#include "util/json_build.h"
#include "util/options.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

/* One source's event time, as kept in commit_entry.watermarks. Microseconds since 2000-01-01 UTC. */
typedef struct SourceTime
{
	TimestampTz watermark; /* DT_NOBEGIN: none yet */
	TimestampTz seen_at;   /* batch time of the last batch with rows of it; DT_NOBEGIN: never */
	int nlanes;
	TimestampTz *lanes;	   /* largest event time per lane, DT_NOBEGIN: none seen */
} SourceTime;

static TimestampTz
time_get(Jsonb *object, const char *key)
{
	char *text = jsonb_get_text(object, key);

	return text ? (TimestampTz) pg_strtoint64(text) : DT_NOBEGIN;
}

static void
lanes_grow(SourceTime *t, int n)
{
	if (n <= t->nlanes)
		return;
	t->lanes = t->lanes ? repalloc(t->lanes, n * sizeof(TimestampTz)) : palloc(n * sizeof(TimestampTz));
	for (int i = t->nlanes; i < n; i++)
		t->lanes[i] = DT_NOBEGIN;
	t->nlanes = n;
}

static SourceTime
source_time_read(Jsonb *watermarks, const char *source)
{
	SourceTime t = {DT_NOBEGIN, DT_NOBEGIN, 0, NULL};
	Jsonb *mine = jsonb_get_object(watermarks, source);
	Jsonb *lanes = jsonb_get_object(mine, "lanes");
	JsonbIterator *it;
	JsonbValue v;
	JsonbIteratorToken token;
	int i = 0;

	if (mine == NULL)
		return t;
	t.watermark = time_get(mine, "watermark");
	t.seen_at = time_get(mine, "seen_at");
	if (lanes == NULL)
		return t;
	lanes_grow(&t, JB_ROOT_COUNT(lanes));
	it = JsonbIteratorInit(&lanes->root);
	while ((token = JsonbIteratorNext(&it, &v, true)) != WJB_DONE)
		if (token == WJB_ELEM)
		{
			if (v.type == jbvNumeric)
				t.lanes[i] = DatumGetInt64(DirectFunctionCall1(numeric_int8, NumericGetDatum(v.val.numeric)));
			i++;
		}
	return t;
}

static void
time_add(JsonBuild *b, const char *key, TimestampTz value)
{
	if (TIMESTAMP_IS_NOBEGIN(value))
		json_add_text(b, key, NULL);
	else
		json_add_int(b, key, value);
}

static void
source_time_write(JsonBuild *b, const char *source, const SourceTime *t)
{
	json_object_begin(b, source);
	time_add(b, "watermark", t->watermark);
	time_add(b, "seen_at", t->seen_at);
	json_array_begin(b, "lanes");
	for (int i = 0; i < t->nlanes; i++)
		time_add(b, NULL, t->lanes[i]);
	json_array_end(b);
	json_object_end(b);
}

/* How far the source's event time has come: its newest row, held back by lanes that have unread data. */
static TimestampTz
source_progress(const SourceTime *t, Jsonb *behind)
{
	TimestampTz newest = DT_NOBEGIN, held = DT_NOEND;
	JsonbIterator *it;
	JsonbValue v;
	JsonbIteratorToken token;

	for (int i = 0; i < t->nlanes; i++)
		newest = Max(newest, t->lanes[i]);
	if (behind == NULL)
		return newest;
	it = JsonbIteratorInit(&behind->root);
	while ((token = JsonbIteratorNext(&it, &v, true)) != WJB_DONE)
		if (token == WJB_ELEM && v.type == jbvNumeric)
		{
			int lane = DatumGetInt32(DirectFunctionCall1(numeric_int4, NumericGetDatum(v.val.numeric)));

			held = Min(held, lane < t->nlanes ? t->lanes[lane] : DT_NOBEGIN);
		}
	return Min(newest, held);
}

/* Before time begins nothing is closed, and there is no watermark that anybody could read. */
static TimestampTz
time_less_delay(TimestampTz at, int64 delay)
{
	TimestampTz result;

	return pg_sub_s64_overflow(at, delay, &result) || !IS_VALID_TIMESTAMP(result) ? DT_NOBEGIN : result;
}

static void
source_time_advance(SourceTime *t, SourceBatch *batch, Jsonb *behind, TimestampTz batch_time)
{
	TimestampTz progress;

	lanes_grow(t, batch->nlanes);
	for (int i = 0; i < batch->nlanes; i++)
		t->lanes[i] = Max(t->lanes[i], batch->lane_max[i]);
	if (batch->rows > 0 || TIMESTAMP_IS_NOBEGIN(t->seen_at))
		t->seen_at = batch_time;
	progress = source_progress(t, behind);
	if (!TIMESTAMP_NOT_FINITE(progress))
		t->watermark = Max(t->watermark, time_less_delay(progress, batch->reader->def->watermark_delay));
}

/* ---- over the sources ---- */

static TimestampTz
idle_from(const QueryOptions *options, const SourceTime *t)
{
	return options->idle_timeout > 0 && !TIMESTAMP_IS_NOBEGIN(t->seen_at) ? t->seen_at + options->idle_timeout : DT_NOEND;
}

/* The query's watermark at a time: sources silent by then hold nothing; when all are, none is left to be waited for. */
static TimestampTz
watermark_combine(const QueryOptions *options, List *times, TimestampTz at)
{
	TimestampTz smallest = DT_NOEND, largest = DT_NOBEGIN;
	ListCell *lc;

	foreach (lc, times)
	{
		SourceTime *t = lfirst(lc);

		largest = Max(largest, t->watermark);
		if (idle_from(options, t) > at)
			smallest = Min(smallest, t->watermark);
	}
	return strcmp(options->multiple_watermark_policy, "max") == 0 || smallest == DT_NOEND ? largest : smallest;
}

TimestampTz
watermark_idle_due(const QueryOptions *options, List *sources, const CommitEntry *commit)
{
	TimestampTz due = DT_NOEND;
	List *times = NIL;
	ListCell *lc;

	if (options->idle_timeout <= 0 || commit->watermarks == NULL)
		return DT_NOEND;
	foreach (lc, sources)
	{
		SourceDef *def = ((SourceReader *) lfirst(lc))->def;
		SourceTime *t = palloc(sizeof(SourceTime));

		*t = source_time_read(commit->watermarks, def->name);
		if (def->watermark_delay >= 0)
			times = lappend(times, t);
	}
	foreach (lc, times)
	{
		TimestampTz at = idle_from(options, lfirst(lc));

		if (at < due && watermark_combine(options, times, at) > commit->next_watermark)
			due = at;
	}
	return due;
}

void
watermark_advance(const QueryOptions *options, List *batches, Jsonb *behind, const CommitEntry *before, TimestampTz batch_time, CommitEntry *after)
{
	JsonBuild b = {NULL, NULL};
	List *times = NIL;
	ListCell *lc;

	json_object_begin(&b, NULL);
	foreach (lc, batches)
	{
		SourceBatch *batch = lfirst(lc);
		SourceDef *def = batch->reader->def;
		SourceTime *t;

		if (def->watermark_delay < 0)
			continue;
		t = palloc(sizeof(SourceTime));
		*t = source_time_read(before->watermarks, def->name);
		source_time_advance(t, batch, jsonb_get_object(behind, def->name), batch_time);
		source_time_write(&b, def->name, t);
		times = lappend(times, t);
	}
	json_object_end(&b);
	after->watermarks = json_result(&b);
	after->next_watermark = Max(before->next_watermark, watermark_combine(options, times, batch_time));
}
