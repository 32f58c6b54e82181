# Random histories of several sessions, run on a server and on a model of the contract, and compared
# after each statement: test/torture/model.py.
#
# By default the test runs a few histories, always the same ones.
#	PG_TEST_TORTURE           runs an hour of histories, from four seeds
#	PG_TEST_MODEL             has other arguments for model.py, such as those that a failure
#	                          has printed

use strict;
use warnings;

use lib 'test/perl';
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Torture;
use TtlServer;

my $python = python_or_skip();

# Each history uses the next seed.
my @runs = ('--seed 1 --histories 10');
@runs = map { "--seed ${_}000000 --seconds 900" } 1 .. 4 if torture();
@runs = ($ENV{PG_TEST_MODEL}) if $ENV{PG_TEST_MODEL};

# A server that crashes restarts, so that model.py can shorten the history that caused the crash.
my $node = start_server(
	'main', q{
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
$node->safe_psql('postgres', 'CREATE EXTENSION ttl_docs');

foreach my $run (@runs)
{
	ok(run_on($node, $python, 'test/torture/model.py', split(' ', $run)), "server and model agree: $run");
}
$node->stop;

nothing_crashed($node);

done_testing();
