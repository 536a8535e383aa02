/*
 * kafka.c: Kafka topics as a source: options, where a query starts, what the next batch reads.
 *
 * Positions come from the offset log and go nowhere else; no consumer group is involved. A range is planned either from what has arrived
 * already (caught up: no question asked) or from the broker's offsets (behind), and read by kafka_scan.c.
 * Danger: a range once logged must give the same messages for ever; whatever shortens it later (retention, a new topic of the same name) is
 * data loss and is said so.
 */
#include "source/kafka.h"

#include <math.h>

#include "catalog/pg_attribute.h"
#include "catalog/pg_foreign_server.h"
#include "catalog/pg_foreign_table.h"
#include "catalog/pg_user_mapping.h"
#include "commands/defrem.h"
#include "foreign/foreign.h"
#include "format/format.h"
#include "util/clock.h"
#include "util/options.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#define BUILT_IN_SERVER "stream_kafka"
#define PULL_MESSAGES 16384		   /* taken per partition while planning */
#define BATCH_MESSAGES 1000000	   /* in a batch when the query sets no limit */
#define MESSAGE_BYTES 1024		   /* until some have been seen */
#define ASK_PAUSE_MS 200

/* ---- options ---- */

typedef struct TableOptions
{
	char *topic, *topics, *topic_pattern, *starting_offsets, *starting_timestamp, *isolation_level, *registry;
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
	{"schema.registry.url", OPTION_TEXT, offsetof(TableOptions, registry), 0, 0, NULL},
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
		ereport(ERROR, errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("option \"starting_timestamp\" is no timestamp: \"%s\"", text),
				errhint("Write it as a timestamp with time zone, such as \"2026-03-01 10:00:00+00\"."));
	at = DatumGetTimestampTz(
		DirectFunctionCall3(timestamptz_in, CStringGetDatum(text), ObjectIdGetDatum(InvalidOid), Int32GetDatum(-1)));
	us = at + (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * USECS_PER_DAY;
	if (TIMESTAMP_NOT_FINITE(at) || us < 0)
		ereport(ERROR, errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("option \"starting_timestamp\" is out of range: \"%s\"", text));
	return (us + 999) / 1000;
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
		if (JB_ROOT_IS_OBJECT(object))
			return object;
	}
	ereport(ERROR, errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("invalid value for option \"starting_offsets\": \"%s\"", text),
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
				ereport(ERROR, errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("option \"topics\" holds something that is no topic name"));
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
		ereport(ERROR, errcode(ERRCODE_FEATURE_NOT_SUPPORTED), errmsg("option \"topic_pattern\" is not supported yet"),
				errhint("Name the topics in option \"topics\"."));
	if (strcmp(name, "schema.registry.url") == 0)
		ereport(ERROR, errcode(ERRCODE_FEATURE_NOT_SUPPORTED), errmsg("option \"schema.registry.url\" is not supported yet"),
				errdetail("There is no format yet that reads schemas from a registry."),
				errhint("Use format \"json\"; or format \"raw\" and decode the bytes in SQL."));
	if (strcmp(name, "starting_offsets") == 0)
		(void) parse_starting_offsets(value, &ignored);
	if (strcmp(name, "starting_timestamp") == 0)
		(void) parse_timestamp_ms(value);
	if (strcmp(name, "topics") == 0 && parse_topics(value) == NIL)
		ereport(ERROR, errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("option \"topics\" names no topic"));
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

static bool
kafka_check_option(const char *name, const char *value, Oid catalog)
{
	TableOptions ignored = {0};
	int place = property_place(catalog);

	if (catalog == ForeignTableRelationId && options_parse_text(table_options, name, value, &ignored, "Kafka source"))
	{
		check_table_option(name, value);
		return true;
	}
	return place != 0 && kafka_property_check(name, value, place);
}

static const char *
kafka_option_names(Oid catalog)
{
	if (catalog == ForeignTableRelationId)
		return psprintf("%s, %s; with the built-in server also %s", options_names(table_options), kafka_property_names(KAFKA_AT_TABLE),
						kafka_property_names(KAFKA_AT_SERVER));
	return property_place(catalog) ? kafka_property_names(property_place(catalog)) : "";
}

/*
 * Where connection options may stand. A table on a user's server must not send that server's secrets elsewhere; and the built-in
 * server, whose address every table may choose, must not have secrets.
 */
static void
check_connection(SourceDef *def, ForeignServer *server)
{
	bool built_in = strcmp(server->servername, BUILT_IN_SERVER) == 0;
	bool has_address = false;
	ListCell *cell;

	if (built_in && def->user_options != NIL)
		ereport(ERROR, errcode(ERRCODE_FDW_INVALID_OPTION_NAME),
				errmsg("source %s would use secrets with the built-in server \"%s\"", def->name, BUILT_IN_SERVER),
				errdetail("There the source itself chooses which brokers to talk to."),
				errhint("Make a server of its own (CREATE SERVER … FOREIGN DATA WRAPPER stream_kafka) with its user mapping."));
	foreach (cell, def->table_options)
	{
		DefElem *option = lfirst_node(DefElem, cell);

		if (!built_in && kafka_property_is_connection(option->defname))
			ereport(ERROR, errcode(ERRCODE_FDW_INVALID_OPTION_NAME),
					errmsg("option \"%s\" of source %s belongs to its server", option->defname, def->name),
					errhint("Set it with ALTER SERVER %s.", quote_identifier(server->servername)));
		has_address = has_address || strcmp(option->defname, "bootstrap.servers") == 0;
	}
	foreach (cell, def->server_options)
		has_address = has_address || strcmp(lfirst_node(DefElem, cell)->defname, "bootstrap.servers") == 0;
	if (!has_address)
		ereport(ERROR, errcode(ERRCODE_FDW_OPTION_NAME_NOT_FOUND), errmsg("source %s has no option \"bootstrap.servers\"", def->name),
				errhint("Set it on the server, or on the source when that uses the built-in server."));
}

static void
check_format(SourceDef *def, KafkaOptions *options)
{
	bool any = false;

	if (!format_lookup(options->format))
		ereport(ERROR, errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("source %s has unknown format \"%s\"", def->name, options->format),
				errhint("Formats are: %s.", format_names()));
	for (AttrNumber attno = 1; attno <= def->desc->natts; attno++)
		any = any || !TupleDescAttr(def->desc, attno - 1)->attisdropped;
	if (!any)
		ereport(ERROR, errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("source %s has no columns", def->name));
}

static void
kafka_parse(SourceDef *def)
{
	KafkaOptions *options = palloc0(sizeof(KafkaOptions));
	TableOptions table = {.fail_on_data_loss = true, .isolation_level = "read_committed", .starting_offsets = "latest"};
	List *topics = NIL;
	ListCell *cell;

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
	if ((table.topic != NULL) == (table.topics != NULL))
		ereport(ERROR, errcode(ERRCODE_FDW_OPTION_NAME_NOT_FOUND),
				errmsg("source %s needs option \"topic\", or a list in option \"topics\"", def->name),
				table.topic ? errdetail("It has both.") : 0);
	topics = table.topic ? list_make1(table.topic) : parse_topics(table.topics);
	options->topics = palloc(sizeof(char *) * list_length(topics));
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
	options->fail_on_data_loss = table.fail_on_data_loss;
	options->read_committed = strcmp(table.isolation_level, "read_committed") == 0;
	options->properties = list_concat(list_concat(list_copy(def->server_options), def->user_options), def->table_options);
	check_connection(def, GetForeignServer(GetForeignTable(def->relid)->serverid));
	check_format(def, options);
	kafka_decode_check(def);
	def->options = options;
}

/* ---- life ---- */

static SourceReader *
kafka_open(SourceDef *def)
{
	KafkaReader *reader = palloc0(sizeof(KafkaReader));
	KafkaOptions *options = def->options;

	reader->base.ops = &kafka_source;
	reader->base.def = def;
	reader->base.context = CurrentMemoryContext;
	reader->options = options;
	reader->topics = palloc0(sizeof(KafkaTopic) * options->ntopics);
	for (int i = 0; i < options->ntopics; i++)
	{
		reader->topics[i].name = options->topics[i];
		reader->topics[i].number = i;
		reader->topics[i].name_datum = CStringGetTextDatum(options->topics[i]);
	}
	dlist_init(&reader->scans);
	return &reader->base;
}

static void
kafka_close(SourceReader *base)
{
	kafka_disconnect((KafkaReader *) base);
}

/* ---- positions ---- */

static int64 *
offsets_alloc(KafkaReader *reader)
{
	return palloc(sizeof(int64) * Max(reader->npartitions, 1));
}

/* Where messages of the starting time begin; partitions without any start at their end. */
static int64 *
offsets_at_time(KafkaReader *reader, int64 ms)
{
	int64 *offsets = offsets_alloc(reader), *latest = offsets_alloc(reader);

	kafka_list_offsets(reader, RD_KAFKA_OFFSET_END, latest);
	kafka_list_offsets(reader, ms, offsets);
	for (int i = 0; i < reader->npartitions; i++)
		if (offsets[i] < 0)
			offsets[i] = latest[i];
	return offsets;
}

static Position *
kafka_initial(SourceReader *base)
{
	KafkaReader *reader = (KafkaReader *) base;
	KafkaOptions *options = reader->options;
	int64 *offsets;

	kafka_connect(reader);
	kafka_refresh_partitions(reader, true);
	if (options->starting_timestamp_ms >= 0)
		return kafka_position_make(reader, offsets_at_time(reader, options->starting_timestamp_ms), NULL);
	offsets = offsets_alloc(reader);
	kafka_list_offsets(reader, options->starting_at, offsets);
	if (options->starting_offsets)
	{
		int64 *wanted = kafka_starting_offsets(reader), *latest = offsets_alloc(reader);

		kafka_list_offsets(reader, RD_KAFKA_OFFSET_END, latest);
		for (int i = 0; i < reader->npartitions; i++)
			if (wanted[i] == RD_KAFKA_OFFSET_END)
				offsets[i] = latest[i];
			else if (wanted[i] != RD_KAFKA_OFFSET_BEGINNING)
				offsets[i] = wanted[i];
	}
	return kafka_position_make(reader, offsets, NULL);
}

static Position *
kafka_latest(SourceReader *base)
{
	KafkaReader *reader = (KafkaReader *) base;
	int64 *offsets;

	kafka_connect(reader);
	kafka_refresh_partitions(reader, true);
	offsets = offsets_alloc(reader);
	kafka_list_offsets(reader, RD_KAFKA_OFFSET_END, offsets);
	return kafka_position_make(reader, offsets, NULL);
}

/* ---- planning a batch ---- */

typedef struct Plan
{
	KafkaReader *reader;
	int64 *from, *end, *ceiling; /* ceiling NULL: none */
	int64 *high;				 /* as asked in this step; NULL: not asked */
	KafkaEvidence *evidence;	 /* of from, per topic */
	bool restart;				 /* a topic was made again: its partitions go back to their start, nothing else happens */
} Plan;

static void
plan_ask_high(Plan *plan)
{
	if (plan->high)
		return;
	plan->high = offsets_alloc(plan->reader);
	kafka_list_offsets(plan->reader, RD_KAFKA_OFFSET_END, plan->high);
}

/* Does a partition's log end before our position? After a leader change that passes; waits a little for it. */
static bool
plan_is_behind_us(Plan *plan)
{
	for (int i = 0; i < plan->reader->npartitions; i++)
		if (plan->high[i] < plan->from[i])
			return true;
	return false;
}

static void
plan_await_end(Plan *plan)
{
	KafkaReader *reader = plan->reader;
	int64 until = clock_monotonic_us() + KAFKA_REGRESS_MS * INT64CONST(1000);

	while (plan_is_behind_us(plan) && clock_monotonic_us() < until)
	{
		kafka_client_wait(reader->client, ASK_PAUSE_MS);
		kafka_client_drain_socket(reader->client);
		kafka_list_offsets(reader, RD_KAFKA_OFFSET_END, plan->high);
	}
	kafka_client_kick(reader->client);
}

/* Another topic of the same name, and that is tolerated: a batch of its own takes the position back to where the new one starts. */
static void
plan_verify_topics(Plan *plan, const int64 *low)
{
	KafkaReader *reader = plan->reader;

	for (int topic = 0; topic < reader->options->ntopics; topic++)
	{
		if (kafka_verify_topic(reader, topic, &plan->evidence[topic], low))
			continue;
		if (!plan->restart)
			memcpy(plan->end, plan->from, sizeof(int64) * reader->npartitions);
		plan->restart = true;
		plan->evidence[topic].offset = -1;
		for (int i = 0; i < reader->npartitions; i++)
			if (reader->partitions[i]->topic->number == topic)
			{
				plan->end[i] = Min(low[i], plan->from[i]);
				kafka_window_seek(reader, reader->partitions[i], plan->end[i]);
			}
	}
}

/*
 * Is what we are about to read still there? Asked when a partition's fetcher starts, and when one complains; settles where partitions that
 * are new begin. Tolerated losses are reported by the scan, in the batch's transaction.
 */
static void
plan_check_range(Plan *plan)
{
	KafkaReader *reader = plan->reader;
	int64 *low = offsets_alloc(reader);

	kafka_list_offsets(reader, RD_KAFKA_OFFSET_BEGINNING, low);
	plan_ask_high(plan);
	for (int i = 0; i < reader->npartitions; i++)
		if (plan->from[i] == KAFKA_NOT_FOUND)
			plan->from[i] = low[i];
	plan_await_end(plan);
	for (int i = 0; i < reader->npartitions; i++)
	{
		KafkaPartition *partition = reader->partitions[i];
		bool fail = reader->options->fail_on_data_loss;

		if (plan->high[i] < plan->from[i] && fail)
			kafka_report_reset(reader, partition, plan->from[i], plan->high[i], NULL);
		if (low[i] > plan->from[i] && fail)
			kafka_report_loss(reader, partition, plan->from[i], low[i], NULL);
		partition->error = RD_KAFKA_RESP_ERR_NO_ERROR;
		partition->checked = true;
		partition->low = low[i];
	}
	plan_verify_topics(plan, low);
}

static bool
plan_needs_check(Plan *plan)
{
	for (int i = 0; i < plan->reader->npartitions; i++)
	{
		KafkaPartition *partition = plan->reader->partitions[i];

		if (plan->from[i] == KAFKA_NOT_FOUND || !partition->checked || kafka_fetcher_out_of_range(partition))
			return true;
	}
	return false;
}

/* Windows begin at the position, and hold what has arrived. */
static void
plan_pull(Plan *plan)
{
	KafkaReader *reader = plan->reader;

	kafka_client_drain_socket(reader->client);
	for (int i = 0; i < reader->npartitions; i++)
	{
		KafkaPartition *partition = reader->partitions[i];
		int64 from = Max(plan->from[i], partition->low); /* below: lost, as the scan will say */

		if (plan->high && plan->high[i] < from)
			continue; /* the topic was made again */
		if (!partition->started || from < partition->start || from > partition->next)
			kafka_window_seek(reader, partition, from);
		else
			kafka_window_trim(reader, partition, from);
		kafka_window_pull(reader, partition, Max(PULL_MESSAGES - partition->count, 0), 0);
		kafka_check_fetcher(reader, partition);
	}
}

/* Everything there is has arrived: the fetcher has been at the end, as far as the broker's last answer to it goes. */
static bool
partition_is_caught_up(KafkaReader *reader, KafkaPartition *partition)
{
	int64_t low, high;

	if (partition->full || !partition->started)
		return false;
	if (partition->eof >= 0 && partition->eof == partition->next)
		return true;
	if (rd_kafka_get_watermark_offsets(kafka_client_handle(reader->client), partition->topic->name, partition->id, &low, &high))
		return false;
	if (partition->next < high)
		kafka_window_pass_markers(reader, partition);
	return high >= 0 && partition->next >= high;
}

static bool
plan_is_caught_up(Plan *plan)
{
	for (int i = 0; i < plan->reader->npartitions; i++)
		if (!partition_is_caught_up(plan->reader, plan->reader->partitions[i]))
			return false;
	return true;
}

static int64
plan_backlog(Plan *plan)
{
	int64 total = 0;

	for (int i = 0; i < plan->reader->npartitions; i++)
		total += Max(plan->end[i] - plan->from[i], 0);
	return total;
}

/* How far each partition could be read. */
static void
plan_ends(Plan *plan)
{
	KafkaReader *reader = plan->reader;
	bool caught_up = !plan->ceiling && plan_is_caught_up(plan);

	if (!plan->ceiling && !caught_up)
	{
		plan_ask_high(plan);
		if (plan_is_behind_us(plan))
			plan_check_range(plan);
		if (plan->restart)
			return;
	}
	for (int i = 0; i < reader->npartitions; i++)
	{
		int64 next = reader->partitions[i]->next;

		if (plan->ceiling)
			plan->end[i] = plan->ceiling[i] == KAFKA_NOT_FOUND ? plan->from[i] : plan->ceiling[i];
		else if (caught_up)
			/* Holes behind the last message are not worth a batch of their own, but ride along. */
			plan->end[i] = Max(plan->from[i], next);
		else
			plan->end[i] = plan->high[i];
		if (plan->ceiling && plan->end[i] < plan->from[i] && !(plan->high && plan->high[i] < plan->from[i]))
			plan->end[i] = plan->from[i]; /* fixed before we got here */
	}
}

/* Only holes behind the position everywhere: nothing to run a batch for. */
static bool
plan_has_messages(Plan *plan)
{
	for (int i = 0; i < plan->reader->npartitions; i++)
	{
		KafkaPartition *partition = plan->reader->partitions[i];

		if (plan->end[i] < plan->from[i] || plan->end[i] > partition->next)
			return true; /* made again; or not here yet */
		if (plan->end[i] > plan->from[i] && (partition->start > plan->from[i] || kafka_window_count(partition, plan->from[i], plan->end[i])))
			return true;
	}
	return false;
}

static int64
average_message_bytes(KafkaReader *reader)
{
	int64 bytes = 0, count = 0;

	for (int i = 0; i < reader->npartitions; i++)
	{
		bytes += reader->partitions[i]->bytes;
		count += reader->partitions[i]->count;
	}
	if (count > 0)
		reader->message_bytes = Max(bytes / count, 1);
	return reader->message_bytes > 0 ? reader->message_bytes : MESSAGE_BYTES;
}

/* Shares by backlog: below one message rounded up, so that nobody starves; else down. */
static void
plan_limit(Plan *plan, const ReadLimit *limit)
{
	int64 total = plan_backlog(plan);
	int64 max = limit->max_rows > 0 ? limit->max_rows : (limit->everything ? PG_INT64_MAX : BATCH_MESSAGES);

	if (limit->max_bytes > 0)
		max = Min(max, Max(limit->max_bytes / average_message_bytes(plan->reader), 1));
	if (total <= max)
		return;
	for (int i = 0; i < plan->reader->npartitions; i++)
	{
		int64 backlog = plan->end[i] - plan->from[i];
		double share = (double) backlog / total * max;

		if (backlog > 0)
			plan->end[i] = plan->from[i] + (int64) (share < 1 ? 1 : floor(share));
	}
}

/* Messages in the range: counted where they are here, else by offsets (holes count). */
static int64
plan_rows(Plan *plan)
{
	int64 rows = 0;

	for (int i = 0; i < plan->reader->npartitions; i++)
	{
		KafkaPartition *partition = plan->reader->partitions[i];

		if (plan->end[i] <= plan->from[i])
			continue;
		if (plan->end[i] <= partition->next && plan->from[i] >= partition->start)
			rows += kafka_window_count(partition, plan->from[i], plan->end[i]);
		else
			rows += plan->end[i] - plan->from[i];
	}
	return rows;
}

/* Does the partition hold messages behind the range? */
static bool
plan_leaves_messages(Plan *plan, int i)
{
	KafkaPartition *partition = plan->reader->partitions[i];

	if (kafka_window_count(partition, plan->end[i], PG_INT64_MAX) > 0)
		return true;
	if (partition_is_caught_up(plan->reader, partition))
		return false;
	return (plan->high ? plan->high[i] : PG_INT64_MAX) > plan->end[i];
}

static SourceAdvance
plan_result(Plan *plan, int64 waiting)
{
	KafkaReader *reader = plan->reader;
	SourceAdvance advance = {.rows = plan_rows(plan), .rows_waiting = waiting};
	JsonbParseState *state = NULL;
	int behind = 0;

	pushJsonbValue(&state, WJB_BEGIN_ARRAY, NULL);
	for (int i = 0; i < reader->npartitions; i++)
	{
		JsonbValue lane = {.type = jbvNumeric};

		reader->partitions[i]->planned = plan->end[i];
		if (plan->end[i] < plan->from[i])
			plan->evidence[reader->partitions[i]->topic->number].offset = -1; /* what was read is not of this topic */
		if (!plan_leaves_messages(plan, i))
			continue;
		behind++;
		lane.val.numeric = int64_to_numeric(reader->partitions[i]->lane);
		pushJsonbValue(&state, WJB_ELEM, &lane);
	}
	advance.end = kafka_position_make(reader, plan->end, kafka_evidence_collect(reader, plan->from, plan->end, plan->evidence));
	advance.more = behind > 0;
	if (behind > 0)
		advance.behind = JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_ARRAY, NULL));
	return advance;
}

