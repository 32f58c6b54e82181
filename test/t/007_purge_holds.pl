# Cases in which the purge is held or does not run: on a standby, after a restore, after a jump of
# the clock, on a subscriber, and while TTL is off.
#
# To show that something is not purged, each test first lets workers visit the database.

use strict;
use warnings;

use lib 'test/perl';
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use TtlServer;

my $conf = q{
ttl_docs.purge_naptime = '20ms'
autovacuum = off
};
my $node = start_server('main', $conf, allows_streaming => 'logical');
install_in($node, 'postgres');

# Writes ten expired documents and ten live ones, which inherit a DefaultTTL of an hour.
sub fill
{
	my ($server, $database, $table) = @_;
	$server->safe_psql($database,
		expired($table, 10)
		  . "INSERT INTO $table (id, doc) SELECT 'live ' || i, '{}' FROM generate_series(1, 10) AS i");
	return;
}

# Creates a collection whose purge is paused, and fills it.
sub create_paused
{
	my ($server, $database, $table) = @_;
	$server->safe_psql(
		$database, qq{
		SELECT ttl_docs.create_collection('$table', 3600);
		SELECT ttl_docs.pause_purge('$table');
	});
	fill($server, $database, $table);
	return;
}

# Expired documents are hidden, and nothing is purged.  Counts as a test.
sub is_not_purged
{
	my ($server, $database, $table, $name) = @_;
	is($server->safe_psql($database, "SELECT count(*), on_disk('$table') FROM $table"), '10|20', $name);
	return;
}

# ---- A standby, and its promotion ----

create_paused($node, 'postgres', 'sessions');
$node->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'base', has_streaming => 1);
$standby->append_conf('postgresql.conf', 'hot_standby = on');
$standby->start;
# The standby replays resume_purge(), but not the later purge on the primary.
$standby->safe_psql('postgres', 'SELECT pg_wal_replay_pause()');
my $lsn = $node->safe_psql(
	'postgres', q{
	ALTER DATABASE postgres SET ttl_docs.purge = off;
	SELECT ttl_docs.resume_purge('sessions');
	SELECT pg_current_wal_insert_lsn();
});
$lsn =~ s/\s//g;
$standby->safe_psql('postgres', 'SELECT pg_wal_replay_resume()');
$node->wait_for_catchup($standby, 'replay', $lsn);

is($standby->safe_psql('postgres', stat_of('state', 'sessions')), 'standby', 'standby: the state is standby');
like($standby->safe_psql('postgres', stat_of('hint', 'sessions')),
	qr/primary/, 'standby: the hint names the primary');
like(error_of($standby, 'postgres', 'CALL ttl_docs.purge()'), qr/cannot execute CALL ttl_docs\.purge\(\) during recovery/,
	'standby: CALL purge() is refused');
is_not_purged($standby, 'postgres', 'sessions', 'standby: expired documents are hidden, and still on disk');
is( $standby->safe_psql(
		'postgres', "SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'ttl_docs%'"),
	'0', 'standby: neither a launcher nor a worker runs');

# The standby has the setting of the database, too: ttl_docs.purge is off.
$standby->promote;
$standby->poll_query_until('postgres',
	"SELECT count(*) > 0 FROM pg_stat_activity WHERE backend_type = 'ttl_docs launcher'", 't');
is(count_on_disk($standby, 'postgres', 'sessions'), '20', 'promoted: nothing is purged while ttl_docs.purge is off');
$standby->safe_psql('postgres', 'ALTER DATABASE postgres RESET ttl_docs.purge');
on_disk_becomes($standby, 'postgres', 'sessions', '10', 'promoted: expired documents are purged');
is($standby->safe_psql('postgres', 'SELECT count(*) FROM sessions'), '10', 'promoted: live documents stay');
is($standby->safe_psql('postgres', stat_of('state', 'sessions')), 'idle', 'promoted: the state is idle');
$standby->stop;
$node->safe_psql('postgres', 'ALTER DATABASE postgres RESET ttl_docs.purge');
on_disk_becomes($node, 'postgres', 'sessions', '10', 'the old primary purges, too');

# ---- A restore ----

