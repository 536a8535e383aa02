/*
 * status.c: the slots of running queries in shared memory. A supervisor claims a slot, the worker moves in and keeps it current,
 * and whoever waits for it (stop, await, process_all_available) sleeps on one condition variable.
 * A slot is freed by its worker's exit callback, after its transaction and its session lock are gone: no slot means no worker.
 */
#include "worker/shared.h"

#include <signal.h>

#include "catalog/pg_control.h"
#include "common/controldata_utils.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lock.h"
#include "storage/proc.h"
#include "storage/shmem.h"
#include "util/clock.h"
#include "util/compat.h"
#include "utils/memutils.h"

#define ORPHAN_AFTER_US (30 * INT64CONST(1000000))

static SharedStatus *shared = NULL;
static QueryStatus *mine = NULL;

Size
status_shmem_size(int max_queries)
{
	return MAXALIGN(offsetof(SharedStatus, queries) + (Size) max_queries * sizeof(QueryStatus));
}

/* Before recovery, which would change it. After a crash the postmaster asks again, and hears that nobody has shut anything down. */
static bool
server_was_shut_down(void)
{
	bool crc_ok;
	ControlFileData *control = get_controlfile(DataDir, &crc_ok);
	bool shut_down = crc_ok && control->state == DB_SHUTDOWNED;

	pfree(control);
	return shut_down;
}

void
status_shmem_startup(int max_queries)
{
	bool found;

	/* After a crash the postmaster comes here again: what it knew of the old segment is void. */
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	shared = ShmemInitStruct("stream_ext status", status_shmem_size(max_queries), &found);
	if (!found)
	{
		memset(shared, 0, status_shmem_size(max_queries));
		shared->nqueries = max_queries;
		shared->launcher_procno = -1;
		shared->clean_start = !IsUnderPostmaster && server_was_shut_down();
		shared->tranche = LWLockNewTrancheId();
		LWLockInitialize(&shared->lock, shared->tranche);
		ConditionVariableInit(&shared->changed);
	}
	LWLockRelease(AddinShmemInitLock);
	LWLockRegisterTranche(shared->tranche, "stream_ext status");
}

SharedStatus *
status_shared(void)
{
	if (shared == NULL)
		status_shmem_startup(DEFAULT_MAX_QUERIES);
	return shared;
}

bool
status_clean_start(void)
{
	return status_shared()->clean_start;
}

void
status_set_latch(int procno)
{
	SetLatch(&ProcGlobal->allProcs[procno].procLatch);
}

static QueryStatus *
slot_find(int64 query_id)
{
	for (int i = 0; i < shared->nqueries; i++)
	{
		if (shared->queries[i].query_id == query_id && shared->queries[i].database == MyDatabaseId)
			return &shared->queries[i];
	}
	return NULL;
}

/* Claimed long ago, nobody moved in: the launch failed, and who knew of it is gone. */
static bool
slot_is_orphan(QueryStatus *slot)
{
	return slot->pid == 0 && clock_monotonic_us() - slot->claimed_at > ORPHAN_AFTER_US;
}

static void
slot_free(QueryStatus *slot)
{
	Oid database = slot->database;

	memset(slot, 0, sizeof(QueryStatus));
	status_wake_supervisor_locked(database);
}

/* ---- anybody ---- */

bool
status_get(int64 query_id, QueryStatus *copy)
{
	QueryStatus *slot;

	status_shared();
	LWLockAcquire(&shared->lock, LW_SHARED);
	slot = slot_find(query_id);
	if (slot && copy)
		*copy = *slot;
	LWLockRelease(&shared->lock);
	return slot != NULL;
}

List *
status_list(void)
{
	QueryStatus *copies = palloc(sizeof(QueryStatus) * status_shared()->nqueries);
	List *list = NIL;
	int n = 0;

	LWLockAcquire(&shared->lock, LW_SHARED);
	for (int i = 0; i < shared->nqueries; i++)
	{
		if (shared->queries[i].query_id != 0 && shared->queries[i].database == MyDatabaseId)
			copies[n++] = shared->queries[i];
	}
	LWLockRelease(&shared->lock);
	for (int i = 0; i < n; i++)
		list = lappend(list, &copies[i]);
	return list;
}

