# The purge where it could be forgotten, or nobody would see that there is none:
# settings that change while a worker starts, prepared transactions, more tables than
# shared memory has room for, and servers without a worker to spare.
#
# Nothing here waits for a document to expire: those that are to be expired are
# written on a clock that is an hour behind.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use PurgeNode;
use Test::More;
use Time::HiRes qw(usleep time);
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

sub expired
{
	my ($collection, $count) = @_;
	return qq{
		SET ttl_docs.clock_offset = '-1h';
		INSERT INTO $collection (id, doc)
			SELECT 'expired ' || gen_random_uuid(), '{}' FROM generate_series(1, $count) AS i;
		RESET ttl_docs.clock_offset;
	};
}

# ---- Settings that change while a worker starts ----

my $hold_file = $node->data_dir . '/hold_children';

# The processes that are held, or were.
sub held
{
	my @held = glob($node->data_dir . '/held.*');
	return scalar @held;
}

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

# Has a worker start by a command of the session, changes a setting while the worker has
# done nothing but inherit the old one, and lets it go on when the launcher knows of the
# change.
sub change_while_worker_starts
{
	my ($session, $command, $setting) = @_;
	my $log;

	sql('DROP DATABASE IF EXISTS empty');
	ok(wait_until_idle($node), "$setting: no worker is on its way");
	$log = log_size($node);
	unlink glob($node->data_dir . '/held.*');
	append_to_file($hold_file, '');
	$session->query_safe($command);
	wait_for_held(1, "$setting: a worker starts, and is held");
	$node->append_conf('postgresql.conf', $setting);
	$node->reload;
	$node->wait_for_log(qr/parameter "ttl_docs.purge" changed/, $log);
	# the launcher sends a worker there, too, after it has read the settings
	$session->query_safe('CREATE DATABASE empty');
	wait_for_held(2, "$setting: the launcher knows it");
	unlink $hold_file;
	return;
}

sql(q{SELECT ttl_docs.create_collection('docs', 60)});
until_is(stat_of('state', 'docs'), 'disabled', 'ttl_docs.purge = off: disabled');
sql(expired('docs', 10));
my $session = $node->background_psql('postgres');
change_while_worker_starts($session, q{ALTER DATABASE postgres SET work_mem = '8MB'},
	'ttl_docs.purge = on');
until_is(q{SELECT on_disk('docs')}, '0', 'turned on while a worker starts: purged');
until_is(stat_of('state', 'docs'), 'idle', 'and no longer disabled');

change_while_worker_starts($session, expired('docs', 10), 'ttl_docs.purge = off');
until_is(stat_of('state', 'docs'), 'disabled', 'turned off while a worker starts: disabled');
is(sql(q{SELECT on_disk('docs')}), '10', 'and nothing is purged');
$session->quit;

# The state is not lost while the launcher asks again.
my $log = log_size($node);
sql(q{ALTER DATABASE postgres SET work_mem = '16MB'});
my @states = map { sql(stat_of('state', 'docs')) } 1 .. 20;
$node->wait_for_log($worker_start, $log);
is(scalar(grep { $_ ne 'disabled' } @states), 0, 'it stays disabled while a worker finds out');

configure('ttl_docs.purge = on');
until_is(q{SELECT on_disk('docs')}, '0', 'turned on: purged');

# ---- Prepared transactions ----

my $marks = q{SELECT count(*) FROM pg_locks
	WHERE locktype = 'object' AND classid = 'pg_extension'::regclass AND objsubid > 0};

