/* json_build.h: writing jsonb objects field by field. */
#ifndef STREAM_UTIL_JSON_BUILD_H
#define STREAM_UTIL_JSON_BUILD_H

#include "postgres.h"
#include "datatype/timestamp.h"
#include "utils/jsonb.h"

typedef struct JsonBuild
{
	JsonbParseState *state;
	JsonbValue *result;
} JsonBuild;

/* An object or array: key is NULL at the top and inside arrays. */
extern void json_object_begin(JsonBuild *b, const char *key);
extern void json_object_end(JsonBuild *b);
extern void json_array_begin(JsonBuild *b, const char *key);
extern void json_array_end(JsonBuild *b);
extern void json_add_text(JsonBuild *b, const char *key, const char *value); /* NULL: JSON null */
extern void json_add_int(JsonBuild *b, const char *key, int64 value);
extern void json_add_float(JsonBuild *b, const char *key, double value);	 /* not finite: null */
extern void json_add_bool(JsonBuild *b, const char *key, bool value);
extern void json_add_time(JsonBuild *b, const char *key, TimestampTz value); /* ISO 8601 in UTC, milliseconds; -infinity: null */
extern void json_add_json(JsonBuild *b, const char *key, Jsonb *value);		 /* NULL: JSON null */
extern Jsonb *json_result(JsonBuild *b);
extern Jsonb *json_copy(Jsonb *json);											/* NULL stays NULL */

#endif
