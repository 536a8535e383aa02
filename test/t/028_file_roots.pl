# Paths that sources and sinks of files may name: rights, roots, links, and what is put in place of a directory after it was checked.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::Bin/../lib";
use PostgreSQL::Test::Utils;
use StreamNode;
use Test::More;

my $node = new_node('main');
my $dir = PostgreSQL::Test::Utils::tempdir_short();
mkdir "$dir/$_" for ('in', 'in/deep', 'in evil', 'out', 'in/done');
append_to_file("$dir/$_/a.json", "{\"v\": 1}\n") for ('in', 'in/deep', 'out', 'in evil');
append_to_file("$dir/secret", "{\"v\": 666}\n");
symlink("$dir/out", "$dir/in/to_out");
symlink("$dir/in/deep", "$dir/to_deep");
symlink("$dir/secret", "$dir/in/secret.json");
symlink('/', "$dir/in/root");
$node->safe_psql('postgres', q{CREATE ROLE app LOGIN; GRANT CREATE ON SCHEMA public TO app; GRANT USAGE ON FOREIGN SERVER stream_file, stream_table TO app});
$node->safe_psql('postgres', q{CREATE TABLE t_t (v int); SELECT stream.create_source('t', 'table', options => '{"table": "t_t"}'); INSERT INTO t_t VALUES (5)}, extra_params => [ '-U', 'app' ]);

# SQLSTATE of making, and then using, a source or a sink there; 'ok', of a source with the number of secrets it gave away; undone.
sub tried
{
	my ($what, $path, $more) = @_;
	my $options = '{"path": "' . $path . '", "format": "json"' . ($more ? ", $more" : '') . '}';
	my $sql = $what eq 'source'
		? "SELECT stream.create_source('x', 'file', 'v int', '$options'); SELECT count(*) FILTER (WHERE v = 666) FROM x; SELECT stream.drop_source('x');"
		: "SELECT stream.create_query('x', 'SELECT v FROM t', stream.to_file('$path'), start => false); CALL stream.run_batch('x', NULL); SELECT stream.drop_query('x');";
	my ($rc, $out, $err) = $node->psql('postgres', "\\set VERBOSITY sqlstate\n$sql", on_error_stop => 1, extra_params => [ '-U', 'app' ]);
	my ($state) = $err =~ /ERROR:  (\w{5})/;
	$node->psql('postgres', $what eq 'source' ? "SELECT stream.drop_source('x', true)" : "SELECT stream.drop_query('x', true)");
	return $state // (defined $err && $err =~ /ERROR/ ? $err : $out =~ /^(\d+)$/m && $what eq 'source' ? "ok $1" : 'ok');
}

is(tried('source', "$dir/in"), '42501', 'a source wants pg_read_server_files');
is(tried('sink', "$dir/out"), '42501', 'a sink wants pg_write_server_files');
$node->safe_psql('postgres', 'GRANT pg_read_server_files TO app');
is(tried('source', "$dir/in"), 'ok 0', 'which is enough to read');
is(tried('source', "$dir/in", qq{"clean_source": "delete"}), '42501', 'but not to clean up');
is(tried('sink', "$dir/out"), '42501', 'nor to write');
$node->safe_psql('postgres', 'GRANT pg_write_server_files TO app');
is(tried('sink', "$dir/out"), 'ok', 'with both it writes');

$node->append_conf('postgresql.conf', "stream_ext.file_roots = '$dir/in, $dir/nowhere'");
$node->reload;
my @cases = (
	# path, source, sink
	[ 'in', 'ok 0', 'ok' ], [ 'in/deep', 'ok 0', 'ok' ], [ 'in/deep/', 'ok 0', 'ok' ], [ 'in//deep', 'ok 0', 'ok' ],
	[ 'to_deep', 'ok 0', 'ok' ],                                                   # a link into the roots
	[ 'out', '42501', '42501' ], [ 'in evil', '42501', '42501' ],                  # beside, and a name that begins alike
	[ 'in/to_out', '42501', '42501' ],                                             # a link out of them
	[ 'in/../out', '22023', '22023' ], [ 'in/deep/../../out', '22023', '22023' ], [ '../../../../../../etc', '22023', '22023' ],
	[ 'in/root/etc', '42501', '42501' ],
	[ 'nowhere', '42501', '58P01|42501' ]);
for my $case (@cases)
{
	my ($path, $source, $sink) = @$case;
	like(tried('source', "$dir/$path"), qr/^($source)$/, "source in $path: $source");
	like(tried('sink', "$dir/$path"), qr/^($sink)$/, "sink in $path: $sink");
}
is(tried('source', 'in'), '22023', 'a relative path');
is(tried('sink', 'in'), '22023', 'for a sink, too');
is(tried('source', '/etc/passwd'), '42501', 'a file outside');
is(tried('sink', $node->data_dir), '42501', 'the data directory');
is(tried('source', "$dir/in/secret.json"), 'ok 0', 'a link to a file outside is not read');
is(tried('source', "$dir/in/*"), 'ok 0', 'nor those that a pattern finds: neither file nor directory');
is(tried('source', "$dir/in/*/a.json"), 'ok 0', 'only what lies below the roots');
is(tried('source', "$dir/in", qq{"clean_source": "archive", "archive_dir": "$dir/out"}), '42501', 'archives lie below the roots');
is(tried('source', "$dir/in", qq{"clean_source": "archive", "archive_dir": "$dir/in/to_out"}), '42501', 'also by a link');
is(tried('source', "$dir/in/deep", qq{"clean_source": "archive", "archive_dir": "$dir/in/done"}), 'ok 0', 'this one does');

# The directory is exchanged for a link after the query was made: looked at again in every batch.
$node->safe_psql('postgres', qq{SELECT stream.create_query('later', 'SELECT v FROM t', stream.to_file('$dir/in/deep'), start => false);
	SELECT stream.create_source('files', 'file', 'v int', '{"path": "$dir/in/deep"}'); SELECT stream.create_query('reads', 'SELECT v FROM files', stream.to_table('reads_out'), start => false)},
	extra_params => [ '-U', 'app' ]);
rename("$dir/in/deep", "$dir/in/was_deep");
symlink("$dir/out", "$dir/in/deep");
my $before = join ' ', sort map { s/.*\///r } glob("$dir/out/* $dir/out/.*");
for my $query ('later', 'reads')
{
	my (undef, undef, $err) = $node->psql('postgres', "\\set VERBOSITY sqlstate\nCALL stream.run_batch('$query', NULL)", extra_params => [ '-U', 'app' ]);
	like($err, qr/ERROR:  42501/, "$query: a directory that has become a link out of the roots is refused");
}
is(join(' ', sort map { s/.*\///r } glob("$dir/out/* $dir/out/.*")), $before, 'nothing was written there');
is($node->safe_psql('postgres', 'SELECT count(*) FROM reads_out'), '0', 'nor read from there');
$node->stop;
done_testing();
