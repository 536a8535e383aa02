/*
 * next.c: what is the next batch? Sources say how far they go, limits cut, operators ask for batches without data; the answer is an entry of the offset log.
 * A function of the logs and the sources, never of the process that asks.
 */
#include "batch/step.h"

#include "batch/watermark.h"
#include "metadata/replay.h"
#include "util/clock.h"
#include "util/json_build.h"
#include "util/options.h"
#include "utils/fmgrprotos.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

Position *
position_get(Jsonb *positions, const char *source)
{
	return jsonb_get_object(positions, source);
}

/* Where the next batch starts: behind the last one, or the last flush of an open epoch. */
static Jsonb *
reached(QueryRuntime *rt)
{
	return rt->epoch_open ? rt->epoch.offsets : rt->last_offsets.offsets;
}

static bool
nothing_ran(QueryRuntime *rt)
{
	return rt->last_batch < 0 && !rt->epoch_open;
}

/* The watermark at which state has been evicted: what it closed is late from then on, in later flushes of the same epoch as well. */
static TimestampTz
evicted_at(QueryRuntime *rt)
{
	return rt->epoch_open ? rt->last_commit.next_watermark : rt->last_offsets.watermark;
}

static TimestampTz
last_time(QueryRuntime *rt)
{
	return rt->epoch_open ? rt->epoch.flushed_at : rt->last_offsets.batch_time;
}

static bool
operators_want_batch(QueryRuntime *rt, TimestampTz watermark)
{
	ListCell *lc;

	foreach (lc, rt->operators)
	{
		Operator *op = lfirst(lc);

		if (op->ops->wants_batch(op, evicted_at(rt), watermark))
			return true;
	}
	return false;
}

/* When the clock asks for a batch: timers, expired state, a source silent for so long that the watermark goes on without it. */
static TimestampTz
clock_next_due(QueryRuntime *rt)
{
	TimestampTz due = DT_NOEND;
	ListCell *lc;

	if (!rt->query->options.no_data_batches || nothing_ran(rt))
		return DT_NOEND;
	/* The end of an open epoch looks at the silent sources anyway. */
	if (!rt->epoch_open && rt->query->options.idle_timeout > 0 && operators_want_batch(rt, DT_NOEND))
		due = watermark_idle_due(&rt->query->options, rt->readers, &rt->last_commit);
	foreach (lc, rt->operators)
	{
		Operator *op = lfirst(lc);

		if (op->ops->next_due)
			due = Min(due, op->ops->next_due(op));
	}
	return due;
}

static bool
no_data_batch_due(QueryRuntime *rt)
{
	if (!rt->query->options.no_data_batches || nothing_ran(rt))
		return false;
	return clock_next_due(rt) <= clock_now() || operators_want_batch(rt, rt->last_commit.next_watermark);
}

/* Rows wait for min_rows_per_batch: not yet, unless max_trigger_delay has passed since the last batch. */
static bool
rows_are_too_few(QueryRuntime *rt, int64 waiting)
{
	QueryOptions *o = &rt->query->options;

	rt->due_at = 0;
	if (o->min_rows_per_batch == 0 || nothing_ran(rt) || rt->ignore_limits || rt->ceilings != NIL || waiting < 0 || waiting == 0 ||
		waiting >= o->min_rows_per_batch)
		return false;
	rt->due_at = last_time(rt) + o->max_trigger_delay;
	return clock_now() < rt->due_at;
}

/* Where a source without an entry in the log starts: fixed at the first look, so that "latest" means the same after a restart. */
static Position *
start_position(QueryRuntime *rt, SourceReader *reader)
{
	Position *start = position_get(rt->query->starts, reader->def->name);
	JsonBuild b = {NULL, NULL};
	MemoryContext old;

	if (start)
		return start;
	start = reader->ops->initial(reader);
	if (start == NULL)
		return NULL;
	json_object_begin(&b, NULL);
	json_add_json(&b, reader->def->name, start);
	json_object_end(&b);
	old = MemoryContextSwitchTo(rt->context);
	rt->query->starts = DatumGetJsonbP(DirectFunctionCall2(jsonb_concat, JsonbPGetDatum(rt->query->starts), JsonbPGetDatum(json_result(&b))));
	MemoryContextSwitchTo(old);
	query_update(rt->query);
	return start;
}

