--
-- A change of settings that makes live documents expire reports how many.  It also
-- holds the purge of the collection for ttl_docs.purge_grace, so that the owner can
-- copy the documents out.  test/t/027_purge_grace.pl tests the workers and the end of
-- the hold.
--
\set SHOW_CONTEXT never
CREATE ROLE regress_ttl_docs_owner;
CREATE ROLE regress_ttl_docs_other;
CREATE SCHEMA grace AUTHORIZATION regress_ttl_docs_owner;
SET search_path = grace;
SET ttl_docs.purge_grace = '10min';

-- The holds of a collection, and the ids on disk
CREATE FUNCTION holds(collection regclass) RETURNS text LANGUAGE sql AS
$$ SELECT concat_ws(' ', c.holds, CASE WHEN s.state IN ('grace', 'paused', 'restored') THEN s.state END) FROM ttl_docs.collections AS c JOIN ttl_docs.stat_collections AS s USING (collection)
    WHERE c.collection = $1 $$;
CREATE FUNCTION on_disk(collection regclass) RETURNS text LANGUAGE plpgsql SET ttl_docs.show_expired = on AS
$$ DECLARE ids text;
BEGIN
    EXECUTE format('SELECT string_agg(id, '' '' ORDER BY id) FROM %s', collection) INTO ids;
    RETURN ids;
END $$;

-- A lower DefaultTTL.  The count leaves out documents that expired earlier and those
-- that never expire.
SELECT ttl_docs.create_collection('docs', 3600);
ALTER TABLE docs OWNER TO regress_ttl_docs_owner;
GRANT USAGE ON SCHEMA grace TO regress_ttl_docs_other;
GRANT SELECT ON docs TO regress_ttl_docs_other;
SET ttl_docs.clock_offset = '-2h';
INSERT INTO docs VALUES ('dead', '{}'), ('never', '{"ttl": -1}'), ('own', '{"ttl": 86400}');
SET ttl_docs.clock_offset = '-30min';
INSERT INTO docs VALUES ('half1', '{}'), ('half2', '{}');
SET ttl_docs.clock_offset = '-9min';
INSERT INTO docs VALUES ('young', '{}');
RESET ttl_docs.clock_offset;
SET ROLE regress_ttl_docs_owner;
SELECT ttl_docs.set_default_ttl('docs', 600);
SELECT id FROM docs ORDER BY id;
SELECT holds('docs');
RESET ROLE;
-- The hint shows the remaining time.
SELECT hint ~ 'for another (10 min|9 min \d+ s)\.' AS time_left FROM ttl_docs.stat_collections WHERE collection = 'docs'::regclass;
SELECT hint FROM ttl_docs.collections WHERE collection = 'docs'::regclass;

-- The hold applies to the whole collection, also to documents that expired normally.
-- Purging it by name is an error; CALL purge() gives a warning.
\set VERBOSITY terse
CALL ttl_docs.purge('docs');
\echo :SQLSTATE
CALL ttl_docs.purge();
\set VERBOSITY default
SELECT on_disk('docs');

-- The owner and a superuser can copy the documents out.  Nobody else sees them.
SET ROLE regress_ttl_docs_owner;
BEGIN;
SET LOCAL row_security = off;
SELECT id FROM docs WHERE ttl_docs.is_expired('docs', _ts, _ttl) ORDER BY id;
COPY docs (id) TO STDOUT;
COMMIT;
SET ROLE regress_ttl_docs_other;
BEGIN;
SET LOCAL row_security = off;
SELECT id FROM docs WHERE ttl_docs.is_expired('docs', _ts, _ttl) ORDER BY id;
COMMIT;
RESET ROLE;

-- The documents stay expired: raising the DefaultTTL does not bring them back.  Raising
-- it does not end the hold either, and reports no count.
SELECT ttl_docs.set_default_ttl('docs', 7200);
SELECT id FROM docs ORDER BY id;
SELECT holds('docs');
-- A write that needs the key of one of these documents deletes the document.
INSERT INTO docs VALUES ('half1', '{"new": true}');
SELECT on_disk('docs');

