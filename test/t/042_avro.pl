# Avro messages and a schema registry: whose schema a message names, how schemas change under a topic, what is a bad row and what is a registry that is away.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use StreamBroker;
use StreamNode;
use StreamRegistry;
use Test::More;
use Time::HiRes qw(time);

my $node = new_node('main');
my $broker = StreamBroker->new;
my $registry = StreamRegistry->new;
my ($server, $url) = ($broker->bootstrap, $registry->url);
$node->safe_psql('postgres', qq(CREATE SERVER k FOREIGN DATA WRAPPER stream_kafka OPTIONS ("bootstrap.servers" '$server', "schema.registry.url" '$url/')));

# Avro's binary form.
sub n { my ($v) = @_; my ($z, $out) = ($v < 0 ? -2 * $v - 1 : 2 * $v, ''); while ($z >= 128) { $out .= chr($z % 128 + 128); $z = int($z / 128); } return $out . chr($z); }
sub s { my ($v) = @_; return n(length $v) . $v; }
sub framed { my ($id, $body) = @_; return pack('CN', 0, $id) . $body; }
sub put { my ($topic, @bodies) = @_; $broker->send_value($topic, 0, map { 'hex:' . unpack('H*', $_) } @bodies); return; }

sub source
{
	my ($name, $columns, $options, $topic) = @_;
	$topic //= $name;
	$node->safe_psql('postgres', qq(SELECT stream.create_source('$name', 'kafka', \$c\$$columns\$c\$,
		\$o\${"server": "k", "topic": "$topic", "starting_offsets": "earliest", "format": "avro"$options}\$o\$)));
	return;
}

sub query { my ($name, $sql) = @_; $node->safe_psql('postgres', "SELECT stream.create_query('$name', \$q\$$sql\$q\$, stream.to_table('${name}_out'), start => false)"); return; }
sub drain { my ($name) = @_; $node->safe_psql('postgres', "CALL stream.process_all_available('$name')"); return; }
sub is_sql { my ($sql, $expected, $what) = @_; is($node->safe_psql('postgres', $sql), $expected, $what); return; }

sub fails
{
	my ($query, $expected, $what) = @_;
	my (undef, undef, $error) = $node->psql('postgres', "\\set VERBOSITY verbose\nCALL stream.process_all_available('$query')");
	like($error, $expected, $what);
	return;
}

# Schemas that change while the topic goes on: fields come, go, change their type and their order.
$broker->ask("create $_ 1") for qw(orders mixed strange plain later gone refs locked);
$registry->schema(1, '{"type":"record","name":"o","fields":[{"name":"id","type":"int"},{"name":"amount","type":"float"}]}');
$registry->schema(2, '{"type":"record","name":"o","fields":[{"name":"note","type":["null","string"]},{"name":"amount","type":"double"},{"name":"id","type":"long"},{"name":"new","type":{"type":"map","values":"bytes"}}]}');
$registry->schema(3, '{"type":"record","name":"o","fields":[{"name":"id","type":"string"},{"name":"at","type":{"type":"long","logicalType":"timestamp-millis"}}]}');
put('orders', framed(1, n(1) . pack('f<', 2.5)), framed(2, n(1) . &s('x') . pack('d<', 0.1) . n(2) . n(1) . &s('k') . &s('v') . n(0)), framed(1, n(3) . pack('f<', 1)),
	framed(3, &s('4') . n(1772359200123)), framed(2, n(0) . pack('d<', 7) . n(5) . n(0)));
source('orders', 'id bigint, amount numeric, note text, at timestamptz', '');
query('orders', 'SELECT * FROM orders');
drain('orders');
is_sql('SELECT id, amount, note, at FROM orders_out ORDER BY id', "1|2.5||\n2|0.1|x|\n3|1||\n4|||2026-03-01 10:00:00.123+00\n5|7||", 'each message by its writer\'s schema');
is(scalar(grep { /ids/ } $registry->asked), 3, 'each schema is asked for once');
is_sql("SELECT count(*) FROM stream.dead_letters WHERE query = 'orders'", '0', 'and none is refused');

