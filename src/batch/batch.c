/*
 * batch.c: one batch: plan → log → execute → sink → commit.
 *
 * Two transactions. The first logs offsets/N: from then on batch N means exactly that range. The second runs it: output, state and commits/N become visible
 * together or not at all. When output goes only to this database the first commit is asynchronous: the second flushes it. When more data already waits,
 * offsets/N+1 rides in the second, and the next batch needs one transaction only.
 */
#include "batch/step.h"

#include "access/xact.h"
#include "batch/runtime.h"
#include "batch/watermark.h"
#include "metadata/dead_letter.h"
#include "metadata/replay.h"
#include "common/hashfn.h"
#include "util/clock.h"
#include "util/failpoint.h"
#include "util/operation.h"
#include "util/options.h"
#include "utils/guc.h"
#include "utils/memutils.h"

/* ---- log ---- */

/* Plans and logs the next batch; it is durable, or at least ordered before the batch's own commit, when this returns true. */
static bool
batch_log(QueryRuntime *rt, BatchDurations *durations)
{
	OffsetEntry entry;
	MemoryContext old = MemoryContextSwitchTo(rt->batch_context);
	int64 start = clock_monotonic_us();

	FAILPOINT("triggered");
	if (!batch_plan(rt, &entry))
	{
		MemoryContextSwitchTo(old);
		return false;
	}
	durations->latest_offset = clock_monotonic_us() - start;
	FAILPOINT("planned");
	offset_log_add(rt->query->id, &entry);
	MemoryContextSwitchTo(rt->log_context);
	offset_entry_copy(&rt->pending_offsets, &entry);
	MemoryContextSwitchTo(old);
	return true;
}

/* ---- commit ---- */

/* Dead letters that came again: rows now, or dead letters still. */
static void
letters_settle(QueryRuntime *rt, BatchRun *run)
{
	ListCell *lc, *lc2;

	foreach (lc, run->sources)
		foreach (lc2, ((SourceBatch *) lfirst(lc))->letters)
		{
			SourceLetter *letter = lfirst(lc2);

			if (letter->error == NULL)
			{
				replay_take(rt->query->id, letter->id, run->info.batch_id);
				continue;
			}
			dead_letter_set_error(letter->id, letter->error);
			replay_forget(rt->query->id, letter->id);
		}
}

void
batch_settle(QueryRuntime *rt, BatchRun *run, const CommitEntry *before, CommitEntry *commit)
{
	ListCell *lc;

	memset(commit, 0, sizeof(*commit));
	commit->batch_id = run->info.batch_id;
	commit->rows_late = before->rows_late;
	commit->rows_bad = before->rows_bad;
	foreach (lc, rt->operators)
	{
		Operator *op = lfirst(lc);
		int64 start = clock_monotonic_us();

		op->ops->flush(op);
		op->metrics.flush_us = clock_monotonic_us() - start;
		commit->rows_late += op->metrics.dropped + (op->metrics.custom_is_late ? op->metrics.custom : 0);
	}
	foreach (lc, run->sources)
		commit->rows_bad += ((SourceBatch *) lfirst(lc))->rows_bad;
	commit->rows_bad += rt->sink->rows_bad;
	letters_settle(rt, run);
	watermark_advance(&rt->query->options, run->sources, jsonb_get_object(run->offsets.conf, "behind"), before, run->info.batch_time,
					  commit);
	progress_watch_clock(rt, run, commit);
}

void
batch_count(BatchRun *run, const CommitEntry *before, CommitEntry *commit)
{
	ListCell *lc;

	commit->rows_in = before->rows_in;
	foreach (lc, run->sources)
		commit->rows_in += ((SourceBatch *) lfirst(lc))->rows + ((SourceBatch *) lfirst(lc))->rows_bad;
	commit->rows_out = before->rows_out + run->rows_out;
	commit->busy_us = before->busy_us + clock_monotonic_us() - run->durations.started;
}

/* State and commits/N into the batch's transaction. */
static void
batch_record(QueryRuntime *rt, BatchRun *run, CommitEntry *commit)
{
	batch_settle(rt, run, &rt->last_commit, commit);
	batch_count(run, &rt->last_commit, commit);
	commit_log_add(rt->query->id, commit);
	progress_add(rt->query->id, run->info.batch_id, progress_build(rt, run));
}

