# For TAP tests that run a program of test/torture.
package Torture;

use strict;
use warnings;

use Exporter qw(import);
use Test::More;

our @EXPORT = qw(torture python_or_skip run_on run_program);

# Is this "make torture"?
sub torture
{
	return !!$ENV{PG_TEST_TORTURE};
}

# Returns a Python that has psycopg2.  Skips the test if none is found.
sub python_or_skip
{
	# Debian's packages belong to /usr/bin/python3, which need not be the first on the PATH.
	for my $python ('/usr/bin/python3', 'python3')
	{
		return $python if system("$python -c 'import psycopg2' >/dev/null 2>&1") == 0;
	}
	plan skip_all => 'Python 3 with psycopg2 is not installed (Debian: python3-psycopg2)';
	return;
}

# Runs a program that connects to a server as superuser.  Its output becomes part of the test's output.
# Returns whether it succeeded.
sub run_on
{
	my ($node, @command) = @_;
	# The superuser has the name of the user who runs the test; the program may not know it.
	my %connection = (
		PGUSER => $node->safe_psql('postgres', 'SELECT current_user'),
		PGHOST => $node->host,
		PGPORT => $node->port,
		PGDATABASE => 'postgres');
	return run_program(\%connection, @command);
}

# The same for a program with other environment variables.
sub run_program
{
	my ($environment, @command) = @_;
	local %ENV = (%ENV, %$environment, PYTHONUNBUFFERED => 1, PYTHONDONTWRITEBYTECODE => 1);
	note("@command");
	open my $output, '-|', @command or die "cannot run $command[0]: $!";
	while (my $line = <$output>)
	{
		chomp $line;
		note($line);
	}
	close $output;
	return $? == 0;
}

1;
