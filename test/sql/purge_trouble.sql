-- A document or table that cannot be purged: the purge finds exactly that one, records
-- the error, and purges the others.
\set SHOW_CONTEXT never
SELECT ttl_docs.create_collection('px', 1000);
SELECT ttl_docs.create_collection('px_other', 1000);
CREATE VIEW px_stat AS SELECT undeletable, last_error, last_error_at IS NOT NULL AS has_time
    FROM ttl_docs.stat_collections WHERE collection = 'px'::regclass;
CREATE FUNCTION px_left() RETURNS text LANGUAGE plpgsql SET ttl_docs.show_expired = on AS
    $$ BEGIN RETURN (SELECT format('%s: %s', count(*), string_agg(id, ', ' ORDER BY id)) FROM public.px); END $$;
CREATE PROCEDURE px_fill(documents int DEFAULT 3000) LANGUAGE plpgsql SET ttl_docs.clock_offset = 0 AS $$
BEGIN
    TRUNCATE public.px;
    PERFORM ttl_docs.resume_purge('public.px');
    INSERT INTO public.px SELECT 'd' || i, jsonb_build_object('ttl', 100, 'i', i) FROM generate_series(1, documents) AS i;
    INSERT INTO public.px VALUES ('live', '{"i": 0}');
END $$;

-- A row trigger raises an error, BEFORE or AFTER, for the first, the last and some
-- other documents.
CREATE FUNCTION px_raise() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (OLD.doc ->> 'i')::int IN (1, 700, 701, 1500, 3000) THEN
        RAISE 'not %', OLD.id USING ERRCODE = 'P9999';
    END IF;
    RETURN OLD;
END $$;
CREATE TRIGGER px_trigger BEFORE DELETE ON px FOR EACH ROW EXECUTE FUNCTION px_raise();
CALL px_fill();
SET ttl_docs.clock_offset = 300;
CALL ttl_docs.purge('px');
SELECT px_left();
SELECT count(*) FROM px;
SELECT undeletable, last_error, has_time FROM px_stat;
-- The purge retries them, and counts them once.
CALL ttl_docs.purge('px');
SELECT undeletable FROM px_stat;
DROP TRIGGER px_trigger ON px;
-- The cause is gone.
CALL ttl_docs.purge('px');
SELECT px_left();
SELECT undeletable FROM px_stat;
CALL px_fill();
CREATE TRIGGER px_trigger AFTER DELETE ON px FOR EACH ROW EXECUTE FUNCTION px_raise();
CALL ttl_docs.purge('px');
SELECT px_left();
-- In a transaction block
CALL px_fill();
BEGIN;
CALL ttl_docs.purge('px');
COMMIT;
SELECT px_left();
SELECT undeletable FROM px_stat;
DROP TRIGGER px_trigger ON px;

-- A trigger prevents the delete: the document is counted, and the error says so.
CREATE FUNCTION px_keep() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RETURN CASE WHEN OLD.doc ->> 'i' NOT IN ('5', '2000') THEN OLD END;
END $$;
CREATE TRIGGER px_trigger BEFORE DELETE ON px FOR EACH ROW EXECUTE FUNCTION px_keep();
CALL px_fill();
CALL ttl_docs.purge('px');
SELECT px_left();
SELECT * FROM px_stat;
CALL ttl_docs.purge('px');
SELECT undeletable FROM px_stat;
DROP TRIGGER px_trigger ON px;
CALL ttl_docs.purge('px');
SELECT undeletable FROM px_stat;

-- A statement trigger raises an error because of some documents.  The error does not
-- show which ones, so the purge searches for them.
CREATE FUNCTION px_raise_statement() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM gone WHERE doc ->> 'i' IN ('7', '8', '2222')) THEN
        RAISE 'a statement with %', (SELECT min(id) FROM gone WHERE doc ->> 'i' IN ('7', '8', '2222'));
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER px_trigger AFTER DELETE ON px REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION px_raise_statement();
CALL px_fill();
CALL ttl_docs.purge('px');
SELECT px_left();
SELECT undeletable, last_error FROM px_stat;
DROP TRIGGER px_trigger ON px;
-- If the trigger always raises an error, nothing is purged, and the purge ends.
CREATE FUNCTION px_raise_always() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'never'; END $$;
CREATE TRIGGER px_trigger BEFORE DELETE ON px FOR EACH STATEMENT EXECUTE FUNCTION px_raise_always();
CALL px_fill(20);
CALL ttl_docs.purge('px');
SELECT split_part(px_left(), ':', 1);
SELECT undeletable, last_error FROM px_stat;
DROP TRIGGER px_trigger ON px;
CALL ttl_docs.purge('px');
SELECT px_left();

