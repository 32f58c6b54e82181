-- A collection stays complete.  A command that would remove a part of it is refused,
-- names the function to call, and changes nothing.  DDL that is allowed keeps the
-- metadata correct.  A rollback restores everything, also this session's cache.
-- Without the extension, the tables are plain tables.
\set SHOW_CONTEXT never

-- Shows in one line which parts of a collection a table has.
CREATE FUNCTION pieces(t regclass) RETURNS text LANGUAGE sql AS $$
SELECT concat_ws(' | ',
    (SELECT string_agg(attname || ' ' || format_type(atttypid, atttypmod) || CASE WHEN attnotnull THEN '!' ELSE '' END, ', ' ORDER BY attnum)
       FROM pg_attribute WHERE attrelid = t AND attnum > 0 AND NOT attisdropped),
    (SELECT string_agg(regexp_replace(pg_get_triggerdef(oid), '^CREATE TRIGGER (.*) ON .* EXECUTE FUNCTION (.*)$', '\1 \2 ') || tgenabled::text,
                       ', ' ORDER BY tgname)
       FROM pg_trigger WHERE tgrelid = t AND NOT tgisinternal),
    (SELECT string_agg(regexp_replace(pg_get_indexdef(indexrelid), '.* USING ', ''), ', '
                       ORDER BY pg_get_indexdef(indexrelid) COLLATE "C") FROM pg_index WHERE indrelid = t),
    (SELECT concat(doc_column, ' ', coalesce(default_ttl::text, 'off'), ' ', indexing)
       FROM ttl_docs.collections WHERE collection = t))
$$;
CREATE FUNCTION other() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$;

SELECT ttl_docs.create_collection('g', 6000);
INSERT INTO g VALUES ('a', '{}'), ('b', '{"ttl": 500}');
SELECT pieces('g') AS whole \gset
\echo :whole

--
-- The system columns
--
ALTER TABLE g DROP COLUMN _ts;
\echo :SQLSTATE
ALTER TABLE g DROP COLUMN _ttl;
\echo :SQLSTATE
ALTER TABLE g DROP COLUMN _slot;
\echo :SQLSTATE
ALTER TABLE g DROP COLUMN IF EXISTS _slot CASCADE;
\echo :SQLSTATE
ALTER TABLE g RENAME COLUMN _ts TO ts;
\echo :SQLSTATE
ALTER TABLE g RENAME COLUMN _ttl TO ttl;
\echo :SQLSTATE
ALTER TABLE g RENAME _slot TO slot;
\echo :SQLSTATE
ALTER TABLE g ALTER COLUMN _ts TYPE timestamp;
\echo :SQLSTATE
ALTER TABLE g ALTER COLUMN _ttl TYPE bigint;
\echo :SQLSTATE
ALTER TABLE g ALTER COLUMN _slot TYPE numeric;
\echo :SQLSTATE
ALTER TABLE g ALTER COLUMN _ts DROP NOT NULL;
\echo :SQLSTATE
ALTER TABLE g ALTER COLUMN _slot ADD GENERATED ALWAYS AS IDENTITY;
\echo :SQLSTATE
-- A system column cannot be replaced, nor can ALTER TABLE replace its values.
\set VERBOSITY sqlstate
ALTER TABLE g DROP COLUMN _ttl, ADD COLUMN _ttl bigint;
ALTER TABLE g DROP COLUMN _ttl, ADD COLUMN _ttl int;
ALTER TABLE g DROP COLUMN _ts, ADD COLUMN _ts timestamptz NOT NULL DEFAULT now();
ALTER TABLE g DROP COLUMN _slot, ADD COLUMN _slot bigint GENERATED ALWAYS AS (1) STORED;
ALTER TABLE g ALTER COLUMN _ttl TYPE int USING NULL;
ALTER TABLE g ALTER COLUMN _ts TYPE timestamptz USING now();
ALTER TABLE g ALTER COLUMN _slot TYPE bigint USING 0;
\set VERBOSITY default
-- The same inside a function, also with an exception handler
DO $$
BEGIN
    ALTER TABLE g DROP COLUMN _ts;
EXCEPTION WHEN dependent_objects_still_exist THEN
    RAISE NOTICE 'refused: %', sqlerrm;
END $$;
SELECT pieces('g') = :'whole' AS whole;

