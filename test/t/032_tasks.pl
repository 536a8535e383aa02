# Tasks (option parallelism) of queries over Kafka, against the embedded broker: exact whatever becomes of a task, quick to go, few where there is little room.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::Bin/../lib";
use PostgreSQL::Test::Utils;
use StreamBroker;
use StreamNode;
use Test::More;

my $node = new_node('main', 'restart_after_crash = on', 'stream_ext.task_rows = 0');
my $broker = StreamBroker->new(topics => ['events:5']);
my $server = $broker->bootstrap;
$node->safe_psql('postgres', qq(
	CREATE ROLE anna LOGIN;
	GRANT USAGE ON SCHEMA stream TO anna;
	GRANT ALL ON SCHEMA public TO anna;
	CREATE SERVER k FOREIGN DATA WRAPPER stream_kafka OPTIONS ("bootstrap.servers" '$server');
	GRANT USAGE ON FOREIGN SERVER k TO anna));
my $anna = [ extra_params => [ '-U', 'anna' ] ];
$node->safe_psql('postgres', q(
	SELECT stream.create_source('events', 'kafka', 'id bigint, card text, amount numeric, ts timestamptz, kafka_partition int, kafka_offset bigint',
		'{"server": "k", "topic": "events", "starting_offsets": "earliest"}', event_time => 'ts', watermark_delay => '1 hour');
	SELECT stream.create_query('rows', 'SELECT id, kafka_partition, kafka_offset FROM events', stream.to_table('rows_out'), options => '{"parallelism": 2, "max_retries": 1000}');
	SELECT stream.create_query('minutes', 'SELECT stream.tumble(ts, ''1 minute'') AS minute, card, count(*) AS n, sum(amount) AS total FROM events GROUP BY 1, 2',
		stream.to_table('minutes_out'), output_mode => 'update', options => '{"parallelism": 3, "max_retries": 1000}')), @$anna);

my $tasks = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'stream_ext task'";
my $sent = 0;

sub produce
{
	my ($count, $seed) = @_;
	$broker->cards('events', $count, $seed, 1767225600000 + $sent);
	$sent += $count;
	return;
}

sub arrives
{
	my ($what) = @_;
	ok(wait_for_sql($node, 'SELECT count(*) FROM rows_out', $sent, 60), "$what: every message is there");
	is($node->safe_psql('postgres', 'SELECT count(DISTINCT (kafka_partition, kafka_offset)), count(*) FROM rows_out'), "$sent|$sent", "$what: once");
	ok(wait_for_sql($node, q(SELECT sum(n) + (SELECT rows_late FROM stream.queries WHERE name = 'minutes') FROM minutes_out), $sent, 60), "$what: and counted, or late");
	return;
}

produce(20000, 1);
arrives('backlog');
is($node->safe_psql('postgres', "SELECT count(*), count(DISTINCT usename), max(usename) FROM pg_stat_activity WHERE pid IN ($tasks)"), '5|1|anna',
	'two tasks and three, of the owner');
is($node->safe_psql('postgres', q(SELECT count(*) FROM ((SELECT minute, card, n, total FROM minutes_out EXCEPT
	SELECT stream.tumble(ts, '1 minute'), card, count(*), sum(amount) FROM events GROUP BY 1, 2)) x)), '0', 'what the groups hold is what the SELECT gives by hand');
is($node->safe_psql('postgres', q(SELECT count(*) FROM (SELECT kafka_offset < lag(kafka_offset) OVER (PARTITION BY kafka_partition ORDER BY ctid) AS back FROM rows_out) x WHERE back)),
	'0', 'rows of a partition keep their order');

# What cannot be read is kept by whoever may write.
$broker->send_value('events', $_, '{"id": "no number"}') for 0 .. 4;
ok(wait_for_sql($node, q(SELECT query, count(*), count(DISTINCT position), min(raw::text) FROM stream.dead_letters GROUP BY 1 ORDER BY 1),
	join("\n", map { "$_|5|5|\\x" . unpack('H*', '{"id": "no number"}') } qw(minutes rows))), 'bad messages are dead letters, with their place and their bytes');
is($node->safe_psql('postgres', 'SELECT name, rows_bad FROM stream.queries ORDER BY 1'), "minutes|5\nrows|5", 'and counted once');

