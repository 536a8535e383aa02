/*
 * change_plugin.c: our output plugin: changes of committed transactions, in their order → rows in the reader's buffer.
 * What the log does not tell of a row makes it a bad one.
 * Danger: callbacks run under the catalogs of the past.
 */
#include "source/change_plugin.h"

#include "access/detoast.h"
#include "catalog/partition.h"
#include "catalog/pg_class.h"
#include "replication/logical.h"
#include "replication/output_plugin.h"
#include "util/compat.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/pg_lsn.h"
#include "utils/rel.h"

extern void _PG_output_plugin_init(OutputPluginCallbacks *callbacks);

/* ---- relations ---- */

static bool
relation_is_ours(ChangeDecoder *d, Oid relid, bool partition)
{
	Oid base = d->options->table.relid;

	return relid == base || (partition && list_member_oid(get_partition_ancestors(relid), base));
}

/* In the table itself by number, which a renamed column keeps; in its partitions by name. */
static AttrNumber
relation_column(ChangeDecoder *d, Relation rel, int column)
{
	TupleDesc desc = RelationGetDescr(rel);
	Form_pg_attribute att = TupleDescAttr(d->def->desc, column);

	if (d->relid == d->options->table.relid)
		return d->numbers[column] <= desc->natts && !TupleDescAttr(desc, d->numbers[column] - 1)->attisdropped ? d->numbers[column] : InvalidAttrNumber;
	for (int i = 0; i < desc->natts; i++)
		if (!TupleDescAttr(desc, i)->attisdropped && namestrcmp(&TupleDescAttr(desc, i)->attname, NameStr(att->attname)) == 0)
			return i + 1;
	return InvalidAttrNumber;
}

static void
relation_map(ChangeDecoder *d, Relation rel)
{
	TupleDesc own = d->def->desc;
	MemoryContext old = MemoryContextSwitchTo(d->context);

	d->relid = RelationGetRelid(rel);
	d->ours = relation_is_ours(d, d->relid, rel->rd_rel->relispartition);
	d->mapped = true;
	MemoryContextSwitchTo(old);
	MemoryContextReset(d->context);
	if (!d->ours)
		return;
	for (int i = 0; i < own->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(own, i);

		d->map[i] = att->attisdropped || d->options->columns[i] != CHANGE_TABLE_COLUMN ? InvalidAttrNumber : relation_column(d, rel, i);
		d->fits[i] = d->map[i] == InvalidAttrNumber || TupleDescAttr(RelationGetDescr(rel), d->map[i] - 1)->atttypid == att->atttypid;
	}
	d->full = rel->rd_rel->relreplident == REPLICA_IDENTITY_FULL;
	bms_free(d->key);
	old = MemoryContextSwitchTo(d->memory);
	d->key = RelationGetIndexAttrBitmap(rel, d->full ? INDEX_ATTR_BITMAP_PRIMARY_KEY : INDEX_ATTR_BITMAP_IDENTITY_KEY);
	MemoryContextSwitchTo(old);
}

static bool
relation_wanted(ChangeDecoder *d, Relation rel)
{
	if (!d->mapped || d->relid != RelationGetRelid(rel))
		relation_map(d, rel);
	return d->ours;
}

void
change_relation_changed(Datum arg, Oid relid)
{
	if (change_running)
		change_running->mapped = false;
}

/* ---- rows ---- */

static void
error_set(ChangeDecoder *d, char *message)
{
	if (!d->nulls[BUFFER_ERROR])
		return;
	d->values[BUFFER_ERROR] = CStringGetTextDatum(message);
	d->nulls[BUFFER_ERROR] = false;
}

/* A value of the log that outlives it. False: the log does not hold it. */
static bool
value_take(Form_pg_attribute att, Datum *value, bool isnull)
{
	if (isnull || att->attlen != -1 || !VARATT_IS_EXTERNAL(DatumGetPointer(*value)))
		return true;
	if (VARATT_IS_EXTERNAL_ONDISK(DatumGetPointer(*value)))
		return false;
	*value = PointerGetDatum(detoast_external_attr((struct varlena *) DatumGetPointer(*value)));
	return true;
}

