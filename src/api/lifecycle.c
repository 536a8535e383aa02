/*
 * lifecycle.c: start, stop, await, and what the workers of this database do right now.
 * Thin: names and privileges here, the work in worker/.
 */
#include "api/query.h"

#include "access/xact.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "catalog/pg_authid.h"
#include "util/clock.h"
#include "util/compat.h"
#include "util/operation.h"
#include "util/options.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"
#include "worker/status.h"
#include "worker/worker.h"

PG_FUNCTION_INFO_V1(stream_start_query);
PG_FUNCTION_INFO_V1(stream_stop_query);
PG_FUNCTION_INFO_V1(stream_await_termination);
PG_FUNCTION_INFO_V1(stream_await_any_termination);
PG_FUNCTION_INFO_V1(stream_worker_status);
PG_FUNCTION_INFO_V1(stream_running_operations);

#define LOOK_AGAIN_MS 1000 /* for what no broadcast tells, such as a commit that lost the race for its lock */

/* start_query(name) */
Datum
stream_start_query(PG_FUNCTION_ARGS)
{
	worker_request_start(query_argument(fcinfo, 0)->id);
	PG_RETURN_VOID();
}

/* stop_query(name) */
Datum
stream_stop_query(PG_FUNCTION_ARGS)
{
	worker_stop(query_argument(fcinfo, 0)->id);
	PG_RETURN_VOID();
}

/* ---- await ---- */

/* Monotonic µs; -1: no limit. */
static int64
deadline_argument(FunctionCallInfo fcinfo, int argno)
{
	int64 us, now = clock_monotonic_us();

	if (PG_ARGISNULL(argno))
		return -1;
	us = options_interval_length(PG_GETARG_INTERVAL_P(argno), "timeout");
	if (us < 0)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("timeout must not be negative")));
	return now + Min(us, PG_INT64_MAX - now);
}

/* False: the time is over. */
static bool
wait_until(int64 deadline)
{
	int64 left = deadline < 0 ? LOOK_AGAIN_MS * INT64CONST(1000) : deadline - clock_monotonic_us();

	if (left <= 0)
		return false;
	(void) status_wait(Min((left + 999) / 1000, LOOK_AGAIN_MS));
	return true;
}

/* ---- ends this session has heard of ---- */

typedef struct HeardEnd
{
	int64 query_id;
	TimestampTz at;
} HeardEnd;

static List *heard_ends = NIL; /* the last of each query, for the life of the session */

static HeardEnd *
heard_end(int64 query_id)
{
	ListCell *cell;

	foreach (cell, heard_ends)
		if (((HeardEnd *) lfirst(cell))->query_id == query_id)
			return lfirst(cell);
	return NULL;
}

static void
hear_end(int64 query_id, TimestampTz at)
{
	HeardEnd *heard = heard_end(query_id);
	MemoryContext caller = MemoryContextSwitchTo(TopMemoryContext);

	if (heard == NULL)
	{
		heard = palloc(sizeof(HeardEnd));
		heard->query_id = query_id;
		heard_ends = lappend(heard_ends, heard);
	}
	MemoryContextSwitchTo(caller);
	heard->at = at;
}

/* It ended in the life of this session, and after the end it has heard of. */
static bool
is_news(int64 query_id, TimestampTz ended_at)
{
	HeardEnd *heard = heard_end(query_id);

	return ended_at > (heard ? heard->at : MyStartTimestamp);
}

/* The row tells; the slot tells that nothing of it runs on. *at (NULL: not asked for): when. Asked again and again: leaves no memory. */
static bool
query_has_ended(int64 query_id, TimestampTz *at)
{
	MemoryContext look = AllocSetContextCreate(CurrentMemoryContext, "stream_ext look", ALLOCSET_SMALL_SIZES);
	MemoryContext old = MemoryContextSwitchTo(look);
	QueryRun run;
	bool ended;

	query_run_load(query_id, &run);
	ended = !run.wanted && !status_get(query_id, NULL);
	if (ended && at)
		*at = run.ended_at;
	MemoryContextSwitchTo(old);
	MemoryContextDelete(look);
	return ended;
}

/* Raises the error of one that failed. */
static void
report_end(StreamQuery *query)
{
	QueryRun run;

	query_run_load(query->id, &run);
	hear_end(query->id, run.ended_at);
	if (strcmp(run.status, "failed") == 0)
		worker_raise_error(query->name, &run);
}

/* await_termination(name, timeout) → true: ended, false: timed out */
Datum
stream_await_termination(PG_FUNCTION_ARGS)
{
	StreamQuery *query = query_argument(fcinfo, 0);
	int64 deadline = deadline_argument(fcinfo, 1);
	bool ended;

	if (worker_is_me(query->id))
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE), errmsg("a streaming query cannot wait for itself")));
	if (deadline < 0)
		worker_refuse_early_wait(query->id, query->name);
	status_prepare_wait();
	while (!(ended = query_has_ended(query->id, NULL)) && wait_until(deadline))
		;
	status_end_wait();
	if (ended)
		report_end(query);
	PG_RETURN_BOOL(ended);
}

