# Citus tables as collections: a change of settings reaches all nodes and shards, or none.  Expired
# documents stay expired.  ttl_docs refuses tables and commands that it does not support.

use strict;
use warnings;

use lib 'test/perl';
use CitusCluster;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use TtlServer;

skip_without_citus();
my $cluster = CitusCluster->new;
my ($coordinator, $worker1, $worker2) = $cluster->nodes;

# Each collection has three shells and four shards.
$cluster->sql(
	q{
	SELECT ttl_docs.create_collection('sessions', 6000);
	SELECT create_distributed_table('sessions', 'id');
	CREATE TABLE logs (id text, at date DEFAULT '2020-05-05', doc jsonb, PRIMARY KEY (id, at)) PARTITION BY RANGE (at);
	CREATE TABLE logs_20 PARTITION OF logs FOR VALUES FROM ('2020-01-01') TO ('2021-01-01');
	SELECT create_distributed_table('logs', 'id', colocate_with => 'sessions');
	SELECT ttl_docs.adopt('logs', 6000);
	CREATE ROLE owner LOGIN;
	GRANT ALL ON SCHEMA public TO owner;
});

sub insert_into
{
	my ($table, $name, $doc) = @_;
	$cluster->sql("INSERT INTO $table (id, doc) SELECT '$name' || i, '$doc' FROM generate_series(1, 10) AS i");
	return;
}

# All nodes have the same label.  Counts as a test.
sub labels_are
{
	my ($table, $expected, $name) = @_;
	my $count = $table eq 'logs' ? 14 : 7;
	like($cluster->labels($table), qr/\A$expected: $count\z/, "$name: the labels on all nodes and shards");
	return;
}

# ---- set_default_ttl() ----

labels_are('sessions', '.*"default_ttl": 6000.*', 'distributed');
labels_are('logs', '.*"default_ttl": 6000.*', 'partitioned');
for my $node ($cluster->nodes)
{
	my $ttl = $node->port;
	CitusCluster::quiet($node, "SELECT ttl_docs.set_default_ttl('sessions', $ttl); SELECT ttl_docs.set_default_ttl('logs', $ttl)");
	labels_are($_, qr/.*"default_ttl": $ttl.*/, 'set_default_ttl from ' . $node->name) for qw(sessions logs);
	$cluster->all_nodes_return("SELECT ttl_docs.get_default_ttl('sessions')", $ttl, 'set_default_ttl from ' . $node->name);
}
$cluster->sql(q{SELECT ttl_docs.set_default_ttl('sessions', 6000); SELECT ttl_docs.set_default_ttl('logs', 6000)});
for my $value (3000, 9000, -1, 'NULL')
{
	my $before = $cluster->labels('sessions');
	$cluster->sql("BEGIN; SELECT ttl_docs.set_default_ttl('sessions', $value); ROLLBACK");
	is($cluster->labels('sessions'), $before, "set_default_ttl to $value is rolled back on all nodes");
	$cluster->sql("BEGIN; SAVEPOINT s; SELECT ttl_docs.set_default_ttl('sessions', $value); ROLLBACK TO s; SELECT count(*) FROM sessions; COMMIT");
	is($cluster->labels('sessions'), $before, "set_default_ttl to $value is rolled back to a savepoint on all nodes");
}
is( $cluster->sql(
		q{
		BEGIN;
		SELECT ttl_docs.set_default_ttl('sessions', 9000);
		INSERT INTO sessions (id, doc) SELECT 'same' || i, '{}' FROM generate_series(1, 10) AS i;
		SELECT count(*) FROM sessions;
		SELECT ttl_docs.set_default_ttl('sessions', 6000);
		UPDATE sessions SET doc = '{"a": 1}';
		DELETE FROM sessions;
		COMMIT;
	}) =~ s/\n//gr,
	10, 'reads and writes in the transaction of set_default_ttl');

is( $cluster->error(
		q{
		BEGIN;
		SET LOCAL citus.multi_shard_modify_mode = 'sequential';
		INSERT INTO sessions (id, doc) SELECT 'same' || i, '{}' FROM generate_series(1, 10) AS i;
		SELECT ttl_docs.set_default_ttl('sessions', 9000);
		ROLLBACK;
	}),
	'', 'set_default_ttl after writes in the same transaction, in sequential mode');

