/*
 * json_tree.c: the wanted fields as a tree of names; finds the node of a key.
 * Documents of one stream look alike, so a search is the exception: mostly the key is the one that followed last time.
 */
#include "format/json_scan.h"

#include <string.h>

#define MANY_CHILDREN 8

static uint32_t
name_hash(const char *name, size_t len)
{
	uint32_t hash = 2166136261u;

	for (size_t i = 0; i < len; i++)
		hash = (hash ^ (unsigned char) name[i]) * 16777619u;
	return hash;
}

static inline bool
name_is(const JsonNode *node, const char *name, size_t len)
{
	return node->name_len == len && memcmp(node->name, name, len) == 0;
}

/* Would the name stand in a document as it is? */
static bool
name_is_plain(const char *name, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if ((unsigned char) name[i] < 0x20 || name[i] == '"' || name[i] == '\\')
			return false;
	return true;
}

static int
tree_new_node(JsonTree *tree, const char *name, size_t len)
{
	JsonNode *node;

	if (tree->nnodes == tree->capacity)
	{
		int capacity = tree->capacity ? tree->capacity * 2 : 16;
		JsonNode *grown = tree->alloc(capacity * sizeof(JsonNode));

		if (tree->nnodes > 0)
			memcpy(grown, tree->nodes, tree->nnodes * sizeof(JsonNode));
		tree->nodes = grown;
		tree->capacity = capacity;
	}
	node = &tree->nodes[tree->nnodes];
	memset(node, 0, sizeof(JsonNode));
	node->first_child = node->last_child = node->next = node->latest = node->after = -1;
	node->name = tree->alloc(len + 1);
	memcpy(node->name, name, len);
	node->name[len] = '\0';
	node->name_len = len;
	if (name_is_plain(name, len))
	{
		node->quoted = tree->alloc(len + 2);
		node->quoted[0] = node->quoted[len + 1] = '"';
		memcpy(node->quoted + 1, name, len);
	}
	if (len > tree->longest_name)
		tree->longest_name = len;
	return tree->nnodes++;
}

void
json_tree_init(JsonTree *tree, void *(*alloc)(size_t size))
{
	memset(tree, 0, sizeof(JsonTree));
	tree->alloc = alloc;
	tree_new_node(tree, "", 0);
}

int
json_tree_add(JsonTree *tree, int parent, const char *name, size_t len)
{
	int child;

	for (child = tree->nodes[parent].first_child; child >= 0; child = tree->nodes[child].next)
		if (name_is(&tree->nodes[child], name, len))
			return child;
	child = tree_new_node(tree, name, len);
	if (tree->nodes[parent].first_child < 0)
		tree->nodes[parent].first_child = child;
	else
		tree->nodes[tree->nodes[parent].last_child].next = child;
	tree->nodes[parent].last_child = child;
	tree->nodes[parent].nchildren++;
	return child;
}

/* Open addressing at most half full, so that a search ends. */
static void
tree_hash_children(JsonTree *tree, JsonNode *parent)
{
	uint32_t size = 16;

	while (size < 2 * (uint32_t) parent->nchildren)
		size *= 2;
	parent->nbuckets = size;
	parent->buckets = tree->alloc(size * sizeof(int));
	for (uint32_t i = 0; i < size; i++)
		parent->buckets[i] = -1;
	for (int child = parent->first_child; child >= 0; child = tree->nodes[child].next)
	{
		uint32_t at = name_hash(tree->nodes[child].name, tree->nodes[child].name_len) & (size - 1);

		while (parent->buckets[at] >= 0)
			at = (at + 1) & (size - 1);
		parent->buckets[at] = child;
	}
}

void
json_tree_finish(JsonTree *tree, JsonScan *scan)
{
	for (int i = 0; i < tree->nnodes; i++)
		if (tree->nodes[i].nchildren > MANY_CHILDREN)
			tree_hash_children(tree, &tree->nodes[i]);
	memset(scan, 0, sizeof(JsonScan));
	scan->tree = tree;
	scan->tokens = tree->alloc(tree->nnodes * sizeof(JsonToken));
	scan->scratch = tree->alloc(6 * tree->longest_name + 1);
}

static int
search_child(const JsonTree *tree, const JsonNode *parent, const char *name, size_t len)
{
	if (parent->buckets)
	{
		uint32_t at = name_hash(name, len) & (parent->nbuckets - 1);

		for (; parent->buckets[at] >= 0; at = (at + 1) & (parent->nbuckets - 1))
			if (name_is(&tree->nodes[parent->buckets[at]], name, len))
				return parent->buckets[at];
		return -1;
	}
	for (int child = parent->first_child; child >= 0; child = tree->nodes[child].next)
		if (name_is(&tree->nodes[child], name, len))
			return child;
	return -1;
}

int
json_tree_child(JsonScan *scan, int parent_id, const JsonToken *key)
{
	JsonNode *parent = &scan->tree->nodes[parent_id];
	const char *name = key->start;
	size_t len = key->len;
	int child;

	if (key->escaped)
	{
		if (len > 6 * scan->tree->longest_name)
			return -1;
		len = json_unescape(key, scan->scratch);
		name = scan->scratch;
	}
	child = search_child(scan->tree, parent, name, len);
	if (child < 0)
		return -1;
	if (parent->latest >= 0)
		scan->tree->nodes[parent->latest].after = child;
	parent->latest = child;
	return child;
}
