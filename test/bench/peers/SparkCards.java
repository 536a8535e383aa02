/*
 * SparkCards.java: workload F of `make bench-peers` by Spark's transformWithState: a card that pays, then is silent for two minutes of event
 * time, is reported once. Called by spark.py through the JVM it has: rows (card, ts), with a watermark → (card, payments).
 * Danger: a call gets all rows of one card in a batch, in any order.
 */
import java.sql.Timestamp;
import java.util.List;

import org.apache.spark.api.java.function.MapFunction;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.streaming.ExpiredTimerInfo;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.streaming.StatefulProcessor;
import org.apache.spark.sql.streaming.TTLConfig;
import org.apache.spark.sql.streaming.TimeMode;
import org.apache.spark.sql.streaming.TimerValues;
import org.apache.spark.sql.streaming.ValueState;

import scala.Tuple2;
import scala.collection.Iterator;
import scala.jdk.javaapi.CollectionConverters;

public class SparkCards extends StatefulProcessor<String, Row, Tuple2<String, Long>>
{
	private static final long SILENCE_MS = 120000;
	private transient ValueState<Long> payments;

	@Override
	public void init(OutputMode mode, TimeMode time)
	{
		payments = getHandle().getValueState("payments", Encoders.LONG(), TTLConfig.NONE());
	}

	@Override
	public Iterator<Tuple2<String, Long>> handleInputRows(String card, Iterator<Row> rows, TimerValues times)
	{
		Iterator<Object> timers = getHandle().listTimers();
		long count = payments.exists() ? payments.get() : 0, last = 0;

		while (timers.hasNext())
			getHandle().deleteTimer((Long) timers.next());
		for (; rows.hasNext(); count++)
			last = Math.max(last, rows.next().<Timestamp>getAs("ts").getTime());
		payments.update(count);
		getHandle().registerTimer(last + SILENCE_MS);
		return CollectionConverters.asScala(List.<Tuple2<String, Long>>of().iterator());
	}

	@Override
	public Iterator<Tuple2<String, Long>> handleExpiredTimer(String card, TimerValues times, ExpiredTimerInfo timer)
	{
		Tuple2<String, Long> report = new Tuple2<>(card, payments.get());

		payments.clear();
		return CollectionConverters.asScala(List.of(report).iterator());
	}

	public static Dataset<Row> silent(Dataset<Row> rows)
	{
		return rows.groupByKey((MapFunction<Row, String>) row -> row.getAs("card"), Encoders.STRING())
			.transformWithState(new SparkCards(), TimeMode.EventTime(), OutputMode.Append(), Encoders.tuple(Encoders.STRING(), Encoders.LONG()))
			.toDF("card", "payments");
	}
}
