# Killed at each step of a batch, over and over: nothing lost, nothing twice, the state is what a plain SELECT gives.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::Bin/../lib";
use PostgreSQL::Test::Utils;
use StreamNode;
use Test::More;

my $node = new_node('main', 'restart_after_crash = on', 'fsync = on');
plan skip_all => 'needs a build with crash points (FAILPOINTS=1)' if ($node->psql('postgres', 'SHOW stream_ext.failpoints'))[0] != 0;

$node->safe_psql('postgres', q{
	CREATE ROLE app LOGIN;
	GRANT CREATE ON SCHEMA public TO app;
	GRANT USAGE ON FOREIGN SERVER stream_table TO app});
my @app = (extra_params => [ '-U', 'app' ]);
$node->safe_psql('postgres', q{
	CREATE TABLE input_t (id int, k int);
	SELECT stream.create_source('input', 'table', options => '{"table": "input_t"}');
	SELECT stream.create_query('etl', 'SELECT id FROM input', stream.to_table('etl_out'));
	SELECT stream.create_query('agg', 'SELECT k, count(*) AS n, sum(id) AS s FROM input GROUP BY k', stream.to_table('agg_out'), 'update')}, @app);
ok(status_is($node, $_, 'running'), "$_ runs") for ('etl', 'agg');

my $id = 0;
my @steps = ('triggered', 'planned', 'logged', 'executed', 'sunk', 'committing', 'committed');
for my $action ('error', 'kill9')
{
	for my $step (@steps)
	{
		my $log = -s $node->logfile;
		# Set while stopped, so that the first batch of each worker meets the point.
		$node->safe_psql('postgres', q{SELECT stream.stop_query('etl'); SELECT stream.stop_query('agg')}, @app);
		$node->safe_psql('postgres', "ALTER ROLE app SET stream_ext.failpoints = '$step:1:$action'");
		for (1 .. 3)
		{
			$node->safe_psql('postgres', "INSERT INTO input_t SELECT i, i % 7 FROM generate_series($id + 1, $id + 50) i", @app);
			$id += 50;
		}
		$node->psql('postgres', q{SELECT stream.start_query('etl'); SELECT stream.start_query('agg')}, @app);
		my $reached = $action eq 'kill9' ? qr/terminated by signal 9/ : qr/failpoint reached at step "$step"/;
		ok(wait_for(sub { slurp_file($node->logfile, $log) =~ $reached }), "$action at step $step");
		ok(wait_for(sub { ($node->psql('postgres', 'ALTER ROLE app RESET stream_ext.failpoints'))[0] == 0 }), 'crash point removed');
		# A worker that has the setting may still die once.
		ok(wait_for_sql($node, 'SELECT count(*), count(DISTINCT id), max(id) FROM etl_out', "$id|$id|$id", 60), 'every row once');
		select(undef, undef, undef, 0.3); # a worker may be killed right after its last commit
		ok(wait_for_sql($node, "SELECT count(*) FROM stream.queries WHERE status = 'running' AND failures = 0", '2', 60), 'both run');
		ok(wait_for_sql($node, 'SELECT count(*) FROM (SELECT k, count(*), sum(id) FROM input_t GROUP BY k EXCEPT SELECT k, n, s FROM agg_out) d', '0', 60), 'the aggregate is right');
	}
}
is($node->safe_psql('postgres', 'SELECT count(*) FROM agg_out'), '7', 'seven groups');
is($node->safe_psql('postgres', 'SELECT count(*) FROM stream.offset_log o LEFT JOIN stream.commit_log c USING (query_id, batch_id) WHERE c.batch_id IS NULL'), '0', 'every logged batch is committed');
is($node->safe_psql('postgres', 'SELECT count(*) FROM (SELECT query_id FROM stream.commit_log GROUP BY 1 HAVING count(*) <> max(batch_id) + 1) g'), '0', 'no gap in batch ids');
$node->stop;
done_testing();
