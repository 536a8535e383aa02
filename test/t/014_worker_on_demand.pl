# Without shared_preload_libraries: queries run all the same, and the user is told that they will not survive a restart.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::Bin/../lib";
use StreamNode;
use Test::More;

my $node = new_node('main', "shared_preload_libraries = ''");
table_source($node, 'input', 'v int');
my ($rc, $out, $err) = $node->psql('postgres', "SELECT stream.create_query('q', 'SELECT v FROM input', stream.to_table('q_out'))");
like($err, qr/WARNING:  streaming query "q" will not survive a restart of the server.*shared_preload_libraries/s, 'a warning');
ok(status_is($node, 'q', 'running'), 'it runs');
$node->safe_psql('postgres', 'INSERT INTO input_t VALUES (1)');
ok(wait_for_sql($node, 'SELECT count(*) FROM q_out', '1'), 'a commit wakes it');
my $pid = worker_pid($node, 'q');
$node->safe_psql('postgres', "SELECT pg_terminate_backend($pid)");
ok(wait_for_sql($node, "SELECT status, pid <> $pid FROM stream.queries", 'running|t'), 'terminated, it comes back');
$node->safe_psql('postgres', "SELECT stream.stop_query('q')");
ok(wait_for(sub { processes($node, 'supervisor') == 0 }), 'stopped');
$node->safe_psql('postgres', "SELECT stream.start_query('q')");
ok(status_is($node, 'q', 'running'), 'started');
$node->restart;
$node->safe_psql('postgres', 'INSERT INTO input_t VALUES (2)');
is($node->safe_psql('postgres', 'SELECT pid IS NULL FROM stream.queries'), 't', 'not running after a restart');
$node->safe_psql('postgres', "SELECT stream.start_query('q')");
ok(wait_for_sql($node, 'SELECT count(*), sum(v) FROM q_out', '2|3'), 'started by hand, it goes on');
# DROP DATABASE from a session that has the library
$node->safe_psql('postgres', 'CREATE DATABASE other');
$node->safe_psql('other', 'CREATE EXTENSION stream_ext');
table_source($node, 'input', 'v int', 'other');
create_query($node, 'q', 'SELECT v FROM input', '', 'other');
ok(status_is($node, 'q', 'running', 20, 'other'), 'a query in another database');
$node->safe_psql('postgres', "LOAD 'stream_ext'; DROP DATABASE other");
pass('DROP DATABASE');
$node->stop;
done_testing();
