--
-- A role that may only SELECT from a collection, and has a schema of its own, sees no
-- expired documents.  It tries to call the internal filter functions, and to run code
-- in ALTER TABLE with queries that look like those of PostgreSQL.
--
CREATE ROLE regress_ttl_plan_owner;
CREATE ROLE regress_ttl_plan_reader;
CREATE SCHEMA plans AUTHORIZATION regress_ttl_plan_owner;
CREATE SCHEMA reader AUTHORIZATION regress_ttl_plan_reader;
GRANT USAGE ON SCHEMA plans TO regress_ttl_plan_reader;
SET ROLE regress_ttl_plan_owner;
SET client_min_messages = warning;
SELECT ttl_docs.create_collection('plans.c', 1000);
SELECT ttl_docs.create_collection('plans.never', -1);
GRANT SELECT ON plans.c, plans.never TO regress_ttl_plan_reader;
RESET ROLE;
SET ttl_docs.clock_offset = -2000;
INSERT INTO plans.c VALUES ('dead', '{"secret": 1}');
RESET ttl_docs.clock_offset;
INSERT INTO plans.c VALUES ('live', '{}');
RESET client_min_messages;
\set VERBOSITY terse

--
-- The filter functions are ordinary functions in a query
--
SET ROLE regress_ttl_plan_reader;
SELECT id FROM plans.c WHERE ttl_docs_internal.is_live('infinity', _ttl, 'plans.c'::regclass);
SELECT id FROM plans.c WHERE ttl_docs_internal.is_live(_ts, _ttl, 'plans.never'::regclass);
SELECT id FROM plans.c WHERE ttl_docs_internal.is_live(_ts, -1, 'plans.c'::regclass);
SELECT id FROM plans.c WHERE ttl_docs_internal.is_live(now(), NULL, 'plans.c'::regclass);
SELECT id FROM plans.c WHERE ttl_docs_internal.is_live_parent('infinity', _ttl, 'plans.c'::regclass);
SELECT id FROM plans.c WHERE ttl_docs_internal.require_live('infinity', _ttl, 'plans.c'::regclass);
SELECT id FROM plans.c WHERE ttl_docs_internal.is_live(_ts, _ttl, 'plans.c'::regclass);
SELECT id FROM plans.c WHERE id = 'dead' AND ttl_docs_internal.is_live('infinity', _ttl, 'plans.c'::regclass);
-- In a prepared statement, a join, a view and an index scan
PREPARE switch(timestamptz) AS SELECT id FROM plans.c WHERE ttl_docs_internal.is_live($1, _ttl, 'plans.c');
SET plan_cache_mode = force_generic_plan;
EXECUTE switch('infinity');
RESET plan_cache_mode;
DEALLOCATE switch;
SELECT a.id, b.id FROM plans.c AS a LEFT JOIN plans.c AS b
    ON a.id <> b.id AND ttl_docs_internal.is_live('infinity', b._ttl, 'plans.c');
CREATE VIEW reader.v AS SELECT * FROM plans.c WHERE ttl_docs_internal.is_live('infinity', _ttl, 'plans.c');
SELECT id FROM reader.v;
SET enable_seqscan = off;
SELECT count(*) FROM plans.c WHERE ttl_docs_internal.is_live('infinity', NULL, 'plans.c') AND id > '';
RESET enable_seqscan;
RESET ROLE;
-- In an upsert with a WHERE clause, whose plan has a filter function, too
INSERT INTO plans.c VALUES ('live', '{}') ON CONFLICT (id) DO UPDATE SET doc = '{"n": 1}'
    WHERE ttl_docs_internal.require_live('infinity', c._ttl, 'plans.c') RETURNING id, doc;
-- A plan has the expiry check exactly once, as the first qual.
EXPLAIN (COSTS OFF) SELECT id FROM plans.c WHERE ttl_docs_internal.is_live('infinity', _ttl, 'plans.c'::regclass);
EXPLAIN (COSTS OFF) SELECT id FROM plans.c WHERE ttl_docs_internal.is_live(_ts, _ttl, 'plans.c'::regclass);

--
-- A query that looks like a foreign key check of PostgreSQL
--
SET ROLE regress_ttl_plan_reader;
CREATE TABLE reader.shown (doc jsonb);
CREATE FUNCTION reader.show(jsonb, text) RETURNS boolean LANGUAGE plpgsql AS
$$ BEGIN INSERT INTO reader.shown VALUES ($1); RETURN true; END $$;
CREATE OPERATOR reader.<~ (LEFTARG = jsonb, RIGHTARG = text, FUNCTION = reader.show);
CREATE TABLE reader.fk (k text);
INSERT INTO reader.fk VALUES ('x');
CREATE FUNCTION reader.f() RETURNS text LANGUAGE sql AS
$$ SELECT fk.k FROM ONLY reader.fk fk LEFT JOIN ONLY plans.c pk ON pk.doc OPERATOR(reader.<~) fk.k WHERE pk.id IS NULL $$;
CREATE FUNCTION reader.pl() RETURNS text LANGUAGE plpgsql AS
$$ BEGIN RETURN (SELECT fk.k FROM ONLY reader.fk fk LEFT JOIN ONLY plans.c pk ON pk.doc OPERATOR(reader.<~) fk.k WHERE pk.id IS NULL); END $$;
CREATE TABLE reader.parent (id int PRIMARY KEY);
CREATE TABLE reader.t (x int);
INSERT INTO reader.t VALUES (1);
ALTER TABLE reader.t ALTER x TYPE text USING reader.f();
ALTER TABLE reader.t ALTER x TYPE text USING reader.pl();
ALTER TABLE reader.t ADD COLUMN y text DEFAULT reader.f(), ADD COLUMN parent int, ADD FOREIGN KEY (parent) REFERENCES reader.parent;
ALTER TABLE reader.t ADD CHECK (reader.f() IS NULL), ADD COLUMN parent2 int REFERENCES reader.parent;
SELECT count(*) > 0 AS is_called, count(*) FILTER (WHERE doc ? 'secret') AS secrets FROM reader.shown;
-- The same functions outside ALTER TABLE, with plans cached inside it
SELECT reader.f(), reader.pl();
SELECT count(*) FILTER (WHERE doc ? 'secret') AS secrets FROM reader.shown;
-- Foreign keys of the reader's own tables run the reader's code, in casts of the key.
CREATE TYPE reader.key AS (k int);
CREATE FUNCTION reader.key_int(reader.key) RETURNS int IMMUTABLE LANGUAGE sql AS
$$ SELECT ($1).k FROM (SELECT count(reader.show(pk.doc, 'x')) FROM plans.c pk) AS s $$;
CREATE CAST (reader.key AS int) WITH FUNCTION reader.key_int(reader.key) AS IMPLICIT;
CREATE TABLE reader.ints (id int PRIMARY KEY);
INSERT INTO reader.ints VALUES (1);
CREATE TABLE reader.keys (k reader.key);
INSERT INTO reader.keys VALUES (ROW(1));
ALTER TABLE reader.keys ADD FOREIGN KEY (k) REFERENCES reader.ints ON DELETE CASCADE;
INSERT INTO reader.keys VALUES (ROW(1));
DELETE FROM reader.ints;
SELECT count(*) FILTER (WHERE doc ? 'secret') AS secrets FROM reader.shown;
RESET ROLE;

SET client_min_messages = warning;
DROP SCHEMA plans, reader CASCADE;
DROP ROLE regress_ttl_plan_owner, regress_ttl_plan_reader;
