# Whose code runs as whom: the worker is the owner and nobody else, whatever triggers and functions try. And what listeners hear.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::Bin/../lib";
use StreamNode;
use Test::More;

my $node = new_node('main');
$node->safe_psql('postgres', q{
	CREATE ROLE app LOGIN;
	CREATE ROLE victim LOGIN SUPERUSER;
	GRANT CREATE ON SCHEMA public TO app;
	GRANT USAGE ON FOREIGN SERVER stream_table TO app;
});
my @app = (extra_params => [ '-U', 'app' ]);
$node->safe_psql('postgres', q{
	CREATE TABLE input_t (v int);
	SELECT stream.create_source('input', 'table', options => '{"table": "input_t"}');
	CREATE TABLE seen (what text, cur name, ses name, super text);
	CREATE FUNCTION note(what text) RETURNS void LANGUAGE sql AS $f$ INSERT INTO seen SELECT what, current_user, session_user, current_setting('is_superuser') $f$;
	CREATE FUNCTION exploit() RETURNS trigger LANGUAGE plpgsql AS $f$
	BEGIN
		PERFORM note('deferred');
		BEGIN EXECUTE 'ALTER ROLE app SUPERUSER'; PERFORM note('became superuser'); EXCEPTION WHEN insufficient_privilege THEN NULL; END;
		BEGIN EXECUTE 'RESET ROLE'; PERFORM note('reset'); EXCEPTION WHEN OTHERS THEN NULL; END;
		BEGIN EXECUTE 'SET SESSION AUTHORIZATION victim'; PERFORM note('became victim'); EXCEPTION WHEN OTHERS THEN NULL; END;
		RETURN NULL;
	END $f$;
	SELECT stream.create_query('q', 'SELECT v FROM input', stream.to_table('q_out'), start => false);
	CREATE CONSTRAINT TRIGGER t AFTER INSERT ON q_out DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION exploit();
	SELECT stream.start_query('q');
}, @app);
ok(status_is($node, 'q', 'running'), 'running');
$node->safe_psql('postgres', 'INSERT INTO input_t VALUES (1)', @app);
$node->safe_psql('postgres', "CALL stream.process_all_available('q')");
is($node->safe_psql('postgres', 'SELECT DISTINCT * FROM seen ORDER BY 1'), "deferred|app|app|off\nreset|app|app|off",
	'a deferred trigger runs as the owner, session and all, and gets no further');
is($node->safe_psql('postgres', "SELECT rolsuper FROM pg_roles WHERE rolname = 'app'"), 'f', 'the owner is no superuser now');

# SET ROLE in user code does not outlive its batch
$node->safe_psql('postgres', q{
	CREATE ROLE helper;
	GRANT helper TO app;
	GRANT INSERT ON seen TO helper;
});
$node->safe_psql('postgres', q{
	CREATE OR REPLACE FUNCTION exploit() RETURNS trigger LANGUAGE plpgsql AS $f$
	BEGIN
		PERFORM note('start');
		PERFORM set_config('role', 'helper', false);
		RETURN NULL;
	END $f$;
	TRUNCATE seen;
}, @app);
for my $v (2, 3)
{
	$node->safe_psql('postgres', "INSERT INTO input_t VALUES ($v)", @app);
	$node->safe_psql('postgres', "CALL stream.process_all_available('q')");
}
is($node->safe_psql('postgres', 'SELECT * FROM seen'), "start|app|app|off\nstart|app|app|off", 'each batch starts as the owner again');
is($node->safe_psql('postgres', "SELECT status, failures FROM stream.queries"), 'running|0', 'nothing failed');

