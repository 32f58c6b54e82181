# Citus tables as collections: a REPEATABLE READ transaction has one instant on all nodes.
#
# The node where a transaction begins hands its instant over with the setting ttl_docs.distributed_instant.
# Only sessions of Citus use the setting.  If the instant is more than a second earlier than the transaction
# on another node, that node asks the first one.  So a user who poses as Citus only gets the instant of a
# transaction of the same role that is still open.

use strict;
use warnings;

use lib 'test/perl';
use CitusCluster;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use TtlServer;

skip_without_citus();
my $cluster = CitusCluster->new(coordinator_has_shards => 1);
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

# ---- A node joins late ----

# The clock of a node is ahead: the node joins long after the instant.
for my $node ($coordinator, $worker1)
{
	my $name = $node->name =~ s/citus_//r;

	write_documents();
	reload_with($worker2, 'ttl_docs.clock_offset = ' . ($clock + 500));
	$worker2->poll_query_until('postgres', q{SELECT setting FROM pg_settings WHERE name = 'ttl_docs.clock_offset'}, $clock + 500);
	is( $node->safe_psql('postgres',
			qq{BEGIN ISOLATION LEVEL REPEATABLE READ;
			   SELECT count(DISTINCT i) FROM (SELECT id, ttl_docs.now() AS i FROM sessions OFFSET 0) AS s;
			   COMMIT}),
		1, "$name: a node whose clock is ahead has the same instant");
	$cluster->set_clock($clock);
}

# Returns keys with this prefix whose documents are on other nodes.  The first node has its snapshot from the start.
sub keys_elsewhere
{
	my ($node, $prefix) = @_;
	return split /\n/, $cluster->sql(
		sprintf q{SELECT '%s' || i FROM generate_series(1, 20) AS i JOIN citus_shards
				ON shardid = get_shard_id_for_distribution_column('sessions', '%s' || i)
			 WHERE nodeport <> %d ORDER BY i},
		$prefix, $prefix, $node->port);
}

# Citus connects to the other nodes after most documents have expired.
for my $node ($cluster->nodes)
{
	my $name = $node->name =~ s/citus_//r;
	my ($short, $long, $deleted) = keys_elsewhere($node, '');
	my ($new_short, $new_long) = keys_elsewhere($node, 'new');

	write_documents();
	$session = $node->background_psql('postgres', on_error_stop => 0);
	$session->query('BEGIN ISOLATION LEVEL REPEATABLE READ');
	$instant = $session->query('SELECT ttl_docs.now()::text');
	$cluster->set_clock($clock += 1000);
	$cluster->sql(
		qq{INSERT INTO sessions (id, doc) VALUES ('$new_short', '{"ttl": 100}'), ('$new_long', '{"ttl": 20000}');
		  UPDATE sessions SET doc = '{"ttl": 100}' WHERE id = '$short';
		  UPDATE sessions SET doc = '{"ttl": 20000}' WHERE id = '$long';
		  DELETE FROM sessions WHERE id = '$deleted'});
	move_clock();
	is($session->query($on_shards), $instant, "$name: all nodes have the instant of the transaction");
	is( $session->query('SELECT id FROM sessions ORDER BY id COLLATE "C"'),
		join("\n", sort grep { $_ ne $short && $_ ne $deleted } 1 .. 20, $new_long),
		"$name: documents that have expired since are visible, unless they were written or deleted meanwhile");
	is($session->{stderr}, '', "$name: no error");
	is($session->query('ROLLBACK; SELECT count(*) FROM sessions'), 2, "$name: the next transaction has a new instant");
	$session->quit;
}

# LOCK TABLE reaches the other nodes, which take their snapshots, before the first node has its instant.  The
# documents are touched after that.  So an instant of the first node would lose live documents.
write_documents();
$session = $coordinator->background_psql('postgres', on_error_stop => 0);
$session->query('BEGIN ISOLATION LEVEL REPEATABLE READ; LOCK TABLE sessions IN ACCESS SHARE MODE');
$cluster->set_clock($clock += 3000);
$cluster->sql(q{UPDATE sessions SET doc = '{"touched": true}'});
$cluster->set_clock($clock += 5000);
is($session->query('SELECT count(*) FROM sessions'), 20, 'a node whose snapshot is older than the instant loses no live document');
$session->quit;

# ---- The question ----

