/*
 * options.c: option tables: jsonb (queries, sinks) and text (foreign-data options) → struct fields.
 * Whatever is not in the table is an error that lists what is.
 */
#include "util/options.h"

#include <ctype.h>

#include "commands/defrem.h"
#include "lib/stringinfo.h"
#include "util/closest.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/timestamp.h"

#define USECS_PER_31_DAYS (INT64CONST(31) * USECS_PER_DAY)
#define LENGTH_MAX (PG_INT64_MAX / 4 * 3) /* added to a time of our days it does not overflow */

static const OptionDef *
option_find(const OptionDef *defs, const char *name)
{
	for (; defs->name; defs++)
		if (strcmp(defs->name, name) == 0)
			return defs;
	return NULL;
}

char *
option_list_get(List *options, const char *name)
{
	ListCell *lc;

	foreach (lc, options)
		if (strcmp(lfirst_node(DefElem, lc)->defname, name) == 0)
			return defGetString(lfirst_node(DefElem, lc));
	return NULL;
}

char *
options_names(const OptionDef *defs)
{
	StringInfoData buf;

	initStringInfo(&buf);
	for (; defs->name; defs++)
		appendStringInfo(&buf, "%s%s", buf.len ? ", " : "", defs->name);
	return buf.data;
}

static void
option_refuse(const OptionDef *def, const char *value, const char *owner, const char *expected)
{
	ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					errmsg("invalid value for option \"%s\" of %s: \"%s\"", def->name, owner, value),
					errdetail("Expected %s.", expected), def->type == OPTION_ENUM ? closest_hint(value, def->choices) : 0));
}

static bool
option_in_choices(const char *choices, const char *value)
{
	size_t len = strlen(value);

	if (strchr(value, '|'))
		return false;
	for (const char *p = choices; len > 0 && (p = strstr(p, value)) != NULL; p++)
		if ((p == choices || p[-1] == '|') && (p[len] == '\0' || p[len] == '|'))
			return true;
	return false;
}

int64
options_interval_length(const Interval *interval, const char *what)
{
	int128 us = (int128) interval->time + (int128) interval->day * USECS_PER_DAY + (int128) interval->month * USECS_PER_31_DAYS;

	if (us > LENGTH_MAX || us < -LENGTH_MAX)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("%s is out of range: \"%s\"", what, DatumGetCString(DirectFunctionCall1(interval_out, IntervalPGetDatum(interval))))));
	return (int64) us;
}

int64
options_interval_us(const char *text, const char *what)
{
	return options_interval_length(
		DatumGetIntervalP(DirectFunctionCall3(interval_in, CStringGetDatum(text), ObjectIdGetDatum(InvalidOid), Int32GetDatum(-1))), what);
}

static void
option_set(const OptionDef *def, const char *value, void *target, const char *owner)
{
	void *field = (char *) target + def->offset;

	switch (def->type)
	{
		case OPTION_TEXT:
			*(char **) field = pstrdup(value);
			break;
		case OPTION_BOOL:
			if (!parse_bool(value, (bool *) field))
				option_refuse(def, value, owner, "true or false");
			break;
		case OPTION_INT64:
		{
			char *end;
			int64 n;

			errno = 0;
			n = strtoi64(value, &end, 10);
			if (end == value || *end != '\0' || errno != 0 || n < def->min || n > def->max)
				option_refuse(def, value, owner, psprintf("a whole number from " INT64_FORMAT " to " INT64_FORMAT, def->min, def->max));
			*(int64 *) field = n;
			break;
		}
		case OPTION_INTERVAL:
		{
			int64 us = options_interval_us(value, psprintf("option \"%s\" of %s", def->name, owner));

			if (us < def->min || us > def->max)
				option_refuse(def, value, owner, def->min > 0 ? "a positive interval" : "an interval that is not negative");
			*(int64 *) field = us;
			break;
		}
		case OPTION_ENUM:
			if (!option_in_choices(def->choices, value))
				option_refuse(def, value, owner, psprintf("one of %s", def->choices));
			*(char **) field = pstrdup(value);
			break;
		case OPTION_JSON:
			*(Jsonb **) field = DatumGetJsonbPCopy(DirectFunctionCall1(jsonb_in, CStringGetDatum(value)));
			break;
	}
}

static char *
jsonb_value_text(JsonbValue *v)
{
	switch (v->type)
	{
		case jbvNull:
			return NULL;
		case jbvString:
			return pnstrdup(v->val.string.val, v->val.string.len);
		case jbvNumeric:
			return DatumGetCString(DirectFunctionCall1(numeric_out, NumericGetDatum(v->val.numeric)));
		case jbvBool:
			return pstrdup(v->val.boolean ? "true" : "false");
		default:
		{
			Jsonb *j = JsonbValueToJsonb(v);

			return JsonbToCString(NULL, &j->root, VARSIZE(j));
		}
	}
}

static void
option_unknown(const OptionDef *defs, const char *name, const char *owner)
{
	ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("unknown option \"%s\" of %s", name, owner),
					defs->name ? errdetail("Valid options are: %s.", options_names(defs)) : errdetail("It takes no options."),
					closest_hint(name, options_names(defs))));
}

void
options_parse_jsonb(const OptionDef *defs, Jsonb *options, void *target, const char *owner)
{
	JsonbIterator *it;
	JsonbValue v;
	JsonbIteratorToken token;

	if (options == NULL)
		return;
	if (!JB_ROOT_IS_OBJECT(options))
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("options of %s must be a JSON object", owner)));
	it = JsonbIteratorInit(&options->root);
	while ((token = JsonbIteratorNext(&it, &v, true)) != WJB_DONE)
	{
		const OptionDef *def;
		char *name, *value;

		if (token != WJB_KEY)
			continue;
		name = pnstrdup(v.val.string.val, v.val.string.len);
		def = option_find(defs, name);
		if (def == NULL)
			option_unknown(defs, name, owner);
		JsonbIteratorNext(&it, &v, true);
		value = jsonb_value_text(&v);
		if (value == NULL)
			continue;
		if (v.type == jbvBinary && def->type != OPTION_JSON)
			option_refuse(def, value, owner, "a single value, not an object or array");
		if (def->type == OPTION_JSON)
			*(Jsonb **) ((char *) target + def->offset) = JsonbValueToJsonb(&v);
		else
			option_set(def, value, target, owner);
	}
}

bool
options_parse_text(const OptionDef *defs, const char *name, const char *value, void *target, const char *owner)
{
	const OptionDef *def = option_find(defs, name);

	if (def == NULL)
		return false;
	option_set(def, value, target, owner);
	return true;
}

char *
jsonb_get_text(Jsonb *object, const char *key)
{
	JsonbValue v;

	if (object == NULL || !JB_ROOT_IS_OBJECT(object) || getKeyJsonValueFromContainer(&object->root, key, strlen(key), &v) == NULL)
		return NULL;
	return jsonb_value_text(&v);
}

Jsonb *
jsonb_get_object(Jsonb *object, const char *key)
{
	JsonbValue v;

	if (object == NULL || !JB_ROOT_IS_OBJECT(object) || getKeyJsonValueFromContainer(&object->root, key, strlen(key), &v) == NULL ||
		v.type == jbvNull)
		return NULL;
	return JsonbValueToJsonb(&v);
}
