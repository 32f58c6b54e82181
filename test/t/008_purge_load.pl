# The purge under load, and what it costs: a large backlog beside writers and an
# old snapshot; blocks in proportion to what has expired; the space comes back.
#
# Costs are counted in blocks, and compared with one another.  Large tables get
# their stamps from a column when they are adopted, which is the fastest way to
# documents that have expired.

use strict;
use warnings;

use IPC::Run;
use lib 'test/perl';
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use PurgeNode;
use Test::More;

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

# A collection of so many live documents, and so many that have expired
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

# What has been read of a table and of its purge index so far, in blocks
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

# Lets the workers purge a table, from what has been read before on; returns the
# blocks that it took.  Statistics come a little later than the deletes.
sub cost_of_purge
{
	my ($table, $expired) = @_;
	my $deleted = "SELECT n_tup_del FROM pg_stat_user_tables WHERE relid = '$table'::regclass";
	my $after = sql($deleted) + $expired;
	my @before = blocks($table);
	configure('ttl_docs.purge = on');
	until_is($deleted, $after, "$table: purged");
	configure('ttl_docs.purge = off');
	# nobody is at it any more
	until_is(
		"SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'ttl_docs purge worker'",
		'0', "$table: the workers are gone");
	my @after = blocks($table);
	note("$table: heap " . ($after[0] - $before[0]) . ', index ' . ($after[1] - $before[1]));
	return ($after[0] - $before[0], $after[1] - $before[1]);
}

# ---- A pass costs in proportion to what has expired, not to what is live ----

make_collection('few', 20_000, 1000, '');
my @few = cost_of_purge('few', 1000);
make_collection('many', 400_000, 1000, '');
my @many = cost_of_purge('many', 1000);
is(sql("SELECT on_disk('few'), on_disk('many')"), '20000|400000', 'live documents stay');
# To read all of it would be some thousand blocks.
cmp_ok($many[0], '<', 1.3 * $few[0] + 500, 'twenty times the documents: the same of the table is read');
cmp_ok($many[1], '<', 1.5 * $few[1] + 50, 'and of the purge index');
sql('DROP TABLE few, many');

# ---- A long look is followed by a pause, outside of any transaction ----