--
-- The document column can be renamed; the collection follows the new name
--
ALTER TABLE g DROP COLUMN doc;
\echo :SQLSTATE
ALTER TABLE g ALTER COLUMN doc TYPE text;
\echo :SQLSTATE
ALTER TABLE g ALTER COLUMN doc TYPE json USING doc::json;
\echo :SQLSTATE
\set VERBOSITY sqlstate
ALTER TABLE g DROP COLUMN doc, ADD COLUMN doc jsonb;
ALTER TABLE g DROP COLUMN doc, ADD COLUMN doc jsonb GENERATED ALWAYS AS ('{}') STORED;
ALTER TABLE g ALTER COLUMN doc TYPE jsonb USING doc || '{"ttl": 0}';
\set VERBOSITY default
SELECT pieces('g') = :'whole' AS whole;
BEGIN;
ALTER TABLE g RENAME COLUMN doc TO "The doc";
SELECT doc_column FROM ttl_docs.collections WHERE collection = 'g'::regclass;
INSERT INTO g VALUES ('c', '{"ttl": 700}') RETURNING id, "The doc", _ttl;
INSERT INTO g VALUES ('d', '{"ttl": 0}');
ROLLBACK;
SELECT doc_column FROM ttl_docs.collections WHERE collection = 'g'::regclass;
INSERT INTO g VALUES ('c', '{"ttl": 800}') RETURNING id, doc, _ttl;
ALTER TABLE g RENAME COLUMN doc TO body;
ALTER TABLE g ADD COLUMN doc jsonb;
INSERT INTO g (id, body, doc) VALUES ('d', '{"ttl": 900}', '{"ttl": 0}') RETURNING id, _ttl;
ALTER TABLE g DROP COLUMN doc;
ALTER TABLE g RENAME COLUMN body TO doc;
SELECT pieces('g') = :'whole' AS whole;

--
-- The ttl_docs trigger
--
DROP TRIGGER zzz_ttl_docs ON g;
\echo :SQLSTATE
DROP TRIGGER IF EXISTS zzz_ttl_docs ON g CASCADE;
\echo :SQLSTATE
ALTER TRIGGER zzz_ttl_docs ON g RENAME TO aaa;
\echo :SQLSTATE
ALTER TABLE g DISABLE TRIGGER zzz_ttl_docs;
\echo :SQLSTATE
CREATE OR REPLACE TRIGGER zzz_ttl_docs BEFORE INSERT OR UPDATE OR DELETE ON g
    FOR EACH ROW EXECUTE FUNCTION other();
\echo :SQLSTATE
CREATE OR REPLACE TRIGGER zzz_ttl_docs BEFORE INSERT OR UPDATE ON g
    FOR EACH ROW EXECUTE FUNCTION ttl_docs_internal.write_document();
\echo :SQLSTATE
CREATE OR REPLACE TRIGGER zzz_ttl_docs AFTER INSERT OR UPDATE OR DELETE ON g
    FOR EACH ROW EXECUTE FUNCTION ttl_docs_internal.write_document();
\echo :SQLSTATE
CREATE OR REPLACE TRIGGER zzz_ttl_docs BEFORE INSERT OR UPDATE OR DELETE ON g
    FOR EACH STATEMENT EXECUTE FUNCTION ttl_docs_internal.write_document();
\echo :SQLSTATE
CREATE OR REPLACE TRIGGER zzz_ttl_docs BEFORE INSERT OR UPDATE OF id OR DELETE ON g
    FOR EACH ROW EXECUTE FUNCTION ttl_docs_internal.write_document();
\echo :SQLSTATE
CREATE OR REPLACE TRIGGER zzz_ttl_docs BEFORE INSERT OR UPDATE OR DELETE ON g
    FOR EACH ROW WHEN (false) EXECUTE FUNCTION ttl_docs_internal.write_document();
\echo :SQLSTATE
CREATE TRIGGER another BEFORE INSERT ON g FOR EACH ROW EXECUTE FUNCTION ttl_docs_internal.write_document();
\echo :SQLSTATE
DROP FUNCTION ttl_docs_internal.write_document() CASCADE;
\echo :SQLSTATE
SELECT pieces('g') = :'whole' AS whole;
-- Creating the trigger again with the same definition changes nothing: it still is
-- ENABLE ALWAYS.
CREATE OR REPLACE TRIGGER zzz_ttl_docs BEFORE INSERT OR UPDATE OR DELETE ON g
    FOR EACH ROW EXECUTE FUNCTION ttl_docs_internal.write_document();
