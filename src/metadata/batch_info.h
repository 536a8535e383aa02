/* batch_info.h: what one batch is, as every layer below batch/ sees it. Filled by batch/ before anything runs. */
#ifndef STREAM_METADATA_BATCH_INFO_H
#define STREAM_METADATA_BATCH_INFO_H

#include "postgres.h"
#include "datatype/timestamp.h"
#include "nodes/params.h"

typedef enum OutputMode
{
	OUTPUT_APPEND,
	OUTPUT_UPDATE,
	OUTPUT_COMPLETE
} OutputMode;

/* Watermarks: DT_NOBEGIN (-infinity) stands for "none yet". Both tests are non-strict: late iff event time <= late_watermark. */
typedef struct BatchInfo
{
	int64 query_id;
	const char *query_name;
	int incarnation; /* of the query: outside sinks key on (query_id, incarnation, batch_id) */
	int64 batch_id;
	uint64 range;	 /* hash of what the batch was told to read: the same id with another range is another batch */
	TimestampTz batch_time;		 /* logged; now() and kin mean it */
	TimestampTz late_watermark;	 /* the eviction value of the batch before */
	TimestampTz evict_watermark; /* offset_log.watermark */
	OutputMode output_mode;
	bool late_to_dead_letter; /* option late_rows */
	bool has_data;			  /* false: a no-data batch */
	bool again;				  /* it was logged before this attempt: an earlier one may have got as far as the commit of another server */
	bool row_by_row;		  /* low-latency trigger: handlers of custom state get each row by itself */
	int64 rows_before;		  /* rows the sink got already under this batch id: earlier flushes of an epoch */
} BatchInfo;

/*
 * Every statement of a batch (stages, sinks, join conditions) sees it through these external parameters. Plans leave them open; batch_info_params binds them.
 */
#define STREAM_PARAM_BATCH_TIME 1 /* timestamptz */
#define STREAM_PARAM_BATCH_ID 2	  /* int8 */
#define STREAM_PARAM_WATERMARK 3  /* timestamptz, NULL before there is one */
#define STREAM_PARAM_COUNT 3

extern ParamListInfo batch_info_params(const BatchInfo *info);

extern OutputMode output_mode_parse(const char *text); /* 22023 naming the three */
extern const char *output_mode_name(OutputMode mode);

#endif
