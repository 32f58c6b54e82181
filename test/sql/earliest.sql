-- A write searches for an expired document with the same key only if one may exist.
-- Shared memory has the earliest expiry of each table, and the write compares this
-- value with the clock.  This test shows when the value is later than the clock, and
-- that writes never miss an expired document.
--
-- A session raises the value for a btree at most every half second.  Therefore this
-- test uses lazy collections, and btrees after CALL purge(), which also raises the
-- value.
CREATE FUNCTION probes(t regclass) RETURNS bigint LANGUAGE sql AS
    $$ SELECT coalesce(pg_stat_get_xact_numscans((t || '_pkey')::regclass), 0) $$;
-- Writes a document, and returns whether the write searched for its key.
CREATE FUNCTION put(t regclass, id text, doc jsonb DEFAULT '{}') RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    before bigint = probes(t);
BEGIN
    EXECUTE format('INSERT INTO %s (id, doc) VALUES ($1, $2)', t) USING id, doc;
    RETURN CASE probes(t) - before WHEN 0 THEN 'just written' ELSE 'looked for' END;
END $$;
\set VERBOSITY terse

-- An empty table, a table in which nothing expires soon, and a table with a document
-- that expires soon
SELECT ttl_docs.create_collection('lazy', 1000, indexing => 'lazy');
SELECT put('lazy', 'a');
SELECT put('lazy', 'b', '{"ttl": 100}');
SELECT put('lazy', 'c', '{"ttl": -1}');
SELECT put('lazy', 'a');
SELECT put('lazy', 'b');
SET ttl_docs.clock_offset = 50;
SELECT put('lazy', 'd');
SELECT put('lazy', 'b');
SET ttl_docs.clock_offset = 100;
SELECT put('lazy', 'e');
SELECT put('lazy', 'b');
SELECT put('lazy', 'a');
SET ttl_docs.clock_offset = 1000;
SELECT put('lazy', 'a');
SELECT put('lazy', 'c');
RESET ttl_docs.clock_offset;

-- In the same transaction
SELECT ttl_docs.create_collection('own', 1000, indexing => 'lazy');
BEGIN;
INSERT INTO own VALUES ('a', '{"ttl": 5000}');
SET LOCAL ttl_docs.clock_offset = 5000;
INSERT INTO own VALUES ('a', '{"n": 1}');
SELECT id, doc FROM own;
ROLLBACK;
-- The settings change, and the change is rolled back.
SELECT put('own', 'a');
BEGIN;
SELECT ttl_docs.set_default_ttl('own', 10);
SET LOCAL ttl_docs.clock_offset = 20;
SELECT put('own', 'a');
ROLLBACK;
SELECT put('own', 'a');
BEGIN;
SELECT ttl_docs.set_default_ttl('own', 100000);
SELECT put('own', 'b');
ROLLBACK;
SET ttl_docs.clock_offset = 1000;
SELECT put('own', 'a');
RESET ttl_docs.clock_offset;
-- The change of settings is committed.
SELECT ttl_docs.set_default_ttl('own', 500);
SELECT put('own', 'c');
SELECT ttl_docs.set_default_ttl('own', 50);
SET ttl_docs.clock_offset = 60;
SELECT put('own', 'c');
RESET ttl_docs.clock_offset;
-- TTL off: expired documents stay expired, and writes search for them.
SET ttl_docs.clock_offset = 200;
SELECT ttl_docs.set_default_ttl('own', NULL);
RESET ttl_docs.clock_offset;
SELECT put('own', 'c');
SELECT put('own', 'c');

-- A new file of the table, and a rollback to the old one
SELECT ttl_docs.create_collection('file', 1000, indexing => 'lazy');
SELECT put('file', 'a');
SELECT ttl_docs.set_default_ttl('file', 1001);
BEGIN;
TRUNCATE file;
SELECT put('file', 'b', '{"ttl": -1}');
ROLLBACK;
SET ttl_docs.clock_offset = 2000;
SELECT put('file', 'a', '{"ttl": -1}');
RESET ttl_docs.clock_offset;
SELECT put('file', 'c');
SELECT ttl_docs.set_default_ttl('file', 1002);
ALTER TABLE file ADD COLUMN n int;
BEGIN;
DELETE FROM file;
ALTER TABLE file ALTER COLUMN n TYPE bigint;
SELECT put('file', 'd', '{"ttl": -1}');
ROLLBACK;
SET ttl_docs.clock_offset = 2000;
SELECT put('file', 'c', '{"ttl": -1}');
RESET ttl_docs.clock_offset;

