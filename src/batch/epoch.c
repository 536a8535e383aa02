/*
 * epoch.c: the low-latency triggers, real_time and continuous: batch N is an epoch, its rows flow at once.
 *
 * What arrives is flushed through the query in one transaction: rows, state, and stream.epoch_entry, which says how far the epoch has come. Rows and state
 * carry the epoch's id. When the interval is over, one more transaction, or the flush's own, writes offsets/N and commits/N and empties the entries; only then
 * does the watermark move. A restart goes on behind the last flush: exactly once inside an open epoch too.
 * Danger: a flush is not logged before it runs. What cannot be undone (a message sent) comes again after a crash.
 */
#include "batch/step.h"

#include "batch/runtime.h"
#include "batch/watermark.h"
#include "metadata/replay.h"
#include "util/clock.h"
#include "util/failpoint.h"
#include "util/json_build.h"
#include "util/options.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

/* ---- totals: what the progress of the epoch will say ---- */

enum
{
	TOTAL_ROWS_OUT, TOTAL_BUSY_US, TOTAL_EVENTS, TOTAL_EVENT_MIN, TOTAL_EVENT_MAX, TOTAL_EVENT_SUM, TOTAL_FIXED
};
/* then per source */
enum
{
	SOURCE_ROWS, SOURCE_BAD, SOURCE_AHEAD, SOURCE_TOTALS
};
/* then per operator; the first three add up, the others are those of the last flush */
enum
{
	OPERATOR_UPDATED, OPERATOR_REMOVED, OPERATOR_DROPPED, OPERATOR_CUSTOM, OPERATOR_ROWS, OPERATOR_BYTES, OPERATOR_TOTALS
};

static int
totals_count(QueryRuntime *rt)
{
	return TOTAL_FIXED + SOURCE_TOTALS * list_length(rt->readers) + OPERATOR_TOTALS * list_length(rt->operators);
}

/* Zeros, too, when the query was altered inside an epoch and they fit no more: they decide nothing. */
static double *
totals_so_far(QueryRuntime *rt)
{
	int n = totals_count(rt);
	double *totals = palloc0(sizeof(double) * n);

	if (rt->epoch_open && rt->epoch.ntotals == n)
		memcpy(totals, rt->epoch.totals, sizeof(double) * n);
	return totals;
}

static void
totals_add_events(double *totals, const SourceBatch *batch)
{
	if (batch->event_rows == 0 || batch->reader->def->watermark_delay < 0)
		return;
	if (totals[TOTAL_EVENTS] == 0)
	{
		totals[TOTAL_EVENT_MIN] = batch->event_min;
		totals[TOTAL_EVENT_MAX] = batch->event_max;
	}
	totals[TOTAL_EVENTS] += batch->event_rows;
	totals[TOTAL_EVENT_MIN] = Min(totals[TOTAL_EVENT_MIN], batch->event_min);
	totals[TOTAL_EVENT_MAX] = Max(totals[TOTAL_EVENT_MAX], batch->event_max);
	totals[TOTAL_EVENT_SUM] += batch->event_sum;
}

static void
totals_add(QueryRuntime *rt, BatchRun *run, double *totals)
{
	double *t = totals + TOTAL_FIXED;
	ListCell *lc;

	totals[TOTAL_ROWS_OUT] += run->rows_out;
	totals[TOTAL_BUSY_US] += clock_monotonic_us() - run->durations.started;
	foreach (lc, run->sources)
	{
		SourceBatch *batch = lfirst(lc);

		t[SOURCE_ROWS] += batch->rows;
		t[SOURCE_BAD] += batch->rows_bad;
		t[SOURCE_AHEAD] += batch->rows_ahead;
		totals_add_events(totals, batch);
		t += SOURCE_TOTALS;
	}
	foreach (lc, rt->operators)
	{
		OperatorMetrics *metrics = &((Operator *) lfirst(lc))->metrics;

		t[OPERATOR_UPDATED] += metrics->updated;
		t[OPERATOR_REMOVED] += metrics->removed;
		t[OPERATOR_DROPPED] += metrics->dropped;
		t[OPERATOR_CUSTOM] += metrics->custom;
		t[OPERATOR_ROWS] = metrics->rows_total;
		t[OPERATOR_BYTES] = metrics->bytes;
		t += OPERATOR_TOTALS;
	}
}

