# Reading Kafka topics: what a message becomes, where a query starts, how batches are cut, what is kept of bad messages.
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

my $broker = StreamBroker->new;
my $server = $broker->bootstrap;
$node->safe_psql('postgres', qq(CREATE SERVER k FOREIGN DATA WRAPPER stream_kafka OPTIONS ("bootstrap.servers" '$server')));

# Every section has a topic, a source and a query of one name.
sub source
{
	my ($name, $partitions, $columns, $options, $more) = @_;
	$broker->ask("create $name $partitions");
	$options = ', ' . $options if $options;
	$options ||= '';
	$more ||= '';
	$node->safe_psql('postgres',
		qq(SELECT stream.create_source('$name', 'kafka', '$columns', '{"server": "k", "topic": "$name"$options}'$more)));
	return;
}

sub query
{
	my ($name, $sql, $more) = @_;
	$more ||= '';
	$node->safe_psql('postgres',
		"SELECT stream.create_query('$name', \$\$$sql\$\$, stream.to_table('${name}_out'), start => false$more)");
	return;
}

sub drain { my ($name) = @_; return $node->safe_psql('postgres', "CALL stream.process_all_available('$name')"); }

sub is_sql
{
	my ($sql, $expected, $what) = @_;
	is($node->safe_psql('postgres', $sql), $expected, $what);
	return;
}

my $earliest = '"starting_offsets": "earliest"';

# Metadata columns; keys that are missing, empty, or there; headers with repeated names, NULLs and bytes.
source('meta', 1, 'id int, kafka_topic text, kafka_partition int, kafka_offset bigint, kafka_timestamp timestamptz, kafka_key text, kafka_headers jsonb',
	$earliest);
$broker->ask('send meta 0 ts=1772359200000 value={"id":1}');
$broker->ask('send meta 0 key= header=h:1 header=g header=h:2 header=bin:hex:00ff value={"id":2}');
$broker->ask('send meta 0 key=k value={"id":3}');
query('meta', 'SELECT * FROM meta');
drain('meta');
is_sql('SELECT id, kafka_topic, kafka_partition, kafka_offset, kafka_key IS NULL, kafka_key FROM meta_out ORDER BY id',
	"1|meta|0|0|t|\n2|meta|0|1|f|\n3|meta|0|2|f|k", 'topic, partition, offset, key');
is_sql('SELECT kafka_timestamp FROM meta_out WHERE id = 1', '2026-03-01 10:00:00+00', 'timestamp');
is_sql('SELECT kafka_headers FROM meta_out ORDER BY id LIMIT 2', "[]\n" . '[["h", "\\\\x31"], ["g", null], ["h", "\\\\x32"], ["bin", "\\\\x00ff"]]',
	'headers keep order, repeats, NULLs and bytes');
is_sql('SELECT count(*), max(kafka_offset) FROM meta', '3|2', 'by hand: earliest to latest');

# Bad messages are kept with their place and bytes, in the same transaction; the good ones are delivered.
source('bad', 2, 'id int', $earliest);
$broker->send_value('bad', 1, '{"id":1}', 'not json', '{"id":3}', '{"id":99999999999}');
$broker->ask('send bad 1 key=k');
query('bad', 'SELECT id FROM bad');
drain('bad');
is_sql('SELECT array_agg(id ORDER BY id) FROM bad_out', '{1,3}', 'good rows pass');
is_sql(q(SELECT reason, position->>'topic', position->>'partition', position->>'offset', position->>'key', convert_from(raw, 'UTF8'), batch_id
	FROM stream.dead_letters WHERE query = 'bad' ORDER BY id),
	"malformed|bad|1|1||not json|0\nmalformed|bad|1|3||{\"id\":99999999999}|0\nmalformed|bad|1|4|\\x6b||0", 'bad ones are kept whole');

