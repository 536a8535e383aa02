# StreamUpgrade.pm: queries with all kinds of state, and whether what they put out is what the same SELECT gives by hand; for tests that change the server or
# the extension below them.
package StreamUpgrade;
use strict;
use warnings FATAL => 'all';
use StreamNode;
use Test::More;
use Exporter 'import';
our @EXPORT = qw(make_sources make_queries rows check_all query_names %query);

our %query = (
	numbers => "SELECT k, count(*) AS n, sum(v), avg(v), sum(v::numeric / 3) AS thirds, avg(v::numeric) AS mean, stddev(v) AS dev, var_pop(v::numeric) AS var, sum(v::bigint) AS big,
		avg(v::bigint) AS big_mean, min(t), max(v), bool_or(v > 5) AS any5 FROM item GROUP BY k",
	lists => 'SELECT k, array_agg(v ORDER BY i) AS vs, string_agg(t, \',\' ORDER BY i) AS ts, count(DISTINCT t) AS texts, jsonb_agg(v ORDER BY i) AS js,
		percentile_disc(0.5) WITHIN GROUP (ORDER BY v) AS half FROM item GROUP BY k',
	moods => 'SELECT m, count(*) AS n, max(m) AS most FROM item GROUP BY m',
	firsts => 'SELECT DISTINCT ON (t) t, v FROM item ORDER BY t, i',
	windows => "SELECT k, stream.tumble(ts, '1 minute') AS w, count(*) AS n, sum(v) FROM item GROUP BY k, w",
	sessions => "SELECT k, stream.session(ts, '5 seconds') AS s, count(*) AS n FROM item GROUP BY k, s",
	pairs => "SELECT a.i AS i, b.i AS j, a.m AS m FROM item a JOIN other b ON a.k = b.k AND b.ts BETWEEN a.ts AND a.ts + interval '30 seconds'",
);
# By hand there are no sessions: gaps and islands.
my %by_hand = (%query, sessions => "SELECT k, tstzrange(min(ts), max(ts) + interval '5 seconds') AS s, count(*) AS n FROM (
	SELECT k, ts, sum(starts::int) OVER (PARTITION BY k ORDER BY ts, i) AS session FROM (
		SELECT *, coalesce(ts - lag(ts) OVER (PARTITION BY k ORDER BY ts, i) > interval '5 seconds', true) AS starts FROM item) x) y GROUP BY k, session");

# Each query with both providers of state.
sub query_names
{
	return map { my $provider = $_; map { [ $_, $provider ] } sort keys %query } ('memory', 'table');
}

sub make_sources
{
	my ($node) = @_;
	$node->safe_psql('postgres', q(
		CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy'); CREATE TABLE item_t (i int, k int, v int, t text, ts timestamptz, m mood); CREATE TABLE other_t (i int, k int, ts timestamptz);
		SELECT stream.create_source('item', 'table', options => '{"table": "item_t"}', event_time => 'ts', watermark_delay => '1 hour');
		SELECT stream.create_source('other', 'table', options => '{"table": "other_t"}', event_time => 'ts', watermark_delay => '1 hour')));
	return;
}

sub make_queries
{
	my ($node) = @_;
	for (query_names())
	{
		my ($name, $provider) = @$_;
		$node->safe_psql('postgres', "SELECT stream.create_query('${name}_$provider', \$q\$$query{$name}\$q\$, stream.to_table('${name}_${provider}_out'),
			output_mode => '" . ($name eq 'pairs' ? 'append' : 'update') . "', options => '{\"state_provider\": \"$provider\"}')");
	}
	return;
}

sub rows
{
	my ($node, $from, $to) = @_;
	$node->safe_psql('postgres', "INSERT INTO item_t SELECT i, i % 4, CASE WHEN i % 7 > 0 THEN i * 13 % 101 END, 't' || i % 9, '2026-01-01 00:00+00'::timestamptz + i * interval '0.7 s' + i / 50 * interval '20 s',
		(enum_range(NULL::mood))[1 + i % 3] FROM generate_series($from, $to) i; INSERT INTO other_t SELECT i, i % 4, ts + interval '1 s' FROM item_t WHERE i BETWEEN $from AND $to");
	return;
}

sub check_all
{
	my ($node, $when) = @_;
	for (query_names())
	{
		my ($name, $provider) = @$_;
		my $got = "${name}_${provider}_out";
		$node->safe_psql('postgres', "CALL stream.process_all_available('${name}_$provider')");
		my $columns = $node->safe_psql('postgres', "SELECT string_agg(quote_ident(attname), ', ' ORDER BY attnum) FROM pg_attribute WHERE attrelid = '$got'::regclass AND attnum > 0 AND attname <> 'batch_id'");
		is($node->safe_psql('postgres', "WITH want AS (SELECT x::text FROM (SELECT $columns FROM ($by_hand{$name}) q) x), got AS (SELECT x::text FROM (SELECT $columns FROM $got) x)
			SELECT count(*) FROM ((TABLE want EXCEPT ALL TABLE got) UNION ALL (TABLE got EXCEPT ALL TABLE want)) d"), '0', "$when: $name, state in $provider");
	}
	return;
}

1;
