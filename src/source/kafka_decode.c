/*
 * kafka_decode.c: a message becomes a row: value columns by the format's decoder, in place; metadata columns when
 * declared. Danger: nothing in a message may raise an error here; what is wrong with one goes to source_bad_row with
 * its place and bytes.
 */
#include "source/kafka.h"

#include "catalog/pg_type.h"
#include "format/format.h"
#include "kafka/registry.h"
#include "mb/pg_wchar.h"
#include "util/options.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/timestamp.h"

typedef enum MetadataKind
{
	METADATA_TOPIC,
	METADATA_PARTITION,
	METADATA_OFFSET,
	METADATA_TIMESTAMP,
	METADATA_KEY,
	METADATA_HEADERS
} MetadataKind;

static const struct
{
	const char *name;
	MetadataKind kind;
	Oid type, other_type;
	const char *type_name;
} metadata_columns[] = {
	{"kafka_topic", METADATA_TOPIC, TEXTOID, InvalidOid, "text"},
	{"kafka_partition", METADATA_PARTITION, INT4OID, InvalidOid, "integer"},
	{"kafka_offset", METADATA_OFFSET, INT8OID, InvalidOid, "bigint"},
	{"kafka_timestamp", METADATA_TIMESTAMP, TIMESTAMPTZOID, InvalidOid, "timestamp with time zone"},
	{"kafka_key", METADATA_KEY, BYTEAOID, TEXTOID, "bytea or text"},
	{"kafka_headers", METADATA_HEADERS, JSONBOID, InvalidOid, "jsonb"},
};

typedef struct MetadataColumn
{
	MetadataKind kind;
	AttrNumber attno;
	Oid type;
	bool not_null;
	const char *name;
} MetadataColumn;

typedef struct KafkaDecode
{
	Decoder *decoder;
	MetadataColumn metadata[lengthof(metadata_columns)];
	int nmetadata;
	AttrNumber *values; /* the decoder's columns, for rows without a value */
	int nvalues;
	AttrNumber *dropped;
	int ndropped;
	const char *not_null_value; /* one of them that must not be NULL */
	bool tombstones;			/* a message without a value is a row */
	BadRowPolicy policy;
} KafkaDecode;

static int
metadata_find(SourceDef *def, AttrNumber attno)
{
	Form_pg_attribute attribute = TupleDescAttr(def->desc, attno - 1);

	if (attribute->attisdropped || !def->paths[attno - 1])
		return -1;
	for (int i = 0; i < lengthof(metadata_columns); i++)
		if (strcmp(metadata_columns[i].name, NameStr(attribute->attname)) == 0 &&
			strcmp(def->paths[attno - 1], NameStr(attribute->attname)) == 0)
			return i;
	return -1;
}

static List *
schema_lookup(void *arg, uint32 id, DecodeError *error)
{
	const char *why;
	List *texts = registry_schema(arg, id, &why);

	if (texts == NIL)
	{
		error->sqlstate = ERRCODE_INVALID_BINARY_REPRESENTATION;
		error->column = NULL;
		snprintf(error->message, sizeof(error->message), "unknown schema %u: %s", id, why);
	}
	return texts;
}

/* For the columns that are not metadata; NULL when there are none. */
static Decoder *
decoder_open(SourceDef *def, KafkaOptions *options, Bitmapset *needed)
{
	DecoderConfig *config = palloc0(sizeof(DecoderConfig));
	AvroSource *avro = palloc0(sizeof(AvroSource));
	bool any = false;

	config->desc = def->desc;
	config->paths = palloc0(sizeof(char *) * Max(def->desc->natts, 1));
	config->needed = needed;
	config->timestamp_unit = timestamp_unit_named(options->timestamp_unit);
	config->delimiter = options->delimiter;
	config->null_text = options->null_text;
	config->message = true;
	avro->schema = options->avro_schema;
	avro->arg = options->registry;
	avro->lookup = options->registry ? schema_lookup : NULL;
	config->avro = avro;
	config->null_on_error = def->on_bad_row == BAD_ROW_NULL;
	for (AttrNumber attno = 1; attno <= def->desc->natts; attno++)
		if (metadata_find(def, attno) < 0 && !TupleDescAttr(def->desc, attno - 1)->attisdropped)
		{
			config->paths[attno - 1] = def->paths[attno - 1];
			any = true;
		}
	return any ? format_lookup(options->format)->open(config) : NULL;
}

void
kafka_decode_check(SourceDef *def, KafkaOptions *options)
{
	for (AttrNumber attno = 1; attno <= def->desc->natts; attno++)
	{
		Form_pg_attribute attribute = TupleDescAttr(def->desc, attno - 1);
		int found = metadata_find(def, attno);

		if (found >= 0 && attribute->atttypid != metadata_columns[found].type &&
			attribute->atttypid != metadata_columns[found].other_type)
			ereport(ERROR, errcode(ERRCODE_DATATYPE_MISMATCH),
					errmsg("column \"%s\" of source %s is of type %s", NameStr(attribute->attname), def->name,
						   format_type_be(attribute->atttypid)),
					errdetail("The metadata column of that name is of type %s.", metadata_columns[found].type_name),
					errhint("Declare it so; or give the column a path if it comes from the message's value."));
	}
	(void) decoder_open(def, options, NULL);
}

