-- CALL ttl_docs.purge() commits after each batch if it can.  Inside a transaction, it
-- belongs to that transaction, with all its effects and its statistics.
\set SHOW_CONTEXT never
SELECT ttl_docs.create_collection('pt', 1000);
CREATE TABLE pt_log (xid bigint, deleted bigint, isolation text);
CREATE FUNCTION pt_note() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO public.pt_log SELECT txid_current(), count(*), current_setting('transaction_isolation') FROM gone;
    RETURN NULL;
END $$;
CREATE TRIGGER pt_note AFTER DELETE ON pt REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION pt_note();
CREATE FUNCTION pt_disk() RETURNS bigint LANGUAGE plpgsql SET ttl_docs.show_expired = on AS
    $$ BEGIN RETURN (SELECT count(*) FROM public.pt); END $$;
CREATE PROCEDURE pt_fill(documents int) LANGUAGE sql SET ttl_docs.clock_offset = 0 AS
    $$ INSERT INTO public.pt SELECT 'd' || i, '{"ttl": 100}' FROM generate_series(1, documents) AS i $$;
CREATE VIEW pt_stat AS SELECT purged, batches >= 3 AS several FROM ttl_docs.stat_collections WHERE collection = 'pt'::regclass;
CREATE VIEW pt_batches AS SELECT count(DISTINCT xid) >= 3 AS several, count(DISTINCT xid) = 1 AS one,
    sum(deleted) AS deleted, max(deleted) <= 1000 AS "up to 1000 each" FROM pt_log;
SHOW ttl_docs.purge_batch_size;

-- Outside a transaction block: one transaction for each batch
SET ttl_docs.clock_offset = 200;
CALL pt_fill(2500);
CALL ttl_docs.purge('pt');
SELECT * FROM pt_batches;
SELECT * FROM pt_stat;
TRUNCATE pt_log;

-- In a transaction block: everything in that transaction
CALL pt_fill(2500);
BEGIN;
CALL ttl_docs.purge('pt');
SELECT pt_disk();
SELECT one, deleted FROM pt_batches;
CREATE TEMP TABLE pt_before AS SELECT * FROM pt_stat;
SELECT purged = (SELECT purged FROM pt_before) AS "counted at commit" FROM pt_stat;
COMMIT;
SELECT pt_disk(), purged - (SELECT purged FROM pt_before) AS counted FROM pt_stat;
DROP TABLE pt_before;
-- A rollback undoes the purge.
TRUNCATE pt_log;
CALL pt_fill(5);
CREATE TEMP TABLE pt_before AS SELECT * FROM pt_stat;
BEGIN;
CALL ttl_docs.purge('pt');
ROLLBACK;
SELECT pt_disk(), purged - (SELECT purged FROM pt_before) AS counted FROM pt_stat;
SELECT count(*) FROM pt_log;
SELECT id FROM pt;
-- So does a later error in the transaction.
BEGIN;
CALL ttl_docs.purge('pt');
SELECT 1 / 0;
COMMIT;
SELECT pt_disk(), purged - (SELECT purged FROM pt_before) AS counted FROM pt_stat;
-- ROLLBACK TO undoes a part.
BEGIN;
SAVEPOINT a;
CALL ttl_docs.purge('pt');
ROLLBACK TO a;
COMMIT;
SELECT pt_disk(), purged - (SELECT purged FROM pt_before) AS counted FROM pt_stat;
BEGIN;
SAVEPOINT a;
CALL ttl_docs.purge('pt');
RELEASE a;
COMMIT;
SELECT pt_disk(), purged - (SELECT purged FROM pt_before) AS counted FROM pt_stat;
TRUNCATE pt;
DROP TABLE pt_before;

-- The purge sees the changes of its own transaction.
BEGIN;
CALL pt_fill(3);
CALL ttl_docs.purge('pt');
SELECT pt_disk();
COMMIT;
BEGIN;
CALL pt_fill(3);
SET LOCAL ttl_docs.clock_offset = 50;
UPDATE pt SET doc = doc WHERE id = 'd1';
DELETE FROM pt WHERE id = 'd2';
INSERT INTO pt VALUES ('d4', '{"ttl": 100}');
SAVEPOINT a;
INSERT INTO pt VALUES ('d5', '{"ttl": 1}');
UPDATE pt SET doc = doc WHERE id = 'd3';
ROLLBACK TO a;
SET LOCAL ttl_docs.clock_offset = 130;
CALL ttl_docs.purge('pt');
SELECT id FROM pt ORDER BY id;
SELECT pt_disk();
COMMIT;
TRUNCATE pt;

