/*
 * bulk.c: rows for a plain table, collected and inserted a page at a time, as COPY does: one WAL record for many.
 * The statement's planner has filled in defaults and casts; here rows meet constraints, rows with their key (replace.c), the table, its indexes.
 * Danger: only where nobody could tell the difference: no triggers (foreign keys are some), no policies, nothing that might look at the table meanwhile.
 */
#include "sink/bulk.h"

#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "nodes/makefuncs.h"
#include "optimizer/optimizer.h"
#include "optimizer/tlist.h"
#include "parser/parsetree.h"
#include "sink/replace.h"
#include "util/compat.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

/* Rows are written when there are so many of them, or so much. */
#define BULK_ROWS 1000
#define BULK_BYTES 65536

struct Bulk
{
	Oid relid;
	Replace *replace; /* NULL: rows are only added */
	/* of the running batch */
	EState *estate;
	ResultRelInfo *target;
	TupleDesc desc; /* of the target, a copy: a thousand slots that count their references to the cached one cost more than the rows */
	TupleTableSlot *slots[BULK_ROWS];
	int nslots; /* made so far */
	int nrows;
	Size bytes;
};

/* ---- the statement ---- */

static bool
column_is_plain(Query *insert, Form_pg_attribute column)
{
	if (column->attgenerated != '\0')
		return false;
	/* A domain may refuse the NULL of a column that is not named. */
	return column->attisdropped || get_tle_by_resno(insert->targetList, column->attnum) != NULL || get_typtype(column->atttypid) != TYPTYPE_DOMAIN;
}

static bool
target_is_plain(Query *insert, Relation target)
{
	if (target->rd_rel->relkind != RELKIND_RELATION || target->rd_rel->relispartition || target->trigdesc != NULL || target->rd_rules != NULL)
		return false;
	for (int i = 0; i < RelationGetNumberOfAttributes(target); i++)
		if (!column_is_plain(insert, TupleDescAttr(RelationGetDescr(target), i)))
			return false;
	return true;
}

/* What the executor would store in each column. */
static List *
row_columns(Query *insert, TupleDesc row)
{
	List *columns = NIL;

	for (int i = 0; i < row->natts; i++)
	{
		Form_pg_attribute column = TupleDescAttr(row, i);
		TargetEntry *given = get_tle_by_resno(insert->targetList, column->attnum);
		Expr *value;

		if (column->attisdropped)
			value = (Expr *) makeNullConst(INT4OID, -1, InvalidOid);
		else if (given)
			value = given->expr;
		else
			value = (Expr *) makeNullConst(column->atttypid, column->atttypmod, column->attcollation);
		columns = lappend(columns, makeTargetEntry(value, column->attnum, pstrdup(NameStr(column->attname)), false));
	}
	return columns;
}

/* The target stays in the range table: that is where its lock, the right to insert and the plan's dependence on it come from. */
Bulk *
bulk_create(Query *insert)
{
	RangeTblEntry *entry = rt_fetch(insert->resultRelation, insert->rtable);
	Relation target;
	Replace *replace = NULL;
	Bulk *bulk = NULL;

	if (insert->withCheckOptions != NIL || insert->returningList != NIL || contain_volatile_functions_not_nextval((Node *) insert))
		return NULL;
	target = table_open(entry->relid, NoLock);
	if (target_is_plain(insert, target) && (insert->onConflict == NULL || (replace = replace_create(insert, target)) != NULL))
	{
		bulk = palloc0(sizeof(Bulk));
		bulk->replace = replace;
		bulk->relid = entry->relid;
		insert->targetList = row_columns(insert, RelationGetDescr(target));
		if (replace)
			replace_sort(replace, insert);
		insert->commandType = CMD_SELECT;
		insert->resultRelation = 0;
		insert->onConflict = NULL; /* its work is the replace's */
	}
	table_close(target, NoLock);
	return bulk;
}

/* ---- one batch ---- */

void
bulk_begin(Bulk *bulk)
{
	MemoryContext caller;

	bulk->nslots = bulk->nrows = 0;
	bulk->bytes = 0;
	bulk->estate = CreateExecutorState();
	caller = MemoryContextSwitchTo(bulk->estate->es_query_cxt);
	bulk->target = makeNode(ResultRelInfo);
	InitResultRelInfo(bulk->target, table_open(bulk->relid, RowExclusiveLock), 0, NULL, 0);
	ExecOpenIndices(bulk->target, bulk->replace != NULL);
	if (bulk->replace)
		replace_begin(bulk->replace, bulk->estate, bulk->target);
	bulk->desc = CreateTupleDescCopy(RelationGetDescr(bulk->target->ri_RelationDesc));
	MemoryContextSwitchTo(caller);
}

/* A row that came too late for its key replaces the other, or, should that be gone again, is inserted anew. */
static void
row_index(Bulk *bulk, TupleTableSlot *row)
{
	if (bulk->replace == NULL)
		(void) compat_insert_index_tuples(bulk->target, row, bulk->estate, false, false, NULL, NIL);
	else
		while (!replace_enter(bulk->replace, row) && !replace_known(bulk->replace, row))
			table_tuple_insert(bulk->target->ri_RelationDesc, row, GetCurrentCommandId(true), 0, NULL);
}

static void
bulk_flush(Bulk *bulk)
{
	MemoryContext caller = MemoryContextSwitchTo(GetPerTupleMemoryContext(bulk->estate));

	table_multi_insert(bulk->target->ri_RelationDesc, bulk->slots, bulk->nrows, GetCurrentCommandId(true), 0, NULL);
	MemoryContextSwitchTo(caller);
	for (int i = 0; i < bulk->nrows; i++)
	{
		ResetPerTupleExprContext(bulk->estate);
		if (bulk->target->ri_NumIndices > 0)
			row_index(bulk, bulk->slots[i]);
		ExecClearTuple(bulk->slots[i]);
	}
	ResetPerTupleExprContext(bulk->estate);
	bulk->nrows = 0;
	bulk->bytes = 0;
}

static TupleTableSlot *
slot_next(Bulk *bulk)
{
	if (bulk->nrows == bulk->nslots)
	{
		MemoryContext caller = MemoryContextSwitchTo(bulk->estate->es_query_cxt);

		bulk->slots[bulk->nslots++] = ExecAllocTableSlot(&bulk->estate->es_tupleTable, bulk->desc, table_slot_callbacks(bulk->target->ri_RelationDesc));
		MemoryContextSwitchTo(caller);
	}
	return bulk->slots[bulk->nrows];
}

void
bulk_receive(Bulk *bulk, TupleTableSlot *slot)
{
	TupleTableSlot *row = slot_next(bulk);

	ExecCopySlot(row, slot);
	row->tts_tableOid = bulk->relid;
	if (RelationGetDescr(bulk->target->ri_RelationDesc)->constr)
		ExecConstraints(bulk->target, row, bulk->estate);
	if (bulk->replace && replace_known(bulk->replace, row))
	{
		ExecClearTuple(row);
		return;
	}
	bulk->bytes += ExecFetchSlotHeapTuple(row, true, NULL)->t_len;
	if (++bulk->nrows == BULK_ROWS || bulk->bytes >= BULK_BYTES)
		bulk_flush(bulk);
}

void
bulk_finish(Bulk *bulk)
{
	if (bulk->nrows > 0)
		bulk_flush(bulk);
	ExecCloseIndices(bulk->target);
	table_close(bulk->target->ri_RelationDesc, NoLock);
	ExecResetTupleTable(bulk->estate->es_tupleTable, false);
	FreeExecutorState(bulk->estate);
	bulk->estate = NULL;
}
