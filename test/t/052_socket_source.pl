# Socket sources: lines of a TCP server as they come, cut wherever the network likes; a server that goes away and comes back.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::Bin/../lib";
use IO::Socket::INET;
use PostgreSQL::Test::Utils;
use StreamNode;
use Test::More;

my $listener = IO::Socket::INET->new(Listen => 5, LocalAddr => '127.0.0.1', ReuseAddr => 1) or die "no port: $!";
my $port = $listener->sockport;
my $node = new_node('main');
my ($code, undef, $notice) = $node->psql('postgres', qq{SELECT stream.create_source('line', 'socket', 'value text', '{"port": $port}')});
is($code, 0, 'a source');
like($notice, qr/not replayable: lines are lost/, 'that says what it is');
$node->safe_psql('postgres', qq{SELECT stream.create_source('doc', 'socket', 'id int, v text', '{"port": $port, "format": "json"}')});
create_query($node, 'line', 'SELECT value FROM line');

# The next connection of a worker.
sub accepted { my $client = $listener->accept; $client->autoflush(1); return $client; }

sub lines_are { my ($want, $what) = @_; ok(wait_for_sql($node, q{SELECT string_agg(value, ',' ORDER BY batch_id, value) FROM line_out}, $want), $what); return; }

my $client = accepted();
print $client "a1\na2\r\n";
lines_are('a1,a2', 'lines arrive, either line end');
print $client 'b';
print $client "\nc half";
lines_are('a1,a2,b', 'a line is one when its end is there');
print $client " a line\n\n";
lines_are('a1,a2,b,,c half a line', 'pieces of a line are one line; an empty line is one') or diag $node->safe_psql('postgres', 'TABLE line_out');
my $many = join('', map { "n$_\n" } 10001 .. 30000);
print $client $many;
ok(wait_for_sql($node, q{SELECT count(*), count(DISTINCT value), min(value), max(value) FROM line_out WHERE value ~ '^n'}, '20000|20000|n10001|n30000'), 'many lines, each once');
is($node->safe_psql('postgres', 'SELECT count(*) FROM (SELECT value < max(value) OVER (ORDER BY batch_id, ctid) AS back FROM line_out WHERE value ~ \'^n\') l WHERE back'),
	'0', 'in order');

# The server goes away in the middle of a line, and comes back.
print $client "last\nnever ended";
ok(wait_for_sql($node, q{SELECT count(*) FROM line_out WHERE value = 'last'}, '1'), 'the last line');
close($client);
ok(wait_for_sql($node, q{SELECT count(*) FROM line_out WHERE value = 'never ended'}, '1'), 'what the server left without a line end is a line');
$client = accepted();
print $client "here\n";
ok(wait_for_sql($node, q{SELECT count(*) FROM line_out WHERE value = 'here'}, '1'), 'a server that comes back is connected to again');
close($client);
$node->safe_psql('postgres', q{SELECT stream.stop_query('line'); SELECT stream.start_query('line')});
$client = accepted();
print $client join('', map { "back$_\n" } 1 .. 100);
ok(wait_for_sql($node, q{SELECT count(*) FROM line_out WHERE value ~ '^back'}, '100'), 'a query that starts again connects again');
is($node->safe_psql('postgres', q{SELECT count(*) FROM line_out WHERE value = 'last'}), '1', 'and what was read is not read again');

# Nobody listens: tried again until somebody does.
$node->safe_psql('postgres', q{SELECT stream.stop_query('line')});
close($client);
close($listener);
$node->safe_psql('postgres', q{SELECT stream.start_query('line')});
ok(wait_for_sql($node, q{SELECT status, sqlstate FROM stream.queries}, 'restarting|08000'), 'without a server the query tries again');
like($node->safe_psql('postgres', 'SELECT error FROM stream.queries'), qr/source public.line cannot connect to 127.0.0.1 port $port/, 'and says so');
$listener = IO::Socket::INET->new(Listen => 5, LocalAddr => '127.0.0.1', LocalPort => $port, ReuseAddr => 1) or die "port $port: $!";
$client = accepted();
print $client "again\n";
ok(wait_for_sql($node, q{SELECT count(*) FROM line_out WHERE value = 'again'}, '1'), 'until one is there');
$node->safe_psql('postgres', q{SELECT stream.drop_query('line')});
close($client);

# JSON lines; bad ones are put aside, mended ones come again.
create_query($node, 'doc', 'SELECT id, v FROM doc');
$client = accepted();
print $client qq({"id": 1, "v": "one"}\n{"id": "two"}\n{"id": 3\n{"id": 4, "v": null}\n);
ok(wait_for_sql($node, q{SELECT string_agg(id::text, ',' ORDER BY id) FROM doc_out}, '1,4'), 'documents');
is($node->safe_psql('postgres', q{SELECT count(*), string_agg(position::text, ' ' ORDER BY id) FROM stream.dead_letters}), '2|{"line": 2} {"line": 3}', 'what is none is put aside');

# What cannot be.
for my $wrong ([ q{SELECT * FROM doc}, qr/can only be read by a streaming query/ ], [ q{SELECT stream.create_source('x', 'socket', 'v text', '{"port": 0}')}, qr/port/ ],
	[ q{SELECT stream.create_source('x', 'socket', 'v text', '{"host": "h"}'); SELECT stream.create_query('x', 'SELECT v FROM x', stream.to_log(), start => false)}, qr/port/ ],
	[ q{SELECT stream.rewind_query('doc', 0)}, qr/cannot be rewound.*|is running/ ])
{
	my (undef, undef, $error) = $node->psql('postgres', $wrong->[0]);
	like($error, $wrong->[1], "refused: $wrong->[0]");
}

# A server that never stops sending: batches are made of what fits, the rest waits, and a stop is heard.
create_query($node, 'flood', 'SELECT count(*) AS n, max(length(value)) AS width FROM line', q{'complete', options => '{"max_rows_per_batch": 1000}'});
my $flood = accepted();
my $sender = fork();
if ($sender == 0)
{
	my $chunk = ('x' x 999 . "\n") x 1000;
	$SIG{PIPE} = 'DEFAULT';
	1 while print $flood $chunk;
	require POSIX;
	POSIX::_exit(0);
}
close($flood);
ok(wait_for_sql($node, 'SELECT max(n) >= 3000 FROM flood_out', 't'), 'batches go on while lines keep coming');
my $memory = sub { my ($kb) = slurp_file('/proc/' . worker_pid($node, 'flood') . '/status') =~ /RssAnon:\s+(\d+)/; return $kb; };
select(undef, undef, undef, 1);
cmp_ok($memory->(), '<', 150_000, 'and what waits does not wait in memory') if -e '/proc/self/status';
$node->safe_psql('postgres', q{SELECT stream.drop_query('flood')});
kill 'KILL', $sender;
waitpid($sender, 0);

# A server that does not answer: the attempt does not outlast a stop.
$node->safe_psql('postgres', q{SELECT stream.create_source('nobody', 'socket', 'value text', '{"host": "192.0.2.1", "port": 9}')});
create_query($node, 'nobody', 'SELECT value FROM nobody');
ok(wait_for_sql($node, q{SELECT count(*) FROM stream.queries WHERE name = 'nobody' AND status IN ('running', 'restarting')}, '1'), 'tried');
my $asked = time;
$node->safe_psql('postgres', q{SELECT stream.drop_query('nobody')});
cmp_ok(time - $asked, '<', 8, 'and stopped at once');
$node->stop;
done_testing();
