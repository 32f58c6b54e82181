-- create_collection() and drop_collection(): the objects they create, every argument,
-- the syntax of the name, and every refusal.  A refusal leaves nothing behind.
\set SHOW_CONTEXT never

-- create_collection() creates the table with the system columns last, the trigger with
-- ENABLE ALWAYS, the purge index, and a row in the view.
SELECT ttl_docs.create_collection('events', 6000);

SELECT a.attname, format_type(a.atttypid, a.atttypmod) AS type, a.attnotnull,
       a.attgenerated = '' AS plain, pg_get_expr(d.adbin, d.adrelid) AS "default"
  FROM pg_attribute AS a
  LEFT JOIN pg_attrdef AS d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
 WHERE a.attrelid = 'events'::regclass AND a.attnum > 0
 ORDER BY a.attnum;

SELECT indexdef FROM pg_indexes WHERE tablename = 'events' ORDER BY indexname;

SELECT tgname, tgenabled, tgfoid::regproc, pg_get_triggerdef(oid)
  FROM pg_trigger WHERE tgrelid = 'events'::regclass;

SELECT * FROM ttl_docs.collections WHERE collection = 'events'::regclass;

-- The default id is a uuid.  A document is required.
INSERT INTO events (doc) VALUES ('{"n": 1}') RETURNING id::uuid IS NOT NULL AS is_uuid;
INSERT INTO events (id, doc) VALUES ('mine', '{"n": 2}') RETURNING id;
INSERT INTO events (id, doc) VALUES ('mine', '{"n": 3}');
\set VERBOSITY terse
INSERT INTO events (id) VALUES ('none');
\set VERBOSITY default
SELECT count(*) FROM events;

-- Arguments: each mode of DefaultTTL and indexing
SELECT ttl_docs.create_collection('c_off');
SELECT ttl_docs.create_collection('c_null', NULL, 'none');
SELECT ttl_docs.create_collection('c_on', -1, 'lazy');
SELECT ttl_docs.create_collection(name => 'c_max', default_ttl => 2147483647, indexing => 'consistent');
SELECT ttl_docs.create_collection(indexing => 'lazy', name => 'c_lazy');

SELECT * FROM ttl_docs.collections ORDER BY collection::text COLLATE "C";
SELECT tablename, indexdef FROM pg_indexes
 WHERE tablename LIKE 'c\_%' AND indexdef LIKE '%(\_slot)%' ORDER BY tablename COLLATE "C";

-- The name follows the rules of SQL identifiers.
CREATE SCHEMA app;
CREATE SCHEMA "My ""own"" schema";
SELECT ttl_docs.create_collection('MixedCase');
SELECT ttl_docs.create_collection('"MixedCase"');
SELECT ttl_docs.create_collection('app.items');
SELECT ttl_docs.create_collection('"My ""own"" schema"."a.b ""c"" d''e"', 500);
SET search_path = app, public;
SELECT ttl_docs.create_collection('by_path');
RESET search_path;
SELECT length(ttl_docs.create_collection(repeat('n', 70))::text);
-- The name never means a temporary table or a system catalog.
CREATE TEMP TABLE shadow (id int, doc jsonb);
SELECT ttl_docs.create_collection('shadow', 700);
DROP TABLE pg_temp.shadow;
SELECT ttl_docs.create_collection('pg_class', 800);
SELECT n.nspname, c.relname, s.default_ttl
  FROM ttl_docs.collections AS s
  JOIN pg_class AS c ON c.oid = s.collection
  JOIN pg_namespace AS n ON n.oid = c.relnamespace
 WHERE n.nspname <> 'public' OR c.relname ILIKE 'mixedcase' OR c.relname IN ('shadow', 'pg_class')
 ORDER BY n.nspname COLLATE "C", c.relname COLLATE "C";

