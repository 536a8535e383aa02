# run.sh: the demo, inside the copy that the harness has prepared. Card payments come from an embedded Kafka broker; three queries watch them.
# Path: broker (coprocess) → three continuous queries in a throw-away cluster → tables. Everything ends with this script.

demo_say() { printf '\n\033[1m%s\033[0m\n' "$1"; [ -z "${2:-}" ] || fold -s -w 110 <<<"$2"; }
demo_sql() { psql -XqAt -v ON_ERROR_STOP=1 "$@"; }
demo_show() { psql -Xq -v ON_ERROR_STOP=1 -P footer=off -P null=- "$@"; }
demo_file() { sed 's/^/    /' "test/demo/$1"; echo; psql -Xq -v ON_ERROR_STOP=1 -v broker="$broker" -f "test/demo/$1" >/dev/null; }

demo_ask() # one command to the broker; prints its answer
{
	local answer
	echo "$*" >&"${broker_in}"
	read -r -t 60 -u "${broker_out}" answer
	[[ $answer == ok* ]] || { echo "broker: $answer" >&2; return 1; }
	echo "${answer#ok}"
}

demo_until() # $1: query that gives true, $2: seconds, $3: what is waited for
{
	local end=$((SECONDS + $2))
	until [ "$(demo_sql -c "$1" 2>/dev/null)" = t ]; do
		if [ $SECONDS -ge $end ]; then
			echo "Gave up waiting until $3." >&2
			demo_show -c "SELECT name, status, message, error FROM stream.queries" >&2 || true
			tail -n 15 "$WORK/logs/postgres.log" >&2
			exit 1
		fi
		sleep 0.2
	done
}

demo_payments() # $1 RATE, $2 COUNT, rest: as the broker's command; returns when all are sent
{
	local done
	demo_ask cards payments "$@" >/dev/null
	read -r -t 120 -u "${broker_out}" done
	sent=$((sent + $2))
}

demo_settled() { demo_until "SELECT coalesce(sum(orders), 0) = $sent FROM sale_now" 60 "all $sent payments are counted"; }

inside_demo()
{
	local sent=0 broker broker_in broker_out since pid
	inside_prepare
	inside_start_cluster "track_commit_timestamp = on"
	coproc BROKER { exec "$STREAM_BUILD/stream_broker" payments:8; }
	broker_pid=$BROKER_PID
	exec {broker_out}<&"${BROKER[0]}" {broker_in}>&"${BROKER[1]}"
	trap 'kill $broker_pid 2>/dev/null || true; inside_stop' EXIT
	read -r -t 20 -u "${broker_out}" _ broker

	demo_say "1. A Kafka topic is a relation" \
		"A throw-away PostgreSQL and an embedded Kafka broker ($broker, topic payments, 8 partitions) are running. In SQL:"
	demo_file 1_setup.sql

	demo_say "2. A streaming query is an ordinary SELECT" "Three of them, each running in a worker of its own from now on:"
	demo_file 2_queries.sql

	demo_say "3. Ten minutes of payments, at once" "60000 payments of the last ten minutes arrive, some of them late and out of order."
	demo_payments 0 60000 1 $((($(date +%s) - 600) * 1000)) 10
	demo_settled
	demo_until "SELECT count(DISTINCT minute) >= 7 FROM sale_final" 30 "the old minutes are closed"
	echo "Update mode has every minute as it stands; append mode has those the watermark (newest payment − 2 minutes) has closed."
	demo_show -f test/demo/3_minutes.sql

	demo_say "4. Live: 1000 payments a second for 15 seconds" "Alerts appear while the payments flow."
	since=$(demo_sql -c "SELECT clock_timestamp()")
	demo_payments 1000 15000 2
	demo_settled
	demo_show -f test/demo/4_alerts.sql
	echo "How long from the producer to an alert that everybody sees:"
	demo_show -v since="$since" -f test/demo/4_latency.sql

	demo_say "5. A store gone quiet" "A query with state of its own, in two functions. No payment comes any more: after five seconds each store is reported, by its timer."
	demo_file 5_quiet.sql
	demo_until "SELECT count(DISTINCT q.store) = count(DISTINCT n.store) FROM quiet_store q FULL JOIN sale_now n USING (store)" 60 "every store has been quiet"
	demo_show -c "SELECT store, to_char(last_seen, 'HH24:MI:SS') AS last_payment, batch_id AS batch FROM quiet_store ORDER BY store LIMIT 5"

	demo_say "6. What the queries say of themselves" "SELECT … FROM stream.queries"
	demo_show -c "SELECT name, status, output_mode, last_batch_id AS batch, batch_duration_ms AS ms, to_char(watermark, 'HH24:MI:SS') AS watermark,
		state_rows, rows_late, rows_bad FROM stream.queries ORDER BY id"

	pid=$(demo_sql -c "SELECT pid FROM stream.queries WHERE name = 'sales_now'")
	demo_say "7. kill -9, in the middle of it" \
		"15000 more payments, and meanwhile the worker of sales_now (pid $pid) is killed. PostgreSQL restarts all its processes after such an end; the queries come back by themselves."
	demo_ask cards payments 1500 15000 3 >/dev/null
	sleep 3      # let it be in full flow
	kill -9 "$pid"
	read -r -t 120 -u "${broker_out}" _
	sent=$((sent + 15000))
	demo_settled
	demo_until "SELECT bool_and(status = 'running') FROM stream.queries" 30 "all queries run again"
	demo_until "SELECT NOT bool_or(is_trigger_active OR is_data_available) FROM stream.queries" 30 "all queries are through"
	demo_show -c "SELECT name, status, pid, failures, last_batch_id AS batch FROM stream.queries ORDER BY id"

	demo_say "8. Nothing lost, nothing twice" \
		"The same SELECTs, run by hand over the whole topic, against what the queries wrote ($sent payments were sent):"
	demo_show -f test/demo/8_by_hand.sql | tee "$WORK/logs/by_hand.log"
	demo_verdict "$sent"
}

demo_verdict() # reads the numbers off the table just shown
{
	local topic counted differ alerts_by_hand alerts
	IFS=' |' read -r topic counted differ alerts_by_hand alerts < <(sed -n 3p "$WORK/logs/by_hand.log")
	if [ "$topic" = "$1" ] && [ "$counted" = "$1" ] && [ "$differ" = 0 ] && [ "$alerts_by_hand" = "$alerts" ]; then
		demo_say "All equal. The cluster and the broker are gone again; build/ can be deleted." "Next: README.md, then \`make check\`."
	else
		demo_say "THE NUMBERS DIFFER: this is a bug."
		return 1
	fi
}
