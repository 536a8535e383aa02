/* status.h: live status in shared memory: what a running query does right now. Everything that matters is in tables. */
#ifndef STREAM_WORKER_STATUS_H
#define STREAM_WORKER_STATUS_H

#include "postgres.h"
#include "datatype/timestamp.h"

typedef struct QueryStatus
{
	Oid database;
	int64 query_id; /* 0: free slot */
	int pid;
	bool is_data_available;
	bool is_trigger_active;
	bool stop_requested;
	int64 last_batch_id;
	TimestampTz last_batch_at;
	int64 batch_duration_us;
	int64 idle_rounds;		/* grows each time a trigger found nothing: process_all_available waits on it */
	int64 wake_requests;	/* grows with each status_wake */
	char message[128];
} QueryStatus;

#endif
