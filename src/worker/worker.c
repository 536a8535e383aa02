/*
 * worker.c: the process that runs one query, connected as its owner.
 * Open → trigger due? → batch → … → wait → …; an error aborts the batch, is recorded, backed off, and the same batch comes again.
 * One PG_TRY for all of it. Between triggers: no transaction, no snapshot, no lock but the query's own.
 */
#include "worker/supervisor.h"

#include <signal.h>

#include "access/xact.h"
#include "batch/batch.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lwlock.h"
#include "storage/pmsignal.h"
#include "tcop/tcopprot.h"
#include "util/clock.h"
#include "util/wakeup.h"
#include "util/process.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timeout.h"
#include "worker/event.h"
#include "worker/failure.h"
#include "worker/housekeeper.h"
#include "worker/outcome.h"
#include "worker/status.h"
#include "worker/trigger.h"
#include "worker/wait.h"
#include "worker/worker.h"

#define REST_US (10 * INT64CONST(1000))
#define RECORD_AGAIN_US INT64CONST(1000000)
#define RECORD_ATTEMPTS 10
#define LEAVE_LOCK_TIMEOUT "1s"

typedef struct Worker
{
	WorkerLaunch launch;
	MemoryContext context;	   /* of the worker */
	MemoryContext query_context; /* reset when the query is opened anew */
	MemoryContext step_context;	 /* reset at each step of the loop; a commit leaves us in TopMemoryContext */
	char *name;
	int64 max_retries;
	int64 last_batch;		   /* -1: none yet */
	int64 left_behind;		   /* the batch an earlier process had logged and not finished; -1: none */
	StreamQuery *query;		   /* NULL: to be loaded and opened */
	QueryRuntime *rt;		   /* NULL: to be opened */
	bool first;				   /* not opened yet */
	bool attempting;		   /* the attempt is recorded */
	bool announced;			   /* the row says running */
	bool locked;			   /* the session holds the query's lock; an abort lets go of it */
	bool news;				   /* something may be there to be read */
	bool again;				   /* the last attempt failed: do not wait for a tick */
	bool busy;				   /* no trigger has found nothing since the last batch */
	TimestampTz last_trigger;  /* 0: not yet */
	int64 last_trigger_mono;
	int64 statistics_due;	   /* monotonic; 0: all are reported */
	ErrorData *error;		   /* not recorded yet */
	bool leaving;			   /* asked to stop: what the query has open is being ended */
	int record_attempts;
	int failures;			   /* in a row */
	int lasting_failures;	   /* of those, not transient: max_retries limits them */
	bool forgive;			   /* the row knows of failures: clear them after the first success */
} Worker;

static Worker self;

bool
worker_is_me(int64 query_id)
{
	return self.launch.query_id == query_id && query_id != 0;
}

bool
worker_in_worker(void)
{
	return self.launch.query_id != 0;
}

/* ---- start ---- */

#if defined(__linux__) && defined(SIGPWR)
/* The kernel's word that the postmaster is dead: a batch in the middle of its work must hear of it too, not only a sleeping one. */
static void
postmaster_died(int signal)
{
	int save_errno = errno;

	postmaster_possibly_dead = true;
	InterruptPending = true;
	ProcDiePending = true;
	SetLatch(MyLatch);
	errno = save_errno;
}
#endif

static void
worker_detach(int code, Datum arg)
{
	housekeeper_stop();
	status_worker_detach();
}

static void
worker_setup(Datum arg)
{
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, die);
#if defined(__linux__) && defined(SIGPWR)
	pqsignal(SIGPWR, postmaster_died);
