-- The first steps of a new user, and their mistakes: each step works, or the error says
-- what to do next.
\set SHOW_CONTEXT never
\pset format unaligned
\pset footer off

-- Returns the error of a command with its detail and its hint.
CREATE FUNCTION try(command text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    detail text;
    hint text;
BEGIN
    EXECUTE command;
    RETURN 'done';
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
    -- core's hint has another text since 19
    IF sqlstate IN ('42883', '42725') THEN
        RETURN sqlstate || ': ' || sqlerrm;
    END IF;
    RETURN concat_ws(E'\n', sqlstate || ': ' || sqlerrm, nullif(detail, ''), nullif(hint, ''));
END $$;
-- Runs the command in the hint of an error, and returns the command.
CREATE FUNCTION follow_hint(command text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    hinted text;
BEGIN
    EXECUTE command;
    RETURN 'done';
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS hinted = PG_EXCEPTION_HINT;
    hinted := substring(hinted FROM ': ((?:SELECT|ALTER) .*)\.$');
    EXECUTE hinted;
    RETURN hinted;
END $$;

--
-- A DefaultTTL of any numeric type, as an interval, or unknown
--
SELECT ttl_docs.create_collection('c');
CREATE FUNCTION set_to(value text) RETURNS integer LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('SELECT ttl_docs.set_default_ttl(''c'', %s)', value);
    RETURN ttl_docs.get_default_ttl('c');
END $$;
SELECT value, set_to(value) FROM unnest(ARRAY['60', '-1', 'NULL', '''61''', '''-1''', '62::smallint', '63::bigint', '64::numeric', '65.0', '66::real', '67::float8', '''6.8e1''',
    '2147483647', '2147483647::bigint', '-1::numeric', 'NULL::int', 'NULL::bigint', 'extract(epoch FROM interval ''1 day'')', 'interval ''30 minutes''', 'interval ''1 second''',
    'interval ''1 month''', 'interval ''1 year''', 'interval ''1 month -1 day 1 hour''', 'interval ''2147483647 seconds''', 'make_interval(days => 7)', 'NULL::interval',
    'default_ttl => 70', 'default_ttl => ''71''', 'default_ttl => NULL', 'default_ttl => 72::bigint', 'default_ttl => interval ''1 hour''']) AS value;
CREATE DOMAIN period AS interval;
SELECT set_to('''2 hours''::period');
-- An invalid value is an error, and changes nothing.
SELECT ttl_docs.set_default_ttl('c', 7);
SELECT value, try(format('SELECT ttl_docs.set_default_ttl(''c'', %s)', value)) FROM unnest(ARRAY['0', '-2', '2147483648', '1.5', '-1.5', '0::bigint', '-2147483649', '''0''', '''NaN''', '''inf''',
    '''-inf''', '1e300', '0.9999999999', '2147483647.5', '''30 minutes''', '''1 day''::text', 'interval ''0''', 'interval ''-1 second''', 'interval ''-1 day''', 'interval ''1.5 seconds''',
    'interval ''2147483647.000001 seconds''', 'interval ''2147483648 seconds''', 'interval ''100 years''', 'interval ''178000000 years''', 'interval ''1 month -30 days''']) AS value;
SELECT ttl_docs.get_default_ttl('c');
-- PostgreSQL 17 and later have infinite intervals.
SELECT try('SELECT ttl_docs.set_default_ttl(''c'', interval ''infinity'')') ~ '^(22023: invalid DefaultTTL: infinity|22007: invalid input syntax for type interval)' AS infinity_is_refused,
    try('SELECT ttl_docs.set_default_ttl(''c'', interval ''-infinity'')') ~ '^(22023: invalid DefaultTTL: -infinity|22007: invalid input syntax for type interval)' AS negative_infinity;
SELECT ttl_docs.get_default_ttl('c');

CREATE TABLE adopted (id int PRIMARY KEY, body jsonb, changed timestamptz DEFAULT now());
-- A parameter without a type is a number, so that drivers can send one.
PREPARE set_ttl AS SELECT ttl_docs.set_default_ttl('c', $1), ttl_docs.get_default_ttl('c');
PREPARE preview_ttl AS SELECT live FROM ttl_docs.preview('c', $1);
PREPARE create_ttl AS SELECT ttl_docs.create_collection('created', $1);
PREPARE adopt_ttl AS SELECT ttl_docs.adopt('adopted', $1, $2, $3);
PREPARE typed (bigint, interval) AS SELECT ttl_docs.set_default_ttl('c', $1), ttl_docs.get_default_ttl('c'), ttl_docs.set_default_ttl('c', $2), ttl_docs.get_default_ttl('c');
SELECT name, parameter_types FROM pg_prepared_statements ORDER BY name;
EXECUTE set_ttl(60);
EXECUTE set_ttl('61');
EXECUTE set_ttl(NULL);
EXECUTE preview_ttl(-1);
EXECUTE typed(62, '2 minutes');
BEGIN;
EXECUTE create_ttl(NULL);
EXECUTE adopt_ttl(60, 'body', 'changed');
SELECT collection, default_ttl FROM ttl_docs.collections ORDER BY collection::text;
ROLLBACK;
DEALLOCATE ALL;

-- The other functions with a DefaultTTL, in every form of a call
CREATE FUNCTION try_call(call text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    result text;
BEGIN
    EXECUTE format('SELECT (%s)::text', call) INTO result;
    SELECT concat_ws(' ', s.collection, s.mode, s.default_ttl, s.indexing, s.doc_column) INTO result FROM ttl_docs.collections AS s WHERE s.collection::text IN ('n', 'adopted');
    RAISE EXCEPTION USING errcode = 'UZ001', message = result;
EXCEPTION WHEN SQLSTATE 'UZ001' THEN
    RETURN sqlerrm;
END $$;
SELECT call, try_call(call) FROM unnest(ARRAY['ttl_docs.create_collection(''n'')', 'ttl_docs.create_collection(''n'', NULL)', 'ttl_docs.create_collection(''n'', 60)', 'ttl_docs.create_collection(''n'', ''60'')',
    'ttl_docs.create_collection(''n'', 60::bigint)', 'ttl_docs.create_collection(''n'', interval ''30 minutes'')', 'ttl_docs.create_collection(''n'', interval ''30 minutes'', ''lazy'')',
    'ttl_docs.create_collection(''n'', NULL, ''none'')', 'ttl_docs.create_collection(''n'', indexing => ''lazy'')', 'ttl_docs.create_collection(name => ''n'', default_ttl => interval ''1 day'')',
    'ttl_docs.create_collection(default_ttl => 86400.0, name => ''n'')', 'ttl_docs.create_collection(indexing => ''lazy'', default_ttl => NULL, name => ''n'')',
    'ttl_docs.adopt(''adopted'')', 'ttl_docs.adopt(''adopted'', NULL)', 'ttl_docs.adopt(''adopted'', 60)', 'ttl_docs.adopt(''adopted'', 60::smallint)', 'ttl_docs.adopt(''adopted'', interval ''1 day'')',
    'ttl_docs.adopt(''adopted'', NULL, ''body'')', 'ttl_docs.adopt(''adopted'', interval ''1 day'', ''body'', ''changed'', ''lazy'')', 'ttl_docs.adopt(''adopted'', 60::bigint, ''body'', ''changed'', ''lazy'')',
    'ttl_docs.adopt(''adopted'', last_modified => ''changed'')', 'ttl_docs.adopt(''adopted'', doc_column => ''body'', default_ttl => interval ''1 hour'')',
    'ttl_docs.adopt(collection => ''adopted'', indexing => ''lazy'')', 'ttl_docs.adopt(''adopted'', default_ttl => NULL, indexing => ''none'')']) AS call;
SELECT try('SELECT ttl_docs.create_collection(''n'', interval ''-1 day'')');
SELECT try('SELECT ttl_docs.adopt(''adopted'', 1.5)');
SELECT try('SELECT ttl_docs.preview(''c'', interval ''1.5 seconds'')');
INSERT INTO c VALUES ('a', '{}');
BEGIN;
SET LOCAL ttl_docs.clock_offset = 100;
SELECT (ttl_docs.preview('c', 60)).expire_now, (ttl_docs.preview('c', 60::bigint)).expire_now, (ttl_docs.preview('c', '60')).expire_now, (ttl_docs.preview('c', interval '1 minute')).expire_now,
    (ttl_docs.preview('c', interval '1 hour')).expire_now, (ttl_docs.preview('c', NULL)).expire_now;
ROLLBACK;
DELETE FROM c;

-- The type ttl_interval changes nothing for intervals elsewhere.
SELECT interval '1 hour' * 2 AS twice, 2 * interval '1 hour', interval '1 hour' / 2 AS half, interval '1 hour' || ' x' AS joined, 'x ' || interval '1 hour' AS joined, -interval '1 hour' AS negative,
    sum(i) AS sum, avg(i) AS avg, max(i) AS max, interval '1 hour' + '1 minute' AS literal, coalesce(NULL, interval '1 hour') AS "coalesce", pg_typeof(greatest(interval '1 hour', '2 hours')) AS type
  FROM unnest('{1 hour, 2 hours}'::interval[]) AS i;
SELECT pg_typeof(interval '1 hour' - '1 minute'), date '2000-01-01' + interval '1 hour' AS plus, interval '1 hour' = '60 minutes' AS equal, pg_typeof(CASE WHEN true THEN interval '1 hour' END),
    extract(hour FROM interval '1 hour'), date_trunc('hour', interval '1 hour'), to_char(interval '1 hour', 'HH24'), justify_hours(interval '1 hour'), interval '1 hour' IN ('1 hour', '2 hours') AS "in";
\set VERBOSITY terse
SELECT interval '1 hour' UNION SELECT 1;
SELECT interval '1 hour' + 1;
SELECT interval '1 hour' > 1;
SELECT sqrt(interval '1 hour');
SELECT CASE WHEN true THEN interval '1 hour' ELSE 1 END;
\set VERBOSITY default

--
-- An id of any type
--
CREATE TABLE by_int (id int PRIMARY KEY, doc jsonb);
CREATE TABLE by_numeric (id numeric PRIMARY KEY, doc jsonb);
CREATE TABLE by_uuid (id uuid PRIMARY KEY, doc jsonb);
CREATE TYPE color AS ENUM ('red', 'green');
CREATE TABLE by_enum (id color PRIMARY KEY, doc jsonb);
CREATE TYPE pair AS (a int, b text);
CREATE TABLE by_pair (id pair PRIMARY KEY, doc jsonb);
CREATE TABLE by_time (id timestamptz PRIMARY KEY, doc jsonb);
SELECT ttl_docs.adopt(t, 1000) FROM unnest('{by_int, by_numeric, by_uuid, by_enum, by_pair, by_time}'::regclass[]) AS t;
INSERT INTO c VALUES ('7', '{}'), ('a', '{}'), ('a b', '{}'), ('7.0', '{}'), ('c3b5a8f0-0000-4000-8000-000000000001', '{}'), ('true', '{}');
INSERT INTO by_int VALUES (7, '{}');
INSERT INTO by_numeric VALUES (7, '{}'), (7.5, '{}');
INSERT INTO by_uuid VALUES ('c3b5a8f0-0000-4000-8000-000000000001', '{}');
INSERT INTO by_enum VALUES ('red', '{}');
INSERT INTO by_pair VALUES ('(7,x)', '{}');
INSERT INTO by_time VALUES ('2026-01-01 00:00:00+00', '{}');
CREATE FUNCTION read_id(collection text, id text) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    result jsonb;
BEGIN
    EXECUTE format('SELECT ttl_docs.read_document(%L, %s)', collection, id) INTO result;
    RETURN result -> 'id';
END $$;
CREATE DOMAIN number AS int;
CREATE DOMAIN object AS jsonb;
SELECT collection, id, read_id(collection, id) FROM (VALUES ('c', '7'), ('c', '''7'''), ('c', '7::bigint'), ('c', '7::smallint'), ('c', '7::numeric'), ('c', '7.0'), ('c', '7::float8'), ('c', '7::number'),
    ('c', '''a''::text'), ('c', '''a''::varchar'), ('c', '''a''::varchar(5)'), ('c', '''a''::char(5)'), ('c', '''a''::name'), ('c', '''c3b5a8f0-0000-4000-8000-000000000001''::uuid'), ('c', 'true'),
    ('c', '''"a b"''::jsonb'), ('c', '''7''::jsonb'), ('c', '''7.0''::jsonb'), ('c', '''"a"''::json'), ('c', ' ''7'' ::json'), ('c', '''{"id": "a"}''::jsonb -> ''id'''), ('c', '''{"id": "a"}''::jsonb -> ''x'''),
    ('c', '''"a"''::object'), ('c', 'NULL'), ('c', 'NULL::int'), ('c', 'NULL::jsonb'), ('c', '8'),
    ('by_int', '7'), ('by_int', '''7'''), ('by_int', '7::bigint'), ('by_int', '7.0'), ('by_int', '7.00::float8'), ('by_int', '''7.0''::jsonb'), ('by_int', '''"7"''::jsonb'), ('by_int', '''7''::varchar'),
    ('by_numeric', '7'), ('by_numeric', '7.50'), ('by_numeric', '''7.50''::jsonb'), ('by_uuid', '''C3B5A8F0-0000-4000-8000-000000000001''::uuid'), ('by_uuid', '''"C3B5A8F0-0000-4000-8000-000000000001"''::jsonb'),
    ('by_enum', '''red'''), ('by_enum', '''red''::color'), ('by_enum', '''green''::color'), ('by_pair', 'ROW(7, ''x'')'), ('by_pair', 'ROW(7, ''x'')::pair'),
    ('by_time', 'timestamptz ''2026-01-01 00:00:00+00'''), ('by_time', '''2026-01-01 01:00:00+01'''), ('by_time', 'now()')) AS v (collection, id);
SELECT id, try(format('SELECT ttl_docs.read_document(''c'', %s)', id)) FROM unnest(ARRAY['''["a"]''::jsonb', '''{"id": "a"}''::jsonb', '''null''::jsonb', '''true''::jsonb', '''[1]''::json', '''{7}''::int[]']) AS id;
SELECT try('SELECT ttl_docs.read_document(''by_int'', 7.5)');
SELECT try('SELECT ttl_docs.read_document(''by_int'', 3000000000)');
SELECT try('SELECT ttl_docs.read_document(''by_int'', true)');
-- A parameter without a type is text.
PREPARE read_any AS SELECT ttl_docs.read_document('by_int', $1) -> 'id';
SELECT parameter_types FROM pg_prepared_statements;
EXECUTE read_any('7');
DEALLOCATE ALL;
-- From a column of a table, which has another type in each query
SELECT ttl_docs.read_document('by_int', n) -> 'id' AS int, ttl_docs.read_document('by_int', n::text) -> 'id' AS text, ttl_docs.read_document('c', to_jsonb(n)) -> 'id' AS jsonb FROM generate_series(6, 8) AS n ORDER BY n;
-- The functions that write
SELECT ttl_docs.patch_document('c', 7, '{"n": 1}') - '_ts' AS patch, ttl_docs.patch_document('by_int', 7::bigint, '{"n": 1}') - '_ts' AS by_int, ttl_docs.patch_document('c', '"a b"'::jsonb, '{"n": 1}') - '_ts' AS jsonb;
SELECT ttl_docs.patch_document(collection => 'c', id => 7, patch => '{"n": 2}') - '_ts' AS named;
SELECT try('SELECT ttl_docs.patch_document(''c'', 8, ''{}'')');
SELECT try('SELECT ttl_docs.patch_document(''c'', NULL::int, ''{}'')');
SELECT ttl_docs.touch_document('c', 7) AS touch, ttl_docs.touch_document('by_int', 7.0) AS by_int, ttl_docs.touch_document('by_uuid', 'c3b5a8f0-0000-4000-8000-000000000001'::uuid) AS by_uuid, ttl_docs.touch_document('c', 8) AS missing,
    ttl_docs.touch_document('c', NULL::int) AS "null";
SELECT ttl_docs.delete_document('c', 7) AS delete, ttl_docs.delete_document('by_int', '7'::jsonb) AS by_int, ttl_docs.delete_document('by_enum', 'red'::color) AS by_enum, ttl_docs.delete_document('c', 7) AS missing,
    ttl_docs.delete_document('c', NULL::int) AS "null";
SELECT ttl_docs.read_document('c', 7);
-- An id finds its own document, whatever the session has set: times in India (IST) and Israel (IST), and the sum of 0.1 and 0.2.
CREATE TABLE by_float (id float8 PRIMARY KEY, doc jsonb);
SELECT ttl_docs.adopt('by_float', 1000);
INSERT INTO by_float VALUES (0.3, '{"is": "0.3"}'), (0.1::float8 + 0.2::float8, '{"is": "sum"}');
INSERT INTO by_time VALUES ('2026-01-01 12:00+05:30', '{"in": "India"}'), ('2026-01-01 12:00+02', '{"in": "Israel"}');
SET extra_float_digits = 0;
SET timezone = 'Asia/Kolkata';
SET datestyle = 'SQL';
SELECT ttl_docs.read_document('by_float', 0.1::float8 + 0.2::float8) -> 'is' AS "sum", ttl_docs.read_document('by_float', 0.3::float8) -> 'is' AS "0.3", ttl_docs.read_document('by_float', 0.3) -> 'is' AS "numeric 0.3";
SELECT ttl_docs.read_document('by_time', timestamptz '2026-01-01 12:00+05:30') -> 'in' AS own_type, ttl_docs.read_document('by_time', timestamp '2026-01-01 12:00') -> 'in' AS other_type;
SELECT ttl_docs.delete_document('by_float', 0.1::float8 + 0.2::float8), ttl_docs.delete_document('by_time', timestamptz '2026-01-01 12:00+05:30');
SELECT doc FROM by_float UNION ALL SELECT doc FROM by_time WHERE doc ? 'in';
SELECT current_setting('datestyle'), current_setting('extra_float_digits');
-- A key of type text has one spelling of each value, whatever the session has set.
SET intervalstyle = 'iso_8601';
INSERT INTO c VALUES ('2026-02-01', '{}'), ('0.30000000000000004', '{}'), ('1 day 02:00:00', '{}');
SELECT ttl_docs.read_document('c', date '2026-02-01') -> 'id' AS date, ttl_docs.read_document('c', 0.1::float8 + 0.2::float8) -> 'id' AS float8, ttl_docs.read_document('c', interval '26 hours' - interval '24 hours' + interval '1 day') -> 'id' AS interval;
DELETE FROM c WHERE id IN ('2026-02-01', '0.30000000000000004', '1 day 02:00:00');
RESET intervalstyle;
RESET extra_float_digits;
RESET timezone;
RESET datestyle;
DROP TABLE by_float;
-- Large floats
INSERT INTO by_int VALUES (1000000, '{}');
SELECT ttl_docs.read_document('by_int', 1000000::float4) -> 'id' AS float4, ttl_docs.read_document('by_int', 1e6::float8) -> 'id' AS float8;
SELECT try('SELECT ttl_docs.read_document(''by_int'', 1e15::float8)');
SELECT try('SELECT ttl_docs.read_document(''by_int'', ''NaN''::float8)');
-- If the key is jsonb, an id of this type is the key.
CREATE TABLE by_jsonb (id jsonb PRIMARY KEY, doc jsonb);
SELECT ttl_docs.adopt('by_jsonb', 1000, 'doc');
INSERT INTO by_jsonb VALUES ('1', '{"is": "number"}'), ('"1"', '{"is": "string"}');
SELECT ttl_docs.read_document('by_jsonb', '"1"'::jsonb) -> 'is' AS string, ttl_docs.read_document('by_jsonb', '1'::jsonb) -> 'is' AS number;
DROP TABLE by_jsonb;
-- A type that is no string but casts to text by itself: PostgreSQL cannot choose.  A cast helps.
SELECT try('SELECT ttl_docs.read_document(''c'', ''a''::"char")');
SELECT ttl_docs.read_document('c', 'a'::"char"::text) -> 'id' AS id;
DROP TABLE by_int, by_numeric, by_uuid, by_enum, by_pair, by_time;

--
-- The name of a new collection: it exists
--
CREATE TABLE plain (id int PRIMARY KEY, doc jsonb);
CREATE SCHEMA "My App";
CREATE TABLE "My App"."it's" (id int PRIMARY KEY, doc jsonb);
CREATE TABLE parted (id int, doc jsonb) PARTITION BY RANGE (id);
CREATE TABLE part PARTITION OF parted DEFAULT;
CREATE VIEW v AS SELECT 1 AS one;
CREATE SEQUENCE s;
SELECT call, try('SELECT ttl_docs.create_collection(' || call || ')') FROM unnest(ARRAY['''plain'', 60', '''plain''', '''PLAIN'', interval ''1 day'', ''lazy''', '''plain'', NULL, ''none''', '''plain'', -1', '''"My App"."it''''s"'', 60',
    '''parted'', 60', '''part'', 60', '''v'', 60', '''s''', '''plain_pkey''', '''c'', 90', '''c''']) AS call;
SELECT follow_hint('SELECT ttl_docs.create_collection(''plain'', interval ''1 day'', ''lazy'')');
SELECT follow_hint('SELECT ttl_docs.create_collection(''"My App"."it''''s"'', 60)');
SELECT follow_hint('SELECT ttl_docs.create_collection(''parted'')');
SELECT follow_hint('SELECT ttl_docs.create_collection(''c'', 90)');
SELECT collection, default_ttl, indexing FROM ttl_docs.collections ORDER BY collection::text COLLATE "C";
SELECT try('SELECT ttl_docs.create_collection(''part'', 60)');
-- Without the right to create tables in a schema, the error does not depend on its tables.
CREATE ROLE regress_ttl_newcomer;
GRANT USAGE ON SCHEMA "My App" TO regress_ttl_newcomer;
SET ROLE regress_ttl_newcomer;
SELECT try('SELECT ttl_docs.create_collection(''"My App"."it''''s"'', 60)');
SELECT try('SELECT ttl_docs.create_collection(''"My App".missing'', 60)');
RESET ROLE;
REVOKE USAGE ON SCHEMA "My App" FROM regress_ttl_newcomer;
DROP ROLE regress_ttl_newcomer;
DROP TABLE plain, "My App"."it's", parted;
DROP VIEW v;
DROP SEQUENCE s;

-- The I/O functions of ttl_interval have the properties of those of interval.
SELECT p.proname FROM pg_proc AS p JOIN pg_proc AS c ON c.proname = p.prosrc AND c.pronamespace = 'pg_catalog'::regnamespace
 WHERE p.pronamespace = 'ttl_docs_internal'::regnamespace
   AND (p.provolatile, p.proparallel, p.proisstrict) IS DISTINCT FROM (c.provolatile, c.proparallel, c.proisstrict);

--
-- The name of a new collection: it needs quotes
--
-- The name in the hint is accepted, and means the same table in SQL.
CREATE FUNCTION create_as_hinted(name text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    hint text;
    hinted text;
    created text;
BEGIN
    created := ttl_docs.create_collection(name);
    EXECUTE format('SELECT 1 FROM %s', name);
    EXECUTE format('DROP TABLE %s', created);
    RETURN created;
EXCEPTION WHEN invalid_name THEN
    GET STACKED DIAGNOSTICS hint = PG_EXCEPTION_HINT;
    hinted := substring(hint FROM ': (''.*'')\.$');
    IF hinted IS NOT NULL THEN
        EXECUTE format('SELECT ttl_docs.create_collection(%s)', hinted) INTO created;
        EXECUTE format('DROP TABLE %s', created);
    END IF;
    RETURN concat_ws(E'\n', sqlerrm, hint, created);
END $$;
CREATE SCHEMA "my-app";
SELECT create_as_hinted(name) FROM unnest(ARRAY['My Sessions', 'my-sessions', 'order', 'ORDER', 'Left', '1st', 'a$b', '$a', '', '  ', 'a.b.c.d', '.a', 'a.', 'a..b', 'it''s', 'a"b', '"unclosed', 'a;b', 'Sessions', ' sessions ',
    'public.order', 'Public . Sessions', 'public.my sessions', 'public.1st', 'my-app.sessions', 'my-app.my-sessions', '"my-app".my-sessions', '"My Sessions"', '"my-app"."a ""b"" c"', 'public."order"', '"a.b.c.d"',
    'values', 'between', 'date', 'name', 'interval',
    'public. my-sessions', ' "my-app" . my-sessions', ' my-app . my-sessions ', current_database() || '.public.my-sessions', 'public. ', '""', '"".a', 'a.""']) AS name;
SELECT try('SELECT ttl_docs.create_collection(''otherdb.public.sessions'')');
DROP SCHEMA "my-app", "My App";

--
-- A table without a suitable column
--
CREATE TABLE plain (id int PRIMARY KEY);
CREATE TABLE taken (id int PRIMARY KEY, doc int, doc2 text);
CREATE TABLE "With Json" (id int PRIMARY KEY, "Pay Load" json, other int);
CREATE TABLE as_text (id int PRIMARY KEY, body text, changed_on date, "generated" jsonb GENERATED ALWAYS AS ('{}') STORED);
CREATE TABLE several (id int PRIMARY KEY, a jsonb, "B" jsonb, c json, created timestamp, updated timestamptz);
SELECT call, try('SELECT ttl_docs.adopt(' || call || ')') FROM unnest(ARRAY['''plain''', '''plain'', doc_column => ''doc''', '''taken''', '''taken'', doc_column => ''doc''', '''taken'', doc_column => ''doc2''', '''"With Json"''',
    '''"With Json"'', doc_column => ''payload''', '''"With Json"'', doc_column => ''Pay Load''', '''"With Json"'', doc_column => ''other''', '''as_text'', doc_column => ''body''', '''as_text'', doc_column => ''generated''',
    '''several''', '''several'', doc_column => ''b''', '''several'', doc_column => ''c''', '''several'', doc_column => ''id''', '''several'', 60, ''lazy''', '''several'', 60, ''a'', ''changed''', '''several'', 60, ''a'', ''id''',
    '''several'', 60, ''a'', ''ctid''']) AS call;
INSERT INTO plain VALUES (1);
INSERT INTO taken VALUES (1, 1, '{}');
INSERT INTO "With Json" VALUES (1, '{"ttl": 60}');
INSERT INTO as_text VALUES (1, '{"ttl": 60}');
SELECT follow_hint('SELECT ttl_docs.adopt(''plain'')');
SELECT follow_hint('SELECT ttl_docs.adopt(''taken'')');
SELECT follow_hint('SELECT ttl_docs.adopt(''"With Json"'')');
SELECT follow_hint('SELECT ttl_docs.adopt(''as_text'', doc_column => ''body'')');
SELECT ttl_docs.adopt(t, interval '1 day') FROM unnest('{plain, taken, "\"With Json\""}'::regclass[]) AS t;
SELECT ttl_docs.adopt('as_text', 60, 'body');
SELECT collection, doc_column FROM ttl_docs.collections ORDER BY collection::text COLLATE "C";
-- No column has a timestamp type.
CREATE TABLE timeless (id int PRIMARY KEY, doc jsonb, changed_on date);
SELECT try('SELECT ttl_docs.adopt(''timeless'', 60, last_modified => ''changed_on'')');
SELECT try('SELECT ttl_docs.adopt(''timeless'', 60, last_modified => ''changed'')');
-- A column "ttl" is not the property "ttl".
CREATE TABLE with_ttl (id int PRIMARY KEY, body jsonb, ttl int);
SELECT ttl_docs.adopt('with_ttl', 60);
CREATE TABLE ttl_doc (id int PRIMARY KEY, ttl jsonb);
SELECT ttl_docs.adopt('ttl_doc', 60);
DROP TABLE plain, taken, "With Json", as_text, several, timeless, with_ttl, ttl_doc;

--
-- Other first steps
--
CREATE TABLE plain (id int PRIMARY KEY, doc jsonb);
SELECT call, try(call) FROM unnest(ARRAY['SELECT ttl_docs.adopt(''c'', 60)', 'SELECT ttl_docs.purge()', 'CALL ttl_docs.adopt(''plain'')', 'SELECT ttl_docs.set_default_ttl(''plain'', 60)', 'SELECT ttl_docs.create_document(''plain'', ''{}'')',
    'CALL ttl_docs.purge(''plain'')', 'SELECT ttl_docs.set_indexing(''c'', ''btree'')', 'SELECT ttl_docs.create_collection(''n'', 60, ''none'')', 'SELECT ttl_docs.create_document(''c'', ''{"id": 7}'')',
    'SELECT ttl_docs.create_document(''c'', ''"a"'')', 'SELECT ttl_docs.create_document(''c'', ''{"id": "a"}'')', 'SELECT ttl_docs.replace_document(''c'', ''{}'')', 'INSERT INTO c VALUES (''n'', ''{"ttl": "30 minutes"}'')',
    'INSERT INTO c (id, doc) VALUES (''n'', ''{"ttl": 0}'')', 'ALTER TABLE c DROP COLUMN _ts', 'DROP EXTENSION ttl_docs']) AS call;
DROP TABLE plain, adopted, c;
DROP FUNCTION try(text), follow_hint(text), set_to(text), try_call(text), read_id(text, text), create_as_hinted(text);
DROP TYPE period, color, pair, number, object;
