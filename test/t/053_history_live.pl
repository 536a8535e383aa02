# History first, then live: a UNION ALL of files and a topic, and of a table and a topic. The history ends; after idle_timeout it no longer holds the
# watermark, and the windows of the live source close. A backlog that waits is read in pieces, in bounded memory. Start twice is start once.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::Bin/../lib";
use PostgreSQL::Test::Utils;
use StreamBroker;
use StreamNode;
use Test::More;

my $node = new_node('main');
my $broker = StreamBroker->new(topics => ['live:2']);
my $server = $broker->bootstrap;
my $dir = PostgreSQL::Test::Utils::tempdir();
chmod 0755, $dir;
for my $day (1 .. 3)
{
	append_to_file("$dir/day$day.csv", join('', map { "$_,2026-03-0${day}T10:0$_:00Z\n" } 0 .. 9));
}
$node->safe_psql('postgres', qq{
	CREATE SERVER k FOREIGN DATA WRAPPER stream_kafka OPTIONS ("bootstrap.servers" '$server');
	SELECT stream.create_source('files', 'file', 'id int, at timestamptz', '{"path": "$dir/*.csv", "max_files_per_batch": 1}', event_time => 'at', watermark_delay => '1 minute');
	CREATE TABLE past_t (id int, at timestamptz);
	INSERT INTO past_t SELECT i, timestamptz '2026-03-01 09:00Z' + i * interval '1 minute' FROM generate_series(0, 29) i;
	SELECT stream.create_source('past', 'table', options => '{"table": "past_t"}', event_time => 'at', watermark_delay => '1 minute');
	SELECT stream.create_source('live', 'kafka', 'id int, at timestamptz', '{"server": "k", "topic": "live", "starting_offsets": "earliest"}', event_time => 'at', watermark_delay => '1 minute')});
for my $history (qw(files past))
{
	create_query($node, $history, "SELECT stream.tumble(at, '10 minutes') AS w, count(*) AS n FROM (SELECT at FROM $history UNION ALL SELECT at FROM live) x GROUP BY 1",
		q{options => '{"idle_timeout": "500 milliseconds"}'});
}
sub closed { my ($history) = @_; return "SELECT string_agg(to_char(lower(w) AT TIME ZONE 'UTC', 'DD HH24:MI') || '=' || n, ', ' ORDER BY w) FROM ${history}_out"; }

ok(wait_for_sql($node, closed('files'), '01 10:00=10, 02 10:00=10'), 'files: windows of the history close by itself, while nothing is live');
ok(wait_for_sql($node, closed('past'), '01 09:00=10, 01 09:10=10'), 'table: so they do');
$broker->send_value('live', 0, '{"id": 1, "at": "2026-03-04T10:00:00Z"}', '{"id": 2, "at": "2026-03-04T10:05:00Z"}');
# One partition after the other: were the newer row read first, the older ones would be late.
ok(wait_for_sql($node, 'SELECT string_agg(n::text, \' \') FROM (SELECT sum(num_input_rows) AS n FROM stream.progress GROUP BY query) p', '32 32'), 'a partition is read');
$broker->send_value('live', 1, '{"id": 3, "at": "2026-03-04T10:11:30Z"}');
ok(wait_for_sql($node, closed('files'), '01 10:00=10, 02 10:00=10, 03 10:00=10, 04 10:00=2'), 'files: live windows close, the history holds nobody any more');
ok(wait_for_sql($node, closed('past'), '01 09:00=10, 01 09:10=10, 01 09:20=10, 04 10:00=2'), 'table: so they do');
is($node->safe_psql('postgres', 'SELECT sum(rows_late) FROM stream.queries'), '0', 'nobody was late');
$node->safe_psql('postgres', 'SELECT stream.drop_query(name) FROM stream.queries');

# An outage: what waits is large, batches are not, nor is the worker.
table_source($node, 'pile', 'id int, v text');
create_query($node, 'pile', 'SELECT id, v FROM pile', q{options => '{"max_bytes_per_batch": 1000000}'});
ok(status_is($node, 'pile', 'running'), 'a query runs');
$node->safe_psql('postgres', q{INSERT INTO pile_t VALUES (0, ''); CALL stream.process_all_available('pile')});
my $small = memory_kb();
$node->safe_psql('postgres', q{SELECT stream.stop_query('pile')});
$node->safe_psql('postgres', q{INSERT INTO pile_t SELECT i, repeat('x', 1000) FROM generate_series(1, 60000) i; SELECT stream.start_query('pile')});
ok(wait_for_sql($node, 'SELECT count(*) > 1000 FROM pile_out', 't'), 'it catches up');
my $peak = 0;
wait_for(sub { my $now = memory_kb(); $peak = $now if $now > $peak; return $node->safe_psql('postgres', 'SELECT count(*) FROM pile_out') == 60001 }, 60);
is($node->safe_psql('postgres', 'SELECT count(*), count(DISTINCT id) FROM pile_out'), '60001|60001', 'every row once');
cmp_ok($node->safe_psql('postgres', 'SELECT max(bytes) FROM (SELECT sum(octet_length(v)) AS bytes FROM pile_out GROUP BY batch_id) b'), '<=', 1000000, 'in batches as large as they may be');
cmp_ok($peak - $small, '<', 20_000, "in bounded memory ($small kB, at most $peak kB)");

# Of a worker, its own.
sub memory_kb
{
	my $pid = worker_pid($node, 'pile');
	my $status = slurp_file("/proc/$pid/status");
	return $status =~ /^RssAnon:\s+(\d+)/m ? $1 : 0;
}

# Two sessions start it at the same moment, over and over: one worker at a time, every row once.
$node->safe_psql('postgres', q{SELECT stream.stop_query('pile')});
for my $round (1 .. 5)
{
	my @sessions = map { $node->background_psql('postgres', on_error_stop => 0) } 1 .. 2;
	$_->{stdin} .= "SELECT stream.start_query('pile');\n" for @sessions;
	$_->{run}->pump_nb for @sessions;
	$node->safe_psql('postgres', "INSERT INTO pile_t SELECT $round * 100000 + i FROM generate_series(1, 200) i");
	$_->quit for @sessions;
	$node->safe_psql('postgres', q{SELECT stream.stop_query('pile')}) if $round < 5;
}
ok(wait_for_sql($node, 'SELECT count(*), count(DISTINCT id) FROM pile_out', '61001|61001'), 'started twice, read once');
is(processes($node, 'worker'), '1', 'by one worker');
my ($code, undef, $error) = $node->psql('postgres', q{CALL stream.run_batch('pile', NULL)});
like($error, qr/"pile" is running/, 'and by nobody else');
$node->stop;
done_testing();
