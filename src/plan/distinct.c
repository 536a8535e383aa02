/*
 * distinct.c: takes SELECT DISTINCT and DISTINCT ON out of its level: the first row of a key goes through, whatever its other columns say.
 * Late rows are dropped even where event time is no key; keys are forgotten only where it is one, or within the watermark.
 */
#include "plan/internal.h"

#include "executor/executor.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "optimizer/tlist.h"
#include "parser/parse_relation.h"
#include "parser/parsetree.h"
#include "util/compat.h"

typedef struct Distinct
{
	Compile *c;
	Level *level;
	DedupSpec *spec;
	List *clauses;		/* SortGroupClause, in the order of the keys' text */
	CutKeys keys;
	Lineage event_time; /* of the row */
	Expr *event_column; /* the column it is in */
} Distinct;

/* ---- keys ---- */

static void
collect_keys(Distinct *d)
{
	List *ordered = cut_ordered_keys(d->c, d->level, d->level->query->distinctClause, "DISTINCT");
	ListCell *lc;

	cut_take_keys(d->c, d->level, ordered, &d->keys);
	d->spec->nkeys = d->keys.n;
	d->spec->eq_operators = d->keys.eq_operators;
	d->spec->collations = d->keys.collations;
	foreach (lc, ordered)
	{
		Lineage *lineage = &d->keys.lineages[foreach_current_index(lc)];

		d->clauses = lappend(d->clauses, ((OrderedKey *) lfirst(lc))->clause);
		if (lineage->bound)
			lineage->kind = LINEAGE_NONE;
	}
}

/* ---- event time of the row ---- */

static void
consider_event_column(Distinct *d, Var *var, List *closing)
{
	Lineage lineage = lineage_of(d->c, d->level, (Node *) var);

	if (lineage.kind == LINEAGE_NONE || !lineage.has_watermark)
		return;
	/* that of a key is the one meant, whatever else there is */
	if (closing && !lineage_same_columns(lineage.columns, d->keys.lineages[linitial_int(closing)].columns))
		return;
	if (d->event_column && !lineage_same_columns(lineage.columns, d->event_time.columns))
		ereport(ERROR, (errcode(REFUSE), errmsg("DISTINCT over two event-time columns is not supported"),
						errdetail("It would not be clear which of them says when a row is late."),
						errhint("Select the event time of one of them in a subquery, and apply DISTINCT to that.")));
	if (d->event_column)
		return;
	d->event_time = lineage;
	d->event_column = (Expr *) copyObject(var);
}

static void
find_event_column(Distinct *d, List *closing)
{
	Query *query = d->level->query;
	ListCell *lc, *var;

	foreach (lc, tree_streams_in_from(query))
	{
		List *vars = NIL, *names = NIL;

		expandRTE(rt_fetch(lfirst_int(lc), query->rtable), lfirst_int(lc), 0, -1, false, &names, &vars);
		foreach (var, vars)
			if (IsA(lfirst(var), Var))
				consider_event_column(d, lfirst(var), closing);
	}
}

static int64
longest_delay(List *columns)
{
	int64 result = 0;
	ListCell *lc;

	foreach (lc, columns)
		result = Max(result, ((EventColumn *) lfirst(lc))->source->watermark_delay);
	return result;
}

static void
set_within(Distinct *d)
{
	d->spec->within = -1;
	if (!d->c->options->dedup_within_watermark || d->c->mode == OUTPUT_COMPLETE)
		return;
	if (d->event_column == NULL)
		ereport(ERROR, (errcode(REFUSE), errmsg("option dedup_within_watermark needs a source with a watermark"),
						errdetail("A key is forgotten a watermark delay after its first row."),
						errhint("Give the source an event_time and a watermark_delay, and keep the event time among the columns DISTINCT reads from.")));
	d->spec->within = longest_delay(d->event_time.columns);
}

/* ---- the stage ---- */

static char *
tle_name(TargetEntry *tle)
{
	return pstrdup(tle->resname ? tle->resname : "key");
}

