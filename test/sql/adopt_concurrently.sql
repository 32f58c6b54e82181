-- adopt_concurrently() makes a table a collection without a rewrite.  It writes only rows
-- that need other values, and no trigger and no generated column notices.  An adoption that
-- failed in the middle leaves a collection with TTL off, and the next call continues it.
\set SHOW_CONTEXT never
SET timezone = 'UTC';

-- Shows in one line which parts of a collection a table has.
CREATE FUNCTION pieces(t regclass) RETURNS text LANGUAGE sql AS $$
SELECT concat_ws(' | ',
    (SELECT string_agg(attname || CASE WHEN attnotnull THEN '!' ELSE '' END || attgenerated::text, ' ' ORDER BY attnum)
       FROM pg_attribute WHERE attrelid = t AND attnum > 0 AND NOT attisdropped),
    (SELECT string_agg(tgname || ' ' || tgenabled::text, ', ' ORDER BY tgname) FROM pg_trigger
      WHERE tgrelid = t AND NOT tgisinternal AND tgname ~ 'ttl_docs'),
    (SELECT string_agg(regexp_replace(pg_get_indexdef(indexrelid), '.* USING ', '')
                       || CASE WHEN indisvalid THEN '' ELSE ' INVALID' END, ', '
                       ORDER BY pg_get_indexdef(indexrelid) COLLATE "C") FROM pg_index WHERE indrelid = t),
    (SELECT concat(doc_column, ' ', coalesce(default_ttl::text, 'off'), ' ', indexing)
       FROM ttl_docs.collections WHERE collection = t))
$$;

--
-- Only rows with their own ttl are written
--
CREATE TABLE a (id int PRIMARY KEY, data jsonb, updated_at timestamptz DEFAULT 'epoch',
                title text GENERATED ALWAYS AS (data ->> 'title') STORED);
CREATE TABLE audit (what text);
CREATE FUNCTION touch() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.updated_at := clock_timestamp();
    RETURN NEW;
END $$;
CREATE FUNCTION audit() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO audit VALUES (tg_op || ' ' || tg_level);
    RETURN NULL;
END $$;
INSERT INTO a VALUES (1, '{"title": "x"}'), (2, '{"ttl": 500}'), (3, '{"ttl": -1}'),
    (4, '{"ttl": null}'), (5, NULL), (6, '[1]');
CREATE TRIGGER touch BEFORE UPDATE ON a FOR EACH ROW EXECUTE FUNCTION touch();
CREATE TRIGGER audit_row AFTER INSERT OR UPDATE ON a FOR EACH ROW EXECUTE FUNCTION audit();
CREATE TRIGGER audit_statement AFTER UPDATE ON a FOR EACH STATEMENT EXECUTE FUNCTION audit();
ALTER TABLE a ENABLE ALWAYS TRIGGER audit_row;
CREATE TABLE a_before AS SELECT ctid AS old_ctid, xmin AS old_xmin, * FROM a;
SELECT pg_relation_filenode('a') AS file, clock_timestamp() AS before \gset
CALL ttl_docs.adopt_concurrently('a', 6000);
SELECT pieces('a');
SELECT pg_relation_filenode('a') = :file AS same_file;
SELECT a.id, _ttl, _slot IS NOT NULL AS slotted, a.ctid <> old_ctid AS written,
       _ts BETWEEN :'before' AND clock_timestamp() AS stamped_now,
       ttl_docs_internal.slot(_ts, _ttl, 6000) IS NOT DISTINCT FROM _slot AS right_slot,
       (a.updated_at, a.title) IS NOT DISTINCT FROM (b.updated_at, b.title) AS same
  FROM a JOIN a_before AS b USING (id) ORDER BY id;
SELECT count(DISTINCT _ts) FROM a;
SELECT * FROM audit;
SET ttl_docs.clock_offset = 500;
SELECT id FROM a ORDER BY id;
SET ttl_docs.clock_offset = 6000;
SELECT id FROM a ORDER BY id;
RESET ttl_docs.clock_offset;
-- It is a collection like any other now.
INSERT INTO a VALUES (7, '{"ttl": 0}');
UPDATE a SET data = '{"ttl": 50}' WHERE id = 1;
SELECT id, _ttl FROM a WHERE id = 1;
CALL ttl_docs.adopt_concurrently('a', 6000);
SELECT ttl_docs.adopt('a', 6000);
SELECT ttl_docs.release('a');
SELECT pieces('a');

