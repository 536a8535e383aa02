/*
 * options.h: jsonb and FDW options through one table per owner.
 * A table lists every name that is valid; anything else is an error (22023) that names the valid ones.
 */
#ifndef STREAM_UTIL_OPTIONS_H
#define STREAM_UTIL_OPTIONS_H

#include "postgres.h"
#include "datatype/timestamp.h"
#include "nodes/pg_list.h"
#include "utils/jsonb.h"

typedef enum OptionType
{
	OPTION_TEXT,	 /* char *, any JSON scalar as text */
	OPTION_BOOL,	 /* bool */
	OPTION_INT64,	 /* int64 within [min, max] */
	OPTION_INTERVAL, /* int64, microseconds; a month counts 31 days, a year 372 */
	OPTION_ENUM,	 /* char *, one of choices ("a|b|c") */
	OPTION_JSON		 /* Jsonb *, objects and arrays as they are */
} OptionType;

typedef struct OptionDef
{
	const char *name;
	OptionType type;
	size_t offset;		 /* where in the target struct; the struct holds the defaults beforehand */
	int64 min, max;		 /* OPTION_INT64, OPTION_INTERVAL (microseconds) */
	const char *choices; /* OPTION_ENUM: "append|update" */
} OptionDef;

/* Reads the object into *target by the table. owner names the object in errors: "query \"q\"". NULL values are skipped. */
extern void options_parse_jsonb(const OptionDef *defs, Jsonb *options, void *target, const char *owner);

/* One option given as text (FDW options). Returns false when the table has no such name. */
extern bool options_parse_text(const OptionDef *defs, const char *name, const char *value, void *target, const char *owner);

/* One of a list of DefElem, as text; NULL: it is not there. */
extern char *option_list_get(List *options, const char *name);

/* "a, b, c": the names in the table, for error hints. */
extern char *options_names(const OptionDef *defs);

/* Interval value or text → microseconds by the 31-day rule, such that a time of our days can be added; out of range and garbage are 22023/22007. */
extern int64 options_interval_length(const Interval *interval, const char *what);
extern int64 options_interval_us(const char *text, const char *what);

/* Small readers over Jsonb objects; NULL / default when absent or JSON null. Strings come without quotes. */
extern char *jsonb_get_text(Jsonb *object, const char *key);
extern Jsonb *jsonb_get_object(Jsonb *object, const char *key);

#endif
