-- The owner of a table lacks USAGE on its schema.  A superuser can still change the
-- collection, even if it has rows, policies, constraints and partitions.
\set SHOW_CONTEXT never
CREATE ROLE regress_ttl_owner;
CREATE SCHEMA hidden;
CREATE TABLE hidden.plain (id int PRIMARY KEY, doc jsonb);
INSERT INTO hidden.plain SELECT i, jsonb_build_object('ttl', 100 + i) FROM generate_series(1, 3) AS i;
-- An existing _ts that may be null; the CHECK constraint allows nulls.
CREATE TABLE hidden.stamped (id int PRIMARY KEY, doc jsonb, _ts timestamptz, CHECK (_ts > '2000-01-01'));
INSERT INTO hidden.stamped VALUES (1, '{"ttl": 100}', now() - interval '1 hour'), (2, '{}', now());
-- With policies, PostgreSQL analyzes a query again for each role that runs it.
CREATE TABLE hidden.secured (id int PRIMARY KEY, doc jsonb, changed timestamptz);
INSERT INTO hidden.secured VALUES (1, '{"ttl": 100}', now() - interval '1 hour'), (2, '{"ttl": "no"}', now());
ALTER TABLE hidden.secured ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
CREATE TABLE hidden.parted (id int, doc jsonb) PARTITION BY RANGE (id);
CREATE TABLE hidden.parted_1 PARTITION OF hidden.parted FOR VALUES FROM (0) TO (10);
CREATE TABLE hidden.parted_2 (id int, doc jsonb, _ts timestamptz NOT NULL DEFAULT now(), _ttl int, _slot bigint);
INSERT INTO hidden.parted_2 VALUES (11, '{"ttl": 100}'), (12, '{"ttl": "no"}');
ALTER TABLE hidden.parted_2 ENABLE ROW LEVEL SECURITY;
SELECT format('ALTER TABLE %s OWNER TO regress_ttl_owner', oid::regclass) FROM pg_class
 WHERE relnamespace = 'hidden'::regnamespace AND relkind IN ('r', 'p') ORDER BY relname \gexec
SET ROLE regress_ttl_owner;
SELECT FROM hidden.plain;
RESET ROLE;

SELECT ttl_docs.adopt('hidden.plain');
SELECT ttl_docs.set_default_ttl('hidden.plain', 1000);
SELECT ttl_docs.set_indexing('hidden.plain', 'lazy');
SELECT ttl_docs.adopt('hidden.stamped', 1000);
SELECT attnotnull FROM pg_attribute WHERE attrelid = 'hidden.stamped'::regclass AND attname = '_ts';
SELECT ttl_docs.adopt('hidden.secured', last_modified => 'changed');
SELECT ttl_docs.set_default_ttl('hidden.secured', 1000);
UPDATE hidden.secured SET doc = '{}' WHERE id = 2;
SELECT ttl_docs.set_default_ttl('hidden.secured', 1000);
SELECT ttl_docs.release('hidden.secured');
ALTER TABLE hidden.secured DROP COLUMN changed, ADD COLUMN changed timestamptz DEFAULT now() - interval '1 hour';
SELECT ttl_docs.adopt('hidden.secured', 1000, last_modified => 'changed');
SELECT ttl_docs.adopt('hidden.parted', 1000);
ALTER TABLE hidden.parted ATTACH PARTITION hidden.parted_2 FOR VALUES FROM (10) TO (20);
DELETE FROM hidden.parted_2 WHERE id = 12;
ALTER TABLE hidden.parted ATTACH PARTITION hidden.parted_2 FOR VALUES FROM (10) TO (20);
ALTER TABLE hidden.parted DETACH PARTITION hidden.parted_2;
ALTER TABLE hidden.parted ATTACH PARTITION hidden.parted_2 FOR VALUES FROM (10) TO (20);

-- A null _ts is refused, with PostgreSQL's own error.
CREATE TABLE hidden.unstamped (id int, doc jsonb, _ts timestamptz);
INSERT INTO hidden.unstamped VALUES (1, '{}', NULL);
ALTER TABLE hidden.unstamped OWNER TO regress_ttl_owner;
SELECT ttl_docs.adopt('hidden.unstamped');
-- The same in partitions
CREATE TABLE hidden.tree (id int, doc jsonb, _ts timestamptz) PARTITION BY RANGE (id);
CREATE TABLE hidden.tree_1 PARTITION OF hidden.tree FOR VALUES FROM (0) TO (10);
INSERT INTO hidden.tree VALUES (1, '{}', NULL);
ALTER TABLE hidden.tree OWNER TO regress_ttl_owner;
ALTER TABLE hidden.tree_1 OWNER TO regress_ttl_owner;
SELECT ttl_docs.adopt('hidden.tree');
UPDATE hidden.tree SET _ts = now();
SELECT ttl_docs.adopt('hidden.tree');
SELECT attrelid::regclass, attnotnull FROM pg_attribute
 WHERE attrelid IN ('hidden.tree'::regclass, 'hidden.tree_1'::regclass) AND attname = '_ts' ORDER BY 1;

SET ttl_docs.clock_offset = 200;
CALL ttl_docs.purge();
SELECT id FROM hidden.plain UNION ALL SELECT id FROM hidden.stamped UNION ALL SELECT id FROM hidden.secured
 UNION ALL SELECT id FROM hidden.parted ORDER BY id;
RESET ttl_docs.clock_offset;
SELECT ttl_docs.release(c) FROM unnest(ARRAY['hidden.plain', 'hidden.stamped', 'hidden.parted']::regclass[]) AS c;

-- During adopt(), PostgreSQL evaluates constant expressions of the CHECK constraint as
-- the owner.
CREATE FUNCTION hidden.who() RETURNS timestamptz IMMUTABLE LANGUAGE plpgsql AS $$
BEGIN
    RAISE NOTICE 'as %', current_user;
    RETURN '2000-01-01';
END $$;
GRANT EXECUTE ON FUNCTION hidden.who() TO PUBLIC;
CREATE TABLE hidden.checked (id int, doc jsonb, _ts timestamptz);
ALTER TABLE hidden.checked OWNER TO regress_ttl_owner;
ALTER TABLE hidden.checked ADD CHECK (_ts > hidden.who());
SELECT ttl_docs.adopt('hidden.checked');

-- In a command that fires event triggers
CREATE FUNCTION hidden.look() RETURNS event_trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE NOTICE '%', (SELECT string_agg(DISTINCT command_tag, ', ' ORDER BY command_tag) FROM pg_event_trigger_ddl_commands());
END $$;
CREATE EVENT TRIGGER regress_ttl_look ON ddl_command_end WHEN TAG IN ('CREATE TABLE AS') EXECUTE FUNCTION hidden.look();
CREATE TABLE hidden.again (id int, doc jsonb, _ts timestamptz);
ALTER TABLE hidden.again OWNER TO regress_ttl_owner;
CREATE TABLE hidden.result AS SELECT ttl_docs.adopt('hidden.again') IS NOT NULL AS adopted;
DROP EVENT TRIGGER regress_ttl_look;

SET client_min_messages = warning;
DROP SCHEMA hidden CASCADE;
DROP ROLE regress_ttl_owner;