$node->safe_psql('postgres', 'CREATE DATABASE source');
install_in($node, 'source');
create_paused($node, 'source', 'sessions');
# The collection is not paused in the dump, but the purge is off for the database.
$node->safe_psql('postgres', 'ALTER DATABASE source SET ttl_docs.purge = off');
$node->safe_psql('source', "SELECT ttl_docs.resume_purge('sessions')");
my $dump = $node->basedir . '/source.sql';
$node->command_ok([ 'pg_dump', '-f', $dump, $node->connstr('source') ], 'pg_dump');
$node->safe_psql('postgres', 'CREATE DATABASE restored');
run_script_ok($node, $dump, 'restored', 'the dump is restored');
# A copy of a database has its labels, too.
$node->safe_psql('postgres', 'CREATE DATABASE copied TEMPLATE source');

for my $database (qw(restored copied))
{
	let_workers_visit($node, $database);
	is($node->safe_psql($database, stat_of('state', 'sessions')), 'restored', "$database: the state is restored");
	like($node->safe_psql($database, stat_of('hint', 'sessions')),
		qr/SELECT ttl_docs\.resume_purge\('public\.sessions'\)/, "$database: the hint has the command");
	is_not_purged($node, $database, 'sessions', "$database: workers purge nothing, and expired documents are hidden");
	like(error_of($node, $database, "CALL ttl_docs.purge('sessions')"),
		qr/held: restored/, "$database: CALL purge() of the collection reports the hold");
	$node->safe_psql($database, 'CALL ttl_docs.purge()');
	is(count_on_disk($node, $database, 'sessions'), '20', "$database: CALL purge() purges nothing");
}
# The DefaultTTL can be raised before resume_purge(): expired documents stay expired.
$node->safe_psql(
	'restored', q{
	SELECT ttl_docs.set_default_ttl('sessions', 864000);
	SELECT ttl_docs.resume_purge('sessions');
});
on_disk_becomes($node, 'restored', 'sessions', '10', 'restored: purged after resume_purge()');
is($node->safe_psql('restored', 'SELECT count(*) FROM sessions'), '10', 'restored: live documents stay');
is(count_on_disk($node, 'copied', 'sessions'), '20', 'copied: another database is still held');
$node->safe_psql('copied', "SELECT ttl_docs.resume_purge('sessions')");
on_disk_becomes($node, 'copied', 'sessions', '10', 'copied: purged after resume_purge()');
$node->safe_psql('postgres', "DROP DATABASE $_") for qw(source restored copied);

# ---- TTL is turned off ----

create_paused($node, 'postgres', 'given_up');
$node->safe_psql(
	'postgres', q{
	SELECT ttl_docs.set_default_ttl('given_up', NULL);
	SELECT ttl_docs.resume_purge('given_up');
});
on_disk_becomes($node, 'postgres', 'given_up', '10', 'off: documents that expired before TTL was turned off are purged');
becomes($node, 'postgres', stat_of('state', 'given_up'), 'off', 'off: the state is off');
$node->safe_psql(
	'postgres', q{
	SET ttl_docs.clock_offset = '-5d';
	INSERT INTO given_up (id, doc) VALUES ('old', '{"ttl": 1}');
});
let_workers_visit($node, 'postgres');
is($node->safe_psql('postgres', "SELECT count(*), on_disk('given_up') FROM given_up"),
	'11|11', 'off: all other documents stay');

# ---- A restart, and pg_upgrade ----

my $states = q{
	SELECT string_agg(collection || ' ' || state, ',' ORDER BY collection::text)
	  FROM ttl_docs.stat_collections};
$node->restart;
becomes($node, 'postgres', $states, 'given_up off,sessions idle', 'restart: no collection is held');
$node->safe_psql(
	'postgres', q{
	SET ttl_docs.clock_offset = '-2h';
	INSERT INTO sessions (id, doc) VALUES ('more', '{}');
});
on_disk_becomes($node, 'postgres', 'sessions', '10', 'restart: the purge goes on');
is(count_on_disk($node, 'postgres', 'given_up'), '11', 'restart: a collection with TTL off is not purged');

# pg_upgrade starts the servers itself.  Nothing may write to them meanwhile.
$node->append_conf('postgresql.conf', 'ttl_docs.purge = off');
$node->restart;
$node->safe_psql(
	'postgres', q{
	SET ttl_docs.clock_offset = '-2h';
	INSERT INTO sessions (id, doc) VALUES ('more', '{}');
});
$node->stop;
$node->append_conf('postgresql.conf', 'ttl_docs.purge = on');
my $upgraded = new_server('upgraded', $conf, allows_streaming => 'logical');
my ($ok, $output) = run_pg_upgrade($node, $upgraded);
ok($ok, 'upgraded: pg_upgrade succeeds') or diag($output);
$upgraded->append_conf('postgresql.conf', 'ttl_docs.purge = off');
$upgraded->start;
is($upgraded->safe_psql('postgres', "SELECT count(*), on_disk('sessions') FROM sessions"),
	'10|11', 'upgraded: all documents are on disk, and nothing was purged');