-- release() fails, because it would delete them.
\set VERBOSITY terse
SELECT ttl_docs.release('docs');
\echo :SQLSTATE
\set VERBOSITY default
BEGIN;
-- resume_purge() ends the hold.
SELECT ttl_docs.resume_purge('docs');
SELECT holds('docs');
SELECT ttl_docs.release('docs');
ROLLBACK;
SELECT holds('docs');
SELECT ttl_docs.resume_purge('docs');
CALL ttl_docs.purge('docs');
SELECT on_disk('docs');

-- If no document expires, there is no notice and no hold.
SELECT ttl_docs.set_default_ttl('docs', 3600);
SELECT ttl_docs.set_default_ttl('docs', NULL);
SELECT ttl_docs.set_default_ttl('docs', -1);
SELECT holds('docs');

-- purge_grace = 0 does not hold the purge.  Every user may set it.
SET ROLE regress_ttl_docs_owner;
SET ttl_docs.purge_grace = 0;
SELECT ttl_docs.set_default_ttl('docs', 60);
SELECT holds('docs');
SET ttl_docs.purge_grace = '1h';
-- Neither 0 nor a shorter purge_grace ends an existing hold.
SELECT ttl_docs.set_default_ttl('docs', NULL);
INSERT INTO docs VALUES ('new1', '{}'), ('new2', '{}');
RESET ROLE;
SET ttl_docs.clock_offset = 100;
SELECT ttl_docs.set_default_ttl('docs', 50);
INSERT INTO docs VALUES ('new3', '{}');
SET ttl_docs.clock_offset = 120;
SET ttl_docs.purge_grace = '1min';
\set VERBOSITY terse
SELECT ttl_docs.set_default_ttl('docs', 20);
\set VERBOSITY default
SELECT label::jsonb ->> 'grace_until' > to_json(now() + interval '50min') #>> '{}' AS an_hour
  FROM pg_seclabel WHERE objoid = 'docs'::regclass;
RESET ttl_docs.clock_offset;
SET ttl_docs.purge_grace = '10min';

-- The server clock ends the hold, whatever the clock_offset of the session is.
SELECT ttl_docs.create_collection('moved', -1);
INSERT INTO moved VALUES ('a', '{}');
SET ttl_docs.clock_offset = '100d';
SELECT ttl_docs.set_default_ttl('moved', 60);
RESET ttl_docs.clock_offset;
SELECT holds('moved');
SET ttl_docs.clock_offset = '1000d';
SELECT holds('moved');
RESET ttl_docs.clock_offset;

-- Turning TTL on: a document's own ttl counts, too.
SELECT ttl_docs.create_collection('off');
SET ttl_docs.clock_offset = '-1h';
INSERT INTO off VALUES ('short', '{"ttl": 60}'), ('long', '{"ttl": 7200}'), ('none', '{}');
RESET ttl_docs.clock_offset;
BEGIN;
SELECT ttl_docs.set_default_ttl('off', -1);
ROLLBACK;
SELECT holds('off');
SELECT ttl_docs.set_default_ttl('off', 60);
SELECT holds('off');

-- Index entries of updated, deleted and uncommitted rows are not counted.
SELECT ttl_docs.create_collection('churn', -1);
SET ttl_docs.clock_offset = '-1h';
INSERT INTO churn SELECT 'k' || i, '{}' FROM generate_series(1, 20) AS i;
RESET ttl_docs.clock_offset;
UPDATE churn SET _ts = DEFAULT WHERE id IN ('k1', 'k2', 'k3');
DELETE FROM churn WHERE id IN ('k4', 'k5');
BEGIN;
INSERT INTO churn VALUES ('k21', '{}');
UPDATE churn SET _ts = DEFAULT WHERE id = 'k6';
SELECT ttl_docs.set_default_ttl('churn', 60);
COMMIT;
SELECT count(*) FROM churn;

