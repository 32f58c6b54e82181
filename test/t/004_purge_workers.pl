# The launcher and its workers in one database: they start by themselves, come
# back after whatever ends them, sleep when there is nothing to do, and keep to
# the settings.
#
# Nothing here waits for a document to expire: those that are to be expired are
# written on a clock that is an hour behind.  To be caught in the middle of a
# backlog, a worker is held up by a trigger that takes some milliseconds for each
# document.

use strict;
use warnings;

use lib 'test/perl';
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);
use WorkerLog;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
# The purge is as it is without any configuration.
$node->append_conf(
	'postgresql.conf', q{
shared_preload_libraries = 'ttl_docs'
log_min_messages = debug1
restart_after_crash = on
max_prepared_transactions = 5
max_worker_processes = 16
autovacuum = off
});
$node->start;

my $launcher =
  q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'ttl_docs launcher'};

# Runs SQL, and returns its output.
sub sql
{
	my ($sql) = @_;
	return $node->safe_psql('postgres', $sql);
}

# Waits until a query returns true, and says so as a test.
sub becomes
{
	my ($query, $name) = @_;
	ok(wait_until($query), $name);
	return;
}

# The same in silence.  The query sees what is on disk.
sub wait_until
{
	my ($query) = @_;
	local $ENV{PGOPTIONS} = ($ENV{PGOPTIONS} // '') . ' -c ttl_docs.show_expired=on';
	return $node->poll_query_until('postgres', $query);
}

sub create_collections
{
	my (@names) = @_;
	sql("SELECT ttl_docs.create_collection('$_', 60)") for @names;
	return;
}

# The statements that write expired documents to a collection.
sub expired
{
	my ($collection, $count) = @_;
	return qq{
		SET ttl_docs.clock_offset = '-1h';
		INSERT INTO $collection (id, doc)
			SELECT 'expired ' || i, '{}' FROM generate_series(1, $count) AS i;
		RESET ttl_docs.clock_offset;
	};
}

sub live
{
	my ($collection, $count) = @_;
	return qq{
		INSERT INTO $collection (id, doc)
			SELECT 'live ' || i, '{"ttl": 86400}' FROM generate_series(1, $count) AS i;
	};
}

sub on_disk
{
	my ($collection) = @_;
	return sql("SET ttl_docs.show_expired = on; SELECT count(*) FROM $collection");
}

# A query that is true when so many documents are on disk.
sub has_on_disk
{
	my ($collection, $count) = @_;
	return "SELECT count(*) = $count FROM $collection";
}

sub has_state
{
	my ($collection, $state) = @_;
	return qq{SELECT state = '$state' FROM ttl_docs.stat_collections
		WHERE collection = '$collection'::regclass};
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

# A collection whose documents take milliseconds each, with a backlog that lasts
# for a minute, and some live documents; a worker is at it.
sub start_slow_backlog
{
	my ($collection) = @_;
	create_collections($collection);
	sql("SELECT ttl_docs.pause_purge('$collection')");
	sql(qq{
		CREATE TRIGGER slow AFTER DELETE ON $collection
			FOR EACH ROW EXECUTE FUNCTION slow();
	} . expired($collection, 20000) . live($collection, 100));
	sql("SELECT ttl_docs.resume_purge('$collection')");
	wait_until("SELECT EXISTS (" . worker_at($collection) . ")");
	wait_until(
		"SELECT purged > 0 FROM ttl_docs.stat_collections
		  WHERE collection = '$collection'::regclass");
	cmp_ok(on_disk($collection), '>', 5000, "$collection: in the middle of a backlog");
	return;
}

# Lets the worker of that hurry: nothing but the live documents is left then.
sub end_slow_backlog
{
	my ($collection) = @_;
	sql("DROP TRIGGER slow ON $collection");
	becomes(has_on_disk($collection, 100), "$collection: the purge goes on");
	is(sql("SELECT count(*) FROM $collection WHERE id LIKE 'live %'"),
		'100', "$collection: live documents stay");
	sql("SELECT ttl_docs.drop_collection('$collection')");
	return;
}

sub set_and_reload
{
	my (@settings) = @_;
	sql("ALTER SYSTEM SET $_") for @settings;
	$node->reload;
	return;
}

#
# From the first start, without configuration and without a restart
#

becomes("SELECT EXISTS ($launcher)", 'the launcher starts with the server');
sql('CREATE EXTENSION ttl_docs');
create_collections('docs');
sql(expired('docs', 100) . live('docs', 100));
becomes(has_on_disk('docs', 100), 'CREATE EXTENSION is all it takes');
is(sql("SELECT count(*) FROM docs WHERE id LIKE 'live %'"),
	'100', 'live documents stay');
becomes(
	q{SELECT state = 'idle' AND purged = 100 AND batches > 0 AND
			last_purge IS NOT NULL AND estimated_backlog = 0 AND
			oldest_overdue IS NULL AND undeletable = 0 AND last_error IS NULL
		FROM ttl_docs.stat_collections WHERE collection = 'docs'::regclass},
	'stat_collections tells');

sql(q{
	CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS
		'BEGIN PERFORM pg_sleep(0.005); RETURN NULL; END';
});
set_and_reload("ttl_docs.purge_naptime = '20ms'");

#
# Nothing to do
#

ok(wait_until_idle($node), 'workers leave when there is nothing to do');
my $offset = log_size($node);
for my $i (1 .. 20)
{
	# what is written last is due last
	sql(join("\n",
			map { "SELECT count(*) FROM docs WHERE id = '$_'; UPDATE docs SET doc = doc || '{\"n\": $i}' WHERE id = 'live $_';" } 1 .. 20));
}
is(worker_starts($node, $offset), 0,
	'no worker starts while nothing is due, whatever sessions do');

# The launcher sleeps until tomorrow now.
sql(q{INSERT INTO docs (id, doc) VALUES ('soon', '{"ttl": 1}')});
becomes(has_on_disk('docs', 100), 'a document that is due earlier wakes it');
ok(wait_until_idle($node), 'and it goes to sleep again');

# It is told of what is told at the same time as a change of collections, too.
sql(q{
	SET ttl_docs.clock_offset = '-1h';
	BEGIN;
	INSERT INTO docs (id, doc) VALUES ('old', '{}');
	SELECT ttl_docs.create_collection('another', 60);
	COMMIT;
});
becomes(has_on_disk('docs', 100), 'an old document beside a new collection');

#
# What ends it
#

start_slow_backlog('restarted');
my $began = time;
$node->stop('fast');
cmp_ok(time - $began, '<', 30, 'a fast shutdown does not wait for a backlog');
$node->start;
becomes("SELECT EXISTS (" . worker_at('restarted') . ")", 'after a restart, a worker is back');
end_slow_backlog('restarted');

start_slow_backlog('crashed');
my $pid = sql(worker_at('crashed') . ' LIMIT 1');
my $old_launcher = sql($launcher);
$offset = log_size($node);
# should the visit have just ended, any process will do
kill('KILL', $pid eq '' ? $old_launcher : $pid);
$node->wait_for_log(qr/all server processes terminated; reinitializing/, $offset);
becomes("SELECT EXISTS (" . worker_at('crashed') . ")", 'after a crash, a worker is back');
becomes("SELECT EXISTS ($launcher AND pid <> $old_launcher)", 'and the launcher');
is(sql("SELECT count(*) FROM crashed"), '100',
	'after a crash, nothing expired is shown and nothing live is lost');
end_slow_backlog('crashed');

# Somebody ends a worker between two batches, where purge_max_rate keeps it.  (If it
# was at work on a table, that table is left alone for a while.)
sub terminate_worker
{
	my ($collection) = @_;
	do
	{
		$pid = sql(worker_at($collection) . " AND wait_event_type = 'Extension' LIMIT 1");
	} while ($pid eq '' || sql("SELECT pg_terminate_backend($pid)") ne 't');
	becomes("SELECT EXISTS (" . worker_at($collection) . " AND pid <> $pid)",
		'somebody ends a worker, and there is another one');
	return;
}

$old_launcher = sql($launcher);
is(sql("SELECT pg_terminate_backend($old_launcher)"), 't', 'somebody ends the launcher');
create_collections('terminated');
set_and_reload('ttl_docs.purge_max_rate = 20');
sql(expired('terminated', 2000) . live('terminated', 100));
terminate_worker('terminated');
isnt(sql($launcher), $old_launcher, 'the launcher has come back');
set_and_reload('ttl_docs.purge_max_rate = 0');
becomes(has_on_disk('terminated', 100), 'the purge goes on');

# Once more with what is in slots that the purge has passed already
set_and_reload('ttl_docs.purge_max_rate = 20');
sql(expired('terminated', 2000));
terminate_worker('terminated');
set_and_reload('ttl_docs.purge_max_rate = 0');
becomes(has_on_disk('terminated', 100), 'and does not forget what it was told of');
is(sql('SELECT count(*) FROM terminated'), '100', 'live documents stay');

#
# Turned off and on
#

# Workers that look there leave again.
sub stays_on_disk
{
	my ($collection, $count, $name) = @_;
	becomes(has_state($collection, 'disabled'), "$name: shown as disabled");
	my $before = log_size($node);
	$node->reload;
	$node->wait_for_log($worker_start, $before);
	becomes(has_state($collection, 'disabled'), "$name: still so");
	is(on_disk($collection), $count, "$name: nothing is purged");
	return;
}

create_collections('switched');
set_and_reload('ttl_docs.purge = off');
sql(expired('switched', 10));
stays_on_disk('switched', 10, 'ttl_docs.purge = off');
set_and_reload('ttl_docs.purge = on');
becomes(has_on_disk('switched', 0), 'ttl_docs.purge = on: purged');

sql('ALTER DATABASE postgres SET ttl_docs.purge = off');
sql(expired('switched', 10));
stays_on_disk('switched', 10, 'off for the database');
sql('ALTER DATABASE postgres RESET ttl_docs.purge');
becomes(has_on_disk('switched', 0), 'on for the database: purged');

sql('ALTER DATABASE postgres SET default_transaction_read_only = on');
sql('SET default_transaction_read_only = off;' . expired('switched', 10));
stays_on_disk('switched', 10, 'default_transaction_read_only');
sql('SET default_transaction_read_only = off; ALTER DATABASE postgres RESET default_transaction_read_only');
becomes(has_on_disk('switched', 0), 'no longer read only: purged');

# Settings of the database that are for others; here the command line overrides them
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
	becomes(has_on_disk('switched', 0), 'settings of the database do not keep it');
	sql('ALTER DATABASE postgres RESET ALL');
}

create_collections('paused', 'witness');
sql("SELECT ttl_docs.pause_purge('paused')");
sql(expired('paused', 10) . expired('witness', 10));
becomes(has_on_disk('witness', 0), 'a paused collection does not keep another one');
is(on_disk('paused'), '10', 'and is not purged');
becomes(has_state('paused', 'paused'), 'which is shown');
sql("SELECT ttl_docs.resume_purge('paused')");
becomes(has_on_disk('paused', 0), 'it is after resume_purge()');

#
# The cap
#

create_collections('turn_a', 'turn_b');
set_and_reload('ttl_docs.purge_max_rate = 10');
sql(expired('turn_a', 1000) . expired('turn_b', 1000));
becomes(
	q{SELECT bool_and(purged > 0) FROM ttl_docs.stat_collections
		WHERE collection IN ('turn_a'::regclass, 'turn_b'::regclass)},
	'collections take turns');
cmp_ok(on_disk('turn_a'), '>', 0, 'before the one is finished');
cmp_ok(on_disk('turn_b'), '>', 0, 'or the other');
becomes("SELECT EXISTS (" . worker_at('turn_b') . ')', 'pg_stat_activity shows what it does');

# Counted from below and timed from above, so a slow machine does not matter.
my $purged = q{SELECT sum(purged)::int FROM ttl_docs.stat_collections
	WHERE collection IN ('turn_a'::regclass, 'turn_b'::regclass)};
my $clock = 'SELECT extract(epoch FROM clock_timestamp())';
my $first_time = sql($clock);
my $first_count = sql($purged);
wait_until("SELECT ($purged) >= $first_count + 30");
my $last_count = sql($purged);
my $last_time = sql($clock);
cmp_ok($last_count - $first_count, '<=', 10 * ($last_time - $first_time) + 3,
	'purge_max_rate is kept');

for my $collection ('turn_a', 'turn_b')
{
	becomes(
		qq{SELECT state = 'capped' AND hint LIKE '%purge_max_rate%' AND
				estimated_backlog > 0 AND oldest_overdue > '50min'
			FROM ttl_docs.stat_collections WHERE collection = '$collection'::regclass},
		"$collection: capped, and by how much it lags");
}
set_and_reload('ttl_docs.purge_max_rate = 0');
becomes(has_on_disk('turn_a', 0), 'raised, all is purged');
becomes(has_on_disk('turn_b', 0), 'of both');

#
# Several workers
#

my @many = map { "many_$_" } 1 .. 12;
create_collections(@many);
set_and_reload('ttl_docs.purge_workers = 3');
sql('ALTER DATABASE postgres SET ttl_docs.purge = off');
for my $collection (@many)
{
	sql(qq{
		CREATE TRIGGER slow AFTER DELETE ON $collection
			FOR EACH ROW EXECUTE FUNCTION slow();
	} . expired($collection, 2000) . live($collection, 1));
}
sql('ALTER DATABASE postgres RESET ttl_docs.purge');
becomes(
	q{SELECT count(*) > 1 FROM pg_stat_activity
		WHERE backend_type = 'ttl_docs purge worker' AND
			query LIKE 'ttl_docs: purging %many_%'},
	'with purge_workers = 3, several are at work');
sql("DROP TRIGGER slow ON $_") for @many;
becomes(
	'SELECT count(*) = 12 FROM ('
	  . join(' UNION ALL ', map { "SELECT id FROM $_" } @many) . ') AS all_of_them',
	'and all is purged but what is live');
set_and_reload('ttl_docs.purge_workers = 1');

#
# Locks and open transactions
#

create_collections('locked', 'unlocked');
sql('ALTER DATABASE postgres SET ttl_docs.purge = off');
sql(expired('locked', 10) . expired('unlocked', 10));
my $session = $node->background_psql('postgres');
$session->query_safe('BEGIN; LOCK TABLE locked IN ACCESS EXCLUSIVE MODE');
sql('ALTER DATABASE postgres RESET ttl_docs.purge');
becomes(has_on_disk('unlocked', 0), 'ACCESS EXCLUSIVE on a table does not keep another one');
wait_until(
	q{SELECT NOT EXISTS (SELECT FROM pg_locks WHERE relation = 'locked'::regclass AND NOT granted)});
is($session->query_safe('SET LOCAL ttl_docs.show_expired = on; SELECT count(*) FROM locked'),
	'10', 'the one is left');
$session->query_safe('COMMIT');
becomes(has_on_disk('locked', 0), 'until it is unlocked');

# The same when the purge learns of documents while the table is locked: it had
# been purged to the end before.
my $writer = $node->background_psql('postgres');
$writer->query_safe(q{SET ttl_docs.clock_offset = '-1h'});
$writer->query_safe(q{BEGIN; INSERT INTO locked (id, doc) VALUES ('told', '{}')});
$session->query_safe('BEGIN');
$session->query_until(qr/waits/, "\\echo waits\nLOCK TABLE locked IN ACCESS EXCLUSIVE MODE;\n");
wait_until(
	q{SELECT EXISTS (SELECT FROM pg_locks WHERE relation = 'locked'::regclass AND NOT granted)});
$offset = log_size($node);
$writer->query_safe('COMMIT');
$writer->quit;
# looked at, twice
$node->wait_for_log(qr/$worker_start.*$worker_start/s, $offset);
$session->query_safe('COMMIT');
becomes(has_on_disk('locked', 0), 'what it is told of while a table is locked');

# A transaction that is not over yet, by whose document the purge has come
create_collections('open');
$session->query_safe(q{SET ttl_docs.clock_offset = '-1h'});
$session->query_safe(q{BEGIN; INSERT INTO open (id, doc) VALUES ('not committed', '{}')});
sql(expired('open', 10));
becomes(has_state('open', 'waiting'), 'a document that is not committed is waited for');
$session->query_safe(q{SET LOCAL ttl_docs.show_expired = on});
becomes(
	q{SELECT purged = 10 FROM ttl_docs.stat_collections WHERE collection = 'open'::regclass},
	'and keeps no others');
is($session->query_safe('SELECT count(*) FROM open'), '1', 'and is left');
$session->query_safe('COMMIT');
becomes(
	q{SELECT purged = 11 FROM ttl_docs.stat_collections WHERE collection = 'open'::regclass},
	'when it is committed, it is purged');

# Two-phase commit
sql(q{
	SET ttl_docs.clock_offset = '-1h';
	BEGIN;
	INSERT INTO open (id, doc) VALUES ('prepared', '{}');
	PREPARE TRANSACTION 'prepared';
});
becomes(has_state('open', 'waiting'), 'a prepared document is waited for');
sql(q{COMMIT PREPARED 'prepared'});
becomes(
	q{SELECT purged = 12 AND state = 'idle' FROM ttl_docs.stat_collections
		WHERE collection = 'open'::regclass},
	'and purged after COMMIT PREPARED');

# A locked row; to the session that locks it, it is live.
sql(q{SELECT ttl_docs.pause_purge('open')});
sql(expired('open', 10));
$session->query_safe(q{BEGIN; SELECT FROM open WHERE id = 'expired 5' FOR UPDATE});
sql(q{SELECT ttl_docs.resume_purge('open')});
becomes(has_on_disk('open', 1), 'a locked document keeps no others');
becomes(
	q{SELECT state = 'waiting' AND hint LIKE '%pg_locks%' AND estimated_backlog = 1
		FROM ttl_docs.stat_collections WHERE collection = 'open'::regclass},
	'and is shown');
$session->query_safe('COMMIT');
$session->quit;
becomes(has_on_disk('open', 0), 'until it is unlocked');
becomes(has_state('open', 'idle'), 'which is shown, too');

#
# Kinds of collections
#

sql(q{SELECT ttl_docs.create_collection('lazy', 60, 'lazy')});
sql(expired('lazy', 1000) . live('lazy', 10));
becomes(has_on_disk('lazy', 10), 'a lazy collection');

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
becomes(has_on_disk('parts', 20), 'partitions, also those that came later');
is(sql('SELECT count(*), count(DISTINCT n) FROM parts'), '20|20', 'live documents of all of them stay');
# A partition that is busy is left, and so is what was opened for it: test/run.sh looks
# for leaks in the log.
sql('ALTER DATABASE postgres SET ttl_docs.purge = off');
sql(q{SET ttl_docs.clock_offset = '-1h'; INSERT INTO parts SELECT 'expired', '{}', i FROM generate_series(0, 19) AS i});
my $partition = $node->background_psql('postgres');
$partition->query_safe('BEGIN; LOCK TABLE parts_1 IN SHARE MODE');
sql('ALTER DATABASE postgres RESET ttl_docs.purge');
becomes(has_on_disk('parts', 30), 'a partition that is locked does not keep the others');
$partition->query_safe('COMMIT');
becomes(has_on_disk('parts', 20), 'until it is unlocked');
$partition->quit;
# more tables in a transaction than a session keeps apart, all of them purged before
sql(q{
	CREATE TABLE wide (doc jsonb, n int) PARTITION BY LIST (n);
	SELECT format('CREATE TABLE wide_%s PARTITION OF wide FOR VALUES IN (%1$s)', i)
		FROM generate_series(1, 20) AS i \gexec
	SELECT ttl_docs.adopt('wide', 60);
});
ok(wait_until_idle($node), 'idle after a look at twenty tables');
sql(q{
	SET ttl_docs.clock_offset = '-1h';
	INSERT INTO wide SELECT '{}', i % 20 + 1 FROM generate_series(1, 200) AS i;
});
becomes(has_on_disk('wide', 0), 'twenty tables in a transaction');

#
# The end
#

# A clock that is set for a database is for its sessions.
ok(wait_until_idle($node), 'idle at the end');
sql(q{ALTER DATABASE postgres SET ttl_docs.clock_offset = '-1h'});
sql(q{SET ttl_docs.clock_offset = 0; INSERT INTO docs (id, doc) VALUES ('now', '{"ttl": 1}')});
becomes(has_on_disk('docs', 100), 'workers go by the clock of the server');
ok(wait_until_idle($node), 'and are not sent in vain');
sql('ALTER DATABASE postgres RESET ttl_docs.clock_offset');

my $log = slurp_file($node->logfile);
unlike($log, qr/TRAP:|PANIC:/, 'no assertion has failed');
unlike($log, qr/could not purge documents/, 'there was no trouble with any document');
is( scalar(() = $log =~ /FATAL: .*ttl_docs/g),
	scalar(() = $log =~ /FATAL: .*terminating background worker "ttl_docs .*" due to administrator command/g),
	'no worker ended but those that were ended');
$node->stop;

done_testing();
