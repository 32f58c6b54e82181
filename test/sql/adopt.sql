-- adopt() makes an existing table a collection; release() makes a collection a plain
-- table again.  These tests cover every argument, the first _ts, _ttl and _slot of
-- existing documents, existing system columns, every refusal, and rollback.  A refusal
-- changes nothing.  The table is rewritten at most once.
\set SHOW_CONTEXT never
SET timezone = 'UTC';

-- Shows in one line which parts of a collection a table has.
CREATE FUNCTION pieces(t regclass) RETURNS text LANGUAGE sql AS $$
SELECT concat_ws(' | ',
    (SELECT string_agg(attname || CASE WHEN attnotnull THEN '!' ELSE '' END || attgenerated::text, ' ' ORDER BY attnum)
       FROM pg_attribute WHERE attrelid = t AND attnum > 0 AND NOT attisdropped),
    (SELECT string_agg(tgname || ' ' || tgenabled::text, ', ' ORDER BY tgname) FROM pg_trigger
      WHERE tgrelid = t AND NOT tgisinternal),
    (SELECT string_agg(regexp_replace(pg_get_indexdef(indexrelid), '.* USING ', ''), ', '
                       ORDER BY pg_get_indexdef(indexrelid) COLLATE "C") FROM pg_index WHERE indrelid = t),
    (SELECT concat(doc_column, ' ', coalesce(default_ttl::text, 'off'), ' ', indexing)
       FROM ttl_docs.collections WHERE collection = t))
$$;

--
-- A table with documents: their ttl applies, and _ts is the time of adopt()
--
CREATE TABLE a (id int PRIMARY KEY, data jsonb, note text);
INSERT INTO a VALUES (1, '{}', 'inherits'), (2, '{"ttl": 500}', 'own'), (3, '{"ttl": -1}', 'never'),
    (4, '{"ttl": null}', 'inherits'), (5, NULL, 'no document'), (6, '[1]', 'an array');
SELECT clock_timestamp() AS before \gset
SELECT ttl_docs.adopt('a', 6000);
SELECT pieces('a');
SELECT id, _ttl, _slot IS NOT NULL AS slotted,
       _ts BETWEEN :'before' AND clock_timestamp() AS stamped_now,
       ttl_docs_internal.slot(_ts, _ttl, 6000) IS NOT DISTINCT FROM _slot AS right_slot FROM a ORDER BY id;
SELECT count(DISTINCT _ts) FROM a;
SET ttl_docs.clock_offset = 500;
SELECT id, note FROM a ORDER BY id;
SET ttl_docs.clock_offset = 6000;
SELECT id, note FROM a ORDER BY id;
RESET ttl_docs.clock_offset;
-- The table is a collection now: the server sets _ts, and refuses an invalid ttl.
INSERT INTO a VALUES (7, '{"ttl": 0}', 'bad');
\echo :SQLSTATE

-- release() removes the system columns, the trigger and the purge index.  It also
-- deletes the expired documents, because they must not come back.
SET ttl_docs.clock_offset = 500;
SELECT ttl_docs.release('a');
RESET ttl_docs.clock_offset;
SELECT pieces('a');
SELECT * FROM a ORDER BY id;
INSERT INTO a VALUES (7, '{"ttl": 0}', 'a plain table takes it');

-- TTL cannot be turned on while a document has an invalid ttl.  The error gives the
-- number of invalid documents and shows one value.
SELECT ttl_docs.adopt('a', 6000);
\echo :SQLSTATE
INSERT INTO a VALUES (8, '{"ttl": "60"}', 'another');
SELECT ttl_docs.adopt('a', -1);
\echo :SQLSTATE
SELECT pieces('a');
-- While TTL is off, any value is accepted.
SELECT ttl_docs.adopt('a');
SELECT pieces('a');
SELECT id, _ttl FROM a ORDER BY id;
SELECT ttl_docs.release('a');
DROP TABLE a;

