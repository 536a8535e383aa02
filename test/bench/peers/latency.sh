# latency.sh: how long messages wait, in `make bench-peers`. Sourced by run.
# Path: half of what a workload's query sustained, sent to it where its state is full → the time to the commit of each message's batch; then, at a
# thousand messages a second, the time to where a reader sees the row or the message, beside Spark's two modes.
# Danger: the generator takes its share of the same cores, so half of much is cut at BENCH_MOST.

# ---- each workload at half load: produced → committed ----

half_of() # $1 rows/s: rounded, so that each partition of one topic or two gets as many
{
	awk -v r="$1" -v most="$most" 'BEGIN { r = r / 2 < most ? r / 2 : most; r = int(r / 200) * 200; print (r > 200 ? r : 200) }'
}

half_line() { printf '| %-34s | %-22s | %9s | %9s | %9s | %9s | %9s |\n' "$@"; }

# The n-th message sent went to partition n % partitions: which ones of each partition the last batch done covers. From the tables, not from the
# views over them: these are asked a thousand times a second, and look for rights each time.
committed() # $1 topic
{
	echo "SELECT (value::bigint - $(count_of "$1") / $partitions - 1) * $partitions + key::int FROM (SELECT offsets->'public.$1' AS reached
		FROM stream.commit_entry JOIN stream.offset_entry USING (query_id, batch_id) ORDER BY query_id DESC, batch_id DESC LIMIT 1) last, jsonb_each_text(reached)
		WHERE key <> '@seen'"
}

