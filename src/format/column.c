/*
 * column.c: the value of a column from its text. Plain forms of common types are read here; all else goes to the type's input function
 * (column_input.c), so that results, errors, typmods and domain checks are PostgreSQL's.
 * A fast path may refuse anything, but must never give another answer than the input function would.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "funcapi.h"
#include "mb/pg_wchar.h"
#include "nodes/makefuncs.h"
#include "utils/builtins.h"
#include "utils/date.h"
#include "utils/datetime.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/numeric.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"

#include "format/column.h"
#include "format/number.h"
#include "format/timestamp.h"
#include "format/utf8.h"

/* ---- what a column is ---- */

/* Input functions that hold nothing (buffers, cache references, locks) at a point where they may report bad data. */
static bool
type_is_trusted(Oid type)
{
	Oid element;

	switch (type)
	{
		case BOOLOID:
		case BYTEAOID:
		case CHAROID:
		case NAMEOID:
		case INT2OID:
		case INT4OID:
		case INT8OID:
		case FLOAT4OID:
		case FLOAT8OID:
		case NUMERICOID:
		case CASHOID:
		case OIDOID:
		case TEXTOID:
		case VARCHAROID:
		case BPCHAROID:
		case JSONOID:
		case JSONBOID:
		case DATEOID:
		case TIMEOID:
		case TIMETZOID:
		case TIMESTAMPOID:
		case TIMESTAMPTZOID:
		case INTERVALOID:
		case UUIDOID:
		case INETOID:
		case CIDROID:
		case MACADDROID:
		case MACADDR8OID:
		case BITOID:
		case VARBITOID:
		case POINTOID:
			return true;
		default:
			element = get_element_type(type);
			if (OidIsValid(element))
				return type_is_trusted(element);
			return get_typtype(type) == TYPTYPE_ENUM;
	}
}

static ColumnKind
fast_kind(Oid type, int32 typmod)
{
	switch (type)
	{
		case INT2OID:
			return COLUMN_INT2;
		case INT4OID:
			return COLUMN_INT4;
		case INT8OID:
			return COLUMN_INT8;
		case FLOAT4OID:
			return COLUMN_FLOAT4;
		case FLOAT8OID:
			return COLUMN_FLOAT8;
		case NUMERICOID:
			return COLUMN_NUMERIC;
		case BOOLOID:
			return COLUMN_BOOL;
		case TEXTOID:
		case VARCHAROID:
			return COLUMN_TEXT;
		case JSONOID:
			return COLUMN_JSON;
		case TIMESTAMPOID:
			return typmod < 0 ? COLUMN_TIMESTAMP : COLUMN_OTHER;
		case TIMESTAMPTZOID:
			return typmod < 0 ? COLUMN_TIMESTAMPTZ : COLUMN_OTHER;
		case DATEOID:
			return COLUMN_DATE;
		case UUIDOID:
			return COLUMN_UUID;
		default:
			return COLUMN_OTHER;
	}
}

/* A row type with this one column: what json_populate_record needs to be told. */
static void
init_populate(Column *column)
{
	Datum nothing = (Datum) 0;
	bool is_null = true;

	column->row_desc = CreateTemplateTupleDesc(1);
	TupleDescInitEntry(column->row_desc, 1, "c", column->type, column->typmod, 0);
	column->row_desc = BlessTupleDesc(column->row_desc);
	column->empty_row = HeapTupleGetDatum(heap_form_tuple(column->row_desc, &nothing, &is_null));
	fmgr_info(F_JSON_POPULATE_RECORD, &column->populate);
	fmgr_info_set_expr((Node *) makeFuncExpr(F_JSON_POPULATE_RECORD, RECORDOID,
											 list_make1(makeNullConst(RECORDOID, -1, InvalidOid)), InvalidOid,
											 InvalidOid, COERCE_EXPLICIT_CALL),
					   &column->populate);
}

