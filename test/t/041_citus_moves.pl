# Citus moves, splits and converts shards while documents expire, are touched and are purged.
#
# No test depends on time: a gate stops Citus at a known point.
#	- Two plain tables, gate_1 and gate_2, are colocated with the collection "docs".  Their shards are copied
#	  before and after those of docs, because Citus copies in the order of the numbers of the shards, one by one.
#	- Each has a column whose type has a check, which takes an advisory lock.  Citus evaluates it for each row
#	  that it copies.  The test holds the lock on the node that gets the copy.
#	- alter_distributed_table() and undistribute_table() wait for a query on an old shard, before they drop it.

use strict;
use warnings;

use lib 'test/perl';
use CitusCluster;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use TtlServer;

skip_without_citus();
my $cluster = CitusCluster->new(
	workers => 3,
	settings => q{
ttl_docs.purge_grace = 0
ttl_docs.purge_naptime = '100ms'
citus.enable_unsafe_triggers = on
max_logical_replication_workers = 10
wal_retrieve_retry_interval = '100ms'
});
my ($coordinator, @workers) = $cluster->nodes;
my $new_node = pop @workers;

# A DELETE on a shard is archived in a plain table of the node.
$cluster->sql(sprintf("SELECT citus_remove_node('%s', %d)", $new_node->host, $new_node->port));
$_->safe_psql('postgres',
	'SET citus.enable_ddl_propagation = off; CREATE TABLE archive (id text, purging boolean, shard text)')
  for $coordinator, @workers;
$cluster->sql(
	q{
	CREATE FUNCTION pass(key int) RETURNS boolean LANGUAGE plpgsql AS
		'BEGIN PERFORM pg_advisory_xact_lock_shared(key); RETURN true; END';
	CREATE DOMAIN pass_1 AS int CHECK (pass(1));
	CREATE DOMAIN pass_2 AS int CHECK (pass(2));
	CREATE TABLE gate_1 (id text PRIMARY KEY, gate pass_1);
	CREATE TABLE gate_2 (id text PRIMARY KEY, gate pass_2);
	SELECT ttl_docs.create_collection('docs', 6000);
	SELECT create_distributed_table('gate_1', 'id', shard_count => 2);
	SELECT create_distributed_table('docs', 'id', colocate_with => 'gate_1');
	SELECT create_distributed_table('gate_2', 'id', colocate_with => 'gate_1');
	INSERT INTO gate_1 SELECT i, i FROM generate_series(1, 20) AS i;
	INSERT INTO gate_2 SELECT i, i FROM generate_series(1, 20) AS i;
	CREATE FUNCTION archive_doc() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO public.archive VALUES (OLD.id, ttl_docs.purging(), TG_RELID::regclass);
		RETURN NULL;
	END $$;
	CREATE TRIGGER archive_doc AFTER DELETE ON docs FOR EACH ROW EXECUTE FUNCTION archive_doc();
});
# A collection of each node shows that the workers of its purge have visited all collections.
for my $node (@workers)
{
	$node->safe_psql(
		'postgres', q{
		SET citus.enable_ddl_propagation = off;
		SELECT ttl_docs.create_collection('probe', 60);
	});
}

# ---- Gates ----

# The first shard of a table, its node, and another node: the arguments for a move
sub first_shard
{
	my ($table) = @_;
	$table //= 'docs';
	my ($shard, $port) = split(/\|/, $cluster->sql(
			qq{
			SELECT shardid, nodeport FROM pg_dist_shard
				JOIN pg_dist_placement USING (shardid) JOIN pg_dist_node USING (groupid)
			 WHERE logicalrelid = '$table'::regclass ORDER BY shardid LIMIT 1}));
	my ($from) = grep { $_->port == $port } @workers;
	my ($to) = grep { $_->port != $port } @workers;
	return ($shard, $from, $to);
}

sub node_id
{
	my ($node) = @_;
	return $cluster->sql('SELECT nodeid FROM pg_dist_node WHERE nodeport = ' . $node->port);
}

# Starts SQL in a session on the coordinator, and waits until it is blocked: until a query on a node returns true.
# Returns the session.
sub start_until_blocked
{
	my ($sql, $node, $blocked) = @_;
	my $session = $coordinator->background_psql('postgres', on_error_stop => 0);
	$session->query(
		'SET client_min_messages = warning; SET citus.max_adaptive_executor_pool_size = 1; SELECT pg_backend_pid()');
	$session->query_until(qr/started/, "\\echo started\n$sql;\n\\echo finished\n");
	$node->poll_query_until('postgres', $blocked) or die "not blocked: $sql";
	return $session;
}

