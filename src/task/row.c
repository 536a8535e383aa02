/*
 * row.c: rows between processes, cheaper than tuples: a mark per column, then the datums, each at a multiple of eight bytes. Nothing is copied on the
 * reading side: what is by reference points into the block.
 */
#include "task/message.h"

#include "access/detoast.h"

void
row_shape_init(RowShape *shape, TupleDesc desc, Bitmapset *needed)
{
	shape->desc = desc;
	shape->ncolumns = 0;
	shape->columns = palloc(sizeof(int) * Max(desc->natts, 1));
	for (int i = 0; i < desc->natts; i++)
		if (!TupleDescAttr(desc, i)->attisdropped && (needed == NULL || bms_is_member(i + 1, needed)))
			shape->columns[shape->ncolumns++] = i;
}

/* At least one, so that no row is nothing. */
static inline int
row_marks(const RowShape *shape)
{
	return TYPEALIGN(8, Max(shape->ncolumns, 1));
}

static void
block_align(StringInfo block)
{
	static const char zeros[8] = {0};

	appendBinaryStringInfo(block, zeros, TYPEALIGN(8, block->len) - block->len);
}

static void
datum_write(StringInfo block, Form_pg_attribute att, Datum value)
{
	if (att->attbyval)
		appendBinaryStringInfo(block, (char *) &value, sizeof(Datum));
	else if (att->attlen > 0)
		appendBinaryStringInfo(block, DatumGetPointer(value), att->attlen);
	else if (att->attlen == -2)
		appendBinaryStringInfo(block, DatumGetCString(value), strlen(DatumGetCString(value)) + 1);
	else
	{
		struct varlena *bytes = (struct varlena *) DatumGetPointer(value);

		if (VARATT_IS_EXTERNAL(bytes))
			bytes = detoast_external_attr(bytes);
		appendBinaryStringInfo(block, (char *) bytes, VARSIZE_ANY(bytes));
	}
	block_align(block);
}

void
row_write(const RowShape *shape, StringInfo block, TupleTableSlot *slot)
{
	int marks = row_marks(shape);

	enlargeStringInfo(block, marks);
	memset(block->data + block->len, 0, marks);
	for (int i = 0; i < shape->ncolumns; i++)
		block->data[block->len + i] = slot->tts_isnull[shape->columns[i]];
	block->len += marks;
	for (int i = 0; i < shape->ncolumns; i++)
	{
		int column = shape->columns[i];

		if (!slot->tts_isnull[column])
			datum_write(block, TupleDescAttr(shape->desc, column), slot->tts_values[column]);
	}
}

static inline Size
datum_size(Form_pg_attribute att, const char *at)
{
	if (att->attbyval)
		return sizeof(Datum);
	if (att->attlen > 0)
		return att->attlen;
	return att->attlen == -2 ? strlen(at) + 1 : VARSIZE_ANY(at);
}

const char *
row_read(const RowShape *shape, const char *at, TupleTableSlot *slot)
{
	const char *nulls = at;

	at += row_marks(shape);
	memset(slot->tts_isnull, true, sizeof(bool) * shape->desc->natts);
	for (int i = 0; i < shape->ncolumns; i++)
	{
		int column = shape->columns[i];
		Form_pg_attribute att = TupleDescAttr(shape->desc, column);

		if (nulls[i])
			continue;
		slot->tts_isnull[column] = false;
		slot->tts_values[column] = att->attbyval ? *(const Datum *) at : PointerGetDatum(at);
		at += TYPEALIGN(8, datum_size(att, at));
	}
	return at;
}
