-- The key of an expired document is free, for every kind of constraint and every kind
-- of write.  The write succeeds and deletes this expired document, and no other one.
-- The key of a live document is in use, and the write gets PostgreSQL's usual error or
-- ON CONFLICT action.
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS btree_gist;
RESET client_min_messages;

-- The documents on disk.  Parentheses mark expired ones.
CREATE FUNCTION disk(t regclass) RETURNS text LANGUAGE plpgsql SET ttl_docs.show_expired = on AS $$
DECLARE
    result text;
BEGIN
    EXECUTE format($q$SELECT string_agg(CASE WHEN ttl_docs.is_expired(%L, _ts, _ttl) THEN '(' || n || ')' ELSE n END,
                                        ' ' ORDER BY n) FROM (SELECT doc ->> 'n' AS n, _ts, _ttl FROM %s) AS d$q$, t, t) INTO result;
    RETURN result;
END $$;

--
-- Primary key
--
SELECT ttl_docs.create_collection('k', 1000);
INSERT INTO k VALUES ('own', '{"n": 1, "ttl": 100}'), ('inherits', '{"n": 2}'), ('never', '{"n": 3, "ttl": -1}'),
    ('bystander', '{"n": 4, "ttl": 100}');
INSERT INTO k VALUES ('own', '{"n": 5}');
\echo :SQLSTATE
SET ttl_docs.clock_offset = 50;
INSERT INTO k VALUES ('own', '{"n": 5}');
\echo :SQLSTATE
SET ttl_docs.clock_offset = 100;
INSERT INTO k VALUES ('own', '{"n": 5}');
SELECT disk('k');
INSERT INTO k VALUES ('own', '{"n": 6}');
\echo :SQLSTATE
INSERT INTO k VALUES ('inherits', '{"n": 6}');
\echo :SQLSTATE
SET ttl_docs.clock_offset = 1000;
INSERT INTO k VALUES ('inherits', '{"n": 6}');
INSERT INTO k VALUES ('never', '{"n": 7}');
\echo :SQLSTATE
SELECT disk('k');
RESET ttl_docs.clock_offset;

-- Documents that expired by a floor, with TTL off: their keys are free as well.
TRUNCATE k;
INSERT INTO k VALUES ('own', '{"n": 1, "ttl": 100}'), ('inherits', '{"n": 2}');
SET ttl_docs.clock_offset = 1000;
SELECT ttl_docs.set_default_ttl('k', NULL);
INSERT INTO k VALUES ('own', '{"n": 3}'), ('inherits', '{"n": 4}');
SELECT disk('k');
RESET ttl_docs.clock_offset;
DROP TABLE k;

-- After a rollback, the expired document is on disk again, and still expired.
SELECT ttl_docs.create_collection('k', 1000);
INSERT INTO k VALUES ('a', '{"n": 1, "ttl": 100}');
SET ttl_docs.clock_offset = 100;
BEGIN;
INSERT INTO k VALUES ('a', '{"n": 2}');
ROLLBACK;
SELECT disk('k');
BEGIN;
SAVEPOINT s;
INSERT INTO k VALUES ('a', '{"n": 2}');
ROLLBACK TO s;
INSERT INTO k VALUES ('a', '{"n": 3}');
COMMIT;
SELECT disk('k');
-- A key is used, expires and is used again in one transaction.
BEGIN;
DELETE FROM k;
INSERT INTO k VALUES ('a', '{"n": 4, "ttl": 100}');
SET LOCAL ttl_docs.clock_offset = 200;
INSERT INTO k VALUES ('a', '{"n": 5, "ttl": 100}');
SET LOCAL ttl_docs.clock_offset = 300;
INSERT INTO k VALUES ('a', '{"n": 6}');
COMMIT;
SELECT disk('k');
RESET ttl_docs.clock_offset;

-- A prepared statement, before and after the expiry
TRUNCATE k;
SET plan_cache_mode = force_generic_plan;
PREPARE ins AS INSERT INTO k VALUES ($1, $2);
EXECUTE ins('a', '{"n": 1, "ttl": 100}');
EXECUTE ins('a', '{"n": 2}');
SET ttl_docs.clock_offset = 100;
EXECUTE ins('a', '{"n": 3}');
DEALLOCATE ins;
RESET plan_cache_mode;
SELECT disk('k');

