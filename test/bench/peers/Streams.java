/*
 * Streams.java: workload B of `make bench-peers` by Kafka Streams: count and sum per store and minute, exactly once, one thread, RocksDB.
 *
 *     java Streams SERVERS WARM_UP_TOPIC WARM_UP_ROWS TOPIC ROWS OUT_TOPIC STATE_DIRECTORY
 *
 * Path: topic → group by store → windows of a minute → changes to OUT_TOPIC. Prints "rows/s CPU-microseconds/row peak-MB" of the second of
 * two runs: the first one, over the warm-up topic, warms the JVM up. A run ends when every row is in its window. The grace is a day:
 * partitions read at different paces must not make rows late.
 */
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicLong;

import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.state.WindowStore;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;

public class Streams
{
	private static final ObjectMapper JSON = new ObjectMapper();

	private static JsonNode parse(byte[] message)
	{
		try
		{
			return JSON.readTree(message);
		}
		catch (java.io.IOException e)
		{
			throw new IllegalStateException(e);
		}
	}

	private static StreamsBuilder topology(String topic, String out, AtomicLong seen)
	{
		StreamsBuilder builder = new StreamsBuilder();
		Serde<String> sum = Serdes.String();     // "count sum", as text: what a newcomer would write

		builder.stream(topic, Consumed.with(Serdes.ByteArray(), Serdes.ByteArray())
				.withTimestampExtractor((record, before) -> Instant.parse(parse((byte[]) record.value()).get("ts").asText()).toEpochMilli()))
			.map((key, value) -> {
				JsonNode node = parse(value);
				return KeyValue.pair(node.get("store").asText(), node.get("amount").asDouble());
			})
			.groupByKey(Grouped.with(Serdes.String(), Serdes.Double()))
			.windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofMinutes(1), Duration.ofDays(1)))
			.aggregate(() -> "0 0.0", (store, amount, total) -> {
				int blank = total.indexOf(' ');

				seen.incrementAndGet();
				return (Long.parseLong(total.substring(0, blank)) + 1) + " " + (Double.parseDouble(total.substring(blank + 1)) + amount);
			}, Materialized.<String, String, WindowStore<Bytes, byte[]>>as("totals").withKeySerde(Serdes.String()).withValueSerde(sum))
			.toStream((window, total) -> window.key() + "@" + window.window().start())
			.to(out, Produced.with(Serdes.String(), sum));
		return builder;
	}

	private static double cpuSeconds()
	{
		return ProcessHandle.current().info().totalCpuDuration().orElse(Duration.ZERO).toNanos() / 1e9;
	}

	private static long peakMegabytes() throws Exception
	{
		for (String line : Files.readAllLines(Path.of("/proc/self/status")))
			if (line.startsWith("VmHWM"))
				return Long.parseLong(line.replaceAll("[^0-9]", "")) / 1024;
		return 0;
	}

	public static void main(String[] args) throws Exception
	{
		String answer = "";

		for (int attempt = 1; attempt <= 2; attempt++)
		{
			String topic = args[attempt * 2 - 1];
			long rows = Long.parseLong(args[attempt * 2]);
			AtomicLong seen = new AtomicLong();
			Properties settings = new Properties();

			settings.put(StreamsConfig.APPLICATION_ID_CONFIG, "bench-" + ProcessHandle.current().pid() + "-" + attempt);
			settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, args[0]);
			settings.put(StreamsConfig.STATE_DIR_CONFIG, args[6] + "/" + attempt);
			settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
			settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, 1);
			settings.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, 1);
			settings.put(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "earliest");

			double cpu = cpuSeconds();
			long begin = System.nanoTime();
			try (KafkaStreams streams = new KafkaStreams(topology(topic, args[5], seen).build(), settings))
			{
				streams.start();
				long total = 0;
				while ((total = seen.get()) < rows)
					Thread.sleep(5);
				double seconds = (System.nanoTime() - begin) / 1e9;
				answer = String.format("%.0f %.2f %d", total / seconds, (cpuSeconds() - cpu) * 1e6 / total, peakMegabytes());
			}
		}
		System.out.println(answer);
	}
}
