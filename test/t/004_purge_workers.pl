# The launcher and its workers in one database.  They start by themselves, start again after they
# were ended, sleep when there is nothing to do, and follow the settings.
#
# No test waits for a document to expire: expired documents are written with a clock that is
# hours behind.  A trigger that takes some milliseconds for each document keeps a worker in
# the middle of a backlog.

use strict;
use warnings;

use lib 'test/perl';
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use PurgeNode;
use Test::More;
use Time::HiRes qw(time);
use TtlServer;
use WorkerLog;

# The settings of the purge are the defaults.
my $node = start_server(
	'main', q{
log_min_messages = debug1
restart_after_crash = on
max_prepared_transactions = 5
max_worker_processes = 16
autovacuum = off
});
use_node($node);

my $launcher =
  q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'ttl_docs launcher'};

# Waits until a query has a row.  Counts as a test.
sub until_exists
{
	my ($query, $name) = @_;
	until_is("SELECT EXISTS ($query)", 't', $name);
	return;
}

sub create_collections
{
	my (@names) = @_;
	sql("SELECT ttl_docs.create_collection('$_', 60)") for @names;
	return;
}

# A query for the worker that purges a collection.
sub worker_at
{
	my ($collection) = @_;
	return qq{SELECT pid FROM pg_stat_activity
		WHERE backend_type = 'ttl_docs purge worker' AND
			datname = current_database() AND
			query LIKE 'ttl_docs: purging %$collection%'};
}

# Makes a collection with live documents and a backlog that lasts for a minute or more, and
# waits until a worker purges it.
sub start_slow_backlog
{
	my ($collection) = @_;
	create_collections($collection);
	sql("SELECT ttl_docs.pause_purge('$collection')");
	sql(slow_trigger($collection) . expired($collection, 20000) . live($collection, 100));
	sql("SELECT ttl_docs.resume_purge('$collection')");
	until_exists(worker_at($collection), "$collection: a worker purges it");
	until_is(stat_of('purged > 0', $collection), 't', "$collection: some documents are purged");
	cmp_ok(on_disk($collection), '>', 5000, "$collection: most of the backlog is left");
	return;
}

# Removes the delay, and waits until only the live documents are left.
sub end_slow_backlog
{
	my ($collection) = @_;
	sql("DROP TRIGGER slow ON $collection");
	until_on_disk($collection, 100, "$collection: the purge goes on");
	is(sql("SELECT count(*) FROM $collection WHERE id LIKE 'live %'"),
		'100', "$collection: live documents stay");
	sql("SELECT ttl_docs.drop_collection('$collection')");
	return;
}

#
# The purge works from the first start, without configuration and without a restart
#

until_exists($launcher, 'the launcher starts with the server');
install_in($node, 'postgres');
create_collections('docs');
sql(expired('docs', 100) . live('docs', 100));
until_on_disk('docs', 100, 'the purge needs nothing but CREATE EXTENSION');
is(sql("SELECT count(*) FROM docs WHERE id LIKE 'live %'"),
	'100', 'live documents stay');
until_is(
	q{SELECT state = 'idle' AND purged = 100 AND batches > 0 AND
			last_purge IS NOT NULL AND estimated_backlog = 0 AND
			oldest_overdue IS NULL AND undeletable = 0 AND last_error IS NULL
		FROM ttl_docs.stat_collections WHERE collection = 'docs'::regclass},
	't', 'stat_collections shows what was purged');

sql(slow_function(0.005));
configure("ttl_docs.purge_naptime = '20ms'");

#
# Nothing to do
#

ok(wait_until_idle($node), 'workers leave when there is nothing to do');
my $offset = log_size($node);
for my $i (1 .. 20)
{
	# a document that is written later expires later
	sql(join("\n",
			map { "SELECT count(*) FROM docs WHERE id = '$_'; UPDATE docs SET doc = doc || '{\"n\": $i}' WHERE id = 'live $_';" } 1 .. 20));
}
is(worker_starts($node, $offset), 0,
	'no worker starts while nothing expires, although sessions read and write');

# The launcher sleeps until tomorrow.
sql(q{INSERT INTO docs (id, doc) VALUES ('soon', '{"ttl": 1}')});
until_on_disk('docs', 100, 'a document that expires earlier wakes the launcher');
ok(wait_until_idle($node), 'the launcher goes to sleep again');

