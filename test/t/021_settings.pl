# Settings of the owner's role and database that would change results, or keep a worker from its work: none of them does either.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::Bin/../lib";
use PostgreSQL::Test::Utils;
use StreamNode;
use Test::More;

my $node = new_node('main', 'restart_after_crash = on');

sub value { return $node->safe_psql('postgres', shift) }

# What each is set to, for the role or for its database.
my %role = (
	default_transaction_isolation => 'serializable', default_transaction_read_only => 'on', default_transaction_deferrable => 'on', statement_timeout => '1ms',
	idle_in_transaction_session_timeout => '1ms', idle_session_timeout => '1ms', session_replication_role => 'replica', search_path => 'hostile, pg_catalog, public',
	row_security => 'off', DateStyle => 'German, DMY', TimeZone => 'Pacific/Chatham', bytea_output => 'escape', extra_float_digits => '-15', IntervalStyle => 'sql_standard',
	xmlbinary => 'hex', jit => 'on', jit_above_cost => '0', standard_conforming_strings => 'off', escape_string_warning => 'off', array_nulls => 'off',
	transform_null_equals => 'on', quote_all_identifiers => 'on', check_function_bodies => 'off', plan_cache_mode => 'force_generic_plan',
	max_parallel_workers_per_gather => '4', parallel_setup_cost => '0', parallel_tuple_cost => '0', min_parallel_table_scan_size => '0', ($node->safe_psql('postgres', 'SHOW server_version_num') < 160000 ? 'force_parallel_mode' : 'debug_parallel_query') => 'on',
	enable_seqscan => 'off', enable_hashjoin => 'off', enable_indexscan => 'off', enable_sort => 'off', work_mem => '64kB');
$role{transaction_timeout} = '1ms' if value('SHOW server_version_num') >= 170000;
my %database = (
	synchronous_commit => 'off', client_encoding => 'LATIN1', maintenance_work_mem => '1MB', temp_buffers => '100', cursor_tuple_fraction => '1e-6', default_toast_compression => 'lz4', track_activities => 'off', backslash_quote => 'off',
	lc_numeric => 'C', lc_monetary => 'C', gin_fuzzy_search_limit => '1', geqo_threshold => '2', from_collapse_limit => '1', join_collapse_limit => '1', client_min_messages => 'error');

value(q{
	CREATE ROLE app LOGIN;
	GRANT CREATE ON SCHEMA public TO app;
	GRANT USAGE ON FOREIGN SERVER stream_table TO app;
	CREATE TABLE side (k int, name text);
	INSERT INTO side SELECT i, 'n' || i FROM generate_series(0, 9) i;
	GRANT SELECT ON side TO app;
	CREATE TABLE trap (what text);
	GRANT INSERT ON trap TO PUBLIC;
	CREATE SCHEMA hostile;
	GRANT USAGE ON SCHEMA hostile TO PUBLIC});
# Whatever a hostile schema can put before pg_catalog's own.
for my $f ('count(bigint)', 'upper(text)', 'now()', 'jsonb_array_elements(jsonb)', 'to_jsonb(text)', 'nextval(regclass)')
{
	value("CREATE FUNCTION hostile.$f RETURNS text LANGUAGE sql AS \$\$ INSERT INTO public.trap VALUES ('$f') RETURNING what \$\$");
}
for my $type ('integer', 'bigint', 'text', 'jsonb', 'timestamptz', 'xid8')
{
	value(qq{CREATE FUNCTION hostile.equal($type, $type) RETURNS boolean LANGUAGE sql AS \$\$ INSERT INTO public.trap VALUES ('= $type') RETURNING true \$\$;
		CREATE OPERATOR hostile.= (LEFTARG = $type, RIGHTARG = $type, FUNCTION = hostile.equal);
		CREATE OPERATOR hostile.>= (LEFTARG = $type, RIGHTARG = $type, FUNCTION = hostile.equal)});
}
value('CREATE TABLE hostile.side (k int, name text); CREATE TABLE hostile.query (id int); CREATE TABLE hostile.input (v int)');

my @app = (extra_params => [ '-U', 'app' ]);
my $columns = q{count(*) AS n, sum(i.f) AS f, max(i.ts)::text AS ts, max(i.ts - i.ts0)::text AS span, max(i.b::text) AS b, max(i.d::text) AS d};
my $aggregate = "SELECT i.k, date_trunc('day', i.ts)::text AS day, $columns FROM input i GROUP BY i.k, date_trunc('day', i.ts)";
my $joined = q{SELECT i.id, s.name, i.f::text AS f, i.ts::text AS ts, (i.ts - i.ts0)::text AS span, i.b::text AS b, i.d::text AS d FROM input i JOIN side s ON s.k = i.k WHERE s.name <> 'n9'};
$node->safe_psql('postgres', qq{
	SET TimeZone = 'Europe/Berlin';
	CREATE TABLE input_t (id int, k int, f float8, ts timestamptz, ts0 timestamptz, b bytea, d date);
	SELECT stream.create_source('input', 'table', options => '{"table": "input_t"}');
	SELECT stream.create_query('agg', \$q\$$aggregate\$q\$, stream.to_table('agg_out'), output_mode => 'update', options => '{"max_retries": 0}');
	SELECT stream.create_query('agg_place', \$q\$$aggregate\$q\$, stream.to_table('agg_place_out'), output_mode => 'update', options => '{"max_retries": 0, "state_provider": "table"}');
	SELECT stream.create_query('etl', \$q\$$joined\$q\$, stream.to_table('etl_out'), options => '{"max_retries": 0}');
	SELECT stream.create_query('by_hand', \$q\$$joined\$q\$, stream.to_table('by_hand_out'), start => false)}, @app);
