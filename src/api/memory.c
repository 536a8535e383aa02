/*
 * memory.c: stream.memory(query): what a memory sink has got so far, as committed batches left it.
 */
#include "postgres.h"

#include "fmgr.h"
#include "funcapi.h"
#include "metadata/memory_row.h"
#include "metadata/query.h"
#include "utils/builtins.h"

PG_FUNCTION_INFO_V1(stream_memory);

Datum
stream_memory(PG_FUNCTION_ARGS)
{
	StreamQuery *query = query_load(text_to_cstring(PG_GETARG_TEXT_PP(0)), false);
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;

	query_check_owner(query);
	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	memory_rows_read(query->id, result->setResult, result->setDesc);
	return (Datum) 0;
}
