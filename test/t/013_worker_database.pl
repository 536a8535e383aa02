# Statements that a connected worker would block, or that take away what it runs on: it stops in time, or the statement is refused clearly.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::Bin/../lib";
use PostgreSQL::Test::Utils;
use StreamNode;
use Test::More;
use Time::HiRes qw(time);

my $node = new_node('main');
my ($rc, $out, $err);

sub database_with_query
{
	my ($db) = @_;
	$node->safe_psql('postgres', "CREATE DATABASE $db");
	$node->safe_psql($db, 'CREATE EXTENSION stream_ext');
	table_source($node, 'input', 'v int', $db);
	create_query($node, 'q', 'SELECT v FROM input', '', $db);
	ok(status_is($node, 'q', 'running', 20, $db), "a query runs in $db");
}

database_with_query('a');
$node->safe_psql('postgres', 'CREATE DATABASE b TEMPLATE a');
pass('CREATE DATABASE … TEMPLATE');
ok(status_is($node, 'q', 'running', 20, 'a'), 'the template\'s query goes on');
ok(status_is($node, 'q', 'stopped', 20, 'b'), 'its copy is stopped');
$node->safe_psql('b', "INSERT INTO input_t VALUES (100); SELECT stream.start_query('q')");
ok(wait_for_sql($node, 'SELECT status FROM stream.queries', 'running', 20, 'b'), 'until somebody starts it');
ok(wait_for_sql($node, 'SELECT count(*) FROM q_out WHERE v = 100', '1', 20, 'b'), 'and goes on where the template was');
$node->safe_psql('postgres', 'ALTER DATABASE b RENAME TO b2; ');
ok(wait_for_sql($node, 'SELECT status, pid IS NOT NULL FROM stream.queries', 'running|t', 20, 'b2'), 'a database of its own from then on');
$node->safe_psql('postgres', 'ALTER DATABASE b2 RENAME TO b');
is($node->safe_psql('b', 'SELECT id <> outside FROM stream.incarnation'), 't', 'which other systems know by another name');
is($node->safe_psql('a', 'SELECT id = outside FROM stream.incarnation'), 't', 'unlike the template');
# a copy has no replication slots, and does not touch those of the other
$node->append_conf('postgresql.conf', 'wal_level = logical');
$node->restart;
$node->safe_psql('a', q{CREATE TABLE log_t (k int PRIMARY KEY);
	SELECT stream.create_source('log', 'changes', options => '{"table": "log_t"}');
	SELECT stream.create_query('changes', 'SELECT op, k FROM log', stream.to_table('changes_out'))});
ok(wait_for_sql($node, 'SELECT count(*) FROM stream.change_slots WHERE wal_status IS NOT NULL', '1', 20, 'a'), 'a slot');
$node->safe_psql('postgres', 'CREATE DATABASE b3 TEMPLATE a');
is($node->safe_psql('b3', 'SELECT wal_status IS NULL FROM stream.change_slots'), 't', 'is not the copy\'s');
$node->safe_psql('b3', "INSERT INTO log_t VALUES (1); SELECT stream.start_query('changes')");
ok(wait_for_sql($node, "SELECT error LIKE '%this database is a copy%' FROM stream.queries WHERE name = 'changes'", 't', 20, 'b3'), 'there its query says so');
$node->safe_psql('b3', "SELECT stream.stop_query('changes'); SELECT stream.reset_query('changes'); SELECT stream.start_query('changes')");
ok(wait_for_sql($node, 'SELECT op, k FROM changes_out', 'r|1', 20, 'b3'), 'and begins again');
$node->safe_psql('b3', "SELECT stream.drop_query('changes')");
$node->safe_psql('a', 'INSERT INTO log_t VALUES (2)');
ok(wait_for_sql($node, 'SELECT op, k FROM changes_out', 'c|2', 20, 'a'), 'the other goes on');
$node->safe_psql('a', "SELECT stream.drop_query('changes')");
$node->safe_psql('postgres', 'DROP DATABASE b3');
$node->safe_psql('b', "SELECT stream.stop_query('q')");
ok(wait_for_sql($node, 'SELECT pid IS NOT NULL FROM stream.queries', 't', 20, 'a'), 'with a worker');
$node->safe_psql('postgres', 'ALTER DATABASE a RENAME TO c');
ok(wait_for_sql($node, 'SELECT status, pid IS NOT NULL FROM stream.queries', 'running|t', 20, 'c'), 'ALTER DATABASE … RENAME');
my $t = time;
$node->safe_psql('postgres', 'DROP DATABASE c');
cmp_ok(time - $t, '<', 3, 'DROP DATABASE while a query runs');
is(processes($node, 'worker'), 0, 'no worker is left');
ok(wait_for(sub { processes($node, 'supervisor') == 0 }), 'no supervisor is left');

