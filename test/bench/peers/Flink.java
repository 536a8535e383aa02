/*
 * Flink.java: the workloads of `make bench-peers` by Flink: SQL where SQL has the words, DataStream for A's static join and F's timers.
 *
 *     java Flink WORKLOAD SERVERS WARM_UP_TOPIC TOPIC ROWS CHECKPOINTS     (topics: for E two, with a comma between)
 *
 * Path: topic, from its beginning to where it ends now → the query in a MiniCluster of one slot, state in RocksDB, incremental checkpoints,
 * exactly once → connector blackhole, so that Flink pays nothing for output (stream_ext pays for its table). Prints
 * "rows/s CPU-microseconds/row peak-MB" of the second of two runs: the first one, over the warm-up topic, warms the JVM up.
 * Danger: a bounded topic ends in a watermark that closes every window; that is as much output as a watermark that came later would give.
 */
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.HashMap;
import java.util.Map;

import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.functions.RichFlatMapFunction;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;
import org.apache.flink.types.Row;
import org.apache.flink.util.Collector;

public class Flink
{
	static final String[][] SETTINGS = {
		{"parallelism.default", "1"}, {"taskmanager.numberOfTaskSlots", "1"}, {"pipeline.object-reuse", "true"},
		{"taskmanager.memory.managed.size", "1g"}, {"state.backend.type", "rocksdb"}, {"execution.checkpointing.incremental", "true"},
		{"execution.checkpointing.mode", "EXACTLY_ONCE"}, {"execution.checkpointing.interval", "2 s"},
		{"execution.checkpointing.checkpoints-after-tasks-finish", "false"},       // the end of the topic waits for none
		{"table.local-time-zone", "UTC"}, {"table.exec.state.ttl", "1 h"},
		{"table.exec.mini-batch.allow-latency", "1 s"}, {"table.exec.mini-batch.size", "5000"},        // where they are enabled: see run
	};

	/* The same as in queries.sql, but for B and G: an aggregate without a window's end sends each change on, which is what update mode does. */
	static final Map<String, String> QUERIES = new HashMap<>();
	static
	{
		String sums = "COUNT(*) AS orders, SUM(amount) AS revenue";

		QUERIES.put("A", "SELECT id, card, store, amount, country, ts FROM messages WHERE amount > 900");
		QUERIES.put("B", "SELECT store, FLOOR(ts TO MINUTE) AS w, " + sums + " FROM messages GROUP BY store, FLOOR(ts TO MINUTE)");
		QUERIES.put("C", windows("TUMBLE", "INTERVAL '1' MINUTE", sums));
		QUERIES.put("D", "SELECT id, card, store, amount, country, ts FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY id ORDER BY arrived) AS place"
			+ " FROM (SELECT *, PROCTIME() AS arrived FROM messages)) WHERE place = 1");
		QUERIES.put("E", "SELECT o.id, o.store, o.ts AS ordered, CAST(p.ts AS TIMESTAMP(3)) AS paid, p.amount FROM messages o JOIN others p"
			+ " ON p.id = o.id AND p.ts BETWEEN o.ts AND o.ts + INTERVAL '5' MINUTE");
		QUERIES.put("F", "SELECT card, ts FROM messages");
		QUERIES.put("G", "SELECT id, COUNT(*) AS n, SUM(amount) AS total FROM messages GROUP BY id");
		QUERIES.put("H", windows("HOP", "INTERVAL '1' MINUTE, INTERVAL '1' HOUR", sums));
		QUERIES.put("T", windows("TUMBLE", "INTERVAL '1' HOUR", sums));
	}

	static String windows(String kind, String size, String sums)
	{
		return "SELECT store, window_start, " + sums + " FROM TABLE(" + kind + "(TABLE messages, DESCRIPTOR(ts), " + size + "))"
			+ " GROUP BY store, window_start, window_end";
	}

	static String source(String name, String servers, String topic)
	{
		return "CREATE TABLE " + name + " (id BIGINT, card STRING, store STRING, amount DOUBLE, country STRING, ts TIMESTAMP_LTZ(3),"
			+ " WATERMARK FOR ts AS ts - INTERVAL '1' MINUTE) WITH ('connector' = 'kafka', 'topic' = '" + topic + "',"
			+ " 'properties.bootstrap.servers' = '" + servers + "', 'format' = 'json', 'json.timestamp-format.standard' = 'ISO-8601',"
			+ " 'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'latest-offset')";
	}

