"""spark.py: one workload of `make bench-peers` by Spark Structured Streaming, over a real broker.

    spark.py WORKLOAD SERVERS TOPIC ROWS CORES ROWS_PER_BATCH CHECKPOINTS     (TOPIC: for E two, with a comma between)
    spark.py small WORKLOAD SERVERS TOPIC ROWS CORES ROWS_PER_BATCH CHECKPOINTS: goes on where the workload ended; prints ms of the median batch
    spark.py latency SERVERS TOPIC OUT_TOPIC SECONDS CHECKPOINTS [real-time]

Path: topic → the query, state in RocksDB with changelog checkpoints, checkpoints on this machine's disk → format noop, so that Spark pays
nothing for output (stream_ext pays for its table). Prints "rows/s CPU-microseconds/row peak-MB" of the second of two runs: the first one
warms the JVM up. Danger: everything Spark says goes to standard error; standard output is the answer alone.
"""
import os
import statistics
import sys
import time

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

SCHEMA = "id bigint, card string, store string, amount double, country string, ts timestamp"


def session(cores):
    builder = (
        SparkSession.builder.master(f"local[{cores}]")
        .config("spark.driver.memory", "3g")
        .config("spark.driver.extraClassPath", os.environ["SPARK_KAFKA_JARS"] + "/*")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", cores)
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.streaming.stateStore.providerClass",
                "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider")
        .config("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true")
        .config("spark.sql.streaming.noDataMicroBatches.enabled", "false")
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
    if name == "G":
        return rows.groupBy("id").agg(F.count("*").alias("n"), F.sum("amount").alias("total")), "update"
    if name == "H":
        return per_store(rows.withWatermark("ts", "1 minute"), F.window("ts", "1 hour", "1 minute")), "update"
    raise SystemExit(f"unknown workload {name}")


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat") as stat:
        fields = stat.read().rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def peak_mb(pid):
    with open(f"/proc/{pid}/status") as status:
        return next(int(line.split()[1]) // 1024 for line in status if line.startswith("VmHWM"))


def throughput(name, servers, topic, rows, cores, rows_per_batch, checkpoints):
    spark = session(cores)
    pid = spark._jvm.java.lang.ProcessHandle.current().pid()
    for attempt in ("warm-up", "measured"):
        frame, mode = workload(name, spark, servers, topic, rows_per_batch)
        begin, cpu = time.monotonic(), cpu_seconds(pid)
        query = (
            frame.writeStream.format("noop").outputMode(mode).trigger(availableNow=True)
            .option("checkpointLocation", f"{checkpoints}/{name}-{attempt}").start()
        )
        query.awaitTermination()
        seconds, cpu = time.monotonic() - begin, cpu_seconds(pid) - cpu
        seen = sum(progress["numInputRows"] for progress in query.recentProgress)
        if seen != rows:
            raise SystemExit(f"workload {name}: Spark read {seen} rows of {rows}")
    print(f"{rows / seconds:.0f} {cpu * 1e6 / rows:.2f} {peak_mb(pid)}")
    spark.stop()


def small(name, servers, topic, rows, cores, rows_per_batch, checkpoints):
    spark = session(cores)
    frame, mode = workload(name, spark, servers, topic, rows_per_batch)
    query = (
        frame.writeStream.format("noop").outputMode(mode).trigger(availableNow=True)
        .option("checkpointLocation", f"{checkpoints}/{name}-measured").start()
    )
    query.awaitTermination()
    batches = [p for p in query.recentProgress if p["numInputRows"]]
    if sum(p["numInputRows"] for p in batches) != rows:
        raise SystemExit(f"workload {name}: Spark did not read {rows} rows")
    print(statistics.median(p["durationMs"]["triggerExecution"] for p in batches))
    spark.stop()


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
        run = small if sys.argv[1] == "small" else throughput
        name, servers, topic, rows, cores, rows_per_batch, checkpoints = sys.argv[-7:]
        run(name, servers, topic, int(rows), int(cores), int(rows_per_batch), checkpoints)
