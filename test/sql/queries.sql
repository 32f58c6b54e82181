--
-- All kinds of queries see only live documents: joins on either side, sub-queries,
-- CTEs, set operations, aggregates, views, materialized views, functions in SQL and
-- PL/pgSQL, inlined or not.
--
-- Two collections have documents 1 to 10.  In docs, the even ones are live; in more,
-- those divisible by 3.  Every second expired document has its own ttl.
--
CREATE SCHEMA queries;
SET search_path = queries;
SELECT ttl_docs.create_collection('docs', 3600), ttl_docs.create_collection('more', 3600);
ALTER TABLE docs ADD COLUMN n int UNIQUE;
ALTER TABLE more ADD COLUMN n int UNIQUE;
SET ttl_docs.clock_offset = '-90 min';
INSERT INTO docs (id, doc, n) SELECT n, CASE WHEN n % 4 = 1 THEN '{"ttl": 60}' ELSE '{}' END::jsonb, n FROM generate_series(1, 10, 2) AS n;
INSERT INTO more (id, doc, n) SELECT n, CASE WHEN n % 2 = 1 THEN '{"ttl": 60}' ELSE '{}' END::jsonb, n FROM generate_series(1, 10) AS n WHERE n % 3 > 0;
RESET ttl_docs.clock_offset;
INSERT INTO docs (id, doc, n) SELECT n, CASE WHEN n % 4 = 0 THEN '{"ttl": 60}' ELSE '{}' END::jsonb, n FROM generate_series(2, 10, 2) AS n;
INSERT INTO more (id, doc, n) SELECT n, CASE WHEN n % 2 = 1 THEN '{"ttl": 60}' ELSE '{}' END::jsonb, n FROM generate_series(3, 10, 3) AS n;
CREATE TABLE plain AS SELECT n FROM generate_series(1, 10) AS n;
ANALYZE docs, more, plain;
\pset tuples_only on

--
-- Joins
--
SELECT array_agg(d.n ORDER BY d.n) FROM docs AS d JOIN more AS m USING (n);
SELECT array_agg(d.n || ' ' || coalesce(m.n::text, '-') ORDER BY d.n) FROM docs AS d LEFT JOIN more AS m USING (n);
SELECT array_agg(coalesce(d.n::text, '-') || ' ' || m.n ORDER BY m.n) FROM docs AS d RIGHT JOIN more AS m USING (n);
SELECT array_agg(coalesce(d.n::text, '-') || ' ' || coalesce(m.n::text, '-') ORDER BY n) FROM docs AS d FULL JOIN more AS m USING (n);
SELECT array_agg(p.n || ' ' || coalesce(d.n::text, '-') ORDER BY p.n) FROM plain AS p LEFT JOIN docs AS d USING (n);
SELECT array_agg(p.n || ' ' || coalesce(d.n::text, '-') ORDER BY p.n) FROM docs AS d FULL JOIN plain AS p USING (n);
SELECT count(*) FROM docs CROSS JOIN more;
SELECT array_agg(n ORDER BY n) FROM docs WHERE EXISTS (SELECT FROM more WHERE more.n = docs.n);
SELECT array_agg(n ORDER BY n) FROM docs WHERE NOT EXISTS (SELECT FROM more WHERE more.n = docs.n);
SELECT array_agg(n ORDER BY n) FROM plain WHERE n IN (SELECT n FROM docs);
SELECT array_agg(n ORDER BY n) FROM plain WHERE n NOT IN (SELECT n FROM docs);
SELECT array_agg(p.n || ' ' || d.n ORDER BY p.n) FROM plain AS p, LATERAL (SELECT n FROM docs WHERE docs.n >= p.n ORDER BY n LIMIT 1) AS d;
SELECT array_agg(p.n || ' ' || coalesce(d.n::text, '-') ORDER BY p.n)
  FROM plain AS p LEFT JOIN LATERAL (SELECT max(n) AS n FROM docs WHERE docs.n < p.n) AS d ON true;
