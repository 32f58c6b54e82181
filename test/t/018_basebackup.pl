# pg_basebackup and point-in-time recovery: a recovered server shows the same documents as the original
# server at that time, and expired documents stay expired.
#
# After the backup, one collection has a history: documents expire because the DefaultTTL is
# lowered, stay expired when it is raised, one of them loses its key to a new document, the others
# are purged, and TTL is turned off.  Each event is one transaction, and recovery stops before or
# after it.  Other collections of all kinds do not change (SampleCollections.pm).
#
# A recovered server has the same OIDs as the original.  So nothing is held, and the purge goes on when
# recovery ends.  The test first sets ttl_docs.purge = off, to see the server before the purge.

use strict;
use warnings;

use lib 'test/perl';
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SampleCollections;
use Test::More;
use TtlServer;

my $primary = new_server(
	'primary', q{
ttl_docs.purge_grace = 0
ttl_docs.purge_naptime = '20ms'
ttl_docs.purge = off
autovacuum = off
}, has_archiving => 1, allows_streaming => 1);
my $incremental = $primary->pg_version >= 17;
$primary->append_conf('postgresql.conf', 'summarize_wal = on') if $incremental;
$primary->start;
make_sample($primary, 'source');
$primary->safe_psql('postgres', 'ALTER DATABASE source RESET ttl_docs.purge');
my $sample = picture($primary, 'source');

# ---- The backup, and the history ----

# All documents but one were written two hours ago.  "due" expired a few minutes ago.
$primary->safe_psql(
	'postgres', q{
	CREATE EXTENSION ttl_docs;
	SELECT ttl_docs.create_collection('history', 86400);
	SELECT ttl_docs.create_collection('cache', 86400);
	ALTER TABLE cache SET UNLOGGED;
	INSERT INTO cache (id, doc) VALUES ('lost', '{}');
	INSERT INTO history (id, doc) VALUES ('young', '{}');
	SET ttl_docs.clock_offset = '-2h';
	INSERT INTO history (id, doc) VALUES ('old', '{}'), ('taken over', '{}'), ('due', '{"ttl": 7000}'),
		('due later', '{"ttl": 9000}');
});

# Returns the visible documents of the collection, now and at other times; its rows on disk; and its
# settings.
sub history
{
	my ($node) = @_;
	my $ids = q{SELECT string_agg(id, ',' ORDER BY id) FROM history;};
	return $node->safe_psql(
		'postgres', qq{
		$ids
		SET ttl_docs.clock_offset = '-10min'; $ids
		SET ttl_docs.clock_offset = '1h'; $ids
		SET ttl_docs.clock_offset = '20d'; $ids
		RESET ttl_docs.clock_offset;
		SET ttl_docs.show_expired = on; SELECT * FROM history ORDER BY id;
		SELECT label FROM pg_seclabel WHERE objoid = 'history'::regclass;
	});
}

$primary->backup('base');
$primary->command_ok([ 'pg_verifybackup', $primary->backup_dir . '/base' ], 'pg_verifybackup succeeds');

my @events = (
	[ lowered => q{SELECT ttl_docs.set_default_ttl('history', 3600)} ],
	[ raised => q{SELECT ttl_docs.set_default_ttl('history', 864000)} ],
	[ taken_over => q{INSERT INTO history (id, doc) VALUES ('taken over', '{"new": 1}')} ],
	[ purged => q{CALL ttl_docs.purge('history')} ],
	[ off => q{SELECT ttl_docs.set_default_ttl('history', NULL)} ]);
my (%xid, %before, %after);
for (@events)
{
	my ($event, $sql) = @$_;
	$before{$event} = history($primary);
	$xid{$event} =
	  (split /\n/, $primary->safe_psql('postgres', "BEGIN; SELECT pg_current_xact_id(); $sql; COMMIT"))[0];
	$after{$event} = history($primary);
	isnt($after{$event}, $before{$event}, "$event: the event changes something");
	$primary->backup('increment',
		backup_options => [ '--incremental', $primary->backup_dir . '/base/backup_manifest' ])
	  if $incremental && $event eq 'raised';
}
is((split /\n/, $after{raised})[0],
	'due later,young', 'raised: documents that expired under the lower DefaultTTL stay expired');

my $last_wal = $primary->safe_psql('postgres', 'SELECT pg_walfile_name(pg_current_wal_insert_lsn())');
$primary->safe_psql('postgres', 'SELECT pg_switch_wal()');
$primary->poll_query_until('postgres', "SELECT last_archived_wal >= '$last_wal' FROM pg_stat_archiver")
  or die 'WAL is not archived';

# ---- Recovery to a point in time ----

