-- Only a superuser can change privileged settings, by any means.  A security label
-- written by hand harms nobody but the owner of the table.
\set SHOW_CONTEXT never
\set VERBOSITY terse
CREATE ROLE regress_ttl_sec_user;
CREATE SCHEMA sec AUTHORIZATION regress_ttl_sec_user;
CREATE DATABASE regress_ttl_sec_database OWNER regress_ttl_sec_user;

--
-- Privileged settings
--
SET ROLE regress_ttl_sec_user;
SET ttl_docs.clock_offset = 5;
SET LOCAL ttl_docs.show_expired = on;
SELECT set_config('ttl_docs.show_expired', 'on', true);
UPDATE pg_settings SET setting = 'on' WHERE name = 'ttl_docs.show_expired';
DO $$ BEGIN SET LOCAL ttl_docs.clock_offset = 5; END $$;
CREATE FUNCTION sec.f() RETURNS text LANGUAGE sql SET ttl_docs.show_expired = on AS 'SELECT 1::text';
CREATE FUNCTION sec.f() RETURNS text LANGUAGE sql AS 'SELECT 1::text';
ALTER FUNCTION sec.f() SET ttl_docs.clock_offset = 5;
ALTER ROLE regress_ttl_sec_user SET ttl_docs.show_expired = on;
ALTER ROLE regress_ttl_sec_user SET ttl_docs.clock_offset = 5;
ALTER DATABASE regress_ttl_sec_database SET ttl_docs.show_expired = on;
ALTER DATABASE regress_ttl_sec_database SET ttl_docs.purge = off;
ALTER SYSTEM SET ttl_docs.purge = off;
\set VERBOSITY sqlstate
SET ttl_docs.purge_max_rate = 1;
SET ttl_docs.purge_workers = 1;
SET ttl_docs.purge_naptime = 100;
SET ttl_docs.purge_batch_size = 1;
-- A user cannot set other names with this prefix either.
SET ttl_docs.anything = 1;
SET "ttl_docs.show_expired " = on;
ALTER ROLE regress_ttl_sec_user SET ttl_docs.anything = 1;
\set VERBOSITY terse
RESET ROLE;
SELECT name, context FROM pg_settings WHERE name LIKE 'ttl\_docs.%' ORDER BY name;
-- A superuser's SECURITY DEFINER function can show expired documents to other users.
CREATE FUNCTION sec_count() RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER SET ttl_docs.show_expired = on AS $$ BEGIN RETURN (SELECT count(*) FROM sec.s); END $$;
SET ROLE regress_ttl_sec_user;
SELECT ttl_docs.create_collection('sec.s', 1000);
INSERT INTO sec.s VALUES ('dead', '{"ttl": 100}');
RESET ROLE;
SET ttl_docs.clock_offset = 200;
SET ROLE regress_ttl_sec_user;
SELECT sec_count(), current_setting('ttl_docs.show_expired'), (SELECT count(*) FROM sec.s);
RESET ROLE;
RESET ttl_docs.clock_offset;
DROP FUNCTION sec_count();

