-- Another user calls every function of the extension on a collection, first without any
-- privilege and then with some.  The test shows what is refused, what is returned, and
-- that nothing changes.
\set SHOW_CONTEXT never
CREATE ROLE regress_ttl_sec_owner;
CREATE ROLE regress_ttl_sec_stranger;
CREATE SCHEMA sec AUTHORIZATION regress_ttl_sec_owner;
GRANT USAGE ON SCHEMA sec TO regress_ttl_sec_stranger;
SET ROLE regress_ttl_sec_owner;
SELECT ttl_docs.create_collection('sec.c', 1000);
INSERT INTO sec.c VALUES ('a', '{"secret": 1}'), ('dead', '{"secret": 2, "ttl": 100}');
CREATE TABLE sec.plain (id int PRIMARY KEY, doc jsonb);
CREATE FUNCTION sec.state() RETURNS text LANGUAGE plpgsql SET row_security = off AS $$
BEGIN
    RETURN concat_ws(', ', (SELECT label FROM pg_seclabel WHERE objoid = 'sec.c'::regclass AND provider = 'ttl_docs'),
        (SELECT count(*) FROM pg_seclabel WHERE objoid = 'sec.plain'::regclass),
        (SELECT string_agg(c::text, ' ' ORDER BY id) FROM sec.c), (SELECT count(*) FROM sec.plain));
END $$;
SELECT sec.state() AS before \gset
RESET ROLE;
SET ttl_docs.clock_offset = 200;

--
-- Every function is called
--
-- A new function must be added here, too.
CREATE TABLE sec_calls (call text, is_call boolean DEFAULT false);
INSERT INTO sec_calls (call) VALUES
    ('ttl_docs.adopt(''sec.plain'')'),
    ('ttl_docs.adopt(''sec.plain'', 5::bigint)'),
    ('ttl_docs.adopt(''sec.plain'', interval ''1 day'')'),
    ('ttl_docs.create_collection(''sec.new'')'),
    ('ttl_docs.create_collection(''sec.new'', 5::bigint)'),
    ('ttl_docs.create_collection(''sec.new'', interval ''1 day'')'),
    ('ttl_docs.create_document(''sec.c'', ''{"id": "new"}'')'),
    ('ttl_docs.delete_document(''sec.c'', ''a'')'),
    ('ttl_docs.delete_document(''sec.c'', ''"a"''::jsonb)'),
    ('ttl_docs.document_ttl(''{"ttl": 5}'')'),
    ('ttl_docs.documents(''sec.c'')'),
    ('ttl_docs.drop_collection(''sec.c'')'),
    ('ttl_docs.expires_at(''sec.c'', ''epoch'', 5)'),
    ('ttl_docs.get_default_ttl(''sec.c'')'),
    ('ttl_docs.is_expired(''sec.c'', ''epoch'', 5)'),
    ('ttl_docs.merge_patch(''{}'', ''{}'')'),
    ('ttl_docs.now() > ''epoch'''),
    ('ttl_docs.patch_document(''sec.c'', ''a'', ''{}'')'),
    ('ttl_docs.patch_document(''sec.c'', ''"a"''::jsonb, ''{}'')'),
    ('ttl_docs.pause_purge(''sec.c'')'),
    ('ttl_docs.preview(''sec.c'', 5)'),
    ('ttl_docs.preview(''sec.c'', 5::bigint)'),
    ('ttl_docs.preview(''sec.c'', interval ''1 day'')'),
    ('ttl_docs.purging()'),
    ('ttl_docs.read_document(''sec.c'', ''a'')'),
    ('ttl_docs.read_document(''sec.c'', ''"a"''::jsonb)'),
    ('ttl_docs.release(''sec.c'')'),
    ('ttl_docs.replace_document(''sec.c'', ''{"id": "a"}'')'),
    ('ttl_docs.resume_purge(''sec.c'')'),
    ('ttl_docs.set_default_ttl(''sec.c'', 1)'),
    ('ttl_docs.set_default_ttl(''sec.c'', 1::bigint)'),
    ('ttl_docs.set_default_ttl(''sec.c'', interval ''1 second'')'),
    ('ttl_docs.set_indexing(''sec.c'', ''lazy'')'),
    ('ttl_docs.set_purge_subscribed(''sec.c'', true)'),
    ('ttl_docs.touch_document(''sec.c'', ''a'')'),
    ('ttl_docs.touch_document(''sec.c'', ''"a"''::jsonb)'),
    ('ttl_docs.upsert_document(''sec.c'', ''{"id": "a"}'')'),
    ('(ttl_docs_internal.collection_stats(''sec.c'')).last_error'),
    ('ttl_docs_internal.adoption_command(''sec.c'')'),
    ('ttl_docs_internal.online_progress()'),
    ('ttl_docs_internal.expires_under(''epoch'', 5, 5)'),
    ('ttl_docs_internal.first_ts(''epoch''::timestamptz, 1)'),
    ('ttl_docs_internal.first_ts(''epoch''::timestamp, 1)'),
    ('ttl_docs_internal.is_live(''epoch'', 5, ''sec.c'')'),
    ('ttl_docs_internal.has_open_instant(1)'),
    ('ttl_docs_internal.is_shard(''sec.c'')'),
    ('ttl_docs_internal.is_live_parent(''epoch'', 5, ''sec.c'')'),
    ('ttl_docs_internal.newly_expired(''sec.c'', ''{}'', ''{}'')'),
    ('ttl_docs_internal.node_clock() > 0'),
    ('ttl_docs_internal.node_stats() ~ ''sec'''),
    ('ttl_docs_internal.patchable(''{}'')'),
    ('ttl_docs_internal.require_live(''epoch'', 5, ''sec.c'')'),
    ('ttl_docs_internal.returned_document(''{}'', ''"a"'', ''epoch'')'),
    ('(ttl_docs_internal.shard_stats()).last_error'),
    ('ttl_docs_internal.slot(''epoch'', 5, 5)'),
    ('ttl_docs_internal.ttl_interval_in(''1 day'', 0, -1)'),
    ('ttl_docs_internal.ttl_interval_out(''1 day'')'),
    ('ttl_docs_internal.ttl_interval_recv(''1 day'', 0, -1)'),
    ('ttl_docs_internal.ttl_interval_send(''1 day'')'),
    ('ttl_docs_internal.write_document()');