-- Rows of one statement do not free each other's keys.
TRUNCATE k;
RESET ttl_docs.clock_offset;
INSERT INTO k VALUES ('a', '{"n": 1, "ttl": 100}');
SET ttl_docs.clock_offset = 100;
INSERT INTO k VALUES ('a', '{"n": 2}'), ('a', '{"n": 3}');
\echo :SQLSTATE
SELECT disk('k');
INSERT INTO k SELECT 'a', jsonb_build_object('n', g) FROM generate_series(2, 3) AS g ON CONFLICT DO NOTHING;
SELECT disk('k');
RESET ttl_docs.clock_offset;

--
-- Kinds of write
--
CREATE FUNCTION again() RETURNS void LANGUAGE sql AS $$
    TRUNCATE k;
    SELECT set_config('ttl_docs.clock_offset', '0', false);
    INSERT INTO k VALUES ('dead', '{"n": 1, "ttl": 100}'), ('dead 2', '{"n": 2, "ttl": 100}'), ('live', '{"n": 3}');
    SELECT set_config('ttl_docs.clock_offset', '100', false);
$$;
SELECT again();
INSERT INTO k VALUES ('dead', '{"n": 4}'), ('live', '{"n": 5}') ON CONFLICT DO NOTHING RETURNING id;
SELECT disk('k');
SELECT again();
INSERT INTO k VALUES ('dead', '{"n": 4}'), ('live', '{"n": 5}') ON CONFLICT (id) DO NOTHING RETURNING id;
SELECT disk('k');
SELECT again();
INSERT INTO k AS o VALUES ('dead', '{"n": 4}'), ('live', '{"n": 5}')
    ON CONFLICT (id) DO UPDATE SET doc = o.doc || excluded.doc || '{"updated": true}' RETURNING id, doc;
SELECT disk('k');
-- The same document twice in one statement gives the usual error.
INSERT INTO k VALUES ('dead 2', '{"n": 6}'), ('dead 2', '{"n": 7}') ON CONFLICT (id) DO UPDATE SET doc = excluded.doc;
\echo :SQLSTATE
SELECT again();
INSERT INTO k VALUES ('dead', '{"n": 4}'), ('live', '{"n": 5}')
    ON CONFLICT ON CONSTRAINT k_pkey DO UPDATE SET doc = excluded.doc WHERE k.doc ->> 'n' = 'other' RETURNING id, doc;
SELECT disk('k');
SELECT again();
MERGE INTO k USING (VALUES ('dead', 4), ('live', 5)) AS v(id, n) ON k.id = v.id
    WHEN MATCHED THEN UPDATE SET doc = jsonb_build_object('n', v.n, 'matched', true)
    WHEN NOT MATCHED THEN INSERT (id, doc) VALUES (v.id, jsonb_build_object('n', v.n));
SELECT id, doc FROM k ORDER BY id;
SELECT disk('k');
SELECT again();
COPY k (id, doc) FROM stdin;
dead	{"n": 4}
dead 2	{"n": 5}
\.
SELECT disk('k');
COPY k (id, doc) FROM stdin;
live	{"n": 6}
\.
SELECT again();
WITH i AS (INSERT INTO k VALUES ('dead', '{"n": 4}') RETURNING id)
    INSERT INTO k SELECT 'dead 2', '{"n": 5}' FROM i;
SELECT disk('k');
-- UPDATE
SELECT again();
UPDATE k SET id = 'dead' WHERE id = 'live' RETURNING id;
SELECT disk('k');
SELECT again();
UPDATE k SET id = 'live' WHERE id = 'dead';
SELECT disk('k');
INSERT INTO k VALUES ('live 2', '{"n": 4}');
UPDATE k SET id = 'live 2' WHERE id = 'live';
\echo :SQLSTATE
UPDATE k SET id = 'live' WHERE id = 'live';
UPDATE k SET doc = doc || '{"x": 1}';
SELECT disk('k');
-- A chain: each document moves to the key of the next one.
TRUNCATE k;
RESET ttl_docs.clock_offset;
INSERT INTO k SELECT g::text, jsonb_build_object('n', g, 'ttl', CASE WHEN g % 2 = 0 THEN 100 ELSE -1 END)
  FROM generate_series(1, 6) AS g;
