# A worker that is cancelled while it makes its plan anew goes on with a whole one: all sources, all stages.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::Bin/../lib";
use PostgreSQL::Test::Utils;
use StreamNode;
use Test::More;

my $node = new_node('main');
plan skip_all => 'needs a build with crash points (FAILPOINTS=1)' if ($node->psql('postgres', 'SHOW stream_ext.failpoints'))[0] != 0;
$node->safe_psql('postgres', q{
	CREATE TABLE a_t (id int);
	CREATE TABLE b_t (id int);
	SELECT stream.create_source('a', 'table', options => '{"table": "a_t"}');
	SELECT stream.create_source('b', 'table', options => '{"table": "b_t"}');
	SELECT stream.create_query('q', 'SELECT id FROM a UNION ALL SELECT id FROM b', stream.to_table('q_out'), start => false)});

# The setting comes when the worker has its first plan, and counts from then on: the next compile is stopped at its last source, or in its first stage.
my $rows = 0;
for my $point ('opening:2', 'staging:1')
{
	$node->safe_psql('postgres', "SELECT stream.start_query('q')");
	ok(status_is($node, 'q', 'running'), "$point: runs");
	$node->safe_psql('postgres', "CALL stream.process_all_available('q')");
	set_failpoints($node, "$point:sleep");
	$node->safe_psql('postgres', 'ALTER TABLE q_out SET (fillfactor = ' . (50 + $rows) . ')');
	$node->safe_psql('postgres', "INSERT INTO a_t SELECT generate_series($rows + 1, $rows + 5); INSERT INTO b_t SELECT generate_series($rows + 1, $rows + 5)");
	$rows += 5;
	ok(wait_for_sql($node, "SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity
		WHERE backend_type = 'stream_ext worker' AND state = 'active' AND query = 'batch' AND state_change < clock_timestamp() - interval '0.3 s'", '1'), 'cancelled where it stands');
	ok(wait_for_sql($node, 'SELECT count(*), count(DISTINCT id), max(id) FROM q_out', 2 * $rows . "|$rows|$rows"), 'rows of both sources, once');
	$node->safe_psql('postgres', "SELECT stream.stop_query('q')");
	set_failpoints($node, '');
}

$node->stop;
done_testing();
