-- For triggers, a purge is a DELETE.  It fires row and statement triggers, BEFORE and
-- AFTER, with WHEN conditions and transition tables, in the order of their names.
-- ttl_docs.purging() tells a purge from a user's delete.
\set SHOW_CONTEXT never
CREATE TABLE pgt_log (n int GENERATED ALWAYS AS IDENTITY, line text);
CREATE FUNCTION pgt_note() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO public.pgt_log (line) VALUES (format('%s %s %s %s%s: %s', TG_NAME, TG_WHEN, TG_OP, TG_LEVEL,
        CASE WHEN ttl_docs.purging() THEN ', purging' ELSE '' END,
        CASE WHEN TG_LEVEL = 'ROW' THEN to_jsonb(OLD) - '{_ts,_ttl,_slot}'::text[] END));
    RETURN OLD;
END $$;
CREATE FUNCTION pgt_count() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO public.pgt_log (line) SELECT format('%s %s%s: %s', TG_NAME, TG_LEVEL,
        CASE WHEN ttl_docs.purging() THEN ', purging' ELSE '' END, string_agg(id, ', ' ORDER BY id)) FROM gone;
    RETURN NULL;
END $$;
SELECT ttl_docs.create_collection('pgt_c', 1000);
CREATE TRIGGER z_before_row BEFORE DELETE ON pgt_c FOR EACH ROW EXECUTE FUNCTION pgt_note();
CREATE TRIGGER a_before_row BEFORE DELETE ON pgt_c FOR EACH ROW EXECUTE FUNCTION pgt_note();
CREATE TRIGGER z_after_row AFTER DELETE ON pgt_c FOR EACH ROW EXECUTE FUNCTION pgt_note();
CREATE TRIGGER a_after_row AFTER DELETE ON pgt_c FOR EACH ROW EXECUTE FUNCTION pgt_note();
CREATE TRIGGER b_when BEFORE DELETE ON pgt_c FOR EACH ROW WHEN (OLD.doc ? 'told') EXECUTE FUNCTION pgt_note();
CREATE TRIGGER b_when_after AFTER DELETE ON pgt_c FOR EACH ROW WHEN (OLD.doc ? 'told') EXECUTE FUNCTION pgt_note();
CREATE TRIGGER off AFTER DELETE ON pgt_c FOR EACH ROW EXECUTE FUNCTION pgt_note();
ALTER TABLE pgt_c DISABLE TRIGGER off;
CREATE TRIGGER on_update AFTER UPDATE OR INSERT ON pgt_c FOR EACH STATEMENT EXECUTE FUNCTION pgt_note();
CREATE TRIGGER on_truncate BEFORE TRUNCATE ON pgt_c FOR EACH STATEMENT EXECUTE FUNCTION pgt_note();
CREATE CONSTRAINT TRIGGER deferred AFTER DELETE ON pgt_c DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION pgt_note();

-- Row triggers: the purge processes one document after the other.
INSERT INTO pgt_c VALUES ('live', '{}'), ('a', '{"ttl": 100}'), ('b', '{"ttl": 200, "told": true}');
TRUNCATE pgt_log;
SET ttl_docs.clock_offset = 400;
CALL ttl_docs.purge('pgt_c');
SELECT line FROM pgt_log ORDER BY n;
-- A user's delete of the same document
RESET ttl_docs.clock_offset;
INSERT INTO pgt_c VALUES ('a', '{"ttl": 100}');
TRUNCATE pgt_log;
DELETE FROM pgt_c WHERE id = 'a';
SELECT line FROM pgt_log ORDER BY n;
-- In a transaction block, deferred triggers fire at once.  At COMMIT, purging() would
-- be false.
INSERT INTO pgt_c VALUES ('a', '{"ttl": 100}');
TRUNCATE pgt_log;
SET ttl_docs.clock_offset = 400;
BEGIN;
CALL ttl_docs.purge('pgt_c');
SELECT line FROM pgt_log WHERE line LIKE 'deferred%';
SELECT ttl_docs.purging();
DELETE FROM pgt_log;
COMMIT;
SELECT line FROM pgt_log ORDER BY n;