-- adopt() takes _ts from the clock that clock_offset shifts.
CREATE TABLE a (id int, doc jsonb);
INSERT INTO a VALUES (1, '{}');
SET ttl_docs.clock_offset = 100000;
SELECT ttl_docs.adopt('a', 6000);
RESET ttl_docs.clock_offset;
SELECT _ts > clock_timestamp() + '99000 s' AS stamped_ahead FROM a;
DROP TABLE a;

-- Every argument by name, with its different values
CREATE TABLE a (doc1 jsonb, doc2 jsonb);
SELECT ttl_docs.adopt(indexing => 'lazy', doc_column => 'doc2', default_ttl => -1, collection => 'a', last_modified => NULL);
SELECT pieces('a');
SELECT ttl_docs.release('a');
SELECT ttl_docs.adopt('a', NULL, 'doc1', NULL, 'none');
SELECT pieces('a');
SELECT ttl_docs.release('a');
SELECT pieces('a');
DROP TABLE a;

--
-- last_modified
--
CREATE DOMAIN moment AS timestamptz;
CREATE TABLE a (id int PRIMARY KEY, doc jsonb, tz timestamptz, local timestamp, domained moment, day date);
INSERT INTO a VALUES
    (1, '{}', 'now', 'now', 'now', 'today'),
    (2, '{}', clock_timestamp() - interval '5000 s', localtimestamp - interval '5000 s', clock_timestamp() - interval '5000 s', 'today'),
    (3, '{}', clock_timestamp() - interval '7000 s', localtimestamp - interval '7000 s', clock_timestamp() - interval '7000 s', 'today'),
    (4, '{"ttl": 8000}', clock_timestamp() - interval '7000 s', localtimestamp - interval '7000 s', clock_timestamp() - interval '7000 s', 'today'),
    (5, '{}', NULL, NULL, NULL, NULL),
    (6, '{}', '-infinity', '-infinity', '-infinity', '-infinity');
CREATE TABLE a_before AS TABLE a;

BEGIN;
SELECT ttl_docs.adopt('a', 6000, last_modified => 'tz');
SELECT pieces('a');
SELECT id, _ts = tz AS taken, _ts > clock_timestamp() - interval '1000 s' AS fresh FROM a ORDER BY id;
SET LOCAL ttl_docs.show_expired = on;
SELECT id, _ts = tz AS taken, ttl_docs_internal.slot(_ts, _ttl, 6000) = _slot AS right_slot FROM a ORDER BY id;
ROLLBACK;

-- A timestamp without time zone is read in the time zone of the session.
BEGIN;
SELECT ttl_docs.adopt('a', 6000, last_modified => 'local');
SELECT id, _ts = local AT TIME ZONE 'UTC' AS taken FROM a ORDER BY id;
ROLLBACK;
BEGIN;
SET LOCAL timezone = 'Asia/Tokyo';
SELECT ttl_docs.adopt('a', 6000, last_modified => 'local');
SELECT id FROM a ORDER BY id;
ROLLBACK;

BEGIN;
SELECT ttl_docs.adopt('a', 6000, last_modified => 'domained');
SELECT id, _ts = domained AS taken FROM a ORDER BY id;
ROLLBACK;

-- adopt() does not change the last_modified column, and the user can drop it later.
BEGIN;
SELECT ttl_docs.adopt('a', last_modified => 'tz');
SELECT count(*) AS unchanged FROM a JOIN a_before AS b USING (id) WHERE a.tz IS NOT DISTINCT FROM b.tz;
ALTER TABLE a DROP COLUMN tz;
SELECT pieces('a');
ROLLBACK;

SELECT ttl_docs.adopt('a', 6000, last_modified => 'day');
\echo :SQLSTATE
SELECT ttl_docs.adopt('a', 6000, last_modified => 'doc');
\echo :SQLSTATE
SELECT ttl_docs.adopt('a', 6000, last_modified => 'missing');
\echo :SQLSTATE
SELECT ttl_docs.adopt('a', 6000, last_modified => 'xmin');
\echo :SQLSTATE
SELECT ttl_docs.adopt('a', 6000, last_modified => '');
\echo :SQLSTATE
SELECT pieces('a');
DROP TABLE a, a_before;
DROP DOMAIN moment;

