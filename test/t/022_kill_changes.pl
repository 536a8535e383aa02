# As 020_kill over the changes of a table: rows that are inserted, updated and deleted while queries begin, run and die. Every change comes once, in the
# order of its row's versions, behind the row as it was when the query began.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::Bin/../lib";
use StreamKill;
use StreamNode;
use PostgreSQL::Test::Utils;
use Test::More;

my $kills = kills_wanted(12);
my $node = node_to_kill('wal_level = logical', 'max_wal_senders = 2', 'max_replication_slots = 5');

# Each change of a row raises its version, and is written down in the same transaction.
$node->safe_psql('postgres', q{
	CREATE TABLE item (id int PRIMARY KEY, version int NOT NULL DEFAULT 1, store int);
	CREATE TABLE ledger (op text, id int, version int, store int);
	CREATE FUNCTION write_down() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		IF TG_OP = 'UPDATE' THEN INSERT INTO ledger VALUES ('u', NEW.id, NEW.version, NEW.store);
		ELSIF TG_OP = 'INSERT' THEN INSERT INTO ledger VALUES ('c', NEW.id, NEW.version, NEW.store);
		ELSE INSERT INTO ledger VALUES ('d', OLD.id, OLD.version, OLD.store);
		END IF;
		RETURN NULL;
	END $$;
	CREATE TRIGGER write_down AFTER INSERT OR UPDATE OR DELETE ON item FOR EACH ROW EXECUTE FUNCTION write_down();
	ALTER TABLE item REPLICA IDENTITY FULL;
	SELECT stream.create_source('change', 'changes', options => '{"table": "item"}');
	INSERT INTO item SELECT i, 1, i % 5 FROM generate_series(1, 300) i;
});

my ($next, $begun) = (300, 0);

sub change_something
{
	my $fate = int(rand(10));
	my $from = $next + 1;
	$next += 1 + int(rand(20));
	my $end = $fate == 0 ? 'ROLLBACK' : 'COMMIT';
	my $store = int(rand(5));
	my $mod = 5 + int(rand(40));
	# Nothing goes before the queries have begun: they would never hear of it.
	my $delete = $begun ? "DELETE FROM item WHERE id > 10 AND id % $mod = 2;" : '';
	# Ids are never used again, so that a row's versions tell its whole story.
	return try_psql("BEGIN; INSERT INTO item SELECT i, 1, i % 5 FROM generate_series($from, $next) i; "
		  . "UPDATE item SET version = version + 1, store = $store WHERE id > 10 AND id % $mod = 1; SAVEPOINT s; DELETE FROM item WHERE id > 10; ROLLBACK TO s; "
		  . "$delete $end");
}

# The queries begin while others write.
my $writer = $node->background_psql('postgres');
$writer->query_safe('BEGIN; UPDATE item SET version = version + 1 WHERE id <= 10');
$node->safe_psql('postgres', q{
	SELECT stream.create_query('every', 'SELECT op, id, version, store FROM change', stream.to_table('every_out'), options => '{"max_retries": 1000000}');
	SELECT stream.create_query('pieces', 'SELECT op, id, version, store FROM change', stream.to_table('pieces_out'),
		options => '{"max_retries": 1000000, "max_rows_per_batch": 23}');
	SELECT stream.create_query('newest', 'SELECT id, max(version) AS version, bool_or(op = ''d'') AS gone FROM change GROUP BY id', stream.to_table('newest_out'),
		output_mode => 'update', options => '{"max_retries": 1000000}');
	SELECT stream.create_query('copy', 'SELECT op, id, version, store FROM change', stream.to_table('copy_out', '{"key": ["id"], "op_column": "op"}'),
		options => '{"max_retries": 1000000, "max_rows_per_batch": 37}')});
change_something() for 1 .. 5;
ok(wait_for_sql($node, 'SELECT (SELECT count(*) FROM pg_replication_slots), (SELECT count(*) FROM stream.change_slot)', '4|0'), 'queries wait for a transaction that began before them');
$writer->query_safe('COMMIT');
$writer->quit;
ok(wait_for_sql($node, 'SELECT count(*) FROM stream.change_slot', '4'), 'and begin when it has ended');
$begun = 1;
kill_workers($kills, [qw(triggered planned logged executed sunk committing committed)], \&change_something);
wait_psql('INSERT INTO item VALUES (-1)');
drained('', qw(every pieces newest copy));

for my $query (qw(every pieces))
{
	$node->safe_psql('postgres', "CREATE VIEW ${query}_first AS SELECT id, version FROM ${query}_out WHERE op = 'r'");
	is_same("SELECT op, id, version, store FROM ledger l WHERE NOT EXISTS (SELECT FROM ${query}_first f WHERE f.id = l.id AND f.version >= l.version AND l.op <> 'd')",
		"SELECT op, id, version, store FROM ${query}_out WHERE op <> 'r'", "$query: every change once");
	is_same("SELECT id, version, store FROM ledger l JOIN ${query}_first f USING (id, version) WHERE op <> 'd'", "SELECT id, version, store FROM ${query}_out WHERE op = 'r'",
		"$query: rows that were there as they were");
	is_same('SELECT id, version, store FROM item',
		"SELECT id, version, store FROM (SELECT DISTINCT ON (id) * FROM ${query}_out ORDER BY id, batch_id DESC, version DESC, op = 'd' DESC) l WHERE op <> 'd'",
		"$query: the last of each row is the table");
	is($node->safe_psql('postgres', "SELECT count(*) FROM (SELECT batch_id < max(batch_id) OVER (PARTITION BY id ORDER BY version, op = 'd') AS back FROM ${query}_out) o WHERE back"),
		'0', "$query: in order");
}
is_same('TABLE item', 'SELECT id, version, store FROM copy_out', 'a copy of the table');
my $newest = 'SELECT id, max(version), bool_or(op = \'d\') FROM ledger GROUP BY id';
is_same($newest, 'SELECT id, version, gone FROM newest_out', 'groups are those of a plain SELECT');
is_same($newest, q{SELECT (key->>'id')::int, (value->>'version')::int, (value->>'gone')::boolean FROM stream.state('newest')}, 'and so is their state');
logs_are_whole();