# One transaction writes an expired document and creates a collection: the launcher notices both.
sql(q{
	SET ttl_docs.clock_offset = '-1h';
	BEGIN;
	INSERT INTO docs (id, doc) VALUES ('old', '{}');
	SELECT ttl_docs.create_collection('another', 60);
	COMMIT;
});
until_on_disk('docs', 100, 'an expired document written in the transaction that creates a collection is purged');

#
# Shutdown, crash, and the end of a process
#

start_slow_backlog('restarted');
my $began = time;
$node->stop('fast');
cmp_ok(time - $began, '<', 30, 'a fast shutdown does not wait for a backlog');
$node->start;
until_exists(worker_at('restarted'), 'after a restart, a worker purges again');
end_slow_backlog('restarted');

start_slow_backlog('crashed');
my $pid = sql(worker_at('crashed') . ' LIMIT 1');
my $old_launcher = sql($launcher);
$offset = log_size($node);
# if the visit has just ended, kill the launcher instead
kill('KILL', $pid eq '' ? $old_launcher : $pid);
wait_for_restart($node, $offset);
until_exists(worker_at('crashed'), 'after a crash, a worker purges again');
until_exists("$launcher AND pid <> $old_launcher", 'after a crash, the launcher starts again');
is(sql("SELECT count(*) FROM crashed"), '100',
	'after a crash, expired documents stay hidden and live documents are visible');
end_slow_backlog('crashed');

# Terminates a worker between two batches, where purge_max_rate makes it wait.  If a worker ended
# in the middle of a batch, the purge would skip the table for a while.
sub terminate_worker
{
	my ($collection) = @_;
	do
	{
		$pid = sql(worker_at($collection) . " AND wait_event_type = 'Extension' LIMIT 1");
	} while ($pid eq '' || sql("SELECT pg_terminate_backend($pid)") ne 't');
	until_exists(worker_at($collection) . " AND pid <> $pid", 'another worker starts after one is terminated');
	return;
}

$old_launcher = sql($launcher);
is(sql("SELECT pg_terminate_backend($old_launcher)"), 't', 'the launcher is terminated');
create_collections('terminated');
configure('ttl_docs.purge_max_rate = 20');
sql(expired('terminated', 2000) . live('terminated', 100));
terminate_worker('terminated');
isnt(sql($launcher), $old_launcher, 'another launcher starts');
configure('ttl_docs.purge_max_rate = 0');
until_on_disk('terminated', 100, 'the purge goes on');

# Again, with documents in slots that the purge has already passed
configure('ttl_docs.purge_max_rate = 20');
sql(expired('terminated', 2000));
terminate_worker('terminated');
configure('ttl_docs.purge_max_rate = 0');
until_on_disk('terminated', 100, 'the next worker purges documents in slots that were passed before');
is(sql('SELECT count(*) FROM terminated'), '100', 'live documents stay');

#
# Turned off and on
#

# Workers visit the database, and purge nothing.
sub stays_on_disk
{
	my ($collection, $count, $name) = @_;
	until_state($collection, 'disabled', "$name: the state is disabled");
	my $before = log_size($node);
	$node->reload;
	$node->wait_for_log($worker_start, $before);
	until_state($collection, 'disabled', "$name: the state is disabled after another visit");
	is(on_disk($collection), $count, "$name: nothing is purged");
	return;
}

create_collections('switched');
configure('ttl_docs.purge = off');
sql(expired('switched', 10));
stays_on_disk('switched', 10, 'ttl_docs.purge = off');
configure('ttl_docs.purge = on');
until_on_disk('switched', 0, 'ttl_docs.purge = on: the collection is purged');

sql('ALTER DATABASE postgres SET ttl_docs.purge = off');
sql(expired('switched', 10));
stays_on_disk('switched', 10, 'ttl_docs.purge = off for the database');
sql('ALTER DATABASE postgres RESET ttl_docs.purge');
until_on_disk('switched', 0, 'ttl_docs.purge is reset for the database: the collection is purged');

