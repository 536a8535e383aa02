# StreamNode.pm: a cluster with the extension, and the waits that TAP tests of queries need.
package StreamNode;
use strict;
use warnings FATAL => 'all';
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Time::HiRes qw(usleep time);
use Exporter 'import';
our @EXPORT = qw(new_node table_source create_query status_is wait_for wait_for_sql worker_pid process_gone processes set_failpoints);

# A started cluster; further lines go to its configuration. Database postgres has the extension.
sub new_node
{
	my ($name, @lines) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name);
	$node->init;
	$node->append_conf('postgresql.conf', join("\n", @lines, ''));
	$node->start;
	$node->safe_psql('postgres', 'CREATE EXTENSION stream_ext');
	return $node;
}

# Table NAME_t and source NAME over it.
sub table_source
{
	my ($node, $name, $columns, $db) = @_;
	$node->safe_psql($db // 'postgres',
		"CREATE TABLE ${name}_t ($columns); SELECT stream.create_source('$name', 'table', options => '{\"table\": \"${name}_t\"}')");
}

sub create_query
{
	my ($node, $name, $sql, $more, $db) = @_;
	$more = $more ? ", $more" : '';
	$node->safe_psql($db // 'postgres', "SELECT stream.create_query('$name', \$q\$$sql\$q\$, stream.to_table('${name}_out')$more)");
}

# True as soon as the code is; false after the timeout in seconds.
sub wait_for
{
	my ($code, $timeout) = @_;
	my $until = time + ($timeout // 20);
	while (time < $until)
	{
		# psql turned away while the server recovers dies of its own input (EPIPE): that is a no, too.
		return 1 if eval { $code->() };
		usleep(50_000);
	}
	return 0;
}

sub wait_for_sql
{
	my ($node, $sql, $expected, $timeout, $db) = @_;
	my $seen = '';
	my $ok = wait_for(sub { my (undef, $out) = $node->psql($db // 'postgres', $sql); $seen = $out // ''; return $seen eq $expected }, $timeout);
	print "# last seen: $seen\n" unless $ok;
	return $ok;
}

# Of all processes there are: a new session has it only when the postmaster has told the others.
sub set_failpoints
{
	my ($node, $points) = @_;
	$node->safe_psql('postgres', "ALTER SYSTEM SET stream_ext.failpoints = '$points'");
	$node->reload;
	die 'the failpoints were not reloaded' if !wait_for_sql($node, 'SHOW stream_ext.failpoints', $points);
	return;
}

sub status_is
{
	my ($node, $query, $status, $timeout, $db) = @_;
	return wait_for_sql($node, "SELECT status FROM stream.queries WHERE name = '$query'", $status, $timeout, $db);
}

sub worker_pid
{
	my ($node, $query, $db) = @_;
	return $node->safe_psql($db // 'postgres', "SELECT pid FROM stream.queries WHERE name = '$query'");
}

# Ended; whether somebody has collected its exit code does not matter.
sub process_gone
{
	my ($pid, $timeout) = @_;
	return wait_for(sub { return !kill(0, $pid) || process_is_zombie($pid) }, $timeout // 10);
}

sub process_is_zombie
{
	my ($pid) = @_;
	open(my $file, '<', "/proc/$pid/stat") or return 0;
	my $stat = <$file> // '';
	close($file);
	return $stat =~ /^\d+ \(.*\) Z/;
}

# How many of the extension's processes there are, of one kind: launcher, supervisor, worker.
sub processes
{
	my ($node, $kind) = @_;
	return $node->safe_psql('postgres', "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'stream_ext $kind'");
}

1;
