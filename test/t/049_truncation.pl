# Workers truncate a large table all of whose documents have expired.
#
# 1. On a standby, older snapshots are cancelled, or the primary waits for them.
# 2. Whatever sessions do, no snapshot loses a document: the purge waits for them.
# 3. Nobody waits for the purge.
# 4. Documents are deleted one by one where a truncation would not mean the same.
# 5. A crash right after a truncation.
#
# Expired documents are written with a clock that is hours behind.  The clock of the server moves
# when a test needs documents that expire, or the end of an interval.

use strict;
use warnings;

use lib 'test/perl';
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use PurgeNode;
use Test::More;
use Time::HiRes qw(usleep);
use TtlServer;
use WorkerLog;

my $node = start_node(
	q{
shared_preload_libraries = 'ttl_docs, rival'
ttl_docs.purge_grace = 0
ttl_docs.purge_workers = 2
max_prepared_transactions = 5
max_worker_processes = 16
log_min_messages = debug1
}, allows_streaming => 'logical');

sub session
{
	my ($database) = @_;
	return $node->background_psql($database // 'postgres', on_error_stop => 0);
}

# Moves the clock of the server ahead.  If it moves by five minutes or more at once, the purge is held.
my $now = 0;

sub advance
{
	my ($seconds) = @_;
	for (my $left = $seconds; $left > 0; $left -= 200)
	{
		$now += $left < 200 ? $left : 200;
		configure("ttl_docs.clock_offset = ${now}s");
		ok(let_workers_visit($node, 'postgres'), "the clock is $now s ahead");
	}
	return;
}

# Returns statements that write documents of two kilobytes: 1,100 pages of 4 documents.
my $documents = 4400;

sub fill
{
	my ($collection, $clock) = @_;
	$clock //= '-2h';
	return qq{
		SET ttl_docs.clock_offset = '$clock';
		INSERT INTO $collection (id, doc)
			SELECT gen_random_uuid(), jsonb_build_object('text', repeat('x', 1900))
			FROM generate_series(1, $documents);
		RESET ttl_docs.clock_offset;
	};
}

# Creates a large collection whose documents have expired.  Its purge is paused.
sub make_expired
{
	my ($collection) = @_;
	sql("SELECT ttl_docs.create_collection('$collection', 60); SELECT ttl_docs.pause_purge('$collection');"
		  . fill($collection));
	return;
}

sub resume
{
	my ($collection) = @_;
	sql("SELECT ttl_docs.resume_purge('$collection')");
	return;
}

# The purge has removed all documents of a collection by this number of truncations.  Counts as two tests.
sub until_truncated
{
	my ($collection, $name, $truncations) = @_;
	$truncations //= 1;
	until_is(stat_of('truncations', $collection), $truncations, "$name: the table is truncated");
	is(on_disk($collection), 0, "$name: no document is left");
	return;
}

# The purge has deleted the documents of a collection one by one.  Counts as two tests.
sub until_deleted
{
	my ($collection, $name) = @_;
	until_on_disk($collection, 0, "$name: the documents are purged");
	is(sql(stat_of('truncations, estimated_truncated', $collection)), '0|0', "$name: they are deleted one by one");
	return;
}

# Returns the number of collections with this name that the second alert query of operations.md finds.
my ($behind) = slurp_file('docs/operations.md') =~ /^-- 2\. The purge does not keep up[^\n]*\n(.*?);\n/ms;

sub alerts_of
{
	my ($collection) = @_;
	return sql("SELECT count(*) FROM ($behind) AS behind WHERE collection = '$collection'::regclass");
}

# The purge waits, and all documents are on disk.  Counts as two tests.
sub until_truncating
{
	my ($collection, $name) = @_;
	until_state($collection, 'truncating', "$name: the purge waits");
	is(on_disk($collection), $documents, "$name: all documents are on disk");
	return;
}

# Waits until this number of workers has started.
sub wait_for_visits
{
	my ($count) = @_;
	my $log = log_size($node);
	for (my $i = 0; $i < 1800; $i++)
	{
		return 1 if worker_starts($node, $log) >= $count;
		usleep(100_000);
	}
	return 0;
}

configure('ttl_docs.purge = on');

# ---- A standby ----

# This comes first: later, records of other tables would also cancel old snapshots.

$node->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'base', has_streaming => 1);
$standby->append_conf('postgresql.conf', "max_standby_streaming_delay = 0\nwal_receiver_status_interval = 1s");
$standby->start;