-- A document locked by the same transaction can be purged.
CALL pt_fill(3);
BEGIN;
SET LOCAL ttl_docs.clock_offset = 0;
SELECT id FROM pt ORDER BY id FOR UPDATE;
SET LOCAL ttl_docs.clock_offset = 200;
CALL ttl_docs.purge('pt');
SELECT pt_disk();
COMMIT;

-- A function, EXECUTE, a procedure with settings or SECURITY DEFINER, and a block with
-- EXCEPTION cannot commit in between.
CREATE PROCEDURE pt_call() LANGUAGE plpgsql AS $$ BEGIN CALL ttl_docs.purge('public.pt'); END $$;
CREATE FUNCTION pt_function() RETURNS int LANGUAGE plpgsql AS $$ BEGIN CALL ttl_docs.purge('public.pt'); RETURN 1; END $$;
CREATE PROCEDURE pt_setting() LANGUAGE plpgsql SET work_mem = '1MB' AS $$ BEGIN CALL ttl_docs.purge('public.pt'); END $$;
CREATE PROCEDURE pt_definer() LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN CALL ttl_docs.purge('public.pt'); END $$;
CREATE PROCEDURE pt_caught() LANGUAGE plpgsql AS $$
BEGIN
    CALL ttl_docs.purge('public.pt');
    RAISE division_by_zero;
EXCEPTION WHEN division_by_zero THEN
    RAISE NOTICE 'caught; purging %', ttl_docs.purging();
END $$;
SET client_min_messages = warning;
DO $$
DECLARE
    way text;
    several boolean;
    deleted bigint;
BEGIN
    FOREACH way IN ARRAY '{CALL public.pt_call(),SELECT public.pt_function(),CALL public.pt_setting(),CALL public.pt_definer(),CALL public.pt_caught()}'::text[] LOOP
        TRUNCATE public.pt, public.pt_log;
        CALL public.pt_fill(2500);
        EXECUTE way;
        SELECT b.several, b.deleted INTO several, deleted FROM public.pt_batches AS b;
        RAISE WARNING '%: several transactions %, deleted %, left %', way, several, deleted, public.pt_disk();
        COMMIT;
    END LOOP;
END $$;
-- A plain procedure and a DO block can.
TRUNCATE pt, pt_log;
CALL pt_fill(2500);
CALL pt_call();
SELECT several FROM pt_batches;
TRUNCATE pt_log;
CALL pt_fill(2500);
DO $$ BEGIN CALL ttl_docs.purge('public.pt'); END $$;
SELECT several FROM pt_batches;
-- A loop over a query continues after the commits.
TRUNCATE pt_log;
CALL pt_fill(2500);
DO $$
DECLARE
    n int := 0;
    i int;
BEGIN
    FOR i IN SELECT generate_series(1, 100) LOOP
        n := n + i;
        IF i = 50 THEN
            CALL ttl_docs.purge('public.pt');
        END IF;
    END LOOP;
    RAISE WARNING '%', n;
END $$;
SELECT several, deleted FROM pt_batches;
RESET client_min_messages;

-- Isolation levels: the purge uses the clock, and sees the rows on disk.
TRUNCATE pt, pt_log;
CALL pt_fill(3);
BEGIN ISOLATION LEVEL REPEATABLE READ;
CALL ttl_docs.purge('pt');
SELECT pt_disk();
COMMIT;
CALL pt_fill(3);
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT count(*) FROM pt;
CALL ttl_docs.purge('pt');
COMMIT;
SET default_transaction_isolation = 'repeatable read';
CALL pt_fill(3);
CALL ttl_docs.purge('pt');
RESET default_transaction_isolation;
SELECT deleted, isolation FROM pt_log ORDER BY xid;

-- In a read-only transaction, the purge is refused, even if there is nothing to do.
CALL pt_fill(3);
BEGIN READ ONLY;
CALL ttl_docs.purge('pt');
\echo :SQLSTATE
ROLLBACK;
SET default_transaction_read_only = on;
CALL ttl_docs.purge();
\echo :SQLSTATE
RESET default_transaction_read_only;
SELECT pt_disk();

DROP VIEW pt_stat, pt_batches;
DROP TABLE pt, pt_log;
DROP FUNCTION pt_note(), pt_disk(), pt_function();
DROP PROCEDURE pt_fill(int), pt_call(), pt_setting(), pt_definer(), pt_caught();