/* Queries the caller may wait for: those at work, and those with an end to hear of. */
static List *
awaited_queries(void)
{
	List *queries = NIL;
	ListCell *cell;

	foreach (cell, query_runs(false))
	{
		RunEntry *run = lfirst(cell);
		StreamQuery *query;

		if (!run->wanted && !is_news(run->query_id, run->ended_at))
			continue;
		query = query_load_by_id(run->query_id, true);
		if (query && has_privs_of_role(GetUserId(), query->owner) && !worker_is_me(query->id))
			queries = lappend(queries, query);
	}
	return queries;
}

static StreamQuery *
first_ended(List *queries)
{
	StreamQuery *first = NULL;
	TimestampTz at, first_at = 0;
	ListCell *cell;

	foreach (cell, queries)
	{
		StreamQuery *query = lfirst(cell);

		if (query_has_ended(query->id, &at) && (first == NULL || at < first_at))
		{
			first = query;
			first_at = at;
		}
	}
	return first;
}

/*
 * await_any_termination(timeout) → name of the first query to end, NULL: timed out, or there is none to wait for.
 * An end between two calls, or since the session began, is told too, once: who starts a short query and then waits must not miss it.
 */
Datum
stream_await_any_termination(PG_FUNCTION_ARGS)
{
	List *queries = awaited_queries();
	int64 deadline = deadline_argument(fcinfo, 0);
	StreamQuery *ended;

	if (queries == NIL)
		PG_RETURN_NULL();
	status_prepare_wait();
	while ((ended = first_ended(queries)) == NULL && wait_until(deadline))
		;
	status_end_wait();
	if (ended == NULL)
		PG_RETURN_NULL();
	report_end(ended);
	PG_RETURN_TEXT_P(cstring_to_text(ended->name));
}

/* ---- status ---- */

static bool
may_watch(int64 query_id)
{
	StreamQuery *query;

	if (has_privs_of_role(GetUserId(), ROLE_PG_MONITOR))
		return true;
	query = query_load_by_id(query_id, true);
	return query && OidIsValid(query->owner) && is_member_of_role(GetUserId(), query->owner);
}

/* worker_status() → one row per worker of this database that the caller may see */
Datum
stream_worker_status(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	ListCell *cell;

	InitMaterializedSRF(fcinfo, 0);
	foreach (cell, status_list())
	{
		QueryStatus *status = lfirst(cell);
		bool ran = status->last_batch_id >= 0;
		Datum values[] = {Int64GetDatum(status->query_id),
						  Int32GetDatum(status->pid),
						  CStringGetTextDatum(status->message),
						  BoolGetDatum(status->is_data_available),
						  BoolGetDatum(status->is_trigger_active),
						  BoolGetDatum(status->stop_requested),
						  Int64GetDatum(status->last_batch_id),
						  TimestampTzGetDatum(status->last_batch_at),
						  Float8GetDatum(status->batch_duration_us / 1000.0),
						  Int64GetDatum(status->last_rows)};
		bool nulls[] = {false, status->pid == 0, false, false, false, false, !ran, !ran, !ran, !ran};

		if (may_watch(status->query_id))
			tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
	}
	return (Datum) 0;
}

/* What tasks have read of the batch. */
static void
shares_add(OperationStatus *batch, int backends)
{
	for (int i = 1; i <= backends; i++)
	{
		OperationStatus share;

		if (!operation_read(&pgstat_fetch_stat_local_beentry(i)->backendStatus, &share) || share.kind != OPERATION_SHARE ||
			share.query_id != batch->query_id || share.batch_id != batch->batch_id)
			continue;
		batch->rows += share.rows;
		batch->bytes += share.bytes;
	}
}

static void
operation_put(ReturnSetInfo *result, int pid, const OperationStatus *status)
{
	Datum values[] = {Int64GetDatum(status->query_id), Int32GetDatum(pid),			   CStringGetTextDatum(status->name), Int64GetDatum(status->batch_id),
					  Int64GetDatum(status->rows),	   Int64GetDatum(status->bytes), TimestampTzGetDatum(status->started_at)};
	bool nulls[lengthof(values)] = {false};

	nulls[3] = status->batch_id < 0;
	tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}

/* running_operations() → one row per process of this database that is at something long about a query the caller may see */
Datum
stream_running_operations(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	int backends = pgstat_fetch_stat_numbackends();

	InitMaterializedSRF(fcinfo, 0);
	for (int i = 1; i <= backends; i++)
	{
		PgBackendStatus *backend = &pgstat_fetch_stat_local_beentry(i)->backendStatus;
		OperationStatus status;

		if (!operation_read(backend, &status) || status.kind == OPERATION_SHARE || !may_watch(status.query_id))
			continue;
		if (status.kind == OPERATION_BATCH)
			shares_add(&status, backends);
		operation_put(result, backend->st_procpid, &status);
	}
	return (Datum) 0;
}
