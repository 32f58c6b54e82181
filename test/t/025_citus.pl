# A server with Citus: a collection cannot become a Citus table, and a Citus table cannot become a
# collection.  The test is skipped if Citus is not installed; test/sql/citus.sql tests the same with an
# imitation of Citus.

use strict;
use warnings;

use lib 'test/perl';
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use TtlServer;

my ($share) = run_command([ 'pg_config', '--sharedir' ]);
plan skip_all => 'Citus is not installed' unless -e "$share/extension/citus.control";

my $node = new_server(
	'main', q{
max_prepared_transactions = 10
wal_level = logical
ttl_docs.purge = off
citus.shard_count = 2
citus.node_conninfo = 'sslmode=disable'
shared_preload_libraries = 'ttl_docs, citus'
});

# Citus has to be the first library.
ok(!$node->start(fail_ok => 1), 'the server does not start with ttl_docs before Citus');
like(slurp_file($node->logfile), qr/Citus has to be loaded first/, 'Citus gives the reason');
$node->append_conf('postgresql.conf', "shared_preload_libraries = 'citus, ttl_docs'");
$node->start;
my $host = $node->host;
my $port = $node->port;
$node->safe_psql(
	'postgres', qq{
	CREATE EXTENSION citus;
	CREATE EXTENSION ttl_docs;
	SELECT citus_set_coordinator_host('$host', $port);
	SELECT citus_set_node_property('$host', $port, 'shouldhaveshards', true);
});

# Runs a command that must fail with this message.  Counts as two tests.
sub refused
{
	my ($sql, $message, $name) = @_;
	my ($ret, $stdout, $stderr) = $node->psql('postgres', $sql);
	isnt($ret, 0, "refused: $name");
	like($stderr, $message, "the error gives the reason: $name");
	return;
}

# A Citus table cannot become a collection.
$node->safe_psql(
	'postgres', q{
	SET client_min_messages = warning;
	CREATE TABLE distributed (id text PRIMARY KEY, doc jsonb NOT NULL);
	CREATE TABLE single_shard (LIKE distributed INCLUDING ALL);
	CREATE TABLE reference (LIKE distributed INCLUDING ALL);
	CREATE TABLE citus_local (LIKE distributed INCLUDING ALL);
	CREATE TABLE parted (id text, at date, doc jsonb, _ts timestamptz NOT NULL, _ttl int, _slot bigint)
		PARTITION BY RANGE (at);
	CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM ('2020-01-01') TO ('2021-01-01');
	SELECT create_distributed_table('distributed', 'id');
	SELECT create_distributed_table('single_shard', NULL);
	SELECT create_reference_table('reference');
	SELECT citus_add_local_table_to_metadata('citus_local');
	SELECT create_distributed_table('parted', 'id');
	SET citus.use_citus_managed_tables = on;
	CREATE TABLE managed (LIKE distributed INCLUDING ALL);
	RESET citus.use_citus_managed_tables;
	SET citus.enable_schema_based_sharding = on;
	CREATE SCHEMA tenant;
	CREATE TABLE tenant.own (LIKE distributed INCLUDING ALL);
});
refused("SELECT ttl_docs.adopt('$_', 60)", qr/ERROR:  Citus table "\w+" cannot be a collection.*DETAIL:.*HINT:  .*undistribute_table/s, "adopt $_")
  for qw(distributed single_shard reference citus_local parted parted_1 managed tenant.own);
refused(
	q{SECURITY LABEL FOR ttl_docs ON TABLE parted IS
		'{"version": 1, "document": "doc", "default_ttl": 60, "indexing": "consistent",
		  "written_floor": null, "due_floor": null, "paused": false, "database": 1, "table": 1}'},
	qr/Citus table "parted" cannot be a collection/, 'a label, as in a restore');

