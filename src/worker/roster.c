/*
 * roster.c: which databases want a supervisor, and which have one.
 * start_query → request (at commit) → launcher or supervisor; a supervisor leaves only under the lock, when nothing was asked since.
 */
#include "worker/shared.h"

#include "miscadmin.h"
#include "nodes/pg_list.h"
#include "storage/ipc.h"
#include "storage/proc.h"
#include "util/compat.h"

static DatabaseStatus *supervised = NULL; /* the entry of this supervisor */

DatabaseStatus *
status_find_database(Oid database)
{
	SharedStatus *shared = status_shared();

	for (int i = 0; i < MAX_DATABASES; i++)
	{
		if (shared->databases[i].database == database)
			return &shared->databases[i];
	}
	return NULL;
}

bool
status_database_blocked(Oid database)
{
	DatabaseStatus *entry = status_find_database(database);

	return entry && entry->blocked_by != 0;
}

DatabaseStatus *
status_database_entry(Oid database)
{
	SharedStatus *shared = status_shared();
	DatabaseStatus *entry = status_find_database(database);

	if (entry == NULL)
		entry = status_find_database(InvalidOid);
	if (entry == NULL)
		shared->overflow = true;
	else if (!OidIsValid(entry->database))
	{
		memset(entry, 0, sizeof(*entry));
		entry->database = database;
	}
	return entry;
}

void
status_wake_supervisor_locked(Oid database)
{
	DatabaseStatus *entry = status_find_database(database);

	if (entry && entry->pid != 0)
		status_set_latch(entry->procno);
}

bool
status_request_supervisor(Oid database)
{
	SharedStatus *shared = status_shared();
	DatabaseStatus *entry;
	bool taken_care_of = true;

	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	entry = status_database_entry(database);
	if (entry)
	{
		entry->requests++;
		entry->wanted = true;
	}
	if (entry && entry->pid != 0)
		status_set_latch(entry->procno);
	else if (shared->launcher_procno >= 0)
		status_set_latch(shared->launcher_procno);
	else
		taken_care_of = false;
	LWLockRelease(&shared->lock);
	return taken_care_of;
}

/* ---- launcher ---- */

static void
launcher_detach(int code, Datum arg)
{
	SharedStatus *shared = status_shared();

	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	shared->launcher_procno = -1;
	LWLockRelease(&shared->lock);
}

void
status_launcher_attach(void)
{
	SharedStatus *shared = status_shared();

	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	shared->launcher_procno = MY_PROC_NUMBER;
	LWLockRelease(&shared->lock);
	before_shmem_exit(launcher_detach, (Datum) 0);
}

bool
status_take_overflow(void)
{
	SharedStatus *shared = status_shared();
	bool overflow;

	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	overflow = shared->overflow && status_find_database(InvalidOid) != NULL;
	if (overflow)
		shared->overflow = false;
	LWLockRelease(&shared->lock);
	return overflow;
}

List *
status_wanting_supervisor(void)
{
	SharedStatus *shared = status_shared();
	List *databases = NIL;
	Oid found[MAX_DATABASES];
	int n = 0;

	LWLockAcquire(&shared->lock, LW_SHARED);
	for (int i = 0; i < MAX_DATABASES; i++)
	{
		DatabaseStatus *entry = &shared->databases[i];

		if (OidIsValid(entry->database) && entry->wanted && entry->pid == 0 && entry->blocked_by == 0)
			found[n++] = entry->database;
	}
	LWLockRelease(&shared->lock);
	for (int i = 0; i < n; i++)
		databases = lappend_oid(databases, found[i]);
	return databases;
}

void
status_drop_database(Oid database)
{
	SharedStatus *shared = status_shared();
	DatabaseStatus *entry;

	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	entry = status_find_database(database);
	if (entry && entry->pid == 0 && entry->blocked_by == 0)
		entry->database = InvalidOid;
	LWLockRelease(&shared->lock);
}

/* ---- supervisor ---- */

static void
supervisor_detach(int code, Datum arg)
{
	SharedStatus *shared = status_shared();

	if (supervised == NULL)
		return;
	/* Ended by force: the wish stays, the launcher sees to it. */
	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	supervised->pid = 0;
	supervised->stop_requested = false;
	supervised = NULL;
	if (shared->launcher_procno >= 0)
		status_set_latch(shared->launcher_procno);
	LWLockRelease(&shared->lock);
	status_changed();
}

bool
status_supervisor_attach(Oid database)
{
	SharedStatus *shared = status_shared();
	DatabaseStatus *entry;
	bool welcome;

	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	entry = status_database_entry(database);
	welcome = entry && entry->pid == 0 && entry->blocked_by == 0;
	if (welcome)
	{
		supervised = entry;
		supervised->pid = MyProcPid;
		supervised->procno = MY_PROC_NUMBER;
		supervised->wanted = true;
		supervised->stop_requested = false;
	}
	LWLockRelease(&shared->lock);
	if (welcome)
		before_shmem_exit(supervisor_detach, (Datum) 0);
	return welcome;
}

bool
status_supervisor_must_stop(void)
{
	return ((volatile DatabaseStatus *) supervised)->stop_requested;
}

uint64
status_supervisor_requests(void)
{
	SharedStatus *shared = status_shared();
	uint64 requests;

	LWLockAcquire(&shared->lock, LW_SHARED);
	requests = supervised->requests;
	LWLockRelease(&shared->lock);
	return requests;
}

bool
status_supervisor_leave(uint64 seen)
{
	SharedStatus *shared = status_shared();
	bool leave;

	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	leave = supervised->requests == seen;
	if (leave && supervised->blocked_by == 0)
		supervised->database = InvalidOid;
	if (leave)
	{
		supervised->pid = 0;
		supervised->wanted = false;
		supervised = NULL;
		if (shared->overflow && shared->launcher_procno >= 0)
			status_set_latch(shared->launcher_procno);
	}
	LWLockRelease(&shared->lock);
	if (leave)
		status_changed();
	return leave;
}
