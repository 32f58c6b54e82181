# Citus tables as collections: a REPEATABLE READ transaction has one instant on all nodes.
#
# The node where a transaction begins hands its instant over with the setting ttl_docs.distributed_instant.
# Only sessions of Citus use the setting.  A user who poses as Citus sees no document that expired before
# a second before its transaction.

use strict;
use warnings;

use lib 'test/perl';
use CitusCluster;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use TtlServer;

skip_without_citus();
# One connection to each node is enough, and Citus keeps it.  A connection that it opens later would be
# younger than the transaction.
my $cluster = CitusCluster->new(
	coordinator_has_shards => 1,
	settings => "citus.max_adaptive_executor_pool_size = 1\n");
my ($coordinator, $worker1, $worker2) = $cluster->nodes;
$cluster->sql(
	q{
	SELECT ttl_docs.create_collection('sessions', 6000);
	SELECT create_distributed_table('sessions', 'id');
	CREATE TABLE plain (id text PRIMARY KEY);
	SELECT create_distributed_table('plain', 'id', colocate_with => 'sessions');
	INSERT INTO plain SELECT i FROM generate_series(1, 20) AS i;
});
my $clock = 0;

# Writes documents that are expired when the clock moves by 10000 seconds.
sub write_documents
{
	$cluster->sql(q{DELETE FROM sessions; INSERT INTO sessions (id, doc) SELECT i, '{}' FROM generate_series(1, 20) AS i});
	return;
}

sub move_clock
{
	$cluster->set_clock($clock += 10000);
	return;
}

# ---- One instant ----

# The instants of all shards
my $on_shards = 'SELECT DISTINCT ttl_docs.now()::text FROM sessions';

for my $node ($cluster->nodes)
{
	my $name = $node->name =~ s/citus_//r;
	for my $level ('REPEATABLE READ', 'SERIALIZABLE')
	{
		write_documents();
		my $session = $node->background_psql('postgres', on_error_stop => 0);
		$session->query('SELECT count(*) FROM sessions');
		$session->query("BEGIN ISOLATION LEVEL $level");
		my $instant = $session->query($on_shards);
		unlike($instant, qr/\n/, "$name, $level: all shards have the same instant");
		is($session->query('SELECT ttl_docs.now()::text'), $instant,
			"$name, $level: this node has the instant of the shards");
		is($session->query('SELECT count(*) FROM sessions'), 20, "$name, $level: the documents are live");
		move_clock();
		is($session->query($on_shards), $instant, "$name, $level: the instant of the shards stays");
		is($session->query('SELECT DISTINCT ttl_docs.now()::text FROM plain'), $instant,
			"$name, $level: other tables have the same instant");
		is($session->query('SELECT count(*) FROM sessions'), 20,
			"$name, $level: documents that expire meanwhile stay visible");
		is( $session->query(join ';', map { "SELECT id FROM sessions WHERE id = '$_'" } 1 .. 20),
			join("\n", 1 .. 20),
			"$name, $level: each document by its key");
		is($session->query('SAVEPOINT a; SELECT 1/0; ROLLBACK TO a; SELECT count(*) FROM sessions'),
			20, "$name, $level: after a rollback to a savepoint");
		$session->query('COMMIT');
		is($session->query('SELECT count(*) FROM sessions'), 0, "$name, $level: a new transaction does not see them");
		is($session->query("BEGIN ISOLATION LEVEL $level; SELECT count(*) FROM sessions; COMMIT"),
			0, "$name, $level: a new transaction of this level does not see them");
		$session->quit;
	}
}

# Nodes that take part later have the same instant.
write_documents();
my $session = $coordinator->background_psql('postgres', on_error_stop => 0);
$session->query('SELECT count(*) FROM sessions; BEGIN ISOLATION LEVEL REPEATABLE READ');
my $instant = $session->query('SELECT ttl_docs.now()::text');
is($session->query(q{SELECT ttl_docs.now()::text FROM sessions WHERE id = '1'}), $instant,
	'one node takes part, with the instant of the transaction');
is($session->query($on_shards), $instant, 'all nodes take part, with the same instant');
$session->query('COMMIT');
write_documents();
$session->query('BEGIN ISOLATION LEVEL REPEATABLE READ; SAVEPOINT a');
is($session->query('SELECT count(*) FROM sessions'), 20, 'the nodes take part in a subtransaction');
$session->query('ROLLBACK TO a');
move_clock();
is($session->query('SELECT count(*) FROM sessions'), 20, 'the instant is the same after the subtransaction');
$session->query('COMMIT');