-- A lock conflict does not make a document undeletable.  The purge skips the document,
-- and the error names the conflict.
CREATE FUNCTION px_busy() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    CASE OLD.doc ->> 'i'
        WHEN '3' THEN RAISE lock_not_available;
        WHEN '5' THEN RAISE deadlock_detected;
        WHEN '9' THEN RAISE serialization_failure;
        ELSE RETURN NULL;
    END CASE;
END $$;
CREATE TRIGGER px_trigger AFTER DELETE ON px FOR EACH ROW EXECUTE FUNCTION px_busy();
CALL px_fill(20);
CALL ttl_docs.purge('px');
SELECT px_left();
SELECT undeletable, last_error FROM px_stat;
DROP TRIGGER px_trigger ON px;
CALL ttl_docs.purge('px');
SELECT px_left();

-- A published table without a replica identity: the error belongs to the table, not to
-- a document.  Other collections are purged.
SET client_min_messages = error;
DROP VIEW px_stat;
DROP TABLE px;
CREATE TABLE px (id text, doc jsonb);
SELECT ttl_docs.adopt('px', 1000);
CREATE VIEW px_stat AS SELECT undeletable, last_error, last_error_at IS NOT NULL AS has_time
    FROM ttl_docs.stat_collections WHERE collection = 'px'::regclass;
CREATE PUBLICATION regress_ttl_purge FOR TABLE px;
CALL px_fill(20);
RESET ttl_docs.clock_offset;
INSERT INTO px_other VALUES ('a', '{"ttl": 100}');
SET ttl_docs.clock_offset = 300;
RESET client_min_messages;
CALL ttl_docs.purge('px');
SELECT undeletable, last_error FROM px_stat;
SET client_min_messages = error;
CALL ttl_docs.purge();
RESET client_min_messages;
SET ttl_docs.show_expired = on;
SELECT (SELECT count(*) FROM px) AS px, (SELECT count(*) FROM px_other) AS other;
RESET ttl_docs.show_expired;
ALTER TABLE px REPLICA IDENTITY FULL;
CALL ttl_docs.purge('px');
SELECT px_left();
DROP PUBLICATION regress_ttl_purge;

-- Long messages are truncated between characters.
CREATE FUNCTION px_raise_long() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE '%', OLD.doc ->> 'x' || repeat(U&'\20AC', 200); END $$;
CREATE TRIGGER px_trigger BEFORE DELETE ON px FOR EACH ROW EXECUTE FUNCTION px_raise_long();
SET client_min_messages = error;
RESET ttl_docs.clock_offset;
SELECT ttl_docs.resume_purge('px');
TRUNCATE px;
INSERT INTO px VALUES ('a', '{"ttl": 100, "x": ""}');
SET ttl_docs.clock_offset = 300;
CALL ttl_docs.purge('px');
SELECT octet_length(last_error), last_error = repeat(U&'\20AC', 85) AS whole FROM px_stat;
SET ttl_docs.clock_offset = 0;
TRUNCATE px;
INSERT INTO px VALUES ('a', '{"ttl": 100, "x": "x"}');
SET ttl_docs.clock_offset = 300;
CALL ttl_docs.purge('px');
SELECT octet_length(last_error), last_error = 'x' || repeat(U&'\20AC', 84) AS whole FROM px_stat;
SET ttl_docs.clock_offset = 0;
TRUNCATE px;
INSERT INTO px VALUES ('a', '{"ttl": 100, "x": "xx"}');
SET ttl_docs.clock_offset = 300;
CALL ttl_docs.purge('px');
SELECT octet_length(last_error), last_error = 'xx' || repeat(U&'\20AC', 84) AS whole FROM px_stat;
RESET client_min_messages;

-- The detail is shown as well, and truncated in the same way.
CREATE OR REPLACE FUNCTION px_raise_long() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE 'not this' USING DETAIL = CASE OLD.id WHEN 'a' THEN 'It is needed.' ELSE repeat(U&'\20AC', 200) END;
END $$;
SET ttl_docs.clock_offset = 0;
TRUNCATE px;
INSERT INTO px VALUES ('a', '{"ttl": 100}');
SET ttl_docs.clock_offset = 300;
CALL ttl_docs.purge('px');
SELECT last_error FROM px_stat;
SET ttl_docs.clock_offset = 0;
TRUNCATE px;
INSERT INTO px VALUES ('long', '{"ttl": 100}');
SET ttl_docs.clock_offset = 300;
SET client_min_messages = error;
CALL ttl_docs.purge('px');
SELECT last_error = E'not this\nDETAIL:  ' || repeat(U&'\20AC', 85) AS whole FROM px_stat;
RESET client_min_messages;

RESET ttl_docs.clock_offset;
DROP VIEW px_stat;
DROP TABLE px, px_other;
DROP PROCEDURE px_fill(int);
DROP FUNCTION px_left(), px_raise(), px_busy(), px_keep(), px_raise_statement(), px_raise_always(), px_raise_long();
