/* account.h: what the live state of this process takes, against stream_ext.state_memory. */
#ifndef STREAM_STATE_ACCOUNT_H
#define STREAM_STATE_ACCOUNT_H

#include "postgres.h"
#include "lib/ilist.h"
#include "state/changelog.h"

typedef struct StateAccount
{
	dlist_node node;
	MemoryContext context;
	MemoryContextCallback callback;
} StateAccount;

/* Counts the context, with all below it, until it is reset or deleted; the account lives in it. */
extern void state_account_add(StateAccount *account, MemoryContext context);
/* ereport when all of them together take more than they may. id, rows: who asks. */
extern void state_account_check(const StateId *id, int64 rows);

#endif