# on_bad_row fail: nothing commits, the error names the place, the position stays.
source('strict', 1, 'id int', qq($earliest, "on_bad_row": "fail"));
$broker->send_value('strict', 0, '{"id":1}', '{"id":', '{"id":3}');
query('strict', 'SELECT id FROM strict');
my ($ret, $out, $err) = $node->psql('postgres', "CALL stream.process_all_available('strict')");
isnt($ret, 0, 'strict source fails');
like($err, qr/public\.strict.*"topic": "strict".*"offset": 1|"offset": 1.*"topic": "strict"/s, 'error names topic and offset');
is_sql('SELECT count(*) FROM strict_out', '0', 'nothing committed');
is_sql(q(SELECT count(*) FROM stream.commit_log WHERE query_id = (SELECT id FROM stream.queries WHERE name = 'strict')), '0', 'position unchanged');
$node->safe_psql('postgres', q(SELECT stream.alter_source('strict', '{"on_bad_row": "skip"}')));
drain('strict');
is_sql('SELECT array_agg(id ORDER BY id) FROM strict_out', '{1,3}', 'the same batch passes once the policy allows it');

# A tombstone is a row where the key is declared, and all value columns are NULL.
source('tomb', 1, 'id int, kafka_key bytea', $earliest);
$broker->ask('send tomb 0 key=k');
$broker->ask('send tomb 0 key=k value={"id":1}');
query('tomb', 'SELECT id, kafka_key FROM tomb');
drain('tomb');
is_sql('SELECT id, kafka_key FROM tomb_out ORDER BY id NULLS FIRST', "|\\x6b\n1|\\x6b", 'tombstone with key');

# Formats without fields.
source('words', 1, 'line text, kafka_offset bigint', qq($earliest, "format": "text"));
source('bytes', 1, 'data bytea', qq($earliest, "format": "raw"));
$broker->send_value('words', 0, 'one', 'hex:ff', 'two');
$broker->send_value('bytes', 0, 'hex:00ff');
query('words', 'SELECT line, kafka_offset FROM words');
query('bytes', 'SELECT data FROM bytes');
drain('words');
drain('bytes');
is_sql('SELECT line FROM words_out ORDER BY kafka_offset', "one\ntwo", 'text lines');
is_sql(q(SELECT position->>'offset' FROM stream.dead_letters WHERE query = 'words'), '1', 'bytes that are no text are a bad row');
is_sql('SELECT data FROM bytes_out', '\x00ff', 'raw bytes');

# Where queries start. Latest means the first look, also after a restart; -2 and -1 per partition; every partition must be named.
source('start', 2, 'id int');
$broker->send_value('start', 0, '{"id":1}', '{"id":2}');
$broker->send_value('start', 1, '{"id":3}');
query('start', 'SELECT id FROM start');
drain('start');
$broker->send_value('start', 1, '{"id":4}');
drain('start');
is_sql('SELECT array_agg(id) FROM start_out', '{4}', 'latest is fixed at the first look');
$node->safe_psql('postgres', q(SELECT stream.alter_source('start', '{"starting_offsets": {"0": 1, "1": -2}}')));
query('start_at', 'SELECT id FROM start');
drain('start_at');
is_sql('SELECT array_agg(id ORDER BY id) FROM start_at_out', '{2,3,4}', 'offsets per partition');
$node->safe_psql('postgres', q(SELECT stream.alter_source('start', '{"starting_offsets": {"0": 1}}')));
query('start_half', 'SELECT id FROM start');
($ret, $out, $err) = $node->psql('postgres', "CALL stream.process_all_available('start_half')");
like($err, qr/lacks partition 1 of topic "start"/, 'a partition without starting offset is refused');

