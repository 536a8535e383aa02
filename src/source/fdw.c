/*
 * fdw.c: the foreign-table face of sources.
 * A scan whose range-table entry carries STREAM_SCAN_MARK reads the running batch's range; any other scan (a user's SELECT, a function called inside a
 * batch) is an ordinary bounded read of what is there now.
 */
#include "source/source.h"

#include "access/reloptions.h"
#include "access/table.h"
#include "catalog/pg_attribute.h"
#include "catalog/pg_foreign_server.h"
#include "catalog/pg_foreign_table.h"
#include "catalog/pg_user_mapping.h"
#include "commands/defrem.h"
#include "commands/explain.h"
#include "foreign/fdwapi.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/planmain.h"
#include "optimizer/restrictinfo.h"
#include "parser/parsetree.h"
#include "util/closest.h"
#include "util/compat.h"
#include "util/options.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/rel.h"

PG_FUNCTION_INFO_V1(stream_fdw_handler);

#define DEFAULT_ROWS 1000
#define ROW_COST 0.02 /* decoding a row, in cpu units of the planner */

/* ---- planning ---- */

static bool
scan_is_marked(PlannerInfo *root, RelOptInfo *rel)
{
	RangeTblEntry *rte = planner_rt_fetch(rel->relid, root);

	return rte->enrname != NULL && strcmp(rte->enrname, STREAM_SCAN_MARK) == 0;
}

static void
fdw_rel_size(PlannerInfo *root, RelOptInfo *rel, Oid relid)
{
	RangeTblEntry *rte = planner_rt_fetch(rel->relid, root);

	rel->tuples = scan_is_marked(root, rel) && rte->enrtuples > 0 ? rte->enrtuples : DEFAULT_ROWS;
	rel->rows = clamp_row_est(rel->tuples * clauselist_selectivity(root, rel->baserestrictinfo, 0, JOIN_INNER, NULL));
}

static void
fdw_paths(PlannerInfo *root, RelOptInfo *rel, Oid relid)
{
	Cost cost = rel->tuples * (ROW_COST + rel->baserestrictcost.per_tuple);

	add_path(rel, (Path *) compat_foreign_path(root, rel, cost));
}

/* Attribute numbers the plan uses; 0 among them stands for "and no others", so that the set is never empty. */
static List *
columns_used(RelOptInfo *rel)
{
	Bitmapset *used = NULL;
	List *columns = list_make1_int(0);
	ListCell *lc;
	int i = -1;

	pull_varattnos((Node *) rel->reltarget->exprs, rel->relid, &used);
	foreach (lc, rel->baserestrictinfo)
		pull_varattnos((Node *) lfirst_node(RestrictInfo, lc)->clause, rel->relid, &used);
	while ((i = bms_next_member(used, i)) >= 0)
	{
		AttrNumber attno = i + FirstLowInvalidHeapAttributeNumber;

		if (attno == InvalidAttrNumber)
			return NIL; /* whole row */
		if (attno > 0)
			columns = lappend_int(columns, attno);
	}
	return columns;
}

static ForeignScan *
fdw_plan(PlannerInfo *root, RelOptInfo *rel, Oid relid, ForeignPath *path, List *tlist, List *clauses, Plan *outer)
{
	List *private = list_make2(makeBoolean(scan_is_marked(root, rel)), columns_used(rel));

	return make_foreignscan(tlist, extract_actual_clauses(clauses, false), rel->relid, NIL, private, NIL, NIL, outer);
}

/* ---- execution ---- */

static bool
plan_is_marked(ForeignScanState *node)
{
	return boolVal(linitial(((ForeignScan *) node->ss.ps.plan)->fdw_private));
}

static void
fdw_begin(ForeignScanState *node, int flags)
{
	ForeignScan *plan = (ForeignScan *) node->ss.ps.plan;
	Oid relid = RelationGetRelid(node->ss.ss_currentRelation);
	Bitmapset *needed = NULL;
	SourceBatch *batch = NULL;
	SourceReader *reader;
	ListCell *lc;

	if (flags & EXEC_FLAG_EXPLAIN_ONLY)
		return;
	foreach (lc, (List *) lsecond(plan->fdw_private))
		needed = bms_add_member(needed, lfirst_int(lc));
	if (plan_is_marked(node))
	{
		batch = source_running(relid);
		if (batch == NULL)
			ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
							errmsg("source %s is not part of the running batch", RelationGetRelationName(node->ss.ss_currentRelation))));
		reader = batch->reader;
	}
	else
	{
		SourceDef *def = source_load(relid);

		reader = def->ops->open(def);
	}
	node->fdw_state = source_scan_open(reader, batch, needed);
}

static TupleTableSlot *
fdw_iterate(ForeignScanState *node)
{
	TupleTableSlot *slot = node->ss.ss_ScanTupleSlot;

	source_scan_next(node->fdw_state, slot);
	return slot;
}

static void
fdw_rescan(ForeignScanState *node)
{
	source_scan_rewind(node->fdw_state);
}

