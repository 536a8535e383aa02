/*
 * table_scan.c: the rows of a range, in order, through a nested executor over our own statement on the base table. The statement runs with the rights and
 * the row security of the source's owner (checkAsUser), like a view. Plans are kept and always walk the index on (stream_xid, stream_seq): statistics of a
 * table that only grows are never right about its newest rows.
 */
#include "source/table.h"

#include "access/transam.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "nodes/nodeFuncs.h"
#include "parser/analyze.h"
#include "storage/lmgr.h"
#include "tcop/tcopprot.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/xid8.h"

/* Which rows a statement reads. A btree stops early on each of these; on a comparison of (stream_xid, stream_seq) pairs it would not. */
typedef enum StepKind
{
	STEP_ALL,		/* no range: a read by hand */
	STEP_RANGE,		/* transactions from … to */
	STEP_ANY,		/* some transactions, by their ids */
	STEP_ONE		/* a part of one transaction */
} StepKind;

enum
{
	PARAM_XID_FROM, /* inclusive */
	PARAM_XID_TO,	/* exclusive */
	PARAM_SEQ_AFTER,
	PARAM_SEQ_UPTO,
	PARAM_XIDS,	  /* xid8[]: STEP_ANY */
	PARAM_HIDDEN, /* xid8[]: STEP_RANGE, still running at the new snapshot */
	PARAM_COUNT
};

static const Oid param_types[PARAM_COUNT] = {XID8OID, XID8OID, INT8OID, INT8OID, XID8ARRAYOID, XID8ARRAYOID};

/* One statement to run. A range is a list of them, in the order of the rows. */
typedef struct Step
{
	StepKind kind;
	uint64 xid_from, xid_to;
	int64 seq_after, seq_upto;
	uint64 *xids; /* STEP_ANY: wanted; STEP_RANGE: not wanted */
	int nxids;
} Step;

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
	query = parse_analyze_fixedparams(linitial_node(RawStmt, pg_parse_query(plan->sql)), plan->sql, param_types, PARAM_COUNT, NULL);
	linitial_node(RangeTblEntry, query->rtable)->checkAsUser = reader->base.def->owner;
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

/* ---- steps ---- */

static bool
xid_is_among(uint64 xid, const uint64 *xids, int n)
{
	for (int i = 0; i < n; i++)
		if (xids[i] == xid)
			return true;
	return false;
}

static Step *
step_add(List **steps, StepKind kind)
{
	Step *step = palloc0(sizeof(Step));

	step->kind = kind;
	*steps = lappend(*steps, step);
	return step;
}

/* The part of one transaction that lies within the piece. */
static void
step_add_one(List **steps, TablePiece *piece, uint64 xid)
{
	Step *step;

	if (xid >= piece->high->xmax || xid_is_among(xid, piece->high->xip, piece->high->nxip))
		return;
	step = step_add(steps, STEP_ONE);
	step->xid_from = xid;
	step->seq_after = xid == piece->after.xid ? piece->after.seq : PG_INT64_MIN;
	step->seq_upto = xid == piece->upto.xid ? piece->upto.seq : PG_INT64_MAX;
}

/* Transactions that were running at the old snapshot and have ended by the new one. Those at the ends of a split are read in part. */
static void
steps_add_running(List **steps, TablePiece *piece)
{
	Horizon *low = piece->low, *high = piece->high;
	Step *step = NULL;

	for (int i = 0; low && i < low->nxip; i++)
	{
		uint64 xid = low->xip[i];

		if (xid < piece->after.xid || xid > piece->upto.xid || xid_is_among(xid, high->xip, high->nxip))
			continue;
		if (xid == piece->after.xid || xid == piece->upto.xid)
			step_add_one(steps, piece, xid);
		else
		{
			if (step == NULL)
			{
				step = step_add(steps, STEP_ANY);
				step->xids = palloc(sizeof(uint64) * low->nxip);
			}
			step->xids[step->nxids++] = xid;
		}
	}
}

/* Transactions that began after the old snapshot. */
static void
steps_add_new(List **steps, TablePiece *piece)
{
	uint64 from = piece->low ? piece->low->xmax : FirstNormalTransactionId;
	uint64 to = Min(piece->high->xmax, piece->upto.xid);

	if (piece->upto.seq == PG_INT64_MAX)
		to = piece->high->xmax;
	if (piece->after.xid >= from)
	{
		step_add_one(steps, piece, piece->after.xid);
		from = piece->after.xid + 1;
	}
	if (from < to)
	{
		Step *step = step_add(steps, STEP_RANGE);

		step->xid_from = from;
		step->xid_to = to;
		step->xids = piece->high->xip;
		step->nxids = piece->high->nxip;
	}
	if (piece->upto.seq != PG_INT64_MAX && piece->upto.xid >= from)
		step_add_one(steps, piece, piece->upto.xid);
}

static List *
steps_of_pieces(List *pieces)
{
	List *steps = NIL;
	ListCell *lc;

	foreach (lc, pieces)
	{
		steps_add_running(&steps, lfirst(lc));
		steps_add_new(&steps, lfirst(lc));
	}
	return steps;
}

static Datum
xid_array(const uint64 *xids, int n)
{
	Datum *values = palloc(sizeof(Datum) * (n + 1));

	for (int i = 0; i < n; i++)
		values[i] = FullTransactionIdGetDatum(FullTransactionIdFromU64(xids[i]));
	return PointerGetDatum(construct_array(values, n, XID8OID, sizeof(FullTransactionId), FLOAT8PASSBYVAL, TYPALIGN_DOUBLE));
}

static ParamListInfo
step_params(Step *step)
{
	ParamListInfo params = makeParamList(PARAM_COUNT);
	Datum values[PARAM_COUNT];

	values[PARAM_XID_FROM] = FullTransactionIdGetDatum(FullTransactionIdFromU64(step->xid_from));
	values[PARAM_XID_TO] = FullTransactionIdGetDatum(FullTransactionIdFromU64(step->xid_to));
	values[PARAM_SEQ_AFTER] = Int64GetDatum(step->seq_after);
	values[PARAM_SEQ_UPTO] = Int64GetDatum(step->seq_upto);
	values[PARAM_XIDS] = values[PARAM_HIDDEN] = xid_array(step->xids, step->nxids);
	for (int i = 0; i < PARAM_COUNT; i++)
		params->params[i] = (ParamExternData){values[i], false, PARAM_FLAG_CONST, param_types[i]};
	return params;
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
}

void
table_scan_end(TableScan *scan)
{
	statement_close(scan);
}
