# 1. Snapshots have the right instant: imported ones, after the clock is set back, and on a standby.
# 2. A row that is stored long after its _ts was set blocks no key: while COPY waits for its client,
#    and when a worker raises the earliest expiry of the table.

use strict;
use warnings;

use IPC::Run;
use lib 'test/perl';
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use PurgeNode;
use Test::More;
use TtlServer;

my $node = start_node(q{
max_worker_processes = 16
}, allows_streaming => 'logical');

sub session
{
	return $node->background_psql('postgres', on_error_stop => 0);
}

# ---- Imported snapshots ----

# Moves the clock of all sessions.  Counts as a test.
sub set_clock
{
	my ($seconds) = @_;
	sql("ALTER SYSTEM SET ttl_docs.clock_offset = $seconds");
	$node->reload;
	until_is("SELECT current_setting('ttl_docs.clock_offset')::interval = interval '$seconds s'",
		't', "the clock is $seconds s ahead");
	return;
}

sql(q{SELECT ttl_docs.create_collection('c', 3000); INSERT INTO c VALUES ('a', '{"n": 1}')});

# Exports a snapshot, updates the document until only its last version is live, and imports the
# snapshot.  In the snapshot, the old version is live.
my $age = 0;

sub is_imported
{
	my ($name, $begin, %others) = @_;
	my $exporter = session();
	my $setup = $others{setup} // '';
	$exporter->query($setup) if $setup;
	$exporter->query($begin);
	my $snapshot = $exporter->query('SELECT pg_export_snapshot()');
	if ($others{again})
	{
		my $second = session();
		$second->query("BEGIN ISOLATION LEVEL REPEATABLE READ; SET TRANSACTION SNAPSHOT '$snapshot'");
		set_clock($age += 2000);
		sql(q{UPDATE c SET doc = '{"n": 2}'});
		$snapshot = $second->query('SELECT pg_export_snapshot()');
		$exporter = [ $exporter, $second ];
	}
	set_clock($age += 2000);
	sql(q{UPDATE c SET doc = '{"n": 3}'});
	set_clock($age += 2000);
	my $importer = session();
	is( $importer->query(
			"BEGIN ISOLATION LEVEL REPEATABLE READ; SET TRANSACTION SNAPSHOT '$snapshot'; SELECT count(*) FROM c"),
		1, "$name: the document is live in the snapshot");
	is($importer->query('SELECT count(*) FROM c'), 1, "$name: the document stays live in the snapshot");
	is($importer->query(
			q{SET LOCAL parallel_setup_cost = 0; SET LOCAL parallel_tuple_cost = 0; SET LOCAL min_parallel_table_scan_size = 0;
			  SET LOCAL parallel_leader_participation = off; SELECT count(*) FROM c}),
		1, "$name: the document is live for parallel workers");
	$importer->quit;
	$_->quit for ref $exporter eq 'ARRAY' ? @$exporter : $exporter;
	is(sql('SELECT count(*) FROM c'), 1, "$name: the document is live for other sessions");
	sql(q{UPDATE c SET doc = '{"n": 1}'});
	return;
}

