/*
 * lineage.c: follows event time through expressions, subqueries, joins and operators.
 * The answer is kept as an expression over the value itself, so that it still holds where only the value is left: above a subquery, or above an
 * operator. Whatever is not listed here loses event time: a group that never closes is better than one that closes too early.
 */
#include "plan/internal.h"

#include "catalog/pg_type.h"
#include "datatype/timestamp.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "parser/parse_func.h"
#include "util/compat.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/fmgrprotos.h"
#include "utils/timestamp.h"

static const Lineage no_lineage;

/* ---- expressions over a value ---- */

static Expr *
value_of(Oid type)
{
	CaseTestExpr *value = makeNode(CaseTestExpr);

	value->typeId = type;
	value->typeMod = -1;
	return (Expr *) value;
}

static Node *
apply_mutator(Node *node, Expr *value)
{
	if (node == NULL)
		return NULL;
	if (IsA(node, CaseTestExpr))
		return copyObject((Node *) value);
	return expression_tree_mutator(node, apply_mutator, value);
}

Expr *
lineage_apply(Expr *closes, Expr *value)
{
	return (Expr *) apply_mutator((Node *) closes, value);
}

static Expr *
call(Oid function, Oid result, List *args)
{
	return (Expr *) makeFuncExpr(function, result, args, InvalidOid, InvalidOid, COERCE_EXPLICIT_CALL);
}

/* A timestamp counts as UTC, and has the same bits as the timestamptz it means. */
static Expr *
as_timestamptz(Expr *at)
{
	if (exprType((Node *) at) == TIMESTAMPTZOID)
		return at;
	return (Expr *) makeRelabelType(at, TIMESTAMPTZOID, -1, InvalidOid, COERCE_IMPLICIT_CAST);
}

static Expr *
interval_const(const Interval *interval)
{
	Interval *copy = palloc(sizeof(Interval));

	*copy = *interval;
	return (Expr *) makeConst(INTERVALOID, -1, InvalidOid, sizeof(Interval), IntervalPGetDatum(copy), false, false);
}

/* The last (for a negative length: the first) time the length can be added to; with a month to spare where zones and calendars have a say. */
static Const *
last_addend(Oid type, const Interval *interval, bool negative)
{
	int64 spare = interval->day || interval->month ? 31 * USECS_PER_DAY : 0;
	int64 length = interval->time + (interval->month * INT64CONST(31) + interval->day) * USECS_PER_DAY;
	Timestamp last = negative ? MIN_TIMESTAMP + spare : END_TIMESTAMP - 1 - spare;

	return makeConst(type, -1, InvalidOid, sizeof(Timestamp), TimestampGetDatum(last - length), false, FLOAT8PASSBYVAL);
}

/* A row at the end of time must not fail the batch over a sum that its query does not ask for: such times count as the last one that can be added to. */
static Expr *
within_time(Expr *at, const Interval *interval)
{
	Oid type = exprType((Node *) at);
	bool tz = type == TIMESTAMPTZOID, negative = interval->time < 0 || interval->day < 0 || interval->month < 0;
	Oid smaller = tz ? F_TIMESTAMPTZ_SMALLER : F_TIMESTAMP_SMALLER, larger = tz ? F_TIMESTAMPTZ_LARGER : F_TIMESTAMP_LARGER;

	return call(negative ? larger : smaller, type, list_make2(at, last_addend(type, interval, negative)));
}

Expr *
lineage_plus(Expr *at, const Interval *interval)
{
	Oid type = exprType((Node *) at);

	return call(type == TIMESTAMPTZOID ? F_TIMESTAMPTZ_PL_INTERVAL : F_TIMESTAMP_PL_INTERVAL, type,
				list_make2(within_time(at, interval), interval_const(interval)));
}