$cluster->sql(
	q{CREATE ROLE alice LOGIN; CREATE ROLE bob LOGIN; GRANT alice TO bob;
	  GRANT SELECT ON sessions TO alice, bob; GRANT SELECT ON plain TO alice, bob});

sub session_of
{
	my ($role) = @_;
	my $session = $coordinator->background_psql('postgres', on_error_stop => 0, extra_params => [ '-U', $role ]);
	$session->query('BEGIN ISOLATION LEVEL REPEATABLE READ');
	return $session;
}

# The transaction works for two roles.
write_documents();
$session = session_of($coordinator->safe_psql('postgres', 'SELECT current_user'));
$session->query('SELECT ttl_docs.now(); SET ROLE alice');
move_clock();
is($session->query('SELECT count(*) FROM sessions'), 20, 'SET ROLE: the nodes confirm the instant for this role');
is($session->query('RESET ROLE; SELECT count(*) FROM sessions'), 20, 'RESET ROLE: and for the role of the session');
is($session->{stderr}, '', 'SET ROLE: no error');
$session->quit;

# The first node cannot be asked.
write_documents();
$session = session_of('alice');
$session->query('SELECT ttl_docs.now()');
$coordinator->safe_psql('postgres', 'SET citus.enable_alter_role_propagation = off; ALTER ROLE alice NOLOGIN');
move_clock();
is($session->query('SELECT count(*) FROM sessions'), '', 'a node that cannot ask returns nothing');
like(
	$session->{stderr},
	qr/ERROR:  could not verify the instant of a transaction that began on another node of Citus\n.*failed to connect/s,
	'it raises an error');
$session->{stderr} = '';
write_documents();
is($session->query('ROLLBACK; BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM sessions'),
	20, 'a node that joins at once does not ask');
$session->quit;
$coordinator->safe_psql('postgres', 'SET citus.enable_alter_role_propagation = off; ALTER ROLE alice LOGIN');

# ---- The setting ----

# Documents in a shard on the first worker, which expired some 4000 seconds ago
write_documents();
move_clock();
my $shard = CitusCluster::quiet($worker1,
	q{SET citus.override_table_visibility = off; SELECT relname FROM pg_class WHERE relname ~ '^sessions_[0-9]+$' ORDER BY 1 LIMIT 1});
cmp_ok(CitusCluster::quiet($worker1, "SET ttl_docs.show_expired = on; SELECT count(*) FROM $shard"), '>', 0,
	'the shard has documents');

# Reads the shard in a session with this name, after a command that sets an instant.  Returns the number of
# documents, or the error.
sub read_shard
{
	my ($application, $command, $level, $role) = @_;
	local $ENV{PGAPPNAME} = $application;
	my ($ret, $stdout, $stderr) = $worker1->psql(
		'postgres', qq{
		\\set VERBOSITY verbose
		BEGIN ISOLATION LEVEL $level;
		$command
		SELECT count(*) FROM $shard;
	},
		on_error_stop => 1,
		extra_params => defined $role ? [ '-U', $role ] : []);
	return $stdout . ($stderr =~ /ERROR:  (\w{5})/ ? $1 : '');
}

# Sets an instant of the coordinator that is so many seconds ago.
sub instant_ago
{
	my ($seconds) = @_;
	return qq{SELECT set_config('ttl_docs.distributed_instant', (ttl_docs_internal.node_clock() - $seconds * 1000000::bigint) || ' 0', false) \\gset\n};
}

for my $name ('citus_internal gpid=1', 'citus_rebalancer gpid=1')
{
	is(read_shard($name, instant_ago(5000), $_), '40001', "$name: an early instant fails, $_")
	  for 'REPEATABLE READ', 'SERIALIZABLE';
	is(read_shard($name, instant_ago(0), 'REPEATABLE READ'), 0, "$name: the present shows nothing that expired");
	is(read_shard($name, instant_ago(-1000), 'REPEATABLE READ'), 0, "$name: the future is the present");
	is(read_shard($name, instant_ago(5000), 'READ COMMITTED'), 0, "$name: READ COMMITTED does not use the instant");
	is(read_shard($name, "SET ttl_docs.distributed_instant = '$_';", 'REPEATABLE READ'), '22023', "$name: $_ is invalid")
	  for 'early', '12', '12x 0', '12 0x', '12 -1', '12 9999999999', '99999999999999999999999 0', '9223372036854775807 0';
}
is(read_shard('psql', instant_ago(5000), $_), 0, "other sessions do not use the instant: $_")
  for 'READ COMMITTED', 'REPEATABLE READ', 'SERIALIZABLE';