void
column_init(Column *column, const DecoderConfig *config, int index)
{
	Form_pg_attribute attr = TupleDescAttr(config->desc, index);
	int32 base_typmod = attr->atttypmod;
	Oid input;

	memset(column, 0, sizeof(Column));
	column->index = index;
	column->name = pstrdup(NameStr(attr->attname));
	column->type = attr->atttypid;
	column->typmod = attr->atttypmod;
	column->base_type = getBaseTypeAndTypmod(column->type, &base_typmod);
	column->is_domain = column->base_type != column->type;
	column->not_null = attr->attnotnull;
	column->needed = config->needed == NULL || bms_is_member(attr->attnum, config->needed);
	column->is_json = column->base_type == JSONOID || column->base_type == JSONBOID;
	column->is_instant = column->base_type == TIMESTAMPOID || column->base_type == TIMESTAMPTZOID;
	column->by_populate = OidIsValid(get_element_type(column->base_type)) || type_is_rowtype(column->base_type);
	column->trusted = type_is_trusted(column->type);
	column->kind = column->is_domain ? COLUMN_OTHER : fast_kind(column->type, column->typmod);
	column->max_bytes = column->typmod < 0 ? INT_MAX : column->typmod - (int) VARHDRSZ;
	switch (config->timestamp_unit)
	{
		case TIMESTAMP_UNIT_NONE:
			column->epoch_shift = -1;
			break;
		case TIMESTAMP_UNIT_S:
			column->epoch_shift = 6;
			break;
		case TIMESTAMP_UNIT_MS:
			column->epoch_shift = 3;
			break;
		case TIMESTAMP_UNIT_US:
			column->epoch_shift = 0;
			break;
	}
	getTypeInputInfo(column->type, &input, &column->ioparam);
	fmgr_info(input, &column->input);
	if (column->by_populate)
		init_populate(column);
}

/* ---- fast paths; each is false when the general way has to decide ---- */

static inline bool
text_fits(const Column *column, const char *p, size_t len)
{
	return len <= column->max_bytes && (GetDatabaseEncoding() == PG_UTF8 || utf8_is_ascii(p, len));
}

static inline Datum
make_text(const Column *column, const char *p, size_t len)
{
	return column->needed ? PointerGetDatum(cstring_to_text_with_len(p, len)) : (Datum) 0;
}

/* Within the typmod no rounding happens, and the scale is the typmod's. */
static bool
fast_numeric(const Column *column, const char *p, size_t len, Datum *value)
{
	static const int64 power[] = {1, 10, 100, 1000, 10000, 100000, 1000000, 10000000, 100000000};
	Decimal number;

	if (!number_read_decimal(p, len, &number) || number.scale > 18)
		return false;
	if (column->typmod >= (int32) VARHDRSZ)
	{
		int precision = ((column->typmod - VARHDRSZ) >> 16) & 0xffff;
		int scale = (((column->typmod - VARHDRSZ) & 0x7ff) ^ 1024) - 1024;
		int more = scale - number.scale;

		if (more < 0 || more >= lengthof(power) || number.digits + more > Min(18, precision))
			return false;
		number.mantissa *= power[more];
		number.scale = scale;
	}
	*value = NumericGetDatum(number.scale == 0 ? int64_to_numeric(number.mantissa)
											   : int64_div_fast_to_numeric(number.mantissa, number.scale));
	return true;
}

static bool
fast_number(const Column *column, const char *p, size_t len, Datum *value)
{
	int64 integer;
	double real;
	float single;

	switch (column->kind)
	{
		case COLUMN_INT2:
			if (!number_read_int64(p, len, &integer) || integer < PG_INT16_MIN || integer > PG_INT16_MAX)
				return false;
			*value = Int16GetDatum((int16) integer);
			return true;
		case COLUMN_INT4:
			if (!number_read_int64(p, len, &integer) || integer < PG_INT32_MIN || integer > PG_INT32_MAX)
				return false;
			*value = Int32GetDatum((int32) integer);
			return true;
		case COLUMN_INT8:
			if (!number_read_int64(p, len, &integer))
				return false;
			*value = Int64GetDatum(integer);
			return true;
		case COLUMN_FLOAT4:
			if (!number_read_float(p, len, &single))
				return false;
			*value = Float4GetDatum(single);
			return true;
		case COLUMN_FLOAT8:
			if (!number_read_double(p, len, &real))
				return false;
			*value = Float8GetDatum(real);
			return true;
		case COLUMN_NUMERIC:
			return fast_numeric(column, p, len, value);
		default:
			return false;
	}
}