# A session of the standby takes a snapshot, and does not use the table.  It shows expired documents, so
# they need not expire after the snapshot.
sub standby_session
{
	my ($collection) = @_;
	make_expired($collection);
	# then no other record cancels the session
	sql('VACUUM');
	$node->wait_for_catchup($standby);
	my $reader = $standby->background_psql('postgres', on_error_stop => 0);
	$reader->query('SET ttl_docs.show_expired = on; BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1');
	return $reader;
}

my $conflicts = q{SELECT confl_snapshot FROM pg_stat_database_conflicts WHERE datname = 'postgres'};
my $before = $standby->safe_psql('postgres', $conflicts);
my $reader = standby_session('replayed');
resume('replayed');
until_truncated('replayed', 'a standby without feedback');
$node->wait_for_catchup($standby);
my $seen = eval { $reader->query('SELECT count(*) FROM replayed') } // '';
isnt($seen, '0', 'standby: the old snapshot is not answered wrongly');
is($standby->safe_psql('postgres', $conflicts), $before + 1, 'standby: the session with the old snapshot is cancelled');
is($standby->safe_psql('postgres', q{SET ttl_docs.show_expired = on; SELECT count(*) FROM replayed}), 0,
	'standby: a new snapshot finds the table empty');
eval { $reader->quit };

reload_with($standby, 'hot_standby_feedback = on');
$reader = standby_session('awaited');
until_is(q{SELECT count(backend_xmin) FROM pg_stat_replication}, 1, 'the standby sends its feedback');
resume('awaited');
until_truncating('awaited', 'a standby with feedback');
is($reader->query('SELECT count(*) FROM awaited'), $documents, 'standby with feedback: the session sees all documents');
$reader->query('COMMIT');
until_truncated('awaited', 'a standby with feedback');
$reader->quit;
$standby->stop;

# ---- A truncation ----

make_expired('docs');
sql('ANALYZE docs; CREATE INDEX ON docs USING gin (doc); CREATE INDEX ON docs ((doc ->> $$text$$))');
my $file = sql(q{SELECT pg_relation_filenode('docs')});
resume('docs');
until_truncated('docs', 'idle server');
is( sql(stat_of('estimated_truncated, purged, batches, estimated_backlog, undeletable, last_error IS NULL, last_purge IS NOT NULL', 'docs')),
	"$documents|0|0|0|0|t|t", 'the view counts the documents of the truncation, and only there');
is(sql(q{SELECT pg_relation_size('docs'), pg_relation_size('docs__slot_idx') <= 8192, n_dead_tup
	FROM pg_stat_user_tables WHERE relname = 'docs'}),
	'0|t|0', 'the disk space is back, and there are no dead rows');
isnt(sql(q{SELECT pg_relation_filenode('docs')}), $file, 'the table has a new file');
until_state('docs', 'idle', 'after a truncation, the purge is idle');

# Never twice within ten minutes
sql(fill('docs'));
until_on_disk('docs', 0, 'the documents that were written next are purged');
is(sql(stat_of('truncations, purged', 'docs')), "1|$documents", 'within ten minutes, they are deleted one by one');
advance(660);
sql(fill('docs'));
until_truncated('docs', 'ten minutes later', 2);

