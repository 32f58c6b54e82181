-- The document functions run with the privileges of their caller.  They need the same
-- privileges as equivalent SQL, on tables, columns, sequences and functions, and
-- policies apply.  No code of another user can run in between.
\set SHOW_CONTEXT never
CREATE ROLE regress_ttl_owner;
CREATE ROLE regress_ttl_user;
CREATE SCHEMA s AUTHORIZATION regress_ttl_owner;
GRANT USAGE ON SCHEMA s TO regress_ttl_user;
SET ROLE regress_ttl_owner;
SELECT ttl_docs.create_collection('s.c', 1000);
SELECT ttl_docs.create_document('s.c', '{"id": "a", "n": 1}') - '_ts' AS a;
RESET ROLE;

-- Lists the functions that the user may call.  The effect of each call is undone.
CREATE FUNCTION may(t regclass) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    verb text;
    call text;
    done boolean;
    result text;
BEGIN
    FOR verb, call IN SELECT * FROM (VALUES
        ('create', format('ttl_docs.create_document(%L, %L) IS NOT NULL', t, '{"id": "new"}')),
        ('create without id', format('ttl_docs.create_document(%L, %L) IS NOT NULL', t, '{}')),
        ('read', format('ttl_docs.read_document(%L, %L) IS NOT NULL', t, 'a')),
        ('replace', format('ttl_docs.replace_document(%L, %L) IS NOT NULL', t, '{"id": "a"}')),
        ('upsert', format('ttl_docs.upsert_document(%L, %L) IS NOT NULL', t, '{"id": "a"}')),
        ('patch', format('ttl_docs.patch_document(%L, %L, %L) IS NOT NULL', t, 'a', '{}')),
        ('delete', format('ttl_docs.delete_document(%L, %L)', t, 'a')),
        ('touch', format('ttl_docs.touch_document(%L, %L)', t, 'a')),
        ('documents', format('count(*) > 0 FROM ttl_docs.documents(%L)', t)),
        ('documents by id', format('count(*) > 0 FROM ttl_docs.documents(%L, %L)', t, '{"id": "a"}'))) AS v
    LOOP
        BEGIN
            EXECUTE 'SELECT ' || call INTO done;
            RAISE EXCEPTION USING ERRCODE = 'UNDO1', MESSAGE = 'undo';
        EXCEPTION
            WHEN SQLSTATE 'UNDO1' THEN
                result := concat_ws(', ', result, verb || CASE WHEN done THEN '' ELSE ' (without effect)' END);
            WHEN insufficient_privilege THEN
                NULL;
        END;
    END LOOP;
    RETURN coalesce(result, 'nothing');
END $$;

--
-- Privileges on the table
--
SET ROLE regress_ttl_owner;
SELECT may('s.c') AS the_owner_may;
SET ROLE regress_ttl_user;
SELECT may('s.c') AS without_rights;
-- The error is the same as in SQL.
SELECT ttl_docs.read_document('s.c', 'a');
\echo :SQLSTATE
SELECT ttl_docs.create_document('s.c', '{}');
\echo :SQLSTATE
SELECT count(*) FROM ttl_docs.documents('s.c');
\echo :SQLSTATE
RESET ROLE;
CREATE FUNCTION with_grant(what text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    result text;
BEGIN
    EXECUTE format('GRANT %s ON s.c TO regress_ttl_user', what);
    SET LOCAL ROLE regress_ttl_user;
    result := may('s.c');
    RESET ROLE;
    EXECUTE format('REVOKE %s ON s.c FROM regress_ttl_user', what);
    RETURN result;
END $$;
SELECT what, with_grant(what) AS may FROM unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE', 'SELECT, INSERT', 'SELECT, UPDATE', 'SELECT, DELETE',
    'SELECT, INSERT, UPDATE', 'SELECT, INSERT, UPDATE, DELETE', 'TRUNCATE, REFERENCES, TRIGGER']) AS what;
-- Privileges on columns: all those that the function reads or writes, also _ts
SELECT what, with_grant(what) AS may FROM unnest(ARRAY['SELECT (id)', 'SELECT (id, doc)', 'SELECT (id, doc, _ts)', 'SELECT (id, doc, _ts), INSERT (id, doc)',
    'SELECT (id, doc, _ts), INSERT (doc)', 'SELECT (id, doc, _ts), UPDATE (doc)', 'SELECT (id, doc, _ts), INSERT (id, doc), UPDATE (doc)',
    'SELECT (id), UPDATE (_ts)', 'SELECT (id), DELETE']) AS what;
