/*
 * registry.c: GET url/schemas/ids/N → the schema's text, and before it the texts of the schemas it refers to.
 * Schemas never change under their number: they are kept. An unknown number is asked for again after a while: it may have been missed by a moment.
 * Danger: numbers come from messages. What is kept of unknown ones is bounded.
 */
#include "kafka/pem.h"
#include "kafka/registry.h"

#include "commands/defrem.h"
#include "kafka/http.h"
#include "kafka/property.h"
#include "lib/stringinfo.h"
#include "mb/pg_wchar.h"
#include "nodes/value.h"
#include "util/clock.h"
#include "util/options.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/hsearch.h"
#include "utils/jsonb.h"
#include "utils/memutils.h"

#define MISSING_US (10 * INT64CONST(1000000))
#define MISSING_MAX 256 /* unknown numbers that are kept: messages that are no Avro may name any */
#define MAX_REFERENCES 200 /* of one schema, with those of theirs */

typedef struct RegistrySchema
{
	uint32 id; /* key */
	List *texts;
	char *why;		   /* texts is NIL: there are none because of this */
	int64 ask_again_us;
} RegistrySchema;

struct Registry
{
	char *url;
	char *user, *password, *ca_pem;
	HTAB *schemas;
	int misses;
};

static List *registries; /* of this process */

/* ---- options ---- */

static const struct
{
	const char *name;
	int places;
	size_t offset;
} options[] = {
	{"schema.registry.url", KAFKA_AT_SERVER, offsetof(Registry, url)},
	{"schema.registry.username", KAFKA_AT_SERVER | KAFKA_AT_USER, offsetof(Registry, user)},
	{"schema.registry.password", KAFKA_AT_USER, offsetof(Registry, password)},
	{"schema.registry.ca.pem", KAFKA_AT_SERVER, offsetof(Registry, ca_pem)},
};

static int
option_number(const char *name)
{
	for (int i = 0; i < lengthof(options); i++)
		if (strcmp(options[i].name, name) == 0)
			return i;
	return -1;
}

bool
registry_owns_option(const char *name)
{
	return option_number(name) >= 0;
}

char *
registry_option_names(int place)
{
	char *names = "";

	for (int i = 0; i < lengthof(options); i++)
		if (options[i].places & place)
			names = psprintf("%s%s%s", names, *names ? ", " : "", options[i].name);
	return names;
}

static void
check_url(const char *url)
{
	const char *host = strncmp(url, "http://", 7) == 0 ? url + 7 : strncmp(url, "https://", 8) == 0 ? url + 8 : "";

	if (*host == '\0' || *host == '/' || strpbrk(url, " ?#,\\"))
		ereport(ERROR, errcode(ERRCODE_FDW_INVALID_ATTRIBUTE_VALUE), errmsg("option \"schema.registry.url\" is no URL of a schema registry"),
				errhint("It looks like https://registry.example:8081."));
	if (strchr(host, '@'))
		ereport(ERROR, errcode(ERRCODE_FDW_INVALID_ATTRIBUTE_VALUE), errmsg("option \"schema.registry.url\" must not hold credentials"),
				errdetail("Options of servers and sources can be read by every role."),
				errhint("Put them into \"schema.registry.username\" and \"schema.registry.password\" of a user mapping."));
}

bool
registry_check_option(const char *name, const char *value, int place)
{
	int i = option_number(name);
	bool here = i >= 0 && ((options[i].places & place) || (place == KAFKA_AT_TABLE && (options[i].places & KAFKA_AT_SERVER)));

	if (i < 0)
		return false;
	if (!here)
		ereport(ERROR, errcode(ERRCODE_FDW_INVALID_OPTION_NAME), errmsg("option \"%s\" cannot be set here", name),
				errhint(options[i].places == KAFKA_AT_USER ? "It is an option of a user mapping (CREATE USER MAPPING), where other roles cannot read it."
														   : "It is an option of the server."));
	if (!http_is_built())
		ereport(ERROR, errcode(ERRCODE_FEATURE_NOT_SUPPORTED), errmsg("option \"%s\" needs a build with libcurl", name),
				errdetail("This one was built without: it cannot ask a schema registry."),
				errhint("Install libcurl's development files (Debian: libcurl4-openssl-dev), then build and install the extension again."));
	if (strcmp(name, "schema.registry.url") == 0)
		check_url(value);
	else if (strcmp(name, "schema.registry.ca.pem") == 0)
		pem_check(name, value);
	return true;
}

