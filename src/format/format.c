/*
 * format.c: the table of formats. A new one is a file beside this one and a line here.
 * Names are what option `format` takes.
 */
#include "postgres.h"

#include "lib/stringinfo.h"

#include "format/format.h"

static const DecoderOps *const formats[] = {&avro_decoder, &csv_decoder, &debezium_decoder, &json_decoder, &raw_decoder, &text_decoder};

const DecoderOps *
format_lookup(const char *name)
{
	for (int i = 0; i < lengthof(formats); i++)
		if (strcmp(formats[i]->name, name) == 0)
			return formats[i];
	return NULL;
}

char *
format_names(void)
{
	StringInfoData names;

	initStringInfo(&names);
	for (int i = 0; i < lengthof(formats); i++)
		appendStringInfo(&names, "%s%s", i > 0 ? ", " : "", formats[i]->name);
	return names.data;
}

TimestampUnit
timestamp_unit_named(const char *name)
{
	if (name == NULL)
		return TIMESTAMP_UNIT_NONE;
	return strcmp(name, "s") == 0 ? TIMESTAMP_UNIT_S : strcmp(name, "ms") == 0 ? TIMESTAMP_UNIT_MS : TIMESTAMP_UNIT_US;
}
