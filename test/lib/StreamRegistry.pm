# StreamRegistry.pm: a schema registry for TAP tests: HTTP answers from a directory, a file per path; as bad as told.
# Danger: the server is a child process; it ends with the object.
package StreamRegistry;

use strict;
use warnings;
use File::Temp qw(tempdir);
use IO::Socket::INET;

sub new
{
	my ($class) = @_;
	my $listen = IO::Socket::INET->new(Listen => 20, LocalAddr => '127.0.0.1', ReuseAddr => 1) or die "no socket: $!\n";
	my $self = bless { dir => tempdir('stream_registry_XXXXXX', TMPDIR => 1, CLEANUP => 1), port => $listen->sockport }, $class;
	$self->_start($listen);
	return $self;
}

sub url { my ($self) = @_; return "http://127.0.0.1:$self->{port}"; }

# The answer to a path from now on: status and body.
sub answer
{
	my ($self, $path, $body, $status) = @_;
	_write("$self->{dir}/" . _file($path), ($status // 200) . "\n$body");
	return;
}

sub schema
{
	my ($self, $id, $schema, $more) = @_;
	$self->answer("/schemas/ids/$id", '{"schema":' . _json($schema) . ($more // '') . '}');
	return;
}

# How all answers go wrong: 'status 503', 'hang', 'cut', 'user name:password' (refuses others); nothing: they do not.
sub mood { my ($self, $mood) = @_; _write("$self->{dir}/mood", $mood // ''); return; }

# Paths asked for so far.
sub asked { my ($self) = @_; return split /\n/, -e "$self->{dir}/log" ? _read("$self->{dir}/log") : ''; }

sub stop
{
	my ($self) = @_;
	return unless $self->{pid};
	kill 'KILL', $self->{pid};
	waitpid($self->{pid}, 0);
	delete $self->{pid};
	return;
}

# Again, at the same address.
sub start
{
	my ($self) = @_;
	$self->_start(IO::Socket::INET->new(Listen => 20, LocalAddr => '127.0.0.1', LocalPort => $self->{port}, ReuseAddr => 1) || die "no socket: $!\n");
	return;
}

sub DESTROY { my ($self) = @_; local ($?, $@); $self->stop if ($self->{owner} // 0) == $$; return; }

sub _start
{
	my ($self, $listen) = @_;
	$self->{owner} = $$;
	$self->{pid} = fork // die "no process: $!\n";
	return if $self->{pid};
	eval { $self->_serve($listen) };
	require POSIX;
	POSIX::_exit(0);
}

sub _serve
{
	my ($self, $listen) = @_;
	local $SIG{PIPE} = 'IGNORE';
	while (my $client = $listen->accept)
	{
		my ($request, %header) = (scalar <$client>);
		while (defined(my $line = <$client>))
		{
			last if $line =~ /^\r?\n$/;
			$header{ lc $1 } = $2 if $line =~ /^([^:]+):\s*(.*?)\r?\n$/;
		}
		my ($path) = ($request // '') =~ m{^GET (\S+) HTTP} or next;
		open(my $log, '>>', "$self->{dir}/log") or die;
		print $log "$path\n";
		close($log);
		my $mood = -e "$self->{dir}/mood" ? _read("$self->{dir}/mood") : '';
		my $file = "$self->{dir}/" . _file($path);
		my ($status, $body) = -e $file ? split(/\n/, _read($file), 2) : (404, '{"error_code":40403,"message":"Schema not found"}');
		($status, $body) = ($1, 'no') if $mood =~ /^status (\d+)/;
		($status, $body) = (401, 'who?') if $mood =~ /^user (.*)/ && ($header{authorization} // '') ne 'Basic ' . _base64($1);
		sleep 60 if $mood eq 'hang';
		my $length = length($body) + ($mood eq 'cut' ? 10 : 0);
		print $client "HTTP/1.1 $status X\r\nContent-Type: application/json\r\nContent-Length: $length\r\nConnection: close\r\n\r\n$body";
		close($client);
	}
	return;
}

sub _file { my ($path) = @_; $path =~ s/[^A-Za-z0-9]/_/g; return "answer$path"; }
sub _json { my ($text) = @_; $text =~ s/(["\\])/\\$1/g; $text =~ s/\n/\\n/g; return qq("$text"); }
sub _base64 { my ($text) = @_; require MIME::Base64; return MIME::Base64::encode_base64($text, ''); }

sub _write
{
	my ($path, $text) = @_;
	open(my $file, '>', "$path.new") or die "$path: $!\n";
	print $file $text;
	close($file);
	rename("$path.new", $path) or die;
	return;
}

sub _read
{
	my ($path) = @_;
	open(my $file, '<', $path) or die "$path: $!\n";
	local $/ = undef;
	my $text = <$file>;
	close($file);
	return $text // '';
}

1;
