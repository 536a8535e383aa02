# A standby runs nothing; promoted, it goes on exactly where the primary was.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::Bin/../lib";
use PostgreSQL::Test::Cluster;
use StreamNode;
use Test::More;

my $primary = PostgreSQL::Test::Cluster->new('primary');
$primary->init(allows_streaming => 1);
$primary->start;
$primary->safe_psql('postgres', 'CREATE EXTENSION stream_ext');
table_source($primary, 'input', 'v int');
create_query($primary, 'q', 'SELECT v FROM input');
$primary->safe_psql('postgres', 'INSERT INTO input_t SELECT generate_series(1, 10)');
ok(wait_for_sql($primary, 'SELECT count(*) FROM q_out', '10'), 'the primary runs a query');
$primary->backup('b');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'b', has_streaming => 1);
$standby->start;
$primary->safe_psql('postgres', 'INSERT INTO input_t SELECT generate_series(11, 20)');
ok(wait_for_sql($primary, 'SELECT count(*) FROM q_out', '20'), 'and goes on');
$primary->wait_for_catchup($standby);
is($standby->safe_psql('postgres', "SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'stream_ext%'"), '0', 'a standby has no workers');
is($standby->safe_psql('postgres', 'SELECT status, pid IS NULL FROM stream.queries'), 'running|t', 'the views can be read there');
my (undef, undef, $err) = $standby->psql('postgres', "SELECT stream.stop_query('q')");
like($err, qr/cannot execute stream.stop_query\(\) during recovery/, 'stop_query is refused there');
(undef, undef, $err) = $standby->psql('postgres', "SELECT stream.start_query('q')");
like($err, qr/cannot execute stream.start_query\(\) during recovery/, 'start_query too');
is($standby->safe_psql('postgres', 'SELECT count(*) FROM stream.source_lag'), '1', 'lag can be read');
like($standby->safe_psql('postgres', 'SELECT stream.report_html()'), qr/<h2>q /, 'and the page made');
$primary->stop('immediate');
$standby->promote;
ok(wait_for_sql($standby, 'SELECT status, pid IS NOT NULL FROM stream.queries', 'running|t'), 'promoted, the query runs');
$standby->safe_psql('postgres', 'INSERT INTO input_t SELECT generate_series(21, 30)');
ok(wait_for_sql($standby, 'SELECT count(*), count(DISTINCT v) FROM q_out', '30|30'), 'every row once');

# ---- commits that wait for a standby that is away: batches do, what queries are and how they are stopped and started does not
sub at_once { return $standby->safe_psql('postgres', "SET synchronous_commit = local; $_[0]") }
$standby->append_conf('postgresql.conf', "synchronous_standby_names = 'nobody'");
$standby->reload;
at_once('INSERT INTO input_t SELECT generate_series(31, 40)');
my $waiting = "SELECT count(*) FROM pg_stat_activity JOIN stream.queries USING (pid) WHERE wait_event = 'SyncRep' AND status = 'running'";
ok(wait_for_sql($standby, $waiting, '1'), 'a batch waits for the standby');
at_once('SELECT pg_terminate_backend(pid) FROM stream.queries');
ok(wait_for(sub { $standby->safe_psql('postgres', 'SELECT outcome FROM stream.attempts WHERE attempt = (SELECT max(attempt) - 1 FROM stream.attempts)') eq 'lost' }), 'terminated there, it comes back');
at_once('INSERT INTO input_t SELECT generate_series(41, 50)');
ok(wait_for_sql($standby, $waiting, '1'), 'and waits again');
at_once("SELECT stream.stop_query('q')");
is($standby->safe_psql('postgres', 'SELECT status, pid FROM stream.queries'), 'stopped|', 'it can be stopped meanwhile');
at_once("SELECT stream.start_query('q')");
ok(status_is($standby, 'q', 'running'), 'and started');
$standby->append_conf('postgresql.conf', "synchronous_standby_names = ''");
$standby->reload;
ok(wait_for_sql($standby, 'SELECT count(*), count(DISTINCT v) FROM q_out', '50|50'), 'every row once, still');
$standby->stop;
done_testing();