# In parallel mode, Citus opens several sessions on each node, which hold locks.  A session would wait for another
# one of the same transaction.
my $several = "SET LOCAL citus.force_max_query_parallelization = on;";
for my $node ($coordinator, $worker1)
{
	my $name = $node->name =~ s/citus_//r;
	for my $statement ('SELECT count(*) FROM sessions', 'UPDATE sessions SET doc = doc')
	{
		my $change = q{SELECT ttl_docs.set_default_ttl('sessions', 9000)};
		like(
			CitusCluster::error_of($node, 'postgres', "BEGIN; $several $statement; $change; ROLLBACK"),
			qr/ERROR:  cannot change collection "sessions" because this transaction has used it in several sessions/,
			"$name: a change after '$statement' in the same transaction");
		unlike(
			CitusCluster::error_of($node, 'postgres', "BEGIN; $several SET LOCAL citus.multi_shard_modify_mode = 'sequential'; $statement; $change; ROLLBACK"),
			qr/ERROR/,
			"$name: in sequential mode");
	}
}

# If a node cannot be reached, nothing changes.
$worker2->stop;
like($cluster->error(q{SELECT ttl_docs.set_default_ttl('sessions', 4500)}), qr/ERROR:/,
	'set_default_ttl fails if a node does not run');
$worker2->start;
labels_are('sessions', '.*"default_ttl": 6000.*', 'a node did not run');

# ---- Expired is final ----

# Documents that have expired stay expired if the DefaultTTL is raised, and if TTL is turned off and on.
for my $table (qw(sessions logs))
{
	insert_into($table, 'early', '{}');
	insert_into($table, 'own', '{"ttl": 6000}');
}
$cluster->set_clock(10000);
for my $table (qw(sessions logs))
{
	insert_into($table, 'late', '{}');
	for my $ttl (100000, 'NULL', 200000, -1, 6000)
	{
		$cluster->sql("SELECT ttl_docs.set_default_ttl('$table', $ttl)");
		$cluster->all_nodes_return("SELECT count(*), min(id) ~ 'late' FROM $table", '10|t',
			"$table: only late documents are live under the DefaultTTL $ttl");
		like($cluster->in_labels($table, 'written_floor'), qr/^[^,]*: \d+$/,
			"$table: the same floor everywhere under the DefaultTTL $ttl");
	}
	is($cluster->on_disk($table), 30, "$table: expired documents are on disk");
}
# Lower, and back: documents that were expired in between stay expired.
$cluster->sql(q{SELECT ttl_docs.set_default_ttl('sessions', 100000)});
$cluster->set_clock(20000);
is($cluster->sql('SELECT count(*) FROM sessions'), 10, 'a higher DefaultTTL lets documents live longer');
$cluster->sql(q{SELECT ttl_docs.set_default_ttl('sessions', 6000)});
is($cluster->sql('SELECT count(*) FROM sessions'), 0, 'a lower DefaultTTL makes documents expire');
$cluster->sql(q{SELECT ttl_docs.set_default_ttl('sessions', 100000)});
is($cluster->sql('SELECT count(*) FROM sessions'), 0, 'documents that a lower DefaultTTL made expire stay expired');

# One node sees documents expire earlier, because its clock is ahead.  They stay expired on all nodes,
# also when this clock is right again.
insert_into('sessions', 'clock', '{"ttl": 50000}');
reload_with($worker1, 'ttl_docs.clock_offset = 100000');
$worker1->poll_query_until('postgres', q{SELECT setting FROM pg_settings WHERE name = 'ttl_docs.clock_offset'}, 100000);
my $seen = $cluster->sql('SELECT count(*) FROM sessions');
cmp_ok($seen, '>', 0, 'documents are live on nodes with the right clock');
cmp_ok($seen, '<', 10, 'documents have expired on the node whose clock is ahead');
$cluster->sql(q{SELECT ttl_docs.set_default_ttl('sessions', -1)});
$cluster->set_clock(20000);
cmp_ok($cluster->sql('SELECT count(*) FROM sessions'), '<=', $seen,
	'no expired document is back when the clock is right again');
insert_into('sessions', 'now', '{}');
is($cluster->sql(q{SELECT count(*) FROM sessions WHERE id ~ 'now'}), 10, 'new documents are live');

# Raising waits for readers on other nodes: they could see documents that are expired afterwards.
my $reader = $worker2->background_psql('postgres');
$reader->query('BEGIN; SELECT count(*) FROM sessions');
like($cluster->error(q{SET statement_timeout = '1s'; SELECT ttl_docs.set_default_ttl('sessions', NULL)}),
	qr/statement timeout/, 'raising the DefaultTTL waits for a reader on another node');
$reader->query('COMMIT');
$reader->quit;
$cluster->sql(q{SELECT ttl_docs.set_default_ttl('sessions', NULL)});
labels_are('sessions', '.*"default_ttl": null.*', 'after the reader has ended');
$cluster->sql(q{SELECT ttl_docs.set_default_ttl('sessions', 6000)});

# ---- Other settings ----

