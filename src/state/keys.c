/*
 * keys.c: hashing, comparing, forming and packing the keys of state.
 * Every row of a stateful query passes key_hash and key_equals: no allocation there, functions are called only where bytes do not decide.
 * key_hash lives in one process only; key_hash_stored and the bytes of key_write find and identify keys in the tables.
 */
#include "state/keys.h"

#include "access/htup_details.h"
#include "access/nbtree.h"
#include "catalog/pg_type.h"
#include "common/hashfn.h"
#include "state/portable_hash.h"
#include "util/compat.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/typcache.h"

/* ---- types ---- */

/* Where btree may deduplicate by image, image and value are one. */
static bool
image_decides(Oid eq_operator, Oid collation)
{
	Oid left, right, procedure;
	TypeCacheEntry *entry;

	op_input_types(eq_operator, &left, &right);
	entry = lookup_type_cache(left, TYPECACHE_EQ_OPR | TYPECACHE_BTREE_OPFAMILY);
	if (left != right || entry->eq_opr != eq_operator || !OidIsValid(entry->btree_opf))
		return false;
	procedure = get_opfamily_proc(entry->btree_opf, entry->btree_opintype, entry->btree_opintype, BTEQUALIMAGE_PROC);
	return OidIsValid(procedure) &&
		   DatumGetBool(OidFunctionCall1Coll(procedure, collation, ObjectIdGetDatum(entry->btree_opintype)));
}

/* A range, such as a window, is its flags and its bounds: the same holds where it holds for the bounds, and these leave no choice of how to lie. */
static bool
range_image_decides(Oid type, Oid eq_operator)
{
	TypeCacheEntry *range, *bound;

	if (get_opcode(eq_operator) != F_RANGE_EQ || !type_is_range(type))
		return false;
	range = lookup_type_cache(type, TYPECACHE_RANGE_INFO);
	bound = lookup_type_cache(range->rngelemtype->type_id, TYPECACHE_EQ_OPR | TYPECACHE_CMP_PROC);
	return bound->typlen > 0 && bound->cmp_proc == range->rng_cmp_proc_finfo.fn_oid && image_decides(bound->eq_opr, InvalidOid);
}

/* What hash indexes and hash partitions stand on as well: it stays what it is, but for what enums are hashed by. */
static void
stored_hash_lookup(KeyColumn *column, Oid type, Oid eq_operator)
{
	Oid left, right;
	TypeCacheEntry *entry;

	op_input_types(eq_operator, &left, &right);
	entry = lookup_type_cache(left, TYPECACHE_HASH_OPFAMILY | TYPECACHE_HASH_EXTENDED_PROC);
	column->by_parts = type_has_enum(type) ? type : InvalidOid;
	column->extended = OidIsValid(entry->hash_extended_proc) && op_in_opfamily(eq_operator, entry->hash_opf);
	if (column->extended)
		fmgr_info(entry->hash_extended_proc, &column->stored_hash);
	else
		column->stored_hash = column->hash;
}

KeyType *
key_type_create(const StateSchema *schema)
{
	KeyType *type = palloc0(sizeof(KeyType));

	type->row = row_codec_create(schema->keydesc);
	type->ncolumns = schema->keydesc->natts;
	type->columns = palloc0(sizeof(KeyColumn) * Max(type->ncolumns, 1));
	type->scratch = AllocSetContextCreate(CurrentMemoryContext, "stream state key", ALLOCSET_SMALL_SIZES);
	for (int i = 0; i < type->ncolumns; i++)
	{
		Form_pg_attribute attribute = TupleDescAttr(schema->keydesc, i);
		KeyColumn *column = &type->columns[i];
		Oid hash_left, hash_right;

		column->length = attribute->attlen;
		column->by_value = attribute->attbyval;
		column->collation = schema->collations[i];
		column->image_decides = image_decides(schema->eq_operators[i], column->collation) ||
								range_image_decides(attribute->atttypid, schema->eq_operators[i]);
		if (!get_op_hash_functions(schema->eq_operators[i], &hash_left, &hash_right))
			ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
							errmsg("a streaming query cannot keep state by a key of type %s", format_type_be(attribute->atttypid)),
							errdetail("The type cannot be hashed."), errhint("Cast the key to a type that can be, such as text.")));
		fmgr_info(hash_left, &column->hash);
		fmgr_info(get_opcode(schema->eq_operators[i]), &column->equal);
		stored_hash_lookup(column, attribute->atttypid, schema->eq_operators[i]);
	}
	return type;
}

