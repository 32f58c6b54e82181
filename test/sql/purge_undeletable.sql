-- Many undeletable documents.  The purge deletes all others, counts the undeletable ones
-- exactly, and deletes them when the cause is gone.
\set SHOW_CONTEXT never
SET client_min_messages = error;
SELECT ttl_docs.create_collection('pq', 1000);
CREATE TABLE pq_child (pq text REFERENCES pq);
INSERT INTO pq SELECT i, jsonb_build_object('ttl', 100 + i % 100) FROM generate_series(1, 2400) AS i;
INSERT INTO pq_child SELECT i FROM generate_series(1, 2400, 2) AS i;
SET ttl_docs.clock_offset = 300;
CALL ttl_docs.purge('pq');
SET ttl_docs.show_expired = on;
SELECT count(*), count(*) FILTER (WHERE id::int % 2 = 0) AS free FROM pq;
SELECT undeletable, purged FROM ttl_docs.stat_collections WHERE collection = 'pq'::regclass;
-- The view shows the original error.
SELECT last_error FROM ttl_docs.stat_collections WHERE collection = 'pq'::regclass;
-- New documents behind them are purged.
SET ttl_docs.clock_offset = 100;
INSERT INTO pq VALUES ('new', '{"ttl": 100}');
SET ttl_docs.clock_offset = 300;
CALL ttl_docs.purge('pq');
SELECT count(*) FROM pq;
-- Another table has its own count.
RESET ttl_docs.clock_offset;
SELECT ttl_docs.create_collection('pq_other', 1000);
CREATE TABLE pq_other_child (id text REFERENCES pq_other);
INSERT INTO pq_other VALUES ('a', '{"ttl": 100}'), ('b', '{"ttl": 100}');
INSERT INTO pq_other_child VALUES ('a');
SET ttl_docs.clock_offset = 300;
CALL ttl_docs.purge('pq_other');
SELECT undeletable FROM ttl_docs.stat_collections WHERE collection = 'pq_other'::regclass;
-- resume_purge() resets the count; the documents are still on disk.
SELECT ttl_docs.resume_purge('pq');
SELECT undeletable FROM ttl_docs.stat_collections WHERE collection = 'pq'::regclass;
SELECT undeletable FROM ttl_docs.stat_collections WHERE collection = 'pq_other'::regclass;
SELECT count(*) FROM pq;
CALL ttl_docs.purge('pq');
SELECT undeletable FROM ttl_docs.stat_collections WHERE collection = 'pq'::regclass;
-- The cause is gone for some documents, then for all.
DELETE FROM pq_child WHERE pq::int > 500;
CALL ttl_docs.purge('pq');
SELECT count(*) FROM pq;
SELECT undeletable FROM ttl_docs.stat_collections WHERE collection = 'pq'::regclass;
TRUNCATE pq_child;
CALL ttl_docs.purge('pq');
SELECT count(*) FROM pq;
SELECT undeletable, purged FROM ttl_docs.stat_collections WHERE collection = 'pq'::regclass;
-- A new table of the same name starts with a count of 0.
SELECT undeletable FROM ttl_docs.stat_collections WHERE collection = 'pq_other'::regclass;
DROP TABLE pq_other_child, pq_other;
RESET ttl_docs.clock_offset;
SELECT ttl_docs.create_collection('pq_other', 1000);
SELECT undeletable FROM ttl_docs.stat_collections WHERE collection = 'pq_other'::regclass;
RESET ttl_docs.show_expired;
DROP TABLE pq_child, pq, pq_other;

-- Undeletable documents of many partitions take no shared memory.
CREATE TABLE pq_full (id int, part int, doc jsonb, PRIMARY KEY (id, part)) PARTITION BY LIST (part);
SELECT format('CREATE TABLE pq_full_%s PARTITION OF pq_full FOR VALUES IN (%1$s)', i) FROM generate_series(1, 13) AS i \gexec
SELECT ttl_docs.adopt('pq_full', 100);
CREATE FUNCTION pq_keep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
CREATE TRIGGER keep BEFORE DELETE ON pq_full FOR EACH ROW EXECUTE FUNCTION pq_keep();
INSERT INTO pq_full SELECT i, part, '{}' FROM generate_series(1, 1000) AS i, generate_series(1, 13) AS part;
SELECT size AS free FROM pg_shmem_allocations WHERE name IS NULL \gset
SET ttl_docs.clock_offset = 300;
CALL ttl_docs.purge('pq_full');
SELECT undeletable FROM ttl_docs.stat_collections WHERE collection = 'pq_full'::regclass;
SELECT :free - size AS taken FROM pg_shmem_allocations WHERE name IS NULL;
SELECT ttl_docs.resume_purge('pq_full');
SELECT undeletable FROM ttl_docs.stat_collections WHERE collection = 'pq_full'::regclass;
RESET ttl_docs.clock_offset;
DROP TABLE pq_full;
DROP FUNCTION pq_keep;