# The table takes documents as before, and small tables are not truncated.
sql(expired('docs', 10) . live('docs', 10));
until_on_disk('docs', 10, 'after a truncation, expired documents are purged');
sql(q{SELECT ttl_docs.create_collection('small', 60);} . expired('small', 2000));
until_deleted('small', 'a small table');

# ---- Snapshots ----

# The documents of these tests expire when the clock moves.  A session takes a snapshot before.
# Starts sessions, lets the documents expire, and checks what the sessions see.  Counts as six tests.
sub sees_all
{
	my ($name, %case) = @_;
	my $collection = 'seen';
	my @others;

	sql("SELECT ttl_docs.create_collection('$collection', 60);" . fill($collection, $now));
	sql($case{setup}) if $case{setup};
	my $reader = session();
	@others = $case{begin}->($reader);
	advance(200);
	until_truncating($collection, $name);
	is($case{count}->($reader, @others), $documents, "$name: the session sees all documents");
	$case{end} ? $case{end}->($reader, @others) : $reader->query('COMMIT');
	until_truncated($collection, $name);
	$_->quit for $reader, grep { ref } @others;
	sql("DROP TABLE $collection");
	return;
}

for my $level ('REPEATABLE READ', 'SERIALIZABLE')
{
	sees_all(
		"$level, table untouched",
		begin => sub { shift->query("BEGIN ISOLATION LEVEL $level; SELECT 1"); return },
		count => sub { shift->query('SELECT count(*) FROM seen') });
}
sees_all(
	'a query with a function that opens the table late',
	setup => q{
		CREATE FUNCTION count_seen() RETURNS bigint LANGUAGE plpgsql STABLE AS
			'BEGIN RETURN (SELECT count(*) FROM seen); END'},
	begin => sub {
		my ($reader) = @_;
		$reader->query('BEGIN; DECLARE late CURSOR FOR SELECT CASE WHEN i = 1 THEN 0 ELSE count_seen() END FROM generate_series(1, 2) AS i');
		$reader->query('FETCH late');
		return;
	},
	count => sub { shift->query('FETCH late') });
sees_all(
	'an exported snapshot',
	begin => sub {
		my ($reader) = @_;
		return $reader->query('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT pg_export_snapshot()');
	},
	count => sub {
		my ($reader, $snapshot) = @_;
		return sql("BEGIN ISOLATION LEVEL REPEATABLE READ; SET TRANSACTION SNAPSHOT '$snapshot'; SELECT count(*) FROM seen");
	});
sees_all(
	'a lock that ROLLBACK TO has released',
	begin => sub {
		my ($reader) = @_;
		$reader->query('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1; SAVEPOINT s; SELECT count(*) FROM seen; ROLLBACK TO s');
		return;
	},
	count => sub { shift->query('SELECT count(*) FROM seen') });
sees_all(
	'an open cursor',
	begin => sub { shift->query('BEGIN; DECLARE c CURSOR FOR SELECT count(*) FROM seen'); return },
	count => sub { shift->query('FETCH c') });
sees_all(
	'a transaction that has written elsewhere',
	setup => 'CREATE TABLE other (i int)',
	begin => sub { shift->query('BEGIN; INSERT INTO other VALUES (1)'); return },
	count => sub { $documents });
sees_all(
	'a prepared transaction',
	begin => sub { shift->query(q{BEGIN; INSERT INTO other VALUES (1); PREPARE TRANSACTION 'p'}); return },
	count => sub { $documents },
	end => sub { shift->query(q{COMMIT PREPARED 'p'}) });

# Cursors WITH HOLD have their rows already.
make_expired('held');
my $holder = session();
$holder->query(q{SET ttl_docs.clock_offset = '-2h'; DECLARE h CURSOR WITH HOLD FOR SELECT count(*) FROM held; RESET ttl_docs.clock_offset});
resume('held');
until_truncated('held', 'a cursor WITH HOLD');
is($holder->query('FETCH h'), $documents, 'a cursor WITH HOLD returns all documents');
$holder->quit;