#endif
	memcpy(&self.launch, MyBgworkerEntry->bgw_extra, sizeof(WorkerLaunch));
	/* Registered before the connection is made, so that it runs last: a free slot means that nothing is left of us. */
	on_shmem_exit(worker_detach, (Datum) 0);
	if (!status_worker_attach(DatumGetInt32(arg), self.launch.launch))
		proc_exit(0);
	BackgroundWorkerUnblockSignals();
	process_connect(self.launch.database, self.launch.owner);
	self.name = "?";
	self.max_retries = DEFAULT_MAX_RETRIES;
	self.last_batch = self.left_behind = -1;
	self.first = true;
	self.context = AllocSetContextCreate(TopMemoryContext, "stream worker", ALLOCSET_DEFAULT_SIZES);
	self.step_context = AllocSetContextCreate(self.context, "stream worker step", ALLOCSET_SMALL_SIZES);
	self.query_context = AllocSetContextCreate(self.context, "stream worker query", ALLOCSET_DEFAULT_SIZES);
	self.news = self.busy = true;
}

/* ---- open ---- */

static void
worker_close(Worker *w)
{
	QueryRuntime *rt = w->rt;

	w->rt = NULL;
	w->query = NULL;
	if (rt)
		runtime_close(rt);
	wakeup_unsubscribe_all();
	MemoryContextReset(w->query_context);
}

static void
transaction_begin(void)
{
	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	PushActiveSnapshot(GetTransactionSnapshot());
}

static void
transaction_end(void)
{
	PopActiveSnapshot();
	CommitTransactionCommand();
}

static void
worker_lock(Worker *w)
{
	if (!query_lock(w->launch.query_id, true))
		ereport(ERROR, (errcode(ERRCODE_OBJECT_IN_USE), errmsg("streaming query \"%s\" is being run by another session", w->query->name)));
	w->locked = true;
}

static void
worker_load(Worker *w)
{
	MemoryContext old = MemoryContextSwitchTo(w->query_context);

	w->query = query_load_by_id(w->launch.query_id, false);
	MemoryContextSwitchTo(old);
	w->name = MemoryContextStrdup(w->context, w->query->name);
	w->max_retries = w->query->options.max_retries;
	process_set("application_name", psprintf("stream_ext: %s", w->name));
	if (w->query->owner != GetSessionUserId())
		ereport(FATAL, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE), errmsg("streaming query \"%s\" has a new owner", w->query->name)));
}

/* Also after an abort, which let go of the lock: somebody else may have moved on, but the logs are read again in that case. */
static void
worker_open(Worker *w)
{
	pgstat_report_activity(STATE_RUNNING, "opening the query");
	transaction_begin();
	if (w->query == NULL)
		worker_load(w);
	if (!w->locked)
		worker_lock(w);
	if (w->rt == NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(w->query_context);

		query_apply_settings(w->query);
		w->rt = runtime_open(w->query, true);
		if (w->query->trigger.kind == TRIGGER_AVAILABLE_NOW)
			runtime_fix_ends(w->rt);
		MemoryContextSwitchTo(old);
		w->news = true;
	}
	w->last_batch = w->rt->last_batch;
	w->rt->log_first = w->lasting_failures > 0;
	if (w->first && w->rt->pending)
		w->left_behind = w->last_batch + 1;
	w->first = false;
	transaction_end();
}

/* ---- run ---- */

/* One trigger. True: a batch ran; false: there was nothing to do. */
static bool
worker_fire(Worker *w)
{
	int64 wakes = status_trigger_begins();
	bool ran;
	int64 last_batch = w->last_batch;

	(void) wakeup_take(); /* before looking: what comes later shows up again */
	w->news = w->again = false;
	w->last_trigger = clock_now();
	w->last_trigger_mono = clock_monotonic_us();
	pgstat_report_activity(STATE_RUNNING, "batch");
	w->rt->be_sure = status_wakes_pending() > 0;
	ran = batch_run(w->rt);
	MemoryContextSwitchTo(w->step_context);
	if (ran)
	{
		w->last_batch = w->rt->last_batch;
		status_batch_done(w->last_batch, w->rt->last_batch_at, w->rt->last_duration_us, w->rt->last_rows);
		housekeeper_look(w->rt, w->query->owner);
		if (w->last_batch != last_batch)
			event_note_progress(w->last_batch);
		if (w->rt->unreadable || w->rt->readable)
			event_note_rows(w->rt->unreadable, w->rt->readable, w->last_batch);
		w->rt->unreadable = w->rt->readable = false;
		w->news = w->busy = true;
	}
	else if (w->busy)
	{
		event_note_idle(w->last_batch);
		w->busy = false;
	}
	status_trigger_ends(ran, wakes);
	(void) event_send_due(w->launch.query_id);
	return ran;
}

