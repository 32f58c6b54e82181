-- ALTER COLUMN TYPE on a system column or the document column: schema tools send it
-- with the column's current type, with and without USING.  That changes nothing, so it
-- is allowed.  Anything that could change a value is refused.
\set SHOW_CONTEXT never
CREATE SCHEMA same_type;
SET search_path = same_type, public;

SELECT ttl_docs.create_collection('c', 3600);
ALTER TABLE c ADD COLUMN old_doc jsonb, ADD COLUMN n int;
SET ttl_docs.clock_offset = '-2h';
INSERT INTO c (id, doc, old_doc) VALUES ('expired', '{}', '{}');
RESET ttl_docs.clock_offset;
INSERT INTO c (id, doc, old_doc) VALUES ('live', '{"ttl": 500}', '{}');

-- Shows all of a table: its rows, its file, its label, its triggers and its purge
-- index.
CREATE FUNCTION picture(t regclass) RETURNS text LANGUAGE plpgsql SET ttl_docs.show_expired = on AS $$
DECLARE result text;
BEGIN
    EXECUTE format('SELECT string_agg(c::text, '' '' ORDER BY c::text) FROM %s AS c', t) INTO result;
    RETURN concat_ws(' | ', result,
        (SELECT relfilenode FROM pg_class WHERE oid = t),
        (SELECT label FROM pg_seclabel WHERE objoid = t),
        (SELECT string_agg(pg_get_triggerdef(oid) || tgenabled::text, ' ') FROM pg_trigger WHERE tgrelid = t),
        (SELECT string_agg(pg_get_indexdef(indexrelid), ' ' ORDER BY indexrelid::regclass::text) FROM pg_index WHERE indrelid = t),
        (SELECT string_agg(concat_ws(' ', attname, format_type(atttypid, atttypmod), attnotnull, attstorage,
                                     (SELECT pg_get_expr(adbin, adrelid) FROM pg_attrdef WHERE adrelid = t AND adnum = attnum)),
                           ', ' ORDER BY attnum)
           FROM pg_attribute WHERE attrelid = t AND attnum > 0));
END $$;
SELECT picture('c') AS before \gset

--
-- Commands that change nothing
--
ALTER TABLE c ALTER COLUMN doc TYPE jsonb;
ALTER TABLE c ALTER doc SET DATA TYPE pg_catalog.jsonb;
ALTER TABLE c ALTER COLUMN doc TYPE JSONB USING (doc::jsonb);
ALTER TABLE c ALTER COLUMN "doc" TYPE jsonb USING ("doc"::jsonb);
ALTER TABLE c ALTER COLUMN doc TYPE jsonb USING CAST(c.doc AS jsonb);
ALTER TABLE c ALTER COLUMN doc TYPE jsonb USING same_type.c.doc::jsonb::jsonb;
ALTER TABLE c ALTER COLUMN doc TYPE jsonb USING doc;
ALTER TABLE ONLY c ALTER COLUMN _ts TYPE timestamptz;
ALTER TABLE c ALTER COLUMN _ts TYPE timestamp with time zone USING _ts::timestamptz;
ALTER TABLE c ALTER COLUMN _ttl TYPE int USING _ttl::integer;
ALTER TABLE c ALTER COLUMN _ttl TYPE int4;
ALTER TABLE c ALTER COLUMN _slot TYPE bigint USING (_slot);
ALTER TABLE c ALTER COLUMN _slot TYPE int8;
ALTER TABLE c ALTER COLUMN doc TYPE jsonb, ALTER COLUMN _ts TYPE timestamptz, ALTER COLUMN _slot TYPE bigint,
    ALTER COLUMN doc TYPE jsonb USING doc;
SELECT picture('c') = :'before' AS is_same;

-- The same if the command also rewrites the table because of another column
BEGIN;
ALTER TABLE c ALTER COLUMN doc TYPE jsonb USING doc::jsonb, ALTER COLUMN n TYPE bigint, ALTER COLUMN _slot TYPE bigint;
SELECT regexp_replace(picture('c'), '\| \d+ \|', '') = regexp_replace(replace(:'before', 'n integer', 'n bigint'), '\| \d+ \|', '')
    AS rows_are_same;
ROLLBACK;

-- The collection works as before.
SELECT id FROM c;
INSERT INTO c (id, doc, old_doc) VALUES ('expired', '{"ttl": 700}', '{}') RETURNING _ttl;
INSERT INTO c (id, doc) VALUES ('x', '{"ttl": 0}');