# several at once
database_with_query($_) for ('a', 'a2');
$node->safe_psql('postgres', 'BEGIN; ALTER DATABASE a RENAME TO c; ALTER DATABASE a2 RENAME TO c2; COMMIT');
ok(wait_for_sql($node, 'SELECT status, pid IS NOT NULL FROM stream.queries', 'running|t', 20, $_), "two renamed in one transaction: the query in $_ goes on") for ('c', 'c2');
$node->safe_psql('postgres', 'BEGIN; ALTER DATABASE c RENAME TO a; ALTER DATABASE c2 RENAME TO a2; ROLLBACK');
ok(wait_for_sql($node, 'SELECT status, pid IS NOT NULL FROM stream.queries', 'running|t', 20, $_), "rolled back: the query in $_ goes on") for ('c', 'c2');
$node->safe_psql('postgres', "DROP DATABASE $_") for ('c', 'c2');

# no one else's business
database_with_query('d');
$node->safe_psql('postgres', 'CREATE ROLE stranger LOGIN');
my $pid = worker_pid($node, 'q', 'd');
for my $statement ('DROP DATABASE d', 'ALTER DATABASE d RENAME TO e', 'CREATE DATABASE e TEMPLATE d')
{
	($rc, $out, $err) = $node->psql('postgres', $statement, extra_params => [ '-U', 'stranger' ]);
	like($err, qr/must be owner|permission denied/, "$statement by a stranger is refused");
}
is(worker_pid($node, 'q', 'd'), $pid, 'and stops nothing');
($rc, $out, $err) = $node->psql('postgres', 'BEGIN; DROP DATABASE d');
like($err, qr/cannot run inside a transaction block/, 'refused by the server itself');
ok(wait_for_sql($node, 'SELECT status, pid IS NOT NULL FROM stream.queries', 'running|t', 20, 'd'), 'and the query comes back');

# DROP EXTENSION
$node->safe_psql('d', 'BEGIN; DROP EXTENSION stream_ext CASCADE; ROLLBACK');
ok(wait_for_sql($node, 'SELECT status, pid IS NOT NULL FROM stream.queries', 'running|t', 20, 'd'), 'DROP EXTENSION rolled back: the query comes back');
$t = time;
$node->safe_psql('d', 'DROP EXTENSION stream_ext CASCADE');
cmp_ok(time - $t, '<', 5, 'DROP EXTENSION while a query runs');
ok(wait_for(sub { processes($node, 'supervisor') == 0 && processes($node, 'worker') == 0 }), 'nobody is left');
$node->safe_psql('d', 'CREATE EXTENSION stream_ext');
table_source($node, 'input2', 'v int', 'd');
create_query($node, 'q2', 'SELECT v FROM input2', '', 'd');
ok(status_is($node, 'q2', 'running', 20, 'd'), 'installed again, it runs again');
$node->safe_psql('d', 'DROP SCHEMA stream CASCADE');
ok(wait_for(sub { processes($node, 'supervisor') == 0 && processes($node, 'worker') == 0 }), 'DROP SCHEMA … CASCADE takes the extension and stops its workers');
$node->safe_psql('postgres', 'DROP DATABASE d');

