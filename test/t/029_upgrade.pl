# ALTER EXTENSION … UPDATE: what it leaves is what a fresh install makes; rows stay; until then the library touches nothing; other databases run on, and the
# workers of this one come back by themselves. The install script of 0.1.0 is frozen in test/upgrade.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::Bin/../lib";
use File::Copy qw(copy);
use PostgreSQL::Test::Utils;
use StreamNode;
use Test::More;

my $upgrade = "$FindBin::Bin/../upgrade";
chomp(my $share = `pg_config --sharedir`);
copy("$upgrade/stream_ext--0.1.0.sql", "$share/extension/") or die "$share: $!";
my $node = new_node('main');

# ---- the same catalogue
my $catalog = slurp_file("$upgrade/catalog.sql");
$node->safe_psql('postgres', 'CREATE DATABASE old');
$node->safe_psql('old', "CREATE EXTENSION stream_ext VERSION '0.1.0'");
$node->safe_psql('old', q(
	INSERT INTO stream.commit_entry VALUES (7, 0, NULL, '{}', 1, 2, '2026-01-01');
	CREATE TABLE item_t (k int, v int);
	CREATE VIEW mine AS SELECT name, status FROM stream.queries;
));
my ($rc, $out, $err) = $node->psql('old', "SELECT stream.create_source('item', 'table', options => '{\"table\": \"item_t\"}'); SELECT stream.create_query('q', 'SELECT k FROM item', stream.to_table('o'))");
like($err, qr/ERROR:  stream_ext in this database is of version 0\.1\.0, the library of version [0-9.]+\nHINT:  Run ALTER EXTENSION stream_ext UPDATE/, 'the library leaves tables of another version alone');

table_source($node, 'item', 'k int, v int');
create_query($node, 'sums', 'SELECT k, count(*) AS n, sum(v) AS v FROM item GROUP BY k', "output_mode => 'update'");
ok(status_is($node, 'sums', 'running'), 'a query of another database runs');
my $pid = worker_pid($node, 'sums');

$node->safe_psql('old', 'ALTER EXTENSION stream_ext UPDATE');
is($node->safe_psql('old', $catalog), $node->safe_psql('postgres', $catalog), 'every object is as a fresh install makes it');
is($node->safe_psql('old', 'SELECT rows_late, rows_bad, rows_in, rows_out, busy_us FROM stream.commit_entry'), '1|2|0|0|0', 'rows stay, new totals begin at zero');
is($node->safe_psql('old', 'SELECT count(*) FROM mine'), '0', 'and so does a view on one of ours');
is(worker_pid($node, 'sums'), $pid, 'the other database was left alone');

# ---- queries run at once
$node->safe_psql('old', q(
	DELETE FROM stream.commit_entry;
	SELECT stream.create_query('sums', 'SELECT k, count(*) AS n, sum(v) AS v FROM item GROUP BY k', stream.to_table('sums_out'), output_mode => 'update');
	INSERT INTO item_t SELECT i % 3, i FROM generate_series(1, 300) i;
));
$node->safe_psql('old', "CALL stream.process_all_available('sums')");
is($node->safe_psql('old', 'SELECT sum(n), sum(v) FROM sums_out'), '300|45150', 'a query of the updated database has run, without a restart');

# ---- updating under running queries
$pid = worker_pid($node, 'sums');
($rc, $out, $err) = $node->psql('postgres', 'ALTER EXTENSION stream_ext UPDATE; INSERT INTO item_t VALUES (1, 1)');
is($rc, 0, 'an update with a query running, to the version that is there');
ok(wait_for(sub { my $now = worker_pid($node, 'sums'); $now && $now ne $pid }), 'its worker made way, and is back');
$node->safe_psql('postgres', "CALL stream.process_all_available('sums')");
is($node->safe_psql('postgres', 'SELECT k, n, v FROM sums_out'), '1|1|1', 'what came in meanwhile is there');

$node->stop;
done_testing();
