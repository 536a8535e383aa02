# What messages may be written in besides JSON: CSV, text, bytes; and change events, applied to a table in the order of its keys.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use StreamBroker;
use StreamNode;
use Test::More;

my $node = new_node('main');
my $broker = StreamBroker->new;
my $server = $broker->bootstrap;
$node->safe_psql('postgres', qq(CREATE SERVER k FOREIGN DATA WRAPPER stream_kafka OPTIONS ("bootstrap.servers" '$server')));

sub source
{
	my ($name, $columns, $options, $topic) = @_;
	$topic //= $name;
	$node->safe_psql('postgres',
		qq(SELECT stream.create_source('$name', 'kafka', \$c\$$columns\$c\$, \$o\${"server": "k", "topic": "$topic", "starting_offsets": "earliest", $options}\$o\$)));
	return;
}

sub query
{
	my ($name, $sql, $sink) = @_;
	$sink //= "stream.to_table('${name}_out')";
	$node->safe_psql('postgres', "SELECT stream.create_query('$name', \$\$$sql\$\$, $sink, start => false)");
	return;
}

sub drain
{
	my ($name) = @_;
	$node->safe_psql('postgres', "CALL stream.process_all_available('$name')");
	return;
}

sub is_sql
{
	my ($sql, $expected, $what) = @_;
	is($node->safe_psql('postgres', $sql), $expected, $what);
	return;
}

sub hex_of { return 'hex:' . unpack('H*', $_[0]); }

# CSV: a record a message. Good and bad ones are the input; an empty message and a tombstone look alike, so both are bad rows.
$broker->ask('create csv 2');
my @good = ('1,ann,2026-03-01T10:00:00Z', '2,"a, ""b""",', hex_of(qq(3,"two\nlines",\n)), hex_of("\xef\xbb\xbf4,,"), hex_of("5,x,\r\n"));
my @bad = ('1', '6,"a,', hex_of("7,a,\n8,b,"), 'x,a,', hex_of("9,\xff,"), 'hex:', '10,a,,c');
$broker->send_value('csv', 0, @good);
$broker->send_value('csv', 1, @bad);
$broker->ask('send csv 1 key=k');
source('csv', 'id int, name text, at timestamptz, kafka_offset bigint', '"format": "csv"');
query('csv', 'SELECT id, name, at, kafka_offset FROM csv');
drain('csv');
is_sql(q(SELECT id, name, at IS NULL, kafka_offset FROM csv_out ORDER BY id),
	qq(1|ann|f|0\n2|a, "b"|t|1\n3|two\nlines|t|2\n4||t|3\n5|x|t|4), 'CSV records');
is_sql(q(SELECT position->>'offset', raw IS NULL, left(error, 30) FROM stream.dead_letters WHERE query = 'csv' ORDER BY (position->>'offset')::int),
	join("\n", '0|f|22P04: expected 3 fields, foun', '1|f|22P04: field 2 is quoted wrong', '2|f|22P04: field 3 holds a line en', '3|f|22P02: column "id": invalid in',
		'4|f|22021: invalid byte sequence f', '5|f|22P04: expected 3 fields, foun', '6|f|22P04: expected 3 fields, foun', '7|t|22P02: the message has no valu'),
	'what is none is kept, with the reason');
source('csv_key', 'id int, name text, at text, kafka_key text', '"format": "csv"', 'csv');
is_sql(q(SELECT count(*) FROM csv_key WHERE kafka_key = 'k' AND id IS NULL), '1', 'with the key declared a tombstone is a row');
$broker->ask('create tsv 1');
$broker->send_value('tsv', 0, hex_of("1\tann\t\\N"), hex_of("2\t\t\"\\N\""));
source('tsv', 'id int, name text, note text', '"format": "csv", "delimiter": "\\t", "null": "\\\\N"');
is_sql('SELECT id, name, note IS NULL, note FROM tsv ORDER BY id', "1|ann|t|\n2||f|\\N", 'another delimiter, another NULL');

# The same bytes in each form that takes bytes: stored byte for byte, as text where they are text, as documents.
my @bytes = ('hex:7b226964223a327d', 'hex:7b2261223a22c328227d', 'hex:7b0022', 'hex:efbbbf7b226964223a337d');
$broker->ask('create bytes 1');
$broker->send_value('bytes', 0, @bytes);
source('raw', 'v bytea, kafka_offset bigint', '"format": "raw"', 'bytes');
source('text', 'v text, kafka_offset bigint', '"format": "text"', 'bytes');
source('json', 'id int, kafka_offset bigint', '"format": "json"', 'bytes');
query($_, "SELECT * FROM $_") for qw(raw text json);
drain($_) for qw(raw text json);
is_sql('SELECT string_agg(v::text, $$ $$ ORDER BY kafka_offset) FROM raw_out', join(' ', map { s/hex:/\\x/r } @bytes), 'raw: all, byte for byte');
is_sql('SELECT v FROM text_out ORDER BY kafka_offset', qq({"id":2}\n{"id":3}), 'text: what is UTF-8, without the mark');
is_sql('SELECT array_agg(id ORDER BY id) FROM json_out', '{2,3}', 'json: what is UTF-8');
is_sql(q(SELECT query, array_agg(position->>'offset' ORDER BY id) FROM stream.dead_letters WHERE query IN ('text', 'json') GROUP BY query ORDER BY query), "json|{1,2}\ntext|{1,2}",
	'the others are kept');

