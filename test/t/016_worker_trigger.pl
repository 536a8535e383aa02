# When batches start: ticks at multiples of the interval, overruns at once and unqueued, delays of min_rows_per_batch, retries before the tick.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::Bin/../lib";
use StreamNode;
use Test::More;

my $node = new_node('main');
table_source($node, 'input', 'v int');
my $times = "SELECT string_agg((extract(epoch FROM batch_time) * 1000)::bigint::text, ' ' ORDER BY batch_id) FROM stream.offset_log JOIN stream.queries ON id = query_id WHERE name = '%s'";

sub batch_times { return split / /, $node->safe_psql('postgres', sprintf($times, shift)) }

# ticks
$node->safe_psql('postgres', 'INSERT INTO input_t VALUES (0)');
create_query($node, 'tick', 'SELECT v FROM input', "trigger => stream.processing_time('500 milliseconds')");
ok(wait_for_sql($node, 'SELECT count(*) FROM tick_out', '1'), 'the first trigger fires at once');
for my $i (1 .. 6)
{
	$node->safe_psql('postgres', "INSERT INTO input_t VALUES ($i)");
	ok(wait_for_sql($node, 'SELECT count(*) FROM tick_out', 1 + $i), "tick $i");
}
my @t = batch_times('tick');
shift @t;
cmp_ok(scalar(grep { $_ % 500 <= 100 } @t), '>=', 4, 'at multiples of the interval, unless the machine was busy') or diag("@t");
$node->safe_psql('postgres', "SELECT stream.drop_query('tick')");

# an overrun starts at once; missed ticks do not queue
create_query($node, 'slow', 'SELECT v, pg_sleep(0.6) IS NULL AS s FROM input', q{trigger => stream.processing_time('500 milliseconds'), options => '{"max_rows_per_batch": 1}'});
ok(wait_for_sql($node, 'SELECT count(*) FROM slow_out', '7'), 'seven batches of 0.6 s');
@t = batch_times('slow');
my @apart = sort { $a <=> $b } map { $t[$_] - $t[ $_ - 1 ] } 1 .. $#t;
cmp_ok($apart[0], '>=', 590, 'one after the other') or diag("@t");
cmp_ok($apart[2], '<', 900, 'without waiting for the next tick') or diag("@t");
$node->safe_psql('postgres', 'SELECT pg_sleep(0.7)');
is($node->safe_psql('postgres', "SELECT count(*) FROM stream.progress WHERE query = 'slow'"), '7', 'no batch without data');
$node->safe_psql('postgres', "SELECT stream.drop_query('slow')");

# min_rows_per_batch waits for company, max_trigger_delay ends the wait
create_query($node, 'few', 'SELECT v FROM input', q{options => '{"min_rows_per_batch": 10, "max_trigger_delay": "6 seconds"}'});
ok(wait_for_sql($node, 'SELECT count(*) FROM few_out', '7'), 'the first batch always runs');
$node->safe_psql('postgres', 'INSERT INTO input_t VALUES (10)');
$node->safe_psql('postgres', 'SELECT pg_sleep(0.5)');
is($node->safe_psql('postgres', 'SELECT count(*) FROM few_out'), '7', 'one row waits');
ok(wait_for_sql($node, 'SELECT count(*) FROM few_out', '8', 20), 'but not longer than max_trigger_delay');
$node->safe_psql('postgres', 'INSERT INTO input_t SELECT 100 FROM generate_series(1, 10)');
ok(wait_for_sql($node, 'SELECT count(*) FROM few_out', '18', 4), 'enough rows do not wait');
$node->safe_psql('postgres', "SELECT stream.drop_query('few')");

# a retry does not wait for the tick
$node->safe_psql('postgres', q{
	CREATE SEQUENCE attempts;
	CREATE FUNCTION third_time_lucky(v int) RETURNS int LANGUAGE plpgsql AS $f$
	BEGIN IF nextval('attempts') < 3 THEN RAISE EXCEPTION 'not yet'; END IF; RETURN v; END $f$});
create_query($node, 'hourly', 'SELECT third_time_lucky(v) AS v FROM input', "trigger => stream.processing_time('1 hour')");
ok(wait_for_sql($node, 'SELECT count(*) > 0 FROM hourly_out', 't', 10), 'a failed batch of an hourly query is tried again soon');
$node->stop;
done_testing();
