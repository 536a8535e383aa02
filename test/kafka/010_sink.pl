# The Kafka sink against Apache Kafka: what becomes of a row, what is sent again, what is not.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use StreamBroker;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION stream_ext');

my $broker = StreamBroker->real;
my $server = $broker->bootstrap;
$node->safe_psql('postgres', qq(
	CREATE SERVER k FOREIGN DATA WRAPPER stream_kafka OPTIONS ("bootstrap.servers" '$server');
	CREATE TABLE t (id int, k text, v text, at int GENERATED ALWAYS AS IDENTITY);
	SELECT stream.create_source('s', 'table', options => '{"table": "t"}')));

# A topic, and a source NAME to read it back with.
sub topic
{
	my ($name, $partitions, $columns, $options) = @_;
	$broker->ask("create $name $partitions");
	$options = $options ? ", $options" : '';
	$columns ||= 'value text';
	my $format = $columns =~ /^value/ ? ', "format": "text"' : '';
	$node->safe_psql('postgres', qq(SELECT stream.create_source('$name', 'kafka',
		'$columns, kafka_key text, kafka_partition int, kafka_offset bigint, kafka_headers jsonb', '{"server": "k", "topic": "$name"$format$options}')));
	return;
}

sub query
{
	my ($name, $sql, $topic, $options) = @_;
	$options = $options ? ", $options" : '';
	$node->safe_psql('postgres', qq(SELECT stream.create_query('$name', \$q\$$sql\$q\$, stream.to_kafka('$topic', '{"server": "k"$options}'), start => false)));
	return;
}

# Failpoints hold for the session of the CALL.
sub drain
{
	my ($name, $failpoint) = @_;
	$failpoint = $failpoint ? "SET stream_ext.failpoints = '$failpoint';" : '';
	return $node->psql('postgres', "$failpoint CALL stream.process_all_available('$name')");
}

sub is_sql
{
	my ($sql, $expected, $what) = @_;
	is($node->safe_psql('postgres', $sql), $expected, $what);
	return;
}

sub insert { my ($values) = @_; $node->safe_psql('postgres', "INSERT INTO t (id, k, v) VALUES $values"); return; }

my $batch_header = q(convert_from(decode(substr(h.value ->> 1, 3), 'hex'), 'UTF8'));
my $with_header = q(CROSS JOIN LATERAL jsonb_array_elements(kafka_headers) AS h(value) WHERE h.value ->> 0 = 'batch_id');

