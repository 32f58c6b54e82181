# A load that runs for a long time: the memory of backends, launcher and workers does not grow, nor do
# tables, indexes and the backlog; no session gets an unexpected error.
#
# This is the only test in which documents expire in real time.  test/torture/soak.py makes the load,
# and checks the server.
#	PG_TEST_TORTURE           runs an hour instead of half a minute
#	PG_TEST_SOAK_SECONDS      sets the number of seconds
#	PG_TEST_SOAK_REPORT       names a file to which the test appends its report

use strict;
use warnings;

use lib 'test/perl';
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Torture;
use TtlServer;

my $python = python_or_skip();
plan skip_all => 'there is no /proc/PID/smaps_rollup, which shows the memory of a process'
  unless -r '/proc/self/smaps_rollup';

my $seconds = $ENV{PG_TEST_SOAK_SECONDS} // (torture() ? 3600 : 25);
my $long = $seconds >= 600;
my @shape =
  $long
  ? qw(--sample 10 --ttl-min 5 --ttl-max 60)
  : qw(--sample 1 --ttl-min 1 --ttl-max 6 --warm-up 10);

# The log prefix ends with the SQLSTATE, by which soak.py knows the expected errors.  Autovacuum runs
# often, because the tables are small.
my $node = start_server(
	'main', q{
ttl_docs.purge_grace = 0
log_statement = none
log_line_prefix = '%m [%p] %b %a %e '
log_autovacuum_min_duration = -1
log_checkpoints = off
shared_buffers = '64MB'
autovacuum_naptime = '2s'
max_wal_size = '256MB'
});
$node->safe_psql('postgres', 'CREATE EXTENSION ttl_docs');

my @command = ($python, 'test/torture/soak.py', '--seconds', $seconds, '--log', $node->logfile, @shape);
push @command, '--report', $ENV{PG_TEST_SOAK_REPORT} if $ENV{PG_TEST_SOAK_REPORT};
ok(run_on($node, @command), 'nothing grows under a load that runs for a long time');
$node->stop;

done_testing();
