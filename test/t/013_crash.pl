# Crashes under load: kill -9 of the postmaster with all its children, of backends, purge workers and
# the launcher, at random times.  No acknowledged write is lost, no expired document becomes visible
# again, and the purge goes on.
#
# test/torture/crash.py makes the load and the crashes, and checks the data.  The cluster has checksums,
# which the test verifies at the end, and syncs as in production.
#	PG_TEST_TORTURE          makes hundreds of crashes instead of a few
#	PG_TEST_CRASHES          sets the number of crashes
#	PG_TEST_CRASH_SEED       decides what is written, and which process is killed when

use strict;
use warnings;

use lib 'test/perl';
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Torture;
use TtlServer;

my $python = python_or_skip();
plan skip_all => 'pg_amcheck or pg_checksums is not installed'
  if grep { system("$_ --version >/dev/null 2>&1") != 0 } qw(pg_amcheck pg_checksums);
plan skip_all => 'there is no /proc/PID/task/PID/children, which shows the processes of a server'
  unless -r "/proc/$$/task/$$/children";

my $node = start_server(
	'main', q{
ttl_docs.purge_grace = 0
ttl_docs.purge_naptime = '20ms'
ttl_docs.purge_batch_size = 100
restart_after_crash = on
fsync = on
synchronous_commit = on
autovacuum_naptime = '1s'
max_wal_size = '64MB'
log_statement = none
}, extra => ['--data-checksums']);
if (!has_extension($node, 'amcheck'))
{
	$node->stop;
	plan skip_all => 'the extension amcheck is not installed';
}
$node->safe_psql('postgres', 'CREATE EXTENSION ttl_docs; CREATE EXTENSION amcheck');

# By default, a slow machine makes fewer crashes.
my $crashes = $ENV{PG_TEST_CRASHES} // (torture() ? 500 : 12);
my $seed = $ENV{PG_TEST_CRASH_SEED} // 1;
my @limit = torture() || $ENV{PG_TEST_CRASHES} ? ('--seconds', 36000) : ('--seconds', 20);
ok( run_on(
		$node, $python, 'test/torture/crash.py', '--seed', $seed, '--crashes', $crashes, @limit,
		'--data', $node->data_dir, '--log', $node->logfile),
	'crashes under load lose nothing, and revive nothing');

# After a failure, the server may be down.
$node->stop('fast', fail_ok => 1);
command_ok([ 'pg_checksums', '--check', '-D', $node->data_dir ], 'all checksums are correct');

done_testing();
