/*
 * status.h: what runs right now, in shared memory: one slot per query with a worker, one per database with a supervisor.
 * Only status, wishes and latches: everything that matters is in tables. A server crash wipes it, and nothing is lost.
 */
#ifndef STREAM_WORKER_STATUS_H
#define STREAM_WORKER_STATUS_H

#include "postgres.h"
#include "datatype/timestamp.h"
#include "nodes/pg_list.h"

typedef struct QueryStatus
{
	Oid database;
	int64 query_id; /* 0: free slot */
	uint64 launch;	/* serial number of the launch: tells two workers of one query apart */
	int pid;		/* 0: launched, not up yet */
	int procno;
	int64 claimed_at; /* monotonic µs */
	bool stop_requested;
	bool is_data_available;
	bool is_trigger_active;
	int64 last_batch_id; /* -1: none yet */
	TimestampTz last_batch_at;
	int64 batch_duration_us;
	int64 last_rows;
	int64 wake_requests; /* grows with each status_wake */
	int64 wakes_done;	 /* requests seen before a trigger that found nothing to do */
	char message[256];
} QueryStatus;

#define DEFAULT_MAX_QUERIES 32 /* slots without preloading; with it, setting stream_ext.max_queries says */

/* ---- set-up ---- */
extern Size status_shmem_size(int max_queries);
extern void status_shmem_startup(int max_queries); /* when preloaded */
extern bool status_clean_start(void);			   /* the server was shut down before this start, it did not crash */

/* ---- anybody ---- */
extern bool status_get(int64 query_id, QueryStatus *copy); /* of this database; false: no worker */
extern List *status_list(void);							   /* copies, this database's, in CurrentMemoryContext */
/* A wake request the worker answers after a trigger that found nothing; false: no worker. */
extern bool status_wake(int64 query_id, uint64 *launch, int64 *request);
/* Asks the worker to stop and waits until its slot is free. */
extern void status_stop_query(int64 query_id);
/* Asks every worker of a database and its supervisor to stop, waits, and keeps new ones away until status_unblock. */
extern void status_block_database(Oid database);
/* Lets one database in again that this process keeps blocked; InvalidOid: there is none. *wanted: it had, or wants, a supervisor. */
extern Oid status_unblock_database(bool *wanted);
/* Sleeps until something here changed, at most that long. Call status_prepare_wait before looking, status_end_wait at the end. */
extern void status_prepare_wait(void);
extern bool status_wait(long timeout_ms);
extern void status_end_wait(void);
extern void status_changed(void); /* for changes that are only in tables: wakes those who sleep */

/* ---- databases: the wish for a supervisor ---- */
/* Wakes the supervisor of the database; without one, asks the launcher for it. False: there is no launcher, start one yourself. */
extern bool status_request_supervisor(Oid database);
extern void status_launcher_attach(void);
/* True once: some database found no entry, and now there is room: look all databases over again. */
extern bool status_take_overflow(void);
/* Databases that want a supervisor and have none. */
extern List *status_wanting_supervisor(void);
extern void status_drop_database(Oid database); /* it is gone: forget its wish */
/* False: another one is there, or the database is blocked: exit. */
extern bool status_supervisor_attach(Oid database);
extern bool status_supervisor_must_stop(void);
extern uint64 status_supervisor_requests(void);
/* True: nothing was asked since `seen`, the wish is struck out: exit. */
extern bool status_supervisor_leave(uint64 seen);

/* ---- slots: supervisor ---- */
/* -1: no slot free. Serial number in *launch. */
extern int status_claim(int64 query_id, uint64 *launch);
/* Frees a slot whose worker never came up; does nothing when it did. */
extern void status_unclaim(int slot, uint64 launch);

/* ---- slots: the worker's own ---- */
extern bool status_worker_attach(int slot, uint64 launch); /* false: not wanted any more */
extern void status_worker_detach(void);
extern bool status_stop_requested(void);
extern int64 status_trigger_begins(void); /* → wake requests seen */
extern void status_trigger_ends(bool ran, int64 wakes_seen);
extern void status_batch_done(int64 batch_id, TimestampTz at, int64 duration_us, int64 rows);
extern void status_set_message(const char *message);
extern void status_set_data_available(bool available);
extern int64 status_wakes_pending(void);

#endif
