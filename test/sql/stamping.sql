-- The server sets _ts, _ttl and _slot.  It replaces the values that a client sends, in
-- every kind of write.  Replication and a restore keep the _ts that they bring.  The
-- ttl_docs trigger sees the row as it will be stored.
\set SHOW_CONTEXT never

-- Shows whether _ts comes from the clock, and whether _ttl and _slot match the
-- document.
CREATE FUNCTION stamped(ts timestamptz, ttl int, slot bigint, doc jsonb, since timestamptz) RETURNS text
LANGUAGE sql AS $$
SELECT concat_ws(' ', CASE WHEN ts > since AND ts <= clock_timestamp() THEN 'now' ELSE 'kept' END,
                 coalesce(ttl::text, 'inherits'),
                 CASE WHEN ttl IS DISTINCT FROM ttl_docs.document_ttl(doc) THEN 'WRONG TTL' END,
                 CASE WHEN slot IS DISTINCT FROM ttl_docs_internal.slot(ts, ttl, 1000) THEN 'WRONG SLOT' END)
$$;

SELECT ttl_docs.create_collection('s', 1000);
SELECT clock_timestamp() AS since \gset
\set stamp 'id, stamped(_ts, _ttl, _slot, doc, :''since'')'

-- INSERT
INSERT INTO s VALUES ('values', '{"ttl": 100}', '2000-01-01', 7, 7) RETURNING :stamp;
INSERT INTO s VALUES ('null', '{}', NULL, NULL, NULL) RETURNING :stamp;
INSERT INTO s VALUES ('default', '{"ttl": -1}', DEFAULT, DEFAULT, DEFAULT) RETURNING :stamp;
INSERT INTO s VALUES ('future', '{}', 'infinity', -1, NULL) RETURNING :stamp;
INSERT INTO s (id, doc) VALUES ('left out', '{"ttl": 100}') RETURNING :stamp;
INSERT INTO s SELECT 'copy', doc, '2000-01-01', _ttl, _slot FROM s WHERE id = 'left out' RETURNING :stamp;
INSERT INTO s VALUES ('values', '{}') ON CONFLICT (id) DO UPDATE SET doc = '{"ttl": 200}', _ts = '2000-01-01', _ttl = 3
    RETURNING :stamp;
-- COPY
COPY s FROM stdin;
copied	{"ttl": 300}	2000-01-01	7	7
\.
COPY s (doc, id, _ts) FROM stdin;
{}	copied too	2000-01-01
\.
SELECT :stamp FROM s WHERE id LIKE 'copied%' ORDER BY id;
-- UPDATE of the system columns themselves, of another column, and without a change
SELECT clock_timestamp() AS since \gset
UPDATE s SET _ts = '2000-01-01' WHERE id = 'values' RETURNING :stamp;
UPDATE s SET _ttl = -1, _slot = NULL WHERE id = 'left out' RETURNING :stamp;
UPDATE s SET _ts = 'infinity', _ttl = NULL, _slot = 5, doc = doc WHERE id = 'copied' RETURNING :stamp;
UPDATE s SET id = id WHERE id = 'null' RETURNING :stamp;
UPDATE s SET id = 'renamed' WHERE id = 'copied too' RETURNING :stamp;
-- MERGE
MERGE INTO s USING (VALUES ('values'), ('merged')) AS v(id) ON s.id = v.id
    WHEN MATCHED THEN UPDATE SET _ts = '2000-01-01', doc = '{"ttl": 400}'
    WHEN NOT MATCHED THEN INSERT VALUES (v.id, '{"ttl": 500}', '2000-01-01', 7, 7);
SELECT :stamp FROM s WHERE id IN ('values', 'merged') ORDER BY id;
-- Only the ttl in the document can be changed or removed.
UPDATE s SET doc = '{"ttl": 600}' WHERE id = 'null' RETURNING :stamp;
UPDATE s SET doc = doc - 'ttl' WHERE id = 'null' RETURNING :stamp;
UPDATE s SET doc = '{"ttl": null}' WHERE id = 'values' RETURNING :stamp;