# Framed and unframed messages in one topic.
$registry->schema(7, '{"type":"record","name":"r","fields":[{"name":"id","type":"int"}]}');
my @mixed = (framed(7, n(1)), '{}', "\0\0\0", '', framed(7, '{"id":5}'), framed(8, n(1)), framed(7, n(6) . 'x'), framed(7, ''), framed(9, n(1)), framed(10, n(1)), framed(7, n(9)));
$registry->schema(9, 'message M { int32 id = 1; }', ',"schemaType":"PROTOBUF"');
$registry->schema(10, '{"type":"recrod"}');
put('mixed', @mixed);
source('mixed', 'id int, kafka_offset bigint', '');
query('mixed', 'SELECT * FROM mixed');
drain('mixed');
is_sql('SELECT id, kafka_offset FROM mixed_out ORDER BY 2', "1|0\n9|10", 'good ones pass');
is_sql(q(SELECT position->>'offset', error FROM stream.dead_letters WHERE query = 'mixed' ORDER BY (position->>'offset')::int), join("\n",
	'1|22P03: no frame of a schema registry: the first byte is 0x7b, not 0x00', '2|22P03: no frame of a schema registry: 3 bytes are less than 5', '3|22P03: no frame of a schema registry: 0 bytes are less than 5',
	'4|22P03: 7 unread bytes follow the value; was it written with another schema?', '5|22P03: unknown schema 8: the schema registry has nothing at /schemas/ids/8', '6|22P03: 1 unread bytes follow the value; was it written with another schema?',
	'7|22P03: not the Avro of its schema: the message ends too early, at byte 0', '8|22P03: unknown schema 9: the schema at /schemas/ids/9 is of type PROTOBUF, not AVRO', '9|22P03: invalid Avro schema: unknown type "recrod"'), 'the others say why not');
is_sql(q(SELECT string_agg(encode(raw, 'hex'), ' ' ORDER BY (position->>'offset')::int) FROM stream.dead_letters WHERE query = 'mixed'), join(' ', map { unpack('H*', $_) } @mixed[1 .. 9]), 'and are kept byte for byte');
source('strict', 'id int', ', "on_bad_row": "fail"', 'mixed');
query('strict', 'SELECT * FROM strict');
fails('strict', qr/ERROR:  22P03: .*"offset": 1\b/s, 'strict: the batch fails and says where');
source('json', 'id int', ', "format": "json"', 'mixed');
query('json', 'SELECT * FROM json');
drain('json');
is_sql(q(SELECT error FROM stream.dead_letters WHERE query = 'json' AND position->>'offset' = '4'),
	'22021: invalid byte sequence for encoding "UTF8": 0x00 at byte 0 (the frame of a schema registry?)', 'as JSON a framed message is bad, and why can be guessed');
# An unknown schema that was only late: the letter comes again.
$registry->schema(8, '{"type":"record","name":"r","fields":[{"name":"id","type":"int"}]}');
$node->safe_psql('postgres', q(SELECT stream.replay_dead_letters('mixed')));
drain('mixed');
is_sql('SELECT id FROM mixed_out WHERE kafka_offset = 5', '1', 'a schema that came later reads the letter');

# Numbers that mean nothing, each another one: little is kept of them.
put('strange', map { framed(1_000_000 + $_, n(1)) } 1 .. 600);
source('strange', 'id int', '');
query('strange', 'SELECT * FROM strange');
is_sql(q(CALL stream.process_all_available('strange'); SELECT total_bytes < 40000 FROM pg_backend_memory_contexts WHERE name = 'stream_ext registry'), 't', 'unknown numbers do not fill the memory');
is_sql("SELECT count(DISTINCT error) FROM stream.dead_letters WHERE query = 'strange'", '600', 'and each is told');

# Without a frame: the schema is an option.
put('plain', &s('abc'), framed(7, &s('abc')));
source('plain', 'word text, kafka_offset bigint', q(, "avro_schema": "\"string\""));
query('plain', 'SELECT * FROM plain');
drain('plain');
is_sql('SELECT word, kafka_offset FROM plain_out', 'abc|0', 'plain Avro');
is_sql("SELECT error FROM stream.dead_letters WHERE query = 'plain'", '22P03: 8 unread bytes follow the value; was it written with another schema?', 'a frame is not taken for a value');