# A transaction of another database does not count, even if it has an id.
$node->safe_psql('postgres', 'CREATE DATABASE elsewhere');
my $elsewhere = session('elsewhere');
$elsewhere->query('BEGIN; CREATE TABLE t (i int); SELECT pg_current_xact_id()');
make_expired('here');
resume('here');
until_truncated('here', 'a transaction in another database');
$elsewhere->quit;

# The first command of a REPEATABLE READ transaction waits for a lock, in one message with a query.  The
# snapshot is taken after the wait, so the instant must not be older: a table can be truncated meanwhile.
sql(q{CREATE TABLE gate (i int)});
my ($locker, $waiter) = (session(), session());
$locker->query('BEGIN; LOCK gate');
$waiter->query("SET ttl_docs.clock_offset = 0; SET default_transaction_isolation = 'repeatable read'");
$waiter->{stdin} .= 'BEGIN \\; LOCK gate IN SHARE MODE \\; SELECT ttl_docs.now() AS instant \\gset' . "\n";
$waiter->{run}->pump_nb;
until_is(q{SELECT count(*) FROM pg_locks WHERE relation = 'gate'::regclass AND NOT granted}, 1, 'LOCK waits');
my $released = sql('SELECT clock_timestamp()');
$locker->query('COMMIT');
is($waiter->query("SELECT :'instant'::timestamptz >= '$released'"), 't',
	'LOCK as the first command: the instant is not before the end of the wait');
$_->quit for $locker, $waiter;

# Documents that were renewed since the note
make_expired('renewed');
my $old = session();
$old->query('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1');
resume('renewed');
until_truncating('renewed', 'an old snapshot');
sql(q{INSERT INTO renewed (id, doc) VALUES ('new', '{}')});
until_is("SELECT on_disk('renewed')", 1, 'a new document arrives: the others are deleted one by one');
$old->query('COMMIT');
is(sql(stat_of('truncations', 'renewed')), 0, 'the table with the new document is not truncated');
is(sql('SELECT id FROM renewed'), 'new', 'the new document is there');
$old->quit;

# ---- Nobody waits ----

# For a minute, the purge tries to lock the table.
make_expired('locked');
my $user = session();
$user->query('BEGIN; SELECT count(*) FROM locked');
my $xid = sql('SELECT pg_snapshot_xmax(pg_current_snapshot())');
resume('locked');
until_truncating('locked', 'a session uses the table');
until_is(q{SELECT count(*) FROM pg_locks WHERE relation = 'locked'::regclass AND NOT granted}, 0, 'the purge does not wait for the lock');
advance(70);
until_deleted('locked', 'the table is in use for a minute');
$user->quit;

make_expired('free_again');
$user = session();
$user->query('BEGIN; LOCK TABLE free_again IN ROW SHARE MODE');
resume('free_again');
until_truncating('free_again', 'a session has locked the table');
# before the note there is one id, and the attempts need none
$xid = sql('SELECT pg_snapshot_xmax(pg_current_snapshot())');
ok(wait_for_visits(3), 'the purge tries again');
is(sql('SELECT pg_snapshot_xmax(pg_current_snapshot())'), $xid, 'attempts to lock the table take no transaction id');
$user->query('COMMIT');
until_truncated('free_again', 'the lock is released');
$user->quit;

