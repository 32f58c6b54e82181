# What the log of a server says about its purge workers.  Needs log_min_messages = debug1.
package WorkerLog;

use strict;
use warnings;

use Exporter qw(import);
use PostgreSQL::Test::Utils;
use Time::HiRes qw(usleep);

our @EXPORT = qw($worker_start log_size worker_starts wait_until_idle);

our $worker_start = qr/starting background worker process "ttl_docs purge worker"/;

sub log_size
{
	my ($node) = @_;
	return -s $node->logfile;
}

# How many workers were started since the log had that size.
sub worker_starts
{
	my ($node, $offset) = @_;
	my $count = () = slurp_file($node->logfile, $offset) =~ /$worker_start/g;
	return $count;
}

# Waits until no worker has been started for a second.
sub wait_until_idle
{
	my ($node) = @_;
	my $quiet = 0;
	my $seen = -1;
	for (my $i = 0; $i < 600 && $quiet < 10; $i++)
	{
		my $now = worker_starts($node, 0);
		$quiet = $now == $seen ? $quiet + 1 : 0;
		$seen = $now;
		usleep(100_000);
	}
	return $quiet == 10;
}

1;
