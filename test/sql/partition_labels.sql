--
-- Every partition has a copy of the label of its root.  If a partition is restored
-- alone, it is a collection with the same settings and floors.
--
CREATE FUNCTION labels(schema text) RETURNS TABLE (tables text, settings jsonb) LANGUAGE sql AS $$
	SELECT string_agg(c.relname, ', ' ORDER BY c.relname), l.label::jsonb - '{version,database,table}'::text[]
	  FROM pg_class AS c LEFT JOIN pg_seclabel AS l
	    ON l.objoid = c.oid AND l.provider = 'ttl_docs' AND l.classoid = 'pg_class'::regclass
	 WHERE c.relnamespace = schema::regnamespace AND c.relkind IN ('r', 'p')
	 GROUP BY 2 ORDER BY 1 $$;
CREATE FUNCTION origins(schema text) RETURNS TABLE (tables text, origin regclass) LANGUAGE sql AS $$
	SELECT string_agg(c.relname, ', ' ORDER BY c.relname), (l.label::jsonb ->> 'table')::oid
	  FROM pg_class AS c JOIN pg_seclabel AS l
	    ON l.objoid = c.oid AND l.provider = 'ttl_docs' AND l.classoid = 'pg_class'::regclass
	 WHERE c.relnamespace = schema::regnamespace
	 GROUP BY 2 ORDER BY 1 $$;
CREATE SCHEMA pl;
SET search_path = pl, public;

-- adopt() sets the label on all partitions at all levels.  New partitions get it, too.
CREATE TABLE docs (id int PRIMARY KEY, doc jsonb) PARTITION BY RANGE (id);
CREATE TABLE docs_1 PARTITION OF docs FOR VALUES FROM (0) TO (10);
CREATE TABLE docs_2 PARTITION OF docs FOR VALUES FROM (10) TO (20) PARTITION BY RANGE (id);
CREATE TABLE docs_2a PARTITION OF docs_2 FOR VALUES FROM (10) TO (15);
SELECT ttl_docs.adopt('docs', 60);
SELECT * FROM labels('pl');
CREATE TABLE docs_2b PARTITION OF docs_2 FOR VALUES FROM (15) TO (20);
CREATE TABLE docs_3 (LIKE docs INCLUDING ALL);
ALTER TABLE docs ATTACH PARTITION docs_3 FOR VALUES FROM (20) TO (30);
CREATE TABLE docs_4 (LIKE docs INCLUDING ALL) PARTITION BY RANGE (id);
CREATE TABLE docs_4a PARTITION OF docs_4 DEFAULT;
ALTER TABLE docs ATTACH PARTITION docs_4 FOR VALUES FROM (30) TO (40);
SELECT * FROM labels('pl');
SELECT * FROM origins('pl');

-- The views list only the root, and only the root's settings can be changed.
SELECT collection, hint FROM ttl_docs.collections;
SELECT collection FROM ttl_docs.stat_collections;
SELECT ttl_docs.set_default_ttl('docs_1', 70);

-- Every change of settings updates all labels.
INSERT INTO docs SELECT 5 * i, '{}' FROM generate_series(0, 7) AS i;
SET ttl_docs.clock_offset = '1h';
SELECT ttl_docs.set_default_ttl('docs', 86400);
SELECT ttl_docs.set_indexing('docs', 'lazy');
SELECT ttl_docs.pause_purge('docs');
ALTER TABLE docs RENAME COLUMN doc TO body;
SELECT tables, settings - '{written_floor,due_floor}'::text[] AS settings, settings -> 'written_floor' <> 'null' AS has_floor
  FROM labels('pl');
SELECT ttl_docs.set_indexing('docs', 'consistent');
SELECT ttl_docs.resume_purge('docs');
ALTER TABLE docs RENAME COLUMN body TO doc;
BEGIN;
SELECT ttl_docs.set_default_ttl('docs', 90);
SELECT tables, settings -> 'default_ttl' AS default_ttl FROM labels('pl');
ROLLBACK;
SELECT tables, settings -> 'default_ttl' AS default_ttl FROM labels('pl');

