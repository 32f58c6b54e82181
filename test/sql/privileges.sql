-- Privileges.  The owner of the table, a member of the owner's role, and a superuser
-- may change a collection.  Hiding expired documents, setting system columns and
-- freeing keys need no privileges of the reader or writer.  Triggers of a freed
-- document run as the writer, so nobody can use them to act as the owner.  Only users
-- with the right to see expired documents see them.
\set SHOW_CONTEXT never
CREATE ROLE regress_ttl_owner;
CREATE ROLE regress_ttl_member IN ROLE regress_ttl_owner;
CREATE ROLE regress_ttl_other;
CREATE SCHEMA s AUTHORIZATION regress_ttl_owner;
GRANT USAGE ON SCHEMA s TO regress_ttl_other;

--
-- The functions
--
SET ROLE regress_ttl_owner;
SELECT ttl_docs.create_collection('s.c', 1000);
CREATE TABLE s.plain (id int, doc jsonb);
RESET ROLE;
GRANT ALL ON s.c, s.plain TO regress_ttl_other;
SET ROLE regress_ttl_other;
\set VERBOSITY sqlstate
SELECT ttl_docs.create_collection('s.refused');
\set VERBOSITY default
\echo :SQLSTATE
SELECT ttl_docs.adopt('s.plain');
\echo :SQLSTATE
SELECT ttl_docs.adopt('s.c');
\echo :SQLSTATE
SELECT ttl_docs.release('s.c');
\echo :SQLSTATE
SELECT ttl_docs.drop_collection('s.c');
\echo :SQLSTATE
SELECT ttl_docs.set_default_ttl('s.c', 5);
\echo :SQLSTATE
SELECT ttl_docs.set_default_ttl('s.c', NULL);
\echo :SQLSTATE
SELECT ttl_docs.set_indexing('s.c', 'lazy');
\echo :SQLSTATE
SELECT ttl_docs.adopt('pg_class');
\echo :SQLSTATE
SECURITY LABEL FOR ttl_docs ON TABLE s.c IS NULL;
\echo :SQLSTATE
ALTER TABLE s.c DISABLE TRIGGER ALL;
\echo :SQLSTATE
DROP INDEX s.c__slot_idx;
\echo :SQLSTATE
-- A user without the privilege cannot block others: the calls took no locks.
BEGIN;
SAVEPOINT s;
SELECT ttl_docs.set_default_ttl('s.c', 5);
ROLLBACK TO s;
SELECT ttl_docs.adopt('s.plain');
ROLLBACK TO s;
SELECT count(*) FROM pg_locks WHERE relation IN ('s.c'::regclass, 's.plain'::regclass)
   AND mode IN ('AccessExclusiveLock', 'ShareRowExclusiveLock');
COMMIT;
-- Every user can read the settings.
SELECT ttl_docs.get_default_ttl('s.c');
SELECT * FROM ttl_docs.collections;
-- Only a superuser can shift the clock or show expired documents.
SET ttl_docs.clock_offset = 5;
\echo :SQLSTATE
SET ttl_docs.show_expired = on;
\echo :SQLSTATE
RESET ROLE;
REVOKE ALL ON s.c, s.plain FROM regress_ttl_other;
SET ROLE regress_ttl_other;
SELECT live FROM ttl_docs.preview('s.c', 5);
\echo :SQLSTATE
SELECT ttl_docs.set_default_ttl('s.c', 5);
\echo :SQLSTATE
RESET ROLE;
-- A member of the owner's role may change the collection.
SET ROLE regress_ttl_member;
SELECT ttl_docs.set_default_ttl('s.c', 2000);
SELECT ttl_docs.set_indexing('s.c', 'lazy');
SELECT live FROM ttl_docs.preview('s.c', 5);
SELECT ttl_docs.adopt('s.plain', 1000, indexing => 'lazy');
SELECT collection, default_ttl, indexing FROM ttl_docs.collections ORDER BY collection::text;
SELECT ttl_docs.release('s.plain');
SELECT ttl_docs.set_indexing('s.c', 'consistent');
RESET ROLE;
-- So may a superuser.
SELECT ttl_docs.set_default_ttl('s.c', 1000);
SELECT ttl_docs.adopt('s.plain');
SELECT ttl_docs.drop_collection('s.plain');
SELECT relname, pg_get_userbyid(relowner) FROM pg_class WHERE relnamespace = 's'::regnamespace AND relkind IN ('r', 'i') ORDER BY relname;
-- The owner of the table owns an index that a superuser creates.
SELECT ttl_docs.set_indexing('s.c', 'lazy');
SELECT ttl_docs.set_indexing('s.c', 'consistent');
SELECT pg_get_userbyid(relowner) FROM pg_class WHERE relname = 'c__slot_idx';

