/*
 * outcome.c: how a worker's run goes, written into stream.query_run by the worker itself; what it cannot tell, its supervisor does.
 * Lock the row → still wanted? → write → commit → wake those who wait.
 */
#include "worker/outcome.h"

#include "access/xact.h"
#include "metadata/attempt.h"
#include "metadata/query.h"
#include "util/clock.h"
#include "utils/guc.h"
#include "worker/event.h"
#include "worker/failure.h"
#include "worker/status.h"
#include "worker/worker.h"

static bool
outcome_begin(int64 query_id, QueryRun *run)
{
	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	worker_lock_run(query_id);
	query_run_load(query_id, run);
	return run->exists && run->wanted;
}

static bool
outcome_end(bool wanted)
{
	/* What a query's status says does not wait for a standby; what its batches wrote does. */
	if (synchronous_commit > SYNCHRONOUS_COMMIT_LOCAL_FLUSH)
		(void) set_config_option("synchronous_commit", "local", PGC_USERSET, PGC_S_SESSION, GUC_ACTION_LOCAL, true, 0, false);
	CommitTransactionCommand();
	status_changed();
	return wanted;
}

bool
outcome_attempt(int64 query_id)
{
	QueryRun run;
	bool wanted = outcome_begin(query_id, &run);

	if (wanted)
		attempt_begin(query_id, run.run_id);
	return outcome_end(wanted);
}

bool
outcome_running(int64 query_id, int64 last_batch, bool *had_failures)
{
	QueryRun run;
	bool wanted = outcome_begin(query_id, &run);

	if (wanted)
	{
		*had_failures = run.failures > 0 || run.error;
		run.status = "running";
		run.retry_at = 0;
		query_run_store(query_id, &run);
		event_notify(query_id, "start", last_batch);
	}
	return outcome_end(wanted);
}

bool
outcome_succeeded(int64 query_id)
{
	QueryRun run;
	bool wanted = outcome_begin(query_id, &run);

	if (wanted)
	{
		run.status = "running";
		run.failures = 0;
		run.sqlstate = run.error = NULL;
		run.retry_at = 0;
		query_run_store(query_id, &run);
	}
	return outcome_end(wanted);
}

bool
outcome_failed(int64 query_id, const ErrorData *error, int64 delay_us, int64 last_batch)
{
	QueryRun run;
	bool wanted = outcome_begin(query_id, &run);

	if (wanted)
	{
		bool final = delay_us < 0;

		run.wanted = !final;
		run.status = final ? "failed" : "restarting";
		run.failures++;
		run.sqlstate = pstrdup(unpack_sql_state(error->sqlerrcode));
		run.error = failure_text(error);
		run.retry_at = final ? 0 : clock_now() + delay_us;
		query_run_store(query_id, &run);
		attempt_end(query_id, "failed", run.sqlstate, run.error);
		if (final)
			event_notify(query_id, "termination", last_batch);
	}
	return outcome_end(wanted);
}

bool
outcome_finished(int64 query_id, int64 last_batch)
{
	QueryRun run;
	bool wanted = outcome_begin(query_id, &run);

	if (wanted)
	{
		query_run_end(&run, "finished");
		query_run_store(query_id, &run);
		attempt_end(query_id, "finished", NULL, NULL);
		event_notify(query_id, "termination", last_batch);
	}
	return outcome_end(wanted);
}
