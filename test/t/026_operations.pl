# The examples of doc/operations.md in their order, and every query of doc/monitoring against what they leave behind.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::Bin/../lib";
use JSON::PP;
use PostgreSQL::Test::Utils;
use StreamNode;
use Test::More;

my $node = new_node('main');
my $doc = "$FindBin::Bin/../../doc";

# ---- the examples
my $text = slurp_file("$doc/operations.md");
my $number = 0;
while ($text =~ /^```sql( error (\w{5}))?\n(.*?)^```/gsm)
{
	my ($state, $sql) = ($2, $3);
	$number++;
	my ($rc, $out, $err) = $node->psql('postgres', "\\set VERBOSITY verbose\n$sql");
	if ($state) { like($err, qr/ERROR:  $state: /, "example $number fails as it says") }
	else { is($err =~ s/^.*NOTICE:.*\n?//gmr, '', "example $number") or diag($sql) }
}
cmp_ok($number, '>=', 20, 'examples were found');
my $expected = 'SELECT count(*), count(DISTINCT id), sum(amount) FROM orders';
is($node->safe_psql('postgres', 'SELECT count(*), count(DISTINCT id), sum(amount) FROM order_copy'), $node->safe_psql('postgres', $expected), 'after all of it every row is there once');
# One of the examples ends a worker, which comes again after a pause.
ok($node->poll_query_until('postgres', "SELECT string_agg(name || ' ' || status, ', ' ORDER BY name) FROM stream.queries", 'copy running, sales running'), 'and both queries run');

# ---- monitoring, as a role that may watch and no more
$node->safe_psql('postgres', 'CREATE ROLE watcher LOGIN IN ROLE pg_monitor');
my @watcher = (extra_params => [ '-U', 'watcher' ]);
my $yaml = slurp_file("$doc/monitoring/postgres_exporter.yaml");
my $groups = 0;
while ($yaml =~ /^(\w+):\n  query: "(.*?)"\n  metrics:\n((?:    - .*\n)+)/gm)
{
	my ($group, $sql, $metrics) = ($1, $2, $3);
	my @names = $metrics =~ /^    - (\w+): \{usage: "(?:LABEL|GAUGE|COUNTER)", description: "[^"]+"\}$/gm;
	$groups++;
	my ($rc, $out, $err) = $node->psql('postgres', "\\pset tuples_only off\n\\pset footer off\n$sql", @watcher);
	is($err, '', "$group runs");
	my @lines = split /\n/, $out;
	is($lines[0], join('|', @names), "$group: its columns are its metrics");
	cmp_ok(scalar(@lines), '>=', $group eq 'stream_change_slot' ? 1 : 3, "$group: a row per query");
	is(scalar(grep { /\|\|/ || /\|$/ } map { my $line = $_; $line =~ s/\|\|/|-|/ if $group eq 'stream_source_lag'; $line } @lines[ 1 .. $#lines ]), 0, "$group: no value is missing");
}
is($groups, scalar(() = $yaml =~ /^\w+:$/gm), 'all groups were read');

my $dashboard = decode_json(slurp_file("$doc/monitoring/grafana.json"));
my @sql = ([ 'variable', $dashboard->{templating}{list}[1]{query} ], map { my $p = $_; map { [ $p->{title}, $_->{rawSql} ] } @{ $p->{targets} } } @{ $dashboard->{panels} });
cmp_ok(scalar(@sql), '>=', 10, 'the dashboard has panels');
for my $panel (@sql)
{
	my ($title, $sql) = @$panel;
	$sql =~ s/\$__timeFilter\(([\w.]+)\)/$1 BETWEEN now() - interval '1 hour' AND now()/g;
	$sql =~ s/\(\$query\)/('sales', 'copy')/g;
	unlike($sql, qr/\$/, "$title: all variables are known");
	my ($rc, $out, $err) = $node->psql('postgres', $sql, @watcher);
	is($err, '', "$title runs");
	isnt($out, '', "$title shows something") if $title !~ /Long operations/;
}
$node->stop;
done_testing();
