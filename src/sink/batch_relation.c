/*
 * batch_relation.c: the foreign table pg_temp.batch: rows of the running batch for the function of a function sink.
 * Functions see it like any table, in any language, as often as they like; it is empty of meaning outside their call, and says so.
 */
#include "sink/batch_relation.h"

#include "access/table.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "executor/executor.h"
#include "executor/spi.h"
#include "foreign/fdwapi.h"
#include "foreign/foreign.h"
#include "nodes/makefuncs.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/planmain.h"
#include "optimizer/restrictinfo.h"
#include "storage/proc.h"
#include "util/compat.h"
#include "util/stored_row.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/ruleutils.h"

PG_FUNCTION_INFO_V1(stream_batch_handler);

#define RELATION_NAME "batch"
#define SERVER_NAME "stream_batch"

static Tuplestorestate *current_rows = NULL;
static TupleDesc current_desc;
static LocalTransactionId current_lxid; /* of an aborted transaction they are gone */
static uint64 current_number = 0;		/* grows with each batch's rows */

typedef struct BatchScan
{
	Tuplestorestate *rows;
	uint64 number;		  /* of the rows: a cursor may outlive them */
	int pointer;		  /* its own place in the rows */
	TupleTableSlot *slot; /* takes the stored tuple */
} BatchScan;

void
batch_relation_set_rows(Tuplestorestate *rows, TupleDesc desc)
{
	current_rows = rows;
	current_desc = desc;
	current_lxid = MY_LOCAL_XID;
	current_number++;
}

static bool
rows_are_there(void)
{
	return current_rows != NULL && current_lxid == MY_LOCAL_XID;
}

/* ---- the relation ---- */

static Oid
batch_relid(void)
{
	Oid schema = LookupExplicitNamespace("pg_temp", true);

	return OidIsValid(schema) ? get_relname_relid(RELATION_NAME, schema) : InvalidOid;
}

static bool
is_batch_relation(Oid relid)
{
	return get_rel_relkind(relid) == RELKIND_FOREIGN_TABLE &&
		   strcmp(GetForeignServer(GetForeignTable(relid)->serverid)->servername, SERVER_NAME) == 0;
}

static bool
has_columns(Oid relid, TupleDesc desc)
{
	Relation rel = table_open(relid, AccessShareLock);
	TupleDesc have = RelationGetDescr(rel);
	bool same = have->natts == desc->natts;

	for (int i = 0; same && i < desc->natts; i++)
	{
		Form_pg_attribute a = TupleDescAttr(have, i), b = TupleDescAttr(desc, i);

		same = !a->attisdropped && strcmp(NameStr(a->attname), NameStr(b->attname)) == 0 && a->atttypid == b->atttypid &&
			   a->atttypmod == b->atttypmod && a->attcollation == b->attcollation;
	}
	table_close(rel, NoLock);
	return same;
}

static void
sql_execute(const char *sql)
{
	if (SPI_connect() != SPI_OK_CONNECT || SPI_execute(sql, false, 0) < 0 || SPI_finish() != SPI_OK_FINISH)
		ereport(ERROR, (errcode(ERRCODE_INTERNAL_ERROR), errmsg("could not execute \"%s\"", sql)));
}

void
batch_relation_drop(void)
{
	sql_execute("DROP FOREIGN TABLE pg_temp." RELATION_NAME);
}

void
batch_relation_make(TupleDesc desc)
{
	Oid relid = batch_relid();
	StringInfoData sql;

	if (OidIsValid(relid) && !is_batch_relation(relid))
		ereport(ERROR, (errcode(ERRCODE_DUPLICATE_TABLE), errmsg("a temporary relation \"" RELATION_NAME "\" is in the way"),
						errdetail("The function of a function sink reads the batch's rows under that name."), errhint("Drop or rename it.")));
	if (OidIsValid(relid) && has_columns(relid, desc))
		return;
	if (OidIsValid(relid))
		batch_relation_drop();
	initStringInfo(&sql);
	appendStringInfoString(&sql, "CREATE FOREIGN TABLE pg_temp." RELATION_NAME " (");
	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);

		appendStringInfo(&sql, "%s%s %s", i ? ", " : "", quote_identifier(NameStr(att->attname)),
						 format_type_extended(att->atttypid, att->atttypmod, FORMAT_TYPE_TYPEMOD_GIVEN | FORMAT_TYPE_FORCE_QUALIFY));
		if (OidIsValid(att->attcollation) && att->attcollation != get_typcollation(att->atttypid))
			appendStringInfo(&sql, " COLLATE %s", generate_collation_name(att->attcollation));
	}
	appendStringInfoString(&sql, ") SERVER " SERVER_NAME);
	sql_execute(sql.data);
}

