# CALL set_indexing_concurrently(): others use the collection meanwhile.  Cancelled or killed in any
# phase, it leaves a collection that works, and the next call continues.
#
# Open transactions hold the procedure in a phase: an old snapshot holds the build of an index, and a
# transaction that has read the table holds the drop of the old index.

use strict;
use warnings;

use lib 'test/perl';
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use PurgeNode;
use Test::More;
use TtlServer;

my $node = start_node("restart_after_crash = on\n");

# ---- Helpers ----

# Creates a collection with documents, some of which have expired.
sub new_collection
{
	my ($name) = @_;
	sql("SELECT ttl_docs.create_collection('$name', 3600)");
	sql(live($name, 100) . expired($name, 10));
	return;
}

# Returns the indexes on _slot of a table and its partitions: table, name, method, and "invalid" or "dead".
sub indexes
{
	my ($table) = @_;
	return sql(qq{
		SELECT indrelid::regclass, c.relname, amname, CASE WHEN NOT indislive THEN ' dead' WHEN NOT indisvalid THEN ' invalid' END
		  FROM pg_index JOIN pg_class AS c ON c.oid = indexrelid JOIN pg_am AS a ON a.oid = relam
		 WHERE indrelid IN (SELECT '$table'::regclass UNION SELECT relid FROM pg_partition_tree('$table'))
		   AND pg_get_indexdef(indexrelid, 1, false) = '_slot'
		 ORDER BY indrelid::regclass::text COLLATE "C", c.relname});
}

sub indexing
{
	my ($table) = @_;
	return sql("SELECT indexing FROM ttl_docs.collections WHERE collection = '$table'::regclass");
}

# Starts the procedure in a session of its own.
sub start_change
{
	my ($table, $indexing) = @_;
	my $change = { table => $table, output => '' };
	$change->{process} = IPC::Run::start(
		[
			'psql', '-X', '-q', '-h', $node->host, '-p', $node->port, '-d', 'postgres', '-c',
			"CALL ttl_docs.set_indexing_concurrently('$table', '$indexing')"
		],
		'<', \undef, '>', \$change->{output}, '2>&1');
	return $change;
}

# Waits for the end of the procedure, and returns its messages.
sub finish
{
	my ($change) = @_;
	$change->{process}->finish;
	return $change->{output};
}

# Waits until the procedure is in a phase.  Counts as a test.
sub until_phase
{
	my ($change, $phase, $name) = @_;
	until_is(
		"SELECT phase FROM ttl_docs.stat_progress WHERE command = 'set_indexing_concurrently' "
		  . "AND collection = '$change->{table}'::regclass",
		$phase, $name);
	return;
}

# Waits until the procedure waits for a transaction of another session, within a command of core.
sub until_waiting
{
	until_is(
		"SELECT count(*) FROM pg_locks WHERE locktype = 'virtualxid' AND NOT granted",
		'1', "$_[0]: it waits for a transaction");
	return;
}

# Cancels the procedure, or kills its process, which restarts the server.
sub stop_change
{
	my ($change, $how) = @_;
	my $pid = sql('SELECT pid FROM ttl_docs.stat_progress');
	if ($how eq 'cancel')
	{
		sql("SELECT pg_cancel_backend($pid)");
		like(finish($change), qr/canceling statement due to user request/, 'it is cancelled');
		is(sql('SELECT count(*) FROM ttl_docs.stat_progress'), '0', 'its progress is not shown any more');
		return;
	}
	my $offset = -s $node->logfile;
	kill 'KILL', $pid;
	finish($change);
	wait_for_restart($node, $offset);
	return;
}

# A transaction with a snapshot, and a transaction that has read a table.
sub session_with
{
	my ($query) = @_;
	my $session = { in => '', out => '' };
	$session->{process} = IPC::Run::start(
		[ 'psql', '-X', '-q', '-A', '-t', '-h', $node->host, '-p', $node->port, '-d', 'postgres' ],
		'<', \$session->{in}, '>', \$session->{out}, '2>&1');
	$session->{in} .= "$query;\n\\echo ready\n";
	$session->{process}->pump until $session->{out} =~ /ready/;
	return $session;
}

