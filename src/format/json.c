/*
 * json.c: one JSON object per message → columns, straight from the bytes.
 * scan (json_scan.c: checks everything, finds the wanted fields) → per column: fast path or input function (column.c).
 * Only after the whole document is known to be good are values made, so that the last of repeated keys wins and errors have one order.
 */
#include "postgres.h"

#include "mb/pg_wchar.h"

#include "format/column.h"
#include "format/format.h"
#include "format/json_column.h"

typedef struct JsonDecoder
{
	Decoder base;
	JsonTree tree;
	JsonScan scan;
	bool null_on_error;
	int ncolumns;
	Column *columns;
	int *nodes; /* per column: its node in the tree */
} JsonDecoder;

static const int fault_sqlstate[] = {
	[JSON_OK] = ERRCODE_INTERNAL_ERROR,
	[JSON_ENCODING] = ERRCODE_CHARACTER_NOT_IN_REPERTOIRE,
	[JSON_END] = ERRCODE_INVALID_TEXT_REPRESENTATION,
	[JSON_UNEXPECTED] = ERRCODE_INVALID_TEXT_REPRESENTATION,
	[JSON_CONTROL] = ERRCODE_INVALID_TEXT_REPRESENTATION,
	[JSON_ESCAPE] = ERRCODE_INVALID_TEXT_REPRESENTATION,
	[JSON_SURROGATE] = ERRCODE_INVALID_TEXT_REPRESENTATION,
	[JSON_ZERO] = ERRCODE_UNTRANSLATABLE_CHARACTER,
	[JSON_DEPTH] = ERRCODE_STATEMENT_TOO_COMPLEX,
	[JSON_RANGE] = ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE,
	[JSON_NOT_AN_OBJECT] = ERRCODE_INVALID_TEXT_REPRESENTATION,
};

void *
json_tree_palloc(size_t size)
{
	return palloc(size);
}

/* One step of a path, up to the next dot; `\.` and `\\` stand for themselves. Returns what follows the dot, or NULL at the end. */
static const char *
path_step(const char *path, char *step, size_t *len)
{
	*len = 0;
	for (; *path != '\0' && *path != '.'; path++)
	{
		if (*path == '\\' && (path[1] == '.' || path[1] == '\\'))
			path++;
		step[(*len)++] = *path;
	}
	return *path == '.' ? path + 1 : NULL;
}

/* A path that is just the column's name is a top-level field, dots or not. Documents are UTF-8, whatever the database is. */
int
json_path_add(JsonTree *tree, int parent, const char *column, const char *path)
{
	char *utf8 = pg_server_to_any(path, strlen(path), PG_UTF8);
	char *step = palloc(strlen(utf8) + 1);
	const char *rest = utf8;
	int node = parent, depth = 0;

	if (strcmp(path, column) == 0)
		return json_tree_add(tree, parent, utf8, strlen(utf8));
	while (rest != NULL)
	{
		size_t len;

		rest = path_step(rest, step, &len);
		if (len == 0)
			ereport(
				ERROR, errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				errmsg("path \"%s\" of column \"%s\" has an empty step", path, column),
				errhint(
					"Write the names of nested fields with single dots between them; \\. stands for a dot in a name."));
		if (++depth > JSON_MAX_PATH_DEPTH)
			ereport(ERROR, errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					errmsg("path of column \"%s\" has more than %d steps", column, JSON_MAX_PATH_DEPTH));
		node = json_tree_add(tree, node, step, len);
	}
	return node;
}

char *
json_path_first(const char *path, bool *more)
{
	char *step = palloc(strlen(path) + 1);
	size_t len;

	*more = path_step(path, step, &len) != NULL;
	step[len] = '\0';
	return step;
}

static Decoder *
json_open(const DecoderConfig *config)
{
	JsonDecoder *self = palloc0(sizeof(JsonDecoder));

	self->base.ops = &json_decoder;
	self->null_on_error = config->null_on_error;
	self->columns = palloc0(sizeof(Column) * Max(config->desc->natts, 1));
	self->nodes = palloc0(sizeof(int) * Max(config->desc->natts, 1));
	json_tree_init(&self->tree, json_tree_palloc);
	for (int i = 0; i < config->desc->natts; i++)
	{
		if (config->paths[i] == NULL || TupleDescAttr(config->desc, i)->attisdropped)
			continue;
		column_init(&self->columns[self->ncolumns], config, i);
		self->nodes[self->ncolumns] =
			json_path_add(&self->tree, 0, NameStr(TupleDescAttr(config->desc, i)->attname), config->paths[i]);
		self->ncolumns++;
	}
	json_tree_finish(&self->tree, &self->scan);
	self->scan.check_number = column_number_fits_numeric;
	return &self->base;
}

/* Cold: says where and what, with the character for the eye. */
bool
json_fail(JsonScan *scan, DecodeError *error)
{
	size_t position = scan->where - scan->begin;
	unsigned char c = scan->where < scan->end ? (unsigned char) *scan->where : 0;

	if (scan->fault == JSON_ENCODING)
		return decode_fail(error, NULL, fault_sqlstate[scan->fault], "%s: 0x%02x at byte %zu%s",
						   json_fault_text(scan->fault), c, position,
						   c == 0 && position == 0 && scan->end - scan->begin > 5 ? " (the frame of a schema registry?)" : "");
	if (scan->fault == JSON_UNEXPECTED && c > 0x20 && c < 0x7F)
		return decode_fail(error, NULL, fault_sqlstate[scan->fault], "%s \"%c\" at byte %zu",
						   json_fault_text(scan->fault), c, position);
	return decode_fail(error, NULL, fault_sqlstate[scan->fault], "%s, at byte %zu", json_fault_text(scan->fault),
					   position);
}

bool
json_escaped_value(Column *column, const JsonToken *token, Datum *value, DecodeError *error)
{
	char *text = palloc(token->len + 1);
	size_t len = json_unescape(token, text);

	return column_from_string(column, text, len, value, error);
}

static bool
json_decode(Decoder *decoder, const char *buf, size_t len, Datum *values, bool *isnull, DecodeError *error)
{
	JsonDecoder *self = (JsonDecoder *) decoder;

	if (!json_scan(&self->scan, buf, len))
		return json_fail(&self->scan, error);
	for (int i = 0; i < self->ncolumns; i++)
	{
		Column *column = &self->columns[i];
		Datum *value = &values[column->index];
		bool *null = &isnull[column->index];

		if (!column_settle(column, json_column_value(column, &self->scan.tokens[self->nodes[i]], value, null, error),
						   self->null_on_error, value, null, error))
			return false;
	}
	return true;
}

const DecoderOps json_decoder = {
	.name = "json",
	.open = json_open,
	.decode = json_decode,
};