reload_with($upgraded, 'ttl_docs.purge = on');
on_disk_becomes($upgraded, 'postgres', 'sessions', '10', 'upgraded: the purge goes on');
becomes($upgraded, 'postgres', $states, 'given_up off,sessions idle', 'upgraded: no collection is held');
is($upgraded->safe_psql('postgres', "SELECT count(*), on_disk('given_up') FROM given_up"),
	'11|11', 'upgraded: a collection with TTL off is not purged');
$upgraded->stop;

# ---- A subscription ----

my $publisher = $node;
$publisher->start;
my $subscriber = start_server('subscriber', $conf);
install_in($subscriber, 'postgres');
$_->safe_psql('postgres', "SELECT ttl_docs.create_collection('events', 3600)")
  for ($publisher, $subscriber);
$publisher->safe_psql(
	'postgres', q{
	SELECT ttl_docs.pause_purge('events');
	CREATE PUBLICATION pub FOR TABLE events;
});
my $connstr = $publisher->connstr . ' dbname=postgres';
$subscriber->safe_psql('postgres',
	"CREATE SUBSCRIPTION sub CONNECTION '$connstr' PUBLICATION pub");
$subscriber->wait_for_subscription_sync($publisher, 'sub');
fill($publisher, 'postgres', 'events');
$publisher->wait_for_catchup('sub');
let_workers_visit($subscriber, 'postgres');
becomes($subscriber, 'postgres', stat_of('state', 'events'), 'subscription', 'subscriber: the state is subscription');
like($subscriber->safe_psql('postgres', stat_of('hint', 'events')),
	qr/publisher/, 'subscriber: the hint names the publisher');
is_not_purged($subscriber, 'postgres', 'events', 'subscriber: workers purge nothing, and expired documents are hidden');
like(error_of($subscriber, 'postgres', "CALL ttl_docs.purge('events')"),
	qr/: subscription$/m, 'subscriber: CALL purge() reports the hold');

# The purge on the publisher is replicated.  Consumers can distinguish it from a user's DELETE.
my $has_plugin = -e $node->config_data('--pkglibdir') . '/test_decoding.so';
$publisher->safe_psql('postgres',
	"SELECT pg_create_logical_replication_slot('consumer', 'test_decoding')")
  if $has_plugin;
$publisher->safe_psql(
	'postgres', q{
	DELETE FROM events WHERE id = 'live 1';
	SELECT ttl_docs.resume_purge('events');
});
on_disk_becomes($publisher, 'postgres', 'events', '9', 'publisher: expired documents are purged');
on_disk_becomes($subscriber, 'postgres', 'events', '9', 'subscriber: the purge on the publisher is replicated');
SKIP:
{
	skip 'no test_decoding', 3 unless $has_plugin;
	my $changes = $publisher->safe_psql('postgres',
		"SELECT data FROM pg_logical_slot_get_changes('consumer', NULL, NULL, 'include-xids', 'off')");
	my @transactions =
	  grep { /: DELETE:/ } split(/^COMMIT.*\n?/m, $changes);
	my @purges = grep { /^message: /m } @transactions;
	my @deletes = grep { !/^message: /m } @transactions;
	is(scalar(@deletes), 1, 'decoding: a user\'s DELETE has no message');
	like($deletes[0], qr/'live 1'/, 'decoding: the DELETE is the one by the user');
	my $deleted = 0;
	my $good = 0;
	for my $purge (@purges)
	{
		my $count = () = $purge =~ /DELETE: id\[text\]:'expired /g;
		$deleted += $count;
		$good++
		  if $purge =~
		  /\ABEGIN\nmessage: transactional: 1 prefix: ttl_docs, sz: \d+ content:\{"purge": "public\.events", "table": \d+\}\ntable/;
	}
	is("$deleted in $good", '10 in ' . scalar(@purges),
		'decoding: each batch of the purge begins with its message')
	  or diag($changes);
	$publisher->safe_psql('postgres', "SELECT pg_drop_replication_slot('consumer')");
}

