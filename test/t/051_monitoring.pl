# contrib/monitoring: Prometheus scrapes the exporters of a primary and of a standby.
#
# The primary has a backlog, a held collection and an undeletable document.  The test compares the metrics
# with the server, the active alerts with the expected ones, and runs the query of every panel of the
# dashboard.  "make test-monitoring" fetches the programs; without them the test is skipped.

use strict;
use warnings;

use lib 'test/perl';
use Monitoring;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use TtlServer;

skip_without_prometheus();

# ---- Files ----

promtool_accepts('alerts.yml', qw(check rules));
promtool_accepts('alerts_test.yml', qw(test rules));
promtool_accepts('prometheus.yml', qw(check config --syntax-only));

my $alerts = slurp_file('contrib/monitoring/alerts.yml');
my $unit_tests = slurp_file('contrib/monitoring/alerts_test.yml');
like($unit_tests, qr/alertname: $_$/m, "alerts_test.yml tests $_") for $alerts =~ /- alert: (\w+)/g;

# The states of an alert are those of the query in operations.md; "unreachable node" is a state of Citus.
my $operations = slurp_file('docs/operations.md');
my ($act) = $operations =~ /^-- 1\. Somebody has to act.*?IN \(([^)]*)\)/ms;
my ($held) = $operations =~ /^-- 3\. Expired documents that no worker.*?IN \(([^)]*)\)/ms;
is(states_of('TtlDocsCollectionNotPurged'), sorted($act =~ /'([^']*)'/g, 'unreachable node'), 'states that need somebody');
is(states_of('TtlDocsCitusNodeNotPurged'), states_of('TtlDocsCollectionNotPurged'), 'states of shards that need somebody');
my ($behind) = $operations =~ /^-- 2\. The purge does not keep up(.*?);$/ms;
is(states_of('TtlDocsPurgeBehind'), sorted($behind =~ /state = '([^']*)'/g), 'states in which a backlog is no alert at first');
is(states_of('TtlDocsHoldForgotten'), sorted($held =~ /'([^']*)'/g), 'states of forgotten holds');

sub sorted
{
	return join ', ', sort @_;
}

sub states_of
{
	my ($alert) = @_;
	my ($states) = $alerts =~ /- alert: \Q$alert\E\n.*?state=~?"([^"]*)"/s;
	return sorted(split /\|/, $states);
}

my ($first_query) = slurp_file('contrib/monitoring/queries.yaml') =~ /^(ttl_docs_server:\n.*?)^\n/ms;
like(slurp_file('contrib/monitoring/queries-citus-worker.yaml'),
	qr/^\Q$first_query\E\z/m, 'queries-citus-worker.yaml has the first query of queries.yaml');

