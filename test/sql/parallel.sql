--
-- Parallel plans hide expired documents in every kind of parallel scan.  Workers use
-- the instant of the query, not one of their own.
--
-- Every second one of the 2000 documents has expired; those with an even number are
-- live.  The leader does not participate, so all rows come from workers.
--
SET parallel_leader_participation = off;
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET min_parallel_table_scan_size = 0;
SET min_parallel_index_scan_size = 0;
SET max_parallel_workers_per_gather = 2;

CREATE TABLE par_docs (n int PRIMARY KEY, doc jsonb, h int, filler text) WITH (parallel_workers = 2);
CREATE INDEX par_h ON par_docs (h);
SELECT ttl_docs.adopt('par_docs', 3600);
SET ttl_docs.clock_offset = '-90 min';
INSERT INTO par_docs SELECT n, '{}', n % 100, repeat('x', 100) FROM generate_series(1, 1999, 2) AS n;
RESET ttl_docs.clock_offset;
INSERT INTO par_docs SELECT n, '{}', n % 100, repeat('x', 100) FROM generate_series(2, 2000, 2) AS n;
CREATE TABLE par_plain (n int PRIMARY KEY) WITH (parallel_workers = 2);
INSERT INTO par_plain SELECT generate_series(1, 2000);
VACUUM ANALYZE par_docs, par_plain;

\getenv abs_srcdir PG_ABS_SRCDIR
\set look :abs_srcdir '/sql/include/look.sql'
\i :look

-- Workers run the query.
SELECT pg_backend_pid() AS leader \gset
CREATE FUNCTION is_worker(leader int) RETURNS boolean PARALLEL SAFE LANGUAGE plpgsql AS
$$ BEGIN RETURN pg_backend_pid() <> leader; END $$;
SELECT count(*), bool_and(is_worker(:leader)) AS by_workers FROM par_docs;

\pset tuples_only on
--
-- Scans
--
SELECT look('SELECT count(*), min(h) FROM par_docs');
SET enable_seqscan = off;
SET enable_bitmapscan = off;
SELECT look('SELECT sum(h) FROM par_docs WHERE n <= 1000');
-- An index without _ts and _ttl is not used for an index-only scan.
SELECT look('SELECT count(*) FROM par_docs WHERE n <= 1000');
CREATE INDEX par_covering ON par_docs (n) INCLUDE (_ts, _ttl);
VACUUM ANALYZE par_docs;
SELECT look('SELECT count(*) FROM par_docs WHERE n <= 1000');
DROP INDEX par_covering;
RESET enable_bitmapscan;
SET enable_indexscan = off;
SELECT look('SELECT count(*), min(n) FROM par_docs WHERE h < 10');
RESET enable_indexscan;
RESET enable_seqscan;

--
-- Nodes above the scans
--
SELECT look('SELECT n FROM par_docs ORDER BY filler, n LIMIT 1');
SET enable_mergejoin = off;
SET enable_nestloop = off;
SELECT look('SELECT count(*) FROM par_docs AS a JOIN par_docs AS b ON a.n = b.h');
SELECT look('SELECT count(*), count(b.n) FROM par_plain AS a LEFT JOIN par_docs AS b ON b.n = a.n AND b.h + 0 < 100');
SELECT look('SELECT count(*) FROM par_plain AS a WHERE NOT EXISTS (SELECT FROM par_docs AS b WHERE a.n = b.n)');
RESET enable_mergejoin;
RESET enable_nestloop;
SET enable_hashjoin = off;
SET enable_mergejoin = off;
SET enable_memoize = off;
SELECT look('SELECT count(*) FROM par_plain AS a JOIN par_docs AS b USING (n) WHERE a.n <= 100');
RESET enable_hashjoin;
RESET enable_mergejoin;
RESET enable_memoize;
SELECT look('SELECT count(*), sum(n) FROM (SELECT n FROM par_docs UNION ALL SELECT n FROM par_docs WHERE h >= 0) AS u');
-- Two Gather nodes, one of them in a sub-query that runs first
SELECT count(*), (SELECT count(*) FROM par_docs WHERE h < 10) FROM par_docs;
-- A Gather node that is rescanned
SET enable_material = off;
SELECT * FROM (SELECT count(*) FROM par_docs WHERE h >= 0) AS c RIGHT JOIN (VALUES (1), (2), (3)) AS v (n) ON true ORDER BY n;
RESET enable_material;
\pset tuples_only off

