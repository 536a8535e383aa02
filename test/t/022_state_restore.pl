# State after dump and restore, where every type of the user's own has another oid: keys, rows of joins, aggregates, best rows and custom state of
# enums, composites and arrays of them go on where they were, under both providers.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::Bin/../lib";
use PostgreSQL::Test::Utils;
use StreamNode;
use Test::More;

my $node = new_node('restore', 'shared_preload_libraries = stream_ext');
my %dir = map { $_ => PostgreSQL::Test::Utils::tempdir() } qw(order ship);
chmod 0755, values %dir;

sub drop_file
{
	my ($kind, $name, @rows) = @_;
	append_to_file("$dir{$kind}/$name.csv", join('', map { "$_\n" } @rows));
}

my $columns = 'kind mood, place spot, tags mood[], at timestamptz, v int';
my $joined = "SELECT o.kind, o.place AS o_place, o.tags AS o_tags, s.place AS s_place, s.v FROM orders o JOIN ship s ON s.kind = o.kind AND s.at BETWEEN o.at AND o.at + interval '1 hour'";
my @queries = (
	[ 'joined', $joined, 'append' ],
	[ 'sums', 'SELECT kind, place, count(*) AS n, max(kind) AS top, array_agg(place ORDER BY v) AS places FROM orders GROUP BY kind, place', 'update' ],
	[ 'first', 'SELECT DISTINCT ON (place) place, kind FROM orders', 'append' ],
	[ 'best', 'SELECT DISTINCT ON (kind) kind, place, v FROM orders ORDER BY kind, v DESC', 'update' ],
	[ 'sessions', "SELECT kind, stream.session(at, '1 hour') AS w, count(*) AS n FROM orders GROUP BY 1, 2", 'update' ],
	[ 'custom', "SELECT t.kind, t.seen FROM orders, LATERAL stream.transform_with_state('keeper', orders.kind, orders) AS t(kind mood, seen text)", 'append' ]);
my $make = '';
for my $provider (qw(memory table))
{
	$make .= "SELECT stream.create_query('$_->[0]_$provider', \$q\$$_->[1]\$q\$, stream.to_table('$_->[0]_${provider}_out'), '$_->[2]', "
	  . "options => '{\"state_provider\": \"$provider\"}', start => false);\n"
	  for @queries;
}
$node->safe_psql('postgres', <<"SQL");
CREATE TYPE mood AS ENUM ('low', 'mid', 'high');
CREATE TYPE spot AS (name text, mood mood);
SELECT stream.create_source('orders', 'file', '$columns', options => '{"path": "$dir{order}", "format": "csv"}', event_time => 'at', watermark_delay => '1 day');
SELECT stream.create_source('ship', 'file', '$columns', options => '{"path": "$dir{ship}", "format": "csv"}', event_time => 'at', watermark_delay => '1 day');
CREATE FUNCTION keep(key mood, "rows" orders[]) RETURNS TABLE (kind mood, seen text) LANGUAGE plpgsql AS \$\$
DECLARE r orders;
BEGIN
	FOREACH r IN ARRAY "rows" LOOP
		PERFORM stream.state_update('last', r.place), stream.list_append('moods', r.kind), stream.map_put('spots', r.kind, r.place);
	END LOOP;
	RETURN QUERY SELECT key, concat_ws(' ', stream.state_get('last', NULL::spot), (SELECT string_agg(m::text, ',') FROM stream.list_get('moods', NULL::mood) m),
		stream.map_get('spots', key, NULL::spot));
END \$\$;
SELECT stream.create_processor('keeper', 'keep(mood, orders[])', state => '{"last": {"kind": "value", "type": "spot"}, "moods": {"kind": "list", "type": "mood"},
	"spots": {"kind": "map", "key_type": "mood", "type": "spot"}}');
$make
SQL

sub process
{
	my ($database) = @_;
	$node->safe_psql($database, "CALL stream.process_all_available('$_->[0]_memory'); CALL stream.process_all_available('$_->[0]_table')") for @queries;
}

# What lies in the targets, in an order of its own.
sub results
{
	my ($database, $query) = @_;
	my $columns = { joined => 'kind, o_place, o_tags, s_place, v', sums => 'kind, place, n, top, places', first => 'place, kind', best => 'kind, place, v',
		sessions => 'kind, w, n', custom => 'kind, seen' }->{ $query =~ s/_.*//r };
	return $node->safe_psql($database, "SELECT $columns FROM ${query}_out ORDER BY ROW($columns)::text");
}

drop_file('order', '1', 'mid,"(here,high)","{low,high}",2024-01-01 10:00,1', 'high,"(there,)","{}",2024-01-01 10:10,2', 'low,"(,low)",,2024-01-01 10:20,3');
process('postgres');
my $dump = PostgreSQL::Test::Utils::tempdir() . '/dump.sql';
$node->command_ok([ 'pg_dump', '-f', $dump, 'postgres' ], 'dump');
$node->safe_psql('postgres', 'CREATE DATABASE restored');
$node->command_ok([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-f', $dump, '-d', $node->connstr('restored') ], 'restore');
my $oid = "SELECT 'mood'::regtype::oid, 'spot'::regtype::oid";
isnt($node->safe_psql('restored', $oid), $node->safe_psql('postgres', $oid), 'types have other oids');
is($node->safe_psql('restored', "SELECT count(*) FROM stream.queries WHERE status = 'stopped'"), 2 * @queries, 'queries come back');
is($node->safe_psql('restored', "SELECT key, value, expires_at FROM stream.state('$_') ORDER BY key::text, value::text"),
	$node->safe_psql('postgres', "SELECT key, value, expires_at FROM stream.state('$_') ORDER BY key::text, value::text"), "state of $_ reads the same")
  for map { ("$_->[0]_memory", "$_->[0]_table") } @queries;

drop_file('ship', '1', 'mid,"(hall,mid)","{}",2024-01-01 10:30,10', 'high,"(gate,low)",,2024-01-01 10:40,20', 'low,,,2024-01-01 10:50,30');
drop_file('order', '2', 'mid,"(here,high)","{}",2024-01-01 10:25,9', 'low,"(,low)","{mid}",2024-01-01 11:00,1', 'high,"(new,mid)",,2024-01-01 14:00,8');
process($_) for qw(postgres restored);
for my $query (map { $_->[0] } @queries)
{
	my $want = results('postgres', "${query}_memory");
	isnt($want, '', "$query has results");
	is(results('postgres', "${query}_table"), $want, "$query: state in place, same results");
	is(results('restored', "${query}_$_"), $want, "$query: same results after restore, $_") for qw(memory table);
}
is(results('restored', 'joined_memory'), <<'OUT' =~ s/\n$//r, 'rows that waited in the join');
high|(there,)|{}|(gate,low)|20
low|(,low)|||30
mid|(here,high)|{low,high}|(hall,mid)|10
mid|(here,high)|{}|(hall,mid)|10
OUT
done_testing();
