/* batch_info.c: names of output modes. */
#include "metadata/batch_info.h"

OutputMode
output_mode_parse(const char *text)
{
	if (strcmp(text, "append") == 0)
		return OUTPUT_APPEND;
	if (strcmp(text, "update") == 0)
		return OUTPUT_UPDATE;
	if (strcmp(text, "complete") == 0)
		return OUTPUT_COMPLETE;
	ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("unknown output mode \"%s\"", text),
					errdetail("Valid output modes are: append, update, complete.")));
}

const char *
output_mode_name(OutputMode mode)
{
	static const char *const names[] = {"append", "update", "complete"};

	return names[mode];
}