is_imported('REPEATABLE READ', 'BEGIN ISOLATION LEVEL REPEATABLE READ');
is_imported('READ COMMITTED', 'BEGIN');
is_imported('without track_activities', 'BEGIN', setup => 'SET track_activities = off');
is_imported('exported again', 'BEGIN ISOLATION LEVEL REPEATABLE READ', again => 1);
{
	# A walsender exports without a query.
	my $walsender = $node->background_psql('postgres', replication => 'database');
	my $line = $walsender->query(q{CREATE_REPLICATION_SLOT exporter TEMPORARY LOGICAL pgoutput EXPORT_SNAPSHOT});
	my ($snapshot) = $line =~ /\|([0-9A-F-]+)\|pgoutput/;
	my $before = sql('SELECT clock_timestamp()');
	is( sql("BEGIN ISOLATION LEVEL REPEATABLE READ; SET TRANSACTION SNAPSHOT '$snapshot';
			 SELECT ttl_docs.now() < timestamptz '$before' + interval '$age s', count(*) FROM c"),
		't|1', 'exported by a walsender: the instant is not later than the export');
	$walsender->quit;
}
is_imported('SERIALIZABLE', 'BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY');
{
	# The clock is set back between two exports.
	my $exporter = session();
	set_clock($age + 50000);
	$exporter->query('BEGIN; SELECT pg_export_snapshot()');
	set_clock($age);
	my $snapshot = $exporter->query('SELECT pg_export_snapshot()');
	is( sql("BEGIN ISOLATION LEVEL REPEATABLE READ; SET TRANSACTION SNAPSHOT '$snapshot';
			 SELECT ttl_docs.now() <= clock_timestamp() + interval '$age s'"),
		't', 'a clock that was set back: the instant is not ahead of it');
	$exporter->quit;
}
{
	# A document that expired before the export is hidden, even if the transaction of the exporter is
	# old, and has exported before.
	my $exporter = session();
	$exporter->query('BEGIN; SELECT pg_export_snapshot()');
	sql(q{INSERT INTO c VALUES ('secret', '{"ttl": 1000}')});
	set_clock($age + 2000);
	my $snapshot = $exporter->query('SELECT pg_export_snapshot()');
	is(sql("BEGIN ISOLATION LEVEL REPEATABLE READ; SET TRANSACTION SNAPSHOT '$snapshot'; SELECT count(*) FROM c WHERE id = 'secret'"),
		0, 'the second export of a transaction: a document that expired before is hidden');
	$exporter->quit;
	set_clock($age);
}
{
	# A fast-path call, such as those for large objects, takes the snapshot itself.
	my $caller = session();
	my $file = $node->basedir . '/large_object';
	append_to_file($file, 'contents');
	$caller->query('BEGIN ISOLATION LEVEL REPEATABLE READ');
	$caller->query("\\lo_import '$file'");
	set_clock($age += 2000);
	sql(q{UPDATE c SET doc = '{"n": 2}'});
	set_clock($age += 2000);
	is($caller->query(q{SELECT count(*) FROM c WHERE id = 'a'}), 1, 'a snapshot of a fast-path call: the document is live');
	$caller->quit;
}
like(error_of($node, 'postgres', q{BEGIN ISOLATION LEVEL REPEATABLE READ; SET TRANSACTION SNAPSHOT '../PG_VERSION'}),
	qr/invalid snapshot identifier/, 'core refuses an invalid snapshot identifier');
like(error_of($node, 'postgres', q{BEGIN ISOLATION LEVEL REPEATABLE READ; SET TRANSACTION SNAPSHOT '00000003-0000001B-1'}),
	qr/snapshot/, 'core refuses a snapshot that does not exist');

# ---- A clock that is set back ----

# By the clock, a statement of a session begins earlier than the previous one ended.
set_clock(100000);
sql(q{SELECT ttl_docs.create_collection('back', 3000)});
my $session = session();
$session->query('SET default_transaction_isolation = \'repeatable read\'');
$session->query('SELECT 1');
set_clock(0);
# the session reads the settings before its next command
sql(q{INSERT INTO back VALUES ('a', '{}')});
is($session->query('SELECT count(*) FROM back'), 1,
	'the first statement after the clock was set back uses the new time');
is($session->query('SELECT ttl_docs.now() < clock_timestamp() + interval \'1000 s\''), 't', 'the next statement uses the new time, too');
$session->quit;

# ---- A standby ----

$node->backup('backup');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'backup', has_streaming => 1);
$standby->append_conf('postgresql.conf', 'hot_standby_feedback = on');
$standby->start;
sql(q{SELECT ttl_docs.create_collection('s', 10000); INSERT INTO s VALUES ('a', '{}')});
$node->wait_for_catchup($standby, 'replay', $node->lsn('insert'));
my $reader = $standby->background_psql('postgres');
$reader->query('BEGIN ISOLATION LEVEL REPEATABLE READ');
is($reader->query('SET LOCAL ttl_docs.clock_offset = 5000; SELECT ttl_docs.now() IS NOT NULL'), 't', 'standby: a transaction takes its snapshot');
sql(q{SELECT ttl_docs.set_default_ttl('s', 1000)});
$node->wait_for_catchup($standby, 'replay', $node->lsn('insert'));
is($reader->query('SELECT count(*) FROM s'), 1, 'standby: an old snapshot uses the old settings');
$reader->query('COMMIT');
is($reader->query('SET ttl_docs.clock_offset = 5000; SELECT count(*) FROM s'), 0, 'standby: a new snapshot uses the new settings');
$reader->quit;
$standby->stop;

# ---- COPY that waits for its client ----

# A CHECK constraint takes a lock when a row is stamped, so that the test can see it.
sql(q{
	CREATE FUNCTION tell(jsonb) RETURNS boolean LANGUAGE plpgsql AS $$
	BEGIN PERFORM pg_advisory_xact_lock_shared(4713); RETURN true; END $$;
});
for my $indexing ('consistent', 'lazy')
{
	sql(qq{SELECT ttl_docs.create_collection('w_$indexing', -1, '$indexing'); ALTER TABLE w_$indexing ADD CHECK (tell(doc))});
	my $rows = '';
	my $copy = IPC::Run::start(
		[ 'psql', '-XAtq', '-d', $node->connstr('postgres'), '-c', "COPY w_$indexing (id, doc) FROM STDIN" ],
		'<', \$rows, '>', \my $copied, '2>', \my $failed);
	# psql sends rows in blocks of some kilobytes
	$rows .= qq(x\t{"ttl": 1}\n) . join('', map { qq(row$_\t{"text": "@{['x' x 80]}"}\n) } 1 .. 300);
	$copy->pump while length $rows;
	until_is(q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 4713},
		'1', "$indexing: COPY has stamped a row, and waits");
	# these statements could raise the earliest expiry beyond the row, which is not in the table yet
	$node->safe_psql('postgres', qq{
		SET ttl_docs.clock_offset = 5;
		INSERT INTO w_$indexing VALUES ('y', '{}');
		CALL ttl_docs.purge('w_$indexing');
		INSERT INTO w_$indexing VALUES ('z', '{}')});
	$copy->finish;
	is($failed, '', "$indexing: COPY succeeds");
	is( $node->safe_psql('postgres', qq{
			SET ttl_docs.clock_offset = 5;
			SELECT count(*) FROM w_$indexing WHERE id = 'x';
			INSERT INTO w_$indexing VALUES ('x', '{"by": "another"}') ON CONFLICT DO NOTHING RETURNING doc}),
		qq(0\n{"by": "another"}), "$indexing: an expired row that arrived late blocks no key");
}

