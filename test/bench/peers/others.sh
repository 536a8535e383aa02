# others.sh: the peers of `make bench-peers`, each over the topics of a workload. Sourced by run.
# Path: packages from PyPI and Maven Central, fetched once into $place → a workload's warm-up topics, then its topics → "rows/s µs/row MB …".
# Danger: a peer that cannot be had is left out with a word on standard error; one that fails prints nothing, and its log tells why.

spark_version=4.2.0
flink_version=2.2.1
flink_kafka_version=5.0.0-2.2
streams_version=4.0.0

prepare_peers() # what cannot be had is no longer wanted
{
	local peer
	for peer in spark flink streams; do
		wants "$peer" || continue
		[ "$(cat "$place/$peer/complete" 2>/dev/null)" = "$(cksum "$here"/*.java "$here/others.sh" | cksum)" ] && continue
		mkdir -p "$place/$peer/classes"
		if "prepare_$peer" >"$place/$peer/prepare.log" 2>&1; then
			cksum "$here"/*.java "$here/others.sh" | cksum >"$place/$peer/complete"
		else
			echo "$peer could not be had, and is left out; from $place/$peer/prepare.log:" >&2
			grep -m 3 -iE 'error|no matching' "$place/$peer/prepare.log" >&2 || tail -3 "$place/$peer/prepare.log" >&2
			peers=$(sed "s/\<$peer\>//" <<<"$peers")
		fi
	done
}

prepare_spark()
{
	/usr/bin/python3 -m venv "$place/spark/venv" &&
		"$place/spark/venv/bin/pip" install -q --disable-pip-version-check wheel "pyspark==$spark_version" &&
		fetch_jars spark org.apache.spark:spark-sql-kafka-0-10_2.13:$spark_version &&
		rm -f "$place/spark"/lib/{scala,spark-sql_,spark-core,hadoop,slf4j,jackson}*.jar &&      # pyspark has these
		compile spark SparkCards "$(echo "$place"/spark/venv/lib/python3*/site-packages/pyspark/jars)/*"
}

prepare_flink()
{
	local parts=(flink-clients flink-streaming-java flink-table-api-java-bridge flink-table-planner-loader flink-table-runtime flink-json
		flink-connector-base flink-statebackend-rocksdb)
	fetch_jars flink "${parts[@]/#/org.apache.flink:}" org.apache.flink:flink-connector-kafka:$flink_kafka_version &&
		compile flink Flink "$place/flink/lib/*"
}

prepare_streams()
{
	fetch_jars streams org.apache.kafka:kafka-streams:$streams_version && compile streams Streams "$place/streams/lib/*"
}

compile() { javac -encoding UTF-8 -cp "$3" -d "$place/$1/classes" "$here/$2.java"; }

fetch_jars() # $1 peer, then GROUP:ARTIFACT[:VERSION], by default Flink's: with what they need, into lib
{
	local peer=$1 part group artifact version
	shift
	{
		echo '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
		echo '<groupId>stream</groupId><artifactId>peer</artifactId><version>1</version><dependencies>'
		for part in "$@"; do
			IFS=: read -r group artifact version <<<"$part"
			echo "<dependency><groupId>$group</groupId><artifactId>$artifact</artifactId><version>${version:-$flink_version}</version></dependency>"
		done
		echo '</dependencies></project>'
	} >"$place/$peer/pom.xml"
	rm -rf "$place/$peer/lib"
	mvn -q -B -f "$place/$peer/pom.xml" dependency:copy-dependencies -DoutputDirectory="$place/$peer/lib"
}

# ---- each by its own program; the log says why one printed nothing ----

gave_up() # $1 peer, then its arguments; of the command before, 124 means that time was over
{
	local status=$?
	echo "$1 ended with $status$([ $status != 124 ] || echo ", by the clock, after $patience s"): ${*:2}" >>"$place/$1.log"
}

spark() # arguments of spark.py
{
	SPARK_PLACE=$place/spark SPARK_LOCAL_DIRS=$place/spark-tmp timeout "$patience" "$place/spark/venv/bin/python" "$here/spark.py" "$@" 2>>"$place/spark.log" || gave_up spark "$@"
}

spark_workload() # $1 workload. H: of the tenth alone, for sixty windows a row take minutes
{
	local of=
	[ "$1" != H ] || of=_few
	rm -rf "$place/checkpoints"
	spark "$1" "$servers" "$(list_of "$1" _few)" "$(list_of "$1" $of)" "$(rows_of "$1" $of)" $batch "$place/checkpoints"
}

java_peer() # $1 peer, $2 class, then its arguments
{
	timeout "$patience" java -Xmx2g -cp "$place/$1/classes:$place/$1/lib/*" "${@:2}" 2>>"$place/$1.log" || gave_up "$1" "${@:3}"
}

flink_workload() # $1 workload
{
	rm -rf "$place/checkpoints-flink"
	java_peer flink Flink "$1" "$servers" "$(list_of "$1" _few)" "$(list_of "$1")" "$(rows_of "$1")" "$place/checkpoints-flink"
}

streams_workload() # $1 workload
{
	rm -rf "$place/streams-state"
	java_peer streams Streams "$servers" "$(list_of "$1" _few)" "$(rows_of "$1" _few)" "$(list_of "$1")" "$(rows_of "$1")" out "$place/streams-state"
}

# What people do by hand: a consumer into a staging table, then every so often one upsert. Here once, over everything: its best case.
by_hand() # $1 workload
{
	local begin rows seconds
	rows=$(rows_of "$1")
	sql -c "CREATE UNLOGGED TABLE staging (message json); CREATE TABLE by_hand (store text, minute timestamptz, orders bigint, revenue float8, PRIMARY KEY (store, minute))"
	begin=$(now)
	timeout "$patience" kcat -q -b "$servers" -C -t "$(list_of "$1")" -o beginning -e -f '%s\n' 2>"$place/kcat.log" | sql -c "COPY staging FROM STDIN"
	sql -c "INSERT INTO by_hand SELECT message->>'store', date_trunc('minute', (message->>'ts')::timestamptz), count(*), sum((message->>'amount')::float8)
		FROM staging GROUP BY 1, 2 ON CONFLICT (store, minute) DO UPDATE SET orders = by_hand.orders + excluded.orders, revenue = by_hand.revenue + excluded.revenue"
	seconds=$(passed "$begin")
	[ "$(sql -c "SELECT sum(orders) FROM by_hand")" != "$rows" ] || per_second "$rows" "$seconds"
	sql -c "DROP TABLE staging, by_hand"
}