/* The epoch as one batch, for progress_build. */
static void
totals_show(QueryRuntime *rt, BatchRun *run)
{
	double *totals = totals_so_far(rt), *t = totals + TOTAL_FIXED;
	ListCell *lc;

	run->rows_out = totals[TOTAL_ROWS_OUT];
	run->durations.add_batch = totals[TOTAL_BUSY_US];
	run->durations.started = clock_monotonic_us() - (int64) totals[TOTAL_BUSY_US];
	foreach (lc, run->sources)
	{
		SourceBatch *batch = lfirst(lc);

		batch->rows = t[SOURCE_ROWS];
		batch->rows_bad = t[SOURCE_BAD];
		batch->rows_ahead = t[SOURCE_AHEAD];
		if (totals[TOTAL_EVENTS] > 0 && batch->reader->def->watermark_delay >= 0)
		{
			batch->event_rows = totals[TOTAL_EVENTS];
			batch->event_min = totals[TOTAL_EVENT_MIN];
			batch->event_max = totals[TOTAL_EVENT_MAX];
			batch->event_sum = totals[TOTAL_EVENT_SUM];
			totals[TOTAL_EVENTS] = 0; /* those of all sources, shown with the first */
		}
		t += SOURCE_TOTALS;
	}
	foreach (lc, rt->operators)
	{
		OperatorMetrics *metrics = &((Operator *) lfirst(lc))->metrics;

		metrics->updated = t[OPERATOR_UPDATED];
		metrics->removed = t[OPERATOR_REMOVED];
		metrics->dropped = t[OPERATOR_DROPPED];
		metrics->custom = t[OPERATOR_CUSTOM];
		metrics->rows_total = t[OPERATOR_ROWS];
		metrics->bytes = t[OPERATOR_BYTES];
		t += OPERATOR_TOTALS;
	}
}

/* ---- a flush ---- */

static void
epoch_keep(QueryRuntime *rt, const EpochEntry *entry)
{
	MemoryContext fresh = AllocSetContextCreate(rt->context, "stream_ext epoch", ALLOCSET_SMALL_SIZES);
	MemoryContext old = MemoryContextSwitchTo(fresh);

	epoch_entry_copy(&rt->epoch, entry);
	rt->epoch_open = true;
	MemoryContextSwitchTo(old);
	MemoryContextDelete(rt->epoch_context);
	rt->epoch_context = fresh;
}

static void
epoch_record(QueryRuntime *rt, BatchRun *run)
{
	bool opens = !rt->epoch_open;
	EpochEntry entry = {
		.batch_id = run->info.batch_id,
		.flush = opens ? 0 : rt->epoch.flush + 1,
		.starts = opens ? run->offsets.starts : rt->epoch.starts,
		.offsets = run->offsets.offsets,
		.opened_at = opens ? run->info.batch_time : rt->epoch.opened_at,
		.flushed_at = run->info.batch_time,
		.conf = run->offsets.conf,
	};

	batch_settle(rt, run, opens ? &rt->last_commit : &rt->epoch.so_far, &entry.so_far);
	entry.totals = totals_so_far(rt);
	entry.ntotals = totals_count(rt);
	totals_add(rt, run, entry.totals);
	epoch_log_add(rt->query->id, &entry);
	epoch_keep(rt, &entry);
}

static bool
epoch_flush(QueryRuntime *rt, BatchRun *run)
{
	FAILPOINT("triggered");
	if (!batch_plan(rt, &run->offsets))
		return false;
	FAILPOINT("planned");
	batch_run_begin(rt, run);
	if (rt->epoch_open)
		run->info.rows_before = totals_so_far(rt)[TOTAL_ROWS_OUT];
	batch_execute(rt, run);
	epoch_record(rt, run);
	FAILPOINT("flushed");
	return true;
}

