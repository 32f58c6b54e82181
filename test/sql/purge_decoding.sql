-- Consumers of logical decoding can distinguish a purge from a user's delete.  Before
-- the deletes of a batch, a message with the prefix ttl_docs appears in the same
-- transaction.  The message names the table.
\set SHOW_CONTEXT never
SELECT 'init' FROM pg_create_logical_replication_slot('regress_ttl_purge', 'test_decoding');
SELECT ttl_docs.create_collection('pd', 1000);
CREATE TABLE pd_child (id text REFERENCES pd ON DELETE CASCADE);
CREATE SCHEMA "pd Schema";
SELECT ttl_docs.create_collection('"pd Schema"."a ""quoted"" name"', 1000);
-- Returns the changes since the last call, without numbers.
CREATE FUNCTION pd_changes() RETURNS TABLE (transaction bigint, change text) LANGUAGE sql AS $$
    SELECT dense_rank() OVER (ORDER BY first), data
    FROM (SELECT min(n) OVER (PARTITION BY xid::text) AS first, n,
                 regexp_replace(regexp_replace(data, '"table": \d+', '"table": OID'), ' sz: \d+', '') AS data
          FROM pg_logical_slot_get_changes('regress_ttl_purge', NULL, NULL, 'include-xids', '0', 'skip-empty-xacts', '1')
               WITH ORDINALITY AS c(lsn, xid, data, n)) AS c
    WHERE data NOT IN ('BEGIN', 'COMMIT')
    ORDER BY n
$$;
-- Commands of users write no messages.
INSERT INTO pd VALUES ('a', '{"ttl": 100}'), ('b', '{"ttl": 100}'), ('c', '{"ttl": 100}'), ('live', '{}'), ('deleted', '{}');
INSERT INTO pd_child VALUES ('a'), ('deleted');
INSERT INTO "pd Schema"."a ""quoted"" name" VALUES ('a', '{"ttl": 100}');
DELETE FROM pd WHERE id = 'deleted';
SELECT count(*), count(*) FILTER (WHERE change LIKE 'message%') AS messages, count(*) FILTER (WHERE change LIKE '%DELETE%') AS deletes FROM pd_changes();
-- A purge, with the changes made by its triggers and foreign keys
SET ttl_docs.clock_offset = 200;
CALL ttl_docs.purge('pd');
SELECT * FROM pd_changes();
-- The message has the OID of the table, because names may change.
CALL ttl_docs.purge('"pd Schema"."a ""quoted"" name"');
SELECT regexp_replace(data, '^message: (transactional: \d prefix: \S+), sz: \d+ content:', '\1') ~ '^transactional: 1 prefix: ttl_docs\{' AS is_message,
       (substring(data FROM 'content:(.*)$')::jsonb ->> 'table')::oid = '"pd Schema"."a ""quoted"" name"'::regclass AS "table",
       substring(data FROM 'content:(.*)$')::jsonb ->> 'purge' AS purge
    FROM pg_logical_slot_get_changes('regress_ttl_purge', NULL, NULL) WHERE data LIKE 'message%';
-- If there is nothing to purge, there is no message, even if the purge index still has
-- entries of deleted rows.
BEGIN;
CALL ttl_docs.purge('pd');
COMMIT;
SELECT * FROM pd_changes();
-- After a rollback, there is no message.
RESET ttl_docs.clock_offset;
INSERT INTO pd VALUES ('a', '{"ttl": 100}'), ('b', '{"ttl": 100}');
SELECT count(*) FROM pd_changes();
SET ttl_docs.clock_offset = 200;
BEGIN;
CALL ttl_docs.purge('pd');
ROLLBACK;
SELECT * FROM pd_changes();
-- One document fails and another one does not.  The failed attempt writes no message.
CREATE FUNCTION pd_raise() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF OLD.id = 'b' THEN RAISE 'no'; END IF; RETURN NULL; END $$;
CREATE TRIGGER pd_raise AFTER DELETE ON pd FOR EACH ROW EXECUTE FUNCTION pd_raise();
SET client_min_messages = error;
CALL ttl_docs.purge('pd');
RESET client_min_messages;
SELECT change FROM pd_changes() WHERE change LIKE '%DELETE%';
DROP TRIGGER pd_raise ON pd;
CALL ttl_docs.purge('pd');
SELECT count(*) > 0 AS changes FROM pd_changes();
-- Each batch has its own message before its deletes.
RESET ttl_docs.clock_offset;
TRUNCATE pd, pd_child;
INSERT INTO pd SELECT i, '{"ttl": 100}' FROM generate_series(1, 2500) AS i;
SELECT count(*) FROM pd_changes();
SET ttl_docs.clock_offset = 200;
CALL ttl_docs.purge('pd');
WITH c AS (SELECT transaction, change LIKE 'message%' AS is_message, row_number() OVER () AS n FROM pd_changes())
SELECT count(*) >= 3 AS several, bool_and(messages = 1 AND first_message < first_delete) AS each_begins_with_one, sum(deletes) AS deletes, max(deletes) <= 1000 AS "up to 1000"
    FROM (SELECT count(*) FILTER (WHERE is_message) AS messages, count(*) FILTER (WHERE NOT is_message) AS deletes,
                 min(n) FILTER (WHERE is_message) AS first_message, min(n) FILTER (WHERE NOT is_message) AS first_delete
          FROM c GROUP BY transaction) AS t;
RESET ttl_docs.clock_offset;
-- A user's deletes in the same transaction
TRUNCATE pd, pd_child;
INSERT INTO pd VALUES ('a', '{"ttl": 100}'), ('deleted', '{}'), ('deleted, too', '{}');
SELECT count(*) FROM pd_changes();
SET ttl_docs.clock_offset = 200;
BEGIN;
DELETE FROM pd WHERE id = 'deleted';
CALL ttl_docs.purge('pd');
DELETE FROM pd WHERE id = 'deleted, too';
COMMIT;
SELECT change FROM pd_changes();
-- For a partition, the message names the partition.
RESET ttl_docs.clock_offset;
CREATE TABLE pd_root (id text PRIMARY KEY, doc jsonb) PARTITION BY LIST (id);
CREATE TABLE pd_leaf PARTITION OF pd_root FOR VALUES IN ('a');
SELECT ttl_docs.adopt('pd_root', 1000);
INSERT INTO pd_root VALUES ('a', '{"ttl": 100}');
SELECT count(*) FROM pd_changes();
SET ttl_docs.clock_offset = 200;
CALL ttl_docs.purge('pd_root');
SELECT change FROM pd_changes();
-- Unlogged tables are not decoded.
RESET ttl_docs.clock_offset;
CREATE UNLOGGED TABLE pd_unlogged (id text PRIMARY KEY, doc jsonb);
SELECT ttl_docs.adopt('pd_unlogged', 1000);
INSERT INTO pd_unlogged VALUES ('a', '{"ttl": 100}');
SET ttl_docs.clock_offset = 200;
CALL ttl_docs.purge('pd_unlogged');
SELECT change FROM pd_changes();

RESET ttl_docs.clock_offset;
SELECT pg_drop_replication_slot('regress_ttl_purge');
SET client_min_messages = warning;
DROP SCHEMA "pd Schema" CASCADE;
DROP TABLE pd_child, pd, pd_root, pd_unlogged;
DROP FUNCTION pd_changes(), pd_raise();
