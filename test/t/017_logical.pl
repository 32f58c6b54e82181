# Logical replication: stamps arrive unchanged, a purge arrives as deletes, and the subscriber itself
# purges nothing.
#
# Workers run on both servers.  The tables of the subscriber are collections with a DefaultTTL of
# their own: the same, a shorter or a longer one.  After each step the test compares the rows on
# disk of both servers, with their stamps.

use strict;
use warnings;

use lib 'test/perl';
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SampleCollections;
use Test::More;
use TtlServer;

sub start
{
	my ($name) = @_;
	my $server = start_server(
		$name, q{
ttl_docs.purge_naptime = '20ms'
max_logical_replication_workers = 8
max_worker_processes = 16
}, allows_streaming => 'logical');
	install_in($server, 'postgres');
	return $server;
}

my $publisher = start('publisher');
my $subscriber = start('subscriber');

# Each table, with its DefaultTTL on the publisher and on the subscriber:
# - events: the same DefaultTTL
# - shorter, longer: the subscriber has a shorter, or a longer DefaultTTL
# - bag: has no key, so that the whole row identifies it; the subscriber has a longer DefaultTTL
# - parts: has partitions on the publisher, whose changes arrive as changes of their root
# - parents and notes: the purge of a parent deletes its notes
# - listed: its column list has no system columns
# - stamped: its column list has _ts, but neither _ttl nor _slot
my %default_ttl = (
	events => [ 3600, 3600 ],
	shorter => [ 86400, 600 ],
	longer => [ 3600, 864000 ],
	bag => [ 240, 864000 ],
	parts => [ 3600, 3600 ],
	parents => [ 3600, 3600 ],
	listed => [ 3600, 3600 ],
	stamped => [ 3600, 3600 ]);

sub create_tables
{
	my ($server, $side, $partitioned) = @_;
	my $by_range = $partitioned ? 'PARTITION BY RANGE (id)' : '';
	$server->safe_psql(
		'postgres', qq{
		CREATE TABLE events (id text PRIMARY KEY, name text UNIQUE, doc jsonb);
		CREATE TABLE shorter (id text PRIMARY KEY, doc jsonb);
		CREATE TABLE longer (id text PRIMARY KEY, doc jsonb);
		CREATE TABLE bag (id text, doc jsonb);
		ALTER TABLE bag REPLICA IDENTITY FULL;
		CREATE TABLE parts (id text PRIMARY KEY, doc jsonb) $by_range;
		CREATE TABLE parents (id text PRIMARY KEY, doc jsonb);
		CREATE TABLE listed (id text PRIMARY KEY, doc jsonb);
		CREATE TABLE stamped (id text PRIMARY KEY, doc jsonb);
		CREATE TABLE notes (id text PRIMARY KEY, parent text REFERENCES parents ON DELETE CASCADE);
	});
	$server->safe_psql(
		'postgres', q{
		CREATE TABLE parts_low PARTITION OF parts FOR VALUES FROM (MINVALUE) TO ('m');
		CREATE TABLE parts_high PARTITION OF parts FOR VALUES FROM ('m') TO (MAXVALUE);
	}) if $partitioned;
	$server->safe_psql('postgres', "SELECT ttl_docs.adopt('$_', $default_ttl{$_}[$side])")
	  for sort keys %default_ttl;
	return;
}

create_tables($publisher, 0, 1);
create_tables($subscriber, 1, 0);
# Collections on the subscriber, and plain tables on the publisher.  The second has no key on the
# publisher, so that the whole row identifies it.
$_->safe_psql(
	'postgres', q{
	CREATE TABLE plain (id text PRIMARY KEY, doc jsonb);
	CREATE TABLE plain_bag (id text, doc jsonb);
	ALTER TABLE plain_bag REPLICA IDENTITY FULL;
}) for ($publisher, $subscriber);
$subscriber->safe_psql(
	'postgres', q{
	ALTER TABLE plain_bag ADD PRIMARY KEY (id);
	SELECT ttl_docs.adopt('plain', 3600), ttl_docs.adopt('plain_bag', 3600);
});
my @collections = sort keys %default_ttl;
# The tables whose rows are the same on both sides
my @tables = ((grep { !/listed/ } @collections), 'notes');
$publisher->safe_psql('postgres', "SELECT ttl_docs.pause_purge('$_')") for @collections;
$publisher->safe_psql(
	'postgres', q{
	CREATE PUBLICATION pub FOR TABLE events, shorter, longer, bag, parts, parents, notes,
		listed (id, doc), stamped (id, doc, _ts), plain, plain_bag
		WITH (publish_via_partition_root = true)});

