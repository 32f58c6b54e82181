-- The document functions use the same indexes as equivalent SQL.  Their cached plans
-- follow every change of the table.
\set SHOW_CONTEXT never

-- Counts the scans of an index, or the sequential scans of a table.
CREATE FUNCTION scans(what regclass) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_stat_clear_snapshot();
    RETURN pg_stat_get_numscans(what);
END $$;

--
-- Indexes
--
SELECT ttl_docs.create_collection('p', 1000);
INSERT INTO p SELECT i, jsonb_build_object('n', i, 'tags', jsonb_build_array(i % 100)) FROM generate_series(1, 10000) AS i;
CREATE INDEX p_gin ON p USING gin (doc jsonb_path_ops);
ANALYZE p;
SELECT pg_stat_force_next_flush();
SELECT scans('p_gin') AS gin, scans('p_pkey') AS pkey \gset before_
SELECT count(*) FROM ttl_docs.documents('p', '{"n": 77}');
SELECT count(*) FROM ttl_docs.documents('p', '{"tags": [5]}');
SELECT pg_stat_force_next_flush();
SELECT scans('p_gin') - :before_gin AS gin, scans('p_pkey') - :before_pkey AS pkey;
-- documents() finds the id of a filter by the primary key.
SELECT scans('p_gin') AS gin, scans('p_pkey') AS pkey \gset before_
SELECT count(*) FROM ttl_docs.documents('p', '{"id": "77", "n": 77}');
SELECT pg_stat_force_next_flush();
SELECT scans('p_pkey') > :before_pkey AS by_pkey;
-- The other functions also find documents by the primary key.
SELECT scans('p_pkey') AS pkey, scans('p') AS sequential \gset before_
SELECT count(ttl_docs.read_document('p', i::text)), count(ttl_docs.touch_document('p', i::text)), count(ttl_docs.patch_document('p', i::text, '{"m": 1}')),
       count(ttl_docs.replace_document('p', jsonb_build_object('id', i::text))), count(ttl_docs.delete_document('p', i::text))
  FROM generate_series(1, 10) AS i;
SELECT pg_stat_force_next_flush();
SELECT scans('p_pkey') - :before_pkey AS by_pkey, scans('p') - :before_sequential AS sequential;
-- The same for a user under row-level security, and in a function with its own
-- search_path
CREATE ROLE regress_ttl_user;
GRANT ALL ON p TO regress_ttl_user;
ALTER TABLE p ENABLE ROW LEVEL SECURITY;
CREATE POLICY even ON p USING (right(id, 1) IN ('0', '2', '4', '6', '8'));
SELECT scans('p_pkey') AS pkey \gset before_
SET ROLE regress_ttl_user;
SET search_path = '';
SELECT ttl_docs.read_document('public.p', '12') - '_ts' AS even, ttl_docs.read_document('public.p', '13') AS odd;
RESET search_path;
RESET ROLE;
SELECT pg_stat_force_next_flush();
SELECT scans('p_pkey') - :before_pkey AS by_pkey;
ALTER TABLE p DISABLE ROW LEVEL SECURITY;
DROP POLICY even ON p;
-- Filters of all kinds return the same as SQL, with and without the index.
CREATE FUNCTION same(filter jsonb) RETURNS text LANGUAGE sql AS $$
    SELECT CASE WHEN (SELECT jsonb_agg(d - '_ts' - 'id' ORDER BY d ->> 'id') FROM ttl_docs.documents('p', filter) AS d)
                     IS NOT DISTINCT FROM (SELECT jsonb_agg(doc - 'id' ORDER BY id) FROM p WHERE doc @> filter)
           THEN 'same' ELSE 'differs' END;