-- A partition with a pending DETACH still belongs to the collection, so its label
-- changes, too.
UPDATE pg_inherits SET inhdetachpending = true WHERE inhrelid = 'docs_1'::regclass;
SELECT ttl_docs.set_default_ttl('docs', 80000);
SELECT tables, settings -> 'default_ttl' AS default_ttl FROM labels('pl');
SELECT count(*) FROM docs_1;
-- Changes that PostgreSQL would not apply to that partition must wait for the DETACH.
ALTER TABLE docs RENAME COLUMN doc TO body;
SELECT ttl_docs.set_indexing('docs', 'lazy');
SELECT ttl_docs.release('docs');
SELECT ttl_docs.adopt('docs', 60);
UPDATE pg_inherits SET inhdetachpending = false WHERE inhrelid = 'docs_1'::regclass;

-- SECURITY LABEL as in a restore: setting the same label is harmless, anything else is
-- refused.
SELECT label AS label_docs FROM pg_seclabel WHERE objoid = 'docs'::regclass \gset
SELECT replace(:'label_docs', '"database": ', '"database": 1') AS elsewhere,
       replace(:'label_docs', '80000', '90000') AS changed \gset
SECURITY LABEL FOR ttl_docs ON TABLE docs_1 IS :'label_docs';
SECURITY LABEL FOR ttl_docs ON TABLE docs_2a IS :'elsewhere';
SECURITY LABEL FOR ttl_docs ON TABLE docs_1 IS :'changed';
\echo :SQLSTATE
SECURITY LABEL FOR ttl_docs ON TABLE docs_1 IS NULL;
\echo :SQLSTATE

-- A detached tree of partitions is a collection of its own.  Attached again, it belongs
-- to the old collection.
ALTER TABLE docs DETACH PARTITION docs_2;
SELECT * FROM origins('pl');
SELECT collection, holds, hint FROM ttl_docs.collections ORDER BY collection::text;
SELECT count(*) FROM docs_2;
SELECT ttl_docs.set_default_ttl('docs_2', 70000);
SELECT tables, settings -> 'default_ttl' AS default_ttl FROM labels('pl');
ALTER TABLE docs ATTACH PARTITION docs_2 FOR VALUES FROM (10) TO (20);
SELECT tables, settings -> 'default_ttl' AS default_ttl FROM labels('pl');
SELECT * FROM origins('pl');
SELECT collection FROM ttl_docs.collections;
INSERT INTO docs VALUES (15, '{"ttl": 10}');
SELECT id, _ttl FROM docs;

-- One command creates two levels.
CREATE SCHEMA pl2
	CREATE TABLE s PARTITION OF pl.docs FOR VALUES FROM (40) TO (50) PARTITION BY RANGE (id)
	CREATE TABLE s_1 PARTITION OF s DEFAULT;
SELECT tables, settings -> 'default_ttl' AS default_ttl FROM labels('pl2');
\set VERBOSITY terse
DROP SCHEMA pl2 CASCADE;
\set VERBOSITY default
SELECT count(*) FROM pg_seclabel AS l WHERE NOT EXISTS (SELECT FROM pg_class AS c WHERE c.oid = l.objoid);

-- The extension cannot be dropped while a collection exists.
DROP EXTENSION ttl_docs;

-- release() removes all labels.
SELECT ttl_docs.release('docs');
SELECT * FROM labels('pl');

