/*
 * kafka.h: inside of the Kafka source, shared by kafka*.c and by nobody else.
 *
 *   KafkaReader     one client, its topics, all their partitions in (topic, partition) order
 *   KafkaPartition  a fetcher of librdkafka, and the window: messages pulled from it and kept, ascending without a gap
 *   offsets         a Position as an array: the next offset to read, per partition in the reader's order
 */
#ifndef STREAM_SOURCE_KAFKA_H
#define STREAM_SOURCE_KAFKA_H

#include <librdkafka/rdkafka.h>

#include "kafka/client.h"
#include "lib/ilist.h"
#include "source/source.h"

#define KAFKA_SERVER "stream_kafka" /* the built-in server, and the wrapper */
#define KAFKA_PULL_MESSAGES 16384	/* taken per partition while planning */
#define KAFKA_SCOUT_MESSAGES 256	/* the same where tasks will read them again */
#define KAFKA_CALL_MS 5000			/* longest wait of a planning step for the broker */
#define KAFKA_GLANCE_MS 1000		/* longest wait of create_query for it */
#define KAFKA_STALL_MS 30000		/* longest wait of a scan without any message */
#define KAFKA_REGRESS_MS 3000		/* how long an end below our position may be a leader change */
#define KAFKA_LOOK_AGAIN_MS 10000	/* new partitions are looked for that often */
#define KAFKA_LANES_PER_TOPIC 4096	/* with several topics */
#define KAFKA_NOT_FOUND (-1)		/* offset of a partition the position does not name */

typedef struct KafkaOptions
{
	char **topics; /* names; none with a pattern */
	int ntopics;
	char *pattern;				 /* regular expression of topic names; NULL: the list */
	Jsonb *starting_offsets;	 /* object; NULL: by starting_at */
	int64 starting_at;			 /* RD_KAFKA_OFFSET_BEGINNING or _END */
	int64 starting_timestamp_ms; /* -1: none */
	bool fail_on_data_loss;
	bool read_committed;
	const char *format;
	const char *timestamp_unit;
	char delimiter;		   /* csv; 0: a comma */
	const char *null_text; /* csv; NULL: an empty field */
	const char *avro_schema;   /* avro: of messages without a frame */
	struct Registry *registry; /* avro: of messages with one; NULL: none */
	List *properties; /* DefElem, for the client */
} KafkaOptions;

/* A message that was read: what a topic is recognised by. */
typedef struct KafkaEvidence
{
	int32 partition;
	int64 offset; /* -1: none */
	int64 timestamp_ms;
} KafkaEvidence;

typedef struct KafkaTopic
{
	char *name;
	int number;		  /* in reader->topics */
	int lane_number;  /* stable over restarts: of the list, else kept in the position; -1: not known yet */
	Datum name_datum; /* text */
	bool verified;	  /* to be the one our position is of */
	rd_kafka_topic_t *handle;
	bool awaited; /* it did not exist when it was first asked for: nothing in it is older than the query */
} KafkaTopic;

typedef struct KafkaPartition
{
	KafkaTopic *topic;
	int32 id;
	rd_kafka_queue_t *queue;
	bool started;
	/* the window: every message with start <= offset < next that exists is in messages[head .. head + count) */
	int64 start, next;
	int64 eof; /* the fetcher has seen the end of the partition here; -1: not since it started */
	rd_kafka_message_t **messages;
	int head, count, room;
	int64 bytes;
	int64 arrived, arrived_bytes; /* since the fetcher was last woken */
	int64 generation;		   /* grows whenever messages are not where they were */
	int64 taken;			   /* messages that left the window at its head, in this generation */
	bool full;				   /* the last pull stopped at its bound */
	bool strayed;			   /* sought, or met an error: librdkafka's own position, which never goes back, is not to be trusted any more */
	int64 planned;			   /* end of the range planned last; what lies behind is news */
	bool checked;			   /* that our position is still there, since the fetcher started */
	int64 low;				   /* start of the log at that time; -1: not asked */
	rd_kafka_resp_err_t error; /* of the fetcher; cleared when dealt with */
	char error_text[128];
} KafkaPartition;

