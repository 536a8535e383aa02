# A client and a broker that do not find together: TLS to a port without, none to a port with it, nobody there. Sources and sinks say so, and what to change.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::Bin/../lib";
use PostgreSQL::Test::Utils;
use StreamBroker;
use StreamNode;
use IO::Socket::INET;
use POSIX ();
use Socket qw(SOL_SOCKET SO_LINGER);
use Test::More;

plan skip_all => 'no openssl here' unless `openssl version 2>&1` =~ /^OpenSSL/;

my $node = new_node('main');
my $broker = StreamBroker->new(topics => ['t:1']);
my $dir = PostgreSQL::Test::Utils::tempdir();
system("cd '$dir' && openssl req -x509 -newkey rsa:2048 -nodes -keyout key.pem -out cert.pem -days 2 -subj /CN=localhost -addext subjectAltName=IP:127.0.0.1 2>/dev/null") == 0 or die;
# It tells of every client that fails: to a file, for nobody would empty a pipe.
my $pid = fork() // die;
if (!$pid) { exec("cd '$dir' && exec openssl s_server -accept 127.0.0.1:0 -cert cert.pem -key key.pem -www >tls.log 2>&1"); }
my $port;
wait_for(sub { -e "$dir/tls.log" && (($port) = slurp_file("$dir/tls.log") =~ /ACCEPT .*:(\d+)/) }, 60) or die 'openssl s_server does not start';

# What Kafka does with TLS on a port without: it hangs up, with what it was sent read to its end or not. librdkafka has words of its own for each.
my %deaf = map { $_ => IO::Socket::INET->new(LocalAddr => '127.0.0.1', Listen => 100) // die } 'hangs_up', 'resets';
my @deaf = map { my $name = $_; my $deaf = fork() // die; if (!$deaf) { hang_up($deaf{$name}, $name eq 'resets'); POSIX::_exit(0); } $deaf } sort keys %deaf;
sub hang_up
{
	my ($listener, $reset) = @_;
	while (my $client = $listener->accept)
	{
		sysread($client, my $hello, $reset ? 1 : 65536);
		setsockopt($client, SOL_SOCKET, SO_LINGER, pack('ii', 1, 0)) if $reset;
		close($client);
	}
	return;
}
# And a port where nothing listens, which nobody is given meanwhile.
my $closed = IO::Socket::INET->new(LocalAddr => '127.0.0.1') or die;

my $plain = $broker->bootstrap;
my $pem = slurp_file("$dir/cert.pem");
table_source($node, 'input', 'value text');
$node->safe_psql('postgres', qq(INSERT INTO input_t VALUES ('x');
	CREATE SERVER no_tls FOREIGN DATA WRAPPER stream_kafka OPTIONS ("bootstrap.servers" '127.0.0.1:$port');
	CREATE SERVER tls FOREIGN DATA WRAPPER stream_kafka OPTIONS ("bootstrap.servers" '$plain', "security.protocol" 'ssl', "ssl.ca.pem" '$pem');
	CREATE SERVER hangs_up FOREIGN DATA WRAPPER stream_kafka OPTIONS ("bootstrap.servers" '127.0.0.1:${\$deaf{hangs_up}->sockport}', "security.protocol" 'ssl', "ssl.ca.pem" '$pem');
	CREATE SERVER resets FOREIGN DATA WRAPPER stream_kafka OPTIONS ("bootstrap.servers" '127.0.0.1:${\$deaf{resets}->sockport}', "security.protocol" 'ssl', "ssl.ca.pem" '$pem');
	CREATE SERVER resets_plain FOREIGN DATA WRAPPER stream_kafka OPTIONS ("bootstrap.servers" '127.0.0.1:${\$deaf{resets}->sockport}');
	CREATE SERVER other_ca FOREIGN DATA WRAPPER stream_kafka OPTIONS ("bootstrap.servers" '127.0.0.1:$port', "security.protocol" 'ssl');
	CREATE SERVER closed FOREIGN DATA WRAPPER stream_kafka OPTIONS ("bootstrap.servers" '127.0.0.1:${\$closed->sockport}');
	CREATE SERVER nowhere FOREIGN DATA WRAPPER stream_kafka OPTIONS ("bootstrap.servers" 'no-such-host.invalid:9092');
	CREATE SERVER no_mechanism FOREIGN DATA WRAPPER stream_kafka OPTIONS ("bootstrap.servers" '$plain', "security.protocol" 'sasl_ssl')));
my $tls = qr/HINT:  Perhaps the brokers speak TLS at that address: set security\.protocol of the server to "ssl"/;
my $no_tls = qr/HINT:  Perhaps the brokers do not speak TLS at that address: .*set security\.protocol of the server to "plaintext"/;
my %hint = (
	no_tls => $tls,
	resets_plain => $tls,
	tls => $no_tls,
	hangs_up => $no_tls,
	resets => $no_tls,
	other_ca => qr/HINT:  Put the certificate that signed the broker's, as PEM text, into option "ssl\.ca\.pem" of the server; .* name the host/,
	closed => qr/Connection refused.*HINT:  Nothing listens there: correct "bootstrap\.servers" of the server, or start the broker/s,
	nowhere => qr/Failed to resolve.*HINT:  Correct "bootstrap\.servers" of the server/s);
for my $server (sort keys %hint)
{
	$node->safe_psql('postgres', qq(SELECT stream.create_source('$server', 'kafka', 'id int', '{"server": "$server", "topic": "t", "starting_offsets": "earliest"}');
		SELECT stream.create_query('$server', 'SELECT id FROM $server', stream.to_table('${server}_out'), options => '{"max_retries": 1000000}');
		SELECT stream.create_query('to_$server', 'SELECT value FROM input', stream.to_kafka('t', '{"server": "$server"}'), options => '{"max_retries": 1000000}')));
}
for my $server (sort keys %hint)
{
	for my $query ($server, "to_$server")
	{
		my $error = '';
		ok(wait_for(sub { $error = $node->safe_psql('postgres', "SELECT sqlstate, error FROM stream.queries WHERE name = '$query' AND status = 'restarting'"); return $error =~ $hint{$server} }, 60),
			"query $query says what may be wrong") or diag($error); note $error;
		like($error, qr/^(08006|28000)\|/, "and tries again: $query");
		$node->safe_psql('postgres', "SELECT stream.stop_query('$query')");
	}
}

$node->safe_psql('postgres', q(SELECT stream.create_source('no_mechanism', 'kafka', 'id int', '{"server": "no_mechanism", "topic": "t"}')));
my (undef, undef, $err) = $node->psql('postgres', q(SELECT stream.create_query('no_mechanism', 'SELECT id FROM no_mechanism', stream.to_table('x'))));
like($err, qr/could not make a Kafka client for source public\.no_mechanism.*HINT:  Set "sasl\.mechanisms" of the server/s, 'a password needs a mechanism');

kill 'KILL', $pid, @deaf;
waitpid($_, 0) for $pid, @deaf;
$node->stop;
done_testing();
