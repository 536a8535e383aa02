/*
 * stages.c: has Postgres plan the stages, knows when those plans are out of date, and takes the locks they were made under.
 * Plans outlive transactions: whatever a plan depends on is listed, and an invalidation of anything on the list marks it for a new compile.
 */
#include "plan/internal.h"

#include "optimizer/optimizer.h"
#include "storage/lmgr.h"
#include "util/failpoint.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

/* A plan being watched: part of the plan, in a list of the process. */
struct PlanWatch
{
	StreamPlan *plan;
	bool valid;
	List *items; /* PlanInvalItem: functions and types */
};

static List *watches = NIL; /* in TopMemoryContext */
static bool callbacks_registered = false;

/* ---- planning ---- */

static void
note_dependencies(StreamPlan *plan, Node *tree, List **items)
{
	List *relations = NIL, *more = NIL;
	bool row_security;

	extract_query_dependencies(tree, &relations, &more, &row_security);
	plan->relations = list_concat_unique_oid(plan->relations, relations);
	*items = list_concat(*items, more);
}

/* In the plan's context. */
void
size_note_plan(StreamPlan *plan, PlannedStmt *planned)
{
	plan->relations = list_concat_unique_oid(plan->relations, planned->relationOids);
	plan->watch->items = list_concat(plan->watch->items, planned->invalItems);
}

/* A sink that takes nothing back is not told what leaves. */
static void
drop_retraction(StreamPlan *plan)
{
	ListCell *lc;

	foreach (lc, plan->stages)
		if (((Stage *) lfirst(lc))->retracts)
			plan->stages = foreach_delete_current(plan->stages, lc);
}

void
plan_stages(StreamPlan *plan, Sink *sink)
{
	MemoryContext old = MemoryContextSwitchTo(plan->context);
	Oid target = sink->ops->target_relation ? sink->ops->target_relation(sink) : InvalidOid;
	ListCell *lc;

	plan->watch = palloc0(sizeof(struct PlanWatch));
	plan->watch->plan = plan;
	plan->watch->valid = true;
	note_dependencies(plan, (Node *) plan->analyzed, &plan->watch->items);
	if (sink->ops->retract == NULL)
		drop_retraction(plan);
	foreach (lc, plan->sources)
		plan->relations = list_append_unique_oid(plan->relations, ((SourceDef *) lfirst(lc))->relid);
	foreach (lc, plan->stages)
	{
		Stage *stage = lfirst(lc);
		Query *query = stage->query;

		FAILPOINT("staging");
		if (stage->feeds < 0 && !stage->retracts && sink->ops->wrap)
		{
			Query *wrapped = sink->ops->wrap(sink, copyObject(query));

			query = wrapped ? wrapped : query;
			note_dependencies(plan, (Node *) query, &plan->watch->items);
		}
		stage->statement = query;
		stage->sources = size_sources(query);
		stage->alone = parallel_obstacle(plan, stage, target);
		(void) plan_stage(plan, stage, -1);
	}
	if (OidIsValid(target))
		plan->relations = list_append_unique_oid(plan->relations, target);
	MemoryContextSwitchTo(old);
}

/* ---- invalidation ---- */

static void
relation_changed(Datum arg, Oid relid)
{
	ListCell *lc;

	foreach (lc, watches)
	{
		struct PlanWatch *watch = lfirst(lc);

		if (relid == InvalidOid || list_member_oid(watch->plan->relations, relid))
			watch->valid = false;
	}
}

static void
object_changed(Datum arg, int cache, uint32 hash)
{
	ListCell *lc, *item;

	foreach (lc, watches)
	{
		struct PlanWatch *watch = lfirst(lc);

		foreach (item, watch->items)
		{
			PlanInvalItem *inval = lfirst(item);

			if (inval->cacheId == cache && (hash == 0 || inval->hashValue == hash))
				watch->valid = false;
		}
	}
}

/* Rare changes nobody lists: servers, user mappings, operators, schemas. */
static void
anything_changed(Datum arg, int cache, uint32 hash)
{
	ListCell *lc;

	foreach (lc, watches)
		((struct PlanWatch *) lfirst(lc))->valid = false;
}

static void
register_callbacks(void)
{
	static const int rare[] = {NAMESPACEOID, OPEROID, AMOPOPID, FOREIGNSERVEROID, FOREIGNDATAWRAPPEROID, USERMAPPINGOID};

	if (callbacks_registered)
		return;
	CacheRegisterRelcacheCallback(relation_changed, (Datum) 0);
	CacheRegisterSyscacheCallback(PROCOID, object_changed, (Datum) 0);
	CacheRegisterSyscacheCallback(TYPEOID, object_changed, (Datum) 0);
	for (int i = 0; i < lengthof(rare); i++)
		CacheRegisterSyscacheCallback(rare[i], anything_changed, (Datum) 0);
	callbacks_registered = true;
}

/* The plan's context goes: nobody may look at its watch any more. */
static void
watch_gone(void *watch)
{
	watches = list_delete_ptr(watches, watch);
}

void
plan_watch(StreamPlan *plan)
{
	MemoryContext old;
	MemoryContextCallback *callback;

	if (list_member_ptr(watches, plan->watch))
		return;
	register_callbacks();
	callback = MemoryContextAlloc(plan->context, sizeof(MemoryContextCallback));
	callback->func = watch_gone;
	callback->arg = plan->watch;
	old = MemoryContextSwitchTo(TopMemoryContext);
	watches = lappend(watches, plan->watch);
	MemoryContextSwitchTo(old);
	MemoryContextRegisterResetCallback(plan->context, callback);
}

bool
plan_is_valid(StreamPlan *plan)
{
	return plan->watch->valid;
}

void
plan_lock(StreamPlan *plan)
{
	ListCell *lc, *entry;

	foreach (lc, plan->stages)
		for (int size = 0; size < STAGE_SIZES; size++)
		{
			PlannedStmt *planned = ((Stage *) lfirst(lc))->plans[size];

			foreach (entry, planned ? planned->rtable : NIL)
			{
				RangeTblEntry *rte = lfirst(entry);

				if (rte->rtekind == RTE_RELATION)
					LockRelationOid(rte->relid, rte->rellockmode);
			}
		}
}
