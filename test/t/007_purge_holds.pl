# When the purge must wait: on a standby, after a restore, when the clock has
# jumped, on a subscriber, and where TTL was turned off.
#
# "Not purged" is shown against something that is: a new collection, twice, so
# that a visit that has looked at everything is over.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $conf = q{
shared_preload_libraries = 'ttl_docs'
ttl_docs.purge_naptime = '20ms'
autovacuum = off
};
# A function, because poll_query_until() takes a single result.
my $on_disk = q{
	CREATE EXTENSION IF NOT EXISTS ttl_docs;
	CREATE FUNCTION on_disk(collection regclass) RETURNS bigint
	LANGUAGE plpgsql SET ttl_docs.show_expired = on AS $$
	DECLARE result bigint;
	BEGIN
		EXECUTE format('SELECT count(*) FROM %s', collection) INTO result;
		RETURN result;
	END $$;
};
my $node = PostgreSQL::Test::Cluster->new('main');
$node->init(allows_streaming => 'logical');
$node->append_conf('postgresql.conf', $conf);
$node->start;
$node->safe_psql('postgres', $on_disk);

sub stat_of
{
	my ($column, $collection) = @_;
	return "SELECT $column FROM ttl_docs.stat_collections WHERE collection = '$collection'::regclass";
}

# Waits until a query returns what is expected, and counts as a test.
sub until_is
{
	my ($server, $database, $query, $expected, $name) = @_;
	ok($server->poll_query_until($database, $query, $expected), $name)
	  or diag($server->safe_psql($database, 'SELECT * FROM ttl_docs.stat_collections'));
	return;
}

# Ten documents that have expired, and ten that have not, of that DefaultTTL
sub fill
{
	my ($server, $database, $table) = @_;
	$server->safe_psql(
		$database, qq{
		BEGIN;
		SET LOCAL ttl_docs.clock_offset = '-2h';
		INSERT INTO $table (id, doc) SELECT 'expired ' || i, '{}' FROM generate_series(1, 10) AS i;
		COMMIT;
		INSERT INTO $table (id, doc) SELECT 'live ' || i, '{}' FROM generate_series(1, 10) AS i;
	});
	return;
}

# Has the workers look at all collections of a database.
sub let_workers_look
{
	my ($server, $database) = @_;
	for my $i (1, 2)
	{
		$server->safe_psql(
			$database, q{
			SELECT ttl_docs.create_collection('probe', 60);
			BEGIN;
			SET LOCAL ttl_docs.clock_offset = '-2d';
			INSERT INTO probe (id, doc) VALUES ('a', '{}');
			COMMIT;
		});
		$server->poll_query_until($database, "SELECT on_disk('probe')", '0')
		  or die 'the workers do not work';
		$server->safe_psql($database, "SELECT ttl_docs.drop_collection('probe')");
	}
	return;
}

# ---- A standby, and its promotion ----

$node->safe_psql(
	'postgres', q{
	SELECT ttl_docs.create_collection('sessions', 3600);
	SELECT ttl_docs.pause_purge('sessions');
});
fill($node, 'postgres', 'sessions');
$node->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'base', has_streaming => 1);
$standby->append_conf('postgresql.conf', 'hot_standby = on');
$standby->start;
# The primary is about to purge it; the standby gets that it may, but not that
# it was: replay stops in between.
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

is($standby->safe_psql('postgres', stat_of('state', 'sessions')), 'standby', 'standby: the state');
like($standby->safe_psql('postgres', stat_of('hint', 'sessions')),
	qr/primary/, 'standby: who purges');
my ($ret, $stdout, $stderr) = $standby->psql('postgres', 'CALL ttl_docs.purge()');
like($stderr, qr/cannot execute CALL ttl_docs\.purge\(\) during recovery/,
	'standby: CALL purge() is refused');
is($standby->safe_psql('postgres', "SELECT count(*), on_disk('sessions') FROM sessions"),
	'10|20', 'standby: what has expired is invisible, and there');
is( $standby->safe_psql(
		'postgres', "SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'ttl_docs%'"),
	'0', 'standby: there is no launcher and no worker');

# The setting of the database came along; it is the one thing in the way then.
$standby->promote;
$standby->poll_query_until('postgres',
	"SELECT count(*) > 0 FROM pg_stat_activity WHERE backend_type = 'ttl_docs launcher'", 't');
is($standby->safe_psql('postgres', "SELECT on_disk('sessions')"),
	'20', 'promoted: nothing is purged where ttl_docs.purge is off');
