# Bad input by SQL: hostile arguments for every function, documents and ttl values of
# every kind, in databases of four encodings.  test/torture/fuzz.py does it, and tells what
# has to hold.  This looks at what a client does not see: the server's log, in which no
# process, workers included, may have crashed or met an internal error.
#
# With PG_TEST_TORTURE: more seeds, longer, and documents of megabytes.  PG_TEST_FUZZ has
# other arguments for fuzz.py, such as those that a failure has printed.

use strict;
use warnings;

use lib 'test/perl';
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Torture;

my $python = python_or_skip();

my @runs = ('--seed 1 --operations 120 --timeout 180');
@runs = map { "--seed $_ --operations 3000 --largest 8000000 --timeout 600" } 1 .. 10
  if torture();
@runs = ($ENV{PG_TEST_FUZZ}) if $ENV{PG_TEST_FUZZ};

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->append_conf(
	'postgresql.conf', q{
shared_preload_libraries = 'ttl_docs'
ttl_docs.purge_naptime = '20ms'
autovacuum = off
restart_after_crash = off
# the log has the SQLSTATE of each error, and not each statement
log_error_verbosity = verbose
log_statement = none
log_min_error_statement = panic
});
$node->start;

foreach my $run (@runs)
{
	ok(run_on($node, $python, 'test/torture/fuzz.py', split(' ', $run)), "fuzz.py $run");
}

# What is left, with stamps and settings of all kinds, is for the workers now.
my $databases = $node->safe_psql('postgres', q{SELECT datname FROM pg_database WHERE datname LIKE 'fuzz\_%'});
foreach my $database (split /\n/, $databases)
{
	$node->safe_psql('postgres', "ALTER DATABASE $database RESET ttl_docs.purge");
	ok( $node->poll_query_until($database,
			q{SELECT NOT EXISTS (SELECT FROM ttl_docs.stat_collections WHERE state IN ('purging', 'disabled'))}),
		"the workers come to an end in $database");
}
$node->stop;

my $log = slurp_file($node->logfile);
unlike($log, qr/was terminated by signal|TRAP: |PANIC: /, 'nothing has crashed');
my @internal = grep { /(ERROR|FATAL|WARNING|LOG): +XX/ } split /\n/, $log;
is(join("\n", @internal), '', 'nobody met an internal error');

done_testing();