sql('ALTER DATABASE postgres SET default_transaction_read_only = on');
sql('SET default_transaction_read_only = off;' . expired('switched', 10));
stays_on_disk('switched', 10, 'default_transaction_read_only');
sql('SET default_transaction_read_only = off; ALTER DATABASE postgres RESET default_transaction_read_only');
until_on_disk('switched', 0, 'default_transaction_read_only is reset: the collection is purged');

# Settings of the database do not apply to workers.  For psql, the command line overrides them.
sql(q{
	CREATE ROLE nobody;
	ALTER DATABASE postgres SET role = nobody;
	ALTER DATABASE postgres SET session_replication_role = replica;
	ALTER DATABASE postgres SET default_transaction_isolation = serializable;
	ALTER DATABASE postgres SET search_path = nowhere;
	ALTER DATABASE postgres SET statement_timeout = 1;
});
{
	local $ENV{PGOPTIONS} = join(' ', map { "-c $_" } 'role=none', 'search_path=public',
		'session_replication_role=origin', 'statement_timeout=0');
	sql(expired('switched', 5000));
	until_on_disk('switched', 0, 'settings of the database do not disturb the purge');
	sql('ALTER DATABASE postgres RESET ALL');
}

create_collections('paused', 'witness');
sql("SELECT ttl_docs.pause_purge('paused')");
sql(expired('paused', 10) . expired('witness', 10));
until_on_disk('witness', 0, 'another collection is purged while one is paused');
is(on_disk('paused'), '10', 'a paused collection is not purged');
until_state('paused', 'paused', 'the state of a paused collection is paused');
sql("SELECT ttl_docs.resume_purge('paused')");
until_on_disk('paused', 0, 'a paused collection is purged after resume_purge()');

#
# The maximum rate
#

create_collections('turn_a', 'turn_b');
configure('ttl_docs.purge_max_rate = 10');
sql(expired('turn_a', 1000) . expired('turn_b', 1000));
until_is(
	q{SELECT bool_and(purged > 0) FROM ttl_docs.stat_collections
		WHERE collection IN ('turn_a'::regclass, 'turn_b'::regclass)},
	't', 'collections take turns');
cmp_ok(on_disk('turn_a'), '>', 0, 'turn_a is not finished yet');
cmp_ok(on_disk('turn_b'), '>', 0, 'turn_b is not finished yet');
until_exists(worker_at('turn_b'), 'pg_stat_activity shows which collection a worker purges');

# The measured time includes both counts, so the test does not fail on a slow machine.
my $purged = q{SELECT sum(purged)::int FROM ttl_docs.stat_collections
	WHERE collection IN ('turn_a'::regclass, 'turn_b'::regclass)};
my $clock = 'SELECT extract(epoch FROM clock_timestamp())';
my $first_time = sql($clock);
my $first_count = sql($purged);
until_is("SELECT ($purged) >= $first_count + 30", 't', 'some documents are purged');
my $last_count = sql($purged);
my $last_time = sql($clock);
cmp_ok($last_count - $first_count, '<=', 10 * ($last_time - $first_time) + 3,
	'workers keep to purge_max_rate');

for my $collection ('turn_a', 'turn_b')
{
	until_is(
		qq{SELECT state = 'capped' AND hint LIKE '%purge_max_rate%' AND
				estimated_backlog > 0 AND oldest_overdue > '50min'
			FROM ttl_docs.stat_collections WHERE collection = '$collection'::regclass},
		't', "$collection: the state is capped, and the backlog is shown");
}
configure('ttl_docs.purge_max_rate = 0');
until_on_disk('turn_a', 0, 'turn_a is purged without a maximum rate');
until_on_disk('turn_b', 0, 'turn_b is purged without a maximum rate');

#
# Several workers
#

my @many = map { "many_$_" } 1 .. 12;
create_collections(@many);
configure('ttl_docs.purge_workers = 3');
sql('ALTER DATABASE postgres SET ttl_docs.purge = off');
for my $collection (@many)
{
	sql(slow_trigger($collection) . expired($collection, 2000) . live($collection, 1));
}
sql('ALTER DATABASE postgres RESET ttl_docs.purge');
until_is(
	q{SELECT count(*) > 1 FROM pg_stat_activity
		WHERE backend_type = 'ttl_docs purge worker' AND
			query LIKE 'ttl_docs: purging %many_%'},
	't', 'with purge_workers = 3, several workers purge at the same time');
