/*
 * transform_key.c: one record per key that has list elements, map entries or timers, or rows in the running batch.
 * Records live in memory only. A record must not go while its handler runs: it is dropped, when empty, after the call.
 */
#include "operator/transform.h"

#include "utils/memutils.h"

typedef struct RecordSlot
{
	KeyRecord *record;
	uint32 hash;
	char status;
} RecordSlot;

static inline bool record_matches(Transform *op, KeyRecord *member, KeyRecord *sought);

/* A NULL key stands for the operator's probe. */
#define SH_PREFIX records
#define SH_ELEMENT_TYPE RecordSlot
#define SH_KEY_TYPE KeyRecord *
#define SH_KEY record
#define SH_HASH_KEY(table, key) ((key)->hash)
#define SH_EQUAL(table, a, b) record_matches((table)->private_data, a, b)
#define SH_SCOPE static inline
#define SH_STORE_HASH
#define SH_GET_HASH(table, slot) (slot)->hash
#define SH_DECLARE
#define SH_DEFINE
#include "lib/simplehash.h"

static inline bool
record_matches(Transform *op, KeyRecord *member, KeyRecord *sought)
{
	return sought ? member == sought : key_equals(op->key_type, member->key, op->probe_key, op->probe_null);
}

void
transform_records_create(Transform *op)
{
	op->record_context = AllocSetContextCreate(op->base.context, "stream transform keys", ALLOCSET_DEFAULT_SIZES);
	op->records = records_create(op->record_context, 256, op);
}

KeyRecord *
transform_record_find_or_add(Transform *op, const Datum *key, const bool *isnull)
{
	uint32 hash = key_hash(op->key_type, key, isnull);
	RecordSlot *slot;
	KeyRecord *record;
	MemoryContext caller;
	bool found;

	op->probe_key = key;
	op->probe_null = isnull;
	slot = records_insert_hash(op->records, NULL, hash, &found);
	if (found)
		return slot->record;
	caller = MemoryContextSwitchTo(op->record_context);
	record = palloc(offsetof(KeyRecord, lists) + sizeof(dlist_head) * op->nlists);
	memset(record, 0, offsetof(KeyRecord, lists));
	record->key = key_form(op->key_type, key, isnull);
	record->hash = hash;
	for (int i = 0; i < op->nlists; i++)
		dlist_init(&record->lists[i]);
	slot->record = record;
	MemoryContextSwitchTo(caller);
	return record;
}

void
transform_record_drop_if_empty(Transform *op, KeyRecord *record)
{
	if (record->elements > 0)
		return;
	records_delete_item(op->records, records_lookup_hash(op->records, record, record->hash));
	pfree(record->key);
	pfree(record);
}

void
transform_records_clear(Transform *op)
{
	MemoryContextReset(op->record_context);
	op->records = records_create(op->record_context, 256, op);
}

/* In its place by serial: nearly always the last. */
void
element_link(Transform *op, Variable *variable, KeyRecord *record, Element *element)
{
	dlist_head *list = &record->lists[variable->list];
	dlist_node *before = &list->head;
	dlist_iter iter;

	for (iter.cur = list->head.prev; iter.cur != &list->head; iter.cur = iter.cur->prev)
	{
		if (dlist_container(Element, node, iter.cur)->serial <= element->serial)
		{
			before = iter.cur;
			break;
		}
	}
	dlist_insert_after(before, &element->node);
	element->record = record;
	record->elements++;
}