--
-- adopt() keeps system columns that exist already
--
CREATE TABLE a (id int, doc jsonb, _slot bigint, _ttl integer, _ts timestamptz);
INSERT INTO a VALUES
    (1, '{}', NULL, NULL, clock_timestamp() - interval '7000 s'),
    (2, '{"ttl": 10000}', 5, 7, clock_timestamp() - interval '7000 s'),
    (3, '{"ttl": 500}', NULL, NULL, clock_timestamp()),
    (4, '{}', NULL, 3, clock_timestamp() - interval '3000 s');
CREATE TABLE a_before AS TABLE a;
-- The user's triggers do not fire for changes that adopt() makes.
CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN RAISE NOTICE '% fired', TG_NAME; RETURN NEW; END $$;
CREATE TRIGGER tell BEFORE UPDATE ON a FOR EACH ROW EXECUTE FUNCTION tell();
SELECT ttl_docs.adopt('a', 6000);
SELECT pieces('a');
SET ttl_docs.show_expired = on;
SELECT id, a._ttl, a._ts = b._ts AS kept, ttl_docs_internal.slot(a._ts, a._ttl, 6000) = a._slot AS right_slot
  FROM a JOIN a_before AS b USING (id) ORDER BY id;
RESET ttl_docs.show_expired;
SELECT id FROM a ORDER BY id;
-- The user's triggers work as before.
UPDATE a SET id = id WHERE id = 2;
DROP TABLE a, a_before;
DROP FUNCTION tell();

-- Only one of the system columns exists.
CREATE TABLE a (id int, doc jsonb, _ttl integer);
INSERT INTO a VALUES (1, '{"ttl": 500}', 99), (2, '{}', 99);
SELECT ttl_docs.adopt('a', 6000);
SELECT id, _ttl, ttl_docs_internal.slot(_ts, _ttl, 6000) = _slot AS right_slot FROM a ORDER BY id;
SELECT pieces('a');
DROP TABLE a;
CREATE TABLE a (id int, doc jsonb, _slot bigint);
INSERT INTO a VALUES (1, '{"ttl": 500}', 99), (2, '{}', NULL), (3, '{"ttl": -1}', 1);
SELECT ttl_docs.adopt('a', 6000);
SELECT id, _ttl, ttl_docs_internal.slot(_ts, _ttl, 6000) IS NOT DISTINCT FROM _slot AS right_slot FROM a ORDER BY id;
SELECT pieces('a');
DROP TABLE a;
CREATE TABLE a (id int, doc jsonb, _ts timestamptz DEFAULT '2000-01-01', changed timestamptz);
INSERT INTO a VALUES (1, '{"ttl": 500}', clock_timestamp() - interval '600 s'), (2, '{}', clock_timestamp());
SELECT ttl_docs.adopt('a', 6000, last_modified => 'changed');
\echo :SQLSTATE
SELECT ttl_docs.adopt('a', 6000);
SELECT id, _ttl, ttl_docs_internal.slot(_ts, _ttl, 6000) = _slot AS right_slot FROM a ORDER BY id;
SELECT pieces('a');
SELECT pg_get_expr(adbin, adrelid) FROM pg_attrdef WHERE adrelid = 'a'::regclass ORDER BY adnum;
DROP TABLE a;
-- A row without _ts
CREATE TABLE a (id int, doc jsonb, _ts timestamptz);
INSERT INTO a VALUES (1, '{}', NULL);
SELECT ttl_docs.adopt('a', 6000);
\echo :SQLSTATE
SELECT pieces('a');
DROP TABLE a;

-- A restore without labels creates only the trigger and the system columns.  Writes
-- then fail with a hint, and adopt() makes the table a collection again.
SELECT ttl_docs.create_collection('a', 6000);
INSERT INTO a VALUES ('x', '{"ttl": 500}');
CREATE TABLE b (LIKE a INCLUDING ALL);
CREATE TRIGGER zzz_ttl_docs BEFORE INSERT OR UPDATE OR DELETE ON b
    FOR EACH ROW EXECUTE FUNCTION ttl_docs_internal.write_document();
