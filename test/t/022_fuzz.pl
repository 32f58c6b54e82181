# Bad input by SQL: hostile arguments for every function, documents and ttl values of every kind, in
# databases of four encodings.  test/torture/fuzz.py sends them, and checks the answers.  This file
# checks what a client does not see: the log of the server.  No process, workers included, may have
# crashed or raised an internal error.
#
# With PG_TEST_TORTURE: more seeds, longer runs, and documents of megabytes.  PG_TEST_FUZZ has other
# arguments for fuzz.py, such as those that a failure has printed.

use strict;
use warnings;

use lib 'test/perl';
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Torture;
use TtlServer;

my $python = python_or_skip();

my @runs = ('--seed 1 --operations 120 --timeout 180');
@runs = map { "--seed $_ --operations 3000 --largest 8000000 --timeout 600" } 1 .. 10
  if torture();
@runs = ($ENV{PG_TEST_FUZZ}) if $ENV{PG_TEST_FUZZ};

my $node = start_server(
	'main', q{
ttl_docs.purge_naptime = '20ms'
autovacuum = off
restart_after_crash = off
# the log has the SQLSTATE of each error, but not the statements
log_error_verbosity = verbose
log_statement = none
log_min_error_statement = panic
});

foreach my $run (@runs)
{
	ok(run_on($node, $python, 'test/torture/fuzz.py', split(' ', $run)), "fuzz.py $run: all answers are correct");
}

# Now workers purge the documents that are left, with stamps and settings of all kinds.
my $databases = $node->safe_psql('postgres', q{SELECT datname FROM pg_database WHERE datname LIKE 'fuzz\_%'});
foreach my $database (split /\n/, $databases)
{
	$node->safe_psql('postgres', "ALTER DATABASE $database RESET ttl_docs.purge");
	becomes($node, $database,
		q{SELECT count(*) FROM ttl_docs.stat_collections WHERE state IN ('purging', 'disabled')},
		'0', "the workers finish in $database");
}
$node->stop;

nothing_crashed($node);
my @internal = grep { /(ERROR|FATAL|WARNING|LOG): +XX/ } split /\n/, slurp_file($node->logfile);
is(join("\n", @internal), '', 'there was no internal error');

done_testing();
