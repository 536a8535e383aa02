/*
 * supervisor.c: one process per database with queries that should run: launches their workers, counts how they end, backs off.
 * stream.query_run → owner may connect? → slot → dynamic worker as the owner → gone? → failures, retry_at → again.
 * Connected as the bootstrap superuser, so it must never run anybody's code: C table access only.
 */
#include "worker/supervisor.h"

#include "access/table.h"
#include "access/xact.h"
#include "commands/dbcommands.h"
#include "metadata/attempt.h"
#include "metadata/query.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "tcop/tcopprot.h"
#include "util/clock.h"
#include "util/extension.h"
#include "util/process.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "worker/copy.h"
#include "worker/failure.h"
#include "worker/status.h"
#include "worker/worker.h"

#define LOCKED_AGAIN_US (200 * INT64CONST(1000)) /* somebody holds the query's row: look again */
#define NO_SLOT_US (1000 * INT64CONST(1000))
#define CONNECT_FAILED_US (1000 * INT64CONST(1000))
#define SAY_AGAIN_US (60 * INT64CONST(1000000))

/* A query that should run, as this process sees it. */
typedef struct Supervised
{
	int64 query_id;
	char name[NAMEDATALEN]; /* clipped; for messages */
	char run_id[37];				/* of our last launch; another one in the row: the user started it anew */
	BackgroundWorkerHandle *handle; /* of our last launch, NULL: none */
	int slot;
	uint64 launch;
	bool launched;	   /* and not yet accounted for */
	int no_slot;	   /* attempts without a free slot */
	int64 not_before;  /* monotonic µs */
	bool wanted;	   /* by the last look at the table */
} Supervised;

static MemoryContext supervisor_context;
static List *supervised = NIL;

/* ---- the table ---- */

static bool
extension_is_ours(void)
{
	static bool told = false;
	char *version = extension_version();

	if (version == NULL)
		return false;
	if (strcmp(version, STREAM_VERSION) == 0)
		return true;
	if (!told)
		ereport(LOG, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					  errmsg("streaming queries of database \"%s\" stay stopped: the library is stream_ext %s, the database has %s",
							 get_database_name(MyDatabaseId), STREAM_VERSION, version),
					  errhint("Run ALTER EXTENSION stream_ext UPDATE in it, or install the library that belongs to it.")));
	told = true;
	return false;
}

static Supervised *
supervised_get(int64 query_id)
{
	ListCell *cell;
	Supervised *s;
	MemoryContext old;

	foreach (cell, supervised)
	{
		s = lfirst(cell);
		if (s->query_id == query_id)
			return s;
	}
	old = MemoryContextSwitchTo(supervisor_context);
	s = palloc0(sizeof(Supervised));
	s->query_id = query_id;
	supervised = lappend(supervised, s);
	MemoryContextSwitchTo(old);
	return s;
}

static void
supervised_update(const RunEntry *run)
{
	Supervised *s = supervised_get(run->query_id);

	s->wanted = true;
	if (strcmp(s->run_id, run->run_id) == 0)
		return;
	strlcpy(s->run_id, run->run_id, sizeof(s->run_id));
	s->launched = false;
	s->not_before = 0;
}

/* Brings the list up to date with stream.query_run; false: nothing here wants to run. */
static bool
supervisor_look(void)
{
	ListCell *cell;

	foreach (cell, supervised)
		((Supervised *) lfirst(cell))->wanted = false;
	StartTransactionCommand();
	if (extension_is_ours())
	{
		copy_settle();
		foreach (cell, query_runs(true))
			supervised_update(lfirst(cell));
	}
	CommitTransactionCommand();
	foreach (cell, supervised)
	{
		Supervised *s = lfirst(cell);

		if (s->wanted)
			continue;
		supervised = foreach_delete_current(supervised, cell);
		if (s->handle)
			pfree(s->handle);
		pfree(s);
	}
	return supervised != NIL;
}

/* ---- one query ---- */

static void
run_fail(int64 query_id, QueryRun *run, const char *outcome, int sqlstate, const char *error, int64 delay_us)
{
	run->status = delay_us < 0 ? "failed" : "restarting";
	run->wanted = delay_us >= 0;
	run->sqlstate = unpack_sql_state(sqlstate);
	run->error = unconstify(char *, error);
	run->retry_at = delay_us < 0 ? 0 : clock_now() + delay_us;
	query_run_store(query_id, run);
	attempt_end(query_id, outcome, run->sqlstate, error);
}

/* Our worker, or the one before a crash or restart, is gone and did not say why. */
static bool
ended_without_report(Supervised *s, const QueryRun *run)
{
	return s->launched || strcmp(run->status, "running") == 0 || strcmp(run->status, "stopping") == 0;
}

