/* limit.c: takes LIMIT out of a level whose rows are final: the first n rows of the query's life go through. */
#include "plan/internal.h"

#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"

/* The number, or -1 for LIMIT ALL. It must not change from batch to batch. */
static int64
limit_count(Compile *c, Query *query)
{
	Node *folded = eval_const_expressions(NULL, copyObject(query->limitCount));
	int location = exprLocation(query->limitCount);

	if (!IsA(folded, Const) || ((Const *) folded)->consttype != INT8OID)
		ereport(ERROR, (errcode(REFUSE), errmsg("LIMIT over a stream must be a constant"), errhint("Write the number itself."), check_position(c, location)));
	if (((Const *) folded)->constisnull)
		return -1;
	if (DatumGetInt64(((Const *) folded)->constvalue) < 0)
		ereport(ERROR, (errcode(ERRCODE_INVALID_ROW_COUNT_IN_LIMIT_CLAUSE), errmsg("LIMIT must not be negative"), check_position(c, location)));
	return DatumGetInt64(((Const *) folded)->constvalue);
}

static Query *
make_stage(Compile *c, Level *level)
{
	List *columns = NIL;
	ListCell *lc;

	foreach (lc, level->query->targetList)
	{
		TargetEntry *tle = lfirst(lc);

		if (!tle->resjunk)
			cut_add_column(&columns, (Node *) tle->expr, tle->resname ? tle->resname : "column");
	}
	return cut_make_input(c, level, columns);
}

void
cut_limit(Compile *c, Level *level)
{
	Query *query = level->query, *stage;
	int64 count = limit_count(c, query);
	LimitSpec *spec;
	OperatorOutput *output;
	ListCell *lc;
	int i = 0;

	query->limitCount = NULL;
	if (count < 0)
		return;
	spec = palloc0(sizeof(LimitSpec));
	spec->count = count;
	spec->base.ops = &limit_operator;
	spec->base.id = list_length(c->plan->operators);
	spec->base.signature = signature_of_limit(spec);
	stage = make_stage(c, level);
	cut_check_final_rows(c, stage, "LIMIT");
	output = palloc0(sizeof(OperatorOutput));
	output->nkeys = list_length(stage->targetList);
	output->lineage = palloc0(output->nkeys * sizeof(Lineage));
	foreach (lc, query->targetList)
	{
		TargetEntry *tle = lfirst(lc);

		if (!tle->resjunk)
			output->lineage[i++] = lineage_of_output(c, level, tle->resno);
	}
	cut_add_operator(c, &spec->base, stage, output);
	cut_select_output(query);
	spec->base.output = ExecCleanTypeFromTL(query->targetList);
	query->cteList = NIL;
	cut_read_output(query, &spec->base, NULL);
}
