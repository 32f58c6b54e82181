# A user who poses as a node of Citus gains nothing.
#
# Sessions between nodes are recognised by their application_name, which every user can set.  Here the owner
# of a collection and a user with all privileges on it connect to a worker and set this name.  docs/security.md
# has the list of threats; test/t/036_citus_instant.pl has the instant.

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
my $worker = $cluster->worker(1);
$cluster->sql(
	q{
	CREATE ROLE owner LOGIN;
	CREATE ROLE grantee LOGIN;
	GRANT ALL ON SCHEMA public TO owner, grantee;
	SET ROLE owner;
	SELECT ttl_docs.create_collection('sessions', 60);
	SELECT create_distributed_table('sessions', 'id');
	GRANT ALL ON sessions TO grantee;
	INSERT INTO sessions (id, doc) SELECT 's' || i, '{}' FROM generate_series(1, 40) AS i;
});
my $shard = CitusCluster::quiet($worker,
	q{SET citus.override_table_visibility = off; SELECT relname FROM pg_class WHERE relname ~ '^sessions_[0-9]+$' ORDER BY 1 LIMIT 1});
$cluster->set_clock(100);

# Runs SQL on the worker as a user who poses as a node.  Returns the output and the error.
sub as_node
{
	my ($user, $sql) = @_;
	my ($ret, $stdout, $stderr) = $worker->psql('postgres',
		"SET citus.override_table_visibility = off; SET ROLE $user; SET application_name = 'citus_internal gpid=10000000001';\n$sql");
	return $stdout . $stderr;
}

# A label of the shard with other values for some keys
sub label_with
{
	my ($changes) = @_;
	return CitusCluster::quiet($worker,
		"SELECT quote_literal(label::jsonb || '$changes') FROM pg_seclabel WHERE objoid = '$shard'::regclass");
}

my $count = "SELECT count(*) FROM $shard";
cmp_ok(CitusCluster::quiet($worker, "SET ttl_docs.show_expired = on; $count"), '>', 0, 'the shard has expired documents');
is(as_node($_, $count), 0, "$_ does not see them") for qw(owner grantee);

# ---- Labels ----

# Only the owner of a table writes its label.
my $lives_longer = label_with('{"default_ttl": 1000000}');
for my $table ('sessions', $shard)
{
	like(as_node('grantee', "SECURITY LABEL FOR ttl_docs ON TABLE $table IS $lives_longer"),
		qr/must be owner/, "a grantee cannot write the label of $table");
	like(as_node('grantee', "SECURITY LABEL FOR ttl_docs ON TABLE $table IS NULL"),
		qr/must be owner/, "a grantee cannot remove the label of $table");
}

# A label that the owner writes brings no expired document back.
for my $changes (
	'{"default_ttl": 1000000}', '{"default_ttl": null}', '{"default_ttl": -1}', '{"default_ttl": 1000000, "filling": true}')
{
	my $label = label_with($changes);
	like(as_node('owner', "SECURITY LABEL FOR ttl_docs ON TABLE $shard IS $label"),
		qr/expired documents would be live again/, "the owner cannot write $changes");
}
like(as_node('owner', "SECURITY LABEL FOR ttl_docs ON TABLE $shard IS NULL"),
	qr/cannot change the label/, 'the owner cannot remove the label of a shard');
is(as_node('owner', $count), 0, 'the documents are still expired');