--
-- The first _ts from a column
--
CREATE TABLE b (id int PRIMARY KEY, doc jsonb, changed timestamptz, local timestamp);
INSERT INTO b VALUES (1, '{}', now() - interval '1 hour', now() - interval '2 hours'),
    (2, '{"ttl": 7200}', now() - interval '1 hour', now() - interval '2 hours'),
    (3, '{"ttl": 60}', now() - interval '1 hour', NULL), (4, '{}', NULL, 'infinity'), (5, '{}', 'infinity', NULL),
    (6, '{}', '-infinity', '-infinity');
CALL ttl_docs.adopt_concurrently('b', 36000, last_modified => 'changed');
SET row_security = off;
SELECT id, _ttl, _ts = changed AS from_column, _slot = ttl_docs_internal.slot(_ts, _ttl, 36000) AS right_slot FROM b ORDER BY id;
RESET row_security;
SELECT id FROM b ORDER BY id;
-- What expired is deleted, as by any release.
SELECT ttl_docs.release('b');
-- A timestamp without time zone is in the time zone of the session that began.
SET timezone = 'Asia/Tokyo';
CALL ttl_docs.adopt_concurrently('b', NULL, last_modified => 'local');
SELECT id, _ts = local::timestamptz AS from_column FROM b ORDER BY id;
SELECT ttl_docs.release('b');
SET timezone = '<+0530>-05:30';
CALL ttl_docs.adopt_concurrently('b', NULL, last_modified => 'local', indexing => 'none');
SELECT id, _ts = local::timestamptz AS from_column FROM b ORDER BY id;
SELECT pieces('b');
SELECT ttl_docs.release('b');
SET timezone = 'UTC';

--
-- Other arguments
--
CALL ttl_docs.adopt_concurrently('b', interval '1 day', indexing => 'lazy');
SELECT pieces('b');
SELECT ttl_docs.release('b');
CALL ttl_docs.adopt_concurrently('b', -1::double precision, 'doc', NULL, 'consistent');
SELECT pieces('b');
SELECT ttl_docs.release('b');
-- an empty table
CREATE TABLE empty (id int PRIMARY KEY, doc jsonb, changed timestamptz);
CALL ttl_docs.adopt_concurrently('empty', 60, last_modified => 'changed');
SELECT pieces('empty');
DROP TABLE empty;
-- Under other defaults of the session
SET default_transaction_isolation = serializable;
SET default_transaction_deferrable = on;
CALL ttl_docs.adopt_concurrently('b', 36000);
SHOW transaction_isolation;
SELECT ttl_docs.release('b');
RESET default_transaction_isolation;
RESET default_transaction_deferrable;

--
-- Refusals change nothing
--
CALL ttl_docs.adopt_concurrently(NULL);
CALL ttl_docs.adopt_concurrently('b', indexing => NULL);
CALL ttl_docs.adopt_concurrently('b', 0);
CALL ttl_docs.adopt_concurrently('b', 60, indexing => 'none');
CALL ttl_docs.adopt_concurrently('b', 60, 'missing');
CALL ttl_docs.adopt_concurrently('b', 60, last_modified => 'id');
CALL ttl_docs.adopt_concurrently('audit');
CALL ttl_docs.adopt_concurrently('b_pkey');
CALL ttl_docs.adopt_concurrently(0);
-- It commits, so it needs a statement of its own.
BEGIN;
CALL ttl_docs.adopt_concurrently('b', 60);
\echo :SQLSTATE
ROLLBACK;
SELECT 1\; CALL ttl_docs.adopt_concurrently('b', 60);
DO $$ BEGIN CALL ttl_docs.adopt_concurrently('b', 60); END $$;
CREATE PROCEDURE outer_procedure() LANGUAGE plpgsql AS $$ BEGIN CALL ttl_docs.adopt_concurrently('b', 60); END $$;
CALL outer_procedure();
DROP PROCEDURE outer_procedure;
SET default_transaction_read_only = on;
CALL ttl_docs.adopt_concurrently('b', 60);
RESET default_transaction_read_only;
-- Columns that are there already keep their values only with adopt().
ALTER TABLE b ADD COLUMN _ttl int;
CALL ttl_docs.adopt_concurrently('b', 60);
ALTER TABLE b DROP COLUMN _ttl;
SET timezone = '<+03>-3<ABCDEFGHIJKLMNOPQRSTUVWXYZABCDEFGHIJKLMNOPQRSTUVWXYZ>,M3.2.0,M11.1.0';
CALL ttl_docs.adopt_concurrently('b', 60, last_modified => 'local');
SET timezone = 'UTC';
-- another user
CREATE ROLE regress_ttl_online_other;
CREATE ROLE regress_ttl_online_owner;
GRANT SELECT, UPDATE, TRIGGER ON b TO regress_ttl_online_other;
SET ROLE regress_ttl_online_other;
CALL ttl_docs.adopt_concurrently('b', 60);
RESET ROLE;
SELECT pieces('b');