/* The interval an expression always has; NULL when rows decide, or when it contains months and no fixed length. */
static Interval *
fixed_interval(Node *expr)
{
	Node *folded = eval_const_expressions(NULL, copyObject(expr));
	Interval *interval, *result;

	if (!IsA(folded, Const) || ((Const *) folded)->constisnull || ((Const *) folded)->consttype != INTERVALOID)
		return NULL;
	interval = DatumGetIntervalP(((Const *) folded)->constvalue);
	if (interval->month != 0)
		return NULL;
	result = palloc0(sizeof(Interval));
	/* windows count a day as 24 hours; timestamptz + '1 day' would not */
	if (pg_mul_s64_overflow(interval->day, USECS_PER_DAY, &result->time) ||
		pg_add_s64_overflow(result->time, interval->time, &result->time))
		return NULL;
	return result;
}

/* ---- functions ---- */

static Lineage
instant(Lineage base, Expr *closes)
{
	Lineage result = base;

	result.kind = LINEAGE_INSTANT;
	result.closes = closes;
	result.direct = NULL;
	result.at_end = NULL;
	result.length = NULL;
	return result;
}

Lineage
lineage_of_time(Lineage base, Oid type)
{
	base.bound = base.session = false;
	return instant(base, as_timestamptz(value_of(type)));
}

/* tumble, hop, session, tumble_local of an instant: closed when an event at the upper bound would be. */
static Lineage
window_of(Lineage base, FuncExpr *f)
{
	Lineage result = base;
	Oid bound = exprType(linitial(f->args));

	result.kind = LINEAGE_WINDOW;
	result.at_end = base.closes;
	result.closes = lineage_apply(base.closes, call(F_UPPER_ANYRANGE, bound, list_make1(value_of(f->funcresulttype))));
	result.direct = NULL;
	result.length = NULL;
	return result;
}

/* Sessions close by their own ends: only where time is the event time itself. */
static Lineage
session_of(Lineage base, FuncExpr *f)
{
	Lineage result = window_of(base, f);
	Expr *closes = base.closes;

	while (IsA(closes, RelabelType))
		closes = ((RelabelType *) closes)->arg;
	if (!IsA(closes, CaseTestExpr))
		return no_lineage;
	result.session = true;
	return result;
}

static Lineage
tumble_of(Lineage base, FuncExpr *f)
{
	Lineage result = window_of(base, f);
	Oid bound = exprType(linitial(f->args)), types[3] = {bound, INTERVALOID, bound};
	Oid window_end = LookupFuncName(list_make2(makeString("stream"), makeString("window_end")), list_length(f->args), types, true);

	result.length = fixed_interval(lsecond(f->args));
	if (OidIsValid(window_end))
		result.direct = lineage_apply(base.closes, call(window_end, bound, copyObject(f->args)));
	return result;
}

/* The bucket's length, as date_trunc understands the unit; NULL when it is not a constant. */
static Interval *
unit_length(Node *unit)
{
	Node *folded = eval_const_expressions(NULL, copyObject(unit));
	char *name;

	if (!IsA(folded, Const) || ((Const *) folded)->constisnull)
		return NULL;
	name = TextDatumGetCString(((Const *) folded)->constvalue);
	name = pg_strcasecmp(name, "quarter") == 0 || pg_strcasecmp(name, "qtr") == 0 ? "3 months" : psprintf("1 %s", name);
	return DatumGetIntervalP(DirectFunctionCall3(interval_in, CStringGetDatum(name), ObjectIdGetDatum(InvalidOid), Int32GetDatum(-1)));
}

/* date_trunc gives the start of a bucket; it closes at the start of the next, counted by the calendar. */
static Lineage
date_trunc_of(Lineage base, FuncExpr *f)
{
	Interval *unit = unit_length(linitial(f->args));
	Node *zone = list_length(f->args) > 2 ? lthird(f->args) : NULL;
	Expr *start = value_of(exprType(lsecond(f->args))), *next;

	if (unit == NULL || (zone && !IsA(zone = eval_const_expressions(NULL, copyObject(zone)), Const)))
		return no_lineage;
	if (zone && (unit->day != 0 || unit->month != 0))
	{
		next = call(F_TIMEZONE_TEXT_TIMESTAMPTZ, TIMESTAMPOID, list_make2(zone, within_time(start, unit)));
		next = call(F_TIMEZONE_TEXT_TIMESTAMP, TIMESTAMPTZOID, list_make2(copyObject(zone), lineage_plus(next, unit)));
	}
	else
		next = lineage_plus(start, unit);
	return instant(base, lineage_apply(base.closes, next));
}

