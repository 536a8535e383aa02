/*
 * kafka_options.c: options of Kafka sources, servers and user mappings.
 * DefElem lists → checked one by one when they are set, together when the source is used → KafkaOptions.
 * Danger: who may say where a password is sent (check_connection).
 */
#include "source/kafka.h"

#include "catalog/pg_attribute.h"
#include "catalog/pg_foreign_server.h"
#include "catalog/pg_foreign_table.h"
#include "catalog/pg_user_mapping.h"
#include "commands/defrem.h"
#include "foreign/foreign.h"
#include "format/format.h"
#include "kafka/registry.h"
#include "util/closest.h"
#include "util/options.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/timestamp.h"

typedef struct TableOptions
{
	char *topic, *topics, *topic_pattern, *starting_offsets, *starting_timestamp, *isolation_level, *avro_schema, *delimiter, *null_text;
	bool fail_on_data_loss;
} TableOptions;

static const OptionDef table_options[] = {
	{"topic", OPTION_TEXT, offsetof(TableOptions, topic), 0, 0, NULL},
	{"topics", OPTION_TEXT, offsetof(TableOptions, topics), 0, 0, NULL},
	{"topic_pattern", OPTION_TEXT, offsetof(TableOptions, topic_pattern), 0, 0, NULL},
	{"starting_offsets", OPTION_TEXT, offsetof(TableOptions, starting_offsets), 0, 0, NULL},
	{"starting_timestamp", OPTION_TEXT, offsetof(TableOptions, starting_timestamp), 0, 0, NULL},
	{"fail_on_data_loss", OPTION_BOOL, offsetof(TableOptions, fail_on_data_loss), 0, 0, NULL},
	{"isolation_level", OPTION_ENUM, offsetof(TableOptions, isolation_level), 0, 0, "read_committed|read_uncommitted"},
	{"delimiter", OPTION_TEXT, offsetof(TableOptions, delimiter), 0, 0, NULL},
	{"null", OPTION_TEXT, offsetof(TableOptions, null_text), 0, 0, NULL},
	{"avro_schema", OPTION_TEXT, offsetof(TableOptions, avro_schema), 0, 0, NULL},
	{NULL, 0, 0, 0, 0, NULL}};

static bool
is_number(const char *text)
{
	return *text && strspn(text, "0123456789.+-") == strlen(text) && !strchr(text + 1, '-');
}