void
batch_advance(QueryRuntime *rt, const OffsetEntry *offsets, const CommitEntry *commit)
{
	MemoryContext fresh = AllocSetContextCreate(rt->context, "stream_ext logs", ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(fresh);

	offset_entry_copy(&rt->last_offsets, offsets);
	commit_entry_copy(&rt->last_commit, commit);
	rt->last_batch = commit->batch_id;
	rt->last_batch_at = offsets->batch_time;
	rt->pending = false;
	MemoryContextSwitchTo(old);
	MemoryContextDelete(rt->log_context);
	rt->log_context = fresh;
}

/* Does more data wait already? Then the next batch's offsets ride along. Not in the foreground, where a trigger is one batch and no more. */
static bool
next_may_ride(QueryRuntime *rt)
{
	ListCell *lc;

	if (!rt->session_lock || (rt->query->trigger.kind != TRIGGER_AVAILABLE_NOW &&
							  (rt->query->trigger.kind != TRIGGER_PROCESSING_TIME || rt->query->trigger.period > 0)))
		return false;
	if (rt->more)
		return true;
	foreach (lc, rt->readers)
	{
		SourceReader *reader = lfirst(lc);

		if (reader->ops->has_news && reader->ops->has_news(reader))
			return true;
	}
	return false;
}

void
batch_finished(QueryRuntime *rt, BatchRun *run)
{
	ListCell *lc;

	foreach (lc, rt->operators)
	{
		Operator *op = lfirst(lc);

		op->ops->committed(op);
	}
	foreach (lc, run->sources)
	{
		SourceBatch *batch = lfirst(lc);

		if (batch->to && batch->reader->ops->acknowledge)
			batch->reader->ops->acknowledge(batch->reader, batch->to);
		if (batch->to)
			batch->reader->rows_expected = batch->rows + batch->rows_bad;
		rt->last_rows += batch->rows + batch->rows_bad;
	}
	rt->last_duration_us = clock_monotonic_us() - run->durations.started;
	progress_warn(rt, run);
	progress_watch_rows(rt, run);
}

static uint64
range_hash(const OffsetEntry *offsets)
{
	uint64 starts = hash_bytes_extended((unsigned char *) offsets->starts, VARSIZE(offsets->starts), 0);

	return hash_bytes_extended((unsigned char *) offsets->offsets, VARSIZE(offsets->offsets), starts);
}

void
batch_run_begin(QueryRuntime *rt, BatchRun *run)
{
	run->info.query_id = rt->query->id;
	run->info.query_name = rt->query->name;
	run->info.incarnation = rt->query->incarnation;
	run->info.batch_id = run->offsets.batch_id;
	run->info.range = range_hash(&run->offsets);
	run->info.batch_time = run->offsets.batch_time;
	run->info.late_watermark = run->offsets.late_watermark;
	run->info.evict_watermark = run->offsets.watermark;
	run->info.output_mode = rt->query->output_mode;
	run->info.late_to_dead_letter = strcmp(rt->query->options.late_rows, "dead_letter") == 0;
	run->info.row_by_row = rt->query->trigger.kind == TRIGGER_REAL_TIME;
}

static void
synchronous_commit_set(const char *value)
{
	(void) set_config_option("synchronous_commit", value, PGC_USERSET, PGC_S_SESSION, GUC_ACTION_LOCAL, true, 0, false);
}

/* Effects outside this database must not outlive the log that explains them, whatever the owner's settings say. */
void
batch_commit(QueryRuntime *rt)
{
	if (!sink_is_in_database(rt->sink) && synchronous_commit == SYNCHRONOUS_COMMIT_OFF)
		synchronous_commit_set("local");
	runtime_commit(rt);
}

static void
sink_start_once(QueryRuntime *rt)
{
	if (!rt->sink_started && rt->sink->ops->start)
		rt->sink->ops->start(rt->sink, rt->last_batch);
	rt->sink_started = true;
}

bool
batch_run(QueryRuntime *rt)
{
	BatchRun run;
	CommitEntry commit;
	MemoryContext old;
	bool closed = false;

	memset(&run, 0, sizeof(run));
	MemoryContextReset(rt->batch_context);
	run.durations.started = clock_monotonic_us();
	rt->last_rows = 0;

	runtime_rest_tasks(rt);
	runtime_begin(rt);
	runtime_read_logs(rt);
	runtime_prepare(rt);
	sink_start_once(rt);
	run.durations.query_planning = clock_monotonic_us() - run.durations.started;
	if (!rt->pending && epoch_is_wanted(rt))
		return epoch_run(rt, &run);
	if (!rt->pending)
	{
		int64 start;

		if (rt->epoch_open)
		{
			epoch_close(rt); /* left behind by a worker, under another trigger */
			closed = true;
		}
		if (!batch_log(rt, &run.durations))
		{
			runtime_commit(rt);
			return closed;
		}
		if (sink_is_in_database(rt->sink))
			synchronous_commit_set("off");
		start = clock_monotonic_us();
		batch_commit(rt);
		rt->pending = rt->pending_fresh = true;
		run.durations.wal_commit = clock_monotonic_us() - start;
		FAILPOINT("logged");
		runtime_begin(rt);
		if (!rt->session_lock)
		{
			int64 logged = rt->last_batch + 1;

			runtime_read_logs(rt);
			if (!rt->pending) /* another session has run it meanwhile */
			{
				runtime_commit(rt);
				return true;
			}
			rt->pending_fresh = rt->last_batch + 1 == logged;
		}
		runtime_prepare(rt);
	}

	old = MemoryContextSwitchTo(rt->batch_context);
	run.offsets = rt->pending_offsets;
	batch_run_begin(rt, &run);
	run.info.again = !rt->pending_fresh;
	batch_execute(rt, &run);
	batch_record(rt, &run, &commit);
	batch_advance(rt, &run.offsets, &commit);
	if (next_may_ride(rt))
		rt->pending = rt->pending_fresh = batch_log(rt, &run.durations);
	MemoryContextSwitchTo(old);
	FAILPOINT_AT_COMMIT("committing");
	batch_commit(rt);
	FAILPOINT("committed");
	batch_finished(rt, &run);
	return true;
}


void
batch_leave(QueryRuntime *rt)
{
	if (!rt->epoch_open && !(rt->sink && rt->sink->ops->leave && rt->sink_started))
		return;
	MemoryContextReset(rt->batch_context);
	runtime_begin(rt);
	runtime_read_logs(rt);
	runtime_prepare(rt);
	if (rt->epoch_open)
		epoch_close(rt);
	if (rt->sink->ops->leave)
		rt->sink->ops->leave(rt->sink, rt->last_batch);
	runtime_commit(rt);
}