static SourceAdvance
kafka_advance(SourceReader *base, Position *from, Position *ceiling, const ReadLimit *limit)
{
	KafkaReader *reader = (KafkaReader *) base;
	SourceAdvance nothing = {.rows = 0, .rows_waiting = 0};
	Plan plan = {.reader = reader};
	int64 waiting;

	kafka_connect(reader);
	kafka_refresh_partitions(reader, false);
	if (reader->npartitions == 0)
		return nothing;
	plan.from = kafka_position_read(reader, from);
	plan.end = offsets_alloc(reader);
	plan.ceiling = ceiling ? kafka_position_read(reader, ceiling) : NULL;
	plan.evidence = kafka_position_evidence(reader, from);

	if (plan_needs_check(&plan))
		plan_check_range(&plan);
	plan_pull(&plan);
	if (plan_needs_check(&plan))
		plan_check_range(&plan);
	if (plan.restart)
		return plan_result(&plan, -1);
	plan_ends(&plan);
	if (plan.restart)
		return plan_result(&plan, -1);
	if (plan_backlog(&plan) == 0 && !plan.ceiling && !plan.high && !reader->watched)
	{
		/* Nobody would wake us: make sure. */
		plan_ask_high(&plan);
		for (int i = 0; i < reader->npartitions; i++)
			plan.end[i] = Max(plan.high[i], plan.end[i]);
	}
	for (int i = 0; i < reader->npartitions; i++)
		reader->partitions[i]->planned = plan.from[i];
	if (!plan.ceiling && !plan_has_messages(&plan))
		return nothing;
	if (memcmp(plan.from, plan.end, sizeof(int64) * reader->npartitions) == 0)
		return nothing;
	waiting = plan_backlog(&plan);
	plan_limit(&plan, limit);
	return plan_result(&plan, waiting);
}

