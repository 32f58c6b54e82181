# Random queries over collections with expired rows on disk answer as the same
# queries over plain tables with the live rows only: test/torture/queries.py.
#
# PG_TEST_TORTURE runs many more of them, with several seeds.

use strict;
use warnings;

use lib 'test/perl';
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Torture;

my $python = python_or_skip();

# Without a time limit: the same cases on every machine.
my $cases = torture() ? 15000 : 2000;
my @seeds = torture() ? (1 .. 4) : (1);

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->append_conf(
	'postgresql.conf', q{
shared_preload_libraries = 'ttl_docs'
ttl_docs.purge = off
autovacuum = off
max_worker_processes = 16
});
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION ttl_docs');

for my $seed (@seeds)
{
	ok(run_on($node, $python, 'test/torture/queries.py', '--seed', $seed, '--cases', $cases),
		"$cases cases with seed $seed: no difference");
}
# A crash would have ended a session, and so a case; but not that of a worker.
unlike(slurp_file($node->logfile), qr/TRAP: |PANIC: |was terminated by signal/, 'nothing crashed');
$node->stop;
done_testing();
