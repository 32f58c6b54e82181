# Random queries on collections with expired rows on disk return the same as on plain tables with the
# live rows only: test/torture/queries.py.
#
# With PG_TEST_TORTURE the test runs many more queries, from several seeds.  PG_TEST_QUERIES has other
# arguments for queries.py, such as those that a failure has printed.

use strict;
use warnings;

use lib 'test/perl';
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Torture;
use TtlServer;

my $python = python_or_skip();

# There is no time limit: every machine runs the same cases.
my @runs = ('--seed 1 --cases 2000');
@runs = map { "--seed $_ --cases 15000" } 1 .. 4 if torture();
@runs = ($ENV{PG_TEST_QUERIES}) if $ENV{PG_TEST_QUERIES};

my $node = start_server(
	'main', q{
ttl_docs.purge = off
autovacuum = off
max_worker_processes = 16
});
$node->safe_psql('postgres', 'CREATE EXTENSION ttl_docs');

foreach my $run (@runs)
{
	ok(run_on($node, $python, 'test/torture/queries.py', split(' ', $run)), "random queries, $run: the results are the same");
}
# queries.py notices the crash of a session, but not that of a worker
nothing_crashed($node);
$node->stop;
done_testing();
