# Kafka sources in workers, against the embedded broker: woken by data, patient with a broker that is away, exact over kill -9.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use StreamBroker;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->append_conf('postgresql.conf', "restart_after_crash = on\n");
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION stream_ext');

my $broker = StreamBroker->new(topics => ['events:4']);
my $server = $broker->bootstrap;
$node->safe_psql('postgres', qq(
	CREATE SERVER k FOREIGN DATA WRAPPER stream_kafka OPTIONS ("bootstrap.servers" '$server');
	SELECT stream.create_source('events', 'kafka', 'id bigint, card text, amount numeric, ts timestamptz, kafka_partition int, kafka_offset bigint',
		'{"server": "k", "topic": "events", "starting_offsets": "earliest"}', event_time => 'ts', watermark_delay => '1 minute');
	SELECT stream.create_query('rows', 'SELECT id, kafka_partition, kafka_offset FROM events', stream.to_table('rows_out'));
	SELECT stream.create_query('minutes', 'SELECT stream.tumble(ts, ''1 minute'') AS minute, count(*) AS n, sum(amount) AS total FROM events GROUP BY 1',
		stream.to_table('minutes_out'), output_mode => 'update');
));

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
	ok($node->poll_query_until('postgres', "SELECT count(*) = $sent FROM rows_out"), "$what: every message is there");
	is($node->safe_psql('postgres', 'SELECT count(DISTINCT (kafka_partition, kafka_offset)), count(*) FROM rows_out'), "$sent|$sent", "$what: once")
		or diag("not read:\n" . $node->safe_psql('postgres', 'SELECT kafka_partition, kafka_offset FROM events EXCEPT SELECT kafka_partition, kafka_offset FROM rows_out ORDER BY 1, 2 LIMIT 20'));
	return;
}

sub worker
{
	my ($name) = @_;
	$node->poll_query_until('postgres', "SELECT pid IS NOT NULL FROM stream.queries WHERE name = '$name'");
	return $node->safe_psql('postgres', "SELECT pid FROM stream.queries WHERE name = '$name'");
}

produce(20000, 1);
arrives('backlog');

# librdkafka's threads take no signals: they belong to the process.
my $pid = worker('rows');
my $taking = 0;
for my $status (glob("/proc/$pid/task/*/status"))
{
	next if $status =~ m{/$pid/status$};
	my ($blocked) = PostgreSQL::Test::Utils::slurp_file($status) =~ /^SigBlk:\s*([0-9a-f]+)/m;
	# HUP INT USR1 USR2 ALRM TERM
	$taking++ unless (hex($blocked) & 0x6a03) == 0x6a03;
}
is($taking, 0, 'no thread beside the process takes signals');

# A broker that is away: back-off, and on from where it was.
$broker->ask('down');
ok($node->poll_query_until('postgres', "SELECT bool_and(status = 'restarting') FROM stream.queries"), 'the queries try again while the broker is away');
is($node->safe_psql('postgres', q(SELECT DISTINCT left(error, 54) FROM stream.queries WHERE name = 'rows')),
	'source public.events gets no answer from its Kafka bro', 'and say why');
$broker->ask('up');
produce(5000, 2);
arrives('after the broker came back');

# kill -9 in full flow; the same ranges are read again.
for my $round (1 .. 2)
{
	my $victim = worker($round == 1 ? 'rows' : 'minutes');
	$broker->ask("cards events 4000 8000 1" . $round);
	$sent += 8000;
	ok($node->poll_query_until('postgres', "SELECT count(*) > $sent - 6000 FROM rows_out"), 'in the middle of it');
	kill 'KILL', $victim;
	$broker->cards_done(8000);
	arrives("kill -9, round $round");
}
ok($node->poll_query_until('postgres', "SELECT sum(n) + (SELECT rows_late FROM stream.queries WHERE name = 'minutes') = $sent FROM minutes_out"),
	'the aggregate counts every message, or as late');

