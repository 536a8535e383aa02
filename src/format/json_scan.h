/*
 * json_scan.h: one pass over a JSON document: checks all of it, remembers where the wanted fields are.
 * Free of PostgreSQL, so that it can be fuzzed alone. Says yes exactly when a cast to jsonb would, to an object.
 */
#ifndef STREAM_FORMAT_JSON_SCAN_H
#define STREAM_FORMAT_JSON_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define JSON_MAX_DEPTH 6400	   /* brackets open at once */
#define JSON_MAX_PATH_DEPTH 64 /* segments of a path: the scanner recurses along them only */

typedef enum JsonKind
{
	JSON_ABSENT,
	JSON_NULL,
	JSON_FALSE,
	JSON_TRUE,
	JSON_NUMBER,
	JSON_STRING,
	JSON_OBJECT,
	JSON_ARRAY
} JsonKind;

/* A field as it stands in the document; strings without their quotes, escapes as they are. */
typedef struct JsonToken
{
	const char *start;
	size_t len;
	JsonKind kind;
	bool escaped; /* a string with a backslash in it */
} JsonToken;

/* A wanted field: a step of some path. Children are the fields wanted inside it. */
typedef struct JsonNode
{
	char *name;
	size_t name_len;
	char *quoted;					   /* the name as it stands in a document; NULL: it would need escapes */
	int first_child, last_child, next; /* -1: none */
	int nchildren;
	int latest;	  /* child met last; a guess at what comes next is that child's `after` */
	int after;	  /* sibling that followed this one last time */
	int *buckets; /* hash of the children when they are many, else NULL */
	uint32_t nbuckets;
} JsonNode;

typedef struct JsonTree
{
	JsonNode *nodes; /* node 0 is the document */
	int nnodes, capacity;
	size_t longest_name;
	void *(*alloc)(size_t size);
} JsonTree;

typedef enum JsonFault
{
	JSON_OK,
	JSON_ENCODING,	   /* not UTF-8, or a zero byte */
	JSON_END,		   /* ends too early */
	JSON_UNEXPECTED,   /* a character that cannot stand there */
	JSON_CONTROL,	   /* unescaped control character in a string */
	JSON_ESCAPE,	   /* no such escape */
	JSON_SURROGATE,	   /* half a surrogate pair */
	JSON_ZERO,		   /* \u0000 */
	JSON_DEPTH,		   /* nested too deeply */
	JSON_RANGE,		   /* number beyond what check_number takes */
	JSON_NOT_AN_OBJECT /* well formed so far, but the document is no object */
} JsonFault;

typedef struct JsonScan
{
	const JsonTree *tree;
	JsonToken *tokens; /* per node of the tree, valid after json_scan */
	char *scratch;	   /* for keys with escapes */
	/* Asked about numbers so long that numeric may not hold them; NULL: take all. */
	bool (*check_number)(void *arg, const char *start, size_t len);
	void *arg;
	const char *begin, *end; /* the document being scanned */
	JsonFault fault;
	const char *where; /* byte the fault is about; may be end */
} JsonScan;

extern void json_tree_init(JsonTree *tree, void *(*alloc)(size_t size));
/* The node for the field `name` inside `parent`, made if new. */
extern int json_tree_add(JsonTree *tree, int parent, const char *name, size_t len);
/* After the last json_tree_add: prepares look-ups and fills scan. */
extern void json_tree_finish(JsonTree *tree, JsonScan *scan);

/* The child of `parent` that a key means, or -1. */
extern int json_tree_child(JsonScan *scan, int parent, const JsonToken *key);

extern bool json_scan(JsonScan *scan, const char *buf, size_t len);
/* What is wrong, for people; no position. */
extern const char *json_fault_text(JsonFault fault);

/* The string's bytes (UTF-8) with escapes resolved; out has room for token->len bytes. Returns how many were written. */
extern size_t json_unescape(const JsonToken *token, char *out);
/* Four hex digits at p; -1 when they are not there. */
extern int json_hex4(const char *p, const char *end);

#endif