--
-- Reading and writing with few privileges
--
INSERT INTO s.c VALUES ('dead', '{"ttl": 100}'), ('live', '{}');
GRANT SELECT (id), INSERT (id, doc), UPDATE (doc) ON s.c TO regress_ttl_other;
SET ttl_docs.clock_offset = 100;
SET ROLE regress_ttl_other;
SELECT id FROM s.c;
SELECT count(*) FROM s.c;
SELECT _ts IS NULL FROM s.c;
\echo :SQLSTATE
COPY s.c (id) TO stdout;
COPY s.c TO stdout;
INSERT INTO s.c (id, doc) VALUES ('mine', '{"ttl": 200}');
INSERT INTO s.c VALUES ('mine', '{}', now());
\echo :SQLSTATE
UPDATE s.c SET doc = '{"ttl": 300}' WHERE id = 'mine';
UPDATE s.c SET _ts = now() WHERE id = 'mine';
\echo :SQLSTATE
DELETE FROM s.c;
\echo :SQLSTATE
-- row_security = off shows expired documents only to the owner.
SET row_security = off;
SELECT id FROM s.c ORDER BY id;
SELECT count(*) FROM s.c;
RESET ROLE;
SET ROLE regress_ttl_member;
SELECT id FROM s.c ORDER BY id;
SET ROLE regress_ttl_owner;
COPY s.c (id) TO stdout;
SELECT id FROM s.c ORDER BY id FOR UPDATE;
UPDATE s.c SET doc = doc WHERE id = 'dead';
DELETE FROM s.c WHERE id = 'dead';
RESET ROLE;
-- A SECURITY DEFINER function does not show them to its caller.
CREATE FUNCTION s.lend() RETURNS SETOF text LANGUAGE sql SECURITY DEFINER AS $$ SELECT id FROM s.c ORDER BY id $$;
ALTER FUNCTION s.lend() OWNER TO regress_ttl_owner;
SET ROLE regress_ttl_other;
SELECT s.lend();
RESET ROLE;
RESET row_security;
DROP FUNCTION s.lend();
SELECT id, _ttl FROM s.c ORDER BY id;

--
-- A user with only the INSERT privilege frees a key
--
-- Triggers run as the writer, as for a DELETE, and need the same privileges.
CREATE TABLE s.log (line text);
ALTER TABLE s.log OWNER TO regress_ttl_owner;
CREATE FUNCTION s.note() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO s.log VALUES (format('%s %s as %s for %s, path %s', TG_WHEN, TG_OP, current_user, OLD.id, current_setting('search_path')));
    RETURN OLD;
END $$;
ALTER FUNCTION s.note() OWNER TO regress_ttl_owner;
CREATE TRIGGER note_before BEFORE DELETE ON s.c FOR EACH ROW EXECUTE FUNCTION s.note();
CREATE TRIGGER note_after AFTER DELETE ON s.c FOR EACH ROW EXECUTE FUNCTION s.note();
SET ROLE regress_ttl_other;
SET search_path = public;
INSERT INTO s.c (id, doc) VALUES ('dead', '{"new": true}');
\echo :SQLSTATE
RESET ROLE;
GRANT INSERT ON s.log TO regress_ttl_other;
SET ROLE regress_ttl_other;
INSERT INTO s.c (id, doc) VALUES ('dead', '{"new": true, "ttl": 100}');
SELECT current_user, current_setting('search_path'), ttl_docs.purging();
RESET search_path;
RESET ROLE;
SELECT line FROM s.log;
-- A SECURITY DEFINER trigger function can write with the privileges of its owner.
REVOKE INSERT ON s.log FROM regress_ttl_other;
ALTER FUNCTION s.note() SECURITY DEFINER;
TRUNCATE s.log;
SET ttl_docs.clock_offset = 200;
SET ROLE regress_ttl_other;
INSERT INTO s.c (id, doc) VALUES ('dead', '{"newer": true, "ttl": 100}');
RESET ROLE;
SELECT line FROM s.log;
DROP TRIGGER note_before ON s.c;
DROP TRIGGER note_after ON s.c;

-- A user with only the TRIGGER and REFERENCES privileges cannot act as the owner of the
-- table: not by a trigger function, a WHEN condition, a domain in the condition, or a
-- table that references the document.
CREATE ROLE regress_ttl_attacker;
GRANT USAGE ON SCHEMA s TO regress_ttl_attacker;
GRANT TRIGGER, REFERENCES ON s.c TO regress_ttl_attacker;
GRANT CREATE ON SCHEMA public TO regress_ttl_attacker;
SET ROLE regress_ttl_attacker;
CREATE FUNCTION public.attack() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE NOTICE '% runs as %', TG_NAME, CASE current_user WHEN 'regress_ttl_owner' THEN 'the owner' ELSE 'somebody else' END;
    RETURN OLD;