# Sets every kind of indexing on a collection whose TTL is off.  Counts as nine tests.
sub sets_indexing
{
	my ($table) = @_;
	for my $indexing ('lazy', 'none', 'consistent')
	{
		is($cluster->error("SELECT ttl_docs.set_indexing('$table', '$indexing')"), '',
			"set_indexing of $table to $indexing: no error");
		is( $cluster->count_by(
				$table, q{
				SELECT CASE WHEN indexrelid IS NULL THEN 'none' ELSE 'index' END
				  FROM t LEFT JOIN pg_index ON indrelid = relid AND pg_get_indexdef(indexrelid) ~ '_slot'}),
			($indexing eq 'none' ? 'none' : 'index') . ': 7',
			"set_indexing of $table to $indexing: the purge index on all nodes and shards");
		labels_are($table, qr/.*"indexing": "$indexing".*/, "set_indexing of $table to $indexing");
	}
	return;
}

$cluster->sql(q{SELECT ttl_docs.set_default_ttl('sessions', NULL)});
sets_indexing('sessions');
$cluster->sql(q{SELECT ttl_docs.set_default_ttl('sessions', 6000)});
like(
	error_of($worker1, 'postgres', q{SELECT ttl_docs.set_indexing('sessions', 'lazy')}),
	qr/operation is not allowed on this node.*Connect to the coordinator/s,
	'set_indexing changes indexes, which Citus allows on the coordinator only');
for my $node ($coordinator, $worker2)
{
	CitusCluster::quiet($node, q{SELECT ttl_docs.pause_purge('sessions')});
	labels_are('sessions', '.*"paused": true.*', 'pause_purge');
	CitusCluster::quiet($node, q{SELECT ttl_docs.resume_purge('sessions')});
	labels_are('sessions', '.*"paused": false.*', 'resume_purge');
}

# ---- release() ----

# Releases a collection.  Counts as five tests.
sub releases
{
	my ($table, $count) = @_;
	my $live = $cluster->sql("SELECT id FROM $table ORDER BY id");
	is($cluster->error("SET client_min_messages = warning; SELECT ttl_docs.release('$table')"), '',
		"release() of $table: no error");
	is($cluster->sql("SELECT id FROM $table ORDER BY id"), $live, "release() of $table keeps the live documents only");
	is($cluster->labels($table), "none: $count", "release() of $table: no label on any node");
	is($cluster->triggers($table), "missing: $count", "release() of $table: no trigger on any node");
	is( $cluster->count_by(
			$table, q{SELECT count(*) FROM t JOIN pg_attribute ON attrelid = relid AND attname IN ('_ts', '_ttl', '_slot') GROUP BY relid}),
		'', "release() of $table: no system column on any node");
	return;
}

# A change of settings that made documents expire holds release(), until somebody resumes the purge.
insert_into($_, 'release', '{"ttl": 100000}') for qw(sessions logs);
$cluster->sql(q{SELECT ttl_docs.resume_purge('sessions'); SELECT ttl_docs.resume_purge('logs')});
is( $cluster->sql("BEGIN; SELECT ttl_docs.release('sessions'); ROLLBACK; SELECT count(*) FROM sessions WHERE id ~ 'release'") =~ s/\n//r,
	10, 'release() is rolled back');
labels_are('sessions', '.*"default_ttl": 6000.*', 'release() is rolled back');
releases('sessions', 7);
releases('logs', 14);
$cluster->sql(q{SELECT ttl_docs.adopt('sessions', 6000)});
labels_are('sessions', '.*"default_ttl": 6000.*', 'a table can be a collection again');
$cluster->sql(q{SELECT ttl_docs.drop_collection('sessions')});
is($cluster->labels('sessions'), '', 'drop_collection() drops the tables on all nodes');

# ---- Shards on the coordinator ----

$cluster->let_coordinator_have_shards;
$cluster->sql(
	q{
	SELECT ttl_docs.create_collection('everywhere', 6000);
	SELECT create_distributed_table('everywhere', 'id', colocate_with => 'none');
});
insert_into('everywhere', 'early', '{}');
$cluster->set_clock(30000);
insert_into('everywhere', 'late', '{}');
$cluster->sql(q{SELECT ttl_docs.set_default_ttl('everywhere', 100000)});
is($cluster->sql('SELECT count(*) FROM everywhere'), 10, 'expired is final, also on the coordinator');
$cluster->sql(q{SELECT ttl_docs.set_default_ttl('everywhere', NULL)});
labels_are('everywhere', '.*"default_ttl": null.*', 'TTL is off, also on the coordinator');
is($cluster->sql('SELECT count(*) FROM everywhere'), 10, 'expired is final, also on the coordinator, TTL off');
sets_indexing('everywhere');
releases('everywhere', 7);

# ---- Refusals ----

# Runs SQL on the coordinator that must fail.  Counts as a test.
sub refused
{
	my ($sql, $error, $name) = @_;
	like($cluster->error("SET client_min_messages = error; $sql"), $error, "refused: $name");
	return;
}