bool
status_wake(int64 query_id, uint64 *launch, int64 *request)
{
	QueryStatus *slot;

	status_shared();
	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	slot = slot_find(query_id);
	if (slot)
	{
		*launch = slot->launch;
		*request = ++slot->wake_requests;
		if (slot->pid != 0)
			status_set_latch(slot->procno);
	}
	LWLockRelease(&shared->lock);
	return slot != NULL;
}

/*
 * SIGINT, not SIGTERM: it cancels what the worker executes, which then sees stop_requested and leaves without a FATAL in the log.
 * User code may catch a cancel; who does not listen for long is terminated.
 */
static void
slot_signal_stop(QueryStatus *slot, bool force)
{
	slot->stop_requested = true;
	if (slot->pid == 0)
	{
		if (slot_is_orphan(slot))
			slot_free(slot);
		return;
	}
	status_set_latch(slot->procno);
	kill(slot->pid, force ? SIGTERM : SIGINT);
}

/* A cancel may come too early (worker not up) or be caught: it is repeated, and at last becomes a termination. */
#define STOP_AGAIN_MS 200
#define STOP_FORCE_US (10 * INT64CONST(1000000))

void
status_stop_query(int64 query_id)
{
	int64 force_at = clock_monotonic_us() + STOP_FORCE_US;

	status_prepare_wait();
	for (;;)
	{
		QueryStatus *slot;

		LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
		slot = slot_find(query_id);
		if (slot)
			slot_signal_stop(slot, clock_monotonic_us() > force_at);
		LWLockRelease(&shared->lock);
		if (slot == NULL)
			break;
		(void) status_wait(STOP_AGAIN_MS);
	}
	status_end_wait();
}

/* One round of status_block_database; true: nobody is left. */
static bool
database_signal_stop(Oid database, bool force)
{
	bool clear = true;
	DatabaseStatus *entry = status_find_database(database);

	for (int i = 0; i < shared->nqueries; i++)
	{
		if (shared->queries[i].query_id == 0 || shared->queries[i].database != database)
			continue;
		slot_signal_stop(&shared->queries[i], force);
		clear = false;
	}
	if (entry && entry->pid != 0)
	{
		entry->stop_requested = true;
		status_set_latch(entry->procno);
		kill(entry->pid, force ? SIGTERM : SIGINT);
		clear = false;
	}
	return clear;
}

static void
database_mark_blocked(Oid database)
{
	DatabaseStatus *entry = status_database_entry(database);

	if (entry)
		entry->blocked_by = MyProcPid;
}

static void
databases_unblock_at_exit(int code, Datum arg)
{
	Oid database;
	bool wanted;

	while (OidIsValid(database = status_unblock_database(&wanted)))
		if (wanted)
			(void) status_request_supervisor(database);
}

void
status_block_database(Oid database)
{
	static bool exit_registered = false;
	int64 force_at = clock_monotonic_us() + STOP_FORCE_US;

	status_shared();
	if (!exit_registered)
	{
		before_shmem_exit(databases_unblock_at_exit, (Datum) 0);
		exit_registered = true;
	}
	status_prepare_wait();
	for (;;)
	{
		bool clear;

		LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
		database_mark_blocked(database);
		clear = database_signal_stop(database, clock_monotonic_us() > force_at);
		LWLockRelease(&shared->lock);
		if (clear)
			break;
		(void) status_wait(STOP_AGAIN_MS);
	}
	status_end_wait();
}

Oid
status_unblock_database(bool *wanted)
{
	Oid database = InvalidOid;

	LWLockAcquire(&status_shared()->lock, LW_EXCLUSIVE);
	for (int i = 0; i < MAX_DATABASES && !OidIsValid(database); i++)
	{
		DatabaseStatus *entry = &shared->databases[i];

		if (!OidIsValid(entry->database) || entry->blocked_by != MyProcPid)
			continue;
		database = entry->database;
		entry->blocked_by = 0;
		*wanted = entry->wanted;
		if (!entry->wanted && entry->pid == 0)
			entry->database = InvalidOid;
	}
	LWLockRelease(&shared->lock);
	return database;
}

void
status_prepare_wait(void)
{
	ConditionVariablePrepareToSleep(&status_shared()->changed);
}

