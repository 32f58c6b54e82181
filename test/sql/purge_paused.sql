-- Holds: the purge skips the collection, whose expired documents stay on disk and
-- invisible.  The view shows the reason and what to do.  test/t tests a clock jump, a
-- subscription, and the purge workers.
\set SHOW_CONTEXT never
SELECT ttl_docs.create_collection('ph', 1000);
SELECT ttl_docs.create_collection('ph_other', 1000);
INSERT INTO ph VALUES ('a', '{"ttl": 100}'), ('live', '{}');
INSERT INTO ph_other VALUES ('a', '{"ttl": 100}');
CREATE VIEW ph_paused AS SELECT c.collection, c.holds, CASE WHEN s.state IN ('paused', 'restored') THEN s.state END AS hold,
    CASE WHEN s.state IN ('paused', 'restored') THEN s.hint END AS hint
    FROM ttl_docs.collections AS c JOIN ttl_docs.stat_collections AS s USING (collection) WHERE c.collection::text LIKE 'ph%';
SET ttl_docs.clock_offset = 200;
SELECT * FROM ph_paused ORDER BY collection::text;

-- Paused
SELECT ttl_docs.pause_purge('ph');
SELECT * FROM ph_paused ORDER BY collection::text;
-- By name, the purge is an error.  CALL purge() gives a warning, and purges the other
-- collections.
CALL ttl_docs.purge('ph');
\echo :SQLSTATE
SELECT id FROM ph;
SELECT id FROM ph_other;
SET client_min_messages = error;
CALL ttl_docs.purge();
RESET client_min_messages;
CALL ttl_docs.purge();
SET ttl_docs.show_expired = on;
SELECT id FROM ph ORDER BY id;
SELECT id FROM ph_other ORDER BY id;
RESET ttl_docs.show_expired;
-- Everything else works: a write can free a key.  A change of settings keeps the pause.
INSERT INTO ph VALUES ('b', '{"ttl": 1}');
SET ttl_docs.clock_offset = 300;
INSERT INTO ph VALUES ('b', '{"new": true}');
SELECT ttl_docs.set_default_ttl('ph', 2000);
SELECT ttl_docs.set_indexing('ph', 'lazy');
SELECT ttl_docs.set_default_ttl('ph', NULL);
SELECT collection, holds FROM ph_paused ORDER BY collection::text;
CALL ttl_docs.purge('ph');
SELECT ttl_docs.set_default_ttl('ph', 1000);
-- A second pause changes nothing.
SELECT ttl_docs.pause_purge('ph');
SELECT ttl_docs.resume_purge('ph');
SELECT * FROM ph_paused ORDER BY collection::text;
SELECT ttl_docs.resume_purge('ph');
CALL ttl_docs.purge('ph');
SET ttl_docs.show_expired = on;
SELECT id FROM ph ORDER BY id;
RESET ttl_docs.show_expired;
-- A pause belongs to its transaction, and is rolled back with it.
BEGIN;
SELECT ttl_docs.pause_purge('ph');
CALL ttl_docs.purge('ph');
ROLLBACK;
SELECT collection, holds FROM ph_paused ORDER BY collection::text;
BEGIN;
SELECT ttl_docs.pause_purge('ph');
SELECT ttl_docs.resume_purge('ph');
CALL ttl_docs.purge('ph');
COMMIT;
-- A pause does not block writers.  It blocks other changes of settings.
BEGIN;
SELECT ttl_docs.pause_purge('ph');
SELECT mode FROM pg_locks WHERE relation = 'ph'::regclass AND pid = pg_backend_pid() ORDER BY mode;
ROLLBACK;


-- Restored: the label belongs to another database or another table.  Without the hold,
-- the old documents would be purged a second after the restore.
RESET ttl_docs.clock_offset;
SELECT ttl_docs.set_indexing('ph', 'consistent');
CREATE TABLE ph_dump (LIKE ph INCLUDING ALL);
INSERT INTO ph_dump SELECT id, doc, ts, ttl, ttl_docs_internal.slot(ts, ttl, 1000)
    FROM (VALUES ('old', '{"ttl": 100}'::jsonb, clock_timestamp() - interval '1 month', 100), ('old, inherits', '{}', clock_timestamp() - interval '1 month', NULL),
          ('new', '{}', clock_timestamp(), NULL), ('never', '{"ttl": -1}', clock_timestamp() - interval '1 month', -1)) AS v(id, doc, ts, ttl);
SELECT pg_get_triggerdef(t.oid) AS trigger, l.label FROM pg_trigger AS t JOIN pg_seclabel AS l ON l.objoid = t.tgrelid AND l.provider = 'ttl_docs'
    WHERE t.tgrelid = 'ph'::regclass AND NOT t.tgisinternal \gset