SELECT pieces('g') = :'whole' AS whole;
ALTER TABLE g ENABLE REPLICA TRIGGER zzz_ttl_docs;
SELECT pieces('g') = :'whole' AS whole;
ALTER TABLE g ENABLE TRIGGER zzz_ttl_docs;
SELECT pieces('g') = :'whole' AS whole;
-- DISABLE TRIGGER ALL disables the user's triggers and leaves the ttl_docs trigger
-- enabled.
CREATE TRIGGER users BEFORE INSERT ON g FOR EACH ROW EXECUTE FUNCTION other();
ALTER TABLE g DISABLE TRIGGER ALL;
SELECT tgname, tgenabled FROM pg_trigger WHERE tgrelid = 'g'::regclass ORDER BY tgname;
INSERT INTO g VALUES ('e', '{"ttl": 1000}') RETURNING _ttl;
ALTER TABLE g ENABLE TRIGGER ALL;
ALTER TABLE g DISABLE TRIGGER USER;
SELECT tgname, tgenabled FROM pg_trigger WHERE tgrelid = 'g'::regclass ORDER BY tgname;
DROP TRIGGER users ON g;
SELECT pieces('g') = :'whole' AS whole;
-- A command that disables triggers does nothing else.  Otherwise a function could write rows
-- before the trigger is enabled again.
CREATE FUNCTION write_row(id text, into_table text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN
    IF id <> 'w' THEN
        EXECUTE format('INSERT INTO %I (id, doc, _ts, _slot) VALUES (''w'', ''{"ttl": 5}'', ''infinity'', 0) ON CONFLICT DO NOTHING', into_table);
    END IF;
    RETURN true;
END $$;
ALTER TABLE g DISABLE TRIGGER ALL, ADD CHECK (write_row(id, 'g'));
\echo :SQLSTATE
ALTER TABLE g ENABLE REPLICA TRIGGER zzz_ttl_docs, ADD CHECK (write_row(id, 'g'));
\echo :SQLSTATE
ALTER TABLE g DISABLE TRIGGER USER, ENABLE ALWAYS TRIGGER zzz_ttl_docs, ADD CHECK (write_row(id, 'g'));
\echo :SQLSTATE
ALTER TABLE g ENABLE ALWAYS TRIGGER zzz_ttl_docs, ADD CONSTRAINT writes CHECK (write_row(id, 'g'));
SELECT doc, _ts < 'infinity' AS stamped, _ttl FROM g WHERE id = 'w';
ALTER TABLE g DROP CONSTRAINT writes;
DELETE FROM g WHERE id = 'w';
SELECT pieces('g') = :'whole' AS whole;
-- Somebody has disabled the trigger while the server ran without ttl_docs.
UPDATE pg_trigger SET tgenabled = 'D' WHERE tgrelid = 'g'::regclass AND tgname = 'zzz_ttl_docs';
UPDATE pg_class SET relhastriggers = true WHERE oid = 'g'::regclass;
INSERT INTO g VALUES ('w', '{"ttl": 5}');
\echo :SQLSTATE
COPY g (id, doc) FROM stdin;
w	{"ttl": 5}
\.
SELECT ttl_docs.adopt('public.g');
INSERT INTO g VALUES ('w', '{"ttl": 5}') RETURNING _ttl;
DELETE FROM g WHERE id = 'w';
SELECT pieces('g') = :'whole' AS whole;

-- The ttl_docs trigger is the last BEFORE ROW trigger in byte order.
CREATE TRIGGER zzz_ttl_docs2 BEFORE UPDATE ON g FOR EACH ROW EXECUTE FUNCTION other();
\echo :SQLSTATE
CREATE TRIGGER "zzzé" BEFORE INSERT ON g FOR EACH ROW EXECUTE FUNCTION other();
\echo :SQLSTATE
CREATE TRIGGER aaa BEFORE INSERT ON g FOR EACH ROW EXECUTE FUNCTION other();
ALTER TRIGGER aaa ON g RENAME TO zzzz;
\echo :SQLSTATE
ALTER TRIGGER aaa ON g RENAME TO "zzz_ttl_docr";
-- Triggers of other kinds may have any name.
CREATE TRIGGER zzzz_after AFTER INSERT ON g FOR EACH ROW EXECUTE FUNCTION other();
CREATE TRIGGER zzzz_statement BEFORE INSERT ON g FOR EACH STATEMENT EXECUTE FUNCTION other();
CREATE CONSTRAINT TRIGGER zzzz_constraint AFTER INSERT ON g DEFERRABLE FOR EACH ROW EXECUTE FUNCTION other();
SELECT tgname FROM pg_trigger WHERE tgrelid = 'g'::regclass ORDER BY tgname COLLATE "C";
DROP TRIGGER zzz_ttl_docr ON g;
DROP TRIGGER zzzz_after ON g;
DROP TRIGGER zzzz_statement ON g;
DROP TRIGGER zzzz_constraint ON g;
SELECT pieces('g') = :'whole' AS whole;

--
-- The purge index
--
DROP INDEX g__slot_idx;
\echo :SQLSTATE
DROP INDEX CONCURRENTLY g__slot_idx;
\echo :SQLSTATE
DROP INDEX IF EXISTS public.g__slot_idx CASCADE;
\echo :SQLSTATE
CREATE INDEX g_by_doc ON g USING gin (doc);
DROP INDEX g_by_doc, g__slot_idx;
\echo :SQLSTATE
DROP INDEX g_by_doc;
-- Indexes that cannot serve as purge index do not count.
CREATE INDEX g_partial ON g (_slot) WHERE _slot > 0;
CREATE INDEX g_two ON g (_slot, id);
CREATE INDEX g_hash ON g USING hash (_slot);
CREATE INDEX g_brin ON g USING brin (_slot);
DROP INDEX g__slot_idx;
\echo :SQLSTATE
DROP INDEX g_partial, g_two, g_hash, g_brin;
-- An index that can serve as purge index may replace it, and may have any name.
CREATE INDEX g_partial ON g (_slot) WHERE _slot IS NOT NULL;
DROP INDEX g__slot_idx;
SELECT indexdef FROM pg_indexes WHERE tablename = 'g' ORDER BY indexname;
CREATE INDEX CONCURRENTLY g_other ON g (_slot);
DROP INDEX CONCURRENTLY g_partial;
\echo :SQLSTATE
SET client_min_messages = warning;
DROP INDEX IF EXISTS g_partial;
RESET client_min_messages;
ALTER INDEX g_other RENAME TO g__slot_idx;
SELECT pieces('g') = :'whole' AS whole;
DROP INDEX g__slot_idx;
\echo :SQLSTATE
-- The same with a DefaultTTL of -1
SELECT ttl_docs.set_default_ttl('g', -1);
DROP INDEX g__slot_idx;
\echo :SQLSTATE
DROP INDEX CONCURRENTLY g__slot_idx;
\echo :SQLSTATE
-- While TTL is off, the index can be dropped.  Turning TTL on requires it.
SELECT ttl_docs.set_default_ttl('g', NULL);
DROP INDEX g__slot_idx;
SELECT ttl_docs.set_default_ttl('g', 6000);
\echo :SQLSTATE
SELECT ttl_docs.set_indexing('g', 'consistent');
DROP INDEX CONCURRENTLY g__slot_idx;
SELECT ttl_docs.set_indexing('g', 'consistent');
SELECT ttl_docs.set_default_ttl('g', 6000);
SELECT pieces('g') = :'whole' AS whole;

--
-- Inheritance and partitions
--
CREATE TABLE like_g (LIKE g);
SELECT pieces('like_g');
CREATE TABLE child () INHERITS (g);
\echo :SQLSTATE
ALTER TABLE like_g INHERIT g;
\echo :SQLSTATE
CREATE TABLE parent (id text, doc jsonb);
ALTER TABLE g INHERIT parent;
\echo :SQLSTATE
DROP TABLE parent;
CREATE TABLE parted (LIKE g) PARTITION BY LIST (id);
ALTER TABLE parted ATTACH PARTITION g DEFAULT;
\echo :SQLSTATE
SELECT pieces('g') = :'whole' AS whole;
SELECT count(*) FROM pg_inherits WHERE 'g'::regclass IN (inhrelid, inhparent);
DROP TABLE parted, like_g;

-- A foreign table cannot become a partition of a collection.  A collection cannot
-- become a partition of a plain table.
CREATE FOREIGN DATA WRAPPER regress_ttl_fdw;
CREATE SERVER regress_ttl_server FOREIGN DATA WRAPPER regress_ttl_fdw;
CREATE TABLE p (id int PRIMARY KEY, doc jsonb) PARTITION BY RANGE (id);
CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10);
SELECT ttl_docs.adopt('p', 6000);
SELECT pieces('p1') AS whole_p1 \gset
CREATE TABLE pu (id int NOT NULL, doc jsonb, _ts timestamptz NOT NULL, _ttl int, _slot bigint) PARTITION BY RANGE (id);
SELECT ttl_docs.adopt('pu');
CREATE FOREIGN TABLE pf PARTITION OF p FOR VALUES FROM (10) TO (20) SERVER regress_ttl_server;
\echo :SQLSTATE
CREATE FOREIGN TABLE pf PARTITION OF pu FOR VALUES FROM (10) TO (20) SERVER regress_ttl_server;
\echo :SQLSTATE
CREATE FOREIGN TABLE pf (id int NOT NULL, doc jsonb, _ts timestamptz NOT NULL, _ttl int, _slot bigint) SERVER regress_ttl_server;
ALTER TABLE pu ATTACH PARTITION pf FOR VALUES FROM (10) TO (20);
\echo :SQLSTATE
DROP FOREIGN TABLE pf;
DROP SERVER regress_ttl_server;
DROP FOREIGN DATA WRAPPER regress_ttl_fdw;
CREATE TABLE own (id int NOT NULL, doc jsonb);
SELECT ttl_docs.adopt('own');
CREATE TABLE no_collection (LIKE own) PARTITION BY RANGE (id);
ALTER TABLE no_collection ATTACH PARTITION own FOR VALUES FROM (10) TO (20);
\echo :SQLSTATE
SELECT pieces('own');
DROP TABLE own, pu, no_collection;
-- The parts of a partition are protected like those of its root.
DROP TRIGGER zzz_ttl_docs ON p1;
\echo :SQLSTATE
ALTER TABLE p1 DISABLE TRIGGER zzz_ttl_docs;
\echo :SQLSTATE
ALTER TABLE p1 DISABLE TRIGGER ALL;
CREATE TRIGGER zzzz BEFORE INSERT ON p1 FOR EACH ROW EXECUTE FUNCTION other();
\echo :SQLSTATE
DROP INDEX p1__slot_idx;
\echo :SQLSTATE
DROP INDEX p__slot_idx;
\echo :SQLSTATE
ALTER TABLE p1 DROP COLUMN _ts;
\echo :SQLSTATE
\set VERBOSITY sqlstate
ALTER TABLE p DROP COLUMN _ttl;
\set VERBOSITY default
ALTER TABLE p1 ALTER COLUMN _ts DROP NOT NULL;
\echo :SQLSTATE
SELECT pieces('p1') = :'whole_p1' AS whole;
SELECT ttl_docs.set_default_ttl('p1', 500);
\echo :SQLSTATE
ALTER TABLE p RENAME COLUMN doc TO body;
INSERT INTO p VALUES (1, '{"ttl": 500}'), (2, '{}') RETURNING tableoid::regclass, body, _ttl;
ALTER TABLE p RENAME COLUMN body TO doc;