static void
account_for_end(Supervised *s, QueryRun *run)
{
	bool never_ran = strcmp(run->status, "starting") == 0;
	int64 delay;

	run->failures++;
	delay = failure_crash_delay_us(run->failures);
	if (never_ran)
		delay = Max(delay, CONNECT_FAILED_US);
	s->launched = false;
	s->not_before = clock_monotonic_us() + delay;
	run_fail(s->query_id, run, "lost", ERRCODE_CRASH_SHUTDOWN,
			 never_ran ? "the worker ended before it was up; the server log tells why"
					   : "the worker ended without a report: terminated, killed, or the server went down",
			 delay);
}

/* It was running when the server was shut down: that is no failure. */
static void
account_for_shutdown(Supervised *s, QueryRun *run)
{
	if (s->launched || !status_clean_start() || !attempt_began_before(s->query_id, PgStartTime))
		return;
	attempt_end(s->query_id, "shutdown", NULL, NULL);
	if (!ended_without_report(s, run))
		return;
	run->status = "starting";
	query_run_store(s->query_id, run);
}

/* In a transaction that holds the run lock. False: not now. */
static bool
launch_prepare(Supervised *s, WorkerLaunch *launch)
{
	StreamQuery *query = query_load_by_id(s->query_id, true);
	QueryRun run;
	const char *problem;
	int sqlstate;

	query_run_load(s->query_id, &run);
	if (query == NULL)
		query_delete(s->query_id); /* a row without its query: nobody else would ever take it away */
	if (query == NULL || !run.exists || !run.wanted)
	{
		s->not_before = clock_monotonic_us() + LOCKED_AGAIN_US;
		return false;
	}
	strlcpy(s->name, query->name, pg_mbcliplen(query->name, strlen(query->name), sizeof(s->name) - 1) + 1);
	account_for_shutdown(s, &run);
	if (ended_without_report(s, &run))
	{
		account_for_end(s, &run);
		return false;
	}
	if (run.retry_at > clock_now() && s->not_before == 0)
	{
		s->not_before = clock_monotonic_us() + Min(run.retry_at - clock_now(), 300 * INT64CONST(1000000));
		return false;
	}
	problem = worker_owner_problem(query, &sqlstate);
	if (problem)
	{
		run_fail(s->query_id, &run, "failed", sqlstate, problem, -1);
		ereport(LOG, (errcode(sqlstate), errmsg("streaming query \"%s\" cannot run: %s", query->name, problem)));
		return false;
	}
	launch->database = MyDatabaseId;
	launch->owner = query->owner;
	launch->query_id = s->query_id;
	/* Claimed while the run lock is held: who stops the query next sees the slot. */
	launch->slot = status_claim(s->query_id, &launch->launch);
	if (launch->slot >= 0)
	{
		run.run_id = query_run_new_id();
		query_run_store(s->query_id, &run);
		strlcpy(s->run_id, run.run_id, sizeof(s->run_id));
	}
	return true;
}

/* Once per shortage: the row says what is missing, the log as well. */
static void
tell_no_slot(Supervised *s, const char *what, const char *hint)
{
	QueryRun run;

	s->not_before = clock_monotonic_us() + (NO_SLOT_US << Min(s->no_slot, 3));
	if (s->no_slot++ > 0)
		return;
	StartTransactionCommand();
	if (worker_try_lock_run(s->query_id))
	{
		query_run_load(s->query_id, &run);
		if (run.exists && run.wanted)
			run_fail(s->query_id, &run, "failed", ERRCODE_CONFIGURATION_LIMIT_EXCEEDED, psprintf("%s\nHINT:  %s", what, hint), NO_SLOT_US);
	}
	CommitTransactionCommand();
	ereport(LOG, (errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED), errmsg("streaming query \"%s\" has to wait: %s", s->name, what),
				  errhint("%s", hint)));
}

static void
launch_worker(Supervised *s, WorkerLaunch *launch)
{
	char name[BGW_MAXLEN];
	MemoryContext old;

	if (launch->slot < 0)
	{
		tell_no_slot(s, "all slots for running queries are taken", "Raise stream_ext.max_queries, or stop other queries.");
		return;
	}
	s->slot = launch->slot;
	s->launch = launch->launch;
	snprintf(name, sizeof(name), "stream_ext query \"%s\"", s->name);
	old = MemoryContextSwitchTo(supervisor_context);
	s->launched = worker_register("stream_worker_main", name, Int32GetDatum(launch->slot), launch, &s->handle);
	MemoryContextSwitchTo(old);
	if (s->launched)
	{
		s->no_slot = 0;
		return;
	}
	s->handle = NULL;
	status_unclaim(launch->slot, launch->launch);
	tell_no_slot(s, "no background worker is free", "Raise max_worker_processes, or stop other queries.");
}

