/*
 * size.c: plans of a stage by how many rows it reads: a small batch probes a static table's index, a huge one hashes the table.
 * A plan per size class, made when a batch of that class comes and kept. Danger: it is made inside a batch, under the locks of the others.
 */
#include "plan/internal.h"

#include "nodes/nodeFuncs.h"
#include "tcop/tcopprot.h"
#include "utils/memutils.h"

#define DEFAULT_SIZE 1 /* as long as nobody knows */

/* What a class is planned for, and up to how many rows it goes. */
static const struct
{
	double rows, most;
} sizes[STAGE_SIZES] = {{10, 100}, {1000, 10000}, {100000, 1e6}, {1e7, 0}};

static bool
sources_walker(Node *node, List **relids)
{
	if (node == NULL)
		return false;
	if (IsA(node, RangeTblEntry))
	{
		if (rte_is_source((RangeTblEntry *) node))
			*relids = list_append_unique_oid(*relids, ((RangeTblEntry *) node)->relid);
		return false;
	}
	if (IsA(node, Query))
		return query_tree_walker((Query *) node, sources_walker, relids, QTW_EXAMINE_RTES_BEFORE);
	return expression_tree_walker(node, sources_walker, relids);
}

List *
size_sources(Query *query)
{
	List *relids = NIL;

	(void) sources_walker((Node *) query, &relids);
	return relids;
}

/* Whatever arrives by the batch has that many rows. */
static bool
set_rows_walker(Node *node, double *rows)
{
	if (node == NULL)
		return false;
	if (IsA(node, RangeTblEntry))
	{
		RangeTblEntry *rte = (RangeTblEntry *) node;

		if (rte_is_source(rte) || rte_operator(rte) >= 0)
			rte->enrtuples = *rows;
		return false;
	}
	if (IsA(node, Query))
		return query_tree_walker((Query *) node, set_rows_walker, rows, QTW_EXAMINE_RTES_BEFORE);
	return expression_tree_walker(node, set_rows_walker, rows);
}

static PlannedStmt *
make_plan(StreamPlan *plan, Stage *stage, int size)
{
	MemoryContext scratch = AllocSetContextCreate(CurrentMemoryContext, "stream_ext planning", ALLOCSET_DEFAULT_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(scratch);
	Query *statement = copyObject(stage->statement);
	double rows = sizes[size].rows;
	PlannedStmt *planned;

	(void) set_rows_walker((Node *) statement, &rows);
	tree_add_nulling(statement);
	planned = pg_plan_query(statement, plan->source_text, 0, NULL);
	MemoryContextSwitchTo(plan->context);
	planned = copyObject(planned);
	size_note_plan(plan, planned);
	MemoryContextSwitchTo(caller);
	MemoryContextDelete(scratch);
	return planned;
}

static int
size_class(double rows)
{
	int size = 0;

	if (rows < 0)
		return DEFAULT_SIZE;
	while (size < STAGE_SIZES - 1 && rows > sizes[size].most)
		size++;
	return size;
}

PlannedStmt *
size_plan(StreamPlan *plan, Stage *stage, int size)
{
	if (stage->plans[size] == NULL)
		stage->plans[size] = make_plan(plan, stage, size);
	return stage->plans[size];
}

PlannedStmt *
plan_stage(StreamPlan *plan, Stage *stage, double rows)
{
	return size_plan(plan, stage, size_class(rows));
}

/* "up to 100 rows", for explain; of the last one: NULL. */
char *
size_name(int size)
{
	return sizes[size].most > 0 ? psprintf("up to %.0f rows", sizes[size].most) : NULL;
}
