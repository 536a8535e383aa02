/*
 * processor.c: processors as their owners declared them. {"seen": {"kind": "map", "key_type": "text", "type": "bigint", "ttl": "1 hour"}} is checked word
 * by word when it is declared, kept with qualified type names, and read again by every plan.
 */
#include "metadata/processor.h"

#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "parser/parse_type.h"
#include "util/clock.h"
#include "util/closest.h"
#include "util/heap.h"
#include "util/json_build.h"
#include "util/options.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/lsyscache.h"
#include "utils/regproc.h"
#include "utils/timestamp.h"
#include "utils/typcache.h"

enum
{
	PROCESSOR_NAME,
	PROCESSOR_OWNER,
	PROCESSOR_INPUT,
	PROCESSOR_TIMER,
	PROCESSOR_STATE,
	PROCESSOR_MODE,
	PROCESSOR_EVENT_TIME,
	PROCESSOR_CREATED,
	PROCESSOR_COLUMNS
};

/* ---- names ---- */

static const char *const time_modes[] = {"none", "processing_time", "event_time"};
static const char *const variable_kinds[] = {"value", "list", "map"};

TimeMode
time_mode_parse(const char *text)
{
	for (int i = 0; i < lengthof(time_modes); i++)
		if (strcmp(text, time_modes[i]) == 0)
			return i;
	ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("unknown time_mode \"%s\"", text),
					errdetail("Valid time modes are: none, processing_time, event_time."),
					closest_hint(text, "none, processing_time, event_time")));
}

const char *
time_mode_name(TimeMode mode)
{
	return time_modes[mode];
}

const char *
variable_kind_name(VariableKind kind)
{
	return variable_kinds[kind];
}

/* ---- one declaration ---- */

typedef struct Declaration
{
	const char *processor;
	const char *variable;
	Jsonb *json;
} Declaration;

static char *
declared_text(Declaration *d, const char *member, bool required)
{
	char *text = jsonb_get_text(d->json, member);

	if (text == NULL && required)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("state variable \"%s\" of processor \"%s\" needs a %s", d->variable, d->processor, member),
				 errhint("Declare it like {\"kind\": \"map\", \"key_type\": \"text\", \"type\": \"bigint\"}.")));
	return text;
}

static VariableKind
declared_kind(Declaration *d)
{
	char *text = declared_text(d, "kind", true);

	for (int i = 0; i < lengthof(variable_kinds); i++)
		if (strcmp(text, variable_kinds[i]) == 0)
			return i;
	ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					errmsg("unknown kind \"%s\" of state variable \"%s\" of processor \"%s\"", text, d->variable,
						   d->processor),
					errdetail("Valid kinds are: value, list, map."), closest_hint(text, "value, list, map")));
}

static Oid
declared_type(Declaration *d, const char *member, int32 *typmod)
{
	Oid type;

	parseTypeString(declared_text(d, member, true), &type, typmod, false);
	if (get_typtype(type) == TYPTYPE_PSEUDO)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("state variable \"%s\" of processor \"%s\" cannot have pseudo-type %s", d->variable,
							   d->processor, format_type_be(type)),
						errhint("Name a type that values can have; rows need a named composite type.")));
	return type;
}

static void
check_key_type(Declaration *d, Oid type)
{
	TypeCacheEntry *entry = lookup_type_cache(type, TYPECACHE_EQ_OPR | TYPECACHE_HASH_PROC);

	if (!OidIsValid(entry->eq_opr) || !OidIsValid(entry->hash_proc))
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("key_type %s of state variable \"%s\" of processor \"%s\" cannot be hashed",
							   format_type_be(type), d->variable, d->processor),
						errhint("Use a type that can, such as text.")));
}

static int64
declared_ttl(Declaration *d, TimeMode mode)
{
	char *text = declared_text(d, "ttl", false);
	char *what = psprintf("ttl of state variable \"%s\" of processor \"%s\"", d->variable, d->processor);
	int64 ttl;

	if (text == NULL)
		return -1;
	if (mode != TIME_MODE_PROCESSING)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("%s needs time_mode processing_time", what),
						errdetail("State lives by the clock; time_mode is %s.", time_mode_name(mode))));
	ttl = options_interval_us(text, what);
	if (ttl <= 0)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("%s must be a positive interval", what),
						errdetail("It is %s.", text)));
	return ttl;
}