-- An attached table brings documents whose system columns the server did not set.
CREATE TABLE p2 (doc jsonb, _slot bigint, _ttl int, _ts timestamptz NOT NULL, id int NOT NULL);
INSERT INTO p2 VALUES ('{"ttl": 10000}', 1, 2, clock_timestamp() - interval '7000 s', 10),
    ('{}', NULL, NULL, clock_timestamp() - interval '7000 s', 11), ('{"ttl": "x"}', NULL, NULL, clock_timestamp(), 12);
ALTER TABLE p ATTACH PARTITION p2 FOR VALUES FROM (10) TO (20);
\echo :SQLSTATE
DELETE FROM p2 WHERE id = 12;
ALTER TABLE p ATTACH PARTITION p2 FOR VALUES FROM (10) TO (20);
SELECT id, _ttl, ttl_docs_internal.slot(_ts, _ttl, 6000) = _slot AS right_slot FROM p ORDER BY id;
SELECT pieces('p2');
CREATE TABLE p3 (id int NOT NULL, doc jsonb);
ALTER TABLE p ATTACH PARTITION p3 FOR VALUES FROM (20) TO (30);
\echo :SQLSTATE
DROP TABLE p3;
-- A detached partition stays a collection, and its expired documents stay expired.
ALTER TABLE p DETACH PARTITION p2;
SELECT pieces('p2');
SELECT id FROM p2;
SELECT id FROM p ORDER BY id;
-- The table is attached again as before, and detached once more.
ALTER TABLE p ATTACH PARTITION p2 FOR VALUES FROM (10) TO (20);
SELECT pieces('p2');
SELECT id FROM p ORDER BY id;
ALTER TABLE p DETACH PARTITION p2;
-- Now its settings can differ, but its expired documents stay expired.
SELECT ttl_docs.set_default_ttl('p2', 1);
SET ttl_docs.clock_offset = 1;
SELECT ttl_docs.set_default_ttl('p2', NULL);
RESET ttl_docs.clock_offset;
SELECT id FROM p2;
ALTER TABLE p ATTACH PARTITION p2 FOR VALUES FROM (10) TO (20);
\echo :SQLSTATE
SELECT pieces('p2');
SELECT id FROM p2;
INSERT INTO p2 (id, doc, _ts) VALUES (11, '{"new": true}', now());
SELECT id, doc FROM p2 ORDER BY id;
ALTER TABLE p DETACH PARTITION p1 CONCURRENTLY;
SELECT pieces('p1');
SET ttl_docs.clock_offset = 500;
SELECT id FROM p1;
RESET ttl_docs.clock_offset;
DROP TABLE p, p1, p2;