/* Microseconds until the next trigger; 0: now, -1: when data comes. */
static int64
trigger_wait(Worker *w)
{
	TriggerDef *trigger = &w->query->trigger;
	TimestampTz now = clock_now();
	int64 wait;

	if (w->again || status_wakes_pending() > 0)
		return 0;
	if (!trigger_is_immediate(trigger))
		return trigger_next(trigger->period, w->last_trigger, now) - now;
	if (w->news || w->last_trigger == 0)
		return 0;
	wait = wait_limit(w->rt, w->last_trigger_mono);
	/* Whatever claims to be due although the last trigger found nothing must not make us spin. */
	return wait < 0 ? -1 : Max(wait, w->last_trigger_mono + REST_US - clock_monotonic_us());
}

/*
 * Without it autovacuum would not learn of what batches leave behind. Often enough, not more: microseconds until what is left must be reported, -1: nothing
 * is. Between transactions the server's own sense of time stands still.
 */
static int64
statistics_report(Worker *w)
{
	int64 now = clock_monotonic_us();
	long wait_ms = pgstat_report_stat(w->statistics_due > 0 && now >= w->statistics_due);

	if (wait_ms <= 0)
		w->statistics_due = 0;
	else if (w->statistics_due == 0)
		w->statistics_due = now + wait_ms * INT64CONST(1000);
	return w->statistics_due > 0 ? Max(w->statistics_due - now, 0) : -1;
}

static void
worker_wait(Worker *w, int64 wait_us)
{
	int64 event_us = event_send_due(w->launch.query_id);
	int64 limit = wait_sooner(wait_sooner(wait_us, event_us), statistics_report(w));

	MemoryContextSwitchTo(w->step_context);
	status_set_message(trigger_is_immediate(&w->query->trigger) ? "Waiting for data to arrive" : "Waiting for next trigger");
	if (wait_for_news(w->rt, limit))
	{
		w->news = true;
		status_set_data_available(true);
	}
}

/* A trigger went well. False: the query is over, or not wanted any more. */
static bool
worker_after_trigger(Worker *w, bool ran)
{
	TriggerKind kind = w->query->trigger.kind;

	if (w->forgive || w->failures > 0)
	{
		w->forgive = false;
		w->failures = w->lasting_failures = 0;
		w->rt->log_first = false;
		if (!outcome_succeeded(w->launch.query_id))
			return false;
	}
	/* What was left behind is finished first, and is not the one batch. */
	if ((kind == TRIGGER_ONCE && !(ran && w->last_batch == w->left_behind)) || (kind == TRIGGER_AVAILABLE_NOW && !ran))
	{
		batch_leave(w->rt);
		(void) outcome_finished(w->launch.query_id, w->last_batch);
		return false;
	}
	return true;
}

/* ---- fail ---- */

static void
worker_caught(Worker *w)
{
	ErrorData *error;
	bool recording = w->error != NULL;

	MemoryContextSwitchTo(w->context);
	error = CopyErrorData();
	FlushErrorState();
	AbortOutOfAnyTransaction();
	LWLockReleaseAll();
	MemoryContextSwitchTo(w->context);
	w->again = true;
	w->attempting = false;
	w->locked = false; /* an abort lets go of session locks as well */
	status_trigger_ends(true, 0);
	if (recording)
	{
		FreeErrorData(error);
		return;
	}
	w->error = error;
	w->record_attempts = 0;
	if (w->rt && (failure_is_transient(error->sqlerrcode) || status_stop_requested()))
		runtime_forget(w->rt); /* the same plan and state will do */
	else
		worker_close(w);
}