SET ttl_docs.clock_offset = 100;
UPDATE k SET id = id::int + 1;
SELECT disk('k');
-- ON CONFLICT DO UPDATE moves a row.
SELECT again();
INSERT INTO k VALUES ('live', '{}') ON CONFLICT (id) DO UPDATE SET id = 'dead' RETURNING id;
SELECT disk('k');
DROP FUNCTION again();
DROP TABLE k;
RESET ttl_docs.clock_offset;

--
-- Kinds of constraint.  n identifies a row.  Each test inserts its first rows at offset
-- 0, and the others after the rows with a ttl have expired.
--
-- Several columns and several constraints: one new row frees all conflicting keys.
CREATE TABLE k (a int, b int, c int UNIQUE, doc jsonb, UNIQUE (a, b));
SELECT ttl_docs.adopt('k', 1000);
INSERT INTO k VALUES (1, 1, 1, '{"n": 1, "ttl": 100}'), (1, 2, 2, '{"n": 2, "ttl": 100}'), (1, 3, 3, '{"n": 3}');
SET ttl_docs.clock_offset = 100;
INSERT INTO k VALUES (1, 1, 2, '{"n": 4}');
SELECT disk('k');
INSERT INTO k VALUES (1, 3, 5, '{"n": 5}');
\echo :SQLSTATE
INSERT INTO k VALUES (1, NULL, 6, '{"n": 6, "ttl": 100}'), (1, NULL, 7, '{"n": 7}');
SET ttl_docs.clock_offset = 200;
INSERT INTO k VALUES (1, NULL, 8, '{"n": 8}');
SELECT disk('k');
-- ON CONFLICT names one constraint.  The key of the other constraint is freed, too.
INSERT INTO k VALUES (1, NULL, 6, '{"n": 9}') ON CONFLICT (a, b) DO NOTHING;
SELECT disk('k');
UPDATE k SET b = 3 WHERE doc @> '{"n": 4}';
\echo :SQLSTATE
RESET ttl_docs.clock_offset;
DROP TABLE k;

-- Partial indexes: rows outside the predicate do not conflict, whether they are new or
-- expired.
CREATE TABLE k (a int, active boolean, doc jsonb);
CREATE UNIQUE INDEX k_partial ON k (a) WHERE active;
SELECT ttl_docs.adopt('k', 1000);
INSERT INTO k VALUES (1, true, '{"n": 1, "ttl": 100}'), (1, false, '{"n": 2, "ttl": 100}'), (2, true, '{"n": 3}');
SET ttl_docs.clock_offset = 100;
INSERT INTO k VALUES (1, false, '{"n": 4}');
SELECT disk('k');
INSERT INTO k VALUES (1, true, '{"n": 5}');
SELECT disk('k');
INSERT INTO k VALUES (2, false, '{"n": 6}');
INSERT INTO k VALUES (2, true, '{"n": 7}');
\echo :SQLSTATE
INSERT INTO k VALUES (3, true, '{"n": 8, "ttl": 50}'), (3, false, '{"n": 9}');
SET ttl_docs.clock_offset = 150;
UPDATE k SET active = true WHERE doc @> '{"n": 9}';
INSERT INTO k VALUES (3, true, '{"n": 0}') ON CONFLICT (a) WHERE active DO NOTHING;
SELECT disk('k');
RESET ttl_docs.clock_offset;
DROP TABLE k;

-- Expressions, also on the document
CREATE TABLE k (name text, doc jsonb);
CREATE UNIQUE INDEX k_name ON k (lower(name));
CREATE UNIQUE INDEX k_mail ON k ((doc ->> 'mail')) WHERE doc ? 'mail';
SELECT ttl_docs.adopt('k', 1000);
INSERT INTO k VALUES ('Ann', '{"n": 1, "ttl": 100}'), ('Bob', '{"n": 2, "ttl": 100, "mail": "m"}'), ('Carl', '{"n": 3, "mail": "c"}');
SET ttl_docs.clock_offset = 100;
INSERT INTO k VALUES ('ANN', '{"n": 4}');
SELECT disk('k');
INSERT INTO k VALUES ('Dan', '{"n": 5, "mail": "m"}');
SELECT disk('k');
INSERT INTO k VALUES ('carl', '{"n": 6}');
\echo :SQLSTATE
INSERT INTO k VALUES ('Eve', '{"n": 6, "mail": "c"}');
\echo :SQLSTATE
INSERT INTO k VALUES ('Fay', '{"n": 7, "ttl": 50, "mail": "f"}');
SET ttl_docs.clock_offset = 150;
UPDATE k SET doc = doc || '{"mail": "f"}' WHERE name = 'Dan';
SELECT disk('k');
INSERT INTO k VALUES ('Guy', '{"n": 8, "mail": "f"}') ON CONFLICT ((doc ->> 'mail')) WHERE doc ? 'mail' DO UPDATE SET name = 'Dan 2'
    RETURNING name;
