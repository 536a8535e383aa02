/*
 * bound.c: what a join's condition says about time: until when a row of one side can still find a match on the other.
 * From `a.ts <= b.ts + '5 s'`, or `a.ts - b.ts <= '5 s'`, no b older than a.ts - 5 s matches a: once the watermark has passed what such a b
 * needs, a may go. All sums are made generous where the calendar blurs them (months, days across a change of the clock): a row kept too long
 * costs memory, one dropped too early a match.
 */
#include "plan/internal.h"

#include <math.h>

#include "access/stratnum.h"
#include "catalog/pg_type.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/timestamp.h"
#include "utils/typcache.h"

#define CLOCK_CHANGE (2 * USECS_PER_HOUR)
#define LONGEST_SHIFT (INT64CONST(1000) * 366 * USECS_PER_DAY)

/* base + [least, most] microseconds */
typedef struct Shifted
{
	Node *base;
	int64 least, most;
} Shifted;

/* ---- sums ---- */

/* NULL: not a constant, or longer than sums are safe for. */
static Interval *
constant_interval(Node *expr)
{
	Node *folded = eval_const_expressions(NULL, copyObject(expr));
	Interval *interval;

	if (!IsA(folded, Const) || ((Const *) folded)->constisnull)
		return NULL;
	interval = DatumGetIntervalP(((Const *) folded)->constvalue);
	if (fabs((double) interval->time) + fabs((double) interval->day) * USECS_PER_DAY + fabs((double) interval->month) * 31 * USECS_PER_DAY > LONGEST_SHIFT)
		return NULL;
	return interval;
}

static bool
interval_range(Node *expr, bool tz, bool negative, int64 *least, int64 *most)
{
	Interval *interval = constant_interval(expr);
	int64 low, high, fixed;

	if (interval == NULL)
		return false;
	fixed = interval->time + interval->day * USECS_PER_DAY;
	low = fixed + interval->month * (interval->month > 0 ? 28 : 31) * USECS_PER_DAY;
	high = fixed + interval->month * (interval->month > 0 ? 31 : 28) * USECS_PER_DAY;
	if (tz && (interval->day != 0 || interval->month != 0))
	{
		low -= CLOCK_CHANGE;
		high += CLOCK_CHANGE;
	}
	*least += negative ? -high : low;
	*most += negative ? -low : high;
	return true;
}

/* Peels constant intervals off a timestamp expression. */
static Shifted
peel(Node *expr)
{
	Shifted result = {expr, 0, 0};

	while (IsA(result.base, OpExpr) && list_length(((OpExpr *) result.base)->args) == 2)
	{
		OpExpr *op = (OpExpr *) result.base;
		Oid function = OidIsValid(op->opfuncid) ? op->opfuncid : get_opcode(op->opno);
		bool minus = function == F_TIMESTAMPTZ_MI_INTERVAL || function == F_TIMESTAMP_MI_INTERVAL;
		bool swapped = function == F_INTERVAL_PL_TIMESTAMP || function == F_INTERVAL_PL_TIMESTAMPTZ;

		if (!minus && !swapped && function != F_TIMESTAMPTZ_PL_INTERVAL && function != F_TIMESTAMP_PL_INTERVAL)
			break;
		if (!interval_range(swapped ? linitial(op->args) : lsecond(op->args), op->opresulttype == TIMESTAMPTZOID, minus, &result.least, &result.most))
			break;
		result.base = swapped ? lsecond(op->args) : linitial(op->args);
	}
	return result;
}

static Expr *
plus_microseconds(Expr *at, int64 us)
{
	Interval interval = {.time = us};

	return us == 0 ? at : lineage_plus(at, &interval);
}

/* A timestamp and the timestamptz it means have the same bits. */
static Expr *
as_type(Expr *at, Oid type)
{
	if (exprType((Node *) at) == type)
		return at;
	return (Expr *) makeRelabelType(at, type, -1, InvalidOid, COERCE_IMPLICIT_CAST);
}

