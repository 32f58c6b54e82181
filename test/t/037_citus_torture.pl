# Shards are moved and split, tables are converted and nodes are killed under load.  No acknowledged write
# is lost, no expired document becomes visible again, stamps are kept, and no trigger fires twice.
#
# test/torture/citus.py makes the load, the moves and the kills, and checks the data.
# It only runs with PG_TEST_TORTURE: a run takes long, and its steps of the clock need a machine that is not
# loaded.  If a step takes too long, the run is undecided.
#	PG_TEST_CITUS_SECONDS    time for each of the seeds, an hour unless set
#	PG_TEST_CITUS_SEEDS      the seeds, separated by commas; 1,2,3,4 unless set

use strict;
use warnings;

use lib 'test/perl';
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use CitusCluster;
use Torture;

skip_without_citus();
my $python = python_or_skip();
plan skip_all => 'this test takes long; set PG_TEST_TORTURE to run it' unless torture();
plan skip_all => 'there is no /proc/PID/task/PID/children, which shows the processes of a server'
  unless -r "/proc/$$/task/$$/children";

my @limit = ('--rounds', 1000, '--seconds', $ENV{PG_TEST_CITUS_SECONDS} // 3600);
for my $seed (split /,/, $ENV{PG_TEST_CITUS_SEEDS} // '1,2,3,4')
{
	my $purge = $seed % 2 ? ['--purge'] : [];
	my $cluster = CitusCluster->new(
		name => "seed$seed",
		settings => q{
ttl_docs.purge_grace = 0
ttl_docs.purge_naptime = '20ms'
ttl_docs.purge_batch_size = 10
restart_after_crash = on
citus.enable_unsafe_triggers = on
citus.recover_2pc_interval = -1
client_connection_check_interval = '100ms'
wal_retrieve_retry_interval = '100ms'
max_logical_replication_workers = 10
});
	my $passed = run_on(
		$cluster->coordinator, $python, 'test/torture/citus.py', '--seed', $seed, @limit, @$purge,
		map { ('--node', $_->host, $_->port, $_->data_dir, $_->logfile) } $cluster->nodes);
	my $too_slow = $? >> 8 == 2;
	ok($passed,
		$too_slow
		? "undecided, because the machine is too slow, seed $seed"
		: "moves, conversions and kills lose nothing, and revive nothing, seed $seed");
	# After a failure, a server may be down.
	$_->stop('fast', fail_ok => 1) for $cluster->nodes;
}

done_testing();