# A tombstone is a row where the key is declared, else a bad row; and bytes that are empty are no tombstone.
$broker->ask('send plain 0 key=k');
source('plain_key', 'word text, kafka_key text', q(, "avro_schema": "\"string\""), 'plain');
is_sql('SELECT kafka_key FROM plain_key WHERE word IS NULL', 'k', 'a tombstone with its key');
drain('plain');
is_sql("SELECT error FROM stream.dead_letters WHERE query = 'plain' ORDER BY id DESC LIMIT 1", '22P02: the message has no value (a tombstone); declare column kafka_key to read such messages as rows', 'and without');

# Schemas that refer to others.
$registry->answer('/subjects/color/versions/3', '{"subject":"color","version":3,"id":20,"schema":"{\"type\":\"enum\",\"name\":\"n.color\",\"symbols\":[\"RED\",\"BLUE\"]}"}');
$registry->answer('/subjects/box%2Fone/versions/1', '{"schema":"{\"type\":\"record\",\"name\":\"n.box\",\"fields\":[{\"name\":\"c\",\"type\":\"color\"}]}","references":[{"name":"n.color","subject":"color","version":3}]}');
$registry->schema(21, '{"type":"record","name":"n.r","fields":[{"name":"box","type":"n.box"},{"name":"c","type":"color"}]}',
	',"references":[{"name":"n.color","subject":"color","version":3},{"name":"n.box","subject":"box/one","version":1}]');
$registry->schema(22, '"n.none"', ',"references":[{"name":"n.none","subject":"none","version":1}]');
$registry->schema(23, '"n.none"', ',"references":[{"name":"n.none"}]');
$registry->answer('/subjects/loop/versions/1', '{"schema":"\"int\"","references":[{"name":"l","subject":"loop","version":1}]}');
$registry->schema(24, '"int"', ',"references":[{"name":"l","subject":"loop","version":1}]');
put('refs', framed(21, n(1) . n(0)), map { framed($_, n(1)) } 22 .. 24);
source('refs', 'box jsonb, c text', '');
query('refs', 'SELECT * FROM refs');
drain('refs');
is_sql('SELECT * FROM refs_out', '{"c": "BLUE"}|RED|0', 'schemas that refer to others');
is_sql(q(SELECT error FROM stream.dead_letters WHERE query = 'refs' ORDER BY (position->>'offset')::int), join("\n", '22P03: unknown schema 22: the schema registry has nothing at /subjects/none/versions/1',
	'22P03: unknown schema 23: the schema at /schemas/ids/23 has references that cannot be followed', '22P03: unknown schema 24: the schema at /subjects/loop/versions/1 has references that cannot be followed'), 'or to nothing');

