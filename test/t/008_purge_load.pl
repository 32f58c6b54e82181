# The purge under load, and its cost: a large backlog with concurrent writers and an old snapshot;
# the number of blocks read grows with the expired documents; space is reused.
#
# The test counts costs in blocks, and compares them with each other.  adopt() takes the stamps of
# large tables from a column, because this is the fastest way to create expired documents.

use strict;
use warnings;

use lib 'test/perl';
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use PurgeNode;
use Test::More;
use TtlServer;

plan skip_all => 'this PostgreSQL::Test has no background sessions'
  unless eval { require PostgreSQL::Test::BackgroundPsql; };

my $node = start_node(q{
ttl_docs.purge_grace = 0
autovacuum_naptime = '1s'
autovacuum_vacuum_cost_delay = 0
shared_buffers = '256MB'
maintenance_work_mem = '256MB'
max_wal_size = '4GB'
checkpoint_timeout = '1h'
});

# Creates a collection with given numbers of live and expired documents.
sub make_collection
{
	my ($table, $live, $expired, $filler) = @_;
	sql(qq{
		CREATE TABLE $table AS
			SELECT i AS id, '{"filler": "$filler"}'::jsonb AS doc,
				   now() - CASE WHEN i > 0 THEN interval '2h' + i * interval '1ms'
						   ELSE interval '0' END AS at
			  FROM generate_series(-$live, $expired) AS i WHERE i <> 0;
		ALTER TABLE $table ADD PRIMARY KEY (id);
		SELECT ttl_docs.adopt('$table', 3600, last_modified => 'at');
		SELECT pg_stat_force_next_flush();
	});
	return;
}

# Returns the number of blocks read so far from a table, and from its purge index.
sub blocks
{
	my ($table) = @_;
	return split /\|/, sql(qq{
		SELECT t.heap_blks_hit + t.heap_blks_read, i.idx_blks_hit + i.idx_blks_read
		  FROM pg_statio_user_tables AS t JOIN pg_statio_user_indexes AS i USING (relid)
		  JOIN pg_index AS x USING (indexrelid)
		 WHERE t.relid = '$table'::regclass
		   AND x.indkey::text = (SELECT attnum::text FROM pg_attribute
								  WHERE attrelid = t.relid AND attname = '_slot')});
}

# Lets the workers purge a table.  Returns the blocks of the table and of the purge index that
# were read meanwhile.  Statistics arrive a little later than the deletes.
sub cost_of_purge
{
	my ($table, $expired) = @_;
	my $deleted = "SELECT n_tup_del FROM pg_stat_user_tables WHERE relid = '$table'::regclass";
	my $after = sql($deleted) + $expired;
	my @before = blocks($table);
	configure('ttl_docs.purge = on');
	until_is($deleted, $after, "$table: expired documents are purged");
	configure('ttl_docs.purge = off');
	no_worker_left("$table: no worker is running any more");
	my @after = blocks($table);
	note("$table: heap " . ($after[0] - $before[0]) . ', index ' . ($after[1] - $before[1]));
	return ($after[0] - $before[0], $after[1] - $before[1]);
}

# ---- The cost of a pass grows with the expired documents, not with the live ones ----

make_collection('few', 20_000, 1000, '');
my @few = cost_of_purge('few', 1000);
make_collection('many', 400_000, 1000, '');
my @many = cost_of_purge('many', 1000);
is(sql("SELECT on_disk('few'), on_disk('many')"), '20000|400000', 'live documents stay');
# The whole table has some thousand blocks.
cmp_ok($many[0], '<', 1.3 * $few[0] + 500, 'with twenty times as many live documents, a pass reads about as much of the table');
cmp_ok($many[1], '<', 1.5 * $few[1] + 50, 'with twenty times as many live documents, a pass reads about as much of the purge index');
sql('DROP TABLE few, many');

# ---- A worker pauses after a long scan, outside of any transaction ----

# The purge of the collection is paused, so workers only count its expired documents.  Sessions in
# pg_sleep() count as busy.
make_collection('held', 100, 300_000, '');
sql(q{
	SELECT ttl_docs.pause_purge('held');
	-- waits until a worker pauses without a snapshot
	CREATE FUNCTION saw_pause(patience int) RETURNS boolean LANGUAGE plpgsql AS $$
	BEGIN
		FOR i IN 1 .. 50 * patience LOOP
			IF EXISTS (SELECT FROM pg_stat_activity
						WHERE backend_type = 'ttl_docs purge worker'
						  AND wait_event_type = 'Extension' AND backend_xmin IS NULL) THEN
				RETURN true;
			END IF;
			PERFORM pg_sleep(0.02), pg_stat_clear_snapshot();
		END LOOP;
		RETURN false;
	END $$;
});
my $sleepers = start_pgbench($node, "SELECT pg_sleep(1);\n", '-c', '8');
until_is("SELECT count(*) >= 8 FROM pg_stat_activity WHERE wait_event = 'PgSleep'",
	't', 'held: the server is busy');