# A task that is told to go, in the flow: the batch comes again, with other tasks.
for my $round (1 .. 4)
{
	$broker->ask("cards events 4000 8000 2$round");
	$sent += 8000;
	$node->safe_psql('postgres', "SELECT pg_terminate_backend(pid) FROM ($tasks) x ORDER BY random() LIMIT 1");
	$broker->cards_done(8000);
	arrives("pg_terminate_backend, round $round");
}
ok(wait_for_sql($node, "SELECT count(*) FROM ($tasks) x", 5), 'there are as many as before');

# kill -9: the server starts again, and so do they.
$broker->ask('cards events 4000 8000 31');
$sent += 8000;
kill 'KILL', (split /\n/, $node->safe_psql('postgres', $tasks))[0];
$broker->cards_done(8000);
arrives('kill -9');

# A worker that goes takes them along, whatever makes it go.
ok(wait_for_sql($node, "SELECT count(*) FROM ($tasks) x", 5), 'all are there');
my @pids = split /\n/, $node->safe_psql('postgres', $tasks);
$node->safe_psql('postgres', q(SELECT pg_terminate_backend(pid) FROM stream.queries));
ok(process_gone($_), 'a task whose worker has gone goes') for @pids;
produce(3000, 4);
arrives('new workers');
@pids = split /\n/, $node->safe_psql('postgres', $tasks);
$node->safe_psql('postgres', q(SELECT stream.stop_query(name) FROM stream.queries));
ok(process_gone($_), 'and one whose query is stopped') for @pids;

# Whoever wants a table for himself waits for the batch, and its tasks do not wait for him.
$node->safe_psql('postgres', q(
	CREATE TABLE shop (k int, city text);
	INSERT INTO shop SELECT i, 'city' || i % 3 FROM generate_series(0, 9) i;
	CREATE TABLE sale (k int, v int);
	SELECT stream.create_source('sales', 'table', options => '{"table": "sale"}');
	SELECT stream.create_query('cities', 'SELECT city, count(*) AS n, sum(v) AS s FROM sales JOIN shop USING (k) GROUP BY city', stream.to_table('cities_out'), output_mode => 'update',
		options => '{"parallelism": 2}');
	INSERT INTO sale VALUES (0, 0)));
ok(wait_for_sql($node, 'SELECT sum(n) FROM cities_out', '1', 60), 'the query runs');
$node->safe_psql('postgres', q(
	DO $$
	DECLARE
		seen bigint;
	BEGIN
		FOR i IN 1 .. 150 LOOP
			INSERT INTO sale SELECT j % 10, j FROM generate_series(1, 10) j;
			COMMIT;
			LOCK TABLE shop, sale IN ACCESS EXCLUSIVE MODE;
			COMMIT;
			CONTINUE WHEN i % 15 > 0;
			seen := (SELECT last_batch_id FROM stream.queries WHERE name = 'cities');
			WHILE (SELECT sum(n) FROM cities_out) < 1 + 10 * i AND seen = (SELECT last_batch_id FROM stream.queries WHERE name = 'cities') LOOP
				PERFORM pg_sleep(0.001);
			END LOOP;
		END LOOP;
	END $$));
ok(wait_for_sql($node, 'SELECT sum(n), sum(s) FROM cities_out', '1501|8250', 60), 'tables are locked and let go while tasks read them');
cmp_ok($node->safe_psql('postgres', q(SELECT last_batch_id FROM stream.queries WHERE name = 'cities')), '>', 5, 'batch by batch');
$node->safe_psql('postgres', q(SELECT stream.stop_query('cities')));

# Another number of tasks over the same state.
$node->safe_psql('postgres', q(SELECT stream.alter_query('minutes', options => '{"parallelism": 2, "max_retries": 1000}'); SELECT stream.start_query('minutes'); SELECT stream.start_query('rows')), @$anna);
produce(3000, 5);
arrives('fewer tasks');

# No room for tasks but one: the queries go on with what there is. The server's own takes one, the launcher, the supervisor, each query.
$node->append_conf('postgresql.conf', 'max_worker_processes = 6');
$node->restart;
produce(3000, 6);
arrives('hardly any room');
cmp_ok($node->safe_psql('postgres', "SELECT count(*) FROM ($tasks) x"), '<=', 1, 'where there is room for one task');
unlike(slurp_file($node->logfile), qr/PANIC|TRAP|ended unexpectedly.*\n.*ended unexpectedly.*\n.*ended unexpectedly/, 'nothing worse in the log');
$node->stop;
done_testing();
