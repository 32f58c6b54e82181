-- Names are data.  Whatever the names of tables, columns and schemas are, and whatever
-- is in the caller's search_path, the functions do what they should and run nothing
-- else.
\set SHOW_CONTEXT never
\set VERBOSITY terse
CREATE ROLE regress_ttl_sec_owner;
CREATE ROLE regress_ttl_sec_attacker;
CREATE TABLE sec_gained (who text, how text);
GRANT INSERT ON sec_gained TO PUBLIC;

--
-- Functions, operators, types and tables that shadow others
--
-- The attacker's schema comes first in everybody's search_path, and has every name that
-- ttl_docs could use.
CREATE SCHEMA sec_trap AUTHORIZATION regress_ttl_sec_attacker;
GRANT USAGE ON SCHEMA sec_trap TO PUBLIC;
SET ROLE regress_ttl_sec_attacker;
CREATE FUNCTION sec_trap.gain(how text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO public.sec_gained VALUES (current_user, how);
    RETURN true;
END $$;
-- All operators and functions whose names occur in statements of ttl_docs, for the
-- types in these statements
DO $$
DECLARE
    name text;
    left_type text;
    right_type text;
BEGIN
    FOREACH name IN ARRAY '{=,<>,<,<=,>,>=,@>,->,->>,||}'::text[] LOOP
        FOREACH left_type IN ARRAY '{text,int4,int8,timestamptz,jsonb,name,oid,regclass,bool}'::text[] LOOP
            FOREACH right_type IN ARRAY '{text,int4,int8,timestamptz,jsonb,name,oid,regclass,bool}'::text[] LOOP
                EXECUTE format('CREATE OR REPLACE FUNCTION sec_trap.op(%s, %s) RETURNS bool LANGUAGE plpgsql AS $f$ BEGIN RETURN sec_trap.gain(%L); END $f$', left_type, right_type, 'operator');
                EXECUTE format('CREATE OPERATOR sec_trap.%s (LEFTARG = %s, RIGHTARG = %s, FUNCTION = sec_trap.op)', name, left_type, right_type);
            END LOOP;
        END LOOP;
    END LOOP;
    FOREACH name IN ARRAY '{count,now,clock_timestamp,gen_random_uuid,format,to_jsonb,jsonb_extract_path,current_database,document_ttl,is_live,is_expired,slot,first_ts,expires_under,returned_document,merge_patch,patchable}'::text[] LOOP
        EXECUTE format('CREATE FUNCTION sec_trap.%I(VARIADIC text[]) RETURNS text LANGUAGE plpgsql AS $f$ BEGIN PERFORM sec_trap.gain(%L); RETURN 1; END $f$', name, 'function ' || name);
        EXECUTE format('CREATE FUNCTION sec_trap.%I() RETURNS timestamptz LANGUAGE plpgsql AS $f$ BEGIN PERFORM sec_trap.gain(%L); RETURN ''epoch''; END $f$', name, 'function ' || name);
        EXECUTE format('CREATE FUNCTION sec_trap.%I(jsonb) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $f$ BEGIN PERFORM sec_trap.gain(%L); RETURN 1; END $f$', name, 'function ' || name);
    END LOOP;
    FOREACH name IN ARRAY '{text,name,int4,int8,bool,oid,regclass,timestamptz,jsonb}'::text[] LOOP
        EXECUTE format('CREATE DOMAIN sec_trap.%I AS pg_catalog.%I CHECK (sec_trap.gain(%L))', name, name, 'type ' || name);
    END LOOP;
    FOREACH name IN ARRAY '{pg_class,pg_seclabel,pg_database,pg_attribute,collections,stat_collections}'::text[] LOOP
        EXECUTE format('CREATE VIEW sec_trap.%I AS SELECT sec_trap.gain(%L) AS oid, NULL::pg_catalog.text AS provider', name, 'view ' || name);
    END LOOP;
END $$;
RESET ROLE;
CREATE SCHEMA sec AUTHORIZATION regress_ttl_sec_owner;
SET ROLE regress_ttl_sec_owner;
SET search_path = sec_trap, sec, pg_catalog;
-- The trap works.
SELECT 1::pg_catalog.int4 = 1::pg_catalog.int4;
SELECT now() > 'epoch'::timestamptz;
RESET search_path;
RESET ROLE;
SELECT DISTINCT how FROM sec_gained ORDER BY how;
TRUNCATE sec_gained;
SET ROLE regress_ttl_sec_owner;
SET search_path = sec_trap, sec, pg_catalog;
SELECT ttl_docs.create_collection('sec.c', 1000);
CREATE TABLE sec.t (id pg_catalog.int4 PRIMARY KEY, doc pg_catalog.jsonb, changed pg_catalog.timestamptz);
SELECT ttl_docs.adopt('sec.t', 1000, 'doc', 'changed');
SELECT ttl_docs.create_document('sec.c', '{"id": "a"}') IS NULL;
SELECT ttl_docs.create_document('sec.c', '{}') IS NULL;
SELECT ttl_docs.upsert_document('sec.c', '{"id": "a"}') IS NULL;
SELECT ttl_docs.replace_document('sec.c', '{"id": "a", "n": 1}') IS NULL;
SELECT ttl_docs.patch_document('sec.c', 'a', '{"m": 2}') IS NULL;
SELECT ttl_docs.read_document('sec.c', 'a') IS NULL;
SELECT ttl_docs.touch_document('sec.c', 'a');
SELECT ttl_docs.documents('sec.c', '{"n": 1}') IS NULL;
SELECT ttl_docs.documents('sec.c', '{"id": "a"}') IS NULL;
SELECT ttl_docs.upsert_document('sec.t', '{"id": 5}') IS NULL;
SELECT ttl_docs.read_document('sec.t', '5') IS NULL;
SELECT live FROM ttl_docs.preview('sec.c', 5);
SELECT ttl_docs.set_default_ttl('sec.c', NULL);
SELECT ttl_docs.set_default_ttl('sec.c', 2000);
SELECT ttl_docs.set_indexing('sec.c', 'lazy');
SELECT ttl_docs.get_default_ttl('sec.c'), ttl_docs.is_expired('sec.c', 'epoch', NULL), ttl_docs.expires_at('sec.c', 'infinity', NULL) IS NULL;
SELECT doc_column, mode FROM ttl_docs.collections;
SELECT undeletable FROM ttl_docs.stat_collections;
SELECT id IS NULL FROM sec.c;
UPDATE sec.c SET doc = '{"ttl": 100}';
COPY sec.t (id) TO stdout;
RESET search_path;
RESET ROLE;
SET ttl_docs.clock_offset = 200;
SET ROLE regress_ttl_sec_owner;
SET search_path = sec_trap, sec, pg_catalog;
INSERT INTO sec.c VALUES ('a', '{}');
CALL ttl_docs.purge('sec.c');
SELECT ttl_docs.pause_purge('sec.c');
SELECT ttl_docs.resume_purge('sec.c');
SELECT ttl_docs.delete_document('sec.c', 'a');
SELECT ttl_docs.release('sec.t');
SELECT ttl_docs.drop_collection('sec.c');
RESET search_path;
RESET ROLE;
RESET ttl_docs.clock_offset;
SELECT DISTINCT who, how FROM sec_gained;

--
-- Names as SQL injection
--
CREATE TABLE sec_precious (id int);
GRANT ALL ON sec_precious TO PUBLIC;
GRANT CREATE ON DATABASE :"DBNAME" TO regress_ttl_sec_owner;
SET ROLE regress_ttl_sec_owner;
SELECT 'x"; DROP TABLE public.sec_precious; --' AS evil, E'it''s \\ %s %I $1 $$ "q"\n' AS quote \gset
CREATE SCHEMA :"evil";
CREATE SCHEMA :"quote";
SELECT ttl_docs.create_collection(format('%I.%I', schema, name), 1000) IS NOT NULL AS made FROM unnest(ARRAY[:'evil', :'quote']) AS schema, unnest(ARRAY[:'evil', :'quote']) AS name;
CREATE TABLE :"evil".plain (:"evil" int, :"quote" text, "doc'"";--" jsonb, "changed'"";--" timestamp, PRIMARY KEY (:"evil"));
INSERT INTO :"evil".plain VALUES (1, 'a', '{"ttl": 7}', now());
SELECT ttl_docs.adopt(format('%I.plain', :'evil'), 1000, 'doc''";--', 'changed''";--');
CREATE TABLE :"quote".two (:"evil" text, :"quote" text, doc jsonb, PRIMARY KEY (:"evil", :"quote"));
INSERT INTO :"quote".two VALUES ('1', '2', '{"ttl": 0}');
SELECT ttl_docs.adopt(format('%I.two', :'quote'), 1000);
SELECT ttl_docs.adopt(format('%I.two', :'quote'));
SELECT examples FROM ttl_docs.preview(format('%I.two', :'quote'), 1);
SELECT ttl_docs.upsert_document(collection, '{"id": "3", "v": 1}') - '_ts' AS upsert, ttl_docs.patch_document(collection, '3', '{"v": 2}') - '_ts' AS patch, ttl_docs.read_document(collection, '3') - '_ts' AS read,
    ttl_docs.touch_document(collection, '3') AS touch, ttl_docs.read_document(collection, quote_literal(1)) AS none, ttl_docs.delete_document(collection, '3') AS delete
  FROM ttl_docs.collections WHERE collection::text NOT LIKE '%two%' AND collection::text NOT LIKE '%plain%' ORDER BY collection::text COLLATE "C";
SELECT ttl_docs.read_document(format('%I.plain', :'evil'), '1') - '_ts';
SELECT ttl_docs.read_document(format('%I.plain', :'evil'), '1 OR true');
SELECT count(*) FROM ttl_docs.documents(format('%I.%I', :'quote', :'evil'), '{"a": "'' OR true --"}');
SELECT ttl_docs.set_indexing(collection, 'lazy'), ttl_docs.set_indexing(collection, 'consistent'), ttl_docs.pause_purge(collection) FROM ttl_docs.collections WHERE default_ttl IS NOT NULL;
-- The commands in the hints can be run unchanged.
SELECT count(*) FROM ttl_docs.collections WHERE hint IS NOT NULL;
SELECT substring(hint FROM 'SELECT .*') AS advice FROM ttl_docs.collections WHERE holds <> '{}' ORDER BY collection::text COLLATE "C" \gexec
CALL ttl_docs.purge();
SELECT count(*) FROM ttl_docs.collections WHERE holds <> '{}';
-- Invalid names
SELECT ttl_docs.create_collection('x; DROP TABLE public.sec_precious');
SELECT ttl_docs.create_collection('x (id int); DROP TABLE public.sec_precious; --');
SELECT ttl_docs.create_collection('"x');
SELECT ttl_docs.create_collection('');
SELECT ttl_docs.create_collection('a.b.c.d');
SELECT ttl_docs.create_collection('ttl_docs.mine');
SELECT ttl_docs.create_collection('pg_catalog.mine');
SELECT ttl_docs.create_collection('pg_temp.mine');
SELECT ttl_docs.create_collection(:'evil', 5, 'consistent''; DROP TABLE public.sec_precious; --');
SELECT ttl_docs.release(collection) FROM ttl_docs.collections WHERE collection::text LIKE '%plain%';
SELECT ttl_docs.drop_collection(collection) FROM ttl_docs.collections;
SELECT count(*) FROM public.sec_precious;
RESET ROLE;

SET client_min_messages = warning;
DROP SCHEMA sec, sec_trap, :"evil", :"quote" CASCADE;
DROP TABLE sec_gained, sec_precious;
REVOKE CREATE ON DATABASE :"DBNAME" FROM regress_ttl_sec_owner;
DROP ROLE regress_ttl_sec_owner, regress_ttl_sec_attacker;
