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
	PARAM_KIND, PARAM_BATCH, PARAM_ROWS, PARAM_STARTED, PARAM_COUNT
};

static const char *const operation_names[] = {"running a batch", "loading state", "folding state", "rewinding the target", "rewinding state"};

void
operation_show(OperationKind kind, int64 query_id, int64 batch_id, int64 rows)
{
	static const int params[] = {PARAM_KIND, PARAM_BATCH, PARAM_ROWS, PARAM_STARTED};
	static OperationKind shown;
	static int64 started_at;
	int64 values[PARAM_COUNT];

	if (MyBEEntry == NULL)
		return;
	if (rows == 0 || kind != shown || MyBEEntry->st_progress_command != STREAM_COMMAND)
		started_at = clock_now();
	shown = kind;
	values[PARAM_KIND] = kind;
	values[PARAM_BATCH] = batch_id;
	values[PARAM_ROWS] = rows;
	values[PARAM_STARTED] = started_at;
	pgstat_progress_start_command(STREAM_COMMAND, (Oid) query_id);
	pgstat_progress_update_multi_param(PARAM_COUNT, params, values);
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
	status->name = operation_names[params[PARAM_KIND]];
	status->query_id = backend->st_progress_command_target;
	status->batch_id = params[PARAM_BATCH];
	status->rows = params[PARAM_ROWS];
	status->started_at = params[PARAM_STARTED];
	return true;
}