/* True: the time is over. */
bool
status_wait(long timeout_ms)
{
	return ConditionVariableTimedSleep(&shared->changed, timeout_ms, PG_WAIT_EXTENSION);
}

void
status_end_wait(void)
{
	ConditionVariableCancelSleep();
}

void
status_changed(void)
{
	ConditionVariableBroadcast(&status_shared()->changed);
}

/* ---- slots: supervisor ---- */

int
status_claim(int64 query_id, uint64 *launch)
{
	int found = -1;

	status_shared();
	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	if (slot_find(query_id) && slot_is_orphan(slot_find(query_id)))
		slot_free(slot_find(query_id));
	for (int i = 0; i < shared->nqueries && slot_find(query_id) == NULL; i++)
	{
		QueryStatus *slot = &shared->queries[i];

		if (slot->query_id != 0 || status_database_blocked(MyDatabaseId))
			continue;
		memset(slot, 0, sizeof(QueryStatus));
		slot->database = MyDatabaseId;
		slot->query_id = query_id;
		slot->launch = *launch = ++shared->last_launch;
		slot->claimed_at = clock_monotonic_us();
		slot->last_batch_id = -1;
		found = i;
		break;
	}
	LWLockRelease(&shared->lock);
	return found;
}

void
status_unclaim(int slot, uint64 launch)
{
	QueryStatus *claimed = &status_shared()->queries[slot];

	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	if (claimed->launch == launch && claimed->pid == 0)
		slot_free(claimed);
	LWLockRelease(&shared->lock);
	status_changed();
}

/* ---- slots: the worker's own ---- */

bool
status_worker_attach(int slot, uint64 launch)
{
	QueryStatus *claimed;
	bool welcome = false;

	if (slot < 0 || slot >= status_shared()->nqueries)
		return false;
	claimed = &shared->queries[slot];
	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	if (claimed->query_id != 0 && claimed->launch == launch && claimed->pid == 0)
	{
		mine = claimed;
		mine->pid = MyProcPid;
		mine->procno = MY_PROC_NUMBER;
		welcome = !mine->stop_requested;
	}
	LWLockRelease(&shared->lock);
	return welcome;
}

void
status_worker_detach(void)
{
	if (mine == NULL)
		return;
	/* A session lock outlives its transaction; released here, before anybody can believe that the worker is gone. */
	LockReleaseAll(DEFAULT_LOCKMETHOD, true);
	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	slot_free(mine);
	LWLockRelease(&shared->lock);
	mine = NULL;
	status_changed();
}

bool
status_stop_requested(void)
{
	return mine && ((volatile QueryStatus *) mine)->stop_requested;
}

int64
status_trigger_begins(void)
{
	int64 seen;

	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	mine->is_trigger_active = true;
	seen = mine->wake_requests;
	LWLockRelease(&shared->lock);
	return seen;
}

void
status_trigger_ends(bool ran, int64 wakes_seen)
{
	bool answered = false;

	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	mine->is_trigger_active = false;
	if (!ran)
	{
		mine->is_data_available = false;
		answered = wakes_seen > mine->wakes_done;
		mine->wakes_done = wakes_seen;
	}
	LWLockRelease(&shared->lock);
	if (answered)
		status_changed();
}

void
status_batch_done(int64 batch_id, TimestampTz at, int64 duration_us, int64 rows)
{
	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	mine->last_batch_id = batch_id;
	mine->last_batch_at = at;
	mine->batch_duration_us = duration_us;
	mine->last_rows = rows;
	LWLockRelease(&shared->lock);
}

void
status_set_message(const char *message)
{
	int len = pg_mbcliplen(message, strlen(message), sizeof(mine->message) - 1);

	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	memcpy(mine->message, message, len);
	mine->message[len] = '\0';
	LWLockRelease(&shared->lock);
}

void
status_set_data_available(bool available)
{
	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	mine->is_data_available = available;
	LWLockRelease(&shared->lock);
}

int64
status_wakes_pending(void)
{
	int64 pending;

	LWLockAcquire(&shared->lock, LW_SHARED);
	pending = mine->wake_requests - mine->wakes_done;
	LWLockRelease(&shared->lock);
	return pending;
}
