# Random histories of several sessions against a server and against a model of the
# contract, compared after each statement: test/torture/model.py.
#
# Here a few histories, always the same ones.
#	PG_TEST_TORTURE           an hour of them, from four seeds
#	PG_TEST_MODEL             other arguments for model.py, such as those that a
#	                          failure has printed

use strict;
use warnings;

use lib 'test/perl';
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Torture;

my $python = python_or_skip();

# A history takes the seed after that of the one before it.
my @runs = ('--seed 1 --histories 10');
@runs = map { "--seed ${_}000000 --seconds 900" } 1 .. 4 if torture();
@runs = ($ENV{PG_TEST_MODEL}) if $ENV{PG_TEST_MODEL};

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
# One that crashes comes back, so that the history that did it can be shortened.
$node->append_conf(
	'postgresql.conf', q{
shared_preload_libraries = 'ttl_docs'
ttl_docs.purge_grace = 0
max_prepared_transactions = 10
ttl_docs.purge = off
autovacuum = off
restart_after_crash = on
synchronous_commit = off
log_statement = none
log_min_error_statement = panic
log_min_messages = error
});
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION ttl_docs');

foreach my $run (@runs)
{
	ok(run_on($node, $python, 'test/torture/model.py', split(' ', $run)), "server and model agree: $run");
}
$node->stop;

unlike(slurp_file($node->logfile), qr/TRAP: |PANIC: |was terminated by signal/, 'nothing crashed');

done_testing();
