# A worker dies of SIGKILL at every step of a batch, over and over, while a table grows: nothing is lost, nothing comes twice, and the state is what a
# plain SELECT over the input says.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::Bin/../lib";
use StreamKill;
use Test::More;

my $kills = kills_wanted(25);
my $node = node_to_kill('wal_level = minimal', 'max_wal_senders = 0');
$node->safe_psql('postgres', q{
	CREATE TABLE event_t (id bigint GENERATED ALWAYS AS IDENTITY, store int, amount numeric, at timestamptz);
	SELECT stream.create_source('event', 'table', options => '{"table": "event_t"}', event_time => 'at', watermark_delay => '1 hour')});
ledger_queries();

my $clock = 0;
kill_workers($kills, [qw(triggered planned logged executed sunk committed)], sub {
	my $rows = 1 + int(rand(30));
	$clock += int(rand(20));
	try_psql("INSERT INTO event_t (store, amount, at) SELECT i % 7, (i * 7919 % 1000) / 10.0, timestamptz '2026-03-01' + $clock * interval '1 second' "
		  . "- random() * interval '50 seconds' FROM generate_series(1, $rows) i");
});
wait_psql("INSERT INTO event_t (store, amount, at) VALUES (-1, 0, '2026-06-01')");
ledger_count();
done_testing();
