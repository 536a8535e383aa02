# The SQL in README.md and doc/ as it stands there: each document's blocks in their order, in a database of its own, beside a broker of its own (for
# localhost:9092) and a directory (for /srv/stream). Comments in the documents prepare and check: <!-- broker: COMMAND -->, <!-- sql: SQL -->,
# <!-- file: NAME CONTENT -->, <!-- is: SQL => ANSWER --> (waited for). A block marked `error CODE` must fail so, one marked `pg_cron` is for where that is.
# doc/operations.md has a test of its own.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::Bin/../lib";
use File::Basename qw(basename);
use PostgreSQL::Test::Utils;
use StreamBroker;
use StreamNode;
use Test::More;

my $top = "$FindBin::Bin/../..";
my ($broker, $bootstrap);
my $files = PostgreSQL::Test::Utils::tempdir('srv');
chomp(my $share = `pg_config --sharedir`);
my $cron = -e "$share/extension/pg_cron.control";
my $node = new_node('main', "stream_ext.file_roots = '$files'", 'max_prepared_transactions = 0', !$cron ? () :
	("shared_preload_libraries = 'stream_ext, pg_cron'", "cron.database_name = 'how_to'", 'cron.use_background_workers = on', "cron.timezone = 'UTC'"));

sub here
{
	my ($sql) = @_;
	my $server = sprintf("host '%s', port '%s'", $node->host, $node->port);
	return $sql =~ s/localhost:9092/$bootstrap/gr =~ s{/srv/stream}{$files}gr =~ s/host 'shard\d\.example\.com'/$server/gr;
}

sub run_block
{
	my ($database, $what, $marks, $sql) = @_;
	my $wanted = $marks =~ /error (\w{5})/ ? $1 : undef;
	return if $marks =~ /pg_cron/ && !$cron;
	my ($rc, $out, $err) = $node->psql($database, "\\set VERBOSITY verbose\nSET client_min_messages = warning;\n" . here($sql));
	if ($wanted) { like($err, qr/ERROR:  $wanted: /, "$what fails as it says") }
	else { is($err =~ s/^(?:.*WARNING:|LOCATION:|HINT:|DETAIL:).*\n?//gmr, '', $what) or diag($sql) }
	return;
}

sub run_comment
{
	my ($database, $what, $verb, $text) = @_;
	return if $verb eq 'is pg_cron' && !$cron;
	if ($verb eq 'broker') { $broker->ask($text) }
	elsif ($verb eq 'sql') { run_block($database, $what, '', $text) }
	elsif ($verb eq 'file')
	{
		my ($name, $content) = split / /, $text, 2;
		mkdir "$files/" . $1 if $name =~ m{(.*)/};
		append_to_file("$files/$name", $content =~ s/\\n/\n/gr . "\n");
	}
	else
	{
		my ($sql, $answer) = $text =~ /^(.*?)\s*=>\s*(.*)$/s;
		ok(wait_for_sql($node, here($sql), $answer, 120, $database), "$what: $sql") or diag("expected $answer");
	}
	return;
}

for my $path ("$top/README.md", grep { !/operations\.md$/ } glob("$top/doc/*.md"))
{
	my ($name) = basename($path) =~ /^(.*)\.md$/;
	my $database = lc($name) =~ tr/-/_/r;
	my $text = slurp_file($path);
	my $number = 0;
	$broker = StreamBroker->new;
	$bootstrap = $broker->bootstrap;
	$node->safe_psql('postgres', "CREATE DATABASE \"$database\"");
	$node->safe_psql($database, 'CREATE EXTENSION stream_ext') unless $text =~ /^CREATE EXTENSION stream_ext/m;
	while ($text =~ /^```sql([^\n]*)\n(.*?)^```|^<!-- (broker|sql|file|is|is pg_cron): (.*?) -->/gsm)
	{
		if (defined $3) { run_comment($database, "$name, comment behind block $number", $3, $4) }
		else { $number++; run_block($database, "$name, block $number", $1, $2) }
	}
	my $failed = $node->safe_psql($database, "SELECT string_agg(name || ': ' || error, ', ') FROM stream.queries WHERE status IN ('failed', 'restarting')");
	is($failed, '', "$name: no query failed");
	$node->safe_psql('postgres', "DROP DATABASE \"$database\" WITH (FORCE)");
	$broker->finish;
}

# ---- as installed: what the documents point to is there (those of the tree, from README.md, stay there)
chomp(my $installed = `pg_config --docdir`);
$installed .= '/stream_ext';
my $links = 0;
for my $path (glob("$installed/*.md"))
{
	my $text = slurp_file($path) =~ s/^```.*?^```//gmsr;
	for my $link ($text =~ /\]\(([^)#:]+)(?:#[^)]*)?\)/g)
	{
		$links++;
		ok(-e "$installed/$link", basename($path) . " points to $link");
	}
}
cmp_ok($links, '>', 10, 'documents are installed');
$node->stop;
done_testing();
