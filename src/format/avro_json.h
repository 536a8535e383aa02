/* avro_json.h: an Avro value as JSON, for json columns and as input of arrays and rows. */
#ifndef STREAM_FORMAT_AVRO_JSON_H
#define STREAM_FORMAT_AVRO_JSON_H

#include "postgres.h"

#include "format/avro_scan.h"
#include "lib/stringinfo.h"

/*
 * The token of a value that avro_scan has read. Dates and times are ISO strings, decimals numbers, bytes strings as PostgreSQL shows bytea. UTF-8. False:
 * a date or time beyond PostgreSQL's.
 */
extern bool avro_json_write(StringInfo json, const AvroToken *token);
/* Text of the two forms that are bytes and mean something. */
extern char *avro_uuid_text(const char *bytes);
extern char *avro_months_text(const char *bytes);
extern char *avro_real_text(const AvroToken *token);

#endif
