# Bad input by SQL: hostile arguments for every function, documents and ttl values of
# every kind, in databases of four encodings.  test/torture/fuzz.py does it, and tells what
# has to hold.  This looks at what a client does not see: the server's log, in which no
# process, workers included, may have crashed or met an internal error.
#
# With PG_TEST_TORTURE: more seeds, longer, and documents of megabytes.  PG_TEST_FUZZ has
# other arguments for fuzz.py, such as those that a failure has printed.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $python = '/usr/bin/python3';
plan skip_all => "needs $python with psycopg2 (Debian: python3-psycopg2)"
  if system("$python -c 'import psycopg2' 2>/dev/null") != 0;

my @runs = ('--seed 1 --operations 120 --timeout 180');
@runs = map { "--seed $_ --operations 3000 --largest 8000000 --timeout 600" } 1 .. 10
  if $ENV{PG_TEST_TORTURE};
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
$ENV{PGHOST} = $node->host;
$ENV{PGPORT} = $node->port;
$ENV{PYTHONDONTWRITEBYTECODE} = 1;

foreach my $run (@runs)
{
	my $output = `$python test/torture/fuzz.py $run 2>&1`;
	my $status = $?;
	note($output);
	is($status, 0, "fuzz.py $run") or diag($output);
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
