# Sources that change under their queries: options, paths, columns that come, columns of another type. Running queries go on; what cannot go on is refused before it breaks.
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
$broker->ask('create events 2');
$node->safe_psql('postgres', q{SELECT stream.create_source('events', 'kafka', 'id int, note text, n smallint',
	'{"server": "k", "topic": "events", "starting_offsets": "earliest", "paths": {"note": "a.note"}}')});

sub is_sql { my ($sql, $expected, $what) = @_; is($node->safe_psql('postgres', $sql), $expected, $what); return; }
sub comes { my ($sql, $expected, $what) = @_; ok(wait_for_sql($node, $sql, $expected, 60), $what); return; }

sub refused
{
	my ($statement, $expected, $what) = @_;
	my ($ret, undef, $message) = $node->psql('postgres', "\\set VERBOSITY verbose\n$statement");
	isnt($ret, 0, "$what: refused");
	like($message, $expected, "$what: says so");
	return;
}

# While the query runs: another path, another policy, a column more. The next batch knows.
$node->safe_psql('postgres', q(SELECT stream.create_query('q', 'SELECT id, note FROM events', stream.to_table('q_out'))));
$broker->send_value('events', 0, '{"id":1,"a":{"note":"a"},"b":{"note":"b"}}');
comes('SELECT id, note FROM q_out WHERE id = 1', '1|a', 'before');
my $pid = worker_pid($node, 'q');
$node->safe_psql('postgres', q(SELECT stream.alter_source('events', '{"paths": {"note": "b.note"}}')));
$broker->send_value('events', 0, '{"id":2,"a":{"note":"a"},"b":{"note":"b"}}');
comes('SELECT id, note FROM q_out WHERE id = 2', '2|b', 'a running query reads by the new path');
$node->safe_psql('postgres', q(SELECT stream.alter_source('events', '{"paths": {"note": null}}')));
$broker->send_value('events', 0, '{"id":3,"note":"top"}');
comes('SELECT id, note FROM q_out WHERE id = 3', '3|top', 'and by none');
$node->safe_psql('postgres', q(SELECT stream.alter_source('events', '{"on_bad_row": "null"}')));
$broker->send_value('events', 0, '{"id":4,"note":"x","n":99999}');
comes('SELECT id, note FROM q_out WHERE id = 4', '4|x', 'a running query obeys the new policy');
$node->safe_psql('postgres', q(SELECT stream.alter_source('events', columns => 'amount numeric, tags text[]')));
$broker->send_value('events', 0, '{"id":5,"note":"y","amount":"no number"}');
comes('SELECT id, note FROM q_out WHERE id = 5', '5|y', 'a running query goes on when columns come');
is(worker_pid($node, 'q'), $pid, 'all by the same worker');
is_sql("SELECT failures FROM stream.queries WHERE name = 'q'", '0', 'without a failure');
is_sql('SELECT count(*), count(amount) FROM events', '5|0', 'older messages have no value there');
$node->safe_psql('postgres', q(SELECT stream.alter_source('events', '{"on_bad_row": null}')));

# Another type: the query that reads it must stop, keeps its text, its state and its place.
$node->safe_psql('postgres', q(SELECT stream.create_query('sums', 'SELECT note, sum(id) AS total, count(n) AS ns FROM events GROUP BY note', stream.to_table('sums_out'), 'update', start => false);
	CALL stream.process_all_available('sums')));