# Waits until the SQL of start_until_blocked() has ended.  Counts as a test.
sub finishes
{
	my ($session, $name) = @_;
	$session->query_until(qr/finished/, '');
	is($session->{stderr}, '', "$name: no error");
	$session->{stderr} = '';
	$session->quit;
	return;
}

# Runs SQL that copies shards to a node, and code while the copy is stopped at a gate.  Counts as a test.
sub stop_at_gate
{
	my ($gate, $node, $sql, $name, $code) = @_;
	my $holder = $node->background_psql('postgres');
	$holder->query("SELECT pg_advisory_lock($gate)");
	my $mover = start_until_blocked($sql, $node,
		"SELECT count(*) > 0 FROM pg_locks WHERE locktype = 'advisory' AND objid = $gate AND objsubid = 1 AND NOT granted");
	$code->();
	$holder->quit;
	finishes($mover, $name);
	return;
}

# Runs SQL that drops the old shards at its end, and code while it waits for a query on the first of them.  Counts
# as a test.
sub stop_before_drop
{
	my ($sql, $name, $code) = @_;
	my ($shard, $node) = first_shard();
	my $holder = $node->background_psql('postgres');
	$holder->query("BEGIN; SELECT count(*) FROM docs_$shard");
	my $mover = start_until_blocked($sql, $node,
		"SELECT count(*) > 0 FROM pg_locks WHERE relation = 'docs_$shard'::regclass AND NOT granted");
	$code->();
	$holder->query('COMMIT');
	$holder->quit;
	finishes($mover, $name);
	return;
}

# ---- Documents ----

# The clock of the scenario.  Every scenario begins when all documents of the one before have expired.
my $now = 0;
my $round = 0;

# Moves the clock by hours.  The purge is held after such a jump, until it is accepted.
sub jump
{
	my ($clock) = @_;
	$cluster->set_clock($clock);
	$cluster->sql(q{SELECT ttl_docs.resume_purge('docs')});
	CitusCluster::quiet($_, q{SELECT ttl_docs.resume_purge('probe')}) for @workers;
	return;
}

# Writes documents: two kinds that expire after 6000 seconds, and one that does not.  Some minutes are left
# until they expire.
sub write_documents
{
	$now += 20000;
	$round++;
	$cluster->set_clock($now);
	$cluster->sql(
		qq{
		INSERT INTO docs (id, doc) SELECT '$round touched ' || i, '{}' FROM generate_series(1, 8) AS i;
		INSERT INTO docs (id, doc) SELECT '$round expires ' || i, '{}' FROM generate_series(1, 8) AS i;
		INSERT INTO docs (id, doc) SELECT '$round stays ' || i, '{"ttl": -1}' FROM generate_series(1, 8) AS i;
	});
	jump($now + 5800);
	return;
}

# Touches documents just before they expire.
sub touch
{
	return $cluster->sql(
		"WITH t AS (UPDATE docs SET _ts = DEFAULT WHERE id LIKE '$round touched%' RETURNING id) SELECT count(*) FROM t");
}

# A small step of the clock, which does not hold the purge
sub expire
{
	$cluster->set_clock($now + 6080);
	return;
}

# Exactly the documents of this scenario that were touched are live, and all that do not expire, on every node
# that has the table.  Counts as a test.
sub right_documents_are_live
{
	my ($touched, $name) = @_;
	my @kinds = $touched ? ("$round touched") : ();
	my $expected = join "\n", sort map { my $kind = $_; map { "$kind $_" } 1 .. 8 } @kinds, map { "$_ stays" } 1 .. $round;
	my @nodes = $cluster->is_citus_table('docs') ? ($coordinator, @workers) : $coordinator;
	is_deeply(
		[ map { CitusCluster::quiet($_, 'SELECT id FROM docs ORDER BY id COLLATE "C"') } @nodes ],
		[ ($expected) x @nodes ],
		"$name: exactly the live documents are visible");
	return;
}

