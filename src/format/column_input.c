/*
 * column_input.c: values by a type's own input function, and for arrays and rows by json_populate_record.
 * These report by ereport: it is caught here, and becomes a value if it is about the data; everything else flies on.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/datetime.h"
#include "utils/numeric.h"
#include "utils/resowner.h"
#include "utils/timestamp.h"

#include "format/column.h"
#include "format/timestamp.h"
#include "format/utf8.h"

typedef Datum (*InputCall)(Column *column, char *text);

bool
decode_fail(DecodeError *error, const Column *column, int sqlstate, const char *format, ...)
{
	va_list args;
	int used = 0;

	error->sqlstate = sqlstate;
	error->column = column ? column->name : NULL;
	if (column)
		used = snprintf(error->message, sizeof(error->message), "column \"%s\": ", column->name);
	va_start(args, format);
	vsnprintf(error->message + used, sizeof(error->message) - used, format, args);
	va_end(args);
	error->message[pg_mbcliplen(error->message, strlen(error->message), sizeof(error->message) - 1)] = '\0';
	return false;
}

/* regclass and its like: the text is a name to be looked up, and an unknown one is a bad value. */
static bool
type_is_a_name(Oid type)
{
	switch (type)
	{
		case REGPROCOID:
		case REGPROCEDUREOID:
		case REGOPEROID:
		case REGOPERATOROID:
		case REGCLASSOID:
		case REGCOLLATIONOID:
		case REGTYPEOID:
		case REGROLEOID:
		case REGNAMESPACEOID:
		case REGCONFIGOID:
		case REGDICTIONARYOID:
			return true;
		default:
			return false;
	}
}

/* Is the error about the value, or about something else (memory, locks, cancel, a broken function)? */
static bool
error_is_about_data(const Column *column, int sqlstate)
{
	if (ERRCODE_TO_CATEGORY(sqlstate) == ERRCODE_DATA_EXCEPTION)
		return true;
	if (type_is_a_name(column->base_type) &&
		(ERRCODE_TO_CATEGORY(sqlstate) == ERRCODE_TO_CATEGORY(ERRCODE_UNDEFINED_OBJECT) ||
		 sqlstate == ERRCODE_UNDEFINED_SCHEMA ||
		 sqlstate == ERRCODE_FEATURE_NOT_SUPPORTED)) /* a name in another database */
		return true;
	switch (sqlstate)
	{
		case ERRCODE_NOT_NULL_VIOLATION: /* of a domain */
		case ERRCODE_CHECK_VIOLATION:
		case ERRCODE_SYNTAX_ERROR:			 /* what tsvector, ltree and others say of a text they cannot read */
		case ERRCODE_PROGRAM_LIMIT_EXCEEDED: /* too long a string, too large an array */
		case ERRCODE_STATEMENT_TOO_COMPLEX:	 /* nested deeper than the stack allows */
			return true;
		default:
			return false;
	}
}

/*
 * Calls `call` on the text (NULL: a NULL), catching errors. What is known to hold nothing runs without subtransaction: it only parses, and
 * an error leaves memory of the row context behind.
 */
static bool
call_guarded(Column *column, InputCall call, const char *text, size_t len, Datum *value, DecodeError *error)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	uint32 interrupt_holdoff = InterruptHoldoffCount;
	uint32 cancel_holdoff = QueryCancelHoldoffCount;
	bool subtransaction = !column->trusted;
	ErrorData *volatile edata = NULL;

	if (subtransaction)
	{
		BeginInternalSubTransaction(NULL);
		MemoryContextSwitchTo(context);
	}
	PG_TRY();
	{
		char *copy = NULL;

		if (text)
		{
			copy = pnstrdup(text, len);
			if (GetDatabaseEncoding() != PG_UTF8 && !utf8_is_ascii(copy, len))
				copy = pg_any_to_server(copy, len, PG_UTF8);
		}
		*value = call(column, copy);
		if (subtransaction)
		{
			ReleaseCurrentSubTransaction();
			MemoryContextSwitchTo(context);
			CurrentResourceOwner = owner;
		}
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		edata = CopyErrorData();
		FlushErrorState();
		if (subtransaction)
		{
			RollbackAndReleaseCurrentSubTransaction();
			MemoryContextSwitchTo(context);
			CurrentResourceOwner = owner;
		}
		InterruptHoldoffCount = interrupt_holdoff;
		QueryCancelHoldoffCount = cancel_holdoff;
	}
	PG_END_TRY();
	if (edata == NULL)
		return true;
	if (!error_is_about_data(column, edata->sqlerrcode))
		ReThrowError(edata);
	decode_fail(error, column, edata->sqlerrcode, "%s", edata->message);
	FreeErrorData(edata);
	return false;
}