KafkaDecode *
kafka_decode_open(SourceScan *scan)
{
	SourceDef *def = scan->reader->def;
	KafkaOptions *options = def->options;
	KafkaDecode *decode = palloc0(sizeof(KafkaDecode));
	int natts = def->desc->natts;

	decode->decoder = decoder_open(def, options, scan->needed);
	decode->policy = def->on_bad_row;
	decode->values = palloc(sizeof(AttrNumber) * Max(natts, 1));
	decode->dropped = palloc(sizeof(AttrNumber) * Max(natts, 1));
	/*
	 * Where no value and an empty one look alike, a row of NULLs would be a lie; with the key at hand it is news of
	 * that key.
	 */
	decode->tombstones = strcmp(options->format, "text") == 0 || strcmp(options->format, "raw") == 0;
	for (AttrNumber attno = 1; attno <= natts; attno++)
	{
		Form_pg_attribute attribute = TupleDescAttr(def->desc, attno - 1);
		int found = metadata_find(def, attno);

		if (found >= 0)
		{
			MetadataColumn *column = &decode->metadata[decode->nmetadata];

			if (metadata_columns[found].kind == METADATA_KEY)
				decode->tombstones = true;
			column->kind = metadata_columns[found].kind;
			column->attno = attno;
			column->type = attribute->atttypid;
			column->not_null = attribute->attnotnull;
			column->name = NameStr(attribute->attname);
			decode->nmetadata++;
		}
		else if (attribute->attisdropped)
			decode->dropped[decode->ndropped++] = attno;
		else
		{
			decode->values[decode->nvalues++] = attno;
			if (attribute->attnotnull)
				decode->not_null_value = NameStr(attribute->attname);
		}
	}
	return decode;
}

static bool
text_is_valid(const void *bytes, size_t len)
{
	return pg_verify_mbstr(GetDatabaseEncoding(), bytes, (int) len, true) && memchr(bytes, '\0', len) == NULL;
}

/*
 * Header values are bytes, shown as bytea shows them; repeated names, order and NULLs stay. False: a name is no valid
 * text.
 */
static bool
headers_make(const rd_kafka_message_t *message, Datum *result)
{
	JsonbParseState *state = NULL;
	rd_kafka_headers_t *headers;

	pushJsonbValue(&state, WJB_BEGIN_ARRAY, NULL);
	if (rd_kafka_message_headers(message, &headers) == RD_KAFKA_RESP_ERR_NO_ERROR)
	{
		size_t n = rd_kafka_header_cnt(headers);

		for (size_t i = 0; i < n; i++)
		{
			const char *name;
			const void *bytes;
			size_t len;
			JsonbValue value = {.type = jbvString};

			rd_kafka_header_get_all(headers, i, &name, &bytes, &len);
			if (!text_is_valid(name, strlen(name)))
				return false;
			pushJsonbValue(&state, WJB_BEGIN_ARRAY, NULL);
			value.val.string.val = (char *) name;
			value.val.string.len = strlen(name);
			pushJsonbValue(&state, WJB_ELEM, &value);
			value.type = bytes ? jbvString : jbvNull;
			if (bytes)
			{
				char *hex = palloc(len * 2 + 2);

				memcpy(hex, "\\x", 2);
				value.val.string.val = hex;
				value.val.string.len = 2 + hex_encode(bytes, len, hex + 2);
			}
			pushJsonbValue(&state, WJB_ELEM, &value);
			pushJsonbValue(&state, WJB_END_ARRAY, NULL);
		}
	}
	*result = JsonbPGetDatum(JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_ARRAY, NULL)));
	return true;
}