sql("DROP TRIGGER slow ON $_") for @many;
until_is('SELECT ' . join(' + ', map { "on_disk('$_')" } @many),
	'12', 'several workers purge all collections, and live documents stay');
configure('ttl_docs.purge_workers = 1');

#
# Locks and open transactions
#

create_collections('locked', 'unlocked');
sql('ALTER DATABASE postgres SET ttl_docs.purge = off');
sql(expired('locked', 10) . expired('unlocked', 10));
my $session = $node->background_psql('postgres');
$session->query_safe('BEGIN; LOCK TABLE locked IN ACCESS EXCLUSIVE MODE');
sql('ALTER DATABASE postgres RESET ttl_docs.purge');
until_on_disk('unlocked', 0, 'another collection is purged while one is locked');
until_is(q{SELECT count(*) FROM pg_locks WHERE relation = 'locked'::regclass AND NOT granted},
	'0', 'no worker waits for the lock');
is($session->query_safe('SET LOCAL ttl_docs.show_expired = on; SELECT count(*) FROM locked'),
	'10', 'the locked collection is not purged');
$session->query_safe('COMMIT');
until_on_disk('locked', 0, 'the locked collection is purged after the lock is released');

# The collection was purged completely.  A new expired document is committed while the table is
# locked.
my $writer = $node->background_psql('postgres');
$writer->query_safe(q{SET ttl_docs.clock_offset = '-1h'});
$writer->query_safe(q{BEGIN; INSERT INTO locked (id, doc) VALUES ('told', '{}')});
$session->query_safe('BEGIN');
$session->query_until(qr/waits/, "\\echo waits\nLOCK TABLE locked IN ACCESS EXCLUSIVE MODE;\n");
until_exists(q{SELECT FROM pg_locks WHERE relation = 'locked'::regclass AND NOT granted},
	'a session waits for the lock');
$offset = log_size($node);
$writer->query_safe('COMMIT');
$writer->quit;
# two workers have tried
$node->wait_for_log(qr/$worker_start.*$worker_start/s, $offset);
$session->query_safe('COMMIT');
until_on_disk('locked', 0, 'a document that was committed while the table was locked is purged');

# The purge finds a document of a transaction that is still open.
create_collections('open');
$session->query_safe(q{SET ttl_docs.clock_offset = '-2h'});
$session->query_safe(q{BEGIN; INSERT INTO open (id, doc) VALUES ('not committed', '{}')});
sql(expired('open', 10));
until_state('open', 'waiting', 'the state is waiting while a document is not committed');
$session->query_safe(q{SET LOCAL ttl_docs.show_expired = on});
until_is(stat_of('purged = 10', 'open'), 't', 'other documents are purged meanwhile');
is($session->query_safe('SELECT count(*) FROM open'), '1', 'the document that is not committed stays');
$session->query_safe('COMMIT');
until_is(stat_of('purged = 11', 'open'), 't', 'the document is purged after its commit');

# Two-phase commit
sql(q{
	SET ttl_docs.clock_offset = '-1h';
	BEGIN;
	INSERT INTO open (id, doc) VALUES ('prepared', '{}');
	PREPARE TRANSACTION 'prepared';
});
until_state('open', 'waiting', 'the state is waiting while a document is prepared');
sql(q{COMMIT PREPARED 'prepared'});
until_is(
	q{SELECT purged = 12 AND state = 'idle' FROM ttl_docs.stat_collections
		WHERE collection = 'open'::regclass},
	't', 'a prepared document is purged after COMMIT PREPARED');

# A locked document.  For the session that locks it, the document is live.
sql(q{SELECT ttl_docs.pause_purge('open')});
sql(expired('open', 10));
$session->query_safe(q{BEGIN; SELECT FROM open WHERE id LIKE 'expired 5 %' FOR UPDATE});
sql(q{SELECT ttl_docs.resume_purge('open')});
until_on_disk('open', 1, 'other documents are purged while one is locked');
until_is(
	q{SELECT state = 'waiting' AND hint LIKE '%pg_locks%' AND estimated_backlog = 1
		FROM ttl_docs.stat_collections WHERE collection = 'open'::regclass},
	't', 'the state is waiting while a document is locked, with a hint');
