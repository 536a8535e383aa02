# Triggers that end by themselves, in workers: once is one batch more than what a crash left; available_now ends whatever the tail looks like. And the clock
# wakes workers: a silent source is let go; dead letters come again at once.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::Bin/../lib";
use PostgreSQL::Test::Utils;
use StreamNode;
use Test::More;

my $node = new_node('main', 'shared_preload_libraries = stream_ext', 'restart_after_crash = on', 'max_worker_processes = 20');
my $failpoints = $node->safe_psql('postgres', "SELECT count(*) FROM pg_settings WHERE name = 'stream_ext.failpoints'") eq '1';

sub value { return $node->safe_psql('postgres', shift) }

sub crashes { my $log = slurp_file($node->logfile); return scalar(() = $log =~ /was terminated by signal 9/g) }

sub wait_psql { my $sql = shift; return wait_for(sub { ($node->psql('postgres', $sql))[0] == 0 }, 90) }

sub batches { return value("SELECT coalesce(string_agg(batch_id || '=' || n, ' ' ORDER BY batch_id), '') FROM (SELECT batch_id, count(*) AS n FROM $_[0]_out GROUP BY 1) b") }

table_source($node, 'input', 'v int');
value('INSERT INTO input_t SELECT generate_series(1, 10)');

# ---- once; nobody knows what a function does, so the log is on disk before it runs
value(q{
	CREATE TABLE one_out (v int, batch_id bigint);
	CREATE FUNCTION one_batch(id bigint) RETURNS void LANGUAGE plpgsql AS 'BEGIN INSERT INTO one_out SELECT v, id FROM batch; END';
	SELECT stream.create_query('one', 'SELECT v FROM input', stream.to_function('one_batch'), trigger => stream.once(), options => '{"max_rows_per_batch": 3, "min_rows_per_batch": 50}')});
ok(status_is($node, 'one', 'finished'), 'once finishes');
is(batches('one'), '0=10', 'after one batch, limits ignored');
value("SELECT stream.start_query('one')");
ok(status_is($node, 'one', 'finished'), 'without data');
is(value("SELECT count(*) FROM stream.commit_log"), '1', 'there is no batch');
SKIP:
{
	skip 'the extension was built without failpoints', 1 unless $failpoints;
	value("ALTER SYSTEM SET stream_ext.failpoints = 'executed:1:kill9'");
	value('SELECT pg_reload_conf()');
	value("INSERT INTO input_t VALUES (11), (12); SELECT stream.start_query('one')");
	ok(wait_for(sub { crashes() > 0 }), 'killed in its batch');
	wait_psql('ALTER SYSTEM RESET stream_ext.failpoints');
	wait_psql('INSERT INTO input_t VALUES (13)');
	wait_psql('SELECT pg_reload_conf()');
	ok(status_is($node, 'one', 'finished', 60), 'it finishes after the restart');
	like(batches('one'), qr/^0=10 1=2 2=1$/, 'the batch that was logged, then one more');
}
value("SELECT stream.drop_query('one')");
# a failed attempt of its own batch is not what an earlier run left behind
value(q{
	CREATE SEQUENCE attempts;
	CREATE FUNCTION second_time_lucky(v int) RETURNS int LANGUAGE plpgsql AS $f$
	BEGIN IF nextval('attempts') < 2 THEN RAISE EXCEPTION 'not yet'; END IF; RETURN v; END $f$});
create_query($node, 'lucky', 'SELECT second_time_lucky(v) AS v FROM input', 'trigger => stream.once()');
value('INSERT INTO input_t VALUES (14)');
ok(status_is($node, 'lucky', 'finished', 60), 'a retry of the one batch');
is(value('SELECT count(DISTINCT batch_id) FROM lucky_out'), '1', 'is the one batch');
value("SELECT stream.drop_query('lucky')");

# ---- available_now: limits, windows to close, limits on small batches, sources that end early
value(q{
	CREATE TABLE event_t (k int, at timestamptz);
	SELECT stream.create_source('event', 'table', options => '{"table": "event_t"}', event_time => 'at', watermark_delay => '1 minute');
	INSERT INTO event_t SELECT i % 3, timestamptz '2026-03-01' + i * interval '20 seconds' FROM generate_series(1, 30) i});
create_query($node, 'avail', q{SELECT stream.tumble(at, '1 minute') AS w, count(*) AS n FROM event GROUP BY 1},
	q{trigger => stream.available_now(), options => '{"max_rows_per_batch": 7, "min_rows_per_batch": 1000, "max_trigger_delay": "1 hour"}'});
