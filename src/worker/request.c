/*
 * request.c: what other sessions ask of workers: start, stop, wait.
 * Row in stream.query_run (locked) → commit → callback → supervisor or launcher. A stop also signals the worker at once and waits.
 */
#include "worker/worker.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_database.h"
#include "commands/dbcommands.h"
#include "metadata/attempt.h"
#include "miscadmin.h"
#include "storage/lock.h"
#include "util/compat.h"
#include "util/heap.h"
#include "utils/acl.h"
#include "utils/memutils.h"
#include "utils/syscache.h"
#include "worker/copy.h"
#include "worker/event.h"
#include "worker/failure.h"
#include "worker/status.h"
#include "worker/supervisor.h"

/* ---- the row's lock ---- */

static LockAcquireResult
run_lock(int64 query_id, bool dont_wait)
{
	LOCKTAG tag;

	SET_LOCKTAG_OBJECT(tag, MyDatabaseId, heap_relation_oid("query_run"), (uint32) query_id, 0);
	return LockAcquire(&tag, ExclusiveLock, false, dont_wait);
}

void
worker_lock_run(int64 query_id)
{
	(void) run_lock(query_id, false);
}

bool
worker_try_lock_run(int64 query_id)
{
	return run_lock(query_id, true) != LOCKACQUIRE_NOT_AVAIL;
}

/* ---- the owner ---- */

static const char *
role_problem(Oid role, int *sqlstate)
{
	HeapTuple tuple = SearchSysCache1(AUTHOID, ObjectIdGetDatum(role));
	bool login;

	*sqlstate = ERRCODE_INVALID_AUTHORIZATION_SPECIFICATION;
	if (!HeapTupleIsValid(tuple))
		return "its owner does not exist any more";
	login = ((Form_pg_authid) GETSTRUCT(tuple))->rolcanlogin;
	ReleaseSysCache(tuple);
	return login ? NULL : psprintf("its owner, role \"%s\", may not log in", GetUserNameFromId(role, false));
}

static const char *
database_problem(Oid role, int *sqlstate)
{
	HeapTuple tuple = SearchSysCache1(DATABASEOID, ObjectIdGetDatum(MyDatabaseId));
	bool open = HeapTupleIsValid(tuple) && ((Form_pg_database) GETSTRUCT(tuple))->datallowconn;

	if (HeapTupleIsValid(tuple))
		ReleaseSysCache(tuple);
	*sqlstate = ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE;
	if (!open)
		return "its database does not accept connections";
	*sqlstate = ERRCODE_INSUFFICIENT_PRIVILEGE;
	if (pg_database_aclcheck(MyDatabaseId, role, ACL_CONNECT) != ACLCHECK_OK)
		return psprintf("its owner, role \"%s\", may not connect to database \"%s\"", GetUserNameFromId(role, false),
						get_database_name(MyDatabaseId));
	return NULL;
}

const char *
worker_owner_problem(StreamQuery *query, int *sqlstate)
{
	const char *problem = role_problem(query->owner, sqlstate);

	return problem ? problem : database_problem(query->owner, sqlstate);
}

void
worker_check_owner(StreamQuery *query)
{
	int sqlstate;
	const char *problem = worker_owner_problem(query, &sqlstate);

	if (problem)
		ereport(ERROR, (errcode(sqlstate), errmsg("streaming query \"%s\" cannot run: %s", query->name, problem),
						errdetail("A query runs in a background process that connects as the query's owner."),
						errhint("Give the role LOGIN and CONNECT, or create the query as another role.")));
}

/* ---- at commit ---- */

static bool preloaded = false;

void
worker_set_preloaded(bool is_preloaded)
{
	preloaded = is_preloaded;
}

bool
worker_is_preloaded(void)
{
	return preloaded;
}

static bool start_armed = false;
static bool stop_armed = false;
static Oid other_database = InvalidOid; /* to be looked at as well */
static List *to_wake = NIL;				/* int64 *, in TopTransactionContext */
static List *to_start = NIL;			/* likewise: started by this transaction */

static void
wake_all(void)
{
	ListCell *cell;

	foreach (cell, to_wake)
	{
		uint64 launch;
		int64 request;

		(void) status_wake(*(int64 *) lfirst(cell), &launch, &request);
	}
}

/* Nothing here may fail. A stop that is rolled back leaves a query that should run without a worker: the supervisor looks again. */
static void
request_xact_callback(XactEvent event, void *arg)
{
	if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT || event == XACT_EVENT_PREPARE)
	{
		if (event == XACT_EVENT_COMMIT)
			wake_all();
		to_wake = to_start = NIL;
	}
	if (!start_armed && !stop_armed)
		return;
	switch (event)
	{
		case XACT_EVENT_PRE_PREPARE:
			ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
							errmsg("cannot PREPARE a transaction that has started or stopped a streaming query")));
			break;
		case XACT_EVENT_COMMIT:
		case XACT_EVENT_ABORT:
			if (event == XACT_EVENT_COMMIT || stop_armed)
				worker_ask_supervisor(OidIsValid(other_database) ? other_database : MyDatabaseId);
			start_armed = stop_armed = false;
			other_database = InvalidOid;
			status_changed();
			break;
		default:
			break;
	}
}

void
worker_ask_supervisor(Oid database)
{
	if (!status_request_supervisor(database) && !supervisor_register(database, NULL))
		ereport(WARNING, (errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED), errmsg("streaming queries wait: no background worker is free"),
						  errhint("Raise max_worker_processes, then start the query again.")));
}

static void
request_init_once(void)
{
	static bool registered = false;

	if (!registered)
		RegisterXactCallback(request_xact_callback, NULL);
	registered = true;
	(void) status_get(0, NULL); /* attach shared memory now, where it may fail */
}

