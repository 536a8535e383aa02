/*
 * replace.c: what ON CONFLICT DO UPDATE does, without inserting each row on trial: look the key up, update the row found, else have many inserted at once.
 * Between look-up and insertion another session may insert the key. The unique index then tells (the entry is made all the same): our row is deleted
 * and the other's waited for and updated.
 * Danger: one unique index only, else a row might collide that would not have in the rows' order; not for logical decoding, which would tell of the
 * row inserted in vain. Nobody's transaction may be waited for between our row's entry in the index and its deletion.
 */
#include "sink/replace.h"

#include "access/htup_details.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/catalog.h"
#include "catalog/pg_am.h"
#include "executor/executor.h"
#include "nodes/nodeFuncs.h"
#include "parser/parse_clause.h"
#include "parser/parse_oper.h"
#include "parser/parsetree.h"
#include "util/compat.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/relcache.h"
#include "utils/snapmgr.h"

struct Replace
{
	Oid index;	/* unique, over the key */
	bool *is_set; /* per column of the target: takes the new row's value */
	/* of the running batch */
	EState *estate;
	ResultRelInfo *target;
	List *arbiters; /* the index */
	CommandId first; /* rows of this transaction from here on are the batch's */
	TupleTableSlot *old, *new;
};

/* ---- the statement ---- */

static bool
index_is_key(Relation index, List *elements)
{
	Form_pg_index form = index->rd_index;
	Bitmapset *key = NULL, *columns = NULL;
	ListCell *lc;

	if (!form->indimmediate || !form->indisvalid || form->indisexclusion || RelationGetIndexPredicate(index) != NIL)
		return false;
	foreach (lc, elements)
	{
		InferenceElem *element = lfirst_node(InferenceElem, lc);

		if (!IsA(element->expr, Var))
			return false;
		key = bms_add_member(key, castNode(Var, element->expr)->varattno);
	}
	for (int i = 0; i < form->indnkeyatts; i++)
		if (form->indkey.values[i] <= 0)
			return false;
		else
			columns = bms_add_member(columns, form->indkey.values[i]);
	return bms_equal(key, columns);
}

/* The one index that may refuse a row; InvalidOid: there are more, or it is not on the key. */
static Oid
find_key_index(Relation target, List *elements)
{
	Oid found = InvalidOid;
	ListCell *lc;

	foreach (lc, RelationGetIndexList(target))
	{
		Relation index = index_open(lfirst_oid(lc), AccessShareLock);
		bool refuses = index->rd_index->indisunique || index->rd_index->indisexclusion, is_key = refuses && index_is_key(index, elements);

		index_close(index, NoLock);
		if (refuses && (!is_key || OidIsValid(found)))
			return InvalidOid;
		if (is_key)
			found = lfirst_oid(lc);
	}
	return found;
}

/* Which columns are set to what the new row has there; NULL: another expression is among them. */
static bool *
columns_set(OnConflictExpr *conflict, int natts)
{
	bool *is_set = palloc0(sizeof(bool) * natts);
	ListCell *lc;

	foreach (lc, conflict->onConflictSet)
	{
		TargetEntry *column = lfirst_node(TargetEntry, lc);
		Var *value = (Var *) column->expr;

		if (!IsA(value, Var) || value->varno != conflict->exclRelIndex || value->varattno != column->resno)
			return NULL;
		is_set[column->resno - 1] = true;
	}
	return is_set;
}

Replace *
replace_create(Query *insert, Relation target)
{
	OnConflictExpr *conflict = insert->onConflict;
	Oid index;
	bool *is_set;
	Replace *replace;

	if (conflict->action != ONCONFLICT_UPDATE || conflict->onConflictWhere || conflict->arbiterWhere || OidIsValid(conflict->constraint) ||
		target->rd_rel->relam != HEAP_TABLE_AM_OID || RelationIsLogicallyLogged(target))
		return NULL;
	index = find_key_index(target, conflict->arbiterElems);
	is_set = columns_set(conflict, RelationGetNumberOfAttributes(target));
	if (!OidIsValid(index) || is_set == NULL)
		return NULL;
	replace = palloc0(sizeof(Replace));
	replace->index = index;
	replace->is_set = is_set;
	return replace;
}

void
replace_sort(Replace *replace, Query *rows)
{
	Relation index = index_open(replace->index, AccessShareLock);

	for (int i = 0; i < index->rd_index->indnkeyatts; i++)
	{
		TargetEntry *column = get_tle_by_resno(rows->targetList, index->rd_index->indkey.values[i]);
		SortGroupClause *sort = makeNode(SortGroupClause);

		get_sort_group_operators(exprType((Node *) column->expr), false, false, false, &sort->sortop, &sort->eqop, NULL, &sort->hashable);
		if (!OidIsValid(sort->sortop))
			break; /* only the index's own operator class orders it */
		sort->tleSortGroupRef = assignSortGroupRef(column, rows->targetList);
		rows->sortClause = lappend(rows->sortClause, sort);
	}
	index_close(index, NoLock);
}

/* ---- one batch ---- */

