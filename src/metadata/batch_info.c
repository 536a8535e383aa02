/*
 * batch_info.c: names of output modes, and the parameters through which statements see the batch.
 */
#include "metadata/batch_info.h"

#include "catalog/pg_type.h"
#include "util/closest.h"
#include "utils/timestamp.h"

OutputMode
output_mode_parse(const char *text)
{
	if (pg_strcasecmp(text, "append") == 0)
		return OUTPUT_APPEND;
	if (pg_strcasecmp(text, "update") == 0)
		return OUTPUT_UPDATE;
	if (pg_strcasecmp(text, "complete") == 0)
		return OUTPUT_COMPLETE;
	ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("unknown output mode \"%s\"", text),
					errdetail("Valid output modes are: append, update, complete."), closest_hint(text, "append, update, complete")));
}

const char *
output_mode_name(OutputMode mode)
{
	static const char *const names[] = {"append", "update", "complete"};

	return names[mode];
}

ParamListInfo
batch_info_params(const BatchInfo *info)
{
	ParamListInfo params = makeParamList(STREAM_PARAM_COUNT);
	ParamExternData *p = params->params;

	for (int i = 0; i < STREAM_PARAM_COUNT; i++)
	{
		p[i].isnull = false;
		p[i].pflags = PARAM_FLAG_CONST;
		p[i].ptype = TIMESTAMPTZOID;
	}
	p[STREAM_PARAM_BATCH_TIME - 1].value = TimestampTzGetDatum(info->batch_time);
	p[STREAM_PARAM_BATCH_ID - 1].value = Int64GetDatum(info->batch_id);
	p[STREAM_PARAM_BATCH_ID - 1].ptype = INT8OID;
	p[STREAM_PARAM_WATERMARK - 1].value = TimestampTzGetDatum(info->evict_watermark);
	p[STREAM_PARAM_WATERMARK - 1].isnull = TIMESTAMP_IS_NOBEGIN(info->evict_watermark);
	return params;
}
