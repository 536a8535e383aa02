/*
 * housekeeping.c: after a batch: changelogs folded into snapshots, and what nobody can ask for any more deleted, when it is worth while.
 * Small work is done at once, in a transaction of its own. Big work can be handed to another process (worker/housekeeper.c) while batches go on: it needs
 * the tables only, and batches after the one it goes by do not concern it.
 */
#include "batch/batch.h"

#include "batch/runtime.h"
#include "state/store.h"
#include "util/operation.h"
#include "utils/guc.h"

#define BIG_WORK (8 * 1024 * 1024) /* bytes read, written or deleted: a tenth of a second or so */

static List *
runtime_stores(QueryRuntime *rt)
{
	List *stores = NIL;
	ListCell *lc;

	foreach (lc, rt->operators)
		stores = list_concat(stores, ((Operator *) lfirst(lc))->stores);
	return stores;
}

bool
housekeeping_due(QueryRuntime *rt, Housekeeping *work)
{
	int64 retain = rt->query->options.min_batches_to_retain;
	int64 bytes = 0;
	ListCell *lc;

	memset(work, 0, sizeof(*work));
	if (rt->epoch_open)
		return false;
	work->query_id = rt->query->id;
	work->incarnation = rt->query->incarnation;
	work->last_batch = rt->last_batch;
	work->purge_upto = rt->last_batch - retain - 1; /* what the oldest of them began with is kept too */
	foreach (lc, runtime_stores(rt))
	{
		work->fold = work->fold || state_fold_due(lfirst(lc));
		bytes += state_fold_work(lfirst(lc));
	}
	work->big = bytes > BIG_WORK;
	/* In steps of a quarter of what is kept, so that hardly any batch is followed by a purge; who keeps very little wants no more. */
	return work->fold || work->purge_upto - rt->purged_upto >= Max(retain / 4, Min(retain, 16));
}

void
housekeeping_run(const Housekeeping *work)
{
	CommitEntry last;
	StreamQuery *query;

	/* Somebody else is at it, or the query went back or away meanwhile: then there is nothing to do here. */
	if (!query_lock_housekeeping(work->query_id, false))
		return;
	query = query_load_by_id(work->query_id, true);
	if (query == NULL || query->incarnation != work->incarnation || !commit_log_last(work->query_id, &last) || last.batch_id < work->last_batch)
		return;
	if (work->fold)
		operation_show(OPERATION_FOLD_STATE, work->query_id, work->last_batch, 0);
	if (work->fold)
		(void) state_fold(work->query_id, work->last_batch);
	operation_end();
	if (work->purge_upto < 0)
		return;
	(void) state_purge(work->query_id, work->purge_upto);
	logs_purge(work->query_id, work->purge_upto);
}

void
housekeeping_begun(QueryRuntime *rt, const Housekeeping *work)
{
	ListCell *lc;

	rt->purged_upto = Max(work->purge_upto, rt->purged_upto);
	if (!work->fold)
		return; /* nobody would say that a fold has ended */
	foreach (lc, runtime_stores(rt))
		state_fold_begun(lfirst(lc));
}

bool
housekeeping_ended(QueryRuntime *rt, const Housekeeping *work)
{
	bool done = !work->fold;
	ListCell *lc;

	runtime_begin(rt);
	foreach (lc, runtime_stores(rt))
		done |= state_fold_ended(lfirst(lc), work->last_batch);
	done &= logs_purged(work->query_id, work->purge_upto);
	runtime_commit(rt);
	return done;
}

void
batch_housekeeping(QueryRuntime *rt)
{
	Housekeeping work;

	if (!housekeeping_due(rt, &work))
		return;
	runtime_begin(rt);
	housekeeping_begun(rt, &work);
	housekeeping_run(&work);
	(void) set_config_option("synchronous_commit", "off", PGC_USERSET, PGC_S_SESSION, GUC_ACTION_LOCAL, true, 0, false);
	runtime_commit(rt);
	if (work.fold)
		(void) housekeeping_ended(rt, &work);
}
