# Table sources under load: writers that commit in any order, roll back, and hold transactions open; every row arrives once. Then dump and restore.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::Bin/../lib";
use StreamNode;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main');

# Three queries over one table: as it comes, in small pieces, and as a table to upsert into.
$node->safe_psql('postgres', q{
	CREATE TABLE input_t (id bigserial, client int, n int);
	SELECT stream.create_source('input', 'table', options => '{"table": "input_t"}');
	CREATE TABLE other_t (n int);
});
create_query($node, 'every', 'SELECT id, client, n FROM input');
create_query($node, 'pieces', 'SELECT id, client, n FROM input', q{options => '{"max_rows_per_batch": 7}'});
create_query($node, 'totals', 'SELECT client, count(*) AS c, sum(n) AS s FROM input GROUP BY client', q{output_mode => 'update'});
ok(status_is($node, $_, 'running'), "$_ runs") for qw(every pieces totals);

my $script = PostgreSQL::Test::Utils::tempdir() . '/writer.sql';
append_to_file($script, q{
\set n random(1, 1000)
\set pause random(0, 8)
\set fate random(1, 10)
BEGIN;
INSERT INTO input_t (client, n) VALUES (:client_id, :n);
\sleep :pause ms
INSERT INTO input_t (client, n) SELECT :client_id, g FROM generate_series(1, :pause) g;
\if :fate = 1
ROLLBACK;
\elif :fate = 2
SAVEPOINT s;
INSERT INTO input_t (client, n) VALUES (:client_id, -1);
ROLLBACK TO s;
COMMIT;
\else
COMMIT;
\endif
});
# One transaction stays open over everything and has written first.
my $slow = $node->background_psql('postgres');
$slow->query_safe('BEGIN');
$slow->query_safe('INSERT INTO input_t (client, n) VALUES (-1, 5)');
$node->command_ok([ 'pgbench', '-n', '-c', '6', '-j', '1', '-t', '150', '-f', $script, 'postgres' ], 'writers');
$slow->query_safe('INSERT INTO input_t (client, n) VALUES (-1, 6)');
$node->safe_psql('postgres', "CALL stream.process_all_available('$_')") for qw(every pieces totals);
is($node->safe_psql('postgres', 'SELECT count(*) FROM every_out WHERE client = -1'), '0', 'the open transaction is not read');
$slow->query_safe('COMMIT');
$slow->quit;
ok(wait_for_sql($node, 'SELECT count(*) FROM every_out WHERE client = -1', '2'), 'its commit wakes the worker');
$node->safe_psql('postgres', "CALL stream.process_all_available('$_')") for qw(every pieces totals);
for my $query (qw(every pieces))
{
	is($node->safe_psql('postgres', qq{
		SELECT count(*) FROM ((SELECT id, client, n FROM input_t EXCEPT ALL SELECT id, client, n FROM ${query}_out)
		UNION ALL (SELECT id, client, n FROM ${query}_out EXCEPT ALL SELECT id, client, n FROM input_t)) d}), '0', "$query: each row once");
}
is($node->safe_psql('postgres', q{
	SELECT count(*) FROM ((SELECT client, count(*), sum(n) FROM input_t GROUP BY 1) EXCEPT (SELECT client, c, s FROM totals_out)) d}), '0', 'totals are right');
is($node->safe_psql('postgres', 'SELECT count(*) > 0, max(c) <= 7 FROM (SELECT count(*) AS c FROM pieces_out GROUP BY batch_id) b'), 't|t',
	'no piece is larger than the limit');

# The stamps of one client's transaction come in the order it wrote them.
is($node->safe_psql('postgres', q{
	SELECT count(*) FROM (SELECT id, lag(id) OVER (PARTITION BY stream_xid ORDER BY stream_seq) AS before FROM input_t) s WHERE id < before}), '0',
	'order within a transaction');

