# Messages that cannot be read: good rows and dead letters together are the input, exactly; bytes and place are kept; strict sources say where.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use StreamBroker;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION stream_ext');

my $broker = StreamBroker->new;
my $server = $broker->bootstrap;
$node->safe_psql('postgres', qq(CREATE SERVER k FOREIGN DATA WRAPPER stream_kafka OPTIONS ("bootstrap.servers" '$server')));

sub source
{
	my ($name, $topic, $columns, $options) = @_;
	$options = $options ? ", $options" : '';
	$node->safe_psql('postgres',
		qq(SELECT stream.create_source('$name', 'kafka', '$columns', '{"server": "k", "topic": "$topic", "starting_offsets": "earliest"$options}')));
	return;
}

sub query
{
	my ($name, $sql) = @_;
	$node->safe_psql('postgres', "SELECT stream.create_query('$name', \$\$$sql\$\$, stream.to_table('${name}_out'), start => false)");
	return;
}

sub is_sql
{
	my ($sql, $expected, $what) = @_;
	is($node->safe_psql('postgres', $sql), $expected, $what);
	return;
}

# What is wrong with the message between {"id":1} and {"id":3}, and the SQLSTATE it gives.
my @bad = (
	[ '{"id":2,"s":"\ud83d"}', '22P02', 'half a surrogate pair' ],
	[ '{"id":2,"s":"\u0000"}', '22P05', 'escaped zero' ],
	[ '{"id":2,"v":1e400}', '22003', 'too big for double' ],
	[ '{"id":2,"v":1e-400}', '22003', 'too small for double' ],
	[ '{"id":2,"x":1e131072}', '22003', 'too big for numeric, in a field nobody reads' ],
	[ '{"id":18446744073709551615}', '22003', 'unsigned 64 bits' ],
	[ '{"id":004}', '22P02', 'leading zeros' ],
	[ '{"id":12ii}', '22P02', 'letters in a number' ],
	[ '{"id":NaN}', '22P02', 'NaN' ],
	[ '{"id":+1}', '22P02', 'plus sign' ],
	[ '{"id":1,}', '22P02', 'comma too many' ],
	[ q({'id':1}), '22P02', 'single quotes' ],
	[ '{"id":2.5}', '22P02', 'fraction for an integer' ],
	[ '[' x 100_000 . ']' x 100_000, '54001', 'hundred thousand brackets' ],
	[ '{"x":' x 100_000, '54001', 'hundred thousand objects' ],
	[ '[{"id":2},{"id":4}]', '22P02', 'array' ],
	[ 'hex:' . unpack('H*', qq({"id":5}\n{"id":6})), '22P02', 'two objects' ],
	[ 'hex:7b2261223a22c328227d', '22021', 'no UTF-8' ],
	[ 'hex:7b0022', '22021', 'zero byte' ],
	[ 'hex:', '22P02', 'empty' ],
	[ '{"at":"2016-12-31T23:59:60.5Z"}', '22008', 'half a leap second' ],
	[ '{"at":"2016-12-31T23:59:61Z"}', '22008', 'second 61' ],
	[ '{"at":"2026-02-30T00:00:00Z"}', '22008', 'no such day' ],
	[ '{"at":1772359200}', '22007', 'number as timestamp without unit' ],
	[ '{"at":"soon"}', '22007', 'no timestamp' ]);

