/*
 * json_build.c: writing jsonb objects field by field, without going through text.
 */
#include "util/json_build.h"

#include <math.h>

#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/numeric.h"
#include "utils/timestamp.h"

static void
json_push_key(JsonBuild *b, const char *key)
{
	if (key)
	{
		JsonbValue k;

		k.type = jbvString;
		k.val.string.val = unconstify(char *, key);
		k.val.string.len = strlen(key);
		pushJsonbValue(&b->state, WJB_KEY, &k);
	}
}

static void
json_push(JsonBuild *b, const char *key, JsonbValue *value)
{
	json_push_key(b, key);
	b->result = pushJsonbValue(&b->state, key ? WJB_VALUE : WJB_ELEM, value);
}

void
json_object_begin(JsonBuild *b, const char *key)
{
	json_push_key(b, key);
	b->result = pushJsonbValue(&b->state, WJB_BEGIN_OBJECT, NULL);
}

void
json_object_end(JsonBuild *b)
{
	b->result = pushJsonbValue(&b->state, WJB_END_OBJECT, NULL);
}

void
json_array_begin(JsonBuild *b, const char *key)
{
	json_push_key(b, key);
	b->result = pushJsonbValue(&b->state, WJB_BEGIN_ARRAY, NULL);
}

void
json_array_end(JsonBuild *b)
{
	b->result = pushJsonbValue(&b->state, WJB_END_ARRAY, NULL);
}

void
json_add_text(JsonBuild *b, const char *key, const char *value)
{
	JsonbValue v;

	v.type = value ? jbvString : jbvNull;
	v.val.string.val = unconstify(char *, value);
	v.val.string.len = value ? strlen(value) : 0;
	json_push(b, key, &v);
}

void
json_add_int(JsonBuild *b, const char *key, int64 value)
{
	JsonbValue v;

	v.type = jbvNumeric;
	v.val.numeric = int64_to_numeric(value);
	json_push(b, key, &v);
}

void
json_add_float(JsonBuild *b, const char *key, double value)
{
	JsonbValue v;

	v.type = isfinite(value) ? jbvNumeric : jbvNull;
	if (isfinite(value))
		v.val.numeric = DatumGetNumeric(DirectFunctionCall1(float8_numeric, Float8GetDatum(value)));
	json_push(b, key, &v);
}

void
json_add_bool(JsonBuild *b, const char *key, bool value)
{
	JsonbValue v;

	v.type = jbvBool;
	v.val.boolean = value;
	json_push(b, key, &v);
}

void
json_add_time(JsonBuild *b, const char *key, TimestampTz value)
{
	struct pg_tm tm;
	fsec_t fsec;

	if (TIMESTAMP_NOT_FINITE(value) || timestamp2tm(value, NULL, &tm, &fsec, NULL, NULL) != 0)
		json_add_text(b, key, NULL);
	else
		json_add_text(b, key, psprintf("%04d-%02d-%02dT%02d:%02d:%02d.%03dZ", tm.tm_year, tm.tm_mon, tm.tm_mday, tm.tm_hour, tm.tm_min,
									   tm.tm_sec, (int) (fsec / 1000)));
}

void
json_add_json(JsonBuild *b, const char *key, Jsonb *value)
{
	JsonbValue v;

	if (value == NULL)
	{
		json_add_text(b, key, NULL);
		return;
	}
	v.type = jbvBinary;
	v.val.binary.data = &value->root;
	v.val.binary.len = VARSIZE(value) - VARHDRSZ;
	json_push(b, key, &v);
}

Jsonb *
json_result(JsonBuild *b)
{
	return JsonbValueToJsonb(b->result);
}

Jsonb *
json_copy(Jsonb *json)
{
	return json ? (Jsonb *) memcpy(palloc(VARSIZE(json)), json, VARSIZE(json)) : NULL;
}