$session->query_safe('COMMIT');
$session->quit;
until_on_disk('open', 0, 'the document is purged after the lock is released');
until_state('open', 'idle', 'the state is idle after the lock is released');

#
# Kinds of collections
#

sql(q{SELECT ttl_docs.create_collection('lazy', 60, 'lazy')});
sql(expired('lazy', 1000) . live('lazy', 10));
until_on_disk('lazy', 10, 'a lazy collection is purged');

sql(q{
	CREATE TABLE parts (id text, doc jsonb, n int) PARTITION BY RANGE (n);
	CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (10);
	CREATE TABLE parts_2 PARTITION OF parts FOR VALUES FROM (10) TO (20)
		PARTITION BY RANGE (n);
	CREATE TABLE parts_2_1 PARTITION OF parts_2 FOR VALUES FROM (10) TO (15);
	SELECT ttl_docs.adopt('parts', 60, doc_column => 'doc');
	CREATE TABLE parts_2_2 PARTITION OF parts_2 FOR VALUES FROM (15) TO (20);
	SET ttl_docs.clock_offset = '-1h';
	INSERT INTO parts SELECT 'expired', '{}', i % 20 FROM generate_series(1, 200) AS i;
	RESET ttl_docs.clock_offset;
	INSERT INTO parts SELECT 'live', '{}', i FROM generate_series(0, 19) AS i;
});
until_on_disk('parts', 20, 'all partitions are purged, also those that were created later');
is(sql('SELECT count(*), count(DISTINCT n) FROM parts'), '20|20', 'live documents of all partitions stay');
# A worker skips a partition that is locked, and leaks no resources: test/run.sh searches the log
# for leaks.
sql('ALTER DATABASE postgres SET ttl_docs.purge = off');
sql(q{SET ttl_docs.clock_offset = '-1h'; INSERT INTO parts SELECT 'expired', '{}', i FROM generate_series(0, 19) AS i});
my $partition = $node->background_psql('postgres');
$partition->query_safe('BEGIN; LOCK TABLE parts_1 IN SHARE MODE');
sql('ALTER DATABASE postgres RESET ttl_docs.purge');
until_on_disk('parts', 30, 'other partitions are purged while one is locked');
$partition->query_safe('COMMIT');
until_on_disk('parts', 20, 'the locked partition is purged after the lock is released');
$partition->quit;
# One transaction writes to more tables than a session tracks one by one.  All of them were
# visited before.
sql(q{
	CREATE TABLE wide (doc jsonb, n int) PARTITION BY LIST (n);
	SELECT format('CREATE TABLE wide_%s PARTITION OF wide FOR VALUES IN (%1$s)', i)
		FROM generate_series(1, 20) AS i \gexec
	SELECT ttl_docs.adopt('wide', 60);
});
ok(wait_until_idle($node), 'workers have visited twenty tables');
sql(q{
	SET ttl_docs.clock_offset = '-1h';
	INSERT INTO wide SELECT '{}', i % 20 + 1 FROM generate_series(1, 200) AS i;
});
until_on_disk('wide', 0, 'twenty tables that one transaction wrote to are purged');

#
# The end
#

# The clock_offset of a database applies to its sessions, but not to workers.
ok(wait_until_idle($node), 'workers have nothing to do');
sql(q{ALTER DATABASE postgres SET ttl_docs.clock_offset = '-1h'});
sql(q{SET ttl_docs.clock_offset = 0; INSERT INTO docs (id, doc) VALUES ('now', '{"ttl": 1}')});
until_on_disk('docs', 100, 'workers use the clock of the server');
ok(wait_until_idle($node), 'the launcher starts no worker without work');
sql('ALTER DATABASE postgres RESET ttl_docs.clock_offset');

no_assertion_failed($node);
is(count_log($node, qr/could not purge documents/, 0), 0, 'every document could be purged');
is( count_log($node, qr/FATAL: .*ttl_docs/, 0),
	count_log($node, qr/FATAL: .*terminating background worker "ttl_docs .*" due to administrator command/, 0),
	'no worker has failed, except those that the test terminated');
$node->stop;

done_testing();