# Limits: shared by backlog, shares below one rounded up.
source('share', 2, 'id int, kafka_partition int', $earliest);
$broker->ask("produce share 0 @{[ lines('share0', map { qq({\"id\":$_}) } 1 .. 1000) ]}");
$broker->send_value('share', 1, '{"id":0}');
query('share', 'SELECT id, kafka_partition FROM share', q(, options => '{"max_rows_per_batch": 10}'));
$node->safe_psql('postgres', "CALL stream.run_batch('share', NULL)");
is_sql('SELECT kafka_partition, count(*) FROM share_out GROUP BY 1 ORDER BY 1', "0|9\n1|1", 'a small partition does not starve');
$node->safe_psql('postgres', q(SELECT stream.alter_query('share', options => '{"max_rows_per_batch": 400}')));
drain('share');
is_sql('SELECT count(*), count(DISTINCT id) FROM share_out', '1001|1001', 'everything once');
source('many', 5, 'id int, kafka_partition int', $earliest);
for my $partition (0 .. 4) { $broker->send_value('many', $partition, map { qq({"id":$_}) } 1 .. 10); }
query('many', 'SELECT id, kafka_partition FROM many', q(, options => '{"max_rows_per_batch": 3}'));
$node->safe_psql('postgres', "CALL stream.run_batch('many', NULL)");
is_sql('SELECT count(*), count(DISTINCT kafka_partition) FROM many_out', '5|5', 'a limit below the partition count: one of each');
drain('many');
is_sql('SELECT count(*) FROM many_out', '50', 'and the rest follows');

# Order inside a batch is (partition, offset), whatever arrived first.
source('ordered', 2, 'k text, v text', $earliest);
$broker->send_value('ordered', 1, '{"k":"k","v":"late"}');
$broker->send_value('ordered', 0, '{"k":"k","v":"first"}', '{"k":"k","v":"second"}');
query('ordered', 'SELECT DISTINCT ON (k) k, v FROM ordered');
drain('ordered');
is_sql('SELECT k, v FROM ordered_out', 'k|first', 'the first by partition and offset survives');

# A partition without messages does not hold the watermark.
source('idle', 2, 'ts timestamptz', $earliest, q(, event_time => 'ts', watermark_delay => '10 minutes'));
$broker->send_value('idle', 0, map { qq({"ts":"2026-03-01T${_}Z"}) } '10:01:00', '10:03:00', '10:16:00');
query('idle', q(SELECT stream.tumble(ts, '5 minutes') AS w, count(*) AS n FROM idle GROUP BY 1));
drain('idle');
is_sql('SELECT lower(w), n FROM idle_out', '2026-03-01 10:00:00+00|2', 'the first window closes');
is_sql(q(SELECT watermark FROM stream.queries WHERE name = 'idle'), '2026-03-01 10:06:00+00', 'watermark of the partition that speaks');

# A backlog makes nobody late: the partition with unread messages holds the watermark at its own progress.
source('backlog', 2, 'ts timestamptz, kafka_partition int', $earliest, q(, event_time => 'ts', watermark_delay => '0 seconds'));
$broker->send_value('backlog', 0, map { sprintf('{"ts":"2026-03-01T10:%02d:00Z"}', $_) } 0 .. 39);
$broker->send_value('backlog', 1, map { sprintf('{"ts":"2026-03-01T12:%02d:00Z"}', $_) } 0 .. 3);
query('backlog', q(SELECT stream.tumble(ts, '5 minutes') AS w, count(*) AS n FROM backlog GROUP BY 1), q(, options => '{"max_rows_per_batch": 8}'));
drain('backlog');
is_sql('SELECT sum(n) FROM backlog_out', '40', 'all windows of the slow partition are complete');
is_sql(q(SELECT rows_late FROM stream.queries WHERE name = 'backlog'), '0', 'no row is late');

# A range too big to be kept, read twice in one batch: by a self-join's two scans, and by a rescan.
source('twice', 3, 'id bigint, card text', $earliest);
$broker->cards('twice', 60000, 5, 1767225600000);
query('twice', 'SELECT count(*) AS n, sum(id) AS s FROM (SELECT id FROM twice WHERE id % 2 = 0 UNION ALL SELECT id FROM twice WHERE id % 2 = 1) u',
	q(, output_mode => 'complete'));