# Starts a server from the backup, which recovers until just before, or just after, an event.
sub recover
{
	my ($name, $event, $inclusive, $action, %more) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name);
	$node->init_from_backup($primary, $more{backup} // 'base',
		has_restoring => 1, standby => 0, %{ $more{init} // {} });
	$node->append_conf(
		'postgresql.conf', qq{
recovery_target_xid = '$xid{$event}'
recovery_target_inclusive = $inclusive
recovery_target_action = '$action'
archive_mode = off
});
	$node->append_conf('postgresql.conf', $more{conf}) if $more{conf};
	$node->start;
	$node->poll_query_until('postgres', 'SELECT NOT pg_is_in_recovery()') or die 'recovery does not end'
	  if $action eq 'promote';
	return $node;
}

# After recovery, workers purge: nothing is held.  Counts as a test.
sub purge_goes_on
{
	my ($node, $name, $live) = @_;
	let_workers_visit($node, 'postgres');
	is( $node->safe_psql(
			'postgres', q{SET ttl_docs.show_expired = on; SELECT string_agg(id, ',' ORDER BY id) FROM history}),
		$live, "$name: the purge goes on");
	return;
}

for (
	[ 'before_lowered', 'lowered', 'off', 'due later,old,taken over,young' ],
	[ 'after_lowered', 'lowered', 'on', 'due later,young' ],
	[ 'before_purged', 'purged', 'off', 'due later,taken over,young' ],
	[ 'after_purged', 'purged', 'on', 'due later,taken over,young' ],
	[ 'after_off', 'off', 'on', 'due later,taken over,young' ])
{
	my ($name, $event, $inclusive, $live) = @$_;
	my $node = recover($name, $event, $inclusive, 'promote');
	is(history($node), $inclusive eq 'on' ? $after{$event} : $before{$event}, "$name: the collection is as it was at that time");
	pictures_agree(picture($node, 'source'), $sample, $name) if $name eq 'before_lowered';
	is(states($node, 'source'), 'disabled,paused', "$name: no collection is held, and the purge is off");
	is(history($node), $inclusive eq 'on' ? $after{$event} : $before{$event}, "$name: nothing is purged");
	reload_with($node, 'ttl_docs.purge = on');
	purge_goes_on($node, $name, $live);
	$node->stop;
}

# The purge is on: documents that expired before the DefaultTTL was raised are purged without a
# command.
my $node = recover('by_itself', 'raised', 'on', 'promote', conf => 'ttl_docs.purge = on');
purge_goes_on($node, 'by_itself', 'due later,young');
let_workers_visit($node, 'source');
behaves($node, 'source', 'by_itself');
is($node->safe_psql('postgres', 'SELECT count(*) FROM cache'), '0', 'by_itself: an unlogged collection is empty');
is( $node->safe_psql(
		'postgres', q{
		INSERT INTO cache (id, doc) VALUES ('new', '{}'), ('short', '{"ttl": 60}');
		SET ttl_docs.clock_offset = '2min';
		SELECT string_agg(id, ',') FROM cache}),
	'new', 'by_itself: new documents in an unlogged collection expire');
$node->stop;

# A recovery that waits at its target behaves like a standby, and purges nothing.
$node = recover('paused', 'lowered', 'on', 'pause', conf => 'ttl_docs.purge = on');
$node->poll_query_until('postgres', q{SELECT pg_get_wal_replay_pause_state() = 'paused'}) or die 'no pause';
is(history($node), $after{lowered}, 'paused: the collection is as it was at that time');
pictures_agree(picture($node, 'source'), $sample, 'paused');
is(states($node, 'postgres'), 'standby', 'paused: the state is standby');
is($node->safe_psql('postgres', q{SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'ttl_docs%'}),
	'0', 'paused: no launcher runs');
$node->safe_psql('postgres', 'SELECT pg_wal_replay_resume()');
$node->poll_query_until('postgres', 'SELECT NOT pg_is_in_recovery()') or die 'recovery does not end';
purge_goes_on($node, 'paused', 'due later,young');
$node->stop;

# A full backup and an incremental one, combined
SKIP:
{
	skip 'no incremental backups in this PostgreSQL', 1 unless $incremental;
	$node = recover('combined', 'purged', 'off', 'promote',
		backup => 'increment', init => { combine_with_prior => ['base'] });
	is(history($node), $before{purged}, 'combined: the collection is as it was at that time');
	pictures_agree(picture($node, 'source'), $sample, 'combined');
	$node->stop;
}

# ---- A backup without a target ----

# Tar files of the current server, with the WAL that they need.
$primary->command_ok(
	[
		'pg_basebackup', '--no-sync', '-c', 'fast', '-Ft', '-X', 'stream', '-D',
		$primary->backup_dir . '/tar', '-d', $primary->connstr('postgres')
	],
	'tar: pg_basebackup succeeds');
$node = PostgreSQL::Test::Cluster->new('tar');
$node->init_from_backup($primary, 'tar', tar_program => 'tar');
$node->append_conf('postgresql.conf', 'archive_mode = off');
$node->start;
is(history($node), history($primary), 'tar: the collection is the same');
pictures_agree(picture($node, 'source'), $sample, 'tar');
$node->stop;
$primary->stop;

done_testing();
