# Cases in which the purge could miss documents, or stop without notice: settings that
# change while a worker starts, prepared transactions, more tables than shared memory has entries
# for, and servers without a free slot for a worker.  And the predicate locks of CALL purge().
#
# No test waits for a document to expire: expired documents are written with a clock that is
# hours behind.

use strict;
use warnings;

use lib 'test/perl';
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use PurgeNode;
use Test::More;
use Time::HiRes qw(usleep time);
use TtlServer;
use WorkerLog;

my $node = start_node(
	q{
shared_preload_libraries = 'ttl_docs, hold_children'
ttl_docs.purge_workers = 4
ttl_docs.purge_grace = 0
max_prepared_transactions = 5
max_worker_processes = 16
log_min_messages = debug1
});

# ---- Settings that change while a worker starts ----

my $hold_file = $node->data_dir . '/hold_children';

# Returns how many processes hold_children has stopped.
sub held
{
	my @held = glob($node->data_dir . '/held.*');
	return scalar @held;
}

# Waits until hold_children has stopped this number of processes.  Counts as a test.
sub wait_for_held
{
	my ($count, $name) = @_;
	for (my $i = 0; $i < 1800 && held() < $count; $i++)
	{
		usleep(100_000);
	}
	is(held(), $count, $name);
	return;
}

# 1. Runs a command in the session that makes a worker start.  hold_children stops the worker, which
#    has inherited the old setting.
# 2. Changes the setting, and waits until the launcher has read it.
# 3. Lets the worker continue.
sub change_while_worker_starts
{
	my ($session, $command, $setting) = @_;
	my $log;

	sql('DROP DATABASE IF EXISTS empty');
	ok(wait_until_idle($node), "$setting: no worker runs before");
	$log = log_size($node);
	unlink glob($node->data_dir . '/held.*');
	append_to_file($hold_file, '');
	$session->query_safe($command);
	wait_for_held(1, "$setting: a worker starts, and is stopped");
	configure($setting);
	$node->wait_for_log(qr/parameter "ttl_docs.purge" changed/, $log);
	# after it has read the settings, the launcher starts a worker for a new database
	$session->query_safe('CREATE DATABASE empty');
	wait_for_held(2, "$setting: the launcher has read the setting");
	unlink $hold_file;
	return;
}

sql(q{SELECT ttl_docs.create_collection('docs', 60)});
until_state('docs', 'disabled', 'ttl_docs.purge = off: the state is disabled');
sql(expired('docs', 10));
my $session = $node->background_psql('postgres');
change_while_worker_starts($session, q{ALTER DATABASE postgres SET work_mem = '8MB'},
	'ttl_docs.purge = on');
until_on_disk('docs', 0, 'turned on while a worker starts: the collection is purged');
until_state('docs', 'idle', 'turned on while a worker starts: the state is idle');

change_while_worker_starts($session, expired('docs', 10), 'ttl_docs.purge = off');
until_state('docs', 'disabled', 'turned off while a worker starts: the state is disabled');
is(on_disk('docs'), '10', 'turned off while a worker starts: nothing is purged');
$session->quit;

# The state does not change while a worker reads the settings of the database again.
my $log = log_size($node);
sql(q{ALTER DATABASE postgres SET work_mem = '16MB'});
my @states = map { sql(stat_of('state', 'docs')) } 1 .. 20;
$node->wait_for_log($worker_start, $log);
is(scalar(grep { $_ ne 'disabled' } @states), 0, 'the state stays disabled while a worker visits the database');

configure('ttl_docs.purge = on');
until_on_disk('docs', 0, 'turned on: the collection is purged');

# ---- Prepared transactions ----

my $marks = q{SELECT count(*) FROM pg_locks
	WHERE locktype = 'object' AND classid = 'pg_extension'::regclass AND objsubid > 0};

