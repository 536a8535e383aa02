# Failing queries: back-off, max_retries, the error kept and raised, a quiet log; owners that cannot run; slots that are not there.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::Bin/../lib";
use PostgreSQL::Test::Utils;
use StreamNode;
use Test::More;

my $node = new_node('main');

# max_retries 0: the first failure is final
table_source($node, 'input', 'v int');
create_query($node, 'once', 'SELECT 6 / v AS r FROM input', q{options => '{"max_retries": 0}'});
$node->safe_psql('postgres', 'INSERT INTO input_t VALUES (0)');
ok(status_is($node, 'once', 'failed'), 'max_retries 0: failed');
is($node->safe_psql('postgres', "SELECT failures, pid IS NULL, error FROM stream.queries WHERE name = 'once'"), '1|t|division by zero', 'at the first failure');
my ($rc, $out, $err) = $node->psql('postgres', "\\set VERBOSITY verbose\nSELECT stream.await_termination('once', '5 seconds')");
like($err, qr/ERROR:  22012: division by zero/, 'await_termination raises it with its own SQLSTATE');
like($err, qr/CONTEXT:  streaming query "once"/, 'and names the query');
($rc, $out, $err) = $node->psql('postgres', "CALL stream.process_all_available('once')");
like($err, qr/division by zero/, 'in the foreground as well');
ok(wait_for(sub { processes($node, 'supervisor') == 0 }), 'nobody stays for a failed query');
$node->safe_psql('postgres', "SELECT stream.drop_query('once')");

# a failing user function: retries, context, log
$node->safe_psql('postgres', q{
	CREATE TABLE broken (yes bool);
	INSERT INTO broken VALUES (true);
	CREATE FUNCTION fragile(v int) RETURNS int LANGUAGE plpgsql AS $f$
	BEGIN IF EXISTS (SELECT FROM broken WHERE yes) THEN RAISE EXCEPTION USING ERRCODE = 'ZX001', MESSAGE = 'it broke', DETAIL = 'because', HINT = 'mend it'; END IF; RETURN v; END $f$});
my $log = -s $node->logfile;
create_query($node, 'f', 'SELECT fragile(v) AS v FROM input', q{options => '{"max_retries": 3}'});
ok(status_is($node, 'f', 'failed'), 'failed after max_retries');
is($node->safe_psql('postgres', "SELECT failures FROM stream.queries WHERE name = 'f'"), '4', 'first attempt and three retries');
my $error = $node->safe_psql('postgres', "SELECT error FROM stream.queries WHERE name = 'f'");
like($error, qr/^it broke\nDETAIL:  because\nHINT:  mend it\nCONTEXT:  PL\/pgSQL function fragile/, 'error with detail, hint and context');
($rc, $out, $err) = $node->psql('postgres', "\\set VERBOSITY verbose\nSELECT stream.await_termination('f')");
like($err, qr/ERROR:  ZX001: it broke\nDETAIL:  DETAIL:  because/, 'all of it is raised');
my @lines = grep { /"f"|it broke|because/ } split /\n/, slurp_file($node->logfile, $log);
cmp_ok(scalar(@lines), '<=', 10, 'no more than ten lines in the log');
like(join("\n", @lines), qr/failed for good after 4 attempts: ZX001: it broke/, 'the last word among them');

# mended, it goes on; nothing is lost
$node->safe_psql('postgres', "UPDATE broken SET yes = false; SELECT stream.start_query('f'); ");
$node->safe_psql('postgres', "CALL stream.process_all_available('f')");
is($node->safe_psql('postgres', 'SELECT v FROM f_out'), '0', 'started again, the same batch succeeds');
is($node->safe_psql('postgres', "SELECT status, failures, error IS NULL FROM stream.queries WHERE name = 'f'"), 'running|0|t', 'and the failure is forgotten');

# errors of any length: said in the log, in few lines; kept, but not all of it
$node->safe_psql('postgres', q{CREATE FUNCTION verbose(v int) RETURNS int LANGUAGE plpgsql AS $f$
	BEGIN RAISE EXCEPTION USING MESSAGE = E'first\n' || repeat(E'wordy\n', 50) || repeat('ä', 1000000), DETAIL = repeat('ö', 1000000), HINT = repeat(E'wordy\n', 50); END $f$});
