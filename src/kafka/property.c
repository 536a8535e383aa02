/*
 * property.c: the allow-list of librdkafka properties.
 *
 * An option of a server, user mapping, source or sink → is it a property, may it stand there, does librdkafka take
 * the value. Danger: a name added here is one any user with USAGE on a server may set; nothing that names a file, a
 * program, another host than bootstrap.servers, or our own bookkeeping belongs in the table.
 */
#include "postgres.h"

#include <librdkafka/rdkafka.h>

#include "kafka/pem.h"
#include "kafka/property.h"
#include "lib/stringinfo.h"
#include "util/closest.h"

typedef struct Property
{
	const char *name;
	int places;
	bool secret; /* never shown, not even in an error about its value */
} Property;

#define CONNECTION KAFKA_AT_SERVER
#define CREDENTIAL (KAFKA_AT_SERVER | KAFKA_AT_USER)
#define CONSUMER (KAFKA_AT_SERVER | KAFKA_AT_TABLE)
#define PRODUCER (KAFKA_AT_SERVER | KAFKA_AT_SINK)

static const Property properties[] = {
	{"bootstrap.servers", CONNECTION},
	{"security.protocol", CONNECTION},
	{"sasl.mechanism", CONNECTION},
	{"sasl.mechanisms", CONNECTION},
	{"sasl.username", CREDENTIAL},
	{"sasl.password", KAFKA_AT_USER, true},
	{"ssl.ca.pem", CONNECTION},
	{"ssl.certificate.pem", CREDENTIAL},
	{"ssl.key.pem", KAFKA_AT_USER, true},
	{"ssl.key.password", KAFKA_AT_USER, true},
	{"ssl.cipher.suites", CONNECTION},
	{"ssl.curves.list", CONNECTION},
	{"ssl.sigalgs.list", CONNECTION},
	{"ssl.endpoint.identification.algorithm", CONNECTION},
	{"enable.ssl.certificate.verification", CONNECTION},
	{"client.id", CONNECTION},
	{"client.rack", CONNECTION},
	{"broker.address.family", CONNECTION},
	{"broker.address.ttl", CONNECTION},
	{"connections.max.idle.ms", CONNECTION},
	{"metadata.max.age.ms", CONNECTION},
	{"topic.metadata.refresh.interval.ms", CONNECTION},
	{"reconnect.backoff.ms", CONNECTION},
	{"reconnect.backoff.max.ms", CONNECTION},
	{"socket.connection.setup.timeout.ms", CONNECTION},
	{"socket.timeout.ms", CONNECTION},
	{"socket.keepalive.enable", CONNECTION},
	{"socket.nagle.disable", CONNECTION},
	{"socket.receive.buffer.bytes", CONNECTION},
	{"socket.send.buffer.bytes", CONNECTION},
	{"receive.message.max.bytes", CONNECTION},
	{"message.max.bytes", CONNECTION},
	{"retry.backoff.ms", CONNECTION},

	{"check.crcs", CONSUMER},
	{"fetch.error.backoff.ms", CONSUMER},
	{"fetch.max.bytes", CONSUMER},
	{"fetch.message.max.bytes", CONSUMER},
	{"fetch.min.bytes", CONSUMER},
	{"fetch.wait.max.ms", CONSUMER},
	{"max.partition.fetch.bytes", CONSUMER},
	{"queued.max.messages.kbytes", CONSUMER},
	{"queued.min.messages", CONSUMER},

	{"batch.num.messages", PRODUCER},
	{"batch.size", PRODUCER},
	{"compression.codec", PRODUCER},
	{"compression.level", PRODUCER},
	{"compression.type", PRODUCER},
	{"linger.ms", PRODUCER},
	{"partitioner", PRODUCER},
	{"queue.buffering.max.kbytes", PRODUCER},
	{"queue.buffering.max.messages", PRODUCER},
	{"queue.buffering.max.ms", PRODUCER},
	{"request.timeout.ms", PRODUCER},
	{"sticky.partitioning.linger.ms", PRODUCER},
	{"transaction.timeout.ms", KAFKA_AT_SINK},
};

/* Names people will try, with what to do instead. */
static const struct
{
	const char *name;
	const char *hint;
} refused[] = {
	{"ssl.ca.location", "Put the certificate itself, as PEM text, into option \"ssl.ca.pem\" of the server."},
	{"ssl.certificate.location", "Put the certificate itself, as PEM text, into option \"ssl.certificate.pem\"."},
	{"ssl.key.location", "Put the key itself, as PEM text, into option \"ssl.key.pem\" of the user mapping."},
	{"ssl.keystore.location",
	 "Put certificate and key, as PEM text, into \"ssl.certificate.pem\" and \"ssl.key.pem\"."},
	{"group.id", "Positions are kept in the query's offset log, never in a consumer group."},
	{"enable.auto.commit", "Positions are kept in the query's offset log, never in a consumer group."},
	{"auto.offset.reset",
	 "Use option \"starting_offsets\"; what happens to missing messages is option \"fail_on_data_loss\"."},
	{"isolation.level", "Use option \"isolation_level\"."},
	{"transactional.id", "Use option \"transactional\" of the sink; the id is the query's own."},
	{"acks", "A sink always waits for all in-sync replicas."},
};

static const Property *
property_find(const char *name)
{
	for (int i = 0; i < lengthof(properties); i++)
		if (strcmp(properties[i].name, name) == 0)
			return &properties[i];
	return NULL;
}

bool
kafka_property_is_connection(const char *name)
{
	const Property *property = property_find(name);

	return property && (property->places & (KAFKA_AT_TABLE | KAFKA_AT_SINK)) == 0;
}

