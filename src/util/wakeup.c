/*
 * wakeup.c: a small shared table of (database, relation, process); a commit that added rows sets the latches of those who wait.
 * Insert trigger → list of relations of the transaction → commit callback → shared table → SetLatch.
 * A latch may be reset by whoever waits for a lock in between, so each entry also keeps a flag that only its owner takes.
 */
#include "util/wakeup.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "nodes/pg_list.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lwlock.h"
#include "storage/proc.h"
#include "storage/shmem.h"
#include "util/compat.h"
#include "utils/memutils.h"

#define MAX_WAITERS 512

typedef struct Waiter
{
	Oid database;	/* InvalidOid: free */
	Oid relid;
	int procno;
	bool pending;	/* rows were committed since the owner last looked */
} Waiter;

typedef struct WaiterTable
{
	LWLock lock;
	int tranche;
	int used;		/* entries beyond are free */
	Waiter waiters[MAX_WAITERS];
} WaiterTable;

static WaiterTable *table = NULL;
static bool subscribed = false;
static bool exit_registered = false;
static bool xact_registered = false;
static List *committing = NIL; /* Oids, in TopTransactionContext */

Size
wakeup_shmem_size(void)
{
	return MAXALIGN(sizeof(WaiterTable));
}

void
wakeup_shmem_startup(void)
{
	bool found;

	/* After a crash the postmaster comes here again: what it knew of the old segment is void. */
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	table = ShmemInitStruct("stream_ext wakeups", wakeup_shmem_size(), &found);
	if (!found)
	{
		memset(table, 0, sizeof(WaiterTable));
		table->tranche = LWLockNewTrancheId();
		LWLockInitialize(&table->lock, table->tranche);
	}
	LWLockRelease(AddinShmemInitLock);
	LWLockRegisterTranche(table->tranche, "stream_ext wakeups");
}

static void
wakeup_attach(void)
{
	if (table == NULL)
		wakeup_shmem_startup();
}

static void
wakeup_forget_process(int code, Datum arg)
{
	wakeup_unsubscribe_all();
}

static Waiter *
wakeup_find(Oid relid)
{
	for (int i = 0; i < table->used; i++)
	{
		Waiter *waiter = &table->waiters[i];

		if (waiter->database == MyDatabaseId && waiter->relid == relid && waiter->procno == MY_PROC_NUMBER)
			return waiter;
	}
	return NULL;
}

bool
wakeup_subscribe(Oid relid)
{
	Waiter *waiter;

	wakeup_attach();
	if (!exit_registered)
	{
		before_shmem_exit(wakeup_forget_process, (Datum) 0);
		exit_registered = true;
	}
	LWLockAcquire(&table->lock, LW_EXCLUSIVE);
	waiter = wakeup_find(relid);
	for (int i = 0; waiter == NULL && i < MAX_WAITERS; i++)
	{
		if (OidIsValid(table->waiters[i].database))
			continue;
		waiter = &table->waiters[i];
		waiter->database = MyDatabaseId;
		waiter->relid = relid;
		waiter->procno = MY_PROC_NUMBER;
		waiter->pending = false;
		table->used = Max(table->used, i + 1);
	}
	LWLockRelease(&table->lock);
	subscribed = subscribed || waiter != NULL;
	return waiter != NULL;
}

/* Frees this process's entries; InvalidOid: of every relation. */
static void
wakeup_release(Oid relid)
{
	LWLockAcquire(&table->lock, LW_EXCLUSIVE);
	for (int i = 0; i < table->used; i++)
	{
		Waiter *waiter = &table->waiters[i];

		if (OidIsValid(waiter->database) && waiter->procno == MY_PROC_NUMBER && (!OidIsValid(relid) || waiter->relid == relid))
			waiter->database = InvalidOid;
	}
	while (table->used > 0 && !OidIsValid(table->waiters[table->used - 1].database))
		table->used--;
	LWLockRelease(&table->lock);
}

void
wakeup_unsubscribe_all(void)
{
	if (subscribed)
		wakeup_release(InvalidOid);
	subscribed = false;
}

bool
wakeup_take(void)
{
	bool any = false;

	if (!subscribed)
		return false;
	/* Exclusive: of two who write a flag only the owner clears it, but it must not clear one set after it looked. */
	LWLockAcquire(&table->lock, LW_EXCLUSIVE);
	for (int i = 0; i < table->used; i++)
	{
		Waiter *waiter = &table->waiters[i];

		if (OidIsValid(waiter->database) && waiter->procno == MY_PROC_NUMBER && waiter->pending)
		{
			waiter->pending = false;
			any = true;
		}
	}
	LWLockRelease(&table->lock);
	return any;
}

/* relids NIL: everybody in this database. */
static void
wakeup_signal(List *relids)
{
	if (table->used == 0)
		return; /* unlocked: who subscribes now looks at the data afterwards, and sees this commit */
	LWLockAcquire(&table->lock, LW_EXCLUSIVE);
	for (int i = 0; i < table->used; i++)
	{
		Waiter *waiter = &table->waiters[i];

		if (waiter->database != MyDatabaseId || (relids != NIL && !list_member_oid(relids, waiter->relid)))
			continue;
		if (!waiter->pending)
			SetLatch(&ProcGlobal->allProcs[waiter->procno].procLatch);
		waiter->pending = true;
	}
	LWLockRelease(&table->lock);
}

/* At XACT_EVENT_COMMIT the rows are visible to every new snapshot; nothing here may fail. */
static void
wakeup_xact_callback(XactEvent event, void *arg)
{
	if (event != XACT_EVENT_COMMIT && event != XACT_EVENT_ABORT && event != XACT_EVENT_PREPARE)
		return;
	if (event == XACT_EVENT_COMMIT && committing != NIL)
		wakeup_signal(committing);
	committing = NIL; /* goes with TopTransactionContext */
}

void
wakeup_at_commit(Oid relid)
{
	MemoryContext old;

	if (list_member_oid(committing, relid))
		return;
	wakeup_attach();
	if (!xact_registered)
	{
		RegisterXactCallback(wakeup_xact_callback, NULL);
		xact_registered = true;
	}
	old = MemoryContextSwitchTo(TopTransactionContext);
	committing = lappend_oid(committing, relid);
	MemoryContextSwitchTo(old);
}

void
wakeup_all(void)
{
	wakeup_attach();
	wakeup_signal(NIL);
}
