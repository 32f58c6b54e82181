# Random queries over collections with expired rows on disk answer as the same
# queries over plain tables with the live rows only: test/torture/queries.py.
#
# PG_TEST_TORTURE runs many more of them, with several seeds.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

# Debian's, which has the module; another one may come first in the PATH.
my $python = '/usr/bin/python3';
plan skip_all => "needs $python with psycopg2 (Debian: python3-psycopg2)"
  if system("$python -c 'import psycopg2' >/dev/null 2>&1") != 0;

# Without a time limit: the same cases on every machine.
my $cases = $ENV{PG_TEST_TORTURE} ? 15000 : 1500;
my @seeds = $ENV{PG_TEST_TORTURE} ? (1 .. 4) : (1);

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

$ENV{PGHOST} = $node->host;
$ENV{PGPORT} = $node->port;
$ENV{PGDATABASE} = 'postgres';
# The superuser of the cluster is who runs this; the program may not find out by itself.
$ENV{PGUSER} = $node->safe_psql('postgres', 'SELECT current_user');
for my $seed (@seeds)
{
	my @command = ($python, 'test/torture/queries.py', '--seed', $seed, '--cases', $cases);
	my ($stdout, $stderr);
	my $ok = IPC::Run::run(\@command, '>', \$stdout, '2>', \$stderr);
	ok($ok, "$cases cases with seed $seed: no difference") or diag($stderr);
	$ok ? note($stdout) : diag($stdout);
}
# A crash would have ended a session, and so a case; but not that of a worker.
unlike(slurp_file($node->logfile), qr/TRAP: |PANIC: |was terminated by signal/, 'nothing crashed');
$node->stop;
done_testing();
