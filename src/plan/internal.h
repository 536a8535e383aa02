/*
 * internal.h: what the files of plan/ share while a query is compiled.
 *
 * prepare.c makes the tree ready (rewritten, sources marked, times replaced, streaming CTEs inlined), check.c refuses, cut.c takes stateful
 * levels out, lineage.c answers where a column comes from, signature.c writes down what saved state depends on.
 */
#ifndef STREAM_PLAN_INTERNAL_H
#define STREAM_PLAN_INTERNAL_H

#include "plan/plan.h"

/* A query with those around it: Vars with varlevelsup look upwards. */
typedef struct Level
{
	Query *query;
	struct Level *parent;
} Level;

/* An event-time column of the FROM list it enters by; two of one source (a self-join) are two columns. */
typedef struct EventColumn
{
	RangeTblEntry *rte;
	AttrNumber attno;
	SourceDef *source;
} EventColumn;

/* What an expression says about event time. */
typedef enum LineageKind
{
	LINEAGE_NONE,
	LINEAGE_INSTANT, /* a timestamp: the event time, the end of a window, the start of a bucket */
	LINEAGE_WINDOW	 /* a range that covers the event time */
} LineageKind;

typedef struct Lineage
{
	LineageKind kind;
	Expr *closes;		/* timestamptz over the value (a CaseTestExpr): nothing for it can come once the watermark has reached this */
	Expr *direct;		/* the same over the expression's own Vars, where that is cheaper; else NULL */
	Expr *at_end;		/* windows: `closes` over the window's upper bound */
	Interval *length;	/* windows: where all are equally long, else NULL */
	bool has_watermark;
	bool bound;			/* upper(w) or lower(w): lets a group close, but DISTINCT takes it as a plain value */
	bool unbounded;		/* came through a join whose state has no time bound: its rows may be arbitrarily old */
	bool session;		/* stems from stream.session: its bounds depend on other rows */
	List *columns;		/* EventColumn */
} Lineage;

/* What the levels above an operator need to know of its output. */
typedef struct OperatorOutput
{
	int nkeys;		  /* its first columns say which group a row belongs to */
	bool aggregated;  /* rows are groups: later ones with the same key replace them (update), or all come again (complete) */
	bool updating;	  /* … in this mode */
	bool session;	  /* the last key is a session */
	bool best;		  /* rows are the best of their key: its place is the column after the keys */
	int change;		  /* boolean column, true in rows that tell what leaves the target (update mode); 0: none do */
	const char *leaving; /* what makes rows leave, for messages; NULL: they need not */
	Lineage *lineage; /* per output column */
} OperatorOutput;

typedef struct Compile
{
	StreamPlan *plan;
	const char *source_text;
	OutputMode mode;
	const QueryOptions *options;
	List *outputs; /* OperatorOutput, as plan->operators */
	const char *hidden_keys; /* update mode: GROUP BY keys that the output does not tell; NULL: none */
} Compile;

/* Where a column of a FROM item comes from. */
typedef struct Origin
{
	Level *level;
	Node *expr;
} Origin;

/* A GROUP BY or DISTINCT key, with the text its place in the state is decided by. */
typedef struct OrderedKey
{
	SortGroupClause *clause;
	Node *expr;
	char *text;
} OrderedKey;

/* The keys of an operator, in its order. */
typedef struct CutKeys
{
	int n;
	List *exprs;
	List *names; /* char *, of the columns that hold them */
	Oid *eq_operators;
	Oid *collations;
	Lineage *lineages;
} CutKeys;

/* Until when rows of one side of a join can find a match. */
typedef struct TimeBound
{
	Expr *expires;	 /* timestamptz over the side's columns */
	Node *key;		 /* it comes from this join key; NULL: from a range */
	Lineage own;	 /* event time of the side the bound is counted from */
	bool constant;	 /* then: a row waits no longer than `longest` beyond it, in the other side's event time */
	int64 longest;	 /* microseconds */
	Lineage other;	 /* event time of the other side */
	Oid other_type;
	bool inclusive;
} TimeBound;

/* ---- prepare.c ---- */
extern Query *prepare_query(Compile *c, Query *query);
extern SourceDef *prepare_find_source(Compile *c, Oid relid);
/* Functions of ours by name: is this schema stream's `name`? */
extern bool is_stream_function(Oid funcid, const char *name);

