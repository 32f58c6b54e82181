-- A table is either a collection or a Citus table, never both.  This test imitates the
-- catalog of Citus and its functions that convert a table; test/t/025_citus.pl does the
-- same with Citus itself.
\set SHOW_CONTEXT never
SET client_min_messages = warning;
\set before :DBNAME
CREATE DATABASE contrib_regression_citus;
\c contrib_regression_citus
SET client_min_messages = warning;
CREATE EXTENSION ttl_docs;
\pset format unaligned
\pset tuples_only on

SET allow_system_table_mods = on;
CREATE FUNCTION pg_catalog.create_distributed_table(table_name regclass, distribution_column text)
    RETURNS void LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''Citus runs''; END';
-- Without the Citus catalog, a function of that name does not belong to Citus.
CREATE TABLE c (id int PRIMARY KEY, doc jsonb);
SELECT ttl_docs.adopt('c', 60);
SELECT create_distributed_table('c', 'id');
CREATE TABLE pg_catalog.pg_dist_partition (partmethod "char", logicalrelid regclass NOT NULL, colocationid int);
RESET allow_system_table_mods;

CREATE TABLE plain (id int PRIMARY KEY, doc jsonb);
CREATE TABLE spread (id int PRIMARY KEY, doc jsonb);
INSERT INTO pg_dist_partition VALUES ('h', 'spread', 1);

--
-- A Citus table cannot become a collection; the attempt changes nothing.
--
SELECT ttl_docs.adopt('spread', 60);
\echo :SQLSTATE
SELECT attname FROM pg_attribute WHERE attrelid = 'spread'::regclass AND attnum > 0;
SELECT count(*) FROM pg_trigger WHERE tgrelid = 'spread'::regclass;
-- A plain table can become a collection.
SELECT ttl_docs.adopt('plain', 60);

-- A restore sets the label on a Citus table.
CREATE TABLE restored (id int, doc jsonb, _ts timestamptz NOT NULL, _ttl int, _slot bigint);
INSERT INTO pg_dist_partition VALUES ('h', 'restored', 1);
SECURITY LABEL FOR ttl_docs ON TABLE restored IS
    '{"version": 1, "document": "doc", "default_ttl": 60, "indexing": "consistent", "written_floor": null, "due_floor": null, "paused": false, "database": 1, "table": 1}';
\echo :SQLSTATE

-- Under some Citus settings, CREATE TABLE makes a Citus table.
CREATE FUNCTION convert_new() RETURNS event_trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO pg_dist_partition SELECT 'n', objid, 1 FROM pg_event_trigger_ddl_commands() WHERE object_type = 'table';
END $$;
CREATE EVENT TRIGGER convert_new ON ddl_command_end WHEN TAG IN ('CREATE TABLE') EXECUTE FUNCTION convert_new();
SELECT ttl_docs.create_collection('managed', 60);
\echo :SQLSTATE
DROP EVENT TRIGGER convert_new;
SELECT to_regclass('managed');

-- A partitioned table with one partition that is a Citus table
CREATE TABLE parted (id int, at int, doc jsonb) PARTITION BY RANGE (at);
CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM (0) TO (10);
INSERT INTO pg_dist_partition VALUES ('h', 'parted_1', 1);
SELECT ttl_docs.adopt('parted_1', 60);
SELECT ttl_docs.adopt('parted', 60);
INSERT INTO pg_dist_partition VALUES ('h', 'parted', 1);
SELECT ttl_docs.adopt('parted', 60);
DELETE FROM pg_dist_partition WHERE logicalrelid IN ('parted'::regclass, 'parted_1'::regclass);
SELECT ttl_docs.adopt('parted', 60);

