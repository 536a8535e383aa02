# StreamListener.pm: a session that listens to a channel and keeps all it is told: StreamListener->new($node, 'stream_events'), then heard() as often as you like.
# background_psql would lose notifications: it forgets what psql prints between two of its answers.
package StreamListener;
use strict;
use warnings FATAL => 'all';
use IPC::Run;
use PostgreSQL::Test::Utils;

sub new
{
	my ($class, $node, $channel) = @_;
	my $self = bless { in => '', out => '', rounds => 0, channel => $channel }, $class;
	my $timeout = IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default);
	$self->{run} = IPC::Run::start([ $node->installed_command('psql'), '-XAtq', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('postgres'), '-f', '-' ], '<', \$self->{in}, '>', \$self->{out},
		$timeout);
	$self->_ask("LISTEN $channel");
	return $self;
}

sub _ask
{
	my ($self, $sql) = @_;
	my $done = 'round ' . ++$self->{rounds};
	$self->{in} .= "$sql;\n\\echo $done\n";
	$self->{run}->pump until $self->{out} =~ /^\Q$done\E$/m;
	return;
}

# The payloads since LISTEN, all of them, in their order.
sub heard
{
	my ($self) = @_;
	$self->_ask('SELECT');
	return $self->{out} =~ /^Asynchronous notification "$self->{channel}" with payload "(.*)" received from server process with PID \d+\.$/mg;
}

sub quit
{
	my ($self) = @_;
	$self->{in} .= "\\q\n";
	return $self->{run}->finish;
}

1;