/* A time without zone is local time of the session. */
static Timestamp
instant_of(const Column *column, const TimestampText *text)
{
	Timestamp local = timestamp_local(text);
	struct pg_tm tm = {0};

	if (column->kind == COLUMN_TIMESTAMP)
		return local;
	if (text->has_zone)
		return local - text->zone * USECS_PER_SEC;
	tm.tm_year = text->year;
	tm.tm_mon = text->month;
	tm.tm_mday = text->day;
	tm.tm_hour = text->hour;
	tm.tm_min = text->minute;
	tm.tm_sec = text->second;
	return local + DetermineTimeZoneOffset(&tm, session_timezone) * USECS_PER_SEC;
}

static bool
fast_uuid(const char *p, size_t len, Datum *value)
{
	pg_uuid_t *uuid;
	unsigned char bytes[UUID_LEN];

	if (len != 36 || p[8] != '-' || p[13] != '-' || p[18] != '-' || p[23] != '-')
		return false;
	for (int i = 0, at = 0; i < UUID_LEN; i++, at += 2)
	{
		if (p[at] == '-')
			at++;
		if (!isxdigit((unsigned char) p[at]) || !isxdigit((unsigned char) p[at + 1]))
			return false;
		bytes[i] = (p[at] <= '9' ? p[at] - '0' : (p[at] | 0x20) - 'a' + 10) << 4 |
				   (p[at + 1] <= '9' ? p[at + 1] - '0' : (p[at + 1] | 0x20) - 'a' + 10);
	}
	uuid = palloc(sizeof(pg_uuid_t));
	memcpy(uuid->data, bytes, UUID_LEN);
	*value = UUIDPGetDatum(uuid);
	return true;
}

static bool
fast_string(const Column *column, const char *p, size_t len, Datum *value)
{
	TimestampText text;
	DateADT days;

	switch (column->kind)
	{
		case COLUMN_TEXT:
			if (!text_fits(column, p, len))
				return false;
			*value = make_text(column, p, len);
			return true;
		case COLUMN_TIMESTAMP:
		case COLUMN_TIMESTAMPTZ:
			if (!timestamp_read(p, len, &text))
				return false;
			*value = TimestampGetDatum(instant_of(column, &text));
			return true;
		case COLUMN_DATE:
			if (!timestamp_read_date(p, len, &days))
				return false;
			*value = DateADTGetDatum(days);
			return true;
		case COLUMN_UUID:
			return fast_uuid(p, len, value);
		default:
			return fast_number(column, p, len, value);
	}
}

/* ---- entry points ---- */

bool
column_from_string(Column *column, const char *p, size_t len, Datum *value, DecodeError *error)
{
	return fast_string(column, p, len, value) || column_input(column, p, len, value, error);
}

bool
column_from_number(Column *column, const char *p, size_t len, Datum *value, DecodeError *error)
{
	if (fast_number(column, p, len, value))
		return true;
	if (column->is_instant)
		return column_epoch(column, p, len, value, error);
	if (column->by_populate || column->is_json)
		return column_from_json(column, p, len, value, error);
	return column_from_string(column, p, len, value, error);
}

bool
column_from_bool(Column *column, bool flag, Datum *value, DecodeError *error)
{
	const char *word = flag ? "true" : "false";

	if (column->kind == COLUMN_BOOL)
	{
		*value = BoolGetDatum(flag);
		return true;
	}
	if (column->by_populate || column->is_json)
		return column_from_json(column, word, strlen(word), value, error);
	return column_from_string(column, word, strlen(word), value, error);
}

bool
column_from_json(Column *column, const char *p, size_t len, Datum *value, DecodeError *error)
{
	if (column->by_populate)
		return column_populate(column, p, len, value, error);
	/* The scanner has checked more than json's input function does. */
	if ((column->kind == COLUMN_JSON || column->kind == COLUMN_TEXT) && text_fits(column, p, len))
	{
		*value = make_text(column, p, len);
		return true;
	}
	return column_input(column, p, len, value, error);
}