# Slots go on with the queries, and with a table that does not change.
$node->safe_psql('postgres', 'CREATE TABLE noise (n int)');
$node->safe_psql('postgres', 'INSERT INTO noise SELECT generate_series(1, 100000)');
my $lsn = $node->safe_psql('postgres', 'SELECT pg_current_wal_lsn()');
ok(wait_for_sql($node, "SELECT bool_and(confirmed_flush_lsn >= '$lsn') FROM pg_replication_slots", 't'), 'slots of idle queries go on');
is($node->safe_psql('postgres', 'SELECT count(*) FROM stream.change_row'), '0', 'nothing is kept');
unlike(slurp_file($node->logfile), qr/starting logical decoding for slot/, 'batches leave no trace of decoding in the log');

# One slot is left for two more queries; they say so and begin when there is one.
$node->safe_psql('postgres', q{SELECT stream.create_query('n' || i, 'SELECT id FROM change', stream.to_table('n' || i || '_out')) FROM generate_series(1, 2) i});
ok(wait_for_sql($node, q{SELECT count(*) > 0 FROM stream.queries WHERE error LIKE '%all replication slots are in use%'}, 't'), 'slots are exhausted, which a query says');
$node->safe_psql('postgres', "SELECT stream.drop_query('pieces')");
ok(wait_for_sql($node, q{SELECT count(*) FROM stream.queries WHERE name IN ('n1', 'n2') AND status = 'running' AND last_batch_id >= 0}, '2', 60), 'and goes on when one is free');
$node->safe_psql('postgres', 'SELECT stream.drop_query(name) FROM stream.queries');
is($node->safe_psql('postgres', 'SELECT count(*) FROM pg_replication_slots'), '0', 'slots go with their queries');

# Rows that were there go with the first changes; a batch of changes that does not come to be logged takes nothing with it, and the next one does.
$node->safe_psql('postgres', q{CREATE TABLE small (id int PRIMARY KEY);
	INSERT INTO small VALUES (1), (2);
	SELECT stream.create_source('small_change', 'changes', options => '{"table": "small"}')});
$node->safe_psql('postgres', q{SELECT stream.create_query('small', 'SELECT op, id FROM small_change', stream.to_table('small_out'), start => false)});
$node->safe_psql('postgres', "CALL stream.run_batch('small', NULL)");
is($node->safe_psql('postgres', 'SELECT count(*) FROM stream.change_row'), '2', 'rows that were there are kept until changes are read');
my $logs = $node->background_psql('postgres');
$logs->query_safe('BEGIN; LOCK TABLE stream.offset_entry IN SHARE MODE');
$node->safe_psql('postgres', "INSERT INTO small VALUES (3); SELECT stream.start_query('small')");
my $waits = "SELECT count(pg_cancel_backend(pid)) FROM pg_locks WHERE NOT granted AND relation = 'stream.offset_entry'::regclass";
ok(wait_for_sql($node, $waits, '1'), 'a batch cannot be logged');
ok(wait_for_sql($node, "SELECT failures, sqlstate FROM stream.queries WHERE name = 'small'", '1|57014'), 'it is given up, and tried again');
$logs->query_safe('COMMIT');
$logs->quit;
ok(wait_for_sql($node, "SELECT string_agg(op || id, ' ' ORDER BY id) FROM small_out", 'r1 r2 c3'), 'all arrives');
$node->safe_psql('postgres', "INSERT INTO small VALUES (4); CALL stream.process_all_available('small')");
is($node->safe_psql('postgres', 'SELECT count(*) FROM stream.change_row'), '0', 'and nothing is kept');
$node->safe_psql('postgres', "SELECT stream.drop_query('small')");

# Dropped while it begins: it waits for a transaction, its slot is there and nothing tells of it yet.
my $slow = $node->background_psql('postgres');
$slow->query_safe('BEGIN; INSERT INTO noise VALUES (0)');
$node->safe_psql('postgres', q{SELECT stream.create_query('begins', 'SELECT id FROM change', stream.to_table('begins_out'))});
ok(wait_for_sql($node, 'SELECT (SELECT count(*) FROM pg_replication_slots), (SELECT count(*) FROM stream.change_slot)', '1|0'), 'a query begins');
$node->safe_psql('postgres', q{SELECT stream.stop_query('begins')});
$node->safe_psql('postgres', q{SELECT stream.drop_query('begins')});
is($node->safe_psql('postgres', 'SELECT count(*) FROM pg_replication_slots'), '0', 'its slot goes as well');
$slow->query_safe('COMMIT');
$slow->quit;

# The way out where the log does not say what is needed.
$node->append_conf('postgresql.conf', 'wal_level = replica');
$node->restart;
my (undef, undef, $error) = $node->psql('postgres', q{SELECT stream.create_source('c2', 'changes', options => '{"table": "item"}')});
like($error, qr/wal_level is too low.*wal_level = logical/s, 'wal_level is too low');
(undef, undef, $error) = $node->psql('postgres', q{SELECT stream.create_query('late', 'SELECT id FROM change', stream.to_table('late_out'))});
like($error, qr/wal_level is too low/s, 'also for a query over a source that is there');
$node->safe_psql('postgres', q{SELECT stream.drop_source('change')});
$node->stop;
done_testing();
