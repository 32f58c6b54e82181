# Random queries on collections with expired rows on disk return the same as on plain tables with the
# live rows only: test/torture/queries.py.
#
# With PG_TEST_TORTURE the test runs many more queries, from several seeds.

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
my $cases = torture() ? 15000 : 2000;
my @seeds = torture() ? (1 .. 4) : (1);

my $node = start_server(
	'main', q{
ttl_docs.purge = off
autovacuum = off
max_worker_processes = 16
});
$node->safe_psql('postgres', 'CREATE EXTENSION ttl_docs');

for my $seed (@seeds)
{
	ok(run_on($node, $python, 'test/torture/queries.py', '--seed', $seed, '--cases', $cases),
		"$cases queries with seed $seed: the results are the same");
}
# queries.py notices the crash of a session, but not that of a worker
nothing_crashed($node);
$node->stop;
done_testing();