# "changing" says that readers are locked out.  Without such a lock it has no effect: documents that expire
# between the two labels stay expired.
my $changing = label_with('{"changing": true, "default_ttl": 60}');
my $raised = label_with('{"default_ttl": 1000000, "written_floor": "2001-01-01T00:00:00+00:00"}');
for my $table ($shard, 'sessions')
{
	like(as_node('owner', "SET citus.enable_ddl_propagation = off; BEGIN; SECURITY LABEL FOR ttl_docs ON TABLE $table IS $changing;
			SECURITY LABEL FOR ttl_docs ON TABLE $table IS $raised; COMMIT;"),
		qr/expired documents would be live again/, "\"changing\" without a lock on $table");
}

# Functions that change settings do not run in a session of Citus: they would change one node only.
like(as_node('owner', $_), qr/in a session of Citus/, $_)
  for "SELECT ttl_docs.set_default_ttl('sessions', 1000)", "SELECT ttl_docs.set_default_ttl('$shard', 10)",
  "SELECT ttl_docs.release('sessions')", "SELECT ttl_docs.pause_purge('sessions')";
is(as_node('owner', $count), 0, 'the documents are still expired after these attempts');

# "filling" shows expired documents only in the transaction that wrote the label.
my $filling = label_with('{"filling": true}');
my $write_filling = "SECURITY LABEL FOR ttl_docs ON TABLE $shard IS $filling;";
is(as_node('owner', $write_filling), '', 'the owner writes a label with "filling"');
is(as_node($_, $count), 0, "$_ does not see expired documents in another transaction") for qw(owner grantee);
like(as_node('owner', "INSERT INTO $shard (id, doc, _ts) VALUES ('new', '{}', '2001-01-01') RETURNING _ts > '2020-01-01'"),
	qr/^t/, 'in another transaction, the owner does not set _ts');

# ---- Tables that are no shards ----

# The name of a table does not make it a shard.  A table that is no shard, and that is a collection, stamps
# documents whoever writes.
$worker->safe_psql(
	'postgres', q{
	SET citus.enable_ddl_propagation = off;
	SET ROLE owner;
	SELECT ttl_docs.create_collection('other_999999', 60);
	GRANT ALL ON other_999999 TO grantee;
});
my $insert = "VALUES ('old', '{}', '2001-01-01') RETURNING _ts > '2020-01-01'";
like(as_node('grantee', "INSERT INTO other_999999 (id, doc, _ts) $insert"),
	qr/^t/, 'a table named like a shard: a grantee does not set _ts');
like(as_node('grantee', "INSERT INTO $shard (id, doc, _ts) $insert"), qr/^t/, 'a shard: a grantee does not set _ts');

# A table of somebody else with the name of a shard that is on another node is not touched.
my $elsewhere = $cluster->sql(
	sprintf(q{SELECT shardid FROM citus_shards WHERE table_name = 'sessions'::regclass AND nodeport <> %d ORDER BY 1 LIMIT 1},
		$worker->port));
$worker->safe_psql(
	'postgres', qq{
	SET citus.enable_ddl_propagation = off;
	SET ROLE grantee;
	CREATE TABLE sessions_$elsewhere (x int);
});
is($cluster->error(q{SET ROLE owner; SET client_min_messages = error; SELECT ttl_docs.set_default_ttl('sessions', 50)}),
	'', 'a table of another user with the name of a shard does not stop a change of settings');
is( $worker->safe_psql('postgres',
		"SET citus.override_table_visibility = off; SELECT count(*) FROM pg_seclabel WHERE objoid = 'sessions_$elsewhere'::regclass"),
	0, 'that table gets no label');

# ---- Functions that copy a shard ----

# Citus moves and splits shards with these functions.  They copy expired documents only for the owner.
my $other = $cluster->sql("SELECT nodeid FROM pg_dist_node WHERE groupid <> 0 AND nodeport <> " . $worker->port);
my $target = $cluster->worker(2);
$target->safe_psql('postgres',
	qq{SET citus.enable_ddl_propagation = off; CREATE TABLE $shard (id text, doc jsonb, _ts timestamptz, _ttl int, _slot bigint);
	   GRANT ALL ON $shard TO owner, grantee});
my $copy = "SELECT worker_copy_table_to_node('$shard', $other)";
my $copied = "SET citus.override_table_visibility = off; SELECT count(*) FROM $shard WHERE id LIKE 's%'";
unlike(as_node('grantee', $copy), qr/ERROR/, 'a grantee copies the shard');
is(CitusCluster::quiet($target, $copied), 0, 'a grantee copies no expired document');
unlike(as_node('owner', $copy), qr/ERROR/, 'the owner copies the shard');
cmp_ok(CitusCluster::quiet($target, $copied), '>', 0, 'the owner copies expired documents');

$cluster->stop;
done_testing();