--
-- An adoption that fails in the middle.  The first row has an invalid ttl, so no row is filled.
--
CREATE TABLE c (id int PRIMARY KEY, "My ""doc""" jsonb, "when" timestamptz, note text);
INSERT INTO c VALUES (1, '{"ttl": 0}', now(), 'invalid'), (2, '{"ttl": 500}', now() - interval '1 minute', 'own'),
    (3, '{}', now() - interval '1 minute', 'inherits'), (4, '{"ttl": 600}', now() - interval '1 minute', 'own'),
    (5, '{"ttl": -1}', now() - interval '1 minute', 'never'), (6, '{"ttl": 50}', now() - interval '1 hour', 'expired');
CALL ttl_docs.adopt_concurrently('c', 6000, last_modified => 'when');
\echo :SQLSTATE
-- The error says so, too.
\set SHOW_CONTEXT always
CALL ttl_docs.adopt_concurrently('c', 6000, last_modified => 'when');
\set SHOW_CONTEXT never
-- The table works.  TTL is off, and nothing is filled.
SELECT pieces('c');
SELECT hint FROM ttl_docs.collections WHERE collection = 'c'::regclass;
SELECT * FROM ttl_docs.stat_progress;
SELECT count(*), count(_ttl), count(DISTINCT _ts) FROM c;
-- Writes are stamped.  An UPDATE that leaves the document alone reads its ttl.
SELECT min(_ts) AS adopted FROM c \gset
INSERT INTO c VALUES (7, '{"ttl": 70}'), (8, '{}');
UPDATE c SET note = 'touched' WHERE id = 4;
UPDATE c SET "My ""doc""" = '{"ttl": 55}' WHERE id = 5;
SET session_replication_role = replica;
UPDATE c SET note = 'replicated' WHERE id = 2;
RESET session_replication_role;
SELECT id, _ttl, _ts > :'adopted' AS stamped, _slot = ttl_docs_internal.slot(_ts, _ttl, 6000) AS right_slot
  FROM c WHERE id IN (2, 4, 5, 7, 8) ORDER BY id;