# A collection cannot become a Citus table.
$node->safe_psql(
	'postgres', q{
	SELECT ttl_docs.create_collection('sessions', 60);
	ALTER TABLE sessions ADD COLUMN other text;
	CREATE TABLE logs (id text, at date, doc jsonb, PRIMARY KEY (id, at)) PARTITION BY RANGE (at);
	CREATE TABLE logs_1 PARTITION OF logs FOR VALUES FROM ('2020-01-01') TO ('2021-01-01');
	SELECT ttl_docs.adopt('logs', 60);
	CREATE TABLE log (id text, at date, doc jsonb);
	SELECT ttl_docs.adopt('log', 60);
	CREATE TABLE foreign_part (LIKE logs);
	SELECT create_distributed_table('foreign_part', 'id');
	CREATE SCHEMA plain;
	SELECT ttl_docs.create_collection('plain.sessions', 60);
});
my $reason = qr/ERROR:  collection "\w+" cannot become a Citus table.*DETAIL:.*HINT:  .*ttl_docs\.release/s;
my $unsafe = 'SET citus.enable_unsafe_triggers = on';
for my $call (
	"create_distributed_table('sessions', 'id')",
	"create_distributed_table('sessions', NULL)",
	"create_distributed_table('logs', 'id')",
	"create_distributed_table('logs_1', 'id')",
	"create_distributed_table_concurrently('sessions', 'id')",
	"create_reference_table('sessions')",
	"citus_add_local_table_to_metadata('sessions')",
	"citus_add_local_table_to_metadata('logs')")
{
	refused("SELECT $call", $reason, $call);
	refused("$unsafe; SELECT $call", $reason, "$call, triggers allowed")
	  unless $call =~ /concurrently/;
}
refused('ALTER TABLE sessions ADD FOREIGN KEY (other) REFERENCES reference',
	qr/collection "sessions" cannot become a Citus table/, 'a foreign key to a reference table');
refused("ALTER TABLE parted ATTACH PARTITION log FOR VALUES FROM ('2030-01-01') TO ('2031-01-01')",
	$reason, 'a partition of a Citus table');
refused("ALTER TABLE logs ATTACH PARTITION foreign_part FOR VALUES FROM ('2030-01-01') TO ('2031-01-01')",
	qr/Citus table "foreign_part" cannot be a partition of the collection "logs"/, 'a Citus table as a partition');

# If ttl_docs does not know the table before the call, Citus refuses it because of its triggers.  If
# triggers are allowed, ttl_docs refuses it later.
for my $call (
	"SELECT create_distributed_table(t, 'id') FROM (SELECT 'sessions'::text::regclass AS t) AS s",
	"SELECT create_reference_table(t) FROM (SELECT 'sessions'::text::regclass AS t) AS s",
	"SELECT create_distributed_table(t, 'id') FROM (SELECT 'logs'::text::regclass AS t) AS s",
	"SELECT citus_schema_distribute('plain')",
	"ALTER TABLE sessions SET SCHEMA tenant")
{
	refused($call, qr/has triggers/, $call);
	refused("$unsafe; $call", $reason, "$call, triggers allowed");
}
for my $table ('sessions', 'logs')
{
	refused("SELECT citus_add_local_table_to_metadata(t) FROM (SELECT '$table'::text::regclass AS t) AS s",
		$reason, "citus_add_local_table_to_metadata, $table not known before the call");
}

is( $node->safe_psql(
		'postgres', 'SELECT collection FROM ttl_docs.collections JOIN pg_dist_partition ON logicalrelid = collection'),
	'', 'no collection is a Citus table');

# Collections and Citus tables in one query.
is( $node->safe_psql(
		'postgres', q{
		INSERT INTO distributed SELECT i, '{}' FROM generate_series(1, 10) AS i;
		INSERT INTO reference SELECT i, '{}' FROM generate_series(1, 10) AS i;
		SET ttl_docs.clock_offset = -100;
		INSERT INTO sessions (id, doc) SELECT i, '{}' FROM generate_series(1, 5) AS i;
		RESET ttl_docs.clock_offset;
		COPY sessions (id, doc) FROM PROGRAM 'printf "6\t{}\n7\t{}\n"';
		SELECT count(*) FROM sessions;
		SELECT count(*) FROM sessions JOIN distributed USING (id);
		SELECT count(*) FROM sessions JOIN reference USING (id);
		SELECT count(*) FROM distributed WHERE id IN (SELECT id FROM sessions);
	}),
	"2\n2\n2\n2", 'a collection hides expired documents in queries with Citus tables');

# The functions that the hints name work: release() and undistribute_table().
is( $node->safe_psql(
		'postgres', q{
		SET client_min_messages = warning;
		SELECT ttl_docs.release('sessions');
		SELECT create_distributed_table('sessions', 'id');
		SELECT count(*) FROM sessions;
		SELECT undistribute_table('distributed');
		SELECT ttl_docs.adopt('distributed', 60);
		SET ttl_docs.clock_offset = 100;
		SELECT count(*) FROM distributed;
	}),
	"\n\n2\n\n\n0", 'a released collection can be distributed, an undistributed table adopted');
$node->stop;

done_testing();