sub old_snapshot
{
	return session_with('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1');
}

sub reader_of
{
	return session_with("BEGIN; SELECT count(*) FROM $_[0]");
}

sub end_session
{
	my ($session) = @_;
	$session->{in} .= "\\q\n";
	$session->{process}->finish;
	return;
}

# The collection works: reads, writes and purges are right.
sub works
{
	my ($table, $name) = @_;
	is(sql("SELECT count(*) FROM $table"), '100', "$name: reads");
	sql(expired($table, 5) . "INSERT INTO $table (id, doc) VALUES ('$name', '{}'); DELETE FROM $table WHERE id = '$name'");
	error_of($node, 'postgres', "CALL ttl_docs.purge('$table')");
	is(on_disk($table), '100', "$name: the purge finds expired documents");
	return;
}

# ---- All modes ----

new_collection('modes');
sql('ALTER INDEX modes__slot_idx RENAME TO "Index of ""modes"""');
my $lazy = 'modes|Index of "modes"|brin|';
my $consistent = 'modes|Index of "modes"|btree|';
for my $mode ('lazy', 'lazy', 'consistent')
{
	is(error_of($node, 'postgres', "CALL ttl_docs.set_indexing_concurrently('modes', '$mode')"), '', "to $mode: no message");
	is(indexing('modes'), $mode, "to $mode: the setting");
	is(indexes('modes'), $mode eq 'lazy' ? $lazy : $consistent, "to $mode: the index has the name of the old one");
	works('modes', "to $mode");
}
like(
	error_of($node, 'postgres', "CALL ttl_docs.set_indexing_concurrently('modes', 'none')"),
	qr/ERROR:  cannot remove the purge index of "modes" while a DefaultTTL is set.*set_default_ttl\('public\.modes', NULL\)/s,
	'none is refused while TTL is on');
is(indexes('modes'), $consistent, 'none is refused: the index stays');
sql("SELECT ttl_docs.set_default_ttl('modes', NULL)");
sql("CALL ttl_docs.set_indexing_concurrently('modes', 'none')");
is(indexing('modes') . indexes('modes'), 'none', 'to none: the index is gone');
sql("CALL ttl_docs.set_indexing_concurrently('modes', 'consistent')");
is(indexes('modes'), 'modes|modes__slot_idx|btree|', 'from none');
sql("DROP INDEX modes__slot_idx; CALL ttl_docs.set_indexing_concurrently('modes', 'consistent')");
is(indexes('modes'), 'modes|modes__slot_idx|btree|', 'an index that is missing is built again');

# ---- Refused ----

sql('CREATE ROLE stranger; CREATE TABLE plain (id int, doc jsonb)');
my $call = "CALL ttl_docs.set_indexing_concurrently('modes', 'lazy')";
my $in_transaction = qr/ERROR:  25001: .*cannot run inside a transaction block.*HINT: .*set_indexing\(\)/s;
for my $refused (
	[ "BEGIN;\n$call", $in_transaction, 'a transaction block' ],
	[ "SELECT 1 \\; $call", $in_transaction, 'a query string with two commands' ],
	[ "DO \$\$ BEGIN $call; END \$\$", $in_transaction, 'a DO block' ],
	[ "CREATE PROCEDURE change() LANGUAGE plpgsql AS \$\$ BEGIN $call; END \$\$;\nCALL change()", $in_transaction, 'a procedure' ],
	[ "SET ROLE stranger;\n$call", qr/ERROR:  42501: must be owner of table modes/, 'another user' ],
	[ "CALL ttl_docs.set_indexing_concurrently('plain', 'lazy')", qr/ERROR:  42809: "plain" is not a collection/, 'a plain table' ],
	[ "CALL ttl_docs.set_indexing_concurrently('modes', 'Lazy')", qr/ERROR:  22023/, 'an unknown mode' ],
	[ "CALL ttl_docs.set_indexing_concurrently('modes', NULL)", qr/ERROR:  22004/, 'no mode' ],
	[ "CALL ttl_docs.set_indexing_concurrently(NULL, 'lazy')", qr/ERROR:  22004/, 'no collection' ],
	[ "CALL ttl_docs.set_indexing_concurrently(4294967295::oid::regclass, 'lazy')", qr/ERROR:  42P01/, 'no such table' ],
	[ "SET default_transaction_read_only = on;\n$call", qr/ERROR:  25006/, 'a read-only transaction' ])
{
	my ($sql, $error, $name) = @$refused;
	like(error_of($node, 'postgres', "\\set VERBOSITY verbose\n$sql"), $error, "refused: $name");
}
is(indexing('modes') . ' ' . indexes('modes'), 'consistent modes|modes__slot_idx|btree|', 'refused calls have changed nothing');