# Returns the rows of a table on disk with their stamps, but without the slot, which differs.
sub rows_of
{
	my ($server, $table) = @_;
	return $server->safe_psql('postgres',
		"SET TimeZone = 'UTC'; SET ttl_docs.show_expired = on;
		SELECT to_jsonb(t) - '_slot' FROM $table AS t ORDER BY 1");
}

# Waits until all changes have arrived, and compares tables of both sides.  Each counts as a test.
sub arrives
{
	my ($name, @which) = @_;
	$publisher->wait_for_catchup('sub');
	is(rows_of($subscriber, $_), rows_of($publisher, $_), "$name: the rows of $_ are the same on both sides") for @which;
	return;
}

sub publish
{
	my ($sql) = @_;
	$publisher->safe_psql('postgres', $sql);
	return;
}

sub live_on_subscriber
{
	my ($table) = @_;
	return $subscriber->safe_psql('postgres', "SELECT string_agg(id, ',' ORDER BY id) FROM $table");
}

# ---- The first copy ----

publish(
	q{
	SET ttl_docs.clock_offset = '-10h';
	INSERT INTO events VALUES ('expired', 'expired', '{}');
	INSERT INTO events VALUES ('with ttl', 'with ttl', '{"ttl": 86400}');
	INSERT INTO longer VALUES ('never', '{"ttl": -1}');
	RESET ttl_docs.clock_offset;
	INSERT INTO events VALUES ('inherits', 'inherits', '{}');
	INSERT INTO bag VALUES ('copied', '{}');
});
my $connstr = $publisher->connstr . ' dbname=postgres';
$subscriber->safe_psql('postgres', "CREATE SUBSCRIPTION sub CONNECTION '$connstr' PUBLICATION pub");
$subscriber->wait_for_subscription_sync($publisher, 'sub');
is( rows_of($subscriber, 'events') . "\n",
	rows_of($publisher, 'events') =~ s/^.*"id": "expired".*\n//mr . "\n",
	'first copy: stamps are kept, and expired documents are left out');
arrives('first copy', 'longer', 'bag');
# From now on both sides have the same rows.
publish($_)
  for (
	q{DELETE FROM bag},
	q{SELECT ttl_docs.resume_purge('events')},
	q{CALL ttl_docs.purge('events')},
	q{SELECT ttl_docs.pause_purge('events')});

# ---- Changes ----

# All kinds of writes, with a clock that is hours behind.  Some documents have expired when they
# arrive.
publish(
	q{
	SET ttl_docs.clock_offset = '-10h';
	INSERT INTO events SELECT i || ' by age', i || ' by age', '{}' FROM generate_series(1, 20) AS i;
	INSERT INTO events SELECT i || ' by ttl', i || ' by ttl', '{"ttl": 60}' FROM generate_series(1, 20) AS i;
	INSERT INTO longer VALUES ('inherits', '{}'), ('with ttl', '{"ttl": 60}');
	INSERT INTO shorter VALUES ('inherits', '{}'), ('with ttl', '{"ttl": 86400}');
	INSERT INTO parts VALUES ('a', '{}'), ('z', '{"ttl": 60}'), ('b', '{"ttl": -1}');
	INSERT INTO parents VALUES ('p', '{}'), ('q', '{"ttl": -1}');
	INSERT INTO notes VALUES ('of p', 'p'), ('of q', 'q');
	SET ttl_docs.clock_offset = '-1min';
	UPDATE events SET doc = '{"ttl": 7200}' WHERE id = 'inherits';
	UPDATE events SET _ts = DEFAULT WHERE id = 'with ttl';
});
# At several times: the slots of some are rounded differently for the two DefaultTTLs.
publish(
	qq{
	SET ttl_docs.clock_offset = '-${_}s';
	INSERT INTO bag VALUES ('inherits $_', '{}'), ('with ttl $_', '{"ttl": 86400}'), ('deleted $_', '{}');
}) for (0, 16, 32, 48);
arrives('changes', @tables);
is(live_on_subscriber('events'), 'inherits,with ttl', 'changes: the subscriber hides expired documents');
is(live_on_subscriber('shorter'), 'with ttl', 'changes: documents live shorter under a shorter DefaultTTL of the subscriber');
is(live_on_subscriber('longer'), 'inherits,never', 'changes: documents without a ttl live longer under a longer DefaultTTL of the subscriber');

# An update of a document that has expired only on the subscriber still applies.
publish(
	q{
	UPDATE shorter SET doc = '{"changed": 1}' WHERE id = 'inherits';
	UPDATE shorter SET _ts = DEFAULT WHERE id = 'with ttl';
});
arrives('update', 'shorter');
is(live_on_subscriber('shorter'), 'inherits,with ttl', 'update: the document is live again, with its new stamp');

# A write that reuses the key of an expired document is a delete and an insert.
publish(
	q{
	INSERT INTO events VALUES ('1 by age', 'new', '{}');
	INSERT INTO events VALUES ('new id', '2 by age', '{}');
	UPDATE events SET name = '3 by ttl' WHERE id = 'inherits';
	INSERT INTO events VALUES ('4 by ttl', '5 by ttl', '{"upserted": 1}') ON CONFLICT (id) DO UPDATE SET doc = '{}';
	INSERT INTO longer VALUES ('with ttl', '{"ttl": 7200}');
});
arrives('keys', 'events', 'longer');
is(live_on_subscriber('longer'), 'inherits,never,with ttl', 'keys: the new document of the publisher is live');

# Rows without a key are found by all of their columns.
publish(
	q{
	DELETE FROM bag WHERE id LIKE 'deleted%';
	UPDATE bag SET doc = doc || '{"changed": 1}';
});
arrives('all columns', 'bag');

# Changes of settings are not replicated, and change no stamp.
publish(q{SELECT ttl_docs.set_default_ttl('longer', 7200)});
publish(q{UPDATE longer SET doc = '{"changed": 1}' WHERE id = 'with ttl'});
arrives('settings', 'longer');
is($subscriber->safe_psql('postgres', q{SELECT ttl_docs.get_default_ttl('longer')}),
	'864000', 'settings: each side has its own');

# ---- Publishers that do not send _ts ----

# An UPDATE on the publisher renews the document on the subscriber, even if it changes nothing.
my @without_ts = ('listed', 'plain', 'plain_bag');
for my $table (@without_ts, 'stamped')
{
	publish(qq{INSERT INTO $table VALUES ('changed', '{}'), ('touched', '{"ttl": 7200}'), ('left', '{}')});
}
$publisher->wait_for_catchup('sub');
# Hours later
for my $table (@without_ts, 'stamped')
{
	$subscriber->safe_psql(
		'postgres', qq{
		SET session_replication_role = replica;
		UPDATE $table SET _ts = _ts - interval '10 h';
	});
	is(live_on_subscriber($table), '', "no _ts: $table has expired");
	publish(qq{UPDATE $table SET doc = doc || '{"ttl": 1800}' WHERE id = 'changed'});
	publish(qq{UPDATE $table SET doc = doc WHERE id = 'touched'});
}
$publisher->wait_for_catchup('sub');
for my $table (@without_ts, 'stamped')
{
	is(live_on_subscriber($table), 'changed,touched', "no _ts: the updated documents of $table are live");
	is( $subscriber->safe_psql(
			'postgres', qq{
		SELECT id, _ttl, ttl_docs.expires_at('$table', _ts, _ttl) - now() BETWEEN interval '25 min' AND interval '2 h',
			_slot = ttl_docs_internal.slot(_ts, _ttl, 3600) FROM $table ORDER BY id}),
		"changed|1800|t|t\ntouched|7200|t|t",
		"no _ts: ttl and slot of $table are correct");
}
publish(qq{DELETE FROM $_}) for (@without_ts, 'stamped');

# ---- No purge on the subscriber ----

let_workers_visit($subscriber, 'postgres');
is(rows_of($subscriber, $_), rows_of($publisher, $_), "no purge: workers purge nothing of $_") for @tables;
is(states($subscriber, 'postgres'), 'subscription', 'no purge: the state of all collections is subscription');
is($subscriber->safe_psql('postgres', 'SELECT sum(purged) FROM ttl_docs.stat_collections'),
	'0', 'no purge: stat_collections counts no purged document');
like(error_of($subscriber, 'postgres', 'CALL ttl_docs.purge()'),
	qr/subscription/, 'no purge: CALL purge() reports the subscription');
is(rows_of($subscriber, 'events'), rows_of($publisher, 'events'), 'no purge: CALL purge() purges nothing');

# A disabled subscription counts, too.
$subscriber->safe_psql('postgres', 'ALTER SUBSCRIPTION sub DISABLE');
let_workers_visit($subscriber, 'postgres');
is(rows_of($subscriber, 'events'), rows_of($publisher, 'events'), 'no purge: workers purge nothing while the subscription is disabled');
$subscriber->safe_psql('postgres', 'ALTER SUBSCRIPTION sub ENABLE');

# ---- The purge of the publisher ----

# How many rows are left of each table after the purge.
my %left = (events => 5, shorter => 2, longer => 2, bag => 8, parts => 1, parents => 1, listed => 0, stamped => 0);
publish(q{SET ttl_docs.clock_offset = '-1d'; INSERT INTO bag VALUES ('dead', '{}')});
arrives('before the purge', 'bag');
publish("SELECT ttl_docs.resume_purge('$_')") for @collections;
let_workers_visit($publisher, 'postgres');
for my $table (sort keys %left)
{
	on_disk_becomes($publisher, 'postgres', $table, $left{$table}, "purge: $table is purged on the publisher");
}
arrives('purge', @tables);
is($subscriber->safe_psql('postgres', 'SELECT string_agg(id, \',\') FROM notes'),
	'of q', 'purge: children that the purge deletes are deleted on the subscriber');
is($subscriber->safe_psql('postgres', 'SELECT sum(purged) FROM ttl_docs.stat_collections'),
	'0', 'purge: the subscriber has purged nothing itself');

# ---- The purge of the publisher does not arrive ----

# Either the publication has inserts only, or two servers subscribe to each other and each publishes
# its own rows.
for my $server ($publisher, $subscriber)
{
	$server->safe_psql(
		'postgres', q{
		SELECT ttl_docs.create_collection('inserts', 3600);
		CREATE TABLE twoway (id text, side text, doc jsonb, PRIMARY KEY (id, side));
		SELECT ttl_docs.adopt('twoway', 3600);
	});
}
$publisher->safe_psql('postgres', q{CREATE PUBLICATION pub_inserts FOR TABLE inserts WITH (publish = 'insert')});
$publisher->safe_psql('postgres', q{CREATE PUBLICATION pub_twoway FOR TABLE twoway WHERE (side = 'p')});
$subscriber->safe_psql('postgres', q{CREATE PUBLICATION pub_twoway FOR TABLE twoway WHERE (side = 's')});
$subscriber->safe_psql('postgres',
	"CREATE SUBSCRIPTION sub_inserts CONNECTION '$connstr' PUBLICATION pub_inserts WITH (copy_data = false)");
$subscriber->safe_psql('postgres',
	"CREATE SUBSCRIPTION sub_to_s CONNECTION '$connstr' PUBLICATION pub_twoway WITH (copy_data = false)");
$publisher->safe_psql('postgres',
	"CREATE SUBSCRIPTION sub_to_p CONNECTION '"
	  . $subscriber->connstr
	  . " dbname=postgres' PUBLICATION pub_twoway WITH (copy_data = false)");
publish(q{SELECT ttl_docs.pause_purge('inserts')});
publish(
	q{
	SET ttl_docs.clock_offset = '-2h';
	INSERT INTO inserts (id, doc) VALUES ('a', '{}'), ('b', '{}');
	INSERT INTO twoway VALUES ('a', 'p', '{}');
});
$subscriber->safe_psql('postgres', q{SET ttl_docs.clock_offset = '-2h'; INSERT INTO twoway VALUES ('a', 's', '{}')});
$publisher->wait_for_catchup('sub_inserts');
$publisher->wait_for_catchup('sub_to_s');
$subscriber->wait_for_catchup('sub_to_p');
publish(q{SELECT ttl_docs.resume_purge('inserts')});
on_disk_becomes($publisher, 'postgres', 'inserts', 0, 'inserts: the publisher purges');
let_workers_visit($_, 'postgres') for ($publisher, $subscriber);
is(count_on_disk($subscriber, 'postgres', 'inserts'), '2', 'inserts: the deletes of the publisher do not arrive');
is(count_on_disk($_, 'postgres', 'twoway'), '2', 'two ways: no side purges') for ($publisher, $subscriber);
like(error_of($subscriber, 'postgres', q{SELECT ttl_docs.resume_purge('inserts')}),
	qr/still held: subscription.*set_purge_subscribed/s, 'inserts: the message of resume_purge() names set_purge_subscribed()');
$_->safe_psql('postgres', q{SELECT ttl_docs.set_purge_subscribed('twoway', true)}) for ($publisher, $subscriber);
$subscriber->safe_psql('postgres', q{SELECT ttl_docs.set_purge_subscribed('inserts', true)});
on_disk_becomes($subscriber, 'postgres', 'inserts', 0, 'inserts: the subscriber purges after set_purge_subscribed()');
for my $server ($publisher, $subscriber)
{
	on_disk_becomes($server, 'postgres', 'twoway', 0, 'two ways: each side purges after set_purge_subscribed()');
}
# The setting is stored, and can be reset.
$subscriber->safe_psql('postgres', q{SELECT ttl_docs.pause_purge('inserts'), ttl_docs.resume_purge('inserts')});
is($subscriber->safe_psql('postgres', q{SELECT purge_subscribed FROM ttl_docs.collections WHERE collection = 'inserts'::regclass}),
	't', 'purge_subscribed: the label stores it');
$subscriber->safe_psql('postgres', q{SELECT ttl_docs.set_purge_subscribed('inserts', false)});
publish(q{SET ttl_docs.clock_offset = '-2h'; INSERT INTO inserts (id, doc) VALUES ('c', '{}')});
$publisher->wait_for_catchup('sub_inserts');
let_workers_visit($subscriber, 'postgres');
is(count_on_disk($subscriber, 'postgres', 'inserts'), '1', 'purge_subscribed: the subscriber purges nothing after it is reset');

$publisher->safe_psql('postgres', 'DROP SUBSCRIPTION sub_to_p');
$subscriber->safe_psql('postgres', "DROP SUBSCRIPTION $_") for ('sub_inserts', 'sub_to_s');
$subscriber->safe_psql('postgres', 'DROP SUBSCRIPTION sub');

# ---- adopt() of tables that are already replicated ----

# With a key, without one (REPLICA IDENTITY FULL), and without rows.
$_->safe_psql(
	'postgres', q{
	CREATE TABLE keyed (id text PRIMARY KEY, doc jsonb);
	CREATE TABLE keyless (id text, doc jsonb, changed timestamptz);
	CREATE TABLE blank (id text, doc jsonb);
	ALTER TABLE keyless REPLICA IDENTITY FULL;
	ALTER TABLE blank REPLICA IDENTITY FULL;
}) for ($publisher, $subscriber);
publish(
	q{
	CREATE PUBLICATION later FOR TABLE keyed, keyless, blank;
	INSERT INTO keyed VALUES ('a', '{}'), ('b', '{}');
	INSERT INTO keyless VALUES ('a', '{}', now()), ('b', '{}', now());
});
$subscriber->safe_psql('postgres', "CREATE SUBSCRIPTION later CONNECTION '$connstr' PUBLICATION later");
$subscriber->wait_for_subscription_sync($publisher, 'later');

# Adopts a table, and returns the messages.
sub adopt
{
	my ($server, $table, @arguments) = @_;
	my $call = join ', ', "'$table'", @arguments;
	return error_of($server, 'postgres', "SELECT ttl_docs.adopt($call)");
}

# First on the subscriber, with TTL off.
is(adopt($subscriber, 'keyed'), '', 'adopt: no warning on the subscriber for a table with a key');
like(adopt($subscriber, $_), qr/WARNING:  subscribed table "$_" has no primary key.*HINT:  Add a primary key/s,
	"adopt: a warning on the subscriber for $_, which has no key") for ('keyless', 'blank');
# As the warning says, changes of a table without a key are lost.
publish(q{UPDATE keyed SET doc = '{"n": 1}' WHERE id = 'a'; UPDATE keyless SET doc = '{"n": 1}' WHERE id = 'a'});
$publisher->wait_for_catchup('later');
my $docs = q{SELECT string_agg(id || doc, ' ' ORDER BY id) FROM %s};
is($subscriber->safe_psql('postgres', sprintf $docs, 'keyed'), 'a{"n": 1} b{}', 'adopt: changes of a table with a key arrive');
is($subscriber->safe_psql('postgres', sprintf $docs, 'keyless'), 'a{} b{}', 'adopt: changes of a table without a key are lost');

# Then on the publisher, which gives a notice, and refuses a table whose changes would be lost.
my $published = qr/NOTICE:  table "\w+" is published.*HINT:  .*on each subscriber, with TTL off: SELECT ttl_docs\.adopt\('public\.\w+'\)/s;
like(adopt($publisher, 'keyed', 3600), $published, 'adopt: a notice on the publisher for a table with a key');
like(adopt($publisher, 'keyless', 3600),
	qr/ERROR:  cannot adopt "keyless": subscribers would lose its updates and deletes.*HINT:  Add a primary key/s,
	'adopt: the publisher refuses a table with rows and without a key');
like(adopt($publisher, 'blank', 3600), $published, 'adopt: a notice on the publisher for a table without rows');
publish(
	q{
	UPDATE keyed SET doc = '{"n": 2}' WHERE id = 'a';
	DELETE FROM keyed WHERE id = 'b';
	INSERT INTO blank VALUES ('a', '{}'), ('b', '{}');
	UPDATE blank SET doc = '{"n": 2}' WHERE id = 'a';
	DELETE FROM blank WHERE id = 'b';
});
$publisher->wait_for_catchup('later');
is(rows_of($subscriber, 'blank'), rows_of($publisher, 'blank'), 'adopt: rows that are written later arrive with their stamps');
is($subscriber->safe_psql('postgres', sprintf $docs, $_), 'a{"n": 2}', "adopt: changes of $_ arrive")
  for ('keyed', 'blank');

# Accepted cases: a key on both sides, as the hint says; a publication of inserts only; stamps from a
# column.
$_->safe_psql('postgres', 'ALTER TABLE keyless ADD PRIMARY KEY (id)') for ($subscriber, $publisher);
like(adopt($publisher, 'keyless', 3600), $published, 'adopt: the publisher accepts the table with a new key');
publish(q{UPDATE keyless SET doc = '{"n": 2}' WHERE id = 'a'; DELETE FROM keyless WHERE id = 'b'});
$publisher->wait_for_catchup('later');
is($subscriber->safe_psql('postgres', sprintf $docs, 'keyless'), 'a{"n": 2}', 'adopt: changes of the table with a new key arrive');
$subscriber->safe_psql('postgres', 'DROP SUBSCRIPTION later');
publish(
	q{
	CREATE TABLE log (doc jsonb);
	CREATE TABLE dated (doc jsonb, changed timestamptz);
	CREATE TABLE listed_log (id int, doc jsonb);
	CREATE TABLE unpublished (doc jsonb);
	ALTER TABLE log REPLICA IDENTITY FULL;
	ALTER TABLE dated REPLICA IDENTITY FULL;
	ALTER TABLE unpublished REPLICA IDENTITY FULL;
	CREATE PUBLICATION inserts FOR TABLE log, listed_log (id, doc) WITH (publish = 'insert');
	CREATE SCHEMA all_of_it;
	CREATE TABLE all_of_it.branch (id int, doc jsonb) PARTITION BY RANGE (id);
	CREATE TABLE all_of_it.leaf PARTITION OF all_of_it.branch DEFAULT;
	ALTER TABLE all_of_it.leaf REPLICA IDENTITY FULL;
	CREATE PUBLICATION of_schema FOR TABLES IN SCHEMA all_of_it;
	CREATE PUBLICATION of_dated FOR TABLE dated;
	INSERT INTO log VALUES ('{}');
	INSERT INTO dated VALUES ('{}', now());
	INSERT INTO unpublished VALUES ('{}');
	INSERT INTO all_of_it.branch VALUES (1, '{}');
});
like(adopt($publisher, 'log', 3600), $published, 'adopt: a table of which only inserts are published is accepted');
like(adopt($publisher, 'dated', 3600, q{last_modified => 'changed'}), $published, 'adopt: a table whose stamps come from a column is accepted');
is(adopt($publisher, 'listed_log', 3600), '', 'adopt: no notice if a column list leaves the new columns out');
is(adopt($publisher, 'unpublished', 3600), '', 'adopt: no notice for a table that is not published');
like(adopt($publisher, 'all_of_it.branch', 3600), qr/Table "leaf" is published with REPLICA IDENTITY FULL/,
	'adopt: a partition that is published with its schema is refused');
$_->stop for ($subscriber, $publisher);

done_testing();