static void
request_arm(bool *armed)
{
	request_init_once();
	*armed = true;
}

static void
remember(List **list, int64 query_id)
{
	MemoryContext caller = MemoryContextSwitchTo(TopTransactionContext);
	int64 *id = palloc(sizeof(int64));

	request_init_once();
	*id = query_id;
	*list = lappend(*list, id);
	MemoryContextSwitchTo(caller);
}

void
worker_wake_at_commit(int64 query_id)
{
	remember(&to_wake, query_id);
}

/* Its worker is started by this transaction's commit: whoever waits for it before waits for ever. */
void
worker_refuse_early_wait(int64 query_id, const char *name)
{
	ListCell *cell;

	foreach (cell, to_start)
		if (*(int64 *) lfirst(cell) == query_id && !status_get(query_id, NULL))
			ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
							errmsg("streaming query \"%s\" starts when this transaction commits", name),
							errhint("Commit first, then wait for it.")));
}

void
worker_ask_supervisor_at_commit(Oid database)
{
	request_arm(&start_armed);
	other_database = database;
}

/* ---- start, stop ---- */

void
worker_request_start(int64 query_id)
{
	StreamQuery *query = query_load_by_id(query_id, false);
	QueryRun run;

	worker_check_owner(query);
	PreventCommandDuringRecovery("stream.start_query()");
	copy_settle();
	worker_lock_run(query_id);
	query = query_load_again(query);
	query_run_load(query_id, &run);
	if (run.wanted && status_get(query_id, NULL))
	{
		if (strcmp(run.status, "restarting") != 0)
		{
			ereport(NOTICE, (errmsg("streaming query \"%s\" is running already", query->name)));
			return;
		}
		status_stop_query(query_id); /* it waits after an error: begin anew instead */
	}
	run.wanted = true;
	run.status = "starting";
	run.failures = 0;
	run.sqlstate = run.error = NULL;
	run.retry_at = 0;
	run.run_id = query_run_new_id();
	query_run_store(query_id, &run);
	if (!worker_is_preloaded())
		ereport(WARNING, (errmsg("streaming query \"%s\" will not survive a restart of the server", query->name),
						  errhint("Add stream_ext to shared_preload_libraries.")));
	request_arm(&start_armed);
	remember(&to_start, query_id);
}

static void
stop(int64 query_id, const char *status, int sqlstate, const char *error)
{
	QueryRun run;
	QueryStatus slot;

	PreventCommandDuringRecovery("stream.stop_query()");
	worker_lock_run(query_id);
	query_run_load(query_id, &run);
	request_arm(&stop_armed);
	if (run.exists && run.wanted)
	{
		run.wanted = false;
		run.status = unconstify(char *, status);
		run.retry_at = 0;
		if (error)
		{
			run.sqlstate = pstrdup(unpack_sql_state(sqlstate));
			run.error = unconstify(char *, error);
		}
		query_run_store(query_id, &run);
		attempt_end(query_id, status, error ? run.sqlstate : NULL, error);
		event_notify(query_id, "termination", status_get(query_id, &slot) ? slot.last_batch_id : -1);
	}
	status_stop_query(query_id);
}

void
worker_stop(int64 query_id)
{
	if (worker_is_me(query_id))
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE), errmsg("a streaming query cannot stop itself"),
						errhint("Raise an error to make it fail, or stop it from another session.")));
	stop(query_id, "stopped", 0, NULL);
}

void
worker_stop_for_good(int64 query_id, int sqlstate, const char *error)
{
	QueryRun run;

	if (worker_is_me(query_id))
		ereport(ERROR, (errcode(ERRCODE_OBJECT_IN_USE), errmsg("a streaming query cannot drop what it runs on")));
	query_run_load(query_id, &run);
	if (run.wanted)
		stop(query_id, "failed", sqlstate, error);
}

/* ---- wait ---- */

bool
worker_is_running(int64 query_id)
{
	QueryRun run;

	query_run_load(query_id, &run);
	return run.wanted || status_get(query_id, NULL);
}

void
worker_raise_error(const char *name, const QueryRun *run)
{
	const char *state = run->sqlstate && strlen(run->sqlstate) == 5 ? run->sqlstate : "XX000";
	const char *text = run->error ? run->error : "unknown error";
	char *rest = failure_rest(text);

	ereport(ERROR, (errcode(MAKE_SQLSTATE(state[0], state[1], state[2], state[3], state[4])), errmsg("%s", failure_message(text)),
					rest ? errdetail("%s", rest) : 0, errcontext("streaming query \"%s\"", name)));
	pg_unreachable();
}

/* Is it still at work? Raises the error of one that failed. */
static bool
still_wanted(int64 query_id)
{
	QueryRun run;

	query_run_load(query_id, &run);
	if (run.exists && strcmp(run.status, "failed") == 0)
	{
		StreamQuery *query = query_load_by_id(query_id, true);

		worker_raise_error(query ? query->name : "?", &run);
	}
	return run.wanted;
}

#define LOOK_AGAIN_MS 1000 /* for what no broadcast tells, such as a server-side kill */

bool
worker_wait_idle(int64 query_id)
{
	uint64 launch = 0;
	int64 request = 0;
	bool idle = false;

	if (worker_is_me(query_id))
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE), errmsg("a streaming query cannot wait for itself")));
	status_prepare_wait();
	for (;;)
	{
		QueryStatus status;

		if (!status_get(query_id, &status))
			launch = 0;
		else if (status.launch != launch)
			(void) status_wake(query_id, &launch, &request); /* a new worker knows nothing of what the one before was asked */
		else if (status.wakes_done >= request)
			idle = true;
		if (idle || !still_wanted(query_id))
			break;
		(void) status_wait(LOOK_AGAIN_MS);
	}
	status_end_wait();
	return idle;
}
