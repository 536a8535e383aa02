/*
 * batch.h: one batch, six steps: trigger → plan → log → execute → sink → commit. The transaction is the checkpoint.
 */
#ifndef STREAM_BATCH_BATCH_H
#define STREAM_BATCH_BATCH_H

#include "postgres.h"
#include "metadata/epoch_log.h"
#include "metadata/log.h"
#include "metadata/query.h"
#include "plan/plan.h"
#include "sink/sink.h"
#include "source/source.h"
#include "task/task.h"

/* A query being run in this process: compiled plan, open sources, operators with their state, position in the logs. */
typedef struct QueryRuntime
{
	MemoryContext context;		  /* of the runtime */
	StreamQuery *query;
	Sink *sink;
	bool sink_started;			  /* its start callback has run */
	StreamPlan *plan;
	bool compiled;				  /* the plan, its sink and its readers are all there: an error in between may be one that keeps this struct */
	List *readers;				  /* SourceReader, as plan->sources */
	List *operators;			  /* Operator, as plan->operators */
	TaskPool *tasks;			  /* option parallelism; NULL: none yet, or no room */
	int64 tasks_used;			  /* monotonic: when they last had something to do */
	bool session_lock;			  /* worker: the query's lock is held by the session, transactions are our own; else inside CALL */
	char *run_id;				  /* uuid of this run, for progress */
	StreamPlan *spec_plan;		  /* plan whose specs the operators point to; outlives plans made later for the same signature */
	MemoryContext operator_context;
	/* where the logs are; batch_id -1: nothing yet */
	bool logs_known;
	int64 last_batch;			  /* newest committed */
	OffsetEntry last_offsets;	  /* its offsets */
	CommitEntry last_commit;
	bool pending;				  /* an offset entry beyond last_batch exists: run it first */
	bool pending_fresh;			  /* logged by this process, and not tried yet */
	OffsetEntry pending_offsets;
	MemoryContext log_context;	  /* of the above */
	bool epoch_open;			  /* low-latency triggers: batch last_batch + 1 has begun, in flushes; see epoch.c */
	EpochEntry epoch;			  /* where its last flush left it */
	MemoryContext epoch_context;  /* of that */
	bool log_first;				  /* in: a flush has failed: log the range before it is tried again, so that it can be skipped */
	MemoryContext batch_context;  /* reset per batch */
	/* available_now and process_all_available: fixed ends per source; NULL list: none */
	List *ceilings;				  /* Position, as readers */
	bool ignore_limits;			  /* trigger once */
	bool be_sure;				  /* somebody waits to hear that nothing is left: sources look, whatever it costs */
	TimestampTz due_at;			  /* out: rows wait for min_rows_per_batch; fire again then at the latest. 0: not */
	int64 purged_upto;			  /* logs up to here are known to be purged */
	bool more;					  /* out: data remained behind the last batch */
	int64 warned_at;			  /* monotonic; 0: never */
	bool unreadable, readable;	  /* out: nearly all rows of a source have come to be bad; of a source no longer */
	int64 last_duration_us;
	int64 last_rows;
	TimestampTz last_batch_at;
} QueryRuntime;

/* Opens everything in a new context below CurrentMemoryContext. Must be called inside a transaction, as the query's owner. */
extern QueryRuntime *runtime_open(StreamQuery *query, bool session_lock);
extern void runtime_close(QueryRuntime *rt);
/* After a failed batch (transaction already aborted): drop what it changed; logs and state are read again by the next batch. */
extern void runtime_forget(QueryRuntime *rt);
/* Fixes the ends: what is there now is all that will be read. Inside a transaction. */
extern void runtime_fix_ends(QueryRuntime *rt);

/*
 * Fires one trigger: false when there was nothing to do (no id consumed). Called outside a transaction; leaves none behind.
 * Errors fly; the caller aborts and calls runtime_forget.
 */
extern bool batch_run(QueryRuntime *rt);

/*
 * The query stops here: ends an epoch that is open, with what it has done so far; the sink hands out what it was gathering. Nobody may want to wait for
 * more. Own transaction.
 */
extern void batch_leave(QueryRuntime *rt);

/* When a batch is due by time alone (timers, TTL, idle_timeout, the end of an epoch): the worker sleeps until then. DT_NOEND: only data can bring one. */
extern TimestampTz batch_next_due(QueryRuntime *rt);

/* After batch_run: fold state and purge logs when it is worth while; own transactions. */
extern void batch_housekeeping(QueryRuntime *rt);

/* The same in steps, for whoever has another process do it. */
typedef struct Housekeeping
{
	int64 query_id;
	int incarnation;
	int64 last_batch; /* committed; later ones do not matter */
	int64 purge_upto; /* batches up to here need not be kept */
	bool fold;
	bool big;		  /* worth another process */
} Housekeeping;

extern bool housekeeping_due(QueryRuntime *rt, Housekeeping *work); /* cheap, no transaction */
/* In the caller's transaction, in whatever process. */
extern void housekeeping_run(const Housekeeping *work);
/* Before and after: the query's own process waits for the outcome before more becomes due. The latter in a transaction of its own; false: it was not done. */
extern void housekeeping_begun(QueryRuntime *rt, const Housekeeping *work);
extern bool housekeeping_ended(QueryRuntime *rt, const Housekeeping *work);

#endif