RESET ttl_docs.clock_offset;
DROP TABLE k;

-- INCLUDE columns are not part of the key.
CREATE TABLE k (a int, b int, doc jsonb);
CREATE UNIQUE INDEX k_include ON k (a) INCLUDE (b);
SELECT ttl_docs.adopt('k', 1000);
INSERT INTO k VALUES (1, 1, '{"n": 1, "ttl": 100}'), (2, 1, '{"n": 2, "ttl": 100}'), (3, 1, '{"n": 3}');
SET ttl_docs.clock_offset = 100;
INSERT INTO k VALUES (1, 2, '{"n": 4}');
SELECT disk('k');
INSERT INTO k VALUES (3, 2, '{"n": 5}');
\echo :SQLSTATE
UPDATE k SET b = 9 WHERE a = 1;
SELECT disk('k');
RESET ttl_docs.clock_offset;
DROP TABLE k;

-- NULLs, distinct and not distinct
CREATE TABLE k (a int, b int, doc jsonb, CONSTRAINT k_nulls UNIQUE NULLS NOT DISTINCT (a, b));
SELECT ttl_docs.adopt('k', 1000);
INSERT INTO k VALUES (1, NULL, '{"n": 1, "ttl": 100}'), (NULL, NULL, '{"n": 2, "ttl": 100}'), (2, NULL, '{"n": 3}');
SET ttl_docs.clock_offset = 100;
INSERT INTO k VALUES (1, NULL, '{"n": 4}');
SELECT disk('k');
INSERT INTO k VALUES (NULL, NULL, '{"n": 5}');
SELECT disk('k');
INSERT INTO k VALUES (2, NULL, '{"n": 6}');
\echo :SQLSTATE
INSERT INTO k VALUES (NULL, NULL, '{"n": 6}') ON CONFLICT DO NOTHING;
SELECT disk('k');
RESET ttl_docs.clock_offset;
DROP TABLE k;

-- Exclusion constraints: all overlapping expired documents are deleted, and no others.
CREATE TABLE k (room int, during int4range, doc jsonb,
    CONSTRAINT k_during EXCLUDE USING gist (room WITH =, during WITH &&));
SELECT ttl_docs.adopt('k', 1000);
INSERT INTO k VALUES (1, '[1,3)', '{"n": 1, "ttl": 100}'), (1, '[3,5)', '{"n": 2, "ttl": 100}'), (1, '[7,9)', '{"n": 3}'),
    (2, '[1,9)', '{"n": 4, "ttl": 100}'), (1, '[5,6)', '{"n": 5, "ttl": 100}');
SET ttl_docs.clock_offset = 100;
INSERT INTO k VALUES (1, '[2,5)', '{"n": 6}');
SELECT disk('k');
INSERT INTO k VALUES (1, '[5,8)', '{"n": 7}');
\echo :SQLSTATE
SELECT disk('k');
INSERT INTO k VALUES (1, '[5,8)', '{"n": 7}') ON CONFLICT DO NOTHING;
SELECT disk('k');
UPDATE k SET room = 2 WHERE doc @> '{"n": 6}';
SELECT disk('k');
RESET ttl_docs.clock_offset;
DROP TABLE k;
-- With another operator, a predicate and an expression
CREATE TABLE k (room int, guest int, doc jsonb,
    CONSTRAINT k_guest EXCLUDE USING gist ((room % 10) WITH =, guest WITH <>) WHERE (guest > 0));
