/*
 * table_scan.c: the rows of a range, in order, through a nested executor over our own statement on the base table. The statement runs with the rights and
 * the row security of the source's owner (checkAsUser), like a view. Plans are kept and always walk the index on (stream_xid, stream_seq): statistics of a
 * table that only grows are never right about its newest rows.
 */
#include "source/table_step.h"

#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "nodes/nodeFuncs.h"
#include "parser/analyze.h"
#include "storage/lmgr.h"
#include "tcop/tcopprot.h"
#include "util/compat.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/xid8.h"

typedef struct TablePlan
{
	StepKind kind;
	bool hides;
	TableContent content;
	Bitmapset *needed;
	List *columns; /* int: source attribute of each output column */
	char *sql;
	PlannedStmt *planned;
} TablePlan;

struct TableScan
{
	TableReader *reader;
	MemoryContext context;
	List *steps; /* Step */
	int next;	 /* step to open next */
	Bitmapset *needed;
	TableContent content;
	TablePlan *plan;
	QueryDesc *query; /* open statement */
	uint64 rows;	  /* handed out */
};

/* ---- plans ---- */

static dlist_head open_readers = DLIST_STATIC_INIT(open_readers);

static void
relation_changed(Datum arg, Oid relid)
{
	dlist_iter iter;

	dlist_foreach(iter, &open_readers)
	{
		TableReader *reader = dlist_container(TableReader, link, iter.cur);
		ListCell *lc;

		foreach (lc, reader->plans)
			if (!OidIsValid(relid) || list_member_oid(((TablePlan *) lfirst(lc))->planned->relationOids, relid))
				reader->stale = true;
	}
}

static void
reader_release(void *arg)
{
	dlist_delete(&((TableReader *) arg)->link);
}

void
table_reader_watch(TableReader *reader)
{
	static bool registered = false;

	if (!registered)
		CacheRegisterRelcacheCallback(relation_changed, (Datum) 0);
	registered = true;
	reader->plan_context = AllocSetContextCreate(reader->base.context, "stream_ext table source plans", ALLOCSET_DEFAULT_SIZES);
	dlist_push_tail(&open_readers, &reader->link);
	reader->release.func = reader_release;
	reader->release.arg = reader;
	MemoryContextRegisterResetCallback(reader->base.context, &reader->release);
}

static List *
columns_needed(TableReader *reader, Bitmapset *needed)
{
	TupleDesc desc = reader->base.def->desc;
	List *columns = NIL;

	for (int i = 0; i < desc->natts; i++)
		if (!TupleDescAttr(desc, i)->attisdropped && (needed == NULL || bms_is_member(i + 1, needed)))
			columns = lappend_int(columns, i + 1);
	return columns;
}

static void
append_columns(StringInfo sql, TableReader *reader, List *columns)
{
	ListCell *lc;

	foreach (lc, columns)
		appendStringInfo(sql, "%st.%s", foreach_current_index(lc) ? ", " : "",
						 quote_identifier(NameStr(TupleDescAttr(reader->base.def->desc, lfirst_int(lc) - 1)->attname)));
	if (columns == NIL)
		appendStringInfoString(sql, "NULL");
}

/* The row's bytes as they are stored. */
static void
append_size(StringInfo sql, TableReader *reader, List *columns)
{
	ListCell *lc;

	appendStringInfoString(sql, ", (0");
	foreach (lc, columns)
		appendStringInfo(sql, " OPERATOR(pg_catalog.+) COALESCE(pg_catalog.pg_column_size(t.%s), 0)",
						 quote_identifier(NameStr(TupleDescAttr(reader->base.def->desc, lfirst_int(lc) - 1)->attname)));
	appendStringInfoString(sql, ")::pg_catalog.int8");
}