# Prepares a transaction, lets workers visit the database, and finishes the transaction in another
# session.
sub finish_after_visit
{
	my ($name, $statements, $restarts, $end) = @_;
	sql("BEGIN; $statements; PREPARE TRANSACTION '$name';");
	$node->restart if $restarts;
	ok(wait_until_idle($node), "$name: workers have visited the database");
	is(sql($marks), '1', "$name: a lock marks the transaction as one that changes collections");
	sql(($end // 'COMMIT') . " PREPARED '$name'");
	is(sql($marks), '0', "$name: the mark ends with the transaction");
	return;
}

for my $restarts (0, 1)
{
	my $after = $restarts ? '_after_restart' : '';
	finish_after_visit(
		"created$after", qq{
			SELECT ttl_docs.create_collection('created$after', 60);
			SET LOCAL ttl_docs.clock_offset = '-1h';
			INSERT INTO created$after (id, doc) VALUES ('a', '{}')}, $restarts);
	until_on_disk("created$after", 0, "created$after: a collection that COMMIT PREPARED creates is purged");

	sql("SELECT ttl_docs.create_collection('lowered$after', -1);" . expired("lowered$after", 10));
	ok(wait_until_idle($node), "lowered$after: workers have nothing to do");
	finish_after_visit("lowered$after", "SELECT ttl_docs.set_default_ttl('lowered$after', 60)",
		$restarts);
	until_on_disk("lowered$after", 0, "lowered$after: a collection whose DefaultTTL COMMIT PREPARED lowers is purged");
}

sql(q{SELECT ttl_docs.pause_purge('docs');} . expired('docs', 10));
until_state('docs', 'paused', 'resumed: the state is paused before');
finish_after_visit('resumed', q{SELECT ttl_docs.resume_purge('docs')});
until_on_disk('docs', 0, 'resumed: the collection is purged after COMMIT PREPARED of a resume_purge()');

sql(q{ALTER DATABASE postgres SET ttl_docs.purge = off; } . expired('docs', 10));
until_state('docs', 'disabled', 'altered: the state is disabled before');
finish_after_visit('altered', q{ALTER DATABASE postgres RESET ttl_docs.purge});
until_on_disk('docs', 0, 'altered: the collection is purged after COMMIT PREPARED of an ALTER DATABASE');

finish_after_visit('rolled back', q{SELECT ttl_docs.set_default_ttl('docs', 30)}, 0, 'ROLLBACK');
sql(expired('docs', 10));
until_on_disk('docs', 0, 'rolled back: the purge goes on after ROLLBACK PREPARED');

# Transactions that change no collection
sql('CREATE TABLE plain (n int)');
ok(wait_until_idle($node), 'plain: workers have nothing to do');
$log = log_size($node);
sql(qq{BEGIN; INSERT INTO plain VALUES ($_); PREPARE TRANSACTION 'plain $_'}) for 1 .. 3;
is(sql($marks), '0', 'plain: a transaction that changes no collection has no mark');
sql("COMMIT PREPARED 'plain $_'") for 1 .. 3;
ok(wait_until_idle($node), 'plain: the transactions are finished');
is(worker_starts($node, $log), 0, 'plain: no worker has started');

# ---- A visit that fails while it lists the tables ----

# A prepared transaction holds the lock, so that no session has to stay open.  The test does not
# read stat_collections: that would give the table an entry in shared memory.
$log = log_size($node);
configure('ttl_docs.purge = off');
$node->wait_for_log(qr/parameter "ttl_docs.purge" changed/, $log);
sql(q{
	CREATE TABLE listed (id text PRIMARY KEY, doc jsonb, changed timestamptz);
	INSERT INTO listed SELECT i, '{}', now() - interval '1h' FROM generate_series(1, 10) AS i;
	SELECT ttl_docs.adopt('listed', 60, last_modified => 'changed');
});
sql(q{
	BEGIN;
	LOCK TABLE pg_seclabel IN ACCESS EXCLUSIVE MODE;
	PREPARE TRANSACTION 'labels';
});
$log = log_size($node);
configure('ttl_docs.purge = on');
$node->wait_for_log(qr/canceling statement due to lock timeout/, $log);
sql(q{COMMIT PREPARED 'labels'});
until_on_disk('listed', 0, 'a worker lists the tables again, and the collection is purged');

# ---- More tables than entries ----

# Waits until nothing is left on disk of some collections.  Counts as a test.
sub until_purged
{
	my ($name, @collections) = @_;
	until_is('SELECT ' . join(' + ', map { "on_disk('$_')" } @collections), '0', $name);
	return;
}

# Changes settings that need a restart.
sub restart_with
{
	my ($settings) = @_;
	$node->append_conf('postgresql.conf', $settings);
	$node->restart;
	return;
}

# The collections that are written to first get the entries.
restart_with("ttl_docs.max_tables = 8\nttl_docs.purge = off\nttl_docs.purge_workers = 1\n");
sql(q{SELECT ttl_docs.drop_collection(collection) FROM ttl_docs.collections});
sql(slow_function(0.005));
my @placed = map { "placed_$_" } 1 .. 8;
my @slow = map { "slow_$_" } 1 .. 12;
my @quick = map { "quick_$_" } 1 .. 3;
sql("SELECT ttl_docs.create_collection('$_', 60);" . expired($_, 1)) for @placed, @slow, @quick;
sql(slow_trigger($_) . expired($_, 20000)) for @slow;
is( sql(q{SELECT count(*) FILTER (WHERE estimated_backlog IS NOT NULL),
				count(*) FILTER (WHERE estimated_backlog IS NULL AND oldest_overdue IS NULL)
			FROM ttl_docs.stat_collections}),
	'8|15', 'eight tables have an entry; the backlog of the others is not counted');
configure('ttl_docs.purge = on');
until_purged('tables without an entry are purged while others without an entry take long', @quick);
cmp_ok(on_disk('slow_1'), '>', 0, 'a slow table without an entry is not finished yet');
until_is(
	q{SELECT state || ' ' || (hint LIKE '%no room%') FROM ttl_docs.stat_collections
		WHERE collection = 'quick_1'::regclass},
	'uncounted true', 'the state is uncounted, and the hint gives the reason');

# Tables with an entry and tables without one share the time.
sql(slow_trigger($_) . expired($_, 20000)) for @placed;
sql(expired($_, 10)) for @quick;
until_purged('tables without an entry are purged while those with an entry have a backlog', @quick);
until_is(stat_of('purged > 1', 'placed_1'), 't', 'tables with an entry are purged, too');
cmp_ok(on_disk('placed_1'), '>', 0, 'tables with an entry are not finished yet');
sql("DROP TRIGGER slow ON $_") for @placed, @slow;
until_purged('all tables are purged at the end', @placed, @slow, @quick);

# Writes to a table without an entry
ok(wait_until_idle($node), 'no entry: workers have nothing to do');
$log = log_size($node);
my $began = time;
sql(join('', map { expired('quick_1', 1) } 1 .. 99));
ok(wait_until_idle($node), 'no entry: 99 writes are done');
cmp_ok(worker_starts($node, $log), '<=', 1 + (time - $began) / 30,
	'no entry: writes start no worker, only the regular rounds do');
# so that the test need not wait for the next round
sql(q{SELECT ttl_docs.resume_purge('quick_1')});
until_on_disk('quick_1', 0, 'no entry: a change of a collection starts a round');

# When an entry becomes free, another table gets it.
sql(q{SELECT ttl_docs.drop_collection('placed_1')});
sql(q{SELECT ttl_docs.resume_purge('quick_1')});
until_is(
	q{SELECT count(*) FROM ttl_docs.stat_collections WHERE estimated_backlog IS NOT NULL},
	'8', 'an entry that becomes free is used again');

# ---- No launcher, no worker ----

my $state = q{SELECT state || ': ' || substring(hint FROM 'max_worker_processes')
	FROM ttl_docs.stat_collections WHERE collection = 'docs'::regclass};

restart_with("ttl_docs.max_tables = 10000\nmax_worker_processes = 1\n");
sql(q{SELECT ttl_docs.create_collection('docs', 60), ttl_docs.create_collection('held', 60);
	SELECT ttl_docs.pause_purge('held')});
sql(expired('docs', 10));
is(sql($state), 'no launcher: max_worker_processes', 'max_worker_processes = 1: no launcher runs');
is(sql(stat_of('state', 'held')), 'paused', 'without a launcher, a paused collection is still shown as paused');
# the launcher of logical replication uses the other slot
restart_with("max_worker_processes = 2\n");
until_is($state, 'no worker: max_worker_processes', 'max_worker_processes = 2: no worker can start');
restart_with("max_worker_processes = 16\n");
until_on_disk('docs', 0, 'max_worker_processes = 16: the collection is purged');
until_state('docs', 'idle', 'max_worker_processes = 16: the state is idle');

# The launcher is missing for some seconds.
is( sql(q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity
			WHERE backend_type = 'ttl_docs launcher'}),
	't', 'the launcher is terminated');
until_is($state, 'no launcher: max_worker_processes', 'the state shows that there is no launcher');
until_state('docs', 'idle', 'the state is idle when the launcher is back');

# ---- SERIALIZABLE ----

# CALL purge() takes two searches for a slot of 100,000 documents.  The transaction has predicate locks of all
# leaf pages: of all pages but the first one and the root.
restart_with("ttl_docs.purge = off\nmax_pred_locks_per_relation = 1000\n");
sql(q{
	CREATE TABLE serial (id int, doc jsonb);
	SELECT ttl_docs.adopt('serial', 60);
	SET row_security = off;
	INSERT INTO serial (id, doc, _ts) SELECT i, '{}', timestamptz '2020-01-01' FROM generate_series(1, 100000) AS i;
});
is(sql(q{
		BEGIN ISOLATION LEVEL SERIALIZABLE;
		CALL ttl_docs.purge('serial');
		SELECT count(*) = pg_relation_size(indexrelid) / current_setting('block_size')::int - 2, count(*) > 50
			FROM pg_index JOIN pg_locks ON relation = indexrelid
			WHERE indrelid = 'serial'::regclass AND locktype = 'page' AND mode = 'SIReadLock'
			GROUP BY indexrelid;
		COMMIT}),
	't|t', 'SERIALIZABLE: CALL purge() locks all pages that it reads');
is(on_disk('serial'), 0, 'SERIALIZABLE: all documents are purged');

no_assertion_failed($node);
$node->stop;

done_testing();