void
replace_begin(Replace *replace, EState *estate, ResultRelInfo *target)
{
	replace->estate = estate;
	replace->target = target;
	replace->arbiters = list_make1_oid(replace->index);
	replace->first = GetCurrentCommandId(true);
	replace->old = ExecInitExtraTupleSlot(estate, RelationGetDescr(target->ri_RelationDesc), table_slot_callbacks(target->ri_RelationDesc));
	replace->new = ExecInitExtraTupleSlot(estate, RelationGetDescr(target->ri_RelationDesc), &TTSOpsVirtual);
}

/* As the executor says it, of two rows of a batch with one key. */
static void
refuse_second(Replace *replace)
{
	HeapTupleHeader old = ExecFetchSlotHeapTuple(replace->old, false, NULL)->t_data;

	if (TransactionIdIsCurrentTransactionId(HeapTupleHeaderGetXmin(old)) && HeapTupleHeaderGetCmin(old) >= replace->first)
		ereport(ERROR, (errcode(ERRCODE_CARDINALITY_VIOLATION), errmsg("%s command cannot affect row a second time", "ON CONFLICT DO UPDATE"),
						errhint("Ensure that no rows proposed for insertion within the same command have duplicate constrained values.")));
}

static void
form_new(Replace *replace, TupleTableSlot *row)
{
	TupleTableSlot *old = replace->old, *new = replace->new;

	slot_getallattrs(old);
	slot_getallattrs(row);
	ExecClearTuple(new);
	for (int i = 0; i < new->tts_tupleDescriptor->natts; i++)
	{
		TupleTableSlot *from = replace->is_set[i] ? row : old;

		new->tts_values[i] = from->tts_values[i];
		new->tts_isnull[i] = from->tts_isnull[i];
	}
	ExecStoreVirtualTuple(new);
	new->tts_tableOid = RelationGetRelid(replace->target->ri_RelationDesc);
}

/* false: the row there changed or went meanwhile. What it may hold is looked at once it is ours. */
static bool
update_row(Replace *replace, ItemPointer tid, TupleTableSlot *row)
{
	Relation rel = replace->target->ri_RelationDesc;
	TM_FailureData failure;
	LockTupleMode mode;
	CompatIndexUpdate indexes;
	TM_Result result;

	if (!table_tuple_fetch_row_version(rel, tid, SnapshotAny, replace->old))
		return false;
	refuse_second(replace);
	form_new(replace, row);
	result = table_tuple_update(rel, tid, replace->new, GetCurrentCommandId(true), InvalidSnapshot, InvalidSnapshot, true, &failure, &mode, &indexes);
	if (result == TM_Updated || result == TM_Deleted)
		return false;
	if (result != TM_Ok)
		ereport(ERROR, (errcode(ERRCODE_INDEX_CORRUPTED), errmsg("a row of table \"%s\" that index \"%s\" gives cannot be updated", RelationGetRelationName(rel), get_rel_name(replace->index)),
						errdetail("The table answers with status %d.", result), errhint("Perhaps the index is damaged: REINDEX makes it again.")));
	if (RelationGetDescr(rel)->constr)
		ExecConstraints(replace->target, replace->new, replace->estate);
	if (compat_updates_indexes(indexes))
		compat_update_index_tuples(replace->target, replace->new, replace->estate, indexes);
	return true;
}

bool
replace_known(Replace *replace, TupleTableSlot *row)
{
	MemoryContext caller = MemoryContextSwitchTo(GetPerTupleMemoryContext(replace->estate));
	ItemPointerData tid;
	bool known = false;

	/* Waits for others who are inserting or deleting the key. */
	while (!known && !compat_check_index(replace->target, row, replace->estate, &tid, replace->arbiters))
	{
		CHECK_FOR_INTERRUPTS();
		known = update_row(replace, &tid, row);
		ExecClearTuple(replace->new);
		ExecClearTuple(replace->old);
	}
	MemoryContextSwitchTo(caller);
	ResetPerTupleExprContext(replace->estate);
	return known;
}

/* Our own row, of this command or the last. */
static void
take_back(Replace *replace, TupleTableSlot *row)
{
	Relation rel = replace->target->ri_RelationDesc;
	TM_FailureData failure;

	CommandCounterIncrement();
	if (table_tuple_delete(rel, &row->tts_tid, GetCurrentCommandId(true), InvalidSnapshot, InvalidSnapshot, true, &failure, false) != TM_Ok)
		ereport(ERROR, (errcode(ERRCODE_T_R_SERIALIZATION_FAILURE), errmsg("could not take back a row of table \"%s\" whose key another session inserted at the same time", RelationGetRelationName(rel)),
						errhint("The batch can be tried again.")));
}

bool
replace_enter(Replace *replace, TupleTableSlot *row)
{
	MemoryContext caller = MemoryContextSwitchTo(GetPerTupleMemoryContext(replace->estate));
	bool conflict = false;

	(void) compat_insert_index_tuples(replace->target, row, replace->estate, false, true, &conflict, replace->arbiters);
	if (conflict)
		take_back(replace, row);
	MemoryContextSwitchTo(caller);
	ResetPerTupleExprContext(replace->estate);
	return !conflict;
}