/* ---- the end of an epoch ---- */

static int64
epoch_period(QueryRuntime *rt)
{
	return rt->query->trigger.period;
}

TimestampTz
epoch_end(QueryRuntime *rt)
{
	return rt->epoch_open ? rt->epoch.opened_at + epoch_period(rt) : DT_NOEND;
}

/* Also when the clock has stepped back behind its beginning: an epoch must not last until it has caught up. */
static bool
epoch_is_over(QueryRuntime *rt)
{
	TimestampTz now = clock_now();

	return now >= epoch_end(rt) || now < rt->epoch.opened_at - epoch_period(rt);
}

/* What the epoch's entry in the offset log says beside the ranges: as the last flush had it, but with all dead letters that came again in the epoch. */
static Jsonb *
epoch_conf(QueryRuntime *rt)
{
	Datum conf = DirectFunctionCall2(jsonb_delete, JsonbPGetDatum(rt->epoch.conf), CStringGetTextDatum("replay"));
	JsonBuild b = {NULL, NULL};
	int64 *replays;
	int n = replay_taken_by(rt->query->id, rt->epoch.batch_id, &replays);

	json_object_begin(&b, NULL);
	replay_ids_write(&b, replays, n);
	json_object_end(&b);
	return DatumGetJsonbP(DirectFunctionCall2(jsonb_concat, conf, JsonbPGetDatum(json_result(&b))));
}

void
epoch_close(QueryRuntime *rt)
{
	MemoryContext old = MemoryContextSwitchTo(rt->batch_context);
	EpochEntry *epoch = &rt->epoch;
	BatchRun run = {.offsets = {.batch_id = epoch->batch_id,
								.starts = epoch->offsets,
								.offsets = epoch->offsets,
								.watermark = rt->last_commit.next_watermark,
								.late_watermark = rt->last_offsets.watermark,
								.batch_time = epoch->flushed_at,
								.conf = epoch_conf(rt)}};
	CommitEntry commit = epoch->so_far;

	batch_run_begin(rt, &run);
	/* No rows any more, but time has passed: a source may have been silent for too long. */
	run.sources = batch_sources(rt, &run);
	watermark_advance(&rt->query->options, run.sources, jsonb_get_object(epoch->conf, "behind"), &epoch->so_far,
					  Max(clock_now(), epoch->flushed_at), &commit);
	run.offsets.starts = epoch->starts;
	run.sources = batch_sources(rt, &run);
	totals_show(rt, &run);
	batch_count(&run, &rt->last_commit, &commit);
	progress_watch_clock(rt, &run, &commit);
	offset_log_add(rt->query->id, &run.offsets);
	commit_log_add(rt->query->id, &commit);
	progress_add(rt->query->id, epoch->batch_id, progress_build(rt, &run));
	epoch_log_delete(rt->query->id);
	batch_advance(rt, &run.offsets, &commit);
	rt->epoch_open = false;
	FAILPOINT("closed");
	MemoryContextSwitchTo(old);
}

/* ---- a trigger ---- */

bool
epoch_is_wanted(QueryRuntime *rt)
{
	TriggerKind kind = rt->query->trigger.kind;

	return rt->session_lock && !rt->log_first && (kind == TRIGGER_REAL_TIME || kind == TRIGGER_CONTINUOUS);
}

bool
epoch_run(QueryRuntime *rt, BatchRun *run)
{
	MemoryContext old = MemoryContextSwitchTo(rt->batch_context);
	bool flushed, closed = false;

	flushed = epoch_flush(rt, run);
	if (rt->epoch_open && epoch_is_over(rt))
	{
		epoch_close(rt);
		closed = true;
	}
	MemoryContextSwitchTo(old);
	batch_commit(rt);
	FAILPOINT("committed");
	if (flushed)
		batch_finished(rt, run);
	return flushed || closed;
}
