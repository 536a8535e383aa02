/*
 * closest.c: which valid name may somebody have meant?
 * Words are compared without case and signs, so that maxRowsPerBatch finds max_rows_per_batch; then by edit distance, or one inside the other.
 */
#include "util/closest.h"

#include <ctype.h>

#include "utils/builtins.h"
#include "utils/varlena.h"

#define LONGEST 63		/* what is longer is no slip of the pen */
#define LONG_ENOUGH 8	/* to be recognised inside a longer name: kafka.bootstrap.servers */

static char *
word_normalize(const char *word, size_t len)
{
	char *plain = palloc(len + 1);
	size_t n = 0;

	for (size_t i = 0; i < len; i++)
		if (strchr("._- ", word[i]) == NULL)
			plain[n++] = (char) pg_tolower((unsigned char) word[i]);
	plain[n] = '\0';
	return plain;
}

/* 0: the same; more than `most`: too far. */
static int
word_distance(const char *given, const char *word, int most)
{
	int len = (int) strlen(given), word_len = (int) strlen(word);

	if (word_len >= LONG_ENOUGH && len > word_len && strstr(given, word))
		return most;
	return varstr_levenshtein_less_equal(given, len, word, word_len, 1, 1, 1, most, true);
}

char *
closest_find(const char *given, const char *words)
{
	char *plain = word_normalize(given, strlen(given));
	int most = Min(((int) strlen(plain) - 1) / 2, 3), best = most + 1;
	char *found = NULL;

	if (strlen(given) > LONGEST || most == 0)
		return NULL;
	while (*words)
	{
		size_t len = strcspn(words, ",;|"), begin = len;
		int distance;

		while (begin > 0 && words[begin - 1] != ' ')
			begin--;
		distance = word_distance(plain, word_normalize(words + begin, len - begin), most);
		if (distance < best)
		{
			best = distance;
			found = pnstrdup(words + begin, len - begin);
		}
		words += len + (words[len] != '\0');
	}
	return found;
}

int
closest_hint(const char *given, const char *words)
{
	char *found = closest_find(given, words);

	return found ? errhint("Perhaps you meant \"%s\".", found) : 0;
}
