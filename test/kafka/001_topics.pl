# Against Apache Kafka itself, what the embedded broker cannot do: transactions, timestamps, topics that grow, shrink, lose their records.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use StreamBroker;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION stream_ext');

my $broker = StreamBroker->real;
my $server = $broker->bootstrap;
$node->safe_psql('postgres', qq(CREATE SERVER k FOREIGN DATA WRAPPER stream_kafka OPTIONS ("bootstrap.servers" '$server')));

sub source
{
	my ($name, $partitions, $options) = @_;
	$broker->ask("create $name $partitions");
	$options = $options ? ", $options" : '';
	$node->safe_psql('postgres',
		qq(SELECT stream.create_source('$name', 'kafka', 'id int, kafka_offset bigint', '{"server": "k", "topic": "$name", "starting_offsets": "earliest"$options}')));
	return;
}

sub query
{
	my ($name, $more, $from) = @_;
	$more ||= '';
	$from ||= $name;
	$node->safe_psql('postgres', "SELECT stream.create_query('$name', 'SELECT id, kafka_offset FROM $from', stream.to_table('${name}_out'), start => false$more)");
	return;
}

sub drain { my ($name) = @_; return $node->psql('postgres', "CALL stream.process_all_available('$name')"); }

sub is_sql
{
	my ($sql, $expected, $what) = @_;
	is($node->safe_psql('postgres', $sql), $expected, $what);
	return;
}

sub position_of
{
	my ($name) = @_;
	return $node->safe_psql('postgres', qq(
		SELECT offsets -> 'public.$name' ->> '0' FROM stream.offset_log l JOIN stream.queries q ON q.id = l.query_id
		WHERE q.name = '$name' ORDER BY batch_id DESC LIMIT 1));
}

sub values_between { my ($from, $to) = @_; return map { qq({"id":$_}) } $from .. $to; }

# Transactions. Offsets: 0, 1 committed, 2 their marker, 3, 4 aborted, 5 its marker, 6, 7 still open.
source('txn', 1);
query('txn');
$broker->ask('begin a');
$broker->send_value('txn', 0, values_between(1, 2));
$broker->ask('commit');
$broker->ask('begin a');
$broker->send_value('txn', 0, values_between(101, 102));
$broker->ask('abort');
$broker->ask('begin b');
$broker->send_value('txn', 0, values_between(3, 4));
my $began = time;
drain('txn');
cmp_ok(time - $began, '<', 15, 'an open transaction at the tail holds nobody up');
is_sql('SELECT array_agg(id ORDER BY id) FROM txn_out', '{1,2}', 'only committed messages');
is(position_of('txn'), '6', 'position is the last stable offset');
$broker->ask('commit');
drain('txn');
is_sql('SELECT array_agg(id ORDER BY id) FROM txn_out', '{1,2,3,4}', 'and the rest once it commits');
is_sql('SELECT array_agg(id ORDER BY id) FROM txn', '{1,2,3,4}', 'by hand the same');
$node->safe_psql('postgres', q(SELECT stream.alter_source('txn', '{"isolation_level": "read_uncommitted"}')));
is_sql('SELECT count(*) FROM txn', '6', 'read_uncommitted sees the aborted ones');

# Batches cut into ranges that hold nothing but holes.
source('holes', 1);
query('holes', q(, options => '{"max_rows_per_batch": 2}'));
for my $id (1 .. 4)
{
	$broker->ask('begin h');
	$broker->send_value('holes', 0, values_between(100, 103));
	$broker->ask('abort');
	$broker->send_value('holes', 0, qq({"id":$id}));
}
$broker->ask('begin h');
$broker->send_value('holes', 0, values_between(100, 104));
$broker->ask('abort');
drain('holes');
is_sql('SELECT array_agg(id ORDER BY id) FROM holes_out', '{1,2,3,4}', 'holes are neither loss nor an obstacle');
is(position_of('holes'), '24', 'holes at the tail wait for the next message');
is_sql(q(SELECT count(*) FROM stream.dead_letters WHERE query = 'holes'), '0', 'no loss event');

# A start by time.
$broker->ask('create timed 1');
$broker->ask('send timed 0 ts=1772355600000 value={"id":9}');
$broker->ask('send timed 0 ts=1772362800000 value={"id":11}');
for my $case (['2026-03-01 10:00+00', '{11}'], ['2026-03-01 11:00+00', '{11}'], ['2026-03-01 12:00+00', ''], ['2026-03-01 08:00+00', '{9,11}'])
{
	my ($at, $expected) = @$case;
	my $name = 'timed_' . substr($at, 11, 2);
	$node->safe_psql('postgres',
		qq(SELECT stream.create_source('$name', 'kafka', 'id int, kafka_offset bigint', '{"server": "k", "topic": "timed", "starting_timestamp": "$at"}')));
	query($name);
	drain($name);
	is_sql("SELECT array_agg(id ORDER BY id) FROM ${name}_out", $expected, "start at $at");
}

# A partition more: read from its start.
source('grow', 1);
query('grow');
$broker->send_value('grow', 0, values_between(1, 2));
drain('grow');
$broker->ask('partitions grow 2');
$broker->send_value('grow', 1, values_between(3, 4));
drain('grow');
is_sql('SELECT array_agg(id ORDER BY id) FROM grow_out', '{1,2,3,4}', 'a new partition is read from its start');