void
state_check_key(const StateSchema *schema)
{
	KeyType *type = key_type_create(schema);

	MemoryContextDelete(type->scratch);
	MemoryContextDelete(type->row->scratch);
}

static inline bool
is_plain(Datum value)
{
	return !VARATT_IS_EXTERNAL(DatumGetPointer(value)) && !VARATT_IS_COMPRESSED(DatumGetPointer(value));
}

/* Of a process's own, so it may be quick: two lanes of eight bytes a step, the last bytes perhaps twice. */
static inline uint32
hash_image(const char *bytes, Size length)
{
	const uint64 prime = UINT64CONST(0x9E3779B97F4A7C15);
	uint64 hash = length * prime, other = prime, word = 0, second;
	Size at = 0;

	for (; at + 16 <= length; at += 16)
	{
		memcpy(&word, bytes + at, 8);
		memcpy(&second, bytes + at + 8, 8);
		hash = (hash ^ word) * prime;
		hash ^= hash >> 32;
		other = (other ^ second) * prime;
		other ^= other >> 32;
	}
	if (at + 8 <= length)
	{
		memcpy(&word, bytes + at, 8);
		hash = (hash ^ word) * prime;
		hash ^= hash >> 32;
	}
	if (length >= 8)
		memcpy(&word, bytes + length - 8, 8);
	else
		memcpy(&word, bytes, length);
	hash = (hash ^ other ^ word) * prime;
	return (uint32) (hash ^ (hash >> 32));
}

static inline uint32
hash_column(KeyType *type, KeyColumn *column, Datum value)
{
	MemoryContext caller;
	uint32 hash;

	if (column->image_decides && column->by_value)
		return murmurhash32((uint32) value ^ (uint32) (value >> 32));
	if (column->image_decides && column->length > 0)
		return hash_image(DatumGetPointer(value), column->length);
	if (column->image_decides && column->length == -1 && is_plain(value))
		return hash_image(VARDATA_ANY(DatumGetPointer(value)), VARSIZE_ANY_EXHDR(DatumGetPointer(value)));

	caller = MemoryContextSwitchTo(type->scratch);
	if (column->image_decides && column->length == -1)
	{
		struct varlena *flat = PG_DETOAST_DATUM_PACKED(value);

		hash = hash_image(VARDATA_ANY(flat), VARSIZE_ANY_EXHDR(flat));
	}
	else
		hash = DatumGetUInt32(FunctionCall1Coll(&column->hash, column->collation, value));
	MemoryContextSwitchTo(caller);
	return hash;
}

uint32
key_hash(KeyType *type, const Datum *values, const bool *nulls)
{
	uint32 hash = 0;

	if (!type->scratch->isReset)
		MemoryContextReset(type->scratch);
	for (int i = 0; i < type->ncolumns; i++)
	{
		hash = (hash << 1) | (hash >> 31);
		if (!nulls[i])
			hash ^= hash_column(type, &type->columns[i], values[i]);
	}
	return murmurhash32(hash);
}

uint64
key_hash_stored(KeyType *type, int from, int to, const Datum *values, const bool *nulls)
{
	MemoryContext caller;
	uint64 hash = 0;

	if (!type->scratch->isReset)
		MemoryContextReset(type->scratch);
	caller = MemoryContextSwitchTo(type->scratch);
	for (int i = from; i < to; i++)
	{
		KeyColumn *column = &type->columns[i];
		uint64 part = 0;

		if (!nulls[i] && OidIsValid(column->by_parts))
			part = portable_hash(column->by_parts, column->collation, values[i]);
		else if (!nulls[i] && column->extended)
			part = DatumGetUInt64(FunctionCall2Coll(&column->stored_hash, column->collation, values[i], Int64GetDatum(0)));
		else if (!nulls[i])
			part = hash_bytes_uint32_extended(DatumGetUInt32(FunctionCall1Coll(&column->stored_hash, column->collation, values[i])), 0);
		hash = hash_combine64(hash, part);
	}
	MemoryContextSwitchTo(caller);
	return hash;
}

