/*
 * launcher.c: one process per server. Looks every database over once, then starts a supervisor wherever one is asked for.
 * Shared catalogs only; request (status.h) → latch → supervisor. It never polls, and runs nobody's code.
 */
#include "worker/supervisor.h"

#include "access/genam.h"
#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_database.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "tcop/tcopprot.h"
#include "util/clock.h"
#include "util/process.h"
#include "utils/memutils.h"
#include "worker/status.h"

#define AT_ONCE 4 /* first looks at the same time: a thousand databases must not take every worker slot */
#define SECOND_US INT64CONST(1000000)
#define FIRST_DELAY_US (SECOND_US / 10)

typedef struct Launched
{
	Oid database;
	BackgroundWorkerHandle *handle; /* NULL: none of ours */
	int64 not_before;
	int failures; /* attempts in a row that did not stay for a minute */
	int64 started_at;
} Launched;

static List *launches = NIL; /* Launched */
static List *unseen = NIL;	 /* Oids: databases to be looked over */
static bool out_of_workers = false;

bool
worker_register(const char *function, const char *name, Datum arg, const WorkerLaunch *launch, BackgroundWorkerHandle **handle)
{
	BackgroundWorker worker;

	process_describe(&worker, function, launch ? "stream_ext worker" : "stream_ext supervisor", "%s", name);
	worker.bgw_main_arg = arg;
	worker.bgw_notify_pid = handle ? MyProcPid : 0;
	if (launch)
		memcpy(worker.bgw_extra, launch, sizeof(WorkerLaunch));
	return RegisterDynamicBackgroundWorker(&worker, handle);
}

bool
supervisor_register(Oid database, BackgroundWorkerHandle **handle)
{
	char name[BGW_MAXLEN];

	snprintf(name, sizeof(name), "stream_ext supervisor of database %u", database);
	return worker_register("stream_supervisor_main", name, ObjectIdGetDatum(database), NULL, handle);
}

void
launcher_register(void)
{
	BackgroundWorker worker;

	process_describe(&worker, "stream_launcher_main", "stream_ext launcher", "stream_ext launcher");
	worker.bgw_restart_time = 1;
	RegisterBackgroundWorker(&worker);
}

/* Databases that allow connections; InvalidOid: all, else that one if it is there. */
static List *
databases_open(Oid only)
{
	List *databases = NIL;
	Relation relation;
	TableScanDesc scan;
	HeapTuple tuple;

	StartTransactionCommand();
	relation = table_open(DatabaseRelationId, AccessShareLock);
	scan = table_beginscan_catalog(relation, 0, NULL);
	while ((tuple = heap_getnext(scan, ForwardScanDirection)) != NULL)
	{
		Form_pg_database database = (Form_pg_database) GETSTRUCT(tuple);
		MemoryContext old;

		if (!database->datallowconn || (OidIsValid(only) && database->oid != only))
			continue;
		old = MemoryContextSwitchTo(TopMemoryContext);
		databases = lappend_oid(databases, database->oid);
		MemoryContextSwitchTo(old);
	}
	table_endscan(scan);
	table_close(relation, AccessShareLock);
	CommitTransactionCommand();
	return databases;
}

static Launched *
launch_of(Oid database)
{
	ListCell *cell;
	Launched *launch;
	MemoryContext old;

	foreach (cell, launches)
	{
		launch = lfirst(cell);
		if (launch->database == database)
			return launch;
	}
	old = MemoryContextSwitchTo(TopMemoryContext);
	launch = palloc0(sizeof(Launched));
	launch->database = database;
	launches = lappend(launches, launch);
	MemoryContextSwitchTo(old);
	return launch;
}

static void
launch_forget(Launched *launch)
{
	launches = list_delete_ptr(launches, launch);
	if (launch->handle)
		pfree(launch->handle);
	pfree(launch);
}

/* Is the one we started still on its way? An ended one that left its wish behind died: wait before the next. */
static bool
launch_is_under_way(Launched *launch, int64 now)
{
	pid_t pid;

	if (launch->handle == NULL)
		return false;
	if (GetBackgroundWorkerPid(launch->handle, &pid) != BGWH_STOPPED)
		return true;
	pfree(launch->handle);
	launch->handle = NULL;
	launch->failures = now - launch->started_at > 60 * SECOND_US ? 1 : launch->failures + 1;
	launch->not_before = now + (FIRST_DELAY_US << Min(launch->failures - 1, 9));
	return false;
}

/* A supervisor that left its database in good order leaves no trace: the next start must not wait. */
static void
launches_sweep(List *wanting)
{
	ListCell *cell;
	pid_t pid;

	foreach (cell, launches)
	{
		Launched *launch = lfirst(cell);

		if (launch->handle && !list_member_oid(wanting, launch->database) && GetBackgroundWorkerPid(launch->handle, &pid) == BGWH_STOPPED)
		{
			pfree(launch->handle);
			launch->handle = NULL;
			launch->failures = 0;
			launch->not_before = 0;
		}
	}
}

static void
launch_start(Launched *launch, int64 now)
{
	List *found = databases_open(launch->database);

	if (found == NIL)
	{
		status_drop_database(launch->database);
		launch_forget(launch);
		return;
	}
	list_free(found);
	launch->started_at = now;
	if (supervisor_register(launch->database, &launch->handle))
	{
		out_of_workers = false;
		return;
	}
	launch->handle = NULL;
	launch->not_before = now + 5 * SECOND_US;
	if (!out_of_workers)
		ereport(LOG, (errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED), errmsg("no background worker is free for streaming queries"),
					  errhint("Raise max_worker_processes: every running query takes one, and every database with queries one more.")));
	out_of_workers = true;
}

/* Starts what is wanted; returns microseconds until there is something to do, -1: until somebody asks. */
static int64
launcher_round(void)
{
	List *wanting = status_wanting_supervisor();
	int64 now = clock_monotonic_us();
	int64 wait = -1;
	ListCell *cell;

	launches_sweep(wanting);
	while (unseen != NIL && list_length(wanting) < AT_ONCE)
	{
		Oid database = linitial_oid(unseen);

		unseen = list_delete_first(unseen);
		(void) status_request_supervisor(database);
		wanting = list_append_unique_oid(wanting, database);
	}
	foreach (cell, wanting)
	{
		Launched *launch = launch_of(lfirst_oid(cell));

		if (launch_is_under_way(launch, now))
			continue;
		if (launch->not_before <= now)
			launch_start(launch, now);
		else if (wait < 0 || launch->not_before - now < wait)
			wait = launch->not_before - now;
	}
	if (unseen != NIL || out_of_workers)
		wait = wait < 0 ? SECOND_US : Min(wait, SECOND_US);
	list_free(wanting);
	return wait;
}

void
stream_launcher_main(Datum arg)
{
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();
	if (IsBinaryUpgrade)
		proc_exit(0);
	BackgroundWorkerInitializeConnection(NULL, NULL, 0);
	status_launcher_attach();
	unseen = databases_open(InvalidOid);

	for (;;)
	{
		int64 wait;

		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
		}
		if (unseen == NIL && status_take_overflow())
			unseen = databases_open(InvalidOid);
		wait = launcher_round();
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_EXIT_ON_PM_DEATH | (wait >= 0 ? WL_TIMEOUT : 0), wait / 1000 + 1, PG_WAIT_EXTENSION);
	}
}