INSERT INTO sec_calls VALUES ('ttl_docs.purge(''sec.c'')', true),
    ('ttl_docs.adopt_concurrently(''sec.plain'')', true),
    ('ttl_docs.adopt_concurrently(''sec.plain'', 5::bigint)', true),
    ('ttl_docs.adopt_concurrently(''sec.plain'', interval ''1 day'')', true),
    ('ttl_docs.set_indexing_concurrently(''sec.c'', ''lazy'')', true),
    ('ttl_docs_internal.purge_shards(''sec.c'', 0, NULL, 1, NULL)', true);
GRANT SELECT ON sec_calls TO PUBLIC;
SELECT n.nspname, p.proname
  FROM pg_proc AS p
  JOIN pg_namespace AS n ON n.oid = p.pronamespace
  JOIN pg_depend AS d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'
  JOIN pg_extension AS e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid AND e.extname = 'ttl_docs'
 GROUP BY 1, 2
-- There are as many calls as versions of a function.
HAVING count(*) > (SELECT count(*) FROM sec_calls WHERE call ~ ('^\(?' || n.nspname || '\.' || p.proname || '\('));
-- No function runs with the privileges of another user.
SELECT p.oid::regprocedure FROM pg_proc AS p JOIN pg_depend AS d ON d.objid = p.oid AND d.classid = 'pg_proc'::regclass AND d.deptype = 'e'
  JOIN pg_extension AS e ON d.refobjid = e.oid AND e.extname = 'ttl_docs'
 WHERE p.prosecdef OR p.proleakproof OR p.prolang <> (SELECT oid FROM pg_language WHERE lanname = 'c')
   -- The type ttl_interval has the I/O functions of interval.
   AND NOT (p.prolang = (SELECT oid FROM pg_language WHERE lanname = 'internal')
            AND p.proname = 'ttl_' || p.prosrc AND p.prosrc ~ '^interval_(in|out|recv|send)$');

-- Returns the result of each call, as the current role.
CREATE FUNCTION sec_try_all() RETURNS TABLE (what text, result text) LANGUAGE plpgsql AS $$
DECLARE
    is_call boolean;
BEGIN
    FOR what, is_call IN SELECT * FROM public.sec_calls ORDER BY call COLLATE "C" LOOP
        BEGIN
            IF is_call THEN
                EXECUTE 'CALL ' || what;
                result := 'done';
            ELSE
                EXECUTE format('SELECT left((%s)::text, 60)', what) INTO result;
            END IF;
        EXCEPTION WHEN OTHERS THEN
            result := sqlstate || ': ' || sqlerrm;
        END;
        RETURN NEXT;
    END LOOP;
END $$;

--
-- Without any privilege
--
SET timezone = 'UTC';
SET ROLE regress_ttl_sec_stranger;
-- What ttl_interval_recv() says depends on the minor version of PostgreSQL.
SELECT * FROM sec_try_all() WHERE what !~ 'interval_recv';
CALL ttl_docs.purge();
RESET ROLE;
SELECT sec.state() = :'before' AS unchanged;
-- By OID, without USAGE on the schema
REVOKE USAGE ON SCHEMA sec FROM regress_ttl_sec_stranger;
SELECT 'sec.c'::regclass::oid AS c \gset
SET ROLE regress_ttl_sec_stranger;
\set VERBOSITY sqlstate
SELECT ttl_docs.read_document(:c, 'a');
SELECT ttl_docs.documents(:c);
SELECT ttl_docs.delete_document(:c, 'a');
SELECT * FROM ttl_docs.preview(:c, 5);
\set VERBOSITY default
RESET ROLE;
GRANT USAGE ON SCHEMA sec TO regress_ttl_sec_stranger;

