# report.sh: `make report`: the page of stream.report_html over a few queries, what a browser makes of it, and the picture in doc/.
# Path: a cluster and a broker of its own → payments come, a query fails, one falls behind, dead letters → build/report.html → chromium →
# build/report.png; page and style in an SVG → build/report.svg (to be copied to doc/) → chromium → build/report.svg.png, the same pixels.
# Danger: without chromium there is no picture; that is said, and is no failure.

report_width=1120

inside_report()
{
	local broker broker_in broker_out sent=0 round
	inside_prepare
	inside_start_cluster fsync = off
	coproc BROKER { exec "$STREAM_BUILD/stream_broker" payments:2; }
	broker_pid=$BROKER_PID
	exec {broker_out}<&"${BROKER[0]}" {broker_in}>&"${BROKER[1]}"
	trap 'kill $broker_pid 2>/dev/null || true; inside_stop' EXIT
	read -r -t 20 -u "${broker_out}" _ broker
	createdb shop
	export PGDATABASE=shop
	psql -XqAt -v ON_ERROR_STOP=1 -v broker="$broker" -f test/lib/report.sql >"$WORK/logs/report.log"
	for round in 100 400 150 600 250 50 450; do                 # payments a second, a second and a half each; between them what nobody can read
		demo_payments "$round" $((round * 3 / 2))
		demo_ask send payments 1 'value={"card": "card-0001", "amount": "much"}' >/dev/null
	done
	demo_until "SELECT bool_or(status = 'failed') AND bool_or(falling_behind) FROM stream.queries" 60 'one query has failed and one falls behind'
	psql -XAtc 'SELECT stream.report_html()' >"$WORK/report.html"
	psql -XAtq -v ON_ERROR_STOP=1 -c "SELECT xmlparse(document stream.report_html()) IS DOCUMENT" | grep -qx t
	echo "$WORK/report.html"
	command -v chromium >/dev/null || { echo 'no picture: chromium is missing'; return 0; }
	sed 's|</body>|<script>document.title = document.documentElement.scrollHeight</script>&|' "$WORK/report.html" >"$WORK/measured.html"
	report_browser --window-size=$report_width,100 --dump-dom "file://$WORK/measured.html" >"$WORK/measured.dom"
	report_height=$(sed -n 's|.*<title>\([0-9]*\)</title>.*|\1|p' "$WORK/measured.dom")
	report_svg "$WORK/report.html" >"$WORK/report.svg"
	report_browser --window-size="$report_width,$report_height" --screenshot="$WORK/report.png" "file://$WORK/report.html"
	report_browser --window-size="$report_width,$report_height" --screenshot="$WORK/report.svg.png" "file://$WORK/report.svg"
	rm -rf "$WORK/chromium" "$WORK"/measured.*
	ls "$WORK/report.png" "$WORK/report.svg"
	cmp "$WORK/report.png" "$WORK/report.svg.png"
}

report_browser()
{
	HOME=$WORK timeout 120 chromium --headless --no-sandbox --disable-gpu --hide-scrollbars --user-data-dir="$WORK/chromium" "$@" 2>>"$WORK/logs/chromium.log"
}

# The page's markup as it is, inside a foreignObject; its rule for svg is meant for the charts, not for the picture around them.
report_svg() # $1 page
{
	cat <<-END
		<svg xmlns="http://www.w3.org/2000/svg" width="$report_width" height="$report_height" viewBox="0 0 $report_width $report_height">
		<title>The page of stream.report_html()</title><rect width="100%" height="100%" fill="#fff"/>
		<foreignObject width="100%" height="100%"><body xmlns="http://www.w3.org/1999/xhtml"><style>
	END
	sed -n '/<style>/,/<\/style>/p' "$1" | sed -e '1d' -e 's/^svg {/figure &/' -e 's|</style></head><body>|</style>|' -e '$q'
	sed '1,/<\/style>/d; s|</html>$||' "$1"
	echo '</foreignObject></svg>'
}