static Lineage
date_bin_of(Lineage base, FuncExpr *f)
{
	Interval *stride = fixed_interval(linitial(f->args));

	if (stride == NULL)
		return no_lineage;
	return instant(base, lineage_apply(base.closes, lineage_plus(value_of(f->funcresulttype), stride)));
}

/* The start of a window says when it closes only if all windows are equally long. */
static Lineage
lower_of(Lineage window, FuncExpr *f)
{
	if (window.length == NULL)
		return no_lineage;
	return instant(window, lineage_apply(window.at_end, lineage_plus(value_of(f->funcresulttype), window.length)));
}

/* AT TIME ZONE 'UTC' turns a timestamp into the timestamptz it means, and back. */
static Lineage
utc_of(Lineage base, FuncExpr *f)
{
	Node *zone = eval_const_expressions(NULL, copyObject(linitial(f->args)));
	Oid type = exprType(lsecond(f->args));
	char *name;

	if (!IsA(zone, Const) || ((Const *) zone)->constisnull)
		return no_lineage;
	name = TextDatumGetCString(((Const *) zone)->constvalue);
	if (pg_strcasecmp(name, "UTC") != 0 && pg_strcasecmp(name, "GMT") != 0 && pg_strcasecmp(name, "Etc/UTC") != 0)
		return no_lineage;
	return instant(base, lineage_apply(base.closes, (Expr *) makeRelabelType(value_of(f->funcresulttype), type, -1, InvalidOid, COERCE_IMPLICIT_CAST)));
}

static Lineage
lineage_of_builtin(Compile *c, Level *level, FuncExpr *f, Lineage (*build)(Lineage, FuncExpr *), int arg)
{
	Lineage base = lineage_of(c, level, list_nth(f->args, arg));

	return base.kind == LINEAGE_INSTANT ? build(base, f) : no_lineage;
}

static Lineage
lineage_of_bound(Compile *c, Level *level, FuncExpr *f)
{
	Lineage window = lineage_of(c, level, linitial(f->args));

	if (window.kind != LINEAGE_WINDOW)
		return no_lineage;
	window.bound = f->funcid == F_LOWER_ANYRANGE || f->funcid == F_UPPER_ANYRANGE;
	return f->funcid == F_LOWER_ANYRANGE ? lower_of(window, f) : instant(window, window.at_end);
}

static Lineage
lineage_of_function(Compile *c, Level *level, FuncExpr *f)
{
	Lineage result;

	switch (f->funcid)
	{
		case F_DATE_TRUNC_TEXT_TIMESTAMPTZ:
		case F_DATE_TRUNC_TEXT_TIMESTAMPTZ_TEXT:
		case F_DATE_TRUNC_TEXT_TIMESTAMP:
			return lineage_of_builtin(c, level, f, date_trunc_of, 1);
		case F_DATE_BIN_INTERVAL_TIMESTAMP_TIMESTAMP:
		case F_DATE_BIN_INTERVAL_TIMESTAMPTZ_TIMESTAMPTZ:
			return lineage_of_builtin(c, level, f, date_bin_of, 1);
		case F_TIMEZONE_TEXT_TIMESTAMPTZ:
		case F_TIMEZONE_TEXT_TIMESTAMP:
			return lineage_of_builtin(c, level, f, utc_of, 1);
		case F_LOWER_ANYRANGE:
		case F_UPPER_ANYRANGE:
			return lineage_of_bound(c, level, f);
	}
	if (is_stream_function(f->funcid, "tumble"))
		return lineage_of_builtin(c, level, f, tumble_of, 0);
	if (is_stream_function(f->funcid, "hop"))
	{
		result = lineage_of_builtin(c, level, f, window_of, 0);
		if (result.kind == LINEAGE_WINDOW)
			result.length = fixed_interval(lsecond(f->args));
		return result;
	}
	if (is_stream_function(f->funcid, "tumble_local"))
		return lineage_of_builtin(c, level, f, window_of, 0);
	if (is_stream_function(f->funcid, "session"))
		return lineage_of_builtin(c, level, f, session_of, 0);
	if (is_stream_function(f->funcid, "window_time"))
		return lineage_of_bound(c, level, f);
	return no_lineage;
}