/* A column of the table from the new row, else, where it was not touched, from the old one. */
static bool
column_take(ChangeDecoder *d, Relation rel, int i, bool has_new, bool has_old)
{
	Form_pg_attribute att = TupleDescAttr(RelationGetDescr(rel), d->map[i] - 1);
	int n = d->map[i] - 1;
	Datum *value = &d->values[BUFFER_OWN + i];
	bool *isnull = &d->nulls[BUFFER_OWN + i];

	if (has_new)
	{
		*value = d->new_values[n];
		*isnull = d->new_nulls[n];
		if (value_take(att, value, *isnull))
			return true;
		*isnull = true;
		if (!has_old || !d->full)
			return false;
	}
	*value = d->old_values[n];
	*isnull = d->old_nulls[n];
	return value_take(att, value, *isnull);
}

static void
row_begin(ChangeDecoder *d, ReorderBufferTXN *txn, const char *op)
{
	TupleDesc own = d->def->desc;

	memset(d->nulls, true, sizeof(bool) * (BUFFER_OWN + own->natts));
	d->values[BUFFER_LSN] = Int64GetDatum((int64) txn->end_lsn);
	d->values[BUFFER_ROW] = Int64GetDatum(++d->row);
	d->nulls[BUFFER_LSN] = d->nulls[BUFFER_ROW] = false;
	for (int i = 0; i < own->natts; i++)
	{
		Datum *value = &d->values[BUFFER_OWN + i];

		if (TupleDescAttr(own, i)->attisdropped || d->options->columns[i] == CHANGE_TABLE_COLUMN || d->options->columns[i] == CHANGE_UNCHANGED)
			continue;
		d->nulls[BUFFER_OWN + i] = false;
		if (d->options->columns[i] == CHANGE_OP)
			*value = CStringGetTextDatum(op);
		else if (d->options->columns[i] == CHANGE_LSN)
			*value = LSNGetDatum(txn->end_lsn);
		else
			*value = TimestampTzGetDatum(txn->xact_time.commit_time);
	}
}

static void
row_end(ChangeDecoder *d)
{
	if (change_position_compare((ChangePosition){(XLogRecPtr) DatumGetInt64(d->values[BUFFER_LSN]), d->row}, d->from) > 0)
		change_buffer_append(d->reader, d->values, d->nulls);
}

/* Names of columns the log does not hold: said in their column where there is one, else the row is of no use. */
static void
unchanged_set(ChangeDecoder *d, Datum *names, int n, bool keeps_place)
{
	if (n == 0)
		return;
	if (d->options->unchanged == InvalidAttrNumber || !keeps_place)
		error_set(d, psprintf("column \"%s\" is large and was not changed, so the log does not hold it", TextDatumGetCString(names[0])));
	else
	{
		d->values[BUFFER_OWN + d->options->unchanged - 1] = PointerGetDatum(construct_array(names, n, TEXTOID, -1, false, TYPALIGN_INT));
		d->nulls[BUFFER_OWN + d->options->unchanged - 1] = false;
	}
}

static void
row_add(ChangeDecoder *d, ReorderBufferTXN *txn, Relation rel, const char *op, bool has_new, bool has_old, bool keeps_place)
{
	TupleDesc own = d->def->desc;
	Datum *missing = palloc(sizeof(Datum) * own->natts);
	int n = 0;

	row_begin(d, txn, op);
	if (!has_new && !has_old)
		error_set(d, "the log does not say which row it was: the table has no replica identity");
	for (int i = 0; (has_new || has_old) && i < own->natts; i++)
	{
		char *name = NameStr(TupleDescAttr(own, i)->attname);

		if (d->map[i] == InvalidAttrNumber)
			continue;
		if (!d->fits[i])
			error_set(d, psprintf("column \"%s\" was of type %s then", name,
								  format_type_be(TupleDescAttr(RelationGetDescr(rel), d->map[i] - 1)->atttypid)));
		else if (!column_take(d, rel, i, has_new, has_old))
			missing[n++] = CStringGetTextDatum(name);
	}
	unchanged_set(d, missing, n, keeps_place);
	row_end(d);
}

/* Does the update move the row to another key? */
static bool
key_has_changed(ChangeDecoder *d, Relation rel)
{
	TupleDesc desc = RelationGetDescr(rel);
	int i = -1;

	while ((i = bms_next_member(d->key, i)) >= 0)
	{
		int n = i + FirstLowInvalidHeapAttributeNumber - 1;
		Form_pg_attribute att = TupleDescAttr(desc, n);

		if (d->old_nulls[n] != d->new_nulls[n])
			return true;
		if (!d->new_nulls[n] && att->attlen == -1 && VARATT_IS_EXTERNAL_ONDISK(DatumGetPointer(d->new_values[n])))
			continue; /* a large value that was not touched; it may not be there any more */
		if (!d->old_nulls[n] && !datum_image_eq(d->old_values[n], d->new_values[n], att->attbyval, att->attlen))
			return true;
	}
	return false;
}