static void
check_members(Declaration *d)
{
	static const char *const members[] = {"kind", "type", "key_type", "ttl"};
	JsonbIterator *it;
	JsonbValue v;
	JsonbIteratorToken token;

	if (!JB_ROOT_IS_OBJECT(d->json))
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("state variable \"%s\" of processor \"%s\" must be declared by an object", d->variable,
							   d->processor),
						errhint("Declare it like {\"kind\": \"value\", \"type\": \"bigint\"}.")));
	it = JsonbIteratorInit(&d->json->root);
	while ((token = JsonbIteratorNext(&it, &v, true)) != WJB_DONE)
	{
		bool known = false;

		for (int i = 0; token == WJB_KEY && i < lengthof(members); i++)
			known |=
				strlen(members[i]) == v.val.string.len && memcmp(members[i], v.val.string.val, v.val.string.len) == 0;
		if (token == WJB_KEY && !known)
			ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
							errmsg("unknown member \"%s\" of state variable \"%s\" of processor \"%s\"",
								   pnstrdup(v.val.string.val, v.val.string.len), d->variable, d->processor),
							errdetail("Valid members are: kind, type, key_type, ttl."),
							closest_hint(pnstrdup(v.val.string.val, v.val.string.len), "kind, type, key_type, ttl")));
	}
}

static ProcessorVariable *
parse_variable(Declaration *d, TimeMode mode)
{
	ProcessorVariable *variable = palloc0(sizeof(ProcessorVariable));

	check_members(d);
	variable->name = pstrdup(d->variable);
	if (d->variable[0] == '\0' || strcmp(d->variable, PROCESSOR_TIMERS) == 0 || strcmp(d->variable, "default") == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("a state variable of processor \"%s\" cannot be called \"%s\"", d->processor, d->variable),
				 errhint("Choose another name; \"default\" and \"%s\" mean something to the state reader.",
						 PROCESSOR_TIMERS)));
	variable->kind = declared_kind(d);
	variable->type = declared_type(d, "type", &variable->typmod);
	variable->key_typmod = -1;
	if (variable->kind == VARIABLE_MAP)
	{
		variable->key_type = declared_type(d, "key_type", &variable->key_typmod);
		check_key_type(d, variable->key_type);
	}
	else if (declared_text(d, "key_type", false))
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("state variable \"%s\" of processor \"%s\" has a key_type but is no map", d->variable,
							   d->processor)));
	variable->ttl = declared_ttl(d, mode);
	return variable;
}

/* ---- all of them ---- */

static void
parse_state(Processor *processor, Jsonb *state)
{
	JsonbIterator *it;
	JsonbValue v;
	JsonbIteratorToken token;
	Declaration d = {.processor = processor->name};

	if (!JB_ROOT_IS_OBJECT(state))
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("state of processor \"%s\" must be a JSON object", processor->name),
						errhint("Like {\"count\": {\"kind\": \"value\", \"type\": \"bigint\"}}.")));
	processor->variables = NIL;
	it = JsonbIteratorInit(&state->root);
	while ((token = JsonbIteratorNext(&it, &v, true)) != WJB_DONE)
	{
		if (token == WJB_KEY)
			d.variable = pnstrdup(v.val.string.val, v.val.string.len);
		else if (token == WJB_VALUE)
		{
			d.json = JsonbValueToJsonb(&v);
			processor->variables = lappend(processor->variables, parse_variable(&d, processor->time_mode));
		}
	}
}

static char *
qualified_type(Oid type, int32 typmod)
{
	return format_type_extended(type, typmod, FORMAT_TYPE_TYPEMOD_GIVEN | FORMAT_TYPE_FORCE_QUALIFY);
}