SELECT ttl_docs.adopt('k', 1000);
INSERT INTO k VALUES (1, 1, '{"n": 1, "ttl": 100}'), (11, 1, '{"n": 2, "ttl": 100}'), (2, 1, '{"n": 3}');
SET ttl_docs.clock_offset = 100;
INSERT INTO k VALUES (21, 1, '{"n": 4}');
SELECT disk('k');
INSERT INTO k VALUES (31, 0, '{"n": 5}');
SELECT disk('k');
INSERT INTO k VALUES (12, 2, '{"n": 6}');
\echo :SQLSTATE
DELETE FROM k WHERE doc @> '{"n": 4}';
INSERT INTO k VALUES (21, 2, '{"n": 7}');
SELECT disk('k');
RESET ttl_docs.clock_offset;
DROP TABLE k;
-- A lossy index: the bounding boxes of the circles overlap, the circles do not.
CREATE TABLE k (c circle, doc jsonb, CONSTRAINT k_circle EXCLUDE USING gist (c WITH &&));
SELECT ttl_docs.adopt('k', 1000);
INSERT INTO k VALUES ('<(0,0),5>', '{"n": 1, "ttl": 100}'), ('<(9,9),5>', '{"n": 2, "ttl": 100}');
SET ttl_docs.clock_offset = 100;
INSERT INTO k VALUES ('<(-1,-1),5>', '{"n": 3}');
SELECT disk('k');
INSERT INTO k VALUES ('<(1,1),2>', '{"n": 4}');
\echo :SQLSTATE
RESET ttl_docs.clock_offset;
DROP TABLE k;
-- A hash index
CREATE TABLE k (a text, doc jsonb, CONSTRAINT k_hash EXCLUDE USING hash (a WITH =));
SELECT ttl_docs.adopt('k', 1000);
INSERT INTO k VALUES ('a', '{"n": 1, "ttl": 100}'), ('b', '{"n": 2, "ttl": 100}'), ('c', '{"n": 3}');
SET ttl_docs.clock_offset = 100;
INSERT INTO k VALUES ('a', '{"n": 4}');
INSERT INTO k VALUES ('c', '{"n": 5}');
\echo :SQLSTATE
SELECT disk('k');
RESET ttl_docs.clock_offset;
DROP TABLE k;

-- Temporal keys: WITHOUT OVERLAPS on PostgreSQL 18, the equivalent exclusion constraint
-- before.
SELECT current_setting('server_version_num')::int >= 180000 AS has_without_overlaps \gset
\if :has_without_overlaps
CREATE TABLE k (id int, at int4range, doc jsonb, CONSTRAINT k_temporal PRIMARY KEY (id, at WITHOUT OVERLAPS));
\else
CREATE TABLE k (id int, at int4range, doc jsonb, CONSTRAINT k_temporal EXCLUDE USING gist (id WITH =, at WITH &&));
\endif
SELECT ttl_docs.adopt('k', 1000);
INSERT INTO k VALUES (1, '[1,3)', '{"n": 1, "ttl": 100}'), (1, '[3,5)', '{"n": 2, "ttl": 100}'), (1, '[7,9)', '{"n": 3}'),
    (2, '[1,9)', '{"n": 4, "ttl": 100}');
SET ttl_docs.clock_offset = 100;
INSERT INTO k VALUES (1, '[2,4)', '{"n": 5}');
SELECT disk('k');
INSERT INTO k VALUES (1, '[8,10)', '{"n": 6}');
\echo :SQLSTATE
INSERT INTO k VALUES (1, '[3,6)', '{"n": 6}') ON CONFLICT DO NOTHING;
SELECT disk('k');
RESET ttl_docs.clock_offset;
DROP TABLE k;

-- Deferrable constraints: live duplicates wait for the check, the keys of expired
-- documents are freed.
CREATE TABLE k (a int, b int, doc jsonb,
    CONSTRAINT k_immediate UNIQUE (a) DEFERRABLE INITIALLY IMMEDIATE,
    CONSTRAINT k_deferred UNIQUE (b) DEFERRABLE INITIALLY DEFERRED);
