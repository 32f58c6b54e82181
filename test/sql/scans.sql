-- Every kind of scan that reads the table hides expired documents.  Other tests cover
-- index-only scans (index_only), parallel scans (parallel) and the scans of writes
-- (modify).
--
-- The 400 documents, in this order on disk:
--   1 - 100 have expired by the DefaultTTL,
-- 101 - 200 have expired by their own ttl,
-- 201 - 300 are as old, but never expire,
-- 301 - 400 are new.
--
-- The low fillfactor makes enough pages for the planner to use an index, or two.
CREATE TABLE scan_docs (n int PRIMARY KEY, doc jsonb, h int, p point, s text) WITH (fillfactor = 10);
CREATE INDEX scan_doc ON scan_docs USING gin (doc jsonb_path_ops);
CREATE INDEX scan_hash ON scan_docs USING hash (h);
CREATE INDEX scan_gist ON scan_docs USING gist (p);
CREATE INDEX scan_spgist ON scan_docs USING spgist (s);
CREATE INDEX scan_brin ON scan_docs USING brin (h);
CREATE INDEX scan_expression ON scan_docs ((n % 10));
CREATE INDEX scan_partial ON scan_docs (h) WHERE n % 100 < 5;
SELECT ttl_docs.adopt('scan_docs', 3600);
SET ttl_docs.clock_offset = '-90 min';
INSERT INTO scan_docs (n, doc, h, p, s)
SELECT n, jsonb_build_object('n', n, 'mod', n % 50) ||
       CASE WHEN n <= 100 THEN '{}' WHEN n <= 200 THEN '{"ttl": 60}' ELSE '{"ttl": -1}' END::jsonb,
       n % 100, point(n, n), 's' || n % 100
  FROM generate_series(1, 300) AS n;
RESET ttl_docs.clock_offset;
INSERT INTO scan_docs (n, doc, h, p, s)
SELECT n, jsonb_build_object('n', n, 'mod', n % 50), n % 100, point(n, n), 's' || n % 100
  FROM generate_series(301, 400) AS n;
VACUUM ANALYZE scan_docs;

\getenv abs_srcdir PG_ABS_SRCDIR
\set look :abs_srcdir '/sql/include/look.sql'
\i :look
\set VERBOSITY terse
\pset tuples_only on

-- Sequential scan.  The expiry check is the first qual, so the other quals do not see
-- expired documents.
SELECT look('SELECT count(*), min(n), max(n) FROM scan_docs WHERE h < 1000');
CREATE FUNCTION spy(n int) RETURNS boolean LANGUAGE plpgsql COST 0.0001 AS
$$ BEGIN IF n <= 200 THEN RAISE 'saw %', n; END IF; RETURN true; END $$;
SELECT count(*) FROM scan_docs WHERE spy(n);
SET ttl_docs.show_expired = on;
SELECT count(*) FROM scan_docs WHERE spy(n);
RESET ttl_docs.show_expired;

-- Index scans
SET enable_seqscan = off;
SET enable_bitmapscan = off;
SELECT look('SELECT count(*), min(n), max(n) FROM scan_docs WHERE n BETWEEN 50 AND 350');
SELECT look('SELECT * FROM (SELECT n FROM scan_docs WHERE n <= 200 ORDER BY n DESC) AS d');
SELECT look('SELECT n FROM scan_docs WHERE n = 1');
SELECT look('SELECT sum(n) FROM scan_docs WHERE n = ANY (''{1, 101, 201, 301}'')');
SELECT look('SELECT sum(n) FROM scan_docs WHERE h = 7');
SELECT look('SELECT sum(n) FROM scan_docs WHERE n % 10 = 7');
SELECT look('SELECT sum(n) FROM scan_docs WHERE h = 3 AND n % 100 < 5');
SELECT look('SELECT n FROM scan_docs ORDER BY p <-> point(0, 0) LIMIT 1');
SELECT look('SELECT sum(n) FROM scan_docs WHERE p <@ box(point(90, 90), point(210, 210))');
SELECT look('SELECT sum(n) FROM scan_docs WHERE s = ''s7''');
-- min and max become index scans that stop at the first row.
SELECT min(n), max(n) FROM scan_docs;
SELECT min(n), max(n) FROM scan_docs WHERE n < 250;
SELECT max(n) FROM scan_docs WHERE n < 150;
-- The purge index is an index like any other.
SELECT look('SELECT count(*) FROM scan_docs WHERE _slot < 0 AND _slot IS NOT NULL AND h < 1000');
RESET enable_bitmapscan;

-- Bitmap scans: one index, AND, OR, GIN, BRIN
SET enable_indexscan = off;
SET enable_indexonlyscan = off;
SELECT look('SELECT count(*), min(n) FROM scan_docs WHERE n < 250');
SELECT look('SELECT count(*), min(n) FROM scan_docs WHERE n BETWEEN 110 AND 210 AND n % 10 = 7');
SELECT look('SELECT count(*), min(n) FROM scan_docs WHERE n < 150 OR n % 10 = 7');
SELECT look('SELECT sum(n) FROM scan_docs WHERE doc @> ''{"mod": 7}''');
DROP INDEX scan_hash, scan_partial;
SELECT look('SELECT count(*), min(n) FROM scan_docs WHERE h BETWEEN 10 AND 20');
-- If the query needs no column and the page is all-visible, a bitmap scan without a
-- qual would not read the table at all.
SELECT look('SELECT count(*) FROM scan_docs WHERE n < 250');
RESET enable_indexscan;
RESET enable_indexonlyscan;

-- TID and TID range scans.  The first rows on disk have expired.
SELECT look('SELECT n FROM scan_docs WHERE ctid = ''(0,1)''');
SELECT look('SELECT count(*) FROM scan_docs WHERE ctid = ANY (''{"(0,1)", "(0,2)", "(0,3)"}'')');
SELECT look('SELECT count(*), min(n) FROM scan_docs WHERE ctid >= ''(0,0)'' AND ctid < ''(1000,0)''');
RESET enable_seqscan;

-- Samples
SELECT look('SELECT count(*), min(n) FROM scan_docs TABLESAMPLE system (100)');
SELECT look('SELECT count(*), min(n) FROM scan_docs TABLESAMPLE bernoulli (100) REPEATABLE (1)');

-- PostgreSQL's system columns and the whole row work, and only for live documents.
SELECT count(tableoid), count(xmin), count(ctid), count(scan_docs) FROM scan_docs;
-- JIT, if the server has it, compiles the expiry check together with the other quals.
SET jit = on;
SET jit_above_cost = 0;
SET jit_inline_above_cost = 0;
SET jit_optimize_above_cost = 0;
SELECT count(*), min(n) FROM scan_docs WHERE h < 1000;
RESET jit;
RESET jit_above_cost;
RESET jit_inline_above_cost;
RESET jit_optimize_above_cost;

-- While TTL is off, plans still have the expiry check, which reads the settings at
-- execution.  Floors may apply.
SELECT ttl_docs.set_default_ttl('scan_docs', NULL);
SELECT look('SELECT count(*) FROM scan_docs WHERE h < 1000');
-- A plain table has no expiry check.
SELECT ttl_docs.release('scan_docs');
SELECT look('SELECT count(*) FROM scan_docs WHERE h < 1000');

DROP TABLE scan_docs;
DROP FUNCTION spy;
DROP FUNCTION look;
