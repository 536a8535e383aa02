/*
 * account.c: adds up the memory of all open state stores of the process and refuses to go on above stream_ext.state_memory.
 * Asked now and then, not for every entry: the limit is exceeded a little before it is noticed.
 */
#include "state/account.h"

#include "state/rows.h"
#include "state/store.h"
#include "utils/memutils.h"

int stream_state_memory_kb = 0;

static dlist_head accounts = DLIST_STATIC_INIT(accounts);

static void
account_close(void *arg)
{
	dlist_delete(&((StateAccount *) arg)->node);
}

void
state_account_add(StateAccount *account, MemoryContext context)
{
	account->context = context;
	account->callback.func = account_close;
	account->callback.arg = account;
	dlist_push_head(&accounts, &account->node);
	MemoryContextRegisterResetCallback(context, &account->callback);
}

void
state_account_check(const StateId *id, int64 rows)
{
	Size allocated = 0;
	bool in_place;
	dlist_iter iter;

	if (stream_state_memory_kb == 0)
		return;
	dlist_foreach(iter, &accounts)
		allocated += MemoryContextMemAllocated(dlist_container(StateAccount, node, iter.cur)->context, true);
	if (allocated / 1024 <= (Size) stream_state_memory_kb)
		return;
	in_place = OidIsValid(rows_relation(id->query_id));
	ereport(ERROR, (errcode(ERRCODE_OUT_OF_MEMORY),
					errmsg("the state of streaming query %lld does not fit into memory", (long long) id->query_id),
					errdetail("Operator %d holds %lld entries in state \"%s\"; state takes %zu kB, stream_ext.state_memory is %d kB.", id->operator_id,
							  (long long) rows, id->state_name, allocated / 1024, stream_state_memory_kb),
					in_place ? errhint("Raise stream_ext.state_memory for this batch, whose range is logged. Option max_rows_per_batch makes later ones smaller.")
							 : errhint("Keep the state in a table: SELECT stream.alter_query('name', options => '{\"state_provider\": \"table\"}') on the stopped "
									   "query; or raise stream_ext.state_memory, or bound the state: a watermark and a time window among the keys, fewer "
									   "keys, a time range in the join.")));
}