	/** A: ten thousand cards in memory. */
	public static class Risks extends RichFlatMapFunction<Row, Row>
	{
		private transient Map<String, Integer> risks;

		@Override
		public void open(OpenContext context)
		{
			risks = new HashMap<>();
			for (int i = 0; i < 10000; i++)
				risks.put(String.format("c%07d", i), i % 100);
		}

		@Override
		public void flatMap(Row row, Collector<Row> out)
		{
			Integer risk = risks.get(row.<String>getFieldAs(1));

			if (risk != null && risk < 50)
				out.collect(Row.join(row, Row.of(risk)));
		}
	}

	/** F: a card that pays, then is silent for two minutes of event time, is reported once. */
	public static class SilentCards extends KeyedProcessFunction<String, Row, Row>
	{
		private static final long SILENCE = Duration.ofMinutes(2).toMillis();
		private transient ValueState<Long> payments, timer;

		@Override
		public void open(OpenContext context)
		{
			payments = getRuntimeContext().getState(new ValueStateDescriptor<>("payments", Long.class));
			timer = getRuntimeContext().getState(new ValueStateDescriptor<>("timer", Long.class));
		}

		@Override
		public void processElement(Row row, Context context, Collector<Row> out) throws Exception
		{
			long until = row.<Instant>getFieldAs(1).toEpochMilli() + SILENCE;
			Long before = timer.value(), count = payments.value();

			if (before != null)
				context.timerService().deleteEventTimeTimer(before);
			context.timerService().registerEventTimeTimer(until);
			timer.update(until);
			payments.update(count == null ? 1 : count + 1);
		}

		@Override
		public void onTimer(long at, OnTimerContext context, Collector<Row> out) throws Exception
		{
			out.collect(Row.of(context.getCurrentKey(), payments.value()));
			payments.clear();
			timer.clear();
		}
	}

	static void run(String workload, String servers, String[] topics, String checkpoints) throws Exception
	{
		Configuration settings = new Configuration();

		for (String[] setting : SETTINGS)
			settings.setString(setting[0], setting[1]);
		if ("BDG".contains(workload.substring(0, 1)))        // elsewhere they help nothing, and F would get watermarks by the clock
			settings.setString("table.exec.mini-batch.enabled", "true");
		settings.setString("execution.checkpointing.dir", Path.of(checkpoints).toUri().toString());

		StreamExecutionEnvironment streams = StreamExecutionEnvironment.createLocalEnvironment(1, settings);
		StreamTableEnvironment tables = StreamTableEnvironment.create(streams);
		String query = QUERIES.get(workload.substring(0, 1));

		tables.executeSql(source("messages", servers, topics[0]));
		if (topics.length > 1)
			tables.executeSql(source("others", servers, topics[1]));
		if (workload.equals("A") || workload.equals("F"))
		{
			DataStream<Row> rows = tables.toDataStream(tables.sqlQuery(query));

			rows = workload.equals("A") ? rows.flatMap(new Risks()) : rows.keyBy(row -> row.<String>getFieldAs(0)).process(new SilentCards());
			rows.sinkTo(new DiscardingSink<>());
			streams.execute();
		}
		else
		{
			tables.createTemporaryView("answer", tables.sqlQuery(query));
			tables.executeSql("CREATE TABLE nowhere WITH ('connector' = 'blackhole') AS SELECT * FROM answer").await();
		}
	}

	static double cpuSeconds()
	{
		return ProcessHandle.current().info().totalCpuDuration().orElse(Duration.ZERO).toNanos() / 1e9;
	}

	static long peakMegabytes() throws Exception
	{
		for (String line : Files.readAllLines(Path.of("/proc/self/status")))
			if (line.startsWith("VmHWM"))
				return Long.parseLong(line.replaceAll("[^0-9]", "")) / 1024;
		return 0;
	}

	public static void main(String[] args) throws Exception
	{
		long rows = Long.parseLong(args[4]);

		run(args[0], args[1], args[2].split(","), args[5]);
		double cpu = cpuSeconds();
		long begin = System.nanoTime();
		run(args[0], args[1], args[3].split(","), args[5]);
		double seconds = (System.nanoTime() - begin) / 1e9;
		System.out.println(String.format("%.0f %.2f %d", rows / seconds, (cpuSeconds() - cpu) * 1e6 / rows, peakMegabytes()));
	}
}
