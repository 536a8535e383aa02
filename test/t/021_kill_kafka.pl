# As 020_kill over a Kafka topic of three partitions, read by tasks: every message once, whatever a worker or a task dies of; the broker (embedded) knows
# nothing of positions.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::Bin/../lib";
use PostgreSQL::Test::Utils;
use StreamBroker;
use StreamKill;
use Test::More;
use Time::HiRes qw(usleep);

my $kills = kills_wanted(15);
my $node = node_to_kill('wal_level = minimal', 'max_wal_senders = 0', 'stream_ext.task_rows = 0');
my $broker = StreamBroker->new(topics => ['event:3']);
my $server = $broker->bootstrap;
$node->safe_psql('postgres', qq{
	CREATE SERVER k FOREIGN DATA WRAPPER stream_kafka OPTIONS ("bootstrap.servers" '$server');
	SELECT stream.create_source('event', 'kafka', 'id bigint, store int, amount numeric, at timestamptz',
		'{"server": "k", "topic": "event", "starting_offsets": "earliest"}', event_time => 'at', watermark_delay => '1 hour')});
ledger_queries(2);

my $file = PostgreSQL::Test::Utils::tempdir() . '/messages';
my ($sent, $clock) = (0, 1772323200);

sub produce
{
	my (@messages) = @_;
	open(my $out, '>', $file) or die "$file: $!\n";
	printf $out qq({"id": %d, "store": %d, "amount": %.1f, "at": "%s"}\n), ++$sent, @$_ for @messages;
	close($out);
	$broker->ask("produce event -1 $file");
	return;
}

sub at { my @t = gmtime(shift); return sprintf('%04d-%02d-%02dT%02d:%02d:%02dZ', $t[5] + 1900, $t[4] + 1, @t[ 3, 2, 1, 0 ]); }

kill_workers($kills, [qw(triggered planned logged executed sunk committing committed task)], sub {
	$clock += int(rand(20));
	produce(map { [ $_ % 7, ($_ * 7919 % 1000) / 10, at($clock - int(rand(50))) ] } 1 .. 1 + int(rand(30)));
	usleep(10_000);
});
# The last messages are in every partition.
produce(map { [ -1, 0, '2026-06-01T00:00:00Z' ] } 1 .. 3);
wait_psql('CREATE TABLE event_t AS SELECT id, store, amount, at FROM event');
is($node->safe_psql('postgres', 'SELECT count(*), count(DISTINCT id), min(id), max(id) FROM event_t'), "$sent|$sent|1|$sent", 'a read by hand gives what was sent');
ledger_count();
$node->stop;
done_testing();