my $rows = 0;

sub feed
{
	my $n = shift;
	value("INSERT INTO input_t SELECT i, i % 10, i / 3.0, '2026-03-28 12:00:00.123456+00'::timestamptz + i * interval '37 minutes', '2026-03-01 00:00+00', int4send(i), '2026-03-01'::date + i FROM generate_series($rows + 1, $rows + $n) i");
	$rows += $n;
}

sub right
{
	my $when = shift;
	my $pinned = "SET TimeZone = 'Europe/Berlin'; SET DateStyle = 'ISO, MDY'; SET search_path = public; ";
	for my $pair (['agg', $aggregate], ['agg_place', $aggregate], ['etl', $joined])
	{
		my ($name, $sql) = @$pair;
		(my $plain = $sql) =~ s/\binput\b/input_t/;
		ok(wait_for(sub { ($node->psql('postgres', "SELECT sum(num_input_rows) FROM stream.progress WHERE query = '$name'"))[1] eq $rows }, 30), "$when: $name has read all")
			or diag($node->safe_psql('postgres', "SELECT status, error FROM stream.queries WHERE name = '$name'"));
		my $out = join ', ', map { /AS (\w+)/ ? $1 : /\.(\w+)/ ? $1 : () } $name eq 'etl' ? ('i.id', 's.name', 'AS f', 'AS ts', 'AS span', 'AS b', 'AS d') : ('i.k', 'AS day', 'AS n', 'AS f', 'AS ts', 'AS span', 'AS b', 'AS d');
		is(value("$pinned SELECT count(*) FROM (($plain EXCEPT ALL SELECT $out FROM ${name}_out) UNION ALL (SELECT $out FROM ${name}_out EXCEPT ALL $plain)) d"), '0', "$when: $name is right");
	}
}

feed(100);
right('before');
delete $database{default_toast_compression} unless value("SELECT 'lz4' = ANY (enumvals) FROM pg_settings WHERE name = 'default_toast_compression'") eq 't';    # builds without it
while (my ($name, $setting) = each %role) { value("ALTER ROLE app SET $name = " . ($name eq 'search_path' ? $setting : "'$setting'")) }
while (my ($name, $setting) = each %database) { value("ALTER DATABASE postgres SET $name = '$setting'") }
value("SELECT pg_terminate_backend(pid) FROM stream.queries WHERE pid IS NOT NULL");
ok(status_is($node, $_, 'running', 30), "$_ runs with odd settings") for ('agg', 'agg_place', 'etl');
feed(100);
right('odd settings');
is(value('SELECT count(*) FROM trap'), '0', 'nothing of the hostile schema was called');
is(value("SELECT count(*) FROM stream.queries WHERE failures > 0 OR error IS NOT NULL"), '0', 'nothing failed');

# in the foreground, in a session with those settings; a statement_timeout of a session is the caller's own wish
value("ALTER ROLE app SET statement_timeout = 0; ALTER ROLE app SET idle_in_transaction_session_timeout = 0; ALTER ROLE app SET idle_session_timeout = 0; ALTER ROLE app SET default_transaction_read_only = off");
value('ALTER ROLE app RESET transaction_timeout') if exists $role{transaction_timeout};
$node->safe_psql('postgres', "CALL stream.process_all_available('by_hand')", @app);
is(value('SELECT count(*) FROM ((SELECT id, name, f, ts, span, b, d FROM by_hand_out EXCEPT ALL SELECT id, name, f, ts, span, b, d FROM etl_out) UNION ALL (SELECT id, name, f, ts, span, b, d FROM etl_out EXCEPT ALL SELECT id, name, f, ts, span, b, d FROM by_hand_out)) d'),
	'0', 'the foreground gives the same');
is(value('SELECT count(*) FROM trap'), '0', 'and calls nothing hostile');
my (undef, undef, $err) = $node->psql('postgres', "SET default_transaction_read_only = on; CALL stream.process_all_available('by_hand')", @app);
is($err, '', 'a read-only session that finds nothing to do writes nothing');

# a queue of errors does not follow from exit_on_error
value('ALTER ROLE app SET exit_on_error = on');
value("SELECT pg_terminate_backend(pid) FROM stream.queries WHERE name = 'etl'");
feed(10);
right('exit_on_error');
$node->stop;
done_testing();
