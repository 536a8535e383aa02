/*
 * registry.h: schemas from a schema registry, by their number. Asked over HTTP, once per process and schema.
 * Built without libcurl (STREAM_CURL) every use is refused.
 */
#ifndef STREAM_KAFKA_REGISTRY_H
#define STREAM_KAFKA_REGISTRY_H

#include "postgres.h"
#include "nodes/pg_list.h"

typedef struct Registry Registry;

/* Is this an option of the registry, valid at that place (property.h)? ereport when it is one and wrong; false: not ours. */
extern bool registry_check_option(const char *name, const char *value, int place);
extern bool registry_owns_option(const char *name); /* each says where a password is sent, or is one */
extern char *registry_option_names(int place);

/* By the options of a source, its server and its user mapping (DefElem). NULL: no url. Kept until the process ends. */
extern Registry *registry_find(List *options);
/*
 * Texts (char *) of the schema, the last, and of those it refers to. NIL: there is no such schema, *why says so. A registry that does not
 * answer is an error that passes by (08006), refused credentials are 28000.
 */
extern List *registry_schema(Registry *registry, uint32 id, const char **why);

#endif