--
-- Only the functions write the label
--
SELECT label AS label_g FROM pg_seclabel WHERE objoid = 'g'::regclass \gset
SELECT ttl_docs.create_collection('fresh', 6000);
SELECT label AS label_fresh FROM pg_seclabel WHERE objoid = 'fresh'::regclass \gset
SECURITY LABEL FOR ttl_docs ON TABLE g IS NULL;
\echo :SQLSTATE
SELECT replace(:'label_g', '"default_ttl": 6000', '"default_ttl": 60000') AS changed \gset
SECURITY LABEL FOR ttl_docs ON TABLE g IS :'changed';
\echo :SQLSTATE
SECURITY LABEL FOR ttl_docs ON TABLE g IS :'label_g';
SELECT pieces('g') = :'whole' AS whole;
SECURITY LABEL FOR ttl_docs ON COLUMN g.doc IS :'label_g';
\echo :SQLSTATE
SECURITY LABEL FOR ttl_docs ON SCHEMA public IS 'x';
\echo :SQLSTATE
CREATE TABLE plain (id text, doc jsonb);
CREATE VIEW plain_view AS SELECT 1;
SECURITY LABEL FOR ttl_docs ON TABLE plain IS 'not json';
\echo :SQLSTATE
SECURITY LABEL FOR ttl_docs ON TABLE plain IS '[]';
\echo :SQLSTATE
-- A user names no label provider: the label goes to ttl_docs, the only provider.
SECURITY LABEL ON TABLE plain IS 'classified';
\echo :SQLSTATE
\set VERBOSITY terse
SECURITY LABEL ON COLUMN plain.doc IS 'classified';
SECURITY LABEL ON TABLE plain IS '';
SECURITY LABEL ON TABLE plain IS '{"version": 1';
SECURITY LABEL ON TABLE plain IS ' {"version": "\u0000"}';
SECURITY LABEL ON TABLE plain IS 'system_u:object_r:sepgsql_table_t:s0:c0.c1023,system_u:object_r:sepgsql_table_t:s0:c0.c1023';
SELECT repeat('x', 2000) AS long_label \gset
SECURITY LABEL ON TABLE plain IS :'long_label';
\set VERBOSITY default
SECURITY LABEL ON TABLE plain IS NULL;
SECURITY LABEL FOR ttl_docs ON TABLE plain IS '{"version": 1}';
\echo :SQLSTATE
SECURITY LABEL FOR ttl_docs ON TABLE plain IS '{"version": 2}';
\echo :SQLSTATE
SECURITY LABEL FOR ttl_docs ON TABLE plain IS :'label_g';
\echo :SQLSTATE
SECURITY LABEL FOR ttl_docs ON VIEW plain_view IS :'label_g';
\echo :SQLSTATE
SELECT replace(:'label_fresh', '"default_ttl": 6000', '"default_ttl": 0') AS bad1,
       replace(:'label_fresh', '"default_ttl": 6000', '"default_ttl": 2147483648') AS bad2,
       replace(:'label_fresh', '"default_ttl": 6000', '"default_ttl": "60"') AS bad3,
       replace(:'label_fresh', '"consistent"', '"eager"') AS bad4,
       replace(:'label_fresh', '"doc"', '"nothing"') AS bad5,
       replace(:'label_fresh', '"written_floor": null', '"written_floor": "infinity"') AS bad6,
       replace(:'label_fresh', '"paused": false', '"paused": null') AS bad7 \gset
