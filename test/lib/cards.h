/*
 * cards.h: made-up card transactions, the same for the same seed. Now and then one card bursts abroad (fraud), and some transactions come late;
 * what the demo looks for is in the data.
 */
#ifndef STREAM_TEST_CARDS_H
#define STREAM_TEST_CARDS_H

#include <stddef.h>
#include <stdint.h>

typedef struct CardStream
{
	uint64_t random;
	int64_t next_id;
	int burst; /* transactions left in the burst of one card */
	int burst_card;
} CardStream;

typedef struct CardTransaction
{
	int64_t id;
	int card;
	char card_id[16];
	int store;
	int cents;
	const char *country;
	int64_t at_ms; /* Unix epoch */
} CardTransaction;

extern void cards_start(CardStream *stream, uint64_t seed);
extern CardTransaction cards_next(CardStream *stream, int64_t at_ms);
extern int cards_format(const CardTransaction *card, char *buffer, size_t room);

#endif
