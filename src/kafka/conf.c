/*
 * conf.c: options of server, user mapping, table and sink → rd_kafka_conf.
 * Danger: a conf that is no handle's yet goes with nothing: it is destroyed before an error is raised.
 */
#include "kafka/conf.h"

#include "commands/defrem.h"
#include "kafka/registry.h"

static void
conf_apply(rd_kafka_conf_t *conf, const char *owner, const char *name, const char *value)
{
	char error[512];

	if (rd_kafka_conf_set(conf, name, value, error, sizeof(error)) == RD_KAFKA_CONF_OK)
		return;
	rd_kafka_conf_destroy(conf);
	ereport(ERROR, errcode(ERRCODE_FDW_INVALID_ATTRIBUTE_VALUE),
			errmsg("invalid value for Kafka property \"%s\" of %s", name, owner),
			kafka_property_is_secret(name) ? 0 : errdetail("%s.", error));
}

rd_kafka_conf_t *
kafka_conf_build(KafkaRole role, const char *owner, const KafkaSetting *defaults, List *options, const KafkaSetting *fixed)
{
	const int everywhere = KAFKA_AT_SERVER | KAFKA_AT_USER | KAFKA_AT_TABLE | KAFKA_AT_SINK;
	List *properties = NIL;
	ListCell *cell;
	rd_kafka_conf_t *conf;

	/* First what may raise an error. Options of ours (topic, format, …) are no properties. */
	foreach (cell, options)
	{
		DefElem *option = lfirst_node(DefElem, cell);

		if (!registry_owns_option(option->defname) && kafka_property_check(option->defname, defGetString(option), everywhere))
			properties = lappend(properties, option);
	}
	conf = rd_kafka_conf_new();

	/* Ours: errors as events, log lines on the same queue, no callback. */
	conf_apply(conf, owner, "log.queue", "true");
	conf_apply(conf, owner, "log_level", "4");
	/* Else a second small request waits for the other side's delayed acknowledgement of the first: 40 ms. */
	conf_apply(conf, owner, "socket.nagle.disable", "true");
	for (; defaults && defaults->name; defaults++)
		conf_apply(conf, owner, defaults->name, defaults->value);
	foreach (cell, properties)
	{
		DefElem *option = lfirst_node(DefElem, cell);

		conf_apply(conf, owner, option->defname, defGetString(option));
	}
	for (; fixed && fixed->name; fixed++)
		conf_apply(conf, owner, fixed->name, fixed->value);
	rd_kafka_conf_set_events(conf, RD_KAFKA_EVENT_ERROR | RD_KAFKA_EVENT_LOG | (role == KAFKA_PRODUCER ? RD_KAFKA_EVENT_DR : 0));
	return conf;
}