static void
fdw_end(ForeignScanState *node)
{
	SourceScan *scan = node->fdw_state;

	if (scan == NULL)
		return;
	source_scan_close(scan);
	if (scan->batch == NULL)
		scan->reader->ops->close(scan->reader);
}

static void
fdw_explain(ForeignScanState *node, ExplainState *es)
{
	ExplainPropertyText("Stream", plan_is_marked(node) ? "the batch's range" : "all rows there are now", es);
}

Datum
stream_fdw_handler(PG_FUNCTION_ARGS)
{
	FdwRoutine *routine = makeNode(FdwRoutine);

	routine->GetForeignRelSize = fdw_rel_size;
	routine->GetForeignPaths = fdw_paths;
	routine->GetForeignPlan = fdw_plan;
	routine->BeginForeignScan = fdw_begin;
	routine->IterateForeignScan = fdw_iterate;
	routine->ReScanForeignScan = fdw_rescan;
	routine->EndForeignScan = fdw_end;
	routine->ExplainForeignScan = fdw_explain;
	PG_RETURN_POINTER(routine);
}

/* ---- options ---- */

typedef struct CommonOptions
{
	char *format, *timestamp_unit, *on_bad_row, *event_time;
	int64 watermark_delay;
} CommonOptions;

static const OptionDef common_options[] = {
	{"format", OPTION_ENUM, offsetof(CommonOptions, format), 0, 0, "avro|csv|debezium|json|raw|text"},
	{"timestamp_unit", OPTION_ENUM, offsetof(CommonOptions, timestamp_unit), 0, 0, "s|ms|us"},
	{"on_bad_row", OPTION_ENUM, offsetof(CommonOptions, on_bad_row), 0, 0, "dead_letter|fail|skip|null"},
	{"event_time", OPTION_TEXT, offsetof(CommonOptions, event_time), 0, 0, NULL},
	{"watermark_delay", OPTION_INTERVAL, offsetof(CommonOptions, watermark_delay), 0, PG_INT64_MAX, NULL},
	{NULL, 0, 0, 0, 0, NULL}};

/* What a catalog's options belong to, for messages. */
static const char *
catalog_object(Oid catalog)
{
	switch (catalog)
	{
		case ForeignTableRelationId:
			return "source";
		case ForeignServerRelationId:
			return "server";
		case UserMappingRelationId:
			return "user mapping";
		case AttributeRelationId:
			return "column";
		default:
			return "foreign-data wrapper";
	}
}

static bool
common_option(const SourceOps *ops, DefElem *def, Oid catalog)
{
	CommonOptions ignored;

	if (catalog == AttributeRelationId)
		return strcmp(def->defname, "path") == 0;
	if (catalog != ForeignTableRelationId)
		return false;
	return options_parse_text(common_options, def->defname, defGetString(def), &ignored, psprintf("%s source", ops->kind));
}

static bool
own_option(const SourceOps *ops, DefElem *def, Oid catalog)
{
	if (ops->check_option)
		return ops->check_option(def->defname, defGetString(def), catalog);
	return catalog == ForeignTableRelationId &&
		   options_parse_text(ops->options, def->defname, defGetString(def), palloc0(ops->options_size), psprintf("%s source", ops->kind));
}

static const char *
own_option_names(const SourceOps *ops, Oid catalog)
{
	const char *names = ops->option_names ? ops->option_names(catalog) : catalog == ForeignTableRelationId ? options_names(ops->options) : NULL;

	return names ? names : "";
}

static void
options_validate(const SourceOps *ops, List *options, Oid catalog)
{
	ListCell *lc;

	foreach (lc, options)
	{
		DefElem *def = lfirst_node(DefElem, lc);
		const char *own;

		if (common_option(ops, def, catalog) || own_option(ops, def, catalog))
			continue;
		own = own_option_names(ops, catalog);
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("unknown option \"%s\" of a %s %s", def->defname, ops->kind, catalog_object(catalog)),
						errdetail("Valid options are: %s%s%s.",
								  catalog == ForeignTableRelationId	? options_names(common_options)
								  : catalog == AttributeRelationId ? "path"
																   : "",
								  *own && (catalog == ForeignTableRelationId || catalog == AttributeRelationId) ? ", " : "",
								  own),
						catalog == ForeignTableRelationId ? closest_hint(def->defname, psprintf("%s, paths, server, %s", options_names(common_options), own))
														  : closest_hint(def->defname, own)));
	}
}

/* A validator per wrapper: the function is all that tells whose options they are. */
#define VALIDATOR(kind)                                                                                            \
	PG_FUNCTION_INFO_V1(stream_validate_##kind);                                                                   \
	Datum stream_validate_##kind(PG_FUNCTION_ARGS)                                                                 \
	{                                                                                                              \
		options_validate(&kind##_source, untransformRelOptions(PG_GETARG_DATUM(0)), PG_GETARG_OID(1));             \
		PG_RETURN_VOID();                                                                                          \
	}                                                                                                              \
	extern int stream_validator_ends

VALIDATOR(table);
VALIDATOR(kafka);
VALIDATOR(file);
VALIDATOR(rate);
VALIDATOR(socket);
VALIDATOR(changes);
