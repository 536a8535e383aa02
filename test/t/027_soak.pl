# Many batches: the memory of the workers stays flat, logs and state tables stay bounded, the answers stay right. SOAK_BATCHES (400) says how many: make soak runs 10 000.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::Bin/../lib";
use PostgreSQL::Test::Utils;
use StreamNode;
use Test::More;

my $batches = $ENV{SOAK_BATCHES} || 400;
my $warm = $batches >= 4000 ? 2000 : int($batches / 2);
my $node = new_node('main', 'autovacuum_naptime = 1s', 'autovacuum_vacuum_cost_delay = 0', 'log_statement = none', 'shared_buffers = 64MB');

sub value { return $node->safe_psql('postgres', shift) }

value(q{
	CREATE TABLE input_t (id bigint, k int, ts timestamptz);
	CREATE TABLE other_t (id bigint, k int, ts timestamptz);
	SELECT stream.create_source('input', 'table', options => '{"table": "input_t"}', event_time => 'ts', watermark_delay => '10 seconds');
	SELECT stream.create_source('other', 'table', options => '{"table": "other_t"}', event_time => 'ts', watermark_delay => '10 seconds');
	CREATE FUNCTION counted(key int, rows input[]) RETURNS TABLE (k int, n bigint) LANGUAGE plpgsql AS $f$
	BEGIN
		k := key; n := coalesce(stream.state_get('n', NULL::bigint), 0) + cardinality(rows);
		PERFORM stream.state_update('n', n), stream.list_put('last', ARRAY[n]), stream.map_put('m', n % 5, key::text);
		BEGIN PERFORM stream.state_update('n', 0), 1 / (n % 2); PERFORM stream.state_update('n', n); EXCEPTION WHEN division_by_zero THEN NULL; END;
		RETURN NEXT;
	END $f$;
	SELECT stream.create_processor('counted', 'counted(int, input[])', state => '{"n": {"kind": "value", "type": "bigint"}, "last": {"kind": "list", "type": "bigint"},
		"m": {"kind": "map", "key_type": "bigint", "type": "text"}}')});
my %query = (
	copy => [ 'SELECT id, k FROM input', '' ],
	groups => [ 'SELECT k, count(*) AS n, sum(id) AS s FROM input GROUP BY k', "output_mode => 'update'" ],
	place => [ 'SELECT k, count(*) AS n, sum(id) AS s FROM input GROUP BY k', q{output_mode => 'update', options => '{"state_provider": "table"}'} ],
	windows => [ q{SELECT k, stream.tumble(ts, '10 seconds') AS w, count(*) AS n FROM input GROUP BY k, w}, '' ],
	distinct_ones => [ 'SELECT DISTINCT k, ts FROM input', '' ],
	sessions => [ q{SELECT k, stream.session(ts, '5 seconds') AS w, count(*) AS n FROM input GROUP BY k, w}, '' ],
	joined => [ q{SELECT i.id, o.id AS other FROM input i JOIN other o ON i.k = o.k AND o.ts BETWEEN i.ts AND i.ts + interval '5 seconds'}, '' ],
	processed => [ q{SELECT t.k, t.n FROM input i, LATERAL stream.transform_with_state('counted', i.k, i) AS t(k int, n bigint)}, '' ]);
create_query($node, $_, @{ $query{$_} }) for sort keys %query;

# One second of event time and ten rows a batch; each query waits for nobody, so each may take several inserts at once: go on until the slowest has had enough.
my $rows = 0;

sub feed
{
	my $upto = shift;
	my $n = 200;
	while (value('SELECT min(coalesce(last_batch_id, -1)) FROM stream.queries') < $upto)
	{
		value(qq{DO \$\$ BEGIN FOR b IN $rows / 10 + 1 .. $rows / 10 + $n LOOP
			INSERT INTO input_t SELECT b * 10 + i, (b * 7 + i) % 500, '2026-01-01 00:00+00'::timestamptz + b * interval '1 second' FROM generate_series(1, 10) i;
			INSERT INTO other_t SELECT b * 10 + i, (b * 7 + i) % 500, '2026-01-01 00:00+00'::timestamptz + b * interval '1 second' FROM generate_series(1, 10) i;
			COMMIT; PERFORM pg_sleep(0.004);
		END LOOP; END \$\$});
		$rows += 10 * $n;
	}
}

sub memory { my ($kb) = slurp_file('/proc/' . worker_pid($node, $_[0]) . '/status') =~ /^RssAnon:\s+(\d+)/m; return $kb }

feed($warm);
my %before = map { $_ => memory($_) } keys %query;
feed($batches);
for my $name (sort keys %query)
{
	my $growth = memory($name) - $before{$name};
	cmp_ok($growth, '<', 1024, "$name: memory is flat ($before{$name} kB, $growth kB more after the last " . ($batches - $warm) . ' batches)');
}
value("CALL stream.process_all_available('$_')") for sort keys %query;
note(value("SELECT string_agg(name || ' ' || last_batch_id, ', ' ORDER BY name) FROM stream.queries"));
is(value("SELECT count(*) FROM stream.queries WHERE failures > 0"), '0', 'nothing failed');
is(value('SELECT count(*), count(DISTINCT id) FROM copy_out'), "$rows|$rows", 'every row once');
for my $name ('groups', 'place')
{
	is(value("SELECT count(*) FROM (SELECT k, count(*), sum(id) FROM input_t GROUP BY k EXCEPT SELECT k, n, s FROM ${name}_out) d"), '0', "$name: right");
}
is(value('SELECT count(*) FROM (SELECT k, max(n) FROM processed_out GROUP BY k EXCEPT SELECT k, count(*) FROM input_t GROUP BY k) d'), '0', 'processed: right');
is(value('SELECT count(*) FROM distinct_ones_out'), value('SELECT count(*) FROM (SELECT DISTINCT k, ts FROM input_t) d'), 'distinct: right');
cmp_ok(value("SELECT max(n) FROM (SELECT count(*) AS n FROM stream.$_ GROUP BY query_id) g"), '<=', 130, "$_ is bounded") for ('offset_entry', 'commit_entry', 'progress_entry');
cmp_ok(value("SELECT coalesce(max(state_rows), 0) FROM stream.queries WHERE name IN ('windows', 'distinct_ones', 'sessions', 'joined')"), '<', 2500, 'the watermark bounds state');

# At most twice what has to be kept: live state, and the changelog of the batches retained. Vacuum comes behind, so it gets a little time.
# Below 256 kB a changelog is not worth folding.
my $kept = "(SELECT sum(state_bytes) FROM stream.queries) + (SELECT sum(pg_column_size(c.data) + 64) FROM stream.state_change c JOIN stream.queries q ON q.id = c.query_id WHERE c.batch_id > q.last_batch_id - 130)
	+ (SELECT sum(pg_column_size(data) + 64) FROM stream.state_undo)";
my $stores = '(SELECT count(*) FROM (SELECT DISTINCT query_id, operator_id, state_name FROM stream.state_change) s)';
my $taken = "pg_table_size('stream.state_change') + pg_table_size('stream.state_snapshot') + pg_table_size('stream.state_undo')";
note('state tables: ' . value("SELECT $taken, $kept, $stores"));
ok(wait_for_sql($node, "SELECT $taken <= 2 * ($kept) + $stores * 2 * 256 * 1024", 't', 20), 'state tables take at most twice what has to be kept') or diag(value("SELECT $taken, $kept"));
my $place = value("SELECT 'stream.state_row_' || id FROM stream.queries WHERE name = 'place'");
note("$place: " . value("SELECT pg_table_size('$place'), (SELECT state_bytes FROM stream.queries WHERE name = 'place')"));
ok(wait_for_sql($node, "SELECT pg_table_size('$place') <= 2 * (SELECT sum(pg_column_size(t.*)) FROM $place t) + 512 * 1024", 't', 20), 'so does state in place')
	or diag(value("SELECT pg_table_size('$place'), (SELECT sum(pg_column_size(t.*)) FROM $place t)"));
$node->stop;
done_testing();