# Every expired document is purged once, and the archive trigger fires once.  Counts as a test.
sub purged_once
{
	my ($touched, $name) = @_;
	jump($now + 19000);
	$cluster->sql(q{CALL ttl_docs.purge('docs')});
	my $expected = join "\n", sort map { my $kind = $_; map { "$round $kind $_" } 1 .. 8 } qw(expires touched);
	is(join("\n", sort map { split /\n/, CitusCluster::quiet($_, 'SELECT id FROM archive WHERE purging') } $coordinator, @workers),
		$expected, "$name: each document is purged once");
	is($cluster->on_disk('docs'), 8 * $round, "$name: only live documents are left on disk");
	CitusCluster::quiet($_, 'TRUNCATE archive') for $coordinator, @workers;
	return;
}

# Lets the workers of all nodes visit their collections.
sub let_purge_run
{
	reload_with($_, 'ttl_docs.purge = on') for @workers;
	for my $node (@workers)
	{
		for my $i (1, 2)
		{
			$node->safe_psql('postgres',
				q{BEGIN; SET LOCAL ttl_docs.clock_offset = '-2d'; INSERT INTO probe (id, doc) VALUES ('a', '{}'); COMMIT});
			$node->poll_query_until('postgres', q{SELECT on_disk('probe')}, '0') or die 'no worker purges the probe';
		}
	}
	stop_purge();
	return;
}

# No worker of a node purges any more.
sub stop_purge
{
	reload_with($_, 'ttl_docs.purge = off') for @workers;
	$_->poll_query_until('postgres',
		q{SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type = 'ttl_docs purge worker'})
	  for @workers;
	return;
}

# ---- Moves and splits ----

# The calls, for the first shard.  Each copies it, and a document of it can be written until the end if the mode is
# force_logical.
sub move_call
{
	my ($mode, $table) = @_;
	my ($shard, $from, $to) = first_shard($table);
	return ($to, sprintf("SELECT citus_move_shard_placement(%d, '%s', %d, '%s', %d, '%s')",
			$shard, $from->host, $from->port, $to->host, $to->port, $mode));
}

sub split_call
{
	my ($mode) = @_;
	my ($shard, $from, $to) = first_shard();
	my $id = node_id($to);
	my $point = $cluster->sql(
		"SELECT (shardminvalue::bigint + shardmaxvalue::bigint) / 2 FROM pg_dist_shard WHERE shardid = $shard");
	return ($to, "SELECT citus_split_shard_by_split_points($shard, ARRAY['$point'], ARRAY[$id, $id], '$mode')");
}

# Documents expire while the shard is copied, and others are touched just before.
for my $operation ([ 'move', \&move_call ], [ 'split', \&split_call ])
{
	my ($what, $call) = @$operation;

	# The copy of docs begins after the touched documents have expired in the snapshot of the copy.
	my $name = "$what, force_logical";
	write_documents();
	my ($node, $sql) = $call->('force_logical');
	my $rows;
	stop_at_gate(
		1, $node, $sql, $name,
		sub {
			is(touch(), 8, "$name: documents are touched after the snapshot of the copy");
			expire();
			$rows = $cluster->rows('docs');
		});
	is($cluster->rows('docs'), $rows, "$name: rows and stamps are the same");
	right_documents_are_live(1, $name);
	purged_once(1, $name);

	# The purge runs after the rows of docs have been copied.
	$name = "$what, force_logical, purge";
	write_documents();
	($node, $sql) = $call->('force_logical');
	stop_at_gate(
		2, $node, $sql, $name,
		sub {
			is(touch(), 8, "$name: documents are touched after the copy");
			expire();
			let_purge_run();
		});
	right_documents_are_live(1, $name);
	purged_once(1, $name);

	$name = "$what, block_writes";
	write_documents();
	touch();
	($node, $sql) = $call->('block_writes');
	stop_at_gate(
		1, $node, $sql, $name,
		sub {
			expire();
			$rows = $cluster->rows('docs');
		});
	is($cluster->rows('docs'), $rows, "$name: rows and stamps are the same");
	right_documents_are_live(1, $name);
	purged_once(1, $name);

	$name = "$what, block_writes, purge";
	write_documents();
	touch();
	my ($shard, $from) = first_shard();
	($node, $sql) = $call->('block_writes');
	stop_at_gate(
		2, $node, $sql, $name,
		sub {
			expire();
			my $before = $from->safe_psql('postgres', "SELECT on_disk('docs_$shard')");
			let_purge_run();
			cmp_ok($before, '>', 0, "$name: the shard has documents");
			is($from->safe_psql('postgres', "SELECT on_disk('docs_$shard')"),
				$before, "$name: the purge leaves the shard alone");
		});
	right_documents_are_live(1, $name);
	purged_once(1, $name);
}

# ---- A write to the new place before the move has committed there ----

