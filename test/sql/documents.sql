-- The document functions on a collection made by create_collection(): arguments,
-- results and errors.  For all functions, an expired document does not exist.
--
-- _ts comes from the clock, so separate queries check _ts and the output leaves it out.
\set SHOW_CONTEXT never
SELECT ttl_docs.create_collection('d', 1000);

-- The stored documents as SQL sees them
CREATE VIEW stored AS SELECT id, doc, _ttl FROM d ORDER BY id;

--
-- Create
--
SELECT ttl_docs.create_document('d', '{"id": "a", "n": 1}') - '_ts' AS a;
SELECT ttl_docs.create_document('d', '{"n": 2, "ttl": 100, "id": "b", "in": {"id": 5, "_ts": 6}}') - '_ts' AS b;
SELECT * FROM stored;
-- A live document has this id.
SELECT ttl_docs.create_document('d', '{"id": "a", "n": 3}');
\echo :SQLSTATE
SELECT * FROM stored;
-- A document without an id, or with a null id, gets a uuid, also as its "id" property.
SELECT r ->> 'id' ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' AS has_uuid, r - 'id' - '_ts' AS rest,
       (SELECT jsonb_agg(DISTINCT k ORDER BY k) FROM jsonb_object_keys(r) AS k) AS properties
  FROM (SELECT ttl_docs.create_document('d', '{"n": 4}') AS r UNION ALL
        SELECT ttl_docs.create_document('d', '{"n": 5, "id": null}')) AS c;
SELECT count(*), count(DISTINCT id), bool_and(doc ->> 'id' = id) AS is_in_the_document FROM d WHERE id NOT IN ('a', 'b');
SELECT doc - 'id' AS doc FROM d WHERE id NOT IN ('a', 'b') ORDER BY doc;
DELETE FROM d WHERE id NOT IN ('a', 'b');
-- Any string can be an id.
SELECT ttl_docs.create_document('d', jsonb_build_object('id', i)) - '_ts' AS returned, ttl_docs.read_document('d', i)
  FROM unnest(ARRAY['', ' ', 'null', '1', 'A', E'\'"\\$1 {}', 'ü']) AS i;
SELECT count(*) FROM unnest(ARRAY['', ' ', 'null', '1', 'A', E'\'"\\$1 {}', 'ü']) AS i
 WHERE ttl_docs.read_document('d', i) ->> 'id' = i AND ttl_docs.delete_document('d', i);
SELECT * FROM stored;

--
-- Results
--
-- _ts is in seconds since 1970.  It is the same from every function, and equals the _ts
-- of the row at any time.
SELECT ttl_docs.read_document('d', 'a') - '_ts' AS a, ttl_docs.read_document('d', 'b') - '_ts' AS b;
SELECT ttl_docs.read_document('d', 'a') -> '_ts' = to_jsonb(floor(extract(epoch FROM _ts))::bigint) AS seconds,
       extract(epoch FROM now()) - (ttl_docs.read_document('d', 'a') ->> '_ts')::numeric BETWEEN -1 AND 600 AS of_now
  FROM d WHERE id = 'a';
SET ttl_docs.clock_offset = 500;
SELECT to_timestamp((r ->> '_ts')::bigint) > now() + interval '400 s' AS of_the_clock, r ->> '_ts' AS returned
  FROM ttl_docs.replace_document('d', '{"id": "a", "n": 1}') AS r \gset
\echo :of_the_clock
SELECT ttl_docs.read_document('d', 'a') ->> '_ts' = :'returned' AS read, floor(extract(epoch FROM _ts))::text = :'returned' AS stored FROM d WHERE id = 'a';
RESET ttl_docs.clock_offset;
-- Times before 1970, and before 2000, where PostgreSQL's own epoch begins, are rounded
-- down to whole seconds.
CREATE TABLE old (id text PRIMARY KEY, doc jsonb, at timestamptz);
INSERT INTO old VALUES ('1969', '{}', '1969-12-31 23:59:58.5+00'), ('1970', '{}', '1970-01-01 00:00:00+00'),
    ('1999', '{}', '1999-12-31 23:59:59.999999+00'), ('2000', '{"_ts": 5}', '2000-01-01 00:00:00.000001+00');
