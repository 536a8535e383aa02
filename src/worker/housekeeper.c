/*
 * housekeeper.c: a process that folds and purges one query's state while its worker goes on with batches.
 * Worker: work due and big? → dynamic worker as the query's owner → one transaction over the tables → gone; the worker looks after its next batch.
 * It runs no code of anybody's: bytes are copied, no type is looked at. Where no process is free, or one has failed, the worker does the work itself.
 */
#include "worker/housekeeper.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "storage/ipc.h"
#include "tcop/tcopprot.h"
#include "util/clock.h"
#include "util/failpoint.h"
#include "util/process.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#define REST_US (60 * INT64CONST(1000000))

/* Travels in bgw_extra. */
typedef struct HousekeeperLaunch
{
	Oid database;
	Oid owner;
	Housekeeping work;
} HousekeeperLaunch;

StaticAssertDecl(sizeof(HousekeeperLaunch) <= BGW_EXTRALEN, "HousekeeperLaunch must fit into bgw_extra");

/* ---- in the query's worker ---- */

static BackgroundWorkerHandle *running = NULL;
static Housekeeping running_work;
static bool failed = false; /* the last one did not do its work, whatever kept it from it: the next time the worker does, and may say why */
static int64 not_before = 0; /* monotonic */

static bool
launch(const Housekeeping *work, Oid owner)
{
	BackgroundWorker worker;
	HousekeeperLaunch extra = {MyDatabaseId, owner, *work};
	MemoryContext caller;
	bool launched;

	process_describe(&worker, "stream_housekeeper_main", "stream_ext housekeeper", "stream_ext housekeeper of query " INT64_FORMAT, work->query_id);
	worker.bgw_notify_pid = MyProcPid;
	memcpy(worker.bgw_extra, &extra, sizeof(extra));
	caller = MemoryContextSwitchTo(TopMemoryContext);
	launched = RegisterDynamicBackgroundWorker(&worker, &running);
	MemoryContextSwitchTo(caller);
	if (!launched)
		running = NULL;
	return launched;
}

/* False: one is still at work. */
static bool
collect(QueryRuntime *rt)
{
	pid_t pid;

	if (running == NULL)
		return true;
	if (GetBackgroundWorkerPid(running, &pid) != BGWH_STOPPED)
		return false;
	pfree(running);
	running = NULL;
	failed = !housekeeping_ended(rt, &running_work);
	not_before = failed ? clock_monotonic_us() + REST_US : 0;
	return true;
}

void
housekeeper_look(QueryRuntime *rt, Oid owner)
{
	Housekeeping work;

	if (!collect(rt) || clock_monotonic_us() < not_before || !housekeeping_due(rt, &work))
		return;
	if (failed || !work.big || !launch(&work, owner))
	{
		batch_housekeeping(rt);
		failed = false;
		return;
	}
	running_work = work;
	housekeeping_begun(rt, &work);
}

void
housekeeper_stop(void)
{
	if (running)
		TerminateBackgroundWorker(running);
}

/* ---- the process ---- */

void
stream_housekeeper_main(Datum arg)
{
	HousekeeperLaunch extra;

	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();
	memcpy(&extra, MyBgworkerEntry->bgw_extra, sizeof(extra));
	process_connect(extra.database, extra.owner);
	process_set("synchronous_commit", "off");
	pgstat_report_activity(STATE_RUNNING, "folding and purging state");
	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	PushActiveSnapshot(GetTransactionSnapshot());
	housekeeping_run(&extra.work);
	FAILPOINT("housekept");
	PopActiveSnapshot();
	CommitTransactionCommand();
	proc_exit(0);
}