# The purge is paused, so workers only count.  Sessions that sleep count as busy.
make_collection('held', 100, 300_000, '');
sql(q{
	SELECT ttl_docs.pause_purge('held');
	-- has a worker been seen that pauses, and has no snapshot?
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
my $sleep_script = $node->basedir . '/sleep.sql';
append_to_file($sleep_script, "SELECT pg_sleep(1);\n");
my $sleepers_log = '';
my $sleepers = IPC::Run::start(
	[
		'pgbench', '-n', '-c', '8', '-T', '600', '-f', $sleep_script,
		'-h', $node->host, '-p', $node->port, 'postgres'
	],
	'<', \undef, '>', \$sleepers_log, '2>', \$sleepers_log);
until_is("SELECT count(*) >= 8 FROM pg_stat_activity WHERE wait_event = 'PgSleep'",
	't', 'held: the server is busy');
configure('ttl_docs.purge = on');
is(sql("SELECT saw_pause($PostgreSQL::Test::Utils::timeout_default)"),
	't', 'held: a worker pauses after a look');
until_is(stat_of('estimated_backlog > 1000', 'held'), 't', 'held: and has counted');
is(sql("SELECT on_disk('held')"), '300100', 'held: nothing is purged');
$sleepers->kill_kill;
$sleepers->finish;
configure('ttl_docs.purge = off');
sql('DROP TABLE held');

# ---- A million expired, writers, and an old snapshot ----

my $backlog = 1_000_000;
make_collection('big', 5000, $backlog, '');
make_collection('small', 5000, 100, '');
sql('CREATE TABLE audit (id int)');
my $reader = $node->background_psql('postgres');
$reader->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ');
is($reader->query_safe('SELECT count(*) FROM big'), '5000', 'the old snapshot sees what is live');

# Writers take keys of expired documents over, while the purge deletes them, and
# note in the same transaction that they did; and they write to those that live.
my $script = $node->basedir . '/writer.sql';
append_to_file($script, qq{
\\set n random(1, $backlog)
\\set m random(1, 5000)
BEGIN;
INSERT INTO big (id, doc) VALUES (:n, '{"ttl": 86400}')
	ON CONFLICT (id) DO UPDATE SET doc = excluded.doc;
UPDATE big SET doc = doc WHERE id = - :m;
INSERT INTO audit VALUES (:n);
COMMIT;
});
my $log = '';
my $writers = IPC::Run::start(
	[
		'pgbench', '-n', '-c', '2', '-R', '200', '-T', '600', '--max-tries=0',
		'-f', $script, '-h', $node->host, '-p', $node->port, 'postgres'
	],
	'<', \undef, '>', \$log, '2>', \$log);
until_is('SELECT count(*) > 100 FROM audit', 't', 'writers are at it');
configure('ttl_docs.purge = on');
until_is(stat_of('purged > 0', 'big'), 't', 'so is the purge');
is(sql('SELECT count(*) FROM big WHERE id > 0 AND _ttl IS NULL'),
	'0', 'meanwhile nothing expired is shown');
until_is(stat_of("state = 'idle' AND purged > 0", 'big'), 't', 'the purge is through');
is(sql("SELECT on_disk('big', 'WHERE id > 0 AND _ttl IS NULL')"),
	'0', 'everything expired is purged');
ok($writers->pumpable, 'the writers are still at it');
$writers->kill_kill;
$writers->finish;
unlike($log, qr/ERROR|aborted/, 'without an error');
is($reader->query_safe('SELECT count(*) FROM big'),
	'5000', 'the old snapshot sees the same as before');
is(sql("SELECT count(*) FROM (SELECT id FROM audit EXCEPT SELECT id FROM big) AS lost"),
	'0', 'nothing that was written is lost');
is(sql('SELECT count(*) FROM big WHERE id < 0'), '5000', 'nor what was there');
is(sql("SELECT on_disk('big') = 5000 + count(DISTINCT id) FROM audit"), 't', 'and that is all');

# The dead entries are still in the index, and nobody reads them again.
my $entries = 'SELECT pg_relation_size(indexrelid) > 4000000 FROM pg_index'
  . " WHERE indrelid = 'big'::regclass AND NOT indisprimary";
is(sql($entries), 't', 'the index keeps a million dead entries');
configure('ttl_docs.purge = off');
my %cost;
for my $table (qw(small big))
{
	until_is(
		"SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'ttl_docs purge worker'",
		'0', "$table: no worker is there");
	sql(qq{
		SET ttl_docs.clock_offset = '-90min';
		INSERT INTO $table (id, doc) SELECT i, '{}' FROM generate_series(2000001, 2000100) AS i;
		SELECT pg_stat_force_next_flush();
	});
	$cost{$table} = [ cost_of_purge($table, 100) ];
}
cmp_ok($cost{big}[0], '<', 2 * $cost{small}[0] + 500, 'after them: no more of the table is read');
cmp_ok($cost{big}[1], '<', 2 * $cost{small}[1] + 100, 'nor of the purge index');
$reader->query_safe('COMMIT');
$reader->quit;
sql('DROP TABLE big, small, audit');

# ---- The backlog in bytes ----

# By the sizes that pg_class has, with TOAST, and NULL where it has none; for partitions
# without one, by what the others say.
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
until_is(stat_of('estimated_backlog', $_), $_ eq 'sized_parts' ? '150' : '200', "bytes: $_ is counted")
  for qw(sized unsized sized_parts);
cmp_ok(sql(stat_of('estimated_bytes', 'sized')), '>', 200 * 10000, 'bytes: TOAST counts');
cmp_ok(sql(stat_of('estimated_bytes', 'sized')), '<', 200 * 15000, 'bytes: once');
is(sql(stat_of('estimated_bytes IS NULL', 'unsized')), 't', 'bytes: the size is not known yet');
is( sql(stat_of('estimated_bytes', 'sized_parts')),
	150 * sql(q{SELECT relpages * current_setting('block_size')::int / reltuples
				  FROM pg_class WHERE oid = 'sized_parts_1'::regclass}),
	'bytes: a partition whose size is not known is like the others');
sql('ANALYZE unsized');
is( sql(stat_of('estimated_bytes', 'unsized')),
	sql(q{SELECT relpages * current_setting('block_size')::int
			FROM pg_class WHERE oid = 'unsized'::regclass}),
	'bytes: the size is known');
# The view waits for nobody.
my $exclusive = $node->background_psql('postgres');
$exclusive->query_safe('BEGIN; LOCK TABLE sized, sized_parts');
cmp_ok(sql("SET lock_timeout = '10s'; " . stat_of('estimated_bytes', 'sized')),
	'>', 0, 'bytes: of a table that is locked');
cmp_ok(sql("SET lock_timeout = '10s'; " . stat_of('estimated_bytes', 'sized_parts')),
	'>', 0, 'bytes: and of partitions');
$exclusive->query_safe('ROLLBACK');
$exclusive->quit;
sql('SELECT ttl_docs.resume_purge(collection) FROM ttl_docs.collections');
until_is(stat_of('estimated_bytes', 'sized'), '0', 'bytes: none when all is purged');
configure('ttl_docs.purge = off');
sql('DROP TABLE sized, unsized, sized_parts');

# ---- The space comes back ----

make_collection('space', 100, 100_000, 'x' x 100);
my $size = sql("SELECT pg_total_relation_size('space')");
configure("autovacuum = on\nttl_docs.purge = on");
until_is("SELECT n_tup_del FROM pg_stat_user_tables WHERE relid = 'space'::regclass",
	'100000', 'autovacuum: statistics know of the purge');
until_is(
	q{SELECT last_autovacuum IS NOT NULL AND n_dead_tup < 1000
		FROM pg_stat_user_tables WHERE relid = 'space'::regclass},
	't', 'autovacuum: it comes, and finds the dead');
sql(q{
	INSERT INTO space (id, doc)
		SELECT i, jsonb_build_object('filler', repeat('x', 100)) FROM generate_series(1, 100000) AS i;
});
cmp_ok(sql("SELECT pg_total_relation_size('space')"),
	'<', 1.5 * $size, 'as many documents again fit into the same space');
is(sql('SELECT count(*) FROM space'), '100100', 'and are all there');
$node->stop;

done_testing();
