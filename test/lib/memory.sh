# memory.sh: the tests under tools that watch memory: `make check-sanitize` (UndefinedBehaviorSanitizer) and `make check-valgrind` (memcheck).
# Path: a copy of its own → built for the tool → server under the tool → regress tests → reports, of which none may name our code.
# Danger: PostgreSQL itself is the packaged one. Its palloc hides small overruns from both tools; what they see are whole blocks, values, and our arithmetic.

VALGRIND_TESTS='dead_letter rewind sink_others state_reader refuse kafka_options window transform best explain state_ttl'

memory_reports() # $1 what the tool's reports are called; "$2": a filter that leaves those that count
{
	local found
	found=$(cat "$WORK/logs/$1".* 2>/dev/null | "$2" || true)
	[ -z "$found" ] || { head -n 80 <<<"$found"; return 1; }
}

# AddressSanitizer does not start inside the packaged server, only in one built with it (README.md); memcheck looks at memory there, and `make fuzz` has the decoders under both sanitizers.
inside_sanitize()
{
	inside_prepare 'FAILPOINTS=1 COPT=-fsanitize=undefined'
	rm -f "$WORK/logs/sanitizer".*
	export UBSAN_OPTIONS=print_stacktrace=1:log_path=$WORK/logs/sanitizer
	inside_start_cluster fsync = off
	echo '== Regress, with UndefinedBehaviorSanitizer'
	suite_regress
	pg_ctl -s -w -D "$WORK/data" -m fast stop
	suite_one 'no sanitizer report' memory_reports sanitizer cat
	suite_one 'no server process crashed' suite_no_crash
	echo "$passed passed, $failed failed"
	[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
}

# The server of the copy becomes a script that runs the real one under valgrind where VALGRIND is set.
valgrind_wrap()
{
	local server
	server=$(command -v postgres)
	[ -e "$server.real" ] || mv "$server" "$server.real"
	cat >"$server" <<-END
		#!/bin/sh
		case "\$VALGRIND \$*" in
			*" -V"* | *--boot* | *--single* | *--check* | " "*) exec "$server.real" "\$@" ;;
		esac
		exec valgrind -q --trace-children=yes --num-callers=30 --undef-value-errors=yes --leak-check=no --gen-suppressions=no \\
			--suppressions="$WORK/tree/test/lib/valgrind.supp" --log-file="$WORK/logs/valgrind.%p" "$server.real" "\$@"
	END
	chmod 755 "$server"
}

# Reports (blocks ended by an empty line of the tool's) with a frame in one of our sources; the packaged server has no line numbers.
valgrind_ours()
{
	awk -v names="$(find src -name '*.c' -printf '%f ')" '
		BEGIN { n = split(names, list, " "); for (i = 1; i <= n; i++) ours[list[i]] = 1 }
		{ line = $0; sub(/^==[0-9]+== ?/, "", line) }
		line == "" { if (hit) print block; block = ""; hit = 0; next }
		{ block = block line "\n"; if (match(line, /\([a-z_]+\.c:[0-9]+\)/)) { f = substr(line, RSTART + 1, RLENGTH - 2); sub(/:.*/, "", f); if (f in ours) hit = 1 } }
		END { if (hit) print block }'
}

inside_valgrind()
{
	command -v valgrind >/dev/null || { echo 'valgrind is missing (Debian: apt-get install valgrind)' >&2; return 1; }
	inside_prepare FAILPOINTS=1
	valgrind_wrap
	rm -f "$WORK/logs/valgrind".*
	VALGRIND=1 PGCTLTIMEOUT=300 inside_start_cluster fsync = off
	echo '== Regress, under valgrind'
	TESTS=${TESTS:-$VALGRIND_TESTS} suite_regress
	PGCTLTIMEOUT=300 pg_ctl -s -w -D "$WORK/data" -m fast stop
	suite_one 'no report of valgrind names our code' memory_reports valgrind valgrind_ours
	suite_one 'no server process crashed' suite_no_crash
	echo "$passed passed, $failed failed"
	[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
}
