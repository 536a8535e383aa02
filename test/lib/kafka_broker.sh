#!/usr/bin/env bash
# kafka_broker.sh: a real Kafka broker (KRaft, one node, loopback) for tests, in a directory of its own.
# Path: jars from Maven Central, fetched once → storage formatted → broker and controller in one java process → ready when it answers.
# Danger: stops only the process whose number it wrote into DIR/pid.
#
#   kafka_broker.sh fetch          the jars, into $STREAM_KAFKA_JARS (default: kafka below $WORK or build)
#   kafka_broker.sh start DIR      prints "bootstrap 127.0.0.1:PORT"; a directory used before keeps its ports and its data.
#                                  DIR/secure_port: TLS by DIR/server.pem, and user stream with password stream-secret (PLAIN)
#   kafka_broker.sh stop DIR | kill DIR
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd -P)
top=${here%/test/lib}
version=4.0.0
jars=${STREAM_KAFKA_JARS:-${WORK:-$top/build}/kafka}
programs=${STREAM_BUILD:-$top/build}

fetch_jars()
{
	[ -e "$jars/complete" ] && [ "$(cat "$jars/complete")" = "$version" ] && return
	rm -rf "$jars"
	mkdir -p "$jars"
	cat >"$jars/pom.xml" <<-END
		<project xmlns="http://maven.apache.org/POM/4.0.0">
		  <modelVersion>4.0.0</modelVersion>
		  <groupId>stream</groupId><artifactId>broker</artifactId><version>1</version>
		  <dependencies>
		    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>$version</version></dependency>
		    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version></dependency>
		  </dependencies>
		</project>
	END
	if ! (cd "$jars" && mvn -q -B dependency:copy-dependencies -DoutputDirectory="$jars/lib") >"$jars/maven.log" 2>&1; then
		echo "Kafka could not be fetched from Maven Central:" >&2
		grep -m 3 -E 'ERROR|not found' "$jars/maven.log" >&2
		exit 1
	fi
	echo "$version" >"$jars/complete"
}

free_port()
{
	local port
	while :; do
		port=$((20000 + RANDOM % 12000))
		(exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || { echo "$port"; return; }
	done
}

run_java() { CLASSPATH="$jars/lib/*" java -Xmx512m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 "$@"; }

write_config() # $1 directory
{
	local port secure controller
	port=$(free_port) secure=$(free_port) controller=$(free_port)
	echo "$port" >"$1/port"
	echo "$secure" >"$1/secure_port"
	openssl req -x509 -newkey rsa:2048 -nodes -days 30 -subj /CN=127.0.0.1 -addext subjectAltName=IP:127.0.0.1 \
		-keyout "$1/server.key" -out "$1/server.crt" 2>"$1/openssl.log"
	cat "$1/server.key" "$1/server.crt" >"$1/server.pem"
	cat >"$1/server.properties" <<-END
		process.roles=broker,controller
		node.id=1
		controller.quorum.voters=1@127.0.0.1:$controller
		listeners=PLAINTEXT://127.0.0.1:$port,SECURE://127.0.0.1:$secure,CONTROLLER://127.0.0.1:$controller
		advertised.listeners=PLAINTEXT://127.0.0.1:$port,SECURE://127.0.0.1:$secure
		controller.listener.names=CONTROLLER
		inter.broker.listener.name=PLAINTEXT
		listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SECURE:SASL_SSL,CONTROLLER:PLAINTEXT
		listener.name.secure.ssl.keystore.type=PEM
		listener.name.secure.ssl.keystore.location=$1/server.pem
		listener.name.secure.sasl.enabled.mechanisms=PLAIN
		listener.name.secure.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required user_stream="stream-secret";
		log.dirs=$1/data
		auto.create.topics.enable=false
		offsets.topic.replication.factor=1
		offsets.topic.num.partitions=1
		transaction.state.log.replication.factor=1
		transaction.state.log.min.isr=1
		transaction.state.log.num.partitions=1
		num.network.threads=2
		num.io.threads=2
		log.cleaner.dedupe.buffer.size=10485760
		log.cleaner.threads=1
		log.cleaner.backoff.ms=500
		log.initial.task.delay.ms=500
		log.retention.ms=-1
		log.retention.check.interval.ms=1000
		log.segment.delete.delay.ms=100
	END
	run_java kafka.tools.StorageTool format -t c3RyZWFtLWJyb2tlci0xMA -c "$1/server.properties" >"$1/format.log" 2>&1
}

start_broker() # $1 directory
{
	fetch_jars
	[ -x "$programs/stream_broker" ] || { make -s -C "$top" -f test/lib/broker.mk build/stream_broker >&2 && programs=$top/build; } || exit 1
	mkdir -p "$1"
	[ -e "$1/server.properties" ] || write_config "$1"
	CLASSPATH="$jars/lib/*" setsid java -Xmx512m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 kafka.Kafka "$1/server.properties" \
		>>"$1/broker.log" 2>&1 </dev/null &
	echo $! >"$1/pid"
	if [ "$(printf 'ready\nquit\n' | "$programs/stream_broker" --connect "127.0.0.1:$(cat "$1/port")" | tail -1)" != ok ]; then
		echo "The broker does not answer; the end of $1/broker.log:" >&2
		tail -5 "$1/broker.log" >&2
		stop_broker "$1" KILL
		exit 1
	fi
	echo "bootstrap 127.0.0.1:$(cat "$1/port")"
}

stop_broker() # $1 directory, $2 signal
{
	local pid
	pid=$(cat "$1/pid" 2>/dev/null) || return 0
	kill "-$2" "$pid" 2>/dev/null || true
	while kill -0 "$pid" 2>/dev/null; do sleep 0.1; done
	rm -f "$1/pid"
}

case ${1:-} in
	fetch) fetch_jars ;;
	start) start_broker "$2" ;;
	stop) stop_broker "$2" TERM ;;
	kill) stop_broker "$2" KILL ;;
	*) sed -n '6,9s/^# *//p' "$0" >&2; exit 2 ;;
esac
