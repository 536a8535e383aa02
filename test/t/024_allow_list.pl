# The allow-list, fed with every property librdkafka knows: what may stand on a server, in a user mapping, on a source, on a sink, and nothing else.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::Bin/../lib";
use PostgreSQL::Test::Utils;
use StreamNode;
use Test::More;

my $connection = q{bootstrap.servers broker.address.family broker.address.ttl client.id client.rack connections.max.idle.ms enable.ssl.certificate.verification message.max.bytes
	metadata.max.age.ms receive.message.max.bytes reconnect.backoff.max.ms reconnect.backoff.ms retry.backoff.ms sasl.mechanism sasl.mechanisms security.protocol
	socket.connection.setup.timeout.ms socket.keepalive.enable socket.nagle.disable socket.receive.buffer.bytes socket.send.buffer.bytes socket.timeout.ms ssl.ca.pem
	ssl.cipher.suites ssl.curves.list ssl.endpoint.identification.algorithm ssl.sigalgs.list topic.metadata.refresh.interval.ms};
my $credential = 'sasl.username ssl.certificate.pem';
my $secret = 'sasl.password ssl.key.password ssl.key.pem';
my $consumer = q{check.crcs fetch.error.backoff.ms fetch.max.bytes fetch.message.max.bytes fetch.min.bytes fetch.wait.max.ms max.partition.fetch.bytes queued.max.messages.kbytes
	queued.min.messages};
my $producer = q{batch.num.messages batch.size compression.codec compression.level compression.type linger.ms partitioner queue.buffering.max.kbytes queue.buffering.max.messages
	queue.buffering.max.ms request.timeout.ms sticky.partitioning.linger.ms};
my %may = (
	server => "$connection $credential $consumer $producer",
	mapping => "$credential $secret",
	source => "$connection $credential $consumer $producer",    # of the built-in server
	source_of_server => "$consumer $producer",    # of another: tuning, nothing about the connection
	sink => "$producer transaction.timeout.ms");
# Whatever the list says, these never: files, programs, other hosts, our own bookkeeping, logs.
my $never = qr/\.location$|\.keytab$|\.path$|\.paths$|\.cmd$|^test\.mock|^debug$|^log|\.log|^group\.id$|^transactional\.id$|^isolation\.level$|^auto\.offset|^enable\.auto|oauthbearer|^ssl_.*_cb|_cb$|^opaque$|^builtin\.features$|^enable\.random\.seed$|^plugin|^sasl\.kerberos|^acks$|^request\.required\.acks$|^interceptors$/;

my ($table) = scalar(`"$ENV{STREAM_BUILD}/kafka_properties"`);
my %default;
for (split /\n/, $table)
{
	my ($name, $value) = /^(\S+)\s+\|\s*(?:C|P|\*)\s*\|[^|]*\|\s*(.*?)\s*\|/ or next;
	$default{$name} = $value;
}
delete $default{Property};
my @names = sort keys %default;
cmp_ok(scalar(@names), '>', 120, 'librdkafka names its properties');
for my $place (sort keys %may)
{
	my @unknown = grep { !exists $default{$_} } split ' ', $may{$place};
	is("@unknown", '', "$place: all it takes are such names");
}

my $node = new_node('main');
$node->safe_psql('postgres', q{
	CREATE SERVER own FOREIGN DATA WRAPPER stream_kafka OPTIONS ("bootstrap.servers" 'h:1');
	CREATE TABLE t (v int);
	SELECT stream.create_source('s', 'table', options => '{"table": "t"}');
	-- HV024: the value is not liked, so the name was
	CREATE FUNCTION allowed(statement text) RETURNS boolean LANGUAGE plpgsql AS $f$
	BEGIN
		EXECUTE statement;
		RAISE EXCEPTION USING ERRCODE = 'ZZ000';
	EXCEPTION
		WHEN SQLSTATE 'ZZ000' OR SQLSTATE 'HV024' THEN RETURN true;
		WHEN OTHERS THEN
			IF SQLSTATE IN ('HV00D', '22023') THEN RETURN false; END IF;
			RAISE;
	END $f$;
	CREATE TABLE property (name text, value text)});
sub pem { return "-----BEGIN $_[0]-----\nMAMCAQE=\n-----END $_[0]-----\n" }
$node->safe_psql('postgres', 'INSERT INTO property VALUES ' . join ', ', map { my $v = /^sasl\.mechanism/ ? 'PLAIN' : /(key\.)?pem$/ ? pem($1 ? 'PRIVATE KEY' : 'CERTIFICATE') : $default{$_}; "('$_', " . (length $v ? "'$v'" : "'x'") . ')' } @names);
my %statement = (
	server => q{format('CREATE SERVER x FOREIGN DATA WRAPPER stream_kafka OPTIONS (%I %L)', name, value)},
	mapping => q{format('CREATE USER MAPPING FOR PUBLIC SERVER own OPTIONS (%I %L)', name, value)},
	source => q{format('SELECT stream.create_source(''x'', ''kafka'', ''v int'', %L)', jsonb_build_object('bootstrap.servers', 'h:1', 'topic', 't') || jsonb_build_object(name, value))},
	source_of_server => q{format('SELECT stream.create_source(''x'', ''kafka'', ''v int'', %L)', jsonb_build_object('server', 'own', 'topic', 't') || jsonb_build_object(name, value))},
	sink => q{format('SELECT stream.create_query(''x'', ''SELECT v FROM s'', stream.to_kafka(''t'', %L), start => false)', jsonb_build_object('server', 'own') || jsonb_build_object(name, value))});
for my $place (sort keys %may)
{
	my $taken = $node->safe_psql('postgres', "SELECT string_agg(name, ' ' ORDER BY name COLLATE \"C\") FROM property WHERE allowed($statement{$place})");
	is($taken, join(' ', sort split ' ', $may{$place}), "$place takes these of " . scalar(@names) . ' and no other');
	my @harmful = grep { $_ =~ $never } split ' ', $taken;
	is("@harmful", '', "$place: none of them harmful");
}
$node->stop;
done_testing();
