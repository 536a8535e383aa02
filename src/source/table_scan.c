/*
 * table_scan.c: the rows of a range, in order, through a nested executor over our own statement on the base table. The statement runs with the rights and
 * the row security of the source's owner (checkAsUser), like a view. Plans are kept and always walk the index on (stream_xid, stream_seq): statistics of a
 * table that only grows are never right about its newest rows.
 */
#include "source/table.h"

#include "access/table.h"
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

/* Which rows a statement reads. */
typedef enum Branch
{
	BRANCH_RUNNING, /* transactions that were running at the old snapshot: stream_xid = ANY */
	BRANCH_NEW,		/* transactions that began after it */
	BRANCH_ALL		/* no range: a read by hand */
} Branch;

enum
{
	PARAM_AFTER_XID,
	PARAM_AFTER_SEQ,
	PARAM_UPTO_XID,
	PARAM_UPTO_SEQ,
	PARAM_RUNNING, /* xid8[]: BRANCH_RUNNING */
	PARAM_HIDDEN,  /* xid8[]: still running at the new snapshot */
	PARAM_COUNT
};

static const Oid param_types[PARAM_COUNT] = {XID8OID, INT8OID, XID8OID, INT8OID, XID8ARRAYOID, XID8ARRAYOID};

typedef struct TablePlan
{
	Branch branch;
	bool hides;
	bool stamps_only;
	Bitmapset *needed;
	List *columns; /* int: source attribute of each output column */
	char *sql;
	PlannedStmt *planned;
} TablePlan;

