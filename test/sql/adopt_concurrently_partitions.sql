-- adopt_concurrently() of partitioned tables: an index on each partition, attached to those above.
-- Partitions that are attached, detached, created or dropped while the adoption is incomplete.
\set SHOW_CONTEXT never

CREATE TABLE p (id int, doc jsonb, changed timestamptz DEFAULT '2020-01-01', PRIMARY KEY (id)) PARTITION BY RANGE (id);
CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (100);
CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (100) TO (300) PARTITION BY LIST (id);
-- other column numbers
CREATE TABLE p2a (gone int, doc jsonb, id int NOT NULL, changed timestamptz DEFAULT '2020-01-01');
ALTER TABLE p2a DROP COLUMN gone;
ALTER TABLE p2 ATTACH PARTITION p2a FOR VALUES IN (100, 101, 102);
CREATE TABLE p2d PARTITION OF p2 DEFAULT;
CREATE TABLE p3 PARTITION OF p FOR VALUES FROM (300) TO (400) PARTITION BY RANGE (id);
INSERT INTO p SELECT i, CASE WHEN i % 3 = 0 THEN jsonb_build_object('ttl', -1) ELSE '{}' END FROM generate_series(1, 299) AS i;

-- What each partition has
\set state 'SELECT tableoid::regclass AS part, count(*), count(_ttl), count(*) FILTER (WHERE _ts = changed) AS from_column, count(*) FILTER (WHERE _slot IS NOT DISTINCT FROM ttl_docs_internal.slot(_ts, _ttl, 2000000000)) AS right_slot FROM p GROUP BY 1 ORDER BY tableoid::regclass::text'
CREATE VIEW indexes AS
SELECT indrelid::regclass AS part, indisvalid, indexrelid::regclass AS index,
       (SELECT inhparent::regclass FROM pg_inherits WHERE inhrelid = indexrelid) AS parent
  FROM pg_index WHERE indrelid IN (SELECT relid FROM pg_partition_tree('p')) AND NOT indisunique;
CALL ttl_docs.adopt_concurrently('p', 2000000000, last_modified => 'changed');
:state;
SELECT * FROM indexes ORDER BY part::text;
SELECT collection, default_ttl FROM ttl_docs.collections;
SELECT ttl_docs.release('p');

--
-- An adoption that is not complete: an invalid ttl in the last partition
--
INSERT INTO p VALUES (299, '{"ttl": 0}') ON CONFLICT (id) DO UPDATE SET doc = excluded.doc;
CALL ttl_docs.adopt_concurrently('p', 2000000000, last_modified => 'changed');
SELECT * FROM indexes ORDER BY part::text;
-- Functions for a partition
CALL ttl_docs.adopt_concurrently('p1', 2000000000, last_modified => 'changed');
SELECT ttl_docs.release('p1');
-- A column of a partition
ALTER TABLE p DROP COLUMN changed;
ALTER TABLE p RENAME COLUMN changed TO "when";
ALTER TABLE p RENAME COLUMN "when" TO changed;
-- New partitions: created; attached with rows; attached although a document has an invalid ttl
CREATE TABLE p4 PARTITION OF p FOR VALUES FROM (400) TO (500);
INSERT INTO p VALUES (400, '{"ttl": 5000}'), (401, '{}');
CREATE TABLE p5 (LIKE p INCLUDING DEFAULTS);
INSERT INTO p5 (id, doc) VALUES (500, '{"ttl": 0}');
ALTER TABLE p ATTACH PARTITION p5 FOR VALUES FROM (500) TO (600);
UPDATE p5 SET doc = '{"ttl": 5000}';
ALTER TABLE p ATTACH PARTITION p5 FOR VALUES FROM (500) TO (600);
-- A collection whose own adoption is not complete would lose its last_modified.
CREATE TABLE p6 (LIKE p INCLUDING DEFAULTS);
ALTER TABLE p6 DROP COLUMN _ts, DROP COLUMN _ttl, DROP COLUMN _slot;
INSERT INTO p6 VALUES (600, '{"ttl": 0}');
CALL ttl_docs.adopt_concurrently('p6', 60, last_modified => 'changed');
ALTER TABLE p ATTACH PARTITION p6 FOR VALUES FROM (600) TO (700);
DROP TABLE p6;
-- A detached partition is a collection by itself, which is not completely adopted.
ALTER TABLE p DETACH PARTITION p1;
SELECT collection, mode, hint FROM ttl_docs.collections WHERE collection = 'p1'::regclass;
SELECT ttl_docs.set_default_ttl('p1', 60);
-- The others are completed without it.
UPDATE p SET doc = '{}' WHERE id = 299;
CALL ttl_docs.adopt_concurrently('p', 2000000000, last_modified => 'changed');
:state;
SELECT * FROM indexes ORDER BY part::text;
-- It cannot come back now: nobody would fill its rows.
ALTER TABLE p ATTACH PARTITION p1 FOR VALUES FROM (0) TO (100);
-- It can be completed by itself.
CALL ttl_docs.adopt_concurrently('p1', 2000000000, last_modified => 'changed');
ALTER TABLE p ATTACH PARTITION p1 FOR VALUES FROM (0) TO (100);
:state;
SELECT collection, default_ttl FROM ttl_docs.collections;
SELECT ttl_docs.release('p');