typedef enum ImageVerdict
{
	IMAGE_EQUAL,
	IMAGE_DIFFERENT,
	IMAGE_UNKNOWN /* toasted, or the like */
} ImageVerdict;

static inline ImageVerdict
compare_image(KeyColumn *column, Datum a, Datum b)
{
	if (column->by_value)
		return a == b ? IMAGE_EQUAL : IMAGE_DIFFERENT;
	if (column->length > 0)
		return memcmp(DatumGetPointer(a), DatumGetPointer(b), column->length) == 0 ? IMAGE_EQUAL : IMAGE_DIFFERENT;
	if (column->length == -2)
		return strcmp(DatumGetCString(a), DatumGetCString(b)) == 0 ? IMAGE_EQUAL : IMAGE_DIFFERENT;
	if (!is_plain(a) || !is_plain(b))
		return IMAGE_UNKNOWN;
	if (VARSIZE_ANY_EXHDR(DatumGetPointer(a)) == VARSIZE_ANY_EXHDR(DatumGetPointer(b)) &&
		memcmp(VARDATA_ANY(DatumGetPointer(a)), VARDATA_ANY(DatumGetPointer(b)), VARSIZE_ANY_EXHDR(DatumGetPointer(a))) == 0)
		return IMAGE_EQUAL;
	return IMAGE_DIFFERENT;
}

static bool
equal_column(KeyType *type, KeyColumn *column, Datum a, Datum b)
{
	ImageVerdict verdict = compare_image(column, a, b);
	MemoryContext caller;
	bool equal;

	if (verdict == IMAGE_EQUAL)
		return true;
	if (verdict == IMAGE_DIFFERENT && column->image_decides)
		return false;
	caller = MemoryContextSwitchTo(type->scratch);
	equal = DatumGetBool(FunctionCall2Coll(&column->equal, column->collation, a, b));
	MemoryContextSwitchTo(caller);
	return equal;
}

void
key_deform(KeyType *type, MinimalTuple key, Datum *values, bool *nulls)
{
	row_codec_deform(type->row, key, values, nulls);
}

bool
key_equals(KeyType *type, MinimalTuple key, const Datum *values, const bool *nulls)
{
	RowCodec *row = type->row;

	row_codec_deform(row, key, row->values, row->nulls);
	for (int i = 0; i < type->ncolumns; i++)
	{
		if (row->nulls[i] != nulls[i])
			return false;
		if (!nulls[i] && !equal_column(type, &type->columns[i], row->values[i], values[i]))
			return false;
	}
	return true;
}

MinimalTuple
key_form(KeyType *type, const Datum *values, const bool *nulls)
{
	RowCodec *row = type->row;
	MemoryContext caller = CurrentMemoryContext;

	for (int i = 0; i < type->ncolumns; i++)
	{
		row->nulls[i] = nulls[i];
		row->values[i] = values[i];
		if (!nulls[i] && type->columns[i].length == -1 && !is_plain(values[i]))
		{
			MemoryContextSwitchTo(type->scratch);
			row->values[i] = PointerGetDatum(PG_DETOAST_DATUM_COPY(values[i]));
			MemoryContextSwitchTo(caller);
		}
	}
	return heap_form_minimal_tuple(row->desc, row->values, row->nulls);
}

void
key_write(KeyType *type, MinimalTuple key, StringInfo out)
{
	row_codec_write(type->row, key, out);
}

MinimalTuple
key_read(KeyType *type, const char *bytes, uint32 length)
{
	return row_codec_read(type->row, bytes, length);
}