--
-- All orders in which a restore can create tables, labels and links
--
SELECT ttl_docs.adopt('docs', 60);
SELECT label FROM pg_seclabel WHERE objoid = 'docs'::regclass \gset
CREATE SCHEMA restored;
SET search_path = restored, public;
CREATE TABLE docs (LIKE pl.docs INCLUDING DEFAULTS) PARTITION BY RANGE (id);
CREATE TABLE docs_1 (LIKE pl.docs INCLUDING DEFAULTS);
CREATE TABLE docs_2 (LIKE pl.docs INCLUDING DEFAULTS) PARTITION BY RANGE (id);
CREATE TABLE docs_2a (LIKE pl.docs INCLUDING DEFAULTS);
-- Each label follows its table, and links come last, as pg_dump writes them.  A leaf
-- comes before its parent.
SECURITY LABEL FOR ttl_docs ON TABLE docs_2a IS :'label';
SECURITY LABEL FOR ttl_docs ON TABLE docs_2 IS :'label';
SECURITY LABEL FOR ttl_docs ON TABLE docs IS :'label';
SECURITY LABEL FOR ttl_docs ON TABLE docs_1 IS :'label';
ALTER TABLE ONLY docs ATTACH PARTITION docs_1 FOR VALUES FROM (0) TO (10);
ALTER TABLE ONLY docs_2 ATTACH PARTITION docs_2a FOR VALUES FROM (10) TO (20);
ALTER TABLE ONLY docs ATTACH PARTITION docs_2 FOR VALUES FROM (10) TO (20);
SELECT * FROM labels('restored');
SELECT collection, holds FROM ttl_docs.collections WHERE collection::text NOT LIKE 'pl.%';
DROP TABLE docs;
-- Links come first, then the labels, that of the root first.  Older dumps have only the
-- label of the root.
CREATE TABLE docs (LIKE pl.docs INCLUDING DEFAULTS) PARTITION BY RANGE (id);
CREATE TABLE docs_1 (LIKE pl.docs INCLUDING DEFAULTS);
CREATE TABLE docs_2 (LIKE pl.docs INCLUDING DEFAULTS);
ALTER TABLE ONLY docs ATTACH PARTITION docs_1 FOR VALUES FROM (0) TO (10);
ALTER TABLE ONLY docs ATTACH PARTITION docs_2 FOR VALUES FROM (10) TO (20);
SECURITY LABEL FOR ttl_docs ON TABLE docs_1 IS :'label';
\echo :SQLSTATE
SECURITY LABEL FOR ttl_docs ON TABLE docs IS :'label';
SECURITY LABEL FOR ttl_docs ON TABLE docs_1 IS :'label';
SELECT * FROM labels('restored');
SELECT collection, holds FROM ttl_docs.collections WHERE collection::text NOT LIKE 'pl.%';
DROP TABLE docs;

-- Only a leaf is restored.  Its expired documents stay expired, its purge is held, and
-- adopt() completes it.
CREATE TABLE docs_1 (LIKE pl.docs INCLUDING DEFAULTS);
SECURITY LABEL FOR ttl_docs ON TABLE docs_1 IS :'label';
SET row_security = off;
COPY docs_1 FROM STDIN;
1	{}	2000-01-01 00:00:00+00	\N	1
2	{"ttl": -1}	2000-01-01 00:00:00+00	-1	\N
\.
RESET row_security;
SELECT id FROM docs_1;
-- Only a restore can write to it.
INSERT INTO docs_1 VALUES (3, '{}');
COPY docs_1 (id, doc) FROM PROGRAM 'echo "3	{}"';
SELECT collection, holds, hint FROM ttl_docs.collections WHERE collection::text NOT LIKE 'pl.%';
SELECT state FROM ttl_docs.stat_collections WHERE collection = 'docs_1'::regclass;
CREATE TABLE plain (LIKE docs_1) PARTITION BY RANGE (id);
ALTER TABLE plain ATTACH PARTITION docs_1 FOR VALUES FROM (0) TO (10);
\echo :SQLSTATE
SELECT ttl_docs.adopt('docs_1');
INSERT INTO docs_1 VALUES (3, '{"ttl": 60}');
SELECT id, _ttl FROM docs_1 ORDER BY id;
SELECT collection, holds, hint FROM ttl_docs.collections WHERE collection::text NOT LIKE 'pl.%';
-- The leaf can be attached to the collection that it came from.
ALTER TABLE docs_1 ADD PRIMARY KEY (id);
ALTER TABLE pl.docs DETACH PARTITION pl.docs_1;
ALTER TABLE pl.docs ATTACH PARTITION docs_1 FOR VALUES FROM (0) TO (10);
SELECT collection FROM ttl_docs.collections ORDER BY 1;
SELECT id FROM pl.docs WHERE id IN (1, 2, 3) ORDER BY id;

RESET ttl_docs.clock_offset;
RESET search_path;
SET client_min_messages = warning;
DROP SCHEMA pl, restored CASCADE;
DROP FUNCTION labels, origins;
SELECT count(*) FROM pg_seclabel WHERE provider = 'ttl_docs';
