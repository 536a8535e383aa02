/*
 * worker.h: background workers as the layers above see them: ask for a start, stop, wait.
 * Everything takes effect through stream.query_run and shared memory; see README.md for the states.
 */
#ifndef STREAM_WORKER_WORKER_H
#define STREAM_WORKER_WORKER_H

#include "postgres.h"
#include "metadata/query.h"
#include "util/compat.h"

/* Serializes changes of one query's row in stream.query_run until the end of the transaction. Take it before query_run_load. */
extern void worker_lock_run(int64 query_id);
extern bool worker_try_lock_run(int64 query_id);

/* ereport unless the query's owner may log in and connect to this database. */
extern void worker_check_owner(StreamQuery *query);
/* The same as a message, NULL: may run. */
extern const char *worker_owner_problem(StreamQuery *query, int *sqlstate);

/* Set by _PG_init: the launcher is there and will be after a restart. */
extern void worker_set_preloaded(bool preloaded);
extern bool worker_is_preloaded(void);
/* Now, not at commit: somebody should look at stream.query_run of that database. Never fails. */
extern void worker_ask_supervisor(Oid database);

/* The same at the end of this transaction, if it commits. */
extern void worker_ask_supervisor_at_commit(Oid database);

/* wanted = true; at commit somebody is poked to start it. Checks the owner, warns when the library is not preloaded. */
extern void worker_request_start(int64 query_id);
/* wanted = false in this transaction; returns when the worker is gone. Refused (55000) inside the query's own worker. */
extern void worker_stop(int64 query_id);
/* The same with status failed and that error, for a query that lost what it needs. Does nothing when it should not run anyway. */
extern void worker_stop_for_good(int64 query_id, int sqlstate, const char *error);

/* At commit the query's worker, if there is one, fires a trigger: something other than its sources has news for it. */
extern void worker_wake_at_commit(int64 query_id);

/* 55000 when the query's worker is to be started by the caller's own transaction: waiting would never end. */
extern void worker_refuse_early_wait(int64 query_id, const char *name);

/* Is there a worker, or should there be one (starting, backing off)? Sees what other sessions committed. */
extern bool worker_is_running(int64 query_id);
/*
 * Wakes the worker and waits until it fired a trigger that began after this call and found nothing to do. False: the query ended
 * (stopped, finished) meanwhile; a query that failed raises its error. Holds no snapshot while waiting if the caller holds none.
 */
extern bool worker_wait_idle(int64 query_id);
/* The query's worker is this process. */
extern bool worker_is_me(int64 query_id);
/* This process runs some query's batches in the background. */
extern bool worker_in_worker(void);
/* Raises the stored error of a failed query, with its own SQLSTATE. */
extern void worker_raise_error(const char *name, const QueryRun *run) pg_attribute_noreturn();

#endif