-- _ts is the current clock, which advances within a transaction.
BEGIN;
INSERT INTO s VALUES ('t1', '{}');
INSERT INTO s VALUES ('t2', '{}');
SELECT count(DISTINCT _ts) = 2 AS each_its_own, min(_ts) > now() AS after_begin,
       bool_or(extract(microseconds FROM _ts)::int % 1000 <> 0) AS microseconds FROM s WHERE id LIKE 't_';
COMMIT;
-- clock_offset shifts _ts.
SET ttl_docs.clock_offset = 100000;
INSERT INTO s VALUES ('ahead', '{}') RETURNING _ts > clock_timestamp() + interval '99000 s' AS ahead;
RESET ttl_docs.clock_offset;
-- The same while TTL is off
SELECT ttl_docs.set_default_ttl('s', NULL);
INSERT INTO s VALUES ('off', '{"ttl": 100}', '2000-01-01', 7, 7) RETURNING :stamp;
INSERT INTO s VALUES ('off, bad', '{"ttl": "x"}', '2000-01-01', 7, 7) RETURNING id, _ttl;
DELETE FROM s WHERE id = 'off, bad';
SELECT ttl_docs.set_default_ttl('s', 1000);

-- The ttl_docs trigger fires last.  It sees the changes of the user's triggers to the
-- row, and replaces their changes to the system columns.
CREATE FUNCTION meddle() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW._ts := '2000-01-01';
    NEW._ttl := 7;
    NEW.doc := NEW.doc || '{"ttl": 700}';
    RETURN NEW;
END $$;
CREATE TRIGGER zzz_ttl_do BEFORE INSERT OR UPDATE ON s FOR EACH ROW EXECUTE FUNCTION meddle();
INSERT INTO s VALUES ('meddled', '{}') RETURNING :stamp;
UPDATE s SET doc = '{"ttl": 100}' WHERE id = 'meddled' RETURNING :stamp;
CREATE OR REPLACE FUNCTION meddle() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN NEW.doc := '{"ttl": 0}'; RETURN NEW; END $$;
INSERT INTO s VALUES ('meddled 2', '{}');
\echo :SQLSTATE
UPDATE s SET id = id WHERE id = 'meddled';
\echo :SQLSTATE
DROP TRIGGER zzz_ttl_do ON s;
DROP FUNCTION meddle();

-- Generated columns and constraints use the values that the server sets.
ALTER TABLE s ADD COLUMN twice int GENERATED ALWAYS AS (_ttl * 2) STORED;
ALTER TABLE s ADD CONSTRAINT not_short CHECK (coalesce(_ttl, -1) <> 50);
INSERT INTO s VALUES ('generated', '{"ttl": 150}') RETURNING twice;
UPDATE s SET doc = '{"ttl": 160}' WHERE id = 'generated' RETURNING twice;
\set VERBOSITY terse
INSERT INTO s VALUES ('checked', '{"ttl": 50}');
\set VERBOSITY default
\echo :SQLSTATE
ALTER TABLE s DROP COLUMN twice, DROP CONSTRAINT not_short;

-- A document that is stored out of line and not changed
INSERT INTO s SELECT 'big', jsonb_build_object('ttl', 123, 'x', string_agg(md5(g::text), '')) FROM generate_series(1, 2000) AS g;
SELECT clock_timestamp() AS since \gset
UPDATE s SET id = 'big 2' WHERE id = 'big' RETURNING :stamp;
UPDATE s SET doc = doc || '{"ttl": 124}' WHERE id = 'big 2' RETURNING :stamp;

-- A row that moves to another partition is written once.
CREATE TABLE p (id int, doc jsonb) PARTITION BY RANGE (id);
CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10);
CREATE TABLE p2 (doc jsonb, id int);
ALTER TABLE p ATTACH PARTITION p2 FOR VALUES FROM (10) TO (20);
SELECT ttl_docs.adopt('p', 1000);
INSERT INTO p VALUES (1, '{"ttl": 100}', '2000-01-01', 7, 7) RETURNING tableoid::regclass, :stamp;
SELECT clock_timestamp() AS since \gset
UPDATE p SET id = 11, _ts = '2000-01-01' RETURNING tableoid::regclass, :stamp;
SELECT tableoid::regclass, :stamp FROM p;
DROP TABLE p;

