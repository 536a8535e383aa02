/*
 * query_run.c: rows of stream.query_run: which queries should run, and how their last run went.
 * Written on changes of state only, never per batch.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "metadata/query.h"
#include "util/clock.h"
#include "util/heap.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"

enum
{
	RUN_QUERY, RUN_WANTED, RUN_STATUS, RUN_ID, RUN_FAILURES, RUN_SQLSTATE, RUN_ERROR, RUN_RETRY_AT, RUN_CHANGED_AT,
	RUN_ENDED_AT, RUN_COLUMNS
};

static char *
text_or_null(Datum value, bool isnull)
{
	return isnull ? NULL : TextDatumGetCString(value);
}

void
query_run_load(int64 query_id, QueryRun *run)
{
	Datum key = Int64GetDatum(query_id);
	HeapScan *scan = heap_scan_begin("query_run", "query_run_pkey", 1, &key, false);
	Datum v[RUN_COLUMNS];
	bool n[RUN_COLUMNS];

	memset(run, 0, sizeof(*run));
	run->status = "stopped"; /* restored from a dump: it was created elsewhere */
	if (heap_scan_next(scan, v, n))
	{
		run->exists = true;
		run->wanted = DatumGetBool(v[RUN_WANTED]);
		run->status = TextDatumGetCString(v[RUN_STATUS]);
		run->run_id = n[RUN_ID] ? NULL : DatumGetCString(DirectFunctionCall1(uuid_out, v[RUN_ID]));
		run->failures = DatumGetInt32(v[RUN_FAILURES]);
		run->sqlstate = text_or_null(v[RUN_SQLSTATE], n[RUN_SQLSTATE]);
		run->error = text_or_null(v[RUN_ERROR], n[RUN_ERROR]);
		run->retry_at = n[RUN_RETRY_AT] ? 0 : DatumGetTimestampTz(v[RUN_RETRY_AT]);
		run->ended_at = n[RUN_ENDED_AT] ? 0 : DatumGetTimestampTz(v[RUN_ENDED_AT]);
	}
	heap_scan_end(scan);
}

static void
text_datum(const char *text, Datum *value, bool *isnull)
{
	*isnull = text == NULL;
	*value = text ? CStringGetTextDatum(text) : (Datum) 0;
}

void
query_run_store(int64 query_id, const QueryRun *run)
{
	Datum key = Int64GetDatum(query_id);
	HeapScan *scan = heap_scan_begin("query_run", "query_run_pkey", 1, &key, false);
	Datum old[RUN_COLUMNS], v[RUN_COLUMNS];
	bool oldnull[RUN_COLUMNS], n[RUN_COLUMNS] = {false};
	HeapTuple tuple = heap_scan_next(scan, old, oldnull);

	v[RUN_QUERY] = key;
	v[RUN_WANTED] = BoolGetDatum(run->wanted);
	v[RUN_STATUS] = CStringGetTextDatum(run->status);
	if (run->run_id)
		v[RUN_ID] = DirectFunctionCall1(uuid_in, CStringGetDatum(run->run_id));
	else
	{
		n[RUN_ID] = tuple == NULL || oldnull[RUN_ID];
		v[RUN_ID] = n[RUN_ID] ? (Datum) 0 : old[RUN_ID];
	}
	v[RUN_FAILURES] = Int32GetDatum(run->failures);
	text_datum(run->sqlstate, &v[RUN_SQLSTATE], &n[RUN_SQLSTATE]);
	text_datum(run->error, &v[RUN_ERROR], &n[RUN_ERROR]);
	n[RUN_RETRY_AT] = run->retry_at == 0;
	v[RUN_RETRY_AT] = TimestampTzGetDatum(run->retry_at);
	v[RUN_CHANGED_AT] = v[RUN_ENDED_AT] = TimestampTzGetDatum(clock_now());
	if (tuple == NULL || run->wanted || !DatumGetBool(old[RUN_WANTED]))
	{
		n[RUN_ENDED_AT] = tuple == NULL || oldnull[RUN_ENDED_AT];
		v[RUN_ENDED_AT] = n[RUN_ENDED_AT] ? (Datum) 0 : old[RUN_ENDED_AT];
	}
	if (tuple)
		heap_update_row("query_run", tuple, v, n);
	else
		heap_insert_row("query_run", v, n);
	heap_scan_end(scan);
}

void
query_run_end(QueryRun *run, const char *status)
{
	run->wanted = false;
	run->status = unconstify(char *, status);
	run->failures = 0;
	run->sqlstate = run->error = NULL;
	run->retry_at = 0;
}

void
query_run_forgive(int64 query_id)
{
	QueryRun run;

	query_run_load(query_id, &run);
	if (!run.exists)
		return;
	run.status = "stopped";
	run.error = run.sqlstate = NULL;
	run.failures = 0;
	query_run_store(query_id, &run);
}

List *
query_runs(bool only_wanted)
{
	HeapScan *scan = heap_scan_begin("query_run", "query_run_pkey", 0, NULL, false);
	Datum v[RUN_COLUMNS];
	bool n[RUN_COLUMNS];
	List *runs = NIL;

	while (heap_scan_next(scan, v, n))
	{
		RunEntry *run;

		if (only_wanted && !DatumGetBool(v[RUN_WANTED]))
			continue;
		run = palloc0(sizeof(RunEntry));
		run->query_id = DatumGetInt64(v[RUN_QUERY]);
		run->wanted = DatumGetBool(v[RUN_WANTED]);
		run->ended_at = n[RUN_ENDED_AT] ? 0 : DatumGetTimestampTz(v[RUN_ENDED_AT]);
		if (!n[RUN_ID])
			strlcpy(run->run_id, DatumGetCString(DirectFunctionCall1(uuid_out, v[RUN_ID])), sizeof(run->run_id));
		runs = lappend(runs, run);
	}
	heap_scan_end(scan);
	return runs;
}

char *
query_run_new_id(void)
{
	return DatumGetCString(DirectFunctionCall1(uuid_out, DirectFunctionCall1(gen_random_uuid, (Datum) 0)));
}