INSERT INTO b SELECT * FROM a;
\echo :SQLSTATE
ALTER TABLE b DISABLE TRIGGER zzz_ttl_docs;
SELECT ttl_docs.adopt('b', 6000);
SELECT pieces('b');
INSERT INTO b SELECT * FROM a;
SELECT id, _ttl FROM b;
DROP TABLE a, b;

-- adopt() fails if the table has a trigger of the same name that is not the ttl_docs
-- trigger.
CREATE TABLE a (id int, doc jsonb);
CREATE FUNCTION other() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$;
CREATE TRIGGER zzz_ttl_docs BEFORE INSERT ON a FOR EACH ROW EXECUTE FUNCTION other();
\set VERBOSITY sqlstate
SELECT ttl_docs.adopt('a', 6000);
\set VERBOSITY default
SELECT pieces('a');
-- adopt() also fails if a trigger would fire after the ttl_docs trigger.
ALTER TRIGGER zzz_ttl_docs ON a RENAME TO zzzz_last;
SELECT ttl_docs.adopt('a', 6000);
\echo :SQLSTATE
ALTER TRIGGER zzzz_last ON a RENAME TO zzz_first;
SELECT ttl_docs.adopt('a', 6000);
SELECT pieces('a');
DROP TABLE a;
DROP FUNCTION other();

--
-- adopt() rewrites a table at most once, with any arguments
--
CREATE FUNCTION count_rewrite() RETURNS event_trigger LANGUAGE plpgsql AS
    $$ BEGIN RAISE NOTICE 'rewriting %', pg_event_trigger_table_rewrite_oid()::regclass; END $$;
CREATE EVENT TRIGGER count_rewrite ON table_rewrite EXECUTE FUNCTION count_rewrite();
CREATE TABLE a (id int PRIMARY KEY, doc jsonb, changed timestamptz DEFAULT now());
INSERT INTO a SELECT g, '{"ttl": 10000}' FROM generate_series(1, 1000) AS g;
SELECT ttl_docs.adopt('a', 6000);
SELECT ttl_docs.release('a');
SELECT ttl_docs.adopt('a', 6000, last_modified => 'changed');
SELECT ttl_docs.release('a');
CREATE TABLE a_parted (id int PRIMARY KEY, doc jsonb) PARTITION BY RANGE (id);
CREATE TABLE a_parted_1 PARTITION OF a_parted FOR VALUES FROM (0) TO (10);
INSERT INTO a_parted VALUES (1, '{}');
SELECT ttl_docs.adopt('a_parted', 6000);
DROP EVENT TRIGGER count_rewrite;
DROP FUNCTION count_rewrite();
DROP TABLE a, a_parted;

-- Nothing can write to the table before adopt() is complete, not even an event trigger.
-- A document written too early would have no _ttl, and no purge would find it.
CREATE TABLE a (id serial PRIMARY KEY, doc jsonb);
CREATE FUNCTION write_early() RETURNS event_trigger LANGUAGE plpgsql AS
    $$ BEGIN INSERT INTO a (doc) VALUES ('{"ttl": 77}'); END $$;
CREATE EVENT TRIGGER write_early ON ddl_command_end WHEN TAG IN ('ALTER TABLE') EXECUTE FUNCTION write_early();
\set VERBOSITY terse
SELECT ttl_docs.adopt('a', 6000);
\set VERBOSITY default
\echo :SQLSTATE
DROP EVENT TRIGGER write_early;
DROP FUNCTION write_early();
SELECT pieces('a');
DROP TABLE a;

-- adopt() and release() take the lock that the documentation names.
CREATE TABLE a (id int, doc jsonb);
BEGIN;
SELECT ttl_docs.adopt('a');
SELECT mode FROM pg_locks WHERE relation = 'a'::regclass AND pid = pg_backend_pid()
   AND mode = 'AccessExclusiveLock';
COMMIT;
BEGIN;
SELECT ttl_docs.release('a');
SELECT mode FROM pg_locks WHERE relation = 'a'::regclass AND pid = pg_backend_pid()
   AND mode = 'AccessExclusiveLock';
