# report.sh: `make report`: the page of stream.report_html over a few queries, and what a browser makes of it.
# Path: a cluster of its own → queries with history, one that fails, dead letters → build/report.html → chromium → build/report.png.
# Danger: without chromium there is no picture; that is said, and is no failure.

inside_report()
{
	inside_prepare
	inside_start_cluster fsync = off
	psql -XqAt -v ON_ERROR_STOP=1 -v dir="$WORK" -f test/lib/report.sql >"$WORK/logs/report.log"
	psql -XAtc 'SELECT stream.report_html()' >"$WORK/report.html"
	psql -XAtq -v ON_ERROR_STOP=1 -c "SELECT xmlparse(document stream.report_html()) IS DOCUMENT" | grep -qx t
	echo "$WORK/report.html"
	command -v chromium >/dev/null || { echo 'no picture: chromium is missing'; return 0; }
	HOME=$WORK timeout 120 chromium --headless --no-sandbox --disable-gpu --hide-scrollbars --window-size=1200,1700 --user-data-dir="$WORK/chromium" \
		--screenshot="$WORK/report.png" "file://$WORK/report.html" >"$WORK/logs/chromium.log" 2>&1
	rm -rf "$WORK/chromium"
	[ -s "$WORK/report.png" ] && echo "$WORK/report.png"
}