# One topic per kind, and one with all of them.
my $all = 0;
$broker->ask('create all 3');
for my $i (0 .. $#bad)
{
	my ($message, $sqlstate, $what) = @{ $bad[$i] };
	$broker->ask("create bad$i 1");
	$broker->send_value("bad$i", 0, '{"id":1}', $message, '{"id":3}');
	source("bad$i", "bad$i", 'id bigint, v float8, s text, at timestamptz');
	query("bad$i", "SELECT id FROM bad$i");
	$node->safe_psql('postgres', "CALL stream.process_all_available('bad$i')");
	is_sql("SELECT array_agg(id ORDER BY id), max(batch_id) FROM bad${i}_out", '{1,3}|0', "$what: good ones pass");
	my $hex = $message =~ /^hex:(.*)/ ? $1 : unpack('H*', $message);
	is_sql(
		qq(SELECT batch_id, reason, position->>'topic', position->>'partition', position->>'offset', raw = '\\x$hex', error IS NOT NULL
			FROM stream.dead_letters WHERE query = 'bad$i'), "0|malformed|bad$i|0|1|t|t", "$what: kept with bytes and place");

	source("strict$i", "bad$i", 'id bigint, v float8, s text, at timestamptz', '"on_bad_row": "fail"');
	query("strict$i", "SELECT id FROM strict$i");
	my ($code, undef, $error) = $node->psql('postgres', "\\set VERBOSITY verbose\nCALL stream.process_all_available('strict$i')");
	like($error, qr/ERROR:  $sqlstate: .*DETAIL:  [^\n]*"topic": "bad$i"/s, "$what: strict fails with $sqlstate");
	like($error, qr/"offset": 1\b.*"partition": 0|"partition": 0.*"offset": 1\b/s, "$what: and says where");
	is_sql("SELECT count(*) FROM strict${i}_out", '0', "$what: nothing is committed");

	$broker->send_value('all', $i % 3, "{\"id\":$i}", $message, sprintf('{"id":%d}', 1000 + $i));
	$all += 3;
}

# Values at the edge that are good: exact, or by PostgreSQL's own rules.
$broker->ask('create good 1');
$broker->send_value('good', 0, '{"id":1,"n":9007199254740993,"s":"\ud83d\ude00"}', '{"id":2,"id":20}', '{"id":3,"n":1e400}', '{"id":4,"n":18446744073709551615}',
	'{"id":5,"x":' . '[' x 3000 . ']' x 3000 . '}', 'hex:efbbbf7b226964223a367d', '{"id":7,"at":"2016-12-31T23:59:60Z"}', '{"id":8,"at":"2020-01-01T12:00:60Z"}',
	"hex:" . unpack('H*', qq({\n\t"id": 9\n}\n)), '{"id":10,"at":"2026-03-01T10:04:59.9999994Z"}', '{"id":11,"at":"2026-03-01T10:04:59.9999999Z"}');
source('good', 'good', 'id bigint, n numeric, s text, at timestamptz');
query('good', 'SELECT id, n, s, at, stream.tumble(at, $i$5 min$i$) AS w FROM good');
$node->safe_psql('postgres', "CALL stream.process_all_available('good')");
is_sql("SELECT count(*) FROM stream.dead_letters WHERE query = 'good'", '0', 'no good message is refused');
is_sql('SELECT array_agg(id ORDER BY id) FROM good_out', '{1,3,4,5,6,7,8,9,10,11,20}', 'the last of repeated keys wins');
is_sql('SELECT n, s FROM good_out WHERE id = 1', "9007199254740993|\x{f0}\x{9f}\x{98}\x{80}", 'numbers beyond 2^53 are exact; pairs of surrogates are one character');
is_sql('SELECT n = 10::numeric ^ 400 FROM good_out WHERE id = 3', 't', '1e400 is a numeric');
is_sql('SELECT n FROM good_out WHERE id = 4', '18446744073709551615', 'unsigned 64 bits are a numeric');
is_sql('SELECT lower(w) FROM good_out WHERE id = 7', '2017-01-01 00:00:00+00', 'a leap second is the next minute');
is_sql('SELECT at FROM good_out WHERE id = 8', '2020-01-01 12:01:00+00', 'second 60 of any minute, too');
is_sql('SELECT array_agg(lower(w)::time ORDER BY id) FROM good_out WHERE id IN (10, 11)', '{10:00:00,10:05:00}', 'nanoseconds round as PostgreSQL rounds');

# Timestamps as numbers, in the unit declared.
$broker->ask('create unit 1');
$broker->send_value('unit', 0, map { "{\"at\":$_}" } qw(1772359200 1772359200000 1772359200000000 1000 -86400000));
source($_, 'unit', 'at timestamptz, kafka_offset bigint', qq("timestamp_unit": "$_")) for qw(s ms us);
query($_, "SELECT at, kafka_offset FROM $_") for qw(s ms us);
$node->safe_psql('postgres', "CALL stream.process_all_available('$_')") for qw(s ms us);
is_sql('SELECT at FROM s_out WHERE kafka_offset = 0', '2026-03-01 10:00:00+00', 'seconds');
is_sql('SELECT at FROM ms_out WHERE kafka_offset = 1', '2026-03-01 10:00:00+00', 'milliseconds');
is_sql('SELECT at FROM us_out WHERE kafka_offset = 2', '2026-03-01 10:00:00+00', 'microseconds');
is_sql('SELECT at FROM ms_out WHERE kafka_offset > 2 ORDER BY kafka_offset', "1970-01-01 00:00:01+00\n1969-12-31 00:00:00+00", 'small and negative ones');
is_sql(q(SELECT position->>'offset' FROM stream.dead_letters WHERE query = 's'), '2', 'microseconds taken for seconds are out of range');

# All kinds mixed over partitions, in small batches, with a batch that fails after it has met bad rows: input = good + dead, once each.
source('mix', 'all', 'id bigint, v float8, s text, at timestamptz');
$node->safe_psql('postgres', q{
	CREATE TABLE mix_out (id bigint, batch_id bigint);
	CREATE FUNCTION veto() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		IF new.id = 1005 AND EXISTS (SELECT FROM vetoes) THEN RAISE EXCEPTION 'not now'; END IF;
		RETURN new;
	END $$;
	CREATE TABLE vetoes ();
	INSERT INTO vetoes DEFAULT VALUES;
	CREATE TRIGGER veto BEFORE INSERT ON mix_out FOR EACH ROW EXECUTE FUNCTION veto();
	SELECT stream.create_query('mix', 'SELECT id FROM mix', stream.to_table('mix_out'), options => '{"max_rows_per_batch": 11}', start => false)});
my ($code, undef, $error) = $node->psql('postgres', "CALL stream.process_all_available('mix')");
like($error, qr/not now/, 'a batch with bad rows fails for another reason');
$node->safe_psql('postgres', "DELETE FROM vetoes; CALL stream.process_all_available('mix')");
is_sql("SELECT (SELECT count(*) FROM mix_out) + (SELECT count(*) FROM stream.dead_letters WHERE query = 'mix')", $all, 'good + dead = input');
is_sql("SELECT count(*), count(DISTINCT (position->>'partition', position->>'offset')) FROM stream.dead_letters WHERE query = 'mix'", @bad . '|' . @bad,
	'each bad message once');
is_sql('SELECT count(*), count(DISTINCT id) FROM mix_out', 2 * @bad . '|' . 2 * @bad, 'each good one once');
is_sql("SELECT rows_bad FROM stream.queries WHERE name = 'mix'", scalar(@bad), 'and the count agrees');

done_testing();