-- Statement triggers, once for each batch, and transition tables
CREATE TRIGGER a_before_statement BEFORE DELETE ON pgt_c FOR EACH STATEMENT EXECUTE FUNCTION pgt_note();
CREATE TRIGGER z_after_statement AFTER DELETE ON pgt_c FOR EACH STATEMENT EXECUTE FUNCTION pgt_note();
CREATE TRIGGER count_statement AFTER DELETE ON pgt_c REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION pgt_count();
CREATE TRIGGER count_row AFTER DELETE ON pgt_c REFERENCING OLD TABLE AS gone FOR EACH ROW EXECUTE FUNCTION pgt_count();
DROP TRIGGER z_before_row ON pgt_c;
DROP TRIGGER z_after_row ON pgt_c;
RESET ttl_docs.clock_offset;
INSERT INTO pgt_c VALUES ('a', '{"ttl": 100}'), ('b', '{"ttl": 200}'), ('c', '{"ttl": 500}');
TRUNCATE pgt_log;
SET ttl_docs.clock_offset = 400;
CALL ttl_docs.purge('pgt_c');
SELECT line FROM pgt_log ORDER BY n;
-- If there is nothing to purge, no statement trigger fires.
TRUNCATE pgt_log;
CALL ttl_docs.purge('pgt_c');
SELECT line FROM pgt_log ORDER BY n;
-- Only a transition table
DO $$
DECLARE
    name text;
BEGIN
    FOR name IN SELECT tgname FROM pg_trigger WHERE tgrelid = 'pgt_c'::regclass AND tgname NOT IN ('count_statement')
                AND tgname NOT LIKE '%ttl_docs%' AND NOT tgisinternal LOOP
        EXECUTE format('DROP TRIGGER %I ON pgt_c', name);
    END LOOP;
END $$;
SET ttl_docs.clock_offset = 700;
CALL ttl_docs.purge('pgt_c');
SELECT line FROM pgt_log ORDER BY n;
DROP TRIGGER count_statement ON pgt_c;

-- Replication: origin triggers do not fire, replica triggers do.
RESET ttl_docs.clock_offset;
INSERT INTO pgt_c VALUES ('a', '{"ttl": 100}');
CREATE TRIGGER origin AFTER DELETE ON pgt_c FOR EACH ROW EXECUTE FUNCTION pgt_note();
CREATE TRIGGER origin_before BEFORE DELETE ON pgt_c FOR EACH ROW EXECUTE FUNCTION pgt_note();
CREATE TRIGGER always AFTER DELETE ON pgt_c FOR EACH ROW EXECUTE FUNCTION pgt_note();
ALTER TABLE pgt_c ENABLE ALWAYS TRIGGER always;
TRUNCATE pgt_log;
SET ttl_docs.clock_offset = 400;
SET session_replication_role = replica;
CALL ttl_docs.purge('pgt_c');
RESET session_replication_role;
SELECT line FROM pgt_log ORDER BY n;
RESET ttl_docs.clock_offset;
DROP TABLE pgt_c;

-- Writes by triggers
SELECT ttl_docs.create_collection('pgt_c', 1000);
SELECT ttl_docs.create_collection('pgt_archive', -1);
CREATE FUNCTION pgt_act() RETURNS trigger LANGUAGE plpgsql SET search_path = public AS $$
BEGIN
    CASE OLD.doc ->> 'do'
        -- To documents in the same batch, and to itself: these have expired
        WHEN 'delete dead' THEN DELETE FROM pgt_c WHERE id IN ('dead', OLD.id);
        WHEN 'update dead' THEN UPDATE pgt_c SET doc = '{}' WHERE id IN ('dead', OLD.id);
        -- Frees the key of a document that is in the same batch
        WHEN 'take key' THEN INSERT INTO pgt_c VALUES ('dead', '{"new": true}');
        -- To live documents
        WHEN 'delete live' THEN DELETE FROM pgt_c WHERE id = 'live';
        WHEN 'update live' THEN UPDATE pgt_c SET doc = doc || '{"updated": true}' WHERE id = 'live';
        -- Writes the document again
        WHEN 'archive' THEN INSERT INTO pgt_archive VALUES (OLD.id, OLD.doc);
        WHEN 'come back' THEN INSERT INTO pgt_c VALUES (OLD.id, '{"new": true}');
        -- A purge inside the purge
        WHEN 'purge' THEN CALL ttl_docs.purge('pgt_c');
        ELSE NULL;
    END CASE;
    INSERT INTO pgt_log (line) VALUES (OLD.doc ->> 'do' || ', purging ' || ttl_docs.purging());
    RETURN OLD;