--
-- Replication keeps _ts and _ttl; _slot is computed
--
SELECT clock_timestamp() AS since \gset
SET session_replication_role = replica;
INSERT INTO s VALUES ('replicated', '{"ttl": 100}', now() - interval '50 s', 100, 7) RETURNING :stamp;
INSERT INTO s VALUES ('dead on arrival', '{"ttl": 100}', now() - interval '200 s', 100, 7);
INSERT INTO s VALUES ('no stamp', '{}', NULL, NULL, NULL) RETURNING :stamp;
INSERT INTO s VALUES ('infinite', '{"ttl": 100}', 'infinity', 100, 7), ('minus infinite', '{}', '-infinity', NULL, 7)
    RETURNING id, _ts, _ttl, _slot;
UPDATE s SET doc = '{"ttl": 100, "v": 2}', _ts = now() - interval '40 s' WHERE id = 'replicated' RETURNING :stamp;
COPY s FROM stdin;
replicated by copy	{"ttl": 2000000000}	2000-01-01	2000000000	7
\.
-- If replication sends no _ttl, the ttl of the document counts.  An invalid ttl must
-- not stop replication.
INSERT INTO s (id, doc) VALUES ('ttl of its own', '{"ttl": 100}'), ('none', '{}'), ('wrong', '{"ttl": 0}')
    RETURNING id, _ttl;
UPDATE s SET doc = '{"ttl": 200}' WHERE id = 'none' RETURNING id, _ttl;
UPDATE s SET doc = '{"ttl": 300}' WHERE id = 'none' RETURNING id, _ttl;
UPDATE s SET doc = '{}' WHERE id = 'none' RETURNING id, _ttl;
UPDATE s SET doc = '{"ttl": 400}', _ttl = 500 WHERE id = 'none' RETURNING id, _ttl;
UPDATE s SET _ts = _ts WHERE id = 'none' RETURNING id, _ttl;
RESET session_replication_role;
SELECT id, nullif(ttl_docs.expires_at('s', _ts, _ttl), 'infinity') - _ts AS lives FROM s WHERE id IN ('ttl of its own', 'none', 'wrong') ORDER BY id;
DELETE FROM s WHERE id IN ('ttl of its own', 'none', 'wrong');
SELECT :stamp FROM s WHERE id LIKE 'replicated%' OR id LIKE '%infinite' OR id = 'dead on arrival' ORDER BY id;
SET ttl_docs.clock_offset = 70;
SELECT count(*) FROM s WHERE id = 'replicated';
RESET ttl_docs.clock_offset;
-- An UPDATE that brings no new _ts.  In a user's session, the row keeps its _ts.  From
-- a replication origin, the UPDATE renews the document, because this publisher does not
-- send _ts.
SET session_replication_role = replica;
INSERT INTO s VALUES ('touched', '{}', now() - interval '50 s', NULL, NULL), ('changed', '{"ttl": 100}', now() - interval '50 s', 100, NULL);
SELECT clock_timestamp() AS since \gset
UPDATE s SET doc = doc WHERE id = 'touched' RETURNING :stamp;
SELECT pg_replication_origin_create('regress_ttl_docs') > 0 AS created;
SELECT pg_replication_origin_session_setup('regress_ttl_docs');
UPDATE s SET doc = doc WHERE id = 'touched' RETURNING :stamp;
UPDATE s SET doc = '{"ttl": 300}' WHERE id = 'changed' RETURNING :stamp;
-- If replication sends _ts, it is kept, even if the other system columns are not sent.
UPDATE s SET doc = '{"ttl": 200}', _ts = now() - interval '40 s' WHERE id = 'changed' RETURNING :stamp;
UPDATE s SET _ts = now() - interval '500 s' WHERE id = 'touched' RETURNING :stamp;
SELECT pg_replication_origin_session_reset();
SELECT pg_replication_origin_drop('regress_ttl_docs');
RESET session_replication_role;
DELETE FROM s WHERE id IN ('touched', 'changed');
-- The setting "local" works like "origin".
SET session_replication_role = local;
INSERT INTO s VALUES ('local', '{}', '2000-01-01', 7, 7) RETURNING :stamp;
RESET session_replication_role;

