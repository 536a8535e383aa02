# pg_upgrade from PostgreSQL 15 (OLD_BIN) to the version under test: logs, positions, and what should run come along; queries without state go on exactly once,
# those with state say that they cannot, and what to do.
# Only `make check-versions` has two versions: suite upgrade.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::Bin/../lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use StreamNode;
use StreamUpgrade;
use Test::More;

my ($old_bin, $new_bin) = ($ENV{OLD_BIN}, $ENV{NEW_BIN});
# ---- before
my $old = PostgreSQL::Test::Cluster->new('old', install_path => $old_bin =~ s{/bin$}{}r);
$old->init(extra => [ '--locale=C', '--encoding=UTF8' ]);
$old->start;
$old->safe_psql('postgres', 'CREATE EXTENSION stream_ext');
make_sources($old);
make_queries($old);
$old->safe_psql('postgres', "SELECT stream.create_query('copy', 'SELECT i, v FROM item', stream.to_table('copy_out'))");
rows($old, 1, 150);
rows($old, 151, 300);
check_all($old, 'before');
$old->safe_psql('postgres', "SELECT stream.stop_query('windows_memory')");
rows($old, 301, 400);          # some read, some not
$old->stop;

# ---- pg_upgrade
my $new = PostgreSQL::Test::Cluster->new('new');
my $major = int(`$new_bin/postgres --version` =~ /(\d+)/ ? $1 : 0);
$new->init(extra => [ '--locale=C', '--encoding=UTF8', $major >= 18 ? '--no-data-checksums' : () ]);
my ($out, $err);
my $ok = IPC::Run::run([ "$new_bin/pg_upgrade", '--no-sync', '-d', $old->data_dir, '-D', $new->data_dir, '-b', $old_bin, '-B', $new_bin, '-s', $new->host,
	'-p', $old->port, '-P', $new->port ], '>', \$out, '2>', \$err);
ok($ok, "pg_upgrade to $major") or diag("$out\n$err");
$new->start;

# ---- after
ok(status_is($new, 'copy', 'running', 60), 'a query that ran runs again by itself');
$new->safe_psql('postgres', "CALL stream.process_all_available('copy')");
is($new->safe_psql('postgres', 'SELECT count(*), count(DISTINCT i) FROM copy_out'), '400|400', 'it has gone on exactly once');
is($new->safe_psql('postgres', "SELECT status FROM stream.queries WHERE name = 'windows_memory'"), 'stopped', 'one that was stopped stays stopped');
$new->safe_psql('postgres', "SELECT stream.start_query('windows_memory')");
for (query_names())
{
	my $query = join '_', @$_;
	ok(wait_for_sql($new, "SELECT error ~ 'cannot be read by this version' AND error ~ 'stream.reset_query' FROM stream.queries WHERE name = '$query'", 't', 60), "$query says what to do")
		or diag($new->safe_psql('postgres', "SELECT status, error FROM stream.queries WHERE name = '$query'"));
	$new->safe_psql('postgres', "SELECT stream.stop_query('$query'); SELECT stream.reset_query('$query'); TRUNCATE ${query}_out; SELECT stream.start_query('$query')");
}
check_all($new, 'rows from before');
rows($new, 401, 600);
check_all($new, 'more rows');
is($new->safe_psql('postgres', "SELECT count(*) FROM stream.queries WHERE error IS NOT NULL OR failures > 0"), '0', 'no query failed');
$new->stop;
done_testing();