# Keys: missing, empty, there. By key into a table without NULL keys one row does not fit.
$broker->ask('create keys 1');
$broker->ask('send keys 0 value={"id":1}');
$broker->ask('send keys 0 key= value={"id":2}');
$broker->ask('send keys 0 key=k value={"id":3}');
$broker->ask('send keys 0 key=k value={"id":4}');
source('keys', 'id int, kafka_key text', '"format": "json"');
$node->safe_psql('postgres', 'CREATE TABLE by_key (kafka_key text PRIMARY KEY, id int); CREATE TABLE by_key_strict (LIKE by_key INCLUDING ALL)');
query('keys', 'SELECT kafka_key, id FROM keys', q(stream.to_table('by_key', '{"key": ["kafka_key"], "on_bad_row": "dead_letter"}')));
query('strict', 'SELECT kafka_key, id FROM keys', q(stream.to_table('by_key_strict', '{"key": ["kafka_key"]}')));
drain('keys');
is_sql('SELECT kafka_key, id FROM by_key ORDER BY id', "|2\nk|4", 'an empty key is a key, and the last of a key stays');
is_sql(q(SELECT position->>'sqlstate', convert_from(raw, 'UTF8') FROM stream.dead_letters WHERE query = 'keys'), '23502|{"kafka_key":null,"id":1}', 'no key is none');
my (undef, undef, $error) = $node->psql('postgres', "\\set VERBOSITY verbose\nCALL stream.process_all_available('strict')");
like($error, qr/ERROR:  23502/, 'strict: the batch fails');
is_sql('SELECT count(*) FROM by_key_strict', '0', 'as a whole');

# Change events of one table: a snapshot, then changes, then what compaction leaves. Applied in batches of any size the table is the same.
my $big = 'B' x 5000;
my @events = (
	[ '{"id":1}', qq({"op":"r","after":{"id":1,"name":"ann","big":"$big","born":7305},"source":{"lsn":1}}) ],
	[ '{"id":2}', '{"op":"r","after":{"id":2,"name":"bob","big":null,"born":null},"source":{"lsn":1}}' ],
	[ '{"id":3}', '{"schema":{"fields":[]},"payload":{"op":"c","after":{"id":3,"name":"cem","big":"x","born":0},"source":{"lsn":2}}}' ],
	[ '{"id":1}', '{"op":"u","before":{"id":1},"after":{"id":1,"name":"anna","big":"__debezium_unavailable_value","born":7305},"source":{"lsn":3}}' ],
	[ '{"id":2}', '{"op":"d","before":{"id":2},"after":null,"source":{"lsn":4}}' ],
	[ '{"id":2}', undef ],
	[ '{"schema":{},"payload":{"id":3}}', undef ],
	[ '{"id":4}', '{"op":"c","after":{"id":4,"name":"dan","big":"y","born":1},"source":{"lsn":5}}' ],
	[ '{"id":4}', '{"op":"u","after":{"id":4,"name":"dan","big":"z","born":1},"source":{"lsn":6}}' ],
	[ '{"id":4}', '{"op":"u","after":{"id":4,"name":"daniel","big":"__debezium_unavailable_value","born":1},"source":{"lsn":7}}' ],
	[ '{"id":5}', '{"op":"d","before":{"id":5},"source":{"lsn":8}}' ],
	[ '{"id":2}', '{"op":"c","after":{"id":2,"name":"bea","big":null,"born":2},"source":{"lsn":9}}' ]);
$broker->ask('create people 1');
$broker->ask("send people 0 key=$_->[0]" . (defined $_->[1] ? " value=$_->[1]" : '')) for @events;
$broker->send_value('people', 0, '{"op":"m"}');
$broker->ask('send people 0 value={"id":1}');
$broker->ask('send people 0');
my $columns = 'id int, name text, big text, born date, op text, unchanged text[], lsn bigint';
source('people', $columns, '"format": "debezium", "paths": {"lsn": "source.lsn"}');
$node->safe_psql('postgres', q{
	CREATE TABLE person (id int PRIMARY KEY, name text, big text, born date, lsn bigint);
	CREATE TABLE gone (id int);
	CREATE FUNCTION note_gone() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO gone VALUES (OLD.id); RETURN NULL; END $$;
	CREATE TRIGGER note_gone AFTER DELETE ON person FOR EACH ROW EXECUTE FUNCTION note_gone()});