$log = -s $node->logfile;
create_query($node, 'wordy', 'SELECT verbose(v) AS v FROM input', q{options => '{"max_retries": 4}'});
ok(status_is($node, 'wordy', 'failed'), 'a wordy failure');
my $said = slurp_file($node->logfile, $log);
like($said, qr/query "wordy" failed, next attempt in \d+ ms: P0001: first\n\twordy/, 'is said in the log');
cmp_ok(scalar(() = $said =~ /"wordy"|^\s*wordy/mg), '<=', 10, 'in at most ten lines');
cmp_ok(length($said), '<', 20000, 'that are not long');
is($node->safe_psql('postgres', "SELECT length(error) BETWEEN 8000 AND 30000, error ~ 'HINT:  wordy' FROM stream.queries WHERE name = 'wordy'"), 't|t', 'and kept with all its parts');
$node->safe_psql('postgres', "SELECT stream.drop_query('wordy')");

# transient causes are retried for ever, whatever max_retries says
$node->safe_psql('postgres', "SELECT stream.stop_query('f'); ALTER ROLE postgres SET lock_timeout = '200ms'");
$node->safe_psql('postgres', q{SELECT stream.alter_query('f', options => '{"max_retries": 0}')});
$node->safe_psql('postgres', "SELECT stream.start_query('f')");
ok(status_is($node, 'f', 'running'), 'running');
my $locker = $node->background_psql('postgres');
$locker->query_safe('SET lock_timeout = 0; BEGIN; LOCK TABLE f_out IN ACCESS EXCLUSIVE MODE');
$node->safe_psql('postgres', 'INSERT INTO input_t VALUES (7)');
ok(wait_for_sql($node, "SELECT failures >= 2 AND error LIKE 'canceling statement due to lock timeout%' FROM stream.queries WHERE name = 'f'", 't'), 'lock timeouts are retried');
$locker->query_safe('COMMIT');
$locker->quit;
ok(wait_for_sql($node, 'SELECT count(*) FROM f_out', '2'), 'until the lock is gone');
ok(wait_for_sql($node, "SELECT status, failures FROM stream.queries WHERE name = 'f'", 'running|0'), 'and then it runs');
$node->safe_psql('postgres', "ALTER ROLE postgres RESET lock_timeout; SELECT stream.drop_query('f')");

# a long failure: at most ten lines a minute
$node->safe_psql('postgres', 'UPDATE broken SET yes = true');
$log = -s $node->logfile;
create_query($node, 'long', 'SELECT fragile(v) AS v FROM input', q{options => '{"max_retries": 1000}'});
ok(wait_for_sql($node, "SELECT failures >= 7 FROM stream.queries WHERE name = 'long'", 't', 40), 'seven failures');
ok(status_is($node, 'long', 'restarting'), 'restarting between attempts');
@lines = grep { /"long"|it broke/ } split /\n/, slurp_file($node->logfile, $log);
cmp_ok(scalar(@lines), '<=', 10, 'at most ten lines in them');
# start_query on a query that waits after an error begins anew
$node->safe_psql('postgres', "UPDATE broken SET yes = false; SELECT stream.start_query('long')");
ok(wait_for_sql($node, 'SELECT count(*) FROM long_out', '2', 5), 'start_query does not wait for the back-off');
$node->safe_psql('postgres', "SELECT stream.drop_query('long')");

# owners
$node->safe_psql('postgres', 'CREATE ROLE nologin NOLOGIN; CREATE ROLE app LOGIN; GRANT ALL ON SCHEMA public TO app, nologin');
$node->safe_psql('postgres', 'GRANT USAGE ON FOREIGN SERVER stream_table TO app, nologin');
my $sql = q{CREATE TABLE %1$s_t (v int); SELECT stream.create_source('%1$s', 'table', options => '{"table": "%1$s_t"}');
	SELECT stream.create_query('%1$s', 'SELECT v FROM %1$s', stream.to_table('%1$s_out'))};
