/*
 * json_column.h: what decoders over JSON documents share: paths into the tree of wanted fields, faults as errors, fields as values.
 */
#ifndef STREAM_FORMAT_JSON_COLUMN_H
#define STREAM_FORMAT_JSON_COLUMN_H

#include "postgres.h"

#include "format/column.h"
#include "format/json_scan.h"

extern void *json_tree_palloc(size_t size);
/* The node below `parent` that a dotted path means. A path that is just the column's name is one field, dots or not. */
extern int json_path_add(JsonTree *tree, int parent, const char *column, const char *path);
/* The first step of a path as it is written, and whether more follow. */
extern char *json_path_first(const char *path, bool *more);
/* What the scan found wrong; always false. */
extern bool json_fail(JsonScan *scan, DecodeError *error) pg_attribute_cold;
extern bool json_escaped_value(Column *column, const JsonToken *token, Datum *value, DecodeError *error);

/* The field's value for the column; JSON null and a missing field are NULL. */
static inline bool
json_column_value(Column *column, const JsonToken *token, Datum *value, bool *isnull, DecodeError *error)
{
	*isnull = false;
	switch (token->kind)
	{
		case JSON_ABSENT:
		case JSON_NULL:
			*isnull = true;
			return column_take_null(column, error);
		case JSON_TRUE:
		case JSON_FALSE:
			return column_from_bool(column, token->kind == JSON_TRUE, value, error);
		case JSON_NUMBER:
			return column_from_number(column, token->start, token->len, value, error);
		case JSON_STRING:
			if (column->is_json) /* with its quotes */
				return column_from_json(column, token->start - 1, token->len + 2, value, error);
			if (token->escaped)
				return json_escaped_value(column, token, value, error);
			return column_from_string(column, token->start, token->len, value, error);
		case JSON_OBJECT:
		case JSON_ARRAY:
			return column_from_json(column, token->start, token->len, value, error);
	}
	return false;
}

#endif