-- Counting stops at 10,000.
SELECT ttl_docs.create_collection('many', -1);
SET ttl_docs.clock_offset = '-1h';
INSERT INTO many SELECT i, '{}' FROM generate_series(1, 10001) AS i;
RESET ttl_docs.clock_offset;
SELECT ttl_docs.set_default_ttl('many', 60);
SELECT count(*) FROM many;

-- Lazy indexing: the number is unknown, except for an empty table.
SELECT ttl_docs.create_collection('lazy', -1, 'lazy');
SELECT ttl_docs.set_default_ttl('lazy', 60);
SELECT holds('lazy');
INSERT INTO lazy VALUES ('a', '{}');
SELECT ttl_docs.set_default_ttl('lazy', 30);
SELECT holds('lazy');

-- adopt() counts exactly.
CREATE TABLE plain (id text PRIMARY KEY, doc jsonb, changed timestamptz);
INSERT INTO plain SELECT i, '{}', now() - interval '1h' FROM generate_series(1, 10010) AS i;
SELECT ttl_docs.adopt('plain', 60, last_modified => 'changed');
SELECT holds('plain');
CREATE TABLE plain_now (id text PRIMARY KEY, doc jsonb);
INSERT INTO plain_now VALUES ('a', '{}');
SELECT ttl_docs.adopt('plain_now', 60);
SELECT holds('plain_now');

-- Partitions: one hold applies to the whole collection.  The documents of a new
-- partition count.
CREATE TABLE parts (id text, doc jsonb) PARTITION BY LIST (id);
CREATE TABLE parts_a PARTITION OF parts FOR VALUES IN ('a', 'aa') PARTITION BY LIST (id);
CREATE TABLE parts_a1 PARTITION OF parts_a FOR VALUES IN ('a');
SELECT ttl_docs.adopt('parts', 3600);
CREATE TABLE parts_a2 (LIKE parts_a1 INCLUDING DEFAULTS);
INSERT INTO parts_a2 VALUES ('aa', '{}', now() - interval '2h'), ('aa', '{}', now());
ALTER TABLE parts_a ATTACH PARTITION parts_a2 FOR VALUES IN ('aa');
SELECT holds('parts');
SELECT id FROM parts;
SELECT ttl_docs.resume_purge('parts');
-- A collection becomes a partition.  The count leaves out documents that had already
-- expired there, and its hold continues.
CREATE TABLE parts_b (id text, doc jsonb);
SELECT ttl_docs.adopt('parts_b', 7200);
SET session_replication_role = replica;
INSERT INTO parts_b VALUES ('b', '{}', now() - interval '3h'), ('b', '{}', now() - interval '90min'), ('b', '{}', now());
RESET session_replication_role;
ALTER TABLE parts ATTACH PARTITION parts_b FOR VALUES IN ('b');
SELECT holds('parts');
SELECT ttl_docs.resume_purge('parts');
ALTER TABLE parts DETACH PARTITION parts_b;
SELECT holds('parts_b');
SET session_replication_role = replica;
INSERT INTO parts_b VALUES ('b', '{}', now() - interval '50min');
RESET session_replication_role;
SELECT ttl_docs.set_default_ttl('parts_b', 1800);
SELECT ttl_docs.set_default_ttl('parts', 1800);
SELECT holds('parts');
ALTER TABLE parts ATTACH PARTITION parts_b FOR VALUES IN ('b');
SELECT holds('parts');
-- A detached partition keeps the hold.
ALTER TABLE parts DETACH PARTITION parts_a;
SELECT holds('parts_a');
-- A pause and the hold after a restore also move with the partition.
SELECT ttl_docs.resume_purge('parts');
ALTER TABLE parts DETACH PARTITION parts_b;
SELECT ttl_docs.pause_purge('parts_b');
ALTER TABLE parts ATTACH PARTITION parts_b FOR VALUES IN ('b');
SELECT holds('parts');
SELECT ttl_docs.resume_purge('parts');
SELECT label AS parts_label FROM pg_seclabel WHERE objoid = 'parts_b'::regclass \gset
ALTER TABLE parts DETACH PARTITION parts_b;
DROP TABLE parts_b;
CREATE TABLE parts_b (LIKE parts);
SECURITY LABEL FOR ttl_docs ON TABLE parts_b IS :'parts_label';
SELECT holds('parts_b');
ALTER TABLE parts ATTACH PARTITION parts_b FOR VALUES IN ('b');
SELECT holds('parts');
-- A new partition is empty, so there is no hold.
SELECT ttl_docs.resume_purge('parts');
CREATE TABLE parts_c PARTITION OF parts FOR VALUES IN ('c');
SELECT holds('parts');

