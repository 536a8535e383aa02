# What those who watch see: attempts with their failures, counters, who falls behind and why, events; and a log that stays quiet.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::Bin/../lib";
use PostgreSQL::Test::Utils;
use StreamBroker;
use StreamListener;
use StreamNode;
use Test::More;

my $node = new_node('main');

sub value { return $node->safe_psql('postgres', shift) }

table_source($node, 'input', 'v int');
create_query($node, 'good', 'SELECT v FROM input');
value(q{CREATE FUNCTION picky(v int) RETURNS int LANGUAGE plpgsql AS $f$ BEGIN IF v = 13 THEN RAISE EXCEPTION USING ERRCODE = 'ZX013', MESSAGE = 'unlucky'; END IF; RETURN v; END $f$});
create_query($node, 'bad', 'SELECT picky(v) AS v FROM input', q{options => '{"max_retries": 2}'});
value('INSERT INTO input_t VALUES (1)');
ok(wait_for_sql($node, 'SELECT count(*) FROM bad_out', '1'), 'both run');

# ---- a batch that cannot succeed
value('INSERT INTO input_t VALUES (13)');
ok(status_is($node, 'bad', 'failed'), 'one fails');
value('INSERT INTO input_t VALUES (2)');
value("CALL stream.process_all_available('good')");
is(value("SELECT count(*) FROM good_out"), '3', 'the other goes on');
is(value("SELECT status, failures FROM stream.queries WHERE name = 'good'"), 'running|0', 'and has noticed nothing');
is(value("SELECT attempts, failures FROM stream.stat WHERE query = 'good'"), '1|0', 'in its one attempt');
is(value("SELECT string_agg(attempt || ' ' || outcome || coalesce(' ' || batch_id, '') || coalesce(' ' || sqlstate, ''), ', ' ORDER BY attempt) FROM stream.attempts WHERE query = 'bad'"),
	'1 failed 1 ZX013, 2 failed 1 ZX013, 3 failed 1 ZX013', 'each attempt is recorded, with batch and SQLSTATE');