$cluster->sql(
	q{
	CREATE TABLE reference (id text PRIMARY KEY, doc jsonb);
	SELECT create_reference_table('reference');
	SET citus.shard_replication_factor = 2;
	CREATE TABLE replicated (id text PRIMARY KEY, doc jsonb);
	SELECT create_distributed_table('replicated', 'id', colocate_with => 'none');
	RESET citus.shard_replication_factor;
	SELECT ttl_docs.create_collection('plain', 6000);
	INSERT INTO plain (id, doc) VALUES ('a', '{}');
	SELECT ttl_docs.create_collection('dist', 6000);
	SELECT create_distributed_table('dist', 'id', colocate_with => 'none');
	INSERT INTO dist (id, doc) VALUES ('a', '{}');
});
my $replicated = qr/ERROR:  replicated Citus table "\w+" cannot be a collection.*DETAIL:.*HINT:/s;
refused(q{SELECT ttl_docs.adopt('reference', 6000)}, $replicated, 'a reference table');
refused(q{SELECT ttl_docs.adopt('replicated', 6000)}, $replicated, 'several copies of a shard');
refused(q{SELECT create_reference_table('plain')}, $replicated, 'a collection becomes a reference table');
refused(q{SET citus.shard_replication_factor = 2; SELECT create_distributed_table('plain', 'id', colocate_with => 'none')},
	$replicated, 'a collection gets several copies of a shard');
refused(q{SELECT create_distributed_table_concurrently('plain', 'id')},
	qr/ERROR:  collection "plain" cannot be distributed concurrently.*HINT:  Use create_distributed_table/s,
	'create_distributed_table_concurrently');
refused("SET $_ = off; SELECT ttl_docs.set_default_ttl('dist', 7000)",
	qr/ERROR:  cannot change collection "dist" while $_ is off.*HINT:  Run SET $_ = on/s, "$_ is off")
  for qw(citus.enable_ddl_propagation citus.enable_metadata_sync);
$cluster->sql(q{SET citus.enable_alter_role_propagation = off; SELECT ttl_docs.set_default_ttl('dist', 7000)});
labels_are('dist', '.*"default_ttl": 7000.*', 'set_default_ttl, without the propagation of roles');
refused(q{SECURITY LABEL FOR ttl_docs ON TABLE dist IS NULL}, qr/ERROR:  cannot change the label of collection "dist"/,
	'a label by hand');

# A shard is not a collection by itself.
my $shard = CitusCluster::quiet($worker1,
	q{SET citus.override_table_visibility = off; SELECT relname FROM pg_class WHERE relname ~ '^dist_[0-9]+$' LIMIT 1});
for my $call ("set_default_ttl('$shard', 600)", "set_indexing('$shard', 'lazy')", "pause_purge('$shard')", "release('$shard')")
{
	like(
		error_of($worker1, 'postgres', "SELECT ttl_docs.$call"),
		qr/ERROR:.*shard.*HINT:  .*"?dist"?/s,
		"refused: $call");
}
labels_are('dist', '.*"default_ttl": 7000.*', 'calls for a shard');
$shard = CitusCluster::quiet($worker1,
	q{SET citus.override_table_visibility = off; SELECT relname FROM pg_class WHERE relname ~ '^logs_[0-9]{6}$' LIMIT 1});
like(
	error_of($worker1, 'postgres', "SELECT ttl_docs.adopt('$shard', 6000)"),
	qr/ERROR:.*shard.*HINT:  .*"?logs"?/s,
	'refused: adopt() of a shard of a plain table');

SKIP:
{
	skip 'citus_columnar is not installed', 3 unless has_extension($coordinator, 'citus_columnar');
	$cluster->sql(
		q{
		CREATE EXTENSION IF NOT EXISTS citus_columnar;
		CREATE TABLE columns (id text, doc jsonb) USING columnar;
	});
	my $columnar = qr/ERROR:  table "\w+" cannot be part of a collection because its access method is "columnar".*HINT:/s;
	refused(q{SELECT ttl_docs.adopt('columns', 6000)}, $columnar, 'a columnar table');
	$cluster->sql(q{SELECT create_distributed_table('columns', 'id', colocate_with => 'none')});
	refused(q{SELECT ttl_docs.adopt('columns', 6000)}, $columnar, 'a distributed columnar table');
	refused("SELECT alter_table_set_access_method('$_', 'columnar')", $columnar, "a collection becomes columnar: $_") for qw(plain dist);
}
is($cluster->sql('SELECT count(*) FROM plain; SELECT count(*) FROM dist'), "1\n1", 'refused commands change nothing');
is($cluster->triggers('plain'), 'visible: 1', 'refused commands leave the trigger');
$cluster->stop;

done_testing();
