# Partitions of a topic are looked at one after the other. What came to the first after it was looked at, and was sent before what the last one gave, is not late.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::Bin/../lib";
use PostgreSQL::Test::Utils;
use StreamBroker;
use StreamNode;
use Test::More;

my $node = new_node('main');
plan skip_all => 'needs a build with crash points (FAILPOINTS=1)' if ($node->psql('postgres', 'SHOW stream_ext.failpoints'))[0] != 0;
my $broker = StreamBroker->new(topics => ['t:2']);
my $server = $broker->bootstrap;
$node->safe_psql('postgres', qq{
	CREATE SERVER k FOREIGN DATA WRAPPER stream_kafka OPTIONS ("bootstrap.servers" '$server');
	SELECT stream.create_source('t', 'kafka', 'at timestamptz', '{"server": "k", "topic": "t", "starting_offsets": "earliest"}', event_time => 'at', watermark_delay => '1 minute')});
create_query($node, 'q', "SELECT stream.tumble(at, '10 minutes') AS w, count(*) AS n FROM t GROUP BY 1");
ok(status_is($node, 'q', 'running'), 'it runs');

sub send_times
{
	my ($partition, @times) = @_;
	$broker->send_value('t', $partition, map { qq({"at": "$_"}) } @times);
}

# The first batch after that one: how many rows, up to which time.
sub next_batch
{
	return $node->safe_psql('postgres', "SELECT num_input_rows, progress->'eventTime'->>'max' FROM stream.progress WHERE num_input_rows > 0 AND batch_id > $_[0] ORDER BY batch_id LIMIT 1");
}

# What has been sent need not have arrived when the worker goes on: again, until it had.
my $holder = $node->background_psql('postgres');
my ($rows, $met) = (0, 0);
for my $day (10 .. 29)
{
	send_times($_, "2026-03-${day}T09:00:00Z") for 0, 1;
	$rows += 2;
	ok(wait_for_sql($node, 'SELECT sum(num_input_rows) FROM stream.progress', $rows), "day $day: all is read");
	my $last = $node->safe_psql('postgres', 'SELECT max(batch_id) FROM stream.progress');
	$holder->query_safe('SELECT pg_advisory_lock(7001)');
	set_failpoints($node, 'pulled:1:wait');
	send_times(1, "2026-03-${day}T10:00:00Z");
	ok(wait_for_sql($node, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted", '1'), 'it has looked at the first partition');
	send_times(0, "2026-03-${day}T10:05:00Z");
	send_times(1, "2026-03-${day}T10:11:30Z");
	set_failpoints($node, '');    # while it waits: in the meantime what was sent arrives
	$holder->query_safe('SELECT pg_advisory_unlock(7001)');
	$rows += 3;
	ok(wait_for_sql($node, 'SELECT sum(num_input_rows) FROM stream.progress', $rows), 'the rest is read');
	$met = 1 if next_batch($last) =~ /^2\|.*T10:11:30/;
	last if $met;
}
ok($met, 'a batch took what came later, and left what came before');
like($node->safe_psql('postgres', "SELECT progress->'eventTime'->>'watermark' FROM stream.progress WHERE progress->'eventTime'->>'min' LIKE '%T10:05:00%' ORDER BY batch_id DESC LIMIT 1"),
	qr/T08:59:00/, 'which held the watermark until it was read');
$holder->quit;
$node->stop;
done_testing();