-- The same with each join method
SET enable_hashjoin = off;
SET enable_nestloop = off;
EXPLAIN (COSTS OFF) SELECT p.n, d.n FROM plain AS p FULL JOIN docs AS d USING (n);
SELECT array_agg(p.n || ' ' || coalesce(d.n::text, '-') ORDER BY p.n) FROM docs AS d FULL JOIN plain AS p USING (n);
SELECT array_agg(n ORDER BY n) FROM docs WHERE NOT EXISTS (SELECT FROM more WHERE more.n = docs.n);
RESET enable_hashjoin;
RESET enable_nestloop;
SET enable_mergejoin = off;
SET enable_nestloop = off;
SELECT array_agg(p.n || ' ' || coalesce(d.n::text, '-') ORDER BY p.n) FROM docs AS d FULL JOIN plain AS p USING (n);
SELECT array_agg(n ORDER BY n) FROM docs WHERE NOT EXISTS (SELECT FROM more WHERE more.n = docs.n);
RESET enable_mergejoin;
RESET enable_nestloop;
SET enable_mergejoin = off;
SET enable_hashjoin = off;
SET enable_seqscan = off;
SET enable_bitmapscan = off;
EXPLAIN (COSTS OFF) SELECT count(d.n) FROM generate_series(1, 1000) AS g LEFT JOIN docs AS d ON d.n = g % 10;
SELECT count(*), count(d.n) FROM generate_series(1, 1000) AS g LEFT JOIN docs AS d ON d.n = g % 10;
SELECT array_agg(n ORDER BY n) FROM docs WHERE NOT EXISTS (SELECT FROM more WHERE more.n = docs.n);
RESET enable_mergejoin;
RESET enable_hashjoin;
RESET enable_seqscan;
RESET enable_bitmapscan;

--
-- Sub-queries, set operations and CTEs
--
SELECT (SELECT count(*) FROM docs), ARRAY(SELECT n FROM docs ORDER BY n), (SELECT n FROM docs WHERE id = '1'),
       EXISTS (SELECT FROM docs WHERE n = 1), 1 = ANY (SELECT n FROM docs), 2 <= ALL (SELECT n FROM docs);
SELECT array_agg(n) FROM (SELECT n FROM docs ORDER BY n OFFSET 1 LIMIT 2) AS d;
SELECT array_agg(n ORDER BY n) FROM (SELECT n FROM docs UNION ALL SELECT n FROM more) AS u;
SELECT array_agg(n ORDER BY n) FROM (SELECT n FROM docs UNION SELECT n FROM more) AS u;
SELECT array_agg(n ORDER BY n) FROM (SELECT n FROM docs INTERSECT SELECT n FROM more) AS u;
SELECT array_agg(n ORDER BY n) FROM (SELECT n FROM docs EXCEPT SELECT n FROM more) AS u;
SELECT array_agg(n ORDER BY n) FROM (SELECT n FROM plain EXCEPT SELECT n FROM docs) AS u;
SELECT count(*) FROM (SELECT FROM docs UNION ALL SELECT FROM more UNION ALL SELECT FROM plain) AS u;
SET enable_seqscan = off;
SET enable_bitmapscan = off;
EXPLAIN (COSTS OFF) SELECT n FROM docs UNION ALL SELECT n FROM more ORDER BY n;
SELECT n FROM docs UNION ALL SELECT n FROM more ORDER BY n LIMIT 3;
RESET enable_seqscan;
RESET enable_bitmapscan;
WITH d AS MATERIALIZED (SELECT * FROM docs), m AS NOT MATERIALIZED (SELECT * FROM more)
SELECT array_agg(d.n ORDER BY n) FROM d LEFT JOIN m USING (n);
-- A chain from each document to the next one, at most two apart: an expired document is
-- not in the chain.
WITH RECURSIVE chain (n) AS (
	SELECT min(n) FROM docs
	UNION ALL
	SELECT docs.n FROM chain JOIN docs ON docs.n BETWEEN chain.n + 1 AND chain.n + 2)
SELECT array_agg(n) FROM chain;
WITH RECURSIVE chain (n) AS (
	SELECT 1
	UNION ALL
	SELECT docs.n FROM chain JOIN docs ON docs.n = chain.n + 1)
SELECT array_agg(n) FROM chain;

--
-- Aggregates, window functions and whole-row references
--
SELECT count(*), count(n), sum(n), min(n), max(n), avg(n)::int FROM docs;
SELECT min(n), max(n) FROM docs WHERE n < 2;
SELECT (SELECT max(n) FROM docs WHERE n < 10), (SELECT min(id) FROM docs);
SELECT n % 4, count(*) FROM docs GROUP BY 1 HAVING count(*) > 0 ORDER BY 1;
SELECT n % 4 AS m, n, count(*) FROM docs GROUP BY GROUPING SETS ((1), (2), ()) HAVING grouping(n) = 1 ORDER BY 1;
SELECT array_agg(DISTINCT n % 2) FROM docs;
SELECT DISTINCT ON (n % 4) n FROM docs ORDER BY n % 4, n;
SELECT n, lag(n) OVER w, row_number() OVER w, count(*) OVER () FROM docs WINDOW w AS (ORDER BY n) ORDER BY n LIMIT 2;
SELECT count(docs), count(docs.*), array_agg((docs).n ORDER BY n) FROM docs;
SELECT jsonb_agg(to_jsonb(docs) - '{_ts,_slot}'::text[] ORDER BY n) FROM docs WHERE n < 5;

