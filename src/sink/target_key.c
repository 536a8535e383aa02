/*
 * target_key.c: the unique index over the key of a target that is upserted into: found, made, or missed. NULLs must be equal in it, else a NULL group would be
 * added again in every batch.
 */
#include "sink/target.h"

#include "access/genam.h"
#include "access/table.h"
#include "miscadmin.h"
#include "util/compat.h"
#include "utils/acl.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/relcache.h"

/* The index of a target that holds one row at most: unique over the constant 1. */
static bool
index_is_single_row(Relation index)
{
	List *exprs = RelationGetIndexExpressions(index);
	Const *one;

	if (index->rd_index->indnkeyatts != 1 || list_length(exprs) != 1 || !IsA(linitial(exprs), Const))
		return false;
	one = linitial_node(Const, exprs);
	return one->consttype == INT4OID && !one->constisnull && DatumGetInt32(one->constvalue) == 1;
}

static bool
index_covers_key(Relation index, Bitmapset *key)
{
	Bitmapset *columns = NULL;

	if (bms_is_empty(key))
		return index_is_single_row(index);
	for (int i = 0; i < index->rd_index->indnkeyatts; i++)
		if (index->rd_index->indkey.values[i] <= 0)
			return false;
		else
			columns = bms_add_member(columns, index->rd_index->indkey.values[i]);
	return bms_equal(columns, key);
}

/* Usable for ON CONFLICT, and NULL keys cannot come twice: NULLS NOT DISTINCT, or no key column can be NULL. */
static bool
index_is_usable(Relation index, Relation rel, bool *nulls_repeat)
{
	Form_pg_index form = index->rd_index;

	*nulls_repeat = false;
	if (!form->indisunique || !form->indimmediate || !form->indisvalid || RelationGetIndexPredicate(index) != NIL)
		return false;
	if (!form->indnullsnotdistinct)
		for (int i = 0; i < form->indnkeyatts; i++)
		{
			AttrNumber column = form->indkey.values[i];

			if (column > 0 && !TupleDescAttr(RelationGetDescr(rel), column - 1)->attnotnull)
				*nulls_repeat = true;
		}
	return true;
}

/* ON CONFLICT looks at every index with these columns, and stops at such a one. */
static void
refuse_deferrable(const char *target, Relation index)
{
	ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					errmsg("target %s has a deferrable unique constraint on the key of its rows", target),
					errdetail("Rows cannot be replaced by the key of \"%s\".", RelationGetRelationName(index)), errhint("Make it NOT DEFERRABLE, or drop it.")));
}

static bool
key_index_exists(Relation rel, const char *target, Bitmapset *key, bool *nulls_repeat)
{
	List *indexes = RelationGetIndexList(rel);
	bool found = false;
	ListCell *lc;

	*nulls_repeat = false;
	foreach (lc, indexes)
	{
		Relation index = index_open(lfirst_oid(lc), AccessShareLock);
		bool repeat;

		if (index->rd_index->indisunique && !index->rd_index->indimmediate && index_covers_key(index, key))
			refuse_deferrable(target, index);
		if (index_is_usable(index, rel, &repeat) && index_covers_key(index, key))
		{
			if (repeat)
				*nulls_repeat = true;
			else
				found = true;
		}
		index_close(index, NoLock);
	}
	return found;
}

static void
key_refuse(Target *target, SinkDef *def, bool nulls_repeat)
{
	char *columns = target->key ? target_column_list(target->key) : pstrdup("(1)");

	ereport(ERROR,
			(errcode(ERRCODE_INVALID_COLUMN_REFERENCE),
			 errmsg("target %s of query \"%s\" has no usable unique index on its key (%s)", target->name, def->query_name, columns),
			 nulls_repeat ? errdetail("There is a unique index, but it lets NULL keys repeat.")
						  : errdetail("Update mode replaces the rows of earlier batches by their key."),
			 errhint("CREATE UNIQUE INDEX ON %s (%s) NULLS NOT DISTINCT; or name another key in the table sink's option \"key\".", target->name,
					 columns)));
}

void
target_check_key(Target *target, SinkDef *def, bool make)
{
	Relation rel = table_open(target->relid, AccessShareLock);
	Bitmapset *key = NULL;
	bool nulls_repeat, exists;
	ListCell *lc;

	foreach (lc, target->key)
	{
		AttrNumber column = get_attnum(target->relid, strVal(lfirst(lc)));

		if (column <= 0)
			ereport(ERROR, (errcode(ERRCODE_UNDEFINED_COLUMN),
							errmsg("target %s of query \"%s\" lacks the key column \"%s\"", target->name, def->query_name, strVal(lfirst(lc)))));
		key = bms_add_member(key, column);
	}
	exists = key_index_exists(rel, target->name, key, &nulls_repeat);
	table_close(rel, NoLock);
	if (exists)
		return;
	if (nulls_repeat || !make || !pg_class_ownercheck(target->relid, GetUserId()))
		key_refuse(target, def, nulls_repeat);
	target_execute(psprintf("CREATE UNIQUE INDEX ON %s (%s) NULLS NOT DISTINCT", target->name,
						 target->key ? target_column_list(target->key) : "(1)"));
}