-- A DefaultTTL is to come, so an invalid ttl is refused.
INSERT INTO c VALUES (9, '{"ttl": 0}');
\echo :SQLSTATE
UPDATE c SET "My ""doc""" = '{"ttl": "9"}' WHERE id = 3;
UPDATE c SET note = 'still invalid' WHERE id = 1;
COPY c (id, "My ""doc""") FROM stdin;
9	{"ttl": 1.5}
\.
-- What would interfere is refused.
SELECT ttl_docs.adopt('c', 6000);
\echo :SQLSTATE
SELECT ttl_docs.set_default_ttl('c', 60);
SELECT ttl_docs.set_indexing('c', 'lazy');
SELECT * FROM ttl_docs.preview('c', 60);
ALTER TABLE c DROP COLUMN "when";
\echo :SQLSTATE
ALTER TABLE c ALTER COLUMN "when" TYPE timestamp;
ALTER TABLE c ALTER COLUMN "when" TYPE timestamptz USING "when" + interval '1 day';
ALTER TABLE c DROP COLUMN _ts;
ALTER TABLE c DROP COLUMN "My ""doc""";
SECURITY LABEL ON TABLE c IS NULL;
-- Renames are followed.
ALTER TABLE c RENAME COLUMN "when" TO "It's";
ALTER TABLE c RENAME COLUMN "My ""doc""" TO doc;
ALTER TABLE c RENAME TO "C d";
-- The arguments have to be the same.
CALL ttl_docs.adopt_concurrently('"C d"');
\echo :SQLSTATE
CALL ttl_docs.adopt_concurrently('"C d"', 6000);
CALL ttl_docs.adopt_concurrently('"C d"', 6000, last_modified => 'when');
CALL ttl_docs.adopt_concurrently('"C d"', 6000, 'note', 'It''s');
CALL ttl_docs.adopt_concurrently('"C d"', 6000, last_modified => 'It''s', indexing => 'lazy');
-- The command of the view continues.
UPDATE "C d" SET doc = '{"ttl": 10}' WHERE id = 1;
SELECT regexp_replace(hint, '.*continue: ', '') AS command FROM ttl_docs.collections WHERE collection = '"C d"'::regclass \gset
\echo :command
:command;
SET row_security = off;
SELECT id, _ttl, CASE WHEN _ts = "It's" THEN 'column' WHEN _ts > :'adopted' THEN 'clock' WHEN _ts = :'adopted' THEN 'adoption' END AS ts,
       _slot = ttl_docs_internal.slot(_ts, _ttl, 6000) AS right_slot, note
  FROM "C d" ORDER BY id;
RESET row_security;
SELECT pieces('"C d"');
-- The column may be dropped now.
ALTER TABLE "C d" DROP COLUMN "It's";
DROP TABLE "C d";

-- release() makes it a plain table again.
CREATE TABLE d (id int PRIMARY KEY, doc jsonb, changed timestamptz DEFAULT now() - interval '1 day');
INSERT INTO d VALUES (1, '{"ttl": 0}'), (2, '{"ttl": 5}');
CALL ttl_docs.adopt_concurrently('d', 60, last_modified => 'changed');
SELECT ttl_docs.release('d');
SELECT pieces('d');
SELECT id FROM d ORDER BY id;
-- With TTL off, nothing is refused.
CALL ttl_docs.adopt_concurrently('d');
SELECT id, _ttl FROM d ORDER BY id;
SELECT ttl_docs.set_default_ttl('d', 60);
SELECT ttl_docs.release('d');
-- A rewrite in between moves the rows, and keeps their values.
CALL ttl_docs.adopt_concurrently('d', 60, last_modified => 'changed');
VACUUM FULL d;
DELETE FROM d WHERE id = 1;
CALL ttl_docs.adopt_concurrently('d', 60, last_modified => 'changed');
SET row_security = off;
SELECT id, _ttl, _ts = changed AS from_column FROM d;
RESET row_security;
DROP TABLE d;

--
-- A table with much of what tables can have
--
CREATE FUNCTION indexed(doc jsonb) RETURNS text IMMUTABLE LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('ttl_test.spy', true) = 'on' THEN
        RAISE NOTICE 'index function as %, search_path %', current_user, current_setting('search_path');
        BEGIN
            PERFORM set_config('role', 'regress_ttl_online_other', false);
        EXCEPTION WHEN OTHERS THEN
            RAISE NOTICE '%', sqlerrm;
        END;
    END IF;
    RETURN doc ->> 'n';
END $$;
CREATE TABLE e (gone int, id int, doc jsonb, other text, mark int, gone2 text, changed timestamptz DEFAULT now() - interval '1 minute',
                UNIQUE (id) DEFERRABLE INITIALLY DEFERRED, EXCLUDE USING btree (mark WITH =));
ALTER TABLE e DROP COLUMN gone, DROP COLUMN gone2;
ALTER TABLE e ALTER COLUMN other SET STORAGE EXTERNAL;
INSERT INTO e SELECT i, CASE WHEN i % 7 = 0 THEN jsonb_build_object('ttl', 1000 + i, 'n', i) ELSE jsonb_build_object('n', i) END,
                     repeat('x', CASE WHEN i % 10 = 0 THEN 5000 ELSE 5 END), i FROM generate_series(1, 3000) AS i;
