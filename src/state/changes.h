/* changes.h: what happened to each key in a range of batches, collected from a log in memory; keys are told apart by their bytes. */
#ifndef STREAM_STATE_CHANGES_H
#define STREAM_STATE_CHANGES_H

#include "postgres.h"
#include "state/changelog.h"

/* One key's, in one piece: the key's bytes, then the value's. */
typedef struct Change
{
	int64 batch_id;
	TimestampTz expires;
	uint32 key_length;
	uint32 value_length;
	bool removed;
	bool told; /* the caller's: already handed out */
	char bytes[FLEXIBLE_ARRAY_MEMBER];
} Change;

typedef struct ChangeTable ChangeTable;

typedef enum ChangeKept
{
	KEEP_FIRST,
	KEEP_LAST
} ChangeKept;

/* Batches from..to of a log. All in CurrentMemoryContext. */
extern ChangeTable *changes_collect(const char *log, const StateId *id, int64 from_batch, int64 to_batch, ChangeKept kept);
extern ChangeTable *changes_create(void);
extern Change *changes_find(ChangeTable *table, const char *key, uint32 key_length); /* NULL: not changed */
extern void changes_put(ChangeTable *table, int64 batch_id, const PackedEntry *entry); /* replaces */
extern void changes_start(ChangeTable *table);
extern Change *changes_next(ChangeTable *table); /* all, in no order */
extern Change *change_copy(const Change *change); /* in CurrentMemoryContext */
extern PackedEntry change_entry(const Change *change);

#endif