# ---- While an old transaction holds the build ----

new_collection('held');
for my $how ('cancel', 'kill')
{
	my $old = old_snapshot();
	my $change = start_change('held', 'lazy');
	until_phase($change, 'building the index', "$how: the view shows the phase");
	until_waiting($how);
	is(indexing('held'), 'consistent', "$how: the old indexing is in effect");
	like(indexes('held'), qr/held__slot_idx\|btree\|\n.*\|brin\| invalid/, "$how: the old index is beside the new one");
	works('held', "$how, during the build");
	for my $sql (
		"SELECT ttl_docs.set_indexing('held', 'lazy')", "SELECT ttl_docs.set_default_ttl('held', 60)",
		"SELECT ttl_docs.release('held')", "CALL ttl_docs.set_indexing_concurrently('held', 'lazy')")
	{
		like(
			error_of($node, 'postgres', "\\set VERBOSITY verbose\n$sql"),
			qr/ERROR:  55006: .*HINT: .*stat_progress/s, "$how: refused at once: $sql");
	}
	stop_change($change, $how);
	end_session($old);
	is(indexing('held'), 'consistent', "$how: the old indexing stays");
	works('held', "$how, afterwards");
}
like(finish(start_change('held', 'lazy')), qr/\A\z/, 'continued');
is(indexing('held') . ' ' . indexes('held'), 'lazy held|held__slot_idx|brin|', 'continued: one index is left');

# What is left of an index can also be dropped.
{
	my $old = old_snapshot();
	my $change = start_change('held', 'consistent');
	until_waiting('back');
	stop_change($change, 'cancel');
	end_session($old);
	like(indexes('held'), qr/btree\| invalid/, 'cancelled: an index that is not valid is left');
	sql("CALL ttl_docs.set_indexing_concurrently('held', 'lazy')");
	is(indexes('held'), 'held|held__slot_idx|brin|', 'called with the old mode: it is gone');
}

# A NOTICE names the transaction that the build waits for.
{
	my $old = old_snapshot();
	my $pid = sql("SELECT pid FROM pg_stat_activity WHERE state = 'idle in transaction'");
	my $change = start_change('held', 'consistent');
	until_waiting('notice');
	end_session($old);
	like(finish($change), qr/NOTICE: .*"held".*: $pid\n/, 'a NOTICE names the old transaction');
}

# ---- While a reader holds the drop of the old index ----

for my $how ('cancel', 'kill', 'kill a dead index')
{
	my ($from, $to) = indexing('held') eq 'lazy' ? ('lazy', 'consistent') : ('consistent', 'lazy');
	my %method = (lazy => 'brin', consistent => 'btree');
	my $reader = reader_of('held');
	my $change = start_change('held', $to);
	until_phase($change, 'dropping the old index', "$how: the phase");
	until_waiting($how);
	if ($how =~ /dead/)
	{
		# DROP INDEX CONCURRENTLY waits twice.  The first wait is over when this reader ends.
		my $second = reader_of('held');
		end_session($reader);
		until_is("SELECT count(*) FROM pg_index WHERE indrelid = 'held'::regclass AND NOT indislive", '1',
			"$how: the old index is dead");
		$reader = $second;
	}
	is(indexing('held'), $to, "$how: the new indexing is in effect");
	like(indexes('held'), qr/held__slot_idx\|$method{$to}\|$/m, "$how: the new index has the name of the old one");
	works('held', "$how, while the old index is dropped");
	stop_change($change, $how =~ /kill/ ? 'kill' : $how);
	end_session($reader);
	like(indexes('held'), qr/\|$method{$from}\| (invalid|dead)/, "$how: the old index is left");
	works('held', "$how, afterwards");
	sql("CALL ttl_docs.set_indexing_concurrently('held', '$to')");
	is(indexes('held'), "held|held__slot_idx|$method{$to}|", "$how: the next call drops it");
}

