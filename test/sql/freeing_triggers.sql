-- Freeing a key deletes the expired document like any other row.  Its BEFORE and AFTER
-- DELETE row triggers fire in that order, before the new document is inserted.
-- ttl_docs.purging() tells them that no user deleted the document.  A trigger can
-- prevent the delete, raise an error, or insert another row with the same key.
\set SHOW_CONTEXT never

CREATE TABLE log (n int GENERATED ALWAYS AS IDENTITY, line text);
CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    r record := coalesce(NEW, OLD);
BEGIN
    INSERT INTO log (line) VALUES (format('%s %s %s of %s%s: %s', TG_WHEN, TG_OP, TG_LEVEL, TG_TABLE_NAME,
        CASE WHEN ttl_docs.purging() THEN ', purging' ELSE '' END,
        CASE WHEN TG_LEVEL = 'ROW' THEN to_jsonb(r) - '{_ts,_ttl,_slot}'::text[] END));
    RETURN r;
END $$;

SELECT ttl_docs.create_collection('c', 1000);
CREATE TABLE child (id int, c text REFERENCES c ON DELETE CASCADE);
CREATE TRIGGER note_before BEFORE INSERT OR UPDATE OR DELETE ON c FOR EACH ROW EXECUTE FUNCTION note();
CREATE TRIGGER note_after AFTER INSERT OR UPDATE OR DELETE ON c FOR EACH ROW EXECUTE FUNCTION note();
CREATE TRIGGER note_statement AFTER INSERT OR UPDATE OR DELETE ON c FOR EACH STATEMENT EXECUTE FUNCTION note();
CREATE TRIGGER note_child AFTER DELETE ON child FOR EACH ROW EXECUTE FUNCTION note();

-- A user's delete
INSERT INTO c VALUES ('a', '{"v": 1}');
INSERT INTO child VALUES (1, 'a');
DELETE FROM c;
SELECT line FROM log ORDER BY n;
SELECT ttl_docs.purging();
-- A freed key
TRUNCATE log;
INSERT INTO c VALUES ('a', '{"v": 1, "ttl": 100}');
INSERT INTO child VALUES (1, 'a');
SET ttl_docs.clock_offset = 100;
INSERT INTO c VALUES ('a', '{"v": 2}');
SELECT line FROM log ORDER BY n;
SELECT ttl_docs.purging();
-- A key freed by an UPDATE
TRUNCATE log;
INSERT INTO c VALUES ('b', '{"v": 1, "ttl": 100}');
SET ttl_docs.clock_offset = 200;
UPDATE c SET id = 'b' WHERE id = 'a';
SELECT line FROM log ORDER BY n;
-- An expired document that conflicts with no key stays.
TRUNCATE log;
INSERT INTO c VALUES ('x', '{"v": 1, "ttl": 100}');
SET ttl_docs.clock_offset = 300;
TRUNCATE log;
INSERT INTO c VALUES ('y', '{"v": 2}');
SELECT line FROM log ORDER BY n;
SET ttl_docs.clock_offset = 0;
DROP TABLE child;
DROP TABLE c;

-- A trigger with a WHEN condition, a disabled trigger, and a constraint trigger; the
-- log shows the row that an AFTER trigger sees.
SELECT ttl_docs.create_collection('c', 1000);
CREATE TRIGGER note_when AFTER DELETE ON c FOR EACH ROW WHEN (OLD.doc ? 'told') EXECUTE FUNCTION note();
CREATE TRIGGER note_off AFTER DELETE ON c FOR EACH ROW EXECUTE FUNCTION note();
ALTER TABLE c DISABLE TRIGGER note_off;
CREATE CONSTRAINT TRIGGER note_deferred AFTER DELETE ON c DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW WHEN (OLD.doc ? 'later') EXECUTE FUNCTION note();
TRUNCATE log;
INSERT INTO c VALUES ('a', '{"ttl": 100}'), ('b', '{"ttl": 100, "told": true}'), ('c', '{"ttl": 100, "later": true}');
SET ttl_docs.clock_offset = 100;
BEGIN;
INSERT INTO c SELECT id, '{"new": true}' FROM unnest('{a,b,c}'::text[]) AS id;
SELECT line FROM log ORDER BY n;
COMMIT;
SELECT regexp_replace(line, ', purging', '') AS line FROM log ORDER BY n;
SET ttl_docs.clock_offset = 0;
DROP TABLE c;

-- A transition table contains the rows of the user's statement, not the documents whose
-- keys were freed.
SELECT ttl_docs.create_collection('c', 1000);
CREATE FUNCTION counts() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO log (line) SELECT format('%s: %s rows', TG_OP, count(*)) FROM t;
    RETURN NULL;
END $$;
CREATE TRIGGER counts_i AFTER INSERT ON c REFERENCING NEW TABLE AS t FOR EACH STATEMENT EXECUTE FUNCTION counts();
CREATE TRIGGER counts_d AFTER DELETE ON c REFERENCING OLD TABLE AS t FOR EACH STATEMENT EXECUTE FUNCTION counts();
TRUNCATE log;
INSERT INTO c VALUES ('a', '{"ttl": 100}'), ('b', '{"ttl": 100}');
SET ttl_docs.clock_offset = 100;
INSERT INTO c VALUES ('a', '{}'), ('b', '{}');
DELETE FROM c;
SELECT line FROM log ORDER BY n;
SET ttl_docs.clock_offset = 0;
DROP TABLE c;
DROP FUNCTION counts();

