/*
 * operation.c: reports of long operations, in this process's slot of pg_stat_activity's memory: no shared memory of our own, gone with the process.
 * Danger: the slot holds one report. User code that runs VACUUM or COPY inside a batch replaces it; the next report of ours takes it back.
 */
#include "util/operation.h"

#include "commands/progress.h"
#include "miscadmin.h"
#include "util/clock.h"
#include "utils/backend_progress.h"

/* Not one of PostgreSQL's, so that none of its views shows it. */
#define STREAM_COMMAND ((ProgressCommandType) 0x5345)

enum
{
	PARAM_KIND, PARAM_BATCH, PARAM_ROWS, PARAM_BYTES, PARAM_STARTED, PARAM_COUNT
};

static const char *const operation_names[] = {"running a batch", "loading state", "folding state", "rewinding the target", "rewinding state", "reading a share"};

/* The report, and whose it is. */
static int64 shown[PARAM_COUNT];
static int64 shown_query;

static void
operation_report(void)
{
	static const int params[] = {PARAM_KIND, PARAM_BATCH, PARAM_ROWS, PARAM_BYTES, PARAM_STARTED};

	pgstat_progress_start_command(STREAM_COMMAND, (Oid) shown_query);
	pgstat_progress_update_multi_param(PARAM_COUNT, params, shown);
}

void
operation_show(OperationKind kind, int64 query_id, int64 batch_id, int64 rows)
{
	if (MyBEEntry == NULL)
		return;
	if (rows == 0 || kind != shown[PARAM_KIND] || MyBEEntry->st_progress_command != STREAM_COMMAND)
		shown[PARAM_STARTED] = clock_now();
	shown_query = query_id;
	shown[PARAM_KIND] = kind;
	shown[PARAM_BATCH] = batch_id;
	shown[PARAM_ROWS] = rows;
	shown[PARAM_BYTES] = 0;
	operation_report();
}

void
operation_add(OperationKind kind, int64 query_id, int64 batch_id, int64 rows, int64 bytes)
{
	if (MyBEEntry == NULL)
		return;
	if (kind != shown[PARAM_KIND] || query_id != shown_query || batch_id != shown[PARAM_BATCH])
		operation_show(kind, query_id, batch_id, 0);
	shown[PARAM_ROWS] += rows;
	shown[PARAM_BYTES] += bytes;
	operation_report();
}

void
operation_end(void)
{
	if (MyBEEntry && MyBEEntry->st_progress_command == STREAM_COMMAND)
		pgstat_progress_end_command();
}

bool
operation_read(const PgBackendStatus *backend, OperationStatus *status)
{
	const int64 *params = backend->st_progress_param;

	if (backend->st_progress_command != STREAM_COMMAND || backend->st_databaseid != MyDatabaseId || params[PARAM_KIND] < 0 ||
		params[PARAM_KIND] >= lengthof(operation_names))
		return false;
	status->kind = (OperationKind) params[PARAM_KIND];
	status->name = operation_names[params[PARAM_KIND]];
	status->query_id = backend->st_progress_command_target;
	status->batch_id = params[PARAM_BATCH];
	status->rows = params[PARAM_ROWS];
	status->bytes = params[PARAM_BYTES];
	status->started_at = params[PARAM_STARTED];
	return true;
}