-- Refusals
SELECT ttl_docs.create_collection('events', 6000);
\echo :SQLSTATE
\set VERBOSITY sqlstate
SELECT ttl_docs.create_collection('nowhere.items');
SELECT ttl_docs.create_collection('otherdb.public.items');
SET search_path = '';
SELECT ttl_docs.create_collection('items');
RESET search_path;
\set VERBOSITY default
SELECT ttl_docs.create_collection('a.b.c.d');
\echo :SQLSTATE
SELECT ttl_docs.create_collection('');
\echo :SQLSTATE
SELECT ttl_docs.create_collection('two words');
\echo :SQLSTATE
SELECT ttl_docs.create_collection('"unclosed');
\echo :SQLSTATE
SELECT ttl_docs.create_collection('x; DROP TABLE events');
\echo :SQLSTATE
SELECT ttl_docs.create_collection(NULL);
\echo :SQLSTATE
SELECT ttl_docs.create_collection('refused', 6000, NULL);
\echo :SQLSTATE
SELECT ttl_docs.create_collection('refused', 0);
\echo :SQLSTATE
SELECT ttl_docs.create_collection('refused', -2);
\echo :SQLSTATE
SELECT ttl_docs.create_collection('refused', -2147483648);
\echo :SQLSTATE
SELECT ttl_docs.create_collection('refused', 6000, 'Consistent');
\echo :SQLSTATE
SELECT ttl_docs.create_collection('refused', 6000, '');
\echo :SQLSTATE
SELECT ttl_docs.create_collection('refused', 6000, 'none');
\echo :SQLSTATE
SELECT ttl_docs.create_collection('refused', -1, 'none');
\echo :SQLSTATE
SELECT ttl_docs.create_collection('pg_temp.refused', 6000);
\echo :SQLSTATE
SELECT ttl_docs.create_collection('pg_catalog.refused', 6000);
\echo :SQLSTATE
SELECT count(*) AS left_behind FROM pg_class WHERE relname IN ('refused', 'x', 'items') AND relnamespace <> 'app'::regnamespace;

-- After a rollback, the collection does not exist, not even in the cache.
BEGIN;
SELECT ttl_docs.create_collection('rolled_back', 6000);
INSERT INTO rolled_back VALUES ('a', '{}');
SELECT count(*) FROM rolled_back;
ROLLBACK;
SELECT to_regclass('rolled_back') IS NULL AS gone;
CREATE TABLE rolled_back (id int, doc jsonb);
INSERT INTO rolled_back VALUES (1, '{}');
SELECT * FROM rolled_back;
DROP TABLE rolled_back;

-- drop_collection() drops the table and everything on it.
SELECT ttl_docs.drop_collection('events');
SELECT to_regclass('events') IS NULL AS gone,
       (SELECT count(*) FROM ttl_docs.collections WHERE collection::text = 'events') AS labels;

BEGIN;
SELECT ttl_docs.drop_collection('c_max');
ROLLBACK;
SELECT ttl_docs.get_default_ttl('c_max');

-- drop_collection() drops only collections, and fails if other objects depend on the
-- table.
CREATE TABLE plain (id int, doc jsonb);
SELECT ttl_docs.drop_collection('plain');
\echo :SQLSTATE
CREATE VIEW v AS SELECT id FROM c_max;
SELECT ttl_docs.drop_collection('v');
\echo :SQLSTATE
SELECT ttl_docs.drop_collection('c_max');
\echo :SQLSTATE
SELECT ttl_docs.drop_collection(4294967295::oid::regclass);
\echo :SQLSTATE
SELECT ttl_docs.drop_collection('pg_class');
\echo :SQLSTATE
\set VERBOSITY sqlstate
SELECT ttl_docs.drop_collection(NULL);
\set VERBOSITY default
SELECT to_regclass('plain') IS NOT NULL AND to_regclass('c_max') IS NOT NULL AS still_there;

DROP VIEW v;
DROP TABLE plain;
SELECT count(ttl_docs.drop_collection(collection)) FROM ttl_docs.collections;
SELECT count(*) FROM ttl_docs.collections;
SELECT count(*) FROM pg_seclabel WHERE provider = 'ttl_docs';
DROP SCHEMA app, "My ""own"" schema";