# Waiting for a running query means: what was acknowledged before the call is in the target after it.
my $seen = 0;
for my $round (1 .. 20)
{
	$broker->send_value('events', $round % 4, qq({"id":$round}));
	$sent++;
	$seen += $node->safe_psql('postgres', "CALL stream.process_all_available('rows'); SELECT count(*) = $sent FROM rows_out") eq 't';
}
is($seen, 20, 'process_all_available waits for what is there');

# What the query wrote is what the SELECT gives by hand.
is($node->safe_psql('postgres', 'SELECT count(*) FROM ((TABLE rows_ids EXCEPT TABLE rows_by_hand) UNION ALL (TABLE rows_by_hand EXCEPT TABLE rows_ids)) d'), '0',
	'streamed and by hand agree')
	if $node->safe_psql('postgres', 'CREATE VIEW rows_ids AS SELECT id, kafka_partition, kafka_offset FROM rows_out;
		CREATE VIEW rows_by_hand AS SELECT id, kafka_partition, kafka_offset FROM events') eq '';

# No data: no batches, and a worker that does nothing.
my $batches = $node->safe_psql('postgres', 'SELECT count(*), sum(last_batch_id) FROM stream.queries');
my $cpu = cpu_of($pid = worker('rows'));
$node->safe_psql('postgres', 'SELECT pg_sleep(2)');
is($node->safe_psql('postgres', 'SELECT count(*), sum(last_batch_id) FROM stream.queries'), $batches, 'no data, no batches');
cmp_ok(cpu_of($pid) - $cpu, '<', 0.4, 'and next to no work');

# A topic that does not exist: said when the query is made, shown while it waits, read when it is there.
$broker->ask('create late 1');
$broker->send_value('late', 0, '{"id":1}');
$broker->ask('hide late');
$node->safe_psql('postgres', q(SELECT stream.create_source('late', 'kafka', 'id int', '{"server": "k", "topic": "late"}')));
my ($ret, $out, $err) = $node->psql('postgres', q(SELECT stream.create_query('late', 'SELECT id FROM late', stream.to_table('late_out'))));
like($err, qr/WARNING:  source public\.late is to read topic "late", which does not exist\nDETAIL:  The query waits for it\.\nHINT:  .*stream\.alter_source/,
	'a topic that is not there yet is warned of');
ok($node->poll_query_until('postgres', q(SELECT status = 'restarting' AND failures > 0 AND sqlstate = 'HV00R' AND error LIKE 'topic "late" of source public.late does not exist%'
	AND message = 'Waiting to try again: topic "late" of source public.late does not exist' FROM stream.queries WHERE name = 'late')), 'its query waits, and says for what');
$broker->ask('show late');
ok($node->poll_query_until('postgres', 'SELECT count(*) = 1 FROM late_out'), 'and reads it from its beginning when it is there');
is($node->safe_psql('postgres', q(SELECT status, failures, error IS NULL FROM stream.queries WHERE name = 'late')), 'running|0|t', 'as if nothing had been');

# None that matches a pattern: the same. A broker that does not answer: no word of topics.
$node->safe_psql('postgres', q(
	SELECT stream.create_source('shops', 'kafka', 'id int', '{"server": "k", "topic_pattern": "shop.*"}');
	SELECT stream.create_source('silent', 'kafka', 'id int', '{"bootstrap.servers": "127.0.0.1:1", "topic": "late"}')));
($ret, $out, $err) = $node->psql('postgres', q(SELECT stream.create_query('shops', 'SELECT id FROM shops', stream.to_table('shops_out'), start => false)));
like($err, qr/WARNING:  source public\.shops is to read a topic that matches "shop\.\*", which does not exist\nDETAIL:  The query waits for it\./, 'a pattern without topics as well');
($ret, $out, $err) = $node->psql('postgres', q(SELECT stream.create_query('silent', 'SELECT id FROM silent', stream.to_table('silent_out'), start => false)));
is("$ret $err", '0 ', 'brokers that are away say nothing');

sub cpu_of
{
	my ($process) = @_;
	my @fields = split / /, PostgreSQL::Test::Utils::slurp_file("/proc/$process/stat");
	return ($fields[13] + $fields[14]) / 100;
}

$node->stop;
done_testing();
