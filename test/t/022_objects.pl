# What a running query stands on is dropped, altered, or taken away from its owner; the disk fills: refused, or a clean failure that says what is wrong; the server,
# the other queries and the position of the query stay whole.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::Bin/../lib";
use PostgreSQL::Test::Utils;
use StreamNode;
use Test::More;

my $node = new_node('main', 'restart_after_crash = on', 'autovacuum = off');
my ($rc, $out, $err);

sub value { return $node->safe_psql('postgres', shift) }

sub failed_with
{
	my ($state, $what) = @_;
	ok(status_is($node, 'q', 'failed'), "$what: the query fails");
	like(value("SELECT sqlstate FROM stream.queries WHERE name = 'q'"), qr/^($state)$/, "$what: with SQLSTATE $state") or diag(value("SELECT error FROM stream.queries WHERE name = 'q'"));
}

sub goes_on
{
	my ($what, $sum) = @_;
	value("SELECT stream.start_query('q')") if value("SELECT status FROM stream.queries WHERE name = 'q'") eq 'failed';
	ok(wait_for_sql($node, 'SELECT sum(v) FROM q_out', $sum), "$what: mended, it goes on with the same batch");
}

value(q{CREATE ROLE app LOGIN; GRANT CREATE ON SCHEMA public TO app; GRANT USAGE ON FOREIGN SERVER stream_table TO app});
my @app = (extra_params => [ '-U', 'app' ]);
$node->safe_psql('postgres', q{
	CREATE TABLE input_t (v int);
	SELECT stream.create_source('input', 'table', options => '{"table": "input_t"}');
	CREATE FUNCTION same(v int) RETURNS int LANGUAGE sql AS 'SELECT v';
	CREATE TABLE side (k int);
	CREATE TABLE watched (v int);
	CREATE TABLE q_out (a text, v int, batch_id bigint);
	SELECT stream.create_query('q', 'SELECT same(v) AS v, ''x''::text AS a FROM input WHERE NOT EXISTS (SELECT FROM side WHERE k = v)', stream.to_table('q_out'), options => '{"max_retries": 1}')}, @app);
table_source($node, 'beside', 'v int');
create_query($node, 'other', 'SELECT v FROM beside');
$node->safe_psql('postgres', 'INSERT INTO input_t VALUES (1)', @app);
ok(wait_for_sql($node, 'SELECT sum(v) FROM q_out', '1'), 'runs');

# ---- what it needs cannot be dropped
for my $drop ('DROP TABLE input_t', 'DROP FOREIGN TABLE input', 'DROP FUNCTION same(int)', 'DROP TABLE side', 'ALTER TABLE side DROP COLUMN k CASCADE; SELECT 1/0', 'DROP SCHEMA public')
{
	($rc, $out, $err) = $node->psql('postgres', "BEGIN; $drop; ROLLBACK", on_error_stop => 1, extra_params => [ '-U', $drop =~ /SCHEMA/ ? 'postgres' : 'app' ]);
	next if $drop =~ /1\/0/;
	like($err, qr/cannot drop .* because other objects depend on it/, "$drop is refused");
}
($rc, $out, $err) = $node->psql('postgres', "SELECT stream.drop_source('input')", @app);
like($err, qr/source "input" is read by streaming queries: q/, 'drop_source is refused');
ok(wait_for_sql($node, "SELECT status FROM stream.queries WHERE name = 'q'", 'running'), 'and the query goes on: a drop that was rolled back has only stopped its worker');

# ---- the target
$node->safe_psql('postgres', 'ALTER TABLE q_out DROP COLUMN a; ALTER TABLE q_out ADD COLUMN a text; INSERT INTO input_t VALUES (2)', @app);
ok(wait_for_sql($node, "SELECT sum(v), count(DISTINCT a) FROM q_out", '3|1'), 'columns in another order are matched by name');
is(value('SELECT count(*) FROM q_out WHERE v = 2 AND a = \'x\''), '1', 'each value in its own');
$node->safe_psql('postgres', 'ALTER TABLE q_out ALTER COLUMN v TYPE bigint; INSERT INTO input_t VALUES (3)', @app);
ok(wait_for_sql($node, 'SELECT sum(v) FROM q_out', '6'), 'a wider type is assigned to');
$node->safe_psql('postgres', 'ALTER TABLE q_out ALTER COLUMN v TYPE date USING NULL; INSERT INTO input_t VALUES (4)', @app);
failed_with('42804', 'a type that cannot be assigned');
$node->safe_psql('postgres', 'ALTER TABLE q_out ALTER COLUMN v TYPE int USING 3', @app);
goes_on('type changed back', '13');
$node->safe_psql('postgres', 'ALTER TABLE q_out RENAME TO q_moved; INSERT INTO input_t VALUES (5)', @app);
failed_with('42P01', 'target renamed');
$node->safe_psql('postgres', 'ALTER TABLE q_moved RENAME TO q_out', @app);
goes_on('renamed back', '18');
$node->safe_psql('postgres', 'DROP TABLE q_out; INSERT INTO input_t VALUES (6)', @app);
failed_with('42P01', 'target dropped');
is(value("SELECT last_batch_id FROM stream.queries WHERE name = 'q'"), value("SELECT max(batch_id) FROM stream.offset_log WHERE query_id = (SELECT id FROM stream.queries WHERE name = 'q')"),
	'nothing was logged: its position is what it was');