--
-- Views.  Behind a security barrier, a leaky function sees neither expired documents
-- nor documents that the view hides.
--
CREATE VIEW docs_view AS SELECT n, doc FROM docs;
CREATE VIEW docs_view_view AS SELECT v.n, m.n AS more FROM docs_view AS v LEFT JOIN more AS m USING (n);
CREATE VIEW docs_barrier WITH (security_barrier) AS SELECT n FROM docs WHERE n < 6;
CREATE VIEW docs_invoker WITH (security_invoker) AS SELECT n FROM docs;
SELECT array_agg(n ORDER BY n) FROM docs_view;
SELECT array_agg(n || ' ' || coalesce(more::text, '-') ORDER BY n) FROM docs_view_view;
SELECT array_agg(n ORDER BY n) FROM docs_invoker;
CREATE FUNCTION leak(n int) RETURNS boolean LANGUAGE plpgsql COST 0.0001 AS
$$ BEGIN RAISE NOTICE 'leak %', n; RETURN true; END $$;
EXPLAIN (COSTS OFF) SELECT n FROM docs_barrier WHERE leak(n);
SELECT count(*) FROM docs_barrier WHERE leak(n);
DROP VIEW docs_view_view;

-- Materialized views: at creation and at each REFRESH
CREATE MATERIALIZED VIEW docs_mat AS SELECT n FROM docs;
CREATE UNIQUE INDEX ON docs_mat (n);
SELECT array_agg(n ORDER BY n) FROM docs_mat;
SET ttl_docs.clock_offset = '10 min';
SELECT array_agg(n ORDER BY n) FROM docs_mat;
REFRESH MATERIALIZED VIEW docs_mat;
SELECT array_agg(n ORDER BY n) FROM docs_mat;
RESET ttl_docs.clock_offset;
REFRESH MATERIALIZED VIEW CONCURRENTLY docs_mat;
SELECT array_agg(n ORDER BY n) FROM docs_mat;
SET ttl_docs.clock_offset = '10 min';
REFRESH MATERIALIZED VIEW CONCURRENTLY docs_mat;
SELECT array_agg(n ORDER BY n) FROM docs_mat;
RESET ttl_docs.clock_offset;
CREATE TABLE docs_copy AS SELECT n FROM docs;
SELECT n INTO docs_into FROM docs;
INSERT INTO docs_copy SELECT n + 100 FROM docs RETURNING n;
SELECT (SELECT array_agg(n ORDER BY n) FROM docs_copy), (SELECT array_agg(n ORDER BY n) FROM docs_into);

--
-- Functions.  PostgreSQL inlines the first four into the calling query.
--
CREATE FUNCTION docs_inline() RETURNS SETOF docs STABLE LANGUAGE sql AS 'SELECT * FROM queries.docs';
CREATE FUNCTION docs_atomic(upto int) RETURNS SETOF int STABLE LANGUAGE sql BEGIN ATOMIC SELECT n FROM docs WHERE n <= upto; END;
CREATE FUNCTION docs_table(upto int) RETURNS TABLE (n int, doc jsonb) STABLE LANGUAGE sql AS
'SELECT n, doc FROM queries.docs WHERE n <= upto';
CREATE FUNCTION docs_nested(upto int) RETURNS SETOF int STABLE LANGUAGE sql AS 'SELECT docs_atomic FROM queries.docs_atomic(upto)';
CREATE FUNCTION docs_count() RETURNS bigint STABLE LANGUAGE sql BEGIN ATOMIC SELECT count(*) FROM docs; END;
CREATE FUNCTION docs_called(upto int) RETURNS SETOF int VOLATILE STRICT LANGUAGE sql AS 'SELECT n FROM queries.docs WHERE n <= upto';
CREATE FUNCTION docs_pl(upto int) RETURNS SETOF int LANGUAGE plpgsql AS $$
DECLARE
	found_one int;
BEGIN
	SELECT n INTO found_one FROM queries.docs WHERE n = 1;
	RETURN NEXT coalesce(found_one, -1);
	PERFORM FROM queries.docs WHERE n = 1;
	RETURN NEXT CASE WHEN FOUND THEN 1 ELSE -2 END;
	RETURN NEXT coalesce((SELECT max(n) FROM queries.docs WHERE n < 2), -3);
	EXECUTE 'SELECT count(*) FROM queries.docs WHERE n <= $1' INTO found_one USING upto;
	RETURN NEXT found_one;
	FOR found_one IN SELECT n FROM queries.docs WHERE n <= upto ORDER BY n LOOP
		RETURN NEXT found_one;
	END LOOP;
	RETURN QUERY SELECT n FROM queries.docs WHERE n <= upto ORDER BY n;