-- A cached plan made for a user with the privilege does not help a user without it.
SET ROLE regress_ttl_owner;
SELECT ttl_docs.read_document('s.c', 'a') - '_ts' AS a, ttl_docs.touch_document('s.c', 'a');
SET ROLE regress_ttl_user;
SELECT ttl_docs.read_document('s.c', 'a');
\echo :SQLSTATE
SELECT ttl_docs.touch_document('s.c', 'a');
\echo :SQLSTATE
RESET ROLE;
-- After REVOKE, the cached plan no longer works.
GRANT SELECT ON s.c TO regress_ttl_user;
SET ROLE regress_ttl_user;
SELECT ttl_docs.read_document('s.c', 'a') - '_ts' AS a;
RESET ROLE;
REVOKE SELECT ON s.c FROM regress_ttl_user;
SET ROLE regress_ttl_user;
SELECT ttl_docs.read_document('s.c', 'a') - '_ts' AS a;
\echo :SQLSTATE
RESET ROLE;
-- A SECURITY DEFINER function gives its caller the owner's privileges.
CREATE FUNCTION s.lend(id text) RETURNS jsonb LANGUAGE sql SECURITY DEFINER AS $$ SELECT ttl_docs.patch_document('s.c', id, '{"lent": true}') - '_ts' $$;
ALTER FUNCTION s.lend(text) OWNER TO regress_ttl_owner;
SET ROLE regress_ttl_user;
SELECT s.lend('a');
SELECT ttl_docs.read_document('s.c', 'a');
\echo :SQLSTATE
-- A view uses its owner's privileges on tables, but functions in the view run with the
-- caller's.
RESET ROLE;
CREATE VIEW s.v AS SELECT d - '_ts' AS d FROM ttl_docs.documents('s.c') AS d;
ALTER VIEW s.v OWNER TO regress_ttl_owner;
GRANT SELECT ON s.v TO regress_ttl_user;
SET ROLE regress_ttl_user;
SELECT * FROM s.v;
\echo :SQLSTATE
RESET ROLE;
SET ROLE regress_ttl_owner;
SELECT * FROM s.v;
RESET ROLE;
DROP VIEW s.v;
DROP FUNCTION s.lend(text);

--
-- Sequences, and other defaults of the key
--
CREATE TABLE s.i (id int GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, doc jsonb);
CREATE TABLE s.q (id serial PRIMARY KEY, doc jsonb);
ALTER TABLE s.i OWNER TO regress_ttl_owner;
ALTER TABLE s.q OWNER TO regress_ttl_owner;
SELECT ttl_docs.adopt('s.i', 1000);
SELECT ttl_docs.adopt('s.q', 1000);
GRANT SELECT ON s.i, s.q TO regress_ttl_user;
SET ROLE regress_ttl_user;
SELECT ttl_docs.create_document('s.i', '{}');
\echo :SQLSTATE
SELECT ttl_docs.upsert_document('s.i', '{}');
\echo :SQLSTATE
SELECT ttl_docs.create_document('s.q', '{}');
\echo :SQLSTATE
RESET ROLE;
-- A failed call without the INSERT privilege uses no sequence value.
SELECT last_value, is_called FROM s.i_id_seq;
SELECT last_value, is_called FROM s.q_id_seq;
GRANT INSERT ON s.i, s.q TO regress_ttl_user;
SET ROLE regress_ttl_user;
SELECT ttl_docs.create_document('s.i', '{}') - '_ts' AS identity;
-- The sequence of an identity column needs no privilege; any other sequence does.
SELECT ttl_docs.create_document('s.q', '{}');
\echo :SQLSTATE
RESET ROLE;
GRANT USAGE ON SEQUENCE s.q_id_seq TO regress_ttl_user;
SET ROLE regress_ttl_user;
SELECT ttl_docs.create_document('s.q', '{}') - '_ts' AS serial;
RESET ROLE;
-- Privileges on columns
REVOKE INSERT ON s.i FROM regress_ttl_user;
GRANT INSERT (id, doc) ON s.i TO regress_ttl_user;
SET ROLE regress_ttl_user;
SELECT ttl_docs.create_document('s.i', '{}') - '_ts' AS identity;
RESET ROLE;
-- A default function that the user may not execute
CREATE FUNCTION s.new_id() RETURNS int LANGUAGE sql AS 'SELECT 77';
REVOKE EXECUTE ON FUNCTION s.new_id() FROM PUBLIC;
ALTER TABLE s.q ALTER id SET DEFAULT s.new_id();
SET ROLE regress_ttl_user;
SELECT ttl_docs.create_document('s.q', '{}');
\echo :SQLSTATE
SELECT ttl_docs.create_document('s.q', '{"id": 5}') - '_ts' AS with_id;
RESET ROLE;
-- A default function runs as the user.
CREATE OR REPLACE FUNCTION s.new_id() RETURNS int LANGUAGE plpgsql AS $$ BEGIN RAISE NOTICE 'as %', current_user; RETURN 78; END $$;
GRANT EXECUTE ON FUNCTION s.new_id() TO PUBLIC;
SET ROLE regress_ttl_user;
SELECT ttl_docs.create_document('s.q', '{}') - '_ts' AS new;
RESET ROLE;