COMMIT;
-- Neither function works while an open query reads the table.
BEGIN;
DECLARE c CURSOR FOR SELECT * FROM a;
SELECT ttl_docs.adopt('a');
\echo :SQLSTATE
ROLLBACK;
SELECT ttl_docs.adopt('a');
BEGIN;
DECLARE c CURSOR FOR SELECT * FROM a;
SELECT ttl_docs.release('a');
\echo :SQLSTATE
ROLLBACK;
DROP TABLE a;

--
-- Kinds of table
--
CREATE UNLOGGED TABLE a (id int, doc jsonb);
SELECT ttl_docs.adopt('a', 6000);
SELECT pieces('a');
DROP TABLE a;

-- Partitions at two levels, with columns in a different order.  A partition created
-- later belongs to the collection automatically.
CREATE TABLE a (id int, doc jsonb, PRIMARY KEY (id)) PARTITION BY RANGE (id);
CREATE TABLE a1 (doc jsonb, gone text, id int NOT NULL);
ALTER TABLE a1 DROP COLUMN gone;
ALTER TABLE a ATTACH PARTITION a1 FOR VALUES FROM (0) TO (10);
CREATE TABLE a2 PARTITION OF a FOR VALUES FROM (10) TO (100) PARTITION BY RANGE (id);
CREATE TABLE a20 PARTITION OF a2 FOR VALUES FROM (10) TO (50);
INSERT INTO a VALUES (1, '{"ttl": 500}'), (10, '{"ttl": 500}'), (11, '{}');
SELECT ttl_docs.adopt('a', 6000);
CREATE TABLE a3 PARTITION OF a FOR VALUES FROM (100) TO (200);
INSERT INTO a VALUES (100, '{"ttl": 500}');
SELECT relid, pieces(relid) FROM pg_partition_tree('a') ORDER BY relid::text;
SELECT tableoid::regclass, id, _ttl FROM a ORDER BY id;
SET ttl_docs.clock_offset = 500;
SELECT id FROM a ORDER BY id;
SELECT ttl_docs.release('a');
RESET ttl_docs.clock_offset;
SELECT id FROM a ORDER BY id;
SELECT relid, pieces(relid) FROM pg_partition_tree('a') ORDER BY relid::text;
DROP TABLE a;

-- Foreign keys in both directions, a generated column and an identity column
CREATE TABLE parent (id int PRIMARY KEY);
CREATE TABLE a (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, parent int REFERENCES parent,
    doc jsonb, kind text GENERATED ALWAYS AS (doc ->> 'kind') STORED);
CREATE TABLE child (a int REFERENCES a);
INSERT INTO parent VALUES (1);
INSERT INTO a (parent, doc) VALUES (1, '{"kind": "k", "ttl": 500}');
INSERT INTO child VALUES (1);
SELECT ttl_docs.adopt('a', 6000);
INSERT INTO a (parent, doc) VALUES (1, '{"kind": "l"}');
SELECT id, parent, kind, _ttl FROM a ORDER BY id;
SELECT ttl_docs.release('a');
SELECT id, parent, doc, kind FROM a ORDER BY id;
DROP TABLE child, a, parent;

