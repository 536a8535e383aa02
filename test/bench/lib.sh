# lib.sh: what the measuring scripts share. Sourced; the connection is in PG*, programs in $STREAM_BUILD, space in $WORK.

sql() { psql -XqAt -v ON_ERROR_STOP=1 "$@"; }
row() { printf '%-58s %14s   %s\n' "$@"; }
grouped() { printf "%.0f" "$1" | sed ':a;s/\B[0-9]\{3\}\>/ &/;ta'; }
ratio() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%.2f × bare consumer", a / b }'; }
median() { sort -g | awk '{ line[NR] = $0 } END { print line[int((NR + 1) / 2)] }'; }
cpu_seconds() { cat "/proc/$1/stat" | awk -v hz="$(getconf CLK_TCK)" '{ sub(/.*\) /, ""); print ($12 + $13) / hz }'; }

ask() # one command to the broker
{
	local answer
	echo "$*" >&"$broker_in"
	read -r -t 120 -u "$broker_out" answer
	[[ $answer == ok* ]] || { echo "broker: $answer" >&2; exit 1; }
}

wait_for() # $1: query that gives true
{
	local end=$((SECONDS + 120))
	until [ "$(sql -c "$1")" = t ]; do
		if [ $SECONDS -ge $end ]; then
			echo "gave up waiting for: $1" >&2
			psql -Xc 'SELECT name, status, message, error FROM stream.queries' >&2
			exit 1
		fi
		sleep 0.1
	done
}

# Where bench_latency looks at a growing table: its query is planned once, when the table is empty, and would read all of it at each look, which
# was then taken for latency.
by_index="dbname=$PGDATABASE options='-c enable_seqscan=off -c enable_bitmapscan=off'"
