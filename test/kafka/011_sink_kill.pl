# Workers with Kafka sinks die of SIGKILL at every step of a batch while rows keep coming, and the broker goes away. Read with read_committed: transactional,
# every row is there once; otherwise none is lost, and what is there twice is there under the same batch id.
use strict;
use warnings FATAL => 'all';
use StreamBroker;
use StreamKill;
use StreamNode;
use Test::More;

my $kills = kills_wanted(12);
my $node = node_to_kill('wal_level = minimal', 'max_wal_senders = 0');
my $broker = StreamBroker->real;
my $server = $broker->bootstrap;
$broker->ask('create once 2');
$broker->ask('create least 2');
$node->safe_psql('postgres', <<"SQL");
CREATE SERVER k FOREIGN DATA WRAPPER stream_kafka OPTIONS ("bootstrap.servers" '$server');
CREATE TABLE t (id bigint GENERATED ALWAYS AS IDENTITY, k int);
SELECT stream.create_source('s', 'table', options => '{"table": "t"}');
SELECT stream.create_source('once', 'kafka', 'id bigint, kafka_headers jsonb', '{"server": "k", "topic": "once"}');
SELECT stream.create_source('least', 'kafka', 'id bigint, kafka_headers jsonb', '{"server": "k", "topic": "least"}');
SELECT stream.create_query('once', 'SELECT k AS key, id FROM s', stream.to_kafka('once', '{"server": "k", "transactional": true}'),
	options => '{"max_rows_per_batch": 30, "max_retries": 1000000}');
SELECT stream.create_query('least', 'SELECT k AS key, id FROM s', stream.to_kafka('least', '{"server": "k"}'),
	options => '{"max_rows_per_batch": 30, "max_retries": 1000000}');
SQL

sub insert { return try_psql("INSERT INTO t (k) SELECT i % 5 FROM generate_series(1, $_[0]) i"); }

sub all_there
{
	my ($what) = @_;
	drained("$what: ", qw(once least));
	is($node->safe_psql('postgres', 'SELECT (SELECT count(*) FROM once), (SELECT count(DISTINCT id) FROM once), (SELECT count(DISTINCT id) FROM least)'),
		join('|', ($node->safe_psql('postgres', 'SELECT count(*) FROM t')) x 3), "$what: none lost, in transactions none twice");
	is($node->safe_psql('postgres', 'SELECT count(DISTINCT id), count(DISTINCT (id, kafka_headers)) FROM least') =~ /^(\d+)\|\1$/ ? 1 : 0, 1,
		"$what: what was sent again was sent by the same batch");
}

insert(100);
all_there('at first');

my $died = kill_workers($kills, [qw(planned logged executed acknowledged sunk committed)], sub { insert(1 + int(rand(60))) });
wait_for(sub { insert(10) }, 60);
all_there('after the kills');

# Killed from outside, at any moment.
for my $round (1 .. 3)
{
	my $pid;
	wait_for(sub { $pid = eval { worker_pid($node, 'once') } }, 60);
	insert(300);
	kill 'KILL', $pid;
	wait_for(sub { crashes() > $died + $round - 1 && try_psql('SELECT 1') }, 60);
}
wait_for(sub { insert(10) }, 60);
all_there('after kills from outside');

# No broker: the batch waits for it a bounded time and comes again; nobody else is held up for longer.
$broker->down('kill');
insert(50);
ok(wait_for_sql($node, "SELECT bool_and(status = 'restarting') FROM stream.queries", 't', 60), 'without a broker the queries try again');
is($node->safe_psql('postgres', "SELECT bool_and(sqlstate LIKE '08%') FROM stream.query_run"), 't', 'because it cannot be reached');
like($node->safe_psql('postgres', "SELECT error FROM stream.queries WHERE name = 'least'"), qr/the Kafka sink of query "least" could not write to topic "least"/, 'which they say');
$broker->up;
all_there('after the broker came back');

# A stop while a Kafka transaction is open: readers are not left waiting for it to time out.
$node->safe_psql('postgres', q(SELECT stream.stop_query('least')));
set_failpoint('acknowledged:1:sleep');
insert(10);
$node->poll_query_until('postgres', "SELECT is_trigger_active FROM stream.queries WHERE name = 'once'");
$node->safe_psql('postgres', q(SELECT stream.stop_query('once')));
my $committed = $node->safe_psql('postgres', 'SELECT count(*) FROM once');
$broker->ask('begin other');
$broker->send_value('once', 0, '{"id": -1}');
$broker->send_value('once', 1, '{"id": -2}');
$broker->ask('commit');
is($node->safe_psql('postgres', 'SELECT count(*) FROM once'), $committed + 2, 'a stopped query leaves no open transaction behind');

$node->stop;
done_testing();