# Only the session of the mover waits for a standby in its commit, which does not exist.  Then it has prepared its
# transaction on the workers.  The test commits it on one of them.
{
	my $name = 'a write between the commits of a move';
	write_documents();
	my ($shard, $from, $to) = first_shard();
	my ($node, $sql) = move_call('block_writes');
	my ($key) = split /\n/, $cluster->sql(
		"SELECT 'new ' || i FROM generate_series(1, 100) AS i WHERE get_shard_id_for_distribution_column('docs', 'new ' || i) = $shard");
	reload_with($coordinator, "synchronous_standby_names = 'nobody'\nsynchronous_commit = local");
	my $mover = start_until_blocked("SET synchronous_commit = on;\n$sql", $coordinator,
		q{SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event = 'SyncRep'});
	my $gid = $from->safe_psql('postgres', 'SELECT gid FROM pg_prepared_xacts');
	$from->safe_psql('postgres', "COMMIT PREPARED '$gid'");
	my $stamp = q{_ts > '2010-01-01'};
	is( CitusCluster::quiet(
			$from, qq{
			INSERT INTO docs (id, doc, _ts) VALUES ('$key', '{}', '2000-01-01') RETURNING $stamp;
			DELETE FROM docs WHERE id = '$key';
			COPY docs (id, doc, _ts) FROM PROGRAM 'printf "$key\\t{}\\t2000-01-01\\n"';
			SELECT $stamp FROM docs WHERE id = '$key'}),
		"t\nt", "$name: INSERT and COPY get new stamps");
	reload_with($coordinator, "synchronous_standby_names = ''");
	$mover->query_until(qr/finished/, '');
	$mover->{stderr} = '';
	$mover->quit;
	$cluster->sql("SELECT recover_prepared_transactions(); DELETE FROM docs WHERE id = '$key'");
	CitusCluster::quiet($_, 'TRUNCATE archive') for $coordinator, @workers;
	expire();
	right_documents_are_live(0, $name);
	purged_once(0, $name);
}

# ---- Conversions ----

# Documents expire before the old shards are dropped.  Neither the purge nor a session on another node changes the
# old shards.
sub convert
{
	my ($sql, $name) = @_;
	write_documents();
	touch();
	my ($shard, $from) = first_shard();
	my ($id) = split /\n/, $cluster->sql("SELECT id FROM docs WHERE id ~ '$round touched' AND get_shard_id_for_distribution_column('docs', id) = $shard");
	my $rows = $cluster->rows('docs');
	my $writer = $from->background_psql('postgres', on_error_stop => 0);
	$writer->query('SELECT 1');
	stop_before_drop(
		$sql, $name,
		sub {
			$writer->query_until(qr/started/,
				"\\echo started\nUPDATE docs SET doc = '{\"late\": true}' WHERE id = '$id' RETURNING 'updated';\n\\echo finished\n");
			$from->poll_query_until('postgres', q{SELECT count(*) > 0 FROM pg_stat_activity WHERE query LIKE 'UPDATE docs%' AND wait_event_type = 'Lock'})
			  or die 'the writer does not wait';
			expire();
			let_purge_run();
		});
	my $output = $writer->query_until(qr/finished/, '');
	my $late = $cluster->sql("SELECT count(*) FROM docs WHERE id = '$id' AND doc ? 'late'");
	is($late, $output =~ /updated/ ? 1 : 0, "$name: a session on another node writes and knows it, or fails");
	$writer->{stderr} = '';
	$writer->quit;
	is(join("\n", grep { !/^\Q$id\E / } split /\n/, $cluster->rows('docs')),
		join("\n", grep { !/^\Q$id\E / } split /\n/, $rows), "$name: rows and stamps are the same");
	right_documents_are_live(1, $name);
	purged_once(1, $name);
	return;
}

convert(q{SELECT alter_distributed_table('docs', shard_count => 3, cascade_to_colocated => true)}, 'alter_distributed_table');
convert(q{SELECT undistribute_table('docs')}, 'undistribute_table');
is($cluster->is_citus_table('docs'), 0, 'docs is a plain table');
$cluster->sql(q{SELECT create_distributed_table('docs', 'id', colocate_with => 'gate_1')});
$cluster->sql(q{SELECT truncate_local_data_after_distributing_table('docs')});

# ---- Truncations ----

