/*
 * processor.h: rows of stream.processor: the handlers and declared state of a transform_with_state.
 * Functions and types are kept by name, as the creator's search_path found them, and resolved whenever a plan is made or a batch begins.
 */
#ifndef STREAM_METADATA_PROCESSOR_H
#define STREAM_METADATA_PROCESSOR_H

#include "postgres.h"
#include "nodes/pg_list.h"
#include "utils/jsonb.h"

#define PROCESSOR_TIMERS "timers" /* the name the state reader shows timers under; no variable may have it */

typedef enum TimeMode
{
	TIME_MODE_NONE,
	TIME_MODE_PROCESSING,
	TIME_MODE_EVENT
} TimeMode;

typedef enum VariableKind
{
	VARIABLE_VALUE,
	VARIABLE_LIST,
	VARIABLE_MAP
} VariableKind;

typedef struct ProcessorVariable
{
	char *name;
	VariableKind kind;
	Oid type; /* of the value, an element, or a map's value */
	int32 typmod;
	Oid key_type; /* map only */
	int32 key_typmod;
	int64 ttl; /* microseconds after the write; -1: for ever */
} ProcessorVariable;

typedef struct Processor
{
	char *name;
	char *owner_name;
	char *handle_input; /* schema.function(type, type) */
	char *handle_timer; /* NULL: none */
	Jsonb *state;
	TimeMode time_mode;
	char *event_time; /* result column that is event time for what stands above; NULL: none */
	List *variables;  /* ProcessorVariable, by name */
} Processor;

/* In CurrentMemoryContext. 42704 when unknown (missing_ok: NULL). */
extern Processor *processor_load(const char *name, bool missing_ok);
/* Checks a declaration and makes its type names qualified; fills state and variables. */
extern void processor_declare(Processor *processor, Jsonb *state);
extern void processor_insert(Processor *processor);
extern bool processor_delete(const char *name);

/* The function of a kept signature; 42883 when it is gone. */
extern Oid processor_function(const char *signature);

extern TimeMode time_mode_parse(const char *text); /* 22023 naming the three */
extern const char *time_mode_name(TimeMode mode);
extern const char *variable_kind_name(VariableKind kind);

#endif