# Rows without a column value are JSON; the parts of the message are no payload.
topic('rows', 1, 'id int, v text');
query('rows', 'SELECT k AS key, id, v FROM s', 'rows');
insert(q((1, 'a', 'x'), (2, NULL, NULL), (3, '', E'q"\\\\n')));
drain('rows');
is_sql('SELECT id, v, kafka_key FROM rows ORDER BY kafka_offset', qq(1|x|a\n2||\n3|q"\\n|), 'a row as JSON, its key beside it');
is_sql('SELECT count(*) FROM rows WHERE kafka_key IS NULL', '1', 'an empty key is a key, NULL is none');
my $id = $node->safe_psql('postgres', "SELECT id FROM stream.queries WHERE name = 'rows'");
is_sql("SELECT DISTINCT $batch_header FROM rows $with_header", "$id/0/0", 'every message says which batch it is of');
is_sql("SELECT num_output_rows FROM stream.progress WHERE query = 'rows'", '3', 'messages are counted');

# Columns that are the message.
topic('parts', 2);
topic('elsewhere', 1);
query('parts', <<'SQL', 'parts');
SELECT id AS key, CASE WHEN id <> 2 THEN v END AS value, CASE WHEN id = 3 THEN 'elsewhere' END AS topic, CASE WHEN id = 1 THEN 1 END AS partition,
	CASE WHEN id = 1 THEN '[["h", "1"], ["g", null], ["h", "\\x00ff"], ["batch_id", "old"]]'::jsonb WHEN id = 3 THEN '{"n": 5}' END AS headers FROM s WHERE id < 4
SQL
drain('parts');
is_sql('SELECT kafka_partition, value, kafka_headers FROM parts WHERE kafka_key = $$1$$',
	'1|x|[["h", "\\\\x31"], ["g", null], ["h", "\\\\x00ff"], ["batch_id", "\\\\x' . unpack('H*', ($id + 1) . '/0/0') . '"]]', 'headers in order, ours last and once');
is_sql('SELECT value IS NULL FROM parts WHERE kafka_key = $$2$$', 't', 'a NULL value is a tombstone');
is_sql('SELECT value, kafka_headers -> 0 FROM elsewhere', qq(q"\\n|["n", "\\\\x35"]), 'a topic of its own');

# Order by key, over batches; partitions as Kafka's own clients choose them.
topic('keyed', 4, 'id int');
query('keyed', 'SELECT k AS key, at AS id FROM s WHERE id >= 100', 'keyed');
for my $round (1 .. 3)
{
	$node->safe_psql('postgres', q(INSERT INTO t (id, k) SELECT 100, 'key' || i % 7 FROM generate_series(1, 200) i));
	drain('keyed');
}
is_sql('SELECT count(*), count(DISTINCT id), count(DISTINCT kafka_partition) > 1 FROM keyed', '600|600|t', 'all there, over partitions');
is_sql('SELECT count(*) FROM (SELECT id < lag(id) OVER (PARTITION BY kafka_key ORDER BY kafka_offset) AS wrong, kafka_partition <> lag(kafka_partition) OVER (PARTITION BY kafka_key ORDER BY id) AS moved FROM keyed) x WHERE wrong OR moved',
	'0', 'each key in one partition, in order');
is_sql(q(SELECT DISTINCT kafka_partition FROM keyed WHERE kafka_key = 'key3'), murmur2('key3') % 4, 'the partition Kafka\'s own clients choose');

# At least once: a batch whose commit failed is sent again under the same id.
topic('again', 1, 'id int');
query('again', 'SELECT id FROM s WHERE id BETWEEN 200 AND 299', 'again');
insert('(201), (202)' =~ s/\)/, NULL, NULL)/gr);
my ($ret, $out, $err) = drain('again', 'sunk:1:error');
isnt($ret, 0, 'a failure after sending fails the batch');
drain('again');
is_sql("SELECT id, count(*), count(DISTINCT $batch_header) FROM again $with_header GROUP BY 1 ORDER BY 1", "201|2|1\n202|2|1", 'sent twice, by the same batch');

# Transactional: not sent again when Kafka has it, sent again when it has not.
topic('once', 2, 'id int');
topic('dirty', 2, 'id int', '"isolation_level": "read_uncommitted"');
$node->safe_psql('postgres', q(SELECT stream.alter_source('dirty', '{"topic": "once"}')));
query('once', 'SELECT id::text AS key, id FROM s WHERE id BETWEEN 300 AND 399', 'once', '"transactional": true');
insert('(301, NULL, NULL), (302, NULL, NULL)');
($ret) = drain('once', 'acknowledged:1:error');
isnt($ret, 0, 'a failure before Kafka commits');
is_sql('SELECT count(*) FROM once', '0', 'leaves nothing to see');
is_sql('SELECT count(*) FROM dirty', '2', 'though messages had gone out');
($ret) = drain('once', 'sunk:1:error');
isnt($ret, 0, 'a failure between the commits of Kafka and Postgres');
is_sql('SELECT array_agg(id ORDER BY id) FROM once', '{301,302}', 'leaves the batch in Kafka');
insert('(303, NULL, NULL)');
drain('once');
is_sql('SELECT array_agg(id ORDER BY id) FROM once', '{301,302,303}', 'and it is not sent again');
is_sql(q(SELECT count(*) FROM stream.commit_log c JOIN stream.queries q ON q.id = c.query_id WHERE q.name = 'once'), '2', 'two batches are committed');

# A batch without rows opens no transaction; a failing row leaves nothing.
insert('(1000, NULL, NULL)');
drain('once');
is_sql('SELECT count(*) FROM once', '3', 'a batch without rows sends nothing');

# Rewound: what Kafka has is not sent again. Reset: everything is, under another incarnation.
($ret, $out, $err) = $node->psql('postgres', q(SELECT stream.rewind_query('once', 0)));
like($err, qr/are not sent again/, 'rewind says what it does to a topic');
drain('once');
is_sql('SELECT array_agg(id ORDER BY id) FROM once', '{301,302,303}', 'rewound batches are not sent again');
$node->safe_psql('postgres', q(SELECT stream.reset_query('once')));
drain('once');
is_sql("SELECT $batch_header LIKE '%/1/0', count(*) FROM once $with_header GROUP BY 1 ORDER BY 1", "f|3\nt|3", 'reset: sent again by a new incarnation');

# The same batch id over another range, as after a restore to an earlier time: refused, not passed over in silence.
$node->safe_psql('postgres', q(DELETE FROM stream.commit_entry WHERE query_id = (SELECT id FROM stream.queries WHERE name = 'once');
	DELETE FROM stream.offset_entry WHERE query_id = (SELECT id FROM stream.queries WHERE name = 'once')));
insert('(304, NULL, NULL)');
($ret, $out, $err) = $node->psql('postgres', "\\set VERBOSITY verbose\nCALL stream.process_all_available('once')");
like($err, qr/55000: topic "once" has another batch 0 of query "once" already/, 'another batch of the same id is refused');

# Errors.
($ret, $out, $err) = $node->psql('postgres', "\\set VERBOSITY verbose\nSELECT stream.create_query('x', 'SELECT id AS value, v FROM s', stream.to_kafka('x', '{\"server\": \"k\"}'))");
like($err, qr/22023: column "v" of query "x" has no place in a Kafka message/, 'columns beside a value are refused');
topic('small', 1);
query('big', q(SELECT repeat('x', 2000000) AS value FROM s WHERE id = 400), 'small');
insert('(400, NULL, NULL)');
($ret, $out, $err) = $node->psql('postgres', "\\set VERBOSITY verbose\nCALL stream.process_all_available('big')");
like($err, qr/54000: .*could not write to topic "small"/, 'a message that is too large says so');
query('headers', q(SELECT 'x' AS value, '"no"'::jsonb AS headers FROM s WHERE id = 400), 'small');
($ret, $out, $err) = $node->psql('postgres', "\\set VERBOSITY verbose\nCALL stream.process_all_available('headers')");
like($err, qr/22023: column "headers" .* holds something that is no list of headers/, 'headers that are none say so');
query('nowhere', q(SELECT 'x' AS value, 7 AS partition FROM s WHERE id = 400), 'small');
($ret, $out, $err) = $node->psql('postgres', "\\set VERBOSITY verbose\nCALL stream.process_all_available('nowhere')");
like($err, qr/42704: .*could not write to topic "small"/, 'a partition that is not there says so');
is_sql('SELECT count(*) FROM small', '0', 'none of them sent anything');

# A million rows is more than a queue holds.
topic('many', 3, 'id int');
query('many', 'SELECT id FROM s WHERE id >= 1000000', 'many', '"transactional": true');
$node->safe_psql('postgres', 'INSERT INTO t (id) SELECT 1000000 + i FROM generate_series(1, 300000) i');
drain('many');
is_sql('SELECT count(*), count(DISTINCT id) FROM many', '300000|300000', 'more rows than the queue holds');

# 32-bit murmur2, as org.apache.kafka.common.utils.Utils has it; the sign bit is dropped.
sub murmur2
{
	my ($data) = @_;
	use integer;
	my ($m, $len) = (0x5bd1e995, length $data);
	my $mask = 0xffffffff;
	my $mul = sub { my ($x) = @_; return ($x * $m) & $mask };
	my $h = (0x9747b28c ^ $len) & $mask;
	my $n = $len / 4;
	for my $i (0 .. $n - 1)
	{
		my $k = $mul->(unpack('V', substr($data, $i * 4, 4)));
		$k ^= $k >> 24;
		$h = $mul->($h) ^ $mul->($k & $mask);
	}
	my @tail = unpack('C*', substr($data, $n * 4));
	$h ^= $tail[2] << 16 if @tail == 3;
	$h ^= $tail[1] << 8 if @tail >= 2;
	if (@tail) { $h ^= $tail[0]; $h = $mul->($h); }
	$h ^= $h >> 13;
	$h = $mul->($h);
	$h ^= $h >> 15;
	return $h & 0x7fffffff;
}

$node->stop;
done_testing();