DROP TABLE plain;
CREATE TABLE plain (LIKE g);
SECURITY LABEL FOR ttl_docs ON TABLE plain IS :'bad1';
\echo :SQLSTATE
SECURITY LABEL FOR ttl_docs ON TABLE plain IS :'bad2';
\echo :SQLSTATE
SECURITY LABEL FOR ttl_docs ON TABLE plain IS :'bad3';
\echo :SQLSTATE
SECURITY LABEL FOR ttl_docs ON TABLE plain IS :'bad4';
\echo :SQLSTATE
SECURITY LABEL FOR ttl_docs ON TABLE plain IS :'bad5';
\echo :SQLSTATE
SECURITY LABEL FOR ttl_docs ON TABLE plain IS :'bad6';
\echo :SQLSTATE
SECURITY LABEL FOR ttl_docs ON TABLE plain IS :'bad7';
\echo :SQLSTATE
SELECT pieces('plain');
-- A restore sets the label on a table that has the system columns.  The restored
-- collection is paused.
SECURITY LABEL FOR ttl_docs ON TABLE plain IS :'label_fresh';
SELECT doc_column, default_ttl, indexing, holds FROM ttl_docs.collections WHERE collection = 'plain'::regclass;
INSERT INTO plain VALUES ('x', '{"ttl": 500}', now() - interval '10000 s', 5, 0);
SELECT count(*) AS expired_as_any FROM plain;
DROP VIEW plain_view;
DROP TABLE plain, fresh;

