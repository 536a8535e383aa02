/* properties.c: every property this librdkafka knows, as its own table. For the test of the allow-list. */
#include <librdkafka/rdkafka.h>
#include <stdio.h>

int
main(void)
{
	rd_kafka_conf_properties_show(stdout);
	return 0;
}
