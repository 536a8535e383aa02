/*
 * kafka.c: the Kafka sink: one message a row, acknowledged by all in-sync replicas before the batch commits. At least once: a batch that comes again is
 * sent again, with the same batch_id header; with option transactional exactly once, for readers with isolation level read_committed.
 * Danger: connection options of a user's server and its secrets belong together; a sink must not send them elsewhere.
 */
#include "sink/sink.h"

#include "catalog/pg_foreign_server.h"
#include "commands/defrem.h"
#include "foreign/foreign.h"
#include "kafka/property.h"
#include "metadata/incarnation.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "sink/kafka_producer.h"
#include "util/closest.h"
#include "util/compat.h"
#include "util/options.h"
#include "util/user_mapping.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/memutils.h"

#define WRAPPER "stream_kafka"
#define BUILT_IN_SERVER "stream_kafka"
#define TOPIC_LENGTH 249

typedef struct KafkaSinkOptions
{
	char *server;
	bool transactional;
	List *properties; /* DefElem, of the sink itself */
} KafkaSinkOptions;

typedef struct KafkaSink
{
	Sink base;
	MessageShape *shape;
	MemoryContext context; /* of one batch */
	KafkaProducer *producer;
	bool sent;			   /* the batch is in the topic already */
	char *batch_id;		   /* header */
} KafkaSink;

static const OptionDef option_defs[] = {{"server", OPTION_TEXT, offsetof(KafkaSinkOptions, server), 0, 0, NULL},
										{"transactional", OPTION_BOOL, offsetof(KafkaSinkOptions, transactional), 0, 0, NULL},
										{NULL, 0, 0, 0, 0, NULL}};

/* ---- options ---- */

static char *
sink_owner(SinkDef *def)
{
	return psprintf("the Kafka sink of query \"%s\"", def->query_name);
}

static void
option_read(SinkDef *def, KafkaSinkOptions *options, const char *name, const char *value, bool built_in)
{
	if (options_parse_text(option_defs, name, value, options, sink_owner(def)))
		return;
	if (!built_in && kafka_property_is_connection(name))
		ereport(ERROR, (errcode(ERRCODE_FDW_INVALID_OPTION_NAME), errmsg("option \"%s\" of %s belongs to its server", name, sink_owner(def)),
						errhint("Set it with ALTER SERVER %s.", quote_identifier(options->server))));
	if (!kafka_property_check(name, value, built_in ? KAFKA_AT_SINK | KAFKA_AT_SERVER : KAFKA_AT_SINK))
	{
		char *names = psprintf("%s, %s; with the built-in server also %s", options_names(option_defs), kafka_property_names(KAFKA_AT_SINK),
							   kafka_property_names(KAFKA_AT_SERVER));

		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("unknown option \"%s\" of %s", name, sink_owner(def)),
						errdetail("Valid options are: %s.", names), closest_hint(name, names)));
	}
	options->properties = lappend(options->properties, makeDefElem(pstrdup(name), (Node *) makeString(pstrdup(value)), -1));
}

static KafkaSinkOptions *
options_read(SinkDef *def)
{
	KafkaSinkOptions *options = palloc0(sizeof(KafkaSinkOptions));
	JsonbIterator *it;
	JsonbValue v;
	JsonbIteratorToken token;
	bool built_in;

	options->server = BUILT_IN_SERVER;
	if (def->options == NULL)
		return options;
	if (!JB_ROOT_IS_OBJECT(def->options))
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("options of %s must be a JSON object", sink_owner(def))));
	if (jsonb_get_text(def->options, "server"))
		options->server = jsonb_get_text(def->options, "server");
	built_in = strcmp(options->server, BUILT_IN_SERVER) == 0;
	it = JsonbIteratorInit(&def->options->root);
	while ((token = JsonbIteratorNext(&it, &v, true)) != WJB_DONE)
		if (token == WJB_KEY)
		{
			char *name = pnstrdup(v.val.string.val, v.val.string.len);
			char *value = jsonb_get_text(def->options, name);

			JsonbIteratorNext(&it, &v, true);
			if (v.type == jbvBinary)
				ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("invalid value for option \"%s\" of %s", name, sink_owner(def)),
								errdetail("Expected a single value, not an object or array.")));
			if (value)
				option_read(def, options, name, value, built_in);
		}
	return options;
}

