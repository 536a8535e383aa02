"""spark.py: one workload of `make bench-peers` by Spark Structured Streaming, over a real broker.

    spark.py WORKLOAD SERVERS WARM_UP_TOPIC TOPIC ROWS ROWS_PER_BATCH CHECKPOINTS     (topics: for E two, with a comma between)
    spark.py small WORKLOAD SERVERS TOPIC ROWS ROWS_PER_BATCH CHECKPOINTS: goes on where the workload ended; prints ms of the median batch
    spark.py lag WORKLOAD SERVERS TOPIC ROWS CHECKPOINTS: goes on where it ended, says "ready", and when it has read so many rows more prints
        ms from a message's time to the end of its batch: p50 p99 p99.9 max
    spark.py latency SERVERS TOPIC OUT_TOPIC SECONDS CHECKPOINTS [real-time]

Path: topic → the query on one core, state in RocksDB with changelog checkpoints, checkpoints on this machine's disk → format noop, so that
Spark pays nothing for output (stream_ext pays for its table). Prints "rows/s CPU-microseconds/row peak-MB restart-seconds" of the second of
two runs: the first one, over the warm-up topic, warms the JVM up. Restart: the query started again on its checkpoint, in the same JVM, until
one message of each partition is done. Danger: everything Spark says goes to standard error; standard output is the answer alone.
"""
import bisect
import datetime
import json
import os
import statistics
import sys
import time

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

SCHEMA = "id bigint, card string, store string, amount double, country string, ts timestamp"


def session(cores=1):
    builder = (
        SparkSession.builder.master(f"local[{cores}]")
        .config("spark.driver.memory", "3g")
        .config("spark.driver.extraClassPath", os.environ["SPARK_PLACE"] + "/lib/*:" + os.environ["SPARK_PLACE"] + "/classes")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", cores)
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.streaming.stateStore.providerClass",
                "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider")
        .config("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true")
        .config("spark.sql.streaming.noDataMicroBatches.enabled", "false")
        .config("spark.sql.streaming.numRecentProgressUpdates", 10000)
    )
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def messages(spark, servers, topic, rows_per_batch=None):
    reader = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
    )
    if rows_per_batch:
        reader = reader.option("maxOffsetsPerTrigger", rows_per_batch)
    return reader.load().select(F.from_json(F.col("value").cast("string"), SCHEMA).alias("m")).select("m.*")


def per_store(rows, window):
    return rows.groupBy("store", window.alias("minute")).agg(F.count("*").alias("orders"), F.sum("amount").alias("revenue"))


def static_cards(spark):
    return spark.range(0, 10000).select(
        F.concat(F.lit("c"), F.lpad(F.col("id").cast("string"), 7, "0")).alias("card"), (F.col("id") % 100).alias("risk"))


def workload(name, spark, servers, topic, rows_per_batch):
    """The query and its output mode; the same as in queries.sql."""
    topics = topic.split(",")
    rows = messages(spark, servers, topics[0], rows_per_batch)
    if name == "A":
        return rows.where("amount > 900").join(F.broadcast(static_cards(spark)), "card").where("risk < 50"), "append"
    if name.startswith("B"):
        return per_store(rows.withWatermark("ts", "1 minute"), F.window("ts", "1 minute")), "update"
    if name == "C":
        return per_store(rows.withWatermark("ts", "1 minute"), F.window("ts", "1 minute")), "append"
    if name == "D":
        return rows.withWatermark("ts", "1 hour").dropDuplicatesWithinWatermark(["id"]), "append"
    if name == "E":
        left = rows.withWatermark("ts", "1 minute").select(F.col("id").alias("order_id"), F.col("ts").alias("ordered"), "store")
        right = (
            messages(spark, servers, topics[1], rows_per_batch).withWatermark("ts", "1 minute")
            .select(F.col("id").alias("paid_id"), F.col("ts").alias("paid"), "amount")
        )
        return left.join(right, F.expr(
            "order_id = paid_id AND paid >= ordered AND paid <= ordered + INTERVAL 5 MINUTES")), "append"
    if name == "F":
        cards = rows.withWatermark("ts", "1 minute").select("card", "ts")
        return DataFrame(spark._jvm.SparkCards.silent(cards._jdf), spark), "append"
    if name == "G":
        return rows.groupBy("id").agg(F.count("*").alias("n"), F.sum("amount").alias("total")), "update"
    if name == "H":
        return per_store(rows.withWatermark("ts", "1 minute"), F.window("ts", "1 hour", "1 minute")), "update"
    if name == "T":
        return per_store(rows.withWatermark("ts", "1 minute"), F.window("ts", "1 hour")), "update"
    raise SystemExit(f"unknown workload {name}")


def start(frame, mode, checkpoint, **trigger):
    return frame.writeStream.format("noop").outputMode(mode).trigger(**trigger).option("checkpointLocation", checkpoint).start()