# the owner is a role, not a name
$node->safe_psql('postgres', 'ALTER ROLE app RENAME TO app2; CREATE ROLE app LOGIN SUPERUSER');
$node->safe_psql('postgres', 'SELECT pg_terminate_backend(pid) FROM stream.queries');
$node->safe_psql('postgres', 'TRUNCATE seen; INSERT INTO input_t VALUES (30)');
$node->safe_psql('postgres', "CALL stream.process_all_available('q')");
is($node->safe_psql('postgres', 'SELECT * FROM seen'), 'start|app2|app2|off', 'a renamed owner stays the owner; a new role of that name gets nothing to run');
$node->safe_psql('postgres', 'DROP ROLE app; ALTER ROLE app2 RENAME TO app');

# a query cannot stop itself, nor wait for itself
$node->safe_psql('postgres', q{
	CREATE OR REPLACE FUNCTION exploit() RETURNS trigger LANGUAGE plpgsql AS $f$
	BEGIN
		BEGIN PERFORM stream.stop_query('q'); EXCEPTION WHEN OTHERS THEN INSERT INTO seen VALUES (SQLERRM); END;
		BEGIN PERFORM stream.await_termination('q'); EXCEPTION WHEN OTHERS THEN INSERT INTO seen VALUES (SQLERRM); END;
		RETURN NULL;
	END $f$;
	TRUNCATE seen;
}, @app);
$node->safe_psql('postgres', 'INSERT INTO input_t VALUES (4)', @app);
$node->safe_psql('postgres', "CALL stream.process_all_available('q')");
is($node->safe_psql('postgres', 'SELECT what FROM seen'), "a streaming query cannot stop itself\na streaming query cannot wait for itself", 'no query stops or awaits itself');

# user code that swallows cancels does not hold up a stop for ever
$node->safe_psql('postgres', q{
	CREATE OR REPLACE FUNCTION exploit() RETURNS trigger LANGUAGE plpgsql AS $f$
	BEGIN
		LOOP
			BEGIN PERFORM pg_sleep(60); EXCEPTION WHEN query_canceled THEN NULL; END;
		END LOOP;
	END $f$;
}, @app);
$node->safe_psql('postgres', 'INSERT INTO input_t VALUES (5)', @app);
ok(wait_for_sql($node, "SELECT is_trigger_active FROM stream.queries WHERE name = 'q'", 't'), 'stuck');
my $t = time;
$node->safe_psql('postgres', "SELECT stream.stop_query('q')");
cmp_ok(time - $t, '<', 20, 'stop_query ends it all the same');
$node->safe_psql('postgres', "SELECT stream.drop_query('q')");

# settings of the role do not reach the batch
$node->safe_psql('postgres', "ALTER ROLE app SET default_transaction_read_only = on; ALTER ROLE app SET DateStyle = 'German'");
$node->safe_psql('postgres', q{SET default_transaction_read_only = off; SET DateStyle = 'ISO';
	SELECT stream.create_query('s', $$SELECT v, date '2024-02-01'::text AS d FROM input$$, stream.to_table('s_out'))}, @app);
ok(wait_for_sql($node, 'SELECT DISTINCT d FROM s_out', '2024-02-01'), 'read-only and DateStyle of the role do not matter');
$node->safe_psql('postgres', "SELECT stream.drop_query('s')");

# events
my $listener = $node->background_psql('postgres');
$listener->query_safe('LISTEN stream_events');
my $id = $node->safe_psql('postgres', q{SELECT stream.create_query('e', 'SELECT v FROM input', stream.to_table('e_out'), trigger => stream.available_now())});
is($node->safe_psql('postgres', "SELECT stream.await_termination('e', '20 s')"), 't', 'finished');
my $heard = $listener->query_safe('SELECT 1');
$heard = join "\n", map { /payload "(.*)" received/ ? $1 : () } split /\n/, $heard;
$listener->quit;
is($heard, qq({"query_id": $id, "event": "start", "batch_id": null}\n{"query_id": $id, "event": "progress", "batch_id": 0}\n{"query_id": $id, "event": "termination", "batch_id": 0}),
	'events: start, progress, termination') or diag($heard);
$node->stop;
done_testing();