/* ---- registries ---- */

static bool
same_text(const char *a, const char *b)
{
	return a == b || (a && b && strcmp(a, b) == 0);
}

static char *
keep_text(const char *text)
{
	return text ? MemoryContextStrdup(TopMemoryContext, text) : NULL;
}

static Registry *
registry_keep(const Registry *wanted)
{
	HASHCTL control = {.keysize = sizeof(uint32), .entrysize = sizeof(RegistrySchema), .hcxt = TopMemoryContext};
	Registry *registry = MemoryContextAllocZero(TopMemoryContext, sizeof(Registry));
	MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);

	registry->url = keep_text(wanted->url);
	registry->user = keep_text(wanted->user);
	registry->password = keep_text(wanted->password);
	registry->ca_pem = keep_text(wanted->ca_pem);
	registry->schemas = hash_create("stream_ext registry", 16, &control, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	registries = lappend(registries, registry);
	MemoryContextSwitchTo(old);
	return registry;
}

Registry *
registry_find(List *defs)
{
	Registry wanted = {NULL};
	ListCell *lc;

	foreach (lc, defs)
	{
		DefElem *def = lfirst_node(DefElem, lc);
		int i = option_number(def->defname);

		if (i >= 0)
			*(char **) ((char *) &wanted + options[i].offset) = defGetString(def);
	}
	if (wanted.url == NULL)
		return NULL;
	wanted.url = pstrdup(wanted.url);
	while (wanted.url[strlen(wanted.url) - 1] == '/')
		wanted.url[strlen(wanted.url) - 1] = '\0';
	foreach (lc, registries)
	{
		Registry *registry = lfirst(lc);

		if (same_text(registry->url, wanted.url) && same_text(registry->user, wanted.user) && same_text(registry->password, wanted.password) &&
			same_text(registry->ca_pem, wanted.ca_pem))
			return registry;
	}
	return registry_keep(&wanted);
}

/* ---- questions ---- */

static void
answer_context(void *arg)
{
	errcontext("answer of the schema registry to %s", (const char *) arg);
}

/* The object at a path. NULL: there is nothing there. */
static Jsonb *
registry_ask(Registry *registry, const char *path)
{
	char *url = psprintf("%s%s", registry->url, path), *text;
	HttpRequest request = {url, registry->user, registry->password, registry->ca_pem, "application/vnd.schemaregistry.v1+json, application/json"};
	ErrorContextCallback callback = {error_context_stack, answer_context, url};
	const char *why = NULL;
	long status = 0;
	Jsonb *answer;

	text = http_get(&request, &status, &why);
	if (text == NULL)
		ereport(ERROR, errcode(ERRCODE_CONNECTION_FAILURE), errmsg("schema registry does not answer: %s", url), errdetail("%s.", why));
	if (status == 404)
		return NULL;
	if (status == 401 || status == 403)
		ereport(ERROR, errcode(ERRCODE_INVALID_AUTHORIZATION_SPECIFICATION), errmsg("schema registry refuses the credentials: %s", url),
				errdetail("Its status is %ld.", status),
				errhint("Set \"schema.registry.username\" and \"schema.registry.password\" in a user mapping of the source's server."));
	if (status != 200)
		ereport(ERROR, errcode(ERRCODE_CONNECTION_FAILURE), errmsg("schema registry does not answer as it should: %s", url),
				errdetail("Its status is %ld.", status));
	/* What is not ASCII stands in comments only; another encoding may have no place for it. */
	for (char *c = text; GetDatabaseEncoding() != PG_UTF8 && *c; c++)
		if (IS_HIGHBIT_SET(*c))
			*c = '?';
	error_context_stack = &callback;
	answer = DatumGetJsonbP(DirectFunctionCall1(jsonb_in, CStringGetDatum(text)));
	error_context_stack = callback.previous;
	return answer;
}