$$;
INSERT INTO p VALUES ('e', '{"e": {}, "n": null, "a": [1, [2]], "s": "x", "b": true}');
SELECT filter, same(filter), count FROM (SELECT f::jsonb AS filter, (SELECT count(*) FROM ttl_docs.documents('p', f::jsonb)) AS count
  FROM unnest(ARRAY['{"e": {}}', '{"n": null}', '{"a": [2]}', '{"a": [[2]]}', '{"a": []}', '{"b": true, "s": "x"}', '{"n": 50}', '{"n": 50.0}', '{"tags": [99]}', '{}', '{"none": 1}']) AS f) AS f;
SET enable_bitmapscan = off;
SELECT count(*) FROM unnest(ARRAY['{"e": {}}', '{"n": null}', '{"a": [2]}', '{"a": [[2]]}', '{"a": []}', '{"n": 50.0}', '{"tags": [99]}', '{}']::jsonb[]) AS f WHERE same(f) = 'same';
RESET enable_bitmapscan;
-- With parallel workers
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET min_parallel_table_scan_size = 0;
SELECT count(*), min(d ->> 'id') FROM ttl_docs.documents('p') AS d;
SELECT count(*) FROM p WHERE ttl_docs.read_document('p', id) ->> 'id' = id;
SELECT count(*) FROM p AS a WHERE EXISTS (SELECT FROM ttl_docs.documents('p', jsonb_build_object('id', a.id)));
SET ttl_docs.clock_offset = 1000;
SELECT count(*) FROM ttl_docs.documents('p') AS d;
RESET ttl_docs.clock_offset;
RESET parallel_setup_cost;
RESET parallel_tuple_cost;
RESET min_parallel_table_scan_size;
DROP FUNCTION same(jsonb);
DROP TABLE p;
DROP ROLE regress_ttl_user;

--
-- Changes of the table.  Each function has a cached plan before the change, and is
-- called again after it.
--
-- Calls all functions, and returns the resulting document and three counts of
-- documents: all, those with v = 2, and those with v = 2 and this id.
CREATE FUNCTION verbs(t regclass, id text DEFAULT '1') RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    doc jsonb := jsonb_build_object('id', id, 'v', 0);
BEGIN
    PERFORM ttl_docs.upsert_document(t, doc);
    PERFORM ttl_docs.patch_document(t, id, '{"patched": true}');
    PERFORM ttl_docs.touch_document(t, id);
    PERFORM ttl_docs.delete_document(t, id);
    PERFORM ttl_docs.create_document(t, doc);
    PERFORM ttl_docs.replace_document(t, doc || '{"v": 1}');
    PERFORM ttl_docs.patch_document(t, id, '{"v": 2}');
    RETURN concat_ws(', ', ttl_docs.read_document(t, id) - '_ts', (SELECT count(*) FROM ttl_docs.documents(t)), (SELECT count(*) FROM ttl_docs.documents(t, '{"v": 2}')),
                     (SELECT count(*) FROM ttl_docs.documents(t, doc || '{"v": 2}')));
EXCEPTION WHEN OTHERS THEN
    RETURN SQLSTATE || ' ' || SQLERRM;
END $$;

