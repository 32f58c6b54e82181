-- Many documents of one slot: the purge takes them in several searches, and each search
-- continues where the last one ended.  So the number of index entries that it reads is
-- about that of the documents, and does not grow faster.
--
-- The rows are written as a restore would write them, so that all are in one slot.
\set VERBOSITY terse
CREATE FUNCTION fill(t regclass, first int, last int, ts timestamptz, doc jsonb DEFAULT '{}') RETURNS void LANGUAGE plpgsql
    SET row_security = off SET client_min_messages = warning AS $$
BEGIN
    EXECUTE format('INSERT INTO %s (id, doc, _ts) SELECT g, $1, $2 FROM generate_series($3, $4) AS g', t)
        USING doc, ts, first, last;
END $$;
-- Counts since the last flush of statistics, so every use is preceded by one.
CREATE FUNCTION entries_read(t regclass) RETURNS bigint LANGUAGE sql AS
    $$ SELECT pg_stat_get_xact_tuples_returned(indexrelid) FROM pg_index WHERE indrelid = t AND NOT indisprimary $$;
CREATE TABLE long_slot (id int, doc jsonb);
SELECT ttl_docs.adopt('long_slot', 1000);
SELECT fill('long_slot', 1, 300000, date_trunc('hour', now()) - interval '1 day');
SELECT count(DISTINCT _slot) AS slots FROM long_slot WHERE true;
SET ttl_docs.show_expired = on;
SELECT count(DISTINCT _slot) AS slots FROM long_slot;
SELECT pg_stat_force_next_flush();
BEGIN;
CALL ttl_docs.purge('long_slot');
SELECT count(*) FROM long_slot;
SELECT entries_read('long_slot') BETWEEN 300000 AND 330000 AS each_once;
ROLLBACK;

-- The same for a slot of documents with their own ttl, which is followed by documents
-- that are live, that have an invalid ttl, and that never expire
SELECT ttl_docs.set_default_ttl('long_slot', NULL);
TRUNCATE long_slot;
SELECT fill('long_slot', 1, 200000, date_trunc('hour', now()) - interval '1 day', '{"ttl": 60}');
SELECT fill('long_slot', 200001, 200100, date_trunc('hour', now()), '{"ttl": 100000}');
SELECT fill('long_slot', 200101, 200200, date_trunc('hour', now()), '{"ttl": -1}');
SELECT ttl_docs.set_default_ttl('long_slot', -1);
SELECT pg_stat_force_next_flush();
BEGIN;
CALL ttl_docs.purge('long_slot');
SELECT count(*), min(id) FROM long_slot;
SELECT entries_read('long_slot') BETWEEN 200000 AND 220000 AS each_once;
ROLLBACK;

-- The same in the other isolation levels
SELECT pg_stat_force_next_flush();
BEGIN ISOLATION LEVEL REPEATABLE READ;
CALL ttl_docs.purge('long_slot');
SELECT count(*), min(id) FROM long_slot;
SELECT entries_read('long_slot') BETWEEN 200000 AND 220000 AS each_once;
ROLLBACK;
SELECT pg_stat_force_next_flush();
BEGIN ISOLATION LEVEL SERIALIZABLE;
CALL ttl_docs.purge('long_slot');
SELECT count(*), min(id) FROM long_slot;
SELECT entries_read('long_slot') BETWEEN 200000 AND 220000 AS each_once;
ROLLBACK;
RESET ttl_docs.show_expired;
DROP TABLE long_slot;
DROP FUNCTION fill, entries_read;
