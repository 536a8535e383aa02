# pg_dump and restore: definitions, logs and state come back; the queries stopped; what is of the old cluster is refused with the way out. And the limits of DROP DATABASE.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::Bin/../lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use StreamNode;
use Test::More;

my $node = new_node('main');
my $dir = PostgreSQL::Test::Utils::tempdir_short();

sub value { my ($sql, $db) = @_; return $node->safe_psql($db // 'postgres', $sql) }

mkdir "$dir/in";
value(q{CREATE ROLE app LOGIN; GRANT pg_read_server_files TO app; GRANT CREATE ON SCHEMA public TO app; GRANT USAGE ON FOREIGN SERVER stream_table, stream_file, stream_rate TO app;
	CREATE ROLE other LOGIN});
my @app = (extra_params => [ '-U', 'app' ]);
for my $i (1 .. 3) { append_to_file("$dir/in/$i.json", join('', map { "{\"k\": " . ($_ % 3) . ", \"v\": $_}\n" } 10 * $i .. 10 * $i + 9) . "not json\n") }
$node->safe_psql('postgres', qq{
	SELECT stream.create_source('f', 'file', 'k int, v int', '{"path": "$dir/in", "max_files_per_batch": 1}');
	CREATE TABLE t_t (v int);
	SELECT stream.create_source('t', 'table', options => '{"table": "t_t"}');
	SELECT stream.create_query('files', 'SELECT k, count(*) AS n, sum(v) AS s FROM f GROUP BY k', stream.to_table('files_out'), output_mode => 'update');
	SELECT stream.create_query('place', 'SELECT k, count(*) AS n, sum(v) AS s FROM f GROUP BY k', stream.to_table('place_out'), output_mode => 'update', options => '{"state_provider": "table"}');
	SELECT stream.create_query('rows', 'SELECT v FROM t', stream.to_table('rows_out'));
	INSERT INTO t_t VALUES (1), (2)}, @app);
$node->safe_psql('postgres', "CALL stream.process_all_available('$_')", @app) for ('files', 'place', 'rows');
my $state = "SELECT string_agg(key::text || value::text, ' ' ORDER BY key::text) FROM stream.state('%s')";
my %before = map { $_ => value(sprintf($state, $_)) } ('files', 'place');
my $logs = "SELECT string_agg(q.name || o.batch_id || (o.offsets)::text, ' ' ORDER BY q.name, o.batch_id) FROM stream.offset_log o JOIN stream.commit_log USING (query_id, batch_id) JOIN stream.queries q ON q.id = o.query_id WHERE q.name <> 'rows'";
my $logged = value($logs);
like($logged, qr/files2/, 'three batches are logged');
$node->command_ok([ 'pg_dump', '-Fc', '-f', "$dir/dump", '-d', $node->connstr('postgres') ], 'pg_dump while queries run');
is(value("SELECT count(*) FROM stream.queries WHERE status = 'running'"), '3', 'which goes on');

# ---- definitions alone: the views of queries come without the queries, and are in the way of none
$node->command_ok([ 'pg_dump', '--schema-only', '-f', "$dir/schema", '-d', $node->connstr('postgres') ], 'pg_dump --schema-only');
value('CREATE DATABASE bare');
$node->command_ok([ 'psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('bare'), '-f', "$dir/schema" ], 'restored');
is(value('SELECT count(*) FROM stream.queries', 'bare'), '0', 'it holds no query');
$node->safe_psql('bare', q{SELECT stream.create_query('again', 'SELECT k, count(*) AS n, sum(v) AS s FROM f GROUP BY k', stream.to_table('place_out'), output_mode => 'update', start => false, options => '{"state_provider": "table"}')}, @app);
$node->safe_psql('bare', "CALL stream.process_all_available('again')", @app);
is(value('SELECT sum(n) FROM place_out', 'bare'), '30', 'a new one runs');
$node->safe_psql('bare', "SELECT stream.drop_query('again')", @app);

# ---- another database of the same cluster
value('CREATE DATABASE copy');
$node->command_ok([ 'pg_restore', '--exit-on-error', '-d', $node->connstr('copy'), "$dir/dump" ], 'pg_restore');
is(value("SELECT string_agg(name || ' ' || status || ' ' || owner, ', ' ORDER BY name) FROM stream.queries", 'copy'), 'files stopped app, place stopped app, rows stopped app', 'the queries are there, stopped');
is(value(sprintf($state, $_), 'copy'), $before{$_}, "state of $_") for ('files', 'place');
is(value($logs, 'copy'), $logged, 'logs');
is(value("SELECT count(*) FROM stream.dead_letters", 'copy'), '6', 'dead letters');
is(value("SELECT count(*) FROM stream.attempts", 'copy'), '0', 'no attempts: those were the old server\'s');
is(value("SELECT count(*) FROM pg_stat_activity WHERE datname = 'copy' AND backend_type LIKE 'stream_ext%'"), '0', 'nothing runs');
append_to_file("$dir/in/4.json", join('', map { "{\"k\": " . ($_ % 3) . ", \"v\": $_}\n" } 40 .. 49));
for my $name ('files', 'place')
{
	$node->safe_psql('copy', "SELECT stream.start_query('$name')", @app);
	$node->safe_psql('copy', "CALL stream.process_all_available('$name')", @app);
	is(value("SELECT sum(n), sum(s) FROM ${name}_out", 'copy'), '40|' . (10 * (10 + 20 + 30 + 40) + 4 * 45), "$name: started, it goes on where it was");
}
my (undef, undef, $err) = $node->psql('copy', "CALL stream.process_all_available('rows')", @app);
like($err, qr/reset_query/, 'positions of a table source belong to the old database: refused, naming reset_query') or diag($err);
is(value("SELECT count(*) FROM rows_out", 'copy'), '2', 'and nothing was written');
$node->safe_psql('copy', "SELECT stream.prepare_table('t_t'); SELECT stream.reset_query('rows'); TRUNCATE rows_out", @app);
$node->safe_psql('copy', "CALL stream.process_all_available('rows')", @app);
is(value("SELECT count(*), sum(v) FROM rows_out", 'copy'), '2|3', 'reset, it reads them anew');

# ---- another cluster, where the owner does not exist
my $there = PostgreSQL::Test::Cluster->new('there');
$there->init;
$there->start;
$there->safe_psql('postgres', 'CREATE DATABASE copy');
my ($ok, $out) = (run_log([ 'pg_restore', '--no-owner', '-d', $there->connstr('copy'), "$dir/dump" ]));
is($there->safe_psql('copy', "SELECT string_agg(name || ' ' || status, ', ' ORDER BY name) FROM stream.queries"), 'files stopped, place stopped, rows stopped', 'without the owner\'s role: the queries are there');
is($there->safe_psql('copy', sprintf($state, 'files')), $before{files}, 'with their state, owned by who restored them');
$there->stop;

# ---- a dump by somebody else holds nothing of it
($ok, undef, $err) = (run_log([ 'pg_dump', '-U', 'other', '-f', "$dir/stolen", '-d', $node->connstr('postgres') ]));
ok(!$ok, 'pg_dump by another role is refused');

# ---- DROP DATABASE from a session without the library: refused by the server, WITH (FORCE) works
$node->append_conf('postgresql.conf', "shared_preload_libraries = ''");
$node->restart;
$node->safe_psql('copy', "SELECT stream.start_query('files')", @app);
ok(status_is($node, 'files', 'running', 20, 'copy'), 'runs on demand');
(undef, undef, $err) = $node->psql('postgres', 'DROP DATABASE copy');
like($err, qr/database "copy" is being accessed by other users/, 'a session that has not loaded the library cannot stop workers');
value('DROP DATABASE copy WITH (FORCE)');
is(value("SELECT count(*) FROM pg_stat_activity WHERE datname = 'copy'"), '0', 'WITH (FORCE) does');
ok(wait_for(sub { processes($node, 'worker') == 0 && processes($node, 'supervisor') == 0 }), 'nobody is left');
$node->stop;
done_testing();
