--
-- Index-only scans.  They stay where the index has _ts and _ttl, and are not
-- taken where it has not, above all not for count(*), which needs no column and
-- would be content with any index.
--
-- Of 4000 documents every other one has expired; the even ones are live.  The
-- rows are wide and the pages all visible, so that core likes narrow indexes.
--
CREATE TABLE io_docs (n int NOT NULL, doc jsonb, filler text);
ALTER TABLE io_docs ALTER COLUMN filler SET STORAGE PLAIN;
SELECT ttl_docs.adopt('io_docs', 3600);
SET ttl_docs.clock_offset = '-90 min';
INSERT INTO io_docs (n, doc, filler) SELECT n, '{}', repeat('x', 300) FROM generate_series(1, 3999, 2) AS n;
RESET ttl_docs.clock_offset;
INSERT INTO io_docs (n, doc, filler) SELECT n, '{}', repeat('x', 300) FROM generate_series(2, 4000, 2) AS n;
-- the same as a plain table, to see what core would do
CREATE TABLE io_plain AS SELECT n, doc, filler FROM io_docs;
INSERT INTO io_plain SELECT n - 1, doc, filler FROM io_plain;
CREATE INDEX io_plain_n ON io_plain (n);
VACUUM ANALYZE io_plain;

CREATE FUNCTION look(query text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	line text;
	answer record;
BEGIN
	-- 18 says which nodes are taken though they are disabled
	FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) ' || query LOOP
		IF line !~ 'Disabled' THEN RETURN NEXT line; END IF;
	END LOOP;
	EXECUTE query INTO answer;
	RETURN NEXT 'live: ' || answer;
	PERFORM set_config('ttl_docs.show_expired', 'on', true);
	EXECUTE query INTO answer;
	RETURN NEXT 'on disk: ' || answer;
	PERFORM set_config('ttl_docs.show_expired', 'off', true);
END $$;
\pset tuples_only on

--
-- A narrow index.  Core counts with it; we count with what is best for a query
-- that needs _ts and _ttl, and that is not this index.
--
CREATE INDEX io_n ON io_docs (n);
VACUUM ANALYZE io_docs;
EXPLAIN (COSTS OFF) SELECT count(*) FROM io_plain;
SELECT look('SELECT count(*) FROM io_docs');
-- With a condition the index is good for, as an index and not by itself.
EXPLAIN (COSTS OFF) SELECT count(*) FROM io_plain WHERE n <= 10;
SELECT look('SELECT count(*) FROM io_docs WHERE n <= 10');
EXPLAIN (COSTS OFF) SELECT n FROM io_plain WHERE n <= 10 ORDER BY n;
SELECT look('SELECT n FROM io_docs WHERE n <= 10 ORDER BY n');
-- Whatever is forbidden to the planner, a blind scan is not what it takes.
SET enable_seqscan = off;
SET enable_bitmapscan = off;
SELECT look('SELECT count(*) FROM io_docs');
SELECT look('SELECT count(*) FROM io_docs WHERE n <= 10');
SELECT look('SELECT min(n) FROM (SELECT n FROM io_docs OFFSET 0) AS d');
RESET enable_seqscan;
SET enable_indexscan = off;
SELECT count(*) FROM io_docs WHERE n <= 10;
RESET enable_indexscan;
RESET enable_bitmapscan;
-- Other queries that want nothing of a row but to know that it is there
SELECT min(n), max(n) FROM io_docs;
SELECT count(*) FROM io_plain AS p WHERE EXISTS (SELECT FROM io_docs AS d WHERE d.n = p.n);
SELECT count(*) FROM io_plain AS p WHERE NOT EXISTS (SELECT FROM io_docs AS d WHERE d.n = p.n);
SELECT count(*) FROM io_plain AS p, LATERAL (SELECT FROM io_docs AS d WHERE d.n = p.n LIMIT 1) AS d WHERE p.n <= 10;
SELECT (SELECT count(*) FROM io_docs) + (SELECT count(*) FROM io_docs WHERE n <= 10) AS twice;
SELECT sum(c) FROM (SELECT count(*) AS c FROM io_docs UNION ALL SELECT count(*) FROM io_docs) AS u;
SELECT count(*) FROM (SELECT FROM io_docs UNION ALL SELECT FROM io_docs) AS u;
SELECT count(*) FROM io_docs AS a CROSS JOIN (SELECT FROM io_docs WHERE n <= 10) AS b;
WITH d AS MATERIALIZED (SELECT FROM io_docs) SELECT count(*) FROM d;
-- A parameter, as in a nested loop over the index
SET enable_hashjoin = off;
SET enable_mergejoin = off;
SET enable_material = off;
SET enable_memoize = off;
EXPLAIN (COSTS OFF) SELECT count(*) FROM generate_series(1, 10) AS g (n) LEFT JOIN io_docs AS d ON d.n = g.n WHERE d.n IS NULL;
SELECT count(*) FROM generate_series(1, 10) AS g (n) LEFT JOIN io_docs AS d ON d.n = g.n WHERE d.n IS NULL;
RESET enable_hashjoin;
RESET enable_mergejoin;
RESET enable_material;
RESET enable_memoize;