# Prepares a transaction, has the workers look at what they can see of it, and finishes
# it in another session.
sub finish_after_look
{
	my ($name, $statements, $restarts, $end) = @_;
	sql("BEGIN; $statements; PREPARE TRANSACTION '$name';");
	$node->restart if $restarts;
	ok(wait_until_idle($node), "$name: the workers have looked");
	is(sql($marks), '1', "$name: it is known that it changes collections");
	sql(($end // 'COMMIT') . " PREPARED '$name'");
	is(sql($marks), '0', "$name: until it is finished");
	return;
}

for my $restarts (0, 1)
{
	my $after = $restarts ? '_after_restart' : '';
	finish_after_look(
		"created$after", qq{
			SELECT ttl_docs.create_collection('created$after', 60);
			SET LOCAL ttl_docs.clock_offset = '-1h';
			INSERT INTO created$after (id, doc) VALUES ('a', '{}')}, $restarts);
	until_is("SELECT on_disk('created$after')", '0',
		"created$after: a collection that comes by COMMIT PREPARED is purged");

	sql("SELECT ttl_docs.create_collection('lowered$after', -1);" . expired("lowered$after", 10));
	ok(wait_until_idle($node), "lowered$after: nothing to do");
	finish_after_look("lowered$after", "SELECT ttl_docs.set_default_ttl('lowered$after', 60)",
		$restarts);
	until_is("SELECT on_disk('lowered$after')", '0',
		"lowered$after: a DefaultTTL that comes by COMMIT PREPARED");
}

sql(q{SELECT ttl_docs.pause_purge('docs');} . expired('docs', 10));
until_is(stat_of('state', 'docs'), 'paused', 'a collection is paused');
finish_after_look('resumed', q{SELECT ttl_docs.resume_purge('docs')});
until_is(q{SELECT on_disk('docs')}, '0', 'it is purged after a resume_purge() by COMMIT PREPARED');

sql(q{ALTER DATABASE postgres SET ttl_docs.purge = off; } . expired('docs', 10));
until_is(stat_of('state', 'docs'), 'disabled', 'the purge is off in the database');
finish_after_look('altered', q{ALTER DATABASE postgres RESET ttl_docs.purge});
until_is(q{SELECT on_disk('docs')}, '0', 'it is purged after an ALTER DATABASE by COMMIT PREPARED');

finish_after_look('rolled back', q{SELECT ttl_docs.set_default_ttl('docs', 30)}, 0, 'ROLLBACK');
sql(expired('docs', 10));
until_is(q{SELECT on_disk('docs')}, '0', 'it goes on after ROLLBACK PREPARED');

# Transactions of others
sql('CREATE TABLE plain (n int)');
ok(wait_until_idle($node), 'nothing to do');
$log = log_size($node);
sql(qq{BEGIN; INSERT INTO plain VALUES ($_); PREPARE TRANSACTION 'plain $_'}) for 1 .. 3;
is(sql($marks), '0', 'a transaction that changes no collection has no mark');
sql("COMMIT PREPARED 'plain $_'") for 1 .. 3;
ok(wait_until_idle($node), 'they are finished');
is(worker_starts($node, $log), 0, 'and nobody was woken');

# ---- A visit that fails while it lists the tables ----

# The lock is that of a prepared transaction, so that no session has to wait for it.  The
# statistics are not asked for the table: that would give it an entry in shared memory.
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
until_is("SELECT on_disk('listed')", '0', 'listing: it is made again');

# ---- More tables than entries ----

sub restart_with
{
	my ($settings) = @_;
	$node->append_conf('postgresql.conf', $settings);
	$node->restart;
	return;
}

# Collections that are written to first take the entries.
restart_with("ttl_docs.max_tables = 8\nttl_docs.purge = off\nttl_docs.purge_workers = 1\n");
sql(q{SELECT ttl_docs.drop_collection(collection) FROM ttl_docs.collections});
sql(q{
	CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS
		'BEGIN PERFORM pg_sleep(0.005); RETURN NULL; END';
});
my @placed = map { "placed_$_" } 1 .. 8;
my @slow = map { "slow_$_" } 1 .. 12;
my @quick = map { "quick_$_" } 1 .. 3;
sql("SELECT ttl_docs.create_collection('$_', 60);" . expired($_, 1)) for @placed, @slow, @quick;
sql("CREATE TRIGGER slow AFTER DELETE ON $_ FOR EACH ROW EXECUTE FUNCTION slow();"
	  . expired($_, 20000)) for @slow;
is( sql(q{SELECT count(*) FILTER (WHERE estimated_backlog IS NOT NULL),
				count(*) FILTER (WHERE estimated_backlog IS NULL AND oldest_overdue IS NULL)
			FROM ttl_docs.stat_collections}),
	'8|15', 'eight tables have an entry, and of the others nothing is counted');
configure('ttl_docs.purge = on');
until_is(
	'SELECT ' . join(' + ', map { "on_disk('$_')" } @quick),
	'0', 'tables without an entry get their turn, however long others take');
cmp_ok(sql("SELECT on_disk('slow_1')"), '>', 0, 'before the first of them are finished');
until_is(
	q{SELECT state || ' ' || (hint LIKE '%no room%') FROM ttl_docs.stat_collections
		WHERE collection = 'quick_1'::regclass},
	'uncounted true', 'which is shown');

# Those with an entry have their share, and leave the others theirs.
sql("CREATE TRIGGER slow AFTER DELETE ON $_ FOR EACH ROW EXECUTE FUNCTION slow();"
	  . expired($_, 20000)) for @placed;
sql(expired($_, 10)) for @quick;
until_is(
	'SELECT ' . join(' + ', map { "on_disk('$_')" } @quick),
	'0', 'a backlog of tables with an entry does not keep those without');
until_is(stat_of('purged > 1', 'placed_1'), 't', 'nor the other way round');
cmp_ok(sql("SELECT on_disk('placed_1')"), '>', 0, 'which still have one');
sql("DROP TRIGGER slow ON $_") for @placed, @slow;
until_is(
	'SELECT ' . join(' + ', map { "on_disk('$_')" } @placed, @slow, @quick),
	'0', 'all is purged in the end');

# Writes to a table without an entry
ok(wait_until_idle($node), 'nothing to do');
$log = log_size($node);
my $began = time;
sql(join('', map { expired('quick_1', 1) } 1 .. 99));
ok(wait_until_idle($node), '99 writes');
cmp_ok(worker_starts($node, $log), '<=', 1 + (time - $began) / 30,
	'and no worker was sent but for a round');
# so that the test need not wait for the next round
sql(q{SELECT ttl_docs.resume_purge('quick_1')});
until_is(q{SELECT on_disk('quick_1')}, '0', 'a change of a collection begins a round');

# An entry that becomes free goes to somebody else.
sql(q{SELECT ttl_docs.drop_collection('placed_1')});
sql(q{SELECT ttl_docs.resume_purge('quick_1')});
until_is(
	q{SELECT count(*) FROM ttl_docs.stat_collections WHERE estimated_backlog IS NOT NULL},
	'8', 'an entry that becomes free is used');

# ---- No launcher, no worker ----

my $state = q{SELECT state || ': ' || substring(hint FROM 'max_worker_processes')
	FROM ttl_docs.stat_collections WHERE collection = 'docs'::regclass};

restart_with("ttl_docs.max_tables = 10000\nmax_worker_processes = 1\n");
sql(q{SELECT ttl_docs.create_collection('docs', 60), ttl_docs.create_collection('held', 60);
	SELECT ttl_docs.pause_purge('held')});
sql(expired('docs', 10));
is(sql($state), 'no launcher: max_worker_processes', 'max_worker_processes = 1');
is(sql(stat_of('state', 'held')), 'paused', 'a hold comes first');
# the launcher of logical replication has the other slot
restart_with("max_worker_processes = 2\n");
until_is($state, 'no worker: max_worker_processes', 'max_worker_processes = 2');
restart_with("max_worker_processes = 16\n");
until_is(q{SELECT on_disk('docs')}, '0', 'with more of them it is purged');
until_is(stat_of('state', 'docs'), 'idle', 'and idle');

# for some seconds
is( sql(q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity
			WHERE backend_type = 'ttl_docs launcher'}),
	't', 'somebody ends the launcher');
until_is($state, 'no launcher: max_worker_processes', 'there is none');
until_is(stat_of('state', 'docs'), 'idle', 'until it is back');

unlike(slurp_file($node->logfile), qr/TRAP:|PANIC:/, 'no assertion has failed');
$node->stop;

done_testing();