--
-- A collection cannot become a Citus table
--
-- If the table is known before the call, ttl_docs refuses the call itself.
SELECT create_distributed_table('plain', 'id');
\echo :SQLSTATE
SELECT create_distributed_table(distribution_column => 'id', table_name => 'parted_1');
DO $$ DECLARE t regclass := 'plain'; BEGIN PERFORM create_distributed_table(t, 'id'); END $$;
PREPARE convert AS SELECT create_distributed_table($1, 'id');
EXECUTE convert ('plain');
-- These calls do reach Citus: they have another table, no table, or a table that is
-- known only when the call runs.
SELECT create_distributed_table('spread', 'id');
SELECT create_distributed_table(NULL, 'id');
SELECT create_distributed_table(collection, 'id') FROM ttl_docs.collections;
-- A function of that name in another schema does not belong to Citus.
CREATE FUNCTION create_reference_table(table_name regclass) RETURNS text LANGUAGE sql AS 'SELECT $1::text';
SELECT public.create_reference_table('plain');

-- Citus adds a row to its catalog and creates a trigger.
CREATE FUNCTION on_truncate() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
CREATE FUNCTION convert(t regclass) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO pg_dist_partition VALUES ('h', t, 1);
    EXECUTE format('CREATE TRIGGER truncate_trigger AFTER TRUNCATE ON %s EXECUTE FUNCTION on_truncate()', t);
END $$;
SELECT convert('plain');
\echo :SQLSTATE
SELECT convert('parted');
SELECT convert('parted_1');
SELECT logicalrelid FROM pg_dist_partition ORDER BY 1;
-- Other triggers and other tables are not affected.
CREATE TRIGGER truncate_trigger AFTER TRUNCATE ON plain EXECUTE FUNCTION on_truncate();
CREATE TABLE other (id int, doc jsonb);
SELECT convert('other');

-- When Citus turns the table into a shard, it appends the shard's number to the names
-- of its objects.
BEGIN;
ALTER TABLE plain RENAME TO plain_102008;
ALTER TRIGGER zzz_ttl_docs ON plain_102008 RENAME TO zzz_ttl_docs_102008;
\echo :SQLSTATE
ROLLBACK;
-- Any other rename of the ttl_docs trigger fails with the usual error.
ALTER TRIGGER zzz_ttl_docs ON plain RENAME TO zzz_ttl_docs_102008;
ALTER TRIGGER zzz_ttl_docs ON plain RENAME TO zzz_ttl_docs_;
ALTER TRIGGER zzz_ttl_docs ON plain RENAME TO a;

--
-- Partitions
--
CREATE TABLE spread_parted (id int, at int, doc jsonb, _ts timestamptz NOT NULL, _ttl int, _slot bigint)
    PARTITION BY RANGE (at);
CREATE TABLE spread_part (LIKE spread_parted);
INSERT INTO pg_dist_partition VALUES ('h', 'spread_parted', 1), ('h', 'spread_part', 1);
CREATE TABLE part (id int, at int, doc jsonb);
SELECT ttl_docs.adopt('part', 60);
ALTER TABLE spread_parted ATTACH PARTITION part FOR VALUES FROM (10) TO (20);
\echo :SQLSTATE
ALTER TABLE parted ATTACH PARTITION spread_part FOR VALUES FROM (10) TO (20);
\echo :SQLSTATE
ALTER TABLE parted ATTACH PARTITION part FOR VALUES FROM (10) TO (20);
ALTER TABLE spread_parted ATTACH PARTITION spread_part FOR VALUES FROM (10) TO (20);

-- No table is both.
SELECT collection FROM ttl_docs.collections ORDER BY collection::text;
SELECT collection FROM ttl_docs.collections WHERE collection IN (SELECT logicalrelid FROM pg_dist_partition);

-- After release(), a collection can become a Citus table.  After Citus undistributes a
-- table, the table can be adopted.
SELECT ttl_docs.release('plain');
DROP TRIGGER truncate_trigger ON plain;
SELECT convert('plain');
DELETE FROM pg_dist_partition WHERE logicalrelid = 'spread'::regclass;
SELECT ttl_docs.adopt('spread', 60);

\c :before
DROP DATABASE contrib_regression_citus;
