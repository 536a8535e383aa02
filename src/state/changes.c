/*
 * changes.c: a hash of changes by key bytes, filled from a log.
 * No type is looked at: a key's bytes do not change while it lives.
 */
#include "state/changes.h"

#include "common/hashfn.h"
#include "utils/memutils.h"

typedef struct ChangeMember
{
	Change *change;
	uint32 hash;
	char status;
} ChangeMember;

struct ChangeTable
{
	MemoryContext context; /* of the changes */
	const char *sought;
	uint32 sought_length;
	struct members_hash *members;
	struct members_iterator *iterator;
};

static inline bool change_matches(ChangeTable *table, Change *change);

/* Keys are looked up by the table's sought bytes; the key argument is not used. */
#define SH_PREFIX members
#define SH_ELEMENT_TYPE ChangeMember
#define SH_KEY_TYPE Change *
#define SH_KEY change
#define SH_SCOPE static inline
#define SH_HASH_KEY(table, key) 0
#define SH_EQUAL(table, a, b) change_matches((table)->private_data, a)
#define SH_STORE_HASH
#define SH_GET_HASH(table, member) (member)->hash
#define SH_DECLARE
#define SH_DEFINE
#include "lib/simplehash.h"

static inline bool
change_matches(ChangeTable *table, Change *change)
{
	return change->key_length == table->sought_length && memcmp(change->bytes, table->sought, table->sought_length) == 0;
}

static uint32
seek(ChangeTable *table, const char *key, uint32 key_length)
{
	table->sought = key;
	table->sought_length = key_length;
	return hash_bytes((const unsigned char *) key, key_length);
}

static Change *
change_form(ChangeTable *table, int64 batch_id, const PackedEntry *entry)
{
	Change *change = MemoryContextAllocHuge(table->context, offsetof(Change, bytes) + (Size) entry->key_length + entry->value_length);

	change->batch_id = batch_id;
	change->expires = entry->expires;
	change->key_length = entry->key_length;
	change->value_length = entry->removed ? 0 : entry->value_length;
	change->removed = entry->removed;
	change->told = false;
	memcpy(change->bytes, entry->key, entry->key_length);
	if (!entry->removed)
		memcpy(change->bytes + entry->key_length, entry->value, entry->value_length);
	return change;
}

ChangeTable *
changes_create(void)
{
	ChangeTable *table = palloc0(sizeof(ChangeTable));

	table->context = GenerationContextCreate(CurrentMemoryContext, "stream state changes", ALLOCSET_DEFAULT_SIZES);
	table->members = members_create(CurrentMemoryContext, 1024, table);
	table->iterator = palloc0(sizeof(struct members_iterator));
	return table;
}

static void
changes_add(ChangeTable *table, int64 batch_id, const PackedEntry *entry, ChangeKept kept)
{
	bool found;
	ChangeMember *member = members_insert_hash(table->members, NULL, seek(table, entry->key, entry->key_length), &found);

	if (found && kept == KEEP_FIRST)
		return;
	if (found)
		pfree(member->change);
	member->change = change_form(table, batch_id, entry);
}

void
changes_put(ChangeTable *table, int64 batch_id, const PackedEntry *entry)
{
	changes_add(table, batch_id, entry, KEEP_LAST);
}

ChangeTable *
changes_collect(const char *log, const StateId *id, int64 from_batch, int64 to_batch, ChangeKept kept)
{
	ChangeTable *table = changes_create();
	ChunkScan *scan = chunk_scan_begin(log, id, from_batch, to_batch);
	PackedEntry entry;

	while (chunk_scan_next(scan, &entry))
		changes_add(table, scan->batch_id, &entry, kept);
	chunk_scan_end(scan);
	return table;
}

Change *
changes_find(ChangeTable *table, const char *key, uint32 key_length)
{
	ChangeMember *member = members_lookup_hash(table->members, NULL, seek(table, key, key_length));

	return member ? member->change : NULL;
}

void
changes_start(ChangeTable *table)
{
	members_start_iterate(table->members, table->iterator);
}

Change *
changes_next(ChangeTable *table)
{
	ChangeMember *member = members_iterate(table->members, table->iterator);

	return member ? member->change : NULL;
}

Change *
change_copy(const Change *change)
{
	Size size = offsetof(Change, bytes) + (Size) change->key_length + change->value_length;

	return memcpy(MemoryContextAllocHuge(CurrentMemoryContext, size), change, size);
}

PackedEntry
change_entry(const Change *change)
{
	PackedEntry entry = {.removed = change->removed,
						 .expires = change->expires,
						 .key = change->bytes,
						 .key_length = change->key_length,
						 .value = change->bytes + change->key_length,
						 .value_length = change->value_length};

	return entry;
}