-- Detached and attached again before the adoption continues
UPDATE p SET doc = '{"ttl": 0}' WHERE id = 299;
CALL ttl_docs.adopt_concurrently('p', 2000000000, last_modified => 'changed');
ALTER TABLE p DETACH PARTITION p4;
ALTER TABLE p ATTACH PARTITION p4 FOR VALUES FROM (400) TO (500);
ALTER TABLE p2 DETACH PARTITION p2d;
ALTER TABLE p2 ATTACH PARTITION p2d DEFAULT;
UPDATE p2d SET doc = '{}' WHERE id = 299;
ALTER TABLE p2 ATTACH PARTITION p2d DEFAULT;
DROP TABLE p5;
CALL ttl_docs.adopt_concurrently('p', 2000000000, last_modified => 'changed');
:state;
SELECT * FROM indexes ORDER BY part::text;
SELECT ttl_docs.release('p');

-- An index that a build left behind is not valid.  The next call replaces it.
UPDATE p SET doc = '{"ttl": 0}' WHERE id = 299;
CALL ttl_docs.adopt_concurrently('p', 2000000000, last_modified => 'changed');
CREATE INDEX broken ON p1 (_slot);
UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'broken'::regclass;
CREATE INDEX ON ONLY p2 (_slot);
UPDATE p SET doc = '{}' WHERE id = 299;
CALL ttl_docs.adopt_concurrently('p', 2000000000, last_modified => 'changed');
SELECT * FROM indexes ORDER BY part::text;

-- The last partition without an attached index goes.  Core leaves the other indexes invalid then.
SELECT ttl_docs.release('p');
UPDATE p SET doc = '{"ttl": 0}' WHERE id = 299;
CALL ttl_docs.adopt_concurrently('p', 2000000000, last_modified => 'changed');
CREATE INDEX whole ON ONLY p (_slot);
DO $$
DECLARE part text;
BEGIN
    FOREACH part IN ARRAY '{p1, p2, p3}'::text[] LOOP
        EXECUTE format('CREATE INDEX %1$s_part ON %1$s (_slot); ALTER INDEX whole ATTACH PARTITION %1$s_part', part);
    END LOOP;
END $$;
DROP TABLE p4;
UPDATE p SET doc = '{}' WHERE id = 299;
SELECT * FROM indexes ORDER BY part::text;
CALL ttl_docs.adopt_concurrently('p', 2000000000, last_modified => 'changed');
SELECT * FROM indexes ORDER BY part::text;

-- A partition by itself
CREATE TABLE q (id int, doc jsonb) PARTITION BY RANGE (id);
CREATE TABLE q1 PARTITION OF q FOR VALUES FROM (0) TO (100);
CALL ttl_docs.adopt_concurrently('q1');
-- a partition without replica identity
CREATE PUBLICATION pub FOR TABLE q1;
CALL ttl_docs.adopt_concurrently('q');
ALTER TABLE q1 REPLICA IDENTITY FULL;
CALL ttl_docs.adopt_concurrently('q');
SELECT ttl_docs.release('q');
DROP PUBLICATION pub;

DROP VIEW indexes;
DROP TABLE p, q;