CREATE SCHEMA s1;
CREATE TABLE s1.p (id int PRIMARY KEY, other text, doc jsonb, doc2 jsonb);
SELECT ttl_docs.adopt('s1.p', 1000, 'doc');
SELECT 's1.p'::regclass::oid AS p \gset
SELECT verbs(:p);
ALTER TABLE s1.p RENAME TO q;
SELECT verbs(:p);
-- A new table now has the old name.
CREATE TABLE s1.p (id int PRIMARY KEY, doc jsonb);
SELECT ttl_docs.adopt('s1.p', 1000);
SELECT verbs(:p), verbs('s1.p');
INSERT INTO s1.p VALUES (2, '{"v": 2}');
SELECT verbs(:p), verbs('s1.p');
DROP TABLE s1.p;
ALTER TABLE s1.q RENAME TO p;
ALTER TABLE s1.p RENAME id TO key;
SELECT verbs(:p);
ALTER TABLE s1.p RENAME doc TO document;
SELECT verbs(:p);
ALTER TABLE s1.p SET SCHEMA public;
SELECT verbs(:p);
ALTER TABLE p SET SCHEMA s1;
ALTER SCHEMA s1 RENAME TO s2;
SELECT verbs(:p);
-- Schemas are renamed.
CREATE SCHEMA s1;
CREATE TABLE s1.p (key int PRIMARY KEY, document jsonb);
SELECT ttl_docs.adopt('s1.p', 1000);
SELECT 's1.p'::regclass::oid AS p1 \gset
INSERT INTO s1.p VALUES (3, '{"v": 2}'), (4, '{"v": 2}');
SELECT verbs(:p), verbs(:p1);
ALTER SCHEMA s1 RENAME TO s3;
ALTER SCHEMA s2 RENAME TO s1;
ALTER SCHEMA s3 RENAME TO s2;
SELECT verbs(:p), verbs(:p1);
DROP TABLE s2.p;
DROP SCHEMA s2;
-- The primary key changes its constraint name, its type and its columns, and is
-- dropped.
ALTER TABLE s1.p RENAME CONSTRAINT p_pkey TO pk;
SELECT verbs(:p);
ALTER TABLE s1.p ALTER key TYPE bigint;
SELECT verbs(:p, '3000000000');
ALTER TABLE s1.p ALTER key TYPE text;
SELECT verbs(:p, 'a');
UPDATE s1.p SET other = key;
ALTER TABLE s1.p DROP CONSTRAINT pk;
SELECT verbs(:p);
ALTER TABLE s1.p ADD PRIMARY KEY (other), ALTER key DROP NOT NULL;
SELECT verbs(:p, 'b');
ALTER TABLE s1.p DROP CONSTRAINT p_pkey, ADD PRIMARY KEY (other, _ts);
SELECT verbs(:p);
ALTER TABLE s1.p DROP CONSTRAINT p_pkey, ADD PRIMARY KEY (other);
SELECT verbs(:p, 'b');
-- The default of the key changes.
ALTER TABLE s1.p ALTER other SET DEFAULT 'by default';
SELECT ttl_docs.create_document(:p, '{}') - '_ts' AS new;
ALTER TABLE s1.p ALTER other SET DEFAULT 'by another';
SELECT ttl_docs.create_document(:p, '{}') - '_ts' AS new;
-- Columns before and after the key change.
ALTER TABLE s1.p DROP COLUMN key, ADD COLUMN more int DEFAULT 7;
SELECT verbs(:p, 'b');
-- The table is rewritten.
VACUUM FULL s1.p;
SELECT verbs(:p, 'b');
TRUNCATE s1.p;
SELECT verbs(:p, 'b');
REINDEX TABLE s1.p;
REINDEX INDEX CONCURRENTLY s1.p_pkey;
SELECT verbs(:p, 'b');
-- The settings change.
SELECT ttl_docs.set_default_ttl(:p, 10);
SELECT verbs(:p, 'b');
SET ttl_docs.clock_offset = 10;
SELECT ttl_docs.read_document(:p, 'b'), (SELECT count(*) FROM ttl_docs.documents(:p));
RESET ttl_docs.clock_offset;
SELECT ttl_docs.set_default_ttl(:p, NULL);
SET ttl_docs.clock_offset = 10;
SELECT ttl_docs.read_document(:p, 'b') - '_ts' AS b;
RESET ttl_docs.clock_offset;
SELECT ttl_docs.release(:p);
SELECT verbs(:p);
SELECT ttl_docs.adopt(:p, 1000, 'doc2');
SELECT verbs(:p, 'c');
SELECT other, document, doc2 FROM s1.p ORDER BY other;
-- The table is dropped and created again with another OID.
DROP TABLE s1.p;
SELECT left(verbs(:p), 5);
SELECT ttl_docs.create_collection('s1.p', 1000);
SELECT verbs('s1.p');
-- A rollback
BEGIN;
DROP TABLE s1.p;
CREATE TABLE s1.p (id int PRIMARY KEY, doc jsonb);
SELECT ttl_docs.adopt('s1.p', 1000);
SELECT verbs('s1.p', '5');
ROLLBACK;
SELECT verbs('s1.p', 'five');
BEGIN;
SAVEPOINT s;
ALTER TABLE s1.p RENAME id TO key;
SELECT verbs('s1.p');
ROLLBACK TO s;
SELECT verbs('s1.p');
COMMIT;
DISCARD PLANS;
SELECT verbs('s1.p');
-- A PL/pgSQL function, whose plans PostgreSQL caches as well
DO $$
BEGIN
    FOR i IN 1..3 LOOP
        RAISE NOTICE '%', verbs('s1.p');
        ALTER TABLE s1.p RENAME id TO key;
        RAISE NOTICE '%', verbs('s1.p');
        ALTER TABLE s1.p RENAME key TO id;
    END LOOP;
