# What TAP tests have in common that run a program of test/torture.
package Torture;

use strict;
use warnings;

use Exporter qw(import);
use Test::More;

our @EXPORT = qw(torture python_or_skip run_on);

# Is this "make torture"?
sub torture
{
	return !!$ENV{PG_TEST_TORTURE};
}

# The Python that has psycopg2.  Without one the test is skipped.
sub python_or_skip
{
	# The first on the PATH need not be the one that Debian's packages belong to.
	for my $python ('/usr/bin/python3', 'python3')
	{
		return $python if system("$python -c 'import psycopg2' >/dev/null 2>&1") == 0;
	}
	plan skip_all => 'Python 3 with psycopg2 is not there (Debian: python3-psycopg2)';
	return;
}

# Runs a program, which connects to a server as its superuser; its output becomes
# part of the test's.  Returns whether it has succeeded.
sub run_on
{
	my ($node, @command) = @_;
	# The superuser of the cluster is who runs this; the program may not find out by itself.
	local $ENV{PGUSER} = $node->safe_psql('postgres', 'SELECT current_user');
	local $ENV{PGHOST} = $node->host;
	local $ENV{PGPORT} = $node->port;
	local $ENV{PGDATABASE} = 'postgres';
	local $ENV{PYTHONUNBUFFERED} = 1;
	local $ENV{PYTHONDONTWRITEBYTECODE} = 1;
	# It may meet a server that is about to crash, or has.
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