void
processor_declare(Processor *processor, Jsonb *state)
{
	JsonBuild b = {NULL, NULL};
	ListCell *lc;

	parse_state(processor, state);
	json_object_begin(&b, NULL);
	foreach (lc, processor->variables)
	{
		ProcessorVariable *variable = lfirst(lc);

		json_object_begin(&b, variable->name);
		json_add_text(&b, "kind", variable_kind_name(variable->kind));
		json_add_text(&b, "type", qualified_type(variable->type, variable->typmod));
		if (variable->kind == VARIABLE_MAP)
			json_add_text(&b, "key_type", qualified_type(variable->key_type, variable->key_typmod));
		if (variable->ttl >= 0)
		{
			Interval ttl = {.time = variable->ttl};

			json_add_text(&b, "ttl", DatumGetCString(DirectFunctionCall1(interval_out, IntervalPGetDatum(&ttl))));
		}
		json_object_end(&b);
	}
	json_object_end(&b);
	processor->state = json_result(&b);
}

Oid
processor_function(const char *signature)
{
	return DatumGetObjectId(DirectFunctionCall1(regprocedurein, CStringGetDatum(signature)));
}

/* ---- rows ---- */

static Processor *
processor_from_row(Datum *v, bool *n)
{
	Processor *processor = palloc0(sizeof(Processor));

	processor->name = TextDatumGetCString(v[PROCESSOR_NAME]);
	processor->owner_name = pstrdup(NameStr(*DatumGetName(v[PROCESSOR_OWNER])));
	processor->handle_input = TextDatumGetCString(v[PROCESSOR_INPUT]);
	processor->handle_timer = n[PROCESSOR_TIMER] ? NULL : TextDatumGetCString(v[PROCESSOR_TIMER]);
	processor->state = DatumGetJsonbPCopy(v[PROCESSOR_STATE]);
	processor->time_mode = time_mode_parse(TextDatumGetCString(v[PROCESSOR_MODE]));
	processor->event_time = n[PROCESSOR_EVENT_TIME] ? NULL : TextDatumGetCString(v[PROCESSOR_EVENT_TIME]);
	return processor;
}

Processor *
processor_load(const char *name, bool missing_ok)
{
	Datum key = CStringGetTextDatum(name);
	HeapScan *scan = heap_scan_begin("processor", "processor_pkey", 1, &key, false);
	Datum v[PROCESSOR_COLUMNS];
	bool n[PROCESSOR_COLUMNS];
	Processor *processor = heap_scan_next(scan, v, n) ? processor_from_row(v, n) : NULL;

	heap_scan_end(scan);
	if (processor)
		parse_state(processor, processor->state);
	else if (!missing_ok)
		ereport(ERROR, (errcode(ERRCODE_UNDEFINED_OBJECT), errmsg("processor \"%s\" does not exist", name),
						errhint("Make it with stream.create_processor.")));
	return processor;
}

void
processor_insert(Processor *processor)
{
	Datum v[PROCESSOR_COLUMNS];
	bool n[PROCESSOR_COLUMNS] = {false};
	NameData *owner = palloc0(sizeof(NameData));

	namestrcpy(owner, processor->owner_name);
	v[PROCESSOR_NAME] = CStringGetTextDatum(processor->name);
	v[PROCESSOR_OWNER] = NameGetDatum(owner);
	v[PROCESSOR_INPUT] = CStringGetTextDatum(processor->handle_input);
	n[PROCESSOR_TIMER] = processor->handle_timer == NULL;
	v[PROCESSOR_TIMER] = processor->handle_timer ? CStringGetTextDatum(processor->handle_timer) : (Datum) 0;
	v[PROCESSOR_STATE] = JsonbPGetDatum(processor->state);
	v[PROCESSOR_MODE] = CStringGetTextDatum(time_mode_name(processor->time_mode));
	n[PROCESSOR_EVENT_TIME] = processor->event_time == NULL;
	v[PROCESSOR_EVENT_TIME] = processor->event_time ? CStringGetTextDatum(processor->event_time) : (Datum) 0;
	v[PROCESSOR_CREATED] = TimestampTzGetDatum(clock_now());
	heap_insert_row("processor", v, n);
}

bool
processor_delete(const char *name)
{
	Datum key = CStringGetTextDatum(name);
	HeapScan *scan = heap_scan_begin("processor", "processor_pkey", 1, &key, false);
	HeapTuple tuple = heap_scan_next(scan, NULL, NULL);
	bool found = tuple != NULL;

	if (found)
		heap_delete_row("processor", tuple);
	heap_scan_end(scan);
	return found;
}