/* ---- tree.c: walking ---- */
extern bool rte_is_source(RangeTblEntry *rte);
extern int rte_operator(RangeTblEntry *rte);	   /* index of the operator an ephemeral relation stands for; -1: none */
extern bool query_has_source(Query *query);		   /* anywhere inside, sublinks too */
extern bool query_streams(Query *query);		   /* rows of a stream come out of its FROM (sublinks do not count) */
extern bool rte_streams(RangeTblEntry *rte);
extern bool query_is_aggregated(Query *query);	   /* all streams in its FROM pass an aggregate, here or below */
extern bool query_aggregates(Query *query);		   /* aggregates at this level */
extern List *tree_streams_in_from(Query *query);   /* int list: range table indexes of streaming FROM items */
extern List *tree_operators_read(Query *query);	   /* int list: operators whose output is read inside */
extern List *tree_origins(Level *level, Var *var); /* Origin: several for UNION ALL; NIL when the column is a relation's own */
extern List *tree_output_origins(Level *level, AttrNumber resno); /* the same for a column of the level's SELECT list */
extern RangeTblEntry *tree_var_rte(Level *level, Var *var, Level **at);
extern List *tree_conjuncts(Node *quals); /* what stands under AND, however nested */
extern bool tree_is_over(Node *expr, Bitmapset *rtes); /* columns of these FROM items, and of no others */
extern bool tree_streams_below(Query *query, Node *jointree_node);
extern void tree_drop_unused_ctes(Query *query);
extern void tree_carry_ctes(Compile *c, Level *level, Query *stage);
extern void tree_flatten_aliases(Query *query); /* columns of joins become columns of what is joined, so that joins can be taken apart */
extern void tree_drop_nulling(Query *query); /* PostgreSQL 16: varnullingrels; 18: the GROUP BY entry */
extern void tree_add_nulling(Query *query);

/* ---- check.c ---- */
extern void check_query(Compile *c, Query *query);			/* before cutting */
extern void check_not_volatile(Compile *c, Query *stage, const char *operator_name);
extern void check_output(Compile *c, Query *final);			/* after cutting: what may go to the sink in this mode */
extern int check_position(Compile *c, int location);		/* for ereport: where in the query's text */

/* ---- check_from.c: of one level ---- */
extern void check_from(Compile *c, Query *query); /* joins */
extern void check_sublinks(Compile *c, Query *query);
extern void check_set_operations(Compile *c, Query *query);

/* ---- compile.c ---- */
extern void cut_query(Compile *c, Level *level);
extern int cut_add_stage(Compile *c, Query *query, int feeds, int input);

/* ---- cut.c ---- */
extern char *cut_unique_name(List *taken, const char *name);
extern const char *cut_column_name(Query *query, Node *expr);
extern int cut_add_column(List **columns, Node *expr, const char *name);
extern int cut_share_column(List **columns, Node *expr, const char *name);
extern List *cut_ordered_keys(Compile *c, Level *level, List *clauses, const char *what); /* OrderedKey */
extern void cut_take_keys(Compile *c, Level *level, List *ordered, CutKeys *keys);
extern bool cut_needs_two_levels(CutKeys *keys, List *closing);
extern Var *cut_output_var(Node *expr, int attno, int depth);
extern Query *cut_make_input(Compile *c, Level *level, List *columns);
extern Query *cut_wrap_input(Query *input, bool fenced);
extern List *cut_closing_keys(Compile *c, List *keys, Lineage *lineages);
extern Expr *cut_first_time(List *times);
extern Expr *cut_closing_expression(List *keys, Lineage *lineages, List *closing, bool columns);
extern RangeTblEntry *cut_output_relation(OperatorSpec *spec);
extern void cut_read_output(Query *query, OperatorSpec *spec, Node *qual);
extern void cut_select_output(Query *query);
extern void cut_add_operator(Compile *c, OperatorSpec *spec, Query *stage, OperatorOutput *output);
extern void cut_check_final_rows(Compile *c, Query *stage, const char *what);

/* ---- aggregate.c, distinct.c, limit.c ---- */
extern void cut_aggregate(Compile *c, Level *level);
extern void cut_distinct(Compile *c, Level *level);
extern void cut_limit(Compile *c, Level *level);