static char *
plan_sql(TableReader *reader, TablePlan *plan)
{
	Oid relid = ((TableOptions *) reader->base.def->options)->relid;
	const char *only = get_rel_relkind(relid) == RELKIND_PARTITIONED_TABLE ? "" : "ONLY ";
	StringInfoData sql;

	initStringInfo(&sql);
	appendStringInfoString(&sql, "SELECT ");
	if (plan->content == TABLE_COLUMNS)
		append_columns(&sql, reader, plan->columns);
	else
		appendStringInfoString(&sql, "t." STAMP_XID ", t." STAMP_SEQ);
	if (plan->content == TABLE_SIZES)
		append_size(&sql, reader, plan->columns);
	appendStringInfo(&sql, " FROM %s%s t", only, table_full_name(relid));
	if (plan->kind == STEP_ALL)
		return sql.data;
	if (plan->kind == STEP_RANGE)
		appendStringInfoString(&sql, " WHERE t." STAMP_XID " OPERATOR(pg_catalog.>=) $1 AND t." STAMP_XID " OPERATOR(pg_catalog.<) $2");
	else if (plan->kind == STEP_ANY)
		appendStringInfoString(&sql, " WHERE t." STAMP_XID " OPERATOR(pg_catalog.=) ANY ($5)");
	else
		appendStringInfoString(&sql, " WHERE t." STAMP_XID " OPERATOR(pg_catalog.=) $1"
									 " AND t." STAMP_SEQ " OPERATOR(pg_catalog.>) $3 AND t." STAMP_SEQ " OPERATOR(pg_catalog.<=) $4");
	if (plan->hides)
		appendStringInfoString(&sql, " AND t." STAMP_XID " OPERATOR(pg_catalog.<>) ALL ($6)");
	appendStringInfoString(&sql, " ORDER BY t." STAMP_XID ", t." STAMP_SEQ);
	return sql.data;
}

static void
plan_check_types(TableReader *reader, TablePlan *plan, List *targets)
{
	ListCell *lc, *lc2;

	if (plan->content != TABLE_COLUMNS || plan->columns == NIL)
		return;
	forboth(lc, targets, lc2, plan->columns)
	{
		Form_pg_attribute att = TupleDescAttr(reader->base.def->desc, lfirst_int(lc2) - 1);
		Oid type = exprType((Node *) lfirst_node(TargetEntry, lc)->expr);

		if (type != att->atttypid)
			ereport(ERROR, (errcode(ERRCODE_DATATYPE_MISMATCH),
							errmsg("column \"%s\" of source %s is of type %s, but %s in its table", NameStr(att->attname), reader->base.def->name,
								   format_type_be(att->atttypid), format_type_be(type)),
							errhint("ALTER FOREIGN TABLE %s ALTER COLUMN %s TYPE %s;", reader->base.def->name,
									quote_identifier(NameStr(att->attname)), format_type_be(type))));
	}
}

