/*
 * prefetch.h: memory that will be wanted soon: what a hash holds, without comparing keys.
 */
#ifndef STREAM_STATE_PREFETCH_H
#define STREAM_STATE_PREFETCH_H

#include "postgres.h"

#define CACHE_LINE 64
#define GUESSES 8 /* slots looked at */

/* Element of a simplehash (lib/simplehash.h) that can be guessed from. */
typedef struct HashSlot
{
	void *item;
	uint32 hash;
	char status; /* 0: empty */
} HashSlot;

/* The item of that hash, probably; NULL: there is none, probably. */
static inline void *
hash_guess(HashSlot *slots, uint32 mask, uint32 hash)
{
	for (uint32 at = hash & mask, i = 0; i < GUESSES && slots[at].status != 0; at = (at + 1) & mask, i++)
	{
		if (slots[at].hash == hash)
			return slots[at].item;
	}
	return NULL;
}

static inline void
prefetch_range(const void *start, Size size)
{
	for (const char *at = (const char *) TYPEALIGN_DOWN(CACHE_LINE, start); at < (const char *) start + size; at += CACHE_LINE)
		__builtin_prefetch(at, 1);
}

/* A prefetch is dropped where the page has not been used for long; a read is not. Those of many pointers overlap. */
static inline void
prefetch_settle(const void *const *pointers, int n)
{
	for (int i = 0; i < n; i++)
	{
		if (pointers[i])
			(void) *(const volatile char *) pointers[i];
	}
}

#endif