my $sink = q(stream.to_table('person', '{"key": ["id"], "op_column": "op", "unchanged_column": "unchanged"}'));
my $table = "1|anna|5000|1990-01-01|3\n2|bea||1970-01-03|9\n4|daniel|1|1970-01-02|7";
for my $size (1, 2, 3, 5, 100)
{
	$node->safe_psql('postgres', "DELETE FROM person; DELETE FROM gone");
	$node->safe_psql('postgres', "SELECT stream.create_query('people', 'SELECT * FROM people', $sink, options => '{\"max_rows_per_batch\": $size}', start => false)");
	drain('people');
	is_sql('SELECT id, name, length(big), born, lsn FROM person ORDER BY id', $table, "changes in batches of $size");
	is_sql('SELECT array_agg(id ORDER BY id) FROM gone', '{2,3}', 'a delete and its tombstone delete once') if $size == 1;
	is_sql('SELECT count(*) FROM gone', '0', 'within one batch nothing came to be deleted') if $size == 100;
	is_sql(q(SELECT position->>'offset', substr(error, 8) FROM stream.dead_letters WHERE query = 'people' ORDER BY id),
		"12|unknown change \"m\": \"op\" must be one of c, r, u, d, t\n13|no change event: field \"op\" is missing\n14|the message has neither key nor value: it says of nothing that it is gone",
		'what is no event is kept');
	$node->safe_psql('postgres', "SELECT stream.drop_query('people')");
}
# In epochs a flush at a time, by a worker.
$node->safe_psql('postgres', "DELETE FROM person; SELECT stream.create_query('people', 'SELECT * FROM people', $sink, 'update', stream.real_time('300 ms'))");
ok(wait_for_sql($node, 'SELECT string_agg(concat_ws($$|$$, id, name, lsn), $$ $$ ORDER BY id) FROM person', '1|anna|3 2|bea|9 4|daniel|7', 60), 'changes in epochs');
$broker->ask('send people 0 key={"id":4} value={"op":"d","before":{"id":4},"source":{"lsn":10}}');
ok(wait_for_sql($node, 'SELECT string_agg(concat_ws($$|$$, id, name, lsn), $$ $$ ORDER BY id) FROM person', '1|anna|3 2|bea|9', 60), 'and the next one');
$node->safe_psql('postgres', "SELECT stream.stop_query('people'); SELECT stream.drop_query('people')");
# Rows as they come: op and image; a value that did not come is NULL and named.
is_sql('SELECT op, id, unchanged FROM people WHERE op = $$u$$', "u|1|{big}\nu|4|\nu|4|{big}", 'by hand: changes are rows');
# Without the column that names them such rows are bad: the value is not lost silently.
source('blind', 'id int, big text, op text', '"format": "debezium"', 'people');
query('blind', 'SELECT id, big, op FROM blind', q(stream.to_table('blind_out', '{"key": ["id"], "op_column": "op"}')));
drain('blind');
is_sql(q(SELECT count(*) FROM stream.dead_letters WHERE query = 'blind' AND error LIKE '%"unchanged text[]"%'), '2', 'a value that did not come is no value');
is_sql('SELECT id, length(big) FROM blind_out ORDER BY id', "1|5000\n2|", 'and the row keeps what it had');
# Dead letters come again: the event, and the tombstone by its key.
source('nokey', 'ident int, op text', '"format": "debezium"', 'people');
query('nokey', q(SELECT ident, op FROM nokey WHERE op = 'd'));
drain('nokey');
is_sql(q(SELECT count(*) FROM stream.dead_letters WHERE query = 'nokey' AND raw IS NULL), '3', 'tombstones of keys that name no column');
$node->safe_psql('postgres', q(SELECT stream.alter_source('nokey', '{"paths": {"ident": "id"}}'); SELECT stream.replay_dead_letters('nokey')));
drain('nokey');
is_sql('SELECT array_agg(ident ORDER BY ident) FILTER (WHERE ident IS NOT NULL) FROM nokey_out', '{2,3}', 'come again by their keys');

# Files hold change events as well, a line each.
my $dir = PostgreSQL::Test::Utils::tempdir();
open(my $file, '>', "$dir/a.json") or die;
print $file join("\n", map { $_->[1] } grep { defined $_->[1] } @events), "\n \n";
close($file);
$node->safe_psql('postgres', qq(SELECT stream.create_source('in_files', 'file', '$columns', '{"path": "$dir", "format": "debezium", "paths": {"lsn": "source.lsn"}}')));
is_sql('SELECT string_agg(op, $$$$ ORDER BY lsn, id) FROM in_files', 'rrcudcuudc', 'files of events');

done_testing();
