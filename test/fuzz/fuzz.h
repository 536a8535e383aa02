/* fuzz.h: what the targets share. */
#ifndef STREAM_FUZZ_H
#define STREAM_FUZZ_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                                               \
	do                                                                                                                 \
	{                                                                                                                  \
		if (!(condition))                                                                                              \
		{                                                                                                              \
			fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition);                              \
			abort();                                                                                                   \
		}                                                                                                              \
	} while (0)

extern int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