# ---- Partitions ----

sql(q{
	CREATE TABLE parted (id text, part int DEFAULT 1, doc jsonb) PARTITION BY LIST (part);
	CREATE TABLE parted_1 PARTITION OF parted FOR VALUES IN (1);
	CREATE TABLE parted_2 PARTITION OF parted FOR VALUES IN (2) PARTITION BY LIST (part);
	CREATE TABLE parted_22 PARTITION OF parted_2 FOR VALUES IN (2);
	SELECT ttl_docs.adopt('parted', 3600);
	ALTER INDEX parted__slot_idx RENAME TO of_root;
	ALTER INDEX parted_22__slot_idx RENAME TO "of ""22""";
});
sql(live('parted', 100));
sql("UPDATE parted SET part = 2 WHERE id > 'live 50'");

sub indexes_of_parted
{
	my ($method) = @_;
	return "parted|of_root|$method|\nparted_1|parted_1__slot_idx|$method|\nparted_2|parted_2__slot_idx|$method|\n"
	  . "parted_22|of \"22\"|$method|";
}

for my $how ('cancel', 'kill')
{
	my $old = old_snapshot();
	my $change = start_change('parted', 'lazy');
	until_waiting("partitions, $how");
	works('parted', "partitions, $how, during the build");
	stop_change($change, $how);
	end_session($old);
	works('parted', "partitions, $how, afterwards");
}
{
	# A partition that is created during the build gets its index from core.
	my $old = old_snapshot();
	my $change = start_change('parted', 'lazy');
	until_waiting('partitions');
	sql('CREATE TABLE parted_3 PARTITION OF parted FOR VALUES IN (3)');
	end_session($old);
	unlike(finish($change), qr/ERROR/, 'partitions: continued');
	is(indexing('parted') . "\n" . indexes('parted'), "lazy\n" . indexes_of_parted('brin') =~ s/\z/\nparted_3|parted_3__slot_idx|brin|/r,
		'partitions: continued, also for a new partition, and each index keeps its name');
	works('parted', 'partitions, lazy');
	sql('DROP TABLE parted_3');
}
{
	# Nobody waits behind the drop of the old index, which waits for a reader.
	my $reader = reader_of('parted_22');
	my $change = start_change('parted', 'consistent');
	until_phase($change, 'dropping the old index', 'partitions: the drop waits for a reader');
	$change->{process}->pump until $change->{output} =~ /NOTICE:  waiting for transactions that use "parted"/;
	pass('partitions: a NOTICE says so');
	works('parted', 'partitions, while the drop waits');
	end_session($reader);
	finish($change);
	is(indexes('parted'), indexes_of_parted('btree'), 'partitions: back to consistent');
}
like(
	error_of($node, 'postgres', "CALL ttl_docs.set_indexing_concurrently('parted_1', 'lazy')"),
	qr/ERROR:  "parted_1" is a partition of the collection "parted"/, 'a partition alone is refused');

# ---- Under load ----

new_collection('busy');
my $load = start_pgbench(
	$node, q{
	\set id random(1, 100)
	UPDATE busy SET doc = doc || '{"touched": 1}' WHERE id = 'live ' || :id;
	BEGIN; SELECT count(*) FROM busy; INSERT INTO busy (id, doc) VALUES ('x' || random(), '{"ttl": 1}'); COMMIT;
	}, '-c', '4', '--max-tries=1');
for my $mode ('lazy', 'consistent', 'lazy', 'consistent')
{
	unlike(finish(start_change('busy', $mode)), qr/ERROR/, "under load: to $mode");
}
ok(is_running($load), 'under load: the clients go on');
my $output = stop_pgbench($load);
unlike($output, qr/error|aborted/i, 'under load: no client has got an error');
is(indexes('busy'), 'busy|busy__slot_idx|btree|', 'under load: the index has its name');

no_assertion_failed($node);
done_testing();