refused(q(SELECT stream.alter_source('events', columns => 'id bigint')), qr/55006: streaming query "q" is running/, 'another type under a running query');
is_sql(q(SELECT atttypid::regtype FROM pg_attribute WHERE attrelid = 'events'::regclass AND attname = 'id'), 'integer', 'nothing has changed');
refused(q(ALTER FOREIGN TABLE events ALTER COLUMN id TYPE bigint), qr/0A000: cannot alter type of a column used by a view or rule/, 'by hand');
$node->safe_psql('postgres', q(SELECT stream.stop_query('q')));
$broker->send_value('events', 1, '{"id":2147483648,"note":"wide"}');
refused(q(SELECT stream.alter_source('events', columns => 'id bigint')), qr/55000: .*"sums"/s, 'another type of what state was made of');
is_sql(q(SELECT count(*) FROM pg_class WHERE relname LIKE 'query_%' AND relkind = 'v'), '2', 'and both views are there');
$node->safe_psql('postgres', q(SELECT stream.drop_query('sums')));
$node->safe_psql('postgres', q(SELECT stream.alter_source('events', columns => 'id bigint, n bigint'); ALTER TABLE q_out ALTER id TYPE bigint; SELECT stream.start_query('q')));
comes('SELECT id, note FROM q_out WHERE id > 100', '2147483648|wide', 'the query goes on where it was, with the wider type');
is_sql('SELECT count(*), count(DISTINCT id) FROM q_out', '6|6', 'each message once');
is_sql(q(SELECT count(*) FROM stream.dead_letters WHERE query = 'q'), '0', 'none put aside');

# The new column in the query and its target: older rows have none.
$node->safe_psql('postgres', q(SELECT stream.stop_query('q'); ALTER TABLE q_out ADD amount numeric; SELECT stream.alter_query('q', 'SELECT id, note, amount FROM events')));
$broker->send_value('events', 1, '{"id":7,"note":"z","amount":1.5}');
$node->safe_psql('postgres', q(SELECT stream.start_query('q')));
comes('SELECT id, note, amount FROM q_out WHERE id = 7', '7|z|1.5', 'the new column');
is_sql('SELECT count(*) FROM q_out WHERE amount IS NULL', '6', 'and NULL before');
$node->safe_psql('postgres', q(SELECT stream.stop_query('q')));

# What is refused.
$node->safe_psql('postgres', q{CREATE TABLE t (id int); SELECT stream.create_source('ts', 'table', options => '{"table": "t"}'); CREATE VIEW v AS SELECT n FROM events});
refused(q(SELECT stream.alter_source('ts', columns => 'id bigint')), qr/0A000: columns of source public.ts cannot be changed/, 'columns of a table source');
refused(q(SELECT stream.alter_source('events', columns => 'id bigint NOT NULL')), qr/0A000: column "id" is there already: only its type can be changed/, 'more than a type');
refused(q{SELECT stream.alter_source('events', columns => 'x int) SERVER k; DROP TABLE t; --')}, qr/42601/, 'more than columns');
refused(q(SELECT stream.alter_source('events', columns => 'x no_such_type')), qr/42704/, 'no such type');
refused(q(SELECT stream.alter_source('events', columns => 'kafka_offset text')), qr/42804/, 'a metadata column of a wrong type');
refused(q(SELECT stream.alter_source('events', columns => 'n text')), qr/0A000: cannot alter type of a column used by a view or rule.*view v/s, 'a column of other views');
refused(q(SELECT stream.alter_source('events', columns => 'CHECK (id > 0)')), qr/42601: columns of a source must be columns/, 'a constraint');
refused(q(SELECT stream.alter_source(NULL)), qr/22004: name of a source must not be null/, 'no name');
refused(q(SELECT stream.alter_source('t', columns => 'x int')), qr/42809: "t" is not a source/, 'no source');
is_sql(q(SELECT stream.alter_source('events', columns => 'id bigint')), '', 'the type it has: nothing to do');
$node->safe_psql('postgres', q{CREATE ROLE other LOGIN; GRANT USAGE ON SCHEMA stream TO other; GRANT SELECT ON events TO other; GRANT CREATE ON SCHEMA public TO other;
	GRANT USAGE ON FOREIGN SERVER k TO other; SET SESSION AUTHORIZATION other;
	SELECT stream.create_query('theirs', 'SELECT note FROM events', stream.to_table('theirs_out'), start => false)});
refused(q(SET SESSION AUTHORIZATION other; SELECT stream.alter_source('events', columns => 'x int')), qr/42501: must be owner of foreign table events/, 'a source of somebody else');

done_testing();