# A registry that is away is no fault of the messages: the batch fails and comes again, and nothing is put aside.
put('gone', map { framed(30, n($_)) } 1 .. 3);
$registry->schema(30, '{"type":"record","name":"r","fields":[{"name":"id","type":"int"}]}');
source('gone', 'id int', '');
query('gone', 'SELECT * FROM gone');
$registry->mood('status 503');
fails('gone', qr{ERROR:  08006: schema registry does not answer as it should: \Q$url\E/schemas/ids/30\nDETAIL:  Its status is 503}, 'status 503');
$registry->mood('status 301');
fails('gone', qr{ERROR:  08006: .*\nDETAIL:  Its status is 301}, 'a redirect is not followed');
$registry->mood('cut');
fails('gone', qr{ERROR:  08006: schema registry does not answer: }, 'an answer that is cut');
$registry->mood;
$registry->answer('/schemas/ids/30', '<html>no JSON');
fails('gone', qr{ERROR:  22P02: .*CONTEXT:  .*answer of the schema registry to \Q$url\E/schemas/ids/30}s, 'an answer that is no JSON');
$registry->schema(30, '{"type":"record","name":"r","fields":[{"name":"id","type":"int"}]}');
$registry->stop;
fails('gone', qr{ERROR:  08006: schema registry does not answer: .*onnect}s, 'nobody there');
$node->safe_psql('postgres', "SELECT stream.start_query('gone')");
ok(wait_for_sql($node, q(SELECT status, failures > 6 FROM stream.queries WHERE name = 'gone'), 'restarting|t', 60), 'the worker tries again and again');
is_sql("SELECT count(*) FROM stream.dead_letters WHERE query = 'gone'", '0', 'nothing is put aside');
$registry->start;
ok(wait_for_sql($node, 'SELECT array_agg(id ORDER BY id) FROM gone_out', '{1,2,3}', 90), 'and goes on when it is back');
$node->safe_psql('postgres', "SELECT stream.stop_query('gone')");
# One that does not answer is waited for, but not for ever; a cancel is heard meanwhile.
put('later', framed(31, n(1)));
$registry->schema(31, '{"type":"record","name":"r","fields":[{"name":"id","type":"int"}]}');
source('later', 'id int', '');
query('later', 'SELECT * FROM later');
$registry->mood('hang');
my $since = time;
my (undef, undef, $error) = $node->psql('postgres', "SET statement_timeout = '1s'; CALL stream.process_all_available('later')");
like($error, qr/canceling statement due to statement timeout/, 'a cancel is heard');
cmp_ok(time - $since, '<', 8, 'at once');
$registry->stop;
$registry->mood;
$registry->start;
drain('later');
is_sql('SELECT id FROM later_out', '1', 'after it the same process asks again');

# Credentials: in the user mapping, and nowhere else; never shown.
$registry->mood('user ann:s3cret');
put('locked', framed(40, n(1)));
$registry->schema(40, '"int"');
source('locked', 'id int', '');
query('locked', 'SELECT * FROM locked');
fails('locked', qr{ERROR:  28000: schema registry refuses the credentials: \Q$url\E/schemas/ids/40}, 'refused credentials');
$node->safe_psql('postgres', q(CREATE USER MAPPING FOR CURRENT_USER SERVER k OPTIONS ("schema.registry.username" 'ann', "schema.registry.password" 's3cret')));
drain('locked');
is_sql('SELECT id FROM locked_out', '1', 'the right ones');
unlike(slurp_file($node->logfile), qr/Basic|answer.*s3cret/, 'the log does not hold them');