/* A point in time → Unix milliseconds, rounded up: the first message at or after it. */
static int64
parse_timestamp_ms(const char *text)
{
	TimestampTz at;
	int64 us;

	/* A bare number could be seconds or milliseconds: nobody should have to guess. */
	if (is_number(text))
		ereport(ERROR, errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				errmsg("option \"starting_timestamp\" is no timestamp: \"%s\"", text),
				errhint("Write it as a timestamp with time zone, such as \"2026-03-01 10:00:00+00\"."));
	at = DatumGetTimestampTz(
		DirectFunctionCall3(timestamptz_in, CStringGetDatum(text), ObjectIdGetDatum(InvalidOid), Int32GetDatum(-1)));
	us = at + (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * USECS_PER_DAY;
	if (TIMESTAMP_NOT_FINITE(at) || us < 0)
		ereport(ERROR, errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				errmsg("option \"starting_timestamp\" is out of range: \"%s\"", text));
	return (us + 999) / 1000;
}

static bool
is_partition(JsonbValue *key)
{
	const char *name = pnstrdup(key->val.string.val, key->val.string.len);

	return *name && strlen(name) < 10 && strspn(name, "0123456789") == strlen(name);
}

static bool
is_offset(JsonbValue *value)
{
	Datum number;

	if (value->type != jbvNumeric)
		return false;
	number = NumericGetDatum(value->val.numeric);
	return DatumGetBool(DirectFunctionCall2(numeric_eq, number, DirectFunctionCall1(numeric_floor, number))) &&
		   DatumGetBool(DirectFunctionCall2(numeric_ge, number, NumericGetDatum(int64_to_numeric(RD_KAFKA_OFFSET_BEGINNING)))) &&
		   DatumGetBool(DirectFunctionCall2(numeric_le, number, NumericGetDatum(int64_to_numeric(PG_INT64_MAX))));
}

/* Offsets by partition, or by topic and partition. */
static bool
are_starting_offsets(JsonbContainer *object, bool topics)
{
	JsonbIterator *it = JsonbIteratorInit(object);
	JsonbValue key, value;
	JsonbIteratorToken token;

	while ((token = JsonbIteratorNext(&it, &key, true)) != WJB_DONE)
	{
		if (token != WJB_KEY)
			continue;
		(void) JsonbIteratorNext(&it, &value, true);
		if (topics && value.type == jbvBinary && JsonContainerIsObject(value.val.binary.data))
		{
			if (!are_starting_offsets(value.val.binary.data, false))
				return false;
		}
		else if (!is_partition(&key) || !is_offset(&value))
			return false;
	}
	return true;
}

static Jsonb *
parse_starting_offsets(const char *text, int64 *starting_at)
{
	Jsonb *object;

	*starting_at = RD_KAFKA_OFFSET_END;
	if (strcmp(text, "latest") == 0)
		return NULL;
	*starting_at = RD_KAFKA_OFFSET_BEGINNING;
	if (strcmp(text, "earliest") == 0)
		return NULL;
	if (*text == '{')
	{
		object = DatumGetJsonbP(DirectFunctionCall1(jsonb_in, CStringGetDatum(text)));
		if (are_starting_offsets(&object->root, true))
			return object;
	}
	ereport(ERROR, errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			errmsg("invalid value for option \"starting_offsets\": \"%s\"", text),
			errhint("Use \"latest\", \"earliest\", or an object of partitions such as {\"0\": 23, \"1\": -2}."));
}

/* ["a", "b"] or a, b → list of names. */
static List *
parse_topics(const char *text)
{
	List *topics = NIL;
	char *copy = pstrdup(text), *name;

	while (*text == '[')
	{
		Jsonb *array = DatumGetJsonbP(DirectFunctionCall1(jsonb_in, CStringGetDatum(text)));
		JsonbIterator *it = JsonbIteratorInit(&array->root);
		JsonbValue value;
		JsonbIteratorToken token;

		while ((token = JsonbIteratorNext(&it, &value, true)) != WJB_DONE)
		{
			if (token != WJB_ELEM)
				continue;
			if (value.type != jbvString || value.val.string.len == 0)
				ereport(ERROR, errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("option \"topics\" holds something that is no topic name"));
			topics = lappend(topics, pnstrdup(value.val.string.val, value.val.string.len));
		}
		return topics;
	}
	while ((name = strsep(&copy, ",")))
	{
		name += strspn(name, " ");
		name[strcspn(name, " ")] = '\0';
		if (*name)
			topics = lappend(topics, name);
	}
	return topics;
}

static void
check_table_option(const char *name, const char *value)
{
	int64 ignored;

	if (strcmp(name, "topic_pattern") == 0)
		(void) kafka_topic_matches(value, "topic"); /* raises the error of a wrong expression */
	if (strcmp(name, "starting_offsets") == 0)
		(void) parse_starting_offsets(value, &ignored);
	if (strcmp(name, "starting_timestamp") == 0)
		(void) parse_timestamp_ms(value);
	if (strcmp(name, "topics") == 0 && parse_topics(value) == NIL)
		ereport(ERROR, errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("option \"topics\" names no topic"));
	if (strcmp(name, "delimiter") == 0 && (strlen(value) != 1 || strchr("\"\r\n", *value)))
		ereport(ERROR, errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				errmsg("option \"delimiter\" must be one byte, neither a quote nor a line end"));
	if (strcmp(name, "topic") == 0 && *value == '\0')
		ereport(ERROR, errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("option \"topic\" names no topic"));
}

static int
property_place(Oid catalog)
{
	if (catalog == ForeignServerRelationId)
		return KAFKA_AT_SERVER;
	if (catalog == UserMappingRelationId)
		return KAFKA_AT_USER;
	return catalog == ForeignTableRelationId ? KAFKA_AT_TABLE : 0;
}

bool
kafka_check_option(const char *name, const char *value, Oid catalog)
{
	TableOptions ignored = {0};
	int place = property_place(catalog);

	if (catalog == ForeignTableRelationId && options_parse_text(table_options, name, value, &ignored, "Kafka source"))
	{
		check_table_option(name, value);
		return true;
	}
	return place != 0 && (registry_check_option(name, value, place) || kafka_property_check(name, value, place));
}

const char *
kafka_option_names(Oid catalog)
{
	if (catalog == ForeignTableRelationId)
		return psprintf("%s, %s; with the built-in server also %s, %s", options_names(table_options), kafka_property_names(KAFKA_AT_TABLE),
						registry_option_names(KAFKA_AT_SERVER), kafka_property_names(KAFKA_AT_SERVER));
	if (property_place(catalog) == 0)
		return "";
	return psprintf("%s, %s", registry_option_names(property_place(catalog)), kafka_property_names(property_place(catalog)));
}

/*
 * Where connection options may stand. A table on a user's server must not send that server's secrets elsewhere; and
 * the built-in server, whose address every table may choose, must not have secrets.
 */
static void
check_connection(SourceDef *def, ForeignServer *server)
{
	bool built_in = strcmp(server->servername, KAFKA_SERVER) == 0;
	bool has_address = false;
	ListCell *cell;

	if (built_in && def->user_options != NIL)
		ereport(
			ERROR, errcode(ERRCODE_FDW_INVALID_OPTION_NAME),
			errmsg("source %s would use secrets with the built-in server \"%s\"", def->name, KAFKA_SERVER),
			errdetail("There the source itself chooses which brokers to talk to."),
			errhint(
				"Make a server of its own (CREATE SERVER … FOREIGN DATA WRAPPER stream_kafka) with its user mapping."));
	foreach (cell, def->table_options)
	{
		DefElem *option = lfirst_node(DefElem, cell);

		if (!built_in && (kafka_property_is_connection(option->defname) || registry_owns_option(option->defname)))
			ereport(ERROR, errcode(ERRCODE_FDW_INVALID_OPTION_NAME),
					errmsg("option \"%s\" of source %s belongs to its server", option->defname, def->name),
					errhint("Set it with ALTER SERVER %s.", quote_identifier(server->servername)));
		has_address = has_address || strcmp(option->defname, "bootstrap.servers") == 0;
	}
	foreach (cell, def->server_options)
		has_address = has_address || strcmp(lfirst_node(DefElem, cell)->defname, "bootstrap.servers") == 0;
	if (!has_address)
		ereport(ERROR, errcode(ERRCODE_FDW_OPTION_NAME_NOT_FOUND),
				errmsg("source %s has no option \"bootstrap.servers\"", def->name),
				errhint("Set it on the server, or on the source when that uses the built-in server."));
}

/* A server may have a registry for sources of other formats. */
static bool
has_own_registry(SourceDef *def)
{
	ListCell *cell;

	foreach (cell, def->table_options)
		if (registry_owns_option(lfirst_node(DefElem, cell)->defname))
			return true;
	return false;
}

static void
check_format(SourceDef *def, KafkaOptions *options)
{
	bool any = false, own_registry = has_own_registry(def);

	if (!format_lookup(options->format))
		ereport(ERROR, errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				errmsg("source %s has unknown format \"%s\"", def->name, options->format),
				errdetail("Formats are: %s.", format_names()), closest_hint(options->format, format_names()));
	if ((options->delimiter || options->null_text) && strcmp(options->format, "csv") != 0)
		ereport(ERROR, errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				errmsg("option \"%s\" of source %s is for format \"csv\"", options->delimiter ? "delimiter" : "null", def->name),
				errdetail("Its format is \"%s\".", options->format));
	if (options->avro_schema && own_registry)
		ereport(ERROR, errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("source %s has both \"avro_schema\" and \"schema.registry.url\"", def->name),
				errdetail("Messages have a schema registry's frame, or they have none."));
	if ((options->avro_schema || own_registry) && strcmp(options->format, "avro") != 0)
		ereport(ERROR, errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				errmsg("option \"%s\" of source %s is for format \"avro\"", own_registry ? "schema.registry.url" : "avro_schema", def->name),
				errdetail("Its format is \"%s\".", options->format));
	for (AttrNumber attno = 1; attno <= def->desc->natts; attno++)
		any = any || !TupleDescAttr(def->desc, attno - 1)->attisdropped;
	if (!any)
		ereport(ERROR, errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("source %s has no columns", def->name));
}

void
kafka_parse(SourceDef *def)
{
	KafkaOptions *options = palloc0(sizeof(KafkaOptions));
	TableOptions table = {.fail_on_data_loss = true, .isolation_level = "read_committed", .starting_offsets = "latest"};
	List *topics = NIL;
	ListCell *cell;
	int given;

	options->format = "json";
	foreach (cell, def->table_options)
	{
		DefElem *option = lfirst_node(DefElem, cell);

		if (strcmp(option->defname, "format") == 0)
			options->format = defGetString(option);
		else if (strcmp(option->defname, "timestamp_unit") == 0)
			options->timestamp_unit = defGetString(option);
		else
			(void) options_parse_text(table_options, option->defname, defGetString(option), &table, def->name);
	}
	given = (table.topic != NULL) + (table.topics != NULL) + (table.topic_pattern != NULL);
	if (given != 1)
		ereport(ERROR, errcode(ERRCODE_FDW_OPTION_NAME_NOT_FOUND),
				errmsg("source %s needs one of the options \"topic\", \"topics\" (a list) and \"topic_pattern\"",
					   def->name),
				given ? errdetail("It has %d of them.", given) : 0);
	options->pattern = table.topic_pattern;
	if (table.topic)
		topics = list_make1(table.topic);
	else if (table.topics)
		topics = parse_topics(table.topics);
	options->topics = palloc(sizeof(char *) * Max(list_length(topics), 1));
	foreach (cell, topics)
	{
		for (int i = 0; i < options->ntopics; i++)
			if (strcmp(options->topics[i], lfirst(cell)) == 0)
				ereport(ERROR, errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("source %s names topic \"%s\" twice", def->name, options->topics[i]));
		options->topics[options->ntopics++] = lfirst(cell);
	}
	options->starting_offsets = parse_starting_offsets(table.starting_offsets, &options->starting_at);
	options->starting_timestamp_ms = table.starting_timestamp ? parse_timestamp_ms(table.starting_timestamp) : -1;
	options->delimiter = table.delimiter ? table.delimiter[0] : '\0';
	options->null_text = table.null_text;
	options->avro_schema = table.avro_schema;
	options->fail_on_data_loss = table.fail_on_data_loss;
	options->read_committed = strcmp(table.isolation_level, "read_committed") == 0;
	options->properties =
		list_concat(list_concat(list_copy(def->server_options), def->user_options), def->table_options);
	check_connection(def, GetForeignServer(GetForeignTable(def->relid)->serverid));
	options->registry = table.avro_schema ? NULL : registry_find(options->properties);
	check_format(def, options);
	kafka_decode_check(def, options);
	def->options = options;
}
