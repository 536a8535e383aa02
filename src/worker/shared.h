/* shared.h: the shared memory behind status.h; for status.c and roster.c only. */
#ifndef STREAM_WORKER_SHARED_H
#define STREAM_WORKER_SHARED_H

#include "postgres.h"
#include "storage/condition_variable.h"
#include "storage/lwlock.h"
#include "worker/status.h"

#define MAX_DATABASES 128

typedef struct DatabaseStatus
{
	Oid database;	 /* InvalidOid: free */
	int pid;		 /* of the supervisor, 0: none */
	int procno;
	uint64 requests; /* grows with each request; a supervisor leaves only when it has seen the last */
	bool wanted;	 /* a supervisor should be there */
	bool stop_requested;
	int blocked_by;	 /* pid of the backend that keeps everybody away (DROP DATABASE), 0: none */
} DatabaseStatus;

typedef struct SharedStatus
{
	LWLock lock;
	int tranche;
	ConditionVariable changed; /* broadcast on every change somebody may wait for */
	uint64 last_launch;
	bool clean_start;		   /* the server had been shut down, it did not crash */
	int launcher_procno;	   /* -1: none */
	bool overflow;			   /* a database found no entry: the launcher looks all databases over again */
	int nqueries;
	DatabaseStatus databases[MAX_DATABASES];
	QueryStatus queries[FLEXIBLE_ARRAY_MEMBER];
} SharedStatus;

extern SharedStatus *status_shared(void); /* attaches when needed */
extern void status_set_latch(int procno);
extern void status_wake_supervisor_locked(Oid database);
extern DatabaseStatus *status_find_database(Oid database); /* lock held; NULL: no entry */
extern DatabaseStatus *status_database_entry(Oid database); /* lock held; finds or makes; NULL: table full */
extern bool status_database_blocked(Oid database);		   /* lock held */

#endif