-- A user who does not own the root cannot hold its purge.
CREATE TABLE parts_d PARTITION OF parts FOR VALUES IN ('d', 'dd') PARTITION BY LIST (id);
ALTER TABLE parts_d OWNER TO regress_ttl_docs_other;
CREATE TABLE parts_d1 (LIKE parts_d INCLUDING DEFAULTS);
ALTER TABLE parts_d1 OWNER TO regress_ttl_docs_other;
SET ROLE regress_ttl_docs_other;
INSERT INTO parts_d1 VALUES ('d', '{}', now() - interval '2h');
ALTER TABLE parts_d ATTACH PARTITION parts_d1 FOR VALUES IN ('d');
\echo :SQLSTATE
SET ttl_docs.purge_grace = 0;
ALTER TABLE parts_d ATTACH PARTITION parts_d1 FOR VALUES IN ('d');
RESET ROLE;
SELECT holds('parts');
SET ttl_docs.purge_grace = '10min';

-- Several holds at the same time
SELECT ttl_docs.pause_purge('moved');
SELECT holds('moved');
SELECT ttl_docs.resume_purge('moved');
SELECT holds('moved');

-- A label set by hand
CREATE TABLE labelled (LIKE moved);
SECURITY LABEL FOR ttl_docs ON TABLE labelled IS '{"version": 1, "document": "doc", "default_ttl": 60, "indexing": "consistent", "written_floor": null, "due_floor": null, "paused": false, "database": 1, "table": 1, "grace_until": "now"}';
SECURITY LABEL FOR ttl_docs ON TABLE labelled IS '{"version": 1, "document": "doc", "default_ttl": 60, "indexing": "consistent", "written_floor": null, "due_floor": null, "paused": false, "database": 1, "table": 1, "purge_subscribed": "yes"}';
SECURITY LABEL FOR ttl_docs ON TABLE labelled IS '{"version": 1, "document": "doc", "default_ttl": 60, "indexing": "consistent", "written_floor": null, "due_floor": null, "paused": false, "database": 1, "table": 1, "grace_until": "2200-01-01T00:00:00+00:00", "purge_subscribed": true}';
SELECT holds, purge_subscribed FROM ttl_docs.collections WHERE collection = 'labelled'::regclass;
SELECT ttl_docs.resume_purge('labelled');
SELECT holds, purge_subscribed FROM ttl_docs.collections WHERE collection = 'labelled'::regclass;

-- The owner decides whether to purge the target of a subscription.
SET ROLE regress_ttl_docs_other;
SELECT ttl_docs.set_purge_subscribed('docs', true);
RESET ROLE;
SELECT ttl_docs.set_purge_subscribed('docs', NULL);
SELECT ttl_docs.set_purge_subscribed('docs', true);
SELECT ttl_docs.set_default_ttl('docs', NULL);
SELECT purge_subscribed FROM ttl_docs.collections WHERE collection = 'docs'::regclass;
SELECT ttl_docs.set_purge_subscribed('docs', false);
SELECT label::jsonb ? 'purge_subscribed' FROM pg_seclabel WHERE objoid = 'docs'::regclass;

SET client_min_messages = warning;
DROP SCHEMA grace CASCADE;
DROP ROLE regress_ttl_docs_owner, regress_ttl_docs_other;
