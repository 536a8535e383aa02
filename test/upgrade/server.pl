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
use Test::More;

my ($old_bin, $new_bin) = ($ENV{OLD_BIN}, $ENV{NEW_BIN});
my %query = (
	numbers => "SELECT k, count(*) AS n, sum(v), avg(v), sum(v::numeric / 3) AS thirds, avg(v::numeric) AS mean, stddev(v) AS dev, var_pop(v::numeric) AS var, sum(v::bigint) AS big,
		avg(v::bigint) AS big_mean, min(t), max(v), bool_or(v > 5) AS any5 FROM item GROUP BY k",
	lists => 'SELECT k, array_agg(v ORDER BY i) AS vs, string_agg(t, \',\' ORDER BY i) AS ts, count(DISTINCT t) AS texts, jsonb_agg(v ORDER BY i) AS js,
		percentile_disc(0.5) WITHIN GROUP (ORDER BY v) AS half FROM item GROUP BY k',
	firsts => 'SELECT DISTINCT ON (t) t, v FROM item ORDER BY t, i',
	windows => "SELECT k, stream.tumble(ts, '1 minute') AS w, count(*) AS n, sum(v) FROM item GROUP BY k, w",
	sessions => "SELECT k, stream.session(ts, '5 seconds') AS s, count(*) AS n FROM item GROUP BY k, s",
	pairs => "SELECT a.i AS i, b.i AS j FROM item a JOIN other b ON a.k = b.k AND b.ts BETWEEN a.ts AND a.ts + interval '3 seconds'",
);
# By hand there are no sessions: gaps and islands.
my %by_hand = (%query, sessions => "SELECT k, tstzrange(min(ts), max(ts) + interval '5 seconds') AS s, count(*) AS n FROM (
	SELECT k, ts, sum(starts::int) OVER (PARTITION BY k ORDER BY ts, i) AS session FROM (
		SELECT *, coalesce(ts - lag(ts) OVER (PARTITION BY k ORDER BY ts, i) > interval '5 seconds', true) AS starts FROM item) x) y GROUP BY k, session");

sub rows
{
	my ($node, $from, $to) = @_;
	$node->safe_psql('postgres', "INSERT INTO item_t SELECT i, i % 4, CASE WHEN i % 7 > 0 THEN i * 13 % 101 END, 't' || i % 9, '2026-01-01 00:00+00'::timestamptz + i * interval '0.7 s' + i / 50 * interval '20 s'
		FROM generate_series($from, $to) i; INSERT INTO other_t SELECT i, i % 4, ts + interval '1 s' FROM item_t WHERE i BETWEEN $from AND $to");
}

sub check_all
{
	my ($node, $when) = @_;
	for my $provider ('memory', 'table')
	{
		for my $name (sort keys %query)
		{
			$node->safe_psql('postgres', "CALL stream.process_all_available('${name}_$provider')");
			my ($columns, $got) = ('', "${name}_${provider}_out");
			$columns = $node->safe_psql('postgres', "SELECT string_agg(quote_ident(attname), ', ' ORDER BY attnum) FROM pg_attribute WHERE attrelid = '$got'::regclass AND attnum > 0 AND attname <> 'batch_id'");
			is($node->safe_psql('postgres', "WITH want AS (SELECT x::text FROM (SELECT $columns FROM ($by_hand{$name}) q) x), got AS (SELECT x::text FROM (SELECT $columns FROM $got) x)
				SELECT count(*) FROM ((TABLE want EXCEPT ALL TABLE got) UNION ALL (TABLE got EXCEPT ALL TABLE want)) d"), '0', "$when: $name, state in $provider");
		}
	}
	return;
}

# ---- before
my $old = PostgreSQL::Test::Cluster->new('old', install_path => $old_bin =~ s{/bin$}{}r);
$old->init(extra => [ '--locale=C', '--encoding=UTF8' ]);
$old->start;
$old->safe_psql('postgres', q(CREATE EXTENSION stream_ext;
	CREATE TABLE item_t (i int, k int, v int, t text, ts timestamptz); CREATE TABLE other_t (i int, k int, ts timestamptz);
	SELECT stream.create_source('item', 'table', options => '{"table": "item_t"}', event_time => 'ts', watermark_delay => '1 hour');
	SELECT stream.create_source('other', 'table', options => '{"table": "other_t"}', event_time => 'ts', watermark_delay => '1 hour')));
for my $provider ('memory', 'table')
{
	for my $name (sort keys %query)
	{
		$old->safe_psql('postgres', "SELECT stream.create_query('${name}_$provider', \$q\$$query{$name}\$q\$, stream.to_table('${name}_${provider}_out'),
			output_mode => '" . ($name eq 'pairs' ? 'append' : 'update') . "', options => '{\"state_provider\": \"$provider\"}')");
	}
}
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
for my $provider ('memory', 'table')
{
	for my $name (sort keys %query)
	{
		my $query = "${name}_$provider";
		ok(wait_for_sql($new, "SELECT error ~ 'cannot be read by this version' AND error ~ 'stream.reset_query' FROM stream.queries WHERE name = '$query'", 't', 60), "$query says what to do")
			or diag($new->safe_psql('postgres', "SELECT status, error FROM stream.queries WHERE name = '$query'"));
		$new->safe_psql('postgres', "SELECT stream.stop_query('$query'); SELECT stream.reset_query('$query'); TRUNCATE ${query}_out; SELECT stream.start_query('$query')");
	}
}
check_all($new, 'rows from before');
rows($new, 401, 600);
check_all($new, 'more rows');
is($new->safe_psql('postgres', "SELECT count(*) FROM stream.queries WHERE error IS NOT NULL OR failures > 0"), '0', 'no query failed');
$new->stop;
done_testing();