# Log messages that contrib/monitoring lists are messages of the source, or of PostgreSQL.
my ($messages) = slurp_file('contrib/monitoring/README.md') =~ /^## Log messages\n(.*?)(?=^## |\z)/ms;
my @patterns = $messages =~ /^\| `([^`]*)` \|/mg;
cmp_ok(scalar(@patterns), '>=', 4, 'README.md lists log messages');
my $source = join '', map { slurp_file($_) } glob('src/*/*.c');
$source .= 'background worker "ttl_docs launcher"';
like($source, qr/\Q$_\E/, "a message of ttl_docs has: $_") for @patterns;

# ---- Servers ----

my $primary = start_server('primary', q{
ttl_docs.purge_naptime = '20ms'
ttl_docs.purge_grace = 0
autovacuum = off
}, allows_streaming => 1);

$primary->safe_psql('postgres', 'CREATE DATABASE other');
$primary->safe_psql('postgres', 'CREATE ROLE exporter LOGIN; GRANT pg_monitor TO exporter');
install_in($primary, $_) for qw(postgres other);
$primary->safe_psql('other', "SELECT ttl_docs.create_collection('quiet', 60)");
$primary->safe_psql('postgres', q{
	SELECT ttl_docs.create_collection('purged', 3600);
	SELECT ttl_docs.create_collection('backlog', 3600);
	SELECT ttl_docs.create_collection('held', 3600);
	SELECT ttl_docs.create_collection('referenced', 3600);
	SELECT ttl_docs.create_collection('without_ttl');
	SELECT ttl_docs.pause_purge('held');
	CREATE TABLE child (parent text REFERENCES referenced);
	SET ttl_docs.clock_offset = '-2h';
	INSERT INTO referenced (id, doc) VALUES ('r1', '{}');
	INSERT INTO child VALUES ('r1');
} . expired('purged', 5) . expired('held', 4));
becomes($primary, 'postgres', stat_of('purged', 'purged'), 5, 'a worker has purged a collection');
becomes($primary, 'postgres', stat_of('undeletable', 'referenced'), 1, 'a document cannot be deleted');
becomes($primary, 'postgres', stat_of('estimated_backlog', 'held'), 4, 'the backlog of a held collection is counted');

# A limit keeps a backlog on disk for longer than the test runs.
reload_with($primary, 'ttl_docs.purge_max_rate = 1');
$primary->safe_psql('postgres', expired('backlog', 10000));
becomes($primary, 'postgres', stat_of("state || ' ' || (estimated_backlog > 0)", 'backlog'), 'capped true', 'there is a backlog');
$primary->safe_psql('postgres', 'ANALYZE backlog');

$primary->backup('backup');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'backup', has_streaming => 1);
$standby->start;
$primary->wait_for_catchup($standby);

my $prometheus = start_prometheus(
	primary => start_exporter($primary, 'queries.yaml', 'postgres,other'),
	standby => start_exporter($standby, 'queries.yaml', 'postgres,other'));

# ---- Metrics ----

until_value($prometheus, 'up', '1, 1', 'Prometheus scrapes both exporters');
until_value($prometheus, 'pg_exporter_last_scrape_error', '0, 0', 'all queries succeed as a member of pg_monitor');
until_value($prometheus, 'ttl_docs_server_launchers{instance="primary"}', 1, 'the primary has a launcher');
until_value($prometheus, 'ttl_docs_server_launchers{instance="standby"}', 0, 'the standby has none');
until_value($prometheus, 'ttl_docs_server_in_recovery', '0, 1', 'one server is a standby');
until_value($prometheus, 'ttl_docs_server_replay_lag_seconds', '0, 0', 'the standby has replayed everything');
until_value($prometheus, 'abs(ttl_docs_server_clock_seconds - timestamp(ttl_docs_server_clock_seconds)) < bool 60',
	'1, 1', 'the clocks of the servers');

my %expected = (
	'public.purged' => { state => 'idle', backlog_documents => 0, purged_documents_total => 5, oldest_overdue_seconds => 0,
		truncations_total => 0, truncated_documents_total => 0, truncate_wait_seconds => 300 },
	'public.backlog' => { state => 'capped', backlog_unknown => 0, undeletable_documents => 0 },
	'public.held' => { state => 'paused', backlog_documents => 4, default_ttl_seconds => 3600 },
	'public.referenced' => { state => 'idle', undeletable_documents => 1, backlog_unknown => 0 },
	'public.without_ttl' => { state => 'off', backlog_documents => 0, default_ttl_seconds => 'NaN' },
	'public.quiet' => { state => 'idle', backlog_documents => 0, default_ttl_seconds => 60 });
for my $collection (sort keys %expected)
{
	my %values = %{ $expected{$collection} };
	my $labels = qq(instance="primary", collection="$collection");
	until_value($prometheus, qq(ttl_docs_collection_state_info{$labels, state="$values{state}"}), 1,
		"$collection is $values{state}");
	delete $values{state};
	until_value($prometheus, "ttl_docs_collection_$_\{$labels}", $values{$_}, "$collection: $_") for sort keys %values;
}
until_value($prometheus, 'count by (datname) (ttl_docs_collection_state_info{instance="primary"})',
	'1, 5', 'the collections of each database, once');
until_value($prometheus, 'count(ttl_docs_collection_state_info{instance="standby", state="standby"})',
	6, 'the standby knows all collections');
until_value($prometheus, 'ttl_docs_collection_oldest_overdue_seconds{instance="primary", collection="public.backlog"} > bool 3500',
	1, 'the backlog is an hour old');
until_value($prometheus, 'ttl_docs_collection_backlog_documents{instance="primary", collection="public.backlog"} > bool 5000',
	1, 'the backlog has been counted');
until_value($prometheus, 'ttl_docs_collection_backlog_bytes{instance="primary", collection="public.backlog"} > bool 0',
	1, 'the backlog has a size');
until_value($prometheus, 'ttl_docs_collection_last_error_timestamp_seconds{instance="primary", collection="public.referenced"} > bool 0',
	1, 'a member of pg_monitor sees when the error occurred');

# ---- Alerts ----

until_alerts(
	$prometheus,
	[
		'TtlDocsHoldForgotten primary public.held paused',
		'TtlDocsPurgeBehind primary public.backlog',
		'TtlDocsPurgeBehind primary public.held',
		'TtlDocsUndeletableDocuments primary public.referenced',
	],
	'the alerts of these servers');

# ---- The dashboard ----

variables_have_values($prometheus);
for my $panel (panels_of())
{
	returns_series($prometheus, $panel) if $panel->{row} ne 'Nodes of Citus';
}

# ---- Everything is mended ----

reload_with($primary, 'ttl_docs.purge_max_rate = 0');
$primary->safe_psql('postgres', q{
	DELETE FROM child;
	SELECT ttl_docs.resume_purge('held');
	SELECT ttl_docs.resume_purge('referenced');
});
until_alerts($prometheus, [], 'no alert is left');

# ---- A table that waits to be truncated ----

# All documents of a large table expired an hour ago, except for one that expires in half an hour.
reload_with($primary, q{ttl_docs.purge_truncate_wait = '1d'});
$primary->safe_psql('postgres', q{
	SELECT ttl_docs.create_collection('day', 3600);
	SELECT ttl_docs.pause_purge('day');
	SET ttl_docs.clock_offset = '-2h';
	INSERT INTO day (id, doc)
		SELECT gen_random_uuid(), jsonb_build_object('text', repeat('x', 1900)) FROM generate_series(1, 4400);
	SET ttl_docs.clock_offset = '-30min';
	INSERT INTO day (id, doc) VALUES ('last', '{}');
	SELECT ttl_docs.resume_purge('day');
});
my $day = 'instance="primary", collection="public.day"';
until_value($prometheus, "ttl_docs_collection_state_info{$day, state=\"truncating\"}", 1, 'a table waits to be truncated');
until_value($prometheus, "ttl_docs_collection_truncate_wait_seconds{$day}", 86400, 'it may wait for a day');
until_value($prometheus, "ttl_docs_collection_oldest_overdue_seconds{$day} > bool 3500", 1, 'its documents expired an hour ago');
my ($rule) = $alerts =~ /- alert: TtlDocsPurgeBehind\n.*?expr: >-\n(.*?)^        for:/ms;
is(join(', ', values_of($prometheus, $rule)), '', 'that is no alert');
$primary->safe_psql('postgres', q{DELETE FROM day WHERE id = 'last'});
until_value($prometheus, "ttl_docs_collection_truncations_total{$day}", 1, 'without the last document, it is truncated');
until_value($prometheus, "ttl_docs_collection_truncated_documents_total{$day} > bool 4000", 1, 'the estimate of its documents');
until_value($prometheus, "ttl_docs_collection_purged_documents_total{$day}", 0, 'no document was deleted one by one');

# ---- What the exporter cannot read ----

# The standby replays the command.
$primary->safe_psql('other', 'DROP EXTENSION ttl_docs CASCADE');
until_alerts(
	$prometheus,
	[ 'TtlDocsNotMonitored primary', 'TtlDocsNotMonitored standby' ],
	'a database without the extension is an alert of its servers');

stop_monitoring();
nothing_crashed($_) for $primary, $standby;
done_testing();