/* ---- planning ---- */

static void
batch_rel_size(PlannerInfo *root, RelOptInfo *rel, Oid relid)
{
	rel->tuples = rows_are_there() ? (double) tuplestore_tuple_count(current_rows) : 1000;
	rel->rows = clamp_row_est(rel->tuples * clauselist_selectivity(root, rel->baserestrictinfo, 0, JOIN_INNER, NULL));
}

static void
batch_paths(PlannerInfo *root, RelOptInfo *rel, Oid relid)
{
	Cost cost = rel->tuples * (cpu_tuple_cost + rel->baserestrictcost.per_tuple);

	add_path(rel, (Path *) compat_foreign_path(root, rel, cost));
}

static ForeignScan *
batch_plan(PlannerInfo *root, RelOptInfo *rel, Oid relid, ForeignPath *path, List *tlist, List *clauses, Plan *outer)
{
	return make_foreignscan(tlist, extract_actual_clauses(clauses, false), rel->relid, NIL, NIL, NIL, NIL, outer);
}

/* ---- execution ---- */

static void
check_rows(bool there)
{
	if (!there)
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE), errmsg("relation \"" RELATION_NAME "\" has no rows here"),
						errdetail("It can be read only by the function of a function sink, while it is called for a batch.")));
}

static void
scan_select(BatchScan *scan)
{
	check_rows(rows_are_there() && scan->number == current_number);
	tuplestore_select_read_pointer(scan->rows, scan->pointer);
}

static void
batch_begin(ForeignScanState *node, int flags)
{
	BatchScan *scan;

	if (flags & EXEC_FLAG_EXPLAIN_ONLY)
		return;
	check_rows(rows_are_there() && current_desc->natts == RelationGetDescr(node->ss.ss_currentRelation)->natts);
	scan = palloc0(sizeof(BatchScan));
	scan->rows = current_rows;
	scan->number = current_number;
	tuplestore_select_read_pointer(scan->rows, 0);
	scan->pointer = tuplestore_alloc_read_pointer(scan->rows, EXEC_FLAG_REWIND);
	tuplestore_select_read_pointer(scan->rows, scan->pointer);
	tuplestore_rescan(scan->rows);
	scan->slot = ExecInitExtraTupleSlot(node->ss.ps.state, current_desc, &TTSOpsMinimalTuple);
	node->fdw_state = scan;
}

static TupleTableSlot *
batch_iterate(ForeignScanState *node)
{
	BatchScan *scan = node->fdw_state;
	TupleTableSlot *slot = node->ss.ss_ScanTupleSlot;

	ExecClearTuple(slot);
	scan_select(scan);
	if (!stored_row_next(scan->rows, scan->slot))
		return slot;
	slot_getallattrs(scan->slot);
	for (int i = 0; i < scan->slot->tts_tupleDescriptor->natts; i++)
	{
		slot->tts_values[i] = scan->slot->tts_values[i];
		slot->tts_isnull[i] = scan->slot->tts_isnull[i];
	}
	return ExecStoreVirtualTuple(slot);
}

static void
batch_rescan(ForeignScanState *node)
{
	BatchScan *scan = node->fdw_state;

	scan_select(scan);
	tuplestore_rescan(scan->rows);
}

static void
batch_end(ForeignScanState *node)
{
}

Datum
stream_batch_handler(PG_FUNCTION_ARGS)
{
	FdwRoutine *routine = makeNode(FdwRoutine);

	routine->GetForeignRelSize = batch_rel_size;
	routine->GetForeignPaths = batch_paths;
	routine->GetForeignPlan = batch_plan;
	routine->BeginForeignScan = batch_begin;
	routine->IterateForeignScan = batch_iterate;
	routine->ReScanForeignScan = batch_rescan;
	routine->EndForeignScan = batch_end;
	PG_RETURN_POINTER(routine);
}