--
-- Row-level security
--
CREATE FUNCTION s.again() RETURNS void LANGUAGE sql AS $$
    TRUNCATE s.c;
    INSERT INTO s.c VALUES ('mine', '{"of": "regress_ttl_user"}'), ('other', '{"of": "regress_ttl_owner"}'), ('dead', '{"of": "regress_ttl_owner", "ttl": 100}');
$$;
SELECT s.again();
GRANT ALL ON s.c TO regress_ttl_user;
ALTER TABLE s.c ENABLE ROW LEVEL SECURITY;
CREATE POLICY p ON s.c USING (doc ->> 'of' = current_user);
SET ROLE regress_ttl_user;
SELECT d - '_ts' AS d FROM ttl_docs.documents('s.c') AS d;
SELECT d - '_ts' AS d FROM ttl_docs.documents('s.c', '{"of": "regress_ttl_owner"}') AS d;
SELECT d - '_ts' AS d FROM ttl_docs.documents('s.c', '{"id": "other"}') AS d;
SELECT ttl_docs.read_document('s.c', 'mine') - '_ts' AS mine, ttl_docs.read_document('s.c', 'other') AS other;
SELECT ttl_docs.touch_document('s.c', 'other'), ttl_docs.delete_document('s.c', 'other');
-- For a user who may not see a document, the document does not exist.
SELECT ttl_docs.patch_document('s.c', 'other', '{"of": "regress_ttl_user"}');
\echo :SQLSTATE
SELECT ttl_docs.replace_document('s.c', '{"id": "other", "of": "regress_ttl_user"}');
\echo :SQLSTATE
-- The id of a hidden document is still in use.
SELECT ttl_docs.create_document('s.c', '{"id": "other", "of": "regress_ttl_user"}');
\echo :SQLSTATE
SELECT ttl_docs.upsert_document('s.c', '{"id": "other", "of": "regress_ttl_user"}');
\echo :SQLSTATE
-- A user cannot write a document that the policy gives to another user.
SELECT ttl_docs.create_document('s.c', '{"id": "new", "of": "regress_ttl_owner"}');
\echo :SQLSTATE
SELECT ttl_docs.patch_document('s.c', 'mine', '{"of": "regress_ttl_owner"}');
\echo :SQLSTATE
SELECT ttl_docs.patch_document('s.c', 'mine', '{"n": 1}') - '_ts' AS mine;
SELECT ttl_docs.upsert_document('s.c', '{"id": "mine", "of": "regress_ttl_user", "n": 2}') - '_ts' AS mine;
SELECT ttl_docs.create_document('s.c', '{"id": "new", "of": "regress_ttl_user"}') - '_ts' AS new;
-- Under row_security = off the user gets an error instead of filtered results.
SET row_security = off;
SELECT ttl_docs.read_document('s.c', 'mine');
\echo :SQLSTATE
RESET row_security;
RESET ROLE;
-- Each user has separate plans.
SELECT count(*) FROM ttl_docs.documents('s.c');
SET ROLE regress_ttl_user;
SELECT count(*) FROM ttl_docs.documents('s.c');
RESET ROLE;
-- A function that leaks its arguments never gets a hidden document.
CREATE FUNCTION s.leak(doc jsonb, filter jsonb) RETURNS boolean LANGUAGE plpgsql COST 0.0000001 AS $$ BEGIN RAISE NOTICE 'leaked %', doc; RETURN true; END $$;
CREATE OPERATOR s.@> (LEFTARG = jsonb, RIGHTARG = jsonb, FUNCTION = s.leak);
SET ROLE regress_ttl_user;
SET search_path = s, pg_catalog;
SELECT d - '_ts' AS d FROM ttl_docs.documents('s.c', '{"n": 2}') AS d;
RESET search_path;
RESET ROLE;
-- Policies do not protect the key of an expired document.
SET ttl_docs.clock_offset = 100;
SET ROLE regress_ttl_user;
SELECT ttl_docs.create_document('s.c', '{"id": "dead", "of": "regress_ttl_user"}') - '_ts' AS taken;
RESET ROLE;
RESET ttl_docs.clock_offset;
DROP POLICY p ON s.c;
-- The policy allows a user to write a document that the user may not see.  The function
-- cannot return that document, so it fails.
CREATE POLICY i ON s.c FOR INSERT WITH CHECK (true);
SET ROLE regress_ttl_user;
SELECT ttl_docs.create_document('s.c', '{"id": "unseen"}');
\echo :SQLSTATE
RESET ROLE;
DROP POLICY i ON s.c;
ALTER TABLE s.c DISABLE ROW LEVEL SECURITY;

