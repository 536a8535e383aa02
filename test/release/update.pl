# From the last release, built from the repository's history, to this tree: its queries with their state, positions and logs go on exactly once, under writers,
# without being touched; until the extension is updated nothing of theirs is.
# Danger: puts the release into the private installation, so nothing else may run there: `make check-release` alone does this.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::Bin/../lib";
use PostgreSQL::Test::Utils;
use StreamBroker;
use StreamNode;
use StreamUpgrade;
use Test::More;

my $work = $ENV{WORK};
my %tree = (release => "$work/release", this => "$work/tree");
my ($release) = split ' ', slurp_file("$FindBin::Bin/COMMIT");

sub install
{
	my ($which) = @_;
	system('make', '-s', '-C', $tree{$which}, 'with_llvm=no', "PG_CONFIG=$ENV{PG_CONFIG}", "DESTDIR=$work/pg", ($which eq 'this' ? 'FAILPOINTS=1' : ()), 'install') == 0
		or die "make install in $tree{$which}";
	return;
}
END { my $status = $?; install('this'); $? = $status; }

# ---- the release at work
install('release');
my $files = PostgreSQL::Test::Utils::tempdir() . '/in';
mkdir $files or die "$files: $!";
my $broker = StreamBroker->new(topics => ['events:3']);
my $bootstrap = $broker->bootstrap;
my $node = new_node('main');
is($node->safe_psql('postgres', "SELECT extversion FROM pg_extension WHERE extname = 'stream_ext'"), $release, 'the release is installed');
is(slurp_file("$tree{release}/sql/stream_ext--$release.sql"), slurp_file("$FindBin::Bin/../upgrade/stream_ext--$release.sql"), 'by the script that 029_upgrade starts from');
make_sources($node);
make_queries($node);
$node->safe_psql('postgres', qq(
	SELECT stream.create_query('copy', 'SELECT i, v FROM item', stream.to_table('copy_out'));
	SELECT stream.create_query('parity', 'SELECT i % 2 AS parity, count(*) AS n, stddev(v) AS dev FROM item GROUP BY 1', stream.to_table('parity_out'), output_mode => 'complete');
	SELECT stream.create_query('hops', 'SELECT stream.hop(ts, ''1 minute'', ''20 seconds'') AS w, count(*) AS n, avg(v) AS mean FROM item GROUP BY 1', stream.to_table('hops_out'), output_mode => 'update');
	SELECT stream.create_query('seen', 'SELECT DISTINCT t FROM item', stream.to_table('seen_out'));
	CREATE FUNCTION count_up(key text, rows item[]) RETURNS TABLE (t text, n bigint) LANGUAGE plpgsql AS \$f\$
	BEGIN
		n := coalesce(stream.state_get('n', NULL::bigint), 0) + cardinality(rows);
		PERFORM stream.state_update('n', n);
		PERFORM stream.list_append('last', r.i) FROM unnest(rows) r WHERE r.i % 50 = 0;
		PERFORM stream.register_timer('2036-01-01');
		t := key;
		RETURN NEXT;
	END \$f\$;
	CREATE FUNCTION count_end(key text, expires_at timestamptz) RETURNS TABLE (t text, n bigint) LANGUAGE sql AS \$f\$ SELECT key, -1::bigint \$f\$;
	SELECT stream.create_processor('counter', 'count_up(text,item[])', 'count_end(text,timestamptz)', state => '{"n": {"kind": "value", "type": "bigint"}, "last": {"kind": "list", "type": "int"}}', time_mode => 'processing_time');
	SELECT stream.create_query('counter', 'SELECT c.* FROM item x, LATERAL stream.transform_with_state(''counter'', x.t, x) AS c(t text, n bigint)', stream.to_table('counter_out'));
	CREATE SERVER k FOREIGN DATA WRAPPER stream_kafka OPTIONS ("bootstrap.servers" '$bootstrap');
	SELECT stream.create_source('event', 'kafka', 'id bigint, card text, amount numeric', '{"server": "k", "topic": "events", "starting_offsets": "earliest"}');
	SELECT stream.create_query('events', 'SELECT id, card FROM event', stream.to_table('events_out'));
	SELECT stream.create_query('cards', 'SELECT card, count(*) AS n, sum(amount) AS total FROM event GROUP BY card', stream.to_table('cards_out'), output_mode => 'update');
	SELECT stream.create_source('file', 'file', 'n int', '{"path": "$files", "format": "json"}');
	SELECT stream.create_query('files', 'SELECT n FROM file', stream.to_table('files_out'));
));
my ($sent, $written) = (0, 0);

