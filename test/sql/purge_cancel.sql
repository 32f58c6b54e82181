-- Some errors end CALL purge().  They leave the session in the same state as any other
-- error, even if the caller catches them.
\set SHOW_CONTEXT never
\set VERBOSITY terse
SELECT ttl_docs.create_collection('cancel_c', 1000);
CREATE FUNCTION cancel_act() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.doc->>'act' = 'cancel' THEN
        PERFORM pg_cancel_backend(pg_backend_pid());
        PERFORM pg_sleep(60);
    ELSIF OLD.doc ? 'act' THEN
        RAISE EXCEPTION 'as it is' USING ERRCODE = OLD.doc->>'act';
    END IF;
    RETURN OLD;
END $$;
CREATE TRIGGER act BEFORE DELETE ON cancel_c FOR EACH ROW EXECUTE FUNCTION cancel_act();
INSERT INTO cancel_c VALUES ('a', '{"ttl": 100}'), ('b', '{"ttl": 100, "act": "cancel"}'), ('c', '{"ttl": 100}');
SET ttl_docs.clock_offset = 200;
CALL ttl_docs.purge('cancel_c');
SELECT 'alive' AS session, ttl_docs.purging();
BEGIN;
CALL ttl_docs.purge('cancel_c');
ROLLBACK;
DO $$
BEGIN
    BEGIN
        CALL ttl_docs.purge('cancel_c');
    EXCEPTION WHEN query_canceled THEN
        RAISE NOTICE 'caught, purging: %', ttl_docs.purging();
    END;
END $$;
SELECT 'alive' AS session, ttl_docs.purging();
RESET ttl_docs.clock_offset;
UPDATE cancel_c SET doc = '{"ttl": 100, "act": "53100"}' WHERE id = 'b';
SET ttl_docs.clock_offset = 200;
CALL ttl_docs.purge('cancel_c');
DO $$
BEGIN
    CALL ttl_docs.purge('cancel_c');
EXCEPTION WHEN OTHERS THEN
    RAISE NOTICE 'caught %', SQLSTATE;
END $$;
-- A trigger that only raises an error with this code does not end the purge.
RESET ttl_docs.clock_offset;
UPDATE cancel_c SET doc = '{"ttl": 100, "act": "57014"}' WHERE id = 'b';
SET ttl_docs.clock_offset = 200;
BEGIN;
CALL ttl_docs.purge('cancel_c');
ROLLBACK;
SET ttl_docs.show_expired = on;
SELECT id FROM cancel_c ORDER BY id;
RESET ttl_docs.show_expired;
-- If a trigger catches the cancel and raises its own error with that code, the purge
-- still ends as cancelled.  The same applies to a timeout.
CREATE FUNCTION cancel_reworded() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.id = 'b' AND OLD.doc->>'act' = 'self' THEN
        PERFORM pg_cancel_backend(pg_backend_pid());
    END IF;
    IF OLD.id = 'b' THEN
        PERFORM pg_sleep(60);
    END IF;
    RETURN OLD;
EXCEPTION WHEN query_canceled THEN
    RAISE EXCEPTION 'in my words' USING ERRCODE = 'query_canceled';
END $$;
DROP TRIGGER act ON cancel_c;
CREATE TRIGGER act BEFORE DELETE ON cancel_c FOR EACH ROW EXECUTE FUNCTION cancel_reworded();
RESET ttl_docs.clock_offset;
UPDATE cancel_c SET doc = '{"ttl": 100, "act": "self"}' WHERE id = 'b';
SET ttl_docs.clock_offset = 200;
CALL ttl_docs.purge('cancel_c');
RESET ttl_docs.clock_offset;
UPDATE cancel_c SET doc = '{"ttl": 100, "act": "none"}' WHERE id = 'b';
SET ttl_docs.clock_offset = 200;
SET statement_timeout = '300ms';
\set VERBOSITY sqlstate
CALL ttl_docs.purge('cancel_c');
\set VERBOSITY terse
RESET statement_timeout;
-- Afterwards, PostgreSQL handles a cancel as usual.
DO $$
BEGIN
    PERFORM pg_cancel_backend(pg_backend_pid());
    PERFORM pg_sleep(60);
EXCEPTION WHEN query_canceled THEN
    RAISE NOTICE 'cancelled';
END $$;
DROP TRIGGER act ON cancel_c;
CREATE TRIGGER act BEFORE DELETE ON cancel_c FOR EACH ROW EXECUTE FUNCTION cancel_act();
DROP FUNCTION cancel_reworded;
-- A purge inside a purge
CREATE OR REPLACE FUNCTION cancel_act() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN CALL ttl_docs.purge(); RETURN OLD; END $$;
CALL ttl_docs.purge('cancel_c');
DROP TRIGGER act ON cancel_c;

RESET ttl_docs.clock_offset;
DROP TABLE cancel_c;
DROP FUNCTION cancel_act;