# ---- Workers raise the earliest expiry ----

sql(q{
	CREATE FUNCTION probes_by(t regclass, statement text) RETURNS bigint LANGUAGE plpgsql AS $$
	DECLARE
		pkey regclass = t || '_pkey';
		before bigint = coalesce(pg_stat_get_xact_numscans(pkey), 0);
	BEGIN
		EXECUTE statement;
		RETURN coalesce(pg_stat_get_xact_numscans(pkey), 0) - before;
	END $$;
});
for my $indexing ('consistent', 'lazy')
{
	sql(qq{SELECT ttl_docs.create_collection('r_$indexing', 1000, '$indexing');
		SET ttl_docs.clock_offset = -2000; INSERT INTO r_$indexing SELECT n, '{}' FROM generate_series(1, 500) AS n;
		RESET ttl_docs.clock_offset; INSERT INTO r_$indexing SELECT 'live' || n, '{}' FROM generate_series(1, 10) AS n});
	isnt(sql("SELECT probes_by('r_$indexing', 'INSERT INTO r_$indexing VALUES (gen_random_uuid(), ''{}'')')"),
		0, "$indexing: an INSERT searches for its key while a document is expired");
}
configure('ttl_docs.purge = on');
for my $indexing ('consistent', 'lazy')
{
	until_is(
		"SELECT probes_by('r_$indexing', 'INSERT INTO r_$indexing VALUES (gen_random_uuid(), ''{}'')') = 0",
		't', "$indexing: an INSERT does not search for its key after a worker has purged the collection");
}
# After a restart the earliest expiry is unknown until a worker or a session has scanned the purge index.
$node->restart;
for my $indexing ('consistent', 'lazy')
{
	until_is(
		"SELECT probes_by('r_$indexing', 'INSERT INTO r_$indexing VALUES (gen_random_uuid(), ''{}'')') = 0",
		't', "$indexing: an INSERT does not search for its key after a restart and a visit of a worker");
}
$node->stop;
done_testing();
