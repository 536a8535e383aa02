/*
 * plan.h: a SELECT becomes stages and operators.
 *
 * plan_compile() takes the query's view, lets Postgres analyse and rewrite it, refuses what cannot stream (check.c), follows event time
 * (lineage.c), cuts the tree at stateful constructs (compile.c) and has Postgres plan each stateless piece.
 */
#ifndef STREAM_PLAN_PLAN_H
#define STREAM_PLAN_PLAN_H

#include "postgres.h"
#include "metadata/batch_info.h"
#include "metadata/query.h"
#include "nodes/parsenodes.h"
#include "nodes/plannodes.h"
#include "operator/operator.h"
#include "sink/sink.h"
#include "source/source.h"

#define STAGE_SIZES 4 /* plans of a stage, by how many rows it reads */

typedef struct Stage
{
	Query *query;		  /* stateless piece, sources marked with STREAM_SCAN_MARK */
	Query *statement;	  /* what is planned, from a copy: the query, or the sink's statement around it */
	PlannedStmt *plans[STAGE_SIZES]; /* made when first wanted */
	List *sources;		  /* oid list: sources it scans */
	int feeds;			  /* operator (index in StreamPlan.operators) it pushes into; -1: the sink */
	bool retracts;		  /* its rows are those that leave the sink's target */
	int input;			  /* which of its inputs */
	const char *alone;	  /* why tasks do not run it, only read for it; NULL: they do */
	int unfolded;		  /* folding its rows in tasks has not paid: so many batches more it is left */
	List *reads;		  /* int list: operators whose output it reads, as ephemeral relations stage_relation_name(i) */
} Stage;

typedef struct StreamPlan
{
	MemoryContext context;
	Query *analyzed;	  /* the whole query after rewrite, for explain and checks */
	List *sources;		  /* SourceDef, each source once, in order of first appearance */
	List *operators;	  /* OperatorSpec, in order of execution */
	List *stages;		  /* Stage, in order of execution; an operator finishes when its last input stage has run */
	SinkShape shape;
	int parallelism;	  /* the option */
	bool uses_watermark;  /* any operator with has_watermark, or current_watermark() */
	Jsonb *signature;	  /* array of the operators' signatures */
	List *relations;	  /* oid list: everything the plan depends on (sources, tables, view, target) */
	char *source_text;	  /* the query as written; for positions in messages */
	struct PlanWatch *watch;
	List *notices;		  /* char *: to be raised as NOTICE at create (unbounded state, …) */
} StreamPlan;

/*
 * Compiles the tree, which is the query's view or its text analysed, and is taken apart; under the current user, search_path and snapshot.
 * Allocates in a new context below CurrentMemoryContext. All refusals are ereports with position.
 */
extern StreamPlan *plan_compile(const StreamQuery *query, Query *tree);

/* Second half: wraps the last stage for the sink and plans all stages. */
extern void plan_stages(StreamPlan *plan, Sink *sink);

/* The plan for that many rows of what the stage reads, made now or kept; -1: nobody knows how many. */
extern PlannedStmt *plan_stage(StreamPlan *plan, Stage *stage, double rows);

/* What differs between two signatures, in words; NULL when state of the one fits the other. A renamed column is no difference. */
extern char *plan_signature_difference(Jsonb *saved, Jsonb *now);
/* Do they differ in aggregates that are new, over windows that close, and in nothing else? */
extern bool plan_signature_extends(Jsonb *saved, Jsonb *now);
/* Where the calls of a saved operator stand among those of the new one: int list; NIL: it is the same, or has none. */
extern List *plan_signature_calls(Jsonb *saved, Jsonb *now, int operator_id);

/* Has something a plan depends on changed since it was made (relcache and function invalidations)? */
extern bool plan_is_valid(StreamPlan *plan);
extern void plan_watch(StreamPlan *plan); /* start listening for changes */

/* Locks the relations of the stages as the executor expects; an invalidation that comes with a lock shows in plan_is_valid. */
extern void plan_lock(StreamPlan *plan);

extern char *stage_relation_name(int operator_index); /* "stream_operator_0" */

/* Lines of stream.explain_query: operators, state bounds, watermarks, the Postgres plan of each stage. List of char *. */
extern List *plan_explain(StreamPlan *plan);

#endif