CREATE INDEX ON e USING gin (doc);
CREATE INDEX ON e USING brin (id);
CREATE INDEX ON e (indexed(doc)) WHERE indexed(doc) <> '21';
ALTER TABLE e ADD CHECK (id > 0), REPLICA IDENTITY FULL, ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
CREATE RULE no_updates AS ON UPDATE TO e DO INSTEAD NOTHING;
ALTER TABLE e OWNER TO regress_ttl_online_owner;
SELECT pg_relation_size(reltoastrelid) AS toast FROM pg_class WHERE oid = 'e'::regclass \gset
-- The constants of later columns are catalogued, too.
ALTER TABLE e ADD COLUMN late text DEFAULT 'constant';
CALL ttl_docs.adopt_concurrently('e', 100000, last_modified => 'changed');
ALTER TABLE e NO FORCE ROW LEVEL SECURITY;
SET row_security = off;
SELECT count(*), count(_ttl), count(*) FILTER (WHERE _ts = changed) AS from_column, count(*) FILTER (WHERE late = 'constant') AS late,
       count(*) FILTER (WHERE _slot = ttl_docs_internal.slot(_ts, _ttl, 100000)) AS right_slot, count(*) FILTER (WHERE length(other) IN (5, 5000)) AS other
  FROM e;
SELECT pg_relation_size(reltoastrelid) = :toast AS same_toast FROM pg_class WHERE oid = 'e'::regclass;
SET enable_seqscan = off;
SELECT id, _ttl FROM e WHERE indexed(doc) = '28' AND indexed(doc) <> '21';
SELECT count(*) FROM e WHERE doc @> '{"n": 28}';
SELECT count(*) FROM e WHERE mark = 28;
RESET enable_seqscan;
RESET row_security;
SELECT ttl_docs.release('e');
-- User code runs as the owner, in a restricted context.  The row fills most of a page, so its new
-- version needs new index entries.
DROP RULE no_updates ON e;
ALTER TABLE e ALTER COLUMN other SET STORAGE PLAIN;
TRUNCATE e;
INSERT INTO e VALUES (1, '{"n": 1, "ttl": 5}', repeat('x', 5000), 1);
SET ttl_test.spy = 'on';
CALL ttl_docs.adopt_concurrently('e', 100000);
RESET ttl_test.spy;
DROP TABLE e;
DROP FUNCTION indexed(jsonb);

--
-- Event triggers
--
CREATE FUNCTION log_ddl() RETURNS event_trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM count(*) FROM audit;
    INSERT INTO audit VALUES (tg_tag);
END $$;
CREATE EVENT TRIGGER log_ddl ON ddl_command_end EXECUTE FUNCTION log_ddl();
CALL ttl_docs.adopt_concurrently('b', 36000);
DROP EVENT TRIGGER log_ddl;
SELECT what, count(*) FROM audit GROUP BY what ORDER BY what COLLATE "C";
SELECT ttl_docs.release('b');

--
-- Logical replication
--
CREATE TABLE f (id int, doc jsonb);
INSERT INTO f VALUES (1, '{"ttl": 500}');
CREATE PUBLICATION p FOR TABLE f, b;
-- The written row could not be published.
CALL ttl_docs.adopt_concurrently('f', 60);
\echo :SQLSTATE
SELECT pieces('f');
-- Subscribers would not find it.
ALTER TABLE f REPLICA IDENTITY FULL;
CALL ttl_docs.adopt_concurrently('f', 60);
CALL ttl_docs.adopt_concurrently('b', 60);
SELECT ttl_docs.release('b');
DROP PUBLICATION p;
SELECT count(*) FROM pg_create_logical_replication_slot('adopt_concurrently', 'test_decoding');
CALL ttl_docs.adopt_concurrently('f', 6000);
SELECT regexp_replace(data, '_ts.*', '_ts...') AS change FROM pg_logical_slot_get_changes('adopt_concurrently', NULL, NULL, 'skip-empty-xacts', '1', 'include-xids', '0')
 WHERE data ~ '^table';
SELECT count(*) FROM pg_drop_replication_slot('adopt_concurrently');
DROP TABLE f;

DROP TABLE a, a_before, audit, b;
DROP FUNCTION touch(), audit(), log_ddl(), pieces(regclass);
DROP ROLE regress_ttl_online_other, regress_ttl_online_owner;