SELECT ttl_docs.adopt('old', last_modified => 'at');
SELECT o.* FROM ttl_docs.documents('old') AS o ORDER BY o ->> 'id';
DROP TABLE old;

--
-- Read
--
SELECT ttl_docs.read_document('d', 'none') IS NULL AS none, ttl_docs.read_document('d', NULL) IS NULL AS no_id,
       ttl_docs.read_document(id => 'b', collection => 'd') - '_ts' AS b;
-- If SQL wrote the document, read_document() adds the id to the result.
INSERT INTO d VALUES ('sql', '{"n": 6}'), ('other id', '{"id": "x", "_ts": "y"}'), ('number', '{"id": 5}'), ('array', '[1, {"id": 2}]'),
    ('string', '"x"'), ('null', 'null');
SELECT id, CASE jsonb_typeof(r) WHEN 'object' THEN r - '_ts' ELSE r END AS read, r -> '_ts' = to_jsonb(floor(extract(epoch FROM _ts))::bigint) AS ts
  FROM d, LATERAL ttl_docs.read_document('d', id) AS r WHERE id NOT IN ('a', 'b') ORDER BY id;
DELETE FROM d WHERE id NOT IN ('a', 'b');

--
-- Replace
--
SELECT ttl_docs.replace_document('d', '{"id": "b", "m": 1}') - '_ts' AS b;
SELECT * FROM stored;
SELECT ttl_docs.replace_document('d', '{"id": "none"}');
\echo :SQLSTATE
SELECT ttl_docs.replace_document('d', '{"m": 1}');
\echo :SQLSTATE
SELECT ttl_docs.replace_document('d', '{"id": null}');
\echo :SQLSTATE

--
-- Upsert
--
SELECT ttl_docs.upsert_document('d', '{"id": "b", "m": 2, "ttl": 200}') - '_ts' AS b;
SELECT ttl_docs.upsert_document('d', '{"id": "c"}') - '_ts' AS c;
SELECT r - 'id' - '_ts' AS new, ttl_docs.delete_document('d', r ->> 'id') AS deleted FROM ttl_docs.upsert_document('d', '{"new": true}') AS r;
SELECT * FROM stored;

--
-- Patch
--
SELECT ttl_docs.patch_document('d', 'b', '{"m": null, "n": {"x": 1, "y": null}, "ttl": 300}') - '_ts' AS b;
SELECT ttl_docs.patch_document('d', 'b', '{"n": {"z": [null]}, "ttl": null}') - '_ts' AS b;
SELECT ttl_docs.patch_document('d', 'b', '{}') - '_ts' AS b;
SELECT * FROM stored;
SELECT ttl_docs.patch_document('d', 'none', '{"m": 1}');
\echo :SQLSTATE
SELECT ttl_docs.patch_document('d', NULL, '{"m": 1}');
\echo :SQLSTATE
-- A patch cannot change the id, but may contain the same id.
SELECT ttl_docs.patch_document('d', 'b', '{"id": "b", "n": 1}') - '_ts' AS b;
SELECT ttl_docs.patch_document('d', 'b', '{"id": "c", "n": 2}');
\echo :SQLSTATE
SELECT ttl_docs.patch_document('d', 'b', '{"id": null, "n": 2}');
\echo :SQLSTATE
SELECT ttl_docs.patch_document('d', 'b', '{"id": 1}');
\echo :SQLSTATE
SELECT * FROM stored;
-- A patch does not add an id to a stored document that has none.
UPDATE d SET doc = doc - 'id' WHERE id = 'b';
SELECT ttl_docs.patch_document('d', 'b', '{"id": "b", "n": 3}') - '_ts' AS b;
SELECT * FROM stored;
-- A document that is not an object has no properties to patch.
UPDATE d SET doc = '[1, 2]' WHERE id = 'b';
SELECT ttl_docs.patch_document('d', 'b', '{"n": 4}');
\echo :SQLSTATE
SELECT * FROM stored;
SELECT ttl_docs.replace_document('d', '{"id": "b"}') - '_ts' AS b;

