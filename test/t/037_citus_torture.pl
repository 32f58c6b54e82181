# Shards are moved and split, tables are converted and nodes are killed under load.  No acknowledged write
# is lost, no expired document becomes visible again, stamps are kept, and no trigger fires twice.
#
# test/torture/citus.py makes the load, the moves and the kills, and checks the data.
#	PG_TEST_TORTURE          runs for an hour with each of several seeds, with the purge off and on

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
plan skip_all => 'there is no /proc/PID/task/PID/children, which shows the processes of a server'
  unless -r "/proc/$$/task/$$/children";

# By default, a slow machine plays fewer rounds.
my @limit = torture() ? ('--rounds', 1000, '--seconds', 3600) : ('--rounds', 12, '--seconds', 60);
for my $seed (torture() ? (1 .. 4) : (1))
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
	ok( run_on(
			$cluster->coordinator, $python, 'test/torture/citus.py', '--seed', $seed, @limit, @$purge,
			map { ('--node', $_->host, $_->port, $_->data_dir, $_->logfile) } $cluster->nodes),
		"moves, conversions and kills lose nothing, and revive nothing, seed $seed");
	# After a failure, a server may be down.
	$_->stop('fast', fail_ok => 1) for $cluster->nodes;
}

done_testing();