$node->safe_psql('postgres', 'CREATE TABLE q_out (v int, a text, batch_id bigint)', @app);
goes_on('made again', '6');

# ---- rights
my @cases = (
	[ 'REVOKE INSERT ON q_out FROM app', 'GRANT INSERT ON q_out TO app', '42501' ],
	[ 'REVOKE SELECT ON side FROM app', 'GRANT SELECT ON side TO app', '42501' ],
	[ 'REVOKE EXECUTE ON FUNCTION same(int) FROM PUBLIC, app', 'GRANT EXECUTE ON FUNCTION same(int) TO PUBLIC, app', '42501' ],
	[ 'REVOKE SELECT ON input FROM app', 'GRANT SELECT ON input TO app', '42501' ],
	[ 'REVOKE USAGE ON SCHEMA public FROM PUBLIC, app', 'GRANT USAGE ON SCHEMA public TO PUBLIC', '42501|3F000|42P01' ]);
my $v = 6;
my $sum = 6;
for my $case (@cases)
{
	my ($revoke, $grant, $state) = @$case;
	$v++;
	value($revoke);
	value("INSERT INTO input_t VALUES ($v)");
	failed_with($state, $revoke);
	value($grant);
	$sum += $v;
	goes_on($grant, $sum);
}

# ---- user code
value('CREATE OR REPLACE FUNCTION same(v int) RETURNS int LANGUAGE plpgsql AS $f$ BEGIN RETURN 1 / (v - v); END $f$; INSERT INTO input_t VALUES (100)');
failed_with('22012', 'a function replaced by a broken one');
value("CREATE OR REPLACE FUNCTION same(v int) RETURNS int LANGUAGE sql AS 'SELECT v'");
$sum += 100;
goes_on('function mended', $sum);
value('ALTER TABLE q_out ADD CONSTRAINT small CHECK (v < 150); INSERT INTO input_t VALUES (200)');
failed_with('23514', 'a constraint is violated');
value('ALTER TABLE q_out DROP CONSTRAINT small');
$sum += 200;
goes_on('constraint dropped', $sum);
value(q{CREATE FUNCTION die() RETURNS trigger LANGUAGE plpgsql AS $f$ BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); PERFORM pg_sleep(1); RETURN NEW; END $f$;
	CREATE TRIGGER die BEFORE INSERT ON q_out FOR EACH ROW EXECUTE FUNCTION die(); INSERT INTO input_t VALUES (300)});
ok(wait_for_sql($node, "SELECT count(*) >= 2 FROM stream.attempts WHERE query = 'q' AND outcome = 'lost'", 't'), 'a trigger that ends its own process');
value('DROP TRIGGER die ON q_out');
$sum += 300;
goes_on('trigger dropped', $sum);

# ---- a cursor that outlives the call whose rows it reads
value(q{CREATE FUNCTION hold(batch_id bigint) RETURNS void LANGUAGE plpgsql AS $f$ BEGIN EXECUTE 'DECLARE c CURSOR WITH HOLD FOR SELECT * FROM batch'; END $f$;
	SELECT stream.create_query('hold', 'SELECT v FROM input', stream.to_function('hold'), options => '{"max_retries": 0}')});
ok(wait_for_sql($node, "SELECT status, sqlstate FROM stream.queries WHERE name = 'hold'", 'failed|55000'), 'a cursor over a batch that is gone is an error');
like(value("SELECT error FROM stream.queries WHERE name = 'hold'"), qr/relation "batch" has no rows here/, 'that says so');
value("SELECT stream.drop_query('hold')");

# ---- what passes by itself is retried for ever, whatever max_retries says; everything else is not
my %class = ('53100' => 1, '53200' => 1, '53300' => 1, '40001' => 1, '40P01' => 1, '55P03' => 1, '57014' => 1, '58030' => 1, '08006' => 1, '57P01' => 1,
	'22003' => 0, '23505' => 0, '42501' => 0, 'P0001' => 0, 'XX000' => 0, '54000' => 0);