END $$;
EXPLAIN (COSTS OFF) SELECT n FROM docs_inline() WHERE n < 5;
EXPLAIN (COSTS OFF) SELECT * FROM docs_nested(5);
SELECT array_agg(n ORDER BY n) FROM docs_inline();
SELECT array_agg(n ORDER BY n) FROM docs_atomic(5) AS n;
SELECT array_agg(n ORDER BY n) FROM docs_table(5);
SELECT array_agg(n ORDER BY n) FROM docs_nested(5) AS n;
SELECT docs_count(), array_agg(n ORDER BY n) FROM docs_called(5) AS n;
SELECT p.n, array_agg(d ORDER BY d) FROM plain AS p LEFT JOIN LATERAL docs_atomic(p.n) AS d ON true WHERE p.n < 5 GROUP BY 1 ORDER BY 1;
SELECT array_agg(n) FROM docs_pl(5) AS n;
SELECT array_agg(n ORDER BY ordinality) FROM ROWS FROM (docs_atomic(5), docs_called(5)) WITH ORDINALITY AS r (n, m, ordinality);
SELECT array_agg(n) FROM (SELECT docs_atomic(5) AS n) AS s;
DO $$ BEGIN RAISE NOTICE '% live', (SELECT count(*) FROM queries.docs); END $$;

--
-- The remaining plan nodes.  The plan walker would raise an error for a node that it
-- does not know.
--
CREATE FUNCTION node(type text, query text, VARIADIC without text[] DEFAULT '{}') RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	setting text;
	plan json;
	answer record;
BEGIN
	FOREACH setting IN ARRAY without LOOP
		PERFORM set_config('enable_' || setting, 'off', true);
	END LOOP;
	EXECUTE 'EXPLAIN (FORMAT JSON) ' || query INTO plan;
	EXECUTE query INTO answer;
	FOREACH setting IN ARRAY without LOOP
		PERFORM set_config('enable_' || setting, 'on', true);
	END LOOP;
	RETURN type || CASE WHEN plan::text LIKE '%"Node Type": "' || type || '"%' THEN '' ELSE ' (not planned)' END || ': ' || answer;
END $$;
CREATE TABLE repeated AS SELECT n % 10 AS n FROM generate_series(1, 1000) AS n;
ANALYZE repeated;
SELECT node('Memoize', 'SELECT sum(c) FROM repeated AS r, LATERAL (SELECT count(*) AS c FROM docs WHERE docs.n <= r.n) AS d');
SELECT node('Materialize', 'SELECT count(*) FROM docs AS d JOIN more AS m ON d.n < m.n', 'indexscan', 'bitmapscan');
SELECT node('Unique', 'SELECT array_agg(m) FROM (SELECT DISTINCT n % 4 AS m FROM docs) AS d', 'hashagg');
SELECT node('Group', 'SELECT array_agg(m) FROM (SELECT n % 4 AS m FROM docs GROUP BY 1) AS d', 'hashagg');
SELECT node('SetOp', 'SELECT count(*) FROM (SELECT n FROM docs INTERSECT ALL SELECT n FROM more) AS d');
SELECT node('Incremental Sort', 'SELECT array_agg(n) FROM (SELECT n FROM docs ORDER BY n, doc LIMIT 2) AS d', 'seqscan', 'bitmapscan', 'sort');
SELECT node('WindowAgg', 'SELECT max(rank) FROM (SELECT rank() OVER (ORDER BY n) FROM docs) AS d');
SELECT node('ProjectSet', 'SELECT count(*) FROM (SELECT generate_series(1, n) FROM docs) AS d');
SELECT node('Result', 'SELECT count(*) FROM docs WHERE current_setting(''search_path'') = ''queries''');
SELECT node('Values Scan', 'SELECT count(n) FROM docs RIGHT JOIN (VALUES (1), (2)) AS v (n) USING (n) WHERE docs.n IS NULL');
SELECT node('CTE Scan', 'WITH d AS MATERIALIZED (SELECT n FROM docs) SELECT count(*) FROM d');
SELECT node('WorkTable Scan', 'WITH RECURSIVE r (n) AS (SELECT 1 UNION SELECT docs.n FROM r JOIN docs ON docs.n = r.n + 1) SELECT count(*) FROM r');
SELECT node('Recursive Union', 'WITH RECURSIVE r (n) AS (SELECT n FROM docs UNION SELECT n + 1 FROM r WHERE n < 3) SELECT array_agg(n ORDER BY n) FROM r');
SELECT node('LockRows', 'SELECT n FROM docs WHERE n < 3 FOR KEY SHARE');
-- Not every server supports XML.  Document 1 is not live, so no XML is parsed.
SELECT node('Table Function Scan', 'SELECT count(*) FROM docs, XMLTABLE(''/a'' PASSING (doc::text::xml) COLUMNS a int) AS x WHERE docs.n = 1');

\pset tuples_only off
SET client_min_messages = warning;
DROP SCHEMA queries CASCADE;
