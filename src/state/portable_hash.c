/*
 * portable_hash.c: a value hashed part by part, without what is an enum in it.
 * Labels share a hash: they are few, and whoever looks for one reads the others' keys as well, so that a label that was renamed since is an error, as
 * everywhere, not a key that is not found. Arrays and ranges of enums share one, too, which is slow and right.
 */
#include "state/portable_hash.h"

#include "access/htup_details.h"
#include "common/hashfn.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/lsyscache.h"
#include "utils/typcache.h"

static bool
row_has_enum(Oid type)
{
	TupleDesc desc = lookup_rowtype_tupdesc(type, -1);
	bool found = false;

	check_stack_depth();
	for (int i = 0; i < desc->natts && !found; i++)
		found = !TupleDescAttr(desc, i)->attisdropped && type_has_enum(TupleDescAttr(desc, i)->atttypid);
	ReleaseTupleDesc(desc);
	return found;
}

bool
type_has_enum(Oid type)
{
	Oid base = getBaseType(type);
	Oid element = get_element_type(base);

	if (OidIsValid(element))
		return type_has_enum(element);
	switch (get_typtype(base))
	{
		case TYPTYPE_ENUM:
			return true;
		case TYPTYPE_COMPOSITE:
			return row_has_enum(base);
		case TYPTYPE_RANGE:
			return type_has_enum(get_range_subtype(base));
		case TYPTYPE_MULTIRANGE:
			return type_has_enum(get_multirange_range(base));
		default:
			return false;
	}
}

static uint64
hash_elements(Oid element, Oid collation, Datum value)
{
	uint64 hash = 0;
	int16 length;
	bool by_value;
	char align;
	Datum *elements;
	bool *nulls;
	int n;

	get_typlenbyvalalign(element, &length, &by_value, &align);
	deconstruct_array(DatumGetArrayTypeP(value), element, length, by_value, align, &elements, &nulls, &n);
	for (int i = 0; i < n; i++)
		hash = hash_combine64(hash, nulls[i] ? 0 : portable_hash(element, collation, elements[i]));
	return hash;
}

static uint64
hash_fields(Datum value)
{
	HeapTupleHeader header = DatumGetHeapTupleHeader(value);
	TupleDesc desc = lookup_rowtype_tupdesc(HeapTupleHeaderGetTypeId(header), HeapTupleHeaderGetTypMod(header));
	HeapTupleData tuple = {.t_len = HeapTupleHeaderGetDatumLength(header), .t_data = header};
	Datum *values = palloc(sizeof(Datum) * Max(desc->natts, 1));
	bool *nulls = palloc(Max(desc->natts, 1));
	uint64 hash = 0;

	heap_deform_tuple(&tuple, desc, values, nulls);
	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute field = TupleDescAttr(desc, i);

		if (!field->attisdropped)
			hash = hash_combine64(hash, nulls[i] ? 0 : portable_hash(field->atttypid, field->attcollation, values[i]));
	}
	ReleaseTupleDesc(desc);
	return hash;
}

/* As the type itself does. */
static uint64
hash_plain(Oid type, Oid collation, Datum value)
{
	TypeCacheEntry *entry = lookup_type_cache(type, TYPECACHE_HASH_EXTENDED_PROC_FINFO);

	if (!OidIsValid(entry->hash_extended_proc))
		return 0;
	return DatumGetUInt64(FunctionCall2Coll(&entry->hash_extended_proc_finfo, collation, value, Int64GetDatum(0)));
}

uint64
portable_hash(Oid type, Oid collation, Datum value)
{
	Oid base = getBaseType(type);
	Oid element = get_element_type(base);

	check_stack_depth();
	if (!type_has_enum(base))
		return hash_plain(base, collation, value);
	if (OidIsValid(element))
		return hash_elements(element, collation, value);
	return get_typtype(base) == TYPTYPE_COMPOSITE ? hash_fields(value) : 0;
}