--
-- Indexes that lack one of the two, or have them in an expression only
--
DROP INDEX io_n;
CREATE INDEX io_no_ttl ON io_docs (n) INCLUDE (_ts);
CREATE INDEX io_no_ts ON io_docs (n) INCLUDE (_ttl);
CREATE INDEX io_expression ON io_docs (n, (extract(epoch FROM _ts AT TIME ZONE 'UTC')), (_ttl + 0));
VACUUM ANALYZE io_docs;
SET enable_seqscan = off;
SET enable_bitmapscan = off;
SELECT count(*) AS index_only FROM look('SELECT count(*) FROM io_docs') AS line WHERE line LIKE '%Index Only Scan%';
SELECT count(*) AS index_only FROM look('SELECT n FROM io_docs WHERE n <= 10 ORDER BY n') AS line WHERE line LIKE '%Index Only Scan%';
SELECT count(*) FROM io_docs;
DROP INDEX io_no_ttl, io_no_ts, io_expression;

--
-- Indexes that cover the test: as INCLUDEd columns, as keys in any order, partial,
-- and of other access methods.  The test is in the scan, of the index's columns.
--
CREATE INDEX io_include ON io_docs (n) INCLUDE (_ts, _ttl);
VACUUM ANALYZE io_docs;
SELECT look('SELECT n FROM io_docs WHERE n <= 10 ORDER BY n');
SELECT look('SELECT count(*) FROM io_docs WHERE n <= 10');
RESET enable_seqscan;
SELECT look('SELECT count(*) FROM io_docs');
SET enable_seqscan = off;
SELECT min(n), max(n) FROM io_docs;
-- both kinds side by side: the covering one is taken
CREATE INDEX io_n ON io_docs (n);
SELECT look('SELECT count(*) FROM io_docs WHERE n <= 10');
DROP INDEX io_n, io_include;
CREATE INDEX io_keys ON io_docs (_ttl, n, _ts);
VACUUM ANALYZE io_docs;
SELECT look('SELECT count(*), min(n) FROM io_docs WHERE _ttl IS NULL AND n <= 10');
DROP INDEX io_keys;
CREATE INDEX io_partial ON io_docs (n, (n % 7)) INCLUDE (_ttl, _ts) WHERE n <= 100;
VACUUM ANALYZE io_docs;
SELECT look('SELECT count(*), min(n) FROM io_docs WHERE n <= 10');
DROP INDEX io_partial;
ALTER TABLE io_docs ADD COLUMN p point;
UPDATE io_docs SET p = point(n, n);
-- (the update left the expired documents alone, so their p is null)
CREATE INDEX io_gist ON io_docs USING gist (p) INCLUDE (_ts, _ttl);
VACUUM ANALYZE io_docs;
SELECT look('SELECT count(*) FROM io_docs WHERE p IS NULL');
SELECT look('SELECT count(*) FROM io_docs WHERE p <@ box(point(0, 0), point(10, 10))');
DROP INDEX io_gist;
-- a document that has its own ttl is judged by it
CREATE INDEX io_include ON io_docs (n) INCLUDE (_ts, _ttl);
UPDATE io_docs SET doc = '{"ttl": 60}' WHERE n = 2;
UPDATE io_docs SET doc = '{"ttl": -1}' WHERE n = 4;
VACUUM io_docs;
SELECT look('SELECT count(*), min(n), max(n) FROM io_docs WHERE n <= 10');
SET ttl_docs.clock_offset = '10 min';
SELECT count(*), min(n), max(n) FROM io_docs WHERE n <= 10;
SET ttl_docs.clock_offset = '2 h';
SELECT count(*), min(n), max(n) FROM io_docs WHERE n <= 10;
RESET ttl_docs.clock_offset;
-- pages that are not all visible are looked up, and judged the same
UPDATE io_docs SET filler = 'y' WHERE n IN (6, 8);
SELECT count(*), min(n), max(n) FROM io_docs WHERE n <= 10;

\pset tuples_only off
DROP TABLE io_docs, io_plain;
DROP FUNCTION look;
