# Against Apache Kafka itself: the broker ends and comes back, workers and the postmaster are killed in the middle. A ledger counts: every
# message numbered, none lost, none twice.
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

my $broker = StreamBroker->real;
my $server = $broker->bootstrap;
$broker->ask('create ledger 3');
$node->safe_psql('postgres', qq(
	CREATE SERVER k FOREIGN DATA WRAPPER stream_kafka OPTIONS ("bootstrap.servers" '$server');
	SELECT stream.create_source('ledger', 'kafka', 'id int, kafka_partition int, kafka_offset bigint',
		'{"server": "k", "topic": "ledger", "starting_offsets": "earliest"}');
	SELECT stream.create_query('rows', 'SELECT id, kafka_partition, kafka_offset FROM ledger', stream.to_table('rows_out'));
	SELECT stream.create_query('sums', 'SELECT id % 10 AS k, count(*) AS n, sum(id) AS s FROM ledger GROUP BY 1', stream.to_table('sums_out'),
		output_mode => 'update');
));

my $sent = 0;

sub produce
{
	my ($count) = @_;
	my $path = $node->basedir . "/numbers$sent";
	PostgreSQL::Test::Utils::append_to_file($path, join('', map { qq({"id":$_}\n) } $sent .. $sent + $count - 1));
	$broker->ask("produce ledger -1 $path");
	$sent += $count;
	return;
}

sub arrives
{
	my ($what) = @_;
	ok($node->poll_query_until('postgres', "SELECT count(*) = $sent FROM rows_out"), "$what: every message is there");
	is($node->safe_psql('postgres', 'SELECT count(DISTINCT id), count(DISTINCT (kafka_partition, kafka_offset)), count(*) FROM rows_out'),
		"$sent|$sent|$sent", "$what: once");
	my $total = $sent * ($sent - 1) / 2;
	ok($node->poll_query_until('postgres', "SELECT sum(n) = $sent AND sum(s) = $total FROM sums_out"), "$what: sums agree");
	return;
}

sub worker
{
	my ($name) = @_;
	$node->poll_query_until('postgres', "SELECT pid IS NOT NULL FROM stream.queries WHERE name = '$name'");
	return $node->safe_psql('postgres', "SELECT pid FROM stream.queries WHERE name = '$name'");
}

produce(3000);
arrives('at first');

# The broker is gone for a while. Nobody holds a transaction meanwhile.
my $pid = worker('rows');
$broker->down('kill');
ok($node->poll_query_until('postgres', "SELECT bool_and(status = 'restarting') FROM stream.queries"), 'the queries say that they try again');
like($node->safe_psql('postgres', "SELECT error FROM stream.queries WHERE name = 'rows'"), qr/gets no answer from its Kafka brokers/, 'and why');
is($node->safe_psql('postgres', "SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE '%stream%' AND state LIKE '%transaction%' AND now() - xact_start > '6 s'"),
	'0', 'no open transaction while the broker is away');
$broker->up;
produce(3000);
arrives('after the broker came back');
$broker->down('stop');
$broker->up;
produce(1000);
arrives('after an orderly restart of the broker');

# A partition more, while the queries run.
$broker->ask('partitions ledger 4');
produce(4000);
arrives('with a new partition');
is($node->safe_psql('postgres', 'SELECT count(*) > 0 FROM rows_out WHERE kafka_partition = 3'), 't', 'the new partition is read');

# Workers killed in full flow.
for my $round (1 .. 3)
{
	my $victim = worker($round % 2 ? 'rows' : 'sums');
	produce(5000);
	kill 'KILL', $victim;
	$node->poll_query_until('postgres', 'SELECT true');
	arrives("kill -9 of a worker, round $round");
}

# The postmaster killed: workers notice, also inside librdkafka.
my $other = worker('sums');
$pid = worker('rows');
produce(5000);
$node->kill9;
my $left = 50;
while (--$left > 0 && (kill(0, $pid) || kill(0, $other))) { select(undef, undef, undef, 0.1); }
cmp_ok($left, '>', 20, 'workers of a dead postmaster end soon, busy ones too'); # idle ones within a second; test machines are slow
$node->start;
produce(1000);
arrives('kill -9 of the postmaster');
is($node->safe_psql('postgres', 'SELECT count(*) FROM stream.dead_letters'), '0', 'nothing was put aside');

$node->stop;
done_testing();
