/*
 * decode_module.c: the decoders callable from SQL, for tests and for timing.
 * Linked from the same sources as the extension: bytes and a table's columns in, the row as text or the error as text out.
 */
#include "postgres.h"

#include <time.h>

#include "access/htup_details.h"
#include "access/table.h"
#include "fmgr.h"
#include "funcapi.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#include "format/format.h"

PG_MODULE_MAGIC;

/* What decode_set has set, for decoders opened later; NULL: the default. */
static char *set_delimiter, *set_null, *set_schema, *set_schema_7;

/* decode_set(name text, value text) RETURNS void */
PG_FUNCTION_INFO_V1(decode_set);
extern Datum decode_set(PG_FUNCTION_ARGS);
Datum
decode_set(PG_FUNCTION_ARGS)
{
	char *name = text_to_cstring(PG_GETARG_TEXT_PP(0));
	char **setting = strcmp(name, "delimiter") == 0	  ? &set_delimiter
					 : strcmp(name, "null") == 0	  ? &set_null
					 : strcmp(name, "schema") == 0	  ? &set_schema
					 : strcmp(name, "schema 7") == 0 ? &set_schema_7
													  : NULL;

	if (setting == NULL)
		ereport(ERROR, errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("no setting \"%s\"", name));
	*setting = PG_ARGISNULL(1) ? NULL : MemoryContextStrdup(TopMemoryContext, text_to_cstring(PG_GETARG_TEXT_PP(1)));
	PG_RETURN_VOID();
}

/* A schema registry that knows one schema, and one it refers to. */
static List *
schema_lookup(void *arg, uint32 id, DecodeError *error)
{
	if (id == 7)
		return set_schema ? list_make2(set_schema, set_schema_7) : list_make1(set_schema_7);
	error->sqlstate = ERRCODE_INVALID_BINARY_REPRESENTATION;
	snprintf(error->message, sizeof(error->message), "no schema %u", id);
	return NIL;
}

/* rel: whose columns; paths: per column, empty = its name; unit: timestamp_unit or ''; lenient: null_on_error; only: needed columns */
static Decoder *
open_decoder(TupleDesc desc, const char *format, ArrayType *paths, const char *unit, bool lenient, ArrayType *only)
{
	DecoderConfig config = {.desc = desc, .null_on_error = lenient, .message = true, .delimiter = set_delimiter ? *set_delimiter : 0, .null_text = set_null};
	const DecoderOps *ops = format_lookup(format);
	AvroSource avro = {.schema = set_schema, .lookup = set_schema_7 ? schema_lookup : NULL};
	Datum *items;
	int count;

	config.avro = &avro;
	if (ops == NULL)
		ereport(ERROR, errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				errmsg("no format \"%s\", only %s", format, format_names()));
	config.paths = palloc0(sizeof(char *) * desc->natts);
	for (int i = 0; i < desc->natts; i++)
		if (!TupleDescAttr(desc, i)->attisdropped)
			config.paths[i] = NameStr(TupleDescAttr(desc, i)->attname);
	deconstruct_array(paths, TEXTOID, -1, false, TYPALIGN_INT, &items, NULL, &count);
	for (int i = 0; i < Min(count, desc->natts); i++)
		if (VARSIZE_ANY_EXHDR(DatumGetPointer(items[i])) > 0)
			config.paths[i] = TextDatumGetCString(items[i]);
	if (strcmp(unit, "s") == 0)
		config.timestamp_unit = TIMESTAMP_UNIT_S;
	else if (strcmp(unit, "ms") == 0)
		config.timestamp_unit = TIMESTAMP_UNIT_MS;
	else if (strcmp(unit, "us") == 0)
		config.timestamp_unit = TIMESTAMP_UNIT_US;
	deconstruct_array(only, INT4OID, sizeof(int32), true, TYPALIGN_INT, &items, NULL, &count);
	for (int i = 0; i < count; i++)
		config.needed = bms_add_member(config.needed, DatumGetInt32(items[i]));
	return ops->open(&config);
}