# A lock of the TOAST table only, as autovacuum has
make_expired('toasted');
$user = session();
$user->query(q{BEGIN; SELECT count(*) FROM } . sql(q{SELECT reltoastrelid::regclass FROM pg_class WHERE oid = 'toasted'::regclass}));
resume('toasted');
until_truncating('toasted', 'a session uses the TOAST table');
# several attempts; an attempt that waited would hold the lock of the table meanwhile
is(sql(q{
	CREATE FUNCTION was_waiting(toast oid) RETURNS boolean LANGUAGE plpgsql AS $$
	BEGIN
		FOR i IN 1..300 LOOP
			IF EXISTS (SELECT FROM pg_locks WHERE relation = toast AND NOT granted) THEN
				RETURN true;
			END IF;
			PERFORM pg_sleep(0.01);
		END LOOP;
		RETURN false;
	END $$;
	SELECT was_waiting(reltoastrelid) FROM pg_class WHERE oid = 'toasted'::regclass}), 'f', 'the purge does not wait for the lock of the TOAST table');
# A worker that only tries again does not change the state.
is(sql(q{
	CREATE FUNCTION states_of(collection regclass) RETURNS text[] LANGUAGE plpgsql AS $$
	DECLARE
		stop timestamptz := clock_timestamp() + interval '3 s';
		shown text;
		states text[] := '{}';
	BEGIN
		WHILE clock_timestamp() < stop LOOP
			shown := (ttl_docs_internal.collection_stats(collection)).state;
			IF shown <> ALL (states) THEN
				states := states || shown;
			END IF;
		END LOOP;
		RETURN states;
	END $$;
	SELECT states_of('toasted')}), '{truncating}', 'the state stays the same while the purge tries again');
$user->query('COMMIT');
until_truncated('toasted', 'the lock of the TOAST table is released');
$user->quit;

# ---- The rate limit ----

# Another table uses up the rate.  A truncation deletes no rows, so it does not wait.
sql(q{SELECT ttl_docs.create_collection('slow', 60); SELECT ttl_docs.pause_purge('slow')} . ';' . expired('slow', 10000));
make_expired('unlimited');
configure('ttl_docs.purge_max_rate = 1');
ok(let_workers_visit($node, 'postgres'), 'workers know purge_max_rate');
resume('slow');
until_state('slow', 'capped', 'another table uses up the rate');
# Between two looks at the state there is no snapshot that would delay the truncation.
unlike(
	sql(q{
		CREATE TEMP TABLE seen (state text);
		SELECT ttl_docs.resume_purge('unlimited');
		DO $$
		DECLARE
			stop timestamptz := clock_timestamp() + interval '3 min';
			shown text;
			states text[] := '{}';
			truncated boolean := false;
		BEGIN
			WHILE NOT truncated AND clock_timestamp() < stop LOOP
				SELECT state, truncations = 1 INTO shown, truncated
					FROM ttl_docs_internal.collection_stats('unlimited');
				IF shown <> ALL (states) THEN
					states := states || shown;
				END IF;
				COMMIT;
			END LOOP;
			INSERT INTO seen SELECT unnest(states);
		END $$;
		SELECT string_agg(state, ' ') FROM seen}),
	qr/capped/, 'a table that is to be truncated does not wait for the rate');
until_truncated('unlimited', 'purge_max_rate');
cmp_ok(on_disk('slow'), '>', 0, 'the other table still uses up the rate');
sql(q{SELECT ttl_docs.drop_collection('slow')});
configure('ttl_docs.purge_max_rate = 0');
ok(let_workers_visit($node, 'postgres'), 'workers know that there is no rate limit');

# ---- Waiting for the last document ----

# Creates a paused collection with expired documents and one more document.
sub make_mixed
{
	my ($collection, $clock, $doc) = @_;
	make_expired($collection);
	sql(qq{SET ttl_docs.clock_offset = '$clock s'; INSERT INTO $collection (id, doc) VALUES ('last', '$doc')});
	return;
}

# All documents expire soon, and the first ones have expired.
make_mixed('soon', $now + 30, '{}');
resume('soon');
until_state('soon', 'truncating', 'the last document expires soon: the purge waits');
is(on_disk('soon'), $documents + 1, 'the last document expires soon: nothing is deleted');
is(sql(stat_of('estimated_backlog > 0, oldest_overdue > $$1 h$$', 'soon')),
	't|t', 'the last document expires soon: the view shows the backlog');