($rc, $out, $err) = $node->psql('postgres', 'SET ROLE nologin; ' . sprintf($sql, 'n'), on_error_stop => 1);
like($err, qr/cannot run: its owner, role "nologin", may not log in/, 'an owner without LOGIN is refused at creation');
$node->safe_psql('postgres', sprintf($sql, 'a'), extra_params => [ '-U', 'app' ]);
ok(status_is($node, 'a', 'running'), 'a plain role runs its query');
is($node->safe_psql('postgres', "SELECT usename FROM pg_stat_activity WHERE backend_type = 'stream_ext worker'"), 'app', 'as itself');
$log = -s $node->logfile;
$node->safe_psql('postgres', "ALTER ROLE app NOLOGIN; SELECT pg_terminate_backend(pid) FROM stream.queries WHERE name = 'a'");
ok(status_is($node, 'a', 'failed'), 'an owner that lost LOGIN fails the query');
like($node->safe_psql('postgres', "SELECT error FROM stream.queries WHERE name = 'a'"), qr/role "app", may not log in/, 'which says why');
$node->safe_psql('postgres', 'ALTER ROLE app LOGIN');
($rc, $out, $err) = $node->psql('postgres', "REVOKE CONNECT ON DATABASE postgres FROM PUBLIC; SELECT stream.start_query('a')");
like($err, qr/may not connect to database "postgres"/, 'CONNECT is checked at start');
$node->safe_psql('postgres', "GRANT CONNECT ON DATABASE postgres TO PUBLIC; SELECT stream.start_query('a')");
ok(status_is($node, 'a', 'running'), 'runs again');
$node->safe_psql('postgres', "REVOKE CONNECT ON DATABASE postgres FROM PUBLIC; SELECT pg_terminate_backend(pid) FROM stream.queries WHERE name = 'a'");
ok(status_is($node, 'a', 'failed'), 'and before each launch');
$node->safe_psql('postgres', 'GRANT CONNECT ON DATABASE postgres TO PUBLIC');
my @fatal = grep { /FATAL/ && !/administrator command/ } split /\n/, slurp_file($node->logfile, $log);
is(scalar(@fatal), 0, 'without a FATAL in the log');

# others' queries
$node->safe_psql('postgres', 'CREATE ROLE other LOGIN');
for my $call ("stream.start_query('a')", "stream.stop_query('a')", "stream.await_termination('a', '1 s')")
{
	($rc, $out, $err) = $node->psql('postgres', "SELECT $call", extra_params => [ '-U', 'other' ]);
	like($err, qr/must be owner/, "$call needs the owner");
}
$node->safe_psql('postgres', "SELECT stream.start_query('a')");
ok(status_is($node, 'a', 'running'), 'running');
is($node->safe_psql('postgres', 'SELECT count(*) FROM stream.worker_status()', extra_params => [ '-U', 'other' ]), '0', 'others do not see its worker');
is($node->safe_psql('postgres', 'SELECT count(*) FROM stream.worker_status()', extra_params => [ '-U', 'app' ]), '1', 'its owner does');
$node->safe_psql('postgres', "SELECT stream.drop_query('a')");

# slots: launcher, supervisor, logical replication launcher and one worker
$node->append_conf('postgresql.conf', "max_worker_processes = 4\nmax_logical_replication_workers = 1\nmax_parallel_workers = 0\n");
$node->restart;
$log = -s $node->logfile;
create_query($node, 's1', 'SELECT v FROM input');
ok(status_is($node, 's1', 'running'), 'the last free worker');
create_query($node, 's2', 'SELECT v FROM input');
create_query($node, 's3', 'SELECT v FROM input');
ok(wait_for_sql($node, "SELECT count(*) FROM stream.queries WHERE error LIKE '%no background worker is free%max_worker_processes%'", '2'), 'those without one say so');
sleep 3;
@lines = grep { /has to wait: no background worker is free/ } split /\n/, slurp_file($node->logfile, $log);
is(scalar(@lines), 2, 'once each');
$node->safe_psql('postgres', "SELECT stream.stop_query('s1')");
ok(wait_for_sql($node, "SELECT count(*) FROM stream.queries WHERE status = 'running'", '1', 15), 'a free one is used');
my $first = $node->safe_psql('postgres', "SELECT name FROM stream.queries WHERE status = 'running'");
$node->safe_psql('postgres', "SELECT stream.stop_query('$first')");
ok(wait_for_sql($node, "SELECT count(*) FROM stream.queries WHERE status = 'running' AND name <> '$first'", '1', 15), 'by each in turn');
$node->safe_psql('postgres', 'SELECT stream.drop_query(name) FROM stream.queries');

$node->append_conf('postgresql.conf', "max_worker_processes = 20\nstream_ext.max_queries = 1\n");
$node->restart;
create_query($node, 'm1', 'SELECT v FROM input');
ok(status_is($node, 'm1', 'running'), 'the only slot');
create_query($node, 'm2', 'SELECT v FROM input');
ok(wait_for_sql($node, "SELECT error LIKE '%stream_ext.max_queries%' FROM stream.queries WHERE name = 'm2'", 't'), 'max_queries is named');
$node->safe_psql('postgres', "SELECT stream.drop_query('m1')");
ok(status_is($node, 'm2', 'running', 15), 'a free slot is used');
$node->stop;
done_testing();
