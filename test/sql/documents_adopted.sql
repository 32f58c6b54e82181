-- The document functions on tables with a design of their own.  The functions take the
-- key from the primary key, of any name and type, and the document column from the
-- collection's settings.
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS citext;
RESET client_min_messages;

CREATE FUNCTION try(call text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    result text;
    hint text;
BEGIN
    EXECUTE 'SELECT ' || call INTO result;
    RETURN coalesce(result, 'NULL');
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS hint = PG_EXCEPTION_HINT;
    RETURN SQLSTATE || ' ' || SQLERRM || coalesce(' (' || nullif(hint, '') || ')', '');
END $$;

-- Calls each function as a statement of its own, on a document with this id.
CREATE FUNCTION verbs(t regclass, id jsonb, OUT verb text, OUT result text) RETURNS SETOF record LANGUAGE plpgsql AS $$
DECLARE
    text_id text := id #>> '{}';
    doc jsonb := jsonb_build_object('id', id, 'n', 1);
BEGIN
    FOR verb, result IN SELECT * FROM (VALUES
        ('create', format('ttl_docs.create_document(%L, %L) - ''_ts''', t, doc)),
        ('create', format('ttl_docs.create_document(%L, %L) - ''_ts''', t, doc)),
        ('read', format('ttl_docs.read_document(%L, %L) - ''_ts''', t, text_id)),
        ('patch', format('ttl_docs.patch_document(%L, %L, %L) - ''_ts''', t, text_id, jsonb_build_object('id', id, 'n', 2))),
        ('replace', format('ttl_docs.replace_document(%L, %L) - ''_ts''', t, doc || '{"n": 3}')),
        ('upsert', format('ttl_docs.upsert_document(%L, %L) - ''_ts''', t, doc || '{"n": 4}')),
        ('documents', format('ttl_docs.documents(%L, %L) - ''_ts''', t, doc || '{"n": 4}')),
        ('touch', format('ttl_docs.touch_document(%L, %L)', t, text_id)),
        ('delete', format('ttl_docs.delete_document(%L, %L)', t, text_id)),
        ('delete', format('ttl_docs.delete_document(%L, %L)', t, text_id)),
        ('upsert', format('ttl_docs.upsert_document(%L, %L) - ''_ts''', t, doc || '{"n": 5}'))) AS v
    LOOP
        result := try(result);
        RETURN NEXT;
    END LOOP;
END $$;

--
-- Numbers: JSON numbers and strings are both accepted, and strings stay strings in the
-- document
--
CREATE TABLE a (id int PRIMARY KEY, doc jsonb);
SELECT ttl_docs.adopt('a', 1000);
SELECT * FROM verbs('a', '1');
SELECT * FROM verbs('a', '"2"');
SELECT id, doc FROM a ORDER BY id;
SELECT call, try(call) FROM unnest(ARRAY[
    $$ttl_docs.create_document('a', '{"id": 3.0}') - '_ts'$$,
    $$ttl_docs.create_document('a', '{"id": 3}')$$,
    $$ttl_docs.create_document('a', '{"id": 4e0}') - '_ts'$$,
    $$ttl_docs.create_document('a', '{"id": " 05 "}') - '_ts'$$,
    $$ttl_docs.read_document('a', '05') - '_ts'$$,
    $$ttl_docs.patch_document('a', '05', '{"id": "5", "n": 1}') - '_ts'$$,
    $$ttl_docs.patch_document('a', '5', '{"id": 5.0, "n": 2}') - '_ts'$$,
    $$ttl_docs.patch_document('a', '5', '{"id": 6}')$$,
    $$ttl_docs.documents('a', '{"id": "05"}') - '_ts'$$,
    $$ttl_docs.create_document('a', '{"id": 1.5}')$$,
    $$ttl_docs.create_document('a', '{"id": "x"}')$$,
    $$ttl_docs.create_document('a', '{"id": 3000000000}')$$,
    $$ttl_docs.create_document('a', '{"id": true}')$$,
    $$ttl_docs.create_document('a', '{"id": []}')$$,
    $$ttl_docs.create_document('a', '{}')$$,
    $$ttl_docs.upsert_document('a', '{"id": null}')$$,
    $$ttl_docs.read_document('a', 'x')$$,
    $$ttl_docs.delete_document('a', '')$$,
    $$ttl_docs.documents('a', '{"id": "x"}')$$]) AS call;
SELECT id, doc FROM a ORDER BY id;
DROP TABLE a;

CREATE TABLE a (id bigint PRIMARY KEY, doc jsonb);
SELECT ttl_docs.adopt('a', 1000);
SELECT * FROM verbs('a', '9007199254740993');
DROP TABLE a;
CREATE TABLE a (id numeric PRIMARY KEY, doc jsonb);
SELECT ttl_docs.adopt('a', 1000);
SELECT * FROM verbs('a', '1.5');
SELECT ttl_docs.upsert_document('a', '{"id": 1.50, "n": 6}') - '_ts' AS same, ttl_docs.read_document('a', '1.500') - '_ts' AS read;
SELECT id, doc FROM a;
DROP TABLE a;
CREATE TABLE a (id float8 PRIMARY KEY, doc jsonb);
SELECT ttl_docs.adopt('a', 1000);
SELECT * FROM verbs('a', '0.1');
DROP TABLE a;

--
-- Strings of all kinds
--
CREATE TABLE a (id uuid PRIMARY KEY, doc jsonb);
SELECT ttl_docs.adopt('a', 1000);
SELECT * FROM verbs('a', '"aaaaaaaa-0000-4000-8000-000000000001"');
-- Another spelling of the same id.  Results use the spelling of the key.
SELECT ttl_docs.upsert_document('a', '{"id": "{AAAAAAAA-0000-4000-8000-000000000001}"}') - '_ts' AS a;
SELECT ttl_docs.patch_document('a', 'AAAAAAAA000040008000000000000001', '{"id": "aaaaaaaa-0000-4000-8000-000000000001", "n": 1}') - '_ts' AS a;
-- The key has no default, so the function makes a uuid.
SELECT (r ->> 'id')::uuid IS NOT NULL AS has_uuid, r - 'id' - '_ts' AS rest FROM ttl_docs.create_document('a', '{"n": 1}') AS r;
SELECT try($$ttl_docs.read_document('a', 'no uuid')$$);
DROP TABLE a;

CREATE TABLE a (id varchar(36) PRIMARY KEY, doc jsonb);
SELECT ttl_docs.adopt('a', 1000);
SELECT * FROM verbs('a', '"key"');
SELECT length(ttl_docs.create_document('a', '{}') ->> 'id') AS length_of_new_id;
SELECT try(format('ttl_docs.create_document(%L, %L)', 'a', jsonb_build_object('id', repeat('x', 37))));
SELECT try(format('ttl_docs.read_document(%L, %L)', 'a', repeat('x', 37)));
DROP TABLE a;
CREATE TABLE a (id char(5) PRIMARY KEY, doc jsonb);
SELECT ttl_docs.adopt('a', 1000);
SELECT * FROM verbs('a', '"key"');
DROP TABLE a;
CREATE TABLE a (id citext PRIMARY KEY, doc jsonb);
SELECT ttl_docs.adopt('a', 1000);
SELECT * FROM verbs('a', '"Key"');
SELECT ttl_docs.read_document('a', 'KEY') - '_ts' AS key, ttl_docs.create_document('a', '{}') ? 'id' AS new;
SELECT ttl_docs.upsert_document('a', '{"id": "kEY", "n": 6}') - '_ts' AS key;
SELECT r - '_ts' AS key FROM ttl_docs.documents('a', '{"id": "key", "n": 6}') AS r;
SELECT try($$ttl_docs.create_document('a', '{"id": "kEY"}')$$);
DROP TABLE a;
CREATE DOMAIN lower_text AS text CHECK (VALUE = lower(VALUE)) DEFAULT 'by default';
CREATE TABLE a (id lower_text PRIMARY KEY, doc jsonb);
SELECT ttl_docs.adopt('a', 1000);
SELECT * FROM verbs('a', '"key"');
SELECT ttl_docs.create_document('a', '{}') - '_ts' AS new;
SELECT try($$ttl_docs.create_document('a', '{"id": "Key"}')$$);
SELECT try($$ttl_docs.read_document('a', 'Key')$$);
DROP TABLE a;
CREATE DOMAIN positive AS int CHECK (VALUE > 0);
CREATE TABLE a (id positive PRIMARY KEY, doc jsonb);
SELECT ttl_docs.adopt('a', 1000);
SELECT * FROM verbs('a', '7');
SELECT try($$ttl_docs.create_document('a', '{"id": -7}')$$);
DROP TABLE a;
DROP DOMAIN lower_text, positive;
CREATE TYPE mood AS ENUM ('sad', 'happy');
CREATE TABLE a (id mood PRIMARY KEY, doc jsonb);
SELECT ttl_docs.adopt('a', 1000);
SELECT * FROM verbs('a', '"happy"');
SELECT try($$ttl_docs.create_document('a', '{"id": "other"}')$$);
SELECT try($$ttl_docs.create_document('a', '{}')$$);
DROP TABLE a;
DROP TYPE mood;

--
-- Keys with a default
--
CREATE TABLE a (id int GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, doc jsonb);
SELECT ttl_docs.adopt('a', 1000);
SELECT r - '_ts' AS new FROM ttl_docs.create_document('a', '{"n": 1}') AS r;
SELECT r - '_ts' AS new FROM ttl_docs.upsert_document('a', '{"id": null, "n": 2}') AS r;
SELECT * FROM verbs('a', '100');
SELECT id, doc FROM a ORDER BY id;
DROP TABLE a;
-- GENERATED ALWAYS: only the server makes the id, so a new document cannot bring one.
CREATE TABLE a (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, doc jsonb);
SELECT ttl_docs.adopt('a', 1000);
SELECT r - '_ts' AS new FROM ttl_docs.create_document('a', '{"n": 1}') AS r;
SELECT r - '_ts' AS new FROM ttl_docs.upsert_document('a', '{"n": 2}') AS r;
\set VERBOSITY sqlstate
SELECT ttl_docs.create_document('a', '{"id": 100}');
\set VERBOSITY default
SELECT ttl_docs.replace_document('a', '{"id": 2, "n": 3}') - '_ts' AS replaced, ttl_docs.patch_document('a', '1', '{"n": 4}') - '_ts' AS patched;
SELECT id, doc FROM a ORDER BY id;
DROP TABLE a;
CREATE TABLE a (id bigserial PRIMARY KEY, doc jsonb);
SELECT ttl_docs.adopt('a', 1000);
SELECT r - '_ts' AS new FROM ttl_docs.create_document('a', '{"n": 1}') AS r;
SELECT * FROM verbs('a', '100');
-- The id from the default may already be in use.
SELECT ttl_docs.create_document('a', '{"id": 2}') - '_ts' AS a;
SELECT try($$ttl_docs.upsert_document('a', '{"n": 2}')$$);
SELECT r - '_ts' AS new FROM ttl_docs.upsert_document('a', '{"n": 2}') AS r;
DROP TABLE a;
-- DEFAULT NULL counts as no default.
CREATE TABLE a (id text DEFAULT NULL PRIMARY KEY, doc jsonb);
SELECT ttl_docs.adopt('a', 1000);
SELECT length(ttl_docs.create_document('a', '{}') ->> 'id') AS length_of_new_id;
DROP TABLE a;
-- A default that reads the collection
CREATE TABLE a (id text PRIMARY KEY, doc jsonb);
CREATE FUNCTION next_id() RETURNS text LANGUAGE sql AS $$ SELECT 'number ' || count(*) FROM a $$;
ALTER TABLE a ALTER id SET DEFAULT next_id();
SELECT ttl_docs.adopt('a', 1000);
SELECT r - '_ts' AS new FROM ttl_docs.create_document('a', '{"ttl": 100}') AS r;
SELECT r - '_ts' AS new FROM ttl_docs.create_document('a', '{"ttl": 100}') AS r;
SET ttl_docs.clock_offset = 100;
SELECT r - '_ts' AS new FROM ttl_docs.create_document('a', '{"ttl": 100}') AS r;
RESET ttl_docs.clock_offset;
DROP TABLE a;
DROP FUNCTION next_id();
-- A key generated from the document, so that the key and "id" are always the same
CREATE TABLE a (id text GENERATED ALWAYS AS (doc ->> 'id') STORED PRIMARY KEY, doc jsonb);
SELECT ttl_docs.adopt('a', 1000);
SELECT * FROM verbs('a', '"key"');
SELECT length(ttl_docs.create_document('a', '{}') ->> 'id') AS length_of_new_id;
SELECT count(*) FROM a WHERE id = doc ->> 'id';
DROP TABLE a;
CREATE TABLE a (id int GENERATED ALWAYS AS ((doc ->> 'id')::int) STORED PRIMARY KEY, doc jsonb);
SELECT ttl_docs.adopt('a', 1000);
SELECT * FROM verbs('a', '5');
SELECT try($$ttl_docs.create_document('a', '{}')$$);
DROP TABLE a;
-- A key generated from another property: nobody could find the document by its id.
CREATE TABLE a (slug text GENERATED ALWAYS AS (doc ->> 'slug') STORED PRIMARY KEY, doc jsonb);
SELECT ttl_docs.adopt('a', 1000);
SELECT try($$ttl_docs.create_document('a', '{"id": "x", "slug": "y"}')$$);
SELECT try($$ttl_docs.create_document('a', '{"slug": "y"}')$$);
SELECT count(*) FROM a;
DROP TABLE a;

--
-- Names, other columns and other documents
--
CREATE SCHEMA "My ""Schema";
CREATE TABLE "My ""Schema"."A, b; --" (x int DEFAULT 5, "The 'key' $1" text, "Doc.""ument" jsonb, other jsonb, note text NOT NULL DEFAULT 'none',
    PRIMARY KEY ("The 'key' $1"));
SELECT ttl_docs.adopt('"My ""Schema"."A, b; --"', 1000, doc_column => 'Doc."ument');
SELECT * FROM verbs('"My ""Schema"."A, b; --"', '"key"');
UPDATE "My ""Schema"."A, b; --" SET x = 6, other = '{"n": 0}', note = 'kept';
SELECT count(ttl_docs.replace_document('"My ""Schema"."A, b; --"', '{"id": "key", "n": 6}')), count(ttl_docs.upsert_document('"My ""Schema"."A, b; --"', '{"id": "key", "n": 7}'));
SELECT x, "The 'key' $1" AS key, "Doc.""ument" AS doc, other, note FROM "My ""Schema"."A, b; --";
SELECT try($$ttl_docs.read_document('"My ""Schema"."A, b; --"', 'none')$$);
SELECT try($$ttl_docs.patch_document('"My ""Schema"."A, b; --"', 'none', '{}')$$);
\set VERBOSITY terse
DROP SCHEMA "My ""Schema" CASCADE;
\set VERBOSITY default
-- Keywords as names
CREATE TABLE "table" ("select" int PRIMARY KEY, "default" jsonb);
SELECT ttl_docs.adopt('"table"', 1000);
SELECT * FROM verbs('"table"', '1');
DROP TABLE "table";
-- A NOT NULL column that a new document cannot fill
CREATE TABLE a (id text PRIMARY KEY, doc jsonb, owner text NOT NULL);
SELECT ttl_docs.adopt('a', 1000);
SELECT try($$ttl_docs.create_document('a', '{"id": "x"}')$$);
INSERT INTO a VALUES ('x', '{}', 'me');
SELECT ttl_docs.patch_document('a', 'x', '{"n": 1}') - '_ts' AS x;
DROP TABLE a;
-- Documents that are null or not an object, and an "id" property that differs from the
-- key
CREATE TABLE a (id int PRIMARY KEY, doc jsonb);
INSERT INTO a VALUES (1, NULL), (2, '[{"id": 2}]'), (3, '{"id": 7, "_ts": 8}'), (4, '{"id": "4"}'), (5, '{"id": 5.0}'), (6, '{"id": null}'), (7, '{"id": {"x": 1}}');
SELECT ttl_docs.adopt('a', 1000);
SELECT id, CASE jsonb_typeof(r) WHEN 'object' THEN r - '_ts' ELSE r END AS read, jsonb_typeof(r -> '_ts') AS ts FROM a, LATERAL ttl_docs.read_document('a', id::text) AS r ORDER BY id;
SELECT jsonb_typeof(r) AS type, count(*) FROM ttl_docs.documents('a') AS r GROUP BY 1 ORDER BY 1;
SELECT r - '_ts' AS seven FROM ttl_docs.documents('a', '{"id": 7}') AS r;
SELECT id, try(format('ttl_docs.patch_document(%L, %L, %L) - ''_ts''', 'a', id, '{"n": 1}')) FROM a ORDER BY id;
SELECT id, doc FROM a ORDER BY id;
SELECT count(ttl_docs.replace_document('a', jsonb_build_object('id', id))) FROM a;
SELECT id, doc FROM a ORDER BY id;
DROP TABLE a;

--
-- Unsuitable keys
--
CREATE TABLE a (id int, doc jsonb);
CREATE UNIQUE INDEX ON a (id);
SELECT ttl_docs.adopt('a', 1000);
SELECT call, try(call) FROM unnest(ARRAY[
    $$ttl_docs.create_document('a', '{}')$$,
    $$ttl_docs.read_document('a', '1')$$,
    $$ttl_docs.replace_document('a', '{"id": 1}')$$,
    $$ttl_docs.upsert_document('a', '{"id": 1}')$$,
    $$ttl_docs.patch_document('a', '1', '{}')$$,
    $$ttl_docs.delete_document('a', '1')$$,
    $$ttl_docs.touch_document('a', '1')$$,
    $$ttl_docs.documents('a')$$]) AS call;
DROP TABLE a;
CREATE TABLE a (tenant int, id int, doc jsonb, PRIMARY KEY (tenant, id));
SELECT ttl_docs.adopt('a', 1000);
SELECT call, try(call) FROM unnest(ARRAY[
    $$ttl_docs.create_document('a', '{"id": 1}')$$,
    $$ttl_docs.read_document('a', '1')$$,
    $$ttl_docs.documents('a', '{"id": 1}')$$]) AS call;
DROP TABLE a;
-- Included columns are not part of the key.
CREATE TABLE a (id int, tenant int, doc jsonb, PRIMARY KEY (id) INCLUDE (tenant));
SELECT ttl_docs.adopt('a', 1000);
SELECT * FROM verbs('a', '1');
DROP TABLE a;
-- A deferrable key: the deferred check finds a duplicate, and the key cannot be an ON
-- CONFLICT arbiter.
CREATE TABLE a (id int PRIMARY KEY DEFERRABLE INITIALLY DEFERRED, doc jsonb);
SELECT ttl_docs.adopt('a', 1000);
SELECT ttl_docs.create_document('a', '{"id": 1, "ttl": 100}') - '_ts' AS a;
BEGIN;
SELECT ttl_docs.create_document('a', '{"id": 1}') - '_ts' AS a;
COMMIT;
\echo :SQLSTATE
SELECT try($$ttl_docs.upsert_document('a', '{"id": 1}')$$);
SELECT ttl_docs.patch_document('a', '1', '{"n": 1}') - '_ts' AS a;
SET ttl_docs.clock_offset = 100;
SELECT ttl_docs.create_document('a', '{"id": 1, "again": true}') - '_ts' AS a;
RESET ttl_docs.clock_offset;
DROP TABLE a;

--
-- Partitions
--
CREATE TABLE a (id text PRIMARY KEY, doc jsonb) PARTITION BY LIST (id);
CREATE TABLE a_x PARTITION OF a FOR VALUES IN ('x', 'key');
-- A partition with columns in a different order
CREATE TABLE a_y (doc jsonb, dropped int, id text NOT NULL);
ALTER TABLE a_y DROP COLUMN dropped;
ALTER TABLE a ATTACH PARTITION a_y FOR VALUES IN ('y');
SELECT ttl_docs.adopt('a', 1000);
SELECT * FROM verbs('a', '"key"');
SELECT * FROM verbs('a', '"y"');
SELECT tableoid::regclass, id, doc FROM a ORDER BY id;
-- A single partition
SELECT * FROM verbs('a_x', '"x"');
SELECT ttl_docs.read_document('a_y', 'y') - '_ts' AS y, ttl_docs.read_document('a_y', 'x') AS x;
SELECT ttl_docs.upsert_document('a_y', '{"id": "y", "n": 9, "ttl": 100}') - '_ts' AS y;
SELECT try($$ttl_docs.create_document('a', '{"id": "z"}')$$);
SELECT r - '_ts' AS r FROM ttl_docs.documents('a') AS r ORDER BY r ->> 'id';
SET ttl_docs.clock_offset = 100;
SELECT ttl_docs.read_document('a', 'y') AS y, ttl_docs.read_document('a_y', 'y') AS y, (SELECT count(*) FROM ttl_docs.documents('a')) AS n,
       (SELECT count(*) FROM ttl_docs.documents('a_y')) AS in_y;
SELECT ttl_docs.create_document('a', '{"id": "y", "again": true}') - '_ts' AS y;
RESET ttl_docs.clock_offset;
-- A detached partition, and a new one
ALTER TABLE a DETACH PARTITION a_y;
SELECT ttl_docs.read_document('a', 'y') AS y, ttl_docs.read_document('a_y', 'y') - '_ts' AS y;
CREATE TABLE a_z PARTITION OF a FOR VALUES IN ('y', 'z');
SELECT * FROM verbs('a', '"z"');
DROP TABLE a, a_y;
-- Partitioned by another column, so the key has two columns
CREATE TABLE a (id int, at date, doc jsonb, PRIMARY KEY (id, at)) PARTITION BY RANGE (at);
SELECT ttl_docs.adopt('a', 1000);
SELECT try($$ttl_docs.read_document('a', '1')$$);
DROP TABLE a;

DROP FUNCTION verbs(regclass, jsonb), try(text);
DROP EXTENSION citext;