value('CREATE TABLE trouble (state text); INSERT INTO trouble VALUES (NULL)');
value(q{CREATE FUNCTION troubled(v int) RETURNS int LANGUAGE plpgsql AS $f$ DECLARE s text := (SELECT state FROM trouble);
	BEGIN IF s IS NOT NULL THEN RAISE EXCEPTION USING ERRCODE = s, MESSAGE = 'trouble ' || s; END IF; RETURN v; END $f$});
create_query($node, 'troubled', 'SELECT troubled(v) AS v FROM input', q{options => '{"max_retries": 0}'});
ok(status_is($node, 'troubled', 'running'), 'running');
my $n = 2000;
for my $state (sort keys %class)
{
	value("UPDATE trouble SET state = '$state'");
	value('INSERT INTO input_t VALUES (' . $n++ . ')');
	my $expected = $class{$state} ? "restarting|t|$state" : "failed|f|$state";
	ok(wait_for_sql($node, "SELECT status, failures > 1, sqlstate FROM stream.queries WHERE name = 'troubled'", $expected), "$state: " . ($class{$state} ? 'tried again and again' : 'final'));
	value('UPDATE trouble SET state = NULL');
	value("SELECT stream.start_query('troubled')");
	value("CALL stream.process_all_available('troubled')");
}
is(value('SELECT count(*), count(DISTINCT v) FROM troubled_out WHERE v >= 2000'), scalar(keys %class) . '|' . scalar(keys %class), 'and each row came once');
value("SELECT stream.drop_query('troubled'); DELETE FROM q_out WHERE v >= 2000");

# ---- the disk is full: a file that takes nothing, first the target's, then the state's
sub full_disk
{
	my ($relation, $query, $name) = @_;
	my $file = $node->data_dir . '/' . value("SELECT pg_relation_filepath('$relation')");
	is(-s $file, 0, "$relation is empty");
	rename($file, "$file.away") or die $!;
	symlink('/dev/full', $file) or die $!;
	value("SELECT stream.start_query('$name')");
	ok(wait_for_sql($node, "SELECT status, failures > 2, sqlstate, error ~ 'No space left on device' FROM stream.queries WHERE name = '$name'", 'restarting|t|53100|t'), "$relation: no space left: tried again for as long as it takes");
	unlink($file) or die $!;
	rename("$file.away", $file) or die $!;
	value("SELECT pg_terminate_backend(pid) FROM stream.queries WHERE name = '$name'");
	ok(status_is($node, $name, 'running', 30), "$relation: and goes on when there is");
}
create_query($node, 'disk', 'SELECT v FROM input', q{start => false, options => '{"max_retries": 0}'});
full_disk('disk_out', 'SELECT v FROM input', 'disk');
value("CALL stream.process_all_available('disk')");
is(value('SELECT sum(v), count(*) FROM disk_out'), value('SELECT sum(v), count(*) FROM input_t'), 'every row once');
create_query($node, 'state', 'SELECT v, count(*) AS n FROM input GROUP BY v', q{output_mode => 'update', start => false, options => '{"max_retries": 0}'});
full_disk('stream.state_change', '', 'state');
value("CALL stream.process_all_available('state')");
is(value('SELECT sum(v), sum(n) FROM state_out'), value('SELECT sum(v), count(*) FROM input_t'), 'every row once, in state');

# ---- the owner is taken apart: other roles' queries do not notice
value("SELECT stream.stop_query('disk'); SELECT stream.stop_query('state')");
value('INSERT INTO beside_t VALUES (1)');
value("CALL stream.process_all_available('other')");
is(value("SELECT (SELECT count(*) FROM other_out), status, attempts, s.failures FROM stream.queries q JOIN stream.stat s ON s.query = q.name WHERE q.name = 'other'"), '1|running|1|0',
	'the query beside it has noticed nothing of all this') or diag(value("SELECT * FROM stream.attempts WHERE query = 'other'"));
value('REASSIGN OWNED BY app TO postgres; INSERT INTO input_t VALUES (1000)');
ok(wait_for_sql($node, 'SELECT count(*) FROM q_out WHERE v = 1000', '1'), 'REASSIGN OWNED: the new owner runs it');
is(value("SELECT owner FROM stream.queries WHERE name = 'q'"), 'postgres', 'as its own');
my @crashes = grep { /terminated by signal|PANIC|TRAP/ } split /\n/, slurp_file($node->logfile);
is(scalar(@crashes), 0, 'no process crashed');
$node->stop;
done_testing();