$standby->safe_psql('postgres', 'ALTER DATABASE postgres RESET ttl_docs.purge');
until_is($standby, 'postgres', "SELECT on_disk('sessions')", '10', 'promoted: it is purged');
is($standby->safe_psql('postgres', 'SELECT count(*) FROM sessions'), '10', 'promoted: what is live stays');
is($standby->safe_psql('postgres', stat_of('state', 'sessions')), 'idle', 'promoted: the state');
$standby->stop;
$node->safe_psql('postgres', 'ALTER DATABASE postgres RESET ttl_docs.purge');
until_is($node, 'postgres', "SELECT on_disk('sessions')", '10', 'the primary purges, too');

# ---- A restore ----

$node->safe_psql('postgres', 'CREATE DATABASE source');
$node->safe_psql('source', $on_disk);
$node->safe_psql('source', q{
	SELECT ttl_docs.create_collection('sessions', 3600);
	SELECT ttl_docs.pause_purge('sessions');
});
fill($node, 'source', 'sessions');
# Not paused when it is dumped; but its purge is off.
$node->safe_psql(
	'postgres', 'ALTER DATABASE source SET ttl_docs.purge = off');
$node->safe_psql('source', "SELECT ttl_docs.resume_purge('sessions')");
my $dump = $node->basedir . '/source.sql';
$node->command_ok([ 'pg_dump', '-f', $dump, $node->connstr('source') ], 'pg_dump');
$node->safe_psql('postgres', 'CREATE DATABASE restored');
$node->command_ok(
	[ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-f', $dump, $node->connstr('restored') ],
	'restored');
# A copy of a database brings its labels, too.
$node->safe_psql('postgres', 'CREATE DATABASE copied TEMPLATE source');

for my $database (qw(restored copied))
{
	let_workers_look($node, $database);
	is($node->safe_psql($database, stat_of('state', 'sessions')), 'restored', "$database: the state");
	like($node->safe_psql($database, stat_of('hint', 'sessions')),
		qr/SELECT ttl_docs\.resume_purge\('public\.sessions'\)/, "$database: the way out");
	is($node->safe_psql($database, "SELECT count(*), on_disk('sessions') FROM sessions"),
		'10|20', "$database: nothing is purged, and nothing expired is shown");
	($ret, $stdout, $stderr) = $node->psql($database, "CALL ttl_docs.purge('sessions')");
	like($stderr, qr/held: restored/, "$database: nor by CALL purge()");
	$node->safe_psql($database, 'CALL ttl_docs.purge()');
	is($node->safe_psql($database, "SELECT on_disk('sessions')"),
		'20', "$database: nor by one for all");
}
# The DefaultTTL can be raised before: what is dead stays so.
$node->safe_psql(
	'restored', q{
	SELECT ttl_docs.set_default_ttl('sessions', 864000);
	SELECT ttl_docs.resume_purge('sessions');
});
until_is($node, 'restored', "SELECT on_disk('sessions')", '10', 'restored: purged when told to');
is($node->safe_psql('restored', 'SELECT count(*) FROM sessions'), '10', 'restored: what is live stays');
is($node->safe_psql('copied', "SELECT on_disk('sessions')"), '20', 'copied: is still held');
$node->safe_psql('copied', "SELECT ttl_docs.resume_purge('sessions')");
until_is($node, 'copied', "SELECT on_disk('sessions')", '10', 'copied: purged when told to');
$node->safe_psql('postgres', "DROP DATABASE $_") for qw(source restored copied);

# ---- TTL is turned off ----

$node->safe_psql('postgres', "SELECT ttl_docs.create_collection('given_up', 3600)");
$node->safe_psql('postgres', "SELECT ttl_docs.pause_purge('given_up')");
fill($node, 'postgres', 'given_up');
$node->safe_psql(
	'postgres', q{
	SELECT ttl_docs.set_default_ttl('given_up', NULL);
	SELECT ttl_docs.resume_purge('given_up');
});
until_is($node, 'postgres', "SELECT on_disk('given_up')",
	'10', 'off: what had expired by then is swept');
until_is($node, 'postgres', stat_of('state', 'given_up'), 'off', 'off: the state');
$node->safe_psql(
	'postgres', q{
	SET ttl_docs.clock_offset = '-5d';
	INSERT INTO given_up (id, doc) VALUES ('old', '{"ttl": 1}');
});
let_workers_look($node, 'postgres');
is($node->safe_psql('postgres', "SELECT count(*), on_disk('given_up') FROM given_up"),
	'11|11', 'off: the rest stays');

# ---- A restart, and pg_upgrade ----

my $states = q{
	SELECT string_agg(collection || ' ' || state, ',' ORDER BY collection::text)
	  FROM ttl_docs.stat_collections};
$node->restart;
until_is($node, 'postgres', $states, 'given_up off,sessions idle', 'restart: nothing is held');
$node->safe_psql(
	'postgres', q{
	SET ttl_docs.clock_offset = '-2h';
	INSERT INTO sessions (id, doc) VALUES ('more', '{}');
});
until_is($node, 'postgres', "SELECT on_disk('sessions')", '10', 'restart: the purge goes on');
is($node->safe_psql('postgres', "SELECT on_disk('given_up')"), '11', 'restart: off is off');

# pg_upgrade starts the servers for itself: nobody may write to them meanwhile.
$node->append_conf('postgresql.conf', 'ttl_docs.purge = off');
$node->restart;
$node->safe_psql(
	'postgres', q{
	SET ttl_docs.clock_offset = '-2h';
	INSERT INTO sessions (id, doc) VALUES ('more', '{}');
});
$node->stop;
$node->append_conf('postgresql.conf', 'ttl_docs.purge = on');
my $upgraded = PostgreSQL::Test::Cluster->new('upgraded');
$upgraded->init(allows_streaming => 'logical');
$upgraded->append_conf('postgresql.conf', $conf);
my $bindir = $node->config_data('--bindir');
chdir $upgraded->basedir or die $!;
$node->command_ok(
	[
		'pg_upgrade', '--no-sync', '-d', $node->data_dir, '-D', $upgraded->data_dir,
		'-b', $bindir, '-B', $bindir, '-s', $node->host,
		'-p', $node->port, '-P', $upgraded->port
	],
	'pg_upgrade');
$upgraded->append_conf('postgresql.conf', 'ttl_docs.purge = off');
$upgraded->start;
is($upgraded->safe_psql('postgres', "SELECT count(*), on_disk('sessions') FROM sessions"),
	'10|11', 'upgraded: all is there, nothing was purged meanwhile');
$upgraded->append_conf('postgresql.conf', 'ttl_docs.purge = on');
$upgraded->reload;
until_is($upgraded, 'postgres', "SELECT on_disk('sessions')", '10', 'upgraded: the purge goes on');
until_is($upgraded, 'postgres', $states, 'given_up off,sessions idle', 'upgraded: nothing is held');
is($upgraded->safe_psql('postgres', "SELECT count(*), on_disk('given_up') FROM given_up"),
	'11|11', 'upgraded: nothing else is purged');
$upgraded->stop;

# ---- A subscription ----

my $publisher = $node;
$publisher->start;
my $subscriber = PostgreSQL::Test::Cluster->new('subscriber');
$subscriber->init;
$subscriber->append_conf('postgresql.conf', $conf);
$subscriber->start;
$subscriber->safe_psql('postgres', $on_disk);
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
let_workers_look($subscriber, 'postgres');
until_is($subscriber, 'postgres', stat_of('state', 'events'), 'subscription', 'subscriber: the state');
like($subscriber->safe_psql('postgres', stat_of('hint', 'events')),
	qr/publisher/, 'subscriber: who purges, and the way out');
is($subscriber->safe_psql('postgres', "SELECT count(*), on_disk('events') FROM events"),
	'10|20', 'subscriber: nothing is purged, and nothing expired is shown');
($ret, $stdout, $stderr) = $subscriber->psql('postgres', "CALL ttl_docs.purge('events')");
like($stderr, qr/: subscription$/m, 'subscriber: nor by CALL purge()');

# The publisher's purge reaches it, and consumers can tell it from a delete.
my $has_plugin = -e $node->config_data('--pkglibdir') . '/test_decoding.so';
$publisher->safe_psql('postgres',
	"SELECT pg_create_logical_replication_slot('consumer', 'test_decoding')")
  if $has_plugin;
$publisher->safe_psql(
	'postgres', q{
	DELETE FROM events WHERE id = 'live 1';
	SELECT ttl_docs.resume_purge('events');
});
until_is($publisher, 'postgres', "SELECT on_disk('events')", '9', 'publisher: purged');
until_is($subscriber, 'postgres', "SELECT on_disk('events')",
	'9', 'subscriber: the purge of the publisher arrives');
SKIP:
{
	skip 'no test_decoding', 3 unless $has_plugin;
	my $changes = $publisher->safe_psql('postgres',
		"SELECT data FROM pg_logical_slot_get_changes('consumer', NULL, NULL, 'include-xids', 'off')");
	my @transactions =
	  grep { /: DELETE:/ } split(/^COMMIT.*\n?/m, $changes);
	my @purges = grep { /^message: /m } @transactions;
	my @deletes = grep { !/^message: /m } @transactions;
	is(scalar(@deletes), 1, 'decoding: the delete of a user has no message');
	like($deletes[0], qr/'live 1'/, 'decoding: it is that of the user');
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

# Without the subscription it is a collection like any other.
$publisher->safe_psql('postgres', "DELETE FROM events; SELECT ttl_docs.pause_purge('events')");
fill($publisher, 'postgres', 'events');
$publisher->wait_for_catchup('sub');
is($subscriber->safe_psql('postgres', "SELECT count(*), on_disk('events') FROM events"),
	'10|20', 'subscriber: more that has expired');
$subscriber->safe_psql('postgres', 'DROP SUBSCRIPTION sub');
until_is($subscriber, 'postgres', "SELECT on_disk('events')",
	'10', 'no subscription any more: it is purged');
is($subscriber->safe_psql('postgres', 'SELECT count(*) FROM events'), '10', 'what is live stays');
is($publisher->safe_psql('postgres', "SELECT on_disk('events')"), '20', 'the publisher has its own');
$subscriber->stop;

# ---- A clock that jumps ----

sub move_clock
{
	my ($offset) = @_;
	$node->safe_psql('postgres', "ALTER SYSTEM SET ttl_docs.clock_offset = '$offset'");
	$node->reload;
	# until sessions have it
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
let_workers_look($node, 'postgres');
is($node->safe_psql('postgres', "SELECT on_disk('minutes')"), '1', 'small step: nothing has expired');
for my $offset ('4min', '8min')
{
	move_clock($offset);
	until_is($node, 'postgres', "SELECT on_disk('minutes')", '0', "small step to $offset: purged");
	is($node->safe_psql('postgres', stat_of('state', 'minutes')), 'idle', "small step to $offset: no hold");
	$node->safe_psql('postgres', "INSERT INTO minutes (id, doc) VALUES ('$offset', '{}')");
}

move_clock('1d');
for my $table (qw(minutes accepted doubted))
{
	until_is($node, 'postgres', stat_of('state', $table), 'clock jump', "jump: $table is held");
}
like($node->safe_psql('postgres', stat_of('hint', 'doubted')),
	qr/SELECT ttl_docs\.resume_purge\('public\.doubted'\)/, 'jump: with the way out');
is( $node->safe_psql(
		'postgres',
		"SELECT (SELECT count(*) FROM doubted), on_disk('doubted'), (SELECT count(*) FROM minutes), on_disk('minutes')"),
	'1|2|0|1', 'jump: what has expired is invisible, and there');
$node->safe_psql('postgres', "SELECT ttl_docs.resume_purge('accepted')");
until_is($node, 'postgres', "SELECT on_disk('accepted')", '1', 'jump: accepted, and purged');
is($node->safe_psql('postgres', 'SELECT id FROM accepted'), 'long', 'jump: but for what is live');
is($node->safe_psql('postgres', "SELECT on_disk('doubted')"), '2', 'jump: only where it was accepted');

# Accepted was that one, and no other.
$node->safe_psql('postgres', "INSERT INTO accepted (id, doc) VALUES ('b', '{}')");
move_clock('2d');
until_is($node, 'postgres', stat_of('state', 'accepted'), 'clock jump', 'next jump: held again');
is($node->safe_psql('postgres', "SELECT on_disk('accepted')"), '2', 'next jump: not purged');

# The clock was wrong, and is set right.
move_clock('8min');
is( $node->safe_psql('postgres', "SELECT count(*), on_disk('doubted') FROM doubted"),
	'2|2', 'set right: nothing was lost');
for my $table (qw(minutes doubted))
{
	until_is($node, 'postgres', stat_of('state', $table), 'idle', "set right: $table is no longer held");
}
# Without a call, or a restart
$node->safe_psql(
	'postgres', q{
	SET ttl_docs.clock_offset = '-2h';
	INSERT INTO doubted (id, doc) VALUES ('late', '{}');
});
until_is($node, 'postgres', "SELECT on_disk('doubted')", '2', 'set right: the purge goes on');
is($node->safe_psql('postgres', 'SELECT count(*) FROM doubted'), '2', 'set right: what is live stays');
$node->stop;

done_testing();
