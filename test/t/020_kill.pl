# A worker dies of SIGKILL at every step of a batch, over and over, while a table grows: nothing is lost, nothing comes twice, and the state is what a
# plain SELECT over the input says.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::Bin/../lib";
use StreamKill;
use Test::More;

my $kills = kills_wanted(25);
my $node = node_to_kill('wal_level = minimal', 'max_wal_senders = 0');
$node->safe_psql('postgres', q{
	CREATE TABLE event_t (id bigint GENERATED ALWAYS AS IDENTITY, store int, amount numeric, at timestamptz);
	SELECT stream.create_source('event', 'table', options => '{"table": "event_t"}', event_time => 'at', watermark_delay => '1 hour')});
ledger_queries();

# State in place, and state of the user's own with timers: a count and a sum per store, and once per store and minute a timer at the minute's end.
$node->safe_psql('postgres', <<'SQL');
CREATE FUNCTION counted(key int, rows event[]) RETURNS TABLE (store int, n bigint, total numeric, minute timestamptz) LANGUAGE plpgsql AS $$
DECLARE r event;
BEGIN
	n := coalesce(stream.state_get('n', NULL::bigint), 0) + cardinality(rows);
	total := coalesce(stream.map_get('sums', 'all', NULL::numeric), 0) + (SELECT sum(x.amount) FROM unnest(rows) x);
	PERFORM stream.state_update('n', n), stream.map_put('sums', 'all', total);
	FOREACH r IN ARRAY rows LOOP
		PERFORM stream.register_timer(date_trunc('minute', r.at) + interval '1 minute');
		PERFORM stream.list_append('ids', r.id);
	END LOOP;
	store := key;
	RETURN NEXT;
END $$;
CREATE FUNCTION minute_over(key int, expires_at timestamptz) RETURNS TABLE (store int, n bigint, total numeric, minute timestamptz) LANGUAGE sql AS
	$$ SELECT key, NULL::bigint, NULL::numeric, expires_at $$;
SELECT stream.create_processor('counter', 'counted(int,event[])', 'minute_over(int,timestamptz)', time_mode => 'event_time',
	state => '{"n": {"kind": "value", "type": "bigint"}, "sums": {"kind": "map", "key_type": "text", "type": "numeric"}, "ids": {"kind": "list", "type": "bigint"}}');
SELECT stream.create_query('custom_' || p, 'SELECT t.* FROM event e, LATERAL stream.transform_with_state(''counter'', e.store, e) AS t(store int, n bigint, total numeric, minute timestamptz)',
	stream.to_table('custom_out_' || p), options => jsonb_build_object('state_provider', p, 'max_retries', 1000000)) FROM unnest(ARRAY['memory', 'table']) p;
SELECT stream.create_query('closed_table', $$SELECT store, stream.tumble(at, '1 minute') AS w, count(*) AS n, sum(amount) AS total FROM event GROUP BY 1, 2$$,
	stream.to_table('closed_out_table'), options => '{"state_provider": "table", "max_rows_per_batch": 40, "max_retries": 1000000}');
SELECT stream.create_query('stores_table', 'SELECT DISTINCT store FROM event', stream.to_table('stores_out'), options => '{"state_provider": "table", "max_retries": 1000000}');
SQL

my $clock = 0;
kill_workers($kills, [qw(triggered planned logged executed sunk committing committed)], sub {
	my $rows = 1 + int(rand(30));
	$clock += int(rand(20));
	try_psql("INSERT INTO event_t (store, amount, at) SELECT i % 7, (i * 7919 % 1000) / 10.0, timestamptz '2026-03-01' + $clock * interval '1 second' "
		  . "- random() * interval '50 seconds' FROM generate_series(1, $rows) i");
});
wait_psql("INSERT INTO event_t (store, amount, at) VALUES (-1, 0, '2026-06-01')");
drained('', qw(custom_memory custom_table closed_table stores_table));
ledger_count();
is_same("SELECT store, stream.tumble(at, '1 minute'), count(*), sum(amount) FROM event_t WHERE store >= 0 GROUP BY 1, 2", 'SELECT store, w, n, total FROM closed_out_table',
	'append mode, state in place: every window once, complete');
is_same('SELECT DISTINCT store FROM event_t', 'SELECT store FROM stores_out', 'DISTINCT, state in place');
for my $provider (qw(memory table))
{
	my $out = "custom_out_$provider";
	is_same('SELECT store, count(*), sum(amount) FROM event_t GROUP BY 1', "SELECT DISTINCT ON (store) store, n, total FROM $out WHERE minute IS NULL ORDER BY store, n DESC",
		"custom state ($provider): counts and sums");
	is_same("SELECT DISTINCT store, date_trunc('minute', at) + interval '1 minute' FROM event_t WHERE store >= 0", "SELECT store, minute FROM $out WHERE minute IS NOT NULL",
		"custom state ($provider): every timer fired once");
	is_same('SELECT store, id FROM event_t', "SELECT key::int, value::bigint FROM stream.state('custom_$provider', state_name => 'ids')", "custom state ($provider): the lists");
	is($node->safe_psql('postgres', "SELECT count(*) FROM stream.state('custom_$provider', state_name => 'timers')"), '1', "custom state ($provider): one timer is left");
}
done_testing();