--
-- Delete and touch
--
SELECT ttl_docs.delete_document('d', 'c'), ttl_docs.delete_document('d', 'c') AS again, ttl_docs.delete_document('d', NULL) AS no_id;
SELECT ttl_docs.touch_document('d', 'c') AS c, ttl_docs.touch_document('d', NULL) AS no_id;
SET ttl_docs.clock_offset = 900;
SELECT ttl_docs.touch_document('d', 'b') AS b;
SELECT id, _ts > now() + interval '800 s' AS touched, doc FROM d ORDER BY id;
RESET ttl_docs.clock_offset;

--
-- documents(), with and without a filter
--
SELECT ttl_docs.create_document('d', '{"id": "c", "tags": ["x", "y"], "at": {"city": "Rome", "zip": 1}}') - '_ts' AS c;
SELECT ttl_docs.create_document('d', '{"id": "e", "tags": ["x"], "at": {"city": "Oslo"}, "ttl": 100}') - '_ts' AS e;
SELECT r - '_ts' AS all FROM ttl_docs.documents('d') AS r ORDER BY r ->> 'id';
SELECT count(*) FROM ttl_docs.documents('d', NULL);
SELECT r - '_ts' AS tag_x FROM ttl_docs.documents('d', '{"tags": ["x"]}') AS r ORDER BY r ->> 'id';
SELECT r - '_ts' AS in_rome FROM ttl_docs.documents('d', '{"at": {"city": "Rome"}}') AS r;
SELECT r - '_ts' AS none FROM ttl_docs.documents('d', '{"at": {"city": "Rome"}, "tags": ["z"]}') AS r;
SELECT count(*) FROM ttl_docs.documents(filter => '{}', collection => 'd');
-- A filter with an id also finds documents that do not store their id.
UPDATE d SET doc = doc - 'id' WHERE id IN ('c', 'e');
SELECT r - '_ts' AS e FROM ttl_docs.documents('d', '{"id": "e"}') AS r;
SELECT r - '_ts' AS e FROM ttl_docs.documents('d', '{"id": "e", "tags": ["x"]}') AS r;
SELECT r - '_ts' AS none FROM ttl_docs.documents('d', '{"id": "e", "tags": ["y"]}') AS r;
SELECT r - '_ts' AS none FROM ttl_docs.documents('d', '{"id": "none"}') AS r;
-- Ambiguous filters are refused.
SELECT ttl_docs.documents('d', '{"id": 5}');
\echo :SQLSTATE
SELECT ttl_docs.documents('d', '{"id": null}');
\echo :SQLSTATE
SELECT ttl_docs.documents('d', '{"_ts": 5}');
\echo :SQLSTATE
SELECT ttl_docs.documents('d', '["x"]');
\echo :SQLSTATE
-- documents() works everywhere that SQL allows a set-returning function.
SELECT ttl_docs.documents('d', '{"id": "a"}') - '_ts' AS a;
SELECT r - '_ts' AS r, o FROM ttl_docs.documents('d', '{"tags": ["y"]}') WITH ORDINALITY AS x(r, o);
SELECT i, r - '_ts' AS r FROM unnest(ARRAY['a', 'none', 'e']) AS i, LATERAL ttl_docs.documents('d', jsonb_build_object('id', i)) AS r;
SELECT EXISTS (SELECT FROM ttl_docs.documents('d', '{"tags": ["x"]}')) AS yes, (SELECT count(*) FROM ttl_docs.documents('d')) AS n;
SELECT r FROM ttl_docs.documents('d') AS r LIMIT 0;
DELETE FROM d WHERE id IN ('c', 'e');

--
-- The functions do not store a _ts that a client sends back
--
SELECT ttl_docs.upsert_document('d', ttl_docs.read_document('d', 'a') || '{"_ts": 1, "n": 2}') - '_ts' AS a;
SELECT ttl_docs.replace_document('d', ttl_docs.read_document('d', 'b') || '{"_ts": "x"}') - '_ts' AS b;
SELECT ttl_docs.create_document('d', '{"id": "c", "_ts": 5, "in": {"_ts": 6}}') - '_ts' AS c;
SELECT ttl_docs.patch_document('d', 'a', '{"_ts": 7, "n": 3}') - '_ts' AS a;
SELECT * FROM stored;
-- The _ts of the client does not change the row's _ts either.
SELECT count(*) FROM d WHERE _ts < now() - interval '1 day';