drain('twice');
is_sql('SELECT n, s FROM twice_out', '60000|1800030000', 'both scans see the whole range');
is_sql('SELECT count(*) FROM (SELECT id FROM twice ORDER BY id LIMIT 10) a JOIN twice b ON b.id = a.id', '10', 'by hand, twice in one statement');
is_sql('SELECT count(*) FROM generate_series(1, 3) g, LATERAL (SELECT count(*) FROM twice WHERE id > g * 59990) c', '3', 'rescans');

# Several topics in one source.
$broker->ask("create $_ 2") for qw(left right);
$node->safe_psql('postgres',
	qq(SELECT stream.create_source('pair', 'kafka', 'id int, kafka_topic text', '{"server": "k", "topics": ["left", "right"], $earliest}')));
$broker->send_value('left', 0, '{"id":1}');
$broker->send_value('right', 1, '{"id":2}');
query('pair', 'SELECT id, kafka_topic FROM pair');
drain('pair');
is_sql('SELECT id, kafka_topic FROM pair_out ORDER BY id', "1|left\n2|right", 'two topics');
is_sql(q(SELECT offsets #- '{public.pair,@seen}' FROM stream.offset_log l JOIN stream.queries q ON q.id = l.query_id WHERE q.name = 'pair'),
	'{"public.pair": {"left": {"0": 1, "1": 0}, "right": {"0": 0, "1": 1}}}', 'positions per topic');

# Topics by a pattern: whole names; a topic that comes later is read from its start, and keeps its number over restarts.
$broker->ask("create $_ 2") for ('shop.b', 'shop.c', 'workshop.x');
$node->safe_psql('postgres',
	qq(SELECT stream.create_source('shops', 'kafka', 'id int, kafka_topic text, kafka_partition int', '{"server": "k", "topic_pattern": "shop[.].*", $earliest}')));
$broker->send_value('shop.c', 1, '{"id":1}');
$broker->send_value('workshop.x', 0, '{"id":9}');
query('shops', 'SELECT id, kafka_topic, kafka_partition FROM shops');
drain('shops');
$broker->ask('create shop.a 1');
$broker->send_value('shop.a', 0, '{"id":2}');
$broker->send_value('shop.b', 0, '{"id":3}');
drain('shops');
is_sql('SELECT id, kafka_topic, kafka_partition FROM shops_out ORDER BY id', "1|shop.c|1\n2|shop.a|0\n3|shop.b|0", 'topics by pattern, new ones too');
is_sql(q(SELECT offsets #> '{public.shops,shop.a}', offsets #> '{public.shops,@lanes}' FROM stream.offset_log l JOIN stream.queries q ON q.id = l.query_id
	WHERE q.name = 'shops' ORDER BY batch_id DESC LIMIT 1), '{"0": 1}|{"shop.a": 2, "shop.b": 0, "shop.c": 1}', 'positions and numbers per topic');
is_sql('SELECT count(*) FROM shops', '3', 'by hand the same');

# Partitions are asked for together: this broker keeps a fetch at the end of others waiting for all of its three seconds.
source('wide', 16, 'id int', "$earliest, \"fetch.wait.max.ms\": 3000");
$broker->send_value('wide', $_, qq({"id":$_})) for 0 .. 15;
my $began = time();
is_sql('SELECT count(*), sum(id) FROM wide', '16|120', 'a message of each partition');
cmp_ok(time() - $began, '<', 30, 'without waiting at the end of each');

# A topic that does not exist.
$node->safe_psql('postgres', q(SELECT stream.create_source('missing', 'kafka', 'id int', '{"bootstrap.servers": "127.0.0.1:1", "topic": "missing"}')));
($ret, $out, $err) = $node->psql('postgres', 'SELECT count(*) FROM missing');
like($err, qr/source public\.missing gets no answer from its Kafka brokers.*Connection refused/s, 'a broker that is away says so');

sub lines
{
	my ($name, @lines) = @_;
	my $path = $node->basedir . "/$name";
	PostgreSQL::Test::Utils::append_to_file($path, join('', map { "$_\n" } @lines));
	return $path;
}

$node->stop;
done_testing();
