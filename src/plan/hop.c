/*
 * hop.c: stream.hop(ts, size, slide) as a GROUP BY key. Where windows overlap and all aggregates can combine, a row goes into one pane instead of into every
 * window that covers it; the operator puts windows together, and the function itself never runs. Otherwise the key stays what it is: a row for each window.
 */
#include "plan/internal.h"

#include "catalog/pg_type.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "util/window_range.h"
#include "utils/fmgroids.h"
#include "utils/timestamp.h"

/* A window of more panes than so many times the windows that cover a row would cost more to put together than it saves. */
#define PANES_PER_WINDOW 4

static bool
is_hop(Node *node)
{
	return IsA(node, FuncExpr) && is_stream_function(((FuncExpr *) node)->funcid, "hop");
}

static bool
constant(Node *expr, Datum *value)
{
	Node *folded = eval_const_expressions(NULL, copyObject(expr));

	if (!IsA(folded, Const) || ((Const *) folded)->constisnull)
		return false;
	*value = ((Const *) folded)->constvalue;
	return true;
}

/* False: not known before the rows, or not worth while. What is wrong with them is for the function itself to say. */
static bool
windows_of(FuncExpr *hop, int64 *size, int64 *slide, int64 *origin)
{
	Datum value;
	Interval *interval;

	*origin = WINDOW_EPOCH;
	if (list_length(hop->args) > 3)
	{
		if (!constant(lfourth(hop->args), &value))
			return false;
		*origin = DatumGetInt64(value);
	}
	if (!constant(lsecond(hop->args), &value))
		return false;
	interval = DatumGetIntervalP(value);
	if (interval->month != 0 || !window_length(interval, "window size", size) || !constant(lthird(hop->args), &value))
		return false;
	interval = DatumGetIntervalP(value);
	if (interval->month != 0 || !window_length(interval, "window slide", slide))
		return false;
	return !TIMESTAMP_NOT_FINITE(*origin) && *size / *slide >= 2 && *slide / hop_pane(*size, *slide) <= PANES_PER_WINDOW;
}

/* Do its windows close at their ends, by the clock of its own argument? */
static bool
closes_at_end(Lineage *lineage)
{
	Node *closes = (Node *) lineage->closes;

	while (IsA(closes, RelabelType))
		closes = (Node *) ((RelabelType *) closes)->arg;
	return IsA(closes, FuncExpr) && ((FuncExpr *) closes)->funcid == F_UPPER_ANYRANGE && IsA(linitial(((FuncExpr *) closes)->args), CaseTestExpr);
}

static bool
all_combine(List *calls)
{
	ListCell *lc;

	foreach (lc, calls)
		if (!aggregate_combines(((AggregateCall *) lfirst(lc))->aggref))
			return false;
	return true;
}

/* Takes the window to the end of the keys, where the operator expects it; NULL when there is none, or something speaks for a row per window. */
FuncExpr *
hop_move_last(Compile *c, Level *level, List **ordered, List *calls)
{
	OrderedKey *window = NULL;
	int64 size, slide, origin;
	Lineage lineage;
	ListCell *lc;

	if (c->options->whole_windows)
		return NULL;
	foreach (lc, *ordered)
	{
		OrderedKey *key = lfirst(lc);

		if (window == NULL && is_hop(key->expr) && !expression_returns_set((Node *) ((FuncExpr *) key->expr)->args))
			window = key;
		else if (expression_returns_set(key->expr) || lineage_of(c, level, key->expr).kind != LINEAGE_NONE)
			return NULL; /* each row meets its windows side by side with another set, or another key closes them too */
	}
	if (window == NULL || !windows_of((FuncExpr *) window->expr, &size, &slide, &origin) || !all_combine(calls))
		return NULL;
	lineage = lineage_of(c, level, window->expr);
	if (lineage.kind != LINEAGE_NONE && !closes_at_end(&lineage))
		return NULL;
	*ordered = lappend(list_delete_ptr(*ordered, window), window);
	return (FuncExpr *) window->expr;
}

void
hop_fill(HopSpec *spec, List **columns, FuncExpr *hop)
{
	(void) windows_of(hop, &spec->size, &spec->slide, &spec->origin);
	spec->start = cut_share_column(columns, linitial(hop->args), "start");
}
