-- release() finds expired documents through the purge index.  While it locks everybody
-- out, it does not scan the table.  Where the index cannot be trusted, it does.
\set SHOW_CONTEXT never

-- Releases a collection, and shows the documents that stay and the number of
-- sequential scans of its tables.
CREATE FUNCTION released(c regclass, OUT scans bigint, OUT stay text) LANGUAGE plpgsql AS $$
DECLARE
    before bigint := numscans(c);
BEGIN
    PERFORM ttl_docs.release(c);
    scans := numscans(c) - before;
    EXECUTE format('SELECT string_agg(id, '','' ORDER BY id) FROM %s', c) INTO stay;
END $$;
CREATE FUNCTION numscans(c regclass) RETURNS bigint LANGUAGE sql AS $$
SELECT sum(pg_stat_get_xact_numscans(t))::bigint
  FROM (SELECT c AS t UNION SELECT relid FROM pg_partition_tree(c)) AS tables
$$;

-- Nothing is expired, TTL is on.
SELECT ttl_docs.create_collection('c', 1000);
INSERT INTO c VALUES ('inherits', '{}'), ('own', '{"ttl": 100}'), ('never', '{"ttl": -1}');
SELECT * FROM released('c');
DROP TABLE c;

-- Slots are rounded up: a document can be expired although its slot has not ended.
-- These documents expired one after another, a second apart.
SELECT ttl_docs.create_collection('c', 100000);
INSERT INTO c SELECT 'own' || n, jsonb_build_object('ttl', 2000 + n) FROM generate_series(1, 64) AS n;
INSERT INTO c VALUES ('inherits', '{}'), ('later', '{"ttl": 200000}'), ('never', '{"ttl": -1}');
SET ttl_docs.clock_offset = 2064;
SELECT * FROM released('c');
RESET ttl_docs.clock_offset;
DROP TABLE c;
-- The same for inherited ttls
SELECT ttl_docs.create_collection('c', 2000);
INSERT INTO c VALUES ('new', '{}'), ('own', '{"ttl": 100000}');
DO $$
BEGIN
    FOR n IN 1..64 LOOP
        PERFORM set_config('ttl_docs.clock_offset', (-2000 - n)::text, false);
        INSERT INTO c VALUES ('inherits' || n, '{}');
    END LOOP;
END $$;
RESET ttl_docs.clock_offset;
SELECT * FROM released('c');
DROP TABLE c;

-- After a purge
SELECT ttl_docs.create_collection('c', 1000);
INSERT INTO c SELECT n, '{}' FROM generate_series(1, 1000) AS n;
INSERT INTO c VALUES ('own', '{"ttl": 100000}'), ('never', '{"ttl": -1}');
SET ttl_docs.clock_offset = 2000;
SET client_min_messages = warning;
CALL ttl_docs.purge('c');
RESET client_min_messages;
INSERT INTO c VALUES ('new', '{}');
SELECT * FROM released('c');
RESET ttl_docs.clock_offset;
DROP TABLE c;

-- Floors: TTL is off, and what had expired before stays expired.
SELECT ttl_docs.create_collection('c', 1000);
INSERT INTO c VALUES ('inherits', '{}'), ('own', '{"ttl": 100}'), ('later', '{"ttl": 5000}'), ('never', '{"ttl": -1}');
SET ttl_docs.clock_offset = 1010;
INSERT INTO c VALUES ('new', '{}');
SELECT ttl_docs.set_default_ttl('c', NULL);
SELECT * FROM released('c');
RESET ttl_docs.clock_offset;
DROP TABLE c;
-- The same without a purge index: release() scans the table.
SELECT ttl_docs.create_collection('c', 1000);
INSERT INTO c VALUES ('inherits', '{}'), ('own', '{"ttl": 100}'), ('later', '{"ttl": 5000}'), ('never', '{"ttl": -1}');
SET ttl_docs.clock_offset = 1010;
SELECT ttl_docs.set_default_ttl('c', NULL);
SELECT ttl_docs.set_indexing('c', 'none');
SELECT scans > 0 AS scanned, stay FROM released('c');
RESET ttl_docs.clock_offset;
DROP TABLE c;
-- TTL was never on: nothing can be expired, and no index is needed.
SELECT ttl_docs.create_collection('c', NULL, 'none');
INSERT INTO c VALUES ('a', '{}'), ('b', '{}');
SELECT * FROM released('c');
DROP TABLE c;