/* Sources the query reads for the first time. */
static void
new_sources_arrive(QueryRuntime *rt)
{
	ListCell *lc;

	foreach (lc, rt->readers)
	{
		SourceReader *reader = lfirst(lc);
		const char *name = reader->def->name;

		if (reader->ops->arrive && position_get(reached(rt), name) == NULL && position_get(rt->query->starts, name) == NULL)
			reader->ops->arrive(reader);
	}
}

typedef struct PlannedRange
{
	Position *from, *to; /* to NULL: no rows */
	int64 rows, bytes;	 /* in it; -1 and 0: the source does not know */
	int64 left;			 /* rows behind it; -1: the source does not know */
	Position *latest;	 /* the newest there is, by partition; NULL: the source has none, or does not know */
} PlannedRange;

/* Asks every source for its next range. True when one has something. */
static bool
ranges_plan(QueryRuntime *rt, PlannedRange *ranges, JsonBuild *behind)
{
	QueryOptions *o = &rt->query->options;
	ReadLimit limit = {rt->ignore_limits ? 0 : o->max_rows_per_batch, rt->ignore_limits ? 0 : o->max_bytes_per_batch,
					   rt->ignore_limits ? 0 : o->min_rows_per_batch, rt->ignore_limits, rt->be_sure};
	bool any = false;
	int64 waiting = 0;
	ListCell *lc;
	int i = 0;

	new_sources_arrive(rt);
	rt->more = false;
	foreach (lc, rt->readers)
	{
		SourceReader *reader = lfirst(lc);
		Position *ceiling = rt->ceilings ? list_nth(rt->ceilings, i) : NULL;
		SourceAdvance advance;

		ranges[i].from = position_get(reached(rt), reader->def->name);
		if (ranges[i].from == NULL)
			ranges[i].from = start_position(rt, reader);
		advance = reader->ops->advance(reader, ranges[i].from, ceiling, &limit);
		ranges[i].to = advance.end;
		ranges[i].rows = advance.rows;
		ranges[i].bytes = advance.bytes;
		if (advance.end && advance.rows >= 0)
			reader->rows_expected = advance.rows;
		any = any || advance.end != NULL;
		rt->more = rt->more || advance.more;
		if (advance.rows_waiting < 0 || waiting < 0)
			waiting = advance.end || waiting < 0 ? -1 : waiting;
		else
			waiting += advance.rows_waiting;
		if (advance.behind)
			json_add_json(behind, reader->def->name, advance.behind);
		ranges[i].latest = advance.latest;
		ranges[i].left = advance.more && advance.rows_left == 0 ? -1 : advance.rows_left;
		i++;
	}
	return any && !rows_are_too_few(rt, waiting);
}

#define MAX_REPLAYS 10000

/* Dead letters that were asked to come again, as many as one batch takes. */
static int
replays_plan(QueryRuntime *rt, int64 **letter_ids)
{
	int64 limit = rt->ignore_limits ? 0 : rt->query->options.max_rows_per_batch;

	return replay_waiting(rt->query->id, limit > 0 ? (int) Min(limit, MAX_REPLAYS) : MAX_REPLAYS, letter_ids);
}

/* How much there is to do, for stream.operations; nothing where some source does not know. */
static void
size_write(JsonBuild *conf, PlannedRange *ranges, int nranges, int nreplays)
{
	int64 rows = nreplays, bytes = 0;
	bool rows_known = true, bytes_known = true;

	for (int i = 0; i < nranges; i++)
	{
		if (ranges[i].to == NULL)
			continue;
		rows_known &= ranges[i].rows >= 0;
		bytes_known &= ranges[i].bytes > 0;
		rows += ranges[i].rows;
		bytes += ranges[i].bytes;
	}
	if (rows_known)
		json_add_int(conf, "rows", rows);
	if (bytes_known && bytes > 0)
		json_add_int(conf, "bytes", bytes);
}