/* The level's own SELECT list, junk included, then the event time; keys and outputs are picked from it one level up. */
static Query *
make_inner(Distinct *d, int *event_column)
{
	List *columns = NIL;
	ListCell *lc;

	foreach (lc, d->level->query->targetList)
	{
		TargetEntry *tle = lfirst(lc);

		cut_add_column(&columns, (Node *) tle->expr, tle->resname ? tle->resname : cut_column_name(d->level->query, (Node *) tle->expr));
	}
	*event_column = d->event_column ? cut_add_column(&columns, (Node *) lineage_apply(d->event_time.closes, d->event_column), "event_time") : 0;
	return cut_make_input(d->c, d->level, columns);
}

static bool
all_plain(Distinct *d)
{
	ListCell *lc;

	foreach (lc, d->keys.exprs)
		if (!IsA(lfirst(lc), Var))
			return false;
	return !d->level->query->hasTargetSRFs;
}

static Query *
make_stage(Distinct *d, List *closing)
{
	int event_column;
	Query *inner = make_inner(d, &event_column), *stage = cut_wrap_input(inner, !all_plain(d));
	List *all = stage->targetList, *columns = NIL, *names = NIL, *key_vars = NIL;
	ListCell *lc;

	foreach (lc, d->clauses)
	{
		int resno = get_sortgroupclause_tle(lfirst(lc), d->level->query->targetList)->resno;
		TargetEntry *column = list_nth(all, resno - 1);

		names = lappend(names, cut_unique_name(names, column->resname));
		key_vars = lappend(key_vars, column->expr);
		cut_add_column(&columns, (Node *) column->expr, llast(names));
	}
	foreach (lc, d->level->query->targetList)
	{
		TargetEntry *tle = lfirst(lc);

		if (!tle->resjunk)
			cut_add_column(&columns, (Node *) ((TargetEntry *) list_nth(all, tle->resno - 1))->expr, tle_name(tle));
	}
	if (event_column)
		d->spec->event_time = cut_add_column(&columns, (Node *) ((TargetEntry *) list_nth(all, event_column - 1))->expr, "event_time");
	if (closing)
	{
		Lineage *plain = palloc(d->spec->nkeys * sizeof(Lineage));

		for (int i = 0; i < d->spec->nkeys; i++)
		{
			plain[i] = d->keys.lineages[i];
			plain[i].direct = NULL; /* over columns of the level below */
		}
		d->spec->key_closes = cut_add_column(&columns, (Node *) cut_closing_expression(key_vars, plain, closing, false), "closes");
	}
	stage->targetList = columns;
	return stage;
}

static OperatorOutput *
describe_output(Distinct *d)
{
	OperatorOutput *output = palloc0(sizeof(OperatorOutput));
	ListCell *lc;
	int i = 0;

	output->lineage = palloc0(list_length(d->level->query->targetList) * sizeof(Lineage));
	foreach (lc, d->level->query->targetList)
	{
		TargetEntry *tle = lfirst(lc);

		if (tle->resjunk)
			continue;
		output->lineage[i++] = lineage_of_output(d->c, d->level, tle->resno);
	}
	output->nkeys = i;
	return output;
}

void
cut_distinct(Compile *c, Level *level)
{
	Query *query = level->query, *stage;
	DedupSpec *spec = palloc0(sizeof(DedupSpec));
	Distinct d = {.c = c, .level = level, .spec = spec};
	List *closing;

	query->targetList = (List *) flatten_join_alias_vars(query, (Node *) query->targetList);
	collect_keys(&d);
	closing = c->mode == OUTPUT_COMPLETE ? NIL : cut_closing_keys(c, d.keys.exprs, d.keys.lineages);
	if (c->mode != OUTPUT_COMPLETE) /* where nothing is dropped, and everything kept */
		find_event_column(&d, closing);
	set_within(&d);
	stage = make_stage(&d, closing);
	cut_check_final_rows(c, stage, "DISTINCT");
	check_not_volatile(c, stage, "DISTINCT");

	spec->base.ops = &dedup_operator;
	spec->base.id = list_length(c->plan->operators);
	spec->base.has_watermark = spec->key_closes > 0 || spec->within >= 0;
	spec->base.signature = signature_of_distinct(c, level, spec, d.keys.exprs);
	c->plan->uses_watermark |= spec->event_time > 0;
	cut_add_operator(c, &spec->base, stage, describe_output(&d));
	cut_select_output(query);
	spec->base.output = ExecCleanTypeFromTL(query->targetList);
	query->distinctClause = NIL;
	query->hasDistinctOn = false;
	query->cteList = NIL;
	cut_read_output(query, &spec->base, NULL);
}