/* The server's options, the user's secrets and the sink's own, as the current user may use them. */
static List *
connection_properties(SinkDef *def, KafkaSinkOptions *options)
{
	ForeignServer *server = GetForeignServerByName(options->server, false);
	List *secrets = user_mapping_options(server->serverid);
	List *all;

	if (strcmp(GetForeignDataWrapper(server->fdwid)->fdwname, WRAPPER) != 0)
		ereport(ERROR, (errcode(ERRCODE_WRONG_OBJECT_TYPE), errmsg("server \"%s\" of %s is no Kafka server", options->server, sink_owner(def)),
						errhint("CREATE SERVER … FOREIGN DATA WRAPPER " WRAPPER " OPTIONS (\"bootstrap.servers\" '…').")));
	if (pg_foreign_server_aclcheck(server->serverid, GetUserId(), ACL_USAGE) != ACLCHECK_OK)
		aclcheck_error(ACLCHECK_NO_PRIV, OBJECT_FOREIGN_SERVER, options->server);
	if (strcmp(options->server, BUILT_IN_SERVER) == 0 && secrets != NIL)
		ereport(ERROR, (errcode(ERRCODE_FDW_INVALID_OPTION_NAME), errmsg("%s would use secrets with the built-in server \"%s\"", sink_owner(def), options->server),
						errdetail("There the sink itself chooses which brokers to talk to."),
						errhint("Make a server of its own (CREATE SERVER … FOREIGN DATA WRAPPER " WRAPPER ") with its user mapping.")));
	all = list_concat(list_concat(list_copy(server->options), secrets), options->properties);
	if (option_list_get(all, "bootstrap.servers") == NULL)
		ereport(ERROR, (errcode(ERRCODE_FDW_OPTION_NAME_NOT_FOUND), errmsg("%s has no option \"bootstrap.servers\"", sink_owner(def)),
						errhint("Set it on the server, or on the sink when that uses the built-in server.")));
	return all;
}

static void
topic_check(SinkDef *def)
{
	const char *letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
	const char *topic = def->target;

	if (*topic == '\0' || strlen(topic) > TOPIC_LENGTH || strspn(topic, letters) < strlen(topic) || strcmp(topic, ".") == 0 || strcmp(topic, "..") == 0)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("invalid topic \"%s\" of %s", topic, sink_owner(def)),
						errdetail("A topic's name has from 1 to %d letters, digits, dots, underscores and hyphens.", TOPIC_LENGTH)));
}

/* ---- callbacks ---- */

static void
to_kafka_create(SinkDef *def, SinkShape *shape)
{
	topic_check(def);
	(void) connection_properties(def, options_read(def));
	(void) kafka_message_shape(def, shape);
}

static Sink *
to_kafka_open(SinkDef *def, SinkShape *shape)
{
	KafkaSink *sink = (KafkaSink *) sink_make(sizeof(KafkaSink), &kafka_sink, def, shape);

	sink->shape = kafka_message_shape(def, shape);
	sink->context = AllocSetContextCreate(CurrentMemoryContext, "stream_ext kafka sink", ALLOCSET_DEFAULT_SIZES);
	return &sink->base;
}

static void
to_kafka_begin(Sink *base, const BatchInfo *batch)
{
	KafkaSink *sink = (KafkaSink *) base;
	KafkaSinkOptions *options;
	ProducerConfig config;
	MemoryContext old;

	MemoryContextReset(sink->context);
	old = MemoryContextSwitchTo(sink->context);
	options = options_read(base->def);
	config.owner = sink_owner(base->def);
	config.topic = base->def->target;
	config.properties = connection_properties(base->def, options);
	config.identity = options->transactional ? psprintf("stream_ext-%s-" INT64_FORMAT "-%d", incarnation_outside(), batch->query_id, batch->incarnation) : NULL;
	sink->batch_id = psprintf(INT64_FORMAT "/%d/" INT64_FORMAT, batch->query_id, batch->incarnation, batch->batch_id);
	MemoryContextSwitchTo(GetMemoryChunkContext(sink));
	sink->producer = kafka_producer_get(sink->producer, &config);
	sink->sent = kafka_producer_has_sent(sink->producer, batch);
	MemoryContextSwitchTo(old);
}

static void
to_kafka_receive(Sink *base, TupleTableSlot *slot)
{
	KafkaSink *sink = (KafkaSink *) base;

	base->rows++;
	if (!sink->sent)
		kafka_producer_send(sink->producer, kafka_message_make(sink->shape, slot, sink->batch_id));
}

static void
to_kafka_finish(Sink *base)
{
	KafkaSink *sink = (KafkaSink *) base;

	if (!sink->sent)
		kafka_producer_commit(sink->producer, base->batch);
}

/* A Kafka transaction is a batch, marked as done with its number. */
static bool
to_kafka_in_pieces(SinkDef *def)
{
	return !options_read(def)->transactional;
}

static void
to_kafka_rewind(SinkDef *def, SinkShape *shape, int64 batch_id)
{
	if (options_read(def)->transactional)
		ereport(NOTICE, (errmsg("batches after " INT64_FORMAT " of query \"%s\" that topic \"%s\" has are not sent again", batch_id, def->query_name, def->target),
						 errhint("stream.reset_query sends everything again, under a new incarnation.")));
}

static char *
to_kafka_describe(SinkDef *def)
{
	return psprintf("topic %s", def->target);
}

const SinkOps kafka_sink = {
	.kind = "kafka",
	.needs_target = true,
	.in_database = false,
	.in_pieces = to_kafka_in_pieces,
	.create = to_kafka_create,
	.open = to_kafka_open,
	.begin = to_kafka_begin,
	.receive = to_kafka_receive,
	.finish = to_kafka_finish,
	.rewind = to_kafka_rewind,
	.describe = to_kafka_describe,
};