--
-- Commands that change a value, or may do so
--
SELECT picture('c') AS before \gset
ALTER TABLE c ALTER COLUMN doc TYPE jsonb USING '{}'::jsonb;
ALTER TABLE c ALTER COLUMN _ts TYPE timestamptz(3);
\set VERBOSITY terse
ALTER TABLE c ALTER COLUMN _ts TYPE timestamptz USING _ts::timestamptz(0);
ALTER TABLE c ALTER COLUMN _ts TYPE timestamptz USING _ts::timestamp::timestamptz;
ALTER TABLE c ALTER COLUMN doc TYPE jsonb USING doc::text::jsonb;
ALTER TABLE c ALTER COLUMN doc TYPE jsonb USING old_doc;
ALTER TABLE c ALTER COLUMN doc TYPE jsonb USING old_doc::jsonb, DROP COLUMN old_doc;
ALTER TABLE c ALTER COLUMN doc TYPE jsonb USING coalesce(doc, '{}');
ALTER TABLE c ALTER COLUMN doc TYPE jsonb USING to_jsonb(c.*);
ALTER TABLE c ALTER COLUMN doc TYPE jsonb USING NULL;
ALTER TABLE c ALTER COLUMN doc TYPE jsonb, ALTER COLUMN doc TYPE jsonb USING '{"ttl": 1}';
ALTER TABLE c ALTER COLUMN _ttl TYPE int USING _slot;
ALTER TABLE c ALTER COLUMN _ttl TYPE int USING _ttl::bigint::int;
ALTER TABLE c ALTER COLUMN _slot TYPE bigint USING _ttl;
-- Another type of the same name
CREATE DOMAIN jsonb AS pg_catalog.jsonb CHECK (VALUE <> '1');
SET search_path = same_type, pg_catalog, public;
ALTER TABLE c ALTER COLUMN doc TYPE jsonb;
ALTER TABLE c ALTER COLUMN doc TYPE pg_catalog.jsonb USING doc::jsonb;
ALTER TABLE c ALTER COLUMN doc TYPE pg_catalog.jsonb USING doc::pg_catalog.jsonb;
SET search_path = same_type, public;
DROP DOMAIN same_type.jsonb;
\set VERBOSITY default
SELECT picture('c') = :'before' AS is_same;

--
-- A partitioned collection, with a partition whose columns have a different order
--
CREATE TABLE p (id int PRIMARY KEY, doc jsonb) PARTITION BY RANGE (id);
CREATE TABLE p1 (doc jsonb, id int PRIMARY KEY);
ALTER TABLE p ATTACH PARTITION p1 FOR VALUES FROM (0) TO (100);
SELECT ttl_docs.adopt('p', 3600);
INSERT INTO p VALUES (1, '{}');
SELECT picture('p1') AS before \gset
ALTER TABLE p ALTER COLUMN doc TYPE jsonb USING (doc::jsonb), ALTER COLUMN _ts TYPE timestamptz;
\set VERBOSITY sqlstate
ALTER TABLE ONLY p ALTER COLUMN doc TYPE jsonb;
ALTER TABLE p1 ALTER COLUMN doc TYPE jsonb;
\set VERBOSITY default
ALTER TABLE p ALTER COLUMN doc TYPE jsonb USING '{}';
SELECT picture('p1') = :'before' AS is_same;

-- The purge works with the rebuilt indexes.
SET ttl_docs.clock_offset = '2h';
ALTER TABLE c ALTER COLUMN _slot TYPE bigint;
ALTER TABLE p ALTER COLUMN _slot TYPE bigint USING _slot::bigint;
CALL ttl_docs.purge('c');
CALL ttl_docs.purge('p');
RESET ttl_docs.clock_offset;

-- A type of the same name, whose cast changes search_path during the command
INSERT INTO c (id, doc) VALUES ('kept', '{}');
SELECT picture('c') AS before \gset
CREATE TYPE same_type.timestamptz AS (t pg_catalog.timestamptz);
CREATE FUNCTION same_type.into_own(pg_catalog.timestamptz) RETURNS same_type.timestamptz LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('search_path', 'pg_catalog, same_type, public', false);
    RETURN ROW($1 + interval '10 years')::same_type.timestamptz;
END $$;
CREATE FUNCTION same_type.from_own(same_type.timestamptz) RETURNS pg_catalog.timestamptz LANGUAGE sql AS 'SELECT ($1).t';
CREATE CAST (pg_catalog.timestamptz AS same_type.timestamptz) WITH FUNCTION same_type.into_own;
CREATE CAST (same_type.timestamptz AS pg_catalog.timestamptz) WITH FUNCTION same_type.from_own AS ASSIGNMENT;
SET search_path = same_type, pg_catalog, public;
\set VERBOSITY sqlstate
ALTER TABLE c ALTER COLUMN _ts TYPE pg_catalog.timestamptz USING _ts::timestamptz;
\set VERBOSITY default
SET search_path = pg_catalog, same_type, public;
SELECT picture('c') = :'before' AS is_same;
SET client_min_messages = warning;
DROP SCHEMA same_type CASCADE;