ok(status_is($node, 'avail', 'finished'), 'available_now finishes');
is(value('SELECT sum(n) || \'/\' || count(*) FROM avail_out'), '26/9', 'with the windows that the last rows closed');
cmp_ok(value("SELECT count(*) FROM stream.progress WHERE query = 'avail' AND num_input_rows > 0"), '>=', 5, 'in limited batches');
is(value("SELECT watermark FROM stream.queries WHERE name = 'avail'"), '2026-03-01 00:09:00+00', 'to the end');
value("SELECT stream.start_query('avail')");
ok(status_is($node, 'avail', 'finished'), 'again, with nothing to do');
# rows keep coming: the end is where it was at the start
$node->psql('postgres', "DO \$\$ BEGIN FOR i IN 1 .. 20 LOOP INSERT INTO event_t VALUES (1, '2026-03-02'); COMMIT; PERFORM pg_sleep(0.005); END LOOP; END \$\$; SELECT stream.start_query('avail')");
ok(status_is($node, 'avail', 'finished'), 'while rows keep coming');
value("SELECT stream.drop_query('avail')");
# rate never ends: what there is now is the end
value(q{SELECT stream.create_source('rate', 'rate', options => '{"rows_per_second": 1000}')});
create_query($node, 'ticks', 'SELECT value FROM rate', q{trigger => stream.available_now(), options => '{"max_rows_per_batch": 100}'});
ok(status_is($node, 'ticks', 'finished'), 'a source that never ends, ends');
value("SELECT stream.drop_query('ticks')");

# ---- the clock wakes a worker: history is silent, live goes on without it
value(q{
	CREATE TABLE live_t (k int, at timestamptz);
	SELECT stream.create_source('live', 'table', options => '{"table": "live_t"}', event_time => 'at', watermark_delay => '0 seconds');
	INSERT INTO live_t VALUES (1, '2026-03-05 10:00:30'), (1, '2026-03-05 10:01:30')});
create_query($node, 'both', q{SELECT stream.tumble(at, '1 minute') AS w, count(*) AS n FROM (SELECT at FROM event UNION ALL SELECT at FROM live) x GROUP BY 1},
	q{options => '{"idle_timeout": "1 second"}'});
ok(wait_for_sql($node, q{SELECT count(*) FROM both_out WHERE lower(w) >= '2026-03-05'}, '1', 10), 'no row, no tick: the window of the live source closes by time alone');
my $idle = value("SELECT count(*) FROM stream.commit_log");
value('SELECT pg_sleep(2)');
is(value("SELECT count(*) FROM stream.commit_log"), $idle, 'and then there is rest');
value("SELECT stream.drop_query('both')");

# ---- dead letters come again at once
my $dir = $node->basedir . '/files';
mkdir $dir;
append_to_file("$dir/a.json", "{\"id\": 1}\n{\"id\": \"two\"}\n");
for my $trigger (q{stream.processing_time('1 hour')}, q{stream.real_time('1 hour')})
{
	value(qq{SELECT stream.create_source('docs', 'file', 'id int', '{"path": "$dir", "format": "json"}')});
	create_query($node, 'docs', 'SELECT id FROM docs', "output_mode => 'update', trigger => $trigger");
	ok(wait_for_sql($node, 'SELECT count(*) FROM docs_out', '1'), "$trigger: the good row");
	is(value("SELECT count(*) FROM stream.dead_letters WHERE query = 'docs'"), '1', 'the bad one is a dead letter');
	value(q{SELECT stream.alter_source('docs', '{"on_bad_row": "null"}'); SELECT stream.replay_dead_letters('docs')});
	ok(wait_for_sql($node, 'SELECT count(*), count(id) FROM docs_out', '2|1'), 'it comes again without waiting for anything');
	is(value("SELECT count(*) FROM stream.dead_letters WHERE query = 'docs'"), '0', 'and is none any more');
	value(q{SELECT stream.stop_query('docs')});
	is(value("SELECT conf ? 'replay' FROM stream.offset_log JOIN stream.queries ON id = query_id WHERE name = 'docs' ORDER BY batch_id DESC LIMIT 1"), 't', 'the log knows');
	value(q{SELECT stream.drop_query('docs'); SELECT stream.drop_source('docs'); DROP TABLE docs_out});
}
$node->stop;
done_testing();
