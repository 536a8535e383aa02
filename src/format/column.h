/*
 * column.h: text, numbers and JSON pieces → the value of one column, by a fast path or by the type's own input function.
 * Bytes come in as valid UTF-8 and are converted to the database's encoding here. Errors in the data come back as values.
 */
#ifndef STREAM_FORMAT_COLUMN_H
#define STREAM_FORMAT_COLUMN_H

#include "postgres.h"
#include "fmgr.h"
#include "format/format.h"

typedef enum ColumnKind
{
	COLUMN_OTHER, /* by the input function only */
	COLUMN_INT2,
	COLUMN_INT4,
	COLUMN_INT8,
	COLUMN_FLOAT4,
	COLUMN_FLOAT8,
	COLUMN_NUMERIC,
	COLUMN_BOOL,
	COLUMN_TEXT, /* text, varchar */
	COLUMN_JSON,
	COLUMN_TIMESTAMP,
	COLUMN_TIMESTAMPTZ,
	COLUMN_DATE,
	COLUMN_UUID
} ColumnKind;

typedef struct Column
{
	int index; /* attnum − 1 */
	const char *name;
	Oid type;
	int32 typmod;
	ColumnKind kind; /* fast path; OTHER for domains and for types whose typmod changes values */
	Oid base_type;	 /* below the domains */
	bool needed;
	bool not_null;
	bool is_domain;	  /* its constraints see NULLs too */
	bool is_json;	  /* json or jsonb below the domains: takes JSON as it stands */
	bool is_instant;  /* timestamp or timestamptz below the domains: numbers count timestamp_unit */
	bool by_populate; /* array or composite: filled as json_populate_record does */
	bool trusted;	  /* input may fail in mid-course without leaving anything behind: no subtransaction */
	int epoch_shift;  /* timestamp_unit as a power of ten of microseconds; -1: none */
	int max_bytes;	  /* COLUMN_TEXT: strings up to that many bytes fit whatever they hold */
	FmgrInfo input;
	Oid ioparam;
	FmgrInfo populate; /* by_populate: json_populate_record over a row of this one column */
	TupleDesc row_desc;
	Datum empty_row;
} Column;

extern void column_init(Column *column, const DecoderConfig *config, int index);

/*
 * False: *error says why. *value is set on true only; a column is never NULL after these. Of a column that is not needed the value may be
 * left out.
 */
extern bool column_from_string(Column *column, const char *p, size_t len, Datum *value, DecodeError *error);
extern bool column_from_number(Column *column, const char *p, size_t len, Datum *value, DecodeError *error);
extern bool column_from_bool(Column *column, bool flag, Datum *value, DecodeError *error);
/* An object or an array; for is_json anything. */
extern bool column_from_json(Column *column, const char *p, size_t len, Datum *value, DecodeError *error);

/* The general ways, called by those above: the input function; json_populate_record; numbers as instants. */
extern bool column_input(Column *column, const char *p, size_t len, Datum *value, DecodeError *error);
extern bool column_populate(Column *column, const char *p, size_t len, Datum *value, DecodeError *error);
extern bool column_epoch(Column *column, const char *p, size_t len, Datum *value, DecodeError *error);
/* Is NULL allowed? */
extern bool column_take_null(Column *column, DecodeError *error);

/*
 * What becomes of a value that was made (good) or not: on_bad_row 'null' lets an unreadable one be NULL, and one that is not needed is left out.
 */
static inline bool
column_settle(Column *column, bool good, bool null_on_error, Datum *value, bool *isnull, DecodeError *error)
{
	if (!good)
	{
		if (!null_on_error || *isnull || !column_take_null(column, error))
			return false;
		*isnull = true;
	}
	if (*isnull || !column->needed)
	{
		*isnull = true;
		*value = (Datum) 0;
	}
	return true;
}

/* Fills *error; column may be NULL, else the message begins with its name. Always false, so that callers can return it. */
extern bool decode_fail(DecodeError *error, const Column *column, int sqlstate, const char *format, ...)
	pg_attribute_printf(4, 5);
/* Runs numeric's input function over it: can numeric hold this number? */
extern bool column_number_fits_numeric(void *arg, const char *p, size_t len);

#endif