/* One way to plan: along the index, no sort, no compilation of a statement that runs for microseconds. */
static PlannedStmt *
plan_in_order(Query *query, const char *sql, bool ordered)
{
	static const char *const off[] = {"enable_seqscan", "enable_bitmapscan", "enable_sort"};
	int level = NewGUCNestLevel();
	PlannedStmt *planned;

	for (int i = 0; ordered && i < lengthof(off); i++)
		(void) set_config_option(off[i], "off", PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
	planned = pg_plan_query(query, sql, 0, NULL);
	AtEOXact_GUC(true, level);
	planned->jitFlags = 0;
	return planned;
}

static void
plan_make(TableReader *reader, TablePlan *plan)
{
	Query *query;
	List *rewritten;

	plan->sql = plan_sql(reader, plan);
	query = parse_analyze_fixedparams(linitial_node(RawStmt, pg_parse_query(plan->sql)), plan->sql, step_param_types, PARAM_COUNT, NULL);
	compat_check_as(query, linitial_node(RangeTblEntry, query->rtable), reader->base.def->owner);
	plan_check_types(reader, plan, query->targetList);
	rewritten = pg_rewrite_query(query);
	plan->planned = plan_in_order(linitial_node(Query, rewritten), plan->sql, plan->kind != STEP_ALL);
}

static TablePlan *
plan_find(TableReader *reader, StepKind kind, bool hides, TableContent content, Bitmapset *needed)
{
	ListCell *lc;

	foreach (lc, reader->plans)
	{
		TablePlan *plan = lfirst(lc);

		if (plan->kind == kind && plan->hides == hides && plan->content == content && bms_equal(plan->needed, needed))
			return plan;
	}
	return NULL;
}

static void
plan_lock(TablePlan *plan)
{
	ListCell *lc;

	foreach (lc, plan->planned->relationOids)
		LockRelationOid(lfirst_oid(lc), AccessShareLock);
}

/* A plan whose relations are locked and unchanged. */
static TablePlan *
plan_get(TableReader *reader, StepKind kind, bool hides, TableContent content, Bitmapset *needed)
{
	MemoryContext old;
	TablePlan *plan = plan_find(reader, kind, hides, content, needed);

	if (plan)
		plan_lock(plan);
	if (reader->stale)
	{
		/* Another scan of this transaction may still be running on an old plan. */
		MemoryContextSetParent(reader->plan_context, TopTransactionContext);
		reader->plan_context = AllocSetContextCreate(reader->base.context, "stream_ext table source plans", ALLOCSET_DEFAULT_SIZES);
		reader->plans = NIL;
		reader->stale = false;
		plan = NULL;
	}
	if (plan)
		return plan;
	old = MemoryContextSwitchTo(reader->plan_context);
	plan = palloc0(sizeof(TablePlan));
	plan->kind = kind;
	plan->hides = hides;
	plan->content = content;
	plan->needed = bms_copy(needed);
	plan->columns = columns_needed(reader, needed);
	plan_make(reader, plan);
	reader->plans = lappend(reader->plans, plan);
	MemoryContextSwitchTo(old);
	return plan;
}

/* ---- statements ---- */

static void
statement_open(TableScan *scan, Step *step)
{
	scan->plan = plan_get(scan->reader, step->kind, step->kind == STEP_RANGE && step->nxids > 0, scan->content, scan->needed);
	scan->query = CreateQueryDesc(scan->plan->planned, scan->plan->sql, GetActiveSnapshot(), InvalidSnapshot, None_Receiver, step_params(step), NULL, 0);
	ExecutorStart(scan->query, 0);
}

static void
statement_close(TableScan *scan)
{
	if (scan->query == NULL)
		return;
	ExecutorFinish(scan->query);
	ExecutorEnd(scan->query);
	FreeQueryDesc(scan->query);
	scan->query = NULL;
}

/* Opens the next statement of the range; false when there is none left. */
static bool
statement_next(TableScan *scan)
{
	MemoryContext old;

	if (scan->next >= list_length(scan->steps))
		return false;
	old = MemoryContextSwitchTo(scan->context);
	statement_open(scan, list_nth(scan->steps, scan->next++));
	MemoryContextSwitchTo(old);
	return true;
}

/* ---- scans ---- */

TableScan *
table_scan_begin(TableReader *reader, List *pieces, Bitmapset *needed, TableContent content)
{
	TableScan *scan = palloc0(sizeof(TableScan));

	scan->reader = reader;
	scan->context = CurrentMemoryContext;
	scan->steps = steps_of_pieces(pieces);
	scan->needed = needed;
	scan->content = content;
	return scan;
}

TableScan *
table_scan_begin_all(TableReader *reader, Bitmapset *needed)
{
	TableScan *scan = table_scan_begin(reader, NIL, needed, TABLE_COLUMNS);

	(void) step_add(&scan->steps, STEP_ALL);
	return scan;
}

static TupleTableSlot *
scan_fetch(TableScan *scan)
{
	while (scan->query || statement_next(scan))
	{
		MemoryContext old = MemoryContextSwitchTo(scan->query->estate->es_query_cxt);
		TupleTableSlot *row = ExecProcNode(scan->query->planstate);

		MemoryContextSwitchTo(old);
		if (!TupIsNull(row))
			return row;
		statement_close(scan);
	}
	return NULL;
}

bool
table_scan_row(TableScan *scan, TupleTableSlot *slot)
{
	TupleTableSlot *row = scan_fetch(scan);
	ListCell *lc;

	if (row == NULL)
		return false;
	scan->rows++;
	slot_getallattrs(row);
	memset(slot->tts_isnull, true, slot->tts_tupleDescriptor->natts * sizeof(bool));
	foreach (lc, scan->plan->columns)
	{
		int target = lfirst_int(lc) - 1, from = foreach_current_index(lc);

		slot->tts_values[target] = row->tts_values[from];
		slot->tts_isnull[target] = row->tts_isnull[from];
	}
	return true;
}

uint64
table_scan_rows(TableScan *scan)
{
	return scan->rows - 1;
}

bool
table_scan_stamp(TableScan *scan, Stamp *stamp, int64 *bytes)
{
	TupleTableSlot *row = scan_fetch(scan);

	if (row == NULL)
		return false;
	slot_getallattrs(row);
	stamp->xid = U64FromFullTransactionId(DatumGetFullTransactionId(row->tts_values[0]));
	stamp->seq = DatumGetInt64(row->tts_values[1]);
	*bytes = scan->content == TABLE_SIZES ? DatumGetInt64(row->tts_values[2]) : 0;
	return true;
}

void
table_scan_rewind(TableScan *scan)
{
	statement_close(scan);
	scan->next = 0;
	scan->rows = 0;
}

void
table_scan_end(TableScan *scan)
{
	statement_close(scan);
}