END $$;

--
-- In a trigger of the same statement
--
-- The plan that fired the trigger is still running.  It must stay in memory although it
-- is no longer valid.
CREATE FUNCTION change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.doc ? 'schema' THEN
        IF to_regnamespace('s1') IS NULL THEN
            ALTER SCHEMA s2 RENAME TO s1;
        ELSE
            ALTER SCHEMA s1 RENAME TO s2;
        END IF;
    ELSIF NEW.doc ? 'column' THEN
        EXECUTE format('ALTER TABLE %s RENAME %s', TG_RELID::regclass,
                       CASE WHEN EXISTS (SELECT FROM pg_attribute WHERE attrelid = TG_RELID AND attname = 'key') THEN 'key TO id' ELSE 'id TO key' END);
    ELSE
        RETURN NEW;
    END IF;
    RAISE NOTICE '% %: %', TG_WHEN, TG_OP, verbs(TG_RELID, 'inner');
    RETURN NEW;
END $$;
CREATE TRIGGER change_before BEFORE INSERT OR UPDATE ON s1.p FOR EACH ROW EXECUTE FUNCTION change();
CREATE TRIGGER change_after AFTER INSERT OR UPDATE ON s1.p FOR EACH ROW EXECUTE FUNCTION change();
SELECT 's1.p'::regclass::oid AS p \gset
SELECT ttl_docs.create_document(:p, '{"id": "outer", "schema": 1}') - '_ts' AS created;
SELECT ttl_docs.upsert_document(:p, '{"id": "outer", "schema": 2}') - '_ts' AS upserted;
SELECT ttl_docs.replace_document(:p, '{"id": "outer", "schema": 3}') - '_ts' AS replaced;
SELECT ttl_docs.patch_document(:p, 'outer', '{"n": 1}') - '_ts' AS patched;
SELECT ttl_docs.touch_document(:p, 'outer');
SELECT ttl_docs.replace_document(:p, '{"id": "outer", "column": 1}') - '_ts' AS replaced;
SELECT ttl_docs.upsert_document(:p, '{"id": "outer", "column": 2}') - '_ts' AS upserted;
SELECT ttl_docs.create_document(:p, '{"id": "outer 2", "column": 3}') - '_ts' AS created;
-- Many times, in a transaction that then fails
SELECT count(ttl_docs.patch_document(:p, 'outer', '{"n": 2}')), count(ttl_docs.touch_document(:p, 'outer 2')) FROM generate_series(1, 3);
BEGIN;
SELECT ttl_docs.patch_document(:p, 'outer', '{"n": 3}') - '_ts' AS patched;
SELECT ttl_docs.create_document(:p, '{"id": "outer"}');
ROLLBACK;
SELECT ttl_docs.replace_document(:p, '{"id": "outer"}') - '_ts' AS replaced;
\set VERBOSITY terse
DROP FUNCTION change() CASCADE;
\set VERBOSITY default
SELECT verbs(:p);
-- Deferred triggers run at COMMIT, when no statement is running.
ALTER SCHEMA s2 RENAME TO s1;
ALTER TABLE s1.p RENAME key TO id;
CREATE FUNCTION change_later() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE NOTICE '%', verbs(TG_RELID, 'inner');
    ALTER TABLE s1.p RENAME id TO key;
    RAISE NOTICE '%', verbs(TG_RELID, 'inner');
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER change_later AFTER UPDATE ON s1.p DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    WHEN (NEW.doc ? 'later') EXECUTE FUNCTION change_later();
SELECT ttl_docs.replace_document(:p, '{"id": "outer", "later": true}') - '_ts' AS replaced;
DROP FUNCTION change_later() CASCADE;
SELECT verbs(:p);
-- Triggers that recurse without end
CREATE FUNCTION endless() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM ttl_docs.touch_document(TG_RELID, OLD.key);
    RETURN NULL;