static bool
timestamp_make(const rd_kafka_message_t *message, Datum *result)
{
	rd_kafka_timestamp_type_t type;
	int64 ms = rd_kafka_message_timestamp(message, &type);
	int64 us;

	if (type == RD_KAFKA_TIMESTAMP_NOT_AVAILABLE || ms < 0)
		return false;
	if (ms > (END_TIMESTAMP / 1000))
		return false;
	us = ms * 1000 - (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * USECS_PER_DAY;
	*result = TimestampTzGetDatum(us);
	return true;
}

/* Not from the broker but from the dead letters, which keep neither time nor headers. */
static bool
comes_again(const rd_kafka_message_t *message)
{
	return message->rkt == NULL;
}

/* One metadata column. The message is at fault when it returns text: that is the error. */
static const char *
metadata_fill(MetadataColumn *column, KafkaPartition *partition, const rd_kafka_message_t *message, Datum *value,
			  bool *isnull)
{
	*isnull = false;
	switch (column->kind)
	{
		case METADATA_TOPIC:
			*value = partition->topic->name_datum;
			break;
		case METADATA_PARTITION:
			*value = Int32GetDatum(partition->id);
			break;
		case METADATA_OFFSET:
			*value = Int64GetDatum(message->offset);
			break;
		case METADATA_TIMESTAMP:
			*isnull = comes_again(message) || !timestamp_make(message, value);
			break;
		case METADATA_KEY:
			*isnull = message->key == NULL;
			if (*isnull)
				break;
			if (column->type == TEXTOID && !text_is_valid(message->key, message->key_len))
				return "the key is no valid text in the database's encoding";
			*value = PointerGetDatum(cstring_to_text_with_len(message->key, message->key_len));
			break;
		case METADATA_HEADERS:
			*isnull = comes_again(message);
			if (!*isnull && !headers_make(message, value))
				return "the name of a header is no valid text in the database's encoding";
			break;
	}
	return NULL;
}

static bool
bad_row(SourceScan *scan, KafkaPartition *partition, rd_kafka_message_t *message, int sqlstate, const char *text)
{
	source_bad_row(scan, kafka_message_position(partition, message), message->payload, message->len, sqlstate, text);
	return false;
}

bool
kafka_decode_row(KafkaDecode *decode, SourceScan *scan, KafkaPartition *partition, rd_kafka_message_t *message,
				 TupleTableSlot *slot)
{
	DecodeError error;

	for (int i = 0; i < decode->ndropped; i++)
		slot->tts_isnull[decode->dropped[i] - 1] = true;
	for (int i = 0; i < decode->nmetadata; i++)
	{
		MetadataColumn *column = &decode->metadata[i];
		Datum *value = &slot->tts_values[column->attno - 1];
		bool *isnull = &slot->tts_isnull[column->attno - 1];
		const char *fault = metadata_fill(column, partition, message, value, isnull);

		if (fault && decode->policy == BAD_ROW_NULL)
			*isnull = true;
		else if (fault)
			return bad_row(scan, partition, message, ERRCODE_CHARACTER_NOT_IN_REPERTOIRE, fault);
		if (*isnull && column->not_null)
			return bad_row(
				scan, partition, message, ERRCODE_NOT_NULL_VIOLATION,
				psprintf("the message has no value for column \"%s\", which is declared NOT NULL", column->name));
	}
	if (!message->payload && decode->decoder && decode->decoder->ops->decode_key)
	{
		if (!message->key)
			return bad_row(scan, partition, message, ERRCODE_INVALID_TEXT_REPRESENTATION,
						   "the message has neither key nor value: it says of nothing that it is gone");
		return decode->decoder->ops->decode_key(decode->decoder, message->key, message->key_len, slot->tts_values,
												slot->tts_isnull, &error) ||
			   bad_row(scan, partition, message, error.sqlstate, error.message);
	}
	if (!message->payload)
	{
		if (!decode->tombstones)
			return bad_row(
				scan, partition, message, ERRCODE_INVALID_TEXT_REPRESENTATION,
				"the message has no value (a tombstone); declare column kafka_key to read such messages as rows");
		if (decode->not_null_value)
			return bad_row(scan, partition, message, ERRCODE_NOT_NULL_VIOLATION,
						   psprintf("the message has no value (a tombstone), and column \"%s\" is declared NOT NULL",
									decode->not_null_value));
		for (int i = 0; i < decode->nvalues; i++)
			slot->tts_isnull[decode->values[i] - 1] = true;
		return true;
	}
	if (decode->decoder && !decode->decoder->ops->decode(decode->decoder, message->payload, message->len,
														 slot->tts_values, slot->tts_isnull, &error))
		return bad_row(scan, partition, message, error.sqlstate, error.message);
	return true;
}

/* ---- again ---- */

static void
key_from_position(Jsonb *position, rd_kafka_message_t *message)
{
	char *hex = jsonb_get_text(position, "key");
	bytea *key;

	if (hex == NULL)
		return;
	key = DatumGetByteaPP(DirectFunctionCall1(byteain, CStringGetDatum(hex)));
	message->key = VARDATA_ANY(key);
	message->key_len = VARSIZE_ANY_EXHDR(key);
}

bool
kafka_decode_again(SourceScan *scan, const SourceLetter *letter, TupleTableSlot *slot)
{
	char *topic_name = jsonb_get_text(letter->position, "topic");
	char *number = jsonb_get_text(letter->position, "partition");
	char *offset = jsonb_get_text(letter->position, "offset");
	KafkaTopic topic = {.name = topic_name ? topic_name : ""};
	KafkaPartition partition = {.topic = &topic, .id = number ? pg_strtoint32(number) : 0};
	rd_kafka_message_t message = {.payload = letter->raw, .len = letter->raw_len, .offset = offset ? pg_strtoint64(offset) : 0};

	if (scan->again == NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(scan->context);

		scan->again = kafka_decode_open(scan);
		MemoryContextSwitchTo(old);
	}
	topic.name_datum = CStringGetTextDatum(topic.name);
	key_from_position(letter->position, &message);
	return kafka_decode_row(scan->again, scan, &partition, &message, slot);
}