/* ---- waking ---- */

static pgsocket
kafka_wake_socket(SourceReader *base)
{
	KafkaReader *reader = (KafkaReader *) base;

	if (!reader->client)
		return PGINVALID_SOCKET;
	reader->watched = true;
	return kafka_client_socket(reader->client);
}

static bool
kafka_has_news(SourceReader *base)
{
	KafkaReader *reader = (KafkaReader *) base;
	bool news = false;

	if (!reader->client || clock_monotonic_us() - reader->refreshed_us >= KAFKA_LOOK_AGAIN_MS * INT64CONST(1000))
		return true;
	kafka_client_drain_socket(reader->client);
	kafka_client_poll(reader->client);
	for (int i = 0; i < reader->npartitions; i++)
	{
		KafkaPartition *partition = reader->partitions[i];

		if (partition->planned == KAFKA_NOT_FOUND || !partition->started)
			return true;
		kafka_window_pull(reader, partition, Max(PULL_MESSAGES - partition->count, 0), 0);
		news = news || partition->full || partition->error || kafka_window_count(partition, partition->planned, PG_INT64_MAX) > 0;
	}
	return news;
}

/* New partitions announce themselves to nobody. */
static int
kafka_look_again_ms(SourceReader *base)
{
	return KAFKA_LOOK_AGAIN_MS;
}

const SourceOps kafka_source = {
	.kind = "kafka",
	.server = BUILT_IN_SERVER,
	.replayable = true,
	.check_option = kafka_check_option,
	.option_names = kafka_option_names,
	.parse = kafka_parse,
	.open = kafka_open,
	.initial = kafka_initial,
	.latest = kafka_latest,
	.advance = kafka_advance,
	.scan_begin = kafka_scan_begin,
	.scan_next = kafka_scan_next,
	.scan_rewind = kafka_scan_rewind,
	.scan_end = kafka_scan_end,
	.wake_socket = kafka_wake_socket,
	.has_news = kafka_has_news,
	.look_again_ms = kafka_look_again_ms,
	.close = kafka_close,
};