/* (rel regclass, format text, doc bytea, paths text[], unit text, lenient bool, only int[]) → text */
static Datum
decode_one(FunctionCallInfo fcinfo, bool as_key)
{
	Relation rel = table_open(PG_GETARG_OID(0), AccessShareLock);
	TupleDesc desc = CreateTupleDescCopyConstr(RelationGetDescr(rel));
	Decoder *decoder = open_decoder(desc, text_to_cstring(PG_GETARG_TEXT_PP(1)), PG_GETARG_ARRAYTYPE_P(3),
									text_to_cstring(PG_GETARG_TEXT_PP(4)), PG_GETARG_BOOL(5), PG_GETARG_ARRAYTYPE_P(6));
	bytea *doc = PG_GETARG_BYTEA_PP(2);
	size_t len = VARSIZE_ANY_EXHDR(doc);
	char *exact = malloc(Max(len, 1)); /* of its exact size: valgrind sees a read behind the end */
	Datum *values = palloc0(sizeof(Datum) * desc->natts);
	bool *isnull = palloc(sizeof(bool) * desc->natts);
	DecodeError error;
	bool good;

	table_close(rel, NoLock);
	memset(isnull, true, sizeof(bool) * desc->natts);
	memcpy(exact, VARDATA_ANY(doc), len);
	PG_TRY();
	{
		good = (as_key ? decoder->ops->decode_key : decoder->ops->decode)(decoder, exact, len, values, isnull, &error);
	}
	PG_FINALLY();
	{
		free(exact);
	}
	PG_END_TRY();
	if (good)
	{
		HeapTuple tuple = heap_form_tuple(BlessTupleDesc(desc), values, isnull);

		PG_RETURN_TEXT_P(cstring_to_text(OidOutputFunctionCall(F_RECORD_OUT, HeapTupleGetDatum(tuple))));
	}
	PG_RETURN_TEXT_P(cstring_to_text(psprintf("%s %s", unpack_sql_state(error.sqlstate), error.message)));
}

/* The document is a message's value; or there is none, and it is the key. */
PG_FUNCTION_INFO_V1(decode_text);
extern Datum decode_text(PG_FUNCTION_ARGS);
Datum
decode_text(PG_FUNCTION_ARGS)
{
	return decode_one(fcinfo, false);
}

PG_FUNCTION_INFO_V1(decode_key);
extern Datum decode_key(PG_FUNCTION_ARGS);
Datum
decode_key(PG_FUNCTION_ARGS)
{
	return decode_one(fcinfo, true);
}

/* decode_ns(rel regclass, format text, docs bytea[], rounds int) RETURNS float8: processor time per document, nanoseconds */
PG_FUNCTION_INFO_V1(decode_ns);
extern Datum decode_ns(PG_FUNCTION_ARGS);
Datum
decode_ns(PG_FUNCTION_ARGS)
{
	Relation rel = table_open(PG_GETARG_OID(0), AccessShareLock);
	TupleDesc desc = CreateTupleDescCopyConstr(RelationGetDescr(rel));
	Decoder *decoder = open_decoder(desc, text_to_cstring(PG_GETARG_TEXT_PP(1)), construct_empty_array(TEXTOID), "",
									false, construct_empty_array(INT4OID));
	int rounds = PG_GETARG_INT32(3), ndocs;
	MemoryContext row = AllocSetContextCreate(CurrentMemoryContext, "row", ALLOCSET_DEFAULT_SIZES), old;
	Datum *docs, *values = palloc0(sizeof(Datum) * desc->natts);
	bool *isnull = palloc0(sizeof(bool) * desc->natts);
	struct timespec begin, end;
	DecodeError error;

	table_close(rel, NoLock);
	deconstruct_array(PG_GETARG_ARRAYTYPE_P(2), BYTEAOID, -1, false, TYPALIGN_INT, &docs, NULL, &ndocs);
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &begin);
	old = MemoryContextSwitchTo(row);
	for (int round = 0; round < rounds; round++)
		for (int i = 0; i < ndocs; i++)
		{
			bytea *doc = (bytea *) DatumGetPointer(docs[i]);

			if (!decoder->ops->decode(decoder, VARDATA_ANY(doc), VARSIZE_ANY_EXHDR(doc), values, isnull, &error))
				ereport(ERROR, errcode(error.sqlstate), errmsg("%s", error.message));
			MemoryContextReset(row);
		}
	MemoryContextSwitchTo(old);
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &end);
	PG_RETURN_FLOAT8(((end.tv_sec - begin.tv_sec) * 1e9 + (end.tv_nsec - begin.tv_nsec)) /
					 ((double) rounds * Max(ndocs, 1)));
}