typedef struct KafkaReader
{
	SourceReader base;
	KafkaOptions *options;
	KafkaClient *client; /* NULL: not connected yet */
	MemoryContext client_context;
	KafkaTopic **topics;
	int ntopics;
	KafkaPartition **partitions;
	int npartitions;
	int sized_for;		 /* partitions the queues' bounds were made for */
	int queue_messages;	 /* bound of one partition's queue */
	bool had_partitions; /* before a disconnect */
	int64 refreshed_us;	 /* when the partitions were last looked up; 0: never */
	int64 message_bytes; /* of an average message; 0: none seen */
	int64 poked_us;		 /* when a fetcher was last woken */
	bool watched;		 /* the worker waits on our socket: what arrives announces itself */
	dlist_head scans;	 /* KafkaScan; for the message each one stands on */
} KafkaReader;

typedef struct KafkaScan
{
	dlist_node node;
	KafkaReader *reader;
	int64 *from, *to; /* per partition of the reader when the scan began */
	int npartitions;
	int *ranks;	 /* per partition: its place among those of the range */
	int64 *next; /* next offset wanted, per partition; of the current one it is cursor */
	int current; /* partition being read */
	int64 cursor;
	int64 round;				 /* every partition is read this far beyond its from before any is read further */
	int64 generation, sequence;	 /* where cursor is in the window, if still valid */
	rd_kafka_message_t *message; /* the row handed out last; its bytes are in use */
	bool owned;					 /* the window let it go while it was in use */
	struct KafkaDecode *decode;
	MemoryContextCallback callback;
	bool linked;
	bool drained; /* it has emptied the socket */
} KafkaScan;

/* ---- kafka.c ---- */
extern int64 *kafka_offsets_alloc(KafkaReader *reader); /* one per partition, not set */

/* ---- kafka_options.c ---- */
extern bool kafka_check_option(const char *name, const char *value, Oid catalog);
extern const char *kafka_option_names(Oid catalog);
extern void kafka_parse(SourceDef *def);

/* ---- kafka_plan.c ---- */
extern SourceAdvance kafka_advance(SourceReader *reader, Position *from, Position *ceiling, const ReadLimit *limit);

/* ---- kafka_connect.c: connection, topics, questions to the broker ---- */
extern void kafka_connect(KafkaReader *reader);
extern void kafka_connect_only(KafkaReader *reader); /* a client that asks for nothing by itself */
/* Looks the partitions up again when that is due, or forced. False: nothing changed. */
extern bool kafka_refresh_partitions(KafkaReader *reader, bool force);
/* Asks for one offset of every partition (RD_KAFKA_OFFSET_BEGINNING, _END, or a time in ms) into offsets[]. */
extern void kafka_list_offsets(KafkaReader *reader, int64 which, int64 *offsets);
extern void kafka_disconnect(KafkaReader *reader);
extern KafkaTopic *kafka_topic_add(KafkaReader *reader, const char *name);
/* The partition's number in the log of watermarks: its own when there is one topic. */
extern int kafka_partition_lane(KafkaReader *reader, KafkaPartition *partition);

/* ---- kafka_metadata.c: what topics and partitions there are ---- */
/* Brings reader->topics up to date, and says how many partitions each has (palloc'ed). */
extern int *kafka_ask_partitions(KafkaReader *reader);
/* What the reader would wait for: 'topic "x"'; NULL: nothing, or no answer within KAFKA_GLANCE_MS. */
extern char *kafka_ask_absent(KafkaReader *reader);
extern void kafka_report_no_answer(KafkaReader *reader, rd_kafka_resp_err_t error);
extern bool kafka_error_is_transient(rd_kafka_resp_err_t error);
extern void kafka_pause(KafkaReader *reader);
extern void *kafka_malloc(size_t size); /* for calls: zeroed, or an error */
/* Whole names match the regular expression; Kafka's own topics never do. */
extern bool kafka_topic_matches(const char *pattern, const char *name);
/* Several topics: they are named in positions. */
extern bool kafka_is_nested(KafkaReader *reader);

