/*
 * cards.c: the generator behind "cards" of stream_broker. One transaction at a time from a seeded xorshift; no clock, no library
 * state, so a seed and a start time give the same topic on every machine.
 */
#include "cards.h"

#include <stdio.h>
#include <time.h>

#define CARDS 1000
#define STORES 50

static const char *const countries[] = {"CZ", "DE", "FR", "PL", "US"};

static uint64_t
next_random(CardStream *stream)
{
	uint64_t x = stream->random;

	x ^= x >> 12;
	x ^= x << 25;
	x ^= x >> 27;
	stream->random = x;
	return x * 0x2545F4914F6CDD1DULL >> 16;
}

void
cards_start(CardStream *stream, uint64_t seed)
{
	*stream = (CardStream){.random = seed * 0x9E3779B97F4A7C15ULL + 1, .next_id = 1};
}

CardTransaction
cards_next(CardStream *stream, int64_t at_ms)
{
	CardTransaction card = {.id = stream->next_id++};
	uint64_t dice = next_random(stream) % 1000;

	if (stream->burst == 0 && dice < 2)
	{
		stream->burst = 8 + (int) (next_random(stream) % 8);
		stream->burst_card = (int) (next_random(stream) % CARDS);
	}
	card.card = (int) (next_random(stream) % CARDS);
	card.cents = 100 + (int) (next_random(stream) % 20000);
	card.store = (int) (next_random(stream) % STORES);
	card.country = countries[card.card % 5];
	/* Every third transaction belongs to the burst while one lasts: big amounts, abroad. */
	if (stream->burst > 0 && card.id % 3 == 0)
	{
		stream->burst--;
		card.card = stream->burst_card;
		card.cents = 50000 + (int) (next_random(stream) % 100000);
		card.country = countries[(card.card + 1 + stream->burst) % 5];
	}
	/* Up to two seconds out of order, now and then half a minute. */
	card.at_ms = at_ms - (int64_t) (next_random(stream) % 2000) - (dice > 990 ? 30000 : 0);
	snprintf(card.card_id, sizeof(card.card_id), "card-%04d", card.card);
	return card;
}

int
cards_format(const CardTransaction *card, char *buffer, size_t room)
{
	time_t seconds = (time_t) (card->at_ms / 1000);
	struct tm utc;

	gmtime_r(&seconds, &utc);
	return snprintf(buffer, room,
					"{\"id\":%lld,\"card\":\"%s\",\"store\":\"store-%03d\",\"country\":\"%s\",\"amount\":%d.%02d,"
					"\"ts\":\"%04d-%02d-%02dT%02d:%02d:%02d.%03dZ\"}",
					(long long) card->id, card->card_id, card->store, card->country, card->cents / 100,
					card->cents % 100, utc.tm_year + 1900, utc.tm_mon + 1, utc.tm_mday, utc.tm_hour, utc.tm_min,
					utc.tm_sec, (int) (card->at_ms % 1000));
}
