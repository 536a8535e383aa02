/*
 * stream_ext.c: what happens when the library is loaded: settings, shared memory, launcher, hooks.
 * Preloaded: queries resume after a restart. Loaded on demand: the same, except that nobody starts them after a restart.
 */
#include "postgres.h"

#include <limits.h>

#include "fmgr.h"
#include "miscadmin.h"
#include "source/source.h"
#include "state/store.h"
#include "storage/ipc.h"
#include "storage/shmem.h"
#include "task/task.h"
#include "util/clock.h"
#include "util/failpoint.h"
#include "util/server_path.h"
#include "util/wakeup.h"
#include "utils/guc.h"
#include "worker/hook.h"
#include "worker/status.h"
#include "worker/supervisor.h"
#include "worker/worker.h"

PG_MODULE_MAGIC;

extern PGDLLEXPORT void _PG_init(void);

static int max_queries = DEFAULT_MAX_QUERIES;
static shmem_request_hook_type next_shmem_request = NULL;
static shmem_startup_hook_type next_shmem_startup = NULL;

static void
settings_define(void)
{
	DefineCustomIntVariable("stream_ext.state_memory", "Live state of the streaming queries of one process may take so much; 0: no limit.", NULL,
							&stream_state_memory_kb, 0, 0, MAX_KILOBYTES, PGC_SUSET, GUC_UNIT_KB, NULL, NULL, NULL);
	if (process_shared_preload_libraries_in_progress)
		DefineCustomIntVariable("stream_ext.max_queries", "So many streaming queries can run at the same time, in all databases.",
								"Each takes one of max_worker_processes as well.", &max_queries, 128, 1, 10000, PGC_POSTMASTER, 0, NULL, NULL,
								NULL);
	DefineCustomIntVariable("stream_ext.parallelism", "Tasks of streaming queries without the option parallelism; 1: none.", NULL, &stream_default_parallelism, 1, 1, 64,
							PGC_USERSET, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("stream_ext.task_rows", "Batches of fewer rows are not given to the tasks of a query (option parallelism).", NULL, &stream_task_rows,
							stream_task_rows, 0, INT_MAX, PGC_USERSET, 0, NULL, NULL, NULL);
	DefineCustomStringVariable("stream_ext.file_roots", "Directories below which file sources and sinks may be; empty: wherever roles with the right may go.",
							   NULL, &stream_file_roots, "", PGC_SUSET, GUC_LIST_INPUT, NULL, NULL, NULL);
#ifdef STREAM_FAILPOINTS
	failpoint_define_settings();
	clock_define_settings();
#endif
	MarkGUCPrefixReserved("stream_ext");
}

static void
shared_memory_request(void)
{
	if (next_shmem_request)
		next_shmem_request();
	RequestAddinShmemSpace(status_shmem_size(max_queries));
	RequestAddinShmemSpace(wakeup_shmem_size());
}

static void
shared_memory_startup(void)
{
	if (next_shmem_startup)
		next_shmem_startup();
	status_shmem_startup(max_queries);
	wakeup_shmem_startup();
}

/* Without preloading the little that is needed is taken from the server's reserve on first use. */
static void
shared_memory_plan(void)
{
	if (!process_shared_preload_libraries_in_progress)
		return;
	next_shmem_request = shmem_request_hook;
	shmem_request_hook = shared_memory_request;
	next_shmem_startup = shmem_startup_hook;
	shmem_startup_hook = shared_memory_startup;
}

void
_PG_init(void)
{
	settings_define();
	shared_memory_plan();
	if (IsBinaryUpgrade) /* pg_upgrade makes what is ours piece by piece: nothing of it can be looked at */
		return;
	hook_install();
	if (process_shared_preload_libraries_in_progress)
	{
		worker_set_preloaded(true);
		launcher_register();
	}
}