--
-- DDL that is allowed
--
ALTER TABLE g RENAME TO h;
SELECT collection, default_ttl FROM ttl_docs.collections;
SELECT ttl_docs.get_default_ttl('h');
CREATE SCHEMA s;
ALTER TABLE h SET SCHEMA s;
SELECT collection, default_ttl FROM ttl_docs.collections;
ALTER SCHEMA s RENAME TO s2;
SELECT collection, default_ttl FROM ttl_docs.collections;
INSERT INTO s2.h VALUES ('z', '{"ttl": 1100}') RETURNING _ttl;
SELECT ttl_docs.set_default_ttl('s2.h', 6100);
ALTER TABLE s2.h SET SCHEMA public;
ALTER TABLE h RENAME TO g;
DROP SCHEMA s2;
SELECT ttl_docs.set_default_ttl('g', 6000);
SELECT pieces('g') = :'whole' AS whole;

ALTER TABLE g ADD COLUMN extra int DEFAULT 1, ADD CHECK (extra > 0);
ALTER TABLE g ALTER COLUMN extra TYPE bigint;
ALTER TABLE g RENAME COLUMN extra TO more;
ALTER TABLE g DROP COLUMN more;
ALTER TABLE g ALTER COLUMN doc DROP NOT NULL, ALTER COLUMN doc SET NOT NULL;
ALTER TABLE g ALTER COLUMN doc SET STORAGE EXTERNAL;
ALTER TABLE g SET UNLOGGED;
ALTER TABLE g SET LOGGED;
ALTER TABLE g SET (fillfactor = 70);
COMMENT ON TABLE g IS 'a comment';
REINDEX TABLE g;
REINDEX INDEX g__slot_idx;
REINDEX TABLE CONCURRENTLY g;
REINDEX INDEX CONCURRENTLY g__slot_idx;
CLUSTER g USING g_pkey;
VACUUM FULL g;
VACUUM ANALYZE g;
SELECT pieces('g') = :'whole' AS whole;
SELECT id, doc FROM g ORDER BY id;
SET ttl_docs.clock_offset = 1000;
SELECT id, doc FROM g ORDER BY id;
RESET ttl_docs.clock_offset;
TRUNCATE g;
SELECT pieces('g') = :'whole' AS whole;
INSERT INTO g VALUES ('a', '{"ttl": 500}') RETURNING _ttl;
-- Copies of a collection are plain tables.
CREATE TABLE copied AS TABLE g;
CREATE TABLE like_g (LIKE g INCLUDING ALL);
SELECT count(*) FROM ttl_docs.collections;
INSERT INTO copied VALUES ('a', '{"ttl": 0}', '2000-01-01', 1, 1);
SELECT count(*) FROM copied;
DROP TABLE copied, like_g;

-- The label disappears with the table, however the table is dropped.
CREATE ROLE regress_ttl_owner;
CREATE SCHEMA s;
SELECT ttl_docs.create_collection('s.one', 6000);
SELECT ttl_docs.create_collection('s.two', 6000);
SELECT ttl_docs.create_collection('s.three', 6000);
ALTER TABLE s.two OWNER TO regress_ttl_owner;
SELECT count(*) FROM pg_seclabel WHERE provider = 'ttl_docs';
DROP OWNED BY regress_ttl_owner;
SELECT count(*) FROM pg_seclabel WHERE provider = 'ttl_docs';
DROP TABLE s.three;
SELECT count(*) FROM pg_seclabel WHERE provider = 'ttl_docs';
\set VERBOSITY terse
DROP SCHEMA s CASCADE;
\set VERBOSITY default
SELECT count(*) FROM pg_seclabel WHERE provider = 'ttl_docs';
DROP ROLE regress_ttl_owner;