# The purge truncates a large shard all of whose documents have expired, and does not while Citus moves the shard.
# bulk_gate is a gate for the only shard of bulk, which Citus copies before.
my $documents = 4400;
$cluster->sql(
	q{
	SELECT ttl_docs.create_collection('bulk', 6000);
	SELECT create_distributed_table('bulk', 'id', shard_count => 1, colocate_with => 'none');
	CREATE TABLE bulk_gate (id text PRIMARY KEY, gate pass_2);
	SELECT create_distributed_table('bulk_gate', 'id', colocate_with => 'bulk');
	INSERT INTO bulk_gate VALUES ('1', 2);
});

# Writes documents of two kilobytes, which expire, and runs SQL while they are live.
sub fill_bulk
{
	my ($sql) = @_;
	$now += 20000;
	$cluster->set_clock($now);
	$cluster->sql(
		qq{
		INSERT INTO bulk (id, doc)
			SELECT i, jsonb_build_object('text', repeat('x', 1900)) FROM generate_series(1, $documents) AS i;
	});
	$cluster->sql($sql) if $sql;
	jump($now + 7000);
	$cluster->sql(q{SELECT ttl_docs.resume_purge('bulk')});
	return;
}

# The workers of all nodes have removed the documents of bulk, by this number of truncations, and by deleting this
# number of documents: the counts of the table that is the shard now.  Counts as two tests.
sub bulk_is_purged
{
	my ($expected, $name) = @_;
	reload_with($_, 'ttl_docs.purge = on') for @workers;
	ok( $coordinator->poll_query_until('postgres', q{
			SELECT sum(result::int) = 0 FROM run_command_on_shards('bulk', $$SELECT on_disk('%s')$$)}),
		"$name: the documents are purged");
	stop_purge();
	is($cluster->sql(q{SELECT truncations, purged FROM ttl_docs.stat_collections WHERE collection = 'bulk'::regclass}),
		$expected, "$name: how the documents were removed");
	return;
}

{
	my $name = 'a truncation after a move';
	fill_bulk();
	my ($shard, $from) = first_shard('bulk');
	my ($node, $sql) = move_call('block_writes', 'bulk');
	stop_at_gate(
		2, $node, $sql, $name,
		sub {
			let_purge_run();
			is($from->safe_psql('postgres', "SELECT on_disk('bulk_$shard')"),
				$documents, "$name: while Citus moves the shard, the purge leaves it alone");
		});
	# the clock of the new node has jumped before it had the shard
	$cluster->sql(q{SELECT ttl_docs.resume_purge('bulk')});
	bulk_is_purged('1|0', $name);
	cmp_ok($cluster->sql(q{SELECT shard_size FROM citus_shards WHERE table_name = 'bulk'::regclass}),
		'<', 100_000, "$name: Citus knows the new size of the shard");

	$name = 'no truncation in a logical move';
	fill_bulk();
	($node, $sql) = move_call('force_logical', 'bulk');
	stop_at_gate(
		2, $node, $sql, $name,
		sub {
			bulk_is_purged("1|$documents", $name);
			$cluster->sql(q{INSERT INTO bulk (id, doc) VALUES ('new', '{}')});
		});
	is($cluster->sql('SELECT id FROM bulk'), 'new', "$name: a new document is there");
	is($cluster->on_disk('bulk'), 1, "$name: the deletes have reached the new shard");

	$name = 'no truncation of a shard with a child';
	$cluster->sql(
		qq{
		DELETE FROM bulk;
		CREATE TABLE child (id text PRIMARY KEY);
		SELECT create_distributed_table('child', 'id', colocate_with => 'bulk');
		ALTER TABLE child ADD FOREIGN KEY (id) REFERENCES bulk ON DELETE CASCADE;
	});
	fill_bulk(q{INSERT INTO child VALUES ('7')});
	bulk_is_purged("0|$documents", $name);
	is($cluster->sql('SELECT count(*) FROM child'), 0, "$name: the child is deleted");
}

# ---- A new node ----

$cluster->sql(sprintf("SELECT citus_add_node('%s', %d)", $new_node->host, $new_node->port));
push @workers, $new_node;
$new_node->safe_psql(
	'postgres', q{
	SET citus.enable_ddl_propagation = off;
	CREATE TABLE archive (id text, purging boolean, shard text);
	SELECT ttl_docs.create_collection('probe', 60);
});
# docs has new shards since the conversions, and they are copied after those of gate_2.
$cluster->sql(
	q{
	CREATE DOMAIN pass_3 AS int CHECK (pass(3));
	CREATE TABLE gate_3 (id text PRIMARY KEY, gate pass_3);
	SELECT create_distributed_table('gate_3', 'id', colocate_with => 'gate_1');
	INSERT INTO gate_3 SELECT i, i FROM generate_series(1, 20) AS i;
});
# The rebalancer moves shards in another session.
reload_with($coordinator, 'citus.max_adaptive_executor_pool_size = 1');