bool
kafka_property_is_secret(const char *name)
{
	const Property *property = property_find(name);

	return property && property->secret;
}

static const char *
hint_for_unknown(const char *name, int place)
{
	char *closest;

	for (int i = 0; i < lengthof(refused); i++)
		if (strcmp(refused[i].name, name) == 0)
			return refused[i].hint;
	closest = closest_find(name, kafka_property_names(place == KAFKA_AT_TABLE ? place | KAFKA_AT_SERVER : place));
	return psprintf("%s%s%sProperties valid here: %s.", closest ? "Perhaps you meant \"" : "", closest ? closest : "", closest ? "\". " : "",
					kafka_property_names(place));
}

static const char *
place_name(int places)
{
	if (places & KAFKA_AT_SERVER)
		return (places & KAFKA_AT_USER) ? "the server or a user mapping" : "the server";
	if (places & KAFKA_AT_USER)
		return "a user mapping (CREATE USER MAPPING), where other roles cannot read it";
	return (places & KAFKA_AT_TABLE) ? "the source" : "the sink";
}

/*
 * What librdkafka takes, from its own table of properties ("name | C/P | range | default | …"); NULL: anything. The table is for reading, so an unexpected
 * shape of it just gives no answer.
 */
static char *
property_range(const char *name)
{
	char *table = NULL, *line, *next, *range = NULL;
	size_t size;
	FILE *stream = open_memstream(&table, &size);

	if (stream == NULL)
		return NULL;
	rd_kafka_conf_properties_show(stream);
	fclose(stream);
	for (line = strtok_r(table, "\n", &next); line && !range; line = strtok_r(NULL, "\n", &next))
	{
		size_t len = strlen(name);
		char *from = strncmp(line, name, len) == 0 && line[len] == ' ' ? strchr(line, '|') : NULL, *to;

		if (!from || !(from = strchr(from + 1, '|')) || !(to = strchr(++from, '|')))
			continue;
		from += strspn(from, " ");
		while (to > from && to[-1] == ' ')
			to--;
		if (to > from)
			range = pnstrdup(from, to - from);
	}
	free(table);
	return range;
}

static int
value_hint(const char *name, const char *value, const char *range)
{
	if (strcmp(name, "security.protocol") == 0 && pg_strncasecmp(value, "tls", 3) == 0)
		return errhint("TLS is called \"ssl\" here, with a password \"sasl_ssl\".");
	return range ? closest_hint(value, range) : 0;
}

/*
 * librdkafka says itself whether it takes the value; its words may quote the value, so they are kept back for
 * secrets.
 */
static void
property_try_value(const Property *property, const char *value)
{
	rd_kafka_conf_t *conf = rd_kafka_conf_new();
	char error[512];
	rd_kafka_conf_res_t result = rd_kafka_conf_set(conf, property->name, value, error, sizeof(error));

	rd_kafka_conf_destroy(conf);
	if (result != RD_KAFKA_CONF_OK)
	{
		char *range = property_range(property->name);

		ereport(ERROR, errcode(ERRCODE_FDW_INVALID_ATTRIBUTE_VALUE),
				errmsg("invalid value for Kafka property \"%s\"", property->name),
				property->secret ? 0 : errdetail("%s.%s%s%s", error, range ? " It takes: " : "", range ? range : "", range ? "." : ""),
				property->secret ? 0 : value_hint(property->name, value, range));
	}
}

/* Only mechanisms that neither start a program (GSSAPI runs kinit) nor need a token callback. */
static void
check_mechanism(const char *name, const char *value)
{
	if (strcmp(value, "PLAIN") == 0 || strcmp(value, "SCRAM-SHA-256") == 0 || strcmp(value, "SCRAM-SHA-512") == 0)
		return;
	ereport(
		ERROR, errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
		errmsg("Kafka property \"%s\" does not take \"%s\"", name, value),
		errhint("Supported mechanisms are PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512; or authenticate by certificate with "
				"security.protocol \"ssl\"."));
}

bool
kafka_property_check(const char *name, const char *value, int place)
{
	const Property *property = property_find(name);

	if (!property)
	{
		if (!strchr(name, '.'))
		{
			for (int i = 0; i < lengthof(refused); i++)
				if (strcmp(refused[i].name, name) == 0)
					ereport(ERROR, errcode(ERRCODE_FDW_INVALID_OPTION_NAME),
							errmsg("Kafka property \"%s\" cannot be set", name), errhint("%s", refused[i].hint));
			return false;
		}
		ereport(ERROR, errcode(ERRCODE_FDW_INVALID_OPTION_NAME), errmsg("Kafka property \"%s\" cannot be set", name),
				errhint("%s", hint_for_unknown(name, place)));
	}
	if (!(property->places & place) && !(place == KAFKA_AT_TABLE && (property->places & KAFKA_AT_SERVER)))
		ereport(ERROR, errcode(ERRCODE_FDW_INVALID_OPTION_NAME),
				errmsg("Kafka property \"%s\" cannot be set here", name),
				errhint("It is an option of %s.", place_name(property->places)));
	if (strncmp(name, "sasl.mechanism", strlen("sasl.mechanism")) == 0)
		check_mechanism(name, value);
	property_try_value(property, value);
	if (strcmp(name + strlen(name) - strlen(".pem"), ".pem") == 0)
		pem_check(name, value);
	return true;
}

char *
kafka_property_names(int place)
{
	StringInfoData names;

	initStringInfo(&names);
	for (int i = 0; i < lengthof(properties); i++)
		if (properties[i].places & place)
			appendStringInfo(&names, "%s%s", names.len ? ", " : "", properties[i].name);
	return names.data;
}