like(sql(stat_of('hint', 'soon')), qr/ttl_docs\.purge_truncate_wait.*backend_xmin/, 'the last document expires soon: there is a hint');
is(alerts_of('soon'), 1, 'the oldest document expired long before purge_truncate_wait: the alert query finds the table');
advance(120);
until_truncated('soon', 'the last document has expired');

# Documents that expire later arrive meanwhile.
make_mixed('busy', $now + 30, '{}');
resume('busy');
until_state('busy', 'truncating', 'a table in use: the purge waits');
sql("SET ttl_docs.clock_offset = '" . ($now + 150) . q{ s'; INSERT INTO busy (id, doc) VALUES ('later', '{}')});
until_on_disk('busy', 2, 'a table in use: the documents are deleted one by one');

# Documents that never expire, and documents that expire late
make_mixed('endless', $now, '{"ttl": -1}');
resume('endless');
until_on_disk('endless', 1, 'a document never expires: the others are deleted one by one');
is(sql(q{SELECT id FROM endless}), 'last', 'the document that never expires is there');
make_mixed('late', $now, '{"ttl": 86400}');
resume('late');
until_on_disk('late', 1, 'a document expires in a day: the others are deleted one by one');

configure('ttl_docs.purge_truncate_wait = 2d');
until_is('SHOW ttl_docs.purge_truncate_wait', '2d', 'purge_truncate_wait is two days');
ok(let_workers_visit($node, 'postgres'), 'purge_truncate_wait: workers know it');
make_mixed('patient', $now, '{"ttl": 86400}');
resume('patient');
until_state('patient', 'truncating', 'purge_truncate_wait: the purge waits for the last document');
is(on_disk('patient'), $documents + 1, 'purge_truncate_wait: nothing is deleted');
is(alerts_of('patient'), 0, 'purge_truncate_wait: the alert query allows for the wait');
configure('ttl_docs.purge_truncate_wait = 0');
until_on_disk('patient', 1, 'purge_truncate_wait: without it, the purge does not wait');
configure('ttl_docs.purge_truncate_wait = 5min');

# ---- Where a truncation would not mean the same ----

sql(q{
	CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
	CREATE ROLE poor;
	CREATE TABLE children (parent text);
});
my %unlike = (
	row_trigger => 'CREATE TRIGGER t AFTER DELETE ON $t FOR EACH ROW EXECUTE FUNCTION nothing()',
	statement_trigger => 'CREATE TRIGGER t AFTER DELETE ON $t EXECUTE FUNCTION nothing()',
	truncate_trigger => 'CREATE TRIGGER t BEFORE TRUNCATE ON $t EXECUTE FUNCTION nothing()',
	index_of_extension => 'CREATE INDEX ON $t USING bloom (id)',
	always_trigger => 'CREATE TRIGGER t AFTER DELETE ON $t FOR EACH ROW EXECUTE FUNCTION nothing(); ALTER TABLE $t ENABLE ALWAYS TRIGGER t',
	foreign_key => 'ALTER TABLE children ADD FOREIGN KEY (parent) REFERENCES $t',
	no_right => 'GRANT CREATE ON SCHEMA public TO poor; ALTER TABLE $t OWNER TO poor; REVOKE TRUNCATE ON $t FROM poor',
	old_index => 'DROP INDEX IF EXISTS x; CREATE INDEX x ON $t (_slot) WHERE _slot IS NOT NULL; DROP INDEX ${t}__slot_idx',
	lazy => q{SELECT ttl_docs.set_indexing('$t', 'lazy')});
# PostgreSQL 18
if (sql('SHOW server_version_num') >= 180000)
{
	$unlike{key_not_enforced} = 'ALTER TABLE children ADD FOREIGN KEY (parent) REFERENCES $t NOT ENFORCED';
}
if (has_extension($node, 'bloom'))
{
	sql('CREATE EXTENSION bloom');
}
else
{
	delete $unlike{index_of_extension};
}
for my $case (sort keys %unlike)
{
	my $setup = $unlike{$case} =~ s/\$t|\$\{t\}/$case/gr;
	make_expired($case);
	sql($setup);
	resume($case);
	until_deleted($case, $case);
	is(sql(stat_of('last_error', $case)), '', "$case: there is no error");
}
# The slots of a dump are not trusted: somebody may have edited it.
make_expired('restored');
my $dump = $node->basedir . '/restored.sql';
$node->command_ok([ 'pg_dump', '-t', 'restored', '-f', $dump, $node->connstr('postgres') ], 'a collection is dumped');
sql(q{SELECT ttl_docs.drop_collection('restored')});
$node->command_ok([ 'psql', '-XqAt', '-v', 'ON_ERROR_STOP=1', '-f', $dump, '-d', $node->connstr('postgres') ], 'and restored');
is(on_disk('restored'), $documents, 'all documents are on disk again');
resume('restored');
until_deleted('restored', 'a restored collection');

make_expired('switched_off');
configure('ttl_docs.purge_truncate = off');
until_is('SHOW ttl_docs.purge_truncate', 'off', 'purge_truncate is off');
no_worker_left('the next worker has the new setting');
resume('switched_off');
until_deleted('switched_off', 'purge_truncate = off');
configure('ttl_docs.purge_truncate = on');

# Triggers that a DELETE does not fire, and foreign keys of the table itself, do not matter.
sql('CREATE TABLE parents (id text PRIMARY KEY)');
make_expired('others');
sql(q{
	CREATE TRIGGER i BEFORE INSERT OR UPDATE ON others FOR EACH ROW EXECUTE FUNCTION nothing();
	CREATE TRIGGER d AFTER DELETE ON others FOR EACH ROW EXECUTE FUNCTION nothing();
	ALTER TABLE others DISABLE TRIGGER d;
	ALTER TABLE others ADD COLUMN parent text REFERENCES parents;
});
resume('others');
until_truncated('others', 'triggers that a DELETE does not fire');

# Holds
make_expired('paused');
ok(let_workers_visit($node, 'postgres'), 'workers visit all collections');
is(on_disk('paused'), $documents, 'a paused collection is not truncated');

# A logical slot of this database
is($node->safe_psql('postgres', q{SELECT slot_name FROM pg_create_logical_replication_slot('decoded', 'pgoutput')}),
	'decoded', 'there is a logical slot');
resume('paused');
until_deleted('paused', 'a logical slot');
sql(q{SELECT pg_drop_replication_slot('decoded')});

# An object access hook that refuses
make_expired('refused');
configure('rival.refuse_truncate = on');
ok(let_workers_visit($node, 'postgres'), 'workers know that a hook refuses truncations');
resume('refused');
until_deleted('refused', 'an object access hook refuses');
like(sql(stat_of('last_error', 'refused')), qr/^rival refuses to truncate/, 'the view shows the error of the hook');
configure('rival.refuse_truncate = off');
ok(let_workers_visit($node, 'postgres'), 'workers know that the hook does not refuse any more');

# ---- Partitions, and rows with odd stamps ----

sql(q{
	CREATE TABLE parts (id text, day int, doc jsonb, PRIMARY KEY (id, day)) PARTITION BY LIST (day);
	CREATE TABLE day_1 PARTITION OF parts FOR VALUES IN (1);
	CREATE TABLE day_2 PARTITION OF parts FOR VALUES IN (2);
	SELECT ttl_docs.adopt('parts', 60);
	SELECT ttl_docs.pause_purge('parts');
	SET ttl_docs.clock_offset = '-2h';
	INSERT INTO parts SELECT gen_random_uuid(), d, jsonb_build_object('text', repeat('x', 1900))
		FROM generate_series(1, } . $documents . q{), generate_series(1, 2) AS d;
	RESET ttl_docs.clock_offset;
	INSERT INTO parts VALUES ('live', 2, '{"ttl": 86400}');
});
resume('parts');
until_on_disk('parts', 1, 'partitions: the expired documents are purged');
is(sql(stat_of('truncations, estimated_truncated > 0, purged', 'parts')), "1|t|$documents",
	'one partition is truncated, and the documents of the other are deleted one by one');
is(sql('SELECT id, day FROM parts'), 'live|2', 'the live document is there');

# Rows that a replica role brings: the slot is computed, so a live document is never taken for an expired one.
make_expired('replica');
sql(q{
	SET session_replication_role = replica;
	INSERT INTO replica (id, doc, _ts, _ttl, _slot) VALUES
		('own', '{"ttl": 86400}', clock_timestamp() + interval '1 d', 86400, 0),
		('inherits', '{}', clock_timestamp() + interval '1 d', NULL, 0),
		('past', '{}', clock_timestamp() + interval '1 d', NULL, -4611686018427387904),
		('zero', '{}', clock_timestamp(), 0, 0),
		('infinite', '{}', 'infinity', NULL, 0),
		('endless', '{"ttl": -1}', clock_timestamp(), -1, 0);
});
resume('replica');
until_on_disk('replica', 6, 'replica role: the expired documents are purged, and no live one');
is(sql('SELECT count(*) FROM replica'), 6, 'replica role: all live documents are there');
is(sql(stat_of('truncations', 'replica')), 0, 'replica role: the table is not truncated');

# Uncommitted and aborted documents
make_expired('aborted');
$user = session();
$user->query(q{BEGIN; INSERT INTO aborted (id, doc) VALUES ('x', '{"ttl": 86400}')});
resume('aborted');
$user->query('ROLLBACK');
until_on_disk('aborted', 0, 'an aborted document');
$user->quit;

# ---- A trigger that was disabled while the library was not loaded ----

make_expired('unloaded');
$node->adjust_conf('postgresql.conf', 'shared_preload_libraries', q{''});
$node->restart;
sql(q{
	ALTER TABLE unloaded DISABLE TRIGGER ALL;
	INSERT INTO unloaded (id, doc, _ts, _slot) VALUES ('live', '{}', clock_timestamp() + interval '1 d', 0);
	ALTER TABLE unloaded ENABLE TRIGGER ALL;
});
$node->adjust_conf('postgresql.conf', 'shared_preload_libraries', q{'ttl_docs, rival'});
$node->restart;
resume('unloaded');
until_on_disk('unloaded', 1, 'a trigger that was disabled: the expired documents are deleted one by one');
is(sql('SELECT id FROM unloaded'), 'live', 'a trigger that was disabled: the live document is there');

# ---- A crash ----

make_expired('crashed');
resume('crashed');
until_truncated('crashed', 'before a crash');
sql(live('crashed', 10));
$node->stop('immediate');
$node->start;
is(on_disk('crashed'), 10, 'after a crash: the expired documents do not come back, and the live ones are there');
is(sql(q{SELECT count(*) FROM crashed WHERE id LIKE 'live%'}), 10, 'after a crash: the live documents are visible');
is(sql(stat_of('truncations', 'crashed')), 0, 'after a crash: the view counts from the start');

SKIP:
{
	skip 'amcheck is not installed', 1 unless has_extension($node, 'amcheck');
	sql('CREATE EXTENSION amcheck');
	isnt( sql(q{
			SELECT count(bt_index_check(i.indexrelid, true)::text)
			FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid JOIN pg_am AS a ON a.oid = c.relam
			WHERE a.amname = 'btree' AND c.relkind = 'i' AND c.relnamespace = 'public'::regnamespace}),
		0, 'amcheck finds nothing wrong');
}

nothing_crashed($node);
done_testing();