/* False: it failed for good, or is not wanted any more. */
static bool
worker_record_failure(Worker *w)
{
	bool transient = failure_is_transient(w->error->sqlerrcode);
	bool final;
	int64 delay;

	if (w->record_attempts > RECORD_ATTEMPTS)
		proc_exit(1);
	if (w->record_attempts++ > 0)
		wait_for_time(RECORD_AGAIN_US);
	final = !transient && w->max_retries >= 0 && w->lasting_failures + 1 > w->max_retries;
	delay = final ? -1 : failure_delay_us(w->failures + 1);
	if (!outcome_failed(w->launch.query_id, w->error, delay, w->last_batch))
		return false;
	w->failures++;
	w->lasting_failures += transient ? 0 : 1;
	MemoryContextSwitchTo(w->step_context);
	failure_log(w->name, w->error, w->failures, delay, final);
	status_set_message(psprintf("Waiting to try again: %s", w->error->message ? w->error->message : "unknown error"));
	FreeErrorData(w->error);
	w->error = NULL;
	if (final)
		return false;
	wait_for_time(delay);
	return true;
}

/* ---- leave ---- */

/* SIGINT is how who waits for us to stop repeats himself, five times a second; and how the clock that limits a wait for a lock speaks. */
static void
cancel_if_timeout(SIGNAL_ARGS)
{
	if (get_timeout_indicator(LOCK_TIMEOUT, false))
		StatementCancelHandler(postgres_signal_arg);
}

/*
 * Asked to stop, which as a rule has cancelled a batch and with it our lock. An epoch that is open ends here; it is committed already but for its entry in the
 * logs, so where that cannot be done whoever runs the query next ends it as well: for one, when who waits for us holds a lock on what the query reads.
 */
static void
worker_leave(Worker *w)
{
	if (w->rt == NULL || w->leaving)
		return;
	w->leaving = true;
	pqsignal(SIGINT, cancel_if_timeout);
	QueryCancelPending = false;
	process_set("lock_timeout", LEAVE_LOCK_TIMEOUT);
	if (!w->locked)
		worker_open(w);
	batch_leave(w->rt);
	w->last_batch = w->rt->last_batch;
}

/* ---- loop ---- */

/* One step; false: leave. */
static bool
worker_step(Worker *w)
{
	int64 wait_us;

	MemoryContextReset(w->step_context);
	MemoryContextSwitchTo(w->step_context);
	if (ConfigReloadPending)
	{
		ConfigReloadPending = false;
		ProcessConfigFile(PGC_SIGHUP);
	}
	if (status_stop_requested())
	{
		worker_leave(w);
		return false;
	}
	CHECK_FOR_INTERRUPTS();
	if (w->error)
		return worker_record_failure(w);
	if (!w->attempting)
	{
		if (!outcome_attempt(w->launch.query_id))
			return false;
		w->attempting = true;
	}
	if (w->rt == NULL || !w->locked)
		worker_open(w);
	if (!w->announced)
	{
		if (!outcome_running(w->launch.query_id, w->last_batch, &w->forgive))
			return false;
		w->announced = true;
	}
	wait_us = trigger_wait(w);
	if (wait_us == 0)
	{
		status_set_message("Processing new data");
		(void) statistics_report(w);
		return worker_after_trigger(w, worker_fire(w));
	}
	worker_wait(w, wait_us);
	return true;
}

void
stream_worker_main(Datum arg)
{
	volatile bool going = true;

	worker_setup(arg);
	while (going)
	{
		PG_TRY();
		{
			going = worker_step(&self);
		}
		PG_CATCH();
		{
			worker_caught(&self);
		}
		PG_END_TRY();
	}
	worker_close(&self);
	proc_exit(0);
}