# roles
$node->safe_psql('postgres', 'CREATE ROLE app LOGIN; GRANT CREATE ON SCHEMA public TO app; GRANT USAGE ON FOREIGN SERVER stream_table TO app');
$node->safe_psql('postgres', q{CREATE TABLE a_t (v int); SELECT stream.create_source('a', 'table', options => '{"table": "a_t"}');
	SELECT stream.create_query('a', 'SELECT v FROM a', stream.to_table('a_out'))}, extra_params => [ '-U', 'app' ]);
ok(status_is($node, 'a', 'running'), 'a query of role app');
($rc, $out, $err) = $node->psql('postgres', 'DROP ROLE app');
like($err, qr/cannot be dropped because some objects depend on it/, 'DROP ROLE of an owner is refused');
my $log = -s $node->logfile;
$node->safe_psql('postgres', 'DROP OWNED BY app CASCADE');
is($node->safe_psql('postgres', 'SELECT status, pid IS NULL, error FROM stream.queries'),
	'failed|t|its view was dropped, with something it reads or with all its owner had', 'DROP OWNED stops the query, which says why');
is(processes($node, 'worker'), 0, 'its worker is gone');
my @lines = grep { /FATAL|"a"/ } split /\n/, slurp_file($node->logfile, $log);
cmp_ok(scalar(@lines), '<=', 10, 'quietly');
$node->safe_psql('postgres', "SELECT stream.drop_query('a')");

# connections are closed to a database
database_with_query('f');
$log = -s $node->logfile;
$node->safe_psql('postgres', 'ALTER DATABASE f ALLOW_CONNECTIONS false');
$node->safe_psql('postgres', "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'f'");
ok(wait_for(sub { processes($node, 'worker') == 0 && processes($node, 'supervisor') == 0 }), 'nobody connects to a closed database');
sleep 2;
@lines = grep { /FATAL/ && !/administrator command/ } split /\n/, slurp_file($node->logfile, $log);
is(scalar(@lines), 0, 'nor tries to');

$node->safe_psql('postgres', 'ALTER DATABASE f ALLOW_CONNECTIONS true');
ok(wait_for_sql($node, 'SELECT status, pid IS NOT NULL FROM stream.queries', 'running|t', 20, 'f'), 'opened again, its queries run again');

# COMMIT PREPARED
$node->append_conf('postgresql.conf', 'max_prepared_transactions = 5');
$node->restart;
table_source($node, 'p', 'v int');
create_query($node, 'p', 'SELECT v FROM p');
ok(status_is($node, 'p', 'running'), 'running');
$node->safe_psql('postgres', "BEGIN; INSERT INTO p_t VALUES (1); PREPARE TRANSACTION 'x'");
$node->safe_psql('postgres', 'SELECT pg_sleep(0.3)');
is($node->safe_psql('postgres', 'SELECT count(*) FROM p_out'), '0', 'prepared rows are not there');
$node->safe_psql('postgres', "COMMIT PREPARED 'x'");
ok(wait_for_sql($node, 'SELECT count(*) FROM p_out', '1'), 'COMMIT PREPARED wakes the worker');

# the extension's schema renamed: one line about it, not one a second; named back, all goes on
$node->safe_psql('postgres', 'ALTER SCHEMA stream RENAME TO elsewhere');
$log = -s $node->logfile;
$node->safe_psql('postgres', "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'postgres' AND backend_type LIKE 'stream_ext%'");
ok(wait_for(sub { slurp_file($node->logfile, $log) =~ /relation stream.\w+ does not exist/ }), 'the supervisor says what is missing');
sleep 3;
@lines = grep { /ERROR/ } split /\n/, slurp_file($node->logfile, $log);
cmp_ok(scalar(@lines), '<=', 2, 'each of them once');
$node->safe_psql('postgres', 'ALTER SCHEMA elsewhere RENAME TO stream');
ok(wait_for_sql($node, 'SELECT status, pid IS NOT NULL FROM stream.queries', 'running|t'), 'it runs again');
$node->stop;
done_testing();
