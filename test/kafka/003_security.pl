# Against Apache Kafka itself: TLS by PEM text, a password in the user mapping; what is said, and what never is.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use StreamBroker;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->append_conf('postgresql.conf', "log_min_messages = debug1\n");
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION stream_ext');

my $broker = StreamBroker->real;
my ($address, $certificate) = $broker->secure;
$broker->ask('create t 1');
$broker->send_value('t', 0, '{"id":1}', '{"id":2}');
$node->safe_psql('postgres', qq(
	CREATE SERVER k FOREIGN DATA WRAPPER stream_kafka OPTIONS ("bootstrap.servers" '$address', "security.protocol" 'sasl_ssl', "sasl.mechanisms" 'PLAIN',
		"ssl.ca.pem" '$certificate');
	CREATE USER MAPPING FOR postgres SERVER k OPTIONS ("sasl.username" 'stream', "sasl.password" 'stream-secret');
	SELECT stream.create_source('t', 'kafka', 'id int', '{"server": "k", "topic": "t", "starting_offsets": "earliest"}');
));
is($node->safe_psql('postgres', 'SELECT count(*) FROM t'), '2', 'reads over TLS with a password');
$node->safe_psql('postgres', q(SELECT stream.create_query('q', 'SELECT id FROM t', stream.to_table('q_out'))));
ok($node->poll_query_until('postgres', 'SELECT count(*) = 2 FROM q_out'), 'so does a worker');

# A wrong password is said so, without the password, and is no reason to wait for the broker for ever.
$node->safe_psql('postgres', q(SELECT stream.stop_query('q'); ALTER USER MAPPING FOR postgres SERVER k OPTIONS (SET "sasl.password" 'not-the-secret')));
my ($ret, $out, $err) = $node->psql('postgres', '\set VERBOSITY verbose' . "\n" . 'SELECT count(*) FROM t');
like($err, qr/28000.*uthentication failed.*HINT.*sasl\.password of the user mapping/s, 'a wrong password is an authentication failure');
unlike($err, qr/not-the-secret/, 'which does not repeat it');

# What else does not fit the broker, and what is said then to be changed.
sub refused_with
{
	my ($options, $said, $name) = @_;
	$node->safe_psql('postgres', "ALTER SERVER k OPTIONS ($options)");
	my (undef, undef, $error) = $node->psql('postgres', 'SELECT count(*) FROM t');
	like($error, $said, $name);
	return;
}
my $plain = $broker->bootstrap;
refused_with(q(SET "sasl.mechanisms" 'SCRAM-SHA-256'), qr/Unsupported SASL mechanism.*HINT:  Set "sasl\.mechanism"/s, 'a mechanism the broker lacks');
refused_with(q(SET "sasl.mechanisms" 'PLAIN', SET "security.protocol" 'ssl'), qr/HINT:  Perhaps the brokers want a password/, 'a password not offered');
refused_with(qq(SET "security.protocol" 'sasl_ssl', SET "bootstrap.servers" '$plain'), qr/HINT:  Perhaps the brokers do not speak TLS/, 'TLS to the port without');
$node->safe_psql('postgres', qq(ALTER SERVER k OPTIONS (SET "bootstrap.servers" '$address')));

# A broker whose certificate we do not trust gets no password.
$node->safe_psql('postgres', q(ALTER USER MAPPING FOR postgres SERVER k OPTIONS (SET "sasl.password" 'stream-secret')));
$node->safe_psql('postgres', 'ALTER SERVER k OPTIONS (DROP "ssl.ca.pem")');
($ret, $out, $err) = $node->psql('postgres', '\set VERBOSITY verbose' . "\n" . 'SELECT count(*) FROM t');
like($err, qr/28000.*certificate.*HINT.*ssl\.ca\.pem/s, 'an untrusted certificate is refused, and where to put one is said');

# Another role has no mapping: it gets nowhere, and sees no secret.
$node->safe_psql('postgres', qq(ALTER SERVER k OPTIONS (ADD "ssl.ca.pem" '$certificate'); CREATE ROLE nobody; GRANT SELECT ON t TO nobody));
($ret, $out, $err) = $node->psql('postgres', 'SET ROLE nobody; SELECT count(*) FROM t');
isnt($ret, 0, 'a role without mapping cannot read');
like($err, qr/user mapping of role "nobody"/, 'and is told what it lacks');
is($node->safe_psql('postgres', q(SET ROLE nobody; SELECT count(*) FROM pg_user_mappings WHERE umoptions::text LIKE '%secret%')), '0', 'and sees no secret');

# A broker that gives an address where it is not to be reached.
$broker->advertise_secure('127.0.0.1:1');
($ret, $out, $err) = $node->psql('postgres', 'SELECT count(*) FROM t');
like($err, qr/Connection refused.*HINT:  The brokers gave that address themselves: .*advertised\.listeners/s, 'an address advertised wrongly is told from one of ours');

$node->stop;
my $log = PostgreSQL::Test::Utils::slurp_file($node->logfile);
my @lines = grep { /secret/ && !/statement:|STATEMENT:|^\s|LIKE/ } split /\n/, $log;
is(join("\n", @lines), '', 'no secret in the server log');
done_testing();