# Without the subscription, the purge of the collection is not held.
$publisher->safe_psql('postgres', "DELETE FROM events; SELECT ttl_docs.pause_purge('events')");
fill($publisher, 'postgres', 'events');
$publisher->wait_for_catchup('sub');
is_not_purged($subscriber, 'postgres', 'events', 'subscriber: more expired documents arrive');
$subscriber->safe_psql('postgres', 'DROP SUBSCRIPTION sub');
on_disk_becomes($subscriber, 'postgres', 'events', '10', 'subscription dropped: expired documents are purged');
is($subscriber->safe_psql('postgres', 'SELECT count(*) FROM events'), '10', 'subscription dropped: live documents stay');
is(count_on_disk($publisher, 'postgres', 'events'), '20', 'subscription dropped: the publisher keeps its documents');
$subscriber->stop;

# ---- A clock that jumps ----

sub move_clock
{
	my ($offset) = @_;
	$node->safe_psql('postgres', "ALTER SYSTEM SET ttl_docs.clock_offset = '$offset'");
	$node->reload;
	# wait until new sessions use it
	$node->poll_query_until('postgres',
		"SELECT extract(epoch FROM current_setting('ttl_docs.clock_offset')::interval) = extract(epoch FROM '$offset'::interval)",
		't') or die 'the clock does not move';
	return;
}
$node->safe_psql(
	'postgres', q{
	SELECT ttl_docs.drop_collection('events');
	SELECT ttl_docs.drop_collection('given_up');
	SELECT ttl_docs.create_collection('minutes', 60);
	SELECT ttl_docs.create_collection('accepted', 3600);
	SELECT ttl_docs.create_collection('doubted', 3600);
	INSERT INTO minutes (id, doc) VALUES ('a', '{}');
	INSERT INTO accepted (id, doc) VALUES ('a', '{}'), ('long', '{"ttl": 8640000}');
	INSERT INTO doubted (id, doc) VALUES ('a', '{}'), ('long', '{"ttl": 8640000}');
});
let_workers_visit($node, 'postgres');
is(count_on_disk($node, 'postgres', 'minutes'), '1', 'small step: nothing has expired before the step');
for my $offset ('4min', '8min')
{
	move_clock($offset);
	on_disk_becomes($node, 'postgres', 'minutes', '0', "small step to $offset: expired documents are purged");
	is($node->safe_psql('postgres', stat_of('state', 'minutes')), 'idle', "small step to $offset: the collection is not held");
	$node->safe_psql('postgres', "INSERT INTO minutes (id, doc) VALUES ('$offset', '{}')");
}

move_clock('1d');
for my $table (qw(minutes accepted doubted))
{
	becomes($node, 'postgres', stat_of('state', $table), 'clock jump', "jump: $table is held");
}
like($node->safe_psql('postgres', stat_of('hint', 'doubted')),
	qr/SELECT ttl_docs\.resume_purge\('public\.doubted'\)/, 'jump: the hint has the command');
is( $node->safe_psql(
		'postgres',
		"SELECT (SELECT count(*) FROM doubted), on_disk('doubted'), (SELECT count(*) FROM minutes), on_disk('minutes')"),
	'1|2|0|1', 'jump: expired documents are hidden, and still on disk');
$node->safe_psql('postgres', "SELECT ttl_docs.resume_purge('accepted')");
on_disk_becomes($node, 'postgres', 'accepted', '1', 'jump: a collection is purged after resume_purge()');
is($node->safe_psql('postgres', 'SELECT id FROM accepted'), 'long', 'jump: its live documents stay');
is(count_on_disk($node, 'postgres', 'doubted'), '2', 'jump: other collections are not purged');

# resume_purge() accepts one jump.
$node->safe_psql('postgres', "INSERT INTO accepted (id, doc) VALUES ('b', '{}')");
move_clock('2d');
becomes($node, 'postgres', stat_of('state', 'accepted'), 'clock jump', 'next jump: the collection is held again');
is(count_on_disk($node, 'postgres', 'accepted'), '2', 'next jump: nothing is purged');

# The clock was wrong and is corrected: it moves back.
move_clock('8min');
is( $node->safe_psql('postgres', "SELECT count(*), on_disk('doubted') FROM doubted"),
	'2|2', 'corrected: all documents are visible');
for my $table (qw(minutes doubted))
{
	becomes($node, 'postgres', stat_of('state', $table), 'idle', "corrected: $table is no longer held");
}
# The purge needs neither a command nor a restart.
$node->safe_psql(
	'postgres', q{
	SET ttl_docs.clock_offset = '-2h';
	INSERT INTO doubted (id, doc) VALUES ('late', '{}');
});
on_disk_becomes($node, 'postgres', 'doubted', '2', 'corrected: the purge goes on');
is($node->safe_psql('postgres', 'SELECT count(*) FROM doubted'), '2', 'corrected: live documents stay');
$node->stop;

done_testing();