/* ---- conditions ---- */

/* earlier + shift microseconds <= later, or < */
typedef struct Comparison
{
	Node *earlier, *later;
	int64 shift;
	bool inclusive;
} Comparison;

/* A difference of two timestamps, which counts days of 24 hours whatever the clock does; intervals compare with months of 30. */
static OpExpr *
as_difference(Node *expr)
{
	OpExpr *op = (OpExpr *) expr;
	Oid function;

	if (!IsA(expr, OpExpr) || list_length(op->args) != 2)
		return NULL;
	function = OidIsValid(op->opfuncid) ? op->opfuncid : get_opcode(op->opno);
	return function == F_TIMESTAMPTZ_MI || function == F_TIMESTAMP_MI ? op : NULL;
}

static bool
constant_microseconds(Node *expr, int64 *us)
{
	Interval *interval = constant_interval(expr);

	if (interval == NULL)
		return false;
	*us = interval->time + ((int64) interval->month * DAYS_PER_MONTH + interval->day) * USECS_PER_DAY;
	return true;
}

/* x - y <= i says x - i <= y; i <= x - y says y + i <= x. */
static bool
read_difference(Comparison *compared)
{
	OpExpr *difference;
	int64 us;

	if ((difference = as_difference(compared->earlier)) != NULL && constant_microseconds(compared->later, &us))
		*compared = (Comparison){linitial(difference->args), lsecond(difference->args), -us, compared->inclusive};
	else if ((difference = as_difference(compared->later)) != NULL && constant_microseconds(compared->earlier, &us))
		*compared = (Comparison){lsecond(difference->args), linitial(difference->args), us, compared->inclusive};
	else
		return false;
	return true;
}

static bool
read_comparison(Node *condition, Comparison *result)
{
	OpExpr *op = (OpExpr *) condition;
	Oid type;
	int strategy;

	if (!IsA(condition, OpExpr) || list_length(op->args) != 2)
		return false;
	type = exprType(linitial(op->args));
	if ((type != TIMESTAMPTZOID && type != TIMESTAMPOID && type != INTERVALOID) || exprType(lsecond(op->args)) != type)
		return false;
	strategy = get_op_opfamily_strategy(op->opno, lookup_type_cache(type, TYPECACHE_BTREE_OPFAMILY)->btree_opf);
	if (strategy == BTLessStrategyNumber || strategy == BTLessEqualStrategyNumber)
		*result = (Comparison){linitial(op->args), lsecond(op->args), 0, strategy == BTLessEqualStrategyNumber};
	else if (strategy == BTGreaterStrategyNumber || strategy == BTGreaterEqualStrategyNumber)
		*result = (Comparison){lsecond(op->args), linitial(op->args), 0, strategy == BTGreaterEqualStrategyNumber};
	else
		return false;
	return type != INTERVALOID || read_difference(result);
}

/* From one condition: how long rows of `side` can find a match, by the event time of the other side. */
TimeBound *
bound_from_condition(Compile *c, Level *level, Node *condition, Bitmapset *side, Bitmapset *other)
{
	Comparison compared;
	Shifted far, near;
	Lineage lineage, own;
	TimeBound *bound;
	Expr *latest;

	if (!read_comparison(condition, &compared) || !tree_is_over(compared.earlier, other) || !tree_is_over(compared.later, side))
		return NULL;
	far = peel(compared.earlier);
	far.least += compared.shift;
	lineage = lineage_of(c, level, far.base);
	if (lineage.kind != LINEAGE_INSTANT || !lineage.has_watermark)
		return NULL;
	near = peel(compared.later);
	/* far.base + shift <= later, so the newest far.base that matches is later - the least shift; in one sum where the calendar has no say in later's own */
	if (near.least == near.most)
		latest = plus_microseconds((Expr *) copyObject(near.base), near.most - far.least);
	else
		latest = plus_microseconds((Expr *) copyObject(compared.later), -far.least);
	bound = palloc0(sizeof(TimeBound));
	bound->other = lineage;
	bound->other_type = exprType(far.base);
	bound->inclusive = compared.inclusive;
	bound->expires = plus_microseconds(lineage_apply(lineage.closes, latest), compared.inclusive ? 1 : 0);

	own = lineage_of(c, level, near.base);
	if (own.kind == LINEAGE_INSTANT && own.has_watermark)
	{
		bound->own = own;
		bound->constant = true;
		bound->longest = near.most - far.least;
	}
	return bound;
}