-- The same if this transaction is the first one that scans the table
SELECT ttl_docs.create_collection('file_' || mode, NULL, mode) FROM unnest(ARRAY['lazy', 'consistent']) AS mode;
ALTER TABLE file_consistent ADD COLUMN n int;
INSERT INTO file_lazy VALUES ('a', '{}');
INSERT INTO file_consistent VALUES ('a', '{}');
SELECT ttl_docs.set_default_ttl('file_' || mode, 1000) FROM unnest(ARRAY['lazy', 'consistent']) AS mode;
BEGIN;
TRUNCATE file_lazy;
SELECT put('file_lazy', 'b', '{"ttl": -1}');
DELETE FROM file_consistent;
ALTER TABLE file_consistent ALTER COLUMN n TYPE bigint;
SELECT put('file_consistent', 'b', '{"ttl": -1}');
ROLLBACK;
SET ttl_docs.clock_offset = 2000;
SELECT put('file_lazy', 'a', '{"ttl": -1}');
SELECT put('file_consistent', 'a', '{"ttl": -1}');
RESET ttl_docs.clock_offset;

-- An update, and a _ts that the client sends
CREATE TABLE brought (id text PRIMARY KEY, doc jsonb, changed timestamptz DEFAULT clock_timestamp());
SELECT ttl_docs.adopt('brought', 1000, indexing => 'lazy');
SELECT put('brought', 'a');
UPDATE brought SET doc = '{"ttl": 5}' WHERE id = 'a';
SET ttl_docs.clock_offset = 5;
SELECT put('brought', 'a');
RESET ttl_docs.clock_offset;
SET session_replication_role = replica;
INSERT INTO brought (id, doc, _ts) VALUES ('b', '{}', now() - interval '2000 s');
RESET session_replication_role;
SELECT put('brought', 'b');
SET row_security = off;
INSERT INTO brought (id, doc, _ts) VALUES ('c', '{}', now() - interval '2000 s');
RESET row_security;
SELECT put('brought', 'c');

-- The table changes while it is not a collection.
SELECT ttl_docs.release('brought');
SELECT ttl_docs.adopt('brought', 1000, indexing => 'lazy', last_modified => 'changed');
SELECT put('brought', 'd');
SELECT ttl_docs.release('brought');
INSERT INTO brought (id, doc, changed) VALUES ('e', '{}', now() - interval '900 s');
SELECT ttl_docs.adopt('brought', 1000, indexing => 'lazy', last_modified => 'changed');
SET ttl_docs.clock_offset = 200;
SELECT put('brought', 'e');
RESET ttl_docs.clock_offset;
-- A partition changes while it is a collection of its own.
CREATE TABLE parts (id text PRIMARY KEY, doc jsonb) PARTITION BY LIST (id);
CREATE TABLE part PARTITION OF parts FOR VALUES IN ('a', 'b');
SELECT ttl_docs.adopt('parts', 1000, indexing => 'lazy');
SELECT put('part', 'a');
ALTER TABLE parts DETACH PARTITION part;
SELECT ttl_docs.set_default_ttl('part', 5000);
INSERT INTO part VALUES ('b', '{}');
ALTER TABLE parts ATTACH PARTITION part FOR VALUES IN ('a', 'b');
SET ttl_docs.clock_offset = 2000;
INSERT INTO parts (id, doc) VALUES ('b', '{"n": 2}');
SELECT id, doc FROM parts ORDER BY 1;
RESET ttl_docs.clock_offset;

-- The same with a partition that has partitions
CREATE TABLE root (id text PRIMARY KEY, doc jsonb) PARTITION BY LIST (id);
CREATE TABLE branch PARTITION OF root FOR VALUES IN ('a', 'b') PARTITION BY LIST (id);
CREATE TABLE leaf PARTITION OF branch FOR VALUES IN ('a', 'b');
SELECT ttl_docs.adopt('root', 5000, indexing => 'lazy');
SELECT put('leaf', 'a');
ALTER TABLE root DETACH PARTITION branch;
SELECT ttl_docs.set_default_ttl('branch', 1000);
SET ttl_docs.clock_offset = 2000;
SELECT put('leaf', 'a', '{"ttl": -1}');
RESET ttl_docs.clock_offset;

-- Another indexing mode and back
SELECT ttl_docs.set_indexing('lazy', 'consistent');
INSERT INTO lazy VALUES ('f', '{"ttl": 10}');
SELECT ttl_docs.set_indexing('lazy', 'lazy');
SET ttl_docs.clock_offset = 10;
SELECT put('lazy', 'f');
RESET ttl_docs.clock_offset;

-- A purge raises the value: it reads the summaries of the lazy index.
SELECT ttl_docs.create_collection('large', 100000, indexing => 'lazy');
ALTER TABLE large ALTER COLUMN doc SET STORAGE PLAIN;
INSERT INTO large SELECT n::text, jsonb_build_object('ttl', 50000, 'text', repeat('x', 2000)) FROM generate_series(1, 2000) AS n;
SELECT pg_relation_size('large') / current_setting('block_size')::int > 512 AS is_large,
    brin_summarize_new_values((SELECT indexrelid FROM pg_index WHERE indrelid = 'large'::regclass AND NOT indisunique)) > 0 AS has_summaries;