# Two-phase commit: no process of ours sees the commit coming.
$node->append_conf('postgresql.conf', 'max_prepared_transactions = 2');
$node->restart;
ok(status_is($node, 'every', 'running'), 'runs again after a restart');
$node->safe_psql('postgres', "BEGIN; INSERT INTO input_t (client, n) VALUES (-2, 1); PREPARE TRANSACTION 'p'");
$node->safe_psql('postgres', "CALL stream.process_all_available('every')");
is($node->safe_psql('postgres', 'SELECT count(*) FROM every_out WHERE client = -2'), '0', 'a prepared transaction is not read');
$node->safe_psql('postgres', "COMMIT PREPARED 'p'");
ok(wait_for_sql($node, 'SELECT count(*) FROM every_out WHERE client = -2', '1'), 'COMMIT PREPARED wakes the worker');

# Rows straight into a partition wake those who read the parent; the function sink works in a worker, batch after batch.
$node->safe_psql('postgres', q{
	CREATE TABLE parts (id int) PARTITION BY RANGE (id);
	CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (1) TO (10);
	SELECT stream.create_source('parts_stream', 'table', options => '{"table": "parts"}');
	CREATE TABLE calls (batch_id bigint, ids int[]);
	SET check_function_bodies = off;
	CREATE FUNCTION keep(batch_id bigint) RETURNS void LANGUAGE sql AS 'INSERT INTO calls SELECT $1, array_agg(id) FROM batch';
	SELECT stream.create_query('called', 'SELECT id FROM parts_stream', stream.to_function('keep'));
});
ok(status_is($node, 'called', 'running'), 'a query with a function sink runs');
for my $i (1 .. 3)
{
	$node->safe_psql('postgres', "INSERT INTO parts_1 VALUES ($i)");
	ok(wait_for_sql($node, "SELECT batch_id, ids FROM calls WHERE $i = ANY (ids)", ($i - 1) . "|{$i}"), "batch $i is handed to the function");
}

# Dump and restore: positions of the old database are refused; a fresh start reads everything, stamps of another cluster are renewed on request.
$node->safe_psql('postgres', "SELECT stream.stop_query(name) FROM stream.queries");
my $dump = PostgreSQL::Test::Utils::tempdir() . '/dump.sql';
$node->command_ok([ 'pg_dump', '-f', $dump, 'postgres' ], 'dump');
my $copy = PostgreSQL::Test::Cluster->new('copy');
$copy->init;
$copy->start;
$copy->safe_psql('postgres', 'CREATE DATABASE restored');
$copy->command_ok([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-f', $dump, 'restored' ], 'restore');
is($copy->safe_psql('restored', 'SELECT DISTINCT status FROM stream.queries'), 'stopped', 'queries come back stopped')
  or diag 'status of restored queries differs';
my (undef, undef, $err) = $copy->psql('restored', "CALL stream.process_all_available('every')");
like($err, qr/position of source public.input is of another database.*reset_query/s, 'old positions are refused');
$copy->safe_psql('restored', 'TRUNCATE every_out');
$copy->safe_psql('restored', "SELECT stream.reset_query('every')");
# A cluster whose transaction ids have not come as far as the dumped ones.
$copy->safe_psql('restored', q{
	ALTER TABLE input_t DISABLE TRIGGER stream_stamp;
	INSERT INTO input_t (client, n, stream_xid, stream_seq) VALUES (-3, 1, '99999999999', 1);
	ALTER TABLE input_t ENABLE ALWAYS TRIGGER stream_stamp;
});
(undef, undef, $err) = $copy->psql('restored', "CALL stream.process_all_available('every')");
like($err, qr/stamps of another database cluster.*prepare_table/s, 'stamps of the future are refused');
$copy->safe_psql('restored', "SELECT stream.prepare_table('input_t')");
$copy->safe_psql('restored', "CALL stream.process_all_available('every')");
is($copy->safe_psql('restored', 'SELECT count(*) FROM (SELECT id FROM input_t EXCEPT ALL SELECT id FROM every_out) d'), '0', 'everything is read');
$copy->safe_psql('restored', "INSERT INTO input_t (client, n) VALUES (-4, 1); CALL stream.process_all_available('every')");
is($copy->safe_psql('restored', 'SELECT count(*) FROM every_out WHERE client = -4'), '1', 'and it goes on');

done_testing();