/* Is that the value itself, read as timestamptz? */
static bool
is_identity(Expr *closes)
{
	while (closes && IsA(closes, RelabelType))
		closes = ((RelabelType *) closes)->arg;
	return closes && IsA(closes, CaseTestExpr);
}

/* From a key with event time: neither side gets such a key any more once it is closed. */
TimeBound *
bound_from_key(Compile *c, Level *level, Node *key, Node *other_key)
{
	Lineage own = lineage_of(c, level, key), other = lineage_of(c, level, other_key);
	TimeBound *bound;

	if (other.kind == LINEAGE_NONE || !other.has_watermark)
	{
		if (own.kind == LINEAGE_NONE || !own.has_watermark)
			return NULL;
		other = own;
	}
	if (other.session)
		return NULL;
	bound = palloc0(sizeof(TimeBound));
	bound->other = other;
	bound->expires = lineage_apply(other.closes, (Expr *) copyObject(key));
	bound->key = key;
	if (own.kind == LINEAGE_NONE || !own.has_watermark)
		return bound;
	/* other columns of the same event time may be as much older than the key's end as the window is long */
	bound->own = own;
	bound->constant = own.kind == LINEAGE_INSTANT ? is_identity(own.closes) : own.length != NULL && is_identity(own.at_end);
	bound->longest = own.length ? own.length->time : 0;
	return bound;
}

/* The template a column's `closes` becomes when its rows may have waited for the bound. */
static Expr *
delayed(Expr *closes, TimeBound *bound)
{
	Expr *waited = plus_microseconds((Expr *) copyObject(closes), bound->longest);
	MinMaxExpr *latest = makeNode(MinMaxExpr);

	if (!bound->key)
		waited = plus_microseconds(lineage_apply(bound->other.closes, as_type(waited, bound->other_type)), bound->inclusive ? 1 : 0);
	latest->minmaxtype = TIMESTAMPTZOID;
	latest->op = IS_GREATEST;
	latest->args = list_make2(copyObject(closes), waited);
	latest->location = -1;
	return (Expr *) latest;
}

/*
 * What a column of a side says of event time above the join: rows that waited come out later, by as much as they may have waited.
 * Without a bound nothing is ever too late to come out: event time is known, but no watermark for it.
 */
Lineage
bound_lineage(Lineage column, Node *expr, List *bounds)
{
	ListCell *lc;
	Lineage result = column;

	result.direct = NULL;
	if (column.kind == LINEAGE_NONE || !column.has_watermark)
		return result;
	foreach (lc, bounds)
	{
		TimeBound *bound = lfirst(lc);

		if (bound->key && (equal(bound->key, expr) || (bound->own.kind == LINEAGE_INSTANT && lineage_same_columns(bound->own.columns, column.columns) &&
													   (equal(bound->own.closes, column.closes) || equal(bound->own.closes, column.at_end)))))
			return result;
		if (!bound->constant || !lineage_same_columns(bound->own.columns, column.columns))
			continue;
		result.closes = delayed(column.closes, bound);
		if (column.at_end)
			result.at_end = delayed(column.at_end, bound);
		return result;
	}
	result.has_watermark = false;
	result.unbounded = true;
	return result;
}