sub rebalance_call
{
	my ($mode) = @_;
	return "SELECT rebalance_table_shards('docs', shard_transfer_mode => '$mode')";
}

# The other nodes get the shards of docs back.
sub drain_new_node
{
	$cluster->sql(sprintf(
			q{SELECT citus_drain_node('%s', %d, 'block_writes');
			  SELECT citus_set_node_property('%s', %d, 'shouldhaveshards', true);
			  CALL citus_cleanup_orphaned_resources()},
			($new_node->host, $new_node->port) x 2));
	return;
}

# The new node has shards of docs, and nothing is lost.  Counts as four tests.
sub is_rebalanced
{
	my ($rows, $name) = @_;
	cmp_ok($cluster->sql(sprintf('SELECT count(*) FROM citus_shards WHERE table_name = %s AND nodeport = %d', q{'docs'::regclass}, $new_node->port)),
		'>', 0, "$name: it has shards of docs");
	is($cluster->rows('docs'), $rows, "$name: rows and stamps are the same");
	right_documents_are_live(1, $name);
	purged_once(1, $name);
	return;
}

{
	my $name = 'a new node, block_writes';
	my ($rows, $moved);
	write_documents();
	touch();
	stop_at_gate(
		1,
		$new_node,
		rebalance_call('block_writes'),
		$name,
		sub {
			expire();
			$rows = $cluster->rows('docs');
		});
	is_rebalanced($rows, $name);

	drain_new_node();

	$name = 'a new node, block_writes, purge';
	write_documents();
	touch();
	stop_at_gate(
		3,
		$new_node,
		rebalance_call('block_writes'),
		$name,
		sub {
			expire();
			($moved) = $new_node->safe_psql('postgres', q{SET citus.override_table_visibility = off; SELECT relname FROM pg_class WHERE relname ~ '^docs_\d+$'});
			my $on_both = sub
			{
				return join ' ', map { $_->safe_psql('postgres', "SELECT on_disk(to_regclass('$moved')) WHERE to_regclass('$moved') IS NOT NULL") } @workers;
			};
			my $before = $on_both->();
			like($before, qr/^ *([1-9]\d*) +\1 *$/, "$name: two nodes have the documents of the shard");
			let_purge_run();
			is($on_both->(), $before, "$name: the purge leaves both tables alone");
			$rows = $cluster->rows('docs');
		});
	is_rebalanced($rows, $name);
	drain_new_node();

	$name = 'a new node, force_logical';
	write_documents();
	stop_at_gate(
		1,
		$new_node,
		rebalance_call('force_logical'),
		$name,
		sub {
			is(touch(), 8, "$name: documents are touched while shards move");
			expire();
			$rows = $cluster->rows('docs');
		});
	is_rebalanced($rows, $name);
}

# ---- A node fails in the middle of a change ----

# The transaction has read shards on the connections, so Citus might commit there in one phase.
for my $node ($coordinator, $workers[0])
{
	my $name = 'a node fails before a change of settings is committed, from ' . $node->name;
	my $victim = $workers[1];
	my $before = $cluster->labels('docs');
	my $session = $node->background_psql('postgres', on_error_stop => 0);
	my $pid = $session->query(
		q{SET client_min_messages = warning; BEGIN; SET LOCAL citus.max_adaptive_executor_pool_size = 1;
		  SELECT count(*) FROM docs \gset
		  SELECT ttl_docs.set_default_ttl('docs', 100000) \gset
		  SELECT pg_backend_pid()});
	my $killed = $victim->safe_psql('postgres',
		q{SELECT count(pg_terminate_backend(pid, 60000)) FROM pg_stat_activity
		   WHERE application_name ~ '^citus_internal' AND state = 'idle in transaction' AND query !~ 'dump_local_wait_edges'});
	cmp_ok($killed, '>', 0, "$name: a session is killed");
	$session->query('COMMIT');
	$session->{stderr} = '';
	$session->quit;
	$cluster->sql('SELECT recover_prepared_transactions()');
	is($cluster->labels('docs'), $before, "$name: no node has changed");
}
$cluster->stop;

done_testing();
