/*
 * pem.c: is this the text of a PEM file?
 * Looked at when the option is set, so that a file cut short or a path in its place is not found out by a worker hours later. What certificates and keys say
 * is OpenSSL's to judge; here it is lines, base64, and the length that the outermost element declares. Danger: keys are secrets, no error may repeat them.
 */
#include "kafka/pem.h"

#include "common/base64.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"

#define BEGIN "-----BEGIN "
#define END "-----END "
#define DASHES "-----"

static void
pem_refuse(const char *option, const char *value, const char *problem)
{
	const char *hint = "The whole text of the file belongs here, with its line ends.";

	if (strstr(value, "\\n"))
		hint = "Line ends are wanted, not the characters \"\\n\".";
	else if (*value == '/' && strchr(value, '\n') == NULL)
		hint = "The text of the file belongs here, not its name.";
	ereport(ERROR, errcode(ERRCODE_FDW_INVALID_ATTRIBUTE_VALUE), errmsg("invalid value for option \"%s\"", option), errdetail("%s", problem), errhint("%s", hint));
}

static bool
label_fits(const char *label, size_t len, bool key)
{
	const char *ending = key ? "PRIVATE KEY" : "CERTIFICATE";
	size_t ending_len = strlen(ending);

	return len >= ending_len && memcmp(label + len - ending_len, ending, ending_len) == 0;
}

/* Does the sequence that begins here end with the last byte? */
static bool
der_is_whole(const uint8 *der, int len)
{
	int lengths, total = 0;

	if (len < 2 || der[0] != 0x30)
		return false;
	if (der[1] < 0x80)
		return der[1] + 2 == len;
	lengths = der[1] & 0x7f;
	if (lengths == 0 || lengths > 3 || len < 2 + lengths)
		return false;
	for (int i = 0; i < lengths; i++)
		total = total << 8 | der[2 + i];
	return total + 2 + lengths == len;
}

/* Between the lines of dashes: headers of an old kind of encrypted key ("Name: value"), then base64. */
static bool
body_is_whole(const char *from, const char *to)
{
	StringInfoData text;
	bool headers = false;
	uint8 *der;
	int len;

	initStringInfo(&text);
	while (from < to)
	{
		const char *end = memchr(from, '\n', to - from);

		if (end == NULL)
			end = to;
		if (memchr(from, ':', end - from))
			headers = true;
		else
			for (; from < end; from++)
				if (!strchr(" \t\r", *from))
					appendStringInfoChar(&text, *from);
		from = end + 1;
	}
	der = palloc(pg_b64_dec_len(text.len) + 1);
	len = pg_b64_decode(text.data, text.len, (void *) der, pg_b64_dec_len(text.len));
	return len > 0 && (headers || der_is_whole(der, len));
}

void
pem_check(const char *option, const char *value)
{
	bool key = strstr(option, "key.pem") != NULL;
	const char *at = value, *label, *label_end, *end;
	int found = 0;

	while ((at = strstr(at, BEGIN)) != NULL)
	{
		label = at + strlen(BEGIN);
		label_end = strstr(label, DASHES);
		end = strstr(label, END);
		if (label_end == NULL || memchr(label, '\n', label_end - label) || label_end[strlen(DASHES)] == '\0' || !strchr("\r\n", label_end[strlen(DASHES)]))
			pem_refuse(option, value, "A line that begins with \"-----BEGIN\" must end with \"-----\".");
		if (end == NULL || strncmp(end + strlen(END), label, label_end - label + strlen(DASHES)) != 0)
			pem_refuse(option, value, "A line that begins with \"-----BEGIN\" has no line \"-----END\" of its own.");
		if (label_fits(label, label_end - label, key))
		{
			found++;
			if (!body_is_whole(label_end + strlen(DASHES), end))
				pem_refuse(option, value, key ? "The key is not whole: a line of it is missing, or is no base64." : "A certificate is not whole: a line of it is missing, or is no base64.");
		}
		at = end + strlen(END);
	}
	if (found == 0)
		pem_refuse(option, value, key ? "It has no line such as \"-----BEGIN PRIVATE KEY-----\"." : "It has no line \"-----BEGIN CERTIFICATE-----\".");
}