/* What waits behind the batch, for stream.source_lag and stream.pace: by partition, or a number of rows where a source has none and knows. */
static void
rest_write(JsonBuild *conf, List *readers, PlannedRange *ranges, bool has_data)
{
	JsonBuild latest = {NULL, NULL}, waiting = {NULL, NULL};
	int64 left = 0;
	bool known = false;
	ListCell *lc;

	json_object_begin(&latest, NULL);
	json_object_begin(&waiting, NULL);
	foreach (lc, readers)
	{
		PlannedRange *range = &ranges[foreach_current_index(lc)];
		const char *name = ((SourceReader *) lfirst(lc))->def->name;
		int64 rest = range->left;

		/* What was found may have been too little for a batch. */
		if (range->to && !has_data)
			rest = range->rows < 0 || rest < 0 ? -1 : rest + range->rows;
		if (range->latest)
		{
			json_add_json(&latest, name, range->latest);
			left += Max(rest, 0);
			known = true;
		}
		else if (rest >= 0)
			json_add_int(&waiting, name, rest);
	}
	json_object_end(&latest);
	json_object_end(&waiting);
	if (known)
	{
		json_add_json(conf, "latest", json_result(&latest));
		json_add_int(conf, "left", left);
	}
	json_add_json(conf, "waiting", json_result(&waiting));
}

/* offsets/N for what there is to do, or false: nothing. Starts and ends per source; a source without news keeps its place. */
bool
batch_plan(QueryRuntime *rt, OffsetEntry *entry)
{
	PlannedRange *ranges = palloc0(sizeof(PlannedRange) * (list_length(rt->readers) + 1));
	JsonBuild behind = {NULL, NULL}, starts = {NULL, NULL}, ends = {NULL, NULL}, conf = {NULL, NULL};
	int64 *replays;
	int nreplays = replays_plan(rt, &replays);
	bool has_data;
	ListCell *lc;
	int i = 0;

	json_object_begin(&behind, NULL);
	has_data = ranges_plan(rt, ranges, &behind);
	json_object_end(&behind);
	if (!has_data && nreplays == 0 && !no_data_batch_due(rt))
		return false;

	json_object_begin(&starts, NULL);
	json_object_begin(&ends, NULL);
	foreach (lc, rt->readers)
	{
		SourceReader *reader = lfirst(lc);
		Position *to = has_data && ranges[i].to ? ranges[i].to : ranges[i].from;

		if (ranges[i].from)
			json_add_json(&starts, reader->def->name, ranges[i].from);
		if (to)
			json_add_json(&ends, reader->def->name, to);
		i++;
	}
	json_object_end(&starts);
	json_object_end(&ends);
	json_object_begin(&conf, NULL);
	json_add_json(&conf, "behind", json_result(&behind));
	rest_write(&conf, rt->readers, ranges, has_data);
	size_write(&conf, ranges, has_data ? i : 0, nreplays);
	replay_ids_write(&conf, replays, nreplays);
	if (rt->last_batch < 0) /* the same for all batches of an incarnation */
		json_add_json(&conf, "settings", rt->query->settings);
	json_object_end(&conf);

	entry->batch_id = rt->last_batch + 1;
	entry->starts = json_result(&starts);
	entry->offsets = json_result(&ends);
	entry->watermark = rt->last_commit.next_watermark;
	entry->late_watermark = evicted_at(rt);
	entry->batch_time = Max(clock_now(), last_time(rt)); /* the clock may step back; a query's time does not */
	entry->conf = json_result(&conf);
	return true;
}

TimestampTz
batch_next_due(QueryRuntime *rt)
{
	return Min(Min(rt->due_at != 0 ? rt->due_at : DT_NOEND, clock_next_due(rt)), epoch_end(rt));
}