# TLS: a certificate that is trusted by option, and not otherwise.
SKIP:
{
	skip 'no openssl here', 2 unless `openssl version 2>&1` =~ /^OpenSSL/;
	my $dir = PostgreSQL::Test::Utils::tempdir();
	mkdir "$dir/schemas" or die;
	mkdir "$dir/schemas/ids" or die;
	append_to_file("$dir/schemas/ids/50", '{"schema":"\"int\""}');
	system("cd '$dir' && openssl req -x509 -newkey rsa:2048 -nodes -keyout key.pem -out cert.pem -days 2 -subj /CN=localhost -addext subjectAltName=IP:127.0.0.1 2>/dev/null") == 0 or die;
	my $pid = open(my $tls, '-|', "cd '$dir' && exec openssl s_server -accept 127.0.0.1:0 -cert cert.pem -key key.pem -WWW 2>&1") or die;
	my $port;
	while (my $line = <$tls>) { last if ($port) = $line =~ /ACCEPT .*:(\d+)/; }
	my $pem = slurp_file("$dir/cert.pem");
	$broker->ask('create secret 1');
	put('secret', framed(50, n(8)));
	$node->safe_psql('postgres', qq(CREATE SERVER tls FOREIGN DATA WRAPPER stream_kafka OPTIONS ("bootstrap.servers" '$server', "schema.registry.url" 'https://127.0.0.1:$port');
		SELECT stream.create_source('secret', 'kafka', 'id int', '{"server": "tls", "topic": "secret", "starting_offsets": "earliest", "format": "avro"}')));
	query('secret', 'SELECT * FROM secret');
	fails('secret', qr{ERROR:  08006: schema registry does not answer: https://.*certificate}s, 'a certificate nobody trusts');
	$node->safe_psql('postgres', qq(ALTER SERVER tls OPTIONS (ADD "schema.registry.ca.pem" '$pem')));
	drain('secret');
	is_sql('SELECT id FROM secret_out', '8', 'one that is trusted');
	kill 'KILL', $pid;
	close($tls);
}

# A server with a registry serves sinks and sources of other formats as well.
$broker->ask('create out 1');
$node->safe_psql('postgres', q(SELECT stream.create_query('out', 'SELECT id AS value FROM locked', stream.to_kafka('out', '{"server": "k"}'), start => false)));
drain('out');
source('words', 'word text', ', "format": "text"', 'out');
is_sql('SELECT word FROM words', '1', 'other formats do not mind the registry');

# Where the options may stand.
sub refused
{
	my ($statement, $expected, $what) = @_;
	my ($ret, undef, $message) = $node->psql('postgres', "\\set VERBOSITY verbose\n$statement");
	isnt($ret, 0, "$what: refused");
	like($message, $expected, "$what: says so");
	return;
}
my $avro = '"topic": "t", "format": "avro"';
refused(qq(SELECT stream.create_source('x', 'kafka', 'id int', '{"server": "k", $avro, "schema.registry.url": "http://evil"}')), qr/HV00D: option "schema.registry.url" of source public.x belongs to its server/, 'a registry elsewhere');
refused(qq(SELECT stream.create_source('x', 'kafka', 'id int', '{"bootstrap.servers": "h:1", $avro}')), qr/0A000: format "avro" needs the schema/, 'no schema at all');
refused(qq(SELECT stream.create_source('x', 'kafka', 'id int', '{"bootstrap.servers": "h:1", $avro, "schema.registry.password": "x"}')), qr/HV00D: option "schema.registry.password" cannot be set here/, 'a password for all to see');
refused(qq(ALTER SERVER k OPTIONS (ADD "schema.registry.password" 'x')), qr/HV00D: option "schema.registry.password" cannot be set here/, 'a password on a server');
refused(qq(CREATE SERVER x FOREIGN DATA WRAPPER stream_kafka OPTIONS ("schema.registry.url" '$_')), qr/HV024: option "schema.registry.url" (is no URL|must not hold credentials)/, "url $_")
	for 'h:80', 'ftp://h', 'http://', 'http:///x', 'http://a b', 'http://u:p@h', 'http://h?x', 'https://a,https://b';
refused(qq(SELECT stream.create_source('x', 'kafka', 'id int', '{"bootstrap.servers": "h:1", $avro, "schema.registry.url": "$url", "avro_schema": "\\"int\\""}')), qr/22023: source public.x has both/, 'two sources of schemas');
refused(qq(SELECT stream.create_source('x', 'kafka', 'id int', '{"bootstrap.servers": "h:1", "topic": "t", "schema.registry.url": "$url"}')), qr/22023: option "schema.registry.url" of source public.x is for format "avro"/, 'a registry for JSON');
refused(qq(SELECT stream.create_source('x', 'kafka', 'id int', '{"bootstrap.servers": "h:1", "topic": "t", "avro_schema": "\\"int\\""}')), qr/22023: option "avro_schema" of source public.x is for format "avro"/, 'a schema for JSON');
refused(qq(SELECT stream.create_source('x', 'kafka', 'id int', '{"bootstrap.servers": "h:1", $avro, "avro_schema": "{}"}')), qr/22023: option "avro_schema" holds no Avro schema.*DETAIL:  invalid Avro schema: an object without "type"/s, 'a schema that is none');
refused(qq(SELECT stream.create_source('x', 'file', 'id int', '{"path": "/tmp", "format": "avro"}')), qr/0A000: format "avro" needs the schema/, 'files of Avro');
refused(qq(SELECT stream.create_query('x', 'SELECT 1 AS value FROM gone', stream.to_kafka('t', '{"server": "k", "schema.registry.url": "$url"}'))), qr/HV00D/, 'a registry for a sink');

done_testing();
