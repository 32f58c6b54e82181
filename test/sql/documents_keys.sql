-- Keys that differ from the "id" that the client sent
\set SHOW_CONTEXT never

-- A generated key has the output format of its type, in whatever format the id was
-- sent.
CREATE TABLE g (id uuid GENERATED ALWAYS AS ((doc->>'id')::uuid) STORED PRIMARY KEY, doc jsonb);
SELECT ttl_docs.adopt('g', 6000);
SELECT ttl_docs.create_document('g', '{"id": "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11"}') - '_ts' AS doc;
SELECT ttl_docs.upsert_document('g', '{"id": "{a0eebc999c0b4ef8bb6d6bb9bd380a11}", "v": 2}') - '_ts' AS doc;
SELECT count(*) FROM g;
DROP TABLE g;

-- A key generated from another property: a write would move the document to another id.
CREATE TABLE g (sku text GENERATED ALWAYS AS (doc->>'sku') STORED PRIMARY KEY, doc jsonb);
SELECT ttl_docs.adopt('g', 6000);
INSERT INTO g (doc) VALUES ('{"sku": "a"}');
SELECT ttl_docs.read_document('g', 'a') - '_ts' AS doc;
SELECT ttl_docs.replace_document('g', '{"id": "a", "sku": "b"}');
SELECT ttl_docs.patch_document('g', 'a', '{"sku": "b"}');
SELECT ttl_docs.patch_document('g', 'a', '{"n": 1}') - '_ts' AS doc;
SELECT doc FROM g;
DROP TABLE g;

-- A trigger may change the document into one without an id.
CREATE TABLE g (id text GENERATED ALWAYS AS (coalesce(doc->>'id', 'x')) STORED PRIMARY KEY, doc jsonb);
CREATE FUNCTION make_array() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.doc := '["a", "b", "c"]';
    RETURN NEW;
END $$;
CREATE TRIGGER make_array BEFORE INSERT ON g FOR EACH ROW EXECUTE FUNCTION make_array();
SELECT ttl_docs.adopt('g', 6000);
SELECT ttl_docs.create_document('g', '{"id": "a"}');
DROP TABLE g;
DROP FUNCTION make_array();

-- A document that is NULL or not an object still has an id.
CREATE TABLE n (id text PRIMARY KEY, doc jsonb);
SELECT ttl_docs.adopt('n', 6000);
INSERT INTO n VALUES ('null', NULL), ('array', '[1]');
SELECT ttl_docs.documents('n', '{"id": "null"}') - '_ts' AS doc;
SELECT ttl_docs.documents('n', '{"id": "array"}') AS doc;
SELECT ttl_docs.documents('n', '{"id": "array", "v": 1}') AS doc;
DROP TABLE n;

-- Types whose cast to text differs from their output function
CREATE TABLE i (id inet PRIMARY KEY, doc jsonb);
SELECT ttl_docs.adopt('i', 6000);
SELECT ttl_docs.create_document('i', '{"id": "1.2.3.4"}') - '_ts' AS doc;
SELECT ttl_docs.documents('i') - '_ts' AS doc;
DROP TABLE i;

-- The default of the key is not a valid JSON number.
CREATE TABLE f (id float8 PRIMARY KEY DEFAULT 'NaN', doc jsonb);
SELECT ttl_docs.adopt('f', 6000);
SELECT ttl_docs.create_document('f', '{}') - '_ts' AS doc;
SELECT doc::text::jsonb FROM f;
SELECT ttl_docs.read_document('f', 'NaN') - '_ts' AS doc;
DROP TABLE f;

-- The collation of the column differs from that of its type.
CREATE DOMAIN code AS text COLLATE "C";
CREATE TABLE c (id code COLLATE "POSIX" PRIMARY KEY, doc jsonb);
SELECT ttl_docs.adopt('c', 6000);
SELECT ttl_docs.upsert_document('c', '{"id": "a"}') - '_ts' AS doc;
SELECT ttl_docs.read_document('c', 'a') - '_ts' AS doc;
DROP TABLE c;
DROP DOMAIN code;

-- The type decides whether the id in a patch is the same id.
CREATE TABLE m (id numeric PRIMARY KEY, doc jsonb);
SELECT ttl_docs.adopt('m', 6000);
INSERT INTO m VALUES (1.50, '{}');
SELECT ttl_docs.patch_document('m', '1.50', '{"id": 1.5, "v": 1}') - '_ts' AS doc;
SELECT ttl_docs.patch_document('m', '1.5', '{"id": "1.500", "v": 2}') - '_ts' AS doc;
SELECT ttl_docs.patch_document('m', '1.5', '{"id": 1.51}');
DROP TABLE m;

-- The document itself cannot be the id.
CREATE TABLE j (doc jsonb PRIMARY KEY);
SELECT ttl_docs.adopt('j', 6000);
SELECT ttl_docs.read_document('j', '{}');
DROP TABLE j;

-- Without an id there is nothing to find, so the function does not lock a table that
-- the caller has no privilege on.
CREATE ROLE regress_ttl_nobody;
CREATE TABLE secret (id text PRIMARY KEY, doc jsonb);
SELECT ttl_docs.adopt('secret', 6000);
SET ROLE regress_ttl_nobody;
BEGIN;
SELECT ttl_docs.read_document('secret', NULL), ttl_docs.touch_document('secret', NULL),
       ttl_docs.delete_document('secret', NULL);
SELECT count(*) FROM pg_locks WHERE relation = 'secret'::regclass;
COMMIT;
RESET ROLE;
DROP TABLE secret;
DROP ROLE regress_ttl_nobody;

-- The check of a domain runs for a write, but not for a read, as in SQL.  During a
-- write, the check cannot change the primary key of the table.
CREATE FUNCTION change_key(v int) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('test.change_key', true) = 'on' THEN
        PERFORM set_config('test.change_key', 'off', false);
        ALTER TABLE t DROP CONSTRAINT t_pkey;
        ALTER TABLE t ADD PRIMARY KEY (name);
        PERFORM ttl_docs.read_document('t', 'x');
    END IF;
    RETURN true;
END $$;
CREATE DOMAIN number AS int CHECK (change_key(VALUE));
CREATE TABLE t (id number PRIMARY KEY, name text, doc jsonb);
SELECT ttl_docs.adopt('t', 6000);
SET test.change_key = 'on';
SELECT ttl_docs.read_document('t', '16');
SET test.change_key = 'on';
SELECT ttl_docs.upsert_document('t', '{"id": 16}');
DROP TABLE t;
DROP DOMAIN number;
DROP FUNCTION change_key(int);