SELECT ttl_docs.adopt('k', 1000);
INSERT INTO k VALUES (1, 1, '{"n": 1, "ttl": 100}'), (2, 2, '{"n": 2, "ttl": 100}'), (3, 3, '{"n": 3}');
SET ttl_docs.clock_offset = 100;
INSERT INTO k VALUES (1, 2, '{"n": 4}');
SELECT disk('k');
INSERT INTO k VALUES (3, 5, '{"n": 5}');
\echo :SQLSTATE
INSERT INTO k VALUES (5, 3, '{"n": 5}');
\echo :SQLSTATE
BEGIN;
INSERT INTO k VALUES (5, 3, '{"n": 5}');
DELETE FROM k WHERE doc @> '{"n": 3}';
COMMIT;
UPDATE k SET a = CASE a WHEN 1 THEN 5 ELSE 1 END;
SELECT disk('k');
BEGIN;
SET CONSTRAINTS ALL DEFERRED;
INSERT INTO k VALUES (5, 5, '{"n": 6, "ttl": 50}');
UPDATE k SET a = 6 WHERE doc @> '{"n": 4}';
COMMIT;
SET ttl_docs.clock_offset = 150;
BEGIN;
SET CONSTRAINTS ALL DEFERRED;
INSERT INTO k VALUES (5, 5, '{"n": 7}');
COMMIT;
SELECT disk('k');
RESET ttl_docs.clock_offset;
DROP TABLE k;

-- Stored generated columns: alone, in an expression, and in a predicate
CREATE TABLE k (doc jsonb, mail text GENERATED ALWAYS AS (lower(doc ->> 'mail')) STORED UNIQUE,
    kind text GENERATED ALWAYS AS (doc ->> 'kind') STORED, a int);
CREATE UNIQUE INDEX k_kind ON k ((kind || '!')) WHERE kind <> 'any';
CREATE UNIQUE INDEX k_row ON k (a) WHERE k.* IS NOT NULL;
SELECT ttl_docs.adopt('k', 1000);
INSERT INTO k (doc) VALUES ('{"n": 1, "ttl": 100, "mail": "M"}'), ('{"n": 2, "ttl": 100, "kind": "x"}'), ('{"n": 3, "mail": "l", "kind": "any"}');
SET ttl_docs.clock_offset = 100;
INSERT INTO k (doc) VALUES ('{"n": 4, "mail": "m"}');
SELECT disk('k');
INSERT INTO k (doc) VALUES ('{"n": 5, "kind": "any"}'), ('{"n": 6, "kind": "x"}');
SELECT disk('k');
INSERT INTO k (doc) VALUES ('{"n": 7, "mail": "L"}');
\echo :SQLSTATE
INSERT INTO k (doc) VALUES ('{"n": 7, "ttl": 50, "mail": "n"}');
SET ttl_docs.clock_offset = 150;
UPDATE k SET doc = doc || '{"mail": "N"}' WHERE doc @> '{"n": 6}' RETURNING mail, kind;
SELECT disk('k');
RESET ttl_docs.clock_offset;
DROP TABLE k;

-- A key on system columns uses the values that the server sets.
CREATE TABLE k (a int, doc jsonb);
SELECT ttl_docs.adopt('k', 1000);
CREATE UNIQUE INDEX k_ttl ON k (a, _ttl);
INSERT INTO k VALUES (1, '{"n": 1, "ttl": 100}'), (1, '{"n": 2, "ttl": 200}');
SET ttl_docs.clock_offset = 150;
INSERT INTO k VALUES (1, '{"n": 3, "ttl": 200}');
\echo :SQLSTATE
INSERT INTO k VALUES (1, '{"n": 3, "ttl": 100}');
SELECT disk('k');
RESET ttl_docs.clock_offset;
DROP TABLE k;

-- Partitions: each has an index of its own.
CREATE TABLE k (id int, a int, doc jsonb, PRIMARY KEY (id, a)) PARTITION BY LIST (a);
CREATE TABLE k1 PARTITION OF k FOR VALUES IN (1);
CREATE TABLE k2 (doc jsonb, a int NOT NULL, id int NOT NULL);
ALTER TABLE k ATTACH PARTITION k2 FOR VALUES IN (2);
SELECT ttl_docs.adopt('k', 1000);
INSERT INTO k VALUES (1, 1, '{"n": 1, "ttl": 100}'), (1, 2, '{"n": 2, "ttl": 100}'), (2, 2, '{"n": 3}');
SET ttl_docs.clock_offset = 100;
INSERT INTO k VALUES (1, 2, '{"n": 4}');
SELECT disk('k');
INSERT INTO k1 VALUES (1, 1, '{"n": 5}') ON CONFLICT DO NOTHING;
SELECT disk('k');
INSERT INTO k VALUES (3, 1, '{"n": 6, "ttl": 50}');
SET ttl_docs.clock_offset = 150;
UPDATE k SET id = 3, a = 1 WHERE id = 2;
SELECT tableoid::regclass, id, a, doc ->> 'n' AS n FROM k ORDER BY n;
SELECT disk('k');
RESET ttl_docs.clock_offset;
DROP TABLE k;