--
-- A rollback restores everything
--
INSERT INTO g VALUES ('b', '{}');
SELECT label AS label_g FROM pg_seclabel WHERE objoid = 'g'::regclass \gset
PREPARE n AS SELECT count(*) FROM g;
SET ttl_docs.clock_offset = 3000;
EXECUTE n;
BEGIN;
SELECT ttl_docs.set_default_ttl('g', 2000);
SELECT ttl_docs.get_default_ttl('g');
EXECUTE n;
ROLLBACK;
SELECT ttl_docs.get_default_ttl('g');
EXECUTE n;
BEGIN;
SAVEPOINT s;
SELECT ttl_docs.set_default_ttl('g', 2000);
EXECUTE n;
ROLLBACK TO s;
SELECT ttl_docs.get_default_ttl('g');
EXECUTE n;
UPDATE g SET doc = doc WHERE id = 'b' RETURNING id;
SELECT ttl_docs.set_default_ttl('g', 4000);
SAVEPOINT s;
SELECT ttl_docs.set_default_ttl('g', NULL);
SELECT ttl_docs.set_indexing('g', 'none');
SELECT pieces('g');
RELEASE s;
SELECT ttl_docs.get_default_ttl('g');
ROLLBACK;
SELECT pieces('g') = :'whole' AS whole;
EXECUTE n;
DO $$
BEGIN
    BEGIN
        PERFORM ttl_docs.set_default_ttl('g', 2000);
        PERFORM 1 / 0;
    EXCEPTION WHEN division_by_zero THEN
        RAISE NOTICE 'in the handler: %', ttl_docs.get_default_ttl('g');
    END;
END $$;
EXECUTE n;
-- The whole label is restored.
SELECT label = :'label_g' AS same FROM pg_seclabel WHERE objoid = 'g'::regclass;
RESET ttl_docs.clock_offset;
DEALLOCATE n;
-- A refused command has no effect on later commands.
BEGIN;
SAVEPOINT s;
ALTER TABLE g DROP COLUMN _ts;
ROLLBACK TO s;
CREATE TABLE unrelated (id int);
DROP TABLE unrelated;
COMMIT;
-- Settings cannot change while an open query reads the collection.
BEGIN;
DECLARE c CURSOR FOR SELECT * FROM g;
FETCH 0 FROM c;
SELECT ttl_docs.set_default_ttl('g', 500);
\echo :SQLSTATE
ROLLBACK;
BEGIN;
DECLARE c CURSOR FOR SELECT * FROM g;
SELECT ttl_docs.set_indexing('g', 'lazy');
\echo :SQLSTATE
ROLLBACK;
SELECT pieces('g') = :'whole' AS whole;

--
-- Without the extension
--
INSERT INTO g VALUES ('c', '{"ttl": 500}');
DROP EXTENSION ttl_docs;
\echo :SQLSTATE
BEGIN;
SET LOCAL client_min_messages = warning;
DROP EXTENSION ttl_docs CASCADE;
SELECT count(*) FROM g;
ROLLBACK;
SELECT pieces('g') = :'whole' AS whole;
SET ttl_docs.clock_offset = 500;
SELECT id, doc FROM g ORDER BY id;
SET client_min_messages = warning;
DROP EXTENSION ttl_docs CASCADE;
RESET client_min_messages;
SELECT count(*) FROM pg_seclabel WHERE provider = 'ttl_docs';
SELECT attname FROM pg_attribute WHERE attrelid = 'g'::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum;
SELECT count(*) FROM pg_trigger WHERE tgrelid = 'g'::regclass;
SELECT id, doc FROM g ORDER BY id;
INSERT INTO g VALUES ('plain', '{"ttl": 0}');
ALTER TABLE g RENAME COLUMN _slot TO slot;
ALTER TABLE g RENAME COLUMN slot TO _slot;
-- Without the extension, the label cannot be set.
SECURITY LABEL FOR ttl_docs ON TABLE g IS :'label_g';
\echo :SQLSTATE
CREATE EXTENSION ttl_docs;
DELETE FROM g WHERE id = 'plain';
SELECT ttl_docs.adopt('g', 6000);
SELECT pieces('g') = :'whole' AS whole;
SELECT id, doc FROM g ORDER BY id;
RESET ttl_docs.clock_offset;
SELECT ttl_docs.drop_collection('g');
DROP FUNCTION pieces(regclass), other();