static bool
tuple_take(HeapTuple tuple, Relation rel, Datum **values, bool **nulls)
{
	if (tuple == NULL)
		return false;
	*values = palloc(sizeof(Datum) * RelationGetNumberOfAttributes(rel));
	*nulls = palloc(sizeof(bool) * RelationGetNumberOfAttributes(rel));
	heap_deform_tuple(tuple, RelationGetDescr(rel), *values, *nulls);
	return true;
}

/* ---- the plugin ---- */

static void
plugin_startup(LogicalDecodingContext *ctx, OutputPluginOptions *options, bool is_init)
{
	if (change_running == NULL && !is_init)
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE), errmsg("output plugin \"%s\" serves changes sources only", CHANGE_PLUGIN),
						errhint("Let a streaming query read the slot, or use another plugin.")));
	options->output_type = OUTPUT_PLUGIN_BINARY_OUTPUT;
}

static bool
transaction_was_seen(ChangeReader *reader, TransactionId xid, XLogRecPtr end)
{
	Horizon *seen = reader->seen;

	if (seen == NULL || end > reader->slot->seen_until)
		return false;
	if (!TransactionIdPrecedes(xid, (TransactionId) seen->xmax))
		return false;
	for (int i = 0; i < seen->nxip; i++)
		if ((TransactionId) seen->xip[i] == xid)
			return false;
	return true;
}

static void
plugin_begin(LogicalDecodingContext *ctx, ReorderBufferTXN *txn)
{
	ChangeDecoder *d = change_running;

	d->row = 0;
	d->skip = txn->end_lsn < d->from.lsn || (txn->end_lsn == d->from.lsn && d->from.row == CHANGE_ALL) ||
			  transaction_was_seen(d->reader, txn->xid, txn->end_lsn);
}

static void
plugin_change(LogicalDecodingContext *ctx, ReorderBufferTXN *txn, Relation rel, ReorderBufferChange *change)
{
	ChangeDecoder *d = change_running;
	MemoryContext old;
	bool has_new, has_old, update = change->action == REORDER_BUFFER_CHANGE_UPDATE;

	if (d->skip || !relation_wanted(d, rel))
		return;
	old = MemoryContextSwitchTo(d->context);
	has_new = change->action != REORDER_BUFFER_CHANGE_DELETE && tuple_take(compat_decoded_tuple(change->data.tp.newtuple), rel, &d->new_values, &d->new_nulls);
	has_old = change->action != REORDER_BUFFER_CHANGE_INSERT && tuple_take(compat_decoded_tuple(change->data.tp.oldtuple), rel, &d->old_values, &d->old_nulls);
	if (update && has_new && has_old && key_has_changed(d, rel))
	{
		row_add(d, txn, rel, "d", false, true, true);
		row_add(d, txn, rel, "c", true, true, false);
	}
	else
		row_add(d, txn, rel, update ? "u" : has_new ? "c" : "d", has_new, has_old, true);
	MemoryContextSwitchTo(old);
	MemoryContextReset(d->context);
}

static void
plugin_truncate(LogicalDecodingContext *ctx, ReorderBufferTXN *txn, int nrelations, Relation relations[], ReorderBufferChange *change)
{
	ChangeDecoder *d = change_running;
	bool part = false, all = false;
	MemoryContext old;

	if (d->skip)
		return;
	for (int i = 0; i < nrelations; i++)
	{
		all = all || RelationGetRelid(relations[i]) == d->options->table.relid;
		part = part || relation_is_ours(d, RelationGetRelid(relations[i]), relations[i]->rd_rel->relispartition);
	}
	if (!all && !part)
		return;
	old = MemoryContextSwitchTo(d->context);
	row_begin(d, txn, "t");
	if (!all)
		error_set(d, "a partition was truncated: the log does not say which rows it had");
	row_end(d);
	MemoryContextSwitchTo(old);
	MemoryContextReset(d->context);
}

static void
plugin_commit(LogicalDecodingContext *ctx, ReorderBufferTXN *txn, XLogRecPtr lsn)
{
}

void
_PG_output_plugin_init(OutputPluginCallbacks *callbacks)
{
	callbacks->startup_cb = plugin_startup;
	callbacks->begin_cb = plugin_begin;
	callbacks->change_cb = plugin_change;
	callbacks->truncate_cb = plugin_truncate;
	callbacks->commit_cb = plugin_commit;
}
