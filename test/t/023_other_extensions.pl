# Other extensions can make plans without our planner hook, force index-only scans after our hooks have
# run, and add custom scans.  Expired documents stay hidden, or the query is refused.
# test/modules/rival.c plays the other extension.

use strict;
use warnings;

use lib 'test/perl';
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use TtlServer;

my $node = start_server(
	'main', q{
ttl_docs.purge = off
autovacuum = off
max_worker_processes = 16
});

if ($node->psql('postgres', "LOAD 'rival'") != 0)
{
	$node->stop;
	plan skip_all => 'test/modules is not installed';
}
$node->safe_psql(
	'postgres', q{
	CREATE EXTENSION ttl_docs;
	SELECT ttl_docs.create_collection('c', 1000);
	CREATE INDEX ON c USING gin (doc);
	SET ttl_docs.clock_offset = -2000;
	INSERT INTO c SELECT 'dead' || n, jsonb_build_object('n', n) FROM generate_series(1, 500) AS n;
	RESET ttl_docs.clock_offset;
	INSERT INTO c SELECT 'live' || n, jsonb_build_object('n', n) FROM generate_series(1, 3) AS n;
	CREATE TABLE p (id int, doc jsonb, PRIMARY KEY (id)) PARTITION BY RANGE (id);
	CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (100);
	CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (100) TO (200);
	SELECT ttl_docs.adopt('p', 1000);
	SET ttl_docs.clock_offset = -2000;
	INSERT INTO p VALUES (1, '{}'), (101, '{}');
	RESET ttl_docs.clock_offset;
	INSERT INTO p VALUES (2, '{}'), (102, '{}');
	CREATE FUNCTION how_many() RETURNS bigint STABLE LANGUAGE sql BEGIN ATOMIC SELECT count(*) FROM c; END;
	CREATE TABLE plain AS SELECT id, doc FROM c;
	VACUUM (ANALYZE) c, p, plain;
});

# Queries, and their correct results.
my @queries = (
	['SELECT count(*) FROM c' => 3],
	[q{SELECT count(*) FROM c WHERE id LIKE 'd%'} => 0],
	[q{SELECT count(*) FROM c WHERE id = 'dead7'} => 0],
	[q{SELECT id FROM c WHERE id = 'live1'} => 'live1'],
	[q{SELECT max(id) FROM c} => 'live3'],
	[q{SELECT count(*) FROM c WHERE doc @> '{"n": 2}'} => 1],
	['SELECT count(*) FROM plain LEFT JOIN c USING (id) WHERE c.id IS NOT NULL' => 3],
	['SELECT count(*) FROM p' => 2],
	['SELECT count(*) FROM p1' => 1],
	['SELECT how_many()' => 3],
	['SELECT count(*) FROM c a, c b' => 9],
	['WITH w AS MATERIALIZED (SELECT * FROM c) SELECT (SELECT count(*) FROM w) + (SELECT count(*) FROM p)' => 5],
	['SELECT count(*) FROM (SELECT id FROM c UNION ALL SELECT id::text FROM p) AS u' => 5],);

# All queries return the correct results under these settings.  Each counts as a test.
sub rival_is
{
	my ($settings, $name) = @_;
	for (@queries)
	{
		my ($query, $expected) = @$_;
		is($node->safe_psql('postgres', "LOAD 'rival'; $settings; $query"), $expected, "$name: $query");
	}
	return;
}

# Without the planner hook.  A plan that the hook has filtered is not filtered twice.
rival_is('SET rival.planner = off', 'as usual');
rival_is('SET rival.planner = on', 'planned by standard_planner');
rival_is(
	'SET rival.planner = on; SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0;'
	  . ' SET min_parallel_table_scan_size = 0; SET parallel_leader_participation = off',
	'planned by standard_planner, parallel');
is($node->safe_psql(
		'postgres', q{
		LOAD 'rival';
		SET rival.planner = on;
		SET plan_cache_mode = force_generic_plan;
		PREPARE q AS SELECT count(*) FROM c WHERE id <> $1;
		EXECUTE q ('');
		SET rival.planner = off;
		EXECUTE q ('');
		BEGIN;
		DECLARE d CURSOR FOR SELECT id FROM c ORDER BY 1;
		FETCH 1 FROM d;
		COMMIT;
		}), "3\n3\nlive1", 'a cached plan that was made without our hook hides expired documents');