END $$;
CREATE FUNCTION pgt_try(what text, out on_disk text, out archived text, out log text) LANGUAGE plpgsql SET client_min_messages = warning AS $$
BEGIN
    TRUNCATE pgt_c, pgt_archive, pgt_log;
    PERFORM set_config('ttl_docs.clock_offset', '0', true);
    INSERT INTO pgt_c VALUES ('a', jsonb_build_object('ttl', 100, 'do', what)), ('dead', '{"ttl": 200}'), ('live', '{"ttl": 900}');
    PERFORM set_config('ttl_docs.clock_offset', '400', true);
    CALL ttl_docs.purge('pgt_c');
    PERFORM set_config('ttl_docs.show_expired', 'on', true);
    SELECT string_agg(id || ' ' || (doc - 'ttl' - 'do')::text, ', ' ORDER BY id) INTO on_disk FROM pgt_c;
    SELECT string_agg(id, ', ' ORDER BY id) INTO archived FROM pgt_archive;
    SELECT string_agg(line, '; ' ORDER BY n) INTO log FROM pgt_log;
    PERFORM set_config('ttl_docs.show_expired', 'off', true);
END $$;
CREATE TRIGGER act AFTER DELETE ON pgt_c FOR EACH ROW EXECUTE FUNCTION pgt_act();
SELECT what, t.* FROM unnest('{nothing,delete dead,update dead,take key,delete live,update live,archive,come back,purge}'::text[]) AS what, pgt_try(what) AS t;
DROP TRIGGER act ON pgt_c;
CREATE TRIGGER act BEFORE DELETE ON pgt_c FOR EACH ROW EXECUTE FUNCTION pgt_act();
SELECT what, t.* FROM unnest('{nothing,delete dead,update dead,take key,delete live,update live,archive}'::text[]) AS what, pgt_try(what) AS t;
SELECT collection, undeletable, last_error FROM ttl_docs.stat_collections WHERE collection::text LIKE 'pgt\_%' ORDER BY collection::text;
DROP TABLE pgt_c, pgt_archive;
DROP FUNCTION pgt_try(text), pgt_act();

-- After an error, purging() is false, whoever catches the error.
SELECT ttl_docs.create_collection('pgt_c', 1000);
CREATE FUNCTION pgt_raise() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no, purging %', ttl_docs.purging(); END $$;
CREATE TRIGGER raise AFTER DELETE ON pgt_c FOR EACH ROW EXECUTE FUNCTION pgt_raise();
INSERT INTO pgt_c VALUES ('a', '{"ttl": 100}');
SET ttl_docs.clock_offset = 400;
CALL ttl_docs.purge('pgt_c');
SELECT ttl_docs.purging();
BEGIN;
CALL ttl_docs.purge('pgt_c');
SELECT ttl_docs.purging();
COMMIT;
-- A user's delete follows.
RESET ttl_docs.clock_offset;
INSERT INTO pgt_c VALUES ('b', '{}');
DELETE FROM pgt_c WHERE id = 'b';
DROP TABLE pgt_c;
DROP FUNCTION pgt_raise();

-- FORCE ROW LEVEL SECURITY hides no documents from the purge, but does hide them from
-- triggers.
CREATE ROLE regress_ttl_purge_rls;
CREATE FUNCTION pgt_see() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO public.pgt_log (line) SELECT format('%s sees %s', current_user, count(*)) FROM public.pgt_c;
    RETURN OLD;
END $$;
SELECT ttl_docs.create_collection('pgt_c', 1000);
INSERT INTO pgt_c VALUES ('a', '{"ttl": 100}'), ('b', '{"ttl": 100}'), ('live', '{}');
CREATE TRIGGER see AFTER DELETE ON pgt_c FOR EACH ROW EXECUTE FUNCTION pgt_see();
ALTER TABLE pgt_c OWNER TO regress_ttl_purge_rls;
ALTER TABLE pgt_c ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
CREATE POLICY p ON pgt_c USING (id = 'b');
GRANT INSERT ON pgt_log TO regress_ttl_purge_rls;
TRUNCATE pgt_log;
SET ttl_docs.clock_offset = 400;
SET ROLE regress_ttl_purge_rls;
SELECT count(*) FROM pgt_c;
CALL ttl_docs.purge('pgt_c');
RESET ROLE;
SELECT line FROM pgt_log ORDER BY n;
SET ttl_docs.show_expired = on;
SELECT id FROM pgt_c;
RESET ttl_docs.show_expired;
RESET ttl_docs.clock_offset;
DROP TABLE pgt_c, pgt_log;
DROP FUNCTION pgt_note(), pgt_count(), pgt_see();
DROP ROLE regress_ttl_purge_rls;