/* True: a worker has the query, or is on its way. */
static bool
worker_is_there(Supervised *s)
{
	QueryStatus status;
	pid_t pid;
	bool stopped = s->handle == NULL || GetBackgroundWorkerPid(s->handle, &pid) == BGWH_STOPPED;

	/* Launched, ended, and never moved in: its slot must not stay taken. */
	if (s->launched && stopped)
		status_unclaim(s->slot, s->launch);
	if (stopped && s->handle)
	{
		pfree(s->handle);
		s->handle = NULL;
	}
	return !stopped || status_get(s->query_id, &status);
}

static void
supervise(Supervised *s)
{
	WorkerLaunch launch;
	bool go = false;

	if (worker_is_there(s) || clock_monotonic_us() < s->not_before)
		return;
	memset(&launch, 0, sizeof(launch));
	StartTransactionCommand();
	if (worker_try_lock_run(s->query_id))
		go = launch_prepare(s, &launch);
	else
		s->not_before = clock_monotonic_us() + LOCKED_AGAIN_US;
	CommitTransactionCommand();
	status_changed();
	if (go)
		launch_worker(s, &launch);
}

/* ---- the loop ---- */

/* Who waits longest goes first: a shortage of slots is shared. */
static int
compare_not_before(const ListCell *a, const ListCell *b)
{
	int64 x = ((Supervised *) lfirst(a))->not_before;
	int64 y = ((Supervised *) lfirst(b))->not_before;

	return x < y ? -1 : x > y;
}

/* Microseconds until a query is due, -1: until somebody wakes us. */
static int64
supervisor_round(void)
{
	int64 wait = -1;
	ListCell *cell;

	list_sort(supervised, compare_not_before);
	foreach (cell, supervised)
	{
		Supervised *s = lfirst(cell);

		supervise(s);
		if (!worker_is_there(s))
		{
			int64 left = Max(s->not_before - clock_monotonic_us(), 0);

			wait = wait < 0 ? left : Min(wait, left);
		}
	}
	return wait;
}

static void
supervisor_setup(Oid database)
{
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();
	process_connect(database, InvalidOid);
	if (!status_supervisor_attach(database))
		proc_exit(0);
	process_set("search_path", "");
	process_set("synchronous_commit", "local"); /* a standby that is away must not keep it from all queries */
	process_set("application_name", "stream_ext supervisor");
	supervisor_context = AllocSetContextCreate(TopMemoryContext, "stream supervisor", ALLOCSET_DEFAULT_SIZES);
	pgstat_report_activity(STATE_IDLE, NULL);
}

static void
supervisor_sleep(int64 wait_us)
{
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_EXIT_ON_PM_DEATH | (wait_us >= 0 ? WL_TIMEOUT : 0), wait_us / 1000 + 1, PG_WAIT_EXTENSION);
	ResetLatch(MyLatch);
	if (ConfigReloadPending)
	{
		ConfigReloadPending = false;
		ProcessConfigFile(PGC_SIGHUP);
	}
}

/* An error here is the catalog's (a lock cancelled, the extension being dropped, its schema renamed): say it, once a minute while it stays, and look again. */
static void
supervisor_caught(void)
{
	static int last_code = 0;
	static int64 said_at = 0;
	int64 now = clock_monotonic_us();

	if (!status_supervisor_must_stop() && (geterrcode() != last_code || now - said_at > SAY_AGAIN_US))
	{
		last_code = geterrcode();
		said_at = now;
		EmitErrorReport();
	}
	FlushErrorState();
	AbortOutOfAnyTransaction();
	MemoryContextSwitchTo(TopMemoryContext);
}

static void
supervisor_work(void)
{
	uint64 seen = status_supervisor_requests();
	int64 wait = -1;

	CHECK_FOR_INTERRUPTS();
	if (supervisor_look())
		wait = supervisor_round();
	else if (status_supervisor_leave(seen))
		proc_exit(0);
	supervisor_sleep(wait);
}

void
stream_supervisor_main(Datum arg)
{
	volatile bool failed = false;

	supervisor_setup(DatumGetObjectId(arg));
	for (;;)
	{
		if (status_supervisor_must_stop())
			proc_exit(0);
		if (failed)
			supervisor_sleep(1000000);
		failed = false;
		PG_TRY();
		{
			supervisor_work();
		}
		PG_CATCH();
		{
			supervisor_caught();
			failed = true;
		}
		PG_END_TRY();
	}
}
