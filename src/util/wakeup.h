/*
 * wakeup.h: who waits for rows of which relation. A commit that brought rows sets the waiting processes' latches: nothing polls.
 * Lives in shared memory; works without preloading as well.
 */
#ifndef STREAM_UTIL_WAKEUP_H
#define STREAM_UTIL_WAKEUP_H

#include "postgres.h"

/* Waiting side. False: the table is full, look by yourself from time to time. Twice for the same relation is once. */
extern bool wakeup_subscribe(Oid relid);
extern void wakeup_unsubscribe_all(void);
/* Has a commit brought rows since the last take (or the subscription)? Take before looking at the data, never after. */
extern bool wakeup_take(void);

/* Writing side: call for every statement or row that adds rows; when the transaction commits, those who wait for relid are woken. */
extern void wakeup_at_commit(Oid relid);
/* Everybody in this database, now: for commits nobody saw coming (COMMIT PREPARED). */
extern void wakeup_all(void);

/* Size to request when preloaded. */
extern Size wakeup_shmem_size(void);
extern void wakeup_shmem_startup(void);

#endif
