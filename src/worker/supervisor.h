/* supervisor.h: how supervisors and workers are launched. */
#ifndef STREAM_WORKER_SUPERVISOR_H
#define STREAM_WORKER_SUPERVISOR_H

#include "postgres.h"
#include "postmaster/bgworker.h"
#include "util/compat.h"

/* What a launched worker needs to know; travels in bgw_extra. */
typedef struct WorkerLaunch
{
	Oid database;
	Oid owner;
	int64 query_id;
	uint64 launch;
	int slot;
} WorkerLaunch;

StaticAssertDecl(sizeof(WorkerLaunch) <= BGW_EXTRALEN, "WorkerLaunch must fit into bgw_extra");

/* A dynamic worker that is never restarted by the postmaster: whoever supervises it does that. False: no slot of max_worker_processes. */
extern bool worker_register(const char *function, const char *name, Datum arg, const WorkerLaunch *launch, BackgroundWorkerHandle **handle);
extern bool supervisor_register(Oid database, BackgroundWorkerHandle **handle);
/* The static launcher; from _PG_init only. */
extern void launcher_register(void);

extern PGDLLEXPORT void stream_launcher_main(Datum arg) pg_attribute_noreturn();
extern PGDLLEXPORT void stream_supervisor_main(Datum arg) pg_attribute_noreturn();
extern PGDLLEXPORT void stream_worker_main(Datum arg) pg_attribute_noreturn();

#endif