static Datum
call_input(Column *column, char *text)
{
	return InputFunctionCall(&column->input, text, column->ioparam, column->typmod);
}

/* text is a row {"c": …} */
static Datum
call_populate(Column *column, char *text)
{
	Datum row = FunctionCall3(&column->populate, column->empty_row, CStringGetTextDatum(text), BoolGetDatum(false));
	HeapTupleHeader header = DatumGetHeapTupleHeader(row);
	HeapTupleData tuple;
	bool is_null;
	Datum value;

	tuple.t_len = HeapTupleHeaderGetDatumLength(header);
	ItemPointerSetInvalid(&tuple.t_self);
	tuple.t_tableOid = InvalidOid;
	tuple.t_data = header;
	value = heap_getattr(&tuple, 1, column->row_desc, &is_null);
	Assert(!is_null);
	return value;
}

bool
column_input(Column *column, const char *p, size_t len, Datum *value, DecodeError *error)
{
	return call_guarded(column, call_input, p, len, value, error);
}

bool
column_populate(Column *column, const char *p, size_t len, Datum *value, DecodeError *error)
{
	char *row = palloc(len + 7);

	memcpy(row, "{\"c\":", 5);
	memcpy(row + 5, p, len);
	row[5 + len] = '}';
	return call_guarded(column, call_populate, row, len + 6, value, error);
}

bool
column_take_null(Column *column, DecodeError *error)
{
	Datum ignored;

	if (column->not_null)
		return decode_fail(error, column, ERRCODE_NOT_NULL_VIOLATION, "null value violates not-null constraint");
	if (!column->is_domain || column->input.fn_strict)
		return true;
	return call_guarded(column, call_input, NULL, 0, &ignored, error);
}

static Datum
call_numeric(Column *column, char *text)
{
	return DirectFunctionCall3(numeric_in, CStringGetDatum(text), ObjectIdGetDatum(InvalidOid), Int32GetDatum(-1));
}

bool
column_number_fits_numeric(void *arg, const char *p, size_t len)
{
	Column any = {.name = "", .trusted = true};
	DecodeError ignored;
	Datum value;

	if (!call_guarded(&any, call_numeric, p, len, &value, &ignored))
		return false;
	pfree(DatumGetPointer(value));
	return true;
}

/* Microseconds since 2000-01-01, as a bigint: that conversion rounds, and what does not fit is out of range for a timestamp, too. */
static Datum
call_epoch_by_numeric(Column *column, char *text)
{
	Numeric unit = int64_to_numeric(column->epoch_shift == 6 ? 1000000 : column->epoch_shift == 3 ? 1000 : 1);
	Numeric start = int64_to_numeric((POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * USECS_PER_DAY);
	Datum us = DirectFunctionCall2(numeric_mul, call_numeric(column, text), NumericGetDatum(unit));

	return DirectFunctionCall1(numeric_int8, DirectFunctionCall2(numeric_sub, us, NumericGetDatum(start)));
}

static bool
epoch_out_of_range(const Column *column, const char *p, size_t len, DecodeError *error)
{
	return decode_fail(error, column, ERRCODE_DATETIME_VALUE_OUT_OF_RANGE, "timestamp out of range: \"%.*s\"",
					   (int) Min(len, 40), p);
}

bool
column_epoch(Column *column, const char *p, size_t len, Datum *value, DecodeError *error)
{
	Timestamp instant;
	Datum us;
	char iso[MAXDATELEN + 1];
	struct pg_tm tm;
	fsec_t fraction;

	if (column->epoch_shift < 0)
		return decode_fail(error, column, ERRCODE_INVALID_DATETIME_FORMAT,
						   "a number in a column of type timestamp needs option timestamp_unit: \"%.*s\"",
						   (int) Min(len, 40), p);
	if (!timestamp_read_epoch(p, len, column->epoch_shift, &instant))
	{
		if (!call_guarded(column, call_epoch_by_numeric, p, len, &us, error))
			return epoch_out_of_range(column, p, len, error);
		instant = DatumGetInt64(us);
	}
	if (!IS_VALID_TIMESTAMP(instant))
		return epoch_out_of_range(column, p, len, error);
	if (column->kind != COLUMN_OTHER)
	{
		*value = TimestampGetDatum(instant);
		return true;
	}
	/* a domain, or a precision: by the input function */
	if (timestamp2tm(instant, NULL, &tm, &fraction, NULL, NULL) != 0)
		return epoch_out_of_range(column, p, len, error);
	tm.tm_isdst = 0; /* in UTC, and says so */
	EncodeDateTime(&tm, fraction, true, 0, NULL, USE_ISO_DATES, iso);
	return column_input(column, iso, strlen(iso), value, error);
}
