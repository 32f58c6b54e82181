# Reads the log of a server for messages about its purge workers.  Needs log_min_messages = debug1.
package WorkerLog;

use strict;
use warnings;

use Exporter qw(import);
use Time::HiRes qw(usleep);
use TtlServer;

our @EXPORT = qw($worker_start log_size worker_starts wait_until_idle);

our $worker_start = qr/starting background worker process "ttl_docs purge worker"/;

# Returns the size of the log, as an offset for later searches.
sub log_size
{
	my ($node) = @_;
	return -s $node->logfile;
}

# Returns how many workers have started since the log had that size.
sub worker_starts
{
	my ($node, $offset) = @_;
	return count_log($node, $worker_start, $offset);
}

# Waits until no worker has started for some seconds, one by default.
sub wait_until_idle
{
	my ($node, $seconds) = @_;
	my $enough = 10 * ($seconds // 1);
	my $quiet = 0;
	my $seen = -1;
	for (my $i = 0; $i < 600 && $quiet < $enough; $i++)
	{
		my $now = worker_starts($node, 0);
		$quiet = $now == $seen ? $quiet + 1 : 0;
		$seen = $now;
		usleep(100_000);
	}
	return $quiet == $enough;
}

1;