configure('ttl_docs.purge = on');
is(sql("SELECT saw_pause($PostgreSQL::Test::Utils::timeout_default)"),
	't', 'held: a worker pauses after a scan, without a snapshot');
until_is(stat_of('estimated_backlog > 1000', 'held'), 't', 'held: the worker has counted the backlog');
is(on_disk('held'), '300100', 'held: nothing is purged');
stop_pgbench($sleepers);
configure('ttl_docs.purge = off');
sql('DROP TABLE held');

# ---- A million expired documents, writers, and an old snapshot ----

my $backlog = 1_000_000;
make_collection('big', 5000, $backlog, '');
make_collection('small', 5000, 100, '');
sql('CREATE TABLE audit (id int)');
my $reader = $node->background_psql('postgres');
$reader->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ');
is($reader->query_safe('SELECT count(*) FROM big'), '5000', 'the old snapshot sees the live documents');

# Writers reuse keys of expired documents while the purge deletes them, and record this in the
# same transaction.  They also write to live documents.
my $writers = start_pgbench(
	$node, qq{
\\set n random(1, $backlog)
\\set m random(1, 5000)
BEGIN;
INSERT INTO big (id, doc) VALUES (:n, '{"ttl": 86400}')
	ON CONFLICT (id) DO UPDATE SET doc = excluded.doc;
UPDATE big SET doc = doc WHERE id = - :m;
INSERT INTO audit VALUES (:n);
COMMIT;
}, '-c', '2', '-R', '200', '--max-tries=0');
until_is('SELECT count(*) > 100 FROM audit', 't', 'the writers have begun');
configure('ttl_docs.purge = on');
until_is(stat_of('purged > 0', 'big'), 't', 'the purge has begun');
is(sql('SELECT count(*) FROM big WHERE id > 0 AND _ttl IS NULL'),
	'0', 'expired documents are hidden during the purge');
until_is(stat_of("state = 'idle' AND purged > 0", 'big'), 't', 'the purge has finished');
is(on_disk('big', 'WHERE id > 0 AND _ttl IS NULL'), '0', 'all expired documents are purged');
ok(is_running($writers), 'the writers are still running');
unlike(stop_pgbench($writers), qr/ERROR|aborted/, 'the writers got no error');
is($reader->query_safe('SELECT count(*) FROM big'),
	'5000', 'the old snapshot sees the same as before');
is(sql("SELECT count(*) FROM (SELECT id FROM audit EXCEPT SELECT id FROM big) AS lost"),
	'0', 'every written document is visible');
is(sql('SELECT count(*) FROM big WHERE id < 0'), '5000', 'every document that was live before is visible');
is(sql("SELECT on_disk('big') = 5000 + count(DISTINCT id) FROM audit"), 't', 'no other document is on disk');

# The purge index still has the dead entries.  The next purge does not read them.
my $entries = 'SELECT pg_relation_size(indexrelid) > 4000000 FROM pg_index'
  . " WHERE indrelid = 'big'::regclass AND NOT indisprimary";
is(sql($entries), 't', 'the purge index has a million dead entries');
configure('ttl_docs.purge = off');
my %cost;
for my $table (qw(small big))
{
	no_worker_left("$table: no worker is running");
	sql(qq{
		SET ttl_docs.clock_offset = '-90min';
		INSERT INTO $table (id, doc) SELECT i, '{}' FROM generate_series(2000001, 2000100) AS i;
		SELECT pg_stat_force_next_flush();
	});
	$cost{$table} = [ cost_of_purge($table, 100) ];
}
cmp_ok($cost{big}[0], '<', 2 * $cost{small}[0] + 500, 'after a large purge: a pass reads no more of the table');
cmp_ok($cost{big}[1], '<', 2 * $cost{small}[1] + 100, 'after a large purge: a pass reads no more of the purge index');
$reader->query_safe('COMMIT');
$reader->quit;
sql('DROP TABLE big, small, audit');

# ---- The backlog in bytes ----