END $$;
CREATE FUNCTION public.attack_when(text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    RAISE NOTICE 'WHEN runs as %', CASE current_user WHEN 'regress_ttl_owner' THEN 'the owner' ELSE 'somebody else' END;
    RETURN false;
END $$;
CREATE DOMAIN public.attack_domain AS text CHECK (public.attack_when(VALUE) IS NOT NULL);
CREATE TABLE public.attack_child (id text REFERENCES s.c ON DELETE CASCADE);
CREATE TRIGGER attack_a BEFORE DELETE ON s.c FOR EACH ROW EXECUTE FUNCTION public.attack();
CREATE TRIGGER attack_b AFTER DELETE ON s.c FOR EACH ROW EXECUTE FUNCTION public.attack();
CREATE TRIGGER attack_c AFTER DELETE ON s.c FOR EACH ROW WHEN (public.attack_when(OLD.id))
    EXECUTE FUNCTION suppress_redundant_updates_trigger();
CREATE TRIGGER attack_d AFTER DELETE ON s.c FOR EACH ROW WHEN (OLD.id::public.attack_domain IS NULL)
    EXECUTE FUNCTION suppress_redundant_updates_trigger();
CREATE CONSTRAINT TRIGGER attack_e AFTER DELETE ON s.c DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION public.attack();
CREATE TRIGGER attack_child AFTER DELETE ON public.attack_child FOR EACH ROW EXECUTE FUNCTION public.attack();
RESET ROLE;
INSERT INTO public.attack_child VALUES ('dead');
SET ttl_docs.clock_offset = 300;
SET ROLE regress_ttl_other;
INSERT INTO s.c (id, doc) VALUES ('dead', '{"newest": true}');
RESET ROLE;
SELECT id, doc FROM s.c WHERE id = 'dead';
DROP TRIGGER attack_a ON s.c;
DROP TRIGGER attack_b ON s.c;
DROP TRIGGER attack_c ON s.c;
DROP TRIGGER attack_d ON s.c;
DROP TRIGGER attack_e ON s.c;
DROP TABLE public.attack_child;
DROP DOMAIN public.attack_domain;
DROP FUNCTION public.attack(), public.attack_when(text);

--
-- Row-level security
--
ALTER TABLE s.c ENABLE ROW LEVEL SECURITY;
CREATE POLICY p ON s.c FOR ALL TO regress_ttl_other USING (doc ? 'mine') WITH CHECK (doc ? 'mine');
RESET ttl_docs.clock_offset;
TRUNCATE s.c;
INSERT INTO s.c VALUES ('dead, mine', '{"mine": 1, "ttl": 100}'), ('dead, not mine', '{"ttl": 100}'),
    ('live, mine', '{"mine": 1}'), ('live, not mine', '{}');
GRANT ALL ON s.c TO regress_ttl_other;
SET ttl_docs.clock_offset = 100;
SET ROLE regress_ttl_other;
SELECT id FROM s.c ORDER BY id;
UPDATE s.c SET doc = doc RETURNING id;
INSERT INTO s.c VALUES ('dead, mine', '{"mine": 2}');
-- Policies do not protect the key of an expired document.
INSERT INTO s.c VALUES ('dead, not mine', '{"mine": 2}');
INSERT INTO s.c VALUES ('live, not mine', '{"mine": 2}');
\echo :SQLSTATE
INSERT INTO s.c VALUES ('x', '{}');
\echo :SQLSTATE
SET row_security = off;
SELECT id FROM s.c ORDER BY id;
\echo :SQLSTATE
RESET row_security;
RESET ROLE;
SELECT id, doc FROM s.c ORDER BY id;
-- FORCE ROW LEVEL SECURITY hides no documents from the functions that the owner calls.
ALTER TABLE s.c FORCE ROW LEVEL SECURITY;
SELECT ttl_docs.set_default_ttl('s.c', NULL);
INSERT INTO s.c VALUES ('bad', '{"ttl": 0}');
SET ROLE regress_ttl_owner;
SELECT count(*) FROM s.c;
SELECT ttl_docs.set_default_ttl('s.c', 1000);
\echo :SQLSTATE
RESET ROLE;
DELETE FROM s.c WHERE id = 'bad';
CREATE TABLE s.forced (id int, doc jsonb, _ttl int);
INSERT INTO s.forced VALUES (1, '{"ttl": 100}', 7), (2, '{"ttl": "x"}', 8);
ALTER TABLE s.forced OWNER TO regress_ttl_owner;
ALTER TABLE s.forced ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
SET ROLE regress_ttl_owner;
SELECT ttl_docs.adopt('s.forced', 1000);
\echo :SQLSTATE
RESET ROLE;
DELETE FROM s.forced WHERE id = 2;
SET ROLE regress_ttl_owner;
SELECT ttl_docs.adopt('s.forced', 1000);
RESET ROLE;
SELECT id, _ttl FROM s.forced;
SET ttl_docs.clock_offset = 300;
SET ROLE regress_ttl_owner;
SELECT ttl_docs.release('s.forced');
RESET ROLE;
SELECT count(*) FROM s.forced;
RESET ttl_docs.clock_offset;

\set VERBOSITY terse
SET client_min_messages = warning;
DROP SCHEMA s CASCADE;
RESET client_min_messages;
REVOKE CREATE ON SCHEMA public FROM regress_ttl_attacker;
DROP ROLE regress_ttl_attacker, regress_ttl_member, regress_ttl_owner, regress_ttl_other;
