# suites.sh: the suites of `make check`, each a function that adds to passed and failed.
# Path: tests of the copied tree → server of the private installation → logs below build/check/logs.
# Danger: a suite that cannot start counts as failed, never as nothing to do.

passed=0 failed=0

inside_check()
{
	local suite round before
	inside_prepare FAILPOINTS=1
	export TEMP_CONFIG=$WORK/tree/test/lib/cluster.conf
	for suite in "$@"; do
		case $suite in regress | isolation | conformance | property | lint) inside_start_cluster fsync = off; break ;; esac
	done
	for round in $(seq "${REPEAT:-1}"); do
		[ "${REPEAT:-1}" = 1 ] || echo "==== Round $round"
		before=$failed
		for suite in "$@"; do
			echo "== ${suite^}"
			"suite_$suite"
		done
		[ "$failed" = "$before" ] || [ "${REPEAT:-1}" = 1 ] || cp -r "$WORK/logs" "$WORK/logs_of_round_$round"
	done
	[ -z "${socket:-}" ] || suite_one 'no server process crashed' suite_no_crash
	echo "$passed passed, $failed failed"
	[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
}

inside_bench()
{
	inside_prepare
	inside_start_cluster wal_level = replica     # as servers are by default
	bash test/bench/run
}

inside_bench_peers()
{
	inside_prepare
	inside_start_cluster wal_level = replica
	bash test/bench/peers/run
}

suite_count() # $1 passed, $2 failed
{
	passed=$((passed + $1)) failed=$((failed + $2))
}