sub more # so many more messages and files
{
	my ($messages, $more_files) = @_;
	$broker->cards('events', $messages, 1 + $sent, 1767225600000 + $sent);
	$sent += $messages;
	for (1 .. $more_files)
	{
		$written++;
		append_to_file("$files/$written.tmp", "{\"n\": $written}\n");
		rename "$files/$written.tmp", "$files/$written.json" or die "$written.json: $!";
	}
	return;
}

sub check_others
{
	my ($when) = @_;
	$node->safe_psql('postgres', "CALL stream.process_all_available('$_')") for qw(copy parity hops seen counter events cards files);
	is($node->safe_psql('postgres', 'SELECT count(*), count(DISTINCT i) FROM copy_out'), $node->safe_psql('postgres', 'SELECT count(*), count(*) FROM item_t'), "$when: rows copied, each once");
	is($node->safe_psql('postgres', 'SELECT parity, n, dev FROM parity_out ORDER BY 1'), $node->safe_psql('postgres', 'SELECT i % 2, count(*), stddev(v) FROM item_t GROUP BY 1 ORDER BY 1'), "$when: all of the output, every time");
	is($node->safe_psql('postgres', 'SELECT w, n, mean FROM hops_out ORDER BY 1'), $node->safe_psql('postgres', "SELECT stream.hop(ts, '1 minute', '20 seconds') AS w, count(*), avg(v) FROM item_t GROUP BY 1 ORDER BY 1"), "$when: sliding windows");
	is($node->safe_psql('postgres', 'SELECT t, count(*) FROM seen_out GROUP BY t ORDER BY 1'), $node->safe_psql('postgres', 'SELECT t, 1 FROM item_t GROUP BY t ORDER BY 1'), "$when: rows seen before");
	is($node->safe_psql('postgres', 'SELECT t, max(n) FROM counter_out GROUP BY t ORDER BY 1'), $node->safe_psql('postgres', 'SELECT t, count(*) FROM item_t GROUP BY t ORDER BY 1'), "$when: state of one's own");
	is($node->safe_psql('postgres', "SELECT count(*), sum((value #>> '{}')::bigint) FROM stream.state('counter', state_name => 'last')"), $node->safe_psql('postgres', 'SELECT count(*), sum(i) FROM item_t WHERE i % 50 = 0'), "$when: lists of one's own");
	is($node->safe_psql('postgres', 'SELECT count(*), count(DISTINCT id) FROM events_out'), "$sent|" . $node->safe_psql('postgres', 'SELECT count(DISTINCT id) FROM event'), "$when: messages, each once");
	is($node->safe_psql('postgres', 'SELECT sum(n), sum(total) FROM cards_out'), $node->safe_psql('postgres', 'SELECT count(*), sum(amount) FROM event'), "$when: sums of messages");
	is($node->safe_psql('postgres', 'SELECT count(*), count(DISTINCT n) FROM files_out'), "$written|$written", "$when: files, each once");
	return;
}

# What the state reader shows of a query, as of a batch or now.
sub state_shown
{
	my ($query, $batch) = @_;
	my ($rc, $out, $err) = $node->psql('postgres', "SELECT string_agg(key::text || coalesce(value::text, '-'), ' ' ORDER BY key::text, value::text) FROM stream.state('$query'"
		. (defined $batch ? ", batch_id => $batch)" : ')'));
	return $rc == 0 ? $out : $err;
}

for my $i (0 .. 29)     # more batches than are kept apart
{
	rows($node, $i * 10 + 1, $i * 10 + 10);
	more(100, 1) if $i % 10 == 0;
	$node->safe_psql('postgres', "CALL stream.process_all_available('numbers_memory')");
}
check_all($node, 'the release');
check_others('the release');
my @stateful = ((map { join '_', @$_ } query_names()), qw(parity hops seen counter cards));
my %batch = map { $_ => $node->safe_psql('postgres', "SELECT last_batch_id - 1 FROM stream.queries WHERE name = '$_'") } @stateful;
my %shown = map { $_ => state_shown($_, $batch{$_}) } @stateful;
my $stopped = state_shown('windows_memory');
$node->safe_psql('postgres', "SELECT stream.stop_query('windows_memory')");

my $dump = "$files/../dump.sql";
$node->command_ok([ 'pg_dump', '-d', $node->connstr('postgres'), '-f', $dump ], 'it is dumped');

