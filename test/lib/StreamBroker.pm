# StreamBroker.pm: Kafka for TAP tests. StreamBroker->new(topics => ['t:2']) starts the embedded broker; StreamBroker->real starts a Kafka
# of its own and talks to it through the same commands (see broker.c).
# Danger: whatever was started here ends with the object, also when a test dies.
package StreamBroker;

use strict;
use warnings;
use Cwd qw(abs_path);
use File::Basename qw(dirname);
use File::Path qw(remove_tree);
use File::Temp qw(tempdir);
use IPC::Open2;
use Scalar::Util qw(weaken);

my $lib = dirname(abs_path(__FILE__));
my @brokers; # all there are: what a script's own variables hold is let go of too late
my $build = $ENV{STREAM_BUILD} || "$lib/../../build";

sub new
{
	my ($class, %args) = @_;
	my $self = _register(bless {}, $class);
	$self->_talk(@{ $args{topics} || [] });
	return $self;
}

# A broker of Apache Kafka's own, with storage in a directory that is removed at the end.
sub real
{
	my ($class) = @_;
	my $self = _register(bless { dir => tempdir('stream_kafka_XXXXXX', TMPDIR => 1) }, $class);
	$self->up;
	return $self;
}

sub _register
{
	my ($self) = @_;
	push @brokers, $self;
	weaken($brokers[-1]);
	return $self;
}

sub _talk
{
	my ($self, @arguments) = @_;
	$self->{pid} = open2($self->{out}, $self->{in}, "$build/stream_broker", @arguments);
	$self->{in}->autoflush(1);
	my $line = readline($self->{out});
	die "stream_broker did not start\n" unless defined $line && $line =~ /^bootstrap (\S+)/;
	$self->{bootstrap} = $1;
	return;
}

sub _hang_up
{
	my ($self) = @_;
	return unless $self->{pid};
	close($self->{in});
	close($self->{out});
	waitpid($self->{pid}, 0);
	delete $self->{pid};
	return;
}

# Real broker only: start (again), stop as told or by SIGKILL.
sub up
{
	my ($self) = @_;
	my $answer = `'$lib/kafka_broker.sh' start '$self->{dir}'`;
	die "no Kafka broker\n" unless $? == 0 && $answer =~ /^bootstrap (\S+)/m;
	$self->{running} = 1;
	$self->_talk('--connect', $1);
	return;
}

sub down
{
	my ($self, $how) = @_;
	$self->_hang_up;
	system("$lib/kafka_broker.sh", $how || 'stop', $self->{dir});
	$self->{running} = 0;
	return;
}

# Of the real broker: the address that wants TLS and a password, and the certificate to trust.
sub secure { my ($self) = @_; return ('127.0.0.1:' . _slurp("$self->{dir}/secure_port"), _slurp("$self->{dir}/server.crt")); }

# Of the real broker, which is restarted: what it gives as the address that wants TLS.
sub advertise_secure
{
	my ($self, $address) = @_;
	$self->down;
	my $file = "$self->{dir}/server.properties";
	(my $text = _slurp($file)) =~ s{^(advertised\.listeners=.*SECURE://)[^,\n]*}{$1$address}m or die "no listener\n";
	open(my $out, '>', $file) or die "$file: $!\n";
	print {$out} "$text\n";
	close($out) or die "$file: $!\n";
	$self->up;
	return;
}

sub _slurp
{
	my ($path) = @_;
	open(my $file, '<', $path) or die "$path: $!\n";
	local $/ = undef;
	my $text = <$file>;
	chomp $text;
	return $text;
}

sub bootstrap { return $_[0]->{bootstrap}; }

# One command; dies unless the answer is ok; returns what follows.
sub ask
{
	my ($self, $command) = @_;
	print { $self->{in} } "$command\n";
	my $answer = readline($self->{out});
	die "broker: $command: " . (defined $answer ? $answer : "gone\n") unless defined $answer && $answer =~ /^ok\s*(.*)$/;
	return $1;
}

sub send_value
{
	my ($self, $topic, $partition, @values) = @_;
	$self->ask("send $topic $partition value=$_") for @values;
	return;
}

# Card transactions, all of them produced on return: rate 0.
sub cards
{
	my ($self, $topic, $count, $seed, $start_ms) = @_;
	$self->ask("cards $topic 0 $count $seed " . ($start_ms || 0));
	$self->cards_done($count);
	return;
}

# The end of what "cards" began; dies unless the broker took every message.
sub cards_done
{
	my ($self, $count) = @_;
	my $line = readline($self->{out});
	die "broker: the generator ended with $line" unless $line =~ /^done $count/;
	return;
}

sub finish
{
	my ($self) = @_;
	local ($?, $@);
	$self->_hang_up;
	$self->down('kill') if $self->{dir} && $self->{running};
	remove_tree($self->{dir}) if $self->{dir};
	delete $self->{dir};
	return;
}

sub DESTROY { my ($self) = @_; $self->finish; return; }

END
{
	$_->finish for grep { defined } @brokers;
}

1;