--
-- Expired documents of any origin, and keys that were searched for before
--
SELECT ttl_docs.create_collection('k', 1000);
INSERT INTO k VALUES ('a', '{"n": 1}');
INSERT INTO k VALUES ('b', '{"n": 2}');
-- Replication and restores write a _ts in the past.
SET session_replication_role = replica;
INSERT INTO k VALUES ('r', '{"n": 3}', now() - interval '2000 s');
RESET session_replication_role;
INSERT INTO k VALUES ('r', '{"n": 4}');
SET row_security = off;
INSERT INTO k VALUES ('s', '{"n": 5}', now() - interval '2000 s');
RESET row_security;
INSERT INTO k VALUES ('s', '{"n": 6}');
-- So does a session whose clock is behind.
SET ttl_docs.clock_offset = -2000;
INSERT INTO k VALUES ('t', '{"n": 7}');
RESET ttl_docs.clock_offset;
INSERT INTO k VALUES ('t', '{"n": 8}');
SELECT disk('k');
-- An INSERT under session_replication_role = replica frees the key, too.
SET session_replication_role = replica;
INSERT INTO k VALUES ('u', '{"n": 9}', now() - interval '2000 s');
INSERT INTO k VALUES ('u', '{"n": 10}', now());
RESET session_replication_role;
SELECT disk('k');
-- A change of the DefaultTTL makes a document expire.
INSERT INTO k VALUES ('v', '{"n": 11}');
SELECT ttl_docs.set_default_ttl('k', 1);
SET ttl_docs.clock_offset = 1;
INSERT INTO k VALUES ('v', '{"n": 12}');
RESET ttl_docs.clock_offset;
DROP TABLE k;
-- Many dead entries at the front of the purge index
SELECT ttl_docs.create_collection('k', 1000);
INSERT INTO k SELECT g, jsonb_build_object('n', g, 'ttl', 10) FROM generate_series(1, 500) AS g;
DELETE FROM k;
INSERT INTO k VALUES ('x', '{"n": 1, "ttl": 100}');
SET ttl_docs.clock_offset = 100;
INSERT INTO k VALUES ('x', '{"n": 2}');
SELECT disk('k');
RESET ttl_docs.clock_offset;
-- Many keys in one statement
TRUNCATE k;
INSERT INTO k SELECT g, jsonb_build_object('n', g, 'ttl', 100) FROM generate_series(1, 300) AS g;
SET ttl_docs.clock_offset = 100;
INSERT INTO k SELECT g, jsonb_build_object('n', g) FROM generate_series(1, 400) AS g;
SELECT count(*) FROM k;
SET ttl_docs.show_expired = on;
SELECT count(*) AS on_disk FROM k;
RESET ttl_docs.show_expired;
RESET ttl_docs.clock_offset;
DROP TABLE k;

-- DDL checks all rows on disk, also expired ones.
CREATE TABLE k (a int, doc jsonb);
SELECT ttl_docs.adopt('k', 1000);
INSERT INTO k VALUES (1, '{"n": 1, "ttl": 100}'), (1, '{"n": 2}');
SET ttl_docs.clock_offset = 100;
CREATE UNIQUE INDEX k_a ON k (a);
\echo :SQLSTATE
CREATE UNIQUE INDEX CONCURRENTLY k_a ON k (a);
\echo :SQLSTATE
-- The invalid index that remains enforces nothing.
INSERT INTO k VALUES (1, '{"n": 3}');
SELECT disk('k');
RESET ttl_docs.clock_offset;
DROP TABLE k;

DROP FUNCTION disk(regclass);
DROP EXTENSION btree_gist;