is(value("SELECT bool_and(started_at <= ended_at AND error ~ 'unlucky\nCONTEXT:  PL/pgSQL function picky') FROM stream.attempts WHERE query = 'bad'"), 't', 'with its times and the context');
is(value("SELECT bool_and(a.range->'from' = o.offsets AND a.range->'to' = p.offsets) FROM stream.attempts a, stream.offset_log o, stream.offset_log p
	WHERE a.query = 'bad' AND o.query_id = (SELECT id FROM stream.queries WHERE name = 'bad') AND o.batch_id = 0 AND p.query_id = o.query_id AND p.batch_id = 1"), 't', 'and the range');
is(value("SELECT sqlstate, failed_batch_id, failed_range = (SELECT range FROM stream.attempts WHERE query = 'bad' AND attempt = 3), retry_at IS NULL FROM stream.queries WHERE name = 'bad'"),
	'ZX013|1|t|t', 'stream.queries shows SQLSTATE, batch and range');
is(value("SELECT bool_and(b.wait BETWEEN interval '70 ms' AND interval '2 s') AND max(b.wait) > min(b.wait) FROM
	(SELECT started_at - lag(ended_at) OVER (ORDER BY attempt) AS wait FROM stream.attempts WHERE query = 'bad') b"), 't', 'with growing waits between them');
my (undef, undef, $err) = $node->psql('postgres', "SELECT stream.skip_batch('bad', 0)");
like($err, qr/batch 0 of streaming query "bad" is not waiting to be run/, 'only the batch that waits can be skipped');
value("SELECT stream.skip_batch('bad', 1)");
is(value("SELECT status, error IS NULL, failed_batch_id IS NULL FROM stream.queries WHERE name = 'bad'"), 'stopped|t|t', 'skipped, the query is stopped and clean');
is(value("SELECT progress->>'skipped' FROM stream.progress WHERE query = 'bad' AND batch_id = 1"), 'true', 'which is recorded');
value("SELECT stream.start_query('bad')");
value("CALL stream.process_all_available('bad')");
is(value("SELECT string_agg(v::text, ' ' ORDER BY v) FROM bad_out"), '1 2', 'the rows after it come, those of the batch do not');

# ---- other ends
value("SELECT pg_terminate_backend(pid) FROM stream.queries WHERE name = 'bad'");
ok(wait_for_sql($node, "SELECT string_agg(outcome, ' ' ORDER BY attempt) FROM stream.attempts WHERE query = 'bad' AND attempt > 3", 'lost running'), 'a lost worker is an attempt that was lost');
ok(status_is($node, 'bad', 'running'), 'the next one runs');
value("SELECT stream.stop_query('bad')");
is(value("SELECT outcome, ended_at IS NOT NULL, sqlstate IS NULL FROM stream.attempts WHERE query = 'bad' ORDER BY attempt DESC LIMIT 1"), 'stopped|t|t', 'stopped');
is(value("SELECT batches, rows_in, rows_out, attempts, failures, busy_ms > 0 FROM stream.stat WHERE query = 'bad'"), '3|2|2|5|4|t', 'counters count each batch once, a skipped one without rows');
create_query($node, 'finite', 'SELECT v FROM input', 'trigger => stream.available_now()');
ok(status_is($node, 'finite', 'finished'), 'a finite query');
is(value("SELECT outcome FROM stream.attempts WHERE query = 'finite'"), 'finished', 'finished');
value("SELECT stream.drop_query('finite'); SELECT stream.drop_query('bad')");
is(value("SELECT count(*) FROM stream.attempt_entry WHERE query_id NOT IN (SELECT id FROM stream.query)"), '0', 'a dropped query leaves no attempts');

# ---- the log: nothing per batch, nothing when idle
my $log = -s $node->logfile;
for my $i (100 .. 120)
{
	value("INSERT INTO input_t VALUES ($i)");
	value("CALL stream.process_all_available('good')") if $i % 5 == 0;
}
value('SELECT pg_sleep(1.2)');
is(join("\n", grep { !/LOG:  statement: / } split /\n/, slurp_file($node->logfile, $log)), '', 'batches, events and idle time write nothing to the log');

# ---- falling behind
table_source($node, 'slow', 'v float8');
create_query($node, 'tick', 'SELECT v, pg_sleep(v) IS NULL AS s FROM slow', "trigger => stream.processing_time('1 second')");
value('INSERT INTO slow_t VALUES (1.2)');
ok(wait_for_sql($node, "SELECT falling_behind, behind_reason ~ '^the last batch took \\d{4} ms, the trigger''s interval is 1000 ms\$', behind_advice ~ 'stream.alter_query' FROM stream.queries WHERE name = 'tick'", 't|t|t'),
	'a batch longer than the interval: reason and advice');
value('INSERT INTO slow_t VALUES (0)');
ok(wait_for_sql($node, "SELECT falling_behind, behind_reason IS NULL FROM stream.queries WHERE name = 'tick'", 'f|t'), 'until one is quicker');
value("SELECT stream.drop_query('tick')");
value("TRUNCATE slow_t; INSERT INTO slow_t VALUES (0.05), (0.1), (0.2), (0.4)");
create_query($node, 'slower', 'SELECT v, pg_sleep(v) IS NULL AS s FROM slow', q{options => '{"max_rows_per_batch": 1}'});
value("CALL stream.process_all_available('slower')");
is(value("SELECT falling_behind, behind_reason ~ 'rows come faster than they are processed', behind_advice ~ 'max_rows_per_batch' FROM stream.queries WHERE name = 'slower'"), 't|t|t',
	'batches that take longer and longer');
value("SELECT stream.drop_query('slower')");

# ---- lag by partition: rows that wait, and event time
my $broker = StreamBroker->new(topics => [ 'one:2', 'two:1', 'three:2', 'rubbish:1' ]);
$broker->send_value('one', 0, map { "{\"v\": $_, \"ts\": \"2026-03-01T10:00:${_}Z\"}" } 10 .. 49);
$broker->send_value('one', 1, map { "{\"v\": $_, \"ts\": \"2026-03-01T11:00:${_}Z\"}" } 10 .. 19);
$broker->send_value('two', 0, map { "{\"v\": $_, \"ts\": \"2026-03-01T12:00:${_}Z\"}" } 10 .. 14);
$broker->send_value('three', 1, map { "{\"v\": $_, \"ts\": \"2026-03-01T13:00:${_}Z\"}" } 10 .. 29);
my $bootstrap = $broker->bootstrap;
for my $pair ([ 'one', '"topic": "one"' ], [ 'more', '"topics": ["two", "three"]' ])
{
	my ($name, $topics) = @$pair;
	value(qq{SELECT stream.create_source('$name', 'kafka', 'v int, ts timestamptz', '{"bootstrap.servers": "$bootstrap", $topics, "starting_offsets": "earliest"}', event_time => 'ts', watermark_delay => '1 minute')});
	create_query($node, $name, "SELECT v FROM $name", q{start => false, options => '{"max_rows_per_batch": 10}'});
	value("CALL stream.run_batch('$name', NULL)");
}
my $lag = "SELECT string_agg(concat_ws(' ', partition, rows_behind, to_char(last_event_time AT TIME ZONE 'UTC', 'HH24:MI:SS')), ', ' ORDER BY partition) FROM stream.source_lag WHERE query = '%s'";
is(value(sprintf($lag, 'one')), '0 32 10:00:17, 1 8 11:00:11', 'rows behind and newest event of each partition');
is(value("SELECT p.progress->'sources'->0->'metrics' FROM stream.progress p WHERE query = '$_->[0]'"), $_->[1], 'and as Spark says it')
	for ([ 'one', '{"avgOffsetsBehindLatest": "20.0", "maxOffsetsBehindLatest": "32", "minOffsetsBehindLatest": "8"}' ], [ 'more', '{"avgOffsetsBehindLatest": "5.0", "maxOffsetsBehindLatest": "12", "minOffsetsBehindLatest": "0"}' ]);
is(value(sprintf($lag, 'more')), 'three/0 0, three/1 12 13:00:17, two/0 3 12:00:11', 'of each topic and partition');
$broker->send_value('one', 0, map { "{\"v\": $_, \"ts\": \"2026-03-01T10:00:50Z\"}" } 1 .. 30);
value("CALL stream.run_batch('one', NULL)");
$broker->send_value('one', 0, map { "{\"v\": $_, \"ts\": \"2026-03-01T10:00:50Z\"}" } 1 .. 30);
value("CALL stream.run_batch('one', NULL)");
like(value("SELECT behind_reason FROM stream.queries WHERE name = 'one'"), qr/the backlog grows: 8\d rows now, 40 rows 2 batches ago|rows come faster/, 'a backlog that grows');
value("CALL stream.process_all_available('$_')") for ('one', 'more');
is(value(sprintf($lag, 'one')), '0 0 10:00:50, 1 0 11:00:19', 'nothing waits');
is(value("SELECT bool_and(event_time_lag > interval '1 hour') FROM stream.source_lag WHERE query = 'one'"), 't', 'and how far event time is behind the clock');
value("SELECT stream.drop_query('$_')") for ('one', 'more');

# ---- every source keeps its partitions and what it knows of them: in batches without data, in those of other sources, stopped, failing, after a restart
my $lags = q{SELECT string_agg(concat_ws(' ', source, partition, coalesce(rows_behind::text, '?'), to_char(last_event_time AT TIME ZONE 'UTC', 'HH24:MI:SS')), ', ' ORDER BY source, partition) FROM stream.source_lag WHERE query = '%s'};
value("CREATE TABLE late_t (v int, ts timestamptz)");
my $files = PostgreSQL::Test::Utils::tempdir();
value($_) for (
	q{SELECT stream.create_source('late', 'table', options => '{"table": "late_t"}', event_time => 'ts', watermark_delay => '1 minute')},
	q{SELECT stream.create_source('second', 'rate', options => '{"rows_per_second": 3}')},
	qq(SELECT stream.create_source('lines', 'file', 'v int', '{"path": "$files", "format": "json"}')));
create_query($node, 'wins', 'SELECT stream.tumble(ts, \'1 second\') AS w, count(*) AS n FROM one GROUP BY w', 'start => false');
value("CALL stream.process_all_available('wins')");
is(value("SELECT num_input_rows FROM stream.progress WHERE query = 'wins' ORDER BY batch_id DESC LIMIT 1"), '0', 'its last batch closed windows only');
is(value(sprintf($lags, 'wins')), 'public.one 0 0 10:00:50, public.one 1 0 11:00:19', 'a batch without data knows what its partitions hold');
create_query($node, 'many', 'SELECT v FROM one UNION ALL SELECT v FROM more UNION ALL SELECT v FROM late UNION ALL SELECT v FROM lines UNION ALL SELECT value::int FROM second',
	q{start => false, options => '{"max_rows_per_batch": 1000}'});
my $many = 'public.late 0%s, public.lines 0, public.more three/0 0, public.more three/1 0 13:00:29, public.more two/0 0 12:00:14, public.one 0 0 10:00:50, public.one 1 0 11:00:19, public.second 0';
value("CALL stream.process_all_available('many')");
is(value(sprintf($lags, 'many')), sprintf($many, ''), 'several sources');
value("INSERT INTO late_t VALUES (1, '2026-03-01 09:00:00Z')");
value("CALL stream.process_all_available('many')");
is(value(sprintf($lags, 'many')), sprintf($many, ' 09:00:00'), 'a batch of one of them tells of all');
value("INSERT INTO late_t SELECT i, '2026-03-01 09:00:01Z' FROM generate_series(1, 1500) i");
value("CALL stream.run_batch('many', NULL)");
like(value(sprintf($lags, 'many')), qr/^public.late \? 09:00:01, /, 'a table does not know how much is left');
value("CALL stream.process_all_available('many')");
like(value(sprintf($lags, 'many')), qr/^public.late 0 09:00:01, /, 'unless it is nothing');
$broker->send_value('two', 0, map { "{\"v\": 0, \"ts\": \"2026-03-01T12:00:20Z\"}" } 1 .. 3);
is(value("SELECT bool_and(as_of < now()) FROM stream.source_lag WHERE query = 'many'"), 't', 'of a stopped query, as of its last batch');
create_query($node, 'stuck', 'SELECT 1 / v AS v FROM more', q{options => '{"max_retries": 0}'});
ok(status_is($node, 'stuck', 'failed'), 'a query that fails at its first batch');
is(value(sprintf($lags, 'stuck')), 'public.more three/0 0, public.more three/1 20, public.more two/0 8', 'all it was to read waits');
$node->restart;
is(value(sprintf($lags, 'wins')), 'public.one 0 0 10:00:50, public.one 1 0 11:00:19', 'a restart forgets nothing of it');
value("SELECT stream.drop_query('$_')") for ('wins', 'many', 'stuck');

# ---- catching up is a long operation, over many batches: 110 rows waited, ten a batch
create_query($node, 'behind', 'SELECT v, pg_sleep(0.02) IS NULL AS s FROM one', q{start => false, options => '{"max_rows_per_batch": 10}'});
is(value("SELECT count(*) FROM stream.operations WHERE query = 'behind'"), '0', 'nothing to do');
value("SELECT stream.start_query('behind')");
my $catching = "FROM stream.operations o JOIN stream.queries q ON q.name = o.query WHERE query = 'behind' AND operation = 'catching up'";
ok(wait_for_sql($node, "SELECT rows_done >= 20 AND rows_total = 110 AND o.pid = q.pid AND started_at < now() $catching", 't'), 'catching up: rows done, and all there are')
	or diag(value("SELECT o.* $catching"));
value("CALL stream.process_all_available('behind')");
ok(wait_for_sql($node, "SELECT count(*) FROM stream.operations WHERE query = 'behind'", '0'), 'until nothing waits');
create_query($node, 'behind_t', 'SELECT v, pg_sleep(0.02) IS NULL AS s FROM late', q{options => '{"max_rows_per_batch": 10}'});
ok(wait_for_sql($node, "SELECT rows_done >= 10, rows_total IS NULL FROM stream.operations WHERE query = 'behind_t' AND operation = 'catching up'", 't|t'), 'a table does not know of how many');
value("SELECT stream.drop_query('$_')") for ('behind', 'behind_t');

create_query($node, 'groups', 'SELECT v, count(*) AS n FROM input GROUP BY v', "output_mode => 'update', start => false");
value("CALL stream.process_all_available('groups')");

# ---- events: idle, too
my $listener = StreamListener->new($node, 'stream_events');
sub events_of { my ($name) = @_; my $id = value("SELECT id FROM stream.queries WHERE name = '$name'"); return join ' ', map { /"query_id": $id, "event": "(\w+)"/ ? $1 : () } $listener->heard }
value("INSERT INTO input_t VALUES (7)");
value("CALL stream.process_all_available('good')");
ok(wait_for(sub { events_of('good') =~ /^progress .*\bidle$/ }), 'progress and idle events') or diag(events_of('good'));

# ---- nearly all rows of a source unreadable: once in the log, in the status, as an event; the other source of the query is all right
value(qq{SELECT stream.create_source('rubbish', 'kafka', 'v int', '{"bootstrap.servers": "$bootstrap", "topic": "rubbish", "starting_offsets": "earliest"}')});
$log = -s $node->logfile;
create_query($node, 'reads', 'SELECT v FROM rubbish UNION ALL SELECT v FROM input');
my ($rubbish, $lines) = (0, '');
sub rubbish_is_seen
{
	my ($value, $count) = @_;
	$broker->send_value('rubbish', 0, ($value) x $count);
	$rubbish += $count;
	value("CALL stream.process_all_available('reads')");
	return value(q{SELECT coalesce(unreadable_reason, '-') || ' ' || coalesce(substr(unreadable_advice, 1, 32), '-') FROM stream.queries WHERE name = 'reads'});
}
is(rubbish_is_seen('{"v": "x"}', 19), '- -', 'a few rows say nothing');
like(rubbish_is_seen('{"v": "x"}', 11), qr/^(2\d|30) of the last \1 rows of kafka source public\.rubbish cannot be read stream\.dead_letters says why, un/, 'a source of which nothing can be read: reason and advice');
rubbish_is_seen('{"v": "x"}', 10) for 1 .. 3;
value('INSERT INTO input_t SELECT generate_series(200, 229)'); # it looks at the last ten batches, and messages may have come in more
value("CALL stream.process_all_available('reads')");
is(value("SELECT source, rows >= 30, rows_bad, reason IS NULL FROM stream.quality WHERE source = 'table source public.input' AND query_id = (SELECT id FROM stream.queries WHERE name = 'reads')"),
	'table source public.input|t|0|t', 'the other one is all right');
is(rubbish_is_seen('{"v": 1}', 50), '- -', 'with good rows among them it is no longer said');
rubbish_is_seen('{"v": 1}', 50);
$lines = slurp_file($node->logfile, $log);
is(() = $lines =~ /WARNING:  streaming query "reads": 100 % of the newest rows of source public\.rubbish cannot be read/g, 1, 'a line in the log when it begins');
is(() = $lines =~ /LOG:  streaming query "reads": rows of source public\.rubbish can be read again/g, 1, 'and when it is over');
value("SELECT stream.stop_query('reads')");
ok(wait_for(sub { events_of('reads') =~ /termination$/ }), 'stopped');
is(join(' ', grep { !/progress|idle/ } split / /, events_of('reads')), 'start unreadable readable termination', 'and events, each once, in their order, however soon one follows the other');
my @batches = map { /"event": "(?:un)?readable", "batch_id": (\d+)/ } $listener->heard;
is(value("SELECT string_agg(batch_id || ' ' || ((progress->'sources'->0->>'numBadRows')::int > 0), ', ' ORDER BY batch_id) FROM stream.progress WHERE query = 'reads' AND batch_id IN ($batches[0], $batches[1])"),
	"$batches[0] true, $batches[1] false", 'with the batch that brought it about');
$listener->quit;
value("SELECT stream.drop_query('reads')");

# ---- progress in Spark's shape
is(value(q{SELECT string_agg(k, ' ' ORDER BY k COLLATE "C") FROM (SELECT jsonb_object_keys(progress) AS k FROM stream.progress WHERE query = 'groups' AND batch_id = 0) x}),
	'batchDuration batchId durationMs eventTime id inputRowsPerSecond name numInputRows processedRowsPerSecond runId sink sources stateOperators timestamp', 'fields of StreamingQueryProgress');
is(value(q{SELECT string_agg(k, ' ' ORDER BY k COLLATE "C") FROM (SELECT jsonb_object_keys(progress->'sources'->0) AS k FROM stream.progress WHERE query = 'groups' AND batch_id = 0) x}),
	'description endOffset inputRowsPerSecond latestOffset numBadRows numInputRows processedRowsPerSecond startOffset', 'of its sources');
is(value(q{SELECT string_agg(k, ' ' ORDER BY k COLLATE "C") FROM (SELECT jsonb_object_keys(progress->'stateOperators'->0) AS k FROM stream.progress WHERE query = 'groups' AND batch_id = 0) x}),
	'commitTimeMs memoryUsedBytes numRowsDroppedByWatermark numRowsRemoved numRowsTotal numRowsUpdated numShufflePartitions numStateStoreInstances operatorName', 'of its state operators');

# ---- the server goes: shut down is no failure, and not the same as lost
my $ends = "SELECT string_agg(outcome, ' ' ORDER BY attempt) FROM (SELECT * FROM stream.attempts WHERE query = 'good' ORDER BY attempt DESC LIMIT 2) a";
for my $way ([ 'fast', 'shutdown' ], [ 'smart', 'shutdown' ], [ 'immediate', 'lost' ])
{
	my ($how, $outcome) = @$way;
	my $failures = value("SELECT failures FROM stream.stat WHERE query = 'good'");
	$node->stop($how);
	$node->start;
	ok(wait_for_sql($node, $ends, "$outcome running"), "stopped $how: $outcome");
	is(value("SELECT failures - $failures FROM stream.stat WHERE query = 'good'"), $outcome eq 'lost' ? 1 : 0, 'counted as it should be');
}
is(value("SELECT ended_at >= started_at, sqlstate IS NULL, error IS NULL FROM stream.attempts WHERE query = 'good' AND outcome = 'shutdown' ORDER BY attempt LIMIT 1"), 't|t|t', 'without an error');
value("SELECT pg_terminate_backend(pid) FROM stream.queries WHERE name = 'good'");
ok(wait_for_sql($node, $ends, 'lost running'), 'a worker that is terminated while the server runs is lost');
# ---- the queue of NOTIFY is full, for a listener is in a transaction: no event fails a query, a channel sink waits for room
SKIP:
{
	skip 'the queue cannot be made small before version 17', 5 if value('SHOW server_version_num') < 170000;
	$node->append_conf('postgresql.conf', 'max_notify_queue_pages = 64');
	$node->restart;
	create_query($node, 'tells', 'SELECT v FROM input', "start => false");
	value(q{SELECT stream.create_query('calls', 'SELECT v FROM input', stream.to_channel('heard'))});
	ok(status_is($node, 'calls', 'running'), 'running');
	my $deaf = $node->background_psql('postgres');
	$deaf->query_safe('LISTEN anything; BEGIN; SELECT txid_current()');
	for (1 .. 200) { last if ($node->psql('postgres', "SELECT pg_notify('x', repeat('x', 7900)), pg_notify('x', repeat('y', 7900))"))[0] != 0 || value('SELECT pg_notification_queue_usage() > 0.9') eq 't' }
	value("INSERT INTO input_t VALUES (70); SELECT stream.start_query('tells')");
	ok(status_is($node, 'tells', 'running'), 'a query starts');
	ok(wait_for_sql($node, 'SELECT count(*) > 0 FROM tells_out WHERE v = 70', 't'), 'and goes on');
	ok(wait_for_sql($node, "SELECT status, sqlstate FROM stream.queries WHERE name = 'calls'", 'restarting|53000'), 'a channel sink waits');
	$deaf->query_safe('COMMIT');
	$deaf->quit;
	ok(wait_for_sql($node, "SELECT status, failures FROM stream.queries WHERE name = 'calls'", 'running|0', 30), 'until there is room');
}

$node->stop;
done_testing();
