# A standby hides expired documents, and follows changes of the settings at once.  A subscriber gets
# the stamps of its publisher.  Nothing is purged in this test.

use strict;
use warnings;

use lib 'test/perl';
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use TtlServer;

my $primary = start_server('primary', 'ttl_docs.purge = off', allows_streaming => 'logical');
$primary->safe_psql(
	'postgres', q{
	CREATE EXTENSION ttl_docs;
	SELECT ttl_docs.create_collection('sessions', 60);
	INSERT INTO sessions (id, doc)
		VALUES ('inherits', '{}'), ('long', '{"ttl": 1000}'), ('never', '{"ttl": -1}');
});
$primary->backup('base');

# ---- Streaming replication ----

my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'base', has_streaming => 1);
$standby->start;

# One session on the standby, which has cached plans and settings.
my $session = $standby->background_psql('postgres');
my $ids = 'SELECT string_agg(id, \',\' ORDER BY id) FROM sessions';

sub on_standby
{
	my ($query) = @_;
	$primary->wait_for_catchup($standby);
	return $session->query_safe($query);
}

SKIP:
{
	skip 'no query_safe in this PostgreSQL::Test', 5
	  unless $session->can('query_safe');
	$session->query_safe("SET plan_cache_mode = force_generic_plan");
	$session->query_safe("PREPARE ids AS $ids");

	is(on_standby('EXECUTE ids'), 'inherits,long,never', 'all documents are live on the standby');
	$session->query_safe("SET ttl_docs.clock_offset = '61s'");
	is(on_standby('EXECUTE ids'), 'long,never', 'documents expire on the standby');
	$primary->safe_psql('postgres', "SELECT ttl_docs.set_default_ttl('sessions', 2000)");
	is(on_standby('EXECUTE ids'), 'inherits,long,never',
		'a cached plan on the standby uses a raised DefaultTTL');
	$primary->safe_psql('postgres', "SELECT ttl_docs.set_default_ttl('sessions', 50)");
	is(on_standby('EXECUTE ids'), 'long,never', 'a cached plan on the standby uses a lowered DefaultTTL');
	$primary->safe_psql('postgres', "SELECT ttl_docs.release('sessions')");
	is(on_standby('EXECUTE ids'), 'inherits,long,never', 'a cached plan on the standby shows all rows after release()');
}
$session->quit;
$standby->stop;

# ---- Logical replication ----

$primary->safe_psql(
	'postgres', q{
	SELECT ttl_docs.create_collection('events', 60);
	SET ttl_docs.clock_offset = '-1h';
	INSERT INTO events (id, doc) VALUES ('expired', '{}'), ('kept', '{"ttl": 7200}');
	CREATE PUBLICATION pub FOR TABLE events;
});

my $subscriber = start_server('subscriber', 'ttl_docs.purge = off');
$subscriber->safe_psql(
	'postgres', q{
	CREATE EXTENSION ttl_docs;
	SELECT ttl_docs.create_collection('events', 60);
	SET ttl_docs.clock_offset = '-1h';
	INSERT INTO events (id, doc) VALUES ('clash', '{}');
});
my $connstr = $primary->connstr . ' dbname=postgres';
$subscriber->safe_psql('postgres',
	"CREATE SUBSCRIPTION sub CONNECTION '$connstr' PUBLICATION pub");
$subscriber->wait_for_subscription_sync($primary, 'sub');

my $stamps = q{SELECT id, _ts, _ttl, _slot FROM events ORDER BY id};
is($subscriber->safe_psql('postgres', $stamps),
	$primary->safe_psql('postgres', $stamps),
	'the first copy keeps the stamps');
is($subscriber->safe_psql('postgres',
		"SET ttl_docs.show_expired = on; SELECT string_agg(id, ',' ORDER BY id) FROM events"),
	'clash,kept', 'the first copy leaves expired documents out');

$primary->safe_psql(
	'postgres', q{
	SET ttl_docs.clock_offset = '-10s';
	INSERT INTO events (id, doc) VALUES ('new', '{"ttl": 500}'), ('clash', '{}');
	UPDATE events SET doc = '{"ttl": 8000}' WHERE id = 'kept';
});
$primary->wait_for_catchup('sub');
is($subscriber->safe_psql('postgres', $stamps),
	$primary->safe_psql('postgres', $stamps),
	'changes keep the stamps, and reuse the key of an expired document');

$subscriber->safe_psql('postgres', 'DROP SUBSCRIPTION sub');
$subscriber->stop;
$primary->stop;

done_testing();