# ---- new files under the old library: an update does nothing by halves
install('this');
my ($rc, $out, $err) = $node->psql('postgres', 'ALTER EXTENSION stream_ext UPDATE');
isnt($rc, 0, 'before the restart the extension cannot be updated');
like($err, qr/could not find function/, 'since the old library does not have what it would need');
rows($node, 301, 350);
more(100, 1);
$node->safe_psql('postgres', "CALL stream.process_all_available('copy')");
is($node->safe_psql('postgres', 'SELECT count(*) FROM copy_out'), '350', 'and its queries run on');

# ---- the new library over the old tables
$node->safe_psql('postgres', 'CREATE DATABASE fresh');
$node->restart;
is($node->safe_psql('postgres', "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'stream_ext worker'"), '0', 'no query of another version runs');
$node->safe_psql('fresh', "CREATE EXTENSION stream_ext; CREATE TABLE item_t (i int); SELECT stream.create_source('item', 'table', options => '{\"table\": \"item_t\"}');
	SELECT stream.create_query('copy', 'SELECT i FROM item', stream.to_table('copy_out'))");
ok(status_is($node, 'copy', 'running', 30, 'fresh'), 'one of this version does, in another database');
my $fresh = worker_pid($node, 'copy', 'fresh');

# ---- the update, under a writer
my $writer = IPC::Run::start([ 'psql', '-XqAt', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('postgres'), '-c', q(DO $$ BEGIN FOR n IN 351 .. 550 LOOP
	INSERT INTO item_t SELECT n, n % 4, CASE WHEN n % 7 > 0 THEN n * 13 % 101 END, 't' || n % 9, '2026-01-01 00:00+00'::timestamptz + n * interval '0.7 s' + n / 50 * interval '20 s',
		(enum_range(NULL::mood))[1 + n % 3];
	INSERT INTO other_t SELECT n, n % 4, ts + interval '1 s' FROM item_t WHERE i = n; COMMIT; PERFORM pg_sleep(0.005); END LOOP; END $$) ], '<', \'', '>', \my $said, '2>', \my $wrong);
ok(wait_for_sql($node, 'SELECT max(i) > 360 FROM item_t', 't'), 'rows are coming in');
$node->safe_psql('postgres', 'ALTER EXTENSION stream_ext UPDATE');
more(100, 1);
ok($writer->finish, 'the writer was not hindered') or diag($wrong);
ok(status_is($node, 'copy', 'running', 60), 'queries that ran run again by themselves');
is($node->safe_psql('postgres', "SELECT status FROM stream.queries WHERE name = 'windows_memory'"), 'stopped', 'one that was stopped stays stopped');
is(state_shown('windows_memory'), $stopped, 'its state is there');
$node->safe_psql('postgres', "SELECT stream.start_query('windows_memory')");
check_all($node, 'updated');
check_others('updated');
for my $query (@stateful)
{
	if ($query =~ /^(moods|sessions)_table$/)     # entries have moved
	{
		like(state_shown($query, $batch{$query}), qr/ERROR:  .* as of batch/, "$query: what was before the update cannot be read any more, and that is said");
	}
	else
	{
		is(state_shown($query, $batch{$query}), $shown{$query}, "$query: the past is as it was");
	}
}
is(worker_pid($node, 'copy', 'fresh'), $fresh, 'the other database was left alone');

# ---- the dump, taken in by this version
$node->safe_psql('postgres', 'CREATE DATABASE restored');
$node->command_ok([ 'psql', '-XqAt', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('restored'), '-f', $dump ], 'a dump of the release is restored');
for my $query (qw(events cards files))
{
	$node->safe_psql('restored', "SELECT stream.start_query('$query'); CALL stream.process_all_available('$query')");
	is($node->safe_psql('restored', "SELECT count(*), sum(hashtextextended(o::text, 0)) FROM (SELECT to_jsonb(x) - 'batch_id' AS o FROM ${query}_out x) x"),
		$node->safe_psql('postgres', "SELECT count(*), sum(hashtextextended(o::text, 0)) FROM (SELECT to_jsonb(x) - 'batch_id' AS o FROM ${query}_out x) x"), "restored: $query has gone on");
	$node->safe_psql('restored', "SELECT stream.stop_query('$query')");
}

# ---- and on from there
rows($node, 551, 700);
more(200, 2);
check_all($node, 'more');
check_others('more');
is($node->safe_psql('postgres', 'SELECT string_agg(name, \' \') FROM stream.queries WHERE error IS NOT NULL OR failures > 0'), '', 'no query failed');
$node->restart;
rows($node, 701, 750);
check_all($node, 'restarted');
check_others('restarted');
$node->stop;
done_testing();