--
-- Invalid documents
--
CREATE FUNCTION try(call text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    hint text;
BEGIN
    EXECUTE 'SELECT ' || call;
    RETURN 'accepted';
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS hint = PG_EXCEPTION_HINT;
    RETURN SQLSTATE || ' ' || SQLERRM || coalesce(' (' || nullif(hint, '') || ')', '');
END $$;
SELECT verb, doc, try(format('ttl_docs.%s_document(%L, %L)', verb, 'd', doc))
  FROM unnest(ARRAY['create', 'replace', 'upsert']) AS verb,
       unnest(ARRAY['[]', '"a"', '1', 'null', '{"id": 1}', '{"id": true}', '{"id": ["a"]}', '{"id": {}}']) AS doc
 ORDER BY verb, doc COLLATE "C";
SELECT verb, try(format('ttl_docs.%s_document(%L, NULL)', verb, 'd')) FROM unnest(ARRAY['create', 'replace', 'upsert']) AS verb;
SELECT patch, try(format('ttl_docs.patch_document(%L, %L, %L)', 'd', 'a', patch)) FROM unnest(ARRAY['[]', '"a"', 'null', NULL]) AS patch;
SELECT try('ttl_docs.create_document(''d'', ''[' || repeat('1,', 200) || '1]'')');
-- An invalid ttl gets the same error as in SQL.
SELECT call, try(call) FROM unnest(ARRAY[
    $$ttl_docs.create_document('d', '{"id": "x", "ttl": 0}')$$,
    $$ttl_docs.upsert_document('d', '{"id": "a", "ttl": "60"}')$$,
    $$ttl_docs.patch_document('d', 'a', '{"ttl": 1.5}')$$]) AS call;
SELECT * FROM stored;

-- Tables that are not collections
CREATE TABLE plain (id text PRIMARY KEY, doc jsonb);
CREATE VIEW view_of_d AS SELECT * FROM d;
SELECT call, try(call) FROM unnest(ARRAY[
    $$ttl_docs.read_document('plain', 'a')$$,
    $$ttl_docs.create_document('plain', '{}')$$,
    $$ttl_docs.documents('view_of_d')$$,
    $$ttl_docs.read_document('d_pkey', 'a')$$,
    $$ttl_docs.touch_document('pg_class', 'a')$$,
    $$ttl_docs.delete_document('missing', 'a')$$,
    $$ttl_docs.delete_document(0, 'a')$$,
    $$ttl_docs.read_document(NULL, 'a')$$,
    $$ttl_docs.documents(NULL)$$]) AS call;
DROP TABLE plain;
DROP VIEW view_of_d;

--
-- Expiry
--
TRUNCATE d;
SELECT count(ttl_docs.create_document('d', jsonb_build_object('id', i, 'ttl', 100)))
  FROM unnest(ARRAY['create', 'upsert', 'read', 'replace', 'patch', 'delete', 'touch']) AS i;
SELECT ttl_docs.create_document('d', '{"id": "inherits"}') - '_ts' AS inherits;
SET ttl_docs.clock_offset = 50;
SELECT count(*) FROM ttl_docs.documents('d');
SET ttl_docs.clock_offset = 100;
SELECT r - '_ts' AS live FROM ttl_docs.documents('d') AS r;
SELECT count(*) FROM ttl_docs.documents('d', '{"ttl": 100}');
SELECT count(*) FROM ttl_docs.documents('d', '{"id": "read"}');
SELECT ttl_docs.read_document('d', 'read'), ttl_docs.delete_document('d', 'delete'), ttl_docs.touch_document('d', 'touch');
SELECT try($$ttl_docs.replace_document('d', '{"id": "replace"}')$$);
SELECT try($$ttl_docs.patch_document('d', 'patch', '{"x": 1}')$$);
SELECT ttl_docs.create_document('d', '{"id": "create", "again": true}') - '_ts' AS created;
-- A document that replaces an expired one takes nothing from it.
SELECT ttl_docs.upsert_document('d', '{"id": "upsert", "again": true}') - '_ts' AS upserted;
SELECT ttl_docs.patch_document('d', 'upsert', '{"x": 1}') - '_ts' AS patched;
SELECT * FROM stored;
-- The other documents are still on disk and still expired.
SET ttl_docs.show_expired = on;
SELECT id FROM stored WHERE _ttl = 100;
SELECT ttl_docs.read_document('d', 'read') - '_ts' AS shown, (SELECT count(*) FROM ttl_docs.documents('d', '{"ttl": 100}'));
SELECT ttl_docs.touch_document('d', 'touch'), ttl_docs.delete_document('d', 'delete');
SELECT try($$ttl_docs.patch_document('d', 'patch', '{"x": 1}')$$);
RESET ttl_docs.show_expired;
SET row_security = off;
SELECT ttl_docs.read_document('d', 'read') - '_ts' AS shown, ttl_docs.touch_document('d', 'touch') AS not_touched;
RESET row_security;
SELECT count(*) FROM ttl_docs.documents('d', '{"ttl": 100}');
RESET ttl_docs.clock_offset;

-- Every write restarts the countdown.  A read does not.
TRUNCATE d;
SELECT count(ttl_docs.create_document('d', jsonb_build_object('id', i, 'ttl', 100)))
  FROM unnest(ARRAY['read', 'touch', 'patch', 'replace', 'upsert', 'documents']) AS i;
SET ttl_docs.clock_offset = 60;
SELECT count(*) FROM ttl_docs.documents('d');
SELECT ttl_docs.read_document('d', 'read') - '_ts' AS read, ttl_docs.touch_document('d', 'touch'),
       ttl_docs.patch_document('d', 'patch', '{}') - '_ts' AS patch, ttl_docs.replace_document('d', '{"id": "replace", "ttl": 100}') - '_ts' AS replace,
       ttl_docs.upsert_document('d', '{"id": "upsert", "ttl": 100}') - '_ts' AS upsert;
SET ttl_docs.clock_offset = 120;
SELECT id FROM stored;
-- A patch changes the ttl to a shorter one, to never, and back to inherited.
SELECT ttl_docs.patch_document('d', 'touch', '{"ttl": 10}') - '_ts' AS short,
       ttl_docs.patch_document('d', 'patch', '{"ttl": -1}') - '_ts' AS never,
       ttl_docs.patch_document('d', 'replace', '{"ttl": null}') - '_ts' AS inherits;
SET ttl_docs.clock_offset = 1050;
SELECT id FROM stored;
SET ttl_docs.clock_offset = 1130;
SELECT id FROM stored;
RESET ttl_docs.clock_offset;

--
-- Time.  Functions that read use the instant of the query; functions that write use the
-- clock.
--
TRUNCATE d;
SELECT ttl_docs.create_document('d', '{"id": "a", "ttl": 100}') - '_ts' AS a;
BEGIN;
DECLARE c CURSOR FOR SELECT i, ttl_docs.read_document('d', 'a') IS NOT NULL AS there, (SELECT count(*) FROM ttl_docs.documents('d', jsonb_build_object('ttl', i))) AS n
  FROM unnest(ARRAY[100, 100, 100]) AS i;
FETCH c;
SET LOCAL ttl_docs.clock_offset = 100;
FETCH c;
SELECT ttl_docs.read_document('d', 'a') IS NOT NULL AS there, ttl_docs.touch_document('d', 'a');
COMMIT;
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT ttl_docs.read_document('d', 'a') IS NOT NULL AS there;
SET LOCAL ttl_docs.clock_offset = 100;
SELECT ttl_docs.read_document('d', 'a') IS NOT NULL AS there, (SELECT count(*) FROM ttl_docs.documents('d')) AS n;
SAVEPOINT s;
SELECT ttl_docs.touch_document('d', 'a');
\echo :SQLSTATE
ROLLBACK TO s;
SELECT ttl_docs.patch_document('d', 'a', '{}');
\echo :SQLSTATE
COMMIT;
-- A function that writes is a statement of its own.  The next statement sees its
-- changes; another function in the same query does not.
SELECT ttl_docs.patch_document('d', 'a', '{"n": 1}') - '_ts' AS patched, ttl_docs.read_document('d', 'a') - '_ts' AS read_beside;
SELECT p - '_ts' AS patched, (SELECT r - '_ts' FROM ttl_docs.documents('d', jsonb_build_object('id', p ->> 'id')) AS r) AS found_beside
  FROM (SELECT ttl_docs.patch_document('d', 'a', '{"n": 1.5}') AS p OFFSET 0) AS patched;
DO $$
DECLARE
    r jsonb;
BEGIN
    PERFORM ttl_docs.patch_document('d', 'a', '{"n": 2}');
    r := ttl_docs.read_document('d', 'a');
    RAISE NOTICE 'patched %', r - '_ts';
    COMMIT;
    PERFORM ttl_docs.patch_document('d', 'a', '{"n": 3}');
    ROLLBACK;
    r := ttl_docs.read_document('d', 'a');
    RAISE NOTICE 'rolled back to %', r - '_ts';
    BEGIN
        PERFORM ttl_docs.patch_document('d', 'a', '{"n": 4}');
        PERFORM ttl_docs.create_document('d', '{"id": "a"}');
    EXCEPTION WHEN unique_violation THEN
        r := ttl_docs.read_document('d', 'a');
        RAISE NOTICE 'and again to %', r - '_ts';
    END;
END $$;
-- Two-phase commit
BEGIN;
SELECT ttl_docs.create_document('d', '{"id": "prepared"}') - '_ts' AS created;
PREPARE TRANSACTION 'documents';
SELECT ttl_docs.read_document('d', 'prepared');
COMMIT PREPARED 'documents';
SELECT ttl_docs.read_document('d', 'prepared') - '_ts' AS read;
-- Read-only transactions
BEGIN READ ONLY;
SELECT ttl_docs.read_document('d', 'a') - '_ts' AS a, (SELECT count(*) FROM ttl_docs.documents('d')) AS n;
SAVEPOINT s;
SELECT ttl_docs.touch_document('d', 'a');
\echo :SQLSTATE
ROLLBACK TO s;
SELECT ttl_docs.create_document('d', '{}');
\echo :SQLSTATE
COMMIT;

--
-- While TTL is off, ttl is a property like any other
--
SELECT ttl_docs.set_default_ttl('d', NULL);
SELECT ttl_docs.upsert_document('d', '{"id": "a", "ttl": "soon"}') - '_ts' AS a;
SELECT ttl_docs.read_document('d', 'a') - '_ts' AS a;

-- Long documents
SELECT ttl_docs.upsert_document('d', jsonb_build_object('id', 'long', 'v', (SELECT jsonb_agg(md5(i::text)) FROM generate_series(1, 3000) AS i))) -> 'v' -> 2999 AS last;
SELECT ttl_docs.patch_document('d', 'long', '{"w": 1}') - '_ts' - 'v' AS rest;
SELECT jsonb_array_length(ttl_docs.read_document('d', 'long') -> 'v') AS length, doc -> 'v' = ttl_docs.read_document('d', 'long') -> 'v' AS same FROM d WHERE id = 'long';
-- touch_document() does not write the stored document again.
SELECT reltoastrelid AS toast, pg_relation_size(reltoastrelid) AS size FROM pg_class WHERE oid = 'd'::regclass \gset
SELECT count(ttl_docs.touch_document('d', 'long')) FROM generate_series(1, 20);
SELECT :size > 0 AS is_toasted, pg_relation_size(:toast) = :size AS as_before;

-- A user's trigger that prevents the insert
CREATE FUNCTION keep_out() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
CREATE TRIGGER keep_out BEFORE INSERT ON d FOR EACH ROW EXECUTE FUNCTION keep_out();
SELECT ttl_docs.create_document('d', '{"id": "kept out"}') IS NULL AS kept_out;
DROP TRIGGER keep_out ON d;
-- A user's trigger that changes the document
CREATE FUNCTION change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.id = upper(NEW.id);
    NEW.doc = NEW.doc || '{"changed": true}';
    RETURN NEW;
END $$;
CREATE TRIGGER change BEFORE INSERT ON d FOR EACH ROW EXECUTE FUNCTION change();
SELECT ttl_docs.create_document('d', '{"id": "shout"}') - '_ts' AS returned;
SELECT ttl_docs.read_document('d', 'SHOUT') - '_ts' AS read;

DROP VIEW stored;
DROP TABLE d;
DROP FUNCTION try(text), keep_out(), change();
