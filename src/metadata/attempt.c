/*
 * attempt.c: rows of stream.attempt_entry: when a worker began to run a query, and how that ended; with a failure, the batch it was about.
 * Written before the attempt, so that a crash is counted though nobody survives to tell; a few rows a minute at most, the last 100 are kept.
 */
#include "metadata/attempt.h"

#include "access/htup_details.h"
#include "metadata/log.h"
#include "util/clock.h"
#include "util/heap.h"
#include "util/json_build.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/jsonb.h"
#include "utils/timestamp.h"

enum
{
	ATTEMPT_QUERY, ATTEMPT_NUMBER, ATTEMPT_RUN, ATTEMPT_STARTED, ATTEMPT_ENDED, ATTEMPT_OUTCOME, ATTEMPT_BATCH, ATTEMPT_RANGE, ATTEMPT_SQLSTATE,
	ATTEMPT_ERROR, ATTEMPT_FAILURES, ATTEMPT_COLUMNS
};

#define TABLE_NAME "attempt_entry"
#define INDEX_NAME "attempt_entry_pkey"
#define ATTEMPTS_KEPT 100

typedef struct Attempt
{
	HeapTuple tuple; /* NULL: there was none yet */
	Datum v[ATTEMPT_COLUMNS];
	bool n[ATTEMPT_COLUMNS];
} Attempt;

static bool
attempt_is_open(const Attempt *attempt)
{
	return attempt->tuple != NULL && attempt->n[ATTEMPT_ENDED];
}

/* A row for `number`, begun now, with all else empty. */
static void
attempt_init(Attempt *attempt, int64 query_id, int64 number, int64 failures)
{
	memset(attempt->n, true, sizeof(attempt->n));
	attempt->v[ATTEMPT_QUERY] = Int64GetDatum(query_id);
	attempt->v[ATTEMPT_NUMBER] = Int64GetDatum(number);
	attempt->v[ATTEMPT_STARTED] = TimestampTzGetDatum(clock_now());
	attempt->v[ATTEMPT_FAILURES] = Int64GetDatum(failures);
	attempt->n[ATTEMPT_QUERY] = attempt->n[ATTEMPT_NUMBER] = attempt->n[ATTEMPT_STARTED] = attempt->n[ATTEMPT_FAILURES] = false;
}

static void
attempt_set(Attempt *attempt, int column, Datum value)
{
	attempt->v[column] = value;
	attempt->n[column] = false;
}

/* What the failure was about: the batch that is logged and not committed, and its range: {"from": {source: position}, "to": {source: position}}. */
static void
attempt_set_batch(Attempt *attempt, int64 query_id)
{
	OffsetEntry offsets;
	CommitEntry commit = {.batch_id = -1};
	JsonBuild b = {NULL, NULL};

	(void) commit_log_last(query_id, &commit);
	if (!offset_log_last(query_id, &offsets) || offsets.batch_id <= commit.batch_id)
		return;
	json_object_begin(&b, NULL);
	json_add_json(&b, "from", offsets.starts);
	json_add_json(&b, "to", offsets.offsets);
	json_object_end(&b);
	attempt_set(attempt, ATTEMPT_BATCH, Int64GetDatum(commit.batch_id + 1));
	attempt_set(attempt, ATTEMPT_RANGE, JsonbPGetDatum(json_result(&b)));
}

static void
attempt_set_end(Attempt *attempt, int64 query_id, const char *outcome, const char *sqlstate, const char *error)
{
	attempt_set(attempt, ATTEMPT_ENDED, TimestampTzGetDatum(clock_now()));
	attempt_set(attempt, ATTEMPT_OUTCOME, CStringGetTextDatum(outcome));
	if (sqlstate == NULL)
		return;
	attempt_set(attempt, ATTEMPT_SQLSTATE, CStringGetTextDatum(sqlstate));
	attempt_set(attempt, ATTEMPT_ERROR, CStringGetTextDatum(error));
	attempt_set(attempt, ATTEMPT_FAILURES, Int64GetDatum(DatumGetInt64(attempt->v[ATTEMPT_FAILURES]) + 1));
	attempt_set_batch(attempt, query_id);
}

/* The newest one; the scan must stay open as long as its values are used. */
static HeapScan *
attempt_last(int64 query_id, Attempt *attempt)
{
	Datum key = Int64GetDatum(query_id);
	HeapScan *scan = heap_scan_begin(TABLE_NAME, INDEX_NAME, 1, &key, true);

	attempt->tuple = heap_scan_next(scan, attempt->v, attempt->n);
	return scan;
}

static void
attempts_delete_upto(int64 query_id, int64 last)
{
	Datum key = Int64GetDatum(query_id);
	HeapScan *scan = heap_scan_begin(TABLE_NAME, INDEX_NAME, 1, &key, false);
	Datum v[ATTEMPT_COLUMNS];
	bool n[ATTEMPT_COLUMNS];
	HeapTuple tuple;

	while ((tuple = heap_scan_next(scan, v, n)) != NULL && DatumGetInt64(v[ATTEMPT_NUMBER]) <= last)
		heap_delete_row(TABLE_NAME, tuple);
	heap_scan_end(scan);
}

void
attempt_begin(int64 query_id, const char *run_id)
{
	Attempt last, attempt;
	HeapScan *scan = attempt_last(query_id, &last);
	int64 number = 1, failures = 0;

	if (attempt_is_open(&last))
	{
		attempt_set_end(&last, query_id, "lost", NULL, NULL);
		heap_update_row(TABLE_NAME, last.tuple, last.v, last.n);
	}
	if (last.tuple)
	{
		number = DatumGetInt64(last.v[ATTEMPT_NUMBER]) + 1;
		failures = DatumGetInt64(last.v[ATTEMPT_FAILURES]);
	}
	heap_scan_end(scan);
	attempt_init(&attempt, query_id, number, failures);
	if (run_id)
		attempt_set(&attempt, ATTEMPT_RUN, DirectFunctionCall1(uuid_in, CStringGetDatum(run_id)));
	heap_insert_row(TABLE_NAME, attempt.v, attempt.n);
	attempts_delete_upto(query_id, number - ATTEMPTS_KEPT);
}

void
attempt_end(int64 query_id, const char *outcome, const char *sqlstate, const char *error)
{
	Attempt last;
	HeapScan *scan = attempt_last(query_id, &last);

	if (attempt_is_open(&last))
	{
		attempt_set_end(&last, query_id, outcome, sqlstate, error);
		heap_update_row(TABLE_NAME, last.tuple, last.v, last.n);
	}
	else if (sqlstate)
	{
		Attempt attempt;

		attempt_init(&attempt, query_id, last.tuple ? DatumGetInt64(last.v[ATTEMPT_NUMBER]) + 1 : 1,
					 last.tuple ? DatumGetInt64(last.v[ATTEMPT_FAILURES]) : 0);
		attempt_set_end(&attempt, query_id, outcome, sqlstate, error);
		heap_insert_row(TABLE_NAME, attempt.v, attempt.n);
	}
	heap_scan_end(scan);
}

bool
attempt_began_before(int64 query_id, TimestampTz at)
{
	Attempt last;
	HeapScan *scan = attempt_last(query_id, &last);
	bool before = attempt_is_open(&last) && DatumGetTimestampTz(last.v[ATTEMPT_STARTED]) < at;

	heap_scan_end(scan);
	return before;
}

void
attempts_delete(int64 query_id)
{
	attempts_delete_upto(query_id, PG_INT64_MAX);
}
