-- A document function gives its caller no more rights than the equivalent statement:
-- column privileges, row-level security, cached plans after SET ROLE, defaults, rules.
-- It runs no code of the table's owner as the reader unless SELECT would.
\set SHOW_CONTEXT never
\set VERBOSITY terse
CREATE ROLE regress_ttl_sec_owner;
CREATE ROLE regress_ttl_sec_r1;
CREATE ROLE regress_ttl_sec_r2;
CREATE SCHEMA sec AUTHORIZATION regress_ttl_sec_owner;
GRANT USAGE ON SCHEMA sec TO PUBLIC;
CREATE TABLE sec_gained (who text, how text);
GRANT INSERT ON sec_gained TO PUBLIC;
CREATE FUNCTION sec_gain(how text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO public.sec_gained VALUES (current_user, how);
    RETURN true;
END $$;
\set gained 'SELECT DISTINCT how FROM sec_gained WHERE who <> ''regress_ttl_sec_owner'' ORDER BY 1; TRUNCATE sec_gained;'

--
-- Column privileges
--
-- Each function needs the same privileges as its statement.
SET ROLE regress_ttl_sec_owner;
SELECT ttl_docs.create_collection('sec.c', 1000);
INSERT INTO sec.c VALUES ('a', '{"n": 1}');
RESET ROLE;
CREATE FUNCTION sec_verbs() RETURNS TABLE (verb text, may boolean) LANGUAGE plpgsql AS $$
DECLARE
    call text;
BEGIN
    FOREACH call IN ARRAY ARRAY['read_document(''sec.c'', ''a'')', 'documents(''sec.c'')', 'create_document(''sec.c'', ''{"id": "b"}'')', 'create_document(''sec.c'', ''{}'')',
        'upsert_document(''sec.c'', ''{"id": "a"}'')', 'replace_document(''sec.c'', ''{"id": "a"}'')', 'patch_document(''sec.c'', ''a'', ''{"m": 2}'')',
        'touch_document(''sec.c'', ''a'')', 'delete_document(''sec.c'', ''a'')', 'preview(''sec.c'', 5)'] LOOP
        verb := call;
        BEGIN
            EXECUTE 'SELECT ttl_docs.' || call;
            RAISE EXCEPTION USING errcode = 'UZ001';
        EXCEPTION
            WHEN SQLSTATE 'UZ001' THEN may := true;
            WHEN insufficient_privilege THEN may := false;
        END;
        RETURN NEXT;
    END LOOP;
END $$;
CREATE TABLE sec_may (rights text, verb text, may boolean);
GRANT INSERT ON sec_may TO PUBLIC;
CREATE PROCEDURE sec_with(rights text) LANGUAGE plpgsql AS $$
BEGIN
    REVOKE ALL ON sec.c FROM regress_ttl_sec_r1;
    EXECUTE format('GRANT %s ON sec.c TO regress_ttl_sec_r1', rights);
    SET LOCAL ROLE regress_ttl_sec_r1;
    INSERT INTO public.sec_may SELECT rights, * FROM public.sec_verbs();
    RESET ROLE;
    REVOKE ALL (id, doc, _ts, _ttl, _slot) ON sec.c FROM regress_ttl_sec_r1;
END $$;
CALL sec_with('SELECT');
CALL sec_with('SELECT (id, doc)');
CALL sec_with('SELECT (id, doc, _ts)');
CALL sec_with('SELECT (_ts, _ttl)');
CALL sec_with('SELECT (id, _ts, _ttl)');
CALL sec_with('INSERT');
CALL sec_with('INSERT (id, doc), SELECT (id, doc, _ts)');
CALL sec_with('UPDATE');
CALL sec_with('UPDATE (doc), SELECT (id, doc, _ts)');
CALL sec_with('UPDATE (_ts), SELECT (id)');
CALL sec_with('INSERT (id, doc), UPDATE (doc), SELECT (id, doc, _ts)');
CALL sec_with('DELETE');
CALL sec_with('DELETE, SELECT (id)');
CALL sec_with('TRIGGER, REFERENCES, TRUNCATE');
SELECT rights, string_agg(verb, ', ' ORDER BY verb COLLATE "C") FILTER (WHERE may) AS may FROM sec_may GROUP BY rights ORDER BY rights COLLATE "C";
REVOKE ALL ON sec.c FROM regress_ttl_sec_r1;

--
-- Row-level security, and cached plans after a change of role
--
SET ROLE regress_ttl_sec_owner;
TRUNCATE sec.c;
INSERT INTO sec.c VALUES ('1', '{"of": "regress_ttl_sec_r1"}'), ('2', '{"of": "regress_ttl_sec_r2"}'), ('dead', '{"of": "regress_ttl_sec_r2", "ttl": 100}');
GRANT SELECT, INSERT, UPDATE, DELETE ON sec.c TO regress_ttl_sec_r1;
CREATE POLICY p ON sec.c USING (doc ->> 'of' = current_user);
ALTER TABLE sec.c ENABLE ROW LEVEL SECURITY;
\set look 'SELECT current_user, (SELECT string_agg(d ->> ''id'', '' '' ORDER BY d ->> ''id'') FROM ttl_docs.documents(''sec.c'') AS d) AS documents, (SELECT string_agg(d ->> ''id'', '' '' ORDER BY d ->> ''id'') FROM ttl_docs.documents(''sec.c'', ''{"id": "1"}'') AS d) AS filtered, ttl_docs.read_document(''sec.c'', ''1'') ->> ''id'' AS one, ttl_docs.read_document(''sec.c'', ''2'') ->> ''id'' AS two, ttl_docs.touch_document(''sec.c'', ''1'') AS touch_one, (SELECT live FROM ttl_docs.preview(''sec.c'', 5));'
\set VERBOSITY sqlstate
:look
SET ROLE regress_ttl_sec_r1;
:look
SET ROLE regress_ttl_sec_r2;
:look
RESET ROLE;
GRANT SELECT, INSERT, UPDATE, DELETE ON sec.c TO regress_ttl_sec_r2;
SET ROLE regress_ttl_sec_r2;
:look
SELECT ttl_docs.replace_document('sec.c', '{"id": "1", "of": "regress_ttl_sec_r2"}');
SELECT ttl_docs.patch_document('sec.c', '1', '{"of": "regress_ttl_sec_r2"}');
SELECT ttl_docs.upsert_document('sec.c', '{"id": "1", "of": "regress_ttl_sec_r2"}');
SELECT ttl_docs.create_document('sec.c', '{"id": "1", "of": "regress_ttl_sec_r2"}');
SELECT ttl_docs.create_document('sec.c', '{"id": "3", "of": "regress_ttl_sec_r1"}');
SELECT ttl_docs.delete_document('sec.c', '1'), ttl_docs.touch_document('sec.c', '1');
-- Policies are disabled, enabled and forced for the owner.
RESET ROLE;
ALTER TABLE sec.c DISABLE ROW LEVEL SECURITY;
SET ROLE regress_ttl_sec_r2;
:look
RESET ROLE;
ALTER TABLE sec.c ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
SET ROLE regress_ttl_sec_r2;
:look
SET row_security = off;
:look
RESET row_security;
SET ROLE regress_ttl_sec_owner;
:look
RESET ROLE;
:look
-- Privileges are revoked.
REVOKE ALL ON sec.c FROM regress_ttl_sec_r2;
SET ROLE regress_ttl_sec_r2;
:look
RESET ROLE;
-- The key of an expired document is free, even if the user could not see the document.
GRANT ALL ON sec.c TO regress_ttl_sec_r1;
SET ttl_docs.clock_offset = 100;
SET ROLE regress_ttl_sec_r1;
SELECT ttl_docs.create_document('sec.c', '{"id": "dead", "of": "regress_ttl_sec_r1"}') ->> 'id' AS freed;
RESET ROLE;
RESET ttl_docs.clock_offset;

--
-- A SECURITY DEFINER function gives the privileges of its owner, and no more
--
CREATE FUNCTION sec.definer(id text) RETURNS jsonb LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$ SELECT ttl_docs.read_document('sec.c', id) $$;
ALTER FUNCTION sec.definer(text) OWNER TO regress_ttl_sec_r1;
SET ROLE regress_ttl_sec_r2;
SELECT sec.definer('1') ->> 'id' AS one, sec.definer('2') ->> 'id' AS two;
SELECT ttl_docs.read_document('sec.c', '1');
RESET ROLE;
DROP FUNCTION sec.definer(text);
\set VERBOSITY terse

--
-- Defaults are evaluated only for users who may insert, as that user
--
SET ROLE regress_ttl_sec_owner;
CREATE FUNCTION sec.next() RETURNS text LANGUAGE plpgsql AS $$ BEGIN PERFORM public.sec_gain('default'); RETURN 'new'; END $$;
CREATE TABLE sec.d (id text PRIMARY KEY DEFAULT sec.next(), doc jsonb);
SELECT ttl_docs.adopt('sec.d', 1000);
CREATE TABLE sec.s (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, doc jsonb);
SELECT ttl_docs.adopt('sec.s', 1000);
GRANT SELECT ON sec.d, sec.s TO regress_ttl_sec_r1;
SET ROLE regress_ttl_sec_r1;
SELECT ttl_docs.create_document('sec.d', '{}');
SELECT ttl_docs.create_document('sec.s', '{}');
SELECT ttl_docs.upsert_document('sec.d', '{}');
RESET ROLE;
SELECT * FROM sec_gained;
SELECT pg_sequence_last_value('sec.s_id_seq');
GRANT INSERT ON sec.d TO regress_ttl_sec_r1;
REVOKE EXECUTE ON FUNCTION sec.next() FROM PUBLIC;
SET ROLE regress_ttl_sec_r1;
SELECT ttl_docs.create_document('sec.d', '{}');
RESET ROLE;
GRANT EXECUTE ON FUNCTION sec.next() TO PUBLIC;
SET ROLE regress_ttl_sec_r1;
SELECT ttl_docs.create_document('sec.d', '{}') ->> 'id' AS id;
RESET ROLE;
SELECT * FROM sec_gained;
TRUNCATE sec_gained;

--
-- A reader runs no code that SELECT would not run
--
-- Other users control the domains, casts and operators of the key.
SET ROLE regress_ttl_sec_owner;
CREATE FUNCTION sec.valid(text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RETURN public.sec_gain('domain'); END $$;
CREATE DOMAIN sec.name AS text CHECK (sec.valid(VALUE));
CREATE TABLE sec.by_domain (id sec.name PRIMARY KEY, doc jsonb);
CREATE TYPE sec.color AS ENUM ('red', 'green');
CREATE FUNCTION sec.to_text(sec.color) RETURNS text LANGUAGE plpgsql AS $$ BEGIN PERFORM public.sec_gain('cast'); RETURN 'blue'; END $$;
CREATE CAST (sec.color AS text) WITH FUNCTION sec.to_text(sec.color);
CREATE TABLE sec.by_enum (id sec.color PRIMARY KEY, doc jsonb);
CREATE TYPE sec.pair AS (a text, b int);
CREATE TABLE sec.by_row (id sec.pair PRIMARY KEY, doc jsonb);
SELECT ttl_docs.adopt(t, 1000) FROM unnest('{sec.by_domain, sec.by_enum, sec.by_row}'::regclass[]) AS t;
INSERT INTO sec.by_domain VALUES ('red', '{}');
INSERT INTO sec.by_enum VALUES ('red', '{}');
INSERT INTO sec.by_row VALUES ('(red,1)', '{}');
RESET ROLE;
TRUNCATE sec_gained;
SELECT id FROM sec.by_domain WHERE id = 'red';
SELECT id FROM sec.by_enum WHERE id = 'red';
:gained
SELECT ttl_docs.read_document('sec.by_domain', 'red') - '_ts', ttl_docs.read_document('sec.by_enum', 'green') - '_ts', ttl_docs.read_document('sec.by_enum', 'red') - '_ts', ttl_docs.read_document('sec.by_row', '(red,1)') - '_ts';
SELECT ttl_docs.documents('sec.by_domain', '{"id": "red"}') - '_ts', ttl_docs.documents('sec.by_enum', '{"id": "red"}') - '_ts', ttl_docs.documents('sec.by_row') - '_ts';
BEGIN;
SET LOCAL ttl_docs.clock_offset = 100;
SELECT examples FROM ttl_docs.preview('sec.by_domain', 5);
SELECT examples FROM ttl_docs.preview('sec.by_enum', 5);
COMMIT;
SELECT ttl_docs.touch_document('sec.by_domain', 'red'), ttl_docs.touch_document('sec.by_enum', 'red');
:gained
-- An id of another type than text: no cast and no domain check runs.
CREATE DOMAIN sec.big AS int CHECK (sec.valid(VALUE::text));
CREATE TABLE sec.ids AS SELECT 'red'::sec.color AS color, 'red'::sec.name AS name, '(red,1)'::sec.pair AS pair, 7::sec.big AS big;
TRUNCATE sec_gained;
SELECT color, name, pair, big FROM sec.ids;
SELECT ttl_docs.read_document('sec.by_enum', color) - '_ts', ttl_docs.read_document('sec.by_domain', color) - '_ts', ttl_docs.read_document('sec.by_domain', name) - '_ts', ttl_docs.read_document('sec.by_row', pair) - '_ts',
    ttl_docs.read_document('sec.by_domain', big), ttl_docs.touch_document('sec.by_enum', color), ttl_docs.delete_document('sec.by_domain', big) FROM sec.ids;
:gained
-- A key that contains a domain: its input function would run the check, so the functions refuse it.
SET ROLE regress_ttl_sec_owner;
CREATE TYPE sec.checked AS (a sec.name);
CREATE TYPE sec.checked_range AS RANGE (subtype = sec.name);
CREATE TABLE sec.by_checked (id sec.checked PRIMARY KEY, doc jsonb);
CREATE TABLE sec.by_range (id sec.checked_range PRIMARY KEY, doc jsonb);
CREATE TABLE sec.by_array (id sec.name[] PRIMARY KEY, doc jsonb);
SELECT ttl_docs.adopt(t, 1000) FROM unnest('{sec.by_checked, sec.by_range, sec.by_array}'::regclass[]) AS t;
RESET ROLE;
TRUNCATE sec_gained;
SELECT ttl_docs.read_document('sec.by_checked', '(red)');
SELECT ttl_docs.read_document('sec.by_checked', ROW('red'));
SELECT ttl_docs.delete_document('sec.by_range', '[a,b]');
SELECT ttl_docs.touch_document('sec.by_array', '{red}');
SELECT ttl_docs.documents('sec.by_array');
:gained
-- The domain still applies: the key is checked when it is stored, as by INSERT.
SET ROLE regress_ttl_sec_owner;
CREATE DOMAIN sec.short AS varchar(5) CHECK (VALUE <> 'bad');
CREATE TABLE sec.by_short (id sec.short PRIMARY KEY, doc jsonb);
SELECT ttl_docs.adopt('sec.by_short', 1000);
\set VERBOSITY sqlstate
SELECT ttl_docs.create_document('sec.by_short', '{"id": "bad"}');
SELECT ttl_docs.upsert_document('sec.by_short', '{"id": "bad"}');
SELECT ttl_docs.create_document('sec.by_short', '{"id": "too long"}');
\set VERBOSITY terse
SELECT ttl_docs.create_document('sec.by_short', '{"id": "good"}') - '_ts', ttl_docs.read_document('sec.by_short', 'good') - '_ts', ttl_docs.read_document('sec.by_short', 'bad'),
    ttl_docs.delete_document('sec.by_short', 'too long');
RESET ROLE;
-- An operator in the schema of the key's type that matches better than the operator of
-- the key
CREATE SCHEMA sec_shared;
GRANT USAGE, CREATE ON SCHEMA sec_shared TO PUBLIC;
SET client_min_messages = warning;
CREATE TYPE sec_shared.number;
CREATE FUNCTION sec_shared.number_in(cstring) RETURNS sec_shared.number LANGUAGE internal IMMUTABLE STRICT AS 'int4in';
CREATE FUNCTION sec_shared.number_out(sec_shared.number) RETURNS cstring LANGUAGE internal IMMUTABLE STRICT AS 'int4out';
CREATE TYPE sec_shared.number (INPUT = sec_shared.number_in, OUTPUT = sec_shared.number_out, LIKE = int4);
RESET client_min_messages;
CREATE FUNCTION sec_shared.eq(sec_shared.number, sec_shared.number) RETURNS boolean LANGUAGE internal IMMUTABLE STRICT AS 'int4eq';
CREATE FUNCTION sec_shared.lt(sec_shared.number, sec_shared.number) RETURNS boolean LANGUAGE internal IMMUTABLE STRICT AS 'int4lt';
CREATE FUNCTION sec_shared.le(sec_shared.number, sec_shared.number) RETURNS boolean LANGUAGE internal IMMUTABLE STRICT AS 'int4le';
CREATE FUNCTION sec_shared.ge(sec_shared.number, sec_shared.number) RETURNS boolean LANGUAGE internal IMMUTABLE STRICT AS 'int4ge';
CREATE FUNCTION sec_shared.gt(sec_shared.number, sec_shared.number) RETURNS boolean LANGUAGE internal IMMUTABLE STRICT AS 'int4gt';
CREATE FUNCTION sec_shared.cmp(sec_shared.number, sec_shared.number) RETURNS int LANGUAGE internal IMMUTABLE STRICT AS 'btint4cmp';
CREATE OPERATOR sec_shared.= (LEFTARG = sec_shared.number, RIGHTARG = sec_shared.number, FUNCTION = sec_shared.eq);
CREATE OPERATOR sec_shared.< (LEFTARG = sec_shared.number, RIGHTARG = sec_shared.number, FUNCTION = sec_shared.lt);
CREATE OPERATOR sec_shared.<= (LEFTARG = sec_shared.number, RIGHTARG = sec_shared.number, FUNCTION = sec_shared.le);
CREATE OPERATOR sec_shared.>= (LEFTARG = sec_shared.number, RIGHTARG = sec_shared.number, FUNCTION = sec_shared.ge);
CREATE OPERATOR sec_shared.> (LEFTARG = sec_shared.number, RIGHTARG = sec_shared.number, FUNCTION = sec_shared.gt);
CREATE OPERATOR CLASS sec_shared.number_ops DEFAULT FOR TYPE sec_shared.number USING btree AS OPERATOR 1 sec_shared.<, OPERATOR 2 sec_shared.<=,
    OPERATOR 3 sec_shared.=, OPERATOR 4 sec_shared.>=, OPERATOR 5 sec_shared.>, FUNCTION 1 sec_shared.cmp(sec_shared.number, sec_shared.number);
CREATE DOMAIN sec_shared.mine AS sec_shared.number;
SET ROLE regress_ttl_sec_owner;
CREATE TABLE sec.by_number (id sec_shared.mine PRIMARY KEY, doc jsonb);
SELECT ttl_docs.adopt('sec.by_number', 1000);
INSERT INTO sec.by_number VALUES ('7', '{}');
SET ROLE regress_ttl_sec_r1;
CREATE FUNCTION sec_shared.trap(sec_shared.mine, sec_shared.mine) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RETURN public.sec_gain('operator'); END $$;
CREATE FUNCTION sec_shared.trap(sec_shared.mine, sec_shared.number) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RETURN public.sec_gain('operator'); END $$;
CREATE OPERATOR sec_shared.= (LEFTARG = sec_shared.mine, RIGHTARG = sec_shared.mine, FUNCTION = sec_shared.trap);
CREATE OPERATOR sec_shared.= (LEFTARG = sec_shared.mine, RIGHTARG = sec_shared.number, FUNCTION = sec_shared.trap);
SET ROLE regress_ttl_sec_owner;
SELECT ttl_docs.read_document('sec.by_number', '7') - '_ts', ttl_docs.read_document('sec.by_number', '8');
RESET ROLE;
SELECT * FROM sec_gained;

--
-- A key changes its type while its value is read
--
-- A value of one type must not be read as another type.  That could read arbitrary
-- memory.
SET ROLE regress_ttl_sec_owner;
CREATE TABLE sec.swap (id int PRIMARY KEY, doc jsonb);
CREATE FUNCTION sec.swap(value int) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    IF value = 1094795585 AND (SELECT format_type(atttypid, NULL) <> 'text' FROM pg_attribute WHERE attrelid = 'sec.swap'::regclass AND attname = 'id') THEN
        ALTER TABLE sec.swap ALTER COLUMN id TYPE text USING id::int::text;
        PERFORM ttl_docs.read_document('sec.swap', 'x');
    END IF;
    RETURN true;
END $$;
CREATE DOMAIN sec.swapping AS int CHECK (sec.swap(VALUE));
ALTER TABLE sec.swap ALTER COLUMN id TYPE sec.swapping;
SELECT ttl_docs.adopt('sec.swap', 1000);
SELECT ttl_docs.read_document('sec.swap', '1094795585');
SELECT ttl_docs.documents('sec.swap', '{"id": 1094795585}');
\set VERBOSITY sqlstate
SELECT ttl_docs.create_document('sec.swap', '{"id": 1094795585}');
\set VERBOSITY terse
SELECT ttl_docs.touch_document('sec.swap', '1094795585');
RESET ROLE;

--
-- Rules replace a statement with another one, of the same kind or not
--
SET ROLE regress_ttl_sec_owner;
SELECT ttl_docs.create_collection('sec.r', 1000);
INSERT INTO sec.r VALUES ('a', '{}');
CREATE TABLE sec.other (id text, doc jsonb, _ts timestamptz, _ttl int, _slot bigint);
INSERT INTO sec.other VALUES (NULL, NULL, NULL, NULL, NULL);
CREATE RULE r AS ON UPDATE TO sec.r DO INSTEAD UPDATE sec.other SET id = id RETURNING other.*;
SELECT ttl_docs.replace_document('sec.r', '{"id": "a"}'), ttl_docs.patch_document('sec.r', 'a', '{"x": 1}'), ttl_docs.touch_document('sec.r', 'a');
CREATE OR REPLACE RULE r AS ON UPDATE TO sec.r DO INSTEAD INSERT INTO sec.other VALUES ('w', NULL, NULL, NULL, NULL) RETURNING other.*;
SELECT ttl_docs.replace_document('sec.r', '{"id": "a"}');
SELECT ttl_docs.touch_document('sec.r', 'a');
CREATE OR REPLACE RULE r AS ON UPDATE TO sec.r DO INSTEAD SELECT 1;
SELECT ttl_docs.replace_document('sec.r', '{"id": "a"}');
DROP RULE r ON sec.r;
CREATE RULE r AS ON INSERT TO sec.r DO INSTEAD INSERT INTO sec.other VALUES (NULL, NULL, NULL, NULL, NULL) RETURNING other.*;
SELECT ttl_docs.create_document('sec.r', '{"id": "b"}');
CREATE OR REPLACE RULE r AS ON INSERT TO sec.r DO INSTEAD DELETE FROM sec.other RETURNING other.*;
SELECT ttl_docs.create_document('sec.r', '{"id": "b"}');
DROP RULE r ON sec.r;
CREATE RULE r AS ON DELETE TO sec.r DO INSTEAD UPDATE sec.other SET id = id;
SELECT ttl_docs.delete_document('sec.r', 'a');
CREATE OR REPLACE RULE r AS ON DELETE TO sec.r DO INSTEAD NOTHING;
SELECT ttl_docs.delete_document('sec.r', 'a');
RESET ROLE;

SET client_min_messages = warning;
DROP SCHEMA sec, sec_shared CASCADE;
DROP TABLE sec_gained, sec_may;
DROP FUNCTION sec_gain(text), sec_verbs();
DROP PROCEDURE sec_with(text);
DROP ROLE regress_ttl_sec_owner, regress_ttl_sec_r1, regress_ttl_sec_r2;