suite_names() # the tests to run: $1 directory, $2 suffix; $TESTS picks
{
	local file name
	for file in "$1"/*"$2"; do
		name=$(basename "$file" "$2")
		[ -e "$file" ] && [[ -z ${TESTS:-} || " $TESTS " == *" $name "* ]] || continue
		# STREAM_ALONE: a PostgreSQL that no other extension was packed for, and without XML
		[ -n "${STREAM_ALONE:-}" ] && grep -qE "EXTENSION (hll|tdigest|pg_cron)|xpath" "$file" || echo "$name"
	done
	return 0
}

suite_pg_regress_one() # $1 program, $2 test directory, $3 test: alone, in a database of its own
{
	local out=$WORK/logs/$3
	rm -rf "$out"
	mkdir -p "$out"
	ln -s "$WORK/tree/expected" "$out/expected"
	[ -e "expected/$3.out" ] || : >"expected/$3.out"   # a missing answer is a difference, not the end of the run
	if "$1" --inputdir=test --outputdir="$out" --bindir="$(dirname "$(command -v psql)")" --dbname="regress_$3" --host="$PGHOST" --user=postgres \
		--load-extension=stream_ext --launcher="$WORK/tree/test/lib/session" "$3" >"$out.log" 2>&1; then
		grep -E '^(test|ok) ' "$out.log" | sed -E 's/^ok [0-9]+ +- /test /'     # 15, later ones
		touch "$WORK/logs/$2/$3.ok"
	else
		echo "FAILED  $3"
		if [ -s "$out/regression.diffs" ]; then head -n 60 "$out/regression.diffs"; else tail -n 5 "$out.log"; fi
		echo "        what came out: $out/results/$3.out"
	fi
}

suite_pg_regress() # $1 program, $2 test directory, $3 suffix; two tests at a time
{
	local names ok
	names=$(suite_names "test/$2" "$3")
	[ -n "$names" ] || { echo "no tests"; return 0; }
	rm -rf "${WORK:?}/logs/$2"
	mkdir -p "$WORK/logs/$2"
	export -f suite_pg_regress_one
	xargs -P 2 -I @ bash -c 'suite_pg_regress_one "$1" "$2" @' _ "$1" "$2" <<<"$names"
	ok=$(find "$WORK/logs/$2" -name '*.ok' | wc -l)
	suite_count "$ok" $(($(wc -w <<<"$names") - ok))
}

suite_regress() { suite_pg_regress "$PG_REGRESS" sql .sql; }
suite_isolation() { suite_pg_regress "$PG_ISOLATION_REGRESS" specs .spec; }

suite_tap_files() # $1 directory
{
	local names ok bad
	names=$(suite_names "$1" .pl)
	[ -n "$names" ] || { echo "no tests"; return 0; }
	export TESTDIR
	mkdir -p "$WORK/logs/tap"
	rm -f "$WORK/logs/tap"/*
	# Each file by itself, two at a time; the last line of each log says how it went.
	# shellcheck disable=SC2016
	xargs -P 2 -I @ bash -c '
		TESTDIR=$WORK/tap/@; rm -rf "$TESTDIR"; mkdir -p "$TESTDIR"
		export TESTDIR TESTDATADIR=$TESTDIR/tmp_check TESTLOGDIR=$TESTDIR/log     # 15; later versions
		log=$WORK/logs/tap/@.log
		if timeout "${TAP_TIMEOUT:-900}" prove --nocolor --verbose "$1/@.pl" >"$log" 2>&1; then
			if grep -q "^Result: NOTESTS" "$log"; then echo "skipped @: $(grep -m1 -oi "# SKIP.*" "$log")"; exit; fi
			echo "ok      @ ($(grep -c "^ok " "$log") checks)"; echo RESULT ok >>"$log"; rm -rf "$TESTDIR"
		else
			echo "FAILED  @"; grep -E "^not ok|^#   Failed|^# +(at|got:|expected:)|died|Bail" "$log" | head -12
			echo "        log: $log; clusters: $TESTDIR"; echo RESULT failed >>"$log"
		fi' _ "$1" <<<"$names"
	ok=$(grep -lx 'RESULT ok' "$WORK/logs/tap"/*.log | wc -l || true)
	bad=$(grep -lx 'RESULT failed' "$WORK/logs/tap"/*.log | wc -l || true)
	suite_count "$ok" "$bad"
}

# From PostgreSQL 15 to the version under test: a root of check-versions has both, and lets us install into the old one.
suite_upgrade()
{
	local old=/usr/lib/postgresql/15/bin
	[ -w "$("$old/pg_config" --pkglibdir)" ] || { suite_one 'PostgreSQL 15 is there to upgrade from' false; return 0; }
	rm -rf "$WORK/old"
	mkdir -p "$WORK/old"
	tar -C "$WORK/tree" -c --exclude='*.o' --exclude='*.so' --exclude=./build . | tar -C "$WORK/old" -x
	if ! make -s -C "$WORK/old" -j2 with_llvm=no PG_CONFIG="$old/pg_config" FAILPOINTS=1 COPT=-std=gnu17 all install >"$WORK/logs/make_old.log" 2>&1; then
		tail -n 5 "$WORK/logs/make_old.log"
		suite_one 'the extension builds for PostgreSQL 15' false
		return 0
	fi
	OLD_BIN=$old NEW_BIN=$(dirname "$(command -v postgres)") suite_tap_files test/upgrade
}

# From the last release to this tree, within one server. Alone: it installs the release in between.
suite_release()
{
	if ! make -s -C "$WORK/release" -j2 with_llvm=no PG_CONFIG="$PG_CONFIG" all >"$WORK/logs/make_release.log" 2>&1; then
		tail -n 5 "$WORK/logs/make_release.log"
		suite_one 'the last release builds' false
		return 0
	fi
	suite_tap_files test/release
}

suite_tap() { suite_tap_files test/t; }

suite_kafka()
{
	suite_one 'a Kafka broker is there' test/lib/kafka_broker.sh fetch     # once, before two tests want it at the same time
	suite_tap_files test/kafka
}

suite_python() # $1 name, then the command: its last line says how many passed and failed
{
	local log=$WORK/logs/$1.log
	shift
	PGOPTIONS='-c intervalstyle=postgres' python3 "$@" 2>&1 | tee "$log" | grep -vE '^[0-9]+ passed, [0-9]+ failed$' || true
	if [[ $(tail -n 1 "$log") =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed ]]; then
		suite_count "${BASH_REMATCH[1]}" "${BASH_REMATCH[2]}"
	else
		echo "$1 did not finish"
		suite_count 0 1
	fi
}

suite_setting() # $1: what comes behind ALTER SYSTEM
{
	psql -XAtq -d postgres -v ON_ERROR_STOP=1 -c "ALTER SYSTEM $1" -c 'SELECT pg_reload_conf()' >/dev/null
}

suite_with_tasks() # a suite's command, every batch of its queries given to tasks
{
	local status=0
	suite_setting 'SET stream_ext.task_rows = 0'
	"$@" --query-options "$TASKS" || status=$?
	suite_setting 'RESET stream_ext.task_rows'
	return $status
}

# A suite's command on a server without logical decoding: only there rows of a table that is logged go past the executor (src/sink/replace.c).
suite_without_decoding()
{
	local status=0
	suite_setting "SET wal_level = 'replica'"
	pg_ctl -s -w -D "$WORK/data" -l "$WORK/logs/postgres.log" restart
	"$@" --query-options "$IN_PLACE" || status=$?
	suite_setting 'RESET wal_level'
	pg_ctl -s -w -D "$WORK/data" -l "$WORK/logs/postgres.log" restart
	return $status
}

# Both suites run three times: state in memory, in place where there is state, and with tasks where sources can be shared.
TASKS='{"parallelism": 2}'
SHARED='^(0[1-57]|10|13|15|16|2[1-6]|35)_'
IN_PLACE='{"state_provider": "table"}'
STATEFUL='^(0[1-5]|0[789]|10|12|15)_'
suite_conformance()
{
	# shellcheck disable=SC2086
	suite_python conformance test/conformance/run.py ${WERROR:+--strict} ${TESTS:+--filter "$TESTS"} test/conformance/cases
	[ -z "${STREAM_ONCE:-}" ] || return 0
	echo '-- with state in place'
	suite_without_decoding suite_python conformance_in_place test/conformance/run.py --filter "${TESTS:-$STATEFUL}" test/conformance/cases
	echo '-- with tasks'
	suite_with_tasks suite_python conformance_tasks test/conformance/run.py --filter "${TESTS:-$SHARED}" test/conformance/cases
}
# PROPERTY_COUNT and PROPERTY_SEED: more queries, or the same ones again
suite_property()
{
	# shellcheck disable=SC2086
	suite_python property test/property/run.py --count "${PROPERTY_COUNT:-150}" ${PROPERTY_SEED:+--seed "$PROPERTY_SEED"}
	echo '-- with state in place'
	# shellcheck disable=SC2086
	suite_without_decoding suite_python property_in_place test/property/run.py --count "${PROPERTY_COUNT:-100}" ${PROPERTY_SEED:+--seed "$PROPERTY_SEED"}
	echo '-- with tasks'
	# shellcheck disable=SC2086
	suite_with_tasks suite_python property_tasks test/property/run.py --count "${PROPERTY_COUNT:-60}" ${PROPERTY_SEED:+--seed "$PROPERTY_SEED"}
	echo '-- queries altered, rewound, killed'
	# shellcheck disable=SC2086
	suite_python operations test/property/operations.py --count "${OPERATIONS_COUNT:-3}" ${PROPERTY_SEED:+--seed "$PROPERTY_SEED"}
}

suite_one() # a check that is one program: $1 name, then the command
{
	local name=$1
	shift
	if "$@"; then echo "ok      $name"; suite_count 1 0; else echo "FAILED  $name"; suite_count 0 1; fi
}

suite_layers() { suite_one 'includes obey the layers' test/check_layers; }

suite_lint()
{
	dropdb --if-exists lint
	createdb lint
	suite_one 'every SQL object has a comment' suite_sql_is_empty test/lib/uncommented.sql
	suite_one 'exported symbols are the intended ones' suite_symbols
	suite_one 'the reference names everything' test/lib/documented
	suite_one 'every expected result has its test' suite_expected
	suite_one 'every picture is whole, still and shown' suite_pictures
}

suite_pictures()
{
	local file shown status=0
	for file in doc/*.svg; do
		python3 -c 'import sys, xml.dom.minidom; sys.exit(xml.dom.minidom.parse(sys.argv[1]).documentElement.namespaceURI != "http://www.w3.org/2000/svg")' "$file" ||
			{ echo "$file is no SVG"; status=1; }
		! grep -qE '<script|javascript:|@import|url\(|(href|src)=|[ "]on[a-z]+=' "$file" || { echo "$file runs or fetches something"; status=1; }
		[ "$(wc -c <"$file")" -le 150000 ] || { echo "$file is too large"; status=1; }
		grep -qF "${file#doc/}" doc/*.md || { echo "no page of doc/ shows $file"; status=1; }
	done
	while IFS=: read -r file shown; do
		[ -e "$(dirname "$file")/$shown" ] || { echo "$file shows $shown, which is not there"; status=1; }
	done < <(grep -oE '(!\[[^]]*\]\(|src=")[^):" ]+' README.md doc/*.md | sed -E 's/:(!.*\(|src=")/:/')
	return $status
}

suite_expected()
{
	local file name status=0
	for file in expected/*.out; do
		name=$(basename "$file" .out)
		compgen -G "test/s*/${name%_[0-9]}.s*" >/dev/null || compgen -G "test/s*/$name.s*" >/dev/null || { echo "no test of $file"; status=1; }
	done
	return $status
}

suite_sql_is_empty() # the query finds nothing
{
	local rows
	rows=$(psql -XAtq -d lint -v ON_ERROR_STOP=1 -f "$1") || return 1
	[ -z "$rows" ] || { echo "$rows"; return 1; }
}

suite_no_crash()
{
	! grep -E 'was terminated by signal|PANIC: |TRAP: ' "$WORK/logs/postgres.log"
}

suite_symbols()
{
	local extra
	extra=$(nm -D --defined-only stream_ext.so | awk '$3 !~ /^(Pg_magic_func|_PG_(init|output_plugin_init)|stream_.*|pg_finfo_stream_.*)(@.*)?$/ { print $3 }')
	[ -z "$extra" ] || { echo "exported beyond exports.map: $extra"; return 1; }
}