-- The label of another table, as after a restore into the same database
CREATE TABLE ph_table (LIKE ph_dump INCLUDING ALL);
INSERT INTO ph_table SELECT * FROM ph_dump;
SELECT replace(:'trigger', ' public.ph ', ' public.ph_table ') AS create_trigger \gset
:create_trigger;
SECURITY LABEL FOR ttl_docs ON TABLE ph_table IS :'label';
-- The label of a table with the same OID in another database
CREATE TABLE ph_database (LIKE ph_dump INCLUDING ALL);
INSERT INTO ph_database SELECT * FROM ph_dump;
SELECT replace(:'trigger', ' public.ph ', ' public.ph_database ') AS create_trigger,
    :'label'::jsonb || jsonb_build_object('table', 'ph_database'::regclass::oid::bigint, 'database', 1) AS changed \gset
:create_trigger;
SECURITY LABEL FOR ttl_docs ON TABLE ph_database IS :'changed';
SELECT collection, holds, hold FROM ph_paused ORDER BY collection::text;
SELECT hint FROM ph_paused WHERE collection = 'ph_table'::regclass;
SELECT id FROM ph_table ORDER BY id;
CALL ttl_docs.purge('ph_table');
\echo :SQLSTATE
CALL ttl_docs.purge('ph_database');
\echo :SQLSTATE
SET client_min_messages = error;
CALL ttl_docs.purge();
RESET client_min_messages;
SET ttl_docs.show_expired = on;
SELECT (SELECT count(*) FROM ph_table) AS "table", (SELECT count(*) FROM ph_database) AS database;
-- Neither reading nor a change of settings ends the hold.  Writes work as usual.
SELECT ttl_docs.set_default_ttl('ph_table', 2000);
INSERT INTO ph_table VALUES ('old', '{"ttl": 1000}');
SELECT collection, hold FROM ph_paused WHERE hold IS NOT NULL ORDER BY collection::text;
-- The view shows the pause first.  resume_purge() ends both holds.
SELECT ttl_docs.pause_purge('ph_table');
SELECT hold FROM ph_paused WHERE collection = 'ph_table'::regclass;
SELECT ttl_docs.resume_purge('ph_table');
SELECT ttl_docs.resume_purge('ph_database');
SELECT collection, holds, hold FROM ph_paused ORDER BY collection::text;
CALL ttl_docs.purge('ph_table');
CALL ttl_docs.purge('ph_database');
SELECT id FROM ph_table ORDER BY id;
SELECT id FROM ph_database ORDER BY id;
RESET ttl_docs.show_expired;
-- A rename, a new schema or VACUUM FULL is not a restore.
CREATE SCHEMA ph_schema;
ALTER TABLE ph_table RENAME TO ph_renamed;
ALTER TABLE ph_renamed SET SCHEMA ph_schema;
SET client_min_messages = warning;
VACUUM FULL ph_schema.ph_renamed;
RESET client_min_messages;
SELECT holds FROM ttl_docs.collections WHERE collection = 'ph_schema.ph_renamed'::regclass;

-- The purge is turned off on this server.  The view shows this after a worker has
-- noticed it.
DO $$
BEGIN
    FOR i IN 1 .. 600 LOOP
        EXIT WHEN 'disabled' = (SELECT state FROM ttl_docs.stat_collections WHERE collection = 'ph'::regclass);
        PERFORM pg_sleep(0.1);
    END LOOP;
END $$;
SELECT state, hint FROM ttl_docs.stat_collections WHERE collection = 'ph'::regclass;
-- The view shows a pause first.  CALL purge() works although the purge is turned off.
SELECT ttl_docs.pause_purge('ph');
SELECT state FROM ttl_docs.stat_collections WHERE collection = 'ph'::regclass;
SELECT ttl_docs.resume_purge('ph');
INSERT INTO ph VALUES ('a', '{"ttl": 100}');
SET ttl_docs.clock_offset = 500;
CALL ttl_docs.purge('ph');
RESET ttl_docs.clock_offset;

-- Only collections have statistics, which disappear with the collection.
SELECT ttl_docs_internal.collection_stats('pg_class') IS NULL AS none;
SELECT purged > 0 AS purged FROM ttl_docs.stat_collections WHERE collection = 'ph'::regclass;
SELECT ttl_docs.release('ph');
SELECT count(*) FROM ttl_docs.stat_collections WHERE collection = 'ph'::regclass;
SELECT ttl_docs_internal.collection_stats('ph') IS NULL AS none;

SET client_min_messages = warning;
DROP VIEW ph_paused;
DROP SCHEMA ph_schema CASCADE;
DROP TABLE ph, ph_other, ph_dump, ph_database;