# Sends what comes after what the topics have; prints how long those of the first waited.
send_more() # $1 workload, $2 messages a second, of all its topics; $3: how to connect, or nothing when nobody watches
{
	local topic topics each file held i looks=() pids=()
	read -ra topics <<<"$(topics_of "$1")"
	each=$(($2 / ${#topics[@]}))
	for topic in "${topics[@]}"; do
		file=$place/more.$topic
		held=$(count_of "$topic")
		write_messages "$topic" "$1" $((held + 1)) $((held + each * seconds)) "$(messages_of "$1")" "$([ "$1" != G ] || echo "i * 7919 % $messages + 1")"
		mv "$place/messages" "$file"
		looks+=("$(committed "$topic")")     # now: the broker's answers are for one at a time
	done
	for ((i = 1; i < ${#topics[@]}; i++)); do
		"$STREAM_BUILD/bench_latency" "$servers" "${topics[i]}" $partitions "$each" "$seconds" "$3" "${looks[i]}" "$place/more.${topics[i]}" >/dev/null &
		pids+=($!)
	done
	"$STREAM_BUILD/bench_latency" "$servers" "$topics" $partitions "$each" "$seconds" "$3" "${looks[0]}" "$place/more.$topics"
	[ ${#pids[@]} = 0 ] || wait "${pids[@]}"
	rm -f "$place"/more.*
}

# Whoever has read these has its state and has caught up.
send_one_each() # $1 workload: one message more for each partition of its topics
{
	local topic held
	for topic in $(topics_of "$1"); do
		held=$(count_of "$topic")
		add_messages "$topic" "$1" $((held + 1)) $((held + partitions)) "$(messages_of "$1")"
	done
}

half_load() # $1 workload, $2 our figures, $3 Spark's: both go on with the state they have, Spark first
{
	local rate p50 p99 p999 worst
	if [[ " $lag " == *" $1 "* && -n $3 ]]; then
		rate=$(half_of "${3%% *}")
		read -r p50 p99 p999 worst <<<"$(spark_half "$1" "$rate")"
		half_line "$(describe "$1")" "Spark $spark_version, 1 core" "$(grouped "$rate")" "${p50:-failed}" "${p99:-}" "${p999:-}" "${worst:-}"
	fi
	rate=$(half_of "${2%% *}")
	query_do start
	send_one_each "$1"
	if (query_wait "$(rows_of "$1")"); then
		sql -c CHECKPOINT              # what came before is none of it
		read -r p50 p99 p999 worst <<<"$(send_more "$1" "$rate" "$by_index")"
	else
		p50="never caught up"
	fi
	half_line "$(describe "$1")" stream_ext "$(grouped "$rate")" "${p50:-failed}" "${p99:-}" "${p999:-}" "${worst:-}"
	query_do stop
}

spark_half() # $1 workload, $2 messages a second
{
	local word from
	exec {from}< <(spark lag "$1" "$servers" "$(list_of "$1")" $(($2 * seconds * 2)) "$place/checkpoints")
	if read -r -t 300 -u "$from" word && [ "$word" = ready ]; then
		send_more "$1" "$2" nothing          # for its new JVM to get warm
		send_more "$1" "$2" nothing
	fi
	cat <&"$from"
	exec {from}<&-
}

# ---- produced → visible, at a steady rate that Spark can follow through a topic ----

latency_line() # $1 what, $2 peer, $3 topic, then the place to look at: "topic NAME" or a query of ours
{
	local p50 p99 p999 worst
	if read -r p50 p99 p999 worst <<<"$("$STREAM_BUILD/bench_latency" "$servers" "$3" $partitions "$rate" "$seconds" "$4" "$5")" && [ -n "$worst" ]; then
		printf '| %-49s | %-12s | %9s | %9s | %9s | %9s |\n' "$1" "$2" "$p50" "$p99" "$p999" "$worst"
	fi
}

ours_latency() # $1 what, $2 topic, $3 query over it, $4 sink, $5 arguments, then where to look
{
	ask create "$2" $partitions
	ask create "$2_out" $partitions
	sql <<-END >/dev/null
		SELECT stream.create_source('$2', 'kafka', columns => 'store_id text, amount float8, ts timestamptz, seq bigint',
			options => '{"server": "peers", "topic": "$2"}', event_time => 'ts', watermark_delay => '1 minute');
		SELECT stream.create_query('$2', \$q\$ $3 \$q\$, $4, $5);
	END
	wait_for "SELECT status = 'running' FROM stream.queries WHERE name = '$2'"
	latency_line "$1" stream_ext "$2" "$6" "$7"
	sql -c "SELECT stream.stop_query('$2'); SELECT stream.drop_query('$2')" >/dev/null
}

spark_latency() # $1 what, $2 topic, $3 mode
{
	local word from
	ask create "$2" $partitions
	ask create "$2_out" $partitions
	rm -rf "$place/checkpoints"
	exec {from}< <(spark latency "$servers" "$2" "$2_out" $((seconds + 40)) "$place/checkpoints" ${3:+"$3"})
	if read -r -t 120 -u "$from" word && [ "$word" = ready ]; then
		latency_line "$1" "Spark $spark_version" "$2" topic "$2_out"
	else
		printf '| %-49s | %-12s | %s |\n' "$1" "Spark $spark_version" "not possible: see spark.log"
	fi
	cat <&"$from"                 # until it has ended
	exec {from}<&-
}

latency() # what is left of it at BENCH_RATE=0: half loads
{
	local seconds=20 highest="SELECT (SELECT max(seq) FROM ticks_rows_out WHERE seq % $partitions = lane) FROM generate_series(0, $partitions - 1) lane"
	echo
	half_line "latency in ms at half load" by "messages/s" p50 p99 p99.9 max
	half_line --- --- ---: ---: ---: ---: ---:
	cat "$place/half_load"
	[ "$rate" != 0 ] || return 0
	echo
	printf '| %-49s | %-12s | %9s | %9s | %9s | %9s |\n' "latency in ms, $rate messages/s" by p50 p99 p99.9 max
	printf '| --- | --- | ---: | ---: | ---: | ---: |\n'
	sql -c "CREATE TABLE ticks_rows_out (seq bigint, ts timestamptz, amount float8, batch_id bigint); CREATE INDEX ON ticks_rows_out ((seq % $partitions), seq)"
	ask create ticks_bare $partitions
	latency_line "a message through the broker, nothing else" librdkafka ticks_bare topic ticks_bare
	ours_latency "rows → table, exactly once" ticks_rows "SELECT seq, ts, amount FROM ticks_rows" "stream.to_table('ticks_rows_out')" "output_mode => 'append'" "$by_index" "$highest"
	ours_latency "count per store and minute → table, exactly once" ticks_counted "SELECT store_id, stream.tumble(ts, '1 minute') AS minute, count(*) AS n, max(seq) AS seq FROM ticks_counted GROUP BY store_id, minute" \
		"stream.to_table('ticks_counted_out')" "output_mode => 'update'" "dbname=$PGDATABASE" "SELECT seq FROM ticks_counted_out"
	ours_latency "rows → topic, at least once" ticks_through "SELECT seq, ts, amount FROM ticks_through" "stream.to_kafka('ticks_through_out', '{\"server\": \"peers\"}')" "output_mode => 'append'" topic ticks_through_out
	ours_latency "rows → topic, real time, at least once" ticks_flowing "SELECT seq, ts, amount FROM ticks_flowing" "stream.to_kafka('ticks_flowing_out', '{\"server\": \"peers\"}')" \
		"output_mode => 'update', trigger => stream.real_time('5 seconds')" topic ticks_flowing_out
	wants spark || return 0
	spark_latency "rows → topic, micro-batches" ticks_spark ""
	spark_latency "rows → topic, real-time mode" ticks_spark_flowing real-time
}