--
-- A label written by hand
--
SET ROLE regress_ttl_sec_user;
CREATE TABLE sec.l (id text PRIMARY KEY, doc jsonb, _ts timestamptz NOT NULL DEFAULT clock_timestamp(), _ttl int, _slot bigint);
CREATE FUNCTION sec.try(changes jsonb, without text DEFAULT '') RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('SECURITY LABEL FOR ttl_docs ON TABLE sec.l IS %L', ('{"version": 1, "document": "doc", "default_ttl": 60, "indexing": "consistent",
        "written_floor": null, "due_floor": null, "paused": false, "database": 0, "table": 0}'::jsonb || changes) - without);
    RETURN 'taken';
EXCEPTION WHEN OTHERS THEN
    RETURN sqlstate || ': ' || sqlerrm;
END $$;
SELECT without, sec.try('{}', without) FROM unnest('{version,document,default_ttl,indexing,written_floor,due_floor,paused,database,table}'::text[]) AS without;
SELECT changes, sec.try(changes) FROM unnest(ARRAY['{"version": 2}', '{"version": "1"}', '{"version": 1.5}', '{"document": ""}', '{"document": "id"}', '{"document": "_ts"}', '{"document": "ctid"}', '{"document": 1}',
    '{"document": null}', '{"document": {"a": 1}}', '{"default_ttl": 0}', '{"default_ttl": -2}', '{"default_ttl": 2147483648}', '{"default_ttl": 1.5}', '{"default_ttl": "60"}', '{"default_ttl": 1e30}', '{"default_ttl": []}',
    '{"indexing": "btree"}', '{"indexing": null}', '{"written_floor": "now"}', '{"written_floor": "infinity"}', '{"due_floor": "2020-01-01"}', '{"due_floor": 5}', '{"due_floor": "999999-01-01T00:00:00+00:00"}',
    '{"paused": null}', '{"paused": "no"}', '{"database": -1}', '{"database": 4294967296}', '{"table": 1e20}', '{"table": true}']::jsonb[]) AS changes;
SELECT left(changes::text, 20) AS changes, length(changes::text), sec.try(changes) FROM unnest(ARRAY[jsonb_build_object('document', repeat('x', 64)), jsonb_build_object('document', repeat('x', 2000)),
    jsonb_build_object('more', repeat('x', 100000)), ('{"more": ' || repeat('[', 1000) || repeat(']', 1000) || '}')::jsonb]) AS changes;
SECURITY LABEL FOR ttl_docs ON TABLE sec.l IS '';
SECURITY LABEL FOR ttl_docs ON TABLE sec.l IS '[]';
SECURITY LABEL FOR ttl_docs ON TABLE sec.l IS '5';
\set VERBOSITY sqlstate
SECURITY LABEL FOR ttl_docs ON TABLE sec.l IS '{';
DO $$ BEGIN EXECUTE format('SECURITY LABEL FOR ttl_docs ON TABLE sec.l IS %L', repeat('[', 1000)); END $$;
\set VERBOSITY terse
SECURITY LABEL FOR ttl_docs ON COLUMN sec.l.doc IS '{}';
SECURITY LABEL FOR ttl_docs ON SCHEMA sec IS '{}';
SECURITY LABEL FOR ttl_docs ON FUNCTION sec.f() IS '{}';
SELECT count(*) FROM pg_seclabels WHERE objname LIKE 'sec.l%';
RESET ROLE;
-- A table of another user
CREATE TABLE sec_l (LIKE sec.l INCLUDING ALL);
SET ROLE regress_ttl_sec_user;
SECURITY LABEL FOR ttl_docs ON TABLE sec_l IS '{"version": 1, "document": "doc", "default_ttl": 60, "indexing": "consistent", "written_floor": null, "due_floor": null, "paused": false, "database": 0, "table": 0}';
SECURITY LABEL FOR ttl_docs ON TABLE pg_authid IS '{"version": 1, "document": "doc", "default_ttl": 60, "indexing": "consistent", "written_floor": null, "due_floor": null, "paused": false, "database": 0, "table": 0}';
RESET ROLE;
SECURITY LABEL FOR ttl_docs ON TABLE pg_authid IS '{"version": 1, "document": "rolname", "default_ttl": 60, "indexing": "consistent", "written_floor": null, "due_floor": null, "paused": false, "database": 0, "table": 0}';
DROP TABLE sec_l;

--
-- Floors and _ts values far outside the clock's range
--
SET ROLE regress_ttl_sec_user;
INSERT INTO sec.l VALUES ('1', '{}', '-infinity', NULL, -9223372036854775808), ('2', '{}', '294276-12-31 23:59:59.999999+00', 2147483647, 9223372036854775807), ('3', '{}', 'epoch', 0, 9223372036854775806),
    ('4', '{}', '4714-11-24 00:00:00+00 BC', -2147483648, -1), ('5', '{}', 'infinity', 5, 5), ('6', '{}', 'epoch', 5, 4611686018427387904), ('7', '{}', 'epoch', NULL, NULL);
SELECT sec.try('{"written_floor": "294276-12-31T23:59:59.999998+00:00", "due_floor": "294276-12-31T23:59:59.999998+00:00"}');
CREATE INDEX ON sec.l (_slot);
CREATE TRIGGER zzz_ttl_docs BEFORE INSERT OR UPDATE OR DELETE ON sec.l FOR EACH ROW EXECUTE FUNCTION ttl_docs_internal.write_document();
-- All existing documents have expired for their owner; new ones have not.
SELECT id FROM sec.l ORDER BY id;
INSERT INTO sec.l (id, doc) VALUES ('new', '{}'), ('new with ttl', '{"ttl": 5}'), ('new with a long one', '{"ttl": 2147483647}'), ('7', '{}');
SELECT id FROM sec.l ORDER BY id;
SELECT ttl_docs.resume_purge('sec.l');
CALL ttl_docs.purge('sec.l');
SELECT ttl_docs.set_default_ttl('sec.l', 1000);
SELECT ttl_docs.set_default_ttl('sec.l', NULL);
SELECT ttl_docs.set_indexing('sec.l', 'lazy');
CALL ttl_docs.purge('sec.l');
SELECT count(*) FROM ttl_docs.stat_collections WHERE collection = 'sec.l'::regclass;
SELECT count(*) > 0 AS some FROM ttl_docs.documents('sec.l');
-- The label cannot be removed or replaced to bring expired documents back.
SECURITY LABEL FOR ttl_docs ON TABLE sec.l IS NULL;
SELECT sec.try('{}');
SELECT ttl_docs.release('sec.l');
RESET ROLE;

DROP DATABASE regress_ttl_sec_database;
SET client_min_messages = warning;
DROP SCHEMA sec CASCADE;
DROP ROLE regress_ttl_sec_user;