--
-- Refusals: each error says what is wrong and what to do
--
CREATE TABLE t (id int, doc jsonb);
CREATE VIEW t_view AS TABLE t;
CREATE MATERIALIZED VIEW t_matview AS TABLE t;
CREATE SEQUENCE t_seq;
CREATE INDEX t_index ON t (id);
CREATE TYPE t_type AS (id int, doc jsonb);
CREATE TEMP TABLE t_temp (id int, doc jsonb);
CREATE FOREIGN DATA WRAPPER regress_ttl_fdw;
CREATE SERVER regress_ttl_server FOREIGN DATA WRAPPER regress_ttl_fdw;
CREATE FOREIGN TABLE t_foreign (id int, doc jsonb) SERVER regress_ttl_server;
CREATE TABLE t_parted (id int, doc jsonb) PARTITION BY LIST (id);
CREATE TABLE t_partition PARTITION OF t_parted FOR VALUES IN (1);
CREATE TABLE t_parted2 (id int, doc jsonb) PARTITION BY LIST (id);
CREATE TABLE t_sub PARTITION OF t_parted2 FOR VALUES IN (1, 2) PARTITION BY LIST (id);
CREATE FOREIGN TABLE t_foreign_part PARTITION OF t_sub FOR VALUES IN (1) SERVER regress_ttl_server;
CREATE TABLE t_parent (id int, doc jsonb);
CREATE TABLE t_child () INHERITS (t_parent);
CREATE TABLE t_by_ts (id int, doc jsonb, _ts timestamptz) PARTITION BY RANGE (_ts);
CREATE TABLE t_by_expr (id int, doc jsonb, _ttl int) PARTITION BY RANGE ((_ttl + 1));
CREATE TABLE t_typed OF t_type;

SELECT ttl_docs.adopt('t_view');
\echo :SQLSTATE
SELECT ttl_docs.adopt('t_matview');
\echo :SQLSTATE
SELECT ttl_docs.adopt('t_seq');
\echo :SQLSTATE
SELECT ttl_docs.adopt('t_index');
\echo :SQLSTATE
SELECT ttl_docs.adopt('t_type');
\echo :SQLSTATE
SELECT ttl_docs.adopt('t_temp');
\echo :SQLSTATE
SELECT ttl_docs.adopt('t_foreign');
\echo :SQLSTATE
SELECT ttl_docs.adopt('t_parted2');
\echo :SQLSTATE
SELECT ttl_docs.adopt('t_partition');
\echo :SQLSTATE
SELECT ttl_docs.adopt('t_sub');
\echo :SQLSTATE
SELECT ttl_docs.adopt('t_parent');
\echo :SQLSTATE
SELECT ttl_docs.adopt('t_child');
\echo :SQLSTATE
SELECT ttl_docs.adopt('t_by_ts');
\echo :SQLSTATE
SELECT ttl_docs.adopt('t_by_expr');
\echo :SQLSTATE
SELECT ttl_docs.adopt('pg_class');
\echo :SQLSTATE
SELECT ttl_docs.adopt('information_schema.sql_features');
\echo :SQLSTATE
\set VERBOSITY sqlstate
SELECT ttl_docs.adopt((SELECT reltoastrelid FROM pg_class WHERE oid = 't'::regclass)::regclass);
SELECT ttl_docs.adopt('t_typed');
\set VERBOSITY default
SELECT ttl_docs.adopt(4294967295::oid::regclass);
\echo :SQLSTATE
SELECT ttl_docs.adopt(NULL);
\echo :SQLSTATE
SELECT ttl_docs.adopt('t', indexing => NULL);
\echo :SQLSTATE
SELECT ttl_docs.adopt('t', 0);
\echo :SQLSTATE
SELECT ttl_docs.adopt('t', -2);
\echo :SQLSTATE
SELECT ttl_docs.adopt('t', 6000, indexing => 'eager');
\echo :SQLSTATE
SELECT ttl_docs.adopt('t', 6000, indexing => 'none');
\echo :SQLSTATE

-- The document column
CREATE TABLE no_doc (id int, doc json, extra text);
CREATE TABLE two_docs (id int, doc jsonb, more jsonb);
CREATE TABLE generated_doc (id int, doc jsonb GENERATED ALWAYS AS ('{}'::jsonb) STORED);
CREATE DOMAIN jsonb_object AS jsonb;
CREATE TABLE domain_doc (id int, doc jsonb_object);
SELECT ttl_docs.adopt('no_doc');
\echo :SQLSTATE
SELECT ttl_docs.adopt('no_doc', doc_column => 'doc');
\echo :SQLSTATE
SELECT ttl_docs.adopt('two_docs');
\echo :SQLSTATE
SELECT ttl_docs.adopt('two_docs', doc_column => 'id');
\echo :SQLSTATE
SELECT ttl_docs.adopt('two_docs', doc_column => 'missing');
\echo :SQLSTATE
SELECT ttl_docs.adopt('two_docs', doc_column => 'ctid');
\echo :SQLSTATE
SELECT ttl_docs.adopt('generated_doc');
\echo :SQLSTATE
SELECT ttl_docs.adopt('domain_doc');
\echo :SQLSTATE
SELECT ttl_docs.adopt('domain_doc', doc_column => 'doc');
\echo :SQLSTATE

