# A streaming standby returns the same results as its primary, follows the settings of the primary,
# and takes over when it is promoted.
#
# 1. The results agree for all kinds of collections, at several instants, while expired documents
#    are on disk (SampleCollections.pm): with new plans, with cached plans of one session, and in a
#    dump of the standby.
# 2. Settings change on the primary, one by one.
# 3. The standby is promoted: its purge begins without a hold, except for paused collections.
# 4. The old primary becomes a standby of the new one, by pg_rewind.

use strict;
use warnings;

use lib 'test/perl';
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SampleCollections;
use Test::More;
use TtlServer;

my $primary = start_server(
	'primary', q{
ttl_docs.purge_grace = 0
ttl_docs.purge_naptime = '20ms'
wal_log_hints = on
wal_keep_size = '256MB'
autovacuum = off
max_standby_streaming_delay = 0
}, allows_streaming => 1);
make_sample($primary, 'source');
$primary->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'base', has_streaming => 1);
$standby->start;

# ---- The same results ----

# Some documents and a change of settings come after the backup.
$primary->safe_psql(
	'source', q{
	INSERT INTO sessions (id, doc) VALUES ('streamed', '{"ttl": 1000}');
	SET ttl_docs.clock_offset = '-1h';
	INSERT INTO sessions (id, doc) VALUES ('streamed, dead', '{}');
	INSERT INTO archive (id, doc) VALUES ('dead by ttl', '{"ttl": 5}');
	RESET ttl_docs.clock_offset;
	SELECT ttl_docs.set_indexing('archive', 'consistent');
	SELECT ttl_docs.set_default_ttl('archive', -1);
	SELECT ttl_docs.set_default_ttl('archive', NULL);
});
$primary->wait_for_catchup($standby);
my $before = picture($primary, 'source');
pictures_agree(picture($standby, 'source'), $before, 'standby');
is($standby->safe_psql('source', 'TABLE ttl_docs.collections'),
	$primary->safe_psql('source', 'TABLE ttl_docs.collections'), 'standby: the view shows the same settings');
my $by_functions = q{
	SELECT count(*) FROM ttl_docs.documents('sessions');
	SELECT ttl_docs.read_document('sessions', 'dies soon'), ttl_docs.read_document('sessions', 'dead by age');
	SELECT id, ttl_docs.expires_at('raised', _ts, _ttl) FROM raised ORDER BY id;
	SET ttl_docs.show_expired = on;
	SELECT id, ttl_docs.is_expired('raised', _ts, _ttl) FROM raised ORDER BY id;
};
is($standby->safe_psql('source', $by_functions),
	$primary->safe_psql('source', $by_functions), 'standby: functions return the same');
is(states($standby, 'source'), 'standby', 'standby: the state is standby');

# A parallel plan
my $in_parallel = q{
	SET max_parallel_workers_per_gather = 2; SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0;
	SET min_parallel_table_scan_size = 0;
	SELECT string_agg(id, ',' ORDER BY id) FROM sessions;
};
is($standby->safe_psql('source', $in_parallel),
	$primary->safe_psql('source', $in_parallel), 'standby: a parallel plan returns the same');

# Writes are refused.  The error names the function.
for my $write (
	q{create_collection('x', 5)},
	q{drop_collection('sessions')},
	q{adopt('notes', 5)},
	q{release('sessions')},
	q{set_default_ttl('sessions', 5)},
	q{set_default_ttl('sessions', NULL)},
	q{set_default_ttl('sessions', interval '5 seconds')},
	q{set_indexing('sessions', 'lazy')},
	q{pause_purge('sessions')},
	q{resume_purge('sessions')},
	q{set_purge_subscribed('sessions', true)},
	q{create_document('sessions', '{"id": "x"}')},
	q{replace_document('sessions', '{"id": "never"}')},
	q{upsert_document('sessions', '{"id": "x"}')},
	q{patch_document('sessions', 'never', '{"a": 1}')},
	q{delete_document('sessions', 'never')},
	q{delete_document('sessions', 7)},
	q{touch_document('sessions', 'never')})
{
	my ($name) = $write =~ /(\w+)/;
	like(error_of($standby, 'source', "SELECT ttl_docs.$write"),
		qr/ERROR:  cannot execute ttl_docs\.$name\(\) during recovery/, "standby: refused: $write");
	like(error_of($primary, 'source', "SET default_transaction_read_only = on; SELECT ttl_docs.$write"),
		qr/ERROR:  cannot execute ttl_docs\.$name\(\) in a read-only transaction/, "read-only: refused: $write");
}
# The loop has all functions that write.
is( $primary->safe_psql(
		'source', q{
		SELECT string_agg(DISTINCT proname, ' ' ORDER BY proname) FROM pg_proc
		 WHERE pronamespace = 'ttl_docs'::regnamespace AND prokind = 'f' AND provolatile = 'v'}),
	'adopt create_collection create_document delete_document drop_collection patch_document pause_purge preview '
	  . 'purging release replace_document resume_purge set_default_ttl set_indexing set_purge_subscribed touch_document '
	  . 'upsert_document',
	'standby: all functions that write were tried; purging() and preview() do not write');