--
-- Objects of another user come before ours and before PostgreSQL's in search_path
--
SELECT ttl_docs.create_collection('s.c2', 1000);
CREATE TABLE s.i2 (id int GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, doc jsonb);
SELECT ttl_docs.adopt('s.i2', 1000);
CREATE SCHEMA trap;
GRANT USAGE ON SCHEMA trap TO PUBLIC;
CREATE FUNCTION trap.trapped(text, text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'trapped'; END $$;
CREATE FUNCTION trap.trapped(int, int) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'trapped'; END $$;
CREATE FUNCTION trap.trapped(jsonb, jsonb) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'trapped'; END $$;
CREATE OPERATOR trap.= (LEFTARG = text, RIGHTARG = text, FUNCTION = trap.trapped);
CREATE OPERATOR trap.= (LEFTARG = int, RIGHTARG = int, FUNCTION = trap.trapped);
CREATE OPERATOR trap.@> (LEFTARG = jsonb, RIGHTARG = jsonb, FUNCTION = trap.trapped);
CREATE FUNCTION trap.to_jsonb(text) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'trapped'; END $$;
CREATE FUNCTION trap.to_jsonb(int) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'trapped'; END $$;
CREATE FUNCTION trap.merge_patch(jsonb, jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'trapped'; END $$;
CREATE FUNCTION trap.gen_random_uuid() RETURNS uuid LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'trapped'; END $$;
CREATE DOMAIN trap.text AS pg_catalog.text CHECK (VALUE IS NULL);
CREATE DOMAIN trap.jsonb AS pg_catalog.jsonb CHECK (VALUE IS NULL);
CREATE TABLE trap.c2 (id pg_catalog.text PRIMARY KEY, doc pg_catalog.jsonb);
CREATE TABLE trap.pg_class (oid oid, relname name);
CREATE FUNCTION all_verbs(t regclass) RETURNS text LANGUAGE plpgsql SET search_path = trap, pg_catalog, public AS $$
BEGIN
    PERFORM ttl_docs.upsert_document(t, '{"id": "77", "n": 1}');
    PERFORM ttl_docs.read_document(t, '77');
    PERFORM ttl_docs.patch_document(t, '77', '{"n": 2}');
    PERFORM ttl_docs.replace_document(t, '{"id": "77", "n": 3}');
    PERFORM ttl_docs.touch_document(t, '77');
    PERFORM ttl_docs.documents(t);
    PERFORM ttl_docs.documents(t, '{"n": 3}');
    PERFORM ttl_docs.documents(t, '{"n": 3, "id": "77"}');
    PERFORM ttl_docs.create_document(t, '{"n": 4}');
    PERFORM ttl_docs.delete_document(t, '77');
    RETURN 'not trapped';
EXCEPTION WHEN OTHERS THEN
    RETURN SQLERRM;
END $$;
SELECT all_verbs('s.c2'), all_verbs('s.i2');
SELECT count(*) FROM trap.c2;
-- Temporary objects of the session do not interfere either.
CREATE TEMP TABLE c2 (id text PRIMARY KEY, doc jsonb);
ALTER FUNCTION all_verbs(regclass) RESET search_path;
SELECT all_verbs('s.c2');
SELECT count(*) FROM c2;
DROP TABLE c2;

\set VERBOSITY terse
SET client_min_messages = warning;
DROP SCHEMA s, trap CASCADE;
RESET client_min_messages;
DROP FUNCTION all_verbs(regclass), with_grant(text), may(regclass);
DROP ROLE regress_ttl_owner, regress_ttl_user;