-- Columns that conflict with the system columns
CREATE TABLE w (id int, doc jsonb, _ts timestamp);
SELECT ttl_docs.adopt('w');
\echo :SQLSTATE
DROP TABLE w;
CREATE TABLE w (id int, doc jsonb, _ttl bigint);
SELECT ttl_docs.adopt('w');
\echo :SQLSTATE
DROP TABLE w;
CREATE TABLE w (id int, doc jsonb, _slot text);
SELECT ttl_docs.adopt('w');
\echo :SQLSTATE
DROP TABLE w;
CREATE TABLE w (id int, doc jsonb, _ttl int GENERATED ALWAYS AS (5) STORED);
SELECT ttl_docs.adopt('w');
\echo :SQLSTATE
DROP TABLE w;
CREATE TABLE w (id int, doc jsonb, _slot bigint GENERATED BY DEFAULT AS IDENTITY);
SELECT ttl_docs.adopt('w');
\echo :SQLSTATE
DROP TABLE w;
-- A partition alone cannot be adopted or released.
CREATE TABLE w (id int, doc jsonb) PARTITION BY LIST (id);
CREATE TABLE w1 (id int, doc jsonb);
ALTER TABLE w ATTACH PARTITION w1 DEFAULT;
SELECT ttl_docs.adopt('w', 6000);
SELECT ttl_docs.adopt('w1');
\echo :SQLSTATE
SELECT ttl_docs.release('w1');
\echo :SQLSTATE
DROP TABLE w;

-- adopt() a second time
SELECT ttl_docs.adopt('t', 6000);
SELECT ttl_docs.adopt('t', 7000);
\echo :SQLSTATE
SELECT pieces('t');

-- release()
SELECT ttl_docs.release('no_doc');
\echo :SQLSTATE
SELECT ttl_docs.release('t_view');
\echo :SQLSTATE
SELECT ttl_docs.release(4294967295::oid::regclass);
\echo :SQLSTATE
\set VERBOSITY sqlstate
SELECT ttl_docs.release(NULL);
\set VERBOSITY default
-- release() fails if an object depends on a system column.
CREATE VIEW uses_ts AS SELECT id, _ts FROM t;
SELECT ttl_docs.release('t');
\echo :SQLSTATE
SELECT pieces('t');
DROP VIEW uses_ts;
-- release() also fails if a trigger prevents the delete of an expired document.
CREATE FUNCTION veto() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
CREATE TRIGGER veto BEFORE DELETE ON t FOR EACH ROW EXECUTE FUNCTION veto();
INSERT INTO t VALUES (1, '{"ttl": 500}');
SET ttl_docs.clock_offset = 500;
SELECT ttl_docs.release('t');
\echo :SQLSTATE
SELECT count(*) FROM t;
DROP TRIGGER veto ON t;
SELECT ttl_docs.release('t');
RESET ttl_docs.clock_offset;
SELECT count(*) FROM t;
DROP FUNCTION veto();

-- release() works on a tree of documents that delete one another by cascade.
CREATE TABLE tree (id int PRIMARY KEY, parent int REFERENCES tree ON DELETE CASCADE, doc jsonb);
INSERT INTO tree VALUES (1, NULL, '{"ttl": 500}'), (2, 1, '{"ttl": 500}'), (3, 2, '{}'), (4, NULL, '{}');
SELECT ttl_docs.adopt('tree', 6000);
SET ttl_docs.clock_offset = 500;
SELECT ttl_docs.release('tree');
RESET ttl_docs.clock_offset;
SELECT id FROM tree ORDER BY id;
DROP TABLE tree;