--
-- A restore by the owner or a superuser, under row_security = off, keeps _ts; the ttl
-- comes from the document and must be valid
--
SET row_security = off;
INSERT INTO s VALUES ('restored', '{"ttl": 100}', now() - interval '50 s', 7, 7) RETURNING :stamp;
COPY s FROM stdin;
restored by copy	{"ttl": 2000000000}	2000-01-01	7	7
restored dead	{}	2000-01-01	7	7
\.
INSERT INTO s VALUES ('restored bad', '{"ttl": 0}', now(), NULL, NULL);
\echo :SQLSTATE
INSERT INTO s (id, doc) VALUES ('restored, no stamp', '{}') RETURNING :stamp;
-- Other writes set _ts.
UPDATE s SET _ts = '2000-01-01' WHERE id = 'restored' RETURNING :stamp;
RESET row_security;
SELECT :stamp FROM s WHERE id LIKE 'restored%' ORDER BY id;

-- The same for other users, and in a SECURITY DEFINER function
CREATE ROLE regress_ttl_writer;
CREATE ROLE regress_ttl_owner;
GRANT ALL ON s TO regress_ttl_writer;
SET ROLE regress_ttl_writer;
SET row_security = off;
INSERT INTO s VALUES ('not the owner', '{}', '2000-01-01', 7, 7) RETURNING :stamp;
RESET ROLE;
CREATE FUNCTION definer() RETURNS void LANGUAGE sql SECURITY DEFINER AS
    $$ INSERT INTO s VALUES ('by a definer', '{}', '2000-01-01', 7, 7) $$;
SET ROLE regress_ttl_writer;
SELECT definer();
RESET ROLE;
ALTER TABLE s OWNER TO regress_ttl_owner;
SET ROLE regress_ttl_owner;
INSERT INTO s VALUES ('the owner', '{"ttl": 2000000000}', '2000-01-01', 7, 7) RETURNING :stamp;
RESET ROLE;
RESET row_security;
SELECT :stamp FROM s WHERE id = 'by a definer';
DROP FUNCTION definer();
DROP TABLE s;
DROP ROLE regress_ttl_writer, regress_ttl_owner;

-- The clock is behind a floor: a new document must not be expired when it is written.
SELECT ttl_docs.create_collection('f', 100);
SET ttl_docs.clock_offset = 1000;
INSERT INTO f VALUES ('a', '{}'), ('b', '{"ttl": 50}');
SET ttl_docs.clock_offset = 2000;
SELECT ttl_docs.set_default_ttl('f', 500);
SET ttl_docs.clock_offset = 0;
SELECT id FROM f ORDER BY id;
INSERT INTO f VALUES ('a', '{"new": true}'), ('b', '{"ttl": 50, "new": true}'), ('c', '{"ttl": -1}');
SELECT id, doc FROM f ORDER BY id;
UPDATE f SET doc = doc || '{"again": true}' RETURNING id;
SELECT id, doc FROM f ORDER BY id;
DROP TABLE f;

-- Writes use the clock.  A document that expires between the snapshot and the write
-- counts as deleted.  Here a trigger moves the clock in between.
SELECT ttl_docs.create_collection('j', 1000);
INSERT INTO j VALUES ('a', '{"ttl": 100}');
CREATE FUNCTION pass_time() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('ttl_docs.clock_offset', '100', true);
    RETURN coalesce(NEW, OLD);