like(error_of($standby, 'source', 'CALL ttl_docs.purge()'),
	qr/cannot execute CALL ttl_docs\.purge\(\) during recovery/, 'standby: refused: CALL purge');
like(error_of($standby, 'source', q{INSERT INTO sessions (id, doc) VALUES ('dead by age', '{}')}),
	qr/cannot execute INSERT in a read-only transaction/, 'standby: refused: INSERT');

# A dump of the standby is like a dump of the primary.
my $dump = $standby->basedir . '/standby.sql';
$standby->command_ok([ 'pg_dump', '-f', $dump, $standby->connstr('source') ], 'dump of the standby: pg_dump succeeds');
$primary->safe_psql('postgres', 'CREATE DATABASE restored');
run_script_ok($primary, $dump, 'restored', 'dump of the standby: the primary restores it');
pictures_agree(picture($primary, 'restored'), $before, 'dump of the standby');
is(states($primary, 'restored'), 'paused,restored', 'dump of the standby: the purge is held');
$primary->safe_psql('postgres', 'DROP DATABASE restored');

# ---- Changes of the settings ----

# One session of the standby has cached plans and settings.  When a change has arrived, the next
# statement of the session sees it.
my $ids = q{SELECT '[' || coalesce(string_agg(id, ',' ORDER BY id), '') || ']' FROM changing};
my $session;

sub seen_after
{
	my ($change, $expected, $name) = @_;
	$primary->safe_psql('source', $change);
	$primary->wait_for_catchup($standby);
	is($session->query_safe('EXECUTE ids'), "[$expected]", "change: $name (standby)");
	is($primary->safe_psql('source', $ids), "[$expected]", "change: $name (primary)");
	return;
}

$primary->safe_psql(
	'source', q{
	SELECT ttl_docs.create_collection('changing', 86400);
	SET ttl_docs.clock_offset = '-2h';
	INSERT INTO changing (id, doc) VALUES ('old', '{}'), ('old with ttl', '{"ttl": 7800}');
	SET ttl_docs.clock_offset = '-1min';
	INSERT INTO changing (id, doc) VALUES ('new', '{}'), ('never', '{"ttl": -1}');
});
$primary->wait_for_catchup($standby);
SKIP:
{
	$session = $standby->background_psql('source');
	skip 'no query_safe in this PostgreSQL::Test', 1 unless $session->can('query_safe');
	$session->query_safe('SET plan_cache_mode = force_generic_plan');
	$session->query_safe("PREPARE ids AS $ids");
	is($session->query_safe('EXECUTE ids'), '[never,new,old,old with ttl]', 'change: all documents are live before the first change');
	seen_after(q{SELECT ttl_docs.set_default_ttl('changing', 3600)}, 'never,new,old with ttl', 'DefaultTTL lowered');
	seen_after(q{SELECT ttl_docs.set_default_ttl('changing', 864000)},
		'never,new,old with ttl', 'DefaultTTL raised, expired documents stay expired');
	seen_after(q{SELECT ttl_docs.set_default_ttl('changing', 30)}, 'never,old with ttl', 'DefaultTTL lowered again');
	seen_after(q{SELECT ttl_docs.set_default_ttl('changing', -1)}, 'never,old with ttl', 'DefaultTTL -1');
	seen_after(q{SELECT ttl_docs.set_default_ttl('changing', NULL)}, 'never,old with ttl', 'TTL off');
	seen_after(q{SELECT ttl_docs.set_indexing('changing', 'lazy')}, 'never,old with ttl', 'another indexing');
	seen_after(
		q{BEGIN; SELECT ttl_docs.set_default_ttl('changing', 1); SAVEPOINT a;
		  SELECT ttl_docs.set_default_ttl('changing', 2); ROLLBACK},
		'never,old with ttl', 'changes rolled back');
	seen_after(q{INSERT INTO changing (id, doc) VALUES ('old', '{}')},
		'never,old,old with ttl', 'the key of an expired document used again');
	seen_after(q{SELECT ttl_docs.release('changing')}, 'never,old,old with ttl', 'the collection released');
	seen_after(q{SELECT ttl_docs.adopt('changing', 86400)}, 'never,old,old with ttl', 'the table adopted again');
}
$session->quit;
$primary->safe_psql('source', q{SELECT ttl_docs.drop_collection('changing')});