-- If a trigger prevents the delete, the key stays in use.
SELECT ttl_docs.create_collection('c', 1000);
CREATE FUNCTION veto() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
CREATE TRIGGER veto BEFORE DELETE ON c FOR EACH ROW EXECUTE FUNCTION veto();
INSERT INTO c VALUES ('a', '{"v": 1, "ttl": 100}');
SET ttl_docs.clock_offset = 100;
INSERT INTO c VALUES ('a', '{"v": 2}');
\echo :SQLSTATE
INSERT INTO c VALUES ('a', '{"v": 2}') ON CONFLICT DO NOTHING RETURNING id;
INSERT INTO c VALUES ('a', '{"v": 2}') ON CONFLICT (id) DO UPDATE SET doc = excluded.doc RETURNING id;
\echo :SQLSTATE
MERGE INTO c USING (VALUES ('a')) AS v(id) ON c.id = v.id
    WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (id, doc) VALUES (v.id, '{"v": 2}');
\echo :SQLSTATE
SELECT count(*) FROM c;
-- If a trigger raises an error, the INSERT fails, and purging() is false again.
CREATE OR REPLACE FUNCTION veto() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN RAISE EXCEPTION 'no, purging %', ttl_docs.purging() USING ERRCODE = 'P9999'; END $$;
INSERT INTO c VALUES ('a', '{"v": 2}');
\echo :SQLSTATE
SELECT ttl_docs.purging();
DO $$
BEGIN
    INSERT INTO c VALUES ('a', '{"v": 2}');
EXCEPTION WHEN SQLSTATE 'P9999' THEN
    RAISE NOTICE 'caught: %, now %', sqlerrm, ttl_docs.purging();
END $$;
-- If a trigger deletes the row itself, the key is free.
CREATE OR REPLACE FUNCTION veto() RETURNS trigger LANGUAGE plpgsql SET ttl_docs.clock_offset = 0 AS $$
BEGIN
    IF pg_trigger_depth() = 1 THEN
        DELETE FROM c WHERE id = OLD.id;
    END IF;
    RETURN OLD;
END $$;
BEGIN;
INSERT INTO c VALUES ('a', '{"v": 2}');
SELECT id, doc FROM c;
ROLLBACK;
DROP TRIGGER veto ON c;
-- If a trigger inserts another row with the key, that row has the key.
CREATE FUNCTION take() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO c VALUES (OLD.id, '{"v": "taken"}');
    RETURN OLD;
END $$;
CREATE TRIGGER take AFTER DELETE ON c FOR EACH ROW EXECUTE FUNCTION take();
INSERT INTO c VALUES ('a', '{"v": 2}');
\echo :SQLSTATE
INSERT INTO c VALUES ('a', '{"v": 2}') ON CONFLICT DO NOTHING;
SELECT id, doc FROM c;
SET ttl_docs.clock_offset = 0;
DROP TABLE c;
DROP FUNCTION veto(), take();

-- A trigger of a freed document can write to other collections and to this one, and can
-- free keys there.
CREATE FUNCTION archive() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO archive VALUES (OLD.id, OLD.doc || '{"ttl": 50}') ON CONFLICT (id) DO NOTHING;
    RETURN OLD;
END $$;
SELECT ttl_docs.create_collection('c', 1000);
SELECT ttl_docs.create_collection('archive', 1000);
CREATE TRIGGER archive BEFORE DELETE ON c FOR EACH ROW EXECUTE FUNCTION archive();
CREATE TRIGGER note_archive BEFORE DELETE ON archive FOR EACH ROW EXECUTE FUNCTION note();
TRUNCATE log;
INSERT INTO c VALUES ('a', '{"v": 1, "ttl": 100}');
SET ttl_docs.clock_offset = 100;
INSERT INTO c VALUES ('a', '{"v": 2, "ttl": 100}');
SELECT id, doc, _ttl FROM archive;
SET ttl_docs.clock_offset = 200;
INSERT INTO c VALUES ('a', '{"v": 3, "ttl": 100}');
SELECT id, doc, _ttl FROM archive;
SELECT line FROM log ORDER BY n;
SET ttl_docs.clock_offset = 0;
DROP TABLE c, archive;
DROP FUNCTION archive();

-- Replication: origin triggers do not fire, replica triggers do.
SELECT ttl_docs.create_collection('c', 1000);
CREATE TRIGGER note_origin AFTER DELETE ON c FOR EACH ROW EXECUTE FUNCTION note();
CREATE TRIGGER note_always AFTER DELETE ON c FOR EACH ROW EXECUTE FUNCTION note();
ALTER TABLE c ENABLE ALWAYS TRIGGER note_always;
TRUNCATE log;
INSERT INTO c VALUES ('a', '{"ttl": 100}');
SET ttl_docs.clock_offset = 100;
SET session_replication_role = replica;
INSERT INTO c VALUES ('a', '{"new": true}', now());
RESET session_replication_role;
SELECT line FROM log ORDER BY n;
SET ttl_docs.clock_offset = 0;
DROP TABLE c;

-- A published table without a replica identity: its documents cannot be deleted, so the
-- key stays in use, and the error says so.
SET client_min_messages = error;
CREATE TABLE c (id int UNIQUE, doc jsonb);
SELECT ttl_docs.adopt('c', 1000);
CREATE PUBLICATION regress_ttl_pub FOR TABLE c;
RESET client_min_messages;
INSERT INTO c VALUES (1, '{"ttl": 100}');
SET ttl_docs.clock_offset = 100;
INSERT INTO c VALUES (1, '{"new": true}');
\echo :SQLSTATE
ALTER TABLE c REPLICA IDENTITY FULL;
INSERT INTO c VALUES (1, '{"new": true}');
SELECT id, doc FROM c;
SET ttl_docs.clock_offset = 0;
DROP PUBLICATION regress_ttl_pub;
DROP TABLE c;

DROP TABLE log;
DROP FUNCTION note();