def read_rows(query):
    return sum(progress["numInputRows"] for progress in query.recentProgress)


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat") as stat:
        fields = stat.read().rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def peak_mb(pid):
    with open(f"/proc/{pid}/status") as status:
        return next(int(line.split()[1]) // 1024 for line in status if line.startswith("VmHWM"))


def throughput(name, servers, warm_up_topic, topic, rows, rows_per_batch, checkpoints):
    spark = session()
    pid = spark._jvm.java.lang.ProcessHandle.current().pid()
    for attempt, from_topic in (("warm-up", warm_up_topic), ("measured", topic)):
        frame, mode = workload(name, spark, servers, from_topic, rows_per_batch)
        begin, cpu = time.monotonic(), cpu_seconds(pid)
        query = start(frame, mode, f"{checkpoints}/{name}-{attempt}", availableNow=True)
        query.awaitTermination()
        seconds, cpu = time.monotonic() - begin, cpu_seconds(pid) - cpu
    if read_rows(query) != rows:
        raise SystemExit(f"workload {name}: Spark read {read_rows(query)} rows of {rows}")
    peak = peak_mb(pid)

    repeat_last_messages(spark, servers, topic.split(",")[0], query)
    begin = time.monotonic()
    start(frame, mode, f"{checkpoints}/{name}-measured", availableNow=True).awaitTermination()
    print(f"{rows / seconds:.0f} {cpu * 1e6 / rows:.2f} {peak} {time.monotonic() - begin:.2f}")
    spark.stop()


def repeat_last_messages(spark, servers, topic, query):
    """One more message of each partition."""
    ends = next(ends for source in query.lastProgress["sources"] for t, ends in json.loads(source["endOffset"]).items() if t == topic)
    last = json.dumps({topic: {partition: end - 1 for partition, end in ends.items()}})
    kafka = {"kafka.bootstrap.servers": servers}
    (spark.read.format("kafka").options(**kafka).option("subscribe", topic).option("startingOffsets", last).load()
        .select("partition", "value").write.format("kafka").options(**kafka).option("topic", topic).save())


def small(name, servers, topic, rows, rows_per_batch, checkpoints):
    spark = session()
    frame, mode = workload(name, spark, servers, topic, rows_per_batch)
    query = start(frame, mode, f"{checkpoints}/{name}-measured", availableNow=True)
    query.awaitTermination()
    if read_rows(query) != rows:
        raise SystemExit(f"workload {name}: Spark did not read {rows} rows")
    print(statistics.median(p["durationMs"]["triggerExecution"] for p in query.recentProgress if p["numInputRows"]))
    spark.stop()


def lag(name, servers, topic, rows, checkpoints):
    spark = session()
    frame, mode = workload(name, spark, servers, topic, None)
    query = start(frame, mode, f"{checkpoints}/{name}-measured", processingTime="0 seconds")
    query.processAllAvailable()
    before = read_rows(query)
    print("ready", flush=True)
    deadline = time.monotonic() + 300
    while read_rows(query) < before + rows and query.isActive and time.monotonic() < deadline:
        time.sleep(0.5)
    batches = [p for p in query.recentProgress if p["numInputRows"]]
    query.stop()
    if sum(p["numInputRows"] for p in batches) < before + rows:
        raise SystemExit(f"workload {name}: Spark did not read {rows} rows more: {query.exception()}")
    print(" ".join(f"{ms:.0f}" for ms in percentiles(waits(spark, servers, topic, rows, batches))))
    spark.stop()


def waits(spark, servers, topic, rows, batches):
    """Of the last two fifths of the rows, when this JVM is warm: ms from the message's time to the end of the batch that has it."""
    finished = [datetime.datetime.fromisoformat(p["timestamp"]).timestamp() * 1000 + p["durationMs"]["triggerExecution"] for p in batches]
    ends = [json.loads(p["sources"][0]["endOffset"])[topic] for p in batches]
    first = {partition: end - rows * 2 // 5 // len(ends[-1]) for partition, end in ends[-1].items()}
    by_partition = {int(partition): [end[partition] for end in ends] for partition in first}
    messages = (
        spark.read.format("kafka").option("kafka.bootstrap.servers", servers).option("subscribe", topic)
        .option("startingOffsets", json.dumps({topic: first})).load()
        .select("partition", "offset", (F.col("timestamp").cast("double") * 1000).alias("ms"))
    )
    return sorted(finished[bisect.bisect_right(by_partition[m.partition], m.offset)] - m.ms for m in messages.collect())


def percentiles(values):
    return [values[min(len(values) - 1, int(len(values) * share))] for share in (0.5, 0.99, 0.999, 1)]


def latency(servers, topic, out_topic, seconds, checkpoints, real_time):
    """Copies the topic's big amounts to another topic until the time is over; a program beside it measures."""
    spark = session(4)  # the tasks of real-time mode stay: one for each partition
    rows = (
        spark.readStream.format("kafka").option("kafka.bootstrap.servers", servers).option("subscribe", topic)
        .option("startingOffsets", "latest").load().where("length(value) > 0").select("key", "value", "partition")
    )
    writer = (
        rows.writeStream.format("kafka").option("kafka.bootstrap.servers", servers).option("topic", out_topic)
        .option("kafka.linger.ms", "0").option("checkpointLocation", checkpoints).outputMode("update" if real_time else "append")
    )
    query = (writer.trigger(realTime="5 seconds") if real_time else writer.trigger(processingTime="0 seconds")).start()
    deadline = time.monotonic() + 60
    while not query.recentProgress and not real_time and query.isActive and time.monotonic() < deadline and not query.status["message"].startswith("Waiting"):
        time.sleep(0.2)
    if real_time:
        time.sleep(6)
    if not query.isActive:
        raise SystemExit(str(query.exception()))
    print("ready", flush=True)
    query.awaitTermination(int(seconds))
    query.stop()
    spark.stop()


if __name__ == "__main__":
    if sys.argv[1] == "latency":
        latency(*sys.argv[2:7], real_time=sys.argv[7:] == ["real-time"])
    else:
        run = {"small": small, "lag": lag}.get(sys.argv[1], throughput)
        run(*(int(word) if word.isdigit() else word for word in sys.argv[1 if run is throughput else 2:]))
