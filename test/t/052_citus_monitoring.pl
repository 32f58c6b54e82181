# contrib/monitoring on a Citus cluster: the exporter of the coordinator asks all nodes, and names a node
# that does not answer.  The exporters of the worker nodes show only their own server.
#
# "make test-monitoring" fetches the programs; without them, or without Citus, the test is skipped.

use strict;
use warnings;

use lib 'test/perl';
use CitusCluster;
use Monitoring;
use PostgreSQL::Test::Utils;
use Test::More;
use TtlServer;

skip_without_prometheus();
skip_without_citus();

# The limit keeps a backlog on disk for longer than the test runs.
my $cluster = CitusCluster->new(
	settings => q{
ttl_docs.purge_naptime = '20ms'
ttl_docs.purge_max_rate = 1
});
my ($coordinator, $worker1, $worker2) = $cluster->nodes;
my $node1 = $worker1->host . ':' . $worker1->port;
my $node2 = $worker2->host . ':' . $worker2->port;

$cluster->sql(q{
	CREATE ROLE exporter LOGIN;
	GRANT pg_monitor TO exporter;
	SELECT ttl_docs.create_collection('sessions', 3600);
	SELECT create_distributed_table('sessions', 'id');
	BEGIN;
	SET LOCAL citus.propagate_set_commands = 'local';
	SET LOCAL ttl_docs.clock_offset = '-2h';
	INSERT INTO sessions (id, doc) SELECT 's' || i, '{}' FROM generate_series(1, 10000) AS i;
	COMMIT;
});
is($cluster->on_disk('sessions'), 10000, 'all documents have expired and are on disk');
reload_with($_, 'ttl_docs.purge = on') for $cluster->nodes;

my $prometheus = start_prometheus(
	coordinator => start_exporter($coordinator, 'queries.yaml', 'postgres'),
	worker1 => start_exporter($worker1, 'queries-citus-worker.yaml', 'postgres'),
	worker2 => start_exporter($worker2, 'queries-citus-worker.yaml', 'postgres'));

# ---- All nodes answer ----

until_value($prometheus, 'ttl_docs_server_launchers', '1, 1, 1', 'each node has a launcher');
until_value($prometheus, 'pg_exporter_last_scrape_error', '0, 0, 0', 'all queries succeed');
until_value($prometheus, 'count(ttl_docs_collection_state_info)', 1, 'only the coordinator shows the collection');
until_value($prometheus, 'ttl_docs_collection_state_info{state="capped"}', 1, 'the collection has the state of its shards');
until_value($prometheus, qq(sum(ttl_docs_node_shards{node="$_"})), 2, "half of the shards are on $_") for $node1, $node2;
until_value($prometheus, 'ttl_docs_collection_backlog_documents > bool 5000', 1, 'the backlog is that of all nodes');
until_value($prometheus, "ttl_docs_node_backlog_documents{node=\"$_\"} > bool 2000", 1, "the backlog of $_") for $node1, $node2;
until_value($prometheus, 'min by (node) (ttl_docs_node_truncate_wait_seconds)', '300, 300', 'shards may wait for five minutes');
until_value($prometheus, "ttl_docs_shards_$_", '0, 0', "$_ of both nodes") for qw(truncations_total truncated_documents_total);
until_value($prometheus, "ttl_docs_shards_purged_documents_total{node=\"$_\"} > bool 0", 1, "purged documents of $_")
  for $node1, $node2;
until_alerts(
	$prometheus,
	[
		'TtlDocsPurgeBehind coordinator public.sessions',
		"TtlDocsCitusNodeBehind coordinator $node1",
		"TtlDocsCitusNodeBehind coordinator $node2",
	],
	'the alerts of a backlog');

for my $panel (panels_of())
{
	returns_series($prometheus, $panel) if $panel->{row} eq 'Nodes of Citus';
}

# ---- A node is away ----

$worker2->stop;
until_value($prometheus, 'ttl_docs_collection_state_info{state="unreachable node"}', 1, 'a node is away');
until_alerts(
	$prometheus,
	[
		'TtlDocsCollectionNotPurged coordinator public.sessions unreachable node',
		'TtlDocsBacklogUnknown coordinator public.sessions',
		"TtlDocsCitusNodeBehind coordinator $node1",
		"TtlDocsCitusNodeNotPurged coordinator $node2 unreachable node",
		'TtlDocsNotMonitored worker2',
	],
	'the alerts name the node that is away');

$worker2->start;
reload_with($_, 'ttl_docs.purge_max_rate = 0') for $cluster->nodes;
until_alerts($prometheus, [], 'no alert is left');

stop_monitoring();
$cluster->stop;
done_testing();