--
-- With all privileges except ownership
--
GRANT ALL ON sec.c, sec.plain TO regress_ttl_sec_stranger;
BEGIN;
SET LOCAL ROLE regress_ttl_sec_stranger;
SELECT what, regexp_replace(result, '"_ts": \d+', '"_ts": ...', 'g') FROM sec_try_all()
 WHERE what !~ 'internal|expire|now|purging|document_ttl|merge_patch|get_default';
ROLLBACK;
SELECT sec.state() = :'before' AS unchanged;

--
-- Internal functions, with arbitrary arguments
--
CREATE TABLE sec_any AS
SELECT * FROM (VALUES (NULL::timestamptz), ('infinity'), ('-infinity'), ('4714-11-24 00:00:00+00 BC'), ('294276-12-31 23:59:59.999999+00'), ('2000-01-01 00:00:00+00')) AS a (ts),
    (VALUES (NULL::int), (0), (-1), (-2147483648), (2147483647), (1)) AS b (ttl), (VALUES (NULL::int), (0), (-1), (-2147483648), (2147483647), (1)) AS c (def);
GRANT SELECT ON sec_any TO PUBLIC;
SET ROLE regress_ttl_sec_stranger;
SELECT count(ttl_docs_internal.slot(ts, ttl, def)) AS slot, count(ttl_docs_internal.expires_under(ts, ttl, def)) AS expires_under,
    count(ttl_docs.expires_at('sec.c', ts, ttl)) AS expires_at, count(ttl_docs.is_expired('sec.c', ts, ttl)) AS is_expired,
    count(ttl_docs_internal.is_live(ts, ttl, 'sec.c')) AS is_live, count(ttl_docs_internal.is_live_parent(ts, ttl, 'sec.c')) AS is_live_parent,
    count(ttl_docs_internal.first_ts(ts, ttl)) AS first_ts, count(ttl_docs_internal.first_ts(ts::timestamp, ttl)) AS first_ts_without,
    count(ttl_docs_internal.returned_document('{}', to_jsonb(ttl), ts)) AS returned_document FROM sec_any;
\set VERBOSITY terse
SELECT ttl_docs_internal.is_live(now(), 1, NULL);
SELECT ttl_docs_internal.is_live(now(), 1, 0);
SELECT ttl_docs_internal.is_live(now(), 1, 'pg_authid');
SELECT ttl_docs_internal.is_live_parent(now(), 1, 'sec.plain');
SELECT ttl_docs_internal.require_live(NULL, NULL, NULL);
SELECT ttl_docs_internal.require_live('-infinity', 2147483647, 'sec.c');
SELECT ttl_docs_internal.returned_document('[1]', '1', NULL), ttl_docs_internal.returned_document('{}', '[1]', NULL), ttl_docs_internal.returned_document('1', '{"a": 1}', 'epoch'),
    ttl_docs_internal.returned_document('{"id": {}}', '"x"', 'infinity'), ttl_docs_internal.returned_document(NULL, NULL, NULL);
SELECT ttl_docs_internal.patchable(NULL);
SELECT ttl_docs_internal.collection_stats(NULL), ttl_docs_internal.collection_stats(0), ttl_docs_internal.collection_stats('pg_authid'), ttl_docs_internal.collection_stats('sec.plain');
SELECT ttl_docs.read_document('pg_authid', 'x');
SELECT ttl_docs.documents(0);
SELECT ttl_docs.preview('pg_authid', 1);
-- The trigger function on tables that are not collections
CREATE TEMP TABLE sec_temp (id int, doc jsonb, _ts timestamptz, _ttl int, _slot bigint);
CREATE TRIGGER t BEFORE INSERT ON sec_temp FOR EACH ROW EXECUTE FUNCTION ttl_docs_internal.write_document();
INSERT INTO sec_temp VALUES (1);
CREATE TEMP VIEW sec_view AS SELECT * FROM sec.c;
CREATE TRIGGER t INSTEAD OF INSERT ON sec_view FOR EACH ROW EXECUTE FUNCTION ttl_docs_internal.write_document();
INSERT INTO sec_view VALUES ('x');
DROP VIEW sec_view;
DROP TABLE sec_temp;
RESET ROLE;
SELECT sec.state() = :'before' AS unchanged;

RESET timezone;
RESET ttl_docs.clock_offset;
SET client_min_messages = warning;
DROP TABLE sec_calls, sec_any;
DROP FUNCTION sec_try_all();
DROP SCHEMA sec CASCADE;
DROP ROLE regress_ttl_sec_owner, regress_ttl_sec_stranger;