is(read_shard('psql', "SET ttl_docs.distributed_instant = 'early';", 'REPEATABLE READ'), 0,
	'other sessions do not check the instant');
is(read_shard('psql', "SET application_name = 'citus_internal gpid=1';" . instant_ago(5000), 'REPEATABLE READ'),
	'40001', 'a session takes the name of a session of Citus');

# A transaction of alice hands its instant over, and stays open while the documents expire.
write_documents();
$session = session_of('alice');
$session->query('SELECT count(*) FROM sessions');
my ($time, $group) = split / /, $session->query(q{SELECT current_setting('ttl_docs.distributed_instant')});
is($group, 0, 'the coordinator has handed the instant over');
move_clock();

sub pose
{
	my ($role, $time, $group, $command) = @_;
	return read_shard('citus_internal gpid=1',
		($command // '') . "SET ttl_docs.distributed_instant = '$time $group';", 'REPEATABLE READ', $role);
}

my $superuser = $coordinator->safe_psql('postgres', 'SELECT current_user');
my $worker_group = $cluster->sql('SELECT min(groupid) FROM pg_dist_node WHERE groupid <> 0');

cmp_ok(pose('alice', $time, 0), '>', 0, 'a user gets the instant of a transaction of the same user');
is(pose('alice', $time - 1, 0), '40001', 'another instant fails');
is(pose('alice', $time, $_), '40001', "the instant of another node fails: group $_") for 1 .. 2, 99;
is(pose($_, $time, 0), '40001', "the instant of another user fails: $_") for 'bob', $superuser;
is(pose('bob', $time, 0, 'SET ROLE alice;'), '40001', 'a member of the role, with SET ROLE, fails');
is(pose('alice', $time, 0, "SELECT assign_distributed_transaction_id($worker_group, 1, now()) \\gset\n"),
	pose('alice', $time, 0), 'the number of the distributed transaction does not matter');
is(pose('alice', $time, 0, "SET ttl_docs.distributed_instant = '$time 99'; SAVEPOINT a;"),
	pose('alice', $time, 0), 'the instant counts when the first query starts');
is( read_shard('citus_internal gpid=1', "\\set ON_ERROR_STOP off\nSET ttl_docs.distributed_instant = '$time 99';
		SAVEPOINT a; SELECT 1; ROLLBACK TO a;", 'REPEATABLE READ', 'alice'),
	'40001', 'an instant that was not confirmed is not used after ROLLBACK TO SAVEPOINT');

# Another database
$coordinator->safe_psql('postgres', 'CREATE DATABASE other');
$coordinator->safe_psql('other', 'CREATE EXTENSION citus; CREATE EXTENSION ttl_docs');
is( $coordinator->safe_psql($_, "SELECT ttl_docs_internal.has_open_instant($time)", extra_params => [ '-U', 'alice' ]),
	$_ eq 'postgres' ? 't' : 'f', "the transaction is found in database $_")
  for 'postgres', 'other';

# The instant is gone when the transaction ends, however it ends.
sub is_open
{
	return $coordinator->safe_psql('postgres', "SELECT ttl_docs_internal.has_open_instant($time)",
		extra_params => [ '-U', 'alice' ]);
}

sub open_again
{
	$session->query('ROLLBACK; BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM sessions');
	($time) = split / /, $session->query(q{SELECT current_setting('ttl_docs.distributed_instant')});
	is(is_open(), 't', 'an open transaction');
	return;
}

is($session->query('SAVEPOINT a; SELECT 1/0; ROLLBACK TO a'), '', 'a rollback to a savepoint');
is(is_open(), 't', 'the transaction is open after a rollback to a savepoint');
$session->query('COMMIT');
is(is_open(), 'f', 'COMMIT');
is(pose('alice', $time, 0), '40001', 'the instant of a transaction that has ended fails');
open_again();
$session->query('ROLLBACK');
is(is_open(), 'f', 'ROLLBACK');
open_again();
$session->query('SELECT 1/0');
is(is_open(), 'f', 'ERROR');
open_again();
my $pid = $session->query('SELECT pg_backend_pid()');
$coordinator->safe_psql('postgres', "SELECT pg_terminate_backend($pid, 60000)");
is(is_open(), 'f', 'FATAL');
eval { $session->quit };
$cluster->stop;

done_testing();