-- A change of settings makes the value unknown.
SELECT ttl_docs.set_default_ttl('large', 100001);
SELECT put('large', 'a', '{"ttl": 50000}');
CALL ttl_docs.purge('large');
SELECT put('large', 'a2', '{"ttl": 50000}');
-- A document that expires soon, in a slot that ends a little later
INSERT INTO large VALUES ('edge', '{"ttl": 179}');
SELECT ttl_docs.set_default_ttl('large', 100002);
CALL ttl_docs.purge('large');
SELECT put('large', 'b', '{"ttl": 50000}');
SET ttl_docs.clock_offset = 179;
SELECT put('large', 'edge', '{"ttl": 50000}');
RESET ttl_docs.clock_offset;
-- A document that expires sooner
INSERT INTO large VALUES ('soon', '{"ttl": 100}');
SELECT ttl_docs.set_default_ttl('large', 100003);
CALL ttl_docs.purge('large');
SELECT put('large', 'c', '{"ttl": 50000}');
SET ttl_docs.clock_offset = 100;
SELECT put('large', 'soon');
RESET ttl_docs.clock_offset;
-- Without summaries, the purge reads the table.
TRUNCATE large;
INSERT INTO large SELECT n::text, jsonb_build_object('ttl', CASE WHEN n % 4 = 0 THEN 50000 ELSE 100 END, 'text', repeat('x', 2000)) FROM generate_series(1, 4000) AS n;
SELECT ttl_docs.set_default_ttl('large', 100004);
CALL ttl_docs.purge('large');
SELECT put('large', 'd');
-- The purge also reads the table if the summaries describe rows that no longer exist.
SET ttl_docs.clock_offset = 200;
CALL ttl_docs.purge('large');
VACUUM large;
INSERT INTO large SELECT 'b' || n, jsonb_build_object('text', repeat('x', 2000)) FROM generate_series(1, 2000) AS n;
CALL ttl_docs.purge('large');
SELECT put('large', 'e');
RESET ttl_docs.clock_offset;

-- With a btree, a purge raises the value past the documents that it deletes.
SELECT ttl_docs.create_collection('btree', 1000);
SELECT put('btree', 'a', '{"ttl": 100}');
SELECT put('btree', 'b');
SET ttl_docs.clock_offset = 200;
CALL ttl_docs.purge('btree');
SELECT put('btree', 'c');
SELECT put('btree', 'a', '{"ttl": 100}');
SELECT put('btree', 'b');
SET ttl_docs.clock_offset = 350;
SELECT put('btree', 'a', '{"ttl": -1}');
SELECT put('btree', 'd');
CALL ttl_docs.purge('btree');
SELECT put('btree', 'e');
RESET ttl_docs.clock_offset;
-- The purge does not raise the value past a document that it could not delete.
BEGIN;
SET LOCAL session_replication_role = replica;
INSERT INTO btree (id, doc, _ts) VALUES ('f', '{}', now() - interval '2000 s');
COMMIT;
CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
CREATE TRIGGER keep BEFORE DELETE ON btree FOR EACH ROW EXECUTE FUNCTION keep();
CALL ttl_docs.purge('btree');
DROP TRIGGER keep ON btree;
SELECT put('btree', 'f');
SELECT id FROM btree ORDER BY 1;
-- The purge does not raise the value in a transaction that may be rolled back.
SELECT put('btree', 'g', '{"ttl": 100}');
SET ttl_docs.clock_offset = 200;
BEGIN;
CALL ttl_docs.purge('btree');
ROLLBACK;
SELECT put('btree', 'g');
RESET ttl_docs.clock_offset;

-- A transaction that writes to more tables than it can track one by one
SELECT format('CREATE TABLE many%s (id text PRIMARY KEY, doc jsonb)', n) FROM generate_series(1, 10) AS n \gexec
SELECT count(ttl_docs.adopt('many' || n, 1000, indexing => 'lazy')) FROM generate_series(1, 10) AS n;
BEGIN;
SELECT format('INSERT INTO many%s VALUES (''a'', ''{"ttl": 10}'')', n) FROM generate_series(1, 10) AS n \gexec
COMMIT;
SET ttl_docs.clock_offset = 10;
SELECT put('many' || n, 'a') FROM generate_series(1, 10) AS n;
RESET ttl_docs.clock_offset;

DROP TABLE lazy, own, file, file_lazy, file_consistent, brought, parts, root, branch, large, btree;
SELECT format('DROP TABLE many%s', n) FROM generate_series(1, 10) AS n \gexec
DROP FUNCTION keep;
DROP FUNCTION put, probes;