--
-- The instant.  Under REPEATABLE READ, the transaction has one instant.  The clock
-- moves ahead by two hours and workers start with the new clock, but they still see the
-- same documents.
--
CREATE FUNCTION count_safe() RETURNS bigint STABLE PARALLEL SAFE LANGUAGE plpgsql AS
$$ BEGIN RETURN (SELECT count(*) FROM par_docs WHERE n <= 100); END $$;
CREATE FUNCTION now_safe() RETURNS timestamptz STABLE PARALLEL SAFE LANGUAGE plpgsql AS
$$ BEGIN RETURN ttl_docs.now(); END $$;
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT count(*) FROM par_docs;
SET LOCAL ttl_docs.clock_offset = '2 h';
SELECT count(*), bool_and(is_worker(:leader)) AS by_workers FROM par_docs;
SELECT sum(h) FROM par_docs WHERE h < 10;
SELECT count(*) FROM par_docs AS a JOIN par_docs AS b ON a.n = b.h;
SELECT n FROM par_docs ORDER BY filler, n LIMIT 1;
SELECT count(*) FROM (SELECT n FROM par_docs UNION ALL SELECT n FROM par_docs WHERE h >= 0) AS u;
-- The query itself reads no collection, but its functions do.
SELECT count(*), sum(count_safe()), bool_and(is_worker(:leader)) AS by_workers FROM par_plain WHERE n <= 5;
SELECT max(now_safe()) = (SELECT ttl_docs.now()) AND min(now_safe()) = (SELECT ttl_docs.now()) AS one_instant,
       bool_and(is_worker(:leader)) AS by_workers
  FROM par_plain;
CREATE TABLE par_copy AS SELECT n FROM par_docs;
SELECT count(*) FROM par_copy;
ROLLBACK;
-- Under READ COMMITTED, a STABLE function uses the instant of the calling query.  So do
-- the workers of queries in the function.
CREATE FUNCTION travel(hours int) RETURNS int VOLATILE LANGUAGE plpgsql AS $$
BEGIN
	PERFORM set_config('ttl_docs.clock_offset', (hours * 3600)::text, false);
	RETURN hours;
END $$;
CREATE FUNCTION count_stable(leader int) RETURNS text STABLE LANGUAGE plpgsql AS
$$ BEGIN RETURN (SELECT count(*) || ', by workers: ' || bool_and(is_worker(leader)) FROM par_docs); END $$;
CREATE FUNCTION count_volatile() RETURNS bigint VOLATILE LANGUAGE plpgsql AS
$$ BEGIN RETURN (SELECT count(*) FROM par_docs); END $$;
SELECT travel(2), count_stable(:leader), count_volatile();
RESET ttl_docs.clock_offset;
-- A single copy of the plan in one worker, forced by a developer setting
SELECT set_config(name, 'on', false) FROM pg_settings WHERE name IN ('force_parallel_mode', 'debug_parallel_query');
ALTER TABLE par_docs SET (parallel_workers = 0);
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT count(*) FROM par_docs WHERE n <= 100;
SET LOCAL ttl_docs.clock_offset = '2 h';
SELECT count(*), bool_and(is_worker(:leader)) AS by_workers FROM par_docs WHERE n <= 100;
SELECT count_safe();
ROLLBACK;
SELECT set_config(name, 'off', false) FROM pg_settings WHERE name IN ('force_parallel_mode', 'debug_parallel_query');
ALTER TABLE par_docs SET (parallel_workers = 2);

-- The instant is sent to workers as a parameter of type xid8.  The query's own
-- parameters must not be mistaken for it.  Here the nested loop has an xid8 parameter,
-- which is set when the second Gather starts.
CREATE TABLE par_xid8 AS SELECT n::text::xid8 AS x, repeat('x', 200) AS filler FROM generate_series(1, 10000) AS n;
CREATE INDEX ON par_xid8 (x);
ALTER TABLE par_xid8 SET (parallel_workers = 0);
CREATE TABLE par_few AS SELECT n, '5'::xid8 AS x FROM generate_series(1, 2) AS n;
ALTER TABLE par_few SET (parallel_workers = 2);
ANALYZE par_xid8, par_few;
SET enable_hashjoin = off;
SET enable_mergejoin = off;
SET enable_memoize = off;
SET enable_material = off;
SELECT f.n, i.x, (SELECT count(*) FROM par_docs) AS live
  FROM (SELECT * FROM par_few OFFSET 0) AS f JOIN par_xid8 AS i USING (x) ORDER BY f.n;

DROP TABLE par_docs, par_plain, par_xid8, par_few;
DROP FUNCTION look, is_worker, count_safe, now_safe, travel, count_stable, count_volatile;