END $$;
CREATE TRIGGER endless AFTER UPDATE ON s1.p FOR EACH ROW EXECUTE FUNCTION endless();
\set VERBOSITY sqlstate
SELECT ttl_docs.touch_document(:p, 'outer');
\set VERBOSITY default
DROP FUNCTION endless() CASCADE;
SELECT verbs(:p);

--
-- Cached plans
--
-- The cache has at most one plan for each statement and table, and none for dropped
-- tables.
CREATE FUNCTION kept_plans() RETURNS bigint LANGUAGE sql AS $$
    SELECT count(*) FROM pg_backend_memory_contexts WHERE name = 'CachedPlanSource' AND ident LIKE '%ttl\_docs\_internal.returned\_document(%'
$$;
\c -
SELECT kept_plans();
SELECT verbs('s1.p');
SELECT kept_plans() AS one_table;
DO $$
BEGIN
    FOR i IN 1..200 LOOP
        ALTER TABLE s1.p ALTER doc SET STATISTICS 100;
        PERFORM verbs('s1.p');
        COMMIT;
    END LOOP;
END $$;
SELECT verbs('s1.p');
SELECT kept_plans() AS as_before;
DO $$
BEGIN
    FOR i IN 1..50 LOOP
        PERFORM ttl_docs.create_collection('s1.short_lived', 1000);
        PERFORM verbs('s1.short_lived');
        IF i % 2 = 0 THEN
            ROLLBACK;
        ELSE
            COMMIT;
            DROP TABLE s1.short_lived;
        END IF;
        COMMIT;
    END LOOP;
END $$;
SELECT verbs('s1.p');
SELECT kept_plans() AS as_before;
-- Errors in subtransactions leak no memory, except for the first few.
CREATE PROCEDURE fail(times int) LANGUAGE plpgsql AS $$
BEGIN
    FOR i IN 1..times LOOP
        BEGIN
            PERFORM ttl_docs.create_document('s1.p', '{"id": "1"}');
        EXCEPTION WHEN unique_violation THEN
        END;
    END LOOP;
END $$;
CALL fail(10);
SELECT sum(total_bytes) AS before FROM pg_backend_memory_contexts \gset
CALL fail(2000);
SELECT sum(total_bytes) < :before + 200000 AS as_before FROM pg_backend_memory_contexts;
-- Many calls in one transaction leak no memory.  PostgreSQL's own combo CIDs do not
-- count.
BEGIN;
SELECT count(ttl_docs.upsert_document('s1.p', jsonb_build_object('id', (i % 100)::text, 'v', i))), count(ttl_docs.read_document('s1.p', i::text)) FROM generate_series(1, 2000) AS i;
SELECT sum(total_bytes) < :before + 200000 AS as_before FROM pg_backend_memory_contexts WHERE name <> 'Combo CIDs';
COMMIT;

\set VERBOSITY terse
SET client_min_messages = warning;
DROP SCHEMA s1 CASCADE;
RESET client_min_messages;
DROP FUNCTION scans(regclass), verbs(regclass, text), kept_plans();
DROP PROCEDURE fail(int);
