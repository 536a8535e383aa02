# After an outage: a topic of more than is fetched ahead, read by a worker that stays small; every message once, and the next ones at once.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::Bin/../lib";
use PostgreSQL::Test::Utils;
use StreamBroker;
use StreamNode;
use Test::More;

my $node = new_node('main', 'shared_buffers = 64MB');
my $broker = StreamBroker->real;
my $server = $broker->bootstrap;
$broker->ask('create pile 3');
$node->safe_psql('postgres', qq(
	CREATE SERVER k FOREIGN DATA WRAPPER stream_kafka OPTIONS ("bootstrap.servers" '$server');
	SELECT stream.create_source('pile', 'kafka', 'id bigint, card text, amount numeric, ts timestamptz', '{"server": "k", "topic": "pile", "starting_offsets": "earliest"}',
		event_time => 'ts', watermark_delay => '1 minute');
	SELECT stream.create_query('count', 'SELECT card, count(*) AS n, sum(amount) AS total FROM pile GROUP BY card', stream.to_table('count_out'), output_mode => 'update',
		options => '{"max_rows_per_batch": 50000}')));
$broker->cards('pile', 1000, 1, 1767225600000);
ok(wait_for_sql($node, 'SELECT sum(n) FROM count_out', '1000', 60), 'a query runs');
$node->safe_psql('postgres', q{SELECT stream.stop_query('count')});

# Twice what is fetched ahead at most.
my $messages = 400_000;
my $padding = 'x' x 250;
my $file = PostgreSQL::Test::Utils::tempdir() . '/messages';
open(my $out, '>', $file) or die "$file: $!\n";
printf $out qq({"id": %d, "card": "pad", "amount": 1, "ts": "2026-01-02T00:00:00Z", "pad": "%s"}\n), $_, $padding for 1 .. $messages;
close($out);
$broker->ask("produce pile -1 $file");
$node->safe_psql('postgres', q{SELECT stream.start_query('count')});
my ($peak, $pid) = (0, undef);
ok(wait_for(
	sub {
		$pid ||= eval { worker_pid($node, 'count') };
		my $status = $pid ? slurp_file("/proc/$pid/status") : '';
		my ($now) = $status =~ /^RssAnon:\s+(\d+)/m;
		$peak = $now if ($now // 0) > $peak;
		return $node->safe_psql('postgres', q{SELECT n FROM count_out WHERE card = 'pad'}) eq $messages;
	}, 120), 'it catches up');
is($node->safe_psql('postgres', q{SELECT n, total FROM count_out WHERE card = 'pad'}), "$messages|$messages", 'every message once');
cmp_ok($node->safe_psql('postgres', 'SELECT max(num_input_rows) FROM stream.progress'), '<=', 50000, 'in batches as large as they may be');
cmp_ok($peak, '<', 160_000, "in bounded memory (at most $peak kB)");
$broker->send_value('pile', 0, '{"id": 0, "card": "after", "amount": 2, "ts": "2026-01-03T00:00:00Z"}');
ok(wait_for_sql($node, q{SELECT total FROM count_out WHERE card = 'after'}, '2'), 'and goes on');
$node->stop;
done_testing();
