# Targets on another server (postgres_fdw): it commits just before this one does, so a crash between the two leaves the rows of a batch that comes again.
# By its batch id they are taken back; under SIGKILL, at that very place as well, every row is there once.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::Bin/../lib";
use PostgreSQL::Test::Utils;
use StreamKill;
use StreamNode;
use Test::More;

my $kills = kills_wanted(10, 70);
my $node = node_to_kill('wal_level = minimal', 'max_wal_senders = 0', 'synchronous_commit = off');
my $far = new_node('far');
$far->safe_psql('postgres', q{
	CREATE TABLE kept (batch_id bigint, id bigint); CREATE INDEX ON kept (batch_id);
	CREATE TABLE part (batch_id bigint, id bigint);
	CREATE TABLE plain (id bigint)});
my ($host, $port) = ($far->host, $far->port);
my $user = $node->safe_psql('postgres', 'SELECT current_user');
$node->safe_psql('postgres', qq{
	CREATE EXTENSION postgres_fdw;
	CREATE SERVER far FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '$host', port '$port', dbname 'postgres');
	CREATE USER MAPPING FOR CURRENT_USER SERVER far OPTIONS (user '$user');
	CREATE FOREIGN TABLE kept (batch_id bigint, id bigint) SERVER far;
	CREATE FOREIGN TABLE plain (id bigint) SERVER far;
	CREATE TABLE part (batch_id bigint, id bigint) PARTITION BY LIST (id);
	CREATE FOREIGN TABLE part_far PARTITION OF part DEFAULT SERVER far OPTIONS (table_name 'part');
	CREATE TABLE t (id bigint GENERATED ALWAYS AS IDENTITY);
	SELECT stream.create_source('s', 'table', options => '{"table": "t"}')});
$node->safe_psql('postgres', qq{
	SELECT stream.create_query('$_', 'SELECT id FROM s', stream.to_table('$_'), options => '{"max_rows_per_batch": 40, "max_retries": 1000000}')}) for qw(kept part plain);

kill_workers($kills, [qw(committing logged committing executed committing sunk committed)], sub {
	try_psql('INSERT INTO t SELECT FROM generate_series(1, ' . (1 + int(rand(60))) . ')');
});
wait_psql('INSERT INTO t SELECT FROM generate_series(1, 10)');
drained('', qw(kept part plain));
my $rows = $node->safe_psql('postgres', 'SELECT count(*) FROM t');
is($far->safe_psql('postgres', "SELECT count(*), count(DISTINCT id) FROM $_"), "$rows|$rows", "$_: every row once") for qw(kept part);
is($far->safe_psql('postgres', 'SELECT count(DISTINCT id) FROM plain'), $rows, 'without a batch id: none lost');
logs_are_whole();

# The place between the two commits, for certain.
$node->safe_psql('postgres', 'SELECT stream.stop_query(name) FROM stream.queries');
$node->safe_psql('postgres', 'INSERT INTO t DEFAULT VALUES');
for my $query (qw(kept plain))
{
	my ($code, undef, $error) = $node->psql('postgres', "SET stream_ext.failpoints = 'committing:1:error'; CALL stream.process_all_available('$query')");
	like($error, qr/failpoint reached at step "committing"/, "$query: this server does not commit");
	is($far->safe_psql('postgres', "SELECT count(*) FROM $query"), $rows + 1, "$query: the other has") if $query eq 'kept';
	$node->safe_psql('postgres', "CALL stream.process_all_available('$query')");
}
is($far->safe_psql('postgres', 'SELECT count(*), count(DISTINCT id) FROM kept'), ($rows + 1) . '|' . ($rows + 1), 'the batch comes again, its rows once');
cmp_ok($far->safe_psql('postgres', 'SELECT count(*) FROM plain'), '>=', $rows + 2, 'without a batch id twice');

# Another query in the same table: whose rows they are nobody knows.
$node->safe_psql('postgres', q{SELECT stream.create_query('second', 'SELECT -id AS id FROM s', stream.to_table('kept'), start => false)});
$node->safe_psql('postgres', 'INSERT INTO t DEFAULT VALUES');
$node->psql('postgres', "SET stream_ext.failpoints = 'committing:1:error'; CALL stream.process_all_available('kept')");
my (undef, undef, $warning) = $node->psql('postgres', "CALL stream.process_all_available('kept')");
like($warning, qr/may come twice into public.kept.*Query "second" writes there as well/s, 'with two queries a warning');
$node->safe_psql('postgres', "SELECT stream.drop_query('second')");

# Afresh: ids begin again, what is there stays.
$node->safe_psql('postgres', "SELECT stream.reset_query('kept'); CALL stream.process_all_available('kept')");
cmp_ok($far->safe_psql('postgres', 'SELECT count(*) FROM kept'), '>=', 2 * $rows, 'a reset takes nothing back');
$node->stop;
$far->stop;
done_testing();