is( $node->safe_psql(
		'postgres', q{
		LOAD 'rival';
		SET rival.planner = on;
		BEGIN;
		UPDATE c SET doc = '{"n": 2}' WHERE id LIKE 'd%' RETURNING id;
		DELETE FROM p WHERE id IN (1, 101) RETURNING id;
		INSERT INTO c VALUES ('dead1', '{}') ON CONFLICT (id) DO UPDATE SET doc = '{"updated": 1}' WHERE c.id <> '' RETURNING doc;
		MERGE INTO c USING (VALUES ('dead2')) AS v (id) ON c.id = v.id
			WHEN MATCHED THEN UPDATE SET doc = '{"updated": 1}' WHEN NOT MATCHED THEN INSERT (id, doc) VALUES (v.id, '{}');
		SELECT doc FROM c WHERE id = 'dead2';
		ROLLBACK;
		}), "{}\n{}", 'writes that were planned without our hook do not see expired documents');
my $explained = $node->safe_psql('postgres',
	q{LOAD 'rival'; SET rival.planner = on; EXPLAIN (COSTS OFF) SELECT id FROM c ORDER BY id});
like($explained, qr/is_live/, 'EXPLAIN shows our filter');
unlike($explained, qr/is_live.*is_live/s, 'EXPLAIN shows our filter once');
# A query without a collection is not changed.
unlike(
	$node->safe_psql('postgres', q{LOAD 'rival'; SET rival.planner = on; EXPLAIN (COSTS OFF) SELECT * FROM plain}),
	qr/is_live/, 'a query on other tables has no filter');

# An index-only scan of an index without the stamps becomes an index scan.
rival_is('SET rival.index_only = on; SET enable_bitmapscan = off', 'index-only scans');
$explained = $node->safe_psql('postgres',
	q{LOAD 'rival'; SET rival.index_only = on; SET enable_bitmapscan = off; EXPLAIN (COSTS OFF) SELECT count(*) FROM c});
like($explained, qr/ Index Scan using c_(?:pkey|_slot_idx) .*is_live/s, 'an index-only scan without the stamps becomes an index scan');

# A custom scan above a scan with our filter is allowed.  One that reads the table itself is refused.
rival_is("SET rival.custom_scan = 'over'", 'a custom scan above');
like(
	$node->safe_psql('postgres', q{LOAD 'rival'; SET rival.custom_scan = 'over'; EXPLAIN (COSTS OFF) SELECT id FROM c}),
	qr/Custom Scan \(Rival\)/, 'the plan has the custom scan');
for my $planner ('off', 'on')
{
	my ($status, $output, $error) = $node->psql('postgres',
		"LOAD 'rival'; SET rival.custom_scan = 'alone'; SET rival.planner = $planner; SELECT count(*) FROM c");
	isnt($status, 0, "a custom scan that reads a collection is refused, rival.planner = $planner");
	like($error, qr/cannot filter expired documents of "c"/, 'the error gives the reason');
}

# Core asserts that the snapshot of a query is not registered any more when it runs the rules of the query.
# The function in the query runs a query under the same snapshot.
$node->safe_psql(
	'postgres', q{
	CREATE TABLE ruled (n bigint);
	CREATE TABLE seen (n bigint);
	CREATE FUNCTION how_many_slowly() RETURNS bigint STABLE LANGUAGE plpgsql AS
		$$ DECLARE n bigint; BEGIN n := how_many(); RETURN n + (SELECT 0); END $$;
	CREATE RULE look AS ON INSERT TO ruled DO ALSO
		(INSERT INTO seen VALUES (how_many_slowly()); SELECT how_many_slowly(); DELETE FROM seen WHERE n < how_many_slowly());
	CREATE FUNCTION insert_in_sql() RETURNS void LANGUAGE sql AS 'INSERT INTO ruled VALUES (how_many_slowly()); INSERT INTO ruled VALUES (0)'});
is( $node->safe_psql(
		'postgres', q{
		LOAD 'rival';
		SET rival.check_snapshots = on;
		INSERT INTO ruled VALUES (how_many_slowly());
		PREPARE i AS INSERT INTO ruled VALUES (how_many_slowly());
		EXECUTE i;
		DO $$ BEGIN FOR i IN 1 .. 3 LOOP INSERT INTO ruled VALUES (how_many_slowly()); END LOOP; END $$;
		SELECT insert_in_sql();
		BEGIN;
		INSERT INTO ruled VALUES (how_many_slowly());
		COMMIT;
		SELECT count(*), min(n), max(n) FROM seen}) =~ /(\S+)\z/ ? $1 : '', '8|3|3', 'no snapshot is registered when rules follow');

# If the other library is loaded before ours, our hooks run first.
$node->append_conf('postgresql.conf', q{shared_preload_libraries = 'rival, ttl_docs'});
$node->restart;
rival_is('SET rival.planner = on', 'loaded first, planned by standard_planner');
rival_is("SET rival.custom_scan = 'over'", 'loaded first, a custom scan above');
$node->stop;
done_testing();
