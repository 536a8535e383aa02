/*
 * property.h: which librdkafka properties users may set, and where. Everything that is not in the table is refused:
 * many properties read files, run programs or send secrets elsewhere.
 */
#ifndef STREAM_KAFKA_PROPERTY_H
#define STREAM_KAFKA_PROPERTY_H

#include "postgres.h"

/* Places a property may stand in; a set of bits. */
#define KAFKA_AT_SERVER 0x01 /* connection and security */
#define KAFKA_AT_USER 0x02	 /* secrets */
#define KAFKA_AT_TABLE 0x04	 /* tuning of the consumer */
#define KAFKA_AT_SINK 0x08	 /* tuning of the producer */

/*
 * Is this a property, valid at that place, with a value librdkafka takes? False: no name of ours (no dot in it). A
 * name with a dot that is not allowed, or not there, is an error (HV00D) that names the way out. Connection
 * properties pass at KAFKA_AT_TABLE: only the built-in server allows them there, which kafka_property_is_connection
 * lets the caller check.
 */
extern bool kafka_property_check(const char *name, const char *value, int place);
extern bool kafka_property_is_connection(const char *name);
extern bool kafka_property_is_secret(const char *name);

/* "a, b, c": the names valid at that place. */
extern char *kafka_property_names(int place);

#endif
