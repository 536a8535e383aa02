/* change_op.c: the words for what a change did to a row. */
#include "util/change_op.h"

static const struct
{
	const char *word;
	ChangeOp op;
} words[] = {
	{"c", CHANGE_UPSERT},	   {"r", CHANGE_UPSERT},	{"u", CHANGE_UPSERT},
	{"i", CHANGE_UPSERT},	   {"create", CHANGE_UPSERT}, {"insert", CHANGE_UPSERT},
	{"read", CHANGE_UPSERT},   {"update", CHANGE_UPSERT}, {"d", CHANGE_DELETE},
	{"delete", CHANGE_DELETE}, {"t", CHANGE_TRUNCATE},	  {"truncate", CHANGE_TRUNCATE},
};

ChangeOp
change_op_read(const char *word, size_t len)
{
	for (int i = 0; i < lengthof(words); i++)
		if (strlen(words[i].word) == len && pg_strncasecmp(words[i].word, word, len) == 0)
			return words[i].op;
	return CHANGE_UNKNOWN;
}
