# A load that goes on: memory of backends, launcher and workers stays flat, and so
# do tables, indexes and the backlog; nobody meets an error.
#
# This is the one test in which documents expire by real time.  The load and the
# judgement are in test/torture/soak.py.
#	PG_TEST_TORTURE           an hour instead of half a minute
#	PG_TEST_SOAK_SECONDS      that long
#	PG_TEST_SOAK_REPORT       a file to which the report is appended as it comes

use strict;
use warnings;

use lib 'test/perl';
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Torture;

my $python = python_or_skip();
plan skip_all => '/proc/PID/smaps_rollup, which shows the memory of a process, is not there'
  unless -r '/proc/self/smaps_rollup';

my $seconds = $ENV{PG_TEST_SOAK_SECONDS} // (torture() ? 3600 : 25);
my $long = $seconds >= 600;
my @shape =
  $long
  ? qw(--sample 10 --ttl-min 5 --ttl-max 60)
  : qw(--sample 1 --ttl-min 1 --ttl-max 6 --warm-up 10);

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
# The prefix ends with the SQLSTATE, by which soak.py knows which errors are
# expected.  Autovacuum comes often, because the tables are small.
$node->append_conf(
	'postgresql.conf', q{
shared_preload_libraries = 'ttl_docs'
ttl_docs.purge_grace = 0
log_statement = none
log_line_prefix = '%m [%p] %b %a %e '
log_autovacuum_min_duration = -1
log_checkpoints = off
shared_buffers = '64MB'
autovacuum_naptime = '2s'
max_wal_size = '256MB'
});
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION ttl_docs');

my @command = ($python, 'test/torture/soak.py', '--seconds', $seconds, '--log', $node->logfile, @shape);
push @command, '--report', $ENV{PG_TEST_SOAK_REPORT} if $ENV{PG_TEST_SOAK_REPORT};
ok(run_on($node, @command), 'a load that goes on');
$node->stop;

done_testing();