-- No refused table became a collection or kept any part of one.
SELECT count(*) FROM ttl_docs.collections;
SELECT oid::regclass, pieces(oid) FROM pg_class
 WHERE relname IN ('no_doc', 'two_docs', 'generated_doc', 'domain_doc', 't_typed', 't_partition', 't_parent', 't_child')
 ORDER BY relname;

DROP TABLE t_typed, t_by_expr, t_by_ts, t_parent, t_child, t_parted, t_parted2, t_temp,
    no_doc, two_docs, generated_doc, domain_doc;
DROP FOREIGN TABLE t_foreign;
DROP SERVER regress_ttl_server;
DROP FOREIGN DATA WRAPPER regress_ttl_fdw;
DROP TYPE t_type;
DROP DOMAIN jsonb_object;
DROP SEQUENCE t_seq;
DROP MATERIALIZED VIEW t_matview;
DROP VIEW t_view;

--
-- A rollback restores everything, also this session's cache
--
INSERT INTO t VALUES (2, '{"ttl": 500}');
SET ttl_docs.clock_offset = 500;
BEGIN;
SELECT ttl_docs.adopt('t', 6000);
SET LOCAL ttl_docs.clock_offset = 1000;
SELECT count(*) FROM t;
ROLLBACK;
SELECT id, doc FROM t;
INSERT INTO t VALUES (3, '{"ttl": 0}');
SELECT pieces('t');

-- The same in a savepoint, with one prepared statement throughout
PREPARE n AS SELECT count(*) FROM t;
DELETE FROM t WHERE id = 3;
BEGIN;
EXECUTE n;
SAVEPOINT s;
SELECT ttl_docs.adopt('t', 6000);
SET LOCAL ttl_docs.clock_offset = 1000;
EXECUTE n;
ROLLBACK TO s;
EXECUTE n;
SELECT pieces('t');
SELECT ttl_docs.adopt('t', -1);
SAVEPOINT s2;
SELECT ttl_docs.release('t');
SELECT pieces('t');
ROLLBACK TO s2;
SELECT pieces('t');
COMMIT;
SELECT ttl_docs.get_default_ttl('t');
EXECUTE n;
SET ttl_docs.clock_offset = 1000;
EXECUTE n;
BEGIN;
SELECT ttl_docs.release('t');
EXECUTE n;
ROLLBACK;
RESET ttl_docs.clock_offset;
EXECUTE n;
DEALLOCATE n;
DROP TABLE t;
DROP FUNCTION pieces(regclass);

--
-- release() with deferred foreign keys, as Django creates them: release() checks the
-- foreign keys of its own deletes at once
--
CREATE TABLE cart (id int PRIMARY KEY, doc jsonb);
CREATE TABLE item (id int PRIMARY KEY, cart int REFERENCES cart DEFERRABLE INITIALLY DEFERRED);
SELECT ttl_docs.adopt('cart', 60);
INSERT INTO cart VALUES (1, '{}');
SET ttl_docs.clock_offset = 60;
INSERT INTO cart VALUES (2, '{}');
BEGIN;
INSERT INTO item VALUES (1, 2);
SELECT ttl_docs.release('cart');
SELECT * FROM cart;
ROLLBACK;
INSERT INTO item VALUES (1, 2);
RESET ttl_docs.clock_offset;
SET ttl_docs.clock_offset = 200;
-- A child prevents the delete of its expired parent.
SELECT ttl_docs.release('cart');
DELETE FROM item;
SELECT ttl_docs.release('cart');
SELECT * FROM cart;
RESET ttl_docs.clock_offset;
-- release() does not check the deferred foreign keys of the user's own writes.
CREATE TABLE parent (id int PRIMARY KEY);
CREATE TABLE child (parent int REFERENCES parent DEFERRABLE INITIALLY DEFERRED);
SELECT ttl_docs.adopt('cart', 60);
BEGIN;
INSERT INTO child VALUES (1);
SELECT ttl_docs.release('cart');
INSERT INTO parent VALUES (1);
COMMIT;
DROP TABLE cart, item, child, parent;
