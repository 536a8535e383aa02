/*
 * failpoint.c: crash points of test builds.
 * Setting stream_ext.failpoints lists 'step:n:action'; at the n-th pass of step since the setting changed, the action happens.
 * Action wait lasts for as long as another session holds an advisory lock: what happens between two steps of a batch is told step by step.
 */
#include "util/failpoint.h"

#ifdef STREAM_FAILPOINTS

#include "postgres.h"

#include <signal.h>
#include <unistd.h>

#include "access/xact.h"
#include "miscadmin.h"
#include "utils/fmgrprotos.h"
#include "utils/guc.h"
#include "utils/memutils.h"

#define MAX_STEPS 32
#define FAILPOINT_LOCK 7001 /* pg_advisory_lock(7001) makes action wait wait */

static char *failpoints = NULL;

/* How often each step was passed. Steps are string constants. */
static struct
{
	const char *step;
	int passes;
} passed[MAX_STEPS];

static void
failpoints_assign(const char *newval, void *extra)
{
	memset(passed, 0, sizeof(passed));
}

static const char *at_commit = NULL;

/* The last thing before a commit: whoever registers later is called earlier. */
static void
transaction_ends(XactEvent event, void *arg)
{
	const char *step = at_commit;

	at_commit = NULL;
	if (event == XACT_EVENT_PRE_COMMIT && step)
		failpoint_reached(step);
}

void
failpoint_set_at_commit(const char *step)
{
	at_commit = step;
}

void
failpoint_define_settings(void)
{
	RegisterXactCallback(transaction_ends, NULL);
	DefineCustomStringVariable("stream_ext.failpoints", "Makes batches fail at given steps, for tests.",
							   "A comma-separated list of step:n:action; actions are kill9, error, sleep and wait.", &failpoints, "",
							   PGC_SUSET, GUC_NOT_IN_SAMPLE, NULL, failpoints_assign, NULL);
}

static int
count_pass(const char *step)
{
	for (int i = 0; i < MAX_STEPS; i++)
	{
		if (passed[i].step == NULL)
			passed[i].step = step;
		if (strcmp(passed[i].step, step) == 0)
			return ++passed[i].passes;
	}
	return 0;
}

/* In a transaction of its own where there is none. */
static void
wait_for_lock(void)
{
	MemoryContext caller = CurrentMemoryContext;
	bool inside = IsTransactionState();

	if (!inside)
		StartTransactionCommand();
	(void) DirectFunctionCall1(pg_advisory_xact_lock_shared_int8, Int64GetDatum(FAILPOINT_LOCK));
	if (!inside)
		CommitTransactionCommand();
	MemoryContextSwitchTo(caller);
}

static void
act(const char *step, const char *action)
{
	if (strcmp(action, "kill9") == 0)
		kill(MyProcPid, SIGKILL);
	else if (strcmp(action, "error") == 0)
		ereport(ERROR, (errcode(ERRCODE_TRIGGERED_ACTION_EXCEPTION), errmsg("failpoint reached at step \"%s\"", step)));
	else if (strcmp(action, "sleep") == 0)
	{
		for (int i = 0; i < 6000; i++)
		{
			CHECK_FOR_INTERRUPTS();
			pg_usleep(10000);
		}
	}
	else if (strcmp(action, "wait") == 0)
		wait_for_lock();
	else
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("unknown failpoint action \"%s\"", action),
						errhint("Actions are kill9, error, sleep and wait.")));
}

void
failpoint_reached(const char *step)
{
	int pass;
	char *list, *item, *rest;

	if (failpoints == NULL || failpoints[0] == '\0')
		return;
	pass = count_pass(step);
	list = pstrdup(failpoints);
	for (item = strtok_r(list, ", ", &rest); item; item = strtok_r(NULL, ", ", &rest))
	{
		char name[64], action[64];
		int n;

		if (sscanf(item, "%63[^:]:%d:%63s", name, &n, action) == 3 && n == pass && strcmp(name, step) == 0)
			act(step, action);
	}
	pfree(list);
}

#endif
