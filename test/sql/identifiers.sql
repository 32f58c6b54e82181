-- Any identifier works: names of tables, schemas, columns, indexes and triggers that
-- need quotes, contain quotes, dots, spaces, percent signs or Unicode, or equal the
-- names of ttl_docs columns and functions.  Each name goes through every function of
-- the extension and all code that builds SQL.
\set SHOW_CONTEXT never

-- Takes a table through its life as a collection, and returns what it saw.
CREATE FUNCTION life(t regclass, doc_column name DEFAULT NULL, last_modified name DEFAULT NULL)
RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    seen text[];
    n int;
    doc name;
BEGIN
    PERFORM ttl_docs.adopt(t, 1000, doc_column, last_modified);
    SELECT c.doc_column INTO doc FROM ttl_docs.collections AS c WHERE collection = t;
    seen := seen || format('document column %I', doc);
    EXECUTE format('INSERT INTO %s (%I) VALUES (%L), (%L)', t, doc, '{"ttl": 100, "k": 1}', '{"k": 2}');
    EXECUTE format('UPDATE %s SET %I = %I || %L WHERE %I @> %L', t, doc, doc, '{"v": 3}', doc, '{"k": 2}');
    EXECUTE format('SELECT count(*) FROM %s WHERE _ttl = 100', t) INTO n;
    seen := seen || format('%s with a ttl', n);
    PERFORM ttl_docs.set_indexing(t, 'lazy');
    PERFORM ttl_docs.set_indexing(t, 'consistent');
    PERFORM ttl_docs.set_default_ttl(t, NULL);
    PERFORM ttl_docs.set_default_ttl(t, 2000);
    seen := seen || format('DefaultTTL %s', ttl_docs.get_default_ttl(t));
    SELECT expire_now INTO n FROM ttl_docs.preview(t, 1);
    seen := seen || format('preview %s', n);
    EXECUTE format('INSERT INTO %s (%I) VALUES (%L)', t, doc, '{"ttl": 0}');
    RETURN 'an invalid ttl went in';
EXCEPTION WHEN invalid_parameter_value THEN
    RETURN array_to_string(seen, ', ') || ': ' || sqlerrm;
END $$;

-- The exception in life() rolls everything back.  dies() adopts the table again without
-- an exception, and lets a document expire.
CREATE FUNCTION dies(t regclass, doc_column name DEFAULT NULL, last_modified name DEFAULT NULL)
RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    n int;
    m int;
    doc name;
BEGIN
    PERFORM ttl_docs.adopt(t, 1000, doc_column, last_modified);
    SELECT c.doc_column INTO doc FROM ttl_docs.collections AS c WHERE collection = t;
    EXECUTE format('INSERT INTO %s (%I) VALUES (%L), (%L)', t, doc, '{"ttl": 100}', '{}');
    EXECUTE format('SELECT count(*) FROM %s', t) INTO n;
    SET LOCAL ttl_docs.clock_offset = 100;
    EXECUTE format('SELECT count(*) FROM %s', t) INTO m;
    PERFORM ttl_docs.release(t);
    SET LOCAL ttl_docs.clock_offset = 0;
    RETURN format('%s live, then %s', n, m);
END $$;

CREATE SCHEMA "A ""quoted"" schema.with dots";
CREATE SCHEMA "été";
CREATE TABLE "Order Items" (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, "Doc" jsonb);
CREATE TABLE "A ""quoted"" schema.with dots"."it's a ""table"".x" ("the ""doc"" o'k" jsonb, "when"  timestamptz);
CREATE TABLE "été"."Größe 表 🦀" ("документ" jsonb);
CREATE TABLE "100%s %d \" ("%s" jsonb);
CREATE TABLE "select" ("from" jsonb, "table" text);
CREATE TABLE "ttl_docs" (ttl jsonb, _id int, "_TTL" int, "_Ts" text);
CREATE TABLE "_ts" ("_doc" jsonb, ttl int, ts text);
CREATE TABLE dollar$1 (doc$1 jsonb);
CREATE TABLE "pk" (x jsonb, pk int);
CREATE TABLE abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefghijk
    (abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefghijk jsonb);
-- Three jsonb columns: one is named ttl, and two names differ only in case.
CREATE TABLE three ("ttl" jsonb, "doc" jsonb, "Doc" jsonb);

SELECT life('"Order Items"');
SELECT dies('"Order Items"');
SELECT life('"A ""quoted"" schema.with dots"."it''s a ""table"".x"', last_modified => 'when');
SELECT dies('"A ""quoted"" schema.with dots"."it''s a ""table"".x"', 'the "doc" o''k', 'when');
SELECT life('"été"."Größe 表 🦀"');
SELECT dies('"été"."Größe 表 🦀"');
SELECT life('"100%s %d \"');
SELECT dies('"100%s %d \"');
SELECT life('"select"');
SELECT dies('"select"', 'from');
SELECT life('"ttl_docs"');
SELECT dies('"ttl_docs"');
SELECT life('"_ts"');
SELECT dies('"_ts"');
SELECT life('dollar$1');
SELECT dies('dollar$1');
SELECT life('pk');
SELECT dies('pk');
SELECT life('abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefghijk');
SELECT dies('abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefghijk');
SELECT life('three', 'ttl');
SELECT life('three', 'Doc');
SELECT dies('three', 'doc');