/* ---- columns ---- */

static bool
same_column(EventColumn *a, EventColumn *b)
{
	return a->rte == b->rte && a->attno == b->attno;
}

static bool
has_column(List *columns, EventColumn *column)
{
	ListCell *lc;

	foreach (lc, columns)
		if (same_column(lfirst(lc), column))
			return true;
	return false;
}

bool
lineage_same_columns(List *a, List *b)
{
	ListCell *lc;

	foreach (lc, a)
		if (!has_column(b, lfirst(lc)))
			return false;
	return list_length(a) == list_length(b);
}

static Lineage
lineage_of_source(SourceDef *source, RangeTblEntry *rte, AttrNumber attno)
{
	Lineage result = no_lineage;
	EventColumn *column;

	if (source == NULL || source->event_time == 0 || attno != source->event_time)
		return result;
	column = palloc(sizeof(EventColumn));
	column->rte = rte;
	column->attno = attno;
	column->source = source;
	result = lineage_of_time(no_lineage, source->event_time_type);
	result.has_watermark = source->watermark_delay >= 0;
	result.columns = list_make1(column);
	return result;
}

/* All legs of a UNION ALL must say the same of the value; the slowest decides, which is the query's watermark anyway. */
static Lineage
lineage_merge(Lineage a, Lineage b)
{
	ListCell *lc;

	if (a.kind != b.kind || !equal(a.closes, b.closes) || a.session != b.session || a.bound != b.bound)
		return no_lineage;
	if (a.length == NULL || b.length == NULL || memcmp(a.length, b.length, sizeof(Interval)) != 0)
		a.length = NULL;
	a.has_watermark = a.has_watermark && b.has_watermark;
	a.columns = list_copy(a.columns);
	foreach (lc, b.columns)
		if (!has_column(a.columns, lfirst(lc)))
			a.columns = lappend(a.columns, lfirst(lc));
	return a;
}

static Lineage
lineage_of_origins(Compile *c, List *origins)
{
	Lineage result = no_lineage;
	ListCell *lc;

	foreach (lc, origins)
	{
		Origin *origin = lfirst(lc);
		Lineage next = lineage_of(c, origin->level, origin->expr);

		result = foreach_current_index(lc) == 0 ? next : lineage_merge(result, next);
	}
	result.direct = NULL; /* its Vars belong to another level */
	return result;
}

Lineage
lineage_of_output(Compile *c, Level *level, AttrNumber resno)
{
	return lineage_of_origins(c, tree_output_origins(level, resno));
}

static Lineage
lineage_of_var(Compile *c, Level *level, Var *var)
{
	Level *at = NULL;
	RangeTblEntry *rte = tree_var_rte(level, var, &at);
	int index;

	if (rte == NULL || var->varattno <= 0)
		return no_lineage;
	if (rte_is_source(rte))
		return lineage_of_source(prepare_find_source(c, rte->relid), rte, var->varattno);
	index = rte_operator(rte);
	if (index >= 0)
		return ((OperatorOutput *) list_nth(c->outputs, index))->lineage[var->varattno - 1];
	return lineage_of_origins(c, tree_origins(level, var));
}

Lineage
lineage_of(Compile *c, Level *level, Node *expr)
{
	if (expr == NULL)
		return no_lineage;
	switch (nodeTag(expr))
	{
		case T_Var:
			return lineage_of_var(c, level, (Var *) expr);
		case T_FuncExpr:
			return lineage_of_function(c, level, (FuncExpr *) expr);
		case T_RelabelType:
			/* a domain over the type keeps its meaning; timestamp and timestamptz never relabel into each other */
			return lineage_of(c, level, (Node *) ((RelabelType *) expr)->arg);
		default:
			return no_lineage;
	}
}