# READ COMMITTED: every statement uses the clock of each node.
write_documents();
$session->query('BEGIN');
is($session->query('SELECT count(*) FROM sessions'), 20, 'READ COMMITTED: the documents are live');
move_clock();
is($session->query('SELECT count(*) FROM sessions'), 0, 'READ COMMITTED: the next statement does not see them');
$session->query('COMMIT');

# The clock of a node is behind: the node uses its own clock at every level.
write_documents();
reload_with($worker1, 'ttl_docs.clock_offset = ' . ($clock - 5000));
$worker1->poll_query_until('postgres', q{SELECT setting FROM pg_settings WHERE name = 'ttl_docs.clock_offset'}, $clock - 5000);
for my $level ('READ COMMITTED', 'REPEATABLE READ')
{
	is( $session->query(
			qq{BEGIN ISOLATION LEVEL $level;
			   SELECT count(DISTINCT i > ttl_docs.now() - interval '2500 s') FROM (SELECT id, ttl_docs.now() AS i FROM sessions OFFSET 0) AS s;
			   COMMIT}),
		2, "$level: a node whose clock is behind uses its own clock");
}
$session->quit;
$cluster->set_clock($clock);

# Citus opens a session that is younger than the transaction.  Its instant is not earlier than the session, so
# documents on that node that had expired before are gone.  The transaction does not fail.
write_documents();
$session = $worker1->background_psql('postgres', on_error_stop => 0);
$session->query('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT ttl_docs.now()');
move_clock();
my $seen = $session->query('SELECT count(*) FROM sessions');
is($session->{stderr}, '', 'a session that is younger than the transaction does not fail');
is($session->query('SELECT count(*) FROM sessions'), $seen, 'the same documents are live until the transaction ends');
is($session->query('ROLLBACK; SELECT count(*) FROM sessions'), 0, 'all documents have expired');
$session->quit;

# ---- The setting ----

# Documents in a shard on the first worker, which expired some 4000 seconds ago
write_documents();
move_clock();
my $shard = CitusCluster::quiet($worker1,
	q{SET citus.override_table_visibility = off; SELECT relname FROM pg_class WHERE relname ~ '^sessions_[0-9]+$' ORDER BY 1 LIMIT 1});
cmp_ok(CitusCluster::quiet($worker1, "SET ttl_docs.show_expired = on; SELECT count(*) FROM $shard"), '>', 0,
	'the shard has documents');

# Reads the shard in a session with this name, with an instant that is so many seconds ago.
sub read_shard
{
	my ($application, $instant, $level) = @_;
	local $ENV{PGAPPNAME} = $application;
	my ($ret, $stdout, $stderr) = $worker1->psql(
		'postgres', qq{
		\\set VERBOSITY verbose
		BEGIN ISOLATION LEVEL $level;
		$instant
		SELECT count(*) FROM $shard;
	}, on_error_stop => 1);
	return $stdout . ($stderr =~ /ERROR:  (\w{5})/ ? $1 : '');
}

sub instant_ago
{
	my ($seconds) = @_;
	return qq{SELECT set_config('ttl_docs.distributed_instant', (ttl_docs_internal.node_clock() - $seconds * 1000000::bigint)::text, false) \\gset\n};
}

for my $name ('citus_internal gpid=1', 'citus_rebalancer gpid=1')
{
	is(read_shard($name, instant_ago(5000), $_), 0, "$name: an early instant shows nothing that expired, $_")
	  for 'REPEATABLE READ', 'SERIALIZABLE';
	is(read_shard($name, instant_ago(0), 'REPEATABLE READ'), 0, "$name: the present shows nothing that expired");
	is(read_shard($name, instant_ago(-1000), 'REPEATABLE READ'), 0, "$name: the future is the present");
	is(read_shard($name, instant_ago(5000), 'READ COMMITTED'), 0, "$name: READ COMMITTED does not use the instant");
	is(read_shard($name, "SET ttl_docs.distributed_instant = '$_';", 'REPEATABLE READ'), '22023', "$name: $_ is invalid")
	  for 'early', '12x', '99999999999999999999999', '9223372036854775807';
}
is(read_shard('psql', instant_ago(5000), $_), 0, "other sessions do not use the instant: $_")
  for 'READ COMMITTED', 'REPEATABLE READ', 'SERIALIZABLE';
is(read_shard('psql', "SET ttl_docs.distributed_instant = 'early';", 'REPEATABLE READ'), 0,
	'other sessions do not check the instant');
is(read_shard('psql', "SET application_name = 'citus_internal gpid=1';" . instant_ago(5000), 'REPEATABLE READ'),
	0, 'a session takes the name of a session of Citus');
$cluster->stop;

done_testing();