-- Nothing is left of any collection.
SELECT count(*) FROM ttl_docs.collections;
SELECT count(*) FROM pg_attribute WHERE attname IN ('_ts', '_ttl', '_slot') AND attnum > 0
   AND attrelid >= 16384 AND NOT attisdropped;

-- Messages, hints and the view show names unchanged.
SELECT ttl_docs.adopt('"A ""quoted"" schema.with dots"."it''s a ""table"".x"', 1000);
SELECT collection, doc_column FROM ttl_docs.collections;
ALTER TABLE "A ""quoted"" schema.with dots"."it's a ""table"".x" RENAME COLUMN "the ""doc"" o'k" TO "ünï ""code""";
SELECT collection, doc_column FROM ttl_docs.collections;
ALTER TABLE "A ""quoted"" schema.with dots"."it's a ""table"".x" DROP COLUMN "ünï ""code""";
\echo :SQLSTATE
ALTER TABLE "A ""quoted"" schema.with dots"."it's a ""table"".x" DISABLE TRIGGER ALL;
SELECT ttl_docs.set_indexing('"A ""quoted"" schema.with dots"."it''s a ""table"".x"', 'none');
\echo :SQLSTATE
CREATE INDEX "an ""index" ON "A ""quoted"" schema.with dots"."it's a ""table"".x" (_slot);
\set VERBOSITY terse
DROP SCHEMA "A ""quoted"" schema.with dots" CASCADE;
\set VERBOSITY default
SELECT count(*) FROM ttl_docs.collections;

-- A purge index with another name, in another mode
SELECT ttl_docs.adopt('"Order Items"', 1000);
ALTER INDEX "Order Items__slot_idx" RENAME TO "my ""purge"" index";
SELECT ttl_docs.set_indexing('"Order Items"', 'lazy');
SELECT indexdef FROM pg_indexes WHERE tablename = 'Order Items' ORDER BY indexname COLLATE "C";
DROP TABLE "Order Items";

-- The extension uses its own objects, whatever is in search_path.
CREATE SCHEMA evil;
CREATE FUNCTION evil.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS $$ SELECT '2000-01-01'::timestamptz $$;
CREATE FUNCTION evil.document_ttl(jsonb) RETURNS int LANGUAGE sql AS $$ SELECT 1 $$;
CREATE FUNCTION evil.count("any") RETURNS bigint LANGUAGE internal AS 'int8inc' STRICT;
CREATE FUNCTION evil.int8eq(bigint, bigint) RETURNS boolean LANGUAGE sql AS $$ SELECT NOT pg_catalog.int8eq($1, $2) $$;
CREATE OPERATOR evil.= (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = evil.int8eq);
CREATE FUNCTION evil.int4eq(int, int) RETURNS boolean LANGUAGE sql AS $$ SELECT NOT pg_catalog.int4eq($1, $2) $$;
CREATE OPERATOR evil.= (LEFTARG = int, RIGHTARG = int, FUNCTION = evil.int4eq);
CREATE TABLE evil.three (id int);
CREATE DOMAIN evil.jsonb AS text;
SET search_path = evil, pg_catalog, public;
SELECT ttl_docs.adopt('public.three', 1000, 'doc');
SELECT ttl_docs.set_default_ttl('public.three', NULL);
SELECT ttl_docs.set_default_ttl('public.three', 3000);
SELECT ttl_docs.set_indexing('public.three', 'lazy');
SELECT live FROM ttl_docs.preview('public.three', 1);
SELECT ttl_docs.create_collection('public.made', 1000);
RESET search_path;
INSERT INTO three (doc) VALUES ('{"ttl": 7}') RETURNING _ttl, _ts > '2001-01-01' AS clock;
INSERT INTO made (doc) VALUES ('{"ttl": 7}') RETURNING _ttl, _ts > '2001-01-01' AS clock;
SELECT pg_get_expr(adbin, adrelid) FROM pg_attrdef WHERE adrelid = 'three'::regclass ORDER BY adnum;
SELECT * FROM ttl_docs.collections ORDER BY collection::text;
SET search_path = evil, pg_catalog, public;
SELECT ttl_docs.release('public.three');
SELECT ttl_docs.drop_collection('public.made');
RESET search_path;
\set VERBOSITY terse
SET client_min_messages = warning;
DROP SCHEMA evil CASCADE;
RESET client_min_messages;

DROP TABLE "été"."Größe 表 🦀", "100%s %d \", "select", "ttl_docs", "_ts", dollar$1, pk, three,
    abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefghijk;
DROP SCHEMA "été";
DROP FUNCTION life, dies;
SELECT count(*) FROM ttl_docs.collections;
