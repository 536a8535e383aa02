# Passwords and keys that only a user mapping knows: never in the server's log at any level, in errors, views, progress, events, process titles, or another role's dump.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::Bin/../lib";
use PostgreSQL::Test::Utils;
use StreamBroker;
use StreamListener;
use StreamNode;
use Test::More;

my $node = new_node('main', 'log_min_messages = debug5', 'log_statement = none', 'log_min_error_statement = panic');
my $canary = 'canary-6f1d';
my $broker = StreamBroker->new(topics => ['t:1']);
my $address = $broker->{bootstrap};
my @seen;    # everything anybody was shown

sub show
{
	my ($sql, $role) = @_;
	my ($rc, $out, $err) = $node->psql('postgres', "\\set VERBOSITY verbose\n$sql", extra_params => [ '-U', $role // 'postgres' ]);
	push @seen, [ $sql, "$out\n$err" ];
	return $err;
}

show('CREATE ROLE app LOGIN; CREATE ROLE other LOGIN; GRANT CREATE ON SCHEMA public TO app; GRANT USAGE ON FOREIGN SERVER stream_table TO app');
my $log = -s $node->logfile;
# Made while nothing is logged of statements; from then on the words must not come up.
# It passes for a key, and has the word beside it.
my $key = "-----BEGIN PRIVATE KEY-----\nMAkCAQACAQACAQA=\n-----END PRIVATE KEY-----\n$canary-pem\n";
my %secret = ('sasl.username' => 'user', 'sasl.password' => "$canary-password", 'ssl.key.pem' => $key, 'ssl.key.password' => "$canary-keypass");
my %mapping = (
	away => [ "'127.0.0.1:1'", 'sasl_plaintext', 'sasl.username', 'sasl.password' ],
	refused => [ "'$address'", 'sasl_plaintext', 'sasl.username', 'sasl.password' ],
	badkey => [ "'$address'", 'ssl', 'ssl.key.pem', 'ssl.key.password' ],
	badsasl => [ "'$address'", 'sasl_ssl', 'sasl.username', 'sasl.password' ]);
for my $server (sort keys %mapping)
{
	my ($servers, $protocol, @names) = @{ $mapping{$server} };
	my $mechanism = $protocol =~ /sasl/ ? q{, "sasl.mechanisms" 'SCRAM-SHA-256'} : '';
	my $options = join ', ', map { "\"$_\" '$secret{$_}'" } @names;
	my $err = show(qq{CREATE SERVER $server FOREIGN DATA WRAPPER stream_kafka OPTIONS ("bootstrap.servers" $servers, "security.protocol" '$protocol'$mechanism);
		GRANT USAGE ON FOREIGN SERVER $server TO app});
	is($err, '', "server $server");
	my ($rc, $out, $message) = $node->psql('postgres', "CREATE USER MAPPING FOR app SERVER $server OPTIONS ($options)");
	unlike("$out$message", qr/$canary/, "mapping $server") or next;
	show(qq{SELECT stream.create_source('${server}_s', 'kafka', 'v int', '{"server": "$server", "topic": "t", "starting_offsets": "earliest"}')}, 'app');
	isnt(show("SELECT count(*) FROM ${server}_s", 'app'), '', "$server: reading by hand fails") if $server eq 'badkey';
	$err = show("SELECT stream.create_query('$server', 'SELECT v FROM ${server}_s', stream.to_table('${server}_out'))", 'app');
	like($err, $server eq 'badkey' ? qr/HV00N: could not make a Kafka client/ : qr/^$/, "query $server");
	show("CREATE TABLE rows_t (v int); SELECT stream.create_source('rows', 'table', options => '{\"table\": \"rows_t\"}'); INSERT INTO rows_t VALUES (1);
		SELECT stream.create_query('sink', 'SELECT v FROM rows', stream.to_kafka('t', '{\"server\": \"$server\"}'))", 'app') if $server eq 'badkey';
}
ok(wait_for_sql($node, 'SELECT count(*) FROM stream.queries WHERE error IS NOT NULL', '4', 60), 'the queries fail') or diag($node->safe_psql('postgres', 'SELECT name, status, error FROM stream.queries'));
for my $server (sort keys %mapping)
{
	my @names = @{ $mapping{$server} }[2, 3];
	my ($rc, $out, $message);
	my $titles = join "\n", map { my $t = eval { slurp_file($_) } // ''; $t } glob('/proc/[0-9]*/cmdline');
	push @seen, [ 'process titles', join "\n", grep { /postgres/ && !/psql/ } split /\n/, $titles ];
	# What is refused does not repeat what it refuses.
	($rc, $out, $message) = $node->psql('postgres', qq{CREATE SERVER x FOREIGN DATA WRAPPER stream_kafka OPTIONS ("$names[-1]" '$secret{$names[-1]}')});
	unlike($message, qr/$canary/, "$server: a secret in the wrong place is refused without being repeated");
	($rc, $out, $message) = $node->psql('postgres', qq{SELECT stream.create_source('x', 'kafka', 'v int', '{"server": "$server", "topic": "t", "$names[-1]": "$secret{$names[-1]}"}')});
	unlike($message, qr/$canary/, "$server: nor on a source");
	($rc, $out, $message) = $node->psql('postgres', qq{SELECT stream.create_query('x', 'SELECT 1', stream.to_kafka('t', '{"server": "$server", "$names[-1]": "$secret{$names[-1]}"}'))});
	unlike($message, qr/$canary/, "$server: nor on a sink");
}
for my $role ('postgres', 'app', 'other')
{
	my @views = split /\n/, $node->safe_psql('postgres', "SELECT relname FROM pg_class WHERE relnamespace = 'stream'::regnamespace AND relkind IN ('v', 'r') AND relname !~ '^(visible_query|query_[0-9]+)\$'");
	show("SELECT x::text FROM stream.$_ x", $role) for @views;
	show('SELECT x::text FROM pg_stat_activity x; SELECT stream.report_html()', $role);
	show("SELECT * FROM stream.explain_query('$_')", $role) for sort keys %mapping;
	show('SELECT ftoptions FROM pg_foreign_table; SELECT srvoptions FROM pg_foreign_server', $role);
	show("SELECT stream.await_termination('$_', '1 ms')", $role) for sort keys %mapping;
}
show('SELECT umoptions FROM pg_user_mappings', 'other');
my $listener = StreamListener->new($node, 'stream_events');
show("SELECT stream.stop_query(name) FROM stream.queries");
push @seen, [ 'events', join("\n", $listener->heard) ];
$listener->quit;
my $dump = PostgreSQL::Test::Utils::tempdir_short() . '/dump';
run_log([ 'pg_dumpall', '-U', 'app', '-l', 'postgres', '--no-role-passwords', '-f', $dump, '-d', $node->connstr('postgres') ]);
push @seen, [ 'dump by another role', -e $dump ? slurp_file($dump) : '' ];
$node->stop;
push @seen, [ 'log', slurp_file($node->logfile, $log) ];
cmp_ok(length($seen[-1][1]), '>', 100_000, 'the log says a lot');
for my $seen (@seen)
{
	next if $seen->[1] !~ /($canary\S*)/;
	my $text = $seen->[1];
	fail("shown by $seen->[0]: " . substr($text, index($text, $canary) > 200 ? index($text, $canary) - 200 : 0, 300));
}
pass(scalar(@seen) . ' places looked at');
done_testing();