/* ---- session.c ---- */
extern void check_session(Compile *c, Query *query);
extern FuncExpr *session_move_last(List **ordered);
extern Node *session_placeholder(FuncExpr *session);
extern void session_add_columns(SessionSpec *spec, List **columns, FuncExpr *session);

/* ---- hop.c ---- */
extern FuncExpr *hop_move_last(Compile *c, Level *level, List **ordered, List *calls);
extern void hop_fill(HopSpec *spec, List **columns, FuncExpr *hop);

/* ---- best.c ---- */
extern bool query_keeps_best(Query *query); /* DISTINCT ON … ORDER BY */
extern bool query_ranks(Query *query);		/* row_number() and no other window function */
extern void cut_best(Compile *c, Level *level);
extern void cut_ranked(Compile *c, Level *level);
extern bool best_decide(Compile *c, OperatorOutput *output, int index, Bitmapset *shown); /* true: rows have a key in the target */

/* ---- transform.c ---- */
extern bool query_transforms(Query *query); /* transform_with_state in FROM */
extern void cut_transform(Compile *c, Level *level);

/* ---- semijoin.c, join.c, bound.c ---- */
extern void semijoin_pull_up(Query *query);
extern void cut_joins(Compile *c, Level *level);
extern TimeBound *bound_from_condition(Compile *c, Level *level, Node *condition, Bitmapset *side, Bitmapset *other);
extern TimeBound *bound_from_key(Compile *c, Level *level, Node *key, Node *other_key);
extern Lineage bound_lineage(Lineage column, Node *expr, List *bounds);

/* ---- lineage.c ---- */
extern Lineage lineage_of(Compile *c, Level *level, Node *expr);
extern Lineage lineage_of_output(Compile *c, Level *level, AttrNumber resno); /* of a column of its SELECT list */
extern Lineage lineage_of_time(Lineage base, Oid type); /* of a column of that type that carries the event time of base from here on */
extern Expr *lineage_apply(Expr *closes, Expr *value); /* puts the value into a `closes` */
extern Expr *lineage_plus(Expr *at, const Interval *interval); /* the sum, which stays below the end of time and raises nothing */
extern bool lineage_same_columns(List *a, List *b);

/* ---- shape.c ---- */
extern void shape_build(Compile *c, Level *final);
extern bool shape_filters_groups(Compile *c, Level *level);
extern bool shape_finds_groups(Compile *c, Level *final, SinkShape *shape, int index, List **columns);
extern RangeTblEntry *shape_single_input(Query *query); /* the FROM item whose rows the level's are; NULL when there is more to it */
extern int shape_operator_below(Query *query);			/* the operator whose rows they are, through levels of that kind; -1: none */

/* ---- notice.c ---- */
extern void notice_collect(Compile *c, Level *final);

/* ---- parallel.c ---- */
/* Why tasks cannot run the stage; NULL: they can. target: the relation the sink writes to, or InvalidOid. */
extern const char *parallel_obstacle(StreamPlan *plan, Stage *stage, Oid target);
extern void parallel_note_sources(StreamPlan *plan);

/* ---- stages.c, size.c ---- */
extern void size_note_plan(StreamPlan *plan, PlannedStmt *planned);
extern List *size_sources(Query *query);
extern PlannedStmt *size_plan(StreamPlan *plan, Stage *stage, int size);
extern char *size_name(int size);

/* ---- retract.c ---- */
extern void retract_build(Compile *c, Level *final);

/* ---- signature.c ---- */
extern Jsonb *signature_of_aggregate(Compile *c, Level *level, AggregateSpec *spec, List *keys);
extern Jsonb *signature_of_distinct(Compile *c, Level *level, DedupSpec *spec, List *keys);
extern Jsonb *signature_of_join(Compile *c, Level *level, JoinSpec *spec, List *keys[2], List *payload[2]);
extern Jsonb *signature_of_best(Compile *c, Level *level, BestSpec *spec, List *keys, List *kept);
extern Jsonb *signature_of_limit(LimitSpec *spec);
extern Jsonb *signature_of_transform(Compile *c, Level *level, TransformSpec *spec, List *keys);
extern char *signature_expression(Compile *c, Level *level, Node *expr);
extern Jsonb *signature_combine(List *operators);

#define REFUSE ERRCODE_FEATURE_NOT_SUPPORTED

#endif
