/*
 * hop_slide.c: windows of a key in order of time, each put together with a few combinations however many panes it has.
 *
 * The panes of the window lie in two stacks. Those of the back have come in last and are combined as they come; the front holds, for each of
 * its panes, the combination of that pane and all that follow it. A window is the top of the front and the back; what leaves it leaves the front's top. When
 * the front is empty the back becomes the front.
 */
#include "operator/hop.h"

#include "executor/executor.h"
#include "miscadmin.h"
#include "util/window_range.h"

typedef struct Slide
{
	HopOperator *op;
	PaneList *list;
	int64 reached;	 /* panes that start before are in */
	int64 *starts;	 /* of the front's panes, the oldest last */
	Cell **front;	 /* combined from there on */
	int nfront;
	struct Pane *back; /* in order of time */
	int nback;
	Cell *back_cells;
} Slide;

static Cell *
cells_make(HopOperator *op, Cell *from)
{
	Cell *cells = aggregate_value_create(&op->aggregate, op->combined->ecxt_per_tuple_memory);

	if (from)
		aggregate_value_add(&op->aggregate, op->combined, cells, from);
	return cells;
}

static StateEntry *
pane_find(HopOperator *op, PaneList *list, int64 start)
{
	int column = HOP_COLUMN(op);

	ExecClearTuple(op->key);
	key_deform(op->index->keys, list->key, op->key->tts_values, op->key->tts_isnull);
	op->key->tts_values[column] = window_range_make(op->range, start, start + op->pane);
	op->key->tts_isnull[column] = false;
	return op->aggregate.provider->get(op->aggregate.groups, ExecStoreVirtualTuple(op->key));
}

static void
push(Slide *slide, int64 start, StateEntry *entry)
{
	if (slide->nback == 0)
		slide->back_cells = cells_make(slide->op, NULL);
	aggregate_value_add(&slide->op->aggregate, slide->op->combined, slide->back_cells, entry->value);
	slide->back[slide->nback].start = start;
	slide->back[slide->nback++].entry = entry;
}

/* The back becomes the front, from its newest pane to its oldest. */
static void
flip(Slide *slide)
{
	while (slide->nback > 0)
	{
		struct Pane *pane = &slide->back[--slide->nback];
		Cell *cells = cells_make(slide->op, pane->entry->value);

		if (slide->nfront > 0)
			aggregate_value_add(&slide->op->aggregate, slide->op->combined, cells, slide->front[slide->nfront - 1]);
		slide->starts[slide->nfront] = pane->start;
		slide->front[slide->nfront++] = cells;
	}
}

static void
drop_before(Slide *slide, int64 start)
{
	while (slide->nfront > 0 || slide->nback > 0)
	{
		if (slide->nfront == 0)
		{
			if (slide->back[0].start >= start)
				return;
			flip(slide);
		}
		if (slide->starts[slide->nfront - 1] >= start)
			return;
		slide->nfront--;
	}
}

static void
window_emit(Slide *slide, int64 start)
{
	HopOperator *op = slide->op;
	Cell *cells;

	if (slide->reached <= start)
	{
		slide->nfront = slide->nback = 0;
		slide->reached = start;
	}
	drop_before(slide, start); /* first: the stacks have room for the panes of one window */
	for (; slide->reached < start + op->spec->size; slide->reached += op->pane)
	{
		StateEntry *entry = pane_find(op, slide->list, slide->reached);

		if (entry)
			push(slide, slide->reached, entry);
	}
	if (slide->nfront == 0)
		cells = slide->back_cells;
	else
	{
		cells = slide->front[slide->nfront - 1];
		if (slide->nback > 0)
		{
			cells = cells_make(op, cells);
			aggregate_value_add(&op->aggregate, op->combined, cells, slide->back_cells);
		}
	}
	hop_emit(op, slide->list, start, cells);
}

void
hop_slide(HopOperator *op, PaneList *list, TimestampTz ended)
{
	MemoryContext caller = MemoryContextSwitchTo(op->combined->ecxt_per_tuple_memory);
	int npanes = op->spec->size / op->pane;
	Slide slide = {.op = op, .list = list, .reached = PG_INT64_MIN};
	int64 next = PG_INT64_MIN;

	slide.starts = palloc(sizeof(int64) * npanes);
	slide.front = palloc(sizeof(Cell *) * npanes);
	slide.back = palloc(sizeof(struct Pane) * npanes);
	for (int i = 0; i < list->n; i++)
	{
		int64 first, last;

		hop_windows_of_pane(op, list->panes[i].start, &first, &last);
		for (int64 start = Max(first, next); start <= last; start += op->spec->slide)
		{
			CHECK_FOR_INTERRUPTS();
			if (start + op->spec->size > ended)
				window_emit(&slide, start);
		}
		next = Max(next, last + op->spec->slide);
	}
	MemoryContextSwitchTo(caller);
	ReScanExprContext(op->combined);
}
