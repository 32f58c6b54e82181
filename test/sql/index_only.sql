--
-- Index-only scans.  PostgreSQL may use one if the index has _ts and _ttl, and must not
-- use one otherwise.  The critical case is count(*), which needs no column and could
-- use any index.
--
-- Every second one of the 4000 documents has expired; those with an even n are live.
-- The rows are wide and all pages are all-visible, so the planner prefers narrow
-- indexes.
--
CREATE TABLE io_docs (n int NOT NULL, doc jsonb, filler text);
ALTER TABLE io_docs ALTER COLUMN filler SET STORAGE PLAIN;
SELECT ttl_docs.adopt('io_docs', 3600);
SET ttl_docs.clock_offset = '-90 min';
INSERT INTO io_docs (n, doc, filler) SELECT n, '{}', repeat('x', 300) FROM generate_series(1, 3999, 2) AS n;
RESET ttl_docs.clock_offset;
INSERT INTO io_docs (n, doc, filler) SELECT n, '{}', repeat('x', 300) FROM generate_series(2, 4000, 2) AS n;
-- The same rows in a plain table, to show the usual plan
CREATE TABLE io_plain AS SELECT n, doc, filler FROM io_docs;
INSERT INTO io_plain SELECT n - 1, doc, filler FROM io_plain;
CREATE INDEX io_plain_n ON io_plain (n);
VACUUM ANALYZE io_plain;

\getenv abs_srcdir PG_ABS_SRCDIR
\set look :abs_srcdir '/sql/include/look.sql'
\i :look
\pset tuples_only on

--
-- A narrow index.  On a plain table, PostgreSQL counts with this index.  On a
-- collection, the query needs _ts and _ttl, so the planner does not choose it.
--
CREATE INDEX io_n ON io_docs (n);
VACUUM ANALYZE io_docs;
EXPLAIN (COSTS OFF) SELECT count(*) FROM io_plain;
SELECT look('SELECT count(*) FROM io_docs');
-- With a condition, the planner uses the index in a plain index scan.
EXPLAIN (COSTS OFF) SELECT count(*) FROM io_plain WHERE n <= 10;
SELECT look('SELECT count(*) FROM io_docs WHERE n <= 10');
EXPLAIN (COSTS OFF) SELECT n FROM io_plain WHERE n <= 10 ORDER BY n;
SELECT look('SELECT n FROM io_docs WHERE n <= 10 ORDER BY n');
-- With any planner settings, there is no index-only scan without the expiry check.
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
-- Other queries that only need to know whether a row exists
SELECT min(n), max(n) FROM io_docs;
SELECT count(*) FROM io_plain AS p WHERE EXISTS (SELECT FROM io_docs AS d WHERE d.n = p.n);
SELECT count(*) FROM io_plain AS p WHERE NOT EXISTS (SELECT FROM io_docs AS d WHERE d.n = p.n);
SELECT count(*) FROM io_plain AS p, LATERAL (SELECT FROM io_docs AS d WHERE d.n = p.n LIMIT 1) AS d WHERE p.n <= 10;
SELECT (SELECT count(*) FROM io_docs) + (SELECT count(*) FROM io_docs WHERE n <= 10) AS twice;
SELECT sum(c) FROM (SELECT count(*) AS c FROM io_docs UNION ALL SELECT count(*) FROM io_docs) AS u;
SELECT count(*) FROM (SELECT FROM io_docs UNION ALL SELECT FROM io_docs) AS u;
SELECT count(*) FROM io_docs AS a CROSS JOIN (SELECT FROM io_docs WHERE n <= 10) AS b;
WITH d AS MATERIALIZED (SELECT FROM io_docs) SELECT count(*) FROM d;
-- With a parameter, as in a nested loop over the index
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
-- Indexes that lack one of the two columns, or have them only in an expression
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
-- Indexes with both columns: as INCLUDE columns, as keys in any order, partial, and
-- with other access methods.  The scan checks expiry with the columns of the index.
--
CREATE INDEX io_include ON io_docs (n) INCLUDE (_ts, _ttl);
VACUUM ANALYZE io_docs;
SELECT look('SELECT n FROM io_docs WHERE n <= 10 ORDER BY n');
SELECT look('SELECT count(*) FROM io_docs WHERE n <= 10');
RESET enable_seqscan;
SELECT look('SELECT count(*) FROM io_docs');
SET enable_seqscan = off;
SELECT min(n), max(n) FROM io_docs;
-- With an index of each kind, the planner chooses the one with both columns.
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
-- The UPDATE did not change the expired documents, so their p is null.
CREATE INDEX io_gist ON io_docs USING gist (p) INCLUDE (_ts, _ttl);
VACUUM ANALYZE io_docs;
SELECT look('SELECT count(*) FROM io_docs WHERE p IS NULL');
SELECT look('SELECT count(*) FROM io_docs WHERE p <@ box(point(0, 0), point(10, 10))');
DROP INDEX io_gist;
-- A document with its own ttl expires by that ttl.
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
-- For pages that are not all-visible, the scan reads the row, with the same result.
UPDATE io_docs SET filler = 'y' WHERE n IN (6, 8);
SELECT count(*), min(n), max(n) FROM io_docs WHERE n <= 10;

\pset tuples_only off
DROP TABLE io_docs, io_plain;
DROP FUNCTION look;