# ---- Lag ----

# The primary renews a document.  Its old stamp expires before the renewal arrives.
my $later = q{SET ttl_docs.clock_offset = '1h'; SELECT count(*) FROM lagging};
$primary->safe_psql(
	'source', q{
	SELECT ttl_docs.create_collection('lagging', 5400);
	SET ttl_docs.clock_offset = '-1h';
	INSERT INTO lagging (id, doc) VALUES ('renewed', '{}');
});
$primary->wait_for_catchup($standby);
$standby->safe_psql('source', 'SELECT pg_wal_replay_pause()');
$primary->safe_psql('source', 'UPDATE lagging SET doc = doc');
is($primary->safe_psql('source', $later), '1', 'lag: the document is live on the primary');
is($standby->safe_psql('source', $later), '0', 'lag: the standby hides the document before the renewal arrives');
$standby->safe_psql('source', 'SELECT pg_wal_replay_resume()');
$primary->wait_for_catchup($standby);
is($standby->safe_psql('source', $later), '1', 'lag: the standby shows the document after the renewal has arrived');
$primary->safe_psql('source', q{SELECT ttl_docs.drop_collection('lagging')});

# ---- Promotion ----

# The primary stops while its expired documents are on disk: the purge is off for the database.
# After the promotion, the setting is reset on the new primary.
$primary->wait_for_catchup($standby);
$before = picture($primary, 'source');
$primary->stop;
$standby->promote;
pictures_agree(picture($standby, 'source'), $before, 'promoted');
becomes($standby, 'source', q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'ttl_docs launcher'},
	'1', 'promoted: a launcher runs');
$standby->safe_psql('source', 'ALTER DATABASE source RESET ttl_docs.purge');
let_workers_visit($standby, 'source');
my $dead = q{SET ttl_docs.show_expired = on; SELECT string_agg(id, ',' ORDER BY id) FROM %s WHERE id LIKE '%%dead%%'};
is($standby->safe_psql('source', sprintf($dead, $_)), '', "promoted: $_ is purged")
  for qw(sessions raised turned_off on_again);
is($standby->safe_psql('source', sprintf($dead, 'parents')), 'dead', 'promoted: a parent with a child stays on disk');
is($standby->safe_psql('source', q{SET ttl_docs.show_expired = on; SELECT count(*) FROM "Odd Schema"."My Docs"}),
	'2', 'promoted: a paused collection is not purged');
like(states($standby, 'source'), qr/^idle,off,paused$/, 'promoted: no other collection is held');
pictures_agree(picture($standby, 'source'), $before, 'promoted and purged',
	grep { /^live at/ } sort keys %$before);
behaves($standby, 'source', 'promoted');

# ---- The old primary becomes a standby ----

my $after = picture($standby, 'source');
$standby->safe_psql('postgres', 'CHECKPOINT');
command_ok(
	[
		'pg_rewind', '--no-sync', '-D', $primary->data_dir,
		'--source-server', $standby->connstr('postgres')
	],
	'rewound: pg_rewind succeeds');
# pg_rewind has also copied the configuration of the other server.
$primary->append_conf('postgresql.conf',
	'port = ' . $primary->port . "\nunix_socket_directories = '" . $primary->host . "'");
$primary->enable_streaming($standby);
$primary->set_standby_mode;
$primary->start;
$standby->wait_for_catchup($primary);
pictures_agree(picture($primary, 'source'), $after, 'rewound');
is( $primary->safe_psql('source', q{SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'ttl_docs%'}),
	'0', 'rewound: no launcher runs');
$primary->stop;
$standby->stop;

done_testing();