/* ---- kafka_position.c: jsonb ⇄ offsets ---- */
/* Offsets per partition; KAFKA_NOT_FOUND where the position names none. Partitions that are gone are data loss. */
extern int64 *kafka_position_read(KafkaReader *reader, Position *position);
/* evidence: per topic; NULL: none. */
extern Position *kafka_position_make(KafkaReader *reader, const int64 *offsets, const KafkaEvidence *evidence);
/* For people and views, never read back: with the lanes of its topics. */
extern Position *kafka_position_show(KafkaReader *reader, const int64 *offsets);
extern KafkaEvidence *kafka_position_evidence(KafkaReader *reader, Position *position);
/* Like position_read over option starting_offsets: -1 and -2 stay as they are, every partition must be named. */
extern int64 *kafka_starting_offsets(KafkaReader *reader);
extern Jsonb *kafka_message_position(KafkaPartition *partition, const rd_kafka_message_t *message);
extern Jsonb *kafka_loss_position(KafkaPartition *partition, int64 from, int64 to);

/* ---- kafka_window.c: what the fetchers brought ---- */
/* So many messages the window may still take while nobody reads it. */
extern int kafka_window_room(KafkaReader *reader, KafkaPartition *partition);
extern void kafka_window_seek(KafkaReader *reader, KafkaPartition *partition, int64 offset);
/*
 * Takes what has arrived, at most about max messages; when that is nothing, waits so long for a first one. True:
 * something came.
 */
extern bool kafka_window_pull(KafkaReader *reader, KafkaPartition *partition, int max, int wait_ms);
/*
 * Control records count as seen: a window that ends at a transaction's marker moves behind it. Costs a little; for
 * when that matters.
 */
extern void kafka_window_pass_markers(KafkaReader *reader, KafkaPartition *partition);
/* Drops messages below offset. */
extern void kafka_window_trim(KafkaReader *reader, KafkaPartition *partition, int64 offset);
extern void kafka_window_clear(KafkaReader *reader, KafkaPartition *partition);
/* Messages of the window in [from, to). */
extern int kafka_window_count(KafkaPartition *partition, int64 from, int64 to);
/* Index into messages[] of the first message at or above offset; head + count when there is none. */
extern int kafka_window_find(KafkaPartition *partition, int64 offset);

/* ---- kafka_identity.c: is it still the same topic ---- */
extern KafkaEvidence *kafka_evidence_collect(KafkaReader *reader, const int64 *from, const int64 *end,
											 const KafkaEvidence *before);
extern bool kafka_verify_topic(KafkaReader *reader, int topic, const KafkaEvidence *evidence, const int64 *low);

/* ---- kafka_loss.c: data that is gone ---- */
/*
 * Raises the error of a missing range, unless fail_on_data_loss is off: then warns, and keeps an event in the batch
 * if there is one.
 */
extern void kafka_report_loss(KafkaReader *reader, KafkaPartition *partition, int64 from, int64 to, SourceBatch *batch);
extern void kafka_report_reset(KafkaReader *reader, KafkaPartition *partition, int64 position, int64 end,
							   SourceBatch *batch);
/* An error the fetcher met, that is not about offsets; raises it unless it passes by itself. */
extern bool kafka_fetcher_out_of_range(KafkaPartition *partition);
extern void kafka_check_fetcher(KafkaReader *reader, KafkaPartition *partition);

/* The scan moves on from the message it stands on. */
extern void kafka_scan_release_message(KafkaScan *scan);

/* ---- kafka_scan.c ---- */
extern void kafka_scan_begin(SourceScan *scan);
extern bool kafka_scan_next(SourceScan *scan, TupleTableSlot *slot);
extern void kafka_scan_rewind(SourceScan *scan);
extern void kafka_scan_end(SourceScan *scan);

/* ---- kafka_decode.c: message → slot ---- */
extern struct KafkaDecode *kafka_decode_open(SourceScan *scan);
/* False: the row is bad and has been reported. */
extern bool kafka_decode_row(struct KafkaDecode *decode, SourceScan *scan, KafkaPartition *partition,
							 rd_kafka_message_t *message, TupleTableSlot *slot);
/* A message that was bad comes again: bytes and position are all there is of it. */
extern bool kafka_decode_again(SourceScan *scan, const SourceLetter *letter, TupleTableSlot *slot);
/* Do columns fit the metadata and the format? ereport */
extern void kafka_decode_check(SourceDef *def, KafkaOptions *options);

#endif