/* A subject's name in a path. */
static char *
path_escape(const char *name)
{
	StringInfoData out;

	initStringInfo(&out);
	for (; *name; name++)
		if (isalnum((unsigned char) *name) || strchr("-._~", *name))
			appendStringInfoChar(&out, *name);
		else
			appendStringInfo(&out, "%%%02X", (unsigned char) *name);
	return out.data;
}

static List *
no_schema(const char **why, const char *text)
{
	*why = text;
	return NIL;
}

/* Texts of what the answer refers to, then its own, behind those that are there. NIL: something is missing. */
static List *
texts_of(Registry *registry, Jsonb *answer, const char *path, List *texts, int *left, const char **why)
{
	char *type, *schema;
	Jsonb *references;

	if (answer == NULL)
		return no_schema(why, psprintf("the schema registry has nothing at %s", path));
	if (!JB_ROOT_IS_OBJECT(answer) || (schema = jsonb_get_text(answer, "schema")) == NULL)
		return no_schema(why, psprintf("the schema registry's answer at %s holds no schema", path));
	type = jsonb_get_text(answer, "schemaType");
	if (type && strcmp(type, "AVRO") != 0)
		return no_schema(why, psprintf("the schema at %s is of type %s, not AVRO", path, type));
	references = jsonb_get_object(answer, "references");
	for (uint32 i = 0; references && JB_ROOT_IS_ARRAY(references) && i < JB_ROOT_COUNT(references); i++)
	{
		JsonbValue *v = getIthJsonbValueFromContainer(&references->root, i);
		Jsonb *reference = v->type == jbvBinary ? JsonbValueToJsonb(v) : NULL;
		char *subject = reference ? jsonb_get_text(reference, "subject") : NULL, *version = reference ? jsonb_get_text(reference, "version") : NULL;
		char *there;

		if (subject == NULL || version == NULL || --*left < 0)
			return no_schema(why, psprintf("the schema at %s has references that cannot be followed", path));
		there = psprintf("/subjects/%s/versions/%s", path_escape(subject), path_escape(version));
		texts = texts_of(registry, registry_ask(registry, there), there, texts, left, why);
		if (texts == NIL)
			return NIL;
	}
	return list_append_unique(texts, makeString(schema));
}

/* What was found out is kept. */
static void
schema_keep(RegistrySchema *known, List *texts, const char *why)
{
	MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);
	ListCell *lc;

	if (known->why)
		pfree(known->why);
	known->why = texts ? NULL : pstrdup(why);
	foreach (lc, texts)
		known->texts = lappend(known->texts, pstrdup(strVal(lfirst(lc))));
	known->ask_again_us = clock_monotonic_us() + MISSING_US;
	MemoryContextSwitchTo(old);
}

static void
forget_missing(Registry *registry)
{
	HASH_SEQ_STATUS scan;
	RegistrySchema *known;

	hash_seq_init(&scan, registry->schemas);
	while ((known = hash_seq_search(&scan)))
		if (known->texts == NIL)
		{
			pfree(known->why);
			hash_search(registry->schemas, &known->id, HASH_REMOVE, NULL);
		}
}

List *
registry_schema(Registry *registry, uint32 id, const char **why)
{
	bool found;
	RegistrySchema *known = hash_search(registry->schemas, &id, HASH_FIND, NULL);

	if (known == NULL || (known->texts == NIL && clock_monotonic_us() >= known->ask_again_us))
	{
		char *path = psprintf("/schemas/ids/%u", id);
		int left = MAX_REFERENCES;
		const char *nothing = NULL;
		List *texts = texts_of(registry, registry_ask(registry, path), path, NIL, &left, &nothing);

		if (texts == NIL && ++registry->misses % MISSING_MAX == 0)
			forget_missing(registry);
		known = hash_search(registry->schemas, &id, HASH_ENTER, &found);
		if (!found)
			*known = (RegistrySchema){.id = id};
		schema_keep(known, texts, nothing);
	}
	*why = known->why;
	return known->texts;
}