END $$;
CREATE TRIGGER pass_time BEFORE UPDATE OR DELETE ON j FOR EACH ROW EXECUTE FUNCTION pass_time();
UPDATE j SET doc = '{"v": 2}' RETURNING id;
DELETE FROM j RETURNING id;
INSERT INTO j VALUES ('a', '{}') ON CONFLICT (id) DO UPDATE SET doc = '{"v": 2}';
\echo :SQLSTATE
WITH o AS (INSERT INTO j VALUES ('a', '{}') ON CONFLICT (id) DO UPDATE SET doc = '{"v": 2}' RETURNING id) SELECT * FROM o;
\echo :SQLSTATE
MERGE INTO j USING (VALUES ('a')) AS v(id) ON j.id = v.id WHEN MATCHED THEN UPDATE SET doc = '{"v": 2}';
\echo :SQLSTATE
MERGE INTO j USING (VALUES ('a')) AS v(id) ON j.id = v.id WHEN MATCHED THEN DELETE;
\echo :SQLSTATE
INSERT INTO j VALUES ('a', '{}') ON CONFLICT DO NOTHING RETURNING id;
BEGIN ISOLATION LEVEL REPEATABLE READ;
UPDATE j SET doc = '{"v": 2}' RETURNING id;
\echo :SQLSTATE
ROLLBACK;
BEGIN ISOLATION LEVEL SERIALIZABLE;
DELETE FROM j RETURNING id;
\echo :SQLSTATE
ROLLBACK;
-- A plain UPDATE in a function that an upsert calls is still a plain UPDATE.
CREATE FUNCTION late_update() RETURNS jsonb LANGUAGE plpgsql AS
    $$ BEGIN UPDATE j SET doc = '{"v": 2}' WHERE id = 'a'; RETURN jsonb_build_object('found', FOUND); END $$;
INSERT INTO j VALUES ('b', late_update()) ON CONFLICT (id) DO UPDATE SET doc = '{"v": 2}' RETURNING id, doc;
SELECT id, doc FROM j ORDER BY id;
DROP TABLE j;
DROP FUNCTION pass_time(), late_update();

-- A restore and replication keep a _ts that they bring.  The default of the column does not
-- count: it is the start of the transaction, which can be long ago.
SELECT ttl_docs.create_collection('brought', 1000);
BEGIN;
SET LOCAL ttl_docs.clock_offset = 100;
SET LOCAL row_security = off;
INSERT INTO brought (id, doc) VALUES ('restore, default', '{}');
COPY brought (id, doc) FROM stdin;
restore by COPY, default	{}
\.
INSERT INTO brought (id, doc, _ts) VALUES ('restore, _ts', '{}', now() - interval '1 s');
SET LOCAL session_replication_role = replica;
INSERT INTO brought (id, doc) VALUES ('replication, default', '{}');
INSERT INTO brought (id, doc, _ts) VALUES ('replication, _ts', '{}', now() - interval '1 s');
SELECT id, _ts > now() + interval '50 s' AS clock, _ts = now() - interval '1 s' AS brought
  FROM brought ORDER BY id COLLATE "C";
ROLLBACK;
DROP TABLE brought;

-- The trigger function works only as the trigger of a collection.
SELECT ttl_docs_internal.write_document();
\echo :SQLSTATE
CREATE TABLE plain (id int);
CREATE TRIGGER t AFTER INSERT ON plain FOR EACH ROW EXECUTE FUNCTION ttl_docs_internal.write_document();
INSERT INTO plain VALUES (1);
\echo :SQLSTATE
DROP TRIGGER t ON plain;
CREATE TRIGGER t BEFORE INSERT ON plain FOR EACH STATEMENT EXECUTE FUNCTION ttl_docs_internal.write_document();
INSERT INTO plain VALUES (1);
\echo :SQLSTATE
DROP TRIGGER t ON plain;
CREATE TRIGGER t BEFORE INSERT ON plain FOR EACH ROW EXECUTE FUNCTION ttl_docs_internal.write_document();
INSERT INTO plain VALUES (1);
\echo :SQLSTATE
DROP TABLE plain;
DROP FUNCTION stamped;