# The sizes come from pg_class, and include TOAST.  estimated_bytes is NULL where pg_class has no
# size.  Partitions without a size count like the others.
sql(q{
	SELECT ttl_docs.create_collection('sized', 60);
	SELECT ttl_docs.create_collection('unsized', 60);
	CREATE TABLE sized_parts (id int, doc jsonb) PARTITION BY RANGE (id);
	CREATE TABLE sized_parts_1 PARTITION OF sized_parts FOR VALUES FROM (0) TO (1000);
	CREATE TABLE sized_parts_2 PARTITION OF sized_parts FOR VALUES FROM (1000) TO (2000);
	SELECT ttl_docs.adopt('sized_parts', 60);
	SELECT ttl_docs.pause_purge(collection) FROM ttl_docs.collections;
	CREATE FUNCTION incompressible(length int) RETURNS text LANGUAGE sql AS
		'SELECT string_agg(md5(random()::text), $$$$) FROM generate_series(1, length / 32)';
	SET ttl_docs.clock_offset = '-1h';
	INSERT INTO sized (id, doc)
		SELECT i, jsonb_build_object('filler', incompressible(10000)) FROM generate_series(1, 200) AS i;
	INSERT INTO unsized (id, doc) SELECT i, '{}' FROM generate_series(1, 200) AS i;
	INSERT INTO sized_parts (id, doc) SELECT i, '{"a": 1}' FROM generate_series(900, 1049) AS i;
	VACUUM sized;
	VACUUM sized_parts_1;
});
configure('ttl_docs.purge = on');
until_is(stat_of('estimated_backlog', $_), $_ eq 'sized_parts' ? '150' : '200', "bytes: the backlog of $_ is counted")
  for qw(sized unsized sized_parts);
cmp_ok(sql(stat_of('estimated_bytes', 'sized')), '>', 200 * 10000, 'bytes: TOAST is included');
cmp_ok(sql(stat_of('estimated_bytes', 'sized')), '<', 200 * 15000, 'bytes: nothing is included twice');
is(sql(stat_of('estimated_bytes IS NULL', 'unsized')), 't', 'bytes: NULL while the size is unknown');
is( sql(stat_of('estimated_bytes', 'sized_parts')),
	150 * sql(q{SELECT relpages * current_setting('block_size')::int / reltuples
				  FROM pg_class WHERE oid = 'sized_parts_1'::regclass}),
	'bytes: a partition of unknown size counts like the others');
sql('ANALYZE unsized');
is( sql(stat_of('estimated_bytes', 'unsized')),
	sql(q{SELECT relpages * current_setting('block_size')::int
			FROM pg_class WHERE oid = 'unsized'::regclass}),
	'bytes: the size is known after ANALYZE');
# The view does not wait for locks.
my $exclusive = $node->background_psql('postgres');
$exclusive->query_safe('BEGIN; LOCK TABLE sized, sized_parts');
cmp_ok(sql("SET lock_timeout = '10s'; " . stat_of('estimated_bytes', 'sized')),
	'>', 0, 'bytes: shown for a table that is locked');
cmp_ok(sql("SET lock_timeout = '10s'; " . stat_of('estimated_bytes', 'sized_parts')),
	'>', 0, 'bytes: shown for partitions that are locked');
$exclusive->query_safe('ROLLBACK');
$exclusive->quit;
sql('SELECT ttl_docs.resume_purge(collection) FROM ttl_docs.collections');
until_is(stat_of('estimated_bytes', 'sized'), '0', 'bytes: 0 when everything is purged');
configure('ttl_docs.purge = off');
sql('DROP TABLE sized, unsized, sized_parts');

# ---- Space is reused ----

make_collection('space', 100, 100_000, 'x' x 100);
my $size = sql("SELECT pg_total_relation_size('space')");
configure("autovacuum = on\nttl_docs.purge = on");
until_is("SELECT n_tup_del FROM pg_stat_user_tables WHERE relid = 'space'::regclass",
	'100000', 'the statistics for autovacuum count the purged documents');
until_is(
	q{SELECT last_autovacuum IS NOT NULL AND n_dead_tup < 1000
		FROM pg_stat_user_tables WHERE relid = 'space'::regclass},
	't', 'autovacuum removes the dead rows');
sql(q{
	INSERT INTO space (id, doc)
		SELECT i, jsonb_build_object('filler', repeat('x', 100)) FROM generate_series(1, 100000) AS i;
});
cmp_ok(sql("SELECT pg_total_relation_size('space')"),
	'<', 1.5 * $size, 'as many new documents fit into the same space');
is(sql('SELECT count(*) FROM space'), '100100', 'all documents are visible');
$node->stop;

done_testing();