struct TableScan
{
	TableReader *reader;
	MemoryContext context;
	List *pieces;
	Bitmapset *needed;
	bool stamps_only;
	int piece;
	Branch branch; /* the next to open within the piece */
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

static char *
plan_sql(TableReader *reader, TablePlan *plan)
{
	Oid relid = ((TableOptions *) reader->base.def->options)->relid;
	const char *only = get_rel_relkind(relid) == RELKIND_PARTITIONED_TABLE ? "" : "ONLY ";
	StringInfoData sql;

	initStringInfo(&sql);
	appendStringInfoString(&sql, "SELECT ");
	if (plan->stamps_only)
		appendStringInfoString(&sql, "t." STAMP_XID ", t." STAMP_SEQ);
	else
		append_columns(&sql, reader, plan->columns);
	appendStringInfo(&sql, " FROM %s%s t", only, table_full_name(relid));
	if (plan->branch == BRANCH_ALL)
		return sql.data;
	appendStringInfoString(&sql, " WHERE (t." STAMP_XID ", t." STAMP_SEQ ") OPERATOR(pg_catalog.>) ($1, $2)"
								 " AND (t." STAMP_XID ", t." STAMP_SEQ ") OPERATOR(pg_catalog.<=) ($3, $4)");
	if (plan->branch == BRANCH_RUNNING)
		appendStringInfoString(&sql, " AND t." STAMP_XID " OPERATOR(pg_catalog.=) ANY ($5)");
	if (plan->hides)
		appendStringInfoString(&sql, " AND t." STAMP_XID " OPERATOR(pg_catalog.<>) ALL ($6)");
	appendStringInfoString(&sql, " ORDER BY t." STAMP_XID ", t." STAMP_SEQ);
	return sql.data;
}

static void
plan_check_types(TableReader *reader, TablePlan *plan, List *targets)
{
	ListCell *lc, *lc2;

	if (plan->stamps_only || plan->columns == NIL)
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
	plan->planned = plan_in_order(linitial_node(Query, rewritten), plan->sql, plan->branch != BRANCH_ALL);
}

static TablePlan *
plan_find(TableReader *reader, Branch branch, bool hides, bool stamps_only, Bitmapset *needed)
{
	ListCell *lc;

	foreach (lc, reader->plans)
	{
		TablePlan *plan = lfirst(lc);

		if (plan->branch == branch && plan->hides == hides && plan->stamps_only == stamps_only && bms_equal(plan->needed, needed))
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
plan_get(TableReader *reader, Branch branch, bool hides, bool stamps_only, Bitmapset *needed)
{
	MemoryContext old;
	TablePlan *plan = plan_find(reader, branch, hides, stamps_only, needed);

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
	plan->branch = branch;
	plan->hides = hides;
	plan->stamps_only = stamps_only;
	plan->needed = bms_copy(needed);
	plan->columns = columns_needed(reader, needed);
	plan_make(reader, plan);
	reader->plans = lappend(reader->plans, plan);
	MemoryContextSwitchTo(old);
	return plan;
}

/* ---- statements ---- */

static Datum
xid_array(Horizon *horizon)
{
	Datum *values = palloc(sizeof(Datum) * (horizon->nxip + 1));

	for (int i = 0; i < horizon->nxip; i++)
		values[i] = FullTransactionIdGetDatum(FullTransactionIdFromU64(horizon->xip[i]));
	return PointerGetDatum(construct_array(values, horizon->nxip, XID8OID, sizeof(FullTransactionId), FLOAT8PASSBYVAL, TYPALIGN_DOUBLE));
}

static bool
stamp_before(Stamp a, Stamp b)
{
	return a.xid < b.xid || (a.xid == b.xid && a.seq < b.seq);
}

static ParamListInfo
piece_params(TablePiece *piece, Branch branch)
{
	ParamListInfo params = makeParamList(PARAM_COUNT);
	Stamp after = piece->after, upto = piece->upto;
	Stamp newest = {piece->high->xmax - 1, PG_INT64_MAX};

	/* Bounds of the snapshots and of the split, whichever is narrower: one place to enter the index, one to leave it. */
	if (branch == BRANCH_NEW && piece->low)
	{
		Stamp oldest = {piece->low->xmax - 1, PG_INT64_MAX};

		if (stamp_before(after, oldest))
			after = oldest;
	}
	if (stamp_before(newest, upto))
		upto = newest;
	for (int i = 0; i < PARAM_COUNT; i++)
		params->params[i] = (ParamExternData){(Datum) 0, true, PARAM_FLAG_CONST, param_types[i]};
	params->params[PARAM_AFTER_XID].value = FullTransactionIdGetDatum(FullTransactionIdFromU64(after.xid));
	params->params[PARAM_AFTER_SEQ].value = Int64GetDatum(after.seq);
	params->params[PARAM_UPTO_XID].value = FullTransactionIdGetDatum(FullTransactionIdFromU64(upto.xid));
	params->params[PARAM_UPTO_SEQ].value = Int64GetDatum(upto.seq);
	for (int i = PARAM_AFTER_XID; i <= PARAM_UPTO_SEQ; i++)
		params->params[i].isnull = false;
	if (branch == BRANCH_RUNNING)
		params->params[PARAM_RUNNING] = (ParamExternData){xid_array(piece->low), false, PARAM_FLAG_CONST, XID8ARRAYOID};
	if (piece->high->nxip > 0)
		params->params[PARAM_HIDDEN] = (ParamExternData){xid_array(piece->high), false, PARAM_FLAG_CONST, XID8ARRAYOID};
	return params;
}

static void
statement_open(TableScan *scan, Branch branch, bool hides, ParamListInfo params)
{
	scan->plan = plan_get(scan->reader, branch, hides, scan->stamps_only, scan->needed);
	scan->query = CreateQueryDesc(scan->plan->planned, scan->plan->sql, GetActiveSnapshot(), InvalidSnapshot, None_Receiver, params, NULL, 0);
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
	MemoryContext old = MemoryContextSwitchTo(scan->context);
	bool found = false;

	statement_close(scan);
	while (!found && scan->piece < list_length(scan->pieces))
	{
		TablePiece *piece = list_nth(scan->pieces, scan->piece);
		Branch branch = scan->branch;

		if (branch == BRANCH_NEW)
			scan->piece++;
		scan->branch = branch == BRANCH_NEW ? BRANCH_RUNNING : BRANCH_NEW;
		if (branch == BRANCH_RUNNING && (piece->low == NULL || piece->low->nxip == 0))
			continue;
		statement_open(scan, branch, piece->high->nxip > 0, piece_params(piece, branch));
		found = true;
	}
	MemoryContextSwitchTo(old);
	return found;
}

/* ---- scans ---- */

TableScan *
table_scan_begin(TableReader *reader, List *pieces, Bitmapset *needed, bool stamps_only)
{
	TableScan *scan = palloc0(sizeof(TableScan));

	scan->reader = reader;
	scan->context = CurrentMemoryContext;
	scan->pieces = pieces;
	scan->needed = needed;
	scan->stamps_only = stamps_only;
	scan->branch = BRANCH_RUNNING;
	return scan;
}

TableScan *
table_scan_begin_all(TableReader *reader, Bitmapset *needed)
{
	TableScan *scan = table_scan_begin(reader, NIL, needed, false);

	statement_open(scan, BRANCH_ALL, false, NULL);
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
table_scan_stamp(TableScan *scan, Stamp *stamp)
{
	TupleTableSlot *row = scan_fetch(scan);

	if (row == NULL)
		return false;
	slot_getallattrs(row);
	stamp->xid = U64FromFullTransactionId(DatumGetFullTransactionId(row->tts_values[0]));
	stamp->seq = DatumGetInt64(row->tts_values[1]);
	return true;
}

void
table_scan_rewind(TableScan *scan)
{
	MemoryContext old = MemoryContextSwitchTo(scan->context);
	bool all = scan->pieces == NIL && scan->plan && scan->plan->branch == BRANCH_ALL;

	statement_close(scan);
	scan->piece = 0;
	scan->branch = BRANCH_RUNNING;
	if (all)
		statement_open(scan, BRANCH_ALL, false, NULL);
	MemoryContextSwitchTo(old);
}

void
table_scan_end(TableScan *scan)
{
	statement_close(scan);
}