# Retention took messages the query had not read.
source('gap', 1);
query('gap');
my $numbers = $node->basedir . '/numbers';
PostgreSQL::Test::Utils::append_to_file($numbers, join('', map { "$_\n" } values_between(0, 649)));
$broker->ask("produce gap 0 $numbers 500");
drain('gap');
$broker->ask("produce gap 0 $numbers 150");
$broker->ask('trim gap 0 600');
my ($ret, $out, $err) = drain('gap');
isnt($ret, 0, 'a gap is an error');
like($err, qr/100 messages \[500,600\) of topic "gap" partition 0 are gone/, 'which names what is gone');
is(position_of('gap'), '500', 'the position stays');
is_sql('SELECT count(*) FROM gap_out', '500', 'nothing was read');
$node->safe_psql('postgres', q(SELECT stream.alter_source('gap', '{"fail_on_data_loss": false}')));
drain('gap');
is_sql('SELECT count(*), min(kafka_offset), max(kafka_offset) FROM gap_out WHERE kafka_offset >= 500', '50|600|649', 'tolerated: the rest is read');
is_sql(q(SELECT reason, position - 'topic' - 'partition' FROM stream.dead_letters WHERE query = 'gap'),
	'lost|{"count": 100, "lost_to": 600, "lost_from": 500}', 'and the loss is kept');

# Records deleted between the log entry and the batch: the same range, the same error.
# A topic made again, shorter than our position.
source('again', 1);
query('again');
$broker->ask("produce again 0 $numbers 84");
drain('again');
$broker->ask('delete again');
wait_until_gone('again');
$broker->ask('create again 1');
$broker->send_value('again', 0, values_between(1, 31));
($ret, $out, $err) = drain('again');
isnt($ret, 0, 'a topic made again is an error');
like($err, qr/topic "again" partition 0 ends at offset 31, before the query's position 84/, 'which names both offsets');
is(position_of('again'), '84', 'the position stays');
$node->safe_psql('postgres', q(SELECT stream.alter_source('again', '{"fail_on_data_loss": false}')));
drain('again');
is_sql('SELECT count(*) FROM again_out', 84 + 31, 'tolerated: the new topic is read from its start, once');
is(position_of('again'), '31', 'the position is the new topic\'s');
is_sql(q(SELECT reason, position->>'lost_from', position->>'lost_to' FROM stream.dead_letters WHERE query = 'again'), 'lost|84|0', 'and the reset is kept');
$broker->send_value('again', 0, '{"id":32}');
drain('again');
is_sql('SELECT count(*) FROM again_out', 84 + 32, 'and it goes on');

# A topic made again, and longer than our position by now: told by the message that was read last.
source('longer', 2);
query('longer');
$broker->ask("produce longer 0 $numbers 50");
$broker->ask("produce longer 1 $numbers 20");
drain('longer');
$broker->ask('delete longer');
wait_until_gone('longer');
$broker->ask('create longer 2');
$broker->ask("produce longer 0 $numbers 100");
$broker->ask("produce longer 1 $numbers 60");
($ret, $out, $err) = drain('longer');
like($err, qr/topic "longer" is not the one the query has been reading/, 'a topic made again is known by its messages');
is(position_of('longer'), '50', 'the position stays');
$node->safe_psql('postgres', q(SELECT stream.alter_source('longer', '{"fail_on_data_loss": false}')));
drain('longer');
is_sql('SELECT count(*) FROM longer_out', 70 + 160, 'tolerated: all of the new topic is read, once');
is_sql(q(SELECT count(*), min(position->>'lost_from') FROM stream.dead_letters WHERE query = 'longer' AND reason = 'lost'), '2|20', 'and the resets are kept');
$broker->send_value('longer', 0, '{"id":1}');
drain('longer');
is_sql('SELECT count(*) FROM longer_out', 70 + 161, 'and it goes on');

# A topic that is gone.
source('gone', 1);
query('gone');
$broker->send_value('gone', 0, values_between(1, 2));
drain('gone');
$broker->ask('delete gone');
wait_until_gone('gone');
($ret, $out, $err) = drain('gone');
like($err, qr/topic "gone" of source public\.gone does not exist/, 'a deleted topic is said so');
$broker->ask("create part.$_ 1") for qw(a b);
$node->safe_psql('postgres',
	q(SELECT stream.create_source('parts', 'kafka', 'id int, kafka_offset bigint', '{"server": "k", "topic_pattern": "part.*", "starting_offsets": "earliest"}')));
query('parts');
$broker->send_value("part.$_", 0, '{"id":1}') for qw(a b);
drain('parts');
$broker->ask('delete part.a');
wait_until_gone('part.a');
($ret, $out, $err) = drain('parts');
like($err, qr/topic "part.a" of source public\.parts does not exist any more/, 'so is one that a pattern had found');
$node->safe_psql('postgres', q(SELECT stream.alter_source('parts', '{"fail_on_data_loss": false}')));
$broker->send_value('part.b', 0, '{"id":2}');
drain('parts');
is_sql('SELECT array_agg(id ORDER BY id) FROM parts_out', '{1,1,2}', 'tolerated: the others go on');
$node->safe_psql('postgres', q(SELECT stream.create_source('never', 'kafka', 'id int', '{"server": "k", "topic": "never"}')));
($ret, $out, $err) = $node->psql('postgres', 'SELECT * FROM never');
like($err, qr/topic "never" of source public\.never does not exist/, 'one that never was as well');

sub wait_until_gone
{
	my ($topic) = @_;
	for (1 .. 100)
	{
		return unless eval { $broker->ask("offsets $topic 0"); 1 };
		select(undef, undef, undef, 0.1);
	}
	die "topic $topic stays\n";
}

$node->stop;
done_testing();