-- Lazy: BRIN leads to blocks.  The expired documents are in the first and in the last
-- block of the table.
SELECT ttl_docs.create_collection('c', 1000, 'lazy');
INSERT INTO c VALUES ('first', '{}');
SET ttl_docs.clock_offset = 1000;
INSERT INTO c SELECT 'live' || n, jsonb_build_object('ttl', 100000, 'text', repeat(md5(n::text), 60)) FROM generate_series(1, 2000) AS n;
VACUUM c;
INSERT INTO c VALUES ('last', '{"ttl": 5}');
SELECT pg_relation_size('c') / current_setting('block_size')::int > 2 * 128 AS several_ranges;
SET ttl_docs.clock_offset = 1010;
SELECT scans, stay = (SELECT string_agg('live' || n, ',' ORDER BY 'live' || n) FROM generate_series(1, 2000) AS n) AS live_stay
  FROM released('c');
RESET ttl_docs.clock_offset;
DROP TABLE c;

-- Partitions, of which one has an index that is not valid
CREATE TABLE c (id text, part int, doc jsonb) PARTITION BY LIST (part);
CREATE TABLE c1 PARTITION OF c FOR VALUES IN (1);
CREATE TABLE c2 PARTITION OF c FOR VALUES IN (2) PARTITION BY LIST (part);
CREATE TABLE c22 PARTITION OF c2 FOR VALUES IN (2);
SELECT ttl_docs.adopt('c', 1000);
INSERT INTO c VALUES ('a', 1, '{}'), ('b', 1, '{"ttl": 5000}'), ('c', 2, '{}'), ('d', 2, '{"ttl": -1}');
SET ttl_docs.clock_offset = 1010;
BEGIN;
SELECT * FROM released('c');
ROLLBACK;
UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'c22__slot_idx'::regclass;
SELECT scans > 0 AS scanned, stay FROM released('c');
RESET ttl_docs.clock_offset;
DROP TABLE c;

-- Replication brings stamps.  The trigger computes a slot that contradicts them.
SELECT ttl_docs.create_collection('c', 1000);
SET session_replication_role = replica;
INSERT INTO c (id, doc, _ts, _ttl, _slot) VALUES
    ('inherits', '{}', clock_timestamp() - interval '2000 s', NULL, NULL),
    ('far', '{}', clock_timestamp() - interval '2000 s', NULL, 9000000000000000000),
    ('own', '{"ttl": 10}', clock_timestamp() - interval '2000 s', 10, NULL),
    ('ancient', '{}', '4700-01-01 BC', NULL, NULL),
    ('old without end', '{}', '-infinity', NULL, NULL),
    ('new', '{}', clock_timestamp(), NULL, 0);
UPDATE c SET _slot = NULL;
RESET session_replication_role;
SELECT * FROM released('c');
DROP TABLE c;

-- A restore brought the rows and the label.  Nobody knows whether the slots are right,
-- also when the purge was resumed.
CREATE TABLE c (id text, doc jsonb, _ts timestamptz NOT NULL DEFAULT clock_timestamp(), _ttl int, _slot bigint);
INSERT INTO c VALUES ('no slot', '{}', DEFAULT), ('late', '{}', clock_timestamp() + interval '1 day');
SECURITY LABEL FOR ttl_docs ON TABLE c IS '{"version": 1, "document": "doc", "default_ttl": 1000, "indexing": "consistent", "written_floor": null, "due_floor": null, "paused": false, "database": 1, "table": 1}';
CREATE INDEX ON c (_slot) WHERE _slot IS NOT NULL;
SET ttl_docs.clock_offset = 2000;
BEGIN;
SELECT scans > 0 AS scanned, stay FROM released('c');
ROLLBACK;
CREATE TRIGGER zzz_ttl_docs BEFORE INSERT OR DELETE OR UPDATE ON c FOR EACH ROW EXECUTE FUNCTION ttl_docs_internal.write_document();
SELECT ttl_docs.resume_purge('c');
SELECT label::jsonb -> 'restored' AS restored FROM pg_seclabel WHERE objoid = 'c'::regclass;
SELECT scans > 0 AS scanned, stay FROM released('c');
RESET ttl_docs.clock_offset;
DROP TABLE c;

DROP FUNCTION released, numscans;
